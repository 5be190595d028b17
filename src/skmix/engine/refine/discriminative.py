"""Discriminative training of a fitted model: optimisation of the hybrid objective with early stopping."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, minimize

from ..compute.threads import Workers, workers
from ..covariances import Structure, structure_of
from ..em import regulariser_of
from ..model import FloatArray, Options, Parameters, Regulariser
from ..rules.variational import default_rows
from ..sources.summary import Frame, measure
from .objective import Criterion, Labelled, Objective
from .temperature import least_log_loss

# Adam's initial step size, in units of the kernels, and its decay rates.
_STEP = 3e-3
_MOMENTUM, _SQUARES, _SMALL = 0.9, 0.999, 1e-8
# The model of a round is a running average over steps.
_AVERAGED = 0.998
# Temperature of the class probabilities during training, so that rows with a small margin still count. On
# held-out rows of MNIST, 3 was better than the models' own 1.3 and 1.6 in both cases tried.
_TEMPERATURE = 3.0
# Patience of early stopping, in rounds of mini-batches or steps of L-BFGS.
_PATIENCE, _PATIENCE_OF_STEPS = 5, 20
# A covariance is below its floor if raising it changes its log-determinant by more than this.
_RAISED = 1e-9


@dataclass(frozen=True)
class TuningOptions:
    """How to train."""

    fitted: Options  # of the fit: its structure, floor and priors, and the number of threads
    # Values of λ, one stage each; a stage continues from the best model so far, or from the last one if no
    # rows are held out.
    trade_offs: tuple[float, ...]
    max_iter: int  # largest number of rounds of a stage: passes over mini-batches, or steps of L-BFGS
    batch_size: int | None  # rows of a mini-batch; None means all rows, with L-BFGS


@dataclass(frozen=True)
class Scores:
    """Scores of a model on held-out rows, per row or unit of weight."""

    log_loss: float  # at the best temperature
    error: float  # share of misclassified rows
    log_likelihood: float  # mean of log p(x, c)
    temperature: float  # at least 1


def score(log_joints: FloatArray, rows: Labelled) -> Scores:
    """Return the scores of log-joints (N, L) of labelled rows."""
    temperature, log_loss = least_log_loss(log_joints, rows.codes, rows.weights)
    own = log_joints[np.arange(len(rows.codes)), rows.codes]
    return Scores(
        log_loss,
        float(np.average(log_joints.argmax(axis=1) != rows.codes, weights=rows.weights)),
        float(np.average(own, weights=rows.weights)),
        temperature,
    )


@dataclass(frozen=True)
class Tuned:
    """The result of discriminative training."""

    # The best model on the held-out rows, in the data's coordinates, or the given one if none was better.
    # Without held-out rows, the last one.
    parameters: Parameters
    trade_off: float | None  # λ of that model; None for the given model
    before: Scores | None  # of the given model, on the held-out rows
    after: Scores | None  # of the best model
    rounds: list[tuple[float, Scores]]  # λ and scores of every round


class Judge:
    """Selects the model of least log-loss on held-out rows, with no more errors than the given model.

    The objective is around the given model; the variance floor (M,) is in the frame. Without held-out rows
    the last model counts as the best.
    """

    def __init__(
        self, objective: Objective, validation: Labelled | None, floor: FloatArray, pool: Workers
    ) -> None:
        self._validation, self._floor, self._pool = validation, floor, pool
        self.best = objective.parameters
        self.before: Scores | None = None
        if validation is not None:
            given = objective.point(np.zeros(objective.size))
            self.before = score(objective.log_joints(given, validation, pool), validation)
        self.after = self.before
        self.trade_off: float | None = None
        self.rounds: list[tuple[float, Scores]] = []
        self.n_seen = self.since_better = 0

    def see(self, objective: Objective, numbers: FloatArray, trade_off: float) -> Parameters | None:
        """Score a model; return it with raised covariances if any was below the floor, else None."""
        point = objective.point(numbers)
        parameters = objective.parameters_at(point)
        covariances, factor = objective.structure.raised(parameters.covariances[None], self._floor)
        sunk = bool((factor.log_determinant - point.factor.log_determinant > _RAISED).any())
        if sunk:
            parameters = replace(parameters, covariances=covariances[0])
            point = replace(point, factor=factor)
        self.n_seen += 1
        scores, better = None, True
        if self._validation is not None and self.before is not None and self.after is not None:
            scores = score(objective.log_joints(point, self._validation, self._pool), self._validation)
            self.rounds.append((trade_off, scores))
            better = scores.log_loss < self.after.log_loss and scores.error <= self.before.error
        if better:
            self.best, self.after, self.trade_off, self.since_better = parameters, scores, trade_off, 0
        else:
            self.since_better += 1
        return parameters if sunk else None


def tune(
    parameters: Parameters,
    class_prior: FloatArray,
    training: Labelled,
    validation: Labelled | None,
    options: TuningOptions,
    random_state: np.random.RandomState,
) -> Tuned:
    """Train a model, in the data's coordinates, discriminatively; the class priors (L,) are not trained.

    Held-out rows serve early stopping and model selection. Without them all rounds are run, and the last
    model is returned. The source of randomness is for mini-batches.
    """
    structure = structure_of(options.fitted.covariance_type)
    frame = measure(training.X, structure, row_weights=training.weights)
    if validation is not None:
        frame = replace(frame, bound=np.maximum(frame.bound, frame.reaching(validation.X).bound))
    inside = frame.enter(parameters.batch(), structure).take(0)
    regulariser = _priors_of(options.fitted, frame, structure, len(inside.means))
    with workers(options.fitted.n_jobs) as pool:
        given = Objective(inside, structure, frame, class_prior, regulariser, training.size)
        judge = Judge(given, validation, regulariser.floor, pool)
        for trade_off in options.trade_offs:
            judge.since_better = 0
            objective, criterion = replace(given, parameters=judge.best), Criterion(trade_off, _TEMPERATURE)
            if options.batch_size is None:
                lbfgs(objective, training, criterion, options.max_iter, judge, pool)
            else:
                size = options.batch_size
                adam(objective, training, criterion, options.max_iter, judge, pool, size, random_state)
    best = parameters
    if judge.trade_off is not None:
        best = frame.leave(judge.best.batch(), structure).take(0)
    return Tuned(best, judge.trade_off, judge.before, judge.after, judge.rounds)


def _priors_of(fitted: Options, frame: Frame, structure: Structure, n_kernels: int) -> Regulariser:
    """Return the floor and priors of the fit, for an objective that is maximised.

    A variational fit always has a prior on covariances. Its concentration may be below one, which is ignored:
    under maximisation it would drive weights to zero.
    """
    found = regulariser_of(fitted, frame, structure, n_kernels)
    if fitted.inference != "variational":
        return found
    rows = fitted.covariance_prior or default_rows(structure, len(frame.scale))
    return replace(found, prior_rows=rows, weight_prior=max(found.weight_prior, 1.0))


def lbfgs(
    objective: Objective, rows: Labelled, criterion: Criterion, max_iter: int, judge: Judge, pool: Workers
) -> None:
    """Take up to `max_iter` steps of L-BFGS over all rows."""
    sunk: Parameters | None = None

    def negative(numbers: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.evaluate(numbers, rows, criterion, pool)
        return -value, -gradient

    def look(numbers: FloatArray) -> None:
        nonlocal sunk
        sunk = judge.see(objective, numbers, criterion.trade_off)
        if sunk is not None or judge.since_better >= _PATIENCE_OF_STEPS:
            raise StopIteration

    last = judge.n_seen + max_iter
    while judge.n_seen < last and judge.since_better < _PATIENCE_OF_STEPS:
        sunk, limits = None, objective.limits()
        minimize(
            negative,
            np.zeros(objective.size),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(-limits, limits),
            callback=look,
            options={"maxiter": last - judge.n_seen},
        )
        if sunk is None:
            return
        # A covariance fell below the floor: continue from the floor.
        objective = replace(objective, parameters=sunk)


def adam(
    objective: Objective,
    rows: Labelled,
    criterion: Criterion,
    max_iter: int,
    judge: Judge,
    pool: Workers,
    batch_size: int,
    random_state: np.random.RandomState,
) -> None:
    """Make up to `max_iter` passes over mini-batches with Adam, its step size decaying linearly to zero."""
    n_rows = len(rows.codes)
    n_batches = -(-n_rows // batch_size)
    n_steps = max_iter * n_batches
    numbers, average, mean, square = np.zeros((4, objective.size))
    for step in range(1, n_steps + 1):
        batch = (step - 1) % n_batches
        if batch == 0:
            order = random_state.permutation(n_rows)
        _, gradient = objective.evaluate(numbers, rows.take(order[batch::n_batches]), criterion, pool)
        mean += (1.0 - _MOMENTUM) * (gradient - mean)
        square += (1.0 - _SQUARES) * (gradient**2 - square)
        length = _STEP * (1.0 - (step - 1) / n_steps) / (1.0 - _MOMENTUM**step)
        numbers += length * mean / (np.sqrt(square / (1.0 - _SQUARES**step)) + _SMALL)
        # At first the average is over all steps so far.
        average += (numbers - average) * max(1.0 - _AVERAGED, 1.0 / step)
        if batch < n_batches - 1:
            continue
        raised = judge.see(objective, average, criterion.trade_off)
        if judge.since_better >= _PATIENCE:
            return
        if raised is not None:
            objective = replace(objective, parameters=raised)
            numbers[:] = average[:] = 0.0
