"""No model is judged by rows that it has seen, and held-out rows decide nothing about what is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
)
from skmix.engine.compute.blocks import Block
from skmix.estimators.decisions import novelty_threshold
from skmix.estimators.search.classifier import QUICK_FITS, Selection

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def rows() -> Data:
    X, y = load_iris(return_X_y=True)
    # No row twice, so that rows are known by their values.
    return X + 1e-4 * np.random.default_rng(0).normal(size=X.shape), y


def known_by_value(X: Any) -> set[bytes]:
    return {row.tobytes() for row in np.ascontiguousarray(X, dtype=np.float64)}


def watch(monkeypatch: pytest.MonkeyPatch, kind: type, learning: list[str], judging: str) -> list[int]:
    """Note which rows each model learns from, and count those it is judged by, which must be others."""
    judged: list[int] = []

    def learn(name: str) -> None:
        method = getattr(kind, name)

        def spy(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
            found = method(self, X, *args, **kwargs)
            # Copies of a model have seen what it has.
            vars(self)["_seen"] = vars(self).get("_seen", set()) | known_by_value(X)
            return found

        monkeypatch.setattr(kind, name, spy)

    for name in learning:
        learn(name)
    method = getattr(kind, judging)

    def judge(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        assert not vars(self)["_seen"] & known_by_value(X)
        judged.append(len(X))
        return method(self, X, *args, **kwargs)

    monkeypatch.setattr(kind, judging, judge)
    return judged


@pytest.mark.parametrize("cv", [None, 3, "given"])
def test_no_classifier_is_judged_by_rows_it_has_learnt(
    rows: Data, cv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_classifiers_are_judged_by_other_rows(rows, cv, monkeypatch)


def check_classifiers_are_judged_by_other_rows(rows: Data, cv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows[0][::2], np.where(np.arange(75) % 7 == 0, -1, rows[1][::2])
    labelled = np.flatnonzero(y >= 0)
    if cv == "given":
        cv = [(labelled[a], labelled[b]) for a, b in StratifiedKFold(2).split(labelled, y[labelled])]
    n_folds = 5 if cv is None else 3 if cv == 3 else 2
    judged = watch(monkeypatch, SharedKernelClassifier, ["fit", "tune"], "predict_log_proba")
    estimator = SharedKernelClassifier(**QUICK_FITS)
    search = SharedKernelClassifierCV(
        estimator, n_kernels=3, covariance_type="tied", tune=0.1, n_members=1, cv=cv, random_state=0
    ).fit(X, y)
    assert {"tuning", "kernels"} <= set(search.cv_results_["stage"])
    # Each row that has a label is held out once, for each candidate.
    assert sum(judged[:n_folds]) == len(labelled)


@pytest.mark.parametrize("criterion", ["auto", "log_likelihood"])
def test_no_density_is_judged_by_rows_it_has_learnt(
    rows: Data, criterion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_densities_are_judged_by_other_rows(rows, criterion, monkeypatch)


def check_densities_are_judged_by_other_rows(
    rows: Data, criterion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = watch(monkeypatch, SharedKernelMixture, ["fit"], "score_samples")
    SharedKernelMixtureCV(
        n_kernels=[2, 3], covariance_type="diag", criterion=criterion, cv=3, random_state=0
    ).fit(rows[0])
    assert sum(judged[:3]) == len(rows[0])


def fits_of(X: np.ndarray, y: np.ndarray, folds: Any, prior: Any, tune: Any) -> dict[str, list[np.ndarray]]:
    """Return all numbers of the models of each candidate that a search tries, by its parameters."""
    found: dict[str, list[np.ndarray]] = {}
    score = Selection._score

    def spy(self: Selection, trial: Any, *args: Any) -> None:
        score(self, trial, *args)
        for model in trial.models:
            part = model.models_[0]
            key = f"{trial.stage} {trial.params}"
            found.setdefault(key, []).extend([part.weights_, part.means_, part.covariances_])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "_score", spy)
        estimator = SharedKernelClassifier(covariance_prior=prior, **QUICK_FITS)
        SharedKernelClassifierCV(
            estimator, n_kernels=3, covariance_type="full", tune=tune, n_members=1, cv=folds, random_state=0
        ).fit(X, y)
    return {key: [array.copy() for array in arrays] for key, arrays in found.items()}


@pytest.mark.parametrize(("prior", "tune"), [("auto", False), (1.0, "auto")])
def test_what_is_fitted_does_not_depend_on_held_out_rows(rows: Data, prior: Any, tune: Any) -> None:
    """Garbage in place of held-out rows changes no map of features, prior, start, fit or tuning."""
    check_held_out_rows_change_nothing(rows, prior, tune)


def check_held_out_rows_change_nothing(rows: Data, prior: Any, tune: Any) -> None:
    X, y = rows
    random = np.random.default_rng(1)
    held = np.sort(random.choice(len(X), 40, replace=False))
    folds = [(np.setdiff1d(np.arange(len(X)), held), held)]
    poisoned, labels = X.copy(), y.copy()
    poisoned[held] = X[held] + random.uniform(0.0, 9.0, size=(40, 4))
    labels[held] = random.permutation(y[held])
    clean, other = (fits_of(*data, folds, prior, tune) for data in ((X, y), (poisoned, labels)))
    both = clean.keys() & other.keys()
    # With the given prior there are five candidates, of which three are tuned.
    expected = {"tuning", "kernels"} if tune else {"screening", "kernels"}
    assert {key.split()[0] for key in both} == expected
    assert {"power", "ranks", "discriminants"} <= {word.strip("',") for key in both for word in key.split()}
    for key in both:
        for one, two in zip(clean[key], other[key], strict=True):
            assert_array_equal(one, two, err_msg=key)


def test_the_best_candidates_are_tuned_from_their_own_fits(rows: Data) -> None:
    X, y = rows
    estimator = SharedKernelClassifier(covariance_prior=1.0, **QUICK_FITS)
    search = SharedKernelClassifierCV(
        estimator, n_kernels=3, covariance_type="full", tune="auto", n_members=1, cv=3, random_state=0
    ).fit(X, y)
    table = search.cv_results_
    stages, scores = table["stage"], table["mean_test_score"]
    kinds = [(each["transform"], each["reduction"]) for each in table["params"]]
    fitted = [i for i in np.argsort(-scores) if stages[i] == "kernels"]
    tuned = [i for i in np.flatnonzero(stages == "tuning")]
    assert len(fitted) == 5
    # Three of them with three folds, each with both shares of the likelihood.
    assert [kinds[i] for i in tuned] == [kinds[i] for i in fitted[:3] for _ in range(2)]
    assert sorted({table["params"][i]["trade_off"] for i in tuned}) == [0.0, 0.1]
    # The winner is the best of all, and the table says so.
    assert scores[search.best_index_] == scores.max() == search.best_score_
    assert table["rank_test_score"][search.best_index_] == 1


def test_scores_are_those_of_the_probabilities_that_members_are_averaged_by(rows: Data) -> None:
    """Folds of different sizes and weights count by their weight, at one temperature for all."""
    X, y = rows
    weights = np.random.default_rng(0).uniform(0.2, 3.0, size=150)
    folds = [
        (np.setdiff1d(np.arange(150), held), held) for held in (np.arange(0, 150, 9), np.arange(1, 150, 3))
    ]
    scored = []
    score = Selection._score

    def spy(self: Selection, trial: Any, own: Any, *args: Any) -> None:
        score(self, trial, own, *args)
        held = [part for _, part in own]
        codes = np.concatenate([part.codes for part in held])
        true = trial.probabilities[np.arange(len(codes)), codes]
        loss = -np.average(np.log(true), weights=np.concatenate([part.row_weights for part in held]))
        scored.append((loss, -trial.score, trial.columns["temperature"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "_score", spy)
        estimator = SharedKernelClassifier(covariance_prior=None, **QUICK_FITS)
        SharedKernelClassifierCV(
            estimator, n_kernels=9, covariance_type="full", tune=False, cv=folds, random_state=0
        ).fit(X, y, weights)
    losses, scores, temperatures = np.transpose(scored)
    assert_allclose(losses, scores, rtol=1e-9)
    assert np.all(temperatures > 1.1)


def test_priors_are_of_the_covariance_within_classes_that_a_kernel_has_its_share_of(rows: Data) -> None:
    X, y = rows
    made: dict[tuple[int, float], tuple[float, np.ndarray]] = {}
    make = Selection.make

    def spy(self: Selection, params: Any, own: Any, *args: Any) -> Any:
        model = make(self, params, own, *args)
        if len(own.X) == 120 and params["transform"] == params["reduction"] == "none":
            made[params["n_kernels"], params["prior_rows"]] = model.covariance_prior
        return model

    held = np.arange(0, 150, 5)
    folds = [(np.setdiff1d(np.arange(150), held), held)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "make", spy)
        estimator = SharedKernelClassifier(**QUICK_FITS)
        SharedKernelClassifierCV(
            estimator, n_kernels=[3, 12], covariance_type="tied", tune=False, cv=folds, random_state=0
        ).fit(X, y)
    (few, common), (many, smaller) = (made[k, 0.5] for k in (3, 12))
    # Rows for each of four features; four kernels of a class halve its covariance: 4^(-2/4).
    assert few == many == 2.0
    assert_allclose(smaller, 0.5 * common)
    training = folds[0][0]
    within = sum((np.sum(y[training] == c) - 1) * np.cov(X[training][y[training] == c].T) for c in range(3))
    overall = np.diag(X[training].var(axis=0))
    assert_allclose(common, (within + overall) / (120 - 3 + 1))


# ---------------------------------------------------------------- labels that nothing can be learnt about
#
# Where labels are coins, a row's label has the probability p = 1/2 whatever was learnt, so that the product
# of q / p over held-out rows has the expectation 1: by Markov's inequality, the sum of log q / p exceeds 20
# in one of 5e8 cases. So does that of densities q of rows whose density is p, and that over independent
# repetitions. A model that is judged by its own rows exceeds it at once.
_MOST, _REPEATS = 20.0, 3


def coins(n_rows: int, seed: int = 0, n_features: int = 6) -> Data:
    """Return rows of a standard normal distribution with labels that do not depend on them."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n_rows, n_features)), random.integers(0, 2, size=n_rows)


def every_third(n_rows: int) -> list[Data]:
    number = np.arange(n_rows)
    return [(number[number % 3 != part], number[number % 3 == part]) for part in range(3)]


SEARCHES: list[tuple[str, Any]] = [
    ("accuracy", {}),
    ("neg_log_loss", {"kernels": "own"}),
    ("neg_log_loss", {"feature_sets": [[0, 1, 2], [3, 4, 5]]}),
]


def check_searches_of_classifiers(scoring: str, settings: Any) -> None:
    averages, best, known = [], [], []
    for seed in range(_REPEATS):
        X, y = coins(240, seed)
        search = SharedKernelClassifierCV(
            SharedKernelClassifier(covariance_prior=None, **QUICK_FITS),
            n_kernels=20,
            covariance_type="full",
            scoring=scoring,
            cv=every_third(len(X)),
            random_state=0,
            **settings,
        ).fit(X, y)
        known.append(search.score(X, y))
        averages.append(np.nanmean(search.cv_results_["mean_test_score"]))
        best.append(search.best_score_)
    assert np.mean(known) > 0.6
    if scoring == "accuracy":
        # Five standard deviations, of the average of all candidates and of the best of each repetition.
        assert np.mean(averages) < 0.5 + 5.0 * np.sqrt(0.25 / (240 * _REPEATS))
        assert max(best) < 0.5 + 5.0 * np.sqrt(0.25 / 240)
    else:
        # The geometric mean of three folds of 80 rows has no larger expectation.
        assert np.mean(averages) < -np.log(2.0) + _MOST / (80 * _REPEATS)
        assert max(best) < -np.log(2.0) + _MOST / 80


@pytest.mark.parametrize(("scoring", "settings"), SEARCHES)
def test_no_search_of_classifiers_predicts_coins(scoring: str, settings: Any) -> None:
    check_searches_of_classifiers(scoring, settings)


def check_searches_of_mixtures(labelled: bool) -> None:
    gains = []
    for seed in range(_REPEATS):
        X, y = coins(180, seed)
        search = SharedKernelMixtureCV(
            SharedKernelMixture(covariance_prior=1.0, tol=1e-3),
            n_kernels=[2, 20],
            covariance_type="full",
            cv=every_third(len(X)),
            random_state=0,
        ).fit(X, y if labelled else None)
        true = multivariate_normal(np.zeros(6)).logpdf(X)
        assert np.sum(search.score_samples(X) - true) > _MOST  # these rows it knows
        splits = [search.cv_results_[f"split{part}_test_score"] - true[part::3].mean() for part in range(3)]
        gains.append(60.0 * np.max(splits, axis=1))
    # Of each fold, in all repetitions.
    assert np.all(np.sum(gains, axis=0) < _MOST)


@pytest.mark.parametrize("labelled", [False, True])
def test_no_search_of_mixtures_is_denser_than_the_truth(labelled: bool) -> None:
    check_searches_of_mixtures(labelled)


TUNINGS = ("all rows", "one less", "weights", "new rows", "few new rows")


def check_tuning(kind: str) -> None:
    parts = {"one less": slice(1, 800), "new rows": slice(800, 1800), "few new rows": slice(800, 1000)}
    own, new = parts.get(kind, slice(0, 800)), "new" in kind
    # Weights of at most one: with more, log q / p could have a larger expectation.
    weights = np.random.default_rng(1).uniform(0.9, 1.0, size=800) if kind == "weights" else None
    settings: Any = {"trade_off": [1.0, 0.01], "max_iter": 10, "random_state": 0}
    found = []
    for seed in range(_REPEATS):
        X, y = coins(1800, seed)
        model = SharedKernelClassifier(80, covariance_prior=None, init="class", tol=1e-2, random_state=0)
        model.fit(X[:800], y[:800])
        assert model.score(X[:800], y[:800]) > 0.8
        model.tune(X[own], y[own], sample_weight=weights, new_rows=new, **settings)
        found.append([model.tuned_["before"], model.tuned_["after"]])
    n_held = _REPEATS * {"new rows": 100, "few new rows": 200}.get(kind, 80)
    for scores in zip(*found, strict=True):
        assert np.mean([each["error"] for each in scores]) > 0.5 - 5.0 * np.sqrt(0.25 / n_held)
        assert np.mean([each["log_loss"] for each in scores]) > np.log(2.0) - _MOST / (0.9 * n_held)


@pytest.mark.parametrize("kind", TUNINGS)
def test_tuning_predicts_no_coins(kind: str) -> None:
    check_tuning(kind)


def by_search(X: np.ndarray, y: np.ndarray, model: SharedKernelClassifier) -> tuple[Any, float]:
    search = SharedKernelClassifierCV(
        model, n_kernels=16, covariance_type="full", tune=False, n_members=1, cv=2, random_state=0
    ).fit(X, y)
    return search, search.classifier_.threshold_


def by_tuning(X: np.ndarray, y: np.ndarray, model: SharedKernelClassifier) -> tuple[Any, float]:
    model.fit(X, y).tune(X, y, trade_off=[1.0], max_iter=5, random_state=0)
    return model, model.threshold_


def by_weights(X: np.ndarray, y: np.ndarray, model: SharedKernelClassifier) -> tuple[Any, float]:
    model.fit(X, y, np.ones(len(X)))
    return model, model.threshold_


def of_a_density(X: np.ndarray, y: np.ndarray, model: SharedKernelClassifier) -> tuple[Any, float]:
    search = SharedKernelMixtureCV(
        SharedKernelMixture(covariance_prior=None, tol=1e-2), n_kernels=[8, 16], covariance_type="full", cv=2
    ).fit(X)
    return search, novelty_threshold(search, 0.1, Block(X, None, None))


THRESHOLDS = (by_weights, by_tuning, by_search, of_a_density)


def check_threshold(make: Any) -> None:
    shares, above = [], []
    for seed in range(_REPEATS):
        X, y = coins(240, seed)
        model = SharedKernelClassifier(16, covariance_prior=None, reject_below=0.1, tol=1e-2, random_state=0)
        found, threshold = make(X, y, model)
        shares.append(np.mean(found.score_samples(coins(4000, seed + _REPEATS)[0]) < threshold))
        above.append(np.quantile(found.score_samples(X), 0.1) > threshold)
    # Five standard deviations of the quantile of 240 rows, and of the share of 4000.
    assert np.mean(shares) < 0.1 + 5.0 * np.sqrt((0.09 / 240 + 0.09 / 4000) / _REPEATS)
    assert all(above)


@pytest.mark.parametrize("make", THRESHOLDS)
def test_thresholds_are_not_those_of_rows_that_were_learnt(make: Any) -> None:
    check_threshold(make)
