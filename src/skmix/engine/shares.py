"""How well rows determine the weights of one class: information, covariance and intervals of shares.

Given the kernels f_k, n rows of the density p = Σ_k π_k f_k have the Fisher information

    J_kl = n E[f_k f_l / p²]

about the weights π. It depends on the parameters alone, so rows drawn from the model are enough. J π = n 1;
for kernels far apart J is diagonal, n / π_k, and its inverse on the simplex is the covariance of multinomial
shares. Kernels that overlap have less information.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, special

from .model import FloatArray

# Precision of a share that rows say nothing about: it lies between 0 and 1.
_LEAST_PRECISION = 4.0


def density_ratios(log_densities: FloatArray) -> FloatArray:
    """Return f_k(x_n) / q(x_n), shape (n, K), for rows with as many draws from each kernel; q is their density.

    Ratios are at most K, up to a factor that makes their means exactly one.
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
    ratios: FloatArray, weights: FloatArray, size: float, concentration: FloatArray | None = None
) -> FloatArray:
    """Return the covariance (K, K) of the weights (K,) of a class of `size` rows; it adds up to zero.

    With the concentration (K,) of a Dirichlet prior, weights are posterior means and this is the covariance
    of the posterior. Weights must be positive.
    """
    precision = information(ratios, weights, size)
    own = _LEAST_PRECISION if concentration is None else concentration.sum() / weights
    precision[np.diag_indices_from(precision)] += own
    inverse = linalg.inv(precision, check_finite=False)
    sums = inverse.sum(axis=1)
    found: FloatArray = 0.5 * (inverse + inverse.T) - np.outer(sums, sums) / sums.sum()
    return found


def intervals(
    shares: FloatArray, spread: FloatArray, size: FloatArray, level: float, prior: float = 0.5
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits of shares, of any shape.

    A share s of n rows with variance v is as well known as by n rows of which each is taken for one of the
    others with probability e: u = e + s (1 − 2e) of them are counted, and
    n v = s (1 − s) + [(1 − 2e)⁻² − 1] / 4. The limits are those of Jeffreys' interval for u (the posterior
    Beta(n u + 1/2, n (1 − u) + 1/2)), taken back to s and cut at 0 and 1. Where kernels do not overlap, e is
    zero, and they are Jeffreys' for counts; where they do, those of a normal distribution of variance v.

    `spread` is n v less the s (1 − s) of counts, `size` is n; they broadcast with the shares. `prior` rows of
    each kind are added.
    """
    scale = 1.0 / np.sqrt(1.0 + 4.0 * np.maximum(spread, 0.0))
    error = 0.5 * (1.0 - scale)
    counted = error + scale * shares
    after = np.maximum(size * counted + prior, 1e-300), np.maximum(size * (1.0 - counted) + prior, 1e-300)
    tail = 0.5 * (1.0 - level)
    lower, upper = ((special.betaincinv(*after, q) - error) / scale for q in (tail, 1.0 - tail))
    return np.clip(lower, 0.0, shares), np.clip(upper, shares, 1.0)
