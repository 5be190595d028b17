"""A list of splits for `cv` means the rows that the user gave, as NumPy would index them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import PredefinedSplit

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
)

_RANDOM = np.random.default_rng(0)
Y = np.arange(60) % 2
X = _RANDOM.normal(size=(60, 2)) + 1.5 * Y[:, None]
ALL = np.arange(60)
WEIGHTS = np.where(ALL % 5 == 0, 0.0, 1.0 + ALL % 3)
# Rows from far away: a fit that takes or leaves the wrong rows shows.
X[::7] *= 4.0


def classifier_search(cv: Any) -> SharedKernelClassifierCV:
    settings: dict[str, Any] = {"n_kernels": 2, "covariance_type": "full", "kernels": "shared"}
    return SharedKernelClassifierCV(
        SharedKernelClassifier(), tune=False, n_members=1, cv=cv, random_state=0, **settings
    )


def mixture_search(cv: Any) -> SharedKernelMixtureCV:
    """Return a search that tries a single kernel, so that chance plays no part."""
    return SharedKernelMixtureCV(
        SharedKernelMixture(covariance_prior=None), n_kernels=1, covariance_type="full", cv=cv, random_state=0
    )


def scores(search: Any, *given: Any, **fit: Any) -> np.ndarray:
    """Return the score of each fold for the best candidate."""
    search.fit(*given, **fit)
    names = [name for name in search.cv_results_ if name.startswith("split")]
    return np.array([search.cv_results_[name][search.best_index_] for name in names])


def expected_scores(cv: Any, weights: np.ndarray | None = None) -> list[float]:
    """Fit a Gaussian to the training rows, and return the mean log-density of the held-out rows, by fold."""
    rows = np.ones(60) if weights is None else weights
    found = []
    for training, held in cv:
        model = SharedKernelMixture(1, covariance_prior=None).fit(X[training], sample_weight=rows[training])
        found.append(np.average(model.score_samples(X[held]), weights=rows[held]))
    return found


SPLITS: dict[str, list[Any]] = {
    "numbers": [(ALL[:40], ALL[40:]), (ALL[20:], ALL[:20])],
    "from the end": [(ALL[:40], np.r_[40:50, -10:0]), (np.r_[20:30, -30:0], ALL[:20])],
    "some rows": [(ALL[30:], ALL[:9]), ([*range(5, 50)], range(50, 60))],
    "repeated": [(np.r_[:40, :40, 3, 3], ALL[40:]), (ALL[20:], np.r_[:20, 7, 7])],
    "masks": [(ALL < 40, ALL >= 40), (ALL % 3 > 0, ALL % 3 == 0)],
    "lists of booleans": [((ALL < 40).tolist(), (ALL >= 40).tolist())],
    "unsigned": [(ALL[:40].astype(np.uint8), ALL[40:].astype(np.uint8))],
    "unsorted": [(ALL[39::-1], ALL[:39:-1])],
}


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", SPLITS)
def test_scores_are_those_of_the_rows_that_numpy_would_choose(kind: str, weights: np.ndarray | None) -> None:
    """Rows of weight zero take no part, but are counted; a row that is repeated counts as often."""
    found = scores(mixture_search(SPLITS[kind]), X, sample_weight=weights)
    splits = [(np.array(training), np.array(held)) for training, held in SPLITS[kind]]
    assert_allclose(found, expected_scores(splits, weights), rtol=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_search_for_a_classifier_reads_splits_alike(weights: np.ndarray | None) -> None:
    plain = scores(classifier_search(SPLITS["numbers"]), X, Y, sample_weight=weights)
    assert_allclose(scores(classifier_search(SPLITS["from the end"]), X, Y, sample_weight=weights), plain)
    # Rows that stand once for every time that they are repeated.
    often = 1 + (ALL % 4 == 1)
    copies = np.repeat(ALL, often)
    repeated = [(np.repeat(training, often[training]), held) for training, held in SPLITS["numbers"]]
    whole = [
        (np.flatnonzero(np.isin(copies, training)), np.flatnonzero(np.isin(copies, held)))
        for training, held in SPLITS["numbers"]
    ]
    held_once = [(training, held[np.unique(copies[held], return_index=True)[1]]) for training, held in whole]
    given = (X[copies], Y[copies]) + (() if weights is None else (weights[copies],))
    found = scores(classifier_search(repeated), X, Y, sample_weight=weights)
    assert_allclose(found, scores(classifier_search(held_once), *given))
    assert np.abs(found - plain).max() > 1e-3


def test_a_predefined_split_divides_the_rows_that_were_given() -> None:
    """Even if some of them have no weight."""
    fold = np.where(ALL % 7 == 0, -1, ALL // 20)
    splits = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(3)]
    found = scores(mixture_search(PredefinedSplit(fold)), X, sample_weight=WEIGHTS)
    assert_allclose(found, expected_scores(splits, WEIGHTS), rtol=1e-6)
    with pytest.raises(ValueError, match="training rows are a mask of 59 rows, but X has 60 rows"):
        mixture_search(PredefinedSplit(fold[1:])).fit(X)


BAD: dict[str, tuple[Any, str]] = {
    "too large": ((ALL[:40], np.r_[40:70]), "Fold 1 of cv: held-out rows have 10 numbers outside X, .* 60: "),
    "too small": (
        (np.r_[:40, -61], ALL[40:]),
        "Fold 1 of cv: training rows have 1 numbers outside X, .* -61",
    ),
    "short mask": ((ALL < 40, ALL[:50] >= 40), "held-out rows are a mask of 50 rows, but X has 60 rows"),
    "long mask": ((np.arange(70) < 40, ALL[40:]), "training rows are a mask of 70 rows, but X has 60 rows"),
    "fractions": (
        (ALL[:40], np.arange(40.5, 60.0)),
        "an array of row numbers or a mask of booleans, .*float64",
    ),
    "floats": ((ALL[:40], np.arange(40.0, 60.0)), "an array of row numbers or a mask of booleans, .*float64"),
    "text": (
        (ALL[:40], ["a", "b"]),
        "an array of row numbers or a mask of booleans, got an array of type <U1",
    ),
    "matrix": ((ALL[:40], ALL[40:, None]), r"got an array of type int64 and shape \(20, 1\)"),
    "a slice": ((slice(0, 40), ALL[40:]), "got an array of type object and shape"),
    "three parts": (
        (ALL[:20], ALL[20:40], ALL[40:]),
        "Fold 1 of cv must be a pair of training rows and held",
    ),
    "a number": (7, "Fold 1 of cv must be a pair of training rows and held-out rows, got 7"),
    "nothing held out": ((ALL[:40], []), "Fold 1 of cv holds out no row that has a label"),
    "no training rows": (([], ALL[40:]), "Fold 1 of cv has no training row"),
    "overlap": ((ALL[:45], ALL[40:]), "Fold 1 of cv trains on 5 of its 20 held-out rows"),
    "overlap from the end": ((np.r_[:40, -1], ALL[40:]), "Fold 1 of cv trains on 1 of its 20 held-out rows"),
}


@pytest.mark.parametrize("kind", BAD)
def test_other_splits_are_refused(kind: str) -> None:
    split, message = BAD[kind]
    cv = [SPLITS["numbers"][0], split]
    for search, labels in ((mixture_search(cv), None), (classifier_search(cv), Y)):
        with pytest.raises(ValueError, match=message):
            search.fit(X, labels)
