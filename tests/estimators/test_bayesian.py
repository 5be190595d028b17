"""The drop-in of the variational mixture beside scikit-learn's own; its tests run in test_drop_in.py."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from models import assert_same_mixture
from numpy.testing import assert_array_equal
from oracles import COVARIANCE_TYPES
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture as Theirs

from skmix import BayesianGaussianMixture, GaussianMixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PRIORS = ("dirichlet_process", "dirichlet_distribution")


def rows(n_rows: int, dtype: type = np.float64) -> np.ndarray:
    """Return rows of five clusters that overlap."""
    random = np.random.default_rng(0)
    X = 2.0 * random.normal(size=(5, 3))[random.integers(5, size=n_rows)] + random.normal(size=(n_rows, 3))
    return (X * [1.0, 5.0, 0.2] + [10.0, 0.0, -3.0]).astype(dtype)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_same_fit(covariance_type: str, prior: str, dtype: type) -> None:
    """With more components than clusters, of which some become empty."""
    X = rows(500, dtype)
    settings: dict[str, Any] = {
        "n_components": 8,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": prior,
        "max_iter": 40,
        "random_state": 0,
    }
    for given in (
        {},
        {"weight_concentration_prior": 1e-3, "init_params": "k-means++"},
        {"weight_concentration_prior": 1e-5, "init_params": "random", "n_init": 2},
        {"init_params": "random_from_data", "reg_covar": 0.0, "max_iter": 1},
        {"max_iter": 0},
    ):
        pair = [kind(**settings | given).fit(X) for kind in (BayesianGaussianMixture, Theirs)]
        assert_same_mixture(*pair, X, 1e-8 if dtype is np.float64 else 1e-3)


def test_same_fit_in_compiled_code_and_with_given_priors() -> None:
    X = rows(6000) + np.array([0.0, 1e4, 0.0])
    settings: dict[str, Any] = {
        "n_components": 12,
        "mean_precision_prior": 0.1,
        "mean_prior": X[0],
        "degrees_of_freedom_prior": 7.5,
        "covariance_prior": np.diag([1.0, 20.0, 0.1]),
        "max_iter": 25,
        "random_state": 0,
    }
    assert_same_mixture(BayesianGaussianMixture(**settings).fit(X), Theirs(**settings).fit(X), X, 1e-7)


def test_far_rows_go_to_a_wide_component_of_almost_no_weight() -> None:
    """A component without rows is two hundred times as wide, and has exp(-1000) of the weight."""
    X = np.random.default_rng(0).normal(size=(200, 1))
    settings: dict[str, Any] = {
        "n_components": 2,
        "weight_concentration_prior_type": "dirichlet_distribution",
        "weight_concentration_prior": 1e-3,
        "covariance_prior": [[1e6]],
        "max_iter": 1000,
        "random_state": 0,
    }
    ours, other = (kind(**settings).fit(X) for kind in (BayesianGaussianMixture, Theirs))
    assert_same_mixture(ours, other, np.array([[0.0], [3000.0], [4000.0]]), 1e-8)
    assert len({*ours.predict([[3000.0], [4000.0]]).tolist()}) == 2


@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_a_warm_start_of_another_shape_is_refused(kind: Any) -> None:
    """With three components and features, tied and diagonal covariances have the same shape."""
    X = rows(100)
    for covariance_type, changed in (
        ("full", {"n_components": 4}),
        ("full", {"covariance_type": "tied"}),
        ("diag", {"covariance_type": "tied"}),
        ("tied", {"covariance_type": "diag"}),
        ("diag", {}),
    ):
        model = kind(n_components=3, covariance_type=covariance_type, warm_start=True, random_state=0).fit(X)
        before, means = dict(vars(model)), model.means_.copy()
        given = X if changed else X[:, :2]
        with pytest.raises(ValueError, match=r"warm_start=True continues.* Set warm_start=False"):
            model.set_params(**changed).fit(given)
        assert_array_equal(model.means_, means)
        assert vars(model) == before | changed
        assert model.set_params(warm_start=False).fit(given).means_.shape[1] == given.shape[1]


def test_warnings_and_refusals() -> None:
    X = rows(100)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model = BayesianGaussianMixture(n_components=3, max_iter=1, random_state=0).fit(X)
    before = dict(vars(model))
    gaps = np.where(np.arange(100)[:, None] == 4, np.nan, X)
    for method in (model.fit, model.predict, model.score_samples):
        with pytest.raises(ValueError, match=r"contains NaN.*GaussianMixture and SharedKernelMixture"):
            method(gaps)
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        model.fit(X[:2])
    with pytest.raises(ValueError, match="Column 'name' of X holds text"):
        model.fit(pd.DataFrame({"name": ["a", "b", "c"], "size": [1.0, 2.0, 3.0]}))
    assert vars(model) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(pd.DataFrame(X, columns=["a", "b", "c"]))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert_array_equal(labels, model.predict(pd.DataFrame(X, columns=["a", "b", "c"])))
    assert not hasattr(model, "_passes")
