"""Second-order terms, and whitening factors of batches of small matrices."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ..._core import core
from ..numbers import (
    TINY,
    Array,
    as_float64,
    clip,
    constant,
    is_numpy,
    like,
    namespace,
    occurs,
    operations_of,
    pick,
    rare,
    replaced,
    take,
    to_numpy,
)
from ..records import BoolArray, Factor, FloatArray, IntArray
from ..threads import pool_here

# With a variance inflation, max P_ii (P⁻¹)_ii, above this, the factor has lost half its digits to rounding;
# it is recomputed in extended precision where the platform has it.
INFLATED = 2e6
# On a device the limit is higher, since recomputing means a copy to the host.
_INFLATED_ON_DEVICE = 2.0**24
# Pivots of a correlation matrix below this are zero to working precision.
_SINGULAR = float(4 * np.finfo(np.float64).eps)
# Largest usable variance.
HUGE = float(np.finfo(np.float64).max)


# ---------------------------------------------------------------- second-order terms


@lru_cache(maxsize=256)
def index_of(n_features: int, which: str) -> np.ndarray:
    """Return indices of pairs of features, or −½ times how often each pair (S,) occurs in x'Qx, by name.

    The pairs are (i, i + s mod M) for s = 0, 1, … ⌊M/2⌋. In this order all products are one strided
    elementwise product of the rows with themselves: one call instead of one per feature.
    """
    steps = np.arange(n_features * (n_features + 1) // 2) // n_features
    i = np.arange(len(steps)) % n_features
    j = (i + steps) % n_features
    pair_of = np.empty((n_features, n_features), dtype=np.int64)
    pair_of[i, j] = pair_of[j, i] = np.arange(len(i))
    found: dict[str, np.ndarray] = {
        "first": i,
        "second": j,
        "multiplicity": np.where(i == j, -0.5, -1.0),
        "packed": i * n_features + j,  # (S,), of each pair in a flat matrix (M · M,)
        "unpacked": pair_of.ravel(),  # (M · M,), the pair of each entry
        "triangle": np.flatnonzero(np.tri(n_features)),  # the lower triangle in a flat matrix
    }
    return found[which]


def unpack(second: FloatArray, n_features: int) -> FloatArray:
    """Return symmetric matrices (..., M, M) from their packed upper triangles (..., S)."""
    xp = namespace(second)
    flat = take(second, constant(index_of, n_features, "unpacked", example=second), axis=-1)
    return xp.reshape(flat, (*second.shape[:-1], n_features, n_features))


def rescaled(covariance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the covariance (M, M), or the variances (M,), of x · scale, scale (M,)."""
    return covariance * scale * (scale if covariance.ndim == 1 else scale[:, None])


def where_chosen(chosen: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
    """Return `new` (R, K, …) where `chosen` (R, K), otherwise `old`.

    Of an array (R, 1, …) that all kernels share, `new` is returned if any of them is chosen.
    """
    xp = namespace(new)
    chosen = xp.any(chosen, axis=1, keepdims=True) if new.shape[1] == 1 else chosen
    return xp.where(xp.reshape(chosen, chosen.shape + (1,) * (new.ndim - 2)), new, old)


# ---------------------------------------------------------------- batches of small matrices
#
# NumPy's batched Cholesky raises for the whole batch if one matrix is singular.

# For B matrices P (M, M): lower triangular whiteners W with W P Wᵀ = I, log-determinants (B,), and which are
# numerically positive definite (B,). If one is not, its W is finite but undefined.
Whitened = tuple[Array, Array, Array]


def factor_of(found: Whitened, shape: tuple[int, ...]) -> Factor:
    """Return the factor of covariances of that shape (R, K, M, M), given that of a batch of R · K."""
    whitener, log_determinant, positive = found
    usable = positive.reshape(shape[:2]).all(1)
    return Factor(whitener.reshape(shape), log_determinant.reshape(shape[:2]), usable)


def whiten_batch(matrices: Array) -> Whitened:
    """Return the `Whitened` of symmetric matrices (B, M, M)."""
    if not is_numpy(matrices):
        return _whiten_on_device(matrices)
    if core() is None:
        scaled, units, proper = _scaled(matrices)
        whiteners, logs, positive = _eliminate(scaled)
        variances = np.diagonal(scaled, axis1=-2, axis2=-1)
        inflated = (variances * _inverse_diagonals(whiteners)).max(axis=1) > INFLATED
        whiteners, positive = whiteners * units[:, None, :], positive & proper
        logs -= 2.0 * np.log(units).sum(axis=1)
    else:
        job = core().whiten(np.ascontiguousarray(matrices), _SINGULAR)
        whiteners, logs, positive, inflation = pool_here().finish(job)
        inflated = inflation > INFLATED
    again = np.flatnonzero(positive & inflated)
    if len(again):
        scaled, units, _ = _scaled(matrices[again])
        better, logs[again], positive[again] = _eliminate(scaled.astype(np.longdouble))
        whiteners[again] = better * units[:, None, :]
        logs[again] -= 2.0 * np.log(units).sum(axis=1)
    return whiteners, logs, positive


def _scaled(matrices: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return matrices (B, M, M) scaled to a diagonal near one, the units (B, M), and which are proper (B,).

    That avoids overflow and underflow, and powers of two make it exact. Those whose diagonal is not positive
    and finite become the identity.
    """
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    proper = np.logical_and.reduce((diagonal > 0) & (diagonal <= HUGE), axis=1)
    if not proper.all():
        matrices = np.where(proper[:, None, None], matrices, np.eye(matrices.shape[-1]))
        diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    _, exponents = np.frexp(diagonal)
    units = np.ldexp(1.0, -(exponents // 2))
    return matrices * units[:, :, None] * units[:, None, :], units, proper


@np.errstate(all="ignore")  # matrices that are not positive definite
def _eliminate(matrices: np.ndarray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Factor scaled matrices (B, M, M) together."""
    n_features = matrices.shape[1]
    # The batch is the last axis, so that each step works along contiguous memory.
    rest = matrices.transpose(1, 2, 0).copy(order="C")
    inverse, pivots = np.zeros(rest.shape, rest.dtype), np.empty(rest.shape[1:], rest.dtype)
    least = _SINGULAR * np.abs(rest.diagonal().T)
    for j in range(n_features):
        pivots[j] = rest[j, j]
        root = 1.0 / np.sqrt(pivots[j])
        inverse[j, :j] *= root
        inverse[j, j] = root
        if j < n_features - 1:
            column = rest[j + 1 :, j] * root
            rest[j + 1 :, j + 1 :] -= column[:, None] * column
            inverse[j + 1 :, : j + 1] -= column[:, None] * inverse[j, : j + 1]
    log_determinants = np.log(pivots).sum(axis=0)
    # After a pivot that is not positive, the rest of a matrix is undefined.
    positive = (pivots > least).all(axis=0) & np.isfinite(log_determinants)
    if not positive.all():
        inverse[:, :, ~positive] = np.eye(n_features)[:, :, None]
        log_determinants[~positive] = 0.0
    return inverse.transpose(2, 0, 1).copy(order="C"), log_determinants, positive


def _whiten_on_device(matrices: Array) -> Whitened:
    """Return whiteners of matrices (B, M, M) on a device; those that lose digits are factored on the host."""
    xp = namespace(matrices)
    diagonal = xp.linalg.diagonal(matrices)
    safe = clip(diagonal, TINY, HUGE)
    proper = xp.all(safe == diagonal, axis=1)
    eye = constant(np.eye, matrices.shape[-1], example=matrices)
    unit = xp.reciprocal(xp.sqrt(safe))
    scaled = xp.where(proper[:, None, None], matrices * unit[:, :, None] * unit[:, None, :], eye)
    lower, info = xp.linalg.cholesky_ex(scaled)
    positive = proper & (info == 0) & xp.all(xp.linalg.diagonal(lower) > math.sqrt(_SINGULAR), axis=1)
    lower = xp.where(positive[:, None, None], lower, eye)
    whiteners = xp.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
    lengths = xp.linalg.vector_norm(whiteners, axis=-2)
    inflated = positive & xp.any(lengths > math.sqrt(_INFLATED_ON_DEVICE), axis=1)
    log_determinants = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(lower) / unit), axis=1)
    found = whiteners * unit[:, None, :], log_determinants, positive
    if not occurs(inflated):
        return found
    index = np.flatnonzero(to_numpy(inflated))
    whiteners, log_determinants, positive = whiten_batch(to_numpy(pick(matrices, index)))
    better = as_float64(whiteners, matrices), as_float64(log_determinants, matrices)
    return _replaced(found, index, (*better, like(positive, matrices)))


def _inverse_diagonals(whiteners: Array) -> Array:
    """Return the diagonals (B, M) of the inverses WᵀW of the matrices with these whiteners (B, M, M)."""
    return (whiteners * whiteners).sum(-2)


def _replaced(found: Whitened, index: IntArray, new: Whitened) -> Whitened:
    whiteners, log_determinants, positive = (replaced(a, index, b) for a, b in zip(found, new, strict=True))
    return whiteners, log_determinants, positive


def whiten_bounded(matrices: Array, floor: Array) -> tuple[Array, Whitened]:
    """Return matrices (B, M, M) raised to P ⪰ diag(floor), and their whiteners."""
    found, xp = whiten_batch(matrices), namespace(matrices)
    # tr(P⁻¹ diag(floor)) < 1 proves that no eigenvalue relative to diag(floor) is below one.
    low = (~found[2] | (_inverse_diagonals(found[0]) @ floor >= 1.0)) & xp.all(floor > 0)
    index = rare(low)
    if index is None:
        return matrices, found
    some = pick(matrices, index)
    raised = xp.where(pick(low, index)[:, None, None], raise_eigenvalues(some, floor), some)
    return replaced(matrices, index, raised), _replaced(found, index, whiten_batch(raised))


def raise_eigenvalues(matrices: Array, floor: Array) -> Array:
    """Return symmetric matrices (B, M, M) raised to P ⪰ diag(floor), with a positive floor (M,).

    This maximises the expected log-likelihood under that constraint, so that EM stays monotone.
    """
    xp, root = namespace(matrices), namespace(matrices).sqrt(floor)
    unit = root[:, None] * root
    if is_numpy(matrices) or matrices.device.type != "cuda":
        values, vectors = xp.linalg.eigh(matrices / unit)
        raised = (vectors * clip(values, 1.0, np.inf)[..., None, :]) @ vectors.mT
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
