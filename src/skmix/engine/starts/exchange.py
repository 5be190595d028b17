"""Exchanges of clusters: one that holds two is split, where two that share one are merged.

Lloyd's iterations never carry a centre past other clusters, and neither does EM. An exchange does, and leaves
the number of clusters as it is. It is made if it raises the log-likelihood of Gaussian clusters that have one
covariance T. A cluster of m rows x with the mean c contributes

    m log m − ½ Σ (x − c)ᵀ T⁻¹ (x − c),

so that two clusters are likelier than their union by

    ½ m₁m₂ / (m₁ + m₂) (c₁ − c₂)ᵀ T⁻¹ (c₁ − c₂) + m₁ log(m₁ / (m₁ + m₂)) + m₂ log(m₂ / (m₁ + m₂)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from ..records import FloatArray, IntArray

# Exchanges for each cluster, at most; they end long before, when none gains anything.
_EXCHANGES = 4
# Steps of the power method towards the direction in which the rows of a cluster spread most.
_POWER_STEPS = 3
# Nearest centres with whose clusters a cluster may be merged.
_NEIGHBOURS = 3
# Splits that are considered in an exchange, the most gainful first.
_SPLITS = 3
# Features up to which the common covariance is full; with more of them, variances are enough.
_FULL = 64
# Rows of the whole in the variance of either side of a parting.
_ROWS_OF_WHOLE = 2.0
# Least common variance of a feature, as a share of its mean square.
_LEAST_VARIANCE = 1e-6
# An exchange must gain this per row of the sample: less may be rounding.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Cluster:
    """Some rows, their mean and their best parting into two."""

    number: int  # no other cluster has or had it
    rows: IntArray  # (m,): the numbers of the rows, those below the parting first
    n_lower: int  # rows below the parting
    mean: FloatArray  # (M,)
    gain: float  # of log-likelihood by the parting


class Exchange:
    """Clusters of rows x (n, M), which are exchanged as long as that raises the log-likelihood."""

    def __init__(self, x: FloatArray, labels: IntArray, n_clusters: int) -> None:
        order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=n_clusters)
        groups = [order[a:b] for a, b in pairwise(np.concatenate([[0], np.cumsum(sizes)]))]
        means = np.array([x[rows].mean(axis=0) if len(rows) else np.zeros(x.shape[1]) for rows in groups])
        self._x, self._precision = x, _common_precision(x - means[labels], x)
        self._numbers = count()
        self._losses: dict[tuple[int, int], float] = {}
        self.clusters = [self._cluster(rows) for rows in groups]
        self._near = np.empty((n_clusters, min(_NEIGHBOURS, n_clusters - 1)), dtype=np.int64)
        self._find_neighbours(np.arange(n_clusters))

    def run(self) -> int:
        """Exchange clusters as long as it helps; return how often it did."""
        n_clusters, n_exchanges = len(self.clusters), 0
        for _ in range(_EXCHANGES * n_clusters if n_clusters > 2 else 0):
            best = self._best()
            if best is None:
                break
            split, kept, freed = best
            rows, n_lower = self.clusters[split].rows, self.clusters[split].n_lower
            union = np.concatenate([self.clusters[kept].rows, self.clusters[freed].rows])
            for number, members in ((kept, union), (split, rows[:n_lower]), (freed, rows[n_lower:])):
                self.clusters[number] = self._cluster(members)
            self._find_neighbours(np.array([kept, split, freed]))
            n_exchanges += 1
        return n_exchanges

    def _best(self) -> tuple[int, int, int] | None:
        """Return the cluster to split and the two to merge; None if no exchange gains anything."""
        gains = np.array([cluster.gain for cluster in self.clusters])
        pairs = self._pairs()
        losses = np.array([self._loss(*pair) for pair in pairs.tolist()])
        best, most = None, _LEAST_GAIN * len(self._x)
        for split in np.argsort(-gains, kind="stable")[:_SPLITS].tolist():
            allowed = np.where((pairs == split).any(axis=1), np.inf, losses)
            place = int(np.argmin(allowed))
            if gains[split] - allowed[place] > most:
                most = gains[split] - allowed[place]
                best = split, int(pairs[place, 0]), int(pairs[place, 1])
        return best

    def _find_neighbours(self, numbers: IntArray) -> None:
        """Find the nearest centres of some clusters (q,)."""
        mean, n_near = np.array([cluster.mean for cluster in self.clusters]), self._near.shape[1]
        distances = 0.5 * np.vecdot(mean, mean) - mean[numbers] @ mean.T
        distances[np.arange(len(numbers)), numbers] = np.inf
        if n_near:
            self._near[numbers] = np.argpartition(distances, n_near - 1, axis=1)[:, :n_near]

    def _pairs(self) -> IntArray:
        """Return the pairs (p, 2) of clusters of which one has a centre near the other."""
        first = np.repeat(np.arange(len(self._near)), self._near.shape[1])
        return np.unique(np.sort(np.stack([first, self._near.ravel()], axis=1), axis=1), axis=0)

    def _loss(self, first: int, second: int) -> float:
        """Return the log-likelihood that is lost if two clusters are merged."""
        one, other = self.clusters[first], self.clusters[second]
        key = one.number, other.number
        if key not in self._losses:
            between = one.mean - other.mean
            self._losses[key] = _separation(len(one.rows), len(other.rows), self._squared(between))
        return self._losses[key]

    def _squared(self, between: FloatArray) -> float:
        """Return the squared length of a difference (M,) of means in common deviations."""
        if self._precision.ndim == 1:
            return float(self._precision @ between**2)
        return float(between @ self._precision @ between)

    def _cluster(self, rows: IntArray) -> Cluster:
        """Return the cluster of some rows, with the best parting across the direction of largest spread."""
        if len(rows) < 2:
            mean = self._x[rows].sum(axis=0)
            return Cluster(next(self._numbers), rows, len(rows), mean, -np.inf)
        x = self._x[rows]
        mean = x.mean(axis=0)
        about = x - mean
        direction = about[np.argmax(np.vecdot(about, about))]
        for _ in range(_POWER_STEPS):
            direction = (about @ direction) @ about
            direction = direction / max(np.sqrt(direction @ direction), np.finfo(np.float64).tiny)
        along = about @ direction
        order = np.argsort(along, kind="stable")
        about, options = about[order], _partings(along[order], self._squared(direction))
        gains = [self._gain(about, n_lower) for n_lower in options]
        best = int(np.argmax(gains))
        return Cluster(next(self._numbers), rows[order], options[best], mean, gains[best])

    def _gain(self, about: FloatArray, n_lower: int) -> float:
        """Return what a parting of rows (m, M), of mean zero, gains."""
        n_upper = len(about) - n_lower
        # The sums of the two parts are opposite.
        apart = about[:n_lower].sum(axis=0) * (1.0 / n_lower + 1.0 / n_upper)
        return _separation(n_lower, n_upper, self._squared(apart))


def _partings(values: FloatArray, precision: float) -> tuple[int, int]:
    """Return how many of increasing values (n,), of mean zero, are below two good partings.

    The first one makes the likeliest Gaussians with variances of their own, to which two rows of the whole
    are added, so that single rows gain nothing. The second makes the likeliest ones of that precision.
    """
    n_rows = len(values)
    lower = np.arange(1.0, n_rows)
    upper = n_rows - lower
    sums, squares = np.cumsum(values)[:-1], np.cumsum(values**2)
    whole, squares = squares[-1], squares[:-1]
    extra = _ROWS_OF_WHOLE * whole / n_rows + np.finfo(np.float64).tiny
    below = (np.maximum(squares - sums**2 / lower, 0.0) + extra) / (lower + _ROWS_OF_WHOLE)
    above = (np.maximum(whole - squares - sums**2 / upper, 0.0) + extra) / (upper + _ROWS_OF_WHOLE)
    entropies = lower * np.log(lower) + upper * np.log(upper)
    of_their_own = entropies - 0.5 * (lower * np.log(below) + upper * np.log(above))
    common = entropies + 0.5 * precision * sums**2 * (1.0 / lower + 1.0 / upper)
    return int(np.argmax(of_their_own)) + 1, int(np.argmax(common)) + 1


def _separation(n_one: int, n_other: int, squared: float) -> float:
    """Return how much likelier two clusters are than their union; the distance is between their means."""
    both, gain = n_one + n_other, 0.0
    for size in (n_one, n_other):
        gain += size * math.log(size / both) if size else 0.0
    return gain + 0.5 * n_one * n_other / max(both, 1) * squared


def _common_precision(about: FloatArray, x: FloatArray) -> FloatArray:
    """Return the inverse of the covariance of deviations (n, M) of rows x (n, M), (M, M) or diagonal (M,)."""
    n_rows, n_features = x.shape
    # Features without deviations get small ones, so that they tell clusters apart.
    least = _LEAST_VARIANCE * np.einsum("nm,nm->m", x, x) / n_rows + np.finfo(np.float64).tiny
    if n_features > _FULL:
        return 1.0 / (np.einsum("nm,nm->m", about, about) / n_rows + least)
    return np.linalg.inv(about.T @ about / n_rows + np.diag(least))
