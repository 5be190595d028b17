"""The coordinates in which the loop works: centred, and scaled by powers of two.

Moments about the origin lose digits when data lie far from it, and squares overflow when data are huge.
Centring mends the first; scaling by powers of two mends the second without rounding anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .kernels import Structure
from .types import FloatArray, IntArray, Parameters

_CHUNK = 1 << 14
# Rows farther out than this many scales are drawn in to it: nothing can tell them apart, and their squares
# stay finite.
FARTHEST = 1e100
# A constant feature has no spread to take its scale from: its magnitude serves, where its square is a number.
_LARGEST_SCALE = 2.0**500
# Rows this wide are turned this many at a time: a quarter to half of the time it takes at once.
_WIDE = 24
_PIECE = 128


@dataclass(frozen=True)
class Frame:
    """An affine change of coordinates, x' = x / scale − shift, and the data's extent in it.

    Attributes
    ----------
    scale : ndarray of shape (M,)
        Powers of two.
    shift : ndarray of shape (M,)
        The data's mean divided by `scale`.
    variance : ndarray of shape (M,)
        Each feature's variance in the frame; 1 for a constant feature, which has no scale of its own.
    bound : ndarray of shape (M,)
        Largest magnitude of each feature in the frame.
    """

    scale: FloatArray
    shift: FloatArray
    variance: FloatArray
    bound: FloatArray

    def rows(self, X: np.ndarray, out: FloatArray) -> FloatArray:
        """Write rows X (n, M) into `out` (M, n), feature-major and in the frame."""
        turn(X, out)
        with np.errstate(over="ignore"):
            out *= (1.0 / self.scale)[:, None]
            out -= self.shift[:, None]
        if self.bound.max() >= FARTHEST:
            np.clip(out, -FARTHEST, FARTHEST, out=out)
        return out

    def enter(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the data's coordinates in the frame."""
        return Parameters(
            np.array(parameters.weights, dtype=np.float64),
            np.clip(parameters.means / self.scale - self.shift, -FARTHEST, FARTHEST),
            structure.rescale(parameters.covariances, 1.0 / self.scale),
            parameters.class_prior,
        )

    def leave(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the frame in the data's coordinates."""
        return Parameters(
            parameters.weights,
            (parameters.means + self.shift) * self.scale,
            structure.rescale(parameters.covariances, self.scale),
            parameters.class_prior,
        )

    def take(self, columns: IntArray) -> Frame:
        """Return the frame of some of the features."""
        return Frame(self.scale[columns], self.shift[columns], self.variance[columns], self.bound[columns])

    def reaching(self, X: np.ndarray) -> Frame:
        """Return the same frame with the extent of other rows X (n, M) in it."""
        with np.errstate(over="ignore"):
            bound = np.fmax.reduce(np.abs(X / self.scale - self.shift), axis=0)
        return replace(self, bound=np.minimum(np.fmax(bound, 0.0), FARTHEST))

    def log_volume(self) -> float:
        """Logarithm of the factor by which the frame's densities exceed the data's."""
        return float(np.log(self.scale).sum())


def turn(matrix: np.ndarray, out: FloatArray) -> None:
    """Write a long or wide matrix transposed into `out`, in pieces that stay in the first-level cache."""
    if min(matrix.shape) < _WIDE:
        out[:] = matrix.T
        return
    if len(matrix) < matrix.shape[1]:
        matrix, out = matrix.T, out.T  # out = matrix' either way round
    for a in range(0, len(matrix), _PIECE):
        out[:, a : a + _PIECE] = matrix[a : a + _PIECE].T


def power_of_two(magnitude: FloatArray) -> FloatArray:
    """Return the powers of two next to positive magnitudes, 1 for zeros."""
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 0.5))
    return np.ldexp(1.0, np.clip(exponent, -1000, 1000))


def frame_of(parameters: Parameters, structure: Structure, X: np.ndarray) -> Frame:
    """Return the frame in which to evaluate one fitted model on rows X (n, M).

    Location and scale come from the model, so that the rows' number and order do not matter.
    """
    n_features = parameters.means.shape[1]
    heaviest = int(np.argmax(parameters.weights.mean(axis=1)))
    spread = np.sqrt(structure.variances(parameters.covariances[None])[0])
    reach = np.ptp(parameters.means, axis=0) + np.max(
        np.broadcast_to(spread, (len(spread), n_features)), axis=0
    )
    if structure.isotropic:
        reach = np.full_like(reach, reach.max())
    scale = power_of_two(reach)
    shift = parameters.means[heaviest] / scale
    blocks = (X[a : a + _CHUNK] for a in range(0, len(X), _CHUNK))
    with np.errstate(over="ignore"):
        bound = np.max([np.abs(block / scale - shift).max(axis=0) for block in blocks], axis=0)
    return Frame(scale, shift, np.ones(n_features), np.minimum(bound, FARTHEST))


def measure(
    X: np.ndarray,
    structure: Structure,
    columns: Sequence[int] | None = None,
    row_weights: FloatArray | None = None,
) -> Frame:
    """Return the frame of the rows X (N, M): a few passes over them, chunk by chunk.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows; NaN where a value is missing, but each feature with at least one value.
    structure : Structure
        Covariance structure.
    columns : sequence of M ints, optional
        What to call the features in errors, when X is part of a larger matrix.
    row_weights : ndarray of shape (N,), optional
        Positive weights of the rows.

    Raises
    ------
    ValueError
        When a feature's variance cannot be represented, with the feature's number.
    """
    n_rows, n_features = X.shape
    cuts = [slice(a, a + _CHUNK) for a in range(0, n_rows, _CHUNK)]
    gaps = any(np.isnan(X[cut]).any() for cut in cuts)

    def total(values: FloatArray, cut: slice) -> FloatArray:
        """Return the weighted sum (M,) of a chunk's values (n, M), missing ones left out."""
        if row_weights is not None:
            values = values * row_weights[cut, None]
        summed: FloatArray = np.nansum(values, axis=0) if gaps else values.sum(axis=0)
        return summed

    largest = np.fmax.reduce([np.fmax.reduce(np.abs(X[cut]), axis=0) for cut in cuts]).astype(np.float64)
    # First a scale that makes sums of squares safe, then the one that the spread asks for.
    safe = power_of_two(largest)
    # Sums are of differences from the first row, so that those of a constant feature are exactly zero.
    first = X[np.argmax(~np.isnan(X), axis=0), np.arange(n_features)] / safe if gaps else X[0] / safe
    count: float | FloatArray = n_rows if row_weights is None else row_weights.sum()
    if gaps:
        count = sum(total(np.where(np.isnan(X[cut]), 0.0, 1.0), cut) for cut in cuts)
    ahead = sum(total(X[cut] / safe - first, cut) for cut in cuts) / count
    spread = np.sqrt(sum(total((X[cut] / safe - first - ahead) ** 2, cut) for cut in cuts) / count)
    mean = first + ahead
    # A feature that varies in its last digits alone is as good as constant.
    spread[spread <= 8 * np.finfo(np.float64).eps * np.abs(mean)] = 0.0
    with np.errstate(over="ignore", under="ignore"):
        actual = (spread * safe) ** 2
    bad = ~np.isfinite(actual) | ((actual < np.finfo(np.float64).tiny) & (spread > 0))
    if bad.any():
        j = int(np.flatnonzero(bad)[0])
        name = j if columns is None else columns[j]
        raise ValueError(
            f"Feature {name} has a standard deviation of {spread[j] * safe[j]:.3g}, whose square is not a "
            "normal float64 number. Rescale that feature."
        )
    huge = largest > _LARGEST_SCALE
    if huge.any():
        j = int(np.flatnonzero(huge)[0])
        name = j if columns is None else columns[j]
        raise ValueError(
            f"Feature {name} has values of magnitude {largest[j]:.3g}, too large to be squared. "
            "Rescale that feature."
        )
    if structure.isotropic:
        widest = np.max(spread * safe, keepdims=True)
        scale = np.full_like(safe, power_of_two(widest)[0] if widest else 1.0)
    else:
        scale = np.where(
            spread > 0, power_of_two(spread) * safe, np.clip(safe, 1.0 / _LARGEST_SCALE, _LARGEST_SCALE)
        )
    shift = mean * (safe / scale)
    bound = np.fmax.reduce([np.fmax.reduce(np.abs(X[cut] / scale - shift), axis=0) for cut in cuts])
    inside = (spread * (safe / scale)) ** 2
    return Frame(scale, shift, np.where(inside > 0, inside, 1.0), np.minimum(bound, FARTHEST))
