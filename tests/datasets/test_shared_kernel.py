"""Samples of shared-kernel mixtures have the moments, the order and the errors they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documented import assert_defaults
from numpy.testing import assert_allclose, assert_array_equal

from skmix import datasets
from skmix.datasets import make_shared_kernel_data
from skmix.paper import illustration

MEANS = [[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]]
COVARIANCES = [[[2.0, 0.9], [0.9, 1.0]], [[1.0, 0.0], [0.0, 3.0]], [[0.5, -0.4], [-0.4, 0.8]]]
WEIGHTS = [[0.2, 0.5], [0.3, 0.0], [0.5, 0.5]]
VALID: dict[str, Any] = {
    "means": MEANS,
    "covariances": COVARIANCES,
    "weights": WEIGHTS,
    "n_per_class": 10,
    "random_state": 0,
}


def test_sample_has_the_moments_of_the_mixture() -> None:
    """The kernels are so far apart that every row tells its kernel."""
    n_per_class = [20_000, 30_000]
    X, y = make_shared_kernel_data(MEANS, COVARIANCES, WEIGHTS, n_per_class, random_state=1)
    kernels = ((X[:, np.newaxis, :] - np.array(MEANS)) ** 2).sum(axis=2).argmin(axis=1)
    for c in range(2):
        shares = np.bincount(kernels[y == c], minlength=3) / n_per_class[c]
        assert_allclose(shares, np.array(WEIGHTS)[:, c], atol=0.015)
    for k in range(3):
        assert_allclose(X[kernels == k].mean(axis=0), MEANS[k], atol=0.1)
        assert_allclose(np.cov(X[kernels == k].T), COVARIANCES[k], atol=0.15)
    assert not (kernels[y == 1] == 1).any()


def test_rows_come_class_by_class() -> None:
    X, y = make_shared_kernel_data(MEANS, COVARIANCES, WEIGHTS, [3, 2], random_state=0)
    assert X.shape == (5, 2)
    assert X.dtype == np.float64
    assert y.dtype == np.int64
    assert_array_equal(y, [0, 0, 0, 1, 1])


@pytest.mark.parametrize("counts", [4, np.int32(4), [4, 4], (4, 4), np.array([4, 4])])
def test_counts_come_as_one_integer_or_one_per_class(counts: Any) -> None:
    X, y = make_shared_kernel_data(**VALID | {"n_per_class": counts})
    X_expected, y_expected = make_shared_kernel_data(**VALID | {"n_per_class": 4})
    assert_array_equal(X, X_expected)
    assert_array_equal(y, y_expected)


def test_a_class_may_be_empty() -> None:
    _, y = make_shared_kernel_data(**VALID | {"n_per_class": [0, 3]})
    assert_array_equal(y, [1, 1, 1])


def test_random_state_decides_the_sample() -> None:
    first, _ = make_shared_kernel_data(**VALID)
    again, _ = make_shared_kernel_data(**VALID)
    from_generator, _ = make_shared_kernel_data(**VALID | {"random_state": np.random.RandomState(0)})
    other, _ = make_shared_kernel_data(**VALID | {"random_state": 1})
    assert_array_equal(first, again)
    assert_array_equal(first, from_generator)
    assert not np.array_equal(first, other)


def test_one_feature_one_kernel_one_class() -> None:
    X, y = make_shared_kernel_data([[5.0]], [[[4.0]]], [[1.0]], 4000, random_state=2)
    assert X.shape == (4000, 1)
    assert X.mean() == pytest.approx(5.0, abs=0.1)
    assert X.std() == pytest.approx(2.0, abs=0.1)
    assert not y.any()


def test_weights_may_be_rounded() -> None:
    weights = [[0.333333], [0.666667 - 9e-7]]
    assert len(make_shared_kernel_data([[0.0], [1.0]], [[[1.0]]] * 2, weights, 5, random_state=0)[0]) == 5


def test_a_singular_covariance_gives_rows_in_its_subspace() -> None:
    X, _ = make_shared_kernel_data([[1.0, 2.0]], [[[1.0, 2.0], [2.0, 4.0]]], [[1.0]], 50, random_state=3)
    assert_allclose(X[:, 1], 2.0 * X[:, 0], atol=1e-6)
    assert X[:, 0].std() > 0.5
    constant, _ = make_shared_kernel_data([[1.0, 2.0]], np.zeros((1, 2, 2)), [[1.0]], 3, random_state=3)
    assert_array_equal(constant, [[1.0, 2.0]] * 3)
    # Asymmetry and negative eigenvalues within rounding error are accepted.
    rounded = [[1.0, 2.0 + 1e-9], [2.0, 4.0 - 1e-9]]
    again, _ = make_shared_kernel_data([[1.0, 2.0]], [rounded], [[1.0]], 50, random_state=3)
    assert_allclose(again, X, atol=1e-3)


def test_illustration_is_the_papers_example() -> None:
    example = illustration()
    assert_array_equal(example.means, [[0.0, 2.0], [3.0, 1.0], [6.0, 3.0]])
    assert_array_equal(example.covariances, [0.5 * np.eye(2)] * 3)
    assert_array_equal(example.weights[:, 0], [0.1, 0.8, 0.1])
    assert_array_equal(example.weights[:, 1], [0.7, 0.1, 0.2])
    assert_array_equal(example.weights[:, 2], [0.3, 0.1, 0.6])
    assert_array_equal(example.start_means, [[-1.0, 0.0], [2.0, 1.0], [7.0, 2.0]])
    assert_array_equal(example.start_covariances, [2.0 * np.eye(2)] * 3)
    assert_array_equal(example.start_weights, np.full((3, 3), 1.0 / 3.0))
    assert (example.n_per_class, example.max_iter) == (2000, 50)
    X, y = make_shared_kernel_data(
        example.means, example.covariances, example.weights, example.n_per_class, random_state=0
    )
    assert X.shape == (6000, 2)
    assert_array_equal(np.bincount(y), [2000, 2000, 2000])


def test_changing_one_illustration_leaves_the_next_alone() -> None:
    illustration().means[:] = 0.0
    assert illustration().means[2, 0] == 6.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"means": [0.0, 1.0, 2.0]}, r"means must have shape \(kernels, features\), got \(3,\)"),
        ({"means": [[0.0, np.nan]] * 3}, "means must be finite, but 3 of its 6 values are not"),
        ({"covariances": np.ones((3, 2))}, r"shape \(3, 2, 2\) for 3 means of 2 feature.*got \(3, 2\)"),
        ({"covariances": [[[1.0, 0.5], [0.2, 1.0]]] * 3}, "kernel 0 is not symmetric: .* 0.3"),
        ({"covariances": [[[1.0, 2.0], [2.0, 1.0]]] * 3}, "kernel 0 is not positive semidefinite: .* is -1"),
        (
            {"covariances": [COVARIANCES[0], COVARIANCES[1], [[1.0, 0.0], [1e-6, 1.0]]]},
            "kernel 2 is not symmetric: it differs from its transpose by up to 1e-06",
        ),
        (
            {"covariances": [COVARIANCES[0], [[1.0, 0.0], [0.0, -1e-6]], COVARIANCES[2]]},
            "kernel 1 is not positive semidefinite: its smallest eigenvalue is -1e-06",
        ),
        ({"covariances": np.full((3, 2, 2), np.inf)}, "covariances must be finite, but 12 of its 12"),
        ({"means": np.zeros((0, 2))}, r"means must have shape \(kernels, features\), got \(0, 2\)"),
        ({"means": np.zeros((3, 0))}, r"means must have shape \(kernels, features\), got \(3, 0\)"),
        ({"weights": np.zeros((3, 0))}, r"a row for each of the 3 means, got \(3, 0\)"),
        ({"weights": [[np.nan], [0.5], [0.5]]}, "weights must be finite, but 1 of its 3"),
        ({"weights": [[0.2, 0.7], [0.3, 0.0], [0.5, 0.5]]}, r"column 1 sums to 1\.2\.$"),
        ({"weights": [[0.2, 0.5], [0.3, 0.0], [0.5, 0.500003]]}, r"column 1 sums to 1\.000003\.$"),
        ({"weights": [[0.2, 0.8], [0.3, -0.3], [0.5, 0.5]]}, r"kernel 1 has -0\.3 in class 1"),
        ({"weights": [0.2, 0.3, 0.5]}, r"a row for each of the 3 means, got \(3,\)"),
        ({"weights": [[1.0, 1.0]]}, r"a row for each of the 3 means, got \(1, 2\)"),
        ({"weights": [[0.2, 0.5], [0.3, 0.0], [0.4, 0.5]]}, r"column 0 sums to 0\.9\.$"),
        ({"weights": [[0.2, 0.8, 0.0], [0.3, 0.7, 0.0], [0.5, 0.4, 0.1]]}, r"sums to 0\.1\. The rows do"),
        ({"weights": [[1.2, 0.5], [-0.2, 0.0], [0.0, 0.5]]}, r"kernel 1 has -0\.2 in class 0"),
        ({"n_per_class": [1, 2, 3]}, "n_per_class has 3 entries, but the weights have 2 columns"),
        ({"n_per_class": [1, -2]}, r"n_per_class\[1\] must be at least 0, got -2"),
        ({"n_per_class": 0}, r"is zero for all 2 class"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_shared_kernel_data(**VALID | changed)


@pytest.mark.parametrize("counts", [2.5, [1, 2.0], "3", True, None])
def test_counts_that_are_no_integers_are_refused(counts: Any) -> None:
    with pytest.raises(TypeError, match=r"n_per_class\[[01]\] must be an integer"):
        make_shared_kernel_data(**VALID | {"n_per_class": counts})


def test_defaults_are_as_documented() -> None:
    assert_defaults(datasets, 25)
