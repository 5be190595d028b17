"""The engine's vocabulary: frozen records of arrays, the status of a start, and the frame of a pass.

Shapes use the letters of ``docs/notation.md``: R starts, K kernels, L classes, M features, N rows, S
second-order terms. C is L, or L + 1 where rows without a label have a last column. A record of one model has
no R axis; the loop always carries one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from . import numbers as arrays
from .kernels import GAUSSIAN, Sums, Tail
from .numbers import Record
from .threads import Workers

if TYPE_CHECKING:
    from .structures import Structure

FloatArray = arrays.FloatArray
IntArray = arrays.IntArray
BoolArray = arrays.BoolArray

# Values beyond this many scales are clipped so that their squares stay finite.
FARTHEST = 1e100
# The range of a model's frame, in its scales: accelerators evaluate rows within it from expanded terms.
MODEL_RANGE = 4.0


class Status(enum.IntEnum):
    """How a start ended."""

    RUNNING = 0
    CONVERGED = 1
    STOPPED = 2  # reached `max_iter`
    FAILED = 3  # a covariance became singular, which only a floor of zero allows, or the objective fell


@dataclass(frozen=True)
class Parameters(Record):
    """The parameters of a shared-kernel mixture, or of R of them."""

    weights: FloatArray  # (..., K, L): Pr(kernel k | class j); each column sums to one
    means: FloatArray  # (..., K, M)
    # By structure: full (..., K, M, M), tied (..., M, M), diag (..., K, M), spherical (..., K)
    covariances: FloatArray
    class_prior: FloatArray | None = None  # (..., L): Pr(class j), estimated where rows have no label
    # (..., K, L): where weights have a posterior, the expected number of rows of each class and kernel;
    # infinite for a point estimate. Weights are then not normalised, see ``rules/variational.py``.
    counts: FloatArray | None = None
    # (..., K): concentration of the Dirichlet prior on weights that is learnt from all classes; None: no such
    # prior. Weights of a fit with one are not normalised either, see ``rules/weights.py``.
    concentration: FloatArray | None = None
    tail: Tail = GAUSSIAN  # describes rows far from every kernel

    def batch(self) -> Parameters:
        """Return this single model as a batch of one start that shares its memory."""
        return self.take(None)


def living_kernels(parameters: Parameters, structure: Structure) -> Parameters:
    """Return one model without the kernels that have no weight in any class."""
    alive = np.flatnonzero(parameters.weights.any(axis=1))
    if len(alive) == len(parameters.weights):
        return parameters
    concentration = parameters.concentration
    return replace(
        parameters,
        weights=parameters.weights[alive],
        means=parameters.means[alive],
        covariances=structure.take_kernels(parameters.covariances[None], alive[None])[0],
        concentration=None if concentration is None else concentration[alive],
    )


@dataclass(frozen=True)
class Factor(Record):
    """Factorised covariances, for evaluating densities."""

    # W with W P Wᵀ = I: full (R, K, M, M), tied (R, 1, M, M), both lower triangular; diag and spherical
    # (R, K, M)
    whitener: FloatArray
    log_determinant: FloatArray  # (R, K) or (R, 1): of P
    usable: BoolArray  # (R,): False where a covariance is not positive definite; other entries are undefined


@dataclass(frozen=True)
class Statistics(Record):
    """Sufficient statistics of one pass. Statistics of disjoint rows add."""

    log_likelihood: FloatArray  # (R, C): sum of log p(x_n | class) over the rows of each class
    mass: FloatArray  # (R, K, C): sum of the responsibilities of the rows of each class
    first: FloatArray  # (R, K, M): responsibility-weighted sum of the rows, about the kernel's origin
    # (R, K, S): the same sum of second-order terms, in the structure's packed order; if covariances are tied,
    # only the sum over kernels is defined, if they are spherical, only that over features
    second: FloatArray
    # What the tail adds. t kernels: sums (R, K) of w E[u] and of w E[log u] over rows of responsibility w,
    # where u is the precision of a row relative to that of its kernel; moments are then weighted by w E[u].
    of_tail: Sums = ()

    def plus(self, other: Statistics) -> Statistics:
        """Return the statistics of the rows of both."""
        return self._combine(lambda one, another: one + another, other)


@dataclass(frozen=True)
class Climbed:
    """Passes that the compiled core made from one start: n of them, and where they ended."""

    parameters: Parameters  # with R = 1
    factor: Factor
    likelihoods: FloatArray  # (n, C): log-likelihood of each class at the start of each pass
    objectives: FloatArray  # (n,)
    is_done: bool  # whether the log-likelihood changed by less than it should


@dataclass(frozen=True)
class Regulariser(Record):
    """Floor, ridge and priors of the M-step, in the coordinates of the frame."""

    floor: FloatArray  # (M,): every covariance P has P − diag(floor) positive semidefinite
    ridge: FloatArray | None  # (M,): added to every covariance's diagonal
    prior_rows: float  # strength of the inverse-Wishart prior on covariances, in pseudo-rows; 0: no prior
    prior_covariance: FloatArray  # (M, M), or (M,) if features are independent: of those pseudo-rows
    weight_prior: float  # concentration of the Dirichlet prior on each class's weights; 1: no prior
    # Whether weights have a posterior: their prior is the `concentration` of the parameters, which is learnt
    # if 'hierarchical' and stays if 'given'.
    hierarchical: Literal["hierarchical", "given"] | None = None
    unit: float = 1.0  # weight of a row that is one row for this posterior


@dataclass(frozen=True)
class Prior:
    """The prior of a variational fit, as pseudo-rows in the coordinates of the frame."""

    concentration: float  # of the Dirichlet prior on weights: pseudo-rows of each kernel and class
    mean_rows: float  # pseudo-rows of each kernel's mean, at the origin (the data's mean)
    covariance_rows: float  # pseudo-rows of each covariance
    # (M, M), or (M,) if features are independent: their covariance; its inverse is the expected precision
    covariance: FloatArray


@dataclass(frozen=True)
class Options:
    """How to fit."""

    covariance_type: str = "full"
    max_iter: int = 200  # largest number of passes
    tol: float = 1e-4  # of the stopping rule
    # 'total' ends when the log-likelihood per row changes by less than `tol`; 'per-class', the paper's rule:
    # each class latches when its log-likelihood changes by less than `tol`, and all must latch.
    stopping: Literal["total", "per-class"] = "total"
    floor: float = 1e-6  # of every covariance, relative to each feature's variance
    resolution: FloatArray | None = None  # (M,): another floor, in the units of the data
    ridge: float = 0.0  # added to every variance, in the units of the data (scikit-learn's ``reg_covar``)
    covariance_prior: float | None = None  # strength of the inverse-Wishart prior, in rows
    # (M, M) or (M,): its covariance; None: variances over K^(2/M)
    covariance_prior_scale: FloatArray | None = None
    # Concentration of the Dirichlet prior on weights, at least 1 for EM; 'hierarchical': one for each kernel,
    # learnt from all classes; 'given': that of the starts.
    weight_prior: float | Literal["hierarchical", "given"] | None = None
    unit: float = 1.0  # weight of a row that counts as one for a learnt prior of the weights
    n_jobs: int = 1  # number of threads; it never changes the result
    freeze: Literal["kernels", "weights"] | None = None  # which parameters stay at their starting values
    precision: Literal["float64", "float32", "tf32"] = "float64"  # of products over rows, on an accelerator
    inference: Literal["em", "variational"] = "em"
    learn_degrees: bool = False  # whether t kernels learn their degrees of freedom


@dataclass(frozen=True)
class Result:
    """The outcome of a batch of R starts."""

    parameters: Parameters  # final parameters of each start, always finite
    status: IntArray  # (R,): a `Status` each
    n_iter: IntArray  # (R,): passes made
    log_likelihood: FloatArray  # (R, C): of each class's rows, under the final parameters
    objective: FloatArray  # (R,): log-likelihood plus log-priors up to a constant, or the evidence bound
    # R arrays (n_iter, C): log-likelihood at the start of each pass. In a variational fit it is the
    # expectation under the posterior.
    path: list[FloatArray]
    # (R, 2): objective before and after the pass that ended a start because the objective fell; NaN elsewhere
    fell: FloatArray
    # Where weights have a posterior: expected rows of each kernel and class (R, K, L), and R arrays (n_iter,)
    # of lower bounds of the log-evidence; of a variational fit, the prior.
    counts: FloatArray | None = None
    bounds: list[FloatArray] | None = None
    prior: Prior | None = None

    @property
    def best(self) -> int:
        """Index of the best start: the highest objective among those that did not fail."""
        ranked = np.where(self.status == Status.FAILED, -np.inf, self.objective)
        return int(np.argmax(ranked))


# ---------------------------------------------------------------- coordinates of passes


@dataclass(frozen=True)
class Frame:
    """The coordinates of the loop, x' = x / scale − shift, and the range of the rows in them.

    Moments about the origin lose digits if rows lie far from it, and squares of huge values overflow.
    Centring prevents the first; scaling by powers of two prevents the second without rounding.
    """

    scale: FloatArray  # (M,): powers of two, unless standardised
    shift: FloatArray  # (M,): the data's mean divided by `scale`
    variance: FloatArray  # (M,): each feature's variance in the frame; 1 for a constant feature
    bound: FloatArray  # (M,): largest magnitude of each feature in the frame

    def rows(self, X: np.ndarray) -> FloatArray:
        """Return rows X (n, M) in the frame, feature by feature (M, n)."""
        # Contiguous, whatever the order of X: the rounding of sums depends on it.
        x = np.array(X.T, dtype=np.float64, order="C")
        with np.errstate(over="ignore"):
            x *= (1.0 / self.scale)[:, None]
            x -= self.shift[:, None]
        return np.clip(x, -FARTHEST, FARTHEST, out=x)

    def enter(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the data's coordinates in the frame."""
        return replace(
            parameters,
            weights=np.array(parameters.weights, dtype=np.float64),
            means=np.clip(parameters.means / self.scale - self.shift, -FARTHEST, FARTHEST),
            covariances=structure.rescale(parameters.covariances, 1.0 / self.scale),
            counts=None,
        )

    def leave(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the frame in the data's coordinates."""
        with np.errstate(over="ignore"):  # in starts that failed
            covariances = structure.rescale(parameters.covariances, self.scale)
        means = (parameters.means + self.shift) * self.scale
        return replace(parameters, means=means, covariances=covariances, counts=None)

    def standardised(self, structure: Structure) -> Frame:
        """Return the frame of features divided by their deviations: its distances do not depend on units.

        Values are rounded, since deviations are not powers of two. Spherical kernels have one unit for all
        features, so that they keep this frame.
        """
        if structure.isotropic:
            return self
        deviation = np.sqrt(self.variance)
        ones = np.ones_like(deviation)
        return Frame(self.scale * deviation, self.shift / deviation, ones, self.bound / deviation)

    def from_standardised(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the standardised frame in this one."""
        unit = np.ones_like(self.scale) if structure.isotropic else np.sqrt(self.variance)
        covariances = structure.rescale(parameters.covariances, unit)
        return replace(parameters, means=parameters.means * unit, covariances=covariances)

    def log_volume(self) -> float:
        """Logarithm of the factor by which the frame's densities exceed the data's."""
        return float(np.log(self.scale).sum())


@dataclass(frozen=True, eq=False)
class Setting:
    """The settings of an E-step."""

    frame: Frame  # coordinates of the parameters
    structure: Structure  # covariance structure
    pool: Workers  # threads
    precision: str = "float64"  # of the rows' terms and the products with them, on an accelerator
    with_moments: bool = True  # if not, only the log-likelihoods are defined


def power_of_two(magnitude: FloatArray) -> FloatArray:
    """Return the next larger powers of two of positive magnitudes, 1 for zeros."""
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 0.5))
    return np.ldexp(1.0, np.clip(exponent, -1000, 1000))


def frame_of(parameters: Parameters, structure: Structure) -> Frame:
    """Return the frame in which to evaluate one model on rows near it: its heaviest kernel is at zero."""
    means, heaviest = parameters.means, int(parameters.weights.mean(axis=1).argmax())
    scale = scale_of(means, parameters.covariances, structure)
    return Frame(scale, means[heaviest] / scale, np.ones(len(scale)), np.full(len(scale), MODEL_RANGE))


def scale_of(means: FloatArray, covariances: FloatArray, structure: Structure) -> FloatArray:
    """Return the scale (M,) of means (K, M) and covariances, in powers of two."""
    deviations = np.sqrt(structure.variances(covariances[None])[0])
    reach = np.ptp(means, axis=0) + deviations.max(axis=0)
    if structure.isotropic:
        reach = np.full_like(reach, reach.max())
    return power_of_two(reach)
