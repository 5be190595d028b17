"""Predictions of fitted models as named columns, and the rows that are outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier

from ..engine.rows.blocks import Block
from ..model.bags import number_bags
from ..model.crossfit import set_threshold
from ..model.decisions import novelty_scores, with_outliers
from ..model.kernel_sets import chosen_model
from ..model.rows import enter

# ---------------------------------------------------------------- outliers


def outlier_threshold(model: Any) -> float:
    """The log-density below which a row is an outlier; minus infinity if the model has none."""
    return float(getattr(_model_with_threshold(model), "threshold_", -np.inf))


def n_blurred(model: Any) -> int:
    """Number of features with rare values, in which kernels are widened for the threshold."""
    blur = getattr(_model_with_threshold(model), "outlier_blur_", None)
    return 0 if blur is None else len(blur)


def refuses(model: Any) -> bool:
    """Whether `predict` of a model returns a label of its own for outliers."""
    return getattr(_deciding_model(model), "outlier_label", None) is not None


def _model_with_threshold(model: Any) -> Any:
    return model if "threshold_" in vars(model) else _deciding_model(model)


def _deciding_model(model: Any) -> Any:
    """The model that decides on the labels: the one chosen by a search, the last of a pipeline."""
    inner = chosen_model(model)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return model if inner is model else _deciding_model(inner)


def outliers(model: Any, X: Any) -> NDArray[np.bool_]:
    """Return which rows are outliers: those that `predict` marks, given an `outlier_label`.

    Parameters
    ----------
    model : estimator
        A classifier or its search, fitted with `reject_below`, or a model given to `mark_outliers`. A model
        without a threshold has no outliers.
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


def mark_outliers(model: Any, X: Any, share: float, sample_weight: ArrayLike | None = None) -> None:
    """Set the `threshold_` of a mixture for `outliers`, as `reject_below` does for a classifier.

    Parameters
    ----------
    model : SharedKernelMixture or SharedKernelMixtureCV
        A fitted mixture.
    X : array-like of shape (n, M)
        The rows that it was fitted to; files are read whole.
    share : float
        Share of new rows that are to be outliers, as held-out rows tell.
    sample_weight : array-like of shape (n,), default=None
        The weights of the fit.
    """
    rows = enter(model, X, None, sample_weight).in_memory()
    values = rows.values(on_cpu=True)
    set_threshold(model, share, Block(values, None, rows.weights(len(values))))


# ---------------------------------------------------------------- predictions


def predictions(
    model: Any,
    X: Any,
    *,
    posteriors: NDArray[np.float64] | None = None,
    populations: Any = None,
    why: bool = False,
) -> dict[str, NDArray[Any]]:
    """Return what a fitted model says of each row, as the columns of a table.

    ``skmix predict`` writes these columns.

    Parameters
    ----------
    model : estimator
        A fitted classifier, mixture or search.
    X : array-like of shape (n, M)
        Rows of any kind that `predict` takes; files are read whole.
    posteriors : ndarray of shape (n, G), default=None
        Probabilities of G populations, to write in place of those of the kernels.
    populations : sequence of G names, default=None
        Names of these populations.
    why : bool, default=False
        Whether to add the columns of `Reasons.in_words`.

    Returns
    -------
    dict of ndarray of shape (n,)
        For a classifier, ``label``, which `predict` returns, and ``p_…``, the probability of each class; for
        a mixture, ``kernel`` and ``p_0`` …, or ``population`` and ``p_…``. Then ``log_density``, log p(x),
        and ``outlier``, 1 for the rows that `outliers` finds.
    """
    rows = enter(model, X).in_memory().X
    if posteriors is None:
        posteriors = np.asarray(model.predict_proba(rows))
    likeliest = posteriors.argmax(axis=1)
    if is_classifier(model):
        names, columns = model.classes_.tolist(), {"label": model.classes_[likeliest]}
    elif populations is not None:
        names, columns = list(populations), {"population": np.array(populations)[likeliest]}
    else:
        names, columns = list(range(posteriors.shape[1])), {"kernel": likeliest}
    columns |= {f"p_{name}": column for name, column in zip(names, posteriors.T, strict=True)}
    columns["log_density"] = np.asarray(model.score_samples(rows))
    if refuses(model):
        columns["label"] = with_outliers(columns["label"], novelty_scores(model, rows), chosen_model(model))
    columns["outlier"] = outliers(model, rows).astype(np.int8)
    return columns | (model.reasons(rows).in_words() if why else {})


def predictions_of_bags(model: Any, X: Any, bags: ArrayLike) -> dict[str, NDArray[Any]]:
    """Return what a fitted classifier says of bags of rows, as the columns of a table.

    Parameters
    ----------
    model : SharedKernelClassifier or SharedKernelClassifierCV
        A fitted classifier.
    X : array-like of shape (n, M)
        Rows of any kind that `predict` takes.
    bags : array-like of shape (n,)
        Identifier of the bag of each row.

    Returns
    -------
    dict of ndarray of shape (B,)
        ``bag``, its number of ``rows``, its ``label``, and ``p_…``, the probability of each class.
    """
    posteriors = model.predict_bags_proba(X, bags)
    ids, members = number_bags(bags, len(np.asarray(bags)))
    columns = {"bag": ids, "rows": np.bincount(members), "label": model.classes_[posteriors.argmax(axis=1)]}
    named = zip(model.classes_.tolist(), posteriors.T, strict=True)
    return columns | {f"p_{name}": column for name, column in named}
