"""Distances between kernels equal the integrals that define them, for every pair of structures."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import as_full
from scipy.stats import multivariate_normal

from skmix.engine.distances import bhattacharyya, jeffreys
from skmix.engine.model import FloatArray, Parameters
from skmix.engine.structures import structure_of

TYPES = ("full", "tied", "diag", "spherical", "low_rank")
COVARIANCES = {
    "full": [[[1.0, 0.6], [0.6, 0.8]], [[0.5, -0.2], [-0.2, 1.5]], [[2.0, 0.0], [0.0, 0.4]]],
    "tied": [[1.0, 0.3], [0.3, 0.7]],
    "diag": [[1.0, 0.5], [0.7, 2.0], [1.2, 0.4]],
    "spherical": [1.0, 0.5, 2.0],
    "low_rank": [[[0.6, 0.5], [0.4, 0.7]], [[-0.8, 0.3], [0.5, 0.6]], [[0.2, 1.0], [0.9, 0.4]]],
}
MEANS = np.array([[0.0, 0.0], [1.0, -0.7], [-1.5, 1.2]])


def model_of(covariance_type: str, n_kernels: int = 3, shift: float = 0.0) -> Parameters:
    covariances = np.array(COVARIANCES[covariance_type])
    covariances = covariances if covariance_type == "tied" else covariances[:n_kernels]
    return Parameters(np.ones((n_kernels, 1)) / n_kernels, MEANS[:n_kernels] + shift, covariances)


def full_of(model: Parameters, covariance_type: str) -> FloatArray:
    if covariance_type == "low_rank":
        factors, own = model.covariances[..., :-1], model.covariances[..., -1]
        return np.einsum("kdq,keq->kde", factors, factors) + own[:, None] * np.eye(2)
    return as_full(model.covariances, covariance_type, len(model.means), 2)


def integrals(
    one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]
) -> tuple[float, float]:
    """Return the Jeffreys divergence and the Bhattacharyya distance by sums over a fine grid."""
    axis = np.linspace(-14.0, 14.0, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    p, q = (multivariate_normal(*each).logpdf(grid) for each in (one, other))
    cell = (axis[1] - axis[0]) ** 2
    divergence = ((np.exp(p) - np.exp(q)) * (p - q)).sum() * cell
    return float(divergence), float(-np.log(np.exp(0.5 * (p + q)).sum() * cell))


@pytest.mark.parametrize("first_type", TYPES)
@pytest.mark.parametrize("second_type", TYPES)
def test_distances_are_the_integrals(first_type: str, second_type: str) -> None:
    first, second = model_of(first_type), model_of(second_type, 2, shift=0.4)
    found = [each(first, first_type, second, second_type) for each in (jeffreys, bhattacharyya)]
    assert found[0].shape == found[1].shape == (3, 2)
    own, others = full_of(first, first_type), full_of(second, second_type)
    for k in range(3):
        for j in range(2):
            expected = integrals((first.means[k], own[k]), (second.means[j], others[j]))
            assert_allclose([each[k, j] for each in found], expected, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("distance", [jeffreys, bhattacharyya])
def test_units_of_the_features_do_not_matter(distance: object, covariance_type: str) -> None:
    assert callable(distance)
    model = model_of(covariance_type)
    # One scale for all features where a structure needs that.
    structure = structure_of(covariance_type)
    scale = np.array([1e-9, 1e-9] if structure.isotropic else [1e-9, 1e12])
    covariances = structure.rescale(model.covariances[None], scale)[0]
    other = Parameters(model.weights, model.means * scale, covariances)
    before = distance(model, covariance_type, model, covariance_type)
    assert_allclose(distance(other, covariance_type, other, covariance_type), before, rtol=1e-9, atol=1e-12)


def test_small_divergences_keep_their_digits() -> None:
    """N(0, 1) and N(0, 1 + ε): ε² / (2 (1 + ε))."""
    epsilon = 1e-7
    one = Parameters(np.ones((1, 1)), np.zeros((1, 2)), np.array([np.eye(2)]))
    two = Parameters(np.ones((1, 1)), np.zeros((1, 2)), np.array([np.diag([1.0, 1.0 + epsilon])]))
    expected = epsilon**2 / (2.0 * (1.0 + epsilon))
    assert_allclose(jeffreys(one, "full", two, "full"), expected, rtol=1e-6)
    variances = Parameters(two.weights, two.means, np.array([[1.0, 1.0 + epsilon]]))
    assert_allclose(jeffreys(one, "full", variances, "diag"), expected, rtol=1e-6)
