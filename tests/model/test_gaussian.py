"""The drop-ins beside scikit-learn's own Gaussian mixtures: the same numbers, warnings and errors."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import brute
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from models import assert_same_mixture
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_brute, as_structure, expected_pass
from sklearn import config_context, mixture
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.fixes import parse_version

import skmix
from skmix import BayesianGaussianMixture, GaussianMixture, load, open_rows

may_not_converge = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)

# Before 1.7 scikit-learn's mixtures had no lower_bounds_, no float32 and other words for an error.
OLDER = parse_version(sklearn.__version__) < parse_version("1.7")
RELATIVE = 1e-8


def overlapping(n_rows: int = 400) -> np.ndarray:
    """Return rows of three clusters that overlap, in three features of different scales."""
    random = np.random.RandomState(0)
    centres = random.normal(scale=2.0, size=(3, 3))
    X = centres[random.randint(3, size=n_rows)] + random.normal(size=(n_rows, 3))
    return X @ np.array([[1.0, 0.3, 0.0], [0.0, 1.0, -0.2], [0.1, 0.0, 1.0]]) * [1.0, 5.0, 0.2] + [
        10.0,
        0.0,
        -3.0,
    ]


def given_start(X: np.ndarray, covariance_type: str) -> dict[str, Any]:
    """Return settings that start fits of three components at the same place."""
    return {
        "n_components": 3,
        "covariance_type": covariance_type,
        "weights_init": [0.2, 0.3, 0.5],
        "means_init": X[:3],
        "precisions_init": as_structure(np.tile(np.diag([0.7, 0.03, 20.0]), (3, 1, 1)), covariance_type),
        "max_iter": 400,
        "random_state": 0,
    }


def both(X: np.ndarray, name: str = "GaussianMixture", **settings: Any) -> list[Any]:
    """Return our mixture and scikit-learn's, fitted to the same rows with the same settings."""
    return [getattr(home, name)(**settings).fit(X) for home in (skmix, mixture)]


# ---------------------------------------------------------------- the same fit


@each_type
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
@pytest.mark.parametrize("n_init", [1, 3])
def test_same_fit_from_the_same_kind_of_start(covariance_type: str, init_params: str, n_init: int) -> None:
    X = load_iris().data
    settings = {
        "n_components": 3,
        "covariance_type": covariance_type,
        "init_params": init_params,
        "n_init": n_init,
        "max_iter": 400,
        "random_state": 1,
    }
    assert_same_mixture(*both(X, **settings), X, RELATIVE)


# ---------------------------------------------------------------- fitting again and again


@each_type
@pytest.mark.parametrize("name", ["GaussianMixture", "BayesianGaussianMixture"])
@may_not_converge
def test_warm_start_goes_on_as_theirs_does(name: str, covariance_type: str) -> None:
    X = overlapping()
    settings = {"covariance_type": covariance_type, "warm_start": True, "max_iter": 2, "tol": 1e-5}
    pair = [getattr(home, name)(n_components=3, random_state=0, **settings) for home in (skmix, mixture)]
    for _ in range(8):
        assert_same_mixture(*(estimator.fit(X) for estimator in pair), X, RELATIVE)
    assert_array_equal(pair[0].fit_predict(X), pair[0].predict(X))


# ---------------------------------------------------------------- weights and missing values


def with_gaps(X: np.ndarray) -> np.ndarray:
    """Return the rows with some values missing, but none of the first feature."""
    lost = np.random.default_rng(1).random(X.shape) < 0.2
    lost[:, 0] = False
    return np.where(lost, np.nan, X)


@each_type
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_are_repetitions(covariance_type: str, dtype: type) -> None:
    X = overlapping().astype(dtype)
    weights = np.random.default_rng(0).integers(0, 4, size=len(X))
    repeated, settings = np.repeat(X, weights, axis=0), given_start(X, covariance_type)
    ours = GaussianMixture(**settings).fit(X, sample_weight=weights)
    # In single precision, scikit-learn's passes are less accurate than ours.
    kind, rtol = (mixture.GaussianMixture, RELATIVE) if dtype is np.float64 else (GaussianMixture, 1e-5)
    other = kind(**settings).fit(repeated)
    assert other.n_iter_ > 5
    assert_same_mixture(ours, other, repeated, rtol=rtol)
    assert ours.score(X, sample_weight=weights) == pytest.approx(other.score(repeated), rel=rtol)
    assert ours.bic(X, sample_weight=weights) == pytest.approx(other.bic(repeated), rel=rtol)
    assert ours.aic(X, sample_weight=weights) == pytest.approx(other.aic(repeated), rel=rtol)


@pytest.mark.parametrize("init_params", ["kmeans", "random", "k-means++", "random_from_data"])
@pytest.mark.parametrize("gaps", [False, True])
def test_rows_of_weight_zero_do_not_count(init_params: str, gaps: bool) -> None:
    X = with_gaps(overlapping()) if gaps else overlapping()
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 2.5], size=len(X))
    X[weights == 0.0] = 1e6
    settings: dict[str, Any] = {
        "n_components": 3,
        "init_params": init_params,
        "random_state": 0,
        "max_iter": 300,
    }
    model = GaussianMixture(**settings)
    labels = model.fit_predict(X, sample_weight=weights)
    assert_array_equal(labels, model.predict(X))
    without = GaussianMixture(**settings).fit(X[weights > 0], sample_weight=weights[weights > 0])
    assert_array_equal(model.means_, without.means_)
    assert model.lower_bound_ == without.lower_bound_
    with pytest.raises(ValueError, match="n_samples >= n_components but got n_components = 3, n_samples = 2"):
        model.fit(X, sample_weight=np.arange(len(X)) < 2)


@pytest.mark.parametrize("init_params", ["kmeans", "random", "k-means++", "random_from_data"])
def test_only_the_proportions_of_weights_matter(init_params: str) -> None:
    """Equal weights are no weights."""
    X, settings = overlapping(60), {"init_params": init_params, "random_state": 0, "max_iter": 900}
    mixed = np.random.default_rng(0).uniform(0.5, 3.0, size=60)
    for weights, others in ((None, np.ones(60)), (mixed, mixed)):
        expected = GaussianMixture(2, **settings).fit(X, sample_weight=weights)
        for scale in (1.0, 1e-20, np.exp(-60.0), 1e-200, 1e200):
            found = GaussianMixture(2, **settings).fit(X, sample_weight=scale * others)
            assert_allclose(found.means_, expected.means_, rtol=1e-9 if weights is mixed else 0.0)
            assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-9)


@each_type
def test_starts_use_the_weights(covariance_type: str) -> None:
    """Two clusters, of which one has nearly all the weight but few of the rows."""
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(size=(300, 2)), random.normal(size=(20, 2)) + 50.0])
    weights = np.repeat([1.0, 1e4], [300, 20])
    for init_params in ("kmeans", "random"):
        model = GaussianMixture(
            2, covariance_type=covariance_type, init_params=init_params, max_iter=0, random_state=0
        ).fit(X, sample_weight=weights)
        centre = np.average(X, axis=0, weights=weights)
        assert_allclose(model.weights_ @ model.means_, centre, rtol=1e-9)


@each_type
@pytest.mark.parametrize("weighted", [False, True])
def test_gaps_follow_brute_force(covariance_type: str, weighted: bool) -> None:
    X = with_gaps(overlapping(120))
    weights = np.random.default_rng(0).uniform(0.5, 3.0, size=len(X)) if weighted else None
    settings = given_start(overlapping(), covariance_type) | {"reg_covar": 0.0, "max_iter": 3, "tol": 0.0}
    with pytest.warns(ConvergenceWarning):
        model = GaussianMixture(**settings).fit(X, sample_weight=weights)
    expected = GaussianMixture(**settings | {"max_iter": 0}).fit(X)._current()
    bounds, total = [], len(X) if weights is None else weights.sum()
    for _ in range(3):
        expected, reached = expected_pass(X, np.zeros(len(X), dtype=int), expected, covariance_type, weights)
        bounds.append(reached / total)
    assert_allclose(model.weights_, expected.weights[:, 0], rtol=1e-8)
    assert_allclose(model.means_, expected.means, rtol=1e-8)
    scale = np.abs(expected.covariances).max()
    assert_allclose(model.covariances_, expected.covariances, rtol=1e-8, atol=1e-8 * scale)
    assert_allclose(model.lower_bounds_, bounds, rtol=1e-9)
    # Scores of rows with gaps are those of the observed values.
    new = with_gaps(overlapping(50) + 0.3)
    new[0] = np.nan
    oracle = as_brute(expected, covariance_type)
    joint = brute.log_densities(new, oracle) + np.log(oracle.weights[:, 0])
    scores = np.logaddexp.reduce(joint, axis=1)
    assert_allclose(model.score_samples(new), scores, rtol=1e-7, atol=1e-7)
    assert_allclose(model.predict_proba(new), np.exp(joint - scores[:, None]), rtol=1e-6, atol=1e-9)
    assert_array_equal(model.predict(new), joint.argmax(axis=1))
    assert np.isfinite(model.sample(20)[0]).all()


@pytest.mark.parametrize("init_params", ["kmeans", "random", "k-means++", "random_from_data"])
def test_fits_with_gaps_find_the_clusters(init_params: str) -> None:
    random = np.random.default_rng(0)
    centres = 12.0 * np.eye(3)
    own = random.integers(3, size=600)
    X = with_gaps(centres[own] + random.normal(size=(600, 3)))
    model = GaussianMixture(3, init_params=init_params, n_init=5, max_iter=500, random_state=0).fit(X)
    order = np.argmax(model.means_, axis=0)
    assert_allclose(model.means_[order], centres, atol=0.5)
    assert (order[own] == model.predict(X)).mean() > 0.95
    assert model.__sklearn_tags__().input_tags.allow_nan


REFUSED: dict[str, tuple[Any, str]] = {
    "infinite": ([1.0, 2.0, np.inf, 4.0], "Column 'length' of X is infinite in row 2"),
    "text": (list("abca"), "Column 'length' of X holds text: could not convert.*SharedKernelMixture encodes"),
    "dates": (pd.to_datetime(["2020-01-01"] * 4).to_numpy(), "Column 'length' of X holds dates"),
    # One row of text has one value.
    "constant": (["a"] * 4, "Column 'length' of X holds text"),
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kind", REFUSED)
def test_columns_that_are_no_numbers_are_named(make: Any, kind: str) -> None:
    column, message = REFUSED[kind]
    content = {"length": column, "width": [0.0, 1.0, 3.0, None]}
    with pytest.raises(ValueError, match=message):
        GaussianMixture().fit(make(content))
    model = GaussianMixture().fit(make({name: [1.0, 2.0, 4.0, 8.0] for name in content}))
    assert model.feature_names_in_.tolist() == ["length", "width"]
    with pytest.raises(ValueError, match=message):
        model.predict(make(content))


def test_files_and_names_of_columns_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"length": [1.0, 2.0, 4.0], "label": [0, 1, 1]})
    frame.to_csv(tmp_path / "x.csv")
    fitted, other = GaussianMixture().fit(frame), BayesianGaussianMixture()
    refused: dict[str, Any] = {
        "X is <3 rows.*SharedKernelMixture": (fitted.fit, open_rows(frame)),
        r"X is '.*x.csv'\. .*SharedKernelMixture": (fitted.predict, str(tmp_path / "x.csv")),
        r"X is \['x.csv', 'x.csv'\]": (fitted.fit, ["x.csv", "x.csv"]),
        r'needs rows in memory, .*SharedKernelMixture\(inference="variational"\)': (
            other.fit,
            Path("no.csv"),
        ),
        r"has no labels, but y is 'label'\. Drop .* SharedKernelMixture": (fitted.fit, frame, "label"),
        "has no labels, but y is 'path'": (fitted.score, frame, Path("path")),
        "as an array, but sample_weight is 'label'.*SharedKernelMixture": (fitted.bic, frame, None, "label"),
        "takes no sample_weight. Use GaussianMixture, or use Shared": (other.fit, frame, None, np.ones(3)),
    }
    for message, (call, *given) in refused.items():
        with pytest.raises(ValueError, match=message):
            call(*given)
    for call in (other.fit, other.fit_predict):
        with pytest.raises(ValueError, match="BayesianGaussianMixture takes no sample_weight"):
            call(frame, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="2 columns of X have the name 'length'"):
        GaussianMixture().fit(frame[["length", "length"]])


def test_gaps_of_frames_and_masks_are_missing_values() -> None:
    X = with_gaps(overlapping(60))
    settings = given_start(overlapping(), "full")
    expected = GaussianMixture(**settings).fit(X)
    for rows in (pd.DataFrame(X), pd.DataFrame(X).convert_dtypes(), np.ma.masked_invalid(X)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            assert_array_equal(GaussianMixture(**settings).fit(rows).means_, expected.means_)
    for rows, message in (
        (np.where(np.arange(60)[:, None] == 4, np.nan, X), "Row 4 of X has no value"),
        (np.where([True, False, False], np.nan, X), "Feature 0 of X has no value"),
    ):
        with pytest.raises(ValueError, match=message):
            GaussianMixture().fit(rows)


@pytest.mark.skipif(OLDER, reason="scikit-learn's mixtures had no such support")
def test_array_api_dispatch_refuses_weights_and_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X = overlapping(60)
    model = GaussianMixture(init_params="random", random_state=0).fit(X)
    with config_context(array_api_dispatch=True):
        assert_allclose(clone(model).fit(X, sample_weight=None).means_, model.means_)
        for method in (model.fit, model.score, model.bic):
            with pytest.raises(ValueError, match="sample_weight cannot be combined with array_api_dispatch"):
                method(X, sample_weight=np.ones(60))
        for method in (model.fit, model.predict):
            with pytest.raises(ValueError, match="contains NaN, which cannot be combined with array_api"):
                method(with_gaps(X))


# ---------------------------------------------------------------- warnings, errors and words


@pytest.mark.parametrize(("seed", "n_components"), [(45, 6), (5, 6), (7, 4), (3, 6)])
def test_starts_that_become_singular_are_left_out(seed: int, n_components: int) -> None:
    """In scikit-learn they end the fit: here it fits one start after the other. Some fail before a pass."""
    X, state = np.random.default_rng(seed).normal(size=(30, 2)).round(1), np.random.RandomState(0)
    settings: dict[str, Any] = {"n_components": n_components, "reg_covar": 0.0, "max_iter": 300}
    bounds = np.full(5, -np.inf)
    for number in range(5):
        with suppress(ValueError):
            bounds[number] = mixture.GaussianMixture(**settings, random_state=state).fit(X).lower_bound_
    for n_init in (1, 5):
        ours, best = GaussianMixture(**settings, n_init=n_init, random_state=0), bounds[:n_init].max()
        if np.isfinite(best):
            assert ours.fit(X).lower_bound_ == pytest.approx(best, rel=1e-6)
            continue
        with pytest.raises(ValueError, match="ill-defined"):
            ours.fit(X)


@each_type
@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_a_constant_feature_needs_regularisation(kind: Any, covariance_type: str) -> None:
    """The mean of 0.1 in all rows is not quite 0.1."""
    settings: dict[str, Any] = {"covariance_type": covariance_type, "random_state": 0, "max_iter": 900}
    X, gaps = overlapping(60), with_gaps(overlapping(60))
    gaps[1:, 1] = np.nan
    model = kind(n_components=2, reg_covar=0.0, **settings)
    for value in (7.0, 0.1, 1.0 / 3.0, 1000.1):
        X[:, 1] = value
        for rows in (X, gaps) if kind is GaussianMixture else (X,):
            if covariance_type == "spherical":
                model.fit(rows)
                rows = np.full((60, 3), value)
            with pytest.raises(ValueError, match=r"ill-defined.* Feature [01] has no value other than"):
                model.fit(rows)
    if kind is BayesianGaussianMixture and covariance_type == "full":
        given = settings | {"n_components": 2, "reg_covar": 0.0, "covariance_prior": np.eye(3)}
        assert_same_mixture(*both(X, "BayesianGaussianMixture", **given), X, RELATIVE)


@each_type
def test_components_without_rows_and_far_rows(covariance_type: str) -> None:
    """No warning, which is an error here, and probabilities that sum to one."""
    X = np.tile([[0.0, 0.0], [1.0, 1.0]], (20, 1))
    far = [[1e6, 1e6], [1e30, -1e30], [1e300, 1e300], [-1e300, 0.0]]
    for dtype in (np.float64, np.float32):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = GaussianMixture(5, covariance_type=covariance_type, random_state=0).fit(X.astype(dtype))
        assert model.weights_.min() < 1e-6
        for rows in (X, np.array(far), np.array(far[:2], dtype=np.float32)):
            assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0, rtol=1e-6)
            assert np.isfinite(model.score_samples(rows)).all()


def test_single_precision_that_overflows_is_refused() -> None:
    X = overlapping(50)
    with pytest.raises(ValueError, match="squares overflow float32"):
        GaussianMixture(2).fit((1e25 * X).astype(np.float32))
    with pytest.raises(ValueError, match="out of the range of float32"):
        GaussianMixture(2, reg_covar=0.0).fit((1e-22 * X).astype(np.float32))
    model = GaussianMixture(2, random_state=0).fit((1e15 * X).astype(np.float32))
    assert np.isfinite(model.covariances_).all()
    assert np.isfinite(model.precisions_).all()


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_covariances_rounded_to_single_precision_stay_positive_definite(
    covariance_type: str, tmp_path: Path
) -> None:
    X = overlapping(100)
    X[:, 1] = X[:, 0] + 1e-5 * X[:, 2]
    model = GaussianMixture(2, covariance_type=covariance_type, reg_covar=1e-12, random_state=0)
    model.fit(X.astype(np.float32))
    assert model.covariances_.dtype == np.float32
    matrices = model.covariances_.reshape(-1, 3, 3).astype(np.float64)
    assert np.linalg.eigvalsh(matrices).min() > 0.0
    assert np.isfinite(model.sample(3)[0]).all()
    model.save(tmp_path / "model.skmix")
    assert_array_equal(load(tmp_path / "model.skmix").predict(X), model.predict(X))


# ---------------------------------------------------------------- variational mixtures


def five_clusters(n_rows: int, dtype: type = np.float64) -> np.ndarray:
    """Return rows of five clusters that overlap."""
    random = np.random.default_rng(0)
    X = 2.0 * random.normal(size=(5, 3))[random.integers(5, size=n_rows)] + random.normal(size=(n_rows, 3))
    return (X * [1.0, 5.0, 0.2] + [10.0, 0.0, -3.0]).astype(dtype)


@each_type
@pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@may_not_converge
def test_same_variational_fit(covariance_type: str, prior: str, dtype: type) -> None:
    """With more components than clusters, of which some become empty."""
    X = five_clusters(500, dtype)
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
        pair = both(X, "BayesianGaussianMixture", **settings | given)
        assert_same_mixture(*pair, X, RELATIVE if dtype is np.float64 else 1e-3)


@may_not_converge
def test_same_variational_fit_in_compiled_code_and_with_given_priors() -> None:
    X = five_clusters(6000) + np.array([0.0, 1e4, 0.0])
    settings: dict[str, Any] = {
        "n_components": 12,
        "mean_precision_prior": 0.1,
        "mean_prior": X[0],
        "degrees_of_freedom_prior": 7.5,
        "covariance_prior": np.diag([1.0, 20.0, 0.1]),
        "max_iter": 25,
        "random_state": 0,
    }
    assert_same_mixture(*both(X, "BayesianGaussianMixture", **settings), X, 1e-7)


@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_a_warm_start_of_another_shape_is_refused(kind: Any) -> None:
    """With three components and features, tied and diagonal covariances have the same shape."""
    X = five_clusters(100)
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


def test_warnings_and_refusals_of_variational_fits() -> None:
    X = five_clusters(100)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model = BayesianGaussianMixture(n_components=3, max_iter=1, random_state=0).fit(X)
    before = dict(vars(model))
    gaps = np.where(np.arange(100)[:, None] == 4, np.nan, X)
    for method in (model.fit, model.predict, model.score_samples):
        with pytest.raises(ValueError, match=r"contains NaN.*GaussianMixture and SharedKernelMixture"):
            method(gaps)
    assert vars(model) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(pd.DataFrame(X, columns=["a", "b", "c"]))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert_array_equal(labels, model.predict(pd.DataFrame(X, columns=["a", "b", "c"])))
    assert not hasattr(model, "_passes")
