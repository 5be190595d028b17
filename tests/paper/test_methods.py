"""A run is the same alone, in a batch and in any order, and does what its method says."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.exceptions import ConvergenceWarning
from synthetic import same_runs

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.estimators import fit_each
from skmix.paper import Settings, methods, run_one
from skmix.paper.harness import generator
from skmix.paper.methods import fit_batch, predict, predict_published, run_batch, scores_of
from skmix.paper.records import StudyData, features_of
from skmix.paper.study import fitted_mixtures
from skmix.paper.variants import FEATURES, METHODS, Method, variant_of
from skmix.theory import Parameters


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["2Dx3D", "10D"])
def test_a_run_alone_has_the_bits_it_has_in_company(
    data: StudyData, settings: Settings, name: str, method: Method
) -> None:
    together = run_batch(data, name, 10, method, range(7), settings)
    for shuffled in run_batch(data, name, 10, method, [6, 2], settings):
        alone = run_one(data, name, 10, method, shuffled.run, settings)
        assert same_runs(alone, together[shuffled.run])
        assert same_runs(alone, shuffled)
    assert len({run.log_likelihood for run in together if not run.reason}) > 1


@pytest.mark.parametrize(
    ("method", "rule"),
    [("robust", {"init": "uniform", "tol": ("per-class", 0.1)}), ("class-wise", {"init": "class"})],
)
def test_our_methods_are_mixtures(
    data: StudyData, settings: Settings, method: Method, rule: dict[str, Any]
) -> None:
    """A run is what a `SharedKernelClassifier` of the product form finds, and predicts what it predicts."""
    variant = variant_of("2Dx3D")
    (fitted,) = fit_batch(data, variant, 10, method, [3], settings)
    used = [3, 4, 11, 12, 13]
    model = SharedKernelClassifier(
        10,
        feature_sets=[[0, 1], [2, 3, 4]],
        covariance_prior=None,
        max_iter=settings.max_iter,
        random_state=generator(settings.seed, "run", "2Dx3D", 10, method, 3),
        **rule,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.train_dithered[:, used], data.train_labels)
    for found, own in zip(fitted.mixtures, model.models_, strict=True):
        np.testing.assert_allclose(found.means, own.means_, atol=1e-10)
        np.testing.assert_allclose(found.covariances, own.covariances_, atol=1e-10)
        np.testing.assert_allclose(found.weights, own.weights_, atol=1e-10)
    assert fitted.n_iter == max(own.n_iter_ for own in model.models_)
    assert fitted.converged == all(own.converged_ for own in model.models_)
    assert fitted.log_likelihood == pytest.approx(sum(own.log_likelihood_ for own in model.models_))
    expected = model.predict(data.test_dithered[:, used])
    rows = [np.ascontiguousarray(data.test_dithered[:, columns].T) for columns in variant.columns]
    for decide in (predict, predict_published):
        np.testing.assert_array_equal(decide(rows, fitted.mixtures), expected)


def test_other_mixtures_are_not_fitted_as_a_batch() -> None:
    for setting in ({"covariance_type": "diag"}, {"tail": "t"}, {"covariance_prior": 1.0}):
        model = SharedKernelMixture(**{"covariance_type": "full", "covariance_prior": None} | setting)
        (name,) = setting
        with pytest.raises(ValueError, match=f"fit_each needs {name}="):
            fit_each(model, np.ones((9, 1)), np.zeros(9), [0])


def test_a_start_that_fails_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, data: StudyData, settings: Settings
) -> None:
    def ended(model: Any, X: Any, y: Any, random_states: list[Any]) -> list[Any]:
        return [
            SimpleNamespace(
                weights_=0, means_=0, covariances_=0, n_iter_=n_iter, converged_=status == "converged",
                log_likelihood_=1.0, start_status_=[status],
            )
            for n_iter, status in zip((4, 9, 40), ("converged", "failed", "stopped"), strict=True)
        ]  # fmt: skip

    monkeypatch.setattr(methods, "fit_each", ended)
    fits = fit_batch(data, variant_of("3D"), 10, "robust", range(3), settings)
    assert [(fit.n_iter, fit.converged, fit.failing_pass, fit.reason) for fit in fits] == [
        (4, True, None, ""),
        (9, False, 9, "overflow"),
        (40, False, None, ""),
    ]


def test_methods_end_differently(data: StudyData, settings: Settings) -> None:
    """The class-wise start is near its end at once; the published method alone fails."""
    runs = {method: run_batch(data, "6D", 10, method, range(15), settings) for method in METHODS}
    assert any(run.reason for run in runs["published"])
    assert all(run.failing_pass == run.n_iter for run in runs["published"] if run.reason)
    assert not any(run.reason for method in ("robust", "class-wise") for run in runs[method])
    means = {method: np.mean([run.accuracy for run in own]) for method, own in runs.items()}
    assert means["class-wise"] > means["robust"] > means["published"]
    for run in (run for own in runs.values() for run in own):
        assert run.confusion.sum(axis=1).tolist() == [10] * 10
        assert run.accuracy == pytest.approx(np.trace(run.confusion) / 100)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.RandomState(seed)
    # The second seed never predicts most of the classes.
    truth, predicted = random.randint(10, size=200), random.randint([10, 3, 10][seed], size=200)
    found = scores_of(truth, predicted)
    np.testing.assert_array_equal(found["confusion"], metrics.confusion_matrix(truth, predicted))
    assert found["accuracy"] == metrics.accuracy_score(truth, predicted)
    expected = metrics.jaccard_score(truth, predicted, average="macro")
    assert found["mean_iou"] == pytest.approx(expected, abs=1e-15)


def test_dither_follows_the_settings(data: StudyData, settings: Settings) -> None:
    paper = Settings(seed=settings.seed, dither="paper")
    masses = [column for column, name in enumerate(FEATURES) if name.startswith("q")]
    axis = [column for column, name in enumerate(FEATURES) if name.startswith("pca")]
    for mine, raw, noisy in zip(
        features_of(data, variant_of("13D"), paper),
        (data.train_features, data.test_features),
        (data.train_dithered, data.test_dithered),
        strict=True,
    ):
        np.testing.assert_array_equal(mine[:, masses], raw[:, masses])
        np.testing.assert_array_equal(mine[:, axis], noisy[:, axis])
        assert (raw != noisy).any()
    assert features_of(data, variant_of("3D"), paper)[0] is data.train_features
    assert features_of(data, variant_of("3D"), Settings(dither="all"))[1] is data.test_dithered


def test_a_run_is_fitted_again_with_the_names_of_its_features(data: StudyData, settings: Settings) -> None:
    run = run_one(data, "2Dx3D", 10, "class-wise", 4, settings)
    first, second = fitted_mixtures(run, data, settings)
    assert first.feature_names_in_.tolist() == ["pca 4", "pca 5"]
    assert second.feature_names_in_.tolist() == ["q2", "q3", "q4"]
    (fitted,) = fit_batch(data, variant_of("2Dx3D"), 10, "class-wise", [4], settings)
    for found, expected in zip((first, second), fitted.mixtures, strict=True):
        np.testing.assert_array_equal(found.weights_, expected.weights)
        np.testing.assert_array_equal(found.covariances_, expected.covariances)


def test_a_class_beyond_underflow_can_still_win() -> None:
    """The first feature set makes class 1 hopeless at first sight, the second makes class 0 more so."""
    narrow = np.array([[[1e-4]], [[1e-4]]])
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    first = Parameters(weights, np.array([[0.0], [0.5]]), narrow)
    second = Parameters(weights, np.array([[0.9], [0.0]]), narrow)
    rows = [np.zeros((1, 1)), np.zeros((1, 1))]
    # log-likelihoods but for constants: class 0: 0 − 0.81/2e-4, class 1: −0.25/2e-4 + 0.
    assert predict(rows, [first, second]).tolist() == [1]
    assert predict(rows, [first, first]).tolist() == [0]


def test_nan_is_passed_over_and_nothing_but_nan_is_the_first_class() -> None:
    weights = np.array([[0.2, 0.8], [0.5, 0.5]])
    rows = [np.array([[0.0, 3.0]])]
    good = Parameters(weights, np.array([[0.0], [3.0]]), np.ones((2, 1, 1)))
    assert predict_published(rows, [good])[0] == 1
    singular = Parameters(weights, np.array([[0.0], [3.0]]), np.array([[[1.0]], [[0.0]]]))
    assert predict_published(rows, [singular]).tolist() == [0, 0]
    # A class without numbers loses to one that has them.
    lost = Parameters(np.array([[np.nan, 0.8], [np.nan, 0.2]]), good.means, good.covariances)
    assert predict_published(rows, [lost]).tolist() == [1, 1]


def test_the_root_of_a_negative_determinant_is_imaginary() -> None:
    """At x = 0 the kernels' densities are 1 and 1/i times the same number: |0.5 − 0.5i| < |0.79 − 0.2i|."""
    model = Parameters(np.array([[0.5, 0.79], [0.5, 0.2]]), np.zeros((2, 1)), np.array([[[1.0]], [[-1.0]]]))
    assert predict_published([np.zeros((1, 1))], [model]).tolist() == [1]
