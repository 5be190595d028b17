"""How kernels become populations: the one place that decides it, given parameters and cells.

A population is a hill of the density. The density f of all samples together is first blurred a little, so
that spikes, and the pieces that kernels cut a population into, are no hills of their own. The saddle between
kernels i and j is the lowest density at both means and on the middle part of their ridgeline,

    x(a) = [(1 − a) P_i⁻¹ + a P_j⁻¹]⁻¹ [(1 − a) P_i⁻¹ μ_i + a P_j⁻¹ μ_j],

on which all peaks and saddles of their sum lie (Ray and Lindsay, 2005). The saddle between two sets of
kernels is the highest between a kernel of one and a kernel of the other. Each step merges the two sets with
the highest ratio of saddle to lower peak. The height of a merge is one minus this ratio: 0 without a valley,
and 1 for populations that are far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, logsumexp

from ..engine.records import FloatArray, IntArray

# Height up to which kernels are merged: populations stay apart if the density in the valley is less than half
# that at the lower peak (benchmarks/cells.py; so are the constants below).
HEIGHT = 0.5
# Blur, relative to the median width of the kernels in each marker.
BLUR = 0.5
# Where to look at a ridgeline. Near its ends are the valleys around a narrow kernel, which is a spike at the
# detector's limit more often than a population.
PLACES = np.concatenate([[0.0], expit(np.linspace(-2.0, 2.0, 13)), [1.0]])
# A kernel without a valley to a higher one lies on its flank, and joins the nearest of them.
_FLANK = 0.01
# Populations may be one that shifts between samples if every sample has at most this share of the largest
# proportion of one of the two, and if the valley between them is not very deep.
_LITTLE, _DEEP = 0.2, 0.97
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


def find_populations(
    mixture: Mixture, cells: FloatArray | None = None, n_populations: int | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the population (K,) of each kernel, from the largest, and the tree of merges.

    The tree (K − 1, 4) is SciPy's linkage matrix: the two merged sets, the height, and the number of kernels
    below it. `cells` (n, M) are some of all samples; this rule asks the kernels alone. By default, valleys
    decide the number of populations.
    """
    hills = _Hills(mixture)
    hills.join_flanks()
    hills.join_up_to(HEIGHT)
    hills.join_smallest()
    n_divided = len(hills.active)
    hills.join_up_to(1.0)
    tree = np.array(hills.merges).reshape(-1, 4)
    # Heights increase, so that the tree can be drawn; the merges of the default are those up to its height.
    n_merged = len(mixture.means) - n_divided
    tree[:n_merged, 2] = np.minimum(tree[:n_merged, 2], HEIGHT)
    tree[:, 2] = np.maximum.accumulate(tree[:, 2])
    return by_size(cut(tree, n_populations or n_divided), mixture), tree


def by_size(populations: IntArray, mixture: Mixture) -> IntArray:
    """Return populations (K,) of kernels, numbered from the largest weight to the smallest."""
    populations = np.unique(populations, return_inverse=True)[1]
    members = (populations[:, None] == np.arange(populations.max() + 1)) * mixture.weights[:, None]
    total = members.sum(axis=0)
    means = (members.T @ mixture.means) / np.maximum(total, _TINY)[:, None]
    # Means break ties.
    return np.asarray(np.argsort(np.lexsort((*means.T[::-1], -total)))[populations])


class _Hills:
    """Sets of kernels, each named by its kernel with the highest peak, while they are merged."""

    def __init__(self, mixture: Mixture) -> None:
        covariances = _blurred(mixture)
        n_kernels = len(mixture.means)
        self.peaks = log_density(mixture.means, mixture.weights, mixture.means, covariances)
        self.saddles = _saddles(mixture, covariances)  # (K, K)
        self.distances = _distances(mixture.means, covariances)  # (K, K)
        self.in_samples = mixture.in_samples.copy()
        self.active = list(range(n_kernels))
        self.nodes, self.sizes = np.arange(n_kernels), np.ones(n_kernels)
        self.merges: list[tuple[float, float, float, float]] = []

    def heights(self) -> FloatArray:
        """Return the height (G, G) of each possible merge; 2 on the diagonal."""
        peaks = self.peaks[self.active]
        lower = np.minimum(peaks[:, None], peaks)
        heights = 0.0 - np.expm1(np.minimum(self.saddles[np.ix_(self.active, self.active)] - lower, 0.0))
        np.fill_diagonal(heights, 2.0)
        return np.asarray(heights)

    def join(self, one: int, other: int, height: float) -> None:
        """Merge two sets."""
        # The first of equal peaks counts as the higher.
        if (-self.peaks[other], other) < (-self.peaks[one], one):
            one, other = other, one
        self.sizes[one] += self.sizes[other]
        first, second = sorted((self.nodes[one], self.nodes[other]))
        self.merges.append((first, second, height, self.sizes[one]))
        self.nodes[one] = len(self.nodes) + len(self.merges) - 1
        self.in_samples[one] += self.in_samples[other]
        self.saddles[one] = self.saddles[:, one] = np.maximum(self.saddles[one], self.saddles[other])
        self.distances[one] = self.distances[:, one] = np.minimum(self.distances[one], self.distances[other])
        self.active.remove(other)

    def join_flanks(self) -> None:
        """Merge each kernel on the flank of higher ones with the nearest of them."""
        heights, distances = self.heights(), self.distances.copy()
        order = np.lexsort((-np.arange(len(self.peaks)), self.peaks))
        nearest = {}
        for place, kernel in enumerate(order):
            higher = order[place + 1 :]
            higher = higher[heights[kernel, higher] <= _FLANK]
            if len(higher):
                nearest[kernel] = higher[np.argmin(distances[kernel, higher])]
        # From the highest kernel down, so that the set of the nearest kernel is known.
        top = np.arange(len(order))
        for kernel in order[::-1]:
            if kernel in nearest:
                top[kernel] = top[nearest[kernel]]
                self.join(top[kernel], kernel, heights[kernel, nearest[kernel]])

    def join_up_to(self, highest: float) -> None:
        """Merge the two with the lowest height, until none is left up to the highest."""
        while len(self.active) > 1:
            heights = self.heights()
            one, other = np.unravel_index(np.argmin(heights), heights.shape)
            if heights[one, other] > highest:
                return
            self.join(self.active[one], self.active[other], heights[one, other])

    def join_smallest(self) -> None:
        """Merge sets that are too small in every sample with the nearest."""
        while len(self.active) > 1:
            most = self.in_samples[self.active].max(axis=1)
            smallest = self.active[int(np.argmin(most))]
            if most.min() >= _LEAST:
                return
            others = [kernel for kernel in self.active if kernel != smallest]
            nearest = others[int(np.argmin(self.distances[smallest, others]))]
            self.join(smallest, nearest, 0.0)


# ---------------------------------------------------------------- the density between kernels


def _blurred(mixture: Mixture) -> FloatArray:
    """Return the covariances (K, M, M) after the blur."""
    widths = np.sqrt(np.diagonal(mixture.covariances, axis1=1, axis2=2))
    medians = np.quantile(widths, 0.5, axis=0, weights=mixture.weights, method="inverted_cdf")
    return np.asarray(mixture.covariances + np.diag((BLUR * medians) ** 2))


def log_density(
    points: FloatArray, weights: FloatArray, means: FloatArray, covariances: FloatArray
) -> FloatArray:
    """Return the log-density (n,) of a Gaussian mixture at points (n, M), up to a constant."""
    with np.errstate(divide="ignore"):
        logs = np.tile(np.log(weights), (len(points), 1))
    for k, factor in enumerate(np.linalg.cholesky(covariances)):
        white = solve_triangular(factor, (points - means[k]).T, lower=True)
        logs[:, k] -= 0.5 * (white**2).sum(axis=0) + np.log(np.diag(factor)).sum()
    return np.asarray(logsumexp(logs, axis=1))


def _saddles(mixture: Mixture, covariances: FloatArray) -> FloatArray:
    """Return the lowest log-density (K, K) on each ridgeline."""
    weights, means = mixture.weights, mixture.means
    one, other = np.triu_indices(len(means), 1)
    precisions = np.linalg.inv(covariances)
    scaled = (precisions @ means[:, :, None])[:, :, 0]
    lowest = np.full(len(one), np.inf)
    for a in PLACES:
        both = (1.0 - a) * precisions[one] + a * precisions[other]
        line = np.linalg.solve(both, ((1.0 - a) * scaled[one] + a * scaled[other])[:, :, None])[:, :, 0]
        lowest = np.minimum(lowest, log_density(line, weights, means, covariances))
    saddles = np.full((len(means), len(means)), -np.inf)
    saddles[one, other] = saddles[other, one] = lowest
    return saddles


def _distances(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the Bhattacharyya distances (K, K) of the kernels."""
    one, other = np.triu_indices(len(means), 1)
    middle, apart = 0.5 * (covariances[one] + covariances[other]), means[one] - means[other]
    logs = np.linalg.slogdet(covariances)[1]
    far = (apart * np.linalg.solve(middle, apart[:, :, None])[:, :, 0]).sum(axis=1) / 8.0
    far += 0.5 * np.linalg.slogdet(middle)[1] - 0.25 * (logs[one] + logs[other])
    distances = np.zeros((len(means), len(means)))
    distances[one, other] = distances[other, one] = far
    return distances


# ---------------------------------------------------------------- trees


def cut(tree: FloatArray, n_populations: int) -> IntArray:
    """Return the population (K,) of each kernel, after as many merges as leave `n_populations`."""
    n_kernels = len(tree) + 1
    members = {kernel: [kernel] for kernel in range(n_kernels)}
    for step, (one, other) in enumerate(tree[: n_kernels - n_populations, :2].astype(int).tolist()):
        members[n_kernels + step] = members.pop(one) + members.pop(other)
    populations = np.empty(n_kernels, dtype=np.int64)
    for number, kernels in enumerate(members.values()):
        populations[kernels] = number
    return populations


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


def find_alternatives(
    mixture: Mixture, populations: IntArray, proportions: FloatArray, upper: FloatArray
) -> list[tuple[list[int], float]]:
    """Return sets of populations that may be one which shifts between samples.

    No sample has much of two of a set: in each, one of the two is at most a small share of its largest
    proportion. Sets come with the largest of these shares. `populations` (K,) are those of the kernels, and
    `proportions` (L, G) are those in samples, with their upper limits.
    """
    shares = upper / np.maximum(proportions.max(axis=0), _TINY)
    both = np.array([np.minimum(share[:, None], shares).max(axis=0) for share in shares.T])  # (G, G)
    candidates = np.argwhere(np.triu(both <= _LITTLE, 1)).tolist()
    if not candidates:
        return []
    covariances = _blurred(mixture)
    saddles = _saddles(mixture, covariances)
    peaks = log_density(mixture.means, mixture.weights, mixture.means, covariances)
    members = [populations == number for number in range(proportions.shape[1])]
    heights = np.ones_like(both)
    for one, other in candidates:
        lower_peak = min(peaks[members[one]].max(), peaks[members[other]].max())
        saddle = saddles[np.ix_(members[one], members[other])].max()
        heights[one, other] = heights[other, one] = 1.0 - np.exp(saddle - lower_peak)
    sets = {number: [number] for number in range(len(members))}
    # The shallowest valley first; each two of a set are alternatives.
    for one, other in sorted(candidates, key=lambda pair: float(heights[*pair])):
        ours, theirs = sets[one], sets[other]
        if ours is not theirs and heights[np.ix_(ours, theirs)].max() <= _DEEP:
            ours += theirs
            sets |= dict.fromkeys(theirs, ours)
    joinable = {id(numbers): sorted(numbers) for numbers in sets.values() if len(numbers) > 1}.values()
    return [(numbers, float(np.triu(both[np.ix_(numbers, numbers)], 1).max())) for numbers in joinable]
