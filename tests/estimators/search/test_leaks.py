"""No model is judged by rows that it has seen, and held-out rows decide nothing about what is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
)
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
