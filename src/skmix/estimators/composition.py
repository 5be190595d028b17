"""Compositions of groups: shares of kernels or populations, their differences, and unusual groups."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import stats
from scipy.special import digamma
from sklearn.exceptions import ConvergenceWarning

from ..engine import density, shares
from ..engine.covariances import structure_of
from ..engine.em import fit
from ..engine.model import FloatArray, IntArray, Status
from ..engine.refine.shift import GroupRows, shift_groups
from ..engine.rules.likelihood import all_weights
from ..engine.sources.summary import frame_of
from ..engine.starts import uniform_weights
from ..io import source_of
from ._settings import is_robust_fit
from .densities import counted_weights, members_of, rows_of_kernels
from .populations import check_populations, check_same_features, draw_rows
from .rows import about_groups, host_copy, open_training, warn_caller, with_features_of
from .solving import options_of

# Weights of new groups are fitted until a pass gains less than this, in nats for all rows together.
_GAIN = 1e-3
_PASSES = 2000
# Least variance of shares among groups, relative to that of their estimates: equal shares are rounded.
_LEAST_VARIANCE = 1e-4
# Fewest groups among which one can be unusual, and times that the unusual ones are left out of the others.
FEWEST_GROUPS, _ROUNDS = 4, 5
# Standard deviation of normal variates over their median absolute deviation.
_DEVIATION = 1.4826


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
    _check_level(level)
    own = host_copy(model)
    members = _members(own, populations)
    if X is None:
        names, weights, sizes = own.classes_, own.weights_, own.class_count_
        background = vars(own).get("background_weights_")
        if groups is not None:
            chosen = _places(own.classes_, groups, "groups")
            names, weights, sizes = names[chosen], weights[:, chosen], sizes[chosen]
            background = None if background is None else background[chosen]
    else:
        with about_groups():
            names, weights, sizes, background = _fit_weights(own, X, groups)
    return _compose(own, _draw(own), names, weights, sizes, background, members, float(level))


def _check_level(level: Any) -> None:
    if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")


def _members(model: Any, populations: bool | None) -> FloatArray | None:
    """Return which kernels (K, G) the populations have, or None for kernels."""
    if populations is None:
        populations = "populations_" in vars(model)
    if not populations:
        return None
    check_populations(model)
    return members_of(model.populations_)


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


@dataclass(frozen=True)
class _Draws:
    """Rows of a mixture, as many from each kernel and from the background, and their log-densities."""

    rows: FloatArray  # (n, M)
    log_densities: FloatArray  # (n, K), or with a background (n, K + 1)


def _draw(model: Any) -> _Draws:
    rows = draw_rows(model)
    n_jobs = effective_n_jobs(model.n_jobs)
    return _Draws(rows, density.all_log_densities(rows, model._parameters, model.covariance_type_, n_jobs))


def _compose(
    model: Any,
    draws: _Draws,
    names: np.ndarray,
    weights: FloatArray,
    sizes: FloatArray,
    background: FloatArray | None,
    members: FloatArray | None,
    level: float,
) -> Composition:
    """Return the composition of groups with weights (K, L), sizes (L,) and weights of a background (L,)."""
    prior, n_kernels = vars(model).get("weight_prior_"), len(model.means_)
    # Without the background.
    of_kernels = len(draws.rows) // draws.log_densities.shape[1] * n_kernels
    rows, log_densities = draws.rows[:of_kernels], draws.log_densities[:of_kernels, :n_kernels]
    ratios, errors = shares.density_ratios(log_densities), None
    if model.freeze != "kernels":
        errors = shares.kernel_errors(
            rows, log_densities, model._parameters, model.covariance_type_, model.class_count_, prior
        )
    # With a prior, weights are posterior means. Without one, intervals have Jeffreys' prior.
    pseudo_rows, added = (0.0, 0.5) if prior is None else (float(prior.sum()), 0.0)
    # Rows of the background are of no kernel.
    counts = sizes if background is None else sizes * (1.0 - background)
    totals = counts + pseudo_rows
    found, variances, spreads = [], [], []
    for w, size, total in zip(weights.T, counts, totals, strict=True):
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


# ---------------------------------------------------------------- differences


def compare(model: Any, groups_a: Any, groups_b: Any, *, populations: bool | None, level: float) -> Any:
    """Return a DataFrame of the differences between the mean shares of two sets of groups."""
    both = [
        _places(model.classes_, groups, name)
        for groups, name in ((groups_a, "groups_a"), (groups_b, "groups_b"))
    ]
    common = np.intersect1d(both[0], both[1])
    if len(common):
        raise ValueError(f"groups_a and groups_b both have {_shown(model.classes_[common].tolist())}.")
    found = compose(model, None, model.classes_[np.concatenate(both)], populations=populations, level=level)
    cut = len(both[0])
    (mean_a, variance_a, inverse_a), (mean_b, variance_b, inverse_b) = (
        _mean_of_groups(found.shares[side], found.variances[side]) for side in (slice(cut), slice(cut, None))
    )
    difference, variance = mean_a - mean_b, variance_a + variance_b
    # Welch and Satterthwaite.
    inverse = (variance_a**2 * inverse_a + variance_b**2 * inverse_b) / variance**2
    distribution = stats.t(1.0 / np.maximum(inverse, 1e-12))
    deviation = np.sqrt(variance)
    reach = distribution.ppf(0.5 + 0.5 * level) * deviation
    p_values = 2.0 * distribution.sf(np.abs(difference) / deviation)
    columns = {
        found.part: np.arange(len(difference)),
        "share_a": mean_a,
        "share_b": mean_b,
        "difference": difference,
        "lower": np.maximum(difference - reach, -1.0),
        "upper": np.minimum(difference + reach, 1.0),
        "p_value": p_values,
        "q_value": stats.false_discovery_control(p_values),
    }
    return pandas().DataFrame(columns)


def _mean_of_groups(shares: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return mean shares (G,) of some groups (L, G), their variances, and one over the degrees of freedom.

    One group has the variance of its own share; several vary as they do, whatever the reason.
    """
    n_groups, mean = len(shares), shares.mean(axis=0)
    if n_groups == 1:
        return mean, variances[0], 0.0
    among = np.maximum(shares.var(axis=0, ddof=1), _LEAST_VARIANCE * variances.mean(axis=0))
    return mean, among / n_groups, 1.0 / (n_groups - 1)


# ---------------------------------------------------------------- unusual groups


def unusual_groups(model: Any, *, populations: bool | None, level: float) -> Any:
    """Return a DataFrame of how unusual each group is among the others."""
    pandas()
    _check_level(level)
    own = host_copy(model)
    members, n_groups = _members(own, populations), len(own.classes_)
    if n_groups < FEWEST_GROUPS:
        raise ValueError(
            f"The mixture has {n_groups} group(s): at least {FEWEST_GROUPS} are needed to tell which are "
            "unusual."
        )
    drawn, background = _draw(own), vars(own).get("background_weights_")
    found = _compose(own, drawn, own.classes_, own.weights_, own.class_count_, background, members, 0.95)
    raw = counted_weights(own).T
    raw = raw if members is None else raw @ members
    # Rows that would determine the shares as well if kernels did not overlap.
    known = (raw * (1.0 - raw)).sum(axis=1) / found.variances.sum(axis=1)
    sizes = np.minimum(rows_of_kernels(own), known)
    means, z_fit = _fits(own, drawn)
    p_fit = 2.0 * stats.t.sf(np.abs(z_fit), n_groups - 1)
    unusual = np.zeros(n_groups, dtype=bool)
    for _ in range(_ROUNDS):
        draws, fold = shares.usual_shares((raw * sizes[:, None]).T, ~unusual)
        each = [shares.tail_probabilities(raw[j], sizes[j], draws[fold[j]]) for j in range(n_groups)]
        p_parts = np.array(each)
        p_shares = np.minimum(1.0, p_parts.shape[1] * p_parts.min(axis=1))
        least = np.where(np.isnan(p_fit), p_shares, np.minimum(1.0, 2.0 * np.fmin(p_shares, p_fit)))
        q_values = stats.false_discovery_control(least)
        before, unusual = unusual, q_values <= level
        if np.array_equal(before, unusual) or np.sum(~unusual) < FEWEST_GROUPS:
            break
    part, every = p_parts.argmin(axis=1), np.arange(n_groups)
    usual = (draws[..., 0] / draws.sum(axis=3)).mean(axis=2)
    columns = {
        "group": found.groups,
        "rows": _as_counts(found.sizes),
        found.part: part,
        "share": raw[every, part],
        "usual_share": usual[fold, part],
        "p_composition": p_shares,
        "log_likelihood": means,
        "z_likelihood": z_fit,
        "p_likelihood": p_fit,
        "q_value": q_values,
        "unusual": unusual,
    }
    return pandas().DataFrame(columns)


def _fits(model: Any, draws: _Draws) -> tuple[FloatArray, FloatArray]:
    """Return the mean log-likelihood (L,) of each group's rows, and how far it is from what it should be.

    The latter is in standard deviations: what a group of its composition and size would have is subtracted,
    and where groups differ by more than chance, their median and spread (median absolute deviation) are the
    standard. NaN where the mixture does not know the log-likelihoods, or where they are of rows with missing
    values, which have other ones than complete rows.
    """
    n_groups, sizes, path = len(model.classes_), model.class_count_, vars(model).get("log_likelihood_path_")
    if path is None or not len(path) or sizes.min() <= 0 or vars(model).get("has_gaps_", False):
        return np.full(n_groups, np.nan), np.full(n_groups, np.nan)
    means = path[-1, :n_groups] / sizes
    if path.shape[1] > n_groups:
        # Of rows and labels together.
        means = means - np.log(model.class_prior_)
    after = vars(model).get("weight_concentration_")
    if after is not None:
        # Of expected logarithms of the weights.
        logs = digamma(after) - digamma(after.sum(axis=0))
        change = (model.weights_ * (np.log(model.weights_) - logs)).sum(axis=0)
        means = means + change * rows_of_kernels(model) / sizes
    weights, log_densities = all_weights(model._parameters.batch())[0], draws.log_densities
    highest = log_densities.max(axis=1, keepdims=True)
    # Densities of zero have no mass either.
    mixed = np.maximum(np.exp(log_densities - highest) @ weights, np.finfo(float).tiny)
    logs = np.log(mixed) + highest
    box = vars(model).get("background_box_")
    if box is not None:
        # No row of the background is outside of its box.
        outside = np.any((draws.rows < box[0]) | (draws.rows > box[1]), axis=1)
        log_densities = log_densities.copy()
        log_densities[outside, -1] = -np.inf
    drawn = shares.density_ratios(log_densities) @ weights / len(logs)
    expected = (drawn * logs).sum(axis=0)
    z = (means - expected) / np.sqrt((drawn * (logs - expected) ** 2).sum(axis=0) / sizes)
    z -= np.median(z)
    return means, z / max(1.0, _DEVIATION * np.median(np.abs(z)))


# ---------------------------------------------------------------- new groups


def _fit_weights(
    model: Any, X: Any, groups: Any
) -> tuple[np.ndarray, FloatArray, FloatArray, FloatArray | None]:
    """Return names (L,), weights (K, L), sizes and weights of the background (L,) of new groups.

    The kernels stay as they are; where groups have shifts, new ones have theirs.
    """
    source = source_of(X, groups)
    if source is not None:
        X = with_features_of(model, source if groups is None else source.labelled(groups))
    reader = copy(model)
    training = open_training(reader, X, groups if source is None else None, None)
    check_same_features(model, reader, "X")
    if training.n_unlabelled:
        raise ValueError(
            f"{training.n_unlabelled} rows of X have no group: leave them out, or give them a group."
        )
    n_groups, prior = len(training.classes), vars(model).get("weight_prior_")
    options = replace(
        options_of(model, training.n_features, model.covariance_type_),
        inference="em",
        freeze="kernels",
        floor=0.0,
        stopping="total",
        accelerate=prior is None and not is_robust_fit(model),
        weight_prior=None if prior is None else "given",
        max_iter=_PASSES,
        tol=_GAIN / training.source.summary.total,
    )
    start = replace(
        model._parameters, weights=uniform_weights(1, len(model.means_), n_groups)[0], concentration=prior
    )
    if start.background is not None:
        start = replace(start, background=np.full(n_groups, start.background @ model.class_prior_))
    frame = frame_of(start, structure_of(model.covariance_type_).of(model.covariances_[None]))
    strength = vars(model).get("group_shift_", np.inf)
    if np.isfinite(strength):
        rows = GroupRows(training.source, n_groups)
        shifted = shift_groups(rows, start, strength, replace(options, accelerate=False), frame)
        converged, found = shifted.converged, shifted.parameters
    else:
        result = fit(training.source, start.batch(), options, frame=frame)
        converged, found = result.status[0] == Status.CONVERGED, result.parameters.take(0)
    if not converged:
        warn_caller(f"The weights of new groups did not converge in {_PASSES} passes.", ConvergenceWarning)
    return training.classes, found.weights, training.sizes, found.background
