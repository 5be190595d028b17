"""``tail``: t kernels and a background, beside what tests/matrix crosses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import cauchy

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.groups import Study, match

CENTRES = np.array([[0.0, 0.0, 1.0], [6.0, 5.0, 0.0], [-5.0, 6.0, 2.0]])
ROOTS = np.array([[[1.0, 0, 0], [0.5, 1, 0], [0, 0.3, 1.0]], np.diag([2.0, 1.0, 0.5]), np.eye(3)])
DEGREES = np.array([3.0, 6.0, 25.0])
WEIGHTS = np.array([[0.6, 0.2], [0.3, 0.3], [0.1, 0.5]])


def rows(n_rows: int = 600, *, noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two classes over three t kernels, some of them anywhere between −30 and 30."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, size=n_rows)
    kernels = (random.uniform(size=n_rows)[:, None] > np.cumsum(WEIGHTS, axis=0).T[y]).sum(axis=1)
    X = np.einsum("nij,nj->ni", ROOTS[kernels], random.normal(size=(n_rows, 3)))
    X = CENTRES[kernels] + X / np.sqrt(random.chisquare(DEGREES[kernels]) / DEGREES[kernels])[:, None]
    far = random.uniform(size=n_rows) < noise
    X[far] = random.uniform(-30.0, 30.0, size=(far.sum(), 3))
    return X, y


X, Y = rows(noise=0.05)
NEW = rows(50, noise=0.1, seed=1)[0]


def fitted(covariance_type: str = "full", **settings: Any) -> SharedKernelMixture:
    chosen = {"init": "k-means", "max_iter": 30, "tol": 1e-3, "random_state": 0, **settings}
    return SharedKernelMixture(3, covariance_type=covariance_type, **chosen).fit(X, Y)


def test_the_background_is_as_large_as_the_noise() -> None:
    random = np.random.default_rng(0)
    y = np.arange(4000) % 2
    far = random.uniform(size=4000) < np.array([0.05, 0.2])[y]
    noisy = CENTRES[y] + random.normal(size=(4000, 3))
    noisy[far] = random.uniform(-30.0, 30.0, size=(far.sum(), 3))
    model = SharedKernelMixture(2, tail="background", init="k-means", random_state=0).fit(noisy, y)
    assert_allclose(model.background_weights_, [0.05, 0.2], atol=0.02)
    assert_array_equal(model.background_box_, [noisy.min(axis=0), noisy.max(axis=0)])
    # Information criteria count its shares.
    n_parameters = 0.5 * (model.aic(noisy, y) + 2 * model.score_samples(noisy, y).sum())
    assert_allclose(n_parameters, 2 * 3 + 2 * 6 + 2 + 2)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
@pytest.mark.parametrize("tail", [None, "t", ("t", 4.0), "background"])
def test_a_joint_density_is_a_marginal_times_a_conditional(covariance_type: str, tail: Any) -> None:
    model = fitted(covariance_type, tail=tail)
    for row in NEW[:3]:
        given, rest = {2: row[2], 0: row[0]}, row[None, 1:2]
        whole = model.score_samples(row[None])
        known = model.marginal([2, 0]).score_samples(row[None, [2, 0]])
        conditional = model.condition(given)
        assert_allclose(conditional.score_samples(rest) + known, whole, rtol=1e-9)
        assert_allclose(conditional.class_prior_.sum(), 1.0)
        masked = np.array([[row[0], np.nan, row[2]]])
        assert_allclose(model.score_samples(masked), known, rtol=1e-9)


def test_new_rows_outside_of_the_box_are_background_in_the_composition_too() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    model = fitted(tail="background")
    far = np.full((50, 3), 1e3)
    study = Study(model)
    alone, beside = (study.proportions_of(own)["proportion"].to_numpy() for own in (X, np.vstack([X, far])))
    # Within the rest, shares are as they were.
    assert_allclose(beside[:3] / beside[:3].sum(), alone[:3] / alone[:3].sum(), atol=1e-3)
    # A few other rows go with them, since a larger background is likelier everywhere.
    assert_allclose((len(X) + 50) * beside[3], len(X) * alone[3] + 50.0, atol=3.0)


def test_a_search_with_a_background_finds_the_number_of_kernels() -> None:
    random = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], 150, axis=0)
    rows = np.vstack([random.normal(size=(450, 2)) + centres, random.uniform(-40, 40, (30, 2))])
    mixture = SharedKernelMixture(tail="background", n_init=3)
    search = SharedKernelMixtureCV(
        mixture, n_kernels=[1, 2, 3, 4], covariance_type="full", criterion="log_likelihood", random_state=0
    )
    assert search.fit(rows).best_params_["n_kernels"] == 3


def test_distances_of_t_kernels_are_those_of_their_densities() -> None:
    pulled = {"tail": ("t", 1.0), "init": {"means": [[0.0]], "covariances": [[[1.0]]], "freeze": "kernels"}}
    one = SharedKernelMixture(**pulled).fit(X[:, :1])
    pulled["init"] = {"means": [[15.0]], "covariances": [[[1.0]]], "freeze": "kernels"}
    two = SharedKernelMixture(**pulled).fit(X[:, :1])
    points = np.linspace(-5e3, 5e3, 2_000_001)
    roots = np.sqrt(cauchy.pdf(points) * cauchy.pdf(points, loc=15.0))
    distance = 1.0 - np.trapezoid(roots, points)
    assert match(one, two, max_distance=distance + 0.02).tolist() == [0]
    assert match(one, two, max_distance=distance - 0.02).tolist() == [-1]


def test_settings_that_were_changed_after_the_fit_change_nothing() -> None:
    model = fitted(tail="background")
    before = model.bic(X, Y)
    model.set_params(tail=None)
    assert model.bic(X, Y) == before
    with pytest.raises(ValueError, match="fit it again"):
        model.partial_fit(X, Y)


def test_a_constant_feature_has_a_background_of_one_unit() -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=50), np.full(50, 3.0)])
    model = SharedKernelMixture(1, tail="background", random_state=0).fit(X)
    low, high = model.background_box_
    assert_array_equal([low[0], high[0]], [X[:, 0].min(), X[:, 0].max()])
    assert low[1] < 3.0 < high[1]
    assert np.isfinite(model.score_samples(X)).all()
