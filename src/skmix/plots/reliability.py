"""Reliability diagrams: accuracy against confidence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import binomtest
from sklearn.utils.validation import check_is_fitted

from skmix.metrics import reliability_bins
from skmix.plots._common import CLASS_COLOURS, LEGEND, Axes, Figure, finish, panels_for


def plot_reliability(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_bins: int = 10,
    axes: Axes | None = None,
    figure: Figure | None = None,
) -> Axes:
    """Plot the accuracy of a classifier against its confidence.

    Rows are sorted into bins of equal width by the probability of their predicted class. A point above the
    diagonal is underconfident, one below it overconfident; error bars are 95 % intervals (Wilson). Grey bars
    show the share of the rows in each bin. After `calibrate`, the curve without the temperature is drawn too.
    The legend has the expected calibration error.

    Parameters
    ----------
    classifier : SharedKernelClassifier
        A fitted classifier; any object with `predict_proba` and `classes_` works.
    X : array-like of shape (n, M)
        Rows that were used neither for training nor for calibration.
    y : array-like of shape (n,)
        Their labels.
    n_bins : int, default=10
        Number of bins between 0 and 1.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    check_is_fitted(classifier)
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    probabilities = np.asarray(classifier.predict_proba(X))
    labels = np.asarray(y).ravel()
    if len(labels) != len(probabilities):
        raise ValueError(f"X has {len(probabilities)} rows but y has {len(labels)} labels.")
    predicted = probabilities.argmax(axis=1)
    # Code -1 matches no prediction: only whether a row is classified correctly matters.
    codes = np.where(classifier.classes_[predicted] == labels, predicted, -1)
    curves = {"classifier": probabilities}
    temperature = getattr(classifier, "temperature_", 1.0)
    if temperature != 1.0:
        before = softmax(temperature * np.asarray(classifier.predict_log_proba(X)), axis=1)
        curves = {"before calibration": before, f"temperature {temperature:.2g}": probabilities}
    (panel,) = panels_for(1, axes, figure, size=(4.2, 4.0))
    panel.plot([0.0, 1.0], [0.0, 1.0], color="0.5", lw=1.0, zorder=1)
    looks = [(CLASS_COLOURS[1], "s--"), (CLASS_COLOURS[0], "o-")][-len(curves) :]
    for (name, values), (colour, marker) in zip(curves.items(), looks, strict=True):
        bins = reliability_bins(values, codes, n_bins)
        sure, right, counts = np.array(bins).T
        error = np.abs(right - sure) @ counts / len(labels)
        tests = [binomtest(round(each.accuracy * each.n_rows), each.n_rows) for each in bins]
        intervals = np.array([test.proportion_ci(method="wilson") for test in tests])
        bars = np.maximum([right - intervals[:, 0], intervals[:, 1] - right], 0.0)
        style: dict[str, Any] = {"fmt": marker, "color": colour, "lw": 1.6, "ms": 5.0, "capsize": 2.0}
        panel.errorbar(sure, right, bars, label=f"{name}: {error:.3f}", **style)
    # The bins of the last curve, the probabilities that the classifier reports.
    used = np.minimum((sure * n_bins).astype(int), n_bins - 1)
    panel.bar((used + 0.5) / n_bins, counts / len(labels), 0.96 / n_bins, color="0.9", zorder=0)
    panel.set(xlabel="probability of the predicted class", ylabel="share of correct predictions")
    panel.set(xlim=(0.0, 1.02), ylim=(0.0, 1.02))
    panel.legend(title="calibration error", loc="upper left", **LEGEND)
    finish(panel)
    return panel
