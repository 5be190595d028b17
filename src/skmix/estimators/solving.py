"""Fits of one mixture: settings and training rows to starts, through the engine, to fitted attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.compute.arrays import pick
from ..engine.covariances import Structure, most_factors, structure_of
from ..engine.em import Run, RunState, fit
from ..engine.model import FloatArray, IntArray, Options, Parameters, Result, Status
from ..engine.refine.prune import living_kernels, prune_kernels
from ..engine.refine.shrink import share_of, with_shrinkage
from ..engine.rules.variational import degrees_of_freedom
from ..engine.sources.summary import Frame, fill_gaps
from ._settings import check_covariance_prior, check_start, shrinks
from ._warnings import warn_caller
from .callbacks import Monitor, SavedRun, saving
from .rows import Training, device_and_precision

OF_THE_POSTERIOR = (
    "lower_bound_",
    "lower_bound_path_",
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
)
OF_SHRINKAGE = ("shrinkage_", "covariance_prior_")
# Starts run together while their covariances have at most this many numbers, otherwise in several groups.
NUMBERS_TOGETHER = 1 << 17


def fit_model(
    model: Any,
    training: Training,
    columns: list[int] | None = None,
    *,
    monitor: Monitor | None = None,
    attributes: Any = None,
    path: Path | None = None,
    prune: bool = False,
) -> None:
    """Fit a mixture to training rows of its features, and set its attributes.

    `columns` are for error messages; `monitor` calls callbacks, for which `attributes` makes attributes of
    parameters and log-likelihood after a pass; `path` is the file of a checkpoint. With `prune`, the fit
    starts with `n_kernels` and removes those that do not pay for their parameters.
    """
    outcome = solve(model, training, columns, monitor=monitor, attributes=attributes, path=path, prune=prune)
    store_result(model, *outcome, training, prune=prune)
    model.class_count_ = training.sizes
    vars(model).pop("stream_", None)


def solve(
    model: Any,
    training: Training,
    columns: list[int] | None = None,
    *,
    monitor: Monitor | None = None,
    attributes: Any = None,
    path: Path | None = None,
    prune: bool = False,
) -> tuple[Result, IntArray, FloatArray]:
    """Run all starts, or resume those of a checkpoint; see `fit_model`.

    Returns the result of the starts that ran together with the best, and of all starts (n_init,) the status
    and the log-likelihood they reached.
    """
    structure = structure_for(model, training.n_features)
    options, summary = options_of(model, training.n_features), training.source.summary
    frame = summary.frame(structure, columns)
    saved = None
    if path is not None and not prune:
        saved = SavedRun(path, model, frame, training.classes, training.sizes)
    resume = None if saved is None else saved.read()
    # With callbacks, and when pruning, all starts run together.
    told_of = path is not None or (monitor is not None and monitor.active) or prune
    groups = start_groups(model, training, frame, structure, None if told_of else NUMBERS_TOGETHER)
    given = next(groups)
    for name in OF_SHRINKAGE:
        vars(model).pop(name, None)
    n_kernels, n_features = given.means.shape[1:]
    # Weights that sum to one do not mean that there is one row.
    rows_per_kernel = max(summary.total, summary.n_rows) / n_kernels
    if not prune and shrinks(model, rows_per_kernel, structure.of(given.covariances).rows_wanted(n_features)):
        options = _shrink(model, training, given, options, frame, saved, resume)
    watching: Any = nullcontext() if monitor is None else monitor.model(attributes, summary.total)
    log_volume = float(summary.observed.sum(axis=0) @ np.log(frame.scale))
    with saving(saved), watching as told:

        def after_pass(run: Run) -> None:
            if told is not None:
                told(run, frame, structure, log_volume)
            if saved is not None:
                saved(run)

        if prune:
            callback = None if told is None else after_pass
            results = iter([prune_kernels(training.source, given, options, frame=frame, callback=callback)])
        else:
            callback = None if told is None and saved is None else after_pass
            results = (
                fit(training.source, starts, options, frame=frame, callback=callback, resume=resume)
                for starts in chain([given], groups)
            )
        best = next(results)
        status, reached = [best.status], [best.log_likelihood.sum(axis=1)]
        for result in results:
            status.append(result.status)
            reached.append(result.log_likelihood.sum(axis=1))
            best = result if _objective(result) > _objective(best) else best
    if model.freeze is not None:
        # Not even the last bit may change, as it does from one system of coordinates to the other.
        frozen = {"weights": ("weights",), "kernels": ("means", "covariances")}[model.freeze]
        kept = {name: getattr(given, name).copy() for name in frozen}
        best = replace(best, parameters=replace(best.parameters, **kept))
    return best, np.concatenate(status), np.concatenate(reached)


def _objective(result: Result) -> float:
    """Return the objective of the best start that did not fail."""
    return float(np.where(result.status == Status.FAILED, -np.inf, result.objective).max())


def _shrink(
    model: Any,
    training: Training,
    given: Parameters,
    options: Options,
    frame: Frame,
    saved: SavedRun | None,
    resume: RunState | None,
) -> Options:
    """Return options with the prior that shrinks covariances, found by a first fit or before a checkpoint."""
    if resume is None:
        options = with_shrinkage(training.source, given, options, frame=frame)
    elif saved is not None and saved.prior is not None:
        options = replace(options, covariance_prior=saved.prior[0], covariance_prior_scale=saved.prior[1])
    if options.covariance_prior is not None and options.covariance_prior_scale is not None:
        model.covariance_prior_ = options.covariance_prior, options.covariance_prior_scale
        rows_per_kernel = training.source.summary.total / given.means.shape[1]
        model.shrinkage_ = share_of(options.covariance_prior, rows_per_kernel)
        if saved is not None:
            saved.prior = model.covariance_prior_
    return options


# ---------------------------------------------------------------- settings


def structure_for(model: Any, n_features: int) -> Structure:
    """Return the structure of covariances to fit to that many features."""
    n_factors = None if model.n_factors is None else min(model.n_factors, most_factors(n_features))
    return structure_of(model.covariance_type, n_factors)


def options_of(model: Any, n_features: int) -> Options:
    """Return the engine's options for the settings of a mixture."""
    rows, scale = check_covariance_prior(model.covariance_prior, n_features)
    return Options(
        covariance_type=model.covariance_type,
        max_iter=model.max_iter,
        tol=model.tol,
        stopping=model.stopping,
        # A floor would raise covariances that are to stay as they are.
        floor=0.0 if model.freeze == "kernels" else model.variance_floor,
        covariance_prior=rows,
        covariance_prior_scale=scale,
        weight_prior=model.weight_prior,
        n_jobs=effective_n_jobs(model.n_jobs),
        accelerate=model.accelerate,
        freeze=model.freeze,
        precision=device_and_precision(model.device)[1],  # type: ignore[arg-type]
        inference=model.inference,
    )


def fitted_options(model: Any) -> Options:
    """Return the engine's options for a fitted mixture, with the prior that shrank it."""
    options = replace(options_of(model, model.n_features_in_), covariance_type=model.covariance_type_)
    if hasattr(model, "covariance_prior_"):
        rows, scale = model.covariance_prior_
        options = replace(options, covariance_prior=rows, covariance_prior_scale=scale)
    return options


def check_inference(estimator: Any, *, prune: bool = False) -> None:
    """Refuse settings that do not go with the kind of inference, or with pruning."""
    if estimator.inference == "variational":
        for name, default in (("accelerate", False), ("freeze", None), ("stopping", "total")):
            if getattr(estimator, name) != default:
                raise ValueError(
                    f"{name}={getattr(estimator, name)!r} is for EM and does not go with "
                    f"inference='variational': leave it at {default!r}."
                )
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
    if model.warm_start and "weights_" in vars(model):
        last = (model.covariance_type_, model.classes_.tolist(), model.means_.shape)
        expected = len(model.means_) if n_kernels is None else n_kernels
        same_shape = model.covariances_.shape == structure.shape(expected, n_features)
        if same_shape and last == (model.covariance_type, classes.tolist(), (expected, n_features)):
            yield replace(model._parameters, class_prior=prior).batch()
            return
    if model.freeze is not None and (isinstance(model.init, str) or model.freeze not in _given(model.init)):
        raise ValueError(
            f"freeze={model.freeze!r} keeps what a start gives, so init must be a dict with them; "
            f"got init={model.init!r}."
        )
    if not isinstance(model.init, str):
        variances = frame.variance * frame.scale**2
        start = check_start(model.init, structure, n_kernels, n_classes, variances)
        yield replace(start, class_prior=prior).batch()
        return
    n_kernels = n_classes if n_kernels is None else int(n_kernels)
    random_state = check_random_state(model.random_state)
    rows, codes, weights = training.source.start_rows()
    if training.source.summary.gaps:
        rows = fill_gaps(rows, codes)
    if model.init == "class" and prior is not None:
        own = np.flatnonzero(codes >= 0)
        rows, codes, weights = pick(rows, own), codes[own], None if weights is None else weights[own]
    size = np.prod(structure.shape(n_kernels, n_features))
    together = model.n_init if n_numbers is None else max(1, int(n_numbers // size))
    for first in range(0, model.n_init, together):
        n_starts = min(together, model.n_init - first)
        shared = n_starts, n_kernels, frame, structure, random_state, weights
        if model.init == "uniform":
            found = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
        elif model.init == "class":
            found = starts.class_wise(rows, codes, n_classes, *shared)
        else:
            choose = starts.k_means_plus_plus if model.init == "k-means++" else starts.random_from_data
            found = choose(rows, n_classes, *shared)
        yield found if prior is None else replace(found, class_prior=np.tile(prior, (n_starts, 1)))


def _given(init: Mapping[str, Any]) -> set[str]:
    """Return what of a model a start gives."""
    given = {"weights"} if init.get("weights") is not None else set()
    return given | ({"kernels"} if init.get("covariances") is not None else set())


# ---------------------------------------------------------------- results


def store_result(
    model: Any,
    result: Result,
    status: IntArray,
    reached: FloatArray,
    training: Training,
    *,
    prune: bool = False,
) -> None:
    """Store the best start of a fit in a mixture, and the status and log-likelihood (n_init,) of all."""
    best = best_start(result, model.variance_floor, len(status))
    parameters = result.parameters.take(best)
    if prune or model.inference == "variational":
        parameters = living_kernels(parameters, structure_of(model.covariance_type))
    prior = parameters.class_prior
    model.covariance_type_ = model.covariance_type
    model.classes_ = training.classes
    model.class_prior_ = training.class_prior if prior is None else prior
    model._store_parameters(parameters)
    model.converged_ = bool(result.status[best] == Status.CONVERGED)
    model.n_iter_ = int(result.n_iter[best])
    model.log_likelihood_ = float(result.log_likelihood[best].sum())
    model.log_likelihood_path_ = result.path[best]
    model.start_status_ = np.array([Status(s).name.lower() for s in status])
    model.start_log_likelihoods_ = reached
    _store_posterior(model, result, best)
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


def _store_posterior(model: Any, result: Result, start: int) -> None:
    """Store the posterior of a variational fit, without superfluous kernels; none where EM was used."""
    for name in OF_THE_POSTERIOR:
        vars(model).pop(name, None)
    if result.counts is None or result.prior is None or result.bounds is None:
        return
    prior, counts = result.prior, result.counts[start]
    alive = np.flatnonzero(result.parameters.weights[start].any(axis=1))
    rows = counts.sum(axis=1)
    wishart = structure_of(model.covariance_type).wishart(len(prior.covariance))
    degrees = degrees_of_freedom(counts[None], wishart, prior.covariance_rows)[0]
    model.lower_bound_ = float(result.objective[start])
    model.lower_bound_path_ = result.bounds[start]
    model.weight_concentration_ = counts[alive] + prior.concentration
    model.mean_precision_ = rows[alive] + prior.mean_rows
    model.degrees_of_freedom_ = np.broadcast_to(degrees, rows.shape)[alive].copy()
