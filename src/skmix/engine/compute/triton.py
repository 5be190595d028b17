"""Triton kernels for the memory-bound steps of a pass: each reads its input and writes its output once.

As sequences of PyTorch operations, the same steps take three to five times the memory traffic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .operations import Array

# Fastest or nearly fastest sizes on an H200 for 10 to 256 kernels and 16 to 128 features.
_TILE = 1024
_PRODUCTS = 512
_ROWS = 4096
# More kernels than this do not fit in a tile.
_MOST_KERNELS = 4096


@triton.jit
def _enter(rows, out, scale, shift, n_rows, stride, WIDTH: tl.constexpr, n_features, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = tl.arange(0, WIDTH)
    inside = (n[:, None] < n_rows) & (m[None, :] < n_features)
    x = tl.load(rows + n[:, None] * stride + m[None, :], mask=inside)
    unit = tl.load(scale + m, mask=m < n_features, other=1.0)
    origin = tl.load(shift + m, mask=m < n_features)
    framed = x.to(unit.dtype) * (1.0 / unit)[None, :] - origin[None, :]
    tl.store(out + m[:, None] * n_rows + n[None, :], tl.trans(framed), mask=tl.trans(inside))


@triton.jit
def _products(terms, first, second, n_rows, n_features, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    pair = tl.program_id(0)
    n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = n < n_rows
    i = tl.load(first + pair)
    j = tl.load(second + pair)
    product = tl.load(terms + i * n_rows + n, mask=inside) * tl.load(terms + j * n_rows + n, mask=inside)
    tl.store(terms + (n_features + pair).to(tl.int64) * n_rows + n, product, mask=inside)


@triton.jit
def _normalise(values, log_sums, n_rows, n_kernels, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    start = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, WIDTH).to(tl.int64)
    inside = (k[:, None] < n_kernels) & (n[None, :] < n_rows)
    where = values + (start * n_kernels + k[:, None]) * n_rows + n[None, :]
    logs = tl.load(where, mask=inside, other=-float("inf"))
    # Rows beyond the last would be minus infinity throughout.
    largest = tl.max(logs, axis=0)
    largest = tl.where(n < n_rows, largest, 0.0)
    joint = tl.exp(logs - largest[None, :])
    total = tl.where(n < n_rows, tl.sum(joint, axis=0), 1.0)
    tl.store(where, joint * (1.0 / total)[None, :], mask=inside)
    tl.store(log_sums + start * n_rows + n, tl.log(total) + largest, mask=n < n_rows)


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
    with torch.cuda.device(terms.device):
        _products[(len(first), triton.cdiv(n_rows, _PRODUCTS))](
            terms, first, second, n_rows, n_features, _PRODUCTS, num_warps=1
        )


def normalise(values: Array) -> tuple[Array, Array]:
    """Return responsibilities (R, K, n), in the memory of the log-joints, and log-sums (R, n)."""
    n_starts, n_kernels, n_rows = values.shape
    log_sums = torch.empty((n_starts, n_rows), dtype=values.dtype, device=values.device)
    if n_kernels > _MOST_KERNELS:
        torch.logsumexp(values, 1, out=log_sums)
        return values.sub_(log_sums[:, None]).exp_(), log_sums
    width = triton.next_power_of_2(n_kernels)
    block = max(8, _TILE // width)
    with torch.cuda.device(values.device):
        _normalise[(triton.cdiv(n_rows, block), n_starts)](
            values, log_sums, n_rows, n_kernels, width, block, num_warps=4 if width <= 128 else 8
        )
    return values, log_sums


def check(device: Any) -> None:
    """Run the kernels on a small problem; raise if Triton cannot compile or gives wrong numbers."""
    rows = torch.arange(6.0, dtype=torch.float64, device=device).reshape(3, 2)
    unit = torch.ones(2, dtype=torch.float64, device=device)
    terms = torch.zeros((3, 3), dtype=torch.float64, device=device)
    enter(rows, unit, 0 * unit, terms[:2])
    products(terms, torch.tensor([0], device=device), torch.tensor([1], device=device), 2)
    shares, log_sums = normalise(torch.zeros((1, 2, 3), dtype=torch.float64, device=device))
    right = torch.equal(terms[2], rows[:, 0] * rows[:, 1]) and bool((shares == 0.5).all())
    if not right or not torch.allclose(log_sums, torch.full_like(log_sums, 2.0).log()):
        raise RuntimeError("a Triton kernel gave wrong numbers")
