"""Slow, plain versions of what the engine computes, and small random models to compare on.

Nothing here calls the engine's arithmetic: densities come from scipy, covariances from their definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import multivariate_normal, multivariate_t

from skmix.engine.model import FloatArray, IntArray, Parameters
from skmix.engine.tails import Background, StudentT

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


def kernel_log_densities(X: FloatArray, model: Parameters, covariance_type: str = "full") -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), by scipy."""
    n_kernels, n_features = model.means.shape
    full = as_full(model.covariances, covariance_type, n_kernels, n_features)
    columns = [
        np.atleast_1d(multivariate_normal(mean, covariance).logpdf(X))
        for mean, covariance in zip(model.means, full, strict=True)
    ]
    return np.stack(columns, axis=1)


def class_log_likelihood(X: FloatArray, model: Parameters, covariance_type: str = "full") -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(model.weights)
    densities = kernel_log_densities(X, model, covariance_type)
    return np.asarray(logsumexp(densities[:, :, None] + log_weights, axis=1))


def responsibilities(
    X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str = "full"
) -> FloatArray:
    """Return w_nk, shape (N, K): equation (E)."""
    with np.errstate(divide="ignore"):
        joint = kernel_log_densities(X, model, covariance_type) + np.log(model.weights.T[classes])
    return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))


def total_log_likelihood(
    X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str = "full"
) -> FloatArray:
    """Return the log-likelihood (L,) of each class's rows."""
    per_row = class_log_likelihood(X, model, covariance_type)
    return np.array([per_row[classes == c, c].sum() for c in range(model.weights.shape[1])])


def expected_pass(
    X: FloatArray,
    classes: IntArray,
    model: Parameters,
    covariance_type: str,
    row_weights: FloatArray | None = None,
) -> tuple[Parameters, float]:
    """Do one pass row by row, with gaps (NaN), unlabelled rows (−1) and weights; return also the likelihood.

    The complete data of a row are its class, its kernel and its missing values; expectations of them come
    from the textbook formulas for a conditional Gaussian. The likelihood is of row and label together when
    the model has class priors, and of the row given its label otherwise. A row of a t kernel also has a
    precision u relative to the kernel's, of which a Gamma distribution is the posterior; and a row may be
    one of a uniform background.
    """
    n_kernels, n_features = model.means.shape
    n_classes, of_tail = model.weights.shape[1], model.tail.to_dict()
    degrees, noisy = of_tail.get("degrees"), of_tail if "box" in of_tail else None
    full = as_full(model.covariances, covariance_type, n_kernels, n_features)
    prior = np.ones(n_classes) if model.class_prior is None else model.class_prior
    weights = np.ones(len(X)) if row_weights is None else row_weights
    mass = np.zeros((n_kernels, n_classes))
    noise, first, scales, gaps_of_logs = np.zeros(n_classes), np.zeros((n_kernels, n_features)), 0.0, 0.0
    filled = []
    likelihood = 0.0
    for x, c, weight in zip(X, classes, weights, strict=True):
        seen = np.flatnonzero(~np.isnan(x))
        gaps = np.flatnonzero(np.isnan(x))
        allowed = prior * ((np.arange(n_classes) == c) | (c < 0))
        joint = np.empty((n_kernels, n_classes))
        values = np.tile(x, (n_kernels, 1))
        spread = np.zeros((n_kernels, n_features, n_features))
        precision, log_precision = np.ones(n_kernels), np.zeros(n_kernels)
        of_noise = np.zeros(n_classes)
        if noisy is not None:
            of_noise = allowed * noisy["weights"] / np.prod(np.diff(noisy["box"][:, seen], axis=0))
        for k in range(n_kernels):
            own = full[k][np.ix_(seen, seen)]
            if degrees is None:
                density = multivariate_normal(model.means[k, seen], own).pdf(x[seen])
            else:
                density = multivariate_t(model.means[k, seen], own, df=degrees[k]).pdf(x[seen])
                away = x[seen] - model.means[k, seen]
                rate = 0.5 * (degrees[k] + away @ np.linalg.solve(own, away))
                shape = 0.5 * (degrees[k] + len(seen))
                precision[k], log_precision[k] = shape / rate, digamma(shape) - np.log(rate)
            joint[k] = density * model.weights[k] * allowed
            if noisy is not None:
                joint[k] *= 1.0 - noisy["weights"]
            slope = full[k][np.ix_(gaps, seen)] @ np.linalg.inv(own)
            values[k, gaps] = model.means[k, gaps] + slope @ (x[seen] - model.means[k, seen])
            rest = full[k][np.ix_(gaps, gaps)] - slope @ full[k][np.ix_(seen, gaps)]
            spread[k][np.ix_(gaps, gaps)] = rest / precision[k]
        density = joint.sum() + of_noise.sum()
        likelihood += weight * np.log(density)
        responsibility = weight * joint / density
        mass += responsibility
        noise += weight * of_noise / density
        share = responsibility.sum(axis=1) * precision
        first += share[:, None] * values
        scales = scales + share
        gaps_of_logs = gaps_of_logs + responsibility.sum(axis=1) * (log_precision - precision)
        filled.append((share, values, spread))
    total = mass.sum(axis=1)
    means = first / np.asarray(scales)[:, None]
    scatter = np.zeros((n_kernels, n_features, n_features))
    for responsibility, values, spread in filled:
        deviation = values - means
        scatter += responsibility[:, None, None] * (spread + deviation[:, :, None] * deviation[:, None, :])
    if covariance_type == "tied":
        covariances = scatter.sum(axis=0) / total.sum()
    else:
        covariances = as_structure(scatter / total[:, None, None], covariance_type)
    sizes = mass.sum(axis=0) + noise
    class_prior = None if model.class_prior is None else sizes / sizes.sum()
    found = Parameters(mass / mass.sum(axis=0), means, covariances, class_prior)
    if degrees is not None:
        learnt = np.array([likeliest_degrees(s) for s in gaps_of_logs / total])
        found = replace(found, tail=StudentT(learnt))
    if noisy is not None:
        found = replace(found, tail=Background(noise / sizes, noisy["box"]))
    return found, float(likelihood)


def likeliest_degrees(mean_gap: float) -> float:
    """Return the ν from 1 to 200 that maximises ν/2 log ν/2 − log Γ(ν/2) + ν/2 s, given s."""
    found = minimize_scalar(
        lambda v: gammaln(0.5 * v) - 0.5 * v * (np.log(0.5 * v) + mean_gap),
        bounds=(1.0, 200.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.x)
