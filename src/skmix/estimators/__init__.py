"""scikit-learn's contract around the engine."""

from ._checkpoint import Checkpoint
from ._progress import watched_by
from .classifier import SharedKernelClassifier
from .gaussian import GaussianMixture
from .loading import load
from .mixture import SharedKernelMixture

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelMixture",
    "load",
    "watched_by",
]
