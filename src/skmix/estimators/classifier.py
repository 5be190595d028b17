"""The classifier: Bayes' rule on class densities that share their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import reduce
from numbers import Real
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..engine.compute.arrays import namespace
from ..engine.compute.devices import here
from ..engine.density import log_normalise, log_sum
from ..engine.model import FloatArray
from ._anywhere import accuracy, works_anywhere
from ._blocks import blocks_of, fit_classifier
from ._checkpoint import CallbackSupportMixin, callbacks_of_group, checkpointed
from ._consistency import OF_ONE_MODEL
from ._decisions import Calibration, check_outlier_label, density_threshold, with_outliers
from ._densities import ConditionalDensities
from ._devices import OnDevice
from ._scoring_blocks import Checked
from ._settings import check_covariance_prior, check_distribution, check_feature_groups
from ._tuning import Tuning
from ._validation import (
    all_or_nothing,
    check_labelled_rows,
    check_rows,
    check_weights,
    class_sizes,
    columns_of,
    observed_rows,
    weighted_rows,
)
from ._variational import check_inference, is_variational
from .exporting import ExportMixin, kernels_of, log_probabilities
from .growing import GrowingClassifier
from .joint import fit_jointly
from .mixture import SharedKernelMixture
from .saving import SavingMixin

_OF_ONE_MODEL = ("n_kernels_", "shrinkage_", *OF_ONE_MODEL)


@works_anywhere
class SharedKernelClassifier(
    OnDevice,
    GrowingClassifier,
    ConditionalDensities,
    Calibration,
    Tuning,
    SavingMixin,
    ExportMixin,
    ClassifierMixin,
    CallbackSupportMixin,
    BaseEstimator,
):
    """Classifier whose classes are Gaussian mixtures over the same kernels.

    Learns p(x | j) = Σ_k π_kj N(x; μ_k, P_k) from labelled rows by the shared kernel EM algorithm (SKEM) and
    predicts the class of largest posterior probability. Sharing lets classes with few rows borrow the shape
    of the feature space from the others.

    Parameters
    ----------
    n_kernels : int, default=None
        Number K of shared kernels. None takes one for each class: fewer cannot represent them all.
    covariance_type : {'full', 'tied', 'diag', 'spherical', 'low_rank'}, default='full'
        Structure of the kernels' covariances. 'low_rank' is for many features:
        `n_factors` columns of factors W and a variance d of each feature, P = WWᵀ + diag(d).
    n_factors : int, default=None
        Number q of factors of ``covariance_type='low_rank'``. None takes twice the root of the number of
        features. One less than there are features can make any covariance, so more are never taken.
    feature_groups : list of lists of int or str, default=None
        The product form: one shared-kernel model for each group of columns, given by index or name; class
        likelihoods are multiplied. Columns in no group are ignored. None is one group of all columns.
    init : {'class', 'k-means++', 'random_from_data', 'uniform'}, dict or list of dicts, default='class'
        Starting points, see `SharedKernelMixture`; with `feature_groups`, a given start is a list of one dict
        for each group.
    n_init : int, default=1
        Number of starts, run as one batch; the best is kept.
    max_iter : int, default=200
        Largest number of passes over the data.
    tol : float, default=1e-4
        Tolerance of the stopping rule.
    stopping : {'total', 'per-class'}, default='total'
        On the mean log-likelihood per row, or the paper's rule for each class; see `SharedKernelMixture`.
    variance_floor : float, default=1e-6
        Smallest variance of a kernel in any direction, relative to each feature's variance.
    covariance_prior : {'auto'}, float, tuple or None, default='auto'
        Inverse-Wishart prior on the covariances, see `SharedKernelMixture`; with `feature_groups`, each
        group takes its block of a given covariance.
    weight_prior : float, default=None
        Concentration of a Dirichlet prior on each class's weights, see `SharedKernelMixture`.
    inference : {'em', 'variational'}, default='em'
        Whether to look for the most likely parameters or for their posterior, see `SharedKernelMixture`.
    accelerate : bool, default=False
        Whether to extrapolate between passes, see `SharedKernelMixture`.
    freeze : {'kernels', 'weights'}, default=None
        What keeps the value it has in a given start, see `SharedKernelMixture`.
    device : str, default=None
        Where to compute, see `SharedKernelMixture`.
    priors : array-like of shape (L,) or 'uniform', default=None
        Class priors, in the order of the sorted labels. None takes the training frequencies; 'uniform' gives
        the paper's maximum-likelihood rule.
    reject_below : float, default=None
        A share of the training rows, between 0 and 1: `predict` then refuses rows whose log-density log p(x)
        is below that quantile of the training rows' and returns `outlier_label` for them.
    outlier_label : default=-1
        What `predict` returns for refused rows. It must fit beside the labels: with labels that are strings,
        a string or None.
    n_jobs : int, default=None
        Number of threads; -1 uses all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the starts, of `sample` and of `sample_conditional`.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last fit.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
    class_prior_ : ndarray of shape (L,)
        Class priors used for prediction.
    class_count_ : ndarray of shape (L,)
        Number of labelled training rows of each class, or the sum of their weights.
    threshold_ : float
        Log-density below which `predict` refuses a row; minus infinity unless `reject_below` was given.
    temperature_ : float
        What log-probabilities are divided by before they are normalised; 1 unless `calibrate` or `tune` was
        called.
    tuned_ : dict
        After `tune`: the `trade_off` that was best, None where the fitted model was; how the model did on
        the held-out rows `before` and `after`, as `log_loss`, `error`, `log_likelihood` and `temperature`;
        and the same of all `rounds`. Without held-out rows, the last `trade_off`, None and None, and no
        rounds.
    models_ : list of SharedKernelMixture
        One fitted model for each feature group; a single one without groups.
    feature_groups_ : list of lists of int
        The columns of each model, as given or as found.
    n_kernels_ : int or list of int
        Number K of kernels: what was asked for, chosen or left; with feature groups, one number for each.
    covariance_type_ : str
        The covariance type asked for or chosen.
    weights_ : ndarray of shape (K, L)
        Pr(kernel k | class j). This and the following attributes exist without feature groups only; with
        groups, see `models_`.
    means_ : ndarray of shape (K, M)
        Kernel means.
    covariances_ : ndarray
        Kernel covariances: full (K, M, M), tied (M, M), diag (K, M), spherical (K,); low_rank (K, M, q + 1).
    shrinkage_ : float
        Where covariances were shrunk, the share of the common one in a kernel with an average number of rows.
    converged_ : bool
        Whether the best start met the stopping rule.
    n_iter_ : int
        Passes of the best start.
    log_likelihood_ : float
        Total log-likelihood of the training rows, each under its own class.
    log_likelihood_path_ : ndarray of shape (n_iter, L)
        Log-likelihood of each class's rows under the parameters that entered each pass.
    start_status_ : ndarray of shape (n_init,)
        How each start ended: 'converged', 'stopped' or 'failed'.
    start_log_likelihoods_ : ndarray of shape (n_init,)
        Total log-likelihood each start reached.
    lower_bound_, lower_bound_path_, weight_concentration_, mean_precision_, degrees_of_freedom_
        The posterior of a variational fit, see `SharedKernelMixture`.
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.

    See Also
    --------
    SharedKernelMixture : The density model underneath.

    References
    ----------
    G. W. Pulford, "Learning Shared Kernel Models: the Shared Kernel EM algorithm", 2020, arXiv:2205.09041.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SharedKernelClassifier(random_state=0).fit(X, y)
    >>> round(classifier.score(X, y), 2)
    0.98
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **SharedKernelMixture._parameter_constraints,
        "init": [*SharedKernelMixture._parameter_constraints["init"], list],
        "feature_groups": [list, tuple, None],
        "priors": [StrOptions({"uniform"}), "array-like", None],
        "reject_below": [Interval(Real, 0, 1, closed="neither"), None],
        "outlier_label": [object],
    }

    def __init__(
        self,
        n_kernels: int | None = None,
        *,
        covariance_type: str = "full",
        n_factors: int | None = None,
        feature_groups: Sequence[Sequence[int | str]] | None = None,
        init: str | Mapping[str, Any] | list[Mapping[str, Any]] = "class",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        stopping: str = "total",
        variance_floor: float = 1e-6,
        covariance_prior: float | str | tuple[float, ArrayLike] | None = "auto",
        weight_prior: float | None = None,
        inference: str = "em",
        accelerate: bool = False,
        freeze: str | None = None,
        device: str | None = None,
        priors: ArrayLike | str | None = None,
        reject_below: float | None = None,
        outlier_label: Any = -1,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.n_factors = n_factors
        self.feature_groups = feature_groups
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.stopping = stopping
        self.variance_floor = variance_floor
        self.covariance_prior = covariance_prior
        self.weight_prior = weight_prior
        self.inference = inference
        self.accelerate = accelerate
        self.freeze = freeze
        self.device = device
        self.priors = priors
        self.reject_below = reject_below
        self.outlier_label = outlier_label
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> SharedKernelClassifier:
        """Learn the class densities.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a missing value, taken as missing at random. Or rows in blocks: the path
            of a .npy, Parquet or Zarr file, a Zarr array, a large mapped array, or what `open_rows` returns.
        y : array-like of shape (N,)
            Class labels of any type; the number -1 marks a row without a label when there are at least two
            other labels and none of them is smaller. For rows in a file, also the name of a Parquet file's
            column, or the path of another file.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows: a row of weight two counts like two rows, one of weight zero not at all.

        Returns
        -------
        SharedKernelClassifier
            The fitted estimator.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, prune: bool = False) -> SharedKernelClassifier:
        """Fit; with `prune`, each model goes from `n_kernels` down to as many as pay for their parameters."""
        check_inference(self, prune)
        with all_or_nothing(self), checkpointed(self):
            blocks = blocks_of(self, X, y, sample_weight)
            if blocks is not None:
                return fit_classifier(self, blocks, prune=prune)
            rows, classes, codes = check_labelled_rows(self, X, y)
            weights = check_weights(sample_weight, rows)
            rows, classes, codes, weights = weighted_rows(rows, classes, codes, weights)
            if self.reject_below is not None:
                check_outlier_label(self.outlier_label, classes)
            groups = self._groups(rows.shape[1])
            models = [self._model(g, groups) for g in range(len(groups))]
            for columns, model in zip(groups, models, strict=True):
                model.n_features_in_ = len(columns)
            if len(groups) > 1 and np.any(codes < 0):
                if is_variational(self):
                    raise ValueError(
                        f"{np.sum(codes < 0)} rows have no label, and with several feature groups such rows "
                        "need inference='em'. Leave them out, or fit one group."
                    )
                fit_jointly(models, groups, rows, classes, codes, weights)
            else:
                for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
                    own, own_codes, own_weights = observed_rows(rows, codes, weights, columns, classes, group)
                    model._fit_codes(own, classes, own_codes, own_weights, columns, prune=prune)
            self._keep(models, groups, classes, class_sizes(codes, weights, len(classes)), np.all(codes >= 0))
            self._set_threshold(rows, weights)
            return self

    def _groups(self, n_features: int) -> list[list[int]]:
        """Return the columns of each model."""
        if self.feature_groups is None:
            return [list(range(n_features))]
        names = getattr(self, "feature_names_in_", None)
        return check_feature_groups(self.feature_groups, n_features, names)

    def _keep(
        self,
        models: list[SharedKernelMixture],
        groups: list[list[int]],
        classes: np.ndarray,
        sizes: FloatArray,
        labelled: bool | np.bool_,
    ) -> None:
        """Store fitted models as the classifier's own.

        A row without a value in some group still counts for its class, so sizes (L,), and the priors unless
        rows were without a label, are those of the classifier and not of any one group.
        """
        for model in models:
            model.class_count_ = sizes
            if labelled:
                model.class_prior_ = sizes / sizes.sum()
        self.classes_ = classes
        self.class_prior_ = self._prior(models[0].class_prior_)
        self.class_count_ = sizes
        self.feature_groups_ = groups
        self.models_ = models
        self.covariance_type_ = models[0].covariance_type_
        for name in _OF_ONE_MODEL:
            if len(models) == 1 and hasattr(models[0], name):
                setattr(self, name, getattr(models[0], name))
            elif hasattr(self, name):
                delattr(self, name)
        # scikit-learn expects the passes of any iterative estimator.
        self.n_iter_ = max(model.n_iter_ for model in models)
        if len(models) > 1:
            self.n_kernels_ = [model.n_kernels_ for model in models]
        self.temperature_ = 1.0
        self.threshold_ = -np.inf
        self.__dict__.pop("tuned_", None)

    def _set_threshold(self, rows: np.ndarray, weights: FloatArray | None) -> None:
        """Take the density below which rows are refused from training rows (n, M), if any are to be."""
        if self.reject_below is not None:
            densities = here(log_sum(self._joint_of_rows(rows)))
            self.threshold_ = density_threshold(densities, self.reject_below, weights)

    def _prior(self, learnt: FloatArray) -> FloatArray:
        """Return the class priors, given those (L,) that were learnt."""
        if self.priors is None:
            return learnt
        if isinstance(self.priors, str):
            return np.full(len(learnt), 1.0 / len(learnt))
        return check_distribution(self.priors, (len(learnt),), "priors")

    def _model(self, group: int, groups: list[list[int]], *, fresh: bool = False) -> SharedKernelMixture:
        """Return the unfitted model of one feature group, or the last fitted one to go on from."""
        init, n_groups = self.init, len(groups)
        if isinstance(init, list):
            if len(init) != n_groups:
                raise ValueError(f"init has {len(init)} starts, but there are {n_groups} feature groups.")
            if not all(isinstance(start, dict) for start in init):
                raise ValueError(f"init as a list must hold dicts, got {init!r}.")
            init = init[group]
        elif n_groups > 1 and not isinstance(init, str):
            raise ValueError(f"init must be a list of {n_groups} dicts, one for each feature group.")
        settings = {
            name: getattr(self, name) for name in SharedKernelMixture._get_param_names() if name != "init"
        }
        if isinstance(self.covariance_prior, tuple) and groups[group] != list(range(self.n_features_in_)):
            # Each group has its own block of the covariance.
            rows, covariance = check_covariance_prior(self.covariance_prior, self.n_features_in_)
            assert covariance is not None
            settings["covariance_prior"] = (rows, covariance[np.ix_(groups[group], groups[group])])
        if not fresh and self.warm_start and getattr(self, "feature_groups_", None) == groups:
            # A copy: should this fit fail, the last one must be left as it was.
            model: SharedKernelMixture = copy(self.models_[group]).set_params(init=init, **settings)
        else:
            model = SharedKernelMixture(init=init, **settings)
        model.set_callbacks(*callbacks_of_group(self, group, n_groups))
        return model

    def _can_fit_there(self, y: Any) -> bool:
        # Variational fits, and the product form with unlabelled rows work on the host.
        if is_variational(self):
            return False
        labels = np.asarray(y)
        return self.feature_groups is None or labels.dtype.kind not in "if" or not np.any(labels == -1)

    def _rows(self, X: ArrayLike | Checked) -> np.ndarray:
        check_is_fitted(self)
        return X.rows if isinstance(X, Checked) else check_rows(self, X, fitting=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.array_api_support = True
        return tags

    def _graph_parts(self) -> dict[str, Any]:
        return {
            "groups": [
                kernels_of(model._parameters, model.covariance_type_, columns, by_class=True)
                for columns, model in self._parts()
            ],
            "log_prior": log_probabilities(self.class_prior_),
            "labels": self.classes_,
            "temperature": float(getattr(self, "temperature_", 1.0)),
            "probabilities": "probabilities",
        }

    def class_log_likelihood(self, X: ArrayLike) -> FloatArray:
        """Return log p(x | class j) for each row and class.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.

        Returns
        -------
        ndarray of shape (n, L)
            Log-densities, columns in the order of `classes_`; with feature groups, summed over them.
        """
        return self._class_log_likelihood(self._rows(X))

    def _class_log_likelihood(self, rows: np.ndarray) -> FloatArray:
        parts = (model._class_log_likelihood(columns_of(rows, columns)) for columns, model in self._parts())
        return reduce(add, parts)

    def _parts(self) -> list[tuple[list[int], SharedKernelMixture]]:
        return list(zip(self.feature_groups_, self.models_, strict=True))

    def _log_joint(self, X: ArrayLike) -> FloatArray:
        """Return log Pr(class j) + log p(x | class j), shape (n, L)."""
        return self._joint_of_rows(self._rows(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Return the logarithms of the posterior probabilities Pr(class j | x).

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.

        Returns
        -------
        ndarray of shape (n, L)
            Log-posteriors, columns in the order of `classes_`; divided by `temperature_` before they are
            normalised.
        """
        return log_normalise(self._log_joint(X) / self.temperature_)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        logs = self.predict_log_proba(X)
        return namespace(logs).exp(logs)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class (n,) of each row of X (n, M); `outlier_label` for refused rows."""
        joint = self._log_joint(X)
        labels = self.classes_[here(namespace(joint).argmax(joint, axis=1))]
        if self.threshold_ == -np.inf:
            return labels
        return with_outliers(labels, here(log_sum(joint)) < self.threshold_, self.outlier_label)

    def score(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the share of rows X (n, M) whose label y (n,) is predicted, or of their weight (n,)."""
        return accuracy(self, X, y, sample_weight)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x) under the class priors, shape (n,), of rows X (n, M): low for novel rows."""
        return log_sum(self._log_joint(X))

    def sample(self, n_samples: int = 1, label: Any = None) -> tuple[FloatArray, np.ndarray]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number n of rows.
        label : default=None
            Class to draw from; None draws classes by `class_prior_`.

        Returns
        -------
        X : ndarray of shape (n, M)
            Rows; columns that are in no feature group are NaN.
        y : ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self)
        # Its own seed, which may have been set after the fit that made the models of the groups.
        random_state = check_random_state(self.random_state)
        codes = self.models_[0]._draw_codes(n_samples, label, self.class_prior_, random_state)
        X = np.full((len(codes), self.n_features_in_), np.nan)
        for columns, model in self._parts():
            X[:, columns] = model._draw_rows(codes, random_state)
        return X, self.classes_[codes]

    def bic(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the Bayesian information criterion on rows X (n, M) with labels y (n,); lower is better."""
        rows = self._rows(X)
        return sum(model._bic(columns_of(rows, columns), y) for columns, model in self._parts())

    def aic(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the Akaike information criterion on rows X (n, M) with labels y (n,); lower is better."""
        rows = self._rows(X)
        return sum(model._aic(columns_of(rows, columns), y) for columns, model in self._parts())
