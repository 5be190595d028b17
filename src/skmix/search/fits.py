"""Folds of a search, and fits of candidates to them.

What candidates have in common is computed once for each fold: feature maps, the summary of the rows, their
covariance within classes, and starts.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..engine.measured import Measured
from ..engine.numbers import BoolArray
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block
from ..engine.starts import draw_seeds
from ..model.callbacks import fit_task
from ..model.classifier import SharedKernelClassifier
from ..model.frames import PreparedRows
from ..model.holdout import check_splits, default_splits, splits_of
from ..model.rows import enter
from ..model.training import Training
from .features import FeatureMap, deviations_from, fit_transform, project, with_map
from .groups import shift_covariance
from .trials import Params

# Approximate number of rows of a fold in the screening.
_ROWS_TO_SCREEN = 2000
# Smallest number of rows of a class in a sample of the rows.
_FEWEST_ROWS_OF_A_CLASS = 100

Fold = tuple[Block, Block]
"""Training rows and held-out rows of a fold, both with class codes (n,)."""


def make_folds(
    rows: Block, classes: np.ndarray | None, cv: Any, groups: Any, kept: BoolArray, seed: int, most: int = 5
) -> list[Fold]:
    """Return the folds of a search, by default at most so many; see `holdout` for unlabelled rows.

    `groups`, and a list of splits for `cv`, refer to the rows that the user gave; `kept` (N,) says which of
    them are the `rows`.
    """
    codes, groups = rows.codes, None if groups is None else groups[kept]
    splits = default_splits(codes, seed, groups, most) if cv is None else splits_of(cv, codes, groups, kept)
    check_splits(splits, codes, classes)
    return [(rows.rows(training), rows.rows(held)) for training, held in splits]


def labels_of(rows: Block, classes: np.ndarray | None) -> Any:
    """Return the labels (n,) of rows with class codes, given sorted classes (L,); None without labels.

    None marks unlabelled rows; it is never a class.
    """
    if classes is None or rows.y is None:
        return None
    labels, unknown = classes[rows.y], rows.y < 0
    if unknown.any():
        labels = labels.astype(object)
        labels[unknown] = None
    return labels


# ---------------------------------------------------------------- rows that candidates are fitted to


@dataclass(frozen=True)
class FitRows:
    """Rows that several candidates are fitted to."""

    block: Block  # complete rows with class codes
    classes: np.ndarray | None  # (L,); None without labels
    training: Training
    starts: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, block: Block, classes: np.ndarray | None, prototype: Any) -> FitRows:
        """Check and summarise rows for fits of clones of a prototype."""
        rows = block.X if isinstance(block.X, Measured) else PreparedRows(block.X, None, None)
        entered = enter(clone(prototype), rows, labels_of(block, classes), block.weights)
        return cls(block, classes, entered.training(least=1))

    def fit(self, model: Any) -> Any:
        """Fit a mixture or classifier to the rows, and return it."""
        n_rows = len(self.block.X)
        if (model.n_kernels or 0) > n_rows:
            raise ValueError(f"n_kernels={model.n_kernels} is more than the {n_rows} rows.")
        model.n_features_in_ = self.training.n_features
        parts = model._parts_to_fit(self.training.n_features)
        with fit_task(model, self.block.X, None, None, len(parts)) as step:
            model._fit_parts(parts, self.training, step)
        return model

    @cached_property
    def shifts(self) -> FloatArray | None:
        """The covariance (M, M) of the shifts of classes between groups; None without groups."""
        return shift_covariance(self.block)

    @cached_property
    def pooled_covariance(self) -> FloatArray:
        """The covariance (M, M) of labelled rows within classes.

        A pseudo-row with the variances of all rows makes it positive definite.
        """
        rows = self.block.labelled()
        weights, (present, codes) = rows.row_weights, np.unique(rows.codes, return_inverse=True)
        class_weights = weights * (codes == np.arange(len(present))[:, None])
        means = (class_weights @ rows.X) / class_weights.sum(axis=1, keepdims=True)
        within = rows.X - means[codes]
        centre = np.average(rows.X, axis=0, weights=weights)
        deviations, varies = deviations_from(centre, rows)
        prior = np.diag(np.where(varies, deviations**2, 1.0))
        scatter = (weights * within.T) @ within
        return (scatter + prior) / (max(weights.sum() - len(present), 0.0) + 1.0)

    def classifier(
        self, prototype: SharedKernelClassifier, params: Params, seed: int
    ) -> SharedKernelClassifier:
        """Return the unfitted classifier of a candidate, with a prior and a start for these rows."""
        sets, labelled = params["feature_sets"], self.block.labelled()
        settings = {name: params[name] for name in ("n_kernels", "covariance_type", "feature_sets")}
        n_classes, n_features = int(labelled.codes.max()) + 1, labelled.X.shape[1]
        if params["prior_rows"] is not None:
            width, pooled = n_features, self.pooled_covariance
            if sets is None:
                # Several kernels cover a part of the class each.
                pooled = pooled * max(1.0, params["n_kernels"] / n_classes) ** (-2.0 / n_features)
            else:
                width = sum(map(len, sets)) / len(sets)
            settings["covariance_prior"] = (params["prior_rows"] * width, pooled)
        if params["weight_prior"] is not None:
            settings["weight_prior"] = params["weight_prior"]
        if params["kernels"] == "own":
            per_class, projected = params["n_kernels"] // n_classes, params["reduction"] != "none"
            if (per_class, seed) not in self.starts:
                parts = [labelled.X] if sets is None else [labelled.X[:, columns] for columns in sets]
                starts = [own_kernels(X, labelled.codes, per_class, seed, projected=projected) for X in parts]
                self.starts[per_class, seed] = starts[0] if sets is None else starts
            settings |= {"n_kernels": None, "init": self.starts[per_class, seed]}
        # A shallow copy: settings are replaced, not changed, and to clone takes as long as a small fit.
        classifier = copy(prototype)
        classifier.__dict__.update(settings, random_state=seed)
        return classifier


def own_kernels(
    rows: FloatArray, codes: IntArray, per_class: int, seed: Any, *, projected: bool = False
) -> dict[str, FloatArray]:
    """Return a start in which each kernel belongs to one class; EM keeps zero weights at zero.

    Means are rows of the class, drawn by k-means++. Features are standardised for distances, unless they are
    projections, which keep their scale.
    """
    by_class = [rows[codes == c] for c in range(int(codes.max()) + 1)]
    if per_class == 1:
        return {"means": np.stack([X.mean(axis=0) for X in by_class]), "weights": np.eye(len(by_class))}
    deviations, random_state = rows.std(axis=0), check_random_state(seed)
    scale = np.where((deviations > 0.0) & (not projected), deviations, 1.0)
    means = []
    for X in by_class:
        chances = random_state.uniform(size=min(per_class, len(X)) - 1)
        first = random_state.randint(len(X), size=1)
        means.append(draw_seeds(X / scale, X[first] / scale, chances) * scale)
    owners = np.repeat(np.arange(len(means)), [len(drawn) for drawn in means])
    weights = np.eye(len(means))[owners]
    return {"means": np.concatenate(means), "weights": weights / weights.sum(axis=0)}


# ---------------------------------------------------------------- folds behind feature maps


class Folds:
    """The folds of a search, and what candidates with the same features share.

    For the screening, folds with many rows are reduced to some of them.
    """

    def __init__(self, folds: list[Fold], classes: np.ndarray, prototype: Any) -> None:
        self._folds, self._classes, self._prototype = folds, classes, prototype
        self.mapped = cache(self._mapped)
        self._some, self._transform = cache(self._draw), cache(self._fit_transform)

    def _draw(self, number: int, some: bool) -> Fold:
        """Return a fold, or some of its rows."""
        if not some:
            return self._folds[number]
        training, held = self._folds[number]
        seed = self._prototype.random_state
        return fewer_rows(training, seed, _ROWS_TO_SCREEN), fewer_rows(held, seed, _ROWS_TO_SCREEN)

    def _fit_transform(self, number: int, transform: str, some: bool) -> FeatureMap | None:
        return fit_transform(transform, self._some(number, some)[0])

    def _mapped(self, number: int, transform: str, reduction: str, some: bool) -> tuple[FitRows, Block]:
        """Fit a feature map to the training rows of a fold, or to some of them; return the mapped fold."""
        training, held = self._some(number, some)
        if some and training is self._folds[number][0] and held is self._folds[number][1]:
            return self.mapped(number, transform, reduction, False)
        transformed = None if transform == reduction == "none" else self._transform(number, transform, some)
        if transformed is not None:
            feature_map = project(transformed, reduction, training)
            training, held = (with_map(rows, feature_map.transform) for rows in (training, held))
        return FitRows.of(training, self._classes, self._prototype), held


def fewer_rows(rows: Block, seed: int, most: float) -> Block:
    """Draw about `most` rows: each class in proportion, but at least 100 rows of it or all."""
    if len(rows.X) <= most:
        return rows
    random_state, codes = check_random_state(seed), rows.codes
    kept = []
    for code in np.unique(codes):
        of_class = np.flatnonzero(codes == code)
        size = max(round(most * len(of_class) / len(rows.X)), min(len(of_class), _FEWEST_ROWS_OF_A_CLASS))
        kept.append(random_state.choice(of_class, size, replace=False))
    return rows.rows(np.sort(np.concatenate(kept)))
