"""Rows on a device, complete or with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from ..compute.arrays import (
    Array,
    as_float64,
    clip,
    constant,
    like,
    namespace,
    occurs,
    operations_of,
    pick,
    recorded,
    sent_once,
    take,
    taken_in,
    to_numpy,
)
from ..compute.threads import Workers
from ..estep.coverage import DEVICE
from ..estep.device import NOTHING, Assumed, ClassOrder, FramedRows, count_classes, finite_log, prepare
from ..estep.gaps import group_patterns, moved
from ..estep.masked import Marginals, Patterns, batches, row_chunks
from ..estep.reference import log_mix
from ..frame import FARTHEST, NEAR, Frame, Setting, frame_of
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Statistics
from ..structures import Structure
from ..tails import Tail
from .base import ArrayRows, Centres, Step
from .summary import chunks


class DeviceRows(ArrayRows):
    """Complete rows of another array library; passes run on their device."""

    covers = DEVICE
    keeps_terms = True
    """Whether expanded rows are kept between passes, if there is memory for them."""
    _framed: FramedRows | None = None

    def __init__(self, X: Array, codes: IntArray | None, weights: FloatArray | None = None) -> None:
        super().__init__(taken_in(X), codes, weights)
        # By the number of classes: given to rows that are sent anew in every pass.
        self.orders: dict[int, ClassOrder] = {}

    def take(self, columns: Sequence[int]) -> DeviceRows:
        """Return the same rows with some of their features."""
        chosen = like(np.asarray(columns, dtype=np.int64), self.X)
        return DeviceRows(take(self.X, chosen, axis=1), self.codes, self.weights)

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, Array]:
        """Do the E-step; see `RowSource`."""
        rows = self.framed(setting, parameters.weights.shape[-1])
        prepared = prepare(parameters, setting.structure, rows.bounds, factor)
        if centres is not None:
            prepared = prepared.recentre(*centres)
        return rows.collect(prepared, moments=moments), prepared.origins

    def framed(self, setting: Setting, n_classes: int) -> FramedRows:
        """Return the rows in the frame of a setting, cached."""
        rows = self._framed
        if rows is None or rows.frame is not setting.frame or rows.n_classes != n_classes:
            given = setting.frame, setting.structure, setting.precision, self.keeps_terms
            self._framed = rows = FramedRows(self.X, self.ordered(n_classes), *given)
        return rows

    def ordered(self, n_classes: int) -> ClassOrder:
        """Return the order of the rows by their classes, cached."""
        known = self.orders.get(n_classes)
        if known is None or not known.is_sent:
            codes = self.codes_within(n_classes)
            if known is None:
                known = count_classes(self.X, codes, n_classes, self.weights)
            self.orders[n_classes] = known = known.sent(self.X, codes, self.weights)
        return known

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> Array:
        """Evaluate the kernels, on the device of the rows; see `ArrayRows`."""
        X, xp = self.X, namespace(self.X)
        frame = frame_of(parameters, structure)
        unweighted = replace(parameters.batch(), weights=np.ones((1, len(parameters.means), 1)))
        inside = frame.enter(unweighted, structure)
        inside = inside.map(lambda array: as_float64(array, X))
        scale, shift = as_float64(frame.scale, X), as_float64(frame.shift, X)
        parts = [xp.all(xp.abs(X[cut, :] / scale - shift) <= NEAR, axis=1) for cut in chunks(X)]
        is_near = np.concatenate([to_numpy(part) for part in parts])
        groups = [(np.flatnonzero(is_near), NEAR), (np.flatnonzero(~is_near), FARTHEST)]
        results = []
        for index, bound in groups:
            if not len(index):
                continue
            rows_of = X if len(index) == X.shape[0] else pick(X, index)
            one_class = count_classes(rows_of, None, 1, None)
            rows = FramedRows(rows_of, one_class, replace(frame, bound=np.full(X.shape[1], bound)), structure)
            prepared = prepare(inside, structure, rows.bounds)
            level = float(to_numpy(prepared.levels)[0]) - frame.log_volume()

            def reduced(values: Array, a: int, b: int, level: float = level) -> Array:
                own = values[0, ...] + level
                return own.T if weights is None else log_mix(own, weights).T

            results += rows.map_joints(prepared, reduced)
        if is_near.all() or not is_near.any():
            return xp.concat(results)
        return pick(xp.concat(results), np.argsort(np.concatenate([index for index, _ in groups])))

    def to_device(self, array: Array) -> Array:
        """Return an array as float64 numbers on the device."""
        return as_float64(array, self.X)

    def wrap_step(self, step: Step, setting: Setting) -> Step:
        """Return the step as optimistic passes."""
        return OptimisticStep(step, self)

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the rows."""
        return NOTHING if self._framed is None else self._framed.assumed

    def clear_cache(self) -> None:
        """Free the memory cached between passes."""
        self._framed, self.orders = None, {}


class OptimisticStep:
    """Passes that assume that no rare condition holds, and check afterwards.

    A covariance may fall below its floor, a factor lose digits, a kernel become narrow. Reading such a
    condition makes the host wait for the device, often for longer than the work takes. An optimistic pass
    records the conditions instead, and reads them at its end with the log-likelihoods. If one held, the pass
    is repeated with every check, and so are the following ones until none holds. Kernels at the floor, and
    those to be computed from differences, are expected to be as many as before.
    """

    def __init__(self, step: Step, source: DeviceRows) -> None:
        self._step = step
        self._source = source
        # Names of the parameters' arrays: those of point estimates and posteriors differ.
        self._names: list[str] = []
        self._expected: list[int] = []
        # Not a method: a cycle of references would keep CUDA graphs alive after the fit.
        work = partial(_work_optimistically, step, self._names, self._expected)
        self._captured = operations_of(source.X).capture(work)
        self._careful = True

    def __call__(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do a pass; log-likelihoods and `usable` are returned on the host."""
        if not self._careful:
            following, next_factor, report = self._try(parameters, factor)
            if not report[0, -1]:
                return following, next_factor, report[:, :-1]
        with recorded() as conditions:
            following, next_factor, log_likelihood = self._step(parameters, factor)
            self._careful = any(conditions.held or ())
            self._expected[:] = conditions.counts
        next_factor = replace(next_factor, usable=to_numpy(next_factor.usable))
        return following, next_factor, to_numpy(log_likelihood)

    def _try(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do an optimistic pass; its report (R, L + 1) ends with whether a condition held."""
        # Passes on a device cover no tail.
        own = vars(parameters).items()
        given = {name: array for name, array in own if not isinstance(array, Tail | None)}
        self._names[:] = given
        arrays = [*given.values(), factor.whitener, factor.log_determinant]
        key = tuple(given), self._source.assumed, tuple(self._expected)
        *made, whitener, log_determinant, report = self._captured(arrays, key)
        following = Parameters(**dict(zip(given, made, strict=True)))
        usable = np.ones(report.shape[0], dtype=bool)
        return following, Factor(whitener, log_determinant, usable), to_numpy(report)


def _work_optimistically(
    step: Step, names: list[str], expected: list[int], arrays: list[Array]
) -> list[Array]:
    """Do a pass from arrays to arrays; see `OptimisticStep._try`."""
    *given, whitener, log_determinant = arrays
    xp = namespace(whitener)
    usable = constant(np.ones, whitener.shape[0], bool, example=whitener)
    # Where a condition held, the numbers are not used. Array libraries may compute with NumPy.
    with recorded(list(expected)) as conditions, np.errstate(all="ignore"):
        entered = Parameters(**dict(zip(names, given, strict=True)))
        following, factor, log_likelihood = step(entered, Factor(whitener, log_determinant, usable))
        occurs(~factor.usable)
        held = xp.astype(xp.any(xp.concat(conditions.held)), xp.float64)
    held = xp.broadcast_to(held, (log_likelihood.shape[0], 1))
    report = xp.concat([log_likelihood, held], axis=1)
    made = [a for a in vars(following).values() if not isinstance(a, Tail | None)]
    return [*made, factor.whitener, factor.log_determinant, report]


class MaskedRows(DeviceRows):
    """Rows with missing values, NaN, of another array library; each row has at least one value."""

    _patterns: tuple[int, DeviceRows | None, list[Patterns]] | None = None

    def take(self, columns: Sequence[int]) -> MaskedRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = super().take(columns).X
        seen = np.flatnonzero(~to_numpy(namespace(X).isnan(X)).all(axis=1))
        codes = None if self.codes is None else self.codes[seen]
        return MaskedRows(pick(X, seen), codes, None if self.weights is None else self.weights[seen])

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, Array]:
        """Do the E-step; see `RowSource`."""
        complete, patterns = self._grouped(parameters.weights.shape[-1])
        origins, about, parts = parameters.means, None, []
        if centres is not None:
            origins = about = namespace(self.X).where(centres[0][..., None], centres[1], origins)
        if complete is not None:
            found, own = complete.expect(parameters, factor, setting, centres, moments)
            parts.append(moved(found, own, origins, setting.structure) if moments else found)
        with operations_of(self.X).precision(setting.precision):
            for group in patterns:
                for some in batches(group, parameters.means.shape, self.X):
                    parts.append(self._expect(some, parameters, setting, about, moments))
        return reduce(Statistics.plus, parts), origins

    def _expect(
        self, some: Patterns, parameters: Parameters, setting: Setting, origins: Array | None, moments: bool
    ) -> Statistics:
        """Return the statistics of the rows of some patterns, completed, about origins (R, K, M) or means."""
        xp, structure, (n_starts, n_kernels, n_features) = (
            namespace(self.X),
            setting.structure,
            parameters.means.shape,
        )
        marginals = Marginals.of(parameters, structure, some.seen)
        weights, n_classes = parameters.weights, parameters.weights.shape[-1]
        log_weights = finite_log(weights)
        classes = constant(np.arange, n_classes, example=self.X)
        n_patterns, sums = some.seen.shape[0], []
        for index, own, codes in row_chunks(some, parameters.means.shape, self.X):
            n = index.shape[1]
            x = self._rows(index, setting.frame)
            values, ahead = marginals.log_densities(x, setting.precision)
            kind = values.dtype
            if origins is not None:
                ahead = marginals.ahead(x, origins, kind)
            if codes is None:
                values, indicators = values + xp.astype(log_weights, kind, copy=False), own[..., None]
            else:
                at = take(log_weights, xp.reshape(codes, (-1,)), axis=2)
                at = xp.permute_dims(xp.reshape(at, (n_starts, n_kernels, n_patterns, n)), (2, 0, 1, 3))
                values = values + xp.astype(at, kind, copy=False)
                indicators = xp.where(codes[..., None] == classes, own[..., None], 0.0)
            flat = xp.reshape(values, (n_patterns * n_starts, n_kernels, n))
            nothing = xp.zeros_like(flat[..., 0])
            responsibilities, log_sums, _ = operations_of(self.X).normalise(flat, nothing, None)  # (E)
            log_sums = xp.reshape(xp.astype(log_sums, xp.float64, copy=False), (n_patterns, n_starts, n))
            likelihood = xp.sum(log_sums @ indicators, axis=0)
            if not moments:
                sums.append((likelihood,))
                continue
            shares = xp.reshape(responsibilities, (n_patterns, n_starts * n_kernels, n))
            mass = xp.astype(shares, xp.float64, copy=False) @ indicators
            mass = xp.reshape(mass, (n_patterns, n_starts, n_kernels, n_classes))
            shares = shares * xp.astype(own, kind, copy=False)[:, None, :]
            weighted = ahead * xp.reshape(shares, (*ahead.shape[:-1], 1))
            first, second = xp.sum(weighted, axis=-2), structure.second_moment(ahead, weighted)
            wide = (xp.astype(each, xp.float64, copy=False) for each in (first, second))
            sums.append((likelihood, mass, *wide))
        likelihood, *others = (reduce(lambda a, b: a + b, each) for each in zip(*sums, strict=True))
        if not moments:
            n_second = structure.n_second(n_features)
            second = xp.zeros_like(parameters.means[..., :1]) * constant(np.zeros, n_second, example=self.X)
            return Statistics(likelihood, xp.zeros_like(weights), xp.zeros_like(parameters.means), second)
        mass, first, second = others
        first, second = marginals.complete(xp.sum(mass, axis=-1), first, second, origins)
        return Statistics(likelihood, xp.sum(mass, axis=0), first, second)

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> Array:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        xp, frame = namespace(self.X), frame_of(parameters, structure)
        unweighted = replace(parameters.batch(), weights=np.ones((1, len(parameters.means), 1)))
        inside = frame.enter(unweighted, structure).map(self.to_device)
        complete, patterns = self._grouped(1)
        results, numbers = [], []
        if complete is not None:
            results.append(complete.log_densities(parameters, structure, pool, weights))
            numbers.append(self._complete_rows)
        volumes = as_float64(np.log(frame.scale), self.X)
        for group in patterns:
            for some in batches(group, inside.means.shape, self.X):
                marginals = Marginals.of(inside, structure, some.seen)
                volume = xp.astype(some.seen, xp.float64) @ volumes
                start = 0
                for index, _, _ in row_chunks(some, inside.means.shape, self.X):
                    values = marginals.log_densities(self._rows(index, frame))[0][:, 0, ...]
                    values = xp.permute_dims(values - volume[:, None, None], (1, 0, 2))
                    values = xp.reshape(values, (values.shape[0], -1))
                    rows = some.rows[:, start : start + index.shape[1]].ravel()
                    start += index.shape[1]
                    kept = np.flatnonzero(rows >= 0)
                    mixed = (values if weights is None else log_mix(values, weights)).T
                    results.append(pick(mixed, kept))
                    numbers.append(rows[kept])
        return pick(xp.concat(results), np.argsort(np.concatenate(numbers)))

    def _rows(self, index: Array, frame: Frame) -> Array:
        """Return rows (B, n, M) by their numbers (B, n), in the frame; gaps are NaN."""
        xp = namespace(self.X)
        x = take(self.X, xp.reshape(index, (-1,)), axis=0)
        scale, shift = sent_once(frame.scale, self.X), sent_once(frame.shift, self.X)
        x = xp.astype(x, xp.float64, copy=False)
        # In place: `take` made a copy.
        x *= 1.0 / scale
        x -= shift
        if frame.bound.max() >= FARTHEST:
            x = clip(x, -FARTHEST, FARTHEST)
        return xp.reshape(x, (*index.shape, self.n_features))

    def _grouped(self, n_classes: int) -> tuple[DeviceRows | None, list[Patterns]]:
        """Return the complete rows, and the others by patterns of gaps; cached."""
        if self._patterns is None or self._patterns[0] != n_classes:
            codes, complete = self.codes_within(n_classes), None
            by_size: dict[int, list[tuple[IntArray, BoolArray]]] = {}
            for rows, seen in group_patterns(~to_numpy(namespace(self.X).isnan(self.X))):
                if seen.all():
                    own = None if self.codes is None else self.codes[rows]
                    weights = None if self.weights is None else self.weights[rows]
                    complete, self._complete_rows = DeviceRows(pick(self.X, rows), own, weights), rows
                    complete.keeps_terms = self.keeps_terms
                else:
                    by_size.setdefault(len(rows).bit_length(), []).append((rows, seen))
            groups = [self._group(own, codes) for own in by_size.values()]
            self._patterns = n_classes, complete, groups
        return self._patterns[1:]

    def _group(self, patterns: list[tuple[IntArray, BoolArray]], codes: IntArray | None) -> Patterns:
        rows = np.full((len(patterns), max(len(own) for own, _ in patterns)), -1)
        for number, (own, _) in enumerate(patterns):
            rows[number, : len(own)] = own
        index = np.where(rows >= 0, rows, rows[:, :1])
        weights = np.where(rows >= 0, 1.0 if self.weights is None else self.weights[index], 0.0)
        return Patterns(
            rows,
            like(np.array([seen for _, seen in patterns]), self.X),
            like(index, self.X),
            as_float64(weights, self.X),
            None if codes is None else like(codes[index].astype(np.int64), self.X),
        )

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the complete rows."""
        complete = None if self._patterns is None else self._patterns[1]
        return super().assumed if complete is None else complete.assumed

    def clear_cache(self) -> None:
        """Free the memory cached between passes."""
        self._patterns = None
