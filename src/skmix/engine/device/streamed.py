"""Rows in blocks that the host reads and a device works on.

As many rows as fit stay on the device after the first pass. The others are sent in every pass, block by
block, while the device works on earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from itertools import islice

import numpy as np

from ..numbers import Array, as_float64, like, room_on, send
from ..records import Factor, Parameters, Setting, Statistics
from ..rows.blocks import Block, BlockRows, Blocks
from ..rows.source import Centres, Expected
from ..rows.summary import Summary
from .expansion import expand, refuse
from .rows import DeviceRows

# Bytes of the blocks into which an array is cut: the work on one takes milliseconds, far longer than the host
# needs for it.
PIECE_BYTES = 1 << 26
# Bytes for each row on the device besides its values: class, place in the order of classes, weight.
_BESIDE = 24


class StreamedRows(BlockRows):
    """Complete rows in blocks, with encoded labels, for the PyTorch device of that name."""

    splits_classes = False
    samples_are_quicker = False

    def __init__(self, blocks: Blocks, device: str, summary: Summary | None = None, seed: int = 0) -> None:
        super().__init__(blocks, summary, seed)
        self._device, self._example = device, send(np.zeros((1, 1)), device)
        self.clear_cache()

    def clear_cache(self) -> None:
        self._resident: list[DeviceRows] = []  # the first rows, which stay on the device
        self._room: float | None = None  # bytes for more of them; None before the first pass

    def _with_blocks(self, blocks: Blocks, summary: Summary | None) -> StreamedRows:
        return StreamedRows(blocks, self._device, summary, self._seed)

    def to_device(self, array: Array) -> Array:
        return as_float64(array, self._example)

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        if self.summary.gaps:
            refuse("missing values")
        expansion = expand(parameters, factor, setting, centres)
        # This enqueues the work on a block, and does not wait for it.
        total = reduce(Statistics.plus, (rows.sums(expansion, setting) for rows in self._pieces()))
        return total, expansion.origins

    def _pieces(self) -> Iterator[DeviceRows]:
        """Yield the rows of each block on the device; the first ones may stay there."""
        yield from self._resident
        if sum(len(rows.X) for rows in self._resident) == self.summary.n_rows:
            return
        if self._room is None:
            self._room = room_on(self._device)
        with closing(self.blocks.blocks()) as blocks:  # type: ignore[attr-defined]
            some_empty = self.summary.n_empty > 0
            useful = (block.informative() if some_empty else block.weighted() for block in blocks)
            filled = (block for block in useful if len(block.X))
            yield from map(self._send, islice(filled, len(self._resident), None))

    def _send(self, block: Block) -> DeviceRows:
        """Send the rows of a block with their classes and weights; they stay while there is room."""
        rows = DeviceRows(like(block.X, self._example), block.y, block.weights)
        rows.keeps_terms = False  # so that the memory is for rows
        n_bytes = block.X.nbytes + len(block.X) * _BESIDE
        assert self._room is not None
        if n_bytes <= self._room:
            self._resident.append(rows)
            self._room -= n_bytes
        else:
            self._room = 0.0  # only the first rows stay
        return rows
