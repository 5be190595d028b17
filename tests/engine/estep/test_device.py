"""The engine on PyTorch tensors, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from calls import drawn, fit
from libraries import LIBRARIES, each_library, needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import as_structure

from skmix.engine import starts
from skmix.engine.conditions import rare, recorded
from skmix.engine.device import framed
from skmix.engine.device.rows import DeviceRows
from skmix.engine.estep.terms import moved
from skmix.engine.exponentials import to_shares
from skmix.engine.loop import Passes
from skmix.engine.numbers import operations_of, pick, replaced, to_numpy
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import Factor, Options, Parameters, Setting, Status
from skmix.engine.rows.summary import measure
from skmix.engine.structures import STRUCTURES, structure_of
from skmix.engine.threads import Workers

each_type = pytest.mark.parametrize("covariance_type", list(STRUCTURES))


def clusters(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of overlapping clusters, their classes with some labels missing, and weights."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(700, 4)) @ random.normal(size=(4, 4)) + 3.0 * random.integers(0, 3, (700, 1))
    return X, random.integers(0, 3, 700), random.uniform(0.5, 2.0, 700)


def start_of(
    X: np.ndarray, y: np.ndarray, covariance_type: str = "full", n_starts: int = 2, n_kernels: int = 5
) -> Parameters:
    """Return class-wise starts for three classes."""
    structure = structure_of(covariance_type)
    wanted = starts.Drawing(
        3, n_starts, n_kernels, measure(X, structure), structure, np.random.RandomState(0)
    )
    return drawn(starts.class_wise, X, y, wanted)


def parameters_agree(ours: Parameters, theirs: Parameters, tolerance: float) -> None:
    """Compare in the units of the kernels' own spread and of the weights."""
    assert_allclose(ours.weights, theirs.weights, atol=tolerance)
    scale = np.abs(theirs.means).max() + 1.0
    assert_allclose(ours.means / scale, theirs.means / scale, atol=tolerance)
    size = np.abs(theirs.covariances).max()
    assert_allclose(ours.covariances / size, theirs.covariances / size, atol=tolerance)


@each_library
@each_type
def test_narrow_kernels_far_apart_keep_their_digits(library: str, covariance_type: str) -> None:
    """Products of expanded terms would leave no digit: distances are computed from differences.

    Three of five kernels are such, so that an optimistic pass, which takes four, computes one more so.
    """
    random = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0, 0.0], [1e5, 0.0, 3.0], [0.0, -2e6, 1.0], [5e6, 5e6, 2.0], [1.0, 2.0, 3.0]])
    deviations = np.array([0.1, 1.0, 0.01]) * np.array([1e6, 1.0, 1.0, 1.0, 1e6])[:, None]
    members = random.integers(0, 5, 300)
    X = centres[members] + random.normal(size=(300, 3)) * deviations[members]
    full = np.stack([np.diag(row**2) for row in deviations])[None]
    start = Parameters(np.full((1, 5, 1), 0.2), centres[None], as_structure(full[0], covariance_type)[None])
    options = Options(covariance_type=covariance_type, max_iter=4, tol=0.0, floor=0.0)
    ours, theirs = (fit(rows, None, start, options) for rows in (X, LIBRARIES[library](X)))
    assert_allclose(theirs.path[0], ours.path[0], rtol=1e-8)
    assert_allclose(theirs.log_likelihood, ours.log_likelihood, rtol=1e-8)
    assert_allclose(theirs.parameters.covariances, ours.parameters.covariances, rtol=1e-5, atol=1e-7)


# ---------------------------------------------------------------- whole fits


@each_library
@pytest.mark.parametrize(("covariance_type", "chunk"), [("full", 70 * 27), ("spherical", 1 << 20)])
def test_a_fit_with_a_ridge_is_that_of_numpy(
    library: str, covariance_type: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks of any size, in which classes begin and end."""
    X, y, weights = clusters()
    monkeypatch.setattr(operations_of(LIBRARIES[library](X)), "chunk", chunk)
    found = start_of(X, y, covariance_type, 3)
    options = Options(covariance_type=covariance_type, max_iter=6, tol=1e-5, ridge=0.1)
    ours = fit(X, y, found, options, row_weights=weights)
    theirs = fit(LIBRARIES[library](X), y, found, options, row_weights=weights)
    assert_array_equal(ours.status, theirs.status)
    assert_array_equal(ours.n_iter, theirs.n_iter)
    parameters_agree(theirs.parameters, ours.parameters, 1e-9)
    assert_allclose(theirs.log_likelihood, ours.log_likelihood, rtol=1e-10)
    for path, expected in zip(theirs.path, ours.path, strict=True):
        assert_allclose(path, expected, rtol=1e-10)


@each_library
def test_a_start_that_becomes_singular_has_failed(library: str) -> None:
    """In a late pass, of which an optimistic one assumes that no covariance is singular."""
    X = np.concatenate([np.random.default_rng(0).normal(size=(100, 2)), np.full((3, 2), 8.0)])
    means = np.array([[[0.0, 0.0], [4.0, 4.0]]])
    start = Parameters(np.full((1, 2, 1), 0.5), means, np.tile(np.eye(2) * 16.0, (1, 2, 1, 1)))
    options = Options(max_iter=30, tol=0.0, floor=0.0)
    ours, theirs = (fit(rows, None, start, options) for rows in (X, LIBRARIES[library](X)))
    assert ours.n_iter[0] > 3
    assert ours.status == theirs.status == Status.FAILED
    assert_array_equal(theirs.n_iter, ours.n_iter)


# ---------------------------------------------------------------- optimistic passes


def parts(
    library: str, X: np.ndarray, n_kernels: int, covariance_type: str = "full"
) -> tuple[DeviceRows, Parameters, Factor, Any]:
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    wanted = starts.Drawing(1, 1, n_kernels, frame, structure, np.random.RandomState(0))
    found = drawn(starts.class_wise, X, np.zeros(len(X), dtype=np.int64), wanted)
    source = DeviceRows(LIBRARIES[library](X), None)
    problem = Problem.of(source, Options(covariance_type=covariance_type), n_kernels, frame)
    with Passes.over(problem) as passes:
        inside, factor = passes.rule.enter(frame.enter(found, structure).map(source.to_device))
    return source, inside, factor, passes.step


@each_library
def test_rare_places(library: str) -> None:
    make = LIBRARIES[library]
    values = np.zeros(40, dtype=bool)
    values[[3, 17]] = True
    assert_array_equal(rare(make(values)), [3, 17])
    assert rare(make(~values & values)) is None
    with recorded() as conditions:
        rare(make(values))
        assert conditions.counts == [2]
        assert conditions.held == []
    with recorded([2, 0, 1]) as conditions:
        found = rare(make(values))
        assert rare(make(values)) is None
        many = rare(make(np.ones(40, dtype=bool)))
        assert [to_numpy(held).any() for held in conditions.held] == [False, True, True]
    found = to_numpy(found)
    assert len(found) == len(set(found)) == 8
    assert set(found) >= {3, 17}
    assert len(to_numpy(many)) == 8
    array = np.arange(80.0).reshape(40, 2)
    index = make(found)
    got = to_numpy(replaced(make(array), index, -pick(make(array), index)))
    expected = array.copy()
    expected[found] *= -1.0
    assert_array_equal(got, expected)


@needs_torch
@pytest.mark.parametrize("condition", [1e3, 1e6, 1e9])
def test_eigenvalues_are_raised_by_products_as_by_eigenvectors(condition: float) -> None:
    random = np.random.default_rng(2)
    for order in (1, 5, 40):
        vectors = np.linalg.qr(random.normal(size=(9, order, order)))[0]
        values = condition ** random.uniform(size=(9, order))
        values[:, : (order + 1) // 2] = random.uniform(0.0, 1.5, size=(9, (order + 1) // 2))
        values[0, 0], values[1] = 0.0, 1.0
        matrices = (vectors * values[:, None, :]) @ vectors.mT
        there = torch.from_numpy(0.5 * (matrices + matrices.mT))
        got = operations_of(there).raise_to_one(there).numpy()
        expected = (vectors * np.maximum(values, 1.0)[:, None, :]) @ vectors.mT
        assert_allclose(got, expected, atol=1e-14 * order * condition)


# ---------------------------------------------------------------- chunks


@each_library
@pytest.mark.parametrize("spare", [0, 1 << 40])
def test_a_device_without_memory_gets_smaller_chunks(
    library: str, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, _ = clusters()
    operations, sizes = operations_of(LIBRARIES[library](X)), []
    monkeypatch.setattr(operations, "spare_memory", lambda: spare)
    rows, parameters, factor, step = parts(library, X, 3)
    expected, _, _ = step(parameters, factor)

    def short_of_memory(values: Any, axis: int) -> Any:
        sizes.append(values.shape[-1])
        if values.shape[-1] > 200:
            raise MemoryError("too much")
        return to_shares(values, axis)

    monkeypatch.setattr(framed, "to_shares", short_of_memory)
    got, _, _ = step(parameters, factor)
    # The first chunk is too large, with terms that are kept and then without.
    n_failed = 3 if spare else 2
    assert sizes[: n_failed - 1] == [700] * (n_failed - 1)
    assert max(sizes[n_failed:]) <= 200
    assert sum(sizes[n_failed:]) == 700
    parameters_agree(got.map(to_numpy), expected.map(to_numpy), 1e-12)
    # A captured pass must not read terms that were dropped. Memory that only a capture lacks drops none.
    before = rows.n_dropped
    monkeypatch.setattr(framed, "to_shares", Mock(side_effect=MemoryError("none at all")))
    for capturing in (True, False):
        monkeypatch.setattr(operations, "constants_of_graph", [] if capturing else None)
        with pytest.raises(MemoryError, match="none at all"):
            step(parameters, factor)
        assert (rows.n_dropped == before) is capturing


# ---------------------------------------------------------------- the seam


@needs_torch
@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_the_precision_of_products_is_the_callers_again_after_a_pass(before: str) -> None:
    own = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(before)
        with operations_of(torch.zeros(1)).precision("float32"):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == before
        with pytest.raises(ValueError, match="TF32 needs a CUDA device, got cpu"):
            operations_of(torch.zeros(1)).precision("tf32").__enter__()
    finally:
        torch.set_float32_matmul_precision(own)


@each_library
@each_type
def test_moments_are_about_given_origins_and_those_of_far_kernels_about_their_means(
    library: str, covariance_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three whole pieces, and one of 16 rows.
    monkeypatch.setattr("skmix.engine.device.framed._PIECE", 128)
    random, structure = np.random.default_rng(0), structure_of(covariance_type)
    centres = np.array([[0.0, 0.0], [3e4, 0.0], [0.0, 5e4], [2.0, 1.0]])
    X = centres[random.integers(0, 4, 400)] + random.normal(size=(400, 2))
    codes, weights = random.integers(0, 2, 400), random.uniform(0.5, 2.0, 400)
    full = np.tile(np.array([[1.0, 0.3], [0.3, 2.0]]), (1, 4, 1, 1))
    model = Parameters(
        np.full((1, 4, 2), 0.25), centres[None] + 0.1, as_structure(full[0], structure.name)[None]
    )
    frame = replace(measure(X, structure), scale=np.ones(2), shift=np.zeros(2), bound=np.full(2, 1e5))
    inside = frame.enter(model, structure)
    chosen, setting = np.array([[True, False, True, False]]), Setting(frame, structure, Workers(1))
    given = chosen, inside.means + random.normal(size=inside.means.shape)
    expected, origins = open_source(X, codes, weights).expect(
        inside, structure.factor(inside.covariances, 2), setting, given
    )
    source = open_source(LIBRARIES[library](X), codes, weights)
    there = inside.map(source.to_device)
    factor = structure.factor(there.covariances, 2)
    found, others = source.expect(there, factor, setting, tuple(map(LIBRARIES[library], given)))
    found, others = found.map(to_numpy), to_numpy(others)
    assert_array_equal(others[chosen], given[1][chosen])
    assert_array_equal(others[0, 1], inside.means[0, 1])
    found = moved(found, others, origins, structure)
    assert_allclose(found.mass, expected.mass, rtol=1e-9, atol=1e-9)
    assert_allclose(found.first, expected.first, rtol=1e-7, atol=1e-5)
    second, wanted = found.second, expected.second
    if covariance_type in ("tied", "spherical"):
        axis = 1 if covariance_type == "tied" else 2
        second, wanted = second.sum(axis=axis), wanted.sum(axis=axis)
    assert_allclose(second, wanted, rtol=1e-6, atol=1e-4)
