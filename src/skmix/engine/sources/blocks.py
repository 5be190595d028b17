"""Labelled rows that are never all in one place: a file read piece by piece, the partitions of a cluster.

Statistics of disjoint rows add, so nothing here asks for more than `reduce`: do some work on every block
where it lies, and merge the answers. The work is an object that can be pickled, the merge a function of a
module, so that both can be sent to the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compute.blocks import Answer as Answer
from ..compute.blocks import Block as Block
from ..compute.blocks import Blocks as Blocks
from ..compute.blocks import encode as encode

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_blocks(X: Any) -> TypeIs[Blocks]:
    """Return whether X is rows in blocks, by its class: there are objects that answer to any name."""
    return all(hasattr(type(X), method) for method in ("reduce", "coded", "take"))


class Listed:
    """Blocks in memory.

    Parameters
    ----------
    blocks : sequence of Block
        The blocks; they are numbered anew.
    feature_names : list of str, optional
        Names of the features.
    """

    def __init__(self, blocks: Sequence[Block], feature_names: list[str] | None = None) -> None:
        if not len(blocks):
            raise ValueError("There is no block of rows.")
        self.feature_names = feature_names
        self.n_features: int = blocks[0].X.shape[1]
        self._blocks = [replace(block, number=number) for number, block in enumerate(blocks)]

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged in order."""
        return reduce(merge, map(work, self._blocks))

    def coded(self, classes: np.ndarray) -> Listed:
        """Return the blocks with classes for labels."""
        return Listed([block.coded(classes) for block in self._blocks], self.feature_names)

    def take(self, columns: list[int]) -> Listed:
        """Return the blocks with some of their features."""
        names = None if self.feature_names is None else [self.feature_names[c] for c in columns]
        return Listed([block.take(columns) for block in self._blocks], names)
