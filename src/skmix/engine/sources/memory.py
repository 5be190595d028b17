"""Rows in memory, as NumPy holds them, without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..compute.arrays import Array
from ..compute.threads import workers
from ..model import Factor, FloatArray, IntArray, Parameters, Statistics
from .base import Centres, Step
from .expanded import Rows, gather, prepare
from .summary import Setting, Summary, summarise


class HostRows:
    """Rows X (N, M) of NumPy with class codes (N,), −1 for rows without a label, and positive weights (N,).

    Codes of None are one class; a row of weight two counts like two rows.
    """

    def __init__(self, X: np.ndarray, codes: IntArray | None, weights: FloatArray | None = None) -> None:
        self.X, self.codes, self.weights = X, codes, weights

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return int(self.X.shape[1])

    @cached_property
    def summary(self) -> Summary:
        """What one look at all rows finds."""
        with workers(1):
            return summarise(self.X, self.codes, self.weights)

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        """Return all rows, their class codes (N,), and their weights (N,)."""
        codes = np.zeros(len(self.X), dtype=np.int64) if self.codes is None else self.codes
        return self.X, codes, self.weights

    def codes_within(self, n_classes: int) -> IntArray | None:
        """Return class codes (N,) in which rows without a label are the last of `n_classes`."""
        if self.codes is None or n_classes == 1:
            return None
        return np.where(self.codes < 0, n_classes - 1, self.codes)

    def place(self, array: Array) -> Array:
        """Return the array: parameters are on the host."""
        return array

    def quick(self, step: Step, setting: Setting) -> Step:
        """Return the step as it is."""
        return step

    def forget(self) -> None:
        """Drop memory that was kept from pass to pass."""


class MemoryRows(HostRows):
    """Rows without gaps."""

    _rows: Rows | None = None

    def take(self, columns: Sequence[int]) -> MemoryRows:
        """Return the same rows with some of their features."""
        own = MemoryRows(self.X[:, list(columns)], self.codes, self.weights)
        if "summary" in vars(self):
            vars(own)["summary"] = self.summary.take(columns)
        return own

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`."""
        rows = self._rows_in(setting, parameters.weights.shape[-1])
        prepared = prepare(parameters, setting.structure, setting.frame.bound, factor)
        if centres is not None:
            prepared = prepared.recentre(*centres)
        return gather(rows, prepared, setting.pool, moments=moments), prepared.origins

    def _rows_in(self, setting: Setting, n_classes: int) -> Rows:
        """Return the rows ordered by class and ready to be expanded; kept while the setting is the same."""
        rows = self._rows
        if rows is None or not rows.suits(setting, n_classes):
            codes = self.codes_within(n_classes)
            rows = Rows(self.X, codes, n_classes, setting.frame, setting.structure, self.weights)
            self._rows = rows
        return rows

    def forget(self) -> None:
        """Drop the rows that were expanded."""
        self._rows = None
