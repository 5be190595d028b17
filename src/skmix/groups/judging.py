"""How unusual groups are: their shares and values beside those of the others.

Arrays alone; `proportions` makes tables of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from ..engine.model import BoolArray, FloatArray, IntArray

# Fewest samples of a fit that tell what is usual.
FEWEST_SAMPLES = 5
# Largest correlation of rows of one group. With a correlation of one, a group would have a single part.
_MOST_ALIKE = 0.9
# Coarsest step of a grid of log-inflations: with few groups, their standard error √(2/R) is larger.
_COARSEST = 0.8
# Reach of the grid of a mean share, in standard errors. A normal density has a weight of 2e-9 beyond it.
_REACH = 6.0
# Step of that grid, in standard errors. Sums over so fine a grid equal the integrals up to rounding.
_FINE = 0.6
# Most points of that grid. This bounds the work where shares differ much between groups.
_MOST_POINTS = 96
# Points with a smaller posterior weight are left out of p-values.
_UNLIKELY = 1e-9
# Standard deviations of log-inflations among parts to average over: from nearly equal to unrelated.
_SPREADS = 0.2 * 2.0 ** np.arange(5)
# Largest count whose tail is summed term by term. A Beta distribution is close for larger counts.
_MOST_SUMMED = 24
# Largest standard deviation of values among groups, as a multiple of their range.
_WIDEST = 30.0
# Keeps divisors and logarithms finite.
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Residuals:
    """Values of L groups: multiples of one mean, with errors, and with a normal deviation among groups."""

    found: FloatArray  # (L,)
    errors: FloatArray  # (L,): standard deviations
    slopes: FloatArray  # (L,): coefficients of the common mean
    skews: FloatArray  # (L,): of the errors


@dataclass(frozen=True)
class Verdicts:
    """How unusual L groups are, by G shares and one value."""

    p_parts: FloatArray  # (L, G): p-values of the shares
    usual_shares: FloatArray  # (L, G): those of the other groups
    p_shares: FloatArray  # (L,): p-values of all shares together
    z: FloatArray  # (L,): values as standard normal variates, NaN without values
    p_values: FloatArray  # (L,): theirs
    p_adjusted: FloatArray  # (L,): for shares and values of all groups together


def judge(counts: FloatArray, values: Residuals | None, of_fit: BoolArray, alpha: float) -> Verdicts:
    """Return how unusual groups are among those of the fit (L,), by rows (L, G) of their parts and by values.

    P-values are for all that is looked at together: the parts and the value of a group by Bonferroni, groups
    by Holm; those that are not of the fit apart. Groups whose p-value is at most `alpha` no longer count for
    what is usual. The remaining groups are then judged again, since an unusual group can hide another one.
    """
    n_groups, n_parts = counts.shape
    # A single part has all rows, and its share is no test.
    n_shares = n_parts if n_parts > 1 else 0
    usual, pending, adjusted = of_fit, np.ones(n_groups, dtype=bool), np.ones(n_groups)
    p_parts, shares, z = np.ones_like(counts), np.ones_like(counts), np.full(n_groups, np.nan)
    while True:
        found = usual_shares(counts, usual)
        p_parts[pending], shares[pending] = (each[pending] for each in found)
        if values is not None:
            z[pending] = usual_values(values, usual)[pending]
        least, p_values = p_parts.min(axis=1), 2.0 * special.ndtr(-np.abs(z))
        together = (n_shares + (values is not None)) * np.fmin(least, p_values)
        for some in (pending & of_fit, ~of_fit):
            adjusted[some] = _holm(together[some])
        unusual = pending & of_fit & (adjusted <= alpha)
        if not unusual.any() or np.sum(usual & ~unusual) < FEWEST_SAMPLES:
            break
        usual, pending = usual & ~unusual, pending & ~unusual
    p_shares = np.minimum(1.0, max(n_shares, 1) * least)
    return Verdicts(p_parts, shares, p_shares, z, p_values, adjusted)


def _holm(p_values: FloatArray) -> FloatArray:
    """Return p-values (L,) that hold for all of them together: Holm's, by steps down from the least."""
    order = np.argsort(p_values, kind="stable")
    found = np.empty_like(p_values)
    found[order] = np.maximum.accumulate(np.arange(len(order), 0, -1) * p_values[order])
    return np.minimum(found, 1.0)


def usual_shares(counts: FloatArray, usual: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return p-values (L, G) of the rows (L, G) of each part in each group, and the parts' usual shares.

    A group is compared with the usual ones other than itself. Their rows of a part are beta-binomial, with a
    mean share m and a correlation ρ of rows of the same group: the variance of a share of n rows is
    m (1 − m) / n times the inflation 1 + (n − 1) ρ. Neither is known, and the p-value is the mean, over their
    posterior, of twice the probability of such a count or of one that is further from m. The prior is uniform
    in arcsin √m and in log (1 + n ρ), for the median n: with it, p-values of many rows are those of Student's
    t. The log-inflations of the parts are taken to be normal, with an unknown mean and deviation: a part that
    all other groups lack says nothing about how much its share would vary, but the other parts do.
    """
    (n_groups, n_parts), sizes, reference = counts.shape, counts.sum(axis=1), np.flatnonzero(usual)
    if n_parts == 1:
        return np.ones_like(counts), np.ones_like(counts)
    # A usual group is judged by the posterior without it, any other by that of all usual groups, the last.
    own = np.full(n_groups, len(reference))
    own[reference] = np.arange(len(reference))
    typical = float(np.median(sizes[reference]))
    highest = np.log1p(_MOST_ALIKE * typical)
    n_steps = int(np.ceil(highest / min(_COARSEST, np.sqrt(2.0 / len(reference)))))
    inflation = (np.arange(n_steps) + 0.5) * (highest / n_steps)
    rho = np.expm1(inflation) / typical
    grids = [_ShareGrid.of(each, sizes[reference], rho) for each in counts[reference].T]
    expected = _pooled(np.stack([grid.evidence for grid in grids]), inflation)
    p_values, shares = np.ones_like(counts), np.ones_like(counts)
    for g, grid in enumerate(grids):
        posterior = grid.given * np.repeat(expected[g], grid.times, axis=0)
        shares[:, g] = (grid.means @ posterior)[own]
        total = np.repeat(1.0 / rho - 1.0, grid.times)
        for j in range(n_groups):
            weights = posterior[:, own[j]]
            some = np.flatnonzero(weights > _UNLIKELY)
            a, b = grid.means[some] * total[some], (1.0 - grid.means[some]) * total[some]
            count, rest = counts[j, g], sizes[j] - counts[j, g]
            if count > shares[j, g] * sizes[j]:
                count, rest, a, b = rest, count, b, a
            p_values[j, g] = 2.0 * weights[some] @ lower_tail(count, rest, a, b)
    return np.minimum(p_values, 1.0), shares


@dataclass(frozen=True)
class _ShareGrid:
    """Points of the mean share and ρ of a part, and posteriors of R groups, without each of them and of all.

    There are some points with each ρ, one after the other.
    """

    means: FloatArray  # (P,)
    times: IntArray  # (H,): points with each ρ
    given: FloatArray  # (P, R + 1): posterior, given ρ
    evidence: FloatArray  # (H, R + 1): log-likelihood of ρ

    @classmethod
    def of(cls, counts: FloatArray, sizes: FloatArray, rho: FloatArray) -> _ShareGrid:
        """Return the grid for the rows (R,) of a part in groups of these sizes (R,)."""
        angles = np.arcsin(np.sqrt(np.clip(counts / sizes, 0.0, 1.0)))
        known = 4.0 * sizes / (1.0 + np.maximum(sizes - 1.0, 0.0) * rho[:, None])
        left = known.sum(axis=1, keepdims=True) - known
        without = ((known @ angles)[:, None] - known * angles) / left
        error = 1.0 / np.sqrt(left.min(axis=1))
        low = np.maximum(without.min(axis=1) - _REACH * error, 0.0)
        high = np.minimum(without.max(axis=1) + _REACH * error, 0.5 * np.pi)
        times = np.clip(np.ceil((high - low) / (_FINE * error)), 8, _MOST_POINTS).astype(int)
        step = (high - low) / times
        first = np.cumsum(times) - times
        place = np.arange(times.sum()) - np.repeat(first, times)
        means = np.sin(np.repeat(low, times) + (place + 0.5) * np.repeat(step, times)) ** 2
        total = 1.0 / rho - 1.0
        a, b = (np.repeat(total, times) * each for each in (means, 1.0 - means))
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
    """Return posteriors (G, H, R) of the log-inflation of parts, given its log-likelihoods (G, H, R)."""
    n_parts = len(evidence)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    spread = np.repeat(_SPREADS, len(inflation))[:, None]
    among = np.exp(-0.5 * ((inflation - np.tile(inflation, len(_SPREADS))[:, None]) / spread) ** 2)
    among /= among.sum(axis=1, keepdims=True)
    each = np.log(np.maximum(among @ likelihood, _TINY))
    # Evidence of the other parts. Shares add up to one, so one of them follows from the rest.
    others = (each.sum(axis=0) - each) * ((n_parts - 2.0) / (n_parts - 1.0)) - np.log(spread)
    weights = np.exp(others - others.max(axis=1, keepdims=True))
    found = likelihood * (among.T @ weights)
    found /= found.sum(axis=1, keepdims=True)
    return found


def lower_tail(count: float, rest: float, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the probabilities of at most `count` of count + rest rows, for beta-binomial parameters (P,).

    Small counts have the exact sum, with linear interpolation for fractions. The share of larger ones has
    nearly a Beta distribution of the same variance, with half a row added as a continuity correction.
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
    known = np.maximum(size * (total + 1.0) / (size + total) - 1.0, 1e-3) / total
    return special.betainc(known * a, known * b, min((count + 0.5) / size, 1.0))


def usual_values(values: Residuals, usual: BoolArray) -> FloatArray:
    """Return the values (L,) of groups as standard normal variates.

    The common mean and the deviation among groups are those of the usual groups other than the group itself,
    with a prior that is uniform in the mean and in the logarithm of the variance.
    """
    reference, errors = np.flatnonzero(usual), values.errors
    own = np.full(len(errors), len(reference))
    own[reference] = np.arange(len(reference))
    x, slope, squares = values.found[reference], values.slopes[reference], errors[reference] ** 2
    typical = float(np.median(squares))
    highest = np.log1p((_WIDEST * max(np.ptp(x), np.sqrt(typical))) ** 2 / typical)
    n_steps = int(np.ceil(highest / min(_COARSEST, np.sqrt(2.0 / len(reference)))))
    among = typical * np.expm1((np.arange(n_steps)[:, None] + 0.5) * (highest / n_steps))

    def without(terms: FloatArray) -> FloatArray:
        """Return sums (H, R + 1) of terms (H, R), without each of them and of all."""
        return terms.sum(axis=1, keepdims=True) - np.pad(terms, ((0, 0), (0, 1)))

    known = 1.0 / (squares + among)
    total, moment = without(known * slope**2), without(known * slope * x)
    mean = moment / total
    evidence = without(np.log(known)) - np.log(total) - without(known * x**2) + moment * mean
    evidence = 0.5 * (evidence - evidence.max(axis=0))
    evidence -= np.log(np.exp(evidence).sum(axis=0))
    deviation = np.sqrt(errors**2 + among + values.slopes**2 / total[:, own])
    z = (values.found - values.slopes * mean[:, own]) / deviation
    skews = values.skews * (errors / deviation) ** 3
    low, high = (
        special.logsumexp(evidence[:, own] + stats.pearson3(sign * skews).logsf(sign * z), axis=0)
        for sign in (-1.0, 1.0)
    )
    variates = special.ndtri_exp(np.clip(np.minimum(low, high), -1e4, np.log(0.5)))
    return np.where(low < high, variates, -variates)
