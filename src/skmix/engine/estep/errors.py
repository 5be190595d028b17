"""Rows whose values have errors of known variances.

A row is x = v + e, where v is from the mixture and e from N(0, S_n), with a diagonal S_n. Kernel k sees it as
N(μ_k, T) with T = P_k + S_n. Given the kernel, with d = x − μ_k and u = T⁻¹ d,

    E[v | x] = μ_k + P_k u,    Cov[v | x] = P_k − P_k T⁻¹ P_k

(extreme deconvolution; Bovy, Hogg & Roweis, 2011). Moments of v about the mean are therefore P_k Σ r u and
P_k (Σ r (u uᵀ − T⁻¹)) P_k + P_k Σ r, with sums over rows of responsibilities r. A missing value has an
infinite variance: its row and its column of T⁻¹ are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np

from ..._core import core
from ..exponentials import TILE, log_mix
from ..measured import Measured
from ..numbers import FARTHEST_SQUARED
from ..records import FloatArray, Frame, IntArray, Statistics
from ..structures import Structure
from ..structures.factors import pack, whiten_batch
from ..threads import Workers
from .inputs import HELD, Kernels
from .terms import likelihood_alone, moved, share

# Rows whose log-densities under all kernels are computed at a time.
_SCORED = 1 << 15


@dataclass
class ErrorRows:
    """Rows with errors, in a frame."""

    rows: Measured  # (n, M)
    codes: IntArray | None  # (n,): class of each row; None for one class
    weights: FloatArray | None  # (n,)
    frame: Frame

    @cached_property
    def x(self) -> FloatArray:
        """The values (n, M), zero where they are missing."""
        return np.nan_to_num(self.frame.rows(self.rows.X).T).copy()

    @cached_property
    def variances(self) -> FloatArray:
        """The variances (n, M) of the errors, infinite where a value is missing."""
        with np.errstate(over="ignore"):
            variances = np.square(self.rows.errors / self.frame.scale)
        return np.ascontiguousarray(np.where(np.isnan(self.rows.X), np.inf, variances))


def expect(
    rows: ErrorRows, kernels: Kernels, covariances: FloatArray, pool: Workers, *, with_moments: bool = True
) -> Statistics:
    """Do the E-step of rows with errors under kernels with those covariances; see `host.expect`."""
    structure, (_, n_kernels, n_features) = kernels.structure, kernels.means.shape
    matrices = _by_kernel(structure, covariances, n_kernels, n_features)
    if core() is None:
        sums = _by_reference(rows, kernels, matrices)
    else:
        sums, _ = _run(rows, kernels, matrices, pool, with_moments=with_moments, with_sums=True)
    if not with_moments:
        return likelihood_alone(sums.log_likelihood, kernels)
    mass, first, second = sums.mass, sums.first, sums.second
    total = mass.sum(axis=-1)[..., None]
    if structure.triangular:
        first = (matrices @ first[..., None])[..., 0]
        second = pack(matrices @ second @ matrices + total[..., None] * matrices)
    else:
        first, second = matrices * first, matrices * second * matrices + total * matrices
    statistics = replace(sums, first=first, second=second)
    return moved(statistics, kernels.means, kernels.origins, structure)


def log_densities(
    rows: Measured,
    frame: Frame,
    kernels: Kernels,
    covariances: FloatArray,
    weights: FloatArray | None,
    pool: Workers,
) -> FloatArray:
    """Return log-densities (N, K) of the observed values, or mixtures (N, L); see `gaps.log_densities`."""
    _, n_kernels, n_features = kernels.means.shape
    matrices = _by_kernel(kernels.structure, covariances, n_kernels, n_features)
    kernels = replace(kernels, log_weights=np.zeros((1, n_kernels, 1)))
    result = np.empty((len(rows), n_kernels if weights is None else weights.shape[1]))
    for a in range(0, len(rows), _SCORED):
        some = ErrorRows(rows[a : a + _SCORED], None, None, frame)
        if core() is None:
            values = _factored(some.x, some.variances, kernels.means, matrices)[0][0].T
        else:
            _, values = _run(some, kernels, matrices, pool, with_moments=False, with_sums=False)
        # In the data's coordinates.
        values -= np.where(np.isnan(some.rows.X), 0.0, np.log(frame.scale)).sum(axis=1)[:, None]
        result[a : a + _SCORED] = values if weights is None else log_mix(values.T, weights).T
    return result


def clean_means(
    rows: Measured, responsibilities: FloatArray, means: FloatArray, covariances: FloatArray, kind: Structure
) -> FloatArray:
    """Return the expected values (n, M) behind the measured ones, for responsibilities (n, K).

    Rows and kernels, of one model, are in the data's coordinates.
    """
    matrices = _by_kernel(kind, covariances[None], *means.shape)
    clean, step = np.empty(rows.shape), max(1, HELD // matrices.size)
    variances = np.where(np.isnan(rows.X), np.inf, np.square(rows.errors, dtype=np.float64))
    x = np.nan_to_num(rows.X)
    for a in range(0, len(rows), step):
        some = slice(a, a + step)
        _, u, _ = _factored(x[some], variances[some], means[None], matrices)
        ahead = u @ matrices if kind.triangular else u * matrices[:, :, None]
        clean[some] = np.einsum("nk,knd->nd", responsibilities[some], means[:, None] + ahead[0])
    return clean


def _by_kernel(structure: Structure, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
    """Return the covariance of each kernel: matrices (R, K, M, M), or variances (R, K, M)."""
    stack = structure.by_kernel(covariances)
    shape = (len(stack), n_kernels, *(n_features,) * (stack.ndim - 2))
    return np.ascontiguousarray(np.broadcast_to(stack, shape))


# ---------------------------------------------------------------- by the core, and in plain NumPy


def _run(
    rows: ErrorRows, kernels: Kernels, matrices: FloatArray, pool: Workers, **wanted: bool
) -> tuple[Statistics, FloatArray]:
    """Return log-likelihoods, mass, sums of r u and of r (u uᵀ − T⁻¹), and log-densities: what is wanted."""
    arrays = map(np.ascontiguousarray, (kernels.means, matrices, kernels.log_weights))
    codes = None if kernels.log_weights.shape[-1] == 1 else np.require(rows.codes, np.int64, ["C"])
    weights = None if rows.weights is None else np.require(rows.weights, np.float64, ["C"])
    job = core().error_pass(rows.x, rows.variances, codes, weights, *arrays, **wanted)
    log_likelihood, mass, first, second, densities = pool.finish(job)
    if matrices.ndim == 4 and len(second):
        i, j = np.tril_indices(matrices.shape[-1])
        full = np.empty(matrices.shape)
        full[..., i, j] = full[..., j, i] = second
        second = full
    return Statistics(log_likelihood, mass, first, second), densities


def _by_reference(rows: ErrorRows, kernels: Kernels, matrices: FloatArray) -> Statistics:
    """Return what `_run` does, without densities: the definition."""
    step = max(TILE, HELD // math.prod(matrices.shape[1:]))
    parts = [slice(a, a + step) for a in range(0, max(1, len(rows.rows)), step)]
    return reduce(Statistics.plus, map(partial(_expect, rows, kernels, matrices), parts))


def _expect(rows: ErrorRows, kernels: Kernels, matrices: FloatArray, some: slice) -> Statistics:
    joint, u, whiteners = _factored(rows.x[some], rows.variances[some], kernels.means, matrices)
    codes = np.zeros(joint.shape[-1], dtype=np.int64) if rows.codes is None else rows.codes[some]
    weights = None if rows.weights is None else rows.weights[some]
    joint += kernels.log_weights[..., codes]
    log_likelihood, mass, shares = share(joint, codes, weights, kernels.log_weights.shape[-1])
    weighted = shares[..., None] * u
    if kernels.structure.triangular:
        inverses = whiteners.mT @ whiteners
        second = weighted.mT @ u - (shares[..., None, None] * inverses).sum(axis=2)
    else:
        second = (weighted * u - shares[..., None] * np.square(whiteners)).sum(axis=2)
    return Statistics(log_likelihood, mass, weighted.sum(axis=2), second)


def _factored(
    x: FloatArray, variances: FloatArray, means: FloatArray, matrices: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log-densities (R, K, n), u (R, K, n, M), and whiteners W with T⁻¹ = WᵀW.

    Values x (n, M) have errors of these variances (n, M). Whiteners are (R, K, n, M, M), or (R, K, n, M) of
    independent features.
    """
    is_known, n_features = np.isfinite(variances), x.shape[1]
    differences = np.where(is_known, x - means[:, :, None], 0.0)
    if matrices.ndim == 4:
        eye = np.eye(n_features)
        both = is_known[:, :, None] & is_known[:, None]
        # Missing values are left out: as if independent, with a variance of one and no difference.
        added = np.where(is_known, variances, 1.0)[..., None] * eye
        totals = np.where(both, matrices[:, :, None], 0.0) + added
        whiteners = whiten_batch(totals.reshape(-1, n_features, n_features)).whiteners.reshape(totals.shape)
        roots = np.diagonal(whiteners, axis1=-2, axis2=-1)
        whiteners = np.where(both, whiteners, 0.0)
        white = (whiteners @ differences[..., None])[..., 0]
        u = (whiteners.mT @ white[..., None])[..., 0]
    else:
        whiteners = 1.0 / np.sqrt(matrices[:, :, None] + variances)
        roots = np.where(is_known, whiteners, 1.0)
        white = whiteners * differences
        u = whiteners * white
    distances = np.minimum(np.square(white).sum(axis=-1), FARTHEST_SQUARED)
    constants = is_known.sum(axis=-1) * math.log(2.0 * math.pi)
    return np.log(roots).sum(axis=-1) - 0.5 * (distances + constants), u, whiteners
