"""Populations of a fitted mixture: kernels that are merged, sorted, and matched with those of another fit."""

from __future__ import annotations

from copy import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from ..engine import density
from ..engine.compute.arrays import on_host
from ..engine.compute.dask import is_collection
from ..engine.distances import DISTANCES
from ..engine.model import FloatArray, IntArray, Parameters
from ..engine.refine.merge import below, by_weight, cut, elbow, merge
from ..engine.structures import structure_of
from .densities import average_weights, has_shifts, members_of
from .io import arrays_of_kernels
from .rows import host_copy, without_names

_CRITERIA = ("entropy", "overlap")
# Height up to which populations are merged: two equal Gaussians at 4 standard deviations by entropy, at 4.3
# by overlap. The rule of the elbow left twice as many populations as there were (benchmarks/populations.py).
_HEIGHT = 0.9
# Rows that are drawn from a model, if each kernel has neither fewer nor more of them than the others.
_DRAWN, _FEWEST, _MOST = 1 << 15, 100, 4000


def distances(model: Any, other: Any | None, metric: str) -> FloatArray:
    """Return the distances (K, K') of a model's kernels from those of another, or from each other."""
    if metric not in DISTANCES:
        raise ValueError(f"metric={metric!r} is not one of {', '.join(map(repr, DISTANCES))}.")
    one, two = host_copy(model), host_copy(model if other is None else other)
    if other is not None:
        check_same_features(one, two, "other")
    if "kernel_degrees_" in vars(one) or "kernel_degrees_" in vars(two):
        if metric != "bhattacharyya":
            raise ValueError(f"Between t kernels there is metric='bhattacharyya' alone, not {metric!r}.")
        overlaps = _overlaps(_as_populations(one), _as_populations(two))
        found = -np.log(np.maximum(overlaps, np.finfo(float).tiny))
    else:
        given = one._parameters, one.covariance_type_, two._parameters, two.covariance_type_
        found = DISTANCES[metric](*given)
    if other is None:
        found = 0.5 * (found + found.T)
        np.fill_diagonal(found, 0.0)
    return found


def check_same_features(model: Any, other: Any, name: str) -> None:
    """Refuse the argument `name`, of which `other` noted the features, if they are not those of the model."""
    if other.n_features_in_ != model.n_features_in_:
        raise ValueError(
            f"{name} has {other.n_features_in_} features, but the fit had {model.n_features_in_}."
        )
    both = [vars(each).get("feature_names_in_") for each in (model, other)]
    names = [each.tolist() for each in both if each is not None]
    if len(names) == 2 and names[0] != names[1]:
        raise ValueError(f"{name} has different features: {names[1]}, and the fit had {names[0]}.")


# ---------------------------------------------------------------- merges


def merge_kernels(model: Any, X: Any, y: Any, criterion: str, n_populations: Any, threshold: Any) -> None:
    """Merge the kernels of a mixture with NumPy arrays, by rows or by draws from itself."""
    if criterion not in _CRITERIA:
        raise ValueError(f"criterion={criterion!r} is not one of {', '.join(map(repr, _CRITERIA))}.")
    n_kernels = len(model.means_)
    if n_populations is not None:
        if threshold is not None:
            raise ValueError("n_populations and threshold both say where to stop: give one of them.")
        whole = isinstance(n_populations, Integral) and not isinstance(n_populations, bool)
        if not whole or not 1 <= n_populations <= n_kernels:
            raise ValueError(f"n_populations must be a number from 1 to {n_kernels}, got {n_populations!r}.")
    height = _HEIGHT if threshold is None or threshold == "elbow" else threshold
    if not isinstance(height, Real) or not 0.0 <= float(height) <= 1.0:
        raise ValueError(f"threshold must be a number from 0 to 1 or 'elbow', got {threshold!r}.")
    if X is None:
        if y is not None:
            raise ValueError("y has labels of rows, but there are no rows: give X too.")
        shares, weights = _expected(model)
    else:
        found = model.responsibilities(X, y)
        shares = on_host(found.compute() if is_collection(found) else found)
        weights = np.ones(len(shares))
    merges = merge(shares, weights, criterion)  # type: ignore[arg-type]
    if n_populations is None:
        n_populations = elbow(merges) if threshold == "elbow" else below(merges, float(height))
    populations = cut(merges.tree, int(n_populations))
    model.populations_ = _by_weight(model, populations)
    model.merge_tree_, model.merge_entropies_ = merges.tree, merges.entropies


def _by_weight(model: Any, populations: IntArray) -> IntArray:
    """Return populations (K,) numbered by their weight, the largest first."""
    weights = average_weights(model)
    members = members_of(populations)
    total = weights @ members
    means = ((members * weights[:, None]).T @ model.means_) / np.maximum(total, np.finfo(float).tiny)[:, None]
    return np.argsort(by_weight(total, means))[populations]


def _draw(model: Any, n_each: int) -> FloatArray:
    """Draw rows (K · n_each, M) from the kernels in turn; the same ones in every call."""
    n_kernels = len(model.means_)
    # Each kernel is a class of its own.
    tail = model._parameters.tail.of_kernels()
    apart = Parameters(np.eye(n_kernels), model.means_, model.covariances_, tail=tail)
    kernels = np.repeat(np.arange(n_kernels), n_each)
    return density.draw(apart, model.covariance_type_, kernels, np.random.RandomState(0))[0]


def _rows_each(n_kernels: int) -> int:
    return int(np.clip(_DRAWN // n_kernels, _FEWEST, _MOST))


def draw_rows(model: Any) -> FloatArray:
    """Draw rows (n, M) from a mixture with NumPy arrays; always the same ones.

    There are as many from each kernel in turn and then, if there is one, from the background.
    """
    n_each, box = _rows_each(len(model.means_)), vars(model).get("background_box_")
    rows = _draw(model, n_each)
    if box is None:
        return rows
    uniform = np.random.RandomState(0).uniform(box[0], box[1], size=(n_each, box.shape[1]))
    return np.concatenate([rows, uniform])


def _expected(model: Any) -> tuple[FloatArray, FloatArray]:
    """Return responsibilities (n, K) for rows of the model, as many of each kernel, and the rows' weights."""
    n_kernels = len(model.means_)
    n_each = _rows_each(n_kernels)
    weights, rows = average_weights(model), _draw(model, n_each)
    if has_shifts(model):
        # Rows of a kernel come from the groups as often as the model says.
        kernels = np.repeat(np.arange(n_kernels), n_each)
        shares = np.maximum(model.weights_ * model.class_prior_, np.finfo(float).tiny)
        rows = rows + model.group_shifts_[density.choose(shares[kernels], np.random.RandomState(0)), kernels]
    drawn = without_names(model).responsibilities(rows)
    return on_host(drawn), np.repeat(weights / n_each, n_each)


def check_populations(model: Any) -> None:
    """Refuse a mixture whose kernels have not been merged since they were fitted."""
    if "populations_" not in vars(model):
        raise NotFittedError("This mixture has no populations yet: call merge_kernels() after fit.")


# ---------------------------------------------------------------- order


def sort_kernels(model: Any) -> None:
    """Sort the kernels of a mixture with NumPy arrays by weight."""
    order = by_weight(average_weights(model), model.means_)
    place = np.argsort(order)
    structure, n_kernels = structure_of(model.covariance_type_), len(order)
    names = arrays_of_kernels(model) + ([] if structure.shared else ["covariances_"])
    for name in (*names, *(["populations_"] if "populations_" in vars(model) else [])):
        setattr(model, name, vars(model)[name][order])
    if "group_shifts_" in vars(model):
        model.group_shifts_ = model.group_shifts_[:, order]
    if "merge_tree_" in vars(model):
        tree = model.merge_tree_.copy()
        leaves = tree[:, :2] < n_kernels
        tree[:, :2][leaves] = place[tree[:, :2][leaves].astype(np.int64)]
        tree[:, :2].sort(axis=1)
        model.merge_tree_ = tree
    if "stream_" in vars(model):
        sums = {name: model.stream_[name][:, order] for name in ("mass", "first", "second", "origins")}
        model.stream_ = model.stream_ | sums


# ---------------------------------------------------------------- two models


def match(model: Any, other: Any, *, populations: bool, max_distance: float) -> IntArray:
    """Return the kernel or population of another model that each of a model's corresponds to, or −1."""
    if not (isinstance(max_distance, Real) and 0.0 <= float(max_distance) <= 1.0):
        raise ValueError(f"max_distance must be a number from 0 to 1, got {max_distance!r}.")
    one, two = host_copy(model), host_copy(other)
    if populations:
        check_populations(one)
        check_populations(two)
        check_same_features(one, two, "other")
        cost = 1.0 - _overlaps(one, two)
    else:
        cost = -np.expm1(-distances(one, two, "bhattacharyya"))
    own, others = linear_sum_assignment(cost)
    found = np.full(len(cost), -1, dtype=np.int64)
    near = cost[own, others] <= max_distance
    found[own[near]] = others[near]
    return found


def _as_populations(model: Any) -> Any:
    """Return a copy of a mixture in which each kernel is a population."""
    other = copy(model)
    other.populations_ = np.arange(len(model.means_))
    return other


def _overlaps(model: Any, other: Any) -> FloatArray:
    """Return the Bhattacharyya coefficients (G, G') of populations of two models, by importance sampling."""
    n_kernels = len(model.means_) + len(other.means_)
    n_each = _rows_each(n_kernels)
    rows = np.concatenate([_draw(model, n_each), _draw(other, n_each)])
    of_kernels = [on_host(without_names(each).kernel_log_densities(rows)) for each in (model, other)]
    # The density of all rows: every kernel has as many.
    drawn = logsumexp(np.concatenate(of_kernels, axis=1), axis=1, keepdims=True) - np.log(n_kernels)
    roots = []
    for each, logs in zip((model, other), of_kernels, strict=True):
        weights = average_weights(each)
        members = members_of(each.populations_) * weights[:, None]
        shares = members / np.maximum(members.sum(axis=0), np.finfo(float).tiny)
        # Bounded: a population's density is at most n_kernels times that of the rows.
        roots.append(np.sqrt(np.exp(logs - drawn) @ shares))
    return np.minimum(roots[0].T @ roots[1] / len(rows), 1.0)
