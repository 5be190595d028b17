"""Populations out of kernels: a tree of merges, and where to cut it.

A population that is not Gaussian needs several kernels. Its density is their weighted sum, and the
responsibility t_ni of population i for row n the sum of theirs, so that everything below follows from the
responsibilities of the kernels for weighted rows, whether these are data or draws from the model:

- entropy of the assignments, E = −Σ_n ω_n Σ_i t_ni log t_ni. Merging i and j lowers it by
  G_ij = Σ_n ω_n [φ(t_ni + t_nj) − φ(t_ni) − φ(t_nj)], φ(t) = t log t (Baudry et al., 2010);
- overlap, the Bhattacharyya coefficient of the densities: for rows from the mixture itself
  B_ij = ∫√(p_i p_j) = Σ_n ω_n √(t_ni t_nj) / √(m_i m_j) with the mass m_i = Σ_n ω_n t_ni.

Each step merges the pair with the largest G or B. The height of a merge is between 0, for two that cannot be
told apart, and 1: 1 − B, or by entropy the share of the uncertainty about which of the two a row came from
that knowing the row removes, 1 − G_ij / ((m_i + m_j) H(m_i / (m_i + m_j))), H the entropy of a coin. Heights
that would fall are raised to the previous one, so that trees can be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import entr

from ..engine.model import FloatArray, IntArray

Criterion = Literal["entropy", "overlap"]

# Responsibilities below this contribute nothing to entropies.
_NOTHING = 1e-10


@dataclass(frozen=True)
class Merges:
    """K − 1 merges of K kernels, in their order."""

    tree: FloatArray  # (K − 1, 4): SciPy's linkage matrix; the merged ones, the height, the kernels in it
    entropies: FloatArray  # (K,): per unit of rows, with K, K − 1, …, 1 populations


def merge(responsibilities: FloatArray, weights: FloatArray, criterion: Criterion) -> Merges:
    """Return the merges of kernels, given their responsibilities (n, K) for rows of weights (n,)."""
    weights = weights / weights.sum()
    # A row of the array for each population.
    shares = np.array(responsibilities.T, dtype=np.float64, order="C")
    n_kernels = len(shares)
    # Entropy or root of each share, once for all pairs.
    terms = entr(shares) if criterion == "entropy" else np.sqrt(shares)
    mass = shares @ weights
    # G or B of each pair, above the diagonal.
    scores = np.full((n_kernels, n_kernels), -np.inf)
    for i in range(n_kernels - 1):
        scores[i, i + 1 :] = _scores(i, np.arange(i + 1, n_kernels), shares, terms, mass, weights, criterion)
    numbers, counts = np.arange(n_kernels), np.ones(n_kernels)
    entropies = [float((entr(shares) @ weights).sum())]
    tree = np.empty((n_kernels - 1, 4))
    for step in range(n_kernels - 1):
        i, j = (int(place) for place in np.unravel_index(np.argmax(scores), scores.shape))
        merged = shares[i] + shares[j]
        gain = max(float((entr(shares[i]) + entr(shares[j]) - entr(merged)) @ weights), 0.0)
        height = _height(gain, mass[i], mass[j]) if criterion == "entropy" else 1.0 - scores[i, j]
        shares[i], terms[i] = merged, entr(merged) if criterion == "entropy" else np.sqrt(merged)
        mass[i] += mass[j]
        counts[i] += counts[j]
        tree[step] = *sorted((numbers[i], numbers[j])), height, counts[i]
        entropies.append(max(entropies[-1] - gain, 0.0))
        numbers[i] = n_kernels + step
        numbers[j] = -1
        scores[j], scores[:, j] = -np.inf, -np.inf
        others = np.setdiff1d(np.flatnonzero(numbers >= 0), i)
        scores[np.minimum(i, others), np.maximum(i, others)] = _scores(
            i, others, shares, terms, mass, weights, criterion
        )
    tree[:, 2] = np.maximum.accumulate(tree[:, 2])
    return Merges(tree, np.array(entropies))


def _scores(
    i: int,
    others: IntArray,
    shares: FloatArray,
    terms: FloatArray,
    mass: FloatArray,
    weights: FloatArray,
    criterion: Criterion,
) -> FloatArray:
    """Return G or B, shape (m,), of population i and each of m others."""
    if criterion == "overlap":
        lengths = np.sqrt(mass[i] * mass[others])
        products = terms[others] @ (weights * terms[i])
        # A population without mass has no density, and overlaps with nothing.
        overlaps = np.divide(products, lengths, out=np.zeros(len(others)), where=lengths > 0)
        return np.minimum(overlaps, 1.0)
    rows = np.flatnonzero(shares[i] > _NOTHING)
    own, weights = shares[i, rows], weights[rows]
    gains = []
    for j in others:
        merged = own + shares[j, rows]
        gains.append(weights @ (merged * np.log(merged) + terms[j, rows]))
    return np.array(gains) + weights @ terms[i, rows]


def _height(gain: float, one: float, other: float) -> float:
    """Return the share of the uncertainty about two populations of these masses that rows remove."""
    total = one + other
    uncertainty = entr(one / total) + entr(other / total) if total > 0 else 0.0
    return float(np.clip(1.0 - gain / (total * uncertainty), 0.0, 1.0)) if uncertainty > 0 else 1.0


def below(merges: Merges, height: float) -> int:
    """Return the number of populations before the first merge that is higher."""
    return len(merges.tree) + 1 - int(np.argmax(np.append(merges.tree[:, 2] > height, True)))


def cut(tree: FloatArray, n_populations: int) -> IntArray:
    """Return the population (K,) of each kernel when the first merges of a tree leave that many."""
    n_kernels = len(tree) + 1
    members = {kernel: [kernel] for kernel in range(n_kernels)}
    for step, (one, other) in enumerate(tree[: n_kernels - n_populations, :2].astype(int).tolist()):
        members[n_kernels + step] = members.pop(one) + members.pop(other)
    populations = np.empty(n_kernels, dtype=np.int64)
    for number, kernels in enumerate(members.values()):
        populations[kernels] = number
    return populations


def by_weight(weights: FloatArray, means: FloatArray) -> IntArray:
    """Return the order (K,) of kernels by weight (K,), the largest first; of equal ones, by means (K, M)."""
    return np.lexsort((*means.T[::-1], -weights))
