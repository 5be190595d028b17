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

import numpy as np

from ..loop import Passes, say_fall
from ..numbers import EMPTY_MASS, to_numpy
from ..problem import Problem
from ..records import Factor, FloatArray, IntArray, Parameters, Setting, Statistics
from ..rows.source import ArrayRows, RowSource
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


@dataclass(frozen=True)
class Shifted:
    """A model whose groups have means of their own, in the data's coordinates."""

    parameters: Parameters  # common ones, of one model
    shifts: FloatArray  # (L, K, M)
    log_likelihood: FloatArray  # (L,): of the rows of each group
    objective: FloatArray  # (passes + 1,): penalised log-likelihood before each pass and after the last
    path: FloatArray  # (passes, L): log-likelihood of each group before each pass
    counts: FloatArray | None  # (K, L): expected rows, where weights have a posterior
    converged: bool


@dataclass(frozen=True)
class GroupSums:
    """Sums over the rows of groups. Sums of disjoint rows add."""

    # By group: log-likelihoods (B,) of parts of its rows, mass (K,), first moments (K, M) and their origins.
    groups: dict[int, tuple[FloatArray, FloatArray, FloatArray, FloatArray]]
    second: FloatArray | float  # (K, S): second-order terms about each group's origins


def add(a: GroupSums, b: GroupSums) -> GroupSums:
    """Return the sums of the rows of both, which have the same origins, leaving both unchanged."""
    groups = a.groups | b.groups
    for j in a.groups.keys() & b.groups.keys():
        one, two = a.groups[j], b.groups[j]
        groups[j] = (one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3])
    return GroupSums(groups, a.second + b.second)


@dataclass(frozen=True)
class Fold:
    """The rows that are held out in a fold, or the others; the seed assigns rows to folds."""

    seed: int
    number: int
    held_out: bool

    def of(self, block: int, n_rows: int) -> tuple[IntArray, IntArray | None]:
        """Return the chosen rows of a block and, if held out, random parts 0 … `_PARTS` − 1 of them."""
        random = np.random.default_rng([self.seed, block])
        folds = random.integers(0, _FOLDS, size=n_rows)
        chosen = np.flatnonzero((folds == self.number) == self.held_out)
        return chosen, random.integers(0, _PARTS, size=n_rows)[chosen] if self.held_out else None


def check_source(source: RowSource) -> None:
    """Refuse rows that cannot be read group by group."""
    if not source.splits_classes:
        raise ValueError(
            "group_shift needs rows in memory, or passes on the CPU over rows in files: these rows are "
            "streamed to a device. Leave device out."
        )
    if source.summary.counts[0]:
        raise ValueError(
            f"{source.summary.counts[0]} rows have no label, and with group_shift every row needs its group. "
            "Leave these rows out."
        )


class GroupRows:
    """Rows by group: passes in which every group has its own means."""

    def __init__(self, source: RowSource, n_groups: int, fold: Fold | None = None) -> None:
        check_source(source)
        self.source, self.n_groups, self.fold = source, n_groups, fold
        self.parted = fold is not None and fold.held_out
        self._reduce = source.by_class(None if fold is None else fold.of)

    def expect(
        self, parameters: Parameters, shifts: FloatArray, factor: Factor, setting: Setting
    ) -> GroupSums:
        """Do the E-step of one model (1, …) in the frame, with shifts (L, K, M), on the host."""
        place = self.source.to_device
        work = partial(_expect_group, parameters.map(place), place(shifts), factor.map(place), setting)
        total: GroupSums = self._reduce(work, add, GroupSums({}, 0.0))
        return total

    def log_likelihoods(self, sums: GroupSums) -> FloatArray:
        """Return the log-likelihoods (L, B) of the groups, zero for groups without rows."""
        found = np.zeros((self.n_groups, _PARTS if self.parted else 1))
        for j, (own, *_) in sums.groups.items():
            found[j] = own
        return found


def _expect_group(
    parameters: Parameters, shifts: FloatArray, factor: Factor, setting: Setting, j: int, rows: ArrayRows
) -> GroupSums:
    weights = parameters.weights[:, :, j : j + 1]
    if rows.codes is not None:  # of parts
        weights = rows.to_device(np.repeat(to_numpy(weights), _PARTS, axis=-1))
    own = Parameters(weights, parameters.means + shifts[j, ...][None, ...], parameters.covariances)
    found, origins = rows.expect(own, factor, setting)
    found = found.map(to_numpy)
    sums = found.log_likelihood[0], found.mass[0].sum(axis=-1), found.first[0], to_numpy(origins)[0]
    return GroupSums({j: sums}, found.second[0] if setting.with_moments else 0.0)


# ---------------------------------------------------------------- passes


def improve(
    rule: Likelihood,
    sums: GroupSums,
    log_likelihood: FloatArray,
    current: Parameters,
    factor: Factor,
    strength: float,
) -> tuple[Parameters, Factor, FloatArray]:
    """Do the M-step: return the common parameters (1, …), their factor and the shifts (L, K, M)."""
    structure, n_groups = rule.structure, len(log_likelihood)
    before = current.means[0]
    mass, first = np.zeros((n_groups, len(before))), np.zeros((n_groups, *before.shape))
    origins = np.tile(before, (n_groups, 1, 1))
    for j, (_, *own) in sums.groups.items():
        mass[j], first[j], origins[j] = own
    # Sums of the rows about the common means; infinite strength makes no shift.
    about, share = mass[..., None] * (origins - before) + first, 1.0 / (1.0 + mass / strength)
    pooled = (share * mass).sum(axis=0)
    alive = (mass.sum(axis=0) > EMPTY_MASS) & (rule.freeze != "kernels")
    step = (share[..., None] * about).sum(axis=0) / np.where(alive, pooled, 1.0)[:, None]
    means = before + np.where(alive[:, None], step, 0.0)  # (M2)
    shifts = (share / strength)[..., None] * (about - mass[..., None] * (means - before))  # (M4)
    second = np.array(sums.second)
    for j in sums.groups:
        # About the group's new means, and with the pseudo-rows at the common ones: (M3).
        moves = [(first[j], mass[j, :, None], origins[j] - means - shifts[j])]
        if np.isfinite(strength):
            moves.append((np.zeros_like(means), np.full((len(means), 1), strength), shifts[j]))
        for own, rows, move in moves:
            second = structure.moved(second[None], own[None], rows[None], move[None])[0]
    statistics = Statistics(log_likelihood[None], mass.T[None], np.zeros_like(current.means), second[None])
    # Kernels that narrow sharply lose digits in this pass; the next one is about their new means.
    following, next_factor, _ = rule.improve(statistics, means[None], current, factor)
    return following, next_factor, shifts


def penalty(structure: Structure, factor: Factor, shifts: FloatArray, strength: float) -> float:
    """Return r/2 Σ δᵀP⁻¹δ of shifts (L, K, M)."""
    if not np.isfinite(strength):
        return 0.0
    return float(0.5 * strength * (shifts * structure.precision_times(factor, shifts)).sum())


def shift_groups(
    problem: Problem,
    rows: GroupRows,
    start: Parameters,
    strength: float,
    *,
    shifts: FloatArray | None = None,
    anchor: FloatArray | None = None,
    judge: GroupRows | None = None,
) -> Shifted:
    """Fit shifts of a given strength, and with them the common parameters, from one model.

    The start, in the data's coordinates, has weights (K, L) of the groups; `shifts` (L, K, M) begin at zero.
    An infinite strength r makes no shifts. With an `anchor` (K,), the groups' weights are shrunk towards it
    by the rule of Reynolds, Quatieri & Dunn, not by the M-step: π_kj ∝ a n_kj / n_j + (1 − a) anchor_k with
    a = n_kj / (n_kj + r). If a `judge` is given, the log-likelihoods are those of its rows, by part (B,) if
    they are held out.
    """
    n_groups, source, frame, options = start.weights.shape[-1], rows.source, problem.frame, problem.options
    own = np.zeros((n_groups, *start.means.shape)) if shifts is None else shifts / frame.scale
    volume = problem.volume(n_groups)
    objectives, path, converged = [], [], False
    with Passes.over(problem, on_host=True) as passes:
        rule, setting = passes.rule, passes.setting
        assert isinstance(rule, Likelihood)
        current, factor = rule.enter(problem.enter(start.batch()))

        def value_of(sums: GroupSums) -> FloatArray:
            """Record the objective and return the log-likelihood (L,) of each group."""
            found = rows.log_likelihoods(sums)[:, 0]
            total = rule.objective(found[None], current, factor)[0]
            objectives.append(float(total) - penalty(setting.structure, factor, own, strength))
            last = np.array(objectives[-2:])
            # Weights shrunk towards an anchor do not maximise the objective.
            watched = len(last) == 2 and anchor is None
            if watched and passes.fell(last[:1], last[1:], current, factor)[0]:
                raise ValueError(say_fall(*(last - volume.sum())))
            return found

        for _ in range(options.max_iter):
            sums = rows.expect(current, own, factor, setting)
            log_likelihood = value_of(sums)
            path.append(log_likelihood)
            following, next_factor, next_own = improve(rule, sums, log_likelihood, current, factor, strength)
            if not next_factor.usable[0] or not np.isfinite(log_likelihood).all():
                break  # a covariance became singular, without a floor
            if anchor is not None:
                following = replace(following, weights=_shrunk_to(anchor, sums, strength, following.weights))
            current, factor, own = following, next_factor, next_own
            change = objectives[-1] - objectives[-2] if len(objectives) > 1 else np.inf
            converged = bool(abs(change) < options.tol * source.summary.total)
            if converged:
                break
        alone = replace(setting, with_moments=False)
        log_likelihood = value_of(rows.expect(current, own, factor, alone))
        point = rule.finish(current)
        if rule.bounded or judge is not None:
            judged = judge or rows
            found = judged.log_likelihoods(judged.expect(point, own, factor, alone))
            log_likelihood = found[:, 0] if judge is None else found.sum(axis=0)
    source.clear_cache()
    return Shifted(
        problem.leave(point, start.batch()).take(0),
        own * frame.scale,
        log_likelihood if judge is not None else log_likelihood - volume,
        np.array(objectives) - volume.sum(),
        np.array(path) - volume,
        None if point.counts is None else point.counts[0],
        converged,
    )


def _shrunk_to(anchor: FloatArray, sums: GroupSums, strength: float, weights: FloatArray) -> FloatArray:
    """Return weights (1, K, L) of groups between their own and those of the anchor (K,)."""
    weights = weights.copy()
    for j, (_, mass, *_) in sums.groups.items():
        adapted = 1.0 / (1.0 + strength / np.maximum(mass, EMPTY_MASS))
        mixed = adapted * mass / mass.sum() + (1.0 - adapted) * anchor
        weights[0, :, j] = mixed / mixed.sum()
    return weights


def choose_strength(problem: Problem, start: Parameters, seed: int) -> float:
    """Return the strength that is best for rows held out in all groups, infinite if shifts do not help.

    Strengths are tried from the largest down, each fit starting from the one before, until two in a row are
    no better than the best. Shifts help if the held-out rows gain more than twice the standard error of the
    gain, against a model of the other rows without shifts.
    """
    n_groups, source = start.weights.shape[-1], problem.source
    if source.summary.n_rows < 2 * _FOLDS:  # all of them may be in one fold
        return np.inf
    problem = problem.with_options(max_iter=min(problem.options.max_iter, _PASSES))
    folds = range(_FOLDS if source.summary.n_rows < _ENOUGH_ROWS else 1)

    def fitted(fold: int, strength: float, last: Shifted | None) -> Shifted:
        rows, judge = (GroupRows(source, n_groups, Fold(seed, fold, held_out)) for held_out in (False, True))
        begin, shifts = (start, None) if last is None else (last.parameters, last.shifts)
        return shift_groups(problem, rows, begin, strength, shifts=shifts, judge=judge)

    plain = last = [fitted(fold, np.inf, None) for fold in folds]
    best, gain, n_worse = np.inf, np.zeros(len(folds) * _PARTS), 0
    for strength in STRENGTHS:
        last = [fitted(fold, strength, own) for fold, own in zip(folds, last, strict=True)]
        gains = np.concatenate(
            [new.log_likelihood - old.log_likelihood for new, old in zip(last, plain, strict=True)]
        )
        if gains.sum() > gain.sum():
            best, gain, n_worse = strength, gains, 0
        elif (n_worse := n_worse + 1) == _WORSE:
            break
    error = gain.std(ddof=1) * np.sqrt(len(gain))
    return best if gain.sum() > _ERRORS * error else np.inf
