"""Model selection for densities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.base import DensityMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import on_host
from ...engine.compute.blocks import is_blocks
from ...engine.compute.dask import is_collection
from ...engine.covariances import STRUCTURES
from ...engine.model import FloatArray
from ...io import source_of
from ..densities import n_parameters
from ..io import savable
from ..mixture import SharedKernelMixture
from ..rows import Sender, open_training, sender, warn_caller
from ._base import Params, Rows, Search, Trial, Trials, delegated, documented, make_folds

# The numbers of kernels reach this far above the number of classes, or to this many, and go on by as much
# again while the largest is the best.
_KERNELS_PER_CLASS, _FEWEST_TO_REACH = 4, 10
# A covariance type is given up after so many numbers of kernels that were no better than one before.
_IN_VAIN = 3
# Settings of fits unless an estimator is given: one start may miss what the next number of kernels finds.
SEVERAL_STARTS: Params = {"n_init": 4, "tol": 1e-3}


@savable
@documented
class SharedKernelMixtureCV(DensityMixin, Search):
    """SharedKernelMixture with the number of kernels and the covariance type chosen by a criterion.

    Parameters
    ----------
    estimator : SharedKernelMixture, default=None
        Settings that are not searched, such as `init`, `n_init`, `max_iter` and priors. None takes the best
        of 4 starts, which end when the mean log-likelihood changes by less than 0.001.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. 'auto' goes from one for each class to four, at least to 10, in steps of a
        quarter, and on while the largest is the best.
    covariance_type : str, list of str or 'auto', default='auto'
        Covariance types to try; 'auto' is full, tied, diag and spherical.
    criterion : {'auto', 'log_likelihood', 'bic', 'icl', 'aic'}, default='auto'
        What the choice is made by: the log-density of held-out rows, each in its own class, by
        cross-validation, for the best density; the Bayesian information criterion, for the number of
        clusters; the same plus twice the entropy of the responsibilities, which prefers kernels that do not
        overlap; or Akaike's criterion. 'auto' is the log-density, and BIC for rows in files or Dask
        collections, for pruning, and where no class has two rows.
    strategy : {'grid', 'prune'}, default='grid'
        'grid' fits every candidate. 'prune' starts with `n_kernels` and removes those that do not explain
        enough rows for their parameters (Figueiredo & Jain, 2002), then the lightest one by one, and takes
        the number of the lowest BIC; of a variational fit, that of the highest bound. At least one kernel for
        each class stays.
    {parameters}

    Attributes
    ----------
    best_estimator_ : SharedKernelMixture
        The winner, fitted to all rows.
    best_params_ : dict
        Its `n_kernels` and `covariance_type`.
    best_score_ : float
        Its score: the mean log-density of held-out rows, or minus the criterion; larger is better.
    {results}

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixtureCV
    >>> X = np.random.default_rng(0).normal(size=(200, 1)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    >>> SharedKernelMixtureCV(random_state=0).fit(X).best_params_["n_kernels"]
    2
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelMixture, None],
        "criterion": [StrOptions({"auto", "bic", "icl", "aic", "log_likelihood"})],
        "strategy": [StrOptions({"grid", "prune"})],
    }

    def __init__(
        self,
        estimator: SharedKernelMixture | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        criterion: str = "auto",
        strategy: str = "grid",
        cv: Any = None,
        time_limit: float | None = None,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.criterion = criterion
        self.strategy = strategy
        self.cv = cv
        self.time_limit = time_limit
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        prototype = self._prototype(SharedKernelMixture(**SEVERAL_STARTS))
        to_device = sender(prototype, X)
        rows, folds, criterion = None, [], self.criterion
        if criterion == "auto":
            in_blocks = is_collection(X) or is_blocks(X) or source_of(X) is not None
            criterion = "bic" if in_blocks or self.strategy == "prune" else "log_likelihood"
        if criterion in ("bic", "aic"):
            # Their number is all that the criterion needs of the rows, wherever these are.
            training = open_training(clone(prototype), X, y, sample_weight)
            n_classes, summary = len(training.classes), training.source.summary
            n_rows, size, n_features = summary.n_rows, float(summary.sizes.sum()), training.n_features
        else:
            rows, kept = self._open(X, y, sample_weight)
            n_classes, size, (n_rows, n_features) = (
                int(rows.codes.max()) + 1,
                float(rows.row_weights.sum()),
                rows.X.shape,
            )
            if criterion == "log_likelihood":
                folds = make_folds(rows, self.cv, groups, kept, prototype.random_state)
                if not folds and self.criterion == "auto":
                    rows, criterion = None, "bic"
                elif not folds:
                    raise ValueError(f"{n_rows} rows are too few to hold any out: each class has one.")

        def fit(trial: Trial, *given: Any) -> SharedKernelMixture:
            model: SharedKernelMixture = clone(prototype).set_params(**trial.params)
            return _fit_pruned(model, *given) if self.strategy == "prune" else model.fit(*given)

        def evaluate(trial: Trial) -> None:
            if not folds:
                trial.models = [fit(trial, X, y, sample_weight)]
                trial.columns = _criteria(criterion, trial.models[0], size, rows, to_device)
                trial.score = -trial.columns[criterion]
                return
            for training, held in folds:
                model = fit(trial, to_device(training.X), training.y, training.weights)
                densities = on_host(model.score_samples(to_device(held.X), held.y))
                trial.split_scores.append(float(np.average(densities, weights=held.weights)))
            sizes = np.array([held.row_weights.sum() for _, held in folds])
            trial.columns["log_likelihood"] = float(sizes @ trial.split_scores)
            trial.score = trial.columns["log_likelihood"] / float(sizes.sum())

        numbers, types = self._candidates()
        reach = np.inf
        if numbers is None:
            numbers, reach = self._numbers(n_classes, n_rows, n_features)
        scores: dict[str, list[float]] = {name: [] for name in types or STRUCTURES}

        def is_given_up(own: list[float]) -> bool:
            # Cross-validation takes long, and more kernels seldom help after several in a row did not.
            in_vain = len(own) - int(np.argmax([*own, -np.inf])) > _IN_VAIN
            return in_vain and bool(folds) and bool(np.isfinite(reach))

        for n_kernels in numbers:
            left = {name: own for name, own in scores.items() if not is_given_up(own)}
            # Passes take a time that grows with the number of kernels.
            following = [k for k in numbers if n_kernels <= k <= max(n_kernels, reach)]
            trials.plan("kernels", sum(following) * len(left), 1.0)
            for name, own in left.items():
                params = {"n_kernels": n_kernels, "covariance_type": name}
                trial = trials.add("kernels", params, evaluate, n_steps=n_kernels)
                if trial is not None:
                    own.append(trial.score)
            if reach <= n_kernels != trials.best.params["n_kernels"]:
                break
        trials.check()
        self.best_estimator_ = (trials.best.models or [fit(trials.best, X, y, sample_weight)])[0]
        return trials.best

    def _numbers(self, n_classes: int, n_rows: int, n_features: int) -> tuple[list[int], float]:
        """Return the numbers of kernels that 'auto' tries, and that after which the search may end early."""
        reach = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * n_classes)
        most = max(1, n_rows // (n_features + 1))
        numbers = [n_classes]
        while (following := numbers[-1] + max(1, numbers[-1] // 4)) <= min(_KERNELS_PER_CLASS * reach, most):
            numbers.append(following)
        if self.strategy == "prune":
            return [max(k for k in numbers if k <= max(reach, n_classes))], np.inf
        return numbers, reach

    def _finish(self) -> None:
        model = self.best_estimator_
        self.best_params_["n_kernels"] = model.n_kernels_
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__ |= {name: value for name, value in vars(model).items() if name.endswith("_in_")}
        if not model.converged_:
            warn_caller(
                f"The chosen model did not converge in {model.n_iter_} passes. Increase max_iter "
                f"({model.max_iter}) or tol ({model.tol}) of the estimator.",
                ConvergenceWarning,
            )

    predict = delegated(SharedKernelMixture.predict)
    predict_proba = delegated(SharedKernelMixture.predict_proba)
    class_log_likelihood = delegated(SharedKernelMixture.class_log_likelihood)
    score_samples = delegated(SharedKernelMixture.score_samples)
    score = delegated(SharedKernelMixture.score)

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
        """Choose, fit and return the most probable kernel (N,) of each row of X (N, M)."""
        kernels: np.ndarray = self.fit(X, y).predict(X)
        return kernels

    def sample(self, n_samples: int = 1, label: Any = None) -> tuple[FloatArray, np.ndarray]:
        """Draw n rows (n, M) and their labels (n,), see `SharedKernelMixture.sample`."""
        check_is_fitted(self)
        drawn: tuple[FloatArray, np.ndarray] = self.best_estimator_.sample(n_samples, label)
        return drawn


@_fit_context(prefer_skip_nested_validation=True)  # which tears callbacks down
def _fit_pruned(model: SharedKernelMixture, X: Any, y: Any, sample_weight: Any) -> SharedKernelMixture:
    return model._fit(X, y, sample_weight, prune=True)


def _criteria(
    criterion: str, model: SharedKernelMixture, size: float, rows: Rows | None, to_device: Sender
) -> dict[str, float]:
    """Return the criterion of a model fitted to rows of that total weight, and what it is made of."""
    free = n_parameters(model)
    value = free * (2.0 if criterion == "aic" else np.log(size)) - 2.0 * model.log_likelihood_
    if rows is not None:
        value += 2.0 * _entropy(model, rows, to_device)
    return {criterion: value, "log_likelihood": model.log_likelihood_, "n_parameters": free}


def _entropy(model: SharedKernelMixture, rows: Rows, to_device: Sender) -> float:
    """Return −Σ_n Σ_k w_nk log w_nk, rows with a label in their own class."""
    shares = np.array(on_host(model.responsibilities(to_device(rows.X))))
    if rows.y is not None:
        labelled = np.flatnonzero(rows.codes >= 0)
        own = rows.take(labelled)
        shares[labelled] = on_host(model.responsibilities(to_device(own.X), own.y))
    return float(-xlogy(shares, shares).sum(axis=1) @ rows.row_weights)
