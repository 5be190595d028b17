"""``group_shift`` from fit to file: densities of groups, enrolment by MAP adaptation, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import responsibilities
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.engine.records import Parameters
from skmix.samples import merge_kernels

CENTRES = np.array([[0.0, 0.0], [6.0, -3.0], [-4.0, 6.0]])
NAMES = np.array(["a", "b", "c", "d", "e", "f"])


def shifted_groups(deviation: float = 0.5, n_rows: int = 120, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return rows (N, 2), the names of their groups (N,), and the shifts (L, K, M) they were drawn with."""
    random = np.random.default_rng(seed)
    groups = random.permutation(np.repeat(np.arange(6), n_rows))
    kernels = random.integers(0, 3, size=len(groups))
    shifts = deviation * random.normal(size=(6, 3, 2))
    X = CENTRES[kernels] + shifts[groups, kernels] + random.normal(size=(len(groups), 2))
    return X, NAMES[groups], shifts


def fitted(group_shift: Any = 4.0, **given: Any) -> SharedKernelMixture:
    X, y, _ = shifted_groups()
    start = {"means": CENTRES}
    given = {"weight_prior": None, **given}
    return SharedKernelMixture(3, init=start, group_shift=group_shift, **given).fit(X, y)


def test_auto_finds_shifts_and_leaves_groups_without_them_as_they_are() -> None:
    given = {"init": {"means": CENTRES}, "random_state": 0}
    X, y, _ = shifted_groups()
    found = SharedKernelMixture(3, group_shift="auto", **given).fit(X, y)
    assert found.group_shift_ in (1.0, 3.0, 10.0)
    again = SharedKernelMixture(3, group_shift=found.group_shift_, **given).fit(X, y)
    assert_array_equal(again.group_shifts_, found.group_shifts_)
    X, y, _ = shifted_groups(0.0)
    for groups, n_groups in ((y, 6), (None, 1)):
        none, plain = (
            SharedKernelMixture(3, group_shift=each, **given).fit(X, groups) for each in ("auto", None)
        )
        assert_array_equal(none.group_shifts_, np.zeros((n_groups, 3, 2)))
        for name in ("weights_", "means_", "covariances_", "log_likelihood_", "n_iter_"):
            assert_array_equal(getattr(none, name), getattr(plain, name))
        assert n_groups == 1 or none.group_shift_ == np.inf


def test_kernels_of_known_groups_have_their_means() -> None:
    X, y, _ = shifted_groups()
    model, codes = fitted(), np.searchsorted(NAMES, y)
    assert_allclose(model.score(X, y) * len(X), model.log_likelihood_, rtol=1e-9)
    w = np.empty((len(X), 3))
    for j in range(6):
        own, zero = codes == j, np.zeros(np.sum(codes == j), dtype=np.int64)
        group = Parameters(model.weights_[:, [j]], model.means_ + model.group_shifts_[j], model.covariances_)
        w[own] = responsibilities(X[own], zero, group)
    assert_allclose(model.predict_proba(X, y=y), w, atol=1e-9)
    assert_array_equal(model.predict(X, y=y), w.argmax(axis=1))
    with pytest.raises(ValueError, match=r"\['z'\]"):
        model.predict(X[:1], y=["z"])


def test_kernels_are_merged_by_the_density_of_all_groups() -> None:
    # Two kernels lie apart in one group, and in the other one each has the place of the other.
    centres = np.array([[-4.0], [4.0], [14.0]])
    start = {"means": centres, "covariances": np.ones((3, 1, 1))}
    model = SharedKernelMixture(3, init=start, group_shift=1.0, covariance_prior=None)
    X = np.random.default_rng(0).normal(size=(600, 1)) + np.tile(centres, (200, 1))
    model.fit(X, np.repeat([0, 1], 300))
    assert len(merge_kernels(model)) == 3
    model.group_shifts_ = np.array([[[0.0], [0.0], [0.0]], [[8.0], [-8.0], [0.0]]])
    assert merge_kernels(model).of_kernels.tolist() == [0, 0, 1]
    # And common means may lie together where the kernels of every group lie apart.
    model.means_ = np.array([[0.0], [0.0], [14.0]])
    model.group_shifts_ = np.tile([[[-4.0], [4.0], [0.0]]], (2, 1, 1))
    assert len(merge_kernels(model)) == 3


def test_rows_are_drawn_and_filled_with_the_means_of_their_group() -> None:
    model = fitted(random_state=0)
    model.group_shifts_ = model.group_shifts_ + 100.0 * np.arange(6)[:, None, None]
    X, y = model.sample(600)
    assert_array_equal(np.round(X[:, 0] / 100.0), np.searchsorted(NAMES, y))
    gaps = X.copy()
    gaps[:, 1] = np.nan
    # The first feature tells the group of a row.
    for filled in (model.impute(gaps, y), model.impute(gaps)):
        assert_array_equal(np.round(filled[:, 1] / 100.0), np.searchsorted(NAMES, y))
        assert_array_equal(filled[:, 0], X[:, 0])


def test_derived_models_keep_the_shifts() -> None:
    X, y, _ = shifted_groups()
    model = fitted()
    shifts, marginal = model.group_shifts_.copy(), model.marginal([1])
    assert_array_equal(marginal.group_shifts_, shifts[..., [1]])
    gaps = np.column_stack([np.full(len(X), np.nan), X[:, 1]])
    assert_allclose(marginal.score_samples(X[:, 1:], y), model.score_samples(gaps, y), rtol=1e-9)
    with pytest.raises(ValueError, match="differ in their means"):
        model.condition({0: 1.0})


def test_hierarchical_weights_go_with_shifts() -> None:
    model = fitted(weight_prior="hierarchical")
    n_first = fitted(None, weight_prior="hierarchical").n_iter_
    # The bound of the second fit, less the penalty, never falls; it has one value for each pass.
    assert np.diff(model.lower_bound_path_[n_first + 1 :]).min() > -1e-8
    assert model.lower_bound_path_[-1] == model.lower_bound_
    assert len(model.lower_bound_path_) == model.n_iter_ > n_first
    assert np.abs(model.group_shifts_).max() > 0.2
    # The weights are the means of their posterior, not those of the last pass.
    X, y, _ = shifted_groups()
    assert_allclose(model.log_likelihood_, len(X) * model.score(X, y), rtol=1e-9)


def test_groups_of_unequal_sizes_share_kernels_by_their_sizes() -> None:
    """Without labels, a row is of a group with its prior, and of a kernel with the means of that group."""
    X, y, _ = shifted_groups(deviation=2.0)
    kept = (y == "a") | (np.random.default_rng(1).uniform(size=len(y)) < 0.1)
    model = SharedKernelMixture(3, init={"means": CENTRES}, group_shift=4.0).fit(X[kept], y[kept])
    assert model.class_prior_[0] > 0.6
    joint = np.zeros((len(X), 3))
    for prior, weights, shifts in zip(model.class_prior_, model.weights_.T, model.group_shifts_, strict=True):
        for k, covariance in enumerate(model.covariances_):
            density = multivariate_normal(model.means_[k] + shifts[k], covariance).pdf(X)
            joint[:, k] += prior * weights[k] * density
    assert_allclose(model.predict_proba(X), joint / joint.sum(axis=1, keepdims=True), rtol=1e-8, atol=1e-12)


def test_groups_draw_categories_with_their_own_shares() -> None:
    random = np.random.default_rng(0)
    groups, shares = np.repeat(["a", "b", "c"], 2000), np.repeat([0.2, 0.5, 0.8], 2000)
    numbers = random.normal(size=6000)
    frame = pd.DataFrame({"x": numbers, "kind": np.where(random.uniform(size=6000) < shares, "yes", "no")})
    model = SharedKernelMixture(1, group_shift=1.0, random_state=0).fit(frame, groups)
    drawn, labels = model.sample(6000)
    for group, share in zip("abc", (0.2, 0.5, 0.8), strict=True):
        assert np.mean(np.asarray(drawn)[labels == group, 1] == "yes") == pytest.approx(share, abs=0.06)


def test_shifts_count_as_parameters() -> None:
    X, y, _ = shifted_groups()
    plain, weak, strong = fitted(None), fitted(1e-6), fitted(1e6)

    def n_parameters(model: SharedKernelMixture) -> float:
        return 0.5 * (model.aic(X, y) + 2.0 * model.score(X, y) * len(X))

    assert n_parameters(plain) == pytest.approx(3 * 2 + 3 * 3 + 6 * 2)
    assert n_parameters(strong) == pytest.approx(n_parameters(plain))
    assert n_parameters(weak) == pytest.approx(n_parameters(plain) + 6 * 3 * 2)


# ---------------------------------------------------------------- enrolment


def adapted(
    X: Any, background: Parameters, r: float, n_passes: int, row_weights: Any = 1.0
) -> tuple[Any, Any]:
    """Return weights and means by relevance MAP adaptation, Reynolds et al. (2000), equations 7 to 14.

    Every pass mixes statistics of the rows, under the model so far, with the background model.
    """
    prior, means = background.weights[:, 0], background.means
    model, zero = background, np.zeros(len(X), dtype=np.int64)
    for _ in range(n_passes):
        w = responsibilities(X, zero, model) * np.broadcast_to(row_weights, len(X))[:, None]
        n = w.sum(axis=0)
        alpha = n / (n + r)
        weights = alpha * n / n.sum() + (1.0 - alpha) * prior
        new = alpha[:, None] * (w.T @ X / n[:, None]) + (1.0 - alpha[:, None]) * means
        model = Parameters((weights / weights.sum())[:, None], new, model.covariances)
    return model.weights[:, 0], model.means


@pytest.mark.parametrize("n_passes", [1, 2, 300])
@pytest.mark.parametrize("shifted_before", [False, True])
def test_a_new_class_is_adapted_as_speakers_are(shifted_before: bool, n_passes: int) -> None:
    """With rows of any weight, and with the strength that was chosen where none is given."""
    random = np.random.default_rng(1)
    new = np.concatenate([CENTRES[[0]] + 1.0 + random.normal(size=(6, 2)), CENTRES[[1]] + [[0.5, -1.0]]])
    row_weights, strength = random.uniform(0.5, 2.0, len(new)), 5.0
    model = fitted("auto" if shifted_before else None, random_state=0)
    if shifted_before:
        strength = model.group_shift_
    model.set_params(group_shift="auto" if shifted_before else strength, max_iter=n_passes, tol=0.0)
    model.class_prior_ = np.array([0.6, 0.2, 0.05, 0.05, 0.05, 0.05])
    common = (model.weights_ @ model.class_prior_)[:, None]
    background = Parameters(common, model.means_.copy(), model.covariances_)
    before = vars(model).get("group_shifts_", np.zeros((6, 3, 2)))
    weights, means = adapted(new, background, strength, n_passes, row_weights)
    model.add_class(new, "bb", sample_weight=row_weights)
    assert model.classes_.tolist() == ["a", "b", "bb", "c", "d", "e", "f"]
    assert_array_equal(model.means_, background.means)
    assert_allclose(model.weights_[:, 2], weights, rtol=1e-8)
    assert_allclose(model.means_ + model.group_shifts_[2], means, rtol=1e-8)
    assert_array_equal(np.delete(model.group_shifts_, 2, axis=0), before)
    assert model.group_shift_ == strength


def test_a_weight_prior_decides_on_the_weights_of_a_new_class() -> None:
    X, _, _ = shifted_groups()
    model = fitted(weight_prior=3.0)
    model.set_params(max_iter=1).add_class(X[:10], "g")
    common = np.delete(model.weights_, 6, axis=1) @ (model.class_prior_[:6] / model.class_prior_[:6].sum())
    background = Parameters(common[:, None], model.means_, model.covariances_)
    n = responsibilities(X[:10], np.zeros(10, dtype=np.int64), background).sum(axis=0) + 2.0
    assert_allclose(model.weights_[:, 6], n / n.sum(), rtol=1e-8)


def test_too_few_passes_are_reported() -> None:
    X, y, _ = shifted_groups(2.0)
    plain = SharedKernelMixture(3, init={"means": CENTRES}, weight_prior=None, tol=1e-6).fit(X, y)
    # The fit without shifts begins where it has converged.
    start = {"means": plain.means_, "covariances": plain.covariances_, "weights": plain.weights_}
    model = SharedKernelMixture(3, init=start, tol=1e-6, group_shift=1.0, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="group shifts did not converge"):
        model.fit(X, y)
    assert not model.converged_
