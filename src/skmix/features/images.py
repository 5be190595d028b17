"""Features of images, as scikit-learn transformers.

All take images as an array (n, height, width) or flattened (n, height × width), row after row.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["DIGIT_FEATURES", "Deskew", "PrincipalAxis", "QuadrantMass", "digit_features", "dither"]

FloatArray = NDArray[np.float64]
ImageShape = tuple[int, int]

DIGIT_FEATURES = (*(f"pca {j}" for j in range(1, 11)), "q1", "q2", "q3", "q4")
"""Names of the columns of `digit_features`."""

_DIGIT_SHAPE = (28, 28)
# Entries within this relative distance of the largest count as equally large when the sign is chosen.
_TIE = 1e-9
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


class PrincipalAxis(ImageTransformer):
    """Entries of an image's first principal axis.

    Each image is a data set of its own, with its rows as observations and its columns as variables. The first
    principal axis is a unit vector with an entry for each column. Its sign is chosen so that the entry of
    largest magnitude is positive (the first of several equally large ones).

    A column that is the same in every row has an entry of exactly zero. An image whose rows are all equal has
    no principal axis: its entries are all zero. If the two largest singular values are equal, the axis is not
    unique.

    Parameters
    ----------
    start, stop : int, default=10, 20
        Entries ``start`` to ``stop - 1`` are returned, counted from 0; None for `stop` returns all to the
        end. The defaults are the paper's entries 11 to 20 of images with 28 columns.
    image_shape : (height, width) or None, default=None
        Shape of flattened images; one of them may be -1. None assumes square images.

    Attributes
    ----------
    image_shape_ : (height, width)
        Shape of the images.

    Examples
    --------
    >>> from skmix.datasets import make_seven_segment_digits
    >>> from skmix.features import PrincipalAxis
    >>> images, labels = make_seven_segment_digits(5, random_state=0)
    >>> PrincipalAxis().fit_transform(images).shape
    (50, 10)
    """

    def __init__(
        self, *, start: int = 10, stop: int | None = 20, image_shape: ImageShape | None = None
    ) -> None:
        self.start = start
        self.stop = stop
        self.image_shape = image_shape

    def _check_shape(self, shape: ImageShape) -> None:
        stop = shape[1] if self.stop is None else self.stop
        if not 0 <= self.start < stop <= shape[1]:
            raise ValueError(
                f"start={self.start} and stop={self.stop} must satisfy 0 <= start < stop <= {shape[1]}, the "
                "number of columns of the images."
            )

    def _features(self, images: NDArray[Any]) -> FloatArray:
        images = images.astype(np.float64)
        # By SVD: eigenvectors of the covariance matrix would have half as many correct digits.
        centred = images - images.mean(axis=1, keepdims=True)
        leading = np.linalg.svd(centred, full_matrices=False)[2][:, 0]
        # Entries of constant columns are zero; rounding would leave about 1e-30 or, if all columns are
        # constant, an arbitrary unit vector.
        leading[(images == images[:, :1]).all(axis=1)] = 0.0
        sizes = np.abs(leading)
        largest = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=1, keepdims=True), axis=1)
        signs = np.where(np.take_along_axis(leading, largest[:, None], axis=1) < 0.0, -1.0, 1.0)
        # Adding zero turns -0.0 into 0.0.
        return (signs * leading + 0.0)[:, self.start : self.stop]

    def _names(self) -> list[str]:
        entries = range(self.image_shape_[1])[self.start : self.stop]
        return [f"pca {place}" for place in range(1, len(entries) + 1)]


class QuadrantMass(ImageTransformer):
    """Share of an image's non-zero pixels in each quadrant.

    The features are q1 (upper right), q2 (upper left), q3 (lower left) and q4 (lower right). They sum to
    one, so that three of them suffice; the paper's study uses q2, q3 and q4.

    Every non-zero pixel counts the same. If height or width is odd, a pixel of the middle row or column
    counts half on either side. All shares of an image without non-zero pixels are zero.

    Parameters
    ----------
    quadrants : tuple of int, default=(1, 2, 3, 4)
        The quadrants to return, in this order.
    image_shape : (height, width) or None, default=None
        Shape of flattened images; one of them may be -1. None assumes square images.

    Attributes
    ----------
    image_shape_ : (height, width)
        Shape of the images.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.datasets import make_seven_segment_digits
    >>> from skmix.features import QuadrantMass
    >>> images, labels = make_seven_segment_digits(20, random_state=0)
    >>> pipeline = make_pipeline(QuadrantMass(), SharedKernelClassifier(random_state=0))
    >>> bool(pipeline.fit(images, labels).score(images, labels) > 0.7)
    True
    """

    def __init__(
        self, *, quadrants: tuple[int, ...] = (1, 2, 3, 4), image_shape: ImageShape | None = None
    ) -> None:
        self.quadrants = quadrants
        self.image_shape = image_shape

    def _check_shape(self, shape: ImageShape) -> None:
        chosen = list(self.quadrants)
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= {1, 2, 3, 4}:
            raise ValueError(f"quadrants={self.quadrants} must be different numbers from 1 to 4.")

    def _features(self, images: NDArray[Any]) -> FloatArray:
        n, height, width = images.shape
        (upper, lower), (left, right) = _halves(height), _halves(width)
        sides = ((upper, right), (upper, left), (lower, left), (lower, right))
        shares = np.stack([np.outer(*sides[quadrant - 1]).ravel() for quadrant in self.quadrants])
        lit = images.reshape(n, -1) != 0
        return lit @ shares.T / np.maximum(lit.sum(axis=1), 1)[:, None]

    def _names(self) -> list[str]:
        return [f"q{quadrant}" for quadrant in self.quadrants]


def digit_features(images: ArrayLike) -> FloatArray:
    """Return the paper's 14 features of images of 28 × 28 pixels.

    Parameters
    ----------
    images : array-like of shape (n, 28, 28) or (n, 784)
        Images.

    Returns
    -------
    ndarray of shape (n, 14)
        Entries 11 to 20 of the first principal axis ("pca 1" to "pca 10", see `PrincipalAxis`) and the
        shares of the four quadrants ("q1" to "q4", see `QuadrantMass`); `DIGIT_FEATURES` has the names.

    Examples
    --------
    >>> from skmix.datasets import make_seven_segment_digits
    >>> from skmix.features import digit_features
    >>> images, labels = make_seven_segment_digits(3, random_state=0)
    >>> digit_features(images).shape
    (30, 14)
    """
    axis = PrincipalAxis(image_shape=_DIGIT_SHAPE)
    mass = QuadrantMass(image_shape=_DIGIT_SHAPE)
    return np.hstack([axis.fit_transform(images), mass.fit_transform(images)])


def dither(
    features: ArrayLike,
    *,
    random_state: int | np.random.RandomState | None = None,
    tolerance: float = 1e-10,
    scale: float = 0.01,
) -> FloatArray:
    """Replace zeros with small random numbers, so that no feature is constant within a class.

    Parameters
    ----------
    features : array-like of any shape
        Features; not modified.
    random_state : int, RandomState instance or None, default=None
        Source of randomness; an int gives reproducible results.
    tolerance : float, default=1e-10
        Magnitudes up to this count as zero: rounding turns some zeros into 1e-31.
    scale : float, default=0.01
        Standard deviation of the random numbers, whose mean is zero.

    Returns
    -------
    ndarray
        A copy with the zeros replaced.

    Examples
    --------
    >>> from skmix.features import dither
    >>> dither([[0.5, 0.0]], random_state=0).round(3).tolist()
    [[0.5, 0.018]]
    """
    for name, value in (("tolerance", tolerance), ("scale", scale)):
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {value}.")
    dithered = np.array(features, dtype=np.float64)
    zero = np.abs(dithered) <= tolerance
    random = check_random_state(random_state)
    dithered[zero] = scale * random.standard_normal(int(np.count_nonzero(zero)))
    return dithered


def _halves(size: int) -> tuple[FloatArray, FloatArray]:
    """Return how much of each row (or column) belongs to the first half and to the second."""
    first = np.clip(size / 2.0 - np.arange(size), 0.0, 1.0)
    return first, 1.0 - first


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
        if min(image_shape) < -1:  # NumPy takes any negative number for -1
            raise ValueError
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image_shape={image_shape!r} does not fit images of {n_pixels} pixels: it must be "
            "(height, width), at most one of them -1."
        ) from error
    return height, width


def _cells(places: FloatArray, length: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the pixel before each position, as an index in the padded image, and the distance from it."""
    inside = np.clip(places + 1.0, 0.0, length + 1.0)
    below = np.minimum(inside.astype(np.int64), length)
    return below, inside - below
