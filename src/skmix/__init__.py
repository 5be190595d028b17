"""Shared-kernel mixture models."""

from .estimators import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from .io import open_rows

__version__ = "0.1.0"

__all__ = [
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "load",
    "open_rows",
]
