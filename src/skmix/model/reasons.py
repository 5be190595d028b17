"""Reasons for predictions: the kernels that explain a row, and the columns in which it is far from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ..data.recipe import Recipe
from ..engine.records import FloatArray
from .densities import has_shifts, responsibilities
from .kernel_sets import DrawnKernels, chosen_model, feature_names, kernel_sets, numbered
from .rows import enter

# Kernels and columns that are named, at most, and from which responsibility and residual on.
_MOST = 3
_SHARE, _FAR = 0.05, 2.0


@dataclass(frozen=True, eq=False)
class Reasons:
    """Which of K kernels explain each of n rows, and in which of C columns a row is far from its kernel.

    Attributes
    ----------
    kernels : tuple of str
        Names of the K kernels; those of several feature sets one after the other.
    responsibilities : ndarray of shape (n, K)
        Probability of each kernel, given the row; it sums to one over the kernels of each feature set.
    classes : tuple of str
        The L classes of a classifier; empty for a mixture.
    class_shares : ndarray of shape (K, L)
        Share of each class among the rows of a kernel.
    columns : tuple of str
        Names of the C columns; the components of a search that reduces the features.
    residuals : ndarray of shape (n, C)
        How far a value is from what the kernel with the largest responsibility expects, given the other
        values of the row, in standard deviations of that expectation. A column of categories has the root
        mean square over its features, without a sign. NaN where a value is missing.
    """

    kernels: tuple[str, ...]
    responsibilities: FloatArray
    classes: tuple[str, ...]
    class_shares: FloatArray
    columns: tuple[str, ...]
    residuals: FloatArray

    def __repr__(self) -> str:
        return (
            f"<Reasons: {len(self.residuals)} rows, {len(self.kernels)} kernels, {len(self.columns)} columns>"
        )

    def in_words(self) -> dict[str, NDArray[Any]]:
        """Return two columns (n,) of text: ``kernels``, the likeliest first, and ``far``, the columns.

        Kernels have their responsibility and the share of their most frequent class, as in
        ``k3 0.93 (setosa: 1.00)``; columns have their residual if it is 2 or more, as in ``fare +3.2``.
        """
        found = {"kernels": [self._kernels(row) for row in self.responsibilities]}
        found["far"] = [self._far(row) for row in self.residuals]
        return {name: np.array(each, dtype=object) for name, each in found.items()}

    def _kernels(self, row: FloatArray) -> str:
        order = [k for k in np.argsort(-row, kind="stable")[:_MOST] if row[k] >= _SHARE]
        return "; ".join(f"{self.kernels[k]} {row[k]:.2f}{self._class_of(k)}" for k in order)

    def _class_of(self, k: int) -> str:
        if not self.classes:
            return ""
        most = int(self.class_shares[k].argmax())
        return f" ({self.classes[most]}: {self.class_shares[k, most]:.2f})"

    def _far(self, row: FloatArray) -> str:
        sizes = np.nan_to_num(np.abs(row))
        order = [c for c in np.argsort(-sizes, kind="stable")[:_MOST] if sizes[c] >= _FAR]
        return "; ".join(f"{self.columns[c]} {row[c]:+.1f}" for c in order)


class ReasonsMixin:
    """A method that explains rows."""

    def reasons(self, X: ArrayLike) -> Reasons:
        """Return which kernels explain each row, and in which columns a row is far from them.

        A mixture with `group_shift` has none, since its means depend on the group of a row. Of a search that
        averages several models, the best one gives the reasons; where it transforms features, residuals are
        on the transformed scale.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows of any kind that `predict` takes; files are read whole.

        Returns
        -------
        Reasons
            Responsibilities of the kernels (n, K) and residuals of the columns (n, C), also in words.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skmix import SharedKernelClassifier
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = SharedKernelClassifier(3, random_state=0).fit(X, y)
        >>> strange = X[:1].assign(**{"sepal width (cm)": 8.0})
        >>> model.reasons(strange).in_words()["far"][0].split(" +")[0]
        'sepal width (cm)'
        """
        return _reasons_of(self, X)


def _reasons_of(model: Any, X: Any) -> Reasons:
    check_is_fitted(model)
    own = chosen_model(model)
    if has_shifts(own):
        raise ValueError(
            "reasons cannot be combined with group_shift: the means of this mixture depend on the group of a "
            "row. Fit without group_shift."
        )
    rows, columns = enter(model, X).gathered(), Recipe.of(model)
    names = [name if isinstance(name, str) else numbered(name) for name in columns.kinds]
    features = columns.features
    change = getattr(model, "feature_map_", None)
    if change is not None:
        rows = change.transform(rows)
        if change.matrix is not None:
            names = feature_names(model) or []
            features = [[place] for place in range(len(names))]
    sets = kernel_sets(model)
    # scikit-learn's kind of mixture has no classes.
    given = responsibilities(own, rows) if hasattr(own, "class_prior_") else own.predict_proba(rows)
    ends = np.cumsum([len(each.means) for each in sets])
    residuals = np.full((len(rows), len(names)), np.nan)
    for kernels, part in zip(sets, np.split(given, ends[:-1], axis=1), strict=True):
        place = {feature: position for position, feature in enumerate(kernels.columns)}
        blocks = {
            column: [place[feature] for feature in each if feature in place]
            for column, each in enumerate(features)
        }
        blocks = {column: each for column, each in blocks.items() if each}
        found = _residuals(rows[:, kernels.columns], part.argmax(axis=1), kernels, [*blocks.values()])
        residuals[:, [*blocks]] = found
    shares = np.concatenate([each.weights * each.prior for each in sets])
    totals = shares.sum(axis=1, keepdims=True)
    numbers = [(place, k) for place, each in enumerate(sets, 1) for k in range(len(each.means))]
    return Reasons(
        kernels=tuple(f"set {place} k{k}" if len(sets) > 1 else f"k{k}" for place, k in numbers),
        responsibilities=given,
        classes=tuple(str(label) for label in model.classes_.tolist()) if is_classifier(model) else (),
        class_shares=np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0),
        columns=tuple(names),
        residuals=residuals,
    )


def _residuals(
    rows: FloatArray, of_rows: NDArray[np.integer], kernels: DrawnKernels, blocks: list[list[int]]
) -> FloatArray:
    """Return the residuals (n, C) of rows (n, M) from their kernels (n,), by the features of columns.

    With the mean μ of a kernel and its covariance P of the values that are not missing, the residual of a
    feature is (P⁻¹ (x − μ))ᵢ / √(P⁻¹)ᵢᵢ.
    """
    found = np.full((len(rows), len(blocks)), np.nan)
    gaps = np.isnan(rows)
    for k in np.unique(of_rows):
        covariance = kernels.covariance(int(k))
        units = np.sqrt(np.diagonal(covariance))
        covariance = covariance / np.outer(units, units)
        own = np.flatnonzero(of_rows == k)
        offsets = (rows[own] - kernels.means[k]) / units
        patterns, which = np.unique(gaps[own], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            seen, some = np.flatnonzero(~pattern), np.flatnonzero(which.ravel() == number)
            precision = np.linalg.inv(covariance[np.ix_(seen, seen)])
            pulls = offsets[np.ix_(some, seen)] @ precision
            for column, block in enumerate(blocks):
                places = np.flatnonzero(np.isin(seen, block))
                if len(places) == 1:
                    values = pulls[:, places[0]] / np.sqrt(precision[places[0], places[0]])
                elif len(places):
                    inner = np.linalg.solve(precision[np.ix_(places, places)], pulls[:, places].T).T
                    values = np.sqrt(np.maximum((inner * pulls[:, places]).mean(axis=1), 0.0))
                else:
                    continue
                found[own[some], column] = values
    return found
