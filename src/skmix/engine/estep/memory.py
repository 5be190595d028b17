"""Complete rows in memory: their E-step and log-densities, by the first code that covers the model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..compute.threads import Workers, can_compile
from ..model import FARTHEST, FloatArray, Frame, IntArray, Parameters, Setting, Statistics, scale_of
from ..structures import Structure, structure_of
from ..tails import Tail, tail_of
from . import reference
from .coverage import SKIPPING
from .reference import Kernels, Rows
from .terms import log_mix

# Largest model, in numbers, that is cached once it is prepared for scoring.
_CACHED = 1 << 17
# Operations of a pass from which on compiled code pays: loading it takes as long as about a hundred passes.
_WORTH_COMPILING = 1 << 21
# Kernels from which on passes try to skip irrelevant ones.
_MANY_KERNELS = 256


def worth_compiling(n_rows: int, n_kernels: int, n_features: int) -> bool:
    """Return whether a pass over that many rows and kernels, of all starts, should run in compiled code."""
    # Whitening and moments take M² operations, an exponential and what is around it about 20.
    return n_rows * n_kernels * (n_features**2 + 20) >= _WORTH_COMPILING and can_compile()


def expect(
    rows: Rows,
    kernels: Kernels,
    origins: FloatArray,
    setting: Setting,
    grouping: Any = None,
    *,
    moments: bool = True,
) -> tuple[Statistics, Any]:
    """Return the statistics of complete rows, with moments about `origins` (R, K, M), and the next grouping.

    The grouping is what passes that skip kernels know of the rows from the pass before.
    """
    if not setting.compiles or not can_compile():
        return reference.expect(rows, kernels, origins, with_moments=moments), grouping
    n_starts, n_kernels, _ = kernels.means.shape
    skips = setting.skips and n_starts == 1 and n_kernels >= _MANY_KERNELS
    if skips and SKIPPING.lacks(kernels.structure, kernels.tail) is None:
        from . import nearby

        return nearby.expect(rows, kernels, origins, setting.pool, grouping, with_moments=moments)
    from . import compiled

    return compiled.expect(rows, kernels, origins, setting.pool, with_moments=moments), grouping


def in_frame(
    X: np.ndarray, frame: Frame, codes: IntArray | None = None, weights: FloatArray | None = None
) -> Rows:
    """Return rows X (N, M), with class codes and weights (N,), seen in a frame."""
    if codes is not None:
        codes = codes.astype(np.int64, copy=False)
    return Rows(_native(X), codes, weights, 1.0 / frame.scale, frame.shift, FARTHEST)


def _native(X: np.ndarray) -> np.ndarray:
    """Return rows of float64 or float32 numbers in the processor's order of bytes."""
    return X if X.dtype in (np.float64, np.float32) and X.dtype.isnative else X.astype(np.float64)


def log_densities(
    X: np.ndarray, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (n, K), of complete rows, or their mixtures with weights (K, L)."""
    kernels, scale, shift = _prepare(parameters, structure)
    rows = Rows(_native(X), None, None, scale, shift, FARTHEST)
    if worth_compiling(len(X), *parameters.means.shape):
        from . import compiled

        return compiled.evaluate(rows, kernels, weights, pool)
    out = np.empty((len(X), kernels.means.shape[1] if weights is None else weights.shape[1]))
    for a, values in reference.tiles(rows, kernels):
        part = values if weights is None else log_mix(values, weights)
        n = min(part.shape[1], len(X) - a)
        out[a : a + n] = part[:, :n].T
    return out


def _prepare(parameters: Parameters, structure: Structure) -> tuple[Kernels, FloatArray, FloatArray]:
    """Prepare one model for rows times a scale (M,) less a shift (M,). Small ones are cached."""
    means = np.asarray(parameters.means, dtype=np.float64)
    covariances = np.asarray(parameters.covariances, dtype=np.float64)
    tail = parameters.tail.of_kernels().map(lambda array: np.asarray(array, dtype=np.float64))
    if means.size + covariances.size > _CACHED:
        return _scaled(means, covariances, tail, structure)
    numbers = means.tobytes(), means.shape, covariances.tobytes(), covariances.shape
    of_tail = tuple((name, array.tobytes()) for name, array in tail.to_dict().items())
    return _prepare_cached(*numbers, of_tail, structure.name)


@lru_cache(maxsize=4)
def _prepare_cached(
    means: bytes,
    shape: tuple[int, ...],
    covariances: bytes,
    covariances_shape: tuple[int, ...],
    of_tail: tuple[tuple[str, bytes], ...],
    name: str,
) -> tuple[Kernels, FloatArray, FloatArray]:
    """Prepare the model of these numbers; bytes, so that a model changed in place is prepared again."""
    arrays = np.frombuffer(means).reshape(shape), np.frombuffer(covariances).reshape(covariances_shape)
    tail = tail_of({name: np.frombuffer(array) for name, array in of_tail})
    return _scaled(*arrays, tail, structure_of(name))


def _scaled(
    means: FloatArray, covariances: FloatArray, tail: Tail, structure: Structure
) -> tuple[Kernels, FloatArray, FloatArray]:
    """Return kernels in units that are powers of two, so that squares neither overflow nor underflow.

    They are about the centre of the means, where the digits of differences matter.
    """
    scale = scale_of(means, covariances, structure)
    means = means / scale
    shift = np.clip(means.mean(axis=0), -FARTHEST, FARTHEST)
    inside = Parameters(
        np.ones((1, len(means), 1)),
        (means - shift)[None],
        structure.rescale(covariances[None], 1.0 / scale),
        tail=tail.take(None),
    )
    kernels = Kernels.of(inside, structure.factor(inside.covariances, means.shape[1]), structure)
    return replace(kernels, constants=kernels.constants - np.log(scale).sum()), 1.0 / scale, shift


def prepare_model(
    X: np.ndarray, parameters: Parameters, structure: Structure
) -> tuple[Kernels, Rows, Parameters]:
    """Return one model as kernels, rows X (N, M) in their frame, and the parameters (1, …) there."""
    kernels, scale, shift = _prepare(parameters, structure)
    covariances = np.asarray(parameters.covariances, dtype=np.float64)[None]
    inside = replace(
        parameters.batch(), means=kernels.means, covariances=structure.rescale(covariances, scale)
    )
    return kernels, Rows(_native(X), None, None, scale, shift, FARTHEST), inside
