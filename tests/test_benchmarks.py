"""The benchmarks run at a small size, and show what the documentation says. Their times are not looked at."""

from __future__ import annotations

import concurrent.futures
import csv
import io
import json
import os
import pickle
import re
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
from cells import left_out, mean_f1, simulate
from cells_options import OPTIONS as OPTIONS_OF_CELLS
from comparison import Settings, contenders, key_of, load_data, run_cell
from recording import read_lines, write_lines
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from skmix import SharedKernelMixture

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
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
        monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Worker)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return run_program([sys.executable, str(path), *map(str, arguments)]).stdout

    return run


# ---------------------------------------------------------------- what each benchmark must show


def speed(results: Any) -> None:
    for rows in results["fits"].values():
        assert len(rows) == 8
        # The benchmark is void unless both sides made the same fit.
        assert all(row["log_likelihood_difference"] < 1e-8 for row in rows)
    assert set(results["memory_mb"]) == {"sklearn", "drop-in", "mixture", "labelled"}


def peers(results: Any) -> None:
    assert set(results["versions"]) == {"skmix", "scikit-learn", "gmmx", "mlpack"}
    for row in results["cases"]:
        ours, theirs = (row["log_likelihood"][name] for name in ("skmix", "scikit-learn"))
        assert ours == pytest.approx(theirs, rel=1e-7)
        for name, version in results["versions"].items():
            assert (name in row["ms"]) == (version is not None)


def few_rows(results: Any) -> None:
    """What the default prior on covariances rests on."""
    found = [row for row in results if row["ratio"] < 3.0]
    assert all(row["density_shrunk"] > row["density"] for row in found)


def missing(results: Any) -> None:
    none, few, many = results[:3]
    assert none["patterns"] == none["pass_ratio"] == 1
    assert 1 < few["patterns"] <= many["patterns"]


def groups(results: Any) -> None:
    found = {(r["kernels"], r["alpha_true"], r["large_groups"], r["fit"]): r for r in results}
    independent, hierarchical = (found["apart", 50.0, 0, fit] for fit in ("independent", "hierarchical"))
    assert hierarchical["error"] < 2 / 3 * independent["error"]
    assert hierarchical["held_out"] > independent["held_out"]


def shifts(results: Any) -> None:
    found = {(r["kernels"], r["deviation"], r["rows_of_a_group"]): r for r in results}
    shifted, plain = found["apart", 0.5, 2000], found["apart", 0.0, 2000]
    assert shifted["error"]["auto"] < 0.5 * shifted["error"]["none"]
    assert plain["error"]["auto"] == plain["error"]["none"]
    assert plain["auto_shifts"] == 0.0


def out_of_core(results: Any) -> None:
    assert results["memory"]["peak_mb"] > 0
    for row in results["speed"]:
        memory, *files = row["log_likelihood"].values()
        assert files == pytest.approx([memory] * 2, rel=1e-9)


def densities(results: Any) -> None:
    found = {row["data"]: row for row in results}
    # Kernels do not collapse: e^30 would be a few standard deviations of a thousandth in each feature.
    assert all(row["largest"] < 30.0 for row in found.values())
    # 60 rows with 13 features: scikit-learn's components collapse, ours do not.
    assert found["wine"]["gain"] > 0.0


def novelty(results: Any) -> None:
    assert [row["nominal"] for row in results[:3]] == [0.01, 0.05, 0.1]
    # A tenth quantile of the training rows' own densities refuses 13 % of these new ones.
    found = next(row for row in results if (row["data"], row["nominal"]) == ("breast_cancer", 0.1))
    assert abs(found["refused"] - 0.1) < 0.025


def populations(results: Any) -> None:
    """Merging puts pieces of a population together: less than half as many rows are misclassified."""
    for case in results:
        errors = {name: np.mean([run[name] for run in case["runs"]]) for name in ("bic", "merged")}
        assert errors["bic"] > 0.2
        assert errors["merged"] < 0.5 * errors["bic"]


def cells_options(results: Any) -> None:
    """Where populations are Gaussian and apart, no option moves a cell; a prior helps where cells are few."""
    for run in results[0]["runs"]:
        gated, plain, hierarchical = (run[name] for name in ("gated cells", "plain", "hierarchical"))
        assert all(run[name][key] == 1.0 for name in OPTIONS_OF_CELLS for key in ("f1", "f1_new"))
        assert plain["error_20"] == pytest.approx(gated["error_20"], abs=0.01)
        assert hierarchical["error_20"] < plain["error_20"]


def composition(results: Any) -> None:
    case, unusual = results["coverage"][0], results["unusual"][0]
    assert min(case["coverage"], case["new"]) > 0.85
    assert unusual["foreign"]["first"] == 1.0
    assert unusual["none"]["usual"] <= 0.05
    for case in results["designs"]:
        assert case["worst"]["compare"] <= 0.15
        assert case["covered"] >= 0.9
        if case["layout"].endswith("pairs, different") and case["proportion"] >= 0.1:
            assert case["found"]["compare"] > case["found"]["welch"] + 0.1


def alarms(results: Any) -> None:
    """What is unusual is found; that few studies have a false alarm is tested below."""
    found = [case for case in results["found"] if (case["groups"], case["concentration"]) == (8, 500)]
    assert all(case[kind]["share"] > 0.6 for case in found for kind in ("new", "tripled"))


def robust(results: Any) -> None:
    """Outliers cost t kernels 1 % of accuracy and 10 % of the error of means; Gaussian kernels ten times."""
    for case in results["outliers"]:
        for name in case["runs"][0]:
            clean, far = (
                {key: np.mean([run[name][kind][key] for run in case["runs"]]) for key in own}
                for kind, own in case["runs"][0][name].items()
            )
            if name == "gaussian":
                assert far["means"] > 10.0 * clean["means"]
                continue
            several = len(case["runs"]) > 1  # a single small run varies more
            assert far["means"] < (1.1 if several else 1.2) * clean["means"]
            assert far["accuracy"] > clean["accuracy"] - 0.01 or not several


def spark(results: Any) -> None:
    """A killed worker and other units change nothing, and in small units Spark makes the same fit."""
    assert results["killed"]["workers_lost"] == 1
    assert results["killed"]["difference"] < 1e-12
    scores = [case["log_likelihood"]["dask"] for case in results["units"][:3]]
    assert scores == pytest.approx(scores[:1] * 3, rel=1e-9)
    if "spark" in results:
        assert results["units"][0]["log_likelihood"]["spark"] == pytest.approx(scores[0], rel=1e-9)


def answer(results: Any) -> None:
    found = {row["name"]: row for row in results["problems"]}
    assert all(("difference" in row) == (row["n_groups"] == 1 and not row["gaps"]) for row in found.values())
    # Where clusters are apart both find them.
    assert abs(found["apart"]["difference"]) < 0.002
    assert "reached" in found["apart"]


def drop_in(results: Any) -> None:
    """It starts and stops where scikit-learn's mixture does."""
    for row in results["problems"]:
        assert row["drop-in"]["passes"] == row["scikit-learn"]["passes"]
        assert row["apart"] < 1e-6


SHOWN = {
    show.__name__: show
    for show in (
        *(speed, peers, few_rows, missing, groups, shifts, out_of_core),
        *(densities, novelty, populations, cells_options, composition, alarms, robust, answer, spark),
        drop_in,
    )
}
# Benchmarks that are run to their end, and no more.
RUN = ("cores", "study", "samples", "cells_size", "switches", "tables", "pictures", "optimum")
OPTIONS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("speed", "peers", "cores", "tables", "spark"), ("--small", "--repeats", 1)),
    **dict.fromkeys(("study", "samples", "pictures"), ("--small", "--jobs", 1)),
    "optimum": ("--small", "--seeds", 2, "--peer-seeds", 1, "--jobs", 1),
    "missing": ("--small", "--structures", "full"),
    "out_of_core": ("--gigabytes", 0.001, "--cached", 0.001, "--repeats", 1),
}


@pytest.mark.parametrize("name", [*SHOWN, *RUN])
def test_a_benchmark_runs_and_shows_it(name: str, tmp_path: Path, benchmark: Script) -> None:
    if name == "spark":
        pytest.importorskip("distributed", reason="needs the extra dask")
    out = tmp_path / "results.json"
    own = ("--temporary", tmp_path) if name == "out_of_core" else ()
    assert benchmark(name, *OPTIONS.get(name, ("--small",)), *own, "--out", out)
    if name in SHOWN:
        SHOWN[name](json.loads(out.read_text()))


def test_checkouts_are_compared_by_processes_of_their_own(tmp_path: Path, benchmark: Script) -> None:
    out, words = tmp_path / "beside.json", ("--small", "--repeats", 1)
    printed = benchmark("speed", "--beside", ROOT, *words, "--out", out)
    results = json.loads(out.read_text())
    assert len(printed.splitlines()) == len(results) + 2
    assert {row["case"]["what"] for row in results} == {"pass", "k-means", "scoring", "fit"}
    for key, values in {"n_classes": {1, 10}, "n_jobs": {1, 2}, "tail": {None, "t"}}.items():
        assert {row["case"][key] for row in results} == values
    for row in results:
        # Both sides are this checkout.
        assert row["log_likelihood"]["other"] == row["log_likelihood"]["this"]
        # So tiny a difference of times may have any sign.
        assert row["name"] in printed
    with pytest.raises(FileNotFoundError, match="is no checkout of skmix"):
        benchmark("speed", "--beside", tmp_path, *words)
    (tmp_path / "src" / "skmix").mkdir(parents=True)
    (tmp_path / "src" / "skmix" / "__init__.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(
        RuntimeError, match=f"The process for {re.escape(str(tmp_path))}.* ended at: pass, full"
    ):
        benchmark("speed", "--beside", tmp_path, *words)


def test_rare_values_are_refused_in_the_share_asked_for(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "results.json"
    assert benchmark("novelty", "--small", "--categories", "--out", out)
    for results in (json.loads(path.read_text()) for path in (out, RESULTS / "novelty_categories.json")):
        for row in results:
            assert row["nominal"] / 2 < row["refused"] < 2 * row["nominal"]
            assert row["caught"] == 1.0
        # By plain densities, rows with a category of their own leave nothing to refuse.
        plain = next(row for row in results if row["table"] == "single rows")
        assert plain["plain_refused"] == plain["plain_caught"] == 0.0


@pytest.mark.parametrize("show", [speed, groups, shifts, populations, composition, robust, spark])
def test_the_results_that_are_kept_show_it(show: Callable[[Any], None]) -> None:
    show(json.loads((RESULTS / f"{show.__name__}.json").read_text()))


def test_what_the_pages_promise_was_measured() -> None:
    gaps, files = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("missing", "samples"))
    assert all(row["pass_ratio"] <= {"none": 1, "few": 5, "many": 20}[row["gaps"]] for row in gaps)
    assert all(row["peak_mb"] < 1000 for row in files["files"])
    seconds = json.loads((RESULTS / "robust.json").read_text())["seconds_of_a_pass"]
    assert max(seconds.values()) < 1.5 * seconds["gaussian"]
    # What the default start of mixtures rests on.
    assert all(row["mean"] < 0.02 for row in files["starts"])


def test_clusters_are_judged_by_the_best_match_to_gates() -> None:
    gates = np.array([0] * 10 + [1] * 4 + [2] * 2 + [-1] * 5)
    # The largest F1 is that of cluster 7 and gate 0, 0.6, but then nothing is left for gate 1. Gate 2 has no
    # cluster: its cells are in none. Ungated cells do not count.
    labels = np.array([7] * 6 + [8] * 4 + [7] * 4 + [-1] * 2 + [7, 7, 8, 9, 9])
    assert mean_f1(labels, gates) == pytest.approx((2 * 4 / (4 + 10) + 2 * 4 / (10 + 4)) / 3)


def test_populations_of_simulated_cells_are_their_gates(tmp_path: Path, benchmark: Script) -> None:
    """And one population of the ungated cells; told 3, two of them are one."""
    assert benchmark("cells", "--small", "--out", tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open(newline="", encoding="utf-8") as file:
        found = next(csv.DictReader(file))
    assert (found["populations"], found["compose"], found["in 6 files"]) == ("4.0", "1.000", "1.000")
    assert float(found["compose, k"]) < 0.7


def test_gated_cells_are_drawn_and_dealt_at_random() -> None:
    given = simulate()
    few = given.drawn(75, seed=1)
    assert few.X.shape == (75, 2)
    assert few.n_gates == 3
    dealt = given.dealt(3, seed=0)
    assert np.array_equal(dealt.X, given.X)
    assert np.bincount(dealt.sample).tolist() == [200] * 3


def test_a_constant_is_chosen_on_the_other_sets() -> None:
    gains = {
        "one": [1.0, 0.0, 0.0],
        "two": [0.0, 0.3, 0.2],
        "three": [0.0, 0.1, 0.6],
        "himc2000": [0.0, 9.0, 0.0],
    }
    chosen = left_out({name: np.array(gain) for name, gain in gains.items()})
    assert chosen == {"one": 2, "two": 0, "three": 0, "himc2000": 0}


def test_few_studies_have_an_alarm() -> None:
    verdicts = runpy.run_path(str(ROOT / "benchmarks" / "alarms.py"))["verdicts"]
    cells, n_studies = ((5, 200, 5, 3), (6, 200, 20, 3)), 350
    alarms = sum(verdicts(*cell, "none", n_studies).any(axis=1).sum() for cell in cells)
    total = n_studies * len(cells)
    most = stats.binom(total, 0.05).isf(1e-3)
    # Alarms of 5 % of all studies stay below this bound; those of 13 % would not.
    assert stats.binom(total, 0.13).cdf(most) < 1e-4
    assert alarms <= most


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shifted", "replaced"])
def test_a_permuted_condition_seldom_differs_and_a_switch_is_found(kind: str) -> None:
    least_q = runpy.run_path(str(ROOT / "benchmarks" / "switches.py"))["least_q"]
    permuted, switched = np.transpose([least_q(kind, 5, 100, seed) for seed in range(12)])
    # Three or more of 12 studies with an alarm have a probability of 2 % if 5 % of studies have one.
    assert (permuted <= 0.05).sum() <= 2
    assert (switched <= 0.05).sum() >= 11


def test_the_comparison_leaves_what_it_measured_and_pictures(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "accuracy.jsonl"
    iris, (lda,) = load_data("iris"), contenders(["LDA"])
    settings = Settings(n_repeats=1, seed=1)
    known = replace(run_cell(iris, lda, 0, settings), error=0.125, key=key_of(iris, lda, settings))
    earlier = [
        known,
        replace(known, data="wine", key="of another run"),
        replace(known, classifier="naive Bayes", key="of earlier code", repeat=7),
        replace(known, data="mnist"),
    ]
    write_lines(out, [each.to_dict() for each in earlier], ("data", "classifier"))
    places = ("--out", out, "--images", tmp_path, "--store", tmp_path / "cells.jsonl")
    printed = benchmark("accuracy", "--small", "--only-classifiers", "naive Bayes", "LDA", *places)
    assert "iris, naive Bayes, 1: " in printed
    # What is known is not measured again.
    assert "iris, LDA, 1: " not in printed
    outcomes = read_lines(out)
    # Other cells stay; earlier outcomes of the cells that were run, and of data sets that are gone, do not.
    assert [(each["data"], each["classifier"], each["repeat"]) for each in outcomes] == [
        ("wine", "LDA", 0),
        ("iris", "LDA", 0),
        ("iris", "naive Bayes", 0),
    ]
    assert outcomes[1]["error"] == 0.125
    assert {path.name for path in tmp_path.glob("*.png")} == {"ranks.png", "comparison.png"}


def test_the_study_of_sharing_measures_and_draws(tmp_path: Path, benchmark: Script) -> None:
    places = ("--out", tmp_path / "sharing.jsonl", "--images", tmp_path, "--store", tmp_path / "cells.jsonl")
    sizes = ("--data", "pool-3", "--rows", 2, "--draws", 1)
    printed = benchmark("sharing", *sizes, *places)
    assert "pool-3, 6 rows, own kernels, 1: error " in printed
    drawn = {"sharing.png", "sharing-error.png", "sharing-log-loss.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == drawn
    for name in drawn:
        (tmp_path / name).unlink()
    # What was measured can be drawn again, with the same tables.
    again = benchmark("sharing", "--draw", *places)
    assert printed.endswith(again)
    assert {path.name for path in tmp_path.glob("*.png")} == drawn


def test_hostile_fits_are_clean_or_refused(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "torture.json"
    benchmark("torture", "--fits", 25, "--out", out)
    results = json.loads(out.read_text())
    assert results["failed"] == []
    assert results["clean"] > 10
    assert results["clean"] + sum(results["refused"].values()) == 25
    # The checks are not void.
    module = runpy.run_path(str(ROOT / "benchmarks" / "torture.py"))
    model = SharedKernelMixture(2, random_state=0).fit([[0.0], [1.0], [5.0], [6.0]])
    model.means_ = np.array([[0.5], [np.nan]])
    assert list(module["bad_attributes"](model)) == ["means_ has NaN"]
    model.covariance_prior, model.log_likelihood_path_ = None, np.array([[1.0], [0.9], [2.0]])
    assert "log-likelihood falls" in next(module["falls"](model, 4))
