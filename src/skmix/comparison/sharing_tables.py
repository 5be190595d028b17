"""The study of sharing as tables: errors, log-losses, and what sharing is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from skmix.comparison.records import FloatArray, Outcome
from skmix.comparison.sharing import PAIRS, Learning
from skmix.comparison.tables import TextTable

LearningMeasure = Literal["error", "log_loss"]

_TITLES: dict[LearningMeasure, str] = {
    "error": "Test error in per cent against the training rows of each class",
    "log_loss": "Log-loss against the training rows of each class",
}
_Groups = dict[tuple[str, int], dict[str, list[Outcome]]]


def sharing_tables(points: Sequence[Learning]) -> list[TextTable]:
    """Return means of error and log-loss with their standard errors, and what sharing is worth."""
    return [sharing_table(points), sharing_table(points, "log_loss"), worth_table(points)]


def sharing_table(points: Sequence[Learning], measure: LearningMeasure = "error") -> TextTable:
    """Return means over the draws: a line for each data set and number of rows, a column a classifier."""
    names = list(dict.fromkeys(point.classifier for point in points))
    lines = tuple(
        (data, str(rows), *(_mean(own.get(name, []), measure) for name in names))
        for (data, rows), own in _groups(points).items()
    )
    return TextTable(_TITLES[measure], ("data", "rows", *names), lines)


def worth_table(points: Sequence[Learning]) -> TextTable:
    """Return what own kernels lose to shared ones, draw by draw: above zero, sharing pays."""
    lines = []
    for (data, rows), own in _groups(points).items():
        for shared, apart in PAIRS:
            if shared in own and apart in own:
                errors = 100.0 * worth(own[shared], own[apart], "error")
                losses = worth(own[shared], own[apart], "log_loss")
                won = f"{np.count_nonzero(errors > 0)} : {np.count_nonzero(errors < 0)}"
                cells = (_with_error(errors, 1), won, _with_error(losses, 3))
                lines.append((data, str(rows), shared, str(len(errors)), *cells))
    headings = ("data", "rows", "of", "draws", "error, points", "draws won : lost", "log-loss")
    return TextTable("What sharing is worth: own kernels less shared ones", headings, tuple(lines))


def worth(
    shared: Sequence[Outcome], apart: Sequence[Outcome], measure: LearningMeasure = "error"
) -> FloatArray:
    """Return what own kernels lose to shared ones in each draw that both have, shape (draws,)."""
    values = {each.repeat: getattr(each, measure) for each in shared if not each.failure}
    return np.array(
        [getattr(each, measure) - values[each.repeat] for each in apart if each.repeat in values], float
    )


def _groups(points: Sequence[Learning]) -> _Groups:
    groups: _Groups = {}
    for point in points:
        own = groups.setdefault((point.data, point.rows_per_class), {})
        own.setdefault(point.classifier, []).append(point.outcome)
    return dict(sorted(groups.items(), key=lambda item: _place(points, *item[0])))


def _place(points: Sequence[Learning], data: str, rows: int) -> tuple[int, int]:
    sets = list(dict.fromkeys(point.data for point in points))
    return sets.index(data), rows


def _mean(outcomes: Sequence[Outcome], measure: LearningMeasure) -> str:
    """Return a mean with its standard error; what failed in some draws has none."""
    n_failed = sum(bool(outcome.failure) for outcome in outcomes)
    if n_failed or not outcomes:
        return f"{n_failed} of {len(outcomes)} failed" if outcomes else ""
    values = np.array([getattr(outcome, measure) for outcome in outcomes])
    return _with_error(100.0 * values, 1) if measure == "error" else _with_error(values, 3)


def _with_error(values: FloatArray, digits: int) -> str:
    """Return the mean of independent draws with its standard error."""
    if len(values) < 2:
        return f"{values.mean():.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"
