"""The base class of image transformers: validation, and images of any layout as (n, height, width)."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

FloatArray = NDArray[np.float64]
ImageShape = tuple[int, int]

# Images whose features are computed at a time, to limit memory.
_IMAGES_AT_A_TIME = 256


class ImageTransformer(TransformerMixin, BaseEstimator):
    """Validates images and reshapes them to (n, height, width); subclasses compute their features."""

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
        flat, shape = self._flatten(X, reset=True)
        self.image_shape_ = _resolve(self.image_shape or shape, flat.shape[1])
        if shape not in (None, self.image_shape_):
            raise ValueError(f"images have shape {shape}, but image_shape={self.image_shape}.")
        self._check_shape(self.image_shape_)
        return self

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
            part = slice(first, first + _IMAGES_AT_A_TIME)
            features[part] = self._features(images[part])
        return features

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features; `input_features` is ignored."""
        check_is_fitted(self)
        return np.array(self._names(), dtype=object)

    def _flatten(self, X: ArrayLike, *, reset: bool) -> tuple[NDArray[Any], ImageShape | None]:
        """Return images as rows (n, pixels), and their shape if X is not flattened."""
        shape: ImageShape | None = None
        # Tables stay tables: scikit-learn compares their column names. It also refuses sparse matrices.
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
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image_shape={image_shape!r} does not fit images of {n_pixels} pixels: it must be "
            "(height, width), at most one of them -1."
        ) from error
    return height, width
