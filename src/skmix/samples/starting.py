"""Start the fit of a study: find kernels in some of the cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from .._errors import Argument, ArgumentError
from ..engine.records import FloatArray
from ..model import SharedKernelMixture, progress_bar
from .merging import units_of

# Kernels, and fewest cells for each.
_KERNELS, _CELLS = 100, 20
# Most passes of k-means: EM does the rest.
_PASSES = 30
# Stopping rule of the fit: further passes move kernels, but not populations (benchmarks/cells.py).
_TOLERANCE = 1e-3
# Cells that the variance of the whole is worth in the start of a variance, and its share of that variance.
_PRIOR, _SHARE = 5.0, 0.05


def start_of(
    X: FloatArray, n_kernels: int | None, settings: dict[str, Any], n_populations: int | None = None
) -> dict[str, Any]:
    """Return kernels fitted to some cells X (n, M), as a start for all cells.

    Samples are pooled: their cells come from the same kernels. `settings` are those of the mixture.
    """
    number = n_kernels or max(1, min(_KERNELS, len(X) // _CELLS))
    if n_populations is not None and n_populations > number:
        limit = f" is more than the {number} kernels there are: ask for more with "
        raise ArgumentError(Argument("n_populations", n_populations), limit, Argument("n_kernels"), ".")
    X = X[np.lexsort(X.T)]  # neither the order of cells nor that of files matters
    with progress_bar("finding kernels", None) as progress:
        progress(f"{number} kernels")
        start = _clusters(X, number, settings["random_state"])
        model = SharedKernelMixture(len(start["means"]), init=start, tol=_TOLERANCE, **settings).fit(X)
    return {"means": model.means_, "covariances": model.covariances_, "weights": model.weights_}


def _clusters(X: FloatArray, n_kernels: int, seed: int) -> dict[str, Any]:
    """Return means, variances and weights of clusters of cells, at most as many as kernels."""
    from sklearn.cluster import KMeans  # slow to import, and new samples do not need it

    X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    scaled = X / units_of(X.std(axis=0))
    n_clusters = min(n_kernels, len(np.unique(scaled, axis=0)))
    # One thread: sums over threads would round differently.
    with threadpool_limits(1):
        labels = KMeans(n_clusters, n_init=1, max_iter=_PASSES, random_state=seed).fit(scaled).labels_
    members = (labels == np.unique(labels)[:, None]).astype(np.float64)
    counts = members.sum(axis=1, keepdims=True)
    means = members @ X / counts
    variances = members @ (X - means[labels]) ** 2 + _PRIOR * _SHARE * X.var(axis=0)
    return {"means": means, "covariances": variances / (counts + _PRIOR), "weights": counts / len(X)}
