"""Complete rows on a device, and optimistic passes over them.

An optimistic pass assumes that no rare condition holds: that no covariance falls below its floor, no factor
loses digits, no kernel becomes narrow. Conditions are read at its end, with the log-likelihoods. If one held,
the pass is repeated with every check, and so are the following ones until none holds. As many kernels as
before are expected to be at the floor, and to be computed from differences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..conditions import occurs, recorded
from ..kernels import Tail
from ..numbers import Array, as_float64, constant, namespace, operations_of, to_numpy
from ..records import Factor, FloatArray, Parameters, Setting, Statistics
from ..rows.source import ArrayRows, Centres, Expected, Step
from .expansion import Expansion, expand
from .framed import FramedRows


class DeviceRows(ArrayRows):
    """Complete rows of a tensor; passes run on its device."""

    samples_are_quicker = False
    keeps_terms = True
    """Whether terms of the rows are kept between passes, if there is memory for them."""

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        expansion = expand(parameters, factor, setting, centres)
        return self.sums(expansion, setting), expansion.origins

    def sums(self, expansion: Expansion, setting: Setting) -> Statistics:
        """Sum the statistics of all rows under R starts."""
        n_classes = expansion.at_mean.shape[-1]

        def make() -> FramedRows:
            classes, keeps = self.codes_within(n_classes), self.keeps_terms
            return FramedRows(self.X, classes, self.weights, n_classes, setting, keeps=keeps)

        rows = self._keep(setting.frame, n_classes, make)
        return rows.collect(expansion, with_moments=setting.with_moments)

    def to_device(self, array: Array) -> Array:
        return as_float64(array, self.X)

    def wrap_step(self, step: Step) -> Step:
        return OptimisticStep(step, self.X, lambda: self.n_dropped)

    @property
    def n_dropped(self) -> int:
        """How often kept terms were dropped, which a captured pass may read."""
        return 0 if self._kept[2] is None else int(self._kept[2].n_dropped)


class OptimisticStep:
    """A pass that is optimistic after one in which no condition held."""

    def __init__(self, step: Step, example: Array, version: Callable[[], int]) -> None:
        """Wrap a pass on the example's device; while the `version` is the same, it may be replayed."""
        self._step, self._version = step, version
        # Names of the arrays that are present: a posterior has `counts`.
        self._names: list[str] = []
        self._expected: list[int] = []  # at how many places each rare condition holds
        # Not a method: a cycle of references would keep CUDA graphs alive after the fit.
        work = partial(_work, step, self._names, self._expected)
        self._replayed = operations_of(example).replayed(work)
        self._careful = True

    def __call__(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do a pass; see `Step`."""
        if not self._careful:
            following, next_factor, report = self._try(parameters, factor)
            if not report[0, -1]:
                return following, next_factor, report[:, :-1]
        with recorded() as conditions:
            results = self._step(parameters, factor)
            self._careful = any(conditions.held)
            self._expected[:] = conditions.counts
        return results

    def _try(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do an optimistic pass. Its report (R, L + 2), on the host, ends with whether a condition held."""
        arrays = _arrays_of(parameters)
        self._names[:] = arrays
        tensors = [*arrays.values(), factor.whitener, factor.log_determinant]
        key = tuple(arrays), self._version(), tuple(self._expected)
        *values, whitener, log_determinant, report = self._replayed(tensors, key)
        following = Parameters(**dict(zip(arrays, values, strict=True)))
        usable = np.ones(report.shape[0], dtype=bool)
        return following, Factor(whitener, log_determinant, usable), to_numpy(report)


def _work(step: Step, names: list[str], expected: list[int], tensors: list[Array]) -> list[Array]:
    """Do a pass from tensors to tensors; see `OptimisticStep._try`."""
    *values, whitener, log_determinant = tensors
    xp, n_starts = namespace(whitener), whitener.shape[0]
    usable = constant(np.ones, n_starts, bool, example=whitener)
    # Where a condition held, the numbers are not used.
    with recorded(list(expected)) as conditions:
        entered = Parameters(**dict(zip(names, values, strict=True)))
        following, factor, parts = step(entered, Factor(whitener, log_determinant, usable))
        occurs(~factor.usable)
        held = xp.astype(xp.any(xp.concat(conditions.held)), xp.float64)
    report = xp.concat([parts, xp.broadcast_to(held, (n_starts, 1))], axis=1)
    return [*_arrays_of(following).values(), factor.whitener, factor.log_determinant, report]


def _arrays_of(parameters: Parameters) -> dict[str, Array]:
    # Kernels on a device have no tail.
    return {name: array for name, array in vars(parameters).items() if not isinstance(array, Tail | None)}
