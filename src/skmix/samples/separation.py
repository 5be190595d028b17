"""Merge kernels into populations: build the tree of merges. Valleys of the density divide populations.

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

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, logsumexp

from ..engine.records import FloatArray, IntArray

# Height up to which kernels are merged: populations stay apart if the density in the valley is less than half
# that at the lower peak (benchmarks/cells.py; so are the constants below).
HEIGHT = 0.5
# Blur, relative to the median width of the kernels in each marker.
_BLUR = 0.5
# Where to look at a ridgeline. Near its ends are the valleys around a narrow kernel, which is a spike at the
# detector's limit more often than a population.
_PLACES = np.concatenate([[0.0], expit(np.linspace(-2.0, 2.0, 13)), [1.0]])
# A kernel without a valley to a higher one lies on its flank, and joins the nearest of them.
_FLANK = 0.01
# Populations may be one that shifts between samples if every sample has at most this share of the largest
# proportion of one of the two, and if the valley between them is not very deep.
_LITTLE, _DEEP = 0.2, 0.97
# Share of the cells that a population needs in at least one sample; smaller ones join the nearest.
_LEAST = 5e-4


def separate(
    weights: FloatArray, means: FloatArray, covariances: FloatArray, in_samples: FloatArray
) -> tuple[FloatArray, int]:
    """Return the tree of merges of K kernels, and the number of populations that valleys divide.

    Weights (K,) are those in all samples together, and `in_samples` (K, L) those in each of L samples; the
    means are (K, M), the covariances (K, M, M). The tree (K − 1, 4) is SciPy's linkage matrix: the two merged
    sets, the height, and the number of kernels below it.
    """
    hills = _Hills(weights, means, _blurred(weights, covariances), in_samples)
    hills.join_flanks()
    hills.join_up_to(HEIGHT)
    hills.join_smallest()
    n_populations = len(hills.active)
    hills.join_up_to(1.0)
    tree = np.array(hills.merges).reshape(-1, 4)
    # Heights increase, so that the tree can be drawn; the merges of the default are those up to its height.
    n_merged = len(means) - n_populations
    tree[:n_merged, 2] = np.minimum(tree[:n_merged, 2], HEIGHT)
    tree[:, 2] = np.maximum.accumulate(tree[:, 2])
    return tree, n_populations


class _Hills:
    """Sets of kernels, each with the number of its kernel with the highest peak, while they are merged."""

    def __init__(
        self, weights: FloatArray, means: FloatArray, covariances: FloatArray, in_samples: FloatArray
    ) -> None:
        self.peaks = _log_density(means, weights, means, covariances)
        self.saddles = _saddles(weights, means, covariances)  # (K, K)
        self.distances = _distances(means, covariances)  # (K, K)
        self.in_samples = in_samples.copy()
        n_kernels = len(means)
        self.active = list(range(n_kernels))
        self.nodes, self.sizes = np.arange(n_kernels), np.ones(n_kernels)
        self.merges: list[tuple[float, float, float, float]] = []

    def heights(self) -> FloatArray:
        """Return the height (G, G) of each possible merge; 2 on the diagonal."""
        peaks = self.peaks[self.active]
        lower = np.minimum(peaks[:, None], peaks)
        found = 0.0 - np.expm1(np.minimum(self.saddles[np.ix_(self.active, self.active)] - lower, 0.0))
        np.fill_diagonal(found, 2.0)
        return np.asarray(found)

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
        for matrix, choose in ((self.saddles, np.maximum), (self.distances, np.minimum)):
            matrix[one] = matrix[:, one] = choose(matrix[one], matrix[other])
        self.active.remove(other)

    def join_flanks(self) -> None:
        """Merge each kernel on the flank of higher ones with the nearest of them."""
        heights, order = self.heights(), np.lexsort((-np.arange(len(self.peaks)), self.peaks))
        distances, top = self.distances.copy(), np.arange(len(order))
        nearest = {}
        for place, kernel in enumerate(order):
            higher = order[place + 1 :]
            higher = higher[heights[kernel, higher] <= _FLANK]
            if len(higher):
                nearest[kernel] = higher[np.argmin(distances[kernel, higher])]
        # From the highest kernel down, so that the set of the nearest kernel is known.
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
            others = [each for each in self.active if each != smallest]
            nearest = others[int(np.argmin(self.distances[smallest, others]))]
            self.join(smallest, nearest, 0.0)


def _blurred(weights: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the covariances (K, M, M) after the blur."""
    widths = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    medians = np.quantile(widths, 0.5, axis=0, weights=weights, method="inverted_cdf")
    return np.asarray(covariances + np.diag((_BLUR * medians) ** 2))


def _log_density(
    points: FloatArray, weights: FloatArray, means: FloatArray, covariances: FloatArray
) -> FloatArray:
    """Return the log-density (n,) of a Gaussian mixture at points (n, M), up to a constant."""
    with np.errstate(divide="ignore"):
        logs = np.tile(np.log(weights), (len(points), 1))
    for k, factor in enumerate(np.linalg.cholesky(covariances)):
        white = solve_triangular(factor, (points - means[k]).T, lower=True)
        logs[:, k] -= 0.5 * (white**2).sum(axis=0) + np.log(np.diag(factor)).sum()
    return np.asarray(logsumexp(logs, axis=1))


def _saddles(weights: FloatArray, means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the lowest log-density (K, K) on each ridgeline."""
    one, other = np.triu_indices(len(means), 1)
    precisions = np.linalg.inv(covariances)
    scaled = (precisions @ means[:, :, None])[:, :, 0]
    lowest = np.full(len(one), np.inf)
    for a in _PLACES:
        both = (1.0 - a) * precisions[one] + a * precisions[other]
        line = np.linalg.solve(both, ((1.0 - a) * scaled[one] + a * scaled[other])[:, :, None])[:, :, 0]
        lowest = np.minimum(lowest, _log_density(line, weights, means, covariances))
    found = np.full((len(means), len(means)), -np.inf)
    found[one, other] = found[other, one] = lowest
    return found


def _distances(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the Bhattacharyya distances (K, K) of the kernels."""
    one, other = np.triu_indices(len(means), 1)
    middle, apart = 0.5 * (covariances[one] + covariances[other]), means[one] - means[other]
    logs = np.linalg.slogdet(covariances)[1]
    far = (apart * np.linalg.solve(middle, apart[:, :, None])[:, :, 0]).sum(axis=1) / 8.0
    far += 0.5 * np.linalg.slogdet(middle)[1] - 0.25 * (logs[one] + logs[other])
    found = np.zeros((len(means), len(means)))
    found[one, other] = found[other, one] = far
    return found


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
    weights: FloatArray,
    means: FloatArray,
    covariances: FloatArray,
    populations: IntArray,
    proportions: FloatArray,
    upper: FloatArray,
) -> list[tuple[list[int], float]]:
    """Return sets of populations that may be one which shifts between samples.

    No sample has much of two of a set: in each, one of the two is at most a small share of its largest
    proportion. Sets come with the largest of these shares. Weights, means and covariances are
    those of `separate`; `populations` (K,) are those of the kernels, and `proportions` (L, G) are those in
    samples, with their upper limits.
    """
    shares = upper / np.maximum(proportions.max(axis=0), np.finfo(float).tiny)
    both = np.array([np.minimum(share[:, None], shares).max(axis=0) for share in shares.T])  # (G, G)
    candidates = np.argwhere(np.triu(both <= _LITTLE, 1)).tolist()
    if not candidates:
        return []
    covariances = _blurred(weights, covariances)
    saddles, peaks = _saddles(weights, means, covariances), _log_density(means, weights, means, covariances)
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
    found = {id(numbers): sorted(numbers) for numbers in sets.values() if len(numbers) > 1}.values()
    return [(numbers, float(np.triu(both[np.ix_(numbers, numbers)], 1).max())) for numbers in found]
