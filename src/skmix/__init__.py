"""Shared-kernel mixture models."""

from ._version import __version__ as __version__
from .estimators import (
    Checkpoint,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from .io import open_rows

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "load",
    "open_rows",
]
