"""What the charts show, counted from the runs: distributions, the sweep over K, confusions, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from skmix.experiments.paper.published_values import PublishedValues
from skmix.experiments.paper.records import Run, StudyResults
from skmix.experiments.paper.runs import counted_in_sweep, statistics
from skmix.experiments.paper.variants import (
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
)
from skmix.report.numbers import decimals
from skmix.report.words import LOW, LOW_EXPLANATION, REASONS, failed_in_paper

BIN = 0.01
"""Width of the histograms' bins."""


def main_runs(results: StudyResults) -> dict[tuple[str, Method], list[Run]]:
    """Return the runs at the paper's K by variant and method, both in the study's order."""
    found: dict[tuple[str, Method], list[Run]] = {
        (variant.name, method): [] for variant in VARIANTS for method in METHODS
    }
    for run in sorted(results.runs, key=lambda run: run.run):
        if run.n_kernels == MAIN_KERNELS:
            found[run.variant, run.method].append(run)
    return {key: runs for key, runs in found.items() if runs}


def variants_of(main: dict[tuple[str, Method], list[Run]]) -> list[str]:
    """Return the names of the variants that have runs, in the study's order."""
    return list(dict.fromkeys(variant for variant, _ in main))


def distributions(main: dict[tuple[str, Method], list[Run]], paper: PublishedValues) -> list[dict[str, Any]]:
    """Return for each variant and method the histogram of accuracies and what sums it up."""
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
    # Accuracies are whole numbers of images, so many lie exactly on a border; they belong above it.
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
                    {
                        "K": K,
                        "mean": printed.mean,
                        "std": printed.std,
                        "lost": SWEEP_RUNS - printed.counted,
                        "n": SWEEP_RUNS,
                    }
                    for K in SWEEP_KERNELS
                    if (printed := paper.sweep.get((K, variant))) is not None
                ],
                "ways": {
                    method: [
                        _point(K, found[variant, K, method])
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


def _point(n_kernels: int, runs: Sequence[Run]) -> dict[str, Any]:
    counted = counted_in_sweep(runs)
    found = statistics(counted)
    return {
        "K": n_kernels,
        "mean": decimals(found.get("Mean Acc", math.nan), 4),
        "std": decimals(found.get("Std Acc", math.nan), 4),
        "lost": len(runs) - len(counted),
        "n": len(runs),
    }


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


def failures(main: dict[tuple[str, Method], list[Run]], paper: PublishedValues) -> dict[str, Any]:
    """Return how often each reason ended a run of the published method, by variant."""
    variants = [variant for variant in variants_of(main) if (variant, "published") in main]
    counts = {
        variant: Counter(run.reason or LOW for run in main[variant, "published"] if run.failed)
        for variant in variants
    }
    named = [*REASONS, *sorted({reason for counter in counts.values() for reason in counter} - set(REASONS))]
    reasons = [
        {
            "name": reason,
            "explanation": LOW_EXPLANATION if reason == LOW else REASONS.get(reason, ""),
            "counts": [counts[variant][reason] for variant in variants],
            "total": sum(counts[variant][reason] for variant in variants),
        }
        for reason in named
    ]
    totals = [counts[variant].total() for variant in variants]
    in_paper = [failed_in_paper(paper, variant) for variant in variants]
    return {
        "variants": variants,
        "reasons": [reason for reason in reasons if reason["total"] or reason["name"] != LOW],
        "totals": totals,
        "total": sum(totals),
        "runs": sum(len(main[variant, "published"]) for variant in variants),
        "paper": in_paper,
        "paper_total": sum(in_paper),
        "paper_runs": MAIN_RUNS,
    }
