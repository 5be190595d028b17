"""Proportions of kernels or populations in samples, their differences, and unusual samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._extras import need
from .._words import nearest
from ..engine.records import FloatArray, IntArray
from ..model.checks import warn_caller
from . import judging
from .samples import Samples

if TYPE_CHECKING:
    from pandas import DataFrame

    from .reference import Reference

# With shifts, a sample has intervals only if effective cells / cells is at least this. In simulations,
# intervals had their coverage at two thirds, and were too narrow below one half.
_LEAST_EFFECTIVE = 0.6


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

    def take(self, chosen: IntArray) -> Composition:
        """Return the composition of the samples of the given indices."""
        found = {name: v[chosen] for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return Composition(**{**vars(self), **found})

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


def without_unsure(found: Composition) -> Composition:
    """Return the composition of samples that have shifts, without the intervals that are too narrow.

    If shifted kernels overlap, kernels, shifts and proportions explain the same cells, and their errors are
    far from normal.
    """
    unsure = found.effective_cells < _LEAST_EFFECTIVE * found.sizes
    if unsure.any():
        warn_caller(
            f"Proportions of {shown(found.names[unsure].tolist())} have no intervals: with group_shift, "
            "these would be too narrow, because kernels overlap. Merge kernels into populations, or fit "
            "without group_shift."
        )
    lower, upper = (np.where(unsure[:, None], np.nan, limits) for limits in (found.lower, found.upper))
    return replace(found, lower=lower, upper=upper)


def places_of(classes: np.ndarray, samples: Any, argument: str) -> IntArray:
    """Return the indices of samples among the classes (L,) of a model; `samples` may be a single name."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    scalar = isinstance(samples, str) or np.ndim(samples) == 0
    names = np.asarray([samples] if scalar else list(samples), dtype=object).ravel().tolist()
    if not names:
        raise ValueError(f"{argument} is empty: give at least one of the samples {shown(known)}.")
    unknown = [name for name in names if name not in known]
    if unknown:
        close = nearest(unknown[0], known)
        raise ValueError(f"{argument} has {shown(unknown)}, not among the samples {shown(known)}.{close}")
    places = [known[name] for name in names]
    if len(set(places)) < len(places):
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        raise ValueError(f"{argument} has {shown(twice)} more than once.")
    return np.array(places)


def shown(names: Any) -> str:
    """Return the first names, and how many there are, for an error message."""
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


# ---------------------------------------------------------------- unusual samples


def judge_samples(reference: Reference, new: tuple[Samples, Composition] | None, alpha: float) -> DataFrame:
    """Return how unusual the samples of a fit, or new samples, are."""
    fitted = reference.samples
    judged, found, moments = [fitted], [reference.composition], [reference.moments]
    if new is not None:
        judged, found = [fitted, new[0]], [reference.composition, new[1]]
        moments.append(reference.moments_of(new[0]))
    raw = np.concatenate([each.counted for each in found])
    counts = raw * np.concatenate([each.effective_cells for each in found])[:, None]
    residuals, n_fitted = _residuals(judged, moments), len(fitted.names)
    # New samples come last.
    verdicts = judging.judge(counts, residuals, np.arange(len(raw)) < n_fitted, float(alpha))
    # Among proportions with the same p-value, such as zero, take the one that differs most.
    least = verdicts.p_proportions == verdicts.p_proportions.min(axis=1, keepdims=True)
    away = np.where(least, np.abs(raw - verdicts.usual_proportions), -1.0)
    chosen, every = away.argmax(axis=1), np.arange(len(raw))
    columns = {
        reference.noun: chosen.tolist(),
        "proportion": raw[every, chosen],
        "usual_proportion": verdicts.usual_proportions[every, chosen],
        "p_composition": verdicts.p_composition,
        "log_likelihood": np.concatenate([each.log_likelihoods for each in judged]),
        "z_likelihood": verdicts.z,
        "p_likelihood": verdicts.p_likelihood,
        "p_adjusted": verdicts.p_adjusted,
        "unusual": verdicts.p_adjusted <= alpha,
    }
    of_cells = np.array(columns["p_likelihood"] < verdicts.p_composition)  # False if it is NaN
    columns["reason"] = np.where(columns["unusual"], np.where(of_cells, "cells", "proportions"), "")
    asked, lines = judged[-1], slice(n_fitted if new is not None else 0, None)
    first = {"sample": asked.names, "cells": _as_counts(asked.sizes)}
    return pandas().DataFrame(first | {name: column[lines] for name, column in columns.items()})


def _residuals(judged: list[Samples], moments: list[FloatArray | None]) -> judging.Residuals | None:
    """Return mean log-likelihoods of samples less their expectations; None if one is unknown.

    Kernels are never quite right, so residuals have a common mean, and differ among samples by more than
    chance.
    """
    known = [each for each in moments if each is not None]
    if len(known) < len(moments):
        return None
    means, variances, skews = np.concatenate(known).T
    sizes, values = (
        np.concatenate([getattr(each, name) for each in judged]) for name in ("sizes", "log_likelihoods")
    )
    return judging.Residuals(values - means, np.sqrt(variances / sizes), skews / np.sqrt(sizes))
