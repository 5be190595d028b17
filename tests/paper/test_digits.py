"""Seven-segment digits, and their features against the published code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix.paper import digit_features, dither, make_seven_segment_digits
from skmix.paper.digits import bin_points, sample_points, segment_layout

Golden = Callable[[str], dict[str, Any]]

# What a seven-segment display shows: top, upper right, lower right, bottom, lower left, upper left, middle.
LIT = "1111110 1101101 1111001 0110011 1011011 1011111 1110000 1111111 1111011"
DISPLAY = dict(zip((0, 2, 3, 4, 5, 6, 7, 8, 9), LIT.split(), strict=True))
# The places of the display above, in units of half length plus half width.
PLACES = [(0, 2), (1, 1), (1, -1), (0, -2), (-1, -1), (-1, 1), (0, 0)]


def test_digits_light_the_segments_of_a_display() -> None:
    for digit, shown in DISPLAY.items():
        _, centres, _ = segment_layout(3.0, 1.0).lit(np.array([digit]))
        lit = {place for place, on in zip(PLACES, shown, strict=True) if on == "1"}
        assert {(x / 4.0, y / 4.0) for x, y in centres} == lit


def test_lengths_are_variances() -> None:
    layout = segment_layout(5.0, 0.25)
    for centre, covariance, lies in zip(layout.centres, layout.covariances, layout.horizontal, strict=True):
        assert lies == (centre[0] == 0.0)
        assert_allclose(covariance, np.diag([6.0, 0.3] if lies else [0.3, 6.0]))
    assert layout.bound == pytest.approx(1.8 * (2 * 5.0 + 3 * 0.25))


def test_points_have_the_means_and_covariances_of_their_segments() -> None:
    layout, n_points = segment_layout(), 20_000
    points, image = sample_points(np.repeat([8, 1], 200), layout, 0)
    assert_array_equal(image, np.repeat(np.arange(400), np.repeat([700, 200], 200)))
    eights, ones = np.split(points, [7 * n_points])
    clouds = [*eights.reshape(200, 7, 100, 2).swapaxes(0, 1), *ones.reshape(200, 2, 100, 2).swapaxes(0, 1)]
    expected_centres = np.vstack([layout.centres, [[0.0, 2.5], [0.0, -2.5]]])
    expected = np.concatenate([layout.covariances, layout.covariances[:2]])
    for cloud, centre, covariance in zip(clouds, expected_centres, expected, strict=True):
        cloud = cloud.reshape(n_points, 2)
        variances = np.diag(covariance)
        # Five standard errors of a mean, a variance and a covariance.
        assert np.all(np.abs(cloud.mean(axis=0) - centre) < 5 * np.sqrt(variances / n_points))
        error = 5 * np.sqrt((np.outer(variances, variances) + covariance**2) / n_points)
        assert np.all(np.abs(np.cov(cloud.T) - covariance) < error)


def test_images_of_the_published_points_are_the_published_images(golden: Golden) -> None:
    stored, bound = golden("digit_points"), segment_layout().bound
    images = bin_points(stored["points"], stored["image_index"], 20, bound)
    assert images.dtype == np.uint8
    assert_array_equal(images, stored["images"])
    # Among them images with points beyond the border, which count in its cells.
    assert np.sum(np.abs(stored["points"]) > bound) > 100
    # The order of points does not matter, and an image without points is dark.
    order = np.random.RandomState(0).permutation(len(stored["points"]))
    images = bin_points(stored["points"][order], stored["image_index"][order], 21, bound)
    assert_array_equal(images[:20], stored["images"])
    assert not images[20].any()


def test_images_come_digit_by_digit_and_repeat_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = make_seven_segment_digits(3, random_state=5)
    assert images.shape == (30, 28, 28)
    assert images.dtype == np.uint8
    assert_array_equal(images.max(axis=(1, 2)), 255)
    assert_array_equal(labels, np.repeat(np.arange(10), 3))
    assert_array_equal(make_seven_segment_digits(3, random_state=np.random.RandomState(5))[0], images)
    assert np.any(make_seven_segment_digits(3, random_state=6)[0] != images)
    # They are those of the points, however many are made at a time.
    points, index = sample_points(labels, segment_layout(), 5)
    assert_array_equal(bin_points(points, index, len(labels), segment_layout().bound), images)
    monkeypatch.setattr("skmix.paper.digits._IMAGES_AT_A_TIME", 7)
    assert_array_equal(make_seven_segment_digits(3, random_state=5)[0], images)
    with pytest.raises(ValueError, match="n_per_digit == 0, must be >= 1"):
        make_seven_segment_digits(0)
    with pytest.raises(TypeError, match="n_per_digit must be an instance of"):
        make_seven_segment_digits(2.0)


# ---------------------------------------------------------------- features


def test_features_of_the_published_images(golden: Golden) -> None:
    stored = golden("digit_images")
    assert_allclose(digit_features(stored["images"]), stored["features"], rtol=0, atol=1e-10)


def test_features_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = make_seven_segment_digits(2, random_state=1)
    together = digit_features(images)
    assert_array_equal(np.vstack([digit_features(image[None]) for image in images]), together)
    monkeypatch.setattr("skmix.paper.images._IMAGES_AT_A_TIME", 3)
    assert_array_equal(digit_features(images), together)
    assert_array_equal(digit_features(images.reshape(20, 784).tolist()), together)


def test_columns_that_do_not_vary_have_entries_of_exactly_zero() -> None:
    images, _ = make_seven_segment_digits(20, random_state=0)
    axes = digit_features(images)[:, :10]
    # Rolled to the right, so that the first ten columns, some of them dark, have features.
    axes = np.hstack([axes, digit_features(np.roll(images, 10, axis=2))[:, :10]])
    constant = np.hstack([np.ptp(images, axis=1)[:, 10:20], np.ptp(images, axis=1)[:, :10]]) == 0
    assert constant.any()
    assert_array_equal(axes == 0.0, constant)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.ones((2, 60)), r"shape \(n, 28, 28\) or \(n, 784\), got \(2, 60\)"),
        (np.ones(784), r"got \(784,\)"),
        (np.full((1, 28, 28), np.nan), "images must be finite"),
    ],
)
def test_images_of_another_shape_are_refused(images: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        digit_features(images)
    assert digit_features(np.empty((0, 784))).shape == (0, 14)


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
