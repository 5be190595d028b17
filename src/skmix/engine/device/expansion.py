"""Gaussian mixtures as linear functions of expanded rows.

A Gaussian log-density is linear in x, in the products of its features and in 1, and the log-weight of a class
is linear in the indicator of that class. Rows expanded into these terms need one matrix product with the
coefficients of all kernels of all starts to give their log-joint densities, and one with the responsibilities
to give all statistics: Eq. (E) of ``docs/notation.md``.

Terms cancel where a kernel is narrow and far from the origin. The log-densities of such kernels are computed
from differences, and their moments are taken about their means, in float64 whatever the precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..conditions import rare
from ..estep.terms import expand_densities
from ..kernels import GAUSSIAN
from ..numbers import LARGEST_CANCELLATION, Array, clip, like, namespace, sent_once, take, where
from ..records import Factor, Parameters, Setting
from ..rows.source import Centres
from ..structures import Structure

# Terms are padded to a multiple of this, so that matrix products can load whole vectors.
PADDING = 8
# The logarithm of zero in matrix products, where −inf would turn into NaN.
_LOG_ZERO = -1e30
# Share of the cancellation that would lose digits above which moments are about the mean.
_NEARLY_LOST = 0.25


def refuse(what: str) -> NoReturn:
    """Raise the error of a model or of rows for which devices have no passes."""
    raise ValueError(f"Passes on a device do not cover {what}: give X as a NumPy array and leave device out.")


@dataclass(frozen=True)
class Expansion:
    """The parameters of R starts as coefficients of the terms of rows."""

    coefficients: Array  # (R, K, M + S): of x and of the second-order terms in log N(x; μ_k, P_k)
    at_origin: Array  # (R, K, L): log π_kj N(x; μ_k, P_k) at the origin, less the level
    at_mean: Array  # (R, K, L): the same at the mean
    # (R,): log-density of the start's highest peak, subtracted from all so that no exponential overflows
    levels: Array
    means: Array  # (R, K, M)
    whiteners: Array  # (R, K or 1, M, M), or (R, K, M) if they are diagonal
    origins: Array  # (R, K, M): origins of the moments
    # Indices among the R · K kernels of all starts: (q,) of kernels that are computed from differences, and
    # (p,) of kernels whose moments are about another origin than zero; None for no kernel. An optimistic pass
    # may treat more kernels so, which does no harm.
    delicate: Array | None
    recentred: Array | None

    def coefficients_of(self, first: int, last: int, dtype: Any) -> Array:
        """Coefficients (R · K, M + S + C, padded) for rows of the classes from `first` to `last`.

        With one class there are no indicators, and C = 0.
        """
        parts = [self.coefficients]
        if last > first:
            parts.append(self.at_origin[..., first : last + 1])
        n_padding = -sum(part.shape[-1] for part in parts) % PADDING
        parts.append(self.means.new_zeros((*self.means.shape[:2], n_padding)))
        joined = namespace(self.means).concat(parts, axis=-1)
        return joined.reshape(-1, joined.shape[-1]).to(dtype)


def expand(
    parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
) -> Expansion:
    """Expand the parameters of R starts in the frame, with the factor of their covariances.

    `centres` are the kernels (R, K) whose moments are taken about given origins (R, K, M).
    """
    if parameters.tail.weighted:
        refuse("t kernels")
    structure, means, bound = setting.structure, parameters.means, setting.frame.bound
    xp, n_features = namespace(means), means.shape[-1]
    first, second = structure.pairs(n_features)
    bounds = sent_once(np.concatenate([bound, bound[first] * bound[second]]), means)  # (M + S,): of terms
    coefficients, at_zero, delicate = expand_densities(means, factor, structure, bounds)
    peaks = xp.broadcast_to(GAUSSIAN.log_peaks(factor.log_determinant, n_features), at_zero.shape)
    levels = xp.max(peaks, axis=1)
    largest = _NEARLY_LOST * LARGEST_CANCELLATION[setting.precision]
    # Terms of a covariance cancel by μ² / P; those along its narrowest direction, by μ² P⁻¹.
    far = xp.any(means**2 / largest > 1.0 / structure.precisions(factor), axis=-1)
    if setting.precision != "float64":
        # Rounding errors of the terms of the kernel's own rows are independent, so their squares add.
        is_rounded = _sums_of_squares(parameters, coefficients, structure) > largest**2
        far, delicate = far | is_rounded, delicate | is_rounded
    at_mean = clip(xp.log(parameters.weights), _LOG_ZERO, np.inf) + (peaks - levels[:, None])[..., None]
    at_origin, origins = at_mean + at_zero[..., None], where(far[..., None], means, 0.0)
    if centres is not None:
        far, origins = far | centres[0], xp.where(centres[0][..., None], centres[1], origins)
    places = (rare(condition.reshape(-1), fewest=1) for condition in (delicate, far))
    indices = (None if index is None else like(index, means) for index in places)
    return Expansion(coefficients, at_origin, at_mean, levels, means, factor.whitener, origins, *indices)


def _sums_of_squares(parameters: Parameters, coefficients: Array, structure: Structure) -> Array:
    """Sums of squares (R, K) of the terms in the log-density of a typical row of each kernel."""
    squares = parameters.means**2 + structure.variances(parameters.covariances)
    xp, n_features = namespace(squares), squares.shape[-1]
    first, second = (
        take(squares, sent_once(index, squares), axis=-1) for index in structure.pairs(n_features)
    )
    return xp.sum(coefficients**2 * xp.concat([squares, first * second], axis=-1), axis=-1)
