"""Simulated images of seven-segment digits: points are drawn for each lit segment and counted in pixels."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state, check_scalar

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Images = NDArray[np.uint8]
RandomState = int | np.random.RandomState | None

# Pixels of an image in each direction.
IMAGE_SIDE = 28
# Lit segments, numbered from 1, of the digits 0 to 9. Those of digit 1 are drawn in the middle.
LIT_SEGMENTS = (
    (1, 2, 3, 4, 5, 6),
    (1, 2),
    (1, 3, 4, 6, 7),
    (1, 2, 3, 6, 7),
    (1, 2, 5, 7),
    (2, 3, 5, 6, 7),
    (2, 3, 4, 5, 6, 7),
    (1, 2, 6),
    (1, 2, 3, 4, 5, 6, 7),
    (1, 2, 3, 5, 6, 7),
)
# Centres of segments 1 to 7 in units of half length + half width.
_CENTRES = ((1, 1), (1, -1), (0, -2), (-1, -1), (-1, 1), (0, 2), (0, 0))
_HORIZONTAL = (False, False, True, False, False, True, True)
# Factor of the variances of points.
_SPREAD = 1.2
# Points drawn for each lit segment.
_N_POINTS = 100
# Half the width of an image, relative to the distance of the outermost segment edge from the centre.
_MARGIN = 1.8
# Images simulated at a time, to limit memory. The number does not affect the random numbers.
_IMAGES_AT_A_TIME = 1000


@dataclass(frozen=True, eq=False)
class SegmentLayout:
    """Positions of segments 1 to 7 in the plane, where y points up, and covariances of their points."""

    half_length: float  # the paper's D
    half_width: float  # the paper's d
    centres: FloatArray  # (7, 2), points (x, y)
    covariances: FloatArray  # (7, 2, 2)
    horizontal: NDArray[np.bool_]  # (7,), whether the segment is a horizontal bar
    bound: float  # an image shows the square from -bound to bound in both directions

    def lit(self, digits: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return index in `digits` (s,), centre (s, 2) and covariance (s, 2, 2) of all s lit segments."""
        is_lit = np.array([[number in lit for number in range(1, 8)] for lit in LIT_SEGMENTS])
        index, segment = np.nonzero(is_lit[digits])
        centres = self.centres[segment]
        centres[digits[index] == 1, 0] = 0.0
        return index, centres, self.covariances[segment]


def segment_layout(half_length: float = 2.0, half_width: float = 0.5) -> SegmentLayout:
    """Return the layout of segments; half length and width are also variances of points, before scaling."""
    horizontal = np.array(_HORIZONTAL)
    along_x = np.where(horizontal, half_length, half_width)
    along_y = np.where(horizontal, half_width, half_length)
    return SegmentLayout(
        half_length=half_length,
        half_width=half_width,
        centres=(half_length + half_width) * np.array(_CENTRES, dtype=np.float64),
        covariances=_SPREAD * np.stack([along_x, along_y], axis=1)[:, :, None] * np.eye(2),
        horizontal=horizontal,
        bound=_MARGIN * (2.0 * half_length + 3.0 * half_width),
    )


def sample_points(
    digits: IntArray, layout: SegmentLayout, random_state: RandomState = None
) -> tuple[FloatArray, IntArray]:
    """Draw points (N, 2) of digits (n,), equally many from each lit segment, and their indices in `digits`.

    Points (x, y) come digit by digit and, within a digit, in the order of `LIT_SEGMENTS`.
    """
    index, centres, covariances = layout.lit(digits)
    points = check_random_state(random_state).standard_normal((len(index), _N_POINTS, 2))
    points *= np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))[:, None]
    points += centres[:, None]
    return points.reshape(-1, 2), np.repeat(index, _N_POINTS)


def bin_points(points: FloatArray, image_index: IntArray, n_images: int, bound: float) -> Images:
    """Count points (N, 2) of images (N,) in pixels; the largest count of an image (28, 28) becomes 255.

    An image shows the square from -bound to bound; points outside count in the nearest pixel of its border.
    The first row is on top; an image without points is all zero.
    """
    # Multiply before dividing, so that the origin is exactly on the border between pixels.
    scaled = (np.clip(points, -bound, bound) + bound) * IMAGE_SIDE / (2.0 * bound)
    # Pixels include their left and their upper border, as in the published code.
    column = np.minimum(np.floor(scaled[:, 0]), IMAGE_SIDE - 1).astype(np.int64)
    from_below = np.clip(np.ceil(scaled[:, 1]), 1, IMAGE_SIDE).astype(np.int64)
    pixel = (image_index * IMAGE_SIDE + (IMAGE_SIDE - from_below)) * IMAGE_SIDE + column
    counts = np.bincount(pixel, minlength=n_images * IMAGE_SIDE**2).reshape(-1, IMAGE_SIDE, IMAGE_SIDE)
    fullest = np.maximum(counts.max(axis=(1, 2), keepdims=True, initial=0), 1)
    # Integer arithmetic is exact, so that halves are rounded up.
    return ((510 * counts + fullest) // (2 * fullest)).astype(np.uint8)


def make_seven_segment_digits(
    n_per_digit: int = 100, *, random_state: RandomState = None
) -> tuple[Images, IntArray]:
    """Simulate images of the digits 0 to 9 on a seven-segment display.

    Parameters
    ----------
    n_per_digit : int, default=100
        Images of each digit.
    random_state : int, RandomState instance or None, default=None
        Source of randomness; an int gives reproducible results.

    Returns
    -------
    images : ndarray of shape (10 * n_per_digit, 28, 28), uint8
        Images in the order of the digits; the brightest pixel of each is 255.
    labels : ndarray of shape (10 * n_per_digit,), int
        Their digits.

    Examples
    --------
    >>> from skmix.paper import make_seven_segment_digits
    >>> images, labels = make_seven_segment_digits(2, random_state=0)
    >>> images.shape, labels[:6].tolist()
    ((20, 28, 28), [0, 0, 1, 1, 2, 2])
    """
    check_scalar(n_per_digit, "n_per_digit", numbers.Integral, min_val=1)
    random, layout = check_random_state(random_state), segment_layout()
    labels = np.repeat(np.arange(len(LIT_SEGMENTS), dtype=np.int64), n_per_digit)
    images = np.empty((len(labels), IMAGE_SIDE, IMAGE_SIDE), dtype=np.uint8)
    for first in range(0, len(labels), _IMAGES_AT_A_TIME):
        some = slice(first, first + _IMAGES_AT_A_TIME)
        points, index = sample_points(labels[some], layout, random)
        images[some] = bin_points(points, index, len(labels[some]), layout.bound)
    return images, labels
