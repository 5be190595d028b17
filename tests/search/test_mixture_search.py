"""The search for densities: its scores against fits by hand, what it chooses, and its averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.datasets import make_shared_kernel_data
from skmix.engine.structures import STRUCTURES
from skmix.paper import illustration
from skmix.search.grid import average, try_grid
from skmix.search.trials import Trial, Trials


def shared_kernels(n_per_class: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three classes over the three kernels of the paper's illustration."""
    example = illustration()
    return make_shared_kernel_data(
        example.means, example.covariances, example.weights, n_per_class, random_state=0
    )


def clusters(n_clusters: int, n_per_cluster: int = 60) -> np.ndarray:
    """Return rows of well separated round clusters in the plane."""
    random = np.random.default_rng(0)
    centres = 8.0 * np.array([[i % 4, i // 4] for i in range(n_clusters)])
    return np.repeat(centres, n_per_cluster, axis=0) + random.normal(size=(n_clusters * n_per_cluster, 2))


# ---------------------------------------------------------------- criteria


def test_bic_of_every_candidate_is_that_of_plain_fits() -> None:
    X, y = shared_kernels(40)
    prototype = SharedKernelMixture(n_init=2, max_iter=1000)
    search = SharedKernelMixtureCV(prototype, n_kernels=3, criterion="bic", random_state=0).fit(X, y)
    table = search.cv_results_
    assert len(table["params"]) == len(STRUCTURES)
    for params, score in zip(table["params"], table["mean_test_score"], strict=True):
        fitted = clone(search.best_estimator_).set_params(**params).fit(X, y)
        assert_allclose(-score, fitted.bic(X, y), rtol=1e-9)
    assert search.best_score_ == table["mean_test_score"].max()
    assert table["rank_test_score"][search.best_index_] == 1


def test_held_out_log_likelihood_is_that_of_folds_by_hand() -> None:
    X, y = shared_kernels(40)
    cv = StratifiedKFold(2, shuffle=True, random_state=3)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    search = SharedKernelMixtureCV(n_kernels=3, criterion="log_likelihood", cv=cv, random_state=0)
    search.fit(X, y, weights)
    table = search.cv_results_
    splits = np.stack([table["split0_test_score"], table["split1_test_score"]])
    assert_allclose(table["std_test_score"], splits.std(axis=0), rtol=1e-9)
    for i, params in enumerate(search.cv_results_["params"]):
        total = 0.0
        for fold, (training, held) in enumerate(cv.split(X, y)):
            settings = {"covariance_prior": "auto", **params}
            fitted = clone(search.best_estimator_).set_params(**settings)
            fitted.fit(X[training], y[training], weights[training])
            scores = weights[held] * fitted.score_samples(X[held], y[held])
            mean = scores.sum() / weights[held].sum()
            assert_allclose(search.cv_results_[f"split{fold}_test_score"][i], mean, rtol=1e-9)
            total += scores.sum()
        assert_allclose(search.cv_results_["mean_test_score"][i], total / weights.sum(), rtol=1e-9)


def test_the_winner_is_the_plain_model_to_the_bit() -> None:
    X, y = shared_kernels(40)
    for criterion in ("bic", "log_likelihood"):
        search = SharedKernelMixtureCV(
            n_kernels=[2, 3], covariance_type="diag", criterion=criterion, n_members=1, cv=2, random_state=5
        )
        search.fit(X, y)
        again = clone(search.best_estimator_).fit(X, y)
        assert again.n_kernels == search.best_params_["n_kernels"]
        assert_array_equal(search.best_estimator_.means_, again.means_)
        assert_array_equal(search.score_samples(X), again.score_samples(X))
        assert search.score(X, y) == again.score(X, y)


def test_whole_weights_are_repeated_rows() -> None:
    X = clusters(3)
    counts = np.random.default_rng(0).integers(0, 4, size=len(X))
    # Starts are drawn from the rows; one kernel has no other.
    search = SharedKernelMixtureCV(n_kernels=1, criterion="bic")
    weighted = clone(search).fit(X, sample_weight=counts)
    repeated = clone(search).fit(np.repeat(X, counts, axis=0))
    assert_allclose(
        weighted.cv_results_["mean_test_score"], repeated.cv_results_["mean_test_score"], rtol=1e-9
    )


# ---------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("peak", "patience", "tried"),
    [
        (2, 3.0, [1, 2, 3, 4, 5]),  # four numbers in a row would be in vain
        (2, np.inf, [1, 2, 3, 4, 5, 6]),  # up to where the search may end
        (6, np.inf, [1, 2, 3, 4, 5, 6, 7]),  # on while the largest is the best
        (8, np.inf, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_more_kernels_are_tried_while_they_help(peak: int, patience: float, tried: list[int]) -> None:
    trials = Trials(None)

    def evaluate(trial: Trial) -> None:
        trial.score = -abs(trial.params["n_kernels"] - peak)

    grid: Any = {"numbers": list(range(1, 10)), "covariances": [{"covariance_type": "diag"}]}
    best = try_grid(trials, evaluate, **grid, reach=6.0, patience=patience)
    assert best.params == {"n_kernels": peak, "covariance_type": "diag"}
    assert [trial.params["n_kernels"] for trial in trials.list] == tried


def test_the_number_of_clusters_is_found() -> None:
    prototype = SharedKernelMixture(n_init=4)
    search = SharedKernelMixtureCV(prototype, covariance_type="full", criterion="bic", random_state=0)
    assert search.fit(clusters(5)).best_params_ == {"n_kernels": 5, "covariance_type": "full"}
    assert search.cv_results_["param_n_kernels"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_held_out_rows_choose_by_default_where_there_are_any() -> None:
    X = clusters(2, 20)
    settings: Any = {"n_kernels": [1, 2], "covariance_type": "spherical", "random_state": 0}
    search = SharedKernelMixtureCV(**settings).fit(X)
    by_density = SharedKernelMixtureCV(**settings, criterion="log_likelihood").fit(X)
    assert search.best_params_["n_kernels"] == 2
    assert_array_equal(search.cv_results_["mean_test_score"], by_density.cv_results_["mean_test_score"])
    # Each class has one row: none can be held out.
    few = SharedKernelMixtureCV(**{**settings, "n_kernels": 1}).fit(X[:3], [0, 1, 2])
    assert few.best_score_ == -few.cv_results_["bic"][0]


def test_a_winner_that_stopped_early_warns_once() -> None:
    X, y = shared_kernels(40)
    search = SharedKernelMixtureCV(SharedKernelMixture(max_iter=2, tol=0.0), n_kernels=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 passes") as caught:
        search.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


# ---------------------------------------------------------------- averages


def test_an_average_is_a_mixture_of_its_members(tmp_path: Path) -> None:
    X, y = shared_kernels(60)
    search = SharedKernelMixtureCV(n_kernels=[2, 3], n_members=3, cv=2, random_state=0).fit(X, y)
    assert len(search.mixtures_) == 3
    assert search.best_estimator_ is search.mixtures_[0]
    assert_allclose(search.shares_.sum(), 1.0, rtol=1e-12)
    shown = search.cv_results_["share"]
    assert_allclose(np.sort(shown[shown > 0]), np.sort(search.shares_), rtol=1e-12)
    assert shown[search.best_index_] == search.shares_[0]
    new = X[:40] + 0.1
    for labels in (None, y[:40]):
        expected = sum(
            share * np.exp(each.score_samples(new, labels))
            for share, each in zip(search.shares_, search.mixtures_, strict=True)
        )
        assert_allclose(np.exp(search.score_samples(new, labels)), expected, rtol=1e-9)
        assert_allclose(search.score(new, labels), np.log(expected).mean(), rtol=1e-9)
    # Kernels are those of the best candidate.
    assert_array_equal(search.predict_proba(new), search.best_estimator_.predict_proba(new))
    search.shares_ = search.shares_[:-1] / search.shares_[:-1].sum()
    with pytest.raises(ValueError, match=r"mixtures_ has \d members, not \d"):
        search.save(tmp_path / "average.skmix")


def test_shares_are_those_of_the_highest_held_out_density() -> None:
    X = clusters(3, 40)
    cv = [(np.flatnonzero(np.arange(len(X)) % 3 != 0), np.arange(0, len(X), 3))]
    search = SharedKernelMixtureCV(n_kernels=[2, 5, 8], covariance_type="diag", cv=cv, random_state=0)
    search.fit(X)
    (training, held), densities = cv[0], []
    for each in search.mixtures_:
        densities.append(np.exp(clone(each).fit(X[training]).score_samples(X[held])))
    best = np.log(search.shares_ @ densities).mean()
    assert best > search.best_score_
    # No other shares are better.
    for i in range(len(densities)):
        for step in (0.01, 0.1, 0.5):
            other = (1.0 - step) * search.shares_ + step * np.eye(len(densities))[i]
            assert np.log(other @ densities).mean() < best + 1e-2 * step


def test_members_of_the_largest_shares_stay() -> None:
    random = np.random.default_rng(0)
    # Candidates describe 40, 10 and 30 of 80 rows well; the first is the best of all rows.
    well = np.repeat([0, 1, 2], [40, 10, 30])
    logs = np.where(well == np.arange(3)[:, None], 0.0, -6.0) + 0.1 * random.normal(size=(3, 80))
    tried = [Trial("kernels", {"number": n}, float(own.mean()), losses=-own) for n, own in enumerate(logs)]
    chosen, shares = average(tried, np.ones(80), 2)
    assert [trial.params["number"] for trial in chosen] == [0, 2]
    assert_allclose(shares, [4 / 7, 3 / 7], atol=0.1)


def test_rows_are_drawn_from_members_by_their_shares() -> None:
    X = clusters(2, 30)
    search = SharedKernelMixtureCV(
        n_kernels=1, covariance_type="diag", n_members=1, cv=2, random_state=0
    ).fit(X)
    far = SharedKernelMixture(1, random_state=0).fit(X + 1e6)
    search.mixtures_, search.shares_ = [search.mixtures_[0], far], np.array([0.9, 0.1])
    drawn, labels = search.sample(4000)
    is_far = drawn[:, 0] > 5e5
    assert is_far.mean() == pytest.approx(0.1, abs=0.03)
    # Rows of all members in no order.
    assert is_far[:2000].mean() == pytest.approx(is_far[2000:].mean(), abs=0.03)
    assert len(np.unique(drawn, axis=0)) == 4000
    assert set(labels) == {0}


# ---------------------------------------------------------------- results


def test_settings_that_cannot_be_used_are_refused() -> None:
    X = clusters(3, 20)
    with pytest.raises(ValueError, match="cannot be combined with criterion='bic'"):
        SharedKernelMixtureCV(criterion="bic").fit(X, groups=np.arange(60) % 10)
    with pytest.raises(ValueError, match="3 rows are too few to hold any out"):
        SharedKernelMixtureCV(criterion="log_likelihood").fit(X[::20], [0, 1, 2])


def test_shares_of_an_average_follow_the_weights_of_held_out_rows() -> None:
    """Few wide rows of large weight are described by one kernel, many narrow ones of small weight by two."""
    random, kind = np.random.default_rng(0), np.arange(300) % 3
    centres = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    X = random.normal(size=(300, 2)) * np.array([0.5, 0.5, 4.0])[kind, None] + centres[kind]
    weights, folds = np.where(kind == 2, 5.0, 0.25), [(np.arange(150), np.arange(150, 300))]
    model = SharedKernelMixture(random_state=0, covariance_prior=None)
    settings: dict[str, Any] = {"n_kernels": [1, 2], "covariance_type": ["spherical"], "n_members": 2}
    search = SharedKernelMixtureCV(model, cv=folds, criterion="log_likelihood", random_state=0, **settings)
    search.fit(X, sample_weight=weights)
    parts = []
    for n_kernels in (1, 2):
        part = SharedKernelMixture(
            n_kernels, random_state=0, covariance_prior=None, covariance_type="spherical"
        )
        parts.append(part.fit(X[:150], sample_weight=weights[:150]).score_samples(X[150:]))
    share = np.linspace(0.0, 1.0, 101)[1:-1, None]
    mixed = np.logaddexp(np.log(share) + parts[0], np.log1p(-share) + parts[1])
    # Without weights, the shares would be the other way round.
    assert (mixed @ weights[150:]).argmax() == len(share) - 1
    assert mixed.sum(axis=1).argmax() == 0
    assert search.cv_results_["share"][0] > 0.8
