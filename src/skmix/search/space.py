"""The candidates of the search for a classifier.

The guide on model selection explains the choice of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from .trials import Params

Pairs = tuple[tuple[float, float], ...]
# Kernels per class, and strength of the prior in rows per feature, for full kernels that belong to one class
# each and for full kernels that all classes share.
_OWN_FULL: Pairs = (
    *((1, 1.0), (1, 0.1), (1, 8.0), (2, 0.5), (2, 2.0), (4, 2.0), (4, 0.5), (8, 0.5), (8, 2.0)),
    *((16, 0.5), (16, 2.0), (32, 0.5), (64, 0.5), (128, 0.5)),
)
_SHARED_FULL: Pairs = (
    *((1, 2.0), (2, 0.5), (4, 0.5), (8, 0.5), (8, 2.0), (16, 0.5), (16, 2.0), (32, 0.5), (32, 2.0)),
    *((64, 0.5), (128, 0.5)),
)
# Prior strength for simpler covariances. One is enough, since they have few parameters.
_PRIOR_OF_SIMPLE = 0.5
# The same pairs for them.
_OWN_SIMPLE: Pairs = ((1, _PRIOR_OF_SIMPLE), (16, _PRIOR_OF_SIMPLE))
_SHARED_SIMPLE: Pairs = ((64, _PRIOR_OF_SIMPLE),)
# From this many classes on, try fewer kernels than classes too: classes then differ only in their weights.
_MANY_CLASSES = 20
# Kernels per class in that case.
_FEWER_THAN_CLASSES = (0.25, 0.5)
# Smallest number of rows per kernel, unless there is one kernel per class.
_ROWS_PER_KERNEL = 3
# Largest number of kernels: more would take too long.
_MOST_KERNELS = 512
# Largest K × M per row for full kernels, which need many rows to learn their orientation.
MOST_NUMBERS_A_ROW = 2
# Kernels per feature set, and kernels per class and feature set.
_KERNELS_OF_SET, _OWN_OF_SET = (4, 8, 16), (1, 2, 4)
# Prior strengths on covariances and on weights, for feature sets.
_PRIOR_ROWS_OF_SET, _WEIGHT_PRIORS_OF_SET = (0.5, 4.0), (1.0, 1.1)
# Prior strength if no row can be held out to choose one.
_BLIND_PRIOR = 2.0
# Up to this many features, kernels learn their orientation without a reduction.
_FEW_FEATURES = 12
# Above this many features, they are always reduced: full covariances would take too long.
_TOO_MANY_FEATURES = 100
# Largest number of features for discriminants, whose time grows with its cube.
_MOST_FOR_DISCRIMINANTS = 500


@dataclass(frozen=True)
class Space:
    """What a search may choose; None for what it does choose."""

    numbers: list[int] | None  # numbers of kernels, ascending
    types: list[str] | None  # covariance types
    kernels: str  # 'own', 'shared' or 'auto'
    feature_sets: list[list[int]] | None
    n_classes: int
    n_train: int  # rows in the smallest training set; 0 if no row can be held out
    has_prior: bool  # whether the prior on covariances is given
    spreads_weights: bool  # whether weights have a prior, which makes all of them positive

    def candidates(self, X: np.ndarray, width_of: Callable[[str, str], int]) -> list[Params]:
        """Return the settings of all candidates without repetition, simple ones first.

        `width_of` returns the number of features after a transformation and a reduction of rows X (n, M).
        Raise ValueError if kernels='own' cannot be kept.
        """
        numbers, by_class = self.numbers, self.kernels == "own"
        if by_class and self.spreads_weights:
            raise ValueError(
                "kernels='own' needs weights without a prior, which would give every class a share of every "
                "kernel: leave out weight_prior and inference='variational'."
            )
        if by_class and numbers is not None:
            if numbers[0] < self.n_classes:
                raise ValueError(
                    f"kernels='own' needs a kernel for each of {self.n_classes} classes, got "
                    f"n_kernels={numbers[0]}."
                )
            # All classes have the same number of kernels.
            numbers = sorted({k // self.n_classes * self.n_classes for k in numbers})
        simplest: Params = {
            "transform": "none",
            "reduction": "none",
            "kernels": "own" if by_class else "shared",
            "n_kernels": numbers[0] if numbers else self.n_classes,
            "covariance_type": self.types[0] if self.types else "full" if self.n_train else "tied",
            "prior_rows": _BLIND_PRIOR,
            "weight_prior": None,
            "feature_sets": self.feature_sets,
            "trade_off": None,
        }
        candidates = [simplest]
        if self.n_train and self.feature_sets is not None:
            candidates = [{**simplest, **of_sets} for of_sets in self._of_sets(numbers)]
        elif self.n_train:
            candidates = [
                {**simplest, "transform": transform, "reduction": reduction, **of_kernels}
                for transform, reduction in feature_maps(X, self.n_classes)
                for of_kernels in self.of_kernels(
                    numbers, width_of(transform, reduction), reduced=reduction != "none"
                )
            ]
        if self.has_prior:
            candidates = [{**params, "prior_rows": None} for params in candidates]
        return [params for i, params in enumerate(candidates) if params not in candidates[:i]]

    def of_kernels(self, numbers: list[int] | None, width: int, *, reduced: bool) -> list[Params]:
        """Return the settings of kernels to try for `width` features."""
        owners = ("own", "shared") if self.kernels == "auto" else (self.kernels,)
        if self.spreads_weights:
            owners = ("shared",)
        if numbers is not None:
            strengths = sorted({rows for _, rows in (*_OWN_FULL, *_SHARED_FULL)})
            return [
                _params(owners[-1], k, name, rows)
                for name in self.types or ["tied", "full"]
                for k in numbers
                for rows in (strengths if name == "full" else [_PRIOR_OF_SIMPLE])
            ]
        most = min(_MOST_KERNELS, self.n_train // _ROWS_PER_KERNEL)
        most_of = {"full": min(most, MOST_NUMBERS_A_ROW * self.n_train // width)}
        candidates = [
            _params(owner, round(m * self.n_classes), name, rows)
            for owner, m, name, rows in self._per_class(reduced)
            if owner in owners and (m <= 1 or m * self.n_classes <= most_of.get(name, most))
        ]
        # Simple shared kernels are tried only in large numbers; there may be too few rows for them.
        fewer = sorted({self.n_classes, max(self.n_classes, most)})
        return candidates or [
            _params("shared", k, name, _PRIOR_OF_SIMPLE) for name in self.types or [] for k in fewer
        ]

    def _per_class(self, reduced: bool) -> Iterator[tuple[str, float, str, float]]:
        """Yield 'own' or 'shared', the kernels per class, the covariance type and the prior strength."""
        for name in self.types or ["tied", "full"]:
            own, shared = (_OWN_FULL, _SHARED_FULL) if name == "full" else (_OWN_SIMPLE, _SHARED_SIMPLE)
            shared = shared[:1] if reduced else shared
            if self.n_classes >= _MANY_CLASSES:
                shared = (*((m, 2.0) for m in _FEWER_THAN_CLASSES), *shared)
            yield from (("own", m, name, rows) for m, rows in own)
            yield from (("shared", m, name, rows) for m, rows in shared)

    def _of_sets(self, numbers: list[int] | None) -> Iterator[Params]:
        by_class = self.kernels == "own"
        default = [m * self.n_classes for m in _OWN_OF_SET] if by_class else _KERNELS_OF_SET
        numbers = numbers or sorted({min(k, self.n_train) for k in default})
        weights = (None,) if by_class or self.spreads_weights else _WEIGHT_PRIORS_OF_SET
        for k, name, rows, weight in product(numbers, self.types or ["full"], _PRIOR_ROWS_OF_SET, weights):
            yield {"n_kernels": k, "covariance_type": name, "prior_rows": rows, "weight_prior": weight}


def _params(kernels: str, n_kernels: int, covariance_type: str, prior_rows: float) -> Params:
    return {
        "kernels": kernels,
        "n_kernels": n_kernels,
        "covariance_type": covariance_type,
        "prior_rows": prior_rows,
    }


def feature_maps(X: np.ndarray, n_classes: int) -> list[tuple[str, str]]:
    """Return the transformations and reductions to try for rows X (n, M).

    With missing values, features are reduced only if there are too many of them.
    """
    n_rows, n_features = X.shape
    if n_rows <= 2:
        return [("none", "none")]
    maps: list[tuple[str, str]] = []
    if n_features <= _TOO_MANY_FEATURES:
        maps = [("none", "none"), ("power", "none"), ("ranks", "none")]
        if np.isnan(X).any():
            return maps
    if n_features > _FEW_FEATURES:
        maps += [("none", "components"), ("none", "standardised components")]
        maps += [("power", "standardised components")]
    if 2 < n_classes <= min(n_features, _TOO_MANY_FEATURES) and n_features <= _MOST_FOR_DISCRIMINANTS:
        maps += [("none", "discriminants"), ("power", "discriminants")]
    return maps
