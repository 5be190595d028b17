"""The study of sharing from what was kept of it, and as tables: errors, log-losses, the gain from sharing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from skmix.experiments.field.records import FloatArray, Outcome
from skmix.experiments.field.sharing import CLASSIFIERS, PAIRS, Learning
from skmix.experiments.field.simulated import KINDS, kind_and_classes
from skmix.experiments.field.tables import TextTable

LearningMeasure = Literal["error", "log_loss"]

_TITLES: dict[LearningMeasure, str] = {
    "error": "Test error in per cent against the training rows of each class",
    "log_loss": "Log-loss against the training rows of each class",
}
# Outcomes tell how many rows they came from, but not of how many classes.
_CLASSES = MappingProxyType({"seven_segment": 10, "letter": 26})
_Groups = dict[tuple[str, int], dict[str, list[Outcome]]]


def learning_points(outcomes: Iterable[Outcome], n_classes: Mapping[str, int] = _CLASSES) -> list[Learning]:
    """Return the points of learning curves from kept outcomes.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of the study, in any order.
    n_classes : mapping, default={'seven_segment': 10, 'letter': 26}
        Classes of each data set that is not simulated.

    Returns
    -------
    list of Learning
        The points in the order of data, rows, classifiers and draws; data that are not simulated come first.
    """
    points = []
    for outcome in outcomes:
        name = outcome.data
        simulated = kind_and_classes(name)
        if simulated is None and name not in n_classes:
            raise ValueError(
                f"the number of classes of {name} is not known; give n_classes={{{name!r}: ...}}."
            )
        kind, number = simulated if simulated is not None else ("", n_classes[name])
        rows, rest = divmod(outcome.n_train, number)
        if rest:
            raise ValueError(f"{outcome.n_train} rows of {name} are not as many of each of {number} classes.")
        place = (("", *KINDS).index(kind), number, name, rows, _rank(outcome.classifier), outcome.repeat)
        points.append((place, Learning(name, outcome.classifier, rows, outcome)))
    return [point for _, point in sorted(points, key=lambda pair: pair[0])]


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of classifiers in the order of the study, unknown ones last, each once."""
    return sorted(dict.fromkeys(names), key=_rank)


def sharing_tables(points: Sequence[Learning]) -> list[TextTable]:
    """Return means of error and log-loss with their standard errors, and the gain from sharing."""
    return [sharing_table(points), sharing_table(points, "log_loss"), gain_table(points)]


def sharing_table(points: Sequence[Learning], measure: LearningMeasure = "error") -> TextTable:
    """Return means over the draws: a line for each data set and number of rows, a column a classifier."""
    names = in_order(point.classifier for point in points)
    lines = tuple(
        (data, str(rows), *(_mean(own.get(name, []), measure) for name in names))
        for (data, rows), own in _groups(points).items()
    )
    return TextTable(_TITLES[measure], ("data", "rows", *names), lines)


def gain_table(points: Sequence[Learning]) -> TextTable:
    """Return what own kernels lose to shared ones, draw by draw: above zero, sharing pays."""
    lines = []
    for (data, rows), own in _groups(points).items():
        for shared, apart in PAIRS:
            errors = 100.0 * gain(own.get(shared, []), own.get(apart, []), "error")
            losses = gain(own.get(shared, []), own.get(apart, []), "log_loss")
            if len(errors):
                won = f"{np.count_nonzero(errors > 0)} : {np.count_nonzero(errors < 0)}"
                cells = (_with_error(errors, 1), won, _with_error(losses, 3))
                lines.append((data, str(rows), shared, str(len(errors)), *cells))
    headings = ("data", "rows", "of", "draws", "error, points", "draws won : lost", "log-loss")
    return TextTable("Gain from sharing: own kernels minus shared ones", headings, tuple(lines))


def gain(
    shared: Sequence[Outcome], apart: Sequence[Outcome], measure: LearningMeasure = "error"
) -> FloatArray:
    """Return what own kernels lose to shared ones in each draw in which neither failed, shape (draws,)."""
    values = {each.repeat: getattr(each, measure) for each in shared if not each.failure}
    found = [each for each in apart if each.repeat in values and not each.failure]
    return np.array([getattr(each, measure) - values[each.repeat] for each in found], float)


def _rank(classifier: str) -> int:
    return CLASSIFIERS.index(classifier) if classifier in CLASSIFIERS else len(CLASSIFIERS)


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
