"""Complete rows on a device: PyTorch tensors."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..kernels import Tail
from ..numbers import (
    Array,
    as_float64,
    constant,
    namespace,
    occurs,
    operations_of,
    recorded,
    to_numpy,
)
from ..records import Factor, FloatArray, Parameters, Setting
from ..rows.source import ArrayRows, Centres, Expected, Step
from .passes import Assumed, FramedRows, expand, order_by_class


class DeviceRows(ArrayRows):
    """Complete rows of a tensor; passes run on its device."""

    samples_are_quicker = False
    keeps_terms = True
    """Whether expanded rows are kept between passes, if there is memory for them."""
    _framed: FramedRows | None = None

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        rows = self.framed(setting, parameters.weights.shape[-1])
        expanded = expand(parameters, setting.structure, rows.bounds, factor, centres, setting.precision)
        return rows.collect(expanded, with_moments=setting.with_moments), expanded.origins

    def framed(self, setting: Setting, n_classes: int) -> FramedRows:
        """Return the rows in the frame of a setting, cached."""
        rows = self._framed
        if rows is None or rows.frame is not setting.frame or rows.n_classes != n_classes:
            order = order_by_class(self.X, self.codes_within(n_classes), n_classes, self.weights)
            given = setting.frame, setting.structure, setting.precision, self.keeps_terms
            self._framed = rows = FramedRows(self.X, order, *given)
        return rows

    def to_device(self, array: Array) -> Array:
        return as_float64(array, self.X)

    def wrap_step(self, step: Step) -> Step:
        return OptimisticStep(step, self)

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes of the rows."""
        return ((), (), 0) if self._framed is None else self._framed.assumed

    def clear_cache(self) -> None:
        self._framed = None


class OptimisticStep:
    """Passes that assume that no rare condition holds, and check afterwards.

    A covariance may fall below its floor, a factor lose digits, a kernel become narrow. Reading such a
    condition makes the host wait for the device, often for longer than the work takes. An optimistic pass
    records the conditions, and reads them at its end with the log-likelihoods. If one held, the pass is
    repeated with every check, and so are the following ones until none holds. As many kernels as before are
    expected to be at the floor, and to be computed from differences.
    """

    def __init__(self, step: Step, source: DeviceRows) -> None:
        self._step = step
        self._source = source
        # Names of the arrays that are present: a posterior has `counts`.
        self._names: list[str] = []
        self._expected: list[int] = []
        # Not a method: a cycle of references would keep CUDA graphs alive after the fit.
        work = partial(_work_optimistically, step, self._names, self._expected)
        self._captured = operations_of(source.X).capture(work)
        self._careful = True

    def __call__(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do a pass, optimistically after one in which no condition held."""
        if not self._careful:
            following, next_factor, report = self._try(parameters, factor)
            if not report[0, -1]:
                return following, next_factor, report[:, :-1]
        with recorded() as conditions:
            found = self._step(parameters, factor)
            self._careful = any(conditions.held)
            self._expected[:] = conditions.counts
        return found

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
    # Where a condition held, the numbers are not used.
    with recorded(list(expected)) as conditions:
        entered = Parameters(**dict(zip(names, given, strict=True)))
        following, factor, log_likelihood = step(entered, Factor(whitener, log_determinant, usable))
        occurs(~factor.usable)
        held = xp.astype(xp.any(xp.concat(conditions.held)), xp.float64)
    held = xp.broadcast_to(held, (log_likelihood.shape[0], 1))
    report = xp.concat([log_likelihood, held], axis=1)
    made = [a for a in vars(following).values() if not isinstance(a, Tail | None)]
    return [*made, factor.whitener, factor.log_determinant, report]
