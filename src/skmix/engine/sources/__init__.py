"""Row sources: the E-step for each kind of rows. Code above this package does not depend on the kind."""

from __future__ import annotations

from typing import Any

from ..compute.arrays import Array, is_numpy, taken_in
from ..compute.blocks import is_blocks
from ..compute.threads import Workers
from ..estep.gaps import has_gaps
from ..estep.memory import worth_compiling
from ..model import FloatArray, Frame, IntArray, Options, Parameters, Setting
from ..structures import Structure
from .base import ArrayRows, RowSource
from .blocks import BlockRows
from .device import DeviceRows, MaskedRows
from .memory import GapRows, MemoryRows


def open_source(X: Any, codes: IntArray | None = None, weights: FloatArray | None = None) -> RowSource:
    """Return the source for rows of any kind.

    Parameters
    ----------
    X : array of shape (N, M), Blocks or RowSource
        Rows: a NumPy array of float64 or float32, NaN where a value is missing; a PyTorch tensor, on whose
        device passes then run; or blocks, which hold their class codes and weights.
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
    rows = _kind(X, gaps=summary.gaps)(X, codes, weights)
    vars(rows)["summary"] = summary
    return rows


def open_array(X: Array) -> ArrayRows:
    """Return the source for the rows of one array (N, M), to be scored."""
    return _kind(X, gaps=has_gaps(X))(X, None)


def _kind(X: Array, *, gaps: bool) -> type[ArrayRows]:
    """Return the first kind of source for an array whose E-step covers gaps, if there are any."""
    kinds: tuple[type[ArrayRows], ...] = (MemoryRows, GapRows) if is_numpy(X) else (DeviceRows, MaskedRows)
    return next(kind for kind in kinds if kind.covers.gaps or not gaps)


def make_setting(
    source: RowSource,
    parameters: Parameters,
    frame: Frame,
    structure: Structure,
    pool: Workers,
    options: Options,
) -> Setting:
    """Return the setting of the passes over a source from parameters of R starts; refuse what it lacks."""
    source.check_covered(parameters, structure)
    n_starts, n_kernels, n_features = parameters.means.shape
    n_kernels *= max(options.n_starts, n_starts)
    compiles = worth_compiling(source.summary.n_rows, n_kernels, n_features)
    return Setting(frame, structure, pool, options.precision, compiles)


__all__ = ["RowSource", "make_setting", "open_array", "open_source"]
