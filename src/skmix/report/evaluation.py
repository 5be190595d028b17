"""Evaluation of a fitted classifier on labelled rows, and its page."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.metrics import confusion_matrix

from ..data import Source, open_rows
from ..data.labels import all_unlabelled, code_labels, number_labels, typed
from ..metrics import ReliabilityBin, calibration_error, effective_rows, reliability_bins, row_counts, wilson
from ..model.bags import Bags, correlation_of, rows_in_bags
from ..model.callbacks import progress_bar
from ..model.checks import warn_caller
from ..model.frames import is_frame
from ..model.holdout import rows_to_divide, single_split, stratified_folds
from ..model.rows import Rows, enter
from .description import describe
from .intervals import FloatArray, Interval, bootstrap, outwards, ratio
from .prediction import outlier_threshold, outliers, refuses
from .rendering import HeatCell, in_words, render_page

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
    unit : {'rows', 'bags'}
        What is counted.
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
    unit: str = "rows"

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
        return f"<Evaluation: {_plain(self.n_rows)} {self.unit}, {len(self.classes)} classes, {measures}>"

    def _repr_html_(self) -> str:
        heads = ("", f"{_plain(self.n_rows)} {self.unit}", "95 % interval", "baseline")
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


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: ArrayLike | None = None,
    *,
    bags: ArrayLike | None = None,
) -> Evaluation:
    """Evaluate a fitted classifier on labelled rows, or on bags of them.

    Parameters
    ----------
    model : SharedKernelClassifier
        A fitted classifier; any object with `classes_` and `predict_proba` works.
    X : array-like of shape (n, M)
        Rows that were not used for training, of any kind that `fit` takes.
    y : array-like of shape (n,), default=None
        Their labels; for rows in a file also the name of a column. None only for rows opened with labels.
        Rows without a label are left out, with a warning.
    sample_weight : array-like of shape (n,), default=None
        How often each row counts; None counts each once.
    bags : array-like of shape (n,) or str, default=None
        Identifier of the bag of each row, or the name of a column: bags are predicted, see
        `SharedKernelClassifier.predict_bags`, and each counts once. All rows of a bag have the same label.

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
    >>> evaluation = evaluate(model, X[1::2], y[1::2])
    >>> evaluation.n_rows, round(evaluation.accuracy, 2)
    (75, 0.97)
    """
    if bags is not None:
        return _evaluate_bags(model, *rows_in_bags(model, X, y, sample_weight, bags))
    rows = enter(model, X, y, sample_weight).with_columns_of_fit()
    predicted = _Predictions.of(model, rows.X)
    n_rows = len(predicted.probabilities)
    column = rows.X.label if isinstance(rows.X, Source) else None
    name = "y" if column is None else f"column {column!r}"
    labels = rows.labels(n_rows, unlabelled=True)
    codes = code_labels(labels, model.classes_, n_rows, unlabelled=True, name=name)
    weights, known = rows.weights(n_rows), codes >= 0
    if not known.any():
        raise all_unlabelled(n_rows, rows.table)
    if not known.all():
        where = "" if column is None else f" in {column!r}"
        n_unknown = np.count_nonzero(~known)
        warn_caller(f"{n_unknown} of {n_rows} rows have no label{where} and are left out.")
        predicted, codes = predicted.rows(known), codes[known]
        weights = None if weights is None else weights[known]
    return _measures(model.classes_, predicted, codes, weights)


def _evaluate_bags(model: Any, rows: Rows, names: Any) -> Evaluation:
    """Measures of predictions for the bags of rows with labels."""
    n_rows = len(rows.X)
    found = Bags.of(model, rows.X, names, rows.weights(n_rows))
    predicted = _Predictions(np.exp(found.log_posteriors(correlation_of(model))), None, refused=False)
    measures = _measures(model.classes_, predicted, found.of_rows(rows.codes(n_rows)), None)
    return replace(measures, unit="bags")


@dataclass(frozen=True)
class _Predictions:
    """Predictions for n rows of L classes."""

    probabilities: FloatArray  # (n, L)
    is_outlier: Any  # (n,): whether each row is below the threshold; None if the classifier has none
    refused: bool  # whether `predict` returns no class for outliers

    @classmethod
    def of(cls, model: Any, X: Any) -> _Predictions:
        probabilities = np.asarray(model.predict_proba(X))
        if outlier_threshold(model) == -np.inf:
            return cls(probabilities, None, refused=False)
        return cls(probabilities, outliers(model, X), refuses(model))

    @classmethod
    def together(cls, parts: Sequence[_Predictions]) -> _Predictions:
        """Predictions of several fits, each with a threshold of its own."""
        first = parts[0]
        return cls(
            np.concatenate([part.probabilities for part in parts]),
            None if first.is_outlier is None else np.concatenate([part.is_outlier for part in parts]),
            first.refused,
        )

    def rows(self, chosen: NDArray[np.bool_]) -> _Predictions:
        is_outlier = None if self.is_outlier is None else self.is_outlier[chosen]
        return replace(self, probabilities=self.probabilities[chosen], is_outlier=is_outlier)


def _measures(
    classes: NDArray[Any], predicted: _Predictions, codes: NDArray[np.int64], sample_weight: Any
) -> Evaluation:
    """Measures of predictions for rows with class codes (n,) and weights (n,)."""
    probabilities, is_outlier = predicted.probabilities, predicted.is_outlier
    n_classes, weights = len(classes), row_counts(sample_weight, len(codes))
    decisions, share, refused = probabilities.argmax(axis=1), None, None
    if is_outlier is not None:
        share = float(np.average(is_outlier, weights=weights))
        if predicted.refused:
            decisions = np.where(is_outlier, -1, decisions)
            refused = np.bincount(codes[is_outlier], weights[is_outlier], n_classes).astype(weights.dtype)
    confusion = confusion_matrix(codes, decisions, labels=np.arange(n_classes), sample_weight=weights)
    right, n_predicted = np.diagonal(confusion), confusion.sum(axis=0)
    n_labelled = confusion.sum(axis=1) + (0 if refused is None else refused)
    shares, accuracy = n_labelled / n_labelled.sum(), float(np.average(decisions == codes, weights=weights))
    values, intervals = bootstrap(codes, decisions, probabilities, weights)
    return Evaluation(
        n_rows=weights.sum().item(),
        classes=tuple(str(label) for label in classes.tolist()),
        accuracy=accuracy,
        log_loss=values["log_loss"],
        macro_f1=values["macro_f1"],
        roc_auc=None if np.isnan(values["roc_auc"]) else values["roc_auc"],
        calibration_error=calibration_error(probabilities, codes, sample_weight=weights),
        confusion=confusion,
        precision=ratio(right, n_predicted),
        recall=ratio(right, n_labelled),
        f1=ratio(2 * right, n_labelled + n_predicted),
        baseline={"accuracy": float(shares.max()), "log_loss": float(entropy(shares))},
        intervals={"accuracy": wilson(accuracy, effective_rows(weights)), **intervals},
        reliability=reliability_bins(probabilities, codes, sample_weight=weights),
        outliers=share,
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
    y, weights = rows.labels(n_rows, unlabelled=True), rows.weights(n_rows)
    if weights is not None and not weights.all():
        # Rows of weight zero count nowhere: a fold must not rely on them.
        counted = np.flatnonzero(weights)
        X, y, weights = X[counted], y[counted], weights[counted]
    classes, codes = number_labels(y)
    if not len(rows_to_divide(codes)):
        weighted = "" if weights is None else " of positive weight"
        raise ValueError(f"no row can be held out: each of the {len(classes)} classes has one row{weighted}.")
    if folds < 1:
        splits = [single_split(codes, math.ceil(folds * np.count_nonzero(codes >= 0)), random_state)]
    else:
        splits = stratified_folds(codes, int(folds), random_state)
    parts, accuracies = [], []
    ends = None if time_limit is None else time.monotonic() + time_limit
    with progress_bar("cross-validating", len(splits)) as progress:
        for number, (training, held) in enumerate(splits):
            model = clone(estimator)
            if ends is not None:
                left = max(ends - time.monotonic(), 0.0)
                model.set_params(time_limit=left / (len(splits) - number))
            # Pipelines take no weights under this name.
            of_fit = {} if weights is None else {"sample_weight": weights[training]}
            of_score = {} if weights is None else {"sample_weight": weights[held]}
            model.fit(X[training], y[training], **of_fit)
            accuracies.append(float(model.score(X[held], classes[codes[held]], **of_score)))
            parts.append(_Predictions.of(model, X[held]))
            progress(f"{number + 1} of {len(splits)} fits")
    tested = np.concatenate([held for _, held in splits])
    weights = None if weights is None else weights[tested]
    return _measures(model.classes_, _Predictions.together(parts), codes[tested], weights), accuracies


def note_quality(model: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> None:
    """Keep in a fitted classifier its accuracy on its training rows X (n, M) with labels y (n,).

    `describe` has it until the next fit, and the model's file too. Rows without a label are left out.
    """
    rows = enter(model, X, y, sample_weight)
    labels = rows.labels(len(rows.X), unlabelled=True)
    weights, known = rows.weights(len(labels)), number_labels(labels)[1] >= 0
    of_known = {} if weights is None else {"sample_weight": weights[known]}
    accuracy = float(model.score(rows.X[known], typed(labels[known]), **of_known))
    quality = {"log_likelihood": describe(model)["log_likelihood"], "training_accuracy": accuracy}
    model.quality_ = {**quality, "tested": None}


def _plain(count: Any) -> float:
    """Return a number of rows without the rounding errors of a sum of weights."""
    return int(count) if isinstance(count, (int, np.integer)) else float(f"{count:.12g}")


def evaluation_page(evaluation: Evaluation, *, title: str) -> str:
    """Return the page of an evaluation: one HTML file that opens offline and fetches nothing.

    It shows the measures, the confusion matrix and the reliability of predictions, see `evaluate`. The same
    arguments give the same characters.
    """
    confusion, refused = evaluation.confusion, evaluation.refused
    names, n_labelled = evaluation.classes, evaluation.n_labelled
    content = {
        **evaluation.as_dict(),
        "title": title,
        "unit": evaluation.unit,
        "lines": evaluation.lines(),
        "remarks": " ".join(evaluation.remarks()),
        "n_wrong": _plain(confusion.sum() - np.trace(confusion)),
        "n_refused": None if refused is None else _plain(refused.sum()),
        "n_predicted": [_plain(count) for count in confusion.sum(axis=0)],
        "matrix": [(name, _heat_cells(evaluation, true)) for true, name in enumerate(names)],
        "mistakes": [
            (names[true], names[taken], count, f"{100.0 * count / n_labelled[true]:.1f} %")
            for true, taken, count in evaluation.mistakes()
        ],
    }
    return render_page("evaluation.html.j2", content)


def _heat_cells(evaluation: Evaluation, true: int) -> list[HeatCell]:
    """The line of a true class in the confusion matrix; shades are shares of the class."""
    names, n_labelled = evaluation.classes, evaluation.n_labelled[true]
    cells = []
    for taken, count in enumerate(map(_plain, evaluation.confusion[true])):
        what = "recognised" if taken == true else f"predicted as {names[taken]}"
        share = count / n_labelled if n_labelled else 0.0
        text = f"{count} rows of {names[true]} {what}, {100.0 * share:.1f} % of {_plain(n_labelled)}"
        cells.append(HeatCell.of(str(count), share, text, is_wrong=taken != true))
    return cells
