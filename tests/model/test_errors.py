"""Values with errors: limits, recovery of what was measured, and how errors are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)

START = {"means": [[0.0, 0.0], [3.0, 1.0]], "covariances": np.stack([np.eye(2)] * 2)}


def measured(n_rows: int = 600, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return values, the standard deviations of their errors, what was measured, and clusters (n,)."""
    random = np.random.default_rng(seed)
    cluster = random.integers(0, 2, n_rows)
    root = np.array([[0.6, 0.0], [0.4, 0.3]])
    clean = np.array([[0.0, 0.0], [3.0, 1.0]])[cluster] + random.normal(size=(n_rows, 2)) @ root.T
    errors = random.uniform(0.2, 1.2, size=clean.shape)
    return clean + errors * random.normal(size=clean.shape), errors, clean, cluster


def fit(X: Any, errors: Any = None, **settings: Any) -> SharedKernelMixture:
    """Return a mixture of two kernels from a given start."""
    return SharedKernelMixture(init=START, random_state=0, **settings).fit(X, errors=errors)


# ---------------------------------------------------------------- limits


def test_errors_of_zero_change_no_bit() -> None:
    X, errors, _, _ = measured()
    plain, zero = fit(X), fit(X, 0.0 * errors)
    assert_array_equal(zero.covariances_, plain.covariances_)
    assert not zero.has_errors_
    assert_array_equal(plain.predict_proba(X, errors=0.0 * errors), plain.predict_proba(X))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_errors_of_a_thousandth_of_the_spread_give_the_same_fit(covariance_type: str) -> None:
    X = measured(2000)[2]
    errors = np.broadcast_to(1e-3 * X.std(axis=0), X.shape)
    start = {"means": START["means"]}
    model = SharedKernelMixture(init=start, covariance_type=covariance_type, tol=1e-6, max_iter=1000)
    small, plain = (clone(model).fit(X, errors=of_rows) for of_rows in (errors, None))
    assert small.has_errors_
    assert_allclose(small.means_, plain.means_, atol=1e-4)
    assert_allclose(small.covariances_, plain.covariances_, atol=1e-4)
    assert_allclose(small.weights_, plain.weights_, atol=1e-4)


def test_infinite_errors_are_gaps() -> None:
    X, errors, _, _ = measured()
    errors = np.zeros_like(errors)
    errors[::3, 0], errors[1::3, 1] = np.inf, np.nan
    holes, gaps = np.where(np.isfinite(errors), X, np.nan), fit(X, errors)
    assert_array_equal(gaps.covariances_, fit(holes).covariances_)
    # Errors that are finite but huge say nothing either.
    huge = fit(X, np.where(np.isfinite(errors), 0.0, 1e6))
    assert_allclose(huge.covariances_, gaps.covariances_, atol=1e-4)


def test_a_row_with_an_error_and_a_gap() -> None:
    model = fit(*measured()[:2])
    row, errors = [[0.5, np.nan]], [[0.7, 0.1]]
    sums = [
        w * multivariate_normal(mean[0], P[0, 0] + 0.7**2).pdf(0.5)
        for w, mean, P in zip(model.weights_[:, 0], model.means_, model.covariances_, strict=True)
    ]
    assert_allclose(model.score_samples(row, errors=errors), np.log(sum(sums)))


# ---------------------------------------------------------------- what was measured


def test_the_truth_is_recovered() -> None:
    X, errors, clean, _ = measured(20_000)
    model = SharedKernelMixture(2, random_state=0, tol=1e-7, max_iter=500).fit(X, errors=errors)
    order = np.argsort(model.means_[:, 0])
    truth = np.array([[0.36, 0.24], [0.24, 0.25]])
    assert_allclose(model.means_[order], START["means"], atol=0.05)
    assert_allclose(model.covariances_[order], [truth, truth], atol=0.05)
    smeared = SharedKernelMixture(2, random_state=0).fit(X)
    assert (np.einsum("kdd->kd", smeared.covariances_) > 0.7).all()
    # The density of clean values, and that of values with errors, are those of draws.
    drawn, _ = model.sample(20_000)
    noisy, _ = model.sample(20_000, errors=errors)
    assert_allclose(np.cov(drawn.T), np.cov(clean.T), atol=0.1)
    assert_allclose(np.cov(noisy.T), np.cov(X.T), atol=0.1)
    assert_allclose(model.score(noisy, errors=errors), model.score(X, errors=errors), atol=0.03)


def test_imputation_returns_the_expectation_of_what_was_measured() -> None:
    X, errors, clean, _ = measured(4000)
    model = fit(X, errors)
    cleaned = model.impute(X, errors=errors)
    assert np.mean((cleaned - clean) ** 2) < 0.7 * np.mean((X - clean) ** 2)
    # By draws from the model, weighted by how well they agree with one row.
    drawn, _ = SharedKernelMixture.from_parameters(
        model.weights_[:, 0], model.means_, model.covariances_, random_state=1
    ).sample(400_000)
    agreement = np.exp(-0.5 * np.square((drawn - X[0]) / errors[0]).sum(axis=1))
    assert_allclose(cleaned[0], agreement @ drawn / agreement.sum(), atol=0.02)


def test_exact_values_among_others_stay() -> None:
    X, errors, _, _ = measured()
    errors[:, 0] = 0.0
    cleaned = fit(X, errors).impute(X, errors=errors)
    assert_allclose(cleaned[:, 0], X[:, 0])
    assert np.abs(cleaned[:, 1] - X[:, 1]).max() > 0.1


def test_criteria_are_of_what_was_measured() -> None:
    X, errors, _, _ = measured()
    model = fit(X, errors)
    log_likelihood = model.score_samples(X, errors=errors).sum()
    assert_allclose(log_likelihood, model.log_likelihood_)
    assert_allclose(model.bic(X, errors=errors), -2.0 * log_likelihood + np.log(len(X)) * 11)
    one, two = (SharedKernelMixture(k, random_state=0).fit(X, errors=errors) for k in (1, 2))
    assert two.bic(X, errors=errors) < one.bic(X, errors=errors)


def test_a_classifier_weighs_values_by_their_errors() -> None:
    X, errors, _, y = measured(2000)
    model = SharedKernelClassifier(2, reject_below=0.05, random_state=0).fit(X, y, errors=errors)
    assert model.score(X, y, errors=errors) > model.score(X, y) - 0.01
    precise, vague = (model.predict_proba([[0.4, 0.2]], errors=[[e, e]])[0] for e in (0.1, 50.0))
    assert precise.max() > 0.99
    assert_allclose(vague, model.class_prior_, atol=0.01)
    assert 0.01 < (model.score_samples(X, errors=errors) < model.threshold_).mean() < 0.12
    assert model.calibrate(X, y, errors=errors).temperature_ > 0.0


def test_a_saved_model_knows_that_it_had_errors(tmp_path: Path) -> None:
    X, errors, _, _ = measured()
    model = fit(X, errors)
    model.save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix")
    assert again.has_errors_
    assert_array_equal(again.impute(X, errors=errors), model.impute(X, errors=errors))


# ---------------------------------------------------------------- how errors are given


def test_errors_in_frames_and_files(tmp_path: Path) -> None:
    X, errors, _, _ = measured()
    frame = pd.DataFrame(X, columns=["a", "b"])
    beside = frame.assign(b_err=errors[:, 1], a_err=errors[:, 0])
    path, other = tmp_path / "rows.csv", tmp_path / "errors.csv"
    beside.to_csv(path, index=False)
    frame_of_errors = pd.DataFrame(errors, columns=["a", "b"])[["b", "a"]]
    frame_of_errors.to_csv(other, index=False)
    frame.to_csv(tmp_path / "values.csv", index=False)
    expected = fit(X, errors)
    for given, of_given in (
        (frame, errors),
        (frame, frame_of_errors),
        (beside, "_err"),
        (beside, {"a": "a_err", "b": "b_err"}),
        (path, "_err"),
        (tmp_path / "values.csv", other),
    ):
        model = fit(given, of_given)
        assert list(model.feature_names_in_) == ["a", "b"]
        assert_allclose(model.covariances_, expected.covariances_, rtol=1e-9)
        assert_allclose(model.score(given, errors=of_given), expected.score(X, errors=errors))
    some = fit(beside.drop(columns="a_err"), {"b": "b_err"})
    assert_array_equal(some.means_, fit(X, np.column_stack([np.zeros(len(X)), errors[:, 1]])).means_)


def test_labels_and_weights_are_found_in_a_table_with_errors(tmp_path: Path) -> None:
    X, errors, _, y = measured(200)
    weights = np.where(y == 1, 2.0, 1.0)
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(y, "x", "z"), rows=weights)
    table = table.assign(a_err=errors[:, 0], b_err=errors[:, 1])
    path = tmp_path / "rows.csv"
    table.to_csv(path, index=False)
    expected = SharedKernelClassifier(2, random_state=0).fit(X, table["kind"], weights, errors=errors)
    accuracy = expected.score(X, table["kind"], weights, errors=errors)
    expected.calibrate(X, table["kind"], weights, errors=errors)
    for rows in (table, path):
        model = SharedKernelClassifier(2, random_state=0).fit(rows, "kind", "rows", errors="_err")
        assert_allclose(model.score(rows, errors="_err"), accuracy)
        assert_allclose(model.score(rows, "kind", "rows", errors="_err"), accuracy)
        assert_allclose(model.calibrate(rows, errors="_err").temperature_, expected.temperature_, rtol=1e-6)


@pytest.mark.parametrize("criterion", ["bic", "log_likelihood"])
def test_the_search_for_a_mixture(criterion: str) -> None:
    X, errors, _, _ = measured(400)
    search = SharedKernelMixtureCV(
        n_kernels=[1, 2, 3], covariance_type="full", criterion=criterion, n_members=1, random_state=0
    ).fit(X, errors=errors)
    assert search.best_params_["n_kernels"] >= 2
    assert_allclose(search.score(X, errors=errors), search.score_samples(X, errors=errors).mean())


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([[0.1, -0.1]] * 3, "must not be negative, got -0.1 in row 0, column 1"),
        ([[0.1], [0.1], [0.1]], "has the shape"),
        ("_err", "needs columns with names"),
        ({"a": "b"}, "needs columns with names"),
    ],
)
def test_wrong_errors_are_refused(errors: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SharedKernelMixture(1).fit(np.eye(3)[:, :2], errors=errors)


def test_what_errors_cannot_be_combined_with() -> None:
    X, errors, _, y = measured(60)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for model, rows, of_rows, words in (
        (SharedKernelMixture(2, tail="t"), X, errors, "tail='t'"),
        (SharedKernelMixture(2), frame.assign(a_err=1.0, c=np.where(y, "x", "z")), "_err", "encoded"),
        (SharedKernelMixture(2), frame, "_err", "No column of X ends in '_err'"),
        (SharedKernelMixture(2), frame, {"a": "z"}, "errors names 'z'"),
        (SharedKernelMixture(2), frame, frame[["a"]], "errors has no column 'b'"),
        (SharedKernelClassifierCV(), X, errors, "takes no errors"),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(rows, y, errors=of_rows)
    with pytest.raises(ValueError, match="takes no errors"):
        GaussianMixture(2).fit(X).bic(X, errors=errors)
    model = SharedKernelClassifier(2).fit(X, y, errors=errors)
    with pytest.raises(ValueError, match="tune cannot be combined with errors"):
        model.tune(X, y)
    encoded = SharedKernelMixture(2).fit(frame.assign(c=np.where(y, "x", "z")))
    with pytest.raises(ValueError, match="encoded"):
        encoded.score_samples(frame, errors=errors)
