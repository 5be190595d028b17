"""Differences between the proportions of two sides of samples, which are the units of all tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ..engine.records import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from pandas import DataFrame

# Least variance of proportions among samples, relative to that of their estimates: a few samples with few
# cells of a population may have equal counts by chance.
_LEAST_VARIANCE = 0.5
# Upper end of an interval of 95 %.
_UPPER = 0.975
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Sides:
    """The samples of a comparison, those of the first side before those of the second."""

    names: tuple[Any, Any]  # of the sides
    places: IntArray  # (L,): indices among the samples of the study
    is_first: BoolArray  # (L,)
    pairs: IntArray | None  # (L,): number of the pair of each sample
    covariate: FloatArray | None  # (L, C): columns of a linear model
    left_out: tuple[Any, ...]  # samples without a condition, pair or covariate

    def joined(self) -> list[tuple[int, int]]:
        """Return which samples of the two sides are of the same pair, as indices of `places`."""
        if self.pairs is None:
            return []
        one, other = np.flatnonzero(self.is_first), np.flatnonzero(~self.is_first)
        return [(i, j) for i in one.tolist() for j in other.tolist() if self.pairs[i] == self.pairs[j]]


def by_q_value(table: DataFrame) -> list[int]:
    """Return the lines of a table of differences, the clearest difference first."""
    return [int(g) for g in np.lexsort((table["p_value"], table["q_value"]))]


def differences(proportions: FloatArray, variances: FloatArray, sides: Sides) -> dict[str, FloatArray]:
    """Return the columns (G,) of `Study.compare` for samples with proportions (L, G) and their variances."""
    first, pairs, covariate = sides.is_first, sides.pairs, sides.covariate
    if proportions.shape[1] == 1:
        # A single population has all cells of all samples.
        found = tuple(np.array([value]) for value in (1.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    elif pairs is not None:
        found = _paired(proportions, variances, first, pairs)
    elif covariate is not None:
        found = _adjusted(proportions, variances, first, covariate)
    else:
        found = _unpaired(proportions, variances, first)
    names = [*(f"proportion_{name}" for name in sides.names), "difference", "lower", "upper", "p_value"]
    return dict(zip(names, found, strict=True)) | {"q_value": stats.false_discovery_control(found[-1])}


def _unpaired(proportions: FloatArray, variances: FloatArray, is_first: BoolArray) -> tuple[FloatArray, ...]:
    """Compare means by Welch's test, with the degrees of freedom of Satterthwaite."""
    (mean_a, variance_a, inverse_a), (mean_b, variance_b, inverse_b) = (
        _mean_of_samples(proportions[side], variances[side]) for side in (is_first, ~is_first)
    )
    difference, variance = mean_a - mean_b, variance_a + variance_b
    inverse = (variance_a**2 * inverse_a + variance_b**2 * inverse_b) / variance**2
    distribution, deviation = stats.t(1.0 / np.maximum(inverse, 1e-12)), np.sqrt(variance)
    reach = distribution.ppf(_UPPER) * deviation
    limits = np.maximum(difference - reach, -1.0), np.minimum(difference + reach, 1.0)
    p_values = 2.0 * distribution.sf(np.abs(difference) / deviation)
    return mean_a, mean_b, difference, *limits, p_values


def _mean_of_samples(proportions: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return mean proportions (G,) of samples (L, G), their variances, and one over the degrees of freedom.

    One sample has the variance of its own proportion. Several samples have the variance among them, but at
    least half of the mean variance of their proportions.
    """
    n_samples, mean = len(proportions), proportions.mean(axis=0)
    if n_samples == 1:
        return mean, variances[0], 0.0
    among = np.maximum(proportions.var(axis=0, ddof=1), _LEAST_VARIANCE * variances.mean(axis=0))
    return mean, among / n_samples, 1.0 / (n_samples - 1)


def _paired(
    proportions: FloatArray, variances: FloatArray, is_first: BoolArray, pairs: IntArray
) -> tuple[FloatArray, ...]:
    """Compare the sides within pairs (L,): each has the mean proportion of its samples of a side."""
    n_pairs = int(pairs.max()) + 1
    # A line for each pair and side, which averages their samples.
    average = (pairs + n_pairs * ~is_first)[:, None] == np.arange(2 * n_pairs)
    average = (average / average.sum(axis=0)).T
    own = np.tile(np.eye(n_pairs)[:, 1:], (2, 1))
    # For one sample of each side, this is the t-test of the differences within pairs.
    is_first = np.repeat([True, False], n_pairs)
    return _adjusted(average @ proportions, average**2 @ variances, is_first, own)


def _adjusted(
    proportions: FloatArray, variances: FloatArray, is_first: BoolArray, columns: FloatArray
) -> tuple[FloatArray, ...]:
    """Compare the sides in a linear model of arcsin √p with further columns (L, C).

    On this scale, the variance of a proportion depends little on its mean. Proportions are those of the model
    at the means of the further columns. The interval is that of the model with the average of the two sides
    held fixed: sin²(m + d/2) − sin²(m − d/2) = sin 2m sin d.
    """
    angles = np.arcsin(np.sqrt(np.clip(proportions, 0.0, 1.0)))
    design = np.column_stack([is_first, np.ones(len(is_first)), columns])
    inverse = np.linalg.pinv(design)
    effects, degrees = inverse @ angles, len(design) - design.shape[1]
    among = ((angles - design @ effects) ** 2).sum(axis=0) / degrees
    mean = proportions.mean(axis=0)
    binomial = np.maximum(4.0 * mean * (1.0 - mean), _TINY)
    among = np.maximum(among, _LEAST_VARIANCE * variances.mean(axis=0) / binomial)
    distribution, deviation = stats.t(degrees), np.sqrt(among * (inverse[0] @ inverse[0]))
    change, reach = effects[0], distribution.ppf(_UPPER) * deviation
    middle = np.clip(angles.mean(axis=0) + (0.5 - is_first.mean()) * change, 0.0, 0.5 * np.pi)
    first, second = (np.sin(middle + 0.5 * sign * change) ** 2 for sign in (1.0, -1.0))
    difference, lower, upper = (
        np.sin(2.0 * middle) * np.sin(np.clip(value, -0.5 * np.pi, 0.5 * np.pi))
        for value in (change, change - reach, change + reach)
    )
    p_values = 2.0 * distribution.sf(np.abs(change) / deviation)
    return first, second, difference, lower, upper, p_values
