"""The published algorithm: arithmetic in the linear domain, full covariances, no safeguards.

To fit data, use the library. This module reproduces the paper's numbers and shows how its arithmetic fails:
once a covariance is singular, its density is infinite or undefined, the normalisation (E) turns that into
NaN, and the pooled sums (M2), (M3) spread it to every kernel. A run ends there, with the parameters from
before the failing pass and the reason.

The labels in comments are those of ``docs/notation.md``: (E) the responsibilities, (M1) the weights,
(M2) the means, (M3) the covariances, (LL) the log-likelihood of a class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skmix.theory import Parameters

from .digits import FloatArray, IntArray
from .rows import Rows, exponentials

Reason = Literal["", "constant feature", "too few rows", "overflow"]
REASONS: tuple[Reason, ...] = ("constant feature", "too few rows", "overflow")

# The paper's tolerance: a class has converged once its log-likelihood changes by less between two passes.
TOLERANCE = 0.1
# A feature is constant within a kernel if its variance there is below this share of its overall variance.
_CONSTANT = 1e-8
# Added to the number of features when rows are counted: responsibilities rarely sum to a whole number.
_HALF_A_ROW = 0.5
# Responsibilities below this are left out: products with subnormal numbers are slow.
_NEGLIGIBLE = 1e-300
# Runs whose responsibilities stay in the processor's cache.
_RUNS_AT_ONCE = 8


@dataclass(frozen=True)
class Fit:
    """A fitted run."""

    # The mixture of each feature set; for a failed published run, from before the failing pass.
    mixtures: tuple[Parameters, ...]
    n_iter: int  # passes, including a failing one; the largest number over the feature sets
    converged: bool
    failing_pass: int | None  # the pass, from 1, that gave a NaN or an infinity
    reason: Reason
    log_likelihood: float  # of all training rows, summed over the feature sets; NaN for a failed run


def published_runs(
    X: FloatArray, classes: IntArray, starts: Sequence[Parameters], *, max_iter: int = 100
) -> list[Fit]:
    """Run the published algorithm until all classes have converged, it fails, or `max_iter` is reached.

    A class that has converged once counts as converged, even if it moves again.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows.
    classes : ndarray of shape (N,)
        Class of each row, 0 to L - 1.
    starts : sequence of Parameters
        Weights (K, L), means (K, M), covariances (K, M, M) of each run.
    max_iter : int, default=100
        Largest number of passes.

    Returns
    -------
    list of Fit
        Fits of one feature set, with the same bits alone and together. Their log-likelihoods are those of the
        parameters before the last pass.
    """
    sizes = np.bincount(classes, minlength=starts[0].weights.shape[1])
    rows = Rows(X[np.argsort(classes, kind="stable")].T)
    weights, means, covariances = zip(*((s.weights, s.means, s.covariances) for s in starts), strict=True)
    before = Parameters(np.stack(weights), np.stack(means), np.stack(covariances))
    inverses = _inverses(before.covariances)
    fits = [Fit((start,), 0, False, None, "", math.nan) for start in starts]
    running = np.arange(len(starts))
    previous = np.full((len(starts), len(sizes)), np.nan)
    converged = np.zeros(previous.shape, dtype=bool)
    for n_passes in range(1, max_iter + 1):
        after, later_inverses, log_likelihood = _pass(rows, sizes, before, inverses)
        with np.errstate(invalid="ignore"):
            converged = converged | (np.abs(log_likelihood - previous) < TOLERANCE)
        arrays = after.weights, after.means, after.covariances, log_likelihood
        finite = np.all([np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in arrays], axis=0)
        done = converged.all(axis=1)
        goes_on = finite & ~done & (n_passes < max_iter)
        for r in np.flatnonzero(~goes_on):
            if finite[r]:
                total = float(log_likelihood[r].sum())
                fits[running[r]] = Fit((after.take(r),), n_passes, bool(done[r]), None, "", total)
            else:
                last = before.take(r)
                reason = failure_reason(last, rows, sizes)
                fits[running[r]] = Fit((last,), n_passes, False, n_passes, reason, math.nan)
        if not goes_on.any():
            break
        running, before, inverses = running[goes_on], after.take(goes_on), later_inverses[goes_on]
        converged, previous = converged[goes_on], log_likelihood[goes_on]
    return fits


def published_pass(
    rows: FloatArray, sizes: IntArray, parameters: Parameters
) -> tuple[Parameters, FloatArray]:
    """Do one pass of the published algorithm.

    Parameters
    ----------
    rows : ndarray of shape (M, N)
        Rows ordered by class, one feature after the other.
    sizes : ndarray of shape (L,)
        Number of rows of each class.
    parameters : Parameters
        Weights (K, L), means (K, M), covariances (K, M, M) before the pass.

    Returns
    -------
    parameters : Parameters
        After the pass; possibly not finite.
    log_likelihood : ndarray of shape (L,)
        Of each class under the parameters before the pass.
    """
    before = parameters.batch()
    after, _, log_likelihood = _pass(Rows(rows), sizes, before, _inverses(before.covariances))
    return after.take(0), log_likelihood[0]


def _pass(
    rows: Rows, sizes: IntArray, before: Parameters, inverses: FloatArray
) -> tuple[Parameters, FloatArray, FloatArray]:
    """Return parameters of R runs after a pass, inverses of their covariances, log-likelihoods (R, L)."""
    weights, means, covariances = map(np.empty_like, (before.weights, before.means, before.covariances))
    later_inverses, log_likelihood = np.empty_like(inverses), np.empty((len(inverses), len(sizes)))
    firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # of the rows of each class
    with np.errstate(all="ignore"):
        scaled_weights = before.weights / _normalisers(before)[:, :, None]
        for first in range(0, len(inverses), _RUNS_AT_ONCE):
            some = slice(first, first + _RUNS_AT_ONCE)
            joint = _densities(rows, before.means[some], inverses[some])
            joint *= np.repeat(scaled_weights[some], sizes, axis=2)
            evidence = joint.sum(axis=1)
            log_likelihood[some] = np.add.reduceat(np.log(evidence), firsts, axis=1)  # (LL)
            joint /= evidence[:, None]  # (E)
            mass_in_class = np.add.reduceat(joint, firsts, axis=2)
            weights[some] = mass_in_class / sizes  # (M1)
            mass = mass_in_class.sum(axis=2)
            joint[joint < _NEGLIGIBLE] = 0.0
            mean, covariance = rows.moments(joint, mass)  # (M2), (M3)
            inverse = _inverses(covariance)
            narrow = rows.narrow(mean, inverse)
            if narrow.any():
                mean[narrow], covariance[narrow] = rows.narrow_moments(joint[narrow], mass[narrow])
                inverse[narrow] = _inverses(covariance[narrow])
            means[some], covariances[some], later_inverses[some] = mean, covariance, inverse
    return Parameters(weights, means, covariances), later_inverses, log_likelihood


def published_likelihoods(rows: Rows, parameters: Parameters) -> NDArray[np.complexfloating | np.float64]:
    """Return p(x_n | class j), shape (L, N), in the published arithmetic.

    As in Matlab, the square root of a negative determinant, which only a failed run has, is imaginary, and so
    are the densities of its kernel.
    """
    determinants = np.linalg.det(parameters.covariances).astype(complex)
    normalisers = np.sqrt((2.0 * math.pi) ** len(rows.values) * determinants)
    if not normalisers.imag.any():
        normalisers = normalisers.real
    densities = _densities(rows, parameters.means, _inverses(parameters.covariances))
    return (parameters.weights / normalisers[:, None]).T @ densities


def failure_reason(before: Parameters, rows: Rows, sizes: IntArray) -> Reason:
    """Return why a pass over rows of classes of `sizes` (L,) failed.

    A failure comes from kernels whose density is not finite at some row. Their covariance is singular up to
    rounding, for one of two reasons: a feature is constant among the rows of the kernel, or the kernel has no
    more rows than features. Any other cause is called "overflow".
    """
    with np.errstate(all="ignore"):
        densities = _densities(rows, before.means, _inverses(before.covariances))
        densities /= _normalisers(before)[:, None]
    failing = ~np.isfinite(densities).all(axis=1)
    few = before.weights @ sizes <= len(rows.values) + _HALF_A_ROW
    variances = np.diagonal(before.covariances, axis1=1, axis2=2)
    constant = (variances <= _CONSTANT * rows.values.var(axis=1)).any(axis=1)
    if np.any(failing & constant & ~few):
        return "constant feature"
    if np.any(failing & few):
        return "too few rows"
    return "overflow"


def _normalisers(parameters: Parameters) -> FloatArray:
    """Return √((2π)^M |P_k|), shape (..., K)."""
    n_features = parameters.means.shape[-1]
    return np.sqrt((2.0 * math.pi) ** n_features * np.linalg.det(parameters.covariances))


def _densities(rows: Rows, means: FloatArray, inverses: FloatArray) -> FloatArray:
    """Return exp(−(x_n − μ_k)ᵀ P_k⁻¹ (x_n − μ_k) / 2), shape (..., K, N)."""
    exponents = rows.distances(means, inverses)
    exponents *= -0.5
    return exponentials(exponents)


def _inverses(covariances: FloatArray) -> FloatArray:
    """Return the inverses of matrices (..., M, M); a singular one has infinite entries, as in Matlab."""
    try:
        return np.asarray(np.linalg.inv(covariances), dtype=np.float64)
    except np.linalg.LinAlgError:
        if covariances.ndim == 2:
            return np.full_like(covariances, np.inf)
        return np.stack([_inverses(covariance) for covariance in covariances])
