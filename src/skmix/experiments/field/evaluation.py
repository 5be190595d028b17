"""How good a fitted classifier is on rows with labels, as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skmix.experiments.field.measures import calibration_error, log_loss
from skmix.experiments.field.records import FloatArray, IntArray
from skmix.experiments.paper.metrics import accuracy, confusion_matrix, mean_iou

N_BINS = 10
"""Bins of the probability of the predicted class, between 0 and 1."""


class ReliabilityBin(NamedTuple):
    """Rows whose predicted class is about as probable.

    Attributes
    ----------
    confidence : float
        Mean probability of the predicted class.
    accuracy : float
        Share of correct predictions.
    n_rows : int
        Number of rows.
    """

    confidence: float
    accuracy: float
    n_rows: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How a classifier did on labelled rows.

    A row counts as the class of largest posterior probability, also where the classifier would refuse it.

    Attributes
    ----------
    n_rows : int
        Number n of rows.
    classes : tuple of str
        The L classes.
    accuracy : float
        Share of rows whose class was predicted.
    mean_iou : float
        Jaccard index, averaged over the classes that are among labels or predictions.
    log_loss : float
        Mean negative logarithm of the probability of the true class.
    calibration_error : float
        Expected calibration error over ten bins.
    confusion : ndarray of shape (L, L)
        Rows by true class (down) and prediction (across).
    precision, recall, iou : ndarray of shape (L,)
        Of each class: the share of its predictions that are right, the share of its rows that are found, and
        its Jaccard index. NaN where there is nothing to take a share of.
    reliability : tuple of ReliabilityBin
        The bins that have rows, by rising confidence.
    outliers : float or None
        Share of the rows that the classifier calls outliers; None where it has no threshold.
    """

    n_rows: int
    classes: tuple[str, ...]
    accuracy: float
    mean_iou: float
    log_loss: float
    calibration_error: float
    confusion: IntArray
    precision: FloatArray
    recall: FloatArray
    iou: FloatArray
    reliability: tuple[ReliabilityBin, ...]
    outliers: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and None, ready for JSON."""
        return {
            "n_rows": self.n_rows,
            "accuracy": self.accuracy,
            "mean_iou": self.mean_iou,
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
            "outliers": self.outliers,
            "classes": [
                {
                    "label": label,
                    "n_rows": int(self.confusion[place].sum()),
                    "precision": _or_none(self.precision[place]),
                    "recall": _or_none(self.recall[place]),
                    "iou": _or_none(self.iou[place]),
                }
                for place, label in enumerate(self.classes)
            ],
            "confusion": self.confusion.tolist(),
            "reliability": [each._asdict() for each in self.reliability],
        }


def evaluate(model: Any, X: ArrayLike, y: ArrayLike) -> Evaluation:
    """Measure a fitted classifier on labelled rows.

    Parameters
    ----------
    model : SharedKernelClassifier
        A fitted classifier; anything with `classes_` and `predict_proba` will do.
    X : array-like of shape (n, M)
        Rows that were not used for training.
    y : array-like of shape (n,)
        Their labels.

    Returns
    -------
    Evaluation
        The measures.

    Raises
    ------
    ValueError
        If a label is none of the model's classes, or rows and labels differ in number.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.experiments.field import evaluate
    >>> X, y = load_iris(return_X_y=True)
    >>> found = evaluate(SharedKernelClassifier(random_state=0).fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> found.n_rows, round(found.accuracy, 2)
    (75, 0.97)
    """
    probabilities = np.asarray(model.predict_proba(X), dtype=np.float64)
    codes = _codes(np.asarray(y).ravel(), model.classes_, len(probabilities))
    confusion = confusion_matrix(codes, probabilities.argmax(axis=1), len(model.classes_))
    found, labelled, taken = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    # scikit-learn's convention: classes that are neither among labels nor among predictions do not count.
    present = np.flatnonzero(labelled + taken)
    return Evaluation(
        n_rows=len(codes),
        classes=tuple(str(label) for label in model.classes_.tolist()),
        accuracy=accuracy(confusion),
        mean_iou=mean_iou(confusion[np.ix_(present, present)]),
        log_loss=log_loss(probabilities, codes),
        calibration_error=calibration_error(probabilities, codes, N_BINS),
        confusion=confusion,
        precision=_share(found, taken),
        recall=_share(found, labelled),
        iou=_share(found, labelled + taken - found),
        reliability=_reliability(probabilities, codes),
        outliers=_outliers(model, X),
    )


def _codes(labels: np.ndarray, classes: np.ndarray, n_rows: int) -> IntArray:
    if len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(labels)} labels.")
    places = {label: place for place, label in enumerate(classes.tolist())}
    unseen = sorted({str(label) for label in labels.tolist() if label not in places})
    if unseen:
        raise ValueError(
            f"{len(unseen)} labels are none of the model's {len(places)} classes: {', '.join(unseen[:10])}."
        )
    return np.array([places[label] for label in labels.tolist()], dtype=np.int64)


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


def _reliability(probabilities: FloatArray, codes: IntArray) -> tuple[ReliabilityBin, ...]:
    """Return the bins of `calibration_error` that have rows."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == codes
    bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
    return tuple(
        ReliabilityBin(
            float(confidence[bins == each].mean()),
            float(right[bins == each].mean()),
            int(np.count_nonzero(bins == each)),
        )
        for each in np.unique(bins)
    )


def _outliers(model: Any, X: ArrayLike) -> float | None:
    threshold = getattr(model, "threshold_", -np.inf)
    return None if threshold == -np.inf else float(np.mean(model.score_samples(X) < threshold))


def _or_none(value: np.floating[Any]) -> float | None:
    return None if np.isnan(value) else float(value)
