"""PyTorch: rows copied to a device in pieces, each while the device works on the one before."""

from __future__ import annotations

import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided

from .operations import Array, physical_memory

# Threads that fill a buffer; one thread copies slower than a device reads.
_MOST_THREADS = 16
# Fewest rows that a thread copies.
_FEWEST_ROWS = 4096
# Largest share of the machine's memory that is pinned: the system cannot use it for anything else.
_MOST_PINNED = 0.5


class Feed:
    """Two buffers of rows (n, M) on the host, pinned for a CUDA device, and two on the device.

    Pieces go through them in turn. A piece is copied on a stream of its own, so that the device may work on
    the one before while it is copied, and on the one before that while the host fills its buffer. Rows of an
    array that is pinned itself need no buffer on the host.
    """

    def __init__(self, device: str, n_rows: int, n_features: int, dtype: np.dtype[Any]) -> None:
        self.n_rows, self._dtype = n_rows, dtype
        self._cuda = torch.device(device).type == "cuda"
        kind = torch.from_numpy(np.empty(0, dtype=dtype)).dtype
        shape = (n_rows, n_features)
        self._here = [torch.empty(shape, dtype=kind, pin_memory=self._cuda) for _ in range(2)]
        self._there = [torch.empty(shape, dtype=kind, device=device) for _ in range(2)]
        self._turn = 0
        self._pinned: np.ndarray | None = None
        self._tried = False
        self._n_threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="skmix-feed")
        if self._cuda:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
            events = [torch.cuda.Event() for _ in range(4)]  # type: ignore[no-untyped-call, unused-ignore]
            self._copied, self._used = events[:2], events[2:]

    def pin(self, rows: np.ndarray, n_bytes: int) -> None:
        """Pin the array of about `n_bytes` that rows are a part of, if there is one and the system allows it.

        It is tried once, and lasts as long as the feed.
        """
        array, tried, self._tried = rows.base, self._tried, True
        if tried or not self._can_be_sent(rows) or not isinstance(array, np.ndarray):
            return
        if not array.flags.owndata or not array.flags.c_contiguous:
            return
        if not n_bytes <= array.nbytes <= min(2 * n_bytes, _MOST_PINNED * physical_memory()):
            return
        if self._cuda:
            if int(_cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0)):
                # CUDA reports the error once more, to whatever comes next.
                with suppress(RuntimeError):
                    torch.zeros(1, device=self._there[0].device).cpu()
                return
            weakref.finalize(self, _unpin, array, self._stream).atexit = False
        self._pinned = array

    def is_pinned(self, rows: np.ndarray, after: np.ndarray | None = None) -> bool:
        """Return whether rows (n, M) can be sent from where they are, right after pinned ones if given."""
        if self._pinned is None or not self._can_be_sent(rows):
            return False
        if after is not None and rows.ctypes.data != after.ctypes.data + after.nbytes:
            return False
        start = rows.ctypes.data - self._pinned.ctypes.data
        return 0 <= start <= self._pinned.nbytes - rows.nbytes

    def _can_be_sent(self, rows: np.ndarray) -> bool:
        """Return whether rows (n, M) could be sent from where they are if they were pinned."""
        return rows.dtype == self._dtype and rows.flags.c_contiguous and rows.flags.writeable

    def fill(self, start: int, rows: np.ndarray) -> None:
        """Copy rows (n, M) into the buffer whose turn it is, from row `start` on."""
        if self._cuda and not start:
            # The device may still read what the buffer had.
            self._copied[self._turn].synchronize()
        buffer = self._here[self._turn].numpy()[start : start + len(rows)]
        step = max(_FEWEST_ROWS, -(-len(rows) // self._n_threads))
        cuts = [slice(a, a + step) for a in range(0, len(rows), step)]
        list(self._pool.map(lambda cut: np.copyto(buffer[cut], rows[cut], casting="safe"), cuts))

    def send(self, n_rows: int, *, stays: bool, rows: np.ndarray | None = None) -> tuple[Array, int]:
        """Begin to copy the first rows of the buffer; return them on the device, and the buffer's number.

        They stay there, or are overwritten by the next piece but one. If the first of them are pinned `rows`,
        they are sent from where they are.
        """
        turn, self._turn = self._turn, 1 - self._turn
        here = self._here[turn][:n_rows]
        if rows is not None:
            strides = rows.shape[1] * rows.itemsize, rows.itemsize
            here = torch.from_numpy(as_strided(rows, (n_rows, rows.shape[1]), strides))
        there = self._there[turn][:n_rows]
        if stays:
            there = torch.empty_like(there)
        if not self._cuda:
            return there.copy_(here), turn
        if stays:
            # Work that was launched may still use the memory before.
            self._stream.wait_stream(torch.cuda.current_stream(there.device))
        self._stream.wait_event(self._used[turn])
        with torch.cuda.stream(self._stream):
            there.copy_(here, non_blocking=True)
            self._copied[turn].record(self._stream)
        return there, turn

    def receive(self, turn: int) -> None:
        """Let what is launched from now on wait until the rows of a buffer have arrived."""
        if self._cuda:
            torch.cuda.current_stream(self._there[turn].device).wait_event(self._copied[turn])

    def release(self, turn: int) -> None:
        """Let rows be overwritten once what was launched so far is done with them."""
        if self._cuda:
            self._used[turn].record(torch.cuda.current_stream(self._there[turn].device))


def _unpin(array: np.ndarray, stream: Any) -> None:
    """Return pinned memory to the system once nothing is copied from it any more."""
    stream.synchronize()
    _cudart().cudaHostUnregister(array.ctypes.data)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call, unused-ignore]
