"""Samples of rows: for starts, without outliers, and for the first passes of EM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import KDTree

from ..estep.inputs import operations
from ..loop import run
from ..numbers import Array, pick, to_numpy
from ..problem import Problem
from ..records import FloatArray, Frame, IntArray, Parameters, Status

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
    n_rows: int,
    n_sample: int,
    random_state: np.random.RandomState,
    row_weights: FloatArray | None = None,
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


def refined(problem: Problem, starts: Parameters, seed: int) -> Parameters:
    """Return starts after EM on random samples of many complete rows, each larger than the one before.

    Few passes over all rows are left then. Starts that fail on a sample stay as they are. Devices need no
    samples: their passes over few rows take as long.
    """
    source, options = problem.source, problem.options
    # Frozen weights stay as they are, and hierarchical ones depend on the sizes of groups.
    keeps_weights = options.freeze is not None or isinstance(options.weight_prior, str)
    if options.inference != "em" or keeps_weights or source.summary.gaps:
        return starts
    n_rows, (_, n_kernels, n_features) = source.summary.n_rows, starts.means.shape
    n_parameters = problem.structure.n_parameters(n_kernels, n_features) + n_kernels * n_features
    sizes: list[int] = []
    while operations(n_rows, n_kernels, n_features) >= _WORTH_SAMPLING:
        n_rows //= _ROWS_PER_SAMPLED
        sizes.append(n_rows)
    if not sizes or not source.samples_are_quicker:
        return starts
    rows, random_state = source.start_rows(), np.random.RandomState(seed)
    n_all = rows[0].shape[0]
    for size in sorted({min(size, n_all) for size in sizes}):
        if size < _SAMPLED_PER_PARAMETER * n_parameters:
            continue
        sample = problem.sample(rows, draw_rows(n_all, size, random_state, rows[2]))
        sample = sample.with_options(tol=max(options.tol, _CHANCE * n_parameters / size))
        result = run(sample, starts)
        good = np.flatnonzero(result.status != Status.FAILED)
        starts = starts.put(good, result.parameters.take(good))
        # A group may have rows of a kernel that none of its few rows in the sample is of.
        even = _EVEN_WEIGHT if starts.weights.shape[-1] > 1 else 0.0
        starts = replace(starts, weights=(1.0 - even) * starts.weights + even / n_kernels)
    return starts
