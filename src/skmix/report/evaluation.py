"""Evaluation of a fitted classifier on labelled rows, and its page."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.metrics import confusion_matrix

from ..data import open_rows
from ..data.labels import number_labels
from ..metrics import ReliabilityBin, calibration_error, effective_rows, reliability_bins, row_counts, wilson
from ..model.callbacks import progress_bar
from ..model.frames import is_frame
from ..model.holdout import rows_to_divide, single_split, stratified_folds
from ..model.rows import enter
from ._predictions import outlier_threshold, refuses
from ._predictions import outliers as outliers_in
from .intervals import Interval, bootstrap, outwards, ratio
from .rendering import in_words, render_page

_TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "macro_f1": "macro F1",
    "roc_auc": "ROC AUC",
    "calibration_error": "calibration error",
    "outliers": "outliers",
}


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Measures of a classifier on labelled rows.

    The predicted class is the one with the largest posterior probability. A classifier with an
    `outlier_label` predicts no class for rows below its threshold: such a refused row counts as an error in
    the accuracy, and as missed in the recall and F1 of its class. The log-loss, the ROC AUC and the
    calibration use the probabilities of all rows.

    With weights, a row of weight 2 counts as two rows everywhere below, and one of weight 0 not at all; for
    the intervals it is still one observation.

    Attributes
    ----------
    n_rows : int or float
        Number n of rows; a float if weights are not whole numbers, as in `confusion`.
    classes : tuple of str
        The L classes.
    accuracy : float
        Share of correct predictions, as `score` counts them.
    log_loss : float
        Mean negative logarithm of the probability of the true class.
    macro_f1 : float
        F1, averaged over the classes that occur among labels or predictions.
    roc_auc : float or None
        Area under the ROC curve; of more than two classes, the mean over the areas of each class against the
        rest. None if all rows are of one class.
    calibration_error : float
        Expected calibration error over ten bins.
    confusion : ndarray of shape (L, L)
        Counts; rows are true classes, columns predicted ones. Refused rows are left out.
    precision, recall, f1 : ndarray of shape (L,)
        Precision, recall and F1 of each class; NaN where the denominator is zero.
    baseline : dict
        `accuracy` of the most frequent class, and `log_loss` of the shares of the classes, for all rows.
    intervals : dict
        95 % intervals, pairs or None, of `accuracy` (Wilson's, for the effective number of rows),
        `log_loss`, `macro_f1` and `roc_auc` (1000 bootstrap samples of the rows).
    reliability : list of ReliabilityBin
        The bins that contain rows, by increasing confidence.
    outliers : float or None
        Share of the rows that are outliers; None if the classifier has no threshold.
    refused : ndarray of shape (L,) or None
        Counts of the refused rows of each true class; None if the classifier has no `outlier_label`.
    """

    n_rows: float
    classes: tuple[str, ...]
    accuracy: float
    log_loss: float
    macro_f1: float
    roc_auc: float | None
    calibration_error: float
    confusion: NDArray[Any]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    baseline: dict[str, float]
    intervals: dict[str, Interval | None]
    reliability: list[ReliabilityBin]
    outliers: float | None = None
    refused: NDArray[Any] | None = None

    @property
    def n_labelled(self) -> NDArray[Any]:
        """Counts (L,) of the rows of each true class."""
        counts: NDArray[Any] = self.confusion.sum(axis=1)
        return counts if self.refused is None else counts + self.refused

    def mistakes(self) -> list[tuple[int, int, float]]:
        """Return the ten most frequent mistakes: indices of true and predicted class, and numbers of rows."""
        wrong = self.confusion - np.diag(np.diagonal(self.confusion))
        largest = np.argsort(-wrong, axis=None, kind="stable")[:10]
        pairs = [divmod(int(place), len(wrong)) for place in largest]
        return [(true, taken, _plain(wrong[true, taken])) for true, taken in pairs if wrong[true, taken] > 0]

    def lines(self) -> list[tuple[str, str, str, str]]:
        """Return name, value, 95 % interval and baseline of each measure as text, empty if there is none."""
        found = []
        for name, title in _TITLES.items():
            value, interval = getattr(self, name), self.intervals.get(name)
            if value is not None:
                between = "" if interval is None else outwards(*interval)
                baseline = f"{self.baseline[name]:.3f}" if name in self.baseline else ""
                found.append((title, f"{value:.3f}", between, baseline))
        return found

    def remarks(self) -> list[str]:
        """Return sentences on the lines: what the baseline is, and what stands out."""
        found = [
            "The baseline predicts the most frequent class, or for the log-loss the share of each class; "
            "other measures have none."
        ]
        bare = [name for name, each in self.intervals.items() if each is None]
        if bare := [_TITLES[name] for name in bare if getattr(self, name) is not None]:
            found.append(
                f"There is no interval for {in_words(bare)}: resamples of the rows leave the value as it is, "
                "or most lack a class."
            )
        if self.log_loss > self.baseline["log_loss"] > 0.0:
            found.append(
                "The log-loss is above its baseline: these probabilities are worse than the shares of the "
                "classes. Calibrate the model (calibrate in Python), or fit it to more rows."
            )
        return found

    def __repr__(self) -> str:
        measures = ", ".join(f"{title} {value}" for title, value, *_ in self.lines()[:4])
        return f"<Evaluation: {_plain(self.n_rows)} rows, {len(self.classes)} classes, {measures}>"

    def _repr_html_(self) -> str:
        heads = ("", f"{_plain(self.n_rows)} rows", "95 % interval", "baseline")
        cells = [(each, "th") for each in [heads]] + [(each, "td") for each in self.lines()]
        rows = ("".join(f"<{tag}>{cell}</{tag}>" for cell in line) for line, tag in cells)
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{table}</table><p>{' '.join(self.remarks())}</p>"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and None, ready for JSON."""
        labelled, refused = self.n_labelled, self.refused
        measures = {name: getattr(self, name).tolist() for name in ("precision", "recall", "f1")}
        return {
            "n_rows": _plain(self.n_rows),
            **{name: getattr(self, name) for name in _TITLES},
            "baseline": self.baseline,
            "intervals": {name: None if each is None else [*each] for name, each in self.intervals.items()},
            "classes": [
                {
                    "label": label,
                    "n_rows": _plain(labelled[c]),
                    **({} if refused is None else {"refused": _plain(refused[c])}),
                    **{name: None if np.isnan(each[c]) else each[c] for name, each in measures.items()},
                }
                for c, label in enumerate(self.classes)
            ],
            "confusion": self.confusion.tolist(),
            "reliability": [each._replace(n_rows=_plain(each.n_rows))._asdict() for each in self.reliability],
        }


def evaluate(model: Any, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Evaluation:
    """Evaluate a fitted classifier on labelled rows.

    Parameters
    ----------
    model : SharedKernelClassifier
        A fitted classifier; any object with `classes_` and `predict_proba` works.
    X : array-like of shape (n, M)
        Rows that were not used for training, of any kind that `fit` takes.
    y : array-like of shape (n,), default=None
        Their labels; for rows in a file also the name of a column. None only for rows opened with labels.
    sample_weight : array-like of shape (n,), default=None
        How often each row counts; None counts each once.

    Returns
    -------
    Evaluation
        The measures.

    Raises
    ------
    ValueError
        If a label is not one of the model's classes, X and y differ in length, or all weights are zero.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.report import evaluate
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SharedKernelClassifier(random_state=0).fit(X[::2], y[::2])
    >>> found = evaluate(model, X[1::2], y[1::2])
    >>> found.n_rows, round(found.accuracy, 2)
    (75, 0.97)
    """
    given = enter(model, X, y, sample_weight)
    predictions = _predict(model, given.X)
    codes = given.codes(len(predictions.probabilities))
    return _measures(model.classes_, predictions, codes, given.weights(len(codes)))


@dataclass(frozen=True)
class _Predictions:
    """Predictions for n rows of L classes."""

    probabilities: NDArray[np.float64]  # (n, L)
    is_outlier: Any  # (n,): whether each row is below the threshold; None if the classifier has none
    refused: bool  # whether `predict` returns no class for outliers


def _predict(model: Any, X: Any) -> _Predictions:
    probabilities = np.asarray(model.predict_proba(X))
    if outlier_threshold(model) == -np.inf:
        return _Predictions(probabilities, None, refused=False)
    return _Predictions(probabilities, outliers_in(model, X), refuses(model))


def _measures(
    classes: np.ndarray,
    predictions: _Predictions,
    codes: NDArray[np.int64],
    sample_weight: NDArray[np.float64] | None,
) -> Evaluation:
    """Return the measures of predictions for rows with class codes (n,) and weights (n,)."""
    probabilities, is_outlier = predictions.probabilities, predictions.is_outlier
    every, weights = np.arange(len(classes)), row_counts(sample_weight, len(codes))
    taken, outliers, refused = probabilities.argmax(axis=1), None, None
    if is_outlier is not None:
        outliers = float(np.average(is_outlier, weights=weights))
        if predictions.refused:
            taken = np.where(is_outlier, -1, taken)
            refused = np.bincount(codes[is_outlier], weights[is_outlier], len(every)).astype(weights.dtype)
    confusion = confusion_matrix(codes, taken, labels=every, sample_weight=weights)
    found, predicted = np.diagonal(confusion), confusion.sum(axis=0)
    labelled = confusion.sum(axis=1) + (0 if refused is None else refused)
    shares, accuracy = labelled / labelled.sum(), float(np.average(taken == codes, weights=weights))
    values, intervals = bootstrap(codes, taken, probabilities, weights)
    return Evaluation(
        n_rows=weights.sum().item(),
        classes=tuple(str(label) for label in classes.tolist()),
        accuracy=accuracy,
        log_loss=values["log_loss"],
        macro_f1=values["macro_f1"],
        roc_auc=None if np.isnan(values["roc_auc"]) else values["roc_auc"],
        calibration_error=calibration_error(probabilities, codes, sample_weight=weights),
        confusion=confusion,
        precision=ratio(found, predicted),
        recall=ratio(found, labelled),
        f1=ratio(2 * found, labelled + predicted),
        baseline={"accuracy": float(shares.max()), "log_loss": float(entropy(shares))},
        intervals={"accuracy": wilson(accuracy, effective_rows(weights)), **intervals},
        reliability=reliability_bins(probabilities, codes, sample_weight=weights),
        outliers=outliers,
        refused=refused,
    )


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    folds: float = 5,
    random_state: int = 0,
    time_limit: float | None = None,
) -> tuple[Evaluation, list[float]]:
    """Evaluate a classifier by cross-validation in stratified folds, or on one share of rows held out.

    `folds` is a number of folds, or below 1 the share of rows to hold out of a single fit. Rows X (n, M),
    labels y (n,) and weights (n,) are of any kind that `fit` takes; files are read whole. NaN or None marks a
    row without a label. Such rows, and the only row of a class, are never held out; rows of weight zero are
    left out. Return the evaluation of all held-out rows together, whose probabilities and refusals come from
    different fits, and the accuracy of each fit.
    With a `time_limit` in seconds, each search gets an equal part of the time that is left.
    Its intervals are those of these predictions; they leave out that other rows would have given other fits.
    """
    if not (0.0 < folds < 1.0 or (folds >= 2 and folds == int(folds))):
        raise ValueError(f"folds is a number of folds from 2 on, or a share between 0 and 1; got {folds!r}.")
    # Encode the columns of a data frame once, as those of files.
    rows = enter(clone(estimator), open_rows(X) if is_frame(X) else X, y, sample_weight).in_memory()
    X, n_rows = rows.X, len(rows.X)
    y, sample_weight = rows.labels(n_rows, unlabelled=True), rows.weights(n_rows)
    if sample_weight is not None and not sample_weight.all():
        # Rows of weight zero count nowhere: a fold must not rely on them.
        kept = np.flatnonzero(sample_weight)
        X, y, sample_weight = X[kept], y[kept], sample_weight[kept]
    classes, codes = number_labels(y)
    if not len(rows_to_divide(codes)):
        weighted = "" if sample_weight is None else " of positive weight"
        raise ValueError(f"no row can be held out: each of the {len(classes)} classes has one row{weighted}.")
    if folds < 1:
        splits = [single_split(codes, math.ceil(folds * np.count_nonzero(codes >= 0)), random_state)]
    else:
        splits = stratified_folds(codes, int(folds), random_state)
    found, accuracies = [], []
    ends = None if time_limit is None else time.monotonic() + time_limit
    with progress_bar("cross-validating", len(splits)) as progress:
        for number, (training, held) in enumerate(splits):
            # Pipelines take no weights under this name.
            weighted_fit, weighted_score = (
                {} if sample_weight is None else {"sample_weight": sample_weight[part]}
                for part in (training, held)
            )
            model = clone(estimator)
            if ends is not None:
                left = max(ends - time.monotonic(), 0.0)
                model.set_params(time_limit=left / (len(splits) - number))
            model.fit(X[training], y[training], **weighted_fit)
            accuracies.append(float(model.score(X[held], classes[codes[held]], **weighted_score)))
            found.append(_predict(model, X[held]))
            progress(f"{number + 1} of {len(splits)} fits")
    every = np.concatenate([held for _, held in splits])
    # Every fit has its own threshold.
    together = _Predictions(
        np.concatenate([part.probabilities for part in found]),
        None if found[0].is_outlier is None else np.concatenate([part.is_outlier for part in found]),
        found[0].refused,
    )
    weights = None if sample_weight is None else sample_weight[every]
    return _measures(model.classes_, together, codes[every], weights), accuracies


def _plain(count: Any) -> float:
    """Return a number of rows without the rounding errors of a sum of weights."""
    return int(count) if isinstance(count, (int, np.integer)) else float(f"{count:.12g}")


def evaluation_page(evaluation: Evaluation, *, title: str) -> str:
    """Return the page of an evaluation: one HTML file that opens offline and fetches nothing.

    It shows the measures, the confusion matrix and the reliability of predictions, see `evaluate`. The same
    arguments give the same characters.
    """
    return render_page("evaluation.html.j2", evaluation_data(evaluation, title=title))


def evaluation_data(evaluation: Evaluation, *, title: str) -> dict[str, Any]:
    """Return the contents of the page as plain values."""
    names, counts = evaluation.classes, evaluation.confusion
    labelled, refused = evaluation.n_labelled, evaluation.refused
    return {
        **evaluation.as_dict(),
        "lines": evaluation.lines(),
        "remarks": " ".join(evaluation.remarks()),
        "title": title,
        "n_wrong": _plain(counts.sum() - np.trace(counts)),
        "n_refused": None if refused is None else _plain(refused.sum()),
        "mistakes": [
            {
                "true": names[i],
                "predicted": names[j],
                "count": count,
                "share": f"{100.0 * count / labelled[i]:.1f} %",
            }
            for i, j, count in evaluation.mistakes()
        ],
    }
