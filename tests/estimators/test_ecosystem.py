"""The estimators among their neighbours: data frames, scikit-learn's meta-estimators, metadata routing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import clone, config_context
from sklearn.model_selection import GridSearchCV

from skmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelMixture,
    SharedKernelMixtureCV,
)

NAMES = ["length", "width", "mass"]


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cat"], 40)
    centres = np.repeat(np.arange(3.0), 40)[:, None] * 2.5
    order = rng.permutation(120)
    return (rng.normal(size=(120, 3)) + centres)[order], y[order]


X, Y = make_rows()
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


# Another index than 0, 1, 2…: rows must be taken by position.
FRAMES: dict[str, Any] = {
    "pandas": lambda X, names: pd.DataFrame(X, columns=names, index=np.arange(len(X))[::-1] * 3),
    "polars": lambda X, names: pl.DataFrame(X, schema=names),
}
SERIES = {
    "pandas": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "polars": lambda y: pl.Series("y", y),
}
ESTIMATORS = [
    SharedKernelClassifier(random_state=0),
    SharedKernelClassifier(feature_sets=[[0, 2], [1]], random_state=0),
    SharedKernelMixture(random_state=0),
    GaussianMixture(3, random_state=0),
    BayesianGaussianMixture(n_components=3, random_state=0),
]
METHODS = ("predict", "predict_proba", "class_log_likelihood", "score_samples", "transform")


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    """Frames keep columns together, arrays rows: sums run in another order, and round otherwise."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_frames_give_what_arrays_give_and_their_names_are_kept(estimator: Any, library: str) -> None:
    frame, labels = FRAMES[library](X, NAMES), SERIES[library](Y)
    expected = clone(estimator).fit(X, Y)
    model = clone(estimator).fit(frame, labels)
    assert model.feature_names_in_.tolist() == NAMES
    for method in METHODS:
        if hasattr(model, method):
            agree(getattr(model, method)(frame), getattr(expected, method)(X))
    for rows, names in ((X, [*NAMES[:2], "weight"]), (X[:, ::-1], NAMES[::-1])):
        with pytest.raises(ValueError, match="feature names"):
            model.score_samples(FRAMES[library](rows, names))
    with pytest.warns(UserWarning, match="valid feature names"):
        model.score_samples(X)


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("kind", [SharedKernelMixture, SharedKernelMixtureCV])
def test_transformed_rows_are_frames_when_asked_for(kind: type, library: str) -> None:
    model = kind(n_kernels=2, covariance_type="full", random_state=0).set_output(transform=library)
    frame = FRAMES[library](X, NAMES)
    given = frame.copy() if library == "pandas" else frame.clone()
    out = model.fit(frame, Y).transform(frame)
    assert type(out) is type(frame)
    assert list(out.columns) == [f"{kind.__name__.lower()}{k}" for k in range(2)]
    assert list(out.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), model.predict_proba(frame))
    if library == "pandas":
        assert out.index.tolist() == frame.index.tolist()
    assert frame.equals(given)


def test_weights_reach_every_fit_and_score_of_a_search() -> None:
    folds = [(np.arange(60), np.arange(60, 120))]
    with config_context(enable_metadata_routing=True):
        model = SharedKernelClassifier(random_state=0).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"n_kernels": [3, 4]}, cv=folds).fit(X, Y, sample_weight=WEIGHTS)
    for n_kernels, found in zip([3, 4], search.cv_results_["split0_test_score"], strict=True):
        by_hand = SharedKernelClassifier(n_kernels, random_state=0).fit(X[:60], Y[:60], WEIGHTS[:60])
        assert found == by_hand.score(X[60:], Y[60:], WEIGHTS[60:])
    best = clone(search.best_estimator_).fit(X, Y, WEIGHTS)
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))
