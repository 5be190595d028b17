"""What each E-step covers: the models that it may be asked for.

The first E-step that covers a model does its passes. Where none does, the model is refused with the reason,
so that no part of a model is left out without a word. The matrix of tests crosses all that is declared here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..structures import COVARIANCE_TYPES, STRUCTURES, Structure
from ..tails import Tail


@dataclass(frozen=True)
class Coverage:
    """The covariance types and tails that an E-step covers."""

    structures: frozenset[str] = frozenset(COVARIANCE_TYPES)
    tails: frozenset[str] = frozenset({"t", "background"})

    def lacks(self, structure: Structure, tail: Tail) -> str | None:
        """Return what the E-step does not cover, in words; None if it covers the model."""
        if structure.name not in self.structures:
            return f"covariance_type={structure.name!r}"
        return None if tail.name is None or tail.name in self.tails else tail.words


# The reference, and compiled code that takes differences from means; also with gaps.
EVERYTHING = Coverage()
# Compiled code whose log-densities and moments are matrix products for all kernels at once.
PRODUCTS = Coverage(frozenset({"diag", "spherical"}), frozenset({"background"}))
# The same with one scatter of all rows, which is that of the kernels only if responsibilities sum to one.
POOLED_PRODUCTS = Coverage(frozenset({"tied"}), frozenset())
# Compiled code that skips irrelevant kernels: how far a kernel reaches is known of Gaussian ones.
SKIPPING = Coverage(frozenset({"full"}), frozenset())
# Rows of another array library, on their device, with and without gaps.
DEVICE = Coverage(frozenset(STRUCTURES), frozenset())
