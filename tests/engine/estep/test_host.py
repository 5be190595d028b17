"""Passes over rows in memory, by the compiled core, are those of the reference in NumPy.

`tests/core` tests what the core computes; here is what is made of it, for kernels of every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import as_structure
from scipy.special import logsumexp

from skmix.engine.estep import host, reference
from skmix.engine.estep.inputs import Kernels, Rows
from skmix.engine.kernels import GAUSSIAN, StudentT
from skmix.engine.records import FloatArray, Frame, Parameters, Statistics
from skmix.engine.structures import structure_of
from skmix.engine.threads import Workers, workers

TYPES = ["full", "tied", "diag", "spherical"]
ONE = Workers(1)

each_type = pytest.mark.parametrize("covariance_type", TYPES)
each_size = pytest.mark.parametrize("n_features", [1, 5, 18])
each_tail = pytest.mark.parametrize("t", [False, True], ids=["Gaussian", "t"])


def rows_and_model(
    covariance_type: str, n_features: int, *, n_rows: int = 700, n_classes: int = 1, t: bool = False
) -> tuple[Rows, Parameters]:
    """Return weighted rows around the kernels of the first of five starts."""
    random = np.random.default_rng(n_features)
    means = 2.0 * random.normal(size=(5, 4, n_features))
    X = random.normal(size=(n_rows, n_features)) + means[0, random.integers(4, size=n_rows)]
    roots = random.normal(size=(5, 4, n_features, 2 * n_features)) / np.sqrt(2 * n_features)
    covariances = np.stack([as_structure(full, covariance_type) for full in roots @ roots.mT])
    weights = random.dirichlet(np.ones(4), size=(5, n_classes)).swapaxes(1, 2)
    codes = random.integers(n_classes, size=n_rows) if n_classes > 1 else None
    scale, shift = np.full(n_features, 2.0), 0.1 * random.normal(size=n_features)
    frame = Frame(scale, shift, np.ones(n_features), np.full(n_features, np.inf))
    tail = StudentT(random.uniform(1.0, 30.0, size=(5, 4))) if t else GAUSSIAN
    rows = Rows(X, codes, random.uniform(0.5, 2.0, size=n_rows), frame, n_classes)
    return rows, Parameters(weights, means, covariances, tail=tail)


def kernels_of(
    parameters: Parameters, covariance_type: str = "full", origins: FloatArray | None = None
) -> Kernels:
    """Return the kernels, with moments about the origins (R, K, M), by default the engine's."""
    structure = structure_of(covariance_type)
    factor = structure.factor(parameters.covariances, parameters.means.shape[-1])
    centres = None if origins is None else (np.ones(origins.shape[:2], dtype=bool), origins)
    return Kernels.of(parameters, factor, structure, centres)


def arrays_of(statistics: Statistics, covariance_type: str = "full") -> dict[str, FloatArray]:
    """Return the sums that are defined, by name: some second moments are, summed over kernels or features."""
    *sums, (_, of_tail) = vars(statistics).items()
    arrays = dict(sums) | {f"of_tail {i}": array for i, array in enumerate(of_tail)}
    if covariance_type in ("tied", "spherical"):
        arrays["second"] = arrays["second"].sum(axis=1 if covariance_type == "tied" else 2)
    return arrays


def assert_same(result: Statistics, expected: Statistics, covariance_type: str = "full") -> None:
    """Compare statistics to 1e-10 of their largest number."""
    arrays, others = (arrays_of(each, covariance_type) for each in (result, expected))
    assert arrays.keys() == others.keys()
    for name, other in others.items():
        assert_allclose(arrays[name], other, rtol=0, atol=1e-10 * np.abs(other).max(), err_msg=name)


@each_type
@each_size
@each_tail
def test_statistics_are_those_of_the_reference(covariance_type: str, n_features: int, t: bool) -> None:
    rows, model = rows_and_model(covariance_type, n_features, n_classes=3, t=t)
    for origins in (None, model.means, model.means + 0.3):
        kernels = kernels_of(model, covariance_type, origins)
        assert kernels.by_products.all() == (origins is None and not t and covariance_type != "full")
        expected = reference.expect(rows, kernels)
        assert_same(host.expect(rows, kernels, ONE), expected, covariance_type)
        only = host.expect(rows, kernels, ONE, with_moments=False)
        assert_allclose(only.log_likelihood, expected.log_likelihood, rtol=1e-12)


@each_type
@each_size
@each_tail
def test_log_densities_are_those_of_the_reference(covariance_type: str, n_features: int, t: bool) -> None:
    rows, model = rows_and_model(covariance_type, n_features, t=t)
    kernels = kernels_of(model.take(slice(1)), covariance_type)
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=3).T
    expected = reference.log_densities(rows, kernels, None)
    mixed = logsumexp(expected[..., None], b=weights, axis=1)
    assert_allclose(host.log_densities(rows, kernels, None, ONE), expected, rtol=1e-11)
    assert_allclose(host.log_densities(rows, kernels, weights, ONE), mixed, rtol=1e-11)
    assert_allclose(reference.log_densities(rows, kernels, weights), mixed, rtol=1e-11)


@each_type
@pytest.mark.parametrize("name", ["means", "constants", "log_weights"])
def test_nan_fails_its_start_alone(covariance_type: str, name: str) -> None:
    rows, model = rows_and_model(covariance_type, 5, n_classes=2)
    kernels = kernels_of(model, covariance_type, model.means)
    array = getattr(kernels, name).copy()
    array[(1, *(0,) * (array.ndim - 1))] = np.nan
    wild, others = replace(kernels, **{name: array}), [0, 2, 3, 4]
    for expect in (partial(host.expect, pool=ONE), reference.expect):
        result, plain = arrays_of(expect(rows, wild)), arrays_of(expect(rows, kernels))
        assert np.isnan(result["log_likelihood"].sum(axis=1)).tolist() == [False, True, False, False, False]
        for name, array in result.items():
            assert_array_equal(array[others], plain[name][others])


# ---------------------------------------------------------------- products or differences


@each_type
@pytest.mark.parametrize("n_features", [5, 18])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("room", [1 << 25, 1000])
def test_a_start_does_not_depend_on_other_starts_or_threads(
    covariance_type: str, n_features: int, n_jobs: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, nor on whether another start is far from the origin and takes differences.

    Nor on how many starts have room for their sums at a time.
    """
    monkeypatch.setattr(host, "_MOST_SUMS", room)
    rows, model = rows_and_model(covariance_type, n_features, n_rows=9000, n_classes=2)
    model.means[1] += 1e5
    kernels = kernels_of(model, covariance_type)
    is_product = covariance_type != "full"
    assert kernels.by_products.tolist() == [is_product, False, is_product, is_product, is_product]
    with workers(n_jobs) as pool:
        result = host.expect(rows, kernels, pool)
    assert_same(result, reference.expect(rows, kernels), covariance_type)
    for r in range(5):
        alone = arrays_of(host.expect(rows, kernels_of(model.take([r]), covariance_type), ONE))
        for name, array in arrays_of(result).items():
            assert_array_equal(array[r], alone[name][0])


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
    [misaligned, within_records, lambda X: X.astype(np.float32), lambda X: X.astype(">f8"), np.longdouble],
)
def test_any_array_of_numbers(change: Callable[[FloatArray], np.ndarray]) -> None:
    rows, model = rows_and_model("full", 5)
    rows = replace(rows, X=rows.X.astype(np.float32).astype(np.float64))
    expected = arrays_of(host.expect(rows, kernels_of(model), ONE))
    result = host.expect(replace(rows, X=change(rows.X)), kernels_of(model), ONE)
    for name, array in arrays_of(result).items():
        assert_array_equal(array, expected[name])
