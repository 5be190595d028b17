"""Rows in a NumPy array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..compute.compiling import can_compile
from ..compute.threads import Workers
from ..estep import reference
from ..estep.coverage import SKIPPING
from ..estep.gaps import Chunk, chunks_of, complete, expect_chunk, mixed
from ..estep.reference import HELD, TILE, Kernels, Rows
from ..estep.terms import log_mix
from ..frame import FARTHEST, Frame, Setting, scale_of
from ..model import Factor, FloatArray, IntArray, Parameters, Statistics
from ..records import join
from ..structures import INFLATED, Structure, structure_of
from ..tails import Tail, tail_of
from .base import ArrayRows, Centres

# Largest model, in numbers, that is cached once it is prepared for scoring.
_CACHED = 1 << 17
# Operations of a pass from which on compiled code pays: loading it takes as long as about a hundred passes.
_WORTH_COMPILING = 1 << 21
# Patterns from which on compiled code is faster: NumPy takes about half a millisecond for each.
_MANY_PATTERNS = 32
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
    pool: Workers,
    *,
    compiled: bool,
    moments: bool = True,
) -> Statistics:
    """Do the E-step on rows in memory, with moments about `origins` (R, K, M)."""
    if not compiled or not can_compile():
        return reference.expect(rows, kernels, origins, with_moments=moments)
    from ..estep import compiled as module

    found: Statistics = module.expect(rows, kernels, origins, pool, with_moments=moments)
    return found


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
    X: np.ndarray,
    parameters: Parameters,
    structure: Structure,
    weights: FloatArray | None,
    compiled: bool,
    pool: Workers,
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (n, K), of complete rows, or their mixtures with weights (K, L)."""
    kernels, scale, shift = _prepare(parameters, structure)
    rows = Rows(_native(X), None, None, scale, shift, FARTHEST)
    if compiled and can_compile():
        from ..estep import compiled as module

        return module.evaluate(rows, kernels, weights, pool)
    out = np.empty((len(X), kernels.means.shape[1] if weights is None else weights.shape[1]))
    for a, values in reference.tiles(rows, kernels):
        part = values if weights is None else log_mix(values, weights)
        n = min(part.shape[1], len(X) - a)
        out[a : a + n] = part[:, :n].T
    return out


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


class MemoryRows(ArrayRows):
    """Complete rows in a NumPy array."""

    _seen: tuple[Frame, int, Rows] | None = None
    _grouping: Any = None  # how rows are grouped around many kernels
    scatter: tuple[Frame, FloatArray] | None = None  # (M, M): of the rows in a frame, once known

    def take(self, columns: Sequence[int]) -> MemoryRows:
        """Return the same rows with some of their features."""
        own = MemoryRows(self.X[:, list(columns)], self.codes, self.weights)
        if "summary" in vars(self):
            vars(own)["summary"] = self.summary.take(columns)
        return own

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`."""
        n_classes, origins = parameters.weights.shape[-1], parameters.means
        if self._seen is None or self._seen[0] is not setting.frame or self._seen[1] != n_classes:
            rows = in_frame(self.X, setting.frame, self.codes_within(n_classes), self.weights)
            self._seen, self._grouping = (setting.frame, n_classes, rows), None
            if self.scatter is not None and self.scatter[0] is setting.frame:
                vars(rows)["scatter"] = self.scatter[1]
        rows = self._seen[2]
        if centres is not None:
            origins = np.where(centres[0][..., None], centres[1], origins)
        kernels = Kernels.of(parameters, factor, setting.structure)
        given = rows, kernels, origins, setting.pool
        many = len(origins) == 1 and origins.shape[1] >= _MANY_KERNELS and setting.skips and setting.compiled
        lacking = SKIPPING.lacks(setting.structure, kernels.tail)
        if many and lacking is None and can_compile():
            from ..estep import nearby

            found, self._grouping = nearby.expect(*given, self._grouping, with_moments=moments)
            return found, origins
        found = expect(*given, compiled=setting.compiled, moments=moments)
        if "scatter" in vars(rows):
            self.scatter = setting.frame, rows.scatter
        return found, origins

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> FloatArray:
        """Evaluate the kernels; see `ArrayRows`."""
        compiled = worth_compiling(len(self.X), *parameters.means.shape)
        return log_densities(self.X, parameters, structure, weights, compiled, pool)

    def clear_cache(self) -> None:
        """Forget the rows in the frame."""
        self._seen = self._grouping = self.scatter = None


class GapRows(ArrayRows):
    """Rows with missing values, NaN; each row has at least one value."""

    _cached: tuple[Setting, tuple[int, int], Rows | None, list[Chunk]] | None = None

    def take(self, columns: Sequence[int]) -> GapRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = self.X[:, list(columns)]
        seen = np.flatnonzero(~np.isnan(X).all(axis=1))
        codes = None if self.codes is None else self.codes[seen]
        return GapRows(X[seen], codes, None if self.weights is None else self.weights[seen])

    def expect(
        self,
        parameters: Parameters,
        factor: Factor | None,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`. Without a `factor` it is computed."""
        origins, structure = parameters.means, setting.structure
        if factor is None:
            factor = structure.factor(parameters.covariances, self.n_features)
        if centres is not None:
            origins = np.where(centres[0][..., None], centres[1], origins)
        _, n_kernels, n_features = origins.shape
        # The sizes of chunks depend on one start, so that a start does not depend on the others.
        size = max(TILE, HELD // (n_kernels * n_features))
        complete, chunks = self._parts(setting, (parameters.weights.shape[-1], size))
        many = sum(len(chunk.n_known) for chunk in chunks) >= _MANY_PATTERNS
        compiled = (setting.compiled or many) and can_compile()
        exact = compiled & (structure.inflation(parameters.covariances, factor) <= INFLATED)
        group = max(1, HELD // (n_kernels * n_features * min(size, len(self.X))))
        found, order = [], []
        for fast in (True, False):
            starts = np.flatnonzero(exact == fast)
            for own in (starts[a : a + group] for a in range(0, len(starts), group)):
                part, own_factor = parameters.take(own), factor.take(own)
                kernels = Kernels.of(part, own_factor, structure)
                about = part.means if centres is None else origins[own]
                work = partial(
                    expect_chunk,
                    kernels=kernels,
                    parameters=part,
                    origins=about,
                    compiled=fast,
                    with_moments=moments,
                )
                parts = setting.pool.map(work, chunks)
                if complete is not None:
                    total = expect(
                        complete,
                        kernels,
                        about,
                        setting.pool,
                        compiled=setting.compiled,
                        moments=moments,
                    )
                else:
                    total = next(parts)
                for each in parts:
                    total.add(each)
                found.append(total)
                order.append(own)
        total = found[0] if len(found) == 1 else join(found).take(np.argsort(np.concatenate(order)))
        return total, origins

    def _parts(self, setting: Setting, sizes: tuple[int, int]) -> tuple[Rows | None, list[Chunk]]:
        """Return the complete rows, and the others in chunks; cached for the setting.

        `sizes` are the number of classes and of rows in a chunk.
        """
        if self._cached is None or self._cached[0] is not setting or self._cached[1] != sizes:
            rows = in_frame(self.X, setting.frame, self.codes_within(sizes[0]), self.weights)
            full = ~np.isnan(self.X).any(axis=1)
            whole, index = np.flatnonzero(full), np.flatnonzero(~full)
            complete = None
            if len(whole):
                complete = replace(
                    rows,
                    X=rows.X[whole],
                    codes=None if rows.codes is None else rows.codes[whole],
                    weights=None if rows.weights is None else rows.weights[whole],
                )
            self._cached = setting, sizes, complete, chunks_of(rows, index, sizes[1])
        return self._cached[2:]

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> FloatArray:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        n_kernels, n_features = parameters.means.shape
        compiled, missing = worth_compiling(len(self.X), n_kernels, n_features), np.isnan(self.X)
        out = np.zeros((len(self.X), n_kernels if weights is None else weights.shape[1]))
        whole = np.flatnonzero(~missing.any(axis=1))
        if len(whole):
            out[whole] = log_densities(self.X[whole], parameters, structure, weights, compiled, pool)
        kernels, rows, inside = prepare_model(self.X, parameters, structure)
        size = max(TILE, HELD // (n_kernels * n_features) // TILE * TILE)
        chunks = chunks_of(rows, np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1)), size)
        # The model decides alone: the bits of a row's density do not depend on the other rows.
        fast = can_compile() and bool(structure.inflation(inside.covariances, kernels.factor)[0] <= INFLATED)

        def score(chunk: Chunk) -> FloatArray:
            done = complete(chunk, inside, kernels.factor, structure, fast, moments=False)
            constants = kernels.tail.log_peaks(done.log_determinants, chunk.n_known)
            constants = chunk.to_rows(constants + chunk.logs(np.log(rows.scale)))
            return kernels.tail.at_distances(done.distances, constants, chunk.to_rows(chunk.n_known))[0][0]

        for chunk, values in zip(chunks, pool.map(score, chunks), strict=True):
            out[chunk.index] = (values if weights is None else mixed(values, weights)).T
        return out

    def clear_cache(self) -> None:
        """Free the rows in the frame."""
        self._cached = None
