"""Rows in a NumPy array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec

import numpy as np

from ..compute.threads import Workers
from ..model import Factor, FloatArray, Parameters, Statistics
from . import reference
from .base import ArrayRows, Centres
from .reference import Kernels, Rows
from .summary import FARTHEST, Frame, Setting

# Operations of a pass from which on compiled code pays: loading it takes as long as about a hundred passes.
_WORTH_COMPILING = 1 << 21


@lru_cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


def worth_compiling(n_rows: int, n_kernels: int, n_features: int) -> bool:
    """Return whether a pass over that many rows and kernels, of all starts, should run in compiled code."""
    # Whitening and moments take M² operations, an exponential and its surroundings about 20.
    return n_rows * n_kernels * (n_features**2 + 20) >= _WORTH_COMPILING and _has_numba()


def expect(
    rows: Rows, kernels: Kernels, origins: FloatArray, pool: Workers, *, compiled: bool, moments: bool = True
) -> Statistics:
    """Do the E-step on rows in memory, with moments about `origins` (R, K, M)."""
    if not compiled:
        return reference.expect(rows, kernels, origins, with_moments=moments)
    from . import compiled as fast  # Numba takes a moment to import.

    return fast.expect(rows, kernels, origins, pool, with_moments=moments)


def in_frame(X: np.ndarray, frame: Frame, codes=None, weights=None) -> Rows:  # type: ignore[no-untyped-def]
    """Return rows X (N, M), with class codes and weights (N,), seen in a frame."""
    return Rows(X, codes, weights, 1.0 / frame.scale, frame.shift, FARTHEST)


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    _seen: tuple[Frame, int, Rows] | None = None

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
        n_classes, origins = parameters.weights.shape[-1], parameters.means
        if self._seen is None or self._seen[0] is not setting.frame or self._seen[1] != n_classes:
            rows = in_frame(self.X, setting.frame, self.codes_within(n_classes), self.weights)
            self._seen = setting.frame, n_classes, rows
        if centres is not None:
            origins = np.where(centres[0][..., None], centres[1], origins)
        kernels = Kernels.of(parameters, factor, setting.structure)
        given = self._seen[2], kernels, origins, setting.pool
        return expect(*given, compiled=setting.compiled, moments=moments), origins

    def clear_cache(self) -> None:
        """Forget the rows in the frame."""
        self._seen = None
