"""The coordinates of the loop: exact where they promise it, and a clear refusal where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix.engine.records import FloatArray
from skmix.engine.rows.resolution import resolution_of
from skmix.engine.rows.summary import measure, moments_of
from skmix.engine.structures import structure_of

FULL, SPHERICAL = structure_of("full"), structure_of("spherical")


def in_frame(X: FloatArray, covariance_type: str = "full") -> FloatArray:
    frame = measure(X, structure_of(covariance_type))
    return frame.rows(X).T


@pytest.mark.parametrize("value", [0.0, 1.0, -7.3, 0.1, 1e10, 1e-31])
def test_a_constant_feature_has_no_spread(value: float) -> None:
    X = np.random.default_rng(4).normal(size=(37, 2))
    X[:, 1] = value
    frame = measure(X, FULL)
    assert frame.variance[1] == 1.0
    assert np.isfinite(frame.scale).all()
    assert_allclose(in_frame(X)[:, 1], 0.0, atol=1e-14)
    # Nor has one that differs in its last digit.
    X[::2, 1] = np.nextafter(value, np.inf) if abs(value) > 1e-30 else value
    assert measure(X, FULL).variance[1] == 1.0


@pytest.mark.parametrize("factor", [1e160, 1e300, 1e-160, 1e-300])
def test_a_spread_whose_square_is_no_number_is_refused_with_the_feature(factor: float) -> None:
    X = np.random.default_rng(5).normal(size=(20, 3))
    X[:, 1] *= factor
    deviation = f"{factor * (X[:, 1] / factor).std():.3g}"
    for columns, name in ((None, 1), ([4, 7, 9], 7)):
        with pytest.raises(ValueError, match=f"Feature {name} has a standard deviation .*Rescale") as refusal:
            moments_of(X).frame(FULL, columns)
        assert deviation in str(refusal.value)
        with pytest.raises(ValueError, match=f"Feature {name} has no value"):
            moments_of(np.where(np.arange(3) == 1, np.nan, X)).frame(FULL, columns)


def resolution(X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    return resolution_of(X, weights, measure(X, FULL, row_weights=weights))


def test_the_resolution_is_that_of_an_interval_as_wide_as_a_step() -> None:
    random = np.random.default_rng(0)
    dice, halves = random.integers(1, 20, size=300), 0.5 * random.integers(0, 30, size=300)
    coin, rare = np.arange(300) % 2, np.arange(300) < 30
    real = random.normal(size=300)
    mass = np.where(np.arange(300) < 60, 0.0, random.exponential(size=300))
    X = np.column_stack([dice, halves, coin, rare, real, mass, np.full(300, 7.0)]).astype(np.float64)
    found = resolution(X)
    # Whole numbers, halves, two values equally often or not, a mass beside real numbers, and a constant.
    expected = [1 / 12, 1 / 48, 1 / 12, 0.03, None, 0.01 * X[:, 5].var(), 0.0]
    for j in (0, 1, 2, 3, 5, 6):
        assert found[j] == pytest.approx(expected[j], rel=1e-12)
    assert 0.0 < found[4] < 1e-4
    assert_allclose(resolution(1024.0 * X), 1024.0**2 * found, rtol=1e-12)
    twice = np.concatenate([X, X[:100]])
    weights = np.where(np.arange(300) < 100, 2.0, 1.0)
    assert_allclose(resolution(X, weights), resolution(twice), rtol=1e-12)
    X[::3, 0] = np.nan
    assert resolution_of(X, None, measure(X[:, :], FULL))[0] == pytest.approx(1 / 12)


def test_counts_have_the_resolution_of_their_step_and_masses_one_of_their_own() -> None:
    random = np.random.default_rng(0)
    geometric, poisson = random.geometric(0.1, size=500) - 1, random.poisson(0.5, size=500)
    tail = np.where(random.random(500) < 0.5, 0, np.floor(random.pareto(0.8, size=500)))
    codes = 0.1 * random.choice([0, 1, 2, 7], size=500, p=[0.7, 0.1, 0.1, 0.1])
    X = np.column_stack([geometric, poisson, tail, codes])
    assert tail.var() > 100.0
    assert_allclose(resolution(X), np.array([1, 1, 1, 0.01]) / 12.0, rtol=1e-9)
    # A mass beside sparse whole numbers, and values of which each has as many rows as any other.
    income = np.where(random.random(400) < 0.4, 1.0, random.integers(1, 100_000, size=400))
    assert resolution(income[:, None])[0] == pytest.approx(0.01 * income.var(), rel=1e-9)
    values = np.repeat([0.0, 0.01, 0.0217, 0.03, 10.0], 40)
    assert resolution(values[:, None])[0] == pytest.approx(0.01085**2 / 12.0, rel=1e-6)
