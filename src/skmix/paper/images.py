"""Features of images, as scikit-learn transformers, and the paper's fourteen features of digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from skmix.features import ImageShape, ImageTransformer

FloatArray = NDArray[np.float64]

DIGIT_FEATURES = (*(f"pca {j}" for j in range(1, 11)), "q1", "q2", "q3", "q4")
"""Names of the columns of `digit_features`."""

_DIGIT_SHAPE = (28, 28)
# Entries within this relative distance of the largest count as equally large when the sign is chosen.
_TIE = 1e-9


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
    >>> from skmix.paper import make_seven_segment_digits
    >>> from skmix.paper import PrincipalAxis
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
    >>> from skmix.paper import make_seven_segment_digits
    >>> from skmix.paper import QuadrantMass
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
    >>> from skmix.paper import make_seven_segment_digits
    >>> from skmix.paper import digit_features
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
    >>> from skmix.paper import dither
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
