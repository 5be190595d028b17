"""Estimators with scikit-learn's interface, on the engine."""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .bayesian import BayesianGaussianMixture as BayesianGaussianMixture
    from .classifier import SharedKernelClassifier as SharedKernelClassifier
    from .gaussian import GaussianMixture as GaussianMixture
    from .mixture import SharedKernelMixture as SharedKernelMixture
    from .repeats import fit_each as fit_each

# A mixture needs no classifiers.
_HOMES = {
    "BayesianGaussianMixture": "bayesian",
    "GaussianMixture": "gaussian",
    "SharedKernelClassifier": "classifier",
    "SharedKernelMixture": "mixture",
    "fit_each": "repeats",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = on_first_use(__name__, _HOMES)
