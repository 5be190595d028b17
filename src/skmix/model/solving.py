"""Turn settings and training rows into a fitted mixture."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine.after.prior import has_few_rows, prior_of_start
from ..engine.after.shifts import check_source, choose_strength, shift_groups
from ..engine.loop import Run, can_climb, run, say_fall
from ..engine.numbers import pick, to_numpy
from ..engine.problem import Problem
from ..engine.records import FloatArray, Frame, Options, Parameters, Result, Status, living_kernels
from ..engine.rows.summary import Summary
from ..engine.rules.variational import wishart_degrees
from ..engine.starts import refined
from ..engine.structures import Structure, structure_of
from ..engine.structures.factors import rescaled
from .callbacks import AfterPass
from .checks import warn_caller
from .fitted import Fitted, Floor, History, KernelPosterior, LearntPrior, Shifts, WeightPosterior, fields_of
from .settings import AUTO_TOL, Settings
from .starting import default_kernels, given_start, rows_for_starts, start_batches
from .training import Training, some_rows

# By tol='auto' a fit ends when the log-likelihood gains less than this for each parameter, or less than one.
_GAIN_PER_PARAMETER = 1e-3


def fit_mixture(
    settings: Settings,
    training: Training,
    columns: list[int] | None = None,
    after_pass: AfterPass | None = None,
) -> Fitted:
    """Fit a mixture to training rows of its features.

    `columns` (M,) are the numbers of the features among those of all rows, for errors. `after_pass` is called
    after each pass; all starts then run as one batch.
    """
    settings = settings.for_groups(len(training.classes))
    if settings.group_shift is not None:
        check_source(training.source)
    problem, start, floor = problem_of(settings, training, columns)
    refines = settings.init in ("auto", "k-means") and settings.stopping == "total"
    seed = 0
    if refines:
        # Before a start is drawn, so that a `RandomState` gives the same samples however starts are batched.
        is_seed = isinstance(settings.random_state, Integral)
        seed = seed_of(
            settings.random_state if is_seed else deepcopy(check_random_state(settings.random_state))
        )
    batches = start_batches(settings, training, problem, start, together=after_pass is not None)
    first = next(batches)
    problem, prior = _with_learnt_prior(settings, training, problem, first)
    frozen = None if settings.freeze is None else start

    def watch(running: Run) -> None:
        def so_far() -> Fitted | None:
            result = problem.leave_with(running.so_far(), frozen)
            # The first pass of a variational fit has no bound.
            is_ready = np.isfinite(_objective(result))
            return _record([result], settings, training, prior, floor) if is_ready else None

        assert after_pass is not None
        after_pass(running, so_far)

    results = []
    for batch in chain([first], batches):
        batch = refined(problem, batch, seed) if refines else batch
        # The compiled core makes the passes of one start after the other, if it can.
        is_apart = after_pass is None and can_climb(problem, batch)
        for starts in map(batch.take, np.arange(len(batch.means))[:, None]) if is_apart else [batch]:
            result = run(problem, starts, None if after_pass is None else watch)
            results.append(problem.leave_with(result, frozen))
    refuse_failures(results, settings.variance_floor)
    fitted = _record(results, settings, training, prior, floor)
    if not fitted.converged:
        n_starts = sum(len(result.status) for result in results)
        warn_caller(
            f"The best of {n_starts} starts did not converge in {fitted.n_iter} passes. {_more(settings)}",
            ConvergenceWarning,
        )
    if settings.group_shift is None:
        return fitted
    best = max(results, key=_objective)
    return _with_group_shifts(settings, training, fitted, best.parameters.take(best.best), problem)


def seed_of(random_state: object) -> int:
    """A seed drawn from a source of randomness."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


# ---------------------------------------------------------------- the problem


def problem_of(
    settings: Settings, training: Training, columns: list[int] | None = None
) -> tuple[Problem, Parameters | None, Floor | None]:
    """The problem of a mixture, the given start, and the floor of the variances; None if there is none."""
    summary, n_features = training.source.summary, training.n_features
    structure = structure_of(settings.covariance_type_for(summary.n_rows, n_features))
    options, frame = settings.options(structure.name, n_features), summary.frame(structure, columns)
    if settings.n_jobs is None and training.source.runs_elsewhere:
        options = replace(options, n_jobs=1)
    if settings.pulls_groups:
        options = replace(options, unit=unit_of(summary))
    floor = None
    if settings.has_floor:
        floor = floor_of(options, frame, training.resolution)
        options = replace(options, resolution=floor.variance_floor)
    start = given_start(settings, training, frame, structure)
    if start is not None:
        n_kernels = start.means.shape[1]
    elif settings.n_kernels is None:
        n_kernels = int(default_kernels(training, structure, shared=settings.init == "auto").sum())
    else:
        n_kernels = settings.n_kernels
    if settings.tol is None and not settings.is_variational:
        options = replace(options, tol=_tolerance(training, structure, n_kernels))
    return Problem.of(training.source, options, n_kernels, frame), start, floor


def unit_of(summary: Summary) -> float:
    """The weight of a row that counts as one in default priors: weights may be normalised to sum to one."""
    return min(1.0, summary.total / summary.n_rows)


def floor_of(options: Options, frame: Frame, resolution: FloatArray) -> Floor:
    """The smallest variance of each feature: at least its resolution (M,)."""
    least = options.floor * frame.variance * frame.scale**2
    return Floor(resolution=resolution, variance_floor=np.maximum(least, resolution))


def _tolerance(training: Training, structure: Structure, n_kernels: int) -> float:
    """The tolerance of tol='auto'."""
    summary, n_features = training.source.summary, training.n_features
    n_parameters = n_kernels * n_features + structure.n_parameters(n_kernels, n_features)
    gain = max(1.0, _GAIN_PER_PARAMETER * n_parameters)
    # Row weights may be normalised to sum to one.
    return float(np.clip(gain / max(summary.n_rows, summary.total), *AUTO_TOL))


def _with_learnt_prior(
    settings: Settings, training: Training, problem: Problem, starts: Parameters
) -> tuple[Problem, LearntPrior | None]:
    """The problem with the prior of ``covariance_prior='auto'`` or ``'weak'``, and that prior if any.

    It is the prior of a fitted mixture that is the start, or follows from the rows and the first start. With
    given or uniform starts there is one only if kernels have few rows.
    """
    structure, frame = problem.structure, problem.frame
    if settings.learnt_prior is None or not settings.is_learnt_by_em:
        return problem, None
    fitted = settings.fitted_start
    if fitted is not None and Settings.of(fitted).learnt_prior == settings.learnt_prior:
        learnt = LearntPrior.of(fitted)
        if learnt is None:
            return problem, None
        strength, scale = learnt.covariance_prior
        inside = structure.common(rescaled(scale, 1.0 / frame.scale))
        return problem.with_regulariser(prior_rows=strength, prior_covariance=inside), learnt
    summary, (n_kernels, n_features) = training.source.summary, starts.means.shape[1:]
    unit = unit_of(summary)
    few_rows = has_few_rows(structure, summary.total / unit, n_kernels, n_features)
    if not few_rows and settings.init in (None, "uniform"):
        return problem, None
    rows, codes, weights = rows_for_starts(settings, training, frame)
    # Use labelled rows only: the others have no class.
    labelled = np.flatnonzero(codes >= 0)
    some, masses = some_rows(len(labelled), None if weights is None else weights[labelled] / unit)
    some = labelled[some]
    rows, codes = to_numpy(pick(rows, some)).astype(np.float64), codes[some]
    strength, common = prior_of_start(problem, rows, codes, masses, starts.take(0), few_rows=few_rows)
    strength *= unit * settings.learnt_prior
    learnt = LearntPrior(
        covariance_prior=(strength, rescaled(common, frame.scale)),
        # Share of the prior in the covariance of a kernel with an average number of rows.
        shrinkage=strength / (strength + summary.total / n_kernels),
    )
    prior_covariance = structure.common(common)
    return problem.with_regulariser(prior_rows=strength, prior_covariance=prior_covariance), learnt


def fitted_options(settings: Settings, fitted: Fitted) -> Options:
    """The options of the engine for a fitted mixture, with its learnt prior and floor."""
    options = settings.options(fitted.covariance_type, fitted.means.shape[1])
    if fitted.prior is not None:
        rows, covariance = fitted.prior.covariance_prior
        options = replace(options, covariance_prior=rows, covariance_prior_scale=covariance)
    return replace(options, resolution=None if fitted.floor is None else fitted.floor.variance_floor)


# ---------------------------------------------------------------- group shifts


def _with_group_shifts(
    settings: Settings, training: Training, fitted: Fitted, start: Parameters, problem: Problem
) -> Fitted:
    """Fit shifts of the means in each group together with all other parameters, in the data's coordinates."""
    n_groups, strength = len(training.classes), settings.group_shift
    if strength == "auto":
        seed = seed_of(settings.random_state)
        strength = choose_strength(problem, start, seed) if n_groups > 1 else np.inf
    assert strength is not None
    strength = float(strength)
    # The means of a single group are the common means.
    if n_groups == 1 or np.isinf(strength):
        zeros = np.zeros((n_groups, *start.means.shape))
        return replace(fitted, shifts=Shifts(group_shift=strength, group_shifts=zeros))
    shifted = shift_groups(problem, start, strength)
    parameters = shifted.parameters
    assert fitted.history is not None
    history = replace(
        fitted.history,
        log_likelihood=float(shifted.log_likelihood.sum()),
        log_likelihood_path=np.concatenate([fitted.history.log_likelihood_path, shifted.path]),
    )
    posterior, weight_prior = fitted.weight_posterior, fitted.weight_prior
    if posterior is not None and parameters.concentration is not None and shifted.counts is not None:
        weight_prior = parameters.concentration
        posterior = WeightPosterior(
            lower_bound=float(shifted.objective[-1]),
            # Leave out the first objective, at which the fit without shifts ended.
            lower_bound_path=np.concatenate([posterior.lower_bound_path, shifted.objective[1:]]),
            weight_concentration=shifted.counts + weight_prior[:, None],
        )
    if not shifted.converged and fitted.converged:
        warn_caller(
            f"The group shifts did not converge in {len(shifted.path)} passes. {_more(settings)}",
            ConvergenceWarning,
        )
    return replace(
        fitted.with_parameters(parameters),
        n_iter=fitted.n_iter + len(shifted.path),
        converged=fitted.converged and shifted.converged,
        history=history,
        weight_prior=weight_prior,
        weight_posterior=posterior,
        shifts=Shifts(group_shift=strength, group_shifts=shifted.shifts),
    )


def _more(settings: Settings) -> str:
    tol: Any = "auto" if settings.tol is None else settings.tol
    return f"Increase max_iter ({settings.max_iter}) or tol ({tol})."


# ---------------------------------------------------------------- results


def _objective(result: Result) -> float:
    """The objective of the best start of a batch that did not fail."""
    return float(np.where(result.status == Status.FAILED, -np.inf, result.objective).max())


def refuse_failures(results: list[Result], variance_floor: float) -> None:
    """Raise ValueError if the starts of all batches failed, and warn of starts whose objective fell."""
    has_failed = np.concatenate([result.status for result in results]) == Status.FAILED
    falls = np.concatenate([result.fell for result in results])
    falls = falls[~np.isnan(falls[:, 0])]
    if len(falls):
        problem = f"{len(falls)} of {len(has_failed)} starts failed. {say_fall(*falls[0])}"
        if has_failed.all():
            raise ValueError(problem)
        warn_caller(problem)
    if has_failed.all():
        raise ValueError(
            f"All {len(has_failed)} starts ended in a singular covariance, with variance_floor="
            f"{variance_floor}. Use a larger floor (1e-6 by default), a covariance_prior or another start."
        )


def _record(
    results: list[Result],
    settings: Settings,
    training: Training,
    prior: LearntPrior | None,
    floor: Floor | None,
) -> Fitted:
    """The record of the best of all starts, with how each of them ended."""
    result = max(results, key=_objective)
    fitted = record_of_start(settings, training, result, result.best)
    assert fitted.history is not None
    history = replace(
        fitted.history,
        start_status=_names_of(np.concatenate([batch.status for batch in results])),
        start_log_likelihoods=np.concatenate([batch.log_likelihood.sum(axis=1) for batch in results]),
    )
    fitted = replace(fitted, history=history, prior=prior, floor=floor)
    if result.counts is None or result.bounds is None:
        return fitted
    parameters, counts = result.parameters.take(result.best), result.counts[result.best]
    # Leave out kernels without weight, which only a variational fit has.
    structure, alive = structure_of(fitted.covariance_type), parameters.weights.any(axis=1)
    added: Any = 0.0 if result.prior is None else result.prior.concentration
    if parameters.concentration is not None:
        added = parameters.concentration[:, None]
    weight_posterior = WeightPosterior(
        lower_bound=float(result.objective[result.best]),
        lower_bound_path=result.bounds[result.best],
        weight_concentration=counts[alive] + added,
    )
    fitted = replace(fitted, weight_prior=parameters.concentration, weight_posterior=weight_posterior)
    if result.prior is None:
        return fitted
    rows, degrees = counts.sum(axis=1), wishart_degrees(counts[None], structure, result.prior)[0]
    kernel_posterior = KernelPosterior(
        mean_precision=rows[alive] + result.prior.mean_rows,
        wishart_degrees=np.broadcast_to(degrees, rows.shape)[alive].copy(),
    )
    fitted = replace(fitted, kernel_posterior=kernel_posterior)
    return fitted.with_parameters(living_kernels(fitted.parameters, structure))


def record_of_start(settings: Settings, training: Training, result: Result, start: int) -> Fitted:
    """The record of one start, by its number in the result."""
    parameters = result.parameters.take(start)
    summary, prior, status = training.source.summary, parameters.class_prior, result.status[start]
    log_likelihood = float(result.log_likelihood[start].sum())
    return Fitted(
        classes=training.classes,
        class_prior=training.class_prior if prior is None else prior,
        class_count=training.sizes,
        expected_count=training.sizes if prior is None else summary.total * prior,
        covariance_type=settings.covariance_type_for(summary.n_rows, training.n_features),
        converged=bool(status == Status.CONVERGED),
        n_iter=int(result.n_iter[start]),
        history=History(
            log_likelihood=log_likelihood,
            log_likelihood_path=result.path[start],
            start_status=_names_of([status]),
            start_log_likelihoods=np.array([log_likelihood]),
            has_gaps=bool(summary.gaps),
            has_weights=not np.array_equal(summary.counts, summary.sizes),
            has_errors=training.source.error_variances is not None,
        ),
        **fields_of(parameters),
    )


def _names_of(status: object) -> np.ndarray:
    return np.array([Status(value).name.lower() for value in np.asarray(status)])
