"""How kernels become populations: the tree by definition, scales, rare cells, and cells that have a shape."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster, is_valid_linkage

from skmix import SharedKernelMixture, compose
from skmix.engine.records import FloatArray
from skmix.samples import merge_kernels
from skmix.samples.merging import Mixture, cut, find_populations


def kernels(seed: int, n_kernels: int = 12, n_samples: int = 3) -> Mixture:
    """Return kernels in three markers, with weights in samples."""
    random = np.random.default_rng(seed)
    factors = 0.5 * random.normal(size=(n_kernels, 3, 3))
    covariances = factors @ factors.swapaxes(1, 2) + 0.3 * np.eye(3)
    in_samples = random.dirichlet(np.full(n_kernels, 5.0), n_samples).T
    means = 4.0 * random.normal(size=(n_kernels, 3))
    return Mixture(in_samples.mean(axis=1), in_samples, means, covariances, 10_000)


def equal(means: list[list[float]], deviation: float = 1.0, n_cells: int = 10_000) -> Mixture:
    """Return round kernels of equal weights."""
    n_kernels, n_markers = len(means), len(means[0])
    covariances = np.tile(deviation**2 * np.eye(n_markers), (n_kernels, 1, 1))
    weights = np.full((n_kernels, 1), 1.0 / n_kernels)
    return Mixture(weights[:, 0], weights, np.array(means), covariances, n_cells)


def populations_of(mixture: Mixture) -> list[int]:
    """Return the population of each kernel, numbered in the order of the kernels."""
    populations = find_populations(mixture)[0].tolist()
    return [list(dict.fromkeys(populations)).index(g) for g in populations]


def moments(mixture: Mixture, chosen: list[int]) -> tuple[float, FloatArray, FloatArray]:
    """Return weight, mean and deviations of a set of kernels."""
    weights = mixture.weights[chosen]
    mean = np.average(mixture.means[chosen], axis=0, weights=weights)
    squares = mixture.covariances[chosen].diagonal(axis1=1, axis2=2) + mixture.means[chosen] ** 2
    return weights.sum(), mean, np.sqrt(np.average(squares, axis=0, weights=weights) - mean**2)


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_is_that_of_its_definition(seed: int) -> None:
    mixture = kernels(seed)
    n_kernels = len(mixture.weights)
    sets, found = [[k] for k in range(n_kernels)], []

    def squared(ours: list[int], theirs: list[int]) -> float:
        total = sum(
            mixture.weights[i] * mixture.weights[j] * np.abs(mixture.means[i] - mixture.means[j]).max() ** 2
            for i in ours
            for j in theirs
        )
        return float(total / mixture.weights[ours].sum() / mixture.weights[theirs].sum())

    while len(sets) > 1:
        pairs = [(i, j) for i in range(len(sets)) for j in range(i)]
        i, j = min(pairs, key=lambda pair: squared(sets[pair[0]], sets[pair[1]]))
        found.append((sets[i], sets[j], np.sqrt(squared(sets[i], sets[j]))))
        sets = [own for place, own in enumerate(sets) if place not in (i, j)] + [sets[i] + sets[j]]
    longest, expected = max(length for *_, length in found), {}
    for ours, theirs, length in found:
        one, other = moments(mixture, ours), moments(mixture, theirs)
        separation = np.max(np.abs(one[1] - other[1]) / (one[2] + other[2]))
        clear = length / longest * np.sqrt(separation) * min(one[0], other[0]) ** 0.03
        below = [h for inside, h in expected.items() if inside < frozenset(ours + theirs)]
        height = max([clear / (clear + 0.4), 0.501 if separation > 2.5 else 0.0, *below])
        expected[frozenset(ours + theirs)] = height
    _, tree = find_populations(mixture)
    assert is_valid_linkage(tree)
    below: list[list[int]] = [[k] for k in range(n_kernels)]
    for one, other, height, size in tree.tolist():
        below.append(below[int(one)] + below[int(other)])
        assert size == len(below[-1])
        assert_allclose(height, expected[frozenset(below[-1])], rtol=1e-9)


def test_scale_and_order_of_markers_change_nothing() -> None:
    means = [[0.0, 0.0], [9.0, 1.0], [9.0, 8.0], [1.0, 20.0]]
    mixture = equal(means)
    populations, tree = find_populations(mixture)
    for scaled in (
        equal((1e-4 * np.array(means) + [7.0, -2.0]).tolist(), 1e-4),
        equal(np.array(means)[:, ::-1].tolist()),
    ):
        other, again = find_populations(scaled)
        assert len(set(zip(populations.tolist(), other.tolist(), strict=True))) == 4
        assert_allclose(again[:, 2], tree[:, 2], rtol=1e-9)


def test_a_marker_in_other_units_than_most_counts_like_them() -> None:
    """Scattered light in thousands, beside two markers in units of arcsinh."""
    units = np.array([1e4, 1.0, 1.0])
    means = np.array([[0.0, 0.0, 0.0], [0.5, 6.0, 0.0], [1.0, 0.0, 6.0], [3.0, 6.0, 6.0]])
    mixture = Mixture(
        np.full(4, 0.25), np.full((4, 1), 0.25), means * units, np.tile(np.diag(units**2), (4, 1, 1)), 1e4
    )
    assert populations_of(mixture) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([[0.0], [5.5], [40.0]], [0, 1, 2]),  # near beside the third, but apart
        ([[0.0], [1.0], [40.0]], [0, 0, 1]),
        ([[0.0, 0.0], [1.0, 1.0], [9.0, 0.0], [9.0, 1.0]], [0, 0, 1, 1]),
    ],
)
def test_sets_divide_if_they_are_far_apart_or_separate(means: list[list[float]], expected: list[int]) -> None:
    assert populations_of(equal(means)) == expected


@pytest.mark.parametrize("n_markers", [1, 2, 5])
@pytest.mark.parametrize("n_blobs", [1, 2, 4])
def test_gaussian_populations_are_found_as_they_are(n_markers: int, n_blobs: int) -> None:
    """However many kernels a population has, and though its markers depend on each other."""
    random = np.random.default_rng(n_blobs)
    mixed = 0.4 * random.normal(size=(n_markers, n_markers)) + 2.0 * np.eye(n_markers)
    centres = np.zeros((n_blobs, n_markers))
    centres[:, 0] = 8.0 * np.arange(n_blobs)
    blob = np.repeat(np.arange(n_blobs), 600)
    X = (centres[blob] + random.normal(size=(len(blob), n_markers))) @ mixed
    study = compose(X, sample=np.arange(len(X)) % 2)
    assert study.populations is not None
    assert len(study.populations) == n_blobs
    found = study.populations.predict(study.model, X)
    assert min(np.bincount(found[blob == g]).max() for g in range(n_blobs)) > 0.97 * 600


def test_populations_of_cells_far_off_do_not_hide_the_others() -> None:
    """A thousandth of the cells is a thousand times as far away as the others are from each other."""
    weights = np.array([0.5, 0.499, 0.001])
    means = np.array([[0.0], [6.0], [6000.0]])
    mixture = Mixture(weights, weights[:, None], means, np.ones((3, 1, 1)), 1e5)
    assert populations_of(mixture) == [0, 1, 2]


def test_a_population_needs_some_cells_of_one_sample() -> None:
    means, covariances = np.array([[0.0], [20.0], [32.0]]), np.ones((3, 1, 1))
    for most, expected in ((4e-4, [0, 1, 1]), (1e-3, [0, 1, 2])):
        in_samples = np.array([[0.5, 0.5], [0.5 - most, 0.5], [most, 0.0]])
        mixture = Mixture(in_samples.mean(axis=1), in_samples, means, covariances, 1e5)
        assert populations_of(mixture) == expected


@pytest.mark.parametrize("n_rare", [2, 3])
def test_kernels_next_to_each_other_are_a_population_if_they_have_enough_cells_together(n_rare: int) -> None:
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


def test_cuts_are_those_of_scipy() -> None:
    _, tree = find_populations(kernels(3))
    n_compared = 0
    for n_populations in range(1, 13):
        ours, theirs = cut(tree, n_populations), fcluster(tree, n_populations, "maxclust")
        assert len(set(ours)) == n_populations
        if len(set(theirs)) == n_populations:  # merges of equal height are made together there
            assert len(set(zip(ours, theirs, strict=True))) == n_populations
            n_compared += 1
    assert n_compared >= 3


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
