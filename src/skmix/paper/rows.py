"""Squared distances of the same rows from many kernels, and their moments, by few large products.

A squared distance (x - μ)ᵀ A (x - μ) is linear in the products x_i x_j, x_i and 1 of the features of a row,
and so are the moments of a kernel. One product of matrices gives them for all kernels of a run, in a fraction
of the time that differences from the mean of each kernel take. Products lose digits if a kernel is narrow or
far away; such kernels use differences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .digits import FloatArray

# Exponentials below exp(-690), 1e-300, become zero: subnormal numbers take NumPy thirty times as long.
_LOWEST = -690.0
# Largest loss of digits of products: an inverse covariance times squared distances, in units of the data.
_LARGEST_LOSS = 1e5


def exponentials(exponents: FloatArray) -> FloatArray:
    """Replace numbers by their exponentials, and return the array."""
    np.copyto(exponents, -np.inf, where=exponents < _LOWEST)
    return np.exp(exponents, out=exponents)


class Rows:
    """Rows of features (M, N), one feature after the other, with their products about a common centre.

    Runs and kernels are leading axes, and the numbers of a run are the same alone and beside other runs.
    """

    def __init__(self, values: FloatArray) -> None:
        self.values = np.ascontiguousarray(values)
        self._centre, scale = self.values.mean(axis=1), self.values.std(axis=1)
        self._scale = np.where(scale > 0.0, scale, 1.0)
        standard = (self.values - self._centre[:, None]) / self._scale[:, None]
        self._pairs = i, j = np.triu_indices(len(standard))
        # A pair of different features stands for two products.
        self._times = np.where(i == j, 1.0, 2.0)
        self._products = np.vstack([standard[i] * standard[j], standard, np.ones(standard.shape[1])])
        # Sums over rows are faster if the products of a row are neighbours.
        self._by_row = np.ascontiguousarray(self._products.T)

    def distances(self, means: FloatArray, inverses: FloatArray) -> FloatArray:
        """Return (x_n - μ_k)ᵀ A_k (x_n - μ_k), shape (..., K, N), for μ (..., K, M) and A (..., K, M, M)."""
        centred, forms = self._standard(means, inverses)
        linear = (forms @ centred[..., None])[..., 0]
        constant = np.vecdot(linear, centred)[..., None]
        quadratic = forms[(..., *self._pairs)] * self._times
        distances = np.concatenate([quadratic, -2.0 * linear, constant], axis=-1) @ self._products
        narrow = self._narrow(centred, forms)
        if narrow.any():
            differences = self.values - means[narrow][:, :, None]
            distances[narrow] = np.einsum("kmn,kmn->kn", inverses[narrow] @ differences, differences)
        return distances

    def moments(self, weights: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means (..., K, M) and covariances (..., K, M, M); those of narrow kernels have lost digits.

        The arguments are the weights (..., K, N) of all rows and their sums (..., K).
        """
        n_features, (i, j) = len(self.values), self._pairs
        averages = (weights @ self._by_row) / mass[..., None]
        centred = averages[..., -1 - n_features : -1]
        covariances = np.empty((*mass.shape, n_features, n_features))
        covariances[..., i, j] = covariances[..., j, i] = averages[..., : len(i)]
        covariances -= centred[..., None] * centred[..., None, :]
        return self._centre + self._scale * centred, covariances * np.outer(self._scale, self._scale)

    def narrow_moments(self, weights: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what `moments` returns, from differences and to all digits, for weights (K, N)."""
        # One product for each kernel: a product of several would round by their number.
        means = (weights[:, None] @ self.values.T)[:, 0] / mass[:, None]
        differences = self.values - means[:, :, None]
        return means, (weights[:, None] * differences) @ differences.mT / mass[:, None, None]

    def narrow(self, means: FloatArray, inverses: FloatArray) -> NDArray[np.bool_]:
        """Return for which kernels (..., K) products lose too many digits."""
        return self._narrow(*self._standard(means, inverses))

    def _narrow(self, centred: FloatArray, forms: FloatArray) -> NDArray[np.bool_]:
        squares = len(self.values) + np.vecdot(centred, centred)
        flat = forms.reshape(*squares.shape, -1)
        # Kernels with NaN count as narrow.
        return ~(np.vecdot(flat, flat) * squares**2 <= _LARGEST_LOSS**2)

    def _standard(self, means: FloatArray, inverses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means (..., K, M) and symmetric inverse covariances (..., K, M, M) in units of the data."""
        forms = (inverses + inverses.mT) * (0.5 * np.outer(self._scale, self._scale))
        return (means - self._centre) / self._scale, forms
