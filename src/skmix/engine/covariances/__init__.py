"""Covariance structures: the one place that branches on the covariance type."""

from __future__ import annotations

from .base import Structure, Wishart
from .diagonal import Diagonal
from .full import Full
from .low_rank import LowRank, most_factors
from .spherical import Spherical
from .tied import Tied

# The candidates of 'auto'.
STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Tied(), Diagonal(), Spherical())}
COVARIANCE_TYPES = (*STRUCTURES, LowRank.name)


def structure_of(covariance_type: str, n_factors: int | None = None) -> Structure:
    """Return the structure of that name; `n_factors` is for 'low_rank' without covariances yet."""
    if covariance_type == LowRank.name:
        return LowRank(n_factors)
    try:
        return STRUCTURES[covariance_type]
    except KeyError:
        known = ", ".join(map(repr, COVARIANCE_TYPES))
        raise ValueError(f"covariance_type={covariance_type!r} is not one of {known}.") from None


__all__ = ["COVARIANCE_TYPES", "STRUCTURES", "Structure", "Wishart", "most_factors", "structure_of"]
