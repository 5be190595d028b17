"""Proportions of kernels or populations in samples, their differences, and unusual samples."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from scipy.linalg import block_diag

from ..engine import density
from ..engine.compute import need
from ..engine.model import FloatArray, IntArray
from ..engine.tails import Background
from ..estimators._settings import freeze_of
from ..estimators.rows import warn_caller
from . import information, judging
from .differences import Sides, differences
from .populations import Populations, draw_rows
from .samples import Samples, fitted_samples, prior_of

if TYPE_CHECKING:
    from pandas import DataFrame

# Probability of the intervals of proportions.
_LEVEL = 0.95
# With shifts, a sample has intervals only if effective cells / cells is at least this. In simulations,
# intervals had their coverage at two thirds, and were too narrow below one half.
_LEAST_EFFECTIVE = 0.6
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Composition:
    """Proportions of G populations (or kernels, if none are merged) and the background in L samples."""

    names: np.ndarray  # (L,): of the samples
    sizes: FloatArray  # (L,): cells, or sums of their weights
    proportions: FloatArray  # (L, G)
    variances: FloatArray  # (L, G)
    lower: FloatArray  # (L, G)
    upper: FloatArray  # (L, G)
    effective_cells: FloatArray  # (L,): cells that would be as informative if kernels did not overlap
    noun: str  # 'kernel' or 'population'
    populations: list[Any]  # (G,): names or numbers of the populations or kernels, and 'background'

    def frame(self) -> DataFrame:
        """Return a table with a line for each sample and population."""
        n_samples, n_populations = self.proportions.shape
        columns = {
            "sample": np.repeat(self.names, n_populations),
            self.noun: self.populations * n_samples,
            "proportion": self.proportions.ravel(),
            "lower": self.lower.ravel(),
            "upper": self.upper.ravel(),
            "cells": np.repeat(_as_counts(self.sizes), n_populations),
        }
        return pandas().DataFrame(columns)


def pandas() -> Any:
    """Import pandas, or say how to install it."""
    return need("pandas", "tables", "Tables of proportions need")


def _as_counts(sizes: FloatArray) -> np.ndarray:
    """Return numbers of cells (L,) as integers, unless they are sums of weights."""
    whole = np.rint(sizes)
    return whole.astype(np.int64) if np.array_equal(whole, sizes) else sizes


def compose_samples(model: Any, samples: Samples, populations: Populations | None) -> Composition:
    """Return the composition of samples under a mixture with NumPy arrays."""
    draws = _Draws.of(model)
    result = _compose(draws, samples, populations)
    if hasattr(model, "weight_prior_"):
        # A few samples hardly determine the prior, so a posterior that takes it as known is too narrow.
        counted = _compose(draws, samples, populations, counted=True)
        result = replace(
            result,
            lower=np.minimum(counted.lower, result.proportions),
            upper=np.maximum(counted.upper, result.proportions),
            effective_cells=counted.effective_cells,
        )
    if samples.shifts is None or freeze_of(model) == "kernels":
        return result
    # If shifted kernels overlap, kernels, shifts and proportions explain the same cells, and their errors are
    # far from normal.
    unsure = result.effective_cells < _LEAST_EFFECTIVE * result.sizes
    if unsure.any():
        warn_caller(
            f"Proportions of {shown(result.names[unsure].tolist())} have no intervals: with group_shift, "
            "these would be too narrow, because kernels overlap. Merge kernels into populations, or fit "
            "without group_shift."
        )
    lower, upper = (np.where(unsure[:, None], np.nan, limits) for limits in (result.lower, result.upper))
    return replace(result, lower=lower, upper=upper)


def check_probability(value: Any, name: str) -> None:
    """Raise ValueError unless the value is a number between 0 and 1."""
    if not (isinstance(value, Real) and 0.0 < float(value) < 1.0):
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}.")


def places_of(classes: np.ndarray, samples: Any, argument: str) -> IntArray:
    """Return the indices of samples among the classes (L,) of a model; `samples` may be a single name."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    scalar = isinstance(samples, str) or np.ndim(samples) == 0
    names = np.asarray([samples] if scalar else list(samples), dtype=object).ravel().tolist()
    if not names:
        raise ValueError(f"{argument} is empty: give at least one of the samples {shown(known)}.")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{argument} has {shown(unknown)}, not among the samples {shown(known)}.")
    places = [known[name] for name in names]
    if len(set(places)) < len(places):
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        raise ValueError(f"{argument} has {shown(twice)} more than once.")
    return np.array(places)


def shown(names: Any) -> str:
    """Return the first names, and how many there are, for an error message."""
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


@dataclass(frozen=True)
class _Draws:
    """Draws from a mixture, equally many from each kernel and the background, and their log-densities."""

    model: Any
    rows: FloatArray  # (n, M)
    log_densities: FloatArray  # (n, K), or with a background (n, K + 1)

    @classmethod
    def of(cls, model: Any, rows: FloatArray | None = None) -> _Draws:
        """Return draws from a model, or given rows as if they were draws."""
        rows = draw_rows(model) if rows is None else rows
        n_jobs = effective_n_jobs(model.n_jobs)
        logs = density.all_log_densities(rows, model._parameters, model.covariance_type_, n_jobs)
        return cls(model, rows, logs)

    @cached_property
    def ratios(self) -> FloatArray:
        """Densities relative to that of all draws; see `information.density_ratios`."""
        return information.density_ratios(self.log_densities)

    def moved(self, shifts: FloatArray) -> _Draws:
        """Return the draws of a sample whose kernels are moved by shifts (K, M)."""
        shifted = copy(self.model)
        shifted.means_ = shifted.means_ + shifts
        return _Draws.of(shifted, self.rows + np.repeat(shifts, len(self.rows) // len(shifts), axis=0))

    def shift_errors(self, sample: Samples, prior: FloatArray | None) -> information.KernelErrors | None:
        """Return the errors of the shifts of one sample, from which these draws are."""
        parameters = replace(self.model._parameters, weights=sample.weights, concentration=None)
        if isinstance(parameters.tail, Background) and sample.background is not None:
            parameters = replace(parameters, tail=replace(parameters.tail, weights=sample.background))
        return information.kernel_errors(
            self.rows,
            self.log_densities,
            parameters,
            self.model.covariance_type_,
            sample.sizes,
            prior,
            self.model.group_shift_,
        )

    def each(self, samples: Samples) -> Iterator[_Draws]:
        """Yield the draws of each sample."""
        for j in range(len(samples.names)):
            yield self if samples.shifts is None else self.moved(samples.shifts[j])


def _compose(
    draws: _Draws, samples: Samples, populations: Populations | None, *, counted: bool = False
) -> Composition:
    """Return the composition of samples, with `counted` without the learnt prior."""
    model = draws.model
    prior, has_posterior = prior_of(model)
    if counted:
        samples = replace(samples, weights=samples.counted)
        if hasattr(model, "weight_prior_"):
            prior, has_posterior = None, False
    weights, errors = samples.all_weights, None
    if freeze_of(model) != "kernels":
        errors = information.kernel_errors(
            draws.rows,
            draws.log_densities,
            model._parameters,
            model.covariance_type_,
            model.class_count_,
            prior,
        )
    n_kernels = len(model.means_)
    names: list[Any] = list(range(n_kernels))
    noun, members = "kernel", np.eye(n_kernels)
    if populations is not None:
        populations.check_model(model)
        noun, names, members = "population", populations.display_names, populations.members
    # Posterior means include the cells of the prior. Otherwise, intervals add Jeffreys' prior.
    added = np.full(len(names), 0.0 if has_posterior else 0.5)
    prior_cells = np.full(len(names), 0.0 if prior is None else prior.sum())
    if samples.background is not None:
        members, names = block_diag(members, 1.0), [*names, "background"]
        added, prior_cells = np.append(added, 0.5), np.append(prior_cells, 0.0)
    totals = samples.sizes[:, None] + prior_cells
    found, variances, spreads, effective = [], [], [], []
    each = enumerate(zip(weights.T, samples.sizes, totals, draws.each(samples), strict=True))
    for j, (w, size, total, own) in each:
        w = w / w.sum()
        inside = information.away_from_zero(w, size)
        of_shifts = None if samples.shifts is None else own.shift_errors(samples.take(np.array([j])), prior)
        covariance = information.covariance(own.ratios, inside, size, prior, errors, of_shifts)
        found.append(w @ members)
        variances.append(np.einsum("kg,kl,lg->g", members, covariance, members, optimize=True))
        inside = inside @ members
        binomial = inside * (1.0 - inside)
        spreads.append(total * variances[-1] - binomial)
        effective.append(binomial.sum() / max(variances[-1].sum(), _TINY))
    proportions = np.array(found) if len(names) > 1 else np.ones((len(found), 1))
    lower, upper = proportions, proportions
    if len(names) > 1:
        lower, upper = information.intervals(proportions, np.array(spreads), totals, _LEVEL, added)
    # A single population has no variance: clip its effective cells.
    cells = np.clip(effective, np.minimum(samples.sizes, 1.0), samples.sizes)
    return Composition(
        samples.names, samples.sizes, proportions, np.array(variances), lower, upper, cells, noun, names
    )


# ---------------------------------------------------------------- differences


def compare_samples(
    model: Any, samples: Samples, sides: Sides, populations: Populations | None, level: float
) -> DataFrame:
    """Return the differences between two sides of samples.

    Proportions are without a learnt prior: shrunken proportions understate differences.
    """
    found = _compose(_Draws.of(model), samples.take(sides.places), populations, counted=True)
    columns = differences(found.proportions, found.variances, sides, level)
    return pandas().DataFrame({found.noun: found.populations} | columns)


# ---------------------------------------------------------------- unusual samples


def judge_samples(
    model: Any, new: Samples | None, populations: Populations | None, alpha: float
) -> DataFrame:
    """Return how unusual the samples of a fit, or new samples, are under a mixture with NumPy arrays."""
    draws, fitted = _Draws.of(model), fitted_samples(model)
    judged = [fitted] if new is None else [fitted, new]
    found = [_compose(draws, each, populations, counted=True) for each in judged]
    raw = np.concatenate([each.proportions for each in found])
    counts = raw * np.concatenate([each.effective_cells for each in found])[:, None]
    residuals, n_fitted = _residuals(draws, judged), len(fitted.names)
    # New samples come last.
    verdicts = judging.judge(counts, residuals, np.arange(len(raw)) < n_fitted, float(alpha))
    # Among proportions with the same p-value, such as zero, take the one that differs most.
    least = verdicts.p_proportions == verdicts.p_proportions.min(axis=1, keepdims=True)
    away = np.where(least, np.abs(raw - verdicts.usual_proportions), -1.0)
    chosen, every = away.argmax(axis=1), np.arange(len(raw))
    columns = {
        found[0].noun: [found[0].populations[g] for g in chosen],
        "proportion": raw[every, chosen],
        "usual_proportion": verdicts.usual_proportions[every, chosen],
        "p_composition": verdicts.p_composition,
        "log_likelihood": np.concatenate([each.log_likelihoods for each in judged]),
        "z_likelihood": verdicts.z,
        "p_likelihood": verdicts.p_likelihood,
        "p_adjusted": verdicts.p_adjusted,
        "unusual": verdicts.p_adjusted <= alpha,
    }
    asked, lines = judged[-1], slice(n_fitted if new is not None else 0, None)
    first = {"sample": asked.names, "cells": _as_counts(asked.sizes)}
    return pandas().DataFrame(first | {name: column[lines] for name, column in columns.items()})


def _residuals(draws: _Draws, judged: list[Samples]) -> judging.Residuals | None:
    """Return mean log-likelihoods of samples less their expectations; None if one is unknown.

    Kernels are never quite right, so residuals have a common mean, for the cells that are not background, and
    differ among samples by more than chance.
    """
    rows, box, prior = draws.rows, getattr(draws.model, "background_box_", None), prior_of(draws.model)[0]
    boxed = None
    if any(np.isnan(samples.log_likelihoods).any() for samples in judged):
        return None
    if box is not None:
        # The background has no cells outside its box.
        logs = draws.log_densities.copy()
        logs[np.any((rows < box[0]) | (rows > box[1]), axis=1), -1] = -np.inf
        boxed = information.density_ratios(logs)
    found = []
    for samples in judged:
        each = zip(
            samples.all_weights.T, samples.sizes, samples.log_likelihoods, draws.each(samples), strict=True
        )
        for weights, size, value, own in each:
            ratios = own.ratios if boxed is None else boxed
            mean, variance, skew = information.log_likelihood_moments(
                own.log_densities, ratios, weights / weights.sum(), size, prior
            )
            found.append((value - mean, np.sqrt(variance / size), skew / np.sqrt(size)))
    away, error, skews = np.array(found).T
    inside = np.concatenate(
        [np.ones(len(each.names)) if each.background is None else 1.0 - each.background for each in judged]
    )
    return judging.Residuals(away, error, inside, skews)
