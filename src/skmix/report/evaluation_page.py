"""The page of an evaluation: how good a classifier's predictions and probabilities are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skmix.report.numbers import decimals, text
from skmix.report.rendering import render_page

_MOST_CONFUSIONS = 10


class Evaluation(Protocol):
    """What the page needs to know of an evaluation.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    classes : tuple of L str
        Names of the classes.
    accuracy, mean_iou, log_loss, calibration_error : float
        Measures over all rows.
    confusion : ndarray of shape (L, L)
        Counts; rows are true classes, columns predicted ones.
    precision, recall, iou : ndarray of shape (L,)
        Measures of each class; NaN where there are none.
    reliability : tuple of (confidence, accuracy, count)
        Mean probability of the predicted class, share of correct predictions and rows of each bin.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def classes(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def accuracy(self) -> float: ...  # noqa: D102
    @property
    def mean_iou(self) -> float: ...  # noqa: D102
    @property
    def log_loss(self) -> float: ...  # noqa: D102
    @property
    def calibration_error(self) -> float: ...  # noqa: D102
    @property
    def confusion(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def precision(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def recall(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def iou(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def reliability(self) -> Sequence[tuple[float, float, int]]: ...  # noqa: D102


def evaluation_page(evaluation: Evaluation, *, title: str) -> str:
    """Return the page of an evaluation: one HTML file that opens offline and fetches nothing.

    Parameters
    ----------
    evaluation : Evaluation
        Measures, confusion matrix and reliability of predictions.
    title : str
        Title of the page.

    Returns
    -------
    str
        The page. The same arguments give the same characters.
    """
    return render_page(
        "evaluation.html.j2",
        evaluation_data(evaluation, title=title),
        embedded=("classes", "confusion", "per_class", "reliability", "n_rows"),
        styles=("report.css", "pages.css"),
        scripts=("kit.js", "evaluation.js"),
    )


def evaluation_data(evaluation: Evaluation, *, title: str) -> dict[str, Any]:
    """Return what the page of an evaluation says, as plain values."""
    names = [str(name) for name in evaluation.classes]
    counts = np.asarray(evaluation.confusion)
    if counts.shape != (len(names), len(names)):
        raise ValueError(f"there are {len(names)} classes but the confusion matrix has shape {counts.shape}.")
    measures = {
        "accuracy": (evaluation.accuracy, "share of correct predictions"),
        "mean IoU": (evaluation.mean_iou, "mean over the classes of the Jaccard index"),
        "log-loss": (evaluation.log_loss, "mean of −log of the true class’s probability; 0 is best"),
        "calibration error": (
            evaluation.calibration_error,
            "mean distance of probability and share of correct predictions; 0 is best",
        ),
    }
    n_wrong = int(counts.sum() - np.trace(counts))
    return {
        "title": title,
        "contents": [
            {"id": "summary", "title": "Summary"},
            {"id": "confusion", "title": "Confusion matrix"},
            {"id": "classes", "title": "Classes"},
            {"id": "reliability", "title": "Reliability"},
        ],
        "lead": f"{evaluation.n_rows} rows of {len(names)} classes; {n_wrong} "
        f"{'is' if n_wrong == 1 else 'are'} taken for another class than theirs.",
        "facts": [
            {"name": name, "value": text(value, 4), "note": note} for name, (value, note) in measures.items()
        ],
        "n_rows": int(evaluation.n_rows),
        "classes": names,
        "confusion": [[int(count) for count in row] for row in counts],
        "confusions": _confusions(counts, names),
        "per_class": [
            {
                "name": name,
                "rows": int(counts[c].sum()),
                "predicted": int(counts[:, c].sum()),
                **{
                    measure: decimals(getattr(evaluation, measure)[c], 4)
                    for measure in ("precision", "recall", "iou")
                },
            }
            for c, name in enumerate(names)
        ],
        "reliability": [
            {"confidence": decimals(sure, 5), "accuracy": decimals(right, 5), "count": int(count)}
            for sure, right, count in evaluation.reliability
            if count > 0
        ],
    }


def _confusions(counts: NDArray[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the commonest mistakes, the most frequent first."""
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    found = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    pairs = [divmod(int(place), len(counts)) for place in found]
    return [
        {
            "true": names[i],
            "predicted": names[j],
            "count": int(counts[i, j]),
            "share": f"{100.0 * counts[i, j] / counts[i].sum():.1f} %",
        }
        for i, j in pairs
        if wrong[i, j] > 0
    ]
