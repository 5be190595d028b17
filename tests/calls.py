"""The engine's functions of row sources, called with arrays, and blocks of rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from skmix.engine import loop as em
from skmix.engine import starts
from skmix.engine.problem import open_source
from skmix.engine.records import Options, Parameters, Result
from skmix.engine.rows.blocks import Block, BlockRows
from skmix.engine.rows.source import RowSource


def source_of(X: Any, classes: Any = None, weights: Any = None) -> RowSource:
    """Return the source of an array, or of blocks; a source as it is."""
    if isinstance(X, RowSource):
        return X
    return BlockRows(X) if isinstance(X, Listed) else open_source(X, classes, weights)


def fit(
    X: Any, classes: Any, starts: Parameters, options: Options, *, row_weights: Any = None, **rest: Any
) -> Result:
    return em.fit(source_of(X, classes, row_weights), starts, options, **rest)


def drawn(draw: Callable[..., Parameters], *given: Any, **rest: Any) -> Parameters:
    """Return starts in the data's coordinates; one of the arguments is the `Drawing`."""
    wanted = next(value for value in given if isinstance(value, starts.Drawing))
    return wanted.frame.leave(draw(*given, **rest), wanted.structure)


class Listed:
    """Blocks in memory, numbered in their order."""

    name, preparation, runs_elsewhere = "X", None, False

    def __init__(self, blocks: Sequence[Block], feature_names: list[str] | None = None) -> None:
        self.feature_names = feature_names
        self.n_features: int = blocks[0].X.shape[1]
        self._blocks = [replace(block, number=number) for number, block in enumerate(blocks)]

    def reduce(self, work: Callable[[Block], Any], merge: Callable[[Any, Any], Any]) -> Any:
        return reduce(merge, map(work, self._blocks))

    def coded(self, classes: np.ndarray) -> Listed:
        return Listed([block.coded(classes) for block in self._blocks], self.feature_names)

    def with_features(self, columns: list[int]) -> Listed:
        names = None if self.feature_names is None else [self.feature_names[c] for c in columns]
        return Listed([block.with_features(columns) for block in self._blocks], names)
