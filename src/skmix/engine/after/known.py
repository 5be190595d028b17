"""Rows under kernels that stay as they are: their densities are computed once, and passes only weigh them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import scoring as density
from ..estep.terms import GAPS
from ..problem import RowSource
from ..records import Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from ..rows.base import Centres, Expected, GapRows, MemoryRows
from ..rows.blocks import BlockRows
from ..rows.labelled import Block

# Most densities that are kept: 256 MB.
_MOST = 1 << 25


@dataclass(frozen=True)
class _Part:
    """Densities of some rows of a class, relative to the largest of each row."""

    code: int  # of the class
    densities: FloatArray  # (n, K)
    weights: FloatArray  # (n,): of the rows
    log_largest: float  # sum of the logarithms of the largest densities, weighted


class KnownRows(RowSource):
    """Labelled rows of a source, with the densities of one model's kernels."""

    covers = GAPS

    def __init__(self, source: RowSource, parts: list[_Part]) -> None:
        self.source, self.n_features, self.summary = source, source.n_features, source.summary
        self._parts = parts

    def with_features(self, columns: Sequence[int]) -> RowSource:
        return self.source.with_features(columns)

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        return self.source.start_rows()

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        """Do the E-step of one start for its weights; see `RowSource`. Moments are zero."""
        weights = parameters.weights[0]
        volume = self.summary.by_class(self.summary.observed, weights.shape[1]) @ np.log(setting.frame.scale)
        likelihood, mass = volume[None], np.zeros((1, *weights.shape))
        for part in self._parts:
            own = weights[:, part.code]
            mixed = part.densities @ own
            with np.errstate(divide="ignore", invalid="ignore"):
                likelihood[0, part.code] += part.weights @ np.log(mixed) + part.log_largest
                mass[0, :, part.code] += own * ((part.weights / mixed) @ part.densities)
        first = np.zeros_like(parameters.means)
        return Statistics(likelihood, mass, first, first), parameters.means


def with_densities(source: RowSource, parameters: Parameters, covariance_type: str, n_jobs: int) -> RowSource:
    """Return the rows with the densities of the kernels of one model, for fits in which these stay.

    Rows come back as they are if they are on a device, some have no label, or there are too many.
    """
    n_densities = source.summary.n_rows * len(parameters.means)
    covered = isinstance(source, (BlockRows, MemoryRows, GapRows)) and parameters.class_prior is None
    if not covered or n_densities > _MOST:
        return source
    work = partial(_parts_of, parameters, covariance_type, n_jobs)
    if isinstance(source, BlockRows):
        return KnownRows(source, source.blocks.reduce(work, operator.add))
    return KnownRows(source, work(Block(*source.start_rows())))


def _parts_of(parameters: Parameters, covariance_type: str, n_jobs: int, block: Block) -> list[_Part]:
    """Return the densities of a block, one part for each class."""
    block = block.informative()
    logs = density.kernel_log_densities(block.X, parameters, covariance_type, n_jobs)
    largest = logs.max(axis=1)
    found = []
    for code in [0] if block.y is None else np.unique(block.y).tolist():
        rows = slice(None) if block.y is None else np.flatnonzero(block.y == code)
        weights = block.row_weights[rows]
        relative = np.exp(logs[rows] - largest[rows, None])
        found.append(_Part(code, relative, weights, float(weights @ largest[rows])))
    return found
