"""The frame, the coordinates in which passes work, and the setting of a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .compute.threads import Workers
from .model import FloatArray, Parameters
from .structures import Structure

# Values beyond this many scales are clipped so that their squares stay finite.
FARTHEST = 1e100
# The range of a model's frame, in its scales: accelerators evaluate rows within it from expanded terms.
NEAR = 4.0
# Rows this wide are transposed in pieces, which is two to four times faster.
_WIDE = 24
_PIECE = 128


@dataclass(frozen=True)
class Frame:
    """The coordinates of the loop, x' = x / scale − shift, and the range of the rows in them.

    Moments about the origin lose digits if rows lie far from it, and squares of huge values overflow.
    Centring prevents the first; scaling by powers of two prevents the second without rounding.
    """

    scale: FloatArray  # (M,): powers of two, unless standardised
    shift: FloatArray  # (M,): the data's mean divided by `scale`
    variance: FloatArray  # (M,): each feature's variance in the frame; 1 for a constant feature
    bound: FloatArray  # (M,): largest magnitude of each feature in the frame

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
            concentration=parameters.concentration,
            tail=parameters.tail.transformed(lambda values: values / self.scale - self.shift),
        )

    def leave(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the frame in the data's coordinates."""
        with np.errstate(over="ignore"):  # in starts that failed
            covariances = structure.rescale(parameters.covariances, self.scale)
        return Parameters(
            parameters.weights,
            (parameters.means + self.shift) * self.scale,
            covariances,
            parameters.class_prior,
            concentration=parameters.concentration,
            tail=parameters.tail.transformed(lambda values: (values + self.shift) * self.scale),
        )

    def standardised(self, structure: Structure) -> Frame:
        """Return the frame of features divided by their deviations: its distances do not depend on units.

        Their multiples are rounded, unlike those of powers of two. Spherical kernels have one unit for all
        features: for them the frame stays as it is.
        """
        if structure.isotropic:
            return self
        deviation = np.sqrt(self.variance)
        ones = np.ones_like(deviation)
        return Frame(self.scale * deviation, self.shift / deviation, ones, self.bound / deviation)

    def reaching(self, X: np.ndarray) -> Frame:
        """Return the same frame with the range of other rows X (n, M)."""
        with np.errstate(over="ignore"):
            bound = np.fmax.reduce(np.abs(X / self.scale - self.shift), axis=0)
        return replace(self, bound=np.minimum(np.fmax(bound, 0.0), FARTHEST))

    def log_volume(self) -> float:
        """Logarithm of the factor by which the frame's densities exceed the data's."""
        return float(np.log(self.scale).sum())


@dataclass(frozen=True, eq=False)
class Setting:
    """The settings of an E-step."""

    frame: Frame  # coordinates of the parameters
    structure: Structure  # covariance structure
    pool: Workers  # threads
    precision: str = "float64"  # of the rows' terms and the products with them, on an accelerator
    compiles: bool = False  # whether passes over rows in memory run in compiled code
    skips: bool = True  # whether passes with many kernels of one start may skip irrelevant ones


def turn(matrix: np.ndarray, out: FloatArray) -> None:
    """Write a long or wide matrix transposed into `out`, in pieces that stay in the first-level cache."""
    if min(matrix.shape) < _WIDE:
        out[:] = matrix.T
        return
    if len(matrix) < matrix.shape[1]:
        matrix, out = matrix.T, out.T  # the same transposition
    for a in range(0, len(matrix), _PIECE):
        out[:, a : a + _PIECE] = matrix[a : a + _PIECE].T


def power_of_two(magnitude: FloatArray) -> FloatArray:
    """Return the next larger powers of two of positive magnitudes, 1 for zeros."""
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 0.5))
    return np.ldexp(1.0, np.clip(exponent, -1000, 1000))


def frame_of(parameters: Parameters, structure: Structure) -> Frame:
    """Return the frame in which to evaluate one model on rows near it: its heaviest kernel is at zero."""
    means, heaviest = parameters.means, int(parameters.weights.mean(axis=1).argmax())
    scale = scale_of(means, parameters.covariances, structure)
    return Frame(scale, means[heaviest] / scale, np.ones(len(scale)), np.full(len(scale), NEAR))


def scale_of(means: FloatArray, covariances: FloatArray, structure: Structure) -> FloatArray:
    """Return the scale (M,) of means (K, M) and covariances, in powers of two."""
    spread = np.sqrt(structure.variances(covariances[None])[0])
    reach = np.ptp(means, axis=0) + spread.max(axis=0)
    if structure.isotropic:
        reach = np.full_like(reach, reach.max())
    return power_of_two(reach)
