"""Candidates of the search for a classifier: their settings, and classifiers made from them.

The guide on model selection explains the choice of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.utils import check_random_state

from ...engine.records import FloatArray, IntArray
from ...engine.rows.blocks import Block
from ...engine.starts import draw_seeds
from ..classifier import SharedKernelClassifier
from ._features import pooled_covariance, transforms
from ._trials import Params

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


@dataclass(frozen=True)
class Choices:
    """Settings of a search; None for those to choose."""

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
        params: Params = {
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
        found: list[Params] = [params]
        if self.n_train and self.feature_sets is not None:
            found = [{**params, **each} for each in self._of_sets(numbers)]
        elif self.n_train:
            found = [
                {**params, "transform": transform, "reduction": reduction, **each}
                for transform, reduction in transforms(X, self.n_classes)
                for each in self.of_kernels(
                    numbers, width_of(transform, reduction), reduced=reduction != "none"
                )
            ]
        if self.has_prior:
            found = [{**each, "prior_rows": None} for each in found]
        return [each for i, each in enumerate(found) if each not in found[:i]]

    def of_kernels(self, numbers: list[int] | None, width: int, *, reduced: bool) -> list[Params]:
        """Return the settings of kernels to try for `width` features."""
        allowed = ("own", "shared") if self.kernels == "auto" else (self.kernels,)
        if self.spreads_weights:
            allowed = ("shared",)
        if numbers is not None:
            strengths = sorted({rows for _, rows in (*_OWN_FULL, *_SHARED_FULL)})
            return [
                _params(allowed[-1], k, name, rows)
                for name in self.types or ["tied", "full"]
                for k in numbers
                for rows in (strengths if name == "full" else [_PRIOR_OF_SIMPLE])
            ]
        most = min(_MOST_KERNELS, self.n_train // _ROWS_PER_KERNEL)
        most_of = {"full": min(most, MOST_NUMBERS_A_ROW * self.n_train // width)}
        found = [
            _params(kernels, round(m * self.n_classes), name, rows)
            for kernels, m, name, rows in self._per_class(reduced)
            if kernels in allowed and (m <= 1 or m * self.n_classes <= most_of.get(name, most))
        ]
        # Simple shared kernels are tried only in large numbers; there may be too few rows for them.
        fewer = sorted({self.n_classes, max(self.n_classes, most)})
        return found or [
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


def make_classifier(
    prototype: SharedKernelClassifier, params: Params, rows: Block, seed: int
) -> SharedKernelClassifier:
    """Return the unfitted classifier of a candidate; its prior and start come from complete rows."""
    sets, labelled = params["feature_sets"], rows.labelled()
    settings = {name: params[name] for name in ("n_kernels", "covariance_type", "feature_sets")}
    codes = labelled.codes
    n_classes = int(codes.max()) + 1
    if params["prior_rows"] is not None:
        n_features = rows.X.shape[1]
        width = n_features if sets is None else sum(map(len, sets)) / len(sets)
        pooled = pooled_covariance(labelled)
        if sets is None:
            pooled = pooled * prior_scale(params["n_kernels"], n_classes, n_features)
        settings["covariance_prior"] = (params["prior_rows"] * width, pooled)
    if params["weight_prior"] is not None:
        settings["weight_prior"] = params["weight_prior"]
    if params["kernels"] == "own":
        per_class = params["n_kernels"] // n_classes
        parts = [labelled.X] if sets is None else [labelled.X[:, columns] for columns in sets]
        projected = params["reduction"] != "none"
        starts = [own_kernels(part, codes, per_class, seed, projected=projected) for part in parts]
        settings |= {"n_kernels": None, "init": starts[0] if sets is None else starts}
    made: SharedKernelClassifier = clone(prototype).set_params(**settings, random_state=seed)
    return made


def prior_scale(n_kernels: int, n_classes: int, n_features: int) -> float:
    """Return the prior covariance relative to that of a class: several kernels cover a part of it each."""
    return max(1.0, n_kernels / n_classes) ** (-2.0 / n_features)


def own_kernels(
    rows: FloatArray, codes: IntArray, per_class: int, seed: Any, *, projected: bool = False
) -> dict[str, FloatArray]:
    """Return a start in which each kernel belongs to one class; EM keeps zero weights at zero.

    Means are rows of the class, drawn by k-means++. Features are standardised for distances, unless they are
    projections, which keep their scale.
    """
    by_class = [rows[codes == c] for c in range(int(codes.max()) + 1)]
    if per_class == 1:
        return {"means": np.stack([each.mean(axis=0) for each in by_class]), "weights": np.eye(len(by_class))}
    deviations, random_state = rows.std(axis=0), check_random_state(seed)
    scale = np.where((deviations > 0.0) & (not projected), deviations, 1.0)
    means = []
    for each in by_class:
        chances = random_state.uniform(size=min(per_class, len(each)) - 1)
        first = random_state.randint(len(each), size=1)
        means.append(draw_seeds(each / scale, each[first] / scale, chances) * scale)
    weights = block_diag(*(np.full((len(each), 1), 1.0 / len(each)) for each in means))
    return {"means": np.concatenate(means), "weights": weights}
