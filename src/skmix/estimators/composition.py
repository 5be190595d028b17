"""Compositions of groups: shares of kernels or populations, their differences, and unusual groups."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import stats
from scipy.linalg import block_diag
from scipy.special import digamma
from sklearn.exceptions import ConvergenceWarning

from ..engine import density, shares
from ..engine.compute import how_to_install
from ..engine.em import fit
from ..engine.frame import frame_of
from ..engine.model import FloatArray, IntArray, Status
from ..engine.refine.shift import GroupRows, shift_groups
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from ..engine.tails import Background
from ..io import source_of
from ._settings import freeze_of, is_robust_fit
from .densities import counted_weights, has_shifts, members_of, rows_of_kernels, shares_of
from .populations import check_populations, check_same_features, draw_rows
from .rows import host_copy, open_training, prepared_frame, warn_caller, with_features_of
from .solving import options_of

# Weights of new groups are fitted until a pass gains less than this, in nats for all rows together.
_GAIN = 1e-3
_PASSES = 2000
# Least variance of shares among groups, relative to that of their estimates: of few groups with few rows of a
# population, some have equal counts by chance.
_LEAST_VARIANCE = 0.5
# Least share of a group's rows that its shares must be worth for intervals beside shifts. In simulations,
# intervals covered where shares were worth two thirds of the rows, and were too narrow below one half.
_LEAST_KNOWN = 0.6
# Fewest groups among which one can be unusual.
FEWEST_GROUPS = shares.FEWEST_GROUPS
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Composition:
    """Shares of G parts, kernels or populations and the background, in L groups."""

    groups: np.ndarray  # (L,): names
    sizes: FloatArray  # (L,): rows, or sums of their weights
    shares: FloatArray  # (L, G)
    variances: FloatArray  # (L, G)
    lower: FloatArray  # (L, G)
    upper: FloatArray  # (L, G)
    known: FloatArray  # (L,): rows that would determine the shares as well if kernels did not overlap
    kind: str  # 'kernel' or 'population'
    parts: list[Any]  # (G,): their numbers, and 'background'

    def frame(self) -> Any:
        """Return a DataFrame with a line for each group and part."""
        n_groups, n_parts = self.shares.shape
        columns = {
            "group": np.repeat(self.groups, n_parts),
            self.kind: self.parts * n_groups,
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
        raise ImportError(f"Tables of groups need pandas: {how_to_install('tables')}") from error
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
    if X is not None:
        found = _new_groups(own, X, groups)
    else:
        found = _fitted_groups(own)
        if groups is not None:
            found = found.take(_places(own.classes_, groups, "groups"))
    draws = _Draws.of(own)
    composition = _compose(draws, found, members, float(level))
    if "weight_prior_" in vars(own):
        # The spread of few groups is hardly known: intervals of a posterior that takes it for known are too
        # narrow.
        counted = _compose(draws, found, members, float(level), counted=True)
        composition = replace(
            composition,
            lower=np.minimum(counted.lower, composition.shares),
            upper=np.maximum(counted.upper, composition.shares),
            known=counted.known,
        )
    if found.shifts is not None and freeze_of(own) != "kernels":
        composition = _without_unsure_intervals(composition)
    return composition


def _without_unsure_intervals(composition: Composition) -> Composition:
    """Return a composition with NaN for the limits of groups whose shifted kernels overlap too much.

    There, kernels, their shifts and shares explain the same rows, and their errors are far from normal.
    """
    unsure = composition.known < _LEAST_KNOWN * composition.sizes
    if not unsure.any():
        return composition
    warn_caller(
        f"The shares of {_shown(composition.groups[unsure].tolist())} have no intervals: with group_shift, "
        "these would be too narrow, because kernels overlap. Merge kernels into populations, or fit without "
        "group_shift."
    )
    lower, upper = (
        np.where(unsure[:, None], np.nan, each) for each in (composition.lower, composition.upper)
    )
    return replace(composition, lower=lower, upper=upper)


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
class _Groups:
    """Groups of rows, and what was fitted to them."""

    names: np.ndarray  # (L,)
    sizes: FloatArray  # (L,): rows, or sums of their weights
    weights: FloatArray  # (K, L): of the kernels, in the rows that are not background
    counted: FloatArray  # (K, L): the same without a learnt prior
    background: FloatArray | None  # (L,): weights of the background
    shifts: FloatArray | None  # (L, K, M): of the means
    log_likelihoods: FloatArray  # (L,): means over rows, NaN if they are not known

    @property
    def all_weights(self) -> FloatArray:
        """Weights (K, L) or, with a background, (K + 1, L)."""
        if self.background is None:
            return self.weights
        return np.vstack([self.weights * (1.0 - self.background), self.background])

    def take(self, chosen: IntArray) -> _Groups:
        """Return some of the groups."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            last = name in ("weights", "counted")
            found[name] = None if value is None else value[:, chosen] if last else value[chosen]
        return _Groups(**found)


def _fitted_groups(model: Any) -> _Groups:
    """Return the groups of a fit."""
    shifts = model.group_shifts_ if has_shifts(model) else None
    background = vars(model).get("background_weights_")
    return _Groups(
        names=model.classes_,
        sizes=model.class_count_,
        weights=model.weights_,
        counted=counted_weights(model),
        background=background,
        shifts=shifts,
        log_likelihoods=_log_likelihoods(model),
    )


def _log_likelihoods(model: Any) -> FloatArray:
    """Return the mean log-likelihood (L,) of the rows of each group of a fit.

    NaN where the mixture does not know it, and if rows had missing values: these have other log-likelihoods
    than complete ones.
    """
    n_groups, sizes, path = len(model.classes_), model.class_count_, vars(model).get("log_likelihood_path_")
    if path is None or not len(path) or sizes.min() <= 0 or vars(model).get("has_gaps_", False):
        return np.full(n_groups, np.nan)
    means = path[-1, :n_groups] / sizes
    if path.shape[1] > n_groups:
        # Of rows and labels together.
        means = means - np.log(model.class_prior_)
    after = vars(model).get("weight_concentration_")
    if after is not None:
        # Of expected logarithms of the weights.
        logs = digamma(after) - digamma(after.sum(axis=0))
        change = (counted_weights(model) * (np.log(model.weights_) - logs)).sum(axis=0)
        means = means + change * rows_of_kernels(model) / sizes
    return means


def _prior_of(model: Any) -> tuple[FloatArray | None, bool]:
    """Return the rows (K,) that a prior adds to those of each group, and whether weights have a posterior."""
    learnt, given, n_kernels = vars(model).get("weight_prior_"), model.weight_prior, len(model.means_)
    if learnt is not None:
        return learnt, True
    if model.inference == "variational":
        number = 1.0 / (model.n_kernels or n_kernels) if given is None else given
        return np.full(n_kernels, float(number)), True
    # The most likely weights have one row less than the prior says.
    number = 1.0 if given is None or isinstance(given, str) else given
    return (np.full(n_kernels, number - 1.0) if number > 1.0 else None), False


@dataclass(frozen=True)
class _Draws:
    """Rows of a mixture, as many from each kernel and from the background, and their log-densities."""

    model: Any
    rows: FloatArray  # (n, M)
    log_densities: FloatArray  # (n, K), or with a background (n, K + 1)

    @classmethod
    def of(cls, model: Any, rows: FloatArray | None = None) -> _Draws:
        """Draw rows of a model, or take given ones."""
        rows = draw_rows(model) if rows is None else rows
        n_jobs = effective_n_jobs(model.n_jobs)
        logs = density.all_log_densities(rows, model._parameters, model.covariance_type_, n_jobs)
        return cls(model, rows, logs)

    @cached_property
    def ratios(self) -> FloatArray:
        """Densities relative to that of all draws, as `shares.density_ratios`."""
        return shares.density_ratios(self.log_densities)

    def moved(self, shifts: FloatArray) -> _Draws:
        """Return the draws of a group whose kernels are moved by shifts (K, M)."""
        own = copy(self.model)
        own.means_ = own.means_ + shifts
        return _Draws.of(own, self.rows + np.repeat(shifts, len(self.rows) // len(shifts), axis=0))

    def shift_errors(self, group: _Groups, prior: FloatArray | None) -> shares.KernelErrors | None:
        """Return the errors of the shifts of one group, whose draws these are."""
        parameters = replace(self.model._parameters, weights=group.weights, concentration=None)
        if isinstance(parameters.tail, Background):
            parameters = replace(parameters, tail=replace(parameters.tail, weights=group.background))
        return shares.kernel_errors(
            self.rows,
            self.log_densities,
            parameters,
            self.model.covariance_type_,
            group.sizes,
            prior,
            self.model.group_shift_,
        )

    def each(self, groups: _Groups) -> Iterator[_Draws]:
        """Yield the draws of each group."""
        for j in range(len(groups.names)):
            yield self if groups.shifts is None else self.moved(groups.shifts[j])


def _compose(
    draws: _Draws, groups: _Groups, members: FloatArray | None, level: float, *, counted: bool = False
) -> Composition:
    """Return the composition of groups, or what it is as counted, without a learnt prior."""
    model = draws.model
    prior, has_posterior = _prior_of(model)
    if counted:
        groups = replace(groups, weights=groups.counted)
        if "weight_prior_" in vars(model):
            prior, has_posterior = None, False
    weights, errors = groups.all_weights, None
    if freeze_of(model) != "kernels":
        errors = shares.kernel_errors(
            draws.rows,
            draws.log_densities,
            model._parameters,
            model.covariance_type_,
            model.class_count_,
            prior,
        )
    kind, members = ("kernel", np.eye(len(model.means_))) if members is None else ("population", members)
    parts: list[Any] = list(range(members.shape[1]))
    # Means of a posterior have the rows of the prior. Otherwise, intervals have Jeffreys' prior.
    added = np.full(len(parts), 0.0 if has_posterior else 0.5)
    pseudo_rows = np.full(len(parts), 0.0 if prior is None else prior.sum())
    if groups.background is not None:
        members, parts = block_diag(members, 1.0), [*parts, "background"]
        added, pseudo_rows = np.append(added, 0.5), np.append(pseudo_rows, 0.0)
    totals = groups.sizes[:, None] + pseudo_rows
    found, variances, spreads, known = [], [], [], []
    each = enumerate(zip(weights.T, groups.sizes, totals, draws.each(groups), strict=True))
    for j, (w, size, total, own) in each:
        w = w / w.sum()
        inside = shares.away_from_zero(w, size)
        of_shifts = None if groups.shifts is None else own.shift_errors(groups.take(np.array([j])), prior)
        covariance = shares.covariance(own.ratios, inside, size, prior, errors, of_shifts)
        found.append(w @ members)
        variances.append(np.einsum("kg,kl,lg->g", members, covariance, members, optimize=True))
        inside = inside @ members
        binomial = inside * (1.0 - inside)
        spreads.append(total * variances[-1] - binomial)
        known.append(binomial.sum() / max(variances[-1].sum(), _TINY))
    share = np.array(found) if len(parts) > 1 else np.ones((len(found), 1))
    lower, upper = share, share
    if len(parts) > 1:
        lower, upper = shares.intervals(share, np.array(spreads), totals, level, added)
    # A single part has no variance.
    rows = np.clip(known, np.minimum(groups.sizes, 1.0), groups.sizes)
    return Composition(
        groups.names, groups.sizes, share, np.array(variances), lower, upper, rows, kind, parts
    )


# ---------------------------------------------------------------- differences


def compare(model: Any, groups_a: Any, groups_b: Any, *, populations: bool | None, level: float) -> Any:
    """Return a DataFrame of the differences between the mean shares of two sets of groups.

    Shares are as counted: those that a learnt prior draws together differ by less than they should.
    """
    pandas()
    _check_level(level)
    both = [
        _places(model.classes_, groups, name)
        for groups, name in ((groups_a, "groups_a"), (groups_b, "groups_b"))
    ]
    common = np.intersect1d(both[0], both[1])
    if len(common):
        raise ValueError(f"groups_a and groups_b both have {_shown(model.classes_[common].tolist())}.")
    own = host_copy(model)
    chosen, members = _fitted_groups(own).take(np.concatenate(both)), _members(own, populations)
    found = _compose(_Draws.of(own), chosen, members, float(level), counted=True)
    cut = len(both[0])
    (mean_a, variance_a, inverse_a), (mean_b, variance_b, inverse_b) = (
        _mean_of_groups(found.shares[side], found.variances[side]) for side in (slice(cut), slice(cut, None))
    )
    difference, variance = mean_a - mean_b, variance_a + variance_b
    if len(found.parts) == 1:
        # It has all rows of all groups.
        reach, p_values = np.zeros(1), np.ones(1)
    else:
        # Welch and Satterthwaite.
        inverse = (variance_a**2 * inverse_a + variance_b**2 * inverse_b) / variance**2
        distribution = stats.t(1.0 / np.maximum(inverse, 1e-12))
        deviation = np.sqrt(variance)
        reach = distribution.ppf(0.5 + 0.5 * level) * deviation
        p_values = 2.0 * distribution.sf(np.abs(difference) / deviation)
    columns = {
        found.kind: found.parts,
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

    One group has the variance of its own share; several vary as they do, whatever the reason, but not by much
    less than their rows make them.
    """
    n_groups, mean = len(shares), shares.mean(axis=0)
    if n_groups == 1:
        return mean, variances[0], 0.0
    among = np.maximum(shares.var(axis=0, ddof=1), _LEAST_VARIANCE * variances.mean(axis=0))
    return mean, among / n_groups, 1.0 / (n_groups - 1)


# ---------------------------------------------------------------- unusual groups


def unusual_groups(model: Any, X: Any, groups: Any, *, populations: bool | None, level: float) -> Any:
    """Return a DataFrame of how unusual each group is among those of the fit."""
    pandas()
    _check_level(level)
    if X is None and groups is not None:
        raise ValueError("groups was given without X: give the rows of these groups too.")
    own = host_copy(model)
    members, n_fitted = _members(own, populations), len(own.classes_)
    if n_fitted < FEWEST_GROUPS:
        raise ValueError(
            f"The mixture has {n_fitted} group(s): at least {FEWEST_GROUPS} are needed to tell which are "
            "unusual."
        )
    draws, fitted = _Draws.of(own), _fitted_groups(own)
    judged = [fitted] if X is None else [fitted, _new_groups(own, X, groups)]
    found = [_compose(draws, each, members, 0.95, counted=True) for each in judged]
    raw = np.concatenate([each.shares for each in found])
    counts = raw * np.concatenate([each.known for each in found])[:, None]
    values = _fits(draws, judged)
    # New groups come last.
    verdicts = shares.judge(counts, values, np.arange(len(raw)) < n_fitted, float(level))
    # Of shares with the same p-value, such as zero, the one that differs most.
    least = verdicts.p_parts == verdicts.p_parts.min(axis=1, keepdims=True)
    away = np.where(least, np.abs(raw - verdicts.usual_shares), -1.0)
    part, every = away.argmax(axis=1), np.arange(len(raw))
    columns = {
        found[0].kind: [found[0].parts[g] for g in part],
        "share": raw[every, part],
        "usual_share": verdicts.usual_shares[every, part],
        "p_composition": verdicts.p_shares,
        "log_likelihood": np.concatenate([each.log_likelihoods for each in judged]),
        "z_likelihood": verdicts.z,
        "p_likelihood": verdicts.p_values,
        "p_adjusted": verdicts.p_adjusted,
        "unusual": verdicts.p_adjusted <= level,
    }
    shown, lines = judged[-1], slice(n_fitted if len(judged) > 1 else 0, None)
    first = {"group": shown.names, "rows": _as_counts(shown.sizes)}
    return pandas().DataFrame(first | {name: column[lines] for name, column in columns.items()})


def _fits(draws: _Draws, judged: list[_Groups]) -> shares.Values | None:
    """Return the mean log-likelihoods of groups, as `shares.judge` takes them; None if one is unknown.

    What rows of a group's composition would have is subtracted. Kernels are never quite right, so that what
    is left has a mean, for the rows that are not background, and differs among groups by more than chance.
    """
    rows, box, prior = draws.rows, vars(draws.model).get("background_box_"), _prior_of(draws.model)[0]
    boxed = None
    if any(np.isnan(groups.log_likelihoods).any() for groups in judged):
        return None
    if box is not None:
        # No row of the background is outside of its box.
        logs = draws.log_densities.copy()
        logs[np.any((rows < box[0]) | (rows > box[1]), axis=1), -1] = -np.inf
        boxed = shares.density_ratios(logs)
    found = []
    for groups in judged:
        each = zip(
            groups.all_weights.T, groups.sizes, groups.log_likelihoods, draws.each(groups), strict=True
        )
        for weights, size, value, own in each:
            ratios = own.ratios if boxed is None else boxed
            mean, variance, skew = shares.log_likelihood_moments(
                own.log_densities, ratios, weights / weights.sum(), size, prior
            )
            found.append((value - mean, np.sqrt(variance / size), skew / np.sqrt(size)))
    away, error, skews = np.array(found).T
    inside = np.concatenate(
        [np.ones(len(each.names)) if each.background is None else 1.0 - each.background for each in judged]
    )
    return shares.Values(away, error, inside, skews)


# ---------------------------------------------------------------- new groups


def _new_groups(model: Any, X: Any, groups: Any) -> _Groups:
    """Return groups of new rows with weights that are fitted to them.

    The kernels stay as they are; where groups have shifts, new ones have theirs.
    """
    source = source_of(X, groups)
    if source is not None:
        X = with_features_of(model, source if groups is None else source.labelled(groups))
    else:
        X = prepared_frame(model, X)
    reader = copy(model)
    training = open_training(reader, X, groups if source is None else None, None, name="groups", least=1)
    check_same_features(model, reader, "X")
    if training.n_unlabelled:
        raise ValueError(
            f"{training.n_unlabelled} rows of X have no group: leave them out, or give them a group."
        )
    n_groups, (prior, has_posterior) = len(training.classes), _prior_of(model)
    robust = is_robust_fit(model)
    options = replace(
        options_of(model, training.n_features, model.covariance_type_),
        inference="em",
        freeze="kernels",
        floor=0.0,
        stopping="total",
        accelerate=not has_posterior and not robust,
        weight_prior="given" if has_posterior else None if prior is None else float(prior[0]) + 1.0,
        max_iter=_PASSES,
        tol=_GAIN / training.source.summary.total,
    )
    start = replace(
        model._parameters,
        weights=uniform_weights(1, len(model.means_), n_groups)[0],
        concentration=prior if has_posterior else None,
    )
    if isinstance(start.tail, Background):
        start = replace(start, tail=start.tail.of_average(model.class_prior_, n_groups))
    frame = frame_of(start, structure_of(model.covariance_type_).of(model.covariances_[None]))
    strength, shifts = vars(model).get("group_shift_", np.inf), None
    if np.isfinite(strength):
        rows = GroupRows(training.source, n_groups)
        shifted = shift_groups(rows, start, strength, replace(options, accelerate=False), frame)
        converged, found, shifts = shifted.converged, shifted.parameters, shifted.shifts
        log_likelihood, counts = shifted.log_likelihood, shifted.counts
    else:
        result = fit(training.source, start.batch(), options, frame=frame)
        converged, found = result.status[0] == Status.CONVERGED, result.parameters.take(0)
        log_likelihood, counts = result.log_likelihood[0], result.counts
        counts = None if counts is None else counts[0]
    if not converged:
        warn_caller(f"The weights of new groups did not converge in {_PASSES} passes.", ConvergenceWarning)
    if training.source.summary.gaps:
        log_likelihood = np.full(n_groups, np.nan)
    return _Groups(
        names=training.classes,
        sizes=training.sizes,
        weights=found.weights,
        counted=found.weights if counts is None else shares_of(counts, found.weights),
        background=found.tail.weights if isinstance(found.tail, Background) else None,
        shifts=shifts,
        log_likelihoods=log_likelihood / training.sizes,
    )
