"""What searches try, by their tables of candidates."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.rows.blocks import Block
from skmix.search.fits import FitRows
from skmix.search.space import Space

X, Y = load_iris(return_X_y=True)
# Searches that end after the first candidate, and say how many are left.
ENDED = pytest.mark.filterwarnings("ignore:The chosen model did not converge")


def tried(search: Any, *names: str) -> set[tuple[Any, ...]]:
    """Return the settings of these names that a fitted search tried."""
    return {tuple(params[name] for name in names) for params in search.cv_results_["params"]}


def test_settings_of_the_search_come_before_those_of_its_estimator() -> None:
    estimator = SharedKernelClassifier(n_jobs=2, random_state=1, tol=0.5)
    settings: dict[str, Any] = {"n_kernels": 3, "covariance_type": "tied", "tune": False}
    own = SharedKernelClassifierCV(estimator, **settings).fit(X, Y)
    other = SharedKernelClassifierCV(estimator, n_jobs=1, random_state=5, **settings).fit(X, Y)
    assert [(each.classifier_.n_jobs, each.classifier_.tol) for each in (own, other)] == [(2, 0.5), (1, 0.5)]
    # The same seed, of the search or of its estimator, gives the same folds and starts.
    again = SharedKernelClassifierCV(SharedKernelClassifier(tol=0.5), random_state=1, **settings).fit(X, Y)
    assert again.best_score_ == own.best_score_ != other.best_score_
    # Defaults of the search replace those of an estimator, so that its other settings change nothing else.
    for given, tol, n_init in ((None, 1e-3, 2), (SharedKernelMixture(tol=0.5, n_init=1), 0.5, 2)):
        best = SharedKernelMixtureCV(given, n_kernels=1, criterion="bic").fit(X).best_estimator_
        assert (best.tol, best.n_init) == (tol, n_init)


def space(**settings: Any) -> Space:
    """Return what is open in a search over three classes and a thousand rows."""
    default = {"numbers": None, "types": None, "kernels": "auto", "feature_sets": None, "n_classes": 3}
    return Space(**default | {"n_train": 1000, "has_prior": False, "spreads_weights": False} | settings)


def numbers_of(n_train: int, width: int = 4, **settings: Any) -> list[list[int]]:
    """Return the numbers of kernels of each kind of candidate for training rows of some features."""
    candidates = space(n_train=n_train, **settings).of_kernels(None, width, reduced=False)
    kinds = ("own", "full"), ("shared", "full"), ("own", "tied")
    return [
        sorted({p["n_kernels"] for p in candidates if (p["kernels"], p["covariance_type"]) == kind})
        for kind in kinds
    ]


def test_numbers_of_kernels_grow_with_the_rows() -> None:
    # Three rows for each kernel; two numbers in the means of full ones for each row.
    assert numbers_of(1000)[0] == [3, 6, 12, 24, 48, 96, 192]
    assert numbers_of(1000)[2] == [3, 48]
    assert numbers_of(1000, width=100)[0] == [3, 6, 12]
    assert numbers_of(30)[1] == [3, 6]
    assert max(numbers_of(100_000)[0]) == 384  # at most 512 kernels
    # Where classes are many, fewer kernels than classes too.
    assert numbers_of(1000, n_classes=20)[1][:3] == [5, 10, 20]


def test_what_is_given_decides_what_is_tried() -> None:
    search: dict[str, Any] = {"tune": False, "n_members": 1, "cv": 2, "random_state": 0}
    own = SharedKernelClassifierCV(n_kernels=[3, 7, 8], covariance_type="tied", kernels="own", **search)
    # Every class has as many kernels of its own.
    assert tried(own.fit(X, Y), "kernels", "n_kernels") == {("own", 3), ("own", 6)}
    full = SharedKernelClassifierCV(n_kernels=5, covariance_type="full", **search).fit(X, Y)
    assert tried(full, "kernels", "n_kernels") == {("shared", 5)}
    assert {rows for (rows,) in tried(full, "prior_rows")} == {0.1, 0.5, 1.0, 2.0, 8.0}
    fixed = SharedKernelClassifier(covariance_prior=5.0)
    given = SharedKernelClassifierCV(fixed, n_kernels=5, covariance_type="full", **search).fit(X, Y)
    assert tried(given, "prior_rows") == {(None,)}


def test_candidates_of_feature_sets() -> None:
    sets: dict[str, Any] = {"feature_sets": [[0, 1, 2], [3]], "cv": 2, "random_state": 0, "n_members": 1}
    names = ("n_kernels", "prior_rows", "weight_prior")
    search = SharedKernelClassifierCV(**sets).fit(X, Y)
    # More kernels are tried only while they help.
    numbers = {k for (k,) in tried(search, "n_kernels")}
    assert numbers in ({4, 8}, {4, 8, 16})
    assert tried(search, *names) == set(product(numbers, (0.5, 4.0), (1.0, 1.1)))
    assert tried(search, "transform", "reduction", "trade_off") == {("none", "none", None)}
    own = SharedKernelClassifierCV(kernels="own", **sets).fit(X, Y)
    assert tried(own, "n_kernels", "weight_prior") == {(3, None), (6, None), (12, None)}
    # No more kernels than rows.
    few = np.r_[0:5, 50:55, 100:104]
    assert max(k for (k,) in tried(SharedKernelClassifierCV(**sets).fit(X[few], Y[few]), "n_kernels")) == 7
    # The prior has its rows for each feature of a set, two on average.
    rows = FitRows.of(Block(X, Y), np.arange(3), SharedKernelClassifier())
    params = {**search.best_params_, "n_kernels": 4, "prior_rows": 4.0}
    made = rows.classifier(SharedKernelClassifier(), params, 0)
    assert_allclose(made.covariance_prior[0], 8.0)


@ENDED
def test_large_models_and_those_that_cannot_be_are_not_tuned() -> None:
    settings: dict[str, Any] = {"kernels": "shared", "covariance_type": "tied", "cv": 2, "random_state": 0}

    def is_tuned(n_kernels: int, **estimator: Any) -> bool:
        search = SharedKernelClassifierCV(
            SharedKernelClassifier(max_iter=2, **estimator), n_kernels=n_kernels, **settings
        )
        return "tuning" in search.fit(rows, np.arange(50) % 2).cv_results_["stage"]

    # Two numbers in the means for each of 50 rows: ten kernels of ten features.
    rows = np.random.default_rng(0).normal(size=(50, 10))
    assert is_tuned(10)
    assert not is_tuned(11)
    assert not is_tuned(4, tail="t")


@ENDED
def test_numbers_that_a_search_of_densities_begins_with() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    # Time is up after the first candidate.
    search: dict[str, Any] = {"time_limit": 0.0, "random_state": 0}
    # Five rows for each kernel: 1 to 8 and 10, full ones with two priors or a given one.
    prior = SharedKernelMixture(tol=0.1, covariance_prior=1.0)
    for estimator, n_priors in ((SharedKernelMixture(tol=0.1), 2), (prior, 1)):
        full = SharedKernelMixtureCV(estimator, covariance_type="full", cv=2, **search).fit(rows)
        assert full.n_untried_ == 9 * n_priors - 1
    variational = SharedKernelMixture(tol=0.1, inference="variational")
    diagonal = SharedKernelMixtureCV(variational, covariance_type="diag", cv=2, **search).fit(rows)
    assert diagonal.n_untried_ == 8
    for init, first in (("class", 3), ("k-means", 1)):
        by_class = SharedKernelMixture(init=init, tol=0.1)
        fitted = SharedKernelMixtureCV(by_class, covariance_type="diag", criterion="bic", **search)
        assert tried(fitted.fit(rows, np.arange(60) % 3), "n_kernels") == {(first,)}
