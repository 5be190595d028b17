"""Tables made from a handful of stored runs hold what one computes by hand."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skmix.paper import (
    Difference,
    Run,
    Settings,
    StudyData,
    StudyResults,
    make_tables,
    write_tables,
)
from skmix.paper.harness import Claim, Table
from skmix.paper.records import BestRun
from skmix.paper.tables import SOURCES, agreement, claims_markdown, confusion_csv

MakeRun = Callable[..., Run]
PAPER, RERUN = "paper, printed", "paper's algorithm, rerun"


@pytest.fixture
def results(data: StudyData, settings: Settings, make_run: MakeRun) -> StudyResults:
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


def test_there_are_six_tables_and_the_failures(tables: dict[str, Table]) -> None:
    assert list(tables) == [*(f"table{number}" for number in range(1, 7)), "failures"]
    assert tables["table1"].sources == (PAPER, RERUN, "robust", "class-wise") == SOURCES
    assert tables["table1"].columns == ("3D", "9D")


def test_table_1_counts_all_runs(tables: dict[str, Table]) -> None:
    value = tables["table1"].value
    assert value("Med Acc", "3D", PAPER) == 0.847
    assert value("Med Acc", "3D", RERUN) == pytest.approx((0.6 + 0.8) / 2)
    assert value("Mean Acc", "3D", RERUN) == pytest.approx(2.4 / 4)
    # Deviations from 0.6: 0.2, -0.5, 0.3, 0; squares add up to 0.38, over three.
    assert value("Std Acc", "3D", RERUN) == pytest.approx((0.38 / 3) ** 0.5)
    assert value("Mean MIoU", "3D", RERUN) == pytest.approx(1.81 / 4)
    assert value("Mean Acc", "3D", "robust") == pytest.approx(0.83)
    assert value("Std Acc", "3D", "class-wise") == 0.0
    assert value("Mean Acc", "9D", "robust") is None


def test_table_3_counts_runs_above_one_half(tables: dict[str, Table]) -> None:
    value = tables["table3"].value
    assert value("Med Acc", "3D", RERUN) == pytest.approx(0.8)
    assert value("Mean Acc", "3D", RERUN) == pytest.approx(2.3 / 3)
    assert value("OK runs", "3D", RERUN) == 3
    # One half is not above one half.
    assert value("OK runs", "9D", RERUN) == 3
    assert value("Med Acc", "9D", RERUN) == pytest.approx(0.85)
    assert value("OK runs", "3D", PAPER) == 481
    assert isinstance(value("OK runs", "3D", PAPER), int)


def test_rankings_and_their_agreement(tables: dict[str, Table]) -> None:
    value = tables["table2"].value
    # Of all runs, 9D has the higher median (0.80 over 0.70) here; in the paper it is 3D.
    assert [value("Med Acc", rank, RERUN) for rank in "12"] == ["9D", "3D"]
    assert [value("Med Acc", rank, PAPER) for rank in "12"] == ["3D", "9D"]
    assert value("Med Acc", "tau", RERUN) == -1.0
    assert value("Med Acc", "1", "robust") is None
    assert value("Med Acc", "tau", "robust") is None
    # Of the runs above one half, medians are 0.80 and 0.85; in the paper, too, 9D is ahead.
    assert tables["table4"].value("Med Acc", "tau", RERUN) == 1.0


def test_kendalls_tau_by_hand() -> None:
    order = ["a", "b", "c", "d"]
    # Of six pairs, (a, b) and (c, d) are the other way round: (4 - 2) / 6.
    assert agreement(order, {"a": 0.8, "b": 0.9, "c": 0.1, "d": 0.2}) == pytest.approx(1 / 3)
    assert agreement(order, {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}) == 1.0
    assert agreement(order, dict.fromkeys(order, 1.0)) is None


def test_table_5_counts_all_runs_of_three_kernels(tables: dict[str, Table]) -> None:
    value = tables["table5"].value
    assert value(("3", "mean"), "3D", RERUN) == pytest.approx(0.30)
    assert value(("3", "counted"), "3D", RERUN) == 2
    # With six kernels or more, failed runs are not counted.
    assert value(("6", "counted"), "3D", RERUN) == 1
    assert value(("12", "mean"), "3D", RERUN) == pytest.approx(0.8)
    assert value(("12", "counted"), "3D", RERUN) == 2
    assert value(("12", "counted"), "3D", PAPER) == 88
    assert value(("10", "mean"), "3D", "robust") == pytest.approx(0.83)
    assert value(("12", "std"), "3D", RERUN) == pytest.approx(0.02**0.5)
    # One run alone has no standard deviation.
    assert value(("6", "std"), "3D", RERUN) is None
    assert value(("18", "mean"), "3D", RERUN) is None
    assert value(("18", "std"), "9D", PAPER) == 0.15


def test_table_5_takes_the_first_hundred_runs(data: StudyData, settings: Settings, make_run: MakeRun) -> None:
    runs = [make_run(run=r, accuracy=0.6 if r < 100 else 0.9) for r in range(500)]
    tables = {t.name: t for t in make_tables(StudyResults(settings, data, tuple(runs), {}, ()))}
    assert tables["table5"].value(("10", "mean"), "3D", "robust") == pytest.approx(0.6)
    assert tables["table5"].value(("10", "counted"), "3D", "robust") == 100
    assert tables["table1"].value("Mean Acc", "3D", "robust") == pytest.approx(0.84)


def test_table_6_has_mean_and_maximum_of_all_runs(tables: dict[str, Table]) -> None:
    value = tables["table6"].value
    assert value("mean", "3D", RERUN) == pytest.approx(0.6)
    assert value("maximum", "3D", RERUN) == 0.9
    assert value("maximum", "9D", RERUN) == 0.95
    assert value("maximum", "3D", PAPER) == 0.85
    assert (value("mean", "3D", PAPER), value("mean", "9D", RERUN)) == (0.80, pytest.approx(3.05 / 4))
    assert (value("maximum", "3D", "robust"), value("maximum", "9D", "robust")) == (0.84, None)


def test_failures_by_reason(tables: dict[str, Table]) -> None:
    value = tables["failures"].value
    assert value(("10", "3D"), "constant feature", RERUN) == 1
    # A run that ends singular at an accuracy of 0.6 does not fail.
    assert value(("10", "3D"), "singular", RERUN) == 2
    assert value(("10", "3D"), "singular but > 0.5", RERUN) == 1
    assert value(("10", "3D"), "too few rows", RERUN) == 1
    assert value(("10", "3D"), "failed", RERUN) == 1
    assert value(("10", "9D"), "finite but <= 0.5", RERUN) == 1
    assert value(("10", "3D"), "runs", RERUN) == 4
    assert value(("10", "3D"), "failed", "robust") == 0
    assert value(("10", "9D"), "failed", "robust") is None
    # At every K that has runs, in the order of K and of the variants.
    assert [row.keys for row in tables["failures"].rows] == [
        *(("3", "3D"), ("6", "3D"), ("10", "3D"), ("10", "9D"), ("12", "3D")),
    ]
    assert value(("12", "3D"), "finite but <= 0.5", RERUN) == 1
    assert value(("12", "3D"), "runs", RERUN) == 3
    assert value(("10", "3D"), "overflow", RERUN) == 0
    assert value(("10", "3D"), "finite but <= 0.5", RERUN) == 0


def test_csv_has_a_line_for_each_cell_in_full_precision(tables: dict[str, Table]) -> None:
    lines = list(csv.DictReader(io.StringIO(tables["table1"].csv())))
    assert len(lines) == 6 * 2
    assert lines[0] == {
        "metric": "Med Acc",
        "variant": "3D",
        PAPER: "0.847",
        RERUN: repr((0.6 + 0.8) / 2),
        "robust": repr((0.82 + 0.84) / 2),
        "class-wise": "0.85",
    }
    assert lines[1]["robust"] == ""
    sweep = list(csv.DictReader(io.StringIO(tables["table5"].csv())))
    assert {"K", "accuracy", "variant", *SOURCES} == set(sweep[0])


def test_markdown_has_a_line_for_each_source(tables: dict[str, Table]) -> None:
    text = tables["table1"].markdown()
    assert f"| Med Acc | {RERUN} | 0.700 | 0.800 |" in text
    assert "| Med Acc | robust | 0.830 |  |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {5}


def test_confusion_matrices_are_labelled(results: StudyResults) -> None:
    lines = list(csv.reader(io.StringIO(confusion_csv(results))))
    assert lines[0] == ["variant", "source", "run", "true digit", *map(str, range(10))]
    assert lines[1] == ["3D", PAPER, "", "0", "8", "43", "0", "0", "0", "0", "0", "0", "199", "0"]
    assert lines[11][:4] == ["3D", RERUN, "2", "0"]
    assert [int(count) for count in lines[14][4:]] == np.eye(10, dtype=int)[3].tolist()
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
    folder = tmp_path / "tables"
    folder.mkdir()
    write_tables(folder, results, make_tables(results), (), ())
    names = [
        f"{name}.{kind}"
        for name in ("failures", *(f"table{n}" for n in range(1, 7)))
        for kind in ("csv", "md")
    ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*names, "confusion_matrices.csv", "verdicts.md"]
    )
    for table in make_tables(results):
        assert (folder / f"{table.name}.csv").read_text() == table.csv()
        assert (folder / f"{table.name}.md").read_text() == table.markdown("#") + "\n"
    assert (folder / "confusion_matrices.csv").read_text() == confusion_csv(results)
    assert (folder / "verdicts.md").read_text() == claims_markdown((), ())


def test_claims_and_differences_as_markdown() -> None:
    claims = [Claim("a", "1", "2", True, "Why."), Claim("b", "3", "4", False)]
    found = [Difference("3D", "mean", 0.5, 0.25, "Images.")]
    assert claims_markdown(claims, found).splitlines() == [
        *("# Claims, checked", "", "| claim | target | measured | holds |", "| --- | --: | --: | --- |"),
        *("| a | 1 | 2 | yes |", "| b | 3 | 4 | **no** |", "", "- *a*: Why.", ""),
        *("# Where the paper's algorithm, rerun, differs from the paper", ""),
        f"| variant | quantity | {PAPER} | {RERUN} | likely reason |",
        *("| --- | --- | --: | --: | --- |", "| 3D | mean | 0.500 | 0.250 | Images. |"),
    ]
    assert claims_markdown(claims, ()).endswith("paper\n\nNo difference exceeds its sampling error.\n")
