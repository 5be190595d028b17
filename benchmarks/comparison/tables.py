"""Outcomes of a comparison: means with standard errors, ranks and tables.

Means are over the splits that all classifiers of a data set have, ranks over the data sets that have all
classifiers: an unfinished comparison is still a fair one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from recording import Table, plain_table
from scipy.stats import rankdata

from .classifiers import BOOSTING, CATBOOST, FIELD, FOREST, OURS, OURS_BY_DEFAULT, SUPPORT_VECTORS, in_order
from .data import SETS_BY_PART, FloatArray, half_of
from .running import Outcome

Measure = Literal["error", "log_loss", "calibration_error", "fit_seconds", "predict_seconds", "n_parameters"]

TITLES: dict[Measure, str] = {
    "error": "Test error in per cent, with its standard error",
    "log_loss": "Log-loss",
    "calibration_error": "Expected calibration error",
    "fit_seconds": "Seconds to fit, choices included (processor time, one thread)",
    "predict_seconds": "Seconds to predict the test rows",
    "n_parameters": "Numbers that the fitted classifier stores",
}
_SHORT: dict[Measure, str] = {"error": "error", "log_loss": "log-loss"}
_RANKED: tuple[Measure, ...] = ("error", "log_loss", "calibration_error")
_TREES = (FOREST, BOOSTING, CATBOOST)
# An error of more than this many times the best other one is marked.
_LARGEST_RATIO = 1.25


@dataclass(frozen=True)
class Summary:
    """A classifier on a data set, over all splits."""

    data: str
    classifier: str
    n_repeats: int
    values: dict[Measure, float]  # mean of each measure
    standard_errors: dict[Measure, float]  # of the means, for splits that overlap; NaN for one split
    n_failed: int  # splits on which it failed


@dataclass(frozen=True)
class Standing:
    """Shared kernels and the best other classifier on a data set, by error."""

    data: str
    error: float  # of shared kernels
    best: str  # the other classifier with the smallest error
    best_error: float
    trees_far_ahead: bool  # the best are trees, and shared kernels are not far behind the best of the others
    times_the_svm: float  # fitting time over that of the SVM; NaN without times of the same processor

    @property
    def ratio(self) -> float:
        """The error over that of the best other classifier."""
        return _ratio(self.error, self.best_error)

    @property
    def far_behind(self) -> bool:
        """Whether the error is more than a quarter above the best, and trees are not the reason."""
        return self.ratio > _LARGEST_RATIO and not self.trees_far_ahead


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Return a summary of each classifier on each data set, in the order of the outcomes.

    Splits that only some classifiers of a data set have do not count, unless they have none in common.
    """
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.data, outcome.classifier), []).append(outcome)
    common: dict[str, set[int]] = {}
    for (data, _), found in groups.items():
        repeats = {each.repeat for each in found}
        common[data] = common.get(data, repeats) & repeats
    summaries = []
    for (data, classifier), found in groups.items():
        own = [each for each in found if each.repeat in common[data] or not common[data]]
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
    names, sets = _names(summaries), _complete(summaries)
    if not sets:
        raise ValueError("no data set has outcomes of all classifiers, so there are no ranks.")
    # To six digits: means of the same outcomes in another order may differ in the last bits.
    values = np.array([[float(f"{cells[data, name]:.6g}") for name in names] for data in sets])
    return dict(zip(names, rankdata(values, axis=1).mean(axis=0).tolist(), strict=True))


def standings(outcomes: Iterable[Outcome]) -> list[Standing]:
    """Return how shared kernels compare with the best other classifier on each data set that has both.

    Shared kernels by default are no other classifier. Trees, the forest and boosting, are far ahead of all
    others where the smallest error of the others is more than a quarter above theirs. Times are sums over the
    splits that both classifiers ran on one processor.
    """
    kept = list(outcomes)
    summaries = summarise(kept)
    found = []
    for data in _sets(summaries):
        errors = {each.classifier: each.values["error"] for each in summaries if each.data == data}
        own, _ = errors.pop(OURS, None), errors.pop(OURS_BY_DEFAULT, None)
        if own is None or not errors:
            continue
        best = min(errors, key=lambda name: errors[name])
        others = min((errors[name] for name in errors if name not in _TREES), default=errors[best])
        trees_ahead = _ratio(others, errors[best]) > _LARGEST_RATIO and _ratio(own, others) <= _LARGEST_RATIO
        times = _times_the_svm([each for each in kept if each.data == data])
        found.append(Standing(data, own, best, errors[best], trees_ahead, times))
    return found


def make_tables(outcomes: Iterable[Outcome]) -> list[Table]:
    """Return tables of ranks and measures, of shared kernels beside the best others, and of failures if any.

    Where small is good there are mean ranks, over all data sets, each half of the comparison, and samples.
    """
    kept = list(outcomes)
    summaries = summarise(kept)
    cells = {(each.data, each.classifier): each for each in summaries}
    names, sets = _names(summaries), _sets(summaries)
    halves = any(map(half_of, sets))
    tables = [_ranks_table(summaries)] if halves and _complete(summaries) else []
    for measure, title in TITLES.items():
        lines = [
            (data, *_half(data, halves), *(_cell(cells.get((data, name)), measure) for name in names))
            for data in sets
        ]
        if measure in _RANKED:
            for half, ranks in _ranks_of_parts(summaries, measure).items():
                own = [half or "all"] if halves else []
                lines.append(("mean rank", *own, *(f"{ranks[name]:.2f}" for name in names)))
        headings = ("data", *(["half"] if halves else []), *names)
        tables.append(plain_table(title, headings, lines, measure))
    if compared := standings(kept):
        tables.append(_standings_table(compared, halves))
    failures = [
        (each.data, each.classifier, f"{each.n_failed} of {each.n_repeats}")
        for each in summaries
        if each.n_failed
    ]
    if failures:
        tables.append(plain_table("Failures", ("data", "classifier", "splits"), failures, name="failures"))
    return tables


def _ranks_table(summaries: Sequence[Summary]) -> Table:
    """Return the mean ranks of all classifiers, the best on top."""
    ranks = {
        f"{_SHORT[measure]}, {part or 'all'}": own
        for measure in _RANKED[:2]
        for part, own in _ranks_of_parts(summaries, measure).items()
    }
    names = sorted(_names(summaries), key=lambda name: ranks["error, all"][name])
    lines = [(name, *(f"{own[name]:.2f}" for own in ranks.values())) for name in names]
    return plain_table("Mean ranks, 1 is best", ("classifier", *ranks), lines, name="ranks")


def _standings_table(compared: Sequence[Standing], halves: bool) -> Table:
    """Return a line for each data set, and the median and largest of the ratios."""
    lines = []
    for each in compared:
        verdict = "far behind" if each.far_behind else ""
        if each.ratio > _LARGEST_RATIO and each.trees_far_ahead:
            verdict = "trees ahead of all others"
        errors = (f"{100 * each.error:.1f}", each.best, f"{100 * each.best_error:.1f}")
        ratios = (_factor(each.ratio), verdict, _factor(each.times_the_svm))
        lines.append((each.data, *_half(each.data, halves), *errors, *ratios))
    groups = {"all": compared} if halves else {"": compared}
    for half in SETS_BY_PART if halves else ():
        groups[half] = [each for each in compared if half_of(each.data) == half]
    statistics: dict[str, Callable[[list[float]], Any]] = {"median": np.median, "largest": np.max}
    for name, statistic in statistics.items():
        for half, own in groups.items():
            if own:
                ratio = _factor(float(statistic([each.ratio for each in own])))
                timed = [each.times_the_svm for each in own if not np.isnan(each.times_the_svm)]
                times = _factor(float(statistic(timed))) if timed else ""
                lines.append((name, *([half] if halves else []), "", "", "", ratio, "", times))
    headings = ("best other", "its error", "ratio", f"above {_LARGEST_RATIO:g}", "time over the SVM's")
    title = "Error of shared kernels in per cent, beside the best other classifier"
    own_headings = ("data", *(["half"] if halves else []), "error", *headings)
    return plain_table(title, own_headings, lines, "standings")


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


def _complete(summaries: Sequence[Summary]) -> list[str]:
    """Return the data sets that have all classifiers."""
    found = {(each.data, each.classifier) for each in summaries}
    names = _names(summaries)
    return [data for data in _sets(summaries) if all((data, name) in found for name in names)]


def _ranks_of_parts(summaries: Sequence[Summary], measure: Measure) -> dict[str, dict[str, float]]:
    """Return mean ranks over all complete data sets, under an empty name, and over those of each part."""
    complete = _complete(summaries)
    ranks = {}
    for half in ("", *SETS_BY_PART):
        own = [each for each in summaries if each.data in complete and half in ("", half_of(each.data))]
        if own:
            ranks[half] = mean_ranks(own, measure)
    return ranks


def _times_the_svm(outcomes: Sequence[Outcome]) -> float:
    """Return the fitting time of shared kernels over that of the SVM on one data set."""
    svm, own = (
        {(each.repeat, each.processor): each.fit_seconds for each in outcomes if each.classifier == name}
        for name in (SUPPORT_VECTORS, OURS)
    )
    both = own.keys() & svm.keys()
    return _ratio(sum(own[each] for each in both), sum(svm[each] for each in both)) if both else float("nan")


def _ratio(value: float, other: float) -> float:
    """Return value / other, and 1 where both are zero."""
    if other > 0.0:
        return value / other
    return 1.0 if value == 0.0 else float("inf")


def _factor(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def _half(data: str, shown: bool) -> tuple[str, ...]:
    return (half_of(data),) if shown else ()
