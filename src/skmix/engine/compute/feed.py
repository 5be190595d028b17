"""PyTorch: rows copied to a device in pieces, each while the device works on the one before."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from .operations import Array

# Threads that fill a buffer; one thread copies slower than a device reads.
_MOST_THREADS = 16
# Fewest rows that a thread copies.
_FEWEST_ROWS = 4096


class Feed:
    """Two buffers of rows (n, M) on the host, pinned for a CUDA device, and two on the device.

    Pieces go through them in turn. A piece is copied on a stream of its own, so that the device may work on
    the one before while it is copied, and on the one before that while the host fills its buffer.
    """

    def __init__(self, device: str, n_rows: int, n_features: int, dtype: np.dtype[Any]) -> None:
        self.n_rows = n_rows
        self._cuda = torch.device(device).type == "cuda"
        kind = torch.from_numpy(np.empty(0, dtype=dtype)).dtype
        shape = (n_rows, n_features)
        self._here = [torch.empty(shape, dtype=kind, pin_memory=self._cuda) for _ in range(2)]
        self._there = [torch.empty(shape, dtype=kind, device=device) for _ in range(2)]
        self._turn = 0
        self._n_threads = min(_MOST_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="skmix-feed")
        if self._cuda:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
            events = [torch.cuda.Event() for _ in range(4)]  # type: ignore[no-untyped-call, unused-ignore]
            self._copied, self._used = events[:2], events[2:]

    def fill(self, start: int, rows: np.ndarray) -> None:
        """Copy rows (n, M) into the buffer whose turn it is, from row `start` on."""
        if self._cuda and not start:
            # The device may still read what the buffer had.
            self._copied[self._turn].synchronize()
        buffer = self._here[self._turn].numpy()[start : start + len(rows)]
        step = max(_FEWEST_ROWS, -(-len(rows) // self._n_threads))
        cuts = [slice(a, a + step) for a in range(0, len(rows), step)]
        list(self._pool.map(lambda cut: np.copyto(buffer[cut], rows[cut], casting="safe"), cuts))

    def send(self, n_rows: int, *, stays: bool) -> tuple[Array, int]:
        """Begin to copy the first rows of the buffer; return them on the device, and the buffer's number.

        They stay there, or are overwritten by the next piece but one.
        """
        turn, self._turn = self._turn, 1 - self._turn
        here, there = self._here[turn][:n_rows], self._there[turn][:n_rows]
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
