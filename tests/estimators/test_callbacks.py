"""scikit-learn's callbacks on fits, and watchers of all fits."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import AfterPass
from sklearn.model_selection import GridSearchCV

from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV, load
from skmix.estimators.callbacks import watched_by

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 200)
X = RNG.normal(size=(200, 2)) + 3.0 * np.eye(3)[Y][:, :2]


@pytest.mark.parametrize("settings", [{}, {"feature_sets": [[0], [1]]}, {"n_init": 3}])
def test_a_progress_bar_follows_a_fit(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    model = SharedKernelClassifier(4, random_state=0, **settings).set_callbacks(callback.ProgressBar())
    model.fit(X, Y)
    assert "SharedKernelClassifier - fit" in capsys.readouterr().out


def test_callbacks_of_a_search_reach_the_fits() -> None:
    seen: list[int] = []
    mixture = SharedKernelMixture(random_state=0, tol=1e-2).set_callbacks(AfterPass(seen.append))
    GridSearchCV(mixture, {"n_kernels": [2, 3]}, cv=2).fit(X)
    assert seen.count(1) == 5


def test_callbacks_of_a_choice_of_kernels_are_torn_down(tmp_path: Path) -> None:
    seen: list[int] = []
    mixture = SharedKernelMixture().set_callbacks(AfterPass(seen.append))
    search = SharedKernelMixtureCV(mixture, n_kernels=3, covariance_type="tied").fit(X)
    assert seen
    assert "_callback_fit_ctx" not in vars(search.best_estimator_)
    search.save(tmp_path / "search.skmix")
    assert load(tmp_path / "search.skmix").best_params_ == search.best_params_


def test_an_error_in_a_callback_ends_the_fit_and_leaves_the_estimator() -> None:
    def fail(number: int) -> None:
        raise KeyError(f"pass {number}")

    model = SharedKernelMixture(4, random_state=0).set_callbacks(AfterPass(fail))
    with pytest.raises(KeyError, match="pass 1"):
        model.fit(X, Y)
    assert not hasattr(model, "means_")
    assert not hasattr(model, "_callback_fit_ctx")


def test_watchers_are_told_the_mean_log_likelihood() -> None:
    told: list[str] = []

    @contextmanager
    def watcher(title: str, total: int | None) -> Any:
        assert (title, total) == ("passes", 77)
        yield told.append

    gaps = X.copy()
    gaps[::5, 0] = np.nan
    with watched_by(watcher):
        model = SharedKernelMixture(4, random_state=0, max_iter=77).fit(gaps, Y)
    assert len(told) == model.n_iter_
    before, last = model.log_likelihood_path_[-2:].sum(axis=1) / len(X)
    assert f"mean log-likelihood {last:.5f}, changed by {last - before:.2e}," in told[-1]
    told.clear()
    SharedKernelMixture(4, random_state=0).fit(X, Y)
    assert told == []
