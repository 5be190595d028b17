"""What a search would do, nearly without a fit: default folds, the table of trials, and its candidates."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.estimators.search import _base
from skmix.estimators.search import classifier as module
from skmix.estimators.search._base import SCREENING, Rows, Trial, Trials
from skmix.estimators.search.classifier import Selection

# ---------------------------------------------------------------- folds


def splits(codes: np.ndarray, groups: Any = None, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(_base._splits(codes, None, groups, np.arange(len(codes)), seed))


@pytest.mark.parametrize(("n_rows", "n_folds"), [(499, 5), (500, 3), (3999, 3), (4000, 1)])
def test_the_more_rows_the_fewer_folds(n_rows: int, n_folds: int) -> None:
    codes = np.arange(n_rows + 7) % 2
    codes[n_rows:] = -1
    found = splits(codes)
    assert len(found) == n_folds
    for training, held in found:
        assert_array_equal(np.union1d(training, held), np.arange(n_rows))
        assert len(training) + len(held) == n_rows
        # Of both classes alike.
        assert abs(codes[held].sum() - len(held) / 2) <= 1
        assert np.all(np.diff(held) > 0)
    every = np.concatenate([held for _, held in found])
    assert len(np.unique(every)) == len(every) == (800 if n_folds == 1 else n_rows)
    again, other = splits(codes), splits(codes, seed=1)
    assert_array_equal(found[0][1], again[0][1])
    assert not np.array_equal(found[0][1], other[0][1])


def test_small_classes_are_in_every_fold_and_a_single_row_always_trains() -> None:
    # One row always trains, and a class of three rows is in three folds.
    codes = np.repeat([0, 1, 2], [1, 3, 40])
    found = splits(codes)
    assert len(found) == 3
    for training, held in found:
        assert 0 in training
        assert 0 not in held
        assert np.count_nonzero(codes[held] == 1) == 1
    assert splits(np.arange(4)) == []
    # A thousand classes of four rows need more than a fifth to be held out.
    (training, held) = splits(np.repeat(np.arange(1000), 4))[0]
    assert len(held) == 1000
    assert len(training) == 3000


def test_there_are_no_more_folds_than_groups() -> None:
    codes, groups = np.tile([0, 1], 30), np.repeat([0, 1, 2], 20)
    found = splits(codes, groups)
    assert sorted(np.unique(groups[held]).tolist() for _, held in found) == [[0], [1], [2]]
    assert len(splits(codes, np.arange(60))) == 5


# ---------------------------------------------------------------- trials


def test_the_table_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(_base, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    trials = Trials(None)

    def evaluate(score: float, splits: list[float]) -> Any:
        def call(trial: Trial) -> None:
            clock[0] += 6.0
            trial.score, trial.split_scores, trial.models = score, splits, ["model"]
            trial.columns["temperature"] = 2.0

        return call

    def fail(trial: Trial) -> None:
        raise ValueError("no fit")

    trials.n_kept = 2
    trials.add(SCREENING, {"k": 1}, evaluate(9.0, [9.0]))
    trials.add(SCREENING, {"k": 2}, evaluate(8.0, [8.0]))
    for k, score in ((1, 3.0), (2, 5.0), (3, 5.0), (4, float("nan"))):
        trials.add("kernels", {"k": k}, evaluate(score, [score - 1.0, score + 1.0, score]))
    trials.add("kernels", {"k": 5, "rows": 2}, fail)
    # What was tried in a stage is not tried again, but for the screening.
    assert trials.add("kernels", {"k": 2}, fail) is trials.list[3]
    table = trials.table()
    assert table["stage"].tolist() == [SCREENING] * 2 + ["kernels"] * 5
    assert table["param_k"].tolist() == [1, 2, 1, 2, 3, 4, 5]
    assert table["param_rows"].tolist() == [None] * 6 + [2]
    assert_array_equal(table["mean_test_score"], [9.0, 8.0, 3.0, 5.0, 5.0, np.nan, -np.inf])
    # Equal scores have the same rank; those that failed, or are no number, are last but for the screening.
    assert table["rank_test_score"].tolist() == [6, 7, 3, 1, 1, 5, 4]
    assert table["mean_fit_time"].tolist() == [6.0, 6.0, 2.0, 2.0, 2.0, 2.0, 0.0]
    assert_array_equal(table["split1_test_score"], [np.nan, np.nan, 4.0, 6.0, 6.0, np.nan, np.nan])
    np.testing.assert_allclose(
        table["std_test_score"], [0.0, 0.0, *[np.sqrt(2.0 / 3.0)] * 3, np.nan, np.nan], rtol=1e-12
    )
    assert_array_equal(table["temperature"], [2.0] * 6 + [np.nan])
    assert table["params"] == [{"k": k} for k in (1, 2, 1, 2, 3, 4)] + [{"k": 5, "rows": 2}]
    # The first of the best stays the best; only the best two have their models.
    assert trials.best is trials.list[3]
    assert [bool(trial.models) for trial in trials.list][:5] == [False, False, False, True, True]


def test_candidates_without_time_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(_base, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    trials = Trials(10.0)

    def evaluate(trial: Trial) -> None:
        trial.score = 1.0

    clock[0] = 11.0
    assert trials.add("kernels", {"k": 1}, evaluate) is not None  # one is always tried
    assert trials.add("kernels", {"k": 1}, evaluate) is not None
    for _ in range(2):
        assert trials.add("kernels", {"k": 2}, evaluate) is None
    assert trials.add("kernels", {"k": 3}, evaluate) is None
    assert trials.add(SCREENING, {"k": 1}, evaluate) is None
    assert trials.n_untried == 2
    clock[0] = 10.0
    assert trials.add("kernels", {"k": 3}, evaluate) is not None


# ---------------------------------------------------------------- settings


def test_settings_of_the_search_come_before_those_of_its_estimator() -> None:
    estimator = SharedKernelClassifier(n_jobs=2, device="cuda", random_state=1, warm_start=True, tol=0.5)
    found = SharedKernelClassifierCV(estimator)._prototype(SharedKernelClassifier())
    assert (found.n_jobs, found.device, found.warm_start, found.tol) == (2, "cuda", False, 0.5)
    search = SharedKernelClassifierCV(estimator, n_jobs=3, device="cpu", random_state=5)
    other = search._prototype(SharedKernelClassifier())
    assert (other.n_jobs, other.device, other.warm_start, other.tol) == (3, "cpu", False, 0.5)
    # The same seed, of the search or of its estimator, gives the same one for all candidates.
    for seed, expected in ((1, found), (5, other)):
        own = SharedKernelClassifierCV(random_state=seed)._prototype(SharedKernelClassifier())
        assert own.random_state == expected.random_state
    assert found.random_state != other.random_state
    assert estimator.n_jobs == 2
    # Without an estimator there are the settings of the search's own.
    assert SharedKernelMixtureCV()._prototype(SharedKernelMixture(tol=0.25)).tol == 0.25


def test_numbers_are_tried_once_each_from_few_to_many() -> None:
    search = SharedKernelClassifierCV(n_kernels=[8, 2, 8, 4], covariance_type=["tied", "full"])
    assert search._candidates() == ([2, 4, 8], ["tied", "full"])
    assert SharedKernelClassifierCV(n_kernels=3, covariance_type="diag")._candidates() == ([3], ["diag"])
    assert SharedKernelClassifierCV()._candidates() == (None, None)


# ---------------------------------------------------------------- candidates


def selection(
    n_rows: int = 1000,
    n_classes: int = 3,
    n_folds: int = 3,
    n_features: int = 4,
    prototype: SharedKernelClassifier | None = None,
    weights: Any = None,
    **settings: Any,
) -> Selection:
    codes = np.arange(n_rows) % n_classes
    X = np.random.default_rng(0).normal(size=(n_rows, n_features))
    rows = Rows(X, codes, codes, weights)
    search = SharedKernelClassifierCV(**settings)
    own = SharedKernelClassifier(random_state=0) if prototype is None else prototype
    return Selection(search, own, rows, [(rows, rows)] * n_folds, Trials(None), lambda each: each)


def numbers_of(found: list[tuple[str, int, str, float]], kernels: str, name: str) -> list[int]:
    return sorted({k for own, k, kind, _ in found if (own, kind) == (kernels, name)})


def test_numbers_of_kernels_grow_with_the_rows() -> None:
    def tried(
        n_train: int, width: int = 4, n_classes: int = 3, reduction: str = "none", **settings: Any
    ) -> Any:
        given = selection(**settings).kernels(n_classes, n_train, width, None, None, reduction)
        return [numbers_of(given, *kind) for kind in (("own", "full"), ("shared", "full"), ("own", "tied"))]

    # At least three rows for each kernel of three classes, and two numbers in the means of a row.
    assert tried(1000) == [[3, 6, 12, 24, 48, 96, 192], [3, 6, 12, 24, 48, 96, 192], [3, 48]]
    assert tried(150) == [[3, 6, 12, 24, 48], [3, 6, 12, 24, 48], [3, 48]]
    assert tried(143) == [[3, 6, 12, 24], [3, 6, 12, 24], [3]]
    assert tried(150, width=30) == [[3, 6], [3, 6], [3, 48]]
    # One for each class is always tried.
    assert tried(6) == [[3], [3], [3]]
    # At most 512, whatever the rows.
    assert tried(100_000, n_classes=5)[0][-1] == 320
    # Few shared ones of projected features.
    assert tried(1000, reduction="components") == [[3, 6, 12, 24, 48, 96, 192], [3], [3, 48]]
    # Many classes may share fewer kernels than there are classes.
    assert tried(1000, n_classes=20) == [[20, 40, 80, 160, 320], [5, 10, 20, 40, 80, 160, 320], [20, 320]]
    assert tried(1000, n_classes=19)[1][0] == 19
    assert tried(150, kernels="own") == [[3, 6, 12, 24, 48], [], [3, 48]]
    assert tried(150, kernels="shared") == [[], [3, 6, 12, 24, 48], []]
    spread = SharedKernelClassifier(weight_prior=2.0)
    assert tried(150, prototype=spread) == [[], [3, 6, 12, 24, 48], []]


def test_given_numbers_have_every_strength_of_the_prior() -> None:
    found = selection().kernels(3, 1000, 4, [2, 9], ["full", "diag"], "none")
    strengths = [0.1, 0.5, 1.0, 2.0, 8.0]
    full = [("shared", k, "full", rows) for k in (2, 9) for rows in strengths]
    assert found == [*full, ("shared", 2, "diag", 0.5), ("shared", 9, "diag", 0.5)]
    own = selection(kernels="own").kernels(3, 1000, 4, [3], ["tied"], "none")
    assert own == [("own", 3, "tied", 0.5)]
    # Of simple types alone there may be too few rows for the usual number.
    few = selection(kernels="shared").kernels(3, 30, 4, None, ["diag"], "none")
    assert few == [("shared", 3, "diag", 0.5), ("shared", 10, "diag", 0.5)]


def test_candidates_of_groups() -> None:
    groups = [[0, 1, 2], [3]]
    found = list(selection(feature_sets=groups).candidates())
    assert [params["feature_sets"] for params in found] == [groups] * 12
    tried = {(p["n_kernels"], p["prior_rows"], p["weight_prior"]) for p in found}
    assert tried == {(k, rows, weight) for k in (4, 8, 16) for rows in (0.5, 4.0) for weight in (1.0, 1.1)}
    own = list(selection(feature_sets=groups, kernels="own").candidates())
    assert {(p["n_kernels"], p["weight_prior"]) for p in own} == {(3, None), (6, None), (12, None)}
    given = SharedKernelClassifier(covariance_prior=3.0, weight_prior=2.0)
    settled = list(selection(feature_sets=groups, prototype=given, n_kernels=[5]).candidates())
    assert [(p["n_kernels"], p["prior_rows"], p["weight_prior"]) for p in settled] == [(5, None, None)]
    # No more kernels than rows.
    assert {p["n_kernels"] for p in selection(10, feature_sets=groups).candidates()} == {4, 8, 10}
    # The prior has its rows for each feature of a group, two on average.
    chosen = selection(feature_sets=groups)
    made = chosen.make({**found[-1], "prior_rows": 4.0}, chosen.rows)
    assert made.covariance_prior[0] == 8.0
    assert made.weight_prior == 1.1
    assert made.feature_sets == groups


def test_small_folds_are_screened_by_two_and_tuned_less() -> None:
    assert [selection(n_folds=n)._n_tuned for n in (1, 4, 5)] == [3, 3, 2]
    assert [selection(n_folds=n)._n_screened for n in (4, 5)] == [1000, 2000]
    assert [selection(3000, n_folds=n)._n_screened for n in (4, 5)] == [2000, 4000]


def test_the_best_three_ways_to_make_features_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {
        ("none", "none"): 1.0,
        ("power", "none"): 5.0,
        ("ranks", "none"): 2.0,
        ("none", "components"): 4.0,
    }
    screened: list[Any] = []

    def screen(self: Selection, trial: Trial) -> None:
        params = trial.params
        screened.append((params["transform"], params["reduction"], params["kernels"], params["n_kernels"]))
        # Features are judged by the best of their candidates, not by the last.
        own = scores[params["transform"], params["reduction"]]
        trial.score = own if params["n_kernels"] == 3 else -10.0 - own

    monkeypatch.setattr(Selection, "_screen", screen)
    candidates = [
        {
            "transform": t,
            "reduction": r,
            "kernels": own,
            "n_kernels": k,
            "covariance_type": "full",
            "prior": p,
        }
        for t, r in scores
        for own, k in (("own", 3), ("own", 6), ("shared", 12), ("own", 12))
        for p in (1, 2)
    ]
    left = selection()._with_best_features(candidates)
    assert {(p["transform"], p["reduction"]) for p in left} == set(list(scores)[1:])
    assert left == [p for p in candidates if (p["transform"], p["reduction"]) != ("none", "none")]
    # The first candidates of one and four own kernels a class.
    assert screened == [(t, r, "own", k) for t, r in scores for k in (3, 12)]


@pytest.mark.parametrize(
    ("n_rows", "trade_off", "n_rounds"), [(999, 0.0, 20), (1000, 0.0, 60), (1000, 0.1, 20)]
)
def test_labelled_rows_are_tuned_in_more_rounds_when_many_and_without_a_trade_off(
    n_rows: int, trade_off: float, n_rounds: int
) -> None:
    weights = np.arange(1.0, n_rows + 1.0)
    chosen, given = selection(n_rows, weights=weights), {}

    class Model:
        random_state = 7

        def tune(self, *rows: Any, **settings: Any) -> str:
            given.update(settings, rows=rows)
            return "tuned"

    codes = np.where(np.arange(n_rows) % 4 == 0, -1, chosen.rows.codes)
    some = Rows(chosen.rows.X, chosen.rows.y, codes, weights)
    assert chosen.tune(Model(), some, trade_off) == "tuned"  # type: ignore[arg-type]
    X, y = given.pop("rows")
    assert_array_equal(X, some.X[codes >= 0])
    assert_array_equal(y, some.y[codes >= 0])
    assert_array_equal(given.pop("sample_weight"), weights[codes >= 0])
    assert given == {"trade_off": trade_off, "validation": None, "max_iter": n_rounds, "random_state": 7}


def test_scorers_get_labels_weights_and_the_temperature() -> None:
    """A candidate's score is the mean over folds, by their weight, of a scorer at the common temperature."""
    weights, seen = np.random.default_rng(1).uniform(0.5, 2.0, size=60), []

    def scorer(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        seen.append((model.temperature_, y, sample_weight))
        return float(len(seen))

    chosen = selection(60, 2, n_features=2, weights=weights, scoring=scorer)
    parts = [(np.arange(20, 60), np.arange(20)), (np.arange(30), np.arange(30, 60))]
    folds = [(chosen.rows.take(a), chosen.rows.take(b)) for a, b in parts]
    params = next(chosen.candidates())
    trial = Trial("kernels", params)
    chosen._score(trial, folds, [])
    for (_, held), (temperature, y, sample_weight) in zip(parts, seen, strict=True):
        assert temperature == trial.columns["temperature"] != 1.0
        assert_array_equal(y, chosen.rows.y[held])
        assert_array_equal(sample_weight, weights[held])
    assert trial.split_scores == [1.0, 2.0]
    first, second = (weights[held].sum() for _, held in parts)
    assert trial.score == pytest.approx((first + 2.0 * second) / (first + second))
    assert [model.temperature_ for model in trial.models] == [1.0, 1.0]


def test_large_models_and_those_that_cannot_be_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Selection, "_evaluate", lambda self, trial, fitted: setattr(trial, "score", 0.0))

    class Model:
        n_features_in_ = 4

    def tuned(prototype: Any = None, tune: Any = "auto", **changed: Any) -> list[float]:
        chosen = selection(100, prototype=prototype, tune=tune)
        params = {"n_kernels": 50, "feature_sets": None, "covariance_type": "full", **changed}
        chosen.trials.list.append(Trial("kernels", params, 1.0, models=[Model()]))
        chosen.trials.best = chosen.trials.list[0]
        taken = chosen._tune_best()
        assert (taken is None) == (tune in ("auto", False, None))
        return [trial.params["trade_off"] for trial in chosen.trials.list[1:]]

    assert tuned() == [0.1, 0.0]
    assert tuned(n_kernels=51) == []  # more than two numbers in the means for each row
    assert tuned(feature_sets=[[0, 1], [2, 3]]) == tuned(covariance_type="low_rank") == []
    assert tuned(SharedKernelClassifier(tail="t")) == []
    assert tuned(tune=False) == tuned(tune=None) == []
    assert tuned(tune=0.3) == [0.3]
    assert tuned(tune=True) == list(module._TRADE_OFFS)


# ---------------------------------------------------------------- densities


def test_halves_are_of_every_class() -> None:
    codes = np.repeat([0, 1, -1], [10, 7, 4])
    rows = Rows(np.zeros((21, 1)), codes, codes, None)
    found = SharedKernelMixtureCV(criterion="stability")._halvings(rows, None, 0)
    assert len(found) == 5
    for one, other in found:
        assert_array_equal(np.sort(np.concatenate([one, other])), np.arange(21))
        for code, size in ((0, 10), (1, 7), (-1, 4)):
            assert abs(2 * np.count_nonzero(codes[one] == code) - size) <= 1
    assert not np.array_equal(found[0][0], found[1][0])
    assert len(SharedKernelMixtureCV(criterion="stability", cv=2)._halvings(rows, None, 0)) == 2


def test_numbers_that_a_search_of_densities_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    # Time is up after the first candidate.
    clock = count()
    monkeypatch.setattr(_base, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    X = np.random.default_rng(0).normal(size=(60, 4))
    quick: Any = {"time_limit": 0.0, "random_state": 0}
    # Five rows for each kernel, of the half of all that stability has: 1 to 6 of one type.
    stable = SharedKernelMixtureCV(SharedKernelMixture(tol=0.1), criterion="stability", cv=2, **quick).fit(X)
    assert stable.n_untried_ == 5
    # 1 to 8 and 10, full ones with two priors or a given one.
    prior = SharedKernelMixture(tol=0.1, covariance_prior=1.0)
    for estimator, n_priors in ((SharedKernelMixture(tol=0.1), 2), (prior, 1)):
        search = SharedKernelMixtureCV(estimator, covariance_type="full", cv=2, **quick).fit(X)
        assert search.n_untried_ == 9 * n_priors - 1
    variational = SharedKernelMixture(tol=0.1, inference="variational")
    search = SharedKernelMixtureCV(variational, covariance_type="diag", cv=2, **quick).fit(X)
    assert search.n_untried_ == 8
    by_class = SharedKernelMixture(init="class", tol=0.1)
    search = SharedKernelMixtureCV(by_class, covariance_type="diag", criterion="bic", **quick)
    assert search.fit(X, np.arange(60) % 3).cv_results_["param_n_kernels"].tolist() == [3]


@pytest.mark.parametrize(("usual", "reach", "last"), [(1, 10, 40), (2, 10, 40), (3, 12, 48), (10, 40, 160)])
def test_numbers_of_kernels_and_where_they_may_end(usual: int, reach: int, last: int) -> None:
    numbers, found = SharedKernelMixtureCV()._numbers(1, usual, 10_000)
    assert found == reach
    assert numbers[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert numbers[-1] <= last < numbers[-1] + max(1, numbers[-1] // 4)
    assert SharedKernelMixtureCV(strategy="prune")._numbers(1, usual, 10_000) == (
        [max(k for k in numbers if k <= reach)],
        np.inf,
    )
