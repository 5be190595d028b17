"""Row sources: the E-step for each kind of rows. Code above this package does not depend on the kind."""

from __future__ import annotations

from typing import Any

from ..compute.arrays import is_numpy, taken_in, to_numpy
from ..compute.blocks import is_blocks
from ..compute.threads import Workers
from ..estep.reference import worth_compiling
from ..model import FloatArray, Frame, IntArray, Options, Parameters, Setting
from ..structures import Structure
from .base import ArrayRows, RowSource
from .blocks import BlockRows
from .device import DeviceRows
from .memory import GapRows, MemoryRows


def open_source(X: Any, codes: IntArray | None = None, weights: FloatArray | None = None) -> RowSource:
    """Return the source for rows of any kind.

    Parameters
    ----------
    X : array of shape (N, M), Blocks or RowSource
        Rows: a NumPy array of float64 or float32, NaN where a value is missing; a PyTorch tensor, on whose
        device passes then run, or on the host if values are missing; or blocks, which hold their class codes
        and weights.
    codes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1, and −1 for rows without a label; None for one class.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows.
    """
    if isinstance(X, RowSource):
        return X
    if is_blocks(X):
        return BlockRows(X)
    X = X if is_numpy(X) else taken_in(X)
    summary = ArrayRows.summarise(X, codes, weights)
    if summary.gaps:
        rows: ArrayRows = GapRows(to_numpy(X), codes, weights)
    else:
        rows = (MemoryRows if is_numpy(X) else DeviceRows)(X, codes, weights)
    vars(rows)["summary"] = summary
    return rows


def make_setting(
    source: RowSource,
    parameters: Parameters,
    frame: Frame,
    structure: Structure,
    pool: Workers,
    options: Options,
) -> Setting:
    """Return the setting of the passes over a source from parameters of R starts; refuse what it lacks."""
    source.covers.check(structure, parameters.tail, gaps=source.summary.gaps)
    n_starts, n_kernels, n_features = parameters.means.shape
    n_kernels *= max(options.n_starts, n_starts)
    compiles = worth_compiling(source.summary.n_rows, n_kernels, n_features)
    return Setting(frame, structure, pool, options.precision, compiles)


__all__ = ["RowSource", "make_setting", "open_source"]
