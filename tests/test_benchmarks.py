"""The benchmarks run at a small size. Their times are not looked at."""

from __future__ import annotations

import concurrent.futures
import io
import json
import os
import pickle
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import Settings, contenders, key_of, load_data, run_cell
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from skmix import SharedKernelMixture
from skmix.paper.harness import write_lines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
# Runs a script with arguments and returns what it prints.
Script = Callable[..., str]


class Worker:
    """In place of a process of its own, a worker in this one, which gets its cores and threads back."""

    def __init__(
        self, n_workers: int, _: object, initializer: Callable[..., None], given: tuple[int]
    ) -> None:
        assert n_workers == 1
        self.prepare = partial(initializer, *given)

    def submit(self, *call: Any) -> concurrent.futures.Future[Any]:
        work, *given = pickle.loads(pickle.dumps(call))
        threads = {each["prefix"]: each["num_threads"] for each in threadpool_info()}
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            self.prepare()
            future.set_result(work(*given))
        finally:
            threadpool_limits(threads)
            if cores is not None:
                os.sched_setaffinity(0, cores)
        return future

    def shutdown(self) -> None:
        pass


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A benchmark in this process, with those that it starts: each would import everything once more."""

    def run_program(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        _, *program = [part for part in command if part not in ("-W", "ignore")]
        with redirect_stdout(io.StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", program)
            if program[0] == "-c":
                code = sys.argv.pop(1)
                exec(code, {"__name__": "__main__"})
            else:
                runpy.run_path(program[0], run_name="__main__")
        return subprocess.CompletedProcess(command, 0, printed.getvalue(), "")

    def run(name: str, *arguments: object) -> str:
        path = ROOT / "benchmarks" / f"{name}.py"
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.setattr(subprocess, "run", run_program)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return run_program([sys.executable, str(path), *map(str, arguments)]).stdout

    return run


def test_speed_benchmark_writes_numbers(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "speed.json"
    benchmark("speed", "--small", "--repeats", 1, "--out", out)
    results = json.loads(out.read_text())
    for rows in results["fits"].values():
        assert len(rows) == 8
        for row in rows:
            # The benchmark is void unless both sides made the same fit.
            assert row["log_likelihood_difference"] < 1e-8
            assert row["ratio_1"] == pytest.approx(row["sklearn_1_ms"] / row["skmix_1_ms"])
    assert {row["features"] for row in results["starts"]} == {3, 6, 13}
    assert set(results["memory_mb"]) == {"sklearn", "drop-in", "mixture", "labelled"}
    assert [row["features"] for row in results["compilation"]] == [6]


def test_benchmark_of_peers_compares_the_same_passes_and_names_missing_libraries(
    tmp_path: Path, benchmark: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Worker)
    out = tmp_path / "peers.json"
    printed = benchmark("peers", "--small", "--repeats", 1, "--out", out)
    results = json.loads(out.read_text())
    assert set(results["versions"]) == {"skmix", "scikit-learn", "gmmx", "mlpack"}
    assert {row["clusters"] for row in results["cases"]} == {"overlapping", "apart"}
    for row in results["cases"]:
        # The benchmark is void unless both sides make the same passes.
        assert row["log_likelihood"]["scikit-learn"] == pytest.approx(
            row["log_likelihood"]["skmix"], rel=1e-7
        )
        for name, version in results["versions"].items():
            assert (name in row["ms"]) == (version is not None)
    for name, version in results["versions"].items():
        assert version is not None or f"not installed: {name}" in printed or f", {name}" in printed


def test_core_benchmark_times_every_structure_with_each_number_of_threads(
    tmp_path: Path, benchmark: Script
) -> None:
    out = tmp_path / "cores.json"
    benchmark("cores", "--small", "--repeats", 1, "--out", out)
    cases = json.loads(out.read_text())["cases"]
    assert {case["covariances"] for case in cases} == {"full", "tied", "diag", "spherical", "low_rank"}
    assert all("1" in case["ms"] for case in cases)


def test_study_benchmark_counts_runs_of_every_method(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "study.json"
    printed = benchmark("study", "--small", "--whole", "--jobs", 1, "--out", out)
    results = json.loads(out.read_text())
    assert len(results["one_process"]) == 10
    for method in ("published", "robust", "class-wise"):
        assert all(row[method] > 0 for row in results["one_process"])
        assert f"{method}: 5000 runs at K = 10 take about" in printed
    # One run of ten variants, and of four at six more values of K.
    assert [row["runs"] for row in results["whole"]] == [34, 34, 34]


def test_the_benchmark_of_acceleration_runs(benchmark: Script) -> None:
    printed = benchmark("acceleration", "--small")
    assert "accelerated" in printed


def test_the_benchmark_of_many_kernels_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "many_kernels.json"
    printed = benchmark("many_kernels", "--small", "--out", out)
    assert "ms per pass" in printed
    cases = json.loads(out.read_text())["cases"]
    assert [(case["kernels"], case["clusters"]) for case in cases] == [
        (16, "apart"), (32, "apart"), (16, "overlapping"), (32, "overlapping"),
    ]  # fmt: skip
    # The benchmark is void unless both sides made the same fit.
    assert all(case["log_likelihood_difference"] < 1e-8 for case in cases)


def test_the_benchmark_of_few_rows_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "few_rows.json"
    printed = benchmark("few_rows", "--small", "--out", out)
    assert "full covariances" in printed
    found = [row for row in json.loads(out.read_text()) if row["ratio"] < 3.0]
    assert {row["covariance_type"] for row in found} == {"full", "low_rank"}
    # What the default rests on.
    assert all(row["density_shrunk"] > row["density"] for row in found)


def test_the_benchmark_of_missing_values_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "missing.json"
    printed = benchmark("missing", "--small", "--structures", "full", "--out", out)
    assert "100 rows of 15 features" in printed
    none, few, many = json.loads(out.read_text())
    assert none["patterns"] == none["pass_ratio"] == 1
    assert 1 < few["patterns"] <= many["patterns"]
    # What the documentation promises.
    kept = json.loads((ROOT / "benchmarks/results/missing.json").read_text())
    assert all(row["pass_ratio"] <= {"none": 1, "few": 5, "many": 20}[row["gaps"]] for row in kept)


def test_the_benchmark_of_groups_shows_what_small_groups_gain(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "groups.json"
    printed = benchmark("groups", "--small", "--out", out)
    assert "100 groups of 10 to 300 rows" in printed
    for rows in (
        json.loads(out.read_text()),
        json.loads((ROOT / "benchmarks/results/groups.json").read_text()),
    ):
        found = {(r["kernels"], r["alpha_true"], r["large_groups"], r["fit"]): r for r in rows}
        independent, hierarchical = (found["apart", 50.0, 0, fit] for fit in ("independent", "hierarchical"))
        assert hierarchical["error"] < 2 / 3 * independent["error"]
        assert hierarchical["held_out"] > independent["held_out"]


def test_the_benchmark_of_samples_measures_files_groups_and_starts(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "samples.json"
    assert "4 files of 500 rows" in benchmark("samples", "--small", "--jobs", 1, "--out", out)
    kept = json.loads((ROOT / "benchmarks/results/samples.json").read_text())
    for results in (json.loads(out.read_text()), kept):
        assert {row["kernels"] for row in results["files"]} == {"overlapping", "apart"}
        assert {row["groups"] for row in results["groups"]} == {1, 20, 200, 2000}
    # What is promised of files, and what the default start of mixtures rests on.
    assert all(row["peak_mb"] < 1000 for row in kept["files"])
    assert all(row["mean"] < 0.02 for row in kept["starts"])


def test_the_benchmark_of_shifts_shows_that_weights_gain_where_groups_are_shifted(
    tmp_path: Path, benchmark: Script
) -> None:
    out = tmp_path / "shifts.json"
    assert "10 groups, 4 kernels" in benchmark("shifts", "--small", "--out", out)
    for rows in (
        json.loads(out.read_text()),
        json.loads((ROOT / "benchmarks/results/shifts.json").read_text()),
    ):
        found = {(r["kernels"], r["deviation"], r["rows_of_a_group"]): r for r in rows}
        shifted, plain = found["apart", 0.5, 2000], found["apart", 0.0, 2000]
        assert shifted["error"]["auto"] < 0.5 * shifted["error"]["none"]
        assert plain["error"]["auto"] == plain["error"]["none"]
        assert plain["auto_shifts"] == 0.0


def test_the_benchmark_of_high_dimension_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "high_dimension.json"
    assert "full (computed)" in benchmark("high_dimension", "--small", "--jobs", 1, "--out", out)
    results = json.loads(out.read_text())
    assert results["fit"]["last"] > results["fit"]["first"]
    ours, theirs = (results["peers"][name]["log_density"] for name in ("skmix", "scikit-learn"))
    # The same model by two ways, both stopped a little early.
    assert ours == pytest.approx(theirs, abs=0.05)


def test_the_benchmark_of_files_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "out_of_core.json"
    sizes = ("--gigabytes", 0.001, "--cached", 0.001, "--repeats", 1, "--temporary", tmp_path)
    assert "Peak memory" in benchmark("out_of_core", *sizes, "--out", out)
    results = json.loads(out.read_text())
    assert results["memory"]["peak_mb"] > 0
    assert {row["features"] for row in results["speed"]} == {3, 6, 16, 32}
    for row in results["speed"]:
        # The benchmark is void unless all sides made the same passes.
        memory, *files = row["log_likelihood"].values()
        assert files == pytest.approx([memory] * 2, rel=1e-9)


def test_the_comparison_leaves_what_it_measured_and_pictures(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "accuracy.jsonl"
    iris, (lda,) = load_data("iris"), contenders(["LDA"])
    settings = Settings(n_repeats=1, seed=1)
    known = replace(run_cell(iris, lda, 0, settings), error=0.125, key=key_of(iris, lda, settings))
    earlier = [
        known,
        replace(known, data="wine", key="of another run"),
        replace(known, classifier="shared kernels", key="of earlier code", repeat=7),
        replace(known, data="mnist"),
    ]
    write_lines(out, [each.to_dict() for each in earlier])
    places = ("--out", out, "--images", tmp_path, "--store", tmp_path / "cells.sqlite")
    printed = benchmark("accuracy", "--small", *places)
    assert "iris, shared kernels, 1: " in printed
    # What is known is not measured again.
    assert "iris, LDA, 1: " not in printed
    outcomes = [json.loads(line) for line in out.read_text().splitlines()]
    # Other cells stay; earlier outcomes of the cells that were run, and of data sets that are gone, do not.
    assert [(each["data"], each["classifier"], each["repeat"]) for each in outcomes] == [
        ("wine", "LDA", 0),
        ("iris", "shared kernels", 0),
        ("iris", "LDA", 0),
    ]
    assert outcomes[2]["error"] == 0.125
    assert {path.name for path in tmp_path.glob("*.png")} == {"ranks.png", "comparison.png"}


def test_the_benchmark_of_densities_runs(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "densities.json"
    printed = benchmark("densities", "--small", "--out", out)
    assert "development half: mean gain" in printed
    assert "judging half: mean gain" in printed
    found = {row["data"]: row for row in json.loads(out.read_text())}
    assert set(found) == {"wine", "iris"}
    for row in found.values():
        assert row["gain"] == pytest.approx(row["skmix"] - row["sklearn"])
        # Kernels do not collapse: e^30 would be a few standard deviations of a thousandth in each feature.
        assert row["largest"] < 30.0
    # 60 rows with 13 features: scikit-learn's components collapse, ours do not.
    assert found["wine"]["gain"] > 0.0


def test_the_benchmark_of_novelty_compares_shares(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "novelty.json"
    printed = benchmark("novelty", "--small", "--out", out)
    rows = json.loads(out.read_text())
    assert [row["nominal"] for row in rows] == [0.01, 0.05, 0.1]
    # A tenth quantile of the training rows' own densities refuses 13 % of these new ones.
    assert abs(rows[2]["refused"] - 0.1) < 0.025
    assert "nominal 5 %: within a factor of 1.5 on" in printed


def test_the_benchmark_of_populations_puts_pieces_together(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "populations.json"
    printed = benchmark("populations", "--small", "--out", out)
    results = json.loads(out.read_text())
    (run,) = results["merging"][0]["runs"]
    assert run["bic"] > 0.2
    assert max(run["entropy"], run["overlap"]) <= 0.07
    assert "misclassified new rows" in printed
    (case,) = results["numbers"]
    assert case["runs"][0]["stability"] == case["kernels"] == 3
    assert "numbers of kernels chosen" in printed


def test_the_benchmark_of_compositions_covers(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "composition.json"
    printed = benchmark("composition", "--small", "--out", out)
    results = json.loads(out.read_text())
    (case,) = results["coverage"]
    assert min(case["coverage"], case["new"]) > 0.85
    (unusual,) = results["unusual"]
    assert unusual["foreign"]["first"] == 1.0
    assert unusual["none"]["usual"] <= 0.05
    assert "coverage of 95 % intervals" in printed


def test_the_benchmark_of_alarms_finds_what_is_unusual(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "alarms.json"
    printed = benchmark("alarms", "--small", "--out", out)
    results = json.loads(out.read_text())
    assert [case["studies"] for case in results["alarms"]] == [40, 40, 40]
    (found,) = results["found"]
    assert min(found[kind]["share"] for kind in ("new", "tripled")) > 0.6
    assert "studies with an alarm" in printed


def test_few_studies_have_an_alarm() -> None:
    verdicts = runpy.run_path(str(ROOT / "benchmarks" / "alarms.py"))["verdicts"]
    cells, n_studies = ((5, 200, 5, 3), (6, 200, 20, 3), (6, 200, 20, 1)), 350
    alarms = sum(verdicts(*cell, "none", n_studies).any(axis=1).sum() for cell in cells)
    total = n_studies * len(cells)
    most = stats.binom(total, 0.05).isf(1e-3)
    # Alarms of 5 % of all studies stay below this bound; those of 11 % would not.
    assert stats.binom(total, 0.11).cdf(most) < 1e-4
    assert alarms <= most


def test_the_benchmark_of_outliers_separates_kernels_that_resist_them(
    tmp_path: Path, benchmark: Script
) -> None:
    out = tmp_path / "robust.json"
    printed = benchmark("robust", "--small", "--out", out)
    (case,) = json.loads(out.read_text())["outliers"]
    (run,) = case["runs"]
    assert run["gaussian"]["outliers"]["means"] > 10 * run["gaussian"]["clean"]["means"]
    clean, outliers = run["background"]["clean"], run["background"]["outliers"]
    assert outliers["accuracy"] > clean["accuracy"] - 0.01
    assert all(outliers[error] < 1.05 * clean[error] for error in ("means", "weights", "shapes"))
    assert run["t"]["outliers"]["means"] < 1.2 * run["t"]["clean"]["means"]
    assert "without → with outliers" in printed


def test_the_benchmark_of_defaults_judges_both_halves(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "defaults.json"
    printed = benchmark("defaults", "--small", "--out", out)
    rows = json.loads(out.read_text())
    assert {row["half"] for row in rows} == {"development", "judging"}
    for row in rows:
        assert f"{row['half']}: better than both on" in printed
        assert all(0.0 <= row[name] < 0.2 for name in ("LDA", "QDA", "default"))


def test_the_benchmark_of_tables_reads_all_of_them(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "tables.json"
    printed = benchmark("tables", "--small", "--repeats", 1, "--out", out)
    results = json.loads(out.read_text())
    assert [(row["rows"], row["columns"]) for row in results] == [(200, 10), (3, 1500)]
    for row in results:
        assert row["ratios"]["wall_s_by_pandas"] == row["skmix"]["wall_s"] / row["pandas"]["wall_s"]
    assert printed.count("pyarrow") == 2


def test_hostile_fits_are_clean_or_refused(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "torture.json"
    printed = benchmark("torture", "--fits", 25, "--out", out)
    results = json.loads(out.read_text())
    assert results["failed"] == []
    assert results["clean"] > 10
    assert results["clean"] + sum(results["refused"].values()) == 25
    assert "25 hostile fits, seed 0" in printed
    # The checks are not void.
    module = runpy.run_path(str(ROOT / "benchmarks" / "torture.py"))
    model = SharedKernelMixture(2, random_state=0).fit([[0.0], [1.0], [5.0], [6.0]])
    model.means_ = np.array([[0.5], [np.nan]])
    assert list(module["bad_attributes"](model)) == ["means_ has NaN"]
    model.covariance_prior, model.log_likelihood_path_ = None, np.array([[1.0], [0.9], [2.0]])
    assert "log-likelihood falls" in next(module["falls"](model, 4))


def test_the_repeats_of_the_pictures_run(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "pictures.json"
    benchmark("pictures", "--small", "--jobs", 1, "--out", out)
    kept = json.loads((ROOT / "benchmarks/results/pictures.json").read_text())
    for results, n_repeats in ((json.loads(out.read_text()), 2), (kept, 20)):
        for part, values in (("unlabelled", "accuracy"), ("high_dimension", "error")):
            for sizes in results[part][values].values():
                assert {len(repeats) for repeats in sizes} == {n_repeats}
    assert all(row["ms"] > 0 for row in kept["passes"])
