"""Estimators with scikit-learn's interface, on the engine."""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .callbacks import Checkpoint
    from .classifier import SharedKernelClassifier
    from .gaussian import GaussianMixture
    from .mixture import SharedKernelMixture
    from .repeats import fit_each
    from .search.classifier import SharedKernelClassifierCV
    from .search.mixture import SharedKernelMixtureCV

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "fit_each",
]
# A mixture needs neither classifiers nor searches.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Checkpoint": "callbacks",
        "GaussianMixture": "gaussian",
        "SharedKernelClassifier": "classifier",
        "SharedKernelClassifierCV": "search.classifier",
        "SharedKernelMixture": "mixture",
        "SharedKernelMixtureCV": "search.mixture",
        "fit_each": "repeats",
    },
)
