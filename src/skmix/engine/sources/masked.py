"""Rows with missing values on a device: the E-step of many patterns of gaps at a time.

The marginal of a kernel over the observed features has the density of a kernel in which the others vary
alone, at rows that are at its mean there. So patterns of gaps are one more axis of a batch, and no array
changes its shape from pattern to pattern. Everything is computed from differences, and moments are about the
kernels' means, where the completion of a pattern's sums is one product from each side: with x = μ + G (x − μ)
for a row with gaps at the mean, E[Σ (x − μ)(x − μ)ᵀ] = G S Gᵀ + mass · C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ..compute.arrays import (
    Array,
    as_float64,
    clip,
    constant,
    like,
    namespace,
    operations_of,
    pick,
    sent_once,
    take,
    to_numpy,
)
from ..compute.threads import Workers
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Statistics
from ..structures import Structure
from .base import Centres
from .device import Assumed, DeviceRows, finite_log
from .gaps import group_patterns, moved
from .reference import log_mix
from .summary import FARTHEST, Frame, Setting, frame_of

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


class MaskedRows(DeviceRows):
    """Rows with missing values, NaN, of another array library; each row has at least one value."""

    _patterns: tuple[int, DeviceRows | None, list[Patterns]] | None = None

    def take(self, columns: Sequence[int]) -> MaskedRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = super().take(columns).X
        seen = np.flatnonzero(~to_numpy(namespace(X).isnan(X)).all(axis=1))
        codes = None if self.codes is None else self.codes[seen]
        return MaskedRows(pick(X, seen), codes, None if self.weights is None else self.weights[seen])

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, Array]:
        """Do the E-step; see `RowSource`."""
        complete, patterns = self._grouped(parameters.weights.shape[-1])
        origins, about, parts = parameters.means, None, []
        if centres is not None:
            origins = about = namespace(self.X).where(centres[0][..., None], centres[1], origins)
        if complete is not None:
            found, own = complete.expect(parameters, factor, setting, centres, moments)
            parts.append(moved(found, own, origins, setting.structure) if moments else found)
        with operations_of(self.X).precision(setting.precision):
            for group in patterns:
                for some in _batches(group, parameters.means.shape, self.X):
                    parts.append(self._expect(some, parameters, setting, about, moments))
        return reduce(Statistics.plus, parts), origins

    def _expect(
        self, some: Patterns, parameters: Parameters, setting: Setting, origins: Array | None, moments: bool
    ) -> Statistics:
        """Return the statistics of the rows of some patterns, completed, about origins (R, K, M) or means."""
        xp, structure, (n_starts, n_kernels, n_features) = (
            namespace(self.X),
            setting.structure,
            parameters.means.shape,
        )
        marginals = Marginals.of(parameters, structure, some.seen)
        weights, n_classes = parameters.weights, parameters.weights.shape[-1]
        log_weights = finite_log(weights)
        classes = constant(np.arange, n_classes, example=self.X)
        n_patterns, sums = some.seen.shape[0], []
        for index, own, codes in _row_chunks(some, parameters.means.shape, self.X):
            n = index.shape[1]
            x = self._rows(index, setting.frame)
            values, ahead = marginals.log_densities(x, setting.precision)
            kind = values.dtype
            if origins is not None:
                ahead = marginals.ahead(x, origins, kind)
            if codes is None:
                values, indicators = values + xp.astype(log_weights, kind, copy=False), own[..., None]
            else:
                at = take(log_weights, xp.reshape(codes, (-1,)), axis=2)
                at = xp.permute_dims(xp.reshape(at, (n_starts, n_kernels, n_patterns, n)), (2, 0, 1, 3))
                values = values + xp.astype(at, kind, copy=False)
                indicators = xp.where(codes[..., None] == classes, own[..., None], 0.0)
            flat = xp.reshape(values, (n_patterns * n_starts, n_kernels, n))
            nothing = xp.zeros_like(flat[..., 0])
            responsibilities, log_sums, _ = operations_of(self.X).normalise(flat, nothing, None)  # (E)
            log_sums = xp.reshape(xp.astype(log_sums, xp.float64, copy=False), (n_patterns, n_starts, n))
            likelihood = xp.sum(log_sums @ indicators, axis=0)
            if not moments:
                sums.append((likelihood,))
                continue
            shares = xp.reshape(responsibilities, (n_patterns, n_starts * n_kernels, n))
            mass = xp.astype(shares, xp.float64, copy=False) @ indicators
            mass = xp.reshape(mass, (n_patterns, n_starts, n_kernels, n_classes))
            shares = shares * xp.astype(own, kind, copy=False)[:, None, :]
            weighted = ahead * xp.reshape(shares, (*ahead.shape[:-1], 1))
            first, second = xp.sum(weighted, axis=-2), structure.second_moment(ahead, weighted)
            wide = (xp.astype(each, xp.float64, copy=False) for each in (first, second))
            sums.append((likelihood, mass, *wide))
        likelihood, *others = (reduce(lambda a, b: a + b, each) for each in zip(*sums, strict=True))
        if not moments:
            n_second = structure.n_second(n_features)
            second = xp.zeros_like(parameters.means[..., :1]) * constant(np.zeros, n_second, example=self.X)
            return Statistics(likelihood, xp.zeros_like(weights), xp.zeros_like(parameters.means), second)
        mass, first, second = others
        first, second = marginals.complete(xp.sum(mass, axis=-1), first, second, origins)
        return Statistics(likelihood, xp.sum(mass, axis=0), first, second)

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> Array:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        xp, frame = namespace(self.X), frame_of(parameters, structure)
        unweighted = replace(parameters.batch(), weights=np.ones((1, len(parameters.means), 1)))
        inside = frame.enter(unweighted, structure).map(self.to_device)
        complete, patterns = self._grouped(1)
        results, numbers = [], []
        if complete is not None:
            results.append(complete.log_densities(parameters, structure, pool, weights))
            numbers.append(self._complete_rows)
        volumes = as_float64(np.log(frame.scale), self.X)
        for group in patterns:
            for some in _batches(group, inside.means.shape, self.X):
                marginals = Marginals.of(inside, structure, some.seen)
                volume = xp.astype(some.seen, xp.float64) @ volumes
                start = 0
                for index, _, _ in _row_chunks(some, inside.means.shape, self.X):
                    values = marginals.log_densities(self._rows(index, frame))[0][:, 0, ...]
                    values = xp.permute_dims(values - volume[:, None, None], (1, 0, 2))
                    values = xp.reshape(values, (values.shape[0], -1))
                    rows = some.rows[:, start : start + index.shape[1]].ravel()
                    start += index.shape[1]
                    kept = np.flatnonzero(rows >= 0)
                    mixed = (values if weights is None else log_mix(values, weights)).T
                    results.append(pick(mixed, kept))
                    numbers.append(rows[kept])
        return pick(xp.concat(results), np.argsort(np.concatenate(numbers)))

    def _rows(self, index: Array, frame: Frame) -> Array:
        """Return rows (B, n, M) by their numbers (B, n), in the frame; gaps are NaN."""
        xp = namespace(self.X)
        x = take(self.X, xp.reshape(index, (-1,)), axis=0)
        scale, shift = sent_once(frame.scale, self.X), sent_once(frame.shift, self.X)
        x = xp.astype(x, xp.float64, copy=False)
        # In place: `take` made a copy.
        x *= 1.0 / scale
        x -= shift
        if frame.bound.max() >= FARTHEST:
            x = clip(x, -FARTHEST, FARTHEST)
        return xp.reshape(x, (*index.shape, self.n_features))

    def _grouped(self, n_classes: int) -> tuple[DeviceRows | None, list[Patterns]]:
        """Return the complete rows, and the others by patterns of gaps; cached."""
        if self._patterns is None or self._patterns[0] != n_classes:
            codes, complete = self.codes_within(n_classes), None
            by_size: dict[int, list[tuple[IntArray, BoolArray]]] = {}
            for rows, seen in group_patterns(~to_numpy(namespace(self.X).isnan(self.X))):
                if seen.all():
                    own = None if self.codes is None else self.codes[rows]
                    weights = None if self.weights is None else self.weights[rows]
                    complete, self._complete_rows = DeviceRows(pick(self.X, rows), own, weights), rows
                    complete.keeps_terms = self.keeps_terms
                else:
                    by_size.setdefault(len(rows).bit_length(), []).append((rows, seen))
            groups = [self._group(own, codes) for own in by_size.values()]
            self._patterns = n_classes, complete, groups
        return self._patterns[1:]

    def _group(self, patterns: list[tuple[IntArray, BoolArray]], codes: IntArray | None) -> Patterns:
        rows = np.full((len(patterns), max(len(own) for own, _ in patterns)), -1)
        for number, (own, _) in enumerate(patterns):
            rows[number, : len(own)] = own
        index = np.where(rows >= 0, rows, rows[:, :1])
        weights = np.where(rows >= 0, 1.0 if self.weights is None else self.weights[index], 0.0)
        return Patterns(
            rows,
            like(np.array([seen for _, seen in patterns]), self.X),
            like(index, self.X),
            as_float64(weights, self.X),
            None if codes is None else like(codes[index].astype(np.int64), self.X),
        )

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the complete rows."""
        complete = None if self._patterns is None else self._patterns[1]
        return super().assumed if complete is None else complete.assumed

    def clear_cache(self) -> None:
        """Free the memory cached between passes."""
        self._patterns = None


def _batches(group: Patterns, shape: tuple[int, ...], X: Array) -> Iterator[Patterns]:
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


def _row_chunks(
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
