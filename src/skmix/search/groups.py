"""Rows of groups, such as samples or persons, whose classes lie at slightly different places in each.

A row of a new group is shifted too. Its density is that of the training groups, widened by the covariance of
the shifts: N(x; μ_k, P_k + f S), where S is estimated from the means of the training groups and the factor f
is chosen on groups that were held out.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from ..engine.structures import structure_of
from ..model.fitted import Fitted

# Factors of the covariance of shifts to try with groups.
FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class GroupedBlock(Block):
    """Rows and the number of the group that each belongs to."""

    groups: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (n,): 0, 1, …

    def rows(self, which: np.ndarray | slice) -> GroupedBlock:
        """Return the rows that `which` selects."""
        return replace(super().rows(which), groups=self.groups[which])


def shift_covariance(rows: Block) -> FloatArray | None:
    """Return the covariance (M, M) of the shifts of classes between groups; None without groups.

    It is the covariance of the means of a class in different groups, pooled over classes, less what means of
    so many rows differ by chance. Weights of rows are not used.
    """
    groups = groups_of([rows.labelled()])
    if groups is None:
        return None
    X, codes = rows.labelled().X, rows.labelled().codes
    # A cell is the rows of a class in a group. A single row does not tell how far it may lie from its mean.
    cell_of = _numbered(codes * (groups.max() + 1) + groups)
    is_kept = np.bincount(cell_of)[cell_of] > 1
    X, codes, cell_of = X[is_kept], codes[is_kept], _numbered(cell_of[is_kept])
    sizes, class_of = np.bincount(cell_of), codes[np.unique(cell_of, return_index=True)[1]]
    n_groups = np.bincount(class_of)
    degrees = len(sizes) - np.count_nonzero(n_groups)
    if degrees == 0:
        return None
    means, centres = (np.zeros((size, X.shape[1])) for size in (len(sizes), len(n_groups)))
    np.add.at(means, cell_of, X / sizes[cell_of, None])
    np.add.at(centres, class_of, means / n_groups[class_of, None])
    between, within = means - centres[class_of], X - means[cell_of]
    by_chance = ((1.0 - 1.0 / n_groups[class_of]) / (sizes * (sizes - 1.0)))[cell_of]
    scatter = between.T @ between - (by_chance * within.T) @ within
    values, vectors = np.linalg.eigh(scatter / degrees)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def groups_of(blocks: list[Block]) -> np.ndarray | None:
    """Return the groups (n,) of the rows of some blocks; None without groups."""
    groups = [rows.groups for rows in blocks if isinstance(rows, GroupedBlock)]
    return np.concatenate(groups) if groups else None


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Return the number (n,) of each label (n,) among the sorted ones."""
    return np.unique(labels, return_inverse=True)[1]


def widened(model: Any, covariance: FloatArray | None, factor: float) -> Any:
    """Return a fitted classifier with `factor` times a covariance (M, M) added to those of its kernels."""
    if covariance is None or factor == 0.0:
        return model
    wide = copy(model)
    wide.models_ = []
    for features, mixture in zip(model.feature_sets_, model.models_, strict=True):
        part, fitted = copy(mixture), Fitted.of(mixture)
        assert fitted is not None
        parameters, structure = fitted.parameters, structure_of(mixture.covariance_type_)
        moments = structure.common(factor * covariance[np.ix_(features, features)])
        added = structure.from_common(moments[None], len(parameters.means))[0]
        fitted.moved(replace(parameters, covariances=parameters.covariances + added)).store(part)
        wide.models_.append(part)
    return wide
