"""The samples of a fit, and fits of new samples: weights, sizes, shifts and log-likelihoods."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import digamma
from sklearn.exceptions import ConvergenceWarning

from ..data import Source
from ..engine.after.shifts import shift_groups
from ..engine.loop import fit
from ..engine.problem import Problem
from ..engine.records import FloatArray, IntArray, Status, frame_of
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from ..model.checks import warn_caller
from ..model.densities import has_shifts
from ..model.fitted import Fitted, shares_of
from ..model.rows import enter
from ..model.settings import Settings

# The fit of new samples stops when a pass gains less log-likelihood than this, in nats over all cells.
_GAIN = 1e-3
# Most passes of that fit.
_PASSES = 2000


@dataclass(frozen=True)
class Samples:
    """L samples with their fitted weights."""

    names: np.ndarray  # (L,)
    sizes: FloatArray  # (L,): cells, or sums of their weights
    weights: FloatArray  # (K, L): of the kernels
    counted: FloatArray  # (K, L): the same without a learnt prior
    shifts: FloatArray | None  # (L, K, M): of the means
    log_likelihoods: FloatArray  # (L,): means over cells; NaN if unknown

    def take(self, chosen: IntArray) -> Samples:
        """Return the samples of the given indices."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            last = name in ("weights", "counted")
            found[name] = None if value is None else value[:, chosen] if last else value[chosen]
        return Samples(**found)


def fitted_samples(model: Any) -> Samples:
    """Return the samples to which a mixture was fitted."""
    fitted = Fitted.of(model)
    assert fitted is not None
    return Samples(
        names=fitted.classes,
        sizes=fitted.class_count,
        weights=fitted.weights,
        counted=fitted.counted_weights,
        shifts=model.group_shifts_ if has_shifts(model) else None,
        log_likelihoods=_log_likelihoods(fitted),
    )


def mixture_of(model: Any, samples: Samples) -> Any:
    """Return a mixture with the kernels of a model with NumPy arrays, whose classes are other samples."""
    other = copy(model)
    other.classes_, other.class_count_, other.weights_ = samples.names, samples.sizes, samples.weights
    other.class_prior_ = samples.sizes / samples.sizes.sum()
    if samples.shifts is not None:
        other.group_shifts_ = samples.shifts
    return other


def _log_likelihoods(fitted: Fitted) -> FloatArray:
    """Return the mean log-likelihood (L,) of the cells of each sample of a fit.

    It is NaN if the mixture does not have it, or if cells had missing values: their log-likelihoods cannot be
    compared with those of complete cells.
    """
    n_samples, sizes, history = len(fitted.classes), fitted.class_count, fitted.history
    if history is None or not len(history.log_likelihood_path) or sizes.min() <= 0 or history.has_gaps:
        return np.full(n_samples, np.nan)
    path = history.log_likelihood_path
    means = path[-1, :n_samples] / sizes
    if path.shape[1] > n_samples:
        # The path has the joint likelihood of rows and labels.
        means = means - np.log(fitted.class_prior)
    if fitted.weight_posterior is not None:
        # The path uses expected log-weights: replace them by logarithms of the weights.
        after = fitted.weight_posterior.weight_concentration
        logs = digamma(after) - digamma(after.sum(axis=0))
        means = means + (fitted.counted_weights * (np.log(fitted.weights) - logs)).sum(axis=0)
    return means


def prior_of(model: Any) -> tuple[FloatArray | None, bool]:
    """Return the cells (K,) that a prior adds to each sample, and whether weights are posterior means."""
    learnt, given, n_kernels = getattr(model, "weight_prior_", None), model.weight_prior, len(model.means_)
    if learnt is not None:
        return learnt, True
    if model.inference == "variational":
        number = 1.0 / (model.n_kernels or n_kernels) if given is None else given
        return np.full(n_kernels, float(number)), True
    # The mode of the posterior adds one cell less than the concentration of the prior.
    number = 1.0 if given is None or isinstance(given, str) else given
    return (np.full(n_kernels, number - 1.0) if number > 1.0 else None), False


def new_samples(model: Any, source: Source) -> Samples:
    """Fit the weights of new samples, and their shifts if the model has any; the kernels stay unchanged."""
    training = enter(copy(model), source).training(least=1)
    n_samples, (prior, has_posterior) = len(training.classes), prior_of(model)
    options = replace(
        Settings.of(model).options(model.covariance_type_, training.n_features),
        inference="em",
        freeze="kernels",
        floor=0.0,
        stopping="total",
        weight_prior="given" if has_posterior else None if prior is None else float(prior[0]) + 1.0,
        max_iter=_PASSES,
        tol=_GAIN / training.source.summary.total,
    )
    start = replace(
        model._parameters,
        weights=uniform_weights(1, len(model.means_), n_samples)[0],
        concentration=prior if has_posterior else None,
    )
    frame = frame_of(start, structure_of(model.covariance_type_))
    strength, shifts = getattr(model, "group_shift_", np.inf), None
    if np.isfinite(strength):
        problem = Problem.of(training.source, options, len(start.means), frame)
        shifted = shift_groups(problem, start, strength)
        converged, found, shifts = shifted.converged, shifted.parameters, shifted.shifts
        log_likelihood, counts = shifted.log_likelihood, shifted.counts
    else:
        result = fit(training.source, start.batch(), options, frame=frame)
        converged, found = result.status[0] == Status.CONVERGED, result.parameters.take(0)
        log_likelihood, counts = result.log_likelihood[0], result.counts
        counts = None if counts is None else counts[0]
    if not converged:
        warn_caller(f"The weights of new samples did not converge in {_PASSES} passes.", ConvergenceWarning)
    if training.source.summary.gaps:
        log_likelihood = np.full(n_samples, np.nan)
    return Samples(
        names=training.classes,
        sizes=training.sizes,
        weights=found.weights,
        counted=shares_of(counts, found.weights)
        if counts is not None and hasattr(model, "weight_prior_")
        else found.weights,
        shifts=shifts,
        log_likelihoods=log_likelihood / training.sizes,
    )
