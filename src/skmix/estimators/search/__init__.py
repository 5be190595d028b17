"""Model selection: searches over the number of kernels, covariance types, priors and feature sets."""

from .classifier import SharedKernelClassifierCV
from .mixture import SharedKernelMixtureCV

__all__ = ["SharedKernelClassifierCV", "SharedKernelMixtureCV"]
