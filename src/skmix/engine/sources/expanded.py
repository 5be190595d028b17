"""The E-step of rows in memory: `collect` their statistics, block by block, in the time that a core can have.

Equation (E) of ``docs/notation.md``. All work is done in memory that is used again, on pieces that stay in
cache.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..compute.threads import Workspace
from ..covariances import Structure
from ..model import BoolArray, FloatArray, Statistics
from ..rules.likelihood import Prepared
from .frame import turn
from .memory import Part, Plan, Rows

# Subnormal numbers make the next matrix product 5 to 10 times slower: log-densities, relative to the highest
# peak of their start, are raised to this.
_LOWEST_LOG = -600.0
# A row whose density relative to that peak is below this has its terms divided by the largest of them first.
_SMALLEST_TOTAL = 1e-120
# With fewer than this share of responsibilities above zero, kernel by kernel is the faster route.
_SPARSE = 0.2
_FEWEST_FEATURES_FOR_SPARSE = 16
_NEGLIGIBLE = 1e-22
# All rows together cannot bring a kernel with such responsibilities to the mass below which it is retired.
_NOTHING = 1e-160
# Projections of rows that are held at once.
_PROJECTED = 1 << 18


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
    if prepared.projections is not None:
        own_route = np.ones_like(own_route)
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
    if prepared.projections is not None:
        second = np.zeros((n_starts, n_kernels, n_features * (1 + prepared.projections.shape[2])))
    if moments and keep:
        # Whole rows are far quicker to pick than columns.
        by_row = workspace.array("by_row", (n_rows, n_features))
        turn(x, by_row)
        given = by_row, kept[own_route], prepared.origins[own_route], prepared.structure
        if prepared.projections is None:
            first[own_route], second[own_route] = separate_moments(*given)
        else:
            # All kernels take this route, with arrays that are worth not copying.
            projections = prepared.projections.reshape(-1, *prepared.projections.shape[2:])
            flat, crossed = separate_moments(*given, projections)
            first, second = flat.reshape(first.shape), crossed.reshape(second.shape)
    log_likelihood = np.zeros((n_starts, n_classes))
    weights = rows.weights(start, stop)
    for c, i, j in rows.segments(start, stop):
        if weights is None:
            log_likelihood[:, c] = log_sums[:, i:j].sum(axis=1) + (j - i) * prepared.levels
        else:
            log_likelihood[:, c] = log_sums[:, i:j] @ weights[i:j] + weights[i:j].sum() * prepared.levels
    return Statistics(log_likelihood, pooled[..., n_shared:].copy(), first, second)


def log_joint(part: Part, prepared: Prepared, out: FloatArray) -> None:
    """Write log π_{k,c(n)} N(x_n; μ_k, P_k), less the start's level, into `out` (R, K, n)."""
    structure = prepared.structure
    multiply(prepared.coefficients_for(part.classes), part.terms.matrix, out, part.tile)
    if prepared.projections is not None:
        add_projections(part.x, prepared.projections, out)
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


def add_projections(x: FloatArray, projections: FloatArray, out: FloatArray) -> None:
    """Add ½‖V_k x_n‖² of rows x (M, n), with projections V (R, K, q, M), to `out` (R, K, n)."""
    n_starts, n_kernels, n_factors, n_features = projections.shape
    together = max(1, _PROJECTED // (n_factors * x.shape[1]))
    for r in range(n_starts):
        for a in range(0, n_kernels, together):
            some = projections[r, a : a + together]
            projected = np.dot(some.reshape(-1, n_features), x)
            np.square(projected, out=projected)
            lengths = projected.reshape(len(some), n_factors, -1).sum(axis=1)
            lengths *= 0.5
            out[r, a : a + together] += lengths


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
    rows: FloatArray,
    responsibilities: FloatArray,
    origins: FloatArray,
    structure: Structure,
    projections: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the moments of some kernels, each about its own origin and from the rows that matter to it.

    Rows with less than 1e-22 of a kernel's largest responsibility cannot change a digit, and those that are
    someone else's altogether are no kernel's business.

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
    projections : ndarray of shape (k, q, M), optional
        V of the kernels, when the structure projects.

    Returns
    -------
    first : ndarray of shape (k, M)
        First moments.
    second : ndarray of shape (k, S) or (k, S + M · q)
        Second-order terms, packed; behind them sums of x(Vx)ᵀ.
    """
    n_kernels, n_rows = responsibilities.shape
    cutoff = np.maximum(_NEGLIGIBLE * responsibilities.max(axis=1, keepdims=True), _NOTHING)
    matter = np.flatnonzero(responsibilities > cutoff)
    bounds = np.searchsorted(matter, n_rows * np.arange(n_kernels + 1))
    weights = responsibilities.reshape(-1)[matter]
    moved = np.any(origins != 0.0, axis=1)
    first, second = np.empty_like(origins), []
    n_factors = 0 if projections is None else projections.shape[1]
    crossed = np.empty((n_kernels, rows.shape[1], n_factors))
    for k, (a, b) in enumerate(pairwise(bounds)):
        difference = rows[matter[a:b] - k * n_rows]
        if moved[k]:
            difference -= origins[k]
        weighted = difference * weights[a:b, None]
        weighted.sum(axis=0, out=first[k])
        second.append(structure.second_moment(difference, weighted))
        if projections is not None:
            np.dot(weighted.T, np.dot(difference, projections[k].T), out=crossed[k])
    packed = structure.pack(np.array(second))
    if projections is None:
        return first, packed
    return first, np.concatenate([packed, crossed.reshape(n_kernels, -1)], axis=1)
