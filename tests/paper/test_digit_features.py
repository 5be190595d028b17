"""Features of images: the published code's numbers, and degenerate images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix.paper import digit_features, dither, make_seven_segment_digits
from skmix.paper.images import principal_axis, quadrant_mass

Golden = Callable[[str], dict[str, Any]]


def test_features_of_the_published_images(golden: Golden) -> None:
    stored = golden("digit_images")
    assert_allclose(digit_features(stored["images"]), stored["features"], rtol=0, atol=1e-10)
    axes = principal_axis(stored["images"])
    assert_allclose(axes, stored["first_axis"], rtol=0, atol=1e-10)


def test_the_axis_is_the_direction_of_largest_variance() -> None:
    images = np.random.RandomState(0).normal(size=(7, 9, 5))
    axes = principal_axis(images)
    for image, axis in zip(images, axes, strict=True):
        covariance = np.cov(image.T)
        variance = axis @ covariance @ axis
        assert_allclose(covariance @ axis, variance * axis, atol=1e-12)
        assert variance == pytest.approx(np.linalg.eigvalsh(covariance)[-1])
        assert np.linalg.norm(axis) == pytest.approx(1.0)
        assert axis[np.abs(axis).argmax()] > 0


def test_features_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = make_seven_segment_digits(2, random_state=1)
    together = digit_features(images)
    assert_array_equal(np.vstack([digit_features(image[None]) for image in images]), together)
    monkeypatch.setattr("skmix.paper.images._IMAGES_AT_A_TIME", 3)
    assert_array_equal(digit_features(images), together)
    assert_array_equal(digit_features(images.reshape(20, 784).tolist()), together)


def test_columns_that_do_not_vary_have_entries_of_exactly_zero() -> None:
    images, _ = make_seven_segment_digits(20, random_state=0)
    axes = principal_axis(images)
    constant = np.ptp(images, axis=1) == 0
    assert constant.any(axis=1).all()
    assert_array_equal(axes == 0.0, constant)


def test_of_equally_large_entries_the_first_is_positive() -> None:
    image = np.zeros((4, 4))
    image[0, 3], image[1, 1] = 1.0, 1.0
    image[2] = [0.5, 0.5, 0.5, 0.5]
    for flipped in (image, image[::-1], 1.0 - image):
        (axis,) = principal_axis(flipped[None])
        assert axis[1] == pytest.approx(-axis[3])
        assert axis[1] > 0


def test_quadrants_are_counted_as_mathematicians_do() -> None:
    image = np.zeros((1, 4, 4))
    image[0, 0, 2:] = 1.0  # two pixels in the upper right
    image[0, 1, 0] = 200.0  # one in the upper left, brighter
    image[0, 3, :2] = -1.0  # two in the lower left
    image[0, 2:, 2:] = 0.1  # four in the lower right
    assert_allclose(quadrant_mass(image), [[2 / 9, 1 / 9, 2 / 9, 4 / 9]])


def test_the_middle_of_an_odd_image_is_shared() -> None:
    assert_allclose(quadrant_mass(np.ones((1, 3, 5))), [[0.25] * 4])
    image = np.zeros((1, 3, 3))
    image[0, 1, 0] = 1.0
    assert_allclose(quadrant_mass(image), [[0.0, 0.5, 0.5, 0.0]])
    image[0, 0, 1] = image[0, 0, 2] = image[0, 2, 2] = 1.0
    # Of four pixels: one and a half in the upper right, and so on.
    assert_allclose(quadrant_mass(image), [[0.375, 0.25, 0.125, 0.25]])


# The mean of 28 times 0.1 is not exactly 0.1.
@pytest.mark.parametrize("row", [np.zeros(28), np.full(28, 255), np.full(28, 0.1), np.arange(28)])
def test_an_image_of_equal_rows_has_no_axis(row: np.ndarray) -> None:
    image = np.tile(row, (28, 1))
    assert_array_equal(principal_axis(image[None]), 0.0)
    if row[0] or not row.any():
        assert_array_equal(quadrant_mass(image[None]), 0.25 if row.any() else 0.0)


@pytest.mark.parametrize(("row", "column"), [(0, 10), (27, 19), (14, 14), (3, 0)])
def test_a_single_pixel(row: int, column: int) -> None:
    image = np.zeros((1, 28, 28), dtype=np.uint8)
    image[0, row, column] = 3
    (features,) = digit_features(image)
    expected = np.eye(28)[column, 10:20]
    assert_allclose(features[:10], expected, atol=1e-15)
    quadrant = {(True, False): 0, (True, True): 1, (False, True): 2, (False, False): 3}[
        (row < 14, column < 14)
    ]
    assert_array_equal(features[10:], np.eye(4)[quadrant])


@pytest.mark.parametrize(
    ("function", "images", "message"),
    [
        (digit_features, np.ones((2, 60)), r"shape \(n, 28, 28\) or \(n, 784\), got \(2, 60\)"),
        (digit_features, np.ones(784), r"got \(784,\)"),
        (digit_features, np.full((1, 28, 28), np.nan), "images must be finite"),
        (quadrant_mass, np.ones((2, 0, 3)), r"shape \(n, height, width\), got \(2, 0, 3\)"),
        (principal_axis, np.ones((2, 64)), r"shape \(n, height, width\), got \(2, 64\)"),
    ],
)
def test_images_of_another_shape_are_refused(function: Any, images: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(images)


def test_dither_replaces_zeros_alone() -> None:
    features = np.random.RandomState(0).uniform(0.1, 1.0, size=(400, 50))
    zero = np.random.RandomState(1).uniform(size=features.shape) < 0.5
    features[zero] = 0.0
    features[0, :4] = [1e-31, -1e-31, 1e-5, -1e-5]
    zero[0, :4] = [True, True, False, False]
    dithered = dither(features, random_state=0)
    assert_array_equal(dithered[~zero], features[~zero])
    drawn = dithered[zero]
    assert np.all(drawn != 0.0)
    # Ten thousand draws: five standard errors of their mean and standard deviation.
    assert abs(drawn.mean()) < 5 * 0.01 / 100
    assert abs(drawn.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * len(drawn))
    assert len(np.unique(drawn)) == len(drawn)
    assert features[0, 0] == 1e-31
    assert_array_equal(dither(features, random_state=0), dithered)


def test_dither_obeys_its_settings() -> None:
    assert dither([0.0, 0.05], random_state=0, tolerance=0.1, scale=0.0).tolist() == [0.0, 0.0]
    assert dither([1e-31], random_state=0, tolerance=0.0).tolist() == [1e-31]
    assert dither([0.0], random_state=0, tolerance=0.0) != 0.0
    with pytest.raises(ValueError, match=r"tolerance must be finite and not negative, got -1\.0"):
        dither([0.0], tolerance=-1.0)
    with pytest.raises(ValueError, match="scale must be finite and not negative, got nan"):
        dither([0.0], scale=np.nan)
