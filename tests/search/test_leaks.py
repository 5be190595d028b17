"""No model is judged by rows that it has seen, and held-out rows decide nothing about what is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.rows.blocks import Block
from skmix.model import crossfit
from skmix.model.crossfit import novelty_threshold
from skmix.search import stages
from skmix.search.fits import FitRows, make_folds
from skmix.search.stages import Selection

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def rows() -> Data:
    X, y = load_iris(return_X_y=True)
    return X + 1e-4 * np.random.default_rng(0).normal(size=X.shape), y


def test_groups_are_those_of_the_rows_that_have_a_weight() -> None:
    """Rows of weight zero are gone, but groups are given for all rows."""
    groups, kept = np.repeat(np.arange(10), 6), np.delete(np.arange(60), [0, 1, 2, 20, 21])
    rows = Block(kept[:, None].astype(float), kept % 2)
    for training, held in make_folds(rows, np.arange(2), None, groups, kept, 0):
        own, other = (groups[part.X[:, 0].astype(int)] for part in (training, held))
        assert not set(own) & set(other)


def fits_of(X: np.ndarray, y: np.ndarray, folds: Any, prior: Any, tune: Any) -> dict[str, list[np.ndarray]]:
    """Return all numbers of the models of each candidate that a search tries, by its parameters."""
    found: dict[str, list[np.ndarray]] = {}
    score = Selection._score

    def spy(self: Selection, trial: Any, *args: Any, **kwargs: Any) -> None:
        score(self, trial, *args, **kwargs)
        for model in trial.models:
            key, own = f"{trial.stage} {trial.params}", getattr(model, "model", None) or model.models_[0]
            names = [name for name in vars(own) if name.strip("_") in ("weights", "means", "covariances")]
            found.setdefault(key, []).extend(getattr(own, name) for name in names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "_score", spy)
        # Three candidates are tuned, as with many rows.
        patch.setattr(stages, "_FEW_ROWS", 0)
        estimator = SharedKernelClassifier(covariance_prior=prior)
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


def test_the_best_candidates_are_tuned_from_their_own_fits(rows: Data) -> None:
    estimator = SharedKernelClassifier(covariance_prior=1.0)
    search = SharedKernelClassifierCV(
        estimator, n_kernels=3, covariance_type="full", tune="auto", n_members=1, cv=3, random_state=0
    ).fit(*rows)
    table = search.cv_results_
    names, scores = table["stage"], table["mean_test_score"]
    kinds = [(each["transform"], each["reduction"]) for each in table["params"]]
    fitted = [i for i in np.argsort(-scores) if names[i] == "kernels"]
    tuned = [i for i in np.flatnonzero(names == "tuning")]
    assert len(fitted) >= 3  # the others were dropped after the first fold
    # Two of them, with one share of the likelihood, as rows are few.
    assert [kinds[i] for i in tuned] == [kinds[i] for i in fitted[:2]]
    assert {table["params"][i]["trade_off"] for i in tuned} == {0.1}
    # The winner is the best of all, and the table says so.
    assert scores[search.best_index_] == scores.max() == search.best_score_
    assert table["rank_test_score"][search.best_index_] == 1


def prior_of(block: Block, params: dict[str, Any]) -> Any:
    rows = FitRows.of(block, np.arange(3), SharedKernelClassifier())
    return rows.classifier(SharedKernelClassifier(), params, 0).covariance_prior


def test_priors_are_of_the_covariance_within_classes_that_a_kernel_has_its_share_of(rows: Data) -> None:
    X, y = rows[0][:120], rows[1][:120]
    params: Any = dict.fromkeys(("weight_prior", "feature_sets", "trade_off"))
    params |= {"kernels": "shared", "covariance_type": "tied", "prior_rows": 0.5, "reduction": "none"}
    (few, common), (many, smaller) = (prior_of(Block(X, y), {**params, "n_kernels": k}) for k in (3, 12))
    # Rows for each of four features; four kernels of a class halve its covariance: 4^(-2/4).
    assert few == many == 2.0
    assert_allclose(smaller, 0.5 * common)
    within = sum((np.sum(y == c) - 1) * np.cov(X[y == c].T) for c in range(3))
    assert_allclose(common, (within + np.diag(X.var(axis=0))) / (120 - 3 + 1))
    # A row of weight two counts as two.
    counts = np.random.default_rng(0).integers(1, 4, size=120)
    weighted, repeated = (
        prior_of(own, {**params, "n_kernels": 3})[1]
        for own in (
            Block(X, y, counts.astype(float)),
            Block(np.repeat(X, counts, axis=0), np.repeat(y, counts)),
        )
    )
    assert_allclose(weighted, repeated, rtol=1e-12)


@pytest.mark.parametrize("tune", [False, "auto"])
def test_the_threshold_of_a_search_holds_out_whole_groups(
    rows: Data, tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, groups = rows[0], np.arange(150) % 12
    # Kernels describe classes on both sides of a plane badly: tuning helps.
    y = np.where(np.arange(150) % 7 == 0, -1, 1 + (X[:, 0] + X[:, 1] > 8.9) if tune else rows[1])
    folds: list[tuple[int, set[int]]] = []
    stratified_folds = crossfit.stratified_folds

    def spy(strata: np.ndarray, n_folds: int, seed: int, own: np.ndarray) -> Any:
        found = stratified_folds(strata, n_folds, seed, own)
        for training, held in found:
            assert not set(own[training]) & set(own[held])
            folds.append((len(strata), set(own[held])))
        return found

    monkeypatch.setattr(crossfit, "stratified_folds", spy)
    estimator = SharedKernelClassifier(covariance_prior=1.0, reject_below=0.1)
    search = SharedKernelClassifierCV(
        estimator, n_kernels=3, covariance_type="tied", tune=tune, n_members=1, random_state=0
    ).fit(X, y, groups=groups)
    assert (search.best_params_["trade_off"] is not None) == bool(tune)
    # Unlabelled rows have densities too, but cannot be tuned to.
    assert {n_rows for n_rows, _ in folds} == ({np.count_nonzero(y >= 0)} if tune else {150})
    # Fits that are tuned or widened are more work.
    is_changed = tune or search.cv_results_["widening"][search.best_index_] > 0.0
    assert len(folds) == (4 if is_changed else 10)
    assert set().union(*(held for _, held in folds)) == set(range(12))


# ---------------------------------------------------------------- rows that nothing can be learnt about
#
# Where labels are coins, a row's label has the probability p = 1/2 whatever was learnt, so that the product
# of q / p over held-out rows has the expectation 1: by Markov's inequality, the sum of log q / p exceeds 20
# in one of 5e8 cases. So does the sum over independent repetitions. A model that is judged by its own rows
# exceeds it at once.
_MOST, _REPEATS = 20.0, 2


def coins(n_rows: int, seed: int = 0, n_features: int = 6) -> Data:
    """Return rows of a standard normal distribution with labels that do not depend on them."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n_rows, n_features)), random.integers(0, 2, size=n_rows)


@pytest.mark.parametrize("kind", ["all rows", "one less", "weights"])
def test_tuning_predicts_no_coins(kind: str) -> None:
    own = slice(1, 800) if kind == "one less" else slice(0, 800)
    # Weights of at most one: with more, log q / p could have a larger expectation.
    weights = np.random.default_rng(1).uniform(0.9, 1.0, size=800) if kind == "weights" else None
    settings: Any = {"trade_off": [1.0, 0.01], "max_iter": 10, "random_state": 0}
    found = []
    for seed in range(_REPEATS):
        X, y = coins(800, seed)
        model = SharedKernelClassifier(80, covariance_prior=None, init="class", tol=1e-2, random_state=0)
        model.fit(X, y)
        assert model.score(X, y) > 0.8
        model.tune(X[own], y[own], sample_weight=weights, **settings)
        found.append([model.tuned_["before"], model.tuned_["after"]])
    n_held = _REPEATS * 80
    for scores in zip(*found, strict=True):
        assert np.mean([each["error"] for each in scores]) > 0.5 - 5.0 * np.sqrt(0.25 / n_held)
        assert np.mean([each["log_loss"] for each in scores]) > np.log(2.0) - _MOST / (0.9 * n_held)


def test_the_threshold_of_an_average_is_not_that_of_rows_that_were_learnt() -> None:
    shares = []
    for seed in range(_REPEATS):
        X, _ = coins(240, seed)
        estimator = SharedKernelMixture(covariance_prior=None, tol=1e-2)
        search = SharedKernelMixtureCV(estimator, n_kernels=[8, 16], covariance_type="full", cv=2).fit(X)
        threshold = novelty_threshold(search, 0.1, Block(X))
        shares.append(np.mean(search.score_samples(coins(4000, seed + _REPEATS)[0]) < threshold))
        assert np.quantile(search.score_samples(X), 0.1) > threshold
    # Five standard deviations of the quantile of 240 rows, and of the share of 4000.
    assert np.mean(shares) < 0.1 + 5.0 * np.sqrt((0.09 / 240 + 0.09 / 4000) / _REPEATS)
