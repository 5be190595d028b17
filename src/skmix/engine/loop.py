"""EM for a batch of R starts: begin, pass, end.

Starts are slices of the same arrays, so that rows are read once for all of them and small operations run over
the whole batch. A start that has converged or failed leaves the batch; a degenerate start does not raise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import numpy as np

from .conditions import occurs
from .numbers import TINY, namespace, pick, sent_once, to_numpy
from .problem import Problem
from .records import (
    BoolArray,
    Factor,
    FloatArray,
    Frame,
    IntArray,
    Options,
    Parameters,
    Result,
    Setting,
    Statistics,
    Status,
)
from .rows.source import Centres, RowSource
from .rules import UpdateRule
from .rules.likelihood import Likelihood, for_pass
from .threads import workers

# Relative rounding error of the objective, by the precision of products over rows.
_ROUNDING = {"float64": 1e-9, "float32": 1e-4, "tf32": 1e-2}
# Rounding error of a log-density, per unit of variance inflation, by the same precision.
_EPSILON = {"float64": 16.0 * 2.0**-52, "float32": 16.0 * 2.0**-23, "tf32": 16.0 * 2.0**-10}

# Most passes that the compiled core makes at once.
_MOST_AT_ONCE = 64

# When passes end, by the clock of `time.monotonic`.
_deadline: ContextVar[float] = ContextVar("deadline", default=np.inf)


@contextmanager
def ending_at(seconds: float) -> Iterator[None]:
    """End fits in the body after the pass in which `time.monotonic` reaches that time."""
    before = _deadline.set(min(seconds, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(before)


def time_is_up() -> bool:
    """Return whether fits must end."""
    return time.monotonic() >= _deadline.get()


def fit(
    source: RowSource,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    callback: Callable[[Run], None] | None = None,
    previous: float = np.inf,
) -> Result:
    """Run EM or variational Bayes from R starts and return the outcome, both in the data's coordinates.

    `previous` is the log-likelihood from which a fit of one class continues: the stopping rule compares the
    first pass with it. See `run` for the rest.
    """
    problem = Problem.of(source, options, starts.means.shape[1], frame)
    previous += float(problem.volume(starts.weights.shape[-1]).sum())
    return problem.leave_with(run(problem, problem.enter(starts), callback, previous), starts)


def run(
    problem: Problem,
    starts: Parameters,
    callback: Callable[[Run], None] | None = None,
    previous: float = np.inf,
    *,
    is_sample: bool = False,
) -> Result:
    """Run EM or variational Bayes from R starts and return the outcome of each, both in the frame.

    With unlabelled rows the starts have a `class_prior`; log-likelihoods of labelled rows are then joint with
    the label, and the last column has the unlabelled rows. The callback is called with the `Run` after each
    pass. The stopping rule compares the first pass with the log-likelihood `previous`. On a sample of the
    rows the outcome has the log-likelihoods before the last pass, which spares another one.
    """
    n_unlabelled = problem.source.summary.n_unlabelled
    if n_unlabelled and starts.class_prior is None and starts.weights.shape[-1] > 1:
        raise ValueError(
            f"{n_unlabelled} rows have no label, and the starts have no class_prior, which says how likely "
            "each class is for such rows."
        )
    with Passes.over(problem) as passes:
        fitting = Run(passes, starts, previous)
        while fitting.going:
            # A callback sees every pass, and changes no bit of it.
            if not fitting.climb(_MOST_AT_ONCE if callback is None else 1):
                fitting.step()
            if callback is not None:
                callback(fitting)
        result = fitting.so_far() if is_sample else fitting.result()
    problem.source.clear_cache()
    return result


def can_climb(problem: Problem, starts: Parameters) -> bool:
    """Whether the compiled core may make passes of single starts, see `Run.climb`."""
    rule, source = problem.rule, problem.source
    is_plain = starts.class_prior is None and not starts.tail.weighted
    is_known = isinstance(rule, Likelihood) and rule.climbs and problem.options.stopping == "total"
    n_kernels, n_features = starts.means.shape[1:]
    return is_plain and is_known and source.climbs(n_kernels, n_features, rule.structure)


# ---------------------------------------------------------------- passes


@dataclass(frozen=True)
class Passes:
    """Passes over the rows of a problem, by a pool of threads. All parameters are in the frame."""

    problem: Problem
    rule: UpdateRule  # with its arrays where passes run, or on the host
    setting: Setting

    @classmethod
    @contextmanager
    def over(cls, problem: Problem, *, on_host: bool = False) -> Iterator[Passes]:
        """Yield the passes of a problem; `on_host` keeps the arrays of the M-step on the host."""
        with workers(problem.options.n_jobs) as pool:
            setting = Setting(problem.frame, problem.structure, pool, problem.options.precision)
            yield cls(problem, problem.rule if on_host else problem.source.send(problem.rule), setting)

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        *,
        centres: Centres | None = None,
        with_moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step: return the statistics and the origins (R, K, M) of their moments.

        Unlabelled rows are the last column of the statistics.
        """
        source, weighted = self.problem.source, for_pass(parameters)
        setting = self.setting if with_moments else replace(self.setting, with_moments=False)
        statistics, origins = source.expect(weighted, factor, setting, centres)
        if parameters.class_prior is not None:
            # Joint with the label, so that the sum over all rows is the likelihood that EM maximises.
            xp, prior = namespace(parameters.class_prior), parameters.class_prior
            log_prior = xp.log(xp.where(prior > TINY, prior, TINY))
            log_prior = xp.concat([log_prior, xp.zeros_like(log_prior[:, :1])], axis=1)
            sizes = source.summary.by_class(source.summary.sizes, weighted.weights.shape[-1])
            joint = statistics.log_likelihood + sent_once(sizes, log_prior) * log_prior
            statistics = replace(statistics, log_likelihood=joint)
        return statistics, origins

    def step(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do one pass.

        Returns the next parameters, their factor, and the parts (R, C + 1) of the objective of the parameters
        that entered: the log-likelihood of each class, and the log-prior.
        """
        rule = self.rule
        statistics, origins = self.expect(parameters, factor)
        following, next_factor, inaccurate = rule.improve(statistics, origins, parameters, factor)
        if rule.freeze != "kernels" and occurs(inaccurate):
            following, next_factor = self._closer(parameters, factor, following, next_factor, inaccurate)
        parts = [statistics.log_likelihood, rule.log_prior(parameters, factor)[:, None]]
        return following, next_factor, namespace(parts[0]).concat(parts, axis=1)

    def _closer(
        self,
        parameters: Parameters,
        factor: Factor,
        following: Parameters,
        next_factor: Factor,
        inaccurate: BoolArray,
    ) -> tuple[Parameters, Factor]:
        """Repeat a pass with moments about the new means of the kernels (R, K) whose covariances lost digits.

        The new means are accurate, whatever the origin of the moments.
        """
        starts = np.flatnonzero(to_numpy(inaccurate).any(axis=1))
        centres = pick(inaccurate, starts), pick(following.means, starts)
        entered, its_factor = parameters.take(starts), factor.take(starts)
        statistics, origins = self.expect(entered, its_factor, centres=centres)
        better, better_factor, _ = self.rule.improve(statistics, origins, entered, its_factor)
        better = replace(better, weights=pick(following.weights, starts))
        return following.put(starts, better), next_factor.put(starts, better_factor)

    def fell(
        self, before: FloatArray, after: FloatArray, parameters: Parameters, factor: Factor
    ) -> BoolArray:
        """Return the starts (R,) whose objective fell in a pass by more than rounding explains.

        The objectives (R,) are those before and after the pass, `parameters` and their `factor` those after
        it. An exact pass never lowers the objective.
        """
        fell: BoolArray = before > after
        if fell.any():
            source, precision = self.problem.source, self.setting.precision
            n_numbers = source.summary.total * source.n_features
            allowed = _ROUNDING[precision] * (n_numbers + np.abs(after))
            # Covariances that are nearly singular lose digits in proportion to their variance inflation.
            covariances, on_host = to_numpy(parameters.covariances), factor.map(to_numpy)
            inflation = self.problem.structure.inflation(covariances, on_host)
            with np.errstate(invalid="ignore"):
                fell &= before - after > allowed + _EPSILON[precision] * n_numbers * inflation
        return fell


def say_fall(before: float, after: float) -> str:
    """Return the error of a fit whose objective fell."""
    return (
        f"The objective fell from {before:.10g} to {after:.10g} in one pass, which an exact pass never does. "
        "This is a defect of skmix, or features have so different scales that digits are lost: please report "
        "it, with the settings."
    )


# ---------------------------------------------------------------- the loop


class Run:
    """A running fit of R starts, of which the active ones have not ended.

    After a pass, `n_passes` is the number of passes made, and `active` (A,) are the starts that took part in
    the last one.
    """

    def __init__(self, passes: Passes, starts: Parameters, previous: float = np.inf) -> None:
        source, rule = passes.problem.source, passes.rule
        n_starts, _, n_classes = starts.weights.shape
        n_columns = n_classes + (starts.class_prior is not None)
        n_watched = 1 if rule.bounded else n_columns
        self.n_passes, self.active = 0, np.arange(n_starts)
        self._passes, self._rule, self._options = passes, rule, passes.problem.options
        self._step = source.wrap_step(passes.step)
        self._status = np.full(n_starts, Status.RUNNING, dtype=np.int64)
        self._n_iter = np.zeros(n_starts, dtype=np.int64)
        # Log-likelihoods (R, C) and objectives (R,) at the start of each pass; NaN for starts that had ended.
        self._path: list[FloatArray] = []
        self._objectives: list[FloatArray] = []
        self._objective = np.full(n_starts, -np.inf)
        self._total = np.full(n_starts, -np.inf)  # log-likelihood in the last pass
        self._fell = np.full((n_starts, 2), np.nan)
        # Values of the stopping rule in the last pass.
        self._watched = np.full((n_starts, n_watched), previous)
        self._latched = np.zeros((n_starts, n_watched), dtype=bool)
        self._n_columns = n_columns
        # Parameters and factor of the active starts, where passes run; of the others, on the host.
        self._current, self._factor = rule.enter(source.send(starts))
        self._ended = source.fetch(self._current)
        self._status[~to_numpy(self._factor.usable)] = Status.FAILED
        # Whether `climb` may be quicker, the pass from which on, and how many are left to `step` next time.
        self._climbs = n_starts == 1 and can_climb(passes.problem, starts)
        self._climbs_from, self._left_out = 0, 1

    @property
    def going(self) -> bool:
        """Whether any start still runs, `max_iter` is not reached, and time is not up after a pass."""
        running = bool(np.any(self._status[self.active] == Status.RUNNING))
        return running and self.n_passes < self._options.max_iter and not (self.n_passes and time_is_up())

    def step(self) -> None:
        """Make one pass."""
        self._drop_ended()
        active, current, factor = self.active, self._current, self._factor
        following, next_factor, of_pass = self._step(current, factor)
        parts, next_factor = to_numpy(of_pass), replace(next_factor, usable=to_numpy(next_factor.usable))
        log_likelihood, objective = parts[:, :-1], parts.sum(axis=1)
        watched = objective[:, None] if self._rule.bounded else log_likelihood
        # A start that degenerates keeps the parameters that entered the pass.
        survived = next_factor.usable & np.isfinite(log_likelihood).all(axis=1)
        survived &= ~self._falling(active, objective, current, factor)
        if not survived.all():
            following = current.put(survived, following.take(survived))
        self.n_passes += 1
        self._n_iter[active] = self.n_passes
        self._record(self._path, log_likelihood, (len(self._status), self._n_columns))
        self._record(self._objectives, objective, (len(self._status),))
        total = self._passes.problem.source.summary.total
        change = watched - self._watched[active]
        done, self._latched[active] = is_done(self._options, total, change, self._latched[active])
        self._watched[active], self._objective[active] = watched, objective
        self._total[active] = log_likelihood.sum(axis=1)
        self._status[active[~survived]] = Status.FAILED
        self._status[active[survived & done]] = Status.CONVERGED
        self._current, self._factor = following, next_factor

    def climb(self, most: int) -> bool:
        """Make at most so many passes of one start in the compiled core; return whether there were any.

        Those that are unusual are left to `step`. As some are so again and again, twice as many passes are
        left to it each time.
        """
        problem, rule = self._passes.problem, self._rule
        if not self._climbs or not isinstance(rule, Likelihood) or self.n_passes < self._climbs_from:
            return False
        stopping = {
            "objective": float(self._objective[0]),
            "likelihood": float(self._watched.sum()),
            "is_monotone": rule.monotone,
            "least_change": self._options.tol * problem.source.summary.total,
            "most": min(self._options.max_iter - self.n_passes, most),
        }
        climbed = problem.source.climb(
            self._current, self._factor, rule.regulariser, self._passes.setting, stopping
        )
        n_passes = len(climbed.objectives)
        if n_passes < stopping["most"] and not climbed.is_done:
            self._climbs_from = self.n_passes + n_passes + self._left_out
            self._left_out *= 2
        if not n_passes:
            return False
        self.n_passes += n_passes
        self._n_iter[0] = self.n_passes
        self._path.extend(climbed.likelihoods[:, None])
        self._objectives.extend(climbed.objectives[:, None])
        self._watched[0], self._objective[0] = climbed.likelihoods[-1], climbed.objectives[-1]
        self._total[0] = climbed.likelihoods[-1].sum()
        if climbed.is_done:
            self._status[0] = Status.CONVERGED
        self._current, self._factor = climbed.parameters, climbed.factor
        return True

    def _record(self, passes: list[FloatArray], values: FloatArray, shape: tuple[int, ...]) -> None:
        """Append the values (A, …) of the active starts to those of earlier passes, as (R, …)."""
        passes.append(np.full(shape, np.nan))
        passes[-1][self.active] = values

    def _falling(
        self, index: IntArray, objective: FloatArray, parameters: Parameters, factor: Factor
    ) -> BoolArray:
        """Return which starts of that index (A,) have objectives (A,) that fell, and note by how much."""
        if not self._rule.monotone:
            return np.zeros(len(index), dtype=bool)
        before = self._objective[index]
        fell = self._passes.fell(before, objective, parameters, factor)
        if fell.any():
            self._fell[index[fell]] = np.stack([before, objective], axis=1)[fell]
        return fell

    def _drop_ended(self) -> None:
        going = self._status[self.active] == Status.RUNNING
        if not going.all():
            self._ended = self._ended.put(self.active[~going], self._current.take(~going))
            self.active = self.active[going]
            self._current, self._factor = self._current.take(going), self._factor.take(going)

    def totals(self) -> FloatArray:
        """Return the last log-likelihood (R,) of each start in the data's coordinates; −inf if it failed."""
        volume = self._passes.problem.volume(self._n_columns).sum()
        failed = (self._status == Status.FAILED) | np.isnan(self._total)
        return np.where(failed, -np.inf, self._total - volume)

    def so_far(self) -> Result:
        """Return the parameters after the last pass, in the frame, without another pass over the rows.

        Log-likelihoods and objectives are of the parameters that entered that pass.
        """
        last = self._current
        if len(self.active) < len(self._status):
            last = self._ended.put(self.active, last)
        log_likelihood = np.full((len(self._status), self._n_columns), -np.inf)
        for r, n in enumerate(self._n_iter):
            if n:
                log_likelihood[r] = self._path[n - 1][r]
        point = self._rule.finish(self._passes.problem.source.send(last))
        return self._result(point, log_likelihood, self._objective.copy())

    def result(self) -> Result:
        """Return how all starts ended, in the frame."""
        rule, last, factor = self._rule, self._current, self._factor
        if len(self.active) < len(self._status) or np.any(self._status == Status.FAILED):
            last = self._passes.problem.source.send(self._ended.put(self.active, last))
            factor = rule.structure.factor(last.covariances, last.means.shape[-1])
        log_likelihood = self._log_likelihood(last, factor)
        objective = log_likelihood.sum(axis=1) + to_numpy(rule.log_prior(last, factor))
        # The outcome of the last pass has not been watched yet.
        alive = np.flatnonzero(self._status != Status.FAILED)
        fell = self._falling(alive, objective[alive], last.take(alive), factor.take(alive))
        self._status[alive[fell]] = Status.FAILED
        point = rule.finish(last)
        if rule.bounded:
            log_likelihood = self._log_likelihood(point, factor)
        return self._result(point, log_likelihood, objective)

    def _result(self, point: Parameters, log_likelihood: FloatArray, objective: FloatArray) -> Result:
        """Return the result of all starts from point estimates, log-likelihoods (R, C), objectives (R,)."""
        rule = self._rule
        result = Result(
            parameters=self._passes.problem.source.fetch(point),
            status=np.where(self._status == Status.RUNNING, Status.STOPPED, self._status),
            n_iter=self._n_iter.copy(),
            log_likelihood=log_likelihood,
            objective=objective,
            path=self._paths(),
            fell=self._fell.copy(),
        )
        if not rule.bounded:
            return result
        assert point.counts is not None
        bounds = self._bounds(objective)
        return replace(result, counts=to_numpy(point.counts), bounds=bounds, prior=rule.prior)

    def _paths(self) -> list[FloatArray]:
        """Return the log-likelihoods (passes, C) of each start."""
        values = np.array(self._path).reshape(-1, len(self._status), self._n_columns)
        return [values[:n, r] for r, n in enumerate(self._n_iter)]

    def _bounds(self, last: FloatArray) -> list[FloatArray]:
        """Return the lower bounds of the log-evidence of each start, with those (R,) after the last pass.

        The bound of a start is infinite as long as its weights have no posterior.
        """
        values = np.array(self._objectives).reshape(-1, len(self._status))
        paths = [np.append(values[:n, r], last[r]) for r, n in enumerate(self._n_iter)]
        return [path[np.isfinite(path) | (np.arange(len(path)) == len(path) - 1)] for path in paths]

    def _log_likelihood(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return the log-likelihoods (R, C) of parameters, −inf where a covariance is singular."""
        statistics, _ = self._passes.expect(parameters, factor, with_moments=False)
        values = to_numpy(statistics.log_likelihood)
        return np.where(to_numpy(factor.usable)[:, None], values, -np.inf)


def is_done(
    options: Options, n_rows: float, change: FloatArray, latched: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return which starts (R,) are done, by the change (R, C) of their log-likelihoods in a pass.

    By the paper's rule, classes that have converged latch: the second array says which (R, C) have so far.
    """
    if options.stopping == "per-class":
        latched = latched | (np.abs(change) < options.tol)
        return np.all(latched, axis=1), latched
    return np.abs(change.sum(axis=1)) < options.tol * n_rows, latched
