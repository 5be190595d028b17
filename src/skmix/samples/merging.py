"""How kernels become populations: the one place that decides it, given the parameters of a mixture.

Two kernels are as far apart as their means are in the marker in which they differ most. Two sets of kernels
are as far apart as the root mean square over pairs of their kernels, weighted by cells. Each step merges the
two sets that are nearest. Distances are in the units of the markers, but a marker whose spread is quite
another than that of most markers counts as if it had the median spread.

How clearly a merge divides the cells below it is a product of three numbers:

- its distance, as a share of the largest distance of two sets that have at least 0.2 % of the cells each;
- the square root of the separation of the two sets: the distance of their means, divided by the sum of their
  standard deviations, in the marker where this is largest;
- the share of the cells that the smaller set has, to the power of 0.03.

If the product is c, the height of the merge is c / (c + 0.4), or that of a merge below it, if this is higher.
Merges above 0.5 divide populations, and so do those whose separation is above 2.5. A set of kernels is never
divided if one Gaussian describes its cells as well as the kernels do, by Akaike's criterion.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from ..engine.records import BoolArray, FloatArray, IntArray

# Height up to which kernels are merged. It is that of a merge as clear as _CLEAR (benchmarks/cells.py; so are
# the other constants). The separation and the share count by these powers.
HEIGHT, _CLEAR = 0.5, 0.4
_SEPARATION, _SHARE = 0.5, 0.03
# Separation from which two sets are divided however near they are beside the others, and their least height.
_SEPARATE, _DIVIDED = 2.5, 0.501
# Least share of the cells in each of two sets whose distance is the unit of the others: a few cells far off
# do not matter.
_TOP = 0.002
# A marker is in quite other units than most if its spread differs by this factor from the median spread.
_OTHER_UNITS = 20.0
# Points drawn from each kernel, to compare their density with that of one Gaussian.
_DRAWN = 40
# Share of the cells that a population needs in at least one sample; smaller ones join the nearest.
_LEAST = 5e-4
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Mixture:
    """K kernels in M markers, with their weights in L samples."""

    weights: FloatArray  # (K,): in all samples together
    in_samples: FloatArray  # (K, L)
    means: FloatArray  # (K, M)
    covariances: FloatArray  # (K, M, M)
    n_cells: float = np.inf  # to which it was fitted


@dataclass(frozen=True)
class _Sets:
    """The 2 K - 1 sets of kernels in a tree: single kernels, then the two sets of each merge together."""

    weights: FloatArray  # (2 K - 1,)
    means: FloatArray  # (2 K - 1, M)
    covariances: FloatArray  # (2 K - 1, M, M)

    @classmethod
    def of(cls, mixture: Mixture, merges: IntArray) -> _Sets:
        """Return the sets of a tree, given the two sets (K - 1, 2) of each merge."""
        weights, means, covariances = map(list, (mixture.weights + _TINY, mixture.means, mixture.covariances))
        for one, other in merges.tolist():
            total, apart = weights[one] + weights[other], means[one] - means[other]
            shares = weights[one] / total, weights[other] / total
            weights.append(total)
            means.append(shares[0] * means[one] + shares[1] * means[other])
            within = shares[0] * covariances[one] + shares[1] * covariances[other]
            covariances.append(within + shares[0] * shares[1] * np.outer(apart, apart))
        return cls(np.array(weights), np.array(means), np.array(covariances))


def units_of(spreads: FloatArray) -> FloatArray:
    """Return the units (M,) of markers of these spreads: one, except for those in other units than most."""
    median = float(np.median(spreads))
    if median <= 0.0:
        return np.where(spreads > 0.0, spreads, 1.0)
    ratios = spreads / median
    is_other = (ratios > _OTHER_UNITS) | ((ratios < 1.0 / _OTHER_UNITS) & (ratios > 0.0))
    return np.where(is_other, ratios, 1.0)


def find_populations(mixture: Mixture, n_populations: int | None = None) -> tuple[IntArray, FloatArray]:
    """Return the population (K,) of each kernel, from the largest, and the tree of merges.

    The tree (K - 1, 4) is SciPy's linkage matrix: the two merged sets, the height, and the number of kernels
    below it. By default, the height of 0.5 decides the number of populations.
    """
    mixture = _in_units(mixture)
    distances = _distances(mixture.means)
    merges, lengths = _linkage(distances, mixture.weights)
    tree = _sorted(merges, _heights(mixture, merges, lengths))
    populations = cut(tree, 1 + int(np.sum(tree[:, 2] > HEIGHT)))
    groups = _too_small(mixture, populations, distances)
    if groups:
        tree = join(tree, populations, groups, HEIGHT)
    n_divided = 1 + int(np.sum(tree[:, 2] > HEIGHT))
    return by_size(cut(tree, n_populations or n_divided), mixture), tree


def by_size(populations: IntArray, mixture: Mixture) -> IntArray:
    """Return populations (K,) of kernels, numbered from the largest weight to the smallest."""
    populations = np.unique(populations, return_inverse=True)[1]
    members = (populations[:, None] == np.arange(populations.max() + 1)) * mixture.weights[:, None]
    total = members.sum(axis=0)
    means = (members.T @ mixture.means) / np.maximum(total, _TINY)[:, None]
    # Means break ties.
    return np.asarray(np.argsort(np.lexsort((*means.T[::-1], -total)))[populations])


def _in_units(mixture: Mixture) -> Mixture:
    """Return a mixture whose markers are divided by their units, about its mean."""
    shares = mixture.weights / mixture.weights.sum()
    means = mixture.means - shares @ mixture.means
    variances = shares @ (np.diagonal(mixture.covariances, axis1=1, axis2=2) + means**2)
    units = units_of(np.sqrt(variances))
    covariances = mixture.covariances / np.outer(units, units)
    return replace(mixture, means=means / units, covariances=covariances)


def _distances(means: FloatArray) -> FloatArray:
    """Return the distances (K, K) of kernels: in the marker where their means differ most."""
    return np.asarray(np.abs(means[:, None, :] - means).max(axis=2))


def _linkage(distances: FloatArray, weights: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the two sets (K - 1, 2) of each merge and their root mean squared distance (K - 1,)."""
    squares, weights = distances**2, weights + _TINY
    np.fill_diagonal(squares, np.inf)
    nodes, merges, lengths = np.arange(len(weights)), [], []
    for step in range(len(weights) - 1):
        one, other = sorted(np.unravel_index(np.argmin(squares), squares.shape))
        merges.append(sorted((nodes[one], nodes[other])))
        lengths.append(squares[one, other])
        both = weights[[one, other]]
        squares[one] = squares[:, one] = both @ squares[[one, other]] / both.sum()
        squares[other] = squares[:, other] = np.inf
        squares[one, one] = np.inf
        weights[one] += weights[other]
        nodes[one] = len(distances) + step
    return np.array(merges, dtype=np.int64).reshape(-1, 2), np.sqrt(lengths)


def _heights(mixture: Mixture, merges: IntArray, lengths: FloatArray) -> FloatArray:
    """Return the height (K - 1,) of each merge, at least that of the merges below it."""
    n_kernels = len(mixture.weights)
    sets = _Sets.of(mixture, merges)
    one, other = merges.T
    deviations = np.sqrt(np.maximum(np.diagonal(sets.covariances, axis1=1, axis2=2), _TINY))
    apart = np.abs(sets.means[one] - sets.means[other]) / (deviations[one] + deviations[other])
    shares = np.minimum(sets.weights[one], sets.weights[other]) / sets.weights[-1]
    unit = lengths[shares >= _TOP].max(initial=0.0) or lengths.max(initial=_TINY)
    separation = apart.max(axis=1, initial=0.0)
    clear = lengths / unit * separation**_SEPARATION * shares**_SHARE
    heights = np.maximum(clear / (clear + _CLEAR), np.where(separation > _SEPARATE, _DIVIDED, 0.0))
    is_one = _is_one_gaussian(mixture, merges, sets)
    for step, below in enumerate(merges):
        under = [heights[node - n_kernels] for node in below if node >= n_kernels]
        heights[step] = max([heights[step], *under])
        if is_one[step]:
            heights[step] = min(heights[step], HEIGHT)
    for step in reversed(range(len(merges))):
        under = [node - n_kernels for node in merges[step] if node >= n_kernels]
        heights[under] = np.minimum(heights[under], heights[step])
    return heights


def _is_one_gaussian(mixture: Mixture, merges: IntArray, sets: _Sets) -> BoolArray:
    """Return whether one Gaussian describes the cells of each merge (K - 1,) as well as its kernels.

    The gain of the kernels is estimated by points drawn from them. It has to exceed what so many parameters
    gain by chance, by Akaike's criterion.
    """
    n_kernels, n_markers = mixture.means.shape
    noise = np.random.default_rng(0).normal(size=(n_kernels, _DRAWN, n_markers))
    points = mixture.means[:, None, :] + noise @ np.linalg.cholesky(mixture.covariances).swapaxes(1, 2)
    logs = _log_densities(points.reshape(-1, n_markers), mixture).reshape(n_kernels, _DRAWN, n_kernels)
    # The log-density at the points of each kernel, of the set that it is in.
    single = np.array([logs[kernel, :, kernel] for kernel in range(n_kernels)])
    densities, entropies = single.copy(), 0.5 * np.linalg.slogdet(2.0 * np.pi * np.e * sets.covariances)[1]
    means = np.log(mixture.weights + _TINY) - entropies[:n_kernels]  # of the log-densities of kernels
    members = [[kernel] for kernel in range(n_kernels)]
    gains, extra = np.empty(len(merges)), np.empty(len(merges))
    for step, (one, other) in enumerate(merges.tolist()):
        node = n_kernels + step
        for ours, theirs in itertools.permutations([members[one], members[other]]):
            densities[ours] = np.logaddexp(densities[ours], logsumexp(logs[ours][:, :, theirs], axis=2))
        members.append(members[one] + members[other])
        inside, weight = members[node], sets.weights[node]
        more = (densities[inside] - single[inside]).mean(axis=1)
        of_kernels = mixture.weights[inside] @ (means[inside] + more) / weight - np.log(weight)
        gains[step] = mixture.n_cells * weight * (of_kernels + entropies[node])
        # A kernel has a weight, a mean and widths; the Gaussian a mean and a covariance.
        extra[step] = len(inside) * (2 * n_markers + 1) - 1 - n_markers * (n_markers + 3) / 2
    return gains <= extra


def _log_densities(points: FloatArray, mixture: Mixture) -> FloatArray:
    """Return the log-densities (n, K) of weighted kernels at points (n, M)."""
    logs = np.tile(np.log(mixture.weights + _TINY), (len(points), 1))
    for k, factor in enumerate(np.linalg.cholesky(2.0 * np.pi * mixture.covariances)):
        white = solve_triangular(factor, (points - mixture.means[k]).T, lower=True)
        logs[:, k] -= np.pi * (white**2).sum(axis=0) + np.log(np.diag(factor)).sum()
    return logs


def _too_small(mixture: Mixture, populations: IntArray, distances: FloatArray) -> list[list[int]]:
    """Return groups of numbers of populations to join: those too small in every sample, after the nearest."""
    members = (populations[:, None] == np.arange(populations.max() + 1)).astype(np.float64)
    is_small = (members.T @ mixture.in_samples).max(axis=1) < _LEAST
    if not is_small.any() or is_small.all():
        return []
    shares = members * (mixture.weights[:, None] + _TINY)
    shares /= shares.sum(axis=0)
    between = np.where(is_small, np.inf, shares.T @ distances @ shares)
    groups: dict[int, list[int]] = {}
    for small in np.flatnonzero(is_small).tolist():
        nearest = int(np.argmin(between[small]))
        groups.setdefault(nearest, [nearest]).append(small)
    return list(groups.values())


# ---------------------------------------------------------------- trees


def _sorted(merges: IntArray, heights: FloatArray) -> FloatArray:
    """Return the linkage matrix (K - 1, 4) of merges (K - 1, 2), in the order of their heights."""
    n_kernels, order = len(merges) + 1, np.argsort(heights, kind="stable")
    places = np.arange(2 * n_kernels - 1)
    places[n_kernels + order] = n_kernels + np.arange(len(merges))
    sizes, tree = np.ones(2 * n_kernels - 1), np.empty((len(merges), 4))
    for step, place in enumerate(order):
        pair = np.sort(places[merges[place]])
        sizes[n_kernels + step] = sizes[pair].sum()
        tree[step] = [*pair, heights[place], sizes[n_kernels + step]]
    return tree


def cut(tree: FloatArray, n_populations: int) -> IntArray:
    """Return the population (K,) of each kernel, after as many merges as leave `n_populations`."""
    n_merged, populations = len(tree) + 1 - n_populations, np.arange(len(tree) + 1)
    for kernels in sets_below(tree[:n_merged], len(tree) + 1)[len(tree) + 1 :]:
        populations[kernels] = kernels.min()
    return np.asarray(np.unique(populations, return_inverse=True)[1])


def sets_below(tree: FloatArray, n_kernels: int | None = None) -> list[IntArray]:
    """Return the kernels below each node: single kernels, then the merges of a tree, or of its beginning."""
    below = list(np.arange(n_kernels or len(tree) + 1)[:, None])
    for one, other in tree[:, :2].astype(int).tolist():
        below.append(np.concatenate([below[one], below[other]]))
    return below


def join(
    tree: FloatArray, populations: IntArray, groups: Sequence[Sequence[int]], height: float
) -> FloatArray:
    """Return a tree whose cut joins groups of `populations` (K,), which are those of a cut of the tree.

    Their merges have the given height and follow those of the populations; the other merges of the tree come
    last, in their order.
    """
    n_kernels, n_populations = len(populations), int(populations.max()) + 1
    first = {number: kernel for kernel, number in enumerate(populations.tolist())}
    members = [*range(n_kernels)]  # a kernel of each node
    links: list[tuple[int, int, float]] = []
    for one, other, step_height in tree[:, :3].tolist():
        links.append((members[int(one)], members[int(other)], step_height))
        members.append(members[int(one)])
    added = [(first[group[0]], first[number], height) for group in groups for number in group[1:]]
    n_kept = n_kernels - n_populations
    nodes, sizes = np.arange(n_kernels), np.ones(2 * n_kernels - 1)
    merges: list[tuple[float, float, float, float]] = []
    for one, other, step_height in [*links[:n_kept], *added, *links[n_kept:]]:
        low, high = sorted((nodes[one], nodes[other]))
        if low != high:  # not joined before
            node = n_kernels + len(merges)
            sizes[node] = sizes[low] + sizes[high]
            merges.append((low, high, step_height, sizes[node]))
            nodes[(nodes == low) | (nodes == high)] = node
    return np.array(merges)
