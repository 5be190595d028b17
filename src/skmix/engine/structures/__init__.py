"""Covariance structures: the one place that branches on the covariance type."""

from __future__ import annotations

from .covariances import Structure

__all__ = ["STRUCTURES", "Structure", "structure_of"]

STRUCTURES = {
    "full": Structure("full"),
    "tied": Structure("tied", shared=True),
    "diag": Structure("diag", triangular=False),
    "spherical": Structure("spherical", triangular=False, isotropic=True),
}


def structure_of(covariance_type: str) -> Structure:
    """Return the structure of that name."""
    return STRUCTURES[covariance_type]
