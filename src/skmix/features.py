"""Transformers for scikit-learn pipelines: deskewing of images, and scales for cytometry."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import affine_transform
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .io.scales import Arcsinh, Logicle

__all__ = ["Arcsinh", "Deskew", "Logicle"]

FloatArray = NDArray[np.float64]
ImageShape = tuple[int, int]


class Deskew(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Remove the slant of images by a shear, and centre them.

    Brightness is treated as mass. The slant of an image is the slope of the regression of column on row,
    weighted by mass. Each row is shifted so that the slope becomes zero, and the centre of mass is moved to
    the middle of the image. Brightness is interpolated linearly between pixels, and zero outside the image.

    Negative pixels have no mass. An image without mass is returned unchanged, and one whose mass is in a
    single row has no slant.

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

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Store the shape of images X (n, height, width), or square ones that are flattened (n, pixels)."""
        flat, shape = self._flatten(X, reset=True)
        side = math.isqrt(flat.shape[1])
        if shape is None and side**2 != flat.shape[1]:
            raise ValueError(
                f"images of {flat.shape[1]} pixels are not square: pass them as (n, height, width)."
            )
        self.image_shape_ = shape or (side, side)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return upright images (n, height * width) of images X of the shape that was fitted."""
        check_is_fitted(self)
        flat, shape = self._flatten(X, reset=False)
        if shape not in (None, self.image_shape_):
            raise ValueError(f"images have shape {shape}, but those of the fit had {self.image_shape_}.")
        upright = np.empty(flat.shape)
        for place, image in enumerate(flat.astype(np.float64)):
            upright[place] = _upright(image.reshape(self.image_shape_)).ravel()
        return upright

    def _flatten(self, X: ArrayLike, *, reset: bool) -> tuple[NDArray[Any], ImageShape | None]:
        """Return images as rows (n, pixels), and their shape if X is not flattened."""
        shape: ImageShape | None = None
        # Leave tables and sparse matrices to scikit-learn, which checks column names and refuses the latter.
        images = X if hasattr(X, "columns") or hasattr(X, "toarray") else np.asarray(X)
        if isinstance(images, np.ndarray) and images.ndim == 3:
            shape = (images.shape[1], images.shape[2])
            images = images.reshape(len(images), math.prod(shape))
        return validate_data(self, images, reset=reset), shape


def _upright(image: FloatArray) -> FloatArray:
    """Return an image (height, width) without slant, its centre of mass in the middle."""
    mass = np.maximum(image, 0.0)
    if not mass.any():
        return image
    mass /= mass.sum()
    rows, columns = (np.arange(length, dtype=np.float64) for length in image.shape)
    mean = np.array([mass.sum(axis=1) @ rows, mass.sum(axis=0) @ columns])
    variance = mass.sum(axis=1) @ (rows - mean[0]) ** 2
    covariance = (rows - mean[0]) @ mass @ (columns - mean[1])
    shear = np.array([[1.0, 0.0], [covariance / variance if variance > 0.0 else 0.0, 1.0]])
    middle = (np.array(image.shape) - 1.0) / 2.0
    return affine_transform(image, shear, mean - shear @ middle, order=1, mode="grid-constant")
