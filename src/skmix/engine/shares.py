"""How well rows determine the weights of one class: information, covariance and intervals of shares.

Given the kernels f_k, n rows of the density p = Σ_k π_k f_k have the Fisher information

    J_kl = n E[f_k f_l / p²]

about the weights π. It depends on the parameters alone, so rows drawn from the model are enough. J π = n 1;
for kernels far apart J is diagonal, n / π_k, and its inverse V on the simplex is the covariance of
multinomial shares. Kernels that overlap have less information.

Kernels are estimated too, from all classes. With their parameters θ (means and covariances) and
C_j = n_j E[∂_π log p ∂_θ log p], the inverse of the information about everything has the block

    V_j + V_j C_j S⁻¹ C_jᵀ V_j,    S = Σ_j n_j E[∂_θ log p (∂_θ log p)ᵀ] − C_jᵀ V_j C_j,

for the weights of class j: the last term is what the errors of the kernels do to them. It matters for classes
that have a good part of all rows, and kernels that overlap. `kernel_errors` draws errors of the kernels with
covariance S⁻¹, so that the term costs no more than a few columns for each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, special, stats

from .model import BoolArray, FloatArray, IntArray, Parameters
from .rules.likelihood import all_weights
from .structures import structure_of

# Precision of a share that rows say nothing about: it lies between 0 and 1.
_LEAST_PRECISION = 4.0
# Rows that a kernel's mean and covariance have beside those of the classes, lest they be unknown altogether.
_KERNEL_ROWS = 1.0
# Most parameters of kernels whose errors are drawn, classes whose rows stand for those of all, and draws.
_MOST_PARAMETERS, _MOST_CLASSES, _DRAWS = 1500, 16, 48
# A kernel does not matter for rows that came from it with a lower probability in all classes.
_NEGLIGIBLE = 1e-3
# Weights up to which a class does not have a kernel.
_NONE = 1e-9
# Least variance of a row's log-likelihood, in nats: rows of the background alone have none.
_LEAST_VARIANCE = 0.01
# Fewest groups among which one can be unusual.
FEWEST_GROUPS = 5
# Largest correlation of rows of the same group: at one, every group would have a single part.
_MOST_ALIKE = 0.9
# Coarsest step of a grid of log-inflations: with few groups, their standard error √(2/R) is larger.
_COARSEST = 0.8
# Standard errors of a mean share that its grid reaches to: beyond, a normal density has a weight of 2e-9.
_REACH = 6.0
# Step of that grid, in standard errors: sums over one that is as fine are integrals but for rounding.
_FINE = 0.6
# Most points of that grid, which bounds the work where shares of groups are very different.
_MOST_POINTS = 96
# Posterior weight of a point below which p-values leave it out.
_UNLIKELY = 1e-9
# Deviations of log-inflations among parts that are averaged over: from nearly equal to unrelated parts.
_SPREADS = 0.2 * 2.0 ** np.arange(5)
# Largest count whose tail is summed term by term: of larger ones, a Beta distribution is close.
_MOST_SUMMED = 24
# Largest deviation of values among groups, as a multiple of their range, which suggests a smaller one.
_WIDEST = 30.0
# Keeps divisors and logarithms finite.
_TINY = float(np.finfo(np.float64).tiny)
# Rows for each parameter, and in all.
_ROWS_EACH, _FEWEST_ROWS = 8, 1 << 12


def density_ratios(log_densities: FloatArray) -> FloatArray:
    """Return f_k(x_n) / q(x_n), shape (n, K), for the log-densities (n, K) of draws with the density q.

    There are as many draws from each kernel. Ratios are at most K, up to factors that make their means
    exactly one.
    """
    highest = log_densities.max(axis=1, keepdims=True)
    ratios = np.exp(log_densities - highest)
    ratios /= ratios.mean(axis=1, keepdims=True)
    ratios /= ratios.mean(axis=0)
    return ratios


def away_from_zero(weights: FloatArray, size: float) -> FloatArray:
    """Return weights (K,) of a class of `size` rows as if there were one more, spread over all kernels."""
    return (size * weights + 1.0 / len(weights)) / (size + 1.0)


def information(ratios: FloatArray, weights: FloatArray, size: float) -> FloatArray:
    """Return the Fisher information J (K, K) of `size` rows about positive weights (K,).

    The expectation is over the rows of `ratios` (n, K), see `density_ratios`, by importance sampling.
    """
    return (ratios / (ratios @ weights)[:, None]).T @ ratios * (size / len(ratios))


def covariance(
    ratios: FloatArray,
    weights: FloatArray,
    size: float,
    concentration: FloatArray | None = None,
    *errors: KernelErrors | None,
) -> FloatArray:
    """Return the covariance (K, K) of the weights (K,) of a class of `size` rows; it adds up to zero.

    With the concentration of a Dirichlet prior, weights are posterior means and this is the covariance of the
    posterior. The prior may be on the shares of all but the last one, a background, in the others. Weights
    must be positive. Without `errors`, kernels are taken as known.
    """
    precision = information(ratios, weights, size)
    own = np.full(len(weights), _LEAST_PRECISION)
    if concentration is not None:
        n_inside, rows = len(concentration), concentration.sum()
        inside = weights[:n_inside].sum()
        own[:n_inside] = rows / (weights[:n_inside] * inside)
        if n_inside < len(weights):
            precision[:n_inside, :n_inside] -= rows / inside**2
    precision[np.diag_indices_from(precision)] += own
    inverse = linalg.inv(precision, check_finite=False)
    sums = inverse.sum(axis=1)
    found: FloatArray = 0.5 * (inverse + inverse.T) - np.outer(sums, sums) / sums.sum()
    moved = [found @ each.forces(weights, size) for each in errors if each is not None]
    return sum((each @ each.T for each in moved), found)


def log_likelihood_moments(
    log_densities: FloatArray,
    ratios: FloatArray,
    weights: FloatArray,
    size: float,
    concentration: FloatArray | None = None,
) -> tuple[float, float, float]:
    """Return mean, variance and skewness of the log-likelihood of a row of a class with fitted weights (K,).

    Log-densities l_k are (n, K), of draws of which `ratios` (n, K) are f_k / q. To first order, the mean of
    log p over `size` rows, less its expectation under the weights that were fitted to these rows, is a mean
    of log p less its regression on the scores f_k / p of the weights: fitted weights take up what comes of
    other shares of the kernels. Second-order terms cancel, so that this holds for few rows too.
    """
    # Weights of zero stay, and draws that only such kernels explain do not matter.
    some, near = np.flatnonzero(weights > _NONE), np.flatnonzero(ratios @ weights > _NONE)
    share = len(near) / len(ratios)
    log_densities, ratios, weights = log_densities[near][:, some], ratios[near][:, some], weights[some]
    if concentration is not None:
        concentration = concentration[some[some < len(concentration)]]
    highest = log_densities.max(axis=1)
    logs = np.log(np.exp(log_densities - highest[:, None]) @ weights) + highest
    mass = ratios @ weights
    drawn = mass / mass.sum()
    mean = float(drawn @ logs)
    left = logs - mean
    scores = ratios / mass[:, None]
    slopes = scores.T @ (left * drawn)
    taken = size * covariance(ratios, weights, size * share, concentration) @ slopes
    # With a prior, weights are drawn to others, and take up less.
    variance = max(float(drawn @ left**2 - slopes @ taken), _LEAST_VARIANCE)
    left = left - scores @ taken
    left -= drawn @ left
    return mean, variance, float(drawn @ left**3) / variance**1.5


# ---------------------------------------------------------------- errors of the kernels


@dataclass(frozen=True)
class KernelErrors:
    """Errors of the kernels in B directions whose squares add up to their covariance."""

    ratios: FloatArray  # (n, K) or, with a background, (n, K + 1): of some rows, see `density_ratios`
    near: list[IntArray]  # of each kernel: rows that may have come from it
    slopes: list[FloatArray]  # of each kernel: change (rows near it, B) of log f_k

    def forces(self, weights: FloatArray, size: float) -> FloatArray:
        """Return what the errors add to the gradient of the log-likelihood for the weights (K,), (K, B)."""
        shares = self.ratios * weights
        shares /= shares.sum(axis=1, keepdims=True)
        change = np.zeros((len(shares), self.slopes[0].shape[1]))
        for k, (rows, slopes) in enumerate(zip(self.near, self.slopes, strict=True)):
            change[rows] += shares[rows, k, None] * slopes
        return self.ratios.T @ change * (size / len(shares))


def kernel_errors(
    X: FloatArray,
    log_densities: FloatArray,
    parameters: Parameters,
    covariance_type: str,
    sizes: FloatArray,
    concentration: FloatArray | None = None,
    shift: float | None = None,
) -> KernelErrors | None:
    """Return the errors of kernels that were fitted to classes of `sizes` (L,), with weights (K, L).

    With a `shift`, they are those of the means alone, which have a prior of that many rows.

    X (n, M) are rows with log-densities (n, K), or (n, K + 1) with a background, as many from each kernel,
    and from the background, in turn. Where kernels have too many parameters, covariances count by their
    diagonals or by their scale alone; None where means alone are too many.
    """
    (n_kernels, n_features), n_parts = parameters.means.shape, log_densities.shape[1]
    for kind in (covariance_type, "diag", "spherical"):
        n_each = n_features + (0 if shift is not None else _n_terms(kind, n_features))
        if n_kernels * n_each <= _MOST_PARAMETERS:
            break
    else:
        return None
    n_parameters = n_kernels * n_each
    # The first rows of each.
    drawn = len(X) // n_parts
    some = np.arange(min(drawn, -(-max(_FEWEST_ROWS, _ROWS_EACH * n_parameters) // n_kernels)))
    some = (np.arange(n_parts)[:, None] * drawn + some).ravel()
    ratios = density_ratios(log_densities[some])
    chosen, sizes = _representatives(sizes)
    pairs = zip(chosen, sizes, strict=True)
    weights = all_weights(parameters.batch())[0]
    weights = np.stack([away_from_zero(weights[:, j], size) for j, size in pairs], axis=1)
    inverse = 1.0 / (ratios @ weights)
    near = [
        np.flatnonzero(ratios[:, k] * (inverse * weights[k]).max(axis=1) > _NEGLIGIBLE)
        for k in range(n_kernels)
    ]
    scores = [each[:, :n_each] for each in _scores(X[some], near, parameters, covariance_type, kind)]
    precision = np.zeros((n_kernels, n_each, n_kernels, n_each))
    for k in range(n_kernels):
        for other in range(k + 1):
            rows, first, second = np.intersect1d(near[k], near[other], True, return_indices=True)
            both = ratios[rows, k] * ratios[rows, other] / len(some)
            both *= inverse[rows] @ (weights[k] * weights[other] * sizes)
            block = (scores[k][first] * both[:, None]).T @ scores[other][second]
            precision[k, :, other], precision[other, :, k] = block, block.T
    precision = precision.reshape(n_parameters, n_parameters)
    for j, size in enumerate(sizes):
        own = covariance(ratios, weights[:, j], size, concentration)
        joint = ratios * inverse[:, j, None] * (size / len(some))
        cross = np.concatenate(
            [
                ratios[near[k]].T @ (scores[k] * (joint[near[k], k, None] * weights[k, j]))
                for k in range(n_kernels)
            ],
            axis=1,
        )
        precision -= cross.T @ own @ cross
    has_common = covariance_type == "tied" and shift is None
    expand = _shared(n_kernels, n_features, n_each) if has_common else None
    if expand is not None:
        precision = expand.T @ precision @ expand
    n_parameters = len(precision)
    precision[np.diag_indices_from(precision)] += _KERNEL_ROWS if shift is None else shift
    directions = np.eye(n_parameters)
    if n_parameters > _DRAWS:
        # Orthonormal, so that their squares add up to those of all directions, but for chance.
        normal = np.random.RandomState(0).standard_normal((n_parameters, _DRAWS))
        directions = linalg.qr(normal, mode="economic")[0] * np.sqrt(n_parameters / _DRAWS)
    root = linalg.cholesky(precision, lower=True, check_finite=False)
    directions = linalg.solve_triangular(root.T, directions, check_finite=False)
    if expand is not None:
        directions = expand @ directions
    directions = directions.reshape(n_kernels, n_each, -1)
    return KernelErrors(ratios, near, [scores[k] @ directions[k] for k in range(n_kernels)])


def _n_terms(kind: str, n_features: int) -> int:
    """Return the number of parameters of a covariance whose errors count."""
    full = n_features * (n_features + 1) // 2
    return {"full": full, "tied": full, "spherical": 1}.get(kind, n_features)


def _scores(
    X: FloatArray, near: list[IntArray], parameters: Parameters, covariance_type: str, kind: str
) -> list[FloatArray]:
    """Return the derivatives (rows near k, S) of log f_k by mean and covariance, in whitened coordinates."""
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    lines, columns = np.tril_indices(n_features)
    scores = []
    for k in range(n_kernels):
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(one, 1, n_features)[0, 0])
        z = linalg.solve_triangular(root, (X[near[k]] - parameters.means[k]).T, lower=True).T
        scale = np.ones((len(z), 1))
        if parameters.tail.weighted:
            # That of (precision) in docs/mathematics; degrees of freedom themselves are taken as known.
            degrees, distances = parameters.tail.to_dict()["degrees"][k], (z**2).sum(axis=1, keepdims=True)
            scale = (degrees + n_features) / (degrees + distances)
        squares = scale * z**2 - 1.0
        if kind == "spherical":
            terms = squares.sum(axis=1, keepdims=True) / np.sqrt(2.0 * n_features)
        elif kind in ("full", "tied"):
            terms = scale * z[:, lines] * z[:, columns]
            terms[:, lines == columns] = squares / np.sqrt(2.0)
        else:
            terms = squares / np.sqrt(2.0)
        scores.append(np.concatenate([scale * z, terms], axis=1))
    return scores


def _shared(n_kernels: int, n_features: int, n_each: int) -> FloatArray:
    """Return the map (K·S, P) to parameters of all kernels from means of each and a common covariance."""
    n_terms = n_each - n_features
    expand = np.zeros((n_kernels, n_each, n_kernels * n_features + n_terms))
    for k in range(n_kernels):
        expand[k, :n_features, k * n_features : (k + 1) * n_features] = np.eye(n_features)
        expand[k, n_features:, n_kernels * n_features :] = np.eye(n_terms)
    return expand.reshape(n_kernels * n_each, -1)


def _representatives(sizes: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return some classes and sizes that stand for classes of sizes (L,): all, or as many for equal rows."""
    if len(sizes) <= _MOST_CLASSES:
        return np.arange(len(sizes)), sizes
    total = np.cumsum(sizes)
    points = (np.arange(_MOST_CLASSES) + 0.5) * total[-1] / _MOST_CLASSES
    found, times = np.unique(np.searchsorted(total, points), return_counts=True)
    return found, times * total[-1] / _MOST_CLASSES


# ---------------------------------------------------------------- intervals


def intervals(
    shares: FloatArray, spread: FloatArray, size: FloatArray, level: float, prior: float | FloatArray = 0.5
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits of shares, of any shape.

    A share s of n rows with variance v is as well known as by n rows of which each is taken for one of the
    others with probability e: u = e + s (1 − 2e) of them are counted, and
    n v = s (1 − s) + [(1 − 2e)⁻² − 1] / 4. The limits are those of Jeffreys' interval for u (the posterior
    Beta(n u + 1/2, n (1 − u) + 1/2)), taken back to s and cut at 0 and 1. Where kernels do not overlap, e is
    zero, and they are Jeffreys' for counts; where they do, those of a normal distribution of variance v.

    `spread` is n v less the s (1 − s) of counts, `size` is n; they and `prior`, rows of each kind that are
    added, broadcast with the shares.
    """
    scale = 1.0 / np.sqrt(1.0 + 4.0 * np.maximum(spread, 0.0))
    error = 0.5 * (1.0 - scale)
    counted = error + scale * shares
    after = np.maximum(size * counted + prior, 1e-300), np.maximum(size * (1.0 - counted) + prior, 1e-300)
    tail = 0.5 * (1.0 - level)
    lower, upper = ((special.betaincinv(*after, q) - error) / scale for q in (tail, 1.0 - tail))
    return np.clip(lower, 0.0, shares), np.clip(upper, shares, 1.0)


# ---------------------------------------------------------------- unusual groups


@dataclass(frozen=True)
class Values:
    """Values of L groups: multiples of one mean, with errors, and with a normal deviation among groups."""

    found: FloatArray  # (L,)
    errors: FloatArray  # (L,): standard deviations
    slopes: FloatArray  # (L,): how often each has the mean
    skews: FloatArray  # (L,): of the errors


@dataclass(frozen=True)
class Verdicts:
    """How unusual L groups are, by G shares and one value."""

    p_parts: FloatArray  # (L, G): p-values of the shares
    usual_shares: FloatArray  # (L, G): those of the other groups
    p_shares: FloatArray  # (L,): p-values of all shares together
    z: FloatArray  # (L,): values as standard normal variates, NaN without values
    p_values: FloatArray  # (L,): theirs
    p_adjusted: FloatArray  # (L,): for shares and values of all groups together


def judge(counts: FloatArray, values: Values | None, of_fit: BoolArray, level: float) -> Verdicts:
    """Return how unusual groups are among those of the fit (L,), by rows (L, G) of their parts and by values.

    P-values are for all that is looked at together: the parts and the value of a group by Bonferroni, groups
    by Holm; those that are not of the fit apart. Groups that are unusual at this level no longer count for
    what is usual. The remaining groups are then judged again, since an unusual group can hide another one.
    """
    n_groups, n_parts = counts.shape
    # One part has all rows.
    n_shares = n_parts if n_parts > 1 else 0
    usual, pending, adjusted = of_fit, np.ones(n_groups, dtype=bool), np.ones(n_groups)
    p_parts, shares, z = np.ones_like(counts), np.ones_like(counts), np.full(n_groups, np.nan)
    while True:
        found = usual_shares(counts, usual)
        p_parts[pending], shares[pending] = (each[pending] for each in found)
        if values is not None:
            z[pending] = usual_values(values, usual)[pending]
        least, p_values = p_parts.min(axis=1), 2.0 * special.ndtr(-np.abs(z))
        together = (n_shares + (values is not None)) * np.fmin(least, p_values)
        for some in (pending & of_fit, ~of_fit):
            adjusted[some] = _holm(together[some])
        unusual = pending & of_fit & (adjusted <= level)
        if not unusual.any() or np.sum(usual & ~unusual) < FEWEST_GROUPS:
            break
        usual, pending = usual & ~unusual, pending & ~unusual
    p_shares = np.minimum(1.0, max(n_shares, 1) * least)
    return Verdicts(p_parts, shares, p_shares, z, p_values, adjusted)


def _holm(p_values: FloatArray) -> FloatArray:
    """Return p-values (L,) that hold for all of them together: Holm's, by steps down from the least."""
    order = np.argsort(p_values, kind="stable")
    found = np.empty_like(p_values)
    found[order] = np.maximum.accumulate(np.arange(len(order), 0, -1) * p_values[order])
    return np.minimum(found, 1.0)


def usual_shares(counts: FloatArray, usual: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return p-values (L, G) of the rows (L, G) of each part in each group, and the parts' usual shares.

    A group is compared with the usual ones other than itself. Their rows of a part are beta-binomial, with a
    mean share m and a correlation ρ of rows of the same group: the variance of a share of n rows is
    m (1 − m) / n times the inflation 1 + (n − 1) ρ. Neither is known, and the p-value is the mean, over their
    posterior, of twice the probability of such a count or of one that is further from m. The prior is uniform
    in arcsin √m and in log (1 + n ρ), for the median n: with it, p-values of many rows are those of Student's
    t. The log-inflations of the parts are taken to be normal, with an unknown mean and deviation: a part that
    all other groups lack says nothing about how much its share would vary, but the other parts do.
    """
    (n_groups, n_parts), sizes, reference = counts.shape, counts.sum(axis=1), np.flatnonzero(usual)
    if n_parts == 1:
        return np.ones_like(counts), np.ones_like(counts)
    # The posterior of each group: that without it or, for those that are not usual, the last.
    own = np.full(n_groups, len(reference))
    own[reference] = np.arange(len(reference))
    typical = float(np.median(sizes[reference]))
    highest = np.log1p(_MOST_ALIKE * typical)
    n_steps = int(np.ceil(highest / min(_COARSEST, np.sqrt(2.0 / len(reference)))))
    inflation = (np.arange(n_steps) + 0.5) * (highest / n_steps)
    rho = np.expm1(inflation) / typical
    grids = [_Grid.of(each, sizes[reference], rho) for each in counts[reference].T]
    expected = _pooled(np.stack([grid.evidence for grid in grids]), inflation)
    p_values, shares = np.ones_like(counts), np.ones_like(counts)
    for g, grid in enumerate(grids):
        posterior = grid.given * np.repeat(expected[g], grid.times, axis=0)
        shares[:, g] = (grid.means @ posterior)[own]
        total = np.repeat(1.0 / rho - 1.0, grid.times)
        for j in range(n_groups):
            weights = posterior[:, own[j]]
            some = np.flatnonzero(weights > _UNLIKELY)
            a, b = grid.means[some] * total[some], (1.0 - grid.means[some]) * total[some]
            count, rest = counts[j, g], sizes[j] - counts[j, g]
            if count > shares[j, g] * sizes[j]:
                count, rest, a, b = rest, count, b, a
            p_values[j, g] = 2.0 * weights[some] @ lower_tail(count, rest, a, b)
    return np.minimum(p_values, 1.0), shares


@dataclass(frozen=True)
class _Grid:
    """Points of the mean share and ρ of a part, and posteriors of R groups, without each of them and of all.

    There are some points with each ρ, one after the other.
    """

    means: FloatArray  # (P,)
    times: IntArray  # (H,): points with each ρ
    given: FloatArray  # (P, R + 1): posterior, given ρ
    evidence: FloatArray  # (H, R + 1): log-likelihood of ρ

    @classmethod
    def of(cls, counts: FloatArray, sizes: FloatArray, rho: FloatArray) -> _Grid:
        """Return the grid for the rows (R,) of a part in groups of these sizes (R,)."""
        angles = np.arcsin(np.sqrt(np.clip(counts / sizes, 0.0, 1.0)))
        known = 4.0 * sizes / (1.0 + np.maximum(sizes - 1.0, 0.0) * rho[:, None])
        left = known.sum(axis=1, keepdims=True) - known
        without = ((known @ angles)[:, None] - known * angles) / left
        error = 1.0 / np.sqrt(left.min(axis=1))
        low = np.maximum(without.min(axis=1) - _REACH * error, 0.0)
        high = np.minimum(without.max(axis=1) + _REACH * error, 0.5 * np.pi)
        times = np.clip(np.ceil((high - low) / (_FINE * error)), 8, _MOST_POINTS).astype(int)
        step = (high - low) / times
        first = np.cumsum(times) - times
        place = np.arange(times.sum()) - np.repeat(first, times)
        means = np.sin(np.repeat(low, times) + (place + 0.5) * np.repeat(step, times)) ** 2
        total = 1.0 / rho - 1.0
        a, b = (np.repeat(total, times) * each for each in (means, 1.0 - means))
        logs = special.gammaln(counts + a[:, None]) + special.gammaln(sizes - counts + b[:, None])
        logs -= (special.gammaln(a) + special.gammaln(b))[:, None]
        of_sizes = special.gammaln(sizes + total[:, None]) - special.gammaln(total)[:, None]
        logs -= np.repeat(of_sizes, times, axis=0)
        logs = logs.sum(axis=1, keepdims=True) - np.pad(logs, ((0, 0), (0, 1)))
        peak = np.maximum.reduceat(logs, first, axis=0)
        given = np.exp(logs - np.repeat(peak, times, axis=0))
        sums = np.add.reduceat(given, first, axis=0)
        return cls(means, times, given / np.repeat(sums, times, axis=0), peak + np.log(sums * step[:, None]))


def _pooled(evidence: FloatArray, inflation: FloatArray) -> FloatArray:
    """Return posteriors (G, H, R) of the log-inflation of parts, given its log-likelihoods (G, H, R)."""
    n_parts = len(evidence)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    spread = np.repeat(_SPREADS, len(inflation))[:, None]
    among = np.exp(-0.5 * ((inflation - np.tile(inflation, len(_SPREADS))[:, None]) / spread) ** 2)
    among /= among.sum(axis=1, keepdims=True)
    each = np.log(np.maximum(among @ likelihood, _TINY))
    # What the other parts say: shares add up to one, so that one of them follows from the rest.
    others = (each.sum(axis=0) - each) * ((n_parts - 2.0) / (n_parts - 1.0)) - np.log(spread)
    weights = np.exp(others - others.max(axis=1, keepdims=True))
    found = likelihood * (among.T @ weights)
    found /= found.sum(axis=1, keepdims=True)
    return found


def lower_tail(count: float, rest: float, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the probabilities of at most `count` of count + rest rows, for beta-binomial parameters (P,).

    Few are summed, and a part of one counts in proportion. The share of many has nearly a Beta distribution
    of the same variance; half a row makes up for counts being whole numbers.
    """
    size, total = count + rest, a + b
    if count <= _MOST_SUMMED:
        k = np.arange(np.floor(count) + 1.0)[:, None]
        none = special.gammaln(size + b) - special.gammaln(b) + special.gammaln(total)
        none -= special.gammaln(size + total)
        ratios = np.maximum(size - k, 0.0) / (k + 1.0) * (a + k) / np.maximum(size - k - 1.0 + b, _TINY)
        terms = np.exp(none) * np.vstack([np.ones_like(a), np.cumprod(ratios, axis=0)])
        terms[-1] *= count % 1.0
        return np.minimum(terms.sum(axis=0), 1.0)
    known = np.maximum(size * (total + 1.0) / (size + total) - 1.0, 1e-3) / total
    return special.betainc(known * a, known * b, min((count + 0.5) / size, 1.0))


def usual_values(values: Values, usual: BoolArray) -> FloatArray:
    """Return the values (L,) of groups as standard normal variates.

    The common mean and the deviation among groups are those of the usual groups other than the group itself,
    with a prior that is uniform in the mean and in the logarithm of the variance.
    """
    reference, errors = np.flatnonzero(usual), values.errors
    own = np.full(len(errors), len(reference))
    own[reference] = np.arange(len(reference))
    x, slope, squares = values.found[reference], values.slopes[reference], errors[reference] ** 2
    typical = float(np.median(squares))
    highest = np.log1p((_WIDEST * max(np.ptp(x), np.sqrt(typical))) ** 2 / typical)
    n_steps = int(np.ceil(highest / min(_COARSEST, np.sqrt(2.0 / len(reference)))))
    among = typical * np.expm1((np.arange(n_steps)[:, None] + 0.5) * (highest / n_steps))

    def without(terms: FloatArray) -> FloatArray:
        """Return sums (H, R + 1) of terms (H, R), without each of them and of all."""
        return terms.sum(axis=1, keepdims=True) - np.pad(terms, ((0, 0), (0, 1)))

    known = 1.0 / (squares + among)
    total, moment = without(known * slope**2), without(known * slope * x)
    mean = moment / total
    evidence = without(np.log(known)) - np.log(total) - without(known * x**2) + moment * mean
    evidence = 0.5 * (evidence - evidence.max(axis=0))
    evidence -= np.log(np.exp(evidence).sum(axis=0))
    deviation = np.sqrt(errors**2 + among + values.slopes**2 / total[:, own])
    z = (values.found - values.slopes * mean[:, own]) / deviation
    skews = values.skews * (errors / deviation) ** 3
    low, high = (
        special.logsumexp(evidence[:, own] + stats.pearson3(sign * skews).logsf(sign * z), axis=0)
        for sign in (-1.0, 1.0)
    )
    variates = special.ndtri_exp(np.clip(np.minimum(low, high), -1e4, np.log(0.5)))
    return np.where(low < high, variates, -variates)
