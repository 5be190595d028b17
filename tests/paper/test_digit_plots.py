"""Pictures of digits show the segments, points, images and features they were given."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Ellipse, Rectangle
from numpy.testing import assert_allclose, assert_array_equal

from skmix.paper import LIT_SEGMENTS, sample_points
from skmix.paper.digit_plots import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from skmix.paper.records import StudyData


def test_segments_are_numbered_where_they_lie() -> None:
    axes = plot_segments(half_length=3.0, half_width=1.0)
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    numbers = {text.get_text(): text.xy for text in axes.texts if text.get_text().isdigit()}
    assert (numbers["6"], numbers["2"]) == ((0.0, 8.0), (4.0, -4.0))
    for number, box in zip("1234567", boxes, strict=True):
        assert_allclose(box.get_center(), numbers[number])
        lies = number in "367"
        assert (box.get_width(), box.get_height()) == ((6.0, 2.0) if lies else (2.0, 6.0))


def test_points_come_with_three_sigma_ellipses() -> None:
    axes = plot_digit_points(1.0, 0.2, random_state=3)
    points, index = sample_points(range(10), half_length=1.0, half_width=0.2, random_state=3)
    for digit, panel in enumerate(axes):
        (cloud,) = panel.get_lines()
        assert_array_equal(np.column_stack(cloud.get_data()), points[index == digit])
        drawn = [patch for patch in panel.patches if isinstance(patch, Ellipse)]
        assert len(drawn) == len(LIT_SEGMENTS[digit])
        # Three standard deviations either way, of variances 1.2 · 1 and 1.2 · 0.2.
        expected = sorted([6.0 * np.sqrt(1.2), 6.0 * np.sqrt(0.24)])
        for ellipse in drawn:
            assert_allclose(sorted([ellipse.width, ellipse.height]), expected)


def test_a_sheet_has_every_image_in_its_place(data: StudyData) -> None:
    images, labels = data.train_images[::6], data.train_labels[::6]
    axes = plot_digits(images, labels, n_columns=5)
    (sheet,) = (np.asarray(image.get_array().filled(np.nan)) for image in axes.get_images())
    assert sheet.shape == (10 * 30 - 2, 5 * 30 - 2)
    for position, image in enumerate(images):
        top, left = 30 * (position // 5), 30 * (position % 5)
        assert_allclose(sheet[top : top + 28, left : left + 28], image / 255)
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(digit) for digit in range(10)]
    # A label of several lines is written once.
    names = plot_digits(data.train_images[:90], data.train_labels[:90], n_columns=10).get_yticklabels()
    assert [text.get_text() for text in names] == ["0", "1", "2"]


def test_the_overlay_shows_the_first_samples_of_each_digit(data: StudyData) -> None:
    axes = plot_feature_overlay(data.train_features, data.train_labels, n_samples=4)
    assert [panel.get_title() for panel in axes] == [str(digit) for digit in range(10)]
    for digit, panel in enumerate(axes):
        shown = data.train_features[data.train_labels == digit][:4, :10]
        assert_array_equal([line.get_ydata() for line in panel.get_lines()[1:]], shown)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"images must have shape .* got \(2, 5\)"):
        plot_digits(np.ones((2, 5)))
    with pytest.raises(ValueError, match=r"there are 3 images but labels of shape \(2,\)"):
        plot_digits(np.ones((3, 4)), [1, 2])
