"""Shared-kernel mixture models."""

from ._version import __version__ as __version__
from .estimators import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, load
from .io import open_rows

__all__ = ["GaussianMixture", "SharedKernelClassifier", "SharedKernelMixture", "load", "open_rows"]
