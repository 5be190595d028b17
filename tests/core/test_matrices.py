"""Whiteners of batches of matrices, and the completion of rows with gaps, against NumPy's linear algebra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from definitions import Array, Gaps, assert_close, complete, done, make_gaps
from numpy.testing import assert_allclose, assert_array_equal

from skmix._core import compiled

pytestmark = pytest.mark.usefixtures("instruction_set")

# Pivots below this, relative to the diagonal, are zero.
SINGULAR = float(4 * np.finfo(np.float64).eps)


def covariances(order: int, count: int) -> Array:
    """Return positive definite matrices (count, M, M) whose features have many units."""
    random = np.random.default_rng(order)
    roots = random.normal(size=(count, order, order + 3))
    units = 10.0 ** random.uniform(-20.0, 20.0, size=(count, order))
    return roots @ roots.swapaxes(1, 2) * units[:, :, None] * units[:, None]


def whiten(matrices: Array, n_threads: int = 1) -> tuple[Array, ...]:
    return done(compiled.whiten(matrices, SINGULAR), n_threads)


def scaled(matrices: Array) -> tuple[Array, Array]:
    """Return matrices with a diagonal of ones, and the deviations (B, M)."""
    deviations = np.sqrt(np.einsum("bii->bi", matrices))
    return matrices / deviations[:, :, None] / deviations[:, None], deviations


@pytest.mark.parametrize("order", [*range(1, 18), 23, 31, 32, 33, 40, 100])
def test_whiteners_are_inverse_factors(order: int) -> None:
    matrices = covariances(order, 7)
    before = matrices.copy()
    whiteners, log_determinants, positive, inflations = whiten(matrices)
    assert_array_equal(matrices, before)
    assert positive.dtype == bool
    assert positive.all()
    correlations, deviations = scaled(matrices)
    inverses = np.linalg.inv(correlations)
    white = whiteners * deviations[:, None]
    assert_array_equal(whiteners, np.tril(whiteners))
    assert (np.einsum("bii->bi", whiteners) > 0.0).all()
    assert_allclose(white @ correlations @ white.swapaxes(1, 2), [np.eye(order)] * 7, atol=1e-9)
    expected = np.linalg.slogdet(correlations)[1] + 2.0 * np.log(deviations).sum(axis=1)
    assert_allclose(log_determinants, expected, rtol=1e-9, atol=1e-9)
    assert_allclose(inflations, np.einsum("bii->bi", inverses).max(axis=1), rtol=1e-7)


@pytest.mark.parametrize("count", [0, 1, 2, 500])
@pytest.mark.parametrize("order", [1, 5, 33])
def test_a_matrix_does_not_depend_on_the_others_or_on_threads(order: int, count: int) -> None:
    matrices = covariances(order, count)
    results = whiten(matrices)
    for n_threads in (2, 3, 8):
        for result, other in zip(whiten(matrices, n_threads), results, strict=True):
            assert_array_equal(result, other)
    for b in (0, count // 2, count - 1) if count else ():
        for result, other in zip(whiten(matrices[b : b + 1]), results, strict=True):
            assert_array_equal(result[0], other[b])


@pytest.mark.parametrize("order", [1, 2, 5, 17])
def test_matrices_that_are_not_positive_definite(order: int) -> None:
    """The core says so, writes the identity and zero, and does not disturb the batch."""
    eye = np.eye(order)
    last = np.zeros((order, order))
    last[-1, -1] = 1.0
    bad = {
        "zero": 0.0 * eye,
        "negative": -eye,
        "indefinite": eye - 2.0 * last,
        "large and negative": 1e8 * (eye - 2.0 * last),
        "nan": np.where(last > 0, np.nan, eye),
        "infinite": np.where(last > 0, np.inf, eye),
        "all nan": np.full_like(eye, np.nan),
    }
    if order > 1:
        bad["rank one"] = np.ones((order, order))
        bad["nan beside the diagonal"] = np.where(np.eye(order, k=-1) > 0, np.nan, eye)
        bad["correlations above one"] = np.where(eye > 0, 1.0, 1.0 + 1e-9)
        bad["large correlations above one"] = 1e8 * bad["correlations above one"]
        bad["infinite beside the diagonal"] = np.where(np.eye(order, k=-1) > 0, np.inf, eye)
    good = covariances(order, 2)
    alone = whiten(good)
    for name, matrix in bad.items():
        results = whiten(np.stack([good[0], matrix, good[1]]))
        assert_array_equal(results[2], [True, False, True], err_msg=name)
        assert_array_equal(results[0][1], eye, err_msg=name)
        assert results[1][1] == 0.0, name
        assert results[3][1] == np.inf, name
        for result, other in zip(results, alone, strict=True):
            assert_array_equal(result[[0, 2]], other, err_msg=name)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1e300, 1.7e308])
def test_variances_at_the_ends_of_the_range(scale: float) -> None:
    whiteners, log_determinants, positive, _ = whiten(np.full((1, 1, 1), scale))
    assert positive[0]
    assert log_determinants[0] == pytest.approx(np.log(scale), rel=1e-14)
    assert whiteners[0, 0, 0] * np.sqrt(scale) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("order", [2, 3, 9, 17])
def test_covariances_at_the_ends_of_the_range_keep_their_digits(order: int, scale: float) -> None:
    """Multiplied by a power of two, and so without rounding; subnormal ones have few digits to keep."""
    correlations = scaled(covariances(order, 3))[0]
    exponent = 2 * round(np.log2(scale) / 2.0)
    matrices = np.ldexp(correlations, exponent)
    is_exact = np.array_equal(np.ldexp(matrices, -exponent), correlations)
    assert is_exact == (scale > 1e-308)
    whiteners, log_determinants, positive, inflations = whiten(matrices)
    expected = whiten(correlations)
    assert positive.all()
    digits = 1e-12 if is_exact else 1e-9
    assert_allclose(
        np.ldexp(whiteners, exponent // 2), expected[0], rtol=0.0, atol=digits * expected[0].max()
    )
    assert_allclose(log_determinants, expected[1] + order * exponent * np.log(2.0), rtol=1e-12)
    assert_allclose(inflations, expected[3], rtol=10.0 * digits)


@pytest.mark.parametrize("order", [2, 5, 17])
def test_pivots_are_compared_with_the_diagonal(order: int) -> None:
    """The last pivot is 0.19 of its variance, in any unit."""
    matrix = np.eye(order)
    matrix[-1, 0] = matrix[0, -1] = 0.9
    units = 10.0 ** np.arange(-order, order, 2)
    matrices = (matrix * units[:, None] * units)[None]
    for singular, is_positive in [(0.18, True), (0.2, False)]:
        assert done(compiled.whiten(matrices, singular))[2].tolist() == [is_positive]


# ---------------------------------------------------------------- rows with gaps


def check(gaps: Gaps) -> None:
    """Compare a completion with its definition."""
    mass = np.random.default_rng(0).uniform(0.1, 2.0, size=(len(gaps.covariances), len(gaps.n_known)))
    expected = complete(gaps, mass)
    completion = gaps.completion()
    for result, other in zip((*completion.results, completion.remaining(mass)), expected, strict=True):
        assert_close(result, other, 1e-10)
    distances, log_determinants, ahead = gaps.completion(with_moments=False).results
    assert_array_equal(distances, completion.results[0])
    assert_array_equal(log_determinants, completion.results[1])
    assert ahead.size == 0


@pytest.mark.parametrize(
    ("n_covariances", "n_means"),
    [(1, 1), (2, 1), (5, 1), (8, 1), (9, 1), (17, 1), (1, 4), (3, 9), (2, 16), (2, 17)],
)
@pytest.mark.parametrize("n_features", [*range(1, 10), 15, 16, 17, 33, 64])
def test_rows_are_completed_by_the_regression_on_what_is_known(
    n_features: int, n_covariances: int, n_means: int
) -> None:
    check(make_gaps(n_features, n_covariances, n_means, n_patterns=6))


@pytest.mark.parametrize("n_means", [1, 3])
def test_any_number_of_patterns(n_means: int) -> None:
    for n_patterns in (0, 1, 2, 60):
        check(make_gaps(3, 2, n_means, n_patterns=n_patterns))


@pytest.mark.parametrize(("n_covariances", "n_means"), [(9, 1), (2, 5)])
def test_a_row_does_not_depend_on_the_other_rows_or_kernels(n_covariances: int, n_means: int) -> None:
    gaps = make_gaps(6, n_covariances, n_means, n_patterns=8)
    distances, log_determinants, ahead = gaps.completion().results
    for p, known in enumerate(gaps.n_known):
        for n in range(*gaps.first[p : p + 2]):
            one = replace(
                gaps,
                x=gaps.x[n : n + 1],
                first=np.array([0, 1]),
                orders=gaps.orders[p : p + 1],
                n_known=np.array([known]),
            )
            results = one.completion().results
            assert_array_equal(results[0][..., 0], distances[..., n])
            assert_array_equal(results[1][:, 0], log_determinants[:, p])
            assert_array_equal(results[2][:, :, 0], ahead[:, :, n])
    for f in range(n_covariances):
        some = replace(gaps, covariances=gaps.covariances[f : f + 1], means=gaps.means[f : f + 1])
        results = some.completion().results
        # One mean shares its covariance with others in a vector or has a vector of its own.
        if n_means > 1:
            assert_array_equal(results[0][0], distances[f])
        else:
            assert_allclose(results[0][0], distances[f], rtol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e100, -1e308, 0.0, 5e-324])
@pytest.mark.parametrize("name", ["covariances", "means", "x"])
def test_wild_numbers_do_no_harm(name: str, value: float) -> None:
    gaps = make_gaps(5, 3, 1)
    changed = getattr(gaps, name).copy()
    changed[1] = value
    wild = replace(gaps, **{name: changed}).completion()
    assert wild.remaining(np.ones((3, 5))).shape == (3, 5, 5)
    if name != "x":
        plain = gaps.completion().results
        for result, other in zip(wild.results, plain, strict=True):
            assert_array_equal(result[[0, 2]], other[[0, 2]])


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("n_means", [1, 4])
def test_singular_covariances_of_gaps_give_numbers(n_means: int, value: float) -> None:
    """All are zero, all are one, or correlations are above one: pivots below zero count as tiny."""
    gaps = make_gaps(5, 3, n_means, n_patterns=9)
    covariances = gaps.covariances.copy()
    covariances[1] = value + (1.0 - value) * np.eye(5) if value > 1.0 else value
    plain = gaps.completion()
    singular = replace(gaps, covariances=covariances).completion()
    distances, log_determinants, ahead = singular.results
    assert np.isfinite(log_determinants).all()
    assert not np.isnan(distances).any()
    for result, other in zip(singular.results, plain.results, strict=True):
        assert_array_equal(result[[0, 2]], other[[0, 2]])
    assert not np.isnan(ahead).any()
    mass = np.ones((3, 9))
    assert_array_equal(singular.remaining(mass)[[0, 2]], plain.remaining(mass)[[0, 2]])
