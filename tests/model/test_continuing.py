"""Models that callbacks save during a fit, and fits that go on from them."""

from __future__ import annotations

import numpy as np
import pytest
from models import AfterPass
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV

from skmix import SharedKernelClassifier, SharedKernelMixture, load

RNG = np.random.default_rng(2)
X = np.concatenate(
    [RNG.normal(size=(80, 2)), RNG.normal(size=(60, 2)) * 1.5 + 2.0, RNG.normal(size=(60, 2)) - 2.5]
)
Y = np.repeat([0, 1, 2], [80, 60, 60])
UNLABELLED = np.where(np.arange(200) % 4 == 0, -1, Y)


class Save(AfterPass):
    """Callback that saves the model after every few passes, and interrupts the fit after one of them."""

    def __init__(self, path, every=1, end=None):
        super().__init__(lambda number: None)
        self.path, self.every, self.end, self.models = path, every, end, []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name == "pass":
            number = context.task_id + 1
            self.models.append(fitted_estimator)
            if fitted_estimator is not None and number % self.every == 0:
                fitted_estimator.save(self.path)
            if number == self.end:
                raise KeyboardInterrupt


def interrupted(estimator, path, rows, end):
    """Return the model that was saved by a fit that was interrupted after some passes."""
    model = clone(estimator).set_callbacks(Save(path, end=end))
    with pytest.raises(KeyboardInterrupt):
        model.fit(*rows)
    assert not hasattr(model, "class_prior_")
    return load(path)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [SharedKernelMixture, SharedKernelClassifier])
def test_a_callback_gets_the_model_so_far(kind, tmp_path):
    estimator = kind(5, weight_prior=None, random_state=0, tol=0.0, max_iter=8)
    save = Save(tmp_path / "fit.skmix", every=3)
    clone(estimator).set_callbacks(save).fit(X, Y)
    assert len(save.models) == 8
    for number, model in enumerate(save.models, 1):
        expected = clone(estimator).set_params(max_iter=number).fit(X, Y)
        assert_array_equal(model.means_, expected.means_)
        assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
        assert_array_equal(model.log_likelihood_path_, expected.log_likelihood_path_)
        assert model.n_iter_ == number
    assert_array_equal(load(save.path).covariances_, save.models[5].covariances_)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({"tol": 1e-9}, Y),
        ({"n_init": 4, "covariance_type": "diag", "init": "random_from_data"}, Y),
        ({"weight_prior": 1.5, "covariance_prior": 3.0, "tol": 1e-9}, UNLABELLED),
        ({"weight_prior": "hierarchical", "tol": 1e-7}, UNLABELLED),
        ({"tail": "t", "tol": 1e-7}, Y),
        ({"inference": "variational", "n_kernels": 12, "tol": 1e-9}, Y),
    ],
)
def test_a_fit_goes_on_from_a_saved_model(settings, labels, tmp_path):
    mixture = SharedKernelMixture(5, weight_prior=None, random_state=0, max_iter=3000).set_params(**settings)
    whole = clone(mixture).fit(X, labels)
    saved = interrupted(mixture, tmp_path / "fit.skmix", (X, labels), end=4)
    assert saved.n_iter_ == 4
    rest = clone(mixture).set_params(init=saved).fit(X, labels)
    assert rest.converged_
    # The start that is the best so far need not end as the best of all.
    ends = whole.start_log_likelihoods_
    assert np.isclose(rest.log_likelihood_, ends, rtol=1e-6).any()
    assert getattr(rest, "shrinkage_", None) == getattr(whole, "shrinkage_", None)
    if mixture.n_init == 1 and settings.get("weight_prior") != "hierarchical" and mixture.inference == "em":
        # The same passes: each is a function of the parameters alone.
        assert_allclose(rest.log_likelihood_path_[0], whole.log_likelihood_path_[4], rtol=1e-12)
    if mixture.n_init == 1 and mixture.inference == "em" and settings.get("weight_prior") is None:
        assert rest.n_iter_ == whole.n_iter_ - 4
        assert_allclose(rest.means_, whole.means_, rtol=1e-9, atol=1e-12)


def test_a_classifier_goes_on(tmp_path):
    classifier = SharedKernelClassifier(random_state=0, tol=1e-6, max_iter=1000)
    whole = clone(classifier).fit(X, Y)
    saved = interrupted(classifier, tmp_path / "fit.skmix", (X, Y), end=4)
    rest = clone(classifier).set_params(init=saved).fit(X, Y)
    assert_allclose(rest.predict_proba(X), whole.predict_proba(X), atol=1e-12)


def test_feature_sets_have_a_model_only_at_the_end():
    sets = SharedKernelClassifier(4, feature_sets=[[0], [1]], random_state=0)
    save = Save(None)
    whole = clone(sets).set_callbacks(save).fit(X, Y)
    assert save.models == [None] * sum(model.n_iter_ for model in whole.models_)
    again = clone(sets).set_params(init=whole, tol=1e-9, max_iter=1000).fit(X, Y)
    for model, start in zip(again.models_, whole.models_, strict=True):
        assert model.log_likelihood_ > start.log_likelihood_
    with pytest.raises(ValueError, match=r"feature_sets \[\[0\], \[1\]\], and the fit has \[\[1\], \[0\]\]"):
        clone(again).set_params(feature_sets=[[1], [0]]).fit(X, Y)


def test_a_start_stays_fitted_in_clones_and_files(tmp_path):
    start = SharedKernelMixture(3, random_state=0).fit(X, Y)
    model = clone(clone(SharedKernelMixture(init=start))).fit(X, Y)
    model.save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix")
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(again.fit(X, Y).means_, model.means_)


@pytest.mark.parametrize("wrap", [lambda start: start, FrozenEstimator])
def test_a_loaded_classifier_that_began_with_a_fit_can_be_tuned(wrap, tmp_path):
    """Tuning fits a second model with the same settings."""
    start = SharedKernelClassifier(3, random_state=0).fit(X, Y)
    model = SharedKernelClassifier(init=wrap(start), random_state=0).fit(X, Y)
    model.save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix").tune(X, Y)
    assert_array_equal(again.means_, model.tune(X, Y).means_)
    assert again.tuned_ == model.tuned_


def test_a_grid_has_fitted_starts_in_frozen_estimators():
    start = SharedKernelMixture(3, random_state=0).fit(X)
    grid = {"init": [FrozenEstimator(start), "random_from_data"]}
    search = GridSearchCV(SharedKernelMixture(max_iter=1, random_state=0), grid, error_score="raise")
    with pytest.warns(ConvergenceWarning):
        search.fit(X)
    assert isinstance(search.best_params_["init"], FrozenEstimator)
    with pytest.raises(ValueError, match=r"not fitted\. Searches copy settings without their fit: .*Frozen"):
        GridSearchCV(SharedKernelMixture(), {"init": [start]}, error_score="raise").fit(X)


@pytest.mark.parametrize("labels", [Y, UNLABELLED])
@pytest.mark.parametrize("kind", [SharedKernelMixture, SharedKernelClassifier])
def test_the_first_batch_after_a_fitted_start_may_lack_a_class(kind, labels):
    start = kind(4, random_state=0).fit(X, Y)
    given = {"means": start.means_, "covariances": start.covariances_, "weights": start.weights_}
    for init in (start, given):
        model = kind(init=init).partial_fit(X[:140], labels[:140], classes=[0, 1, 2])
        if labels is Y:
            # The class that is still to come keeps the weights of the start.
            assert_array_equal(model.weights_[:, 2], start.weights_[:, 2])
        assert np.abs(model.weights_[:, :2] - start.weights_[:, :2]).max() > 1e-4
        assert model.partial_fit(X[140:], labels[140:]).class_count_[2] == np.sum(labels == 2)


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"covariance_type": "diag"}, (X, Y), "covariance_type='full', and the fit has 'diag'"),
        ({"n_kernels": 4}, (X, Y), "init has 3 kernels, and n_kernels is 4"),
        ({}, (X[:, :1], Y), "init was fitted to 2 features, and X has 1"),
        ({}, (X, Y + 1), r"init was fitted to the classes \[0, 1, 2\], and y has \[1, 2, 3\]"),
        ({"init": SharedKernelMixture()}, (X, Y), "init is a SharedKernelMixture that is not fitted"),
    ],
)
def test_a_start_of_another_fit_is_refused(settings, rows, message):
    start = SharedKernelMixture(3, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        SharedKernelMixture(init=start).set_params(**settings).fit(*rows)


def test_a_saved_model_survives_a_lost_scheduler(tmp_path, mortal_cluster):
    import dask.array as da

    from skmix.data.dask import ClusterError

    class Lose(Save):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator):
            super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)
            if len(self.models) == 3:
                mortal_cluster.lose()

    path = tmp_path / "fit.skmix"
    mixture = SharedKernelMixture(3, init={"means": X[[0, 100, 150]]}, weight_prior=None, max_iter=1000)
    lazy = da.from_array(X, chunks=(70, 2)), da.from_array(Y, chunks=70)
    with pytest.raises(ClusterError, match=r"scheduler .* is lost"):
        clone(mixture).set_callbacks(Lose(path)).fit(*lazy)
    rest = clone(mixture).set_params(init=load(path)).fit(*lazy)
    assert_allclose(rest.means_, clone(mixture).fit(X, Y).means_, rtol=1e-9)


def test_frozen_t_kernels_of_a_fit_keep_their_degrees():
    fitted = SharedKernelMixture(3, tail="t", tol=1e-2, random_state=0).fit(X, Y)
    kept = SharedKernelMixture(init=fitted, freeze="kernels", tail="t", tol=1e-2).fit(X, Y)
    for name in ("means_", "covariances_", "kernel_degrees_"):
        assert_array_equal(getattr(kept, name), getattr(fitted, name))
    for settings in ({}, {"tail": "t", "degrees": 4.0}):
        with pytest.raises(ValueError, match="keeps the t kernels of init"):
            SharedKernelMixture(init=fitted, freeze="kernels", **settings).fit(X, Y)


def test_a_loaded_classifier_that_began_with_a_fit_goes_on(tmp_path):
    start = SharedKernelMixture(3, random_state=0).fit(X, Y)
    SharedKernelClassifier(init=start, tol=1e-2).fit(X, Y).save(tmp_path / "model.skmix")
    model = load(tmp_path / "model.skmix")
    model.partial_fit(X, Y)
    assert len(model.add_class(X[:20], 99).classes_) == len(np.unique(Y)) + 1
