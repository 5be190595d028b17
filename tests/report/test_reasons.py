"""Reasons agree with conditional distributions that are computed by the book."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.preprocessing import FunctionTransformer

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture
from skmix.model.kernel_sets import drawn_kernels

X, CODES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])[CODES]
GAPS = np.where(np.random.RandomState(0).uniform(size=X.shape) < 0.3, np.nan, X)


def by_the_book(row: np.ndarray, mean: np.ndarray, covariance: np.ndarray, own: list[int]) -> float:
    """Return the distance of some features from their conditional mean, given the rest of a row."""
    rest = [i for i in range(len(row)) if i not in own and not np.isnan(row[i])]
    expected, spread = mean[own], covariance[np.ix_(own, own)]
    if rest:
        pull = covariance[np.ix_(own, rest)] @ np.linalg.inv(covariance[np.ix_(rest, rest)])
        expected = expected + pull @ (row[rest] - mean[rest])
        spread = spread - pull @ covariance[np.ix_(rest, own)]
    away = row[own] - expected
    if len(own) == 1:
        return float(away[0] / np.sqrt(spread[0, 0]))
    return float(np.sqrt(away @ np.linalg.inv(spread) @ away / len(own)))


def check(found: Any, model: Any, rows: np.ndarray, blocks: list[list[int]]) -> None:
    kernels = drawn_kernels(model)
    for row, likeliest, residuals in zip(
        rows, found.responsibilities.argmax(axis=1), found.residuals, strict=True
    ):
        for own, residual in zip(blocks, residuals, strict=True):
            if np.isnan(row[own]).any():
                assert np.isnan(residual)
                continue
            expected = by_the_book(row, kernels.means[likeliest], kernels.covariance(likeliest), own)
            assert residual == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("rows", [X[::10], GAPS[::5]], ids=["complete", "gaps"])
def test_residuals_are_conditional(covariance_type: str, rows: np.ndarray) -> None:
    tail = "t" if covariance_type in ("full", "diag") else None
    model = SharedKernelClassifier(4, covariance_type=covariance_type, tail=tail, random_state=0)
    model.fit(X, SPECIES)
    found = model.reasons(rows)
    check(found, model, rows, [[i] for i in range(4)])
    assert_allclose(found.responsibilities.sum(axis=1), 1.0)
    expected = model.models_[0].weights_ * model.class_prior_
    assert_allclose(found.class_shares, expected / expected.sum(axis=1, keepdims=True))
    assert found.columns == tuple(f"feature {i}" for i in range(4))
    assert found.classes == ("setosa", "versicolor", "virginica")


def test_mixtures_have_no_classes() -> None:
    for model in (SharedKernelMixture(3, random_state=0), GaussianMixture(3, random_state=0)):
        found = model.fit(X).reasons(X[:9])
        check(found, model, X[:9], [[i] for i in range(4)])
        assert found.classes == ()
        assert_allclose(found.responsibilities, model.predict_proba(X[:9]))
        assert "(" not in found.in_words()["kernels"][0]
    groups = SharedKernelMixture(3, group_shift=5.0, random_state=0).fit(X, CODES)
    with pytest.raises(ValueError, match="cannot be combined with group_shift"):
        groups.reasons(X)


def test_feature_sets_have_their_own_kernels() -> None:
    model = SharedKernelClassifier(2, feature_sets=[[3, 0], [1]], random_state=0).fit(X, SPECIES)
    found = model.reasons(X[:5])
    assert found.kernels == ("set 1 k0", "set 1 k1", "set 2 k0", "set 2 k1")
    assert_allclose(found.responsibilities.sum(axis=1), 2.0)
    assert np.isnan(found.residuals[:, 2]).all()
    for columns, part, first in zip([[3, 0], [1]], model.models_, (0, 2), strict=True):
        own = found.responsibilities[:, first : first + 2].argmax(axis=1)
        for row, k, residuals in zip(X[:5, columns], own, found.residuals[:, columns], strict=True):
            expected = [by_the_book(row, part.means_[k], part.covariances_[k], [i]) for i in range(len(row))]
            assert_allclose(residuals, expected)


@pytest.mark.parametrize("way", ["frame", "file"])
def test_columns_are_those_of_the_user(tmp_path: Path, way: str) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "wide": np.where(X[:, 3] > 1, "yes", "no"), "b": X[:, 1]})
    frame["kind"] = np.array(["x", "y", "z"])[np.arange(150) % 3]
    frame.loc[3, ["wide", "kind"]] = None
    model = SharedKernelClassifier(2, random_state=0).fit(frame, SPECIES)
    given: Any = frame
    if way == "file":
        frame.to_csv(tmp_path / "t.csv", index=False)
        given = tmp_path / "t.csv"
    found = model.reasons(given)
    assert found.columns == ("a", "wide", "b", "kind")
    rows = np.column_stack([X[:, 0], X[:, 3] > 1, X[:, 1], *(frame["kind"] == each for each in "xyz")])
    rows[3, [1, 3, 4, 5]] = np.nan
    check(found, model, rows, [[0], [1], [2], [3, 4, 5]])


def test_searches_explain_their_best_model() -> None:
    search = SharedKernelClassifierCV(n_kernels=[3], cv=2, random_state=0).fit(X, SPECIES)
    plain, rows = copy(search), X[:20]
    plain.feature_maps_ = [None] * len(search.classifiers_)
    assert_allclose(plain.reasons(rows).residuals, search.classifier_.reasons(rows).residuals)
    powers = (np.zeros(4), np.full(4, 2.0), np.array([1.0, 0.5, 1.0, 0.0]), None, None, None)
    matrix = (*powers[:4], np.zeros(4), np.linalg.qr(np.random.RandomState(0).normal(size=(4, 4)))[0])
    for change, names in (
        (powers, [f"feature {i}" for i in range(4)]),
        (matrix, [f"component {i}" for i in range(1, 5)]),
    ):
        plain.feature_maps_ = [change] * len(search.classifiers_)
        found = plain.reasons(rows)
        mapped = FunctionTransformer(plain.feature_map_.transform).fit_transform(rows)
        assert_allclose(found.residuals, search.classifier_.reasons(mapped).residuals)
        assert found.columns == tuple(names)
