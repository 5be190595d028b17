"""Densities, responsibilities, imputation and sampling under one fitted model.

The result for a row is bitwise independent of the other rows of the call. The rounding of a matrix product
depends on its shape, so rows are evaluated in tiles of a fixed size, the last one padded. Whether a
log-density is computed from expanded terms or from differences depends on the model and the row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from scipy.special import logsumexp

from .compute.arrays import Array, as_float64, is_numpy, like, namespace, occurs, pick, to_numpy
from .compute.threads import Workers, Workspace, workers
from .covariances import Structure, structure_of
from .model import FloatArray, IntArray, Parameters
from .sources.device import FramedRows
from .sources.gaps import group_rows, has_gaps, marginal
from .sources.memory import Part, Prepared, Terms, log_joint, prepare
from .sources.summary import FARTHEST, Frame, chunks, power_of_two

# Rows within this many scales of the heaviest kernel are evaluated from expanded terms.
_NEAR = 4.0
# Columns of one matrix product, and of one with more coefficients than `_LARGE`.
_TILE, _LARGE_TILE, _LARGE = 64, 192, 1 << 16
# Largest size of a part of at least five tiles: numbers in expanded rows and densities, and rows.
_PART, _MOST = 1 << 18, 8128
# Largest model, in numbers, that is cached once it is prepared.
_CACHED = 1 << 17
# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_UNDERFLOW = 1e-280
# Largest array of values predicted by all kernels.
_CHUNK = 1 << 20

# From log N(x_n; μ_k, P_k) of some rows (K, n) and the rows' indices (n,) to their results (n, …).
Reduction = Callable[[FloatArray, IntArray], np.ndarray]
Output = TypeVar("Output", FloatArray, IntArray)


def frame_of(parameters: Parameters, structure: Structure) -> Frame:
    """Return the frame in which to evaluate one model on rows near it."""
    return _frame(parameters.means, parameters.covariances, _heaviest(parameters.weights), structure)


def _heaviest(weights: FloatArray) -> int:
    """Return the kernel of the largest mean weight, of weights (K, L)."""
    return int(weights.mean(axis=1).argmax())


def _frame(means: FloatArray, covariances: FloatArray, heaviest: int, structure: Structure) -> Frame:
    """Return the frame of means (K, M) and covariances, with the mean of the heaviest kernel at zero."""
    spread = np.sqrt(structure.variances(covariances[None])[0])
    reach = np.ptp(means, axis=0) + spread.max(axis=0)
    if structure.isotropic:
        reach = np.full_like(reach, reach.max())
    scale = power_of_two(reach)
    return Frame(scale, means[heaviest] / scale, np.ones(len(scale)), np.full(len(scale), _NEAR))


def part_size(n_numbers: int, tile: int, held: int = _PART, most: int = _MOST) -> int:
    """Return how many rows to expand at a time, each into `n_numbers`: an odd multiple of `tile`."""
    # Strides that are powers of two would map to the same cache lines.
    return tile * (max(min(held // n_numbers, most) // tile - 1, 4) | 1)


def expand(x: FloatArray, structure: Structure, workspace: Workspace, tile: int | None = None) -> Part:
    """Return rows x (M, n), in the frame, expanded into the terms of log-densities."""
    n_features, n_rows = x.shape
    terms = workspace.latest(
        (structure.name, n_features, n_rows),
        lambda: Terms(structure, n_features, n_rows, workspace=workspace),
    )
    terms.fill(x)
    return Part(0, n_rows, x, terms, [(0, 0, n_rows)], tile or n_rows)


def evaluate(
    X: np.ndarray,
    parameters: Parameters,
    covariance_type: str,
    reduce: Reduction,
    out: Output,
    n_jobs: int,
) -> Output:
    """Reduce the kernels' log-densities of rows X (N, M) under one model, part by part, into `out` (N, …).

    NaN marks a missing value: the density is then that of the observed values, and 1 if there are none.
    Arrays of other libraries must be complete; the result is then a new array of that library.
    """
    structure = structure_of(covariance_type)
    if not is_numpy(X):
        return _evaluate_on_device(X, parameters, structure, reduce)
    with workers(n_jobs) as pool:
        if not has_gaps(X):
            _evaluate_complete(X, None, parameters, structure, reduce, out, pool)
            return out
        for index, columns in group_rows(X):
            if len(columns):
                part = marginal(parameters, columns, structure)
                _evaluate_complete(X[np.ix_(index, columns)], index, part, structure, reduce, out, pool)
                continue
            rows = _padded(index, _TILE)
            out[index] = reduce(np.zeros((len(parameters.means), len(rows))), rows)[: len(index)]
    return out


def _padded(rows: IntArray, tile: int) -> IntArray:
    """Pad row indices to a multiple of `tile` by repeating the last."""
    missing = -len(rows) % tile
    return np.concatenate([rows, np.full(missing, rows[-1])]) if missing else rows


class _Prepared:
    """One model, expanded for rows near it and, when some are farther away, for rows anywhere."""

    def __init__(
        self, means: FloatArray, covariances: FloatArray, heaviest: int, structure: Structure
    ) -> None:
        self.structure = structure
        self.frame = _frame(means, covariances, heaviest, structure)
        # Weights of one: the reduction applies the model's own.
        unweighted = Parameters(np.ones((1, len(means), 1)), means[None], covariances[None])
        self._inside = self.frame.enter(unweighted, structure)
        self.near = prepare(self._inside, structure, self.frame.bound)
        self.n_kernels, self.n_coefficients = self.near.coefficients.shape[1:]

    @cached_property
    def far(self) -> Prepared:
        """The model for rows beyond the bound, where no kernel's log-density may be expanded."""
        bound = np.full(len(self.frame.scale), FARTHEST)
        return prepare(self._inside, self.structure, bound, self.near.factor)


def _prepare(parameters: Parameters, structure: Structure) -> _Prepared:
    """Prepare one model. Small ones are cached: preparing takes longer than scoring a few rows."""
    means = np.asarray(parameters.means, dtype=np.float64)
    covariances = np.asarray(parameters.covariances, dtype=np.float64)
    heaviest = _heaviest(parameters.weights)
    if means.size + covariances.size > _CACHED:
        return _Prepared(means, covariances, heaviest, structure)
    numbers = means.tobytes(), means.shape, covariances.tobytes(), covariances.shape
    return _prepare_cached(*numbers, heaviest, structure.name)


@lru_cache(maxsize=4)
def _prepare_cached(
    means: bytes,
    shape: tuple[int, ...],
    covariances: bytes,
    covariances_shape: tuple[int, ...],
    heaviest: int,
    name: str,
) -> _Prepared:
    """Prepare the model of these numbers; bytes, so that a model changed in place is prepared again."""
    arrays = np.frombuffer(means).reshape(shape), np.frombuffer(covariances).reshape(covariances_shape)
    return _Prepared(*arrays, heaviest, structure_of(name))


def _evaluate_complete(
    X: np.ndarray,
    index: IntArray | None,
    parameters: Parameters,
    structure: Structure,
    reduce: Reduction,
    out: Output,
    pool: Workers,
) -> None:
    """Evaluate rows X (n, M) without gaps; results go to the rows `index` (n,) of `out`, None for all."""
    model = _prepare(parameters, structure)
    frame, near, n_kernels = model.frame, model.near, model.n_kernels
    log_volume = frame.log_volume()
    tile = _TILE if n_kernels * model.n_coefficients <= _LARGE else _LARGE_TILE
    # Projections are computed for a whole part, so its size must be fixed too.
    size = tile if structure.projects else part_size(model.n_coefficients + n_kernels, tile)

    def work(own: np.ndarray, which: IntArray, prepared: Prepared, tile: int) -> IntArray:
        """Evaluate rows (n, M), X[which]; return the indices (m,) of those too far out for expanded terms."""
        rows = which if index is None else index[which]
        workspace, n, padded = pool.workspace, len(own), _padded(rows, tile)
        x = workspace.array("rows", (X.shape[1], len(padded)))
        frame.rows(own, x[:, :n])
        x[:, n:] = 0.0
        outside = which[:0]
        if prepared is near:
            largest = np.abs(x, out=workspace.array("size", x.shape)).max(axis=0)
            beyond = ~(largest <= _NEAR)
            if beyond.any():
                outside = which[beyond[:n]]
                x[:, beyond] = 0.0
        else:
            np.clip(x, -FARTHEST, FARTHEST, out=x)
        values = workspace.array("values", (1, n_kernels, len(padded)))
        log_joint(expand(x, structure, workspace, tile), prepared, values)
        values += prepared.levels[0] - log_volume
        out[rows] = reduce(values[0], padded)[:n]
        return outside

    def part(a: int) -> IntArray:
        own = X[a : a + size]
        return work(own, np.arange(a, a + len(own)), near, tile)

    outside = [rows for rows in pool.map(part, range(0, len(X), size)) if len(rows)]
    if outside:
        far = np.concatenate(outside)
        parts = [far[a : a + _TILE] for a in range(0, len(far), _TILE)]
        for _ in pool.map(lambda which: work(X[which], which, model.far, _TILE), parts):
            pass


def _evaluate_on_device(X: Array, parameters: Parameters, structure: Structure, reduce: Reduction) -> Array:
    """Reduce the kernels' log-densities of rows X (N, M) of another library, on their device."""
    xp = namespace(X)
    frame = frame_of(parameters, structure)
    weights = np.ones((1, len(parameters.means), 1))
    inside = frame.enter(replace(parameters.batch(), weights=weights), structure)
    inside = inside.map(lambda array: as_float64(array, X))
    scale, shift = as_float64(frame.scale, X), as_float64(frame.shift, X)
    parts = [xp.all(xp.abs(X[cut, :] / scale - shift) <= _NEAR, axis=1) for cut in chunks(X)]
    is_near = np.concatenate([to_numpy(part) for part in parts])
    groups = [(np.flatnonzero(is_near), _NEAR), (np.flatnonzero(~is_near), FARTHEST)]
    results = []
    for index, bound in groups:
        if not len(index):
            continue
        rows_of = X if len(index) == X.shape[0] else pick(X, index)
        rows = FramedRows(rows_of, None, 1, replace(frame, bound=np.full(X.shape[1], bound)), structure)
        prepared = prepare(inside, structure, rows.bound)
        level = float(to_numpy(prepared.levels)[0]) - frame.log_volume()

        def reduced(values: Array, a: int, b: int, index: IntArray = index, level: float = level) -> Array:
            return reduce(values[0, ...] + level, index[a:b])

        results += rows.map_joints(prepared, reduced)
    if is_near.all() or not is_near.any():
        return xp.concat(results)
    return pick(xp.concat(results), np.argsort(np.concatenate([index for index, _ in groups])))


def _empty(X: Array, *shape: int) -> FloatArray:
    """Return an output array (N, …) for rows X (N, M); unused for other libraries."""
    return np.empty((X.shape[0], *shape) if is_numpy(X) else 0)


def _log(weights: FloatArray) -> FloatArray:
    """Return logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


def log_sum(log_joint: Array) -> Array:
    """Return log Σ_j exp(a_nj), shape (n,), of log-joints a (n, m)."""
    if is_numpy(log_joint):
        return logsumexp(log_joint, axis=1)
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1)
    finite = xp.where(largest > -np.inf, largest, 0.0)
    return xp.log(xp.sum(xp.exp(log_joint - finite[:, None]), axis=1)) + finite


def log_normalise(log_joint: FloatArray) -> FloatArray:
    """Return log-probabilities (n, m) from log-joints (n, m).

    The largest is subtracted first: next to log-joints of 1e16 the log of the sum would be rounded away.
    """
    xp = namespace(log_joint)
    relative = log_joint - xp.max(log_joint, axis=1, keepdims=True)
    return relative - xp.log(xp.sum(xp.exp(relative), axis=1, keepdims=True))


def log_mix(values: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(v_kn), shape (L, n), of logarithms v (K, n) and weights w (K, L)."""
    xp, shares = namespace(values), like(weights, values)
    largest = xp.max(values, axis=0)
    densities = xp.exp(values - largest)
    if is_numpy(values) and values.shape[1] % _TILE == 0:
        tiles = densities.reshape(len(densities), -1, _TILE).transpose(1, 0, 2)
        sums = (shares.T @ tiles).transpose(1, 0, 2).reshape(shares.shape[1], -1)
    else:
        sums = shares.T @ densities
    lost = sums < _UNDERFLOW
    logs = xp.log(xp.where(lost, 1.0, sums)) + largest
    if not occurs(lost):
        return logs
    # In some class the rows' nearest kernels have no weight: sum over the other kernels.
    log_weights = _log(weights)
    if not is_numpy(values):
        own = [log_sum((values + like(log_weights[:, c, None], values)).T) for c in range(weights.shape[1])]
        return xp.where(lost, xp.stack(own), logs)
    for c in np.flatnonzero(lost.any(axis=1)):
        rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(weights[:, c])
        logs[c, rows] = -np.inf
        if len(kernels):
            terms = values[np.ix_(kernels, rows)] + log_weights[kernels, c, None]
            highest = terms.max(axis=0)
            # A cumulative sum adds in the same order for any number of rows; a plain sum does not.
            logs[c, rows] = np.log(np.cumsum(np.exp(terms - highest), axis=0)[-1]) + highest
    return logs


def kernel_log_densities(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K)."""
    out = _empty(X, len(parameters.means))
    return evaluate(X, parameters, covariance_type, lambda values, which: values.T, out, n_jobs)


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    weights = parameters.weights
    out = _empty(X, weights.shape[1])
    return evaluate(
        X, parameters, covariance_type, lambda values, which: log_mix(values, weights).T, out, n_jobs
    )


def log_responsibilities(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
) -> FloatArray:
    """Return the logarithms of w_nk given each row's class (N,), shape (N, K). Equation (E)."""
    log_weights = _log(parameters.weights)

    def reduce(values: FloatArray, which: IntArray) -> FloatArray:
        joint = values + like(np.ascontiguousarray(log_weights[:, classes[which]]), values)
        xp = namespace(joint)
        joint = joint - xp.max(joint, axis=0)
        return (joint - xp.log(xp.sum(xp.exp(joint), axis=0))).T

    out = _empty(X, len(parameters.means))
    return evaluate(X, parameters, covariance_type, reduce, out, n_jobs)


def most_likely_kernel(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> IntArray:
    """Return the kernel of largest responsibility (N,) under the first class."""
    log_weights = _log(parameters.weights[:, :1])
    out = np.empty(len(X), dtype=np.int64)
    return evaluate(
        X, parameters, covariance_type, lambda values, _: np.argmax(values + log_weights, axis=0), out, n_jobs
    )


def averaged_log_responsibilities(
    X: np.ndarray, log_posterior: FloatArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log-responsibilities (N, K), averaged over classes whose log-probabilities (N, L) are given.

    They stay finite where a responsibility underflows.
    """
    densities = kernel_log_densities(X, parameters, covariance_type, n_jobs)
    per_class = class_log_likelihood(X, parameters, covariance_type, n_jobs)
    log_weights = like(_log(parameters.weights), densities)
    xp = namespace(densities)
    averaged = xp.full_like(densities, -np.inf)
    for c in range(per_class.shape[1]):
        own = densities + log_weights[:, c] - per_class[:, c, None] + log_posterior[:, c, None]
        averaged = xp.logaddexp(averaged, own)
    return log_normalise(averaged)


def condition(
    parameters: Parameters, covariance_type: str, columns: IntArray, values: FloatArray
) -> Parameters:
    """Return the model of the other features, in increasing order, given `values` (O,) of `columns` (O,).

    Weights are each class's responsibilities for the known values; class priors are left to the caller.
    """
    n_features, n_classes = parameters.means.shape[1], parameters.weights.shape[1]
    rows = np.full((n_classes, n_features), np.nan)
    rows[:, columns] = values
    weights = np.exp(log_responsibilities(rows, np.arange(n_classes), parameters, covariance_type)).T
    slopes, covariances = structure_of(covariance_type).conditional(
        parameters.covariances[None], columns, n_features
    )
    gaps = np.setdiff1d(np.arange(n_features), columns)
    deviation = values - parameters.means[:, columns]
    means = parameters.means[:, gaps] + (slopes[0] @ deviation[..., None])[..., 0]
    return Parameters(weights, means, covariances[0])


def _incomplete(
    X: np.ndarray, parameters: Parameters, covariance_type: str
) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]]:
    """Yield for each pattern of gaps: rows, known columns, gaps, slopes (K, G, O), remaining covariances."""
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    for index, columns in group_rows(X):
        if len(columns) == n_features:
            continue
        gaps = np.setdiff1d(np.arange(n_features), columns)
        slopes, covariances = structure.conditional(parameters.covariances[None], columns, n_features)
        slopes = np.broadcast_to(slopes[0], (n_kernels, len(gaps), len(columns)))
        yield index, columns, gaps, slopes, covariances


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows X (N, M) with the conditional means of their missing values, which are NaN.

    `responsibilities` (N, K) are those given the observed values.
    """
    filled = X.astype(np.float64)
    step = max(1, _CHUNK // parameters.means.size)
    for index, columns, gaps, slopes, _ in _incomplete(X, parameters, covariance_type):
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            deviation = filled[np.ix_(rows, columns)] - parameters.means[:, None, columns]
            predicted = parameters.means[:, None, gaps] + deviation @ np.swapaxes(slopes, 1, 2)
            filled[np.ix_(rows, gaps)] = np.einsum("nk,knd->nd", responsibilities[rows], predicted)
    return filled


def draw_missing(
    X: np.ndarray,
    kernels: IntArray,
    parameters: Parameters,
    covariance_type: str,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Return C copies (C, N, M) of rows X (N, M) whose missing values, NaN, are drawn.

    `kernels` (C, N) is the kernel of each row and copy.
    """
    structure = structure_of(covariance_type)
    filled = np.tile(X.astype(np.float64), (len(kernels), 1, 1))
    for index, columns, gaps, slopes, covariances in _incomplete(X, parameters, covariance_type):
        roots = np.linalg.cholesky(structure.to_full(covariances, len(parameters.means), len(gaps))[0])
        chosen = kernels[:, index]
        drawn = random_state.standard_normal((*chosen.shape, len(gaps)))
        for k in np.unique(chosen):
            own = np.nonzero(chosen == k)
            deviation = X[np.ix_(index, columns)][own[1]] - parameters.means[k, columns]
            drawn[own] = drawn[own] @ roots[k].T + deviation @ slopes[k].T + parameters.means[k, gaps]
        filled[:, index[:, None], gaps] = drawn
    return filled


def choose(probabilities: FloatArray, random_state: np.random.RandomState) -> IntArray:
    """Draw an index (n,) for each row of probabilities (n, m)."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    threshold = random_state.uniform(size=len(probabilities))
    return (threshold[:, None] >= cumulative).sum(axis=1).astype(np.int64)


def draw(
    parameters: Parameters, covariance_type: str, classes: IntArray, random_state: np.random.RandomState
) -> tuple[FloatArray, IntArray]:
    """Draw a row of each of the `classes` (n,); return the rows (n, M) and their kernels (n,)."""
    n_features = parameters.means.shape[1]
    kernels = choose(parameters.weights.T[classes], random_state)
    structure = structure_of(covariance_type)
    X = random_state.standard_normal((len(classes), n_features))
    for k in np.unique(kernels):
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(one, 1, n_features)[0, 0])
        own = kernels == k
        X[own] = X[own] @ root.T + parameters.means[k]
    return X, kernels
