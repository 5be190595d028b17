"""Claims of the study, checked on its results, and differences from the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from skmix.experiments.harness import Claim
from skmix.experiments.paper.published_values import OK_RUNS, published_values
from skmix.experiments.paper.records import Margin, Run, Settings, StudyResults
from skmix.experiments.paper.runs import Runs, counted_in_sweep
from skmix.experiments.paper.variants import (
    ENOUGH_RUNS,
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    Method,
)

OURS: tuple[Method, ...] = ("robust", "class-wise")

_MEDIAN_TOLERANCE = 0.02
# The paper's medians must be met in this many of its ten variants.
_MEDIANS_TO_MEET = 8
_BEHIND_BEST = 0.01
_LARGEST_STD = 0.01
_NEAR_SHARE = 0.05
# The one value of table 5 that no setting reproduces; it repeats another value.
_MISPRINTED = ("10D", 8)
_BEHIND_MAIN = 0.03
_BEYOND = 0.995
# Numbers of failures are of the same order if neither is more than this many times the other.
_SAME_ORDER = 3.0

Key = TypeVar("Key")


@dataclass(frozen=True)
class Difference:
    """Where the published method, run again, does not give the paper's numbers."""

    variant: str  # with K if it is not that of the main study
    quantity: str
    published: float
    rerun: float
    reason: str  # the likely one


def check_claims(results: StudyResults) -> tuple[Claim, ...]:
    """Check every claim for which there are enough runs; the claim on class-wise starts comes first."""
    runs = Runs(results.runs)
    checks = (_no_failures, _runs_hardly_differ, _published_medians, _published_failures, _sweep)
    return (
        *_average_is_best(results),
        *(claim for check in checks for claim in check(runs)),
        *_beyond(results),
    )


def headline(results: StudyResults) -> str:
    """Return one sentence on the class-wise start over all data sets; empty without enough runs."""
    if not results.margins:
        return ""
    seeds, n_runs, missed, worst = _over_seeds(results)
    n = len(results.margins)
    return (
        f"Over {seeds}, with {n_runs} runs of each variant and method, the mean class-wise run is at most "
        f"{_BEHIND_BEST} below the best robust run in {n - len(missed)} of {n} comparisons; the largest "
        f"distance is {worst.shortfall:.4f} ({worst.variant}, seed {worst.seed})."
    )


def _over_seeds(results: StudyResults) -> tuple[str, int, list[Margin], Margin]:
    """Return the data sets in words, the runs on each, comparisons that miss the target, and the worst."""
    seeds = sorted({margin.seed for margin in results.margins})
    words = f"data sets of seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"data of seed {seeds[0]}"
    # Accuracies are rounded: a distance of exactly the target must not miss it.
    missed = [margin for margin in results.margins if margin.shortfall > _BEHIND_BEST + 1e-9]
    worst = max(results.margins, key=lambda margin: margin.shortfall)
    return words, min(margin.n_runs for margin in results.margins), missed, worst


def differences(results: StudyResults) -> tuple[Difference, ...]:
    """List where the published method, run again, differs from the paper, with the likely reason.

    These are medians over the successful runs that differ by more than 0.02, shares of failed runs that
    differ by more than their sampling error, and in the sweep means that differ by more than 0.03 and shares
    of counted runs that differ by more than their sampling error.
    """
    runs = Runs(results.runs)
    published = published_values()
    found = []
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        ok = [run.accuracy for run in own if not run.failed]
        if len(own) < ENOUGH_RUNS or not ok:
            continue
        median, printed = float(np.median(ok)), published.ok_runs["Med Acc", name]
        if abs(median - printed) > _MEDIAN_TOLERANCE:
            reason = _median_reason(name, results.settings)
            found.append(Difference(name, "median accuracy of successful runs", printed, median, reason))
        lost, printed = 1.0 - len(ok) / len(own), 1.0 - published.ok_runs[OK_RUNS, name] / MAIN_RUNS
        if _differ(lost, len(own), printed, MAIN_RUNS):
            reason = _failure_reason(own, results.settings)
            found.append(Difference(name, "share of failed runs", printed, lost, reason))
    for (n_kernels, name), entry in published.sweep.items():
        own = runs.of(name, n_kernels, "published", SWEEP_RUNS)
        counted = counted_in_sweep(own)
        if len(own) < ENOUGH_RUNS or not counted or n_kernels == MAIN_KERNELS:
            continue
        label = f"{name}, K = {n_kernels}"
        mean = float(np.mean([run.accuracy for run in counted]))
        # With few runs counted the mean itself is uncertain by more than the tolerance.
        if abs(mean - entry.mean) > max(_BEHIND_MAIN, 3.0 * entry.std / np.sqrt(entry.counted)):
            reason = _sweep_reason(name, n_kernels, entry.counted, len(counted), len(own))
            found.append(Difference(label, "mean accuracy of counted runs", entry.mean, mean, reason))
        share, printed = len(counted) / len(own), entry.counted / SWEEP_RUNS
        if _differ(share, len(own), printed, SWEEP_RUNS):
            reason = "How many runs survive depends on the draw of the images."
            found.append(Difference(label, "share of runs counted", printed, share, reason))
    return tuple(found)


def _differ(share: float, n: int, other: float, n_other: int) -> bool:
    """Return whether two shares differ by more than three standard errors of their difference."""
    error = np.sqrt(share * (1.0 - share) / n + other * (1.0 - other) / n_other)
    return bool(abs(share - other) > 3.0 * error)


def _average_is_best(results: StudyResults) -> Iterator[Claim]:
    if results.margins:
        seeds, n_runs, missed, worst = _over_seeds(results)
        n = len(results.margins)
        by = [
            f"{each.variant} with seed {each.seed} by {each.shortfall - _BEHIND_BEST:.4f}" for each in missed
        ]
        yield Claim(
            f"class-wise: the mean run is as good as the best of {n_runs} robust runs, in every variant, "
            f"over {seeds}",
            f"at most {_BEHIND_BEST} below it",
            f"{n - len(missed)} of {n} comparisons; at most {worst.shortfall:.4f} below it "
            f"({worst.variant}, seed {worst.seed})",
            not missed,
            "The best run is selected by its accuracy on the test images, which favours it by chance where "
            "two digits cannot be distinguished." + (f" Missed: {', '.join(by)}." if by else ""),
        )


def _no_failures(runs: Runs) -> Iterator[Claim]:
    for method in OURS:
        some = [
            run
            for name in runs.variants
            for n_kernels in SWEEP_KERNELS
            if n_kernels >= MAIN_KERNELS
            for run in runs.of(name, n_kernels, method)
        ]
        if some:
            failed = [run for run in some if run.failed or run.reason]
            lowest = min(run.accuracy for run in some)
            yield Claim(
                f"{method}: no run fails at K >= {MAIN_KERNELS}",
                "0 failed",
                f"{len(failed)} of {len(some)}, lowest accuracy {lowest:.3f}",
                not failed,
            )


def _runs_hardly_differ(runs: Runs) -> Iterator[Claim]:
    accuracies = {
        name: [run.accuracy for run in runs.of(name, MAIN_KERNELS, "class-wise")] for name in runs.variants
    }
    spread = {name: float(np.std(own, ddof=1)) for name, own in accuracies.items() if len(own) >= ENOUGH_RUNS}
    if spread:
        widest = _argmax(spread)
        yield Claim(
            "class-wise: runs hardly differ, in any variant",
            f"standard deviation under {_LARGEST_STD}",
            f"at most {spread[widest]:.4f} ({widest})",
            spread[widest] < _LARGEST_STD,
        )


def _published_medians(runs: Runs) -> Iterator[Claim]:
    printed = published_values().ok_runs
    errors: dict[str, float] = {}
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        ok = [run.accuracy for run in own if not run.failed]
        if len(own) >= ENOUGH_RUNS and ok:
            errors[name] = float(np.median(ok)) - printed["Med Acc", name]
    if errors:
        met = [name for name, error in errors.items() if abs(error) <= _MEDIAN_TOLERANCE]
        needed = -(-_MEDIANS_TO_MEET * len(errors) // 10)
        others = ", ".join(f"{name} {errors[name]:+.3f}" for name in errors if name not in met)
        yield Claim(
            "published method: medians of the successful runs are those of table 3",
            f"within {_MEDIAN_TOLERANCE} in {needed} of {len(errors)} variants",
            f"{len(met)} of {len(errors)}" + (f"; not {others}" if others else ""),
            len(met) >= needed,
        )


def _published_failures(runs: Runs) -> Iterator[Claim]:
    printed = published_values().ok_runs
    lost = expected = 0.0
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        if len(own) >= ENOUGH_RUNS:
            lost += sum(run.failed for run in own)
            expected += len(own) * (1.0 - printed[OK_RUNS, name] / MAIN_RUNS)
    if expected:
        yield Claim(
            "published method: as many runs fail as in the paper, in order of magnitude",
            f"between a third and three times {expected:.0f}",
            f"{lost:.0f}",
            expected / _SAME_ORDER <= lost <= expected * _SAME_ORDER,
        )


def _sweep(runs: Runs) -> Iterator[Claim]:
    few = [n_kernels for n_kernels in SWEEP_KERNELS if n_kernels < MAIN_KERNELS]
    many = [n_kernels for n_kernels in SWEEP_KERNELS if n_kernels >= 15]
    names = [name for name in SWEEP_VARIANTS if name in runs.variants]
    printed = published_values().sweep
    for method in METHODS:
        # Also compared with table 5: in 10D, whose features separate fewer digits, its means are below K/10.
        errors = {
            (name, k): min(abs(mean - k / 10), abs(mean - printed[k, name].mean))
            for name in names
            for k in few
            if (name, k) != _MISPRINTED
            and (mean := _mean(counted_in_sweep(runs.of(name, k, method, SWEEP_RUNS)))) is not None
        }
        misprinted = _mean(counted_in_sweep(runs.of(*_MISPRINTED, method, SWEEP_RUNS)))
        if errors:
            name, k = _argmax(errors)
            as_printed = printed[_MISPRINTED[1], _MISPRINTED[0]].mean
            yield Claim(
                f"{method}: with K < {MAIN_KERNELS} kernels, accuracy near K/10 as published",
                f"within {_NEAR_SHARE} of K/10 or of table 5; 10D at K = 8 left out",
                f"at most {errors[name, k]:.3f} off ({name}, K = {k})",
                errors[name, k] <= _NEAR_SHARE,
                "Without 10D at K = 8, whose printed mean equals that at K = 10, perhaps a copying error: "
                + ("not run." if misprinted is None else f"{misprinted:.3f} here, {as_printed} printed."),
            )
    for method in OURS:
        some = [run for name in names for k in many for run in runs.of(name, k, method)]
        if some:
            lost = sum(run.failed or bool(run.reason) for run in some)
            yield Claim(
                f"{method}: no run lost at K = 15 and 18", "0 lost", f"{lost} of {len(some)}", lost == 0
            )
    for method, allowed in (("robust", 0.0), ("class-wise", _BEHIND_MAIN)):
        behind = {
            (name, k): at_main - mean
            for name in names
            for k in many
            if (at_main := _mean(runs.of(name, MAIN_KERNELS, method))) is not None
            and (mean := _mean(runs.of(name, k, method))) is not None
        }
        if behind:
            name, k = _argmax(behind)
            yield Claim(
                f"{method}: accuracy at K = 15 and 18 "
                + ("at least that of K = 10" if allowed == 0.0 else "close to that of K = 10"),
                f"at most {allowed} below it",
                f"{behind[name, k]:.4f} below it at worst ({name}, K = {k})"
                if behind[name, k] > 0
                else f"{-behind[name, k]:.4f} above it at least ({name}, K = {k})",
                behind[name, k] <= allowed,
            )


def _beyond(results: StudyResults) -> Iterator[Claim]:
    ours = [beyond for beyond in results.beyond if beyond.ours]
    if ours:
        best = max(ours, key=lambda beyond: beyond.accuracy)
        yield Claim(
            "beyond the paper's features: a shared-kernel classifier on the same images",
            f"accuracy of at least {_BEYOND}",
            f"{best.accuracy:.4f} ({best.name})",
            best.accuracy >= _BEYOND,
        )


def _argmax(values: Mapping[Key, float]) -> Key:
    return max(values, key=lambda key: values[key])


def _mean(runs: list[Run]) -> float | None:
    return float(np.mean([run.accuracy for run in runs])) if len(runs) >= ENOUGH_RUNS else None


def _median_reason(name: str, settings: Settings) -> str:
    if name == "13D" and settings.dither == "paper":
        return (
            "The quadrant masses of 13D were probably dithered too: with --dither all the median comes out "
            "as printed."
        )
    return "Another draw of the images: the paper's own are not known."


def _failure_reason(runs: list[Run], settings: Settings) -> str:
    constant = sum(run.reason == "constant feature" for run in runs)
    if settings.dither == "paper" and constant:
        return (
            f"{constant} of {len(runs)} runs end in a feature that is constant within a kernel (quadrant "
            "mass q3 is exactly 0 in nearly all sevens). Dithering zeros in every variant (--dither all) "
            "removes these, and the counts come closer to the printed ones: the paper probably did so."
        )
    few = sum(run.reason == "too few rows" for run in runs)
    return (
        f"{few} of {len(runs)} runs end in a kernel with no more rows than features. How many do depends on "
        "the draw of the images."
    )


def _sweep_reason(name: str, n_kernels: int, printed: int, counted: int, n_runs: int) -> str:
    if (name, n_kernels) == _MISPRINTED:
        return "The printed value equals that of K = 10: perhaps a copying error."
    return (
        "The mean depends on which runs survive, and that depends on the images: "
        f"{printed} of the paper's {SWEEP_RUNS} runs survive at this K, and {counted} of {n_runs} here."
    )
