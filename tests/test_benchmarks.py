"""The benchmarks run at a small size and write the columns that pages show; their times are not looked at."""

from __future__ import annotations

import csv
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cells import left_out, mean_f1, simulate
from comparison import Settings, contenders, key_of, load_data, run_cell
from recording import read_lines, write_lines
from scipy import stats

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
# Runs a script with arguments and returns what it prints.
Script = Callable[..., str]
# The results of each script, and its arguments.
WRITTEN = {
    "passes": ("speed", "--repeats", 1),
    "files": ("out_of_core", "speed", "--repeats", 1),
    "memory": ("out_of_core", "memory"),
    "cluster": ("cluster",),
    "device": ("device", "fits", "--device", "cpu:0"),
    "device_precision": ("device", "precision", "--device", "cpu:0"),
    "device_streaming": ("device", "streaming", "--device", "cpu:0"),
    "gaps": ("missing",),
    "errors": ("errors", "xdgmm"),
    "outliers": ("outliers",),
    "digits": ("digits",),
    "densities": ("densities",),
    "novelty": ("novelty", "sets"),
    "novelty_categories": ("novelty", "categories"),
    "groups": ("groups", "weights"),
    "shifts": ("groups", "shifts"),
    "intervals": ("composition", "intervals"),
    "conditions": ("composition", "conditions"),
    "alarms": ("composition", "alarms"),
    "switches": ("switches",),
    "populations": ("populations",),
    "answer": ("answer", "--seeds", 1),
    "drop_in": ("drop_in",),
    "optimum": ("optimum", "--seeds", 2, "--peer-seeds", 1, "--jobs", 1),
}
NEEDS = {
    "errors": "astroML",
    "cluster": "distributed",
    "device": "torch",
    "device_precision": "torch",
    "device_streaming": "torch",
}
# Columns of what is measured where it can be.
ELSEWHERE = {"gmmx", "mlpack", "tf32, ms", "error of means, tf32"}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """A benchmark in this process: another one would import everything once more."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        monkeypatch.syspath_prepend(BENCHMARKS)
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_benchmark_writes_the_columns_that_a_page_shows(
    name: str, tmp_path: Path, benchmark: Script
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    script, *arguments = WRITTEN[name]
    out = tmp_path / f"{name}.csv"
    if name in ("passes", "memory", "files", "cluster"):  # they start processes, which import the script
        command = [
            sys.executable,
            "-W",
            "ignore",
            BENCHMARKS / f"{script}.py",
            *arguments,
            "--small",
            "--out",
            out,
        ]
        subprocess.run(list(map(str, command)), check=True)
    else:
        benchmark(script, *arguments, "--small", "--out", out)
    new, kept = read(out), read(BENCHMARKS / "results" / f"{name}.csv")
    assert set(kept[0]) - set(new[0]) <= ELSEWHERE
    assert [column for column in kept[0] if column in new[0]] == list(new[0])
    assert all(None not in row.values() for row in (*new, *kept))


@pytest.mark.parametrize("name", ["cells_options", "cells_size"])
def test_a_benchmark_runs(name: str, tmp_path: Path, benchmark: Script) -> None:
    assert benchmark(name, "--small", "--out", tmp_path / "results.json")


def test_checkouts_are_compared(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "speed.py"),
        "--small",
        "--repeats",
        "1",
        "--only",
        "diag",
        "--beside",
    ]
    done = subprocess.run([*command, str(BENCHMARKS.parent)], check=True, capture_output=True, text=True)
    assert "other checkout" in done.stdout
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert "is no checkout of skmix" in done.stderr


def test_clusters_are_judged_by_the_best_match_to_gates() -> None:
    gates = np.array([0] * 10 + [1] * 4 + [2] * 2 + [-1] * 5)
    # The largest F1 is that of cluster 7 and gate 0, 0.6, but then nothing is left for gate 1. Gate 2 has no
    # cluster: its cells are in none. Ungated cells do not count.
    labels = np.array([7] * 6 + [8] * 4 + [7] * 4 + [-1] * 2 + [7, 7, 8, 9, 9])
    assert mean_f1(labels, gates) == pytest.approx((2 * 4 / (4 + 10) + 2 * 4 / (10 + 4)) / 3)


def test_populations_of_simulated_cells_are_their_gates(tmp_path: Path, benchmark: Script) -> None:
    """And one population of the ungated cells; told 3, two of them are one."""
    benchmark("cells", "--small", "--out", tmp_path / "cells.csv")
    found, kept = read(tmp_path / "cells.csv"), read(BENCHMARKS / "results" / "cells.csv")
    assert set(kept[0]) <= set(found[0])
    assert (found[0]["populations"], found[0]["compose"], found[0]["in 6 files"]) == ("4.0", "1.000", "1.000")
    assert float(found[0]["compose, k"]) < 0.7


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
        "himc2000": [0.0, 9, 0],
    }
    chosen = left_out({name: np.array(gain) for name, gain in gains.items()})
    assert chosen == {"one": 2, "two": 0, "three": 0, "himc2000": 0}


def test_few_studies_have_an_alarm() -> None:
    unusual = runpy.run_path(str(BENCHMARKS / "composition.py"))["unusual"]
    n_studies = 350
    alarms = sum(unusual(n, alpha, 200, 3, "", n_studies).any(axis=1).sum() for n, alpha in ((5, 5), (6, 20)))
    most = stats.binom(2 * n_studies, 0.05).isf(1e-3)
    # Alarms of 5 % of all studies stay below this bound; those of 13 % would not.
    assert stats.binom(2 * n_studies, 0.13).cdf(most) < 1e-4
    assert alarms <= most


@pytest.mark.parametrize("kind", ["shifted", "replaced"])
def test_a_permuted_condition_seldom_differs_and_a_switch_is_found(kind: str) -> None:
    least_q = runpy.run_path(str(BENCHMARKS / "switches.py"))["least_q"]
    permuted, switched = np.transpose([least_q(kind, 5, 100, seed) for seed in range(12)])
    # Three or more of 12 studies with an alarm have a probability of 2 % if 5 % of studies have one.
    assert (permuted <= 0.05).sum() <= 2
    assert (switched <= 0.05).sum() >= 11


def test_the_comparison_leaves_what_it_measured_and_pictures(tmp_path: Path, benchmark: Script) -> None:
    out = tmp_path / "accuracy.jsonl"
    iris, (lda,) = load_data("iris"), contenders(["LDA"])
    settings = Settings(n_repeats=1, seed=1)
    known = replace(run_cell(iris, lda, 0, settings), error=0.125, key=key_of(iris, lda, settings))
    earlier = [known, replace(known, data="wine", key="of another run"), replace(known, data="mnist")]
    write_lines(out, [each.to_dict() for each in earlier], ("data", "classifier"))
    places = ("--out", out, "--images", tmp_path, "--store", tmp_path / "cells.jsonl")
    printed = benchmark("accuracy", "--small", "--only-classifiers", "naive Bayes", "LDA", *places)
    assert "iris, naive Bayes, 1: " in printed
    # What is known is not measured again; data sets that are gone do not stay.
    assert "iris, LDA, 1: " not in printed
    outcomes = [(each["data"], each["classifier"], each["repeat"]) for each in read_lines(out)]
    assert outcomes == [("wine", "LDA", 0), ("iris", "LDA", 0), ("iris", "naive Bayes", 0)]
    assert {path.name for path in tmp_path.glob("*.png")} == {"ranks.png", "comparison.png"}
    assert read(tmp_path / "comparison_error.csv")[0]["data"] == "wine"


def test_the_study_of_sharing_measures_and_draws(tmp_path: Path, benchmark: Script) -> None:
    places = ("--out", tmp_path / "sharing.jsonl", "--images", tmp_path, "--store", tmp_path / "cells.jsonl")
    printed = benchmark("sharing", "--data", "pool-3", "--rows", 2, "--draws", 1, *places)
    assert "pool-3, 6 rows, own kernels, 1: error " in printed
    drawn = {"sharing.png", "sharing-error.png", "sharing-log-loss.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == drawn
    table = (tmp_path / "sharing_error.csv").read_text(encoding="utf-8")
    # What was measured can be drawn again, with the same tables.
    assert printed.endswith(benchmark("sharing", "--draw", *places))
    assert (tmp_path / "sharing_error.csv").read_text(encoding="utf-8") == table
