"""Passes until done, for a whole batch of starts at once.

Every start is a slice of the same arrays: rows are read and expanded once for a group of starts, and what is
small is done for all at once. A start that has converged or failed leaves the batch; nothing raises because
one start went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from .compute.arrays import as_float64, is_numpy, to_numpy
from .compute.threads import Workers, workers
from .covariances import Structure, structure_of
from .model import (
    BoolArray,
    Factor,
    FloatArray,
    IntArray,
    Options,
    Parameters,
    Regulariser,
    Result,
    Status,
    join,
)
from .passes import Source, expect, expect_rows, one_pass
from .rules.annihilation import price_of_kernel
from .rules.likelihood import log_prior
from .rules.variational import as_point, divergence, point_estimate, prior_of
from .snapshots import Keep, Snapshot, take_later
from .sources.blocks import Blocks, is_blocks
from .sources.device import DeviceRows, OptimisticStep
from .sources.frame import Frame
from .sources.gaps import Patterns, has_gaps
from .sources.memory import Rows
from .sources.moments import measure
from .sources.scattered import Scattered, surveyed
from .squarem import STRICTER, Accelerator

Progress = Callable[[int, IntArray, FloatArray], None]


def fit(
    X: np.ndarray | Blocks,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    row_weights: FloatArray | None = None,
    previous: FloatArray | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    resume: Snapshot | None = None,
) -> Result:
    """Run EM from R starts and return how each one ended.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows, float64 or float32; NaN where a value is missing, but no row and no feature without any value.
        With an array of another library than NumPy, passes run where it is; it may have no gaps.
        Or coded blocks of rows; classes and weights are then in them.
    classes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1, every class with at least one row, and −1 for rows without a label;
        None for one class. With unlabelled rows the starts have a `class_prior`, log-likelihoods of labelled
        rows are of row and label together, and those of unlabelled rows make a last column.
    starts : Parameters
        Starting points with a leading axis R, in the data's coordinates.
    options : Options
        How to fit.
    frame : Frame, optional
        Frame of the rows, when known.
    row_weights : ndarray of shape (N,), optional
        Positive weights of the rows.
    previous : ndarray of shape (R, L), optional
        Log-likelihoods before the first pass, to hold its own against: for a fit that goes on from another.
    progress : callable, optional
        Called after each pass with its number, the indices of the starts still running and their total
        log-likelihoods.
    keep : callable, optional
        Called after each pass, and may take a snapshot.
    resume : Snapshot, optional
        Where to go on, instead of at the starts.
    """
    structure = structure_of(options.covariance_type)
    if is_blocks(X):
        X = surveyed(X)
        frame = X.survey.frame(structure) if frame is None else frame
    elif frame is None:
        frame = measure(X, structure, row_weights=row_weights)
    rows = rows_of(X, classes, starts, frame, structure, row_weights, options)
    volume = rows.log_volume()
    with workers(options.n_jobs) as pool:
        before = None if previous is None else previous + volume
        inside = run(rows, frame.enter(starts, structure), options, pool, before, progress, keep, resume)
    return replace(
        inside,
        parameters=frame.leave(inside.parameters.map(to_numpy), structure),
        log_likelihood=inside.log_likelihood - volume,
        objective=inside.objective - volume.sum(),
        path=[path - volume for path in inside.path],
        bounds=inside.bounds and [bounds - volume.sum() for bounds in inside.bounds],
    )


def shortlist(
    X: np.ndarray | Blocks,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    n_best: int,
    n_passes: int = 5,
    frame: Frame | None = None,
    row_weights: FloatArray | None = None,
) -> Parameters:
    """Run all starts for a few passes in one batch and return the `n_best` best, best first."""
    few = replace(options, max_iter=n_passes, tol=0.0)
    short = fit(X, classes, starts, few, frame=frame, row_weights=row_weights)
    score = np.where(short.status == Status.FAILED, -np.inf, short.objective)
    return short.parameters.take(np.argsort(-score, kind="stable")[:n_best])


def rows_of(
    X: np.ndarray | Blocks,
    classes: IntArray | None,
    starts: Parameters,
    frame: Frame,
    structure: Structure,
    row_weights: FloatArray | None,
    options: Options | None = None,
) -> Source:
    """Return rows as the loop reads them: those without a label as a last class, those with gaps grouped."""
    n_classes = starts.weights.shape[-1]
    if is_blocks(X):
        n_classes += starts.class_prior is not None
        return Scattered(surveyed(X), n_classes, frame, structure, expect_rows)
    if starts.class_prior is not None and classes is not None:
        classes = np.where(classes < 0, n_classes, classes)
        n_classes += 1
    if not is_numpy(X):
        precision = "float64" if options is None else options.precision
        return DeviceRows(X, classes, n_classes, frame, structure, row_weights, precision=precision)
    if has_gaps(X):
        codes = np.zeros(len(X), dtype=np.int64) if classes is None else classes
        return Patterns(X, codes, n_classes, frame, structure, row_weights)
    return Rows(X, classes, n_classes, frame, structure, row_weights)


def run(
    rows: Source,
    starts: Parameters,
    options: Options,
    pool: Workers,
    previous: FloatArray | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    resume: Snapshot | None = None,
) -> Result:
    """Run EM in the coordinates of the frame; see `fit`."""
    if resume is not None:
        starts, previous = resume.parameters, resume.previous
    structure = structure_of(options.covariance_type).of(starts.covariances)
    regulariser = regulariser_of(options, rows.frame, structure, n_kernels=starts.means.shape[1])
    leaps = None if resume is None else resume.leaps
    if isinstance(rows, DeviceRows):
        starts = _there(starts, rows)
        regulariser = regulariser.map(lambda array: as_float64(array, rows.home))
        leaps = None if leaps is None else leaps.map(partial(_there, rows=rows), np.asarray)
    entering = starts if leaps is None else leaps.entering
    n_starts = starts.means.shape[0]
    # A start below the floor could not be told from one that collapsed, and its squares might overflow.
    covariances, factor = structure.raised(entering.covariances, regulariser.floor)
    current = replace(entering, covariances=covariances).copy()
    prior = None
    if options.inference == "variational":
        n_kernels = options.prior_kernels or starts.means.shape[1]
        prior = prior_of(options, rows.frame, regulariser, structure, n_kernels)
        current = as_point(current)

    def objective_of(log_likelihood: FloatArray, parameters: Parameters, factor: Factor) -> FloatArray:
        if prior is not None:
            return log_likelihood.sum(axis=1) - divergence(parameters, factor, structure, prior)
        return log_likelihood.sum(axis=1) + log_prior(parameters, factor, structure, regulariser)

    final = Finished(n_starts)
    status = np.full(n_starts, Status.RUNNING, dtype=np.int64)
    n_iter = np.zeros(n_starts, dtype=np.int64)
    path: list[list[FloatArray]] = [[] for _ in range(n_starts)]
    bounds: list[list[float]] = [[] for _ in range(n_starts)]

    active = np.arange(n_starts)
    usable = to_numpy(factor.usable)
    # An extrapolation may fail: the accelerator then goes back.
    status[~usable if leaps is None else ~usable & ~leaps.tried] = Status.FAILED
    latest = current if leaps is None else starts  # where each start is, extrapolations aside
    if previous is None:
        previous = np.full((n_starts, rows.n_classes if prior is None else 1), np.inf)
    n_rows = float(rows.class_sizes.sum())
    # Leaps shorten EM's own steps: as small a gain is nearer to a plateau than to the end.
    tol = options.tol * STRICTER if options.accelerate else options.tol
    rule = Stopping(replace(options, tol=tol), previous, n_rows)
    accelerator = Accelerator(n_starts, structure, n_rows) if options.accelerate else None
    if accelerator is not None and leaps is not None:
        accelerator.go_on(leaps)

    def step(parameters: Parameters, factor: Factor) -> tuple[Parameters, Factor, FloatArray]:
        return one_pass(rows, parameters, factor, structure, prior or regulariser, pool, options.freeze)

    if isinstance(rows, DeviceRows):
        step = OptimisticStep(step, rows)
    first = 1
    if resume is not None:
        status, n_iter = (
            np.where(resume.status == Status.RUNNING, status, resume.status),
            resume.n_iter.copy(),
        )
        path = [list(passes) for passes in resume.path]
        rule.latched = resume.latched.copy()
        first = int(n_iter.max()) + 1
    for number in range(first, options.max_iter + 1):
        going = status[active] == Status.RUNNING
        if not going.all():
            final.keep(active, ~going, latest)
            active, current, factor = active[going], current.take(going), factor.take(going)
            latest = latest.take(going)
            rule.keep(going)
            if accelerator is not None:
                accelerator.keep(going)
        if not len(active):
            break
        following, next_factor, log_likelihood = step(current, factor)
        # A start that degenerates keeps the parameters that entered the pass.
        survived = to_numpy(next_factor.usable) & np.isfinite(log_likelihood).all(axis=1)
        wasted = np.zeros(len(active), dtype=bool)
        if accelerator is not None:
            objective = objective_of(log_likelihood, current, factor)
            wasted = accelerator.wasted(objective, survived)
        status[active[~survived & ~wasted]] = Status.FAILED
        counted = survived & ~wasted
        latest = following if counted.all() else latest.copy().put(counted, following.take(counted))
        n_iter[active] = number
        for i in np.flatnonzero(~wasted):
            path[active[i]].append(log_likelihood[i])
        # EM is over when the likelihood stays, a variational fit when the bound does.
        watched = log_likelihood
        if prior is not None:
            watched = objective_of(log_likelihood, current, factor)[:, None]
            for i in np.flatnonzero(np.isfinite(watched[:, 0])):
                bounds[active[i]].append(float(watched[i, 0]))
        done = rule.done(watched, wasted)
        if accelerator is not None:
            done = accelerator.settled(done)
        status[active[survived & done & ~wasted]] = Status.CONVERGED
        if accelerator is not None:
            following, next_factor = accelerator.onward(
                current, following, next_factor, objective, regulariser.floor
            )
        current, factor = following, next_factor
        if progress is not None:
            progress(number, active, log_likelihood.sum(axis=1))
        if keep is not None:
            everyone = partial(_on_host, final.copy(), active)
            stands = None if accelerator is None else accelerator.leaps(current)
            keep(
                take_later(
                    everyone, latest, active, status, n_iter, rule.previous, rule.latched, path, stands
                )
            )
    status[status == Status.RUNNING] = Status.STOPPED

    last = final.all(active, latest)
    last_factor = structure.factor(last.covariances, rows.n_features)

    def final_log_likelihood() -> FloatArray:
        statistics, _ = expect(rows, last, last_factor, structure, pool, moments=False)
        found = to_numpy(statistics.log_likelihood)
        return np.where(to_numpy(last_factor.usable)[:, None], found, -np.inf)

    log_likelihood = final_log_likelihood()
    objective = objective_of(log_likelihood, last, last_factor)
    empty = np.empty((0, rows.n_classes))
    traces = [np.array(values) if values else empty for values in path]
    if prior is None:
        return Result(last, status, n_iter, log_likelihood, objective, traces)
    last = point_estimate(last, prior)
    reached = [np.array([*values, value]) for values, value in zip(bounds, objective, strict=True)]
    log_likelihood = final_log_likelihood()
    return Result(last, status, n_iter, log_likelihood, objective, traces, last.counts, reached, prior)


def _there(parameters: Parameters, rows: DeviceRows) -> Parameters:
    return parameters.map(lambda array: as_float64(array, rows.home))


def _on_host(finished: Finished, numbers: IntArray, parameters: Parameters) -> Parameters:
    """Return all starts in order, on the host, given those still in the batch."""
    return finished.all(numbers, parameters).map(to_numpy)


class Finished:
    """Parameters of starts that have left the batch.

    Parameters
    ----------
    n_starts : int
        R.
    """

    def __init__(self, n_starts: int) -> None:
        self._n_starts = n_starts
        self._numbers: list[IntArray] = []
        self._parameters: list[Parameters] = []

    def keep(self, numbers: IntArray, which: BoolArray, parameters: Parameters) -> None:
        """Keep the starts of a batch that are in `which`; their `numbers` are those of the first batch."""
        self._numbers.append(numbers[which])
        self._parameters.append(parameters.take(which))

    def copy(self) -> Finished:
        """Return what there is now; starts that leave later are not in it."""
        copied = Finished(self._n_starts)
        copied._numbers, copied._parameters = list(self._numbers), list(self._parameters)
        return copied

    def all(self, numbers: IntArray, parameters: Parameters) -> Parameters:
        """Return all starts in order, given those still in the batch."""
        if len(numbers) == self._n_starts:
            return parameters
        everything = [*self._parameters, parameters]
        order = np.argsort(np.concatenate([*self._numbers, numbers]))
        return join(everything).take(order)


class Stopping:
    """The two stopping rules, on the log-likelihoods of successive passes.

    Parameters
    ----------
    options : Options
        `stopping` and `tol`.
    previous : ndarray of shape (R, L)
        Log-likelihoods before the first pass; infinite when there was none.
    n_rows : float
        N, or the sum of the rows' weights.

    Attributes
    ----------
    previous : ndarray of shape (R, L)
        Log-likelihoods of the last pass.
    latched : ndarray of shape (R, L)
        Which classes have settled, by the second rule.
    """

    def __init__(self, options: Options, previous: FloatArray, n_rows: float) -> None:
        self._per_class = options.stopping == "per-class"
        self._tol = options.tol
        self._n_rows = n_rows
        self.previous = previous
        self.latched = np.zeros(previous.shape, dtype=bool)

    def keep(self, which: BoolArray) -> None:
        """Forget the starts that are not in `which`."""
        self.previous, self.latched = self.previous[which], self.latched[which]

    def done(self, log_likelihood: FloatArray, wasted: BoolArray | None = None) -> BoolArray:
        """Return which starts (R,) are done, given the log-likelihoods (R, L) of this pass.

        Passes that were `wasted` (R,) say nothing.
        """
        counts = np.ones(len(log_likelihood), dtype=bool) if wasted is None else ~wasted
        change = log_likelihood - self.previous
        self.previous = np.where(counts[:, None], log_likelihood, self.previous)
        if self._per_class:
            self.latched |= (np.abs(change) < self._tol) & counts[:, None]
            return np.all(self.latched, axis=1) & counts
        return (np.abs(change.sum(axis=1)) < self._tol * self._n_rows) & counts


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
        annihilation=price_of_kernel(structure, n_features) if options.annihilate else 0.0,
    )
