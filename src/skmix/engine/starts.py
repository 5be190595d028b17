"""Starting points, R at a time, in the data's coordinates.

All but the paper's draw a new random sample of rows for each start, so that their cost does not grow with the
data and starts differ even where the seeding rule itself is deterministic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import starmap

import numpy as np
from scipy.spatial import KDTree

from .compute.arrays import Array, as_float64, constant, is_numpy, namespace, pick, to_numpy
from .compute.threads import workers
from .estep.reference import Rows, native, worth_compiling
from .model import FARTHEST, FloatArray, Frame, IntArray, Parameters, Regulariser
from .structures import Structure

# Rows sampled per kernel.
_ROWS_PER_KERNEL = 25
# Lloyd iterations of k-means over a sample.
_LLOYD_PASSES = 3
# Rows sampled per kernel where seeds are swapped: swaps need more rows to tell seeds apart.
_ROWS_PER_SWAPPED = 100
# Largest sample for swaps, so that their cost does not grow with the number of kernels.
_MOST_ROWS_TO_SWAP = 1 << 14
# Swaps that are tried per kernel.
_SWAPS_PER_KERNEL = 8
# Most swaps that are tried in all.
_MOST_SWAPS = 1000
# k-means over all rows has converged when no centre moves by this squared distance in any feature.
_CONVERGED = 1e-6
# Most passes of k-means over all rows: EM refines what is left.
_MOST_LLOYD_PASSES = 30
# Numbers in the rows and distances that k-means holds at a time.
_NUMBERS_AT_ONCE = 1 << 20
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
    return frame.leave(Parameters(weights, means, covariances), wanted.structure)


def k_means_plus_plus(X: np.ndarray, wanted: Wanted, row_weights: FloatArray | None = None) -> Parameters:
    """Return starts seeded by k-means++ with swaps over the rows of all classes together."""
    together = np.zeros(X.shape[0], dtype=np.int64), replace(wanted, n_classes=1)
    start = class_wise(X, *together, row_weights, swap=True)
    weights = uniform_weights(wanted.n_starts, wanted.n_kernels, wanted.n_classes)
    return Parameters(weights, start.means, start.covariances)


def k_means(X: Array, classes: IntArray, wanted: Wanted, row_weights: FloatArray | None = None) -> Parameters:
    """Return R starts by k-means over the rows X (N, M) of all classes together.

    Seeds are those of k-means++ with swaps. Lloyd iterations of all starts run together, on the rows' device,
    until centres hardly move. Covariances are the pooled scatter within clusters. The weights of a class are
    the shares of its rows in the clusters, by their classes (N,), −1 for none; some is spread over all
    kernels. A row with weight (N,) two counts as two.
    """
    n_features, frame, structure = X.shape[1], wanted.frame, wanted.structure
    n_kernels, means, of_clusters, covariances = wanted.n_kernels, [], [], []
    with _opened(X, classes, wanted, row_weights) as (sums_of, second):
        for _ in range(wanted.n_starts):
            draw = _draw(np.arange(len(classes)), n_kernels, row_weights, wanted.random_state, swap=True)
            centres = _seeds(_rows(X, draw.rows, frame), draw)
            for _ in range(_MOST_LLOYD_PASSES):
                sums = sums_of(centres)
                before, centres = centres, _means(sums, centres)
                if float(((centres - before) ** 2).max()) < _CONVERGED:
                    break
            means.append(to_numpy(centres))
            of_clusters.append(to_numpy(sums))
            scatter = _scatter(second, of_clusters[-1], means[-1], frame)
            covariances.append(structure.from_common(structure.common(scatter)[None], n_kernels))
    masses = np.stack(of_clusters)[..., n_features:-1]
    weights = masses / masses.sum(axis=1, keepdims=True)
    weights = (1.0 - _EVEN_WEIGHT) * weights + _EVEN_WEIGHT / n_kernels
    return frame.leave(Parameters(weights, np.stack(means), np.concatenate(covariances)), structure)


@contextmanager
def _opened(
    X: Array, classes: IntArray, wanted: Wanted, row_weights: FloatArray | None
) -> Iterator[tuple[Callable[[Array], Array], FloatArray]]:
    """Yield a function for passes of k-means over all rows, and the sum (M, M) of x xᵀ.

    The function takes centres (K, M) and returns sums (K, M + L + 1) over the rows nearest to each: their
    values, and masses by class, those of rows without a class last.
    """
    n_rows, n_features = X.shape
    codes, frame, n_kernels = np.where(classes < 0, wanted.n_classes, classes), wanted.frame, wanted.n_kernels
    if is_numpy(X):
        rows = Rows(native(X), codes, row_weights, 1.0 / frame.scale, frame.shift)
        if worth_compiling(n_rows, n_kernels, n_features):
            from .estep.clusters import Clusters

            with workers(wanted.n_jobs) as pool:
                yield Clusters(rows, wanted.n_classes + 1, n_kernels, pool).sums, rows.scatter
            return
    xp, masses = namespace(X), np.ones(n_rows) if row_weights is None else row_weights

    def read(cut: slice) -> tuple[Array, Array]:
        """Return rows, and what clusters sum."""
        x = _rows(X, np.arange(n_rows)[cut], frame)
        of_rows = np.eye(wanted.n_classes + 1)[codes[cut]] * masses[cut][:, None]
        weighted = x * as_float64(masses[cut], X)[:, None]
        return x, xp.concat([weighted, as_float64(of_rows, X)], axis=1)

    cuts = _cuts(n_rows, n_kernels + n_features)
    second = reduce(np.add, (to_numpy(values[:, :n_features].T @ x) for x, values in map(read, cuts)))
    yield lambda centres: _sum_clusters(map(read, cuts), centres), second


def class_wise(
    X: np.ndarray,
    classes: IntArray,
    wanted: Wanted,
    row_weights: FloatArray | None = None,
    own_kernels: IntArray | None = None,
    *,
    swap: bool = False,
) -> Parameters:
    """Return R starts seeded by k-means++ within each class (N,), kernels assigned to classes in turn.

    Covariances are the pooled scatter about the means. Nearly all of a class's weight is on its own kernels;
    the rest is spread over all kernels. With fewer kernels than classes, each start seeds a random subset of
    classes and gives the others uniform weights. Row weights (N,) are proportional to sampling probabilities.

    With `own_kernels` (L,), each class has that many of the K kernels to itself, one class after the other.
    No weight is spread, so that they remain its own. With `swap`, seeds are improved before they are used.
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
        draws = []
        for c, own in zip(seeded, kernels, strict=True):
            members = by_class[bounds[c] : bounds[c + 1]]
            draws.append(_draw(members, len(own), row_weights, random_state, swap=swap))
        sample = _rows(X, np.concatenate([draw.rows for draw in draws]), frame)
        centres, sums = _cluster(sample, draws)
        scatter = _scatter(to_numpy(sample.T @ sample), sums, centres, frame)
        # One at a time: with many features, those of all starts may not fit in memory.
        covariances.append(structure.from_common(structure.common(scatter)[None], n_kernels))
        order, sizes = np.concatenate(kernels), [len(own) for own in kernels]
        means[r, order] = centres
        weights[r][:, seeded] *= even
        weights[r, order, np.repeat(seeded, sizes)] += (1.0 - even) / np.repeat(sizes, sizes)
    return frame.leave(Parameters(weights, means, np.concatenate(covariances)), structure)


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
    total = np.maximum(mass, 10 * np.finfo(np.float64).eps)
    means = first / total[:, None]
    sums = total[None], means[None], structure.pack(moments)[None]
    covariances, _ = structure.update(sums, regulariser)
    return frame.leave(Parameters((total / total.sum())[None, :, None], means[None], covariances), structure)


@dataclass(frozen=True)
class _Draw:
    """The random draws that seed the kernels of one class."""

    rows: IntArray  # (n,): the rows of the sample
    first: int  # which of them is the first seed
    chances: FloatArray  # (q − 1,): uniform on [0, 1], for the other seeds
    swaps: FloatArray  # (s,): uniform on [0, 1], for what they may be swapped with


def _draw(
    members: IntArray,
    n_kernels: int,
    row_weights: FloatArray | None,
    random_state: np.random.RandomState,
    *,
    swap: bool = False,
) -> _Draw:
    """Draw a sample of the members of a class, each once, and the seeds of its kernels."""
    n_sample = _ROWS_PER_KERNEL * n_kernels
    if swap:
        n_sample = max(n_sample, min(_ROWS_PER_SWAPPED * n_kernels, _MOST_ROWS_TO_SWAP))
    n_sample = min(len(members), n_sample)
    if row_weights is not None:
        chances = row_weights[members] / row_weights[members].sum()
        rows = random_state.choice(members, n_sample, replace=False, p=chances)
    elif len(members) < _MANY_ROWS or n_sample > _SMALL_SHARE * len(members):
        rows = members[random_state.permutation(len(members))[:n_sample]]
    else:
        found: IntArray = np.empty(0, dtype=np.int64)
        while len(found) < n_sample:
            more = random_state.randint(len(members), size=n_sample - len(found))
            found = np.unique(np.append(found, more))
        rows = members[found]
    n_swaps = min(_SWAPS_PER_KERNEL * n_kernels, _MOST_SWAPS) if swap and n_kernels > 1 else 0
    first, chances = random_state.randint(n_sample), random_state.uniform(size=n_kernels - 1)
    return _Draw(rows, first, chances, random_state.uniform(size=n_swaps))


def _rows(X: Array, index: IntArray, frame: Frame) -> Array:
    """Return the chosen rows (n, M) in the frame, on their device."""
    some = pick(X, index)
    if is_numpy(some):
        return frame.rows(some, np.empty((X.shape[1], len(index)))).T
    inside = as_float64(some, X) * as_float64(1.0 / frame.scale, X) - as_float64(frame.shift, X)
    return namespace(X).clip(inside, -FARTHEST, FARTHEST)


def _cluster(sample: Array, draws: Sequence[_Draw]) -> tuple[FloatArray, FloatArray]:
    """Return centres (K, M) by k-means++ and Lloyd iterations within each class, and the sums about them.

    The rows of `sample` (n, M) are those of the draws, class after class; so are the centres. The sums
    (K, M + 1) are those of the rows nearest to each centre, and their numbers.
    """
    xp, found, first = namespace(sample), [], 0
    for draw in draws:
        x = sample[first : first + len(draw.rows)]
        first, centres = first + len(draw.rows), _seeds(x, draw)
        ones = xp.ones_like(x[:, :1])
        values = xp.concat([x, ones], axis=1)
        if centres.shape[0] == 1:
            sums = ones.T @ values
            centres = sums[:, :-1] / sums[:, -1:]
        else:
            pieces = [(x[cut], values[cut]) for cut in _cuts(len(x), sum(centres.shape))]
            for _ in range(_LLOYD_PASSES):
                centres = _means(_sum_clusters(pieces, centres), centres)
            sums = _sum_clusters(pieces, centres)
        found.append((to_numpy(centres), to_numpy(sums)))
    centres, sums = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return centres, sums


def _cuts(n_rows: int, width: int) -> list[slice]:
    """Return pieces of n rows in which k-means holds `width` numbers for each row."""
    size = max(1, _NUMBERS_AT_ONCE // width)
    return [slice(a, min(a + size, n_rows)) for a in range(0, n_rows, size)]


def _sum_clusters(pieces: Iterable[tuple[Array, Array]], centres: Array) -> Array:
    """Return the sums (K, V) of values (n, V) over the rows x (n, M) nearest to each centre (K, M)."""
    xp, n_centres = namespace(centres), centres.shape[0]
    numbers = constant(np.arange, n_centres, example=centres)[:, None]
    halves = 0.5 * xp.vecdot(centres, centres)

    def sums_of(x: Array, values: Array) -> Array:
        nearest = xp.argmax(x @ centres.T - halves, axis=-1)
        return xp.astype(nearest[None] == numbers, xp.float64) @ values

    return reduce(operator.add, starmap(sums_of, pieces))


def _means(sums: Array, centres: Array) -> Array:
    """Return the means (K, M) of clusters from their sums (K, V); without rows a centre stays."""
    xp, n_features = namespace(sums), centres.shape[-1]
    counts = xp.sum(sums[..., n_features:], axis=-1, keepdims=True)
    filled = counts > 0
    return xp.where(filled, sums[..., :n_features] / xp.where(filled, counts, 1.0), centres)


def _scatter(second: FloatArray, sums: FloatArray, centres: FloatArray, frame: Frame) -> FloatArray:
    """Return the mean scatter (M, M) about centres (K, M), with a share of the features' variances.

    `second` (M, M) sums x xᵀ over all rows, `sums` (K, V) values and masses over those of each cluster.
    """
    n_features = len(second)
    counts, crossed = sums[:, n_features:].sum(axis=1), sums[:, :n_features].T @ centres
    scatter = second - crossed - crossed.T + (centres.T * counts) @ centres
    return (1.0 - _SHRINKAGE) / counts.sum() * scatter + _SHRINKAGE * np.diag(frame.variance)


def _seeds(sample: Array, draw: _Draw) -> Array:
    """Return seeds (q, M) by k-means++ among the rows (n, M) of a draw, swapped where it asks for that."""
    if not len(draw.chances):
        return sample[draw.first : draw.first + 1, :]
    seeds = draw_seeds(sample, draw.first, as_float64(draw.chances, sample))
    if not len(draw.swaps):
        return seeds
    return as_float64(_swapped(to_numpy(sample), to_numpy(seeds), draw.swaps), sample)


def draw_seeds(sample: Array, first: int, chances: Array) -> Array:
    """Return seeds (q + 1, M) of k-means++ among rows (n, M): the first, and one for each chance (q,).

    The host reads nothing of a device, so that it need not wait.
    """
    xp, seeds, nearest = namespace(sample), [sample[first : first + 1]], None
    for chance in chances:
        lengths = xp.sum((sample - seeds[-1]) ** 2, axis=1)
        nearest = lengths if nearest is None else xp.minimum(nearest, lengths)
        cumulative = nearest.cumsum(0)
        # With fewer distinct rows than seeds all distances are zero, and the last row is repeated.
        place = xp.searchsorted(cumulative[:-1], chance * cumulative[-1:], side="right")
        seeds.append(pick(sample, place))
    return xp.concat(seeds)


def _swapped(sample: FloatArray, seeds: FloatArray, chances: FloatArray) -> FloatArray:
    """Return seeds (q, M) after a local search of k-means among rows (n, M).

    k-means++ is likely to leave out some of many clusters and to have two seeds in others, which neither
    Lloyd's iterations nor EM mends. So for each chance (s,) another row is drawn with a probability
    proportional to its squared distance from the nearest seed. It replaces the seed with which the sum of
    these distances falls most, if it falls (Lattanzi and Sohler, A better k-means++ algorithm via local
    search, ICML 2019).
    """
    if worth_compiling(len(sample), *seeds.shape):
        from .estep import clusters

        return clusters.swapped(sample, seeds, chances)
    seeds, n_rows = seeds.copy(), len(sample)
    nearest, squared = np.empty((n_rows, 2), dtype=np.int64), np.empty((n_rows, 2))

    def measure(rows: IntArray) -> None:
        """Find the two seeds nearest to some rows."""
        for part in np.array_split(rows, 1 + len(rows) * len(seeds) // _NUMBERS_AT_ONCE):
            x = sample[part]
            far = np.sum(seeds**2, axis=1) - 2.0 * (x @ seeds.T)
            nearest[part] = two = np.argpartition(far, 1, axis=1)[:, :2]
            squared[part] = np.sum((x[:, None] - seeds[two]) ** 2, axis=-1)
        swap = rows[squared[rows, 0] > squared[rows, 1]]
        nearest[swap], squared[swap] = nearest[swap, ::-1], squared[swap, ::-1]

    measure(np.arange(n_rows))
    for chance in chances:
        cumulative = np.cumsum(squared[:, 0])
        new = sample[min(np.searchsorted(cumulative, chance * cumulative[-1], side="right"), n_rows - 1)]
        distance = np.sum((sample - new) ** 2, axis=1)
        with_new = np.minimum(squared[:, 0], distance)
        # Without its seed, a row falls to the second or to the new one.
        more = np.minimum(squared[:, 1], distance) - with_new
        costs = with_new.sum() + np.bincount(nearest[:, 0], more, minlength=len(seeds))
        worst = int(costs.argmin())
        if costs[worst] < cumulative[-1]:
            seeds[worst] = new
            measure(np.flatnonzero((nearest == worst).any(axis=1) | (distance < squared[:, 1])))
    return seeds
