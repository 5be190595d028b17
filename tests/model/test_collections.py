"""Fits to Dask collections against fits to the same rows in memory, and answers that are lazy."""

from __future__ import annotations

import gc
import os
import time
import uuid

import numpy as np
import pytest
from models import assert_same_fit
from numpy.testing import assert_array_equal
from sklearn.base import clone

pytest.importorskip("distributed", reason="needs the extra dask")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture

RNG = np.random.default_rng(11)
CENTRES = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 1.0], [0.0, 5.0, -1.0]])
# Classes in order: every block but one lacks some class.
Y = np.repeat(["ash", "beech", "oak"], [90, 60, 30])
X = CENTRES[np.searchsorted(["ash", "beech", "oak"], Y)] + RNG.normal(size=(180, 3)) @ np.diag(
    [1.0, 0.5, 2.0]
)
GAPPY = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
GAPPY[np.isnan(GAPPY).all(axis=1)] = 0.0


def lazily(*arrays, chunk=40):
    return [da.from_array(array, chunks=(chunk, 2) if array.ndim == 2 else chunk + 7) for array in arrays]


@pytest.mark.usefixtures("client")
class TestOnACluster:
    @pytest.mark.parametrize("kind", ["object", "category", "Int64", "array"])
    def test_missing_labels_mark_rows_without_one(self, kind):
        codes = np.searchsorted(["ash", "beech", "oak"], Y)
        labels = pd.Series(codes if kind in ("Int64", "float", "array") else Y)
        labels = labels.astype("float" if kind == "array" else kind)
        labels[(np.arange(len(Y)) % 4 == 0) | (np.arange(len(Y)) > 160)] = None
        given = dd.from_pandas(labels, npartitions=4)
        rows = dd.from_pandas(pd.DataFrame(X), npartitions=4)
        if kind == "array":
            rows, given = lazily(X, labels.to_numpy())
        mixture = SharedKernelMixture(3, init={"means": CENTRES}, tol=0.1)
        assert_same_fit(clone(mixture).fit(rows, given), clone(mixture).fit(X, labels))

    def test_a_dataframe_and_feature_sets_by_name(self):
        table = pd.DataFrame(X, columns=["u", "v", "w"]).assign(tree=Y)
        lazy = dd.from_pandas(table, npartitions=4)
        classifier = SharedKernelClassifier(
            feature_sets=[["w"], ["u", "v"]],
            init=[{"means": X[:3, [2]] + [[0], [1], [2]]}, {"means": CENTRES[:, :2]}],
            reject_below=0.1,
            outlier_label="none",
            tol=1e-1,
            random_state=0,
        )
        far = clone(classifier).fit(lazy[["u", "v", "w"]], lazy["tree"])
        near = clone(classifier).fit(table[["u", "v", "w"]], Y)
        assert far.feature_names_in_.tolist() == ["u", "v", "w"]
        for model, other in zip(far.models_, near.models_, strict=True):
            assert_same_fit(model, other)
        assert far.threshold_ == pytest.approx(near.threshold_, rel=1e-9)
        predicted = far.predict(lazy[["u", "v", "w"]])
        assert np.isnan(predicted.shape[0])
        assert predicted.compute().tolist() == near.predict(table[["u", "v", "w"]]).tolist()
        expected = near.score(table[["u", "v", "w"]], Y)
        assert far.score(lazy[["u", "v", "w"]], lazy["tree"]) == pytest.approx(expected, rel=1e-12)
        with pytest.raises(ValueError, match="feature names should match"):
            far.predict(lazy[["v", "u", "w"]])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples"])
def test_partitions_of_one_row_and_of_none_have_their_answers(method):
    model = SharedKernelMixture(3, init={"means": CENTRES}, tol=0.1).fit(X, Y)
    rows = da.from_array(X[:9], chunks=((1, 4, 1, 3), 3))
    found = getattr(model, method)(rows).compute()
    np.testing.assert_allclose(found, getattr(model, method)(X[:9]), rtol=1e-9)
    table = pd.DataFrame(X[:9])
    parts = dd.concat([dd.from_pandas(part, npartitions=1) for part in (table[:1], table[1:8], table[8:])])
    some = parts[parts[0] > X[0, 0] - 1e-9]
    kept = X[:9][X[:9, 0] > X[0, 0] - 1e-9]
    found = getattr(model, method)(some).compute()
    np.testing.assert_allclose(found, getattr(model, method)(kept), rtol=1e-9)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "impute"])
def test_answers_are_lazy_and_those_of_rows_in_memory(method):
    classifier = SharedKernelClassifier(init={"means": CENTRES}).fit(X, Y)
    (rows,) = lazily(GAPPY)
    lazy, expected = getattr(classifier, method)(rows), getattr(classifier, method)(GAPPY)
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == expected.dtype
    assert lazy.shape == expected.shape
    assert lazy.chunks[0] == rows.chunks[0]
    if method == "predict":
        assert lazy.compute().tolist() == expected.tolist()
    else:
        # Products of other shapes round otherwise.
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-9, atol=1e-12)
    some = getattr(classifier, method)(rows[rows[:, 0] > 100])
    assert some.compute().shape == (0, *expected.shape[1:])
    with pytest.raises(ValueError, match="X must be a Dask array, dataframe or series"):
        getattr(classifier, method)(dask.delayed(X))
    with pytest.raises(ValueError, match="X has 2 features, but SharedKernelClassifier is expecting 3"):
        getattr(classifier, method)(rows[:, :2])
    mixture, (rows, labels) = classifier.models_[0], lazily(X, Y)
    np.testing.assert_allclose(mixture.score_samples(rows, labels).compute(), mixture.score_samples(X, Y))
    assert mixture.score(rows, labels) == pytest.approx(mixture.score(X, Y), rel=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, lazily(Y)[0]), "y is a Dask collection, but X is a ndarray in memory"),
        ((lazily(X)[0], Y[:-1]), "X has 180 rows but y has 179"),
        ((lazily(np.where(X > 6, np.inf, X))[0], Y), "infinit"),
        ((lazily(X)[0], None), "requires y"),
        ((dask.delayed(X), Y), "X must be a Dask array, dataframe or series, got a Dask DelayedLeaf"),
        ((lazily(X)[0], dask.delayed(Y)), "y must be a Dask array, dataframe or series, got a Dask Delayed"),
    ],
)
def test_bad_input_is_told(given, message):
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifier().fit(*given)


@pytest.mark.parametrize(
    ("estimator", "method", "more"),
    [
        (SharedKernelClassifier(3), "calibrate", [Y]),
        (GaussianMixture(2), "fit", []),
        (GaussianMixture(2), "score_samples", []),
    ],
)
def test_methods_of_rows_in_memory_compute_nothing_behind_the_callers_back(estimator, method, more):
    model = clone(estimator).set_params(random_state=0, tol=0.1).fit(X, Y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=r"needs rows in memory, .* a Dask Array. (?i:g)ive X.compute\(\)"):
        getattr(model, method)(lazily(X)[0], *more)
    assert vars(model) == before


def test_only_columns_of_dataframes_have_names_that_a_model_keeps():
    rows, labels, weights = lazily(X, Y, np.ones(len(X)))
    model = SharedKernelClassifier(2, random_state=0).fit(rows, labels, weights)
    assert not {"target_name_", "weight_name_", "ignored_columns_"} & vars(model).keys()
    table = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": Y}), npartitions=3)
    model.fit(table, "kind")
    assert (model.target_name_, model.ignored_columns_) == ("kind", ["kind"])
    assert_array_equal(model.predict(table), model.predict(table[["a", "b"]]))
    assert model.score(table) == model.score(table[["a", "b"]], table["kind"])


def test_columns_of_text_are_refused():
    table = pd.DataFrame(X, columns=["u", "v", "w"]).assign(tree=Y)
    model = SharedKernelMixture(2, random_state=0, tol=0.1).fit(table)
    with pytest.raises(ValueError, match=r"encodes columns of text, .* Dask collections do not support"):
        model.predict(dd.from_pandas(table, npartitions=2))


def test_a_fit_computes_no_label_on_the_client_and_each_block_once(client, tmp_path, monkeypatch):
    def note(labels):
        (tmp_path / f"{os.getpid()}-{uuid.uuid4()}").touch()
        return labels

    def refuse(self, *args, **kwargs):
        raise AssertionError("a collection was computed on the client")

    rows, labels = da.from_array(X, chunks=(40, 3)), da.from_array(Y, chunks=40)
    labels = labels.map_blocks(note, dtype=Y.dtype, meta=Y[:0])
    for name in ("__array__", "compute", "persist"):
        monkeypatch.setattr(da.Array, name, refuse)
    SharedKernelClassifier(3, random_state=0, tol=0.1).fit(rows, labels)
    processes = [int(path.name.partition("-")[0]) for path in tmp_path.iterdir()]
    assert len(processes) == labels.numblocks[0]
    assert os.getpid() not in processes


def test_a_failed_fit_leaves_no_block_on_the_cluster(client):
    """The client keeps an error, and errors their frames: these must not be those that have the futures."""

    def refuse(rows):
        raise ZeroDivisionError("42 is no row")

    rows = lazily(np.where(X > 6, np.inf, X))[0]
    for given, kind, message in [
        (rows, ValueError, "infinity"),
        (rows.map_blocks(refuse, meta=X[:0]), ZeroDivisionError, "42 is no row"),
    ]:
        with pytest.raises(kind, match=message) as caught:
            SharedKernelMixture(2, random_state=0).fit(given)
        # Where it happened on the worker is still told.
        assert caught.traceback[-1].name in ("refuse", "refuse_infinite")
        del caught
        # The client forgets futures in a thread of its own, a little later.
        until = time.monotonic() + 60.0
        while client.futures and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert len(client.futures) == 0
