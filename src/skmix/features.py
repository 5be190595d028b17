"""Transformers for scikit-learn pipelines: deskewing of images, and scales for cytometry.

Images are arrays (n, height, width), or flattened (n, height × width) row by row.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .io.scales import Arcsinh, Logicle

__all__ = ["Arcsinh", "Deskew", "Logicle"]

FloatArray = NDArray[np.float64]
ImageShape = tuple[int, int]

# Images whose features are computed at a time, to limit memory.
_IMAGES_AT_A_TIME = 256


class ImageTransformer(TransformerMixin, BaseEstimator):
    """Base class: it validates images and reshapes them to (n, height, width) for its subclasses."""

    image_shape: ImageShape | None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Store the shape of the images.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height * width)
            Images, at least one.
        y : ignored
            Present for pipelines.
        """
        self.__dict__.pop("image_shape_", None)
        flat, shape = self._flatten(X, reset=True)
        found = _resolve(shape if self.image_shape is None else self.image_shape, flat.shape[1])
        if shape not in (None, found):
            raise ValueError(f"images have shape {shape}, but image_shape={self.image_shape}.")
        self._check_shape(found)
        self.image_shape_ = found
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "image_shape_" in vars(self)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the features of images.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height * width)
            Images of the shape that was fitted.

        Returns
        -------
        ndarray of shape (n, features)
        """
        check_is_fitted(self)
        flat, shape = self._flatten(X, reset=False)
        if shape not in (None, self.image_shape_):
            raise ValueError(f"images have shape {shape}, but those of the fit had {self.image_shape_}.")
        images = flat.reshape(len(flat), *self.image_shape_)
        features = np.empty((len(images), len(self._names())))
        for first in range(0, len(images), _IMAGES_AT_A_TIME):
            some = slice(first, first + _IMAGES_AT_A_TIME)
            features[some] = self._features(images[some])
        return features

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features; `input_features` is ignored."""
        check_is_fitted(self)
        return np.array(self._names(), dtype=object)

    def _flatten(self, X: ArrayLike, *, reset: bool) -> tuple[NDArray[Any], ImageShape | None]:
        """Return images as rows (n, pixels), and their shape if X is not flattened."""
        shape: ImageShape | None = None
        # Leave tables and sparse matrices to scikit-learn, which checks column names and refuses the latter.
        images = X if hasattr(X, "columns") or hasattr(X, "toarray") else np.asarray(X)
        if isinstance(images, np.ndarray) and images.ndim == 3:
            shape = (images.shape[1], images.shape[2])
            if 0 in shape:
                raise ValueError(f"images must have pixels, got shape {images.shape}.")
            images = images.reshape(len(images), -1)
        return validate_data(self, images, reset=reset), shape

    def _check_shape(self, shape: ImageShape) -> None:
        """Raise ValueError if the parameters do not suit images of this shape."""

    def _features(self, images: NDArray[Any]) -> FloatArray:
        """Return the features (n, features) of images (n, height, width)."""
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError


class Deskew(ImageTransformer):
    """Remove the slant of images by a shear, and centre them.

    Brightness is treated as mass. The slant of an image is the slope of the regression of column on row,
    weighted by mass. Each row is shifted so that the slope becomes zero, and the centre of mass is moved to
    the middle of the image. Brightness is interpolated linearly between pixels, and zero outside the image.

    Negative pixels have no mass. An image without mass is returned unchanged, and one whose mass is in a
    single row has no slant.

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
        # Position from which each pixel is interpolated. Its row does not depend on the column, so bilinear
        # interpolation can be done between rows first, and then within them.
        down = (mean_row - target_row)[:, None]
        across = slope[:, None] * (from_row + down) + (mean_column - target_column)[:, None]
        lower, share = _pixels_before(rows + down, height)
        # A margin of one pixel holds the zeros outside the image.
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        image = np.arange(n)[:, None]
        between = padded[image, lower]
        between += share[:, :, None] * (padded[image, lower + 1] - between)
        left, share = _pixels_before(columns + across[:, :, None], width)
        left += (width + 2) * np.arange(n * height).reshape(-1, height, 1)
        flat = between.ravel()
        upright = flat.take(left)
        left += 1
        upright += share * (flat.take(left) - upright)
        return upright.reshape(n, -1)


def _resolve(image_shape: ImageShape | None, n_pixels: int) -> ImageShape:
    """Return (height, width) of images with `n_pixels` pixels."""
    if image_shape is None:
        side = math.isqrt(n_pixels)
        if side * side != n_pixels:
            raise ValueError(
                f"images of {n_pixels} pixels are not square: pass them as (n, height, width) or give "
                "image_shape=(height, width)."
            )
        return side, side
    try:
        height, width = np.empty(n_pixels, dtype=bool).reshape(image_shape).shape
        if min(image_shape) < -1:  # NumPy treats any negative number as -1
            raise ValueError
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image_shape={image_shape!r} does not fit images of {n_pixels} pixels: it must be "
            "(height, width), of which one may be -1."
        ) from error
    return height, width


def _pixels_before(places: FloatArray, length: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the pixel before each position, as an index in the padded image, and the distance from it."""
    inside = np.clip(places + 1.0, 0.0, length + 1.0)
    below = np.minimum(inside.astype(np.int64), length)
    return below, inside - below
