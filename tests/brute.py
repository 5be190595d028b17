"""One brute-force oracle of every fit: densities by SciPy, expectations and M-steps by their formulas.

Nothing here calls skmix. A model has K kernels of M features and L classes; a row has the class j or none
(−1), a weight, and NaN where a value is missing. Values x with errors of standard deviation σ are x + iσ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import multivariate_normal, multivariate_t

Array = NDArray[Any]


@dataclass(frozen=True)
class Model:
    """Parameters; covariances are full matrices whatever the structure is."""

    weights: Array  # (K, L)
    means: Array  # (K, M)
    covariances: Array  # (K, M, M)
    degrees: Array | None = None  # (K,): of t kernels
    class_prior: Array | None = None  # (L,): where rows have no label
    shifts: Array | None = None  # (L, K, M): of groups with means of their own
    log_weights: Array | None = None  # (K, L): of the E-step where weights have a posterior
    counts: Array | None = None  # (K, L): expected rows of kernels and classes


@dataclass(frozen=True)
class Rule:
    """How the M-step is done."""

    structure: str
    floor: Array  # (M,): smallest variances
    prior_rows: float = 0.0
    prior_covariance: Array | None = None  # (M, M)
    weight_prior: float = 1.0
    freeze: str | None = None
    learn_degrees: bool = False
    shift: float | None = None  # strength of the prior on shifts, in rows


@dataclass(frozen=True)
class Rows:
    """Rows (N, M), classes (N,), weights (N,)."""

    X: Array
    classes: Array
    weights: Array


# ---------------------------------------------------------------- densities


def patterns(X: Array) -> list[tuple[Array, Array]]:
    """Return (rows, observed features) for each pattern of gaps."""
    bits = 1 << np.arange(X.shape[1])
    own = ~np.isnan(X) @ bits
    return [(np.flatnonzero(own == seen), np.flatnonzero(seen & bits)) for seen in np.unique(own)]


def log_densities(X: Array, model: Model, shifts: Array | None = None) -> Array:
    """Return the kernels' log-densities (N, K) of the observed values; shifts (K, M) move the means."""
    means = model.means if shifts is None else model.means + shifts
    out = np.zeros((len(X), len(means)))
    for rows, seen in patterns(X):
        if not len(seen):
            continue
        for k, mean in enumerate(means):
            if np.iscomplexobj(X):
                away, total = of_noisy(
                    X[np.ix_(rows, seen)], mean[seen], model.covariances[k][np.ix_(seen, seen)]
                )
                lengths = np.einsum("nd,nd->n", away, np.linalg.solve(total, away[..., None])[..., 0])
                out[rows, k] = -0.5 * (lengths + np.linalg.slogdet(2.0 * np.pi * total)[1])
                continue
            covariance, x = model.covariances[k][np.ix_(seen, seen)], X[np.ix_(rows, seen)]
            if model.degrees is None:
                out[rows, k] = multivariate_normal(mean[seen], covariance).logpdf(x)
            else:
                out[rows, k] = multivariate_t(mean[seen], covariance, df=model.degrees[k]).logpdf(x)
    return out


def of_noisy(X: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Return differences (n, d) of values with errors from a mean, and the covariances (n, d, d) of these."""
    return X.real - mean, covariance + np.square(X.imag)[..., None] * np.eye(len(mean))


def log_joints(X: Array, model: Model) -> Array:
    """Return log Pr(k | j) p(x | k, j), shape (N, L, K)."""
    n_classes, joints = model.weights.shape[1], []
    with np.errstate(divide="ignore"):
        log_weights = np.log(model.weights) if model.log_weights is None else model.log_weights
        common = log_densities(X, model) if model.shifts is None else None
        for j in range(n_classes):
            values = log_densities(X, model, model.shifts[j]) if common is None else common  # type: ignore[index]
            joints.append(values + log_weights[:, j])
    return np.stack(joints, axis=1)


def class_log_likelihood(X: Array, model: Model) -> Array:
    """Return log p(x | j), shape (N, L)."""
    return logsumexp(log_joints(X, model), axis=2)


def responsibilities(X: Array, model: Model, classes: Array, class_prior: Array) -> Array:
    """Return Pr(j, k | x), shape (N, L, K); of rows with a class, that class alone counts."""
    with np.errstate(divide="ignore"):
        joint = log_joints(X, model) + np.log(class_prior)[:, None]
    other = (classes[:, None] >= 0) & (classes[:, None] != np.arange(len(class_prior)))
    joint[other] = -np.inf
    return np.exp(joint - logsumexp(joint, axis=(1, 2), keepdims=True))


def log_likelihood(rows: Rows, model: Model) -> Array:
    """Return the log-likelihood (L,) of each class's rows, or (L + 1,) with rows without a label last.

    Where there are such rows, it is joint with the label.
    """
    per_class = class_log_likelihood(rows.X, model)
    n_classes = per_class.shape[1]
    prior = np.zeros(n_classes) if model.class_prior is None else np.log(model.class_prior)
    sums = np.zeros(n_classes + (model.class_prior is not None))
    for j in range(n_classes):
        own = rows.classes == j
        sums[j] = rows.weights[own] @ (per_class[own, j] + prior[j])
    if model.class_prior is not None:
        own = rows.classes < 0
        sums[-1] = rows.weights[own] @ logsumexp(per_class[own] + prior, axis=1)
    return sums


# ---------------------------------------------------------------- sums over rows


@dataclass(frozen=True)
class Sums:
    """Sums over rows of class j and kernel k."""

    mass: Array  # (L, K)
    weight: Array  # (L, K): Σ r E[u]
    first: Array  # (L, K, M): Σ r E[u] x̂
    second: Array  # (L, K, M, M): Σ r (E[u] x̂ x̂ᵀ + C)
    log_scales: Array  # (K,): Σ r (E[log u] − E[u])


def expectations(rows: Rows, model: Model) -> Sums:
    """Return the expected sums, with missing values completed under each kernel and class."""
    (n_kernels, n_features), n_classes = model.means.shape, model.weights.shape[1]
    prior = np.full(n_classes, 1.0 / n_classes) if model.class_prior is None else model.class_prior
    shares = responsibilities(rows.X, model, rows.classes, prior) * rows.weights[:, None, None]
    weight, log_scales = np.zeros((n_classes, n_kernels)), np.zeros(n_kernels)
    first = np.zeros((n_classes, n_kernels, n_features))
    second = np.zeros((n_classes, n_kernels, n_features, n_features))
    for index, seen in patterns(rows.X):
        gaps = np.setdiff1d(np.arange(n_features), seen)
        for k in range(n_kernels):
            P = model.covariances[k]
            inverse = np.linalg.inv(P[np.ix_(seen, seen)])
            slopes = P[np.ix_(gaps, seen)] @ inverse
            left = np.zeros((n_features, n_features))
            left[np.ix_(gaps, gaps)] = P[np.ix_(gaps, gaps)] - slopes @ P[np.ix_(seen, gaps)]
            for j in range(n_classes):
                mean = model.means[k] if model.shifts is None else model.means[k] + model.shifts[j, k]
                if np.iscomplexobj(rows.X):
                    share = shares[index, j, k]
                    clean, uncertain = of_clean(rows.X[np.ix_(index, seen)], mean, P, seen)
                    weight[j, k] += share.sum()
                    first[j, k] += share @ clean
                    second[j, k] += (clean.T * share) @ clean + np.einsum("n,nde->de", share, uncertain)
                    continue
                away = rows.X[np.ix_(index, seen)] - mean[seen]
                filled = np.tile(mean, (len(index), 1))
                filled[:, seen] += away
                filled[:, gaps] += away @ slopes.T
                share, scale = shares[index, j, k], np.ones(len(index))
                if model.degrees is not None:
                    nu, half = model.degrees[k], 0.5 * (model.degrees[k] + len(seen))
                    scale = (nu + len(seen)) / (nu + np.einsum("nd,de,ne->n", away, inverse, away))
                    logs = np.log(scale) + digamma(half) - np.log(half)
                    log_scales[k] += share @ (logs - scale)
                weight[j, k] += share @ scale
                first[j, k] += (share * scale) @ filled
                second[j, k] += (filled.T * (share * scale)) @ filled + share.sum() * left
    return Sums(shares.sum(axis=0), weight, first, second, log_scales)


def of_clean(X: Array, mean: Array, P: Array, seen: Array) -> tuple[Array, Array]:
    """Return expectations (n, M) and covariances (n, M, M) of what was measured with errors, of a kernel."""
    away, total = of_noisy(X, mean[seen], P[np.ix_(seen, seen)])
    gain = P[:, seen] @ np.linalg.inv(total)
    return mean + np.einsum("nde,ne->nd", gain, away), P - gain @ P[seen]


# ---------------------------------------------------------------- M-step


def in_structure(scatter: Array, mass: Array, rule: Rule) -> Array:
    """Return covariances (K, M, M) of scatters (K, M, M) of some mass (K,)."""
    n_kernels, n_features, _ = scatter.shape
    if rule.structure == "tied":
        scatter, mass = scatter.sum(axis=0, keepdims=True), mass.sum(keepdims=True)
    prior = np.zeros((n_features, n_features)) if rule.prior_covariance is None else rule.prior_covariance
    found = (scatter + rule.prior_rows * prior) / (mass + rule.prior_rows)[:, None, None]
    if rule.structure in ("diag", "spherical"):
        variances, floor = np.einsum("kdd->kd", found), rule.floor
        if rule.structure == "spherical":
            floor = np.full(n_features, floor.mean())
            variances = np.repeat(variances.mean(axis=1, keepdims=True), n_features, axis=1)
        return np.maximum(variances, floor)[..., None] * np.eye(n_features)
    for k, own in enumerate(found if rule.floor.any() else ()):
        values, vectors = eigh(own, np.diag(rule.floor))
        scaled = np.diag(rule.floor) @ vectors
        found[k] = (scaled * np.maximum(values, 1.0)) @ scaled.T
    return np.repeat(found, n_kernels // len(found), axis=0)


def likeliest_degrees(gap: float) -> float:
    """Return the root of log(ν/2) − ψ(ν/2) + 1 + gap in [1, 200]."""

    def value(nu: float) -> float:
        return float(np.log(0.5 * nu) - digamma(0.5 * nu) + 1.0 + gap)

    if value(1.0) < 0.0 or value(200.0) > 0.0:
        return 1.0 if value(1.0) < 0.0 else 200.0
    return float(brentq(value, 1.0, 200.0, xtol=1e-13))


def next_model(rows: Rows, model: Model, rule: Rule) -> Model:
    """Return the parameters after one pass of EM."""
    return improved(expectations(rows, model), model, rule)


def improved(sums: Sums, model: Model, rule: Rule) -> Model:
    """Return the parameters after the M-step."""
    found = replace(model, **kernels_after(sums, model, rule)) if rule.freeze != "kernels" else model
    if rule.shift is not None:
        found = replace(found, shifts=shifts_after(sums, found.means, rule.shift))
    mass, sizes = sums.mass.T, sums.mass.sum(axis=1)
    if model.class_prior is not None:
        found = replace(found, class_prior=sizes / sizes.sum())
    if rule.freeze == "weights":
        return found
    weights = (mass + rule.weight_prior - 1.0) / (mass + rule.weight_prior - 1.0).sum(axis=0)
    return replace(found, weights=weights, counts=mass)


def kernels_after(sums: Sums, model: Model, rule: Rule) -> dict[str, Any]:
    """Return new means, covariances and degrees of freedom; kernels without rows keep theirs."""
    alive = sums.mass.sum(axis=0) > 0.0
    if not alive.all():
        found = kernels_after(*of_kernels(sums, model, alive), rule)
        for name, new in found.items():
            if new is not None:
                found[name] = getattr(model, name).copy()
                # A tied covariance is that of every kernel.
                every = name == "covariances" and rule.structure == "tied"
                found[name][... if every else alive] = new[0] if every else new
        return found
    if rule.shift is not None:
        return shifted_kernels_after(sums, model, rule)
    mass, weight = sums.mass.sum(axis=0), sums.weight.sum(axis=0)
    means = sums.first.sum(axis=0) / weight[:, None]
    outer = weight[:, None, None] * means[:, :, None] * means[:, None, :]
    covariances = in_structure(sums.second.sum(axis=0) - outer, mass, rule)
    found = {"means": means, "covariances": covariances}
    if rule.learn_degrees:
        gaps = sums.log_scales / mass
        found["degrees"] = np.array([likeliest_degrees(gap) for gap in gaps])
    return found


def of_kernels(sums: Sums, model: Model, chosen: Array) -> tuple[Sums, Model]:
    """Return the sums and parameters of the chosen kernels (K,)."""
    parts = {name: value[:, chosen] for name, value in vars(sums).items() if name != "log_scales"}
    names = ("weights", "means", "covariances", "degrees")
    kept = {name: value[chosen] for name in names if (value := getattr(model, name)) is not None}
    shifts = None if model.shifts is None else model.shifts[:, chosen]
    return Sums(**parts, log_scales=sums.log_scales[chosen]), replace(model, **kept, shifts=shifts)


def group_means(sums: Sums) -> tuple[Array, Array]:
    """Return the mass (L, K) and mean (L, K, M) of each group's rows of each kernel."""
    return sums.mass, sums.first / np.where(sums.mass > 0.0, sums.mass, 1.0)[..., None]


def shifts_after(sums: Sums, means: Array, strength: float) -> Array:
    """Return the shifts (L, K, M) of the highest penalised likelihood, given the common means (K, M)."""
    mass, own = group_means(sums)
    return (mass / (mass + strength))[..., None] * (own - means)


def shifted_kernels_after(sums: Sums, model: Model, rule: Rule) -> dict[str, Any]:
    """Return new common means and covariances where groups have shifts."""
    strength, (mass, own) = rule.shift, group_means(sums)
    assert strength is not None
    shares = strength * mass / (mass + strength)
    means = (shares[..., None] * own).sum(axis=0) / shares.sum(axis=0)[:, None]
    shifts = shifts_after(sums, means, strength)
    scatter = np.zeros_like(sums.second[0])
    for j in range(len(mass)):
        for k in range(len(means)):
            centre = means[k] + shifts[j, k]
            crossed = np.outer(sums.first[j, k], centre)
            scatter[k] += sums.second[j, k] - crossed - crossed.T + mass[j, k] * np.outer(centre, centre)
            scatter[k] += strength * np.outer(shifts[j, k], shifts[j, k])
    return {"means": means, "covariances": in_structure(scatter, mass.sum(axis=0), rule)}


def objective(rows: Rows, model: Model, rule: Rule) -> float:
    """Return the log-likelihood plus the log-priors, up to a constant."""
    total = float(log_likelihood(rows, model).sum())
    if rule.prior_rows:
        kernels = model.covariances[:1] if rule.structure == "tied" else model.covariances
        for P in kernels:
            trace = np.trace(np.linalg.solve(P, rule.prior_covariance))
            total -= 0.5 * rule.prior_rows * (np.linalg.slogdet(P)[1] + trace)
    if rule.weight_prior != 1.0:
        # A start may have weights of zero.
        logs = np.log(np.maximum(model.weights, np.finfo(np.float64).tiny))
        total += (rule.weight_prior - 1.0) * logs.sum()
    if model.shifts is not None and rule.shift is not None:
        for own in model.shifts:
            for k, shift in enumerate(own):
                total -= 0.5 * rule.shift * shift @ np.linalg.solve(model.covariances[k], shift)
    return total


# ---------------------------------------------------------------- posteriors of weights and kernels


def dirichlet_logs(counts: Array, concentration: Array | float) -> Array:
    """Return E log π (K, L) under Dirichlet posteriors of counts (K, L)."""
    after = counts + np.broadcast_to(np.reshape(concentration, (-1, 1)), counts.shape)
    return digamma(after) - digamma(after.sum(axis=0))


def dirichlet_evidence(counts: Array, concentration: Array) -> float:
    """Return the log-likelihood of counts (K, L) under a common Dirichlet prior (K,)."""
    total, sizes = concentration.sum(), counts.sum(axis=0)
    gains = (gammaln(counts + concentration[:, None]) - gammaln(concentration)[:, None]).sum()
    return float(gains - (gammaln(sizes + total) - gammaln(total)).sum())


def with_posterior_weights(model: Model, concentration: Array | float) -> Model:
    """Return a model whose weights are posterior means, and whose E-step has expected logarithms."""
    assert model.counts is not None
    after = model.counts + np.broadcast_to(np.reshape(concentration, (-1, 1)), model.counts.shape)
    return replace(
        model, weights=after / after.sum(axis=0), log_weights=dirichlet_logs(model.counts, concentration)
    )


@dataclass(frozen=True)
class Prior:
    """The prior of a variational fit, in rows."""

    concentration: Any  # a number, or one for each kernel
    mean_rows: float
    centre: Array  # (M,)
    covariance_rows: float
    covariance: Array  # (M, M)


def next_posterior(rows: Rows, model: Model, structure: str, prior: Prior) -> Model:
    """Return the posterior after one pass of variational Bayes (Bishop, 2006, section 10.2).

    Means are m_k, covariances the inverses of the expected precisions.
    """
    sums = expectations(rows, model)
    mass = sums.mass.T
    counts, n_features = mass.sum(axis=1), model.means.shape[1]
    own = sums.first.sum(axis=0) / counts[:, None]
    beta = prior.mean_rows + counts
    means = (prior.mean_rows * prior.centre + counts[:, None] * own) / beta[:, None]
    away = own - prior.centre
    scatter = sums.second.sum(axis=0) - counts[:, None, None] * own[:, :, None] * own[:, None, :]
    scatter += (prior.mean_rows * counts / beta)[:, None, None] * away[:, :, None] * away[:, None, :]
    added, rows_after = prior.covariance_rows * prior.covariance, prior.covariance_rows + counts
    if structure == "tied":
        scatter = np.repeat(scatter.sum(axis=0, keepdims=True), len(counts), axis=0)
        rows_after = np.full(len(counts), prior.covariance_rows + counts.sum())
    covariances = (scatter + added) / rows_after[:, None, None]
    # E log|Λ| of a Wishart distribution with the expectation P⁻¹, less log|P⁻¹|.
    dimension, degrees, copies = n_features, rows_after, 1
    if structure in ("diag", "spherical"):
        variances = np.einsum("kdd->kd", covariances)
        if structure == "spherical":
            variances = np.repeat(variances.mean(axis=1, keepdims=True), n_features, axis=1)
            degrees = n_features * rows_after
        covariances = variances[..., None] * np.eye(n_features)
        dimension, copies = 1, n_features
    logs = digamma(0.5 * (degrees[:, None] - np.arange(dimension))).sum(axis=1) - dimension * np.log(
        0.5 * degrees
    )
    spread = 0.5 * (copies * logs - n_features / beta)
    log_weights = dirichlet_logs(mass, prior.concentration) + spread[:, None]
    sizes = mass.sum(axis=0)
    class_prior = None if model.class_prior is None else sizes / sizes.sum()
    after = mass + np.broadcast_to(np.reshape(prior.concentration, (-1, 1)), mass.shape)
    return replace(
        model,
        weights=after / after.sum(axis=0),
        means=means,
        covariances=covariances,
        class_prior=class_prior,
        log_weights=log_weights,
        counts=mass,
    )


# ---------------------------------------------------------------- missing values


def impute(X: Array, model: Model, posterior: Array) -> Array:
    """Return rows whose missing values are replaced by their expectations, given Pr(j | x), shape (N, L)."""
    filled, n_features, joint = X.real.copy(), X.shape[1], log_joints(X, model)
    shares = np.exp(joint - logsumexp(joint, axis=2, keepdims=True)) * posterior[..., None]
    for index, seen in patterns(X):
        gaps = np.setdiff1d(np.arange(n_features), [] if np.iscomplexobj(X) else seen)
        means = np.zeros((len(index), len(gaps)))
        for j, k in np.ndindex(posterior.shape[1], len(model.means)):
            centre = model.means[k] if model.shifts is None else model.means[k] + model.shifts[j, k]
            P = model.covariances[k]
            if np.iscomplexobj(X):
                clean, _ = of_clean(X[np.ix_(index, seen)], centre, P, seen)
                means += shares[index, j, k, None] * clean
                continue
            slopes = P[np.ix_(gaps, seen)] @ np.linalg.inv(P[np.ix_(seen, seen)])
            predicted = centre[gaps] + (X[np.ix_(index, seen)] - centre[seen]) @ slopes.T
            means += shares[index, j, k, None] * predicted
        filled[np.ix_(index, gaps)] = means
    return filled


# ---------------------------------------------------------------- discriminative training


def tuning_objective(
    rows: Rows, model: Model, class_prior: Array, rule: Rule, trade_off: float, temperature: float = 3.0
) -> float:
    """Return Σ [log s(c | x) + λ log p(x, c)] plus the log-priors times 1/T + λ, all per row."""
    joint = class_log_likelihood(rows.X, model) + np.log(class_prior)
    own, total = np.arange(len(joint)), rows.weights.sum()
    certain = joint[own, rows.classes] / temperature - logsumexp(joint / temperature, axis=1)
    value = rows.weights @ (certain + trade_off * joint[own, rows.classes])
    log_prior = objective(rows, model, rule) - log_likelihood(rows, model).sum()
    return float((value + (1.0 / temperature + trade_off) * log_prior) / total)


def tuning_gradient(rows: Rows, model: Model, class_prior: Array, rule: Rule, trade_off: float) -> Array:
    """Return derivatives of the objective by central differences: of means, weights and sizes of kernels."""
    step, units = 1e-4, np.sqrt(np.einsum("kdd->kd", model.covariances))
    numbers = {"means": model.means, "powers": model.weights, "sizes": model.means[:, 0]}

    def value(means: Any = 0.0, powers: Any = 0.0, sizes: Any = 0.0) -> float:
        weights = model.weights * np.exp(powers)
        moved = replace(
            model,
            means=model.means + units * means,
            weights=weights / weights.sum(axis=0),
            covariances=model.covariances * np.exp(np.reshape(sizes, (-1, 1, 1))),
        )
        return tuning_objective(rows, moved, class_prior, rule, trade_off)

    slopes = []
    for name, own in numbers.items():
        directions = np.eye(own.size).reshape(-1, *own.shape)
        if name == "sizes" and rule.structure == "tied":
            directions = np.ones((1, own.size))
        slopes += [
            (value(**{name: step * d}) - value(**{name: -step * d})) / (2.0 * step) for d in directions
        ]
    return np.array(slopes)
