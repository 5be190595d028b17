"""The study of sharing: draws, simulated classes with known densities, cells that are made once, tables."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skmix.experiments import harness
from skmix.experiments.field import (
    Outcome,
    TrueDensities,
    draw,
    gain_table,
    in_study_order,
    run_sharing,
    sharing_table,
    simulate,
)
from skmix.experiments.field.data import PARTS, in_words
from skmix.experiments.field.sharing import OURS_BY_PARTS, PAIRS, _contenders, few_rows
from skmix.experiments.harness import Store

OUTCOME = Outcome("set", "shared kernels", 0, 3, 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


def test_few_rows_are_parts_of_more_and_never_tested_on() -> None:
    data = draw("pool-5", 0, 0)
    small, large = few_rows(data, 2, 0, 0), few_rows(data, 100, 0, 0)
    assert small is not None
    assert large is not None
    assert set(small[0]) < set(large[0])
    assert_array_equal(np.bincount(data.y[small[0]]), [2] * 5)
    assert_array_equal(small[1], large[1])
    assert len(large[1]) == 2000
    assert not set(large[0]) & set(large[1])
    assert few_rows(data, 101, 0, 0) is None


def test_a_draw_of_simulated_rows_is_new_and_repeats() -> None:
    for name in ("pool-3", "parts-3", "apart-3"):
        first = draw(name, 0, 0)
        assert_array_equal(simulate(name, len(first.y) // 3, 0, 0).data.X, first.X)
        assert not np.array_equal(draw(name, 1, 0).X, first.X)
        assert not np.array_equal(draw(name, 0, 1).X, first.X)


@pytest.mark.parametrize(("kind", "n_users"), [("pool", 6), ("apart", 1), ("parts", 6)])
def test_kernels_are_shared_or_apart(kind: str, n_users: int) -> None:
    pools = simulate(f"{kind}-6", 2, 0).pools
    assert len(pools) == (6 if kind == "parts" else 1)
    for pool in pools:
        assert_allclose(pool.weights.sum(axis=0), 1.0)
        assert np.count_nonzero(pool.weights, axis=1).max() == n_users


def test_true_densities_are_those_the_rows_came_from() -> None:
    simulated = simulate("parts-3", 4, 0)
    X, y = simulated.data.X, simulated.data.y
    found = TrueDensities(simulated.pools).fit(X, y).predict_proba(X)
    for row, probabilities in zip(X[::5], found[::5], strict=True):
        joint = np.ones(3)
        for pool, part in zip(simulated.pools, PARTS, strict=True):
            density = [
                multivariate_normal(mean, covariance).pdf(row[part])
                for mean, covariance in zip(pool.means, pool.covariances, strict=True)
            ]
            joint *= np.array(density) @ pool.weights
        assert_allclose(probabilities, joint / joint.sum(), rtol=1e-8)


def test_no_classifier_betters_the_kernels_for_each_class() -> None:
    simulated = simulate("pool-40", 20, 0)
    X, y = simulated.data.X, simulated.data.y
    assert np.mean(TrueDensities(simulated.pools).fit(X, y).predict_proba(X).argmax(axis=1) == y) < 20 / 40


@pytest.mark.parametrize("name", ["pool-3", "parts-3"])
def test_pairs_of_classifiers_differ_in_sharing_alone(name: str) -> None:
    """Otherwise the gain from sharing would be that of something else, or nothing at all."""
    made = _contenders(name, simulate(name, 4, 0), 7)
    assert (OURS_BY_PARTS in made) is name.startswith("parts")
    for ours, own in PAIRS:
        if ours in made:
            one, two = (made[each].make(0).get_params() for each in (ours, own))
            assert (one.pop("kernels"), two.pop("kernels")) == ("shared", "own")
            assert one == two
            assert (one["random_state"], one["n_members"]) == (7, 1)
            assert one["feature_groups"] == (PARTS if ours == OURS_BY_PARTS else None)


def test_names_of_another_sort_are_refused() -> None:
    for name in ("pool-1", "pool", "puddle-10"):
        with pytest.raises(ValueError, match=f"pool, parts, apart, and how many .* got '{name}'"):
            simulate(name, 5, 0)


class Pool:
    """Two worker processes, but for the time that they take to start: what they are sent is pickled."""

    def __init__(
        self, max_workers: int, mp_context: Any, initializer: Callable[..., None], initargs: Any
    ) -> None:
        assert max_workers == 2
        initializer(*pickle.loads(pickle.dumps(initargs)))

    def submit(self, *call: Any) -> Future[Any]:
        work, task = pickle.loads(pickle.dumps(call))
        future: Future[Any] = Future()
        future.set_result(work(task))
        return future

    def shutdown(self, cancel_futures: bool) -> None:
        pass


@pytest.mark.slow
def test_the_study_runs_in_processes_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Outcome] = []
    sizes: dict[str, Any] = {"rows_per_class": [2, 3], "n_draws": 1}
    with Store(tmp_path / "cells.sqlite") as store:
        points = run_sharing(["pool-3"], store, **sizes, progress=made.append)
        names = ["shared kernels", "own kernels", "QDA", "separate mixtures", "true densities"]
        assert [(point.rows_per_class, point.classifier) for point in points] == [
            (rows, name) for rows in (2, 3) for name in names
        ]
        assert len(made) == len(store) == 10
        assert points[4].error == points[9].error < points[5].error
        assert run_sharing(["pool-3"], store, **sizes, progress=made.append) == points
        assert len(made) == 10
        with pytest.raises(ValueError, match="at least 1, got 0"):
            run_sharing(["pool-3"], store, rows_per_class=[0])
    monkeypatch.setattr(harness, "ProcessPoolExecutor", Pool)
    with Store(tmp_path / "other.sqlite") as store:
        other = run_sharing(["pool-3"], store, rows_per_class=[2], n_draws=1, n_processes=2)
    assert [point.error for point in other] == [point.error for point in points[:5]]


def test_gain_is_the_difference_within_draws() -> None:
    errors = {"shared kernels": (0.10, 0.20), "own kernels": (0.13, 0.21)}
    points = [
        replace(OUTCOME, data="a", n_train=15, classifier=name, repeat=repeat, error=error)
        for name, both in errors.items()
        for repeat, error in enumerate(both)
    ]
    # Differences of 3 and 1 points: mean 2, standard deviation root 2, over the root of 2 draws.
    assert gain_table(points).lines == (
        ("a", "5", "shared kernels", "2", "2.0 ± 1.0", "2 : 0", "0.000 ± 0.000"),
    )
    # 10 and 20: mean 15, standard deviation root 50, over the root of 2.
    assert sharing_table(points).lines == (("a", "5", "15.0 ± 5.0", "17.0 ± 4.0"),)
    failed = [replace(points[0], failure="no"), *points[1:]]
    assert sharing_table(failed).lines[0][2] == "1 of 2 failed"
    assert gain_table(failed).lines[0][3:5] == ("1", "1.0")
    lost = [*points[:2], replace(points[2], failure="no"), points[3]]
    assert gain_table(lost).lines[0][3:5] == ("1", "1.0")
    assert gain_table(points[:2]).lines == ()


def test_outcomes_are_ordered_by_data_rows_and_classifier() -> None:
    given = [
        ("pool-100", 100, "true densities", 500, 0),
        ("pool-100", 100, "own kernels", 500, 1),
        ("pool-100", 100, "own kernels", 500, 0),
        ("pool-26", 26, "QDA", 52, 0),
        ("letter", 26, "QDA", 52, 0),
        ("seven_segment", 10, "QDA", 50, 0),
        ("seven_segment", 10, "QDA", 20, 0),
    ]
    points = in_study_order(
        replace(OUTCOME, data=data, n_classes=n_classes, classifier=name, n_train=n_train, repeat=repeat)
        for data, n_classes, name, n_train, repeat in given
    )
    assert [(point.data, point.rows_per_class) for point in points[:4]] == [
        *(("seven_segment", 2), ("seven_segment", 5), ("letter", 2), ("pool-26", 2))
    ]
    assert [(point.classifier, point.rows_per_class, point.repeat) for point in points[4:]] == [
        *(("own kernels", 5, 0), ("own kernels", 5, 1), ("true densities", 5, 0))
    ]


def test_names_in_words() -> None:
    simulated = simulate("pool-7", 2, 0)
    assert in_words("pool-7") == f"7 classes from a pool of {len(simulated.pools[0].means)} kernels"
    parts = simulate("parts-7", 2, 0).pools
    assert in_words("parts-7") == f"7 classes in {len(parts)} parts of {len(parts[0].means)} kernels"
    assert (
        in_words("apart-7")
        == f"7 classes with {len(simulate('apart-7', 2, 0).pools[0].means) // 7} kernels each"
    )
    assert in_words("letter") == "letter"
