"""The protocol of row sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..compute.arrays import Array, namespace
from ..estep.coverage import COMPLETE, Coverage
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from .summary import Summary, summarise

# Mask (R, K) of recentred kernels, and their origins (R, K, M).
Centres = tuple[BoolArray, FloatArray]
# One pass: from parameters and their factor to the next ones, and the log-likelihood (R, C) of the first.
Step = Callable[[Parameters, Factor], tuple[Parameters, Factor, FloatArray]]


def origins_of(parameters: Parameters, centres: Centres | None) -> Array:
    """Return the origins (R, K, M) of moments: the means, or the centres of the kernels that have one."""
    if centres is None:
        return parameters.means
    return namespace(parameters.means).where(centres[0][..., None], centres[1], parameters.means)


class RowSource(ABC):
    """Labelled rows: in memory, with gaps, on a device, in blocks."""

    n_features: int
    summary: Summary  # computed on first use and cached
    covers: Coverage = COMPLETE  # the models that passes over these rows cover

    @abstractmethod
    def with_features(self, columns: Sequence[int]) -> RowSource:
        """Return the rows with some of their features: those that have a value in any of them."""

    @abstractmethod
    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        """Return rows (s, M) for the starts, their class codes (s,), −1 for none, and weights (s,)."""

    @abstractmethod
    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step: return the statistics of all rows, and the origins (R, K, M) of their moments.

        `parameters` are in the frame; with unlabelled rows, their weights are the last column. `factor` is
        that of the covariances. `centres` are origins for the moments of some kernels. Without `moments`
        only the log-likelihood is defined.
        """

    def to_device(self, array: Array) -> Array:
        """Move a host array to where passes run; by default the host."""
        return array

    def wrap_step(self, step: Step) -> Step:
        """Return an equivalent pass that may be faster on these rows."""
        return step

    def clear_cache(self) -> None:  # noqa: B027
        """Free the memory cached between passes."""


class ArrayRows(RowSource):
    """Rows X (N, M) of one array, with class codes (N,), −1 for none, and positive weights (N,).

    Codes of None mean one class; a row of weight two counts as two. Codes and weights are NumPy arrays.
    """

    def __init__(
        self,
        X: Any,
        codes: IntArray | None,
        weights: FloatArray | None = None,
        summary: Summary | None = None,
    ) -> None:
        self.X, self.codes, self.weights = X, codes, weights
        self.n_features = int(X.shape[1])
        if summary is not None:
            vars(self)["summary"] = summary

    @cached_property
    def summary(self) -> Summary:  # type: ignore[override]
        """Data summary of the rows."""
        return summarise(self.X, self.codes, self.weights)

    def with_features(self, columns: Sequence[int]) -> ArrayRows:
        """Return the rows with some of their features; see `RowSource`."""
        chosen, summary = list(columns), vars(self).get("summary")
        summary = None if summary is None else summary.with_features(chosen)
        return type(self)(self.X[:, chosen], self.codes, self.weights, summary)

    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        """Return all rows, their class codes (N,), and their weights (N,)."""
        codes = np.zeros(self.X.shape[0], dtype=np.int64) if self.codes is None else self.codes
        return self.X, codes, self.weights

    def of_rows(self, index: IntArray) -> tuple[IntArray | None, FloatArray | None]:
        """Return the class codes and weights of some rows."""
        return (
            None if self.codes is None else self.codes[index],
            None if self.weights is None else self.weights[index],
        )

    def codes_within(self, n_classes: int) -> IntArray | None:
        """Return class codes (N,) in which rows without a label are the last of `n_classes`."""
        if n_classes == 1:
            return None
        if self.codes is None:
            return np.zeros(self.X.shape[0], dtype=np.int64)
        return np.where(self.codes < 0, n_classes - 1, self.codes)
