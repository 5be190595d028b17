"""Rows on a device, complete or with gaps: PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from ..compute.arrays import (
    Array,
    as_float64,
    constant,
    namespace,
    occurs,
    operations_of,
    pick,
    recorded,
    to_numpy,
)
from ..compute.threads import Workers
from ..estep import masked
from ..estep.coverage import DEVICE, DEVICE_GAPS
from ..estep.device import Assumed, FramedRows, order_by_class, prepare
from ..estep.masked import Patterns
from ..estep.terms import log_mix, moved
from ..model import (
    FARTHEST,
    MODEL_RANGE,
    Factor,
    FloatArray,
    Frame,
    IntArray,
    Parameters,
    Setting,
    Statistics,
    frame_of,
)
from ..structures import Structure
from ..tails import Tail
from .base import ArrayRows, Centres, Step, origins_of
from .summary import chunks


class DeviceRows(ArrayRows):
    """Complete rows of a tensor; passes run on its device."""

    covers = DEVICE
    keeps_terms = True
    """Whether expanded rows are kept between passes, if there is memory for them."""
    _framed: FramedRows | None = None

    def take(self, columns: Sequence[int]) -> DeviceRows:
        """Return the same rows with some of their features."""
        return type(self)(self.X[:, list(columns)], self.codes, self.weights)

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
            order = order_by_class(self.X, self.codes_within(n_classes), n_classes, self.weights)
            given = setting.frame, setting.structure, setting.precision, self.keeps_terms
            self._framed = rows = FramedRows(self.X, order, *given)
        return rows

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> Array:
        """Evaluate the kernels, on the device of the rows; see `ArrayRows`."""
        X, xp = self.X, namespace(self.X)
        frame, inside = self._entered(parameters, structure)
        scale, shift = self.to_device(frame.scale), self.to_device(frame.shift)
        parts = [xp.all(xp.abs(X[cut, :] / scale - shift) <= MODEL_RANGE, axis=1) for cut in chunks(X)]
        is_near = np.concatenate([to_numpy(part) for part in parts])
        results, numbers = [], []
        # Rows near the model are evaluated from expanded terms, whatever the others are.
        for index, bound in ((np.flatnonzero(is_near), MODEL_RANGE), (np.flatnonzero(~is_near), FARTHEST)):
            if not len(index):
                continue
            some = X if len(index) == len(X) else pick(X, index)
            order = order_by_class(some, None, 1, None)
            rows = FramedRows(some, order, replace(frame, bound=np.full(X.shape[1], bound)), structure)
            prepared = prepare(inside, structure, rows.bounds)
            level = float(to_numpy(prepared.levels)[0]) - frame.log_volume()

            def reduced(values: Array, level: float = level) -> Array:
                own = values[0] + level
                return own.T if weights is None else log_mix(own, weights).T

            results += rows.map_joints(prepared, reduced)
            numbers.append(index)
        found = xp.concat(results)
        return found if len(numbers) == 1 else pick(found, np.argsort(np.concatenate(numbers)))

    def _entered(self, parameters: Parameters, structure: Structure) -> tuple[Frame, Parameters]:
        """Return the frame of one model, and its parameters (1, …) there with weights of one."""
        frame = frame_of(parameters, structure)
        unweighted = replace(parameters.batch(), weights=np.ones((1, len(parameters.means), 1)))
        return frame, frame.enter(unweighted, structure).map(self.to_device)

    def to_device(self, array: Array) -> Array:
        """Return an array as float64 numbers on the device."""
        return as_float64(array, self.X)

    def wrap_step(self, step: Step, setting: Setting) -> Step:
        """Return the step as optimistic passes."""
        return OptimisticStep(step, self)

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the rows."""
        return ((), (), 0) if self._framed is None else self._framed.assumed

    def clear_cache(self) -> None:
        """Free the memory cached between passes."""
        self._framed = None


class MaskedRows(DeviceRows):
    """Rows of a tensor with missing values, NaN; each row has at least one value."""

    covers = DEVICE_GAPS
    # The number of classes, the complete rows and their numbers, and the other rows.
    _parts: tuple[int, DeviceRows | None, IntArray, list[Patterns]] | None = None

    def take(self, columns: Sequence[int]) -> MaskedRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = self.X[:, list(columns)]
        seen = np.flatnonzero(~to_numpy(X.isnan().all(dim=1)))
        return MaskedRows(pick(X, seen), *self.of_rows(seen))

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, Array]:
        """Do the E-step; see `RowSource`."""
        _, complete, _, patterns = self._grouped(parameters.weights.shape[-1])
        origins, parts = origins_of(parameters, centres), []
        about = None if centres is None else origins
        if complete is not None:
            found, own = complete.expect(parameters, factor, setting, centres, moments)
            parts.append(moved(found, own, origins, setting.structure) if moments else found)
        with operations_of(self.X).precision(setting.precision):
            for some in patterns:
                parts += masked.expect(self.X, some, parameters, setting, about, moments)
        return reduce(Statistics.plus, parts), origins

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> Array:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        frame, inside = self._entered(parameters, structure)
        _, complete, index, patterns = self._grouped(1)
        results, numbers = [], []
        if complete is not None:
            results.append(complete.log_densities(parameters, structure, pool, weights))
            numbers.append(index)
        for some in patterns:
            for rows, values in masked.log_densities(self.X, some, inside, structure, frame):
                results.append((values if weights is None else log_mix(values, weights)).T)
                numbers.append(rows)
        return pick(namespace(self.X).concat(results), np.argsort(np.concatenate(numbers)))

    def _grouped(self, n_classes: int) -> tuple[int, DeviceRows | None, IntArray, list[Patterns]]:
        """Return the parts of the rows, cached."""
        if self._parts is None or self._parts[0] != n_classes:
            seen = ~to_numpy(self.X.isnan())
            whole, complete = np.flatnonzero(seen.all(axis=1)), None
            if len(whole):
                complete = DeviceRows(pick(self.X, whole), *self.of_rows(whole))
                complete.keeps_terms = self.keeps_terms
            patterns = masked.group(self.X, seen, self.codes_within(n_classes), self.weights)
            self._parts = n_classes, complete, whole, patterns
        return self._parts

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the complete rows."""
        complete = None if self._parts is None else self._parts[1]
        return super().assumed if complete is None else complete.assumed

    def clear_cache(self) -> None:
        """Free the memory cached between passes."""
        self._parts = None


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
