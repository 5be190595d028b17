"""Starting points: where they are, how they vary, and that no data break them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from by_reference import by_reference
from calls import drawn
from libraries import LIBRARIES, each_library
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_structure
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skmix import SharedKernelMixture
from skmix.engine import starts
from skmix.engine.estep import reference
from skmix.engine.numbers import to_numpy
from skmix.engine.records import FloatArray, IntArray, Parameters
from skmix.engine.rows.summary import measure
from skmix.engine.starts import drawing, samples, seeds
from skmix.engine.starts.exchange import Exchange
from skmix.engine.structures import Structure, structure_of

FULL = structure_of("full")
CENTRES = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])


def four_clusters(seed: int = 0, n_rows: int = 400) -> tuple[FloatArray, IntArray]:
    """Return rows of unit variance about the corners of a square, and their corner."""
    random = np.random.default_rng(seed)
    corner = random.permutation(np.arange(n_rows) % 4)
    return CENTRES[corner] + random.normal(size=(n_rows, 2)), corner


def wanted(
    X: FloatArray,
    n_classes: int,
    n_starts: int,
    n_kernels: int,
    seed: int = 0,
    kind: str = "full",
    weights: FloatArray | None = None,
) -> starts.Drawing:
    structure, random_state = structure_of(kind), np.random.RandomState(seed)
    frame = measure(X, structure, row_weights=weights)
    return starts.Drawing(n_classes, n_starts, n_kernels, frame, structure, random_state)


def class_wise(
    X: FloatArray, classes: IntArray, n_starts: int, n_kernels: int, seed: int = 0, kind: str = "full"
) -> Parameters:
    return drawn(
        starts.class_wise, X, classes, wanted(X, int(classes.max()) + 1, n_starts, n_kernels, seed, kind)
    )


def corners_of(means: FloatArray) -> IntArray:
    """Return the corner next to each mean, which must be near it."""
    distances = np.linalg.norm(means[:, None] - CENTRES, axis=2)
    assert distances.min(axis=1).max() < 4.0
    return distances.argmin(axis=1)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_papers_start(covariance_type: str) -> None:
    structure = structure_of(covariance_type)
    found = starts.uniform(200, 10, 3, 4, structure, np.random.RandomState(0))
    assert found.means.shape == (200, 10, 4)
    assert found.means.min() >= 0.0
    assert found.means.max() <= 1.0
    assert found.means.mean() == pytest.approx(0.5, abs=0.02)
    assert found.means.var() == pytest.approx(1.0 / 12.0, rel=0.05)
    assert_array_equal(found.weights, np.full((200, 10, 3), 0.1))
    expected = as_structure(np.stack([0.3 * np.eye(4)] * 10), covariance_type)
    assert_allclose(found.covariances, np.broadcast_to(expected, found.covariances.shape), rtol=1e-15)


@each_library
def test_exchanges_find_clusters_that_k_means_leaves_out(library: str) -> None:
    """Of 25 clusters on a grid, k-means++ alone leaves out some in most starts."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    rows = np.repeat(grid, 400, axis=0) + 0.15 * np.random.default_rng(0).normal(size=(10_000, 2))
    X, everything = LIBRARIES[library](rows), np.zeros(len(rows), dtype=np.int64)
    for found, least, most in (
        (drawn(starts.class_wise, X, everything, wanted(rows, 1, 5, 25)), 0, 1),
        (drawn(starts.k_means, X, everything, wanted(rows, 1, 5, 25)), 5, 5),
    ):
        nearest = np.linalg.norm(found.means[:, :, None] - grid, axis=-1).argmin(axis=2)
        assert least <= sum(len(set(own)) == 25 for own in nearest) <= most


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("tail", [None, "t"])
def test_fits_of_few_rows_find_the_clusters(covariance_type: str, tail: str | None) -> None:
    """EM exchanges kernels, from starts by k-means that leave out some clusters."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    rows = np.repeat(grid, 40, axis=0) + 0.15 * np.random.default_rng(0).normal(size=(1000, 2))
    for seed in range(3):
        model = SharedKernelMixture(25, covariance_type=covariance_type, tail=tail, random_state=seed).fit(
            rows
        )
        nearest = np.linalg.norm(model.means_[:, None] - grid, axis=-1).argmin(axis=1)
        assert sorted(nearest) == list(range(25))


def test_class_wise_starts_deal_kernels_to_classes_in_turn() -> None:
    X, corner = four_clusters()
    found = class_wise(X, corner, n_starts=10, n_kernels=8)
    for means in found.means:
        assert_array_equal(np.bincount(corners_of(means), minlength=4), [2, 2, 2, 2])
        assert (means >= X.min(axis=0)).all()
    weights = found.weights
    assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)
    assert_allclose(np.sort(weights, axis=1)[:, :, 0], [[0.00125] * 6 + [0.49625] * 2] * 10, rtol=1e-12)
    uneven = class_wise(X, corner, n_starts=30, n_kernels=6)
    counts = np.stack([np.bincount(corners_of(means), minlength=4) for means in uneven.means])
    assert set(counts.ravel()) == {1, 2}
    # No class is always the one to be served twice.
    assert (counts == 2).any(axis=0).all()
    assert (counts == 1).any(axis=0).all()


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_class_wise_covariances_are_the_pooled_scatter(covariance_type: str) -> None:
    """With one kernel a class and all rows looked at: 95 % within-class covariance, 5 % variance."""
    X, corner = four_clusters(n_rows=80)
    X[:, 1] += 0.5 * (X[:, 0] - CENTRES[corner, 0])
    found = class_wise(X, corner, n_starts=1, n_kernels=4, kind=covariance_type).take(0)
    residuals = X - np.stack([X[corner == c].mean(axis=0) for c in range(4)])[corner]
    expected = 0.95 * residuals.T @ residuals / len(X) + 0.05 * np.diag(X.var(axis=0))
    assert_allclose(found.covariances, as_structure(np.stack([expected] * 4), covariance_type), rtol=1e-10)
    centres = np.stack([X[corner == c].mean(axis=0) for c in range(4)])
    order = np.argsort(corners_of(found.means))
    assert_allclose(found.means[order], centres, rtol=1e-10, atol=1e-10)
    # Nearly all of a class's weight is on its own kernel, and none is zero.
    assert_allclose(found.weights[order], 0.99 * np.eye(4) + 0.01 / 4, rtol=1e-12)


def test_starts_differ_and_seeds_repeat() -> None:
    X, corner = four_clusters()
    for make in (
        lambda seed: class_wise(X, corner, 3, 8, seed),
        lambda seed: drawn(starts.k_means, X, corner, wanted(X, 4, 3, 8, seed)),
        lambda seed: drawn(starts.random_from_data, X, wanted(X, 1, 3, 8, seed)),
        lambda seed: starts.uniform(3, 8, 1, 2, FULL, np.random.RandomState(seed)),
    ):
        first, again, other = make(0), make(0), make(1)
        assert_array_equal(first.means, again.means)
        assert_array_equal(first.covariances, again.covariances)
        assert not np.allclose(first.means, other.means)
        assert not np.allclose(first.means[0], first.means[1])


# ---------------------------------------------------------------- k-means over all rows


def all_rows(
    X: FloatArray, classes: IntArray, n_starts: int, n_kernels: int, weights: FloatArray | None = None
) -> Parameters:
    given = wanted(X, int(classes.max()) + 1, n_starts, n_kernels, weights=weights)
    return drawn(starts.k_means, X, classes, given, weights)


def test_k_means_counts_weights_like_rows_and_leaves_unlabelled_rows_to_the_clusters() -> None:
    X, corner = four_clusters(n_rows=120)
    weights = np.random.default_rng(3).integers(1, 4, size=len(X)).astype(np.float64)
    classes = np.where(np.arange(len(X)) % 3 == 0, -1, corner % 2)
    found = all_rows(X, classes, 1, 4, weights).take(0)
    nearest = np.argmin(((X[:, None] - found.means) ** 2).sum(axis=2), axis=1)
    expected = [np.average(X[nearest == k], axis=0, weights=weights[nearest == k]) for k in range(4)]
    assert_allclose(found.means, expected, atol=1e-9)
    shares = [
        [np.average(nearest[classes == c] == k, weights=weights[classes == c]) for c in range(2)]
        for k in range(4)
    ]
    assert_allclose(found.weights, 0.99 * np.array(shares) + 0.01 / 4, rtol=1e-12)
    # Rows without a label are as wide as the others.
    within, overall = X - found.means[nearest], X - np.average(X, axis=0, weights=weights)
    pooled = 0.95 * (within.T * weights) @ within + 0.05 * np.diag(weights @ overall**2)
    own = [(within[nearest == k].T * weights[nearest == k]) @ within[nearest == k] for k in range(4)]
    masses = np.bincount(nearest, weights)[:, None, None]
    # Four rows of average weight.
    few = 4.0 * weights.mean()
    expected = (np.stack(own) + few * pooled / weights.sum()) / (masses + few)
    assert_allclose(found.covariances, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_k_means_gives_each_kernel_the_covariance_of_its_cluster(kind: str) -> None:
    """Up to a few rows' worth of the common one, which is all that kernels with a common one have."""
    X, corner = four_clusters(n_rows=4000)
    X = (X - CENTRES[corner]) * (1.0 + corner[:, None]) + CENTRES[corner]
    found = drawn(starts.k_means, X, 0 * corner, wanted(X, 1, 1, 4, kind=kind)).take(0)
    full = structure_of(kind).to_full(found.covariances[None], 4, 2)[0]
    sizes = np.sqrt(full.diagonal(axis1=1, axis2=2).mean(axis=1))[np.argsort(corners_of(found.means))]
    if structure_of(kind).shared:
        assert_allclose(sizes, sizes[0], rtol=1e-9)
    else:
        assert_allclose(sizes, [1.0, 2.0, 3.0, 4.0], rtol=0.2)


@pytest.mark.parametrize("n_rows", [600, 20_000])
def test_k_means_starts_where_the_weight_is(n_rows: int) -> None:
    """A tenth of the rows, in four clusters, have nearly all of the weight; the rest are wide."""
    random = np.random.default_rng(0)
    heavy = np.arange(n_rows) % 10 == 0
    X = np.where(heavy[:, None], CENTRES[np.arange(n_rows) // 10 % 4], 25.0)
    X = X + np.where(heavy[:, None], 0.5, 60.0) * random.normal(size=(n_rows, 2))
    weights = np.where(heavy, 1.0, 1e-5)
    found = all_rows(X, np.zeros(n_rows, dtype=np.int64), 10, 4, weights)
    for means in found.means:
        assert sorted(corners_of(means)) == [0, 1, 2, 3]


def test_k_means_takes_a_sample_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class without a row in the sample begins with equal weights."""
    monkeypatch.setattr(drawing, "_ROWS_PER_CLUSTER", 10)
    monkeypatch.setattr(drawing, "_FEWEST_ROWS", 15)
    X, _ = four_clusters(n_rows=4000)
    classes = np.zeros(4000, dtype=np.int64)
    classes[0] = 1
    found = drawn(starts.k_means, X, classes, wanted(X, 2, 3, 4), np.full(4000, 0.5))
    assert_allclose(found.weights[:, :, 1], 0.25, rtol=1e-12)
    assert_allclose(found.weights.sum(axis=1), 1.0, rtol=1e-12)
    # All forty rows of a sample are in some cluster.
    shares = (found.weights[:, :, 0] - 0.01 / 4) / 0.99 * 40
    assert_allclose(shares, shares.round(), atol=1e-9)
    assert not np.array_equal(found.means[0], found.means[1])


def test_k_means_is_the_same_in_chunks_and_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    X, corner = four_clusters()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X))
    whole = all_rows(X, corner - 1, 3, 5, weights)
    monkeypatch.setattr(seeds, "_NUMBERS_AT_ONCE", 600)
    monkeypatch.setattr(reference, "HELD", 600)
    for passes in (nullcontext, by_reference):
        with passes():
            start = all_rows(X, corner - 1, 3, 5, weights)
        for name in ("weights", "means", "covariances"):
            assert_allclose(getattr(start, name), getattr(whole, name), rtol=1e-9, atol=1e-9)


def test_starts_are_drawn_from_rows_with_close_neighbours() -> None:
    """Three quarters of the weight of each class, without those that are far from all others."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 2))
    far = np.arange(0, 200, 20)
    X[far] += 40.0 * np.sign(X[far]) * np.arange(1, 11)[:, None]
    codes = np.arange(200) % 2
    frame = measure(X, structure_of("full"))
    weights = random.uniform(0.5, 1.5, size=200)
    for given in (None, weights):
        rows, own, mass = starts.without_outliers(X, codes, given, frame)
        assert not {row.tobytes() for row in rows} & {row.tobytes() for row in X[far]}
        total = np.ones(200) if given is None else given
        kept = np.ones(len(rows)) if mass is None else mass
        for c in (0, 1):
            share = kept[own == c].sum() / total[codes == c].sum()
            assert 0.75 <= share < 0.78


def log_likelihood_of(rows: FloatArray, model: Parameters, structure: Structure) -> float:
    """Of a mixture of one class."""
    n_kernels, n_features = model.means.shape
    covariances = structure.to_full(model.covariances[None], n_kernels, n_features)[0]
    logs = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(rows)
        for weight, mean, covariance in zip(model.weights[:, 0], model.means, covariances, strict=True)
    ]
    return float(logsumexp(logs, axis=0).sum())


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@each_library
def test_exchanges_raise_the_likelihood_and_find_the_clusters(
    library: str, covariance_type: str, pooled: bool
) -> None:
    """Two clusters share a kernel, and another one has two."""
    random, structure = np.random.default_rng(0), structure_of(covariance_type)
    place = np.arange(900) % 6
    corners = 12.0 * random.normal(size=(6, 4))
    rows = corners[place] + random.normal(size=(900, 4))
    labels = np.where(place == 1, 0, place)
    labels[(place == 2) & (np.arange(900) % 12 == 2)] = 1
    shares = 0.98 * (np.arange(6)[:, None] == labels) + 0.02 / 6
    mass = shares.sum(axis=1)
    means = shares @ rows / mass[:, None]
    about = rows - means[:, None]
    moments = structure.second_moment(about, about * shares[..., None]) / structure_axes(mass, structure)
    covariances = structure.from_moments(moments[None])[0]
    model = Parameters((mass / mass.sum())[:, None], means, covariances)
    exchange = Exchange(LIBRARIES[library](rows), shares, structure, pooled=pooled)
    outcome = exchange.run(model)
    after = outcome.parameters
    assert outcome.n_exchanges == 1
    assert_allclose(after.weights.sum(), 1.0)
    assert sorted(np.square(after.means[:, None] - corners).sum(axis=-1).argmin(axis=1)) == list(range(6))
    # The rows of the split kernel were 6 deviations from its mean, or more.
    assert log_likelihood_of(rows, after, structure) > log_likelihood_of(rows, model, structure) + 300.0
    assert_array_equal(model.means, means)


def structure_axes(mass: FloatArray, structure: Structure) -> FloatArray:
    """Masses (K,) with the axes of moments."""
    return mass[:, None, None] if structure.triangular else mass[:, None]


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_kernel_of_mirrored_clusters_is_split(covariance_type: str) -> None:
    """The two rows farthest from its mean are equally far, on opposite sides."""
    random, structure = np.random.default_rng(0), structure_of(covariance_type)
    side = 3.0 + 0.3 * np.abs(random.normal(size=150))
    rows = np.concatenate([-side, side, 20.0 + random.normal(size=300)])[:, None]
    owner = np.repeat([0, 1, 2], [300, 150, 150])
    shares = (np.arange(3)[:, None] == owner).astype(float)
    covariances = structure.from_common(np.ones((1, 1, 1) if structure.triangular else (1, 1)), 3)[0]
    model = Parameters(np.full((3, 1), 1 / 3), np.array([[0.0], [20.0], [20.0]]), covariances)
    after = Exchange(rows, shares, structure, pooled=False).run(model).parameters
    assert_allclose(np.sort(after.means[:, 0]), [-side.mean(), side.mean(), 20.0], atol=0.3)


def test_refinement_keeps_clusters_of_which_all_rows_have_gaps() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(2600, 2)) + np.repeat(
        [[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]], [1000, 1000, 600], axis=0
    )
    X[2000:, 0] = np.nan
    model = SharedKernelMixture(3, init="k-means", random_state=0).fit(X)
    assert_allclose(np.sort(model.weights_[:, 0]), np.array([600, 1000, 1000]) / 2600, atol=0.02)


def test_samples_for_seeds_follow_the_weights() -> None:
    """Rows that hardly count are not drawn, and on average a sample has the weighted mean."""
    random = np.random.default_rng(0)
    light = np.arange(4000) % 2 == 0
    X = random.normal(size=(4000, 1)) + np.where(light, 1000.0, 0.0)[:, None]
    classes = np.arange(4000) // 2 % 2
    weights = np.where(light, 1e-9, 1.0)
    by_class = drawn(starts.class_wise, X, classes, wanted(X, 2, 5, 4), weights)
    assert np.abs(by_class.means).max() < 10.0
    weights = np.where(light, 1.0, 3.0)
    one = drawn(starts.class_wise, X, 0 * classes, wanted(X, 1, 100, 1), weights)
    # 100 samples of 25 rows: five standard errors.
    assert one.means.mean() == pytest.approx(250.0, abs=43.0)


@pytest.mark.parametrize("many", [100, 1 << 17])
def test_samples_have_each_row_once(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn one by one, where they are a small share of many rows, or from a permutation of all."""
    monkeypatch.setattr(samples, "_MANY_ROWS", many)
    drawn = [starts.draw_rows(2000, 100, np.random.RandomState(seed)) for seed in range(40)]
    assert all(len(set(rows)) == len(rows) == 100 for rows in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=2000)
    assert np.all(np.abs(counts.reshape(4, -1).sum(axis=1) - 1000) < 150)
    assert sorted(starts.draw_rows(30, 30, np.random.RandomState(0))) == list(range(30))


@each_library
def test_seeds_are_drawn_by_their_squared_distance_from_the_others(library: str) -> None:
    sample, chances = np.random.default_rng(1).normal(size=(40, 3)), np.array([0.0, 0.3, 0.9999, 0.6])
    places, made = [7], LIBRARIES[library]
    for chance in chances:
        nearest = np.square(sample[:, None] - sample[places]).sum(axis=-1).min(axis=1).cumsum()
        places.append(int(np.flatnonzero(nearest > chance * nearest[-1])[0]))
    found = starts.draw_seeds(made(sample), made(sample[7:8]), made(chances))
    assert_array_equal(to_numpy(found), sample[places])
    # Fewer distinct rows than seeds: all of them, and one again.
    twice = np.repeat(sample[:1], 3, axis=0)
    assert_array_equal(to_numpy(starts.draw_seeds(made(twice), made(twice[:1]), made(chances[:2]))), twice)
