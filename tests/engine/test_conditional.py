"""Conditional densities of one model, against the textbook formulas and against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    COVARIANCE_TYPES,
    as_full,
    random_model,
    random_rows,
    responsibilities,
)

from skmix.engine import density as conditional
from skmix.engine.model import FloatArray, IntArray, Parameters
from skmix.engine.structures import structure_of
from skmix.engine.structures.linalg import invert_lower, whiten_batch
from skmix.engine.tails import Background

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
reproducible = settings(max_examples=15, deadline=None, derandomize=True)


def textbook(
    model: Parameters, covariance_type: str, seen: IntArray, gaps: IntArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the conditional means (K, G) and covariances (K, G, G) of the gaps of one row."""
    n_kernels, n_features = model.means.shape
    full = as_full(model.covariances, covariance_type, n_kernels, n_features)
    means, covariances = [], []
    for mean, matrix in zip(model.means, full, strict=True):
        slope = matrix[np.ix_(gaps, seen)] @ np.linalg.inv(matrix[np.ix_(seen, seen)])
        means.append(mean[gaps] + slope @ (x[seen] - mean[seen]))
        covariances.append(matrix[np.ix_(gaps, gaps)] - slope @ matrix[np.ix_(seen, gaps)])
    return np.array(means), np.array(covariances)


@reproducible
@given(
    seed=st.integers(0, 10_000),
    covariance_type=st.sampled_from(COVARIANCE_TYPES),
    n_features=st.integers(2, 6),
    data=st.data(),
)
def test_condition_is_the_textbook_formula(
    seed: int, covariance_type: str, n_features: int, data: st.DataObject
) -> None:
    n_known = data.draw(st.integers(1, n_features - 1))
    random = np.random.default_rng(seed)
    model = random_model(random, 4, 3, n_features, covariance_type)
    # In any order: the values belong to the columns they are given with.
    seen = random.permutation(n_features)[:n_known]
    gaps = np.setdiff1d(np.arange(n_features), seen)
    x = 2.0 * random.normal(size=n_features)
    found = conditional.condition(model, covariance_type, seen, x[seen])
    means, covariances = textbook(model, covariance_type, seen, gaps, x)
    assert_allclose(found.means, means, rtol=1e-9, atol=1e-11)
    assert_allclose(
        as_full(found.covariances, covariance_type, 4, len(gaps)), covariances, rtol=1e-8, atol=1e-11
    )
    assert found.covariances.shape == structure_of(covariance_type).shape(4, len(gaps))
    known = conditional.marginal(model, seen, structure_of(covariance_type))
    expected = [responsibilities(x[None, seen], np.array([c]), known, covariance_type)[0] for c in range(3)]
    assert_allclose(found.weights, np.transpose(expected), rtol=1e-8, atol=1e-300)


@each_type
def test_gaps_are_filled_row_by_row(covariance_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional, "_PREDICTED", 1)
    random = np.random.default_rng(7)
    model = random_model(random, 4, 1, 4, covariance_type)
    X, _ = random_rows(random, 40, 1, 4)
    gappy = np.where(random.uniform(size=X.shape) < 0.4, np.nan, X)
    gappy[0], gappy[1] = X[0], np.nan
    w = random.dirichlet(np.ones(4), size=40)
    filled = conditional.fill_means(gappy, w, model, covariance_type)
    assert_array_equal(filled[~np.isnan(gappy)], X[~np.isnan(gappy)])
    for x, own, row in zip(gappy, w, filled, strict=True):
        seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        means, _ = textbook(model, covariance_type, seen, gaps, x)
        assert_allclose(row[gaps], own @ means, rtol=1e-9, atol=1e-12)


def test_nearly_collinear_features_leave_a_covariance() -> None:
    # The last feature is the sum of the others up to one part in a million; the difference of two matrices,
    # the textbook's formula, has few digits of what is left, and may make it negative.
    rest = 1e-12
    covariances = np.array([[[1.0, 0.3, 1.3], [0.3, 1.0, 1.3], [1.3, 1.3, 2.6 + rest]]])
    model = Parameters(np.ones((1, 1)), np.zeros((1, 3)), covariances)
    found = conditional.condition(model, "full", np.array([0, 1]), np.array([1e3, -2e3]))
    # 2.6 + 1e-12 itself is rounded to four digits of the 1e-12.
    assert_allclose(found.covariances, [[[rest]]], rtol=1e-3)
    assert_allclose(found.means, [[-1e3]], rtol=1e-9)


@reproducible
@given(seed=st.integers(0, 10_000), order=st.integers(1, 20))
def test_lower_triangles_are_inverted(seed: int, order: int) -> None:
    roots = np.random.default_rng(seed).normal(size=(2, 3, order, order))
    matrices = roots @ np.swapaxes(roots, -1, -2) + np.eye(order)
    whitener = whiten_batch(matrices.reshape(-1, order, order))[0].reshape(matrices.shape)
    assert_allclose(invert_lower(whitener), np.linalg.cholesky(matrices), rtol=1e-7, atol=1e-9)


def test_gaps_of_the_background_are_filled_with_the_middle_of_its_box() -> None:
    """Of a row that is background with probability 0.2, a fifth of the value that is filled in."""
    model = random_model(np.random.default_rng(0), 2, 1, 2)
    box = np.array([[-4.0, 10.0], [6.0, 30.0]])
    noisy = replace(model, tail=Background(np.array([0.1]), box))
    row = np.array([[1.5, np.nan]])
    found = conditional.fill_means(row, np.array([[0.3, 0.5]]), noisy, "full")
    predicted = [
        mean[1] + covariance[1, 0] / covariance[0, 0] * (1.5 - mean[0])
        for mean, covariance in zip(model.means, model.covariances, strict=True)
    ]
    assert_allclose(found, [[1.5, 0.3 * predicted[0] + 0.5 * predicted[1] + 0.2 * 20.0]])
