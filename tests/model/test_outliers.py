"""Outliers in tables with rare categories and other features of few values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import skmix
from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.report import evaluate, outliers

SHARE = 0.01
pytestmark = pytest.mark.filterwarnings("ignore:.*categories that the model does not know:UserWarning")


def with_numbers(n: int, random: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    y = random.integers(0, 2, n)
    return pd.DataFrame(random.normal(size=(n, 3)) + y[:, None], columns=["age", "b", "c"]), y


def titles(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Passengers; one in forty has one of 14 rare titles."""
    random = np.random.default_rng(seed)
    woman, child, grade = random.random(n) < 0.36, random.random(n) < 0.1, random.integers(1, 4, n)
    usual = np.where(woman, np.where(random.random(n) < 0.5, "Miss", "Mrs"), np.where(child, "Master", "Mr"))
    shares = 1.0 / np.arange(1, 15) ** 1.5
    rare = random.choice([f"title {i}" for i in range(14)], n, p=shares / shares.sum())
    frame = {
        "age": np.where(child, random.uniform(0, 14, n), 16 + random.gamma(3.0, 6.0, n)).round(),
        "fare": np.exp(random.normal(4.4 - 0.8 * grade, 0.7)).round(2),
        "relatives": random.poisson(0.3 + child),
        "grade": grade,
        "sex": np.where(woman, "female", "male"),
        "title": np.where(random.random(n) < 0.025, rare, usual),
    }
    survived = random.random(n) < 1.0 / (1.0 + np.exp(1.5 + 0.6 * grade - 2.5 * woman - child))
    return pd.DataFrame(frame), survived.astype(int)


def single_rows(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """In 800 rows, each of 24 categories has a single row."""
    random = np.random.default_rng(seed)
    frame, y = with_numbers(n, random)
    title = random.choice(["u", "v"], n).astype(object)
    title[random.permutation(n)[: 24 * (n // 800)]] = np.resize([f"r{i}" for i in range(24)], 24 * (n // 800))
    return frame.assign(title=title), y


def new_words(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Three rows in a hundred have a category of their own, which no other row has."""
    random = np.random.default_rng(seed)
    frame, y = with_numbers(n, random)
    words = np.array([f"{seed}-{i}" for i in range(n)])
    title = np.where(random.random(n) < 0.03, words, random.choice(["u", "v"], n))
    return frame.assign(title=title), y


def zeros_and_ones(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, of which some are nearly always zero."""
    random = np.random.default_rng(seed)
    frame, y = with_numbers(n, random)
    rare = {f"rare {i}": (random.random(n) < 0.003).astype(float) for i in range(12)}
    some = {f"some {i}": (random.random(n) < 0.1 * (i + y)).astype(float) for i in range(1, 4)}
    return frame.assign(**rare, **some, count=random.poisson(0.05, n), same=1.0), y


MAKERS = (titles, single_rows, new_words, zeros_and_ones)


def prepared(frame: pd.DataFrame) -> pd.DataFrame:
    text = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.astype(dict.fromkeys(text, "category"))


def fitted(X: pd.DataFrame, y: np.ndarray, weights: Any = None, **settings: Any) -> Any:
    settings = {"reject_below": SHARE, "outlier_label": -1, "random_state": 0} | settings
    return SharedKernelClassifier(**settings).fit(prepared(X), y, sample_weight=weights)


def planted(frame: pd.DataFrame, title: str | None = None) -> pd.DataFrame:
    """Return rows of an impossible age, and with this title if one is given."""
    frame = frame.assign(age=400.0)
    return frame if title is None else frame.assign(title=title)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:column '(rare|same)")  # which are constant in these rows
@pytest.mark.parametrize("make", MAKERS)
def test_the_share_of_new_rows_and_planted_ages(make: Any) -> None:
    shares = []
    for seed in range(3):
        X, y = make(800, seed)
        new, truth = make(2000, 100 + seed)
        model = fitted(X, y)
        predicted = model.predict(new)
        shares.append(np.mean(predicted == -1))
        # An age of 400 is one in any row: with usual, rare and unseen categories.
        assert np.all(model.predict(planted(new)) == -1)
        if "title" in X:
            rarest = X["title"].value_counts().index[-1]
            assert np.all(model.predict(planted(new, rarest)) == -1)
            assert np.all(model.predict(planted(new, "never seen")) == -1)
            assert np.mean(model.predict(new.assign(title="never seen")) == -1) < 3 * SHARE
        # Everything that says which rows are outliers says the same.
        flags = outliers(model, new)
        assert_array_equal(flags, predicted == -1)
        found = evaluate(model, new, truth)
        assert found.outliers == pytest.approx(flags.mean())
        assert found.refused is not None
        assert found.refused.sum() == flags.sum()
        assert found.accuracy == pytest.approx(model.score(new, truth))
        # Densities, probabilities and classes are those of the model without a threshold.
        plain = fitted(X, y, reject_below=None, outlier_label=None)
        assert_array_equal(model.score_samples(new), plain.score_samples(new))
        assert_array_equal(model.predict_proba(new), plain.predict_proba(new))
        assert_array_equal(predicted, np.where(flags, -1, plain.predict(new)))
    assert SHARE / 2.5 < np.mean(shares) < 2.0 * SHARE
    assert model.reasons(planted(new[:1])).in_words()["far"][0].startswith("age ")


def test_a_rare_category_alone_makes_no_outlier() -> None:
    X, y = titles(1000, 0)
    new = titles(4000, 1)[0]
    model = fitted(X, y)
    flags = outliers(model, new)
    assert SHARE / 4 < flags.mean() < 2.5 * SHARE
    assert np.all(outliers(model, planted(new)))
    usual = new["title"].isin(["Mr", "Mrs", "Miss", "Master"])
    assert 20 < np.sum(~usual) < 200
    assert np.mean(flags[~usual]) < 0.15
    # Without its title, a row with a rare one is no outlier either, unless it is one otherwise.
    assert np.mean(flags[~usual] & ~outliers(model, new[~usual].assign(title=None))) < 0.15


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-9])
def test_the_variance_of_a_rare_value_is_that_of_its_step_and_of_its_rows(unit: float) -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 5)), np.repeat([0, 1], 200)
    for column, n_rows in ((1, 1), (2, 3), (3, 30), (4, 199)):
        X[:, column] = 7.0 * unit
        X[random.permutation(400)[:n_rows], column] = 12.0 * unit
    X[:, 1] = np.where(np.arange(400) == 17, -2.0 * unit, 0.0)
    model = SharedKernelClassifier(2, reject_below=0.1, random_state=0).fit(X, y)
    variances = (model.outlier_blur_**2).sum(axis=0) / unit**2
    # A step costs 1 / (2 · variance) = 6 n / (n + 6) nats.
    steps, n_rows = np.array([2.0, 5.0, 5.0, 5.0]), np.array([1, 3, 30, 199])
    assert variances[0] == 0.0
    assert_allclose(variances[1:], steps**2 * (n_rows + 6) / (12 * n_rows), rtol=1e-9)


def flagged(model: Any, X: np.ndarray) -> np.ndarray:
    """Return which rows have a density below the threshold, one row and kernel after the other."""
    blur = model.outlier_blur_
    variances = np.sum(blur**2, axis=0)
    scores = []
    for row in X:
        seen = np.flatnonzero(~np.isnan(row))
        logs = []
        for part, features in zip(model.models_, model.feature_sets_, strict=True):
            inside = [features.index(d) for d in seen if d in features]
            kept = [features[d] for d in inside]
            covariances = np.asarray(part.covariances_)
            kind, n_kernels = part.covariance_type_, len(part.means_)
            added = (blur.T @ blur)[np.ix_(kept, kept)]
            joint = []
            for k in range(n_kernels):
                if kind == "full":
                    P = covariances[k]
                elif kind == "tied":
                    P = covariances
                else:
                    P = np.diag(np.broadcast_to(covariances[k], len(features)))
                normal = multivariate_normal(part.means_[k, inside], P[np.ix_(inside, inside)] + added)
                joint.append(np.log(part.weights_[k]) + normal.logpdf(row[kept]))
            logs.append(logsumexp(joint, axis=0))
        wide = seen[variances[seen] > 0]
        score = logsumexp(np.log(model.class_prior_) + np.sum(logs, axis=0))
        scores.append(score + 0.5 * np.log(2 * np.pi * variances[wide]).sum())
    return np.array(scores) < model.threshold_


@pytest.mark.parametrize(
    ("kind", "sets"),
    [
        ("full", None),
        ("tied", None),
        ("diag", None),
        ("spherical", None),
        ("full", [[0, 3, 4], [1, 2]]),
    ],
)
def test_flags_are_those_of_densities_one_by_one(tmp_path: Path, kind: Any, sets: Any) -> None:
    random = np.random.default_rng(3)
    y = np.repeat([0, 1], 100)
    X = random.normal(size=(200, 5)) + y[:, None]
    X[:, 3:] = random.random((200, 2)) < [0.02, 0.1]
    settings: Any = {"random_state": 0, "covariance_type": kind, "feature_sets": sets}
    model = SharedKernelClassifier(3, reject_below=0.3, **settings).fit(X, y)
    new = random.normal(size=(60, 5))
    new[:, 3:] = random.random((60, 2)) < 0.3
    if kind in ("full", "diag"):
        new[::4, 0], new[::3, 3] = np.nan, np.nan
    expected = flagged(model, new)
    assert 0.1 < expected.mean() < 0.9
    assert_array_equal(outliers(model, new), expected)
    model.save(tmp_path / "model")
    assert_array_equal(outliers(skmix.load(tmp_path / "model"), new), expected)


def test_the_unit_of_weights_does_not_matter() -> None:
    X, y = single_rows(800, 0)
    new = single_rows(2000, 1)[0]
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 800)
    weights[:40] = 0.0
    one, two = (outliers(fitted(X, y, weights=unit * weights), new) for unit in (1.0, 1e-3))
    assert np.mean(one != two) < 0.003
    assert 0.003 < one.mean() < 0.03


def test_streams_of_rare_values() -> None:
    model = SharedKernelClassifier(2, reject_below=SHARE, outlier_label=-1, random_state=0)
    for seed in range(6):
        X, y = zeros_and_ones(500, seed)
        model.partial_fit(X, y, [0, 1])
    new = zeros_and_ones(4000, 100)[0]
    assert np.all(model.predict(planted(new)) == -1)
    assert 0.002 < np.mean(model.predict(new) == -1) < 0.03


def test_conditional_models_refuse_nearly_the_same_rows() -> None:
    X, y = single_rows(800, 0)
    new = single_rows(2000, 1)[0]
    model = fitted(X, y, reject_below=0.1)
    new["b"] = 0.25
    rest = model.condition({"b": 0.25})
    assert np.mean(rest.predict(new.drop(columns="b")) != model.predict(new)) < 0.03
    new["title"] = "u"
    rest = model.condition({"title": "u"})
    assert np.mean(rest.predict(new.drop(columns="title")) != model.predict(new)) < 0.03
    assert np.all(rest.predict(planted(new.drop(columns="title"))) == -1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [titles, single_rows])
def test_searches_keep_the_share(make: Any) -> None:
    """Their feature maps may mix the features."""
    X, y = make(800, 0)
    new, truth = make(4000, 100)
    asked = SharedKernelClassifier(reject_below=SHARE, outlier_label=-1)
    search = SharedKernelClassifierCV(asked, random_state=0, cv=2, n_members=1).fit(prepared(X), y)
    flags = outliers(search, new)
    assert_array_equal(search.predict(new) == -1, flags)
    assert evaluate(search, new, truth).outliers == pytest.approx(flags.mean())
    assert SHARE / 4 < flags.mean() < 2.5 * SHARE
    assert np.all(outliers(search, planted(new)))
    assert np.all(outliers(search, planted(new, X["title"].value_counts().index[-1])))
