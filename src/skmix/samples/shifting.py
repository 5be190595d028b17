"""Populations of which no sample has two: one that shifts, or several that replace each other.

Each sample has mainly one population of such a set. If they are one that shifts, the cells of each sample
have a mean of their own, and all samples share a covariance. If they replace each other, each population has
a mean that all samples share, and each sample has proportions of its own. Gaussians describe both, and the
Bayesian information criterion compares them: shifts describe better what differs from sample to sample, and
replacements what recurs in several samples. Without clear evidence they stay apart, and it is said.
"""

from __future__ import annotations

import numpy as np

from ..engine.records import FloatArray, IntArray
from .merging import Mixture, sets_below

# Least mean share of the largest population of a set among the cells of the set in a sample.
_MAINLY = 0.8
# Least difference of the log-likelihoods, less their penalties, for each cell. At four deviations, kernels of
# populations that replace each other overlap, which looks like a shift by up to 0.08.
_CLEAR = 0.15
# Populations may be one that shifts between samples if every sample has at most this share of the largest
# proportion of one of the two, and if they are at most so many sums of their deviations apart.
_LITTLE, _FAR = 0.2, 5.0
_TINY = float(np.finfo(float).tiny)


def find_shifts(
    mixture: Mixture, populations: IntArray, tree: FloatArray, sizes: FloatArray
) -> list[list[int]]:
    """Return sets of numbers of populations, each set one that shifts between samples of `sizes` (L,).

    Candidates are the populations below each merge of the tree, the largest set first.
    """
    shifts: list[list[int]] = []
    for kernels in reversed(sets_below(tree)[len(populations) :]):
        numbers = np.unique(populations[kernels]).tolist()
        is_part = any(set(numbers) <= set(shift) for shift in shifts)
        if len(numbers) < 2 or is_part or np.isin(populations, numbers).sum() > len(kernels):
            continue
        if _evidence(mixture, [np.flatnonzero(populations == g) for g in numbers], sizes) > _CLEAR:
            shifts.append(numbers)
    return shifts


def _evidence(mixture: Mixture, members: list[IntArray], sizes: FloatArray) -> float:
    """Return the log-likelihood of a cell if one population shifts, less that of several.

    `members` are their kernels. It is minus infinity if samples do not have mainly one of them each, or all
    the same one.
    """
    cells = np.stack([mixture.in_samples[kernels].sum(axis=0) for kernels in members]) * sizes  # (J, L)
    kernels, present = np.concatenate(members), cells.sum(axis=0) >= 1.0
    cells, total = cells[:, present], cells.sum()
    shares = cells / cells.sum(axis=0)
    (n_sets, n_samples), n_markers = shares.shape, mixture.means.shape[1]
    if len(set(shares.argmax(axis=0).tolist())) < 2 or shares.max(axis=0).mean() < _MAINLY:
        return -np.inf
    of_kernels = mixture.in_samples[kernels][:, present] * sizes[present]
    labels = np.repeat(np.eye(n_sets), [len(own) for own in members], axis=0)
    of_shift = -0.5 * total * _log_volume(mixture, kernels, of_kernels)
    of_several = -0.5 * total * _log_volume(mixture, kernels, of_kernels.sum(axis=1, keepdims=True) * labels)
    of_several += np.sum(cells * np.log(np.maximum(shares, _TINY)))
    more = (n_samples - n_sets) * n_markers - n_samples * (n_sets - 1)  # parameters of the shift
    return float(of_shift - of_several - 0.5 * more * np.log(total)) / total


def _log_volume(mixture: Mixture, kernels: IntArray, cells: FloatArray) -> float:
    """Return the log-determinant of the covariance about the means of groups, with cells (K, groups)."""
    means, covariances = mixture.means[kernels], mixture.covariances[kernels]
    apart = means[:, None, :] - cells.T @ means / (cells.sum(axis=0)[:, None] + _TINY)
    within = np.einsum("k,kmn->mn", cells.sum(axis=1), covariances)
    within += np.einsum("kl,klm,kln->mn", cells, apart, apart, optimize=True)
    return float(np.linalg.slogdet(within / cells.sum())[1])


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
    apart = _separations(mixture, populations)
    sets = {number: [number] for number in range(proportions.shape[1])}
    # The nearest first; each two of a set are alternatives.
    for one, other in sorted(candidates, key=lambda pair: float(apart[*pair])):
        ours, theirs = sets[one], sets[other]
        pairs = np.ix_(ours, theirs)
        if ours is not theirs and apart[pairs].max() <= _FAR and both[pairs].max() <= _LITTLE:
            ours += theirs
            sets |= dict.fromkeys(theirs, ours)
    joinable = {id(numbers): sorted(numbers) for numbers in sets.values() if len(numbers) > 1}.values()
    return [(numbers, float(np.triu(both[np.ix_(numbers, numbers)], 1).max())) for numbers in joinable]


def _separations(mixture: Mixture, populations: IntArray) -> FloatArray:
    """Return how far each two populations (G, G) are apart, in sums of their deviations."""
    shares = (populations[:, None] == np.arange(populations.max() + 1)) * (mixture.weights[:, None] + _TINY)
    shares = shares / shares.sum(axis=0)
    means, variances = shares.T @ mixture.means, np.diagonal(mixture.covariances, axis1=1, axis2=2)
    deviations = np.sqrt(np.maximum(shares.T @ (variances + mixture.means**2) - means**2, _TINY))
    apart = np.abs(means[:, None, :] - means) / (deviations[:, None, :] + deviations)
    return np.asarray(apart.max(axis=2))
