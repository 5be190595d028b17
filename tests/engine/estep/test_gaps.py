"""Rows with gaps: many patterns, the compiled core and origins. The matrix crosses them with all else."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from by_reference import by_reference
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, expected_pass, random_model, random_rows, stack

from skmix.engine.estep.gaps import rows_by_pattern
from skmix.engine.records import Factor, FloatArray, IntArray, Options, Parameters, Setting, Statistics
from skmix.engine.rows.source import GapRows, MemoryRows
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.structures.factors import INFLATED
from skmix.engine.threads import Workers

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


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


@each_type
def test_hundreds_of_patterns(covariance_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Chunks of 64 rows.
    monkeypatch.setattr("skmix.engine.estep.gaps.HELD", 1)
    random, X, classes, model = problem(3, covariance_type, n_rows=150, n_features=8)
    X = with_gaps(random, X, 0.5)
    assert len(list(rows_by_pattern(X))) > 100
    row_weights = random.uniform(0.2, 3.0, size=len(X))
    options = Options(covariance_type=covariance_type, max_iter=1, tol=0.0, floor=0.0)
    result = fit(X, classes, model.batch(), options, row_weights=row_weights)
    expected, likelihood = expected_pass(X, classes, model, covariance_type, row_weights)
    assert_allclose(result.path[0][0].sum(), likelihood, rtol=1e-9)
    for name in ("weights", "means", "covariances"):
        array = getattr(result.parameters, name)[0]
        assert_allclose(array, getattr(expected, name), rtol=1e-9, atol=1e-11)


def setting_of(X: FloatArray, model: Parameters, covariance_type: str) -> tuple[Parameters, Factor, Setting]:
    """Return what an E-step takes, of a batch of models."""
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    inside = frame.enter(model, structure)
    return inside, structure.factor(inside.covariances, X.shape[1]), Setting(frame, structure, Workers(1))


def assert_same_statistics(result: Statistics, expected: Statistics) -> None:
    for name in ("log_likelihood", "mass", "first", "second"):
        assert_allclose(getattr(result, name), getattr(expected, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_kernels", [1, 4, 7])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_the_core_completes_rows_like_the_definition(covariance_type: str, n_kernels: int) -> None:
    random = np.random.default_rng(n_kernels)
    X, classes = random_rows(random, 60, 2, 6)
    X = with_gaps(random, X, 0.4)
    model = stack([random_model(random, n_kernels, 2, 6, covariance_type) for _ in range(3)])
    inside, factor, setting = setting_of(X, model, covariance_type)
    about_means = np.ones(inside.means.shape[:2], dtype=bool), inside.means
    statistics = []
    for passes in (nullcontext, by_reference):
        with passes():
            result = GapRows(X, classes).expect(inside, factor, setting, about_means)[0]
        if covariance_type == "tied":  # only the sum over kernels is defined
            result = replace(result, second=result.second.sum(axis=1))
        statistics.append(result)
    assert_same_statistics(*statistics)


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


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_moments_about_other_origins_are_those_of_complete_rows(covariance_type: str) -> None:
    random, X, classes, model = problem(4, covariance_type, n_rows=60, n_features=4)
    inside, factor, setting = setting_of(X, model.batch(), covariance_type)
    centres = np.array([[True, False, True, True]]), inside.means + random.normal(size=inside.means.shape)
    arguments = inside, factor, setting, centres
    (ours, origins), (theirs, others) = (
        kind(X, classes).expect(*arguments) for kind in (GapRows, MemoryRows)
    )
    assert_array_equal(origins, others)
    assert_same_statistics(ours, theirs)


def test_some_features_have_the_rows_with_a_value_in_any_of_them() -> None:
    nan = np.nan
    X = np.array([[1.0, nan, 2.0], [nan, nan, 3.0], [nan, 4.0, nan], [5.0, 6.0, 7.0]])
    rows = GapRows(X, np.array([0, 1, 1, 0]), np.array([1.0, 2.0, 3.0, 4.0])).with_features([0, 1])
    assert_array_equal(rows.X, [[1.0, nan], [nan, 4.0], [5.0, 6.0]])
    assert_array_equal(rows.codes, [0, 1, 0])
    assert_array_equal(rows.weights, [1.0, 3.0, 4.0])
