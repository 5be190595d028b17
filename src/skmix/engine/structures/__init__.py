"""Covariance structures: the one place that branches on the covariance type.

A Gaussian log-density is linear in the second-order terms of x, in x and in 1, so one matrix product computes
it for all kernels of all starts. A structure defines which second-order terms it needs, how a covariance is
turned into their coefficients, and how their weighted sums are turned into a covariance. To add a structure,
add such a class and its name to `structure_of`.
"""

from __future__ import annotations

from ..model import FloatArray
from .diagonal import Diagonal, Spherical
from .full import Structure, Tied, Wishart
from .linalg import INFLATED, invert_lower, raise_eigenvalues, unpack, whiten_batch, whiten_bounded
from .low_rank import LowRank, automatic_factors, most_factors

__all__ = [
    "COVARIANCE_TYPES",
    "INFLATED",
    "STRUCTURES",
    "Diagonal",
    "LowRank",
    "Structure",
    "Wishart",
    "automatic_factors",
    "invert_lower",
    "most_factors",
    "raise_eigenvalues",
    "rescaled",
    "structure_of",
    "unpack",
    "whiten_batch",
    "whiten_bounded",
]

# The candidates of 'auto'.
STRUCTURES: dict[str, Structure] = {s.name: s for s in (Structure(), Tied(), Diagonal(), Spherical())}
COVARIANCE_TYPES = (*STRUCTURES, LowRank.name)


def rescaled(covariance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the covariance (M, M), or the variances (M,), of x · scale, scale (M,)."""
    return covariance * scale * (scale if covariance.ndim == 1 else scale[:, None])


def structure_of(covariance_type: str, n_factors: int | None = None) -> Structure:
    """Return the structure of that name; `n_factors` is for 'low_rank' without covariances yet."""
    if covariance_type == LowRank.name:
        return LowRank(n_factors)
    try:
        return STRUCTURES[covariance_type]
    except KeyError:
        known = ", ".join(map(repr, COVARIANCE_TYPES))
        raise ValueError(f"covariance_type={covariance_type!r} is not one of {known}.") from None
