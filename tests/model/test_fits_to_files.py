"""Estimators on files and on rows in blocks: the same model and the same answers as from arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calls import Listed
from models import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
    open_rows,
)
from skmix.data import Source
from skmix.data import read as reader_module
from skmix.engine.rows import summary
from skmix.engine.rows.blocks import Block, BlockRows
from skmix.engine.starts import samples
from skmix.report import evaluate
from skmix.search import mixture as mixture_search

RANDOM = np.random.default_rng(0)
NAMES = np.array(["ash", "elm", "oak"])[RANDOM.integers(0, 3, 500)]
CENTRES = {"ash": [0.0, 0.0, 1.0], "elm": [3.0, 0.0, 0.0], "oak": [0.0, 4.0, 0.0]}
X = np.array([CENTRES[name] for name in NAMES]) + RANDOM.normal(size=(500, 3))
WEIGHTS = RANDOM.uniform(0.5, 2.0, 500)
SETTINGS = {"n_kernels": 4, "random_state": 0, "tol": 1e-3}


@pytest.fixture(params=["folder", "npy"])
def rows(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return X, y and weights of the same rows, as `fit` takes them, and X as the file orders its columns."""
    kind = request.param
    monkeypatch.setattr(reader_module, "_BLOCK_BYTES", 3000)
    if kind == "npy":
        np.save(tmp_path / "labels.npy", NAMES)
        np.save(tmp_path / "rows.npy", X)
        return tmp_path / "rows.npy", tmp_path / "labels.npy", WEIGHTS, X
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
    there.save(tmp_path / "model.skmix")
    assert np.array_equal(load(tmp_path / "model.skmix").predict(there_rows), here.predict(columns))


def test_scores_and_first_batches_take_files_and_what_they_were_opened_with(rows) -> None:  # type: ignore[no-untyped-def]
    there_rows, y, weights, columns = rows
    arrays, opened = (columns, NAMES, WEIGHTS), (open_rows(there_rows, label=y, weight=weights),)
    for kind, others in ((SharedKernelMixture, ("bic", "aic")), (SharedKernelClassifier, ("calibrate",))):
        here, there = kind(**SETTINGS).fit(*arrays), kind(**SETTINGS).fit(*opened)
        first = {"classes": np.unique(NAMES)}
        begun = clone(here).partial_fit(*arrays[:2], **first, sample_weight=WEIGHTS)
        for given in (opened, (there_rows, y, weights)):
            for method in ("score", *others):
                mine, theirs = getattr(here, method)(*arrays), getattr(there, method)(*given)
                if method == "calibrate":
                    mine, theirs = mine.temperature_, theirs.temperature_
                assert theirs == pytest.approx(mine, rel=1e-7), method
            weighing = first if given is opened else {**first, "sample_weight": weights}
            streamed = clone(there).partial_fit(*given[:2], **weighing)
            assert_allclose(streamed.means_, begun.means_, rtol=1e-6, atol=1e-9)
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
        there.score(rows, "y" if rows.first.named else y)
    for model, given in ((there, (rows,)), (here, (X, known))):
        for method in (model.score, model.calibrate, model.tune):
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
        assert model.recipe_ == {"transform": "none", "columns": kinds, "missing": []}
        # As in scikit-learn, the columns that were given; there are five features.
        assert model.feature_names_in_.tolist() == list(kinds)
        assert (model.n_features_in_, model.means_.shape[1]) == (3, 5)
        for new in (both, features):
            assert_allclose(model.predict_proba(new), expected, rtol=1e-6)
        for array in (encoded, encoded[:, :3]):
            with pytest.raises(ValueError, match="give a data frame with a, colour, b"):
                model.predict(array)
        assert model.score(both, "species") == model.score(features, NAMES) == right.mean()
        assert model.score(both[1], "species") == right[300:].mean()
        share = pytest.approx(right @ WEIGHTS / WEIGHTS.sum())
        weighted = open_rows(both, label="species", weight=WEIGHTS)
        for weighing in ((both, "species", WEIGHTS), (features, NAMES, WEIGHTS), (weighted,)):
            assert model.score(*weighing) == share
            assert evaluate(model, *weighing).accuracy == share
    # A column that is unknown or missing is refused.
    for own in (features, features[["b", "a"]]):
        model = SharedKernelClassifier(3, **settings).fit(own, NAMES)
        with pytest.raises(ValueError, match="unseen at fit time:\n- species"):
            model.predict(frame[[*own, "species"]])
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
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(np.isnan(numbers[:, 1]), None, X[:, 1].astype(str))})
    convert = {"polars": "from_pandas", "pyarrow": "table"}.get(library, "DataFrame")
    here = SharedKernelClassifier(**SETTINGS).fit(numbers, NAMES)
    there = SharedKernelClassifier(**SETTINGS).fit(getattr(make, convert)(frame), NAMES)
    assert_array_equal(there.predict_proba(getattr(make, convert)(frame)), here.predict_proba(numbers))
    with pytest.raises(ValueError, match=r"column 'b' holds text, such as 'low' on row 0; a feature must be"):
        there.predict(getattr(make, convert)(frame.assign(b="low")))
    with pytest.raises(ValueError, match=r"X holds text: .*Give a data frame"):
        here.predict(frame.assign(b="low").to_numpy())


def test_streams_take_text_columns(tmp_path: Path) -> None:
    """As fits and searches do, see tests/cli/test_four_ways.py."""
    frame = pd.DataFrame({"a": X[:, 0], "size": np.where(X[:, 1] > 1.0, "large", "small")})
    encoded = np.column_stack([X[:, 0], X[:, 1] <= 1.0])
    settings: dict[str, Any] = {"covariance_type": "diag", "random_state": 0, "tol": 1e-2}
    model, plain = (SharedKernelClassifier(3, **settings) for _ in range(2))
    for each, rows in ((model, frame), (plain, encoded)):
        each.partial_fit(rows[:300], NAMES[:300], classes=["ash", "elm", "oak"])
        each.partial_fit(rows[300:], NAMES[300:]).calibrate(rows, NAMES)
    assert model.recipe_["columns"] == {"a": None, "size": ["large", "small"]}
    model.save(tmp_path / "model.skmix")
    for each in (model, load(tmp_path / "model.skmix")):
        found = each.predict_proba(frame)
        assert_allclose(found, plain.predict_proba(encoded), rtol=1e-9)
    # Columns may be called by numbers, as in a frame without a header.
    numbered = frame.set_axis([0, "size"], axis=1)
    named = SharedKernelMixture(3, **settings).fit(numbered)
    assert_array_equal(named.predict(numbered[["size", 0]]), named.predict(numbered))


# ---------------------------------------------------------------- rows in blocks


def cut(y: Any = None, weights: Any = None) -> Source:
    return open_rows(X, label=y, weight=weights, chunk_rows=90)


def assert_same(one: Any, other: Any) -> None:
    """The sample of so few rows is all of them, in order: even the starts are the same."""
    assert_same_fit(one, other)
    assert one.classes_.dtype == other.classes_.dtype
    assert sorted(vars(one)) == sorted(vars(other))


@pytest.mark.parametrize("init", ["class", "random_from_data", "uniform"])
def test_a_mixture_of_blocks_is_that_of_the_rows(init: str) -> None:
    model = SharedKernelMixture(4, init=init, n_init=2, random_state=0, tol=1e-3)
    here = model.fit(X, NAMES, sample_weight=WEIGHTS)
    assert_same(SharedKernelMixture(**model.get_params()).fit(cut(NAMES, WEIGHTS)), here)


def test_fits_to_many_rows_begin_on_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin nearly where they end, which is where other fits end too."""
    random = np.random.default_rng(0)
    y, weights = np.arange(6000) % 2, random.uniform(0.5, 2.0, size=6000)
    X = random.normal(size=(6000, 2)) * np.where(random.random((6000, 1)) < 0.3 + 0.4 * y[:, None], 5.0, 1.0)
    y[0] = 2  # has no row in a sample
    given = {"y": y, "sample_weight": weights}
    model = SharedKernelMixture(2, weight_prior=None, tol=1e-7, max_iter=2000, random_state=0, n_jobs=1)
    whole = clone(model).fit(X, **given)
    drawn = clone(model).set_params(init="random_from_data").fit(X, **given)
    monkeypatch.setattr("skmix.engine.starts.samples._WORTH_SAMPLING", 1 << 17)
    found = clone(model).fit(X, **given)
    assert_allclose(found.means_, whole.means_, atol=1e-2)
    assert_allclose(found.weights_, whole.weights_, atol=1e-2)
    short_of = [fit.log_likelihood_ - fit.log_likelihood_path_[0].sum() for fit in (found, whole)]
    assert short_of[0] < 0.5 * short_of[1]
    assert_array_equal(clone(model).set_params(n_jobs=2).fit(X, **given).means_, found.means_)
    assert_same(clone(model).fit(open_rows(X, label=y, weight=weights, chunk_rows=2000)), found)
    # Starts of other kinds stay as they are.
    again = clone(model).set_params(init="random_from_data").fit(X, **given)
    assert_array_equal(again.log_likelihood_path_, drawn.log_likelihood_path_)


@pytest.mark.parametrize(("tail", "degrees"), [(None, None), ("t", None), ("t", 4.0)])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_samples_lead_to_the_optimum_of_all_rows(
    covariance_type: str,
    tail: str | None,
    degrees: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 32-bit rows with weights, some of them without a label, for each structure and tail."""
    random = np.random.default_rng(1)
    place = np.arange(6000) % 3
    X = (random.normal(size=(6000, 3)) + 9.0 * np.eye(3)[place]).astype(np.float32)
    y = np.where(random.random(6000) < 0.3, np.nan, random.random(6000) < 0.2 + 0.3 * place)
    given = {"y": y, "sample_weight": random.uniform(0.1, 3.0, size=6000)}
    model = SharedKernelMixture(
        3,
        covariance_type=covariance_type,
        tail=tail,
        degrees=degrees,
        weight_prior=None,
        tol=1e-6,
        max_iter=1000,
        random_state=0,
    )
    drawn: list[int] = []
    usual = samples.draw_rows
    monkeypatch.setattr(samples, "draw_rows", lambda *a: drawn.append(a[1]) or usual(*a))
    whole = clone(model).fit(X, **given)
    assert not drawn
    monkeypatch.setattr("skmix.engine.starts.samples._WORTH_SAMPLING", 1 << 17)
    found = clone(model).fit(X, **given)
    assert drawn
    assert_allclose(found.log_likelihood_, whole.log_likelihood_, rtol=1e-6)
    assert_allclose(np.sort(found.means_, axis=0), np.sort(whole.means_, axis=0), atol=1e-2)


def test_samples_rule_no_kernel_out_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows of a small group are of a kernel that none of its rows in a sample is of."""
    monkeypatch.setattr("skmix.engine.starts.samples._WORTH_SAMPLING", 1 << 18)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    order = np.random.RandomState(seed).permutation(6000)  # the first rows in it are the sample
    y, far = np.zeros(6000, dtype=np.int64), np.arange(6000) % 2
    y[order[:20]] = y[order[-20:]] = 1
    far[order[:20]], far[order[-20:]] = 0, 1
    X = np.random.default_rng(0).normal(size=(6000, 2)) + 50.0 * far[:, None]
    assert_allclose(SharedKernelMixture(2, random_state=0).fit(X, y).weights_[:, 1], 0.5, atol=1e-3)


def test_a_search_of_blocks_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    prototype = SharedKernelMixture(tol=1e-3)
    search = SharedKernelMixtureCV(
        prototype, n_kernels=4, covariance_type="full", criterion="bic", random_state=0
    )
    here, there = clone(search).fit(X, NAMES), clone(search).fit(cut(NAMES))
    assert_same(there.best_estimator_, here.best_estimator_)
    assert there.best_score_ == pytest.approx(here.best_score_, rel=1e-9)
    assert there.n_features_in_ == X.shape[1]
    # By default, rows are held out only where all of them may be read into memory.
    search.set_params(criterion="auto")
    assert clone(search).fit(cut(NAMES)).best_score_ == clone(search).fit(X, NAMES).best_score_
    monkeypatch.setattr(mixture_search, "HELD_BYTES", X.nbytes - 1)
    assert clone(search).fit(cut(NAMES)).best_score_ == there.best_score_


def test_more_rows_than_a_sample_are_not_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(summary, "_MOST_SAMPLED", 60)
    monkeypatch.setattr("skmix.model.crossfit.set_threshold", None)
    model = SharedKernelClassifier(reject_below=0.3, outlier_label="?", random_state=0, tol=1e-3)
    model.fit(cut(NAMES, WEIGHTS))
    share = np.average(model.score_samples(X) < model.threshold_, weights=WEIGHTS)
    assert share == pytest.approx(0.3, abs=0.1)


def test_a_sample_stands_for_rows_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than a sample keeps, starts come from it, and EM goes over all of them."""
    monkeypatch.setattr(summary, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(summary, "_MOST_SAMPLED", 60)
    random = np.random.default_rng(3)
    y = np.repeat([0, 1], [4500, 300])
    X = np.where(y[:, None] == 0, -3.0, 3.0) + random.normal(size=(len(y), 2))
    source = open_rows(X, label=y, chunk_rows=900)
    for init in ("class", "k-means"):
        model = SharedKernelMixture(2, init=init, random_state=0).fit(source)
        assert model.class_count_.tolist() == [4500, 300]
        order = np.argsort(model.means_[:, 0])
        expected = [X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)]
        assert np.allclose(model.means_[order], expected, atol=0.05)


def test_a_feature_that_the_sample_misses_has_its_mean_there() -> None:
    X = np.full((40_000, 2), np.nan)
    X[:, 0] = np.random.default_rng(0).normal(size=len(X))
    seen = np.setdiff1d(np.arange(len(X)), BlockRows(Listed([Block(X)])).summary.sample.places[:, 1])[:4]
    X[seen, 1] = [1.0, 2.0, 3.0, 6.0]
    rows, _, _ = BlockRows(Listed([Block(X)])).start_rows()
    assert np.array_equal(np.unique(rows[:, 1]), [3.0])
    model = SharedKernelMixture(2, max_iter=1000, random_state=0).fit(open_rows(X))
    assert np.isfinite(model.means_).all()
