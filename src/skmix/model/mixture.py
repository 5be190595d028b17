"""The density model: one mixture per class, all over the same kernels."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions

from ..engine.numbers import safe_log
from ..engine.records import FloatArray, IntArray
from . import densities
from .base import SharedKernelBase
from .docs import documented_model
from .exporting import whitened_kernels
from .fitted import parameters_of
from .rows import score_rows


@documented_model
class SharedKernelMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, SharedKernelBase):
    """Gaussian mixtures, one per class, that share their kernels.

    The density of class j is p(x | j) = Σ_k π_kj N(x; μ_k, P_k): classes differ in their weights and share
    the kernels. Without labels, there is one class, and the model is an ordinary Gaussian mixture.

    Parameters
    ----------
    {parameters}
    group_shift : float or 'auto', default=None
        Strength r of the prior on shifts of the means between classes, which are then groups such as samples
        or sites, in rows; None has no shifts. Group j has the means μ_k + δ_kj, with the prior N(0, P_k / r)
        of δ_kj: m rows of a group move the mean of a kernel m / (m + r) of the way to their mean. 'auto'
        chooses r, or no shifts, by held-out rows.
        When to change: if batch effects move the same population in each sample.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Sorted class labels; ``[0]`` if fitted without labels.
    class_prior_ : ndarray of shape (L,)
        Share of each class among the training rows; estimated if some rows are unlabelled.
    n_kernels_ : int
        Number K of kernels.
    covariance_prior_ : tuple of float and ndarray of shape (M, M) or (M,)
        With ``covariance_prior='auto'`` or ``'weak'``: strength of the prior in rows, and the common
        covariance, or its diagonal for diagonal and spherical kernels.
    resolution_ : ndarray of shape (M,)
        With a `covariance_prior`: smallest variance that each feature resolves, zero if unknown; in a stream,
        the finest of all batches.
    variance_floor_ : ndarray of shape (M,)
        With a `covariance_prior`: smallest variance of a kernel in each feature.
    {fitted}
    group_shifts_ : ndarray of shape (L, K, M)
        With a `group_shift`: shifts to add to `means_` in each group.
    group_shift_ : float
        With a `group_shift`: its strength r; infinite if 'auto' found that shifts do not help.

    See Also
    --------
    SharedKernelMixtureCV : Chooses the number of kernels and the covariance type.
    SharedKernelClassifier : Classifier based on this model.
    GaussianMixture : Drop-in replacement for scikit-learn's mixture on the same engine.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [4.9]])
    >>> y = np.array(["a", "a", "b", "b", "b", "a"])
    >>> model = SharedKernelMixture(n_kernels=2, init="k-means", random_state=0).fit(X, y)
    >>> np.sort(model.means_.ravel()).round(1)
    array([0.1, 5. ])
    """

    weights_: FloatArray
    means_: FloatArray
    covariances_: FloatArray
    covariance_type_: str

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **SharedKernelBase._parameter_constraints,
        "group_shift": [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"}), None],
    }

    def __init__(
        self,
        n_kernels: int | None = None,
        *,
        covariance_type: str | tuple[str, int] = "auto",
        tail: str | tuple[str, float] | None = None,
        init: Any = "auto",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float | str | tuple[str, float] = "auto",
        variance_floor: float = 1e-6,
        covariance_prior: float | str | tuple[float, ArrayLike] | None = "auto",
        weight_prior: float | str | None = None,
        group_shift: float | str | None = None,
        inference: str = "em",
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.tail = tail
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.variance_floor = variance_floor
        self.covariance_prior = covariance_prior
        self.weight_prior = weight_prior
        self.group_shift = group_shift
        self.inference = inference
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    _parameters = property(parameters_of)

    @property
    def _n_features_out(self) -> int:
        return int(self.means_.shape[0])

    def _graph_parts(self) -> dict[str, Any]:
        if densities.has_shifts(self):
            raise ValueError(
                "to_onnx cannot be combined with group_shift: groups of this mixture differ in their means, "
                "but the graph has common means. Fit without group_shift."
            )
        parameters = self._parameters
        columns = list(range(parameters.means.shape[1]))
        return {
            "feature_sets": [whitened_kernels(parameters, self.covariance_type_, columns, by_class=False)],
            "log_prior": safe_log(parameters.weights @ self.class_prior_),
            "probabilities": "responsibilities",
        }

    def predict(self, X: ArrayLike, *, groups: ArrayLike | None = None) -> IntArray:
        """Return the most probable kernel (n,) of each row of X (n, M); see `predict_proba`."""
        return score_rows(self, X, densities.most_likely_kernel, groups, name="groups")

    def predict_proba(self, X: ArrayLike, *, groups: ArrayLike | None = None) -> FloatArray:
        """Return the responsibilities: the probability of each kernel for each row.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts.
        groups : array-like of shape (n,), default=None
            Class labels of the rows, whose weights, and shifted means with `group_shift`, are used. Without
            them, probabilities are averaged over classes.

        Returns
        -------
        ndarray of shape (n, K)
            Probabilities; each row sums to one.
        """
        return score_rows(self, X, densities.responsibilities, groups, name="groups")

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> IntArray:
        """Fit the mixture and return the most probable kernel (N,) of each row of X (N, M); see `fit`."""
        return self.fit(X, y, sample_weight).predict(X)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the probabilities (n, K) of the kernels for rows X (n, M), as features."""
        return score_rows(self, X, densities.responsibilities)

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the log-density (n,) of rows X (n, M): log p(x | y), or log p(x) without labels y (n,).

        It is the density of the features: numbers on the scale of the model, not in the units of a file, and
        categories as 0/1 features; see `preparation_`. A row without any value has a log-density of 0. Labels
        that `open_rows` was given count, but not the names of files.
        """
        scores: FloatArray = self._labelled(X, y).scores(densities.log_density)
        return scores

    score = densities.CriteriaMixin.score
