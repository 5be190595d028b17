"""Model selection for densities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import namespace, safe_log
from ...engine.model import FloatArray
from ...engine.structures import STRUCTURES
from .._settings import check_count, is_wide
from ..holdout import Split, random_halves
from ..mixture import SharedKernelMixture
from ..rows import OF_ROWS, enter, note_rows, open_training, sender, warn_caller
from ..saving import savable
from ._base import CodedRows, Search, delegated, documented, make_folds
from ._grid import Grid, Scorer, Task, average, largest_stable, likeliest, try_grid
from ._trials import Params, Trial, Trials

# The numbers of kernels reach this many for each class, and go on as far again while the largest is the best.
_KERNELS_PER_CLASS = 4
# They reach at least this number. More classes than this are samples or sites, which share kernels.
_FEWEST_TO_REACH = 10
# Strengths of the prior on covariances. Only a weak one lets kernels be narrow in some of the features.
_PRIORS = {"full": ("auto", "weak"), "diag": ("auto", "weak")}
# A kind of covariances is given up after more than so many numbers of kernels that were no better than one
# before.
_IN_VAIN = 3
# Settings of fits unless an estimator is given: one start may miss what the next number of kernels finds.
SEVERAL_STARTS: Params = {"n_init": 2, "tol": 1e-3}
# The same by stability: a start that misses the best fit to a half looks like an unstable kernel.
MANY_STARTS: Params = {"init": "k-means", "n_init": 10, "tol": 1e-3}
# Random halvings of the rows.
_N_HALVINGS = 5


@savable
@documented
class SharedKernelMixtureCV(DensityMixin, Search):
    """SharedKernelMixture with the number of kernels and the covariance type chosen by a criterion.

    The density of held-out rows also chooses the strength of the prior on covariances, and averages several
    candidates: `score_samples`, `score` and `sample` are of the average, while `predict` and `predict_proba`
    give kernels of the best candidate.

    Parameters
    ----------
    estimator : SharedKernelMixture, default=None
        Settings that are not searched, such as `init`, `n_init`, `max_iter` and priors; a `covariance_prior`
        other than 'auto' is not searched either. None takes the better of 2 starts, which end when the mean
        log-likelihood changes by less than 0.001; by stability, the best of 10 by k-means.
        When to change: for another kind of fit in all candidates, such as `tail='t'` or more starts.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. 'auto' goes from one to four for each class, at least to 10 and at most to
        40, in steps of a quarter, and on while the largest is the best. With ``init='class'`` it begins with
        one for each class and has no such limit; by stability it ends as if there were one class.
        When to change: a list, if the search takes too long or its best number is the largest tried.
    covariance_type : str, tuple, list of them or 'auto', default='auto'
        Covariance types to try; 'auto' is full, tied, diag and spherical, by stability full alone. For more
        than 500 features that are also more than the rows it is diag and spherical, with a warning.
        When to change: one type, if you know it: the search takes a fraction of the time.
    criterion : {'auto', 'log_likelihood', 'bic', 'aic', 'stability'}, default='auto'
        What candidates are compared by: the log-density of held-out rows, each in its own class, for the best
        density; the Bayesian information criterion, for the number of clusters; Akaike's criterion; or the
        stability of kernels as clusters. 'auto' is the log-density, and BIC for rows in files or Dask
        collections, for pruning, and where no class has two rows.

        'stability' fits both halves of the rows, divided at random five times or `cv` times, and compares the
        kernels of both fits as clusters of all rows by their Jaccard index. The largest number of kernels is
        chosen whose least stable kernel has an index of at least 0.85, as the median over halvings, or else
        the most stable number.
        When to change: 'bic' for the number of clusters, and for speed; 'stability' where other rows
        should show the same clusters.
    n_members : int, default=8
        How many candidates at most are averaged by the density of held-out rows: those of the largest shares
        in the average of all candidates, and always the best. 1 is the best candidate alone, and so is any
        other criterion.
        When to change: 1 for a single mixture whose kernels are what you want.
    strategy : {'grid', 'prune'}, default='grid'
        'grid' fits every candidate. 'prune' starts with `n_kernels`, removes those that do not explain enough
        rows for their parameters (Figueiredo & Jain, 2002), then the lightest one by one, and takes the
        number of the lowest BIC, or of the highest bound of a variational fit.
        When to change: 'prune' where many numbers of kernels would have to be fitted.
    {parameters}

    Attributes
    ----------
    best_estimator_ : SharedKernelMixture
        The best candidate, fitted to all rows.
    mixtures_ : list of SharedKernelMixture
        All members, fitted to all rows, the best candidate first.
    shares_ : ndarray of shape (S,)
        Shares of the members in the average p(x | c) = Σ_s shares_[s] p_s(x | c).
    best_params_ : dict
        The best candidate's `n_kernels` and `covariance_type`, and `covariance_prior` where it is searched.
    best_score_ : float
        Its score: the mean log-density of held-out rows, or minus the criterion; larger is better.
    {results}

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixtureCV
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> X[100:] += 9.0
    >>> SharedKernelMixtureCV(random_state=0).fit(X).best_params_["n_kernels"]
    2
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelMixture, None],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "criterion": [StrOptions({"auto", "bic", "aic", "log_likelihood", "stability"})],
        "strategy": [StrOptions({"grid", "prune"})],
    }

    def __init__(
        self,
        estimator: SharedKernelMixture | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        criterion: str = "auto",
        n_members: int = 8,
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
        self.n_members = n_members
        self.strategy = strategy
        self.cv = cv
        self.time_limit = time_limit
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        settings = MANY_STARTS if self.criterion == "stability" else SEVERAL_STARTS
        prototype = self._prototype(SharedKernelMixture(**settings))
        task = self._open_task(prototype, X, y, sample_weight, groups)
        grid = self._grid(prototype, task)
        scorer = Scorer(prototype, self.strategy, task, (X, y, sample_weight), sender(prototype, X))
        stability = task.criterion == "stability"
        # Which candidate is the best by stability is known at the end.
        trials.n_kept = len(grid.numbers) * len(grid.kinds) if stability else 1
        best = try_grid(grid, trials, scorer, largest_stable if stability else likeliest)
        members, shares = [best], np.ones(1)
        if task.folds and np.isfinite(best.score):
            members, shares = average(scorer.tried, task.held_weights, self.n_members)
            for trial in trials.list:
                trial.columns["share"] = sum(
                    share for each, share in zip(members, shares, strict=True) if each is trial
                )
        self.mixtures_ = [(each.models or [scorer.fit_to_all_rows(each)])[0] for each in members]
        self.shares_ = shares
        return best

    def _open_task(self, prototype: Any, X: Any, y: Any, sample_weight: Any, groups: Any) -> Task:
        """Return the criterion, the size of the problem, and the rows that the criterion needs."""
        criterion = self.criterion
        if criterion == "auto":
            in_blocks = not enter(self, X).is_in_memory
            criterion = "bic" if in_blocks or self.strategy == "prune" else "log_likelihood"
        if groups is not None and criterion in ("bic", "aic"):
            raise ValueError(
                f"groups are used by cross-validation only; criterion={criterion!r} is of fits to all rows. "
                "Leave out groups, or use criterion='log_likelihood'."
            )
        if criterion in ("bic", "aic"):
            # The number of rows is all that these criteria need, wherever the rows are.
            training = open_training(clone(prototype), X, y, sample_weight)
            summary, n_classes = training.source.summary, len(training.classes)
            shape = summary.n_rows, training.n_features
            return Task(criterion, n_classes, shape, float(summary.sizes.sum()))
        rows, kept = self._open(X, y, sample_weight)
        task = Task(
            criterion, int(rows.codes.max()) + 1, rows.X.shape, float(rows.row_weights.sum()), rows=rows
        )
        if criterion == "stability":
            halvings = self._halvings(rows, groups, prototype.random_state)
            return replace(task, halvings=halvings)
        folds = make_folds(rows, self.cv, groups, kept, prototype.random_state)
        if folds:
            return replace(task, folds=folds)
        if self.criterion == "auto":
            return replace(task, criterion="bic", rows=None)
        raise ValueError(f"{len(rows.X)} rows are too few to hold any out: each class has one.")

    def _halvings(self, rows: CodedRows, groups: Any, seed: int) -> list[Split]:
        """Return row numbers of both halves, several times; every class is halved."""
        if self.strategy == "prune":
            raise ValueError("criterion='stability' compares numbers of kernels: use strategy='grid'.")
        if groups is not None:
            raise ValueError(
                "criterion='stability' halves the rows of each class at random: leave out groups."
            )
        if not isinstance(self.cv, Integral | None):
            raise ValueError(f"criterion='stability' takes the number of halvings for cv, got {self.cv!r}.")
        return random_halves(rows.codes, _N_HALVINGS if self.cv is None else int(self.cv), seed)

    def _grid(self, prototype: SharedKernelMixture, task: Task) -> Grid:
        """Return the numbers of kernels and the kinds of covariances to try."""
        numbers, types = self._candidates()
        (n_rows, n_features), stability = task.shape, task.criterion == "stability"
        if types is None and is_wide(n_rows, n_features):
            types = ["diag", "spherical"]
            warn_caller(
                f"{n_rows} rows have {n_features} features: covariance_type='auto' tries only 'diag' and "
                "'spherical', without correlations inside kernels. Set covariance_type to choose.",
                UserWarning,
            )
        reach = np.inf
        if numbers is None:
            first, usual = 1, min(task.n_classes, _FEWEST_TO_REACH)
            if stability:
                # Every fit has half of the rows.
                n_rows, usual = n_rows // 2, 1
            elif prototype.init == "class":
                first = usual = task.n_classes
            numbers, reach = self._numbers(first, usual, n_rows // (n_features + 1))
        kinds: list[Params] = [
            {"covariance_type": name} for name in types or (["full"] if stability else STRUCTURES)
        ]
        if task.folds and prototype.covariance_prior == "auto" and prototype.inference == "em":
            kinds = [
                {**kind, "covariance_prior": prior}
                for kind in kinds
                for prior in _PRIORS.get(kind["covariance_type"], ("auto",))
            ]
        patience = _IN_VAIN if task.folds and np.isfinite(reach) else np.inf
        return Grid(numbers, kinds, reach, patience)

    def _numbers(self, first: int, usual: int, most: int) -> tuple[list[int], float]:
        """Return the numbers of kernels that 'auto' tries, and that after which the search may end early."""
        reach = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * usual)
        numbers = [first]
        while (following := numbers[-1] + max(1, numbers[-1] // 4)) <= min(_KERNELS_PER_CLASS * reach, most):
            numbers.append(following)
        if self.strategy == "prune":
            return [max(k for k in numbers if k <= reach)], np.inf
        return numbers, reach

    @property
    def best_estimator_(self) -> SharedKernelMixture:
        """The best candidate, fitted to all rows."""
        try:
            return self.mixtures_[0]
        except AttributeError:
            raise AttributeError("The search is not fitted yet: it has no best_estimator_.") from None

    def _finish(self) -> None:
        model = self.best_estimator_
        self.best_params_["n_kernels"] = model.n_kernels_
        note_rows(self, **{name: vars(model).get(name) for name in OF_ROWS})
        if not model.converged_:
            warn_caller(
                f"The chosen model did not converge in {model.n_iter_} passes. Increase max_iter "
                f"({model.max_iter}) or tol ({model.tol}) of the estimator.",
                ConvergenceWarning,
            )

    predict = delegated(SharedKernelMixture.predict)
    predict_proba = delegated(SharedKernelMixture.predict_proba)

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the log-density (n,) of rows X (n, M), given labels y (n,); see `SharedKernelMixture`."""
        rows = self._accept(X)
        return self._averaged(each.score_samples(rows, y) for each in self.mixtures_)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows; see `score_samples`."""
        rows = self._accept(X)
        return float(np.mean(self._averaged(each._scores(rows, y) for each in self.mixtures_)))

    def _averaged(self, parts: Iterable[Any]) -> Any:
        """Return the logarithm of the members' average, given the logarithm of each."""
        # Some libraries take no scalars of NumPy.
        shares = safe_log(self.shares_).tolist()
        logs = [part + share for part, share in zip(parts, shares, strict=True)]
        return reduce(namespace(logs[0]).logaddexp, logs)

    def _graph_parts(self) -> dict[str, Any]:
        first, *others = [each._graph_parts() for each in self.mixtures_]
        if not others:
            return first
        return {**first, "others": others, "log_shares": safe_log(self.shares_)}

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
        """Choose, fit and return the most probable kernel (N,) of each row of X (N, M)."""
        kernels: np.ndarray = self.fit(X, y).predict(X)
        return kernels

    def sample(self, n_samples: int = 1, label: Any = None) -> tuple[FloatArray, np.ndarray]:
        """Draw n rows (n, M) and their labels (n,), see `SharedKernelMixture.sample`."""
        check_is_fitted(self)
        check_count(n_samples, "n_samples must be")
        random_state = check_random_state(self.best_estimator_.random_state)
        drawn = []
        for mixture, count in zip(
            self.mixtures_,
            random_state.multinomial(n_samples, self.shares_ / self.shares_.sum()),
            strict=True,
        ):
            if count:
                # Members that have a seed of their own would all draw the same numbers.
                own = copy(mixture)
                own.random_state = random_state
                drawn.append(own.sample(int(count), label))
        order = random_state.permutation(n_samples)
        X, labels = (np.concatenate(parts)[order] for parts in zip(*drawn, strict=True))
        return X, labels
