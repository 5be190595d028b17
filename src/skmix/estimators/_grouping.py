"""Search for feature groups: which columns to model together, which apart, which not at all.

A product of models is judged by the posteriors it gives to rows it was not fitted to. The class
log-likelihoods of a product are the sum of its groups', so a group is fitted once for each fold, whatever the
partitions it appears in: to judge another partition is to add a few arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from ..engine.model import BoolArray, FloatArray
from ._progress import Report, progress_bar
from ._selection import Choice, Row, Selection, TrainingRows, sum_or_none, table_row
from ._validation import check_labelled_rows, check_rows, class_sizes

# Groups are merged only where a column of one is among this many that depend most on a column of the other,
# so that the number of groups to fit grows with the number of columns and not with its square.
_PARTNERS = 12
# Rows that are enough to judge by: more are left out of the search, class by class in proportion.
_MOST_ROWS = 20_000
_FEWEST_ROWS_OF_A_CLASS = 100
# A better partition is better by this much, in nats a row.
_SMALLEST_GAIN = 1e-5
# Fits of the search need not be carried to the end.
_SEARCH_TOLERANCE = 1e-3

Group = tuple[int, ...]
Partition = tuple[Group, ...]


def find_groups(selection: Selection) -> list[list[int]]:
    """Return feature groups, found greedily, and add the steps of the search to the selection's table.

    The search begins with every column in a group of its own. Each step makes the change that helps most:
    merge two groups, leave a column out, or take one back, alone or into a group; it ends when none helps.

    Of the joint model of all columns and the steps, in this order, not the best is taken but the first that
    is worse by less than one standard error of the difference: features are modelled apart only where that
    clearly helps, and the last steps of a search gain little but what it has picked by chance.

    Parameters
    ----------
    selection : Selection
        Settings, rows and class priors. Where kernels are to be chosen too, the search uses one for each
        class and full covariances.
    """
    everything = tuple(range(selection.rows.X.shape[1]))
    if len(everything) == 1 or len(selection.rows.classes) == 1:
        return [list(everything)]
    with progress_bar("choosing features", None, shown=False) as report:
        search = GroupSearch(selection, report)
        steps = [search.judge((everything,)), search.judge(tuple((column,) for column in everything))]
        while (following := search.step(steps[-1])) is not None:
            steps.append(following)
    best = min(steps, key=lambda step: step.value)
    if not np.isfinite(best.value):
        raise ValueError(
            "No feature groups could be fitted: all starts ended in a singular covariance, with "
            f"variance_floor={selection.prototype.variance_floor}. Use a larger one (1e-6 by default)."
        )
    first = next(step for step in steps if not search.clearly_better(best, step))
    first.row["chosen"] = True
    selection.table.extend(step.row for step in steps)
    return [list(group) for group in first.partition]


@dataclass(frozen=True)
class Step:
    """A partition of columns and how well it did.

    Attributes
    ----------
    partition : tuple of tuples of int
        Columns that are in none of its groups are left out.
    row : dict
        Its row of the table.
    losses : ndarray of shape (n,)
        Of the labelled rows.
    """

    partition: Partition
    row: Row
    losses: FloatArray

    @property
    def value(self) -> float:
        """The criterion."""
        return float(self.row["value"])


class GroupSearch:
    """Partitions of the columns and what they are worth; every group is fitted once and remembered.

    Parameters
    ----------
    selection : Selection
        Settings, rows and class priors.
    report : callable
        Told of every group fitted.
    """

    def __init__(self, selection: Selection, report: Report) -> None:
        settings, n_classes = selection.prototype, len(selection.rows.classes)
        rows = fewer_rows(selection.rows, int(settings.random_state))
        self._settings = clone(settings).set_params(
            n_kernels=n_classes if settings.n_kernels is None else settings.n_kernels,
            n_init=1,
            tol=max(settings.tol, _SEARCH_TOLERANCE) if settings.stopping == "total" else settings.tol,
        )
        self._selection = Selection(self._settings, rows, selection.class_prior, selection.choice)
        self._partners = partners_of(rows)
        self._report = report
        self._held_out: dict[Group, FloatArray | None] = {}

    def judge(self, partition: Partition) -> Step:
        """Return how well a partition does."""
        rows = self._selection.rows
        row = table_row(self._settings, [list(group) for group in partition], "cv", len(rows.classes))
        total = sum_or_none(map(self._of_group, partition))
        if total is None:
            return Step(partition, row, np.full(np.count_nonzero(rows.codes >= 0), np.inf))
        entries, losses = self._selection.judge(total)
        return Step(partition, {**row, **entries}, losses)

    def step(self, current: Step) -> Step | None:
        """Return the best neighbour of a partition; None when it is not better."""
        best = min(map(self.judge, self._neighbours(current.partition)), key=lambda step: step.value)
        return best if best.value < current.value - _SMALLEST_GAIN else None

    def clearly_better(self, one: Step, other: Step) -> bool:
        """Return whether one partition is better than another by more than a standard error."""
        if not np.isfinite(other.value):
            return one is not other
        rows = self._selection.rows
        labelled = rows.codes >= 0
        weights = np.ones(len(one.losses)) if rows.weights is None else rows.weights[labelled]
        gain = other.losses - one.losses
        mean = np.average(gain, weights=weights)
        error = np.sqrt(np.average((gain - mean) ** 2, weights=weights) / weights.sum())
        return bool(mean > error)

    def _of_group(self, group: Group) -> FloatArray | None:
        """Return the held-out class log-likelihoods (N, L) of a group; None when it could not be fitted."""
        if group not in self._held_out:
            self._held_out[group] = self._selection.held_out(self._settings, list(group))
            self._report(f"columns {', '.join(map(str, group))}")
        return self._held_out[group]

    def _neighbours(self, partition: Partition) -> Iterator[Partition]:
        """Yield all partitions that one change makes of this one."""
        for one, other in combinations(partition, 2):
            if self._partners[np.ix_(one, other)].any():
                yield _changed(partition, {one, other}, one + other)
        if sum(map(len, partition)) > 1:
            for group in partition:
                for column in group:
                    yield _changed(partition, {group}, tuple(c for c in group if c != column))
        for column in sorted(set(range(len(self._partners))).difference(*partition)):
            yield _changed(partition, set(), (column,))
            for group in partition:
                if self._partners[column, list(group)].any():
                    yield _changed(partition, {group}, (*group, column))


def _changed(partition: Partition, gone: set[Group], new: Group) -> Partition:
    """Return a partition with a new group in place of some, in the order of their first columns."""
    kept = [group for group in partition if group not in gone]
    return tuple(sorted([*kept, tuple(sorted(new))] if new else kept))


def fewer_rows(rows: TrainingRows, seed: int) -> TrainingRows:
    """Return as many rows as are enough to judge by, of each class its share but not fewer than it needs."""
    if len(rows.X) <= _MOST_ROWS:
        return rows
    random_state = check_random_state(seed)
    kept = []
    for code in np.unique(rows.codes):
        own = np.flatnonzero(rows.codes == code)
        size = max(round(_MOST_ROWS * len(own) / len(rows.X)), min(len(own), _FEWEST_ROWS_OF_A_CLASS))
        kept.append(random_state.choice(own, size, replace=False))
    return rows.take(np.sort(np.concatenate(kept)))


def partners_of(rows: TrainingRows) -> BoolArray:
    """Return which columns (M, M) are worth modelling together: those that depend most on each other.

    Dependence is correlation within the classes, over rows that have both values. A column is a partner of
    the ones it depends on most, and of those it is such a one for.
    """
    n_features = rows.X.shape[1]
    if n_features <= _PARTNERS + 1:
        return ~np.eye(n_features, dtype=bool)
    labelled = rows.codes >= 0
    X, codes = rows.X[labelled].astype(np.float64), rows.codes[labelled]
    observed = ~np.isnan(X)
    X = np.where(observed, X, 0.0)
    for code in np.unique(codes):
        own = codes == code
        X[own] -= X[own].sum(axis=0) / np.maximum(observed[own].sum(axis=0), 1)
    X[~observed] = 0.0
    products, squares = X.T @ X, (X**2).T @ observed
    scale = np.sqrt(squares * squares.T)
    dependence = np.abs(products) / np.where(scale > 0, scale, 1.0)
    np.fill_diagonal(dependence, -1.0)
    strongest = np.argsort(-dependence, axis=1, kind="stable")[:, :_PARTNERS]
    partners = np.zeros((n_features, n_features), dtype=bool)
    partners[np.arange(n_features)[:, None], strongest] = True
    return partners | partners.T


def choose_settings(
    estimator: Any, X: Any, y: Any, choice: Choice, *, feature_groups: bool = False
) -> list[Row]:
    """Set the parameters of an estimator that are to be chosen, and return the table of what was tried."""
    if y is None:
        rows = check_rows(estimator, X, fitting=True)
        given = TrainingRows(rows, np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64), None)
    else:
        given = TrainingRows(*check_labelled_rows(estimator, X, y), None)
    prototype, class_prior, groups = estimator, None, [list(range(given.X.shape[1]))]
    if is_classifier(estimator):
        sizes = class_sizes(given.codes, None, len(given.classes))
        prototype, class_prior = estimator._model(0, [[]]), estimator._prior(sizes / sizes.sum())
        groups = estimator._groups(given.X.shape[1])
    selection = Selection(prototype, given, class_prior, choice)
    if feature_groups:
        groups = find_groups(selection)
        estimator.set_params(feature_groups=groups)
    if choice.n_kernels or choice.covariance_type:
        best = selection.choose(groups)
        estimator.set_params(n_kernels=best.n_kernels, covariance_type=best.covariance_type)
    return selection.table
