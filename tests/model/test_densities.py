"""Marginal and conditional models, filled gaps and kernel scores, against integrals and identities."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import classifier_of, mixture_of, random_classifier, random_mixture, random_product, rows_for
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone

from skmix import SharedKernelClassifier, SharedKernelMixture, load, open_rows
from skmix.engine.records import FloatArray, Parameters
from skmix.features import Arcsinh
from skmix.model.frames import PreparedRows

MAKERS = {"mixture": random_mixture, "classifier": random_classifier, "product": random_product}
each_kind = pytest.mark.parametrize("kind", MAKERS)
any_model = {
    "seed": st.integers(0, 10_000),
    "kind": st.sampled_from(sorted(MAKERS)),
    "covariance_type": st.sampled_from(COVARIANCE_TYPES),
}
reproducible = settings(max_examples=15, deadline=None, derandomize=True)
Model = SharedKernelMixture | SharedKernelClassifier


def described(model: Model) -> list[int]:
    """Return the columns that the model has a density of."""
    sets = getattr(model, "feature_sets_", [list(range(model.n_features_in_))])
    return sorted(column for columns in sets for column in columns)


def with_gaps(random: np.random.Generator, X: FloatArray, model: Model) -> FloatArray:
    """Return rows with gaps, none without an observed value in a column that the model describes."""
    gaps = random.uniform(size=X.shape) < 0.4
    gaps[np.arange(len(X)), random.choice(described(model), size=len(X))] = False
    return np.where(gaps, np.nan, X)


# ---------------------------------------------------------------- marginal


@reproducible
@given(**any_model, data=st.data())
def test_a_marginal_sees_the_others_as_missing(
    seed: int, kind: str, covariance_type: str, data: st.DataObject
) -> None:
    model = MAKERS[kind](seed, covariance_type)
    columns = data.draw(st.lists(st.sampled_from(described(model)), min_size=1, unique=True), label="columns")
    X = rows_for(seed, model.n_features_in_)
    gappy = np.full_like(X, np.nan)
    gappy[:, columns] = X[:, columns]
    part = model.marginal(columns)
    assert type(part) is type(model)
    assert part.covariance_type == covariance_type
    assert part.n_features_in_ == len(columns)
    assert_allclose(part.score_samples(X[:, columns]), model.score_samples(gappy), rtol=1e-9, atol=1e-9)
    assert_allclose(
        part.class_log_likelihood(X[:, columns]), model.class_log_likelihood(gappy), rtol=1e-9, atol=1e-9
    )
    assert_array_equal(part.class_prior_, model.class_prior_)


# ---------------------------------------------------------------- condition


@reproducible
@given(**any_model, data=st.data())
def test_the_chain_rule(seed: int, kind: str, covariance_type: str, data: st.DataObject) -> None:
    model = MAKERS[kind](seed, covariance_type)
    columns = described(model)
    known = data.draw(
        st.lists(st.sampled_from(columns), min_size=1, max_size=len(columns) - 1, unique=True), label="known"
    )
    left = [column for column in range(model.n_features_in_) if column not in known]
    X = rows_for(seed, model.n_features_in_)
    X[:, known] = X[0, known]
    rest = model.condition({column: X[0, column] for column in known})
    assert type(rest) is type(model)
    assert rest.covariance_type == covariance_type
    given_alone = model.marginal(known).score_samples(X[:1, known])
    assert_allclose(
        rest.score_samples(X[:, left]) + given_alone, model.score_samples(X), rtol=1e-9, atol=1e-9
    )
    assert_allclose(rest.class_prior_.sum(), 1.0, rtol=1e-12)
    if kind != "mixture":
        assert_allclose(rest.predict_proba(X[:, left]), model.predict_proba(X), rtol=1e-7, atol=1e-12)
        assert_array_equal(rest.predict(X[:, left]), model.predict(X))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("degrees", [None, 4.0])
def test_the_chain_rule_of_t_kernels(covariance_type: str, degrees: float | None) -> None:
    random, y = np.random.default_rng(0), np.arange(300) % 2
    X = random.standard_t(4, size=(300, 3)) @ random.normal(size=(3, 3)) + 5.0 * y[:, None]
    settings: dict[str, Any] = {"tol": 1e-2, "max_iter": 900, "random_state": 0}
    model = SharedKernelMixture(
        3, covariance_type=covariance_type, tail="t", degrees=degrees, **settings
    ).fit(X, y)
    for row in X[::100]:
        known = model.marginal([2, 0]).score_samples(row[None, [2, 0]])
        rest = model.condition({2: row[2], 0: row[0]})
        assert_allclose(rest.score_samples(row[None, [1]]) + known, model.score_samples(row[None]), rtol=1e-9)
        assert_allclose(rest.class_prior_.sum(), 1.0)
        assert_allclose(model.score_samples([[row[0], np.nan, row[2]]]), known, rtol=1e-9)


def test_a_class_that_the_given_values_rule_out() -> None:
    means = np.array([[0.0, 0.0], [100.0, 5.0]])
    model = mixture_of(Parameters(np.eye(2), means, np.ones(2)), "spherical", [0.5, 0.5])
    ruled = model.condition({0: 100.0})
    assert_array_equal(ruled.class_prior_, [0.0, 1.0])
    assert_allclose(ruled.score_samples([[5.0]]), -0.5 * np.log(2 * np.pi))
    classifier = classifier_of([model], [[0, 1]], 2).condition({0: 100.0})
    assert_array_equal(classifier.predict([[5.0], [-40.0]]), [1, 1])
    assert_array_equal(classifier.predict_proba([[-40.0]]), [[0.0, 1.0]])
    assert_array_equal(classifier.impute([[5.0]]), [[5.0]])


# ---------------------------------------------------------------- gaps


@each_kind
def test_gaps_of_labelled_rows_are_filled_by_their_class(kind: str) -> None:
    """As where no other class is possible; columns of no set keep their gaps."""
    model, random = MAKERS[kind](3), np.random.default_rng(3)
    X = with_gaps(random, rows_for(3, model.n_features_in_), model)
    y = random.choice(model.classes_, size=len(X))
    filled = model.impute(X, y)
    assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    others = np.setdiff1d(np.arange(X.shape[1]), described(model))
    assert_array_equal(np.isnan(filled), np.isnan(X) & np.isin(np.arange(X.shape[1]), others))
    for c, label in enumerate(model.classes_):
        model.class_prior_ = np.eye(3)[c]
        assert_allclose(filled[y == label], model.impute(X[y == label]), rtol=1e-9)


# ---------------------------------------------------------------- names and settings


def frame() -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.RandomState(0)
    y = np.repeat(["x", "y"], 60)
    values = random.normal(size=(120, 4)) + 4.0 * (y == "y")[:, None]
    return pd.DataFrame(values, columns=["a", "b", "c", "d"]), y


def test_features_by_name() -> None:
    X, y = frame()
    model = SharedKernelClassifier(
        feature_sets=[["a", "c"], ["d", "b"]],
        random_state=0,
        max_iter=500,
        reject_below=0.05,
        outlier_label="?",
    ).fit(X, y)
    part = model.marginal(["d", "a"])
    assert_array_equal(part.feature_names_in_, ["d", "a"])
    assert part.feature_sets_ == [[1], [0]]
    assert part.predict(X[["d", "a"]]).shape == (120,)
    rest = model.condition({"b": 0.0})
    assert_array_equal(rest.feature_names_in_, ["a", "c", "d"])
    assert_allclose(
        rest.score_samples(X[["a", "c", "d"]]), model.condition({1: 0.0}).score_samples(X[["a", "c", "d"]])
    )
    with pytest.raises(ValueError, match="feature names should match"):
        rest.predict(X[["a", "b", "c"]])
    with pytest.raises(ValueError, match="features names 'z', but columns are a, b, c, d"):
        model.marginal(["z"])
    with pytest.raises(ValueError, match="given has column 1 more than once"):
        model.condition({"b": 0.0, 1: 0.0})


@each_kind
def test_a_derived_model_can_be_fitted_again(kind: str) -> None:
    X, y = frame()
    start = {"means": X[::40].to_numpy(), "covariances": np.tile(np.eye(4), (3, 1, 1))}
    prior = (2.0, np.diag([1.0, 2.0, 3.0, 4.0]))
    common: dict[str, Any] = {"random_state": 0, "max_iter": 500}
    if kind == "product":
        model: Model = SharedKernelClassifier(feature_sets=[["b", "a"], ["c", "d"]], **common)
    else:
        maker = SharedKernelMixture if kind == "mixture" else SharedKernelClassifier
        model = maker(3, init=start, covariance_prior=prior, **common)
    model.fit(X, y)
    for derived in (model.marginal(["c", "a"]), model.condition({"b": 1.0, "d": 2.0})):
        assert not hasattr(derived, "log_likelihood_")
        names = list(derived.feature_names_in_)
        again = clone(derived).fit(X[names], y)
        assert again.score_samples(X[names]).shape == (120,)
        if kind != "product":
            assert_array_equal(
                np.diag(derived.covariance_prior[1]), [3.0, 1.0] if names[0] == "c" else [1.0, 3.0]
            )
            assert derived.init == "auto"
            assert derived.converged_ is True
            assert derived.n_iter_ == model.n_iter_


# ---------------------------------------------------------------- prepared columns


def prepared(make: type[Model] = SharedKernelMixture, **settings: Any) -> tuple[Any, pd.DataFrame]:
    """Return a model of two numbers on scales and two columns of text, and its training rows."""
    random = np.random.RandomState(0)
    kind = random.choice(3, 600)
    a, b = random.normal(np.array([[0.0, 1.0], [2.0, 4.0], [6.0, -1.0]])[kind].T, 0.6)
    table = {"a": 150.0 * np.sinh(a), "sex": np.where(random.uniform(size=600) < 0.3, "male", "female")}
    table |= {"city": np.array(["x", "y", "z"])[(kind + (b > 0)) % 3], "b": 150.0 * np.sinh(b)}
    X = pd.DataFrame(table, index=np.arange(600) + 7)
    y = kind > 1 if make is SharedKernelClassifier else None
    model = make(3, random_state=0, **{"covariance_type": "full", **settings})
    return model.fit(open_rows(X, transform=Arcsinh(150.0)), y), X


def features(X: pd.DataFrame) -> FloatArray:
    """Return the features of `prepared`: numbers on their scales, a 0/1 feature or one for each category."""
    cities = [X["city"] == city for city in "xyz"]
    return np.c_[np.arcsinh(X["a"] / 150.0), X["sex"] == "male", *cities, np.arcsinh(X["b"] / 150.0)].astype(
        float
    )


def log_density_of(model: Any, rows: FloatArray, kept: list[int]) -> FloatArray:
    kernels = zip(model.means_[:, kept], model.covariances_[:, kept][..., kept], strict=True)
    logs = [multivariate_normal(*kernel).logpdf(rows[:, kept]) for kernel in kernels]
    return np.asarray(logsumexp(np.transpose(logs), axis=1, b=model.weights_[:, 0]))


OF_COLUMN = {"a": [0], "sex": [1], "city": [2, 3, 4], "b": [5]}


@pytest.mark.parametrize("kept", [["b", "sex"], ["city", "a"], ["city"], [3, 1, 0]])
def test_models_of_some_columns_keep_their_preparation(kept: list[Any], tmp_path: Path) -> None:
    model, X = prepared()
    names = [X.columns[each] if isinstance(each, int) else each for each in kept]
    own = [feature for name in names for feature in OF_COLUMN[name]]
    part = model.marginal(kept)
    part.save(tmp_path / "m")
    expected = log_density_of(model, features(X), own)
    for each in (part, load(tmp_path / "m")):
        assert_allclose(each.score_samples(X[names]), expected, rtol=1e-6)
        assert list(each.sample(3)[0]) == names
    given = X.iloc[5].drop(names)
    rest = model.condition(given.to_dict())
    rest.save(tmp_path / "m")
    rows = X.assign(**given)
    known = [feature for name in given.index for feature in OF_COLUMN[name]]
    expected = log_density_of(model, features(rows), list(range(6)))
    expected -= log_density_of(model, features(rows), known)
    left = [name for name in X if name in names]
    for each in (rest, load(tmp_path / "m")):
        assert_allclose(each.score_samples(X[left]), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"tail": "t", "degrees": 5.0}, {"covariance_type": "tied"}])
def test_drawn_rows_are_columns_in_their_units(settings: dict[str, Any]) -> None:
    model, X = prepared(**settings)
    drawn, _ = model.sample(20_000)
    assert list(drawn) == list(X)
    weights, means = model.weights_[:, 0], model.means_
    mean = features(drawn).mean(axis=0)
    # Means of the features are shares of categories; five standard errors of the draws.
    assert_allclose(mean, weights @ means, atol=5 * 3.0 / np.sqrt(20_000))
    assert_allclose(mean[1:5], (weights @ means)[1:5], atol=5 * 0.5 / np.sqrt(20_000))
    if not settings:
        expected = log_density_of(model, features(drawn), list(range(6)))
        assert_allclose(model.score_samples(drawn), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["frame", "file", "opened"])
def test_gaps_of_prepared_columns_are_filled_in_their_units(kind: str, tmp_path: Path) -> None:
    model, X = prepared()
    gaps = X.mask(np.random.RandomState(1).uniform(size=X.shape) < 0.3).dropna(how="all")
    gaps.to_csv(tmp_path / "t.csv", index=False)
    opened = open_rows(gaps, transform=Arcsinh(150.0))
    filled = model.impute({"frame": gaps, "file": tmp_path / "t.csv", "opened": opened}[kind])
    if kind == "frame":
        assert_array_equal(filled.index, gaps.index)
    filled.index = gaps.index
    assert filled.notna().all(axis=None)
    for name in X:
        observed = gaps[name].notna()
        assert_array_equal(filled[name][observed], gaps[name][observed])
    # Arrays of features come back so.
    rows = features(gaps)
    for name, own in OF_COLUMN.items():
        rows[np.ix_(gaps[name].isna(), own)] = np.nan
    expected = model.impute(PreparedRows(rows))
    assert_allclose(filled["b"], 150.0 * np.sinh(expected[:, 5]), rtol=1e-7)
    assert_array_equal(filled["city"], np.array(["x", "y", "z"])[expected[:, 2:5].argmax(axis=1)])
    assert_array_equal(filled["sex"] == "male", expected[:, 1] > 0.5)


def test_columns_without_gaps_come_back_as_they_were() -> None:
    _, X = prepared()
    numbers = np.arange(600) % 3
    whole = {
        "flag": numbers > 1,
        "maybe": pd.array(numbers > 1, "boolean"),
        "count": pd.array(numbers, "Int64"),
    }
    whole |= {"kind": pd.Categorical(X["city"], ["z", "y", "x"]), "text": X["city"].astype("string")}
    given = pd.DataFrame({"gap": X["b"].mask(numbers == 0), **whole}, index=X.index[::-1])
    model = SharedKernelMixture(2, random_state=0).fit(given)
    filled = model.impute(given)
    assert filled["gap"].notna().all()
    pd.testing.assert_frame_equal(filled[[*whole]], given[[*whole]])
    # A category that the model does not know is a gap.
    with pytest.warns(UserWarning, match="'text' has categories that the model does not know"):
        assert set(model.impute(given.replace({"text": {"z": "new"}}))["text"]) <= {"x", "y", "z"}


# ---------------------------------------------------------------- bad input


def prepared_mixture(_: int) -> Any:
    return prepared()[0]


@pytest.mark.parametrize(
    ("make", "method", "given", "message"),
    [
        (random_mixture, "marginal", [], "features is empty"),
        (random_mixture, "marginal", "ab", "list of columns, got 'ab'"),
        (random_mixture, "marginal", 3, "list of columns, got 3"),
        (random_mixture, "marginal", [0, 4], r"features has column 4, but X has 4 feature\(s\)"),
        (random_mixture, "marginal", [-1], "features has column -1"),
        (random_mixture, "marginal", [1, 1], "features has column 1 more than once"),
        (random_mixture, "marginal", ["a"], "features names 'a', but X has no feature names"),
        (random_mixture, "marginal", [1.5], "has 1.5, which is not a column"),
        (random_mixture, "marginal", [True], "has True, which is not a column"),
        (random_mixture, "condition", {}, "given is empty"),
        (random_mixture, "condition", [1], "a dict from columns to values"),
        (random_mixture, "condition", {0: np.nan}, "given has nan for column 0"),
        (random_mixture, "condition", {0: "one"}, "given has 'one' for column 0"),
        (random_mixture, "condition", {7: 0.0}, "given has column 7, but X has 4"),
        (random_mixture, "condition", dict.fromkeys(range(4), 0.0), "all 4 columns"),
        (random_product, "marginal", [0, 2], "column 2 is in no feature set"),
        (random_product, "condition", {5: 0.0}, "column 5 is in no feature set"),
        (random_product, "condition", dict.fromkeys([0, 1, 3, 4], 0.0), r"\[0, 1, 3, 4\]"),
        (prepared_mixture, "condition", {"city": "Mars"}, "'Mars' .*'city', .* had only 'x', 'y', 'z'"),
        (prepared_mixture, "condition", {"city": None}, "None for column 'city'"),
        (prepared_mixture, "condition", {"a": "x"}, "'x' for column 'a', which is not a finite number"),
        (prepared_mixture, "condition", {"city=y": 1.0}, "'city=y', one of the categories of column 'city'"),
        (prepared_mixture, "marginal", ["city=y", "a"], "'city=y', one of the categories of column 'city'"),
        (prepared_mixture, "marginal", [4], r"column 4, but X has 4 column\(s\)"),
    ],
)
def test_bad_features_and_conditions(make: Any, method: str, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(make(0), method)(given)


# ---------------------------------------------------------------- rows by themselves


@pytest.mark.parametrize("tail", [None, "t"])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_features", [3, 18])
def test_the_score_of_a_row_does_not_depend_on_the_others(
    covariance_type: str, n_features: int, tail: str | None
) -> None:
    """To the last bit, in memory on the host: in chunks of any size, in any order, with and without gaps."""
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, n_features)) + 4.0 * random.integers(3, size=(3000, 1))
    y = random.integers(2, size=3000)
    model = SharedKernelClassifier(
        6, covariance_type=covariance_type, tail=tail, random_state=0, max_iter=3, tol=0.0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    X[::40] *= 1e6
    for rows in (X, np.where(random.uniform(size=X.shape) < 0.1, np.nan, X)):
        rows = rows[~np.isnan(rows).all(axis=1)]
        scores, shares = model.score_samples(rows), model.predict_proba(rows)
        for size, n_rows in ((1, 20), (2, 40), (63, 1000), (64, 1000), (1999, 3000)):
            cuts = [rows[a : a + size] for a in range(0, min(n_rows, len(rows)), size)]
            found = np.concatenate([model.score_samples(cut) for cut in cuts])
            assert_array_equal(found, scores[: len(found)])
            found = np.concatenate([model.predict_proba(cut) for cut in cuts])
            assert_array_equal(found, shares[: len(found)])
        order = random.permutation(len(rows))
        assert_array_equal(model.score_samples(rows[order]), scores[order])
