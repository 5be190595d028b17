"""Passes until done, for a whole batch of starts at once.

Every start is a slice of the same arrays: rows are read and expanded once for a group of starts, and what is
small is done for all at once. A start that has converged or failed leaves the batch; nothing raises because
one start went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .backends.threads import Workers, workers
from .frame import Frame, measure
from .kernels import Structure, structure_of
from .rows import Rows
from .steps import Prepared, collect, log_prior, maximise, prepare
from .types import (
    BoolArray,
    Factor,
    FloatArray,
    IntArray,
    Options,
    Parameters,
    Regulariser,
    Result,
    Statistics,
    Status,
)

Progress = Callable[[int, IntArray, FloatArray], None]


def fit(
    X: np.ndarray,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    previous: FloatArray | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run EM from R starts and return how each one ended.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Finite rows, float64 or float32.
    classes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1, every class with at least one row; None for one class.
    starts : Parameters
        Starting points with a leading axis R, in the data's coordinates.
    options : Options
        How to fit.
    frame : Frame, optional
        Frame of the rows, when known.
    previous : ndarray of shape (R, L), optional
        Log-likelihoods before the first pass, to hold its own against: for a fit that goes on from another.
    progress : callable, optional
        Called after each pass with its number, the indices of the starts still running and their total
        log-likelihoods.
    """
    structure = structure_of(options.covariance_type)
    frame = measure(X, structure) if frame is None else frame
    n_classes = starts.weights.shape[-1]
    rows = Rows(X, classes, n_classes, frame, structure)
    volume = rows.class_sizes * frame.log_volume()
    with workers(options.n_jobs) as pool:
        before = None if previous is None else previous + volume
        inside = run(rows, frame.enter(starts, structure), options, pool, before, progress)
    return replace(
        inside,
        parameters=frame.leave(inside.parameters, structure),
        log_likelihood=inside.log_likelihood - volume,
        objective=inside.objective - volume.sum(),
        path=[path - volume for path in inside.path],
    )


def shortlist(
    X: np.ndarray,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    n_best: int,
    n_passes: int = 5,
    frame: Frame | None = None,
) -> Parameters:
    """Run all starts for a few passes in one batch and return the `n_best` best, best first."""
    short = fit(X, classes, starts, replace(options, max_iter=n_passes, tol=0.0), frame=frame)
    score = np.where(short.status == Status.FAILED, -np.inf, short.objective)
    return short.parameters.take(np.argsort(-score, kind="stable")[:n_best])


def run(
    rows: Rows,
    starts: Parameters,
    options: Options,
    pool: Workers,
    previous: FloatArray | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run EM in the coordinates of the frame; see `fit`."""
    structure = structure_of(options.covariance_type)
    regulariser = regulariser_of(options, rows.frame, structure, n_kernels=starts.means.shape[1])
    n_starts = len(starts.means)
    # A start below the floor could not be told from one that collapsed, and its squares might overflow.
    covariances, factor = structure.raised(starts.covariances, regulariser.floor)
    final = Parameters(starts.weights.copy(), starts.means.copy(), covariances.copy())
    status = np.full(n_starts, Status.RUNNING, dtype=np.int64)
    n_iter = np.zeros(n_starts, dtype=np.int64)
    path: list[list[FloatArray]] = [[] for _ in range(n_starts)]

    active = np.arange(n_starts)
    current = final.copy()
    status[~factor.usable] = Status.FAILED
    if previous is None:
        previous = np.full((n_starts, rows.n_classes), np.inf)
    rule = Stopping(options, previous, rows.n_rows)
    for number in range(1, options.max_iter + 1):
        going = status[active] == Status.RUNNING
        if not going.all():
            active, current, factor = active[going], current.take(going), factor.take(going)
            rule.keep(going)
        if not len(active):
            break
        following, next_factor, log_likelihood = one_pass(rows, current, factor, structure, regulariser, pool)
        # A start that degenerates keeps the parameters that entered the pass.
        survived = next_factor.usable & np.isfinite(log_likelihood).all(axis=1)
        status[active[~survived]] = Status.FAILED
        final.put(active[survived], following.take(survived))
        current, factor = following, next_factor
        n_iter[active] = number
        for r, values in zip(active, log_likelihood, strict=True):
            path[r].append(values)
        status[active[survived & rule.done(log_likelihood)]] = Status.CONVERGED
        if progress is not None:
            progress(number, active, log_likelihood.sum(axis=1))
    status[status == Status.RUNNING] = Status.STOPPED

    final_factor = structure.factor(final.covariances, rows.n_features)
    prepared = prepare(final, structure, rows.frame.bound, final_factor)
    log_likelihood = gather(rows, prepared, pool, moments=False).log_likelihood
    log_likelihood[~final_factor.usable] = -np.inf
    objective = log_likelihood.sum(axis=1) + log_prior(final, final_factor, structure, regulariser)
    empty = np.empty((0, rows.n_classes))
    traces = [np.array(values) if values else empty for values in path]
    return Result(final, status, n_iter, log_likelihood, objective, traces)


def one_pass(
    rows: Rows,
    parameters: Parameters,
    factor: Factor,
    structure: Structure,
    regulariser: Regulariser,
    pool: Workers,
) -> tuple[Parameters, Factor, FloatArray]:
    """Return the next parameters, their factor, and the log-likelihood (R, L) of those that entered."""
    prepared = prepare(parameters, structure, rows.frame.bound, factor)
    statistics = gather(rows, prepared, pool)
    following, next_factor, inaccurate = maximise(statistics, prepared, parameters, regulariser)
    again = np.flatnonzero(inaccurate.any(axis=1))
    if len(again):
        # The new means are right; the covariances want moments about them.
        closer = prepared.take(again).recentre(inaccurate[again], following.means[again])
        better, better_factor, _ = maximise(
            gather(rows, closer, pool), closer, parameters.take(again), regulariser
        )
        following.put(again, better)
        next_factor.put(again, better_factor)
    return following, next_factor, statistics.log_likelihood


def gather(rows: Rows, prepared: Prepared, pool: Workers, *, moments: bool = True) -> Statistics:
    """Return the statistics of all rows: blocks of rows × groups of starts, summed in a fixed order."""
    n_starts, n_kernels, _ = prepared.coefficients.shape
    cut = rows.plan(n_starts, n_kernels)
    slices = [slice(a, min(a + cut.group, n_starts)) for a in range(0, n_starts, cut.group)]
    groups = [prepared.take(s) for s in slices] if len(slices) > 1 else [prepared]

    def work(task: tuple[int, tuple[int, int]]) -> Statistics:
        group, (start, stop) = task
        return collect(rows, start, stop, groups[group], pool.workspace, cut=cut, moments=moments)

    tasks = [(group, rows_of_task) for group in range(len(groups)) for rows_of_task in rows.cuts(cut.block)]
    totals: list[Statistics] = []
    for (group, _), statistics in zip(tasks, pool.map(work, tasks), strict=True):
        if group == len(totals):
            totals.append(statistics)
        else:
            totals[group].add(statistics)
    if len(totals) == 1:
        return totals[0]
    return Statistics(
        np.concatenate([t.log_likelihood for t in totals]),
        np.concatenate([t.mass for t in totals]),
        np.concatenate([t.first for t in totals]),
        np.concatenate([t.second for t in totals]),
    )


class Stopping:
    """The two stopping rules, on the log-likelihoods of successive passes.

    Parameters
    ----------
    options : Options
        `stopping` and `tol`.
    previous : ndarray of shape (R, L)
        Log-likelihoods before the first pass; infinite when there was none.
    n_rows : int
        N.
    """

    def __init__(self, options: Options, previous: FloatArray, n_rows: int) -> None:
        self._per_class = options.stopping == "per-class"
        self._tol = options.tol
        self._n_rows = n_rows
        self._previous = previous
        self._latched = np.zeros(previous.shape, dtype=bool)

    def keep(self, which: BoolArray) -> None:
        """Forget the starts that are not in `which`."""
        self._previous, self._latched = self._previous[which], self._latched[which]

    def done(self, log_likelihood: FloatArray) -> BoolArray:
        """Return which starts (R,) are done, given the log-likelihoods (R, L) of this pass."""
        change = log_likelihood - self._previous
        self._previous = log_likelihood
        if self._per_class:
            self._latched |= np.abs(change) < self._tol
            return np.all(self._latched, axis=1)
        return np.abs(change.sum(axis=1)) < self._tol * self._n_rows


def regulariser_of(options: Options, frame: Frame, structure: Structure, n_kernels: int) -> Regulariser:
    """Express the options' floor, ridge and priors in the coordinates of the frame."""
    n_features = len(frame.scale)
    if options.covariance_prior_scale is not None:
        prior = options.covariance_prior_scale / (frame.scale[:, None] * frame.scale)
    else:
        prior = np.diag(frame.variance / n_kernels ** (2.0 / n_features))
    return Regulariser(
        floor=options.floor * frame.variance,
        ridge=options.ridge / frame.scale**2,
        prior_rows=options.covariance_prior or 0.0,
        prior_covariance=prior,
        weight_prior=options.weight_prior or 1.0,
    )
