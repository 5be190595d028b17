"""Turn settings and training rows into a fitted mixture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.after.prior import has_few_rows, prior_of_start
from ..engine.after.shifts import check_source, choose_strength, shift_groups
from ..engine.kernels import GAUSSIAN, START_DEGREES, StudentT
from ..engine.loop import Run, run, say_fall
from ..engine.numbers import Array, pick, to_numpy
from ..engine.problem import Problem
from ..engine.records import FloatArray, Frame, IntArray, Options, Parameters, Result, Status, living_kernels
from ..engine.rows.resolution import resolution_of
from ..engine.rows.source import RowSource
from ..engine.rows.summary import fill_gaps
from ..engine.rules.variational import wishart_degrees
from ..engine.starts import refined
from ..engine.structures import Structure, structure_of
from ..engine.structures.factors import rescaled
from ._settings import (
    check_start,
    check_tail,
    check_tol,
    covariance_type_of,
    fitted_start,
    freeze_of,
    is_robust,
)
from .callbacks import AfterPass
from .checks import warn_caller
from .fitted import (
    Fitted,
    Floor,
    History,
    KernelPosterior,
    LearntPrior,
    Shifts,
    WeightPosterior,
    fields_of,
    parameters_of,
)
from .settings import (
    AUTO_TOL,
    NUMBERS_TOGETHER,
    _given_prior,
    check_covariance_prior,
    device_and_precision,
    threads_of,
)
from .training import Training

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture as Mixture

# Largest number of rows from which to estimate the resolution and the mild prior.
_SOME_ROWS = 1 << 12
# Strength of covariance_prior='weak', relative to 'auto'.
_WEAK = 0.01
# By tol='auto' a fit ends when the log-likelihood gains less than this for each parameter, or less than one.
_GAIN_PER_PARAMETER = 1e-3
# Largest default number of kernels of a class.
_MOST_KERNELS = 50
# Resolutions (M,) of the features of rows: a search fits many candidates to the same rows.
_resolutions: WeakKeyDictionary[RowSource, FloatArray] = WeakKeyDictionary()


def fit_model(
    model: Mixture,
    training: Training,
    columns: list[int] | None = None,
    *,
    watching: AbstractContextManager[AfterPass] | None = None,
) -> Fitted:
    """Fit a mixture to training rows of its features.

    `columns` are the indices of the features in all rows, for errors. `watching` yields a function to call
    after each pass.
    """
    if model.group_shift is not None:
        check_source(training.source)
    problem, own_kernels, floor = problem_of(model, training, columns)
    # With callbacks, all starts run as one batch.
    n_numbers = NUMBERS_TOGETHER if watching is None else None
    batches = start_batches(model, training, problem, own_kernels, n_numbers)
    refines, seed = model.init in ("auto", "k-means") and problem.options.stopping == "total", 0
    if refines:
        # Before a start is drawn, so that a `RandomState` gives the same samples however starts are batched.
        seed = int(deepcopy(check_random_state(model.random_state)).randint(np.iinfo(np.int32).max))
    first = next(batches)
    problem, prior = with_default_prior(model, training, problem, first)

    def record(result: Result, status: IntArray, reached: FloatArray) -> Fitted:
        """Return the record of the best start, in the data's coordinates."""
        return replace(_fitted(model, result, status, reached, training), prior=prior, floor=floor)

    with watching or nullcontext() as report:

        def after_pass(run: Run) -> None:
            def so_far() -> Fitted | None:
                result = problem.leave_with(run.so_far(), frozen)
                if not np.isfinite(_objective(result)):
                    return None  # the first pass of a variational fit has no bound
                return record(result, result.status, result.log_likelihood.sum(axis=1))

            assert report is not None
            report(run, so_far)

        frozen = frozen_start(model, training, problem)
        begun: Iterator[Parameters] = chain([first], batches)
        if refines:
            begun = (refined(problem, batch, seed) for batch in begun)
        callback = None if report is None else after_pass
        best, status, reached = _best_result(
            problem.leave_with(run(problem, batch, callback), frozen) for batch in begun
        )
    best_start(best, model.variance_floor, len(status))
    found = record(best, status, reached)
    if not found.converged:
        warn_caller(
            f"The best of {len(status)} starts did not converge in {found.n_iter} passes. "
            f"Increase max_iter ({model.max_iter}) or tol ({model.tol}).",
            ConvergenceWarning,
        )
    if model.group_shift is None:
        return found
    return _shift_groups(model, training, found, best.parameters.take(best.best), problem)


def problem_of(
    model: Mixture, training: Training, columns: list[int] | None = None
) -> tuple[Problem, IntArray | None, Floor | None]:
    """Return the problem of a mixture, the default number of kernels of each class, and the floor."""
    source, n_features = training.source, training.n_features
    covariance_type = covariance_type_of(model, source.summary.n_rows, n_features)
    structure, options = structure_of(covariance_type), options_of(model, n_features, covariance_type)
    if model.n_jobs is None and source.runs_elsewhere:
        options = replace(options, n_jobs=1)
    frame = source.summary.frame(structure, columns)
    rows, _, weights = source.start_rows()
    options, floor = with_resolution(model, options, rows, weights, frame, source=source)
    own_kernels = None
    if not isinstance(model.init, str):
        n_kernels = given_start(model, training, frame, structure).means.shape[1]
    elif model.n_kernels is None:
        own_kernels = default_kernels(training, structure, shared=model.init == "auto")
        n_kernels = int(own_kernels.sum())
    else:
        n_kernels = model.n_kernels
    options = with_tolerance(model, options, training, n_kernels)
    return Problem.of(source, options, n_kernels, frame), own_kernels, floor


def _with_prior(options: Options, prior: LearntPrior | None) -> Options:
    if prior is None:
        return options
    rows, scale = prior.covariance_prior
    return replace(options, covariance_prior=rows, covariance_prior_scale=scale)


def _shift_groups(
    model: Mixture, training: Training, fitted: Fitted, start: Parameters, problem: Problem
) -> Fitted:
    """Fit shifts of the means in each group together with all other parameters, in the data's coordinates."""
    n_groups, strength = len(training.classes), model.group_shift
    if strength == "auto":
        seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
        strength = choose_strength(problem, start, seed) if n_groups > 1 else np.inf
    assert strength is not None
    strength = float(strength)
    # The means of a single group are the common means.
    if n_groups == 1 or np.isinf(strength):
        none = np.zeros((n_groups, *start.means.shape))
        return replace(fitted, shifts=Shifts(group_shift=strength, group_shifts=none))
    found = shift_groups(problem, start, strength)
    parameters = found.parameters
    assert fitted.history is not None
    path = np.concatenate([fitted.history.log_likelihood_path, found.path])
    history = replace(
        fitted.history, log_likelihood=float(found.log_likelihood.sum()), log_likelihood_path=path
    )
    posterior, weight_prior = fitted.weight_posterior, fitted.weight_prior
    if posterior is not None and parameters.concentration is not None and found.counts is not None:
        weight_prior = parameters.concentration
        posterior = WeightPosterior(
            lower_bound=float(found.objective[-1]),
            # Leave out the first objective, at which the fit without shifts ended.
            lower_bound_path=np.concatenate([posterior.lower_bound_path, found.objective[1:]]),
            weight_concentration=found.counts + weight_prior[:, None],
        )
    if not found.converged and fitted.converged:
        warn_caller(
            f"The group shifts did not converge in {len(found.path)} passes. "
            f"Increase max_iter ({model.max_iter}) or tol ({model.tol}).",
            ConvergenceWarning,
        )
    return replace(
        fitted.with_parameters(parameters),
        n_iter=fitted.n_iter + len(found.path),
        converged=fitted.converged and found.converged,
        history=history,
        weight_prior=weight_prior,
        weight_posterior=posterior,
        shifts=Shifts(group_shift=strength, group_shifts=found.shifts),
    )


def _best_result(results: Iterator[Result]) -> tuple[Result, IntArray, FloatArray]:
    """Return the result with the best start, and the status and log-likelihood (n_init,) of all starts.

    A start fails if its objective decreases; raise ValueError if all starts failed.
    """
    best: Result | None = None
    status, reached = [], []
    fell: list[list[float]] = []
    for result in results:
        status.append(result.status)
        reached.append(result.log_likelihood.sum(axis=1))
        fell += result.fell[~np.isnan(result.fell[:, 0])].tolist()
        best = result if best is None or _objective(result) > _objective(best) else best
    assert best is not None
    ended = np.concatenate(status)
    if fell:
        problem = f"{len(fell)} of {len(ended)} starts failed. {say_fall(*fell[0])}"
        if np.all(ended == Status.FAILED):
            raise ValueError(problem)
        warn_caller(problem)
    return best, ended, np.concatenate(reached)


def _objective(result: Result) -> float:
    return float(np.where(result.status == Status.FAILED, -np.inf, result.objective).max())


def with_default_prior(
    model: Mixture, training: Training, problem: Problem, starts: Parameters
) -> tuple[Problem, LearntPrior | None]:
    """Return the problem with the prior of ``covariance_prior='auto'`` or ``'weak'``, and that prior if any.

    It comes from a fitted mixture that is the start, or from the rows and the first start. With given or
    uniform starts there is one only if kernels have few rows.
    """
    options, structure = problem.options, problem.structure
    if not isinstance(model.covariance_prior, str) or options.inference != "em" or options.freeze is not None:
        return problem, None
    fitted = fitted_start(model.init)
    if fitted is not None and fitted.covariance_prior == model.covariance_prior:
        learnt = LearntPrior.of(fitted)
        if learnt is None:
            return problem, None
        strength, scale = learnt.covariance_prior
        inside = structure.common(rescaled(scale, 1.0 / problem.frame.scale))
        return problem.with_regulariser(prior_rows=strength, prior_covariance=inside), learnt
    summary, (n_kernels, n_features) = training.source.summary, starts.means.shape[1:]
    # Row weights may be normalised to sum to one, so the total weight is not the number of rows.
    unit = min(1.0, summary.total / summary.n_rows)
    few_rows = has_few_rows(structure, summary.total / unit, n_kernels, n_features)
    if not few_rows and (not isinstance(model.init, str) or model.init == "uniform"):
        return problem, None
    rows, codes, weights = _rows_for_starts(model, training, problem.frame)
    # Use labelled rows only: the others have no class.
    labelled = np.flatnonzero(codes >= 0)
    some, masses = _some_rows(len(labelled), None if weights is None else weights[labelled] / unit)
    some = labelled[some]
    rows, codes = to_numpy(pick(rows, some)).astype(np.float64), codes[some]
    strength, common = prior_of_start(problem, rows, codes, masses, starts.take(0), few_rows=few_rows)
    strength *= unit
    if model.covariance_prior == "weak":
        strength *= _WEAK
    learnt = LearntPrior(
        covariance_prior=(strength, rescaled(common, problem.frame.scale)),
        # Share of the prior in the covariance of a kernel with an average number of rows.
        shrinkage=strength / (strength + summary.total / n_kernels),
    )
    common = structure.common(common)
    return problem.with_regulariser(prior_rows=strength, prior_covariance=common), learnt


def with_resolution(
    model: Mixture,
    options: Options,
    rows: Array,
    weights: FloatArray | None,
    frame: Frame,
    last: FloatArray | None = None,
    source: RowSource | None = None,
) -> tuple[Options, Floor | None]:
    """Return options with the resolution of the features as variance floor, and the floor.

    The resolution is estimated from rows (n, M) with weights (n,), once for each `source`. In a stream,
    `last` (M,) is the resolution so far, and the finer one of each feature is kept. Maximum likelihood,
    variational fits and frozen parameters have no such floor.
    """
    if model.covariance_prior is None or options.inference != "em" or options.freeze is not None:
        return options, None
    resolution = None if source is None else _resolutions.get(source)
    if resolution is None:
        some, masses = _some_rows(rows.shape[0], weights)
        resolution = resolution_of(to_numpy(pick(rows, some)).astype(np.float64), masses, frame)
    if source is not None:
        _resolutions[source] = resolution
    if last is not None:
        # A feature that is constant in a batch has no resolution there.
        both = (resolution > 0) & (last > 0)
        resolution = np.where(both, np.minimum(resolution, last), np.maximum(resolution, last))
    least = options.floor * frame.variance * frame.scale**2
    floor = Floor(resolution=resolution, variance_floor=np.maximum(least, resolution))
    return replace(options, resolution=floor.variance_floor), floor


def _some_rows(n_rows: int, weights: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Return rows that are evenly spaced by weight, and how often each is drawn if rows have weights (n,)."""
    if n_rows <= _SOME_ROWS:
        return np.arange(n_rows), weights
    # Weights that are all equal draw the same rows as no weights.
    places = (np.arange(_SOME_ROWS) + 0.5) / _SOME_ROWS
    if weights is None:
        return np.ceil(places * float(n_rows)).astype(np.int64) - 1, None
    ends = np.cumsum(weights)
    some, counts = np.unique(np.searchsorted(ends, places * ends[-1]), return_counts=True)
    return some, counts.astype(np.float64)


# ---------------------------------------------------------------- settings


def options_of(model: Mixture, n_features: int, covariance_type: str) -> Options:
    """Return the engine's options for the settings of a mixture; `covariance_type` replaces 'auto'."""
    rows, scale = None, None
    if not isinstance(model.covariance_prior, str | None):
        rows, scale = check_covariance_prior(_given_prior(model.covariance_prior), n_features)
    stopping, tol = check_tol(model.tol)
    freeze = freeze_of(model)
    return Options(
        covariance_type=covariance_type,
        max_iter=model.max_iter,
        tol=tol,
        stopping=stopping,  # type: ignore[arg-type]
        # A floor would raise frozen covariances.
        floor=0.0 if freeze == "kernels" else model.variance_floor,
        covariance_prior=rows,
        covariance_prior_scale=scale,
        weight_prior=model.weight_prior,  # type: ignore[arg-type]
        n_jobs=threads_of(model.n_jobs),
        freeze=freeze,  # type: ignore[arg-type]
        precision=device_and_precision(model.device)[1],  # type: ignore[arg-type]
        inference=model.inference,  # type: ignore[arg-type]
        learn_degrees=check_tail(model.tail) == ("t", None),
    )


def with_tails(model: Mixture, start: Parameters) -> Parameters:
    """Return starts with the tail that a mixture is set to."""
    kind, fixed = check_tail(model.tail)
    if kind is None:
        return replace(start, tail=GAUSSIAN)
    if fixed is None and start.tail.weighted:  # a fitted mixture has degrees of freedom
        return start
    if fixed is None and freeze_of(model) == "kernels":
        raise ValueError("freeze='kernels' keeps the degrees of freedom too: tail must be ('t', degrees).")
    degrees = START_DEGREES if fixed is None else fixed
    return replace(start, tail=StudentT(np.full(start.means.shape[:2], degrees)))


def fitted_options(model: Mixture, fitted: Fitted) -> Options:
    """Return the engine's options for a fitted mixture, with its learnt prior and floor."""
    options = _with_prior(options_of(model, fitted.means.shape[1], fitted.covariance_type), fitted.prior)
    return replace(options, resolution=None if fitted.floor is None else fitted.floor.variance_floor)


# Settings that cannot be combined unless one of them has its default value.
_EXCLUSIVE = (
    ("tail", "inference"),
    ("tail", "device"),
    ("inference", "freeze"),
    ("inference", "tol"),
    ("weight_prior", "inference"),
    ("weight_prior", "tol"),
    ("group_shift", "inference"),
    ("group_shift", "tail"),
    ("group_shift", "tol"),
)


def check_inference(estimator: Any) -> None:
    """Raise ValueError for settings that cannot be combined."""
    check_tail(estimator.tail)
    variational, hierarchical = estimator.inference == "variational", estimator.weight_prior == "hierarchical"
    freeze, per_class = freeze_of(estimator), check_tol(estimator.tol)[0] == "per-class"
    settings = {
        "tail": estimator.tail,
        "inference": "variational" if variational else None,
        "device": estimator.device,
        "freeze": freeze,
        "tol": estimator.tol if per_class else None,
        "weight_prior": "hierarchical" if hierarchical else None,
        "group_shift": getattr(estimator, "group_shift", None),
    }
    # Frozen weights cannot be learnt.
    frozen = [("freeze", "weight_prior")] if freeze == "weights" else []
    for one, other in (*_EXCLUSIVE, *frozen):
        if settings[one] is not None and settings[other] is not None:
            raise ValueError(
                f"{one}={settings[one]!r} cannot be combined with {other}={settings[other]!r}: leave one out."
            )
    if not (variational or hierarchical) and (estimator.weight_prior or 1.0) < 1.0:
        raise ValueError(
            f"weight_prior={estimator.weight_prior} must be at least 1 for EM, whose weights would become "
            "negative; inference='variational' accepts any positive number."
        )


def refuse_unlabelled(n_rows: int, n_sets: int) -> None:
    """Raise ValueError for unlabelled rows with several feature sets."""
    if n_rows and n_sets > 1:
        raise ValueError(
            f"{n_rows} rows without a label cannot be combined with {n_sets} feature sets: the class of such "
            "a row depends on all sets. Leave these rows out, or fit one set."
        )


# ---------------------------------------------------------------- starts


def given_start(model: Mixture, training: Training, frame: Frame, structure: Structure) -> Parameters:
    """Return the start that ``init`` gives, in the data's coordinates, with a leading axis of one."""
    # Only unlabelled rows need class priors.
    prior, fitted = training.class_prior if training.n_unlabelled else None, fitted_start(model.init)
    if fitted is not None:
        start = _start_of_fit(model, fitted, structure, training.n_features, training.classes)
        prior = None if prior is None else fitted.class_prior_
    else:
        freeze = freeze_of(model)
        frozen = "covariances" if freeze == "kernels" else freeze
        if frozen is not None and model.init.get(frozen) is None:
            raise ValueError(
                f"freeze={freeze!r} keeps the given values, so init must have {frozen!r}, "
                f"got the keys {sorted(map(str, model.init))}."
            )
        variances = frame.variance * frame.scale**2
        start = check_start(model.init, structure, model.n_kernels, len(training.classes), variances)
    return with_tails(model, replace(start, class_prior=prior).batch())


def frozen_start(model: Mixture, training: Training, problem: Problem) -> Parameters | None:
    """Return the start whose parameters are frozen, in the data's coordinates; None if none are."""
    if problem.options.freeze is None:
        return None
    return given_start(model, training, problem.frame, problem.structure)


def _start_of_fit(
    model: Mixture, init: Any, structure: Structure, n_features: int, classes: np.ndarray
) -> Parameters:
    """Return the parameters of the fitted mixture `init`, the start of a fit with these classes (L,)."""
    parameters = parameters_of(init)
    n_kernels, n_columns = parameters.means.shape
    if init.covariance_type_ != structure.name:
        raise ValueError(
            f"init was fitted with covariance_type={init.covariance_type_!r}, and the fit has "
            f"{structure.name!r}."
        )
    if n_columns != n_features:
        raise ValueError(f"init was fitted to {n_columns} features, and X has {n_features}.")
    # A variational fit has left out kernels without rows.
    removed = model.inference == "variational" and n_kernels < (model.n_kernels or n_kernels)
    if model.n_kernels not in (None, n_kernels) and not removed:
        raise ValueError(f"init has {n_kernels} kernels, and n_kernels is {model.n_kernels}.")
    if not np.array_equal(init.classes_, classes):
        raise ValueError(
            f"init was fitted to the classes {init.classes_.tolist()}, and y has {classes.tolist()}. Its "
            "means_ and covariances_ in a dict are a start for other classes."
        )
    return parameters


def start_batches(
    model: Mixture,
    training: Training,
    problem: Problem,
    own_kernels: IntArray | None = None,
    n_numbers: int | None = None,
) -> Iterator[Parameters]:
    """Yield batches of starts in the frame, whose covariances have at most `n_numbers` entries.

    None stands for one batch. Starts are drawn one after the other, so that they do not depend on the
    batches. `own_kernels` (L,) are the kernels of each class, unless the model has `n_kernels`.
    """
    frame, structure = problem.frame, problem.structure
    if not isinstance(model.init, str):
        yield problem.enter(given_start(model, training, frame, structure))
        return
    prior = training.class_prior if training.n_unlabelled else None
    n_classes, n_features = len(training.classes), training.n_features
    n_kernels, init = problem.n_kernels, "k-means" if model.init == "auto" else model.init
    random_state = check_random_state(model.random_state)
    rows, codes, weights = _rows_for_starts(model, training, frame, labelled=init == "class")
    size = math.prod(structure.shape(n_kernels, n_features))
    together = model.n_init if n_numbers is None else max(1, n_numbers // size)
    for first in range(0, model.n_init, together):
        n_starts = min(together, model.n_init - first)
        sizes, n_jobs = (n_classes, n_starts, n_kernels), threads_of(model.n_jobs)
        wanted = starts.Drawing(*sizes, frame.standardised(structure), structure, random_state, n_jobs)
        if init == "uniform":
            batch = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
            batch = problem.enter(batch)
        else:
            if init == "class":
                batch = starts.class_wise(rows, codes, wanted, weights, own_kernels)
            elif init == "k-means":
                batch = starts.k_means(rows, codes, wanted, weights)
            else:
                batch = starts.random_from_data(rows, wanted, weights)
            batch = frame.from_standardised(batch, structure)
        prior_of_batch = None if prior is None else np.tile(prior, (n_starts, 1))
        yield with_tails(model, replace(batch, class_prior=prior_of_batch))


def with_tolerance(model: Mixture, options: Options, training: Training, n_kernels: int) -> Options:
    """Return options with the tolerance of ``tol='auto'`` for K kernels."""
    if model.tol != "auto" or options.inference != "em":
        return options
    structure, n_features = structure_of(options.covariance_type), training.n_features
    # Free parameters of means and covariances.
    n_parameters = n_kernels * n_features + structure.n_parameters(n_kernels, n_features)
    gain = max(1.0, _GAIN_PER_PARAMETER * n_parameters)
    # Row weights may be normalised to sum to one.
    tol = np.clip(gain / max(training.source.summary.n_rows, training.source.summary.total), *AUTO_TOL)
    return replace(options, tol=float(tol))


def _rows_for_starts(
    model: Mixture, training: Training, frame: Frame, *, labelled: bool = False
) -> tuple[Array, IntArray, FloatArray | None]:
    """Return rows (n, M) for starts, with codes and weights (n,): without gaps or, with a tail, outliers."""
    rows, codes, weights = training.source.start_rows()
    if training.source.summary.gaps:
        rows = fill_gaps(rows, codes)
    if labelled and training.n_unlabelled:
        known = np.flatnonzero(codes >= 0)
        rows, codes, weights = pick(rows, known), codes[known], None if weights is None else weights[known]
    if is_robust(model):
        rows, codes, weights = starts.without_outliers(rows, codes, weights, frame)
    return rows, codes, weights


def default_kernels(training: Training, structure: Structure, *, shared: bool) -> IntArray:
    """Return the default number of kernels of each class (L,), or of all classes (1,) if `shared`.

    It is √(n / 2p), where n is the geometric mean of the number of rows over classes, and p the number of
    parameters of a kernel; at least 1, at most 50, and at most one kernel per M + 1 rows of the class. It is
    the same for all classes up to these bounds, so that none is favoured. With `shared`, n is the number of
    all rows. Only the proportions of row weights matter.
    """
    summary, n_features = training.source.summary, training.n_features
    rows = training.sizes * (summary.n_rows / summary.total)
    if shared:
        rows = np.array([summary.n_rows], dtype=np.float64)
    # Parameters of the mean and covariance of one more kernel.
    n_parameters = n_features + structure.n_parameters(2, n_features) - structure.n_parameters(1, n_features)
    usual = np.sqrt(np.exp(np.log(rows).mean()) / (2.0 * n_parameters)).round()
    most = np.minimum(rows // (n_features + 1), _MOST_KERNELS)
    return np.maximum(1, np.minimum(usual, most)).astype(np.int64)


# ---------------------------------------------------------------- results


def record_of_start(model: Mixture, training: Training, result: Result, start: int) -> Fitted:
    """Return the record of one start."""
    parameters = result.parameters.take(start)
    summary, prior, status = training.source.summary, parameters.class_prior, Status(result.status[start])
    log_likelihood = float(result.log_likelihood[start].sum())
    return Fitted(
        classes=training.classes,
        class_prior=training.class_prior if prior is None else prior,
        class_count=training.sizes,
        expected_count=training.sizes if prior is None else summary.total * prior,
        covariance_type=covariance_type_of(model, summary.n_rows, training.n_features),
        converged=status == Status.CONVERGED,
        n_iter=int(result.n_iter[start]),
        history=History(
            log_likelihood=log_likelihood,
            log_likelihood_path=result.path[start],
            start_status=np.array([status.name.lower()]),
            start_log_likelihoods=np.array([log_likelihood]),
            has_gaps=bool(summary.gaps),
            has_weights=not np.array_equal(summary.counts, summary.sizes),
        ),
        **fields_of(parameters),
    )


def _fitted(
    model: Mixture, result: Result, status: IntArray, reached: FloatArray, training: Training
) -> Fitted:
    """Return the record of the best start, with the status and log-likelihood (n_init,) of all starts."""
    best = result.best
    found = record_of_start(model, training, result, best)
    structure = structure_of(found.covariance_type)
    if model.inference == "variational":
        found = found.with_parameters(living_kernels(found.parameters, structure))
    assert found.history is not None
    names = np.array([Status(each).name.lower() for each in status])
    history = replace(found.history, start_status=names, start_log_likelihoods=reached)
    found = replace(found, history=history)
    if result.counts is None or result.bounds is None:
        return found
    # Leave out kernels without weight.
    alive, prior = np.flatnonzero(result.parameters.weights[best].any(axis=1)), result.prior
    counts, concentration = result.counts[best], result.parameters.take(best).concentration
    added = prior.concentration if prior is not None else 0.0
    posterior = WeightPosterior(
        lower_bound=float(result.objective[best]),
        lower_bound_path=result.bounds[best],
        weight_concentration=counts[alive] + (added if concentration is None else concentration[:, None]),
    )
    of_kernels = None
    if prior is not None:
        rows, degrees = counts.sum(axis=1), wishart_degrees(counts[None], structure, prior)[0]
        of_kernels = KernelPosterior(
            mean_precision=rows[alive] + prior.mean_rows,
            wishart_degrees=np.broadcast_to(degrees, rows.shape)[alive].copy(),
        )
    return replace(found, weight_prior=concentration, weight_posterior=posterior, kernel_posterior=of_kernels)


def best_start(result: Result, variance_floor: float, n_starts: int) -> int:
    """Return the number of the best start; raise ValueError if all starts failed."""
    if np.all(result.status == Status.FAILED):
        raise ValueError(
            f"All {n_starts} starts ended in a singular covariance, with variance_floor="
            f"{variance_floor}. Use a larger floor (1e-6 by default), a covariance_prior or another start."
        )
    return result.best
