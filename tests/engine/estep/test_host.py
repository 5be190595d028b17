"""Passes over rows in memory, by the compiled core, are those of the reference in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from by_reference import by_reference
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from skmix.engine.estep import host, reference
from skmix.engine.estep.reference import Kernels, Rows
from skmix.engine.kernels import StudentT
from skmix.engine.loop import fit
from skmix.engine.numbers import join
from skmix.engine.problem import open_source
from skmix.engine.records import FloatArray, Frame, Options, Parameters, Regulariser, Statistics
from skmix.engine.structures import structure_of
from skmix.engine.threads import workers

STRUCTURES = ["full", "tied", "diag", "spherical"]


def frame_with(scale: FloatArray, shift: FloatArray) -> Frame:
    """Return a frame of that scale and shift."""
    return Frame(scale, shift, np.ones_like(scale), np.full_like(scale, np.inf))


def problem(
    covariance_type: str,
    n_features: int,
    *,
    n_rows: int = 700,
    n_kernels: int = 4,
    n_starts: int = 1,
    n_classes: int = 1,
    weighted: bool = False,
    t: bool = False,
) -> tuple[Rows, Kernels]:
    """Return rows around the kernels of the first start."""
    random = np.random.default_rng(n_features)
    means = 2.0 * random.normal(size=(n_starts, n_kernels, n_features))
    X = random.normal(size=(n_rows, n_features)) + means[0, random.integers(n_kernels, size=n_rows)]
    roots = random.normal(size=(n_starts, n_kernels, n_features, 2 * n_features))
    structure = structure_of(covariance_type)
    covariances = structure.from_full(roots @ np.swapaxes(roots, -1, -2) / (2 * n_features))
    weights = np.swapaxes(random.dirichlet(np.ones(n_kernels), size=(n_starts, n_classes)), 1, 2)
    rows = Rows(
        X,
        random.integers(n_classes, size=n_rows) if n_classes > 1 else None,
        random.uniform(0.5, 2.0, size=n_rows) if weighted else None,
        frame_with(np.full(n_features, 2.0), 0.1 * random.normal(size=n_features)),
    )
    parameters = Parameters(weights, means, covariances)
    if t:
        degrees = random.uniform(1.0, 30.0, size=(n_starts, n_kernels))
        parameters = replace(parameters, tail=StudentT(degrees))
    return rows, Kernels.of(parameters, structure.factor(covariances, n_features), structure)


def arrays_of(statistics: Statistics) -> dict[str, FloatArray]:
    """Return the sums by name."""
    *sums, (_, of_tail) = vars(statistics).items()
    return dict(sums) | {f"of_tail {i}": array for i, array in enumerate(of_tail)}


def assert_same(result: Statistics, expected: Statistics, covariance_type: str = "full") -> None:
    """Compare statistics to 1e-10 of their largest number, those that have a meaning."""
    arrays = arrays_of(result)
    assert arrays.keys() == arrays_of(expected).keys()
    for name, value in arrays_of(expected).items():
        array = arrays[name]
        summed = {"tied": 1, "spherical": 2}.get(covariance_type)
        if summed and name == "second":
            value, array = value.sum(axis=summed), array.sum(axis=summed)
        assert_allclose(array, value, rtol=0, atol=1e-10 * np.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("n_features", [1, 5, 17, 33])
@pytest.mark.parametrize("covariance_type", STRUCTURES)
def test_statistics_are_those_of_the_reference(covariance_type: str, n_features: int, t: bool) -> None:
    rows, kernels = problem(covariance_type, n_features, n_starts=5, n_classes=3, weighted=True, t=t)
    with workers(2) as pool:
        # Moments about zero are products of matrices where the structure has them.
        for origins in (kernels.means, kernels.means + 0.3, 0.0 * kernels.means):
            expected = reference.expect(rows, kernels, origins)
            assert_same(host.expect(rows, kernels, origins, pool), expected, covariance_type)
        only = host.expect(rows, kernels, kernels.means, pool, with_moments=False)
    assert_allclose(only.log_likelihood, expected.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("covariance_type", STRUCTURES)
@pytest.mark.parametrize("n_features", [5, 17])
def test_log_densities_are_those_of_the_reference(covariance_type: str, n_features: int, t: bool) -> None:
    rows, kernels = problem(covariance_type, n_features, t=t)
    expected = reference.all_log_densities(rows, kernels, None)
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=3).T
    with workers(2) as pool:
        assert_allclose(host.log_densities(rows, kernels, None, pool), expected, rtol=1e-11)
        mixed = host.log_densities(rows, kernels, weights, pool)
    assert_allclose(mixed, logsumexp(expected[..., None], b=weights, axis=1), rtol=1e-11)
    assert_allclose(mixed, reference.all_log_densities(rows, kernels, weights), rtol=1e-11)


def test_k_means_is_that_of_the_reference() -> None:
    rows, kernels = problem("full", 5, weighted=True)
    with workers(2) as pool:
        sums, nearest = host.lloyd(rows, pool, kernels.means[0])
    expected = reference.lloyd(rows, kernels.means[0])
    assert_allclose(sums, expected[0], rtol=1e-11)
    assert_array_equal(nearest, expected[1])


WILD = ("means", "whitener", "constants", "log_weights")


@pytest.mark.parametrize("value", [np.nan, 1e100, -1e100])
@pytest.mark.parametrize("name", WILD)
@pytest.mark.parametrize("n_features", [3, 18])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_wild_parameters_give_the_likelihood_of_the_reference(
    covariance_type: str, n_features: int, name: str, value: float
) -> None:
    """NaN fails the start: its likelihood is NaN. The other starts keep their bits."""
    rows, kernels = problem(covariance_type, n_features, n_starts=3, n_classes=2)
    array = (kernels.factor.whitener if name == "whitener" else getattr(kernels, name)).copy()
    array[(1, *(0,) * (array.ndim - 1))] = value
    if name == "whitener":
        wild = replace(kernels, factor=replace(kernels.factor, whitener=array))
    else:
        wild = replace(kernels, **{name: array})
    with workers(1) as pool, np.errstate(all="ignore"):
        result = host.expect(rows, wild, wild.means, pool)
        likelihood = host.expect(rows, wild, wild.means, pool, with_moments=False).log_likelihood
        plain = host.expect(rows, kernels, kernels.means, pool)
        with by_reference():
            expected = host.expect(rows, wild, wild.means, pool).log_likelihood.sum(axis=1)
    assert_array_equal(likelihood, result.log_likelihood)
    total = result.log_likelihood.sum(axis=1)
    assert_array_equal(np.isnan(total), np.isnan(expected))
    if np.isnan(value):
        assert_array_equal(np.isnan(total), [False, True, False])
    assert_allclose(total, expected, rtol=1e-9)
    for array, other in zip(arrays_of(result).values(), arrays_of(plain).values(), strict=True):
        assert_array_equal(array[[0, 2]], other[[0, 2]])


def test_values_too_large_for_squares_are_clipped_on_both_sides() -> None:
    rows, kernels = problem("full", 5)
    rows.X[3, 0], rows.X[4, 1] = 1e120, -1e130
    expected = reference.expect(rows, kernels, kernels.means)
    assert 1e99 < np.abs(expected.first).max() < 1e101
    with workers(1) as pool:
        assert_same(host.expect(rows, kernels, kernels.means, pool), expected)


@pytest.mark.parametrize("n_features", [5, 20])
def test_narrow_kernels_far_from_the_origin_keep_their_digits(n_features: int) -> None:
    rows, kernels = problem("full", n_features, n_kernels=1)
    far = np.full(n_features, 1e6)
    moved = replace(rows, X=rows.X + far * rows.frame.scale)
    # What is left of the digits.
    exact = replace(rows, X=(moved.X / rows.frame.scale - far) * rows.frame.scale)
    kernels_there = replace(kernels, means=kernels.means + far)
    back = replace(kernels, means=kernels_there.means - far)
    with workers(1) as pool:
        result = host.expect(moved, kernels_there, kernels_there.means, pool)
        expected = host.expect(exact, back, back.means, pool)
    assert_same(result, expected)


@pytest.mark.parametrize("covariance_type", ["tied", "diag", "spherical"])
@pytest.mark.parametrize("n_features", [5, 20])
def test_kernels_far_from_the_origin_keep_their_digits(covariance_type: str, n_features: int) -> None:
    """They take differences from the means, and do not change the bits of starts that are products."""
    rows, kernels = problem(covariance_type, n_features, n_starts=3)
    means = kernels.means.copy()
    means[1] += 1e5
    kernels = replace(kernels, means=means)
    near = host.near_origin(kernels.means, kernels.factor, kernels.structure, kernels.tail)
    origins = np.where(near[:, None, None], 0.0, means)
    with workers(1) as pool:
        result = host.expect(rows, kernels, origins, pool)
        alone = [host.expect(rows, kernels.take(slice(r, r + 1)), origins[r : r + 1], pool) for r in range(3)]
    assert_same(result, reference.expect(rows, kernels, origins), covariance_type)
    for name, value in arrays_of(join(alone)).items():
        assert_array_equal(arrays_of(result)[name], value)


@pytest.mark.parametrize("covariance_type", STRUCTURES)
@pytest.mark.parametrize("n_features", [5, 33])
@pytest.mark.parametrize("room", [1 << 25, 1000])
def test_bits_do_not_depend_on_threads_or_on_other_starts(
    covariance_type: str, n_features: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on how many starts have room for their sums at a time."""
    rows, kernels = problem(covariance_type, n_features, n_rows=9000, n_starts=6, n_classes=2)
    monkeypatch.setattr(host, "_MOST_SUMS", room)
    statistics, densities, one = [], [], kernels.take(slice(1))
    for n_jobs in (1, 3):
        with workers(n_jobs) as pool:
            statistics.append(host.expect(rows, kernels, kernels.means, pool))
            densities.append(host.log_densities(rows, one, None, pool))
    assert_array_equal(*densities)
    with workers(1) as pool:
        alone = host.expect(rows, kernels.take(slice(4, 5)), kernels.means[4:5], pool)
    for name, value in arrays_of(statistics[0]).items():
        assert_array_equal(arrays_of(statistics[1])[name], value)
        assert_array_equal(arrays_of(alone)[name][0], value[4])


def misaligned(X: FloatArray) -> FloatArray:
    """Return the rows at an address that is not a multiple of eight."""
    memory = np.zeros(X.nbytes + 1, dtype=np.uint8)
    memory[1:] = np.frombuffer(X.tobytes(), dtype=np.uint8)
    return memory[1:].view(X.dtype).reshape(X.shape)


def within_records(X: FloatArray) -> FloatArray:
    """Return the rows in memory where each number follows a byte."""
    records = np.zeros(X.shape, dtype=[("byte", "i1"), ("number", X.dtype)])
    records["number"] = X
    return records["number"]


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        np.asfortranarray,
        lambda X: np.repeat(np.repeat(X, 3, axis=1), 2, axis=0)[::2, ::3],
        lambda X: np.ascontiguousarray(X[::-1])[::-1],
        lambda X: np.ascontiguousarray(X[:, ::-1])[:, ::-1],
        misaligned,
        within_records,
    ],
)
def test_any_array_of_numbers(change) -> None:  # type: ignore[no-untyped-def]
    rows, kernels = problem("full", 5)
    rows = replace(rows, X=rows.X.astype(np.float32).astype(np.float64))
    with workers(1) as pool:
        expected = host.expect(rows, kernels, kernels.means, pool)
        result = host.expect(replace(rows, X=change(rows.X)), kernels, kernels.means, pool)
    for name, value in arrays_of(expected).items():
        assert_array_equal(arrays_of(result)[name], value)


@pytest.mark.parametrize("dtype", [np.dtype(">f8"), np.dtype(np.longdouble)])
def test_rows_of_other_kinds_of_numbers(dtype: np.dtype) -> None:
    X = np.random.default_rng(3).normal(size=(3000, 3))
    source, other = open_source(X), open_source(X.astype(dtype))
    frame = source.summary.frame(structure_of("full"))
    _, kernels = problem("full", 3, n_kernels=30)
    start = Parameters(np.full((1, 30, 1), 1 / 30), kernels.means, np.tile(np.eye(3), (1, 30, 1, 1)))
    fits = [fit(rows, start, Options(max_iter=2), frame=frame) for rows in (source, other)]
    assert_array_equal(fits[0].log_likelihood, fits[1].log_likelihood)


@pytest.mark.parametrize("covariance_type", ["diag", "spherical", "tied"])
@pytest.mark.parametrize("about_centres", [False, True])
def test_kernels_that_become_narrow_in_one_pass_keep_their_digits(
    covariance_type: str, about_centres: bool
) -> None:
    random, structure = np.random.default_rng(5), structure_of(covariance_type)
    centres = random.normal(size=(3, 4))
    X = centres[np.arange(3000) % 3] + 1e-6 * random.normal(size=(3000, 4))
    covariances = structure.from_full(np.tile(0.05 * np.eye(4), (1, 3, 1, 1)))
    parameters = Parameters(np.full((1, 3, 1), 1.0 / 3.0), centres[None] + 0.05, covariances)
    kernels = Kernels.of(parameters, structure.factor(covariances, 4), structure)
    rows = Rows(X, None, None, frame_with(np.ones(4), np.zeros(4)))
    origins = centres[None] if about_centres else kernels.means
    with workers(1) as pool:
        result = host.expect(rows, kernels, origins, pool)
    expected = reference.expect(rows, kernels, origins)
    assert_same(result, expected, covariance_type)
    variances = structure.update(
        (result.mass.sum(axis=-1), result.first / result.mass.sum(axis=-1)[..., None], result.second),
        Regulariser(np.zeros(4), np.zeros(4), 0.0, np.eye(4), 1.0),
    )[0]
    assert_allclose(structure.variances(variances), 1e-12, rtol=0.1)
