"""Rows on an accelerator, or of any array library: the E-step by chunks, without a word to the host.

It is the same form as in `collecting.collect`: rows expanded into terms, one matrix product with the
coefficients of all kernels of all starts, and one with the responsibilities. But chunks are as large as such
devices need, and nothing depends on values of the rows: what needs a decision was decided for the whole pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from functools import reduce as fold
from operator import add
from typing import TypeVar

import numpy as np

from ..compute.arrays import (
    Array,
    as_float64,
    constant,
    like,
    namespace,
    occurs,
    operations_of,
    pick,
    recorded,
    replaced,
    to_numpy,
)
from ..covariances import Structure
from ..model import Factor, FloatArray, IntArray, Parameters, Statistics
from .base import Centres, Step
from .expanded import Ordered, Prepared, prepare, term_features
from .summary import FARTHEST, Frame, Setting, Summary, summarise

Result = TypeVar("Result")

# A device without memory for chunks of this many rows has none.
_FEWEST_ROWS = 64
# Rows of a chunk are a multiple of this, for the shapes of matrix products.
_ROUND = 256
# Rows of one product of second moments.
_PIECE = 1024
# The logarithm of nothing, which a matrix product can bear.
_NOTHING = -1e30


class DeviceRows(Ordered):
    """Labelled rows that another array library holds. It stands where `Rows` stands in the loop.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows without gaps.
    classes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1, on the host; None for one class.
    n_classes : int
        L.
    frame : Frame
        Coordinates of the loop.
    structure : Structure
        Covariance structure.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows, on the host.
    precision : {'float64', 'float32', 'tf32'}
        Of the rows' terms and of the products with them. Sums over chunks are always of float64.
    """

    def __init__(
        self,
        X: Array,
        classes: IntArray | None,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
        *,
        precision: str = "float64",
    ) -> None:
        super().__init__((X.shape[0], X.shape[1]), classes, n_classes, frame, structure, weights)
        self.home = X
        self.operations = operations_of(self.home)
        xp = namespace(self.home)
        self._precision = precision
        self._type = xp.float64 if precision == "float64" else xp.float32
        self._scale, self._shift = (as_float64(a, self.home) for a in (frame.scale, frame.shift))
        self.bound = as_float64(frame.bound, self.home)
        self._farthest = FARTHEST if frame.bound.max() >= FARTHEST else np.inf
        self._rows_at_most: int | None = None
        self._codes: Array = None
        if classes is not None and n_classes > 1:
            self._codes = like(np.repeat(np.arange(n_classes), np.diff(self._bounds)), self.home)
        self._index = None if self._order is None else like(self._order, self.home)
        self._row_weights = None if self._weights is None else as_float64(self._weights, self.home)
        self.sizes = as_float64(self.class_sizes, self.home)
        self.delicate: list[tuple[int, int]] = []

    def chunk(self, n_joint: int) -> int:
        """Return the rows of a chunk when each has that many joint densities."""
        width = self.n_coefficients + min(self.n_classes, 2) + n_joint
        most = max(_FEWEST_ROWS, self.operations.chunk // width)
        if self._rows_at_most is not None:
            most = min(most, self._rows_at_most)
        if most <= _ROUND:
            return most
        most -= most % _ROUND
        n_chunks = -(-self.n_rows // most)
        return _ROUND * -(-self.n_rows // (n_chunks * _ROUND))

    def gather(self, prepared: Prepared, *, moments: bool = True) -> Statistics:
        """Return the statistics of all rows under R starts; see `collecting.collect`."""
        self._look(prepared)
        return self._within_memory(prepared, lambda cuts: self._gather(cuts, prepared, moments))

    def _within_memory(self, prepared: Prepared, work: Callable[[list[tuple[int, int]]], Result]) -> Result:
        """Do work on chunks of rows, smaller ones when the device has not the memory for them."""
        n_joint = prepared.coefficients.shape[0] * prepared.coefficients.shape[1]
        while True:
            rows = self.chunk(n_joint)
            try:
                return work(self.cuts(rows))
            except Exception as error:
                if not self.operations.is_out_of_memory(error) or rows <= _FEWEST_ROWS:
                    raise
            self.operations.release()
            self._rows_at_most = max(_FEWEST_ROWS, rows // 2)

    def map_joints(self, prepared: Prepared, reduce: Callable[[Array, int, int], Array]) -> list[Array]:
        """Return what `reduce` makes of each chunk: log-joints (R, K, n), first and last-plus-one row."""
        self._look(prepared)
        return self._within_memory(
            prepared, lambda cuts: [reduce(self.log_joint(a, b, prepared)[0], a, b) for a, b in cuts]
        )

    def _gather(self, cuts: list[tuple[int, int]], prepared: Prepared, moments: bool) -> Statistics:
        with self.operations.precision(self._precision):
            total = fold(_sum, (self._collect(start, stop, prepared, moments) for start, stop in cuts))
        log_likelihood = total.log_likelihood + self.sizes * prepared.levels[:, None]
        return Statistics(log_likelihood, total.mass, total.first, total.second)

    def log_joint(self, start: int, stop: int, prepared: Prepared) -> tuple[Array, Array, Array, Array]:
        """Return log π_kj N(x_n; μ_k, P_k), less the start's level, of rows start … stop − 1.

        Returns
        -------
        values : array of shape (R, K, n)
            The logarithms.
        x : array of shape (M, n)
            The rows in the frame.
        terms : array of shape (M + S + C, n)
            The rows expanded; the last C are indicators of the classes present.
        indicators : array of shape (C, n) or None
            These; None when there is one class.
        """
        xp = namespace(self.home)
        n_starts, n_kernels, _ = prepared.coefficients.shape
        classes, indicators = self._present(start, stop)
        first, second = (
            constant(term_features, self.structure, self.n_features, which, example=self.home)
            for which in (0, 1)
        )
        terms = self.operations.expand(
            self._rows(start, stop),
            self._scale,
            self._shift,
            self._farthest,
            (first, second),
            indicators,
            self._type,
        )
        x = terms[: self.n_features, :]
        coefficients = prepared.coefficients_for(classes)
        flat = xp.reshape(coefficients, (n_starts * n_kernels, coefficients.shape[-1]))
        values = xp.astype(flat, self._type, copy=False) @ terms
        values = self._mend(values, x, prepared, start, stop)
        return xp.reshape(values, (n_starts, n_kernels, stop - start)), x, terms, indicators

    def _rows(self, start: int, stop: int) -> Array:
        """Return rows start … stop − 1, shape (n, M), on the device."""
        if self._index is None:
            return self.home[start:stop, :]
        return namespace(self.home).take(self.home, self._index[start:stop], axis=0)

    def _present(self, start: int, stop: int) -> tuple[slice, Array | None]:
        """Return the consecutive classes with rows in start … stop − 1, and their indicators (C, n)."""
        segments = self.segments(start, stop)
        first, last = segments[0][0], segments[-1][0]
        if first == last:
            return slice(first, last + 1), None
        xp = namespace(self.home)
        numbers = constant(np.arange, first, last + 1, example=self.home)
        matches = self._codes[None, start:stop] == numbers[:, None]
        return slice(first, last + 1), xp.astype(matches, self._type)

    def _look(self, prepared: Prepared) -> None:
        """Find out which kernels are delicate, or assume that they are the same as in the pass before."""
        known: Array = np.zeros(prepared.delicate.shape, dtype=bool)
        if any(r >= known.shape[0] or k >= known.shape[1] for r, k in self.delicate):
            self.delicate = []
        for r, k in self.delicate:
            known[r, k] = True
        assumed = constant(_mask, known.shape, known.tobytes(), example=self.home)
        if occurs(prepared.delicate ^ assumed):
            self.delicate = prepared.delicate_kernels

    def _mend(self, values: Array, x: Array, prepared: Prepared, start: int, stop: int) -> Array:
        """Return log-joints (R · K, n) with those of delicate kernels computed from differences."""
        if not self.delicate:
            return values
        xp, n_kernels = namespace(values), prepared.means.shape[1]
        better = []
        for some in self._groups(self.delicate, stop - start):
            index = [r * n_kernels + k for r, k in some]
            difference = x[None, ...] - self._of(prepared.means, index)[..., None]
            whiteners = xp.astype(self.structure.whiteners_of(prepared.factor, some), self._type, copy=False)
            logs = -0.5 * self.structure.distances(whiteners, difference)
            at_mean = self._of(prepared.constants[..., None] + prepared.log_weights, index)
            if self._codes is not None:
                at_mean = xp.take(at_mean, self._codes[start:stop], axis=1)
            better.append(xp.where(at_mean > _NOTHING, logs + at_mean, _NOTHING))
        return replaced(values, [r * n_kernels + k for r, k in self.delicate], xp.concat(better))

    def _of(self, array: Array, index: list[int]) -> Array:
        """Return what an array (R, K, …) has for some kernels, as an array (q, …) of the rows' precision."""
        xp = namespace(array)
        flat = xp.reshape(array, (array.shape[0] * array.shape[1], *array.shape[2:]))
        return xp.astype(pick(flat, index), self._type, copy=False)

    def _groups(self, kernels: list[tuple[int, int]], n_rows: int) -> list[list[tuple[int, int]]]:
        """Cut a list of kernels so that the differences of rows from their means fit in memory."""
        most = max(1, self.operations.chunk // (self.n_features * n_rows))
        return [kernels[a : a + most] for a in range(0, len(kernels), most)]

    def _collect(self, start: int, stop: int, prepared: Prepared, moments: bool) -> Statistics:
        """Return the statistics of rows start … stop − 1, log-likelihoods less the levels."""
        xp = namespace(self.home)
        n_starts, n_kernels, _ = prepared.coefficients.shape
        n_shared, n_features = self.n_coefficients, self.n_features
        values, x, terms, indicators = self.log_joint(start, stop, prepared)
        responsibilities, log_sums = self.operations.normalise(values)  # (E)
        log_sums = xp.astype(log_sums, xp.float64, copy=False)
        weights = None if self._row_weights is None else self._row_weights[start:stop]
        if weights is not None:
            log_sums = log_sums * weights
        if indicators is None:
            log_likelihood = xp.sum(log_sums, axis=1, keepdims=True)
        else:
            log_likelihood = log_sums @ xp.astype(indicators, xp.float64, copy=False).T
        log_likelihood = self._spread(log_likelihood, start, stop)
        if not moments:
            zeros = xp.zeros_like(prepared.coefficients)
            mass = xp.zeros_like(prepared.log_weights)
            return Statistics(log_likelihood, mass, zeros[..., :n_features], zeros[..., n_features:n_shared])
        if weights is not None:
            responsibilities = responsibilities * xp.astype(weights, self._type, copy=False)
        flat = xp.reshape(responsibilities, (n_starts * n_kernels, stop - start))
        # Of the two orders of this product, the one that is faster on an H200 by a tenth to a quarter.
        sums = xp.astype((terms @ flat.T).T, xp.float64, copy=False)
        first, second = sums[:, :n_features], sums[:, n_features:n_shared]
        recentred = self.delicate if prepared.recentred is prepared.delicate else prepared.recentred_kernels
        if recentred:
            first, second = self._separate(first, second, flat, x, prepared, recentred)
        mass = self._spread(xp.reshape(sums[:, n_shared:], (n_starts, n_kernels, -1)), start, stop)
        return Statistics(
            log_likelihood,
            mass,
            xp.reshape(first, (n_starts, n_kernels, n_features)),
            xp.reshape(second, (n_starts, n_kernels, n_shared - n_features)),
        )

    def _separate(
        self,
        first: Array,
        second: Array,
        responsibilities: Array,
        x: Array,
        prepared: Prepared,
        recentred: list[tuple[int, int]],
    ) -> tuple[Array, Array]:
        """Replace the moments of kernels that have an origin of their own by those about it."""
        xp, structure, n_kernels = namespace(x), self.structure, prepared.means.shape[1]
        own_first, own_second = [], []
        for some in self._groups(recentred, x.shape[1]):
            index = [r * n_kernels + k for r, k in some]
            difference = x[None, ...] - self._of(prepared.origins, index)[..., None]
            weighted = difference * pick(responsibilities, index)[:, None, :]
            own_first.append(xp.sum(weighted, axis=-1))
            own_second.append(structure.pack(self._second_moments(difference, weighted)))
        index = [r * n_kernels + k for r, k in recentred]
        new_first, new_second = (
            xp.astype(xp.concat(own), xp.float64, copy=False) for own in (own_first, own_second)
        )
        return replaced(first, index, new_first), replaced(second, index, new_second)

    def _second_moments(self, difference: Array, weighted: Array) -> Array:
        """Return second moments of rows (q, M, n), summed piece by piece.

        A product whose result is small keeps one processor busy, and many such products all of them.
        """
        xp, second_moment = namespace(difference), self.structure.second_moment
        n_kernels, n_features, n_rows = difference.shape
        whole = n_rows - n_rows % _PIECE
        parts = []
        if whole:
            shape = (n_kernels, n_features, whole // _PIECE, _PIECE)
            pieces = [
                xp.permute_dims(xp.reshape(a[..., :whole], shape), (0, 2, 3, 1))
                for a in (difference, weighted)
            ]
            parts.append(xp.sum(second_moment(*pieces), axis=1))
        if whole < n_rows:
            rest = [xp.matrix_transpose(a[..., whole:]) for a in (difference, weighted)]
            parts.append(second_moment(*rest))
        return fold(add, parts)

    def _spread(self, sums: Array, start: int, stop: int) -> Array:
        """Return sums (..., C) over the classes of some rows as sums (..., L) over all classes."""
        segments = self.segments(start, stop)
        before, after = segments[0][0], self.n_classes - 1 - segments[-1][0]
        if not before and not after:
            return sums
        xp = namespace(sums)
        blank = [
            xp.zeros((*sums.shape[:-1], n), dtype=sums.dtype, device=sums.device) for n in (before, after)
        ]
        return xp.concat([blank[0], sums, blank[1]], axis=-1)


def _mask(shape: tuple[int, ...], data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=bool).reshape(shape).copy()


def _sum(one: Statistics, other: Statistics) -> Statistics:
    return Statistics(*[a + b for a, b in zip(vars(one).values(), vars(other).values(), strict=True)])


class DeviceSource:
    """Rows of another array library, without gaps, as a source; passes run where they are.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows.
    codes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1, −1 for rows without a label, on the host; None for one class.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows, on the host.
    """

    def __init__(self, X: Array, codes: IntArray | None, weights: FloatArray | None = None) -> None:
        self.X, self.codes, self.weights = X, codes, weights
        self.operations = operations_of(X)
        self._rows: DeviceRows | None = None

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return int(self.X.shape[1])

    @cached_property
    def summary(self) -> Summary:
        """What one look at all rows finds."""
        return summarise(self.X, self.codes, self.weights)

    @property
    def delicate(self) -> list[tuple[int, int]]:
        """Start and kernel of each kernel that was delicate in the last pass."""
        return [] if self._rows is None else self._rows.delicate

    def take(self, columns: Sequence[int]) -> DeviceSource:
        """Return the same rows with some of their features."""
        chosen = like(np.asarray(columns, dtype=np.int64), self.X)
        return DeviceSource(namespace(self.X).take(self.X, chosen, axis=1), self.codes, self.weights)

    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        """Return all rows, their class codes (N,), and their weights (N,)."""
        codes = np.zeros(self.X.shape[0], dtype=np.int64) if self.codes is None else self.codes
        return self.X, codes, self.weights

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, Array]:
        """Do the E-step; see `RowSource`."""
        rows, n_classes = self._rows, parameters.weights.shape[-1]
        if rows is None or rows.frame is not setting.frame or rows.n_classes != n_classes:
            codes = None if self.codes is None else np.where(self.codes < 0, n_classes - 1, self.codes)
            rows = self._rows = DeviceRows(
                self.X,
                codes,
                n_classes,
                setting.frame,
                setting.structure,
                self.weights,
                precision=setting.precision,
            )
        prepared = prepare(parameters, setting.structure, rows.bound, factor)
        if centres is not None:
            prepared = prepared.recentre(*centres)
        return rows.gather(prepared, moments=moments), prepared.origins

    def place(self, array: Array) -> Array:
        """Return an array as float64 numbers on the device."""
        return as_float64(array, self.X)

    def quick(self, step: Step, setting: Setting) -> Step:
        """Return an optimistic pass."""
        structure = setting.structure
        if structure.projects:
            raise ValueError(
                f"covariance_type={structure.name!r} is computed on the CPU alone: give X as a NumPy array, "
                "without device."
            )
        return OptimisticStep(step, self)

    def forget(self) -> None:
        """Drop memory that was kept from pass to pass."""
        self._rows = None


class OptimisticStep:
    """A pass that assumes that no rare condition holds, and checks this afterwards.

    A kernel may lose its rows, a covariance fall below its floor, a factor lose digits. Asking the device
    whether one did makes the host wait, and waiting often takes longer than the work. An optimistic pass
    records the conditions instead, and reads them with the log-likelihoods at its end. If one held, the pass
    is repeated carefully, and so are the following ones until none holds.

    Parameters
    ----------
    step : callable
        A pass: from parameters and their factor to the next ones, and the log-likelihood (R, L).
    source : DeviceSource
        What the step works on.
    """

    def __init__(self, step: Step, source: DeviceSource) -> None:
        self._step = step
        self._source = source
        self._captured = source.operations.capture(partial(_work_optimistically, step))
        self._careful = True

    def __call__(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do a pass; log-likelihoods and `usable` are returned on the host."""
        if not self._careful:
            following, next_factor, report = self._try(parameters, factor)
            if not report[0, -1]:
                usable = report[:, -2] > 0
                return following, replace(next_factor, usable=usable), report[:, :-2]
        with recorded(optimistic=False) as conditions:
            following, next_factor, log_likelihood = self._step(parameters, factor)
        self._careful = any(conditions)
        next_factor = replace(next_factor, usable=to_numpy(next_factor.usable))
        return following, next_factor, to_numpy(log_likelihood)

    def _try(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do an optimistic pass; its report (R, L + 2) ends with `usable`, and whether a condition held."""
        given = [a for a in vars(parameters).values() if a is not None]
        arrays = [*given, factor.whitener, factor.log_determinant]
        *made, whitener, log_determinant, report = self._captured(arrays, tuple(self._source.delicate))
        return Parameters(*made), Factor(whitener, log_determinant, report[:, -2] > 0), to_numpy(report)


def _work_optimistically(step: Step, arrays: list[Array]) -> list[Array]:
    """Do a pass from arrays to arrays; see `OptimisticStep._try`."""
    *given, whitener, log_determinant = arrays
    xp = namespace(whitener)
    usable = xp.ones_like(log_determinant[:, 0]) > 0
    with recorded(optimistic=True) as conditions:
        following, factor, log_likelihood = step(
            Parameters(*given), Factor(whitener, log_determinant, usable)
        )
    held = xp.broadcast_to(xp.any(xp.stack(conditions)), factor.usable.shape)
    columns = [xp.astype(flags, xp.float64)[:, None] for flags in (factor.usable, held)]
    report = xp.concat([log_likelihood, *columns], axis=1)
    made = [a for a in vars(following).values() if a is not None]
    return [*made, factor.whitener, factor.log_determinant, report]
