"""Candidates that are dropped early, and the time that a search takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine import loop as em
from skmix.engine.estep import host
from skmix.engine.rows.blocks import Block
from skmix.search import trials as trials_module
from skmix.search.stages import Selection
from skmix.search.trials import Trial, Trials

X, Y = load_iris(return_X_y=True)


# ---------------------------------------------------------------- dropped candidates


def race(first: np.ndarray, second: np.ndarray) -> Trial:
    """Return a trial of a candidate whose tuned models give the rows of two folds these log-odds."""
    n_rows = len(first)
    rows = Block(np.zeros((2 * n_rows, 1)), np.zeros(2 * n_rows, dtype=np.int64))
    folds = [(rows, rows.rows(slice(fold * n_rows, (fold + 1) * n_rows))) for fold in range(2)]
    names = {"transform": "none", "reduction": "none", "trade_off": 0.1}
    trials = Trials(None)
    # The best so far gives all rows a probability of 0.8.
    best = Trial("kernels", {}, np.log(0.8), losses=np.full(2 * n_rows, -np.log(0.8)))
    trials.best = best
    chosen = Selection(
        SimpleNamespace(), SharedKernelClassifier(random_state=0), rows, np.array([0, 1]), folds, trials
    )
    models = [
        SimpleNamespace(predict_log_proba=lambda X, odds=odds: np.stack([odds, np.zeros_like(odds)], axis=1))
        for odds in (first, second)
    ]
    chosen.tune = lambda model, rows: model  # type: ignore[method-assign]
    trial = Trial("tuning", names)
    chosen._score(trial, models)
    return trial


def test_only_candidates_that_are_clearly_worse_are_dropped() -> None:
    n_rows = 100
    # Worse in every row of the first fold; it would be the best on both, and is dropped all the same.
    worse = race(np.full(n_rows, 1.0), np.full(n_rows, 9.0))
    assert worse.stage == "screening"
    assert len(worse.split_scores) == 1
    # As good as the best in the first fold, or worse by less than the rows vary, and better in the second.
    for first in (np.full(n_rows, np.log(4.0)), np.repeat([3.0, -1.0], [85, 15])):
        winner = race(first, np.full(n_rows, 9.0))
        assert winner.stage == "tuning"
        assert len(winner.split_scores) == 2


# ---------------------------------------------------------------- time


class Clock:
    """A clock that goes on by a second in each pass, or each call of the compiled core that makes several."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.n_fits = 1000.0, 0
        for module in (em, trials_module):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._count(monkeypatch, em.Passes, "step")
        self._count(monkeypatch, host, "climb")

    def _count(self, monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        function = getattr(place, name)

        def slow(*args: Any, **kwargs: Any) -> Any:
            self.now += 1.0
            return function(*args, **kwargs)

        monkeypatch.setattr(place, name, slow)


@pytest.mark.filterwarnings("ignore:The chosen model did not converge")
@pytest.mark.parametrize("limit", [3.0, 20.0, 50.0])
@pytest.mark.parametrize(
    "search",
    [
        SharedKernelClassifierCV(),
        SharedKernelClassifierCV(SharedKernelClassifier(tail="t", max_iter=100, tol=1e-6), n_kernels=[3, 6]),
        SharedKernelMixtureCV(SharedKernelMixture(tol=1e-9)),
        SharedKernelMixtureCV(SharedKernelMixture(tol=1e-9), criterion="bic"),
    ],
    ids=["quick", "estimator", "mixture", "bic"],
)
def test_a_search_ends_in_time(search: Any, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    search = clone(search).set_params(time_limit=limit, random_state=0).fit(X, Y)
    assert search.n_untried_ > 0
    # The first candidate and the last fit make a pass for each fold and for all rows, whatever the time, and
    # before each the compiled core may be called in vain.
    assert clock.now - 1000.0 <= limit + 14.0
    assert np.isfinite(search.score(X, Y))


def test_a_search_does_not_depend_on_the_number_of_threads() -> None:
    one, two = (
        SharedKernelClassifierCV(n_kernels=[3, 6], n_jobs=n, random_state=0).fit(X, Y) for n in (1, 2)
    )
    assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert_array_equal(one.predict_proba(X), two.predict_proba(X))
