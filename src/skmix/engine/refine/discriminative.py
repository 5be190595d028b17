"""Tuning a fitted model to tell classes apart: optimisers of the hybrid objective, judged by other rows."""

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
from .local import Place, Surroundings
from .objective import Criterion, Labelled, Objective
from .temperature import least_log_loss

# Adam's step, in the units of the kernels, and how it averages gradients and their squares.
_STEP = 3e-3
_MOMENTUM, _SQUARES, _SMALL = 0.9, 0.999, 1e-8
# Models are averages of those that the steps pass through, which wander about a better one.
_AVERAGED = 0.998
# Probabilities are softened by this temperature while tuning: rows that are told apart, but not by much, keep
# their say. On held-out rows of MNIST, 3 was better than the models' own 1.3 and 1.6 in the two cases tried.
_TEMPERATURE = 3.0
# A stage ends when the held-out rows have found nothing better for this many rounds of mini-batches, or steps
# of L-BFGS.
_PATIENCE, _PATIENCE_OF_STEPS = 5, 20
# A covariance is at its floor when raising it to that changes its determinant by this much.
_RAISED = 1e-9


@dataclass(frozen=True)
class TuningOptions:
    """How to tune.

    Attributes
    ----------
    fitted : Options
        How the model was fitted: its structure, floor and priors, and the number of threads.
    trade_offs : tuple of float
        Values of λ, one after the other; each goes on from the best model so far, or the last one where no
        rows are held out.
    max_iter : int
        Largest number of rounds for each of them: passes over mini-batches, or steps of L-BFGS.
    batch_size : int or None
        Rows of a mini-batch; None takes all of them, and L-BFGS.
    """

    fitted: Options
    trade_offs: tuple[float, ...]
    max_iter: int
    batch_size: int | None


@dataclass(frozen=True)
class Scores:
    """How a model does on held-out rows, per row or unit of their weight.

    Attributes
    ----------
    log_loss : float
        Mean of −log s(c), at the temperature that makes it least.
    error : float
        Share of rows whose class is not the most probable.
    log_likelihood : float
        Mean of log p(x, c).
    temperature : float
        That temperature, at least 1: no surer than the densities are.
    """

    log_loss: float
    error: float
    log_likelihood: float
    temperature: float


def score(log_joints: FloatArray, rows: Labelled) -> Scores:
    """Return how log-joints (N, L) of labelled rows do."""
    temperature, log_loss = least_log_loss(log_joints, rows.codes, rows.weights)
    own = log_joints[np.arange(len(rows.codes)), rows.codes]
    return Scores(
        log_loss,
        float(np.average(log_joints.argmax(axis=1) != rows.codes, weights=rows.weights)),
        float(np.average(own, weights=rows.weights)),
        temperature,
    )


@dataclass(frozen=True)
class Round:
    """What the held-out rows said of a model on the way.

    Attributes
    ----------
    trade_off : float
        λ of the objective.
    scores : Scores
        Of the held-out rows.
    """

    trade_off: float
    scores: Scores


@dataclass(frozen=True)
class Tuned:
    """The outcome.

    Attributes
    ----------
    parameters : Parameters
        The best model by the held-out rows, in the data's coordinates; the given one where none was better.
        Without such rows, the last one.
    trade_off : float or None
        λ with which it was found; None for the given model.
    before, after : Scores or None
        Of the given and of the best model, on the held-out rows.
    rounds : list of Round
        All models that held-out rows looked at.
    """

    parameters: Parameters
    trade_off: float | None
    before: Scores | None
    after: Scores | None
    rounds: list[Round]


class Judge:
    """Keeps the best model by held-out rows: the lowest log-loss among those with no more errors than given.

    Parameters
    ----------
    objective : Objective
        Around the given model.
    validation : Labelled or None
        The held-out rows. Without any, the last model is taken to be the best.
    floor : ndarray of shape (M,)
        Floor of the covariances, in the frame.
    pool : Workers
        Threads.
    """

    def __init__(
        self, objective: Objective, validation: Labelled | None, floor: FloatArray, pool: Workers
    ) -> None:
        self._validation, self._floor, self._pool = validation, floor, pool
        self.best = objective.surroundings.parameters
        self.before: Scores | None = None
        if validation is not None:
            place = objective.surroundings.place(np.zeros(objective.surroundings.size))
            self.before = score(objective.log_joints(place, validation, pool), validation)
        self.after = self.before
        self.trade_off: float | None = None
        self.rounds: list[Round] = []
        self.n_seen = self.since_better = 0

    def see(self, objective: Objective, numbers: FloatArray, trade_off: float) -> Parameters | None:
        """Look at a model; return it with raised covariances when they had sunk below the floor."""
        around = objective.surroundings
        place = around.place(numbers)
        parameters = around.parameters_at(place)
        covariances, factor = around.structure.raised(parameters.covariances[None], self._floor)
        sunk = bool((factor.log_determinant - place.factor.log_determinant > _RAISED).any())
        if sunk:
            parameters = replace(parameters, covariances=covariances[0])
            place = Place(place.weights, place.means, place.stretch, factor)
        self.n_seen += 1
        scores, better = None, True
        if self._validation is not None and self.before is not None and self.after is not None:
            scores = score(objective.log_joints(place, self._validation, self._pool), self._validation)
            self.rounds.append(Round(trade_off, scores))
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
    """Tune a fitted model to tell classes apart.

    Parameters
    ----------
    parameters : Parameters
        One model, in the data's coordinates.
    class_prior : ndarray of shape (L,)
        Class priors, which stay as they are.
    training : Labelled
        Rows to tune to.
    validation : Labelled or None
        Held-out rows that say when to stop and which model is best. None takes all rounds, and the last.
    options : TuningOptions
        How to tune.
    random_state : RandomState
        Source of randomness of the mini-batches.
    """
    structure = structure_of(options.fitted.covariance_type)
    frame = measure(training.X, structure, row_weights=training.weights)
    if validation is not None:
        frame = replace(frame, bound=np.maximum(frame.bound, frame.reaching(validation.X).bound))
    inside = frame.enter(parameters.batch(), structure).take(0)
    regulariser = _priors_of(options.fitted, frame, structure, len(inside.means))
    with workers(options.fitted.n_jobs) as pool:
        around = Surroundings(inside, structure)
        given = Objective(around, frame, class_prior, regulariser, training.size)
        judge = Judge(given, validation, regulariser.floor, pool)
        for trade_off in options.trade_offs:
            judge.since_better = 0
            criterion = Criterion(trade_off, _TEMPERATURE)
            stage = _Stage(judge, given, training, criterion, options.max_iter, pool)
            if options.batch_size is None:
                stage.climb()
            else:
                stage.wander(options.batch_size, random_state)
    best = parameters
    if judge.trade_off is not None:
        best = frame.leave(judge.best.batch(), structure).take(0)
    return Tuned(best, judge.trade_off, judge.before, judge.after, judge.rounds)


def _priors_of(fitted: Options, frame: Frame, structure: Structure, n_kernels: int) -> Regulariser:
    """Return floor and priors of the fit, for an objective that is climbed.

    A variational fit always has a prior on covariances. Concentrations below one, which only such a fit
    takes, have no say: nothing would keep weights from falling to zero.
    """
    found = regulariser_of(fitted, frame, structure, n_kernels)
    if fitted.inference != "variational":
        return found
    rows = fitted.covariance_prior or default_rows(structure, len(frame.scale))
    return replace(found, prior_rows=rows, weight_prior=max(found.weight_prior, 1.0))


@dataclass
class _Stage:
    """Optimising with one λ, from the best model so far."""

    judge: Judge
    given: Objective
    training: Labelled
    criterion: Criterion
    max_iter: int
    pool: Workers

    def _around(self, parameters: Parameters) -> Objective:
        return replace(self.given, surroundings=Surroundings(parameters, self.given.surroundings.structure))

    def climb(self) -> None:
        """Take steps of L-BFGS over all rows."""
        objective, left = self._around(self.judge.best), self.max_iter
        while left > 0 and self.judge.since_better < _PATIENCE_OF_STEPS:
            sunk: list[Parameters] = []
            before = self.judge.n_seen

            def negative(numbers: FloatArray) -> tuple[float, FloatArray]:
                value = objective.evaluate(numbers, self.training, self.criterion, self.pool)  # noqa: B023
                return -value.objective, -value.gradient

            def look(numbers: FloatArray) -> None:
                raised = self.judge.see(objective, numbers, self.criterion.trade_off)  # noqa: B023
                if raised is not None:
                    sunk.append(raised)  # noqa: B023
                if raised is not None or self.judge.since_better >= _PATIENCE_OF_STEPS:
                    raise StopIteration

            start = np.zeros(objective.surroundings.size)
            limits = objective.surroundings.limits()
            minimize(
                negative,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(-limits, limits),
                callback=look,
                options={"maxiter": left},
            )
            left -= self.judge.n_seen - before
            if not sunk:
                return
            # Where a covariance sank below the floor, the climb goes on from the floor.
            objective = self._around(sunk[0])

    def wander(self, batch_size: int, random_state: np.random.RandomState) -> None:
        """Pass over mini-batches, with Adam's steps, which shrink to nothing over the stage."""
        objective, n_rows = self._around(self.judge.best), len(self.training.codes)
        n_batches = -(-n_rows // batch_size)
        numbers, average, mean, square = np.zeros((4, objective.surroundings.size))
        for number in range(self.max_iter):
            order = random_state.permutation(n_rows)
            for b in range(n_batches):
                batch = self.training.take(order[b::n_batches])
                gradient = objective.evaluate(numbers, batch, self.criterion, self.pool).gradient
                taken = number * n_batches + b
                step = _STEP * (1.0 - taken / (self.max_iter * n_batches))
                mean += (1.0 - _MOMENTUM) * (gradient - mean)
                square += (1.0 - _SQUARES) * (gradient**2 - square)
                root = np.sqrt(square / (1.0 - _SQUARES ** (taken + 1)))
                numbers += step * (mean / (1.0 - _MOMENTUM ** (taken + 1))) / (root + _SMALL)
                # At first the average is over all models so far.
                average += (numbers - average) * max(1.0 - _AVERAGED, 1.0 / (taken + 1))
            raised = self.judge.see(objective, average, self.criterion.trade_off)
            if self.judge.since_better >= _PATIENCE:
                return
            if raised is not None:
                objective = self._around(raised)
                numbers[:] = average[:] = 0.0
