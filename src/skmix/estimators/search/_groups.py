"""Search for feature groups: which features to model together, which apart, and which to leave out.

The class log-likelihoods of a product of models are the sum of its groups', so each group is fitted once in
every fold, whatever the partitions it appears in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from sklearn.base import clone

from ...engine.model import BoolArray, FloatArray
from ...engine.refine.temperature import least_log_loss, log_losses
from ..classifier import SharedKernelClassifier
from ._rows import Fold, Rows
from ._trials import Trial

# Groups are merged only where a feature of one is among this many that depend most on a feature of the other,
# so that the number of groups to fit grows with the number of features and not with its square.
_PARTNERS = 12
# More rows than these are sampled, class by class in proportion.
_MOST_ROWS, _FEWEST_ROWS_OF_A_CLASS = 20_000, 100
# A better partition is better by this much, in nats a row.
_SMALLEST_GAIN = 1e-5
# Fits of the search stop early.
_TOLERANCE = 1e-3

Group = tuple[int, ...]
Partition = tuple[Group, ...]


class GroupSearch:
    """Partitions of the features and their losses on held-out rows.

    Parameters
    ----------
    prototype : SharedKernelClassifier
        Settings of the models.
    folds : list of Fold
        Complete rows.
    deadline : float
        When to stop, by `time.monotonic`.
    seed : int
        Source of randomness.
    """

    def __init__(
        self, prototype: SharedKernelClassifier, folds: Sequence[Fold], deadline: float, seed: int
    ) -> None:
        self._prototype = clone(prototype).set_params(
            n_init=1, tol=max(prototype.tol, _TOLERANCE) if prototype.stopping == "total" else prototype.tol
        )
        self._folds = [
            Fold(
                *(
                    rows.fewer(_MOST_ROWS, _FEWEST_ROWS_OF_A_CLASS, seed)
                    for rows in (fold.training, fold.held)
                )
            )
            for fold in folds
        ]
        held = [fold.held for fold in self._folds]
        self._codes = np.concatenate([rows.codes for rows in held])
        self._weights = np.concatenate(
            [np.ones(len(rows.X)) if rows.weights is None else rows.weights for rows in held]
        )
        self._partners = partners_of(self._folds[0].training.labelled)
        self._deadline = deadline
        self._log_likelihoods: dict[Group, FloatArray] = {}
        self._error: ValueError | None = None

    def find(self) -> tuple[list[list[int]], list[Trial]]:
        """Return the groups, and the steps that led there.

        The search starts from every feature in a group of its own. Each step makes the change that lowers the
        log-loss most: merge two groups, leave a feature out, or take one back, alone or into a group.

        Of the joint model of all features and the steps, in this order, the first is taken that is worse than
        the best by less than one standard error of the difference: features are modelled apart only where
        that clearly helps, and the last steps gain little but what they have picked by chance.
        """
        everything = tuple(range(len(self._partners)))
        steps = [self.judge((everything,)), self.judge(tuple((feature,) for feature in everything))]
        while (following := self._step(steps[-1])) is not None:
            steps.append(following)
        best = max(steps, key=lambda step: step.score)
        if not np.isfinite(best.score):
            raise ValueError(f"No feature groups could be fitted: {self._error}")
        first = next(step for step in steps if not self.clearly_better(best, step))
        return first.params["feature_groups"], steps

    def judge(self, partition: Partition) -> Trial:
        """Return the loss of a partition at its best temperature, and that of every held-out row."""
        started = time.monotonic()
        try:
            joint = sum(map(self._log_likelihood, partition))
        except ValueError as error:
            self._error = error
            temperature, loss, losses = 1.0, np.inf, np.full(len(self._codes), np.inf)
        else:
            temperature, loss = least_log_loss(joint, self._codes, self._weights, log_prior=self._log_prior)
            losses = log_losses(joint, self._codes, temperature, self._log_prior)
        return Trial(
            stage="feature_groups",
            params={
                "n_kernels": self._prototype.n_kernels,
                "covariance_type": self._prototype.covariance_type,
                "feature_groups": [list(group) for group in partition],
            },
            score=-loss,
            seconds=time.monotonic() - started,
            temperature=temperature,
            losses=losses,
        )

    def clearly_better(self, one: Trial, other: Trial) -> bool:
        """Return whether one partition is better than another by more than a standard error."""
        if not np.isfinite(other.score):
            return one is not other
        gain = other.losses - one.losses
        mean = np.average(gain, weights=self._weights)
        error = np.sqrt(np.average((gain - mean) ** 2, weights=self._weights) / self._weights.sum())
        return bool(mean > error)

    def _step(self, current: Trial) -> Trial | None:
        """Return the best neighbour of a partition; None when none is better or time is up."""
        best = current
        for partition in self._neighbours(tuple(map(tuple, current.params["feature_groups"]))):
            if time.monotonic() > self._deadline:
                break
            best = max(best, self.judge(partition), key=lambda step: step.score)
        return best if best.score > current.score + _SMALLEST_GAIN else None

    def _log_likelihood(self, group: Group) -> FloatArray:
        """Return log p(x | class j) of the held-out rows (n, L) in the features of a group."""
        if group not in self._log_likelihoods:
            parts = []
            for fold in self._folds:
                training = fold.training
                model = clone(self._prototype)
                model.fit(training.X[:, group], training.y, sample_weight=training.weights)
                parts.append(model.class_log_likelihood(fold.held.X[:, group]))
            with np.errstate(divide="ignore"):
                self._log_prior = np.log(model.class_prior_)
            self._log_likelihoods[group] = np.concatenate(parts)
        return self._log_likelihoods[group]

    def _neighbours(self, partition: Partition) -> Iterator[Partition]:
        """Yield all partitions that differ from this one by one change."""
        for one, other in combinations(partition, 2):
            if self._partners[np.ix_(one, other)].any():
                yield _changed(partition, {one, other}, one + other)
        if sum(map(len, partition)) > 1:
            for group in partition:
                for feature in group:
                    yield _changed(partition, {group}, tuple(f for f in group if f != feature))
        for feature in sorted(set(range(len(self._partners))).difference(*partition)):
            yield _changed(partition, set(), (feature,))
            for group in partition:
                if self._partners[feature, list(group)].any():
                    yield _changed(partition, {group}, (*group, feature))


def _changed(partition: Partition, gone: set[Group], new: Group) -> Partition:
    """Return a partition with a new group in place of some, in the order of their first features."""
    kept = [group for group in partition if group not in gone]
    return tuple(sorted([*kept, tuple(sorted(new))] if new else kept))


def partners_of(rows: Rows) -> BoolArray:
    """Return which features (M, M) may be merged: those that depend most on each other within the classes.

    Dependence is the absolute correlation within the classes of complete, labelled rows.
    """
    n_features = rows.X.shape[1]
    if n_features <= _PARTNERS + 1:
        return ~np.eye(n_features, dtype=bool)
    X = rows.X.astype(np.float64)
    for code in np.unique(rows.codes):
        X[rows.codes == code] -= X[rows.codes == code].mean(axis=0)
    deviations = np.sqrt((X**2).sum(axis=0))
    X /= np.where(deviations > 0, deviations, 1.0)
    dependence = np.abs(X.T @ X)
    np.fill_diagonal(dependence, -1.0)
    strongest = np.argsort(-dependence, axis=1, kind="stable")[:, :_PARTNERS]
    partners = np.zeros((n_features, n_features), dtype=bool)
    partners[np.arange(n_features)[:, None], strongest] = True
    return partners | partners.T
