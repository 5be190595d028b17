"""Classes of bags: rows that belong together and have one class, such as the frames of an utterance.

The evidence of a bag is the sum over its rows, as if these were independent. They rarely are, so the sum of n
rows is divided by the design effect 1 + (n - 1) ρ, as for clusters in a survey. The correlation ρ is learnt
from held-out bags.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from ..data.labels import code_labels
from ..data.opening import source_of
from ..engine.exponentials import log_normalise
from ..engine.records import FloatArray, IntArray
from .checks import check_identifiers, check_weights
from .evidence import log_evidence
from .frames import is_frame, take_columns, with_features_of
from .rows import Rows, enter

# Correlations to compare before the best of them is refined.
_CORRELATIONS = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 61)])


class Bags(NamedTuple):
    """B bags of n rows."""

    ids: np.ndarray  # (B,), sorted
    members: IntArray  # (n,): the bag of each row
    sizes: FloatArray  # (B,): rows that say something of their class, or the sum of their weights
    evidence: FloatArray  # (B, L): sums over the rows
    log_prior: FloatArray  # (L,)

    @classmethod
    def of(cls, model: Any, X: Any, bags: Any, sample_weight: Any = None) -> Self:
        """The bags of rows X (n, M) with identifiers (n,) and weights (n,), under a fitted classifier."""
        X, names, sample_weight = take_bags(model, X, bags, sample_weight)
        evidence, log_prior = log_evidence(model, X)
        ids, members = number_bags(names, len(evidence))
        weights = check_weights(sample_weight, len(evidence))
        weights = np.ones(len(evidence)) if weights is None else weights
        total = np.zeros((len(ids), len(log_prior)))
        np.add.at(total, members, weights[:, None] * evidence)
        sizes = np.bincount(members, weights * evidence.any(axis=1), len(ids)).astype(np.float64)
        return cls(ids, members, sizes, total, log_prior)

    def log_ratios(self, correlation: float) -> FloatArray:
        """Logarithms (B, L) of Pr(class | bag) / Pr(class), up to a constant of each bag."""
        return self.evidence / (1.0 + np.maximum(self.sizes - 1.0, 0.0) * correlation)[:, None]

    def log_posteriors(self, correlation: float) -> FloatArray:
        """Logarithms (B, L) of the posteriors of the classes."""
        return log_normalise(self.log_prior + self.log_ratios(correlation), axis=1)

    def of_rows(self, codes: IntArray) -> IntArray:
        """The class code (B,) of each bag, given those of the rows (n,), which must agree."""
        of_bag = np.zeros(len(self.ids), dtype=np.int64)
        of_bag[self.members] = codes
        mixed = np.unique(self.members[codes != of_bag[self.members]])
        if len(mixed):
            raise ValueError(
                f"{len(mixed)} of {len(self.ids)} bags have rows of several classes, such as bag "
                f"{self.ids.tolist()[mixed[0]]!r}: all rows of a bag have one class."
            )
        return of_bag

    def best_correlation(self, codes: IntArray) -> float:
        """The correlation ρ of least log-loss, from 0 to 1, given the class code (B,) of each bag.

        As in Platt scaling, one more bag counts as right and one as wrong: without errors, probabilities
        would have no upper bound.
        """
        if self.sizes.max() <= 1.0:
            raise ValueError(
                "All bags have one row, or rows whose weights sum to at most one: they say nothing of the "
                "correlation of rows in a bag."
            )
        excluded = np.flatnonzero(self.log_prior[codes] == -np.inf)
        if len(excluded):
            raise ValueError(f"{len(excluded)} bags have a label whose class prior is zero.")
        possible = self.log_prior > -np.inf
        right, n_bags = np.arange(len(possible)) == codes[:, None], len(codes)
        wrong = 1.0 / ((n_bags + 2.0) * max(possible.sum() - 1, 1))
        targets = np.where(right, (n_bags + 1.0) / (n_bags + 2.0), wrong)[:, possible]

        def loss(correlation: float) -> float:
            return -float((targets * self.log_posteriors(correlation)[:, possible]).sum())

        best = int(np.argmin([loss(value) for value in _CORRELATIONS]))
        between = _CORRELATIONS[max(best - 1, 0)], _CORRELATIONS[min(best + 1, len(_CORRELATIONS) - 1)]
        refined = minimize_scalar(loss, bounds=between, method="bounded", options={"xatol": 1e-9}).x
        return float(min(_CORRELATIONS[best], refined, key=loss))


def take_bags(model: Any, X: Any, bags: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Rows X, the identifiers (n,) of their bags and weights; columns with these leave a data frame."""
    source = source_of(X) if isinstance(bags, str) else None
    if source is not None:
        return with_features_of(model, source), source.labelled(bags).row_labels(), sample_weight
    if is_frame(X):
        X, bags, sample_weight = take_columns(X, bags, sample_weight, name="bags")
    if isinstance(bags, str):
        raise ValueError(
            f"bags is {bags!r}, the name of a column, but X is a {type(X).__name__}. Give a data frame, a "
            "file, or bags as an array."
        )
    return X, bags, sample_weight


def number_bags(bags: Any, n_rows: int) -> tuple[np.ndarray, IntArray]:
    """The sorted identifiers (B,) of bags, and the index of the bag of each row (n,); None is one bag."""
    if bags is None:
        bags = np.zeros(n_rows, dtype=np.int64)
    names = check_identifiers(bags, "bags")
    if names.shape != (n_rows,):
        raise ValueError(f"X has {n_rows} rows, but bags has the shape {names.shape}, not ({n_rows},).")
    try:
        ids, members = np.unique(names, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"bags has values that cannot be compared with each other: {error}.") from None
    return ids, members


def rows_in_bags(
    model: Any, X: Any, y: Any, sample_weight: Any, bags: Any, errors: Any = None
) -> tuple[Rows, Any]:
    """Labelled rows in memory, and the identifiers (n,) of their bags, if there are any."""
    if bags is not None:
        X, bags, sample_weight = take_bags(model, X, bags, sample_weight)
    return enter(model, X, y, sample_weight).with_columns_of_fit().with_errors(errors).in_memory(), bags


def learn_correlation(
    model: Any, X: Any, codes: IntArray, bags: Any, weights: FloatArray | None
) -> float | None:
    """The correlation of rows in a bag, from held-out rows with class codes (n,); None without bags."""
    if bags is None:
        return None
    found = Bags.of(model, X, bags, weights)
    return found.best_correlation(found.of_rows(codes))


def correlation_of(model: Any) -> float:
    """The correlation of rows in a bag that a classifier has learnt, by default 0."""
    return float(getattr(model, "bag_correlation_", 0.0))


class BagsMixin:
    """Adds predictions for bags to classifiers."""

    classes_: np.ndarray

    def predict_bags(
        self, X: ArrayLike, bags: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the most probable class (B,) of each bag of rows; see `predict_bags_proba`."""
        return self.classes_[np.argmax(self.predict_bags_proba(X, bags, sample_weight), axis=1)]

    def predict_bags_proba(
        self, X: ArrayLike, bags: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> FloatArray:
        """Return the probability of each class for bags: rows that belong together and have one class.

        The class prior counts once for a bag, and the log-likelihoods of its rows are added up, as if rows
        were independent. Rows of a bag rarely are, so that sums are overconfident: ``calibrate(X, y, bags)``
        learns their correlation ρ from held-out bags, and the sum of n rows is then divided by
        1 + (n - 1) ρ. A bag of one row has the probabilities that `predict_proba` gives for the row.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts. Missing values are left out, rows without any value say
            nothing.
        bags : array-like of shape (n,) or str
            Identifier of the bag of each row; for a file or data frame also the name of a column.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: a row of weight two counts as two rows.

        Returns
        -------
        ndarray of shape (B, L)
            Probabilities, a line for each bag in the order of ``numpy.unique(bags)``.
        """
        return np.exp(Bags.of(self, X, bags, sample_weight).log_posteriors(correlation_of(self)))

    def verify(
        self,
        X: ArrayLike,
        claimed: Any,
        bags: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the log-likelihood ratio of the claimed class against the pool of all classes.

        It is the mean of log p(x | claimed) - log p(x) over the rows of a bag, times the number of rows that
        they are worth; see `predict_bags_proba`. Rows of the claimed class have positive values, others
        negative ones. A threshold for decisions depends on the costs of mistakes: choose it on held-out bags.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts.
        claimed : label or array-like of shape (B,)
            The claimed class: one for all bags, or that of each bag in the order of ``numpy.unique(bags)``.
        bags : array-like of shape (n,) or str, default=None
            Identifier of the bag of each row, see `predict_bags_proba`; None is one bag of all rows.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        ndarray of shape (B,)
            Log-likelihood ratios, in nats.
        """
        found = Bags.of(self, X, bags, sample_weight)
        labels = np.repeat(claimed, len(found.ids)) if np.ndim(claimed) == 0 else claimed
        codes = code_labels(labels, self.classes_, len(found.ids), name="claimed")
        if (found.log_prior[codes] == -np.inf).any():
            raise ValueError("The class prior of a claimed class is zero: no row can be one of it.")
        return found.log_ratios(correlation_of(self))[np.arange(len(codes)), codes]
