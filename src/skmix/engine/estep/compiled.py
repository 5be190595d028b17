"""The E-step and log-densities in compiled code, without the interpreter's lock.

Rows are taken in tiles of up to 256, feature by feature, so that a vector holds one feature of several rows.
Differences from a kernel's mean are taken first and whitened afterwards, so that digits are kept wherever a
kernel lies and however narrow it is. Second moments are about the means of the E-step for the same reason.
Diagonal, spherical and tied kernels near the origin need no such care: their log-densities and moments are
matrix products, for all kernels at once. The rows of a tile are ordered by class, so that a kernel can skip
those of classes in which its weight is zero.

Work is split into tasks by the sizes of the problem, never by the number of threads, and the sums of the
tasks are added in order: results are bitwise the same for any number of threads.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..compute import simd
from ..compute.arrays import FARTHEST_SQUARED, join
from ..compute.native import jit
from ..compute.simd import (
    LANES,
    ROWS,
    add,
    fma,
    larger,
    load,
    multiply,
    smaller,
    splat,
    store,
    subtract,
)
from ..compute.threads import Workers, aligned
from ..compute.translation import inner
from ..model import FARTHEST, Factor, FloatArray, IntArray, Statistics
from ..structures import Structure, structure_of
from ..structures.linalg import index_of
from ..tails import StudentT
from .reference import Kernels, Rows
from .terms import near_origin

# Up to this many features, the innermost loops are unrolled, in code compiled for each number of them.
_UNROLLED = 16
# Log-densities in a tile.
_TILE_NUMBERS = 1 << 14
# Most rows of a tile where loops over features are unrolled.
_LARGEST_TILE = 256
# Most rows of a tile where loops over features are not unrolled.
_LARGEST_BY_ROW = 160
# A tile has a multiple of this many rows: whole vectors.
_SMALLEST_TILE = 4 * LANES
# Most blocks of rows.
_MOST_BLOCKS = 256
# Fewest rows of a block.
_SMALLEST_BLOCK = 2048
# Most numbers in the sums of all blocks, for one start.
_SUMS = 1 << 24
# Most numbers in the sums of the starts that run together.
_SUMS_TOGETHER = 1 << 25
# Starts of a task, which share the rows of a tile.
_STARTS_OF_TASK = 4
# Responsibilities below this share of a kernel's largest in a tile do not change its moments.
NEGLIGIBLE_SHARE = 1e-22
# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_LEAST_SUM = 1e-150
# Kind of arithmetic: differences from a mean are whitened by a lower triangular matrix.
_TRIANGULAR = 0
# Kind of arithmetic: differences from a mean are divided by deviations, and projected on factors.
_FACTORS = 1
# Kind of arithmetic: log-densities and moments are matrix products with rows and their powers.
_EXPANDED = 2


@inner
def _padded(n):
    """Return n rounded up to whole vectors."""
    return -(-n // LANES) * LANES


class Sizes(NamedTuple):
    """The sizes of a problem and of its parts."""

    n_rows: int
    n_features: int
    n_starts: int
    n_kernels: int
    n_classes: int
    tile: int  # rows of a tile
    block: int  # rows of a task, a multiple of `tile`
    n_blocks: int
    width: int  # numbers of a mean: M, padded to vectors unless loops are unrolled
    depth: int  # number of factors, padded to vectors
    white: int  # numbers of a whitener
    moments: int  # numbers of a kernel's moments: `width` first ones, then the second ones
    kind: int  # how log-densities are computed
    padded_kernels: int  # K, padded to ROWS if they are expanded
    step: int  # numbers of a row: M padded, after expansion the terms whose sums are needed
    terms: int  # terms of an expanded log-density: M features, and their squares or the sum of them
    heavy: bool  # whether kernels are Student's t
    unrolled: int  # M if loops over features are unrolled, otherwise zero


class Data(NamedTuple):
    """Rows and their frame; codes and weights are empty if there are none."""

    flat: Any  # the memory that holds X
    steps: Any  # (2,): strides of rows and of features, in numbers
    codes: Any  # (N,)
    weights: Any  # (N,)
    scale: Any  # (M,)
    shift: Any  # (M,)
    limit: float  # values beyond ± limit are clipped


class Model(NamedTuple):
    """Kernels as flat arrays, padded to the lengths in `Sizes`."""

    base: Any  # (R, K, C): log-joints at the means
    means: Any  # (R, K, width)
    origins: Any  # (R, K, width): of the moments
    whitener: Any  # (R, padded K, white): coefficients of the terms, if expanded
    factors: Any  # (R, K, depth / ROWS, M, ROWS): V of each kernel
    rotation: Any  # (R, M, M): whitens the rows for all kernels; empty if each has its own whitener
    degrees: Any  # (R, K): degrees of freedom; empty for Gaussian kernels


_NO_NUMBERS = np.empty(0)
_NO_PLACES = np.empty(0, dtype=np.int64)


class BlockSums(NamedTuple):
    """The statistics of each block of rows, as flat arrays; empty where they are not needed."""

    likelihood: Any = _NO_NUMBERS  # (blocks, R, C)
    mass: Any = _NO_NUMBERS  # (blocks, R, K, C)
    moments: Any = _NO_NUMBERS  # (blocks, R, padded K, moments)
    precisions: Any = _NO_NUMBERS  # (blocks, R, K): E[u] of rows
    log_ratios: Any = _NO_NUMBERS  # (blocks, R, K): log(1 + d² / ν)


class Job(NamedTuple):
    """What the threads of a pass read and write together; arrays that are not needed are empty."""

    unrolled: Any  # addresses of the code for distances and for moments, or zeros; see `simd.unrolled`
    sizes: Sizes
    data: Data
    model: Model
    with_moments: bool = False
    sums: BlockSums = BlockSums()
    likeliest: Any = _NO_PLACES  # (N,): the most likely kernel of each row, if asked for
    mixing: Any = _NO_NUMBERS  # (K · L,): weights of mixtures
    out: Any = np.empty((0, 0))  # (N, K) or (N, L): log-densities


def _length_by_row(sizes: Sizes) -> int:
    return 0 if sizes.unrolled or sizes.kind == _EXPANDED else sizes.width * sizes.tile


# Lengths of the arrays of numbers in the memory of one thread.
_SCRATCH_NUMBERS: dict[str, Callable[[Sizes], int]] = {
    "x": lambda s: max(s.step, s.n_features) * s.tile,  # (step, tile): rows
    "white": lambda s: s.terms * s.tile if s.kind == _EXPANDED else 0,  # (terms, tile): whitened rows
    # (padded K, tile): log-densities, then responsibilities; one spare vector follows.
    "values": lambda s: s.padded_kernels * s.tile + LANES,
    "precisions": lambda s: (s.n_kernels * s.tile + LANES) * s.heavy,  # (K, tile): E[u] of t kernels
    "log_ratios": lambda s: (s.n_kernels * s.tile + LANES) * s.heavy,  # (K, tile): log(1 + d² / ν)
    "logs": lambda s: s.tile + LANES,  # (tile,): log-likelihoods
    "weights": lambda s: s.tile + LANES,  # (tile,): weights of the rows, zero beyond the last
    "joints": lambda s: s.n_kernels * LANES,  # (K, LANES): densities of a vector of rows, over the largest
    "few": lambda s: s.n_features * 2 * LANES,  # (M, 2 · LANES): differences of two vectors of rows
    # The others are for any number of features, where loops are not unrolled.
    "by_row": lambda s: 0 if s.unrolled else s.step * s.tile,  # (tile, step): rows
    "ahead": _length_by_row,  # (tile, width): differences
    "weighted": _length_by_row,  # (tile, width): differences times their weights
    "turned": lambda s: s.n_features * s.tile if s.depth else 0,  # (M, tile): differences by feature
    "along": lambda s: s.tile * s.depth,  # (tile, depth): differences projected on the factors
}
# Lengths of its arrays of indices of rows, classes and kernels.
_SCRATCH_PLACES: dict[str, Callable[[Sizes], int]] = {
    "order": lambda s: s.tile,  # (tile,): the rows by class
    "places": lambda s: s.tile,  # (tile,): where they begin
    "bounds": lambda s: s.n_classes + 1,  # first row of each class
    "present": lambda s: s.n_classes,  # classes with rows
    # (K,): rows low … high − 1, in whole vectors, belong to classes in which the kernel has a weight.
    "low": lambda s: s.n_kernels,
    "high": lambda s: s.n_kernels,
    "listed": lambda s: s.n_kernels,  # places of some kernels' log-joints
    "index": lambda s: s.tile + 1,  # places of the rows whose weights are not negligible
}
Scratch = namedtuple("Scratch", [*_SCRATCH_NUMBERS, *_SCRATCH_PLACES])


def scratch_of(sizes: Sizes) -> Scratch:
    """Return the memory of a thread, filled with zeros."""
    numbers = [aligned(length(sizes)) for length in _SCRATCH_NUMBERS.values()]
    for array in numbers:
        array[:] = 0.0
    places = [np.zeros(length(sizes), dtype=np.int64) for length in _SCRATCH_PLACES.values()]
    return Scratch(*numbers, *places)


@inner
def _sort(codes, a, n, n_classes, order, bounds, present):
    """Order rows a … a + n − 1 by class: order (n,), and bounds (C + 1,) of the classes in it.

    Returns how many classes have rows there; they are listed in `present`.
    """
    for c in range(n_classes + 1):
        bounds[c] = 0
    if n_classes == 1:
        present[0], bounds[1] = 0, n
        for i in range(n):
            order[i] = a + i
        return 1
    for i in range(n):
        bounds[codes[a + i] + 1] += 1
    for c in range(n_classes):
        bounds[c + 1] += bounds[c]
    for i in range(n):
        c = codes[a + i]
        order[bounds[c]] = a + i
        bounds[c] += 1
    n_present = 0
    for c in range(n_classes, 0, -1):
        bounds[c] = bounds[c - 1]
    bounds[0] = 0
    for c in range(n_classes):
        if bounds[c] < bounds[c + 1]:
            present[n_present] = c
            n_present += 1
    return n_present


@inner
def _gather_tile(data, a, n, tile, sizes, scratch, by_row):
    """Write rows a … a + n − 1 in the frame, by class, into x (step, tile) and by_row (tile, step).

    The latter may be empty. See `_sort`, whose number of classes is returned.
    """
    x, order, places, step = scratch.x, scratch.order, scratch.places, sizes.step
    n_present = _sort(data.codes, a, n, sizes.n_classes, order, scratch.bounds, scratch.present)
    for i in range(0, _padded(n)):
        places[i] = order[min(i, n - 1)] * data.steps[0]
    for i in range(0, n, LANES):
        simd.gather_rows(
            data.flat, places, i, data.steps[1], data.scale, data.shift, data.limit, x, tile, sizes.n_features
        )
        if sizes.terms <= step:
            _add_powers(x, i, tile, sizes)
        if len(by_row):
            for j in range(0, step, LANES):
                simd.transpose(x, j * tile + i, tile, by_row, i * step + j, step)
    return n_present


@inner
def _add_powers(x, r, tile, sizes):
    """Write the squares of a vector of rows x (terms, tile), or their sums, below them."""
    n_features, n_terms = sizes.n_features, sizes.terms
    if not n_terms:
        return
    length = splat(0.0)
    for j in range(n_features):
        each = load(x, j * tile + r)
        square = multiply(each, each)
        length = add(length, square)
        if n_terms == 2 * n_features:
            store(x, (n_features + j) * tile + r, square)
    if n_terms == n_features + 1:
        store(x, n_features * tile + r, length)


@inner
def _whiten(x, tile, matrix, at, n_features, out):
    """Write W x into out (M, tile), of rows x (M, tile), with W (M, M) lower triangular."""
    for i in range(n_features):
        for r in range(0, tile, 2 * LANES):
            one, other = splat(0.0), splat(0.0)
            for j in range(i + 1):
                number = splat(matrix[at + i * n_features + j])
                one = fma(number, load(x, j * tile + r), one)
                other = fma(number, load(x, j * tile + r + LANES), other)
            store(out, i * tile + r, one)
            store(out, i * tile + r + LANES, other)


@inner
def _multiply(left, left_at, depth, right, width, count, sums, sums_at, n_rows):
    """Add the product of matrices left[left_at:] (n_rows, depth) and right (depth, width) to sums[sums_at:].

    Only `count` columns and rows of them are multiplied.
    """
    for j in range(0, width, 2 * LANES):
        for k in range(0, n_rows, ROWS):
            at, place = left_at + k * depth, sums_at + k * width + j
            simd.add_products(left, at, depth, 1, right, j, width, count, sums, place, width, ROWS, 2)


@inner
def _fill_peaks(values, place, n, tile, base, at, scratch, n_present):
    """Write the log-joints at a kernel's mean, base[at:] of each class, for n rows into values[place:].

    Returns the first row of a class in which the kernel has a weight, and the end of the last.
    """
    bounds, begin, end = scratch.bounds, n, 0
    for p in range(n_present):
        c = scratch.present[p]
        fill(values, place + bounds[c], place + bounds[c + 1], base[at + c])
        if base[at + c] > -np.inf:
            begin, end = min(begin, bounds[c]), bounds[c + 1]
    fill(values, place + n, place + tile, 0.0)
    return begin, end


@inner
def add_distances(x, tile, sizes, model, kernel, ahead, values, place):
    """Add −½ times the squared distances of rows x (M, tile) under one kernel to values[place:].

    This is for any number of features, and tiles of pairs of vectors.
    """
    half, n_features, kind = splat(-0.5), sizes.n_features, sizes.kind
    white, mean_at = kernel * sizes.white, kernel * sizes.width
    for r in range(0, tile, 2 * LANES):
        one, other = splat(0.0), splat(0.0)
        for j in range(n_features):
            mean = splat(model.means[mean_at + j])
            a, b = subtract(load(x, j * tile + r), mean), subtract(load(x, j * tile + r + LANES), mean)
            store(ahead, j * 2 * LANES, a)
            store(ahead, j * 2 * LANES + LANES, b)
            if kind == _FACTORS:
                scale = splat(model.whitener[white + j])
                a, b = multiply(scale, a), multiply(scale, b)
                one, other = fma(a, a, one), fma(b, b, other)
        if kind == _TRIANGULAR:
            for i in range(0, sizes.width, ROWS):
                count = min(i + ROWS, n_features)
                found = simd.projected(model.whitener, white + i * sizes.width, ahead, 2 * LANES, count)
                one, other = add(one, found[0]), add(other, found[1])
        if kind == _FACTORS:
            for i in range(0, sizes.depth, ROWS):
                block = (kernel * sizes.depth + i) * n_features
                found = simd.projected(model.factors, block, ahead, 2 * LANES, n_features)
                one, other = subtract(one, found[0]), subtract(other, found[1])
        one, other = smaller(one, splat(FARTHEST_SQUARED)), smaller(other, splat(FARTHEST_SQUARED))
        if kind == _FACTORS:
            one, other = larger(one, splat(0.0)), larger(other, splat(0.0))
        store(values, place + r, fma(half, one, load(values, place + r)))
        store(values, place + r + LANES, fma(half, other, load(values, place + r + LANES)))


@inner
def _add_tails(distances, a, b, degrees, n_features, values, precisions, log_ratios, place):
    """Add the logarithms of t densities, relative to the peak, of rows a … b − 1 to values[place:].

    `distances` are −½ times squared ones. E[u] is written into `precisions`, which may be the same array, and
    the logarithm of 1 + d² / ν into `log_ratios`.
    """
    factor, power = splat(-2.0 / degrees), splat(-0.5 * (degrees + n_features))
    peak, one = splat((degrees + n_features) / degrees), splat(1.0)
    for r in range(place + a, place + b, LANES):
        ratio = fma(factor, load(distances, r), one)
        log = simd.log(ratio)
        store(values, r, fma(power, log, load(values, r)))
        store(precisions, r, simd.divide(peak, ratio))
        store(log_ratios, r, log)


@inner
def _apply_precisions(values, precisions, log_ratios, a, b):
    """Multiply responsibilities a … b − 1, whole vectors, by E[u].

    Returns the sum of the products, and that of responsibilities times the logarithms.
    """
    total, logs = splat(0.0), splat(0.0)
    for r in range(a, b, LANES):
        share = load(values, r)
        logs = fma(share, load(log_ratios, r), logs)
        share = multiply(share, load(precisions, r))
        total = add(total, share)
        store(values, r, share)
    return simd.total(total), simd.total(logs)


@inner
def _find_likeliest(values, n_kernels, n, tile, scratch, likeliest):
    """Record the most likely kernels of n rows by log-joints (K, tile)."""
    for r in range(0, tile, LANES):
        highest, which = load(values, r), splat(0)
        for k in range(1, n_kernels):
            each = load(values, k * tile + r)
            which = simd.where_larger(each, highest, splat(k), which)
            highest = larger(each, highest)
        store(scratch.index, r, which)
    for i in range(n):
        likeliest[scratch.order[i]] = scratch.index[i]


@inner
def _add_rows(sizes, scratch, n, part, sums):
    """Add n rows to the mass and to the first moments of their most likely kernels; see `_find_likeliest`."""
    by_row, step = scratch.by_row, sizes.step
    for i in range(n):
        k, weight = scratch.index[i], scratch.weights[i]
        sums.mass[part * sizes.n_kernels + k] += weight
        at, of_row = (part * sizes.padded_kernels + k) * step, splat(weight)
        for j in range(0, step, LANES):
            total = load(sums.moments, at + j)
            store(sums.moments, at + j, fma(of_row, load(by_row, i * step + j), total))


@inner
def _normalise(values, tile, kernels, count, a, b, weights, logs):
    """Turn log-joints (K, tile) of rows a … b − 1 into responsibilities times weights.

    It does so for the first `count` kernels, or for those in a list, and writes weighted log-likelihoods into
    `logs`.
    """
    for r in range(a, b, LANES):
        highest = splat(-np.inf)
        for i in range(count):
            k = i if kernels is None else kernels[i]
            highest = larger(highest, load(values, k * tile + r))
        sums = splat(0.0)
        for i in range(count):
            k = i if kernels is None else kernels[i]
            joint = simd.exp(subtract(load(values, k * tile + r), highest))
            store(values, k * tile + r, joint)
            sums = add(sums, joint)
        weight = load(weights, r)
        store(logs, r, multiply(weight, add(highest, simd.log(sums))))
        share = simd.divide(weight, sums)
        for i in range(count):
            k = i if kernels is None else kernels[i]
            store(values, k * tile + r, multiply(load(values, k * tile + r), share))


@inner
def _normalise_listed(values, tile, n_kernels, n_present, scratch):
    """Normalise all rows, class by class, over the kernels that have a weight in the class."""
    low, high, kernels, end = scratch.low, scratch.high, scratch.listed, 0
    for p in range(n_present):
        begin, end, count = end, _padded(scratch.bounds[scratch.present[p] + 1]), 0
        for k in range(n_kernels):
            kernels[count] = k
            count += low[k] < end and begin < high[k]
        _normalise(values, tile, kernels, count, begin, end, scratch.weights, scratch.logs)


@inner
def _sum(values, a, b):
    """Return the sum of values a … b − 1; a vector beyond b must be readable."""
    some = splat(0.0)
    while a + LANES <= b:
        some = add(some, load(values, a))
        a += LANES
    return simd.total(add(some, simd.head(load(values, a), b - a)))


@inner
def fill(values, a, b, number):
    """Set values a … b − 1 to a number; up to LANES − 1 values beyond may be set too."""
    some = splat(number)
    for i in range(a, b, LANES):
        store(values, i, some)


@inner
def _choose(weights, at, n, index):
    """List the rows whose weights matter in `index`; return their number."""
    largest = splat(0.0)
    for i in range(0, n, LANES):
        largest = larger(largest, load(weights, at + i))
    count, least = 0, NEGLIGIBLE_SHARE * simd.largest(largest)
    for start in range(0, n, LANES):
        if simd.any_above(load(weights, at + start), least):
            for i in range(start, start + LANES):
                index[count] = i
                count += weights[at + i] > least
    return count


@inner
def _add_sums(sizes, model, kernel, scratch, n, weights, at, moments, first_at):
    """Add the moments of n rows with weights[at:] about the kernel's origin, for any number of features."""
    width, depth, kind, by_row, index = sizes.width, sizes.depth, sizes.kind, scratch.by_row, scratch.index
    origin_at, second_at = kernel * width, first_at + width
    count = _choose(weights, at, n, index)
    ahead, weighted = scratch.ahead, scratch.weighted
    for j in range(0, width, LANES):
        origin, sums, squares = load(model.origins, origin_at + j), load(moments, first_at + j), splat(0.0)
        for c in range(count):
            each = subtract(load(by_row, index[c] * width + j), origin)
            share = multiply(each, splat(weights[at + index[c]]))
            store(ahead, c * width + j, each)
            store(weighted, c * width + j, share)
            sums = add(sums, share)
            squares = fma(share, each, squares)
        store(moments, first_at + j, sums)
        if kind == _FACTORS:
            store(moments, second_at + j, add(load(moments, second_at + j), squares))
    if kind == _TRIANGULAR:
        for i in range(0, width, ROWS):
            j = 0
            while j < i + ROWS:
                place = second_at + i * width + j
                if j + LANES < i + ROWS:
                    simd.add_products(
                        weighted, i, 1, width, ahead, j, width, count, moments, place, width, ROWS, 2
                    )
                    j += 2 * LANES
                else:
                    simd.add_products(
                        weighted, i, 1, width, ahead, j, width, count, moments, place, width, ROWS, 1
                    )
                    j += LANES
        return
    if not depth:
        return
    n_features, tile, turned, along = sizes.n_features, sizes.tile, scratch.turned, scratch.along
    for c in range(count):
        for j in range(n_features):
            turned[j * tile + c] = ahead[c * width + j]
    fill(along, 0, len(along), 0.0)
    for block in range(0, depth, LANES):
        factors_at = (kernel * depth + block) * n_features
        for c in range(0, count, ROWS):
            simd.add_products(
                turned, c, 1, tile, model.factors, factors_at, ROWS, n_features,
                along, c * depth + block, depth, ROWS, 1,
            )  # fmt: skip
        for i in range(0, width, ROWS):
            place = second_at + width + i * depth + block
            simd.add_products(
                weighted, i, 1, width, along, block, depth, count, moments, place, depth, ROWS, 1
            )


@inner
def _write(values, a, n, sizes, mixing, scratch, out):
    """Write the log-densities (K, tile) of rows a … a + n − 1, or of their mixtures, into `out`."""
    n_kernels, tile, n_columns = sizes.n_kernels, sizes.tile, out.shape[1]
    if not len(mixing):
        for i in range(n):
            for k in range(n_kernels):
                out[a + i, k] = values[k * tile + i]
        return
    joints, sums, logs = scratch.joints, scratch.weights, scratch.logs
    for r in range(0, n, LANES):
        highest = load(values, r)
        for k in range(1, n_kernels):
            highest = larger(highest, load(values, k * tile + r))
        for k in range(n_kernels):
            store(joints, k * LANES, simd.exp(subtract(load(values, k * tile + r), highest)))
        for c in range(n_columns):
            found = splat(0.0)
            for k in range(n_kernels):
                found = fma(splat(mixing[k * n_columns + c]), load(joints, k * LANES), found)
            store(sums, 0, found)
            store(logs, 0, add(highest, simd.log(larger(found, splat(_LEAST_SUM)))))
            for i in range(min(LANES, n - r)):
                out[a + r + i, c] = logs[i]
                if sums[i] < _LEAST_SUM:
                    out[a + r + i, c] = _log_sum(values, r + i, sizes, mixing, c, n_columns)


@inner
def _log_sum(values, at, sizes, mixing, c, n_columns):
    """Return log Σ_k w_kc e^v_k of one row whose nearest kernels have no weight in the class."""
    highest, found = -np.inf, 0.0
    for k in range(sizes.n_kernels):
        if mixing[k * n_columns + c] > 0:
            highest = max(highest, values[k * sizes.tile + at] + math.log(mixing[k * n_columns + c]))
    for k in range(sizes.n_kernels):
        if mixing[k * n_columns + c] > 0 and highest > -np.inf:
            weight = math.log(mixing[k * n_columns + c])
            found += math.exp(values[k * sizes.tile + at] + weight - highest)
    return highest + math.log(found) if found > 0 else highest


@jit
def _work(counter, n_tasks, job, scratch):
    """Do the work of a thread: the E-step, or write log-densities into `out` if that has rows."""
    unrolled, sizes, data, model, with_moments, sums, likeliest, mixing, out = job
    n_features, tile, width, n_kernels = sizes.n_features, sizes.tile, sizes.width, sizes.n_kernels
    n_classes, n_starts, of_block = sizes.n_classes, sizes.n_starts, sizes.block // tile
    x, values, logs, weights = scratch.x, scratch.values, scratch.logs, scratch.weights
    order, bounds, present = scratch.order, scratch.bounds, scratch.present
    low, high, heavy = scratch.low, scratch.high, sizes.heavy
    by_row = scratch.by_row if with_moments else scratch.by_row[:0]
    likelihood, mass, moments = sums.likelihood, sums.mass, sums.moments
    while True:
        task = simd.take_numbers(counter, 1)
        if task >= n_tasks:
            break
        part, first_start = task % sizes.n_blocks, task // sizes.n_blocks * _STARTS_OF_TASK
        for t in range(part * of_block, min((part + 1) * of_block, -(-sizes.n_rows // tile))):
            a, n = t * tile, min(tile, sizes.n_rows - t * tile)
            n_present = _gather_tile(data, a, n, tile, sizes, scratch, by_row)
            fill(weights, 0, n, 1.0)
            fill(weights, n, tile, 0.0)
            if len(data.weights):
                for i in range(n):
                    weights[i] = data.weights[order[i]]
            for s in range(first_start, min(first_start + _STARTS_OF_TASK, n_starts)):
                seen = x
                if len(model.rotation):
                    seen = scratch.white
                    _whiten(x, tile, model.rotation, s * n_features * n_features, n_features, seen)
                    for r in range(0, tile, LANES):
                        _add_powers(seen, r, tile, sizes)
                skips = False
                for i in range(n_kernels):
                    kernel, place = s * n_kernels + i, i * tile
                    begin, end = _fill_peaks(
                        values, place, n, tile, model.base, kernel * n_classes, scratch, n_present
                    )
                    if not unrolled[0]:
                        begin, end = 0, n
                    skips |= begin > 0 or end < n
                    begin, end = begin // LANES * LANES, _padded(end)
                    low[i], high[i] = begin, end
                    into = values
                    if heavy:
                        into = scratch.precisions
                        fill(into, place, place + tile, 0.0)
                    if unrolled[0]:
                        simd.call(
                            unrolled[0], x, begin, tile, end - begin, model.means, kernel * width,
                            model.whitener, kernel * sizes.white, into, place + begin,
                        )  # fmt: skip
                    elif sizes.kind != _EXPANDED:
                        add_distances(x, tile, sizes, model, kernel, scratch.few, into, place)
                    if heavy:
                        _add_tails(
                            into, begin, end, model.degrees[kernel], n_features,
                            values, into, scratch.log_ratios, place,
                        )  # fmt: skip
                if sizes.kind == _EXPANDED:
                    # Expanded log-densities: coefficients times terms.
                    at_start = s * sizes.padded_kernels * sizes.terms
                    _multiply(
                        model.whitener, at_start, sizes.terms, seen, tile, sizes.terms, values, 0,
                        sizes.padded_kernels,
                    )  # fmt: skip
                if len(out):
                    _write(values, a, n, sizes, mixing, scratch, out)
                if len(likeliest):
                    _find_likeliest(values, n_kernels, n, tile, scratch, likeliest)
                if not len(likelihood):
                    if with_moments:
                        _add_rows(sizes, scratch, n, part, sums)
                    continue
                if skips:
                    _normalise_listed(values, tile, n_kernels, n_present, scratch)
                else:
                    _normalise(values, tile, None, n_kernels, 0, _padded(n), weights, logs)
                batch = part * n_starts + s
                for p in range(n_present):
                    c = present[p]
                    likelihood[batch * n_classes + c] += _sum(logs, bounds[c], bounds[c + 1])
                if not with_moments:
                    continue
                if sizes.kind == _EXPANDED:
                    # Moments about zero: responsibilities times rows.
                    own = batch * sizes.padded_kernels * sizes.step
                    _multiply(values, 0, tile, by_row, sizes.step, n, moments, own, sizes.padded_kernels)
                for i in range(n_kernels):
                    kernel, own, place = s * n_kernels + i, batch * n_kernels + i, i * tile
                    begin, end, shares = n, 0, 0.0
                    for p in range(n_present):
                        c = present[p]
                        if low[i] <= bounds[c] and bounds[c + 1] <= high[i]:
                            share = _sum(values, place + bounds[c], place + bounds[c + 1])
                            mass[own * n_classes + c] += share
                            shares += share
                            if share != 0.0:
                                begin, end = min(begin, bounds[c]), bounds[c + 1]
                    if shares <= 0.0:
                        continue
                    if heavy:
                        found = _apply_precisions(
                            values, scratch.precisions, scratch.log_ratios,
                            place + begin // LANES * LANES, place + _padded(end),
                        )  # fmt: skip
                        sums.precisions[own] += found[0]
                        sums.log_ratios[own] += found[1]
                    if unrolled[0]:
                        begin = begin // LANES * LANES
                        simd.call(
                            unrolled[1], x, begin, tile, _padded(end) - begin, values, place + begin,
                            model.origins, kernel * width, moments, own * sizes.moments,
                        )  # fmt: skip
                    elif sizes.kind != _EXPANDED:
                        _add_sums(
                            sizes, model, kernel, scratch, n, values, place, moments, own * sizes.moments
                        )


def expect(
    rows: Rows,
    kernels: Kernels,
    origins: FloatArray,
    pool: Workers,
    *,
    with_moments: bool = True,
) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about `origins` (R, K, M)."""

    def of_starts(starts: slice | IntArray) -> Statistics:
        return expect(rows, kernels.take(starts), origins[starts], pool, with_moments=with_moments)

    # Origins other than zero are for kernels that lost digits.
    near = near_origin(kernels.means, kernels.factor, kernels.structure, kernels.tail)
    near &= ~origins.any(axis=(1, 2))
    if near.any() and not near.all():
        # The arithmetic of a start must not depend on the others.
        parts = np.flatnonzero(near), np.flatnonzero(~near)
        return join([of_starts(part) for part in parts]).take(np.argsort(np.concatenate(parts)))
    job = prepare(rows, kernels, origins, near=bool(near[0]))
    sizes, model = job.sizes, job.model
    n_starts, n_kernels, n_classes = sizes.n_starts, sizes.n_kernels, sizes.n_classes
    of_start = n_classes + n_kernels * n_classes + sizes.padded_kernels * sizes.moments
    n_tasks = max(1, _SUMS_TOGETHER // (sizes.n_blocks * of_start) // _STARTS_OF_TASK)
    together = n_tasks * _STARTS_OF_TASK
    if n_starts > together:
        return join([of_starts(slice(a, a + together)) for a in range(0, n_starts, together)])
    leading = (sizes.n_blocks, n_starts)
    shapes = [
        (*leading, n_classes),
        (*leading, n_kernels, n_classes),
        (*leading, sizes.padded_kernels, sizes.moments if with_moments else 0),
        (*leading, n_kernels if len(model.degrees) else 0),
        (*leading, n_kernels if len(model.degrees) else 0),
    ]
    sums = BlockSums(*(np.zeros(math.prod(shape)) for shape in shapes))
    job = job._replace(with_moments=with_moments, sums=sums)
    run(pool, sizes.n_blocks * -(-n_starts // _STARTS_OF_TASK), job)
    likelihood, mass, moments, precisions, log_ratios = (
        array.reshape(shape).sum(axis=0) if sizes.n_blocks > 1 else array.reshape(shape[1:])
        for array, shape in zip(sums, shapes, strict=True)
    )
    found = statistics_of(rows, kernels, sizes, (likelihood, mass, moments))
    if with_moments and isinstance(tail := kernels.tail, StudentT):
        # E[log u] of a row at the mean; its distance takes log(1 + d² / ν) from it.
        at_mean = np.log1p(sizes.n_features / tail.degrees) + tail.mean_logs(sizes.n_features)[..., 0]
        found = replace(found, of_tail=(precisions, mass.sum(axis=-1) * at_mean - log_ratios))
    return found


def statistics_of(
    rows: Rows, kernels: Kernels, sizes: Sizes, sums: tuple[FloatArray, FloatArray, FloatArray]
) -> Statistics:
    """Return padded sums over all rows as statistics; the moments may be empty."""
    likelihood, mass, moments = sums
    n_starts, n_kernels, n_features = kernels.means.shape
    if not moments.size:
        return Statistics(likelihood, mass, np.zeros_like(kernels.means), np.zeros((n_starts, n_kernels, 1)))
    first, second = moments[:, :n_kernels, :n_features], moments[:, :n_kernels, sizes.width :]
    if sizes.kind == _EXPANDED:
        if kernels.structure.shared:
            # Only the sum over kernels has a meaning: the scatter of the rows, which never changes.
            second = np.zeros((n_starts, n_kernels, kernels.structure.n_second(n_features)))
            second[:, 0] = kernels.structure.pack(rows.scatter)
        elif kernels.structure.isotropic:
            # Only the sum over features has a meaning.
            second = np.repeat(second[..., :1] / n_features, n_features, axis=-1)
        else:
            second = second[..., :n_features]
    elif sizes.kind == _TRIANGULAR:
        second = moments.take(_places(kernels.structure, sizes), axis=-1)
    else:
        crossed: FloatArray = second[..., sizes.width :].reshape(
            n_starts, n_kernels, sizes.width, sizes.depth
        )
        n_factors = kernels.factor.whitener.shape[-1] - 1 if sizes.depth else 0
        crossed = crossed[..., :n_features, :n_factors].reshape(n_starts, n_kernels, -1)
        second = np.concatenate([second[..., :n_features], crossed], axis=-1)
    return Statistics(likelihood, mass, np.ascontiguousarray(first), np.ascontiguousarray(second))


@lru_cache
def _places(structure: Structure, sizes: Sizes) -> IntArray:
    """Return where the second-order terms (S,) of a structure are among the moments of a kernel."""
    i, j = structure.pairs(sizes.n_features)
    row, column = np.maximum(i, j), np.minimum(i, j)
    return sizes.width + (row * (row + 1) // 2 + column if sizes.unrolled else row * sizes.width + column)


def evaluate(rows: Rows, kernels: Kernels, weights: FloatArray | None, pool: Workers) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), under one start, or their mixtures with weights (K, L)."""
    alone = np.zeros((1, kernels.means.shape[1], 1))
    unweighted = replace(kernels, log_weights=alone)
    near = bool(near_origin(kernels.means, kernels.factor, kernels.structure, kernels.tail)[0])
    job = prepare(rows, unweighted, kernels.means, near=near)
    out = np.empty((len(rows.X), job.sizes.n_kernels if weights is None else weights.shape[1]))
    job = job._replace(out=out, mixing=job.mixing if weights is None else flat(weights))
    run(pool, job.sizes.n_blocks, job)
    return out


def cluster(rows: Rows, pool: Workers, centres: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return sums (K, M + 1) of the rows nearest to centres (K, M) and of their weights, and which (N,).

    Of equally near centres, the first one has the row.
    """
    # The nearest centre is the most likely kernel if all kernels are spheres of one size.
    (n_centres, n_features), means, none = centres.shape, centres[None], np.zeros((1, len(centres)))
    spheres = Factor(np.ones_like(means), none, np.ones(1, dtype=bool))
    kernels = Kernels(structure_of("spherical"), means, spheres, none, none[..., None])
    job = prepare(rows, kernels, means, near=True)
    # The length of a row is the same for all centres: without that term no digits are lost.
    n_padded, n_blocks, step = job.sizes.padded_kernels, job.sizes.n_blocks, _padded(n_features)
    sizes = job.sizes._replace(terms=n_features, step=step, moments=step)
    model = job.model._replace(whitener=flat(job.model.whitener.reshape(n_padded, -1)[:, :-1]))
    sums = BlockSums(mass=np.zeros(n_blocks * n_centres), moments=np.zeros(n_blocks * n_padded * step))
    found = np.empty(len(rows.X), dtype=np.int64)
    job = job._replace(sizes=sizes, model=model, with_moments=True, sums=sums, likeliest=found)
    run(pool, n_blocks, job)
    mass, moments = (each.reshape(n_blocks, -1).sum(axis=0) for each in (sums.mass, sums.moments))
    return np.column_stack([moments.reshape(n_padded, step)[:n_centres, :n_features], mass]), found


def run(pool: Workers, n_tasks: int, job: Job) -> None:
    """Do all tasks of a job on all threads."""
    sizes, counter = job.sizes, np.zeros(1, dtype=np.int64)
    common = sizes._replace(n_rows=0, block=0, n_blocks=0)  # memory does not depend on these

    def work_in_thread() -> None:
        # Allocate once for all passes: allocation needs the interpreter's lock, so threads would wait for it.
        scratch = pool.kept(common, lambda: scratch_of(sizes))
        _work(counter, n_tasks, job, scratch)

    pool.run(work_in_thread, n_tasks)


def data_of(rows: Rows) -> Data:
    """Return rows as a view of the memory that holds them, whatever the order of their axes."""
    X = rows.X
    steps = [step // X.itemsize for step in X.strides]
    if min(steps) < 0 or any(step % X.itemsize for step in X.strides) or not X.flags.aligned:
        X = np.ascontiguousarray(X)
        steps = [X.shape[1], 1]
    n_numbers = sum((n - 1) * step for n, step in zip(X.shape, steps, strict=True)) + 1
    return Data(
        as_strided(X, (n_numbers,), (X.itemsize,), writeable=False),
        np.array(steps, dtype=np.int64),
        flat(_NO_PLACES if rows.codes is None else np.asarray(rows.codes, dtype=np.int64)),
        flat(_NO_NUMBERS if rows.weights is None else rows.weights),
        flat(1.0 / rows.frame.scale),
        flat(rows.frame.shift),
        FARTHEST,
    )


def prepare(rows: Rows, kernels: Kernels, origins: FloatArray, *, near: bool) -> Job:
    """Return a job with rows and kernels as flat arrays, which asks for nothing yet."""
    n_starts, n_kernels, n_features = kernels.means.shape
    structure, whitener, means = kernels.structure, kernels.factor.whitener, kernels.means
    factors, rotation, depth, size, n_terms = _NO_NUMBERS, _NO_NUMBERS, 0, 0, 0
    kind, width = _FACTORS, _padded(n_features)
    step, n_padded, constants = width, n_kernels, kernels.constants
    if near:
        kind, width, n_padded = _EXPANDED, n_features, -(-n_kernels // ROWS) * ROWS
        if structure.shared:
            rotation, means = whitener, means @ whitener[:, 0].mT
            whitener = np.ones_like(means)
        # −½ Σ s²(x − m)² = Σ s²m x − ½ Σ s²x² − ½ Σ s²m²
        squares = whitener**2
        constants = constants - 0.5 * (squares * means**2).sum(axis=-1)
        last = -0.5 * (squares[..., :1] if structure.shared or structure.isotropic else squares)
        whitener = np.concatenate([squares * means, last], axis=-1)
        n_terms = whitener.shape[-1]
        whitener = _filled(whitener, n_padded, n_terms)
        step = -(-(n_features if structure.shared else n_terms) // (2 * LANES)) * 2 * LANES
    elif structure.projects:
        depth = _padded(whitener.shape[-1] - 1)
        factors = np.zeros((n_starts, n_kernels, depth, n_features))
        factors[:, :, : whitener.shape[-1] - 1] = np.swapaxes(whitener[..., :-1], -1, -2)
        factors = _in_blocks(factors)
        whitener = whitener[..., -1]
    n_moments = step if near else width * (2 + depth)
    if structure.triangular and not near:
        kind, size = _TRIANGULAR, n_features if n_features <= _UNROLLED else 0
        if size:
            width, n_moments = n_features, n_features * (n_features + 3) // 2
            numbers: FloatArray = whitener.reshape(*whitener.shape[:2], -1)
            whitener = numbers.take(index_of(n_features, "triangle"), axis=-1)
        else:
            n_moments = width * (1 + width)
            whitener = _in_blocks(_filled(whitener, width, width))
        if structure.shared:
            whitener = np.broadcast_to(whitener, (n_starts, n_kernels, *whitener.shape[2:]))
    n_classes = kernels.log_weights.shape[-1]
    tile = max(
        3, min(_TILE_NUMBERS // n_kernels, _LARGEST_TILE if size else _LARGEST_BY_ROW) // _SMALLEST_TILE
    )
    # Features must not lie a power of two apart: they would compete for the same lines of the cache.
    tile = _SMALLEST_TILE * (tile - 1 + tile % 2)
    of_block = n_classes + n_kernels * n_classes + n_padded * n_moments
    n = len(rows.X)
    n_blocks = max(1, min(_MOST_BLOCKS, n // _SMALLEST_BLOCK, max(2, _SUMS // of_block)))
    block = tile * max(1, -(-n // (n_blocks * tile)))
    sizes = Sizes(
        n, n_features, n_starts, n_kernels, n_classes, tile, block, -(-n // block),
        width, depth, whitener[0, 0].size, n_moments, kind, n_padded, step, n_terms,
        kernels.tail.weighted, size,
    )  # fmt: skip
    base = constants[..., None] + kernels.log_weights
    padded = _filled(means, width), _filled(origins, width)
    degrees = kernels.tail.degrees if isinstance(kernels.tail, StudentT) else _NO_NUMBERS
    arrays = base, *padded, whitener, factors, rotation, degrees
    data = rows.kept.get("data") or rows.kept.setdefault("data", data_of(rows))
    return Job(simd.unrolled(size), sizes, data, Model(*map(flat, arrays)))


def _filled(array: FloatArray, *shape: int) -> FloatArray:
    """Pad the last axes of an array with zeros to that shape."""
    own = array.shape[-len(shape) :]
    if own == shape:
        return array
    whole = np.zeros((*array.shape[: -len(shape)], *shape))
    place: Any = (..., *map(slice, own))
    whole[place] = array
    return whole


def flat(array: np.ndarray) -> np.ndarray:
    """Return the numbers of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1)


def _in_blocks(matrices: FloatArray) -> FloatArray:
    """Return matrices (R, K, a, b) as (R, K, a / ROWS, b, ROWS): a column of ROWS numbers is contiguous."""
    n_starts, n_kernels, a, b = matrices.shape
    blocks = matrices.reshape(n_starts, n_kernels, a // ROWS, ROWS, b)
    return np.ascontiguousarray(np.swapaxes(blocks, -1, -2))
