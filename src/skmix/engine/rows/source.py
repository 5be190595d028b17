"""Row sources: the protocol, and rows in memory, complete or with gaps.

A source holds rows with their classes and weights, wherever they are, and does the E-step over them. What
callers need to know about the rows is a method or an attribute here, so that nobody asks what a source is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import starmap
from typing import Any, Self, TypeVar

import numpy as np

from ..._core import core
from ..estep import gaps, host
from ..estep.gaps import Chunk
from ..estep.inputs import FEW_OPERATIONS, Kernels, Rows, operations
from ..measured import values_of
from ..numbers import Array, Record, pick, to_numpy
from ..records import (
    BoolArray,
    Climbed,
    Factor,
    FloatArray,
    Frame,
    IntArray,
    Parameters,
    Regulariser,
    Setting,
    Statistics,
)
from ..structures import Structure
from .summary import Summary, summarise

# Mask (R, K) of recentred kernels, and their origins (R, K, M).
Centres = tuple[BoolArray, FloatArray]
# The statistics of some rows, and the origins (R, K, M) of their moments.
Expected = tuple[Statistics, FloatArray]
# One pass: from parameters and their factor to the next ones, and the log-likelihood (R, C) of the first.
Step = Callable[[Parameters, Factor], tuple[Parameters, Factor, FloatArray]]
# From the number of a block and the number of its rows to the indices (m,) of the rows to use, and the class
# codes (m,) that they have from then on, None for one class.
Selection = Callable[[int, int], tuple[IntArray, IntArray | None]]
# A function reduce(work, merge, empty), which calls work(code, source) with rows of each class, and merges
# the answers; `empty` is the answer for no rows. Rows of a class may come in several sources.
ReduceClasses = Callable[[Callable[..., Any], Callable[[Any, Any], Any], Any], Any]
Some = TypeVar("Some", bound=Record)
# What passes keep.
Kept = TypeVar("Kept")


class RowSource(ABC):
    """Rows with classes and weights: in memory, with gaps, on a device, in blocks."""

    runs_elsewhere: bool = False
    """Whether other processes or threads, which share out the cores, work on the rows."""
    splits_classes: bool = True
    """Whether `by_class` is possible."""
    samples_are_quicker: bool = True
    """Whether passes over a sample of the rows are quicker in proportion: on a device they are not."""

    def __init__(self, n_features: int, summary: Summary | None) -> None:
        self.n_features = n_features
        self._summary = summary
        # What passes keep, and the frame and the key for which it was made.
        self._kept: tuple[Frame | None, Any, Any] = (None, None, None)

    @property
    def summary(self) -> Summary:
        """The summary of all rows, computed on first use unless the source was made with it."""
        if self._summary is None:
            self._summary = self._summarise()
        return self._summary

    @property
    def error_variances(self) -> FloatArray | None:
        """Mean variances (M,) of the errors of the values, if they have any."""
        return None

    @abstractmethod
    def _summarise(self) -> Summary:
        """Compute the summary, in one pass over all rows."""

    @abstractmethod
    def with_features(self, columns: Sequence[int]) -> RowSource:
        """Return the rows with some of their features: the rows that have a value in any of them."""

    @abstractmethod
    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        """Return rows (s, M) for the starts, their class codes (s,), −1 for none, and weights (s,)."""

    @abstractmethod
    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        """Do the E-step: return the statistics of all rows, and the origins (R, K, M) of their moments.

        `parameters` are in the frame; with unlabelled rows, their weights are the last column. `factor` is
        the factor of their covariances. `centres` are origins for the moments of some kernels.
        """

    @abstractmethod
    def by_class(self, selection: Selection | None = None) -> ReduceClasses:
        """Return a function that works on the rows of each class apart, or on the selected ones."""

    def climbs(self, n_kernels: int, n_features: int, structure: Structure) -> bool:
        """Whether `climb` is quicker than passes one by one."""
        return False

    def climb(
        self,
        parameters: Parameters,
        factor: Factor,
        regulariser: Regulariser,
        setting: Setting,
        stopping: dict[str, Any],
    ) -> Climbed:
        """Make several passes of EM from one start at once, see `host.climb`; only where it `climbs`."""
        raise NotImplementedError

    def to_device(self, array: Array) -> Array:
        """Move a host array to where passes run; by default the host."""
        return array

    def send(self, record: Some) -> Some:
        """Return a record of host arrays with its arrays where passes run."""
        return record if self._is_on_host else record.map(self.to_device)

    def fetch(self, record: Some) -> Some:
        """Return a record of arrays from where passes run with its arrays on the host."""
        return record if self._is_on_host else record.map(to_numpy)

    @property
    def _is_on_host(self) -> bool:
        return type(self).to_device is RowSource.to_device

    def wrap_step(self, step: Step) -> Step:
        """Return an equivalent pass that may be faster on these rows."""
        return step

    def clear_cache(self) -> None:
        """Free the memory that passes keep."""
        self._kept = (None, None, None)

    def _keep(self, frame: Frame, key: Any, make: Callable[[], Kept]) -> Kept:
        """Return what `make` returns, kept between passes with the same frame and key."""
        if self._kept[0] is not frame or self._kept[1] != key:
            self.clear_cache()  # before the next value takes memory
            self._kept = frame, key, make()
        value: Kept = self._kept[2]
        return value


# ---------------------------------------------------------------- rows in memory


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
        super().__init__(int(X.shape[1]), summary)
        self.X, self.codes, self.weights = X, codes, weights

    def _summarise(self) -> Summary:
        return summarise(self.X, self.codes, self.weights)

    def with_features(self, columns: Sequence[int]) -> ArrayRows:
        chosen = list(columns)
        summary = None if self._summary is None else self._summary.with_features(chosen)
        return type(self)(self.X[:, chosen], self.codes, self.weights, summary)

    def start_rows(self) -> tuple[Array, IntArray, FloatArray | None]:
        return self.X, self._all_codes(), self.weights

    def by_class(self, selection: Selection | None = None, number: int = 0) -> ReduceClasses:
        """See `RowSource`; these are the rows of the block of that number."""
        n_rows, new_codes = self.X.shape[0], None
        chosen = np.arange(n_rows)
        if selection is not None:
            chosen, new_codes = selection(number, n_rows)
        classes = self._all_codes()[chosen]
        order = np.argsort(classes, kind="stable")
        present, first = np.unique(classes[order], return_index=True)
        parts: list[tuple[int, ArrayRows]] = []
        # Without any row there is one empty list of members, and no class.
        for code, members in zip(present.tolist(), np.split(order, first[1:]), strict=False):
            X, _, weights = self._at(chosen[members])
            parts.append((code, type(self)(X, None if new_codes is None else new_codes[members], weights)))
        return partial(_reduce_parts, parts)

    def _with_value(self, columns: list[int]) -> Self:
        """Return some features of the rows that have a value in any of them."""
        X = self.X[:, columns]
        has_value = np.flatnonzero(~np.isnan(values_of(X)).all(axis=1))
        _, codes, weights = self._at(has_value)
        return type(self)(X[has_value], codes, weights)

    def codes_within(self, n_classes: int) -> IntArray | None:
        """Return class codes (N,) in which rows without a label are the last of `n_classes`."""
        if n_classes == 1:
            return None
        codes = self._all_codes()
        return np.where(codes < 0, n_classes - 1, codes)

    def _all_codes(self) -> IntArray:
        return np.zeros(self.X.shape[0], dtype=np.int64) if self.codes is None else self.codes

    def _at(self, index: IntArray) -> tuple[Array, IntArray | None, FloatArray | None]:
        """Return some rows (m, M), given by increasing indices (m,), with their codes and weights."""
        if len(index) == self.X.shape[0]:
            return self.X, self.codes, self.weights
        codes = None if self.codes is None else self.codes[index]
        return pick(self.X, index), codes, None if self.weights is None else self.weights[index]


def _reduce_parts(parts: list[tuple[int, ArrayRows]], work: Any, merge: Any, empty: Any) -> Any:
    """See `ReduceClasses`; the source of each class keeps what its passes keep."""
    return reduce(merge, starmap(work, parts), empty)


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        kernels = Kernels.of(parameters, factor, setting.structure, centres)
        rows = self.in_frame(setting.frame, parameters.weights.shape[-1])
        statistics = host.expect(rows, kernels, setting.pool, with_moments=setting.with_moments)
        return statistics, kernels.origins

    def climbs(self, n_kernels: int, n_features: int, structure: Structure) -> bool:
        # Whatever the number of threads, so that it does not change the result.
        is_small = operations(len(self.X), n_kernels, n_features) <= FEW_OPERATIONS
        return is_small and core() is not None and not structure.shared

    def climb(
        self,
        parameters: Parameters,
        factor: Factor,
        regulariser: Regulariser,
        setting: Setting,
        stopping: dict[str, Any],
    ) -> Climbed:
        rows = self.in_frame(setting.frame, parameters.weights.shape[-1])
        return host.climb(rows, parameters, factor, setting.structure, regulariser, stopping)

    def in_frame(self, frame: Frame, n_classes: int) -> Rows:
        """Return the rows in a frame, with codes of `n_classes` classes; they are kept between passes."""

        def make() -> Rows:
            return Rows(self.X, self.codes_within(n_classes), self.weights, frame, n_classes)

        return self._keep(frame, n_classes, make)


class GapRows(ArrayRows):
    """Rows with missing values, NaN; each row has at least one value."""

    def with_features(self, columns: Sequence[int]) -> GapRows:
        return self._with_value(list(columns))

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        kernels = Kernels.of(parameters, factor, setting.structure, centres)
        frame, n_classes = setting.frame, parameters.weights.shape[-1]
        size = gaps.chunk_size(*kernels.means.shape[1:])
        divide = partial(self._divided, frame, n_classes, size)
        complete, chunks = self._keep(frame, (n_classes, size), divide)
        parts: list[Statistics] = []
        if len(complete.X):
            parts.append(complete.expect(parameters, factor, setting, centres)[0])
        if chunks:
            covariances, with_moments = parameters.covariances, setting.with_moments
            parts.append(gaps.expect(chunks, kernels, covariances, setting.pool, with_moments=with_moments))
        return reduce(Statistics.plus, parts), kernels.origins

    def _divided(self, frame: Frame, n_classes: int, size: int) -> tuple[MemoryRows, list[Chunk]]:
        """Return the complete rows, and the others in chunks of that size."""
        is_complete = ~np.isnan(self.X).any(axis=1)
        complete = MemoryRows(*self._at(np.flatnonzero(is_complete)))
        rows = Rows(self.X, self.codes_within(n_classes), self.weights, frame)
        return complete, gaps.chunks_of(rows, np.flatnonzero(~is_complete), size)
