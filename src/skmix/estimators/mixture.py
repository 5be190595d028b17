"""The density model: one mixture for each class, all over the same kernels."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..engine.compute.arrays import like, namespace
from ..engine.compute.devices import here
from ..engine.covariances import COVARIANCE_TYPES, structure_of
from ..engine.density import class_log_likelihood, draw, log_sum
from ..engine.model import FloatArray, IntArray, Parameters, Result, Status
from ..engine.refine.prune import living_kernels
from ._anywhere import works_anywhere
from ._blocks import blocks_of, fit_mixture
from ._checkpoint import CallbackSupportMixin, checkpointed
from ._densities import ConditionalDensities
from ._devices import OnDevice
from ._scoring_blocks import Checked
from ._solving import Solving
from ._validation import (
    all_or_nothing,
    check_labelled_rows,
    check_rows,
    check_weights,
    class_sizes,
    weighted_rows,
)
from ._variational import check_inference, is_variational, store_posterior
from ._warnings import warn_caller
from .exporting import ExportMixin, kernels_of, log_probabilities
from .growing import GrowingMixture
from .saving import SavingMixin

_STARTS = {"class", "k-means++", "random_from_data", "uniform"}


@works_anywhere
class SharedKernelMixture(
    OnDevice,
    Solving,
    GrowingMixture,
    ConditionalDensities,
    SavingMixin,
    ExportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    DensityMixin,
    CallbackSupportMixin,
    BaseEstimator,
):
    """Gaussian mixtures, one for each class, that share their kernels.

    The density of class j is p(x | j) = Σ_k π_kj N(x; μ_k, P_k): the weights are the class's own, the kernels
    are everybody's. Without labels there is one class, and this is the ordinary Gaussian mixture.

    Parameters
    ----------
    n_kernels : int, default=None
        Number K of shared kernels. None takes one for each class, or those of a given start.
    covariance_type : {'full', 'tied', 'diag', 'spherical', 'low_rank'}, default='full'
        Structure of the kernels' covariances. 'low_rank' is for many features:
        `n_factors` columns of factors W and a variance d of each feature, P = WWᵀ + diag(d).
    n_factors : int, default=None
        Number q of factors of ``covariance_type='low_rank'``. None takes twice the root of the number of
        features. One less than there are features can make any covariance, so more are never taken.
    init : {'class', 'k-means++', 'random_from_data', 'uniform'} or dict, default='class'
        Starting points. 'class' seeds kernels by k-means++ inside each class, 'k-means++' among all rows;
        'random_from_data' takes random rows; 'uniform' is the paper's: means uniform on [0, 1], covariances
        0.3·I. A dict with `means` (K, M) and optionally `covariances` and `weights` (K, L) is used as it is.
    n_init : int, default=1
        Number of starts, run as one batch; the best is kept.
    max_iter : int, default=200
        Largest number of passes over the data.
    tol : float, default=1e-4
        Tolerance of the stopping rule.
    stopping : {'total', 'per-class'}, default='total'
        'total' stops when the mean log-likelihood per row changes by less than `tol`. 'per-class' is the
        paper's rule: a class latches when the log-likelihood of its rows changes by less than `tol`, and the
        fit ends when all have (the paper uses ``tol=0.1``).
    variance_floor : float, default=1e-6
        Smallest variance of a kernel in any direction, relative to each feature's variance. It is a bound,
        not an addition: kernels above it are untouched, and the likelihood still never falls. Zero removes
        it.
    covariance_prior : {'auto'}, float, tuple or None, default='auto'
        Inverse-Wishart prior on the kernels' covariances. None is maximum likelihood. A number is the
        strength of the prior in rows; its covariance is then that of the features over K^(2/M). A pair
        (rows, covariance of shape (M, M)) gives both. 'auto' is None where kernels have enough rows for
        covariances of their own; where they have fewer than 3 M (full) or 3 (q + 1) (low_rank) rows on
        average, covariances are shrunk towards the one that kernels have in common. It is found by a first
        fit, with one covariance for all (full) or as they are (diag, low_rank), and the strength is that of
        the highest marginal likelihood. 'auto' never shrinks tied and spherical covariances, with `freeze`,
        in a variational fit or in `partial_fit`.
    weight_prior : float, default=None
        Concentration of a Dirichlet prior on each class's weights: at least 1 for EM, where None is none; any
        positive number for a variational fit, where None is 1 / K.
    inference : {'em', 'variational'}, default='em'
        'em' looks for the most likely parameters. 'variational' looks for their posterior under priors that
        count imagined rows, by mean-field variational Bayes; `n_kernels` is then the most there can be.
        Kernels that explain less than one row are left out. Densities are those of the expected weights and
        means and the inverse expected precisions. There is always a prior on covariances, by default of
        M + 2 rows (3 where features do not vary together).
    accelerate : bool, default=False
        Whether to extrapolate between passes (SQUAREM), which needs a fraction of the passes where kernels
        overlap. The likelihood still never falls.
    freeze : {'kernels', 'weights'}, default=None
        What keeps the value it has in a given start: means and covariances, so that weights alone are fitted,
        or the weights.
    device : str, default=None
        Where to compute: the name of a PyTorch device, such as 'cuda' or 'cuda:1', to which NumPy rows are
        sent; results come back as NumPy arrays. None computes where the rows are: on the CPU, or, under
        scikit-learn's ``array_api_dispatch``, on the device of a PyTorch, CuPy or JAX array. Rows with
        missing values stay on the CPU. Sums over rows are of float64; 'cuda/float32' and 'cuda/tf32' take
        single precision, which keeps about five digits of means and covariances, or TF32, which keeps two to
        three. Sums over chunks and the M-step are of float64 always.
    n_jobs : int, default=None
        Number of threads; -1 uses all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the starts, of `sample` and of `sample_conditional`.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last fit.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted; ``[0]`` when fitted without labels.
    weights_ : ndarray of shape (K, L)
        Pr(kernel k | class j).
    means_ : ndarray of shape (K, M)
        Kernel means.
    covariances_ : ndarray
        Kernel covariances: full (K, M, M), tied (M, M), diag (K, M), spherical (K,); low_rank (K, M, q + 1),
        factors and, as the last column, variances.
    class_prior_ : ndarray of shape (L,)
        Share of each class among the training rows, estimated where rows have no label.
    class_count_ : ndarray of shape (L,)
        Number of labelled training rows of each class, or the sum of their weights.
    converged_ : bool
        Whether the best start met the stopping rule.
    n_iter_ : int
        Passes of the best start.
    log_likelihood_ : float
        Total log-likelihood of the training rows, each under its own class, of the best start; with rows that
        have no label, that of rows and labels together.
    log_likelihood_path_ : ndarray of shape (n_iter, L)
        Log-likelihood of each class's rows under the parameters that entered each pass; with unlabelled rows,
        theirs in one more column. Of a variational fit, its expectation under the posterior.
    lower_bound_ : float
        Of a variational fit: lower bound of the log-evidence, the probability of rows given labels with all
        parameters integrated out. The start with the highest is kept.
    lower_bound_path_ : ndarray of shape (n_iter,)
        Of a variational fit: the bound after each pass. It never falls, but between rounds of annihilation.
    weight_concentration_ : ndarray of shape (K, L)
        Of a variational fit: posterior of the weights, a Dirichlet distribution for each class.
    mean_precision_ : ndarray of shape (K,)
        Of a variational fit: the mean of kernel k has the posterior N(means_[k], P_k / mean_precision_[k]).
    degrees_of_freedom_ : ndarray of shape (K,)
        Of a variational fit: the posterior of P_k's inverse is Wishart's with these, and with the inverse of
        ``covariances_[k]`` as its mean.
    start_status_ : ndarray of shape (n_init,)
        How each start ended: 'converged', 'stopped' (at `max_iter`) or 'failed'.
    start_log_likelihoods_ : ndarray of shape (n_init,)
        Total log-likelihood each start reached.
    n_kernels_ : int
        Number K of kernels: what was asked for, chosen or left.
    covariance_type_ : str
        The covariance type asked for or chosen.
    shrinkage_ : float
        Where covariances were shrunk, the share of the common one in a kernel with an average number of rows.
    covariance_prior_ : tuple of float and ndarray of shape (M, M)
        Where covariances were shrunk, the prior that did it, as `covariance_prior` would have it: how many
        rows it is worth, and the common covariance.
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.

    See Also
    --------
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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [Interval(Integral, 1, None, closed="left"), None],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "n_factors": [Interval(Integral, 1, None, closed="left"), None],
        "init": [StrOptions(_STARTS), dict],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "stopping": [StrOptions({"total", "per-class"})],
        "variance_floor": [Interval(Real, 0.0, None, closed="left")],
        "covariance_prior": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither"), tuple, None],
        "weight_prior": [Interval(Real, 0.0, None, closed="neither"), None],
        "inference": [StrOptions({"em", "variational"})],
        "accelerate": ["boolean"],
        "freeze": [StrOptions({"kernels", "weights"}), None],
        "device": [str, None],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        n_kernels: int | None = None,
        *,
        covariance_type: str = "full",
        n_factors: int | None = None,
        init: str | Mapping[str, Any] = "class",
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
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.n_factors = n_factors
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
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> SharedKernelMixture:
        """Fit the mixture, by EM unless `inference` says otherwise.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a missing value, taken as missing at random. Or rows in blocks: the path
            of a .npy, Parquet or Zarr file, a Zarr array, a large mapped array, or what `open_rows` returns.
        y : array-like of shape (N,), default=None
            Class labels of any type; the number -1 marks a row without a label when there are at least two
            other labels and none of them is smaller. None fits an ordinary mixture. For rows in a file, also
            the name of a Parquet file's column, or the path of another file.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows: a row of weight two counts like two rows, one of weight zero not at all.

        Returns
        -------
        SharedKernelMixture
            The fitted estimator.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, prune: bool = False) -> SharedKernelMixture:
        """Fit; with `prune`, from `n_kernels` down to as many as pay for their parameters."""
        check_inference(self, prune)
        with all_or_nothing(self), checkpointed(self):
            blocks = blocks_of(self, X, y, sample_weight)
            if blocks is not None:
                return fit_mixture(self, blocks, prune=prune)
            if y is None:
                rows = check_rows(self, X, fitting=True)
                classes, codes = np.zeros(1, dtype=np.int64), np.zeros(rows.shape[0], dtype=np.int64)
            else:
                rows, classes, codes = check_labelled_rows(self, X, y)
            given = weighted_rows(rows, classes, codes, check_weights(sample_weight, rows))
            return self._fit_codes(*given, prune=prune)

    def _fit_codes(
        self,
        X: np.ndarray,
        classes: np.ndarray,
        codes: IntArray,
        row_weights: FloatArray | None = None,
        columns: list[int] | None = None,
        *,
        prune: bool = False,
    ) -> SharedKernelMixture:
        """Fit on validated rows whose class is an index into `classes`, −1 for none.

        Weights are positive; `columns` are for error messages.
        """
        result, class_prior = self._solve(X, classes, codes, row_weights, columns, prune=prune)
        self._accept(result, class_prior, classes, prune=prune)
        self.class_count_ = class_sizes(codes, row_weights, len(classes))
        self.__dict__.pop("stream_", None)
        return self

    def _accept(
        self, result: Result, class_prior: FloatArray, classes: np.ndarray, *, prune: bool = False
    ) -> None:
        """Store the best start."""
        if np.all(result.status == Status.FAILED):
            raise ValueError(
                f"All {len(result.status)} starts ended in a singular covariance, with variance_floor="
                f"{self.variance_floor}. Use a larger one (1e-6 by default), a covariance_prior or another "
                "start."
            )
        best = result.best
        parameters = result.parameters.take(best)
        if prune or is_variational(self):
            parameters = living_kernels(parameters, structure_of(self.covariance_type))
        if parameters.class_prior is not None:
            class_prior = parameters.class_prior
        self.covariance_type_ = self.covariance_type
        self.n_kernels_ = len(parameters.means)
        self.classes_ = classes
        self.class_prior_ = class_prior
        self.weights_ = parameters.weights
        self.means_ = parameters.means
        self.covariances_ = parameters.covariances
        self.converged_ = bool(result.status[best] == Status.CONVERGED)
        self.n_iter_ = int(result.n_iter[best])
        self.log_likelihood_ = float(result.log_likelihood[best].sum())
        self.log_likelihood_path_ = result.path[best]
        self.start_status_ = np.array([Status(s).name.lower() for s in result.status])
        self.start_log_likelihoods_ = result.log_likelihood.sum(axis=1)
        store_posterior(self, result, best)
        if not self.converged_:
            warn_caller(
                f"The best of {len(result.status)} starts did not converge in {self.n_iter_} passes. "
                f"Increase max_iter ({self.max_iter}) or tol ({self.tol}).",
                ConvergenceWarning,
            )

    @property
    def _parameters(self) -> Parameters:
        return Parameters(self.weights_, self.means_, self.covariances_)

    def _graph_parts(self) -> dict[str, Any]:
        columns = list(range(self.n_features_in_))
        return {
            "groups": [kernels_of(self._parameters, self.covariance_type_, columns, by_class=False)],
            "log_prior": log_probabilities(self.weights_ @ self.class_prior_),
            "labels": None,
            "temperature": 1.0,
            "probabilities": "responsibilities",
        }

    @property
    def _structure(self) -> str:
        """The covariance type that was fitted."""
        return getattr(self, "covariance_type_", self.covariance_type)

    def _parts(self) -> list[tuple[list[int], SharedKernelMixture]]:
        return [(list(range(self.means_.shape[1])), self)]

    @property
    def _n_features_out(self) -> int:
        return self.means_.shape[0]

    def _can_fit_there(self, y: Any) -> bool:
        # Variational fits work on the host.
        return not is_variational(self)

    def _rows(self, X: ArrayLike | Checked) -> np.ndarray:
        check_is_fitted(self)
        return X.rows if isinstance(X, Checked) else check_rows(self, X, fitting=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.array_api_support = True
        return tags

    def _codes(self, y: ArrayLike, n_rows: int) -> IntArray:
        """Return labels as indices into `classes_`; refuse labels never seen in training."""
        labels = column_or_1d(y)
        if len(labels) != n_rows:
            raise ValueError(f"X has {n_rows} rows but y has {len(labels)} labels.")
        try:
            unknown = np.setdiff1d(labels, self.classes_)
        except TypeError as error:
            raise ValueError(
                f"y has labels that cannot be compared with those of the fit: {error}."
            ) from None
        if len(unknown):
            raise ValueError(
                f"y has labels that no training row had: {unknown[:5].tolist()}; "
                f"known are {self.classes_.tolist()}."
            )
        return np.searchsorted(self.classes_, labels)

    def class_log_likelihood(self, X: ArrayLike) -> FloatArray:
        """Return log p(x | class j) for each row and class.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.

        Returns
        -------
        ndarray of shape (n, L)
            Log-densities, columns in the order of `classes_`.
        """
        return self._class_log_likelihood(self._rows(X))

    def _class_log_likelihood(self, rows: np.ndarray) -> FloatArray:
        return class_log_likelihood(
            rows, self._parameters, self.covariance_type_, effective_n_jobs(self.n_jobs)
        )

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows.
        y : array-like of shape (n,), default=None
            Labels: with them, log p(x | y); without, log p(x) under `class_prior_`.

        Returns
        -------
        ndarray of shape (n,)
            Log-densities.
        """
        return self._score_rows(self._rows(X), y)

    def _score_rows(self, rows: np.ndarray, y: ArrayLike | None) -> FloatArray:
        if y is None:
            return log_sum(self._joint_of_rows(rows))
        per_class = self._class_log_likelihood(rows)
        codes = like(self._codes(y, per_class.shape[0]), per_class)
        return namespace(per_class).take_along_axis(per_class, codes[:, None], axis=1)[:, 0]

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows; see `score_samples`."""
        return float(np.mean(here(self.score_samples(X, y))))

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the responsibilities (n, K) of unlabelled rows, as features for another estimator."""
        return self.responsibilities(X)

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
            Rows.
        y : ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self)
        random_state = check_random_state(self.random_state)
        codes = self._draw_codes(n_samples, label, self.class_prior_, random_state)
        return self._draw_rows(codes, random_state), self.classes_[codes]

    def _draw_codes(
        self, n_samples: int, label: Any, class_prior: FloatArray, random_state: np.random.RandomState
    ) -> IntArray:
        """Return the classes of rows to draw."""
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        if label is None:
            return random_state.choice(len(self.classes_), n_samples, p=class_prior)
        return np.repeat(self._codes([label], 1), n_samples)

    def _draw_rows(self, codes: IntArray, random_state: np.random.RandomState) -> FloatArray:
        """Draw one row of each given class."""
        return draw(self._parameters, self.covariance_type_, codes, random_state)[0]

    def _n_parameters(self) -> int:
        """Return the number of free parameters: means, covariances, and K − 1 weights a class."""
        n_kernels, n_features = self.means_.shape
        structure = structure_of(self.covariance_type_).of(self.covariances_)
        covariances = structure.n_parameters(n_kernels, n_features)
        return covariances + n_kernels * n_features + (n_kernels - 1) * len(self.classes_)

    def bic(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the Bayesian information criterion on rows X (n, M) with labels y (n,); lower is better."""
        scores = self.score_samples(X, y)
        return float(-2.0 * scores.sum() + self._n_parameters() * np.log(len(scores)))

    def _bic(self, rows: np.ndarray, y: ArrayLike | None) -> float:
        return float(-2.0 * self._score_rows(rows, y).sum() + self._n_parameters() * np.log(len(rows)))

    def aic(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the Akaike information criterion on rows X (n, M) with labels y (n,); lower is better."""
        return float(-2.0 * self.score_samples(X, y).sum() + 2.0 * self._n_parameters())

    def _aic(self, rows: np.ndarray, y: ArrayLike | None) -> float:
        return float(-2.0 * self._score_rows(rows, y).sum() + 2.0 * self._n_parameters())
