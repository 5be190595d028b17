"""Triton kernels for the memory-bound steps of a pass: each reads its input and writes its output once.

As sequences of PyTorch operations, the same steps take three to five times the memory traffic.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from .operations import Array

# Fastest or nearly fastest sizes on an H200, for 16 to 1024 kernels and 16 to 128 features. Numbers in a tile
# of responsibilities, by their bytes; fewest and most rows of it.
_TILE, _FEWEST_IN_TILE, _MOST_IN_TILE = {8: 2048, 4: 8192}, 16, 64
_PRODUCTS = 512
_ROWS = 4096
# Rows of a tile of distances, by matrices and by scales; rows of a tile, and programs, of moments.
_ROWS_WHITENED, _ROWS_SCALED, _COLUMNS, _PIECES = 64, 256, 128, 32
# Rows of a tile of squared distances from a seed.
_ROWS_SEEDED = 32
# More kernels than this do not fit in a tile, and more rows to draw seeds from than that.
MOST_KERNELS, MOST_SAMPLED = 4096, 1 << 17


@triton.jit
def _enter(rows, out, scale, shift, n_rows, stride, WIDTH: tl.constexpr, n_features, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = tl.arange(0, WIDTH)
    inside = (n[:, None] < n_rows) & (m[None, :] < n_features)
    x = tl.load(rows + n[:, None] * stride + m[None, :], mask=inside)
    unit = tl.load(scale + m, mask=m < n_features, other=1.0)
    origin = tl.load(shift + m, mask=m < n_features)
    framed = x.to(unit.dtype) * (1.0 / unit)[None, :] - origin[None, :]
    tl.store(out + m[:, None].to(tl.int64) * n_rows + n[None, :], tl.trans(framed), mask=tl.trans(inside))


@triton.jit
def _products(terms, first, second, n_rows, n_features, n_blocks, BLOCK: tl.constexpr):
    # One axis of programs: the others are limited to 65535.
    pair = tl.program_id(0) // n_blocks
    n = (tl.program_id(0) % n_blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = n < n_rows
    i = tl.load(first + pair)
    j = tl.load(second + pair)
    product = tl.load(terms + i * n_rows + n, mask=inside) * tl.load(terms + j * n_rows + n, mask=inside)
    tl.store(terms + (n_features + pair).to(tl.int64) * n_rows + n, product, mask=inside)


@triton.jit
def _normalise(values, offsets, weights, log_sums, mass, n_rows, n_kernels,
               WIDTH: tl.constexpr, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr):  # fmt: skip
    start = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, WIDTH).to(tl.int64)
    inside = (k[:, None] < n_kernels) & (n[None, :] < n_rows)
    where = values + (start * n_kernels + k[:, None]) * n_rows + n[None, :]
    offset = tl.load(offsets + start * n_kernels + k, mask=k < n_kernels, other=0.0)
    logs = tl.load(where, mask=inside, other=-float("inf")) + offset[:, None]
    # Rows beyond the last would be minus infinity throughout.
    largest = tl.where(n < n_rows, tl.max(logs, axis=0), 0.0)
    joint = tl.exp(logs - largest[None, :])
    total = tl.where(n < n_rows, tl.sum(joint, axis=0), 1.0)
    weight = 1.0 / total
    if WEIGHTED:
        weight *= tl.load(weights + n, mask=n < n_rows, other=0.0)
    share = joint * weight[None, :]
    tl.store(where, share, mask=inside)
    tl.store(log_sums + start * n_rows + n, tl.log(total) + largest, mask=n < n_rows)
    place = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + start) * n_kernels + k
    tl.store(mass + place, tl.sum(share, axis=1), mask=k < n_kernels)


@triton.jit(do_not_specialize=["q"])
def _seed(sample, places, chances, nearest, sums, next_nearest, next_sums, q, n_rows, n_features, n_blocks,
          BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    # Every program finds the row of seed q by itself: the block that the chance falls into, then the row.
    b = tl.arange(0, BLOCKS)
    totals = tl.load(sums + b, mask=b < n_blocks, other=0.0)
    threshold = tl.load(chances + q) * tl.sum(totals, axis=0)
    passed = (tl.cumsum(totals, axis=0) <= threshold) & (b < n_blocks)
    block = tl.minimum(tl.sum(passed.to(tl.int64), axis=0), n_blocks - 1)
    before = tl.sum(tl.where(b < block, totals, 0.0), axis=0)
    m = block * BLOCK + tl.arange(0, BLOCK)
    near = tl.load(nearest + m, mask=m < n_rows, other=0.0)
    passed = before + tl.cumsum(near, axis=0) <= threshold
    row = tl.minimum(block * BLOCK + tl.sum(passed.to(tl.int64), axis=0), n_rows - 1)
    row = tl.where(q == 0, tl.load(places), row)
    if tl.program_id(0) == 0:
        tl.store(places + q, row)
    # Its own rows' distances from the nearest seed so far. Others still read those before.
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), dtype=tl.float64)
    for a in range(0, n_features, PART):
        j = a + tl.arange(0, PART)
        inside = (n[:, None] < n_rows) & (j[None, :] < n_features)
        x = tl.load(sample + n[:, None] * n_features + j[None, :], mask=inside, other=0.0)
        seed = tl.load(sample + row * n_features + j, mask=j < n_features, other=0.0)
        difference = tl.where(inside, x - seed[None, :], 0.0)
        found += tl.sum(difference * difference, axis=1)
    found = tl.minimum(found, tl.load(nearest + n, mask=n < n_rows, other=0.0))
    tl.store(next_nearest + n, found, mask=n < n_rows)
    tl.store(next_sums + tl.program_id(0), tl.sum(found, axis=0))


@triton.jit
def _whitened(x, means, whiteners, out, n_rows, n_features,
              PART: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    kernel = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = tl.arange(0, PART)
    found = tl.zeros((BLOCK,), dtype=x.dtype.element_ty)
    for a in range(0, n_features, PART):
        i = a + m
        white = tl.zeros((PART, BLOCK), dtype=x.dtype.element_ty)
        # Whiteners are lower triangular.
        for b in range(0, a + PART, PART):
            j = b + m
            square = (i[:, None] < n_features) & (j[None, :] < n_features)
            where = whiteners + (kernel * n_features + i[:, None]) * n_features + j[None, :]
            matrix = tl.load(where, mask=square, other=0.0)
            mean = tl.load(means + kernel * n_features + j, mask=j < n_features, other=0.0)
            inside = (j[:, None] < n_features) & (n[None, :] < n_rows)
            rows = tl.load(x + j[:, None].to(tl.int64) * n_rows + n[None, :], mask=inside, other=0.0)
            white = tl.dot(
                matrix, rows - mean[:, None], white, input_precision=PRECISION, out_dtype=white.dtype
            )
        found += tl.sum(white * white, axis=0)
    tl.store(out + kernel * n_rows + n, found, mask=n < n_rows)


@triton.jit
def _scaled(x, means, scales, out, n_rows, n_features, n_kernels,
            GROUP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    k = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((GROUP, BLOCK), dtype=x.dtype.element_ty)
    for j in range(n_features):
        mean = tl.load(means + j * n_kernels + k, mask=k < n_kernels, other=0.0)
        scale = tl.load(scales + j * n_kernels + k, mask=k < n_kernels, other=0.0)
        rows = tl.load(x + tl.cast(j, tl.int64) * n_rows + n, mask=n < n_rows, other=0.0)
        white = (rows[None, :] - mean[:, None]) * scale[:, None]
        found += white * white
    inside = (k[:, None] < n_kernels) & (n[None, :] < n_rows)
    tl.store(out + k[:, None].to(tl.int64) * n_rows + n[None, :], found, mask=inside)


@triton.jit
def _moments_about(x, origins, weights, first, second, n_rows, n_features, n_loops,
                   PART: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    kernel = tl.program_id(0).to(tl.int64)
    m = tl.program_id(1) * PART + tl.arange(0, PART)
    origin = tl.load(origins + kernel * n_features + m, mask=m < n_features, other=0.0)
    sums = tl.zeros((PART,), dtype=tl.float64)
    squares = tl.zeros((PART,), dtype=tl.float64)
    for part in range(n_loops):
        n = (tl.program_id(2).to(tl.int64) * n_loops + part) * BLOCK + tl.arange(0, BLOCK)
        inside = (m[:, None] < n_features) & (n[None, :] < n_rows)
        rows = tl.load(x + m[:, None].to(tl.int64) * n_rows + n[None, :], mask=inside, other=0.0)
        weight = tl.load(weights + kernel * n_rows + n, mask=n < n_rows, other=0.0)
        difference = rows - origin[:, None]
        weighted = difference * weight[None, :]
        sums += tl.sum(weighted, axis=1).to(tl.float64)
        squares += tl.sum(weighted * difference, axis=1).to(tl.float64)
    place = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + kernel) * n_features + m
    tl.store(first + place, sums, mask=m < n_features)
    tl.store(second + place, squares, mask=m < n_features)


def enter(rows: Array, scale: Array, shift: Array, out: Array) -> None:
    """Write rows (n, M) into `out` (M, n), feature-major and in the frame."""
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    n_rows, n_features = rows.shape
    width = triton.next_power_of_2(n_features)
    block = max(16, _ROWS // width)
    with torch.cuda.device(rows.device):
        _enter[(triton.cdiv(n_rows, block),)](
            rows, out, scale, shift, n_rows, rows.stride(0), width, n_features, block
        )


def products(terms: Array, first: Array, second: Array, n_features: int) -> None:
    """Write the products of pairs of the first M rows of `terms` (M + S + C, n) below them."""
    n_rows = terms.shape[1]
    n_blocks = triton.cdiv(n_rows, _PRODUCTS)
    with torch.cuda.device(terms.device):
        _products[(n_blocks * len(first),)](
            terms, first, second, n_rows, n_features, n_blocks, _PRODUCTS, num_warps=1
        )


def normalise(values: Array, offsets: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return responsibilities in the memory of the values, log-sums and sums; see `Operations.normalise`."""
    n_starts, n_kernels, n_rows = values.shape
    log_sums = torch.empty((n_starts, n_rows), dtype=values.dtype, device=values.device)
    width = triton.next_power_of_2(n_kernels)
    # The registers of a program hold a whole tile.
    fewest = _FEWEST_IN_TILE if width <= 1024 else 8
    block = min(_MOST_IN_TILE, max(fewest, _TILE[values.element_size()] // width))
    # A program that worked through several tiles would take twice the time, for fewer sums to add.
    n_programs = triton.cdiv(n_rows, block)
    mass = torch.empty((n_programs, n_starts, n_kernels), dtype=values.dtype, device=values.device)
    offsets = offsets.contiguous()
    with torch.cuda.device(values.device):
        _normalise[(n_programs, n_starts)](
            values, offsets, offsets if weights is None else weights, log_sums, mass, n_rows, n_kernels,
            width, block, weights is not None, num_warps=4 if width <= 256 else 16,
        )  # fmt: skip
    return values, log_sums, mass.sum(dim=0, dtype=torch.float64)


def draw_seeds(sample: Array, first: int, chances: Array) -> Array:
    """Return seeds (q + 1, M) of k-means++, by one kernel for each; see `Operations.draw_seeds`."""
    sample, (n_rows, n_features) = sample.contiguous(), sample.shape
    n_blocks = triton.cdiv(n_rows, _ROWS_SEEDED)
    places = torch.full((len(chances) + 1,), first, dtype=torch.int64, device=sample.device)
    chances = torch.cat([chances.new_zeros(1), chances])
    # What a kernel reads and what it writes, in turn.
    states = [
        (chances.new_full((n_rows,), math.inf), chances.new_zeros(n_blocks)),
        (chances.new_empty(n_rows), chances.new_empty(n_blocks)),
    ]
    part = min(64, triton.next_power_of_2(n_features))
    with torch.cuda.device(sample.device):
        for q in range(len(places)):
            _seed[(n_blocks,)](
                sample, places, chances, *states[q % 2], *states[1 - q % 2], q, n_rows, n_features, n_blocks,
                triton.next_power_of_2(n_blocks), _ROWS_SEEDED, part,
            )  # fmt: skip
    return sample[places]


def distances(x: Array, means: Array, whiteners: Array) -> Array:
    """Return squared lengths (q, n) of whitened differences; see `Operations.distances`."""
    (n_features, n_rows), n_kernels = x.shape, len(means)
    out = torch.empty((n_kernels, n_rows), dtype=x.dtype, device=x.device)
    with torch.cuda.device(x.device):
        if whiteners.ndim == 2:
            group = min(16, triton.next_power_of_2(n_kernels))
            means, scales = means.T.contiguous(), whiteners.T.contiguous()
            _scaled[(triton.cdiv(n_rows, _ROWS_SCALED), triton.cdiv(n_kernels, group))](
                x, means, scales, out, n_rows, n_features, n_kernels, group, _ROWS_SCALED
            )
        else:
            means, whiteners = means.contiguous(), whiteners.contiguous()
            part = 32 if n_features > 16 else 16
            precision = "ieee" if x.dtype == torch.float64 else "tf32x3"
            _whitened[(triton.cdiv(n_rows, _ROWS_WHITENED), n_kernels)](
                x, means, whiteners, out, n_rows, n_features, part, _ROWS_WHITENED, precision
            )
    return out


def moments_about(x: Array, origins: Array, weights: Array) -> tuple[Array, Array]:
    """Return sums (q, M) of differences and of their squares; see `Operations.moments_about`."""
    n_features, n_rows = x.shape
    n_loops = triton.cdiv(n_rows, _COLUMNS * _PIECES)
    first, second = (
        torch.empty((_PIECES, len(origins), n_features), dtype=torch.float64, device=x.device)
        for _ in range(2)
    )
    with torch.cuda.device(x.device):
        _moments_about[(len(origins), triton.cdiv(n_features, 16), _PIECES)](
            x, origins.contiguous(), weights.contiguous(), first, second, n_rows, n_features, n_loops,
            16, _COLUMNS,
        )  # fmt: skip
    return first.sum(dim=0), second.sum(dim=0)


def check(device: Any) -> None:
    """Run the kernels on a small problem; raise if Triton cannot compile or gives wrong numbers."""
    generator = torch.Generator(device).manual_seed(0)
    some: dict[str, Any] = {"generator": generator, "dtype": torch.float64, "device": device}
    rows, unit = torch.randn((50, 3), **some), torch.ones(3, dtype=torch.float64, device=device)
    terms = torch.zeros((4, 50), dtype=torch.float64, device=device)
    enter(rows, unit, 0 * unit, terms[:3])
    products(terms, torch.tensor([0], device=device), torch.tensor([1], device=device), 3)
    means, whiteners = torch.randn((2, 3), **some), torch.randn((2, 3, 3), **some).tril()
    difference = rows.T - means[..., None]
    values, offsets, weights = torch.randn((1, 2, 50), **some), torch.randn((1, 2), **some), rows[:, 0].abs()
    joint = (values + offsets[..., None]).softmax(1) * weights
    log_sums = (values + offsets[..., None]).logsumexp(1)
    first, second = moments_about(terms[:3], means, joint[0])
    seeds, chances = [7], torch.rand(3, **some)
    for chance in chances:
        nearest = (rows - rows[seeds][:, None]).square().sum(-1).amin(0).cumsum(0)
        seeds.append(int(torch.searchsorted(nearest, chance * nearest[-1], right=True)))
    for got, expected in (
        (draw_seeds(rows, 7, chances), rows[seeds]),
        (terms[3], rows[:, 0] * rows[:, 1]),
        (distances(terms[:3], means, whiteners), ((whiteners @ difference) ** 2).sum(1)),
        (distances(terms[:3], means, means), ((means[..., None] * difference) ** 2).sum(1)),
        (first, (difference * joint[0][:, None]).sum(-1)),
        (second, (difference**2 * joint[0][:, None]).sum(-1)),
        *zip(normalise(values, offsets, weights), (joint, log_sums, joint.sum(-1)), strict=True),
    ):
        if not torch.allclose(got, expected, rtol=1e-10, atol=1e-10):
            raise RuntimeError("a Triton kernel gave wrong numbers")
