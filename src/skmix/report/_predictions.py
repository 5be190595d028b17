"""Predictions of a fitted model as named columns, for the command line and for pages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from ..model.decisions import novelty_scores, with_outliers
from ..plots._models import chosen_model
from .explanation import reasons


def outlier_threshold(model: Any) -> float:
    """Return the log-density below which a row is an outlier; minus infinity if the model has none."""
    return float(getattr(_model_with_threshold(model), "threshold_", -np.inf))


def n_blurred(model: Any) -> int:
    """Return the number of features with rare values, in which kernels are widened for the threshold."""
    blur = getattr(_model_with_threshold(model), "outlier_blur_", None)
    return 0 if blur is None else len(blur)


def _model_with_threshold(model: Any) -> Any:
    return model if "threshold_" in vars(model) else _deciding_model(model)


def refuses(model: Any) -> bool:
    """Return whether `predict` of a model returns a label of its own for outliers."""
    return getattr(_deciding_model(model), "outlier_label", None) is not None


def _deciding_model(model: Any) -> Any:
    """Return the model that decides on the labels: the one chosen by a search, the last of a pipeline."""
    inner = chosen_model(model)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return model if inner is model else _deciding_model(inner)


def outliers(model: Any, X: Any) -> NDArray[np.bool_]:
    """Return which rows are outliers: those that `predict` marks, given an `outlier_label`.

    Parameters
    ----------
    model : estimator
        A classifier or its search, fitted with `reject_below`, or any model of `skmix fit`. A model without a
        threshold has no outliers.
    X : array-like of shape (n, M)
        Rows of any kind that `predict` takes.

    Returns
    -------
    ndarray of shape (n,)
        True for rows below the `threshold_` of the model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.report import outliers
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SharedKernelClassifier(3, reject_below=0.01, random_state=0).fit(X, y)
    >>> outliers(model, [X[0], 10 * X[0]])
    array([False,  True])
    """
    return np.asarray(novelty_scores(model, X) < outlier_threshold(model))


def predict_columns(
    model: Any,
    X: NDArray[np.float64],
    populations: Any = None,
    *,
    posteriors: NDArray[np.float64] | None = None,
    why: bool = False,
) -> dict[str, NDArray[Any]]:
    """Return predictions for rows (n, M) as named columns (n,).

    For a classifier, these are ``label``, what `predict` returns, and ``p_…``, the posterior probability of
    each class; for a mixture ``kernel`` and ``p_0`` …, the posterior probability of each kernel; with its
    `populations`, instead ``population`` and ``p_…`` by their names; `posteriors` (n, G) replace those that
    the model finds. Then ``log_density``, log p(x), and
    ``outlier``, 1 if the row is below the model's threshold, else 0; and if asked `why`, `Reasons.in_words`.
    """
    densities = model.score_samples(X)
    if posteriors is None:
        posteriors = model.predict_proba(X)
    likeliest, names = posteriors.argmax(axis=1), range(posteriors.shape[1])
    columns: dict[str, NDArray[Any]] = {"kernel": likeliest}
    if is_classifier(model):
        columns, names = {"label": model.classes_[likeliest]}, model.classes_.tolist()
    elif populations is not None:
        names = populations.display_names
        columns = {"population": np.array(names)[likeliest]}
    columns.update({f"p_{name}": each for name, each in zip(names, posteriors.T, strict=True)})
    columns["log_density"] = densities
    if refuses(model):
        columns["label"] = with_outliers(columns["label"], novelty_scores(model, X), chosen_model(model))
    columns["outlier"] = outliers(model, X).astype(np.int8)
    if why:
        columns |= reasons(model, X).in_words()
    return columns
