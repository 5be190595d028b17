"""scikit-learn's contract around the engine."""

from ._checkpoint import Checkpoint
from ._progress import watched_by
from .classifier import SharedKernelClassifier
from .gaussian import GaussianMixture
from .loading import load
from .mixture import SharedKernelMixture
from .search import SharedKernelClassifierCV, SharedKernelMixtureCV

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "load",
    "watched_by",
]
