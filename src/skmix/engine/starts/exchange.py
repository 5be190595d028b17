"""Exchanges of kernels: one that covers two clusters is split, where two that share one are merged.

EM never carries a kernel past others. An exchange does, and leaves the number of kernels as it is. Both of
its halves compare two Gaussians with one, for rows x_n that count as often as their responsibilities r_n say:

    Σ_n r_n [log(τ N(x_n; μ₁, P₁) + (1 − τ) N(x_n; μ₂, P₂)) − log N(x_n; μ, P)].

For the rows of one kernel it is what a split gains, after a few steps of EM; for the rows of two kernels it
is what their merger loses. As responsibilities are kept, the log-likelihood of all rows rises by at least the
gain less the loss. All covariances are mixed with a common one, so that few rows per kernel do not mislead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..._core import core
from ..estep.inputs import operations
from ..kernels import StudentT
from ..numbers import (
    TINY,
    Array,
    Record,
    as_float64,
    clip,
    constant,
    is_numpy,
    namespace,
    pick,
    to_numpy,
    where,
)
from ..records import FloatArray, IntArray, Parameters
from ..structures import Structure, structure_of
from ..structures.factors import SINGULAR, whiten_batch
from ..threads import pool_here

# Rows per kernel that suffice, or per parameter of a covariance if these are more.
_ROWS, _ROWS_PER_PARAMETER = 256, 1
# Rows of a kernel have at least this responsibility.
_LEAST_SHARE = 0.01
# Steps of the power method towards the direction in which the rows of a kernel spread most.
_POWER_STEPS = 4
# How steeply the first parting goes from one side to the other, per standard deviation along the direction.
_STEEPNESS = 4.0
# Largest logarithm of the odds of a side.
_STEEPEST = 30.0
# Steps of EM on the rows of the kernels that gain most by one step.
_STEPS = 3
# More steps gain less than this many times as much as the first one, as a rule.
_FARTHEST_STEPS = 3.0
# Such kernels, and pairs of kernels that are compared, per kernel; and the fewest.
_COMPARED, _FEWEST = 0.25, 8
# Partners of a kernel in pairs: the nearest ones, and as many with which it shares most rows.
_PARTNERS = 2
# Fewest rows on either side of a split.
_LEAST_ROWS = 2.0
# Fewest rows of a kernel in a pair.
_LEAST_MASS = 1e-9
# An exchange must gain this per row, and that in all: less may be chance.
_LEAST_GAIN, _LEAST_TOTAL = 1e-4, 2.0
# Least common variance of a feature, as a share of its variance.
_LEAST_VARIANCE = 1e-6
# The common covariance counts as M + 2 rows of a kernel's, but at most as this share of a kernel's rows.
_MOST_COMMON = 0.2
# In a pair, the covariance of both counts in each one's as this many rows per parameter.
_OF_PAIR = 0.5
# This many rows outweigh all others.
_POOLED = 1e12


@dataclass(frozen=True)
class Gaussians(Record):
    """Gaussians of B groups of rows."""

    mass: Array  # (B,)
    means: Array  # (B, M)
    covariances: Array  # (B, M, M), or (B, M) or (B,) by the structure


@dataclass(frozen=True)
class Groups(Record):
    """B groups of rows: those of a kernel, or of a pair of kernels."""

    x: Array  # (B, m, M)
    mass: Array  # (B, m): zero for rows that fill up


@dataclass(frozen=True)
class Comparison(Record):
    """Two Gaussians for each of B groups of rows, compared with one."""

    gain: Array  # (B,): of log-likelihood
    whole: Gaussians
    first: Gaussians
    second: Gaussians


@dataclass(frozen=True)
class Outcome:
    """A model after exchanges of kernels."""

    parameters: Parameters
    n_exchanges: int
    is_certain: bool = False  # whether none was near


def rows_needed(n_kernels: int, n_features: int, structure: Structure) -> int:
    """Return how many rows an exchange needs, for all kernels together."""
    return n_kernels * max(_ROWS, _ROWS_PER_PARAMETER * structure.n_parameters(1, n_features))


class Exchange:
    """Exchanges of the kernels of one model, for rows x (n, M) with responsibilities (K, n).

    Rows may be on a device, where the work is done then. With `pooled`, the two Gaussians of a comparison
    have the same covariance.
    """

    def __init__(self, x: Array, responsibilities: FloatArray, structure: Structure, *, pooled: bool) -> None:
        (n_kernels, n_rows), n_features = responsibilities.shape, x.shape[1]
        self._in_core = is_numpy(x) and core() is not None
        self._x = np.ascontiguousarray(x) if self._in_core else x
        self._responsibilities, self._n_kernels = responsibilities, n_kernels
        self._structure = structure_of("full") if structure.shared else structure
        self._size = min(n_rows, n_rows // n_kernels + _FEWEST)
        self._n_compared = max(_FEWEST, int(_COMPARED * n_kernels))
        self._least_gain = max(_LEAST_TOTAL, _LEAST_GAIN * n_rows)
        self._prior_rows = 0.0  # until there is a common covariance
        # Pooled: as if a pair had many more rows than each of the two.
        self._pair_rows = _POOLED if pooled else _OF_PAIR * self._structure.n_parameters(1, n_features)
        self._root: FloatArray | None = None  # from whitened rows to rows
        self._common = namespace(x).ones_like(self._structure.common(x[0]))
        self._whitener = self._common
        whole = self._gaussians_of_kernels()
        self._common = self._common_covariance(whole)
        self._whitener = self._whitener_of(self._common)
        self._prior_rows = min(n_features + 2.0, _MOST_COMMON * n_rows / n_kernels)
        if structure.shared:
            # All Gaussians have the common covariance, which is the identity for whitened rows.
            self._root = np.linalg.inv(to_numpy(self._whitener))
            self._x, means = (array @ self._whitener.mT for array in (self._x, whole.means))
            self._structure, self._common = structure_of("diag"), namespace(x).ones_like(x[0])
            self._whitener = self._common
            self._whole = replace(whole, means=means, covariances=namespace(x).ones_like(means))
        else:
            mass = as_wide(whole.mass, whole.covariances)
            moments = mass * whole.covariances + self._prior_rows * self._common
            moments = moments / (mass + self._prior_rows)
            self._whole = replace(whole, covariances=self._structure.from_moments(moments[None])[0])

    def run(self, parameters: Parameters) -> Outcome:
        """Return the model after exchanges of different kernels, the most gainful first."""
        kernels = np.arange(self._n_kernels)
        gains, (pairs, bounds) = _of_splits(self._compare(kernels[:, None], 1)), self._pairs()
        if bounds.min() > _FARTHEST_STEPS * gains.max():
            return Outcome(parameters, 0, is_certain=True)
        best = np.argsort(-gains, kind="stable")[: self._n_compared]
        splits = self._compare(kernels[best, None], _STEPS)
        split_gains = _of_splits(splits)
        pairs = pairs[bounds < split_gains.max()]
        if not len(pairs):
            return Outcome(parameters, 0)
        mergers = self._compare(pairs, 1)
        # Kernels without rows lose nothing.
        losses = np.maximum(mergers.gain, 0.0)
        used, order = set[int](), np.argsort(losses, kind="stable")
        for place in np.argsort(-split_gains, kind="stable"):
            for pair in order:
                three = {int(best[place]), *pairs[pair].tolist()}
                if used & three or len(three) < 3:
                    continue
                if split_gains[place] - losses[pair] > self._least_gain:
                    split, merger = splits.take(int(place)), mergers.whole.take(int(pair))
                    parameters = self._exchanged(parameters, int(best[place]), split, pairs[pair], merger)
                    used |= three
                break
        return Outcome(parameters, len(used) // 3)

    def _compare(self, groups: IntArray, n_steps: int) -> Comparison:
        """Return two Gaussians of groups of kernels (B, 1) or (B, 2), after steps of EM; on the host."""
        if self._in_core:
            return self._compare_in_core(groups, n_steps)
        index, mass = self._members(groups)
        rows = Groups(self._rows(index), mass)
        are_alone = groups.shape[1] == 1
        shares = self._first_shares(rows) if are_alone else self._shares_of_first(groups, index)
        return self._two_or_one(rows, shares, n_steps).map(to_numpy)

    def _compare_in_core(self, groups: IntArray, n_steps: int) -> Comparison:
        """See `_compare`; without steps, only the Gaussians of all rows are defined."""
        kernels = np.full((len(groups), 2), -1)
        kernels[:, : groups.shape[1]] = groups
        job = core().compare(
            self._x,
            self._responsibilities,
            kernels,
            self._size,
            np.ascontiguousarray(self._common),
            np.ascontiguousarray(self._whitener),
            is_isotropic=self._structure.isotropic and self._prior_rows > 0.0,
            is_fixed=self._root is not None,
            prior_rows=self._prior_rows,
            pair_rows=self._pair_rows,
            n_steps=n_steps,
            n_power_steps=_POWER_STEPS,
            steepness=_STEEPNESS,
            steepest=_STEEPEST,
            least_share=_LEAST_SHARE,
            least_mass=_LEAST_MASS,
            singular=SINGULAR,
        )
        n_operations = (1 + 3 * n_steps) * operations(self._size, len(groups), self._x.shape[1])
        gain, mass, means, covariances = pool_here().finish(job, n_operations)
        if self._structure.isotropic and self._prior_rows:
            covariances = covariances[..., 0]
        return Comparison(gain, *(Gaussians(mass[:, i], means[:, i], covariances[:, i]) for i in range(3)))

    def _gaussians_of_kernels(self) -> Gaussians:
        """Return the Gaussians of the kernels, with moments as covariances."""
        kernels = np.arange(self._n_kernels)[:, None]
        if self._in_core:
            return self._compare_in_core(kernels, 0).whole
        index, mass = self._members(kernels)
        x = self._rows(index)
        total, means = self._means(x, mass)
        moments = self._scatter(x, mass, means)
        return Gaussians(total, means, moments / clip(as_wide(total, moments), TINY, np.inf))

    # ------------------------------------------------------------ rows of kernels

    def _members(self, groups: IntArray) -> tuple[IntArray, Array]:
        """Return the numbers (B, m) of rows of groups of kernels (B, 1) or (B, 2), and their masses (B, m).

        A mass is the sum of the responsibilities. Of many rows some stand for all, and count more; few are
        filled up with rows of no mass.
        """
        index = np.zeros((len(groups), self._size), dtype=np.int64)
        mass = np.zeros(index.shape)
        for b, kernels in enumerate(groups):
            first, *second = self._responsibilities[kernels]
            total = first + second[0] if second else first
            rows = some = np.flatnonzero(total > _LEAST_SHARE)
            if len(rows) > self._size:
                some = rows[np.arange(self._size) * len(rows) // self._size]
            index[b, : len(some)], mass[b, : len(some)] = some, total[some]
            mass[b] *= total[rows].sum() / max(mass[b].sum(), TINY)
        return index, as_float64(mass, self._x)

    def _shares_of_first(self, pairs: IntArray, index: IntArray) -> Array:
        """Return how much of rows of that index (B, m) is the first kernel's of pairs (B, 2): (B, m)."""
        first, second = (self._responsibilities[kernels[:, None], index] for kernels in pairs.T)
        return as_float64(first / np.maximum(first + second, TINY), self._x)

    def _rows(self, index: IntArray) -> Array:
        """Return the rows (B, m, M) of that index (B, m)."""
        return pick(self._x, index.ravel()).reshape((*index.shape, self._x.shape[1]))

    # ------------------------------------------------------------ Gaussians

    def _gaussians(self, x: Array, mass: Array) -> Gaussians:
        """Return the Gaussians of groups of rows (B, m, M) that count as `mass` (B, m)."""
        total, means = self._means(x, mass)
        if self._root is not None:
            return Gaussians(total, means, namespace(x).ones_like(means))
        moments = self._scatter(x, mass, means) + self._prior_rows * self._common
        moments = moments / as_wide(total + self._prior_rows, moments)
        return Gaussians(total, means, self._structure.from_moments(moments[None])[0])

    def _means(self, x: Array, mass: Array) -> tuple[Array, Array]:
        """Return the mass (B,) and the means (B, M) of groups of rows."""
        total = mass.sum(-1)
        return total, (mass[:, None] @ x)[:, 0] / clip(total, TINY, np.inf)[:, None]

    def _scatter(self, x: Array, mass: Array, means: Array) -> Array:
        """Return the scatter (B, M, M) or (B, M) of groups of rows about their means (B, M)."""
        about = x - means[:, None]
        return self._structure.second_moment(about, mass[..., None] * about)

    def _common_covariance(self, whole: Gaussians) -> Array:
        """Return the mean covariance (M, M) or (M,) of the kernels, as large as that of the median kernel."""
        mass, moments = whole.mass, whole.covariances
        common = (as_wide(mass, moments) * moments).sum(0) / mass.sum()
        least = self._structure.common(_LEAST_VARIANCE * namespace(moments).var(self._x, axis=0) + TINY)
        common = common + least
        whitener = self._whitener_of(common)
        precision = whitener.mT @ whitener if self._structure.triangular else whitener**2
        # Mean squared distances of the rows of a kernel from its mean.
        lengths = to_numpy((moments * precision).reshape((len(moments), -1)).sum(-1))
        rows = to_numpy(mass)
        some = rows > _LEAST_ROWS
        if not some.any():
            return common
        variances = np.sort((rows * lengths)[some] / (rows[some] - 1.0)) / whole.means.shape[1]
        median = 0.5 * (variances[(len(variances) - 1) // 2] + variances[len(variances) // 2])
        return common * float(median) + least

    def _whitener_of(self, common: Array) -> Array:
        """Return the whitener (M, M) or (M,) of one covariance."""
        # As the covariance of one kernel of a structure without isotropy, whose units are common.
        if self._structure.triangular:
            return whiten_batch(common[None]).whiteners[0]
        variances = self._structure.from_moments(common)
        return 1.0 / namespace(common).sqrt(variances + namespace(common).zeros_like(common))

    def _log_densities(self, x: Array, gaussians: Gaussians) -> Array:
        """Return the log-densities (B, m) of rows, up to a constant."""
        factor = self._structure.factor(gaussians.covariances[None], x.shape[-1])
        white = self._structure.whiten(factor.whitener[0], (x - gaussians.means[:, None]).mT)
        return -0.5 * ((white * white).sum(-2) + factor.log_determinant[0][:, None])

    # ------------------------------------------------------------ one or two

    def _first_shares(self, groups: Groups) -> Array:
        """Return a first parting of rows, (B, m): across the direction of largest spread in common units."""
        structure, xp, mass = self._structure, namespace(groups.x), groups.mass
        total, means = self._means(groups.x, mass)
        about = (groups.x - means[:, None]).mT
        about = structure.whiten(self._whitener, about)
        lengths = (about * about).sum(-2) * mass
        # One row: rows on opposite sides that are equally far would cancel.
        places = constant(np.arange, lengths.shape[1], example=lengths)
        farthest = places == xp.argmax(lengths, axis=-1)[:, None]
        direction = (about @ as_float64(farthest, about)[..., None])[..., 0]
        for _ in range(_POWER_STEPS):
            along = (direction[:, None] @ about)[:, 0]
            direction = (about @ (mass * along)[..., None])[..., 0]
            lengths = xp.sqrt((direction * direction).sum(-1))
            direction = direction / clip(lengths, TINY, np.inf)[:, None]
        along = (direction[:, None] @ about)[:, 0]
        variance = (mass * along**2).sum(-1) / clip(total, TINY, np.inf)
        steep = _STEEPNESS * along / clip(xp.sqrt(variance), TINY, np.inf)[:, None]
        return 1.0 / (1.0 + xp.exp(-clip(steep, -_STEEPEST, _STEEPEST)))

    def _two_or_one(self, groups: Groups, shares: Array, n_steps: int) -> Comparison:
        """Return two Gaussians of each group after steps of EM, from the shares (B, m) of the first one."""
        xp, n_groups, mass = namespace(shares), shares.shape[0], groups.mass
        whole, x = self._gaussians(groups.x, mass), xp.concat([groups.x, groups.x])
        total = clip(whole.mass, TINY, np.inf)
        for _ in range(n_steps):
            two = self._mixed(self._gaussians(x, xp.concat([mass * shares, mass * (1.0 - shares)])))
            logs = xp.log(clip(two.mass, TINY, np.inf) / xp.concat([total, total]))
            joint = self._log_densities(x, two) + logs[:, None]
            both = xp.logaddexp(joint[:n_groups], joint[n_groups:])
            shares = xp.exp(joint[:n_groups] - both)
        first, second = two.take(slice(n_groups)), two.take(slice(n_groups, None))
        gain = (mass * (both - self._log_densities(groups.x, whole))).sum(-1)
        return Comparison(where(gain == gain, gain, -np.inf), whole, first, second)

    def _mixed(self, two: Gaussians) -> Gaussians:
        """Mix into the covariance of each Gaussian that of its pair, or replace it by that.

        The first Gaussians of all pairs come before the second ones.
        """
        if self._root is not None:
            return two
        covariances = two.covariances.reshape((2, -1, *two.covariances.shape[1:]))
        mass = clip(as_wide(two.mass, two.covariances), _LEAST_MASS, np.inf)
        mass = mass.reshape((2, -1, *(1,) * (covariances.ndim - 2)))
        of_pair = (mass * covariances).sum(0) / mass.sum(0)
        mixed = (mass * covariances + self._pair_rows * of_pair) / (mass + self._pair_rows)
        return replace(two, covariances=mixed.reshape(two.covariances.shape))

    def _pairs(self) -> tuple[IntArray, FloatArray]:
        """Return the pairs (p, 2) of kernels whose merger loses least, and lower bounds (p,) of the loss."""
        structure, whole = self._structure, self._whole.map(to_numpy)
        n_kernels, n_features = whole.means.shape
        means = structure.whiten(to_numpy(self._whitener), whole.means.T).T
        lengths = np.vecdot(means, means)
        squares = lengths[:, None] + lengths - 2.0 * means @ means.T
        responsibilities = as_float64(self._responsibilities, self._x)
        overlaps = to_numpy(responsibilities @ responsibilities.mT).copy()
        squares.flat[:: n_kernels + 1], overlaps.flat[:: n_kernels + 1] = np.inf, -np.inf
        n_partners = min(_PARTNERS, n_kernels - 1)
        partners = np.concatenate(
            [np.argsort(table, axis=1, kind="stable")[:, :n_partners] for table in (squares, -overlaps)], 1
        )
        kernels, partners = np.repeat(np.arange(n_kernels), partners.shape[1]), partners.ravel()
        codes = np.minimum(kernels, partners) * n_kernels + np.maximum(kernels, partners)
        pairs = np.stack(np.divmod(np.unique(codes), n_kernels), axis=1)
        mass = self._responsibilities.sum(axis=1)
        first, second = np.maximum(mass[pairs.T], _LEAST_MASS)
        both = first + second
        # As if it were known which rows are of which kernel: the loss is less by what is not known.
        bounds = first * np.log(first / both) + second * np.log(second / both)
        if self._root is not None:
            bounds += 0.5 * first * second / both * squares[tuple(pairs.T)]
        else:
            between = (whole.means[pairs[:, 0]] - whole.means[pairs[:, 1]])[:, None]
            shares = (first * second / both**2)[:, None, None]
            spread = structure.from_moments(structure.second_moment(between, shares * between)[None])[0]
            one, other = whole.covariances[pairs[:, 0]], whole.covariances[pairs[:, 1]]
            merged = (as_wide(first, one) * one + as_wide(second, one) * other) / as_wide(both, one) + spread
            stack = np.concatenate([whole.covariances, merged])
            logs, of_pairs = np.split(
                structure.factor(stack[None], n_features).log_determinant[0], [n_kernels]
            )
            bounds += 0.5 * (both * of_pairs - first * logs[pairs[:, 0]] - second * logs[pairs[:, 1]])
        order = np.argsort(bounds, kind="stable")[: self._n_compared]
        return pairs[order], bounds[order]

    # ------------------------------------------------------------ the model

    def _exchanged(
        self, parameters: Parameters, kernel: int, split: Comparison, pair: IntArray, merged: Gaussians
    ) -> Parameters:
        """Return the model with a pair of kernels merged into its first; its second gets half of `kernel`."""
        kept, freed = pair
        share = float(split.first.mass / (split.first.mass + split.second.mass))
        weights, means, covariances = (
            array.copy() for array in (parameters.weights, parameters.means, parameters.covariances)
        )
        weights[kept] += weights[freed]
        weights[freed] = (1.0 - share) * weights[kernel]
        weights[kernel] *= share
        for number, gaussian in ((kept, merged), (kernel, split.first), (freed, split.second)):
            means[number] = gaussian.means if self._root is None else self._root @ gaussian.means
            if self._root is None:
                covariances[number] = gaussian.covariances
        tail = parameters.tail
        if isinstance(tail, StudentT):
            degrees = tail.degrees.copy()
            degrees[freed] = degrees[kernel]
            tail = StudentT(degrees)
        return replace(parameters, weights=weights, means=means, covariances=covariances, tail=tail)


def _of_splits(comparison: Comparison) -> FloatArray:
    """Return the gains (B,) of splits: none with few rows on one side."""
    rows = np.minimum(comparison.first.mass, comparison.second.mass)
    return np.where(rows > _LEAST_ROWS, comparison.gain, -np.inf)


def as_wide(values: Array, example: Array) -> Array:
    """Return values (B,) with as many axes as the example (B, …)."""
    return values.reshape((-1,) + (1,) * (example.ndim - 1))
