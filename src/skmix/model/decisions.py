"""Posteriors and predictions of a classifier, temperature scaling, and labels for outliers."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..engine.after.temperature import least_log_loss
from ..engine.exponentials import log_normalise, log_sum_exp
from ..engine.numbers import Array, namespace, on_host
from ..engine.records import FloatArray, IntArray
from .checks import warn_caller
from .densities import log_joint, novelty
from .rows import score_rows

# Kinds of labels in errors, by the kind of a NumPy dtype.
_KINDS = {"U": "a string", "b": "a boolean", "i": "an integer", "u": "an integer", "f": "a number"}


def log_posteriors(classifier: Any, rows: Array) -> FloatArray:
    """The logarithms (n, L) of the posteriors of the classes at the classifier's temperature."""
    return log_normalise(log_joint(classifier, rows) / classifier.temperature_, axis=1)


def posteriors(classifier: Any, rows: Array) -> FloatArray:
    """The posteriors (n, L) of the classes."""
    logs = log_posteriors(classifier, rows)
    return namespace(logs).exp(logs)


def predictions(classifier: Any, rows: Array) -> np.ndarray:
    """The most probable class (n,) of each row, or the label of outliers."""
    joint = log_joint(classifier, rows)
    labels: np.ndarray = classifier.classes_[on_host(namespace(joint).argmax(joint, axis=1))]
    if classifier.outlier_label is None:
        return labels
    blurred = getattr(classifier, "outlier_blur_", None) is not None
    scores = novelty(classifier, rows) if blurred else log_sum_exp(joint, axis=1)
    return with_outliers(labels, on_host(scores), classifier)


def best_temperature(log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> float:
    """The temperature of least log-loss, given log-joints (n, L), true classes (n,) and weights (n,).

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


# ---------------------------------------------------------------- outliers


def kind_of_labels(labels: Any) -> str:
    """The kind of labels in words; empty if it has no name."""
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
    expected, kind = kind_of_labels(classes), kind_of_labels(label)
    fits = expected in ("", kind) or (expected, kind) == ("a number", "an integer")
    if expected == "a boolean":
        fits, expected = False, "None, since booleans have no third value"
    if not fits:
        raise ValueError(
            f"outlier_label must be {expected}, as the labels are {classes.dtype} ({known[:3]} …), "
            f"got {label!r}."
        )


def novelty_scores(model: Any, X: Any) -> FloatArray:
    """What is compared with the `threshold_` of a fitted model, shape (n,), for rows X (n, M) of any kind.

    It is `score_samples`, unless the model has an `outlier_blur_`. Of a pipeline or a search of scikit-learn,
    the model inside decides.
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
    threshold, label = classifier.threshold_, classifier.outlier_label
    # Parameters may have changed since the fit.
    check_outlier_label(label, classifier.classes_, rejects=threshold > -np.inf)
    # An array, so that NumPy finds the common type.
    return np.where(scores < threshold, np.array(label), labels)
