"""Seven-segment digits: the published code's images, the paper's segments, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix.paper import make_seven_segment_digits
from skmix.paper.digits import LIT_SEGMENTS, bin_points, sample_points, segment_layout

Golden = Callable[[str], dict[str, Any]]

# What a seven-segment display shows: top, upper right, lower right, bottom, lower left, upper left, middle.
LIT = "1111110 1101101 1111001 0110011 1011011 1011111 1110000 1111111 1111011"
DISPLAY = dict(zip((0, 2, 3, 4, 5, 6, 7, 8, 9), LIT.split(), strict=True))
# The places of the display above, in units of half length plus half width.
PLACES = [(0, 2), (1, 1), (1, -1), (0, -2), (-1, -1), (-1, 1), (0, 0)]


def test_digits_light_the_segments_of_a_display() -> None:
    for digit, shown in DISPLAY.items():
        centres, _ = segment_layout(half_length=3.0, half_width=1.0).of_digit(digit)
        lit = {place for place, on in zip(PLACES, shown, strict=True) if on == "1"}
        assert {(x / 4.0, y / 4.0) for x, y in centres} == lit


def test_lengths_are_variances() -> None:
    layout = segment_layout(half_length=3.0, half_width=0.25, variance_scale=2.0)
    for centre, covariance, lies in zip(layout.centres, layout.covariances, layout.horizontal, strict=True):
        assert lies == (centre[0] == 0.0)
        assert_allclose(covariance, np.diag([6.0, 0.5] if lies else [0.5, 6.0]))
    assert layout.bound == pytest.approx(1.8 * (2 * 3.0 + 3 * 0.25))


def test_points_have_the_means_and_covariances_of_their_segments() -> None:
    n_points = 20_000
    points, image = sample_points([8, 1], n_points=n_points, random_state=0)
    layout = segment_layout()
    expected_centres = np.vstack([layout.centres, [[0.0, 2.5], [0.0, -2.5]]])
    expected = np.concatenate([layout.covariances, layout.covariances[:2]])
    assert_array_equal(image, np.repeat([0, 1], [7 * n_points, 2 * n_points]))
    for cloud, centre, covariance in zip(
        points.reshape(9, n_points, 2), expected_centres, expected, strict=True
    ):
        variances = np.diag(covariance)
        # Five standard errors of a mean, a variance and a covariance.
        assert np.all(np.abs(cloud.mean(axis=0) - centre) < 5 * np.sqrt(variances / n_points))
        error = 5 * np.sqrt((np.outer(variances, variances) + covariance**2) / n_points)
        assert np.all(np.abs(np.cov(cloud.T) - covariance) < error)


def test_every_lit_segment_gives_the_same_number_of_points() -> None:
    digits = [7, 0, 0, 4]
    points, image = sample_points(digits, n_points=3, random_state=1)
    assert_array_equal(image, np.repeat(range(4), [3 * len(LIT_SEGMENTS[digit]) for digit in digits]))
    assert points.shape == (len(image), 2)
    # Narrow segments: each point lies near the centre of its own, in the order of the list.
    layout = segment_layout(half_length=3.0, half_width=1.0)
    settings = {"half_length": 3.0, "half_width": 1.0, "variance_scale": 1e-6}
    points, _ = sample_points(digits, n_points=2, random_state=1, **settings)
    places = [layout.centres[segment - 1] for digit in digits for segment in LIT_SEGMENTS[digit]]
    assert_allclose(points, np.repeat(places, 2, axis=0), atol=0.02)


def test_images_of_the_published_points_are_the_published_images(golden: Golden) -> None:
    stored = golden("digit_points")
    images = bin_points(stored["points"], stored["image_index"])
    assert images.dtype == np.uint8
    assert_array_equal(images, stored["images"])
    # Among them images with points beyond the border, which count in its cells.
    assert np.sum(np.abs(stored["points"]) > segment_layout().bound) > 100
    # The order of points does not matter, and an image without points is dark.
    order = np.random.RandomState(0).permutation(len(stored["points"]))
    images = bin_points(stored["points"][order], stored["image_index"][order], n_images=21)
    assert_array_equal(images[:20], stored["images"])
    assert not images[20].any()


@pytest.mark.parametrize(
    ("point", "row", "column"),
    [
        ((-1, 1), 0, 0),
        ((1, 1), 0, 27),
        ((-1, -1), 27, 0),
        ((1, -1), 27, 27),
        ((9, -9), 27, 27),
        # The origin is a corner of four cells: the one to its right, and below it.
        ((0, 0), 14, 14),
        ((1e-9, 1e-9), 13, 14),
        ((-1e-9, -1e-9), 14, 13),
    ],
)
def test_borders_of_cells(point: tuple[float, float], row: int, column: int) -> None:
    # A bound of 1.8 · (2 · 1 + 3 · 1) = 9.
    (image,) = bin_points(9.0 * np.array([point]), [0], half_length=1.0, half_width=1.0)
    assert np.argwhere(image).tolist() == [[row, column]]
    assert image[row, column] == 255


def test_brightness_is_relative_to_the_fullest_cell_and_halves_go_up() -> None:
    far_apart = np.array([[-5.0, 0.0], [0.0, 5.0], [5.0, 0.0]])
    points = np.repeat(far_apart, [1, 10, 3], axis=0)
    (image,) = bin_points(points, np.zeros(14, dtype=int))
    # 25.5 and 76.5, rounded away from zero.
    assert sorted(image[image > 0].tolist()) == [26, 77, 255]


def test_images_come_digit_by_digit_and_repeat_with_the_seed() -> None:
    images, labels = make_seven_segment_digits(3, random_state=5)
    assert images.shape == (30, 28, 28)
    assert images.dtype == np.uint8
    assert_array_equal(images.max(axis=(1, 2)), 255)
    assert_array_equal(labels, np.repeat(np.arange(10), 3))
    assert_array_equal(make_seven_segment_digits(3, random_state=5)[0], images)
    assert_array_equal(make_seven_segment_digits(3, random_state=np.random.RandomState(5))[0], images)
    assert np.any(make_seven_segment_digits(3, random_state=6)[0] != images)


def test_images_are_those_of_the_points_however_many_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"half_length": 1.5, "half_width": 0.3, "n_points": 11, "variance_scale": 2.0}
    images, labels = make_seven_segment_digits(4, random_state=2, **settings)
    points, index = sample_points(labels, random_state=2, **settings)
    assert_array_equal(bin_points(points, index, half_length=1.5, half_width=0.3), images)
    monkeypatch.setattr("skmix.paper.digits._IMAGES_AT_A_TIME", 7)
    assert_array_equal(make_seven_segment_digits(4, random_state=2, **settings)[0], images)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"n_per_digit": 0}, ValueError, "n_per_digit must be at least 1, got 0"),
        ({"n_per_digit": True}, TypeError, "n_per_digit must be an integer, got True"),
        ({"n_points": 0}, ValueError, "n_points must be at least 1, got 0"),
        ({"half_length": 0.0}, ValueError, r"half_length must be positive and finite, got 0\.0"),
        ({"half_width": "wide"}, TypeError, "half_width must be a number, got 'wide'"),
        ({"variance_scale": np.inf}, ValueError, "variance_scale must be positive and finite, got inf"),
    ],
)
def test_impossible_digits_are_refused(settings: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_seven_segment_digits(**settings)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: bin_points(np.zeros((2, 3)), [0, 0]), ValueError, r"shape \(points, 2\), got \(2, 3\)"),
        (lambda: bin_points([[0.0, np.nan]], [0]), ValueError, "points must be finite, but 1 of its 2"),
        (lambda: bin_points(np.zeros((2, 2)), [0]), ValueError, "2 points but 1 entries of image_index"),
        (lambda: bin_points(np.zeros((2, 2)), [0, 2], n_images=2), ValueError, "between 0 and 1, got 0 to 2"),
        (lambda: bin_points(np.zeros((2, 2)), [-1, 0]), ValueError, "between 0 and 0, got -1 to 0"),
        (lambda: bin_points(np.zeros((2, 2)), [0.0, 1.0]), TypeError, "must be integers, got float64"),
        (lambda: bin_points(np.zeros((2, 2)), [[0, 1]]), ValueError, r"one dimension, got shape \(1, 2\)"),
        (lambda: bin_points(np.zeros((0, 2)), [], n_images=-1), ValueError, "n_images must be at least 0"),
        (lambda: sample_points([3, -2, 10]), ValueError, "digits must lie between 0 and 9, got -2"),
        (lambda: segment_layout().of_digit(10), ValueError, "digit must be between 0 and 9, got 10"),
    ],
)
def test_impossible_points_are_refused(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
    # No points are possible.
    assert bin_points(*sample_points([])).shape == (0, 28, 28)
