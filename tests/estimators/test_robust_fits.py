"""``tail``: t kernels, beside what tests/matrix crosses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture

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


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
@pytest.mark.parametrize("tail", [None, "t", ("t", 4.0)])
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


def test_settings_that_were_changed_after_the_fit_change_nothing() -> None:
    model = fitted(tail=("t", 4.0))
    before = model.bic(X, Y)
    model.set_params(tail=None)
    assert model.bic(X, Y) == before
    with pytest.raises(ValueError, match="fitted: fit again"):
        model.partial_fit(X, Y)
