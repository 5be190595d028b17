"""Annihilation: who pays what, who has to go, and how many kernels are left."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import prune_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, random_model, stack

from skmix.engine import density as scoring
from skmix.engine import starts
from skmix.engine.model import FloatArray, IntArray, Options, Parameters, Status
from skmix.engine.refine import prune
from skmix.engine.refine.prune import compact, description_length, living_kernels, without_lightest
from skmix.engine.rules.likelihood import annihilate, price_of_kernel
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])


def four_clusters(seed: int = 0, n_rows: int = 600, n_classes: int = 1) -> tuple[FloatArray, IntArray]:
    """Return rows of four round clusters; with classes, each has most of its rows in one of them."""
    random = np.random.default_rng(seed)
    clusters = random.integers(0, 4, size=n_rows)
    X = CENTRES[clusters] + random.normal(size=(n_rows, 2))
    elsewhere = random.integers(0, n_classes, size=n_rows)
    return X, np.where(random.uniform(size=n_rows) < 0.7, clusters % n_classes, elsewhere)


def many_kernels(
    X: FloatArray, classes: IntArray, covariance_type: str, n_starts: int = 2, n_kernels: int = 20
) -> Parameters:
    structure, random = structure_of(covariance_type), np.random.RandomState(0)
    n_classes = int(classes.max()) + 1
    frame = measure(X, structure)
    return starts.class_wise(
        X, classes, starts.Wanted(n_classes, n_starts, n_kernels, frame, structure, random)
    )


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("covariance_type", "own"), [("full", 3 + 6), ("tied", 3), ("diag", 6), ("spherical", 4)]
)
def test_a_kernel_pays_for_what_is_its_own(covariance_type: str, own: int) -> None:
    assert price_of_kernel(structure_of(covariance_type), 3) == own / 2


def test_one_class_is_the_published_rule() -> None:
    """Weights are max(0, m_k − T/2), normalised: Figueiredo & Jain (2002), their equation for the weights."""
    mass = np.array([[[40.0], [30.0], [2.0], [28.0]]])
    left = annihilate(mass, 2.5)[0, :, 0]
    assert_allclose(left, [37.5, 27.5, 0.0, 25.5], rtol=1e-14)


def test_classes_share_the_price_as_they_share_the_kernel() -> None:
    mass = np.array([[[30.0, 10.0], [5.0, 15.0], [1.0, 0.5]]])
    left = annihilate(mass, 2.0)[0]
    assert_allclose(left.sum(axis=1), [38.0, 18.0, 0.0], rtol=1e-14)
    assert_allclose(left[0], [30.0 * 38 / 40, 10.0 * 38 / 40], rtol=1e-14)


def test_only_the_lightest_goes_in_a_pass() -> None:
    left = annihilate(np.array([[[2.0], [1.5], [1.0], [50.0]]]), 3.0)[0, :, 0]
    assert_array_equal(left, [2.0, 1.5, 0.0, 47.0])


def test_one_kernel_is_enough_for_all_classes_but_stays() -> None:
    mass = np.array([[[1.0, 1.0], [0.5, 0.5]]])
    assert_array_equal(annihilate(mass, 3.0), [[[1.0, 1.0], [0.0, 0.0]]])
    assert_array_equal(annihilate(np.ones((1, 1, 1)), 3.0), np.ones((1, 1, 1)))


def test_no_class_is_left_with_nothing() -> None:
    """The lightest kernel is all that the second class has."""
    mass = np.array([[[40.0, 0.0], [30.0, 0.0], [0.0, 2.0]]])
    left = annihilate(mass, 3.0)[0]
    assert_array_equal(left[2], [0.0, 2.0])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_kernels=st.integers(1, 8),
    n_classes=st.integers(1, 4),
    price=st.floats(0.1, 20.0),
)
def test_annihilation_takes_and_never_gives(seed: int, n_kernels: int, n_classes: int, price: float) -> None:
    random = np.random.default_rng(seed)
    mass = random.gamma(0.3, 10.0, size=(3, n_kernels, n_classes))
    left = annihilate(mass, price)
    assert np.all(left >= 0)
    assert np.all(left <= mass)
    assert np.all(left.sum(axis=1) > 0)
    gone = (left.sum(axis=2) == 0) & (mass.sum(axis=2) > 0)
    assert gone.sum(axis=1).max() <= 1
    taken = mass.sum(axis=2) - left.sum(axis=2)
    paid = mass.sum(axis=2) > price
    assert_allclose(taken[paid], price, rtol=1e-9)


@each_type
def test_rounds_are_compared_by_bic(covariance_type: str) -> None:
    """Twice the length of description grows by as much as BIC's penalty with every kernel that lives."""
    structure, n_features, n_classes, n_rows = structure_of(covariance_type), 3, 2, 50
    price = price_of_kernel(structure, n_features)

    def penalty(n_kernels: int) -> float:
        free = structure.n_parameters(n_kernels, n_features) + n_kernels * n_features
        return (free + (n_kernels - 1) * n_classes) * math.log(n_rows)

    weights = np.zeros((2, 6, n_classes))
    weights[0, :5], weights[1, 2:] = 0.2, 0.25
    lengths = description_length(weights, price, n_rows)
    assert_allclose(2 * (lengths[0] - lengths[1]), penalty(5) - penalty(4), rtol=1e-12)


# ---------------------------------------------------------------- kernels that are left


@each_type
def test_leaving_dead_kernels_out_changes_no_density(covariance_type: str) -> None:
    random = np.random.default_rng(0)
    model = random_model(random, 5, 3, 2, covariance_type)
    model.weights[[1, 3]] = 0.0
    model.weights[2, 1] = 0.0  # one that only some classes have lives
    model.weights[:] /= model.weights.sum(axis=0)
    left = living_kernels(model, structure_of(covariance_type))
    assert left.means.shape == (3, 2)
    X = random.normal(size=(20, 2))
    before = scoring.class_log_likelihood(X, model, covariance_type)
    assert_allclose(scoring.class_log_likelihood(X, left, covariance_type), before, rtol=1e-12)
    assert living_kernels(left, structure_of(covariance_type)) is left


@each_type
def test_the_lightest_goes_and_heavy_ones_come_first(covariance_type: str) -> None:
    random = np.random.default_rng(1)
    models = stack([random_model(random, 5, 2, 3, covariance_type) for _ in range(2)])
    models.weights[0, 2] = 0.0
    models.weights[:] /= models.weights.sum(axis=1, keepdims=True)
    # In the first start, the kernel of the smallest weights is not that of the fewest rows.
    sizes = np.array([[80.0, 20.0], [50.0, 50.0]])
    rows = np.einsum("rkc,rc->rk", models.weights, sizes)
    fewer, possible = without_lightest(models, sizes)
    assert possible.all()
    assert_allclose(fewer.weights.sum(axis=1), 1.0, rtol=1e-14)
    for r in range(2):
        lightest = np.argmin(np.where(rows[r] > 0, rows[r], np.inf))
        assert_array_equal(fewer.weights[r, lightest], 0.0)
        assert np.count_nonzero(fewer.weights[r].sum(axis=1)) == np.count_nonzero(rows[r]) - 1
    packed = compact(fewer, sizes, structure_of(covariance_type))
    assert packed.means.shape == (2, 4, 3)
    X = random.normal(size=(10, 3))
    for r in range(2):
        masses = packed.weights[r] @ sizes[r]
        assert np.all(np.diff(masses) <= 1e-12)
        one, other = packed.take(r), fewer.take(r)
        assert_allclose(
            scoring.class_log_likelihood(X, one, covariance_type),
            scoring.class_log_likelihood(X, other, covariance_type),
            rtol=1e-12,
        )


# ---------------------------------------------------------------- fits


@each_type
@pytest.mark.parametrize("n_classes", [1, 4])
def test_twenty_kernels_become_the_four_there_are(covariance_type: str, n_classes: int) -> None:
    X, classes = four_clusters(n_classes=n_classes)
    options = Options(covariance_type=covariance_type)
    result = prune_kernels(X, classes, many_kernels(X, classes, covariance_type), options)
    assert set(result.status) == {Status.CONVERGED}
    left = living_kernels(result.parameters.take(result.best), structure_of(covariance_type))
    assert len(left.means) == 4
    distances = np.linalg.norm(left.means[:, None] - CENTRES, axis=-1)
    assert distances.min(axis=1).max() < 0.4
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2, 3]


@pytest.mark.parametrize("accelerate", [False, True])
def test_the_result_of_pruning_is_consistent(accelerate: bool) -> None:
    X, classes = four_clusters(n_classes=2)
    starting = many_kernels(X, classes, "diag", n_starts=3)
    options = Options(covariance_type="diag", accelerate=accelerate)
    result = prune_kernels(X, classes, starting, options)
    length = description_length(result.parameters.weights, price_of_kernel(structure_of("diag"), 2), len(X))
    assert_allclose(result.objective, result.log_likelihood.sum(axis=1) - length, rtol=1e-12)
    for r in range(3):
        assert result.path[r].shape == (result.n_iter[r], 2)
        densities = scoring.class_log_likelihood(X, result.parameters.take(r), "diag")
        total = densities[np.arange(len(X)), classes].sum()
        assert_allclose(result.log_likelihood[r].sum(), total, rtol=1e-10)
    alone = prune_kernels(X, classes, starting.take([1]), options)
    assert_allclose(alone.objective[0], result.objective[1], rtol=1e-8)


def test_the_prior_on_covariances_stays_what_it_was() -> None:
    """With fewer kernels than at first the default prior would be wider; neighbours have no say either."""
    X, classes = four_clusters()
    starting = many_kernels(X, classes, "full", n_starts=2)
    options = Options(covariance_prior=20.0)
    together = prune_kernels(X, classes, starting, options)
    alone = prune_kernels(X, classes, starting.take([1]), options)
    assert_allclose(together.objective[1], alone.objective[0], rtol=1e-8)
    spread = np.diag(X.var(axis=0) / 20)
    given_prior = prune_kernels(X, classes, starting, replace(options, covariance_prior_scale=spread))
    assert_allclose(together.objective, given_prior.objective, rtol=1e-8)


def test_starts_that_fail_end_as_failed() -> None:
    """Two values only, and no floor: kernels of no width."""
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    means = np.array([[[0.0], [0.5], [1.0]]])
    start = Parameters(np.full((1, 3, 1), 1 / 3), means, np.full((1, 3, 1, 1), 0.1))
    result = prune_kernels(X, np.zeros(40, dtype=np.int64), start, Options(floor=0.0))
    assert result.status[0] == Status.FAILED
    assert result.objective[0] == -np.inf


def test_all_rounds_of_a_variational_fit_have_the_same_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise their bounds are of different evidences, and cannot be compared."""
    priors = []
    fit_round = prune.fit

    def spy(*args: Any, **kwargs: Any) -> Any:
        result = fit_round(*args, **kwargs)
        priors.append(result.prior)
        return result

    monkeypatch.setattr(prune, "fit", spy)
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2)) + 9.0 * random.integers(0, 2, size=(60, 1))
    start = Parameters(np.full((1, 5, 1), 0.2), X[None, :5], np.tile(np.eye(2), (1, 5, 1, 1)))
    prune_kernels(X, None, start, Options(inference="variational", max_iter=20))
    assert len(priors) > 1
    for prior in priors:
        numbers = prior.n_kernels, prior.concentration, prior.mean_rows, prior.covariance_rows
        assert numbers == (5, 0.2, pytest.approx(1 / 5), 4.0)
        assert_allclose(prior.covariance, priors[0].covariance)


def test_rows_without_a_label_count_for_the_lightest_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class sizes are those of all rows, by the class priors of the round, and else those of the labels."""
    X, classes = four_clusters(n_rows=200, n_classes=2)
    start = many_kernels(X, classes, "diag", n_starts=1, n_kernels=6)
    seen: list[tuple[Parameters, FloatArray]] = []

    def spy(parameters: Parameters, class_sizes: FloatArray) -> Any:
        seen.append((parameters.copy(), class_sizes))
        return without_lightest(parameters, class_sizes)

    monkeypatch.setattr(prune, "without_lightest", spy)
    options = Options(covariance_type="diag", max_iter=5)
    prune_kernels(X, classes, start, options)
    assert len(seen) > 2
    for _, sizes in seen:
        assert_allclose(sizes, [np.bincount(classes)])
    seen.clear()
    hidden = np.where(np.arange(200) % 4 == 0, classes, -1)
    prune_kernels(X, hidden, replace(start, class_prior=np.array([[0.9, 0.1]])), options)
    assert len(seen) > 2
    for parameters, sizes in seen:
        assert parameters.class_prior is not None
        assert_allclose(sizes, 200.0 * parameters.class_prior)
        assert_allclose(sizes.sum(), 200.0)


def test_kernels_that_were_removed_have_no_rows_in_a_posterior() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2)) + 9.0 * random.integers(0, 2, size=(60, 1))
    means = np.stack([X[:5], X[20:25]])
    start = Parameters(np.full((2, 5, 1), 0.2), means, np.tile(np.eye(2), (2, 5, 1, 1)))
    # So few passes that the first round still has rows of all kernels.
    result = prune_kernels(X, None, start, Options(inference="variational", max_iter=2))
    assert result.counts is not None
    for weights, counts in zip(result.parameters.weights, result.counts, strict=True):
        gone = weights[:, 0] == 0.0
        assert gone.any()
        # Weights are counts with the prior of one row in all, of the kernels that are left.
        assert_allclose(counts.sum(), 60.0, rtol=1e-6)
        assert_allclose(counts[gone], 0.0, atol=1e-5)
        alive = counts[~gone, 0] + 0.2
        assert_allclose(weights[~gone, 0], alive / alive.sum(), rtol=1e-9)
