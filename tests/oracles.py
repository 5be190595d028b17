"""Small random models, and what the brute-force oracle says of them as the engine says it.

Nothing here calls the engine's arithmetic: densities come from scipy, covariances from their definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import brute
import numpy as np

from skmix.engine.kernels import StudentT
from skmix.engine.records import FloatArray, IntArray, Parameters

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")


def random_covariances(
    random: np.random.Generator, n_kernels: int, n_features: int, *, ridge: float = 0.3
) -> FloatArray:
    """Return well-conditioned covariances (K, M, M)."""
    roots = random.normal(size=(n_kernels, n_features, n_features))
    return roots @ roots.swapaxes(1, 2) / n_features + ridge * np.eye(n_features)


def random_model(
    random: np.random.Generator,
    n_kernels: int,
    n_classes: int,
    n_features: int,
    covariance_type: str = "full",
) -> Parameters:
    """Return a random model of one start."""
    return Parameters(
        weights=random.dirichlet(np.ones(n_kernels), size=n_classes).T,
        means=2.0 * random.normal(size=(n_kernels, n_features)),
        covariances=as_structure(random_covariances(random, n_kernels, n_features), covariance_type),
    )


def random_rows(
    random: np.random.Generator, n_rows: int, n_classes: int, n_features: int
) -> tuple[FloatArray, IntArray]:
    """Return clustered rows in no order, every class with at least one of them."""
    centres = 3.0 * random.normal(size=(3, n_features))
    X = centres[random.integers(0, 3, size=n_rows)] + random.normal(size=(n_rows, n_features))
    classes = np.concatenate([np.arange(n_classes), random.integers(0, n_classes, size=n_rows - n_classes)])
    return X, random.permutation(classes)


def stack(models: Sequence[Parameters]) -> Parameters:
    """Return models as one batch of starts."""
    return Parameters(
        np.stack([model.weights for model in models]),
        np.stack([model.means for model in models]),
        np.stack([model.covariances for model in models]),
    )


def as_structure(full: FloatArray, covariance_type: str) -> FloatArray:
    """Return the part of full covariances (K, M, M) that a structure keeps, one start."""
    if covariance_type == "full":
        return full
    if covariance_type == "tied":
        return full.mean(axis=0)
    variances = np.stack([np.diag(matrix) for matrix in full])
    return variances if covariance_type == "diag" else variances.mean(axis=1)


def as_full(covariances: FloatArray, covariance_type: str, n_kernels: int, n_features: int) -> FloatArray:
    """Return the full covariances (K, M, M) behind those of a structure, one start."""
    if covariance_type == "full":
        return covariances
    if covariance_type == "tied":
        return np.stack([covariances] * n_kernels)
    if covariance_type == "diag":
        return np.stack([np.diag(variances) for variances in covariances])
    return np.stack([variance * np.eye(n_features) for variance in covariances])


def as_brute(model: Parameters, covariance_type: str = "full") -> brute.Model:
    """Return one model for the brute-force oracle."""
    full = as_full(model.covariances, covariance_type, *model.means.shape)
    degrees = model.tail.degrees
    return brute.Model(model.weights, model.means, full, degrees=degrees, class_prior=model.class_prior)


def kernel_log_densities(X: FloatArray, model: Parameters, covariance_type: str = "full") -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K)."""
    return brute.log_densities(X, as_brute(model, covariance_type))


def class_log_likelihood(X: FloatArray, model: Parameters, covariance_type: str = "full") -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    return brute.class_log_likelihood(X, as_brute(model, covariance_type))


def responsibilities(
    X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str = "full"
) -> FloatArray:
    """Return w_nk, shape (N, K): equation (E)."""
    n_classes = model.weights.shape[1]
    every = np.full(n_classes, 1.0 / n_classes)
    shares = brute.responsibilities(X, as_brute(model, covariance_type), classes, every)
    return shares.sum(axis=1)


def total_log_likelihood(
    X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str = "full"
) -> FloatArray:
    """Return the log-likelihood (L,) of each class's rows."""
    return brute.log_likelihood(brute.Rows(X, classes, np.ones(len(X))), as_brute(model, covariance_type))


def expected_pass(
    X: FloatArray,
    classes: IntArray,
    model: Parameters,
    covariance_type: str,
    row_weights: FloatArray | None = None,
) -> tuple[Parameters, float]:
    """Do one pass without a floor, with gaps (NaN), unlabelled rows (−1) and weights.

    Return the likelihood too: of row and label together when the model has class priors, and of the row given
    its label otherwise.
    """
    # Second moments about a place among the rows lose no digits.
    centre, before = np.nanmean(X, axis=0), as_brute(model, covariance_type)
    before = replace(before, means=before.means - centre)
    rows = brute.Rows(X - centre, classes, np.ones(len(X)) if row_weights is None else row_weights)
    rule = brute.Rule(covariance_type, np.zeros(X.shape[1]), learn_degrees=before.degrees is not None)
    after = brute.next_model(rows, before, rule)
    covariances = as_structure(after.covariances, covariance_type)
    found = Parameters(after.weights, after.means + centre, covariances, after.class_prior)
    if after.degrees is not None:
        found = replace(found, tail=StudentT(after.degrees))
    return found, float(brute.log_likelihood(rows, before).sum())
