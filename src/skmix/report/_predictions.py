"""Predictions of a fitted model as named columns, for the command line and for pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import gen_batches

from ..estimators.decisions import with_outliers
from ..plots._models import chosen_model

# Rows between two reports of progress.
_ROWS_AT_A_TIME = 1 << 14


def target_of(model: Any) -> str | None:
    """Return the name of the column of labels that the model was fitted to, if it is known."""
    return getattr(model, "metadata_", {}).get("target")


def outlier_threshold(model: Any) -> float:
    """Return the log-density below which a row is an outlier; minus infinity if the model has none."""
    chosen = model if "threshold_" in vars(model) else chosen_model(model)
    return float(getattr(chosen, "threshold_", -np.inf))


def predict_columns(
    model: Any, X: NDArray[np.float64], progress: Callable[[float], None] | None = None
) -> dict[str, NDArray[Any]]:
    """Return predictions as named columns.

    Parameters
    ----------
    model : SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        A fitted model.
    X : ndarray of shape (n, M)
        Rows.
    progress : callable, default=None
        Called with the share of the rows processed so far, from 0 to 1.

    Returns
    -------
    dict of str to ndarray of shape (n,)
        For a classifier ``label``, what `predict` returns, and ``p_…``, the posterior probability of each
        class; for a mixture ``kernel``, ``p_0`` …, the posterior probability of each kernel, and
        ``p_background`` if there is a background. Then ``log_density``, log p(x), and ``outlier``, 1 if that
        is below the model's threshold, else 0.
    """
    asked: dict[str, Any] = {"posteriors": model.predict_proba, "log_density": model.score_samples}
    if not is_classifier(model):
        # For background rows, all kernels have probability zero; `predict` still names one.
        asked["kernel"] = model.predict
    blocks = []
    # An empty table still needs its columns: predict one row and drop it.
    some = X if len(X) else np.zeros((1, X.shape[1]))
    for rows in gen_batches(len(some), _ROWS_AT_A_TIME):
        blocks.append([ask(some[rows]) for ask in asked.values()])
        if progress is not None:
            progress(rows.stop / len(some))
    answers = (np.concatenate(each)[: len(X)] for each in zip(*blocks, strict=True))
    found = dict(zip(asked, answers, strict=True))
    posteriors, densities = found.pop("posteriors"), found.pop("log_density")
    columns: dict[str, NDArray[Any]] = found
    names = range(posteriors.shape[1])
    if is_classifier(model):
        columns, names = {"label": model.classes_[posteriors.argmax(axis=1)]}, model.classes_.tolist()
    columns.update({f"p_{name}": each for name, each in zip(names, posteriors.T, strict=True)})
    if not is_classifier(model) and hasattr(chosen_model(model), "background_weights_"):
        columns["p_background"] = np.maximum(1.0 - posteriors.sum(axis=1), 0.0)
    columns["log_density"] = densities
    if getattr(chosen_model(model), "outlier_label", None) is not None:
        columns["label"] = with_outliers(columns["label"], densities, chosen_model(model))
    columns["outlier"] = (densities < outlier_threshold(model)).astype(np.int8)
    return columns
