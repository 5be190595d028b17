"""One pass of EM: `prepare` the parameters, `collect` statistics of rows, `maximise` them into parameters.

Equation labels are those of ``docs/notation.md``: (E) responsibilities, (M1) weights, (M2) means,
(M3) covariances. Only `collect` sees rows, block by block; only `maximise` makes parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .annihilation import annihilate
from .backends.arrays import constant, namespace, pick, to_numpy
from .backends.threads import Workspace
from .frame import turn
from .kernels import Structure
from .rows import Part, Plan, Rows
from .types import BoolArray, Factor, FloatArray, Parameters, Regulariser, Statistics

# Subnormal numbers make the next matrix product 5 to 10 times slower: log-densities, relative to the highest
# peak of their start, are raised to this.
_LOWEST_LOG = -600.0
# A row whose density relative to that peak is below this has its terms divided by the largest of them first.
_SMALLEST_TOTAL = 1e-120
# A kernel or weight whose mass is below this has only responsibilities of that floor: it is retired.
_EMPTY = 1e-130
_TINY = float(np.finfo(np.float64).tiny)
# Sums of terms this much larger than their result keep an accuracy of about 1e-9.
_LARGEST_CANCELLATION = 2.0**24
# With fewer than this share of responsibilities above zero, kernel by kernel is the faster route.
_SPARSE = 0.2
_FEWEST_FEATURES_FOR_SPARSE = 16
_NEGLIGIBLE = 1e-22


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
    delicate = ~(magnitude <= _LARGEST_CANCELLATION)

    # The −inf of a weight of zero would turn into NaN in a matrix product.
    at_origin = (at_zero + constants)[..., None] + xp.where(weights > 0, log_weights, -1e30)
    quadratic = xp.broadcast_to(quadratic, (*at_zero.shape, quadratic.shape[-1]))
    coefficients = xp.concat([linear, quadratic, at_origin], axis=-1)
    coefficients = xp.where(delicate[..., None], 0.0, coefficients)
    origins = xp.where(delicate[..., None], means, 0.0)
    return Prepared(
        structure, coefficients, log_weights, constants, levels, means, factor, delicate, delicate, origins
    )


def term_features(structure: Structure, n_features: int, which: int) -> np.ndarray:
    """Return the first or second feature (S,) of each second-order term."""
    return structure.pairs(n_features)[which]


def log_joint(part: Part, prepared: Prepared, out: FloatArray) -> None:
    """Write log π_{k,c(n)} N(x_n; μ_k, P_k), less the start's level, into `out` (R, K, n)."""
    structure = prepared.structure
    multiply(prepared.coefficients_for(part.classes), part.terms.matrix, out, part.tile)
    for r, k in prepared.delicate_kernels:
        difference = part.x - prepared.means[r, k][:, None]
        distances = structure.distances(structure.whitener_of(prepared.factor, r, k), difference)
        np.multiply(distances, -0.5, out=out[r, k])
        out[r, k] += (prepared.constants[r, k] + prepared.log_weights[r, k])[part.codes]


def multiply(stack: FloatArray, matrix: FloatArray, out: FloatArray, tile: int) -> None:
    """Multiply each start's matrix of a stack (R, K, a) by a common one (a, n) into `out` (R, K, n).

    One product for each start and `tile` columns, so that a start's bits do not depend on the others in the
    batch and each product has a shape that BLAS is quick with.
    """
    n_starts, n_kernels, n_rows = out.shape
    whole = n_rows - n_rows % tile
    if n_starts == 1 and n_rows <= tile:
        # np.matmul keeps the interpreter's lock when its result is small; np.dot never does.
        np.dot(stack[0], matrix, out=out[0])
    elif n_rows <= tile:
        np.matmul(stack, matrix, out=out)
    else:
        tiles = matrix[:, :whole].reshape(len(matrix), -1, tile).transpose(1, 0, 2)
        into = out[:, :, :whole].reshape(n_starts, n_kernels, -1, tile).transpose(0, 2, 1, 3)
        np.matmul(stack[:, None], tiles, out=into)
        if whole < n_rows:
            np.matmul(stack, matrix[:, whole:], out=out[:, :, whole:])


def multiply_back(values: FloatArray, terms: FloatArray, tile: int, workspace: Workspace) -> FloatArray:
    """Return the products (R, K, a) of a stack (R, K, n) with a common matrix (n, a), summed tile by tile."""
    n_starts, n_kernels, n_rows = values.shape
    n_tiles, rest = divmod(n_rows, tile)
    product = workspace.array("product", (n_starts, n_tiles + (rest > 0), n_kernels, terms.shape[1]))
    if n_starts == 1 and n_rows <= tile:
        np.dot(values[0], terms, out=product[0, 0])
    else:
        whole = n_tiles * tile
        left = values[:, :, :whole].reshape(n_starts, n_kernels, n_tiles, tile).transpose(0, 2, 1, 3)
        right = terms[:whole].reshape(n_tiles, tile, terms.shape[1])
        np.matmul(left, right, out=product[:, :n_tiles])
        if rest:
            np.matmul(values[:, :, whole:], terms[whole:], out=product[:, n_tiles])
    total: FloatArray = product[:, 0] if product.shape[1] == 1 else product.sum(axis=1)
    return total


def exponentiate(values: FloatArray, total: FloatArray) -> BoolArray:
    """Turn log-joints (R, K, n) into joint densities in place, and sum them into `total` (R, n).

    Returns
    -------
    ndarray of shape (R,)
        False for a start with a row of so low a density that its terms lose digits; they are then spoilt.
    """
    np.maximum(values, _LOWEST_LOG, out=values)
    np.exp(values, out=values)
    np.add.reduce(values, axis=1, out=total)
    good: BoolArray = total.min(axis=1) > _SMALLEST_TOTAL
    return good


def normalise(
    part: Part, prepared: Prepared, values: FloatArray, total: FloatArray, log_sums: FloatArray
) -> None:
    """Fill `values` (R, K, n) with the part's joint densities, each row's up to a factor of its own.

    Their sums over kernels go to `total` (R, n), and log p(x_n | c_n) less the level to `log_sums` (R, n).
    """
    log_joint(part, prepared, values)
    good = exponentiate(values, total)
    np.log(total, out=log_sums)
    for r in np.flatnonzero(~good):
        one = slice(r, r + 1)
        log_joint(part, prepared.take(one), values[one])
        largest = values[one].max(axis=1)
        values[one] -= largest[:, None]
        exponentiate(values[one], total[one])
        np.add(np.log(total[one]), largest, out=log_sums[one])


def collect(
    rows: Rows,
    start: int,
    stop: int,
    prepared: Prepared,
    workspace: Workspace,
    *,
    cut: Plan,
    moments: bool = True,
) -> Statistics:
    """Return the statistics of a block of rows under R starts.

    Parameters
    ----------
    rows : Rows
        The data.
    start, stop : int
        First and last-plus-one row of the block.
    prepared : Prepared
        The starts' parameters.
    workspace : Workspace
        Reusable memory.
    cut : Plan
        How rows are cut into parts and tiles.
    moments : bool
        False when only the log-likelihood is wanted; the rest is then zero.
    """
    x = rows.block(start, stop, workspace)
    n_features, n_rows = x.shape
    n_starts, n_kernels, n_coefficients = prepared.coefficients.shape
    n_classes = prepared.log_weights.shape[-1]
    n_shared = n_coefficients - n_classes
    pooled = np.zeros((n_starts, n_kernels, n_coefficients))
    log_sums = workspace.array("log_sums", (n_starts, n_rows))
    # Responsibilities of the whole block, for kernels whose moments take a route of their own.
    kept = workspace.array("kept", (n_starts, n_kernels, n_rows))
    own_route = prepared.recentred
    for part in rows.parts(x, start, stop, cut, workspace):
        n = part.stop - part.start
        values = workspace.array("values", (n_starts, n_kernels, n))
        total = workspace.array("total", (n_starts, n))
        normalise(part, prepared, values, total, log_sums[:, part.start : part.stop])
        if not moments:
            continue
        np.divide(1.0 if part.weights is None else part.weights, total, out=total)
        values *= total[:, None]  # (E)
        if part.start == 0:
            if n_features >= _FEWEST_FEATURES_FOR_SPARSE:
                shares = np.count_nonzero(values > _NEGLIGIBLE, axis=(1, 2)) / (n_kernels * n)
                own_route = own_route | (shares < _SPARSE)[:, None]
            keep = bool(own_route.any())
            sparse = np.all(own_route, axis=1)
        if keep:
            kept[:, :, part.start : part.stop] = values
        add_sums(part, values, sparse, n_shared, pooled, workspace)
    first = pooled[..., :n_features].copy()
    second = pooled[..., n_features:n_shared].copy()
    if moments and keep:
        # Whole rows are far quicker to pick than columns.
        by_row = workspace.array("by_row", (n_rows, n_features))
        turn(x, by_row)
        first[own_route], second[own_route] = separate_moments(
            by_row, kept[own_route], prepared.origins[own_route], prepared.structure
        )
    log_likelihood = np.zeros((n_starts, n_classes))
    weights = rows.weights(start, stop)
    for c, i, j in rows.segments(start, stop):
        if weights is None:
            log_likelihood[:, c] = log_sums[:, i:j].sum(axis=1) + (j - i) * prepared.levels
        else:
            log_likelihood[:, c] = log_sums[:, i:j] @ weights[i:j] + weights[i:j].sum() * prepared.levels
    return Statistics(log_likelihood, pooled[..., n_shared:].copy(), first, second)


def add_sums(
    part: Part,
    responsibilities: FloatArray,
    sparse: BoolArray,
    n_shared: int,
    pooled: FloatArray,
    workspace: Workspace,
) -> None:
    """Add a part's sums of terms, weighted by responsibilities (R, K, n), to `pooled` (R, K, M + S + L).

    Starts that are `sparse` (R,) take only their masses from here, the sums of the class indicators.
    """
    terms = part.terms.transposed
    mass = pooled[..., n_shared:][..., part.classes]
    if sparse.any():
        for r in np.flatnonzero(sparse):
            mass[r] += np.dot(responsibilities[r], terms[:, n_shared:])
        for r in np.flatnonzero(~sparse):
            one = slice(r, r + 1)
            add_sums(part, responsibilities[one], sparse[one], n_shared, pooled[one], workspace)
        return
    product = multiply_back(responsibilities, terms, part.tile, workspace)
    if product.shape == pooled.shape:
        pooled += product
    else:
        pooled[..., :n_shared] += product[..., :n_shared]
        mass += product[..., n_shared:]


def separate_moments(
    rows: FloatArray, responsibilities: FloatArray, origins: FloatArray, structure: Structure
) -> tuple[FloatArray, FloatArray]:
    """Return the moments of some kernels, each about its own origin and from the rows that matter to it.

    Rows with less than 1e-22 of a kernel's largest responsibility cannot change a digit.

    Parameters
    ----------
    rows : ndarray of shape (n, M)
        Rows.
    responsibilities : ndarray of shape (k, n)
        Of the kernels.
    origins : ndarray of shape (k, M)
        Of the kernels' moments.
    structure : Structure
        Covariance structure.

    Returns
    -------
    first : ndarray of shape (k, M)
        First moments.
    second : ndarray of shape (k, S)
        Second-order terms, packed.
    """
    n_kernels, n_rows = responsibilities.shape
    cutoff = _NEGLIGIBLE * responsibilities.max(axis=1, keepdims=True)
    matter = np.flatnonzero(responsibilities > cutoff)
    bounds = np.searchsorted(matter, n_rows * np.arange(n_kernels + 1))
    weights = responsibilities.reshape(-1)[matter]
    moved = np.any(origins != 0.0, axis=1)
    first, second = np.empty_like(origins), []
    for k, (a, b) in enumerate(pairwise(bounds)):
        difference = rows[matter[a:b] - k * n_rows]
        if moved[k]:
            difference -= origins[k]
        weighted = difference * weights[a:b, None]
        weighted.sum(axis=0, out=first[k])
        second.append(structure.second_moment(difference, weighted))
    return first, structure.pack(np.array(second))


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
        safe_mass, offset, xp.where(alive[..., None], statistics.second, 0.0), regulariser
    )
    if not xp.all(alive):
        covariances = structure.keep(alive, covariances, previous.covariances)
        factor = structure.factor(covariances, means.shape[-1])
    class_mass, prior = assign_unlabelled(statistics.mass, previous)
    class_mass = xp.where(class_mass > _EMPTY, class_mass, 0.0) + (regulariser.weight_prior - 1.0)
    if regulariser.annihilation:
        class_mass = annihilate(class_mass, regulariser.annihilation)
    sizes = xp.sum(class_mass, axis=1, keepdims=True)
    # A class that no row of a stream has had yet keeps its weights.
    weights = xp.where(sizes > 0, class_mass / xp.where(sizes > 0, sizes, 1.0), previous.weights)  # (M1)
    variances = structure.variances(covariances)
    variances = xp.where(variances > _TINY, variances, _TINY)
    inaccurate = alive & xp.any(offset**2 > _LARGEST_CANCELLATION * variances, axis=-1)
    return Parameters(weights, means, covariances, prior), factor, inaccurate


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
