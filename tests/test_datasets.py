"""Example data are whole, and samples of shared-kernel mixtures have the moments they promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import open_rows
from skmix.datasets import copy_examples, load_penguins, make_shared_kernel_data

MEANS = [[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]]
COVARIANCES = [[[2.0, 0.9], [0.9, 1.0]], [[1.0, 0.0], [0.0, 3.0]], [[0.5, -0.4], [-0.4, 0.8]]]
WEIGHTS = [[0.2, 0.5], [0.3, 0.0], [0.5, 0.5]]
VALID: dict[str, Any] = {"means": MEANS, "covariances": COVARIANCES, "weights": WEIGHTS}
VALID |= {"n_per_class": 10, "random_state": 0}


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


@pytest.mark.parametrize("counts", [4, np.int32(4), [4, 4], np.array([4, 4]), [0, 3]])
def test_rows_come_class_by_class(counts: Any) -> None:
    X, y = make_shared_kernel_data(**VALID | {"n_per_class": counts})
    expected = np.repeat([0, 1], counts if np.ndim(counts) else [counts] * 2)
    assert_array_equal(y, expected)
    assert (X.shape, X.dtype, y.dtype) == ((len(expected), 2), np.float64, np.int64)


def test_random_state_decides_the_sample() -> None:
    first, again, other = (
        make_shared_kernel_data(**VALID | {"random_state": state})[0]
        for state in (0, np.random.RandomState(0), 1)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_singular_covariance_gives_rows_in_its_subspace() -> None:
    X, _ = make_shared_kernel_data([[1.0, 2.0]], [[[1.0, 2.0], [2.0, 4.0]]], [[1.0]], 50, random_state=3)
    assert_allclose(X[:, 1], 2.0 * X[:, 0], atol=1e-6)
    assert X[:, 0].std() > 0.5
    constant, _ = make_shared_kernel_data([[1.0, 2.0]], np.zeros((1, 2, 2)), [[1.0]], 3, random_state=3)
    assert_array_equal(constant, [[1.0, 2.0]] * 3)
    # Asymmetry, negative eigenvalues and sums of weights within rounding error are accepted.
    weights = [[0.333333], [0.666667 - 9e-7]]
    assert len(make_shared_kernel_data([[0.0], [1.0]], [[[1.0]]] * 2, weights, 5, random_state=0)[0]) == 5
    rounded = [[1.0, 2.0 + 1e-9], [2.0, 4.0 - 1e-9]]
    again, _ = make_shared_kernel_data([[1.0, 2.0]], [rounded], [[1.0]], 50, random_state=3)
    assert_allclose(again, X, atol=1e-3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"means": [0.0, 1.0, 2.0]}, r"means must have shape \(kernels, features\), got \(3,\)"),
        ({"means": [[0.0, np.nan]] * 3}, "Input means contains NaN"),
        ({"covariances": np.ones((3, 2))}, r"shape \(3, 2, 2\) for 3 means of 2 feature.*got \(3, 2\)"),
        ({"covariances": [[[1.0, 0.5], [0.2, 1.0]]] * 3}, "kernel 0 is not symmetric and positive"),
        (
            {"covariances": [COVARIANCES[0], np.diag([1.0, -1e-6]), COVARIANCES[2]]},
            "kernel 1 is not symmetric",
        ),
        ({"weights": [[0.2, 0.5], [0.3, 0.0], [0.5, 0.500003]]}, r"sum to \[1.0, 1.000003\]"),
        ({"weights": [0.2, 0.3, 0.5]}, r"a row for each of the 3 means, got \(3,\)"),
        ({"weights": [[1.2, 0.5], [-0.2, 0.0], [0.0, 0.5]]}, "smallest weight is -0.2"),
        *(
            ({"n_per_class": counts}, "a number of rows, or one for each of the 2 classes")
            for counts in ([1, 2, 3], [1, -2], 0, 2.5, [1, 2.0], "3", True, None)
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_shared_kernel_data(**VALID | changed)


def test_penguins_have_text_columns_and_gaps() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = load_penguins()
    assert y.value_counts().to_dict() == {"Adelie": 152, "Gentoo": 124, "Chinstrap": 68}
    numbers = X.select_dtypes("number")
    assert [*X.columns.difference(numbers.columns)] == ["island", "sex"]
    assert X.isna().sum().to_dict() == {"island": 0, "sex": 11, "year": 0} | dict.fromkeys(
        ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"), 2
    )
    X, y = load_penguins("sex")
    assert len(X) == len(y) == 333
    assert not y.isna().any()
    pandas.testing.assert_index_equal(X.index, y.index)
    with pytest.raises(ValueError, match="target='colour' is not one of the columns species, island"):
        load_penguins("colour")


def test_copied_samples_can_be_opened(tmp_path: Path) -> None:
    pytest.importorskip("flowio")
    for _ in range(2):  # a second copy replaces the first
        folder = copy_examples(tmp_path / "new" / "examples")
    assert folder == tmp_path / "new" / "examples"
    named = [line.split(",")[0] for line in (folder / "wells.csv").read_text().splitlines()[1:]]
    assert [path.stem for path in sorted((folder / "wells").iterdir())] == named
    X = np.concatenate([block.X for block in open_rows(folder / "wells", columns=["V2-A", "Y2-A"]).blocks()])
    assert X.shape == (28_000, 2)
    assert (folder / "wells-LICENSE.txt").read_text().startswith("The MIT License")
