"""The protocol of row sources: what the loop asks of rows, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..compute.arrays import Array
from ..model import BoolArray, Factor, FloatArray, Parameters, Statistics
from .summary import Setting, Summary

# Kernels (R, K) whose moments to take about given points (R, K, M).
Centres = tuple[BoolArray, FloatArray]
# One pass: from parameters and their factor to the next ones, and the log-likelihood (R, C) of the first.
Step = Callable[[Parameters, Factor], tuple[Parameters, Factor, FloatArray]]


class RowSource(Protocol):
    """Labelled rows: in memory, with gaps, on a device, in blocks."""

    @property
    def n_features(self) -> int:
        """Number M of features."""
        ...

    @property
    def summary(self) -> Summary:
        """What one look at all rows finds; made on first use and kept."""
        ...

    def take(self, columns: Sequence[int]) -> RowSource:
        """Return the same rows with some of their features."""
        ...

    def start_rows(self) -> tuple[Array, Any, FloatArray | None]:
        """Return rows (s, M) to make starts from, their class codes (s,), −1 for none, and weights (s,)."""
        ...

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step: return the statistics of all rows, and the origins (R, K, M) of their moments.

        Parameters
        ----------
        parameters : Parameters
            In the frame; where rows have no label, with a last column of weights for them.
        factor : Factor
            Of the covariances.
        setting : Setting
            Frame, structure and threads.
        centres : tuple of arrays of shape (R, K) and (R, K, M), optional
            Kernels whose moments to take about the given points.
        moments : bool
            False when only the log-likelihood is wanted.
        """
        ...

    def log_densities(self, parameters: Parameters, setting: Setting) -> Array:
        """Return log N(x_n; μ_k, P_k), shape (N, K), of one model in the frame."""
        ...

    def place(self, array: Array) -> Array:
        """Return a host array where the parameters of a pass must be."""
        ...

    def quick(self, step: Step, setting: Setting) -> Step:
        """Return a pass that does the same and may be faster on these rows; refuse what they cannot do."""
        ...

    def forget(self) -> None:
        """Drop memory that was kept from pass to pass."""
        ...
