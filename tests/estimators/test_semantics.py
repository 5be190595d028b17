"""What holds for every kind of rows and labels: unlabelled and empty rows, frozen parts, threads."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, open_rows
from skmix.engine.model import Status
from skmix.estimators import densities, streams


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


def test_a_first_batch_that_cannot_be_fitted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sample()
    fit = streams.fit

    def failed(*given: Any, **more: Any) -> Any:
        result = fit(*given, **more)
        result.status[:] = Status.FAILED
        return result

    monkeypatch.setattr(streams, "fit", failed)
    model = SharedKernelMixture(3, random_state=0)
    with pytest.raises(ValueError, match="All 1 starts ended in a singular covariance"):
        model.partial_fit(X, y)
    assert not hasattr(model, "means_")


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
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


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("freeze", ["kernels", "weights"])
def test_what_is_frozen_keeps_every_bit(freeze: str, accelerate: bool) -> None:
    X, y = sample()
    random = np.random.default_rng(1)
    start = {
        "means": random.normal(size=(2, 3)) / 3.0,
        # Far below the floor of the variances.
        "covariances": np.stack([np.diag([1e-9, 0.7, 0.1]), np.eye(3) / 3.0]),
        "weights": np.array([[0.1, 0.2, 0.7], [0.9, 0.8, 0.3]]),
    }
    model = SharedKernelMixture(
        init={**start, "freeze": freeze}, accelerate=accelerate, max_iter=500, tol=1e-2
    )
    model.fit(X, y)
    frozen = {"kernels": ["means", "covariances"], "weights": ["weights"]}[freeze]
    for name, given in start.items():
        assert np.array_equal(getattr(model, f"{name}_"), given) == (name in frozen)


def test_threads_may_be_set_after_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sample()
    classifier = SharedKernelClassifier(3, random_state=0, n_jobs=1).fit(X, y).set_params(n_jobs=2)
    used = []
    scoring = densities.density.class_log_likelihood

    def note(rows: Any, parameters: Any, kind: str, n_jobs: int = 1) -> Any:
        used.append(n_jobs)
        return scoring(rows, parameters, kind, n_jobs)

    monkeypatch.setattr(densities.density, "class_log_likelihood", note)
    classifier.predict(X)
    classifier.bic(X, y)
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
        maker(1).fit(X)  # compiles
        peaks = []
        for n_init in (1, 10):
            tracemalloc.start()
            maker(n_init).fit(X)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
        # Ten times the covariances of ten kernels are 3 MB; the rest does not grow with the number of starts.
        assert peaks[1] - peaks[0] < 16.0


# ---------------------------------------------------------------- rows, by hand


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
