"""What a classifier adds to Bayes' rule: temperature scaling and refusing novel rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.compute.arrays import on_host
from ..engine.compute.blocks import Block
from ..engine.model import FloatArray, IntArray
from ..engine.refine.temperature import least_log_loss
from .crossfit import held_out_densities
from .densities import log_density
from .rows import Training, sent, warn_caller


def best_temperature(log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> float:
    """Return the temperature of least log-loss, given log-joints (n, L), the true classes (n,) and weights.

    It is 1, with a warning, where no row is misclassified; where the model is worse than chance, or a true
    class has a prior of zero, there is none.
    """
    n_rows = len(codes)
    own = log_joints[np.arange(n_rows), codes, None]
    if np.any(own == -np.inf):
        raise ValueError(
            f"{np.sum(own == -np.inf)} of {n_rows} rows have a label whose class prior is zero: "
            "no temperature makes them possible."
        )
    possible = log_joints > -np.inf
    gaps = np.where(possible, log_joints - own, 0.0)
    if np.average(gaps.max(axis=1), weights=weights) <= 0.0:
        warn_caller(
            f"All {n_rows} rows are classified correctly, so they set no lower bound on the temperature: it "
            "stays 1. Calibrate on more rows, some of them hard."
        )
        return 1.0
    guess = np.average(gaps.sum(axis=1) / possible.sum(axis=1), weights=weights)
    if guess >= 0.0:
        raise ValueError(
            f"On these {n_rows} rows the classifier is worse than guessing: the mean log-likelihood of the "
            f"true class is {guess:.3g} below the average over classes. Are the labels in the right order?"
        )
    return least_log_loss(log_joints, codes, weights, lowest=0.0)[0]


# Kinds of labels by NumPy's code of a dtype, as errors name them.
_KINDS = {"U": "a string", "b": "a boolean", "i": "an integer", "u": "an integer", "f": "a number"}


def kind_of_labels(labels: Any) -> str:
    """Return the kind of labels of any type; an empty text for one that is not named."""
    return _KINDS.get(np.asarray(np.asarray(labels).tolist()).dtype.kind, "")


def check_outlier_label(label: Any, classes: np.ndarray, *, rejects: bool) -> None:
    """Refuse a label for outliers that is a class or of another kind, or any if no row is rejected."""
    if not rejects:
        raise ValueError(
            f"outlier_label={label!r} needs a fit with reject_below: without a threshold, nothing would be "
            "rejected."
        )
    known = classes.tolist()
    if label in known:
        raise ValueError(f"outlier_label={label!r} is one of the classes: {known[:10]}.")
    wanted, kind = kind_of_labels(classes), kind_of_labels(label)
    fits = wanted in ("", kind) or (wanted, kind) == ("a number", "an integer")
    if wanted == "a boolean":
        fits, wanted = False, "None, since booleans have no third value"
    if not fits:
        raise ValueError(
            f"outlier_label must be {wanted}, as the labels are {classes.dtype} ({known[:3]} …), "
            f"got {label!r}."
        )


def with_outliers(labels: np.ndarray, log_densities: FloatArray, classifier: Any) -> np.ndarray:
    """Return labels (n,) of rows, the classifier's `outlier_label` for those below its threshold."""
    # Parameters may have been set since the fit.
    check_outlier_label(
        classifier.outlier_label, classifier.classes_, rejects=classifier.threshold_ > -np.inf
    )
    # NumPy finds a common type of two arrays.
    return np.where(log_densities < classifier.threshold_, np.array(classifier.outlier_label), labels)


def threshold_of(classifier: Any, training: Training) -> float:
    """Return the log-density below which `reject_below` of new rows lie, or of their weight.

    It comes from held-out rows. Where only a sample of the rows is in memory, it is the quantile of the
    sample's own densities: with this many rows, overfitting hardly raises it.
    """
    rows, codes, weights = training.source.start_rows()
    if training.blocks is not None and rows.shape[0] < training.source.summary.n_rows:
        return threshold_of_rows(classifier, Block(sent(classifier, rows), codes, weights))
    return novelty_threshold(classifier, classifier.reject_below, Block(rows, codes, weights))


def threshold_of_rows(classifier: Any, rows: Block) -> float:
    """Return the log-density below which `reject_below` of these rows lie, or of their weight."""
    return quantile(classifier.reject_below, on_host(log_density(classifier, rows.X)), rows.weights)


def novelty_threshold(
    model: Any,
    share: float,
    rows: Block,
    finish: Callable[[Any, Block], None] | None = None,
    groups: np.ndarray | None = None,
) -> float:
    """Return the log-density below which a share of new rows lies, given the training rows and their classes.

    `finish` is what was done to the model after its fit; groups (N,) of the rows are held out whole, see
    `held_out_densities`.
    """
    return quantile(share, *held_out_densities(model, rows, finish, groups))


def quantile(share: float, log_densities: FloatArray, weights: FloatArray | None = None) -> float:
    """Return the log-density below which that of a further row lies with a probability of `share`.

    Among n rows and itself, a new row has any rank with the same probability, so it is below the i-th of the
    n with a probability of i / (n + 1). Between two rows, densities are interpolated; with fewer than
    1 / share rows, the least density is taken. A row of weight two, of weights (n,), counts as two.
    """
    order = np.argsort(log_densities)
    weights = np.ones(len(order)) if weights is None else weights[order]
    reached = np.cumsum(weights)
    # Weights may be shares of all rows: then a new row has the mean weight.
    one = min(1.0, reached[-1] / len(order))
    rank = share * (reached[-1] / one + 1.0)
    whole, part = np.floor(rank), rank % 1.0
    # First rows whose cumulative weight reaches each rank, up to rounding.
    places = np.searchsorted(reached / one * (1.0 + 1e-12), [whole, whole + 1.0])
    low, high = log_densities[order[np.minimum(places, len(order) - 1)]]
    with np.errstate(divide="ignore"):
        return float(np.logaddexp(np.log1p(-part) + low, np.log(part) + high))
