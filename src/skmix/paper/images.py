"""The paper's fourteen features of images of digits, and its dither."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from .digits import IMAGE_SIDE, FloatArray, RandomState

DIGIT_FEATURES = (*(f"pca {j}" for j in range(1, 11)), "q1", "q2", "q3", "q4")
"""Names of the columns of `digit_features`."""

# The entries of the principal axis that the paper uses, 11 to 20.
_ENTRIES = slice(10, 20)
# Relative difference up to which entries count as equally large in the choice of the sign.
_TIE = 1e-9
# Largest magnitude that dither replaces: rounding turns some zeros into 1e-31.
_ZERO = 1e-10
# Standard deviation of the numbers that replace zeros.
_DITHER = 0.01
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
        Entries 11 to 20 of the first principal axis ("pca 1" to "pca 10"), and the shares of the non-zero
        pixels in the upper right, upper left, lower left and lower right quadrant ("q1" to "q4");
        `DIGIT_FEATURES` has the names. The shares sum to one, unless all pixels are zero.

    Notes
    -----
    Each image is a data set of its own, with its rows as observations and its columns as variables. The sign
    of its principal axis is chosen so that the entry of largest magnitude is positive (the first of several
    equally large ones). A column that is the same in every row has an entry of exactly zero. If the two
    largest singular values are equal, the axis is not unique.

    Examples
    --------
    >>> from skmix.paper import digit_features, make_seven_segment_digits
    >>> images, labels = make_seven_segment_digits(3, random_state=0)
    >>> digit_features(images).shape
    (30, 14)
    """
    pixels = np.asarray(images)
    if pixels.ndim not in (2, 3) or pixels[:1].size not in (0, IMAGE_SIDE**2):
        raise ValueError(f"images must have shape (n, 28, 28) or (n, 784), got {pixels.shape}.")
    if not np.isfinite(pixels).all():
        raise ValueError("images must be finite.")
    pixels = pixels.reshape(-1, IMAGE_SIDE, IMAGE_SIDE)
    axes = np.empty((len(pixels), IMAGE_SIDE))
    for first in range(0, len(pixels), _IMAGES_AT_A_TIME):
        some = slice(first, first + _IMAGES_AT_A_TIME)
        axes[some] = _principal_axes(pixels[some])
    half = IMAGE_SIDE // 2
    by_half = (pixels != 0).reshape(-1, 2, half, 2, half).sum(axis=(2, 4))
    counts = by_half[:, [0, 0, 1, 1], [1, 0, 0, 1]]
    return np.hstack([axes[:, _ENTRIES], counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)])


def _principal_axes(pixels: NDArray[Any]) -> FloatArray:
    """Return the first principal axis (n, 28) of each image, zero for an image whose rows are all equal."""
    images = pixels.astype(np.float64)
    # Use the SVD: eigenvectors of the covariance matrix would have half as many correct digits.
    axes = np.linalg.svd(images - images.mean(axis=1, keepdims=True), full_matrices=False)[2][:, 0]
    # Entries of constant columns are zero; rounding would leave about 1e-30 or, if all columns are
    # constant, an arbitrary unit vector.
    axes[(images == images[:, :1]).all(axis=1)] = 0.0
    sizes = np.abs(axes)
    largest = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=1, keepdims=True), axis=1)
    signs = np.where(np.take_along_axis(axes, largest[:, None], axis=1) < 0.0, -1.0, 1.0)
    # Adding zero turns -0.0 into 0.0.
    return np.asarray(signs * axes + 0.0)


def dither(features: ArrayLike, *, random_state: RandomState = None) -> FloatArray:
    """Replace zeros by draws from N(0, 0.01²), so that no feature is constant within a class.

    Parameters
    ----------
    features : array-like of any shape
        Features; not modified. Magnitudes up to 1e-10 count as zero.
    random_state : int, RandomState instance or None, default=None
        Source of randomness; an int gives reproducible results.

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
    dithered = np.array(features, dtype=np.float64)
    zero = np.abs(dithered) <= _ZERO
    random = check_random_state(random_state)
    dithered[zero] = _DITHER * random.standard_normal(int(np.count_nonzero(zero)))
    return dithered
