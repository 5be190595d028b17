"""What must hold for any data and any start."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from calls import drawn, fit
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    COVARIANCE_TYPES,
    as_full,
    as_structure,
    random_model,
    random_rows,
    stack,
    total_log_likelihood,
)

from skmix.engine import starts
from skmix.engine.records import FloatArray, IntArray, Options, Parameters, Result, Status
from skmix.engine.rows.summary import measure
from skmix.engine.scoring import class_log_likelihood
from skmix.engine.structures import structure_of


def assert_never_falls(result: Result, n_rows: int) -> None:
    """Check the total log-likelihood of every start, from its first pass to its last parameters."""
    for path, last in zip(result.path, result.log_likelihood, strict=True):
        totals = np.append(path.sum(axis=1), last.sum())
        change = np.diff(totals)
        assert (change >= -1e-9 * (np.abs(totals[1:]) + n_rows)).all(), change.min()


def assert_finite(*arrays: FloatArray) -> None:
    assert all(np.isfinite(array).all() for array in arrays)


# ---------------------------------------------------------------- one pass


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_total_log_likelihood_never_falls_when_kernels_are_retired(covariance_type: str) -> None:
    """Kernels hundreds of standard deviations away keep no row; the others must not notice."""
    random = np.random.default_rng(3)
    X, classes = random_rows(random, 40, 2, 2)
    model = random_model(random, 4, 2, 2, covariance_type)
    model.means[2:] += 1e6
    options = Options(covariance_type=covariance_type, tol=0.0, max_iter=25)
    result = fit(X, classes, model.batch(), options)
    assert_never_falls(result, len(X))
    kept = replace(model, weights=model.weights[:2] / model.weights[:2].sum(axis=0), means=model.means[:2])
    if covariance_type != "tied":
        kept = replace(kept, covariances=model.covariances[:2])
    alone = fit(X, classes, kept.batch(), options)
    assert_allclose(result.parameters.weights[:, :2], alone.parameters.weights, rtol=1e-9)
    assert_allclose(result.parameters.means[:, :2], alone.parameters.means, rtol=1e-9)
    assert_allclose(result.log_likelihood, alone.log_likelihood, rtol=1e-9)
    assert_array_equal(result.parameters.weights[0, 2:], 0.0)


# ---------------------------------------------------------------- batches of starts


def three_clusters(covariance_type: str) -> tuple[FloatArray, IntArray, Parameters]:
    """Return rows of three clusters far apart, their classes, and three good starts."""
    random = np.random.default_rng(8)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    X = np.repeat(centres, 20, axis=0) + random.normal(size=(60, 2))
    unit = as_structure(np.stack([np.eye(2)] * 3), covariance_type)
    models = [
        Parameters(np.full((3, 2), 1 / 3), centres + random.normal(size=(3, 2)), unit) for _ in range(3)
    ]
    return X, random.integers(2, size=60), stack(models)


@pytest.mark.parametrize(("covariance_type", "position"), [("full", 0), ("diag", 1), ("spherical", 2)])
def test_a_start_that_fails_does_not_disturb_the_others(covariance_type: str, position: int) -> None:
    X, classes, models = three_clusters(covariance_type)
    options = Options(covariance_type=covariance_type, floor=0.0, tol=1e-4, max_iter=40)
    expected = fit(X, classes, models, options)
    assert (expected.status == Status.CONVERGED).all()
    # The first kernel is on one row, and so narrow that it has no other.
    good = models.take(position)
    means, full = good.means.copy(), as_full(good.covariances, covariance_type, 3, 2).copy()
    means[0], full[0] = X[0], 1e-8 * np.eye(2)
    bad = Parameters(good.weights, means, as_structure(full, covariance_type))
    mixed = models.put(position, bad)
    found = fit(X, classes, mixed, options)
    assert found.status[position] == Status.FAILED
    assert found.n_iter[position] == 1
    assert np.isfinite(found.parameters.means).all()
    assert np.isfinite(found.parameters.covariances).all()
    # It keeps what entered the failing pass.
    assert_allclose(found.parameters.means[position], bad.means, rtol=1e-12)
    assert_allclose(found.parameters.covariances[position], bad.covariances, rtol=1e-12)
    assert found.best != position
    others = [r for r in range(3) if r != position]
    for one, other in ((found, expected), (found.parameters, expected.parameters)):
        for name in {"n_iter", "log_likelihood", "means", "covariances"} & vars(one).keys():
            assert_array_equal(getattr(one, name)[others], getattr(other, name)[others])
    # With the default floor the same start comes through.
    guarded = fit(X, classes, mixed, replace(options, floor=1e-6))
    assert guarded.status[position] != Status.FAILED
    assert_finite(guarded.parameters.covariances, guarded.objective)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_start_below_the_floor_is_raised_to_it(covariance_type: str) -> None:
    X, classes, models = three_clusters(covariance_type)
    floor = X.var(axis=0) * 1e-2
    if covariance_type == "spherical":
        floor[:] = floor.mean()
    narrow = replace(models, covariances=1e-9 * models.covariances)
    raised = np.stack([as_structure(np.stack([np.diag(floor)] * 3), covariance_type)] * 3)
    options = Options(covariance_type=covariance_type, floor=1e-2, tol=0.0, max_iter=5)
    result = fit(X, classes, narrow, options)
    at_floor = replace(models, covariances=raised)
    expected = fit(X, classes, at_floor, options)
    for name in ("weights", "means", "covariances"):
        ours, theirs = getattr(result.parameters, name), getattr(expected.parameters, name)
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    likelihood = total_log_likelihood(X, classes, at_floor.take(0), covariance_type)
    assert_allclose(result.path[0][0], likelihood, rtol=1e-10)


# ---------------------------------------------------------------- no NaN, ever

AWFUL_SHAPES = ("normal", "duplicates", "one row", "binary", "rank one", "heavy tails", "copies")
START_KINDS = ("class", "k-means", "random_from_data", "uniform")
# Constants that a feature may have, and the largest exponent of ten of its unit.
MODERATE = [0.0, 1.0, -7.3, 1e10, 1e-31], 10.0
EXTREME = [0.0, 1e300, -1e160, 1e-160, 1e-300, 5e-324], 130.0


@st.composite
def awful_rows(draw: st.DrawFn, constants: list[float], exponent: float) -> tuple[FloatArray, IntArray]:
    """Return rows that break careless arithmetic, and classes of very unequal sizes, one row included."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_features = draw(st.integers(2, 25)), draw(st.integers(1, 5))
    shape = draw(st.sampled_from(AWFUL_SHAPES))
    X = random.normal(size=(n_rows, n_features))
    if shape == "duplicates":
        X = X[:3][random.integers(0, min(3, n_rows), size=n_rows)]
    elif shape == "one row":
        X[:] = X[0]
    elif shape == "binary":
        X = (X > 0.5).astype(np.float64)
    elif shape == "rank one":
        X = X[:, :1] * random.normal(size=n_features)
    elif shape == "heavy tails":
        X = random.standard_cauchy(size=X.shape) ** 5
    elif shape == "copies":
        X[:] = X[:, :1]
    if draw(st.booleans()):
        X *= 10.0 ** random.uniform(-exponent, exponent, size=n_features)
    if draw(st.booleans()):
        X += np.abs(X).max(axis=0) * 10.0 ** random.uniform(0.0, 12.0, size=n_features)
    if draw(st.booleans()):
        X[:, random.integers(n_features)] = draw(st.sampled_from(constants))
    n_classes = draw(st.integers(1, min(4, n_rows)))
    others = np.where(
        random.random(n_rows - n_classes) < 0.2, random.integers(n_classes, size=n_rows - n_classes), 0
    )
    return X, random.permutation(np.concatenate([np.arange(n_classes), others]))


def starts_of_kind(
    kind: str, X: FloatArray, classes: IntArray, n_kernels: int, covariance_type: str
) -> Parameters:
    structure = structure_of(covariance_type)
    n_classes, n_features = int(classes.max()) + 1, X.shape[1]
    random_state = np.random.RandomState(0)
    if kind == "uniform":
        return starts.uniform(2, n_kernels, n_classes, n_features, structure, random_state)
    wanted = starts.Drawing(n_classes, 2, n_kernels, measure(X, structure), structure, random_state)
    if kind == "random_from_data":
        return drawn(starts.random_from_data, X, wanted)
    return drawn(starts.class_wise if kind == "class" else starts.k_means, X, classes, wanted)


@pytest.mark.parametrize("is_extreme", [pytest.param(False, marks=pytest.mark.slow), True])
@settings(derandomize=True, deadline=None, database=None, max_examples=100)
@given(
    data=st.data(),
    n_kernels=st.integers(1, 9),
    covariance_type=st.sampled_from(COVARIANCE_TYPES),
    kind=st.sampled_from(START_KINDS),
)
def test_awful_data_are_survived(
    is_extreme: bool, data: st.DataObject, n_kernels: int, covariance_type: str, kind: str
) -> None:
    """Extreme data are refused with the feature's number when a square cannot be represented."""
    X, classes = data.draw(awful_rows(*(EXTREME if is_extreme else MODERATE)))
    try:
        start = starts_of_kind(kind, X, classes, n_kernels, covariance_type)
        result = fit(X, classes, start, Options(covariance_type=covariance_type, max_iter=20))
    except ValueError as refusal:
        assert is_extreme
        assert str(refusal).startswith("Feature ")  # noqa: PT017
        return
    for parameters in (start, result.parameters):
        assert_finite(parameters.weights, parameters.means, parameters.covariances)
    assert not np.isnan(result.log_likelihood).any()
    assert not np.isnan(result.objective).any()
    if not is_extreme:
        assert_allclose(result.parameters.weights.sum(axis=1), 1.0, rtol=1e-12)
        assert_never_falls(result, len(X))
    if not is_extreme or kind != "uniform":
        # The paper's start may be so far from extreme data that densities overflow.
        assert_finite(result.objective, result.log_likelihood, *result.path)
        assert (result.status != Status.FAILED).all()


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize(("constant", "factor"), [(1 / 3, 1e-20), (1 / 3, 1e-140), (1e88 / 3, 1e-84)])
def test_a_constant_beside_a_far_smaller_feature(
    covariance_type: str, constant: float, factor: float
) -> None:
    """A constant but for its last bit: that bit is huge in units of the other feature."""
    X = factor * np.random.default_rng(2).normal(size=(7, 2))
    X[:, 0] = constant + np.spacing(constant) * (np.arange(7) % 2)
    classes = np.zeros(7, dtype=np.int64)
    options = Options(covariance_type=covariance_type, max_iter=10)
    for kind in START_KINDS[:3]:
        result = fit(X, classes, starts_of_kind(kind, X, classes, 2, covariance_type), options)
        assert_finite(result.parameters.means, result.parameters.covariances, result.objective)
        assert (result.status != Status.FAILED).all()


# ---------------------------------------------------------------- memory


def extra_memory(n_rows: int, n_jobs: int) -> int:
    """Return the peak, in bytes, of what two passes and a scoring allocate beside the rows themselves."""
    random = np.random.default_rng(1)
    X, _ = random_rows(random, n_rows, 1, 6)
    model = random_model(random, 8, 1, 6)
    options = Options(max_iter=2, tol=0.0, n_jobs=n_jobs)
    tracemalloc.start()
    fit(X, None, model.batch(), options)
    _, fitting = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    class_log_likelihood(X, model, "full", n_jobs)
    _, scoring = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The scores themselves are the caller's.
    return max(fitting, scoring - before - 8 * n_rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_memory_beside_the_data_does_not_grow_with_the_rows(n_jobs: int) -> None:
    few, many = extra_memory(200_000, n_jobs), extra_memory(600_000, n_jobs)
    # One number a row would be 3.2 MB more, one a row and kernel 25.6 MB.
    assert many - few < 1_000_000
    assert many < 10_000_000
