"""The density model: one mixture per class, all over the same kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions

from ..engine.numbers import safe_log
from ..engine.records import FloatArray, IntArray
from . import densities
from .base import SharedKernelBase
from .fitted import parameters_of
from .given import fitted_of, note_features, parameters_in
from .rows import score_rows

Estimator = TypeVar("Estimator", bound=type)

_PARAMETERS = """
    n_kernels : int, default=None
        Number K of shared kernels. None takes √(n / 2p) for n rows and p parameters of a kernel, at least 1
        and at most 50; in a classifier, that many per class, with n the geometric mean over classes.
        When to change: if you know how many clusters to expect; or let `SharedKernelClassifierCV` or
        `SharedKernelMixtureCV` choose.
    covariance_type : {'auto', 'full', 'tied', 'diag', 'spherical'}, default='auto'
        Structure of the covariances. 'auto' is 'full', or 'diag' with more than 500 features and fewer rows
        than features.
        When to change: to 'diag' or 'tied' for few rows.
    tail : 't' or None, default=None
        Tails of the kernels: None has Gaussian kernels, 't' has Student's t kernels, whose `covariances_` are
        scale matrices. When to change: to 't' for heavy tails, debris and wrong measurements.
    degrees : float, default=None
        Degrees of freedom of t kernels, at least 1. None learns them.
        When to change: to 4, say, if rows are too few to learn them.
    init : {'auto', 'class', 'k-means', 'random_from_data', 'uniform'} or dict, default='auto'
        Starting points. 'auto' is 'class' (k-means++ in each class) in a classifier, else 'k-means': on a
        sample if there are many rows, then refined by passes over samples. A dict has `means` (K, M) and
        optionally `covariances`, and `weights` (K, L), or (K,) without labels. A classifier with
        `feature_sets` takes a list of dicts. A fitted estimator, such as one that a callback has saved, goes
        on from its parameters and its prior; in a grid search, wrap it in scikit-learn's FrozenEstimator.
        When to change: to a dict if you know where kernels are.
    freeze : {'kernels', 'weights'} or None, default=None
        What keeps the values given by `init`: the means and covariances, or the weights.
        When to change: to 'kernels' to learn the weights of known kernels in new classes.
    n_init : int, default=1
        Number of starts, which run as one batch; the best is kept.
        When to change: to 5 to 20 if the density or the clusters matter; a classifier rarely benefits.
    max_iter : int, default=200
        Largest number of passes over all rows; those over samples, which refine a start, do not count.
        When to change: increase it after a ConvergenceWarning.
    tol : float or 'auto', default='auto', in a classifier 3e-4
        The fit stops once the mean log-likelihood per row changes by less. 'auto' stops once a pass gains
        less than one in all, or 0.001 for each parameter, but at no less than 3e-4 and no more than 1e-3 per
        row. When to change: decrease it to compare parameters between fits, increase it for a quick look.
    stopping : {'total', 'per-class'}, default='total'
        'per-class' is the paper's rule: a class counts as converged, and stays so, once the log-likelihood of
        all its rows changes by less than `tol`; the fit ends when all classes have converged.
        When to change: to repeat the paper, with ``tol=0.1``.
    variance_floor : float, default=1e-6
        Smallest variance of a kernel in any direction, relative to the variances of the features. It is a
        bound, not an addition, so the likelihood never decreases. Zero removes it.
        When to change: increase it if kernels collapse onto a few equal rows and there is no prior.
    covariance_prior : {'auto', 'weak'}, float, tuple or None, default='auto'
        Inverse-Wishart prior on covariances. A number is its strength in rows; a pair (rows, covariance)
        gives both; None is maximum likelihood. 'auto' chooses the strength from the data, a stronger one if
        kernels have few rows; 'weak' takes a hundredth of it. Every prior also raises the variance floor to
        the resolution of each feature. When to change: to None for maximum likelihood as in scikit-learn.
    weight_prior : float, 'hierarchical', 'auto' or None, default='auto', in a classifier None
        Concentration of a Dirichlet prior on the weights of each class: at least 1 for EM, any positive
        number for a variational fit (None is 1 / K there). 'hierarchical' learns one prior from all classes,
        so that classes with few rows borrow from the others; weights are then posterior means. 'auto', of a
        mixture alone, is 'hierarchical' if there are several classes, but None if the start says how they
        share kernels (``init='class'`` or given weights), for frozen parameters, variational inference, the
        paper's stopping rule and the first batch of a stream.
        When to change: to None for maximum likelihood.
    inference : {'em', 'variational'}, default='em'
        'em' maximises the likelihood or the posterior density. 'variational' finds the posterior of the
        parameters by mean-field variational Bayes: `n_kernels` is then an upper bound, and kernels that
        explain less than one row are removed.
        When to change: to 'variational' for the uncertainty of parameters, or to remove superfluous kernels.
    device : str, default=None
        PyTorch device to compute on, such as 'cuda' or 'cuda:1'. None computes where the rows are: on the
        device of a tensor, else on the CPU. Results are NumPy arrays. Rows that
        do not fit into its memory are streamed. 'cuda/float32' and 'cuda/tf32' use lower precision for sums
        over rows, and keep about five, or two to three, digits.
        When to change: if there is a GPU and there are many rows.
    n_jobs : int, default=None
        Number of threads. They are threads of a compiled loop, not processes, and as in scikit-learn's own
        compiled loops, None is all cores, or the number in the environment variable OMP_NUM_THREADS, but for
        a context of joblib, whose number counts. -1 is all cores. Results do not depend on it.
        When to change: to 1 if something else needs the cores.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the starts and of `sample`.
        When to change: to an integer for repeatable results.
"""

_FITTED = """
    n_features_in_ : int
        Number of columns of X: M, unless columns of text are encoded as several features each.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X had any. Columns of text with a single value or without any are left out.
    target_name_, weight_name_ : str
        Names of the columns of labels and weights, if they were columns with names. Where a classifier needs
        labels and none are given, it takes those of these columns, and weights, too.
    ignored_columns_ : list of str
        Columns of the table of the fit that are no features, if there are any: those of labels and weights,
        those that were left out, and in a marginal or conditional model all others. New data frames may have
        them; as in scikit-learn, other columns are refused.
    recipe_ : dict
        How the values of X were transformed and encoded, if they were: the scale, ``transform``, or the
        ``scales`` of features that differ, and the divisors of ``linear`` ones; whether FCS files are
        compensated, ``compensate``; for tables with categories or dates, the kind of each column,
        ``columns``; and how tables are written, ``missing``, ``decimal`` and ``thousands``. Each category is
        a 0/1 feature named ``column=category``, of which ``(other)`` stands for all that are not listed; a
        column of two is one feature, for the second. A date is a number of days. New files and data frames
        are prepared alike, and `sample` and `impute` return columns in the units of the files; arrays
        (refused if there are categories), an AnnData, and tables of numbers opened with ``transform=None``
        count as prepared. Fitted attributes and densities are of prepared rows.
    class_count_ : ndarray of shape (L,)
        Number of labelled training rows in each class, or the sum of their weights.
    expected_count_ : ndarray of shape (L,)
        The same with the expected shares of rows without a label. With feature sets, each mixture counts the
        rows that have a value in its set. In a stream, all rows so far, shared like the average statistics.
        `partial_fit` weighs the model by it.
    covariance_type_ : str
        Covariance type of the fit.
    weights_ : ndarray of shape (K, L)
        Pr(kernel k | class j).
    means_ : ndarray of shape (K, M)
        Kernel means.
    covariances_ : ndarray
        Kernel covariances: full (K, M, M), tied (M, M), diag (K, M), spherical (K,).
    converged_ : bool
        Whether the best start met the stopping rule.
    n_iter_ : int
        Number of passes of the best start.
    log_likelihood_ : float
        Total log-likelihood of the training rows given their classes, under the best start; with unlabelled
        rows, that of rows and labels together.
    log_likelihood_path_ : ndarray of shape (n_iter, L)
        Log-likelihood of the rows of each class before each pass; another column has that of unlabelled rows,
        if there are any. If weights have a posterior, the expectation under it.
    has_gaps_ : bool
        Whether a training row had a missing value.
    has_weights_ : bool
        Whether the training rows had weights, so that `class_count_` is a sum of weights.
    has_errors_ : bool
        Whether the training rows had `errors`.
    start_status_ : ndarray of shape (n_init,)
        How each start ended: 'converged', 'stopped' (at `max_iter`), or 'failed' (a covariance became
        singular, or the objective decreased).
    start_log_likelihoods_ : ndarray of shape (n_init,)
        Total log-likelihood at the end of each start.
    shrinkage_ : float
        With ``covariance_prior='auto'`` or ``'weak'``: share of the prior in the covariance of a kernel with
        an average number of rows.
    weight_prior_ : ndarray of shape (K,)
        With ``weight_prior='hierarchical'``: concentration α β of the Dirichlet prior on the weights of each
        class; its sum is α.
    lower_bound_ : float
        In a variational fit: lower bound of the log-evidence, the log-probability of rows given labels with
        all parameters integrated out. In EM with hierarchical weights, only the weights are integrated out,
        and the log-density of a prior on covariances is added up to a constant. The start with the highest
        bound is kept.
    lower_bound_path_ : ndarray of shape (n_iter,)
        The lower bound after each pass, if there is one.
    weight_concentration_ : ndarray of shape (K, L)
        In a variational fit, and with hierarchical weights: parameters of the posterior of the weights, a
        Dirichlet distribution for each class.
    mean_precision_ : ndarray of shape (K,)
        In a variational fit: the mean of kernel k has the posterior N(means_[k], P_k / mean_precision_[k]).
    kernel_degrees_ : ndarray of shape (K,)
        With ``tail='t'``: degrees of freedom of the kernels.
    wishart_degrees_ : ndarray of shape (K,)
        In a variational fit: degrees of freedom of the Wishart posterior of P_k⁻¹, whose mean is the inverse
        of ``covariances_[k]``.
"""


def documented(**texts: str) -> Callable[[Estimator], Estimator]:
    """Return a decorator that inserts texts into the docstring of a class, at their names in braces."""

    def insert(cls: Estimator) -> Estimator:
        for name, text in texts.items():
            cls.__doc__ = (cls.__doc__ or "").replace(f"{{{name}}}", text.strip())
        return cls

    return insert


documented_model = documented(parameters=_PARAMETERS, fitted=_FITTED)


@documented_model
class SharedKernelMixture(
    densities.CriteriaMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, SharedKernelBase
):
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
        "weight_prior": [*SharedKernelBase._parameter_constraints["weight_prior"], StrOptions({"auto"})],
        "group_shift": [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"}), None],
    }

    def __init__(
        self,
        n_kernels: int | None = None,
        *,
        covariance_type: str = "auto",
        tail: str | None = None,
        degrees: float | None = None,
        init: Any = "auto",
        freeze: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float | str = "auto",
        stopping: str = "total",
        variance_floor: float = 1e-6,
        covariance_prior: float | str | tuple[float, ArrayLike] | None = "auto",
        weight_prior: float | str | None = "auto",
        group_shift: float | str | None = None,
        inference: str = "em",
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.tail = tail
        self.degrees = degrees
        self.init = init
        self.freeze = freeze
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.stopping = stopping
        self.variance_floor = variance_floor
        self.covariance_prior = covariance_prior
        self.weight_prior = weight_prior
        self.group_shift = group_shift
        self.inference = inference
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def from_parameters(
        cls,
        weights: Any,
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
        *,
        covariance_type: str | None = None,
        degrees: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        class_prior: ArrayLike | None = None,
        class_count: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Make a mixture of known parameters, without a fit.

        Parameters
        ----------
        weights : array-like of shape (K,) or (K, L), or estimator
            Pr(kernel | class); columns sum to one. Or a fitted Gaussian mixture of scikit-learn, which has
            all parameters.
        means : array-like of shape (K, M)
            Means of the kernels.
        covariances : array-like
            Covariances: full (K, M, M), tied (M, M), diag (K, M), spherical (K,).
        covariance_type : {'full', 'tied', 'diag', 'spherical'}, default=None
            Structure of the covariances; None goes by their shape, which must leave no choice.
        degrees : float or array-like of shape (K,), default=None
            Degrees of freedom of t kernels, whose scale matrices are the covariances; None: Gaussian kernels.
        classes : array-like of shape (L,), default=None
            Class labels, in the order of the weights' columns; None numbers them from 0.
        class_prior : array-like of shape (L,), default=None
            Class priors; None: uniform.
        class_count : array-like of shape (L,), default=None
            Rows of each class that the parameters stand for, which `partial_fit` and `add_class` need.
        feature_names : list of M str, default=None
            Names of the features.
        random_state : int, RandomState instance or None, default=None
            Source of randomness of `sample`.

        Returns
        -------
        SharedKernelMixture
            A fitted mixture.

        Examples
        --------
        >>> from skmix import SharedKernelMixture
        >>> model = SharedKernelMixture.from_parameters([0.5, 0.5], [[0.0], [4.0]], [[[1.0]], [[1.0]]])
        >>> model.predict([[0.3], [3.0]])
        array([0, 1])
        """
        given: dict[str, Any] = {"weights": weights, "means": means, "covariances": covariances}
        if means is None and covariances is None:
            given = parameters_in(weights)
            if feature_names is None:
                feature_names = getattr(weights, "feature_names_in_", None)
        if covariance_type is not None:
            given["covariance_type"] = covariance_type
        fitted = fitted_of(
            **given, degrees=degrees, classes=classes, class_prior=class_prior, class_count=class_count
        )
        model = cls(
            fitted.n_kernels,
            covariance_type=fitted.covariance_type,
            tail=None if degrees is None else "t",
            degrees=float(degrees) if isinstance(degrees, Real) else None,
            random_state=random_state,
        )
        fitted.store(model)
        note_features(model, fitted.means.shape[1], feature_names)
        return model

    _parameters = property(parameters_of)

    @property
    def _n_features_out(self) -> int:
        return int(self.means_.shape[0])

    def _graph_parts(self) -> dict[str, Any]:
        densities.refuse_shifts(self, "to_onnx", "the graph")
        parameters = self._parameters
        columns = list(range(parameters.means.shape[1]))
        return {
            "feature_sets": [(columns, parameters, self.covariance_type_)],
            "log_prior": safe_log(parameters.weights @ self.class_prior_),
        }

    def predict(self, X: ArrayLike, y: ArrayLike | None = None, *, errors: Any = None) -> IntArray:
        """Return the most probable kernel (n,) of each row of X (n, M); see `predict_proba`."""
        return self._labelled(X, y, errors=errors).scores(densities.most_likely_kernel)

    def predict_proba(self, X: ArrayLike, y: ArrayLike | None = None, *, errors: Any = None) -> FloatArray:
        """Return the responsibilities: the probability of each kernel for each row.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts.
        y : array-like of shape (n,), default=None
            Class labels of the rows, whose weights, and shifted means with `group_shift`, are used; those
            that rows were opened with count too. Without them, probabilities are averaged over classes.
        errors : array-like of shape (n, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `fit`.

        Returns
        -------
        ndarray of shape (n, K)
            Probabilities; each row sums to one.
        """
        return self._labelled(X, y, errors=errors).scores(densities.responsibilities)

    def fit_predict(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> IntArray:
        """Fit the mixture and return the most probable kernel (N,) of each row of X (N, M); see `fit`."""
        return self.fit(X, y, sample_weight, errors=errors).predict(X, errors=errors)

    def transform(self, X: ArrayLike, *, errors: Any = None) -> FloatArray:
        """Return the probabilities (n, K) of the kernels for rows X (n, M), as features."""
        return score_rows(self, X, densities.responsibilities, errors=errors)

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None, *, errors: Any = None) -> FloatArray:
        """Return the log-density (n,) of rows X (n, M): log p(x | y), or log p(x) without labels y (n,).

        It is the density of the features: numbers on the scale of the model, not in the units of a file, and
        categories as 0/1 features; see `recipe_`. A row without any value has a log-density of 0. Labels
        that `open_rows` was given count, but not the names of files. With errors, see `fit`, it is the
        density of what was measured: N(x; μ_k, P_k + S_n) under kernel k.
        """
        scores: FloatArray = self._labelled(X, y, errors=errors).scores(densities.log_density)
        return scores

    score = densities.CriteriaMixin.score
