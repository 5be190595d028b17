"""The paper's fourteen features of images of digits, and its dither."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from .digits import IMAGE_SIDE

FloatArray = NDArray[np.float64]

DIGIT_FEATURES = (*(f"pca {j}" for j in range(1, 11)), "q1", "q2", "q3", "q4")
"""Names of the columns of `digit_features`."""

# The entries of the principal axis that the paper uses, 11 to 20.
_ENTRIES = slice(10, 20)
# Relative difference up to which entries count as equally large in the choice of the sign.
_TIE = 1e-9
# Images whose features are computed at a time, to limit memory.
_IMAGES_AT_A_TIME = 256


def digit_features(images: ArrayLike) -> FloatArray:
    """Return the paper's 14 features of images of 28 × 28 pixels.

    Parameters
    ----------
    images : array-like of shape (n, 28, 28) or (n, 784)
        Images.

    Returns
    -------
    ndarray of shape (n, 14)
        Entries 11 to 20 of the first principal axis ("pca 1" to "pca 10", see `principal_axis`) and the
        shares of the four quadrants ("q1" to "q4", see `quadrant_mass`); `DIGIT_FEATURES` has the names.

    Examples
    --------
    >>> from skmix.paper import digit_features, make_seven_segment_digits
    >>> images, labels = make_seven_segment_digits(3, random_state=0)
    >>> digit_features(images).shape
    (30, 14)
    """
    found = np.asarray(images)
    if found.ndim not in (2, 3) or found[:1].size not in (0, IMAGE_SIDE**2):
        raise ValueError(f"images must have shape (n, 28, 28) or (n, 784), got {found.shape}.")
    found = found.reshape(-1, IMAGE_SIDE, IMAGE_SIDE)
    return np.hstack([principal_axis(found)[:, _ENTRIES], quadrant_mass(found)])


def principal_axis(images: ArrayLike) -> FloatArray:
    """Return the first principal axis of each image.

    Each image is a data set of its own, with its rows as observations and its columns as variables. The first
    principal axis is a unit vector with an entry for each column. Its sign is chosen so that the entry of
    largest magnitude is positive (the first of several equally large ones).

    A column that is the same in every row has an entry of exactly zero. An image whose rows are all equal has
    no principal axis: its entries are all zero. If the two largest singular values are equal, the axis is not
    unique.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
        Images.

    Returns
    -------
    ndarray of shape (n, width)
    """
    checked = _check_images(images)
    axes = np.empty((len(checked), checked.shape[2]))
    for first in range(0, len(checked), _IMAGES_AT_A_TIME):
        some = checked[first : first + _IMAGES_AT_A_TIME].astype(np.float64)
        # Use the SVD: eigenvectors of the covariance matrix would have half as many correct digits.
        centred = some - some.mean(axis=1, keepdims=True)
        leading = np.linalg.svd(centred, full_matrices=False)[2][:, 0]
        # Entries of constant columns are zero; rounding would leave about 1e-30 or, if all columns are
        # constant, an arbitrary unit vector.
        leading[(some == some[:, :1]).all(axis=1)] = 0.0
        sizes = np.abs(leading)
        largest = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=1, keepdims=True), axis=1)
        signs = np.where(np.take_along_axis(leading, largest[:, None], axis=1) < 0.0, -1.0, 1.0)
        # Adding zero turns -0.0 into 0.0.
        axes[first : first + len(some)] = signs * leading + 0.0
    return axes


def quadrant_mass(images: ArrayLike) -> FloatArray:
    """Return the share of each image's non-zero pixels in each quadrant.

    The features are q1 (upper right), q2 (upper left), q3 (lower left) and q4 (lower right). They sum to
    one, so that three of them suffice; the paper's study uses q2, q3 and q4. Every non-zero pixel counts the
    same. If height or width is odd, a pixel of the middle row or column counts half on either side. All
    shares of an image without non-zero pixels are zero.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
        Images.

    Returns
    -------
    ndarray of shape (n, 4)

    Examples
    --------
    >>> from skmix.paper.images import quadrant_mass
    >>> quadrant_mass([[[0, 9], [5, 0]]]).tolist()
    [[0.5, 0.0, 0.5, 0.0]]
    """
    checked = _check_images(images)
    n, height, width = checked.shape
    (upper, lower), (left, right) = _halves(height), _halves(width)
    quadrants = ((upper, right), (upper, left), (lower, left), (lower, right))
    shares = np.stack([np.outer(*each).ravel() for each in quadrants])
    lit = checked.reshape(n, -1) != 0
    return lit @ shares.T / np.maximum(lit.sum(axis=1), 1)[:, None]


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


def _check_images(images: ArrayLike) -> NDArray[np.generic]:
    """Return images (n, height, width); raise ValueError for another shape, or pixels that are not finite."""
    checked = np.asarray(images)
    if checked.ndim != 3 or 0 in checked.shape[1:]:
        raise ValueError(f"images must have shape (n, height, width), got {checked.shape}.")
    if not np.isfinite(checked).all():
        raise ValueError("images must be finite.")
    return checked


def _halves(size: int) -> tuple[FloatArray, FloatArray]:
    """Return the shares of each of `size` rows or columns in the first half and in the second."""
    first = np.clip(size / 2.0 - np.arange(size), 0.0, 1.0)
    return first, 1.0 - first
