"""Quick fits of candidates, candidates that are dropped early, and the time that a search takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine import loop as em
from skmix.engine.after import together
from skmix.engine.rows.blocks import Block
from skmix.estimators.search import _trials
from skmix.estimators.search._candidates import make_classifier
from skmix.estimators.search._quick import QuickFit, QuickFits
from skmix.estimators.search._selection import Selection
from skmix.estimators.search._trials import Trial, Trials

X, Y = load_iris(return_X_y=True)
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
CANDIDATES = [
    ("own", 3, "tied"),
    ("own", 3, "full"),
    ("own", 12, "full"),
    ("own", 12, "tied"),
    ("shared", 5, "full"),
    ("shared", 5, "tied"),
    ("own", 60, "full"),
]


def params_of(kernels: str, n_kernels: int, covariance_type: str, prior_rows: float = 0.5) -> dict[str, Any]:
    return {
        **{"transform": "none", "reduction": "none", "weight_prior": None, "feature_sets": None},
        **{"kernels": kernels, "n_kernels": n_kernels, "covariance_type": covariance_type},
        **{"prior_rows": prior_rows, "trade_off": None},
    }


def prototype(**settings: Any) -> SharedKernelClassifier:
    return SharedKernelClassifier(**{"max_iter": 5, "tol": 0.0, "random_state": 0, **settings})


def start_of(fit: QuickFit) -> dict[str, np.ndarray]:
    return {name: getattr(fit.parameters, name) for name in ("means", "covariances", "weights")}


# ---------------------------------------------------------------- fits


@pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
@pytest.mark.filterwarnings("ignore:The best of 1 starts did not converge")
def test_a_quick_fit_is_that_of_the_estimator(candidate: Any) -> None:
    """Of weighted rows, from the same start, and with the same prior and floor; one class has few rows."""
    rows = np.r_[:100, 100:115]
    block, params = Block(X[rows], Y[rows], WEIGHTS[rows]), params_of(*candidate)
    fits = QuickFits(prototype(), np.arange(3))
    assert fits.covers(params, block)
    (found,) = fits.fit([(params, block)])
    # No pass: the start, in the data's coordinates.
    (start,) = QuickFits(prototype(max_iter=0), np.arange(3)).fit([(params, block)])
    classifier = make_classifier(prototype(n_kernels=None), params, block, 0)
    classifier.set_params(n_kernels=None, init=start_of(start)).fit(block.X, block.y, block.weights)
    assert len(classifier.means_) == min(candidate[1], 55)
    for name, value in start_of(found).items():
        assert_allclose(value, getattr(classifier, f"{name}_"), rtol=1e-7, atol=1e-9, err_msg=name)
    assert_allclose(found.predict_log_proba(X), classifier.predict_log_proba(X), rtol=1e-6, atol=1e-6)
    classifier.tune(block.X, block.y, sample_weight=block.weights, trade_off=0.1, validation=None, max_iter=3)
    assert_allclose(found.tuned(block, 0.1, 3).parameters.means, classifier.means_, rtol=1e-4, atol=1e-4)


def test_quick_fits_do_not_depend_on_those_beside_them() -> None:
    halves = [Block(X[first::2], Y[first::2]) for first in (0, 1)]
    tasks = [
        (params_of(*candidate, prior), rows)
        for candidate in CANDIDATES[:6]
        for prior in (0.5, 2.0)
        for rows in halves
    ]
    # With a tolerance, some end before others.
    together_ = QuickFits(prototype(max_iter=50, tol=1e-2), np.arange(3)).fit(tasks)
    alone = [QuickFits(prototype(max_iter=50, tol=1e-2), np.arange(3)).fit([task])[0] for task in tasks]
    for one, other in zip(together_, alone, strict=True):
        for name, value in start_of(one).items():
            assert_allclose(value, start_of(other)[name], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        *({"tail": "t"}, {"inference": "variational"}, {"weight_prior": 1.5}, {"priors": "uniform"}),
        *({"n_init": 2}, {"variance_floor": 0.0}, {"tol": ("per-class", 0.1)}),
        *({"covariance_prior": None}, {"device": "cpu"}),
    ],
    ids=str,
)
def test_other_settings_are_left_to_the_estimator(settings: dict[str, Any]) -> None:
    params, block = params_of("own", 3, "full"), Block(X, Y)
    assert QuickFits(prototype(), np.arange(3)).covers(params, block)
    assert not QuickFits(prototype(**settings), np.arange(3)).covers(params, block)
    for change in ({"covariance_type": "diag"}, {"prior_rows": None}, {"feature_sets": [[0], [1]]}):
        assert not QuickFits(prototype(), np.arange(3)).covers({**params, **change}, block)
    assert not QuickFits(prototype(), np.arange(3)).covers(params, Block(X, np.where(Y == 2, -1, Y)))


# ---------------------------------------------------------------- dropped candidates


def race(first: np.ndarray, second: np.ndarray) -> Trial:
    """Return a trial of a candidate whose tuned models give the rows of two folds these log-odds."""
    n_rows = len(first)
    rows = Block(np.zeros((2 * n_rows, 1)), np.zeros(2 * n_rows, dtype=np.int64))
    folds = [(rows, rows.rows(slice(fold * n_rows, (fold + 1) * n_rows))) for fold in range(2)]
    names = {"transform": "none", "reduction": "none", "trade_off": 0.1}
    trials = Trials(None)
    # The best so far gives all rows a probability of 0.8.
    best = Trial("kernels", {}, np.log(0.8), probabilities=np.tile([0.8, 0.2], (2 * n_rows, 1)))
    trials.best = best
    chosen = Selection(SimpleNamespace(), prototype(), rows, np.arange(2), folds, trials)
    models = [
        SimpleNamespace(predict_log_proba=lambda X, odds=odds: np.stack([odds, np.zeros_like(odds)], axis=1))
        for odds in (first, second)
    ]
    chosen.tune = lambda model, rows, trade_off: model  # type: ignore[method-assign]
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
    """A clock that goes on by a second in each pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.n_fits = 1000.0, 0
        for module in (em, _trials):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._count(monkeypatch, em.Passes, "step")
        self._count(monkeypatch, together, "_improve")

    def _count(self, monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        function = getattr(place, name)

        def slow(*args: Any, **kwargs: Any) -> Any:
            self.now += 1.0
            return function(*args, **kwargs)

        monkeypatch.setattr(place, name, slow)


@pytest.mark.filterwarnings("ignore:The chosen model did not converge")
@pytest.mark.parametrize("limit", [3.0, 20.0, 100.0])
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
    # The first candidate and the last fit make a pass for each fold and for all rows, whatever the time.
    assert clock.now - 1000.0 <= limit + 7.0
    assert np.isfinite(search.score(X, Y))


def test_a_search_does_not_depend_on_the_number_of_threads() -> None:
    one, two = (
        SharedKernelClassifierCV(n_kernels=[3, 6], n_jobs=n, random_state=0).fit(X, Y) for n in (1, 2)
    )
    assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert_array_equal(one.predict_proba(X), two.predict_proba(X))
