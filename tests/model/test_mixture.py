"""The density model: attributes, densities by hand, starts, posteriors, and life inside scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES
from scipy.special import digamma, gammaln, logsumexp, multigammaln
from scipy.stats import multivariate_t
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV
from skmix.datasets import make_shared_kernel_data

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def labelled(seed: int = 0, n_rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes in three features."""
    random = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    X = random.normal(size=(n_rows, 3)) + 2.0 * np.eye(3)[y] + 3.0 * random.integers(2, size=(n_rows, 1))
    return X, y


@pytest.mark.parametrize("seed", range(3))
def test_the_default_start_finds_the_kernels_of_many_groups(seed: int) -> None:
    """Where kernels lie apart, the fit ends where one that starts at the truth does."""
    random = np.random.default_rng(seed)
    means, n_groups, n_rows = 5.0 * random.normal(size=(15, 5)), 60, 50
    weights = random.dirichlet(np.ones(15), size=n_groups).T
    covariances = np.tile(np.eye(5), (15, 1, 1))
    X, y = make_shared_kernel_data(means, covariances, weights, n_rows, random_state=seed)
    truth = SharedKernelMixture(init={"means": means, "covariances": covariances}).fit(X, y)
    found = SharedKernelMixture(15, random_state=seed).fit(X, y)
    assert found.log_likelihood_ > truth.log_likelihood_ - 0.02 * len(X)


def test_passes_over_samples_are_those_of_msgmm(golden: Callable[[str], dict[str, Any]]) -> None:
    """Ten passes of a published program (R) for samples that share kernels."""
    stored = golden("samples")
    start = {
        "means": stored["start_means"],
        "covariances": np.tile(stored["start_covariance"] * np.eye(4), (6, 1, 1)),
        "weights": np.full((6, 8), 1.0 / 6.0),
    }
    settings: dict[str, Any] = {"covariance_prior": None, "variance_floor": 0.0, "tol": 0.0}
    model = SharedKernelMixture(6, init=start, max_iter=int(stored["n_passes"]), **settings)
    with pytest.warns(ConvergenceWarning):
        model.fit(stored["X"], stored["group"])
    assert_allclose(model.weights_.T, stored["weights"], atol=1e-10)
    assert_allclose(model.means_, stored["means"], rtol=1e-9)
    assert_allclose(model.covariances_, stored["covariances"], rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- densities


@pytest.mark.parametrize(
    ("covariance_type", "n_each"), [("full", 21), ("tied", 21 / 4), ("diag", 6), ("spherical", 1)]
)
def test_information_criteria_count_free_parameters(covariance_type: str, n_each: float) -> None:
    """Four means of six features, three free weights in each of three classes, and the covariances."""
    X, y = labelled()
    X = np.column_stack([X, np.random.default_rng(1).normal(size=X.shape)])
    model = SharedKernelMixture(4, covariance_type=covariance_type, random_state=0, max_iter=500).fit(X, y)
    n_free = 24 + 9 + 4 * n_each
    total = model.score_samples(X, y).sum()
    assert model.aic(X, y) == pytest.approx(-2.0 * total + 2.0 * n_free, rel=1e-12)
    assert model.bic(X, y) == pytest.approx(-2.0 * total + n_free * np.log(len(X)), rel=1e-12)


@pytest.mark.parametrize("kind", [SharedKernelMixture, GaussianMixture, SharedKernelMixtureCV])
def test_weights_that_sum_to_fewer_rows_than_there_are_warn(kind: Any) -> None:
    """BIC takes their sum as the number of rows: as one row, it would reward every further kernel."""
    X = labelled()[0]
    weights = np.random.default_rng(1).uniform(0.5, 1.5, size=len(X))
    weights[:10] = 0.0

    def criterion(weights: np.ndarray) -> float:
        if kind is SharedKernelMixtureCV:
            search = kind(n_kernels=2, covariance_type="diag", criterion="bic", random_state=0)
            return -float(search.fit(X, sample_weight=weights).best_score_)
        return float(kind(2, random_state=0).fit(X, sample_weight=weights).bic(X, sample_weight=weights))

    with pytest.warns(UserWarning, match=r"weights of 140 rows sum to 1, .* to a sum of 140") as caught:
        criterion(weights / weights.sum())
    assert {each.filename for each in caught} == {__file__}
    criterion(weights * (140.0 / weights.sum()))  # the remedy: no warning, which would be an error


# ---------------------------------------------------------------- priors, stopping, printing


def test_a_fit_that_does_not_converge_warns_with_the_numbers() -> None:
    X, y = labelled()
    message = r"best of 2 starts did not converge in 3 passes.*max_iter \(3\).*tol"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = SharedKernelMixture(4, max_iter=3, tol=1e-9, n_init=2, random_state=0).fit(X, y)
    assert caught[0].filename == __file__
    assert model.converged_ is False
    assert model.n_iter_ == 3
    assert set(model.start_status_) == {"stopped"}


# ---------------------------------------------------------------- sampling


@each_type
def test_samples_look_like_the_model(covariance_type: str) -> None:
    X, y = labelled()
    settings = {"covariance_type": covariance_type, "init": "class", "random_state": 0}
    model = SharedKernelMixture(4, max_iter=500, **settings).fit(X, y)
    rows, labels = model.sample(30_000)
    assert rows.shape == (30_000, 3)
    assert_allclose(np.bincount(labels) / 30_000, model.class_prior_, atol=0.01)
    for c in range(3):
        assert_allclose(rows[labels == c].mean(axis=0), model.weights_[:, c] @ model.means_, atol=0.1)
    only, their_labels = model.sample(500, label=2)
    assert_array_equal(their_labels, 2)
    assert_allclose(only.mean(axis=0), model.weights_[:, 2] @ model.means_, atol=0.5)


# ---------------------------------------------------------------- posteriors

CENTRES = 100.0 * np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 2.0]])
PRIOR = np.array([6.0, 3.0, 1.0])
START = {"means": CENTRES, "covariances": np.tile(np.eye(2), (3, 1, 1))}

VARIATIONAL: dict[str, Any] = {"inference": "variational", "random_state": 0, "max_iter": 500}


def groups(
    n_groups: int = 30, centres: np.ndarray = CENTRES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (N, 2), their groups (N,), and the counts (K, L) that they were drawn with."""
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 60, size=n_groups)
    counts = random.multinomial(sizes, random.dirichlet(PRIOR, size=n_groups)).T
    kernels = np.concatenate([np.repeat(np.arange(3), own) for own in counts.T])
    X = centres[kernels] + random.normal(size=(sizes.sum(), 2))
    order = random.permutation(len(X))
    return X[order], np.repeat(np.arange(n_groups), sizes)[order], counts


def test_weights_are_posterior_means_under_the_learnt_prior() -> None:
    X, y, counts = groups()
    model = SharedKernelMixture(3, init=START, weight_prior="hierarchical").fit(X, y)
    prior = model.weight_prior_
    assert prior.shape == (3,)
    assert_allclose(model.weight_concentration_, counts + prior[:, None], atol=1e-6)
    assert_allclose(model.weights_, (counts + prior[:, None]) / (counts.sum(axis=0) + prior.sum()), atol=1e-8)
    # Ten rows' worth, from thirty groups.
    assert 4.0 < prior.sum() < 25.0
    assert_allclose(prior / prior.sum(), PRIOR / 10.0, atol=0.1)
    assert model.lower_bound_ == model.lower_bound_path_[-1]
    assert (np.diff(model.lower_bound_path_) > -1e-7).all()
    assert len(model.lower_bound_path_) == model.n_iter_ == len(model.log_likelihood_path_)


def test_the_bound_of_a_variational_fit_is_its_definition() -> None:
    X, y, _ = groups(n_groups=8, centres=0.03 * CENTRES)
    settings: dict[str, Any] = {"covariance_prior": (4.0, np.eye(2)), "max_iter": 300, "tol": 1e-7}
    model = SharedKernelMixture(3, init={"means": 0.03 * CENTRES}, inference="variational", **settings)
    model.set_params(weight_prior=0.3).fit(X, y)
    counts, strength, degrees = model.weight_concentration_, model.mean_precision_, model.wishart_degrees_
    precisions, prior_strength = np.linalg.inv(model.covariances_), 3 ** (-2 / 2)
    log_weights = digamma(counts) - digamma(counts.sum(axis=0))
    log_determinants = np.linalg.slogdet(precisions / degrees[:, None, None])[1]
    log_precision = (
        digamma(0.5 * (degrees[:, None] - np.arange(2))).sum(axis=1) + log_determinants + np.log(4)
    )

    def distances(rows: np.ndarray) -> np.ndarray:
        away = rows[:, None] - model.means_
        return np.einsum("nkd,kde,nke->nk", away, precisions, away) + 2 / strength

    log_densities = 0.5 * (log_precision - 2 * np.log(2 * np.pi) - distances(X))
    expected = logsumexp(log_weights.T[y] + log_densities, axis=1).sum()
    # The divergence of the posterior from the prior: of Dirichlet, Gaussian and Wishart distributions.
    for own, sign in ((counts, -1.0), (np.full((3, 8), 0.3), 1.0)):
        expected += sign * (gammaln(own.sum(axis=0)).sum() - gammaln(own).sum())
    expected -= ((counts - 0.3) * log_weights).sum()
    (from_prior,) = distances(X.mean(axis=0)[None])
    expected -= (np.log(strength / prior_strength) - 1.0 + 0.5 * prior_strength * from_prior).sum()
    wishart = multigammaln(2.0, 2) - multigammaln(0.5 * degrees, 2) - 0.5 * degrees * log_determinants
    wishart -= (degrees - 4.0) * np.log(2.0) + 4.0 * np.log(4.0)
    wishart += 0.5 * (
        (degrees - 4.0) * log_precision - 2 * degrees + 4.0 * np.trace(precisions, axis1=1, axis2=2)
    )
    assert model.lower_bound_ == pytest.approx(expected - wishart.sum(), abs=1e-6)


def test_the_bound_is_the_evidence_where_kernels_are_far_apart() -> None:
    """Rows of a kernel have Student's distribution given those before, counts Pólya's given the prior."""
    X, y, counts = groups(n_groups=2, seed=1)
    settings: dict[str, Any] = {"covariance_prior": (4.0, 1.5 * np.eye(2)), "weight_prior": 0.3}
    model = SharedKernelMixture(3, init=START, **VARIATIONAL | settings | {"tol": 1e-9}).fit(X, y)
    evidence = (gammaln(0.3 + counts) - gammaln(0.3)).sum()
    evidence -= (gammaln(0.9 + counts.sum(axis=0)) - gammaln(0.9)).sum()
    for own in (X[np.abs(X - centre).max(axis=1) < 20.0] for centre in CENTRES):
        mean, rows, degrees, scatter = X.mean(axis=0), 3 ** (-2 / 2), 4.0, 4.0 * 1.5 * np.eye(2)
        for x in own:
            shape = scatter * (rows + 1.0) / (rows * (degrees - 1.0))
            evidence += multivariate_t(mean, shape, df=degrees - 1.0).logpdf(x)
            scatter = scatter + rows / (rows + 1.0) * np.outer(x - mean, x - mean)
            mean, rows, degrees = mean + (x - mean) / (rows + 1.0), rows + 1.0, degrees + 1.0
    assert model.lower_bound_ == pytest.approx(evidence, rel=1e-9)


def test_streams_learn_the_prior_from_all_rows_so_far() -> None:
    X, y, counts = groups()
    model = SharedKernelMixture(3, init=START, weight_prior="hierarchical")
    # Group 30 has no rows yet.
    model.partial_fit(X, y, classes=np.arange(31))
    prior = model.weight_prior_
    rows = np.column_stack([counts, np.zeros(3)])
    assert_allclose(model.weights_, (rows + prior[:, None]) / (rows.sum(axis=0) + prior.sum()), atol=1e-6)
    whole = SharedKernelMixture(3, init=START, weight_prior="hierarchical", tol=1e-4).fit(X, y)
    assert_allclose(prior, whole.weight_prior_, rtol=0.02)
    model.partial_fit(X[:300], y[:300])
    assert_allclose(model.weights_.sum(axis=0), 1.0)
    assert not hasattr(model, "weight_concentration_")
    # What a fit learnt stays, if a batch adds little.
    prior = whole.weight_prior_
    whole.partial_fit(X[:1], y[:1], decay=1.0)
    assert_allclose(whole.weight_prior_, prior, rtol=0.02)


def test_too_many_kernels_do_no_harm() -> None:
    # 13 features and 41 rows a class: the most likely parameters of three kernels a class are worthless.
    wine, labels = load_wine(return_X_y=True)
    rows, others, known, unknown = train_test_split(
        wine, labels, test_size=0.3, stratify=labels, random_state=0
    )
    em = SharedKernelClassifier(9, covariance_prior=None, random_state=0, max_iter=500).fit(rows, known)
    variational = SharedKernelClassifier(9, **VARIATIONAL).fit(rows, known)
    assert variational.n_kernels_ < em.n_kernels_
    losses = [log_loss(unknown, model.predict_proba(others)) for model in (em, variational)]
    assert losses[1] < 0.2 * losses[0]
    assert variational.score(others, unknown) >= 0.95
