"""The starts: the paper's, random rows, k-means over all rows, and k-means within classes.

All but the paper's draw a new random sample of many rows for each start, so that their cost does not grow
with the data. They are in the frame of the `Drawing`, in which distances count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..numbers import Array, as_float64, namespace, pick, take, to_numpy
from ..records import FloatArray, Frame, IntArray, Parameters, Regulariser
from ..structures import Structure, structure_of
from ..threads import workers
from .exchange import Exchange, rows_needed
from .samples import draw_rows, in_frame, spread
from .seeds import lloyd, seeds_of

# Rows sampled for each kernel that is seeded inside a class.
_ROWS_PER_KERNEL = 25
# Lloyd's iterations from these seeds.
_LLOYD_PASSES = 3
# Rows per kernel among which k-means seeds; fewer where they are more than that many; and the fewest.
_ROWS_PER_SEED, _MANY_SEEDED, _FEWEST_PER_SEED, _FEWEST_SEEDED = 100, 1 << 14, 16, 1 << 13
# Times that clusters are exchanged, with Lloyd's iterations in between.
_EXCHANGED = 4
# Rows per kernel that suffice for Lloyd's iterations, and the fewest in all: a start then costs a few passes.
_ROWS_PER_CLUSTER, _FEWEST_ROWS = 500, 1 << 14
# Share of the features' variances mixed into a start's covariance, for conditioning with few rows.
_SHRINKAGE = 0.05
# Share of a class's starting weight that all kernels get evenly: a weight of zero would stay zero.
_EVEN_WEIGHT = 0.01
# Rows whose responsibilities are asked for at a time.
_ROWS_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Drawing:
    """Settings for drawing starting points."""

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
    """Draw the paper's starts: means uniform on [0, 1] in each coordinate, covariances 0.3·I."""
    means = random_state.uniform(size=(n_starts, n_kernels, n_features))
    common = np.stack([structure.common(np.full(n_features, 0.3))] * n_starts)
    covariances = structure.from_common(common, n_kernels)
    return Parameters(uniform_weights(n_starts, n_kernels, n_classes), means, covariances)


def uniform_weights(n_starts: int, n_kernels: int, n_classes: int) -> FloatArray:
    """Return equal weights (R, K, L)."""
    return np.full((n_starts, n_kernels, n_classes), 1.0 / n_kernels)


def random_from_data(X: np.ndarray, drawing: Drawing, row_weights: FloatArray | None = None) -> Parameters:
    """Draw starts whose means are random rows, with the features' variances over K^(2/M)."""
    n_rows, n_kernels, frame = X.shape[0], drawing.n_kernels, drawing.frame
    chances = None if row_weights is None else row_weights / row_weights.sum()
    repeated = n_kernels > n_rows
    chosen = [
        drawing.random_state.choice(n_rows, n_kernels, replace=repeated, p=chances)
        for _ in range(drawing.n_starts)
    ]
    means = np.stack([to_numpy(in_frame(X, index, frame)) for index in chosen])
    covariance = drawing.structure.common(frame.variance / n_kernels ** (2.0 / len(frame.scale)))
    covariances = drawing.structure.from_common(np.stack([covariance] * drawing.n_starts), n_kernels)
    weights = uniform_weights(drawing.n_starts, n_kernels, drawing.n_classes)
    return Parameters(weights, means, covariances)


# ---------------------------------------------------------------- k-means over all rows


def k_means(
    X: Array, classes: IntArray, drawing: Drawing, row_weights: FloatArray | None = None
) -> Parameters:
    """Draw R starts by k-means over the rows X (N, M) of all classes together, or a sample of them.

    Rows stay on their device. Each kernel has the mean and the covariance of a cluster, with a few rows'
    worth of the pooled scatter within clusters. The weights of a class are the shares of its rows in the
    clusters, by their classes (N,), −1 for none; some is spread over all kernels. A row with weight (N,) two
    counts as two.
    """
    n_kernels, n_classes, random_state = drawing.n_kernels, drawing.n_classes, drawing.random_state
    n_rows, starts = max(_ROWS_PER_CLUSTER * n_kernels, _FEWEST_ROWS), []
    with workers(drawing.n_jobs) as pool:
        for _ in range(drawing.n_starts):
            sample, masses = np.arange(len(classes)), row_weights
            if n_rows < len(classes):
                sample, masses = draw_rows(len(classes), n_rows, random_state, row_weights), None
            x, codes = in_frame(X, sample, drawing.frame), classes[sample]
            centres, nearest = lloyd(x, masses, _centres(x, masses, drawing, pool), pool)
            covariances = _covariances(x, masses, centres, nearest, drawing)
            known = np.flatnonzero(codes >= 0)
            place = to_numpy(nearest)[known] * n_classes + codes[known]
            known_masses = None if masses is None else masses[known]
            mass = np.bincount(place, known_masses, n_kernels * n_classes).reshape(n_kernels, n_classes)
            # A class may have no row in a sample.
            shares = mass + np.finfo(np.float64).tiny
            weights = (1.0 - _EVEN_WEIGHT) * (shares / shares.sum(axis=0)) + _EVEN_WEIGHT / n_kernels
            starts.append((weights[None], to_numpy(centres)[None], covariances))
    weights, means, covariances = (np.concatenate(parts) for parts in zip(*starts, strict=True))
    return Parameters(weights, means, covariances)


def _centres(x: Array, masses: FloatArray | None, drawing: Drawing, pool: Any) -> Array:
    """Return centres (K, M) of rows x (n, M) by seeds, Lloyd's iterations and exchanges on a sample."""
    n_kernels, random_state = drawing.n_kernels, drawing.random_state
    n_sample = min(_ROWS_PER_SEED * n_kernels, max(_MANY_SEEDED, _FEWEST_PER_SEED * n_kernels))
    n_sample = max(n_sample, min(x.shape[0], _FEWEST_SEEDED))
    if masses is not None or n_sample < x.shape[0]:
        x = pick(x, draw_rows(x.shape[0], n_sample, random_state, masses))
    centres, nearest = lloyd(x, None, seeds_of(x, n_kernels, random_state), pool)
    if n_kernels < 3:
        return centres
    some = spread(x.shape[0], rows_needed(n_kernels, x.shape[1], structure_of("diag")))
    tied, model = structure_of("tied"), Parameters(np.ones((n_kernels, 1)), to_numpy(centres), np.zeros(0))
    for _ in range(_EXCHANGED):
        clusters = np.arange(n_kernels)[:, None] == to_numpy(nearest)[some]
        outcome = Exchange(pick(x, some), clusters.astype(np.float64), tied, pooled=True).run(model)
        if not outcome.n_exchanges:
            break
        centres, nearest = lloyd(x, None, as_float64(outcome.parameters.means, x), pool)
        model = replace(model, means=to_numpy(centres))
    return centres


def _covariances(
    x: Array, masses: FloatArray | None, centres: Array, nearest: Array, drawing: Drawing
) -> FloatArray:
    """Return covariances (1, K, …) of clusters of rows x (n, M), given their means and each row's cluster.

    A structure whose kernels share a covariance has the pooled scatter.
    """
    n_kernels, structure, xp = drawing.n_kernels, drawing.structure, namespace(x)
    order = xp.argsort(nearest, stable=True)
    bounds = np.searchsorted(to_numpy(pick(nearest, order)), np.arange(n_kernels + 1))
    about = take(x, order, axis=0) - take(centres, take(nearest, order, axis=0), axis=0)
    weighted = about if masses is None else about * pick(as_float64(masses, x), order)[:, None]
    total = float(len(nearest) if masses is None else masses.sum())
    common = _pooled(about, weighted, total, drawing)
    if structure.shared:
        return structure.from_common(common[None], n_kernels)
    cuts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    seconds = to_numpy(xp.stack([structure.second_moment(about[cut], weighted[cut]) for cut in cuts]))
    # A few rows of average weight.
    mass, rows = np.bincount(to_numpy(nearest), masses, n_kernels), (x.shape[1] + 2.0) * total / len(x)
    scatters = (seconds.T + rows * common.T[..., None]) / (mass + rows)
    return np.swapaxes(structure.from_common(scatters.T, 1), 0, 1)


def _pooled(about: Array, weighted: Array, total: float, drawing: Drawing) -> FloatArray:
    """Return the mean scatter of rows about centres (n, M), with a share of the features' variances."""
    scatter = (1.0 - _SHRINKAGE) / total * to_numpy(weighted.T @ about)
    return drawing.structure.common(scatter + _SHRINKAGE * np.diag(drawing.frame.variance))


# ---------------------------------------------------------------- k-means within classes


def class_wise(
    X: np.ndarray,
    classes: IntArray,
    drawing: Drawing,
    row_weights: FloatArray | None = None,
    own_kernels: IntArray | None = None,
) -> Parameters:
    """Draw R starts by k-means within each class (N,), with kernels assigned to classes in turn.

    Covariances are the pooled scatter about the means. Nearly all of a class's weight is on its own kernels;
    the rest is spread over all kernels. With fewer kernels than classes, each start seeds a random subset of
    classes and gives the others uniform weights. Row weights (N,) are proportional to sampling probabilities.

    With `own_kernels` (L,), each class has that many of the K kernels to itself, one class after the other.
    No weight is spread, so that they remain its own.
    """
    n_classes, n_starts, n_kernels = drawing.n_classes, drawing.n_starts, drawing.n_kernels
    structure, random_state = drawing.structure, drawing.random_state
    by_class, bounds = np.arange(len(classes)), np.array([0, len(classes)])
    if n_classes > 1:
        by_class = np.argsort(classes, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(classes, minlength=n_classes))])
    means, covariances = np.empty((n_starts, n_kernels, X.shape[1])), []
    weights = uniform_weights(n_starts, n_kernels, n_classes)
    for r in range(n_starts):
        seeded = random_state.permutation(n_classes)[:n_kernels]
        # The class at place p owns kernels p, p + L, …
        kernels, even = [np.arange(p, n_kernels, n_classes) for p in range(len(seeded))], _EVEN_WEIGHT
        if own_kernels is not None:
            seeded, even = np.arange(n_classes), 0.0
            kernels = np.split(np.arange(n_kernels), np.cumsum(own_kernels)[:-1])
        weights[r][:, seeded] *= even
        samples = []
        for c, of_class in zip(seeded, kernels, strict=True):
            members = by_class[bounds[c] : bounds[c + 1]]
            n_sample = min(len(members), _ROWS_PER_KERNEL * len(of_class))
            if row_weights is None:
                members = members[draw_rows(len(members), n_sample, random_state)]
            else:
                chances = row_weights[members] / row_weights[members].sum()
                members = random_state.choice(members, n_sample, replace=False, p=chances)
            x = in_frame(X, members, drawing.frame)
            passes = _LLOYD_PASSES if len(of_class) > 1 else 1  # one centre is the mean
            with workers(1) as pool:
                seeds = seeds_of(x, len(of_class), random_state)
                centres, nearest = lloyd(x, None, seeds, pool, most=passes, least_move=0.0)
            samples.append(x - take(centres, nearest, axis=0))
            means[r, of_class] = to_numpy(centres)
            weights[r, of_class, c] += (1.0 - even) / len(of_class)
        about = namespace(X).concat(samples)
        # One at a time: with many features, those of all starts may not fit in memory.
        common = _pooled(about, about, float(len(about)), drawing)
        covariances.append(structure.from_common(common[None], n_kernels))
    return Parameters(weights, means, np.concatenate(covariances))


# ---------------------------------------------------------------- from responsibilities


def from_responsibilities(
    X: np.ndarray,
    responsibilities: Callable[[int, int], FloatArray],
    frame: Frame,
    structure: Structure,
    regulariser: Regulariser,
) -> Parameters:
    """Return the start of one class that an M-step makes of responsibilities.

    `responsibilities(start, stop)` returns the ones of rows start … stop − 1, shape (K, n); it is called once
    for each chunk, in order. The start is in the frame.
    """
    parts = []
    # Moments about the overall mean cost narrow kernels some digits, which does not matter for a start.
    for a in range(0, len(X), _ROWS_AT_ONCE):
        b = min(a + _ROWS_AT_ONCE, len(X))
        shares, x = responsibilities(a, b), to_numpy(in_frame(X, np.arange(a, b), frame))
        second = []
        for weights in shares:
            rows = np.flatnonzero(weights)  # few, if the responsibilities come from k-means
            second.append(structure.second_moment(x[rows], x[rows] * weights[rows, None]))
        parts.append((shares.sum(axis=1), shares @ x, np.array(second)))
    mass, first, moments = (sum(sums) for sums in zip(*parts, strict=True))
    # Scikit-learn adds this to all masses, beside which small row weights would be lost.
    total = np.where(mass > 0, mass, 10 * np.finfo(np.float64).eps)
    means = first / total[:, None]
    sums = total[None], means[None], structure.pack(moments)[None]
    covariances, _ = structure.update(sums, regulariser)
    return Parameters((total / total.sum())[None, :, None], means[None], covariances)
