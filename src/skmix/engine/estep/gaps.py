"""Rows with missing values, ordered by which features are observed.

If values are missing at random, the density of a row is the marginal density of its observed values. Its
expected moments are those of the row with conditional means in its gaps, plus the conditional covariance of
the missing values, which is the same for all rows of a pattern. So rows are completed once for every kernel
and are then like others; no value is imputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

import numpy as np

from ..._core import core
from ..exponentials import TILE, log_mix
from ..kernels import Tail
from ..records import BoolArray, FloatArray, IntArray, Statistics
from ..structures import Structure
from ..structures.factors import INFLATED, invert_lower, whiten_batch
from ..threads import Workers
from . import host
from .inputs import HELD, Kernels, Rows, in_batches
from .terms import likelihood_alone, share, sum_moments

# Numbers of the covariances of patterns of gaps that are factored together.
_FACTORED = 1 << 21


# ---------------------------------------------------------------- rows by patterns of gaps


def rows_by_pattern(X: np.ndarray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows and the observed features of each pattern of gaps."""
    order = _order(X)
    is_observed = ~np.isnan(X[order])
    for a, b in pairwise(_first_rows(is_observed)):
        yield order[a:b], np.flatnonzero(is_observed[a])


def _order(X: np.ndarray) -> IntArray:
    """Return the numbers (n,) of rows X (n, M), ordered by their patterns of gaps."""
    return np.lexsort(np.packbits(~np.isnan(X), axis=1).T)


def _first_rows(is_observed: BoolArray) -> IntArray:
    """Return the first row of each of P patterns, and the end, (P + 1,), of ordered rows (n, M)."""
    is_first = np.append(True, np.any(is_observed[1:] != is_observed[:-1], axis=1))
    return np.append(np.flatnonzero(is_first), len(is_observed))


@dataclass(frozen=True)
class Chunk:
    """Rows with gaps, in a frame, ordered by their P patterns."""

    index: IntArray  # (n,): numbers of the rows
    x: FloatArray  # (n, M): zero at gaps
    is_observed: BoolArray  # (n, M)
    codes: IntArray  # (n,)
    weights: FloatArray | None  # (n,)
    first: IntArray  # (P + 1,): first row of each pattern, and n
    patterns: BoolArray  # (P, M): observed features
    orders: IntArray  # (P, M): features, the observed ones first
    n_observed: IntArray  # (P,)

    @classmethod
    def of(cls, rows: Rows, index: IntArray) -> Chunk:
        """Return a chunk of the rows with these numbers, which are ordered by pattern."""
        x = np.ascontiguousarray(rows.frame.rows(rows.X[index]).T)
        is_observed = ~np.isnan(x)
        x[~is_observed] = 0.0
        codes = np.zeros(len(x), dtype=np.int64) if rows.codes is None else rows.codes[index]
        weights = None if rows.weights is None else rows.weights[index]
        first = _first_rows(is_observed)
        patterns = is_observed[first[:-1]]
        orders = np.argsort(~patterns, axis=1, kind="stable")
        return cls(index, x, is_observed, codes, weights, first, patterns, orders, patterns.sum(axis=1))

    def to_rows(self, values: np.ndarray) -> np.ndarray:
        """Return values (..., n) of the rows from values (..., P) of their patterns."""
        return np.repeat(values, np.diff(self.first), axis=-1)


def chunk_size(n_kernels: int, n_features: int) -> int:
    """Return the rows of a chunk: it depends on one start, so that a start does not depend on the others."""
    return max(TILE, HELD // (n_kernels * n_features))


def chunks_of(rows: Rows, index: IntArray, size: int) -> list[Chunk]:
    """Return the rows with those numbers, in chunks of up to `size`."""
    index = index[_order(rows.X[index])]
    return [Chunk.of(rows, index[a : a + size]) for a in range(0, len(index), size)]


# ---------------------------------------------------------------- passes


def expect(
    chunks: list[Chunk],
    kernels: Kernels,
    covariances: FloatArray,
    pool: Workers,
    *,
    with_moments: bool = True,
) -> Statistics:
    """Do the E-step of chunks of rows under kernels with those covariances; see `host.expect`."""
    _, n_kernels, n_features = kernels.means.shape
    is_exact = kernels.structure.inflation(covariances, kernels.factor) <= INFLATED
    together = max(1, HELD // (n_kernels * n_features * max(len(chunk.x) for chunk in chunks)))

    def of_starts(starts: IntArray, some: Kernels) -> Statistics:
        model = some, covariances[starts], bool(is_exact[starts[0]])
        return reduce(Statistics.plus, pool.map(partial(_expect, *model, with_moments), chunks))

    return in_batches(kernels, is_exact, together, of_starts)


def _expect(
    kernels: Kernels, covariances: FloatArray, exact: bool, with_moments: bool, chunk: Chunk
) -> Statistics:
    """Do the E-step of a chunk."""
    done = completed(chunk, kernels, covariances, exact=exact, with_moments=with_moments)
    values, precisions = _log_densities(chunk, done, kernels.tail)
    joint = values + kernels.log_weights[..., chunk.codes]
    log_likelihood, mass, shares = share(joint, chunk.codes, chunk.weights, kernels.log_weights.shape[-1])
    if done.differences is None:
        return likelihood_alone(log_likelihood, kernels)
    differences = done.differences
    if not np.array_equal(kernels.origins, kernels.means):
        # Observed values keep their digits only if the origin is subtracted from the values themselves.
        expected = differences + (kernels.means - kernels.origins)[:, :, None]
        differences = np.where(chunk.is_observed, chunk.x - kernels.origins[:, :, None], expected)
    n_observed = chunk.to_rows(chunk.n_observed)
    first, second, of_tail = sum_moments(differences, shares, precisions, n_observed, kernels)
    # Missing values vary by P_g|o over the precision of the row, which weights the row: the two cancel.
    mass_of_patterns = np.add.reduceat(shares, chunk.first[:-1], axis=-1)
    remaining = kernels.structure.pack(done.remaining(mass_of_patterns))
    second[:, : remaining.shape[1]] += remaining
    return Statistics(log_likelihood, mass, first, second, of_tail)


def _log_densities(
    chunk: Chunk, done: Completed, tail: Tail, log_units: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray | None]:
    """Return log-densities (R, K, n) of observed values, less logarithms (P,) of their units; and precisions.

    The precisions (R, K, n) are None unless the tail weights rows.
    """
    peaks = chunk.to_rows(tail.log_peaks(done.log_determinants, chunk.n_observed) - log_units)
    return tail.at_distances(done.distances, peaks, chunk.to_rows(chunk.n_observed))


def log_densities(
    rows: Rows, kernels: Kernels, covariances: FloatArray, weights: FloatArray | None, pool: Workers
) -> FloatArray:
    """Return log-densities (N, K) of the rows' observed values, or mixtures (N, L); see `host.log_densities`.

    The density of a row without any value is 1. The model, of one start, is in the rows' frame; densities are
    in the data's coordinates.
    """
    _, n_kernels, n_features = kernels.means.shape
    is_missing = np.isnan(rows.X)
    result = np.zeros((len(rows.X), n_kernels if weights is None else weights.shape[1]))
    complete = np.flatnonzero(~is_missing.any(axis=1))
    if len(complete):
        result[complete] = host.log_densities(replace(rows, X=rows.X[complete]), kernels, weights, pool)
    # Decide by the model only, so that a row's bits do not depend on other rows.
    is_exact = kernels.structure.inflation(covariances, kernels.factor)[0] <= INFLATED
    log_scales = np.log(rows.frame.scale)

    def score(chunk: Chunk) -> FloatArray:
        done = completed(chunk, kernels, covariances, exact=is_exact, with_moments=False)
        log_units = np.where(chunk.patterns, log_scales, 0.0).sum(axis=1)
        values = _log_densities(chunk, done, kernels.tail, log_units)[0][0]
        return values.T if weights is None else log_mix(values, weights).T

    index = np.flatnonzero(is_missing.any(axis=1) & ~is_missing.all(axis=1))
    chunks = chunks_of(rows, index, chunk_size(n_kernels, n_features))
    for chunk, values in zip(chunks, pool.map(score, chunks), strict=True):
        result[chunk.index] = values
    return result


# ---------------------------------------------------------------- completion


@dataclass(frozen=True)
class Completed:
    """A chunk under the kernels of R starts; o are a row's observed features and g the missing ones."""

    distances: FloatArray  # (R, K, n): squared, of the observed values under P_oo
    log_determinants: FloatArray  # (R, K or 1, P): log|P_oo|
    # (R, K, n, M): x_o − μ_o, and E[x_g | x_o] − μ_g; None without moments
    differences: FloatArray | None
    # From the mass (R, K, P) of patterns to the sums of mass times P_g|o, (R, K or 1, M, M), or (R, K, M) if
    # features are independent
    remaining: Callable[[FloatArray], FloatArray]


def completed(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, *, exact: bool, with_moments: bool
) -> Completed:
    """Complete the rows of a chunk under kernels with those covariances.

    The core is not `exact` enough if their inverses lose too many digits.
    """
    if not kernels.structure.triangular:
        return _complete_independent(chunk, kernels, covariances, with_moments)
    if core() is not None and exact:
        return _complete_by_core(chunk, kernels, covariances, with_moments)
    return _complete_by_pattern(chunk, kernels, covariances, with_moments)


def _complete_independent(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, with_moments: bool
) -> Completed:
    """Complete rows of independent features: missing values have the kernel's mean and variance."""
    whitener = kernels.factor.whitener
    differences = np.where(chunk.is_observed, chunk.x - kernels.means[:, :, None], 0.0)
    distances = np.square(differences * whitener[:, :, None]).sum(axis=-1)
    logs = np.where(chunk.patterns, -2.0 * np.log(whitener)[..., None, :], 0.0).sum(axis=-1)
    variances = kernels.structure.variances(covariances)

    def remaining(mass: FloatArray) -> FloatArray:
        return (mass @ ~chunk.patterns) * variances

    return Completed(distances, logs, differences if with_moments else None, remaining)


def _complete_by_pattern(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, with_moments: bool
) -> Completed:
    """Complete rows pattern by pattern, in plain NumPy: the definition of what the core does."""
    structure, means, (n_rows, n_features) = kernels.structure, kernels.means, chunk.x.shape
    n_starts, n_kernels, _ = means.shape
    distances = np.empty((n_starts, n_kernels, n_rows))
    differences = np.empty((*distances.shape, n_features))
    observed = [order[:n] for order, n in zip(chunk.orders, chunk.n_observed, strict=True)]
    missing = [order[n:] for order, n in zip(chunk.orders, chunk.n_observed, strict=True)]
    by_pattern = list(regressions(structure, covariances, observed, n_features))
    for p, regression in enumerate(by_pattern):
        rows, o, g = slice(*chunk.first[p : p + 2]), observed[p], missing[p]
        ahead = chunk.x[rows, o] - means[:, :, None, o]
        # One product for each row, whose bits then do not depend on the others.
        distances[..., rows] = structure.distances(regression.whitener[:, :, None], ahead[..., None])[..., 0]
        differences[:, :, rows, o] = ahead
        # E[x_g | x_o] − μ_g = B (x_o − μ_o)
        differences[:, :, rows, g] = ahead @ regression.slopes.mT

    def remaining(mass: FloatArray) -> FloatArray:
        total = np.zeros((n_starts, n_kernels, n_features, n_features))
        for p, (g, regression) in enumerate(zip(missing, by_pattern, strict=True)):
            left = structure.to_full(regression.covariances, n_kernels, len(g))
            total[..., g[:, None], g] += mass[:, :, p, None, None] * left
        return total

    logs = np.stack([regression.log_determinant for regression in by_pattern], axis=-1)
    return Completed(distances, logs, differences if with_moments else None, remaining)


def _complete_by_core(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, with_moments: bool
) -> Completed:
    """Complete rows in the compiled core."""
    n_starts, n_kernels, n_features = kernels.means.shape
    # The core takes covariances one after the other, each with the means of the kernels that have it.
    matrices = kernels.structure.by_kernel(covariances).reshape(-1, n_features, n_features)
    means = kernels.means.reshape(len(matrices), -1, n_features)
    arrays = chunk.x, chunk.first, chunk.orders, chunk.n_observed, matrices, means
    done = core().complete(*map(np.ascontiguousarray, arrays), with_moments)
    distances, logs, differences = done.results

    def remaining(mass: FloatArray) -> FloatArray:
        by_matrix = mass.reshape(len(matrices), -1, mass.shape[-1]).sum(axis=1)
        return done.remaining(by_matrix).reshape(n_starts, -1, n_features, n_features)

    distances = distances.reshape(n_starts, n_kernels, -1)
    logs = logs.reshape(n_starts, -1, logs.shape[1])
    differences = differences.reshape(*distances.shape, n_features) if with_moments else None
    return Completed(distances, logs, differences, remaining)


@dataclass(frozen=True)
class Regression:
    """Missing features g given the observed ones o, of one pattern under the kernels of R starts."""

    whitener: FloatArray  # of P_oo, in the shape of `Factor.whitener`
    log_determinant: FloatArray  # (R, K or 1): log|P_oo|
    slopes: FloatArray  # (R, K or 1, G, O): B = P_go P_oo⁻¹
    covariances: FloatArray  # P_g|o = P_gg − B P_og, in the shape of the structure


def regressions(
    structure: Structure, covariances: FloatArray, observed: Sequence[IntArray], n_features: int
) -> Iterator[Regression]:
    """Yield the regression for each pattern of observed features (O,)."""
    if not structure.triangular:
        for o in observed:
            g = np.setdiff1d(np.arange(n_features), o)
            factor = structure.factor(structure.marginal(covariances, o), len(o))
            slopes, left = np.zeros((len(covariances), 1, len(g), len(o))), structure.marginal(covariances, g)
            yield Regression(factor.whitener, factor.log_determinant, slopes, left)
        return
    matrices = structure.by_kernel(covariances)
    together = max(1, _FACTORED // matrices.size)
    for start in range(0, len(observed), together):
        some = observed[start : start + together]
        orders = np.array([np.append(o, np.setdiff1d(np.arange(n_features), o)) for o in some])
        ordered = np.moveaxis(matrices[..., orders[:, :, None], orders[:, None, :]], 2, 0)
        whiteners = whiten_batch(ordered.reshape(-1, n_features, n_features)).whiteners
        whiteners = whiteners.reshape(ordered.shape)
        for o, whitener in zip(some, whiteners, strict=True):
            n = len(o)
            of_observed = whitener[..., :n, :n]
            # The last rows of W whiten x_g given x_o: W_gg (x_g − μ_g) + W_go (x_o − μ_o). The square of the
            # inverse of W_gg is P_g|o, positive definite despite rounding, unlike P_gg − B P_og.
            root = invert_lower(whitener[..., n:, n:])
            log_determinant = -2.0 * np.log(np.diagonal(of_observed, axis1=-2, axis2=-1)).sum(axis=-1)
            slopes = -(root @ whitener[..., n:, :n])
            yield Regression(of_observed, log_determinant, slopes, structure.from_root(root))
