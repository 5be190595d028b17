"""The coordinates in which the loop works: centred, and scaled by powers of two.

Moments about the origin lose digits when data lie far from it, and squares overflow when data are huge.
Centring mends the first; scaling by powers of two mends the second without rounding anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..compute.arrays import Array, as_float64, is_numpy, namespace, to_numpy
from ..covariances import Structure
from ..model import FloatArray, IntArray, Parameters

_CHUNK = 1 << 14
_DEVICE_CHUNK = 1 << 20
# Rows farther out than this many scales are drawn in to it: nothing can tell them apart, and their squares
# stay finite.
FARTHEST = 1e100
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


def chunks(X: Array) -> list[slice]:
    """Return slices of rows to look at at once."""
    chunk = _CHUNK if is_numpy(X) else _DEVICE_CHUNK
    n_rows = X.shape[0]
    return [slice(a, min(a + chunk, n_rows)) for a in range(0, n_rows, chunk)]


def _largest(X: Array, scale: FloatArray, shift: FloatArray) -> FloatArray:
    """Return the largest magnitude (M,) of each feature in the coordinates x / scale − shift."""
    if is_numpy(X):
        return np.fmax.reduce([np.fmax.reduce(np.abs(X[cut] / scale - shift), axis=0) for cut in chunks(X)])
    xp, unit, origin = namespace(X), as_float64(scale, X), as_float64(shift, X)
    parts = [xp.max(xp.abs(X[cut, :] / unit - origin), axis=0) for cut in chunks(X)]
    return np.fmax.reduce([to_numpy(part) for part in parts])
