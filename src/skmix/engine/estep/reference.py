"""The E-step and log-densities in plain NumPy.

This is the definition that compiled code is tested against. It also serves small problems, where loading
compiled code would take longer than the work, and computers without Numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..compute.arrays import join, safe_log
from ..model import Factor, FloatArray, IntArray, Parameters, Statistics
from ..structures import Structure
from ..tails import NONE, Tail
from .terms import share

# Numbers in the differences of rows from means that are held at a time.
HELD = 1 << 17
# Rows of a log-density's matrix product: the rounding of a row depends on this size, not on the other rows.
TILE = 64


@dataclass(frozen=True)
class Rows:
    """Complete rows in a NumPy array, seen in a frame: x' = x · scale − shift."""

    X: np.ndarray  # (N, M): float64 or float32
    codes: IntArray | None  # (N,): class of each row; None for one class
    weights: FloatArray | None  # (N,): positive; None when all are one
    scale: FloatArray  # (M,)
    shift: FloatArray  # (M,)
    limit: float  # values beyond ± limit are clipped, so that their squares stay finite

    @cached_property
    def scatter(self) -> FloatArray:
        """Weighted sum of x xᵀ, shape (M, M)."""
        total = np.zeros((self.X.shape[1], self.X.shape[1]))
        step = max(1, HELD // self.X.shape[1])
        for a in range(0, len(self.X), step):
            x = self.cut(a, a + step)
            total += (x if self.weights is None else x * self.weights[a : a + step]) @ x.T
        return total

    def cut(self, a: int, b: int) -> FloatArray:
        """Return rows a … b − 1 in the frame, feature by feature (M, n)."""
        # Contiguous, whatever the order of X: the rounding of sums depends on it.
        x = np.ascontiguousarray(self.X[a:b].T, dtype=np.float64)
        with np.errstate(over="ignore"):
            x = x * self.scale[:, None] - self.shift[:, None]
        return np.clip(x, -self.limit, self.limit, out=x)


@dataclass(frozen=True)
class Kernels:
    """The kernels of R starts, in the same frame."""

    structure: Structure
    means: FloatArray  # (R, K, M)
    factor: Factor
    constants: FloatArray  # (R, K): log-density at the mean
    log_weights: FloatArray  # (R, K, C)
    tail: Tail = NONE
    log_outside: FloatArray | None = None  # (R, C): log-joint of the background, the same for all rows

    @classmethod
    def of(cls, parameters: Parameters, factor: Factor, structure: Structure) -> Kernels:
        """Return the kernels of parameters with that factor."""
        tail = parameters.tail
        constants = tail.log_peaks(factor.log_determinant, parameters.means.shape[-1])
        constants = np.broadcast_to(constants, parameters.means.shape[:2])
        outside = tail.log_outside(slice(None))
        log_weights = safe_log(parameters.weights)
        return cls(structure, parameters.means, factor, constants, log_weights, tail, outside)

    def take(self, starts: slice | IntArray) -> Kernels:
        """Return some of the starts."""
        return Kernels(
            self.structure,
            self.means[starts],
            self.factor.take(starts),
            self.constants[starts],
            self.log_weights[starts],
            self.tail.take(starts),
            None if self.log_outside is None else self.log_outside[starts],
        )


def log_densities(x: FloatArray, kernels: Kernels) -> FloatArray:
    """Return the kernels' log-densities, shape (R, K, n), of rows x (M, n)."""
    return _with_precisions(x, kernels)[0]


def _with_precisions(x: FloatArray, kernels: Kernels) -> tuple[FloatArray, FloatArray | None]:
    """Return log-densities (R, K, n) of rows x (M, n), and the rows' precisions if the tail weights them."""
    distances = kernels.structure.distances(kernels.factor.whitener, x - kernels.means[..., None])
    return kernels.tail.at_distances(distances, kernels.constants[..., None], len(x))


def moments(ahead: FloatArray, weights: FloatArray, kernels: Kernels) -> tuple[FloatArray, FloatArray]:
    """Return first (R, K, M) and second moments (R, K, S) about the origins.

    Differences of n rows from the origins are (R, K, n, M), weights (R, K, n).
    """
    weighted = ahead * weights[..., None]
    return weighted.sum(axis=-2), kernels.structure.second_sums(ahead, weighted, kernels.factor)


def expect(rows: Rows, kernels: Kernels, origins: FloatArray, *, with_moments: bool = True) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about `origins` (R, K, M)."""
    n_starts, n_kernels, n_features = kernels.means.shape
    # The sizes of chunks depend on one start, so that a start does not depend on the others.
    chunk = max(TILE, HELD // (n_kernels * n_features))
    group = max(1, HELD // (n_kernels * n_features * max(1, min(chunk, len(rows.X)))))
    if n_starts <= group:
        return _expect(rows, kernels, origins, chunk, with_moments)
    parts = [slice(a, a + group) for a in range(0, n_starts, group)]
    return join([_expect(rows, kernels.take(s), origins[s], chunk, with_moments) for s in parts])


def _expect(rows: Rows, kernels: Kernels, origins: FloatArray, chunk: int, with_moments: bool) -> Statistics:
    n_starts, n_kernels, _ = kernels.means.shape
    n_classes = kernels.log_weights.shape[-1]
    likelihood, mass = np.zeros((n_starts, n_classes)), np.zeros((n_starts, n_kernels, n_classes))
    first = np.zeros_like(kernels.means)
    second: FloatArray = np.zeros((n_starts, n_kernels, 1))
    tail, of_tail = kernels.tail, kernels.tail.no_sums(mass)
    for a in range(0, len(rows.X), chunk):
        x = rows.cut(a, a + chunk)
        codes = np.zeros(x.shape[1], dtype=np.int64) if rows.codes is None else rows.codes[a : a + chunk]
        values, precisions = _with_precisions(x, kernels)
        found = share(
            values + kernels.log_weights[..., codes],
            None if kernels.log_outside is None else kernels.log_outside[:, codes],
            codes,
            None if rows.weights is None else rows.weights[a : a + chunk],
            n_classes,
            with_moments,
        )
        likelihood += found.likelihood
        mass += found.mass
        if found.shares is None:
            continue
        weights, own = tail.weigh(found.shares, found.outside, precisions, len(x))
        of_tail = tuple(total + part for total, part in zip(of_tail, own, strict=True))
        sums = moments(np.swapaxes(x - origins[..., None], -1, -2), weights, kernels)
        first += sums[0]
        second = second + sums[1]
    return Statistics(likelihood, mass, first, second, of_tail)


def tiles(rows: Rows, kernels: Kernels) -> Iterator[tuple[int, FloatArray]]:
    """Yield the first row and the log-densities (K, n) of tiles of rows, under one start.

    The last tile is padded to 64 rows as well: a row's bits must not depend on the other rows.
    """
    for a in range(0, len(rows.X), TILE):
        x = rows.cut(a, a + TILE)
        if x.shape[1] < TILE:
            x = x.take(np.minimum(np.arange(TILE), x.shape[1] - 1), axis=1)
        yield a, log_densities(x, kernels)[0]
