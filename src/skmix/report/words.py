"""The page's sentences, with the numbers of the study in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skmix.experiments.paper.published_values import OK_RUNS, PublishedValues
from skmix.experiments.paper.records import Run
from skmix.experiments.paper.variants import MAIN_KERNELS, MAIN_RUNS, METHODS, Method
from skmix.report.numbers import mean, text

METHOD_LABELS: dict[Method, str] = {
    "published": "published method",
    "robust": "robust",
    "class-wise": "class-wise",
}
METHOD_DESCRIPTIONS: dict[Method, str] = {
    "published": "the paper’s start and arithmetic, no safeguards",
    "robust": "the paper’s start on skmix’s engine",
    "class-wise": "skmix’s own start and engine",
}

REASONS: dict[str, str] = {
    "constant feature": "a feature has the same value in all rows of a kernel (q3 is exactly 0 in nearly "
    "every 7), so the kernel’s variance there becomes 0 and its covariance singular.",
    "too few rows": "a kernel is left with no more rows than it has features; their covariance is singular "
    "whatever they are.",
    "overflow": "a covariance that rounding has made indefinite gives densities that grow without bound.",
}

LOW = "finite, but wrong"
LOW_EXPLANATION = "the numbers stay finite, yet no more than half of the test images are recognised."

SWEEP = (
    "Ten digits need ten kernels: with fewer, accuracy cannot be much above K/10. With more than ten the "
    "published method loses many of its runs, since each further kernel can become singular. "
    "As in the paper, means are over the runs with accuracy above one half; with K = 3, where "
    "none can be, over all."
)

MADE = (
    "All runs share one training and one test set and differ in their starting points alone. Every start is "
    "derived from seed, variant, K, method and the number of the run, so that each run can be repeated by "
    "itself. Accuracy and mean IoU (the mean over the digits of the Jaccard index) are those of the test set."
)

Main = Mapping[tuple[str, Method], Sequence[Run]]


def failed_in_paper(paper: PublishedValues, variant: str) -> int:
    """Return how many of the paper's runs of a variant failed."""
    return MAIN_RUNS - int(paper.ok_runs[OK_RUNS, variant])


def sources(main: Main, variants: Sequence[str], paper: PublishedValues) -> list[dict[str, Any]]:
    """Return the headline of the paper and of each method: failures, mean and best accuracy."""
    rows = [
        {
            "key": "paper",
            "title": "Paper, as printed",
            "failures": sum(failed_in_paper(paper, variant) for variant in variants),
            "runs": MAIN_RUNS * len(variants),
            "mean": text(mean(paper.all_runs["Mean Acc", variant] for variant in variants)),
            "best": text(mean(paper.max_accuracy[variant] for variant in variants)),
        }
    ]
    titles = {"published": "Published method, rerun", "robust": "Robust", "class-wise": "Class-wise"}
    for method in METHODS:
        groups = [main[variant, method] for variant in variants if (variant, method) in main]
        if groups:
            rows.append(
                {
                    "key": method,
                    "title": titles[method],
                    "failures": sum(run.failed for runs in groups for run in runs),
                    "runs": sum(map(len, groups)),
                    "mean": text(mean(mean(run.accuracy for run in runs) for runs in groups)),
                    "best": text(mean(max(run.accuracy for run in runs) for runs in groups)),
                }
            )
    return rows


def paragraphs(rows: Sequence[dict[str, Any]], variants: Sequence[str]) -> list[str]:
    """Return the summary: what the paper did, what was run again, what came out."""
    by_key = {row["key"]: row for row in rows}
    printed = by_key["paper"]
    number = f"{len(variants)} variants" if len(variants) != 1 else "one variant"
    told = [
        "The paper learns to read images of seven-segment digits with Gaussian kernels that all ten classes "
        f"share: each class has its own weights, the kernels are common property. It tries {number} of its "
        f"classifier, which differ in the features they see, each from many random starting points with K = "
        f"{MAIN_KERNELS} kernels, and reports that {printed['failures']} of {printed['runs']} runs failed."
    ]
    ran = []
    if "published" in by_key:
        row = by_key["published"]
        ran.append(
            f"Run again the published method, {row['failures']} of {row['runs']} runs fail and the mean "
            f"accuracy is {row['mean']}, where the paper has {printed['mean']}."
        )
    if "robust" in by_key:
        row = by_key["robust"]
        ran.append(
            f"With the paper’s start on skmix’s engine, {_count(row['failures'])} of {row['runs']} "
            f"{'fails' if row['failures'] in (0, 1) else 'fail'}, and the mean accuracy is {row['mean']}."
        )
    if "class-wise" in by_key:
        row = by_key["class-wise"]
        ran.append(
            f"With starting points taken from the classes’ own rows, skmix’s default, "
            f"{_count(row['failures'])} of {row['runs']} {'fails' if row['failures'] in (0, 1) else 'fail'}, "
            f"and the average run reaches {row['mean']}; the paper’s luckiest runs average {printed['best']}."
        )
    return [*told, " ".join(ran)] if ran else told


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)


def failures(counted: Mapping[str, Any]) -> str:
    """Return the sentence over the table of reasons."""
    if not counted["runs"]:
        return "The published method was not run."
    if not counted["total"]:
        return f"None of the {counted['runs']} runs failed."
    leading = max(counted["reasons"], key=lambda reason: reason["total"])
    return (
        f"{counted['total']} of {counted['runs']} runs failed; the commonest reason, {leading['name']}, "
        f"ended {leading['total']} of them. Behind the reasons stands a covariance that became singular, "
        "after which every number is NaN. skmix bounds covariances from below, so that its runs cannot end "
        "this way."
    )
