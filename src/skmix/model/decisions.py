"""Decisions of a classifier beyond Bayes' rule: temperature scaling, and thresholds for outliers."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..engine.after.temperature import least_log_loss
from ..engine.numbers import on_host
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block
from .checks import note_rows, warn_caller
from .crossfit import blur_of, quantile, set_threshold
from .densities import novelty
from .devices import device_of, sent
from .rows import score_rows
from .training import Training


def best_temperature(log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> float:
    """Return the temperature of least log-loss, given log-joints (n, L), true classes (n,) and weights (n,).

    If no row is misclassified, warn and return 1. Raise ValueError if the model is worse than chance, or if a
    true class has a prior of zero.
    """
    n_rows = len(codes)
    correct = log_joints[np.arange(n_rows), codes, None]
    if np.any(correct == -np.inf):
        raise ValueError(
            f"{np.sum(correct == -np.inf)} of {n_rows} rows have a label whose class prior is zero: "
            "no temperature makes them possible."
        )
    possible = log_joints > -np.inf
    gaps = np.where(possible, log_joints - correct, 0.0)
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


# Kinds of labels in errors, by the kind of a NumPy dtype.
_KINDS = {"U": "a string", "b": "a boolean", "i": "an integer", "u": "an integer", "f": "a number"}


def kind_of_labels(labels: Any) -> str:
    """Return the kind of labels in words; empty if it has no name."""
    return _KINDS.get(np.asarray(np.asarray(labels).tolist()).dtype.kind, "")


def check_outlier_label(label: Any, classes: np.ndarray, *, rejects: bool) -> None:
    """Raise ValueError if a label for outliers is a class or of another kind, or if no row is rejected."""
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


def novelty_scores(model: Any, X: Any) -> FloatArray:
    """Return what is compared with the `threshold_` of a fitted model, shape (n,), for rows X (n, M).

    Rows are of any kind. It is `score_samples`, unless the model has an `outlier_blur_`. Of a pipeline or a
    search of scikit-learn, the model inside decides.
    """
    if hasattr(model, "steps"):
        return novelty_scores(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    if type(model).__module__.startswith("sklearn.") and hasattr(model, "best_estimator_"):
        return novelty_scores(model.best_estimator_, X)
    if hasattr(model, "classifiers_"):
        return novelty_scores(model.classifier_, next(model._inputs(X)))
    if getattr(model, "outlier_blur_", None) is None:
        scores: FloatArray = model.score_samples(X)
        return scores
    members, shares = getattr(model, "mixtures_", [model]), getattr(model, "shares_", np.ones(1))
    logs = []
    for member in map(copy, members):
        member.outlier_blur_ = model.outlier_blur_
        logs.append(score_rows(member, X, novelty))
    return logsumexp(logs, b=shares[:, None], axis=0)


def with_outliers(labels: np.ndarray, scores: FloatArray, classifier: Any) -> np.ndarray:
    """Replace the labels (n,) of rows whose novelty scores are below the threshold by `outlier_label`."""
    # Parameters may have changed since the fit.
    check_outlier_label(
        classifier.outlier_label, classifier.classes_, rejects=classifier.threshold_ > -np.inf
    )
    # An array, so that NumPy finds the common type.
    return np.where(scores < classifier.threshold_, np.array(classifier.outlier_label), labels)


def find_threshold(classifier: Any, training: Training) -> None:
    """Set the score below which a share `reject_below` of new rows, or of their weight, lies.

    It is estimated from held-out rows. If only a sample of the rows is in memory, it is the quantile of the
    training densities of that sample: with this many rows, overfitting hardly raises it.
    """
    rows, codes, weights = training.source.start_rows()
    if training.blocks is not None and rows.shape[0] < training.source.summary.n_rows:
        block = Block(sent(rows, device_of(classifier)), codes, weights)
        note_rows(classifier, outlier_blur_=blur_of(block))
        classifier.threshold_ = threshold_of_rows(classifier, block)
    else:
        set_threshold(classifier, classifier.reject_below, Block(rows, codes, weights))


def add_blur(classifier: Any, batch: Block) -> FloatArray | None:
    """Set the blur of a stream to the smallest of each feature in a batch and those before; return it."""
    blurs = [
        each for each in (getattr(classifier, "outlier_blur_", None), blur_of(batch)) if each is not None
    ]
    if len(blurs) == 2:
        last, new = ((each**2).sum(axis=0) for each in blurs)
        # A feature that is constant in a batch needs no blur there.
        least = np.where((last > 0) & (new > 0), np.minimum(last, new), np.maximum(last, new))
        blurs = [np.diag(np.sqrt(least))[least > 0]]
    note_rows(classifier, outlier_blur_=blurs[0] if blurs else None)
    return blurs[0] if blurs else None


def threshold_of_rows(classifier: Any, rows: Block) -> float:
    """Return the score below which a share `reject_below` of these rows, or of their weight, lies."""
    return quantile(classifier.reject_below, on_host(novelty(classifier, rows.X)), rows.weights)
