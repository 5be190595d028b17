"""The engine's vocabulary: small frozen records of arrays, and the status of a start.

Shapes use the letters of ``docs/notation.md``: R starts, K kernels, L classes, M features, N rows.
A record of one model has no R axis; the loop always carries one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from .compute import arrays
from .compute.arrays import Array, is_numpy, namespace, pick, replaced

FloatArray = arrays.FloatArray
IntArray = arrays.IntArray
BoolArray = arrays.BoolArray
Record = TypeVar("Record")


def _map(record: Record, function: Callable[[Array], Array]) -> Record:
    """Return a record of what the function makes of each of its arrays."""
    return type(record)(*[None if a is None else function(a) for a in vars(record).values()])


def _put(record: Record, index: Any, other: Record) -> Record:
    """Return a record with the entries that `index` selects along the first axes replaced."""
    pairs = zip(vars(record).values(), vars(other).values(), strict=True)
    return type(record)(*[None if a is None else replaced(a, index, b) for a, b in pairs])


def join(records: Sequence[Record]) -> Record:
    """Return one record of several, joined along the first axes."""
    parts = zip(*[vars(record).values() for record in records], strict=True)
    return type(records[0])(*[None if a[0] is None else namespace(a[0]).concat(list(a)) for a in parts])


class Status(enum.IntEnum):
    """How a start ended."""

    RUNNING = 0
    CONVERGED = 1
    STOPPED = 2  # reached the largest allowed number of passes
    FAILED = 3  # a covariance became singular, which only a floor of zero allows


@dataclass(frozen=True)
class Parameters:
    """The parameters of a shared-kernel mixture, or of R of them.

    Attributes
    ----------
    weights : ndarray of shape (..., K, L)
        Pr(kernel k | class j); each column sums to one.
    means : ndarray of shape (..., K, M)
        Kernel means.
    covariances : ndarray
        Kernel covariances in the shape of their structure: full (..., K, M, M), tied (..., M, M),
        diag (..., K, M), spherical (..., K).
    class_prior : ndarray of shape (..., L), optional
        Pr(class j); estimated along with the rest when some rows have no label.
    counts : ndarray of shape (..., K, L), optional
        Inside a variational fit, how many rows of each class the posterior of a kernel has seen; infinite
        for a point. Weights are then not normalised, see ``variational.py``.
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    class_prior: FloatArray | None = None
    counts: FloatArray | None = None

    def take(self, index: Any) -> Parameters:
        """Return the starts that `index` selects along the leading axis."""
        return self.map(lambda array: pick(array, index))

    def put(self, index: Any, other: Parameters) -> Parameters:
        """Return this record with the starts that `index` selects replaced by those of `other`.

        NumPy arrays are overwritten in place.
        """
        return _put(self, index, other)

    def copy(self) -> Parameters:
        """Return a copy that shares no memory with this record."""
        return self.map(lambda array: array.copy() if is_numpy(array) else array)

    def map(self, function: Callable[[Array], Array]) -> Parameters:
        """Return a record of what the function makes of each array."""
        return _map(self, function)

    def batch(self) -> Parameters:
        """Return a batch of one start, sharing memory with this record of one model."""
        return self.take(None)


@dataclass(frozen=True)
class Factor:
    """Covariances made ready for densities.

    Attributes
    ----------
    whitener : ndarray
        W with W P Wᵀ = I: full (R, K, M, M), tied (R, 1, M, M), both lower triangular; diag (R, K, M);
        spherical (R, K).
    log_determinant : ndarray of shape (R, K) or (R, 1)
        Logarithm of the determinant of P.
    usable : ndarray of shape (R,)
        False for a start one of whose covariances is not positive definite; its entries mean nothing.
    """

    whitener: FloatArray
    log_determinant: FloatArray
    usable: BoolArray

    def take(self, index: Any) -> Factor:
        """Return the starts that `index` selects."""
        return _map(self, lambda array: pick(array, index))

    def put(self, index: Any, other: Factor) -> Factor:
        """Return this record with the starts that `index` selects replaced by those of `other`.

        NumPy arrays are overwritten in place.
        """
        return _put(self, index, other)


@dataclass(frozen=True)
class Statistics:
    """What one pass needs of the rows. Statistics of disjoint rows add.

    Attributes
    ----------
    log_likelihood : ndarray of shape (R, L)
        Sum of log p(x_n | class) over the rows of each class. Rows without a label are one class more here
        and in `mass`.
    mass : ndarray of shape (R, K, L)
        Sum of the responsibilities of the rows of each class.
    first : ndarray of shape (R, K, M)
        Responsibility-weighted sum of the rows, about the kernel's origin.
    second : ndarray of shape (R, K, S)
        Responsibility-weighted sum of second-order terms about the same origin, S of them, packed as the
        covariance structure orders them.
    """

    log_likelihood: FloatArray
    mass: FloatArray
    first: FloatArray
    second: FloatArray

    def add(self, other: Statistics) -> None:
        """Add `other` to this record in place."""
        self.log_likelihood.__iadd__(other.log_likelihood)
        self.mass.__iadd__(other.mass)
        self.first.__iadd__(other.first)
        self.second.__iadd__(other.second)


@dataclass(frozen=True)
class Regulariser:
    """What keeps the M-step away from degenerate kernels, in the coordinates of the loop.

    Attributes
    ----------
    floor : ndarray of shape (M,)
        Every covariance stays above diag(floor) in the order of positive definite matrices.
    ridge : ndarray of shape (M,)
        Added to every covariance's diagonal.
    prior_rows : float
        Strength of the inverse-Wishart prior on covariances, as a number of imagined rows; 0 is none.
    prior_covariance : ndarray of shape (M, M)
        The covariance those imagined rows have.
    weight_prior : float
        Concentration of the Dirichlet prior on each class's weights; 1 is none.
    annihilation : float
        Mass that each kernel must earn before it has any weight; 0 lets every kernel live.
    """

    floor: FloatArray
    ridge: FloatArray
    prior_rows: float
    prior_covariance: FloatArray
    weight_prior: float
    annihilation: float = 0.0

    def map(self, function: Callable[[Array], Array]) -> Regulariser:
        """Return a record of what the function makes of each array."""
        return replace(
            self,
            floor=function(self.floor),
            ridge=function(self.ridge),
            prior_covariance=function(self.prior_covariance),
        )


@dataclass(frozen=True)
class Prior:
    """What a variational fit knows before any row, in the coordinates of the loop, as imagined rows.

    Attributes
    ----------
    n_kernels : int
        Number of kernels; those that a posterior does not have are taken to have no rows.
    concentration : float
        Of the Dirichlet distribution of each class's weights: imagined rows for each kernel and class.
    mean_rows : float
        Imagined rows at the origin, which is the data's mean, for each kernel's mean.
    covariance_rows : float
        Imagined rows for each covariance.
    covariance : ndarray of shape (M, M)
        The covariance that those have; its inverse is the expected precision.
    """

    n_kernels: int
    concentration: float
    mean_rows: float
    covariance_rows: float
    covariance: FloatArray


@dataclass(frozen=True)
class Options:
    """How to fit.

    Attributes
    ----------
    covariance_type : {'full', 'tied', 'diag', 'spherical'}
        Covariance structure.
    max_iter : int
        Largest number of passes.
    tol : float
        Tolerance of the stopping rule.
    stopping : {'total', 'per-class'}
        'total' ends when the log-likelihood per row changes by less than `tol`; 'per-class' is the paper's
        rule: each class latches when its log-likelihood changes by less than `tol`, and all must latch.
    floor : float
        Floor of every covariance, relative to each feature's variance.
    ridge : float
        Added to every variance, absolute, in the units of the data (scikit-learn's ``reg_covar``).
    covariance_prior : float or None
        Strength of the inverse-Wishart prior, in rows.
    covariance_prior_scale : ndarray of shape (M, M) or None
        The prior's covariance; by default the features' variances over K^(2/M).
    weight_prior : float or None
        Concentration of the Dirichlet prior on each class's weights; at least 1 for EM.
    annihilate : bool
        Whether kernels that do not pay for their own parameters lose their weight; not with `weight_prior`.
    n_jobs : int
        Number of threads. It never changes the result.
    accelerate : bool
        Whether to extrapolate between passes.
    freeze : {None, "kernels", "weights"}
        What keeps its starting value: means and covariances, or weights.
    precision : {"float64", "float32", "tf32"}
        Of the rows' terms and the products with them, on an accelerator.
    inference : {"em", "variational"}
        Whether to look for the most likely parameters or for their posterior.
    mean_prior : float or None
        Of a variational fit: how many rows at the data's mean the prior of each kernel's mean is worth.
    prior_kernels : int or None
        Of a variational fit: number of kernels that the priors are made for, when the starts have fewer. The
        others are taken to have no rows.
    """

    covariance_type: str = "full"
    max_iter: int = 200
    tol: float = 1e-4
    stopping: Literal["total", "per-class"] = "total"
    floor: float = 1e-6
    ridge: float = 0.0
    covariance_prior: float | None = None
    covariance_prior_scale: FloatArray | None = None
    weight_prior: float | None = None
    annihilate: bool = False
    n_jobs: int = 1
    accelerate: bool = False
    freeze: Literal["kernels", "weights"] | None = None
    precision: Literal["float64", "float32", "tf32"] = "float64"
    inference: Literal["em", "variational"] = "em"
    mean_prior: float | None = None
    prior_kernels: int | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of a batch of R starts.

    Attributes
    ----------
    parameters : Parameters
        The last parameters of each start, always finite.
    status : ndarray of shape (R,)
        A `Status` each.
    n_iter : ndarray of shape (R,)
        Passes made.
    log_likelihood : ndarray of shape (R, L)
        Of each class's rows, under the last parameters.
    objective : ndarray of shape (R,)
        Total log-likelihood plus the logarithm of the priors (up to a constant): what the fit maximises.
    path : list of R ndarrays of shape (n_iter, L)
        Log-likelihood per class of the parameters that entered each pass; passes that an extrapolation
        wasted are left out. In a variational fit it is the expectation under the posterior.
    counts : ndarray of shape (R, K, L), optional
        Of a variational fit: how many rows of each class the posterior of a kernel has seen.
    bounds : list of R ndarrays of shape (n_iter,), optional
        Of a variational fit: the lower bound of the log-evidence that each pass reached.
    prior : Prior, optional
        Of a variational fit.
    """

    parameters: Parameters
    status: IntArray
    n_iter: IntArray
    log_likelihood: FloatArray
    objective: FloatArray
    path: list[FloatArray]
    counts: FloatArray | None = None
    bounds: list[FloatArray] | None = None
    prior: Prior | None = None

    @property
    def best(self) -> int:
        """Index of the best start: the highest objective among those that did not fail."""
        ranked = np.where(self.status == Status.FAILED, -np.inf, self.objective)
        return int(np.argmax(ranked))
