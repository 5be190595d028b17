"""Starting points, R at a time, in the frame in which their distances count.

All but the paper's draw a new random sample of many rows for each start, so that their cost does not grow
with the data.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

import numpy as np
from scipy.spatial import KDTree

from .estep import host
from .estep.reference import Rows, native, operations
from .loop import run
from .numbers import Array, as_float64, constant, is_numpy, namespace, pick, take, to_numpy
from .problem import Problem
from .records import FARTHEST, FloatArray, Frame, IntArray, Parameters, Regulariser, Status
from .structures import Structure
from .threads import Workers, workers

# Rows sampled per kernel for seeds inside classes.
_ROWS_PER_KERNEL = 25
# Lloyd iterations from these seeds.
_LLOYD_PASSES = 3
# For k-means over all classes: rows sampled per kernel for seeds, rows from which on a sample has fewer per
# kernel, and the fewest.
_ROWS_PER_SEED, _MANY_SEEDED, _FEWEST_PER_SEED = 100, 1 << 13, 8
# Seeds per kernel that are drawn in addition, and how often at most.
_MORE_SEEDS, _ROUNDS = 2, 3
# Most distances between rows and seeds, so that these do not fill the memory.
_MOST_DISTANCES = 1 << 24
# Rows per kernel that suffice for Lloyd iterations, and the fewest in all: a start then costs a few passes.
_ROWS_PER_CLUSTER, _FEWEST_ROWS = 500, 1 << 14
# They have converged when no centre moves by this squared distance in any feature: EM refines what is left.
_CONVERGED = 1e-3
# Most Lloyd iterations.
_MOST_LLOYD_PASSES = 100
# Numbers in the rows and distances that k-means holds at a time, on the host and on a device.
_NUMBERS_AT_ONCE, _NUMBERS_ON_DEVICE = 1 << 20, 1 << 27
# Share of the features' variances mixed into a start's covariance, for conditioning with few rows.
_SHRINKAGE = 0.05
# Share of a class's starting weight that all kernels get evenly: a weight of zero would stay zero.
_EVEN_WEIGHT = 0.01
# Rows whose responsibilities are asked for at a time.
_ROWS_AT_ONCE = 1 << 13
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


@dataclass(frozen=True)
class Wanted:
    """The starts that are wanted, and what they are drawn with."""

    n_classes: int
    n_starts: int
    n_kernels: int
    frame: Frame  # coordinates in which distances count
    structure: Structure
    random_state: np.random.RandomState
    n_jobs: int = 1


def uniform(
    n_starts: int,
    n_kernels: int,
    n_classes: int,
    n_features: int,
    structure: Structure,
    random_state: np.random.RandomState,
) -> Parameters:
    """Return the paper's starts: means uniform on [0, 1] in each coordinate, covariances 0.3·I."""
    means = random_state.uniform(size=(n_starts, n_kernels, n_features))
    common = np.stack([structure.common(np.full(n_features, 0.3))] * n_starts)
    covariances = structure.from_common(common, n_kernels)
    return Parameters(uniform_weights(n_starts, n_kernels, n_classes), means, covariances)


def uniform_weights(n_starts: int, n_kernels: int, n_classes: int) -> FloatArray:
    """Return equal weights (R, K, L)."""
    return np.full((n_starts, n_kernels, n_classes), 1.0 / n_kernels)


def random_from_data(X: np.ndarray, wanted: Wanted, row_weights: FloatArray | None = None) -> Parameters:
    """Return starts whose means are random rows, with the features' variances over K^(2/M)."""
    n_rows, n_kernels, frame = X.shape[0], wanted.n_kernels, wanted.frame
    chances = None if row_weights is None else row_weights / row_weights.sum()
    drawn = {"replace": n_kernels > n_rows, "p": chances}
    chosen = [wanted.random_state.choice(n_rows, n_kernels, **drawn) for _ in range(wanted.n_starts)]
    means = np.stack([to_numpy(_rows(X, index, frame)) for index in chosen])
    covariance = wanted.structure.common(frame.variance / n_kernels ** (2.0 / len(frame.scale)))
    covariances = wanted.structure.from_common(np.stack([covariance] * wanted.n_starts), n_kernels)
    weights = uniform_weights(wanted.n_starts, n_kernels, wanted.n_classes)
    return Parameters(weights, means, covariances)


def k_means(X: Array, classes: IntArray, wanted: Wanted, row_weights: FloatArray | None = None) -> Parameters:
    """Return R starts by k-means over the rows X (N, M) of all classes together, or a sample of them.

    Rows stay on their device. Each kernel has the mean and the covariance of a cluster, with a few rows'
    worth of the pooled scatter within clusters. The weights of a class are the shares of its rows in the
    clusters, by their classes (N,), −1 for none; some is spread over all kernels. A row with weight (N,) two
    counts as two.
    """
    n_classes, n_starts, n_kernels, frame, _, random_state, n_jobs = vars(wanted).values()
    n_rows, found = max(_ROWS_PER_CLUSTER * n_kernels, _FEWEST_ROWS), []
    with workers(n_jobs) as pool:
        for _ in range(n_starts):
            some, masses = np.arange(len(classes)), row_weights
            if n_rows < len(classes):
                some, masses = draw_rows(len(classes), n_rows, random_state, row_weights), None
            x, codes = _rows(X, some, frame), classes[some]
            seeds = _spread_seeds(x, masses, n_kernels, random_state)
            centres, nearest = _clusters(x, masses, seeds, pool, (X, some, frame))
            covariances = _covariances(x, masses, centres, nearest, wanted)
            known = np.flatnonzero(codes >= 0)
            place = to_numpy(nearest)[known] * n_classes + codes[known]
            known_masses = None if masses is None else masses[known]
            mass = np.bincount(place, known_masses, n_kernels * n_classes)
            # A class may have no row in a sample.
            masses = mass.reshape(n_kernels, n_classes) + np.finfo(np.float64).tiny
            weights = (1.0 - _EVEN_WEIGHT) * (masses / masses.sum(axis=0)) + _EVEN_WEIGHT / n_kernels
            found.append((weights[None], to_numpy(centres)[None], covariances))
    weights, means, covariances = (np.concatenate(each) for each in zip(*found, strict=True))
    return Parameters(weights, means, covariances)


def _spread_seeds(
    x: Array, masses: FloatArray | None, n_kernels: int, random_state: np.random.RandomState
) -> Array:
    """Return seeds (K, M) among rows x (n, M) of masses (n,).

    Seeds are drawn as by k-means++, but in a few batches: each doubles their number. They are likely to leave
    out some of many clusters and to have two seeds in others, which neither Lloyd's iterations nor EM mends.
    So more seeds are drawn than are wanted, given the means of the clusters so far, and the least useful ones
    are left out; this is done again until none of the new ones is kept.
    """
    n_sample = min(_ROWS_PER_SEED * n_kernels, max(_MANY_SEEDED, _FEWEST_PER_SEED * n_kernels))
    if masses is None:
        n_sample = min(n_sample, x.shape[0])
    sample, xp = pick(x, draw_rows(x.shape[0], n_sample, random_state, masses)), namespace(x)
    first, lengths = random_state.randint(n_sample), xp.vecdot(sample, sample)[:, None]
    seeds = sample[first : first + 1]
    while seeds.shape[0] < n_kernels:
        n_more = min(seeds.shape[0], n_kernels - seeds.shape[0])
        seeds = xp.concat([seeds, _far_rows(sample, _squared(sample, lengths, seeds), n_more, random_state)])
    pieces = _pieces(sample, None, n_kernels)
    n_more = min(_MORE_SEEDS * n_kernels, _MOST_DISTANCES // n_sample - n_kernels)
    for _ in range(_ROUNDS if n_kernels > 1 and n_more > 0 else 0):
        seeds = _means(_sum_clusters(pieces, seeds)[0], seeds)
        squared = _squared(sample, lengths, seeds)
        more = _far_rows(sample, squared, n_more, random_state)
        kept = _most_useful(xp.concat([squared, _squared(sample, lengths, more)], axis=1), n_kernels)
        if kept[-1] < n_kernels:
            break
        seeds = pick(xp.concat([seeds, more]), kept)
    return seeds


def _squared(x: Array, lengths: Array, seeds: Array) -> Array:
    """Return squared distances (n, q) of rows x (n, M), of squared lengths (n, 1), from seeds (q, M)."""
    xp = namespace(x)
    squared = lengths - 2.0 * (x @ seeds.T) + xp.vecdot(seeds, seeds)
    return xp.clip(squared, 0.0, None)


def _far_rows(x: Array, squared: Array, n_rows: int, random_state: np.random.RandomState) -> Array:
    """Draw rows of x (n, M) with chances as their squared distances (n, q) from the nearest seed.

    They are drawn at once, one from each of as many parts of the total.
    """
    xp = namespace(x)
    cumulative = xp.min(squared, axis=1).cumsum(0)
    places = as_float64((np.arange(n_rows) + random_state.uniform(size=n_rows)) / n_rows, x)
    # With fewer distinct rows than seeds all distances are zero, and the last row is repeated.
    return pick(x, xp.searchsorted(cumulative[:-1], places * cumulative[-1:], side="right"))


def _most_useful(squared: Array, n_kept: int) -> IntArray:
    """Return the seeds that remain when others are left out, given squared distances (n, q) of rows.

    Those are left out without which the sum of the distances from the nearest seed rises least. Each round
    leaves out half of the surplus, but never both seeds that are nearest to a row.
    """
    n_rows, n_seeds = squared.shape
    out, rows, size = np.zeros(n_seeds), np.arange(n_rows), max(1, _numbers_at_once(squared) // n_seeds)
    nearest, second, loss = (np.empty(n_rows, dtype=kind) for kind in (np.int64, np.int64, np.float64))
    while n_left_out := (np.count_nonzero(out == 0.0) - n_kept + 1) // 2:
        for a in range(0, len(rows), size):
            part = rows[a : a + size]
            nearest[part], second[part], loss[part] = _two_nearest(squared, part, out)
        rise, place = np.bincount(nearest, loss, minlength=n_seeds) + out, np.empty(n_seeds, dtype=np.int64)
        place[np.argsort(rise, kind="stable")] = np.arange(n_seeds)
        goes = place < n_left_out
        later = np.where(place[nearest] < place[second], second, nearest)
        goes[later[goes[nearest] & goes[second]]] = False
        out[goes] = np.inf
        rows = np.flatnonzero(goes[nearest] | goes[second])
    return np.flatnonzero(out == 0.0)


def _two_nearest(squared: Array, rows: IntArray, out: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the nearest and second seeds of some rows (m,), and how much farther the second is.

    `out` (q,) is infinite for seeds that are left out.
    """
    xp, distances = namespace(squared), pick(squared, rows)
    distances += as_float64(out, squared)
    own, nearest = constant(np.arange, len(rows), example=squared), xp.argmin(distances, axis=1)
    lowest = distances[own, nearest]
    distances[own, nearest] = np.inf
    second = xp.argmin(distances, axis=1)
    return to_numpy(nearest), to_numpy(second), to_numpy(distances[own, second] - lowest)


def _clusters(
    x: Array,
    masses: FloatArray | None,
    centres: Array,
    pool: Workers,
    chosen: tuple[Array, IntArray, Frame],
) -> tuple[Array, Array]:
    """Return centres (K, M) after Lloyd iterations over rows x (n, M), and the cluster (n,) of each row.

    Rows x are chosen ones of an array, by their numbers, in a frame.
    """
    if is_numpy(x):
        X, some, frame = chosen
        passes = partial(host.lloyd, Rows(native(pick(X, some)), None, masses, frame), pool)
    else:
        passes = partial(_sum_clusters, _pieces(x, masses, centres.shape[0]))
    nearest = None
    for _ in range(_MOST_LLOYD_PASSES):
        sums, nearest = passes(centres)
        before, centres = centres, _means(sums, centres)
        if float(((centres - before) ** 2).max()) < _CONVERGED:
            break
    return centres, nearest


def _covariances(
    x: Array, masses: FloatArray | None, centres: Array, nearest: Array, wanted: Wanted
) -> FloatArray:
    """Return covariances (1, K, …) of clusters of rows x (n, M), given their means and each row's cluster.

    A structure whose kernels share a covariance has the pooled scatter.
    """
    n_kernels, structure, xp = wanted.n_kernels, wanted.structure, namespace(x)
    order = xp.argsort(nearest, stable=True)
    bounds = np.searchsorted(to_numpy(pick(nearest, order)), np.arange(n_kernels + 1))
    about = take(x, order, axis=0) - take(centres, take(nearest, order, axis=0), axis=0)
    weighted = about if masses is None else about * pick(as_float64(masses, x), order)[:, None]
    total = float(len(nearest) if masses is None else masses.sum())
    common = _pooled(about, weighted, total, wanted)
    if structure.shared:
        return structure.from_common(common[None], n_kernels)
    cuts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    seconds = to_numpy(xp.stack([structure.second_moment(about[cut], weighted[cut]) for cut in cuts]))
    # A few rows of average weight.
    mass, rows = np.bincount(to_numpy(nearest), masses, n_kernels), (x.shape[1] + 2.0) * total / len(x)
    own = (seconds.T + rows * common.T[..., None]) / (mass + rows)
    return np.swapaxes(structure.from_common(own.T, 1), 0, 1)


def _pooled(about: Array, weighted: Array, total: float, wanted: Wanted) -> FloatArray:
    """Return the mean scatter of rows about centres (n, M), with a share of the features' variances."""
    scatter = (1.0 - _SHRINKAGE) / total * to_numpy(weighted.T @ about)
    return wanted.structure.common(scatter + _SHRINKAGE * np.diag(wanted.frame.variance))


def class_wise(
    X: np.ndarray,
    classes: IntArray,
    wanted: Wanted,
    row_weights: FloatArray | None = None,
    own_kernels: IntArray | None = None,
) -> Parameters:
    """Return R starts seeded by k-means++ within each class (N,), kernels assigned to classes in turn.

    Covariances are the pooled scatter about the means. Nearly all of a class's weight is on its own kernels;
    the rest is spread over all kernels. With fewer kernels than classes, each start seeds a random subset of
    classes and gives the others uniform weights. Row weights (N,) are proportional to sampling probabilities.

    With `own_kernels` (L,), each class has that many of the K kernels to itself, one class after the other.
    No weight is spread, so that they remain its own.
    """
    n_classes, n_starts, n_kernels, frame, structure, random_state, _ = vars(wanted).values()
    by_class, bounds = np.arange(len(classes)), np.array([0, len(classes)])
    if n_classes > 1:
        by_class = np.argsort(classes, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(classes, minlength=n_classes))])
    n_features = X.shape[1]
    means, covariances = np.empty((n_starts, n_kernels, n_features)), []
    weights = uniform_weights(n_starts, n_kernels, n_classes)
    for r in range(n_starts):
        seeded = random_state.permutation(n_classes)[:n_kernels]
        # The class at place p owns kernels p, p + L, …
        kernels, even = [np.arange(p, n_kernels, n_classes) for p in range(len(seeded))], _EVEN_WEIGHT
        if own_kernels is not None:
            seeded, even = np.arange(n_classes), 0.0
            kernels = np.split(np.arange(n_kernels), np.cumsum(own_kernels)[:-1])
        drawn, seeds = [], []
        for c, own in zip(seeded, kernels, strict=True):
            members = by_class[bounds[c] : bounds[c + 1]]
            n_sample = min(len(members), _ROWS_PER_KERNEL * len(own))
            if row_weights is None:
                drawn.append(members[draw_rows(len(members), n_sample, random_state)])
            else:
                chances = row_weights[members] / row_weights[members].sum()
                drawn.append(random_state.choice(members, n_sample, replace=False, p=chances))
            seeds.append((random_state.randint(n_sample), random_state.uniform(size=len(own) - 1)))
        sample = _rows(X, np.concatenate(drawn), frame)
        centres, nearest = _cluster(sample, [len(rows) for rows in drawn], seeds)
        about = sample - take(centres, nearest, axis=0)
        # One at a time: with many features, those of all starts may not fit in memory.
        common = _pooled(about, about, float(len(about)), wanted)
        covariances.append(structure.from_common(common[None], n_kernels))
        order, sizes = np.concatenate(kernels), [len(own) for own in kernels]
        means[r, order] = to_numpy(centres)
        weights[r][:, seeded] *= even
        weights[r, order, np.repeat(seeded, sizes)] += (1.0 - even) / np.repeat(sizes, sizes)
    return Parameters(weights, means, np.concatenate(covariances))


def without_outliers(
    X: Array, codes: IntArray, weights: FloatArray | None, frame: Frame
) -> tuple[FloatArray, IntArray, FloatArray | None]:
    """Return some rows (n, M), of each class those with the closest neighbours, their codes and weights (n,).

    k-means++ prefers far rows and would seed outliers. Rows are in memory and have no gaps.
    """
    chosen = np.unique(np.linspace(0, len(codes) - 1, _MOST_WITH_NEIGHBOURS).round().astype(np.int64))
    rows = to_numpy(pick(X, chosen)).astype(np.float64)
    own, mass = codes[chosen], np.ones(len(rows)) if weights is None else weights[chosen]
    # Repeated rows count like one row of their total weight.
    distinct, place = np.unique(rows / (frame.scale * np.sqrt(frame.variance)), axis=0, return_inverse=True)
    nth = min(_NEIGHBOUR + 1, len(distinct))  # a row is its own first neighbour
    distances = KDTree(distinct).query(distinct, [nth])[0][place.reshape(-1), 0]
    kept = np.zeros(len(rows), dtype=bool)
    for c in np.unique(own):
        mine = np.flatnonzero(own == c)
        order = mine[np.argsort(distances[mine])]
        reached = np.cumsum(mass[order])
        farthest = distances[order[np.searchsorted(reached, _CENTRAL * reached[-1])]]
        kept[mine] = distances[mine] <= farthest
    return rows[kept], own[kept], None if weights is None else mass[kept]


def from_responsibilities(
    X: np.ndarray,
    responsibilities: Callable[[int, int], FloatArray],
    frame: Frame,
    structure: Structure,
    regulariser: Regulariser,
) -> Parameters:
    """Return the one-class start that an M-step makes of given responsibilities.

    `responsibilities(start, stop)` returns those of rows start … stop − 1, shape (K, n); it is called once
    for each chunk, in order.
    """
    parts = []
    # Moments about the overall mean cost narrow kernels some digits, which does not matter for a start.
    for a in range(0, len(X), _ROWS_AT_ONCE):
        b = min(a + _ROWS_AT_ONCE, len(X))
        given, x = responsibilities(a, b), to_numpy(_rows(X, np.arange(a, b), frame))
        # Given by k-means, most responsibilities are zero.
        own = [np.flatnonzero(weights) for weights in given]
        second = [
            structure.second_moment(x[rows], x[rows] * weights[rows, None])
            for rows, weights in zip(own, given, strict=True)
        ]
        parts.append((given.sum(axis=1), given @ x, np.array(second)))
    mass, first, moments = (sum(sums) for sums in zip(*parts, strict=True))
    # Scikit-learn adds this to all masses, beside which small row weights would be lost.
    total = np.where(mass > 0, mass, 10 * np.finfo(np.float64).eps)
    means = first / total[:, None]
    sums = total[None], means[None], structure.pack(moments)[None]
    covariances, _ = structure.update(sums, regulariser)
    return Parameters((total / total.sum())[None, :, None], means[None], covariances)


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
    found: IntArray = np.empty(0, dtype=np.int64)
    while len(found) < n_sample:
        more = random_state.randint(n_rows, size=n_sample - len(found))
        found = np.sort(np.append(found, more))
        found = found[np.append(True, found[1:] != found[:-1])]
    return found


def _rows(X: Array, index: IntArray, frame: Frame) -> Array:
    """Return the chosen rows (n, M) in the frame, on their device."""
    some = pick(X, index)
    if is_numpy(some):
        return frame.rows(some).T
    inside = as_float64(some, X) * as_float64(1.0 / frame.scale, X) - as_float64(frame.shift, X)
    return namespace(X).clip(inside, -FARTHEST, FARTHEST)


def _cluster(
    sample: Array, sizes: Sequence[int], seeds: Sequence[tuple[int, FloatArray]]
) -> tuple[Array, Array]:
    """Return centres (K, M) by k-means++ and Lloyd iterations within each class, and that of each row (n,).

    The rows of `sample` (n, M) are in the order of classes of these sizes; so are the centres. Each class has
    the number of its first seed, and chances (q − 1,) for the others.
    """
    found, own, n_before, xp = [], [], 0, namespace(sample)
    for end, size, (first, chances) in zip(np.cumsum(sizes), sizes, seeds, strict=True):
        x = sample[int(end) - size : int(end)]
        centres = draw_seeds(x, x[first : first + 1], as_float64(chances, x))
        pieces = _pieces(x, None, centres.shape[0])
        for _ in range(_LLOYD_PASSES if len(chances) else 1):  # one centre is the mean
            centres = _means(_sum_clusters(pieces, centres)[0], centres)
        found.append(centres)
        own.append(_sum_clusters(pieces, centres)[1] + n_before)
        n_before += centres.shape[0]
    return xp.concat(found), xp.concat(own)


def _pieces(x: Array, masses: FloatArray | None, n_centres: int) -> list[tuple[Array, Array]]:
    """Return rows x (n, M) in pieces, each with the values (n, M + 1) to be summed: x and 1, weighted."""
    xp, (n_rows, n_features) = namespace(x), x.shape
    values = xp.concat([x, xp.ones_like(x[:, :1])], axis=1)
    if masses is not None:
        values = values * as_float64(masses, x)[:, None]
    size = max(1, _numbers_at_once(x) // (n_centres + n_features))
    return [(x[a : a + size], values[a : a + size]) for a in range(0, n_rows, size)]


def _numbers_at_once(x: Array) -> int:
    return _NUMBERS_AT_ONCE if is_numpy(x) else _NUMBERS_ON_DEVICE


def _sum_clusters(pieces: Sequence[tuple[Array, Array]], centres: Array) -> tuple[Array, Array]:
    """Return sums (K, V) of values (n, V) over the rows x (n, M) nearest to each centre (K, M), and which."""
    xp = namespace(centres)
    numbers = constant(np.arange, centres.shape[0], example=centres)[:, None]
    halves = 0.5 * xp.vecdot(centres, centres)
    nearest = [xp.argmax(x @ centres.T - halves, axis=-1) for x, _ in pieces]
    sums = [
        xp.astype(own[None] == numbers, xp.float64) @ values
        for own, (_, values) in zip(nearest, pieces, strict=True)
    ]
    return reduce(operator.add, sums), xp.concat(nearest)


def _means(sums: Array, centres: Array) -> Array:
    """Return the means (K, M) of clusters from their sums (K, V); without rows a centre stays."""
    xp, n_features = namespace(sums), centres.shape[-1]
    counts = xp.sum(sums[..., n_features:], axis=-1, keepdims=True)
    filled = counts > 0
    return xp.where(filled, sums[..., :n_features] / xp.where(filled, counts, 1.0), centres)


def draw_seeds(sample: Array, seeds: Array, chances: Array) -> Array:
    """Return seeds (q, M), and one more for each chance (p,), by k-means++ among rows (n, M).

    The host reads nothing of a device, so that it need not wait.
    """
    xp, squares, found = namespace(sample), namespace(sample).vecdot(sample, sample), [seeds]
    nearest = xp.min(xp.vecdot(seeds, seeds) - 2.0 * (sample @ seeds.T), axis=1)
    nearest = xp.clip(squares + nearest, 0.0, None)
    for chance in chances:
        cumulative = nearest.cumsum(0)
        # With fewer distinct rows than seeds all distances are zero, and the last row is repeated.
        place = xp.searchsorted(cumulative[:-1], chance * cumulative[-1:], side="right")
        found.append(pick(sample, place))
        lengths = squares - 2.0 * (sample @ found[-1][0]) + pick(squares, place)
        nearest = xp.minimum(nearest, xp.clip(lengths, 0.0, None))
    return xp.concat(found)


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
    if not sizes or not is_numpy(source.to_device(starts.means)):
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
