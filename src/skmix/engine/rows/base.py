"""The protocol of row sources, and rows in NumPy arrays, complete or with gaps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..estep import gaps, host
from ..estep.gaps import Chunk
from ..estep.reference import Kernels, Rows, native
from ..numbers import Array
from ..records import BoolArray, Factor, FloatArray, Frame, IntArray, Parameters, Setting, Statistics
from .summary import Summary, summarise

# Mask (R, K) of recentred kernels, and their origins (R, K, M).
Centres = tuple[BoolArray, FloatArray]
# The statistics of some rows, and the origins (R, K, M) of their moments.
Expected = tuple[Statistics, FloatArray]
# One pass: from parameters and their factor to the next ones, and the log-likelihood (R, C) of the first.
Step = Callable[[Parameters, Factor], tuple[Parameters, Factor, FloatArray]]


def origins_of(
    parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None
) -> FloatArray:
    """Return the origins (R, K, M) of moments: the means, or the centres of the kernels that have one.

    They are zero where moments are products of matrices. If some kernels lose digits, the pass is repeated
    with centres for these; the others keep their origins.
    """
    means = parameters.means
    near = host.near_origin(means, factor, setting.structure, parameters.tail)
    origins = np.where(near[:, None, None], 0.0, means) if near.any() else means
    return origins if centres is None else np.where(centres[0][..., None], centres[1], origins)


class RowSource(ABC):
    """Labelled rows: in memory, with gaps, on a device, in blocks."""

    n_features: int
    summary: Summary  # computed on first use and cached
    is_shared_out: bool = False  # whether others run the blocks, on cores that they share out

    @abstractmethod
    def with_features(self, columns: Sequence[int]) -> RowSource:
        """Return the rows with some of their features: those that have a value in any of them."""

    @abstractmethod
    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        """Return rows (s, M) for the starts, their class codes (s,), −1 for none, and weights (s,)."""

    @abstractmethod
    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        """Do the E-step: return the statistics of all rows, and the origins (R, K, M) of their moments.

        `parameters` are in the frame; with unlabelled rows, their weights are the last column. `factor` is
        that of the covariances. `centres` are origins for the moments of some kernels.
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
        chosen, summary = list(columns), vars(self).get("summary")
        summary = None if summary is None else summary.with_features(chosen)
        return type(self)(self.X[:, chosen], self.codes, self.weights, summary)

    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
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


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    _seen: tuple[int, Rows] | None = None  # number of classes, rows in a frame
    scatter: tuple[Frame, FloatArray] | None = None  # (M, M): of the rows in a frame, once known

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        origins = origins_of(parameters, factor, setting, centres)
        kernels = Kernels.of(parameters, factor, setting.structure)
        rows, with_moments = self._rows_in(setting.frame, parameters), setting.with_moments
        found = host.expect(rows, kernels, origins, setting.pool, with_moments=with_moments)
        if "scatter" in vars(rows):
            self.scatter = setting.frame, rows.scatter
        return found, origins

    def _rows_in(self, frame: Frame, parameters: Parameters) -> Rows:
        """Return the rows in a frame, cached, with codes of the classes of the parameters."""
        n_classes = parameters.weights.shape[-1]
        if self._seen is None or self._seen[0] != n_classes or self._seen[1].frame is not frame:
            rows = Rows(native(self.X), self.codes_within(n_classes), self.weights, frame)
            if self.scatter is not None and self.scatter[0] is frame:
                vars(rows)["scatter"] = self.scatter[1]
            self._seen = n_classes, rows
        return self._seen[1]

    def clear_cache(self) -> None:
        self._seen = self.scatter = None


class GapRows(ArrayRows):
    """Rows with missing values, NaN; each row has at least one value."""

    # The frame, the numbers of classes and of rows in a chunk, the complete rows and the others.
    _cached: tuple[Frame, tuple[int, int], MemoryRows | None, list[Chunk]] | None = None

    def with_features(self, columns: Sequence[int]) -> GapRows:
        X = self.X[:, list(columns)]
        seen = np.flatnonzero(~np.isnan(X).all(axis=1))
        return GapRows(X[seen], *self.of_rows(seen))

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        origins = origins_of(parameters, factor, setting, centres)
        sizes = parameters.weights.shape[-1], gaps.chunk_size(*origins.shape[1:])
        if self._cached is None or self._cached[0] is not setting.frame or self._cached[1] != sizes:
            self._cached = setting.frame, sizes, *self._parts(setting.frame, *sizes)
        _, _, complete, chunks = self._cached
        found = None
        if complete is not None:
            found = complete.expect(parameters, factor, setting, centres)[0]
        if chunks:
            others = gaps.expect(chunks, parameters, factor, setting, origins)
            found = others if found is None else found.plus(others)
        assert found is not None
        return found, origins

    def _parts(self, frame: Frame, n_classes: int, size: int) -> tuple[MemoryRows | None, list[Chunk]]:
        """Return the complete rows, and the others in chunks of that size."""
        is_complete = ~np.isnan(self.X).any(axis=1)
        full = np.flatnonzero(is_complete)
        complete = MemoryRows(self.X[full], *self.of_rows(full)) if len(full) else None
        rows = Rows(native(self.X), self.codes_within(n_classes), self.weights, frame)
        return complete, gaps.chunks_of(rows, np.flatnonzero(~is_complete), size)

    def clear_cache(self) -> None:
        self._cached = None
