"""What passes over rows in memory take: the rows, and the kernels of R starts, in the same frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._core import core
from ..kernels import Tail
from ..numbers import LARGEST_CANCELLATION, Record, join, safe_log
from ..records import FARTHEST, BoolArray, Factor, FloatArray, Frame, IntArray, Parameters, Statistics
from ..structures import Structure

# Numbers in the differences of rows from means that NumPy holds at a time.
HELD = 1 << 17
# Squared Mahalanobis distance of a mean from the origin up to which products keep nine digits. The M-step
# repeats a pass if it is above `LARGEST_CANCELLATION` under the new covariances; with a sixteenth of that,
# kernels may narrow to a quarter of their width before it happens.
FARTHEST_OF_PRODUCTS = LARGEST_CANCELLATION["float64"] / 16.0


# Operations of a pass up to which a second thread, or Python between passes, would cost more than it saves.
FEW_OPERATIONS = 1 << 24


def operations(n_rows: int, n_kernels: int, n_features: int) -> int:
    """Return roughly how many operations a pass takes."""
    # Whitening and moments take M² of them, an exponential and what is around it about 20.
    return n_rows * n_kernels * (n_features**2 + 20)


# ---------------------------------------------------------------- rows


@dataclass
class Rows:
    """Complete rows in a NumPy array, seen in a frame, with what passes compute once."""

    X: np.ndarray  # (N, M): numbers
    codes: IntArray | None  # (N,): class of each row; None for one class
    weights: FloatArray | None  # (N,): positive; None when all are one
    frame: Frame
    n_classes: int = 1

    @cached_property
    def for_core(self) -> Any:
        """The rows as the core reads them, without a copy where it can."""
        X = self.X
        is_float = X.dtype in (np.float64, np.float32) and X.dtype.isnative
        if not is_float or not X.flags.aligned or any(step % X.itemsize for step in X.strides):
            X = X.astype(np.float64)
        codes = None if self.n_classes == 1 else np.require(self.codes, np.int64, ["C", "A"])
        weights = None if self.weights is None else np.require(self.weights, np.float64, ["C", "A"])
        scale, shift = 1.0 / self.frame.scale, np.ascontiguousarray(self.frame.shift)
        return core().Rows(X, codes, weights, scale, shift, FARTHEST, self.n_classes)

    @cached_property
    def scatter(self) -> FloatArray:
        """Weighted sum of x xᵀ over all rows, shape (M, M)."""
        n_rows, n_features = self.X.shape
        total, step = np.zeros((n_features, n_features)), max(1, HELD // n_features)
        for a in range(0, n_rows, step):
            x = self.frame.rows(self.X[a : a + step])
            total += (x if self.weights is None else x * self.weights[a : a + step]) @ x.T
        return total


# ---------------------------------------------------------------- kernels


@dataclass(frozen=True)
class Kernels(Record):
    """The kernels of R starts, and how passes compute with them."""

    structure: Structure
    means: FloatArray  # (R, K, M)
    factor: Factor
    constants: FloatArray  # (R, K): log-density at the mean
    log_weights: FloatArray  # (R, K, C)
    tail: Tail
    by_products: BoolArray  # (R,): see `are_products_precise`
    origins: FloatArray  # (R, K, M): of the moments

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        factor: Factor,
        structure: Structure,
        centres: tuple[BoolArray, FloatArray] | None = None,
    ) -> Kernels:
        """Return the kernels of parameters with that factor.

        Moments are about the means, or about zero if they are products of matrices. Where that has lost
        digits, the pass is repeated with `centres`: which kernels (R, K) have origins (R, K, M) given there.
        """
        means, tail = parameters.means, parameters.tail
        constants = tail.log_peaks(factor.log_determinant, means.shape[-1])
        if structure.shared:
            constants = np.broadcast_to(constants, means.shape[:2])
        by_products = are_products_precise(means, factor, structure, tail)
        origins = np.where(by_products[:, None, None], 0.0, means) if by_products.any() else means
        if centres is not None:
            chosen, new_origins = centres
            by_products = by_products & ~chosen.any(axis=1)
            origins = np.where(chosen[..., None], new_origins, origins)
        log_weights = safe_log(parameters.weights)
        return cls(structure, means, factor, constants, log_weights, tail, by_products, origins)


def are_products_precise(means: FloatArray, factor: Factor, structure: Structure, tail: Tail) -> BoolArray:
    """Return for which starts, (R,), passes use products of matrices, not differences from the means.

    A Gaussian log-density is linear in the features and their squares. If kernels are diagonal or have a
    common covariance, the core therefore gets all log-densities of a start from one product of coefficients
    with the rows, and all moments, about zero, from one of responsibilities with the rows. That is quicker
    than to subtract every mean from every row. But terms as large as the squared Mahalanobis distance of a
    mean from the origin cancel to the row's own squared distance from the mean.

    A kernel with a matrix of its own would need the products of all pairs of features, and precisions of t
    kernels need the distances: these take differences. So does the reference.
    """
    if core() is None or tail.weighted or (structure.triangular and not structure.shared):
        return np.zeros(len(means), dtype=bool)
    whitener = factor.whitener
    white = means @ whitener[:, 0].mT if structure.shared else means * whitener
    is_near: BoolArray = np.square(white).sum(axis=-1).max(axis=1) <= FARTHEST_OF_PRODUCTS
    return is_near


def in_batches(
    kernels: Kernels, is_apart: BoolArray, size: int, work: Callable[[IntArray, Kernels], Statistics]
) -> Statistics:
    """Call work(starts, their kernels) for batches of up to `size` starts; return the statistics of all R.

    Starts that are apart (R,) are not in a batch with others: the arithmetic of a start must not depend on
    the others.
    """
    n_starts = len(is_apart)
    if n_starts == 1 or (n_starts <= size and is_apart.all() == is_apart.any()):
        return work(np.arange(n_starts), kernels)
    groups = np.flatnonzero(is_apart), np.flatnonzero(~is_apart)
    batches = [group[a : a + size] for group in groups for a in range(0, len(group), size)]
    statistics = join([work(batch, kernels.take(batch)) for batch in batches])
    return statistics.take(np.argsort(np.concatenate(batches)))
