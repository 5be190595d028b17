"""Model selection for densities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial, reduce
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy
from sklearn.base import DensityMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import namespace, on_host
from ...engine.covariances import STRUCTURES
from ...engine.model import FloatArray, IntArray
from .._settings import check_count, is_wide
from ..densities import n_parameters
from ..io import log_probabilities, savable
from ..mixture import SharedKernelMixture
from ..rows import OF_ROWS, Sender, enter, note_rows, open_training, sender, warn_caller
from ._base import Params, Rows, Search, Trial, Trials, delegated, documented, make_folds

# The numbers of kernels reach this far above the number of classes, or to this many, and go on by as much
# again while the largest is the best. More classes than this many are groups that share kernels.
_KERNELS_PER_CLASS, _FEWEST_TO_REACH = 4, 10
# Strengths of the prior on covariances. Kernels that are narrow in some features alone need a weak one.
_PRIORS = {"full": ("auto", "weak"), "diag": ("auto", "weak")}
# A kind of candidates is given up after so many numbers of kernels that were no better than one before.
_IN_VAIN = 3
# Settings of fits unless an estimator is given: one start may miss what the next number of kernels finds.
SEVERAL_STARTS: Params = {"n_init": 2, "tol": 1e-3}
# The same by stability: a start that misses the best fit to a half looks like an unstable kernel.
MANY_STARTS: Params = {"init": "k-means", "n_init": 10, "tol": 1e-3}
# Random halvings of the rows, and the least stability of a number of kernels that is taken.
_N_HALVINGS, _STABLE = 5, 0.85
# Passes of EM for the shares of an average.
_PASSES = 100
# Candidates with smaller shares are not worth a fit.
_LEAST_SHARE = 1e-3


@savable
@documented
class SharedKernelMixtureCV(DensityMixin, Search):
    """SharedKernelMixture with the number of kernels and the covariance type chosen by a criterion.

    By the log-density of held-out rows, the strength of the prior on covariances is chosen as well, and the
    densities of several candidates are averaged: `score_samples`, `score`, `class_log_likelihood` and
    `sample` are of the average, while `predict` and `predict_proba` give kernels of the best candidate.

    Parameters
    ----------
    estimator : SharedKernelMixture, default=None
        Settings that are not searched, such as `init`, `n_init`, `max_iter` and priors; a `covariance_prior`
        other than 'auto' is not searched either. None takes the better of 2 starts, which end when the mean
        log-likelihood changes by less than 0.001; by stability, the best of 10 by k-means.
        When to change: for another kind of fit in all candidates, such as `kernel='t'` or more starts.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. 'auto' goes from one to four for each class, at least to 10 and at most to
        40, in steps of a quarter, and on while the largest is the best. With ``init='class'`` it begins with
        one for each class and has no such limit; by stability it ends as if there were one class.
        When to change: a list, if the search takes too long or its best number is the largest tried.
    covariance_type : str, list of str or 'auto', default='auto'
        Covariance types to try; 'auto' is full, tied, diag and spherical, and full alone by stability, which
        does not tell a good shape from a bad one. For more than 500 features that are also more than the rows
        it is diag and spherical, with a warning.
        When to change: one type, if you know it: the search takes a fraction of the time.
    criterion : {'auto', 'log_likelihood', 'bic', 'icl', 'aic', 'stability'}, default='auto'
        What the choice is made by: the log-density of held-out rows, each in its own class, by
        cross-validation, for the best density; the Bayesian information criterion, for the number of
        clusters; the same plus twice the entropy of the responsibilities, which prefers kernels that do not
        overlap; Akaike's criterion; or the stability of kernels as clusters. 'auto' is the log-density, and
        BIC for rows in files or Dask collections, for pruning, and where no class has two rows.

        For 'stability' candidates are fitted to both halves of the rows, each class halved at random, five
        times or `cv` times. Either half is also fitted from where the other one ended, and the likelier fit
        is kept, so that few good starts suffice. The kernels of both fits are then compared as clusters of
        all rows: assigned one to one, each pair has the Jaccard index #(A ∩ B) / #(A ∪ B), and the least
        stable pair counts. The largest number of kernels is chosen whose stability, the median over halvings,
        is at least 0.85 (Hennig, 2007, calls such clusters highly stable), or else the most stable one. One
        kernel is always stable.
        When to change: 'bic' for the number of clusters, and for speed; 'stability' where other rows
        should show the same clusters.
    n_members : int, default=8
        How many candidates at most are averaged, by the log-density of held-out rows: those of the largest
        shares in the average of all candidates that gives these rows the highest density, and always the
        best. 1 is the best candidate alone, and so is any other criterion.
        When to change: 1 for a single mixture whose kernels are what you want.
    strategy : {'grid', 'prune'}, default='grid'
        'grid' fits every candidate. 'prune' starts with `n_kernels` and removes those that do not explain
        enough rows for their parameters (Figueiredo & Jain, 2002), then the lightest one by one, and takes
        the number of the lowest BIC; of a variational fit, that of the highest bound. At least one kernel for
        each class stays.
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
        "criterion": [StrOptions({"auto", "bic", "icl", "aic", "log_likelihood", "stability"})],
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
        rows, folds, halvings, criterion = None, [], [], self.criterion
        stability = criterion == "stability"
        prototype = self._prototype(SharedKernelMixture(**(MANY_STARTS if stability else SEVERAL_STARTS)))
        to_device = sender(prototype, X)
        if criterion == "auto":
            in_blocks = not enter(self, X).is_in_memory
            criterion = "bic" if in_blocks or self.strategy == "prune" else "log_likelihood"
        if groups is not None and criterion in ("bic", "aic", "icl"):
            raise ValueError(
                f"groups are used by cross-validation only; criterion={criterion!r} is of fits to all rows. "
                "Leave out groups, or use criterion='log_likelihood'."
            )
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
            if stability:
                halvings = self._halvings(rows, groups, prototype.random_state)
            if criterion == "log_likelihood":
                folds = make_folds(rows, self.cv, groups, kept, prototype.random_state)
                if not folds and self.criterion == "auto":
                    rows, criterion = None, "bic"
                elif not folds:
                    raise ValueError(f"{n_rows} rows are too few to hold any out: each class has one.")

        held_weights = np.concatenate([held.row_weights for _, held in folds] or [np.empty(0)])

        def fit(trial: Trial, *given: Any) -> SharedKernelMixture:
            model: SharedKernelMixture = clone(prototype).set_params(**trial.params)
            return _fit_pruned(model, *given) if self.strategy == "prune" else model.fit(*given)

        # Candidates and the log-densities (n,) of held-out rows.
        tried: list[tuple[Trial, FloatArray]] = []

        def evaluate(trial: Trial) -> None:
            if not folds:
                trial.models = [fit(trial, X, y, sample_weight)]
                if rows is not None and halvings:
                    _compare_halves(trial, rows, halvings, partial(fit, trial), to_device)
                    trial.columns |= _criteria("bic", trial.models[0], size, None, to_device)
                    return
                trial.columns = _criteria(criterion, trial.models[0], size, rows, to_device)
                trial.score = -trial.columns[criterion]
                return
            densities = []
            for training, held in folds:
                model = fit(trial, to_device(training.X), training.y, training.weights)
                densities.append(on_host(model.score_samples(to_device(held.X), held.y)))
                trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
            tried.append((trial, np.concatenate(densities)))
            trial.columns["log_likelihood"] = float(held_weights @ tried[-1][1])
            trial.score = trial.columns["log_likelihood"] / float(held_weights.sum())

        numbers, types = self._candidates()
        if types is None and is_wide(n_rows, n_features):
            types = ["diag", "spherical"]
            warn_caller(
                f"{n_rows} rows have {n_features} features: covariance_type='auto' tries only 'diag' and "
                "'spherical', without correlations inside kernels. Set covariance_type to choose.",
                UserWarning,
            )
        reach = np.inf
        if numbers is None:
            first, usual = 1, min(n_classes, _FEWEST_TO_REACH)
            if stability:  # which has half of the rows
                n_rows, usual = n_rows // 2, 1
            elif prototype.init == "class":
                first = usual = n_classes
            numbers, reach = self._numbers(first, usual, n_rows // (n_features + 1))
        kinds: list[dict[str, str]] = [
            {"covariance_type": name} for name in types or (["full"] if stability else STRUCTURES)
        ]
        if folds and prototype.covariance_prior == "auto" and prototype.inference == "em":
            kinds = [
                {**kind, "covariance_prior": prior}
                for kind in kinds
                for prior in _PRIORS.get(kind["covariance_type"], ("auto",))
            ]
        scores: list[list[float]] = [[] for _ in kinds]
        # Which is the best by stability is known at the end.
        trials.n_kept = len(numbers) * len(kinds) if stability else 1

        def best() -> Trial:
            return _largest_stable(trials) if stability else trials.best

        def is_given_up(own: list[float]) -> bool:
            # Cross-validation takes long, and more kernels seldom help after several in a row did not.
            in_vain = len(own) - int(np.argmax([*own, -np.inf])) > _IN_VAIN
            return in_vain and bool(folds) and bool(np.isfinite(reach))

        for n_kernels in numbers:
            left = [(kind, own) for kind, own in zip(kinds, scores, strict=True) if not is_given_up(own)]
            # Passes take a time that grows with the number of kernels.
            following = [k for k in numbers if n_kernels <= k <= max(n_kernels, reach)]
            trials.plan("kernels", sum(following) * len(left), 1.0)
            for kind, own in left:
                params = {"n_kernels": n_kernels, **kind}
                trial = trials.add("kernels", params, evaluate, n_steps=n_kernels)
                if trial is not None:
                    own.append(trial.score)
            if reach <= n_kernels != best().params["n_kernels"]:
                break
        trials.check()
        members, shares = [best()], np.ones(1)
        if folds and np.isfinite(trials.best.score):
            members, shares = _average(tried, held_weights, self.n_members)
            for trial in trials.list:
                trial.columns["share"] = sum(
                    share for each, share in zip(members, shares, strict=True) if each is trial
                )
        mixtures = [(each.models or [fit(each, X, y, sample_weight)])[0] for each in members]
        self.mixtures_, self.shares_ = mixtures, shares
        return best()

    def _halvings(self, rows: Rows, groups: Any, seed: int) -> list[tuple[IntArray, IntArray]]:
        """Return row numbers of both halves, several times; every class is halved."""
        if self.strategy == "prune":
            raise ValueError("criterion='stability' compares numbers of kernels: use strategy='grid'.")
        if groups is not None:
            raise ValueError(
                "criterion='stability' halves the rows of each class at random: leave out groups."
            )
        if not isinstance(self.cv, Integral | None):
            raise ValueError(f"criterion='stability' takes the number of halvings for cv, got {self.cv!r}.")
        random, found = np.random.RandomState(seed), []
        for _ in range(_N_HALVINGS if self.cv is None else int(self.cv)):
            order = random.permutation(len(rows.X))
            order = order[np.argsort(rows.codes[order], kind="stable")]
            found.append((order[::2], order[1::2]))
        return found

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

    def class_log_likelihood(self, X: ArrayLike) -> FloatArray:
        """Return log p(x | class j), shape (n, L), of rows X (n, M)."""
        rows = self._accept(X)
        return self._averaged(each.class_log_likelihood(rows) for each in self.mixtures_)

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


@_fit_context(prefer_skip_nested_validation=True)  # which tears callbacks down
def _fit_pruned(model: SharedKernelMixture, X: Any, y: Any, sample_weight: Any) -> SharedKernelMixture:
    return model._fit(X, y, sample_weight, prune=True)


def _average(
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


def _compare_halves(
    trial: Trial,
    rows: Rows,
    halvings: list[tuple[IntArray, IntArray]],
    fit: Callable[..., SharedKernelMixture],
    to_device: Sender,
) -> None:
    """Fit a candidate to both halves of the rows, several times, and set its stability."""
    agreements, X = [], to_device(rows.X)
    for halves in halvings:
        parts = [(to_device(half.X), half.y, half.weights) for half in map(rows.take, halves)]
        ends = [fit(*part) for part in parts]
        models = [
            _likelier(own, other, part) for own, other, part in zip(ends, reversed(ends), parts, strict=True)
        ]
        a, b = (on_host(model.predict(X)) for model in models)
        n_kernels = max(model.n_kernels_ for model in models)  # variational fits may leave some out
        trial.split_scores.append(least_stable(a, b, n_kernels, rows.row_weights))
        agreements.append(adjusted_rand_score(a, b))
    trial.score = float(np.median(trial.split_scores))
    trial.columns = {"stability": trial.score, "adjusted_rand": float(np.median(agreements))}


def _likelier(own: SharedKernelMixture, other: SharedKernelMixture, part: Any) -> SharedKernelMixture:
    """Return the fit to a part of the rows, or one that starts from kernels of another, if it is likelier."""
    moved: SharedKernelMixture = clone(own).set_params(
        n_kernels=None,
        init={"means": on_host(other.means_), "covariances": on_host(other.covariances_)},
        n_init=1,
        covariance_prior=vars(own).get("covariance_prior_", own.covariance_prior),
    )
    moved.fit(*part)
    return max(own, moved, key=lambda model: vars(model).get("lower_bound_", model.log_likelihood_))


def least_stable(a: IntArray, b: IntArray, n_kernels: int, weights: FloatArray) -> float:
    """Return the smallest Jaccard index of the kernels of two fits, assigned one to one.

    Kernels (n,) of rows with weights (n,) are numbers below `n_kernels`; a kernel without rows has index 0.
    """
    both = np.zeros((n_kernels, n_kernels))
    np.add.at(both, (a, b), weights)
    either = both.sum(axis=1)[:, None] + both.sum(axis=0) - both
    indices = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return float(indices[linear_sum_assignment(-indices)].min())


def _largest_stable(trials: Trials) -> Trial:
    """Return the stable trial of the most kernels, or the most stable one."""
    stable = [trial for trial in trials.list if trial.score >= _STABLE]
    return max(stable, key=lambda trial: (trial.params["n_kernels"], trial.score), default=trials.best)


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
    """Return −Σ_n Σ_k w_nk log w_nk, rows with a label in their own class. The background counts too."""
    shares = np.array(on_host(model.responsibilities(to_device(rows.X))))
    if rows.y is not None:
        labelled = np.flatnonzero(rows.codes >= 0)
        own = rows.take(labelled)
        shares[labelled] = on_host(model.responsibilities(to_device(own.X), own.y))
    if "background_weights_" in vars(model):
        shares = np.column_stack([shares, np.clip(1.0 - shares.sum(axis=1), 0.0, 1.0)])
    return float(-xlogy(shares, shares).sum(axis=1) @ rows.row_weights)
