"""What a fitted model says about rows, as columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.field.records import FloatArray

_ROWS_AT_A_TIME = 1 << 14


def predict_columns(
    model: Any, X: FloatArray, progress: Callable[[float], None] | None = None
) -> dict[str, NDArray[Any]]:
    """Return predictions as named columns.

    Parameters
    ----------
    model : SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        A fitted model.
    X : ndarray of shape (n, M)
        Rows.
    progress : callable, default=None
        Called with the share of the rows that are done, from 0 to 1.

    Returns
    -------
    dict of str to ndarray of shape (n,)
        Of a classifier ``label``, the most probable class, and ``p_…``, the posterior probability of each;
        of a mixture ``kernel`` and ``p_1`` …, the same of its kernels, counted from 1. Then ``log_density``,
        log p(x), and ``outlier``, 1 where that is below the model's threshold and 0 elsewhere; without a
        threshold it is 0 everywhere.
    """
    blocks: list[tuple[FloatArray, FloatArray]] = []
    for first in range(0, len(X), _ROWS_AT_A_TIME):
        part = X[first : first + _ROWS_AT_A_TIME]
        blocks.append((_posteriors(model, part), np.asarray(model.score_samples(part))))
        if progress is not None:
            progress(min(first + _ROWS_AT_A_TIME, len(X)) / len(X))
    posteriors = np.concatenate([each for each, _ in blocks])
    densities = np.concatenate([each for _, each in blocks])
    best = posteriors.argmax(axis=1)
    if is_classifier(model):
        columns = {"label": model.classes_[best]}
        names = [f"p_{label}" for label in model.classes_.tolist()]
    else:
        columns = {"kernel": best + 1}
        names = [f"p_{kernel}" for kernel in range(1, posteriors.shape[1] + 1)]
    columns.update(zip(names, posteriors.T, strict=True))
    columns["log_density"] = densities
    columns["outlier"] = (densities < outlier_threshold(model)).astype(np.int8)
    return columns


def is_classifier(model: Any) -> bool:
    """Whether a model of ours predicts classes."""
    return hasattr(model, "predict_proba") and hasattr(model, "classes_")


def outlier_threshold(model: Any) -> float:
    """Return the log-density below which a row is an outlier; minus infinity where a model has none."""
    return float(getattr(model, "threshold_", -np.inf))


def _posteriors(model: Any, X: FloatArray) -> FloatArray:
    """Return the probability (n, L) of each class, or (n, K) of each kernel."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    return np.asarray(model.responsibilities(X))
