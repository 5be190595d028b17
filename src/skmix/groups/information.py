"""How well rows determine the weights of one group: information, covariance and intervals of shares.

Given the kernels f_k, n rows of the density p = Σ_k π_k f_k have the Fisher information

    J_kl = n E[f_k f_l / p²]

about the weights π. It depends on the parameters alone, so rows drawn from the model are enough. J π = n 1;
for kernels far apart J is diagonal, n / π_k, and its inverse V on the simplex is the covariance of
multinomial shares. Kernels that overlap have less information.

Kernels are estimated too, from all groups. With their parameters θ (means and covariances) and
C_j = n_j E[∂_π log p ∂_θ log p], the inverse of the information about everything has the block

    V_j + V_j C_j S⁻¹ C_jᵀ V_j,    S = Σ_j n_j E[∂_θ log p (∂_θ log p)ᵀ] − C_jᵀ V_j C_j,

for the weights of group j: the last term is what the errors of the kernels do to them. It matters for groups
that have a good part of all rows, and kernels that overlap. `kernel_errors` draws errors of the kernels with
covariance S⁻¹, so that the term costs no more than a few columns for each group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, special

from ..engine.model import FloatArray, IntArray, Parameters
from ..engine.rules.likelihood import all_weights
from ..engine.structures import structure_of

# Precision of a share that rows do not determine: all that is known is that it lies between 0 and 1.
_LEAST_PRECISION = 4.0
# Rows added to those of a kernel, so that the precision of its mean and covariance is never zero.
_KERNEL_ROWS = 1.0
# Most parameters of kernels whose errors are drawn: their precision is a matrix of this size.
_MOST_PARAMETERS = 1500
# Most groups that stand for all of them in the errors of the kernels.
_MOST_GROUPS = 16
# Directions that are drawn where kernels have more parameters.
_DRAWS = 48
# A kernel is ignored for rows that have a lower probability under it in all groups.
_NEGLIGIBLE = 1e-3
# Weights up to this count as zero.
_NONE = 1e-9
# Least variance of a row's log-likelihood, in nats². That of rows of the background alone is zero.
_LEAST_VARIANCE = 0.01
# Draws for each parameter of the kernels.
_ROWS_EACH = 8
# Fewest draws in all.
_FEWEST_ROWS = 1 << 12


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
    """Return weights (K,) of a group of `size` rows as if there were one more, spread over all kernels."""
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
    """Return the covariance (K, K) of the weights (K,) of a group of `size` rows; it adds up to zero.

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
    """Return mean, variance and skewness of the log-likelihood of a row of a group with fitted weights (K,).

    Log-densities l_k are (n, K), of draws of which `ratios` (n, K) are f_k / q. To first order, the mean of
    log p over `size` rows, less its expectation under the weights that were fitted to these rows, is a mean
    of log p less its regression on the scores f_k / p of the weights: fitting the weights absorbs differences
    in composition. Second-order terms cancel, so that this holds for few rows too.
    """
    # Weights of zero stay zero. Leave out draws that only such kernels explain.
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
    # A prior shrinks the weights, so that they absorb less of the variance.
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
    """Return the errors of kernels that were fitted to groups of `sizes` (L,), with weights (K, L).

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
    # The first draws from each kernel.
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
    scores = [each[:, :n_each] for each in _kernel_scores(X[some], near, parameters, covariance_type, kind)]
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
        # Orthonormal directions: the expected sum of their squares is that of all directions.
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


def _kernel_scores(
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
    """Return groups that stand for groups of sizes (L,): all of them, or 16 chosen by cumulative size."""
    if len(sizes) <= _MOST_GROUPS:
        return np.arange(len(sizes)), sizes
    total = np.cumsum(sizes)
    points = (np.arange(_MOST_GROUPS) + 0.5) * total[-1] / _MOST_GROUPS
    found, times = np.unique(np.searchsorted(total, points), return_counts=True)
    return found, times * total[-1] / _MOST_GROUPS


# ---------------------------------------------------------------- intervals


def intervals(
    shares: FloatArray, spread: FloatArray, size: FloatArray, level: float, prior: float | FloatArray
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
