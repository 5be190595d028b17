"""Labels come out the same by array, frame, file, Dask and command line, whatever their kind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skmix import SharedKernelClassifier, load, open_rows
from skmix.report import evaluate

N = 24
# Three groups of rows that are far apart, so that labels are predicted as they were given.
CODES = np.repeat([0, 1, 2], 8)
NOISE = np.random.default_rng(0).normal(size=(N, 2))
X = NOISE + 30.0 * CODES[:, None]

words = st.text("abcxyzÄß_ ", min_size=1, max_size=5).map(str.strip).filter(bool)
kinds = st.one_of(
    st.lists(st.integers(0, 10**12), min_size=2, max_size=3, unique=True),
    st.lists(st.integers(-5, 5).filter(lambda n: n != -1), min_size=2, max_size=3, unique=True),
    st.just([-1, 4]),
    st.lists(st.integers(0, 999).map(float), min_size=2, max_size=3, unique=True),
    st.just([False, True]),
    st.lists(words, min_size=2, max_size=3, unique=True),
)


def kept_as(labels: list[Any], form: str) -> Any:
    """Return labels, of which some are None, as a column of a frame."""
    if form == "category":
        return pd.Categorical(labels)
    if form == "nullable" and not isinstance(next(each for each in labels if each is not None), str):
        kind = type(next(each for each in labels if each is not None))
        return pd.array(labels, dtype={int: "Int64", float: "Float64", bool: "boolean"}[kind])
    return pd.Series(labels)


@settings(max_examples=6, deadline=None)
@given(kinds, st.sampled_from(["plain", "nullable", "category"]), st.booleans())
@example([1.0, 2.0], "plain", True)
@example([False, True], "category", True)
@example(["b", "a"], "nullable", False)
def test_labels_do_not_depend_on_the_road(known: list[Any], form: str, gaps: bool) -> None:
    places = CODES if len(known) == 3 else np.repeat([0, 1], N // 2)
    labels, n_kernels = [known[place] for place in places], len(known)
    if gaps:
        labels[::8] = [None] * 3
    X = NOISE + 30.0 * places[:, None]
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kind": kept_as(labels, form)})
    rows = frame[["u", "v"]]
    classifier = SharedKernelClassifier(n_kernels, random_state=0)
    distinct = np.unique(np.array(known))
    # Arrays keep their type; floats of columns are whole numbers.
    expected = distinct.astype(np.int64) if distinct.dtype.kind == "f" else distinct
    truth = expected[np.searchsorted(expected, [known[place] for place in places])]

    def check(model: Any, given: Any, road: str) -> None:
        kind = distinct.dtype if road == "array" and not gaps else expected.dtype
        assert model.classes_.dtype == kind, road
        assert_array_equal(model.classes_, expected, err_msg=road)
        assert_array_equal(model.predict(given), truth, err_msg=road)

    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "t.csv", Path(folder) / "t.parquet"
        frame.to_csv(csv, index=False)
        frame.to_parquet(parquet)
        check(classifier.fit(X, np.array(labels, dtype=object if gaps else None)), X, "array")
        check(classifier.fit(rows, frame["kind"]), rows, "frame")
        for path in (csv, parquet):
            check(classifier.fit(path, "kind"), path, path.suffix)
            check(classifier.fit(open_rows(path, label="kind")), path, f"opened {path.suffix}")
            if not gaps:
                assert classifier.score(rows, frame["kind"]) == classifier.score(path, "kind") == 1.0
            options = ("--kernels", n_kernels, "--unlabelled", "use", "--outliers", 0)
            run("fit", path, "-t", "kind", *options, "-o", Path(folder) / "m")
            check(load(Path(folder) / "m"), rows, f"command line, {path.suffix}")


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("large", [np.inf, 1e300])
def test_labels_too_large_for_integers_are_refused(tmp_path: Path, large: float) -> None:
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kind": np.array([1.0, 2.0, large])[CODES]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"infinity|Unknown label type"):
        SharedKernelClassifier(3, random_state=0).fit(tmp_path / "t.parquet", "kind")


def test_numbers_that_are_not_whole_are_no_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kind": np.array([1.0, 1.5, 2.0])[CODES]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    classifier = SharedKernelClassifier(3, random_state=0)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        for given_ in ((path, "kind"), (open_rows(path, label="kind"),)):
            with pytest.raises(ValueError, match=r"1\.5.* is not a whole number"):
                classifier.fit(*given_)
        result = run("fit", path, "-t", "kind", "--kernels", 3, "-o", tmp_path / "m", code=1)
        assert "column 'kind' has the label 1.5, which is not a whole number" in result.stderr


def test_minus_one_is_what_it_is_in_an_array(tmp_path: Path) -> None:
    """It is a class of two, and no label beside others."""
    for values, expected in (([-1, 1, 1], [-1, 1]), ([-1, 2, 3], [2, 3])):
        frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kind": np.array(values)[CODES]})
        frame.to_csv(tmp_path / "t.csv", index=False)
        classifier = SharedKernelClassifier(3, random_state=0).fit(tmp_path / "t.csv", "kind")
        assert classifier.classes_.tolist() == expected
        fit = ("fit", tmp_path / "t.csv", "-t", "kind", "--kernels", 3, "--outliers", 0, "-o", tmp_path / "m")
        if len(expected) < len(set(values)):
            assert "no label in 8 of 24 rows" in run(*fit, code=1).stderr
        run(*fit, "--unlabelled", "use")
        assert load(tmp_path / "m").classes_.tolist() == expected
        told = run("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
        n_rows = int(np.isin(frame["kind"], expected).sum())
        assert json.loads(told.stdout)["n_rows"] == n_rows
        assert ("8 of 24 rows have no label in 'kind' and are left out" in told.stderr) == (n_rows < N)
    frame["kind"] = CODES - 1
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="-1 marks rows without a label, but may be a class here"):
        classifier.fit(tmp_path / "t.csv", "kind")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([-1, 2, 3], ["-1", "2", "3"]), ([-1, 0, 1], ["-1", "0", "1"]), ([-1, 4, 4], [-1, 4])],
)
def test_minus_one_beside_empty_cells_is_a_class_without_them_too(
    tmp_path: Path, values: list[int], expected: list[Any]
) -> None:
    label = np.array(values)[CODES].astype(str)
    label[::4] = ""
    pd.DataFrame(X, columns=["a", "b"]).assign(y=label).to_csv(tmp_path / "table.csv", index=False)
    fit = ("fit", tmp_path / "table.csv", "-t", "y", "--kernels", 3, "-o", tmp_path / "m")
    counts = [np.count_nonzero(label == str(value)) for value in expected]
    for unlabelled, classes in (("drop", expected), ("use", [int(value) for value in expected])):
        run(*fit, "--unlabelled", unlabelled)
        model = load(tmp_path / "m")
        assert_array_equal(model.classes_, classes)
        assert_array_equal(model.class_count_, counts)
        tested = json.loads(run("evaluate", tmp_path / "m", tmp_path / "table.csv", "--json").stdout)
        assert tested["n_rows"] == sum(counts)
        assert tested["accuracy"] == 1.0


@pytest.mark.parametrize("form", [list, tuple, lambda y: np.array(y, dtype=object), pd.Series])
@pytest.mark.parametrize("mark", [-1, -1.0, np.nan, None, 7])
def test_a_number_among_text_is_no_text(form: Any, mark: Any) -> None:
    """The number -1 marks a row without a label, as NaN and None do; any other number is refused."""
    labels = form([mark if i % 8 == 0 else label for i, label in enumerate(np.array(["a", "b", "c"])[CODES])])
    classifier = SharedKernelClassifier(3, random_state=0)
    for road in (
        lambda: classifier.fit(X, labels),
        lambda: classifier.fit(open_rows(X, label=labels)),
        lambda: SharedKernelClassifier(3, random_state=0).partial_fit(X, labels, ["a", "b", "c"]),
    ):
        if mark == 7:
            with pytest.raises(ValueError, match="labels that cannot be compared"):
                road()
        else:
            model = road()
            assert model.classes_.tolist() == ["a", "b", "c"]
            assert model.class_count_.tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("known", [["1", "2", "x"], ["1", "2", "3"], ["true", "false", "ash"], [1, 2, 3]])
def test_a_text_file_with_some_of_the_classes_has_labels_of_their_type(
    known: list[Any], tmp_path: Path
) -> None:
    frame = pd.DataFrame(NOISE + 2.0 * CODES[:, None], columns=["a", "b"]).assign(kind=np.array(known)[CODES])
    model = SharedKernelClassifier(3, random_state=0).fit(frame[["a", "b"]], frame["kind"])
    model.save(tmp_path / "m.skmix")
    some, path = frame[CODES < 2], tmp_path / "some.csv"
    some.to_csv(path, index=False)
    expected = model.score(some[["a", "b"]], some["kind"])
    assert model.score(path, "kind") == evaluate(model, path, "kind").accuracy == expected
    printed = run("evaluate", tmp_path / "m.skmix", path, "-t", "kind", "--json").stdout
    assert json.loads(printed)["accuracy"] == expected
