"""What E-steps share: peaks of densities, sums of exponentials, and moments about other origins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from ..compute.arrays import Array, clip, digamma, gammaln, is_numpy, like, namespace, occurs
from ..covariances import Structure
from ..model import Factor, FloatArray, IntArray, Statistics

# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_UNDERFLOW = 1e-280
# Responsibilities below this are zero: subnormal numbers would be slow, and nothing needs them.
_SMALLEST = 1e-200
# The logarithm of zero in matrix products, where −inf would turn into NaN.
_LOG_ZERO = -1e30


# ---------------------------------------------------------------- densities of kernels


def log_peaks(log_determinant: Array, n_features: int | IntArray, degrees: Array | None) -> Array:
    """Return the log-densities at the means, of Gaussian kernels or of t kernels with `degrees` (R, K)."""
    if degrees is None:
        return -0.5 * (log_determinant + n_features * math.log(2 * math.pi))
    xp = namespace(degrees)
    powers = log_determinant + n_features * xp.log(math.pi * degrees)
    return gammaln(0.5 * (degrees + n_features)) - gammaln(0.5 * degrees) - 0.5 * powers


def log_uniform(box: FloatArray) -> FloatArray:
    """Return the log-density of uniform distributions on boxes (..., 2, M)."""
    return -np.log(box[..., 1, :] - box[..., 0, :]).sum(axis=-1)


def mean_log_scale(degrees: Array, n_features: int | IntArray) -> Array:
    """Return E[log u] − log E[u] of the relative precision u of a row of M features under t kernels."""
    half = 0.5 * (degrees + n_features)
    return digamma(half) - namespace(half).log(half)


def at_distances(
    distances: FloatArray, constants: FloatArray, degrees: FloatArray | None, n_features: int | IntArray
) -> tuple[FloatArray, FloatArray | None]:
    """Return log-densities at squared distances (R, K, n), and E[u] of the same shape under t kernels.

    `constants` are the log-densities at the means; `n_features` may differ from row to row (n,).
    """
    if degrees is None:
        return constants - 0.5 * distances, None
    ratio = 1.0 + distances / degrees
    values = constants - 0.5 * (degrees + n_features) * np.log(ratio)
    return values, (degrees + n_features) / (degrees * ratio)


# ---------------------------------------------------------------- logarithms of sums


def safe_log(weights: FloatArray) -> FloatArray:
    """Return logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


def finite_log(weights: Array) -> Array:
    """Return logarithms of weights; that of zero is finite, since −inf becomes NaN in matrix products."""
    with np.errstate(divide="ignore"):
        return clip(namespace(weights).log(weights), _LOG_ZERO, np.inf)


def log_sum(log_joint: Array) -> Array:
    """Return log Σ_j exp(a_nj), shape (n,), of log-joints a (n, m)."""
    if is_numpy(log_joint):
        return logsumexp(log_joint, axis=1)
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1)
    finite = xp.where(largest > -np.inf, largest, 0.0)
    return xp.log(xp.sum(xp.exp(log_joint - finite[:, None]), axis=1)) + finite


def log_mix(values: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(v_kn), shape (L, n), of logarithms v (K, n) and weights w (K, L)."""
    xp, shares = namespace(values), like(weights, values)
    largest = xp.max(values, axis=0)
    densities = xp.exp(values - largest)
    sums = shares.T @ densities
    lost = sums < _UNDERFLOW
    logs = xp.log(xp.where(lost, 1.0, sums)) + largest
    if not occurs(lost):
        return logs
    # In some class the rows' nearest kernels have no weight: sum over the other kernels.
    log_weights = safe_log(weights)
    if not is_numpy(values):
        own = [log_sum((values + like(log_weights[:, c, None], values)).T) for c in range(weights.shape[1])]
        return xp.where(lost, xp.stack(own), logs)
    for c in np.flatnonzero(lost.any(axis=1)):
        rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(weights[:, c])
        logs[c, rows] = -np.inf
        if len(kernels):
            terms = values[np.ix_(kernels, rows)] + log_weights[kernels, c, None]
            highest = terms.max(axis=0)
            # A cumulative sum adds in the same order for any number of rows; a plain sum does not.
            logs[c, rows] = np.log(np.cumsum(np.exp(terms - highest), axis=0)[-1]) + highest
    return logs


@dataclass(frozen=True)
class Shares:
    """How the rows of a chunk share in the kernels; all but the first are zero if moments are left out."""

    likelihood: FloatArray  # (R, C)
    mass: FloatArray  # (R, K, C)
    background: FloatArray | None  # (R, C); None if there is none
    shares: FloatArray | None  # (R, K, n): responsibilities times weights of the rows; None instead of zero


def share(
    joint: FloatArray,
    background: FloatArray | None,
    codes: IntArray | None,
    weights: FloatArray | None,
    n_classes: int,
    with_moments: bool,
) -> Shares:
    """Return how n rows with log-joints (R, K, n), and (R, n) of a background, share in the kernels: (E).

    Class codes and weights of the rows are (n,) or None.
    """
    n = joint.shape[-1]
    codes = np.zeros(n, dtype=np.int64) if codes is None else codes
    indicators = (codes[:, None] == np.arange(n_classes)).astype(np.float64)
    if weights is not None:
        indicators *= weights[:, None]
    n_kernels = joint.shape[1]
    if background is not None:
        joint = np.concatenate([joint, background[:, None]], axis=1)
    largest = joint.max(axis=1)
    shares = np.exp(joint - largest[:, None])
    total = shares.sum(axis=1)
    # One product per start, so that its rounding does not depend on the others.
    likelihood = ((np.log(total) + largest)[:, None] @ indicators)[:, 0]
    of_background = None if background is None else np.zeros_like(likelihood)
    if not with_moments:
        return Shares(likelihood, np.zeros((len(joint), n_kernels, n_classes)), of_background, None)
    shares /= total[:, None]
    shares[shares < _SMALLEST] = 0.0
    if background is not None:
        of_background = (shares[:, -1:] @ indicators)[:, 0]
        shares = shares[:, :-1]
    mass = shares @ indicators
    return Shares(likelihood, mass, of_background, shares if weights is None else shares * weights)


# ---------------------------------------------------------------- moments


def moved(
    statistics: Statistics,
    origins: FloatArray,
    new_origins: FloatArray,
    structure: Structure,
    factor: Factor | None = None,
) -> Statistics:
    """Return statistics whose moments are about `new_origins` (R, K, M) instead of `origins` (R, K, M)."""
    first, shift = statistics.first, origins - new_origins
    weight = statistics.weight[..., None]
    second = structure.moved(statistics.second, first, weight, shift, factor)
    return replace(statistics, first=first + weight * shift, second=second)
