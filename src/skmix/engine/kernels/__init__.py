"""Kernel families and covariance structures: the one place that branches on the covariance type."""

from __future__ import annotations

from .base import Structure, Wishart
from .diagonal import Diagonal
from .full import Full
from .spherical import Spherical
from .tied import Tied

STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Tied(), Diagonal(), Spherical())}


def structure_of(covariance_type: str) -> Structure:
    """Return the structure of that name."""
    try:
        return STRUCTURES[covariance_type]
    except KeyError:
        known = ", ".join(map(repr, STRUCTURES))
        raise ValueError(f"covariance_type={covariance_type!r} is not one of {known}.") from None


__all__ = ["STRUCTURES", "Structure", "Wishart", "structure_of"]
