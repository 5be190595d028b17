"""What the explorer draws: the kernels of the best runs, and the training rows under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skmix.experiments.paper.records import BestRun, GroupModel, StudyData, StudyResults
from skmix.experiments.paper.variants import FEATURES, METHODS, variant_of
from skmix.plots import kernels
from skmix.report.numbers import decimals, significant

_ROWS_PER_DIGIT = 150
"""More rows than these neither fit a small page nor tell anything more."""

_SHOWN_FIRST = "4D"
"""The smallest variant whose kernels the paper draws."""


def explorer(results: StudyResults, variants: Sequence[str]) -> dict[str, Any]:
    """Return the best runs' mixtures and the rows they were fitted to.

    Parameters
    ----------
    results : StudyResults
        The study.
    variants : sequence of str
        Variants to offer.

    Returns
    -------
    dict
        ``variants``, each with its feature groups and a mixture for each method; ``rows``; the
        ``styles`` of lines.
    """
    rows, shown, total = _rows(results.data)
    offered = [
        variant for variant in variants if any((variant, method) in results.best for method in METHODS)
    ]
    return {
        "variants": [_variant(results, variant) for variant in offered],
        "first": _SHOWN_FIRST,
        "rows": rows,
        "note": "" if shown == total else f"{shown} of the {total} training images are drawn.",
        **_line_styles(),
    }


def _variant(results: StudyResults, name: str) -> dict[str, Any]:
    variant = variant_of(name)
    return {
        "name": name,
        "groups": [list(group) for group in variant.groups],
        "dithered": variant.dithered or results.settings.dither == "all",
        "ways": {
            method: _best(results.best[name, method]) for method in METHODS if (name, method) in results.best
        },
    }


def _best(best: BestRun) -> dict[str, Any]:
    return {
        "run": best.run.run,
        "accuracy": decimals(best.run.accuracy, 4),
        "groups": [_mixture(group) for group in best.groups],
    }


def _mixture(group: GroupModel) -> dict[str, Any] | None:
    """Return a mixture, covariances as upper triangles row by row; None when it is not finite."""
    if not all(np.isfinite(array).all() for array in (group.weights_, group.means_, group.covariances_)):
        return None
    upper = np.triu_indices(group.means_.shape[1])
    return {
        "weights": decimals(group.weights_, 4),
        "prior": decimals(group.class_prior_, 4),
        "means": significant(group.means_, 5),
        "covariances": significant(group.covariances_[:, upper[0], upper[1]], 5),
    }


def _rows(data: StudyData) -> tuple[dict[str, Any], int, int]:
    labels = data.train_labels
    kept = np.sort(
        np.concatenate([np.flatnonzero(labels == digit)[:_ROWS_PER_DIGIT] for digit in np.unique(labels)])
    )
    rows = {
        "features": list(FEATURES),
        "labels": labels[kept].tolist(),
        "plain": decimals(data.train_features[kept], 4),
        "dithered": decimals(data.train_dithered[kept], 4),
    }
    return rows, len(kept), len(labels)


def _line_styles() -> dict[str, Any]:
    """Return the steps of weight and how a kernel's line is drawn in each, as the plots have it."""
    return {
        "steps": list(kernels.STEPS),
        "step_names": list(kernels.STEP_NAMES),
        "styles": {
            style: {"widths": list(kernels.WIDTHS[style]), "colours": list(kernels.COLOURS[style])}
            for style in ("paper", "accessible")
        },
    }
