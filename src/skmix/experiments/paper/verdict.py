"""What the study must show, checked on its results; and where a rerun differs from the paper, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skmix.experiments.paper.published_values import OK_RUNS, published_values
from skmix.experiments.paper.records import Run, Settings, StudyResults
from skmix.experiments.paper.tables import Runs, counted_in_sweep
from skmix.experiments.paper.variants import (
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
# The one value of table 5 that no setting comes near, and that repeats another.
_MISPRINTED = ("10D", 8)
_BEHIND_MAIN = 0.03
_BEYOND = 0.995
# Failures are of the same order when neither count is more than this many times the other.
_SAME_ORDER = 3.0
# Claims on averages, and differences from the paper, want at least this many runs of a cell.
_ENOUGH_RUNS = 20


@dataclass(frozen=True)
class Verdict:
    """One claim, checked.

    Attributes
    ----------
    claim : str
        What should be so.
    target : str
        In numbers.
    measured : str
        What came out.
    holds : bool
        Whether it is so.
    note : str
        What a reader should know besides.
    """

    claim: str
    target: str
    measured: str
    holds: bool
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """Where the published method, run again, does not give the paper's numbers.

    Attributes
    ----------
    variant : str
        Name of the variant, with K where it is not the main study's.
    quantity : str
        What differs.
    published, rerun : float
        The paper's number and ours.
    reason : str
        The likely reason.
    """

    variant: str
    quantity: str
    published: float
    rerun: float
    reason: str


def verdicts(results: StudyResults) -> tuple[Verdict, ...]:
    """Check every claim for which the results hold the runs.

    Parameters
    ----------
    results : StudyResults
        Runs of any part of the study.

    Returns
    -------
    tuple of Verdict
        One for each claim that can be checked.
    """
    runs = Runs(results.runs)
    return tuple(
        verdict
        for check in (_no_failures, _average_is_best, _published_medians, _published_failures, _sweep)
        for verdict in check(runs)
    ) + tuple(_beyond(results))


def differences(results: StudyResults) -> tuple[Difference, ...]:
    """List where the published method, run again, leaves the paper's numbers, with the likely reason.

    Parameters
    ----------
    results : StudyResults
        Runs of any part of the study.

    Returns
    -------
    tuple of Difference
        Medians over the successful runs that are off by more than 0.02, numbers of failed runs that are off
        by more than their sampling error explains, and in the sweep means that are off by more than 0.03 and
        numbers of counted runs that are off by more than their sampling error.
    """
    runs = Runs(results.runs)
    published = published_values()
    found = []
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        ok = [run.accuracy for run in own if not run.failed]
        if len(own) < _ENOUGH_RUNS or not ok:
            continue
        median = float(np.median(ok))
        printed = published.ok_runs["Med Acc", name]
        if abs(median - printed) > _MEDIAN_TOLERANCE:
            reason = _median_reason(name, results.settings)
            found.append(Difference(name, "median accuracy of successful runs", printed, median, reason))
        lost, printed_lost = 1.0 - len(ok) / len(own), 1.0 - published.ok_runs[OK_RUNS, name] / MAIN_RUNS
        # Three standard errors of the difference of two shares.
        spread = np.sqrt(lost * (1.0 - lost) / len(own) + printed_lost * (1.0 - printed_lost) / MAIN_RUNS)
        if abs(lost - printed_lost) > 3.0 * spread:
            reason = _failure_reason(own, results.settings)
            found.append(Difference(name, "share of failed runs", printed_lost, lost, reason))
    for (n_kernels, name), entry in published.sweep.items():
        own = runs.of(name, n_kernels, "published", SWEEP_RUNS)
        counted = counted_in_sweep(own)
        if len(own) >= _ENOUGH_RUNS and counted and n_kernels != MAIN_KERNELS:
            mean = float(np.mean([run.accuracy for run in counted]))
            # With few runs counted the mean itself is uncertain by more than the tolerance.
            error = entry.std / np.sqrt(entry.counted)
            if abs(mean - entry.mean) > max(_BEHIND_MAIN, 3.0 * error):
                label = f"{name}, K = {n_kernels}"
                reason = _sweep_reason(name, n_kernels, entry.counted, len(counted), len(own))
                found.append(Difference(label, "mean accuracy of counted runs", entry.mean, mean, reason))
            here, printed_share = len(counted) / len(own), entry.counted / SWEEP_RUNS
            spread = np.sqrt(
                here * (1.0 - here) / len(own) + printed_share * (1.0 - printed_share) / SWEEP_RUNS
            )
            if abs(here - printed_share) > 3.0 * spread:
                found.append(
                    Difference(
                        f"{name}, K = {n_kernels}",
                        "share of runs counted",
                        printed_share,
                        here,
                        "How many runs survive depends on the draw of the images.",
                    )
                )
    return tuple(found)


def _no_failures(runs: Runs) -> Iterator[Verdict]:
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
            yield Verdict(
                f"{method}: no run fails at K >= {MAIN_KERNELS}",
                "0 failed",
                f"{len(failed)} of {len(some)}, lowest accuracy {lowest:.3f}",
                not failed,
            )


def _average_is_best(runs: Runs) -> Iterator[Verdict]:
    behind: dict[str, float] = {}
    spread: dict[str, float] = {}
    for name in runs.variants:
        robust, class_wise = (_accuracies(runs.of(name, MAIN_KERNELS, method)) for method in OURS)
        if min(len(robust), len(class_wise)) >= _ENOUGH_RUNS:
            behind[name] = float(robust.max() - class_wise.mean())
            spread[name] = float(class_wise.std(ddof=1))
    if behind:
        worst, widest = max(behind, key=behind.__getitem__), max(spread, key=spread.__getitem__)
        yield Verdict(
            "class-wise: the mean run is as good as the best robust one, in every variant",
            f"at most {_BEHIND_BEST} below it",
            f"at most {behind[worst]:.4f} below it ({worst})",
            behind[worst] <= _BEHIND_BEST,
            "The best run is picked by its accuracy on the test images, which is uncertain by about 0.007 "
            "with 2500 of them: where two digits cannot be told apart, some run guesses luckily. Over the "
            "data of seeds 0 to 4, 47 of 50 comparisons hold and three miss by up to 0.004 (3D with seed 0, "
            "10D with 1, 3x1D with 3); the default seed, 2, is one with which all ten hold "
            "(benchmarks/margins.py).",
        )
        yield Verdict(
            "class-wise: runs hardly differ, in any variant",
            f"standard deviation under {_LARGEST_STD}",
            f"at most {spread[widest]:.4f} ({widest})",
            spread[widest] < _LARGEST_STD,
        )


def _published_medians(runs: Runs) -> Iterator[Verdict]:
    printed = published_values().ok_runs
    errors: dict[str, float] = {}
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        ok = [run.accuracy for run in own if not run.failed]
        if len(own) >= _ENOUGH_RUNS and ok:
            errors[name] = float(np.median(ok)) - printed["Med Acc", name]
    if errors:
        met = [name for name, error in errors.items() if abs(error) <= _MEDIAN_TOLERANCE]
        needed = -(-_MEDIANS_TO_MEET * len(errors) // 10)
        others = ", ".join(f"{name} {errors[name]:+.3f}" for name in errors if name not in met)
        yield Verdict(
            "published method: medians of the successful runs are those of table 3",
            f"within {_MEDIAN_TOLERANCE} in {needed} of {len(errors)} variants",
            f"{len(met)} of {len(errors)}" + (f"; not {others}" if others else ""),
            len(met) >= needed,
        )


def _published_failures(runs: Runs) -> Iterator[Verdict]:
    printed = published_values().ok_runs
    lost = expected = 0.0
    for name in runs.variants:
        own = runs.of(name, MAIN_KERNELS, "published")
        if len(own) < _ENOUGH_RUNS:
            continue
        lost += sum(run.failed for run in own)
        expected += len(own) * (1.0 - printed[OK_RUNS, name] / MAIN_RUNS)
    if expected:
        yield Verdict(
            "published method: as many runs fail as in the paper, in order of magnitude",
            f"between a third and three times {expected:.0f}",
            f"{lost:.0f}",
            expected / _SAME_ORDER <= lost <= expected * _SAME_ORDER,
        )


def _sweep(runs: Runs) -> Iterator[Verdict]:
    few = [n_kernels for n_kernels in SWEEP_KERNELS if n_kernels < MAIN_KERNELS]
    many = [n_kernels for n_kernels in SWEEP_KERNELS if n_kernels >= 15]
    names = [name for name in SWEEP_VARIANTS if name in runs.variants]
    printed = published_values().sweep
    for method in METHODS:
        # As published: the paper's own means fall behind K/10 in 10D, whose features tell fewer digits apart.
        errors = {
            (name, k): min(abs(mean - k / 10), abs(mean - printed[k, name].mean))
            for name in names
            for k in few
            if (name, k) != _MISPRINTED
            and (mean := _mean(counted_in_sweep(runs.of(name, k, method, SWEEP_RUNS)))) is not None
        }
        misprinted = _mean(counted_in_sweep(runs.of(*_MISPRINTED, method, SWEEP_RUNS)))
        if errors:
            name, k = max(errors, key=errors.__getitem__)
            yield Verdict(
                f"{method}: with K < {MAIN_KERNELS} kernels, accuracy near K/10 as published",
                f"within {_NEAR_SHARE} of K/10 or of table 5; 10D at K = 8 left out",
                f"at most {errors[name, k]:.3f} off ({name}, K = {k})",
                errors[name, k] <= _NEAR_SHARE,
                "Without 10D at K = 8, whose printed mean equals that at K = 10, perhaps a copying error: "
                + ("not run here." if misprinted is None else f"{misprinted:.3f} here, 0.69 printed."),
            )
    for method in OURS:
        some = [run for name in names for k in many for run in runs.of(name, k, method)]
        if some:
            lost = sum(run.failed or bool(run.reason) for run in some)
            yield Verdict(
                f"{method}: no run lost at K = 15 and 18", "0 lost", f"{lost} of {len(some)}", lost == 0
            )
    for method, allowed in (("robust", 0.0), ("class-wise", _BEHIND_MAIN)):
        behind = {}
        for name in names:
            at_main = _mean(runs.of(name, MAIN_KERNELS, method))
            for k in many:
                mean = _mean(runs.of(name, k, method))
                if at_main is not None and mean is not None:
                    behind[name, k] = at_main - mean
        if behind:
            name, k = max(behind, key=behind.__getitem__)
            yield Verdict(
                f"{method}: accuracy at K = 15 and 18 "
                + ("at least that of K = 10" if allowed == 0.0 else "close to that of K = 10"),
                f"at most {allowed} below it",
                f"{behind[name, k]:.4f} below it at worst ({name}, K = {k})"
                if behind[name, k] > 0
                else f"{-behind[name, k]:.4f} above it at least ({name}, K = {k})",
                behind[name, k] <= allowed,
            )


def _beyond(results: StudyResults) -> Iterator[Verdict]:
    ours = [beyond for beyond in results.beyond if beyond.ours]
    if ours:
        best = max(ours, key=lambda beyond: beyond.accuracy)
        yield Verdict(
            "beyond the paper's features: a shared-kernel classifier on the same images",
            f"accuracy of at least {_BEYOND}",
            f"{best.accuracy:.4f} ({best.name})",
            best.accuracy >= _BEYOND,
        )


def _accuracies(runs: list[Run]) -> np.ndarray:
    return np.array([run.accuracy for run in runs])


def _mean(runs: list[Run]) -> float | None:
    return float(np.mean(_accuracies(runs))) if len(runs) >= _ENOUGH_RUNS else None


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
    reason = (
        f"{few} of {len(runs)} runs end in a kernel with no more rows than features. How many do depends on "
        "the draw of the images, which moves the number of successful runs of 500 by several dozen."
    )
    if runs[0].variant in ("3D", "9D", "13D"):
        reason += " Counts as high as the paper's in this variant have not been reproduced with any setting."
    return reason


def _sweep_reason(name: str, n_kernels: int, printed: int, counted: int, n_runs: int) -> str:
    if (name, n_kernels) == ("10D", 8):
        return "The printed value equals that of K = 10: perhaps a copying error."
    return (
        "Which of the runs survive decides the mean, and other images let other runs survive: "
        f"{printed} of the paper's 100 do at this K, and {counted} of {n_runs} here."
    )
