"""What all samples of a mixture need: draws, errors of the kernels, and the composition of the fit."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..engine import scoring as density
from ..engine.exponentials import log_mix
from ..engine.records import FloatArray
from ..engine.threads import one_blas_thread
from ..model.settings import Settings, threads_of
from . import information
from .judging import FEWEST_SAMPLES
from .populations import Populations, alternatives
from .proportions import Composition
from .samples import Samples, fitted_samples, prior_of

# Probability of the intervals of proportions.
_LEVEL = 0.95
# Rows to draw from a model, equally many from each kernel.
_DRAWN = 1 << 15
# Fewest and most rows to draw from each kernel: more hardly change the results.
_FEWEST, _MOST = 100, 4000
# Samples whose log-densities are computed together: the exponentials are the same for all.
_TOGETHER = 32
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Draws:
    """Draws from a mixture, equally many from each kernel, and their log-densities."""

    model: Any
    rows: FloatArray  # (n, M)
    log_densities: FloatArray  # (n, K)

    @classmethod
    def of(cls, model: Any, rows: FloatArray | None = None) -> Draws:
        """Return draws from a model with a fixed seed, or given rows as if they were draws."""
        own, structure, n_kernels = model._parameters, model.covariance_type_, len(model.means_)
        if rows is None:
            kernels = np.repeat(np.arange(n_kernels), np.clip(_DRAWN // n_kernels, _FEWEST, _MOST))
            # Each kernel is a class of its own.
            apart = replace(own, weights=np.eye(n_kernels))
            rows = density.draw(apart, structure, kernels, np.random.RandomState(0))[0]
        n_jobs = threads_of(model.n_jobs)
        return cls(model, rows, density.kernel_log_densities(rows, own, structure, n_jobs))

    @cached_property
    def ratios(self) -> FloatArray:
        """Densities relative to that of all draws; see `information.density_ratios`."""
        return information.density_ratios(self.log_densities)

    def moved(self, shifts: FloatArray) -> Draws:
        """Return the draws of a sample whose kernels are moved by shifts (K, M)."""
        shifted = copy(self.model)
        shifted.means_ = shifted.means_ + shifts
        return Draws.of(shifted, self.rows + np.repeat(shifts, len(self.rows) // len(shifts), axis=0))

    def errors(
        self, samples: Samples, prior: FloatArray | None, shift: float | None = None
    ) -> information.KernelErrors | None:
        """Return the errors of kernels, or of their shifts, in samples; see `information.kernel_errors`."""
        parameters = replace(self.model._parameters, weights=samples.weights)
        drawn = self.rows, self.log_densities, parameters, self.model.covariance_type_
        return information.kernel_errors(*drawn, samples.sizes, prior, shift)

    def each(self, samples: Samples) -> Iterator[Draws]:
        """Yield the draws of each sample."""
        for j in range(len(samples.names)):
            yield self if samples.shifts is None else self.moved(samples.shifts[j])


class Reference:
    """A mixture with NumPy arrays and its populations, by which its own and new samples are described.

    What many descriptions need is computed once: draws from the mixture, the errors of its kernels, and the
    composition of its own samples. Files keep the results, but not the draws.
    """

    def __init__(self, model: Any, populations: Populations | None) -> None:
        self.model, self.samples = model, fitted_samples(model)
        self.noun = "kernel" if populations is None else "population"
        self._populations = populations
        self._members = np.eye(len(model.means_)) if populations is None else populations.members
        self.numbers = list(range(self._members.shape[1]))

    @property
    def has_errors(self) -> bool:
        """Whether the kernels are estimates, not given ones that the fit left unchanged."""
        return Settings.of(self.model).freeze != "kernels"

    @property
    def is_judged(self) -> bool:
        """Whether the fit has enough samples to tell which are unusual."""
        return len(self.samples.names) >= FEWEST_SAMPLES

    @cached_property
    def _draws(self) -> Draws:
        return Draws.of(self.model)

    @cached_property
    def _prior(self) -> tuple[FloatArray | None, bool]:
        """The cells (K,) that a prior adds to each sample, and whether weights are posterior means.

        A few samples hardly determine a learnt prior, and a posterior that takes it as known is too narrow:
        such a prior is left out.
        """
        return (None, False) if hasattr(self.model, "weight_prior_") else prior_of(self.model)

    @cached_property
    def _errors(self) -> information.KernelErrors | None:
        """The errors of the kernels; None if these are known, or have too many means."""
        if not self.has_errors:
            return None
        return self._draws.errors(self.samples, self._prior[0])

    # ---------------------------------------------------------------- proportions

    @cached_property
    def composition(self) -> Composition:
        """The composition of the samples of the fit."""
        return self.compose(self.samples)

    def compose(self, samples: Samples) -> Composition:
        """Return the composition of samples."""
        counted, (prior, has_posterior) = replace(samples, weights=samples.counted), self._prior
        # Posterior means include the cells of the prior. Otherwise, intervals add Jeffreys' prior.
        added, prior_cells = 0.0 if has_posterior else 0.5, 0.0 if prior is None else prior.sum()
        members, totals = self._members, samples.sizes + prior_cells
        variances, spreads, effective = [], [], []
        each = zip(counted.weights.T, samples.sizes, totals, self._draws.each(samples), strict=True)
        with one_blas_thread():
            for j, (w, size, total, own) in enumerate(each):
                inside, of_shifts = information.away_from_zero(w / w.sum(), size), None
                if samples.shifts is not None:
                    one = counted.take(np.array([j]))
                    of_shifts = own.errors(one, prior, self.model.group_shift_)
                covariance = information.covariance(own.ratios, inside, size, prior, self._errors, of_shifts)
                variances.append(np.einsum("kg,kl,lg->g", members, covariance, members, optimize=True))
                inside = inside @ members
                binomial = inside * (1.0 - inside)
                spreads.append(total * variances[-1] - binomial)
                effective.append(binomial.sum() / max(variances[-1].sum(), _TINY))
        # A single population has no variance: clip its effective cells.
        cells = np.clip(effective, np.minimum(samples.sizes, 1.0), samples.sizes)
        found = self.shares(counted)
        limits = found, found
        if len(self.numbers) > 1:
            limits = information.intervals(found, np.array(spreads), totals[:, None], _LEVEL, added)
        return self._composition(samples, np.array(variances), *limits, cells)

    @cached_property
    def alternatives(self) -> list[tuple[list[int], float]]:
        """Sets of populations that may be one which shifts between samples; see `find_alternatives`."""
        populations = self._populations
        if populations is None or len(populations) == 1 or len(self.samples.names) == 1:
            return []
        found = self.composition
        return alternatives(self.model, populations, found.proportions, found.upper)

    def shares(self, samples: Samples) -> FloatArray:
        """Return the proportions (L, G) of the populations in samples."""
        if len(self.numbers) == 1:
            return np.ones((len(samples.names), 1))
        return (samples.weights / samples.weights.sum(axis=0)).T @ self._members

    def _composition(
        self, samples: Samples, variances: FloatArray, lower: FloatArray, upper: FloatArray, cells: FloatArray
    ) -> Composition:
        """Return the composition, given variances and limits (L, G) without a learnt prior."""
        found, counted = self.shares(samples), self.shares(replace(samples, weights=samples.counted))
        # Extend intervals that miss a proportion which a learnt prior has shrunk.
        lower, upper = np.minimum(lower, found), np.maximum(upper, found)
        limits = counted, variances, lower, upper
        return Composition(samples.names, samples.sizes, found, *limits, cells, self.noun, self.numbers)

    # ---------------------------------------------------------------- log-likelihoods

    @cached_property
    def moments(self) -> FloatArray | None:
        """The moments of the samples of the fit; see `moments_of`."""
        return self.moments_of(self.samples)

    def moments_of(self, samples: Samples) -> FloatArray | None:
        """Return mean, variance and skewness (L, 3) of the log-likelihoods of the cells of samples.

        It is None if the log-likelihood of a sample is unknown.
        """
        if np.isnan(samples.log_likelihoods).any():
            return None
        prior, weights, found = prior_of(self.model)[0], samples.weights / samples.weights.sum(axis=0), []
        each = zip(weights.T, samples.sizes, self._log_densities(samples, weights), strict=True)
        with one_blas_thread():
            for w, size, (own, logs) in each:
                found.append(information.log_likelihood_moments(logs, own.ratios, w, size, prior))
        return np.array(found)

    def _log_densities(self, samples: Samples, weights: FloatArray) -> Iterator[tuple[Draws, FloatArray]]:
        """Yield the draws of each sample, and their log-densities (n,), given its weights (K, L)."""
        if samples.shifts is not None:
            for own, w in zip(self._draws.each(samples), weights.T, strict=True):
                yield own, log_mix(own.log_densities.T, w[:, None])[0]
            return
        for first in range(0, weights.shape[1], _TOGETHER):
            some = weights[:, first : first + _TOGETHER]
            for logs in log_mix(self._draws.log_densities.T, some):
                yield self._draws, logs

    # ---------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any] | None:
        """Return the results for the samples of the fit; None if each has draws of its own, due to shifts."""
        if self.samples.shifts is not None:
            return None
        found = self.composition
        return {
            "variances": found.variances,
            "lower": found.lower,
            "upper": found.upper,
            "effective_cells": found.effective_cells,
            "moments": self.moments if self.is_judged else None,
        }

    def restore(self, results: dict[str, Any]) -> None:
        """Take over what `to_dict` returned; raise ValueError if it is not of this mixture."""
        shape = len(self.samples.names), len(self.numbers)
        names = ("variances", "lower", "upper", "effective_cells")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, shape)
        shapes["effective_cells"] = shape[:1]
        if results["moments"] is not None:
            shapes["moments"] = (shape[0], 3)
        for name, expected in shapes.items():
            value = results[name]
            if value.shape != expected or value.dtype != np.float64 or not np.isfinite(value).all():
                raise ValueError(f"its {name} are not finite numbers of shape {expected}")
        # Set what would be computed on demand.
        self.composition = self._composition(self.samples, *(results[name] for name in names))
        if results["moments"] is not None:
            self.moments = results["moments"]
