"""Passes over complete rows in memory, by the compiled core or, where that is missing, by the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..._core import core
from ..kernels import StudentT, Tail
from ..numbers import join
from ..records import FARTHEST, BoolArray, Factor, FloatArray, IntArray, Statistics
from ..structures import Structure
from ..threads import Workers
from . import reference
from .reference import Kernels, Rows

# Products keep nine digits if all means are within this many standard deviations of the origin.
_LARGEST_OFFSET = 2.0**10
# Most numbers in the sums of the starts that the core takes together; most blocks, and their fewest rows.
_MOST_SUMS, _MOST_BLOCKS, _SMALLEST_BLOCK = 1 << 25, 256, 2048


def near_origin(means: FloatArray, factor: Factor, structure: Structure, tail: Tail) -> BoolArray:
    """Return the starts (R,) whose log-densities and moments are products of matrices.

    Products are quicker than differences from the means, but lose digits far from the origin.
    """
    if core() is None or tail.weighted or (structure.triangular and not structure.shared):
        return np.zeros(len(means), dtype=bool)
    whitener = factor.whitener
    white = means @ whitener[:, 0].mT if structure.shared else means * whitener
    near: BoolArray = np.square(white).sum(axis=-1).max(axis=1) <= _LARGEST_OFFSET**2
    return near


def expect(
    rows: Rows, kernels: Kernels, origins: FloatArray, pool: Workers, *, with_moments: bool = True
) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about `origins` (R, K, M)."""
    if core() is None:
        return reference.expect(rows, kernels, origins, with_moments=with_moments)

    def of_starts(starts: slice | IntArray) -> Statistics:
        return expect(rows, kernels.take(starts), origins[starts], pool, with_moments=with_moments)

    # The arithmetic of a start must not depend on the others.
    near = near_origin(kernels.means, kernels.factor, kernels.structure, kernels.tail)
    near &= ~origins.any(axis=(1, 2))
    if near.any() and not near.all():
        parts = np.flatnonzero(near), np.flatnonzero(~near)
        return join([of_starts(part) for part in parts]).take(np.argsort(np.concatenate(parts)))
    n_starts, n_kernels, n_features = kernels.means.shape
    n_blocks = min(_MOST_BLOCKS, 1 + len(rows.X) // _SMALLEST_BLOCK)
    n_sums = n_kernels * (kernels.log_weights.shape[-1] + (n_features + 1) ** 2)
    together = max(1, _MOST_SUMS // (n_blocks * n_sums))
    if n_starts > together:
        return join([of_starts(slice(a, a + together)) for a in range(0, n_starts, together)])
    job = core().e_step(
        _rows(rows, kernels.log_weights.shape[-1]),
        _kernels(kernels, is_product=bool(near[0])),
        np.ascontiguousarray(origins) if with_moments else None,
    )
    likelihood, mass, first, second, precisions, log_ratios = pool.finish(job)
    if not with_moments:
        return Statistics(likelihood, np.zeros_like(mass), first, np.zeros((n_starts, n_kernels, 1)))
    if near[0] and kernels.structure.shared:
        # Only the sum over kernels has a meaning: the scatter of the rows, which never changes.
        second = np.zeros((n_starts, n_kernels, kernels.structure.n_second(n_features)))
        second[:, 0] = kernels.structure.pack(rows.scatter)
    if not isinstance(kernels.tail, StudentT):
        return Statistics(likelihood, mass, first, second)
    # E[log u] of a row at the mean; its distance takes log(1 + d² / ν) from it.
    degrees = kernels.tail.degrees
    at_mean = np.log1p(n_features / degrees) + kernels.tail.mean_logs(n_features)[..., 0]
    return Statistics(likelihood, mass, first, second, (precisions, mass.sum(axis=-1) * at_mean - log_ratios))


def log_densities(rows: Rows, kernels: Kernels, weights: FloatArray | None, pool: Workers) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), under one start, or their mixtures with weights (K, L).

    The result for a row does not depend on the other rows, to the last bit.
    """
    if core() is None:
        return reference.all_log_densities(rows, kernels, weights)
    one_class = replace(kernels, log_weights=np.zeros((1, kernels.means.shape[1], 1)))
    near = near_origin(kernels.means, kernels.factor, kernels.structure, kernels.tail)
    weights = None if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    job = core().log_densities(_rows(rows, 1), _kernels(one_class, is_product=bool(near[0])), weights)
    (densities,) = pool.finish(job)
    return densities


def lloyd(rows: Rows, pool: Workers, centres: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return sums (K, M + 1) over the rows nearest to each centre, and the nearest centre (N,) of each row.

    The sums are of the rows and of their weights. Of equally near centres, the first one has the row.
    """
    if core() is None:
        return reference.lloyd(rows, centres)
    sums, nearest = pool.finish(core().lloyd(_rows(rows, 1), np.ascontiguousarray(centres)))
    return sums, nearest


def _rows(rows: Rows, n_classes: int) -> Any:
    """Return rows as the core takes them, kept between passes."""
    core_rows = rows.kept.get("core")
    if core_rows is None or core_rows.n_classes != n_classes:
        X = rows.X
        if any(step % X.itemsize for step in X.strides) or not X.flags.aligned:
            X = X.copy()
        codes = None if n_classes == 1 else np.require(rows.codes, np.int64, ["C", "A"])
        weights = None if rows.weights is None else np.require(rows.weights, np.float64, ["C", "A"])
        scale, shift = 1.0 / rows.frame.scale, np.ascontiguousarray(rows.frame.shift)
        core_rows = rows.kept["core"] = core().Rows(X, codes, weights, scale, shift, FARTHEST, n_classes)
    return core_rows


def _kernels(kernels: Kernels, *, is_product: bool) -> Any:
    """Return kernels as the core takes them."""
    structure, whitener = kernels.structure, kernels.factor.whitener
    if not structure.triangular:
        whitener = np.broadcast_to(whitener, kernels.means.shape)
    arrays = kernels.means, whitener, kernels.constants, kernels.log_weights
    degrees = np.ascontiguousarray(kernels.tail.degrees) if isinstance(kernels.tail, StudentT) else None
    return core().Kernels(is_product, structure.isotropic, *map(np.ascontiguousarray, arrays), degrees)
