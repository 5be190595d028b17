"""Rows that know less or count more: weights, gaps, missing labels, each against rows taken one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
from calls import fit
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import LIBRARIES, each_library, torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_full, expected_pass, random_model, random_rows, stack
from scipy.stats import multivariate_normal

from skmix.engine import density as scoring
from skmix.engine.compute.arrays import operations_of, to_numpy
from skmix.engine.compute.threads import Workers
from skmix.engine.estep.gaps import group_rows
from skmix.engine.frame import Setting
from skmix.engine.model import Factor, FloatArray, IntArray, Options, Parameters, Statistics
from skmix.engine.sources import memory as memory_module
from skmix.engine.sources.device import MaskedRows
from skmix.engine.sources.memory import GapRows, MemoryRows
from skmix.engine.sources.summary import measure
from skmix.engine.structures import INFLATED, structure_of
from skmix.engine.tails import Background, StudentT

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
reproducible = settings(max_examples=20, deadline=None, derandomize=True)


def with_gaps(random: np.random.Generator, X: FloatArray, share: float = 0.3) -> FloatArray:
    """Return the rows with some values missing, but none with all."""
    gaps = random.uniform(size=X.shape) < share
    gaps[np.arange(len(X)), random.integers(0, X.shape[1], size=len(X))] = False
    return np.where(gaps, np.nan, X)


def problem(
    seed: int, covariance_type: str, n_rows: int = 30, n_features: int = 3
) -> tuple[np.random.Generator, FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(seed)
    X, classes = random_rows(random, n_rows, 3, n_features)
    return random, X, classes, random_model(random, 4, 3, n_features, covariance_type)


def one_pass(
    X: FloatArray,
    classes: IntArray,
    model: Parameters,
    covariance_type: str,
    row_weights: FloatArray | None = None,
) -> tuple[Parameters, float]:
    learns = model.tail.weighted
    options = Options(covariance_type=covariance_type, max_iter=1, tol=0.0, floor=0.0, learn_degrees=learns)
    result = fit(X, classes, model.batch(), options, row_weights=row_weights)
    return result.parameters.take(0), float(result.path[0][0].sum())


def assert_same(found: Parameters, expected: Parameters, rtol: float = 1e-9) -> None:
    for name in ("weights", "means", "covariances"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=1e-11)
    if expected.class_prior is not None:
        assert found.class_prior is not None
        assert_allclose(found.class_prior, expected.class_prior, rtol=rtol)
    for name, value in expected.tail.to_dict().items():
        # The maximum of the oracle is flat.
        assert_allclose(found.tail.to_dict()[name], value, rtol=1e-4 if name == "degrees" else rtol)


@reproducible
@given(
    seed=st.integers(0, 10_000),
    covariance_type=st.sampled_from(COVARIANCE_TYPES),
    gaps=st.booleans(),
    unlabelled=st.booleans(),
    weighted=st.booleans(),
    offset=st.sampled_from([0.0, 1e4]),
    tail=st.sampled_from([None, "t", "background"]),
    compiled=st.booleans(),
)
def test_one_pass_is_that_of_rows_taken_one_by_one(
    seed: int,
    covariance_type: str,
    gaps: bool,
    unlabelled: bool,
    weighted: bool,
    offset: float,
    tail: str | None,
    compiled: bool,
) -> None:
    random, X, classes, model = problem(seed, covariance_type)
    X, model = X + offset, replace(model, means=model.means + offset)
    if gaps:
        X = with_gaps(random, X)
    if unlabelled:
        model = replace(model, class_prior=random.dirichlet(np.ones(3)))
        first_of_class = np.unique(classes, return_index=True)[1]
        hidden = np.setdiff1d(random.choice(len(X), 12, replace=False), first_of_class)
        classes = classes.copy()
        classes[hidden] = -1
    if tail == "t":
        model = replace(model, tail=StudentT(random.uniform(1.0, 30.0, size=4)))
    if tail == "background":
        box = np.stack([np.nanmin(X, axis=0), np.nanmax(X, axis=0)])
        model = replace(model, tail=Background(random.uniform(0.0, 0.3, size=3), box))
    row_weights = random.uniform(0.2, 3.0, size=len(X)) if weighted else None
    with mock.patch.object(memory_module, "_MANY_PATTERNS", 1 if compiled else 1000):
        found, likelihood = one_pass(X, classes, model, covariance_type, row_weights)
    expected, true_likelihood = expected_pass(X, classes, model, covariance_type, row_weights)
    assert_allclose(likelihood, true_likelihood, rtol=1e-9)
    # Differences of the shifted rows have lost four digits before anything is computed.
    assert_same(found, expected, rtol=1e-9 if not offset else 1e-6)


@each_type
@pytest.mark.parametrize("at_a_time", [64, 1 << 10])
def test_hundreds_of_patterns(covariance_type: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.engine.sources.memory.TILE", at_a_time)
    monkeypatch.setattr("skmix.engine.sources.memory.HELD", 1)
    random, X, classes, model = problem(3, covariance_type, n_rows=150, n_features=8)
    X = with_gaps(random, X, 0.5)
    assert len(list(group_rows(X))) > 100
    row_weights = random.uniform(0.2, 3.0, size=len(X))
    found, likelihood = one_pass(X, classes, model, covariance_type, row_weights)
    expected, true_likelihood = expected_pass(X, classes, model, covariance_type, row_weights)
    assert_allclose(likelihood, true_likelihood, rtol=1e-9)
    assert_same(found, expected)


def setting_of(X: FloatArray, model: Parameters, covariance_type: str) -> tuple[Parameters, Factor, Setting]:
    """Return what an E-step takes, of a batch of full models; those of low rank have two factors."""
    structure = structure_of(covariance_type, 2)
    if covariance_type == "low_rank":
        model = replace(model, covariances=structure.from_full(model.covariances))
    frame = measure(X, structure)
    inside = frame.enter(model, structure)
    return inside, structure.factor(inside.covariances, X.shape[1]), Setting(frame, structure, Workers(1))


def assert_same_statistics(found: Statistics, expected: Statistics) -> None:
    for name in ("log_likelihood", "mass", "first", "second"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_kernels", [1, 3, 4, 7])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "low_rank"])
def test_compiled_code_completes_rows_like_the_definition(covariance_type: str, n_kernels: int) -> None:
    random = np.random.default_rng(n_kernels)
    X, classes = random_rows(random, 60, 2, 6)
    X = with_gaps(random, X, 0.4)
    own = "tied" if covariance_type == "tied" else "full"
    model = stack([random_model(random, n_kernels, 2, 6, own) for _ in range(3)])
    given = setting_of(X, model, covariance_type)
    found = []
    for many in (1, 1000):
        with mock.patch.object(memory_module, "_MANY_PATTERNS", many):
            each = GapRows(X, classes).expect(*given)[0]
        if covariance_type == "tied":  # only the sum over kernels is defined
            each = replace(each, second=each.second.sum(axis=1))
        found.append(each)
    assert_same_statistics(*found)


def test_a_start_that_loses_digits_is_apart_from_the_others() -> None:
    random, X, classes, model = problem(5, "full", n_rows=200, n_features=8)
    X = with_gaps(random, X, 0.5)
    narrow = np.eye(8) - (1.0 - 1e-9) / 8.0
    batch = stack([replace(model, covariances=np.tile(narrow, (4, 1, 1))), model])
    parameters, factor, setting = setting_of(X, batch, "full")
    inflation = setting.structure.inflation(parameters.covariances, factor)
    assert inflation[0] > INFLATED > inflation[1]
    together = GapRows(X, classes).expect(parameters, factor, setting)[0]
    for r in range(2):
        alone = GapRows(X, classes).expect(parameters.take([r]), factor.take([r]), setting)[0]
        for name in ("log_likelihood", "mass", "first", "second"):
            assert_array_equal(getattr(together, name)[r], getattr(alone, name)[0])


@pytest.mark.parametrize("covariance_type", [*COVARIANCE_TYPES, "low_rank"])
def test_moments_about_other_origins_are_those_of_complete_rows(covariance_type: str) -> None:
    own = "full" if covariance_type == "low_rank" else covariance_type
    random, X, classes, model = problem(4, own, n_rows=60, n_features=4)
    inside, factor, setting = setting_of(X, model.batch(), covariance_type)
    centres = np.array([[True, False, True, True]]), inside.means + random.normal(size=inside.means.shape)
    given = inside, factor, setting, centres
    (ours, origins), (theirs, others) = (kind(X, classes).expect(*given) for kind in (GapRows, MemoryRows))
    assert_array_equal(origins, others)
    assert_same_statistics(ours, theirs)


@each_type
def test_a_row_of_weight_three_is_three_rows(covariance_type: str) -> None:
    random, X, classes, model = problem(1, covariance_type, n_rows=80)
    counts = random.integers(1, 4, size=len(X))
    options = Options(covariance_type=covariance_type, max_iter=20, tol=1e-6)
    weighted = fit(X, classes, model.batch(), options, row_weights=counts.astype(float))
    repeated = fit(np.repeat(X, counts, axis=0), np.repeat(classes, counts), model.batch(), options)
    assert_array_equal(weighted.n_iter, repeated.n_iter)
    assert_same(weighted.parameters.take(0), repeated.parameters.take(0))
    assert_allclose(weighted.log_likelihood, repeated.log_likelihood, rtol=1e-10)


@each_type
@pytest.mark.parametrize("unlabelled", [False, True])
def test_the_likelihood_never_falls(covariance_type: str, unlabelled: bool) -> None:
    random, X, classes, _ = problem(2, covariance_type, n_rows=120, n_features=4)
    X = with_gaps(random, X)
    models = stack([random_model(random, 4, 3, 4, covariance_type) for _ in range(5)])
    if unlabelled:
        classes = np.where(random.uniform(size=len(X)) < 0.6, -1, classes)
        classes[:3] = [0, 1, 2]
        models = replace(models, class_prior=np.full((5, 3), 1 / 3))
    row_weights = random.uniform(0.1, 2.0, size=len(X))
    options = Options(covariance_type=covariance_type, max_iter=40, tol=0.0)
    result = fit(X, classes, models, options, row_weights=row_weights)
    for path in result.path:
        total = path.sum(axis=1)
        assert np.all(np.diff(total) > -1e-9 * np.abs(total[:-1]))
    assert result.path[0].shape[1] == 3 + unlabelled


@each_type
@pytest.mark.parametrize("many", [1, 1000])
def test_gaps_are_scored_by_the_marginal(
    covariance_type: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "_MANY_PATTERNS", many)
    random, X, classes, model = problem(3, covariance_type)
    gappy = with_gaps(random, X)
    full = as_full(model.covariances, covariance_type, 4, 3)
    expected = np.empty((len(X), 4))
    for (n, x), k in product(enumerate(gappy), range(4)):
        seen = ~np.isnan(x)
        expected[n, k] = multivariate_normal(model.means[k, seen], full[k][np.ix_(seen, seen)]).pdf(x[seen])
    found = np.exp(scoring.class_log_likelihood(gappy, model, covariance_type))
    assert_allclose(found, expected @ model.weights, rtol=1e-9)
    joint = expected * model.weights.T[classes]
    w = np.exp(scoring.log_responsibilities(gappy, classes, model, covariance_type))
    assert_allclose(w, joint / joint.sum(axis=1, keepdims=True), rtol=1e-8)


def test_patterns_partition_the_rows() -> None:
    random = np.random.default_rng(4)
    X = with_gaps(random, random.normal(size=(200, 11)), share=0.2)
    met = np.zeros(X.shape, dtype=int)
    for rows, columns in group_rows(X):
        met[np.ix_(rows, columns)] += 1
    assert_array_equal(met, ~np.isnan(X))


def test_unlabelled_rows_move_the_class_priors() -> None:
    random = np.random.default_rng(6)
    X = np.concatenate([random.normal(-4, 1, size=(300, 2)), random.normal(4, 1, size=(100, 2))])
    classes = np.full(400, -1)
    classes[[0, 1, 300, 301]] = [0, 0, 1, 1]
    means = np.array([[-3.0, -3.0], [3.0, 3.0]])
    start = Parameters(
        np.array([[0.9, 0.1], [0.1, 0.9]]), means, np.tile(np.eye(2), (2, 1, 1)), np.ones(2) / 2
    )
    result = fit(X, classes, start.batch(), Options(max_iter=200, tol=1e-8)).parameters.take(0)
    assert result.class_prior is not None
    assert_allclose(result.class_prior, [0.75, 0.25], atol=0.02)


def test_some_features_have_the_rows_with_a_value_in_any_of_them() -> None:
    nan = np.nan
    X = np.array([[1.0, nan, 2.0], [nan, nan, 3.0], [nan, 4.0, nan], [5.0, 6.0, 7.0]])
    rows = GapRows(X, np.array([0, 1, 1, 0]), np.array([1.0, 2.0, 3.0, 4.0])).take([0, 1])
    assert_array_equal(rows.X, [[1.0, nan], [nan, 4.0], [5.0, 6.0]])
    assert_array_equal(rows.codes, [0, 1, 0])
    assert_array_equal(rows.weights, [1.0, 3.0, 4.0])
    if torch is not None:
        there = MaskedRows(torch.as_tensor(X), np.array([0, 1, 1, 0])).take([0, 1])
        assert_array_equal(np.asarray(there.X), rows.X)
        assert_array_equal(there.codes, rows.codes)


@each_library
@each_type
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_gaps_on_a_device_are_scored_by_the_marginal(
    library: str, covariance_type: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns of different sizes are padded to one, and rows come back in their order, the first too."""
    random, X, classes, model = problem(3, covariance_type, n_rows=40)
    gappy = with_gaps(random, X)
    gappy[0], gappy[1:4] = [np.nan, 1.0, np.nan], X[1:4]
    there = LIBRARIES[library](gappy)
    monkeypatch.setattr(operations_of(there), "chunk", chunk)
    monkeypatch.setattr("skmix.engine.estep.masked._FEWEST_ROWS", 2)
    full, expected = as_full(model.covariances, covariance_type, 4, 3), np.empty((40, 4))
    for (n, x), k in product(enumerate(gappy), range(4)):
        seen = ~np.isnan(x)
        law = multivariate_normal(model.means[k, seen], full[k][np.ix_(seen, seen)])
        expected[n, k] = law.logpdf(x[seen])
    found = scoring.kernel_log_densities(there, model, covariance_type)
    assert type(found) is type(there)
    assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-9)
    mixed = to_numpy(scoring.class_log_likelihood(there, model, covariance_type))
    assert_allclose(np.exp(mixed), np.exp(expected) @ model.weights, rtol=1e-9)
    w = to_numpy(scoring.log_responsibilities(there, classes, model, covariance_type))
    joint = np.exp(expected) * model.weights.T[classes]
    assert_allclose(np.exp(w), joint / joint.sum(axis=1, keepdims=True), rtol=1e-8)
