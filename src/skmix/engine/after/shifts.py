"""Group shifts: every group has its own means, near the common ones.

Group j has the means μ_k + δ_kj. In units of its kernel's deviations, a shift is normal with variance 1 / r:
δ_kj ~ N(0, P_k / r), as if r rows of the group lay at the common mean. EM raises the penalised log-likelihood

    Σ_n log Σ_k π_kj N(x_n; μ_k + δ_kj, P_k) − r/2 Σ_kj δ_kjᵀ P_k⁻¹ δ_kj.

The E-step is that of one class for each group, with its own means. For m_kj expected rows with mean x̄_kj, the
M-step has a closed form, since the best shifts and means do not depend on P_k:

    μ_k = Σ_j c_kj x̄_kj / Σ_j c_kj,  c_kj = r m_kj / (m_kj + r),                                        (M2)
    δ_kj = m_kj / (m_kj + r) (x̄_kj − μ_k),                                                              (M4)
    P_k = [Σ_n w_nk (x_n − μ_k − δ_kj)(…)ᵀ + r Σ_j δ_kj δ_kjᵀ] / m_k.                                     (M3)

Given the kernel of each row, (M3) also maximises the likelihood with shifts integrated out. A prior on δ in
the units of the data would add a term log |P_k| for each shift, and kernels would become too narrow where
groups have few rows. With frozen kernels this is relevance MAP adaptation
(Reynolds, Quatieri & Dunn, 2000), and r is the relevance factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add

import numpy as np

from ..exponentials import EMPTY_MASS
from ..loop import Passes, say_fall
from ..numbers import to_numpy
from ..problem import Problem
from ..records import Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from ..rows.source import ArrayRows, Expected, ReduceClasses, RowSource
from ..rules.likelihood import Likelihood
from ..structures import Structure

# Strengths that `choose_strength` tries: shifts of 0.06 to 1 deviations.
STRENGTHS = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
# Folds in which rows are held out in turn.
_FOLDS = 5
# With this many rows or more, one fold is precise enough.
_ENOUGH_ROWS = 200_000
# Parts of the held-out rows, whose gains tell their standard error.
_PARTS = 20
# Standard errors that a gain must exceed.
_ERRORS = 2.0
# The search ends after this many strengths in a row that are no better than the best.
_WORSE = 2
# Largest number of passes of each candidate, which starts from the one before.
_PASSES = 50


# ---------------------------------------------------------------- the E-step


@dataclass(frozen=True)
class GroupSums:
    """Sums over rows of groups. Sums of disjoint rows add."""

    # By group: statistics (1, …) of its rows, without second moments, and the origins (1, K, M).
    groups: dict[int, Expected]
    second: FloatArray | float  # (1, K, S): second-order terms of all rows, about their group's origins

    def __add__(self, other: GroupSums) -> GroupSums:
        common = self.groups.keys() & other.groups.keys()
        both = {j: (self.groups[j][0].plus(other.groups[j][0]), self.groups[j][1]) for j in common}
        return GroupSums(self.groups | other.groups | both, self.second + other.second)

    def log_likelihoods(self, n_groups: int, n_parts: int = 1) -> FloatArray:
        """Return the log-likelihoods (L, B) of the groups by part of their rows, zero without rows."""
        values = np.zeros((n_groups, n_parts))
        for j, (sums, _) in self.groups.items():
            values[j] = sums.log_likelihood[0]
        return values


def check_source(source: RowSource) -> None:
    """Refuse rows that cannot be read group by group."""
    if not source.splits_classes:
        raise ValueError(
            "group_shift needs rows in memory, or passes on the CPU over rows in files: these rows are "
            "streamed to a device. Leave device out."
        )
    n_unlabelled = source.summary.n_unlabelled
    if n_unlabelled:
        raise ValueError(
            f"{n_unlabelled} rows have no label, and with group_shift every row needs its group. "
            "Leave these rows out."
        )


def _expect_group(
    parameters: Parameters, shifts: FloatArray, factor: Factor, setting: Setting, j: int, rows: ArrayRows
) -> GroupSums:
    """Do the E-step (E) over rows of group j, which has means of its own, with shifts (L, K, M) in the frame.

    The class codes of the rows, if they have any, are parts; the sums are on the host.
    """
    weights = parameters.weights[:, :, j : j + 1]
    if rows.codes is not None:
        weights = rows.to_device(np.repeat(to_numpy(weights), _PARTS, axis=-1))
    means = parameters.means + shifts[j, ...][None, ...]
    statistics, origins = rows.expect(Parameters(weights, means, parameters.covariances), factor, setting)
    sums = statistics.map(to_numpy)
    second = sums.second if setting.with_moments else 0.0
    return GroupSums({j: (replace(sums, second=np.zeros(0)), to_numpy(origins))}, second)


def _rows_of_fold(
    seed: int, fold: int, held_out: bool, block: int, n_rows: int
) -> tuple[IntArray, IntArray | None]:
    """Return the rows of a block that are held out in a fold, and random parts of them; or the other rows."""
    random = np.random.default_rng([seed, block])
    folds = random.integers(0, _FOLDS, size=n_rows)
    chosen = np.flatnonzero((folds == fold) == held_out)
    return chosen, random.integers(0, _PARTS, size=n_rows)[chosen] if held_out else None


# ---------------------------------------------------------------- the M-step


def improve(
    rule: Likelihood,
    sums: GroupSums,
    log_likelihood: FloatArray,
    current: Parameters,
    factor: Factor,
    strength: float,
) -> tuple[Parameters, Factor, FloatArray]:
    """Do the M-step: return the common parameters (1, …), their factor and the shifts (L, K, M).

    `log_likelihood` (L,) is of the rows of each group, and `current` are the parameters of the E-step.
    """
    structure, before = rule.structure, current.means[0]
    # Mass (L, K) and first moments (L, K, M) of the groups about the common means.
    mass = np.zeros((len(log_likelihood), len(before)))
    about = np.zeros((*mass.shape, before.shape[1]))
    for j, (group, origins) in sums.groups.items():
        mass[j] = group.mass[0].sum(axis=-1)
        about[j] = group.first[0] + mass[j, :, None] * (origins[0] - before)
    # r / (m + r): an infinite strength makes no shift.
    common_share = 1.0 / (1.0 + mass / strength)
    moves = (mass.sum(axis=0) > EMPTY_MASS) & (rule.freeze != "kernels")
    pooled = np.where(moves, (common_share * mass).sum(axis=0), 1.0)
    step = (common_share[..., None] * about).sum(axis=0) / pooled[:, None]
    means = before + np.where(moves[:, None], step, 0.0)  # (M2)
    shifts = (common_share / strength)[..., None] * (about - mass[..., None] * (means - before))  # (M4)
    second = np.array(sums.second)
    zero, pseudo_rows = np.zeros_like(current.means), np.full((1, len(means), 1), strength)
    for j, (group, origins) in sums.groups.items():
        # About the group's new means, and with the pseudo-rows at the common ones: (M3).
        offset = origins - means - shifts[j]
        second = structure.moved(second, group.first, mass[None, j, :, None], offset)
        if np.isfinite(strength):
            second = structure.moved(second, zero, pseudo_rows, shifts[j][None])
    statistics = Statistics(log_likelihood[None], mass.T[None], zero, second)
    # Kernels that narrow sharply lose digits in this pass; the next one is about their new means.
    following, next_factor, _ = rule.improve(statistics, means[None], current, factor)
    return following, next_factor, shifts


def penalty(structure: Structure, factor: Factor, shifts: FloatArray, strength: float) -> float:
    """Return r/2 Σ δᵀP⁻¹δ of shifts (L, K, M)."""
    if not np.isfinite(strength):
        return 0.0
    return float(0.5 * strength * (shifts * structure.precision_times(factor, shifts)).sum())


def _shrunk_to(anchor: FloatArray, sums: GroupSums, strength: float, weights: FloatArray) -> FloatArray:
    """Return weights (1, K, L) of groups between their own and those of the anchor (K,)."""
    weights = weights.copy()
    for j, (group, _) in sums.groups.items():
        mass = group.mass[0].sum(axis=-1)
        adapted = 1.0 / (1.0 + strength / np.maximum(mass, EMPTY_MASS))
        mixed = adapted * mass / mass.sum() + (1.0 - adapted) * anchor
        weights[0, :, j] = mixed / mixed.sum()
    return weights


# ---------------------------------------------------------------- fits


@dataclass(frozen=True)
class Shifted:
    """A model whose groups have means of their own, in the data's coordinates."""

    parameters: Parameters  # common ones, of one model
    shifts: FloatArray  # (L, K, M)
    log_likelihood: FloatArray  # (L,): of the rows of each group; (B,) of the parts of a fold
    objective: FloatArray  # (passes + 1,): penalised log-likelihood before each pass and after the last
    path: FloatArray  # (passes, L): log-likelihood of each group before each pass
    counts: FloatArray | None  # (K, L): expected rows, where weights have a posterior
    converged: bool


def shift_groups(
    problem: Problem,
    start: Parameters,
    strength: float,
    *,
    shifts: FloatArray | None = None,
    anchor: FloatArray | None = None,
    fold: tuple[int, int] | None = None,
) -> Shifted:
    """Fit shifts of a given strength, and with them the common parameters, from one model.

    The start, in the data's coordinates, has weights (K, L) of the groups; `shifts` (L, K, M) begin at zero.
    An infinite strength r makes no shifts. With an `anchor` (K,), the groups' weights are shrunk towards it
    by the rule of Reynolds, Quatieri & Dunn, not by the M-step: π_kj ∝ a n_kj / n_j + (1 − a) anchor_k with
    a = n_kj / (n_kj + r). With a `fold`, a seed and a number, its rows are held out, and the log-likelihoods
    are of these rows.
    """
    source, options, n_groups = problem.source, problem.options, start.weights.shape[-1]
    check_source(source)
    volume = problem.volume(n_groups)
    rows = source.by_class(None if fold is None else partial(_rows_of_fold, *fold, False))
    delta = np.zeros((n_groups, *start.means.shape)) if shifts is None else shifts / problem.frame.scale
    objective: list[float] = []
    path: list[FloatArray] = []
    converged = False
    with Passes.over(problem, on_host=True) as passes:
        rule, setting = passes.rule, passes.setting
        assert isinstance(rule, Likelihood)
        current, factor = rule.enter(problem.enter(start.batch()))

        def expect(rows: ReduceClasses, parameters: Parameters, setting: Setting) -> GroupSums:
            place = source.to_device
            work = partial(_expect_group, parameters.map(place), place(delta), factor.map(place), setting)
            total: GroupSums = rows(work, add, GroupSums({}, 0.0))
            return total

        def follow(sums: GroupSums) -> FloatArray:
            """Add to the objective; return the log-likelihood (L,) of each group."""
            log_likelihood = sums.log_likelihoods(n_groups)[:, 0]
            value = log_likelihood.sum() + float(rule.log_prior(current, factor)[0])
            objective.append(value - penalty(setting.structure, factor, delta, strength))
            before, after = np.array(objective[-2:-1]), np.array(objective[-1:])
            # Weights shrunk towards an anchor do not maximise the objective.
            if len(before) and anchor is None and passes.fell(before, after, current, factor)[0]:
                raise ValueError(say_fall(before[0] - volume.sum(), after[0] - volume.sum()))
            return log_likelihood

        while len(path) < options.max_iter and not converged:
            sums = expect(rows, current, setting)
            path.append(follow(sums))
            following, next_factor, next_delta = improve(rule, sums, path[-1], current, factor, strength)
            if not next_factor.usable[0] or not np.isfinite(path[-1]).all():
                break  # a covariance became singular, without a floor
            if anchor is not None:
                following = replace(following, weights=_shrunk_to(anchor, sums, strength, following.weights))
            current, factor, delta = following, next_factor, next_delta
            gain = objective[-1] - objective[-2] if len(objective) > 1 else np.inf
            converged = bool(abs(gain) < options.tol * source.summary.total)
        setting = replace(setting, with_moments=False)
        log_likelihood = follow(expect(rows, current, setting)) - volume
        point = rule.finish(current)
        if fold is not None:
            judged = source.by_class(partial(_rows_of_fold, *fold, True))
            sums = expect(judged, point, setting)
            log_likelihood = sums.log_likelihoods(n_groups, _PARTS).sum(axis=0)
        elif rule.bounded:  # passes used expected logarithms of the weights
            sums = expect(rows, point, setting)
            log_likelihood = sums.log_likelihoods(n_groups)[:, 0] - volume
    source.clear_cache()
    return Shifted(
        problem.leave(point, start.batch()).take(0),
        delta * problem.frame.scale,
        log_likelihood,
        np.array(objective) - volume.sum(),
        np.reshape(path, (len(path), n_groups)) - volume,
        None if point.counts is None else point.counts[0],
        converged,
    )


def choose_strength(problem: Problem, start: Parameters, seed: int) -> float:
    """Return the strength that is best for rows held out in all groups, infinite if shifts do not help.

    Strengths are tried from the largest down, each fit starting from the one before, until two in a row are
    no better than the best. Shifts help if the held-out rows gain more than twice the standard error of the
    gain, against a model of the other rows without shifts.
    """
    n_rows = problem.source.summary.n_rows
    if n_rows < 2 * _FOLDS:  # all of them may be in one fold
        return np.inf
    problem = problem.with_options(max_iter=min(problem.options.max_iter, _PASSES))
    folds = range(_FOLDS if n_rows < _ENOUGH_ROWS else 1)

    plain = [shift_groups(problem, start, np.inf, fold=(seed, fold)) for fold in folds]
    last = plain
    best, best_gains, n_worse = np.inf, np.zeros(len(folds) * _PARTS), 0
    for strength in STRENGTHS:
        last = [
            shift_groups(problem, before.parameters, strength, shifts=before.shifts, fold=(seed, fold))
            for fold, before in enumerate(last)
        ]
        gains = np.concatenate(
            [new.log_likelihood - old.log_likelihood for new, old in zip(last, plain, strict=True)]
        )
        if gains.sum() > best_gains.sum():
            best, best_gains, n_worse = strength, gains, 0
        elif (n_worse := n_worse + 1) == _WORSE:
            break
    error = best_gains.std(ddof=1) * np.sqrt(len(best_gains))
    return best if best_gains.sum() > _ERRORS * error else np.inf
