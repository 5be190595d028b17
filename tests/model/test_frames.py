"""Tables go in as they are: names of columns, errors with the remedy, and scikit-learn around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn import clone, config_context
from sklearn.model_selection import GridSearchCV

from skmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from skmix.report import evaluate

N = 120


def made() -> pd.DataFrame:
    random = np.random.RandomState(0)
    fare = random.normal(size=N)
    sex = np.where(random.uniform(size=N) < 0.5, "male", "female")
    table = {
        "sex": sex,
        "fare": fare,
        "city": random.choice(list("xyz"), N),
        "weight": np.arange(N) % 3 + 1.0,
    }
    return pd.DataFrame(table | {"survived": np.where(fare + (sex == "male") > 0.5, "yes", "no")})


PEOPLE = made()
COLUMNS = ["sex", "fare", "city"]
SEARCH: dict[str, Any] = {"n_kernels": 1, "covariance_type": "diag", "random_state": 0}


def in_library(library: str, frame: pd.DataFrame) -> Any:
    if library == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    return pytest.importorskip("pyarrow").Table.from_pandas(frame) if library == "pyarrow" else frame


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    "model",
    [
        SharedKernelClassifier(2, random_state=0),
        SharedKernelMixture(2, random_state=0),
        SharedKernelClassifierCV(**SEARCH),
        SharedKernelMixtureCV(**SEARCH),
    ],
    ids=lambda model: type(model).__name__,
)
def test_columns_are_those_that_were_given(model: Any, library: str, tmp_path: Path) -> None:
    X, y, weights = PEOPLE[COLUMNS], PEOPLE["survived"], PEOPLE["weight"]
    expected = model.fit(X, y, sample_weight=weights).score(X, y, weights)
    table = in_library(library, PEOPLE)
    model.fit(table, "survived", sample_weight="weight")
    model.save(tmp_path / "m.skmix")
    for each in (model, load(tmp_path / "m.skmix")):
        assert each.feature_names_in_.tolist() == COLUMNS
        assert each.n_features_in_ == 3
        assert each.score(table, "survived", sample_weight="weight") == pytest.approx(expected, rel=1e-12)
        assert each.score(X, y, weights) == pytest.approx(expected, rel=1e-12)
        assert list(each.sample(2)[0] if hasattr(each, "sample") else COLUMNS) == COLUMNS
        with pytest.raises(
            ValueError, match=r"encodes columns of text or dates: give a data frame with sex, fare, city"
        ):
            each.predict(np.zeros((2, 3)))


def test_text_is_a_value_whatever_it_says_and_nulls_are_missing(tmp_path: Path) -> None:
    frame = PEOPLE.assign(code=np.array(["NA", "None", ""])[np.arange(N) % 3])[["fare", "code"]]
    frame.to_parquet(tmp_path / "t.parquet")
    typed = [frame.astype({"code": each}) for each in ("object", "string", "category")]
    for rows in (
        *typed,
        *(in_library(each, frame) for each in ("polars", "pyarrow")),
        tmp_path / "t.parquet",
    ):
        model = SharedKernelClassifier(3, random_state=0).fit(rows, frame["code"])
        assert model.recipe_["columns"] == {"fare": None, "code": ["", "NA", "None"]}
        assert model.score(rows, frame["code"]) == 1.0
    # The words of a text file are what its frame has no value for.
    gaps = PEOPLE[COLUMNS].assign(city=PEOPLE["city"].where(np.arange(N) % 5 > 0))
    gaps.to_csv(tmp_path / "gaps.csv", index=False, na_rep="NA")
    model = SharedKernelMixture(2, random_state=0).fit(tmp_path / "gaps.csv")
    for rows in (gaps, gaps.convert_dtypes(), pd.read_csv(tmp_path / "gaps.csv"), tmp_path / "gaps.csv"):
        agree(model.score_samples(rows), model.score_samples(gaps))
    with pytest.raises(
        ValueError, match=r"'NA' on row 7; .* missing value, X.replace\({'fare': 'NA'}, float"
    ):
        model.score_samples(gaps.assign(fare=np.where(np.arange(N) == 7, "NA", "1.5")))


def test_a_loaded_model_scores_a_table_by_its_target(tmp_path: Path) -> None:
    table = PEOPLE[[*COLUMNS, "survived", "weight"]]
    table.to_csv(tmp_path / "people.csv", index=False)
    model = SharedKernelClassifier(2, random_state=0)
    model.fit(PEOPLE[COLUMNS], PEOPLE["survived"].to_numpy())
    for rows in (PEOPLE[COLUMNS], tmp_path / "people.csv"):
        with pytest.raises(ValueError, match="have no labels: give y"):
            model.score(rows)
    for rows in (table, tmp_path / "people.csv"):
        model.fit(rows, "survived", "weight").save(tmp_path / "m.skmix")
        loaded = load(tmp_path / "m.skmix")
        assert (loaded.target_name_, loaded.weight_name_) == ("survived", "weight")
        # The number that the command line prints.
        weighted = model.score(PEOPLE[COLUMNS], PEOPLE["survived"], PEOPLE["weight"])
        for test in (table, tmp_path / "people.csv"):
            assert loaded.score(test) == pytest.approx(weighted)
            assert evaluate(loaded, test).accuracy == pytest.approx(weighted)
            assert loaded.score(test, "survived") == model.score(PEOPLE[COLUMNS], PEOPLE["survived"])
    with pytest.raises(ValueError, match="have no labels: give y"):
        SharedKernelClassifier(2).fit(PEOPLE[["fare"]].to_numpy(), PEOPLE["survived"]).score([[1.0]])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("columns", [["fare"], COLUMNS])
def test_only_columns_that_the_fit_knew_may_be_beside_the_features(columns: list[str], library: str) -> None:
    people = PEOPLE[[*columns, "survived", "weight"]].assign(planet="earth")
    table, features = in_library(library, people), in_library(library, PEOPLE[columns])
    with pytest.warns(UserWarning, match="'planet' is 'earth' in all rows and is left out"):
        model = SharedKernelClassifier(2, random_state=0).fit(table, "survived", "weight")
    assert model.ignored_columns_ == ["survived", "weight", "planet"]
    assert_array_equal(model.predict(table), model.predict(features))
    unknown = in_library(library, people.assign(later=1.0))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- later"):
        model.predict(unknown)
    # A model of some columns takes the same tables.
    part = model.marginal(["fare"])
    assert_array_equal(part.predict(table), part.predict(in_library(library, PEOPLE[["fare"]])))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- later"):
        part.predict(unknown)


def test_labels_that_are_made_of_a_feature_do_not_take_its_name() -> None:
    features = PEOPLE[["fare", "weight"]]
    model = SharedKernelClassifier(2, random_state=0).fit(features, features["fare"] > 0.0)
    assert not hasattr(model, "target_name_")
    assert len(model.predict(features)) == N


def test_members_of_a_search_know_the_columns_that_it_ignored() -> None:
    table = PEOPLE[["fare", "survived", "weight"]].assign(site=np.arange(N) % 7)
    search = SharedKernelClassifierCV(**SEARCH, tune=False)
    search.fit(table, "survived", "weight", groups="site")
    assert search.ignored_columns_ == ["survived", "weight", "site"]
    assert_array_equal(search.predict(table), search.predict(table[["fare"]]))
    assert search.score(table) == search.score(table, "survived", "weight")
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- later"):
        search.predict(table.assign(later=1.0))


WRONG: dict[str, tuple[Any, str, str]] = {
    "durations": (
        pd.to_timedelta(np.arange(N), "h"),
        r"X.drop(columns=['new'])",
        r"X.drop('new')",
    ),
    "identifiers": (
        [f"n{row}" for row in range(N)],
        "X.astype({'new': 'category'}). Otherwise, leave it out with X.drop(columns=['new']).",
        "X.cast({'new': polars.Categorical}). Otherwise, leave it out with X.drop('new').",
    ),
    "decimal commas": (
        ["1,5"] * N,
        "another decimal mark, such as '1,5' on row 0. Use X['new'].str.replace(',', '.'); if these are",
        "another decimal mark, such as '1,5' on row 0. Use polars.col('new').str.replace(',', '.'); if these",
    ),
    "infinity": (np.where(np.arange(N) == 7, np.inf, 1.0), *["Column 'new' of X is infinite in row 7,"] * 2),
}


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", WRONG)
def test_errors_name_the_column_and_what_to_do(kind: str, library: str, numeric: bool) -> None:
    values, of_pandas, of_polars = WRONG[kind]
    frame = PEOPLE[["fare"] if numeric else COLUMNS].assign(new=values)
    with pytest.raises(ValueError, match="olumn 'new'") as caught:
        SharedKernelClassifier(2).fit(in_library(library, frame), PEOPLE["survived"])
    assert (of_polars if library == "polars" else of_pandas) in str(caught.value)
    assert "open_rows" not in str(caught.value)


def test_the_remedies_help() -> None:
    def fitted(frame: pd.DataFrame) -> Any:
        return SharedKernelClassifier(2, random_state=0).fit(frame, "survived")

    X = PEOPLE.assign(new=["1,5", "2,5"] * (N // 2))
    assert fitted(X.drop(columns=["new"])).n_features_in_ == 4
    assert fitted(X.astype({"new": "category"})).recipe_["columns"]["new"] == ["1,5", "2,5"]
    assert fitted(X.assign(new=X["new"].str.replace(",", "."))).recipe_["columns"]["new"] is None
    gaps = PEOPLE.assign(new=["1.5", "2.5", "?-"] * (N // 3)).replace({"new": "?-"}, float("nan"))
    assert fitted(gaps).has_gaps_
    mixed = PEOPLE.assign(new=[1, "a", 2] * (N // 3))
    with pytest.raises(
        ValueError, match=r"different types: int, str.*to_numeric.*str}\).astype\({'new': 'cat"
    ):
        fitted(mixed)
    text = mixed.astype({"new": str}).astype({"new": "category"})
    assert fitted(text).recipe_["columns"]["new"] == ["1", "2", "a"]
    assert fitted(mixed.assign(new=pd.to_numeric(mixed["new"], errors="coerce"))).has_gaps_


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("columns", [["fare", "id"], ["fare", "city", "id"]])
def test_columns_that_are_no_measurements_are_told(library: str, columns: list[str]) -> None:
    table = in_library(library, PEOPLE.assign(id=np.arange(N))[columns])
    leave = {"pandas": r"X\.drop\(columns=\['id'\]\)", "polars": r"X\.drop\('id'\)"}[library]
    with pytest.warns(UserWarning, match=f"column 'id' numbers the rows .*leave it out with {leave}") as told:
        SharedKernelMixture(1).fit(table)
    assert len(told) == 1


NUMBERS = PEOPLE[["fare", "weight"]]
TWICE = PEOPLE[["fare", "weight", "fare"]]
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "the labels alone": (
        lambda model: model.fit(PEOPLE[["survived"]], "survived"),
        "No column of X is left as a feature: it has survived, taken as y",
    ),
    "repeated numbers": (lambda model: model.fit(TWICE), "2 columns of X have the name 'fare'"),
    "repeated text": (lambda model: model.fit(PEOPLE[["sex"] * 3]), "3 columns of X have the name 'sex'"),
    "repeated labels": (lambda model: model.fit(TWICE, "fare"), "2 columns of X have the name 'fare'"),
    "repeated new": (lambda model: model.fit(NUMBERS).predict(TWICE), "2 columns of X have the name 'fare'"),
    "new text": (
        lambda model: model.fit(NUMBERS.to_numpy()).predict(PEOPLE[["fare", "city"]]),
        "column 'city' holds text, such as 'x' on row 0; a feature must be a number",
    ),
    "no columns": (lambda model: model.fit(PEOPLE[[]]), "X has no columns."),
    "no rows": (lambda model: model.fit(PEOPLE[:0], "survived"), "X has no rows."),
    "no new rows": (lambda model: model.fit(NUMBERS).predict(NUMBERS[:0]), "X has no rows."),
    "complex numbers": (
        lambda model: model.fit(PEOPLE.assign(fare=PEOPLE["fare"] * 1j)),
        "^column 'fare' holds complex numbers; a feature must be real numbers or categories.$",
    ),
    "all complex": (lambda model: model.fit(NUMBERS * 1j), "^column 'fare' holds complex numbers; [^+]*$"),
    "one group": (
        lambda _: SharedKernelMixtureCV().fit(NUMBERS, groups=np.zeros(N)),
        "groups has one group; a search needs two or more",
    ),
    "path of labels": (
        lambda model: model.fit(NUMBERS, Path("labels.csv")),
        "y is 'labels.csv', but X is a DataFrame: a path needs X to be a file",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_frames_that_are_refused(kind: str) -> None:
    call, message = REFUSED[kind]
    with pytest.raises(ValueError, match=message):
        call(SharedKernelMixture(2, random_state=0))


def test_names_of_several_levels_are_joined() -> None:
    frame = PEOPLE[COLUMNS].set_axis(pd.MultiIndex.from_product([["all"], COLUMNS]), axis=1)
    model = SharedKernelMixture(2, random_state=0).fit(frame)
    assert model.feature_names_in_.tolist() == [f"('all', '{name}')" for name in COLUMNS]
    assert model.score_samples(frame[frame.columns[::-1]]).tolist() == model.score_samples(frame).tolist()


UNKNOWN: dict[str, Callable[[Any, Path], Any]] = {
    "'survived'": lambda model, _: model.fit(PEOPLE, "survivd"),
    "'fares'": lambda model, _: model.predict(PEOPLE[COLUMNS].rename(columns={"fare": "fares"})),
    "'fare'": lambda model, _: model.marginal(["Fares"]),
    "'male'": lambda model, _: model.condition({"sex": "mal"}),
    "'yes'": lambda model, _: model.sample(2, label="yess"),
    "'people.csv'": lambda model, folder: model.predict(folder / "peple.csv"),
    "'m.skmix'": lambda _, folder: load(folder / "m.skmx"),
    "'city'": lambda model, folder: model.fit(folder / "people.csv", "citi"),
}


@pytest.mark.parametrize("meant", UNKNOWN)
def test_a_name_that_is_not_found_brings_up_the_nearest(meant: str, tmp_path: Path) -> None:
    PEOPLE.to_csv(tmp_path / "people.csv", index=False)
    model = SharedKernelClassifier(2, random_state=0).fit(PEOPLE[COLUMNS], PEOPLE["survived"])
    model.save(tmp_path / "m.skmix")
    with pytest.raises(
        (ValueError, FileNotFoundError), match=f"Did you mean {meant}\\?( If the values .*)?$"
    ):
        UNKNOWN[meant](model, tmp_path)


# ---------------------------------------------------------------- scikit-learn around frames


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cat"], 40)
    centres = np.repeat(np.arange(3.0), 40)[:, None] * 2.5
    order = rng.permutation(120)
    return (rng.normal(size=(120, 3)) + centres)[order], y[order]


def as_frame(X: np.ndarray, names: list[str]) -> pd.DataFrame:
    """Return a frame of another index than 0, 1, 2…: rows must be taken by position."""
    return pd.DataFrame(X, columns=names, index=np.arange(len(X))[::-1] * 3)


X, Y = make_rows()
NAMES = ["length", "width", "mass"]
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


ESTIMATORS = [
    SharedKernelClassifier(random_state=0),
    SharedKernelClassifier(feature_sets=[[0, 2], [1]], random_state=0),
    SharedKernelMixture(random_state=0),
    GaussianMixture(3, random_state=0),
    BayesianGaussianMixture(n_components=3, random_state=0),
]
METHODS = ("predict", "predict_proba", "class_log_likelihood", "score_samples", "transform")


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    """Frames keep columns together, arrays rows: sums run in another order, and round otherwise."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_frames_give_what_arrays_give_and_their_names_are_kept(estimator: Any, library: str) -> None:
    frame = in_library(library, as_frame(X, NAMES))
    labels = in_library(library, pd.DataFrame({"kind": Y}))["kind"]
    expected = clone(estimator).fit(X, Y)
    model = clone(estimator).fit(frame, labels)
    assert model.feature_names_in_.tolist() == NAMES
    for method in METHODS:
        if hasattr(model, method):
            agree(getattr(model, method)(frame), getattr(expected, method)(X))
    for rows, names in ((X, [*NAMES[:2], "weight"]), (X[:, ::-1], NAMES[::-1])):
        with pytest.raises(ValueError, match="feature names"):
            model.score_samples(in_library(library, as_frame(rows, names)))
    with pytest.warns(UserWarning, match="valid feature names"):
        model.score_samples(X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", [SharedKernelMixture, SharedKernelMixtureCV])
def test_transformed_rows_are_frames_when_asked_for(kind: type, library: str) -> None:
    model = kind(n_kernels=2, covariance_type="full", random_state=0).set_output(transform=library)
    frame = in_library(library, as_frame(X, NAMES))
    given = frame.copy() if library == "pandas" else frame.clone()
    out = model.fit(frame, Y).transform(frame)
    assert type(out) is type(frame)
    assert list(out.columns) == [f"{kind.__name__.lower()}{k}" for k in range(2)]
    assert list(out.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), model.predict_proba(frame))
    if library == "pandas":
        assert out.index.tolist() == frame.index.tolist()
    assert frame.equals(given)


def test_weights_reach_every_fit_and_score_of_a_search() -> None:
    folds = [(np.arange(60), np.arange(60, 120))]
    with config_context(enable_metadata_routing=True):
        model = SharedKernelClassifier(random_state=0).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"n_kernels": [3, 4]}, cv=folds).fit(X, Y, sample_weight=WEIGHTS)
    for n_kernels, found in zip([3, 4], search.cv_results_["split0_test_score"], strict=True):
        by_hand = SharedKernelClassifier(n_kernels, random_state=0).fit(X[:60], Y[:60], WEIGHTS[:60])
        assert found == by_hand.score(X[60:], Y[60:], WEIGHTS[60:])
    best = clone(search.best_estimator_).fit(X, Y, WEIGHTS)
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))
