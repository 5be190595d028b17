"""Rows for tests of passes that skip kernels."""

from __future__ import annotations

import numpy as np


def elongated(
    random: np.random.Generator, n_rows: int, n_kernels: int, n_features: int, spread: float, ratio: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (N, M) around kernels, their means (K, M) and the roots (K, M, M) of their covariances.

    The axes of a kernel differ by up to `ratio`; its mean is drawn from a Gaussian of deviation `spread`.
    """
    means = spread * random.normal(size=(n_kernels, n_features))
    rotation, _ = np.linalg.qr(random.normal(size=(n_kernels, n_features, n_features)))
    roots = rotation * ratio ** -random.uniform(size=(n_kernels, 1, n_features))
    which = random.integers(n_kernels, size=n_rows)
    X = means[which] + np.einsum("nde,ne->nd", roots[which], random.normal(size=(n_rows, n_features)))
    return X, means, roots
