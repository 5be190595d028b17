"""scikit-learn's contract around the engine."""

from .classifier import SharedKernelClassifier
from .gaussian import GaussianMixture
from .loading import load
from .mixture import SharedKernelMixture

__all__ = ["GaussianMixture", "SharedKernelClassifier", "SharedKernelMixture", "load"]
