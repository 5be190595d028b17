"""Model selection for densities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.base import DensityMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import namespace, on_host
from ...engine.model import FloatArray, IntArray
from ...engine.structures import STRUCTURES
from .._settings import check_count, is_wide
from ..densities import n_parameters
from ..holdout import Split, random_halves
from ..mixture import SharedKernelMixture
from ..rows import OF_ROWS, Sender, enter, note_rows, open_training, sender, warn_caller
from ..saving import log_probabilities, savable
from ._base import CodedRows, Fold, Search, delegated, documented, make_folds
from ._trials import Params, Trial, Trials

# The numbers of kernels reach this many for each class, and go on as far again while the largest is the best.
_KERNELS_PER_CLASS = 4
# They reach at least this number. More classes than this are samples or sites, which share kernels.
_FEWEST_TO_REACH = 10
# Strengths of the prior on covariances. Kernels that are narrow in some features alone need a weak one.
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
# The least stability of a number of kernels that is taken.
_STABLE = 0.85
# Passes of EM for the shares of an average.
_PASSES = 100
# Candidates with smaller shares are not worth a fit.
_LEAST_SHARE = 1e-3


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
        scores = Scores(self, prototype, task, (X, y, sample_weight), sender(prototype, X))
        stability = task.criterion == "stability"
        # Which candidate is the best by stability is known at the end.
        trials.n_kept = len(grid.numbers) * len(grid.kinds) if stability else 1
        best = try_grid(grid, trials, scores, largest_stable if stability else likeliest)
        members, shares = [best], np.ones(1)
        if task.folds and np.isfinite(best.score):
            members, shares = average(scores.tried, task.held_weights, self.n_members)
            for trial in trials.list:
                trial.columns["share"] = sum(
                    share for each, share in zip(members, shares, strict=True) if each is trial
                )
        self.mixtures_ = [(each.models or [scores.fit_to_all_rows(each)])[0] for each in members]
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
        shares = log_probabilities(self.shares_).tolist()
        logs = [part + share for part, share in zip(parts, shares, strict=True)]
        return reduce(namespace(logs[0]).logaddexp, logs)

    def _graph_parts(self) -> dict[str, Any]:
        first, *others = [each._graph_parts() for each in self.mixtures_]
        if not others:
            return first
        return {**first, "others": others, "log_shares": log_probabilities(self.shares_)}

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


# ---------------------------------------------------------------- what is tried, and how it is judged


@dataclass(frozen=True)
class Task:
    """What candidates are judged by."""

    criterion: str
    n_classes: int
    shape: tuple[int, int]  # numbers of rows and features
    size: float  # number of rows, or the sum of their weights
    rows: CodedRows | None = None  # None for BIC and AIC, which look at no rows
    folds: list[Fold] = field(default_factory=list)  # for the log-likelihood
    halvings: list[Split] = field(default_factory=list)  # for stability

    @property
    def held_weights(self) -> FloatArray:
        """Weights of the held-out rows of all folds."""
        return np.concatenate([held.row_weights for _, held in self.folds])


@dataclass(frozen=True)
class Grid:
    """Candidates: numbers of kernels from few to many, each with every kind of covariances.

    After the number `reach` the search goes on only while the largest number is the best. A kind is given up
    after more than `patience` numbers in a row that were no better than one before: cross-validation takes
    long, and more kernels seldom help then.
    """

    numbers: list[int]
    kinds: list[Params]
    reach: float
    patience: float


@dataclass
class Scores:
    """Fits candidates and sets their scores; called with a trial.

    `given` are X, y and sample_weight as the user gave them. `tried` collects the trials that were fitted to
    folds, with the log-densities (n,) of all held-out rows.
    """

    search: SharedKernelMixtureCV
    prototype: SharedKernelMixture
    task: Task
    given: tuple[Any, Any, Any]
    to_device: Sender
    tried: list[tuple[Trial, FloatArray]] = field(default_factory=list)

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate and set its score."""
        if self.task.folds:
            self._by_held_out_rows(trial)
            return
        trial.models = [self.fit_to_all_rows(trial)]
        if self.task.criterion == "stability":
            self._by_stability(trial)
            return
        trial.columns = self._criterion(self.task.criterion, trial.models[0])
        trial.score = -trial.columns[self.task.criterion]

    def fit(self, trial: Trial, *given: Any) -> SharedKernelMixture:
        """Return a candidate fitted to X, y and sample_weight."""
        model: SharedKernelMixture = clone(self.prototype).set_params(**trial.params)
        return _fit_pruned(model, *given) if self.search.strategy == "prune" else model.fit(*given)

    def fit_to_all_rows(self, trial: Trial) -> SharedKernelMixture:
        """Return a candidate fitted to all rows."""
        return self.fit(trial, *self.given)

    def _by_held_out_rows(self, trial: Trial) -> None:
        """Set the mean log-density of held-out rows."""
        densities, weights = [], self.task.held_weights
        for training, held in self.task.folds:
            model = self.fit(trial, self.to_device(training.X), training.y, training.weights)
            densities.append(on_host(model.score_samples(self.to_device(held.X), held.y)))
            trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
        self.tried.append((trial, np.concatenate(densities)))
        trial.columns["log_likelihood"] = float(weights @ self.tried[-1][1])
        trial.score = trial.columns["log_likelihood"] / float(weights.sum())

    def _by_stability(self, trial: Trial) -> None:
        """Fit a candidate to both halves of the rows, several times, and set its stability."""
        rows = self.task.rows
        assert rows is not None
        agreements, X = [], self.to_device(rows.X)
        for halves in self.task.halvings:
            parts = [(self.to_device(half.X), half.y, half.weights) for half in map(rows.take, halves)]
            ends = [self.fit(trial, *part) for part in parts]
            models = [
                likelier(own, other, part)
                for own, other, part in zip(ends, reversed(ends), parts, strict=True)
            ]
            a, b = (on_host(model.predict(X)) for model in models)
            n_kernels = max(model.n_kernels_ for model in models)  # variational fits may leave some out
            trial.split_scores.append(least_stable(a, b, n_kernels, rows.row_weights))
            agreements.append(adjusted_rand_score(a, b))
        trial.score = float(np.median(trial.split_scores))
        trial.columns = {"stability": trial.score, "adjusted_rand": float(np.median(agreements))}
        trial.columns |= self._criterion("bic", trial.models[0])

    def _criterion(self, criterion: str, model: SharedKernelMixture) -> dict[str, float]:
        """Return an information criterion of a model fitted to all rows, and what it is made of."""
        free = n_parameters(model)
        value = free * (2.0 if criterion == "aic" else np.log(self.task.size)) - 2.0 * model.log_likelihood_
        return {criterion: value, "log_likelihood": model.log_likelihood_, "n_parameters": free}


def try_grid(
    grid: Grid, trials: Trials, evaluate: Callable[[Trial], None], best_of: Callable[[Trials], Trial]
) -> Trial:
    """Try the candidates of a grid, from few kernels to many, and return the best one."""
    scores: list[list[float]] = [[] for _ in grid.kinds]

    def is_given_up(own: list[float]) -> bool:
        return len(own) - int(np.argmax([*own, -np.inf])) > grid.patience

    for n_kernels in grid.numbers:
        left = [(kind, own) for kind, own in zip(grid.kinds, scores, strict=True) if not is_given_up(own)]
        # The time of a pass grows with the number of kernels.
        following = [k for k in grid.numbers if n_kernels <= k <= max(n_kernels, grid.reach)]
        trials.plan("kernels", sum(following) * len(left), 1.0)
        for kind, own in left:
            params = {"n_kernels": n_kernels, **kind}
            trial = trials.add("kernels", params, evaluate, n_steps=n_kernels)
            if trial is not None:
                own.append(trial.score)
        if grid.reach <= n_kernels != best_of(trials).params["n_kernels"]:
            break
    trials.check()
    return best_of(trials)


def likeliest(trials: Trials) -> Trial:
    """Return the trial of the highest score."""
    return trials.best


def largest_stable(trials: Trials) -> Trial:
    """Return the stable trial of the most kernels, or the most stable one."""
    stable = [trial for trial in trials.list if trial.score >= _STABLE]
    return max(stable, key=lambda trial: (trial.params["n_kernels"], trial.score), default=trials.best)


@_fit_context(prefer_skip_nested_validation=True)  # which tears callbacks down
def _fit_pruned(model: SharedKernelMixture, X: Any, y: Any, sample_weight: Any) -> SharedKernelMixture:
    return model._fit(X, y, sample_weight, prune=True)


# ---------------------------------------------------------------- averages


def average(
    tried: list[tuple[Trial, FloatArray]], weights: FloatArray, most: int
) -> tuple[list[Trial], FloatArray]:
    """Return the trials to average, the best one first, and their shares.

    The average of all candidates that gives held-out rows the highest density is a mixture, whose shares EM
    finds; those of the largest shares stay, and shares are found again.
    """
    finite = [each for each in tried if np.isfinite(each[0].score)]
    trials, densities = zip(*sorted(finite, key=lambda each: -each[0].score), strict=True)
    logs = np.array(densities)
    shares = _best_shares(logs, weights)
    others = [i for i in 1 + np.argsort(-shares[1:], kind="stable") if shares[i] > _LEAST_SHARE]
    kept = [0, *others[: most - 1]]
    return [trials[i] for i in kept], _best_shares(logs[kept], weights)


def _best_shares(logs: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the shares (S,) of densities in the average of the highest likelihood, from logs (S, n)."""
    shares, densities = np.full(len(logs), 1.0 / len(logs)), np.exp(logs - logs.max(axis=0))
    for _ in range(_PASSES):
        shares = shares * (densities @ (weights / (shares @ densities))) / weights.sum()
    return shares / shares.sum()


# ---------------------------------------------------------------- stability


def likelier(own: SharedKernelMixture, other: SharedKernelMixture, part: Any) -> SharedKernelMixture:
    """Return the fit to a part of the rows, or one that starts from kernels of another, if it is likelier."""
    moved: SharedKernelMixture = clone(own).set_params(
        n_kernels=None,
        init={"means": on_host(other.means_), "covariances": on_host(other.covariances_)},
        n_init=1,
        covariance_prior=getattr(own, "covariance_prior_", own.covariance_prior),
    )
    moved.fit(*part)
    return max(own, moved, key=lambda model: getattr(model, "lower_bound_", model.log_likelihood_))


def least_stable(a: IntArray, b: IntArray, n_kernels: int, weights: FloatArray) -> float:
    """Return the smallest Jaccard index of the kernels of two fits, assigned one to one.

    Kernels (n,) of rows with weights (n,) are numbers below `n_kernels`; a kernel without rows has index 0.
    """
    both = np.zeros((n_kernels, n_kernels))
    np.add.at(both, (a, b), weights)
    either = both.sum(axis=1)[:, None] + both.sum(axis=0) - both
    indices = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return float(indices[linear_sum_assignment(-indices)].min())
