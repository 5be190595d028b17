"""Samples by their populations: proportions with intervals, and what is usual.

A `Reference` is a fitted mixture with its populations. It describes the samples of its fit and new ones in
the same way: by draws from the mixture, and by the errors of its kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv
from threadpoolctl import threadpool_limits

from .._extras import need
from .._words import nearest
from ..engine.records import FloatArray, IntArray
from ..model import Groups, Kernels, warn_caller, weight_prior_of
from . import information, judging
from .populations import Populations, mixture_of
from .shifting import find_alternatives

if TYPE_CHECKING:
    from pandas import DataFrame

# With shifts, a sample has intervals only if effective cells / cells is at least this. In simulations,
# intervals had their coverage at two thirds, and were too narrow below one half.
_LEAST_EFFECTIVE = 0.6
# Probability of the intervals of proportions.
_LEVEL = 0.95
# Rows to draw from a model, equally many from each kernel; more than _MOST of a kernel hardly change results.
_DRAWN, _FEWEST, _MOST = 1 << 15, 100, 4000
# Samples whose log-densities are computed together: the exponentials are the same for all.
_TOGETHER = 32
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Composition:
    """Proportions of G populations (or kernels, if none are merged) in L samples."""

    names: np.ndarray  # (L,): of the samples
    sizes: FloatArray  # (L,): cells, or sums of their weights
    proportions: FloatArray  # (L, G)
    counted: FloatArray  # (L, G): the same without a learnt prior
    variances: FloatArray  # (L, G): of the latter
    lower: FloatArray  # (L, G)
    upper: FloatArray  # (L, G)
    effective_cells: FloatArray  # (L,): cells that would be as informative if kernels did not overlap
    noun: str  # 'kernel' or 'population'
    populations: list[Any]  # (G,): names or numbers of the populations or kernels

    def take(self, places: IntArray) -> Composition:
        """Return the composition of the samples of these indices."""
        arrays = {name: v[places] for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **arrays)  # type: ignore[arg-type]

    def renamed(self, populations: list[Any]) -> Composition:
        """Return the composition with other names (G,) of the populations."""
        return replace(self, populations=populations)

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
    return need("pandas", "Tables of proportions need")


def _as_counts(sizes: FloatArray) -> np.ndarray:
    """Return numbers of cells (L,) as integers, unless they are sums of weights."""
    whole = np.rint(sizes)
    return whole.astype(np.int64) if np.array_equal(whole, sizes) else sizes


def places_of(known: np.ndarray, samples: Any, argument: str) -> IntArray:
    """Return the indices of samples among the known ones (L,); `samples` may be a single name."""
    places = {name: place for place, name in enumerate(known.tolist())}
    is_single = isinstance(samples, str) or np.ndim(samples) == 0
    names = np.asarray([samples] if is_single else list(samples), dtype=object).ravel().tolist()
    if not names:
        raise ValueError(f"{argument} is empty: give at least one of the samples {shown(places)}.")
    unknown = [name for name in names if name not in places]
    if unknown:
        close = nearest(unknown[0], places)
        raise ValueError(f"{argument} has {shown(unknown)}, not among the samples {shown(places)}.{close}")
    if len(set(names)) < len(names):
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        raise ValueError(f"{argument} has {shown(twice)} more than once.")
    return np.array([places[name] for name in names])


def shown(names: Any) -> str:
    """Return the first names, and how many there are, for an error message."""
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


@dataclass(frozen=True)
class Draws:
    """Draws from a mixture, equally many from each kernel, and their log-densities."""

    kernels: Kernels
    rows: FloatArray  # (n, M)
    log_densities: FloatArray  # (n, K)

    @classmethod
    def of(cls, kernels: Kernels) -> Draws:
        """Draw from the kernels with a fixed seed."""
        n_each = int(np.clip(_DRAWN // len(kernels.means), _FEWEST, _MOST))
        rows = kernels.draw(n_each, seed=0)
        return cls(kernels, rows, kernels.log_densities(rows))

    @cached_property
    def ratios(self) -> FloatArray:
        """Densities relative to that of all draws; see `information.density_ratios`."""
        return information.density_ratios(self.log_densities)

    def each(self, samples: Groups) -> Iterator[Draws]:
        """Yield the draws of each sample: those of kernels that its shifts, if any, have moved."""
        for j in range(len(samples.names)):
            if samples.shifts is None:
                yield self
                continue
            kernels = self.kernels.moved(samples.shifts[j])
            n_each = len(self.rows) // len(kernels.means)
            rows = self.rows + np.repeat(samples.shifts[j], n_each, axis=0)
            yield Draws(kernels, rows, kernels.log_densities(rows))

    def errors(
        self, samples: Groups, prior: FloatArray | None, shift: float | None = None
    ) -> information.KernelErrors | None:
        """Return the errors of kernels, or of their shifts, in samples; see `information.kernel_errors`."""
        drawn = self.rows, self.log_densities, self.kernels
        return information.kernel_errors(*drawn, samples.weights, samples.sizes, prior, shift)


class Reference:
    """A mixture with NumPy arrays and its populations, by which its own and new samples are described.

    What many descriptions need is computed once: draws from the mixture, the errors of its kernels, and the
    composition of its own samples. Files keep the results, but not the draws.
    """

    def __init__(self, model: Any, populations: Populations | None) -> None:
        self.model, self.samples, self.populations = model, Groups.of(model), populations
        self.kernels = Kernels.of(model)
        self.noun = "kernel" if populations is None else "population"
        self._members = np.eye(len(model.means_)) if populations is None else populations.members

    @property
    def n_populations(self) -> int:
        """Number G of populations, or of kernels."""
        return int(self._members.shape[1])

    @property
    def is_judged(self) -> bool:
        """Whether the fit has enough samples to tell which are unusual."""
        return len(self.samples.names) >= judging.FEWEST_SAMPLES

    def model_of(self, samples: Groups, model: Any) -> Any:
        """Return a model of this fit whose classes are the samples, of the fit or new."""
        return model if samples is self.samples else samples.in_model(model)

    @cached_property
    def _draws(self) -> Draws:
        return Draws.of(self.kernels)

    @cached_property
    def _prior(self) -> tuple[FloatArray | None, bool]:
        """The cells (K,) that a prior adds to each sample, and whether weights are posterior means.

        A few samples hardly determine a learnt prior, and a posterior that takes it as known is too narrow:
        such a prior is left out.
        """
        return (None, False) if hasattr(self.model, "weight_prior_") else weight_prior_of(self.model)

    @cached_property
    def _errors(self) -> information.KernelErrors | None:
        """The errors of the kernels; None if these are known, or have too many means."""
        return self._draws.errors(self.samples, self._prior[0]) if self.kernels.is_estimate else None

    # ---------------------------------------------------------------- proportions

    @cached_property
    def composition(self) -> Composition:
        """The composition of the samples of the fit."""
        return self._compose(self.samples)

    def composition_of(self, samples: Groups) -> Composition:
        """Return the composition of samples, of the fit or new."""
        return self.composition if samples is self.samples else self._compose(samples)

    def _compose(self, samples: Groups) -> Composition:
        counted, (prior, has_posterior) = replace(samples, weights=samples.counted), self._prior
        # Posterior means include the cells of the prior. Otherwise, intervals add Jeffreys' prior.
        added, prior_cells = 0.0 if has_posterior else 0.5, 0.0 if prior is None else prior.sum()
        members, totals = self._members, samples.sizes + prior_cells
        variances, spreads, effective = [], [], []
        sizes_and_draws = zip(samples.sizes, totals, self._draws.each(samples), strict=True)
        with threadpool_limits(1, "blas"):
            for j, (size, total, draws) in enumerate(sizes_and_draws):
                sample = counted.take(np.array([j]))
                weights = sample.weights[:, 0] / sample.weights.sum()
                inside, of_shifts = information.away_from_zero(weights, size), None
                if samples.shifts is not None:
                    of_shifts = draws.errors(sample, prior, self.model.group_shift_)
                errors = self._errors, of_shifts
                covariance = information.covariance(draws.ratios, inside, size, prior, *errors)
                variances.append(np.einsum("kg,kl,lg->g", members, covariance, members, optimize=True))
                inside = inside @ members
                binomial = inside * (1.0 - inside)
                spreads.append(total * variances[-1] - binomial)
                effective.append(binomial.sum() / max(variances[-1].sum(), _TINY))
        # A single population has no variance: clip its effective cells.
        cells = np.clip(effective, np.minimum(samples.sizes, 1.0), samples.sizes)
        proportions = self.proportions(counted)
        limits = proportions, proportions
        if self.n_populations > 1:
            limits = information.intervals(proportions, np.array(spreads), totals[:, None], _LEVEL, added)
        return self._composition(samples, np.array(variances), *limits, cells)

    def proportions(self, samples: Groups) -> FloatArray:
        """Return the proportions (L, G) of the populations in samples."""
        if self.n_populations == 1:
            return np.ones((len(samples.names), 1))
        return self.kernels_of(samples) @ self._members

    def kernels_of(self, samples: Groups) -> FloatArray:
        """Return the proportions (L, K) of the kernels in samples."""
        return np.asarray((samples.weights / samples.weights.sum(axis=0)).T)

    def _composition(
        self, samples: Groups, variances: FloatArray, lower: FloatArray, upper: FloatArray, cells: FloatArray
    ) -> Composition:
        """Return the composition, given variances and limits (L, G) without a learnt prior."""
        proportions = self.proportions(samples)
        counted = self.proportions(replace(samples, weights=samples.counted))
        # Extend intervals that miss a proportion which a learnt prior has shrunk.
        limits = np.minimum(lower, proportions), np.maximum(upper, proportions)
        given = proportions, counted, variances, *limits, cells
        return Composition(samples.names, samples.sizes, *given, self.noun, list(range(self.n_populations)))

    def without_unsure(self, samples: Groups, composition: Composition) -> Composition:
        """Return the composition of samples that have shifts, without the intervals that are too narrow.

        If shifted kernels overlap, kernels, shifts and proportions explain the same cells, and their errors
        are far from normal.
        """
        unsure = composition.effective_cells < _LEAST_EFFECTIVE * composition.sizes
        if samples.shifts is None or not self.kernels.is_estimate or not unsure.any():
            return composition
        warn_caller(
            f"Proportions of {shown(composition.names[unsure].tolist())} have no intervals: with "
            "group_shift, these would be too narrow, because kernels overlap. Merge kernels into "
            "populations, or fit without group_shift."
        )
        lower, upper = (
            np.where(unsure[:, None], np.nan, limits) for limits in (composition.lower, composition.upper)
        )
        return replace(composition, lower=lower, upper=upper)

    @cached_property
    def alternatives(self) -> list[tuple[list[int], float]]:
        """Sets of populations that may be one which shifts between samples; see `find_alternatives`."""
        if self.populations is None or self.n_populations == 1 or len(self.samples.names) == 1:
            return []
        proportions, sizes = self.proportions(self.samples), self.samples.sizes[:, None]
        added = proportions * sizes + 1.0, (1.0 - proportions) * sizes
        upper = betaincinv(*added, _LEVEL)  # by counting
        return find_alternatives(mixture_of(self.model), self.populations.of_kernels, proportions, upper)

    # ---------------------------------------------------------------- unusual samples

    def judge(self, samples: Groups, composition: Composition, alpha: float) -> DataFrame:
        """Return how unusual samples of this composition are, of the fit or new; see `Study.unusual`."""
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha!r}.")
        if not self.is_judged:
            raise ValueError(
                f"The study has {len(self.samples.names)} sample(s): at least {judging.FEWEST_SAMPLES} are "
                "needed to tell which are unusual."
            )
        is_new = samples is not self.samples
        judged = [self.samples, samples] if is_new else [samples]
        compositions = [self.composition, composition] if is_new else [composition]
        counted = np.concatenate([each.counted for each in compositions])
        counts = counted * np.concatenate([each.effective_cells for each in compositions])[:, None]
        n_fitted = len(self.samples.names)
        of_fit = np.arange(len(counted)) < n_fitted
        verdicts = judging.judge(counts, self._residuals(judged), of_fit, float(alpha))
        # Among proportions with the same p-value, such as zero, take the one that differs most.
        least = verdicts.p_proportions == verdicts.p_proportions.min(axis=1, keepdims=True)
        away = np.where(least, np.abs(counted - verdicts.usual_proportions), -1.0)
        chosen, every = away.argmax(axis=1), np.arange(len(counted))
        is_unusual = verdicts.p_adjusted <= alpha
        of_cells = verdicts.p_likelihood < verdicts.p_composition  # False if it is NaN
        columns = {
            self.noun: chosen.tolist(),
            "proportion": counted[every, chosen],
            "usual_proportion": verdicts.usual_proportions[every, chosen],
            "p_composition": verdicts.p_composition,
            "log_likelihood": np.concatenate([each.log_likelihoods for each in judged]),
            "z_likelihood": verdicts.z,
            "p_likelihood": verdicts.p_likelihood,
            "p_adjusted": verdicts.p_adjusted,
            "unusual": is_unusual,
            "reason": np.where(is_unusual, np.where(of_cells, "cells", "proportions"), ""),
        }
        # New samples come last.
        asked = {name: column[n_fitted if is_new else 0 :] for name, column in columns.items()}
        return pandas().DataFrame({"sample": samples.names, "cells": _as_counts(samples.sizes)} | asked)

    def _residuals(self, judged: list[Groups]) -> judging.Residuals | None:
        """Return mean log-likelihoods of samples less their expectations; None if one is unknown.

        Kernels are never quite right, so residuals have a common mean, and differ among samples by more than
        chance.
        """
        values = np.concatenate([each.log_likelihoods for each in judged])
        if np.isnan(values).any() or self.moments is None:
            return None
        moments = [self.moments, *(self._moments_of(each) for each in judged[1:])]
        means, variances, skews = np.concatenate(moments).T
        sizes = np.concatenate([each.sizes for each in judged])
        return judging.Residuals(values - means, np.sqrt(variances / sizes), skews / np.sqrt(sizes))

    @cached_property
    def moments(self) -> FloatArray | None:
        """Moments (L, 3) of the samples of the fit; None if a log-likelihood is unknown."""
        is_known = not np.isnan(self.samples.log_likelihoods).any()
        return self._moments_of(self.samples) if is_known else None

    def _moments_of(self, samples: Groups) -> FloatArray:
        """Return mean, variance and skewness (L, 3) of the log-likelihoods of the cells of samples."""
        prior, weights = weight_prior_of(self.model)[0], samples.weights / samples.weights.sum(axis=0)
        moments = []
        with threadpool_limits(1, "blas"):
            for w, size, (draws, logs) in zip(
                weights.T, samples.sizes, self._log_densities(samples, weights), strict=True
            ):
                moments.append(information.log_likelihood_moments(logs, draws.ratios, w, size, prior))
        return np.array(moments)

    def _log_densities(self, samples: Groups, weights: FloatArray) -> Iterator[tuple[Draws, FloatArray]]:
        """Yield the draws of each sample, and their log-densities (n,), given its weights (K, L)."""
        if samples.shifts is not None:
            for draws, w in zip(self._draws.each(samples), weights.T, strict=True):
                yield draws, _log_mixed(draws.log_densities, w[:, None])[:, 0]
            return
        for first in range(0, weights.shape[1], _TOGETHER):
            together = weights[:, first : first + _TOGETHER]
            for logs in _log_mixed(self._draws.log_densities, together).T:
                yield self._draws, logs

    # ---------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any] | None:
        """Return the results for the samples of the fit; None if each has draws of its own, due to shifts."""
        if self.samples.shifts is not None:
            return None
        names = ("variances", "lower", "upper", "effective_cells")
        results = {name: getattr(self.composition, name) for name in names}
        return results | {"moments": self.moments if self.is_judged else None}

    def restore(self, results: dict[str, Any]) -> None:
        """Take over what `to_dict` returned; raise ValueError if it is not of this mixture."""
        n_samples, names = len(self.samples.names), ("variances", "lower", "upper", "effective_cells")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, (n_samples, self.n_populations))
        shapes |= {"effective_cells": (n_samples,)}
        if results["moments"] is not None:
            shapes["moments"] = (n_samples, 3)
        for name, shape in shapes.items():
            value = results[name]
            if value.shape != shape or value.dtype != np.float64 or not np.isfinite(value).all():
                raise ValueError(f"its {name} are not finite numbers of shape {shape}")
        # Set what would be computed on demand.
        self.composition = self._composition(self.samples, *(results[name] for name in names))
        if results["moments"] is not None:
            self.moments = results["moments"]


def _log_mixed(logs: FloatArray, weights: FloatArray) -> FloatArray:
    """Return log Σ_k w_kj exp(a_nk), shape (n, L), of logarithms a (n, K) and weights w (K, L)."""
    highest = logs.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):  # draws that only kernels of zero weight explain
        return np.asarray(highest + np.log(np.exp(logs - highest) @ weights))
