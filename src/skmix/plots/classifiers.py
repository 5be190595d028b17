"""Plots of classifiers: reliability, and the candidates of a search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from ..metrics import N_BINS, reliability_bins, wilson
from ..model.rows import enter
from .style import CLASS_COLOURS, LEGEND, Axes, finish, panels_for


def plot_reliability(
    classifier: Any, X: ArrayLike, y: ArrayLike | None = None, *, axes: Axes | None = None
) -> Axes:
    """Plot the accuracy of a classifier against its confidence.

    Rows are in ten bins of equal width by the probability of their predicted class. A point above the
    diagonal is underconfident, one below it overconfident; error bars are 95 % intervals (Wilson). Grey bars
    show the share of the rows in each bin. After `calibrate`, the curve without the temperature is drawn too.
    The legend has the expected calibration error.

    Parameters
    ----------
    classifier : SharedKernelClassifier
        A fitted classifier; any object with `predict_proba` and `classes_` works.
    X : array-like of shape (n, M)
        Rows that were used neither for training nor for calibration.
    y : array-like of shape (n,), default=None
        Their labels; for rows in a file also the name of a column. None only for rows opened with labels.
    axes : matplotlib axes, default=None
        Where to draw; None makes a new figure.
    """
    check_is_fitted(classifier)
    given = enter(classifier, X, y).with_columns_of_fit()
    probabilities = np.asarray(classifier.predict_proba(given.X))
    labels, predicted = given.labels(len(probabilities)), probabilities.argmax(axis=1)
    # Code -1 matches no prediction: only whether a row is classified correctly matters.
    codes = np.where(classifier.classes_[predicted] == labels, predicted, -1)
    curves = {"classifier": probabilities}
    temperature = getattr(classifier, "temperature_", 1.0)
    if temperature != 1.0:
        before = softmax(temperature * np.asarray(classifier.predict_log_proba(given.X)), axis=1)
        curves = {"before calibration": before, f"temperature {temperature:.2g}": probabilities}
    (panel,) = panels_for(1, axes, size=(4.2, 4.0))
    panel.plot([0.0, 1.0], [0.0, 1.0], color="0.5", lw=1.0, zorder=1)
    looks = [(CLASS_COLOURS[1], "s--"), (CLASS_COLOURS[0], "o-")][-len(curves) :]
    for (name, values), (colour, marker) in zip(curves.items(), looks, strict=True):
        bins = reliability_bins(values, codes)
        sure, right, counts = np.array(bins).T
        error = np.abs(right - sure) @ counts / len(labels)
        low, high = np.array([wilson(each.accuracy, each.n_rows) for each in bins]).T
        bars = np.maximum([right - low, high - right], 0.0)
        style: dict[str, Any] = {"fmt": marker, "color": colour, "lw": 1.6, "ms": 5.0, "capsize": 2.0}
        panel.errorbar(sure, right, bars, label=f"{name}: {error:.3f}", **style)
    # The bins of the last curve, the probabilities that the classifier reports.
    used = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    panel.bar((used + 0.5) / N_BINS, counts / len(labels), 0.96 / N_BINS, color="0.9", zorder=0)
    panel.set(xlabel="probability of the predicted class", ylabel="share of correct predictions")
    panel.set(xlim=(0.0, 1.02), ylim=(0.0, 1.02))
    panel.legend(title="calibration error", loc="upper left", **LEGEND)
    finish(panel)
    return panel


def plot_search(search: Any, *, axes: Axes | None = None) -> Axes:
    """Plot the scores of all candidates of a search by their features.

    Small dots are candidates of the screening, on one fold; large ones were compared on all folds, and
    those with a ring are averaged. Scores below the axis are drawn at its lower end.

    Parameters
    ----------
    search : SharedKernelClassifierCV
        A fitted search.
    axes : matplotlib axes, default=None
        Where to draw; None makes a new figure.
    """
    check_is_fitted(search)
    if not hasattr(search, "classifiers_"):
        raise ValueError(f"plot_search needs a SharedKernelClassifierCV, got {type(search).__name__}.")
    results = search.cv_results_
    families = [_family(params) for params in results["params"]]
    names = list(dict.fromkeys(families))
    screened = results["stage"] == "screening"
    scores = np.where(np.isfinite(results["mean_test_score"]), results["mean_test_score"], -np.inf)
    evaluated = scores[~screened & np.isfinite(scores)]
    if not len(evaluated):
        raise ValueError("no candidate has a score: no row could be held out.")
    # Cut the axis below the candidates of all folds: poor ones of the screening would compress the rest.
    span = max(float(np.ptp(evaluated)), 1e-3 * abs(float(evaluated.max())), 1e-12)
    bottom = float(evaluated.min()) - 0.5 * span
    own = np.array([params["kernels"] == "own" for params in results["params"]])
    places = np.array([names.index(family) for family in families]) + np.where(own, -0.12, 0.12)
    (panel,) = panels_for(1, axes, size=(max(3.0, 1.0 + 0.9 * len(names)), 3.4))
    for whose, is_own, colour in (
        ("own kernels", True, CLASS_COLOURS[1]),
        ("shared", False, CLASS_COLOURS[0]),
    ):
        chosen = own == is_own
        sizes, heights = np.where(screened, 6.0, 26.0)[chosen], np.maximum(scores[chosen], bottom)
        label = whose if chosen.any() else None
        panel.scatter(places[chosen], heights, sizes, color=colour, alpha=0.6, lw=0.0, label=label)
    members = np.asarray(results["member"], dtype=bool)
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "s": 60.0, "lw": 1.0}
    panel.scatter(places[members], scores[members], label="averaged", **style)
    panel.set_xticks(range(len(names)), names)
    panel.set(xlim=(-0.6, len(names) - 0.4), ylabel="minus the log-loss of held-out rows")
    panel.set_ylim(bottom - 0.05 * span, float(scores.max()) + 0.1 * span)
    panel.legend(loc="lower right", **LEGEND)
    finish(panel)
    return panel


def _family(params: dict[str, Any]) -> str:
    """Return the features of a candidate in a few words on several lines."""
    if params["feature_sets"] is not None:
        return "feature\nsets"
    steps = [params[name] for name in ("transform", "reduction") if params[name] != "none"]
    return "\n".join(steps).replace(" ", "\n") or "features\nas they are"
