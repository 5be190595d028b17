"""Rows in a NumPy array: the E-step in expanded form, two matrix products per pass.

A Gaussian log-density is linear in x, in the products of its features and in 1; the log-weight of a class is
linear in the indicator of that class. A row expanded into these terms needs one product with the coefficients
of all kernels to give its log-joint densities, and one with its responsibilities to give all statistics:
equation (E) of ``docs/notation.md``.

How work is split depends on the sizes of the problem, never on the number of threads, and blocks are always
summed in order: results are bitwise the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..compute.arrays import constant, namespace, pick, to_numpy
from ..compute.threads import Workers, Workspace, aligned
from ..covariances import Structure
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Statistics, join
from .base import ArrayRows, Centres
from .summary import Frame, Setting, turn

# Numbers that fit in a core's second-level cache along with other data.
_CACHED = 1 << 17
# Expanded rows may be larger: matrix products do their own cache blocking.
_EXPANDED = 1 << 21
# Below this many multiplications OpenBLAS skips packing, which suits skinny products.
_SMALL_PRODUCT = 1_000_000
# Numbers in a part's expanded rows and responsibilities, within a second-level cache, and matrix products per
# part: threads release the interpreter lock only inside operations, so operations must be long to keep two
# cores busy, while matrix products have an optimal size.
_PART = 155_000
_TILES = 3
_CLASSES_PER_PART = 16
# Data up to this size are transformed to the frame and expanded once, not in every pass.
_SMALL = 1 << 20
# Subnormal numbers make the next matrix product 5 to 10 times slower: log-densities, relative to the highest
# peak of their start, are raised to this.
_LOWEST_LOG = -600.0
# A row whose density relative to that peak is below this is normalised by its largest term first.
_SMALLEST_TOTAL = 1e-120
# With a smaller share of non-negligible responsibilities, moments are faster kernel by kernel.
_SPARSE = 0.2
_FEWEST_FEATURES_FOR_SPARSE = 16
_NEGLIGIBLE = 1e-22
# Responsibilities below this cannot add up to the mass of a kernel that is not empty.
_NOTHING = 1e-160
# Largest array of projected rows.
_PROJECTED = 1 << 18


@dataclass(frozen=True)
class Prepared:
    """Parameters of R starts, expanded into coefficients of the rows' terms."""

    structure: Structure  # covariance structure
    # (R, K, M + S + L): coefficients of x, of the second-order terms and of the class indicators in log π_kj
    # N(x; μ_k, P_k)
    coefficients: FloatArray
    log_weights: FloatArray  # (R, K, L): logarithms of the weights
    constants: FloatArray  # (R, K): log-density at the mean, less the level
    # (R,): log-density of the start's highest peak, subtracted from all so that no exponential overflows
    levels: FloatArray
    means: FloatArray  # (R, K, M): kernel means
    factor: Factor  # whiteners of the covariances
    # (R, K): kernels whose expanded log-density would cancel too many digits: computed from differences
    delicate: BoolArray
    recentred: BoolArray  # (R, K): kernels whose moments are taken about `origins` rather than about zero
    origins: FloatArray  # (R, K, M): the origins of the moments, zero where not recentred
    # (R, K, q, M): V of a structure whose log-densities have a term ½‖Vx‖² besides the linear ones
    projections: FloatArray | None = None

    def take(self, index: Any) -> Prepared:
        """Return the starts that `index` selects."""
        rest = {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}
        structure, factor = rest.pop("structure"), rest.pop("factor")
        picked: dict[str, Any] = {
            name: None if value is None else pick(value, index) for name, value in rest.items()
        }
        return Prepared(structure=structure, factor=factor.take(index), **picked)

    def recentre(self, kernels: BoolArray, origins: FloatArray) -> Prepared:
        """Return a copy that takes the moments of the chosen kernels (R, K) about `origins` (R, K, M)."""
        return replace(
            self,
            recentred=self.recentred | kernels,
            origins=namespace(origins).where(kernels[..., None], origins, self.origins),
        )

    @cached_property
    def delicate_kernels(self) -> list[tuple[int, int]]:
        """(start, kernel) of each delicate kernel."""
        return [(int(r), int(k)) for r, k in np.argwhere(to_numpy(self.delicate))]

    @cached_property
    def recentred_kernels(self) -> list[tuple[int, int]]:
        """(start, kernel) of each kernel whose moments are about an origin of its own."""
        return [(int(r), int(k)) for r, k in np.argwhere(to_numpy(self.recentred))]

    def coefficients_for(self, classes: slice) -> FloatArray:
        """Return the coefficients (R, K, M + S + C) for the indicators of C consecutive classes."""
        n_classes = self.log_weights.shape[-1]
        if classes == slice(0, n_classes):
            return self.coefficients
        n_shared = self.coefficients.shape[-1] - n_classes
        own = self.coefficients[..., n_shared + classes.start : n_shared + classes.stop]
        return namespace(own).concat([self.coefficients[..., :n_shared], own], axis=-1)


def prepare(
    parameters: Parameters, structure: Structure, bound: FloatArray, factor: Factor | None = None
) -> Prepared:
    """Expand the parameters of R starts in the frame, where magnitudes of features are up to `bound` (M,)."""
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


@dataclass(frozen=True)
class Plan:
    """How the work of a pass is split."""

    tile: int  # rows of one matrix product
    part: int  # rows expanded into second-order terms at a time, a multiple of `tile`
    block: int  # rows of one task, a multiple of `part`
    group: int  # starts of one task


def plan(n_rows: int, n_classes: int, n_starts: int, n_kernels: int, n_coefficients: int) -> Plan:
    """Split a pass so that each task's arrays stay in cache and its matrix products are well shaped.

    `n_coefficients` is the length M + S of an expanded row without its class.
    """
    block = min(n_rows, max(320, min(12288, 2 * _CACHED // n_kernels)))
    group = min(n_starts, max(1, _CACHED // (n_kernels * block)))
    # An expanded row has an indicator for each class in its part: with many small classes, use short parts.
    width = n_coefficients + min(n_classes, _CLASSES_PER_PART)
    tile = max(64, min(max(320, _EXPANDED // width), _CLASSES_PER_PART * n_rows // n_classes))
    tiles = 1
    if n_kernels <= 16:
        small = min(_SMALL_PRODUCT // (n_kernels * width), _PART // (_TILES * (width + n_kernels)))
        tile, tiles = min(tile, max(320, small)), _TILES
    if n_rows <= tile:
        return Plan(n_rows, n_rows, block, group)
    if n_rows <= tiles * tile:
        # One part, in products of equal size.
        n_tiles = -(-n_rows // tile)
        tile = 64 * -(-n_rows // (64 * n_tiles))
        return Plan(tile, n_tiles * tile, n_tiles * tile, group)
    # Strides that are powers of two would map to the same cache lines: use odd multiples of 64.
    tile = 64 * _odd(min(tile, block) // 64)
    part = tile * _odd(min(tiles, block // tile))
    return Plan(tile, part, part * (block // part), group)


def _odd(number: int) -> int:
    """Return the largest odd number up to `number`, at least one."""
    return max(1, (number + 1) // 2 * 2 - 1)


class Terms:
    """Memory for n rows expanded into x, second-order terms, and indicators of C consecutive classes.

    `matrix` (M + S + C, n) and `transposed` (n, M + S + C) are views of memory from `workspace`.
    """

    def __init__(
        self,
        structure: Structure,
        n_features: int,
        n_rows: int,
        n_classes: int = 1,
        workspace: Workspace | None = None,
    ) -> None:
        n_second = structure.n_second(n_features)
        shape = (2 * n_features + n_second + n_classes, n_rows)
        if workspace is None:
            memory = aligned(shape[0] * shape[1]).reshape(shape)
        else:
            memory = workspace.array("terms", shape)
        twice, second = memory[: 2 * n_features], memory[2 * n_features : 2 * n_features + n_second]
        # A second copy of x precedes it, so that products of pairs that wrap around are contiguous.
        self._twice = twice.reshape(2, n_features, n_rows)
        self._products = structure.products(twice, second)
        self._indicators = memory[2 * n_features + n_second :]
        self._indicators[:] = 1.0
        self.matrix = memory[n_features:]
        self.transposed = self.matrix.T

    def fill(self, x: FloatArray, segments: Sequence[tuple[int, int, int]] = ()) -> None:
        """Expand rows x (M, n) with the classes of `segments`."""
        self._twice[:] = x
        for left, right, out in self._products:
            np.multiply(left, right, out=out)
        if len(self._indicators) > 1:
            self._indicators[:] = 0.0
            first = segments[0][0]
            for c, i, j in segments:
                self._indicators[c - first, i:j] = 1.0


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a block, expanded."""

    start: int  # first row, relative to the block
    stop: int  # last row plus one, relative to the block
    x: FloatArray  # (M, n): the rows
    terms: Terms  # the rows expanded
    segments: list[tuple[int, int, int]]  # (class, i, j) of the classes present, relative to `start`
    tile: int  # rows of one matrix product
    weights: FloatArray | None = None  # (n,): weights of the rows; None when all are one

    @property
    def classes(self) -> slice:
        """The consecutive classes with an indicator."""
        return slice(self.segments[0][0], self.segments[-1][0] + 1)

    @cached_property
    def codes(self) -> IntArray:
        """Class of each row (n,)."""
        return np.repeat([c for c, _, _ in self.segments], [j - i for _, i, j in self.segments])


class Ordered:
    """Rows of shape (N, M) sorted by class (N,), so that each class is contiguous."""

    def __init__(
        self,
        shape: tuple[int, int],
        classes: IntArray | None,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
    ) -> None:
        self.frame = frame
        self.structure = structure
        self.n_rows, self.n_features = shape
        self.n_classes = n_classes
        self.n_coefficients = self.n_features + structure.n_second(self.n_features)
        self._order: IntArray | None = None
        if classes is None or n_classes == 1:
            self._bounds = np.array([0, self.n_rows])
        else:
            counts = np.bincount(classes, minlength=n_classes)
            self._bounds = np.concatenate([[0], np.cumsum(counts)])
            if np.any(np.diff(classes) < 0):
                self._order = np.argsort(classes, kind="stable")
        self._weights = weights if weights is None or self._order is None else weights[self._order]

    @cached_property
    def class_sizes(self) -> FloatArray:
        """Number of rows (L,) of each class, or the sum of their weights."""
        if self._weights is None:
            return np.diff(self._bounds).astype(np.float64)
        return np.array([self._weights[a:b].sum() for a, b in pairwise(self._bounds)])

    def weights(self, start: int, stop: int) -> FloatArray | None:
        """Return the weights (n,) of rows start … stop − 1; None when all are one."""
        return None if self._weights is None else self._weights[start:stop]

    def cuts(self, block: int) -> list[tuple[int, int]]:
        """Return (start, stop) of blocks of that many rows."""
        return [(a, min(a + block, self.n_rows)) for a in range(0, self.n_rows, block)]

    def segments(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (class, i, j) for the classes with rows in start … stop − 1, i and j relative to `start`."""
        if len(self._bounds) == 2:
            return [(0, 0, stop - start)]
        first = int(np.searchsorted(self._bounds, start, side="right")) - 1
        last = int(np.searchsorted(self._bounds, stop, side="left"))
        inside = np.clip(self._bounds[first : last + 1], start, stop) - start
        return [(first + c, int(i), int(j)) for c, (i, j) in enumerate(pairwise(inside)) if j > i]


class Rows(Ordered):
    """Labelled rows X (N, M) in memory, split into blocks and parts."""

    def __init__(
        self,
        X: np.ndarray,
        classes: IntArray | None,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
    ) -> None:
        super().__init__((X.shape[0], X.shape[1]), classes, n_classes, frame, structure, weights)
        self._X = X
        self._kept: FloatArray | None = None
        self._parts: dict[tuple[int, int, Plan], list[Part]] = {}
        if X.size <= _SMALL:
            whole = X if self._order is None else X[self._order]
            self._kept = frame.rows(whole, np.empty((self.n_features, self.n_rows)))

    def suits(self, setting: Setting, n_classes: int) -> bool:
        """Return whether these rows were made for that setting and number of classes."""
        same = self.frame is setting.frame and self.structure is setting.structure
        return same and self.n_classes == n_classes

    def plan(self, n_starts: int, n_kernels: int) -> Plan:
        """Return how to split a pass of R starts of K kernels."""
        return plan(self.n_rows, self.n_classes, n_starts, n_kernels, self.n_coefficients)

    def block(self, start: int, stop: int, workspace: Workspace) -> FloatArray:
        """Return rows start … stop − 1 in the frame, shape (M, n)."""
        if self._kept is not None:
            return self._kept[:, start:stop]
        rows = self._X[start:stop] if self._order is None else self._X[self._order[start:stop]]
        return self.frame.rows(rows, workspace.array("rows", (self.n_features, stop - start)))

    def parts(self, x: FloatArray, start: int, stop: int, cut: Plan, workspace: Workspace) -> Iterable[Part]:
        """Yield the block x of rows start … stop − 1 in expanded parts of `cut.part` rows.

        A part is valid until the next one is generated, unless the data are small enough to be cached.
        """
        if self.n_rows * self.n_coefficients > _SMALL:
            return self._expand(x, start, stop, cut, workspace)
        key = (start, stop, cut)
        if key not in self._parts:
            self._parts[key] = list(self._expand(x, start, stop, cut, None))
        return self._parts[key]

    def _expand(
        self, x: FloatArray, start: int, stop: int, cut: Plan, workspace: Workspace | None
    ) -> Iterator[Part]:
        for a in range(start, stop, cut.part):
            b = min(a + cut.part, stop)
            segments = self.segments(a, b)
            shape = (self.n_features, b - a, segments[-1][0] - segments[0][0] + 1)
            if workspace is None:
                terms = Terms(self.structure, *shape)
            else:
                terms = workspace.latest(shape, lambda: Terms(self.structure, *shape, workspace))  # noqa: B023
            own = x[:, a - start : b - start]
            terms.fill(own, segments)
            yield Part(a - start, b - start, own, terms, segments, cut.tile, self.weights(a, b))


def gather(rows: Rows, prepared: Prepared, pool: Workers, *, moments: bool = True) -> Statistics:
    """Return the statistics of all rows: blocks of rows × groups of starts, summed in a fixed order."""
    n_starts, n_kernels, _ = prepared.coefficients.shape
    cut = rows.plan(n_starts, n_kernels)
    slices = [slice(a, min(a + cut.group, n_starts)) for a in range(0, n_starts, cut.group)]
    groups = [prepared.take(s) for s in slices] if len(slices) > 1 else [prepared]

    def work(task: tuple[int, tuple[int, int]]) -> Statistics:
        group, (start, stop) = task
        return collect(rows, start, stop, groups[group], pool.workspace, cut=cut, moments=moments)

    tasks = [(group, rows_of_task) for group in range(len(groups)) for rows_of_task in rows.cuts(cut.block)]
    totals: list[Statistics] = []
    for (group, _), statistics in zip(tasks, pool.map(work, tasks), strict=True):
        if group == len(totals):
            totals.append(statistics)
        else:
            totals[group].add(statistics)
    return totals[0] if len(totals) == 1 else join(totals)


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
    """Return the statistics of rows start … stop − 1 under R starts.

    With `moments` False only the log-likelihood is computed; the rest is zero.
    """
    x = rows.block(start, stop, workspace)
    n_features, n_rows = x.shape
    n_starts, n_kernels, n_coefficients = prepared.coefficients.shape
    n_classes = prepared.log_weights.shape[-1]
    n_shared = n_coefficients - n_classes
    pooled = np.zeros((n_starts, n_kernels, n_coefficients))
    log_sums = workspace.array("log_sums", (n_starts, n_rows))
    # Responsibilities of the whole block, for kernels whose moments are computed separately.
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
        # Selecting rows is much faster than selecting columns.
        by_row = workspace.array("by_row", (n_rows, n_features))
        turn(x, by_row)
        given = by_row, kept[own_route], prepared.origins[own_route], prepared.structure
        if prepared.projections is None:
            first[own_route], second[own_route] = separate_moments(*given)
        else:
            # All kernels are computed separately; avoid copies of the large arrays.
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
    # Tile by tile, like the product, so that a row's bits do not depend on the other rows.
    n_features, n_rows = part.x.shape
    x = part.x
    if n_rows % part.tile == 0:
        x = x.reshape(n_features, -1, part.tile).transpose(1, 0, 2)
    for r, k in prepared.delicate_kernels:
        difference = x - prepared.means[r, k][:, None]
        distances = structure.distances(structure.whitener_of(prepared.factor, r, k), difference)
        np.multiply(distances.reshape(-1), -0.5, out=out[r, k])
        out[r, k] += (prepared.constants[r, k] + prepared.log_weights[r, k])[part.codes]


def multiply(stack: FloatArray, matrix: FloatArray, out: FloatArray, tile: int) -> None:
    """Multiply each start's matrix of a stack (R, K, a) by a common one (a, n) into `out` (R, K, n).

    There is one product per start and `tile` columns, so that a start's rounding does not depend on the rest
    of the batch and BLAS is fast.
    """
    n_starts, n_kernels, n_rows = out.shape
    whole = n_rows - n_rows % tile
    if n_starts == 1 and n_rows <= tile:
        # np.matmul holds the interpreter lock for small results; np.dot never does.
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

    Returns which starts (R,) are accurate: the others lost digits at a row of very low density.
    """
    np.maximum(values, _LOWEST_LOG, out=values)
    np.exp(values, out=values)
    np.add.reduce(values, axis=1, out=total)
    good: BoolArray = total.min(axis=1) > _SMALLEST_TOTAL
    return good


def normalise(
    part: Part, prepared: Prepared, values: FloatArray, total: FloatArray, log_sums: FloatArray
) -> None:
    """Fill `values` (R, K, n) with the part's joint densities, up to a factor for each row.

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

    For `sparse` starts (R,) only the masses are added, the sums of the class indicators.
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
    """Return moments of k kernels, each about its own origin (k, M), skipping negligible rows.

    Rows with less than 1e-22 of a kernel's largest responsibility do not affect the result and are skipped.
    Returns first moments (k, M) and packed second-order terms (k, S), followed by sums of x(Vx)ᵀ (M · q) if
    the structure has projections V (k, q, M). Rows are (n, M), responsibilities (k, n).
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


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    _rows: Rows | None = None

    def take(self, columns: Sequence[int]) -> MemoryRows:
        """Return the same rows with some of their features."""
        own = MemoryRows(self.X[:, list(columns)], self.codes, self.weights)
        if "summary" in vars(self):
            vars(own)["summary"] = self.summary.take(columns)
        return own

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`."""
        rows = self._rows_in(setting, parameters.weights.shape[-1])
        prepared = prepare(parameters, setting.structure, setting.frame.bound, factor)
        if centres is not None:
            prepared = prepared.recentre(*centres)
        return gather(rows, prepared, setting.pool, moments=moments), prepared.origins

    def _rows_in(self, setting: Setting, n_classes: int) -> Rows:
        """Return the rows sorted by class, cached for the setting."""
        rows = self._rows
        if rows is None or not rows.suits(setting, n_classes):
            codes = self.codes_within(n_classes)
            rows = Rows(self.X, codes, n_classes, setting.frame, setting.structure, self.weights)
            self._rows = rows
        return rows

    def clear_cache(self) -> None:
        """Free the expanded rows."""
        self._rows = None
