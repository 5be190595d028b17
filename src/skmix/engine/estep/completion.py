"""What E-steps with missing values and conditional densities need of a covariance structure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

import numpy as np

from ..compute.arrays import Array, constant, namespace
from ..model import Factor, FloatArray, IntArray
from ..structures import Diagonal, LowRank, Structure
from ..structures.linalg import invert_lower, whiten_batch, with_crossed

# Numbers of the covariances of patterns of gaps that are factored together.
_TOGETHER = 1 << 21

Pair = tuple[FloatArray, FloatArray]


@singledispatch
def conditional(structure: Structure, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
    """Return the regression of the other G of M features on O known ones, `columns` (O,).

    The slopes have the shape (R, K or 1, G, O), the remaining covariances that of the structure.
    """
    return next(given(structure, covariances, [columns], n_features))[1:]


@conditional.register
def _(structure: Diagonal, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
    gaps = _others(columns, n_features)
    return np.zeros((len(covariances), 1, len(gaps), len(columns))), structure.marginal(covariances, gaps)


@conditional.register
def _(structure: LowRank, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
    gaps = _others(columns, n_features)
    factor, _, inverse = structure.parts(structure.marginal(covariances, columns))
    remaining = structure.marginal(covariances, gaps).copy()
    # Factors scaled to their conditional covariance.
    remaining[..., :-1] = remaining[..., :-1] @ inverse.mT
    return remaining[..., :-1] @ factor.whitener[..., :-1].mT, remaining


@singledispatch
def given(
    structure: Structure, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[tuple[Factor, FloatArray, FloatArray]]:
    """Yield for each pattern of known features (O,) their factor, and what `conditional` returns."""
    stack = structure.by_kernel(covariances)
    step = max(1, _TOGETHER // stack.size)
    for start in range(0, len(patterns), step):
        some = patterns[start : start + step]
        orders = np.array([np.append(own, _others(own, n_features)) for own in some])
        ordered = np.moveaxis(stack[..., orders[:, :, None], orders[:, None, :]], 2, 0)
        whitener, _, positive = whiten_batch(ordered.reshape(-1, n_features, n_features))
        whitener = whitener.reshape(ordered.shape)
        usable = positive.reshape(ordered.shape[:3]).all(axis=-1)
        logs = np.cumsum(-2.0 * np.log(np.einsum("brkdd->brkd", whitener)), axis=-1)
        for b, own in enumerate(some):
            n = len(own)
            # The last rows of W whiten the gaps given the known features. The inverse of their square is
            # positive definite despite rounding, unlike the textbook's difference of two matrices.
            root = invert_lower(whitener[b, ..., n:, n:])
            slopes = -(root @ whitener[b, ..., n:, :n])
            factor = Factor(whitener[b, ..., :n, :n], logs[b, ..., n - 1], usable[b])
            yield factor, slopes, structure.from_root(root)


@given.register
def _(
    structure: LowRank, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[tuple[Factor, FloatArray, FloatArray]]:
    for own in patterns:
        factor = structure.factor(structure.marginal(covariances, own), len(own))
        yield factor, *conditional(structure, covariances, own, n_features)


@singledispatch
def spread(structure: Structure, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
    """Return the second-order terms (R, K or 1, S) of covariances (R, K or 1, G, G) of some features.

    The others do not vary. The `factor` is that of all features.
    """
    n_features = factor.whitener.shape[-2]
    whole = np.zeros((*remaining.shape[:2], n_features, n_features))
    whole[..., gaps[:, None], gaps] = remaining
    return structure.pack(whole)


@spread.register
def _(structure: LowRank, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
    projections = factor.whitener[..., :-1]
    squares, crossed = np.zeros(projections.shape[:-1]), np.zeros(projections.shape)
    squares[..., gaps] = np.diagonal(remaining, axis1=-2, axis2=-1)
    crossed[..., gaps, :] = remaining @ projections[..., gaps, :]
    return with_crossed(squares, crossed)


@singledispatch
def apart(structure: Structure, covariances: Array, seen: Array) -> Array:
    """Return covariances (B · R, …) in which features that are not `seen` (B, M) vary alone."""
    xp = namespace(covariances)
    together = (seen[:, :, None] & seen[:, None, :]) | constant(_on_diagonal, seen.shape[-1], example=seen)
    shape = (seen.shape[0],) + (1,) * (covariances.ndim - 2) + together.shape[1:]
    stack = xp.where(xp.reshape(together, shape), covariances[None, ...], 0.0)
    return xp.reshape(stack, (-1, *covariances.shape[1:]))


@apart.register
def _(structure: Diagonal, covariances: Array, seen: Array) -> Array:
    xp = namespace(covariances)
    stack = xp.broadcast_to(covariances[None, ...], (seen.shape[0], *covariances.shape))
    return xp.reshape(stack, (-1, *covariances.shape[1:]))


@singledispatch
def completed(
    structure: Structure,
    seen: Array,
    covariances: Array,
    whiteners: Array,
    mass: Array,
    first: Array,
    second: Array,
    away: Array | None = None,
) -> tuple[Array, Array]:
    """Return expected moments of all features, first (R, K, M) and second (R, K, S), about some origins.

    Given, for each of B patterns, are the features `seen` (B, M), whiteners (B, R, K or 1, …) of the
    covariances `apart`, the mass (B, R, K), and the moments (B, R, K, M) and (B, R, K, …) of the
    seen features about the origins. These are the means less `away` (R, K, M), or the means if it is
    None. The result is summed over the patterns.
    """
    xp, stack = namespace(first), structure.by_kernel(covariances)[None, ...]
    eye = constant(np.eye, seen.shape[-1], example=first)
    known = (seen[:, :, None] & seen[:, None, :])[:, None, None, ...]
    precisions = xp.where(known, xp.matrix_transpose(whiteners) @ whiteners, 0.0)
    # E[x − μ | x_seen] = G (x − μ), where x − μ is zero at gaps.
    predict = xp.where(seen[:, None, None, :, None], eye, stack @ precisions)
    # In this form the covariance of what is left cannot become negative.
    left = eye - predict
    remaining = left @ stack @ xp.matrix_transpose(left)
    all_second = predict @ second @ xp.matrix_transpose(predict) + mass[..., None, None] * remaining
    all_first = (predict @ first[..., None])[..., 0]
    if away is not None:
        # E[x − o | x_seen] = G (x − o) + c with c = (I − G)(μ − o), where x − o is zero at gaps.
        offset = (left @ away[None, ..., None])[..., 0]
        crossed = all_first[..., None] * offset[..., None, :]
        squared = mass[..., None, None] * offset[..., None] * offset[..., None, :]
        all_second = all_second + crossed + xp.matrix_transpose(crossed) + squared
        all_first = all_first + mass[..., None] * offset
    return xp.sum(all_first, axis=0), structure.pack(xp.sum(all_second, axis=0))


@completed.register
def _(
    structure: Diagonal,
    seen: Array,
    covariances: Array,
    whiteners: Array,
    mass: Array,
    first: Array,
    second: Array,
    away: Array | None = None,
) -> tuple[Array, Array]:
    xp, unseen = namespace(first), namespace(first).astype(~seen, first.dtype)[:, None, None, :]
    spread, missing = structure.variances(covariances), mass[..., None] * unseen
    if away is not None:
        first, spread = first + missing * away, spread + away**2
    return xp.sum(first, axis=0), xp.sum(second + missing * spread, axis=0)


def _others(columns: IntArray, n_features: int) -> IntArray:
    """Return the features that are not among `columns`, in increasing order."""
    return np.flatnonzero(np.bincount(columns, minlength=n_features) == 0)


def _on_diagonal(n_features: int) -> np.ndarray:
    """Return which entries (M, M) of a matrix are on its diagonal."""
    return np.eye(n_features, dtype=bool)
