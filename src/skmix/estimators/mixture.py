"""The density model: one mixture for each class, all over the same kernels."""

from __future__ import annotations

from functools import wraps
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin, _fit_context
from sklearn.utils.validation import check_is_fitted

from ..engine.compute.arrays import on_host
from ..engine.compute.dask import is_collection
from ..engine.model import FloatArray, IntArray, Parameters
from . import densities, streams
from .base import SharedKernelBase, documented
from .callbacks import Monitor, checkpoint_paths
from .io import kernels_of, log_probabilities, savable
from .rows import open_training, score_rows, updating
from .solving import check_inference, fit_model


@savable
@documented
class SharedKernelMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, SharedKernelBase):
    """Gaussian mixtures, one for each class, that share their kernels.

    The density of class j is p(x | j) = Σ_k π_kj N(x; μ_k, P_k): each class has its own weights, and all
    classes have the kernels in common. Without labels there is one class, and this is the ordinary Gaussian
    mixture.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted; ``[0]`` when fitted without labels.
    class_prior_ : ndarray of shape (L,)
        Share of each class among the training rows, estimated where rows have no label.
    class_count_ : ndarray of shape (L,)
        Number of labelled training rows of each class, or the sum of their weights.
    n_kernels_ : int
        Number K of kernels.
    covariance_type_ : str
        The covariance type that was fitted.
    covariance_prior_ : tuple of float and ndarray of shape (M, M)
        Where covariances were shrunk, the prior that did it: its strength in rows, and the common covariance.
    {fitted}
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.

    See Also
    --------
    SharedKernelMixtureCV : Chooses the number of kernels and the covariance type.
    SharedKernelClassifier : The classifier made of it.
    GaussianMixture : Drop-in for scikit-learn's mixture on the same engine.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [4.9]])
    >>> y = np.array(["a", "a", "b", "b", "b", "a"])
    >>> model = SharedKernelMixture(n_kernels=2, random_state=0).fit(X, y)
    >>> np.sort(model.means_.ravel()).round(1)
    array([0.1, 5. ])
    """

    weights_: FloatArray
    means_: FloatArray
    covariances_: FloatArray
    covariance_type_: str

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> SharedKernelMixture:
        """Fit the mixture, by EM unless `inference` says otherwise.

        Parameters
        ----------
        {rows}

        Returns
        -------
        SharedKernelMixture
            The fitted estimator.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, prune: bool = False) -> SharedKernelMixture:
        """Fit; with `prune`, from `n_kernels` down to as many as pay for their parameters."""
        check_inference(self, prune=prune)
        (path,) = checkpoint_paths(self, 1)
        with updating(self, X):
            training = open_training(self, X, y, sample_weight)
            monitor = Monitor(self, X, y, sample_weight, 1, None if prune else self.max_iter)

            def attributes(parameters: Parameters, log_likelihood: float) -> dict[str, Any]:
                return self._fitted_attributes(parameters, log_likelihood, training)

            fit_model(self, training, monitor=monitor, attributes=attributes, path=path, prune=prune)
            monitor.close()
        if path is not None:
            path.unlink(missing_ok=True)
        return self

    def _fitted_attributes(
        self, parameters: Parameters, log_likelihood: float, training: Any
    ) -> dict[str, Any]:
        """Return the attributes of a mixture that is fitted as far as a pass has come."""
        prior = parameters.class_prior
        return {
            "classes_": training.classes,
            "class_prior_": training.class_prior if prior is None else prior,
            "class_count_": training.sizes,
            "covariance_type_": self.covariance_type,
            "weights_": parameters.weights,
            "means_": parameters.means,
            "covariances_": parameters.covariances,
            "n_kernels_": len(parameters.means),
            "log_likelihood_": log_likelihood,
        }

    def _absorb(self, X: Any, y: Any, classes: Any, sample_weight: Any, decay: Any) -> None:
        with updating(self, X):
            streams.absorb_batch(self, streams.read_batch(self, X, y, classes, sample_weight), decay)

    @_fit_context(prefer_skip_nested_validation=True)
    def add_class(self, X: ArrayLike, label: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn one more class without touching the kernels, or any other class.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows of the new class.
        label : int, str, …
            Its label, of the kind of the others.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        SharedKernelMixture
            The estimator with one more class. Its prior is its share of all labelled rows.
        """
        check_is_fitted(self)
        with updating(self, X):
            place = streams.place_of_label(self.classes_, label)
            rows = streams.rows_of_class(self, on_host(X), sample_weight)
            streams.insert_class(self, *rows, label, place)
        return self

    @property
    def _parameters(self) -> Parameters:
        return Parameters(self.weights_, self.means_, self.covariances_)

    def _store_parameters(self, parameters: Parameters) -> None:
        """Set weights, means and covariances."""
        self.weights_ = parameters.weights
        self.means_ = parameters.means
        self.covariances_ = parameters.covariances
        self.n_kernels_ = len(parameters.means)

    def _parts(self) -> list[tuple[list[int], Any]]:
        return [(list(range(self.means_.shape[1])), self)]

    @property
    def _n_features_out(self) -> int:
        return int(self.means_.shape[0])

    def _graph_parts(self) -> dict[str, Any]:
        columns = list(range(self.n_features_in_))
        return {
            "groups": [kernels_of(self._parameters, self.covariance_type_, columns, by_class=False)],
            "log_prior": log_probabilities(self.weights_ @ self.class_prior_),
            "labels": None,
            "temperature": 1.0,
            "probabilities": "responsibilities",
        }

    def predict(self, X: ArrayLike) -> IntArray:
        """Return the most probable kernel (n,) of each row of X (n, M)."""
        kernels: IntArray = score_rows(self, X, densities.most_likely_kernel)
        return kernels

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the probability (n, K) that each row of X (n, M) came from each kernel."""
        return self.responsibilities(X)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> IntArray:
        """Fit the mixture and return the most probable kernel (N,) of each row of X (N, M); see `fit`."""
        return self.fit(X, y, sample_weight).predict(X)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the responsibilities (n, K) of rows X (n, M), as features for another estimator."""
        return self.responsibilities(X)

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` takes. A row without any value has a log-density of 0.
        y : array-like of shape (n,), default=None
            Labels: with them, log p(x | y); without, log p(x) under `class_prior_`.

        Returns
        -------
        ndarray of shape (n,)
            Log-densities.
        """
        values: FloatArray = score_rows(self, X, densities.log_density, y)
        return values

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows; see `score_samples`."""
        return float(np.mean(self._scores(X, y)))


def _lazy(method: Any) -> Any:
    """Return a method that `set_output` leaves alone for Dask collections, which it would compute."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        return (method.__wrapped__ if is_collection(X) else method)(self, X, *args, **kwargs)

    return call


SharedKernelMixture.transform = _lazy(SharedKernelMixture.transform)  # type: ignore[method-assign]
SharedKernelMixture.fit_transform = _lazy(SharedKernelMixture.fit_transform)
