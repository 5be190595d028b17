"""How sure a classifier is, and how often it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skmix.plots._common import CLASS_COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_reliability(
    classifier: Any, X: ArrayLike, y: ArrayLike, *, n_bins: int = 10, axes: Axes | None = None
) -> Axes:
    """Draw how often a classifier is right against how sure it is.

    Rows are sorted into bins of equal width by the probability of the class predicted for them. A point above
    the diagonal is too timid, one below it too sure; bars are 95 % intervals (Wilson). Grey columns
    show the share of the rows in each bin. After `calibrate`, the curve without the temperature is drawn too.

    Parameters
    ----------
    classifier : SharedKernelClassifier
        A fitted classifier; anything with `predict_proba` and `classes_` will do.
    X : array-like of shape (n, M)
        Rows that were used neither for training nor for calibration.
    y : array-like of shape (n,)
        Their labels.
    n_bins : int, default=10
        Number of bins between 0 and 1.
    axes : Axes, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        The axes drawn on. The legend has the expected calibration error: the mean distance of the rows' bins
        from the diagonal.
    """
    check_is_fitted(classifier)
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    probabilities = np.asarray(classifier.predict_proba(X))
    labels = np.asarray(y).ravel()
    if len(labels) != len(probabilities):
        raise ValueError(f"X has {len(probabilities)} rows but y has {len(labels)} labels.")
    correct = classifier.classes_[probabilities.argmax(axis=1)] == labels
    curves = {"classifier": probabilities}
    temperature = getattr(classifier, "temperature_", 1.0)
    if temperature != 1.0:
        powers = temperature * np.asarray(classifier.predict_log_proba(X))
        raw = np.exp(powers - powers.max(axis=1, keepdims=True))
        curves = {
            "before calibration": raw / raw.sum(axis=1, keepdims=True),
            f"temperature {temperature:.2g}": probabilities,
        }
    if axes is None:
        axes = new_figure(4.6, 4.4).add_subplot()
    axes.plot([0.0, 1.0], [0.0, 1.0], color="0.5", lw=1.0, zorder=1)
    looks = [(CLASS_COLOURS[1], "s--"), (CLASS_COLOURS[0], "o-")][-len(curves) :]
    for (name, values), (colour, marker) in zip(curves.items(), looks, strict=True):
        confidence = values.max(axis=1)
        bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        used, bins, counts = np.unique(bins, return_inverse=True, return_counts=True)
        sure = np.bincount(bins, confidence) / counts
        right = np.bincount(bins, correct) / counts
        error = float(np.abs(right - sure) @ counts / len(labels))
        shrink = 1.0 + 1.96**2 / counts
        centre = (right + 1.96**2 / (2.0 * counts)) / shrink
        half = 1.96 * np.sqrt(right * (1.0 - right) / counts + (0.98 / counts) ** 2) / shrink
        bars = np.maximum([right - (centre - half), centre + half - right], 0.0)
        axes.errorbar(
            sure,
            right,
            bars,
            fmt=marker,
            color=colour,
            lw=1.6,
            ms=5.0,
            capsize=2.0,
            label=f"{name}: {error:.3f}",
        )
    # Of the last curve, the probabilities that the classifier reports.
    axes.bar((used + 0.5) / n_bins, counts / len(labels), 0.96 / n_bins, color="0.9", zorder=0)
    axes.set(xlabel="probability of the predicted class", ylabel="share of correct predictions")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    axes.legend(title="calibration error", loc="upper left", frameon=False)
    return axes
