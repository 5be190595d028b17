"""Batches of small symmetric matrices: second-order terms, whiteners and variance floors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..._core import core
from ..conditions import occurs, rare
from ..numbers import (
    TINY,
    Array,
    Record,
    clip,
    constant,
    is_numpy,
    like,
    namespace,
    operations_of,
    pick,
    replaced,
    take,
    to_numpy,
)
from ..records import FloatArray, IntArray
from ..threads import pool_here

# A whitener has lost half its digits where the variance inflation, the largest P_ii (P⁻¹)_ii, is above this.
# It is then computed again in extended precision, where the platform has one.
INFLATED = 2e6
# On a device the limit is higher, since extended precision needs a copy to the host: eight digits are left.
_INFLATED_ON_DEVICE = 2.0**24
# A pivot below this share of its variance is zero to working precision.
SINGULAR = float(4 * np.finfo(np.float64).eps)
# Largest usable variance.
HUGE = float(np.finfo(np.float64).max)


# ---------------------------------------------------------------- symmetric matrices as S numbers


@lru_cache(maxsize=64)
def pairs_of_features(n_features: int) -> tuple[IntArray, IntArray]:
    """Return the two features, (S,) and (S,), of each of S = M (M + 1) / 2 second-order terms.

    They are (i, i + s mod M) for s = 0, 1, … ⌊M / 2⌋. In this order the products of a row's features are few
    strided products of the row with itself.
    """
    steps, first = np.divmod(np.arange(n_features * (n_features + 1) // 2), n_features)
    return first, (first + steps) % n_features


@lru_cache(maxsize=64)
def multiplicity(n_features: int) -> FloatArray:
    """Return −½ times how often each second-order term (S,) occurs in x'Qx."""
    first, second = pairs_of_features(n_features)
    return np.where(first == second, -0.5, -1.0)


@lru_cache(maxsize=64)
def _places_of_terms(n_features: int) -> IntArray:
    """Return the places (S,) of the second-order terms in a flattened matrix."""
    first, second = pairs_of_features(n_features)
    return first * n_features + second


@lru_cache(maxsize=64)
def _places_of_entries(n_features: int) -> IntArray:
    """Return the places (M · M,) of a flattened matrix's entries among the second-order terms."""
    first, second = pairs_of_features(n_features)
    places = np.empty((n_features, n_features), dtype=np.int64)
    places[first, second] = places[second, first] = np.arange(len(first))
    return places.ravel()


def pack(matrices: Array) -> Array:
    """Return symmetric matrices (..., M, M) as their second-order terms (..., S)."""
    n_features = matrices.shape[-1]
    flat = namespace(matrices).reshape(matrices, (*matrices.shape[:-2], n_features**2))
    return take(flat, constant(_places_of_terms, n_features, example=matrices), axis=-1)


def unpack(terms: Array, n_features: int) -> Array:
    """Return the symmetric matrices (..., M, M) with second-order terms (..., S)."""
    flat = take(terms, constant(_places_of_entries, n_features, example=terms), axis=-1)
    return namespace(terms).reshape(flat, (*terms.shape[:-1], n_features, n_features))


def rescaled(covariance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the covariance (M, M), or the variances (M,), of x · scale, scale (M,)."""
    return covariance * scale * (scale if covariance.ndim == 1 else scale[:, None])


# ---------------------------------------------------------------- whiteners


@dataclass(frozen=True)
class Whitened(Record):
    """Whiteners of B symmetric matrices P. NumPy's Cholesky factors would raise if one P is singular."""

    whiteners: Array  # (B, M, M): lower triangular W with W P Wᵀ = I; where not positive, finite
    log_determinants: Array  # (B,): of P; where not positive, finite
    positive: Array  # (B,): whether P is positive definite to working precision


def whiten_batch(matrices: Array) -> Whitened:
    """Return the whiteners of symmetric matrices (B, M, M)."""
    if not is_numpy(matrices):
        return _whiten_on_device(matrices)
    if core() is None:
        whitened = _whiten_by_elimination(matrices, np.float64)
        deviations = np.sqrt(np.abs(np.diagonal(matrices, axis1=1, axis2=2)))
        with np.errstate(all="ignore"):  # infinite variances
            inflation = np.square(whitened.whiteners * deviations[:, None, :]).sum(axis=1).max(axis=1)
    else:
        job = core().whiten(np.ascontiguousarray(matrices), SINGULAR)
        *arrays, inflation = pool_here().finish(job)
        whitened = Whitened(*arrays)
    again = np.flatnonzero(whitened.positive & (inflation > INFLATED))
    if len(again):
        better = _whiten_by_elimination(matrices[again], np.longdouble)
        for array, values in zip(vars(whitened).values(), vars(better).values(), strict=True):
            array[again] = values
    return whitened


@np.errstate(all="ignore")  # matrices that are not positive definite
def _whiten_by_elimination(matrices: FloatArray, dtype: type) -> Whitened:
    """Return the whiteners of matrices (B, M, M), in that precision."""
    n_features, variances = matrices.shape[1], np.diagonal(matrices, axis1=1, axis2=2)
    proper = np.logical_and.reduce((variances > 0) & (variances <= HUGE), axis=1)
    if not proper.all():
        matrices = np.where(proper[:, None, None], matrices, np.eye(n_features))
    # A diagonal near one avoids overflow. Powers of two make it without rounding.
    _, exponents = np.frexp(np.diagonal(matrices, axis1=1, axis2=2))
    units = np.ldexp(1.0, -(exponents // 2))
    scaled = matrices * units[:, :, None] * units[:, None, :]
    # The batch is the last axis, so that each step works along contiguous memory.
    rest = scaled.transpose(1, 2, 0).astype(dtype, order="C")
    variances = rest.diagonal().T.copy()
    inverse, pivots = np.zeros_like(rest), np.empty_like(variances)
    for j in range(n_features):
        pivots[j] = rest[j, j]
        root = 1.0 / np.sqrt(pivots[j])
        inverse[j, :j] *= root
        inverse[j, j] = root
        column = rest[j + 1 :, j] * root
        rest[j + 1 :, j + 1 :] -= column[:, None] * column
        inverse[j + 1 :, : j + 1] -= column[:, None] * inverse[j, : j + 1]
    log_determinants = np.log(pivots).sum(axis=0)
    # After a pivot that is not positive, the rest of a matrix is undefined.
    positive = (pivots > SINGULAR * variances).all(axis=0) & np.isfinite(log_determinants)
    inverse[:, :, ~positive] = np.eye(n_features)[:, :, None]
    log_determinants = np.where(positive, log_determinants, 0.0) - 2.0 * np.log(units).sum(axis=1)
    whiteners = np.ascontiguousarray(inverse.transpose(2, 0, 1) * units[:, None, :])
    return Whitened(whiteners, log_determinants, positive & proper)


def _whiten_on_device(matrices: Array) -> Whitened:
    """Return the whiteners of matrices (B, M, M) on a device; those that lose digits come from the host."""
    xp, eye = namespace(matrices), constant(np.eye, matrices.shape[-1], example=matrices)
    variances = xp.linalg.diagonal(matrices)
    usable = clip(variances, TINY, HUGE)
    proper = xp.all(usable == variances, axis=1)
    unit = xp.reciprocal(xp.sqrt(usable))
    correlations = xp.where(proper[:, None, None], matrices * unit[:, :, None] * unit[:, None, :], eye)
    lower, info = xp.linalg.cholesky_ex(correlations)
    pivots = xp.linalg.diagonal(lower)
    positive = proper & (info == 0) & xp.all(pivots > math.sqrt(SINGULAR), axis=1)
    lower = xp.where(positive[:, None, None], lower, eye)
    whiteners = xp.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
    lengths = xp.linalg.vector_norm(whiteners, axis=-2)
    inflated = positive & xp.any(lengths > math.sqrt(_INFLATED_ON_DEVICE), axis=1)
    log_determinants = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(lower) / unit), axis=1)
    whitened = Whitened(whiteners * unit[:, None, :], log_determinants, positive)
    if not occurs(inflated):
        return whitened
    index = np.flatnonzero(to_numpy(inflated))
    better = whiten_batch(to_numpy(pick(matrices, index)))
    return whitened.put(index, better.map(lambda array: like(array, matrices)))


# ---------------------------------------------------------------- variance floors


def whiten_bounded(matrices: Array, floor: Array) -> tuple[Array, Whitened]:
    """Return matrices (B, M, M) raised to P ⪰ diag(floor), floor (M,), and their whiteners."""
    whitened, xp = whiten_batch(matrices), namespace(matrices)
    # tr(P⁻¹ diag(floor)) < 1 proves that no eigenvalue relative to diag(floor) is below one.
    traces = (whitened.whiteners**2).sum(-2) @ floor
    low = (~whitened.positive | (traces >= 1.0)) & xp.all(floor > 0)
    index = rare(low)
    if index is None:
        return matrices, whitened
    some = pick(matrices, index)
    raised = xp.where(pick(low, index)[:, None, None], raise_eigenvalues(some, floor), some)
    return replaced(matrices, index, raised), whitened.put(index, whiten_batch(raised))


def raise_eigenvalues(matrices: Array, floor: Array) -> Array:
    """Return symmetric matrices (B, M, M) raised to P ⪰ diag(floor), with a positive floor (M,).

    They maximise the expected log-likelihood under that constraint, so that EM stays monotone.
    """
    xp, root = namespace(matrices), namespace(matrices).sqrt(floor)
    unit = root[:, None] * root
    if is_numpy(matrices) or matrices.device.type != "cuda":
        eigenvalues, vectors = xp.linalg.eigh(matrices / unit)
        raised = (vectors * clip(eigenvalues, 1.0, np.inf)[..., None, :]) @ vectors.mT
    else:
        raised = operations_of(matrices).raise_to_one(matrices / unit)
    return 0.5 * (raised + xp.matrix_transpose(raised)) * unit


def invert_lower(matrices: FloatArray) -> FloatArray:
    """Return the inverses of lower triangular matrices (..., M, M) with nonzero diagonals."""
    inverse = np.zeros_like(matrices)
    for j in range(matrices.shape[-1]):
        inverse[..., j, :] = -(matrices[..., j, None, :j] @ inverse[..., :j, :])[..., 0, :]
        inverse[..., j, j] = 1.0
        inverse[..., j, :] /= matrices[..., j, j, None]
    return inverse
