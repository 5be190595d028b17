"""Decide which samples are unusual, by their proportions and by the likelihood of their cells.

This module handles arrays only; `proportions` makes tables of the results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from ..engine.records import BoolArray, FloatArray, IntArray

# Fewest fitted samples from which to estimate what is usual.
FEWEST_SAMPLES = 5
# Largest correlation of the cells of a sample. With a correlation of one, each has a single population.
_MAX_CORRELATION = 0.9
# Largest step of the grid of log-inflations. With R samples, the step is at most their standard error √(2/R).
_MAX_STEP = 0.8
# Half-width of the grid of a mean proportion, in standard errors. A normal density has a mass of 2e-9 beyond.
_REACH = 6.0
# Step of that grid, in standard errors. Sums over so fine a grid equal the integrals up to rounding.
_FINE = 0.6
# Most points of that grid. This bounds the work if proportions differ widely between samples.
_MOST_POINTS = 96
# Grid points with a smaller posterior weight do not change the p-values.
_NEGLIGIBLE = 1e-9
# Standard deviations of log-inflations among populations to average over: from nearly equal to unrelated.
_SPREADS = 0.2 * 2.0 ** np.arange(5)
# Largest count whose tail is summed term by term. For larger counts, a Beta distribution is close.
_MOST_SUMMED = 24
# Largest standard deviation of residuals among samples, as a multiple of their range.
_WIDEST = 30.0
# Keeps divisors and logarithms finite.
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Residuals:
    """Mean log-likelihoods of L samples, less what their compositions predict.

    A residual is a common mean, plus a normal deviation among samples, plus an error.
    """

    values: FloatArray  # (L,)
    errors: FloatArray  # (L,): standard deviations of the errors
    skews: FloatArray  # (L,): skewness of the errors


@dataclass(frozen=True)
class Verdicts:
    """How unusual L samples are, by the proportions of G populations and by the likelihood of their cells."""

    p_proportions: FloatArray  # (L, G): p-values of the single proportions
    usual_proportions: FloatArray  # (L, G): expected from the other samples
    p_composition: FloatArray  # (L,): p-values of all proportions of a sample together
    z: FloatArray  # (L,): residuals as standard normal variates, NaN without residuals
    p_likelihood: FloatArray  # (L,): p-values of the residuals
    p_adjusted: FloatArray  # (L,): p-values adjusted for all tests of all samples


def judge(counts: FloatArray, residuals: Residuals | None, of_fit: BoolArray, alpha: float) -> Verdicts:
    """Compare samples with those of the fit (L,), by their cells (L, G) of each population and by residuals.

    P-values are adjusted for the tests of a sample by Bonferroni's method and for the samples by Holm's;
    fitted and new samples are adjusted separately. Samples whose p-value is at most `alpha` are removed from
    the reference. The others are then judged again, since one unusual sample can hide another.
    """
    n_samples, n_populations = counts.shape
    # A single population has all cells: there is nothing to test.
    n_tested = n_populations if n_populations > 1 else 0
    usual, pending, adjusted = of_fit, np.ones(n_samples, dtype=bool), np.ones(n_samples)
    p_proportions, expected, z = np.ones_like(counts), np.ones_like(counts), np.full(n_samples, np.nan)
    while True:
        p_values, proportions = judge_proportions(counts, usual)
        p_proportions[pending], expected[pending] = p_values[pending], proportions[pending]
        if residuals is not None:
            z[pending] = judge_residuals(residuals, usual)[pending]
        least, p_likelihood = p_proportions.min(axis=1), 2.0 * special.ndtr(-np.abs(z))
        combined = (n_tested + (residuals is not None)) * np.fmin(least, p_likelihood)
        for together in (pending & of_fit, ~of_fit):
            adjusted[together] = holm(combined[together])
        unusual = pending & of_fit & (adjusted <= alpha)
        if not unusual.any() or np.sum(usual & ~unusual) < FEWEST_SAMPLES:
            break
        usual, pending = usual & ~unusual, pending & ~unusual
    p_composition = np.minimum(1.0, max(n_tested, 1) * least)
    return Verdicts(p_proportions, expected, p_composition, z, p_likelihood, adjusted)


def holm(p_values: FloatArray) -> FloatArray:
    """Return p-values (L,) adjusted by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.maximum.accumulate(np.arange(len(order), 0, -1) * p_values[order])
    return np.minimum(adjusted, 1.0)


def judge_proportions(counts: FloatArray, usual: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return p-values (L, G) of the cells (L, G) of each population in each sample, and usual proportions.

    A sample is compared with the usual ones other than itself. Their cells of a population are beta-binomial,
    with a mean proportion m and a correlation ρ of cells of the same sample: the variance of a proportion
    among n cells is m (1 − m) / n times the inflation 1 + (n − 1) ρ. Neither is known. The p-value is the
    mean, over their posterior, of twice the probability of such a count or of one that is further from m. The
    prior is uniform in arcsin √m and in log (1 + n ρ), for the median n: with it, p-values of many cells are
    those of Student's t. The log-inflations of the populations are normal, with an unknown mean and
    deviation: a population that no other sample has says nothing about how much its proportion varies, but
    the other populations do.
    """
    (n_samples, n_populations), sizes, reference = counts.shape, counts.sum(axis=1), np.flatnonzero(usual)
    if n_populations == 1:
        return np.ones_like(counts), np.ones_like(counts)
    judged_by, typical = _posterior_of_each(usual), float(np.median(sizes[reference]))
    inflation = _log_inflations(np.log1p(_MAX_CORRELATION * typical), len(reference))
    rho = np.expm1(inflation) / typical
    grids = [_ProportionGrid.of(cells, sizes[reference], rho) for cells in counts[reference].T]
    of_inflation = _pooled(np.stack([grid.evidence for grid in grids]), inflation)
    p_values, expected = np.ones_like(counts), np.ones_like(counts)
    for g, grid in enumerate(grids):
        posterior = grid.given * np.repeat(of_inflation[g], grid.times, axis=0)
        expected[:, g] = (grid.means @ posterior)[judged_by]
        total = np.repeat(1.0 / rho - 1.0, grid.times)
        for j in range(n_samples):
            weights = posterior[:, judged_by[j]]
            points = np.flatnonzero(weights > _NEGLIGIBLE)
            a, b = grid.means[points] * total[points], (1.0 - grid.means[points]) * total[points]
            count, rest = counts[j, g], sizes[j] - counts[j, g]
            if count > expected[j, g] * sizes[j]:
                count, rest, a, b = rest, count, b, a
            p_values[j, g] = 2.0 * weights[points] @ lower_tail(count, rest, a, b)
    return np.minimum(p_values, 1.0), expected


def _posterior_of_each(usual: BoolArray) -> IntArray:
    """Return which posterior judges each sample (L,): for a usual one that without it, or else the last."""
    return np.where(usual, np.cumsum(usual) - 1, np.sum(usual))


def _log_inflations(highest: float, n_samples: int) -> FloatArray:
    """Return a grid (H,) of log-inflations from 0 to the highest."""
    n_steps = int(np.ceil(highest / min(_MAX_STEP, np.sqrt(2.0 / n_samples))))
    return np.asarray((np.arange(n_steps) + 0.5) * (highest / n_steps), dtype=np.float64)


@dataclass(frozen=True)
class _ProportionGrid:
    """Grid over the mean proportion and ρ of a population, and R + 1 posteriors.

    The posteriors leave out each of R samples in turn; the last has all of them. Points are sorted by ρ.
    """

    means: FloatArray  # (P,): mean proportion at each point
    times: IntArray  # (H,): number of points of each ρ
    given: FloatArray  # (P, R + 1): posterior given ρ
    evidence: FloatArray  # (H, R + 1): log-likelihood of ρ

    @classmethod
    def of(cls, counts: FloatArray, sizes: FloatArray, rho: FloatArray) -> _ProportionGrid:
        """Return the grid for the cells (R,) of a population in samples of these sizes (R,)."""
        angles = np.arcsin(np.sqrt(np.clip(counts / sizes, 0.0, 1.0)))
        precision = 4.0 * sizes / (1.0 + np.maximum(sizes - 1.0, 0.0) * rho[:, None])
        left = precision.sum(axis=1, keepdims=True) - precision
        without = ((precision @ angles)[:, None] - precision * angles) / left
        error = 1.0 / np.sqrt(left.min(axis=1))
        low = np.maximum(without.min(axis=1) - _REACH * error, 0.0)
        high = np.minimum(without.max(axis=1) + _REACH * error, 0.5 * np.pi)
        times = np.clip(np.ceil((high - low) / (_FINE * error)), 8, _MOST_POINTS).astype(int)
        step = (high - low) / times
        first = np.cumsum(times) - times
        place = np.arange(times.sum()) - np.repeat(first, times)
        means = np.sin(np.repeat(low, times) + (place + 0.5) * np.repeat(step, times)) ** 2
        total = 1.0 / rho - 1.0
        a, b = np.repeat(total, times) * means, np.repeat(total, times) * (1.0 - means)
        logs = special.gammaln(counts + a[:, None]) + special.gammaln(sizes - counts + b[:, None])
        logs -= (special.gammaln(a) + special.gammaln(b))[:, None]
        of_sizes = special.gammaln(sizes + total[:, None]) - special.gammaln(total)[:, None]
        logs -= np.repeat(of_sizes, times, axis=0)
        logs = logs.sum(axis=1, keepdims=True) - np.pad(logs, ((0, 0), (0, 1)))
        peak = np.maximum.reduceat(logs, first, axis=0)
        given = np.exp(logs - np.repeat(peak, times, axis=0))
        sums = np.add.reduceat(given, first, axis=0)
        return cls(means, times, given / np.repeat(sums, times, axis=0), peak + np.log(sums * step[:, None]))


def _pooled(evidence: FloatArray, inflation: FloatArray) -> FloatArray:
    """Return posteriors (G, H, R) of the log-inflation of populations, given its log-likelihoods."""
    n_populations = len(evidence)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    spread = np.repeat(_SPREADS, len(inflation))[:, None]
    among = np.exp(-0.5 * ((inflation - np.tile(inflation, len(_SPREADS))[:, None]) / spread) ** 2)
    among /= among.sum(axis=1, keepdims=True)
    of_each = np.log(np.maximum(among @ likelihood, _TINY))
    # Evidence of the other populations. Proportions add up to one, so one of them follows from the rest.
    others = (of_each.sum(axis=0) - of_each) * ((n_populations - 2.0) / (n_populations - 1.0)) - np.log(
        spread
    )
    weights = np.exp(others - others.max(axis=1, keepdims=True))
    posterior = likelihood * (among.T @ weights)
    return posterior / posterior.sum(axis=1, keepdims=True)


def lower_tail(count: float, rest: float, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the probabilities of at most `count` of count + rest cells, for beta-binomial parameters (P,).

    For small counts this is the exact sum, with linear interpolation for fractions; for larger ones, that of
    a Beta distribution of the same variance, with half a cell added as a continuity correction.
    """
    size, total = count + rest, a + b
    if count <= _MOST_SUMMED:
        k = np.arange(np.floor(count) + 1.0)[:, None]
        none = special.gammaln(size + b) - special.gammaln(b) + special.gammaln(total)
        none -= special.gammaln(size + total)
        ratios = np.maximum(size - k, 0.0) / (k + 1.0) * (a + k) / np.maximum(size - k - 1.0 + b, _TINY)
        terms = np.exp(none) * np.vstack([np.ones_like(a), np.cumprod(ratios, axis=0)])
        terms[-1] *= count % 1.0
        return np.minimum(terms.sum(axis=0), 1.0)
    scale = np.maximum(size * (total + 1.0) / (size + total) - 1.0, 1e-3) / total
    return special.betainc(scale * a, scale * b, min((count + 0.5) / size, 1.0))


def judge_residuals(residuals: Residuals, usual: BoolArray) -> FloatArray:
    """Return the residuals (L,) of samples as standard normal variates.

    The common mean and the deviation among samples are estimated from the usual samples other than the sample
    itself, with a prior that is uniform in the mean and in the logarithm of the variance.
    """
    reference, errors = np.flatnonzero(usual), residuals.errors
    judged_by, x, squares = _posterior_of_each(usual), residuals.values[reference], errors[reference] ** 2
    typical = float(np.median(squares))
    highest = np.log1p((_WIDEST * max(np.ptp(x), np.sqrt(typical))) ** 2 / typical)
    among = typical * np.expm1(_log_inflations(highest, len(reference)))[:, None]

    def without(terms: FloatArray) -> FloatArray:
        """Return sums (H, R + 1) of terms (H, R) that leave out each of them in turn, and the full sum."""
        return terms.sum(axis=1, keepdims=True) - np.pad(terms, ((0, 0), (0, 1)))

    precision = 1.0 / (squares + among)
    total, moment = without(precision), without(precision * x)
    mean = moment / total
    evidence = without(np.log(precision)) - np.log(total) - without(precision * x**2) + moment * mean
    evidence = 0.5 * (evidence - evidence.max(axis=0))
    evidence -= np.log(np.exp(evidence).sum(axis=0))
    deviation = np.sqrt(errors**2 + among + 1.0 / total[:, judged_by])
    z = (residuals.values - mean[:, judged_by]) / deviation
    skews = residuals.skews * (errors / deviation) ** 3
    low, high = (
        special.logsumexp(evidence[:, judged_by] + stats.pearson3(sign * skews).logsf(sign * z), axis=0)
        for sign in (-1.0, 1.0)
    )
    variates = special.ndtri_exp(np.clip(np.minimum(low, high), -1e4, np.log(0.5)))
    return np.where(low < high, variates, -variates)
