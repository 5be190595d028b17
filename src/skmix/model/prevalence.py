"""Shares of the classes among rows without labels, by maximum likelihood.

The classes of new rows may occur in other shares s than in training. Given p(x | class j), the likelihood
Σ_n log Σ_j s_j p(x_n | j) is concave in s, and has its maximum where the EM algorithm of Saerens, Latinne and
Decaestecker ends: "Adjusting the outputs of a classifier to new a priori probabilities", Neural Computation
14 (2002).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import brentq, nnls
from scipy.special import softmax
from scipy.stats import chi2

from ..engine.records import FloatArray
from .checks import check_weights
from .evidence import log_evidence

# Steps end when no other shares can gain more log-likelihood than this, in nats over all rows.
_GAIN = 1e-8
_STEPS = 200
# Added to the information of shares, relative to its largest entry: classes may have equal densities.
_RIDGE = 1e-10
# The log-likelihood of shares in a 95 % interval is at most this much below the maximum.
_DROP = float(chi2.ppf(0.95, 1) / 2.0)
# Stands for an infinite fall of the log-likelihood.
_FAR = 1e6


@dataclass(frozen=True, eq=False)
class Prevalence:
    """Shares of L classes among rows without labels.

    Attributes
    ----------
    classes : ndarray of shape (L,)
        Sorted class labels.
    shares : ndarray of shape (L,)
        Estimated share of each class.
    low, high : ndarray of shape (L,)
        Limits of 95 % intervals of the shares.
    probabilities : ndarray of shape (n, L) or None
        With `adjust`, the posterior probabilities of the rows under these shares.
    """

    classes: np.ndarray
    shares: FloatArray
    low: FloatArray
    high: FloatArray
    probabilities: FloatArray | None = None

    def as_dict(self) -> dict[str, np.ndarray]:
        """Return the columns of a table, such as ``pandas.DataFrame``: label, share, low and high."""
        return {"label": self.classes, "share": self.shares, "low": self.low, "high": self.high}


class PrevalenceMixin:
    """Adds the shares of classes to classifiers."""

    classes_: np.ndarray

    def prevalence(
        self, X: ArrayLike, sample_weight: ArrayLike | None = None, *, adjust: bool = False
    ) -> Prevalence:
        """Estimate the shares of the classes among rows without labels.

        Class densities are those of the fit, and only the shares of the classes are fitted, by maximum
        likelihood; the class prior has no influence. That is right if rows of a class look as in training.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: a row of weight two counts as two rows.
        adjust : bool, default=False
            Whether to return the posterior probabilities of the rows under these shares, too.

        Returns
        -------
        Prevalence
            The `classes`, their `shares`, and the limits `low` and `high` of their 95 % intervals.

        Notes
        -----
        An interval has the shares that lower the log-likelihood by at most 1.92 while the other shares follow
        as the information of the maximum tells them to. It therefore stays between 0 and 1, and reaches 0 for
        a class that may be absent. It is about the number of rows: errors of the class densities come on top.

        Examples
        --------
        >>> import numpy as np
        >>> from skmix import SharedKernelClassifier
        >>> weights, means, covariances = [[0.9, 0.2], [0.1, 0.8]], [[0.0], [4.0]], [[[1.0]], [[1.0]]]
        >>> model = SharedKernelClassifier.from_parameters(weights, means, covariances, classes=["a", "b"])
        >>> found = model.prevalence(np.repeat([[0.0], [4.0]], [400, 600], axis=0))
        >>> found.shares.round(1)
        array([0.3, 0.7])
        """
        evidence, prior = log_evidence(self, X)
        if (prior == -np.inf).any():
            label = self.classes_[np.argmin(prior)].item()
            raise ValueError(
                f"The class prior of {label!r} is zero, so the model has no probabilities of it: its share "
                "cannot be estimated. Fit with another priors."
            )
        given = check_weights(sample_weight, len(evidence))
        weights = np.ones(len(evidence)) if given is None else given
        # A row of weight zero may be impossible under the shares of the others.
        some, weights = evidence[weights > 0], weights[weights > 0]
        if not some.any() and len(prior) > 1:
            raise ValueError(
                "The rows of X say nothing of their class: they have no value in the features of the model, "
                "or its classes have equal densities."
            )
        # Relative to the likeliest class of each row, so that nothing overflows.
        ratios = np.exp(some - some.max(axis=1, keepdims=True))
        shares = most_likely_shares(ratios, weights)
        low, high = _intervals(ratios, weights, shares) if len(prior) > 1 else (shares, shares)
        probabilities = softmax(evidence + np.log(np.maximum(shares, 1e-300)), axis=1) if adjust else None
        return Prevalence(self.classes_, shares, low, high, probabilities)


def most_likely_shares(ratios: FloatArray, weights: FloatArray) -> FloatArray:
    """The shares (L,) that maximise Σ_n w_n log Σ_j s_j r_nj, for ratios (n, L) and weights (n,).

    Newton's method: each step minimises the second-order approximation without negative shares. The sum of
    the shares need not be constrained if it is subtracted from the mean log-likelihood.
    """
    total, n_classes = weights.sum(), ratios.shape[1]
    weights, shares = weights / total, np.full(n_classes, 1.0 / n_classes)

    def objective(shares: FloatArray) -> float:
        with np.errstate(divide="ignore"):
            return float(weights @ np.log(ratios @ shares) - shares.sum())

    for _ in range(_STEPS):
        relative = ratios / (ratios @ shares)[:, None]
        slope = weights @ relative
        if slope.max() - 1.0 <= max(_GAIN / total, 1e-13):
            break
        information = (weights[:, None] * relative).T @ relative
        information += _RIDGE * information.max() * np.eye(n_classes)
        root = cholesky(information)
        target = information @ shares + slope - 1.0
        step = nnls(root, solve_triangular(root, target, trans="T"))[0] - shares
        before, length = objective(shares), 1.0
        while objective(shares + length * step) < before and length > 1e-6:
            length /= 2.0
        shares = shares + length * step
        shares /= shares.sum()
    return shares


def _intervals(ratios: FloatArray, weights: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The limits (L,) and (L,) of the intervals of the shares (L,)."""
    relative = ratios / (ratios @ shares)[:, None]
    information = (weights[:, None] * relative).T @ relative
    information += _RIDGE * information.max() * np.eye(len(shares))
    limits = np.tile([[0.0], [1.0]], len(shares))
    for j in range(len(shares)):
        direction = _least_favourable(information, shares, j)

        def excess(share: float, j: int = j, direction: FloatArray = direction) -> float:
            """How much the log-likelihood falls below its maximum with this share of j, less the limit."""
            moved = np.maximum(shares + (share - shares[j]) * direction, 0.0)
            moved[j] = 0.0
            moved *= (1.0 - share) / max(moved.sum(), 1.0 - share, 1e-300)
            moved[j] = share
            with np.errstate(divide="ignore"):
                return min(-float(weights @ np.log(relative @ moved)), _FAR) - _DROP

        for side, end in enumerate((0.0, 1.0)):
            if excess(end) > 0.0:
                limits[side, j] = brentq(excess, shares[j], end)
    return limits[0], limits[1]


def _least_favourable(information: FloatArray, shares: FloatArray, j: int) -> FloatArray:
    """The change (L,) of the most likely shares for each change of share j, whose sum is zero.

    Classes without a share stay without one, unless only one class has a share.
    """
    free = (shares > 0.0) if np.count_nonzero(shares) > 1 else np.ones(len(shares), dtype=bool)
    free[j] = True
    some = np.flatnonzero(free)
    inverse = np.linalg.inv(information[np.ix_(some, some)])
    sums, column = inverse.sum(axis=0), inverse[:, np.searchsorted(some, j)]
    change = column - sums * (sums[np.searchsorted(some, j)] / sums.sum())
    direction = np.zeros(len(shares))
    direction[some] = change / change[np.searchsorted(some, j)]
    return direction
