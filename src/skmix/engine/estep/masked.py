"""Rows with missing values on a device: the E-step of many patterns of gaps at a time.

The marginal of a kernel over the observed features has the density of a kernel in which the others vary
alone, at rows that are at its mean there. So patterns of gaps are one more axis of a batch, and no array
changes its shape from pattern to pattern. Everything is computed from differences, and moments are about the
kernels' means, where the completion of a pattern's sums is one product from each side: with x = μ + G (x − μ)
for a row with gaps at the mean, E[Σ (x − μ)(x − μ)ᵀ] = G S Gᵀ + mass · C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..compute.arrays import (
    Array,
    namespace,
    operations_of,
)
from ..model import IntArray, Parameters
from ..structures import Structure

# Fewest rows of a pattern that are worked on at a time, and most patterns.
_FEWEST_ROWS = 64
_MOST_PATTERNS = 1 << 14


@dataclass(frozen=True)
class Patterns:
    """P patterns of gaps with similar numbers of rows, up to n; arrays of the rows' library."""

    rows: IntArray  # (P, n): numbers of the rows, on the host; −1 behind the last row of a pattern
    seen: Array  # (P, M): whether the feature is observed
    index: Array  # (P, n): numbers of the rows, the first one again behind the last
    weights: Array  # (P, n): weights of the rows, 0 behind the last
    codes: Array | None  # (P, n): classes of the rows; None for one class


@dataclass(frozen=True)
class Marginals:
    """R starts seen through B patterns, as a batch (B, R, K)."""

    structure: Structure
    seen: Array  # (B, M)
    means: Array  # (R, K, M)
    covariances: Array  # those of the R starts
    whiteners: Array  # (B, R, K or 1, …): of covariances in which unseen features vary alone
    constants: Array  # (B, R, K or 1): log-density at the mean

    @classmethod
    def of(cls, parameters: Parameters, structure: Structure, seen: Array) -> Marginals:
        """Return the marginals of parameters over the features that are `seen` (B, M)."""
        xp, (n_starts, _, n_features) = namespace(seen), parameters.means.shape
        apart = structure.apart(parameters.covariances, seen)
        factor = structure.factor(apart, n_features)
        shape = (seen.shape[0], n_starts)
        logs = xp.log(structure.variances(apart))
        logs = xp.reshape(logs, (*shape, *logs.shape[1:]))
        unseen = xp.astype(~seen, xp.float64)[:, None, None, :]
        determinants = xp.reshape(factor.log_determinant, (*shape, -1)) - xp.sum(logs * unseen, axis=-1)
        n_seen = xp.sum(xp.astype(seen, xp.float64), axis=-1)[:, None, None]
        whiteners = xp.reshape(factor.whitener, (*shape, *factor.whitener.shape[1:]))
        constants = -0.5 * (determinants + n_seen * math.log(2 * math.pi))
        return cls(structure, seen, parameters.means, parameters.covariances, whiteners, constants)

    def log_densities(self, x: Array, precision: str = "float64") -> tuple[Array, Array]:
        """Return log-densities (B, R, K, n) of rows x (B, n, M), and differences (B, R, K, n, M) from means.

        Differences are zero at gaps.
        """
        xp = namespace(x)
        kind = xp.float64 if precision == "float64" else xp.float32
        ahead = self.ahead(x, self.means, kind)
        whiteners = xp.astype(self.whiteners, kind, copy=False)
        distances = self.structure.distances(whiteners, xp.matrix_transpose(ahead))
        return xp.astype(self.constants, kind, copy=False)[..., None] - 0.5 * distances, ahead

    def ahead(self, x: Array, origins: Array, kind: Any) -> Array:
        """Return differences (B, R, K, n, M) of rows x (B, n, M) from origins (R, K, M), zero at gaps."""
        xp, found = namespace(x), x[:, None, None, ...] - origins[None, :, :, None, :]
        return xp.astype(xp.where(self.seen[:, None, None, None, :], found, 0.0), kind, copy=False)

    def complete(
        self, mass: Array, first: Array, second: Array, origins: Array | None
    ) -> tuple[Array, Array]:
        """Return expected first (R, K, M) and second moments (R, K, S) of all features about the origins.

        Origins (R, K, M) are the means if None. The result is summed over the patterns, given the sums of
        each over the seen features.
        """
        given = self.seen, self.covariances, self.whiteners, mass, first, second
        return self.structure.completed(*given, None if origins is None else self.means - origins)


def batches(group: Patterns, shape: tuple[int, ...], X: Array) -> Iterator[Patterns]:
    """Yield as many patterns at a time as fit in memory with the kernels of means of that shape (R, K, M)."""
    n_rows = min(group.rows.shape[1], _rows_at_a_time(shape, X))
    most = operations_of(X).chunk // (math.prod(shape) * max(n_rows, shape[-1]))
    most = max(1, min(most, _MOST_PATTERNS // shape[0]))
    for start in range(0, len(group.rows), most):
        cut = slice(start, min(start + most, len(group.rows)))
        codes = None if group.codes is None else group.codes[cut, ...]
        yield Patterns(
            group.rows[cut], group.seen[cut, ...], group.index[cut, ...], group.weights[cut, ...], codes
        )


def row_chunks(
    some: Patterns, shape: tuple[int, ...], X: Array
) -> Iterator[tuple[Array, Array, Array | None]]:
    """Yield numbers, weights and classes (B, n) of chunks of the rows of all patterns."""
    step = _rows_at_a_time(shape, X)
    for start in range(0, some.rows.shape[1], step):
        cut = slice(start, min(start + step, some.rows.shape[1]))
        codes = None if some.codes is None else some.codes[:, cut]
        yield some.index[:, cut], some.weights[:, cut], codes


def _rows_at_a_time(shape: tuple[int, ...], X: Array) -> int:
    """Return how many rows of a pattern fit in memory with their differences from means (R, K, M)."""
    return max(_FEWEST_ROWS, operations_of(X).chunk // math.prod(shape))
