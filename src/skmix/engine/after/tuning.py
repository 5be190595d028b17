"""Discriminative training of a fitted model, with early stopping by held-out rows.

The objective for labelled rows of weights u_n is

    Σ_n u_n [log s_n(c_n) + λ log p(x_n, c_n)] / Σ_n u_n,        s_n(j) ∝ p(x_n, j)^(1/T),

how well labels are predicted at temperature T, and λ times the log-likelihood. Its derivative with respect to
log N(x_n; μ_k, P_k) is, with the joint weights π_kj of kernels and classes,

    g_nk = N(x_n; μ_k, P_k) Σ_j π_kj q_nj,      q_nj = u_n ([j = c_n] (1/T + λ) − s_n(j)/T) / p(x_n, j).

The gradient follows from sums of g_nk over rows with the shape of EM's statistics, so it costs as much as a
pass: two matrix products. The log-priors of the fit are added, times 1/T + λ: a pseudo-row of a prior counts
as much as a row whose class is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..estep import host
from ..estep.inputs import Kernels, Rows
from ..exponentials import log_normalise, log_sum_exp
from ..loop import time_is_up
from ..numbers import safe_log
from ..problem import regulariser_of
from ..records import FloatArray, Frame, Options, Parameters, Regulariser
from ..rows.blocks import Block
from ..rows.summary import measure
from ..rules.likelihood import lost_digits
from ..scoring import class_log_likelihood
from ..structures import structure_of
from ..threads import Workers, workers
from .coordinates import Candidate, Coordinates, Sums
from .temperature import least_log_loss

Stage = tuple[float, int]
"""A value of λ and its largest number of steps."""

# Most numbers in the terms of a part of the rows.
_NUMBERS = 1 << 20
# Most rows of a part.
_MOST_ROWS = 2112
# As in the E-step: subnormal exponentials would slow down matrix products.
_LOWEST_LOG = -600.0
# Lower limit on a class's density relative to the row's nearest kernel, far above the exponential of the
# lowest logarithm.
_LEAST_DENSITY = 1e-200
# Temperature of the class probabilities during training, so that rows with a small margin still count. On
# held-out rows of MNIST, 3 was better than the models' own 1.3 and 1.6 in both cases tried.
_TEMPERATURE = 3.0
# A stage ends after this many steps without a better model.
_PATIENCE = 20


def tune(
    parameters: Parameters,
    class_prior: FloatArray,
    training: Block,
    held_out: Block | None,
    fitted: Options,
    stages: Sequence[Stage],
) -> Selection:
    """Train a model discriminatively; return the selection with the best model in the data's coordinates.

    The class priors (L,) are not trained. Held-out rows serve early stopping and selection; without them all
    steps are taken. `fitted` are the options of the fit: its structure, floor and priors, and the number of
    threads. Each stage continues from the best model so far.
    """
    structure = structure_of(fitted.covariance_type)
    frame = measure(training.X, structure, row_weights=training.weights)
    start = frame.enter(parameters.batch(), structure).take(0)
    regulariser = regulariser_of(fitted, frame, structure, len(start.means))
    # The concentration of a variational fit may be below one, which would drive weights to zero here.
    regulariser = replace(regulariser, weight_prior=max(regulariser.weight_prior, 1.0))
    objective = Objective(Coordinates(start, structure), training, frame, class_prior, regulariser)
    selection = Selection(objective, held_out, fitted.n_jobs)
    with workers(fitted.n_jobs) as pool:
        for trade_off, n_steps in stages:
            around = Coordinates(selection.best, structure)
            selection.train(replace(objective, around=around, trade_off=trade_off), n_steps, pool)
    selection.best = frame.leave(selection.best.batch(), structure).take(0)
    return selection


# ---------------------------------------------------------------- the objective


class Mixture(NamedTuple):
    """A model of all classes together, as passes take it."""

    kernels: Kernels  # with constants that include the kernels' weights, summed over classes
    shares: FloatArray  # (K, L), of the classes in these weights
    origins: FloatArray  # (K, M), of the moments: zero, or the means of kernels that would lose digits


@dataclass(frozen=True)
class Objective:
    """The objective of training, per row, as a function of Q coordinates."""

    around: Coordinates
    rows: Block  # with class codes
    frame: Frame
    class_prior: FloatArray  # (L,), which is fixed
    regulariser: Regulariser  # priors on weights and covariances, in the frame
    trade_off: float = 0.0  # λ
    temperature: float = _TEMPERATURE  # T

    def evaluate(self, coordinates: FloatArray, pool: Workers) -> tuple[float, FloatArray]:
        """Return the objective at coordinates (Q,), and its gradient (Q,)."""
        structure, candidate = self.around.structure, self.around.candidate(coordinates)
        mixture = self._mixture(candidate)
        n_terms = len(self.frame.scale) + structure.n_second(len(self.frame.scale)) + 1
        # Strides that are powers of two would map to the same cache lines: use odd multiples of 64.
        size = 64 * (max(min(_NUMBERS // n_terms, _MOST_ROWS) // 64 - 1, 4) | 1)
        parts = [self.rows.rows(slice(a, a + size)) for a in range(0, len(self.rows.X), size)]
        sums = reduce(Sums.plus, pool.map(partial(self._sum, mixture), parts))
        # Moments about the means.
        shift, mass = mixture.origins - candidate.means, sums.mass[:, None]
        second = structure.moved(*(array[None] for array in (sums.second, sums.first, mass, shift)))[0]
        sums = sums._replace(first=sums.first + mass * shift, second=second)
        sums = sums.plus(self._log_prior(candidate).times(1.0 / self.temperature + self.trade_off))
        n_rows = float(self.rows.row_weights.sum())
        value = sums.value / n_rows - self.trade_off * self.frame.log_volume()
        return value, self.around.gradient(candidate, sums) / n_rows

    def parameters(self, coordinates: FloatArray) -> Parameters:
        """Return the model at coordinates (Q,), with covariances raised to the floor."""
        parameters = self.around.parameters_of(self.around.candidate(coordinates))
        raised, _ = self.around.structure.raised(parameters.covariances[None], self.regulariser.floor)
        return replace(parameters, covariances=raised[0])

    def _mixture(self, candidate: Candidate) -> Mixture:
        """Return the mixture of all classes under a candidate."""
        structure, means = self.around.structure, candidate.means
        # The weights are in the constants; passes use the factor, not the covariances.
        model = Parameters(np.ones((1, len(means), 1)), means[None], self.around.parameters.covariances[None])
        kernels = Kernels.of(model, candidate.factor, structure)
        joint = candidate.weights * self.class_prior
        mixed = joint.sum(axis=1)
        kernels = replace(kernels, constants=kernels.constants + safe_log(mixed))
        is_narrow = lost_digits(means[None], candidate.factor, structure, "float64")[0]
        origins = np.where(is_narrow[:, None], means, 0.0)
        return Mixture(kernels, joint / np.where(mixed > 0.0, mixed, 1.0)[:, None], origins)

    def _sum(self, mixture: Mixture, rows: Block) -> Sums:
        """Return the sums over some rows, about the origins of the mixture."""
        codes, weights, every, shares = rows.codes, rows.row_weights, np.arange(len(rows.X)), mixture.shares
        in_frame = Rows(rows.X, None, None, self.frame)
        log_joint = host.log_densities(in_frame, mixture.kernels, None, Workers(1)).T.copy()
        largest = log_joint.max(axis=0)
        log_joint -= largest
        densities = np.maximum(log_joint, _LOWEST_LOG)
        np.exp(densities, out=densities)
        of_classes = np.maximum(shares.T @ densities, _LEAST_DENSITY)  # (L, n)
        log_classes = np.log(of_classes)
        # All kernels of the true class may be far away, compared with those of other classes.
        far = np.flatnonzero(of_classes[codes, every] <= _LEAST_DENSITY)
        its_class = codes[far]
        logs = log_joint[:, far] + safe_log(shares)[:, its_class]
        log_classes[its_class, far] = log_sum_exp(logs, axis=0)

        log_posterior = log_normalise(log_classes / self.temperature, axis=0)
        value = log_posterior[codes, every] + self.trade_off * (log_classes[codes, every] + largest)
        # u_n s_n(j) / T of the other classes. As their sum, 1 − s_n(c_n) keeps its digits.
        others = np.exp(log_posterior) * (weights / self.temperature)
        others[codes, every] = 0.0
        of_true_class = others.sum(axis=0) + self.trade_off * weights
        slopes = -others / of_classes  # q_nj
        slopes[codes, every] = of_true_class / of_classes[codes, every]
        slopes[its_class, far] = 0.0
        of_weights = shares * (densities @ slopes.T)
        derivatives = np.multiply(densities, shares @ slopes, out=densities)  # g_nk
        # Densities of far kernels have underflowed, but not the responsibilities given the class.
        responsibilities = np.exp(logs - log_classes[its_class, far]) * of_true_class[far]
        derivatives[:, far] += responsibilities
        np.add.at(of_weights.T, its_class, responsibilities.T)
        x, n_features = self.frame.rows(rows.X), rows.X.shape[1]
        moments = derivatives @ self._terms(x).T
        for k in np.flatnonzero(mixture.origins.any(axis=1)):
            moments[k] = self._terms(x - mixture.origins[k, :, None]) @ derivatives[k]
        first, second, mass = moments[:, :n_features], moments[:, n_features:-1], moments[:, -1]
        return Sums(float(weights @ value), of_weights, mass, first, second)

    def _terms(self, x: FloatArray) -> FloatArray:
        """Return rows x (M, n), their second-order terms in the order of `pairs`, and 1: (M + S + 1, n)."""
        n_features, n_second = len(x), self.around.structure.n_second(len(x))
        terms = np.empty((n_features + n_second + 1, x.shape[1]))
        terms[:n_features], terms[-1] = x, 1.0
        twice = np.concatenate([x, x])
        for step, start in enumerate(range(0, n_second, n_features)):
            # Each feature times the one `step` places ahead, around the end.
            n_products = min(n_features, n_second - start)
            products = terms[n_features + start : n_features + start + n_products]
            np.multiply(x[:n_products], twice[step : step + n_products], out=products)
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
        value += float(structure.log_prior(candidate.factor, prior)[0])
        # A shared covariance has one prior for all kernels.
        mass = np.full(n_kernels, prior.prior_rows * self.around.n_covariances / n_kernels)
        common = structure.from_common(prior.prior_covariance[None], 1)
        second = mass[:, None] * structure.terms_of(common, 1, n_features)[0]
        return Sums(value, of_weights, mass, np.zeros_like(candidate.means), second)


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

    def __init__(self, objective: Objective, held_out: Block | None, n_jobs: int) -> None:
        self._objective, self._held_out, self._n_jobs = objective, held_out, n_jobs
        self.best = objective.around.parameters
        self.trade_off: float | None = None  # λ of the best model; None for the given model
        self.before = None if held_out is None else self._score(self.best, held_out)  # of the given model
        self.after = self.before  # of the best model
        self.rounds: list[tuple[float, Scores]] = []  # λ and scores of every step
        self.stages: list[Stage] = []  # from the given model to the best one

    def train(self, objective: Objective, n_steps: int, pool: Workers) -> None:
        """Train the best model, around which the objective is, for up to that number of steps."""
        self._objective, self._earlier, self._n_steps, self._n_best = objective, self.stages, 0, 0
        last = climb(objective, n_steps, pool, self._judge)
        if self._held_out is None:
            self._keep(objective.parameters(last))

    def _judge(self, coordinates: FloatArray) -> bool:
        """Score the model after a step, and return whether the stage should go on."""
        self._n_steps += 1
        if self._held_out is None or self.before is None or self.after is None:
            return True
        parameters = self._objective.parameters(coordinates)
        scores = self._score(parameters, self._held_out)
        self.rounds.append((self._objective.trade_off, scores))
        if scores.log_loss < self.after.log_loss and scores.error <= self.before.error:
            self._keep(parameters)
            self.after = scores
        return self._n_steps - self._n_best < _PATIENCE

    def _keep(self, parameters: Parameters) -> None:
        """Make the model after the last step the best one."""
        self.best, self.trade_off, self._n_best = parameters, self._objective.trade_off, self._n_steps
        self.stages = [*self._earlier, (self.trade_off, self._n_steps)]

    def _score(self, parameters: Parameters, held_out: Block) -> Scores:
        objective, structure = self._objective, self._objective.around.structure
        outside = objective.frame.leave(parameters.batch(), structure).take(0)
        logs = class_log_likelihood(held_out.X, outside, structure.name, self._n_jobs)
        return score(logs + safe_log(objective.class_prior), held_out)


def climb(
    objective: Objective, n_steps: int, pool: Workers, goes_on: Callable[[FloatArray], bool]
) -> FloatArray:
    """Take up to `n_steps` steps of L-BFGS from zero, each if `goes_on` after the last; return where it ends.

    L-BFGS goes on below the variance floor, while models with raised covariances are scored: a restart from
    the floor would lose the curvature, at every step where values are coarse.
    """

    def negative(coordinates: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.evaluate(coordinates, pool)
        return -value, -gradient

    def after_step(coordinates: FloatArray) -> None:
        if not goes_on(coordinates) or time_is_up():
            raise StopIteration

    start, options = np.zeros(objective.around.size), {"maxiter": n_steps}
    outcome = minimize(negative, start, jac=True, method="L-BFGS-B", callback=after_step, options=options)
    coordinates: FloatArray = outcome.x
    return coordinates
