"""scikit-learn's callbacks on fits, and watchers of all fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import AfterPass
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    compose,
    load,
)
from skmix.model import callbacks

pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 200)
X = RNG.normal(size=(200, 2)) + 3.0 * np.eye(3)[Y][:, :2]


def test_callbacks_of_a_search_reach_the_fits() -> None:
    seen: list[int] = []
    mixture = SharedKernelMixture(random_state=0, tol=1e-2).set_callbacks(AfterPass(seen.append))
    GridSearchCV(mixture, {"n_kernels": [2, 3]}, cv=2).fit(X)
    assert seen.count(1) == 5


class Tasks(AfterPass):
    """Callback that lists the tasks that began and those that did not end; it may fail in the second step."""

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.error, self.begun, self.running = error, list[str](), list[Any]()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.begun.append(context.task_name)
        self.running.append(context)

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        self.running.remove(context)
        if self.error is not None and len(self.begun) == 3:
            raise ZeroDivisionError if context.task_name == "fit" else self.error


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "model",
    [
        SharedKernelMixture(4),
        SharedKernelClassifier(feature_sets=[[0], [1]]),
        SharedKernelMixtureCV(n_kernels=[1, 2], covariance_type="tied"),
        SharedKernelClassifierCV(n_kernels=[1, 2], covariance_type="tied"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_an_error_ends_all_tasks_and_leaves_the_estimator(model: Any, error: type[BaseException]) -> None:
    tasks = Tasks(error)
    model = clone(model).set_params(random_state=0).set_callbacks(tasks)
    before = {*vars(model)}
    with pytest.raises(error):
        model.fit(X, Y)
    assert tasks.begun[0] == "fit"
    assert tasks.running == []
    assert {*vars(model)} == before


@pytest.mark.filterwarnings("ignore:The chosen model did not converge")
@pytest.mark.parametrize("limit", [0.0, None])
def test_fits_that_fail_or_have_no_time_end_their_tasks(limit: float | None, tmp_path: Path) -> None:
    tasks, fits = Tasks(), Tasks()
    # Fifteen kernels for thirty rows become singular.
    estimator = SharedKernelClassifier(variance_floor=0.0, covariance_prior=None).set_callbacks(fits)
    search = SharedKernelClassifierCV(estimator, n_kernels=[1, 15], covariance_type="full", cv=2)
    search.set_params(time_limit=limit, random_state=0).set_callbacks(tasks).fit(X[:60], Y[:60])
    failed = np.isinf(search.cv_results_["mean_test_score"])
    assert failed.any() == (limit is None)
    assert fits.begun.count("fit") > len(failed)
    assert fits.running == tasks.running == []
    assert "_callback_fit_ctx" not in vars(search.classifier_)
    search.save(tmp_path / "search.skmix")
    assert load(tmp_path / "search.skmix").best_params_ == search.best_params_


# ---------------------------------------------------------------- searches and studies


SEARCHES = [
    SharedKernelClassifierCV(
        SharedKernelClassifier(reject_below=0.05),
        n_kernels=[1, 2],
        covariance_type=["diag", "tied"],
        random_state=0,
    ),
    SharedKernelMixtureCV(n_kernels=[1, 2], covariance_type=["diag", "tied"], random_state=0),
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
def test_callbacks_of_a_search_count_its_candidates(search: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    plain = clone(search).fit(X, Y)
    watched = clone(clone(search).set_callbacks(AfterPass(seen.append))).fit(X, Y)
    assert len(seen) >= len(watched.cv_results_["params"])
    assert seen == list(range(1, len(seen) + 1))
    assert watched.best_params_ == plain.best_params_
    watched.save(tmp_path / "search.skmix")
    assert load(tmp_path / "search.skmix").best_score_ == plain.best_score_


@pytest.mark.filterwarnings("ignore:Some populations may be one")
def test_verbose_searches_and_studies_print_their_work_and_are_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compose(X, sample=Y, n_kernels=2)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(callbacks, "_PAUSE", 0.0)
    monkeypatch.setattr(callbacks, "_SHARE", 0.0)
    study = compose(X, sample=Y, n_kernels=2, verbose=True)
    assert "fitting, pass 2: 1 start" in capsys.readouterr().out
    assert study.proportions.equals(expected.proportions)
    for search in SEARCHES:
        plain, verbose = (clone(search).set_params(verbose=each).fit(X, Y) for each in (False, 2))
        *lines, last = capsys.readouterr().out.splitlines()
        assert "fitting, pass 1: " in "".join(lines)
        assert "candidates and chose" in last
        assert verbose.best_params_ == plain.best_params_
