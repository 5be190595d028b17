"""Estimators with scikit-learn's interface, on the engine."""

from .callbacks import Checkpoint
from .classifier import SharedKernelClassifier
from .gaussian import GaussianMixture
from .mixture import SharedKernelMixture
from .repeats import fit_each
from .search import SharedKernelClassifierCV, SharedKernelMixtureCV

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "fit_each",
]
