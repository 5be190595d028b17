"""The estimators among their neighbours: data frames, scikit-learn's meta-estimators, metadata routing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn import clone, config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture

NAMES = ["length", "width", "mass"]


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cat"], 40)
    centres = np.repeat(np.arange(3.0), 40)[:, None] * 2.5
    order = rng.permutation(120)
    return (rng.normal(size=(120, 3)) + centres)[order], y[order]


X, Y = make_rows()
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


def pandas_frame(X: np.ndarray, names: list[str] = NAMES) -> Any:
    # Another index than 0, 1, 2…: rows must be taken by position.
    return pd.DataFrame(X, columns=names, index=np.arange(len(X))[::-1] * 3)


def polars_frame(X: np.ndarray, names: list[str] = NAMES) -> Any:
    return pl.DataFrame(X, schema=names)


FRAMES = {"pandas": pandas_frame, "polars": polars_frame}
SERIES = {
    "pandas": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "polars": lambda y: pl.Series("y", y),
}
ESTIMATORS = [
    SharedKernelClassifier(random_state=0),
    SharedKernelClassifier(feature_sets=[[0, 2], [1]], random_state=0),
    SharedKernelMixture(random_state=0),
    GaussianMixture(3, random_state=0),
]
METHODS = (
    "predict",
    "predict_proba",
    "class_log_likelihood",
    "score_samples",
    "responsibilities",
    "transform",
)


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    """Frames keep columns together, arrays rows: sums run in another order, and round otherwise."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def routing() -> Any:
    with config_context(enable_metadata_routing=True):
        yield


# ---------------------------------------------------------------- data frames


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_frames_give_what_arrays_give_and_their_names_are_kept(estimator: Any, library: str) -> None:
    frame, labels = FRAMES[library](X), SERIES[library](Y)
    expected = clone(estimator).fit(X, Y)
    model = clone(estimator).fit(frame, labels)
    assert model.feature_names_in_.tolist() == NAMES
    for method in METHODS:
        if hasattr(model, method):
            agree(getattr(model, method)(frame), getattr(expected, method)(X))
    with pytest.raises(ValueError, match="feature names"):
        model.score_samples(FRAMES[library](X, [*NAMES[:2], "weight"]))
    with pytest.warns(UserWarning, match="valid feature names"):
        model.score_samples(X)


@pytest.mark.parametrize("library", FRAMES)
def test_columns_in_another_order_are_refused(library: str) -> None:
    model = SharedKernelClassifier(random_state=0).fit(FRAMES[library](X), Y)
    with pytest.raises(ValueError, match="order"):
        model.predict(FRAMES[library](X[:, ::-1], NAMES[::-1]))


@pytest.mark.parametrize("library", FRAMES)
def test_feature_sets_by_name(library: str) -> None:
    frame = FRAMES[library](X)
    named = SharedKernelClassifier(feature_sets=[["mass", "length"], ["width"]], random_state=0).fit(frame, Y)
    assert named.feature_sets_ == [[2, 0], [1]]
    numbered = SharedKernelClassifier(feature_sets=[[2, 0], [1]], random_state=0).fit(X, Y)
    agree(named.predict_proba(frame), numbered.predict_proba(X))


@pytest.mark.parametrize("library", FRAMES)
def test_weights_and_gaps_of_frames(library: str) -> None:
    """A frame's missing entries are NaN to the estimators, and null is missing too."""
    gaps = X.copy()
    gaps[::7, 1] = np.nan
    frame: Any = (
        pandas_frame(gaps).astype("Float64") if library == "pandas" else polars_frame(gaps).fill_nan(None)
    )
    model = SharedKernelClassifier(random_state=0).fit(frame, SERIES[library](Y), SERIES[library](WEIGHTS))
    expected = SharedKernelClassifier(random_state=0).fit(gaps, Y, WEIGHTS)
    agree(model.predict_proba(frame), expected.predict_proba(gaps))


def test_labels_of_pandas_categories_come_back_as_labels() -> None:
    model = SharedKernelClassifier(random_state=0).fit(X, pd.Series(Y, dtype="category"))
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert np.mean(model.predict(X) == Y) > 0.9


# ---------------------------------------------------------------- set_output


@pytest.mark.parametrize("library", FRAMES)
def test_transformed_rows_are_frames_when_asked_for(library: str) -> None:
    model = SharedKernelMixture(2, random_state=0).set_output(transform=library)
    frame = FRAMES[library](X)
    given = frame.copy() if library == "pandas" else frame.clone()
    out = model.fit(frame, Y).transform(frame)
    assert type(out) is type(frame)
    assert list(out.columns) == ["sharedkernelmixture0", "sharedkernelmixture1"]
    assert list(out.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), model.responsibilities(frame))
    if library == "pandas":
        assert out.index.tolist() == frame.index.tolist()
    assert frame.equals(given)


def test_transformed_frames_stand_beside_other_columns() -> None:
    frame = pandas_frame(X)
    beside = make_union(SharedKernelMixture(2, random_state=0), StandardScaler()).set_output(
        transform="pandas"
    )
    assert list(beside.fit_transform(frame, Y).columns)[:3] == [
        "sharedkernelmixture__sharedkernelmixture0",
        "sharedkernelmixture__sharedkernelmixture1",
        "standardscaler__length",
    ]
    some = make_column_transformer(
        (SharedKernelMixture(2, random_state=0), ["mass", "length"]), ("passthrough", ["width"])
    )
    assert some.set_output(transform="pandas").fit_transform(frame, Y).shape == (120, 3)


# ---------------------------------------------------------------- meta-estimators


def test_a_pipeline_is_the_steps_by_hand() -> None:
    scaled = StandardScaler().fit_transform(X)
    by_hand = SharedKernelClassifier(random_state=0).fit(scaled, Y)
    pipeline = make_pipeline(StandardScaler(), SharedKernelClassifier(random_state=0)).fit(X, Y)
    np.testing.assert_array_equal(pipeline.predict_proba(X), by_hand.predict_proba(scaled))
    np.testing.assert_array_equal(pipeline.score_samples(X), by_hand.score_samples(scaled))
    assert pipeline.score(X, Y) == by_hand.score(scaled, Y)
    features = make_pipeline(SharedKernelMixture(4, random_state=0), LogisticRegression()).fit(X, Y)
    assert features.score(X, Y) > 0.9


@pytest.mark.parametrize("scoring", [None, "accuracy", "neg_log_loss", "roc_auc_ovr"])
def test_a_grid_is_searched_and_the_best_refitted(scoring: str | None) -> None:
    grid = {"n_kernels": [1, 3], "covariance_type": ["full", "diag"], "feature_sets": [None, [[0], [1, 2]]]}
    search = GridSearchCV(SharedKernelClassifier(random_state=0), grid, cv=3, scoring=scoring).fit(X, Y)
    assert len(search.cv_results_["params"]) == 8
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["n_kernels"] == 3
    again = clone(search.best_estimator_).fit(X, Y)
    np.testing.assert_array_equal(search.predict(X), again.predict(X))


def test_a_density_is_searched_by_its_own_score() -> None:
    search = GridSearchCV(
        SharedKernelMixture(covariance_type="spherical", random_state=0), {"n_kernels": [1, 3]}, cv=3
    ).fit(X)
    assert search.best_params_ == {"n_kernels": 3}
    drop_in = GridSearchCV(
        GaussianMixture(covariance_type="spherical", random_state=0), {"n_components": [1, 3]}, cv=3
    ).fit(X)
    assert drop_in.best_params_ == {"n_components": 3}


def test_processes_give_what_one_process_gives() -> None:
    """n_jobs of scikit-learn: estimators travel to other processes and back."""
    pipeline = make_pipeline(StandardScaler(), SharedKernelClassifier(3, n_jobs=2, random_state=0))
    results = [cross_validate(pipeline, X, Y, cv=3, n_jobs=n, return_estimator=True) for n in (1, 2)]
    np.testing.assert_array_equal(results[0]["test_score"], results[1]["test_score"])
    for one, other in zip(results[0]["estimator"], results[1]["estimator"], strict=True):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba"])
def test_predictions_of_held_out_rows(method: str) -> None:
    model = SharedKernelClassifier(random_state=0)
    out = cross_val_predict(
        model,
        X,
        Y,
        cv=[(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))],
        method=method,
    )
    first = clone(model).fit(X[:60], Y[:60])
    np.testing.assert_array_equal(out[60:], getattr(first, method)(X[60:]))


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
@pytest.mark.parametrize("ensemble", [True, False])
def test_calibration(method: str, ensemble: bool) -> None:
    if method == "temperature" and parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("scikit-learn before 1.8 has no temperature scaling")
    model = SharedKernelClassifier(random_state=0)
    calibrated = CalibratedClassifierCV(model, method=method, cv=3, ensemble=ensemble)
    calibrated.fit(X, Y, sample_weight=WEIGHTS)
    probabilities = calibrated.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert calibrated.classes_.tolist() == ["ant", "bee", "cat"]
    assert calibrated.score(X, Y) > 0.9


def test_scorers_see_a_classifier() -> None:
    model = SharedKernelClassifier(random_state=0).fit(X, Y)
    assert get_scorer("accuracy")(model, X, Y) == model.score(X, Y) > 0.9
    assert get_scorer("neg_log_loss")(model, X, Y) > -0.5


# ---------------------------------------------------------------- metadata routing


def weighted(estimator: Any) -> Any:
    return clone(estimator).set_fit_request(sample_weight=True)


def test_weights_reach_the_last_step_of_a_pipeline(routing: Any) -> None:
    by_hand = SharedKernelClassifier(random_state=0).fit(X, Y, WEIGHTS)
    pipeline = make_pipeline(
        StandardScaler(with_mean=False, with_std=False).set_fit_request(sample_weight=False),
        weighted(SharedKernelClassifier(random_state=0)),
    ).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(pipeline.predict_proba(X), by_hand.predict_proba(X))
    unweighted = SharedKernelClassifier(random_state=0).fit(X, Y)
    assert np.abs(pipeline.predict_proba(X) - unweighted.predict_proba(X)).max() > 1e-3


def test_weights_reach_the_density_in_a_pipeline(routing: Any) -> None:
    pipeline = make_pipeline(
        weighted(SharedKernelMixture(3, random_state=0)),
        LogisticRegression().set_fit_request(sample_weight=False),
    ).fit(X, Y, sample_weight=WEIGHTS)
    assert not np.array_equal(pipeline[0].means_, SharedKernelMixture(3, random_state=0).fit(X, Y).means_)
    np.testing.assert_array_equal(
        pipeline[0].means_, SharedKernelMixture(3, random_state=0).fit(X, Y, WEIGHTS).means_
    )


def test_weights_reach_every_fit_and_score_of_a_search(routing: Any) -> None:
    model = weighted(SharedKernelClassifier(random_state=0)).set_score_request(sample_weight=True)
    folds = [(np.arange(60), np.arange(60, 120))]
    search = GridSearchCV(model, {"n_kernels": [3, 4]}, cv=folds).fit(X, Y, sample_weight=WEIGHTS)
    for n_kernels, found in zip([3, 4], search.cv_results_["split0_test_score"], strict=True):
        by_hand = SharedKernelClassifier(n_kernels, random_state=0).fit(X[:60], Y[:60], WEIGHTS[:60])
        assert found == by_hand.score(X[60:], Y[60:], WEIGHTS[60:])
    best = clone(search.best_estimator_).fit(X, Y, WEIGHTS)
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))


def test_weights_under_another_name(routing: Any) -> None:
    model = SharedKernelClassifier(random_state=0).set_fit_request(sample_weight="trust")
    model.set_score_request(sample_weight=False)
    found = cross_val_score(model, X, Y, cv=[(np.arange(60), np.arange(60, 120))], params={"trust": WEIGHTS})
    by_hand = SharedKernelClassifier(random_state=0).fit(X[:60], Y[:60], WEIGHTS[:60])
    assert found[0] == by_hand.score(X[60:], Y[60:])


def test_weights_nobody_asked_for_are_an_error(routing: Any) -> None:
    search = GridSearchCV(SharedKernelClassifier(random_state=0), {"n_kernels": [3]}, cv=3)
    with pytest.raises(ValueError, match="sample_weight"):
        search.fit(X, Y, sample_weight=WEIGHTS)


def test_weights_reach_a_calibrated_classifier(routing: Any) -> None:
    folds = [(np.arange(60), np.arange(60, 120))]
    calibrated = CalibratedClassifierCV(weighted(SharedKernelClassifier(random_state=0)), cv=folds)
    calibrated.fit(X, Y, sample_weight=WEIGHTS)
    by_hand = SharedKernelClassifier(random_state=0).fit(X[:60], Y[:60], WEIGHTS[:60])
    inside = calibrated.calibrated_classifiers_[0].estimator
    np.testing.assert_array_equal(inside.predict_proba(X), by_hand.predict_proba(X))
