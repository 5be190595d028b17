"""Rows with missing values, ordered by which features are observed.

If values are missing at random, the density of a row is the marginal density of its observed values, and its
expected moments are those of the row with conditional means in its gaps, plus the conditional covariance of
the missing values, which is the same for all rows of a pattern. So rows are completed once for every kernel
and are then like others; no value is imputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise

import numpy as np

from ..._core import core
from ..exponentials import TILE
from ..numbers import join
from ..records import BoolArray, Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from ..structures import Structure
from ..structures.factors import INFLATED, invert_lower, whiten_batch
from ..threads import Workers
from .reference import HELD, Kernels, Rows
from .terms import share

# Numbers of the covariances of patterns of gaps that are factored together.
_FACTORED = 1 << 21

# Of O known among M features: their factor, the slopes (R, K or 1, M − O, O) of the regression of the others
# on them, and the remaining covariances of the others, in the shape of the structure.
Given = tuple[Factor, FloatArray, FloatArray]


def rows_by_pattern(X: np.ndarray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (rows, columns) for each pattern of gaps: its rows and its observed features."""
    order = _by_pattern(X)
    seen = ~np.isnan(X[order])
    for a, b in pairwise(_first_rows(seen)):
        yield order[a:b], np.flatnonzero(seen[a])


def _by_pattern(X: np.ndarray) -> IntArray:
    """Return the numbers (n,) of rows X (n, M), ordered by their patterns of gaps."""
    patterns = np.unique(np.packbits(~np.isnan(X), axis=1), axis=0, return_inverse=True)[1]
    return np.argsort(patterns.ravel(), kind="stable")


def _first_rows(seen: BoolArray) -> IntArray:
    """Return the first row (P + 1,) of each of P patterns, and the end, of ordered rows `seen` (n, M)."""
    first = np.flatnonzero(np.append(True, np.any(seen[1:] != seen[:-1], axis=1)))
    return np.append(first, len(seen))


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
    second_terms: Callable[[FloatArray], FloatArray]


def chunk_size(n_kernels: int, n_features: int) -> int:
    """Return the rows of a chunk: it depends on one start, so that a start does not depend on the others."""
    return max(TILE, HELD // (n_kernels * n_features))


def chunks_of(rows: Rows, index: IntArray, size: int) -> list[Chunk]:
    """Return the rows with those numbers, in chunks of up to `size`."""
    index = index[_by_pattern(rows.X[index])]
    return [_chunk(rows, index[a : a + size]) for a in range(0, len(index), size)]


def _chunk(rows: Rows, index: IntArray) -> Chunk:
    """Return one chunk, of rows whose numbers are ordered by pattern."""
    x = np.ascontiguousarray(rows.frame.rows(rows.X[index]).T)
    seen = ~np.isnan(x)
    x[~seen] = 0.0
    first = _first_rows(seen)
    patterns = seen[first[:-1]]
    return Chunk(
        index,
        x,
        seen,
        None if rows.codes is None else rows.codes[index],
        None if rows.weights is None else rows.weights[index],
        first,
        np.argsort(~patterns, axis=1, kind="stable"),
        patterns.sum(axis=1),
    )


def completed(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, *, exact: bool, with_moments: bool
) -> Completed:
    """Complete the rows of a chunk under kernels with those covariances.

    They are not `exact` enough for the core if their inverses have lost too many digits.
    """
    structure = kernels.structure
    if not structure.triangular:
        return _complete_independent(chunk, kernels, covariances)
    if core() is not None and exact:
        return _complete_by_core(chunk, kernels, covariances, with_moments)
    return _complete_by_pattern(chunk, kernels, covariances)


def _complete_independent(chunk: Chunk, kernels: Kernels, covariances: FloatArray) -> Completed:
    """Complete rows of independent features: missing values have the kernel's mean and variance."""
    whitener = kernels.factor.whitener
    ahead = np.where(chunk.seen, chunk.x - kernels.means[:, :, None], 0.0)
    distances = np.square(ahead * whitener[:, :, None]).sum(axis=-1)

    def second_terms(shares: FloatArray) -> FloatArray:
        return (shares @ ~chunk.seen) * kernels.structure.variances(covariances)

    return Completed(distances, chunk.logs(-2.0 * np.log(whitener)), ahead, second_terms)


def _complete_by_pattern(chunk: Chunk, kernels: Kernels, covariances: FloatArray) -> Completed:
    """Complete rows pattern by pattern, in plain NumPy: the definition of what the core does."""
    structure, means, (n_rows, n_features) = kernels.structure, kernels.means, chunk.x.shape
    n_starts, n_kernels, _ = means.shape
    distances = np.empty((n_starts, n_kernels, n_rows))
    ahead = np.empty((*distances.shape, n_features))
    logs, left = [], []
    patterns = [order[:n] for order, n in zip(chunk.orders, chunk.n_known, strict=True)]
    found = given(structure, covariances, patterns, n_features)
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

    def second_terms(shares: FloatArray) -> FloatArray:
        mass = chunk.sums(shares)[..., None, None]
        terms = (
            second_order(structure, mass[:, :, p] * own, gaps, n_features)
            for p, (gaps, own) in enumerate(left)
        )
        return reduce(np.add, terms)

    return Completed(distances, np.stack(logs, axis=-1), ahead, second_terms)


def _complete_by_core(
    chunk: Chunk, kernels: Kernels, covariances: FloatArray, with_moments: bool
) -> Completed:
    """Complete rows in the compiled core."""
    structure, (n_starts, n_kernels, n_features) = kernels.structure, kernels.means.shape
    means, matrices = kernels.means, covariances
    if not structure.shared:
        means = means.reshape(-1, 1, n_features)
        matrices = structure.to_full(covariances, n_kernels, n_features).reshape(-1, n_features, n_features)
    arrays = chunk.x, chunk.first, chunk.orders, chunk.n_known, matrices, means
    done = core().complete(*map(np.ascontiguousarray, arrays), with_moments)
    distances, logs, ahead = done.results

    def second_terms(shares: FloatArray) -> FloatArray:
        mass = chunk.sums(shares)
        mass = mass.sum(axis=1) if structure.shared else mass.reshape(-1, mass.shape[-1])
        left = done.remaining(np.ascontiguousarray(mass)).reshape(n_starts, -1, n_features, n_features)
        return second_order(structure, left, np.arange(n_features), n_features)

    by_kernel = n_starts, n_kernels, len(chunk.x)
    return Completed(
        distances.reshape(by_kernel),
        logs.reshape(n_starts, -1, logs.shape[1]),
        ahead.reshape(*by_kernel, n_features) if with_moments else None,
        second_terms,
    )


def expect(
    chunks: list[Chunk], parameters: Parameters, factor: Factor, setting: Setting, origins: FloatArray
) -> Statistics:
    """Do the E-step of chunks of rows, with moments about `origins` (R, K, M)."""
    structure, (_, n_kernels, n_features) = setting.structure, origins.shape
    exact = structure.inflation(parameters.covariances, factor) <= INFLATED
    together = max(1, HELD // (n_kernels * n_features * max(len(chunk.x) for chunk in chunks)))
    found, order = [], []
    for is_exact in (True, False):
        starts = np.flatnonzero(exact == is_exact)
        for own in (starts[a : a + together] for a in range(0, len(starts), together)):
            part = parameters.take(own)
            kernels = Kernels.of(part, factor.take(own), structure)
            of_starts = kernels, part.covariances, origins[own]
            work = partial(_expect_chunk, *of_starts, exact=is_exact, with_moments=setting.with_moments)
            found.append(reduce(Statistics.plus, setting.pool.map(work, chunks)))
            order.append(own)
    return found[0] if len(found) == 1 else join(found).take(np.argsort(np.concatenate(order)))


def _expect_chunk(
    kernels: Kernels,
    covariances: FloatArray,
    origins: FloatArray,
    chunk: Chunk,
    *,
    exact: bool,
    with_moments: bool,
) -> Statistics:
    """Do the E-step of a chunk, with moments about `origins` (R, K, M)."""
    structure, tail, (n_starts, n_kernels, _) = kernels.structure, kernels.tail, kernels.means.shape
    done = completed(chunk, kernels, covariances, exact=exact, with_moments=with_moments)
    constants = chunk.to_rows(tail.log_peaks(done.log_determinants, chunk.n_known))
    values, precisions = tail.at_distances(done.distances, constants, chunk.to_rows(chunk.n_known))
    codes = np.zeros(len(chunk.x), dtype=np.int64) if chunk.codes is None else chunk.codes
    joint, n_classes = values + kernels.log_weights[..., codes], kernels.log_weights.shape[-1]
    likelihood, mass, shares = share(joint, codes, chunk.weights, n_classes, with_moments)
    if shares is None or done.ahead is None:
        first, second = np.zeros_like(kernels.means), np.zeros((n_starts, n_kernels, 1))
        return Statistics(likelihood, mass, first, second)
    weights, of_tail = tail.weigh(shares, precisions, chunk.to_rows(chunk.n_known))
    ahead = done.ahead
    if not np.array_equal(origins, kernels.means):
        # Observed values keep their digits only if the origin is subtracted from the values themselves.
        expected = ahead + (kernels.means - origins)[:, :, None]
        ahead = np.where(chunk.seen, chunk.x - origins[:, :, None], expected)
    weighted = ahead * weights[..., None]
    first, second = weighted.sum(axis=-2), structure.pack(structure.second_moment(ahead, weighted))
    remaining = done.second_terms(shares)
    second[:, : remaining.shape[1]] += remaining
    return Statistics(likelihood, mass, first, second, of_tail)


def log_densities(
    rows: Rows, index: IntArray, kernels: Kernels, covariances: FloatArray, pool: Workers
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield, chunk by chunk, numbers (n,) of rows and log-densities (K, n) of their observed values.

    `index` are the numbers of all those rows. The model, of one start, is in the rows' frame; densities are
    those in the data's coordinates.
    """
    _, n_kernels, n_features = kernels.means.shape
    chunks = chunks_of(rows, index, chunk_size(n_kernels, n_features) // TILE * TILE)
    # Decide by the model only, so that a row's bits do not depend on other rows.
    inflation = kernels.structure.inflation(covariances, kernels.factor)[0]
    exact = bool(inflation <= INFLATED)

    def score(chunk: Chunk) -> FloatArray:
        done = completed(chunk, kernels, covariances, exact=exact, with_moments=False)
        constants = kernels.tail.log_peaks(done.log_determinants, chunk.n_known)
        constants = chunk.to_rows(constants + chunk.logs(-np.log(rows.frame.scale)))
        return kernels.tail.at_distances(done.distances, constants, chunk.to_rows(chunk.n_known))[0][0]

    for chunk, values in zip(chunks, pool.map(score, chunks), strict=True):
        yield chunk.index, values


# ---------------------------------------------------------------- what is known of gaps, by structure


def given(
    structure: Structure, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[Given]:
    """Yield what is `Given` for each pattern of known features (O,)."""
    if not structure.triangular:
        yield from _given_independent(structure, covariances, patterns, n_features)
        return
    stack = structure.by_kernel(covariances)
    step = max(1, _FACTORED // stack.size)
    for start in range(0, len(patterns), step):
        some = patterns[start : start + step]
        orders = np.array([np.append(own, _others(own, n_features)) for own in some])
        ordered = np.moveaxis(stack[..., orders[:, :, None], orders[:, None, :]], 2, 0)
        whitened = whiten_batch(ordered.reshape(-1, n_features, n_features))
        whitener = whitened.whiteners.reshape(ordered.shape)
        usable = whitened.positive.reshape(ordered.shape[:3]).all(axis=-1)
        logs = np.cumsum(-2.0 * np.log(np.einsum("brkdd->brkd", whitener)), axis=-1)
        for b, own in enumerate(some):
            n = len(own)
            # The last rows of W whiten the gaps given the known features. The inverse of their square is
            # positive definite despite rounding, unlike the textbook's difference of two matrices.
            root = invert_lower(whitener[b, ..., n:, n:])
            slopes = -(root @ whitener[b, ..., n:, :n])
            factor = Factor(whitener[b, ..., :n, :n], logs[b, ..., n - 1], usable[b])
            yield factor, slopes, structure.from_root(root)


def _given_independent(
    structure: Structure, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[Given]:
    """Yield the same where features are independent."""
    for own in patterns:
        gaps = _others(own, n_features)
        factor = structure.factor(structure.marginal(covariances, own), len(own))
        slopes = np.zeros((len(covariances), 1, len(gaps), len(own)))
        yield factor, slopes, structure.marginal(covariances, gaps)


def second_order(structure: Structure, remaining: FloatArray, gaps: IntArray, n_features: int) -> FloatArray:
    """Return the second-order terms (R, K or 1, S) of covariances (R, K or 1, G, G) of some features.

    The others do not vary.
    """
    whole = np.zeros((*remaining.shape[:2], n_features, n_features))
    whole[..., gaps[:, None], gaps] = remaining
    return structure.pack(whole)


def _others(columns: IntArray, n_features: int) -> IntArray:
    return np.flatnonzero(np.bincount(columns, minlength=n_features) == 0)
