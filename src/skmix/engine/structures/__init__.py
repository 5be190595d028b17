"""Covariance structures: the one place that branches on the covariance type.

A Gaussian log-density is linear in the second-order terms of x, in x and in 1, so one matrix product computes
it for all kernels of all starts. A structure defines which second-order terms it needs, how a covariance is
turned into their coefficients, and how their weighted sums are turned into a covariance. To add a structure,
add such a class and its name to `structure_of`.
"""

from __future__ import annotations

from .diagonal import Diagonal, Spherical
from .full import Structure, Tied

__all__ = ["STRUCTURES", "Diagonal", "Structure", "structure_of"]

STRUCTURES: dict[str, Structure] = {s.name: s for s in (Structure(), Tied(), Diagonal(), Spherical())}


def structure_of(covariance_type: str) -> Structure:
    """Return the structure of that name."""
    return STRUCTURES[covariance_type]
