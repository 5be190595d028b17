"""Deskewed images: against an interpolation pixel by pixel, and what must come out of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import affine_transform

from skmix.features import deskew
from skmix.paper import make_seven_segment_digits


def upright(image: np.ndarray) -> np.ndarray:
    """The textbook way: moments, then each pixel from the four around the place where it was."""
    height, width = image.shape
    pixels = [(i, j, image[i, j]) for i in range(height) for j in range(width)]
    mass = sum(value for *_, value in pixels)
    row, column = (sum(place[axis] * place[2] for place in pixels) / mass for axis in (0, 1))
    slant = sum((i - row) * (j - column) * value for i, j, value in pixels)
    slant /= sum((i - row) ** 2 * value for i, _, value in pixels)
    found = np.zeros_like(image)
    for i, j, _ in pixels:
        down, right = i - (height - 1) / 2, j - (width - 1) / 2
        y, x = row + down, column + right + slant * down
        for a in (math.floor(y), math.floor(y) + 1):
            for b in (math.floor(x), math.floor(x) + 1):
                if 0 <= a < height and 0 <= b < width:
                    found[i, j] += (1 - abs(y - a)) * (1 - abs(x - b)) * image[a, b]
    return found


def test_slanted_digits() -> None:
    digits = make_seven_segment_digits(2, random_state=0)[0].astype(np.float64)
    slanted = np.stack(
        [affine_transform(image, [[1.0, 0.0], [0.4, 1.0]], [2.0, -4.0], order=1) for image in digits]
    )
    found = deskew(slanted).reshape(slanted.shape)
    assert_allclose(found, [upright(image) for image in slanted], rtol=0, atol=1e-9 * 255)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.uint8])
def test_images_need_not_be_square(kind: type) -> None:
    images = (255 * np.random.RandomState(0).uniform(size=(3, 9, 6))).astype(kind)
    found = deskew(images)
    assert found.dtype == np.float64
    with pytest.raises(ValueError, match="images of 54 pixels are not square"):
        deskew(images.reshape(3, -1))
    assert_array_equal(deskew(images[:, :6].reshape(3, -1)), deskew(images[:, :6]))
    expected = [upright(image.astype(np.float64)) for image in images]
    assert_allclose(found.reshape(images.shape), expected, atol=1e-10)


def test_dark_images_and_flat_ones_come_out_whole() -> None:
    images = np.zeros((2, 5, 5))
    images[1, 2, 1:4] = 1.0
    assert_array_equal(deskew(images).reshape(2, 5, 5), images)
    # A flat one is moved to the middle, by half a pixel if need be.
    images[1] = 0.0
    images[1, 0, :2] = 2.0
    moved = np.zeros((5, 5))
    moved[2, 1:4] = [1.0, 2.0, 1.0]
    assert_array_equal(deskew(images)[1].reshape(5, 5), moved)
