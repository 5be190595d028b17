"""Row sources: the E-step for each kind of rows. Code above this package does not depend on the kind."""

from __future__ import annotations

from typing import Any

from .device.rows import DeviceRows
from .numbers import is_numpy, taken_in, to_numpy
from .records import FloatArray, IntArray
from .rows.base import ArrayRows, GapRows, MemoryRows, RowSource
from .rows.blocks import BlockRows
from .rows.labelled import is_blocks
from .rows.summary import summarise


def open_source(X: Any, codes: IntArray | None = None, weights: FloatArray | None = None) -> RowSource:
    """Return the source for rows X of any kind, with class codes (N,) and positive weights (N,).

    X is a NumPy array (N, M) of float64 or float32, NaN where a value is missing; a PyTorch tensor, on whose
    device passes run, or on the host if values are missing; or blocks, which have codes and weights of their
    own. Codes are 0 … L − 1, and −1 for rows without a label; None for one class.
    """
    if isinstance(X, RowSource):
        return X
    if is_blocks(X):
        return BlockRows(X)
    X = X if is_numpy(X) else taken_in(X)
    summary = summarise(X, codes, weights)
    if summary.gaps:
        return GapRows(to_numpy(X), codes, weights, summary)
    kind: type[ArrayRows] = MemoryRows if is_numpy(X) else DeviceRows
    return kind(X, codes, weights, summary)


__all__ = ["RowSource", "open_source"]
