"""Shared-kernel mixture models."""

from .estimators import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, load
from .io import open_rows

__version__ = "0.1.0"

__all__ = ["GaussianMixture", "SharedKernelClassifier", "SharedKernelMixture", "load", "open_rows"]
