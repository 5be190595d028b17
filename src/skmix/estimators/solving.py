"""Turn settings and training rows into a fitted mixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.after.prior import are_separate, prior_of_start, with_shrinkage
from ..engine.after.shifts import GroupRows, check_source, choose_strength, shift_groups
from ..engine.estep.reference import operations
from ..engine.kernels import NONE, START_DEGREES, StudentT
from ..engine.loop import Run, fit, regulariser_of, say_fall
from ..engine.numbers import Array, is_numpy, pick, to_numpy
from ..engine.problem import RowSource, open_source
from ..engine.records import FloatArray, Frame, IntArray, Options, Parameters, Result, Status, living_kernels
from ..engine.rows.summary import fill_gaps, resolution_of
from ..engine.rules.variational import Wishart, wishart_degrees
from ..engine.structures import Structure, structure_of
from ._settings import (
    AUTO_TOL,
    NUMBERS_TOGETHER,
    check_covariance_prior,
    check_start,
    check_tail,
    check_tol,
    covariance_type_of,
    fitted_start,
    freeze_of,
    is_robust,
    threads_of,
)
from .callbacks import AfterPass
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
from .rows import Training, device_and_precision, warn_caller

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture as Mixture

# Largest number of rows from which to estimate the resolution and the mild prior.
_SOME_ROWS = 1 << 12
# Strength of covariance_prior='weak', relative to 'auto'.
_WEAK = 0.01
# By tol='auto' a fit ends when the log-likelihood gains less than this for each parameter, or less than one.
_GAIN_PER_PARAMETER = 1e-3
# Starts are refined on samples, of which each has this many times the rows of the one before.
_ROWS_PER_SAMPLED = 4
# Operations of a pass from which on a sample is worth it.
_WORTH_SAMPLING = 1 << 25
# Fewest rows of a sample for each parameter: with fewer, the kernels would fit the sample alone.
_SAMPLED_PER_PARAMETER = 3
# A fit to n sampled rows ends below this times parameters / n: smaller gains are chance.
_CHANCE = 0.003
# Share of a group's weights that all kernels get evenly after a sample: a weight of zero would stay zero.
_EVEN_WEIGHT = 0.01
# Largest default number of kernels of a class.
_MOST_KERNELS = 50


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
    source, summary, n_features = training.source, training.source.summary, training.n_features
    if model.group_shift is not None:
        check_source(source)
    covariance_type = covariance_type_of(model, summary.n_rows, n_features)
    structure = structure_of(covariance_type)
    options = options_of(model, n_features, covariance_type)
    if model.n_jobs is None and source.is_shared_out:
        options = replace(options, n_jobs=1)
    frame = summary.frame(structure, columns)
    # With callbacks, all starts run as one batch.
    n_numbers = NUMBERS_TOGETHER if watching is None else None
    batches = start_batches(model, training, frame, structure, n_numbers)
    batches = (with_tails(model, batch) for batch in batches)
    given = next(batches)
    options = with_tolerance(model, options, training, given)
    rows, _, weights = source.start_rows()
    options, floor = with_resolution(model, options, rows, weights, frame)
    prior = None
    if isinstance(model.covariance_prior, str) and options.inference == "em" and options.freeze is None:
        prior = _default_prior(model, training, given, options, frame)
    options = _with_prior(options, prior)
    with watching or nullcontext() as report:

        def after_pass(run: Run) -> None:
            def so_far() -> Fitted | None:
                result = run.so_far()
                if not np.isfinite(_objective(result)):
                    return None  # the first pass of a variational fit has no bound
                reached = result.log_likelihood.sum(axis=1)
                fitted = _fitted(model, result, result.status, reached, training)
                return replace(fitted, prior=prior, floor=floor)

            assert report is not None
            report(run, so_far)

        callback = None if report is None else after_pass
        fit_from = partial(fit, source, options=options, frame=frame, callback=callback)
        begun: Iterator[Parameters] = chain([given], batches)
        if model.init in ("auto", "k-means") and options.stopping == "total":
            begun = map(partial(_refined, source, options, frame), begun)
        best, status, reached = _best_result(map(fit_from, begun))
    best_start(best, model.variance_floor, len(status))
    found = replace(_fitted(model, best, status, reached, training), prior=prior, floor=floor)
    if not found.converged:
        warn_caller(
            f"The best of {len(status)} starts did not converge in {found.n_iter} passes. "
            f"Increase max_iter ({model.max_iter}) or tol ({model.tol}).",
            ConvergenceWarning,
        )
    if model.group_shift is None:
        return found
    return _shift_groups(model, training, found, best.parameters.take(best.best), options, frame)


def _with_prior(options: Options, prior: LearntPrior | None) -> Options:
    if prior is None:
        return options
    rows, scale = prior.covariance_prior
    return replace(options, covariance_prior=rows, covariance_prior_scale=scale)


def _shift_groups(
    model: Mixture, training: Training, fitted: Fitted, start: Parameters, options: Options, frame: Frame
) -> Fitted:
    """Fit shifts of the means in each group together with all other parameters."""
    source, n_groups, strength = training.source, len(training.classes), model.group_shift
    if strength == "auto":
        seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
        strength = choose_strength(source, start, options, frame, seed) if n_groups > 1 else np.inf
    assert strength is not None
    strength = float(strength)
    # The means of a single group are the common means.
    if n_groups == 1 or np.isinf(strength):
        none = np.zeros((n_groups, *start.means.shape))
        return replace(fitted, shifts=Shifts(group_shift=strength, group_shifts=none))
    found = shift_groups(GroupRows(source, n_groups), start, strength, options, frame)
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


def _default_prior(
    model: Mixture,
    training: Training,
    given: Parameters,
    options: Options,
    frame: Frame,
) -> LearntPrior | None:
    """Return the prior of ``covariance_prior='auto'`` or ``'weak'``, or None.

    It comes from a fitted mixture that is the start, from a first fit if kernels have few rows, or is a mild
    one.
    """
    fitted = fitted_start(model.init)
    if fitted is not None and fitted.covariance_prior == model.covariance_prior:
        return LearntPrior.of(fitted)
    summary, structure = training.source.summary, structure_of(options.covariance_type)
    n_kernels, n_features = given.means.shape[1:]
    # Row weights may be normalised to sum to one, so the total weight is not the number of rows.
    unit = min(1.0, summary.total / summary.n_rows)
    prior, one = None, given.take(0)
    few = summary.total / unit / n_kernels < structure.rows_wanted(n_features)
    if few and structure.pools_as is not None and not are_separate(one.weights):
        found = with_shrinkage(training.source, given, options, frame=frame, unit=unit)
        if found.covariance_prior is not None and found.covariance_prior_scale is not None:
            prior = found.covariance_prior, found.covariance_prior_scale
    elif isinstance(model.init, str) and model.init != "uniform":
        rows, codes, weights = _rows_for_starts(model, training, frame)
        # Use labelled rows only: the others have no class.
        labelled = np.flatnonzero(codes >= 0)
        some, masses = _some_rows(len(labelled), None if weights is None else weights[labelled] / unit)
        some = labelled[some]
        rows, codes = to_numpy(pick(rows, some)).astype(np.float64), codes[some]
        regulariser = regulariser_of(options, frame, structure, n_kernels)
        strength, common = prior_of_start(rows, codes, masses, one, structure, regulariser, frame)
        prior = strength * unit, common
    if prior is None:
        return None
    if model.covariance_prior == "weak":
        prior = _WEAK * prior[0], prior[1]
    return LearntPrior(
        covariance_prior=prior,
        # Share of the prior in the covariance of a kernel with an average number of rows.
        shrinkage=prior[0] / (prior[0] + summary.total / n_kernels),
    )


def with_resolution(
    model: Mixture,
    options: Options,
    rows: Array,
    weights: FloatArray | None,
    frame: Frame,
    last: FloatArray | None = None,
) -> tuple[Options, Floor | None]:
    """Return options with the resolution of the features as variance floor, and the floor.

    The resolution is estimated from rows (n, M) with weights (n,). In a stream, `last` (M,) is the resolution
    so far, and the finer one of each feature is kept. Maximum likelihood, variational fits and frozen
    parameters have no such floor.
    """
    if model.covariance_prior is None or options.inference != "em" or options.freeze is not None:
        return options, None
    some, masses = _some_rows(rows.shape[0], weights)
    resolution = resolution_of(to_numpy(pick(rows, some)).astype(np.float64), masses, frame)
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
        rows, scale = check_covariance_prior(model.covariance_prior, n_features)
    stopping, tol = check_tol(model.tol)
    freeze = freeze_of(model)
    return Options(
        covariance_type=covariance_type,
        n_starts=model.n_init,
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
        return replace(start, tail=NONE)
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


def start_batches(
    model: Mixture,
    training: Training,
    frame: Frame,
    structure: Structure,
    n_numbers: int | None = None,
) -> Iterator[Parameters]:
    """Yield batches of starts, whose covariances have at most `n_numbers` entries; None for one batch.

    Starts are drawn one after the other, so that they do not depend on the batches.
    """
    n_kernels, classes = model.n_kernels, training.classes
    n_classes, n_features = len(classes), training.n_features
    # Only unlabelled rows need class priors.
    prior = training.class_prior if training.n_unlabelled else None
    fitted = fitted_start(model.init)
    if fitted is not None:
        start = _start_of_fit(model, fitted, structure, n_features, classes)
        yield replace(start, class_prior=None if prior is None else fitted.class_prior_).batch()
        return
    if not isinstance(model.init, str):
        freeze = freeze_of(model)
        frozen = "covariances" if freeze == "kernels" else freeze
        if frozen is not None and model.init.get(frozen) is None:
            raise ValueError(
                f"freeze={freeze!r} keeps the given values, so init must have {frozen!r}, "
                f"got the keys {sorted(map(str, model.init))}."
            )
        variances = frame.variance * frame.scale**2
        start = check_start(model.init, structure, n_kernels, n_classes, variances)
        yield replace(start, class_prior=prior).batch()
        return
    init = "k-means" if model.init == "auto" else model.init
    own_kernels = None
    if n_kernels is None:
        own_kernels = default_kernels(training, structure, shared=model.init == "auto")
        n_kernels = int(own_kernels.sum())
    random_state = check_random_state(model.random_state)
    rows, codes, weights = _rows_for_starts(model, training, frame, labelled=init == "class")
    size = np.prod(structure.shape(n_kernels, n_features))
    together = model.n_init if n_numbers is None else max(1, int(n_numbers // size))
    for first in range(0, model.n_init, together):
        n_starts = min(together, model.n_init - first)
        coordinates = frame.standardised(structure)
        sizes, n_jobs = (n_classes, n_starts, n_kernels), threads_of(model.n_jobs)
        wanted = starts.Wanted(*sizes, coordinates, structure, random_state, n_jobs)
        if init == "uniform":
            batch = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
        elif init == "class":
            batch = starts.class_wise(rows, codes, wanted, weights, own_kernels)
        elif init == "k-means":
            batch = starts.k_means(rows, codes, wanted, weights)
        else:
            batch = starts.random_from_data(rows, wanted, weights)
        yield batch if prior is None else replace(batch, class_prior=np.tile(prior, (n_starts, 1)))


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


def _refined(source: RowSource, options: Options, frame: Frame, given: Parameters) -> Parameters:
    """Return starts after EM on random samples of many complete rows, each larger than the one before.

    Few passes over all rows are left then. Starts that fail on a sample stay as they are. Devices need no
    samples: their passes over few rows take as long.
    """
    # Frozen weights stay as they are, and hierarchical ones depend on the sizes of groups.
    keeps_weights = options.freeze is not None or isinstance(options.weight_prior, str)
    if options.inference != "em" or keeps_weights or source.summary.gaps:
        return given
    n_rows, (_, n_kernels, n_features) = source.summary.n_rows, given.means.shape
    n_parameters = _n_parameters(given, structure_of(options.covariance_type))
    sizes: list[int] = []
    while operations(n_rows, n_kernels, n_features) >= _WORTH_SAMPLING:
        n_rows //= _ROWS_PER_SAMPLED
        sizes.append(n_rows)
    if not sizes or not is_numpy(source.to_device(given.means)):
        return given
    (X, codes, weights), random_state = source.start_rows(), np.random.RandomState(0)
    for size in sorted({min(size, len(X)) for size in sizes}):
        if size < _SAMPLED_PER_PARAMETER * n_parameters:
            continue
        some = starts.draw_rows(len(X), size, random_state, weights)
        own = replace(options, tol=max(options.tol, _CHANCE * n_parameters / size))
        found = fit(open_source(pick(X, some), codes[some]), given, own, frame=frame)
        good = np.flatnonzero(found.status != Status.FAILED)
        given = given.put(good, found.parameters.take(good))
        # A group may have rows of a kernel that none of its few rows in the sample is of.
        even = _EVEN_WEIGHT if given.weights.shape[-1] > 1 else 0.0
        given = replace(given, weights=(1.0 - even) * given.weights + even / n_kernels)
    return given


def with_tolerance(model: Mixture, options: Options, training: Training, given: Parameters) -> Options:
    """Return options with the tolerance of ``tol='auto'`` for the kernels of a start."""
    if model.tol != "auto" or options.inference != "em":
        return options
    structure, summary = structure_of(options.covariance_type), training.source.summary
    gain = max(1.0, _GAIN_PER_PARAMETER * _n_parameters(given, structure))
    # Row weights may be normalised to sum to one.
    tol = np.clip(gain / max(summary.n_rows, summary.total), *AUTO_TOL)
    return replace(options, tol=float(tol))


def _n_parameters(starts: Parameters, structure: Structure) -> int:
    """Return the number of free parameters of the means and covariances of a start."""
    n_kernels, n_features = starts.means.shape[1:]
    return n_kernels * n_features + structure.n_parameters(n_kernels, n_features)


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
        rows, wishart = counts.sum(axis=1), Wishart.of(structure, len(prior.covariance))
        degrees = wishart_degrees(counts[None], wishart, prior.covariance_rows)[0]
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
