"""What a search would do, nearly without a fit: the table of trials, and its candidates."""

from __future__ import annotations

from itertools import count, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.rows.blocks import Block
from skmix.search import trials as trials_module
from skmix.search.fits import FitRows
from skmix.search.space import Space
from skmix.search.stages import Selection
from skmix.search.trials import SCREENING, Trial, Trials

# ---------------------------------------------------------------- trials


def test_the_table_of_trials() -> None:
    trials = Trials(None)

    def evaluate(score: float, splits: list[float]) -> Any:
        def call(trial: Trial) -> None:
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
    assert_array_equal(table["split1_test_score"], [np.nan, np.nan, 4.0, 6.0, 6.0, np.nan, np.nan])
    np.testing.assert_allclose(
        table["std_test_score"], [0.0, 0.0, *[np.sqrt(2.0 / 3.0)] * 3, np.nan, np.nan], rtol=1e-12
    )
    assert_array_equal(table["temperature"], [2.0] * 6 + [np.nan])
    assert table["params"] == [{"k": k} for k in (1, 2, 1, 2, 3, 4)] + [{"k": 5, "rows": 2}]
    # The first of the best stays the best; only the best two have their models.
    assert trials.best is trials.list[3]
    assert [bool(trial.models) for trial in trials.list][:5] == [False, False, False, True, True]


# ---------------------------------------------------------------- settings


def test_settings_of_the_search_come_before_those_of_its_estimator() -> None:
    estimator = SharedKernelClassifier(n_jobs=2, device="cuda", random_state=1, tol=0.5)
    found = SharedKernelClassifierCV(estimator)._prototype(SharedKernelClassifier, {})
    assert (found.n_jobs, found.device, found.tol) == (2, "cuda", 0.5)
    search = SharedKernelClassifierCV(estimator, n_jobs=3, device="cpu", random_state=5)
    other = search._prototype(SharedKernelClassifier, {})
    assert (other.n_jobs, other.device, other.tol) == (3, "cpu", 0.5)
    # The same seed, of the search or of its estimator, gives the same one for all candidates.
    for seed, expected in ((1, found), (5, other)):
        own = SharedKernelClassifierCV(random_state=seed)._prototype(SharedKernelClassifier, {})
        assert own.random_state == expected.random_state
    assert found.random_state != other.random_state
    assert estimator.n_jobs == 2
    # Defaults of the search replace those of an estimator, so that its other settings change nothing else.
    for given, tol in ((None, 0.25), (SharedKernelMixture(), 0.25), (SharedKernelMixture(tol=0.5), 0.5)):
        own = SharedKernelMixtureCV(given)._prototype(SharedKernelMixture, {"tol": 0.25, "n_init": 2})
        assert (own.tol, own.n_init) == (tol, 2)


# ---------------------------------------------------------------- candidates


def choices(**settings: Any) -> Space:
    """Return what is open in a search over three classes and a thousand rows."""
    default: dict[str, Any] = {
        "numbers": None,
        "types": None,
        "kernels": "auto",
        "feature_sets": None,
        "n_classes": 3,
        "n_train": 1000,
        "has_prior": False,
        "spreads_weights": False,
    }
    return Space(**default | settings)


def test_numbers_of_kernels_grow_with_the_rows() -> None:
    def tried(n_train: int, width: int = 4, reduced: bool = False, **settings: Any) -> list[list[int]]:
        found = choices(n_train=n_train, **settings).of_kernels(None, width, reduced=reduced)
        kinds = ("own", "full"), ("shared", "full"), ("own", "tied")
        return [
            sorted({p["n_kernels"] for p in found if (p["kernels"], p["covariance_type"]) == kind})
            for kind in kinds
        ]

    # At least three rows for each kernel of three classes, and two numbers in the means of a row.
    assert tried(1000) == [[3, 6, 12, 24, 48, 96, 192], [3, 6, 12, 24, 48, 96, 192], [3, 48]]
    assert tried(150) == [[3, 6, 12, 24, 48], [3, 6, 12, 24, 48], [3, 48]]
    assert tried(143) == [[3, 6, 12, 24], [3, 6, 12, 24], [3]]
    assert tried(150, width=30) == [[3, 6], [3, 6], [3, 48]]
    # One for each class is always tried, and at most 512, whatever the rows.
    assert tried(6) == [[3], [3], [3]]
    assert tried(100_000, n_classes=5)[0][-1] == 320
    # Few shared ones of projected features.
    assert tried(1000, reduced=True) == [[3, 6, 12, 24, 48, 96, 192], [3], [3, 48]]
    # Many classes may share fewer kernels than there are classes.
    assert tried(1000, n_classes=20) == [[20, 40, 80, 160, 320], [5, 10, 20, 40, 80, 160, 320], [20, 320]]
    assert tried(1000, n_classes=19)[1][0] == 19
    assert tried(150, kernels="own") == [[3, 6, 12, 24, 48], [], [3, 48]]
    assert tried(150, kernels="shared") == tried(150, spreads_weights=True) == [[], [3, 6, 12, 24, 48], []]
    # Of simple types alone there may be too few rows for the usual number.
    few = choices(n_train=30, kernels="shared", types=["diag"]).of_kernels(None, 4, reduced=False)
    assert [(p["kernels"], p["n_kernels"], p["prior_rows"]) for p in few] == [
        ("shared", k, 0.5) for k in (3, 10)
    ]


def test_given_numbers_have_every_strength_of_the_prior() -> None:
    X, names = np.zeros((2, 1)), ("kernels", "n_kernels", "covariance_type", "prior_rows")

    def tried(**settings: Any) -> list[tuple[Any, ...]]:
        found = choices(**settings).candidates(X, lambda *_: 1)
        return [tuple(params[name] for name in names) for params in found]

    full = [("shared", k, "full", rows) for k in (2, 9) for rows in (0.1, 0.5, 1.0, 2.0, 8.0)]
    simple = [("shared", 2, "diag", 0.5), ("shared", 9, "diag", 0.5)]
    assert tried(numbers=[2, 9], types=["full", "diag"]) == [*full, *simple]
    # Every class has as many kernels of its own, and a given prior leaves nothing to choose.
    assert tried(numbers=[3, 7, 8], types=["full"], kernels="own", has_prior=True) == [
        ("own", 3, "full", None),
        ("own", 6, "full", None),
    ]
    # Where no row can be held out there is one candidate.
    assert tried(n_train=0) == [("shared", 3, "tied", 2.0)]


def test_candidates_of_feature_sets() -> None:
    sets = [[0, 1, 2], [3]]

    def tried(*names: str, **settings: Any) -> list[tuple[Any, ...]]:
        found = choices(feature_sets=sets, **settings).candidates(np.zeros((9, 4)), lambda *_: 4)
        assert [params["feature_sets"] for params in found] == [sets] * len(found)
        return [tuple(params[name] for name in names) for params in found]

    names = ("n_kernels", "prior_rows", "weight_prior")
    assert tried(*names) == list(product((4, 8, 16), (0.5, 4.0), (1.0, 1.1)))
    assert set(tried("n_kernels", "weight_prior", kernels="own")) == {(3, None), (6, None), (12, None)}
    assert tried(*names, numbers=[5], has_prior=True, spreads_weights=True) == [(5, None, None)]
    # No more kernels than rows.
    assert {k for (k,) in tried("n_kernels", n_train=7)} == {4, 7}
    # The prior has its rows for each feature of a set, two on average.
    (params, *_) = choices(feature_sets=sets).candidates(np.zeros((9, 4)), lambda *_: 4)
    rows = Block(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3)
    made = FitRows.of(rows, np.arange(3), SharedKernelClassifier()).classifier(
        SharedKernelClassifier(), {**params, "prior_rows": 4.0}, 0
    )
    assert (made.covariance_prior[0], made.weight_prior, made.feature_sets) == (8.0, 1.0, sets)


def selection(
    n_rows: int = 1000,
    n_classes: int = 3,
    n_folds: int = 3,
    n_features: int = 4,
    prototype: SharedKernelClassifier | None = None,
    weights: Any = None,
    **settings: Any,
) -> Selection:
    X = np.random.default_rng(0).normal(size=(n_rows, n_features))
    rows, classes = Block(X, np.arange(n_rows) % n_classes, weights), np.arange(n_classes)
    search = SharedKernelClassifierCV(**settings)
    own = SharedKernelClassifier(random_state=0) if prototype is None else prototype
    return Selection(search, own, rows, classes, [(rows, rows)] * n_folds, Trials(None))


def test_the_best_three_ways_to_make_features_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"none": 1.0, "power": 5.0, "ranks": 2.0, "other": 4.0}
    screened: list[Any] = []

    def screen(self: Selection, trial: Trial, some: bool) -> None:
        params = trial.params
        screened.append((params["transform"], params["kernels"], params["n_kernels"]))
        # Features are judged by the best of their candidates, not by the last.
        own = scores[params["transform"]]
        trial.score = own if params["n_kernels"] == 3 else -10.0 - own

    monkeypatch.setattr(Selection, "_score", screen)
    names = ("transform", "kernels", "n_kernels", "prior")
    kinds = [("own", 3), ("own", 6), ("shared", 12), ("own", 12)]
    candidates = [
        dict(zip(names, (transform, *kind, prior), strict=True))
        | {"covariance_type": "full", "reduction": "none"}
        for transform, kind, prior in product(scores, kinds, (1, 2))
    ]
    left = selection()._with_best_features(candidates)
    assert left == [params for params in candidates if params["transform"] != "none"]
    # The first candidates of one and four own kernels a class.
    assert screened == [(transform, "own", k) for transform in scores for k in (3, 12)]


def test_large_models_and_those_that_cannot_be_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Selection, "_score", lambda self, trial, fitted: setattr(trial, "score", 0.0))

    class Model:
        n_features_in_ = 4

    def tuned(prototype: Any = None, **changed: Any) -> list[float]:
        chosen = selection(100, prototype=prototype)
        params = {"n_kernels": 50, "feature_sets": None, "covariance_type": "full", **changed}
        chosen.trials.list.append(Trial("kernels", params, 1.0, models=[Model()]))
        chosen.trials.best = chosen.trials.list[0]
        chosen._tune_best()
        return [trial.params["trade_off"] for trial in chosen.trials.list[1:]]

    assert tuned() == [0.1]
    assert tuned(n_kernels=51) == []  # more than two numbers in the means for each row
    assert tuned(feature_sets=[[0, 1], [2, 3]]) == []
    assert tuned(SharedKernelClassifier(tail="t")) == []


# ---------------------------------------------------------------- densities


@pytest.mark.filterwarnings("ignore:The chosen model did not converge")
def test_numbers_that_a_search_of_densities_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    # Time is up after the first candidate.
    clock = count()
    monkeypatch.setattr(trials_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    X = np.random.default_rng(0).normal(size=(60, 4))
    quick: Any = {"time_limit": 0.0, "random_state": 0}
    # Five rows for each kernel: 1 to 8 and 10, full ones with two priors or a given one.
    prior = SharedKernelMixture(tol=0.1, covariance_prior=1.0)
    for estimator, n_priors in ((SharedKernelMixture(tol=0.1), 2), (prior, 1)):
        search = SharedKernelMixtureCV(estimator, covariance_type="full", cv=2, **quick).fit(X)
        assert search.n_untried_ == 9 * n_priors - 1
    variational = SharedKernelMixture(tol=0.1, inference="variational")
    search = SharedKernelMixtureCV(variational, covariance_type="diag", cv=2, **quick).fit(X)
    assert search.n_untried_ == 8
    for init, first in (("class", 3), ("k-means", 1)):
        by_class = SharedKernelMixture(init=init, tol=0.1)
        search = SharedKernelMixtureCV(by_class, covariance_type="diag", criterion="bic", **quick)
        assert search.fit(X, np.arange(60) % 3).cv_results_["param_n_kernels"].tolist() == [first]
