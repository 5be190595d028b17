"""The study of sharing: draws, simulated classes with known densities, cells that are made once, tables."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skmix.experiments.field import (
    Contender,
    DataSet,
    Outcome,
    Simulation,
    TrueDensities,
    draw,
    gain_table,
    in_study_order,
    run_sharing,
    sharing,
    sharing_table,
    sharing_tables,
    simulate,
)
from skmix.experiments.field.data import PARTS, in_words
from skmix.experiments.field.sharing import OURS_BY_PARTS, PAIRS, _contenders, few_rows
from skmix.paper import harness
from skmix.paper.harness import Store

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
    # Other draws and seeds take other rows.
    for repeat, seed in ((1, 0), (0, 1)):
        other = few_rows(data, 100, repeat, seed)
        assert other is not None
        assert set(other[0]) != set(large[0])
    # Of the ten rows of a smaller class, at most eight are for training, and no row of the rest is lost.
    short = DataSet("short", np.arange(25.0)[:, None], np.repeat(["a", "b"], [15, 10]))
    assert few_rows(short, 9, 0, 0) is None
    for n_each in (3, 8):
        rows = few_rows(short, n_each, 0, 0)
        assert rows is not None
        assert np.unique(short.y[rows[0]], return_counts=True)[1].tolist() == [n_each] * 2
        assert np.unique(short.y[rows[1]], return_counts=True)[1].tolist() == [7, 2]
        assert not set(rows[0]) & set(rows[1])


def test_a_draw_of_simulated_rows_is_new_and_repeats() -> None:
    for name in ("pool-3", "parts-3", "apart-3"):
        first = draw(name, 0, 0)
        assert_array_equal(simulate(name, len(first.y) // 3, 0, 0).data.X, first.X)
        assert not np.array_equal(draw(name, 1, 0).X, first.X)
        assert not np.array_equal(draw(name, 0, 1).X, first.X)
        # 100 rows of each class to learn from, and 2000 in all to test on.
        assert np.bincount(first.y).tolist() == [100 + 667] * 3
    assert draw("wine", 1, 5).X.shape == (178, 13)


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Forget what was drawn, whatever becomes of the test."""
    yield
    sharing._drawn.cache_clear()


@pytest.mark.usefixtures("undrawn")
def test_a_draw_of_digits_has_a_generator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def seen(n_each: int, random: np.random.RandomState) -> DataSet:
        drawn.append((n_each, random.randint(2**31)))
        return DataSet("seven_segment", np.zeros((2, 1)), np.arange(2))

    monkeypatch.setattr(sharing, "seven_segments", seen)
    for repeat, seed in ((0, 0), (1, 0), (0, 1)):
        sharing._drawn.cache_clear()
        draw("seven_segment", repeat, seed)
    # Ten classes of 100 rows to learn from, and 2000 in all to test on.
    assert [n_each for n_each, _ in drawn] == [300] * 3
    assert len({number for _, number in drawn}) == 3


@pytest.mark.parametrize(("kind", "n_users"), [("pool", 6), ("apart", 1), ("parts", 6)])
def test_kernels_are_shared_or_apart(kind: str, n_users: int) -> None:
    pools = simulate(f"{kind}-6", 2, 0).pools
    assert len(pools) == (6 if kind == "parts" else 1)
    for pool in pools:
        assert_allclose(pool.weights.sum(axis=0), 1.0)
        assert np.count_nonzero(pool.weights, axis=1).max() == n_users
        if kind == "apart":
            # Three kernels of each class, one class after the other.
            assert_array_equal(pool.weights.argmax(axis=1), np.repeat(np.arange(6), 3))
            assert_array_equal(np.count_nonzero(pool.weights, axis=0), [3] * 6)
            # Of any shares.
            assert len(np.unique(pool.weights)) == 1 + 18


def test_simulated_kernels_have_the_stated_numbers_and_distances() -> None:
    for name, shape, spread in (
        ("pool-40", (20, 10), 1.5),
        ("apart-40", (120, 10), 1.5),
        ("parts-40", (5, 2), 2.0),
    ):
        simulated = simulate(name, 3, 0)
        assert simulated.data.X.shape == (120, 12 if "parts" in name else 10)
        assert np.bincount(simulated.data.y).tolist() == [3] * 40
        means = np.concatenate([pool.means.ravel() for pool in simulated.pools])
        assert simulated.pools[0].means.shape == shape
        # The standard deviation of n normal numbers has a relative standard error of 1 / root 2 n.
        assert np.std(means) == pytest.approx(spread, rel=4 / np.sqrt(2 * len(means)))
        traces = [np.trace(each) / len(each) for pool in simulated.pools for each in pool.covariances]
        assert np.mean(traces) == pytest.approx(1.0, abs=0.25)
    # A class of a pool uses about three of its kernels.
    weights = simulate("pool-100", 2, 0).pools[0].weights
    assert 2.0 < np.mean(1.0 / (weights**2).sum(axis=0)) < 4.0


def test_true_densities_name_the_classes_they_were_given() -> None:
    simulated = simulate("apart-3", 30, 0)
    X, names = simulated.data.X, np.array(["x", "y", "z"])[simulated.data.y]
    model = TrueDensities(simulated.pools).fit(X, names)
    assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    assert model.score(X, names) > 0.9


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
            assert one["feature_sets"] == (PARTS if ours == OURS_BY_PARTS else None)


def test_all_classifiers_are_made_ready_for_few_rows() -> None:
    """Known densities and parts have classifiers of their own; the others scale features first."""
    expected = ["shared kernels", "own kernels", "QDA", "separate mixtures"]
    assert list(_contenders("wine", Simulation(draw("wine", 0, 0), ()), 7)) == expected
    assert list(_contenders("pool-3", simulate("pool-3", 4, 0), 7)) == [*expected, "true densities"]
    made = _contenders("parts-3", simulate("parts-3", 4, 0), 7)
    parts = ["shared kernels by parts", "own kernels by parts"]
    assert list(made) == [*expected, *parts, "true densities"]
    for name, each in made.items():
        assert each.name == name
        scaled = "standardscaler" in dict(each.pipeline(0, False).steps)
        assert scaled is (name in ("QDA", "separate mixtures"))
    assert made["QDA"].make(0).get_params()["shrinkage"] == "auto"
    assert made["separate mixtures"].make(0).random_state == 7


def test_classifiers_of_a_draw_have_one_seed_and_those_of_another_draw_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gain would partly be that of other folds, or all draws would have the same ones."""
    seeds: dict[int, set[int]] = {}
    rows = []

    def seen(data: DataSet, contender: Contender, repeat: int, *split: Any) -> Outcome:
        model = contender.make(0)
        if hasattr(model, "random_state"):
            seeds.setdefault(repeat, set()).add(model.random_state)
        rows.append((contender.name, data.name, len(split[0]), split[2]))
        return replace(OUTCOME, data=data.name, classifier=contender.name, repeat=repeat)

    monkeypatch.setattr(sharing, "measure", seen)
    with Store(tmp_path / "cells.sqlite") as store:
        made = run_sharing(["pool-3", "pool-3"], store, rows_per_class=[2, 900], n_draws=2, seed=4)
    # A set that is named twice is drawn once, and 900 rows of a class are too many.
    assert [(each.classifier, each.repeat) for each in made] == [
        (name, repeat)
        for repeat in (0, 1)
        for name in ("shared kernels", "own kernels", "QDA", "separate mixtures", "true densities")
    ]
    assert set(rows) == {(each.classifier, "pool-3", 6, 4) for each in made}
    assert [len(own) for own in seeds.values()] == [1, 1]
    assert seeds[0] != seeds[1]


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
def test_the_study_resumes_and_its_tasks_can_be_sent_to_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # The second draw is lost by shared kernels, and log-losses differ by 0.1 and 0.3.
    losses = [(0.5, 0.6), (0.6, 0.9)]
    mixed = [
        replace(each, classifier=f"{each.classifier} by parts", log_loss=losses[k // 2][k % 2])
        for k, each in enumerate(
            [*points[:2], replace(points[2], error=0.14), replace(points[3], error=0.19)]
        )
    ]
    assert gain_table([*points, *mixed]).lines[1:] == (
        ("a", "5", "shared kernels by parts", "2", "1.5 ± 2.5", "1 : 1", "0.200 ± 0.100"),
    )
    # A draw that neither wins is not counted.
    equal = [replace(each, error=0.1) for each in points]
    assert gain_table(equal).lines[0][4:6] == ("0.0 ± 0.0", "0 : 0")
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


def test_tables_of_the_study_have_a_line_for_each_size_and_leave_the_truth_out_of_the_comparison() -> None:
    values = {"shared kernels": 0.2, "own kernels": 0.3, "true densities": 0.1}
    points = [
        replace(OUTCOME, data=data, n_train=n_train, classifier=name, error=error, log_loss=2 * error)
        for data in ("b", "a")
        for n_train in (30, 6)
        for name, error in values.items()
    ]
    errors, losses, gains = sharing_tables(points)
    assert [each.name for each in (errors, losses, gains)] == ["sharing_error", "sharing_log_loss", "gain"]
    assert errors.headings == losses.headings == ("data", "rows", *values)
    sizes = [("b", "2"), ("b", "10"), ("a", "2"), ("a", "10")]
    assert errors.lines == tuple((*size, "20.0", "30.0", "10.0") for size in sizes)
    assert losses.lines == tuple((*size, "0.400", "0.600", "0.200") for size in sizes)
    assert gains.lines == tuple((*size, "shared kernels", "1", "10.0", "1 : 0", "0.200") for size in sizes)
    # Nothing is better than the truth: the best classifier is bold, and not the truth.
    assert errors.markdown("").splitlines()[2] == "| b | 2 | **20.0** | 30.0 | 10.0 |"
    # A classifier that was not run on some data has an empty cell.
    assert sharing_table(points[1:]).lines[1] == ("b", "10", "", "30.0", "10.0")
