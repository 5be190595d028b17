"""k-means in compiled code: sums over the rows that are nearest to each centre, and swaps of seeds.

Rows are taken in tiles as in the E-step. Blocks of rows depend on the sizes of the problem only, and their
sums are added in order: results are bitwise the same for any number of threads.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compute import simd
from ..compute.native import jit
from ..compute.simd import LANES, ROWS, fma, load, splat, store, subtract
from ..compute.threads import Workers, aligned
from ..compute.translation import inner
from ..model import FloatArray
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
    n_classes: int
    block: int  # rows of a task
    n_blocks: int
    padded: int  # K, padded to ROWS
    step: int  # M, padded to vectors
    width: int  # numbers of a cluster: its sums (step,), then its masses (C,)


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
def _work(counter, sizes, data, centres, halves, sums, scratch):
    """Do the work of a thread: add the rows of blocks to the sums (blocks, K, width) of their clusters."""
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
                own = (part * n_centres + nearest[i]) * width
                weight = data.weights[a + i] if len(data.weights) else 1.0
                of_row = splat(weight)
                for j in range(0, step, LANES):
                    store(sums, own + j, fma(of_row, load(by_row, i * step + j), load(sums, own + j)))
                sums[own + step + (data.codes[a + i] if len(data.codes) else 0)] += weight


class Clusters:
    """Rows of classes 0 … C − 1 that are summed by their nearest of K centres."""

    def __init__(self, rows: Rows, n_classes: int, n_centres: int, pool: Workers) -> None:
        n_rows, n_features = rows.X.shape
        step, padded = -(-n_features // LANES) * LANES, -(-n_centres // ROWS) * ROWS
        width = step + n_classes
        most = min(_MOST_BLOCKS, n_rows // _SMALLEST_BLOCK, _SUMS // (n_centres * width))
        block = _TILE * max(1, -(-n_rows // (max(1, most) * _TILE)))
        n_blocks = -(-n_rows // block)
        self._sizes = _Sizes(n_rows, n_features, n_centres, n_classes, block, n_blocks, padded, step, width)
        self._data: Data = data_of(rows)
        self._pool = pool

    def sums(self, centres: FloatArray) -> FloatArray:
        """Return the sums (K, M + C) of rows, and masses by class, over the rows nearest to centres (K, M).

        Of equally near centres, the first one has the row.
        """
        sizes, counter = self._sizes, np.zeros(1, dtype=np.int64)
        whole, halves = np.zeros((sizes.padded, sizes.n_features)), np.zeros(sizes.padded)
        whole[: sizes.n_centres] = centres
        halves[: sizes.n_centres] = 0.5 * np.square(centres).sum(axis=1)
        found = np.zeros((sizes.n_blocks, sizes.n_centres, sizes.width))
        memory = sizes._replace(n_rows=0, block=0, n_blocks=0)  # does not depend on these

        def work_in_thread() -> None:
            scratch = self._pool.workspace.kept(memory, lambda: _Scratch.of(sizes))
            _work(counter, sizes, self._data, flat(whole), flat(halves), found.reshape(-1), scratch)

        self._pool.run(work_in_thread, sizes.n_blocks)
        total = found.sum(axis=0)
        return np.concatenate([total[:, : sizes.n_features], total[:, sizes.step :]], axis=1)


@inner
def _squared(rows, i, seeds, k, step):
    """Return the squared distance of row i from seed k; both have `step` numbers."""
    found = splat(0.0)
    for j in range(0, step, LANES):
        ahead = subtract(load(rows, i * step + j), load(seeds, k * step + j))
        found = fma(ahead, ahead, found)
    return simd.total(found)


@inner
def _find_two(rows, i, seeds, n_seeds, step, nearest, squared):
    """Find the two seeds nearest to row i."""
    squared[i, 0] = squared[i, 1] = np.inf
    for k in range(n_seeds):
        _enter(i, k, _squared(rows, i, seeds, k, step), nearest, squared)


@inner
def _enter(i, k, distance, nearest, squared):
    """Make seed k one of the two nearest to row i, if it is."""
    if distance < squared[i, 0]:
        nearest[i, 1], squared[i, 1] = nearest[i, 0], squared[i, 0]
        nearest[i, 0], squared[i, 0] = k, distance
    elif distance < squared[i, 1]:
        nearest[i, 1], squared[i, 1] = k, distance


@jit
def _swap(rows, seeds, chances, step, nearest, squared, distances, costs):
    n_rows, n_seeds = len(distances), len(costs)
    for i in range(n_rows):
        _find_two(rows, i, seeds, n_seeds, step, nearest, squared)
    for c in range(len(chances)):
        total, reached, drawn = 0.0, 0.0, n_rows - 1
        for i in range(n_rows):
            total += squared[i, 0]
        for i in range(n_rows):
            reached += squared[i, 0]
            if reached > chances[c] * total:
                drawn = i
                break
        base = 0.0
        for k in range(n_seeds):
            costs[k] = 0.0
        for i in range(n_rows):
            distance = distances[i] = _squared(rows, i, rows, drawn, step)
            with_new = min(squared[i, 0], distance)
            base += with_new
            # Without its seed, a row falls to the second or to the new one.
            costs[nearest[i, 0]] += min(squared[i, 1], distance) - with_new
        worst = 0
        for k in range(n_seeds):
            worst = k if costs[k] < costs[worst] else worst
        if base + costs[worst] < total:
            for j in range(0, step, LANES):
                store(seeds, worst * step + j, load(rows, drawn * step + j))
            for i in range(n_rows):
                if nearest[i, 0] == worst or nearest[i, 1] == worst:
                    _find_two(rows, i, seeds, n_seeds, step, nearest, squared)
                else:
                    _enter(i, worst, distances[i], nearest, squared)


def swapped(sample: FloatArray, seeds: FloatArray, chances: FloatArray) -> FloatArray:
    """Return seeds (q, M) of rows (n, M) after a swap is tried for each chance (s,); see `starts`."""
    (n_rows, n_features), step = sample.shape, -(-sample.shape[1] // LANES) * LANES
    rows, found = np.zeros((n_rows, step)), np.zeros((len(seeds), step))
    rows[:, :n_features], found[:, :n_features] = sample, seeds
    memory = np.zeros((n_rows, 2), dtype=np.int64), np.empty((n_rows, 2)), np.empty(n_rows)
    _swap(
        rows.reshape(-1),
        found.reshape(-1),
        np.ascontiguousarray(chances),
        step,
        *memory,
        np.empty(len(seeds)),
    )
    return found[:, :n_features]
