"""Compiled code does what the reference in NumPy does."""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from skmix import SharedKernelMixture
from skmix.engine.compute import can_compile
from skmix.engine.compute.arrays import join
from skmix.engine.compute.threads import workers
from skmix.engine.em import fit
from skmix.engine.estep import reference
from skmix.engine.estep.reference import Kernels, Rows
from skmix.engine.model import FloatArray, Frame, Options, Parameters, Regulariser, Statistics
from skmix.engine.sources import open_source
from skmix.engine.structures import structure_of
from skmix.engine.tails import StudentT

pytest.importorskip("llvmlite", reason="LLVM is not installed: there is no compiled code to test")

from skmix.engine.estep import compiled

STRUCTURES = ["full", "tied", "diag", "spherical", "low_rank"]


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
    spread: float = 2.0,
    tail: str | None = None,
) -> tuple[Rows, Kernels]:
    """Return rows around the kernels of some starts; the tail may be 't'."""
    random = np.random.default_rng(n_features)
    means = spread * random.normal(size=(n_starts, n_kernels, n_features))
    X = random.normal(size=(n_rows, n_features)) + means[0, random.integers(n_kernels, size=n_rows)]
    roots = random.normal(size=(n_starts, n_kernels, n_features, 2 * n_features))
    structure = structure_of(covariance_type)
    covariances = structure.from_full(roots @ np.swapaxes(roots, -1, -2) / (2 * n_features))
    structure = structure.of(covariances)
    weights = np.swapaxes(random.dirichlet(np.ones(n_kernels), size=(n_starts, n_classes)), 1, 2)
    rows = Rows(
        X,
        random.integers(n_classes, size=n_rows) if n_classes > 1 else None,
        random.uniform(0.5, 2.0, size=n_rows) if weighted else None,
        frame_with(np.full(n_features, 2.0), 0.1 * random.normal(size=n_features)),
    )
    factor = structure.factor(covariances, n_features)
    parameters = Parameters(weights, means, covariances)
    if tail == "t":
        degrees = random.uniform(1.0, 30.0, size=(n_starts, n_kernels))
        parameters = replace(parameters, tail=StudentT(degrees))
    return rows, Kernels.of(parameters, factor, structure)


def arrays_of(statistics: Statistics) -> dict[str, FloatArray]:
    """Return the sums by name."""
    *sums, (_, of_tail) = vars(statistics).items()
    return dict(sums) | {f"of_tail {i}": array for i, array in enumerate(of_tail)}


def assert_same(found: Statistics, expected: Statistics, covariance_type: str = "full") -> None:
    """Compare statistics to 1e-10 of their largest number, those that have a meaning."""
    arrays = arrays_of(found)
    assert arrays.keys() == arrays_of(expected).keys()
    for name, value in arrays_of(expected).items():
        own = arrays[name]
        summed = {"tied": 1, "spherical": 2}.get(covariance_type)
        if summed and name == "second":
            value, own = value.sum(axis=summed), own.sum(axis=summed)
        assert_allclose(own, value, rtol=0, atol=1e-10 * np.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("tail", [None, "t"])
@pytest.mark.parametrize("n_features", [1, 5, 17, 33])
@pytest.mark.parametrize("covariance_type", STRUCTURES)
def test_statistics_are_those_of_the_reference(
    covariance_type: str, n_features: int, tail: str | None
) -> None:
    if covariance_type == "low_rank" and n_features == 1:
        pytest.skip("one feature has no factors")
    rows, kernels = problem(covariance_type, n_features, n_starts=5, n_classes=3, weighted=True, tail=tail)
    with workers(2) as pool:
        for origins in (kernels.means, kernels.means + 0.3):
            expected = reference.expect(rows, kernels, origins)
            assert_same(compiled.expect(rows, kernels, origins, pool), expected, covariance_type)
        only = compiled.expect(rows, kernels, kernels.means, pool, with_moments=False)
    assert_allclose(only.log_likelihood, expected.log_likelihood, rtol=1e-12)


def test_values_too_large_for_squares_are_clipped_on_both_sides() -> None:
    rows, kernels = problem("full", 5)
    rows.X[3, 0], rows.X[4, 1] = 1e120, -1e130
    expected = reference.expect(rows, kernels, kernels.means)
    assert 1e99 < np.abs(expected.first).max() < 1e101
    with workers(1) as pool:
        assert_same(compiled.expect(rows, kernels, kernels.means, pool), expected)


@pytest.mark.parametrize("tail", [None, "t"])
@pytest.mark.parametrize("covariance_type", STRUCTURES)
@pytest.mark.parametrize("n_features", [5, 17])
def test_log_densities_are_those_of_the_reference(
    covariance_type: str, n_features: int, tail: str | None
) -> None:
    rows, kernels = problem(covariance_type, n_features, tail=tail)
    expected = reference.log_densities(rows.cut(0, len(rows.X)) - kernels.means[..., None], kernels)[0][0]
    expected = expected[:, : len(rows.X)].T
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=3).T
    with workers(2) as pool:
        assert_allclose(compiled.evaluate(rows, kernels, None, pool), expected, rtol=1e-11)
        mixed = compiled.evaluate(rows, kernels, weights, pool)
    assert_allclose(mixed, logsumexp(expected[..., None], b=weights, axis=1), rtol=1e-11)


@pytest.mark.parametrize("tail", [None, "t"])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("n_features", [5, 17])
def test_kernels_skip_classes_in_which_they_have_no_weight(
    n_features: int, in_order: bool, tail: str | None
) -> None:
    rows, kernels = problem(
        "full", n_features, n_kernels=9, n_starts=5, n_classes=7, weighted=True, tail=tail
    )
    if in_order:
        rows = replace(rows, codes=np.sort(rows.codes))
    log_weights = kernels.log_weights.copy()
    log_weights[np.random.default_rng(0).random(log_weights.shape) < 0.7] = -np.inf
    log_weights[:, 4] = -np.inf  # a kernel without any weight
    log_weights[:, [0, 8], 3] = -1.0
    log_weights[:, 1, [0, 6]] = -1.0
    log_weights[:, 2] = -2.0  # a kernel of all classes, so that none is without kernels
    kernels = replace(kernels, log_weights=log_weights)
    expected = reference.expect(rows, kernels, kernels.means)
    with workers(1) as pool:
        found = compiled.expect(rows, kernels, kernels.means, pool)
    assert_same(found, expected)
    assert_array_equal(found.mass[np.isneginf(log_weights)], 0.0)
    assert_array_equal(found.second[:, 4], 0.0)


def test_classes_of_far_kernels_keep_their_digits() -> None:
    """A sum relative to the nearest kernel would underflow. The last class has a subnormal weight alone."""
    rows, kernels = problem("tied", 5, spread=60.0)
    # Two kernels are at the same place.
    kernels = replace(kernels, means=kernels.means[:, [0, 0, 2, 3]])
    weights = np.zeros((4, 7))
    weights[[0, 1, 2], [0, 1, 2]] = 1.0
    weights[:, 4:] = [[0.5, 0.9, 1e-310], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.1, 0.0]]
    with workers(1) as pool:
        densities = compiled.evaluate(rows, kernels, None, pool)
        mixed = compiled.evaluate(rows, kernels, weights, pool)
    assert np.sum(densities[:, 0] < densities.max(axis=1) - 1000.0) > 100
    assert np.all(mixed[:, 3] == -np.inf)
    with np.errstate(divide="ignore"):
        expected = logsumexp(densities[:, :, None] + np.log(weights), axis=1)
    assert_allclose(mixed, expected, rtol=1e-12)


@pytest.mark.parametrize("n_features", [5, 20])
def test_narrow_kernels_far_from_the_origin_keep_their_digits(n_features: int) -> None:
    rows, kernels = problem("full", n_features, n_kernels=1)
    far = np.full(n_features, 1e6)
    moved = replace(rows, X=rows.X + far * rows.frame.scale)
    exact = replace(
        rows, X=(moved.X / rows.frame.scale - far) * rows.frame.scale
    )  # what is left of the digits
    kernels_there = replace(kernels, means=kernels.means + far)
    back = replace(kernels, means=kernels_there.means - far)
    with workers(1) as pool:
        found = compiled.expect(moved, kernels_there, kernels_there.means, pool)
        expected = compiled.expect(exact, back, back.means, pool)
    assert_same(found, expected)


@pytest.mark.parametrize("covariance_type", ["tied", "diag", "spherical"])
@pytest.mark.parametrize("n_features", [5, 20])
def test_kernels_far_from_the_origin_keep_their_digits(covariance_type: str, n_features: int) -> None:
    """They are not expanded, and do not change the bits of starts that are."""
    rows, kernels = problem(covariance_type, n_features, n_starts=3)
    means = kernels.means.copy()
    means[1] += 1e5
    kernels = replace(kernels, means=means)
    with workers(1) as pool:
        found = compiled.expect(rows, kernels, means, pool)
        alone = [
            compiled.expect(rows, kernels.take(slice(r, r + 1)), means[r : r + 1], pool) for r in range(3)
        ]
    assert_same(found, reference.expect(rows, kernels, means), covariance_type)
    for name, value in arrays_of(join(alone)).items():
        assert_array_equal(arrays_of(found)[name], value)


@pytest.mark.parametrize("covariance_type", STRUCTURES)
@pytest.mark.parametrize("n_features", [5, 33])
@pytest.mark.parametrize("room", [1 << 25, 1000])
def test_bits_do_not_depend_on_threads_or_on_other_starts(
    covariance_type: str, n_features: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on how many starts have room for their sums at a time."""
    rows, kernels = problem(covariance_type, n_features, n_rows=9000, n_starts=6, n_classes=2)
    monkeypatch.setattr(compiled, "_SUMS", min(compiled._SUMS, room))
    monkeypatch.setattr(compiled, "_SUMS_TOGETHER", room)
    found, densities, one = [], [], kernels.take(slice(1))
    for n_jobs in (1, 3):
        with workers(n_jobs) as pool:
            found.append(compiled.expect(rows, kernels, kernels.means, pool))
            densities.append(compiled.evaluate(rows, one, None, pool))
    assert_array_equal(*densities)
    with workers(1) as pool:
        alone = compiled.expect(rows, kernels.take(slice(4, 5)), kernels.means[4:5], pool)
    for name, value in arrays_of(found[0]).items():
        assert_array_equal(arrays_of(found[1])[name], value)
        assert_array_equal(arrays_of(alone)[name][0], value[4])


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        np.asfortranarray,
        lambda X: np.repeat(np.repeat(X, 3, axis=1), 2, axis=0)[::2, ::3],
        lambda X: np.ascontiguousarray(X[::-1])[::-1],
    ],
)
def test_any_array_of_numbers(change) -> None:  # type: ignore[no-untyped-def]
    rows, kernels = problem("full", 5)
    rows = replace(rows, X=rows.X.astype(np.float32).astype(np.float64))
    with workers(1) as pool:
        expected = compiled.expect(rows, kernels, kernels.means, pool)
        found = compiled.expect(replace(rows, X=change(rows.X)), kernels, kernels.means, pool)
    for name, value in arrays_of(expected).items():
        assert_array_equal(arrays_of(found)[name], value)


@pytest.mark.parametrize("n_rows", [1, 2, 31, 257, 5000])
def test_every_row_is_met_once_with_its_class(n_rows: int) -> None:
    rows, kernels = problem("diag", 3, n_rows=n_rows, n_classes=5)
    assert rows.codes is not None
    with workers(1) as pool:
        found = compiled.expect(rows, kernels, kernels.means, pool)
    assert_allclose(found.mass[0].sum(axis=0), np.bincount(rows.codes, minlength=5), rtol=1e-12, atol=1e-12)


def test_exponentials_and_logarithms() -> None:
    from skmix.engine.compute import simd
    from skmix.engine.compute.native import jit

    @jit
    def both(x: FloatArray, exps: FloatArray, logs: FloatArray) -> None:
        for i in range(0, len(x), simd.LANES):
            simd.store(exps, i, simd.exp(simd.load(x, i)))
            simd.store(logs, i, simd.log(simd.load(exps, i)))

    x = -np.concatenate([np.linspace(0.0, 460.0, 4096), np.geomspace(1e-300, 1.0, 4096)])
    exps, logs = np.empty_like(x), np.empty_like(x)
    both(x, exps, logs)
    assert_allclose(exps, np.exp(x), rtol=5e-16)
    assert_allclose(logs, np.log(exps), rtol=5e-16)
    x[:] = [*[-461.0, -1e300, -np.inf, np.nan] * 2048]
    both(x, exps, np.empty_like(x))
    assert np.all(exps == 0.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("lacking", ["LLVM", "permission", "sources"])
def test_fits_without_compiled_code(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(4000, 5)) + 3.0 * random.integers(3, size=4000)[:, None]
    model = SharedKernelMixture(10, max_iter=5, tol=0.0, random_state=0)
    expected = model.fit(X).score(X)
    can_compile.cache_clear()
    if lacking == "LLVM":
        monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    elif lacking == "sources":
        monkeypatch.setattr("skmix.engine.compute.simd.__file__", "package.zip/simd.py")
    else:
        monkeypatch.setattr("llvmlite.binding.check_jit_execution", Mock(side_effect=PermissionError))
    try:
        assert not can_compile()
        assert model.fit(X).score(X) == pytest.approx(expected, rel=1e-10)
    finally:
        can_compile.cache_clear()


@pytest.mark.parametrize("dtype", [np.dtype(">f8"), np.dtype(np.longdouble)])
def test_rows_of_other_kinds_of_numbers(dtype: np.dtype) -> None:
    X = np.random.default_rng(3).normal(size=(3000, 3))
    source, own = open_source(X), open_source(X.astype(dtype))
    frame = source.summary.frame(structure_of("full"))
    _, kernels = problem("full", 3, n_kernels=30)
    start = Parameters(np.full((1, 30, 1), 1 / 30), kernels.means, np.tile(np.eye(3), (1, 30, 1, 1)))
    found = [fit(each, start, Options(max_iter=2), frame=frame) for each in (source, own)]
    assert_array_equal(found[0].log_likelihood, found[1].log_likelihood)


@pytest.mark.parametrize("covariance_type", ["diag", "spherical", "tied"])
@pytest.mark.parametrize("given", [False, True])
def test_kernels_that_become_narrow_in_one_pass_keep_their_digits(covariance_type: str, given: bool) -> None:
    random, structure = np.random.default_rng(5), structure_of(covariance_type)
    centres = random.normal(size=(3, 4))
    X = centres[np.arange(3000) % 3] + 1e-6 * random.normal(size=(3000, 4))
    covariances = structure.from_full(np.tile(0.05 * np.eye(4), (1, 3, 1, 1)))
    parameters = Parameters(np.full((1, 3, 1), 1.0 / 3.0), centres[None] + 0.05, covariances)
    kernels = Kernels.of(parameters, structure.factor(covariances, 4), structure)
    rows = Rows(X, None, None, frame_with(np.ones(4), np.zeros(4)))
    origins = centres[None] if given else kernels.means
    with workers(1) as pool:
        found = compiled.expect(rows, kernels, origins, pool)
    expected = reference.expect(rows, kernels, origins)
    assert_same(found, expected, covariance_type)
    variances = structure.update(
        (found.mass.sum(axis=-1), found.first / found.mass.sum(axis=-1)[..., None], found.second),
        Regulariser(np.zeros(4), np.zeros(4), 0.0, np.eye(4), 1.0),
    )[0]
    assert_allclose(structure.variances(variances), 1e-12, rtol=0.1)


def test_another_number_of_features_compiles_only_its_loops() -> None:
    compiled_for = set()
    for n_features in (3, 5, 17):
        rows, kernels = problem("full", n_features, n_rows=30)
        with workers(1) as pool:
            compiled.expect(rows, kernels, kernels.means, pool)
        compiled_for.add(tuple(compiled._work._entries))
    assert len(compiled_for) == 1


# ---------------------------------------------------------------- k-means


def one_by_one(x: FloatArray, masses: FloatArray | None, centres: FloatArray) -> tuple[FloatArray, list[int]]:
    """Return what `cluster` should: of equally near centres the first has the row."""
    found, clusters = np.zeros((len(centres), centres.shape[1] + 1)), []
    for n, row in enumerate(x):
        clusters.append(int(np.square(row - centres).sum(axis=1).argmin()))
        found[clusters[-1]] += (1.0 if masses is None else masses[n]) * np.append(row, 1.0)
    return found, clusters


@pytest.mark.parametrize(("n_rows", "n_features", "n_centres"), [(7, 1, 1), (300, 3, 9), (5000, 9, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_nearest_rows(
    n_rows: int, n_features: int, n_centres: int, weighted: bool
) -> None:
    """Rows and centres have small integer coordinates, so that ties are exact, as are sums."""
    random = np.random.default_rng(n_rows)
    x = np.asfortranarray(random.integers(-3, 4, size=(n_rows, n_features)) * 1.0)
    masses = random.integers(1, 4, size=n_rows).astype(np.float64) if weighted else None
    # All but the last are there twice: the second of equal ones gets nothing.
    centres = np.concatenate([random.integers(-3, 4, size=(n_centres, n_features)) * 1.0] * 2)[:-1]
    expected, clusters = one_by_one(x, masses, centres)
    rows = Rows(x, None, masses, frame_with(np.ones(n_features), np.zeros(n_features)))
    for n_jobs in (1, 2):
        with workers(n_jobs) as pool:
            found, own = compiled.cluster(rows, pool, centres)
        assert_array_equal(found, expected)
        assert_array_equal(own, clusters)
