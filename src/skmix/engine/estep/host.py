"""Passes over complete rows in memory, by the compiled core or, where that is missing, by the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..._core import core
from ..exponentials import EMPTY_MASS
from ..kernels import StudentT
from ..numbers import LARGEST_CANCELLATION
from ..records import Climbed, Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics
from ..structures import Structure
from ..structures.factors import INFLATED, SINGULAR
from ..threads import Workers
from . import reference
from .inputs import FARTHEST_OF_PRODUCTS, Kernels, Rows, in_batches, operations
from .terms import likelihood_alone

# Most numbers in the sums of the starts that the core takes together: 256 MiB.
_MOST_SUMS = 1 << 25
# Most blocks into which the core cuts rows; each has sums of its own.
_MOST_BLOCKS = 256
# Fewest rows of such a block.
_SMALLEST_BLOCK = 2048


def expect(rows: Rows, kernels: Kernels, pool: Workers, *, with_moments: bool = True) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about the kernels' origins."""
    if core() is None:
        return reference.expect(rows, kernels, with_moments=with_moments)
    _, n_kernels, n_features = kernels.means.shape
    n_blocks = min(_MOST_BLOCKS, 1 + len(rows.X) // _SMALLEST_BLOCK)
    n_sums = n_blocks * n_kernels * (kernels.log_weights.shape[-1] + (n_features + 1) ** 2)
    together = max(1, _MOST_SUMS // n_sums)

    def of_starts(_: IntArray, some: Kernels) -> Statistics:
        return _expect(rows, some, pool, with_moments)

    return in_batches(kernels, kernels.by_products, together, of_starts)


def _expect(rows: Rows, kernels: Kernels, pool: Workers, with_moments: bool) -> Statistics:
    """Do the E-step of starts that are all by products of matrices, or all by differences."""
    structure, tail = kernels.structure, kernels.tail
    n_starts, n_kernels, n_features = kernels.means.shape
    origins = np.ascontiguousarray(kernels.origins) if with_moments else None
    job = core().e_step(rows.for_core, _core_kernels(kernels), origins)
    n_operations = n_starts * operations(len(rows.X), n_kernels, n_features)
    log_likelihood, mass, first, second, precisions, log_ratios = pool.finish(job, n_operations)
    if not with_moments:
        return likelihood_alone(log_likelihood, kernels)
    if structure.shared and kernels.by_products[0]:
        # Only the sum over kernels has a meaning: the scatter of the rows, which never changes.
        second = np.zeros((n_starts, n_kernels, structure.n_second(n_features)))
        second[:, 0] = structure.pack(rows.scatter)
    if not isinstance(tail, StudentT):
        return Statistics(log_likelihood, mass, first, second)
    # The core sums log(1 + d² / ν). E[log u] of a row is its value at the mean less that.
    at_mean = np.log1p(n_features / tail.degrees) + tail.mean_logs(n_features)[..., 0]
    of_tail = precisions, mass.sum(axis=-1) * at_mean - log_ratios
    return Statistics(log_likelihood, mass, first, second, of_tail)


def climb(
    rows: Rows,
    parameters: Parameters,
    factor: Factor,
    structure: Structure,
    regulariser: Regulariser,
    stopping: dict[str, Any],
) -> Climbed:
    """Make passes of EM from one start (R = 1) with kernels that do not share a covariance, in this thread.

    They end before one that meets a floor, an empty kernel, lost digits or a lower objective.
    """
    (n_kernels, n_features), triangular = parameters.means.shape[1:], structure.triangular
    shape = (n_kernels, n_features, n_features) if triangular else (n_kernels, n_features)
    covariances = structure.by_kernel(parameters.covariances)[0]
    arrays = parameters.weights[0], parameters.means[0], np.broadcast_to(covariances, shape)
    n_passes, is_done, likelihoods, objectives, *ended = core().climb(
        rows.for_core,
        *map(
            np.ascontiguousarray, (*arrays, factor.whitener[0], factor.log_determinant[0], regulariser.floor)
        ),
        ridge=regulariser.ridge,
        prior_rows=regulariser.prior_rows,
        prior_covariance=np.ascontiguousarray(regulariser.prior_covariance),
        weight_prior=regulariser.weight_prior,
        is_isotropic=structure.isotropic,
        **stopping,
        least_mass=EMPTY_MASS,
        singular=SINGULAR,
        inflated=INFLATED,
        cancellation=LARGEST_CANCELLATION["float64"],
        farthest=FARTHEST_OF_PRODUCTS,
    )
    weights, means, covariances, whitener, log_determinant = (array[None] for array in ended)
    if structure.isotropic:
        covariances = covariances[..., 0]
    following = replace(parameters, weights=weights, means=means, covariances=covariances)
    next_factor = Factor(whitener, log_determinant, factor.usable)
    return Climbed(following, next_factor, likelihoods[:n_passes], objectives[:n_passes], is_done)


def log_densities(rows: Rows, kernels: Kernels, weights: FloatArray | None, pool: Workers) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), under one start, or their mixtures (N, L) by weights (K, L).

    The result for a row does not depend on the other rows, to the last bit.
    """
    if core() is None:
        return reference.log_densities(rows, kernels, weights)
    # The core would add the weights of the class.
    unweighted = replace(kernels, log_weights=np.zeros((1, kernels.means.shape[1], 1)))
    weights = None if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    job = core().log_densities(rows.for_core, _core_kernels(unweighted), weights)
    (densities,) = pool.finish(job, operations(len(rows.X), *kernels.means.shape[1:]))
    return densities


def lloyd(rows: Rows, pool: Workers, centres: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return sums (K, M + 1) over the rows nearest to each centre, and the nearest centre (N,) of each row.

    The sums are of the rows and of their weights. Of equally near centres, the first one has the row.
    """
    if core() is None:
        return reference.lloyd(rows, centres)
    job = core().lloyd(rows.for_core, np.ascontiguousarray(centres))
    sums, nearest = pool.finish(job, rows.X.size * len(centres))
    return sums, nearest


def _core_kernels(kernels: Kernels) -> Any:
    """Return kernels as the core takes them."""
    structure, whitener = kernels.structure, kernels.factor.whitener
    if not structure.triangular:
        whitener = np.broadcast_to(whitener, kernels.means.shape)
    arrays = kernels.means, whitener, kernels.constants, kernels.log_weights
    degrees = np.ascontiguousarray(kernels.tail.degrees) if isinstance(kernels.tail, StudentT) else None
    by_products = bool(kernels.by_products[0])
    return core().Kernels(by_products, structure.isotropic, *map(np.ascontiguousarray, arrays), degrees)
