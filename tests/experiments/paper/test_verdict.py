"""Claims hold when the numbers say so, and only then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skmix.experiments.paper import (
    Beyond,
    Run,
    Settings,
    StudyData,
    StudyResults,
    Verdict,
    differences,
    published_values,
    verdicts,
)
from skmix.experiments.paper.table_files import verdicts_markdown
from skmix.experiments.paper.variants import MAIN_KERNELS, METHODS, SWEEP_KERNELS, SWEEP_VARIANTS, VARIANTS

MakeRun = Callable[..., Run]
N_RUNS = 50


def ideal_runs(make_run: MakeRun) -> list[Run]:
    """Return a study in which everything comes out as it should."""
    printed = published_values()
    runs = []
    for variant in VARIANTS:
        name = variant.name
        lost = round(N_RUNS * (1.0 - printed.ok_runs["OK runs", name] / 500))
        top = printed.max_accuracy[name]
        for r in range(N_RUNS):
            median = printed.ok_runs["Med Acc", name]
            if r < lost:
                failed = {"accuracy": 0.1, "reason": "too few rows", "failing_pass": 9}
                runs.append(make_run(variant=name, method="published", run=r, **failed))
            else:
                runs.append(make_run(variant=name, method="published", run=r, accuracy=median))
            robust = top if r == 0 else top - 0.1
            runs.append(make_run(variant=name, method="robust", run=r, accuracy=robust))
            runs.append(make_run(variant=name, method="class-wise", run=r, accuracy=top - 0.005))
        for k in SWEEP_KERNELS if name in SWEEP_VARIANTS else ():
            for method in METHODS if k != MAIN_KERNELS else ():
                accuracy = printed.sweep[k, name].mean if k < 10 or method == "published" else top - 0.01
                cell = {"variant": name, "n_kernels": k, "method": method}
                runs += [make_run(**cell, run=r, accuracy=accuracy) for r in range(N_RUNS)]
    return runs


def judged(runs: list[Run], data: StudyData, beyond: float = 0.999) -> dict[str, Verdict]:
    ours = Beyond("ours", "ours", True, beyond, 0.9, np.eye(10, dtype=np.int64), 0.1)
    peer = Beyond("peer", "peer", False, 1.0, 0.9, np.eye(10, dtype=np.int64), 0.1)
    results = StudyResults(Settings(), data, tuple(runs), {}, (ours, peer))
    return {verdict.claim: verdict for verdict in verdicts(results)}


def test_an_ideal_study_fulfils_every_claim(data: StudyData, make_run: MakeRun) -> None:
    found = judged(ideal_runs(make_run), data)
    assert len(found) == 14
    assert [claim for claim, verdict in found.items() if not verdict.holds] == []


SPOILT = {
    "robust: no run fails at K >= 10": {"method": "robust", "n_kernels": 12, "run": 3, "accuracy": 0.5},
    "class-wise: no run fails at K >= 10": {"method": "class-wise", "run": 3, "reason": "overflow"},
    "class-wise: the mean run is as good as the best robust one, in every variant": {
        "method": "robust",
        "n_kernels": 10,
        "run": 0,
        "variant": "4D",
        "accuracy": 0.9552,
    },
    "class-wise: runs hardly differ, in any variant": {
        "method": "class-wise",
        "n_kernels": 10,
        "run": 0,
        "variant": "9D",
        "accuracy": 0.8,
    },
    "robust: no run lost at K = 15 and 18": {"method": "robust", "n_kernels": 18, "run": 3, "accuracy": 0.2},
    "class-wise: no run lost at K = 15 and 18": {
        "method": "class-wise",
        "n_kernels": 15,
        "run": 3,
        "accuracy": 0.2,
    },
}


@pytest.mark.parametrize("claim", SPOILT)
def test_one_run_can_spoil_a_claim(data: StudyData, make_run: MakeRun, claim: str) -> None:
    change = SPOILT[claim]
    keys = [key for key in ("method", "n_kernels", "run", "variant") if key in change]
    runs = ideal_runs(make_run)
    place = next(p for p, run in enumerate(runs) if all(getattr(run, key) == change[key] for key in keys))
    runs[place] = make_run(**(vars(runs[place]) | change))
    assert not judged(runs, data)[claim].holds


@pytest.mark.parametrize(
    ("claim", "method", "kernels", "shift"),
    [
        ("robust: accuracy at K = 15 and 18 at least that of K = 10", "robust", (15, 18), -0.1),
        ("class-wise: accuracy at K = 15 and 18 close to that of K = 10", "class-wise", (15,), -0.03),
        ("robust: with K < 10 kernels, accuracy near K/10 as published", "robust", (8,), -0.06),
        ("published method: medians of the successful runs are those of table 3", "published", (10,), 0.03),
    ],
)
def test_a_shift_of_the_mean_spoils_a_claim(
    data: StudyData, make_run: MakeRun, claim: str, method: str, kernels: tuple[int, ...], shift: float
) -> None:
    def shifted(run: Run) -> Run:
        affected = run.method == method and run.n_kernels in kernels and not run.reason
        return make_run(**(vars(run) | {"accuracy": run.accuracy + shift})) if affected else run

    found = judged([shifted(run) for run in ideal_runs(make_run)], data)
    assert not found[claim].holds


def test_failures_of_another_order_are_noticed(data: StudyData, make_run: MakeRun) -> None:
    claim = "published method: as many runs fail as in the paper, in order of magnitude"
    runs = ideal_runs(make_run)
    none = [make_run(**(vars(run) | {"accuracy": 0.9, "reason": ""})) for run in runs]
    assert not judged(none, data)[claim].holds
    most = [
        make_run(**(vars(run) | ({"accuracy": 0.1} if run.method == "published" and run.run < 30 else {})))
        for run in runs
    ]
    assert not judged(most, data)[claim].holds


def test_only_classifiers_of_ours_count_beyond(data: StudyData, make_run: MakeRun) -> None:
    (claim,) = [claim for claim in judged([], data) if claim.startswith("beyond")]
    assert judged([], data)[claim].holds
    assert not judged([], data, beyond=0.9949)[claim].holds


def test_differences_come_with_a_reason(data: StudyData, make_run: MakeRun) -> None:
    runs = ideal_runs(make_run)

    def of(runs: list[Run], **settings: str) -> list[tuple[str, str]]:
        results = StudyResults(Settings(**settings), data, tuple(runs), {}, ())  # type: ignore[arg-type]
        found = differences(results)
        assert all(each.reason for each in found)
        text = verdicts_markdown((), found)
        assert all(each.reason in text for each in found)
        # Here every run of the sweep is counted, where the paper lost most of some cells.
        shares = {each.variant for each in found if each.quantity == "share of runs counted"}
        assert {"6D, K = 18", "9D, K = 15"} <= shares
        assert "3D, K = 3" not in shares
        return [(each.variant, each.quantity) for each in found if each.quantity != "share of runs counted"]

    assert of(runs) == []
    runs = [
        make_run(**(vars(run) | {"accuracy": 0.853}))
        if (run.variant, run.method) == ("13D", "published") and not run.reason
        else run
        for run in runs
    ]
    runs = [
        make_run(**(vars(run) | {"accuracy": 0.63}))
        if (run.variant, run.method, run.n_kernels) == ("10D", "published", 8)
        else run
        for run in runs
    ]
    expected = [
        ("13D", "median accuracy of successful runs"),
        ("10D, K = 8", "mean accuracy of counted runs"),
    ]
    assert of(runs, dither="paper") == expected
    runs = [
        make_run(**(vars(run) | {"accuracy": 0.1, "reason": "constant feature"}))
        if (run.variant, run.method) == ("9D", "published") and run.n_kernels == 10 and run.run < 30
        else run
        for run in runs
    ]
    assert of(runs, dither="paper") == [("9D", "share of failed runs"), *expected]
