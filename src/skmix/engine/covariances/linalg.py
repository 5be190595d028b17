"""Batched factorisation of small covariance matrices; singular ones are flagged instead of raising.

NumPy's batched Cholesky raises for the whole batch if one matrix is singular, and one LAPACK call per matrix
costs more than the arithmetic of a small matrix. A batch of starts has thousands of them.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from ..compute.arrays import (
    Array,
    as_float64,
    constant,
    device_of,
    is_numpy,
    namespace,
    occurs,
    operations_of,
    pick,
    replaced,
    to_numpy,
)
from ..model import BoolArray, FloatArray, IntArray

# Up to this order an elimination vectorised over the batch beats one LAPACK call per matrix (5000 matrices
# of order 6: 3 ms versus 20 ms; they break even between orders 16 and 24).
_LARGEST_VECTORISED = 16
# With a variance inflation, max P_ii (P⁻¹)_ii, above this, the factor has lost half its digits to rounding;
# it is recomputed in extended precision where the platform has it.
_INFLATED = 2e6
# Pivots of a correlation matrix below this are zero to working precision.
_SINGULAR = float(4 * np.finfo(np.float64).eps)

# For B matrices P (M, M): lower triangular whiteners W with W P Wᵀ = I, log-determinants (B,), and which are
# numerically positive definite (B,). If one is not, its W is finite but undefined.
Whitened = tuple[Array, Array, Array]


def whiten_batch(matrices: Array) -> Whitened:
    """Return the `Whitened` of symmetric matrices (B, M, M)."""
    if not is_numpy(matrices):
        found, inflated = _whiten_on_device(matrices)
        if occurs(inflated):
            found = _factor_on_host(matrices, found, np.flatnonzero(to_numpy(inflated)))
        return found
    # Scaling to a diagonal near one avoids overflow and underflow; powers of two make it exact.
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    proper = np.all((diagonal > 0) & np.isfinite(diagonal), axis=1)
    _, exponents = np.frexp(np.where(proper[:, None], diagonal, 1.0))
    units = np.ldexp(1.0, -(exponents // 2))
    scaled = np.where(proper[:, None, None], matrices, np.eye(matrices.shape[-1])) * units[:, :, None]
    scaled *= units[:, None, :]

    small = matrices.shape[-1] <= _LARGEST_VECTORISED
    whiteners, log_determinants, positive = (_eliminate if small else _factor_each)(scaled)
    variances = np.diagonal(scaled, axis1=-2, axis2=-1)
    inflation = variances * np.einsum("bed,bed->bd", whiteners, whiteners)
    again = np.flatnonzero(positive & (inflation > _INFLATED).any(axis=1))
    if len(again):
        whiteners[again], log_determinants[again], positive[again] = _eliminate(
            scaled[again].astype(np.longdouble)
        )
    whiteners *= units[:, None, :]
    log_determinants -= 2.0 * np.log(units).sum(axis=1)
    return whiteners, log_determinants, positive & proper


def _smallest_pivot(matrices: FloatArray) -> FloatArray:
    """Return the pivots (..., M) below which a matrix is singular to working precision."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    return _SINGULAR * np.abs(diagonal)


def _eliminate(matrices: np.ndarray) -> tuple[FloatArray, FloatArray, BoolArray]:
    n_matrices, order, _ = matrices.shape
    # The batch is the last axis, so that each step works along contiguous memory.
    rest = np.moveaxis(matrices, 0, -1).copy(order="C")
    inverse = np.zeros_like(rest)
    log_determinants = np.zeros(n_matrices, dtype=rest.dtype)
    positive = np.ones(n_matrices, dtype=bool)
    least = _smallest_pivot(matrices).T
    for j in range(order):
        pivot = rest[j, j].copy()
        good = pivot > least[j]
        positive &= good
        pivot[~good] = 1.0
        log_determinants += np.log(pivot)
        root = 1.0 / np.sqrt(pivot)
        inverse[j, j] = 1.0
        inverse[j, : j + 1] *= root
        column = rest[j + 1 :, j] * root
        rest[j + 1 :, j + 1 :] -= column[:, None] * column[None, :]
        inverse[j + 1 :, : j + 1] -= column[:, None] * inverse[j, : j + 1]
    positive &= np.isfinite(log_determinants)
    inverse[:, :, ~positive] = np.eye(order)[:, :, None]
    log_determinants[~positive] = 0.0
    return np.ascontiguousarray(np.moveaxis(inverse, -1, 0)), log_determinants, positive


def _factor_each(matrices: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    n_matrices, order, _ = matrices.shape
    whiteners = np.tile(np.eye(order), (n_matrices, 1, 1))
    log_determinants = np.zeros(n_matrices)
    positive = np.zeros(n_matrices, dtype=bool)
    least = _smallest_pivot(matrices)
    for b in range(n_matrices):
        lower, info = lapack.dpotrf(matrices[b], lower=1)
        pivots = np.diagonal(lower)
        if info != 0 or not np.all(pivots**2 > least[b]):
            continue
        whiteners[b] = lapack.dtrtri(lower, lower=1)[0]
        log_determinants[b] = 2.0 * np.log(pivots).sum()
        positive[b] = True
    return whiteners, log_determinants, positive


def invert_lower(matrices: FloatArray) -> FloatArray:
    """Return the inverses of lower triangular matrices (..., M, M) with nonzero diagonals."""
    inverse = np.zeros_like(matrices)
    for j in range(matrices.shape[-1]):
        inverse[..., j, :] = -(matrices[..., j, None, :j] @ inverse[..., :j, :])[..., 0, :]
        inverse[..., j, j] = 1.0
        inverse[..., j, :] /= matrices[..., j, j, None]
    return inverse


def raise_eigenvalues(matrices: FloatArray, floor: FloatArray) -> FloatArray:
    """Return symmetric matrices (B, M, M) raised to P ⪰ diag(floor), with a positive floor (M,).

    This maximises the expected log-likelihood under that constraint, so that EM stays monotone.
    """
    xp = namespace(matrices)
    root = xp.sqrt(floor)
    unit = root[:, None] * root
    values, vectors = xp.linalg.eigh(matrices / unit)
    values = xp.where(values > 1.0, values, 1.0)
    raised = (vectors * values[..., None, :]) @ xp.matrix_transpose(vectors)
    raised = 0.5 * (raised + xp.matrix_transpose(raised))
    return raised * unit


def whiten_bounded(matrices: Array, floor: Array) -> tuple[Array, Whitened]:
    """Raise matrices (B, M, M) to P ⪰ diag(floor), NumPy arrays in place; return them and their whiteners."""
    if is_numpy(matrices):
        found = whiten_batch(matrices)
        if floor.all():
            low = np.flatnonzero(_might_be_low(found, floor))
            if len(low):
                matrices[low] = raise_eigenvalues(matrices[low], floor)
                for all_of, new in zip(found, whiten_batch(matrices[low]), strict=True):
                    all_of[low] = new
        return matrices, found
    xp = namespace(matrices)
    found, inflated = _whiten_on_device(matrices)
    low = _might_be_low(found, floor) & xp.all(floor > 0)
    if not occurs(low | inflated):
        return matrices, found
    flags = to_numpy(xp.stack([low, inflated]))
    low, inflated = np.flatnonzero(flags[0]), np.flatnonzero(flags[1] & ~flags[0])
    found = _factor_on_host(matrices, found, inflated)
    if len(low):
        raised = raise_eigenvalues(pick(matrices, low), floor)
        matrices = replaced(matrices, low, raised)
        found = _replaced(found, low, whiten_batch(raised))
    return matrices, found


def _might_be_low(found: Whitened, floor: Array) -> Array:
    """Return which matrices (B,) may have an eigenvalue relative to diag(floor) below one."""
    whiteners, _, positive = found
    # tr(P⁻¹ diag(floor)) < 1 proves that there is none.
    squares = namespace(whiteners).sum(whiteners * whiteners, axis=-2)
    return ~positive | (squares @ floor >= 1.0)


def _whiten_on_device(matrices: Array) -> tuple[Whitened, Array]:
    """Return whiteners, and which matrices (B,) lost half their digits to rounding."""
    xp, operations = namespace(matrices), operations_of(matrices)
    diagonal = xp.linalg.diagonal(matrices)
    proper = xp.all((diagonal > 0) & xp.isfinite(diagonal), axis=1)
    eye = constant(np.eye, matrices.shape[-1], example=matrices)
    unit = 1.0 / xp.sqrt(xp.where(proper[:, None], diagonal, 1.0))
    scaled = xp.where(proper[:, None, None], matrices * unit[:, :, None] * unit[:, None, :], eye)
    lower, good = operations.cholesky(scaled)
    pivots = xp.linalg.diagonal(lower)
    positive = proper & good & xp.all(pivots**2 > _SINGULAR, axis=1)
    whiteners = operations.invert_lower(xp.where(positive[:, None, None], lower, eye))
    inflated = positive & xp.any(xp.sum(whiteners * whiteners, axis=-2) > _INFLATED, axis=1)
    log_determinants = 2.0 * xp.sum(xp.where(positive[:, None], xp.log(pivots / unit), 0.0), axis=1)
    return (whiteners * unit[:, None, :], log_determinants, positive), inflated


def _factor_on_host(matrices: Array, found: Whitened, index: IntArray) -> Whitened:
    """Refactor the chosen matrices on the host, in extended precision."""
    if not len(index):
        return found
    whiteners, log_determinants, positive = whiten_batch(to_numpy(pick(matrices, index)))
    better = as_float64(whiteners, matrices), as_float64(log_determinants, matrices)
    good = namespace(matrices).asarray(positive, device=device_of(matrices))
    return _replaced(found, index, (*better, good))


def _replaced(found: Whitened, index: IntArray, new: Whitened) -> Whitened:
    """Return `found` with the entries of some matrices replaced."""
    whiteners, log_determinants, positive = (replaced(a, index, b) for a, b in zip(found, new, strict=True))
    return whiteners, log_determinants, positive
