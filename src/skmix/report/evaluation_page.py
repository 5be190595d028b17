"""The page of an evaluation: measures, confusion matrix and reliability."""

from __future__ import annotations

from typing import Any

import numpy as np

from skmix.report.evaluation import Evaluation
from skmix.report.rendering import decimals, render_page, text


def evaluation_page(evaluation: Evaluation, *, title: str) -> str:
    """Return the page of an evaluation: one HTML file that opens offline and fetches nothing.

    Parameters
    ----------
    evaluation : Evaluation
        Measures, confusion matrix and reliability of predictions, from `evaluate`.
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
    """Return the contents of the page as plain values."""
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
    sections = ("summary", "Summary"), ("confusion", "Confusion matrix"), ("classes", "Classes")
    return {
        "title": title,
        "contents": [{"id": key, "title": name} for key, name in (*sections, ("reliability", "Reliability"))],
        "lead": f"{evaluation.n_rows} rows of {len(names)} classes; {n_wrong} "
        f"{'is' if n_wrong == 1 else 'are'} misclassified.",
        "facts": [
            {"name": name, "value": text(value, 4), "note": note} for name, (value, note) in measures.items()
        ],
        "n_rows": int(evaluation.n_rows),
        "classes": names,
        "confusion": counts.astype(int).tolist(),
        "confusions": [
            {
                "true": names[i],
                "predicted": names[j],
                "count": count,
                "share": f"{100.0 * count / counts[i].sum():.1f} %",
            }
            for i, j, count in evaluation.mistakes()
        ],
        "per_class": [
            {
                "name": name,
                "rows": int(counts[c].sum()),
                "predicted": int(counts[:, c].sum()),
                **{
                    each: decimals(getattr(evaluation, each)[c], 4) for each in ("precision", "recall", "iou")
                },
            }
            for c, name in enumerate(names)
        ],
        "reliability": [
            {"confidence": decimals(sure, 5), "accuracy": decimals(right, 5), "count": int(count)}
            for sure, right, count in evaluation.reliability
        ],
    }
