"""Covariance structures: the one place that branches on the covariance type.

A Gaussian log-density is linear in the second-order terms of x, in x and in 1, so one matrix product computes
it for all kernels of all starts. A structure defines which second-order terms it needs, how a covariance is
turned into their coefficients, and how their weighted sums are turned into a covariance. To add a structure,
add such a class and its name to `structure_of`.
"""

from __future__ import annotations

from .diagonal import Diagonal, Spherical
from .full import Structure, Tied
from .low_rank import LowRank

__all__ = ["COVARIANCE_TYPES", "STRUCTURES", "Diagonal", "LowRank", "Structure", "structure_of"]

# The candidates of 'auto'.
STRUCTURES: dict[str, Structure] = {s.name: s for s in (Structure(), Tied(), Diagonal(), Spherical())}
COVARIANCE_TYPES = (*STRUCTURES, LowRank.name)


def structure_of(covariance_type: str, n_factors: int | None = None) -> Structure:
    """Return the structure of that name; `n_factors` is for 'low_rank' without covariances yet."""
    if covariance_type == LowRank.name:
        return LowRank(n_factors)
    return STRUCTURES[covariance_type]
