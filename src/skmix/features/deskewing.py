"""Deskewing: removing the slant of handwriting by a shear."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.features._images import FloatArray, ImageShape, ImageTransformer


class Deskew(ImageTransformer):
    """Remove the slant of images by a shear, and centre them.

    Brightness is treated as mass. The slant of an image is the slope of the regression of column on row,
    weighted by mass. Each row is shifted so that the slope becomes zero, and the centre of mass is moved to
    the middle of the image. Brightness is interpolated linearly between pixels, and zero outside the image.

    Parameters
    ----------
    centre : bool, default=True
        Whether to move the centre of mass to the middle.
    image_shape : (height, width) or None, default=None
        Shape of flattened images; one of them may be -1. None assumes square images.

    Attributes
    ----------
    image_shape_ : (height, width)
        Shape of the images.

    Notes
    -----
    Negative pixels have no mass. An image without mass is returned unchanged, and one whose mass is in a
    single row has no slant.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.features import Deskew
    >>> slanted = np.eye(5)[None, ::-1]
    >>> Deskew().fit_transform(slanted).reshape(5, 5).sum(axis=0).tolist()
    [0.0, 0.0, 5.0, 0.0, 0.0]
    """

    def __init__(self, *, centre: bool = True, image_shape: ImageShape | None = None) -> None:
        self.centre = centre
        self.image_shape = image_shape

    def _check_shape(self, shape: ImageShape) -> None:
        if not isinstance(self.centre, (bool, np.bool_)):
            raise ValueError(f"centre must be True or False, got {self.centre!r}.")

    def _names(self) -> list[str]:
        height, width = self.image_shape_
        return [f"pixel {row},{column}" for row in range(height) for column in range(width)]

    def _features(self, images: NDArray[Any]) -> FloatArray:
        n, height, width = images.shape
        images = images.astype(np.float64)
        bright = np.maximum(images, 0.0)
        by_row, by_column = bright.sum(axis=2), bright.sum(axis=1)
        mass = by_row.sum(axis=1)
        dark = mass == 0.0
        mass[dark] = 1.0
        rows, columns = np.arange(height, dtype=np.float64), np.arange(width, dtype=np.float64)
        middle_row, middle_column = (height - 1) / 2.0, (width - 1) / 2.0
        mean_row = np.where(dark, middle_row, by_row @ rows / mass)
        mean_column = np.where(dark, middle_column, by_column @ columns / mass)
        from_row = rows - mean_row[:, None]
        from_column = columns - mean_column[:, None]
        variance = (by_row * from_row**2).sum(axis=1)
        covariance = np.einsum("nij,ni,nj->n", bright, from_row, from_column, optimize=True)
        slope = np.divide(covariance, variance, out=np.zeros_like(variance), where=variance > 0.0)
        target_row = middle_row if self.centre else mean_row
        target_column = middle_column if self.centre else mean_column
        # The source of each pixel. Its row does not depend on the column, so that bilinear interpolation can
        # be done between rows first, and then within them.
        down = (mean_row - target_row)[:, None]
        across = slope[:, None] * (from_row + down) + (mean_column - target_column)[:, None]
        lower, share = _cells(rows + down, height)
        # A margin of one pixel holds the zeros outside the image.
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        image = np.arange(n)[:, None]
        between = padded[image, lower]
        between += share[:, :, None] * (padded[image, lower + 1] - between)
        left, share = _cells(columns + across[:, :, None], width)
        left += (width + 2) * np.arange(n * height).reshape(-1, height, 1)
        flat = between.ravel()
        upright = flat.take(left)
        left += 1
        upright += share * (flat.take(left) - upright)
        return upright.reshape(n, -1)


def _cells(places: FloatArray, length: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the pixel before each position, as an index in the padded image, and the distance from it."""
    inside = np.clip(places + 1.0, 0.0, length + 1.0)
    below = np.minimum(inside.astype(np.int64), length)
    return below, inside - below
