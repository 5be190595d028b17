"""Kernels with heavy tails and a uniform background: densities, conditionals, draws and what is frozen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_full, random_model, random_rows
from scipy import stats
from scipy.special import log_softmax, logsumexp

from skmix.engine import density
from skmix.engine.model import FloatArray, IntArray, Parameters
from skmix.engine.tails import Background, StudentT

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
each_tail = pytest.mark.parametrize("kind", ["t", "background"])
DEGREES = np.array([1.5, 3.0, 8.0, 100.0])
SHARES = np.array([0.1, 0.4])
BOX = np.array([[-6.0, -7.0, -8.0], [5.0, 9.0, 7.0]])


def problem(
    covariance_type: str, kind: str, *, gaps: bool = False
) -> tuple[FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(0)
    X, classes = random_rows(random, 25, 2, 3)
    X[:3] *= 10.0  # outside of the box
    if gaps:
        gone = random.uniform(size=X.shape) < 0.3
        gone[np.arange(25), random.integers(0, 3, size=25)] = False
        X[gone], X[4] = np.nan, np.nan
    model = random_model(random, 4, 2, 3, covariance_type)
    return X, classes, replace(model, tail=StudentT(DEGREES) if kind == "t" else Background(SHARES, BOX))


def joints(X: FloatArray, model: Parameters, covariance_type: str) -> tuple[FloatArray, FloatArray]:
    """Return log-densities of all kernels (N, K), or with the background (N, K + 1), and log-joints with
    each class (N, …, L), row by row."""
    (n_kernels, n_features), n_rows = model.means.shape, len(X)
    full = as_full(model.covariances, covariance_type, n_kernels, n_features)
    tail = model.tail.to_dict()
    found = np.zeros((n_rows, n_kernels + ("box" in tail)))
    for n, x in enumerate(X):
        seen = np.flatnonzero(~np.isnan(x))
        for k in range(n_kernels if len(seen) else 0):
            mean, own = model.means[k, seen], full[k][np.ix_(seen, seen)]
            if "degrees" not in tail:
                found[n, k] = stats.multivariate_normal(mean, own).logpdf(x[seen])
            else:
                found[n, k] = stats.multivariate_t(mean, own, df=tail["degrees"][k]).logpdf(x[seen])
        if "box" in tail:
            found[n, -1] = -np.log(np.diff(tail["box"][:, seen], axis=0)).sum()
    weights = model.weights
    if "box" in tail:
        weights = np.concatenate([weights * (1.0 - tail["weights"]), tail["weights"][None]])
    return found, found[:, :, None] + np.log(weights)


@each_type
@each_tail
@pytest.mark.parametrize("gaps", [False, True])
def test_densities_and_responsibilities_are_those_of_rows_one_by_one(
    covariance_type: str, kind: str, gaps: bool
) -> None:
    X, classes, model = problem(covariance_type, kind, gaps=gaps)
    densities, joint = joints(X, model, covariance_type)
    exact = {"rtol": 1e-9, "atol": 1e-9}
    assert_allclose(density.kernel_log_densities(X, model, covariance_type), densities[:, :4], **exact)
    assert_allclose(density.all_log_densities(X, model, covariance_type), densities, **exact)
    assert_allclose(
        density.class_log_likelihood(X, model, covariance_type), logsumexp(joint, axis=1), **exact
    )
    own = log_softmax(joint[np.arange(25), :, classes], axis=1)
    assert_allclose(density.log_responsibilities(X, classes, model, covariance_type), own[:, :4], **exact)
    most_likely = (densities[:, :4] + np.log(model.weights[:, 0])).argmax(axis=1)
    assert_array_equal(density.most_likely_kernel(X, model, covariance_type), most_likely)
    posterior = np.random.default_rng(1).dirichlet(np.ones(2), size=25)
    averaged = np.einsum("nkc,nc->nk", np.exp(log_softmax(joint, axis=1)), posterior)[:, :4]
    found = density.averaged_log_responsibilities(X, np.log(posterior), model, covariance_type)
    assert_allclose(np.exp(found), averaged, rtol=1e-8, atol=1e-12)
    # Of one row alone, too, which is evaluated without threads.
    one = density.class_log_likelihood(X[7:8], model, covariance_type)
    assert_allclose(one, logsumexp(joint, axis=1)[7:8], **exact)


@each_tail
def test_models_too_large_to_be_kept_have_the_same_densities(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, model = problem("full", kind)
    expected = density.class_log_likelihood(X, model, "full")
    monkeypatch.setattr("skmix.engine.density._CACHED", 0)
    assert_array_equal(density.class_log_likelihood(X, model, "full"), expected)


@each_type
@each_tail
@pytest.mark.parametrize("columns", [[1], [2, 0], []])
def test_a_conditional_density_is_a_ratio(covariance_type: str, kind: str, columns: list[int]) -> None:
    """p(rest | values) = p(rest, values) / p(values), in each class."""
    X, _, model = problem(covariance_type, kind)
    known = np.array(columns, dtype=np.int64)
    gaps = np.setdiff1d(np.arange(3), known)
    structure = "full" if kind == "t" and covariance_type == "tied" else covariance_type
    for x in X[2:5]:
        alone = np.full((1, 3), np.nan)
        alone[0, known] = x[known]
        below, above = (logsumexp(joints(row, model, covariance_type)[1], axis=1) for row in (alone, x[None]))
        rest = density.condition(model, covariance_type, known, x[known])
        assert_allclose(rest.weights.sum(axis=0), 1.0, rtol=1e-9)
        found = logsumexp(joints(x[None, gaps], rest, structure)[1], axis=1)
        assert_allclose(found, above - below, rtol=1e-7, atol=1e-7)


def test_conditionals_of_low_rank_kernels_are_as_wide_as_those_of_full_ones() -> None:
    random = np.random.default_rng(2)
    factors, own = random.normal(size=(2, 3, 1)), random.uniform(0.5, 1.0, size=(2, 3))
    covariances = np.concatenate([factors, own[..., None]], axis=-1)
    full = factors @ factors.mT + own[:, :, None] * np.eye(3)
    means, degrees = random.normal(size=(2, 3)), np.array([2.0, 9.0])
    weights, known = np.full((2, 1), 0.5), np.array([1])
    found, expected = (
        density.condition(
            Parameters(weights, means, each, tail=StudentT(degrees)), kind, known, np.array([3.0])
        )
        for each, kind in ((covariances, "low_rank"), (full, "full"))
    )
    dense = found.covariances[..., :-1] @ found.covariances[..., :-1].mT
    dense += found.covariances[..., -1:] * np.eye(2)
    assert_allclose(dense, expected.covariances, rtol=1e-9)
    assert_allclose(found.means, expected.means, rtol=1e-9)
    assert_allclose(found.weights, expected.weights, rtol=1e-9)


def assert_drawn(values: FloatArray, distribution: object) -> None:
    assert stats.kstest(values, distribution.cdf).pvalue > 1e-3  # type: ignore[attr-defined]


@each_type
@each_tail
def test_drawn_rows_have_the_distribution_of_their_kernel(covariance_type: str, kind: str) -> None:
    _, _, model = problem(covariance_type, kind)
    classes = np.repeat([0, 1], [4000, 4000])
    X, kernels = density.draw(model, covariance_type, classes, np.random.RandomState(0))
    weights = np.concatenate([model.weights * (1.0 - SHARES), SHARES[None]])
    degrees = DEGREES if kind == "t" else np.full(4, np.inf)
    full = as_full(model.covariances, covariance_type, 4, 3)
    for c in (0, 1):
        shares = np.bincount(kernels[classes == c], minlength=5) / 4000.0
        wanted = np.append(model.weights[:, c], 0.0) if kind == "t" else weights[:, c]
        assert_allclose(shares, wanted, atol=0.03)
    for k in range(4 if kind == "t" else 5):
        own = X[kernels == k]
        for j in range(3):
            if k == 4:
                assert_drawn(own[:, j], stats.uniform(BOX[0, j], BOX[1, j] - BOX[0, j]))
            else:
                assert_drawn(own[:, j], stats.t(degrees[k], model.means[k, j], np.sqrt(full[k, j, j])))
        if k < 4:
            # Features have a common tail: squared distances over M are those of an F distribution.
            away = own - model.means[k]
            squares = np.einsum("nd,de,ne->n", away, np.linalg.inv(full[k]), away) / 3.0
            assert_drawn(squares, stats.f(3, degrees[k]) if kind == "t" else stats.chi2(3, scale=1.0 / 3.0))


def test_indices_are_chosen_by_their_probabilities() -> None:
    probabilities = np.tile([[0.0, 0.2, 0.0, 0.6, 0.0]], (4000, 1))
    counts = np.bincount(density.choose(probabilities, np.random.RandomState(0)), minlength=5)
    assert_allclose(counts / 4000, [0.0, 0.25, 0.0, 0.75, 0.0], atol=0.03)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
