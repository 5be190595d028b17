"""Groups with weights of their own: those of a fit, and new ones under the same kernels."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import digamma
from sklearn.exceptions import ConvergenceWarning

from ..engine.after.shifts import shift_groups
from ..engine.loop import fit
from ..engine.problem import Problem
from ..engine.records import FloatArray, IntArray, Status, frame_of
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from .checks import warn_caller
from .densities import has_shifts
from .fitted import Fitted, parameters_of, shares_of
from .rows import enter
from .settings import Settings

# The fit of new groups stops when a pass gains less log-likelihood than this, in nats over all rows.
_GAIN = 1e-3
# Most passes of that fit.
_PASSES = 2000


@dataclass(frozen=True)
class Groups:
    """L groups of rows with their weights under the K kernels of a mixture."""

    names: np.ndarray  # (L,)
    sizes: FloatArray  # (L,): rows, or sums of their weights
    weights: FloatArray  # (K, L): of the kernels
    counted: FloatArray  # (K, L): the same without a learnt prior
    shifts: FloatArray | None  # (L, K, M): of the means
    log_likelihoods: FloatArray  # (L,): means over rows; NaN if unknown

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return the groups to which a mixture was fitted."""
        fitted = Fitted.of(model)
        assert fitted is not None
        shifts = model.group_shifts_ if has_shifts(model) else None
        weights, counted = fitted.weights, fitted.counted_weights
        return cls(fitted.classes, fitted.class_count, weights, counted, shifts, _log_likelihoods(fitted))

    @classmethod
    def fit(cls, model: Any, rows: Any) -> Self:
        """Fit the weights of new groups, and their shifts if the model has any; the kernels do not change.

        `rows` is anything that `SharedKernelMixture.fit` takes with labels inside, such as a `Source`.
        """
        training = enter(copy(model), rows).training(least=1)
        n_groups, (prior, has_posterior) = len(training.classes), weight_prior_of(model)
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
            parameters_of(model),
            weights=uniform_weights(1, len(model.means_), n_groups)[0],
            concentration=prior if has_posterior else None,
        )
        frame = frame_of(start, structure_of(model.covariance_type_))
        strength, shifts = getattr(model, "group_shift_", np.inf), None
        if np.isfinite(strength):
            problem = Problem.of(training.source, options, len(start.means), frame)
            shifted = shift_groups(problem, start, strength)
            converged, weights, shifts = shifted.converged, shifted.parameters.weights, shifted.shifts
            log_likelihood, counts = shifted.log_likelihood, shifted.counts
        else:
            result = fit(training.source, start.batch(), options, frame=frame)
            converged, weights = result.status[0] == Status.CONVERGED, result.parameters.take(0).weights
            log_likelihood = result.log_likelihood[0]
            counts = None if result.counts is None else result.counts[0]
        if not converged:
            warn_caller(
                f"The weights of new samples did not converge in {_PASSES} passes.", ConvergenceWarning
            )
        if training.source.summary.gaps:
            log_likelihood = np.full(n_groups, np.nan)
        counted = weights
        if counts is not None and hasattr(model, "weight_prior_"):
            counted = shares_of(counts, weights)
        means = log_likelihood / training.sizes
        return cls(training.classes, training.sizes, weights, counted, shifts, means)

    def take(self, places: IntArray) -> Self:
        """Return the groups of these indices."""
        return type(self)(
            self.names[places],
            self.sizes[places],
            self.weights[:, places],
            self.counted[:, places],
            None if self.shifts is None else self.shifts[places],
            self.log_likelihoods[places],
        )

    def in_model(self, model: Any) -> Any:
        """Return a copy of a mixture with these groups as its classes."""
        other = copy(model)
        other.classes_, other.class_count_, other.weights_ = self.names, self.sizes, self.weights
        other.class_prior_ = self.sizes / self.sizes.sum()
        if self.shifts is not None:
            other.group_shifts_ = self.shifts
        return other


def _log_likelihoods(fitted: Fitted) -> FloatArray:
    """Return the mean log-likelihood (L,) of the rows of each group of a fit.

    It is NaN if the mixture does not have it, or if rows had missing values: their log-likelihoods cannot be
    compared with those of complete rows.
    """
    n_groups, sizes, history = len(fitted.classes), fitted.class_count, fitted.history
    if history is None or not len(history.log_likelihood_path) or sizes.min() <= 0 or history.has_gaps:
        return np.full(n_groups, np.nan)
    path = history.log_likelihood_path
    means = path[-1, :n_groups] / sizes
    if path.shape[1] > n_groups:
        # The path has the joint likelihood of rows and labels.
        means = means - np.log(fitted.class_prior)
    if fitted.weight_posterior is not None:
        # The path uses expected log-weights: replace them by logarithms of the weights.
        after = fitted.weight_posterior.weight_concentration
        logs = digamma(after) - digamma(after.sum(axis=0))
        means = means + (fitted.counted_weights * (np.log(fitted.weights) - logs)).sum(axis=0)
    return means


def weight_prior_of(model: Any) -> tuple[FloatArray | None, bool]:
    """Return the rows (K,) that a prior adds to each group, and whether weights are posterior means."""
    learnt, given, n_kernels = getattr(model, "weight_prior_", None), model.weight_prior, len(model.means_)
    if learnt is not None:
        return learnt, True
    if model.inference == "variational":
        number = 1.0 / (model.n_kernels or n_kernels) if given in (None, "auto") else given
        return np.full(n_kernels, float(number)), True
    # The mode of the posterior adds one row less than the concentration of the prior.
    number = 1.0 if given is None or isinstance(given, str) else given
    return (np.full(n_kernels, number - 1.0) if number > 1.0 else None), False
