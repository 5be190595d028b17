"""Models made of given parameters, beside fits and SciPy's densities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from skmix import SharedKernelClassifier, SharedKernelMixture, load

MEANS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
COVARIANCES = np.array([[[1.0, 0.3], [0.3, 1.0]], [[0.5, 0.0], [0.0, 2.0]], [[1.0, -0.5], [-0.5, 0.8]]])
WEIGHTS = np.array([[0.2, 0.6], [0.3, 0.3], [0.5, 0.1]])
ROWS = np.random.default_rng(0).normal(scale=3.0, size=(50, 2))
KINDS: dict[str, Any] = {
    "full": COVARIANCES,
    "tied": COVARIANCES[0],
    "diag": np.einsum("kdd->kd", COVARIANCES),
    "spherical": np.array([1.0, 0.5, 2.0]),
}


def full(kind: str) -> np.ndarray:
    if kind == "full":
        return COVARIANCES
    if kind == "tied":
        return np.stack([COVARIANCES[0]] * 3)
    return np.stack([np.diag(np.broadcast_to(values, 2)) for values in KINDS[kind]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degrees", [None, 4.0, [3.0, 5.0, 30.0]])
def test_densities_are_those_of_the_parameters(kind: str, degrees: Any, tmp_path: Path) -> None:
    prior = [0.25, 0.75]
    settings = {"classes": ["b", "a"], "class_prior": prior, "degrees": degrees}
    kernels = [
        multivariate_normal(mean, covariance).pdf(ROWS)
        if degrees is None
        else multivariate_t(mean, covariance, df=np.broadcast_to(degrees, 3)[k]).pdf(ROWS)
        for k, (mean, covariance) in enumerate(zip(MEANS, full(kind), strict=True))
    ]
    joint = np.stack(kernels, axis=1) @ WEIGHTS * prior
    mixture = SharedKernelMixture.from_parameters(WEIGHTS, MEANS, KINDS[kind], **settings)
    assert_allclose(mixture.score_samples(ROWS), np.log(joint.sum(axis=1)), rtol=1e-9)
    assert_allclose(mixture.score_samples(ROWS, ["a"] * 50), np.log(joint[:, 1] / 0.75), rtol=1e-9)
    assert_array_equal(mixture.classes_, ["a", "b"])
    classifier = SharedKernelClassifier.from_parameters(WEIGHTS, MEANS, KINDS[kind], **settings)
    expected = (joint / joint.sum(axis=1, keepdims=True))[:, ::-1]  # classes are sorted
    assert_allclose(classifier.predict_proba(ROWS), expected, rtol=1e-9)
    for model in (mixture, classifier):
        model.save(tmp_path / "model.skmix")
        again = load(tmp_path / "model.skmix")
        assert_array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))


def test_what_needs_no_training_rows_works() -> None:
    model = SharedKernelMixture.from_parameters(
        WEIGHTS[:, 0], MEANS, COVARIANCES, feature_names=["x", "y"], random_state=0
    )
    drawn, _ = model.sample(20_000)
    drawn = pd.DataFrame(drawn, columns=["x", "y"])
    # Four standard errors of a mean, and of a share.
    assert_allclose(drawn.mean(axis=0), WEIGHTS[:, 0] @ MEANS, atol=4 * 2.5 / np.sqrt(20_000))
    assert_allclose(model.predict_proba(drawn).mean(axis=0), WEIGHTS[:, 0], atol=4 * 0.5 / np.sqrt(20_000))
    rest = model.condition({"x": 4.0})
    assert model.marginal(["x"]).score_samples(drawn[["x"]]).shape == (20_000,)
    assert rest.means_.shape == (3, 1)
    filled = model.impute(pd.DataFrame({"x": [4.0], "y": [np.nan]}))
    assert_allclose(np.asarray(filled), [[4.0, float(rest.weights_[:, 0] @ rest.means_[:, 0])]])
    assert np.isfinite([model.bic(drawn), model.aic(drawn), model.score(drawn)]).all()
    # A fit goes on from it.
    assert SharedKernelMixture(init=model, tol=1e-3).fit(drawn).n_iter_ >= 1
    graph = pytest.importorskip("onnx") and model.to_onnx()
    assert graph is not None


def test_mixtures_of_scikit_learn_are_taken_in() -> None:
    X = np.concatenate([ROWS, ROWS + 10.0])
    for kind in KINDS:
        theirs = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
        ours = SharedKernelMixture.from_parameters(theirs)
        assert ours.covariance_type_ == kind
        assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-9)
        assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    named = SharedKernelMixture.from_parameters(theirs, feature_names=["x", "y"])
    assert named.feature_names_in_.tolist() == ["x", "y"]
    # Other models have more than weights, means and covariances.
    for other in (ours, BayesianGaussianMixture(n_components=2).fit(X)):
        with pytest.raises(TypeError, match=f"got a {type(other).__name__}"):
            SharedKernelMixture.from_parameters(other)


def test_a_stream_goes_on_from_as_many_rows_as_are_said() -> None:
    X, y = ROWS + 1.0, np.arange(50) % 2
    model = SharedKernelClassifier.from_parameters(WEIGHTS, MEANS, COVARIANCES)
    for method, arguments in (("partial_fit", (X, y)), ("add_class", (X, 2))):
        with pytest.raises(ValueError, match="give from_parameters a class_count"):
            getattr(model, method)(*arguments)
    moved = []
    for count in (50.0, 5e6):
        model = SharedKernelClassifier.from_parameters(
            WEIGHTS, MEANS, COVARIANCES, class_count=[count, count]
        ).partial_fit(X, y)
        moved.append(np.abs(model.means_ - MEANS).max())
    # A stream forgets old rows slowly: these count as many batches.
    assert moved[1] < 0.02 * moved[0]
    assert model.add_class(X, 2).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((WEIGHTS, MEANS, COVARIANCES[:2]), "are of no structure"),
        ((np.full(2, 0.5), MEANS[:2], np.eye(2)), "may be tied or diag: name the covariance_type"),
        ((WEIGHTS, MEANS, -COVARIANCES), "not positive definite"),
        ((2.0 * WEIGHTS, MEANS, COVARIANCES), "must sum to one, got a sum of 2"),
        ((WEIGHTS, MEANS[0], COVARIANCES), r"shape \(K, M\), got the shape \(2,\)"),
        ((GaussianMixture(),), "not fitted"),
    ],
)
def test_impossible_parameters_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SharedKernelMixture.from_parameters(*arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": ["a"]}, "weights are of 2 classes"),
        ({"classes": ["a", "a"]}, "different labels"),
        ({"classes": [np.nan, 1.0]}, "known labels of one kind"),
        ({"classes": [1, "a"]}, "known labels of one kind"),
        ({"class_prior": [0.5, 0.6]}, "class_prior must sum to one"),
        ({"class_count": [-1, 2]}, "numbers of rows"),
        ({"degrees": 0.5}, "at least 1"),
        ({"covariance_type": "low_rank"}, "must be one of full, tied, diag, spherical"),
        ({"feature_names": ["x", "x"]}, "2 different names"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    for kind in (SharedKernelMixture, SharedKernelClassifier):
        with pytest.raises(ValueError, match=message):
            kind.from_parameters(WEIGHTS, MEANS, COVARIANCES, **settings)
    with pytest.raises(ValueError, match="at least two classes"):
        SharedKernelClassifier.from_parameters(WEIGHTS[:, 0], MEANS, COVARIANCES)
