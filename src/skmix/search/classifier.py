"""Model selection for classification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..engine.loop import ending_at
from ..engine.numbers import on_host
from ..engine.records import FloatArray
from ..model.bags import BagsMixin, learn_correlation, rows_in_bags
from ..model.checks import note_rows, updating, warn_caller
from ..model.classifier import SharedKernelClassifier
from ..model.decisions import novelty_scores, with_outliers
from ..model.onnx import refuse_average
from ..model.prevalence import PrevalenceMixin
from ..model.rows import enter
from .base import Search, documented_search
from .features import FeatureMap, filler, with_map
from .fits import make_folds
from .groups import GroupedBlock
from .stages import Selection
from .trials import CHOOSING, Params, Trial, Trials

# Default settings of fits: candidates can be compared before they converge to the last digit.
_QUICK_FITS: Params = {"max_iter": 100, "tol": 3e-2}
# With this many rows and more, and without groups, three folds choose as well as five.
_N_FOLDS, _N_FOLDS_OF_FEW, _FEW_ROWS = 3, 5, 100


@documented_search
class SharedKernelClassifierCV(ClassifierMixin, BagsMixin, PrevalenceMixin, Search):
    """SharedKernelClassifier with settings chosen by cross-validation.

    Candidates differ in their features (unchanged, transformed by powers or ranks, principal components,
    discriminants), in whether all classes share the kernels or each kernel belongs to one class, and in the
    number, covariances and prior of the kernels. One fold screens all candidates, the best are
    compared on all folds, and the very best are tuned for classification. Candidates whose average predicts
    held-out rows well are fitted to all rows and averaged.

    Parameters
    ----------
    estimator : SharedKernelClassifier, default=None
        Settings that are not searched: `init`, `n_init`, `max_iter`, `priors`, `reject_below` and so on. Its
        `covariance_prior`, and with feature sets its `weight_prior`, are searched unless they differ from
        the default. In a search, `max_iter` is 100 and `tol` 0.03 unless they differ from their defaults.
        When to change: for settings that all candidates share, such as `tail='t'` or class `priors`.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. With ``kernels='own'``, all classes have the same number: the total is
        rounded down to a multiple of the number of classes.
        When to change: to a list if the search takes too long or the largest number is the best.
    covariance_type : str, list of them or 'auto', default='auto'
        Covariance types to try; 'auto' tries tied and full, with feature sets full only.
        When to change: to 'diag' with hundreds of features.
    kernels : {'auto', 'shared', 'own'}, default='auto'
        Whether all classes share the kernels, or each kernel belongs to one class. 'auto' tries both; with
        given `n_kernels`, feature sets, a `weight_prior` or variational inference, only shared kernels.
        When to change: to 'shared' to see what classes have in common; to 'own' for separate kernels.
    feature_sets : list of lists of int or str, default=None
        Sets of independent features, see `SharedKernelClassifier`. With feature sets, features are not
        transformed, and 4, 8 and 16 kernels per set are tried, as long as more help.
        When to change: if sets of features are known to be independent within the classes.
    tune : {'auto', False}, default='auto'
        Whether to tune the best candidates for classification, see `SharedKernelClassifier.tune`. 'auto'
        keeps a tuned candidate if it predicts held-out rows better.
        When to change: to False if densities matter too: tuning gives them up for the classification.
    n_members : int, default=8
        Largest number of fitted models whose probabilities are averaged. If averaging clearly hurts, only the
        best candidate is kept.
        When to change: to 1 for a single model that can be inspected, and smaller files.
    {parameters}

    Attributes
    ----------
    best_estimator_ : SharedKernelClassifier or Pipeline
        The best candidate, fitted to all rows and calibrated; a pipeline if features are mapped.
    classifier_ : SharedKernelClassifier
        The classifier of the best candidate.
    feature_map_ : FeatureMap or None
        Its `transform` turns rows (n, M) into the features (n, q) of the classifier; None if features are
        not mapped.
    classifiers_ : list of SharedKernelClassifier
        All members, the best candidate first.
    feature_maps_ : list of tuple or None
        The feature map of each member: shift, scale and powers (M,), curves (2, M, k) of ranks or None, and
        offset (M,) and matrix (M, q) of a projection or None; None if features are not mapped.
    best_params_ : dict
        Settings of the best candidate: `transform` and `reduction` of the features, `kernels` (shared or
        own), `n_kernels`, `covariance_type`, `prior_rows` (strength of the prior, in rows per feature),
        `weight_prior`, `feature_sets` and `trade_off`.
    best_score_ : float
        Score of the best candidate: minus the log-loss of held-out rows at the best temperature; NaN if no
        row could be held out.
    bag_correlation_ : float
        After `calibrate` with bags: correlation of the rows of a bag, see `predict_bags_proba`.
    {results}

    Notes
    -----
    The score of the best of many candidates is optimistic. For an unbiased estimate, cross-validate the whole
    search, as in ``cross_val_score(SharedKernelClassifierCV(), X, y)``.

    To choose settings and to tune, missing values are filled by a Gaussian fitted to the training rows; the
    final EM fit uses the observed values only.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = SharedKernelClassifierCV(random_state=0).fit(X, y)
    >>> bool(search.score(X, y) > 0.96)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelClassifier, None],
        "kernels": [StrOptions({"auto", "shared", "own"})],
        "feature_sets": [list, tuple, None],
        "tune": [StrOptions({"auto"}), Options(bool, {False})],
    }
    classifiers_: list[SharedKernelClassifier]
    feature_maps_: list[Any]

    def __init__(
        self,
        estimator: SharedKernelClassifier | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        kernels: str = "auto",
        feature_sets: Sequence[Sequence[int | str]] | None = None,
        tune: str | bool = "auto",
        n_members: int = 8,
        cv: Any = None,
        time_limit: float | None = None,
        device: str | None = None,
        n_jobs: int | None = None,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.kernels = kernels
        self.feature_sets = feature_sets
        self.tune = tune
        self.n_members = n_members
        self.cv = cv
        self.time_limit = time_limit
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        rows, classes, kept = self._open(X, y, sample_weight)
        assert classes is not None
        if len(classes) < 2:
            label = classes.tolist()[0]
            raise ValueError(f"A classifier needs two classes or more, got one class: {label!r}.")
        if rows.weights is not None:
            # The strength of priors is in rows: weights that sum to one must not count as one row.
            factor = max(1.0, len(rows.weights) / rows.weights.sum())
            rows = replace(rows, weights=factor * rows.weights)
            sample_weight = factor * np.asarray(on_host(sample_weight), dtype=np.float64)
        if groups is not None:
            numbers = np.unique(groups[kept], return_inverse=True)[1]
            rows = GroupedBlock(rows.X, rows.y, rows.weights, groups=numbers)
        prototype = self._prototype(SharedKernelClassifier, _QUICK_FITS)
        prototype._check_classes(classes)
        rejecting = {name: getattr(prototype, name) for name in ("reject_below", "outlier_label")}
        # Only the chosen model needs a threshold.
        prototype.set_params(reject_below=None, outlier_label=None)
        folds = []
        seed = prototype.random_state
        most = _N_FOLDS if groups is None and len(rows.X) >= _FEW_ROWS else _N_FOLDS_OF_FEW
        for training, held in make_folds(rows, classes, self.cv, groups, kept, seed, most):
            fill = filler(training.X, seed)
            folds.append((with_map(training, fill), with_map(held, fill)))
        selection = Selection(self, prototype, rows, classes, folds, trials)
        with ending_at(trials.ends(CHOOSING)):
            chosen = selection.choose()
        members = selection.fit_members(chosen, (X, y, sample_weight))
        if rejecting["reject_below"] is not None:
            selection.set_threshold(members[0], chosen[0], rejecting["reject_below"])
            members[0].classifier.set_params(**rejecting)
        note_rows(self, bag_correlation_=None)
        self.classifiers_ = [member.classifier for member in members]
        self.feature_maps_ = [member.feature_map and tuple(member.feature_map) for member in members]
        return chosen[0]

    def _finish(self) -> None:
        # A class with fewer rows than kernels has one kernel per row.
        self.best_params_["n_kernels"] = int(self.classifier_.models_[0].means_.shape[0])
        models = [model for classifier in self.classifiers_ for model in classifier.models_]
        if self.time_limit is not None and not all(model.converged_ for model in models):
            problem = f"The chosen model did not converge. Increase time_limit ({self.time_limit})."
            warn_caller(problem, ConvergenceWarning)

    @property
    def classifier_(self) -> SharedKernelClassifier:
        """The classifier of the best candidate."""
        return self.classifiers_[0]

    @property
    def feature_map_(self) -> FeatureMap | None:
        """The feature map of the best candidate; None if features are not mapped."""
        return None if self.feature_maps_[0] is None else FeatureMap(*self.feature_maps_[0])

    @property
    def best_estimator_(self) -> Any:
        """The best candidate, fitted to all rows: a classifier, or a pipeline that maps features first."""
        from sklearn.pipeline import make_pipeline  # slow to import
        from sklearn.preprocessing import FunctionTransformer

        if self.feature_map_ is None:
            return self.classifier_
        return make_pipeline(FunctionTransformer(self.feature_map_.transform), self.classifier_)

    @property
    def _model(self) -> SharedKernelClassifier:
        return self.classifier_

    def _graph_parts(self) -> dict[str, Any]:
        refuse_average(self, len(self.classifiers_))
        return {**self.classifier_._graph_parts(), "features": self.feature_maps_[0]}

    def _inputs(self, X: Any) -> Iterator[Any]:
        """Yield rows X (n, M) as the input of each member."""
        rows = None
        for feature_map in self.feature_maps_:
            if feature_map is None:
                yield X
                continue
            rows = enter(self, X).gathered() if rows is None else rows
            yield FeatureMap(*feature_map).transform(rows)

    def _of_members(self, method: str, X: ArrayLike) -> Iterator[Any]:
        """Yield the results of a method of each member for rows X (n, M)."""
        check_is_fitted(self)
        for classifier, rows in zip(self.classifiers_, self._inputs(X), strict=True):
            yield getattr(classifier, method)(rows)

    def calibrate(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        bags: ArrayLike | None = None,
    ) -> Self:
        """Calibrate each member and, with bags, learn `bag_correlation_`.

        See `SharedKernelClassifier.calibrate`.
        """
        check_is_fitted(self)
        with updating(self):
            entered, names = rows_in_bags(self, X, y, sample_weight, bags)
            n_rows = len(entered.X)
            labels, codes, weights = entered.labels(n_rows), entered.codes(n_rows), entered.weights(n_rows)
            self.classifiers_ = [
                copy(classifier).calibrate(rows, labels, weights)
                for classifier, rows in zip(self.classifiers_, self._inputs(entered.X), strict=True)
            ]
            note_rows(self, bag_correlation_=learn_correlation(self, entered.X, codes, names, weights))
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior Pr(class j | x), shape (n, L), of rows X (n, M), averaged over the members."""
        return reduce(add, self._of_members("predict_proba", X)) / len(self.classifiers_)

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Return the logarithms of the posterior probabilities, shape (n, L), of rows X (n, M)."""
        total = reduce(np.logaddexp, self._of_members("predict_log_proba", X))
        return total - float(np.log(len(self.classifiers_)))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class (n,) of each row of X (n, M).

        Outliers, see `skmix.report.outliers`, get the `outlier_label` of `classifier_`, if it has one.
        """
        check_is_fitted(self)
        if len(self.classifiers_) == 1:
            return next(self._of_members("predict", X))
        labels = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        if self.classifier_.outlier_label is not None:
            labels = with_outliers(labels, novelty_scores(self, X), self.classifier_)
        return labels

    score = SharedKernelClassifier.score

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x) of rows X (n, M) under `classifier_`, shape (n,), in its mapped features."""
        return next(self._of_members("score_samples", X))
