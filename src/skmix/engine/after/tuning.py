"""Discriminative training of a fitted model: a hybrid objective, optimised with early stopping.

For labelled rows the objective is Σ_n u_n [log s_n(c_n) + λ log p(x_n, c_n)] over Σ_n u_n: u are the rows'
weights, and s_n(j) ∝ p(x_n, j)^(1/T) the class probabilities at temperature T. Its derivative with respect to
log N(x_n; μ_k, P_k) is Σ_j ([j = c_n] (1/T + λ) − s_n(j)/T) r_nkj, where r_nkj are the responsibilities given
class j. The gradient follows from sums with the shape of EM's statistics, so it costs as much as a pass: two
matrix products. The log-priors of the fit are added, times 1/T + λ: a pseudo-row of a prior counts as much as
a row whose class is certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..estep.terms import expand_densities
from ..kernels import NONE
from ..loop import regulariser_of, time_is_up
from ..numbers import safe_log
from ..records import Factor, FloatArray, Frame, IntArray, Options, Parameters, Regulariser
from ..rows.labelled import Block
from ..rows.summary import measure
from ..scoring import class_log_likelihood
from ..structures import Structure, structure_of
from ..threads import Workers, workers
from .stretch import stretch_of
from .temperature import least_log_loss

Stage = tuple[float, int]
"""A value of λ and its number of rounds."""

# Most numbers in the expanded rows of a part.
_NUMBERS = 1 << 20
# Most rows of a part.
_MOST_ROWS = 2112
# As in the E-step: subnormal exponentials would slow down matrix products.
_LOWEST_LOG = -600.0
# Lower limit on a class's share of a row's density.
_LEAST_SHARE = 1e-280
# Derivatives of a delicate kernel below this share of the largest are negligible.
_NEGLIGIBLE_DERIVATIVE = 1e-12
# Bound on the moves of weights and covariances, as exponents: larger ones would overflow.
_FARTHEST_POWER = 30.0
# Bound on the moves of means, in units of their kernels.
_FARTHEST_STEP = 1e6
# Adam's initial step size, in units of the kernels.
_STEP = 3e-3
# Decay rate of Adam's mean gradient, as published.
_MOMENTUM = 0.9
# Decay rate of Adam's mean squares, as published.
_SQUARES = 0.999
# Added to Adam's root mean squares, as published.
_SMALL = 1e-8
# The model of a round is a running average over steps.
_AVERAGED = 0.998
# Temperature of the class probabilities during training, so that rows with a small margin still count. On
# held-out rows of MNIST, 3 was better than the models' own 1.3 and 1.6 in both cases tried.
_TEMPERATURE = 3.0
# Patience of early stopping, in rounds of mini-batches.
_PATIENCE = 5
# Patience of early stopping, in steps of L-BFGS.
_PATIENCE_OF_STEPS = 20
# A covariance is below its floor if raising it changes its log-determinant by more than this.
_RAISED = 1e-9


class Point(NamedTuple):
    """A model near the given one."""

    weights: FloatArray  # (K, L)
    means: FloatArray  # (K, M), in the frame
    stretch: FloatArray  # V of the covariances, see `Stretch`
    factor: Factor  # of the covariances, with a leading axis of one start


class Coefficients(NamedTuple):
    """A model as coefficients of the rows' terms: x, its second-order terms, and 1."""

    terms: FloatArray  # (K, M + S + 1), of the log-joints summed over classes
    shares: FloatArray  # (K, L), of the classes in those
    peaks: FloatArray  # (K,), log-joints at the means
    delicate: IntArray  # kernels whose terms would cancel too many digits: computed from differences
    origins: FloatArray  # (K, M), of the moments: the means of delicate kernels, else zero


class GradientSums(NamedTuple):
    """Sums over rows that make up a gradient. Sums of disjoint rows add."""

    conditional: float  # Σ log s(c_n)
    joint: float  # Σ log p(x_n, c_n), in the frame
    classes: FloatArray  # (K, L), derivatives with respect to the logarithms of the weights
    mass: FloatArray  # (K,), sums of the derivatives g_nk with respect to log N(x_n; μ_k, P_k)
    first: FloatArray  # (K, M), sums of g_nk times x_n, about the kernels' origins
    second: FloatArray  # (K, S), sums of g_nk times the second-order terms of x_n, about the same origins


@dataclass
class Objective:
    """The hybrid objective around a given model, as a function of Q coordinates; zero is that model.

    Weights are multiplied by exponentials of their coordinates and normalised, so that a weight of zero stays
    zero; means move in units of their kernels; covariances are stretched, see `Stretch`.
    """

    parameters: Parameters  # the given model, in the frame, without an axis of starts
    structure: Structure
    frame: Frame  # with a bound valid for all rows
    class_prior: FloatArray  # (L,), which is fixed
    regulariser: Regulariser | None = None  # priors on weights and covariances, in the frame
    n_rows: float = 1.0  # rows of all batches, or the sum of their weights: scales the priors
    trade_off: float = 0.0  # λ
    temperature: float = 1.0  # T

    def __post_init__(self) -> None:
        given = self.parameters
        self._stretch = stretch_of(given, self.structure)
        self._sizes = [given.weights.size, given.means.size, math.prod(self._stretch.shape)]
        self.size = sum(self._sizes)
        if self.regulariser is not None:
            shape = given.means.shape
            wanted = self.structure.from_common(self.regulariser.prior_covariance[None], shape[0])
            self._prior_terms = self.structure.terms_of(wanted, *shape)[0]

    def limits(self) -> FloatArray:
        """Return bounds (Q,) on the coordinates, so that no trial of an optimiser overflows."""
        return np.repeat([_FARTHEST_POWER, _FARTHEST_STEP, _FARTHEST_POWER], self._sizes)

    def point(self, coordinates: FloatArray) -> Point:
        """Return the model of these coordinates (Q,)."""
        given = self.parameters
        of_weights, of_means, of_covariances = np.split(coordinates, np.cumsum(self._sizes)[:-1])
        powers = of_weights.reshape(given.weights.shape)
        weights = given.weights * np.exp(powers - powers.max(axis=0))
        weights /= weights.sum(axis=0)
        means = given.means + self._stretch.steps(of_means.reshape(given.means.shape))
        stretched = self._stretch.stretched(of_covariances.reshape(self._stretch.shape))
        return Point(weights, means, *stretched)

    def parameters_at(self, point: Point) -> Parameters:
        """Return the parameters of a model, in the frame."""
        return Parameters(point.weights, point.means, self._stretch.covariances(point.factor)[0])

    def evaluate(self, coordinates: FloatArray, rows: Block, pool: Workers) -> tuple[float, FloatArray]:
        """Return the objective per row of a model at coordinates (Q,), and its gradient (Q,)."""
        point, n_rows = self.point(coordinates), float(rows.row_weights.sum())
        model = self._expand(point)
        # Strides that are powers of two would map to the same cache lines: use odd multiples of 64.
        size = 64 * (max(min(_NUMBERS // model.terms.shape[1], _MOST_ROWS) // 64 - 1, 4) | 1)
        parts = [rows.rows(slice(start, start + size)) for start in range(0, len(rows.X), size)]
        sums = pool.map(lambda own: self._sum(own, point, model), parts)
        total = reduce(lambda a, b: GradientSums(*map(add, a, b)), sums)
        # About the means, from moments about the origins. `Structure.moved` would form three M x M products.
        offset, (i, j) = point.means - model.origins, self.structure.pairs(point.means.shape[1])
        first = total.first - total.mass[:, None] * offset
        second = total.second - first[:, i] * offset[:, j] - total.first[:, j] * offset[:, i]
        total = total._replace(first=first, second=second)
        joint = total.joint / n_rows - self.frame.log_volume()
        value = total.conditional / n_rows + self.trade_off * joint
        if self.regulariser is not None:
            log_prior, classes, mass, second = self._log_prior(point, self.regulariser)
            # The weight of a row for the kernels of its own class.
            share = (1.0 / self.temperature + self.trade_off) / self.n_rows
            value += share * log_prior
            share *= n_rows
            total = total._replace(
                classes=total.classes + share * classes,
                mass=total.mass + share * mass,
                second=total.second + share * second,
            )
        of_weights = total.classes - point.weights * total.classes.sum(axis=0)
        moments = total.mass, total.first, total.second
        of_means, of_covariances = self._stretch.gradients(point.stretch, point.factor, moments)
        gradient = np.concatenate([of_weights.ravel(), of_means.ravel(), of_covariances.ravel()])
        return value, gradient / n_rows

    def _expand(self, point: Point) -> Coefficients:
        """Return a model as coefficients, with weights summed over classes."""
        structure, bound, n_features = self.structure, self.frame.bound, point.means.shape[1]
        i, j = structure.pairs(n_features)
        expanded = expand_densities(
            point.means[None], point.factor, structure, np.concatenate([bound, bound[i] * bound[j]])
        )
        coefficients, at_zero, delicate = (array[0] for array in expanded)
        joint = point.weights * self.class_prior
        mixed = joint.sum(axis=1)
        shares = joint / np.where(mixed > 0, mixed, 1.0)[:, None]
        # The −inf of a weight of zero would turn into NaN in a matrix product.
        peaks = np.log(mixed, where=mixed > 0, out=np.full(len(mixed), -1e30))
        peaks += NONE.log_peaks(point.factor.log_determinant[0], n_features)
        coefficients = np.concatenate([coefficients, (at_zero + peaks)[:, None]], axis=1)
        coefficients[delicate] = 0.0
        origins = np.where(delicate[:, None], point.means, 0.0)
        return Coefficients(coefficients, shares, peaks, np.flatnonzero(delicate), origins)

    def _log_prior(
        self, point: Point, regulariser: Regulariser
    ) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return the logarithm of the priors, up to a constant, and their part of the sums about the means.

        These are (K, L), (K,) and (K, S) as in `GradientSums`. The prior on covariances acts like rows about
        each kernel's mean, that on weights like rows of each class in each kernel. Means have no prior.
        Weights of zero, which stay zero, are left out.
        """
        n_kernels, n_features = point.means.shape
        positive = point.weights > 0.0
        classes = np.where(positive, regulariser.weight_prior - 1.0, 0.0)
        value = float(np.sum(classes * np.log(np.where(positive, point.weights, 1.0))))
        mass, second = np.zeros(n_kernels), np.zeros((n_kernels, self.structure.n_second(n_features)))
        if regulariser.prior_rows:
            value += float(self.structure.log_prior(point.factor, regulariser)[0])
            # A shared covariance has one prior for all kernels.
            mass += regulariser.prior_rows * self._stretch.shape[0] / n_kernels
            second += mass[:, None] * self._prior_terms
        return value, classes, mass, second

    def _sum(self, rows: Block, point: Point, model: Coefficients) -> GradientSums:
        codes, shares, every = labels_of(rows), model.shares, np.arange(len(rows.X))
        n_features = point.means.shape[1]
        terms = np.empty((model.terms.shape[1], len(codes)))
        terms[:n_features] = x = self.frame.rows(rows.X)
        self._stretch.expand(x, terms[n_features:-1])
        terms[-1] = 1.0
        values = model.terms @ terms
        for k in model.delicate:
            whitener = point.factor.whitener[0]
            difference = x - point.means[k, :, None]
            lengths = self.structure.distances(whitener[min(k, len(whitener) - 1)], difference)
            values[k] = model.peaks[k] - 0.5 * lengths
        largest = values.max(axis=0)
        values -= largest
        # Responsibilities given the rows' own classes, and log p(c, x). The −inf of a share of zero is raised
        # to the lower limit as well.
        with np.errstate(divide="ignore"):
            own = np.take(np.log(shares), codes, axis=1)
        own += values
        log_own = _exponentiate(own)
        np.maximum(values, _LOWEST_LOG, out=values)
        np.exp(values, out=values)
        of_classes = np.maximum(shares.T @ values, _LEAST_SHARE)
        posterior = np.log(of_classes)
        posterior[codes, every] = log_own
        posterior /= self.temperature
        log_posterior = posterior[codes, every] - _exponentiate(posterior)
        each = rows.row_weights
        # Combining both terms of the row's own class avoids cancellation for rows that are certain.
        posterior *= each / self.temperature
        posterior[codes, every] = 0.0
        own *= posterior.sum(axis=0) + self.trade_off * each
        posterior /= of_classes
        indicators = np.zeros((len(codes), shares.shape[1]))
        indicators[every, codes] = 1.0
        of_weights = own @ indicators - shares * (values @ posterior.T)
        values *= shares @ posterior
        own -= values
        sums = own @ terms.T
        first, second, mass = sums[:, :n_features], sums[:, n_features:-1], sums[:, -1]
        for k in model.delicate:
            derivatives = np.abs(own[k])
            index = np.flatnonzero(derivatives > _NEGLIGIBLE_DERIVATIVE * derivatives.max())
            difference = x.T[index] - point.means[k]
            weighted = difference * own[k, index, None]
            first[k] = weighted.sum(axis=0)
            second[k] = self.structure.pack(self.structure.second_moment(difference, weighted))
        joint = float(each @ (log_own + largest))
        return GradientSums(float(each @ log_posterior), joint, of_weights, mass, first, second)


def labels_of(rows: Block) -> IntArray:
    """Return the class codes (n,) of labelled rows."""
    assert rows.y is not None
    return rows.y


def _exponentiate(logs: FloatArray) -> FloatArray:
    """Turn logarithms (m, n) into shares that sum to one over m, in place; return the log-sums (n,)."""
    largest = logs.max(axis=0)
    logs -= largest
    np.maximum(logs, _LOWEST_LOG, out=logs)
    np.exp(logs, out=logs)
    total = logs.sum(axis=0)
    logs /= total
    return np.log(total) + largest


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out rows, per row or unit of weight."""

    log_loss: float  # at the best temperature
    error: float  # share of misclassified rows
    log_likelihood: float  # mean of log p(x, c)
    temperature: float  # at least 1


def score(log_joints: FloatArray, rows: Block) -> Scores:
    """Return the scores of log-joints (N, L) of labelled rows."""
    codes = labels_of(rows)
    temperature, log_loss = least_log_loss(log_joints, codes, rows.weights)
    own = log_joints[np.arange(len(codes)), codes]
    return Scores(
        log_loss,
        float(np.average(log_joints.argmax(axis=1) != codes, weights=rows.weights)),
        float(np.average(own, weights=rows.weights)),
        temperature,
    )


class Judge:
    """Selects the model of least log-loss on held-out rows, with no more errors than the given model.

    Without held-out rows the last model counts as the best. The objective is around the given model; the
    variance floor (M,) is in the frame.
    """

    def __init__(
        self, objective: Objective, validation: Block | None, floor: FloatArray, n_jobs: int = 1
    ) -> None:
        self._validation, self._floor, self._n_jobs = validation, floor, n_jobs
        self.best = objective.parameters
        self.trade_off: float | None = None  # λ of the best model; None for the given model
        self.before: Scores | None = None  # of the given model, on the held-out rows
        if validation is not None:
            given = objective.parameters_at(objective.point(np.zeros(objective.size)))
            self.before = self._score(objective, given, validation)
        self.after = self.before  # of the best model
        self.rounds: list[tuple[float, Scores]] = []  # λ and scores of every round
        self.stages: list[Stage] = []  # from the given model to the best one
        self.n_seen = self.since_better = 0
        self.begin()

    def begin(self) -> None:
        """Begin a stage, from the best model."""
        self._earlier, self._first, self.since_better = self.stages, self.n_seen, 0

    def _score(self, objective: Objective, parameters: Parameters, rows: Block) -> Scores:
        structure = objective.structure
        found = objective.frame.leave(parameters.batch(), structure).take(0)
        classes = class_log_likelihood(rows.X, found, structure.name, self._n_jobs)
        return score(classes + safe_log(objective.class_prior), rows)

    def see(self, objective: Objective, coordinates: FloatArray) -> Parameters | None:
        """Score a model; return it with raised covariances if any was below the floor, else None."""
        point, trade_off = objective.point(coordinates), objective.trade_off
        parameters = objective.parameters_at(point)
        covariances, factor = objective.structure.raised(parameters.covariances[None], self._floor)
        sunk = bool((factor.log_determinant - point.factor.log_determinant > _RAISED).any())
        if sunk:
            parameters = replace(parameters, covariances=covariances[0])
        self.n_seen += 1
        scores, better = None, True
        if self._validation is not None and self.before is not None and self.after is not None:
            scores = self._score(objective, parameters, self._validation)
            self.rounds.append((trade_off, scores))
            better = scores.log_loss < self.after.log_loss and scores.error <= self.before.error
        if better:
            self.best, self.after, self.trade_off, self.since_better = parameters, scores, trade_off, 0
            self.stages = [*self._earlier, (trade_off, self.n_seen - self._first)]
        else:
            self.since_better += 1
        return parameters if sunk else None


@dataclass(frozen=True)
class Schedule:
    """The stages of training, and how they step."""

    stages: Sequence[Stage]
    batch_size: int | None  # rows of a mini-batch; None: steps of L-BFGS over all rows
    max_iter: int  # passes over which Adam's step shrinks to zero; a stage may make fewer
    random_state: np.random.RandomState  # orders the rows of mini-batches


def tune(
    parameters: Parameters,
    class_prior: FloatArray,
    training: Block,
    validation: Block | None,
    fitted: Options,
    schedule: Schedule,
) -> Judge:
    """Train a model discriminatively; return the judge with the best model in the data's coordinates.

    The class priors (L,) are not trained. Held-out rows serve early stopping and model selection; without
    them all rounds are run. `fitted` are the options of the fit: its structure, floor and priors, and the
    number of threads. Each stage continues from the best model so far.
    """
    structure = structure_of(fitted.covariance_type)
    frame = measure(training.X, structure, row_weights=training.weights)
    inside = frame.enter(parameters.batch(), structure).take(0)
    regulariser = regulariser_of(fitted, frame, structure, len(inside.means))
    # The concentration of a variational fit may be below one, which would drive weights to zero here.
    regulariser = replace(regulariser, weight_prior=max(regulariser.weight_prior, 1.0))
    with workers(fitted.n_jobs) as pool:
        given = Objective(
            inside, structure, frame, class_prior, regulariser, float(training.row_weights.sum())
        )
        judge = Judge(given, validation, regulariser.floor, fitted.n_jobs)
        for trade_off, n_rounds in schedule.stages:
            judge.begin()
            objective = replace(given, parameters=judge.best, trade_off=trade_off, temperature=_TEMPERATURE)
            if schedule.batch_size is None:
                lbfgs(objective, training, n_rounds, judge, pool)
            else:
                adam(objective, training, n_rounds, judge, pool, schedule)
    judge.best = frame.leave(judge.best.batch(), structure).take(0)
    return judge


def lbfgs(objective: Objective, rows: Block, max_iter: int, judge: Judge, pool: Workers) -> None:
    """Take up to `max_iter` steps of L-BFGS over all rows.

    L-BFGS goes on below the variance floor, and the judge scores a raised copy: a restart from the floor
    would lose the curvature, at every step where values are coarse.
    """
    limits, judged = objective.limits(), judge.before is not None

    def inside(coordinates: FloatArray) -> FloatArray:
        """Return coordinates within the limits; SciPy's own bounds are slow for many coordinates."""
        return np.clip(coordinates, -limits, limits)

    def negative(coordinates: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.evaluate(inside(coordinates), rows, pool)
        return -value, -gradient

    def look(coordinates: FloatArray) -> None:
        if judged:
            judge.see(objective, inside(coordinates))
        if judge.since_better >= _PATIENCE_OF_STEPS or time_is_up():
            raise StopIteration

    found = minimize(
        negative,
        np.zeros(objective.size),
        jac=True,
        method="L-BFGS-B",
        callback=look,
        options={"maxiter": max_iter},
    )
    if not judged:
        # The last model counts: only its number matters of the others.
        judge.n_seen += max(found.nit - 1, 0)
        judge.see(objective, inside(found.x))


def adam(
    objective: Objective, rows: Block, n_rounds: int, judge: Judge, pool: Workers, schedule: Schedule
) -> None:
    """Make up to `n_rounds` passes over mini-batches with Adam."""
    n_rows = len(rows.X)
    n_batches = -(-n_rows // (schedule.batch_size or n_rows))
    n_steps = schedule.max_iter * n_batches
    coordinates, average, mean, square = np.zeros((4, objective.size))
    for step in range(1, n_rounds * n_batches + 1):
        batch = (step - 1) % n_batches
        if batch == 0:
            order = schedule.random_state.permutation(n_rows)
        _, gradient = objective.evaluate(coordinates, rows.rows(order[batch::n_batches]), pool)
        mean += (1.0 - _MOMENTUM) * (gradient - mean)
        square += (1.0 - _SQUARES) * (gradient**2 - square)
        length = _STEP * (1.0 - (step - 1) / n_steps) / (1.0 - _MOMENTUM**step)
        coordinates += length * mean / (np.sqrt(square / (1.0 - _SQUARES**step)) + _SMALL)
        # At first the average is over all steps so far.
        average += (coordinates - average) * max(1.0 - _AVERAGED, 1.0 / step)
        if batch < n_batches - 1:
            continue
        raised = judge.see(objective, average)
        if judge.since_better >= _PATIENCE or time_is_up():
            return
        if raised is not None:
            objective = replace(objective, parameters=raised)
            coordinates[:] = average[:] = 0.0
