"""What classifiers take of rows: powers against SciPy's and scikit-learn's, projections against theirs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, rankdata, yeojohnson_llf
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import PowerTransformer, StandardScaler

from skmix.engine.rows.blocks import Block
from skmix.search.features import (
    FeatureMap,
    along,
    fit_features,
    likeliest_powers,
    normal_scores,
    yeo_johnson,
)
from skmix.search.space import feature_maps

WINE = load_wine(return_X_y=True)


def power_transformer(powers: np.ndarray) -> PowerTransformer:
    """Return scikit-learn's transformer with given powers."""
    transformer = PowerTransformer(standardize=False).fit(
        np.random.default_rng(0).normal(size=(9, len(powers)))
    )
    transformer.lambdas_ = powers
    return transformer


# ---------------------------------------------------------------- powers


def test_powers_are_those_of_yeo_and_johnson() -> None:
    powers = np.array([-1.5, 0.0, 0.5, 1.0, 2.0, 3.25])
    z = np.random.default_rng(0).normal(scale=3.0, size=(50, 6))
    z[0], z[1], z[2, 1:4] = 0.0, -1e-9, np.nan
    found = yeo_johnson(z, powers)
    assert_allclose(found, power_transformer(powers).transform(z), rtol=1e-9, atol=1e-15)
    assert_array_equal(found[:, 3], z[:, 3])
    assert np.all(np.isfinite(yeo_johnson(np.array([[1e300] * 6, [-1e300] * 6]), powers)))


def test_powers_of_very_skewed_values_are_those_of_scipys_likelihood() -> None:
    normal = np.random.default_rng(0).normal(size=(400, 4))
    z = StandardScaler().fit_transform(np.exp([1.5, 1.0, 2.0, 0.5] * normal) * [1.0, -1.0, 1.0, -1.0])
    powers = np.arange(-4.0, 6.1, 0.25)
    expected = [powers[np.argmax([yeojohnson_llf(power, column) for power in powers])] for column in z.T]
    assert_array_equal(likeliest_powers(z, np.ones(400)), expected)


def test_two_values_and_constants_keep_their_scale() -> None:
    X = np.column_stack([np.arange(60) % 2, np.full(60, 0.1), np.full(60, 1e9), np.zeros(60)]).astype(float)
    found = fit_features("power", "none", Block(X, np.arange(60) % 3))
    assert found is not None
    assert_array_equal(found.powers, 1.0)
    assert_allclose(found.transform(X)[:, 1:], 0.0, atol=1e-6)
    for reduction in ("none", "components", "discriminants"):
        assert fit_features("power", reduction, Block(X[:, 1:], np.arange(60) % 3)) is None
    # Rounding has no rank.
    X[:, 1] = 1e3 + 1.2e-10 * X[:, 0]
    ranks = fit_features("ranks", "none", Block(X, np.arange(60) % 3))
    assert ranks is not None
    assert np.abs(ranks.transform(X)[:, 1]).max() < 1e-6


# ---------------------------------------------------------------- ranks


def test_scores_are_quantiles_of_mean_ranks() -> None:
    random = np.random.default_rng(0)
    z = np.column_stack([random.permutation(30), np.arange(30) % 4, np.zeros(30)]).astype(float)
    found = along(normal_scores(z, np.ones(30)), z)
    for column, scores in zip(z.T, found.T, strict=True):
        expected = norm.ppf((rankdata(column) - 0.5) / 30)
        inner = (column > column.min()) & (column < column.max())
        assert_allclose(scores[inner], expected[inner], atol=1e-12)
    # The least and the largest value are apart; a constant has no rank.
    for column, scores in zip(z.T[:2], found.T, strict=False):
        assert_array_equal(scores[column == column.min()], -3.0)
        assert_array_equal(scores[column == column.max()], 3.0)
    assert_array_equal(found[:, 2], 0.0)


def test_scores_between_knots_are_nearly_those_of_all_values() -> None:
    X = np.random.default_rng(0).lognormal(size=(2000, 2))
    curves = normal_scores(X, np.ones(2000))
    expected = norm.ppf((rankdata(X, axis=0) - 0.5) / 2000)
    inner = np.abs(expected) < 2.5
    assert np.abs(along(curves, X) - expected)[inner].max() < 0.1
    # Beyond the rows values stay apart, and gaps stay.
    low, high = X.min(axis=0), X.max(axis=0)
    far = along(curves, np.array([[low[0] - 2.0, high[1] + 5.0], [np.nan, low[1]]]))
    assert_allclose(far, [[-5.0, 8.0], [np.nan, -3.0]])


# ---------------------------------------------------------------- maps


@pytest.mark.parametrize("transform", ["none", "power"])
@pytest.mark.parametrize("reduction", ["none", "components", "standardised components", "discriminants"])
def test_maps_are_those_of_scikit_learn(transform: str, reduction: str) -> None:
    X, y = np.column_stack([WINE[0], np.full(178, 0.1)]), WINE[1]
    some = np.arange(178) % 2 == 0
    codes = np.where(np.arange(178) % 6 == 0, -1, y)
    found = fit_features(transform, reduction, Block(X[some], codes[some]))
    if transform == reduction == "none":
        assert found is None
        return
    assert found is not None
    assert np.any(found.powers != 1.0) == (transform == "power")
    features = power_transformer(found.powers).transform(StandardScaler().fit(X[some]).transform(X))
    if reduction == "none":
        assert_allclose(found.transform(X), features, rtol=1e-6, atol=1e-9)
        return
    # Components of features as they are have their units.
    scaled = StandardScaler().fit(features[some]).transform(features)
    if reduction == "components":
        scaled = features * X[some].std(axis=0)
    if reduction == "discriminants":
        own = some & (codes >= 0)
        analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(scaled[own], codes[own])
        expected = (scaled - scaled[some].mean(axis=0)) @ analysis.scalings_[:, :2]
    else:
        expected = PCA(0.95).fit(scaled[some]).transform(scaled)
    assert_allclose(np.abs(found.transform(X)), np.abs(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("transform", ["power", "ranks"])
@pytest.mark.parametrize("reduction", ["none", "components", "standardised components"])
def test_a_row_of_weight_two_counts_as_two(transform: str, reduction: str) -> None:
    X, y = WINE
    twice = np.arange(178) % 3 == 0
    weighted = fit_features(transform, reduction, Block(X, y, np.where(twice, 2.0, 1.0)))
    both = np.concatenate([np.arange(178), np.flatnonzero(twice)])
    repeated = fit_features(transform, reduction, Block(X[both], y[both]))
    assert weighted is not None
    assert repeated is not None
    assert_allclose(np.abs(weighted.transform(X)), np.abs(repeated.transform(X)), rtol=1e-7, atol=1e-9)


def test_gaps_of_projected_rows_are_filled_by_least_squares() -> None:
    """Rows in the span of three directions are known from any three values or more."""
    random = np.random.default_rng(0)
    directions, _ = np.linalg.qr(random.normal(size=(8, 3)))
    offset = random.normal(size=8)
    features = random.normal(size=(20, 3))
    X = offset + features @ directions.T
    X[np.arange(19), np.arange(19) % 8] = np.nan
    X[19] = np.nan
    found = FeatureMap(np.zeros(8), np.ones(8), np.ones(8), None, offset, directions).transform(X)
    assert_allclose(found[:19], features[:19], atol=1e-10)
    assert np.isnan(found[19]).all()


@pytest.mark.parametrize("transform", ["none", "power", "ranks"])
@pytest.mark.parametrize("reduction", ["none", "components", "standardised components", "discriminants"])
def test_far_rows_and_gaps_have_features(transform: str, reduction: str) -> None:
    X, y = WINE
    change = fit_features(transform, reduction, Block(X, y)) or FeatureMap(
        X[0], np.full(13, 1e-20), np.ones(13), None, None, None
    )
    rows = X[:4].copy()
    rows[0, 0], rows[1], rows[2, 3], rows[3] = 1e300, -1e300, np.nan, np.nan
    found = change.transform(rows)
    assert np.isfinite(found[:2]).all()
    assert np.isnan(found[3]).all()
    # Gaps stay where features are not mixed.
    assert np.isnan(found[2]).sum() == (1 if reduction == "none" else 0)


def test_what_is_tried_depends_on_rows_and_features() -> None:
    random = np.random.default_rng(0)
    names = {reduction for _, reduction in feature_maps(random.normal(size=(50, 4)), 2)}
    assert names == {"none"}
    # Discriminants are fewer than the classes, and no use for two of them.
    assert "discriminants" in {reduction for _, reduction in feature_maps(random.normal(size=(50, 4)), 3)}
    many, gaps = random.normal(size=(50, 300)), random.normal(size=(50, 20))
    wide = feature_maps(many, 2)
    assert wide
    assert all(reduction.endswith("components") for _, reduction in wide)
    many[0, 0] = np.nan
    assert feature_maps(many, 2) == wide
    gaps[0, 0] = np.nan
    assert all(reduction == "none" for _, reduction in feature_maps(gaps, 3))
    assert feature_maps(random.normal(size=(2, 4)), 2) == [("none", "none")]
