"""Shared-kernel mixture models."""

from typing import TYPE_CHECKING

from ._parts import on_first_use
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .data import open_rows
    from .model import BayesianGaussianMixture, GaussianMixture, SharedKernelClassifier, SharedKernelMixture
    from .samples import Study, compose, load
    from .search import SharedKernelClassifierCV, SharedKernelMixtureCV

__all__ = [
    "BayesianGaussianMixture",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "Study",
    "compose",
    "load",
    "open_rows",
]
# NumPy and scikit-learn take seconds to load on some machines.
__getattr__, __dir__ = on_first_use(
    __name__,
    dict.fromkeys(__all__, "model")
    | dict.fromkeys(("SharedKernelClassifierCV", "SharedKernelMixtureCV"), "search")
    | {"Study": "samples", "compose": "samples", "load": "samples", "open_rows": "data"},
    (
        *("data", "datasets", "engine", "model", "features", "samples"),
        *("metrics", "paper", "plots", "report", "search", "theory"),
    ),
)
