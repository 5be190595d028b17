"""What pictures and pages need to know of a fitted model, whatever its class and covariance structure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skmix.engine.covariances import Structure, structure_of
from skmix.experiments.paper.records import GroupModel
from skmix.plots._common import FloatArray

Feature = int | str

# Of directions of difference: keeps features that hardly vary from being taken for the clearest of all.
_RIDGE = 1e-4


@dataclass(frozen=True)
class Kernels:
    """The kernels of a fitted model.

    Attributes
    ----------
    classes : list of L labels
        Class labels.
    weights : ndarray of shape (K, L)
        Pr(kernel k | class j).
    prior : ndarray of shape (L,)
        Class priors.
    means : ndarray of shape (K, M)
        Kernel means.
    stored : ndarray
        Kernel covariances as their structure keeps them.
    structure : Structure
        The structure.
    names : list of M str
        Names of the features.
    columns : list of M int
        The features' columns in the rows that the whole model takes.
    """

    classes: list[Any]
    weights: FloatArray
    prior: FloatArray
    means: FloatArray
    stored: FloatArray
    structure: Structure
    names: list[str]
    columns: list[int]

    def weights_of(self, label: Hashable | None) -> FloatArray:
        """Return the weights (K,) of one class; for None, those of all classes together."""
        if label is None:
            return self.weights @ self.prior
        for column, known in enumerate(self.classes):
            if known == label:
                return self.weights[:, column]
        raise ValueError(f"label={label!r} is not one of the model's classes {self.classes}.")

    def feature(self, feature: Feature) -> int:
        """Return the place of a feature given by index or name."""
        if isinstance(feature, str):
            if feature not in self.names:
                raise ValueError(f"feature {feature!r} is not one of {self.names}.")
            return self.names.index(feature)
        if not 0 <= feature < len(self.names):
            raise ValueError(f"feature {feature} does not exist: the model has {len(self.names)} feature(s).")
        return int(feature)

    def n_parameters(self) -> int:
        """Return the number of free parameters: means, covariances, and K − 1 weights a class."""
        n_kernels, n_features = self.means.shape
        covariances = self.structure.of(self.stored).n_parameters(n_kernels, n_features)
        return covariances + n_kernels * n_features + (n_kernels - 1) * len(self.classes)

    def covariances(self, features: Sequence[int]) -> FloatArray:
        """Return the covariances (K, F, F) of F features."""
        chosen = np.ix_(features, features)
        return np.array([full[chosen] for full in self._full()])

    def project(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means (K, F) and covariances (K, F, F) along F directions (F, M)."""
        covariances = np.array([directions @ full @ directions.T for full in self._full()])
        return self.means @ directions.T, covariances

    def separation(self) -> FloatArray:
        """Return how far apart the kernels are in each feature (M,), from 0 to 1.

        That is the mean of δ² / (1 + δ²) over kernels by weight, δ being a mean's distance from the common
        one in standard deviations within kernels. A light kernel far away counts no more than its weight.
        """
        weights, offsets, within = self._scatter()
        variances = np.diagonal(within)
        squares = offsets**2
        total = squares + variances
        return weights @ np.divide(squares, total, out=np.zeros_like(squares), where=total > 0)

    def most_separate(self, n_features: int) -> list[int]:
        """Return that many features in which the kernels differ most, in the order of the model."""
        best = np.argsort(-self.separation(), kind="stable")[:n_features]
        return sorted(best.tolist())

    def directions_of_difference(self, n_directions: int) -> FloatArray:
        """Return directions (F, M) along which the kernels differ most, each of unit variance within them.

        These are linear discriminants with kernels in the place of classes, where again a light kernel far
        away counts no more than its weight; there are at most as many as features, and as kernels less one.
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
        # A direction and its opposite are the same: the largest part points upwards.
        signs = np.sign(chosen[np.arange(count), np.abs(chosen).argmax(axis=1)])
        return signs[:, None] * chosen / scale

    def _scatter(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights (K,), means (K, M) about the common one, and the covariance (M, M) in kernels."""
        weights = self.weights_of(None)
        within = np.zeros((len(self.names), len(self.names)))
        for weight, full in zip(weights, self._full(), strict=True):
            within += weight * full
        return weights, self.means - weights @ self.means / weights.sum(), within

    def _full(self) -> Iterator[FloatArray]:
        """Yield full covariances (M, M) one by one: those of hundreds of features would not fit at once."""
        n_kernels, n_features = self.means.shape
        common = self.structure.shape(1, n_features) == self.structure.shape(2, n_features)
        for k in range(n_kernels):
            own = self.stored if common else self.stored[k : k + 1]
            yield self.structure.to_full(own[None], 1, n_features)[0, 0]


def kernels_of(model: Any) -> Kernels:
    """Return what a fitted model says about its kernels; refuse one whose feature groups have their own."""
    groups = groups_of(model)
    if len(groups) > 1:
        raise ValueError(
            f"The model has {len(groups)} feature groups, each with its own kernels: "
            "plot one of model.models_."
        )
    return groups[0]


def groups_of(model: Any) -> list[Kernels]:
    """Return the kernels of each feature group of a fitted model; of a model without groups, one entry."""
    # The models that a study keeps are records, which are never without their numbers.
    if not isinstance(model, GroupModel):
        check_is_fitted(model)
    parts = getattr(model, "models_", None)
    if parts is None:
        return [_kernels(model, range(model.means_.shape[1]), model)]
    columns = getattr(model, "feature_groups_", [range(parts[0].means_.shape[1])])
    return [_kernels(part, own, model) for part, own in zip(parts, columns, strict=True)]


def _kernels(part: Any, columns: Sequence[int], model: Any) -> Kernels:
    """Return the kernels of a mixture of some columns, with the priors and names of the whole model."""
    means = np.asarray(part.means_, dtype=np.float64)
    # What was asked for may be 'auto'; what was chosen has an underscore.
    covariance_type = getattr(part, "covariance_type_", part.covariance_type)
    names = getattr(model, "feature_names_in_", None)
    return Kernels(
        # An ordinary mixture has weights (K,) and no classes.
        classes=getattr(part, "classes_", np.zeros(1, dtype=int)).tolist(),
        weights=np.asarray(part.weights_, dtype=np.float64).reshape(len(means), -1),
        prior=np.asarray(getattr(model, "class_prior_", [1.0]), dtype=np.float64),
        means=means,
        stored=np.asarray(part.covariances_, dtype=np.float64),
        structure=structure_of(covariance_type),
        names=[f"feature {d}" if names is None else str(names[d]) for d in columns],
        columns=[int(d) for d in columns],
    )
