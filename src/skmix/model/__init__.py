"""Estimators with scikit-learn's interface, on the engine."""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .bags import Bags as Bags
    from .bayesian import BayesianGaussianMixture as BayesianGaussianMixture
    from .callbacks import Lines as Lines
    from .callbacks import progress_bar as progress_bar
    from .callbacks import watched_by as watched_by
    from .checks import warn_caller as warn_caller
    from .classifier import SharedKernelClassifier as SharedKernelClassifier
    from .densities import responsibilities as responsibilities
    from .files import Record as Record
    from .files import pack as pack
    from .files import write_file as write_file
    from .frames import PreparedRows as PreparedRows
    from .frames import with_features_of as with_features_of
    from .gaussian import GaussianMixture as GaussianMixture
    from .groups import Groups as Groups
    from .groups import weight_prior_of as weight_prior_of
    from .kernels import Kernels as Kernels
    from .mixture import SharedKernelMixture as SharedKernelMixture
    from .repeats import fit_each as fit_each
    from .rows import enter as enter
    from .rows import score_rows as score_rows
    from .saving import estimator_of as estimator_of
    from .saving import read_model as read_model
    from .saving import record_of as record_of

# A mixture needs no classifiers.
_HOMES = {
    "BayesianGaussianMixture": "bayesian",
    "GaussianMixture": "gaussian",
    "SharedKernelClassifier": "classifier",
    "SharedKernelMixture": "mixture",
    "fit_each": "repeats",
}
__all__ = list(_HOMES)
# What the rooms above need besides estimators: kernels, groups, bags, rows, files, progress, warnings.
_FOR_ROOMS = {
    "Bags": "bags",
    "Groups": "groups",
    "Kernels": "kernels",
    "Lines": "callbacks",
    "PreparedRows": "frames",
    "Record": "files",
    "enter": "rows",
    "estimator_of": "saving",
    "pack": "files",
    "progress_bar": "callbacks",
    "read_model": "saving",
    "record_of": "saving",
    "responsibilities": "densities",
    "score_rows": "rows",
    "warn_caller": "checks",
    "watched_by": "callbacks",
    "weight_prior_of": "groups",
    "with_features_of": "frames",
    "write_file": "files",
}
__getattr__, __dir__ = on_first_use(__name__, _HOMES | _FOR_ROOMS)
