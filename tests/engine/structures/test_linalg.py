"""Batches of small matrices: factors, determinants, and what happens to those that have none."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_covariances

from skmix.engine.model import FloatArray, Regulariser
from skmix.engine.structures import full, linalg, structure_of
from skmix.engine.structures.linalg import raise_eigenvalues, whiten_batch, whiten_bounded

ORDERS = [1, 2, 3, 7, 16, 17, 30]
"""Both sides of the order above which matrices are factored one by one."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e-30, 1e30, 1e200])
def test_whiteners_and_determinants(order: int, scale: float) -> None:
    plain = random_covariances(np.random.default_rng(0), 9, order)
    matrices = scale * plain
    before = matrices.copy()
    whiteners, log_determinants, positive = whiten_batch(matrices)
    assert_array_equal(matrices, before)
    assert positive.all()
    assert_allclose(whiteners @ matrices @ whiteners.swapaxes(1, 2), [np.eye(order)] * 9, atol=1e-11)
    expected = np.linalg.slogdet(plain)[1] + order * np.log(scale)
    assert_allclose(log_determinants, expected, rtol=1e-11, atol=1e-12)
    assert_array_equal(whiteners, np.tril(whiteners))
    assert (np.diagonal(whiteners, axis1=1, axis2=2) > 0).all()


def singular(order: int) -> dict[str, FloatArray]:
    """Return matrices of that order that have no Cholesky factor."""
    direction = np.random.default_rng(2).normal(size=order)
    indefinite = np.eye(order)
    indefinite[-1, -1] = -1.0
    broken = np.eye(order)
    broken[0, 0] = np.nan
    infinite = np.eye(order)
    infinite[0, 0] = np.inf
    found = {
        "zero": np.zeros((order, order)),
        "indefinite": indefinite,
        "negative": -np.eye(order),
        "nan": broken,
        "infinite": infinite,
    }
    if order > 1:
        found["rank one"] = np.outer(direction, direction)
        found["copied feature"] = np.eye(order)
        found["copied feature"][:2, :2] = 1.0
    return found


@pytest.mark.parametrize("order", [1, 2, 5, 17])
def test_one_bad_matrix_does_not_disturb_the_batch(order: int) -> None:
    good = random_covariances(np.random.default_rng(3), 2, order)
    alone = whiten_batch(good)
    for name, bad in singular(order).items():
        whiteners, log_determinants, positive = whiten_batch(np.stack([good[0], bad, good[1]]))
        assert_array_equal(positive, [True, False, True], err_msg=name)
        assert_allclose(whiteners[[0, 2]], alone[0], rtol=1e-13)
        assert_allclose(log_determinants[[0, 2]], alone[1], rtol=1e-13)
        assert np.isfinite(whiteners).all(), name
        assert np.isfinite(log_determinants).all(), name


@pytest.mark.parametrize("order", [1, 2, 5, 16])
def test_compiled_code_does_the_same_to_the_last_bit(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="Numba is not installed: there is no compiled code to test")
    random = np.random.default_rng(4)
    good = random_covariances(random, 21, order) * np.exp(10.0 * random.normal(size=(21, 1, 1)))
    narrow = np.ones((order, order)) + 1e-8 * np.eye(order)
    tiny, huge = 1e-310 * good[0], 1e300 * good[0]
    matrices = np.stack([*good[:10], *singular(order).values(), narrow, tiny, huge, *good[10:]])
    monkeypatch.setattr(linalg, "compiles", lambda *_: False)
    expected = whiten_batch(matrices)
    monkeypatch.setattr(linalg, "compiles", lambda *_: True)
    for found, value in zip(whiten_batch(matrices), expected, strict=True):
        assert_array_equal(found, value)


@pytest.mark.parametrize("order", [1, 2, 5, 16])
@pytest.mark.parametrize("rows", [0.0, 2.5])
def test_compiled_covariances_are_the_same_to_the_last_bit(
    order: int, rows: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="Numba is not installed: there is no compiled code to test")
    random, structure = np.random.default_rng(6), structure_of("full")
    mass, offset = random.uniform(1.0, 9.0, size=(3, 4)), 0.1 * random.normal(size=(3, 4, order))
    moments = random_covariances(random, 12, order).reshape(3, 4, order, order)
    moments[1, 2] *= 1e-4  # below the floor
    second = structure.pack(moments) * mass[..., None]
    floor, ridge = np.full(order, 0.02), random.uniform(size=order) * 1e-3
    regulariser = Regulariser(floor, ridge, rows, 1e-3 * np.eye(order) + 1e-4, 1.0)
    given = (mass, offset, second), regulariser
    monkeypatch.setattr(full, "compiles", lambda *_: False)
    expected, factor = structure.update(*given)
    monkeypatch.setattr(full, "compiles", lambda *_: True)
    found, found_factor = structure.update(*given)
    assert_array_equal(found, expected)
    assert_array_equal(found_factor.whitener, factor.whitener)
    assert_array_equal(found_factor.log_determinant, factor.log_determinant)


@pytest.mark.parametrize("order", [2, 3, 8, 17])
def test_matrices_singular_to_working_precision_are_not_positive(order: int) -> None:
    """Of half the rank: what elimination leaves is rounding, of either sign."""
    random = np.random.default_rng(7)
    size = 10.0 ** random.uniform(-5.0, 5.0, size=(50, 1, 1))
    roots = size * random.normal(size=(50, order, max(1, order // 2)))
    assert not whiten_batch(roots @ roots.swapaxes(1, 2))[2].any()


@pytest.mark.parametrize("order", [2, 3, 8, 18])
@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8])
def test_ill_conditioned_matrices_keep_their_digits(order: int, condition: float) -> None:
    """Squared lengths of whitened vectors, and determinants, against sixty digits."""
    # What 1e8 leaves of double precision is 1e-8; where there is an extended one, it must be used.
    extended = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
    for seed in range(8):
        random = np.random.default_rng(seed)
        vectors = np.linalg.qr(random.normal(size=(order, order)))[0]
        matrix = (vectors * np.geomspace(1.0, 1.0 / condition, order)) @ vectors.T
        matrix = 0.5 * (matrix + matrix.T)
        whiteners, log_determinants, positive = whiten_batch(matrix[None])
        assert positive[0]
        x = random.normal(size=order)
        with mp.workdps(60):
            # One factor for both: multiplication at 60 digits is slow.
            factor = mp.cholesky(mp.matrix(matrix.tolist()))
            white: list[mp.mpf] = []
            for i, value in enumerate(x.tolist()):
                white.append((value - sum(factor[i, j] * white[j] for j in range(i))) / factor[i, i])
            length = float(sum(each**2 for each in white))
            log_determinant = float(2 * sum(mp.log(factor[i, i]) for i in range(order)))
        assert ((whiteners[0] @ x) ** 2).sum() == pytest.approx(length, rel=1e-9 if extended else 1e-8)
        assert log_determinants[0] == pytest.approx(log_determinant, rel=1e-10 if extended else 1e-9)


@pytest.mark.parametrize("order", [1, 2, 5, 20])
def test_raised_matrices_lie_above_the_floor(order: int) -> None:
    random = np.random.default_rng(6)
    floor = 10.0 ** random.uniform(-3.0, 3.0, size=order)
    root = np.sqrt(floor)
    roots = random.normal(size=(6, order, order))
    roots[:, :, : order // 2] *= 1e-4
    matrices = roots @ roots.swapaxes(1, 2) * np.outer(root, root)
    matrices[0] = 0.0
    before = matrices.copy()
    raised = raise_eigenvalues(matrices, floor)
    assert_array_equal(matrices, before)
    assert_array_equal(raised, raised.swapaxes(1, 2))
    relative = np.linalg.eigvalsh(raised / np.outer(root, root))
    assert relative.min() > 1.0 - 1e-12
    assert_allclose(raised[0], np.diag(floor), rtol=1e-12, atol=1e-12 * floor.min())
    # Above the floor already: the same matrix.
    untouched = raise_eigenvalues(raised, floor)
    assert_allclose(untouched / np.outer(root, root), raised / np.outer(root, root), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("smallest", [0.4, 0.9, 0.99])
def test_a_floor_that_is_just_missed_is_kept_too(smallest: float) -> None:
    """The test for matrices above the floor, a trace, must not let through what is a little below it."""
    turned = np.linalg.qr(np.random.default_rng(7).normal(size=(3, 3)))[0]
    matrix = turned @ np.diag([smallest, 20.0, 30.0]) @ turned.T
    floor = np.array([1.0, 4.0, 0.25])
    unit = np.sqrt(np.outer(floor, floor))
    raised, (whiteners, log_determinants, _) = whiten_bounded((matrix * unit)[None].copy(), floor)
    assert_allclose(np.linalg.eigvalsh(raised[0] / unit), [1.0, 20.0, 30.0], rtol=1e-12)
    assert_allclose(whiteners[0] @ raised[0] @ whiteners[0].T, np.eye(3), atol=1e-12)
    assert_allclose(log_determinants[0], np.linalg.slogdet(raised[0])[1], rtol=1e-12)
