"""Compositions of groups: shares of kernels or populations, with intervals."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..engine import shares
from ..engine.compute.arrays import on_host
from ..engine.covariances import structure_of
from ..engine.em import fit
from ..engine.model import FloatArray, IntArray, Parameters, Status
from ..engine.sources.summary import frame_of
from ..engine.starts import uniform_weights
from .populations import check_populations, draw_rows
from .rows import host_copy, open_training, warn_caller, without_names
from .solving import options_of

# Weights of new groups are fitted until a pass gains less than this, in nats for all rows together.
_GAIN = 1e-3
_PASSES = 2000


@dataclass(frozen=True)
class Composition:
    """Shares of G parts, kernels or populations, in L groups."""

    groups: np.ndarray  # (L,): names
    sizes: FloatArray  # (L,): rows, or sums of their weights
    shares: FloatArray  # (L, G)
    variances: FloatArray  # (L, G)
    lower: FloatArray  # (L, G)
    upper: FloatArray  # (L, G)
    part: str  # 'kernel' or 'population'

    def frame(self) -> Any:
        """Return a DataFrame with a line for each group and part."""
        n_groups, n_parts = self.shares.shape
        columns = {
            "group": np.repeat(self.groups, n_parts),
            self.part: np.tile(np.arange(n_parts), n_groups),
            "share": self.shares.ravel(),
            "lower": self.lower.ravel(),
            "upper": self.upper.ravel(),
            "rows": np.repeat(_as_counts(self.sizes), n_parts),
        }
        return pandas().DataFrame(columns)


def pandas() -> Any:
    """Return pandas, which tables need; nothing else does."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("Tables of groups need pandas: pip install skmix[tables]") from error
    return pandas


def _as_counts(sizes: FloatArray) -> np.ndarray:
    """Return numbers of rows (L,) as integers, unless they are sums of weights."""
    whole = np.rint(sizes)
    return whole.astype(np.int64) if np.array_equal(whole, sizes) else sizes


def compose(model: Any, X: Any, groups: Any, *, populations: bool | None, level: float) -> Composition:
    """Return the composition of groups of a fitted mixture, or of rows that are new to it."""
    pandas()  # a missing library is reported before any work
    if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    own = host_copy(model)
    members = _members(own, populations)
    if X is None:
        names, weights, sizes = own.classes_, own.weights_, own.class_count_
        if groups is not None:
            chosen = _places(own.classes_, groups, "groups")
            names, weights, sizes = names[chosen], weights[:, chosen], sizes[chosen]
    else:
        names, weights, sizes = _fit_weights(own, X, groups)
    return _compose(own, names, weights, sizes, members, float(level))


def _members(model: Any, populations: bool | None) -> FloatArray | None:
    """Return which kernels (K, G) the populations have, or None for kernels."""
    if populations is None:
        populations = "populations_" in vars(model)
    if not populations:
        return None
    check_populations(model)
    found: FloatArray = (model.populations_[:, None] == np.arange(model.populations_.max() + 1)).astype(float)
    return found


def _places(classes: np.ndarray, groups: Any, argument: str) -> IntArray:
    """Return where groups are among the classes (L,) of a model; a single name is one group."""
    known = {label: place for place, label in enumerate(classes.tolist())}
    scalar = isinstance(groups, str) or np.ndim(groups) == 0
    names = np.asarray([groups] if scalar else list(groups), dtype=object).ravel().tolist()
    if not names:
        raise ValueError(f"{argument} is empty: give at least one of the groups {_shown(known)}.")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{argument} has {_shown(unknown)}, not among the fitted groups {_shown(known)}.")
    places = [known[name] for name in names]
    if len(set(places)) < len(places):
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        raise ValueError(f"{argument} has {_shown(twice)} more than once.")
    return np.array(places)


def _shown(names: Any) -> str:
    """Return some names for an error message."""
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


def _compose(
    model: Any,
    names: np.ndarray,
    weights: FloatArray,
    sizes: FloatArray,
    members: FloatArray | None,
    level: float,
) -> Composition:
    """Return the composition of groups with weights (K, L) and sizes (L,)."""
    rows, prior = draw_rows(model), vars(model).get("weight_prior_")
    log_densities = on_host(without_names(model).kernel_log_densities(rows))
    ratios, errors = shares.density_ratios(log_densities), None
    if model.freeze != "kernels":
        errors = shares.kernel_errors(
            rows, log_densities, model._parameters, model.covariance_type_, model.class_count_, prior
        )
    # With a prior, weights are posterior means. Without one, intervals have Jeffreys' prior.
    pseudo_rows, added = (0.0, 0.5) if prior is None else (float(prior.sum()), 0.0)
    totals = sizes + pseudo_rows
    found, variances, spreads = [], [], []
    for w, size, total in zip(weights.T, sizes, totals, strict=True):
        w = w / w.sum()
        inside = shares.away_from_zero(w, size)
        covariance = shares.covariance(ratios, inside, size, prior, errors)
        variance = np.diagonal(covariance)
        if members is not None:
            w, inside = w @ members, inside @ members
            variance = np.einsum("kg,kl,lg->g", members, covariance, members)
        found.append(w)
        variances.append(variance)
        spreads.append(total * variance - inside * (1.0 - inside))
    share = np.array(found)
    lower, upper = shares.intervals(share, np.array(spreads), totals[:, None], level, added)
    part = "kernel" if members is None else "population"
    return Composition(names, sizes, share, np.array(variances), lower, upper, part)


# ---------------------------------------------------------------- new groups


def _fit_weights(model: Any, X: Any, groups: Any) -> tuple[np.ndarray, FloatArray, FloatArray]:
    """Return names (L,), weights (K, L) and sizes (L,) of new groups; the kernels stay as they are."""
    reader = copy(model)
    training = open_training(reader, X, groups, None)
    _check_features(model, reader)
    if training.n_unlabelled:
        raise ValueError(
            f"{training.n_unlabelled} rows of X have no group: leave them out, or give them a group."
        )
    structure, prior = structure_of(model.covariance_type_), vars(model).get("weight_prior_")
    options = replace(
        options_of(model, training.n_features),
        covariance_type=model.covariance_type_,
        inference="em",
        freeze="kernels",
        floor=0.0,
        stopping="total",
        accelerate=prior is None,
        weight_prior=None if prior is None else "given",
        max_iter=_PASSES,
        tol=_GAIN / training.source.summary.total,
    )
    weights = uniform_weights(1, len(model.means_), len(training.classes))[0]
    start = Parameters(weights, model.means_, model.covariances_, concentration=prior)
    frame = frame_of(start, structure.of(model.covariances_[None]))
    result = fit(training.source, start.batch(), options, frame=frame)
    if result.status[0] != Status.CONVERGED:
        warn_caller(f"The weights of new groups did not converge in {_PASSES} passes.", ConvergenceWarning)
    return training.classes, result.parameters.weights[0], training.sizes


def _check_features(model: Any, other: Any) -> None:
    """Refuse new rows of other features than those of the fit."""
    if other.n_features_in_ != model.n_features_in_:
        raise ValueError(
            f"X has {other.n_features_in_} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input."
        )
    both = [vars(each).get("feature_names_in_") for each in (model, other)]
    if all(names is not None for names in both) and both[0].tolist() != both[1].tolist():
        raise ValueError(f"X has the features {both[1].tolist()}, the fit had {both[0].tolist()}.")
