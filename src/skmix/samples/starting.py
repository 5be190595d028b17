"""Start the fit of a study: choose the number of kernels, and where they begin, on some of the cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from .._errors import Argument, ArgumentError
from ..engine.records import FloatArray
from ..model import SharedKernelMixture, progress_bar

# Kernels to try, from the most; more describe spikes and noise, and take longer.
_NUMBERS = (64, 32, 16, 8, 4, 2, 1)
# Fewest cells for each parameter of the kernels.
_CELLS = 2
# Clusters of k-means for each kernel, before those next to each other are joined.
_FINER = 2
# Most passes of k-means: EM does the rest.
_PASSES = 30
# Up to this many kernels, a start may miss a large population: starts by k-means are tried too.
_FEW, _STARTS = 8, 5
# Stopping rule of the fits: further passes move kernels, but not populations (benchmarks/cells.py).
TOLERANCE = 1e-3
# Cells that the variance of the whole is worth in the start of a covariance, and its share of that variance.
_PRIOR, _SHARE = 5.0, 0.05


def start_of(
    X: FloatArray, n_kernels: int | None, settings: dict[str, Any], n_populations: int | None = None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return kernels fitted to some cells X (n, M), a start for all cells, and how their number was chosen.

    If it is not given, AICc chooses the number, beginning with the largest: the search stops when fewer
    kernels are worse, or would be fewer than populations. Samples are pooled: their cells come from the same
    kernels. `settings` are those of the mixture.
    """
    n_cells, n_features = X.shape
    n_each = 1 + n_features + n_features * (n_features + 1) // 2  # parameters of a kernel
    possible = [number for number in _NUMBERS if _CELLS * (number * n_each - 1) <= n_cells] or [1]
    possible = possible if n_kernels is None else [n_kernels]
    numbers = [number for number in possible if number >= (n_populations or 1)]
    if not numbers:
        limit = f" is more than the {possible[0]} kernels there are: ask for more with "
        raise ArgumentError(Argument("n_populations", n_populations), limit, Argument("n_kernels"), ".")
    X = X[np.lexsort(X.T)]  # neither the order of cells nor that of files matters
    best, lowest, tried = None, np.inf, []
    with progress_bar("choosing kernels", None) as progress:
        for number in numbers:
            progress(f"{number} kernels")
            tried.append(number)
            model, n = _fit(X, number, settings), number * n_each - 1
            aicc = -2.0 * model.log_likelihood_ + 2.0 * n + 2.0 * n * (n + 1) / max(n_cells - n - 1, 1)
            if best is not None and aicc >= lowest:
                break
            best, lowest = model, aicc
    assert best is not None
    kernels = {"means": best.means_, "covariances": best.covariances_, "weights": best.weights_}
    search = {"criterion": "aicc", "n_cells": n_cells, "lowest": min(tried), "highest": max(tried)}
    return kernels, search if n_kernels is None else None


def _fit(X: FloatArray, n_kernels: int, settings: dict[str, Any]) -> SharedKernelMixture:
    """Return the likeliest mixture fitted to cells X (n, M)."""
    start = _clusters(X, n_kernels, settings["random_state"])
    models = []
    if len(start["means"]) == n_kernels:  # fewer if there are few cells, or equal ones
        models = [SharedKernelMixture(n_kernels, init=start, tol=TOLERANCE, **settings).fit(X)]
    if not models or n_kernels <= _FEW:
        others = SharedKernelMixture(n_kernels, init="k-means", n_init=_STARTS, tol=TOLERANCE, **settings)
        models.append(others.fit(X))
    return max(models, key=lambda model: model.log_likelihood_)


def _clusters(X: FloatArray, n_kernels: int, seed: int) -> dict[str, Any]:
    """Return means, covariances and weights of clusters of cells, at most as many as kernels.

    k-means cuts dense populations into many clusters and has none left for rare ones. So it makes more
    clusters than there are kernels, and complete linkage joins those that are next to each other, however
    many cells they have: a rare population keeps its own.
    """
    # Slow to import, and new samples do not need them.
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.cluster import KMeans

    X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    spread = X.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    scaled = X / spread
    n_clusters = min(_FINER * n_kernels, len(np.unique(scaled, axis=0)))
    # One thread: sums over threads would round differently.
    with threadpool_limits(1):
        clusters = KMeans(n_clusters, n_init=1, max_iter=_PASSES, random_state=seed).fit(scaled)
    labels = np.zeros(len(X), dtype=np.int64)
    if n_clusters > 1:
        tree = linkage(clusters.cluster_centers_, "complete")
        labels = fcluster(tree, n_kernels, "maxclust")[clusters.labels_]
    _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
    prior = np.diag(spread**2) * _SHARE
    means, covariances = [], []
    for number, count in enumerate(counts):
        members = X[labels == number]
        means.append(members.mean(axis=0))
        apart = members - means[-1]
        covariances.append((apart.T @ apart + _PRIOR * prior) / (count + _PRIOR))
    weights = counts[:, None] / len(X)
    return {"means": np.array(means), "covariances": np.array(covariances), "weights": weights}
