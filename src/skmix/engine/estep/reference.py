"""The E-step and log-densities in plain NumPy.

This is the definition that the compiled core is tested against. It makes all passes where there is no core.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..exponentials import TILE, log_mix, padded
from ..kernels import GAUSSIAN, Sums, Tail
from ..numbers import Record, join, safe_log
from ..records import Factor, FloatArray, Frame, IntArray, Parameters, Statistics
from ..structures import Structure
from .terms import share

# Numbers in the differences of rows from means that are held at a time.
HELD = 1 << 17


def operations(n_rows: int, n_kernels: int, n_features: int) -> int:
    """Return roughly how many operations a pass takes."""
    # Whitening and moments take M² of them, an exponential and what is around it about 20.
    return n_rows * n_kernels * (n_features**2 + 20)


@dataclass(frozen=True)
class Rows:
    """Complete rows in a NumPy array, seen in a frame."""

    X: np.ndarray  # (N, M): float64 or float32
    codes: IntArray | None  # (N,): class of each row; None for one class
    weights: FloatArray | None  # (N,): positive; None when all are one
    frame: Frame

    @property
    def scatter(self) -> FloatArray:
        """Weighted sum of x xᵀ, shape (M, M), kept between passes."""
        if "scatter" not in self.kept:
            self.kept["scatter"] = self._scatter()
        scatter: FloatArray = self.kept["scatter"]
        return scatter

    def _scatter(self) -> FloatArray:
        total = np.zeros((self.X.shape[1], self.X.shape[1]))
        step = max(1, HELD // self.X.shape[1])
        for a in range(0, len(self.X), step):
            x = self.cut(a, a + step)
            total += (x if self.weights is None else x * self.weights[a : a + step]) @ x.T
        return total

    @cached_property
    def whole(self) -> FloatArray:
        """All rows in the frame, feature by feature (M, N): kept between passes over few rows."""
        return self.cut(0, len(self.X))

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What other E-steps keep between passes."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, which is not what E-steps have kept."""
        return {name: value for name, value in vars(self).items() if name != "kept"}

    def cut(self, a: int, b: int) -> FloatArray:
        """Return rows a … b − 1 in the frame, feature by feature (M, n)."""
        return self.frame.rows(self.X[a:b])


def native(X: np.ndarray) -> np.ndarray:
    """Return rows of float64 or float32 numbers in the processor's order of bytes."""
    return X if X.dtype in (np.float64, np.float32) and X.dtype.isnative else X.astype(np.float64)


@dataclass(frozen=True)
class Kernels(Record):
    """The kernels of R starts, in the same frame."""

    structure: Structure
    means: FloatArray  # (R, K, M)
    factor: Factor
    constants: FloatArray  # (R, K): log-density at the mean
    log_weights: FloatArray  # (R, K, C)
    tail: Tail = GAUSSIAN

    @classmethod
    def of(cls, parameters: Parameters, factor: Factor, structure: Structure) -> Kernels:
        """Return the kernels of parameters with that factor."""
        tail = parameters.tail
        constants = tail.log_peaks(factor.log_determinant, parameters.means.shape[-1])
        if constants.shape[1] != parameters.means.shape[1]:
            constants = np.broadcast_to(constants, parameters.means.shape[:2])
        return cls(structure, parameters.means, factor, constants, safe_log(parameters.weights), tail)


def log_densities(ahead: FloatArray, kernels: Kernels) -> tuple[FloatArray, FloatArray | None]:
    """Return log-densities (R, K, n) of rows, and the rows' precisions if the tail weights them.

    The rows are given by their differences (R, K, M, n) from the means.
    """
    distances = kernels.structure.distances(kernels.factor.whitener, ahead)
    return kernels.tail.at_distances(distances, kernels.constants[..., None], ahead.shape[-2])


def expect(rows: Rows, kernels: Kernels, origins: FloatArray, *, with_moments: bool = True) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about `origins` (R, K, M)."""
    n_starts, n_kernels, n_features = kernels.means.shape
    # The sizes of chunks depend on one start, so that a start does not depend on the others.
    chunk = max(TILE, HELD // (n_kernels * n_features))
    batch = max(1, HELD // (n_kernels * n_features * max(1, min(chunk, len(rows.X)))))
    if n_starts > batch:
        cuts = [slice(a, a + batch) for a in range(0, n_starts, batch)]
        return join([expect(rows, kernels.take(s), origins[s], with_moments=with_moments) for s in cuts])
    n_classes = kernels.log_weights.shape[-1]
    likelihood, mass = np.zeros((n_starts, n_classes)), np.zeros((n_starts, n_kernels, n_classes))
    first = np.zeros_like(kernels.means)
    second: FloatArray = np.zeros((n_starts, n_kernels, 1))
    of_tail: Sums = ()
    for a in range(0, max(1, len(rows.X)), chunk):
        x = rows.whole if chunk >= len(rows.X) else rows.cut(a, a + chunk)
        codes = np.zeros(x.shape[1], dtype=np.int64) if rows.codes is None else rows.codes[a : a + chunk]
        ahead = x - kernels.means[..., None]
        values, precisions = log_densities(ahead, kernels)
        values += kernels.log_weights if n_classes == 1 else kernels.log_weights[..., codes]
        row_weights = None if rows.weights is None else rows.weights[a : a + chunk]
        of_likelihood, of_mass, shares = share(values, codes, row_weights, n_classes, with_moments)
        likelihood += of_likelihood
        mass += of_mass
        if shares is None:
            continue
        weights, terms = kernels.tail.weigh(shares, precisions, len(x))
        of_tail = tuple(map(operator.add, of_tail, terms)) if of_tail else terms
        ahead = np.swapaxes(ahead if origins is kernels.means else x - origins[..., None], -1, -2)
        weighted = ahead * weights[..., None]
        first += weighted.sum(axis=-2)
        second = second + kernels.structure.pack(kernels.structure.second_moment(ahead, weighted))
    # The sums of a start with NaN among its parameters must not pass for those of a fit.
    arrays = kernels.means, kernels.factor.whitener, kernels.constants, kernels.log_weights
    for array in arrays:
        likelihood[np.isnan(array.reshape(n_starts, -1)).any(axis=1)] = np.nan
    return Statistics(likelihood, mass, first, second, of_tail)


def all_log_densities(rows: Rows, kernels: Kernels, weights: FloatArray | None) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), under one start, or their mixtures with weights (K, L)."""
    n_rows = len(rows.X)
    out = np.empty((n_rows, kernels.means.shape[1] if weights is None else weights.shape[1]))
    for a in range(0, n_rows, TILE):
        values = log_densities(padded(rows.cut(a, a + TILE)) - kernels.means[..., None], kernels)[0][0]
        part = values if weights is None else log_mix(values, weights)
        out[a : a + TILE] = part[:, : n_rows - a].T
    return out


def lloyd(rows: Rows, centres: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return sums (K, M + 1) over the rows nearest to each centre, and each row's nearest centre (N,)."""
    n_kernels, n_features = centres.shape
    sums, nearest = np.zeros((n_kernels, n_features + 1)), np.empty(len(rows.X), dtype=np.int64)
    halves, step = 0.5 * np.vecdot(centres, centres), max(1, HELD // n_kernels)
    for a in range(0, len(rows.X), step):
        x = rows.cut(a, a + step).T
        nearest[a : a + step] = np.argmax(x @ centres.T - halves, axis=1)
        weights = np.ones(len(x)) if rows.weights is None else rows.weights[a : a + step]
        values = np.column_stack([x, np.ones(len(x))]) * weights[:, None]
        sums += (nearest[a : a + step] == np.arange(n_kernels)[:, None]).astype(np.float64) @ values
    return sums, nearest
