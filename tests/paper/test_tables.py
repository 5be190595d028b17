"""One table as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io

from skmix.paper.harness import Row, Table, bold_best, plain_table

TABLE = Table(
    "t",
    "Title",
    ("metric",),
    "variant",
    ("3D", "9D"),
    ("paper", "ours"),
    (Row(("Acc",), ((0.5, 0.25 + 0.1), (None, 3))), Row(("Name",), (("a|b", "c"), ("d", "e")))),
    "A note.",
)


def test_csv_has_a_line_for_each_cell_in_full_precision() -> None:
    lines = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert len(lines) == 4
    assert lines[0] == {"metric": "Acc", "variant": "3D", "paper": "0.5", "ours": "0.35"}
    assert lines[1]["paper"] == ""
    # Without sources, a line is a row.
    plain = plain_table("Errors", ("data", "LDA"), [("a", "1"), ("b", "2")], name="errors")
    assert (plain.csv(), plain.name) == ("data,LDA\na,1\nb,2\n", "errors")
    assert plain.value("b", "LDA") == "2"


def test_markdown_has_a_line_for_each_source() -> None:
    assert TABLE.markdown().splitlines() == [
        "### Title",
        "",
        "| metric | source | 3D | 9D |",
        "| --- | --- | --- | --- |",
        "| Acc | paper | 0.500 |  |",
        "| Acc | ours | 0.350 | 3 |",
        "| Name | paper | a\\|b | d |",
        "| Name | ours | c | e |",
        "",
        "A note.",
    ]


def test_the_least_of_the_compared_columns_is_bold() -> None:
    lines = [
        ("a", "1", "5.0 ± 1.0", "5.0 ± 0.2"),
        ("b", "2", "2 of 3 failed", "30.0 ms"),
        ("c", "3", "-1", ""),
        ("d", "4", "+10.25", "9.5"),
    ]
    table = plain_table("Errors", ("data", "rows", "LDA", "QDA"), lines, compared=("LDA", "QDA"))
    assert table.markdown("").splitlines()[2:] == [
        "| a | 1 | **5.0 ± 1.0** | **5.0 ± 0.2** |",
        "| b | 2 | 2 of 3 failed | **30.0 ms** |",
        "| c | 3 | **-1** |  |",
        "| d | 4 | +10.25 | **9.5** |",
    ]
    assert "**" not in table.text()
    assert bold_best(["1", "10", "9"], (1, 2), max) == ["1", "**10**", "9"]
