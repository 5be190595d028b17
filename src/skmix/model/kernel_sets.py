"""The kernels of a fitted model of any class and covariance structure, for plots and pages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..data.opening import is_elsewhere
from ..data.recipe import Recipe
from ..engine.records import FloatArray
from ..engine.structures import Structure, structure_of
from .arguments import indices_of
from .frames import PreparedRows, is_frame
from .rows import enter

Feature = int | str

# Added to within-kernel variances, so that features that hardly vary do not dominate the directions.
_RIDGE = 1e-4


@dataclass(frozen=True)
class DrawnKernels:
    """K kernels of a fitted model with L classes and M features."""

    classes: list[Any]
    weights: FloatArray  # (K, L)
    prior: FloatArray  # (L,)
    means: FloatArray  # (K, M)
    stored: FloatArray  # covariances, in the shape of their structure
    structure: Structure
    names: list[str]  # (M,)
    columns: list[int]  # (M,): columns of these features in X

    def weights_of(self, label: Hashable | None) -> FloatArray:
        """Return the weights (K,) of one class; for None, those of the prior mixture of classes."""
        if label is None:
            return self.weights @ self.prior
        if label not in self.classes:
            raise ValueError(f"label={label!r} is not one of the model's classes {self.classes}.")
        return self.weights[:, self.classes.index(label)]

    def indices(self, features: Sequence[Feature]) -> list[int]:
        """Return the indices of features given by index or name."""
        return indices_of(features, Recipe(dict.fromkeys(self.names)), "features", once=False)

    def project(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means (K, F) and covariances (K, F, F) along F directions (F, M)."""
        covariances = np.array([directions @ full @ directions.T for full in self._full()])
        return self.means @ directions.T, covariances

    def along(self, directions: FloatArray, names: list[str]) -> DrawnKernels:
        """The kernels along F directions (F, M) with new names."""
        means, covariances = self.project(directions)
        full, columns = structure_of("full"), list(range(len(names)))
        return replace(self, means=means, stored=covariances, structure=full, names=names, columns=columns)

    def separation(self) -> FloatArray:
        """Return how far apart the kernels are in each feature (M,), from 0 to 1.

        This is the weighted mean of δ² / (1 + δ²) over kernels, where δ is the distance of a kernel's mean
        from the overall mean, in standard deviations within kernels. It bounds the effect of outlying kernels
        by their weight.
        """
        weights, offsets, within = self._scatter()
        squares = offsets**2
        total = squares + np.diagonal(within)
        return weights @ np.divide(squares, total, out=np.zeros_like(squares), where=total > 0)

    def most_separate(self, n_features: int) -> list[int]:
        """Return the features in which the kernels differ most, in the order of the model."""
        return sorted(np.argsort(-self.separation(), kind="stable")[:n_features].tolist())

    def directions_of_difference(self, n_directions: int) -> FloatArray:
        """Return directions (F, M) along which the kernels differ most, of unit variance within kernels.

        They are linear discriminants with kernels instead of classes; as in `separation`, the effect of
        outlying kernels is bounded. F is at most M and K − 1.
        """
        n_kernels, n_features = self.means.shape
        weights, offsets, within = self._scatter()
        scale = np.sqrt(weights @ offsets**2 + np.diagonal(within))
        scale[scale == 0.0] = 1.0
        variances, vectors = np.linalg.eigh(within / np.outer(scale, scale) + _RIDGE * np.eye(n_features))
        whiten = vectors / np.sqrt(variances)
        white = (offsets / scale) @ whiten
        bounded = white / np.sqrt(1.0 + (white**2).sum(axis=1, keepdims=True))
        _, principal = np.linalg.eigh((bounded * weights[:, None]).T @ bounded)
        count = min(n_directions, n_features, n_kernels - 1)
        chosen = (whiten @ principal[:, ::-1][:, :count]).T
        # The sign of a direction is arbitrary: make its largest entry positive.
        signs = np.sign(chosen[np.arange(count), np.abs(chosen).argmax(axis=1)])
        return signs[:, None] * chosen / scale

    def _scatter(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights (K,), centred means (K, M) and the mean covariance (M, M) within kernels."""
        weights = self.weights_of(None)
        within = sum(weight * full for weight, full in zip(weights, self._full(), strict=True))
        return weights, self.means - weights @ self.means / weights.sum(), np.asarray(within)

    def covariance(self, k: int) -> FloatArray:
        """Return the full covariance (M, M) of a kernel; of Student's t, the matrix of its scale."""
        n_features = self.means.shape[1]
        common = self.structure.shape(1, n_features) == self.structure.shape(2, n_features)
        own = self.stored if common else self.stored[k : k + 1]
        return self.structure.to_full(own[None], 1, n_features)[0, 0]

    def _full(self) -> Iterator[FloatArray]:
        """Yield full covariances (M, M) one by one, to limit memory with hundreds of features."""
        return map(self.covariance, range(len(self.means)))


def drawn_kernels(model: Any) -> DrawnKernels:
    """The kernels of a fitted model, or of a page; raise ValueError if it has several feature sets."""
    if isinstance(model, DrawnKernels):
        return model
    sets = kernel_sets(model)
    if len(sets) > 1:
        raise ValueError(
            f"The model has {len(sets)} feature sets, each with its own kernels: plot one of model.models_."
        )
    return sets[0]


def kernel_sets(model: Any) -> list[DrawnKernels]:
    """Return the kernels of each feature set of a fitted model; without feature sets, a list of one."""
    # The paper's study passes records of fitted parameters, which are not estimators.
    if hasattr(model, "fit"):
        check_is_fitted(model)
    names = feature_names(model)
    model = chosen_model(model)
    mixtures = getattr(model, "models_", [model])
    sets = getattr(model, "feature_sets_", [range(mixtures[0].means_.shape[1])])
    prior = np.asarray(getattr(model, "class_prior_", [1.0]), dtype=np.float64)
    return [
        DrawnKernels(
            # An ordinary mixture has weights (K,) and no classes.
            classes=getattr(mixture, "classes_", np.zeros(1, dtype=int)).tolist(),
            weights=np.asarray(mixture.weights_, dtype=np.float64).reshape(len(mixture.means_), -1),
            prior=prior,
            means=np.asarray(mixture.means_, dtype=np.float64),
            stored=np.asarray(mixture.covariances_, dtype=np.float64),
            structure=structure_of(getattr(mixture, "covariance_type_", mixture.covariance_type)),
            names=[numbered(d) if names is None else names[d] for d in columns],
            columns=[int(d) for d in columns],
        )
        for mixture, columns in zip(mixtures, sets, strict=True)
    ]


def chosen_model(model: Any) -> Any:
    """Return the model chosen by a search, without its reduction of features."""
    return getattr(model, "classifier_", getattr(model, "best_estimator_", model))


def feature_names(model: Any) -> list[str] | None:
    """Return the names of the features of `chosen_model`, or None if they have none."""
    names = Recipe.of(model).names
    change = getattr(model, "feature_map_", None)
    if change is None:
        return names
    if change.matrix is not None:
        return [f"component {place}" for place in range(1, change.matrix.shape[1] + 1)]
    return [f"{name}, transformed" for name in names or map(numbered, range(len(change.powers)))]


def rows_of(model: Any, X: ArrayLike) -> FloatArray:
    """Return rows (n, M) prepared as for the fit of a model; a table must have the columns of the fit."""
    if not hasattr(model, "n_features_in_"):  # a record of fitted parameters
        return np.asarray(X, dtype=np.float64)
    rows = X if is_frame(X) or is_elsewhere(X) else PreparedRows(np.asarray(X))
    return enter(model, rows).gathered()


def numbered(column: int) -> str:
    """Return the name of a feature that has none."""
    return f"feature {column}"
