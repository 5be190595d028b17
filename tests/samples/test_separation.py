"""Populations that valleys of the density divide: trees of merges by definition, and rare cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import is_valid_linkage
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from skmix import SharedKernelMixture, compose
from skmix.engine.records import FloatArray
from skmix.samples import merge_kernels
from skmix.samples.merging import Mixture, cut, find_populations

Kernels = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def kernels(seed: int, n_kernels: int = 7, n_samples: int = 3) -> Kernels:
    """Return weights (K,), means (K, 2), covariances (K, 2, 2) and weights in samples (K, L)."""
    random = np.random.default_rng(seed)
    factors = random.normal(size=(n_kernels, 2, 2))
    covariances = factors @ factors.swapaxes(1, 2) + 0.3 * np.eye(2)
    in_samples = random.dirichlet(np.full(n_kernels, 5.0), n_samples).T
    return in_samples.mean(axis=1), 3.0 * random.normal(size=(n_kernels, 2)), covariances, in_samples


def separate(
    weights: FloatArray, means: FloatArray, covariances: FloatArray, in_samples: FloatArray
) -> tuple[FloatArray, int]:
    """Return the tree of merges, and the number of populations."""
    of_kernels, tree = find_populations(Mixture(weights, in_samples, means, covariances))
    return tree, int(of_kernels.max()) + 1


def blurred(weights: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return covariances blurred by half the median width of the kernels, as repeated by their weights."""
    counts = np.round(1e6 * weights).astype(int)
    widths = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    return covariances + np.diag((0.5 * np.median(np.repeat(widths, counts, axis=0), axis=0)) ** 2)


@pytest.mark.parametrize("distance", [1.0, 3.0, 4.5, 8.0])
def test_height_of_two_equal_gaussians(distance: float) -> None:
    tree, n_populations = separate(
        np.full(2, 0.5), np.array([[0.0], [distance]]), np.ones((2, 1, 1)), np.full((2, 1), 0.5)
    )
    width = np.sqrt(1.25)
    peak, valley = (norm.pdf(x, 0.0, width) + norm.pdf(x, distance, width) for x in (0.0, distance / 2.0))
    height = max(1.0 - valley / peak, 0.0)
    assert n_populations == (2 if height > 0.5 else 1)
    assert_allclose(tree[0, 2], height, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sets_are_merged_in_the_order_of_their_valleys(seed: int) -> None:
    """Against the definition, set by set; a kernel without a valley has joined its hill before."""
    weights, means, covariances, in_samples = kernels(seed)
    tree, n_populations = separate(weights, means, covariances, in_samples)
    assert is_valid_linkage(tree)
    covariances = blurred(weights, covariances)

    def density(x: FloatArray) -> float:
        pairs = zip(weights, means, covariances, strict=True)
        return float(sum(w * multivariate_normal.pdf(x, m, c) for w, m, c in pairs))

    def saddle(i: int, j: int) -> float:
        one, other = (np.linalg.inv(covariances[k]) for k in (i, j))
        lowest = np.inf
        for a in [0.0, *expit(np.linspace(-2.0, 2.0, 13)), 1.0]:
            line = (1 - a) * one @ means[i] + a * other @ means[j]
            lowest = min(lowest, density(np.linalg.solve((1 - a) * one + a * other, line)))
        return lowest

    peaks = [density(mean) for mean in means]
    for n_sets in range(2, len(means) + 1):
        sets = cut(tree, n_sets)
        ratios = []
        for g in range(n_sets):
            for h in range(g):
                ours, theirs = np.flatnonzero(sets == g), np.flatnonzero(sets == h)
                highest = max(saddle(i, j) for i in ours for j in theirs)
                ratios.append(highest / min(max(peaks[k] for k in own) for own in (ours, theirs)))
        expected = 1.0 - min(max(ratios), 1.0)
        if n_sets <= n_populations:
            assert_allclose(tree[-n_sets + 1, 2], max(expected, 0.5), atol=1e-9)
        elif expected > 0.01:
            assert_allclose(tree[-n_sets + 1, 2], expected, atol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda w, m, c, s: (w, m * [1e3, 1e-4] + [7.0, -2.0], c * np.outer([1e3, 1e-4], [1e3, 1e-4]), s),
        lambda w, m, c, s: (w, m[:, ::-1], c[:, ::-1, ::-1], s),
    ],
    ids=["units", "order of markers"],
)
def test_units_and_order_of_markers_change_nothing(change: Callable[..., Kernels]) -> None:
    for seed in range(4):
        given = kernels(seed)
        (tree, n), (other, m) = separate(*given), separate(*change(*given))
        assert n == m
        assert_array_equal(cut(tree, n), cut(other, m))
        assert_allclose(tree[:, 2], other[:, 2], atol=1e-8)


def test_hills_stay_apart_whether_or_not_a_sample_has_both() -> None:
    means, covariances = np.array([[0.0], [5.5], [40.0]]), np.ones((3, 1, 1))
    for one, other in (([1, 1, 0, 0], [0, 0, 1, 1]), ([1] * 4, [1] * 4), ([1] * 4, [1, 0, 0, 0])):
        in_samples = np.array([one, other, [1] * 4], dtype=float)
        in_samples /= in_samples.sum(axis=0)
        tree, n_populations = separate(in_samples.mean(axis=1), means, covariances, in_samples)
        assert n_populations == 3
        assert tree[0, 2] > 0.5


def test_a_population_needs_some_cells_of_one_sample() -> None:
    means, covariances = np.array([[0.0], [20.0], [32.0]]), np.ones((3, 1, 1))
    for most, expected in ((4e-4, [0, 1, 1]), (1e-3, [0, 1, 2])):
        in_samples = np.array([[0.5, 0.5], [0.5 - most, 0.5], [most, 0.0]])
        tree, n_populations = separate(in_samples.mean(axis=1), means, covariances, in_samples)
        found = cut(tree, n_populations)
        assert [found.tolist().index(g) for g in found] == expected


@pytest.mark.parametrize("n_rare", [2, 3])
def test_kernels_of_one_hill_are_a_population_if_they_have_enough_cells_together(n_rare: int) -> None:
    """Each of two kernels has too few, 0.02 or 0.03 % of one sample."""
    n_cells, means = 10_000, np.array([[0.0], [30.0], [31.0]])
    X = np.random.default_rng(0).normal(size=(2 * n_cells, 1))
    X[: 2 * n_rare, 0] = np.repeat([28.5, 32.5], n_rare)
    start = {"means": means, "covariances": np.ones((3, 1, 1))}
    model = SharedKernelMixture(3, init=start, freeze="kernels", tol=1e-9, max_iter=2000).fit(
        X, np.repeat([0, 1], n_cells)
    )
    assert model.weights_[1:].max() < 5e-4
    assert merge_kernels(model).of_kernels.tolist() == ([0, 0, 0] if n_rare == 2 else [0, 1, 1])


def test_populations_do_not_depend_on_the_order_of_cells_or_on_files() -> None:
    random = np.random.default_rng(0)
    # Of different sizes, by which populations are numbered.
    centres = np.repeat([[0.0, 0.0], [7.0, 0.0], [3.0, 6.0]], [400, 300, 200], axis=0)
    X = random.normal(size=(900, 2)) + centres
    three, order = np.arange(900) % 3, random.permutation(900)
    first, again = compose(X, sample=three, n_kernels=8), compose(X[order], sample=three[order], n_kernels=8)
    assert_allclose(again.model.means_, first.model.means_, rtol=1e-6)
    six = np.arange(900) % 6
    dealt = compose(X[order], sample=six, n_kernels=8)
    labels = [
        study.populations.predict(study.model, cells, y=samples)
        for study, cells, samples in ((first, X[order], three[order]), (dealt, X[order], six))
    ]
    assert_array_equal(*labels)


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_population_that_samples_show_clearly_is_found(seed: int) -> None:
    """0.1 % of the cells, beside populations that are skewed and much larger."""
    random = np.random.default_rng(seed)
    centres = np.array(
        [[0.0, 0.0, 0.0, 0.0], [5.0, 0.0, 4.0, 0.0], [0.0, 6.0, 0.0, 3.0], [5.0, 6.0, 4.0, 7.0]]
    )
    counts = [7000, 4000, 4984, 16]
    y = np.repeat(np.arange(4), counts)
    X = centres[y] + 0.6 * random.normal(size=(len(y), 4))
    X[y < 3] += random.gamma(1.0, 0.6, size=(np.sum(y < 3), 4))
    study = compose(X, sample=random.integers(0, 4, len(y)), random_state=seed)
    assert study.populations is not None
    found = study.populations.predict(study.model, X)
    numbers, sizes = np.unique(found[y == 3], return_counts=True)
    rare = numbers[sizes.argmax()]
    assert sizes.max() >= 15
    assert np.sum((found == rare) & (y < 3)) <= 4
    for large in range(3):
        assert np.bincount(found[y == large]).max() > 0.97 * counts[large]


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_few_cells_of_many_markers_have_more_than_one_start(seed: int) -> None:
    """One start may begin with a few outliers, and miss one of two halves."""
    random, y = np.random.default_rng(seed), np.repeat([0, 1], 300)
    X = random.standard_t(5, size=(600, 15))
    X[:, :2] += 5.0 * y[:, None]
    study = compose(X, sample=np.tile(["a", "b"], 300), random_state=seed)
    assert study.populations is not None
    found = study.populations.predict(study.model, X)
    assert max(np.mean(found == y), np.mean(found != y)) > 0.98
