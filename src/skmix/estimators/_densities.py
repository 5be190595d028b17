"""Densities beyond the log-likelihood, for the mixture and the classifier alike.

Both are a list of parts, mixtures of disjoint columns that are independent given the class: the classifier
has one for each feature group, the mixture is its own only part. All methods here are written for parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..engine import density as scoring
from ..engine.compute.arrays import like, namespace
from ..engine.covariances import structure_of
from ..engine.model import FloatArray, IntArray
from ..engine.sources import gaps as patterns
from ._derive import derive
from ._settings import check_features, check_given
from ._validation import columns_of

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture


def _side_by_side(arrays: list[FloatArray]) -> FloatArray:
    """Return arrays (n, …) joined along their second axis."""
    return arrays[0] if len(arrays) == 1 else namespace(arrays[0]).concat(arrays, axis=1)


class ConditionalDensities:
    """Kernel scores, filled gaps, marginal and conditional models of a fitted estimator."""

    if TYPE_CHECKING:
        class_prior_: FloatArray
        n_features_in_: int
        n_jobs: int | None
        random_state: Any

        def _rows(self, X: ArrayLike) -> np.ndarray: ...
        def _class_log_likelihood(self, rows: np.ndarray) -> FloatArray: ...

    def _parts(self) -> list[tuple[list[int], SharedKernelMixture]]:
        """Return the columns and the model of each part."""
        raise NotImplementedError

    def _joint_of_rows(self, rows: np.ndarray) -> FloatArray:
        """Return log Pr(class j) + log p(x | class j), shape (n, L), of validated rows."""
        likelihood = self._class_log_likelihood(rows)
        with np.errstate(divide="ignore"):
            joint: FloatArray = likelihood + like(np.log(self.class_prior_), likelihood)
        return joint

    def _kernel_posteriors(
        self, rows: np.ndarray, y: ArrayLike | None
    ) -> Iterator[tuple[list[int], SharedKernelMixture, FloatArray]]:
        """Yield each part's columns, model and log-responsibilities (n, K)."""
        parts, n_jobs = self._parts(), effective_n_jobs(self.n_jobs)
        codes = None if y is None else parts[0][1]._codes(y, rows.shape[0])
        posterior = scoring.log_normalise(self._joint_of_rows(rows)) if codes is None else None
        for columns, model in parts:
            own, parameters, kind = columns_of(rows, columns), model._parameters, model._structure
            if codes is not None:
                yield columns, model, scoring.log_responsibilities(own, codes, parameters, kind, n_jobs)
            else:
                assert posterior is not None
                yield (
                    columns,
                    model,
                    scoring.averaged_log_responsibilities(own, posterior, parameters, kind, n_jobs),
                )

    def log_responsibilities(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the logarithms of the kernels' responsibilities, finite where these underflow.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.
        y : array-like of shape (n,), default=None
            Labels; without them, averaged over the posterior of the classes.

        Returns
        -------
        ndarray of shape (n, K)
            Log-responsibilities; minus infinity for kernels without weight. With feature groups, the groups'
            side by side.
        """
        return _side_by_side([logs for _, _, logs in self._kernel_posteriors(self._rows(X), y)])

    def responsibilities(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the probability that each row came from each kernel.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.
        y : array-like of shape (n,), default=None
            Labels; without them, averaged over the posterior of the classes before any temperature.

        Returns
        -------
        ndarray of shape (n, K)
            Responsibilities; rows sum to one. With feature groups, the groups' side by side.
        """
        logs = self.log_responsibilities(X, y)
        return namespace(logs).exp(logs)

    def kernel_log_densities(self, X: ArrayLike) -> FloatArray:
        """Return the log-density of each row under each kernel, log N(x; μ_k, P_k).

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.

        Returns
        -------
        ndarray of shape (n, K)
            Log-densities, without the weights. With feature groups, the groups' side by side.
        """
        rows, n_jobs = self._rows(X), effective_n_jobs(self.n_jobs)
        return _side_by_side(
            [
                scoring.kernel_log_densities(
                    columns_of(rows, columns), model._parameters, model._structure, n_jobs
                )
                for columns, model in self._parts()
            ]
        )

    def impute(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the rows with every missing value replaced by its conditional mean.

        The mean is over everything that is not known: the class unless `y` is given, the kernel, and the
        value given its kernel. It is the best guess in the sense of squared error; filled rows vary less than
        complete ones, so use `sample_conditional` where the spread matters.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows; NaN marks a missing value.
        y : array-like of shape (n,), default=None
            Labels, where they are known.

        Returns
        -------
        ndarray of shape (n, M)
            The rows, observed values untouched. Columns that are in no feature group keep their gaps.
        """
        rows = self._rows(X)
        filled = rows.astype(np.float64)
        for columns, model, logs in self._kernel_posteriors(rows, y):
            filled[:, columns] = scoring.fill_means(
                columns_of(rows, columns), np.exp(logs), model._parameters, model._structure
            )
        return filled

    def sample_conditional(
        self, X: ArrayLike, n_samples: int | None = None, *, y: ArrayLike | None = None
    ) -> FloatArray:
        """Return the rows with every missing value drawn from its distribution given the observed ones.

        Missing values of a row are drawn together: class (unless `y` is given), kernel, values.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows; NaN marks a missing value.
        n_samples : int, default=None
            Number of independent copies of the rows to fill. None fills one and returns it without the
            leading axis.
        y : array-like of shape (n,), default=None
            Labels, where they are known.

        Returns
        -------
        ndarray of shape (n, M) or (n_samples, n, M)
            Rows, observed values untouched. Columns that are in no feature group keep their gaps.
        """
        if n_samples is not None and (
            not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1
        ):
            raise ValueError(f"n_samples must be None or an integer of at least 1, got {n_samples!r}.")
        rows, n_copies = self._rows(X), 1 if n_samples is None else int(n_samples)
        parts, random_state = self._parts(), check_random_state(self.random_state)
        if y is None:
            posterior = np.exp(scoring.log_normalise(self._joint_of_rows(rows)))
            codes = np.stack([scoring.choose(posterior, random_state) for _ in range(n_copies)])
        else:
            codes = np.tile(parts[0][1]._codes(y, len(rows)), (n_copies, 1))
        filled = np.tile(rows.astype(np.float64), (n_copies, 1, 1))
        for columns, model in parts:
            own = columns_of(rows, columns)
            kernels = self._draw_kernels(own, model, codes, random_state)
            filled[:, :, columns] = scoring.draw_missing(
                own, kernels, model._parameters, model._structure, random_state
            )
        return filled[0] if n_samples is None else filled

    def _draw_kernels(
        self,
        rows: np.ndarray,
        model: SharedKernelMixture,
        codes: IntArray,
        random_state: np.random.RandomState,
    ) -> IntArray:
        """Return the kernels (C, n) of copies of a part's rows, drawn given their classes (C, n)."""
        densities = scoring.kernel_log_densities(
            rows, model._parameters, model._structure, effective_n_jobs(self.n_jobs)
        )
        with np.errstate(divide="ignore"):
            log_weights = np.log(model.weights_.T)
        return np.stack(
            [
                scoring.choose(np.exp(scoring.log_normalise(densities + log_weights[copy])), random_state)
                for copy in codes
            ]
        )

    def marginal(self, features: Sequence[int | str]) -> Self:
        """Return the model of some features, whatever the values of the others.

        Parameters
        ----------
        features : sequence of int or str
            Columns by index or name, in the order that the new model is to have.

        Returns
        -------
        estimator
            A fitted estimator of the same kind. It has the parameters of the density but nothing that
            describes training rows, such as `log_likelihood_`; a classifier keeps its temperature, while a
            threshold for novelty, which belongs to the density of all features, is dropped.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        chosen = check_features(features, self.n_features_in_, names, "features")
        ignored = set(chosen).difference(*(columns for columns, _ in self._parts()))
        if ignored:
            raise ValueError(
                f"feature {min(ignored)} is in no feature group: the model has no density of it."
            )
        place = {column: i for i, column in enumerate(chosen)}
        parts = []
        for columns, model in self._parts():
            kept = sorted(
                (d for d in range(len(columns)) if columns[d] in place), key=lambda d: place[columns[d]]
            )
            if kept:
                structure = structure_of(model._structure)
                parameters = patterns.marginal(model._parameters, np.array(kept), structure)
                parts.append(([columns[d] for d in kept], kept, parameters))
        return derive(self, chosen, parts, self.class_prior_)

    def condition(self, given: Mapping[int | str, float]) -> Self:
        """Return the model of the other features, given values of some.

        Every class's weights become its responsibilities for the given values, and `class_prior_` becomes the
        posterior of the class, so that the new model continues where the given values leave off: its
        predictions for the other features are those of this one for complete rows.

        Parameters
        ----------
        given : mapping from int or str to float
            Known values by column index or name. At least one feature must be left.

        Returns
        -------
        estimator
            A fitted estimator of the same kind over the features that are not given, in their order. It has
            the parameters of the density but nothing that describes training rows, such as `log_likelihood_`.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        values = check_given(given, self.n_features_in_, names)
        ignored = set(values).difference(*(columns for columns, _ in self._parts()))
        if ignored:
            raise ValueError(
                f"feature {min(ignored)} is in no feature group: the model has no density of it."
            )
        row = np.full((1, self.n_features_in_), np.nan)
        row[0, list(values)] = list(values.values())
        joint = self._joint_of_rows(row)
        parts = []
        for columns, model in self._parts():
            kept = [d for d in range(len(columns)) if columns[d] not in values]
            if not kept:
                continue
            known = np.array([d for d in range(len(columns)) if columns[d] in values], dtype=np.int64)
            parameters = model._parameters
            if len(known):
                own = row[0, np.array(columns)[known]]
                parameters = scoring.condition(parameters, model._structure, known, own)
            parts.append(([columns[d] for d in kept], kept, parameters))
        if not parts:
            raise ValueError(f"given has values of all features that the model describes: {sorted(values)}.")
        left = [column for column in range(self.n_features_in_) if column not in values]
        posterior = np.exp(scoring.log_normalise(joint))[0]
        return derive(self, left, parts, posterior, float(logsumexp(joint)))
