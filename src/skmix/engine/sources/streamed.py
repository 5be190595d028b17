"""Rows in blocks that the host reads and a device works on.

As many rows as fit stay on the device after the first pass. The others are copied in every pass, while the
device works on those before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from ..compute.arrays import Array, as_float64, open_feed, room_on, send, to_numpy
from ..compute.blocks import Block, Blocks
from ..estep.coverage import DEVICE
from ..estep.device import ClassOrder, prepare
from ..frame import Setting
from ..model import Factor, Parameters
from .base import Centres, Step
from .blocks import BlockRows, Sums, add
from .device import DeviceRows, MaskedRows
from .summary import Summary

# Rows of this many bytes are copied and worked on at a time: many pieces, so that copying and work overlap,
# of a millisecond or more, so that what the host does for each does not matter.
PIECE_BYTES = 1 << 26
# Bytes for each row on the device besides its values: class, place in the order of classes, weight.
_BESIDE = 24
# Largest share of the room for rows in which the order of those that do not stay is kept between passes: a
# few bytes for each row, which save more time than rows of as many bytes that stay.
_SHARE_OF_ORDERS = 0.25


@dataclass
class _Piece:
    """Rows that are sent together."""

    first: int  # number of the first row
    n_rows: int = 0
    parts: list[Block] = field(default_factory=list)
    in_place: bool = False  # whether rows are sent from where they are, pinned and one after another


class StreamedRows(BlockRows):
    """Rows in blocks, with encoded labels, worked on by the PyTorch device of that name."""

    covers = DEVICE

    def __init__(self, blocks: Blocks, device: str, summary: Summary | None = None, seed: int = 0) -> None:
        super().__init__(blocks, summary, seed)
        self._device = device
        self._example = send(np.zeros((1, 1)), device)
        self._feed: Any = None
        self._kept: list[DeviceRows] = []
        self._n_kept = 0
        self._room: float | None = None
        # Orders of the rows of pieces by their classes, by the number of classes, that of the first row and
        # how many rows they are.
        self._orders: dict[tuple[int, int, int], ClassOrder] = {}
        self._room_of_orders = 0.0

    def take(self, columns: Sequence[int]) -> StreamedRows:
        """Return some of the features; see `BlockRows`."""
        taken = super().take(columns)
        return StreamedRows(taken.blocks, self._device, vars(taken).get("summary"), self._seed)

    def to_device(self, array: Array) -> Array:
        """Return an array as float64 numbers on the device."""
        return as_float64(array, self._example)

    def wrap_step(self, step: Step, setting: Setting) -> Step:
        """Return the step with its log-likelihoods, and `usable`, on the host."""

        def read_back(parameters: Parameters, factor: Factor) -> Any:
            following, next_factor, log_likelihood = step(parameters, factor)
            usable = to_numpy(next_factor.usable)
            return following, replace(next_factor, usable=usable), to_numpy(log_likelihood)

        return read_back

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> Sums:
        """Do the E-step; see `RowSource`."""
        n_classes, total, before = parameters.weights.shape[-1], None, None
        pieces = self._pieces(n_classes)
        if self.summary.gaps:
            arguments = parameters, factor, setting, centres, moments
            found: Sums | None = reduce(add, (rows.expect(*arguments) for rows in pieces), None)
            assert found is not None
            return found
        for rows in pieces:
            framed = rows.framed(setting, n_classes)
            if total is None:
                prepared = prepare(parameters, setting.structure, framed.bounds, factor)
                prepared = prepared if centres is None else prepared.recentre(*centres)
            # Launched, but not waited for.
            own = framed.collect(prepared, moments=moments, others=before)
            total, before = own if total is None else total.plus(own), framed
        assert total is not None
        return total, prepared.origins

    def _pieces(self, n_classes: int) -> Iterator[DeviceRows]:
        """Yield all rows on the device, piece by piece."""
        yield from self._kept
        if self._n_kept == self.summary.n_rows:
            return
        before: tuple[DeviceRows, int] | None = None
        for rows, turn in self._sent(self._n_kept, n_classes):
            if before is not None:
                yield from self._arrived(*before)
            before = rows, turn
        if before is not None:
            yield from self._arrived(*before)
        if self._n_kept == self.summary.n_rows:
            self._feed = None

    def _arrived(self, rows: DeviceRows, turn: int) -> Iterator[DeviceRows]:
        """Yield rows once they are on the device, and release their buffer."""
        self._feed.receive(turn)
        yield rows
        self._feed.release(turn)

    def _sent(self, n_skipped: int, n_classes: int) -> Iterator[tuple[DeviceRows, int]]:
        """Yield pieces that are on their way to the device, after some rows, and the numbers of buffers."""
        piece = _Piece(n_skipped)
        # Pinning takes as long as several passes: not for a single one.
        again = self._feed is not None
        for block in self._informative():
            n_rows = len(block.X)
            start, n_skipped = min(n_skipped, n_rows), max(0, n_skipped - n_rows)
            while start < n_rows:
                width = self.n_features * block.X.dtype.itemsize
                if self._feed is None:
                    most = max(1, min(PIECE_BYTES // width, self.summary.n_rows))
                    self._feed = open_feed(self._device, most, self.n_features, block.X.dtype)
                if again:
                    self._feed.pin(block.X, self.summary.n_rows * width)
                stop = min(n_rows, start + self._feed.n_rows - piece.n_rows)
                part = block.rows(slice(start, stop))
                if piece.in_place and not self._feed.is_pinned(part.X, piece.parts[-1].X):
                    yield self._send(piece, n_classes)
                    piece = _Piece(piece.first + piece.n_rows)
                    continue
                if not piece.parts:
                    piece.in_place = self._feed.is_pinned(part.X)
                if not piece.in_place:
                    self._feed.fill(piece.n_rows, part.X)
                piece.parts.append(part)
                piece.n_rows, start = piece.n_rows + stop - start, stop
                if piece.n_rows == self._feed.n_rows:
                    yield self._send(piece, n_classes)
                    piece = _Piece(piece.first + piece.n_rows)
        if piece.parts:
            yield self._send(piece, n_classes)

    def _informative(self) -> Iterator[Block]:
        """Yield the blocks without rows of weight zero or without any value."""
        some_empty = self.summary.gaps or self.summary.n_empty > 0
        with closing(self.blocks.blocks()) as blocks:  # type: ignore[attr-defined]
            for block in blocks:
                yield block.informative() if some_empty else block.weighted()

    def _send(self, piece: _Piece, n_classes: int) -> tuple[DeviceRows, int]:
        """Send rows from the buffer or from where they are, with their classes and weights."""
        n_rows, parts = piece.n_rows, piece.parts
        n_bytes = self.n_features * parts[0].X.dtype.itemsize + _BESIDE
        # Complete rows among those with gaps are copied on the device.
        n_bytes *= 2 if self.summary.gaps else 1
        if self._room is None:
            self._share_room(n_bytes, parts[0])
            assert self._room is not None
        n_bytes *= n_rows
        stays = n_bytes <= self._room
        X, turn = self._feed.send(n_rows, stays=stays, rows=parts[0].X if piece.in_place else None)
        key = n_classes, piece.first, n_rows
        order, codes, weights = self._orders.get(key), None, None
        if order is None or not order.is_sent:
            codes = None if parts[0].y is None else np.concatenate([part.y for part in parts])
            weights = None if parts[0].weights is None else np.concatenate([part.weights for part in parts])
        rows = (MaskedRows if self.summary.gaps else DeviceRows)(X, codes, weights)
        # Memory is for rows.
        rows.keeps_terms = False
        if stays:
            self._kept.append(rows)
            self._n_kept += n_rows
            self._room -= n_bytes
            return rows, turn
        # Those that are kept are the first ones.
        self._room = 0
        if not self.summary.gaps:
            if order is not None:
                rows.orders[n_classes] = order
            elif (order := rows.ordered(n_classes)).n_bytes <= self._room_of_orders:
                self._orders[key] = order
                self._room_of_orders -= order.n_bytes
            else:
                # Counting takes as long as copying the rows.
                self._orders[key] = order.counted()
        return rows, turn

    def _share_room(self, n_bytes: int, block: Block) -> None:
        """Divide the device's room between rows of so many bytes and orders of rows like those of a block."""
        self._room = room_on(self._device)
        if self._room < self.summary.n_rows * n_bytes and not self.summary.gaps:
            width = 0 if block.y is None else block.y.itemsize + np.dtype(np.int32).itemsize
            width += 0 if block.weights is None else block.weights.itemsize
            self._room_of_orders = min(_SHARE_OF_ORDERS * self._room, self.summary.n_rows * width)
            self._room -= self._room_of_orders

    def clear_cache(self) -> None:
        """Free the memory on the device and the buffers."""
        self._feed, self._kept, self._n_kept, self._room = None, [], 0, None
        self._orders, self._room_of_orders = {}, 0.0
