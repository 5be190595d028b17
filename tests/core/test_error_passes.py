"""Passes over rows with errors do what their definition says, with every instruction set and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from by_reference import by_reference
from definitions import Array, each_set
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from skmix._core import compiled
from skmix.engine.estep import errors
from skmix.engine.estep.inputs import Kernels
from skmix.engine.measured import Measured
from skmix.engine.records import Frame, Parameters
from skmix.engine.structures import STRUCTURES, structure_of
from skmix.engine.threads import Workers

N_STARTS, N_KERNELS, N_CLASSES = 2, 4, 3


def make(name: str, n_features: int, n_rows: int, weighted: bool) -> tuple[errors.ErrorRows, Kernels, Array]:
    """Return rows with errors and gaps, kernels of some starts, and their covariances."""
    random, structure = np.random.default_rng(n_features), structure_of(name)
    root = random.normal(size=(N_STARTS, N_KERNELS, n_features, n_features))
    matrices = root @ root.mT + 0.3 * np.eye(n_features)
    variances = np.einsum("rkdd->rkd", matrices).copy()
    covariances = {"full": matrices, "tied": matrices[:, 0], "diag": variances}.get(name, variances[..., 0])
    means = random.normal(size=(N_STARTS, N_KERNELS, n_features))
    weights = random.dirichlet(np.ones(N_KERNELS), size=(N_STARTS, N_CLASSES)).mT
    weights[0, 1, 2] = 0.0
    X = random.normal(size=(n_rows, n_features)) * 3.0
    deviations = random.uniform(0.0, 2.0, size=X.shape) * (random.uniform(size=X.shape) > 0.2)
    X[random.uniform(size=X.shape) < 0.2] = np.nan
    scale = np.full(n_features, 2.0) if structure.isotropic else 2.0 ** random.integers(-2, 3, n_features)
    frame = Frame(scale, random.normal(size=n_features), np.ones(n_features), np.ones(n_features))
    row_weights = random.uniform(0.5, 2.0, n_rows) if weighted else None
    measured = Measured(X, np.where(np.isnan(X), 0.0, deviations))
    rows = errors.ErrorRows(measured, random.integers(0, N_CLASSES, n_rows), row_weights, frame)
    factor = structure.factor(covariances, n_features)
    centres = np.ones((N_STARTS, N_KERNELS), dtype=bool), means + 0.3
    return rows, Kernels.of(Parameters(weights, means, covariances), factor, structure, centres), covariances


def by_definition(rows: errors.ErrorRows, kernels: Kernels, covariances: Array) -> tuple[Array, ...]:
    """Return log-likelihoods, mass and moments, row by row."""
    x, S = rows.rows.X / rows.frame.scale - rows.frame.shift, (rows.rows.errors / rows.frame.scale) ** 2
    n_features = x.shape[1]
    full = kernels.structure.to_full(covariances, N_KERNELS, n_features)
    likelihood, mass = np.zeros((N_STARTS, N_CLASSES)), np.zeros(kernels.log_weights.shape)
    first, second = np.zeros(kernels.means.shape), np.zeros(full.shape)
    weights = np.ones(len(x)) if rows.weights is None else rows.weights
    for r, n in np.ndindex(N_STARTS, len(x)):
        seen, code, known = ~np.isnan(x[n]), rows.codes[n], []  # type: ignore[index]
        for P, mean, log_weight in zip(
            full[r], kernels.means[r], kernels.log_weights[r, :, code], strict=True
        ):
            T, away = P[np.ix_(seen, seen)] + np.diag(S[n, seen]), x[n, seen] - mean[seen]
            gain = P[:, seen] @ np.linalg.inv(T)
            log_density = -0.5 * (away @ np.linalg.solve(T, away) + np.linalg.slogdet(2.0 * np.pi * T)[1])
            known.append((log_weight + log_density, mean + gain @ away, P - gain @ P[seen]))
        total = logsumexp([joint for joint, _, _ in known])
        likelihood[r, code] += weights[n] * total
        for k, (joint, clean, left) in enumerate(known):
            share, away = weights[n] * np.exp(joint - total), clean - kernels.origins[r, k]
            mass[r, k, code] += share
            first[r, k] += share * away
            second[r, k] += share * (np.outer(away, away) + left)
    return likelihood, mass, first, second


def check(rows: errors.ErrorRows, kernels: Kernels, covariances: Array, expected: tuple[Array, ...]) -> None:
    """Compare a pass with its definition, where its sums have a meaning."""
    structure, pool = kernels.structure, Workers(1)
    sums = errors.expect(rows, kernels, covariances, pool)
    second = structure.pack(expected[3]) if structure.triangular else np.einsum("rkdd->rkd", expected[3])
    found = sums.second
    for is_summed, axis in ((structure.shared, 1), (structure.isotropic, -1)):
        if is_summed:
            found, second = found.sum(axis), second.sum(axis)
    pairs = zip((sums.log_likelihood, sums.mass, sums.first, found), (*expected[:3], second), strict=True)
    for values, others in pairs:
        assert_allclose(values, others, rtol=1e-9, atol=1e-9)
    alone = errors.expect(rows, kernels, covariances, pool, with_moments=False)
    assert_array_equal(alone.log_likelihood, sums.log_likelihood)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("n_features", [1, 2, 3, 5, 6, 7, 9])
def test_a_pass(name: str, n_features: int, weighted: bool) -> None:
    rows, kernels, covariances = make(name, n_features, 61, weighted)
    expected = by_definition(rows, kernels, covariances)
    for _ in each_set():
        check(rows, kernels, covariances, expected)
    with by_reference():
        check(rows, kernels, covariances, expected)


def test_threads_do_not_change_a_bit() -> None:
    rows, kernels, covariances = make("full", 3, 5000, True)
    sums = [errors.expect(rows, kernels, covariances, Workers(n)) for n in (1, 3)]
    assert_array_equal(sums[0].second, sums[1].second)
    with by_reference():
        slow = errors.expect(rows, kernels, covariances, Workers(1))
    assert_allclose(slow.second, sums[0].second, rtol=1e-9, atol=1e-7)


def test_flat_kernels_keep_their_least_variance() -> None:
    # As flat as the floor allows; errors are as large as its least deviation.
    P, structure = np.array([[[[1.0, 1.0 - 1e-6], [1.0 - 1e-6, 1.0]]]]), structure_of("full")
    least = P[0, 0, 0, 0] - P[0, 0, 0, 1]  # of the difference over the square root of two
    X = np.random.default_rng(0).multivariate_normal(np.zeros(2), P[0, 0] + least * np.eye(2), size=500)
    frame = Frame(*(np.ones(2), np.zeros(2), np.ones(2), np.ones(2)))
    kernels = Kernels.of(
        Parameters(np.ones((1, 1, 1)), np.zeros((1, 1, 2)), P), structure.factor(P, 2), structure
    )
    rows = errors.ErrorRows(Measured(X, np.full(X.shape, np.sqrt(least))), None, None, frame)
    second = errors.expect(rows, kernels, P, Workers(1)).second[0, 0] / len(X)
    expected = np.mean((X[:, 0] - X[:, 1]) ** 2) / 8.0 + least / 2.0  # both halves of what is known
    assert_allclose(0.5 * (second[0] + second[1]) - second[2], expected, rtol=1e-5)


def test_the_core_refuses_arrays_of_wrong_shapes_and_codes() -> None:
    x, codes = np.zeros((4, 2)), np.zeros(4, dtype=np.int64)
    means, covariances, log_weights = np.zeros((1, 3, 2)), np.ones((1, 3, 2)), np.zeros((1, 3, 2))
    for change, words in (
        ({"variances": x[:3]}, "variances must have the shape"),
        ({"covariances": np.ones((1, 3, 2, 3))}, "covariances must have the shape"),
        ({"codes": codes + 2}, "below the number of classes"),
        ({"codes": None}, "need codes"),
        ({"weights": np.ones(3)}, "weights must have the shape"),
    ):
        arguments = {"x": x, "variances": x, "codes": codes, "weights": None, "means": means}
        arguments |= {"covariances": covariances, "log_weights": log_weights, **change}
        with pytest.raises(ValueError, match=words):
            compiled.error_pass(**arguments, with_moments=True, with_sums=True)
