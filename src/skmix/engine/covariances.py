"""Covariance structures: the one place that branches on the covariance type.

A Gaussian log-density is linear in the second-order terms of x, in x and in 1, so one matrix product computes
it for all kernels of all starts. A structure defines which second-order terms it needs, how a covariance is
turned into their coefficients, and how their weighted sums are turned into a covariance. To add a structure,
add such a class and its name to `structure_of`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy.linalg import lapack

from .compute.arrays import (
    FARTHEST_SQUARED,
    Array,
    as_float64,
    clip,
    constant,
    device_of,
    is_numpy,
    namespace,
    occurs,
    operations_of,
    pick,
    rare,
    replaced,
    take,
    to_numpy,
)
from .compute.compiling import can_compile, is_loaded
from .model import BoolArray, Factor, FloatArray, IntArray, Regulariser

# Rows that a kernel needs per covariance parameter and feature. With fewer, shrinkage gives higher held-out
# likelihoods in all cases of benchmarks/few_rows.py; with more it depends on the data.
_ROWS_PER_NUMBER = 3.0
# Low rank: a column of zeros would stay zero under EM, so that in a start every factor has this share of the
# variances; and the smallest share of d in each feature's variance.
_SEED, _SMALLEST_SHARE = 0.01, 1e-12
# Up to this order an elimination vectorised over the batch beats one LAPACK call per matrix (5000 matrices
# of order 6: 3 ms versus 20 ms; they break even between orders 16 and 24).
_LARGEST_VECTORISED = 16
# Numbers in a batch from which on compiled code is worth loading.
_WORTH_COMPILING = 1 << 15
# With a variance inflation, max P_ii (P⁻¹)_ii, above this, the factor has lost half its digits to rounding;
# it is recomputed in extended precision where the platform has it.
INFLATED = 2e6
# On a device this costs a copy to the host: such a factor keeps the digits that its products keep.
_INFLATED_ON_DEVICE = 2.0**24
# Numbers of the covariances of patterns of gaps that are factored together.
_ORDERED = 1 << 21
# Pivots of a correlation matrix below this are zero to working precision.
_SINGULAR = float(4 * np.finfo(np.float64).eps)
# The largest squared distance in single precision.
_FARTHEST_SQUARED_SINGLE = 1e30
# Variances outside of these are not usable.
_TINY, _HUGE = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)

Pair = tuple[FloatArray, FloatArray]
Triple = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class Wishart:
    """The Wishart distribution of the precisions of a structure, in variational fits."""

    dimension: int  # size of the matrices: M, or 1 if features are independent
    copies: int = 1  # number of independent matrices in a precision
    repeats: int = 1  # how often each occurs in a precision: each row counts as that many observations
    shared: bool = False  # whether all kernels have the same precision


class Structure:
    """A stateless covariance structure with S second-order terms.

    This class is the unrestricted one, a matrix for every kernel: covariances of shape (R, K, M, M).
    """

    name = "full"
    isotropic = False  # whether rescaling must use one scale for all features
    shared = False  # whether all kernels have the same covariance
    by_feature = False  # whether features are independent within kernels
    triangular = True  # whether whiteners are lower triangular matrices; otherwise diagonals, or factors
    projects = False  # whether log-densities have a term ½‖Vx‖² that is not linear in second-order terms
    # Structure whose fit gives the covariance to shrink towards; None if covariances are not shrunk.
    pools_as: str | None = "tied"
    # Largest magnitude of cancelling terms in a log-density; 2^24 leaves an accuracy of about 1e-9.
    largest_cancellation = 2.0**24

    def of(self, covariances: FloatArray) -> Structure:
        """Return the structure with the number of factors of these covariances, if it has any."""
        return self

    def n_second(self, n_features: int) -> int:
        """Return S."""
        return n_features * (n_features + 1) // 2

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        """Return the number of free covariance parameters."""
        return n_kernels * self.n_second(n_features)

    def rows_wanted(self, n_features: int) -> float:
        """Return the number of rows of a kernel above which its covariance should not be shrunk."""
        return _ROWS_PER_NUMBER * n_features

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        """Return the two features, (S,) and (S,), of each second-order term."""
        return _index(n_features, "first"), _index(n_features, "second")

    def products(self, twice: FloatArray, out: FloatArray) -> list[Triple]:
        """Return (left, right, out) of the products that make the second-order terms `out` (S, n).

        All are views of `out` and of `twice` (2M, n), which holds the rows x (M, n) twice.
        """
        n_features, n_rows = len(twice) // 2, twice.shape[1]
        row, column = twice.strides
        whole = (n_features + 1) // 2
        shifted = as_strided(twice, (whole, n_features, n_rows), (row, row, column))
        terms = out[: whole * n_features].reshape(whole, n_features, n_rows)
        products = [(twice[:n_features], shifted, terms)]
        if n_features % 2 == 0:
            # At an offset of M/2 every pair would occur twice.
            half = n_features // 2
            products.append((twice[:half], twice[half:n_features], out[whole * n_features :]))
        return products

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of one model's covariances."""
        return (n_kernels, n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        """Return the structure's approximation of full covariances (R, K, M, M), averaged if shared."""
        return covariances

    def common(self, covariance: FloatArray) -> FloatArray:
        """Return a covariance (M, M), or variances (M,), as (M, M); as (M,) if features are independent."""
        return np.diag(covariance) if covariance.ndim == 1 else covariance

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        """Return starting covariances of K kernels from a common one, (R, M, M) or (R, M) as by `common`."""
        one = self.from_full(covariances[:, None])
        return one if self.shared else np.repeat(one, n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return full covariances (R, K, M, M)."""
        return covariances

    def correlate(
        self, covariances: FloatArray, normal: FloatArray, random_state: np.random.RandomState
    ) -> FloatArray:
        """Return deviations (n, M) with the covariance of one kernel, from standard normal numbers (n, M)."""
        return normal @ np.linalg.cholesky(self.to_full(covariances, 1, normal.shape[1])[0, 0]).T

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the covariances of x · scale, scale (M,)."""
        return covariances * scale[:, None] * scale

    def widened(self, covariances: FloatArray, factors: FloatArray) -> FloatArray:
        """Return covariances (R, K, …) times a factor (K,) for each kernel."""
        return covariances * factors.reshape((-1,) + (1,) * (covariances.ndim - 2))

    def variances(self, covariances: FloatArray) -> FloatArray:
        """Return variances (R, K or 1, M or 1) of the kernels."""
        return namespace(covariances).linalg.diagonal(self._by_kernel(covariances))

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return the second-order terms (R, K, S), about the mean, of a unit mass with these covariances."""
        return self.pack(self.to_full(covariances, n_kernels, n_features))

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        """Return the whiteners and determinants of the covariances of R starts."""
        stack = self._by_kernel(covariances)
        flat = namespace(stack).reshape(stack, (-1, n_features, n_features))
        return _factor(whiten_batch(flat), stack.shape)

    def _by_kernel(self, covariances: FloatArray) -> FloatArray:
        """Return covariances with an axis of kernels, (R, K or 1, M, M)."""
        return covariances[:, None, ...] if self.shared else covariances

    def quadratic(self, factor: Factor) -> FloatArray:
        """Return the coefficients (R, K or 1, S) of the second-order terms in the log-density."""
        whitener = factor.whitener
        precision = namespace(whitener).matrix_transpose(whitener) @ whitener
        return self.pack(precision) * constant(_index, precision.shape[-1], "multiplicity", example=precision)

    def projections(self, factor: Factor) -> FloatArray | None:
        """Return the V (R, K, q, M) of a structure that projects."""
        return None

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        """Return P⁻¹v for vectors (R, K, M)."""
        whitener = factor.whitener
        return (namespace(whitener).matrix_transpose(whitener) @ (whitener @ vectors[..., None]))[..., 0]

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        """Return tr(ΣP⁻¹), shape (R, K or 1), of one covariance Σ as by `common`."""
        whitener = factor.whitener
        return namespace(whitener).sum((whitener @ covariance) * whitener, axis=(-2, -1))

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        """Return squared Mahalanobis lengths (..., n) of differences (..., M, n) under kernels' whiteners."""
        return _lengths(whitener @ difference)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        """Return second moments from rows (..., n, M) and the same rows times their weights."""
        return namespace(weighted).matrix_transpose(weighted) @ difference

    def pack(self, moments: FloatArray) -> FloatArray:
        """Return second moments of k kernels as second-order terms (k, S)."""
        xp, n_features = namespace(moments), moments.shape[-1]
        flat = xp.reshape(moments, (*moments.shape[:-2], n_features * n_features))
        return take(flat, constant(_index, n_features, "packed", example=moments), axis=-1)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        """Return the covariances that maximise the expected log-likelihood, and their factor: (M3).

        `mass` (R, K) is positive, `offset` (R, K, M) the new mean less the origin of the moments, `second`
        (R, K, S) the second-order sums about that origin. For a structure that projects these are followed by
        sums of x(Vx)ᵀ; it makes one step from `previous`, the covariances of the E-step, which increases the
        expected log-likelihood without maximising it.
        """
        xp, n_features = namespace(mass), offset.shape[-1]
        if not self.shared and _compiles(mass, n_features):
            covariances = _update_compiled(mass, offset, second, regulariser)
            return self.raised(covariances, regulariser.floor)
        weighted = mass[..., None] * offset
        if self.shared:
            covariances = unpack(xp.sum(second, axis=1), n_features)
            covariances = covariances - xp.matrix_transpose(weighted) @ offset
            mass = xp.sum(mass, axis=1)
        else:
            covariances = unpack(second, n_features)
            covariances -= weighted[..., None] * offset[..., None, :]
        if regulariser.prior_rows:
            covariances += regulariser.prior_rows * regulariser.prior_covariance
            mass = mass + regulariser.prior_rows
        covariances /= mass[..., None, None]
        if regulariser.ridge is not None:
            covariances += regulariser.ridge * constant(np.eye, n_features, example=covariances)
        return self.raised(covariances, regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        """Return covariances raised to P ⪰ diag(floor), floor (M,), and their factor; NumPy: in place."""
        xp, stack = namespace(covariances), self._by_kernel(covariances)
        flat, found = whiten_bounded(xp.reshape(covariances, (-1, *covariances.shape[-2:])), floor)
        return xp.reshape(flat, covariances.shape), _factor(found, stack.shape)

    def where_alive(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        """Return `new` covariances of kernels that are `alive` (R, K), and `old` ones of the others."""
        alive = namespace(new).any(alive, axis=1) if self.shared else alive
        return _where(alive, new, old)

    def factor_where_alive(self, alive: BoolArray, new: Factor, old: Factor) -> Factor:
        """Return the `new` factor of kernels that are `alive` (R, K), and the `old` one of the others."""
        alive = namespace(alive).any(alive, axis=1, keepdims=True) if self.shared else alive
        return Factor(
            _where(alive, new.whitener, old.whitener),
            _where(alive, new.log_determinant, old.log_determinant),
            new.usable,
        )

    def take_kernels(self, covariances: FloatArray, kernels: IntArray) -> FloatArray:
        """Return the covariances of the chosen kernels (R, k) of each start."""
        if self.shared:
            return covariances
        index = kernels.reshape(kernels.shape + (1,) * (covariances.ndim - 2))
        return np.take_along_axis(covariances, index, axis=1)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        """Return the covariances of some features."""
        return covariances[..., columns[:, None], columns]

    def conditional(self, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
        """Return the regression of the other G of M features on O known ones, `columns` (O,).

        The slopes have the shape (R, K or 1, G, O), the remaining covariances that of the structure.
        """
        return next(self.given(covariances, [columns], n_features))[1:]

    def given(
        self, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
    ) -> Iterator[tuple[Factor, FloatArray, FloatArray]]:
        """Yield, for each pattern of known features (O,), the factor of their covariances.

        With it, yield what `conditional` returns.
        """
        stack = self._by_kernel(covariances)
        step = max(1, _ORDERED // stack.size)
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
                yield factor, slopes, self.from_root(root)

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        """Return the largest variance inflation (R,) of each start, infinite where it is not usable.

        It is not more for some of the features.
        """
        found = self.variances(covariances) * np.square(factor.whitener).sum(axis=-2)
        return np.where(factor.usable, found.max(axis=(1, 2)), np.inf)

    def spread(self, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
        """Return the second-order terms (R, K or 1, S) of covariances (R, K or 1, G, G) of some features.

        The others do not vary. The `factor` is that of all features.
        """
        n_features = factor.whitener.shape[-2]
        whole = np.zeros((*remaining.shape[:2], n_features, n_features))
        whole[..., gaps[:, None], gaps] = remaining
        return self.pack(whole)

    def moved(
        self, second: Array, first: Array, mass: Array, shift: Array, factor: Factor | None = None
    ) -> Array:
        """Return second-order sums (R, K, S) about other origins: the old ones less `shift` (R, K, M).

        `first` (R, K, M) and `mass` (R, K, 1) are the other sums; a structure that projects needs the factor.
        """
        one, other = first[..., None, :], shift[..., None, :]
        moments = self.second_moment(one, other) + self.second_moment(other, one)
        moments += self.second_moment(other, mass[..., None] * other)
        return second + self.pack(moments)

    def apart(self, covariances: Array, seen: Array) -> Array:
        """Return covariances (B · R, …) in which features that are not `seen` (B, M) vary alone."""
        xp = namespace(covariances)
        together = (seen[:, :, None] & seen[:, None, :]) | constant(
            _index, seen.shape[-1], "diagonal", example=seen
        )
        shape = (seen.shape[0],) + (1,) * (covariances.ndim - 2) + together.shape[1:]
        stack = xp.where(xp.reshape(together, shape), covariances[None, ...], 0.0)
        return xp.reshape(stack, (-1, *covariances.shape[1:]))

    def completed(
        self,
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
        xp, stack = namespace(first), self._by_kernel(covariances)[None, ...]
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
        return xp.sum(all_first, axis=0), self.pack(xp.sum(all_second, axis=0))

    def log_prior(self, factor: Factor, regulariser: Regulariser) -> FloatArray:
        """Return −ν/2 Σ (log|P| + tr(Σ₀P⁻¹)), (R,): the inverse-Wishart prior, up to a constant."""
        terms = factor.log_determinant + self.trace(factor, regulariser.prior_covariance)
        return -0.5 * regulariser.prior_rows * namespace(terms).sum(terms, axis=-1)

    def wishart(self, n_features: int) -> Wishart:
        """Return the distribution of precisions in variational fits; raise if none is conjugate."""
        return Wishart(n_features, shared=self.shared)

    def whitener_of(self, factor: Factor, r: int, k: int) -> FloatArray:
        """Return the whitener of kernel k of start r."""
        return factor.whitener[r, min(k, factor.whitener.shape[1] - 1)]

    def whiteners_of(self, factor: Factor, kernels: Sequence[tuple[int, int]]) -> FloatArray:
        """Return the whiteners (q, …) of q kernels, given as (start, kernel)."""
        shape = factor.whitener.shape
        flat = namespace(factor.whitener).reshape(factor.whitener, (-1, *shape[2:]))
        return pick(flat, [r * shape[1] + min(k, shape[1] - 1) for r, k in kernels])

    def coordinates(self, covariances: FloatArray) -> FloatArray:
        """Return unconstrained numbers in the shape of covariances: any numbers are a positive definite one.

        They are the whiteners with the logarithm of their diagonals, of variances the logarithms alone.
        """
        whitener, xp = self.factor(covariances, covariances.shape[-1]).whitener, namespace(covariances)
        diagonal = constant(_index, whitener.shape[-1], "diagonal", example=whitener)
        numbers = xp.where(diagonal, xp.log(xp.where(diagonal, whitener, 1.0)), whitener)
        return xp.reshape(numbers, covariances.shape)

    def from_coordinates(self, numbers: FloatArray) -> FloatArray:
        """Return the covariances with these coordinates; not finite where they overflow."""
        xp, n_features = namespace(numbers), numbers.shape[-1]
        diagonal = constant(_index, n_features, "diagonal", example=numbers)
        whitener = xp.where(diagonal, xp.exp(xp.where(diagonal, numbers, 0.0)), numbers)
        good = xp.all(xp.isfinite(whitener) & (~diagonal | (whitener > 0)), axis=(-2, -1))[..., None, None]
        root = xp.linalg.inv(xp.where(good, whitener, constant(np.eye, n_features, example=numbers)))
        return xp.where(good, root @ xp.matrix_transpose(root), np.inf)

    # Coordinates around one model with whiteners W₀: W = VW₀. The numbers, Q for each of B covariances, are V
    # with the logarithm of its diagonal. Zero is that model, and steps are in units of its kernels.

    def root(self, factor: Factor) -> FloatArray:
        """Return the inverses of whiteners."""
        return invert_lower(factor.whitener)

    def from_root(self, root: FloatArray) -> FloatArray:
        """Return the covariances whose whiteners have these inverses."""
        covariances = root @ root.mT
        covariances = 0.5 * (covariances + covariances.mT)
        return covariances[:, 0] if self.shared else covariances

    def unwhiten(self, root: FloatArray, steps: FloatArray) -> FloatArray:
        """Return W⁻¹s of steps (K, M)."""
        return (root[0] @ steps[..., None])[..., 0]

    def stretched(self, base: Factor, numbers: FloatArray) -> tuple[FloatArray, Factor]:
        """Return V, (B, M, M) or (B, M or 1), of numbers (B, Q), and the factor of VW₀; `base` is W₀'s."""
        n_features = base.whitener.shape[-1]
        stretch = np.zeros((len(numbers), n_features * n_features))
        stretch[:, _index(n_features, "triangle")] = numbers
        diagonal = stretch[:, :: n_features + 1]
        log_determinant = base.log_determinant - 2.0 * diagonal.sum(axis=-1)
        np.exp(diagonal, out=diagonal)
        stretch = stretch.reshape(-1, n_features, n_features)
        return stretch, Factor(stretch @ base.whitener, log_determinant, base.usable)

    def gradients(self, base: Factor, stretch: FloatArray, factor: Factor, sums: Triple) -> Pair:
        """Return the gradients with respect to steps of the means (K, M), and to coordinates (B, Q).

        `stretch` is V and `factor` that of VW₀. The sums are those of the derivatives g_nk of the objective
        with respect to log N(x_n; μ_k, P_k), (K,), of g_nk times x_n − μ_k, (K, M), and of g_nk times its
        second-order terms, (K, S).
        """
        (mass, first, second), whitener, n_features = sums, factor.whitener[0], stretch.shape[-1]
        of_steps = (stretch.mT @ (whitener @ first[..., None]))[..., 0]
        if self.shared:
            mass, second = mass.sum(keepdims=True), second.sum(axis=0, keepdims=True)
        # ∂/∂V of −½ tr(VW₀ S (VW₀)ᵀ) + m log |V|, S the scatter.
        whole = -(whitener @ unpack(second, n_features)) @ base.whitener[0].mT
        diagonal = np.einsum("kdd->kd", whole)
        diagonal *= np.einsum("kdd->kd", stretch)
        diagonal += mass[:, None]
        return of_steps, whole.reshape(len(whole), -1)[:, _index(n_features, "triangle")]


class Tied(Structure):
    """One covariance matrix for all kernels: shape (R, M, M), with a kernel axis of one in factors."""

    name = "tied"
    pools_as = None
    shared = True

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return self.n_second(n_features)

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=-3)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return np.repeat(covariances[..., None, :, :], n_kernels, axis=-3)


class Diagonal(Structure):
    """A variance for every kernel and feature: shape (R, K, M)."""

    name = "diag"
    by_feature = True
    triangular = False
    pools_as: str | None = "diag"

    def n_second(self, n_features: int) -> int:
        return n_features

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels * n_features

    def rows_wanted(self, n_features: int) -> float:
        return 0.0

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        every = np.arange(n_features)
        return every, every

    def products(self, twice: FloatArray, out: FloatArray) -> list[Triple]:
        x = twice[: len(twice) // 2]
        return [(x, x, out)]

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=-2, axis2=-1).copy()

    def common(self, covariance: FloatArray) -> FloatArray:
        return covariance if covariance.ndim == 1 else np.diagonal(covariance).copy()

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        return np.repeat(covariances[:, None], n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return self.variances(covariances)[..., None] * np.eye(n_features)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        shape = (len(covariances), n_kernels, n_features)
        return np.broadcast_to(self.variances(covariances), shape).copy()

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        safe = clip(covariances, _TINY, _HUGE)
        usable = xp.all(safe == covariances, axis=(1, 2))
        return Factor(xp.reciprocal(xp.sqrt(safe)), xp.sum(xp.log(safe), axis=-1), usable)

    def quadratic(self, factor: Factor) -> FloatArray:
        return -0.5 * factor.whitener**2

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        return factor.whitener**2 * vectors

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        trace: FloatArray = factor.whitener**2 @ covariance
        return trace

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        return _lengths(whitener[..., None] * difference)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        return namespace(weighted).sum(weighted * difference, axis=-2)

    def pack(self, moments: FloatArray) -> FloatArray:
        return moments

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        variances, xp = second - mass[..., None] * offset**2, namespace(mass)
        if regulariser.prior_rows:
            variances += regulariser.prior_rows * regulariser.prior_covariance
            mass = mass + regulariser.prior_rows
        variances /= mass[..., None]
        if regulariser.ridge is not None:
            variances += regulariser.ridge
        return self.raised(xp.mean(variances, axis=-1) if self.isotropic else variances, regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        xp = namespace(covariances)
        variances = xp.maximum(covariances, xp.mean(floor) if self.isotropic else floor)
        return variances, self.factor(variances, floor.shape[0])

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances if self.isotropic else covariances[..., columns]

    def conditional(self, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
        gaps = _others(columns, n_features)
        return np.zeros((len(covariances), 1, len(gaps), len(columns))), self.marginal(covariances, gaps)

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        return np.ones(len(covariances))

    def apart(self, covariances: Array, seen: Array) -> Array:
        xp = namespace(covariances)
        stack = xp.broadcast_to(covariances[None, ...], (seen.shape[0], *covariances.shape))
        return xp.reshape(stack, (-1, *covariances.shape[1:]))

    def completed(
        self,
        seen: Array,
        covariances: Array,
        whiteners: Array,
        mass: Array,
        first: Array,
        second: Array,
        away: Array | None = None,
    ) -> tuple[Array, Array]:
        xp, unseen = namespace(first), namespace(first).astype(~seen, first.dtype)[:, None, None, :]
        spread, missing = self.variances(covariances), mass[..., None] * unseen
        if away is not None:
            first, spread = first + missing * away, spread + away**2
        return xp.sum(first, axis=0), xp.sum(second + missing * spread, axis=0)

    def wishart(self, n_features: int) -> Wishart:
        return Wishart(1, copies=n_features)

    def coordinates(self, covariances: FloatArray) -> FloatArray:
        return namespace(covariances).log(covariances)

    def from_coordinates(self, numbers: FloatArray) -> FloatArray:
        return namespace(numbers).exp(numbers)

    def root(self, factor: Factor) -> FloatArray:
        return 1.0 / factor.whitener

    def from_root(self, root: FloatArray) -> FloatArray:
        return root[..., 0] ** 2 if self.isotropic else root**2

    def unwhiten(self, root: FloatArray, steps: FloatArray) -> FloatArray:
        return root[0] * steps

    def stretched(self, base: Factor, numbers: FloatArray) -> tuple[FloatArray, Factor]:
        stretch, n_features = np.exp(numbers), base.whitener.shape[-1]
        log_determinant = base.log_determinant - 2.0 * n_features * numbers.mean(axis=-1)
        return stretch, Factor(stretch * base.whitener, log_determinant, base.usable)

    def gradients(self, base: Factor, stretch: FloatArray, factor: Factor, sums: Triple) -> Pair:
        (mass, first, second), whitener = sums, factor.whitener[0]
        of_each = mass[:, None] - whitener**2 * second
        of_each = of_each.sum(axis=1, keepdims=True) if self.isotropic else of_each
        return stretch * whitener * first, of_each


class Spherical(Diagonal):
    """One variance for every kernel, the same for all features: shape (R, K)."""

    name = "spherical"
    pools_as = None
    isotropic = True

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels,)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return super().from_full(covariances).mean(axis=-1)

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        return super().from_common(covariances, n_kernels).mean(axis=-1)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[0] ** 2

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances[..., None]

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        return super().factor(xp.repeat(covariances[..., None], n_features, axis=-1), n_features)

    def wishart(self, n_features: int) -> Wishart:
        return Wishart(1, repeats=n_features)


class LowRank(Diagonal):
    """Low-rank factors plus a diagonal for every kernel: mixtures of factor analysers.

    Covariances of shape (R, K, M, q + 1) are q columns of factors W, and the variances d as the last column:
    P = WWᵀ + diag(d), so that a kernel has M(q + 1) numbers instead of M(M + 1)/2. By the Woodbury identity
    P⁻¹ = diag(1/d) − VᵀV with V = L⁻¹Wᵀdiag(1/d) and LLᵀ = I + Wᵀdiag(1/d)W. A log-density is therefore that
    of a diagonal covariance plus ½‖Vx‖², and a pass needs no M × M matrix. `n_factors` is q, by default
    `automatic_factors`.
    """

    name = "low_rank"
    by_feature = False
    pools_as = "low_rank"
    projects = True
    # Hundreds of features, some of them nearly constant, reach 2^24 without harm. This limit leaves an
    # accuracy of about 1e-7.
    largest_cancellation = 2.0**30

    def __init__(self, n_factors: int | None = None) -> None:
        self.n_factors = n_factors

    def of(self, covariances: FloatArray) -> Structure:
        return LowRank(covariances.shape[-1] - 1)

    def _count(self, n_features: int) -> int:
        """Return q."""
        return automatic_factors(n_features) if self.n_factors is None else self.n_factors

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        # Factors are unique only up to rotation; a full covariance limits the number of parameters.
        n_factors = self._count(n_features)
        free = n_features * (n_factors + 1) - n_factors * (n_factors - 1) // 2
        return n_kernels * min(free, n_features * (n_features + 1) // 2)

    def rows_wanted(self, n_features: int) -> float:
        return _ROWS_PER_NUMBER * (self._count(n_features) + 1)

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features, self._count(n_features) + 1)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        # Principal factors of the correlations, exact for M − 1 factors; d is the remainder.
        n_features = covariances.shape[-1]
        n_factors = self._count(n_features)
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        deviations = np.sqrt(variances)
        correlations = covariances / (deviations[..., :, None] * deviations[..., None, :])
        values, vectors = np.linalg.eigh(correlations)
        values, vectors = values[..., ::-1], vectors[..., ::-1]
        n_used = min(n_factors, n_features)
        left = values[..., n_used:].mean(axis=-1) if n_used < n_features else values[..., -1]
        lengths = np.sqrt(np.maximum(values[..., :n_used] - left[..., None], 0.0))
        factors = np.zeros((*variances.shape, n_factors))
        factors[..., :n_used] = deviations[..., None] * vectors[..., :n_used] * lengths[..., None, :]
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SMALLEST_SHARE * variances)
        return np.concatenate([factors, own[..., None]], axis=-1)

    def common(self, covariance: FloatArray) -> FloatArray:
        return Structure.common(self, covariance)

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        found = self.from_full(covariances)
        factors, own = found[..., :-1], found[..., -1]
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        # Cosines involve all features, since it is unknown which ones are correlated.
        n_features, n_factors = factors.shape[-2:]
        angles = np.outer(np.arange(n_features) + 0.5, np.arange(1, n_factors + 1)) / n_features
        empty = (factors**2).sum(axis=-2) < _SEED * (variances.mean(axis=-1) / n_features)[..., None]
        share = math.sqrt(_SEED / n_factors) * np.sqrt(own)[..., None] * np.cos(np.pi * angles)
        factors = np.where(empty[..., None, :], share, factors)
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SEED * own)
        return np.repeat(np.concatenate([factors, own[..., None]], axis=-1)[:, None], n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        factors, every = covariances[..., :-1], np.arange(n_features)
        full = factors @ factors.mT
        full[..., every, every] += covariances[..., -1]
        return full

    def correlate(
        self, covariances: FloatArray, normal: FloatArray, random_state: np.random.RandomState
    ) -> FloatArray:
        factors, own = covariances[0, 0, :, :-1], covariances[0, 0, :, -1]
        common = random_state.standard_normal((len(normal), factors.shape[1]))
        return normal * np.sqrt(own) + common @ factors.T

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        rescaled = covariances * scale[:, None]
        rescaled[..., -1] *= scale
        return rescaled

    def variances(self, covariances: FloatArray) -> FloatArray:
        return (covariances[..., :-1] ** 2).sum(axis=-1) + covariances[..., -1]

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        projections = self.factor(covariances, n_features).whitener[..., :-1]
        factors, own = covariances[..., :-1], covariances[..., -1:]
        crossed = own * projections + factors @ (factors.mT @ projections)
        return _with_crossed(self.variances(covariances), crossed)

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        return self._parts(covariances)[0]

    def _parts(self, covariances: FloatArray) -> tuple[Factor, FloatArray, FloatArray]:
        """Return the factor, the matrices LLᵀ = I + Wᵀdiag(1/d)W and L⁻¹, both (R, K, q, q)."""
        factors, own = covariances[..., :-1], covariances[..., -1]
        shape = (*factors.shape[:2], factors.shape[-1], factors.shape[-1])
        positive = (own > 0) & np.isfinite(own)
        safe = np.where(positive, own, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            weighted = factors / safe[..., None]
            gram = np.eye(shape[-1]) + factors.mT @ weighted
        proper = np.all(np.isfinite(gram), axis=(-2, -1))
        gram = np.where(proper[..., None, None], gram, np.eye(shape[-1]))
        flat, log_determinant, definite = whiten_batch(gram.reshape(-1, *shape[2:]))
        inverse = flat.reshape(shape)
        usable = np.all(positive, axis=-1) & proper & definite.reshape(shape[:2])
        weighted = np.where(usable[..., None, None], weighted, 0.0)
        whitener = np.concatenate([weighted @ inverse.mT, 1.0 / np.sqrt(safe)[..., None]], axis=-1)
        log_determinant = log_determinant.reshape(shape[:2]) + np.log(safe).sum(axis=-1)
        return Factor(whitener, log_determinant, usable.all(axis=1)), gram, inverse

    def projections(self, factor: Factor) -> FloatArray:
        return np.ascontiguousarray(factor.whitener[..., :-1].mT)

    def quadratic(self, factor: Factor) -> FloatArray:
        return -0.5 * factor.whitener[..., -1] ** 2

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        return roots**2 * vectors - (projections @ (projections.mT @ vectors[..., None]))[..., 0]

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        inside = ((covariance @ projections) * projections).sum(axis=(-2, -1))
        trace: FloatArray = roots**2 @ np.diagonal(covariance) - inside
        return trace

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        projected = whitener[..., :-1].mT @ difference
        lengths = _lengths(whitener[..., -1:] * difference)
        inside = np.maximum(lengths - _lengths(projected), 0.0)
        return np.where(lengths < FARTHEST_SQUARED, inside, FARTHEST_SQUARED)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        # Maximisation would need the whole scatter S. One EM step of factor analysis needs only diag(S) and
        # SVᵀ, and increases the expected log-likelihood, which is enough for EM to be monotone.
        assert previous is not None, "the step starts from the covariances of the E-step"
        n_features = offset.shape[-1]
        factor, _, inverse = self._parts(previous)
        projections = factor.whitener[..., :-1]
        squares = second[..., :n_features] - mass[..., None] * offset**2
        crossed = second[..., n_features:].reshape(projections.shape)
        along = projections.mT @ offset[..., None]
        crossed = crossed - (mass[..., None] * offset)[..., None] * along.mT
        if regulariser.prior_rows:
            prior = regulariser.prior_covariance
            squares += regulariser.prior_rows * np.diagonal(prior)
            crossed += regulariser.prior_rows * (prior @ projections)
        total = mass[..., None] + regulariser.prior_rows
        squares /= total
        crossed /= total[..., None]
        # With E[z | x] = L⁻ᵀV(x − μ), the factors' mean square is L⁻ᵀL⁻¹ + L⁻ᵀ(VSVᵀ)L⁻¹.
        n_factors = projections.shape[-1]
        middle = np.eye(n_factors) + projections.mT @ crossed
        spread = inverse.mT @ (0.5 * (middle + middle.mT)) @ inverse
        flat, _, _ = whiten_batch(spread.reshape(-1, n_factors, n_factors))
        # Parameter-expanded EM (Liu, Rubin & Wu, 1998) takes a longer step: scale W so that the factors have
        # unit mean square.
        factors = crossed @ inverse @ flat.reshape(spread.shape).mT
        own = squares - (factors**2).sum(axis=-1)
        if regulariser.ridge is not None:
            own += regulariser.ridge
        return self.raised(np.concatenate([factors, own[..., None]], axis=-1), regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        # The expected log-likelihood separates over d, so the floor on d is exact; it also bounds P.
        raised = covariances.copy()
        raised[..., -1] = np.maximum(raised[..., -1], floor)
        return raised, self.factor(raised, floor.shape[0])

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances[..., columns, :]

    def conditional(self, covariances: FloatArray, columns: IntArray, n_features: int) -> Pair:
        gaps = _others(columns, n_features)
        factor, _, inverse = self._parts(self.marginal(covariances, columns))
        remaining = self.marginal(covariances, gaps).copy()
        # Factors scaled to their conditional covariance.
        remaining[..., :-1] = remaining[..., :-1] @ inverse.mT
        return remaining[..., :-1] @ factor.whitener[..., :-1].mT, remaining

    def given(
        self, covariances: FloatArray, patterns: Sequence[IntArray], n_features: int
    ) -> Iterator[tuple[Factor, FloatArray, FloatArray]]:
        for own in patterns:
            factor = self.factor(self.marginal(covariances, own), len(own))
            yield factor, *self.conditional(covariances, own, n_features)

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        found = self.variances(covariances) / covariances[..., -1]  # an upper bound
        return np.where(factor.usable, found.max(axis=(1, 2)), np.inf)

    def spread(self, remaining: FloatArray, gaps: IntArray, factor: Factor) -> FloatArray:
        projections = factor.whitener[..., :-1]
        squares, crossed = np.zeros(projections.shape[:-1]), np.zeros(projections.shape)
        squares[..., gaps] = np.diagonal(remaining, axis1=-2, axis2=-1)
        crossed[..., gaps, :] = remaining @ projections[..., gaps, :]
        return _with_crossed(squares, crossed)

    def moved(
        self, second: Array, first: Array, mass: Array, shift: Array, factor: Factor | None = None
    ) -> Array:
        n_features = first.shape[-1]
        squares = super().moved(second[..., :n_features], first, mass, shift)
        assert factor is not None
        projections = factor.whitener[..., :-1]
        along = (projections.mT @ shift[..., None])[..., None, :, 0]
        whole = (projections.mT @ (first + mass * shift)[..., None])[..., None, :, 0]
        crossed = second[..., n_features:].reshape(projections.shape)
        crossed = crossed + first[..., None] * along + shift[..., None] * whole
        return _with_crossed(squares, crossed)

    def wishart(self, n_features: int) -> Wishart:
        raise ValueError(
            f"A variational fit of {self.name} covariances is not possible: they have no conjugate "
            "prior. Use inference='em', or another covariance_type."
        )

    def widened(self, covariances: FloatArray, factors: FloatArray) -> FloatArray:
        own = factors[:, None, None]
        return np.concatenate([covariances[..., :-1] * np.sqrt(own), covariances[..., -1:] * own], axis=-1)

    def coordinates(self, covariances: FloatArray) -> FloatArray:
        # Factors are unconstrained.
        return np.concatenate([covariances[..., :-1], np.log(covariances[..., -1:])], axis=-1)

    def from_coordinates(self, numbers: FloatArray) -> FloatArray:
        return np.concatenate([numbers[..., :-1], np.exp(numbers[..., -1:])], axis=-1)


# The candidates of 'auto'.
STRUCTURES: dict[str, Structure] = {s.name: s for s in (Structure(), Tied(), Diagonal(), Spherical())}
COVARIANCE_TYPES = (*STRUCTURES, LowRank.name)


def rescaled(covariance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the covariance (M, M), or the variances (M,), of x · scale, scale (M,)."""
    return covariance * scale * (scale if covariance.ndim == 1 else scale[:, None])


def structure_of(covariance_type: str, n_factors: int | None = None) -> Structure:
    """Return the structure of that name; `n_factors` is for 'low_rank' without covariances yet."""
    if covariance_type == LowRank.name:
        return LowRank(n_factors)
    try:
        return STRUCTURES[covariance_type]
    except KeyError:
        known = ", ".join(map(repr, COVARIANCE_TYPES))
        raise ValueError(f"covariance_type={covariance_type!r} is not one of {known}.") from None


def automatic_factors(n_features: int) -> int:
    """Return the default number of factors of M features: 2√M, up to `most_factors`."""
    return min(round(2.0 * math.sqrt(n_features)), most_factors(n_features))


def most_factors(n_features: int) -> int:
    """Return the number of factors that can represent any covariance of M features."""
    return max(1, n_features - 1)


# ---------------------------------------------------------------- second-order terms


@lru_cache(maxsize=256)
def _index(n_features: int, which: str) -> np.ndarray:
    """Return indices of the pairs of features, and −½ times how often each (S,) occurs in x'Qx.

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
        "diagonal": np.eye(n_features, dtype=bool),
    }
    return found[which]


def _others(columns: IntArray, n_features: int) -> IntArray:
    """Return the features that are not among `columns`, in increasing order."""
    return np.flatnonzero(np.bincount(columns, minlength=n_features) == 0)


def unpack(second: FloatArray, n_features: int) -> FloatArray:
    """Return symmetric matrices (..., M, M) from their packed upper triangles (..., S)."""
    xp = namespace(second)
    flat = take(second, constant(_index, n_features, "unpacked", example=second), axis=-1)
    return xp.reshape(flat, (*second.shape[:-1], n_features, n_features))


def _lengths(white: FloatArray) -> FloatArray:
    """Return squared lengths (..., n) of whitened differences (..., M, n), which are always finite."""
    xp = namespace(white)
    with np.errstate(over="ignore"):
        found = xp.sum(white * white, axis=-2)
    most = FARTHEST_SQUARED if found.dtype == xp.float64 else _FARTHEST_SQUARED_SINGLE
    return xp.where(found < most, found, most)


def _where(chosen: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
    """Return `new` (R, …) or (R, K, …) where `chosen` (R,) or (R, K), otherwise `old`."""
    return namespace(new).where(
        namespace(new).reshape(chosen, chosen.shape + (1,) * (new.ndim - chosen.ndim)), new, old
    )


def _with_crossed(squares: FloatArray, crossed: FloatArray) -> FloatArray:
    """Concatenate sums of squares (R, K, M) and of x(Vx)ᵀ (R, K, M, q), as in `Statistics.second`."""
    return np.concatenate([squares, crossed.reshape(*squares.shape[:2], -1)], axis=-1)


# ---------------------------------------------------------------- batches of small matrices
#
# NumPy's batched Cholesky raises for the whole batch if one matrix is singular, and one LAPACK call for each
# costs more than the arithmetic of a small matrix. A batch of starts has thousands of them.

# For B matrices P (M, M): lower triangular whiteners W with W P Wᵀ = I, log-determinants (B,), and which are
# numerically positive definite (B,). If one is not, its W is finite but undefined.
Whitened = tuple[Array, Array, Array]


def _factor(found: Whitened, shape: tuple[int, ...]) -> Factor:
    """Return the factor of covariances of that shape (R, K, M, M), given that of a batch of R · K."""
    (whitener, log_determinant, positive), xp = found, namespace(found[0])
    usable = xp.all(xp.reshape(positive, shape[:2]), axis=1)
    return Factor(xp.reshape(whitener, shape), xp.reshape(log_determinant, shape[:2]), usable)


def _compiles(batch: Array, order: int) -> bool:
    """Return whether small matrices, one for each entry of `batch`, are for compiled code."""
    if not is_numpy(batch) or order > _LARGEST_VECTORISED:
        return False
    return is_loaded() or (batch.size * order**2 >= _WORTH_COMPILING and can_compile())


def _read_only(array: FloatArray) -> FloatArray:
    """Return an array as one that is contiguous and read-only: code is compiled for each kind of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _update_compiled(
    mass: FloatArray, offset: FloatArray, second: FloatArray, regulariser: Regulariser
) -> FloatArray:
    """Return covariances (R, K, M, M) before they are raised to the floor; see `Structure.update`."""
    from .compute.matrices import normalise

    n_features, rows = offset.shape[-1], float(regulariser.prior_rows)
    ridge = np.zeros(n_features) if regulariser.ridge is None else regulariser.ridge
    covariances = np.empty((*offset.shape, n_features))
    normalise(
        _read_only(second).reshape(-1, second.shape[-1]),
        _index(n_features, "unpacked"),
        _read_only(mass).reshape(-1),
        _read_only(offset).reshape(-1, n_features),
        (rows * regulariser.prior_covariance).reshape(-1),
        rows,
        np.diag(ridge).reshape(-1),
        covariances.reshape(-1, n_features**2),
    )
    return covariances


def whiten_batch(matrices: Array) -> Whitened:
    """Return the `Whitened` of symmetric matrices (B, M, M)."""
    if not is_numpy(matrices):
        return _whiten_on_device(matrices)
    if _compiles(matrices[:, 0, 0], matrices.shape[-1]):
        return _eliminate_compiled(matrices)
    # Scaling to a diagonal near one avoids overflow and underflow; powers of two make it exact.
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    proper = np.all((diagonal > 0) & np.isfinite(diagonal), axis=1)
    if not proper.all():
        matrices = np.where(proper[:, None, None], matrices, np.eye(matrices.shape[-1]))
        diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    _, exponents = np.frexp(diagonal)
    units = np.ldexp(1.0, -(exponents // 2))
    scaled = matrices * units[:, :, None] * units[:, None, :]
    small = matrices.shape[-1] <= _LARGEST_VECTORISED
    whiteners, log_determinants, positive = (_eliminate if small else _factor_each)(scaled)
    variances = np.diagonal(scaled, axis1=-2, axis2=-1)
    inflation = variances * _inverse_diagonals(whiteners)
    again = np.flatnonzero(positive & (inflation > INFLATED).any(axis=1))
    if len(again):
        whiteners[again], log_determinants[again], positive[again] = _eliminate(
            scaled[again].astype(np.longdouble)
        )
    whiteners *= units[:, None, :]
    log_determinants -= 2.0 * np.log(units).sum(axis=1)
    return whiteners, log_determinants, positive & proper


def _eliminate_compiled(matrices: FloatArray) -> Whitened:
    """Return the `Whitened` of matrices (B, M, M), bit by bit what NumPy makes of them."""
    from .compute.matrices import eliminate

    n_matrices, order, _ = matrices.shape
    whiteners, units, pivots = (
        np.zeros_like(matrices, order="C"),
        np.empty((n_matrices, order)),
        np.empty((order, n_matrices)),
    )
    positive, inflation = np.empty(n_matrices, dtype=bool), np.empty(n_matrices)
    eliminate(_read_only(matrices), _SINGULAR, whiteners, units, pivots, positive, inflation)
    log_determinants = np.log(pivots).sum(axis=0)
    positive &= np.isfinite(log_determinants)
    if not positive.all():
        whiteners[~positive] = np.eye(order) * units[~positive][:, None]
        log_determinants[~positive] = 0.0
    again = np.flatnonzero(positive & (inflation > INFLATED))
    if len(again):
        own = units[again]
        scaled = matrices[again] * own[:, :, None] * own[:, None, :]
        found = _eliminate(scaled.astype(np.longdouble))
        whiteners[again], log_determinants[again], positive[again] = found[0] * own[:, None], *found[1:]
    return whiteners, log_determinants - 2.0 * np.log(units).sum(axis=1), positive


@np.errstate(over="ignore", invalid="ignore")  # matrices that are not positive definite
def _eliminate(matrices: np.ndarray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Factor scaled matrices (B, M, M) together."""
    n_matrices, order, _ = matrices.shape
    # The batch is the last axis, so that each step works along contiguous memory.
    rest = np.moveaxis(matrices, 0, -1).copy(order="C")
    inverse, pivots = np.zeros_like(rest), np.empty_like(rest[0])
    positive = np.ones(n_matrices, dtype=bool)
    least = _SINGULAR * np.abs(np.einsum("ddb->db", rest))
    for j in range(order):
        good = rest[j, j] > least[j]
        positive &= good
        pivots[j] = np.where(good, rest[j, j], 1.0)
        root = 1.0 / np.sqrt(pivots[j])
        inverse[j, :j] *= root
        inverse[j, j] = root
        if j < order - 1:
            column = rest[j + 1 :, j] * root
            rest[j + 1 :, j + 1 :] -= column[:, None] * column[None, :]
            inverse[j + 1 :, : j + 1] -= column[:, None] * inverse[j, : j + 1]
    log_determinants = np.log(pivots).sum(axis=0)
    positive &= np.isfinite(log_determinants)
    if not positive.all():
        inverse[:, :, ~positive] = np.eye(order)[:, :, None]
        log_determinants[~positive] = 0.0
    return np.ascontiguousarray(np.moveaxis(inverse, -1, 0)), log_determinants, positive


def _factor_each(matrices: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Factor scaled matrices (B, M, M) one by one."""
    n_matrices, order, _ = matrices.shape
    whiteners = np.tile(np.eye(order), (n_matrices, 1, 1))
    log_determinants = np.zeros(n_matrices)
    positive = np.zeros(n_matrices, dtype=bool)
    for b, matrix in enumerate(matrices):
        lower, info = lapack.dpotrf(matrix, lower=1)
        pivots = np.diagonal(lower)
        if info == 0 and np.all(pivots**2 > _SINGULAR * np.diagonal(matrix)):
            whiteners[b] = lapack.dtrtri(lower, lower=1)[0]
            log_determinants[b] = 2.0 * np.log(pivots).sum()
            positive[b] = True
    return whiteners, log_determinants, positive


def _whiten_on_device(matrices: Array) -> Whitened:
    """Return whiteners of matrices (B, M, M) on a device; those that lose digits are factored on the host."""
    xp, operations = namespace(matrices), operations_of(matrices)
    diagonal = xp.linalg.diagonal(matrices)
    safe = clip(diagonal, _TINY, _HUGE)
    proper = xp.all(safe == diagonal, axis=1)
    eye = constant(np.eye, matrices.shape[-1], example=matrices)
    unit = xp.reciprocal(xp.sqrt(safe))
    scaled = xp.where(proper[:, None, None], matrices * unit[:, :, None] * unit[:, None, :], eye)
    lower, good = operations.cholesky(scaled)
    positive = proper & good & xp.all(xp.linalg.diagonal(lower) > math.sqrt(_SINGULAR), axis=1)
    lower = xp.where(positive[:, None, None], lower, eye)
    whiteners = operations.invert_lower(lower)
    lengths = xp.linalg.vector_norm(whiteners, axis=-2)
    inflated = positive & xp.any(lengths > math.sqrt(_INFLATED_ON_DEVICE), axis=1)
    log_determinants = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(lower) / unit), axis=1)
    found = whiteners * unit[:, None, :], log_determinants, positive
    if not occurs(inflated):
        return found
    index = np.flatnonzero(to_numpy(inflated))
    whiteners, log_determinants, positive = whiten_batch(to_numpy(pick(matrices, index)))
    better = as_float64(whiteners, matrices), as_float64(log_determinants, matrices)
    return _replaced(found, index, (*better, xp.asarray(positive, device=device_of(matrices))))


def _inverse_diagonals(whiteners: Array) -> Array:
    """Return the diagonals (B, M) of the inverses WᵀW of the matrices with these whiteners (B, M, M)."""
    if is_numpy(whiteners):
        return np.einsum("bed,bed->bd", whiteners, whiteners)
    return namespace(whiteners).sum(whiteners * whiteners, axis=-2)


def _replaced(found: Whitened, index: IntArray, new: Whitened) -> Whitened:
    """Return `found` with the entries of some matrices replaced."""
    whiteners, log_determinants, positive = (replaced(a, index, b) for a, b in zip(found, new, strict=True))
    return whiteners, log_determinants, positive


def whiten_bounded(matrices: Array, floor: Array) -> tuple[Array, Whitened]:
    """Return matrices (B, M, M) raised to P ⪰ diag(floor), and their whiteners; NumPy: in place."""
    found, xp = whiten_batch(matrices), namespace(matrices)
    # tr(P⁻¹ diag(floor)) < 1 proves that no eigenvalue relative to diag(floor) is below one.
    low = (~found[2] | (_inverse_diagonals(found[0]) @ floor >= 1.0)) & xp.all(floor > 0)
    index = rare(low)
    if index is None:
        return matrices, found
    some = pick(matrices, index)
    raised = xp.where(pick(low, index)[:, None, None], raise_eigenvalues(some, floor), some)
    return replaced(matrices, index, raised), _replaced(found, index, whiten_batch(raised))


def raise_eigenvalues(matrices: FloatArray, floor: FloatArray) -> FloatArray:
    """Return symmetric matrices (B, M, M) raised to P ⪰ diag(floor), with a positive floor (M,).

    This maximises the expected log-likelihood under that constraint, so that EM stays monotone.
    """
    xp, root = namespace(matrices), namespace(matrices).sqrt(floor)
    unit = root[:, None] * root
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
