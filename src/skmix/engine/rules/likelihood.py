"""The steps of a pass that never see rows: `prepare` the parameters, and `maximise` statistics into the next.

Equation labels are those of ``docs/notation.md``: (M1) weights, (M2) means, (M3) covariances. The step
between them, (E), is `collect` in ``collecting.py`` for rows in memory, `DeviceRows` for those on a device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..compute.arrays import constant, namespace, occurs, pick, to_numpy
from ..covariances import Structure
from ..model import BoolArray, Factor, FloatArray, Parameters, Regulariser, Statistics
from .annihilation import annihilate

# A kernel or weight whose mass is below this has only responsibilities of that floor: it is retired.
_EMPTY = 1e-130
_TINY = float(np.finfo(np.float64).tiny)
# Sums of terms this much larger than their result keep an accuracy of about 1e-9.
_LARGEST_CANCELLATION = 2.0**24


@dataclass(frozen=True)
class Prepared:
    """Parameters of R starts, expanded into what the rows' terms are multiplied with.

    Attributes
    ----------
    structure : Structure
        Covariance structure.
    coefficients : ndarray of shape (R, K, M + S + L)
        Coefficients of x, of the second-order terms and of the class indicators in log π_kj N(x; μ_k, P_k).
    log_weights : ndarray of shape (R, K, L)
        Logarithms of the weights.
    constants : ndarray of shape (R, K)
        Log-density at the mean, less the level.
    levels : ndarray of shape (R,)
        Log-density of the start's highest peak, subtracted from all so that no exponential overflows.
    means : ndarray of shape (R, K, M)
        Kernel means.
    factor : Factor
        Whiteners of the covariances.
    delicate : ndarray of shape (R, K)
        Kernels whose expanded log-density would cancel too many digits: computed from differences.
    recentred : ndarray of shape (R, K)
        Kernels whose moments are taken about `origins` rather than about zero.
    origins : ndarray of shape (R, K, M)
        The origins of the moments, zero where not recentred.
    projections : ndarray of shape (R, K, q, M) or None
        V of a structure whose log-densities have a term ½‖Vx‖² besides the linear ones.
    """

    structure: Structure
    coefficients: FloatArray
    log_weights: FloatArray
    constants: FloatArray
    levels: FloatArray
    means: FloatArray
    factor: Factor
    delicate: BoolArray
    recentred: BoolArray
    origins: FloatArray
    projections: FloatArray | None = None

    def take(self, index: Any) -> Prepared:
        """Return the starts that `index` selects."""
        return replace(
            self,
            coefficients=pick(self.coefficients, index),
            log_weights=pick(self.log_weights, index),
            constants=pick(self.constants, index),
            levels=pick(self.levels, index),
            means=pick(self.means, index),
            factor=self.factor.take(index),
            delicate=pick(self.delicate, index),
            recentred=pick(self.recentred, index),
            origins=pick(self.origins, index),
            projections=None if self.projections is None else pick(self.projections, index),
        )

    def recentre(self, kernels: BoolArray, origins: FloatArray) -> Prepared:
        """Return a copy that takes the moments of the chosen kernels (R, K) about `origins` (R, K, M)."""
        return replace(
            self,
            recentred=self.recentred | kernels,
            origins=namespace(origins).where(kernels[..., None], origins, self.origins),
        )

    @cached_property
    def delicate_kernels(self) -> list[tuple[int, int]]:
        """Start and kernel of each delicate kernel."""
        return [(int(r), int(k)) for r, k in np.argwhere(to_numpy(self.delicate))]

    @cached_property
    def recentred_kernels(self) -> list[tuple[int, int]]:
        """Start and kernel of each kernel whose moments are taken about an origin of its own."""
        return [(int(r), int(k)) for r, k in np.argwhere(to_numpy(self.recentred))]

    def coefficients_for(self, classes: slice) -> FloatArray:
        """Return the coefficients (R, K, M + S + C) with the indicators of C consecutive classes alone."""
        n_classes = self.log_weights.shape[-1]
        if classes == slice(0, n_classes):
            return self.coefficients
        n_shared = self.coefficients.shape[-1] - n_classes
        own = self.coefficients[..., n_shared + classes.start : n_shared + classes.stop]
        return namespace(own).concat([self.coefficients[..., :n_shared], own], axis=-1)


def prepare(
    parameters: Parameters, structure: Structure, bound: FloatArray, factor: Factor | None = None
) -> Prepared:
    """Expand the parameters of R starts.

    Parameters
    ----------
    parameters : Parameters
        In the coordinates of the frame.
    structure : Structure
        Covariance structure.
    bound : ndarray of shape (M,)
        Largest magnitude of each feature, where the parameters are.
    factor : Factor, optional
        Factor of the covariances, when known.
    """
    weights, means = parameters.weights, parameters.means
    xp, n_features = namespace(means), means.shape[-1]
    if factor is None:
        factor = structure.factor(parameters.covariances, n_features)
    quadratic = structure.quadratic(factor)
    linear = structure.precision_times(factor, means)
    at_zero = -0.5 * xp.sum(linear * means, axis=-1)
    constants = -0.5 * (factor.log_determinant + n_features * math.log(2 * math.pi))
    constants = xp.broadcast_to(constants, at_zero.shape)
    levels = xp.max(constants, axis=1)
    constants = constants - levels[:, None]
    with np.errstate(divide="ignore"):
        log_weights = xp.log(weights)

    first, second = (constant(term_features, structure, n_features, which, example=means) for which in (0, 1))
    largest = xp.take(bound, first) * xp.take(bound, second)
    magnitude = xp.abs(quadratic) @ largest + xp.abs(linear) @ bound + xp.abs(at_zero)
    delicate = ~(magnitude <= structure.largest_cancellation)

    # The −inf of a weight of zero would turn into NaN in a matrix product.
    at_origin = (at_zero + constants)[..., None] + xp.where(weights > 0, log_weights, -1e30)
    quadratic = xp.broadcast_to(quadratic, (*at_zero.shape, quadratic.shape[-1]))
    coefficients = xp.concat([linear, quadratic, at_origin], axis=-1)
    coefficients = xp.where(delicate[..., None], 0.0, coefficients)
    origins = xp.where(delicate[..., None], means, 0.0)
    return Prepared(
        structure,
        coefficients,
        log_weights,
        constants,
        levels,
        means,
        factor,
        delicate,
        delicate,
        origins,
        structure.projections(factor),
    )


def term_features(structure: Structure, n_features: int, which: int) -> np.ndarray:
    """Return the first or second feature (S,) of each second-order term."""
    return structure.pairs(n_features)[which]


def maximise(
    statistics: Statistics,
    origins: FloatArray,
    previous: Parameters,
    structure: Structure,
    regulariser: Regulariser,
) -> tuple[Parameters, Factor, BoolArray]:
    """Return new parameters of R starts from their statistics.

    Parameters
    ----------
    statistics : Statistics
        Sums over all rows.
    origins : ndarray of shape (R, K, M)
        What their moments are taken about.
    previous : Parameters
        The parameters they were collected with: what a kernel without rows keeps.
    structure : Structure
        Covariance structure.
    regulariser : Regulariser
        Floor, ridge and priors.

    Returns
    -------
    parameters : Parameters
        The next parameters.
    factor : Factor
        Of the new covariances; a start that is not usable there has degenerated.
    inaccurate : ndarray of shape (R, K)
        Kernels so narrow, and so far from the origin of their moments, that the covariance lost digits:
        collect again with moments about their new means.
    """
    xp = namespace(statistics.mass)
    mass = xp.sum(statistics.mass, axis=-1)
    alive = mass > _EMPTY
    safe_mass = xp.where(alive, mass, _TINY)
    offset = xp.where(alive[..., None], statistics.first / safe_mass[..., None], 0.0)
    means = xp.where(alive[..., None], origins + offset, previous.means)  # (M2)
    covariances, factor = structure.update(  # (M3)
        safe_mass,
        offset,
        xp.where(alive[..., None], statistics.second, 0.0),
        regulariser,
        previous.covariances,
    )
    if occurs(~alive):
        covariances = structure.keep(alive, covariances, previous.covariances)
        factor = structure.factor(covariances, means.shape[-1])
    class_mass, prior = assign_unlabelled(statistics.mass, previous)
    class_mass = xp.where(class_mass > _EMPTY, class_mass, 0.0) + (regulariser.weight_prior - 1.0)
    if regulariser.annihilation:
        class_mass = annihilate(class_mass, regulariser.annihilation)
    sizes = xp.sum(class_mass, axis=1, keepdims=True)
    # A class that no row of a stream has had yet keeps its weights.
    weights = xp.where(sizes > 0, class_mass / xp.where(sizes > 0, sizes, 1.0), previous.weights)  # (M1)
    inaccurate = alive & lost_digits(offset, covariances, structure)
    return Parameters(weights, means, covariances, prior), factor, inaccurate


def lost_digits(offset: FloatArray, covariances: FloatArray, structure: Structure) -> BoolArray:
    """Return kernels (R, K) that are too narrow for the offset (R, K, M) of their means from the origin."""
    xp, variances = namespace(offset), structure.variances(covariances)
    variances = xp.where(variances > _TINY, variances, _TINY)
    found: BoolArray = xp.any(offset**2 > _LARGEST_CANCELLATION * variances, axis=-1)
    return found


def with_unlabelled(parameters: Parameters) -> Parameters:
    """Return parameters whose weights (R, K, L + 1) have a last column for rows without a label.

    Such a row comes from kernel k with probability Σ_j Pr(class j) π_kj, whatever its class may be.
    """
    if parameters.class_prior is None:
        return parameters
    mixed = parameters.weights @ parameters.class_prior[..., None]
    xp = namespace(mixed)
    return replace(parameters, weights=xp.concat([parameters.weights, mixed], axis=-1))


def assign_unlabelled(mass: FloatArray, previous: Parameters) -> tuple[FloatArray, FloatArray | None]:
    """Divide the mass of rows without a label among the classes, by the E-step over (class, kernel).

    Parameters
    ----------
    mass : ndarray of shape (R, K, L + 1), or (R, K, L) when every row has a label
        Responsibility masses.
    previous : Parameters
        The parameters they were collected with.

    Returns
    -------
    mass : ndarray of shape (R, K, L)
        Mass of each class.
    prior : ndarray of shape (R, L) or None
        Share of each class in all mass; None when every row has a label.
    """
    if previous.class_prior is None:
        return mass, None
    xp = namespace(mass)
    joint = previous.weights * previous.class_prior[:, None, :]
    mixed = xp.sum(joint, axis=-1, keepdims=True)
    share = joint / xp.where(mixed > 0, mixed, 1.0)
    labelled = mass[..., :-1] + mass[..., -1:] * share
    sizes = xp.sum(labelled, axis=1)
    return labelled, sizes / xp.sum(sizes, axis=1, keepdims=True)


def log_prior(
    parameters: Parameters, factor: Factor, structure: Structure, regulariser: Regulariser
) -> FloatArray:
    """Return the logarithm (R,) of the priors on covariances and weights, up to a constant, on the host."""
    total = np.zeros(parameters.means.shape[0])
    if regulariser.prior_rows:
        total += to_numpy(structure.log_prior(factor, regulariser))
    if regulariser.weight_prior != 1.0:
        xp = namespace(parameters.weights)
        total += (regulariser.weight_prior - 1.0) * to_numpy(xp.sum(xp.log(parameters.weights), axis=(1, 2)))
    return total
