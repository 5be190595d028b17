"""Outcomes of a comparison: means with standard errors, ranks, tables and claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from skmix.engine.model import FloatArray

from ..harness import Claim, Table, plain_table
from .classifiers import FIELD, FOREST, OURS, SUPPORT_VECTORS, in_order
from .comparison import Outcome

Measure = Literal["error", "log_loss", "calibration_error", "fit_seconds", "predict_seconds", "n_parameters"]

TITLES: dict[Measure, str] = {
    "error": "Test error in per cent, with its standard error",
    "log_loss": "Log-loss",
    "calibration_error": "Expected calibration error",
    "fit_seconds": "Seconds to fit, choices included (processor time, one thread)",
    "predict_seconds": "Seconds to predict the test rows",
    "n_parameters": "Numbers that the fitted classifier stores",
}
_MOST_TIMES_THE_SVM = 10.0


@dataclass(frozen=True)
class Summary:
    """A classifier on a data set, over all splits."""

    data: str
    classifier: str
    n_repeats: int
    values: dict[Measure, float]  # mean of each measure
    standard_errors: dict[Measure, float]  # of the means, for splits that overlap; NaN for one split
    n_failed: int  # splits on which it failed


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Return a summary of each classifier on each data set, in the order of the outcomes."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.data, outcome.classifier), []).append(outcome)
    summaries = []
    for (data, classifier), own in groups.items():
        ratio = own[0].n_test / own[0].n_train
        columns = {measure: np.array([getattr(each, measure) for each in own], float) for measure in TITLES}
        means = {measure: float(column.mean()) for measure, column in columns.items()}
        errors = {measure: corrected_standard_error(column, ratio) for measure, column in columns.items()}
        n_failed = sum(bool(each.failure) for each in own)
        summaries.append(Summary(data, classifier, len(own), means, errors, n_failed))
    return summaries


def mean_ranks(summaries: Sequence[Summary], measure: Measure = "error") -> dict[str, float]:
    """Return the mean rank of each classifier, 1 for the smallest value, over the data sets that all have.

    Equal values share the mean of their ranks.
    """
    cells = {(each.data, each.classifier): each.values[measure] for each in summaries}
    names = _names(summaries)
    sets = [data for data in _sets(summaries) if all((data, name) in cells for name in names)]
    if not sets:
        raise ValueError("no data set has outcomes of all classifiers, so there are no ranks.")
    # To six digits: means of the same outcomes in another order may differ in the last bits.
    values = np.array([[float(f"{cells[data, name]:.6g}") for name in names] for data in sets])
    return dict(zip(names, rankdata(values, axis=1).mean(axis=0).tolist(), strict=True))


def make_tables(outcomes: Iterable[Outcome]) -> list[Table]:
    """Return a table for each measure, with mean ranks where small is good, and one of failures if any."""
    summaries = summarise(outcomes)
    cells = {(each.data, each.classifier): each for each in summaries}
    names, sets = _names(summaries), _sets(summaries)
    tables = []
    for measure, title in TITLES.items():
        lines = [(data, *(_cell(cells.get((data, name)), measure) for name in names)) for data in sets]
        if measure in ("error", "log_loss", "calibration_error"):
            ranks = mean_ranks(summaries, measure)
            lines.append(("mean rank", *(f"{ranks[name]:.2f}" for name in names)))
        tables.append(plain_table(title, ("data", *names), lines, name=measure))
    failures = [
        (each.data, each.classifier, f"{each.n_failed} of {each.n_repeats}")
        for each in summaries
        if each.n_failed
    ]
    if failures:
        tables.append(plain_table("Failures", ("data", "classifier", "splits"), failures, name="failures"))
    return tables


def check_claims(outcomes: Iterable[Outcome]) -> list[Claim]:
    """Check the claims about shared kernels compared with other classifiers, where there are outcomes."""
    summaries = summarise(outcomes)
    names, sets = _names(summaries), _sets(summaries)
    if OURS not in names:
        return []
    cells = {(each.data, each.classifier): each.values for each in summaries}
    checked = []
    generative = [each.name for each in FIELD if each.generative and each.name in names]
    if len(generative) > 1:
        ranks = mean_ranks(summaries)
        ahead = all(ranks[OURS] < ranks[name] for name in generative if name != OURS)
        shown = ", ".join(f"{name} {ranks[name]:.2f}" for name in generative)
        claim = "mean rank by error better than every other generative classifier"
        checked.append(Claim(claim, "lowest", shown, ahead))
    for other in (SUPPORT_VECTORS, FOREST):
        both = [data for data in sets if (data, other) in cells and (data, OURS) in cells]
        if both:
            won = sum(cells[data, OURS]["log_loss"] < cells[data, other]["log_loss"] for data in both)
            claim = f"log-loss better than that of {other}"
            target = "on at least half of the data sets"
            checked.append(Claim(claim, target, f"{won} of {len(both)}", 2 * won >= len(both)))
    times = {
        data: cells[data, OURS]["fit_seconds"] / max(cells[data, SUPPORT_VECTORS]["fit_seconds"], 1e-9)
        for data in sets
        if (data, SUPPORT_VECTORS) in cells and (data, OURS) in cells
    }
    if times:
        data, worst = max(times.items(), key=lambda pair: pair[1])
        claim, target = f"time to fit, over that of {SUPPORT_VECTORS}", f"at most {_MOST_TIMES_THE_SVM:g}"
        checked.append(Claim(claim, target, f"{worst:.1f} on {data}", worst <= _MOST_TIMES_THE_SVM))
    n_failed = sum(each.n_failed for each in summaries if each.classifier == OURS)
    checked.append(Claim("no failures", "0 failed", f"{n_failed} failed", n_failed == 0))
    return checked


def corrected_standard_error(values: FloatArray, test_over_train: float) -> float:
    """Return the standard error of a mean over repeated random splits of the same rows.

    Splits overlap, so their results, `values` (r,), vary less than those of new data would. Nadeau and Bengio
    (2003) replace 1/r by 1/r + n_test/n_train. NaN for a single split.
    """
    if len(values) < 2:
        return float("nan")
    return float(np.sqrt(np.var(values, ddof=1) * (1.0 / len(values) + test_over_train)))


def _cell(summary: Summary | None, measure: Measure) -> str:
    if summary is None:
        return ""
    value, error = summary.values[measure], summary.standard_errors[measure]
    if measure == "error":
        return f"{100 * value:.1f}" if np.isnan(error) else f"{100 * value:.1f} ± {100 * error:.1f}"
    return f"{value:.0f}" if measure == "n_parameters" else f"{value:.3f}"


def _names(summaries: Sequence[Summary]) -> list[str]:
    return in_order([each.classifier for each in summaries], [each.name for each in FIELD])


def _sets(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(each.data for each in summaries))
