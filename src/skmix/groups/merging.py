"""Merge kernels into populations: build the tree of merges, and cut it.

A population that is not Gaussian needs several kernels. Its responsibility t_ni for row n is the sum of
theirs, so everything below follows from the kernels' responsibilities for rows of weights ω_n. Merging
populations i and j lowers the entropy of the assignments,
E = −Σ_n ω_n Σ_i t_ni log t_ni, by

    G_ij = Σ_n ω_n [φ(t_ni + t_nj) − φ(t_ni) − φ(t_nj)],    φ(t) = t log t

(Baudry et al., 2010). Each step merges the pair with the largest gain G. The height of a merge is the share
of the uncertainty about which of the two populations a row came from that knowing the row removes:
1 − G_ij / ((m_i + m_j) H(m_i / (m_i + m_j))), with the masses m_i = Σ_n ω_n t_ni and the entropy H of a coin.
It is 0 for two populations that cannot be told apart, and at most 1. Heights are made to increase, so that
trees can be drawn.
"""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from ..engine.model import FloatArray, IntArray

# Responsibilities below this do not change the entropy.
_NEGLIGIBLE = 1e-10


def merge(responsibilities: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the tree of merges of kernels, given their responsibilities (n, K) for rows of weights (n,).

    The tree (K − 1, 4) is SciPy's linkage matrix: the two merged populations, the height, and the number of
    kernels below it.
    """
    weights = weights / weights.sum()
    # Contiguous responsibilities of each population.
    shares = np.array(responsibilities.T, dtype=np.float64, order="C")
    n_kernels = len(shares)
    # Entropy of each responsibility, once for all pairs.
    entropy, mass = entr(shares), shares @ weights
    # Gain of each pair, above the diagonal.
    gains = np.full((n_kernels, n_kernels), -np.inf)
    for i in range(n_kernels - 1):
        gains[i, i + 1 :] = _gains(i, np.arange(i + 1, n_kernels), shares, entropy, weights)
    numbers, counts = np.arange(n_kernels), np.ones(n_kernels)
    tree = np.empty((n_kernels - 1, 4))
    for step in range(n_kernels - 1):
        i, j = (int(place) for place in np.unravel_index(np.argmax(gains), gains.shape))
        merged = shares[i] + shares[j]
        gain = max(float((entropy[i] + entropy[j] - entr(merged)) @ weights), 0.0)
        height = _height(gain, mass[i], mass[j])
        shares[i], entropy[i] = merged, entr(merged)
        mass[i] += mass[j]
        counts[i] += counts[j]
        tree[step] = *sorted((numbers[i], numbers[j])), height, counts[i]
        numbers[i] = n_kernels + step
        numbers[j] = -1
        gains[j], gains[:, j] = -np.inf, -np.inf
        others = np.setdiff1d(np.flatnonzero(numbers >= 0), i)
        gains[np.minimum(i, others), np.maximum(i, others)] = _gains(i, others, shares, entropy, weights)
    tree[:, 2] = np.maximum.accumulate(tree[:, 2])
    return tree


def _gains(
    i: int, others: IntArray, shares: FloatArray, entropy: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return the gains G (m,) of merging population i with each of m others."""
    rows = np.flatnonzero(shares[i] > _NEGLIGIBLE)
    own, weights = shares[i, rows], weights[rows]
    gains = []
    for j in others:
        merged = own + shares[j, rows]
        gains.append(weights @ (merged * np.log(merged) + entropy[j, rows]))
    return np.array(gains) + weights @ entropy[i, rows]


def _height(gain: float, one: float, other: float) -> float:
    """Return the height of a merge of two populations of these masses."""
    total = one + other
    uncertainty = entr(one / total) + entr(other / total) if total > 0 else 0.0
    return float(np.clip(1.0 - gain / (total * uncertainty), 0.0, 1.0)) if uncertainty > 0 else 1.0


def below(tree: FloatArray, height: float) -> int:
    """Return the number of populations after all merges up to a height."""
    return len(tree) + 1 - int(np.argmax(np.append(tree[:, 2] > height, True)))


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
