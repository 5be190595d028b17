"""What a covariance structure is, with the mathematics of all of them side by side.

A log-density is linear in x, in S second-order terms of x and in 1. Kernels have covariance matrices P with
lower triangular whiteners W, W P Wᵀ = I, or variances of independent features with whiteners 1 / deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numbers import FARTHEST_SQUARED, TINY, Array, clip, constant, namespace
from ..records import Factor, FloatArray, IntArray, Regulariser
from .factors import (
    HUGE,
    Whitened,
    multiplicity,
    pack,
    pairs_of_features,
    unpack,
    whiten_batch,
    whiten_bounded,
)

# Smallest share of a start's variance that is left where errors are as large as the spread of the values: EM
# narrows kernels faster than it widens them, and from narrow starts it ends in spikes more often.
_LEAST_LEFT = 0.3
# Mass (R, K), offsets of the means (R, K, M) and second-order sums (R, K, S) of `Structure.update`.
MomentSums = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Structure:
    """A covariance structure, with the shapes of R starts; covariances of one model have no first axis.

    Covariances are full (R, K, M, M), tied (R, M, M), diagonal (R, K, M) or spherical (R, K). An axis that is
    "K or 1" has length one if kernels share a covariance. *Moments* are (..., M, M), or (..., M) where the
    features of a kernel are independent.
    """

    name: str
    triangular: bool = True  # whether whiteners are lower triangular matrices, otherwise 1 / deviations
    shared: bool = False  # whether all kernels have the same covariance
    isotropic: bool = False  # whether all features have the same variance, so that they need a common unit

    # ------------------------------------------------------------ shapes and conversions

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of one model's covariances."""
        of_kernels = () if self.shared else (n_kernels,)
        of_features = () if self.isotropic else (n_features,)
        return (*of_kernels, *of_features, *of_features) if self.triangular else (*of_kernels, *of_features)

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        """Return the number of free covariance parameters."""
        return (1 if self.shared else n_kernels) * (1 if self.isotropic else self.n_second(n_features))

    def n_second(self, n_features: int) -> int:
        """Return S."""
        return len(self.pairs(n_features)[0])

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        """Return the two features, (S,) and (S,), of each second-order term."""
        if self.triangular:
            return pairs_of_features(n_features)
        return np.arange(n_features), np.arange(n_features)

    def by_kernel(self, covariances: Array) -> Array:
        """Return covariances with axes of kernels and features: (R, K or 1, M, M) or (R, K, M or 1)."""
        if self.isotropic:
            return covariances[..., None]
        return covariances[:, None] if self.shared else covariances

    def from_moments(self, moments: Array) -> Array:
        """Return moments (R, K, …) as covariances, averaged over what has a common one."""
        if self.isotropic:
            return moments.mean(-1)
        return moments.mean(1) if self.shared else moments

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return full covariances (R, K, M, M)."""
        stack = self.by_kernel(covariances)
        if not self.triangular:
            return stack[..., None] * np.eye(n_features)
        return np.repeat(stack, n_kernels, axis=1) if self.shared else stack

    def common(self, covariance: Array) -> Array:
        """Return one covariance (M, M), or variances (M,), as moments."""
        if self.triangular and covariance.ndim == 1:
            return covariance * constant(np.eye, len(covariance), example=covariance)
        return covariance if self.triangular or covariance.ndim == 1 else np.diagonal(covariance).copy()

    def from_common(self, common: FloatArray, n_kernels: int) -> FloatArray:
        """Return covariances of K kernels that have the same one, given as moments (R, …)."""
        return common if self.shared else self.from_moments(np.repeat(common[:, None], n_kernels, axis=1))

    def from_root(self, root: FloatArray) -> FloatArray:
        """Return the covariances whose whiteners have these inverses, as large as whiteners."""
        if not self.triangular:
            return self.from_moments(root**2)
        moments = root @ root.mT
        return self.from_moments(0.5 * (moments + moments.mT))

    def variances(self, covariances: Array) -> Array:
        """Return variances (R, K or 1, M or 1) of the kernels."""
        stack = self.by_kernel(covariances)
        return namespace(stack).linalg.diagonal(stack) if self.triangular else stack

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the covariances of x · scale, scale (M,)."""
        if self.triangular:
            return covariances * scale[:, None] * scale
        return covariances * (scale[0] if self.isotropic else scale) ** 2

    def widened(self, covariances: FloatArray, ratios: FloatArray) -> FloatArray:
        """Return covariances times a number (K,) for each kernel; a shared covariance becomes K of them."""
        stack = self.by_kernel(covariances) if self.shared else covariances
        return stack * ratios.reshape((-1,) + (1,) * (stack.ndim - 2))

    def widened_by(self, covariances: FloatArray, errors: FloatArray) -> FloatArray:
        """Return the covariances of values with errors of these variances (M,), on average if isotropic."""
        return covariances + (errors.mean() if self.isotropic else self.common(errors))

    def narrowed(self, covariances: FloatArray, errors: FloatArray) -> FloatArray:
        """Return the covariances (R, …) of values whose errors had these variances (M,), roughly.

        Correlations stay, and so does a share of each variance.
        """
        stack, variances = self.by_kernel(covariances), self.variances(covariances)
        errors = errors.mean(keepdims=True) if self.isotropic else errors
        ratios = np.sqrt(np.maximum(1.0 - errors / variances, _LEAST_LEFT))
        moments = stack * (ratios[..., None] * ratios[..., None, :] if self.triangular else ratios**2)
        return self.from_moments(moments) if self.shared or self.isotropic else moments

    def take_kernels(self, covariances: FloatArray, kernels: IntArray) -> FloatArray:
        """Return the covariances of the chosen kernels (R, k) of each start."""
        if self.shared:
            return covariances
        index = kernels.reshape(kernels.shape + (1,) * (covariances.ndim - 2))
        return np.take_along_axis(covariances, index, axis=1)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        """Return the covariances of some features (O,)."""
        if self.triangular:
            return covariances[..., columns[:, None], columns]
        return covariances if self.isotropic else covariances[..., columns]

    # ------------------------------------------------------------ factors, and what densities need of them

    def factor(self, covariances: Array, n_features: int) -> Factor:
        """Return the factor of covariances of R starts."""
        stack = self.by_kernel(covariances)
        if self.triangular:
            return _factor_of(whiten_batch(stack.reshape((-1, n_features, n_features))), stack.shape[:2])
        xp = namespace(stack)
        if self.isotropic:
            stack = xp.repeat(stack, n_features, axis=-1)
        variances = clip(stack, TINY, HUGE)
        usable = xp.all(variances == stack, axis=(1, 2))
        return Factor(1.0 / xp.sqrt(variances), xp.log(variances).sum(-1), usable)

    def whiten(self, whitener: Array, differences: Array) -> Array:
        """Return differences (..., M, n) from kernels' means, whitened."""
        return whitener @ differences if self.triangular else whitener[..., None] * differences

    def distances(self, whitener: FloatArray, differences: FloatArray) -> FloatArray:
        """Return squared Mahalanobis lengths (..., n), which are finite, of differences (..., M, n)."""
        white = self.whiten(whitener, differences)
        with np.errstate(over="ignore"):
            lengths: FloatArray = np.square(white, out=white).sum(axis=-2)
        return np.fmin(lengths, FARTHEST_SQUARED, out=lengths)

    def quadratic(self, factor: Factor) -> Array:
        """Return the coefficients (R, K or 1, S) of the second-order terms in the log-density."""
        whitener = factor.whitener
        if not self.triangular:
            return -0.5 * whitener**2
        return pack(whitener.mT @ whitener) * constant(multiplicity, whitener.shape[-1], example=whitener)

    def precision_times(self, factor: Factor, vectors: Array) -> Array:
        """Return P⁻¹v for vectors (R, K, M)."""
        whitener = factor.whitener
        if not self.triangular:
            return whitener**2 * vectors
        return (whitener.mT @ (whitener @ vectors[..., None]))[..., 0]

    def precisions(self, factor: Factor) -> Array:
        """Return the diagonals (R, K or 1, M) of the inverse covariances."""
        squares = factor.whitener**2
        return squares.sum(-2) if self.triangular else squares

    def trace(self, factor: Factor, covariance: Array) -> Array:
        """Return tr(ΣP⁻¹), shape (R, K or 1), of one covariance Σ, given as moments."""
        whitener = factor.whitener
        if not self.triangular:
            return whitener**2 @ covariance
        return ((whitener @ covariance) * whitener).sum((-2, -1))

    def log_prior(self, factor: Factor, regulariser: Regulariser) -> Array:
        """Return −ν/2 Σ (log|P| + tr(Σ₀P⁻¹)), (R,): the inverse-Wishart prior, up to a constant."""
        terms = factor.log_determinant + self.trace(factor, regulariser.prior_covariance)
        return -0.5 * regulariser.prior_rows * terms.sum(-1)

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        """Return the largest variance inflation (R,) of each start, infinite where it is not usable.

        No subset of the features has a larger one.
        """
        inflations = self.variances(covariances) * self.precisions(factor)
        return np.where(factor.usable, inflations.max(axis=(1, 2)), np.inf)

    # ------------------------------------------------------------ moments, and the M-step

    def second_moment(self, differences: Array, weighted: Array) -> Array:
        """Return the moments of rows (..., n, M), given them and them times their weights."""
        return weighted.mT @ differences if self.triangular else (weighted * differences).sum(-2)

    def pack(self, moments: Array) -> Array:
        """Return moments as second-order terms (..., S)."""
        return pack(moments) if self.triangular else moments

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return the second-order terms (R, K, S), about the mean, of a unit mass with these covariances."""
        terms = self.pack(self.by_kernel(covariances))
        return np.broadcast_to(terms, (len(terms), n_kernels, self.n_second(n_features))).copy()

    def moved(self, second: Array, first: Array, mass: Array, shift: Array) -> Array:
        """Return second-order sums (R, K, S) about other origins: the old ones less `shift` (R, K, M).

        `first` (R, K, M) and `mass` (R, K, 1) are the other sums about the old origins.
        """
        first, shift = first[..., None, :], shift[..., None, :]
        moments = self.second_moment(first, shift) + self.second_moment(shift, first)
        return second + self.pack(moments + self.second_moment(shift, mass[..., None] * shift))

    def update(self, sums: MomentSums, regulariser: Regulariser) -> tuple[Array, Factor]:
        """Return the covariances that maximise the expected log-likelihood, and their factor: (M3).

        The sums are the positive mass (R, K), the new means less the origins of the moments (R, K, M), and
        the second-order sums (R, K, S) about these origins.
        """
        mass, offset, second = sums
        weighted, n_features = mass[..., None] * offset, offset.shape[-1]
        if self.shared:
            scatter = unpack(second.sum(1), n_features) - weighted.mT @ offset
            mass = mass.sum(1)
        elif self.triangular:
            scatter = unpack(second, n_features) - weighted[..., None] * offset[..., None, :]
        else:
            scatter = second - weighted * offset
        if regulariser.prior_rows:
            scatter += regulariser.prior_rows * regulariser.prior_covariance
            mass = mass + regulariser.prior_rows
        scatter /= mass.reshape(mass.shape + (1,) * (scatter.ndim - mass.ndim))
        if regulariser.ridge is not None:
            scatter += self.common(regulariser.ridge)
        return self.raised(scatter.mean(-1) if self.isotropic else scatter, regulariser.floor)

    def raised(self, covariances: Array, floor: Array) -> tuple[Array, Factor]:
        """Return covariances raised to P ⪰ diag(floor), floor (M,), and their factor."""
        n_features = len(floor)
        if not self.triangular:
            least = floor.mean() if self.isotropic else floor
            covariances = namespace(covariances).maximum(covariances, least)
            return covariances, self.factor(covariances, n_features)
        flat, whitened = whiten_bounded(covariances.reshape((-1, n_features, n_features)), floor)
        return flat.reshape(covariances.shape), _factor_of(whitened, self.by_kernel(covariances).shape[:2])


def _factor_of(whitened: Whitened, shape: tuple[int, int]) -> Factor:
    """Return the factor of covariances of R starts and K or 1 kernels, given the whiteners of all."""
    whiteners = whitened.whiteners.reshape((*shape, *whitened.whiteners.shape[1:]))
    usable = whitened.positive.reshape(shape).all(1)
    return Factor(whiteners, whitened.log_determinants.reshape(shape), usable)
