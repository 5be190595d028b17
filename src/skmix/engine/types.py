"""The engine's vocabulary: small frozen records of arrays, and the status of a start.

Shapes use the letters of ``docs/notation.md``: R starts, K kernels, L classes, M features, N rows.
A record of one model has no R axis; the loop always carries one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    class_prior: FloatArray | None = None

    def take(self, index: Any) -> Parameters:
        """Return the starts that `index` selects along the leading axis."""
        prior = None if self.class_prior is None else self.class_prior[index]
        return Parameters(self.weights[index], self.means[index], self.covariances[index], prior)

    def put(self, index: Any, other: Parameters) -> None:
        """Overwrite the starts that `index` selects with those of `other`."""
        self.weights[index] = other.weights
        self.means[index] = other.means
        self.covariances[index] = other.covariances
        if self.class_prior is not None:
            self.class_prior[index] = other.class_prior

    def copy(self) -> Parameters:
        """Return a copy that shares no memory with this record."""
        prior = None if self.class_prior is None else self.class_prior.copy()
        return Parameters(self.weights.copy(), self.means.copy(), self.covariances.copy(), prior)

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
        return Factor(self.whitener[index], self.log_determinant[index], self.usable[index])

    def put(self, index: Any, other: Factor) -> None:
        """Overwrite the starts that `index` selects with those of `other`."""
        self.whitener[index] = other.whitener
        self.log_determinant[index] = other.log_determinant
        self.usable[index] = other.usable


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
        Concentration, at least 1, of the Dirichlet prior on each class's weights.
    annihilate : bool
        Whether kernels that do not pay for their own parameters lose their weight; not with `weight_prior`.
    n_jobs : int
        Number of threads. It never changes the result.
    accelerate : bool
        Whether to extrapolate between passes.
    freeze : {None, "kernels", "weights"}
        What keeps its starting value: means and covariances, or weights.
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
        wasted are left out.
    """

    parameters: Parameters
    status: IntArray
    n_iter: IntArray
    log_likelihood: FloatArray
    objective: FloatArray
    path: list[FloatArray]

    @property
    def best(self) -> int:
        """Index of the best start: the highest objective among those that did not fail."""
        ranked = np.where(self.status == Status.FAILED, -np.inf, self.objective)
        return int(np.argmax(ranked))
