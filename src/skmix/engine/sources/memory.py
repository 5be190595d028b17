"""Rows in a NumPy array, complete or with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..compute.threads import Workers
from ..estep import gaps, memory
from ..estep.coverage import GAPS
from ..estep.gaps import Chunk
from ..estep.reference import Kernels, Rows
from ..model import Factor, FloatArray, Frame, Parameters, Setting, Statistics
from ..structures import Structure
from .base import ArrayRows, Centres, origins_of


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    _seen: tuple[Frame, int, Rows] | None = None
    _grouping: Any = None  # how rows are grouped around many kernels
    scatter: tuple[Frame, FloatArray] | None = None  # (M, M): of the rows in a frame, once known

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
        n_classes, origins = parameters.weights.shape[-1], origins_of(parameters, centres)
        if self._seen is None or self._seen[0] is not setting.frame or self._seen[1] != n_classes:
            rows = memory.in_frame(self.X, setting.frame, self.codes_within(n_classes), self.weights)
            self._seen, self._grouping = (setting.frame, n_classes, rows), None
            if self.scatter is not None and self.scatter[0] is setting.frame:
                vars(rows)["scatter"] = self.scatter[1]
        rows = self._seen[2]
        kernels = Kernels.of(parameters, factor, setting.structure)
        found, self._grouping = memory.expect(
            rows, kernels, origins, setting, self._grouping, moments=moments
        )
        if "scatter" in vars(rows):
            self.scatter = setting.frame, rows.scatter
        return found, origins

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> FloatArray:
        """Evaluate the kernels; see `ArrayRows`."""
        return memory.log_densities(self.X, parameters, structure, pool, weights)

    def clear_cache(self) -> None:
        """Forget the rows in the frame."""
        self._seen = self._grouping = self.scatter = None


class GapRows(ArrayRows):
    """Rows with missing values, NaN; each row has at least one value."""

    covers = GAPS
    # The setting, the numbers of classes and of rows in a chunk, the complete rows and the others.
    _cached: tuple[Setting, tuple[int, int], Rows | None, list[Chunk]] | None = None

    def take(self, columns: Sequence[int]) -> GapRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = self.X[:, list(columns)]
        seen = np.flatnonzero(~np.isnan(X).all(axis=1))
        return GapRows(X[seen], *self.of_rows(seen))

    def expect(
        self,
        parameters: Parameters,
        factor: Factor | None,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`. Without a `factor` it is computed."""
        if factor is None:
            factor = setting.structure.factor(parameters.covariances, self.n_features)
        origins = origins_of(parameters, centres)
        sizes = parameters.weights.shape[-1], gaps.chunk_size(*origins.shape[1:])
        if self._cached is None or self._cached[0] is not setting or self._cached[1] != sizes:
            self._cached = setting, sizes, *self._parts(setting, *sizes)
        _, _, complete, chunks = self._cached
        return gaps.expect(complete, chunks, parameters, factor, setting, origins, moments=moments), origins

    def _parts(self, setting: Setting, n_classes: int, size: int) -> tuple[Rows | None, list[Chunk]]:
        """Return the complete rows, and the others in chunks of that size."""
        rows = memory.in_frame(self.X, setting.frame, self.codes_within(n_classes), self.weights)
        full, complete = ~np.isnan(self.X).any(axis=1), None
        if full.any():
            codes = None if rows.codes is None else rows.codes[full]
            weights = None if rows.weights is None else rows.weights[full]
            complete = replace(rows, X=rows.X[full], codes=codes, weights=weights)
        return complete, gaps.chunks_of(rows, np.flatnonzero(~full), size)

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> FloatArray:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        return gaps.log_densities(self.X, parameters, structure, pool, weights)

    def clear_cache(self) -> None:
        """Free the rows in the frame."""
        self._cached = None
