"""The hybrid objective of discriminative training, and its gradient, for models near a given one.

For labelled rows the objective is Σ_n u_n [log s_n(c_n) + λ log p(x_n, c_n)] over Σ_n u_n: u are the rows'
weights, and s_n(j) ∝ p(x_n, j)^(1/T) the class probabilities at temperature T. Its derivative with respect to
log N(x_n; μ_k, P_k) is Σ_j ([j = c_n] (1/T + λ) − s_n(j)/T) r_nkj, where r_nkj are the responsibilities given
class j. The gradient follows from sums with the shape of EM's statistics, so it costs as much as a pass: two
matrix products. The log-priors of the fit are added, times 1/T + λ: a pseudo-row of a prior counts as much as
a row whose class is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple, TypeVar

import numpy as np

from ..compute.threads import Workers, Workspace
from ..covariances import Structure
from ..covariances.reparametrisation import Local
from ..density import expand, log_mix, part_size
from ..model import Factor, FloatArray, IntArray, Parameters, Regulariser
from ..sources.memory import Part, Prepared, log_joint, prepare
from ..sources.summary import Frame, turn

Answer = TypeVar("Answer")

# Largest size of a part: numbers in expanded rows, and rows.
_NUMBERS, _MOST = 1 << 20, 2112
# As in the E-step: subnormal exponentials would slow down matrix products.
_LOWEST_LOG = -600.0
# Lower limit on a class's share of a row's density.
_LEAST = 1e-280
# Derivatives below this share of the largest are negligible. If fewer than `_SPARSE` of them are not, in
# parts of at least `_WIDE` features and `_LONG` rows, moments are faster kernel by kernel.
_NEGLIGIBLE, _SPARSE, _WIDE, _LONG = 1e-12, 0.1, 16, 1024
# Bounds on the moves of weights and covariances, as exponents, and of means, in units of their kernels.
_FARTHEST_POWER, _FARTHEST_STEP = 30.0, 1e6


@dataclass(frozen=True)
class Criterion:
    """The trade-off λ between log-likelihood and class probabilities, and the temperature T of the latter."""

    trade_off: float
    temperature: float = 1.0

    @property
    def of_own_class(self) -> float:
        """Weight 1/T + λ of a row for the kernels of its own class."""
        return 1.0 / self.temperature + self.trade_off


@dataclass(frozen=True)
class Labelled:
    """Labelled rows for training or validation."""

    X: np.ndarray  # (N, M), without gaps, in the data's coordinates
    codes: IntArray  # (N,), classes 0 … L − 1
    weights: FloatArray | None = None  # (N,), positive; None when all are one

    def take(self, index: IntArray | slice) -> Labelled:
        """Return the rows that `index` selects."""
        weights = None if self.weights is None else self.weights[index]
        return Labelled(self.X[index], self.codes[index], weights)

    @property
    def size(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(len(self.codes) if self.weights is None else self.weights.sum())


@dataclass(frozen=True)
class Point:
    """A model near the given one, prepared for evaluating densities."""

    weights: FloatArray  # (K, L)
    means: FloatArray  # (K, M), in the frame
    stretch: FloatArray  # V of the covariances, see `Local`
    factor: Factor  # of the covariances, with a leading axis of one start


class Sums(NamedTuple):
    """Sums over rows that make up a gradient. Sums of disjoint rows add."""

    conditional: float  # Σ log s(c_n)
    joint: float  # Σ log p(x_n, c_n), in the frame
    classes: FloatArray  # (K, L), derivatives with respect to the logarithms of the weights
    mass: FloatArray  # (K,), sums of the derivatives g_nk with respect to log N(x_n; μ_k, P_k)
    first: FloatArray  # (K, M), sums of g_nk times x_n, about the kernels' origins
    second: FloatArray  # (K, S), sums of g_nk times the second-order terms of x_n, likewise


@dataclass
class Objective:
    """The hybrid objective around a given model, as a function of Q numbers; zero is that model.

    Weights are multiplied by exponentials of their numbers and normalised, so that a weight of zero stays
    zero; means move in units of their kernels; covariances have the coordinates of `Local`.
    """

    parameters: Parameters  # the given model, in the frame, without an axis of starts
    structure: Structure
    frame: Frame  # with a bound valid for all rows
    class_prior: FloatArray  # (L,), which is fixed
    regulariser: Regulariser | None = None  # priors on weights and covariances, in the frame
    n_rows: float = 1.0  # rows of all batches, or the sum of their weights: scales the priors

    def __post_init__(self) -> None:
        given, n_features = self.parameters, self.parameters.means.shape[1]
        self._local = Local(self.structure.factor(given.covariances[None], n_features), self.structure)
        self._sizes = [given.weights.size, given.means.size, math.prod(self._local.shape)]
        self.size = sum(self._sizes)

    def limits(self) -> FloatArray:
        """Return bounds (Q,) on the numbers, so that no trial of an optimiser overflows."""
        return np.repeat([_FARTHEST_POWER, _FARTHEST_STEP, _FARTHEST_POWER], self._sizes)

    def point(self, numbers: FloatArray) -> Point:
        """Return the model of these numbers (Q,)."""
        of_weights, of_means, of_covariances = np.split(numbers, np.cumsum(self._sizes)[:-1])
        powers = of_weights.reshape(self.parameters.weights.shape)
        weights = self.parameters.weights * np.exp(powers - powers.max(axis=0))
        weights /= weights.sum(axis=0)
        stretch = self._local.stretch(of_covariances.reshape(self._local.shape))
        means = self.parameters.means + self._local.moved(of_means.reshape(self.parameters.means.shape))
        return Point(weights, means, stretch, self._local.factor(stretch))

    def parameters_at(self, point: Point) -> Parameters:
        """Return the parameters of a model, in the frame."""
        return Parameters(point.weights, point.means, self._local.covariances(point.factor)[0])

    def evaluate(
        self, numbers: FloatArray, rows: Labelled, criterion: Criterion, pool: Workers
    ) -> tuple[float, FloatArray]:
        """Return the objective per row at numbers (Q,), and its gradient (Q,)."""
        point = self.point(numbers)
        prepared, shares = self._prepare(point)

        def work(part: Part, own: Labelled) -> Sums:
            return sum_part(part, own, prepared, shares, criterion, pool.workspace)

        total = reduce(lambda a, b: Sums(*map(add, a, b)), self._map(work, rows, prepared, pool))
        gradient = self._gradient(point, total, prepared.origins[0]) / rows.size
        joint = total.joint / rows.size - self.frame.log_volume()
        value = total.conditional / rows.size + criterion.trade_off * joint
        if self.regulariser is not None:
            log_prior, slope = self._log_prior(point, self.regulariser)
            value += criterion.of_own_class * log_prior / self.n_rows
            gradient += criterion.of_own_class * slope / self.n_rows
        return value, gradient

    def log_joints(self, point: Point, rows: Labelled, pool: Workers) -> FloatArray:
        """Return log p(x_n, class j), shape (N, L), in the data's coordinates, of a model."""
        prepared, shares = self._prepare(point)
        level = prepared.levels[0] - self.frame.log_volume()

        def work(part: Part, own: Labelled) -> FloatArray:
            values = pool.workspace.array("values", (1, len(shares), part.stop))
            log_joint(part, prepared, values)
            return log_mix(values[0], shares).T + level

        return np.concatenate(list(self._map(work, rows, prepared, pool)))

    def _map(
        self, work: Callable[[Part, Labelled], Answer], rows: Labelled, prepared: Prepared, pool: Workers
    ) -> Iterator[Answer]:
        """Yield the results of `work` on expanded parts of the rows, in order and independent of threads."""
        size = part_size(prepared.coefficients.shape[-1], 64, _NUMBERS, _MOST)

        def on(start: int) -> Answer:
            own = rows.take(slice(start, start + size))
            x = self.frame.rows(own.X, pool.workspace.array("rows", own.X.shape[::-1]))
            return work(expand(x, self.structure, pool.workspace), own)

        return pool.map(on, range(0, len(rows.codes), size))

    def _prepare(self, point: Point) -> tuple[Prepared, FloatArray]:
        """Return the kernels with weights summed over classes, and each class's share (K, L) of them."""
        joint = point.weights * self.class_prior
        mixed = joint.sum(axis=1)
        shares = joint / np.where(mixed > 0, mixed, 1.0)[:, None]
        whole = Parameters(mixed[None, :, None], point.means[None], point.stretch)
        return prepare(whole, self.structure, self.frame.bound, point.factor), shares

    def _gradient(self, point: Point, sums: Sums, origins: FloatArray) -> FloatArray:
        """Return the gradient (Q,) of the summed objective, from sums about origins (K, M)."""
        of_weights = sums.classes - point.weights * sums.classes.sum(axis=0)
        offset = point.means - origins
        first = sums.first - sums.mass[:, None] * offset
        i, j = self.structure.pairs(offset.shape[1])
        # Σ g (x − μ)(x − μ)ᵀ from moments about another origin.
        second = sums.second - first[:, i] * offset[:, j] - sums.first[:, j] * offset[:, i]
        of_means, of_covariances = self._local.gradients(
            point.stretch, point.factor, sums.mass, first, second
        )
        return np.concatenate([of_weights.ravel(), of_means.ravel(), of_covariances.ravel()])

    def _log_prior(self, point: Point, regulariser: Regulariser) -> tuple[float, FloatArray]:
        """Return the logarithm of the priors, up to a constant, and its gradient (Q,).

        The prior on covariances acts like rows about each kernel's mean, that on weights like rows of each
        class in each kernel. Weights of zero, which stay zero, are left out.
        """
        n_kernels, n_features = point.means.shape
        positive = point.weights > 0.0
        classes = np.where(positive, regulariser.weight_prior - 1.0, 0.0)
        value = float(np.sum(classes * np.log(np.where(positive, point.weights, 1.0))))
        mass, second = np.zeros(n_kernels), np.zeros((n_kernels, self.structure.n_second(n_features)))
        if regulariser.prior_rows:
            value += float(self.structure.log_prior(point.factor, regulariser)[0])
            # A shared covariance has one prior for all kernels.
            mass += regulariser.prior_rows * self._local.shape[0] / n_kernels
            wanted = self.structure.from_full(np.tile(regulariser.prior_covariance, (1, n_kernels, 1, 1)))
            second += mass[:, None] * self.structure.terms_of(wanted, n_kernels, n_features)[0]
        # About the means themselves, which have no prior.
        sums = Sums(0.0, 0.0, classes, mass, np.zeros_like(point.means), second)
        return value, self._gradient(point, sums, point.means)


def sum_part(
    part: Part,
    rows: Labelled,
    prepared: Prepared,
    shares: FloatArray,
    criterion: Criterion,
    workspace: Workspace,
) -> Sums:
    """Return the sums of n rows, expanded in `part`.

    Kernels are prepared with weights summed over classes, in which the classes have `shares` (K, L).
    """
    n_kernels, n_classes = shares.shape
    codes, n_rows = rows.codes, len(rows.codes)
    every = np.arange(n_rows)
    values = workspace.array("values", (1, n_kernels, n_rows))
    log_joint(part, prepared, values)
    values = values[0]
    largest = values.max(axis=0)
    values -= largest
    own, log_own = own_terms(values, shares, codes, workspace)
    np.maximum(values, _LOWEST_LOG, out=values)
    np.exp(values, out=values)
    of_classes = np.maximum(shares.T @ values, _LEAST)
    logs = np.log(of_classes)
    logs[codes, every] = log_own
    logs /= criterion.temperature
    logs -= logs.max(axis=0)
    posterior = np.exp(logs)
    total = posterior.sum(axis=0)
    posterior /= total
    each = np.ones(n_rows) if rows.weights is None else rows.weights
    conditional = float(each @ (logs[codes, every] - np.log(total)))
    joint = float(each @ (log_own + largest) + each.sum() * prepared.levels[0])
    # Combining both terms of the row's own class avoids cancellation for rows that are certain.
    posterior *= each / criterion.temperature
    others = posterior / of_classes
    others[codes, every] = 0.0
    posterior[codes, every] = 0.0
    own *= posterior.sum(axis=0) + criterion.trade_off * each
    indicators = np.zeros((n_rows, n_classes))
    indicators[every, codes] = 1.0
    of_weights = own @ indicators - shares * (values @ others.T)
    values *= shares @ others
    own -= values
    return Sums(conditional, joint, of_weights, *moments(part, own, prepared))


def own_terms(
    values: FloatArray, shares: FloatArray, codes: IntArray, workspace: Workspace
) -> tuple[FloatArray, FloatArray]:
    """Return responsibilities given the rows' own classes (K, n), and log p(c, x) (n,).

    `values` (K, n) are the kernels' log-joints summed over classes, less the row's largest.
    """
    own = workspace.array("own", values.shape)
    with np.errstate(divide="ignore"):
        log_shares = np.log(shares)
    # The −inf of a share of zero is raised to the lower limit as well.
    np.add(values, log_shares[:, codes], out=own)
    nearest = own.max(axis=0)
    own -= nearest
    np.maximum(own, _LOWEST_LOG, out=own)
    np.exp(own, out=own)
    total = own.sum(axis=0)
    own /= total
    return own, np.log(total) + nearest


def moments(
    part: Part, derivatives: FloatArray, prepared: Prepared
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sums (K,), (K, M) and (K, S) of derivatives (K, n), and of them times the rows' terms."""
    n_features, n_rows = part.x.shape
    matter = np.abs(derivatives)
    matter = matter > _NEGLIGIBLE * matter.max()
    if min(n_features / _WIDE, n_rows / _LONG) >= 1 and np.count_nonzero(matter) < _SPARSE * matter.size:
        chosen = list(range(len(derivatives)))
        product = np.empty((len(derivatives), len(part.terms.matrix)))
        product[:, -1] = derivatives.sum(axis=1)
    else:
        chosen = [k for _, k in prepared.delicate_kernels]
        product = np.dot(derivatives, part.terms.transposed)
    mass, first, second = product[:, -1], product[:, :n_features], product[:, n_features:-1]
    if not chosen:
        return mass, first, second
    by_row, scatters = np.empty((n_rows, n_features)), []
    turn(part.x, by_row)
    for k in chosen:
        index = np.flatnonzero(matter[k])
        difference = by_row[index] - prepared.origins[0, k]
        weighted = difference * derivatives[k, index, None]
        first[k] = weighted.sum(axis=0)
        scatters.append(prepared.structure.second_moment(difference, weighted))
    second[chosen] = prepared.structure.pack(np.array(scatters))
    return mass, first, second
