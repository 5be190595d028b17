"""Passes on a device that ask it nothing on the way.

A pass has a few rare cases: a kernel without rows, a covariance below its floor, digits lost. To ask whether
one arises makes the host wait, and many small steps then take longer than the work itself. A hopeful pass
assumes that none arises and notes the conditions; one word back from the device, with the log-likelihoods,
tells whether all was well. If not, the pass is made again with open eyes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..compute.arrays import Array, namespace, noticing, to_numpy, unasked
from ..model import BoolArray, Factor, FloatArray, Parameters
from .device import DeviceRows

Step = Callable[[Parameters, Factor], tuple[Parameters, Factor, Array]]


class Hopeful:
    """A pass that is made without questions, as long as that goes well.

    Parameters
    ----------
    step : callable
        Makes a pass: from parameters and their factor to the next ones, and the log-likelihood (R, L).
    rows : DeviceRows
        What the step works on.
    """

    def __init__(self, step: Step, rows: DeviceRows) -> None:
        self._step = step
        self._rows = rows
        self._work_on = rows.operations.recorder(self._work)
        self._calm = False

    def __call__(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Make a pass; what it says of the starts, log-likelihoods and which are usable, is on the host."""
        if self._calm:
            following, next_factor, report = self._try(parameters, factor)
            told = to_numpy(report)
            if not told[0, -1]:
                return following, _with_usable(next_factor, told[:, -2] > 0), told[:, :-2]
        with noticing() as troubled:
            following, next_factor, log_likelihood = self._step(parameters, factor)
            self._calm = not troubled()
        told = to_numpy(log_likelihood)
        return following, _with_usable(next_factor, to_numpy(next_factor.usable)), told

    def _try(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, Array]:
        """Make a pass that assumes the best; its report (R, L + 2) ends with `usable` and any doubts."""
        given = [a for a in vars(parameters).values() if a is not None]
        arrays = [*given, factor.whitener, factor.log_determinant]
        *made, whitener, log_determinant, report = self._work_on(arrays, tuple(self._rows.delicate))
        return Parameters(*made), Factor(whitener, log_determinant, report[:, -2] > 0), report

    def _work(self, arrays: list[Array]) -> list[Array]:
        *given, whitener, log_determinant = arrays
        xp = namespace(whitener)
        usable = xp.ones_like(log_determinant[:, 0]) > 0
        with unasked() as doubts:
            following, factor, log_likelihood = self._step(
                Parameters(*given), Factor(whitener, log_determinant, usable)
            )
        doubt = xp.any(xp.stack(doubts))
        n_starts = log_likelihood.shape[0]
        ends = [factor.usable, xp.broadcast_to(doubt, (n_starts,))]
        columns = [xp.astype(end, xp.float64)[:, None] for end in ends]
        report = xp.concat([log_likelihood, *columns], axis=1)
        made = [a for a in vars(following).values() if a is not None]
        return [*made, factor.whitener, factor.log_determinant, report]


def _with_usable(factor: Factor, usable: BoolArray) -> Factor:
    return Factor(factor.whitener, factor.log_determinant, usable)
