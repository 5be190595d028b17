"""``kernel='t'`` and ``background=True`` from fit to file: every kind of rows, derived models, errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import cauchy, kstest, multivariate_t
from scipy.stats import t as student

from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV, load
from skmix.groups import composition, match

CENTRES = np.array([[0.0, 0.0, 1.0], [6.0, 5.0, 0.0], [-5.0, 6.0, 2.0]])
ROOTS = np.array([[[1.0, 0, 0], [0.5, 1, 0], [0, 0.3, 1.0]], np.diag([2.0, 1.0, 0.5]), np.eye(3)])
DEGREES = np.array([3.0, 6.0, 25.0])
WEIGHTS = np.array([[0.6, 0.2], [0.3, 0.3], [0.1, 0.5]])
TYPES = ["full", "tied", "diag", "spherical", "low_rank"]
SETTINGS: list[dict[str, Any]] = [
    {"kernel": "t"},
    {"kernel": ("t", 4.0)},
    {"background": True},
    {"kernel": "t", "background": True},
]
each_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)
each_type = pytest.mark.parametrize("covariance_type", TYPES)


def rows(n_rows: int = 600, *, noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two classes over three t kernels, some of them anywhere between −30 and 30."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, size=n_rows)
    kernels = (random.uniform(size=n_rows)[:, None] > np.cumsum(WEIGHTS, axis=0).T[y]).sum(axis=1)
    X = np.einsum("nij,nj->ni", ROOTS[kernels], random.normal(size=(n_rows, 3)))
    X = CENTRES[kernels] + X / np.sqrt(random.chisquare(DEGREES[kernels]) / DEGREES[kernels])[:, None]
    far = random.uniform(size=n_rows) < noise
    X[far] = random.uniform(-30.0, 30.0, size=(far.sum(), 3))
    return X, y


X, Y = rows(noise=0.05)
NEW = rows(50, noise=0.1, seed=1)[0]


def fitted(covariance_type: str = "full", **settings: Any) -> SharedKernelMixture:
    chosen = {"init": "k-means", "max_iter": 30, "tol": 1e-3, "random_state": 0, **settings}
    return SharedKernelMixture(3, covariance_type=covariance_type, **chosen).fit(X, Y)


def with_gaps(X: np.ndarray) -> np.ndarray:
    gaps = np.random.default_rng(2).uniform(size=X.shape) < 0.3
    gaps[gaps.all(axis=1), 0] = False
    return np.where(gaps, np.nan, X)


def test_parameters_are_found_again() -> None:
    many, classes = rows(20_000)
    model = SharedKernelMixture(
        3, kernel="t", background=True, init="k-means", tol=1e-6, max_iter=500, random_state=0
    ).fit(many, classes)
    order = np.argmin(((model.means_[:, None] - CENTRES) ** 2).sum(axis=2), axis=0)
    assert_allclose(model.kernel_degrees_[order][:2], DEGREES[:2], rtol=0.25)
    assert model.kernel_degrees_[order][2] > 12.0
    assert_allclose(model.means_[order], CENTRES, atol=0.1)
    assert_allclose(model.covariances_[order], ROOTS @ ROOTS.swapaxes(1, 2), atol=0.15)
    assert_allclose(model.weights_[order], WEIGHTS, atol=0.02)
    assert np.all(model.background_weights_ < 0.01)


def test_the_background_is_as_large_as_the_noise() -> None:
    noisy, classes = rows(5000, noise=0.1)
    model = SharedKernelMixture(3, kernel="t", background=True, init="k-means", random_state=0)
    model.fit(noisy, classes)
    assert_allclose(model.background_weights_, 0.1, atol=0.02)
    assert_array_equal(model.background_box_, [noisy.min(axis=0), noisy.max(axis=0)])


@each_setting
@each_type
def test_the_likelihood_never_falls_and_is_that_of_the_model(
    covariance_type: str, settings: dict[str, Any]
) -> None:
    model = fitted(covariance_type, **settings, covariance_prior=None)
    path = model.log_likelihood_path_.sum(axis=1)
    assert np.all(np.diff(path) > -1e-8 * np.abs(path[0]))
    assert_allclose(model.class_log_likelihood(X)[np.arange(len(X)), Y].sum(), model.log_likelihood_)
    if "kernel" not in settings:
        return
    # The densities are SciPy's.
    full = model.covariances_
    if covariance_type == "full":
        kernels = zip(model.means_, full, model.kernel_degrees_, strict=True)
        expected = [multivariate_t(mean, shape, df=df).logpdf(NEW) for mean, shape, df in kernels]
        assert_allclose(model.kernel_log_densities(NEW), np.transpose(expected), rtol=1e-10)


@each_setting
def test_fits_to_files_are_those_to_arrays(settings: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    expected = fitted(**settings)
    found = SharedKernelMixture(**expected.get_params()).fit(tmp_path / "X.npy", tmp_path / "y.npy")
    for name in ("means_", "covariances_", "weights_", "kernel_degrees_", "background_weights_"):
        if hasattr(expected, name):
            assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8)
    assert_allclose(found.class_log_likelihood(tmp_path / "X.npy"), expected.class_log_likelihood(X))


@each_setting
def test_a_gap_changes_little(settings: dict[str, Any]) -> None:
    gaps = with_gaps(X)
    model = SharedKernelMixture(3, init={"means": CENTRES + 0.5}, tol=1e-3, **settings).fit(gaps, Y)
    path = model.log_likelihood_path_.sum(axis=1)
    assert np.all(np.diff(path) > -1e-8 * np.abs(path[0]))
    assert_allclose(model.class_log_likelihood(gaps)[np.arange(len(X)), Y].sum(), model.log_likelihood_)
    order = np.argmin(((model.means_[:, None] - CENTRES) ** 2).sum(axis=2), axis=0)
    assert_allclose(model.means_[order], CENTRES, atol=0.8)


@each_setting
@each_type
def test_a_joint_density_is_a_marginal_times_a_conditional(
    covariance_type: str, settings: dict[str, Any]
) -> None:
    model = fitted(covariance_type, **settings)
    for row in NEW[:6]:
        given, rest = {2: row[2], 0: row[0]}, row[None, 1:2]
        whole = model.score_samples(row[None])
        known = model.marginal([2, 0]).score_samples(row[None, [2, 0]])
        conditional = model.condition(given)
        assert_allclose(conditional.score_samples(rest) + known, whole, rtol=1e-9)
        assert_allclose(conditional.class_prior_.sum(), 1.0)
        masked = np.array([[row[0], np.nan, row[2]]])
        assert_allclose(model.score_samples(masked), known, rtol=1e-9)


@each_setting
def test_conditionals_of_a_classifier_can_be_saved(settings: dict[str, Any], tmp_path: Path) -> None:
    model = SharedKernelClassifier(3, covariance_type="tied", random_state=0, tol=1.0, **settings)
    conditional = model.fit(X, Y).condition({1: 0.5})
    conditional.save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix")
    assert_array_equal(again.predict_proba(NEW[:, [0, 2]]), conditional.predict_proba(NEW[:, [0, 2]]))
    joint = np.insert(NEW[:, [0, 2]], 1, 0.5, axis=1)
    assert_allclose(conditional.predict_proba(NEW[:, [0, 2]]), model.predict_proba(joint), atol=1e-10)


def test_samples_have_the_distribution_of_the_model() -> None:
    model = fitted(kernel="t", background=True)
    model.weights_ = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    model.background_weights_ = np.array([0.0, 1.0])
    drawn, _ = model.sample(4000, label=0)
    scale = np.sqrt(model.covariances_[0, 1, 1])
    law = student(model.kernel_degrees_[0], model.means_[0, 1], scale)
    assert kstest(drawn[:, 1], law.cdf).pvalue > 0.01
    low, high = model.background_box_
    drawn, _ = model.sample(4000, label=1)
    assert kstest((drawn[:, 2] - low[2]) / (high - low)[2], "uniform").pvalue > 0.01


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_missing_values_are_drawn_from_the_conditional(share: float) -> None:
    model = fitted(kernel="t", background=True)
    model.background_weights_ = np.full(2, share)
    model.weights_ = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    # Far from the mean the conditional is wide.
    row = np.array([[model.means_[0, 0] + 8.0, np.nan, model.means_[0, 2] - 5.0]])
    conditional = model.condition({0: row[0, 0], 2: row[0, 2]})
    drawn = model.sample_conditional(row, 4000)[:, 0, 1]
    if share:
        law = {"loc": conditional.background_box_[0, 0], "scale": np.ptp(conditional.background_box_)}
        assert kstest(drawn, "uniform", args=tuple(law.values())).pvalue > 0.01
        centre = conditional.background_box_.mean()
    else:
        scale = np.sqrt(conditional.covariances_[0, 0, 0])
        law = student(conditional.kernel_degrees_[0], conditional.means_[0, 0], scale)
        assert kstest(drawn, law.cdf).pvalue > 0.01
        assert conditional.kernel_degrees_[0] == model.kernel_degrees_[0] + 2
        centre = conditional.means_[0, 0]
    assert_allclose(model.impute(row)[0, 1], centre)


@each_setting
def test_responsibilities_leave_the_background_its_part(settings: dict[str, Any]) -> None:
    model = fitted(**settings)
    for codes in (None, np.arange(len(NEW)) % 2):
        shares = model.responsibilities(NEW, codes)
        joint = model.kernel_log_densities(NEW)[:, :, None] + np.log(model.weights_)
        background = np.zeros((len(NEW), 2))
        if hasattr(model, "background_weights_"):
            box, weights = model.background_box_, model.background_weights_
            background = np.tile(weights / np.prod(box[1] - box[0]), (len(NEW), 1))
            joint = joint + np.log1p(-weights)
        own = np.exp(logsumexp(joint, axis=1))
        prior = model.class_prior_ if codes is None else np.eye(2)[codes]
        part = (prior * background).sum(axis=1) / (prior * (own + background)).sum(axis=1)
        assert_allclose(shares.sum(axis=1), 1.0 - part, atol=1e-12)
    assert_allclose(model.predict_proba(NEW), np.exp(model.log_responsibilities(NEW)))


@each_setting
def test_onnx(settings: dict[str, Any]) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    mixture = fitted(**settings)
    classifier = SharedKernelClassifier(3, feature_groups=[[2, 0], [1]], random_state=0, tol=1.0, **settings)
    classifier.fit(X, Y)
    new = np.vstack([NEW, [[1e3, -1e3, 0.0]]])  # far outside of the box
    for model, name, expected in (
        (mixture, "responsibilities", mixture.responsibilities(new)),
        (classifier, "probabilities", classifier.predict_proba(new)),
    ):
        graph = model.to_onnx().SerializeToString()
        session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        found, log_density = session.run([name, "log_density"], {"X": new})
        assert_allclose(found, expected, atol=1e-10)
        assert_allclose(log_density, model.score_samples(new), rtol=1e-10)


@each_setting
def test_saved_models_are_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(**settings)
    model.save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix")
    assert again.get_params() == model.get_params()
    for name in ("kernel_degrees_", "background_weights_", "background_box_"):
        assert hasattr(again, name) == hasattr(model, name)
        assert_array_equal(getattr(again, name, 0), getattr(model, name, 0))
    assert_array_equal(again.score_samples(NEW), model.score_samples(NEW))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: vars(model).pop("kernel_degrees_"), "kernel_degrees_ is missing"),
        (lambda model: setattr(model, "kernel_degrees_", np.zeros(3)), "kernel_degrees_ has 0.0"),
        (lambda model: model.set_params(kernel=("t", 3.0)), "kernel_degrees_ has"),
        (
            lambda model: model.set_params(kernel=("t", float(model.kernel_degrees_[0]))),
            "kernel_degrees_ has",
        ),
        (lambda model: model.set_params(background=False), "background_weights_ was fitted"),
        (lambda model: setattr(model, "background_weights_", np.array([0.5, 2.0])), "between 0 and 1"),
        (lambda model: setattr(model, "background_weights_", np.array([0.5])), "has shape"),
        (lambda model: setattr(model, "background_box_", model.background_box_[::-1].copy()), "no volume"),
        (lambda model: np.put(model.background_box_, -1, model.background_box_[0, -1]), "no volume"),
    ],
)
def test_what_does_not_belong_together_is_not_saved(change: Any, message: str, tmp_path: Path) -> None:
    model = fitted(kernel="t", background=True)
    change(model)
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model.skmix")


@each_setting
def test_a_warm_start_goes_on_and_other_kernels_begin_anew(settings: dict[str, Any]) -> None:
    model = fitted(**settings, warm_start=True, tol=1e-5, max_iter=200)
    before = model.log_likelihood_
    assert model.fit(X, Y).log_likelihood_ >= before - 1e-6
    assert model.n_iter_ < 5
    model.set_params(kernel="gaussian", background=False).fit(X, Y)
    assert not hasattr(model, "kernel_degrees_")
    assert not hasattr(model, "background_weights_")


def test_frozen_kernels_keep_their_degrees() -> None:
    model = fitted(kernel="t", background=True)
    start = {
        "means": model.means_,
        "covariances": model.covariances_,
        "weights": model.weights_,
        "degrees": np.array([2.0, 3.0, 4.0]),
    }
    kept = fitted(kernel="t", background=True, init=start, freeze="kernels")
    assert_array_equal(kept.kernel_degrees_, start["degrees"])
    assert_array_equal(kept.means_, start["means"])
    assert not np.allclose(kept.background_weights_, 0.05)
    kept = fitted(kernel="t", init=start, freeze="weights")
    assert_allclose(kept.weights_, start["weights"], rtol=1e-12)
    assert not np.allclose(kept.kernel_degrees_, start["degrees"])
    del start["degrees"]
    with pytest.raises(ValueError, match="init must have 'degrees'"):
        fitted(kernel="t", init=start, freeze="kernels")


@each_setting
@pytest.mark.parametrize("groups", [None, [[0, 1], [2]]])
def test_rows_without_a_label(settings: dict[str, Any], groups: Any) -> None:
    labels = np.where(np.arange(len(Y)) % 3 == 0, -1, Y + 1)
    model = SharedKernelClassifier(
        3, init="k-means", feature_groups=groups, max_iter=20, tol=1e-3, random_state=0, **settings
    ).fit(X, labels)
    path = model.models_[0].log_likelihood_path_.sum(axis=1)
    assert np.all(np.diff(path) > -1e-8 * np.abs(path[0]))
    assert model.score(X, Y + 1) > 0.62  # of 0.69 that are possible


@each_setting
def test_hierarchical_weights(settings: dict[str, Any]) -> None:
    groups = np.arange(len(X)) % 12
    model = SharedKernelMixture(
        3, init="k-means", weight_prior="hierarchical", tol=1e-4, random_state=0, **settings
    ).fit(X, groups)
    bounds = model.lower_bound_path_[np.isfinite(model.lower_bound_path_)]
    assert np.all(np.diff(bounds) > -1e-8 * np.abs(bounds[0]))
    assert_allclose(model.weights_.sum(axis=0), 1.0)


@each_setting
def test_one_more_class(settings: dict[str, Any]) -> None:
    model = fitted(**settings)
    degrees = getattr(model, "kernel_degrees_", None)
    own = CENTRES[2] + np.random.default_rng(3).normal(size=(200, 3))
    model.add_class(own, 7)
    assert model.weights_[np.argmin(((model.means_ - CENTRES[2]) ** 2).sum(axis=1)), 2] > 0.9
    if degrees is not None:
        assert_array_equal(model.kernel_degrees_, degrees)
    if "background" in settings:
        assert model.background_weights_[2] < 0.02
        # Rows far from all kernels, inside of the box or not, are background.
        model.add_class(np.full((3, 3), 1e3), 8)
        assert model.background_weights_[3] > 0.99
        assert model.responsibilities(np.full((1, 3), 1e3)).sum() < 1e-6


def test_new_rows_outside_of_the_box_are_background_in_the_composition_too() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    model = fitted(background=True)
    far = np.full((50, 3), 1e3)
    alone, beside = (composition(model, rows)["proportion"].to_numpy() for rows in (X, np.vstack([X, far])))
    # Within the rest, shares are as they were.
    assert_allclose(beside[:3] / beside[:3].sum(), alone[:3] / alone[:3].sum(), atol=1e-3)
    # A few other rows go with them, since a larger background is likelier everywhere.
    assert_allclose((len(X) + 50) * beside[3], len(X) * alone[3] + 50.0, atol=3.0)


def test_a_search_with_a_background_finds_the_number_of_kernels() -> None:
    random = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], 150, axis=0)
    rows = np.vstack([random.normal(size=(450, 2)) + centres, random.uniform(-40, 40, (30, 2))])
    mixture = SharedKernelMixture(background=True, n_init=3)
    search = SharedKernelMixtureCV(
        mixture, n_kernels=[1, 2, 3, 4], covariance_type="full", criterion="log_likelihood", random_state=0
    )
    assert search.fit(rows).best_params_["n_kernels"] == 3


def test_distances_of_t_kernels_are_those_of_their_densities() -> None:
    pulled = {"kernel": ("t", 1.0), "init": {"means": [[0.0]], "covariances": [[[1.0]]]}}
    one = SharedKernelMixture(freeze="kernels", **pulled).fit(X[:, :1])
    pulled["init"] = {"means": [[15.0]], "covariances": [[[1.0]]]}
    two = SharedKernelMixture(freeze="kernels", **pulled).fit(X[:, :1])
    points = np.linspace(-5e3, 5e3, 2_000_001)
    roots = np.sqrt(cauchy.pdf(points) * cauchy.pdf(points, loc=15.0))
    distance = 1.0 - np.trapezoid(roots, points)
    assert match(one, two, max_distance=distance + 0.02).tolist() == [0]
    assert match(one, two, max_distance=distance - 0.02).tolist() == [-1]


def test_settings_that_were_changed_after_the_fit_change_nothing() -> None:
    model = fitted(kernel="t", background=True)
    before = model.bic(X, Y)
    model.set_params(background=False)
    assert model.bic(X, Y) == before
    with pytest.raises(ValueError, match="fit it again"):
        model.set_params(kernel="gaussian").partial_fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"background": True, "freeze": "weights"}, "freeze='weights'"),
        ({"init": {"means": np.zeros((1, 3)), "degrees": [4.0]}}, "init has 'degrees'"),
        ({"kernel": "t", "group_shift": 3.0}, "group_shift"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SharedKernelMixture(1, **settings).fit(X, Y)


def test_information_criteria_count_degrees_and_background() -> None:
    plain, robust = fitted(tol=1.0), fitted(kernel="t", background=True, tol=1.0)
    n_more = 0.5 * (robust.aic(X, Y) + 2 * robust.score_samples(X, Y).sum())
    n_less = 0.5 * (plain.aic(X, Y) + 2 * plain.score_samples(X, Y).sum())
    assert_allclose(n_more - n_less, 3 + 2)


@pytest.mark.parametrize("strategy", ["grid", "prune"])
def test_searches(strategy: str, tmp_path: Path) -> None:
    search = SharedKernelMixtureCV(
        SharedKernelMixture(kernel="t", background=True),
        n_kernels=[2, 3] if strategy == "grid" else 5,
        covariance_type="full",
        criterion="bic",
        strategy=strategy,
        random_state=0,
    ).fit(X, Y)
    assert search.best_estimator_.n_kernels_ == 3
    search.save(tmp_path / "search.skmix")
    assert_array_equal(load(tmp_path / "search.skmix").score_samples(NEW), search.score_samples(NEW))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": ("t", 0.5)}, "a number of at least 1"),
        ({"kernel": ("t", 4.0, 1)}, "a number of at least 1"),
        ({"kernel": ("normal", 4.0)}, "a number of at least 1"),
        ({"kernel": "cauchy"}, "'kernel' parameter"),
        ({"kernel": "t", "inference": "variational"}, "does not go with inference='variational'"),
        ({"background": True, "accelerate": True}, "background=True does not go with accelerate=True"),
        ({"kernel": "t", "device": "cpu"}, "does not go with device='cpu'"),
        ({"kernel": "t", "init": {"means": CENTRES, "degrees": [1.0]}}, "degrees must be 3 numbers"),
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fitted(**settings)


def test_streams_and_tuning_are_for_gaussian_kernels() -> None:
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        SharedKernelMixture(3, kernel="t").partial_fit(X)
    assert "partial_fit is for Gaussian kernels" in str(caught.value)
    classifier = SharedKernelClassifier(3, background=True, tol=1.0, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="tune is for Gaussian kernels"):
        classifier.tune(X, Y)


def test_a_constant_feature_has_a_background_of_one_unit() -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=50), np.full(50, 3.0)])
    model = SharedKernelMixture(1, background=True, random_state=0).fit(X)
    low, high = model.background_box_
    assert_array_equal([low[0], high[0]], [X[:, 0].min(), X[:, 0].max()])
    assert low[1] < 3.0 < high[1]
    assert np.isfinite(model.score_samples(X)).all()
