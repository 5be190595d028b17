"""What E-steps with missing values and conditional densities need of a covariance structure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

import numpy as np

from ..model import Factor, FloatArray, IntArray
from ..structures import Diagonal, LowRank, Structure
from ..structures.linalg import invert_lower, whiten_batch, with_crossed

# Numbers of the covariances of patterns of gaps that are factored together.
_FACTORED = 1 << 21

# Of O known among M features: their factor, the slopes (R, K or 1, M − O, O) of the regression of the others
# on them, and the remaining covariances of the others, in the shape of the structure.
Given = tuple[Factor, FloatArray, FloatArray]


@singledispatch
def given(
    structure: Structure, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[Given]:
    """Yield what is `Given` for each pattern of known features (O,)."""
    stack = structure.by_kernel(covariances)
    step = max(1, _FACTORED // stack.size)
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
    structure: Diagonal, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[Given]:
    for own in patterns:
        gaps = _others(own, n_features)
        factor = structure.factor(structure.marginal(covariances, own), len(own))
        slopes = np.zeros((len(covariances), 1, len(gaps), len(own)))
        yield factor, slopes, structure.marginal(covariances, gaps)


@given.register
def _(
    structure: LowRank, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
) -> Iterator[Given]:
    for own in patterns:
        factor, _, inverse = structure.parts(structure.marginal(covariances, own))
        remaining = structure.marginal(covariances, _others(own, n_features)).copy()
        # Scale the factors to their conditional covariance.
        remaining[..., :-1] = remaining[..., :-1] @ inverse.mT
        yield factor, remaining[..., :-1] @ factor.whitener[..., :-1].mT, remaining


@singledispatch
def second_terms(structure: Structure, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
    """Return the second-order terms (R, K or 1, S) of covariances (R, K or 1, G, G) of some features.

    The others do not vary. The `factor` is that of all features.
    """
    n_features = factor.whitener.shape[-2]
    whole = np.zeros((*remaining.shape[:2], n_features, n_features))
    whole[..., gaps[:, None], gaps] = remaining
    return structure.pack(whole)


@second_terms.register
def _(structure: LowRank, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
    projections = factor.whitener[..., :-1]
    squares, crossed = np.zeros(projections.shape[:-1]), np.zeros(projections.shape)
    squares[..., gaps] = np.diagonal(remaining, axis1=-2, axis2=-1)
    crossed[..., gaps, :] = remaining @ projections[..., gaps, :]
    return with_crossed(squares, crossed)


def _others(columns: IntArray, n_features: int) -> IntArray:
    return np.flatnonzero(np.bincount(columns, minlength=n_features) == 0)
