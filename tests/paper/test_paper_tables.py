"""Tables made from a handful of stored runs hold what one computes by hand."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import make_run

from skmix.paper import Settings, make_tables, write_tables
from skmix.paper.claims import Difference
from skmix.paper.harness import Claim, Row, Table, bold_best, plain_table
from skmix.paper.records import BestRun, Run, StudyData, StudyResults
from skmix.paper.tables import agreement, claims_markdown, confusion_csv

PAPER, RERUN = "paper, printed", "paper's algorithm, rerun"


@pytest.fixture
def results(data: StudyData, settings: Settings) -> StudyResults:
    """Four runs of two variants by the published method, two by others, written as JSON and read back."""
    runs = [
        *(
            make_run(method="published", run=r, accuracy=a, mean_iou=m, reason=reason, failing_pass=p)
            for r, (a, m, reason, p) in enumerate(
                [
                    (0.80, 0.60, "", None),
                    (0.10, 0.01, "constant feature", 13),
                    (0.90, 0.80, "", None),
                    (0.60, 0.40, "too few rows", 9),
                ]
            )
        ),
        *(
            make_run(variant="9D", method="published", run=r, accuracy=a, mean_iou=a / 2)
            for r, a in enumerate([0.50, 0.75, 0.85, 0.95])
        ),
        *(make_run(method="robust", run=r, accuracy=a) for r, a in enumerate([0.82, 0.84])),
        *(make_run(method="class-wise", run=r, accuracy=0.85) for r in range(2)),
        *(make_run(n_kernels=3, method="published", run=r, accuracy=a) for r, a in enumerate([0.28, 0.32])),
        *(make_run(n_kernels=6, method="published", run=r, accuracy=a) for r, a in enumerate([0.3, 0.6])),
        *(
            make_run(n_kernels=12, method="published", run=r, accuracy=a)
            for r, a in enumerate([0.3, 0.7, 0.9])
        ),
    ]
    kept = [Run.from_dict(json.loads(json.dumps(run.to_dict()))) for run in runs]
    best = {("3D", "published"): BestRun(runs[2], ())}
    return StudyResults(settings, data, tuple(reversed(kept)), best, ())


@pytest.fixture
def tables(results: StudyResults) -> dict[str, Table]:
    return {table.name: table for table in make_tables(results)}


@pytest.mark.parametrize(
    ("name", "keys", "column", "source", "value"),
    [
        # All runs.
        ("table1", "Med Acc", "3D", PAPER, 0.847),
        ("table1", "Med Acc", "3D", RERUN, (0.6 + 0.8) / 2),
        # Deviations from 0.6: 0.2, -0.5, 0.3, 0; squares add up to 0.38, over three.
        ("table1", "Std Acc", "3D", RERUN, (0.38 / 3) ** 0.5),
        ("table1", "Mean MIoU", "3D", RERUN, 1.81 / 4),
        ("table1", "Mean Acc", "3D", "robust", 0.83),
        ("table1", "Std Acc", "3D", "class-wise", 0.0),
        ("table1", "Mean Acc", "9D", "robust", None),
        # Of all runs, 9D has the higher median (0.80 over 0.70) here; in the paper it is 3D.
        ("table2", "Med Acc", "1", RERUN, "9D"),
        ("table2", "Med Acc", "1", PAPER, "3D"),
        ("table2", "Med Acc", "tau", RERUN, -1.0),
        ("table2", "Med Acc", "1", "robust", None),
        ("table2", "Med Acc", "tau", "robust", None),
        # Runs above one half; one half is not above one half.
        ("table3", "Med Acc", "3D", RERUN, 0.8),
        ("table3", "OK runs", "3D", RERUN, 3),
        ("table3", "OK runs", "9D", RERUN, 3),
        ("table3", "OK runs", "3D", PAPER, 481),
        # Their medians are 0.80 and 0.85; in the paper, too, 9D is ahead.
        ("table4", "Med Acc", "tau", RERUN, 1.0),
        # With three kernels all runs are counted, with more the failed ones are not.
        ("table5", ("3", "mean"), "3D", RERUN, 0.30),
        ("table5", ("6", "counted"), "3D", RERUN, 1),
        ("table5", ("12", "mean"), "3D", RERUN, 0.8),
        ("table5", ("12", "counted"), "3D", PAPER, 88),
        ("table5", ("12", "std"), "3D", RERUN, 0.02**0.5),
        # One run alone has no standard deviation.
        ("table5", ("6", "std"), "3D", RERUN, None),
        ("table5", ("18", "mean"), "3D", RERUN, None),
        ("table6", "mean", "9D", RERUN, 3.05 / 4),
        ("table6", "mean", "3D", PAPER, 0.80),
        ("table6", "maximum", "3D", RERUN, 0.9),
        ("table6", "maximum", "3D", PAPER, 0.85),
        ("table6", "maximum", "9D", "robust", None),
        # A run that ends singular at an accuracy of 0.6 does not fail.
        ("failures", ("10", "3D"), "constant feature", RERUN, 1),
        ("failures", ("10", "3D"), "overflow", RERUN, 0),
        ("failures", ("10", "3D"), "singular", RERUN, 2),
        ("failures", ("10", "3D"), "singular but > 0.5", RERUN, 1),
        ("failures", ("10", "3D"), "failed", RERUN, 1),
        ("failures", ("10", "9D"), "finite but <= 0.5", RERUN, 1),
        ("failures", ("10", "3D"), "runs", RERUN, 4),
        ("failures", ("10", "9D"), "failed", "robust", None),
    ],
)
def test_values_are_those_computed_by_hand(
    tables: dict[str, Table], name: str, keys: Any, column: str, source: str, value: Any
) -> None:
    found = tables[name].value(keys, column, source)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)
    assert type(found) is type(value)


def test_failures_are_in_the_order_of_k_and_of_the_variants(tables: dict[str, Table]) -> None:
    assert list(tables) == [*(f"table{number}" for number in range(1, 7)), "failures"]
    cells = (("3", "3D"), ("6", "3D"), ("10", "3D"), ("10", "9D"), ("12", "3D"))
    assert tuple(row.keys for row in tables["failures"].rows) == cells


def test_kendalls_tau_by_hand() -> None:
    order = ["a", "b", "c", "d"]
    # Of six pairs, (a, b) and (c, d) are the other way round: (4 - 2) / 6.
    assert agreement(order, {"a": 0.8, "b": 0.9, "c": 0.1, "d": 0.2}) == pytest.approx(1 / 3)
    assert agreement(order, {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}) == 1.0
    assert agreement(order, dict.fromkeys(order, 1.0)) is None


def test_table_5_takes_the_first_hundred_runs(data: StudyData, settings: Settings) -> None:
    runs = [make_run(run=r, accuracy=0.6 if r < 100 else 0.9) for r in range(500)]
    tables = {t.name: t for t in make_tables(StudyResults(settings, data, tuple(runs), {}, ()))}
    assert tables["table5"].value(("10", "mean"), "3D", "robust") == pytest.approx(0.6)
    assert tables["table5"].value(("10", "counted"), "3D", "robust") == 100
    assert tables["table1"].value("Mean Acc", "3D", "robust") == pytest.approx(0.84)


def test_confusion_matrices_are_labelled(results: StudyResults) -> None:
    lines = list(csv.reader(io.StringIO(confusion_csv(results))))
    assert lines[0] == ["variant", "source", "run", "true digit", *map(str, range(10))]
    assert lines[1] == ["3D", PAPER, "", "0", "8", "43", "0", "0", "0", "0", "0", "0", "199", "0"]
    assert len(lines) == 21
    # Rows are true digits: nine eights that are read as threes are in the row of eight.
    best = results.best["3D", "published"]
    counts = np.diag([10] * 10)
    counts[8, [8, 3]] = 1, 9
    mixed = dataclasses.replace(best, run=dataclasses.replace(best.run, confusion=counts))
    changed = dataclasses.replace(results, best={("3D", "published"): mixed})
    written = list(csv.reader(io.StringIO(confusion_csv(changed))))
    assert written[19] == ["3D", RERUN, "2", "8", "0", "0", "0", "9", "0", "0", "0", "0", "1", "0"]


def test_all_files_are_written(results: StudyResults, tmp_path: Path) -> None:
    tables = make_tables(results)
    write_tables(tmp_path, results, tables, (), ())
    expected = {"confusion_matrices.csv": confusion_csv(results), "verdicts.md": claims_markdown((), ())}
    expected |= {f"{table.name}.csv": table.csv() for table in tables}
    expected |= {f"{table.name}.md": table.markdown("#") + "\n" for table in tables}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == expected


def test_claims_and_differences_as_markdown() -> None:
    claims = [Claim("a", "1", "2", True, "Why."), Claim("b", "3", "4", False)]
    found = [Difference("3D", "mean", 0.5, 0.25, "Images.")]
    lines = claims_markdown(claims, found).splitlines()
    assert {"| a | 1 | 2 | yes |", "| b | 3 | 4 | **no** |", "- *a*: Why."} <= set(lines)
    assert lines[-1] == "| 3D | mean | 0.500 | 0.250 | Images. |"


# ---------------------------------------------------------------- any table

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
        ("e", "5", "1.9 ± 0.1", "1.2 ± 0.3"),
    ]
    table = plain_table("Errors", ("data", "rows", "LDA", "QDA"), lines, compared=("LDA", "QDA"))
    assert table.markdown("").splitlines()[2:] == [
        "| a | 1 | **5.0 ± 1.0** | **5.0 ± 0.2** |",
        "| b | 2 | 2 of 3 failed | **30.0 ms** |",
        "| c | 3 | **-1** |  |",
        "| d | 4 | +10.25 | **9.5** |",
        "| e | 5 | 1.9 ± 0.1 | **1.2 ± 0.3** |",
    ]
    assert "**" not in table.text()
    assert bold_best(["1", "10", "9"], (1, 2), max) == ["1", "**10**", "9"]
