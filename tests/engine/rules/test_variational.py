"""Variational Bayes: the evidence by other routes, a bound that never falls, and scikit-learn's posterior."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, kernel_log_densities, random_covariances, random_model, stack
from scipy import stats
from scipy.special import logsumexp

from skmix.engine.problem import Problem, open_source
from skmix.engine.records import FloatArray, IntArray, Options, Status

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
PRIOR: dict[str, Any] = {"covariance_prior": 4.5, "weight_prior": 0.7}


def variational(covariance_type: str, **settings: Any) -> Options:
    return Options(
        **{"covariance_type": covariance_type, "inference": "variational", "tol": 0.0, **PRIOR, **settings}
    )


def log_joint_evidence(
    X: FloatArray,
    classes: IntArray,
    kernels: IntArray,
    n_kernels: int,
    covariance_type: str,
    scale: FloatArray,
) -> float:
    """Return log p(X, z | classes), weights and kernels integrated out, row after row.

    Given what came before, a row's kernel has the probability of Pólya's urn, and its features have
    Student's distribution; each row then moves the mean of its kernel and adds to the scatter.
    """
    n_features, n_classes = X.shape[1], int(classes.max()) + 1
    centre = np.tile(X.mean(axis=0), (n_kernels, 1))
    rows_of_mean = np.full(n_kernels, n_kernels ** (-2.0 / n_features))
    repeats = n_features if covariance_type == "spherical" else 1
    degrees = np.full(n_kernels, repeats * PRIOR["covariance_prior"])
    scatter = np.tile(PRIOR["covariance_prior"] * scale, (n_kernels, 1, 1))
    urn = np.full((n_kernels, n_classes), PRIOR["weight_prior"])
    total = 0.0
    for x, c, k in zip(X, classes, kernels, strict=True):
        total += math.log(urn[k, c] / urn[:, c].sum())
        urn[k, c] += 1.0
        wider = (rows_of_mean[k] + 1.0) / rows_of_mean[k]
        away = x - centre[k]
        gain = np.outer(away, away) / wider
        everyone = slice(None) if covariance_type == "tied" else slice(k, k + 1)
        if covariance_type in ("full", "tied"):
            free = degrees[k] - n_features + 1
            total += stats.multivariate_t(centre[k], scatter[k] * wider / free, df=free).logpdf(x)
        elif covariance_type == "diag":
            deviations = np.sqrt(np.diagonal(scatter[k]) * wider / degrees[k])
            total += stats.t(degrees[k], centre[k], deviations).logpdf(x).sum()
        else:
            variance = np.trace(scatter[k]) / degrees[k]
            shape = variance * wider * np.eye(n_features)
            total += stats.multivariate_t(centre[k], shape, df=degrees[k]).logpdf(x)
        degrees[everyone] += repeats
        scatter[everyone] += gain
        centre[k] += away / (rows_of_mean[k] + 1.0)
        rows_of_mean[k] += 1.0
    return float(total)


@each_type
def test_between_distant_kernels_the_bound_is_the_evidence_of_the_assignment(covariance_type: str) -> None:
    random = np.random.default_rng(6)
    n_rows, n_kernels = 40, 3
    kernels = np.arange(n_rows) % n_kernels
    classes = random.integers(2, size=n_rows)
    centres = 1e4 * np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 2.0]])
    X = centres[kernels] + random.normal(size=(n_rows, 2))
    scale = random_covariances(random, 1, 2)[0]
    start = random_model(random, n_kernels, 2, 2, covariance_type)
    start = replace(start, means=centres)
    options = variational(covariance_type, max_iter=3, covariance_prior_scale=scale)
    result = fit(X, classes, stack([start]), options)
    expected = log_joint_evidence(X, classes, kernels, n_kernels, covariance_type, scale)
    assert_allclose(result.objective, expected, rtol=1e-8)
    assert result.counts is not None
    assert_allclose(result.counts[0].sum(axis=1), np.bincount(kernels), rtol=1e-12)


def test_superfluous_kernels_lose_their_weight() -> None:
    random = np.random.default_rng(12)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    kernels = random.integers(3, size=600)
    X = centres[kernels] + random.normal(size=(600, 2))
    classes = (random.uniform(size=600) < np.array([0.1, 0.5, 0.9])[kernels]).astype(np.int64)
    start = replace(random_model(random, 10, 2, 2), means=X[:10], weights=np.full((10, 2), 0.1))
    given = {"tol": 1e-6, "max_iter": 500, "weight_prior": None, "covariance_prior_scale": np.eye(2)}
    result = fit(X, classes, stack([start]), variational("full", **given))
    assert result.status[0] == Status.CONVERGED
    model = result.parameters.take(0)
    assert 3 <= model.weights.any(axis=1).sum() <= 6
    # The likelihood is that of the kernels that are left.
    with np.errstate(divide="ignore"):
        joint = kernel_log_densities(X, model) + np.log(model.weights.T[classes])
    assert_allclose(result.log_likelihood[0].sum(), logsumexp(joint, axis=1).sum(), rtol=1e-9)


def test_no_class_loses_its_last_kernel() -> None:
    """Kernels of less than one row lose their weight, unless one is the heaviest of a class."""
    counts = np.array([[[30.0, 0.0], [0.2, 0.1], [0.3, 0.4], [0.1, 0.0]]])
    model = random_model(np.random.default_rng(0), 4, 2, 2)
    problem = Problem.of(open_source(np.eye(2)), variational("full", weight_prior=0.5), 4)
    found = problem.rule.finish(replace(model.batch(), counts=counts)).weights[0]
    expected = np.array([[30.5, 0.5], [0.0, 0.0], [0.8, 0.9], [0.0, 0.0]])
    assert_allclose(found, expected / expected.sum(axis=0), rtol=1e-14)


def test_a_kernel_without_weight_stays_without_rows() -> None:
    """As in EM, although its posterior would be the prior."""
    random = np.random.default_rng(3)
    X, start = random.normal(size=(60, 2)), random_model(random, 3, 1, 2)
    start = replace(start, weights=np.array([[0.5], [0.0], [0.5]]))
    result = fit(X, None, stack([start]), variational("full", max_iter=5))
    assert result.counts is not None
    assert_allclose(result.counts[0].sum(), 60.0)
    assert result.counts[0, 1] == 0.0
