"""The EM loop for a batch of starts: init, step, terminate, over a row source and an update rule.

Starts are slices of the same arrays, so rows are read once for all of them and small operations run over the
whole batch. A start that has converged or failed leaves the batch; a degenerate start does not raise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .numbers import TINY, Array, namespace, occurs, pick, sent_once, to_numpy
from .problem import RowSource, open_source
from .records import (
    BoolArray,
    Factor,
    FloatArray,
    Frame,
    IntArray,
    Options,
    Parameters,
    Regulariser,
    Result,
    Setting,
    Statistics,
    Status,
)
from .rows.base import Centres
from .rules import UpdateRule
from .rules.likelihood import Likelihood, for_pass, with_frozen
from .rules.variational import Variational, default_rows, prior_of
from .structures import Structure, structure_of
from .structures.factors import rescaled
from .threads import workers

# Relative rounding error of the objective, by the precision of products over rows.
_ROUNDING = {"float64": 1e-9, "float32": 1e-4, "tf32": 1e-2}
# Rounding error of a log-density, per unit of variance inflation, by the same precision.
_EPSILON = {"float64": 16.0 * 2.0**-52, "float32": 16.0 * 2.0**-23, "tf32": 16.0 * 2.0**-10}

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
    source: Any,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    callback: Callable[[Run], None] | None = None,
    previous: float | None = None,
) -> Result:
    """Run EM or variational Bayes from R starts, in the data's coordinates, and return the outcome of each.

    The source may be rows that `open_source` opens. With unlabelled rows the starts have a `class_prior`;
    log-likelihoods of labelled rows are then joint with the label, and those of unlabelled rows are the last
    column. The frame is that of the rows, unless it is given. The callback is called after each pass with the
    `Run`. `previous` is the log-likelihood from which a fit of one class continues: the stopping rule
    compares the first pass with it.
    """
    with Passes.over(open_source(source), starts, options, frame) as passes:
        run = Run(passes, options, previous)
        while run.going:
            run.step()
            if callback is not None:
                callback(run)
        result = run.result()
    passes.source.clear_cache()
    return result


@dataclass(frozen=True)
class Passes:
    """Passes over the rows of a source, in a frame, with an update rule."""

    source: RowSource
    setting: Setting
    rule: UpdateRule
    volume: FloatArray  # (C,): log-likelihood of each class in the frame less that in the data's coordinates
    starts: Parameters  # in the data's coordinates

    @classmethod
    @contextmanager
    def over(
        cls,
        source: RowSource,
        starts: Parameters,
        options: Options,
        frame: Frame | None = None,
        *,
        on_host: bool = False,
    ) -> Iterator[Passes]:
        """Yield the passes of a fit from R starts, in the data's coordinates.

        The frame is that of the rows unless it is given. The update rule has its arrays where passes run, or
        on the host.
        """
        structure = structure_of(options.covariance_type)
        frame = source.summary.frame(structure) if frame is None else frame
        n_columns = starts.weights.shape[-1] + (starts.class_prior is not None)
        volume = source.summary.by_class(source.summary.observed, n_columns) @ np.log(frame.scale)
        with workers(options.n_jobs) as pool:
            setting = Setting(frame, structure, pool, options.precision)
            place = np.asarray if on_host else source.to_device
            rule = rule_of(options, setting, starts.means.shape[1], place)
            yield cls(source, setting, rule, volume, starts)

    def enter(self, starts: Parameters) -> tuple[Parameters, Factor]:
        """Return starts in the frame, raised to the variance floor, and their factor."""
        return self.rule.enter(self.setting.frame.enter(starts, self.setting.structure))

    def leave(self, parameters: Parameters) -> Parameters:
        """Return parameters of all starts in the frame, on the host, in the data's coordinates."""
        outside = self.setting.frame.leave(parameters.map(to_numpy), self.setting.structure)
        # The change of coordinates has rounded frozen parameters.
        return with_frozen(self.rule.freeze, outside, self.starts)

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        *,
        centres: Centres | None = None,
        with_moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; unlabelled rows are the last column of the statistics.

        Returns the statistics and the origins (R, K, M) of their moments.
        """
        mixed, summary = for_pass(parameters), self.source.summary
        setting = self.setting if with_moments else replace(self.setting, with_moments=False)
        statistics, origins = self.source.expect(mixed, factor, setting, centres)
        if parameters.class_prior is not None:
            # Joint with the label, so that the sum over all rows is the likelihood that EM maximises.
            prior, xp = parameters.class_prior, namespace(parameters.class_prior)
            log_prior = xp.log(xp.where(prior > TINY, prior, TINY))
            log_prior = xp.concat([log_prior, xp.zeros_like(log_prior[:, :1])], axis=1)
            sizes = summary.by_class(summary.sizes, mixed.weights.shape[-1])
            joint = statistics.log_likelihood + sent_once(sizes, log_prior) * log_prior
            statistics = replace(statistics, log_likelihood=joint)
        return statistics, origins

    def step(self, parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        """Do one pass.

        Returns the next parameters, their factor, and the parts (R, C + 1) of the objective of those that
        entered: the log-likelihood of each class, and the log-prior.
        """
        rule = self.rule
        statistics, origins = self.expect(parameters, factor)
        following, next_factor, inaccurate = rule.improve(statistics, origins, parameters, factor)
        if rule.freeze != "kernels" and occurs(inaccurate):
            again = np.flatnonzero(to_numpy(inaccurate).any(axis=1))
            # The new means are accurate; the covariances need moments about them.
            centres = pick(inaccurate, again), pick(following.means, again)
            entered, own = parameters.take(again), factor.take(again)
            closer, origins = self.expect(entered, own, centres=centres)
            better, better_factor, _ = rule.improve(closer, origins, entered, own)
            better = replace(better, weights=pick(following.weights, again))
            following = following.put(again, better)
            next_factor = next_factor.put(again, better_factor)
        parts = [statistics.log_likelihood, rule.log_prior(parameters, factor)[:, None]]
        return following, next_factor, namespace(parts[0]).concat(parts, axis=1)

    def fell(
        self, before: FloatArray, after: FloatArray, parameters: Parameters, factor: Factor
    ) -> BoolArray:
        """Return the starts (R,) whose objective fell in a pass by more than rounding explains.

        `parameters` and their `factor` are those after the pass. An exact pass never lowers the objective.
        """
        fell: BoolArray = before > after
        if fell.any():
            n_numbers, precision = self.source.summary.total * self.source.n_features, self.setting.precision
            allowed = _ROUNDING[precision] * (n_numbers + np.abs(after))
            # Covariances that are nearly singular lose digits in proportion to their variance inflation.
            inside, own = parameters.map(to_numpy), factor.map(to_numpy)
            inflation = self.setting.structure.inflation(inside.covariances, own)
            with np.errstate(invalid="ignore"):
                fell &= before - after > allowed + _EPSILON[precision] * n_numbers * inflation
        return fell


def rule_of(
    options: Options, setting: Setting, n_kernels: int, place: Callable[[Array], Array]
) -> UpdateRule:
    """Return the update rule for the options, with its arrays in that place."""
    structure = setting.structure
    regulariser = regulariser_of(options, setting.frame, structure, n_kernels)
    if options.inference == "em":
        regulariser = regulariser.map(place)
        return Likelihood(
            structure, regulariser, options.freeze, options.learn_degrees, precision=setting.precision
        )
    prior = prior_of(options, regulariser, structure, n_kernels)
    rule = Variational.of(structure, prior, regulariser.floor, n_kernels, place)
    return replace(rule, precision=setting.precision)


def regulariser_of(options: Options, frame: Frame, structure: Structure, n_kernels: int) -> Regulariser:
    """Express the options' floor, ridge and priors in the coordinates of the frame."""
    n_features, rows = len(frame.scale), options.covariance_prior
    if rows is None and options.inference == "variational":
        rows = default_rows(structure, n_features)
    prior = frame.variance / n_kernels ** (2.0 / n_features)
    if options.covariance_prior_scale is not None:
        prior = rescaled(options.covariance_prior_scale, 1.0 / frame.scale)
    floor = options.floor * frame.variance
    if options.resolution is not None:
        floor = np.maximum(floor, options.resolution / frame.scale**2)
    weight_prior = options.weight_prior
    return Regulariser(
        floor=floor,
        ridge=options.ridge / frame.scale**2 if options.ridge else None,
        prior_rows=rows or 0.0,
        prior_covariance=structure.common(prior),
        weight_prior=1.0 if isinstance(weight_prior, str) else weight_prior or 1.0,
        hierarchical=weight_prior if isinstance(weight_prior, str) else None,
    )


def say_fall(before: float, after: float) -> str:
    """Return the error of a fit whose objective fell."""
    return (
        f"The objective fell from {before:.10g} to {after:.10g} in one pass, which an exact pass never does. "
        "This is a defect of skmix, or features have so different scales that digits are lost: please report "
        "it, with the settings."
    )


class Run:
    """A running fit of R starts, of which the active ones have not ended.

    After a pass, `n_passes` is the number of passes made, and `active` (A,) are the starts that took part in
    the last one.
    """

    def __init__(self, passes: Passes, options: Options, previous: float | None = None) -> None:
        source, rule, setting = passes.source, passes.rule, passes.setting
        self._passes, self._rule, self._options = passes, rule, options
        n_starts, self._n_columns = len(passes.starts.means), len(passes.volume)
        self._step = source.wrap_step(passes.step)
        self._status = np.full(n_starts, Status.RUNNING, dtype=np.int64)
        self._n_iter = np.zeros(n_starts, dtype=np.int64)
        self._path: list[list[FloatArray]] = [[] for _ in range(n_starts)]
        self._bounds: list[list[float]] = [[] for _ in range(n_starts)]
        # Of the last pass, minus infinity before the first; and of falls, as in `Result`.
        self._objective, self._fell = np.full(n_starts, -np.inf), np.full((n_starts, 2), np.nan)
        self.n_passes = 0
        self.active = np.arange(n_starts)
        self._n_rows = source.summary.total
        # (R, C) or (R, 1): log-likelihoods, or the evidence bound, of the last pass, for the stopping rule;
        # and classes that have converged by the paper's stopping rule.
        watched = (n_starts, 1 if rule.bounded else self._n_columns)
        self._previous, self._latched = np.full(watched, np.inf), np.zeros(watched, dtype=bool)
        if previous is not None:
            self._previous[:] = previous + passes.volume.sum()
        entered = setting.frame.enter(passes.starts, setting.structure)
        self._current, self._factor = rule.enter(entered.map(source.to_device))
        # Where each start has ended, on the host; active ones are not up to date.
        self._ended = self._current.map(to_numpy)
        self._status[~to_numpy(self._factor.usable)] = Status.FAILED

    @property
    def going(self) -> bool:
        """Whether any start still runs, `max_iter` is not reached, and time is not up after a pass."""
        running = bool(np.any(self._status[self.active] == Status.RUNNING))
        return running and self.n_passes < self._options.max_iter and not (self.n_passes and time_is_up())

    def step(self) -> None:
        """Make one pass."""
        self._drop_ended()
        self.n_passes += 1
        active, current, factor = self.active, self._current, self._factor
        following, next_factor, of_pass = self._step(current, factor)
        parts, next_factor = to_numpy(of_pass), replace(next_factor, usable=to_numpy(next_factor.usable))
        log_likelihood, objective = parts[:, :-1], parts.sum(axis=1)
        # A start that degenerates keeps the parameters that entered the pass.
        survived = next_factor.usable & np.isfinite(log_likelihood).all(axis=1)
        watched = log_likelihood
        if self._rule.bounded:
            objective = self._rule.objective(log_likelihood, current, factor)
            watched = objective[:, None]
        survived &= ~self._falling(active, objective, current, factor)
        if not survived.all():
            following = current.put(survived, following.take(survived))
        done, self._latched[active] = is_done(
            self._options, self._n_rows, watched - self._previous[active], self._latched[active]
        )
        self._n_iter[active], self._previous[active], self._objective[active] = (
            self.n_passes,
            watched,
            objective,
        )
        self._status[active[~survived]] = Status.FAILED
        self._status[active[survived & done]] = Status.CONVERGED
        for r, values in zip(active, log_likelihood, strict=True):
            self._path[r].append(values)
        if self._rule.bounded:
            for r in np.flatnonzero(np.isfinite(objective)):
                self._bounds[active[r]].append(float(objective[r]))
        self._current, self._factor = following, next_factor

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
        if going.all():
            return
        self._ended = self._ended.put(self.active[~going], self._current.take(~going))
        self.active = self.active[going]
        self._current, self._factor = self._current.take(going), self._factor.take(going)

    def _all(self) -> Parameters:
        """Return the parameters of all R starts, on the host."""
        return self._ended.put(self.active, self._current)

    def totals(self) -> FloatArray:
        """Return the last log-likelihood (R,) of each start, −inf where it failed."""
        last = np.array([path[-1].sum() if path else -np.inf for path in self._path])
        failed = (self._status == Status.FAILED) | np.isnan(last)
        return np.where(failed, -np.inf, last - self._passes.volume.sum())

    def so_far(self) -> Result:
        """Return the parameters after the last pass, in the data's coordinates.

        Log-likelihoods and objectives are of the parameters that entered the pass, so that no rows are read.
        """
        paths = self._paths()
        none = np.full(self._n_columns, -np.inf)
        log_likelihood = np.array([path[-1] if len(path) else none for path in paths])
        status = np.where(self._status == Status.RUNNING, Status.STOPPED, self._status)
        last = self._all().map(self._passes.source.to_device)
        return self._result(last, status, log_likelihood, self._objective, self._bounds)

    def result(self) -> Result:
        """Return how all starts ended, in the data's coordinates."""
        last, factor, rule = self._current, self._factor, self._rule
        if len(self.active) < len(self._status) or np.any(self._status == Status.FAILED):
            last = self._all().map(self._passes.source.to_device)
            factor = self._passes.setting.structure.factor(last.covariances, last.means.shape[-1])
        log_likelihood = self._log_likelihood(last, factor)
        objective = rule.objective(log_likelihood, last, factor)
        # The outcome of the last pass has not been watched yet.
        ended = np.flatnonzero(self._status != Status.FAILED)
        fell = self._falling(ended, objective[ended], last.take(ended), factor.take(ended))
        self._status[ended[fell]] = Status.FAILED
        status = np.where(self._status == Status.RUNNING, Status.STOPPED, self._status)
        bounds = [[*values, value] for values, value in zip(self._bounds, objective, strict=True)]
        if rule.bounded:
            log_likelihood = self._log_likelihood(rule.finish(last), factor)
        return self._result(last, status, log_likelihood, objective, bounds)

    def _result(
        self,
        last: Parameters,
        status: IntArray,
        log_likelihood: FloatArray,
        objective: FloatArray,
        bounds: list[list[float]],
    ) -> Result:
        """Return a result in the data's coordinates; all arguments are in the frame."""
        rule, volume = self._rule, self._passes.volume
        point = rule.finish(last)
        result = Result(
            self._passes.leave(point),
            status,
            self._n_iter.copy(),
            log_likelihood - volume,
            objective - volume.sum(),
            [path - volume for path in self._paths()],
            self._fell - volume.sum(),
        )
        if not rule.bounded:
            return result
        assert point.counts is not None
        paths = [np.array(values) - volume.sum() for values in bounds]
        return replace(result, counts=to_numpy(point.counts), bounds=paths, prior=rule.prior)

    def _paths(self) -> list[FloatArray]:
        """Return the log-likelihoods (passes, C) of each start."""
        return [np.array(path).reshape(-1, self._n_columns) for path in self._path]

    def _log_likelihood(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return the log-likelihoods (R, C) of parameters, −inf where a covariance is singular."""
        statistics, _ = self._passes.expect(parameters, factor, with_moments=False)
        found = to_numpy(statistics.log_likelihood)
        return np.where(to_numpy(factor.usable)[:, None], found, -np.inf)


def is_done(
    options: Options, n_rows: float, change: FloatArray, latched: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return which starts (R,) are done, by the change (R, C) of their log-likelihoods in a pass.

    By the paper's rule, classes that have converged latch: also return which (R, C) have so far.
    """
    if options.stopping == "per-class":
        latched = latched | (np.abs(change) < options.tol)
        return np.all(latched, axis=1), latched
    return np.abs(change.sum(axis=1)) < options.tol * n_rows, latched
