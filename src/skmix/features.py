"""For scikit-learn pipelines: deskewing of images, and scales for cytometry."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import affine_transform

from .data.scales import Arcsinh, Logicle

__all__ = ["Arcsinh", "Logicle", "deskew"]

FloatArray = NDArray[np.float64]


def deskew(images: ArrayLike) -> FloatArray:
    """Remove the slant of images by a shear, and centre them.

    Brightness is treated as mass. The slant of an image is the slope of the regression of column on row,
    weighted by mass. Each row is shifted so that the slope becomes zero, and the centre of mass is moved to
    the middle of the image. Brightness is interpolated linearly between pixels, and zero outside the image.

    Negative pixels have no mass. An image without mass is returned unchanged, and one whose mass is in a
    single row has no slant. In a pipeline, use ``FunctionTransformer(deskew)``.

    Parameters
    ----------
    images : array-like of shape (n, height, width) or (n, pixels)
        Images; flattened ones are square.

    Returns
    -------
    upright : ndarray of shape (n, height * width)
        Upright images.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.features import deskew
    >>> slanted = np.eye(5)[None, ::-1]
    >>> deskew(slanted).reshape(5, 5).sum(axis=0).tolist()
    [0.0, 0.0, 5.0, 0.0, 0.0]
    """
    given = np.asarray(images, dtype=np.float64)
    if given.ndim == 2:
        side = math.isqrt(given.shape[1])
        if side**2 != given.shape[1]:
            raise ValueError(
                f"images of {given.shape[1]} pixels are not square: pass them as (n, height, width)."
            )
        given = given.reshape(-1, side, side)
    return np.stack([_upright(image).ravel() for image in given])


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
