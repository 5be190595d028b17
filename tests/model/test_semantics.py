"""What holds for every kind of rows and labels: unlabelled and empty rows, frozen parts, threads, edges."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
    open_rows,
)
from skmix.model import densities
from skmix.model.frames import PreparedRows


def sample(n_rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n_rows)
    return random.normal(size=(n_rows, 3)) + 3.0 * np.eye(3)[y], y


@pytest.mark.parametrize("maker", [SharedKernelMixture, SharedKernelClassifier])
@pytest.mark.parametrize("labels", [[-1, 0, 1], [-2, -1, 0], [-1.0, 0.0, 1.0]])
def test_labels_among_which_minus_one_may_be_a_class_are_refused(maker: Any, labels: list[float]) -> None:
    X, y = sample()
    with pytest.raises(ValueError, match=r"-1 marks rows without a label, .*y\.astype\(str\).*numpy\.nan"):
        maker(3, random_state=0).fit(X, np.array(labels)[y])
    # Both remedies work.
    text = maker(3, random_state=0, tol=1e-2).fit(X, np.array(labels)[y].astype(str))
    assert len(text.classes_) == 3
    marked = np.where(y == 0, np.nan, np.array([-1.0, 0.0, 1.0])[y])
    assert maker(3, random_state=0, tol=1e-2).fit(X, marked).classes_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([-1, 0, 1, 2], [0, 1, 2]),
        ([-1, 1, 1, -1], [-1, 1]),
        ([-2, -4, -3, -2], [-4, -3, -2]),
        ([-1, 0, 1, None], [-1, 0, 1]),
        ([-1.0, 0.0, 1.0, np.nan], [-1.0, 0.0, 1.0]),
        (["b", "a", None, "b"], ["a", "b"]),
        (["b", "a", float("nan"), "b"], ["a", "b"]),
        (["-1", "a", "b", "a"], ["-1", "a", "b"]),
        ([-1.0, 0.0, 2.0, 2.0], [0.0, 2.0]),
    ],
)
def test_when_minus_one_is_a_label(labels: list[object], classes: list[object]) -> None:
    X = np.random.default_rng(1).normal(size=(40, 2))
    model = SharedKernelMixture(2, random_state=0, max_iter=900).fit(X, labels * 10)
    assert model.classes_.tolist() == classes
    # However rows without a label are marked, the fit is that of codes and NaN.
    codes = np.array([classes.index(label) if label in classes else np.nan for label in labels] * 10)
    coded = SharedKernelMixture(2, random_state=0, max_iter=900).fit(X, codes)
    assert_array_equal(model.means_, coded.means_)
    assert_array_equal(model.class_prior_, coded.class_prior_)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_unlabelled_rows_help(covariance_type: str) -> None:
    """All but four labels of each class are hidden."""
    random = np.random.default_rng(0)
    y = random.choice(3, size=900, p=[0.5, 0.3, 0.2])
    X = 2.5 * np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])[y] + random.normal(size=(900, 4))
    shown = np.isin(np.arange(900), [np.flatnonzero(y == c)[:4] for c in range(3)])
    model = SharedKernelClassifier(3, covariance_type=covariance_type, random_state=0, max_iter=900)
    few = model.fit(X[shown], y[shown]).score(X, y)
    every = model.fit(X, y).score(X, y)
    assert model.fit(X, np.where(shown, y, -1)).score(X, y) > max(few + 0.02, every - 0.03)
    assert_array_equal(model.classes_, [0, 1, 2])
    assert_allclose(model.class_prior_, np.bincount(y) / len(y), atol=0.06)
    # A feature may be seen in unlabelled rows alone.
    X[shown, 0] = np.nan
    assert np.isfinite(model.fit(X, np.where(shown, y, -1)).predict_proba(X)).all()


def test_a_stream_marks_rows_without_a_label_as_a_fit_does() -> None:
    X, y = sample()
    hidden = np.where(np.arange(len(y)) % 4 == 0, -1, y)
    mixture = SharedKernelMixture(3, random_state=0).partial_fit(X, hidden)
    assert mixture.classes_.tolist() == [0, 1, 2]
    assert mixture.class_count_.sum() == np.count_nonzero(hidden >= 0)
    mixture.partial_fit(X, np.where(hidden < 0, np.nan, hidden))
    assert mixture.class_count_.sum() == 2 * np.count_nonzero(hidden >= 0)
    with pytest.raises(ValueError, match="-1 marks rows without a label"):
        SharedKernelMixture(3).partial_fit(X, y - 1)
    # Named among the classes of the stream, -1 is one of them.
    stream = SharedKernelClassifier(3, random_state=0).partial_fit(X, y - 1, classes=[-1, 0, 1])
    assert stream.class_count_.sum() == len(y)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_a_row_without_any_value_has_the_prior_and_harms_no_other(covariance_type: str) -> None:
    X, y = sample()
    rows = X[:5].copy()
    rows[2] = np.nan
    rows[3, 1] = np.nan
    others = [0, 1, 3, 4]
    classifier = SharedKernelClassifier(4, covariance_type=covariance_type, random_state=0, tol=1e-2)
    classifier.fit(X, y)
    assert_allclose(classifier.predict_proba(rows)[2], classifier.class_prior_)
    assert abs(classifier.score_samples(rows)[2]) < 1e-15
    assert_array_equal(classifier.predict_proba(rows)[others], classifier.predict_proba(rows[others]))
    assert classifier.predict(rows)[2] == classifier.classes_[np.argmax(classifier.class_prior_)]
    mixture = classifier.models_[0]
    assert_allclose(mixture.predict_proba(rows)[2], mixture.weights_ @ mixture.class_prior_)
    expected = mixture.weights_ @ mixture.class_prior_ @ mixture.means_
    assert_allclose(mixture.impute(rows)[2], expected)
    from_file = classifier.predict_proba(open_rows(rows, chunk_rows=2))
    assert_allclose(from_file, classifier.predict_proba(rows))


def test_rows_of_weight_zero_may_be_empty_in_memory_and_in_blocks() -> None:
    X, y = sample()
    X[7], weights = np.nan, np.ones(len(X))
    weights[7] = 0.0
    here = SharedKernelMixture(3, random_state=0, tol=1e-2).fit(X, y, sample_weight=weights)
    there = SharedKernelMixture(3, random_state=0, tol=1e-2).fit(open_rows(X, label=y, weight=weights))
    assert_allclose(here.means_, there.means_, rtol=1e-9)


def test_weights_of_zero_count_as_if_rows_were_left_out() -> None:
    X, y = sample()
    weights = (y != y.max()).astype(float)
    there = SharedKernelClassifier(1, random_state=0).fit(X[y != y.max()], y[y != y.max()])
    here = SharedKernelClassifier(1, random_state=0).fit(X, y, sample_weight=weights)
    assert_array_equal(here.classes_, there.classes_)
    assert_allclose(here.predict_proba(X), there.predict_proba(X), rtol=1e-12)
    X[y != y.max(), 1] = np.nan
    with pytest.raises(ValueError, match="Feature 1 of X has no value"):
        SharedKernelClassifier(1).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("kind", ["array", "frame", "blocks", "file", "prepared"])
def test_rows_without_values_are_left_out_of_a_fit(kind: str, tmp_path: Path) -> None:
    X, y = sample(60)
    y = np.where(np.arange(60) == 33, y.max() + 1, y)  # the only row of its class
    empty = np.isin(np.arange(60), [7, 33])
    gaps = np.where(empty[:, None], np.nan, X)
    frame = pd.DataFrame(gaps).rename(columns="x{}".format).assign(kind=y)
    frame.to_csv(tmp_path / "t.csv", index=False)
    rows: Any = {
        "array": gaps,
        "frame": frame.drop(columns="kind"),
        "blocks": open_rows(gaps, label=y, chunk_rows=20),
        "file": open_rows(tmp_path / "t.csv", label="kind"),
        "prepared": PreparedRows(gaps),
    }[kind]
    first = {"file": "line 9", "blocks": "row 8"}.get(kind, "row 7, counted from 0")
    message = f"2 of 60 rows of .* have no value and are left out; the first is {first}"
    with pytest.warns(UserWarning, match=message) as told:
        model = SharedKernelClassifier(2, random_state=0).fit(rows, None if kind in ("blocks", "file") else y)
    assert len(told) == 1
    expected = SharedKernelClassifier(2, random_state=0).fit(X[~empty], y[~empty])
    assert_array_equal(model.classes_, expected.classes_)
    assert_array_equal(model.class_count_, expected.class_count_)
    assert_allclose(model.means_, expected.means_, rtol=1e-7)
    # A new row without values gets the shares of the classes.
    assert_allclose(model.predict_proba(PreparedRows(gaps[7:8]))[0], model.class_prior_)


@pytest.mark.parametrize("freeze", ["kernels", "weights"])
def test_what_is_frozen_keeps_every_bit(freeze: str) -> None:
    X, y = sample()
    random = np.random.default_rng(1)
    start = {
        "means": random.normal(size=(2, 3)) / 3.0,
        # Far below the floor of the variances.
        "covariances": np.stack([np.diag([1e-9, 0.7, 0.1]), np.eye(3) / 3.0]),
        "weights": np.array([[0.1, 0.2, 0.7], [0.9, 0.8, 0.3]]),
    }
    model = SharedKernelMixture(init=start, freeze=freeze, max_iter=500, tol=1e-2)
    model.fit(X, y)
    frozen = {"kernels": ["means", "covariances"], "weights": ["weights"]}[freeze]
    for name, given in start.items():
        assert np.array_equal(getattr(model, f"{name}_"), given) == (name in frozen)


def test_without_n_jobs_a_context_of_joblib_has_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = sample()
    model, used = SharedKernelMixture(3, random_state=0).fit(X, y), []
    scoring = densities.scoring.class_log_likelihood
    monkeypatch.setattr(
        densities.scoring, "class_log_likelihood", lambda *args: used.append(args[-1]) or scoring(*args)
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("skmix.model.settings.cpu_count", lambda: 4)
    model.score_samples(X)
    for n_threads in (1, 2):
        with joblib.parallel_config(n_jobs=n_threads):
            model.score_samples(X)
    assert used == [3, 1, 2]


# ---------------------------------------------------------------- rows, by hand


def test_threads_may_be_set_after_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sample()
    classifier = SharedKernelClassifier(3, random_state=0, n_jobs=1).fit(X, y).set_params(n_jobs=2)
    used = []
    scoring = densities.scoring.class_log_likelihood

    def note(rows: Any, parameters: Any, kind: str, n_jobs: int = 1) -> Any:
        used.append(n_jobs)
        return scoring(rows, parameters, kind, n_jobs)

    monkeypatch.setattr(densities.scoring, "class_log_likelihood", note)
    classifier.predict(X)
    classifier.score_samples(X)
    assert set(used) == {2}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_starts_of_many_features_need_bounded_memory() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 60)) + 4.0 * random.integers(0, 2, size=(120, 1))
    for maker in (
        lambda n: SharedKernelMixture(10, n_init=n, random_state=0, max_iter=2, covariance_prior=None),
        lambda n: GaussianMixture(10, n_init=n, random_state=0, max_iter=2),
    ):
        maker(1).fit(X)  # imports what it needs
        peaks = []
        for n_init in (1, 10):
            tracemalloc.start()
            maker(n_init).fit(X)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
        # Ten times the covariances of ten kernels are 3 MB; the rest does not grow with the number of starts.
        assert peaks[1] - peaks[0] < 16.0


def test_a_stream_without_labels_has_one_class_or_rows_without_a_label() -> None:
    X, y = sample(60)
    one = SharedKernelMixture(2, random_state=0).partial_fit(X)
    assert one.partial_fit(X[:20]).class_count_.tolist() == [80.0]
    assert one.class_prior_.tolist() == [1.0]
    several = SharedKernelMixture(3, random_state=0).partial_fit(X, y)
    counts = several.class_count_.copy()
    assert_array_equal(several.partial_fit(X[:20]).class_count_, counts)
    assert several.n_iter_ == 2
    # A row without any value needs no weight, and has none.
    empty = np.where(np.arange(60)[:, None] == 7, np.nan, X)
    with pytest.raises(ValueError, match="Row 7 of X has no value"):
        SharedKernelMixture(2, random_state=0).partial_fit(empty)
    weights = np.where(np.arange(60) == 7, 0.0, 1.0)
    first = SharedKernelMixture(2, random_state=0).partial_fit(empty, sample_weight=weights)
    assert first.class_count_.tolist() == [59.0]


# ---------------------------------------------------------------- edges


def two_classes() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    return random.normal(size=(120, 2)) + 2.0 * y[:, None], y


def test_batches_without_a_value_in_a_set_change_nothing_there() -> None:
    X, y = two_classes()
    plain = SharedKernelClassifier(2, random_state=0).fit(X, y)
    means = plain.means_.copy()
    assert_array_equal(plain.partial_fit(np.full((3, 2), np.nan), [0, 1, 0]).means_, means)
    sets = SharedKernelClassifier(2, feature_sets=[[0], [1]], random_state=0).fit(X, y)
    before = [model.means_.copy() for model in sets.models_]
    Z = X[:20].copy()
    Z[:, 0] = np.nan
    sets.partial_fit(Z, y[:20])
    assert_array_equal(sets.models_[0].means_, before[0])
    assert np.any(sets.models_[1].means_ != before[1])


@pytest.mark.parametrize(
    ("settings", "label", "message"),
    [
        ({"feature_sets": [[1], [0]]}, None, r"feature_sets is now \[\[1\], \[0\]\].*use fit"),
        ({"covariance_type": "diag"}, None, r"covariance_type is now 'diag'.*use fit"),
        ({"covariance_type": "tied"}, 9, r"covariance_type is now 'tied'.*'full': use fit"),
        ({"weight_prior": 0.5}, None, r"weight_prior=0\.5 must be at least 1 for EM"),
        ({"weight_prior": 0.5}, 9, r"weight_prior=0\.5 must be at least 1 for EM"),
        ({}, float("nan"), "label is nan"),
    ],
)
def test_a_batch_or_a_new_class_that_does_not_suit_the_fit_is_refused(
    settings: dict[str, Any], label: Any, message: str
) -> None:
    X, y = two_classes()
    model = (
        SharedKernelClassifier(2, feature_sets=[[0], [1]], random_state=0).fit(X, y).set_params(**settings)
    )
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y) if label is None else model.add_class(X[:20], label)
    assert model.classes_.tolist() == [0, 1]


def test_t_kernels_stay_those_of_the_fit_if_settings_change() -> None:
    X, y = two_classes()
    model = SharedKernelMixture(2, tail="t", degrees=4.0, tol=1e-2, random_state=0).fit(X, y)
    before = model.bic(X, y)
    assert model.set_params(tail=None, degrees=5.0).bic(X, y) == before
    model.degrees = None
    with pytest.raises(ValueError, match="fitted: fit again"):
        model.partial_fit(X, y)


def test_rows_of_any_layout_are_scored_alike_and_bad_ones_refused() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 3)), np.arange(60) % 2
    model = SharedKernelClassifier(2, random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    for same in (X.astype(">f8"), np.asfortranarray(X), X.tolist(), np.ma.masked_array(X)):
        assert_array_equal(model.predict_proba(same), expected)
    # The sum of these rows overflows, but they are finite.
    assert np.isfinite(model.predict_proba(np.full((9, 3), 1e308))).all()
    for bad in (np.full((2, 3), np.inf), np.array([[0.0, -np.inf, 0.0]]), X[:, :2], X[:0], X[0], X * 1j):
        with pytest.raises(ValueError, match=r"infinity|features|0 sample|2D array|Complex"):
            model.predict_proba(bad)


def test_a_stream_goes_on_with_the_settings_of_its_classifier() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 2)), np.arange(200) % 2
    sets = [[0], [1]]
    model = SharedKernelClassifier(2, feature_sets=sets, covariance_prior=3.0, random_state=0)
    model.partial_fit(X, y, classes=[0, 1]).set_params(covariance_prior=(7.0, np.diag([2.0, 5.0])))
    model.partial_fit(X, y)
    for part, variance in zip(model.models_, (2.0, 5.0), strict=True):
        assert part.covariance_prior[0] == 7.0
        assert_array_equal(part.covariance_prior[1], [[variance]])


def test_tuning_has_a_floor_after_a_fit_that_kept_its_kernels() -> None:
    X, y = two_classes()
    start = {"means": X[[5, 100]], "covariances": np.tile(np.eye(2), (2, 1, 1))}
    kept = SharedKernelClassifier(2, init=start, freeze="kernels", variance_floor=0.5).fit(X, y)
    kept.tune(X, y, trade_off=0.0, validation=None, max_iter=30)
    # The floor is P ⪰ diag(floor): in units of the features' deviations, no eigenvalue is below a half.
    units = np.outer(X.std(axis=0), X.std(axis=0))
    assert np.linalg.eigvalsh(kept.models_[0].covariances_ / units).min() > 0.5 - 1e-6


def test_single_precision_with_gaps_does_not_overflow_in_starts() -> None:
    """The sum of a column is larger than float32 can be."""
    X = np.tile(np.array([[3e37, 1.0], [2e37, 2.0], [np.nan, 3.0]], dtype=np.float32), (20, 1))
    X[:, 1] += np.arange(60) % 7
    model = SharedKernelMixture(2, random_state=0).fit(X)
    assert np.isfinite(model.means_).all()
    assert 2e37 < model.means_[:, 0].min() <= model.means_[:, 0].max() < 3e37


def test_a_prior_on_weights_may_begin_at_weights_of_zero() -> None:
    """Each class has kernels of its own: the others' weights are zero, whose logarithm is not finite."""
    X, y = two_classes()
    classifier = SharedKernelClassifier(weight_prior=1.5, random_state=0).fit(X, y)
    assert classifier.weights_.min() > 0.0


@pytest.mark.parametrize("search", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_searches_refuse_features_that_cannot_be_squared(search: Any) -> None:
    X, y = two_classes()
    with pytest.raises(ValueError, match=r"Feature 1 has .* Rescale that feature"):
        search().fit(X * [1.0, 1e200], y)


def test_fits_to_tiny_numbers_are_refused_or_can_be_saved(tmp_path: Path) -> None:
    """Kernels may be a millionth as wide as the rows: their variances must still be numbers."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    for unit in (1e-150, 1e-146):
        with pytest.raises(ValueError, match="whose square is out of range"):
            SharedKernelMixture(2).fit(X * unit)
    for rows in (X * 1e-143, np.full((8, 1), 9e-312)):
        model = SharedKernelMixture(2, covariance_prior=None, random_state=0).fit(rows)
        model.save(tmp_path / "model.skmix")
        assert_array_equal(load(tmp_path / "model.skmix").covariances_, model.covariances_)


def test_a_start_from_many_rows_counts_their_weights_once() -> None:
    """Rows are drawn by their weights for k-means; one pass later, the start can still be seen."""
    random = np.random.default_rng(0)
    right = random.uniform(size=40_000) < 0.5
    X = (np.where(right, 1.0, -1.0) + 0.8 * random.normal(size=40_000))[:, None]
    weights = np.where(right, 9.0, 1.0)
    drawn = X[random.choice(40_000, 40_000, p=weights / weights.sum())]

    def share_of_lower(X: np.ndarray, weights: np.ndarray | None) -> float:
        shares = []
        for seed in range(3):
            model = SharedKernelMixture(
                2, init="k-means", max_iter=1, tol=0.0, covariance_prior=None, random_state=seed
            )
            with pytest.warns(ConvergenceWarning):
                model.fit(X, sample_weight=weights)
            shares.append(model.weights_[model.means_[:, 0].argmin(), 0])
        return float(np.mean(shares))

    # 0.37 for both; 0.53 if weights count twice.
    assert share_of_lower(X, weights) == pytest.approx(share_of_lower(drawn, None), abs=0.06)


def test_a_method_that_is_not_there_says_why() -> None:
    X, y = two_classes()
    for kind in (SharedKernelMixture, SharedKernelClassifier):
        with pytest.raises(AttributeError) as caught:
            _ = kind(3, tail="t", tol=1e-2, random_state=0).fit(X, y).partial_fit
        assert "partial_fit cannot be combined with t kernels" in f"{caught.value} {caught.value.__cause__}"
