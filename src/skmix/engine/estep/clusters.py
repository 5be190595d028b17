"""k-means in compiled code: sums over the rows that are nearest to each centre.

Rows are taken in tiles as in the E-step. Blocks of rows depend on the sizes of the problem only, and their
sums are added in order: results are bitwise the same for any number of threads.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compute import simd
from ..compute.native import jit
from ..compute.simd import LANES, ROWS, fma, load, splat, store
from ..compute.threads import Workers, aligned
from ..model import FloatArray, IntArray
from .compiled import Data, data_of, fill, flat
from .reference import Rows

# Rows of a tile.
_TILE = 12 * LANES
# Most blocks of rows.
_MOST_BLOCKS = 64
# Fewest rows of a block.
_SMALLEST_BLOCK = 2048
# Most numbers in the sums of all blocks.
_SUMS = 1 << 23


class _Sizes(NamedTuple):
    """The sizes of a problem."""

    n_rows: int
    n_features: int
    n_centres: int
    block: int  # rows of a task
    n_blocks: int
    padded: int  # K, padded to ROWS
    step: int  # M, padded to vectors
    width: int  # numbers of a cluster: its sums (step,), then its mass


class _Scratch(NamedTuple):
    """Memory of one thread."""

    x: Any  # (step, tile): rows
    by_row: Any  # (tile, step): rows
    values: Any  # (padded K, tile): inner products with the centres, less half the centres' squares
    highest: Any  # (tile,): the largest of them
    nearest: Any  # (tile,): its centre
    places: Any  # (tile,): where rows begin

    @classmethod
    def of(cls, sizes: _Sizes) -> _Scratch:
        numbers = [aligned(n * _TILE) for n in (sizes.step, sizes.step, sizes.padded, 1)]
        for array in numbers:
            array[:] = 0.0
        return cls(*numbers, *np.zeros((2, _TILE), dtype=np.int64))


@jit
def _work(counter, sizes, data, centres, halves, sums, clusters, scratch):
    """Do the work of a thread: add rows to the sums (blocks, K, width) of their clusters (N,)."""
    n_features, step, width, n_centres = sizes.n_features, sizes.step, sizes.width, sizes.n_centres
    x, by_row, values, highest, nearest, places = scratch
    while True:
        part = simd.take_numbers(counter, 1)
        if part >= sizes.n_blocks:
            break
        end = min((part + 1) * sizes.block, sizes.n_rows)
        for a in range(part * sizes.block, end, _TILE):
            n = min(_TILE, end - a)
            for i in range(_TILE):
                places[i] = (a + min(i, n - 1)) * data.steps[0]
            for i in range(0, _TILE, LANES):
                simd.gather_rows(
                    data.flat, places, i, data.steps[1], data.scale, data.shift, data.limit, x, _TILE,
                    n_features,
                )  # fmt: skip
                for j in range(0, step, LANES):
                    simd.transpose(x, j * _TILE + i, _TILE, by_row, i * step + j, step)
            for k in range(0, sizes.padded, ROWS):
                for i in range(k, k + ROWS):
                    fill(values, i * _TILE, (i + 1) * _TILE, -halves[i])
                for r in range(0, _TILE, 2 * LANES):
                    simd.add_products(
                        centres, k * n_features, n_features, 1, x, r, _TILE, n_features,
                        values, k * _TILE + r, _TILE, ROWS, 2,
                    )  # fmt: skip
            for i in range(_TILE):
                highest[i], nearest[i] = values[i], 0
            for k in range(1, n_centres):
                for i in range(_TILE):
                    better = values[k * _TILE + i] > highest[i]
                    highest[i] = values[k * _TILE + i] if better else highest[i]
                    nearest[i] = k if better else nearest[i]
            for i in range(n):
                clusters[a + i] = nearest[i]
                own = (part * n_centres + nearest[i]) * width
                weight = data.weights[a + i] if len(data.weights) else 1.0
                of_row = splat(weight)
                for j in range(0, step, LANES):
                    store(sums, own + j, fma(of_row, load(by_row, i * step + j), load(sums, own + j)))
                sums[own + step] += weight


class Clusters:
    """Rows x (N, M), with masses (N,), that are summed by their nearest of K centres."""

    def __init__(self, x: FloatArray, masses: FloatArray | None, n_centres: int, pool: Workers) -> None:
        n_rows, n_features = x.shape
        step, padded = -(-n_features // LANES) * LANES, -(-n_centres // ROWS) * ROWS
        width = step + 1
        most = min(_MOST_BLOCKS, n_rows // _SMALLEST_BLOCK, _SUMS // (n_centres * width))
        block = _TILE * max(1, -(-n_rows // (max(1, most) * _TILE)))
        n_blocks = -(-n_rows // block)
        self._sizes = _Sizes(n_rows, n_features, n_centres, block, n_blocks, padded, step, width)
        self._data: Data = data_of(Rows(x, None, masses, np.ones(n_features), np.zeros(n_features)))
        self._pool = pool

    def sums(self, centres: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return sums (K, M + 1) of the rows nearest to centres (K, M) and of their masses, and which (N,).

        Of equally near centres, the first one has the row.
        """
        sizes, counter = self._sizes, np.zeros(1, dtype=np.int64)
        whole, halves = np.zeros((sizes.padded, sizes.n_features)), np.zeros(sizes.padded)
        whole[: sizes.n_centres] = centres
        halves[: sizes.n_centres] = 0.5 * np.square(centres).sum(axis=1)
        found = np.zeros((sizes.n_blocks, sizes.n_centres, sizes.width))
        clusters = np.empty(sizes.n_rows, dtype=np.int64)
        memory = sizes._replace(n_rows=0, block=0, n_blocks=0)  # does not depend on these

        def work_in_thread() -> None:
            scratch = self._pool.workspace.kept(memory, lambda: _Scratch.of(sizes))
            centred = flat(whole), flat(halves)
            _work(counter, sizes, self._data, *centred, found.reshape(-1), clusters, scratch)

        self._pool.run(work_in_thread, sizes.n_blocks)
        total = found.sum(axis=0)
        return np.concatenate([total[:, : sizes.n_features], total[:, sizes.step :]], axis=1), clusters
