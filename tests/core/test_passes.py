"""Passes over rows do what their definition says: E-steps, log-densities and k-means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from definitions import (
    FARTHEST_SQUARED,
    STRUCTURES,
    Array,
    Problem,
    assert_close,
    densities,
    done,
    e_step,
    each_set,
    make_problem,
    mixed,
    with_a_meaning,
)
from numpy.testing import assert_allclose, assert_array_equal

from skmix._core import compiled

NAMES = "likelihood", "mass", "first", "second", "precisions", "log_ratios"
# Structures whose log-densities take differences from the means, with Gaussian and with t kernels.
FORMS = [(name, False) for name in STRUCTURES] + [
    (name, True) for name in STRUCTURES if "products" not in name
]
each_form = pytest.mark.parametrize(("structure", "t"), FORMS)
in_each_set = pytest.mark.usefixtures("instruction_set")


def origins_of(problem: Problem) -> Array:
    """Return origins for the moments: those of products are zero."""
    return np.zeros_like(problem.means) if problem.is_product else problem.means + 0.3


def check(problem: Problem, digits: float = 1e-11) -> None:
    """Compare the E-step, with and without moments, with its definition."""
    origins = origins_of(problem)
    expected = e_step(problem, origins)
    for instructions in each_set():
        results = done(compiled.e_step(problem.rows(), problem.kernels(), origins))
        for name, result, other in zip(NAMES, results, expected, strict=True):
            if name == "second":
                result, other = with_a_meaning(problem, result), with_a_meaning(problem, other)
            assert_close(result, other, digits, f"{name} by {instructions}")
        likelihood, *sums = done(compiled.e_step(problem.rows(), problem.kernels(), None))
        assert_array_equal(likelihood, results[0])
        assert not any(result.any() for result in sums)


def check_densities(problem: Problem, rtol: float = 1e-11) -> None:
    """Compare log-densities, and those of mixtures, with their definitions."""
    problem = replace(problem, log_weights=np.zeros((1, problem.means.shape[1], 1)))
    expected = densities(problem, 0)[0]
    weights = np.random.default_rng(1).dirichlet(np.ones(len(expected)), size=4).T.copy()
    weights[: len(weights) // 2, 1] = 0.0
    weights[:, 2] = 0.0
    expected_mixtures = mixed(expected, weights)
    for _ in each_set():
        of_kernels = done(compiled.log_densities(problem.rows(), problem.kernels(), None))[0]
        assert_allclose(of_kernels, expected.T, rtol=rtol, atol=rtol)
        of_mixtures = done(compiled.log_densities(problem.rows(), problem.kernels(), weights))[0]
        assert_allclose(of_mixtures, expected_mixtures, rtol=rtol, atol=rtol)


# ---------------------------------------------------------------- sizes


@each_form
@pytest.mark.parametrize("n_features", [*range(1, 19), 23, 31, 32, 33, 40, 64, 100])
def test_numbers_of_features(structure: str, t: bool, n_features: int) -> None:
    problem = make_problem(structure, n_features, n_rows=150, n_starts=2, n_classes=3, weighted=True, t=t)
    check(problem)
    check_densities(make_problem(structure, n_features, n_rows=70, t=t))


@each_form
@pytest.mark.parametrize("n_kernels", [1, 2, 5, 8, 9, 16, 17, 70])
@pytest.mark.parametrize("n_features", [3, 18])
def test_numbers_of_kernels(structure: str, t: bool, n_features: int, n_kernels: int) -> None:
    problem = make_problem(structure, n_features, n_rows=300, n_kernels=n_kernels, n_classes=2, t=t)
    check(problem)
    check_densities(make_problem(structure, n_features, n_rows=100, n_kernels=n_kernels, t=t))


@each_form
@pytest.mark.parametrize("n_starts", [1, 2, 4, 5, 9])
@pytest.mark.parametrize("n_features", [2, 17])
def test_numbers_of_starts(structure: str, t: bool, n_features: int, n_starts: int) -> None:
    check(make_problem(structure, n_features, n_starts=n_starts, n_classes=2, weighted=True, t=t))


# Vectors hold 2, 4 or 8 rows; tiles up to 1,016, 1,008 or 992, or 152, 144 or 160 where features are many;
# blocks 2,048 and more. One row fewer than a tile leaves one lane of its last vector.
EDGES = [0, 1, 2, 3, 5, 7, 8, 9, 17, 31, 33, 95, 97, 160, 161, 224, 225, 255, 256, 257]
EDGES += [143, 144, 145, 151, 152, 153, 159, 481, 511, 513, 2047, 2049, 3000, 4097, 5000]
EDGES += [991, 992, 993, 1007, 1008, 1009, 1015, 1016, 1017, 1023, 1024, 1025]


@each_form
@pytest.mark.parametrize("n_features", [3, 17])
def test_numbers_of_rows(structure: str, t: bool, n_features: int) -> None:
    for n_rows in EDGES:
        problem = make_problem(structure, n_features, n_rows=n_rows, n_classes=4, weighted=True, t=t)
        check(problem)
        check_densities(make_problem(structure, n_features, n_rows=n_rows, t=t))


@pytest.mark.parametrize("structure", ["full", "diag products"])
def test_many_blocks(structure: str) -> None:
    check(make_problem(structure, 2, n_rows=60_000, n_classes=3, weighted=True))


# ---------------------------------------------------------------- kinds of arrays


def single(X: Array) -> Array:
    return X.astype(np.float32)


def in_columns(X: Array) -> Array:
    return np.asfortranarray(X)


def part(X: Array) -> Array:
    return np.repeat(np.repeat(X, 3, axis=1), 2, axis=0)[::2, ::3]


def backwards(X: Array) -> Array:
    return np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]


def read_only(X: Array) -> Array:
    copy = X.copy()
    copy.flags.writeable = False
    return copy


def single_part(X: Array) -> Array:
    return part(single(X))


@in_each_set
@each_form
@pytest.mark.parametrize("n_features", [5, 20])
@pytest.mark.parametrize("change", [single, in_columns, part, backwards, read_only, single_part])
def test_any_array_of_numbers(structure: str, t: bool, n_features: int, change: Any) -> None:
    """Numbers that are float32 in any layout have the bits of the same float64 ones."""
    problem = make_problem(structure, n_features, n_classes=2, t=t, dtype=np.float32)
    plain = replace(problem, X=problem.X.astype(np.float64))
    changed = replace(plain, X=change(plain.X))
    origins = origins_of(problem)
    expected = done(compiled.e_step(plain.rows(), plain.kernels(), origins))
    results = done(compiled.e_step(changed.rows(), changed.kernels(), origins))
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


def test_a_column_may_be_there_many_times() -> None:
    problem = make_problem("full", 4)
    problem = replace(problem, X=np.broadcast_to(problem.X[:, :1], problem.X.shape))
    check(problem)
    check(replace(problem, X=np.broadcast_to(problem.X[:1], problem.X.shape)))


# ---------------------------------------------------------------- classes


def sparse(problem: Problem) -> Problem:
    """Return the problem with kernels that have no weight in some classes; no class is without a kernel."""
    log_weights = problem.log_weights.copy()
    log_weights[np.random.default_rng(0).random(log_weights.shape) < 0.7] = -np.inf
    log_weights[:, 4] = -np.inf  # a kernel without any weight
    log_weights[:, [0, 8], 3] = -1.0
    log_weights[:, 1, [0, 6]] = -1.0
    log_weights[:, 2] = -2.0  # a kernel of all classes
    return replace(problem, log_weights=log_weights)


@each_form
@pytest.mark.parametrize("order", ["mixed", "sorted", "rare", "missing"])
@pytest.mark.parametrize("n_features", [5, 17])
def test_kernels_skip_classes_in_which_they_have_no_weight(
    structure: str, t: bool, n_features: int, order: str
) -> None:
    problem = sparse(
        make_problem(
            structure, n_features, n_rows=700, n_kernels=9, n_starts=5, n_classes=7, weighted=True, t=t
        )
    )
    assert problem.codes is not None
    codes = {
        "mixed": problem.codes,
        "sorted": np.sort(problem.codes),
        "rare": np.where(np.arange(700) == 350, 5, 2),
        "missing": problem.codes // 3 * 3,  # classes 1, 2, 4 and 5 have no rows
    }[order]
    problem = replace(problem, codes=codes)
    check(problem)
    absent = np.bincount(codes, minlength=7) == 0
    for _ in each_set():
        results = done(compiled.e_step(problem.rows(), problem.kernels(), origins_of(problem)))
        assert_array_equal(results[1][np.isneginf(problem.log_weights)], 0.0)
        assert_array_equal(results[2][:, 4], 0.0)
        assert_array_equal(results[0][:, absent], 0.0)
        assert_array_equal(results[1][..., absent], 0.0)


@each_form
@pytest.mark.parametrize("n_features", [3, 17])
def test_a_kernel_without_a_weight_has_no_rows(structure: str, t: bool, n_features: int) -> None:
    problem = make_problem(structure, n_features, n_kernels=4, n_starts=2, weighted=True, t=t)
    problem.log_weights[0, 0], problem.log_weights[1, 3] = -np.inf, -np.inf
    check(problem)
    for _ in each_set():
        _, *sums = done(compiled.e_step(problem.rows(), problem.kernels(), origins_of(problem)))
        for array in sums if t else sums[:3]:
            assert_array_equal(array[[0, 1], [0, 3]], 0.0)


@in_each_set
@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_row_is_met_once_with_its_class(structure: str) -> None:
    problem = make_problem(structure, 3, n_rows=5000, n_classes=5)
    mass = done(compiled.e_step(problem.rows(), problem.kernels(), origins_of(problem)))[1]
    assert problem.codes is not None
    assert_allclose(mass[0].sum(axis=0), np.bincount(problem.codes, minlength=5), rtol=1e-12)


@in_each_set
@pytest.mark.parametrize("structure", STRUCTURES)
def test_mixtures_without_the_near_kernels_keep_their_digits(structure: str) -> None:
    """A sum relative to the nearest kernel would underflow; the last mixture has a subnormal weight alone."""
    problem = make_problem(structure, 5, n_kernels=4)
    means = problem.means * 15.0
    means[:, 1] = means[:, 0]
    x = np.random.default_rng(0).normal(size=problem.X.shape) + means[0, np.arange(300) % 4]
    problem = replace(problem, X=(x + problem.shift) / problem.scale, means=means)
    weights = np.zeros((4, 7))
    weights[[0, 1, 2], [0, 1, 2]] = 1.0
    weights[:, 4:] = [[0.5, 0.9, 1e-310], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.1, 0.0]]
    values = done(compiled.log_densities(problem.rows(), problem.kernels(), None))[0]
    mixtures = done(compiled.log_densities(problem.rows(), problem.kernels(), weights))[0]
    assert np.sum(values[:, 0] < values.max(axis=1) - 1000.0) > 50
    assert np.all(mixtures[:, 3] == -np.inf)
    assert_allclose(mixtures, mixed(values.T, weights), rtol=1e-12)


# ---------------------------------------------------------------- digits


@in_each_set
@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("structure", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("n_features", [5, 20])
def test_kernels_far_from_the_origin_keep_their_digits(structure: str, n_features: int, t: bool) -> None:
    """Moved by a power of two, differences are the same numbers, and so are all results."""
    problem = make_problem(structure, n_features, t=t)
    ones, zeros, far = np.ones(n_features), np.zeros(n_features), 2.0**26
    # Multiples of 2^-20, which have all their digits when moved.
    X, means = np.round(problem.X * 2.0**20) * 2.0**-20, np.round(problem.means * 2.0**20) * 2.0**-20
    near = replace(problem, X=X, means=means, scale=ones, shift=zeros)
    moved = replace(near, X=X + far, means=means + far)
    expected = done(compiled.e_step(near.rows(), near.kernels(), near.means))
    results = done(compiled.e_step(moved.rows(), moved.kernels(), moved.means))
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_values_beyond_the_limit_are_clipped_on_both_sides(structure: str) -> None:
    problem = make_problem(structure, 5, n_classes=2)
    problem.X[3, 0], problem.X[4, 1] = 1e120, -1e130
    if not problem.is_product:
        check(problem)
    else:
        # Squares of such rows swamp all others, so what they leave of moments is theirs alone.
        for _ in each_set():
            results = done(compiled.e_step(problem.rows(), problem.kernels(), np.zeros_like(problem.means)))
            assert all(np.isfinite(result).all() for result in results)
            assert np.abs(results[2].sum(axis=1)).max() == pytest.approx(1e100)
    check_densities(replace(problem, codes=None))


def check_kernel_by_kernel(problem: Problem, digits: float) -> None:
    """Compare the sums of each kernel with their definition, however small they are beside the others."""
    origins = np.zeros_like(problem.means)
    expected = e_step(problem, origins)
    for instructions in each_set():
        results = done(compiled.e_step(problem.rows(), problem.kernels(), origins))
        for name, result, other in zip(NAMES[1:], results[1:], expected[1:], strict=True):
            if name == "second":
                result, other = with_a_meaning(problem, result), with_a_meaning(problem, other)
            for k in range(problem.means.shape[1] if result.size else 0):
                assert_close(result[:, k], other[:, k], digits, f"{name} of kernel {k} by {instructions}")


@each_form
@pytest.mark.parametrize("n_features", [3, 17])
def test_sums_of_small_responsibilities_keep_their_digits(structure: str, t: bool, n_features: int) -> None:
    """Down to responsibilities near 1e-170 of all rows."""
    problem = make_problem(structure, n_features, n_rows=400, n_kernels=4, weighted=True, t=t)
    problem.log_weights[:] = np.array([0.0, -50.0, -200.0, -400.0])[:, None]
    # Kernels in one place, so that no row belongs to the small ones.
    problem = replace(problem, means=problem.means[:, :1] + 0.1 * problem.means)
    check_kernel_by_kernel(problem, 1e-10)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_features", [3, 17])
def test_a_far_row_counts_where_its_responsibility_is_small(structure: str, n_features: int) -> None:
    """Its square, 1e10, times a responsibility of 2e-16 is in the ninth digit of the second moments."""
    random = np.random.default_rng(0)
    means = np.zeros((1, 2, n_features))
    means[0, :, 0] = 3.0, -3.0
    X = np.concatenate([random.normal(size=(60, n_features)) + mean for mean in means[0]])
    X[7] = 0.0
    X[7, :2] = 6.0, 1e5
    ones, zeros = np.ones(n_features), np.zeros(n_features)
    problem = make_problem(structure, n_features, n_kernels=2)
    is_matrix = problem.whiteners.ndim == 4
    whiteners = np.broadcast_to(np.eye(n_features) if is_matrix else ones, problem.whiteners.shape).copy()
    problem = replace(problem, X=X, scale=ones, shift=zeros, means=means, whiteners=whiteners)
    problem = replace(problem, constants=np.zeros((1, 2)), log_weights=np.zeros((1, 2, 1)))
    near = replace(problem, X=np.delete(X, 7, axis=0))
    second, without = (e_step(rows, np.zeros_like(means))[3][0, 1] for rows in (problem, near))
    assert np.abs(second - without).max() > 1e-10 * np.abs(second).max()
    check_kernel_by_kernel(problem, 1e-12)


@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("structure", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("n_features", [3, 17])
def test_distances_end_before_infinity(structure: str, n_features: int, t: bool) -> None:
    problem = make_problem(structure, n_features, t=t)
    problem.whiteners[:] *= 1e180
    with np.errstate(over="ignore"):
        values = densities(problem, 0)[0]
        assert t or values.min() == values.max() == -0.5 * FARTHEST_SQUARED
        check(problem)
        check_densities(problem)


@in_each_set
@each_form
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("n_features", [3, 18])
def test_nan_of_any_kernel_fails_its_start(structure: str, t: bool, n_features: int, place: int) -> None:
    problem = make_problem(structure, n_features, n_starts=3, n_classes=2, t=t)
    for name in ("means", "whiteners", "constants", "log_weights", "degrees"):
        if getattr(problem, name) is None:
            continue
        array = getattr(problem, name).copy()
        array[1].flat[place] = np.nan
        broken = replace(problem, **{name: array})
        for origins in (origins_of(problem), None):
            likelihood = done(compiled.e_step(broken.rows(), broken.kernels(), origins))[0]
            assert_array_equal(np.isnan(likelihood), [[False] * 2, [True] * 2, [False] * 2], err_msg=name)


@in_each_set
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e100, -1e100, 1e308, 0.0])
@pytest.mark.parametrize("name", ["means", "whiteners", "constants", "log_weights", "degrees"])
@pytest.mark.parametrize("n_features", [3, 18])
def test_wild_parameters_do_no_harm(n_features: int, name: str, value: float) -> None:
    """Whatever they are, the pass ends, and the other starts have their bits."""
    for structure, t in FORMS:
        problem = make_problem(structure, n_features, n_starts=3, n_classes=2, t=t)
        array = getattr(problem, name)
        if array is None:
            continue
        changed = array.copy()
        changed[1, 0] = value
        wild = replace(problem, **{name: changed})
        origins = origins_of(problem)
        results = done(compiled.e_step(wild.rows(), wild.kernels(), origins))
        expected = done(compiled.e_step(problem.rows(), problem.kernels(), origins))
        for result, other in zip(results, expected, strict=True):
            assert_array_equal(result[[0, 2]], other[[0, 2]])


# ---------------------------------------------------------------- rows by themselves


@in_each_set
@each_form
@pytest.mark.parametrize("n_features", [4, 19])
@pytest.mark.parametrize("n_mixtures", [None, 3])
def test_the_densities_of_a_row_do_not_depend_on_other_rows(
    structure: str, t: bool, n_features: int, n_mixtures: int | None
) -> None:
    problem = make_problem(structure, n_features, n_rows=700, n_kernels=5, t=t)
    random = np.random.default_rng(0)
    weights = None if n_mixtures is None else random.dirichlet(np.ones(5), size=n_mixtures).T.copy()

    def score(X: Array) -> Array:
        rows = replace(problem, X=X).rows()
        return done(compiled.log_densities(rows, problem.kernels(), weights))[0]

    whole = score(problem.X)
    for size in (1, 2, 3, 8, 63, 257):
        cuts = range(0, 700 if size > 1 else 40, size)
        parts = np.concatenate([score(problem.X[a : a + size]) for a in cuts])
        assert_array_equal(parts, whole[: len(parts)])
    order = random.permutation(700)
    assert_array_equal(score(problem.X[order]), whole[order])
    # Beside rows that are far away.
    others = np.concatenate([problem.X[:9], 1e200 * problem.X[9:]])
    assert_array_equal(score(others)[:9], whole[:9])


# ---------------------------------------------------------------- k-means


def nearest_by_definition(x: Array, weights: Array, centres: Array) -> tuple[Array, Array]:
    """Return the sums and the numbers of the nearest centres; of equally near ones the first has the row."""
    nearest = np.square(x[:, None] - centres).sum(axis=2).argmin(axis=1)
    sums = np.zeros((len(centres), centres.shape[1] + 1))
    np.add.at(sums, nearest, np.column_stack([x, np.ones(len(x))]) * weights[:, None])
    return sums, nearest


@in_each_set
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_centres"),
    [(0, 3, 2), (1, 1, 1), (7, 1, 3), (300, 3, 9), (301, 16, 4), (500, 17, 33), (5000, 9, 5), (700, 100, 3)],
)
def test_rows_belong_to_the_nearest_centre(
    n_rows: int, n_features: int, n_centres: int, weighted: bool
) -> None:
    """Rows and centres have small integer coordinates, so that ties are exact, as are sums."""
    random = np.random.default_rng(n_rows)
    x = np.asfortranarray(random.integers(-3, 4, size=(n_rows, n_features)) * 1.0)
    weights = random.integers(1, 4, size=n_rows).astype(np.float64) if weighted else None
    # All but the last are there twice: the second of equal ones gets nothing.
    centres = np.concatenate([random.integers(-3, 4, size=(n_centres, n_features)) * 1.0] * 2)[:-1].copy()
    expected = nearest_by_definition(x, np.ones(n_rows) if weights is None else weights, centres)
    for kind in (np.float64, np.float32):
        rows = compiled.Rows(
            x.astype(kind), None, weights, np.ones(n_features), np.zeros(n_features), 1e100, 1
        )
        for n_threads in (1, 2):
            sums, nearest = done(compiled.lloyd(rows, centres), n_threads)
            assert_array_equal(sums, expected[0])
            assert_array_equal(nearest, expected[1])


@in_each_set
@pytest.mark.parametrize("n_features", [*range(1, 18), 33, 64])
def test_every_row_is_beside_its_nearest_centre(n_features: int) -> None:
    """Around the sizes of vectors and tiles; the last centre is far from all rows, and has none."""
    random = np.random.default_rng(n_features)
    centres = random.integers(-3, 4, size=(4, n_features)) * 1.0
    centres[3] = 100.0
    for n_rows in (0, 1, 7, 8, 143, 144, 145, 151, 152, 153, 159, 160, 161, 1023, 1024, 1025, 3000):
        x = random.integers(-3, 4, size=(n_rows, n_features)) * 1.0
        weights = random.integers(1, 4, size=n_rows) * 1.0
        ones, zeros = np.ones(n_features), np.zeros(n_features)
        sums, nearest = done(compiled.lloyd(compiled.Rows(x, None, weights, ones, zeros, 1e100, 1), centres))
        expected = nearest_by_definition(x, weights, centres)
        assert_array_equal(sums, expected[0])
        assert_array_equal(nearest, expected[1])
        assert_array_equal(sums[3], 0.0)


@in_each_set
def test_lloyd_sees_rows_in_their_frame() -> None:
    random = np.random.default_rng(0)
    X, scale, shift = random.normal(size=(400, 3)), np.array([2.0, 0.5, 4.0]), np.array([1.0, -2.0, 0.5])
    centres = random.normal(size=(6, 3))
    expected = nearest_by_definition(X * scale - shift, np.ones(400), centres)
    sums, nearest = done(compiled.lloyd(compiled.Rows(X, None, None, scale, shift, 1e100, 1), centres))
    assert_allclose(sums, expected[0], rtol=1e-12)
    assert_array_equal(nearest, expected[1])
