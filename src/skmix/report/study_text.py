"""Sentences of the study's page, with the numbers of the study in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skmix.experiments.paper import claims
from skmix.experiments.paper.published_values import OK_RUNS, PublishedValues
from skmix.experiments.paper.records import Run, StudyResults
from skmix.experiments.paper.variants import MAIN_KERNELS, MAIN_RUNS, METHODS, Method
from skmix.report.rendering import mean, text

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
_TITLES: dict[Method, str] = {
    "published": "Published, rerun",
    "robust": "Robust",
    "class-wise": "Class-wise",
}

LOW = "finite, but wrong"
REASONS: dict[str, str] = {
    "constant feature": "a feature has the same value in all rows of a kernel (q3 is exactly 0 in nearly "
    "every 7), so the kernel’s variance there becomes 0 and its covariance singular.",
    "too few rows": "a kernel is left with no more rows than it has features, so their covariance is "
    "singular.",
    "overflow": "a covariance that rounding has made indefinite gives densities that grow without bound.",
    LOW: "the numbers stay finite, yet no more than half of the test images are recognised.",
}

SWEEP = (
    "Ten digits need ten kernels: with fewer, accuracy cannot be much above K/10. With more than ten the "
    "published method loses many of its runs, since each further kernel can become singular. "
    "As in the paper, means are over the runs with accuracy above one half; with K = 3, where "
    "none can be, over all."
)
MADE = (
    "All runs share one training and one test set and differ only in their starting points. Every start is "
    "derived from seed, variant, K, method and the number of the run, so that each run can be repeated by "
    "itself. Accuracy and mean IoU (the mean over the digits of the Jaccard index) are those of the test set."
)

_MIN_FAILED = 10
"""With fewer failed runs, means printed with three decimals are too coarse to infer theirs."""

Main = Mapping[tuple[str, Method], Sequence[Run]]


def failed_in_paper(paper: PublishedValues, variant: str) -> int:
    """Return how many of the paper's runs of a variant failed."""
    return MAIN_RUNS - int(paper.ok_runs[OK_RUNS, variant])


def sources(main: Main, variants: Sequence[str], paper: PublishedValues) -> list[dict[str, Any]]:
    """Return the headline numbers of the paper and of each method: failures, mean and best accuracy."""
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
    for method in METHODS:
        groups = [main[variant, method] for variant in variants if (variant, method) in main]
        if groups:
            rows.append(
                {
                    "key": method,
                    "title": _TITLES[method],
                    "failures": sum(run.failed for runs in groups for run in runs),
                    "runs": sum(map(len, groups)),
                    "mean": text(mean(mean(run.accuracy for run in runs) for runs in groups)),
                    "best": text(mean(max(run.accuracy for run in runs) for runs in groups)),
                }
            )
    return rows


def paragraphs(rows: Sequence[dict[str, Any]], variants: Sequence[str]) -> list[str]:
    """Return the summary: what the paper did, what was run again, and the results."""
    by_key = {row["key"]: row for row in rows}
    printed = by_key["paper"]
    number = f"{len(variants)} variants" if len(variants) != 1 else "one variant"
    sentences = [
        "The paper learns to read images of seven-segment digits with Gaussian kernels that all ten classes "
        f"share: each class has its own weights, the kernels are common to all. It tries {number} of its "
        "classifier, which differ in the features they see, each from many random starting points with K = "
        f"{MAIN_KERNELS} kernels, and reports that {printed['failures']} of {printed['runs']} runs failed."
    ]
    ran = []
    if row := by_key.get("published"):
        ran.append(
            f"With the published method, run again, {_fail(row)} and the mean accuracy is {row['mean']}, "
            f"where the paper has {printed['mean']}."
        )
    if row := by_key.get("robust"):
        ran.append(
            f"With the paper’s start on skmix’s engine, {_fail(row)}, and the mean accuracy is {row['mean']}."
        )
    if row := by_key.get("class-wise"):
        ran.append(
            f"With starting points taken from the classes’ own rows, skmix’s default, {_fail(row)}, and the "
            f"average run reaches {row['mean']}; the paper’s best runs average {printed['best']}."
        )
    return [*sentences, " ".join(ran)] if ran else sentences


def _fail(row: dict[str, Any]) -> str:
    failed = row["failures"]
    return f"{failed or 'none'} of {row['runs']} runs {'fails' if failed <= 1 else 'fail'}"


def failures(counted: Mapping[str, Any]) -> str:
    """Return the sentence above the table of reasons."""
    if not counted["runs"]:
        return "The published method was not run."
    if not counted["total"]:
        return f"None of the {counted['runs']} runs failed."
    leading = max(counted["reasons"], key=lambda reason: reason["total"])
    return (
        f"{counted['total']} of {counted['runs']} runs failed; the commonest reason, {leading['name']}, "
        f"ended {leading['total']} of them. In all cases a covariance became singular, after which every "
        "number is NaN. skmix bounds covariances from below, so that its runs cannot end this way."
    )


def differences(results: StudyResults, main: Main, paper: PublishedValues) -> list[dict[str, str]]:
    """Return where the published method, run again, differs from the paper, and the likely reasons."""
    rerun = {variant: runs for (variant, method), runs in main.items() if method == "published"}
    if not rerun:
        return []
    rows = [
        (
            f"{found.variant}: {found.quantity}",
            *(
                f"{100 * value:.1f} %" if found.quantity.startswith("share") else text(value)
                for value in (found.published, found.rerun)
            ),
            found.reason,
        )
        for found in claims.differences(results)
    ]
    rows += [
        *_failed_means(rerun, paper),
        (
            "Order of the confusion matrices",
            "said to be 1 … 9, 0",
            "0 … 9",
            "The paper’s code indexes by label + 1, so what it prints is in the order 0 … 9 too.",
        ),
        (
            "Mean accuracies of table 6",
            "said to be of the successful runs",
            "of all runs",
            "The printed means are those of table 1, which has all runs.",
        ),
    ]
    return [dict(zip(("what", "paper", "ours", "reason"), row, strict=True)) for row in rows]


def _failed_means(rerun: Mapping[str, Sequence[Run]], paper: PublishedValues) -> list[tuple[str, ...]]:
    """Compare the accuracy of failed runs with the value that tables 1 and 3 imply."""
    implied, ours = [], []
    for variant, runs in rerun.items():
        lost = failed_in_paper(paper, variant)
        if lost >= _MIN_FAILED:
            succeeded = (MAIN_RUNS - lost) * paper.ok_runs["Mean Acc", variant]
            implied.append((MAIN_RUNS * paper.all_runs["Mean Acc", variant] - succeeded) / lost)
        failed = [run.accuracy for run in runs if run.failed]
        if len(failed) >= _MIN_FAILED:
            ours.append(mean(failed))
    if not implied or not ours:
        return []
    return [
        (
            "Mean accuracy of a variant’s failed runs",
            f"{min(implied):.2f} to {max(implied):.2f}, from tables 1 and 3",
            f"{min(ours):.2f} to {max(ours):.2f}",
            "The listed code goes on with NaN, then answers the first class for every image and scores 0.10. "
            "The paper’s values fit runs that keep the parameters which entered the failing pass, as those "
            "here do.",
        )
    ]
