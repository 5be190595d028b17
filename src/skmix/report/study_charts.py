"""Data of the charts on the study's page, counted from the runs, and of its explorer of kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from skmix.experiments.paper.published_values import PublishedValues
from skmix.experiments.paper.records import (
    GroupModel,
    Run,
    StudyData,
    StudyResults,
    counted_in_sweep,
    statistics,
)
from skmix.experiments.paper.variants import (
    FEATURES,
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
    variant_of,
)
from skmix.report.rendering import decimals, line_styles, significant
from skmix.report.study_text import LOW, REASONS, Main, failed_in_paper

BIN = 0.01
"""Width of the histograms' bins."""
_ROWS_PER_DIGIT = 150
"""Training rows in the explorer: more would make the page larger, but not clearer."""
_SHOWN_FIRST = "4D"
"""The smallest variant whose kernels the paper draws."""


def main_runs(results: StudyResults) -> dict[tuple[str, Method], list[Run]]:
    """Return the runs at the paper's K by variant and method, both in the study's order."""
    found: dict[tuple[str, Method], list[Run]] = {
        (variant.name, method): [] for variant in VARIANTS for method in METHODS
    }
    for run in sorted(results.runs, key=lambda run: run.run):
        if run.n_kernels == MAIN_KERNELS:
            found[run.variant, run.method].append(run)
    return {key: runs for key, runs in found.items() if runs}


def variants_of(main: Main) -> list[str]:
    """Return the names of the variants that have runs, in the study's order."""
    return list(dict.fromkeys(variant for variant, _ in main))


def distributions(main: Main, paper: PublishedValues) -> list[dict[str, Any]]:
    """Return the histogram of accuracies of each variant and method, and its summary."""
    return [
        {
            "name": variant,
            "paper": {
                "n": MAIN_RUNS,
                "failed": failed_in_paper(paper, variant),
                "median": paper.ok_runs["Med Acc", variant],
                "max": paper.max_accuracy[variant],
            },
            "ways": {
                method: _histogram(main[variant, method]) for method in METHODS if (variant, method) in main
            },
        }
        for variant in variants_of(main)
    ]


def _histogram(runs: Sequence[Run]) -> dict[str, Any]:
    accuracies = np.array([run.accuracy for run in runs])
    # Many accuracies lie exactly on a border between bins; they count in the upper bin.
    bins = np.floor(accuracies[np.isfinite(accuracies)] / BIN + 1e-6).astype(int)
    counts = Counter(np.minimum(bins, round(1 / BIN) - 1).tolist())
    return {
        "n": len(runs),
        "failed": sum(run.failed for run in runs),
        "counts": [[number, counts[number]] for number in sorted(counts)],
    }


def sweep(results: StudyResults, paper: PublishedValues) -> dict[str, Any]:
    """Return mean accuracy and lost runs against K, for the variants of the sweep that were run."""
    found: dict[tuple[str, int, Method], list[Run]] = {}
    for run in results.runs:
        # At the paper's own K the sweep's runs are the first of the main study.
        if run.variant in SWEEP_VARIANTS and run.n_kernels in SWEEP_KERNELS and run.run < SWEEP_RUNS:
            found.setdefault((run.variant, run.n_kernels, run.method), []).append(run)
    swept = {variant for variant, n_kernels, _ in found if n_kernels != MAIN_KERNELS}
    return {
        "kernels": list(SWEEP_KERNELS),
        "variants": [
            {
                "name": variant,
                "paper": [
                    _point(K, printed.mean, printed.std, SWEEP_RUNS - printed.counted, SWEEP_RUNS)
                    for K in SWEEP_KERNELS
                    if (printed := paper.sweep.get((K, variant))) is not None
                ],
                "ways": {
                    method: [
                        _rerun_point(K, found[variant, K, method])
                        for K in SWEEP_KERNELS
                        if (variant, K, method) in found
                    ]
                    for method in METHODS
                },
            }
            for variant in SWEEP_VARIANTS
            if variant in swept
        ],
    }


def _point(n_kernels: int, mean: float, std: float, lost: int, n_runs: int) -> dict[str, Any]:
    return {"K": n_kernels, "mean": mean, "std": std, "lost": lost, "n": n_runs}


def _rerun_point(n_kernels: int, runs: Sequence[Run]) -> dict[str, Any]:
    counted = counted_in_sweep(runs)
    found = statistics(counted)
    mean, std = (decimals(found.get(name, math.nan), 4) for name in ("Mean Acc", "Std Acc"))
    return _point(n_kernels, mean, std, len(runs) - len(counted), len(runs))


def confusions(
    results: StudyResults, variants: Iterable[str], paper: PublishedValues
) -> list[dict[str, Any]]:
    """Return the confusion matrices (10, 10) of the best runs, the paper's and ours."""
    return [
        {
            "name": variant,
            "paper": _confusion(paper.confusion[variant]),
            "ways": {
                method: {**_confusion(best.run.confusion), "run": best.run.run}
                for method in METHODS
                if (best := results.best.get((variant, method))) is not None
            },
        }
        for variant in variants
    ]


def _confusion(matrix: Any) -> dict[str, Any]:
    counts = np.asarray(matrix)
    return {"matrix": counts.tolist(), "accuracy": decimals(np.trace(counts) / counts.sum(), 4)}


def failures(main: Main, paper: PublishedValues) -> dict[str, Any]:
    """Return how often each reason ended a run of the published method, by variant."""
    variants = [variant for variant in variants_of(main) if (variant, "published") in main]
    counts = {
        variant: Counter(run.reason or LOW for run in main[variant, "published"] if run.failed)
        for variant in variants
    }
    others = sorted({reason for counter in counts.values() for reason in counter} - set(REASONS))
    reasons = []
    for reason in [*REASONS, *others]:
        found = [counts[variant][reason] for variant in variants]
        if sum(found) or reason != LOW:
            explanation = REASONS.get(reason, "")
            reasons.append({"name": reason, "explanation": explanation, "counts": found, "total": sum(found)})
    totals = [counts[variant].total() for variant in variants]
    in_paper = [failed_in_paper(paper, variant) for variant in variants]
    return {
        "variants": variants,
        "reasons": reasons,
        "totals": totals,
        "total": sum(totals),
        "runs": sum(len(main[variant, "published"]) for variant in variants),
        "paper": in_paper,
        "paper_total": sum(in_paper),
        "paper_runs": MAIN_RUNS,
    }


def explorer(results: StudyResults, variants: Sequence[str]) -> dict[str, Any]:
    """Return the mixtures of the best runs, the rows they were fitted to, and line styles."""
    labels = results.data.train_labels
    rows, n_rows = _rows(results.data)
    return {
        "variants": [
            {
                "name": name,
                "groups": [list(group) for group in variant_of(name).groups],
                "dithered": variant_of(name).dithered or results.settings.dither == "all",
                "ways": {
                    method: {
                        "run": best.run.run,
                        "accuracy": decimals(best.run.accuracy, 4),
                        "groups": [_mixture(group) for group in best.groups],
                    }
                    for method in METHODS
                    if (best := results.best.get((name, method))) is not None
                },
            }
            for name in variants
            if any((name, method) in results.best for method in METHODS)
        ],
        "first": _SHOWN_FIRST,
        "rows": rows,
        "note": "" if n_rows == len(labels) else f"{n_rows} of the {len(labels)} training images are drawn.",
        **line_styles(),
    }


def _mixture(group: GroupModel) -> dict[str, Any] | None:
    """Return a mixture, with covariances as flat upper triangles; None if it is not finite."""
    if not all(np.isfinite(array).all() for array in (group.weights_, group.means_, group.covariances_)):
        return None
    upper = np.triu_indices(group.means_.shape[1])
    return {
        "weights": decimals(group.weights_, 4),
        "prior": decimals(group.class_prior_, 4),
        "means": significant(group.means_, 5),
        "covariances": significant(group.covariances_[:, upper[0], upper[1]], 5),
    }


def _rows(data: StudyData) -> tuple[dict[str, Any], int]:
    """Return the first training rows of each digit, and their number."""
    labels = data.train_labels
    first = [np.flatnonzero(labels == digit)[:_ROWS_PER_DIGIT] for digit in np.unique(labels)]
    kept = np.sort(np.concatenate(first))
    rows = {
        "features": list(FEATURES),
        "labels": labels[kept].tolist(),
        "plain": decimals(data.train_features[kept], 4),
        "dithered": decimals(data.train_dithered[kept], 4),
    }
    return rows, len(kept)
