"""Estimators on files: the same model and the same answers as from arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
    open_rows,
)
from skmix.io import readers as reader_module
from skmix.report import evaluate

RANDOM = np.random.default_rng(0)
NAMES = np.array(["ash", "elm", "oak"])[RANDOM.integers(0, 3, 500)]
CENTRES = {"ash": [0.0, 0.0, 1.0], "elm": [3.0, 0.0, 0.0], "oak": [0.0, 4.0, 0.0]}
X = np.array([CENTRES[name] for name in NAMES]) + RANDOM.normal(size=(500, 3))
WEIGHTS = RANDOM.uniform(0.5, 2.0, 500)
SETTINGS = {"n_kernels": 4, "random_state": 0, "tol": 1e-3}


@pytest.fixture(params=["folder", "zarr"])
def rows(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return X, y and weights of the same rows, as `fit` takes them, and X as the file orders its columns."""
    kind = request.param
    monkeypatch.setattr(reader_module, "BLOCK_BYTES", 3000)
    if kind == "zarr":
        zarr = pytest.importorskip("zarr", reason="zarr is not installed")
        np.save(tmp_path / "labels.npy", NAMES)
        rows = zarr.create_array(str(tmp_path / "rows"), data=X, chunks=(100, 3))
        return rows, tmp_path / "labels.npy", WEIGHTS, X
    table = pa.table({"w": WEIGHTS, "c": X[:, 2], "a": X[:, 0], "species": NAMES, "b": X[:, 1]})
    (tmp_path / "rows").mkdir()
    pq.write_table(table[:123], tmp_path / "rows" / "part-0.parquet")
    pq.write_table(table[123:], tmp_path / "rows" / "part-1.parquet")
    return tmp_path / "rows", "species", "w", X[:, [2, 0, 1]]


def test_a_classifier_learns_and_predicts_from_files(rows, tmp_path: Path) -> None:
    there_rows, y, weights, columns = rows
    here = SharedKernelClassifier(**SETTINGS, reject_below=0.05, outlier_label="?")
    here.fit(columns, NAMES, sample_weight=WEIGHTS)
    there = SharedKernelClassifier(**here.get_params()).fit(there_rows, y, sample_weight=weights)
    assert np.allclose(there.means_, here.means_, rtol=1e-9, atol=1e-9)
    assert there.log_likelihood_ == pytest.approx(here.log_likelihood_, rel=1e-9)
    assert there.threshold_ == pytest.approx(here.threshold_, rel=1e-9)
    assert np.array_equal(there.classes_, here.classes_)
    assert there.classes_.dtype == here.classes_.dtype
    if isinstance(y, str):
        # The weights are a column like any other at prediction: names tell the features.
        assert there.feature_names_in_.tolist() == ["c", "a", "b"]
    assert np.array_equal(there.predict(there_rows), here.predict(columns))
    for method in ("predict_proba", "predict_log_proba", "score_samples"):
        ours, theirs = getattr(there, method)(there_rows), getattr(here, method)(columns)
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, rtol=1e-8, atol=1e-8), method
    assert there.score(there_rows, y) == pytest.approx(here.score(columns, NAMES))
    assert there.bic(there_rows, y) == pytest.approx(here.bic(columns, NAMES))
    there.save(tmp_path / "model.skmix")
    assert np.array_equal(load(tmp_path / "model.skmix").predict(there_rows), here.predict(columns))


def test_scores_and_first_batches_take_files_and_what_they_were_opened_with(rows) -> None:  # type: ignore[no-untyped-def]
    there_rows, y, weights, columns = rows
    arrays, opened = (columns, NAMES, WEIGHTS), (open_rows(there_rows, label=y, weight=weights),)
    for kind, others in ((SharedKernelMixture, ()), (SharedKernelClassifier, ("calibrate",))):
        here, there = kind(**SETTINGS).fit(*arrays), kind(**SETTINGS).fit(*opened)
        first = {"classes": np.unique(NAMES)}
        begun = clone(here).partial_fit(*arrays[:2], **first, sample_weight=WEIGHTS)
        for given in (opened, (there_rows, y, weights)):
            for method in ("score", "bic", "aic", *others):
                mine, theirs = getattr(here, method)(*arrays), getattr(there, method)(*given)
                if method == "calibrate":
                    mine, theirs = mine.temperature_, theirs.temperature_
                assert theirs == pytest.approx(mine, rel=1e-7), method
            weighing = first if given is opened else {**first, "sample_weight": weights}
            streamed = clone(there).partial_fit(*given[:2], **weighing)
            np.testing.assert_allclose(streamed.means_, begun.means_, rtol=1e-6, atol=1e-9)
    # BIC and AIC count a row of weight 2 as two rows.
    mixture, twice = SharedKernelMixture(**SETTINGS).fit(X, NAMES), np.repeat(np.arange(500), 2)
    for measure in (mixture.score, mixture.bic, mixture.aic):
        assert measure(X, NAMES, np.full(500, 2.0)) == pytest.approx(measure(X[twice], NAMES[twice]))
    for weights, message in ((-WEIGHTS, "egative"), (0 * WEIGHTS, "at least one non-zero")):
        for score in (here.score, mixture.score):
            with pytest.raises(ValueError, match=message):
                score(open_rows(X, label=NAMES, weight=weights))


@pytest.mark.parametrize("kind", ["int64", "bool", "dictionary", "objects", "nan"])
def test_rows_of_a_file_without_a_label(kind: str, tmp_path: Path) -> None:
    """Nulls of Parquet files, None and NaN of arrays; some blocks have no label at all."""
    codes = np.unique(NAMES, return_inverse=True)[1] - 1  # -1 is a class where null marks the others
    labels = {"nan": codes.astype(float), "bool": codes > 0}
    labels |= {"int64": codes + 2**60}
    known = labels.get(kind, NAMES).astype(object)
    known[(np.arange(500) % 3 == 0) | (np.arange(500) > 390)] = None
    here = SharedKernelClassifier(**SETTINGS).fit(X, known)
    if kind in ("objects", "nan"):
        y = known if kind == "objects" else np.array(known, dtype=float)
        rows = open_rows(X, label=y, chunk_rows=77)
    else:
        column = pa.array(known)
        column = column.dictionary_encode() if kind == "dictionary" else column
        pq.write_table(
            pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": column}), tmp_path / "x.parquet"
        )
        rows = open_rows(tmp_path / "x.parquet", label="y", chunk_rows=77)
    there = SharedKernelClassifier(**SETTINGS).fit(rows)
    assert there.classes_.tolist() == here.classes_.tolist()
    assert there.classes_.dtype == here.classes_.dtype
    assert np.allclose(there.means_, here.means_, rtol=1e-9, atol=1e-9)
    assert np.allclose(there.class_prior_, here.class_prior_, rtol=1e-9)
    # One sentence by all doors, with the number of all rows, whatever the size of a block.
    n_missing = np.count_nonzero(known == None)  # noqa: E711
    with pytest.raises(ValueError, match=f"{n_missing} of 500 rows have no label in y .*: leave them out"):
        there.bic(rows, "y" if rows.first.named else y)
    for model, given in ((there, (rows,)), (here, (X, known))):
        for method in (model.score, model.calibrate, model.tune, model.bic):
            with pytest.raises(ValueError, match=f"{n_missing} of 500 rows have no label in y"):
                method(*given)


def test_rows_without_a_label_are_no_errors_of_a_score() -> None:
    labels = np.where(np.arange(500) < 200, -1, 1 + (NAMES == "oak"))
    model = SharedKernelClassifier(**SETTINGS).fit(X, labels)
    for rows in ((X, labels), (open_rows(X, label=labels),)):
        with pytest.raises(ValueError, match="200 of 500 rows have no label in y"):
            model.score(*rows)
    with pytest.raises(ValueError, match="rows of X have no labels: give y"):
        model.score(open_rows(X))
    model.set_params(reject_below=0.01, outlier_label=-1)
    for each in (model, SharedKernelClassifierCV(model, n_kernels=[4], tune=False, random_state=0)):
        each.fit(X[200:], labels[200:])
        assert each.score(X, labels) == np.mean(each.predict(X) == labels)


def test_text_columns_of_frames_and_files_give_the_same_model(tmp_path: Path) -> None:
    colour = np.where(NAMES == "oak", "red", np.where(X[:, 0] > 1.0, "green", "blue"))
    frame = pd.DataFrame({"a": X[:, 0], "colour": colour, "b": X[:, 1], "species": NAMES})
    for name, part in (("one.csv", frame[:300]), ("two.csv", frame[300:])):
        part.to_csv(tmp_path / name, index=False)
    encoded = np.column_stack([X[:, 0], *(colour == each for each in ("blue", "green", "red")), X[:, 1]])
    settings: dict[str, Any] = {"covariance_type": "diag", "random_state": 0}
    both = [tmp_path / "one.csv", tmp_path / "two.csv"]
    here = SharedKernelClassifier(3, **settings).fit(encoded, NAMES)
    expected, right = here.predict_proba(encoded), here.predict(encoded) == NAMES
    kinds = {"a": None, "colour": ["blue", "green", "red"], "b": None}
    features = frame[["a", "colour", "b"]]
    for rows, y in ((features, NAMES), (both, "species"), (both, NAMES), (tmp_path, "species")):
        given = features if y is NAMES and rows is features else open_rows(rows, columns=list(kinds), label=y)
        model = SharedKernelClassifier(3, **settings).fit(given, y if given is features else None)
        assert model.preparation_ == {"transform": "none", "columns": kinds, "missing": []}
        # As in scikit-learn, the columns that were given; there are five features.
        assert model.feature_names_in_.tolist() == list(kinds)
        assert (model.n_features_in_, model.means_.shape[1]) == (3, 5)
        for new in (both, features, frame):
            np.testing.assert_allclose(model.predict_proba(new), expected, rtol=1e-6)
        for array in (encoded, encoded[:, :3]):
            with pytest.raises(ValueError, match="give a data frame with a, colour, b"):
                model.predict(array)
        assert model.score(both, "species") == model.score(frame, NAMES) == right.mean()
        assert model.score(both[1], "species") == right[300:].mean()
        share = pytest.approx(right @ WEIGHTS / WEIGHTS.sum())
        weighted = open_rows(both, label="species", weight=WEIGHTS)
        for weighing in ((both, "species", WEIGHTS), (frame, NAMES, WEIGHTS), (weighted,)):
            assert model.score(*weighing) == share
            assert evaluate(model, *weighing).accuracy == share
    # Extra columns do not count, whatever the model; a column that is missing or elsewhere is refused.
    for own in (features, features[["b", "a"]]):
        model = SharedKernelClassifier(3, **settings).fit(own, NAMES)
        np.testing.assert_array_equal(model.predict(frame[[*own, "species"]]), model.predict(own))
        with pytest.raises(ValueError, match="yet now missing:\n- b"):
            model.predict(frame[["a", "colour"]])
    with pytest.warns(
        UserWarning, match="'colour' has categories that the model does not know, in 500 rows: teal"
    ):
        SharedKernelClassifier(3, **settings).fit(features, NAMES).predict(features.assign(colour="teal"))
    frame[300:].assign(species=np.where(np.arange(200) < 3, None, NAMES[300:])).to_csv(both[1], index=False)
    with pytest.raises(ValueError, match="3 of 500 rows have no label in y"):
        model.score(both, "species")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_numbers_that_are_text_are_read_alike_in_fits_and_predictions(library: str) -> None:
    make = pytest.importorskip(library)
    numbers = X[:, :2].copy()
    numbers[7, 1] = np.nan
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(np.isnan(numbers[:, 1]), "NA", X[:, 1].astype(str))})
    convert = {"polars": "from_pandas", "pyarrow": "table"}.get(library, "DataFrame")
    here = SharedKernelClassifier(**SETTINGS).fit(numbers, NAMES)
    there = SharedKernelClassifier(**SETTINGS).fit(getattr(make, convert)(frame), NAMES)
    for names in (["a", "b"], ["a", "c", "b"]):
        rows = getattr(make, convert)(frame.assign(c="other")[names])
        np.testing.assert_array_equal(there.predict_proba(rows), here.predict_proba(numbers))
    with pytest.raises(ValueError, match=r"column 'b' holds text, such as 'low' on row 0; a feature must be"):
        there.predict(getattr(make, convert)(frame.assign(b="low")))
    with pytest.raises(ValueError, match=r"X holds text: .*Give a data frame"):
        here.predict(frame.to_numpy())


def test_every_way_to_learn_takes_text_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "size": np.where(X[:, 1] > 1.0, "large", "small")})
    encoded = np.column_stack([X[:, 0], X[:, 1] <= 1.0])
    settings: dict[str, Any] = {"covariance_type": "diag", "random_state": 0, "tol": 1e-2}

    def streamed(rows: Any) -> SharedKernelClassifier:
        model = SharedKernelClassifier(3, **settings)
        model.partial_fit(rows[:300], NAMES[:300], classes=["ash", "elm", "oak"])
        return model.partial_fit(rows[300:], NAMES[300:]).calibrate(rows, NAMES)

    def searched(rows: Any) -> SharedKernelMixtureCV:
        return SharedKernelMixtureCV(n_kernels=[2], covariance_type="diag", random_state=0).fit(rows, NAMES)

    # Columns may be called by numbers, as in a frame without a header.
    numbered = frame.set_axis([0, "size"], axis=1)
    named = SharedKernelMixture(3, **settings).fit(numbered)
    np.testing.assert_array_equal(named.predict(numbered[["size", 0]]), named.predict(numbered))
    for learn, method in ((streamed, "predict_proba"), (searched, "score_samples")):
        model, plain = learn(frame), learn(encoded)
        assert model.preparation_["columns"] == {"a": None, "size": ["large", "small"]}
        model.save(tmp_path / "model.skmix")
        for each in (model, load(tmp_path / "model.skmix")):
            found = getattr(each, method)(frame.assign(species=NAMES))
            np.testing.assert_allclose(found, getattr(plain, method)(encoded), rtol=1e-9)
