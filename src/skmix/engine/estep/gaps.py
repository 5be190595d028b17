"""Rows with missing values, ordered by which features are observed.

If values are missing at random, the density of a row is the marginal density of its observed values, and its
expected moments are those of the row with conditional means in its gaps, plus the conditional covariance of
the missing values, which is the same for all rows of a pattern. So rows are completed once for every kernel
and are then like others; no value is imputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from ..compute.arrays import is_numpy, join, namespace
from ..compute.threads import Workers, can_compile
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from ..structures import Structure
from ..structures.linalg import INFLATED
from . import completion, memory, reference
from .reference import HELD, TILE, Kernels, Rows
from .terms import log_mix, share

_CHUNK = 1 << 13
# Patterns from which on compiled code is faster: NumPy takes about half a millisecond for each.
_MANY_PATTERNS = 32
# Up to this many features, rows are completed as if low-rank covariances were full.
_LARGEST_FULL = 64


def has_gaps(X: np.ndarray) -> bool:
    """Return whether any value of X (N, M) is missing."""
    if not is_numpy(X):
        xp = namespace(X)
        return bool(xp.any(xp.isnan(xp.sum(X, axis=0))) and xp.any(xp.isnan(X)))
    return any(bool(np.isnan(X[a : a + _CHUNK]).any()) for a in range(0, len(X), _CHUNK))


def group_rows(X: np.ndarray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (rows, columns) for each pattern of gaps: its rows and its observed features."""
    for rows, seen in group_patterns(~np.isnan(X)):
        yield rows, np.flatnonzero(seen)


def group_patterns(observed: BoolArray) -> Iterator[tuple[IntArray, BoolArray]]:
    """Yield (rows, features) for each row that occurs in `observed` (N, M): where, and which are observed."""
    packed = np.packbits(observed, axis=1)
    patterns, pattern_of = np.unique(packed, axis=0, return_inverse=True)
    order = np.argsort(pattern_of.ravel(), kind="stable")
    bounds = np.searchsorted(pattern_of.ravel()[order], np.arange(len(patterns) + 1))
    for pattern, a, b in zip(patterns, bounds[:-1], bounds[1:], strict=True):
        yield order[a:b], np.unpackbits(pattern, count=observed.shape[1]).astype(bool)


@dataclass(frozen=True)
class Chunk:
    """Rows with gaps, in a frame, ordered by their P patterns."""

    index: IntArray  # (n,): numbers of the rows
    x: FloatArray  # (n, M): zero at gaps
    seen: BoolArray  # (n, M)
    codes: IntArray | None  # (n,)
    weights: FloatArray | None  # (n,)
    first: IntArray  # (P + 1,): first row of each pattern
    orders: IntArray  # (P, M): features, the observed ones first
    n_known: IntArray  # (P,): how many are observed

    def to_rows(self, values: np.ndarray) -> np.ndarray:
        """Return values (..., P) of patterns as those of rows, (..., n)."""
        return np.repeat(values, np.diff(self.first), axis=-1)

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums (..., P) of values (..., n) over the rows of each pattern."""
        return np.add.reduceat(values, self.first[:-1], axis=-1)

    def logs(self, logarithms: FloatArray) -> FloatArray:
        """Return sums (..., P) of logarithms (..., M) over the observed features."""
        return np.where(self.seen[self.first[:-1]], logarithms[..., None, :], 0.0).sum(axis=-1)


@dataclass(frozen=True)
class Completed:
    """A chunk under the kernels of R starts."""

    distances: FloatArray  # (R, K, n): squared, of the observed values
    log_determinants: FloatArray  # (R, K or 1, P): of their covariances
    ahead: FloatArray | None  # (R, K, n, M): expected differences from the means; None if not needed
    # From the mass (R, K, n) of rows to the second-order terms (R, K or 1, S) of the remaining covariances
    spread: Callable[[FloatArray], FloatArray]


def chunk_size(n_kernels: int, n_features: int) -> int:
    """Return the rows of a chunk: it depends on one start, so that a start does not depend on the others."""
    return max(TILE, HELD // (n_kernels * n_features))


def chunks_of(rows: Rows, index: IntArray, size: int) -> list[Chunk]:
    """Return the rows with those numbers, in chunks of up to `size`."""
    patterns = np.unique(np.packbits(np.isnan(rows.X[index]), axis=1), axis=0, return_inverse=True)[1]
    index = index[np.argsort(patterns.ravel(), kind="stable")]
    return [_chunk(rows, index[a : a + size]) for a in range(0, len(index), size)]


def _chunk(rows: Rows, index: IntArray) -> Chunk:
    """Return one chunk, of rows whose numbers are ordered by pattern."""
    x = np.ascontiguousarray(replace(rows, X=rows.X[index]).cut(0, len(index)).T)
    seen = ~np.isnan(x)
    x[~seen] = 0.0
    first = np.flatnonzero(np.append(True, np.any(seen[1:] != seen[:-1], axis=1)))
    patterns = seen[first]
    return Chunk(
        index,
        x,
        seen,
        None if rows.codes is None else rows.codes[index],
        None if rows.weights is None else rows.weights[index],
        np.append(first, len(index)),
        np.argsort(~patterns, axis=1, kind="stable"),
        patterns.sum(axis=1),
    )


def complete(
    chunk: Chunk, parameters: Parameters, factor: Factor, structure: Structure, compiles: bool, moments: bool
) -> Completed:
    """Complete the rows of a chunk; `factor` is that of the covariances of all features."""
    given = chunk, parameters, factor, structure
    if not structure.triangular and not structure.projects:
        return _complete_independent(*given)
    if compiles and (structure.triangular or chunk.x.shape[1] <= _LARGEST_FULL):
        return _complete_compiled(*given, moments)
    return _complete_by_pattern(*given)


def _complete_independent(
    chunk: Chunk, parameters: Parameters, factor: Factor, structure: Structure
) -> Completed:
    """Complete rows of independent features: missing values have the kernel's mean and variance."""
    ahead = np.where(chunk.seen, chunk.x - parameters.means[:, :, None], 0.0)
    distances = np.square(ahead * factor.whitener[:, :, None]).sum(axis=-1)

    def spread(shares: FloatArray) -> FloatArray:
        return (shares @ ~chunk.seen) * structure.variances(parameters.covariances)

    return Completed(distances, chunk.logs(-2.0 * np.log(factor.whitener)), ahead, spread)


def _complete_by_pattern(
    chunk: Chunk, parameters: Parameters, factor: Factor, structure: Structure
) -> Completed:
    """Complete rows pattern by pattern, in plain NumPy: the definition of what compiled code does."""
    means, (n_rows, n_features) = parameters.means, chunk.x.shape
    n_starts, n_kernels, _ = means.shape
    ahead, distances = (
        np.empty((n_starts, n_kernels, n_rows, n_features)),
        np.empty((*means.shape[:2], n_rows)),
    )
    logs, left = [], []
    patterns = [order[:n] for order, n in zip(chunk.orders, chunk.n_known, strict=True)]
    found = completion.given(structure, parameters.covariances, patterns, n_features)
    for p, (own, slopes, remaining) in enumerate(found):
        cut, known, gaps = slice(*chunk.first[p : p + 2]), patterns[p], chunk.orders[p, len(patterns[p]) :]
        difference = chunk.x[cut, known] - means[:, :, None, known]
        # One product for each row, whose bits then do not depend on the others.
        distances[..., cut] = structure.distances(own.whitener[:, :, None], difference[..., None])[..., 0]
        ahead[:, :, cut, known] = difference
        # E[x_gaps | x_known] = slopes · x_known.
        ahead[:, :, cut, gaps] = difference @ slopes.mT
        logs.append(own.log_determinant)
        left.append((gaps, structure.to_full(remaining, n_kernels, len(gaps))))

    def spread(shares: FloatArray) -> FloatArray:
        mass = chunk.sums(shares)[..., None, None]
        terms = (
            completion.spread(structure, mass[:, :, p] * own, gaps, factor)
            for p, (gaps, own) in enumerate(left)
        )
        return reduce(np.add, terms)

    return Completed(distances, np.stack(logs, axis=-1), ahead, spread)


def _complete_compiled(
    chunk: Chunk, parameters: Parameters, factor: Factor, structure: Structure, moments: bool
) -> Completed:
    """Complete rows in compiled code, where a vector holds the same number of several kernels."""
    from ..compute import matrices
    from ..compute.simd import LANES

    (n_starts, n_kernels, n_features), n_rows = parameters.means.shape, len(chunk.x)
    covariances = parameters.covariances
    # Vectors hold any kernels, but if covariances are shared, those of one start.
    n_sets, of_set = (n_starts, n_kernels) if structure.shared else (1, n_starts * n_kernels)
    padded = -(-of_set // LANES) * LANES
    kernels = np.arange(n_sets)[:, None] * of_set + np.minimum(np.arange(padded), of_set - 1)
    if structure.shared:
        factors, covariances = np.repeat(np.arange(n_starts), LANES), covariances[:, None]
    else:
        factors, covariances = kernels.ravel(), structure.to_full(covariances, n_kernels, n_features)

    def vectors(array: FloatArray, index: IntArray) -> FloatArray:
        """Return arrays (R, K, …) of the kernels of that index as flat vectors."""
        chosen = array.reshape(-1, array[0, 0].size)[index.ravel()]
        return np.ascontiguousarray(chosen.reshape(-1, LANES, chosen.shape[1]).swapaxes(1, 2)).ravel()

    sizes = (n_features - chunk.n_known) ** 2 * len(factors)
    places = np.cumsum(sizes) - sizes
    distances, logs = np.empty((n_rows, kernels.size)), np.empty((len(chunk.n_known), len(factors)))
    ahead = np.empty((kernels.size if moments else 0, n_rows, n_features))
    remaining = np.empty(sizes.sum() if moments else 0)
    of_patterns = chunk.orders, chunk.n_known
    model = vectors(covariances, factors), vectors(parameters.means, kernels)
    matrices.complete_rows(
        chunk.x, chunk.first, *of_patterns, *model, distances, logs, ahead, remaining, places
    )

    def by_kernel(array: FloatArray) -> FloatArray:
        """Return an array of kernels in vectors as (R, K, …)."""
        own = array.reshape(n_sets, padded, *array.shape[1:])[:, :of_set]
        return own.reshape(n_starts, n_kernels, *array.shape[1:])

    def spread(shares: FloatArray) -> FloatArray:
        own = chunk.sums(shares)
        mass, out = np.zeros_like(logs), np.zeros((len(factors) // LANES, n_features, n_features, LANES))
        if structure.shared:
            mass[:, ::LANES] = own.sum(axis=1).T
        else:
            mass[:, :of_set] = own.reshape(of_set, -1).T
        matrices.add_remaining(mass, *of_patterns, remaining, places, out.reshape(-1))
        left = np.moveaxis(out, -1, 1)
        left = left[:, :1] if structure.shared else by_kernel(left.reshape(-1, n_features, n_features))
        left = left + np.tril(left, -1).mT
        return completion.spread(structure, left, np.arange(n_features), factor)

    of_factors = logs[:, ::LANES].T[:, None] if structure.shared else by_kernel(logs.T)
    return Completed(by_kernel(distances.T), of_factors, by_kernel(ahead) if moments else None, spread)


def expect(
    complete: Rows | None,
    chunks: list[Chunk],
    parameters: Parameters,
    factor: Factor,
    setting: Setting,
    origins: FloatArray,
    *,
    moments: bool,
) -> Statistics:
    """Do the E-step of complete rows and chunks of others, with moments about `origins` (R, K, M)."""
    structure, (_, n_kernels, n_features) = setting.structure, origins.shape
    many = sum(len(chunk.n_known) for chunk in chunks) >= _MANY_PATTERNS
    compiles = (setting.compiles or many) and can_compile()
    exact = compiles & (structure.inflation(parameters.covariances, factor) <= INFLATED)
    longest = max((len(chunk.x) for chunk in chunks), default=1)
    together = max(1, HELD // (n_kernels * n_features * longest))
    found, order = [], []
    for fast in (True, False):
        starts = np.flatnonzero(exact == fast)
        for own in (starts[a : a + together] for a in range(0, len(starts), together)):
            part, about = parameters.take(own), origins[own]
            kernels = Kernels.of(part, factor.take(own), structure)
            work = partial(_expect_chunk, kernels, part, about, compiles=fast, with_moments=moments)
            sums = setting.pool.map(work, chunks)
            if complete is None:
                total = next(sums)
            else:
                total, _ = memory.expect(
                    complete, kernels, about, replace(setting, skips=False), moments=moments
                )
            for each in sums:
                total.add(each)
            found.append(total)
            order.append(own)
    return found[0] if len(found) == 1 else join(found).take(np.argsort(np.concatenate(order)))


def _expect_chunk(
    kernels: Kernels,
    parameters: Parameters,
    origins: FloatArray,
    chunk: Chunk,
    *,
    compiles: bool,
    with_moments: bool,
) -> Statistics:
    """Do the E-step of a chunk, with moments about `origins` (R, K, M)."""
    structure, tail, (n_starts, n_kernels, _) = kernels.structure, kernels.tail, kernels.means.shape
    done = complete(chunk, parameters, kernels.factor, structure, compiles, with_moments)
    constants = chunk.to_rows(tail.log_peaks(done.log_determinants, chunk.n_known))
    values, precisions = tail.at_distances(done.distances, constants, chunk.to_rows(chunk.n_known))
    codes = np.zeros(len(chunk.x), dtype=np.int64) if chunk.codes is None else chunk.codes
    outside = tail.log_outside(codes, lambda logs: chunk.to_rows(chunk.logs(logs)))
    n_classes = kernels.log_weights.shape[-1]
    found = share(
        values + kernels.log_weights[..., codes], outside, codes, chunk.weights, n_classes, with_moments
    )
    if found.shares is None or done.ahead is None:
        first, second = np.zeros_like(kernels.means), np.zeros((n_starts, n_kernels, 1))
        return Statistics(found.likelihood, found.mass, first, second, tail.no_sums(found.mass))
    weights, of_tail = tail.weigh(found.shares, found.outside, precisions, chunk.to_rows(chunk.n_known))
    ahead = done.ahead
    if not np.array_equal(origins, parameters.means):
        # Observed values keep their digits only if the origin is subtracted from the values themselves.
        expected = ahead + (parameters.means - origins)[:, :, None]
        ahead = np.where(chunk.seen, chunk.x - origins[:, :, None], expected)
    first, second = reference.moments(ahead, weights, kernels)
    spread = done.spread(found.shares)
    second[:, : spread.shape[1]] += spread
    return Statistics(found.likelihood, found.mass, first, second, of_tail)


def log_densities(
    X: np.ndarray, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None
) -> FloatArray:
    """Return log-densities (N, K) of the rows' observed values, or mixtures with weights (K, L)."""
    (n_kernels, n_features), missing = parameters.means.shape, np.isnan(X)
    out = np.zeros((len(X), n_kernels if weights is None else weights.shape[1]))
    whole = np.flatnonzero(~missing.any(axis=1))
    if len(whole):
        out[whole] = memory.log_densities(X[whole], parameters, structure, pool, weights)
    kernels, rows, inside = memory.prepare_model(X, parameters, structure)
    size = chunk_size(n_kernels, n_features) // TILE * TILE
    chunks = chunks_of(rows, np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1)), size)
    # The model decides alone: the bits of a row's density do not depend on the other rows.
    fast = can_compile() and bool(structure.inflation(inside.covariances, kernels.factor)[0] <= INFLATED)

    def score(chunk: Chunk) -> FloatArray:
        done = complete(chunk, inside, kernels.factor, structure, fast, moments=False)
        constants = kernels.tail.log_peaks(done.log_determinants, chunk.n_known)
        constants = chunk.to_rows(constants + chunk.logs(np.log(rows.scale)))
        return kernels.tail.at_distances(done.distances, constants, chunk.to_rows(chunk.n_known))[0][0]

    for chunk, values in zip(chunks, pool.map(score, chunks), strict=True):
        out[chunk.index] = (values if weights is None else _mixed(values, weights)).T
    return out


def _mixed(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return log-mixtures (L, n) of log-densities (K, n); a row's bits do not depend on the others."""
    n = values.shape[1]
    values = values[:, np.minimum(np.arange(-(-n // TILE) * TILE), n - 1)]
    tiles = [log_mix(np.ascontiguousarray(values[:, a : a + TILE]), weights) for a in range(0, n, TILE)]
    return np.concatenate(tiles, axis=1)[:, :n]


def marginal(parameters: Parameters, columns: IntArray, structure: Structure) -> Parameters:
    """Return the parameters of the marginal density of some features."""
    return replace(
        parameters,
        means=parameters.means[..., columns],
        covariances=structure.marginal(parameters.covariances, columns),
        tail=parameters.tail.marginal(columns),
    )
