"""Rows with missing values, grouped by which features are observed.

If values are missing at random, the density of a row is the marginal density of its observed values, and its
expected second-order terms are linear in those of the observed features. So each group has an ordinary E-step
with marginal parameters, whose statistics are completed afterwards; no value is imputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..compute.arrays import is_numpy, namespace
from ..compute.threads import Workers
from ..covariances import Structure
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Statistics
from .base import ArrayRows, Centres
from .memory import expect, in_frame, log_densities, worth_compiling
from .reference import Kernels, Rows
from .summary import Setting

_CHUNK = 1 << 13
# Operations of a pattern from which on compiled code is faster.
_WORTH_COMPILING = 1 << 18


def has_gaps(X: np.ndarray) -> bool:
    """Return whether any value of X (N, M) is missing."""
    if not is_numpy(X):
        xp = namespace(X)
        return bool(xp.any(xp.isnan(xp.sum(X, axis=0))) and xp.any(xp.isnan(X)))
    return any(bool(np.isnan(X[a : a + _CHUNK]).any()) for a in range(0, len(X), _CHUNK))


def group_rows(X: np.ndarray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (rows, columns) for each pattern of gaps: its rows and its observed features."""
    for rows, seen in group_patterns(~np.isnan(X)):
        yield rows, np.flatnonzero(seen)


def group_patterns(observed: BoolArray) -> Iterator[tuple[IntArray, BoolArray]]:
    """Yield (rows, features) for each row that occurs in `observed` (N, M): where, and which are observed."""
    packed = np.packbits(observed, axis=1)
    patterns, pattern_of = np.unique(packed, axis=0, return_inverse=True)
    order = np.argsort(pattern_of.ravel(), kind="stable")
    bounds = np.searchsorted(pattern_of.ravel()[order], np.arange(len(patterns) + 1))
    for pattern, a, b in zip(patterns, bounds[:-1], bounds[1:], strict=True):
        yield order[a:b], np.unpackbits(pattern, count=observed.shape[1]).astype(bool)


class GapRows(ArrayRows):
    """Rows with missing values, NaN; each row has at least one value."""

    _groups: tuple[Setting, int, list[tuple[IntArray, Rows]]] | None = None

    def take(self, columns: Sequence[int]) -> GapRows:
        """Return some of the features, of the rows with a value in any of them."""
        X = self.X[:, list(columns)]
        seen = np.flatnonzero(~np.isnan(X).all(axis=1))
        codes = None if self.codes is None else self.codes[seen]
        return GapRows(X[seen], codes, None if self.weights is None else self.weights[seen])

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> tuple[Statistics, FloatArray]:
        """Do the E-step; see `RowSource`."""
        means, structure = parameters.means, setting.structure
        groups = self._groups_in(setting, parameters.weights.shape[-1])
        known = structure.known(parameters.covariances, [own for own, _ in groups], self.n_features)
        total: Statistics | None = None
        for (columns, rows), (own_factor, whitener) in zip(groups, known, strict=True):
            box = None if parameters.box is None else parameters.box[..., columns]
            part = replace(parameters, means=means[..., columns], box=box)
            kernels = Kernels.of(part, own_factor, structure)
            # Each pattern decides for itself. Those with gaps are too many to have code of their own.
            n_numbers = len(rows.X) * kernels.means.shape[1] * (len(columns) ** 2 + 20)
            found = expect(
                rows,
                kernels,
                part.means,
                setting.pool,
                compiled=setting.compiled and n_numbers >= _WORTH_COMPILING,
                moments=moments,
                unrolled=len(columns) == self.n_features,
            )
            first, second = np.zeros_like(means), found.second
            if moments:
                given = columns, parameters.covariances, self.n_features, whitener
                first, second = structure.complete(found, *given)
            found = replace(found, first=first, second=second)
            if total is None:
                total = found
            else:
                total.add(found)
        assert total is not None
        if centres is None:
            return total, means
        origins = np.where(centres[0][..., None], centres[1], means)
        return moved(total, means, origins, structure, factor), origins

    def _groups_in(self, setting: Setting, n_classes: int) -> list[tuple[IntArray, Rows]]:
        """Return the columns and rows of each pattern, cached for the setting."""
        if self._groups is None or self._groups[0] is not setting or self._groups[1] != n_classes:
            codes, weights = self.codes_within(n_classes), self.weights
            groups = [
                (
                    columns,
                    in_frame(
                        self.X[np.ix_(index, columns)],
                        setting.frame.take(columns),
                        None if codes is None else codes[index],
                        None if weights is None else weights[index],
                    ),
                )
                for index, columns in group_rows(self.X)
            ]
            self._groups = setting, n_classes, groups
        return self._groups[2]

    def log_densities(
        self, parameters: Parameters, structure: Structure, pool: Workers, weights: FloatArray | None = None
    ) -> FloatArray:
        """Evaluate the kernels, at the observed values of each row; see `ArrayRows`."""
        compiled = worth_compiling(len(self.X), *parameters.means.shape)
        out = np.zeros((len(self.X), len(parameters.means) if weights is None else weights.shape[1]))
        for index, columns in group_rows(self.X):
            if len(columns):
                own, part = self.X[np.ix_(index, columns)], marginal(parameters, columns, structure)
                unrolled = len(columns) == self.n_features
                out[index] = log_densities(own, part, structure, weights, compiled, pool, unrolled=unrolled)
        return out

    def clear_cache(self) -> None:
        """Free the grouped rows."""
        self._groups = None


def marginal(parameters: Parameters, columns: IntArray, structure: Structure) -> Parameters:
    """Return the parameters of the marginal density of some features."""
    return replace(
        parameters,
        means=parameters.means[..., columns],
        covariances=structure.marginal(parameters.covariances, columns),
        box=None if parameters.box is None else parameters.box[..., columns],
    )


def moved(
    statistics: Statistics,
    origins: FloatArray,
    new_origins: FloatArray,
    structure: Structure,
    factor: Factor | None = None,
) -> Statistics:
    """Return statistics whose moments are about `new_origins` (R, K, M) instead of `origins` (R, K, M)."""
    first, shift = statistics.first, origins - new_origins
    weight = statistics.weight[..., None]
    second = structure.moved(statistics.second, first, weight, shift, factor)
    return replace(statistics, first=first + weight * shift, second=second)
