"""Empirical-Bayes shrinkage of covariances towards a common one.

The covariance of a kernel with few rows is uncertain, while the average over kernels is well determined. So
kernels are fitted twice. The first fit uses a simpler structure (tied instead of full). Its mean covariance
T, with correlations reduced by the share due to chance, becomes the covariance of an inverse-Wishart prior of
ν rows. The second fit, from the same start, uses that prior.

ν maximises the marginal likelihood of the kernels' scatters under the first fit. With S the scatter of a
kernel's m rows about their mean, and the kernel's covariance P ~ inverse-Wishart of mean T,

    p(S | ν) ∝ |νT|^(a/2) |νT + S|^(−(a + m − 1)/2) Γ_M((a + m − 1)/2) / Γ_M(a/2),    a = ν + M + 1,

and the mean of P given S is (S + νT) / (ν + m − 1). If scatters differ only by chance, ν is unbounded.
Diagonal covariances have one such factor, of M = 1, for each feature.

Where rows are not few, or classes have kernels to themselves, `prior_of_start` finds a prior without a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, softmax

from ..loop import Passes, run
from ..numbers import TINY, to_numpy
from ..problem import Problem
from ..records import FARTHEST, FloatArray, IntArray, Parameters, Status
from ..rules.likelihood import Likelihood
from ..structures import structure_of
from ..structures.factors import rescaled, unpack

# With fewer rows of a kernel for each feature, shrinkage gives higher held-out likelihoods in all cases of
# benchmarks/few_rows.py; with more it depends on the data.
ROWS_PER_FEATURE = 3.0
# Smallest ν, in rows.
_FEWEST_PRIOR_ROWS = 1e-2
# Largest ν, in rows: all kernels then have the common covariance.
_MOST_PRIOR_ROWS = 1e6
# Largest number of passes of the first fit: covariances converge early.
_PASSES = 50
# Kernels with fewer rows are left out of the marginal likelihood.
_ROWS_FOR_SCATTER = 2.0
# A feature with less than this share of the common variance counts as constant among a kernel's rows.
_CONSTANT = 1e-3
# Smallest variance of T in any direction, relative to each feature's.
_LEAST_VARIANCE = 1e-6
# Strengths that are tried by leaving rows out.
_N_STRENGTHS = 16
# Largest of these strengths, as a multiple of all rows; the smallest is one row.
_MOST_OF_ROWS = 100.0
# Fewest rows that are left out in turn.
_FEWEST_LEFT_OUT = 1 << 9
# Numbers over all kernels that limit how many rows are left out.
_NUMBERS = 1 << 24
# A share this small is rounding.
_NOTHING = 1e-9
# A kernel is one of a class if it has more than this share of an average kernel's weight.
_OWN = 0.1


def with_shrinkage(
    problem: Problem, starts: Parameters, unit: float = 1.0
) -> tuple[float, FloatArray] | None:
    """Return ν and T (M, M) of a shrinkage prior on full covariances; None if all starts fail.

    The problem is one of EM and has no prior on covariances yet. Starts and T are in its frame; `unit` is the
    weight of a row.
    """
    n_kernels, n_features = starts.means.shape[1:]
    common = structure_of("tied")
    starts = replace(starts, covariances=common.from_full(starts.covariances))
    max_iter = min(problem.options.max_iter, _PASSES)
    simpler = replace(problem, rule=replace(problem.rule, structure=common)).with_options(max_iter=max_iter)
    result = run(simpler, starts)
    if np.all(result.status == Status.FAILED):
        return None
    best = result.parameters.take(slice(result.best, result.best + 1))
    mass, scatters = (sums / unit for sums in _scatters(simpler, best))
    mean = np.zeros((n_features, n_features))
    for k in range(n_kernels):
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        one = common.take_kernels(best.covariances, np.array([[k]]))
        mean += mass[k] / mass.sum() * common.to_full(one, 1, n_features)[0, 0]
    # Each kernel's mean takes one degree of freedom.
    target, _ = reduce_correlations(mean, float(mass.sum()) - n_kernels)
    enough = mass > _ROWS_FOR_SCATTER
    eigenvalues = relative_eigenvalues(scatters[enough], target, mass[enough])
    rows = likeliest_rows(mass[enough], eigenvalues, n_features if scatters.ndim == 3 else 1)
    return rows * unit, target


def prior_of_start(
    problem: Problem,
    X: FloatArray,
    classes: IntArray,
    row_weights: FloatArray | None,
    start: Parameters,
) -> tuple[float, FloatArray]:
    """Return ν and T of a mild prior, from labelled rows X (n, M) and one start, without a fit.

    The rows are in the data's coordinates, the start and T in the frame of the problem.

    T, (M, M) or (M,), is the mean covariance within kernels, each row in the nearest kernel of its class
    (n,). Where each class has kernels to itself, ν is that of the highest marginal likelihood, or, where rows
    are not Gaussian enough for that to be good, the one with which rows predict each other's classes best:
    the larger ν, the more the classifier is like linear discriminant analysis. Elsewhere kernels overlap,
    and differ more than their nearest rows do: ν is one row, enough to keep a kernel from collapsing.
    """
    n_kernels, n_classes = start.weights.shape
    structure, frame = problem.structure, problem.frame
    assert isinstance(problem.rule, Likelihood)
    floor = np.maximum(problem.rule.regulariser.floor, _LEAST_VARIANCE * frame.variance)
    # Distances count in the standardised frame.
    standard = frame.standardised(structure)
    unit = standard.scale / frame.scale
    x = np.clip(X / standard.scale - standard.shift, -FARTHEST, FARTHEST)
    inside, floor = start.means / unit, floor / unit**2
    masses, nearest = np.ones(len(X)) if row_weights is None else row_weights, np.full(len(X), -1)
    for c in range(n_classes):
        rows, own = np.flatnonzero(classes == c), np.flatnonzero(start.weights[:, c] > _OWN / n_kernels)
        distances = np.sum(inside[own] ** 2, axis=1) - 2.0 * (x.take(rows, axis=0) @ inside[own].T)
        nearest[rows] = own[np.argmin(distances, axis=1)]
    if nearest.min() < 0:
        among = np.flatnonzero(nearest >= 0)
        x, masses, nearest = x[among], masses[among], nearest[among]
    used = np.bincount(nearest) > 0
    kernels, part = np.flatnonzero(used), (np.cumsum(used) - 1)[nearest]
    each = (np.flatnonzero(part == k) for k in range(len(kernels)))
    parts = [KernelRows(x.take(own, axis=0), masses[own]) for own in each]
    total, by_chance = float(masses.sum()), 1.0
    by_feature = not structure.triangular
    pooled = reduce(np.add, (own.scatter(by_feature=by_feature) for own in parts)) / total
    if by_feature:
        target = np.maximum(pooled, floor)
    else:
        raised, _ = structure_of("tied").raised(pooled[None], floor)
        target, by_chance = reduce_correlations(raised[0], total - len(parts))
    strength = 1.0
    if are_separate(start.weights) and not (structure.shared or structure.isotropic):
        most = _MOST_OF_ROWS * max(total, 1.0)
        strength = min(_likeliest_of_parts(parts, target, by_feature=not structure.triangular), most)
        tried = np.append(strength, np.geomspace(1.0, most, _N_STRENGTHS))
        n_some = max(_FEWEST_LEFT_OUT, _NUMBERS // (len(parts) * x.shape[1]))
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), n_some)).astype(np.int64))
        errors = errors_left_out(
            x[some], masses[some], part[some], parts, start.weights[kernels].argmax(axis=1), tried, target,
            1.0 - by_chance,
        )  # fmt: skip
        counts = masses[some]
        best = int(np.argmin(counts @ errors))
        gain = errors[:, 0] - errors[:, best]
        # Keep the likeliest strength unless another gains more than one standard error, plus one row, so that
        # rounding never decides.
        if counts @ gain > np.sqrt(1.0 + counts @ (gain - np.average(gain, weights=counts)) ** 2):
            strength = float(tried[best])
    return strength, rescaled(target, unit)


class KernelRows:
    """The rows x (n, M) nearest to one kernel, with masses (n,)."""

    def __init__(self, x: FloatArray, masses: FloatArray) -> None:
        self.mass = float(masses.sum())
        self.mean = masses @ x / self.mass
        self._rows = x, masses

    def scatter(self, *, by_feature: bool) -> FloatArray:
        """Return the scatter (M, M) about the mean, or its diagonal (M,).

        It is not kept: with many features, those of all kernels may not fit in memory.
        """
        x, masses = self._rows
        about = x - self.mean
        return masses @ np.square(about) if by_feature else (about.T * masses) @ about


def _likeliest_of_parts(parts: Sequence[KernelRows], target: FloatArray, *, by_feature: bool) -> float:
    """Return the likeliest ν for the scatters of the rows of each kernel."""
    own = [part for part in parts if part.mass > _ROWS_FOR_SCATTER]
    if not own:
        return _MOST_PRIOR_ROWS
    mass = np.array([part.mass for part in own])
    eigenvalues = [
        relative_eigenvalues(part.scatter(by_feature=by_feature)[None], target, each)
        for part, each in zip(own, mass[:, None], strict=True)
    ]
    return likeliest_rows(mass, np.concatenate(eigenvalues), 1 if by_feature else len(target))


def errors_left_out(
    x: FloatArray,
    masses: FloatArray,
    part: IntArray,
    parts: Sequence[KernelRows],
    classes: IntArray,
    strengths: FloatArray,
    target: FloatArray,
    kept: float,
) -> FloatArray:
    """Return squared errors (n, G) of the class probabilities of rows, each left out, for strengths ν (G,).

    Each of the rows x (n, M), with masses (n,), is in a part (n,), and each part is a kernel of a class (K,),
    with a covariance of (S + νT) / (ν + m). A row is predicted without its share in the mean, mass and
    scatter of its part and in T, of whose correlations a share was `kept`. A mass above one stands for
    several rows; one is left out. Leaving a row out changes matrices by a multiple of u uᵀ, for its deviation
    u from the mean of its part, so one eigendecomposition for each part serves all rows and strengths. With
    T (M,), covariances are diagonal. Rows whose class has no other rows have no error.
    """
    by_feature = target.ndim == 1
    total = sum(own.mass for own in parts)
    own_mass = np.array([own.mass for own in parts])[part]
    deviations = x - np.stack([own.mean for own in parts])[part]
    masses = np.minimum(masses, 1.0)
    left = own_mass - masses
    # Without its only row a part is empty.
    alone = left <= _NOTHING * own_mass
    left = np.where(alone, 1.0, left)
    # A row contributes this multiple of u uᵀ to the scatter of its part.
    lost = np.where(alone, 0.0, masses * own_mass / left)[:, None]
    joint = np.full((len(x), len(strengths), int(classes.max()) + 1), -np.inf)
    for k, own in enumerate(parts):
        mine = part == k
        less = lost * (mine[:, None] + strengths * (1.0 if by_feature else kept) / total)
        mass = np.where(mine, left, own.mass)[:, None]
        if by_feature:
            eigenvalues, roots = own.scatter(by_feature=True) / target, np.sqrt(target)
            a, u = (x - own.mean) / roots, deviations / roots
        else:
            eigenvalues, axes = eigh(own.scatter(by_feature=False), target)
            a, u = (x - own.mean) @ axes, deviations @ axes
        a[mine] *= (own_mass / left)[mine, None]
        shrunk = np.maximum(eigenvalues, 0.0) + strengths[:, None]
        distances, log_determinants = (_by_feature if by_feature else _along)(a, u, shrunk, less)
        logs = np.log(mass) - 0.5 * (log_determinants + (mass + strengths) * distances)
        logs += 0.5 * x.shape[1] * np.log(mass + strengths)
        logs[mine & alone] = -np.inf
        joint[..., classes[k]] = np.logaddexp(joint[..., classes[k]], logs)
    own_class = classes[part]
    known = np.flatnonzero(np.isfinite(joint[np.arange(len(x)), 0, own_class]))
    errors = softmax(joint[known], axis=-1)
    errors[np.arange(len(known)), :, own_class[known]] -= 1.0
    found = np.zeros(joint.shape[:2])
    found[known] = (errors**2).sum(axis=-1)
    return found


def _along(
    a: FloatArray, u: FloatArray, shrunk: FloatArray, less: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return a A⁻¹ aᵀ and log |A| (n, G) for rows a and u (n, M) and A = diag(shrunk) − less · uᵀu.

    The diagonals are (G, M), the multiples (n, G).
    """
    inverse = 1.0 / shrunk.T
    remaining = np.maximum(1.0 - less * (u**2 @ inverse), _NOTHING)
    distances = a**2 @ inverse + less * ((a * u) @ inverse) ** 2 / remaining
    return distances, np.log(shrunk).sum(axis=1) + np.log(remaining)


def _by_feature(
    a: FloatArray, u: FloatArray, shrunk: FloatArray, less: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the same as `_along` for independent features: A keeps only its diagonal."""
    distances, log_determinants = np.empty(less.shape), np.empty(less.shape)
    for g, own in enumerate(shrunk):
        variances = np.maximum(own - less[:, g, None] * u**2, _NOTHING * own)
        distances[:, g] = (a**2 / variances).sum(axis=1)
        log_determinants[:, g] = np.log(variances).sum(axis=1)
    return distances, log_determinants


def are_separate(weights: FloatArray) -> bool:
    """Return whether each of several classes has kernels to itself, given weights (K, L)."""
    return weights.shape[1] > 1 and bool(np.all(np.count_nonzero(weights, axis=1) == 1))


def reduce_correlations(covariance: FloatArray, n_rows: float) -> tuple[FloatArray, float]:
    """Remove the share of the correlations of a covariance (M, M) that is due to chance in n rows.

    Also return that share: the intensity of Schäfer & Strimmer (2005), with the variance
    (1 − ρ²)² / (n − 1) of a correlation of Gaussian rows.
    """
    deviations, diagonal = np.sqrt(np.diagonal(covariance)), np.eye(len(covariance), dtype=bool)
    squared = np.square(covariance / (deviations[:, None] * deviations))[~diagonal]
    chance, found = float(np.sum((1.0 - squared) ** 2)) / max(n_rows - 1.0, 1.0), float(np.sum(squared))
    share = 1.0 if chance >= found else chance / found
    return np.where(diagonal, covariance, (1.0 - share) * covariance), share


def relative_eigenvalues(scatters: FloatArray, target: FloatArray, mass: FloatArray) -> FloatArray:
    """Return the eigenvalues (K, M) of scatters (K, M, M) relative to a covariance T, (M, M) or (M,).

    For diagonals (K, M), the ratios to that of T are returned. Features that hardly vary among a kernel's
    `mass` (K,) rows are left out of its scatter and of T, and replaced by NaN eigenvalues: pixels that are
    white in all images of a class would otherwise drive ν to zero.
    """
    variances = scatters if scatters.ndim == 2 else np.diagonal(scatters, axis1=-2, axis2=-1)
    ratios = variances / (target if target.ndim == 1 else np.diagonal(target))
    varies = ratios > _CONSTANT * np.maximum(mass, 1.0)[:, None]
    if scatters.ndim == 2:
        return np.where(varies, ratios, np.nan)
    eigenvalues = np.full(varies.shape, np.nan)
    for scatter, own, found in zip(scatters, varies, eigenvalues, strict=True):
        if own.any():
            pair = scatter[np.ix_(own, own)], target[np.ix_(own, own)]
            found[: own.sum()] = np.maximum(eigh(*pair, eigvals_only=True), 0.0)
    return eigenvalues


def log_marginal_likelihood(rows: float, mass: FloatArray, eigenvalues: FloatArray, dimension: int) -> float:
    """Return log p(S | ν) of all kernels, up to a constant, for ν = `rows`.

    `mass` (K,) are the rows of each kernel, `eigenvalues` (K, M) those of `relative_eigenvalues`, and
    `dimension` is that of each inverse-Wishart distribution: M, or 1 if each feature has its own.
    """
    used = np.isfinite(eigenvalues).sum(axis=1)
    # The marginal distribution of some features has the same form.
    dimensions = used if dimension > 1 else np.ones_like(used)
    freedom = (rows + dimensions + 1.0)[:, None]
    after = freedom + mass[:, None] - 1.0
    places = np.arange(dimension)
    within = places < dimensions[:, None]
    halves = np.where(within, 0.5 * places, 0.0)
    gammas = gammaln(0.5 * after - halves) - gammaln(0.5 * freedom - halves)
    gammas = np.where(within, gammas, 0.0).sum(axis=1)
    if dimension == 1:
        gammas *= used
    powers = 0.5 * freedom[:, 0] * used * np.log(rows)
    powers -= 0.5 * after[:, 0] * np.nansum(np.log(rows + eigenvalues), axis=1)
    return float(np.sum(gammas + powers))


def likeliest_rows(mass: FloatArray, eigenvalues: FloatArray, dimension: int) -> float:
    """Return the ν that maximises `log_marginal_likelihood`."""
    if not np.isfinite(eigenvalues).any():
        return _MOST_PRIOR_ROWS
    grid = np.linspace(np.log(_FEWEST_PRIOR_ROWS), np.log(_MOST_PRIOR_ROWS), 60)
    values = [log_marginal_likelihood(np.exp(v), mass, eigenvalues, dimension) for v in grid]
    best = int(np.argmax(values))
    if best == len(grid) - 1:
        return _MOST_PRIOR_ROWS
    found = minimize_scalar(
        lambda v: -log_marginal_likelihood(np.exp(v), mass, eigenvalues, dimension),
        bounds=(grid[max(best - 1, 0)], grid[best + 1]),
        method="bounded",
    )
    return float(np.exp(found.x))


def _scatters(problem: Problem, parameters: Parameters) -> tuple[FloatArray, FloatArray]:
    """Return the mass (K,) of one model's kernels, and their scatters (K, M, M) or (K, M)."""
    structure, (n_kernels, n_features) = problem.structure, parameters.means.shape[1:]
    if structure.triangular:
        # Of a tied covariance only the sum of the kernels' second moments is computed: treat it as theirs.
        full = structure.to_full(parameters.covariances, n_kernels, n_features)
        parameters, structure = replace(parameters, covariances=full), structure_of("full")
        problem = replace(problem, rule=replace(problem.rule, structure=structure))
    with Passes.over(problem) as passes:
        placed = parameters.map(problem.source.to_device)
        statistics, _ = passes.expect(placed, structure.factor(placed.covariances, n_features))
    statistics = statistics.map(to_numpy)
    every = statistics.mass.sum(axis=-1)
    mass, weight = every[0], parameters.tail.mass_in_moments(every, statistics.of_tail)[0]
    offset = statistics.first[0] / np.maximum(weight, TINY)[:, None]
    second = statistics.second[0]
    if structure.triangular:
        return mass, unpack(second, n_features) - (weight[:, None] * offset)[..., None] * offset[:, None, :]
    return mass, np.maximum(second - weight[:, None] * offset**2, 0.0)
