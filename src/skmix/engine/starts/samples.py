"""Samples of rows: for starts, without outliers, and for the first passes of EM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import KDTree

from ..estep import host
from ..estep.inputs import Kernels, operations
from ..loop import run
from ..measured import values_of
from ..numbers import Array, as_float64, is_numpy, join, like, namespace, pick, safe_log, to_numpy
from ..problem import Problem, open_source, regulariser_of
from ..records import FARTHEST, FloatArray, Frame, IntArray, Parameters, Status
from ..rules.likelihood import Likelihood
from ..scoring import kernel_log_densities
from ..structures import Structure
from ..threads import pool_here, workers
from .exchange import Exchange, rows_needed
from .seeds import rows_within

# Where outliers are expected: largest sample of rows among which neighbours are sought.
_MOST_WITH_NEIGHBOURS = 1 << 13
# The neighbour whose distance tells how isolated a row is.
_NEIGHBOUR = 5
# Share of the least isolated rows of a class, from which starts are drawn.
_CENTRAL = 0.75
# Rows from which on a small sample is drawn one by one, which is then faster than permuting all.
_MANY_ROWS = 1 << 17
# Largest share of the rows in such a sample.
_SMALL_SHARE = 0.1
# EM is run before exchanges on a sample of this many rows per kernel, and at least so many.
_SEEN_PER_KERNEL, _FEWEST_SEEN = 100, 1 << 13
# Passes of EM before exchanges, those before the last ones, and how often kernels are compared.
_PASSES, _LAST_PASSES, _ROUNDS = 5, 40, 8
# Starts are refined on samples, of which each has this many times the rows of the one before.
_ROWS_PER_SAMPLED = 4
# Operations of a pass from which on a sample is worth it.
_WORTH_SAMPLING = 1 << 25
# Fewest rows of a sample for each parameter: with fewer, the kernels would fit the sample alone.
_SAMPLED_PER_PARAMETER = 3
# A fit to n sampled rows ends below this times parameters / n: smaller gains are chance.
_CHANCE = 0.003
# Share of a group's weights that all kernels get evenly after a sample: a weight of zero would stay zero.
_EVEN_WEIGHT = 0.01


def draw_rows(
    n_rows: int, n_sample: int, random_state: np.random.RandomState, row_weights: FloatArray | None = None
) -> IntArray:
    """Draw the numbers (n,) of some rows, each once; with weights (N,), as often as these say."""
    if row_weights is not None:
        return random_state.choice(n_rows, n_sample, p=row_weights / row_weights.sum())
    if n_rows < _MANY_ROWS or n_sample > _SMALL_SHARE * n_rows:
        return random_state.permutation(n_rows)[:n_sample]
    drawn: IntArray = np.empty(0, dtype=np.int64)
    while len(drawn) < n_sample:
        more = random_state.randint(n_rows, size=n_sample - len(drawn))
        drawn = np.sort(np.append(drawn, more))
        drawn = drawn[np.append(True, drawn[1:] != drawn[:-1])]
    return drawn


def spread(n_rows: int, n_needed: int) -> IntArray:
    """Return the numbers of so many rows, in an order that has nothing to do with theirs, or of all."""
    if n_needed >= n_rows:
        return np.arange(n_rows)
    return np.random.RandomState(0).permutation(n_rows)[: max(n_needed, 1)]


def without_outliers(
    X: Array, codes: IntArray, weights: FloatArray | None, frame: Frame
) -> tuple[FloatArray, IntArray, FloatArray | None]:
    """Return some rows (n, M), of each class those with the closest neighbours, their codes and weights (n,).

    k-means++ prefers far rows and would seed outliers. Rows are in memory and have no gaps.
    """
    chosen = np.unique(np.linspace(0, len(codes) - 1, _MOST_WITH_NEIGHBOURS).round().astype(np.int64))
    rows = to_numpy(pick(X, chosen)).astype(np.float64)
    classes, mass = codes[chosen], np.ones(len(rows)) if weights is None else weights[chosen]
    # Repeated rows count like one row of their total weight.
    distinct, place = np.unique(rows / (frame.scale * np.sqrt(frame.variance)), axis=0, return_inverse=True)
    nth = min(_NEIGHBOUR + 1, len(distinct))  # a row is its own first neighbour
    distances = KDTree(distinct).query(distinct, [nth])[0][place.reshape(-1), 0]
    kept = np.zeros(len(rows), dtype=bool)
    for c in np.unique(classes):
        members = np.flatnonzero(classes == c)
        order = members[np.argsort(distances[members])]
        reached = np.cumsum(mass[order])
        farthest = distances[order[np.searchsorted(reached, _CENTRAL * reached[-1])]]
        kept[members] = distances[members] <= farthest
    return rows[kept], classes[kept], None if weights is None else mass[kept]


def in_frame(X: Array, index: IntArray, frame: Frame) -> Array:
    """Return the chosen rows (n, M) in the frame, on their device."""
    some = pick(X, index)
    if is_numpy(some):
        return frame.rows(some).T
    inside = as_float64(some, X) * as_float64(1.0 / frame.scale, X) - as_float64(frame.shift, X)
    return namespace(X).clip(inside, -FARTHEST, FARTHEST)


# ---------------------------------------------------------------- exchanges and EM on samples


def refined(problem: Problem, starts: Parameters, seed: int) -> Parameters:
    """Return starts after exchanges of kernels and EM on random samples of complete rows.

    Each sample has many more rows than the one before, so that few passes over all rows are left. Starts that
    fail on a sample stay as they are. On devices there is only the one for exchanges: their passes over few
    rows take as long.
    """
    source, options = problem.source, problem.options
    if options.freeze is not None or source.summary.gaps:
        return starts
    n_kernels, n_features = starts.means.shape[1:]
    X, codes, weights = source.start_rows()
    n_all, random_state = X.shape[0], np.random.RandomState(seed)
    n_exchanged = rows_for_exchange(n_all, n_kernels, n_features, problem.structure)
    sizes = _sizes(problem, n_all)
    for size in sorted({n_exchanged, *sizes} - {0}):
        rows = np.arange(n_all) if size == n_all else draw_rows(n_all, size, random_state, weights)
        masses = weights
        if weights is not None and size < n_all:
            # Rows were drawn by their weights; priors are in units of these.
            masses = np.full(size, weights.mean())
        sample = _plain(problem, pick(X, rows), codes[rows], masses)
        if size == n_exchanged:
            x = in_frame(values_of(X), rows, problem.frame)
            with workers(options.n_jobs):
                starts = join([_exchanged(sample, x, starts.take([r])) for r in range(len(starts.means))])
        if size in sizes:
            gain = _CHANCE * _n_parameters(n_kernels, n_features, problem.structure) / size
            result = run(sample.with_options(tol=max(options.tol, gain)), starts, is_sample=True)
            good = np.flatnonzero(result.status != Status.FAILED)
            starts = starts.put(good, result.parameters.take(good))
        # All rows may have some of a kernel, or of one in a group, that the few rows of the sample have not.
        even = _EVEN_WEIGHT if starts.weights.shape[-1] > 1 or (starts.weights <= 0).any() else 0.0
        starts = replace(starts, weights=(1.0 - even) * starts.weights + even / n_kernels)
    return starts


def rows_for_exchange(n_rows: int, n_kernels: int, n_features: int, structure: Structure) -> int:
    """Return the number of rows from which EM learns which kernels to exchange.

    It is zero if rows are too few for its parameters; k-means does it then.
    """
    enough = _SAMPLED_PER_PARAMETER * _n_parameters(n_kernels, n_features, structure)
    if n_kernels < 3 or enough > n_rows:
        return 0
    return min(max(_FEWEST_SEEN, _SEEN_PER_KERNEL * n_kernels, enough), n_rows)


def _n_parameters(n_kernels: int, n_features: int, structure: Structure) -> int:
    """Return the number of free parameters of means and covariances."""
    return structure.n_parameters(n_kernels, n_features) + n_kernels * n_features


def _sizes(problem: Problem, n_all: int) -> list[int]:
    """Return the sizes of samples of which EM saves passes over all rows."""
    source, options, n_features = problem.source, problem.options, len(problem.frame.scale)
    # Hierarchical weights depend on the sizes of groups.
    plain = options.inference == "em" and not isinstance(options.weight_prior, str)
    if not plain or not source.samples_are_quicker:
        return []
    sizes, n_rows = [], source.summary.n_rows
    while operations(n_rows, problem.n_kernels, n_features) >= _WORTH_SAMPLING:
        n_rows //= _ROWS_PER_SAMPLED
        sizes.append(min(n_rows, n_all))
    enough = _SAMPLED_PER_PARAMETER * _n_parameters(problem.n_kernels, n_features, problem.structure)
    return [size for size in sizes if size >= enough]


def _plain(problem: Problem, X: Array, codes: IntArray, weights: FloatArray | None) -> Problem:
    """Return the problem of maximum likelihood, with the priors of the covariances, on some rows X (n, M)."""
    rule, options, structure = problem.rule, problem.options, problem.structure
    if not isinstance(rule, Likelihood):
        regulariser = regulariser_of(options, problem.frame, structure, problem.n_kernels)
        rule = Likelihood(structure, replace(regulariser, weight_prior=1.0), precision=options.precision)
    rule = replace(rule, regulariser=replace(rule.regulariser, hierarchical=None))
    return replace(problem, source=open_source(X, codes, weights), rule=rule)


def _exchanged(sample: Problem, x: Array, start: Parameters) -> Parameters:
    """Return a start (with R = 1) after exchanges of its kernels, for the rows x (n, M) of a sample."""
    structure, (n_kernels, n_features) = sample.structure, start.means.shape[1:]
    result, n_passes = run(sample.with_options(max_iter=_PASSES), start, is_sample=True), _PASSES
    if result.status[0] == Status.FAILED:
        return start
    _, codes, weights = sample.source.start_rows()
    errors = sample.source.error_variances
    errors = None if errors is None else errors / sample.frame.scale**2
    some = spread(x.shape[0], rows_needed(n_kernels, n_features, structure))
    x, codes, weights = pick(x, some), codes[some], None if weights is None else weights[some]
    for _ in range(_ROUNDS):
        # Exchanges see the values as they are, with errors of their mean size.
        seen = result.parameters.take(0)
        if errors is not None:
            seen = replace(seen, covariances=structure.widened_by(seen.covariances, errors))
        responsibilities = _responsibilities(sample, x, codes, seen)
        if weights is not None:
            responsibilities *= weights / weights.mean()
        exchange = Exchange(x, responsibilities, structure, pooled=start.tail.weighted)
        outcome = exchange.run(seen)
        if not outcome.n_exchanges:
            has_come_far = n_passes == _LAST_PASSES or result.status[0] == Status.CONVERGED
            if outcome.is_certain or has_come_far:
                break
            n_passes = _LAST_PASSES
        exchanged = outcome.parameters.batch()
        if errors is not None:
            exchanged = replace(exchanged, covariances=structure.narrowed(exchanged.covariances, errors))
        following = run(sample.with_options(max_iter=n_passes), exchanged, is_sample=True)
        if following.status[0] == Status.FAILED:
            break
        if outcome.n_exchanges and not following.objective[0] > result.objective[0]:
            break
        result = following
    return result.parameters


def _responsibilities(sample: Problem, x: Array, codes: IntArray, model: Parameters) -> FloatArray:
    """Return the responsibilities (K, n) for rows x (n, M) with class codes (n,), under one model."""
    weights = model.weights
    if (codes < 0).any():
        prior = 1.0 / weights.shape[1] if model.class_prior is None else model.class_prior
        weights = np.append(weights, (weights * prior).sum(axis=1, keepdims=True), axis=1)
        codes = np.where(codes < 0, weights.shape[1] - 1, codes)
    structure, start = sample.structure, model.batch()
    if is_numpy(x):
        kernels = Kernels.of(start, structure.factor(start.covariances, x.shape[1]), structure)
        logs = host.log_densities(rows_within(x, None), kernels, None, pool_here())
    else:
        logs = kernel_log_densities(x, model, structure.name)
    logs = logs + pick(like(safe_log(weights).T, logs), codes)
    xp = namespace(logs)
    shares = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
    shares = shares / xp.sum(shares, axis=1, keepdims=True)
    return np.ascontiguousarray(to_numpy(shares).T)
