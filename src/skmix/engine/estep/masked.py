"""The E-step of rows with missing values on a device, for many patterns of gaps at a time.

The marginal of a kernel over the observed features has the density of a kernel in which the others vary
alone, at rows that are at its mean there. So patterns of gaps are one more axis of a batch, and no array
changes its shape from pattern to pattern. Everything is computed from differences, and moments are about the
kernels' means, where the completion of a pattern's sums is one product from each side: with x = μ + G (x − μ)
for a row with gaps at the mean, E[Σ (x − μ)(x − μ)ᵀ] = G S Gᵀ + mass · C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
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
    sent_once,
    take,
)
from ..model import FARTHEST, BoolArray, FloatArray, Frame, IntArray, Parameters, Setting, Statistics
from ..structures import Structure
from ..tails import NONE
from . import completion
from .gaps import group_patterns
from .terms import finite_log

# Fewest rows of a pattern that are worked on at a time.
_FEWEST_ROWS = 64
# Most patterns that are worked on at a time.
_MOST_PATTERNS = 1 << 14


@dataclass(frozen=True)
class Patterns:
    """P patterns of gaps with similar numbers of rows, up to n; tensors, but for `rows`."""

    rows: IntArray  # (P, n): numbers of the rows, on the host; −1 behind the last row of a pattern
    seen: Array  # (P, M): whether the feature is observed
    index: Array  # (P, n): numbers of the rows, the first one again behind the last
    weights: Array  # (P, n): weights of the rows, 0 behind the last
    codes: Array | None  # (P, n): classes of the rows; None for one class

    def batches(self, shape: tuple[int, ...]) -> Iterator[Patterns]:
        """Yield as many patterns at a time as fit in memory with the kernels of means of shape (R, K, M)."""
        n_rows = min(self.rows.shape[1], self._rows_at_a_time(shape))
        most = operations_of(self.seen).chunk // (math.prod(shape) * max(n_rows, shape[-1]))
        most = max(1, min(most, _MOST_PATTERNS // shape[0]))
        for a in range(0, len(self.rows), most):
            some: Any = (None if each is None else each[a : a + most] for each in vars(self).values())
            yield Patterns(*some)

    def chunks(self, shape: tuple[int, ...]) -> Iterator[Patterns]:
        """Yield chunks of the rows of all patterns."""
        step = self._rows_at_a_time(shape)
        for a in range(0, self.rows.shape[1], step):
            b, codes = a + step, self.codes
            yield replace(
                self,
                rows=self.rows[:, a:b],
                index=self.index[:, a:b],
                weights=self.weights[:, a:b],
                codes=None if codes is None else codes[:, a:b],
            )

    def _rows_at_a_time(self, shape: tuple[int, ...]) -> int:
        """Return how many rows of a pattern fit in memory with their differences from means (R, K, M)."""
        return max(_FEWEST_ROWS, operations_of(self.seen).chunk // math.prod(shape))

    def values(self, X: Array, frame: Frame) -> Array:
        """Return the rows (P, n, M), among rows X (N, M), in the frame; gaps are NaN."""
        x = take(X, self.index.reshape(-1), axis=0).double()
        x = x * (1.0 / sent_once(frame.scale, X)) - sent_once(frame.shift, X)
        if frame.bound.max() >= FARTHEST:
            x = clip(x, -FARTHEST, FARTHEST)
        return x.reshape(*self.index.shape, X.shape[1])


def group(
    X: Array, observed: BoolArray, codes: IntArray | None, weights: FloatArray | None
) -> list[Patterns]:
    """Return the rows X (N, M) that are not wholly `observed` (N, M), by patterns of similar size."""
    by_size: dict[int, list[tuple[IntArray, BoolArray]]] = {}
    for rows, seen in group_patterns(observed):
        if not seen.all():
            by_size.setdefault(len(rows).bit_length(), []).append((rows, seen))
    return [_padded(X, patterns, codes, weights) for patterns in by_size.values()]


def _padded(
    X: Array, patterns: list[tuple[IntArray, BoolArray]], codes: IntArray | None, weights: FloatArray | None
) -> Patterns:
    """Return patterns as one record, with the arrays of each padded to those of the largest."""
    rows = np.full((len(patterns), max(len(own) for own, _ in patterns)), -1)
    for number, (own, _) in enumerate(patterns):
        rows[number, : len(own)] = own
    index = np.where(rows >= 0, rows, rows[:, :1])
    shares = np.where(rows >= 0, 1.0 if weights is None else weights[index], 0.0)
    return Patterns(
        rows,
        like(np.array([seen for _, seen in patterns]), X),
        like(index, X),
        as_float64(shares, X),
        None if codes is None else like(codes[index].astype(np.int64), X),
    )


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
        apart = completion.apart(structure, parameters.covariances, seen)
        factor = structure.factor(apart, n_features)
        shape = (seen.shape[0], n_starts)
        logs = xp.log(structure.variances(apart))
        logs = logs.reshape(*shape, *logs.shape[1:])
        alone = xp.sum(logs * (~seen).double()[:, None, None, :], axis=-1)
        determinants = factor.log_determinant.reshape(*shape, -1) - alone
        n_seen = seen.double().sum(-1)[:, None, None]
        whiteners = factor.whitener.reshape(*shape, *factor.whitener.shape[1:])
        constants = NONE.log_peaks(determinants, n_seen)
        return cls(structure, seen, parameters.means, parameters.covariances, whiteners, constants)

    def log_densities(self, x: Array, kind: Any) -> tuple[Array, Array]:
        """Return log-densities (B, R, K, n) of rows x (B, n, M), and differences (B, R, K, n, M) from means.

        Differences are zero at gaps; `kind` is the type of all numbers.
        """
        ahead = self.ahead(x, self.means, kind)
        distances = self.structure.distances(self.whiteners.to(kind), ahead.mT)
        return self.constants.to(kind)[..., None] - 0.5 * distances, ahead

    def ahead(self, x: Array, origins: Array, kind: Any) -> Array:
        """Return differences (B, R, K, n, M) of rows x (B, n, M) from origins (R, K, M), zero at gaps."""
        found = x[:, None, None] - origins[None, :, :, None]
        return namespace(x).where(self.seen[:, None, None, None], found, 0.0).to(kind)


def expect(
    X: Array,
    patterns: Patterns,
    parameters: Parameters,
    setting: Setting,
    origins: Array | None,
    moments: bool,
) -> Iterator[Statistics]:
    """Yield the statistics of the rows of patterns, completed, about origins (R, K, M) or the means."""
    xp, structure, shape = namespace(X), setting.structure, parameters.means.shape
    n_second, log_weights = structure.n_second(shape[-1]), finite_log(parameters.weights)
    for some in patterns.batches(shape):
        marginals = Marginals.of(parameters, structure, some.seen)
        given = marginals, log_weights, setting, origins, moments
        parts = [_sums(X, each, *given) for each in some.chunks(shape)]
        likelihood, *others = (reduce(add, each) for each in zip(*parts, strict=True))
        if not moments:
            second = likelihood.new_zeros((*shape[:2], n_second))
            yield Statistics(likelihood, xp.zeros_like(log_weights), xp.zeros_like(parameters.means), second)
            continue
        mass, first, second = others
        first, second = completion.completed(
            structure,
            some.seen,
            parameters.covariances,
            marginals.whiteners,
            mass.sum(-1),
            first,
            second,
            None if origins is None else parameters.means - origins,
        )
        yield Statistics(likelihood, mass.sum(0), first, second)


def _sums(
    X: Array,
    some: Patterns,
    marginals: Marginals,
    log_weights: Array,
    setting: Setting,
    origins: Array | None,
    moments: bool,
) -> tuple[Array, ...]:
    """Return log-likelihoods (R, C) of a chunk, and the mass (B, R, K, C) and moments of each pattern."""
    xp, x = namespace(X), some.values(X, setting.frame)
    kind = xp.float64 if setting.precision == "float64" else xp.float32
    values, ahead = marginals.log_densities(x, kind)
    n_patterns, n_starts, n_kernels, n = values.shape
    if origins is not None:
        ahead = marginals.ahead(x, origins, kind)
    if some.codes is None:
        values, indicators = values + log_weights.to(kind), some.weights[..., None]
    else:
        at = take(log_weights, some.codes.reshape(-1), axis=2).reshape(n_starts, n_kernels, n_patterns, n)
        values = values + at.permute(2, 0, 1, 3).to(kind)
        classes = constant(np.arange, log_weights.shape[-1], example=X)
        indicators = xp.where(some.codes[..., None] == classes, some.weights[..., None], 0.0)
    flat = values.reshape(n_patterns * n_starts, n_kernels, n)
    shares, log_sums, _ = operations_of(X).normalise(flat, xp.zeros_like(flat[..., 0]), None)  # (E)
    likelihood = (log_sums.double().reshape(n_patterns, n_starts, n) @ indicators).sum(0)
    if not moments:
        return (likelihood,)
    shares = shares.reshape(n_patterns, n_starts * n_kernels, n)
    mass = (shares.double() @ indicators).reshape(n_patterns, n_starts, n_kernels, -1)
    shares = (shares * some.weights.to(kind)[:, None]).reshape(*ahead.shape[:-1], 1)
    weighted = ahead * shares
    second: Array = marginals.structure.second_moment(ahead, weighted)
    return likelihood, mass, weighted.sum(-2).double(), second.double()


def log_densities(
    X: Array, patterns: Patterns, parameters: Parameters, structure: Structure, frame: Frame
) -> Iterator[tuple[IntArray, Array]]:
    """Yield numbers of rows (n,) and their log-densities (K, n) under one model (1, …) in the frame."""
    volumes, shape = as_float64(np.log(frame.scale), X), parameters.means.shape
    for some in patterns.batches(shape):
        marginals = Marginals.of(parameters, structure, some.seen)
        volume = some.seen.double() @ volumes
        for each in some.chunks(shape):
            values = marginals.log_densities(each.values(X, frame), namespace(X).float64)[0][:, 0]
            values = (values - volume[:, None, None]).permute(1, 0, 2).reshape(shape[1], -1)
            kept = np.flatnonzero(each.rows.ravel() >= 0)
            yield each.rows.ravel()[kept], take(values, sent_once(kept, X), axis=1)
