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

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, logsumexp

from ..engine.model import FloatArray, IntArray

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
# Two hills that no sample has both of are one population that differs between samples: they are merged unless
# the valley is very deep.
_SHARED, _DEEP = 0.3, 0.97
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
    widths = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    medians = np.quantile(widths, 0.5, axis=0, weights=weights, method="inverted_cdf")
    covariances = covariances + np.diag((_BLUR * medians) ** 2)
    hills = _Hills(weights, means, covariances, in_samples)
    hills.join_flanks()
    hills.join_while(lambda heights: heights <= HEIGHT)
    hills.join_smallest()
    if in_samples.shape[1] > 1:
        hills.join_while(lambda heights: (heights <= _DEEP) & (hills.shared() <= _SHARED))
    n_populations = len(hills.active)
    hills.join_while(lambda heights: heights <= 1.0)
    tree = np.array(hills.merges).reshape(-1, 4)
    # Heights increase, so that the tree can be drawn; the merges of the default are those up to its height,
    # and those of hills that no sample has both of have exactly this height.
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

    def shared(self) -> FloatArray:
        """Return how often samples of one have the other (G, G): 0 if none has both, 1 if all of one do."""
        tiny = np.finfo(float).tiny
        own = self.in_samples[self.active]
        own = own / np.maximum(own.max(axis=1, keepdims=True), tiny)
        fewest = np.minimum.outer(own.sum(axis=1), own.sum(axis=1))
        return np.asarray(np.minimum(own[:, None], own[None]).sum(axis=2) / np.maximum(fewest, tiny))

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

    def join_while(self, allowed: Callable[[FloatArray], np.ndarray]) -> None:
        """Merge the two with the lowest height among those allowed, until none is."""
        while len(self.active) > 1:
            heights = self.heights()
            heights = np.where(allowed(heights), heights, 2.0)
            one, other = np.unravel_index(np.argmin(heights), heights.shape)
            if heights[one, other] > 1.0:
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
