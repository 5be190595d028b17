"""What each E-step covers: the models and rows that it may be asked for.

The first E-step that covers a model does its passes. A model that none covers is refused with the reason, so
that no part of a model is left out without a word. All E-steps cover classes, rows without a label and row
weights. The matrix of tests crosses all that is declared here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..structures import COVARIANCE_TYPES, STRUCTURES, Structure
from ..tails import Tail


@dataclass(frozen=True)
class Coverage:
    """The covariance types, tails and rows that an E-step covers."""

    structures: frozenset[str] = frozenset(COVARIANCE_TYPES)
    tails: frozenset[str] = frozenset({"t", "background"})
    gaps: bool = False  # whether values may be missing

    def lacks(self, structure: Structure, tail: Tail, *, gaps: bool = False) -> str | None:
        """Return what the E-step does not cover, in words; None if it covers the model and the rows."""
        if gaps and not self.gaps:
            return "missing values"
        if structure.name not in self.structures:
            return f"covariance_type={structure.name!r}"
        return None if tail.name is None or tail.name in self.tails else tail.words

    def check(self, structure: Structure, tail: Tail, *, gaps: bool = False) -> None:
        """Refuse what the E-step on a device, the only one that users choose, does not cover."""
        lacking = self.lacks(structure, tail, gaps=gaps)
        if lacking is not None:
            raise ValueError(
                f"Passes on a device do not cover {lacking}: give X as a NumPy array and leave device out."
            )


# The reference, and compiled code that takes differences from means.
COMPLETE = Coverage()
# Rows with gaps, completed for every kernel.
GAPS = Coverage(gaps=True)
# Compiled code whose log-densities and moments are matrix products for all kernels at once.
PRODUCTS = Coverage(frozenset({"diag", "spherical"}), frozenset({"background"}))
# The same with one scatter of all rows, which is that of the kernels only if responsibilities sum to one.
POOLED_PRODUCTS = Coverage(frozenset({"tied"}), frozenset())
# Compiled code that skips irrelevant kernels: the reach of a kernel is known only of Gaussian ones.
SKIPPING = Coverage(frozenset({"full"}), frozenset())
# Complete rows on a device.
DEVICE = Coverage(frozenset(STRUCTURES), frozenset())
