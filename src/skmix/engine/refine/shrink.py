"""Covariances shrunk towards the one that kernels have in common, by an amount that the rows choose.

A kernel with few rows for its features has a covariance of little worth, while that of all kernels together
is well known. So kernels are fitted twice. The first fit is of what they have in common: full covariances
are fitted as one. Its mean covariance T, less what chance adds to correlations, then becomes that of an
inverse-Wishart prior worth ν rows. The second fit, from the same start as the first, climbs the likelihood
times that prior, which stays as it is.

The ν of the highest marginal likelihood is found from the kernels' scatters under the first fit. With S the
scatter of a kernel's m rows about their mean, and the kernel's covariance P ~ inverse-Wishart of mean T,

    p(S | ν) ∝ |νT|^(a/2) |νT + S|^(−(a + m − 1)/2) Γ_M((a + m − 1)/2) / Γ_M(a/2),    a = ν + M + 1,

and the mean of P given S is (S + νT) / (ν + m − 1). Scatters that differ by no more than chance ask for a ν
without end. Diagonal covariances have one such factor, of M = 1, for each feature. So have factors and
variances, for want of more: their scatters are only known along the diagonal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from ..compute.arrays import to_numpy
from ..compute.threads import workers
from ..covariances import Structure, structure_of
from ..covariances.full import unpack
from ..em import expect, fit
from ..model import FloatArray, Options, Parameters, Status
from ..rules.variational import default_rows
from ..sources import RowSource, Setting
from ..sources.summary import Frame

# The range of ν, in rows: the most leaves nothing of a kernel's own.
_FEWEST, _MOST = 1e-2, 1e6
# Passes of the first fit: what is wanted of it settles early.
_PASSES = 50
# A kernel needs rows of its own to say anything about covariances.
_FEWEST_ROWS = 2.0
# A feature with less than this share of the common variance is as good as constant among a kernel's rows.
_CONSTANT = 1e-3


def shrunk(
    source: RowSource,
    starts: Parameters,
    options: Options,
    amount: float | None,
    *,
    frame: Frame,
) -> tuple[Parameters, Options]:
    """Return where a fit with shrinkage begins, and options with the prior that shrinks.

    Parameters
    ----------
    source, starts, options, frame
        As for `fit`; the options have no prior on covariances yet.
    amount : float or None
        Share of T in the covariance of a kernel that has as many rows as kernels have on average, from 0 to
        1; None finds it.
    """
    structure = structure_of(options.covariance_type).of(starts.covariances)
    if structure.pools_as is None or amount == 0.0:
        return starts, options
    given = starts
    n_kernels, n_features = starts.means.shape[1:]
    common = structure_of(structure.pools_as)
    if common.name != structure.name:
        full = structure.to_full(starts.covariances, n_kernels, n_features)
        starts = replace(starts, covariances=common.from_full(full))
    first = replace(options, covariance_type=common.name, max_iter=min(options.max_iter, _PASSES))
    result = fit(source, starts, first, frame=frame)
    if np.all(result.status == Status.FAILED):
        return given, options
    best = result.parameters.take(slice(result.best, result.best + 1))
    mass, scatters = _scatters(source, best, common, first, frame)
    target = steadied(_mean_covariance(best, common, mass), float(mass.sum()) - n_kernels)
    if amount is None:
        inside = target / (frame.scale[:, None] * frame.scale)
        own = mass > _FEWEST_ROWS
        spreads = relative_spreads(scatters[own], inside, mass[own])
        rows = likeliest_rows(mass[own], spreads, n_features if scatters.ndim == 3 else 1)
    else:
        rows = worth_in_rows(amount, float(mass.mean()))
    if options.inference == "variational":
        # Its own prior is the least that a posterior needs.
        rows = max(rows, default_rows(structure, n_features))
    return given, replace(options, covariance_prior=rows, covariance_prior_scale=target)


def worth_in_rows(amount: float, rows_per_kernel: float) -> float:
    """Return the ν that gives T that share beside so many rows of a kernel's own."""
    return rows_per_kernel * (amount / (1.0 - amount) if amount < 1.0 else _MOST)


def share_of(rows: float, rows_per_kernel: float) -> float:
    """Return the share that T has with that ν: what `worth_in_rows` undoes."""
    return rows / (rows + rows_per_kernel)


def steadied(covariance: FloatArray, n_rows: float) -> FloatArray:
    """Return a covariance (M, M) of so many rows with correlations as much smaller as chance made them large.

    The share of the diagonal is that of Schäfer & Strimmer (2005), with the variance of a correlation that
    Gaussian rows have.
    """
    deviations = np.sqrt(np.diagonal(covariance))
    correlations = covariance / (deviations[:, None] * deviations)
    away = correlations[~np.eye(len(covariance), dtype=bool)]
    chance, found = np.sum((1.0 - away**2) ** 2) / max(n_rows - 1.0, 1.0), np.sum(away**2)
    share = 1.0 if chance >= found else chance / found
    return np.where(np.eye(len(covariance), dtype=bool), covariance, (1.0 - share) * covariance)


def relative_spreads(scatters: FloatArray, target: FloatArray, mass: FloatArray) -> FloatArray:
    """Return the eigenvalues (K, M) of scatters relative to a covariance T (M, M).

    Scatters are matrices (K, M, M), or their diagonals (K, M), which are compared with that of T. Features
    that hardly vary among a kernel's rows are left out of its scatter and T: the eigenvalues that
    this takes away are NaN. Pixels that are white in all of a class's images would
    otherwise want a prior of no rows, whatever the other features say.

    Parameters
    ----------
    scatters : ndarray of shape (K, M, M) or (K, M)
        Of kernels about their means.
    target : ndarray of shape (M, M)
        T.
    mass : ndarray of shape (K,)
        Rows of each kernel.
    """
    variances = scatters if scatters.ndim == 2 else np.diagonal(scatters, axis1=-2, axis2=-1)
    ratios = variances / np.diagonal(target)
    varies = ratios > _CONSTANT * np.maximum(mass, 1.0)[:, None]
    if scatters.ndim == 2:
        return np.where(varies, ratios, np.nan)
    spreads = np.full(varies.shape, np.nan)
    for scatter, own, found in zip(scatters, varies, spreads, strict=True):
        if own.any():
            pair = scatter[np.ix_(own, own)], target[np.ix_(own, own)]
            found[: own.sum()] = np.maximum(eigh(*pair, eigvals_only=True), 0.0)
    return spreads


def log_marginal_likelihood(rows: float, mass: FloatArray, spreads: FloatArray, order: int) -> float:
    """Return log p(S | ν) of all kernels, up to a constant.

    Parameters
    ----------
    rows : float
        ν.
    mass : ndarray of shape (K,)
        Rows of each kernel.
    spreads : ndarray of shape (K, M)
        Eigenvalues of the scatters relative to T, or ratios of variances; NaN where features are left out.
    order : int
        Features of one inverse-Wishart distribution: M, or 1 when each feature has its own.
    """
    used = np.isfinite(spreads).sum(axis=1)
    # The covariance of some features has the distribution of all, as if there were no others.
    orders = used if order > 1 else np.ones_like(used)
    freedom = (rows + orders + 1.0)[:, None]
    after = freedom + mass[:, None] - 1.0
    places = np.arange(order)
    within = places < orders[:, None]
    halves = np.where(within, 0.5 * places, 0.0)
    gammas = gammaln(0.5 * after - halves) - gammaln(0.5 * freedom - halves)
    gammas = np.where(within, gammas, 0.0).sum(axis=1)
    if order == 1:
        gammas *= used
    powers = 0.5 * freedom[:, 0] * used * np.log(rows)
    powers -= 0.5 * after[:, 0] * np.nansum(np.log(rows + spreads), axis=1)
    return float(np.sum(gammas + powers))


def likeliest_rows(mass: FloatArray, spreads: FloatArray, order: int) -> float:
    """Return the ν of the highest marginal likelihood, see `log_marginal_likelihood`."""
    if not np.isfinite(spreads).any():
        return _MOST
    grid = np.linspace(np.log(_FEWEST), np.log(_MOST), 60)
    values = [log_marginal_likelihood(np.exp(v), mass, spreads, order) for v in grid]
    best = int(np.argmax(values))
    if best == len(grid) - 1:
        return _MOST
    found = minimize_scalar(
        lambda v: -log_marginal_likelihood(np.exp(v), mass, spreads, order),
        bounds=(grid[max(best - 1, 0)], grid[best + 1]),
        method="bounded",
    )
    return float(np.exp(found.x))


def _scatters(
    source: RowSource, parameters: Parameters, structure: Structure, options: Options, frame: Frame
) -> tuple[FloatArray, FloatArray]:
    """Return the mass (K,) of one model's kernels, and their scatters (K, M, M) or (K, M) in the frame."""
    inside = frame.enter(parameters, structure).map(source.place)
    n_features = parameters.means.shape[-1]
    factor = structure.factor(inside.covariances, n_features)
    with workers(options.n_jobs) as pool:
        statistics, _ = expect(source, inside, factor, Setting(frame, structure, pool, options.precision))
    mass = to_numpy(statistics.mass)[0].sum(axis=-1)
    safe = np.maximum(mass, np.finfo(np.float64).tiny)[:, None]
    offset = to_numpy(statistics.first)[0] / safe
    second = to_numpy(statistics.second)[0]
    if structure.n_second(n_features) == n_features:
        scatters = second[:, :n_features] - mass[:, None] * offset**2
        return mass, np.maximum(scatters, 0.0)
    return mass, unpack(second, n_features) - (mass[:, None] * offset)[..., None] * offset[:, None, :]


def _mean_covariance(parameters: Parameters, structure: Structure, mass: FloatArray) -> FloatArray:
    """Return the covariance (M, M) of kernels on average over their masses (K,)."""
    n_kernels, n_features = parameters.means.shape[1:]
    target = np.zeros((n_features, n_features))
    for k in range(n_kernels):
        # One dense matrix at a time: of many features, all of them may be more than there is memory for.
        one = structure.take_kernels(parameters.covariances, np.array([[k]]))
        target += mass[k] / mass.sum() * structure.to_full(one, 1, n_features)[0, 0]
    return target
