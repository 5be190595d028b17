"""How well cells determine the weights of a sample: Fisher information, covariance and intervals.

Given the kernels f_k, n cells of the density p = Σ_k π_k f_k have the Fisher information

    J_kl = n E[f_k f_l / p²]

about the weights π. It depends on the parameters alone, so rows drawn from the model are enough. J π = n 1;
for kernels far apart J is diagonal, n / π_k, and its inverse V on the simplex is the covariance of
multinomial proportions. Overlap of kernels reduces the information.

The kernels are estimates too, from all samples. With their parameters θ (means and covariances) and
C_j = n_j E[∂_π log p ∂_θ log p], the inverse of the information about everything has the block

    V_j + V_j C_j S⁻¹ C_jᵀ V_j,    S = Σ_j n_j E[∂_θ log p (∂_θ log p)ᵀ] − C_jᵀ V_j C_j,

for the weights of sample j: the last term is the effect of the kernels' errors. It matters for samples that
have a large share of all cells, and for kernels that overlap. `kernel_errors` draws errors of the kernels
with covariance S⁻¹, so that the term costs a few columns per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, special
from scipy.sparse import csr_array

from ..engine.records import BoolArray, FloatArray, IntArray
from ..model import Kernels

# Precision of a weight about which the cells say nothing: it lies between 0 and 1.
_LEAST_PRECISION = 4.0
# Cells added to each kernel, so that the precision of its mean and covariance is never zero.
_KERNEL_CELLS = 1.0
# Most kernel parameters whose errors are drawn: their precision is a matrix of this size.
_MOST_PARAMETERS = 1500
# Most samples that represent all samples in the errors of the kernels: each costs a matrix product.
_MOST_SAMPLES = 16
# Directions in which errors are drawn, if the kernels have more parameters than this.
_DIRECTIONS = 48
# A draw is ignored for a kernel whose posterior probability is below this in all samples.
_UNLIKELY = 1e-3
# Weights up to this count as zero.
_ZERO = 1e-9
# Least variance of a cell's log-likelihood, in nats², if the weights absorb nearly all of it.
_LEAST_VARIANCE = 0.01
# Draws for each kernel parameter, and fewest draws in all.
_DRAWS_EACH, _FEWEST_DRAWS = 8, 1 << 12


def density_ratios(log_densities: FloatArray) -> FloatArray:
    """Return f_k(x_n) / q(x_n), shape (n, K), for the log-densities (n, K) of draws of density q.

    There are equally many draws from each kernel. Each column is scaled to a mean of exactly one; without
    this, ratios are at most K.
    """
    highest = log_densities.max(axis=1, keepdims=True)
    ratios = np.exp(log_densities - highest)
    ratios /= ratios.mean(axis=1, keepdims=True)
    ratios /= ratios.mean(axis=0)
    return ratios


def away_from_zero(weights: FloatArray, size: float) -> FloatArray:
    """Return weights (K,) of a sample of `size` cells after adding one cell, spread over all kernels."""
    return (size * weights + 1.0 / len(weights)) / (size + 1.0)


def information(ratios: FloatArray, mass: FloatArray, size: float) -> FloatArray:
    """Return the Fisher information J (K, K) of `size` cells about weights.

    The expectation is taken over draws by importance sampling: `ratios` (n, K) are those of `density_ratios`,
    and `mass` (n,) is p / q, infinite for draws to leave out.
    """
    scaled = ratios / np.sqrt(mass)[:, None]
    # The product of an array and its own transpose takes half the time.
    return scaled.T @ scaled * (size / len(ratios))


def covariance(
    ratios: FloatArray,
    weights: FloatArray,
    size: float,
    concentration: FloatArray | None = None,
    *errors: KernelErrors | None,
) -> FloatArray:
    """Return the covariance (K, K) of the positive weights (K,) of a sample of `size` cells; it sums to zero.

    With the concentration of a Dirichlet prior, weights are posterior means and this is the covariance of the
    posterior. Without `errors`, the kernels are taken as known.
    """
    alone = _inverse(information(ratios, ratios @ weights, size), weights, concentration)
    moved = [alone @ error.forces(weights, size) for error in errors if error is not None]
    return sum((columns @ columns.T for columns in moved), alone)


def _inverse(precision: FloatArray, weights: FloatArray, concentration: FloatArray | None) -> FloatArray:
    """Return the covariance (K, K) for the information (K, K) about weights, to which a prior is added."""
    added = _LEAST_PRECISION if concentration is None else concentration.sum() / weights
    precision[np.diag_indices_from(precision)] += added
    inverse = linalg.inv(precision, check_finite=False)
    sums = inverse.sum(axis=1)
    return np.asarray(0.5 * (inverse + inverse.T) - np.outer(sums, sums) / sums.sum())


def log_likelihood_moments(
    logs: FloatArray,
    ratios: FloatArray,
    weights: FloatArray,
    size: float,
    concentration: FloatArray | None = None,
) -> tuple[float, float, float]:
    """Return mean, variance and skewness of a cell's log-likelihood in a sample with fitted weights (K,).

    `logs` (n,), log p, and `ratios` (n, K), f_k / q, are those of draws. To first order, the mean of log p
    over `size` cells, less its expectation under the weights fitted to these cells, is a mean of log p less
    its regression on the scores f_k / p of the weights: fitting the weights absorbs differences in
    composition. Second-order terms cancel, so this holds for few cells too.
    """
    # Weights of zero stay zero. Leave out draws that only kernels of zero weight explain.
    positive = np.flatnonzero(weights > _ZERO)
    mass = ratios @ np.where(weights > _ZERO, weights, 0.0)
    near = mass > _ZERO
    drawn, mass = np.where(near, mass / mass[near].sum(), 0.0), np.where(near, mass, np.inf)
    logs = np.where(near, logs, 0.0)
    mean = float(drawn @ logs)
    left = np.where(near, logs - mean, 0.0)
    slopes = ((left * drawn / mass) @ ratios)[positive]
    if concentration is not None:
        concentration = concentration[positive]
    precision = information(ratios, mass, size)[np.ix_(positive, positive)]
    absorbed = np.zeros(len(weights))
    absorbed[positive] = size * _inverse(precision, weights[positive], concentration) @ slopes
    # A prior shrinks the weights, so that they absorb less of the variance.
    variance = max(float(drawn @ left**2 - slopes @ absorbed[positive]), _LEAST_VARIANCE)
    left = left - ratios @ absorbed / mass
    left -= drawn @ left
    return mean, variance, float(drawn @ left**3) / variance**1.5


# ---------------------------------------------------------------- errors of the kernels


@dataclass(frozen=True)
class KernelErrors:
    """Errors of the kernels in B directions whose outer products add up to their covariance."""

    ratios: FloatArray  # (n, K): of some draws, see `density_ratios`
    near: list[IntArray]  # for each kernel: draws that may have come from it
    slopes: list[FloatArray]  # for each kernel: change (draws near it, B) of log f_k

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Draws and the kernels near them, sorted by draw; where those of each draw begin; and slopes."""
        draws, numbers = np.concatenate(self.near), [len(rows) for rows in self.near]
        order = np.argsort(draws, kind="stable")
        first = np.append(0, np.cumsum(np.bincount(draws, minlength=len(self.ratios))))
        kernels = np.repeat(np.arange(len(numbers)), numbers)[order]
        return draws[order], kernels, first, np.concatenate(self.slopes)[order]

    def forces(self, weights: FloatArray, size: float) -> FloatArray:
        """Return what the errors add to the gradient of the log-likelihood for the weights (K,), (K, B)."""
        (draws, kernels, first, slopes), mass = self._pairs, self.ratios @ weights
        shares = self.ratios[draws, kernels] * weights[kernels] / mass[draws]
        change = csr_array((shares, np.arange(len(draws)), first), shape=(len(mass), len(draws))) @ slopes
        return self.ratios.T @ change * (size / len(mass))


def kernel_errors(
    X: FloatArray,
    log_densities: FloatArray,
    kernels: Kernels,
    weights: FloatArray,
    sizes: FloatArray,
    concentration: FloatArray | None = None,
    shift: float | None = None,
) -> KernelErrors | None:
    """Return the errors of kernels that were fitted to samples of `sizes` (L,), with weights (K, L).

    With a `shift`, only the means have errors, and their prior counts as that many cells.

    X (n, M) are draws with log-densities (n, K): equally many from each kernel in turn. If the kernels have
    too many parameters, only the errors of the covariances' diagonals, or of their scales, are drawn; None if
    there are too many means.
    """
    n_kernels, n_features = kernels.means.shape
    n_terms = {"full": n_features * (n_features + 1) // 2, "diag": n_features, "spherical": 1}
    for form in (kernels.form, "diag", "spherical"):
        n_each = n_features + (n_terms[form] if shift is None else 0)
        if n_kernels * n_each <= _MOST_PARAMETERS:
            break
    else:
        return None
    # The first draws from each kernel.
    n_drawn = len(X) // n_kernels
    n_used = -(-max(_FEWEST_DRAWS, _DRAWS_EACH * n_kernels * n_each) // n_kernels)
    rows = (np.arange(n_kernels)[:, None] * n_drawn + np.arange(min(n_drawn, n_used))).ravel()
    ratios = density_ratios(log_densities[rows])
    chosen = np.arange(len(sizes))
    if len(sizes) > _MOST_SAMPLES:
        # Choose representative samples by cumulative size.
        total = np.cumsum(sizes)
        points = (np.arange(_MOST_SAMPLES) + 0.5) * total[-1] / _MOST_SAMPLES
        chosen, times = np.unique(np.searchsorted(total, points), return_counts=True)
        sizes = times * total[-1] / _MOST_SAMPLES
    pairs = zip(chosen, sizes, strict=True)
    weights = np.stack([away_from_zero(weights[:, j], size) for j, size in pairs], axis=1)
    inverse = 1.0 / (ratios @ weights)
    likely = np.empty((len(rows), n_kernels), dtype=bool)
    for k in range(n_kernels):
        likely[:, k] = ratios[:, k] * (inverse * weights[k]).max(axis=1) > _UNLIKELY
    near = [np.flatnonzero(column) for column in likely.T]
    scores = [score[:, :n_each] for score in kernel_scores(X[rows], near, kernels, form)]
    precision = _precision(ratios, weights, sizes, inverse, likely, near, scores, concentration)
    expand = _shared(n_kernels, n_features, n_each) if kernels.is_shared and shift is None else None
    if expand is not None:
        precision = expand.T @ precision @ expand
    precision[np.diag_indices_from(precision)] += _KERNEL_CELLS if shift is None else shift
    directions = _directions(precision)
    directions = directions if expand is None else expand @ directions
    directions = directions.reshape(n_kernels, n_each, -1)
    slopes = [score @ of_kernel for score, of_kernel in zip(scores, directions, strict=True)]
    return KernelErrors(ratios, near, slopes)


def _precision(
    ratios: FloatArray,
    weights: FloatArray,
    sizes: FloatArray,
    inverse: FloatArray,
    likely: BoolArray,
    near: list[IntArray],
    scores: list[FloatArray],
    concentration: FloatArray | None,
) -> FloatArray:
    """Return the information S (P, P) about all kernel parameters, if the weights are unknown too.

    There are n draws with `ratios`, and L samples with `weights` and `sizes`; `inverse` (n, L) is q / p. The
    draws `near` each kernel are those that are `likely` (n, K) from it, and have `scores` (draws near k, S).
    """
    n_kernels, n_each, n_draws, n_samples = len(scores), scores[0].shape[1], len(ratios), len(sizes)
    precision = np.zeros((n_kernels, n_each, n_kernels, n_each))
    cross = np.empty((n_samples, n_kernels, n_kernels, n_each))
    place = np.cumsum(likely, axis=0) - 1
    for k, (rows, score) in enumerate(zip(near, scores, strict=True)):
        with_k = likely[rows, : k + 1]
        for other in np.flatnonzero(with_k.any(axis=0)):
            first = np.flatnonzero(with_k[:, other])
            both = rows[first]
            share = ratios[both, k] * ratios[both, other] / n_draws
            share *= inverse[both] @ (weights[k] * weights[other] * sizes)
            block = (score[first] * share[:, None]).T @ scores[other][place[both, other]]
            precision[k, :, other], precision[other, :, k] = block, block.T
        joint = inverse[rows] * (ratios[rows, k, None] * weights[k] * sizes / n_draws)
        columns = (joint[:, :, None] * score[:, None]).reshape(len(rows), n_samples * n_each)
        products = ratios[rows].T @ columns
        cross[:, :, k] = products.reshape(-1, n_samples, n_each).swapaxes(0, 1)
    moved: FloatArray = cross.reshape(n_samples, -1, n_kernels * n_each)
    for j, size in enumerate(sizes):
        variances, axes = linalg.eigh(covariance(ratios, weights[:, j], size, concentration))
        moved[j] = (axes * np.sqrt(np.maximum(variances, 0.0))).T @ moved[j]
    moved = moved.reshape(-1, n_kernels * n_each)
    return precision.reshape(n_kernels * n_each, -1) - moved.T @ moved


def _directions(precision: FloatArray) -> FloatArray:
    """Return B directions (P, B) whose outer products add up to the inverse of the precision (P, P)."""
    n_parameters = len(precision)
    directions = np.eye(n_parameters)
    if n_parameters > _DIRECTIONS:
        # The expected sum of outer products of random orthonormal directions, so scaled, is the identity.
        normal = np.random.RandomState(0).standard_normal((n_parameters, _DIRECTIONS))
        directions = linalg.qr(normal, mode="economic")[0] * np.sqrt(n_parameters / _DIRECTIONS)
    root = linalg.cholesky(precision, lower=True, check_finite=False)
    return linalg.solve_triangular(root.T, directions, check_finite=False)


def kernel_scores(X: FloatArray, near: list[IntArray], kernels: Kernels, form: str) -> list[FloatArray]:
    """Return the derivatives (draws near k, S) of log f_k by mean and covariance, in whitened coordinates.

    The covariance is varied as one of that `form`; see `Kernels.form`.
    """
    n_features = kernels.means.shape[1]
    lines, columns = np.tril_indices(n_features)
    scores = []
    for k, (rows, covariance_of_kernel) in enumerate(zip(near, kernels.covariances, strict=True)):
        root = np.linalg.cholesky(covariance_of_kernel)
        z = linalg.solve_triangular(root, (X[rows] - kernels.means[k]).T, lower=True).T
        scale = np.ones((len(z), 1))
        if kernels.degrees is not None:
            # Equation (precision) of docs/mathematics; degrees of freedom are taken as known.
            degrees, distances = kernels.degrees[k], (z**2).sum(axis=1, keepdims=True)
            scale = (degrees + n_features) / (degrees + distances)
        squares = scale * z**2 - 1.0
        if form == "spherical":
            terms = squares.sum(axis=1, keepdims=True) / np.sqrt(2.0 * n_features)
        elif form == "full":
            terms = scale * z[:, lines] * z[:, columns]
            terms[:, lines == columns] = squares / np.sqrt(2.0)
        else:
            terms = squares / np.sqrt(2.0)
        scores.append(np.concatenate([scale * z, terms], axis=1))
    return scores


def _shared(n_kernels: int, n_features: int, n_each: int) -> FloatArray:
    """Return the matrix (K·S, P) from means of each kernel and a common covariance to S parameters each."""
    of_means, of_terms = np.split(np.eye(n_each), [n_features], axis=1)
    return np.hstack([np.kron(np.eye(n_kernels), of_means), np.tile(of_terms, (n_kernels, 1))])


# ---------------------------------------------------------------- intervals


def intervals(
    proportions: FloatArray, spread: FloatArray, size: FloatArray, level: float, prior: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits of proportions, of any shape.

    A proportion s with variance v is as well determined as by n cells, each misclassified with probability e:
    a share u = e + s (1 − 2e) of them is counted, and n v = s (1 − s) + [(1 − 2e)⁻² − 1] / 4. The limits are
    those of Jeffreys' interval for u (the posterior Beta(n u + 1/2, n (1 − u) + 1/2)), transformed back to s
    and clipped to [0, 1]. If kernels do not overlap, e is zero and these are Jeffreys' intervals of counts;
    if they overlap much, those of a normal distribution of variance v.

    `spread` is n v − s (1 − s), `size` is n, and `prior` is the number of cells to add to each of the two
    counts; all broadcast with the proportions.
    """
    scale = 1.0 / np.sqrt(1.0 + 4.0 * np.maximum(spread, 0.0))
    error = 0.5 * (1.0 - scale)
    counted = error + scale * proportions
    after = np.maximum(size * counted + prior, 1e-300), np.maximum(size * (1.0 - counted) + prior, 1e-300)
    tail = 0.5 * (1.0 - level)
    lower, upper = ((special.betaincinv(*after, q) - error) / scale for q in (tail, 1.0 - tail))
    return np.clip(lower, 0.0, proportions), np.clip(upper, proportions, 1.0)
