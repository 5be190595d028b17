"""The protocol of update rules: from sufficient statistics to the next parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ..model import BoolArray, Factor, FloatArray, Parameters, Prior, Statistics


class UpdateRule(Protocol):
    """An update of the parameters of R starts, in the coordinates of the frame."""

    @property
    def freeze(self) -> str | None:
        """Which parameters stay at their starting values: 'kernels', 'weights' or None."""
        ...

    @property
    def prior(self) -> Prior | None:
        """Prior of a rule that maximises a bound of the evidence, which the stopping rule then uses."""
        ...

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return a valid copy of the parameters for a pass to start from, and its factor."""
        ...

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> tuple[Parameters, Factor, BoolArray]:
        """Return the next parameters, their factor, and the kernels (R, K) whose covariances lost digits.

        Moments are about `origins` (R, K, M); `factor` is that of `previous`. A start that is not usable in
        the new factor has degenerated. Kernels that lost digits need moments about their new means.
        """
        ...

    def objective(self, log_likelihood: FloatArray, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return what the rule maximises (R,), given the log-likelihoods (R, C), on the host."""
        ...

    def finish(self, parameters: Parameters) -> Parameters:
        """Return the point estimates of final parameters."""
        ...


def with_frozen(rule: UpdateRule, parameters: Parameters, previous: Parameters) -> Parameters:
    """Return parameters with the frozen ones restored from `previous`."""
    if rule.freeze == "kernels":
        return replace(parameters, means=previous.means, covariances=previous.covariances)
    if rule.freeze == "weights":
        return replace(parameters, weights=previous.weights)
    return parameters
