"""Settings chosen by the estimators: the criteria against their definitions, and what comes of the choice."""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.datasets import illustration, make_shared_kernel_data
from skmix.engine.covariances import STRUCTURES
from skmix.estimators._criteria import softened_log_losses
from skmix.estimators._progress import progress_bar
from skmix.estimators._selection import kernel_candidates

pytestmark = pytest.mark.skip(reason="the search moves to SharedKernelClassifierCV and SharedKernelMixtureCV")

KEYS = [
    "n_kernels",
    "covariance_type",
    "feature_groups",
    "criterion",
    "value",
    "log_likelihood",
    "n_parameters",
    "accuracy",
    "chosen",
]


def shared_kernels(seed: int = 0, n_per_class: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three classes over the three kernels of the paper's illustration."""
    example = illustration()
    return make_shared_kernel_data(
        example.means, example.covariances, example.weights, n_per_class, random_state=seed
    )


def clusters(n_clusters: int, seed: int = 0, n_per_cluster: int = 60) -> np.ndarray:
    """Return rows of well separated round clusters in the plane."""
    random = np.random.default_rng(seed)
    centres = 8.0 * np.array([[i % 4, i // 4] for i in range(n_clusters)])
    return np.repeat(centres, n_per_cluster, axis=0) + random.normal(size=(n_clusters * n_per_cluster, 2))


def plain(model: Any) -> Any:
    """Return the model fitted with what it chose given outright."""
    return clone(model).set_params(
        n_kernels=model.n_kernels_,
        covariance_type=model.covariance_type_,
        **({"feature_groups": model.feature_groups_} if hasattr(model, "feature_groups_") else {}),
    )


def assert_same_model(one: SharedKernelMixture, other: SharedKernelMixture) -> None:
    for name in ("weights_", "means_", "covariances_", "log_likelihood_path_", "class_prior_"):
        assert_array_equal(getattr(one, name), getattr(other, name))


# ---------------------------------------------------------------- criteria


def test_bic_of_every_candidate_is_that_of_a_plain_fit() -> None:
    X, y = shared_kernels()
    settings_ = dict(candidates=[2, 3, 5], covariance_type="auto", n_init=2, random_state=0, max_iter=1000)
    model = SharedKernelMixture("auto", **settings_).fit(X, y)
    assert len(model.selection_) == 3 * len(STRUCTURES)
    for row in model.selection_:
        tried = SharedKernelMixture(
            row["n_kernels"],
            covariance_type=row["covariance_type"],
            n_init=2,
            random_state=0,
            max_iter=1000,
        ).fit(X, y)
        assert_allclose(row["value"], tried.bic(X, y), rtol=1e-9)
        assert_allclose(row["log_likelihood"], tried.log_likelihood_, rtol=1e-12)
        assert_allclose(
            row["value"], -2 * row["log_likelihood"] + row["n_parameters"] * np.log(len(X)), rtol=1e-12
        )
    best = min(model.selection_, key=lambda row: row["value"])
    assert [row["chosen"] for row in model.selection_] == [row is best for row in model.selection_]
    assert (model.n_kernels_, model.covariance_type_) == (best["n_kernels"], best["covariance_type"])


def test_icl_adds_twice_the_entropy_of_the_responsibilities() -> None:
    X, y = shared_kernels()
    model = SharedKernelClassifier("auto", candidates=[3, 4], criterion="icl", random_state=0).fit(X, y)
    for row in model.selection_:
        tried = SharedKernelClassifier(row["n_kernels"], random_state=0).fit(X, y)
        shares = tried.responsibilities(X, y)
        entropy = -np.sum(np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1.0)), 0.0))
        assert_allclose(row["value"], tried.bic(X, y) + 2 * entropy, rtol=1e-9)


def test_cross_validation_of_a_density_is_done_by_hand() -> None:
    X, y = shared_kernels(n_per_class=40)
    options: dict[str, Any] = dict(random_state=3, max_iter=1000)
    model = SharedKernelMixture("auto", candidates=[2, 3], criterion="cv", n_folds=4, **options).fit(X, y)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=3).split(X, y))
    for row in model.selection_:
        total = 0.0
        for training, held in folds:
            fitted = SharedKernelMixture(row["n_kernels"], **options).fit(X[training], y[training])
            total += fitted.score_samples(X[held], y[held]).sum()
        assert_allclose(row["log_likelihood"], total, rtol=1e-9)
        assert_allclose(row["value"], -total / len(X), rtol=1e-9)
        assert np.isnan(row["accuracy"])


def test_cross_validation_of_a_classifier_is_done_by_hand() -> None:
    X, y = shared_kernels(n_per_class=40)
    y = np.array(["b", "a", "c"])[y]
    options: dict[str, Any] = dict(
        random_state=3, max_iter=1000, feature_groups=[[0], [1]], priors=[0.5, 0.3, 0.2]
    )
    model = SharedKernelClassifier("auto", candidates=[3, 4], criterion="cv", n_folds=4, **options).fit(X, y)
    codes = np.unique(y, return_inverse=True)[1]
    for row in model.selection_:
        densities, right = np.empty((len(X), 3)), 0
        for training, held in StratifiedKFold(4, shuffle=True, random_state=3).split(X, codes):
            fitted = SharedKernelClassifier(row["n_kernels"], **options).fit(X[training], y[training])
            densities[held] = fitted.class_log_likelihood(X[held])
            right += np.sum(fitted.predict(X[held]) == y[held])

        def loss(power: float, densities: np.ndarray = densities) -> float:
            logs = log_softmax(power * densities + np.log([0.5, 0.3, 0.2]), axis=1)
            return -logs[np.arange(len(X)), codes].mean()

        smallest = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6}).fun
        assert_allclose(row["value"], min(smallest, loss(1.0)), rtol=1e-6)
        assert row["accuracy"] == pytest.approx(right / len(X), abs=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), loudness=st.floats(0.01, 1000.0), n_classes=st.integers(2, 5))
def test_softening_finds_the_best_power(seed: int, loudness: float, n_classes: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(0, n_classes, size=60)
    values = loudness * (random.normal(size=(60, n_classes)) + np.eye(n_classes)[codes])
    prior = random.dirichlet(np.full(n_classes, 5.0))
    weights = random.uniform(0.1, 2.0, size=60)

    def loss(power: float) -> float:
        logs = log_softmax(power * values + np.log(prior), axis=1)
        return float(-np.average(logs[np.arange(60), codes], weights=weights))

    found = np.average(softened_log_losses(values, codes, prior, weights), weights=weights)
    powers = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 400)])
    assert found <= min(map(loss, powers)) + 1e-7
    # It is attained: no power in [0, 1] could do better than the minimum of a convex function.
    best = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9})
    assert found >= min(best.fun, loss(1.0)) - 1e-6


def test_posteriors_that_are_right_are_not_softened() -> None:
    values = np.array([[0.0, -4.0], [-5.0, 0.0], [0.0, -1.0]])
    losses = softened_log_losses(values, np.array([0, 1, 0]), np.array([0.5, 0.5]))
    assert_allclose(losses, np.log1p(np.exp([-4.0, -5.0, -1.0])), rtol=1e-12)


# ---------------------------------------------------------------- choices


def test_the_chosen_model_is_the_plain_model_to_the_bit() -> None:
    X, y = shared_kernels()
    for estimator in (SharedKernelMixture, SharedKernelClassifier):
        for criterion in ("bic", "cv"):
            model = estimator("auto", covariance_type="auto", criterion=criterion, random_state=5)
            model.set_params(candidates=[2, 3, 4], n_init=2, max_iter=2000).fit(X, y)
            again = plain(model).fit(X, y)
            assert_same_model(model, again)
            assert_array_equal(model.class_log_likelihood(X), again.class_log_likelihood(X))
            assert_array_equal(model.responsibilities(X), again.responsibilities(X))
            assert model.bic(X, y) == again.bic(X, y)
            assert model.aic(X, y) == again.aic(X, y)
            assert_array_equal(model.sample(5)[0], again.sample(5)[0])
            assert not hasattr(again, "selection_")


@pytest.mark.parametrize("criterion", ["bic", "icl"])
def test_the_number_of_clusters_is_found(criterion: str) -> None:
    model = SharedKernelMixture("auto", criterion=criterion, n_init=4, random_state=0).fit(clusters(5))
    assert model.n_kernels_ == 5
    assert [row["n_kernels"] for row in model.selection_] == [1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_more_kernels_are_tried_while_the_largest_is_best() -> None:
    model = SharedKernelMixture("auto", covariance_type="spherical", n_init=8, random_state=0).fit(
        clusters(12)
    )
    tried = [row["n_kernels"] for row in model.selection_]
    assert tried[-2:] == [12, 15]
    assert model.n_kernels_ == 12


def test_kernels_that_classes_share_are_counted_once() -> None:
    X, y = shared_kernels(n_per_class=300)
    model = SharedKernelClassifier("auto", n_init=3, random_state=0).fit(X, y)
    assert model.n_kernels_ == 3
    assert model.weights_.shape == (3, 3)


@pytest.mark.parametrize("truth", ["full", "tied", "diag", "spherical"])
def test_the_covariance_type_is_found(truth: str) -> None:
    random = np.random.default_rng(0)
    roots = {
        "full": np.array([[[2.0, 0.0], [1.8, 0.5]], [[0.5, 0.0], [-0.8, 1.0]]]),
        "tied": np.array([[[1.5, 0.0], [1.2, 0.5]]] * 2),
        "diag": np.array([np.diag([2.0, 0.4]), np.diag([0.5, 1.5])]),
        "spherical": np.array([np.eye(2), 0.3 * np.eye(2)]),
    }[truth]
    X = np.concatenate(
        [
            centre + random.normal(size=(300, 2)) @ root.T
            for centre, root in zip((0.0, 6.0), roots, strict=True)
        ]
    )
    model = SharedKernelMixture(2, covariance_type="auto", n_init=2, random_state=0, max_iter=1000).fit(X)
    assert model.covariance_type_ == truth
    assert model.n_kernels_ == 2
    assert {row["n_kernels"] for row in model.selection_} == {2}


def test_one_kernel_for_each_class_unless_asked() -> None:
    X, y = shared_kernels()
    model = SharedKernelClassifier(covariance_type="auto", random_state=0, max_iter=1000).fit(X, y)
    assert model.n_kernels_ == 3
    assert [row["n_kernels"] for row in model.selection_] == [3] * len(STRUCTURES)


def test_the_table_is_ready_for_pandas() -> None:
    X, y = shared_kernels(n_per_class=30)
    model = SharedKernelClassifier("auto", candidates=(4, 3, 3), random_state=0, max_iter=1000).fit(X, y)
    table = pd.DataFrame(model.selection_)
    assert table.columns.tolist() == KEYS
    assert table["n_kernels"].tolist() == [3, 4]
    assert table["chosen"].sum() == 1
    assert table["feature_groups"].tolist() == [[[0, 1]]] * 2


def test_a_plain_fit_forgets_an_earlier_choice() -> None:
    X, y = shared_kernels(n_per_class=30)
    for estimator in (SharedKernelMixture, SharedKernelClassifier):
        model = estimator("auto", candidates=[3], random_state=0).fit(X, y)
        assert hasattr(model, "selection_")
        model.set_params(n_kernels=3).fit(X, y)
        assert not hasattr(model, "selection_")


def test_pickles_and_clones_keep_the_choice_apart_from_the_settings() -> None:
    X, y = shared_kernels(n_per_class=30)
    model = SharedKernelClassifier("auto", candidates=[3, 4], random_state=0, max_iter=1000).fit(X, y)
    assert model.n_kernels == "auto"
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert not hasattr(clone(model), "n_kernels_")


def test_any_source_of_randomness_serves() -> None:
    X, y = shared_kernels(n_per_class=30)
    found = [
        SharedKernelClassifier("auto", candidates=[3, 4], random_state=source).fit(X, y).selection_
        for source in (np.random.RandomState(4), np.random.RandomState(4))
    ]
    assert repr(found[0]) == repr(found[1])
    SharedKernelClassifier("auto", candidates=[3], criterion="cv", random_state=None).fit(X, y)


def test_threads_do_not_change_the_choice() -> None:
    X, y = shared_kernels(n_per_class=60)
    options: dict[str, Any] = dict(candidates=[3, 4], criterion="cv", random_state=0)
    one, two = (SharedKernelClassifier("auto", n_jobs=n, **options).fit(X, y) for n in (1, 2))
    assert repr(one.selection_) == repr(two.selection_)


# ---------------------------------------------------------------- rows that know less or count more


@pytest.mark.parametrize("criterion", ["bic", "icl"])
def test_whole_weights_are_repeated_rows(criterion: str) -> None:
    X = clusters(3)
    counts = np.random.default_rng(0).integers(1, 4, size=len(X))
    # From one start, since starts are drawn from the rows: candidates of one kernel have no other.
    options: dict[str, Any] = dict(candidates=[1], criterion=criterion, covariance_type="auto")
    weighted = SharedKernelMixture("auto", **options).fit(X, sample_weight=counts)
    repeated = SharedKernelMixture("auto", **options).fit(np.repeat(X, counts, axis=0))
    for one, other in zip(weighted.selection_, repeated.selection_, strict=True):
        assert_allclose(one["value"], other["value"], rtol=1e-9)


@pytest.mark.parametrize("criterion", ["bic", "icl", "cv"])
def test_gaps_and_missing_labels_are_no_obstacle(criterion: str) -> None:
    X, y = shared_kernels(n_per_class=80)
    random = np.random.default_rng(0)
    X[random.uniform(size=len(X)) < 0.2, 1] = np.nan
    y = np.where(random.uniform(size=len(y)) < 0.3, -1, y)
    weights = random.uniform(0.5, 1.5, size=len(y))
    for estimator in (SharedKernelMixture, SharedKernelClassifier):
        model = estimator("auto", candidates=[3, 4], criterion=criterion, random_state=0, max_iter=2000)
        model.fit(X, y, sample_weight=weights)
        assert model.n_kernels_ in (3, 4)
        assert np.isfinite([row["value"] for row in model.selection_]).all()


def test_the_entropy_of_unlabelled_rows_is_that_of_the_mixture() -> None:
    X, y = shared_kernels(n_per_class=60)
    y[::3] = -1
    model = SharedKernelMixture("auto", candidates=[3], criterion="icl", random_state=0, max_iter=2000).fit(
        X, y
    )
    (row,) = model.selection_
    shares = model.responsibilities(X)
    known = y >= 0
    shares[known] = model.responsibilities(X[known], y[known])
    entropy = -np.sum(shares * np.log(np.maximum(shares, 1e-300)))
    bic = -2 * model.log_likelihood_ + row["n_parameters"] * np.log(len(X))
    assert_allclose(row["value"], bic + 2 * entropy, rtol=1e-9)


# ---------------------------------------------------------------- annihilation


def test_annihilation_leaves_what_is_needed() -> None:
    model = SharedKernelMixture(15, annihilate=True, random_state=0).fit(clusters(4))
    assert model.n_kernels_ == 4
    assert model.weights_.shape == (4, 1)
    assert model.means_.shape == (4, 2)
    assert model.covariances_.shape == (4, 2, 2)
    assert len(model.log_likelihood_path_) == model.n_iter_
    assert model.transform(clusters(4)).shape == (240, 4)


def test_annihilation_in_every_group_of_a_classifier() -> None:
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(9, annihilate=True, feature_groups=[[0, 1], [2, 3]], random_state=0)
    model.fit(X, y)
    assert model.n_kernels_ == [len(part.means_) for part in model.models_]
    assert all(3 <= n < 9 for n in model.n_kernels_)
    assert model.score(X, y) > 0.9


# ---------------------------------------------------------------- candidates


def test_candidates_begin_with_the_classes_and_end_with_the_rows() -> None:
    assert kernel_candidates(None, 1, 10_000, 3)[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert kernel_candidates(None, 10, 10_000, 3)[:4] == [10, 12, 15, 18]
    assert max(kernel_candidates(None, 3, 40, 3)) <= 10
    assert kernel_candidates(None, 5, 6, 10) == [5]
    assert kernel_candidates(np.array([4, 2, 4]), 3, 10, 2) == [2, 4]


# ---------------------------------------------------------------- what is shown


def test_candidates_that_stop_early_warn_once_if_chosen() -> None:
    X, y = shared_kernels()
    model = SharedKernelClassifier("auto", candidates=[3, 4, 5], max_iter=2, tol=0.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 passes") as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    X = clusters(2)
    for stream, verbose, drawn in ((Terminal(), 1, True), (Terminal(), 0, False), (io.StringIO(), 1, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        SharedKernelMixture("auto", candidates=[1, 2], verbose=verbose, random_state=0).fit(X)
        assert ("choosing kernels" in stream.getvalue()) is drawn


def test_without_rich_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress_bar("waiting", 1, shown=True) as report:
        report("done")
    assert terminal.getvalue() == ""


# ---------------------------------------------------------------- errors


def bad(message: str, X: Any = None, y: Any = None, **options: Any) -> None:
    default_X, default_y = shared_kernels(n_per_class=10)
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifier(**options).fit(default_X if X is None else X, default_y if y is None else y)


def test_settings_that_contradict_a_choice_are_refused() -> None:
    start = {"means": np.zeros((3, 2))}
    bad("n_kernels='auto' needs init by name", n_kernels="auto", init=start)
    bad("covariance_type='auto' needs init by name", covariance_type="auto", init=start)
    bad("feature_groups='auto' needs init by name", feature_groups="auto", init=[start])
    bad("n_kernels='auto' .* warm_start=True", n_kernels="auto", warm_start=True)
    bad("annihilate=True .* weight_prior=1.5", annihilate=True, weight_prior=1.5)


def test_candidates_must_be_numbers_of_kernels() -> None:
    bad("at least one number", n_kernels="auto", candidates=[])
    bad("at least 1, got 0", n_kernels="auto", candidates=[3, 0])
    bad("got 2.5", n_kernels="auto", candidates=[2.5])
    bad("got True", n_kernels="auto", candidates=[True])


def test_folds_need_rows_of_every_class() -> None:
    X = np.random.default_rng(0).normal(size=(23, 2))
    y = np.array(["few"] * 3 + ["many"] * 20)
    bad("Class .*few.* has 3 labelled row.* n_folds=5", X, y, n_kernels="auto", criterion="cv")
    bad("n_folds", n_kernels="auto", criterion="cv", n_folds=1)
    numbers = np.array([0] * 3 + [1] * 10 + [-1] * 10)
    bad("Class .*0.* has 3 labelled", X, numbers, n_kernels="auto", criterion="cv")


def test_unknown_words_are_refused() -> None:
    bad("n_kernels", n_kernels="best")
    bad("covariance_type", covariance_type="round")
    bad("feature_groups", feature_groups="best")
    bad("criterion", n_kernels="auto", criterion="aic")


def test_candidates_that_all_fail_are_told_of() -> None:
    X = np.repeat([[0.0], [1.0], [2.0]], 10, axis=0)
    y = np.repeat([0, 1, 2], 10)
    for criterion in ("bic", "cv"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bad(
                "singular covariance",
                X,
                y,
                n_kernels="auto",
                candidates=[3],
                criterion=criterion,
                reg_covar=0,
            )
