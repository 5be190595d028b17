"""Discriminative training of a fitted model, with early stopping by held-out rows.

The objective for labelled rows of weights u_n is

    Σ_n u_n [log s_n(c_n) + λ log p(x_n, c_n)] / Σ_n u_n,        s_n(j) ∝ p(x_n, j)^(1/T),

how well labels are predicted at temperature T, and λ times the log-likelihood. Its derivative with respect to
log N(x_n; μ_k, P_k) is, with the responsibilities r_nkj of the kernels given class j,

    g_nk = u_n Σ_j ([j = c_n] (1/T + λ) − s_n(j)/T) r_nkj.

The gradient follows from sums of g_nk over rows with the shape of EM's statistics, so it costs as much as a
pass: two matrix products. The log-priors of the fit are added, times 1/T + λ: a pseudo-row of a prior counts
as much as a row whose class is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..estep.terms import expand_densities
from ..exponentials import log_sum_exp
from ..kernels import GAUSSIAN
from ..loop import time_is_up
from ..numbers import safe_log
from ..problem import regulariser_of
from ..records import FloatArray, Frame, IntArray, Options, Parameters, Regulariser
from ..rows.blocks import Block
from ..rows.summary import measure
from ..scoring import class_log_likelihood
from ..structures import structure_of
from ..threads import Workers, workers
from .coordinates import Candidate, Coordinates, Sums
from .temperature import least_log_loss

Stage = tuple[float, int]
"""A value of λ and its number of rounds."""

# Most numbers in the expanded rows of a part.
_NUMBERS = 1 << 20
# Most rows of a part.
_MOST_ROWS = 2112
# As in the E-step: subnormal exponentials would slow down matrix products.
_LOWEST_LOG = -600.0
# Lower limit on a class's density relative to the row's nearest kernel, far above the exponential of the
# lowest logarithm.
_LEAST_DENSITY = 1e-200
# Logarithm of a weight of zero: −∞ would turn into NaN in a matrix product.
_NO_WEIGHT = -1e30
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
    held_out: Block | None,
    fitted: Options,
    schedule: Schedule,
) -> Selection:
    """Train a model discriminatively; return the selection with the best model in the data's coordinates.

    The class priors (L,) are not trained. Held-out rows serve early stopping and selection; without them all
    rounds are run. `fitted` are the options of the fit: its structure, floor and priors, and the number of
    threads. Each stage continues from the best model so far.
    """
    structure = structure_of(fitted.covariance_type)
    frame = measure(training.X, structure, row_weights=training.weights)
    start = frame.enter(parameters.batch(), structure).take(0)
    regulariser = regulariser_of(fitted, frame, structure, len(start.means))
    # The concentration of a variational fit may be below one, which would drive weights to zero here.
    regulariser = replace(regulariser, weight_prior=max(regulariser.weight_prior, 1.0))
    n_rows = float(training.row_weights.sum())
    objective = Objective(Coordinates(start, structure), frame, class_prior, regulariser, n_rows)
    selection = Selection(objective, held_out, fitted.n_jobs)
    with workers(fitted.n_jobs) as pool:
        for trade_off, n_rounds in schedule.stages:
            selection.begin_stage()
            objective = replace(objective, around=Coordinates(selection.best, structure), trade_off=trade_off)
            if schedule.batch_size is None:
                lbfgs(objective, training, n_rounds, selection, pool)
            else:
                adam(objective, training, n_rounds, selection, pool, schedule)
    selection.best = frame.leave(selection.best.batch(), structure).take(0)
    return selection


# ---------------------------------------------------------------- the objective


class Expanded(NamedTuple):
    """A model as coefficients of the rows' terms: x, its second-order terms, and 1."""

    coefficients: FloatArray  # (K, M + S + 1), of the kernels' log-joints, summed over classes
    shares: FloatArray  # (K, L), of the classes in these
    delicate: IntArray  # kernels whose terms would cancel too many digits: theirs are about their means


@dataclass(frozen=True)
class Objective:
    """The objective of training, per row, as a function of Q coordinates."""

    around: Coordinates
    frame: Frame  # with a bound that is valid for all rows
    class_prior: FloatArray  # (L,), which is fixed
    regulariser: Regulariser  # priors on weights and covariances, in the frame
    n_rows: float  # rows of all batches, or the sum of their weights: scales the priors
    trade_off: float = 0.0  # λ
    temperature: float = _TEMPERATURE  # T

    def evaluate(self, coordinates: FloatArray, rows: Block, pool: Workers) -> tuple[float, FloatArray]:
        """Return the objective at coordinates (Q,) for some of the rows, and its gradient (Q,)."""
        candidate, weight = self.around.candidate(coordinates), float(rows.row_weights.sum())
        model = self._expand(candidate)
        # Strides that are powers of two would map to the same cache lines: use odd multiples of 64.
        size = 64 * (max(min(_NUMBERS // model.coefficients.shape[1], _MOST_ROWS) // 64 - 1, 4) | 1)
        parts = [rows.rows(slice(start, start + size)) for start in range(0, len(rows.X), size)]
        sums = reduce(Sums.plus, pool.map(lambda part: self._sum(part, candidate, model), parts))
        # Moments about the means; `Structure.moved` would form three matrices (K, M, M).
        offset, (i, j) = candidate.means.copy(), self.around.structure.pairs(candidate.means.shape[1])
        offset[model.delicate] = 0.0
        first = sums.first - sums.mass[:, None] * offset
        second = sums.second - first[:, i] * offset[:, j] - sums.first[:, j] * offset[:, i]
        share = (1.0 / self.temperature + self.trade_off) * weight / self.n_rows
        sums = sums._replace(first=first, second=second).plus(self._log_prior(candidate).times(share))
        value = sums.value / weight - self.trade_off * self.frame.log_volume()
        return value, self.around.gradient(candidate, sums) / weight

    def _expand(self, candidate: Candidate) -> Expanded:
        """Return a model as coefficients, with weights summed over classes."""
        structure, bound, n_features = self.around.structure, self.frame.bound, len(self.frame.bound)
        i, j = structure.pairs(n_features)
        bounds = np.concatenate([bound, bound[i] * bound[j]])
        expanded = expand_densities(candidate.means[None], candidate.factor, structure, bounds)
        coefficients, at_zero, is_delicate = (array[0] for array in expanded)
        joint = candidate.weights * self.class_prior
        mixed = joint.sum(axis=1)
        peaks = np.log(mixed, where=mixed > 0.0, out=np.full(len(mixed), _NO_WEIGHT))
        peaks += GAUSSIAN.log_peaks(candidate.factor.log_determinant[0], n_features)
        # About its mean, a log-density has no linear terms.
        coefficients[is_delicate, :n_features] = at_zero[is_delicate] = 0.0
        coefficients = np.concatenate([coefficients, (peaks + at_zero)[:, None]], axis=1)
        shares = joint / np.where(mixed > 0.0, mixed, 1.0)[:, None]
        return Expanded(coefficients, shares, np.flatnonzero(is_delicate))

    def _sum(self, rows: Block, candidate: Candidate, model: Expanded) -> Sums:
        """Return the sums over some rows, about zero, and of delicate kernels about their means."""
        codes, weights, n_features = rows.codes, rows.row_weights, rows.X.shape[1]
        x, every = self.frame.rows(rows.X), np.arange(len(codes))
        terms = self._terms(x)
        log_joint = model.coefficients @ terms
        for k in model.delicate:
            log_joint[k] = model.coefficients[k] @ self._terms(x - candidate.means[k, :, None])
        largest = log_joint.max(axis=0)
        log_joint -= largest
        densities, log_classes, responsibilities = _by_class(log_joint, model.shares, codes)
        log_posterior = log_classes / self.temperature
        log_posterior -= log_sum_exp(log_posterior, axis=0)
        value = log_posterior[codes, every] + self.trade_off * (log_classes[codes, every] + largest)
        # u_n s_n(j) / T of the other classes. As their sum, 1 − s_n(c_n) keeps its digits.
        others = np.exp(log_posterior) * (weights / self.temperature)
        others[codes, every] = 0.0
        responsibilities *= others.sum(axis=0) + self.trade_off * weights
        of_classes = np.zeros((len(codes), model.shares.shape[1]))
        of_classes[every, codes] = 1.0
        # The responsibilities given another class are its shares of the densities over the class's density.
        others /= np.maximum(np.exp(log_classes), _LEAST_DENSITY)
        of_weights = responsibilities @ of_classes - model.shares * (densities @ others.T)
        densities *= model.shares @ others
        derivatives = np.subtract(responsibilities, densities, out=responsibilities)  # g_nk
        moments = derivatives @ terms.T
        for k in model.delicate:
            moments[k] = self._terms(x - candidate.means[k, :, None]) @ derivatives[k]
        first, second, mass = moments[:, :n_features], moments[:, n_features:-1], moments[:, -1]
        return Sums(float(weights @ value), of_weights, mass, first, second)

    def _terms(self, x: FloatArray) -> FloatArray:
        """Return rows x (M, n), their second-order terms in the order of `pairs`, and 1: (M + S + 1, n)."""
        n_features, n_second = len(x), self.around.structure.n_second(len(x))
        terms = np.empty((n_features + n_second + 1, x.shape[1]))
        terms[:n_features], terms[-1] = x, 1.0
        for step, start in enumerate(range(0, n_second, n_features)):
            # Each feature times the one `step` places ahead, around the end.
            products = terms[n_features + start : n_features + min(start + n_features, n_second)]
            straight = min(n_features - step, len(products))
            np.multiply(x[:straight], x[step : step + straight], out=products[:straight])
            np.multiply(x[straight : len(products)], x[: len(products) - straight], out=products[straight:])
        return terms

    def _log_prior(self, candidate: Candidate) -> Sums:
        """Return the logarithm of the priors, up to a constant, and its derivatives.

        The prior on covariances acts like rows about each kernel's mean, that on weights like rows of each
        class in each kernel. Means have no prior. Weights of zero, which stay zero, are left out.
        """
        structure, prior = self.around.structure, self.regulariser
        n_kernels, n_features = candidate.means.shape
        positive = candidate.weights > 0.0
        of_weights = np.where(positive, prior.weight_prior - 1.0, 0.0)
        value = float(np.sum(of_weights * np.log(np.where(positive, candidate.weights, 1.0))))
        mass, second = np.zeros(n_kernels), np.zeros((n_kernels, structure.n_second(n_features)))
        if prior.prior_rows:
            value += float(structure.log_prior(candidate.factor, prior)[0])
            # A shared covariance has one prior for all kernels.
            mass += prior.prior_rows * self.around.n_covariances / n_kernels
            common = structure.from_common(prior.prior_covariance[None], 1)
            second += mass[:, None] * structure.terms_of(common, 1, n_features)[0]
        return Sums(value, of_weights, mass, np.zeros_like(candidate.means), second)


def _by_class(
    log_joint: FloatArray, shares: FloatArray, codes: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Divide log-joints (K, n) of kernels, of which the largest is zero, by the classes' shares (K, L).

    Returns densities (K, n) of kernels, log-densities (L, n) of classes, and responsibilities (K, n) given
    the rows' classes, codes (n,).
    """
    every = np.arange(len(codes))
    densities = np.maximum(log_joint, _LOWEST_LOG)
    np.exp(densities, out=densities)
    of_classes = np.maximum(shares.T @ densities, _LEAST_DENSITY)
    log_classes, of_true_class = np.log(of_classes), of_classes[codes, every]
    responsibilities = np.take(shares, codes, axis=1)
    responsibilities *= densities
    responsibilities /= of_true_class
    far = np.flatnonzero(of_true_class <= _LEAST_DENSITY)
    if len(far):
        # All kernels of the true class are far away, compared with those of other classes.
        logs = log_joint[:, far] + safe_log(shares)[:, codes[far]]
        log_classes[codes[far], far] = log_sum_exp(logs, axis=0)
        responsibilities[:, far] = np.exp(logs - log_classes[codes[far], far])
    return densities, log_classes, responsibilities


# ---------------------------------------------------------------- selection


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out rows, per row or unit of weight."""

    log_loss: float  # at the best temperature
    error: float  # share of misclassified rows
    log_likelihood: float  # mean of log p(x, c)
    temperature: float  # at least 1


def score(log_joints: FloatArray, rows: Block) -> Scores:
    """Return the scores of log-joints (N, L) of labelled rows."""
    codes, weights = rows.codes, rows.weights
    temperature, log_loss = least_log_loss(log_joints, codes, weights)
    error = np.average(log_joints.argmax(axis=1) != codes, weights=weights)
    log_likelihood = np.average(log_joints[np.arange(len(codes)), codes], weights=weights)
    return Scores(log_loss, float(error), float(log_likelihood), temperature)


class Selection:
    """The model of least log-loss on held-out rows, with no more errors there than the given model.

    Without held-out rows the last model counts as the best. The objective is around the given model.
    """

    def __init__(self, objective: Objective, held_out: Block | None, n_jobs: int = 1) -> None:
        self._held_out, self._n_jobs = held_out, n_jobs
        self.best = objective.around.parameters
        self.trade_off: float | None = None  # λ of the best model; None for the given model
        self.before = self._score(objective, self.best)  # of the given model
        self.after = self.before  # of the best model
        self.rounds: list[tuple[float, Scores]] = []  # λ and scores of every round
        self.stages: list[Stage] = []  # from the given model to the best one
        self.n_seen = 0
        self.begin_stage()

    def begin_stage(self) -> None:
        """Begin a stage, from the best model."""
        self._earlier, self._first, self.since_better = self.stages, self.n_seen, 0

    def consider(self, objective: Objective, coordinates: FloatArray) -> Parameters | None:
        """Score a model; return it with raised covariances if any was below the floor, else None."""
        candidate = objective.around.candidate(coordinates)
        parameters, floor = objective.around.parameters_of(candidate), objective.regulariser.floor
        covariances, factor = objective.around.structure.raised(parameters.covariances[None], floor)
        is_raised = bool((factor.log_determinant - candidate.factor.log_determinant > _RAISED).any())
        if is_raised:
            parameters = replace(parameters, covariances=covariances[0])
        self.n_seen += 1
        scores, is_better = self._score(objective, parameters), True
        if scores is not None and self.before is not None and self.after is not None:
            self.rounds.append((objective.trade_off, scores))
            is_better = scores.log_loss < self.after.log_loss and scores.error <= self.before.error
        if is_better:
            self.best, self.after, self.trade_off = parameters, scores, objective.trade_off
            self.stages = [*self._earlier, (objective.trade_off, self.n_seen - self._first)]
        self.since_better = 0 if is_better else self.since_better + 1
        return parameters if is_raised else None

    def _score(self, objective: Objective, parameters: Parameters) -> Scores | None:
        if self._held_out is None:
            return None
        structure = objective.around.structure
        outside = objective.frame.leave(parameters.batch(), structure).take(0)
        logs = class_log_likelihood(self._held_out.X, outside, structure.name, self._n_jobs)
        return score(logs + safe_log(objective.class_prior), self._held_out)


# ---------------------------------------------------------------- optimisers


def lbfgs(objective: Objective, rows: Block, max_iter: int, selection: Selection, pool: Workers) -> None:
    """Take up to `max_iter` steps of L-BFGS over all rows.

    L-BFGS goes on below the variance floor, while a raised copy is scored: a restart from the floor would
    lose the curvature, at every step where values are coarse.
    """

    def negative(coordinates: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.evaluate(coordinates, rows, pool)
        return -value, -gradient

    def after_step(coordinates: FloatArray) -> None:
        if selection.before is not None:
            selection.consider(objective, coordinates)
        if selection.since_better >= _PATIENCE_OF_STEPS or time_is_up():
            raise StopIteration

    start, options = np.zeros(objective.around.size), {"maxiter": max_iter}
    outcome = minimize(negative, start, jac=True, method="L-BFGS-B", callback=after_step, options=options)
    if selection.before is None:
        # Only the last model counts; of the others, their number is enough.
        selection.n_seen += max(outcome.nit - 1, 0)
        selection.consider(objective, outcome.x)


def adam(
    objective: Objective, rows: Block, n_rounds: int, selection: Selection, pool: Workers, schedule: Schedule
) -> None:
    """Make up to `n_rounds` passes over mini-batches with Adam (Kingma & Ba, 2015).

    Steps shrink linearly, and the model of a round is a running average.
    """
    n_rows = len(rows.X)
    n_batches = -(-n_rows // (schedule.batch_size or n_rows))
    n_steps = schedule.max_iter * n_batches
    coordinates, average, mean, square = np.zeros((4, objective.around.size))
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
        raised = selection.consider(objective, average)
        if selection.since_better >= _PATIENCE or time_is_up():
            return
        if raised is not None:
            objective = replace(objective, around=Coordinates(raised, objective.around.structure))
            coordinates[:] = average[:] = 0.0
