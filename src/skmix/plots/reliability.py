"""How sure a classifier is, and how often it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skmix.plots._common import CLASS_COLOURS, SMALL, panels_for, soften

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_reliability(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_bins: int = 10,
    axes: Axes | None = None,
    figure: Figure | None = None,
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
        Axes to draw into.
    figure : matplotlib figure, default=None
        An empty figure for new axes; None makes one.

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
    (panel,) = panels_for(1, axes, figure, n_columns=1, size=(4.2, 4.0))
    panel.plot([0.0, 1.0], [0.0, 1.0], color="0.5", lw=1.0, zorder=1)
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
        panel.errorbar(
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
    panel.bar((used + 0.5) / n_bins, counts / len(labels), 0.96 / n_bins, color="0.9", zorder=0)
    panel.set_xlabel("probability of the predicted class", fontsize=SMALL)
    panel.set_ylabel("share of correct predictions", fontsize=SMALL)
    panel.set(xlim=(0.0, 1.02), ylim=(0.0, 1.02))
    panel.legend(
        title="calibration error", loc="upper left", frameon=False, fontsize=SMALL, title_fontsize=SMALL
    )
    soften(panel)
    return panel
