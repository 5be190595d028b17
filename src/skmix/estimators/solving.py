"""Fits: settings and training rows to starts, through the engine, to the attributes of a mixture.

With several feature sets, each has a mixture of its own, and rows without a label tie them: groups are
independent given the class, so the class of such a row has the posterior q_j ∝ Pr(j) Π_g p_g(x_g | j). EM
over (class, kernels) alternates between these posteriors and one pass of every group, in which the row counts
for class j with weight q_j.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.compute.arrays import pick, to_numpy
from ..engine.compute.blocks import Block
from ..engine.compute.threads import workers
from ..engine.density import class_log_likelihood
from ..engine.em import Run, RunState, fit, one_pass, regulariser_of, rounding_of, rule_of, say_fall
from ..engine.frame import Frame
from ..engine.model import FloatArray, IntArray, Options, Parameters, Result, Status
from ..engine.refine.prune import living_kernels, prune_kernels
from ..engine.refine.shift import GroupRows, check_source, choose_strength, shift_groups
from ..engine.refine.shrink import are_separate, prior_of_start, share_of, with_shrinkage
from ..engine.rules.likelihood import price_of_kernel, with_frozen
from ..engine.rules.variational import degrees_of_freedom
from ..engine.sources import RowSource, make_setting, open_source
from ..engine.sources.summary import fill_gaps, resolution_of
from ..engine.structures import Structure, most_factors, structure_of
from ..engine.tails import NONE, START_DEGREES, Background, StudentT, Tail
from ._settings import (
    OF_KERNELS,
    check_covariance_prior,
    check_covariance_type,
    check_start,
    check_tail,
    check_tol,
    covariance_type_of,
    freeze_of,
    is_robust,
)
from .callbacks import SavedRun, saving
from .rows import Training, columns_of, device_and_precision, warn_caller

OF_THE_POSTERIOR = (
    "lower_bound_",
    "lower_bound_path_",
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
)
OF_LEARNT_PRIORS = (
    "shrinkage_",
    "covariance_prior_",
    "prior_setting_",
    "resolution_",
    "variance_floor_",
    "weight_prior_",
)
# Of `merge_kernels`; they belong to the kernels they were made of.
OF_POPULATIONS = ("populations_", "merge_tree_", "merge_entropies_")
# Of groups with means of their own.
OF_SHIFTS = ("group_shifts_", "group_shift_")
# A class this improbable changes no digit of the sums.
_NEGLIGIBLE = 1e-12
# Starts run together while their covariances have at most this many numbers, otherwise in several groups.
NUMBERS_TOGETHER = 1 << 17
# Rows from which resolution and mild prior are estimated.
_SOME_ROWS = 1 << 12
# Strength of covariance_prior='weak', relative to 'auto'.
_WEAK = 0.01
# Largest default number of kernels of a class.
_MOST_KERNELS = 50


def fit_model(
    model: Any,
    training: Training,
    columns: list[int] | None = None,
    *,
    watching: AbstractContextManager[Any] | None = None,
    path: Path | None = None,
    prune: bool = False,
) -> None:
    """Fit a mixture to training rows of its features, and set its attributes.

    `columns` are for error messages; `watching` yields what to call after each pass; `path` is the file of a
    checkpoint, which is resumed if it exists. With `prune`, the fit starts with `n_kernels` and removes those
    that do not pay for their parameters.
    """
    source, summary, n_features = training.source, training.source.summary, training.n_features
    if model.group_shift is not None:
        check_source(source)
    _, n_factors = check_covariance_type(model.covariance_type)
    n_factors = None if n_factors is None else min(n_factors, most_factors(n_features))
    covariance_type = covariance_type_of(model, summary.n_rows, n_features)
    structure = structure_of(covariance_type, n_factors)
    options = options_of(model, n_features, covariance_type)
    frame = summary.frame(structure, columns)
    saved, resume = None, None
    if path is not None and not prune:
        saved = SavedRun(path, model, frame, training.classes, training.sizes)
        resume = saved.read()
    # A fit that goes on from the last one has the same prior, or its objective would change.
    last = {name: vars(model).get(name) for name in OF_LEARNT_PRIORS}
    goes_on = _goes_on(model, training, structure) and last["prior_setting_"] == model.covariance_prior
    for name in (*OF_LEARNT_PRIORS, *OF_SHIFTS, "stream_"):
        vars(model).pop(name, None)
    # With callbacks, and when pruning, all starts run together.
    apart = path is None and watching is None and not prune
    groups = start_groups(model, training, frame, structure, NUMBERS_TOGETHER if apart else None)
    groups = (with_tails(model, group, source) for group in groups)
    given = next(groups)
    if _goes_on(model, training, structure) and model.weight_prior == "hierarchical":
        prior = last["weight_prior_"]
        given = replace(given, concentration=None if prior is None else prior[None])
    X, _, weights = _some_rows(training)
    options = with_resolution(model, options, X, weights, frame)
    if (
        isinstance(model.covariance_prior, str)
        and options.inference == "em"
        and not (prune or options.freeze)
    ):
        # The floor is a multiple of the features' variances, so that other rows have another.
        same = goes_on and np.array_equal(last["variance_floor_"], model.variance_floor_)
        last_prior = last["covariance_prior_"] if same else None
        options = _with_default_prior(model, training, given, options, frame, saved, resume, last_prior)
    log_volume = float(summary.observed.sum(axis=0) @ np.log(frame.scale))
    best: Result | None = None
    status, reached = [], []
    fell: list[list[float]] = []
    with saving(saved) if saved else nullcontext(), watching or nullcontext() as report:

        def after_pass(run: Run) -> None:
            if report is not None:
                report(run, frame, structure, log_volume)
            if saved is not None:
                saved(run)

        callback = None if apart else after_pass
        for group in chain([given], groups):
            if prune:
                result = prune_kernels(source, group, options, frame=frame, callback=callback)
            else:
                result = fit(source, group, options, frame=frame, callback=callback, resume=resume)
            status.append(result.status)
            reached.append(result.log_likelihood.sum(axis=1))
            fell += [] if result.fell is None else result.fell[~np.isnan(result.fell[:, 0])].tolist()
            best = result if best is None or _objective(result) > _objective(best) else best
    assert best is not None
    if fell:
        problem = f"{len(fell)} of {model.n_init} starts failed. {say_fall(*fell[0])}"
        if all(np.all(own == Status.FAILED) for own in status):
            raise ValueError(problem)
        warn_caller(problem)
    # Not even the last bit may change, as it does from one system of coordinates to the other.
    best = replace(best, parameters=with_frozen(options.freeze, best.parameters, given))
    _store(model, best, np.concatenate(status), np.concatenate(reached), training, prune)
    if model.group_shift is not None:
        _shift_groups(model, training, best.parameters.take(best.best), options, frame)


def _shift_groups(model: Any, training: Training, start: Parameters, options: Options, frame: Frame) -> None:
    """Give the groups of a fitted mixture means of their own, and fit everything else with them."""
    source, n_groups, strength = training.source, len(training.classes), model.group_shift
    if strength == "auto":
        seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
        strength = choose_strength(source, start, options, frame, seed) if n_groups > 1 else np.inf
    model.group_shift_ = float(strength)
    model.group_shifts_ = np.zeros((n_groups, *start.means.shape))
    # The mean of one group is the common one.
    if n_groups == 1 or np.isinf(strength):
        return
    found = shift_groups(GroupRows(source, n_groups), start, model.group_shift_, options, frame)
    parameters = with_frozen(options.freeze, found.parameters, start)
    vars(model).update(model._fitted_attributes(parameters, float(found.log_likelihood.sum()), training))
    model.group_shifts_ = found.shifts
    model.n_iter_ += len(found.path)
    model.log_likelihood_path_ = np.concatenate([model.log_likelihood_path_, found.path])
    if parameters.concentration is not None and found.counts is not None:
        model.weight_prior_ = parameters.concentration
        model.weight_concentration_ = found.counts + parameters.concentration[:, None]
        model.lower_bound_ = float(found.objective[-1])
        model.lower_bound_path_ = np.concatenate([model.lower_bound_path_, found.objective[1:]])
    if not found.converged and model.converged_:
        model.converged_ = False
        warn_caller(
            f"The shifts of groups did not converge in {len(found.path)} passes. "
            f"Increase max_iter ({model.max_iter}) or tol ({model.tol}).",
            ConvergenceWarning,
        )


def _objective(result: Result) -> float:
    """Return the objective of the best start that did not fail."""
    return float(np.where(result.status == Status.FAILED, -np.inf, result.objective).max())


def _with_default_prior(
    model: Any,
    training: Training,
    given: Parameters,
    options: Options,
    frame: Frame,
    saved: SavedRun | None,
    resume: RunState | None,
    last: tuple[float, FloatArray] | None,
) -> Options:
    """Return options with the prior of ``covariance_prior='auto'`` or 'weak'.

    The prior is that of a checkpoint or of the last fit, found by a first fit where rows are few, or a mild
    one.
    """
    summary, structure = training.source.summary, structure_of(options.covariance_type).of(given.covariances)
    n_kernels, n_features = given.means.shape[1:]
    # Weights that sum to one do not mean that there is one row.
    unit = min(1.0, summary.total / summary.n_rows)
    prior = saved.prior if saved is not None and resume is not None else last
    if prior is None and resume is None:
        one = given.take(0)
        few = summary.total / unit / n_kernels < structure.rows_wanted(n_features)
        if few and structure.pools_as is not None and not are_separate(one.weights):
            found = with_shrinkage(training.source, given, options, frame=frame)
            if found.covariance_prior is not None and found.covariance_prior_scale is not None:
                prior = found.covariance_prior, found.covariance_prior_scale
        elif isinstance(model.init, str) and model.init != "uniform":
            # Few rows may have a label, and others are in no class.
            rows, codes, weights = _some_rows(
                training, labelled=True, frame=frame if is_robust(model) else None
            )
            masses = None if weights is None else weights / unit
            regulariser = regulariser_of(options, frame, structure, n_kernels)
            strength, common = prior_of_start(rows, codes, masses, one, structure, regulariser, frame)
            prior = strength * unit, common
        if prior is not None and model.covariance_prior == "weak":
            prior = _WEAK * prior[0], prior[1]
    if prior is not None:
        options = replace(options, covariance_prior=prior[0], covariance_prior_scale=prior[1])
    if options.covariance_prior is not None and options.covariance_prior_scale is not None:
        model.covariance_prior_ = options.covariance_prior, options.covariance_prior_scale
        model.prior_setting_ = model.covariance_prior
        model.shrinkage_ = share_of(options.covariance_prior, summary.total / n_kernels)
        if saved is not None:
            saved.prior = model.covariance_prior_
    return options


def with_resolution(
    model: Any, options: Options, X: FloatArray, weights: FloatArray | None, frame: Frame
) -> Options:
    """Return options with the resolution of the features as a floor, and store that floor in the mixture.

    Maximum likelihood, variational fits and frozen parameters have none. X (n, M) are rows on the host with
    weights (n,). A mixture that has a resolution already, in a stream, keeps the finer one of each feature.
    """
    last = vars(model).pop("resolution_", None)
    vars(model).pop("variance_floor_", None)
    if model.covariance_prior is None or options.inference != "em" or options.freeze is not None:
        return options
    found, least = resolution_of(X, weights, frame), options.floor * frame.variance * frame.scale**2
    if last is not None:
        # A feature has no resolution in a batch where it is constant.
        found = np.where((found > 0) & (last > 0), np.minimum(found, last), np.maximum(found, last))
    model.resolution_ = found
    model.variance_floor_ = np.maximum(least, found)
    return replace(options, resolution=model.variance_floor_)


def _some_rows(
    training: Training, *, labelled: bool = False, frame: Frame | None = None
) -> tuple[FloatArray, IntArray, FloatArray | None]:
    """Return at most `_SOME_ROWS` of the rows for starts, evenly spaced, on the host.

    Of labelled rows only, gaps are filled, and outliers are left out if a frame is given.
    """
    rows, codes, weights = training.source.start_rows()
    if labelled and training.source.summary.gaps:
        rows = fill_gaps(rows, codes)
    if frame is not None:
        rows, codes, weights = starts.without_outliers(rows, codes, weights, frame)
    among = np.flatnonzero(codes >= 0) if labelled else np.arange(len(codes))
    chosen = among[evenly_spaced(len(among))]
    some = to_numpy(pick(rows, chosen)).astype(np.float64)
    return some, codes[chosen], None if weights is None else weights[chosen]


def evenly_spaced(n_rows: int) -> IntArray:
    """Return at most `_SOME_ROWS` of the numbers of n rows."""
    return np.unique(np.linspace(0, n_rows - 1, _SOME_ROWS).round().astype(np.int64))


# ---------------------------------------------------------------- settings


def options_of(model: Any, n_features: int, covariance_type: str) -> Options:
    """Return the engine's options for the settings of a mixture; its covariance type may be 'auto'."""
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
        # A floor would raise covariances that are to stay as they are.
        floor=0.0 if freeze == "kernels" else model.variance_floor,
        covariance_prior=rows,
        covariance_prior_scale=scale,
        weight_prior=model.weight_prior,
        n_jobs=effective_n_jobs(model.n_jobs),
        accelerate=model.accelerate,
        freeze=freeze,  # type: ignore[arg-type]
        precision=device_and_precision(model.device)[1],  # type: ignore[arg-type]
        inference=model.inference,
        learn_degrees=check_tail(model.tail) == ("t", None),
    )


def with_tails(model: Any, start: Parameters, source: RowSource) -> Parameters:
    """Return starts with degrees of freedom and a background, as the settings of a mixture ask for them.

    A given or earlier start keeps its own, but for degrees of freedom that are fixed.
    """
    (kind, fixed), (n_starts, n_kernels, _) = check_tail(model.tail), start.means.shape
    is_t, freeze = kind == "t", freeze_of(model)
    tail: Tail = NONE
    if isinstance(model.init, Mapping) and "degrees" in model.init and model.tail != "t":
        raise ValueError(f"init has 'degrees', which only tail='t' starts from, and tail is {model.tail!r}.")
    given = start.tail.name == "t"
    if is_t and not given and fixed is None and freeze == "kernels":
        raise ValueError(
            "freeze='kernels' keeps the degrees of freedom too: init must have 'degrees', or tail be "
            "('t', degrees)."
        )
    if is_t and (fixed is not None or not given):
        tail = StudentT.begin(n_starts, n_kernels, START_DEGREES if fixed is None else fixed)
    elif is_t and isinstance(start.tail, StudentT):
        tail = start.tail if freeze == "kernels" else start.tail.within_range()
    if kind == "background":
        moments, n_classes = source.summary.moments, start.weights.shape[-1]
        # A feature that does not vary has an interval of one unit.
        away = np.where(moments.high > moments.low, 0.0, 0.5 * moments.unit)
        tail = Background.begin(n_starts, n_classes, moments.low - away, moments.high + away)
        if isinstance(start.tail, Background):
            tail = replace(tail, weights=start.tail.weights)
    return replace(start, tail=tail)


def fitted_options(model: Any) -> Options:
    """Return the engine's options for a fitted mixture, with its default prior and floor."""
    options = options_of(model, model.n_features_in_, model.covariance_type_)
    if hasattr(model, "covariance_prior_"):
        rows, scale = model.covariance_prior_
        options = replace(options, covariance_prior=rows, covariance_prior_scale=scale)
    return replace(options, resolution=getattr(model, "variance_floor_", None))


def check_inference(estimator: Any, *, prune: bool = False) -> None:
    """Refuse settings that do not go with the kind of inference, with t kernels, or with pruning."""
    freeze, (stopping, _) = freeze_of(estimator), check_tol(estimator.tol)
    check_covariance_type(estimator.covariance_type)
    if is_robust(estimator):
        what = f"tail={estimator.tail!r}"
        for name, default in (("inference", "em"), ("accelerate", False), ("device", None)):
            value = getattr(estimator, name)
            if value != default:
                raise ValueError(f"{what} cannot be combined with {name}={value!r}: leave it at {default!r}.")
        if estimator.tail == "background" and freeze == "weights":
            raise ValueError(
                f"{what} cannot be combined with freeze='weights': the background's weight would stay."
            )
    variational, hierarchical = estimator.inference == "variational", estimator.weight_prior == "hierarchical"
    for given, what, fits in (
        (estimator.accelerate, "accelerate=True", False),
        (freeze is not None, f"freeze={freeze!r}", freeze == "kernels"),
        (stopping != "total", f"tol={estimator.tol!r}", False),
    ):
        if given and variational:
            raise ValueError(f"{what} is for EM and cannot be combined with inference='variational'.")
        if given and hierarchical and not fits:
            raise ValueError(
                f"{what} cannot be combined with weight_prior='hierarchical', whose weights have a posterior."
            )
    if estimator.group_shift is not None:
        for wrong, what in (
            (variational, "inference='variational'"),
            (is_robust(estimator), "t kernels or a background"),
            (stopping != "total", f"tol={estimator.tol!r}"),
            (prune, "pruning"),
        ):
            if wrong:
                raise ValueError(
                    f"group_shift={estimator.group_shift!r} cannot be combined with {what}: use one of them."
                )
    if prune and hierarchical:
        raise ValueError(
            "Pruning takes the last weight of a kernel away, and weight_prior='hierarchical' returns it: use "
            "one of them."
        )
    if variational or hierarchical:
        return
    weight_prior = estimator.weight_prior or 1.0
    if weight_prior < 1.0:
        raise ValueError(
            f"weight_prior={estimator.weight_prior} must be at least 1 for EM, whose weights would become "
            "negative; inference='variational' takes any positive number."
        )
    if prune and weight_prior > 1.0:
        raise ValueError(
            f"Pruning takes the last weight of a kernel away, and weight_prior={estimator.weight_prior} "
            "returns it: use one of them."
        )


# ---------------------------------------------------------------- starts


def start_groups(
    model: Any, training: Training, frame: Frame, structure: Structure, n_numbers: int | None = None
) -> Iterator[Parameters]:
    """Yield the starting points of a mixture, with a leading axis, in groups of few enough numbers.

    Starts are drawn one after the other, so that groups change none of them.
    """
    n_kernels, classes = model.n_kernels, training.classes
    n_classes, n_features = len(classes), training.n_features
    # Only rows without a label need class priors.
    prior = training.class_prior if training.n_unlabelled else None
    if _goes_on(model, training, structure):
        yield replace(model._parameters, class_prior=prior).batch()
        return
    freeze = freeze_of(model)
    if freeze is not None:
        frozen = {"weights": "weights", "kernels": "covariances"}[freeze]
        if model.init.get(frozen) is None:
            raise ValueError(
                f"freeze={freeze!r} keeps what a start gives, so init must have {frozen!r}, "
                f"got the keys {sorted(map(str, model.init))}."
            )
    if not isinstance(model.init, str):
        variances = frame.variance * frame.scale**2
        start = check_start(model.init, structure, n_kernels, n_classes, variances)
        yield replace(start, class_prior=prior).batch()
        return
    init = "k-means++" if model.init == "auto" else model.init
    own_kernels = None
    if n_kernels is None:
        own_kernels = default_kernels(training, structure, shared=model.init == "auto")
    n_kernels = int(own_kernels.sum()) if own_kernels is not None else int(n_kernels)
    random_state = check_random_state(model.random_state)
    rows, codes, weights = training.source.start_rows()
    if training.source.summary.gaps:
        rows = fill_gaps(rows, codes)
    if init == "class" and prior is not None:
        own = np.flatnonzero(codes >= 0)
        rows, codes, weights = pick(rows, own), codes[own], None if weights is None else weights[own]
    if is_robust(model):
        rows, codes, weights = starts.without_outliers(rows, codes, weights, frame)
    size = np.prod(structure.shape(n_kernels, n_features))
    together = model.n_init if n_numbers is None else max(1, int(n_numbers // size))
    for first in range(0, model.n_init, together):
        n_starts = min(together, model.n_init - first)
        shared = n_starts, n_kernels, frame.standardised(structure), structure, random_state, weights
        if init == "uniform":
            found = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
        elif init == "class":
            found = starts.class_wise(rows, codes, n_classes, *shared, own_kernels)
        elif init == "k-means":
            found = starts.k_means(rows, codes, n_classes, *shared)
        else:
            choose = starts.k_means_plus_plus if init == "k-means++" else starts.random_from_data
            found = choose(rows, n_classes, *shared)
        yield found if prior is None else replace(found, class_prior=np.tile(prior, (n_starts, 1)))


def _goes_on(model: Any, training: Training, structure: Structure) -> bool:
    """Return whether a fit starts from the parameters of the last one."""
    if not model.warm_start or "weights_" not in vars(model):
        return False
    last = (model.covariance_type_, model.classes_.tolist(), model.means_.shape)
    n_kernels, n_features = model.n_kernels or len(model.means_), training.n_features
    same_shape = model.covariances_.shape == structure.shape(n_kernels, n_features)
    return same_shape and last == (structure.name, training.classes.tolist(), (n_kernels, n_features))


def default_kernels(training: Training, structure: Structure, *, shared: bool) -> IntArray:
    """Return the default number (L,) of kernels of each class, or (1,) of all where they are shared.

    It is √(n / 2p), for n rows, the geometric mean over classes, and p parameters of a kernel. A class has at
    most one kernel for M + 1 of its rows and 50 in all, and at least one. Classes with different numbers
    would compete on unequal terms. Shared kernels are as many as one class of all rows would have. Weights of
    rows are relative: neither small nor large ones change their number.
    """
    summary, n_features = training.source.summary, training.n_features
    rows = training.sizes * (summary.n_rows / summary.total)
    if shared:
        rows = np.array([summary.n_rows], dtype=np.float64)
    n_parameters = 2.0 * price_of_kernel(structure, n_features)
    usual = np.sqrt(np.exp(np.log(rows).mean()) / (2.0 * n_parameters)).round()
    most = np.minimum(rows // (n_features + 1), _MOST_KERNELS)
    return np.maximum(1, np.minimum(usual, most)).astype(np.int64)


# ---------------------------------------------------------------- results


def _store(
    model: Any, result: Result, status: IntArray, reached: FloatArray, training: Training, prune: bool
) -> None:
    """Store the best start of a fit in a mixture, and the status and log-likelihood (n_init,) of all."""
    best = best_start(result, model.variance_floor, len(status))
    parameters = result.parameters.take(best)
    structure = structure_of(covariance_type_of(model, training.source.summary.n_rows, training.n_features))
    if prune or model.inference == "variational":
        parameters = living_kernels(parameters, structure)
    log_likelihood = float(result.log_likelihood[best].sum())
    for name in OF_KERNELS:
        vars(model).pop(name, None)
    vars(model).update(model._fitted_attributes(parameters, log_likelihood, training))
    model.converged_ = bool(result.status[best] == Status.CONVERGED)
    model.n_iter_ = int(result.n_iter[best])
    model.log_likelihood_path_ = result.path[best]
    model.start_status_ = np.array([Status(s).name.lower() for s in status])
    model.start_log_likelihoods_ = reached
    for name in (*OF_THE_POSTERIOR, *OF_POPULATIONS):
        vars(model).pop(name, None)
    if result.counts is not None and result.bounds is not None:
        # Without superfluous kernels.
        prior, counts = result.prior, result.counts[best]
        alive = np.flatnonzero(result.parameters.weights[best].any(axis=1))
        model.lower_bound_ = float(result.objective[best])
        model.lower_bound_path_ = result.bounds[best]
        if parameters.concentration is not None:
            model.weight_prior_ = parameters.concentration
            model.weight_concentration_ = counts[alive] + parameters.concentration[:, None]
        elif prior is not None:
            model.weight_concentration_ = counts[alive] + prior.concentration
    if result.counts is not None and prior is not None:
        rows = counts.sum(axis=1)
        wishart = structure.wishart(len(prior.covariance))
        degrees = degrees_of_freedom(counts[None], wishart, prior.covariance_rows)[0]
        model.mean_precision_ = rows[alive] + prior.mean_rows
        model.degrees_of_freedom_ = np.broadcast_to(degrees, rows.shape)[alive].copy()
    if not model.converged_:
        warn_caller(
            f"The best of {len(status)} starts did not converge in {model.n_iter_} passes. "
            f"Increase max_iter ({model.max_iter}) or tol ({model.tol}).",
            ConvergenceWarning,
        )


def best_start(result: Result, variance_floor: float, n_starts: int) -> int:
    """Return the number of the best start; refuse a result of failed ones alone."""
    if np.all(result.status == Status.FAILED):
        raise ValueError(
            f"All {n_starts} starts ended in a singular covariance, with variance_floor="
            f"{variance_floor}. Use a larger one (1e-6 by default), a covariance_prior or another start."
        )
    return result.best


# ---------------------------------------------------------------- feature sets and unlabelled rows


def fit_jointly(parts: Sequence[tuple[list[int], Any]], training: Training) -> None:
    """Fit the mixtures of all feature sets, given with their columns, where some rows have no label.

    Rows are in memory. The mixtures are fitted on return, with a common `class_prior_`.
    """
    settings = parts[0][1]
    needs = {
        "all rows in memory": training.blocks is None,
        "inference='em'": settings.inference == "em",
        "a weight_prior other than 'hierarchical'": settings.weight_prior != "hierarchical",
        "accelerate=False": not settings.accelerate,
        "tol=tolerance": check_tol(settings.tol)[0] == "total",
    }
    if not all(needs.values()):
        raise ValueError(
            f"{training.n_unlabelled} rows have no label, and with several feature sets such rows need "
            f"{next(need for need, is_met in needs.items() if not is_met)}. Leave them out, or fit one group."
        )
    # EM over all groups begins with fits of each.
    for group, (columns, model) in enumerate(parts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit_model(model, training.take(columns, group), columns)
    X, codes, weights = training.source.start_rows()
    weights, n_classes = np.ones(len(X)) if weights is None else weights, len(training.classes)
    known, open_ = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    # Every row without a label appears once for each class; its weights change from pass to pass.
    every = np.concatenate([known, np.repeat(open_, n_classes)])
    every_code = np.concatenate([codes[known], np.tile(np.arange(n_classes), len(open_))])
    rows, prior = X[every], training.class_prior
    path: list[FloatArray] = []
    objective = -np.inf
    while True:
        likelihoods = [
            class_log_likelihood(
                columns_of(X[open_], columns),
                model._parameters,
                model.covariance_type_,
                effective_n_jobs(model.n_jobs),
            )
            for columns, model in parts
        ]
        joint = np.log(prior) + sum(likelihoods)
        evidence = logsumexp(joint, axis=1)
        shares = weights[open_, None] * np.maximum(np.exp(joint - evidence[:, None]), _NEGLIGIBLE)
        now = np.concatenate([weights[known], shares.ravel()])
        of_known, log_prior, rounding = training.sizes * np.log(prior), 0.0, 0.0
        following = []
        for (columns, model), likelihood in zip(parts, likelihoods, strict=True):
            # A row without a value in the group counts in the others.
            own = Block(columns_of(rows, columns), every_code, now).informative()
            parameters, found, lost = _one_pass(model, own, columns)
            following.append(parameters)
            of_known = of_known + found[:-1] - (shares * likelihood).sum(axis=0)
            log_prior, rounding = log_prior + found[-1], rounding + lost
        path.append(np.append(of_known, weights[open_] @ evidence))
        before, objective = objective, float(path[-1].sum() + log_prior)
        if before - objective > rounding:
            raise ValueError(say_fall(before, objective))
        gain = path[-1].sum() - path[-2].sum() if len(path) > 1 else np.inf
        converged = bool(abs(gain) < check_tol(settings.tol)[1] * weights.sum())
        if converged or len(path) == settings.max_iter:
            break
        for (_, model), parameters in zip(parts, following, strict=True):
            model._store_parameters(parameters)
        sizes = training.sizes + shares.sum(axis=0)
        prior = sizes / sizes.sum()
    for _, model in parts:
        model.class_prior_ = prior
        model.n_iter_ = len(path)
        model.converged_ = converged
        # Of rows and labels together, and of all groups: the same for each model.
        model.log_likelihood_ = float(path[-1].sum())
        model.log_likelihood_path_ = np.array(path)
    if not converged:
        warn_caller(
            f"EM over unlabelled rows did not converge in {len(path)} passes. Increase max_iter or tol.",
            ConvergenceWarning,
        )


def _one_pass(model: Any, rows: Block, columns: list[int]) -> tuple[Parameters, FloatArray, float]:
    """Return parameters after one pass over labelled, weighted rows, and what the objective before it is.

    This is an array (L + 1,) of the log-likelihood of each class and the log-prior. The last number is by how
    much rounding may lower their sum.
    """
    options, current = fitted_options(model), model._parameters.batch()
    structure = structure_of(options.covariance_type).of(current.covariances)
    source = open_source(rows.X, rows.y, rows.weights)
    frame = source.summary.frame(structure, columns)
    inside = frame.enter(current, structure)
    factor = structure.factor(inside.covariances, len(columns))
    with workers(options.n_jobs) as pool:
        setting = make_setting(source, inside, frame, structure, pool, options)
        rule = rule_of(options, setting, current.means.shape[1], source)
        found, following, parts = one_pass(source, setting, rule, inside, factor)
    if not following.usable[0] or not np.isfinite(parts).all():
        raise ValueError(
            f"A covariance of the features {columns} became singular, with variance_floor="
            f"{model.variance_floor}. Use a larger one (1e-6 by default) or a covariance_prior."
        )
    volume = source.summary.by_class(source.summary.observed, parts.shape[1] - 1) @ np.log(frame.scale)
    found = with_frozen(rule.freeze, frame.leave(found, structure).take(0), model._parameters)
    found = replace(found, tail=found.tail.at_place_of(model._parameters.tail))
    lost = rounding_of(parts.sum(axis=1), source, setting, inside, factor)[0]
    return found, parts[0] - np.append(volume, 0.0), float(lost)
