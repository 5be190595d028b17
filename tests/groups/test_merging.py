"""Merges of kernels, their heights and cuts, against their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.cluster.hierarchy import fcluster, is_valid_linkage
from scipy.integrate import quad
from scipy.stats import norm

from skmix.engine.model import FloatArray
from skmix.groups.merging import below, cut, merge


def random_shares(seed: int, n_rows: int = 50, n_kernels: int = 6) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(n_kernels, 0.3), n_rows), random.uniform(0.5, 2.0, n_rows)


def entropy(shares: FloatArray, weights: FloatArray) -> float:
    return float(-(weights[:, None] * shares * np.log(np.maximum(shares, 1e-300))).sum() / weights.sum())


@pytest.mark.parametrize("seed", range(5))
def test_every_step_merges_the_best_of_all_pairs(seed: int) -> None:
    shares, weights = random_shares(seed)
    found = merge(shares, weights)
    columns = {k: shares[:, k] for k in range(6)}
    heights = []
    for step in range(5):
        left = np.stack(list(columns.values()), axis=1)
        gains = {}
        for i, j in itertools.combinations(sorted(columns), 2):
            rest = [columns[k] for k in columns if k not in (i, j)]
            after = np.stack([*rest, columns[i] + columns[j]], axis=1)
            gains[i, j] = entropy(left, weights) - entropy(after, weights)
        best = max(gains, key=lambda pair: gains[pair])
        assert tuple(found[step, :2]) == best
        mass = np.array([(weights * columns[k]).sum() / weights.sum() for k in best])
        # The entropy of a coin with the two masses, of as many rows as there are of the two.
        coin = -(mass * np.log(mass / mass.sum())).sum()
        heights.append(1.0 - gains[best] / coin)
        columns[6 + step] = columns.pop(best[0]) + columns.pop(best[1])
    assert_allclose(found[:, 2], np.maximum.accumulate(heights), atol=1e-12)
    assert is_valid_linkage(found)


@pytest.mark.parametrize(("distance", "height"), [(2.0, 0.49), (4.0, 0.91)])
def test_height_of_two_equal_gaussians(distance: float, height: float) -> None:
    """The share of one bit that a row tells, by integration, as the docstrings have it."""

    def uncertainty(x: float) -> float:
        p = np.array([norm.pdf(x), norm.pdf(x - distance)])
        share = p / p.sum()
        return float(-0.5 * p.sum() * (share * np.log(np.maximum(share, 1e-300))).sum())

    expected = 1.0 - quad(uncertainty, -10.0, 10.0 + distance)[0] / np.log(2.0)
    assert_allclose(expected, height, atol=0.005)
    x = np.linspace(-10.0, 10.0 + distance, 4001)
    densities = np.stack([norm.pdf(x), norm.pdf(x - distance)], axis=1)
    total = densities.sum(axis=1)
    found = merge(densities / total[:, None], total)
    assert_allclose(found[0, 2], expected, rtol=1e-6)


def test_kernels_without_mass_come_last() -> None:
    shares, weights = random_shares(0, n_kernels=3)
    shares = np.insert(shares, 1, 0.0, axis=1)
    found = merge(shares, weights)
    assert 1 in found[-1, :2]
    assert found[-1, 2] == 1.0
    assert np.all(np.isfinite(found))


def test_cuts_are_those_of_scipy() -> None:
    found = merge(*random_shares(3, n_kernels=8))
    for n_populations in range(1, 9):
        ours = cut(found, n_populations)
        theirs = fcluster(found, n_populations, "maxclust")
        assert len(set(zip(ours, theirs, strict=True))) == n_populations == len(set(ours))
    for height in (0.0, *found[:, 2], 1.0):
        theirs = fcluster(found, height, "distance")
        ours = cut(found, below(found, height))
        assert len(set(zip(ours, theirs, strict=True))) == len(set(ours)) == len(set(theirs))


def test_a_merge_as_high_as_the_cut_is_made() -> None:
    tree = np.array([[0.0, 1.0, 0.2, 2.0], [2.0, 3.0, 0.5, 2.0], [4.0, 5.0, 0.5, 4.0]])
    assert [below(tree, height) for height in (0.1999, 0.2, 0.4999, 0.5, 1.0)] == [4, 3, 3, 1, 1]
