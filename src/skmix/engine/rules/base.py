"""What the loop asks of an update rule: from statistics to the next parameters, never from rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ..model import BoolArray, Factor, FloatArray, Parameters, Prior, Statistics


class UpdateRule(Protocol):
    """How parameters improve, for R starts at once, in the coordinates of the loop."""

    @property
    def freeze(self) -> str | None:
        """What keeps its starting value: 'kernels', 'weights' or nothing."""
        ...

    @property
    def prior(self) -> Prior | None:
        """Of a rule that climbs a bound of the evidence, which the stopping rule then watches."""
        ...

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return parameters that a pass may start from, sharing no memory, and their factor."""
        ...

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> tuple[Parameters, Factor, BoolArray]:
        """Return the next parameters, their factor, and the kernels (R, K) whose covariances lost digits.

        `origins` (R, K, M) are what the moments were taken about; `factor` is that of `previous`. A start
        that is not usable in the new factor has degenerated. Kernels that lost digits want moments about
        their new means.
        """
        ...

    def objective(self, log_likelihood: FloatArray, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return what the rule maximises (R,), given the log-likelihoods (R, C), on the host."""
        ...

    def finish(self, parameters: Parameters) -> Parameters:
        """Return the point estimates of final parameters."""
        ...


def with_frozen(rule: UpdateRule, parameters: Parameters, previous: Parameters) -> Parameters:
    """Return parameters with what the rule freezes as it was before."""
    if rule.freeze == "kernels":
        return replace(parameters, means=previous.means, covariances=previous.covariances)
    if rule.freeze == "weights":
        return replace(parameters, weights=previous.weights)
    return parameters
