"""Many runs of the published algorithm: its arithmetic, faster than the oracle, and why a run failed.

`skmix.engine.published` states the algorithm and is what this module is tested against. Here all kernels of a
run are worked on at once, a run that has failed ends there instead of carrying its NaN on to the last pass,
and the parameters that entered the failing pass are kept: they say what went wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skmix.engine.model import Parameters

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Reason = Literal["", "constant feature", "too few rows", "overflow"]
REASONS: tuple[Reason, ...] = ("constant feature", "too few rows", "overflow")

# The paper's: a class latches when its log-likelihood moves by less than this between passes.
TOLERANCE = 0.1
# A feature counts as constant within a kernel when its variance there is below this share of its overall one.
_CONSTANT = 1e-8
# Half a row on top of the number of features: responsibilities rarely add up to a whole number.
_HALF_A_ROW = 0.5


@dataclass(frozen=True)
class PublishedRun:
    """How one run of the published algorithm ended.

    Attributes
    ----------
    parameters : Parameters
        Weights (K, L), means (K, M) and covariances (K, M, M) leaving the last pass; of a failed run those
        that entered the failing pass.
    n_iter : int
        Passes done, the failing one included.
    converged : bool
        Whether every class latched.
    failing_pass : int or None
        The pass, counted from 1, that left a NaN or an infinity.
    reason : str
        Why, empty for a run that stayed finite.
    log_likelihood : float
        Of all rows under the parameters entering the last pass; NaN for a failed run.
    """

    parameters: Parameters
    n_iter: int
    converged: bool
    failing_pass: int | None
    reason: Reason
    log_likelihood: float


def published_runs(
    X: FloatArray, classes: IntArray, starts: Parameters, *, max_iter: int, tolerance: float = TOLERANCE
) -> list[PublishedRun]:
    """Run the published algorithm from R starts, each until its classes have latched or it fails.

    A run's arrays fill a core's cache, so runs follow one another; the inside of a pass is vectorised.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows.
    classes : ndarray of shape (N,)
        Class of each row, 0 … L − 1.
    starts : Parameters
        Starting points with a leading axis R.
    max_iter : int
        Most passes.
    tolerance : float, default=0.1
        Change of a class's log-likelihood below which the class latches.

    Returns
    -------
    list of R PublishedRun
        In the order of the starts.
    """
    order = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes, minlength=starts.weights.shape[-1])
    rows = np.ascontiguousarray(X[order].T)
    return [_one_run(rows, sizes, starts.take(r), max_iter, tolerance) for r in range(len(starts.means))]


def _one_run(
    rows: FloatArray, sizes: IntArray, parameters: Parameters, max_iter: int, tolerance: float
) -> PublishedRun:
    """Run from one start on rows (M, N) ordered by class, `sizes` (L,) of each."""
    latched = np.zeros(len(sizes), dtype=bool)
    previous = np.full(len(sizes), np.nan)
    total = math.nan
    number = 0
    for number in range(1, max_iter + 1):
        with np.errstate(all="ignore"):
            following, log_likelihood = published_pass(rows, sizes, parameters)
            latched |= np.abs(log_likelihood - previous) < tolerance
        arrays = (following.weights, following.means, following.covariances, log_likelihood)
        if not all(np.isfinite(array).all() for array in arrays):
            reason = failure_reason(parameters, rows, sizes)
            return PublishedRun(parameters, number, False, number, reason, math.nan)
        parameters, previous, total = following, log_likelihood, float(log_likelihood.sum())
        if latched.all():
            break
    return PublishedRun(parameters, number, bool(latched.all()), None, "", total)


def published_pass(
    rows: FloatArray, sizes: IntArray, parameters: Parameters
) -> tuple[Parameters, FloatArray]:
    """Do one pass of the published algorithm, in the linear domain and without safeguards.

    Parameters
    ----------
    rows : ndarray of shape (M, N)
        Rows ordered by class, feature by feature.
    sizes : ndarray of shape (L,)
        Number of rows of each class.
    parameters : Parameters
        Weights (K, L), means (K, M), covariances (K, M, M) entering the pass.

    Returns
    -------
    parameters : Parameters
        Those leaving the pass; possibly not finite.
    log_likelihood : ndarray of shape (L,)
        Of each class under the parameters that entered.
    """
    bounds = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    joint = published_densities(rows, parameters)
    joint *= np.repeat(parameters.weights, sizes, axis=1)  # (E) numerator, (K, N)
    evidence = joint.sum(axis=0)
    responsibilities = np.divide(joint, evidence, out=joint)  # (E)
    log_likelihood = np.add.reduceat(np.log(evidence), bounds)  # (LL)
    mass_in_class = np.add.reduceat(responsibilities, bounds, axis=1)
    mass = mass_in_class.sum(axis=1)
    means = (responsibilities @ rows.T) / mass[:, None]  # (M2)
    deviations = rows - means[:, :, None]  # (M3): about the new means, (K, M, N)
    weighted = responsibilities[:, None, :] * deviations
    covariances = weighted @ deviations.transpose(0, 2, 1) / mass[:, None, None]  # (M3)
    return Parameters(mass_in_class / sizes, means, covariances), log_likelihood  # (M1)


def published_densities(rows: FloatArray, parameters: Parameters) -> FloatArray:
    """Return N(x_n; μ_k, P_k) of rows (M, N), shape (K, N), in the linear domain, finite or not."""
    n_features = len(rows)
    exponentials = _exponentials(rows, parameters)
    normalisers = np.sqrt((2.0 * math.pi) ** n_features * np.linalg.det(parameters.covariances))
    exponentials /= normalisers[:, None]
    return exponentials


def published_likelihoods(
    rows: FloatArray, parameters: Parameters
) -> NDArray[np.complexfloating | np.float64]:
    """Return p(x_n | class j) of rows (M, n) in the published arithmetic, shape (L, n), finite or not.

    The square root of a negative determinant, which only a run that has failed has, is imaginary, as it is in
    Matlab; so then are its kernel's densities.
    """
    normalisers = np.sqrt(
        (2.0 * math.pi) ** len(rows) * np.linalg.det(parameters.covariances).astype(complex)
    )
    if not normalisers.imag.any():
        normalisers = normalisers.real
    return parameters.weights.T @ (_exponentials(rows, parameters) / normalisers[:, None])


def _exponentials(rows: FloatArray, parameters: Parameters) -> FloatArray:
    """Return exp(−(x_n − μ_k)ᵀ P_k⁻¹ (x_n − μ_k) / 2) of rows (M, N), shape (K, N)."""
    deviations = rows - parameters.means[:, :, None]
    projected = inverses(parameters.covariances) @ deviations
    projected *= deviations
    quadratic: FloatArray = projected.sum(axis=1)
    quadratic *= -0.5
    return np.exp(quadratic, out=quadratic)


def inverses(covariances: FloatArray) -> FloatArray:
    """Return the inverses of matrices (K, M, M); all infinite, as in Matlab, where there is none."""
    try:
        return np.asarray(np.linalg.inv(covariances), dtype=np.float64)
    except np.linalg.LinAlgError:
        pass
    result = np.full_like(covariances, np.inf)
    for k, covariance in enumerate(covariances):
        try:
            result[k] = np.linalg.inv(covariance)
        except np.linalg.LinAlgError:
            continue
    return result


def failure_reason(entering: Parameters, rows: FloatArray, sizes: IntArray) -> Reason:
    """Say why a pass could not be done.

    The kernels to blame are those whose density is not finite at some row. Their covariance has become
    singular up to rounding, and its roots are two: a feature that is constant among the kernel's rows, or no
    more rows than features. What is left is "overflow": any other method to a number that is not finite.

    Parameters
    ----------
    entering : Parameters
        Weights (K, L), means (K, M), covariances (K, M, M) that entered the failing pass.
    rows : ndarray of shape (M, N)
        Rows, feature by feature.
    sizes : ndarray of shape (L,)
        Number of rows of each class.

    Returns
    -------
    str
        One of `REASONS`.
    """
    with np.errstate(all="ignore"):
        guilty = ~np.isfinite(published_densities(rows, entering)).all(axis=1)
    rows_of_kernel = entering.weights @ sizes
    few = rows_of_kernel <= len(rows) + _HALF_A_ROW
    variances = np.diagonal(entering.covariances, axis1=1, axis2=2)
    constant = (variances <= _CONSTANT * rows.var(axis=1)).any(axis=1)
    if np.any(guilty & constant & ~few):
        return "constant feature"
    if np.any(guilty & few):
        return "too few rows"
    return "overflow"
