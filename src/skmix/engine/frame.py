"""The coordinates in which the loop works: centred, and scaled by powers of two.

Moments about the origin lose digits when data lie far from it, and squares overflow when data are huge.
Centring mends the first; scaling by powers of two mends the second without rounding anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .backends.arrays import Array, as_float64, is_numpy, namespace, to_numpy
from .kernels import Structure
from .types import FloatArray, IntArray, Parameters

_CHUNK = 1 << 14
_DEVICE_CHUNK = 1 << 20
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
    with np.errstate(over="ignore"):
        bound = _largest(X, scale, shift)
    return Frame(scale, shift, np.ones(n_features), np.minimum(bound, FARTHEST))


def _chunks(X: Array) -> list[slice]:
    """Return slices of rows to look at at once."""
    chunk = _CHUNK if is_numpy(X) else _DEVICE_CHUNK
    n_rows = X.shape[0]
    return [slice(a, min(a + chunk, n_rows)) for a in range(0, n_rows, chunk)]


def _largest(X: Array, scale: FloatArray | None = None, shift: FloatArray | None = None) -> FloatArray:
    """Return the largest magnitude (M,) of each feature, in other coordinates when they are given."""
    if not is_numpy(X):
        xp = namespace(X)
        scale, shift = (None if a is None else as_float64(a, X) for a in (scale, shift))
    found = []
    for cut in _chunks(X):
        values = X[cut, :] if scale is None else X[cut, :] / scale - shift
        if is_numpy(X):
            found.append(np.fmax.reduce(np.abs(values), axis=0))
        else:
            found.append(to_numpy(xp.max(xp.abs(values), axis=0)))
    return np.fmax.reduce(found).astype(np.float64)


def measure(
    X: np.ndarray,
    structure: Structure,
    columns: Sequence[int] | None = None,
    row_weights: FloatArray | None = None,
) -> Frame:
    """Return the frame of the rows X (N, M): a few passes over them, chunk by chunk.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows; NaN where a value is missing, but each feature with at least one value, and none outside NumPy.
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
    cuts = _chunks(X)
    gaps = is_numpy(X) and any(np.isnan(X[cut]).any() for cut in cuts)
    weights = row_weights
    if not is_numpy(X) and row_weights is not None:
        weights = as_float64(row_weights, X)

    def total(values: FloatArray, cut: slice) -> FloatArray:
        """Return the weighted sum (M,) of a chunk's values (n, M), missing ones left out."""
        if weights is not None:
            values = values * weights[cut, None]
        summed: FloatArray = np.nansum(values, axis=0) if gaps else namespace(values).sum(values, axis=0)
        return to_numpy(summed)

    largest = _largest(X)
    # First a scale that makes sums of squares safe, then the one that the spread asks for.
    safe = power_of_two(largest)
    # Sums are of differences from the first row, so that those of a constant feature are exactly zero.
    first = X[np.argmax(~np.isnan(X), axis=0), np.arange(n_features)] if gaps else to_numpy(X[0, :])
    first = first / safe
    here = [first, safe] if is_numpy(X) else [as_float64(a, X) for a in (first, safe)]
    count: float | FloatArray = n_rows if row_weights is None else row_weights.sum()
    if gaps:
        count = sum(total(np.where(np.isnan(X[cut]), 0.0, 1.0), cut) for cut in cuts)
    ahead = sum(total(X[cut, :] / here[1] - here[0], cut) for cut in cuts) / count
    here += [ahead if is_numpy(X) else as_float64(ahead, X)]
    spread = np.sqrt(sum(total((X[cut, :] / here[1] - here[0] - here[2]) ** 2, cut) for cut in cuts) / count)
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
    bound = _largest(X, scale, shift)
    inside = (spread * (safe / scale)) ** 2
    return Frame(scale, shift, np.where(inside > 0, inside, 1.0), np.minimum(bound, FARTHEST))
