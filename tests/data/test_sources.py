"""Rows in blocks: what is read is what was written, and errors name the file."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skmix import SharedKernelMixture, SharedKernelMixtureCV, Study, compose, open_rows
from skmix._errors import ArgumentError
from skmix.data import ColumnError
from skmix.data.opening import source_of
from skmix.features import Arcsinh, Logicle

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
flowio = pytest.importorskip("flowio", reason="flowio is not installed")

X = np.random.default_rng(0).normal(size=(1000, 3))
Y = np.random.default_rng(1).integers(0, 4, 1000)
NAMES = np.array(["oak", "elm", "ash", "larch"])[Y]
CHANNELS = ["FSC-A", "B530-A", "R660-A"]


def gathered(source: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return all rows, labels or class codes, and weights."""
    blocks = list(source.blocks())
    codes = [block.all_labels() if block.y is None else block.y for block in blocks if source.has_labels]
    labels = np.concatenate(codes) if codes else None
    weights = None if blocks[0].weights is None else np.concatenate([block.weights for block in blocks])
    return np.concatenate([block.X for block in blocks]), labels, weights


def write(
    path: Path,
    rows: np.ndarray,
    names: Sequence[str] = CHANNELS,
    markers: Sequence[str] = (),
    **more: Any,
) -> Path:
    """Write rows, and more columns of tables, in the format that the name of the file says."""
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix == ".npy":
        np.save(path, rows)
        return path
    table = {**dict(zip(names, rows.T, strict=False)), **more}
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    if path.suffix == ".fcs":
        with open(path, "wb") as file:
            flowio.create_fcs(
                file, rows.ravel().tolist(), list(names)[: rows.shape[1]], list(markers) or None
            )
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(table), path, row_group_size=150)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        path.write_text("\n".join(lines))
    return path


# ---------------------------------------------------------------- all formats


@st.composite
def layouts(draw: Any) -> dict[str, Any]:
    """Draw how rows are written and opened."""
    suffix = draw(st.sampled_from([".csv", ".tsv.gz", ".parquet", ".npy", ".fcs"]))
    beside = [None, "array", "column"] if suffix in (".csv", ".parquet") else [None, "array"]
    return {
        "suffix": suffix,
        "sizes": draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)),
        "chunk_rows": draw(st.sampled_from([None, 1, 7, 64])),
        "columns": draw(st.permutations(range(3)))[: draw(st.integers(1, 3))],
        "label": draw(st.sampled_from(beside)),
        "weight": draw(st.sampled_from(beside)),
        "scale": draw(st.sampled_from([None, Arcsinh(2.0), Logicle(W=1.0)])),
        "as_list": draw(st.booleans()),
    }


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_rows_are_read_as_they_were_written(layout: dict[str, Any]) -> None:
    """In any format, number of files and size of blocks, with labels, weights and scales of any kind."""
    sizes, columns, named = layout["sizes"], layout["columns"], layout["suffix"] != ".npy"
    n_rows, ends = sum(sizes), np.cumsum(sizes)
    rows, labels, weights = X[:n_rows], NAMES[:n_rows], Y[:n_rows] + 0.5
    with TemporaryDirectory() as folder:
        more = {"kind": labels, "w": weights} if layout["suffix"] in (".csv", ".parquet") else {}
        files = [
            write(
                Path(folder) / f"{'abc'[i]}{layout['suffix']}",
                rows[end - size : end],
                **{name: values[end - size : end] for name, values in more.items()},
            )
            for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
        ]
        scale = layout["scale"]
        source = open_rows(
            files if layout["as_list"] or len(files) > 1 else files[0],
            columns=[CHANNELS[j] for j in columns] if named else columns,
            label={None: None, "array": labels, "column": "kind"}[layout["label"]],
            weight={None: None, "array": weights, "column": "w"}[layout["weight"]],
            chunk_rows=layout["chunk_rows"],
            transform=scale,
        )
        expected = rows[:, columns].astype(np.float32 if layout["suffix"] == ".fcs" else np.float64)
        expected = expected if scale is None else scale.transform(expected)
        if layout["label"] is None:
            labels = np.repeat(list("abc")[: len(sizes)], sizes) if source.by_file else None
        weights = None if layout["weight"] is None else weights

        def check(found: Any, taken: Sequence[int] = slice(None), codes: Any = labels) -> None:  # type: ignore[assignment]
            found_rows, found_labels, found_weights = gathered(found)
            assert found_rows.dtype == expected.dtype
            assert_allclose(
                found_rows, expected[:, taken], rtol=1e-14 if found_rows.dtype == np.float64 else 1e-6
            )
            for one, other in ((found_labels, codes), (found_weights, weights)):
                assert (one is None) == (other is None)
                assert one is None or np.array_equal(one, other)
            n_block = layout["chunk_rows"] or found.chunk_rows
            cut = [n_block] * (n_rows // n_block) + [n_rows % n_block] * (n_rows % n_block > 0)
            assert [len(block.X) for block in found.blocks()] == cut

        assert source.shape == expected.shape
        assert source.feature_names == ([CHANNELS[j] for j in columns] if named else None)
        assert source.has_labels == (labels is not None)
        check(source)
        assert labels is None or np.array_equal(source.row_labels(), labels)
        # Some features are in the same blocks, and so are their codes; a fit reads few rows once.
        backwards = list(range(len(columns)))[::-1]
        check(source.with_features(backwards), backwards)
        check(source.with_features(backwards).with_features(backwards))
        if named:
            check(source.select([CHANNELS[columns[j]] for j in backwards]), backwards)
        if labels is not None:
            classes, codes = np.unique(labels, return_inverse=True)
            coded = source.coded(classes)
            for _ in range(2):
                check(coded, codes=codes)
            check(source)
            check(coded.with_features(backwards), backwards, codes=codes)
            held = source.held()
            assert (held.feature_names, held.preparation) == (source.feature_names, source.preparation)
            check(held)
            check(held.coded(classes).with_features(backwards), backwards, codes=codes)
        bare = source.unlabelled()
        assert (bare.has_labels, bare.feature_names) == (False, source.feature_names)
        assert gathered(bare)[1:] == (None, None)
        # Each file by itself.
        for (_, part), size, end in zip(source.each(), sizes, ends, strict=True):
            own = slice(end - size, end)
            found_rows, found_labels, found_weights = gathered(part)
            assert_allclose(found_rows, expected[own], rtol=1e-6)
            assert labels is None or np.array_equal(found_labels, labels[own])
            assert weights is None or np.array_equal(found_weights, weights[own])
        assert all(map(source.comes_from, files))
        assert not source.comes_from(Path(folder) / "other.csv")


# ---------------------------------------------------------------- arrays and .npy files


@pytest.mark.parametrize("dtype", ["<f8", "<f4", ">f8", "<f2", "<i8", "<i2", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_of_any_type_and_order(tmp_path: Path, dtype: str, order: str) -> None:
    written = np.asarray(10 * X, dtype=np.int16).astype(dtype) if dtype[-2:] != "f8" else X.astype(dtype)
    np.save(tmp_path / "rows.npy", np.asarray(written, order=order))  # type: ignore[call-overload]
    source = open_rows(str(tmp_path / "rows.npy"), chunk_rows=64)
    read = gathered(source)[0]
    assert read.dtype == (np.float32 if dtype == "<f4" else np.float64)
    assert_array_equal(read, written.astype(np.float64))


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_blocks_are_read_by_threads_and_a_file_that_shrinks_is_noticed(
    tmp_path: Path, order: str
) -> None:
    path, rows = tmp_path / "rows.npy", np.random.default_rng(2).normal(size=(300_001, 4))
    np.save(path, np.asarray(rows, order=order))  # type: ignore[call-overload]
    for chunk_rows in (None, 150_000):
        assert_array_equal(gathered(open_rows(path, chunk_rows=chunk_rows))[0], rows)
    blocks = open_rows(path, chunk_rows=100_000).blocks()
    next(blocks)
    os.truncate(path, 2000)
    with pytest.raises(ValueError, match=r"rows\.npy became shorter while it was being read"):
        list(blocks)


def test_files_are_recognised_by_their_content_where_the_name_does_not_tell(tmp_path: Path) -> None:
    for suffix in (".parquet", ".npy", ".csv", ".fcs"):
        path = write(tmp_path / f"1{suffix}", X)
        bare = path.rename(tmp_path / f"bare-{suffix[1:]}")
        source = open_rows(bare, transform=None)
        assert_allclose(gathered(source)[0], X, rtol=1e-6)
        assert source.feature_names == (None if suffix == ".npy" else CHANNELS)
        assert source.name == str(bare)


# Where a long double is a double, it can be read.
LONG = pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="no numbers of more than 64 bits")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (X[:, 0], "two dimensions"),
        (X[:, :0], r"is empty: its shape is \(1000, 0\)"),
        (X[:0], "is empty"),
        pytest.param(X.astype(np.longdouble), "numbers of at most 64 bits", marks=LONG),
        (X + 1j, "complex128; features must be numbers"),
        (NAMES[:, None], "features must be numbers"),
        (np.array([[None]]), "Python objects in dtype"),
        (b"a,b\n1,2\n", r"is not a \.npy file"),
        (None, "cannot be read .* greater than file size"),
    ],
)
def test_arrays_that_are_no_rows_are_told(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "odd.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, X if content is None else content, allow_pickle=True)
    if content is None:
        os.truncate(path, 10_000)
    with pytest.raises(ValueError, match=rf"odd\.npy.*{words}"):
        open_rows(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"chunk_rows": wrong}, "chunk_rows must be") for wrong in (0, 1.5, True)),
        ({"columns": []}, "at least one"),
        ({"columns": [0, 0]}, "must not repeat"),
        ({"columns": [3]}, "0 to 2"),
        ({"columns": ["a"]}, "0 to 2"),
        ({"columns": [-1]}, "has -1, but X has columns 0 to 2"),
        ({"columns": [0, 1.0]}, "has 1.0, but"),
        ({"columns": "a"}, "must be a list of at least one column, got 'a'"),
        ({"weight": NAMES}, "weights must be numbers"),
        ({"layer": "sample"}, "layer and obsm are for an AnnData; got a ndarray"),
        ({"compensate": True}, "compensate=True needs FCS files"),
        ({"compensate": "yes"}, "compensate must be True, False or 'auto', got 'yes'"),
        ({"transform": "sqrt"}, "is none of arcsinh"),
        ({"transform": "arcsinh:0"}, "is not a number above 0"),
        # As many as there are rows, and one for each.
        *(
            ({name: wrong}, rf"X has 1000 rows, but {what} has shape \({wrong.shape[0]},.*\): give")
            for name, what in (("label", "labels"), ("weight", "sample_weight"))
            for wrong in (Y[1:], np.r_[Y, 0], Y[:, None], Y[:500].reshape(-1, 2))
        ),
    ],
)
def test_bad_settings_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_rows(X, **options)


def test_marks_and_words_are_settings_of_their_own(tmp_path: Path) -> None:
    """As on the command line; a dictionary of more settings may have them too."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1.674,5;k.A.\n-12.000,0;2\n3;5\n")
    marks = {"decimal": ",", "thousands": "."}
    sources = (
        open_rows(path, **marks, missing=["k.A."]),  # type: ignore[arg-type]
        open_rows(path, text={**marks, "missing": ["k.A."]}),
        open_rows(path, decimal=",", text={"decimal": ".", "thousands": ".", "missing": ["k.A."]}),
    )
    for source in sources:
        assert_array_equal(gathered(source)[0], [[1674.5, np.nan], [-12000.0, 2.0], [3.0, 5.0]])
    for options, words in (
        ({"decimal": ";"}, "decimal=';' is neither a point nor a comma"),
        ({"missing": "NA"}, "missing='NA' is not a list of words"),
        ({"text": {"decimals": ","}}, "text has the key 'decimals'; .* Did you mean 'decimal'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            open_rows(path, **options)  # type: ignore[arg-type]


def test_a_block_has_16_megabytes_or_as_many_rows_as_are_asked_for(tmp_path: Path) -> None:
    for rows, width in ((X, 24), (X.astype(np.float32), 12), (write(tmp_path / "rows.parquet", X), 24)):
        assert open_rows(rows).chunk_rows == 2**24 // width
        assert open_rows(rows, chunk_rows=np.int64(7)).chunk_rows == 7  # type: ignore[arg-type]
    assert open_rows(np.zeros((1, 2**20))).chunk_rows == 256


@pytest.mark.parametrize("what", ["rows.npy", "rows.parquet", "rows.fcs", "label.npy", "weight.npy"])
def test_files_that_change_between_passes_are_told(tmp_path: Path, what: str) -> None:
    path, values = tmp_path / what, X if what.startswith("rows") else Y
    write(path, values)
    source = open_rows(path) if what.startswith("rows") else open_rows(X, **{path.stem: path})  # type: ignore[arg-type]
    gathered(source)
    before = path.stat().st_size
    write(path, values[:-1])
    with pytest.raises(ValueError, match=rf"{path.name} has changed since it was opened \({before} bytes"):
        gathered(source)
    # As many bytes, later.
    write(path, values)
    os.utime(path, ns=(0, 1))
    with pytest.raises(ValueError, match=rf"{path.name} has changed"):
        gathered(source)
    path.unlink()
    with pytest.raises(ValueError, match="no longer exists"):
        gathered(source)


# ---------------------------------------------------------------- tables


def test_numbers_of_any_type_and_nulls(tmp_path: Path) -> None:
    nan = np.nan
    table = {
        "f2": (pa.array(np.array([0.5, 1.5, -2.0], dtype=np.float16)), [0.5, 1.5, -2.0]),
        "f4": (pa.array([1.5, None, 3.0], pa.float32()), [1.5, nan, 3.0]),
        "u2": (pa.array([1, None, 65535], pa.uint16()), [1, nan, 65535]),
        "bool": (pa.array([True, None, False]), [1, nan, 0]),
        "decimal": (pa.array([None, 2, 3], pa.decimal128(5, 2)), [nan, 2, 3]),
        "empty": (pa.array([None, None, None], pa.int64()), [nan] * 3),
        "large": (pa.array(["1", "2", "1"], pa.large_string()), [1, 2, 1]),
    }
    columns = {name: column for name, (column, _) in table.items()}
    others = {
        "w": pa.array([True, False, True]),
        "y": pa.array([1, -9, 3]),
        "none": pa.nulls(3),
        "time": pa.array([1_000_000_001, None, 0], pa.timestamp("ns")),
        "list": pa.array([[1], [2], [3]]),
    }
    path = tmp_path / "mixed.parquet"
    pq.write_table(pa.table(columns | others), path)
    given_: dict[str, Any] = {"columns": [*table, "none"], "weight": "w", "label": "y"}
    for missing, labels in ((["-9"], [1, None, 3]), ([], [1, -9, 3])):
        source = open_rows(path, text={"missing": missing}, **given_)
        rows, found, weights = gathered(source)
        assert_array_equal(rows.T, [expected for _, expected in table.values()])
        assert rows.dtype == np.float64
        assert_array_equal(weights, [1.0, 0.0, 1.0])
        assert found is not None
        assert found.tolist() == labels
    for column, message in (
        ("list", "column 'list' is of type list<.*>; a feature must be numbers, categories or dates"),
    ):
        with pytest.raises(ColumnError, match=message):
            gathered(open_rows(path, columns=[column]))
    # Some features have the type of all, as in memory, where an array has one type.
    assert gathered(source.with_features([0, 1]))[0].dtype == np.float64
    assert gathered(source.select(["f4", "f2"]))[0].dtype == np.float32


def test_a_column_may_have_several_roles(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", X, "abc", y=Y)
    source = open_rows(path, columns=["y", "b"], label="y", weight="y", chunk_rows=300)
    for found, expected in zip(gathered(source), (np.column_stack([Y, X[:, 1]]), Y, Y), strict=True):
        assert_array_equal(found, expected)
    # Labels and weights are no features unless they are chosen, and do not become any.
    source = open_rows(path, label="a", weight="b")
    assert source.feature_names == source.unlabelled().feature_names == ["c", "y"]
    # Other values take the place of a column, and the other way round.
    source = source.weighted("y")
    assert_array_equal(gathered(source.labelled(NAMES))[1], NAMES)
    assert source.labelled(NAMES).feature_names == ["b", "c"]
    assert_array_equal(gathered(source.labelled(NAMES).labelled("y"))[1], Y)
    assert_array_equal(gathered(source.weighted(X[:, 0] ** 2).weighted("y"))[2], Y)
    with pytest.raises(ValueError, match=r"rows\.parquet has no column 'd', 'e'; there are a, b, c"):
        gathered(source.select(["a", "d", "e"]))
    with pytest.raises(ValueError, match="chosen by name"):
        open_rows(path, columns=[0])


def test_bad_parquet_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "mixed" / "1.parquet", X, "abc", label=NAMES)
    write(tmp_path / "mixed" / "2.parquet", X[:, :2], "ab", label=Y)
    pq.write_table(pa.table({"a": [1.0], "day": pa.array([1], pa.date32())}), tmp_path / "days.parquet")
    pq.write_to_dataset(pa.table({"a": X[:, 0], "tree": NAMES}), tmp_path / "hive", partition_cols=["tree"])
    for name, options, words in (
        ("empty", {}, r"folder .*empty has no files of rows \(\.fcs"),
        ("mixed", {"columns": ["a", "c"]}, r"2\.parquet has no column 'c'"),
        ("mixed", {"label": "label"}, "Labels differ in kind.*string in .*1.parquet.*int64 in .*2.parquet"),
        ("mixed", {"label": "species"}, "has no column 'species'"),
        ("mixed", {"weight": "label"}, "weights must be numbers"),
        ("days.parquet", {"label": "day"}, "labels must be whole numbers, strings or booleans"),
        ("hive", {"label": "tree"}, r"no column 'tree'.*Hive partitioning"),
    ):
        with pytest.raises(ValueError, match=words):
            gathered(open_rows(tmp_path / name, **options))  # type: ignore[arg-type]
    assert open_rows(tmp_path / "hive").feature_names == ["a"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "batch", "pieces", "folder"])
def test_tables_of_every_kind(tmp_path: Path, kind: str) -> None:
    columns = {"group": NAMES, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "note": np.full(1000, "text")}
    rows: Any = pa.table(columns)
    if kind in ("pandas", "polars"):
        rows = pytest.importorskip(kind).DataFrame(columns)
    if kind == "pandas":
        rows.index = pd.Index(np.arange(1000) * 2, name="patient")
    if kind == "batch":
        rows = rows.to_batches()[0]
    if kind == "pieces":
        rows = pa.concat_tables([rows[:7], rows[7:7], rows[7:160], rows[160:]])
    if kind == "folder":
        for name, part in {"2": rows[90:], "1": rows[:90], "3": rows[:0]}.items():
            pq.write_table(part, tmp_path / f"{name}.parquet")
        (tmp_path / "_SUCCESS").touch()
        rows = tmp_path
    source = open_rows(rows, label="group", columns=list("abc"), chunk_rows=150)
    assert [len(block.X) for block in source.blocks()] == [150] * 6 + [100]
    assert_array_equal(gathered(source)[0], X)
    assert_array_equal(gathered(source)[1], NAMES)
    assert open_rows(rows, label="group").feature_names == list("abc"), "a constant column is no feature"
    encoded = open_rows(rows, columns=["a", "group"] if kind != "folder" else ["a"], label="group")
    assert len(encoded.feature_names or ()) == (1 if kind == "folder" else 5)
    with pytest.raises(ValueError, match="no column 'sample'"):
        open_rows(rows, label="sample")


def test_labels_of_text_files_are_what_all_of_them_are(tmp_path: Path) -> None:
    for name, word in {"1": "7", "2": "x"}.items():
        (tmp_path / f"{name}.csv").write_text(f"x,y\n1,{word}\n")
    both = [tmp_path / "1.csv", tmp_path / "2.csv"]
    assert open_rows(both, label="y").row_labels().tolist() == ["7", "x"]
    assert open_rows(both[:1], label="y").row_labels().tolist() == [7]


# ---------------------------------------------------------------- several files

SIZES = {"a": 70, "b": 1, "c": 129}
GROUPS = np.repeat(list(SIZES), list(SIZES.values()))


def study(folder: Path, suffix: str) -> list[Path]:
    """Write 200 rows of two channels into three files."""
    parts = np.split(X[:200, :2], np.cumsum(list(SIZES.values()))[:-1])
    return [write(folder / f"{name}{suffix}", rows) for name, rows in zip(SIZES, parts, strict=True)]


def test_files_of_lists_folders_and_patterns(tmp_path: Path) -> None:
    files = study(tmp_path / "study", ".parquet")
    for name in ("_metadata.parquet", ".a.parquet", "_SUCCESS"):
        write(tmp_path / "study" / name, X)
    for given_ in (
        files,
        tuple(map(str, files)),
        tmp_path / "study",
        str(tmp_path / "study" / "[abc].parquet"),
    ):
        rows, labels, _ = gathered(open_rows(given_))
        assert_array_equal(rows, X[:200, :2])
        assert_array_equal(labels, GROUPS)
    # At any depth; a file whose name looks like a pattern is that file.
    (tmp_path / "study" / "deep").mkdir()
    files[2].rename(tmp_path / "study" / "deep" / "c.parquet")
    for given_ in (tmp_path / "study", tmp_path / "study" / "**" / "*.parquet"):
        assert {"a", "b", "c"} <= {*open_rows(given_).row_labels()}
    odd = write(tmp_path / "a[1].csv", X)
    assert open_rows(odd).shape == (1000, 3)
    assert open_rows([odd]).row_labels()[0] == "a[1]"


def test_names_of_groups_differ(tmp_path: Path) -> None:
    def names(*paths: str) -> list[str]:
        files = [write(tmp_path / path, X[:1]) for path in paths]
        return list(dict.fromkeys(open_rows(files).row_labels().tolist()))

    assert names("0877.B08.csv", "b.csv.gz", "c") == ["0877.B08", "b", "c"]
    assert names("p1/tube.csv", "p2/tube.csv", "p2/other.csv") == ["p1/tube", "p2/tube", "p2/other"]
    assert names("x/p/tube.csv", "y/p/tube.csv") == ["x/p/tube", "y/p/tube"]
    assert names("a.csv", "a.parquet") == ["a.csv", "a.parquet"]
    with pytest.raises(ValueError, match=r"a\.csv is given twice"):
        names("a.csv", "p1/../a.csv")


def test_features_go_by_name_or_marker_in_every_file(tmp_path: Path) -> None:
    first = write(tmp_path / "1.csv", X[:70, :2], ["x", "y"])
    second = write(tmp_path / "2.parquet", X[70:200, 1::-1], ["y", "x"])
    source = open_rows([first, second])
    assert source.feature_names == ["x", "y"]
    assert_array_equal(gathered(source)[0], X[:200, :2])
    assert_array_equal(gathered(source.with_features([1]))[0], X[:200, [1]])
    # Single precision only if all files have it.
    np.save(tmp_path / "3.npy", X.astype(np.float32))
    np.save(tmp_path / "4.npy", X)
    assert gathered(open_rows([tmp_path / "3.npy"]))[0].dtype == np.float32
    assert gathered(open_rows([tmp_path / "3.npy", tmp_path / "4.npy"]))[0].dtype == np.float64
    one = write(tmp_path / "1.fcs", X[:, :2], ["B530-A", "R660-A"], ["CD3", "CD4"])
    other = write(tmp_path / "2.fcs", X[:, 1::-1], ["B530-A", "R660-A"], ["CD4", "CD3"])
    source = open_rows([one, other], columns=["CD3", "CD4"], transform=None)
    assert_array_equal(gathered(source)[0], np.concatenate([X, X])[:, :2].astype(np.float32))


def test_a_second_fit_of_opened_files_has_its_own_weights_and_labels(tmp_path: Path) -> None:
    """Rows that the first fit keeps in memory have neither the weights nor the labels of the second."""
    weights, kinds = np.where(X[:, 0] > 1.0, 9.0, 1.0), np.arange(1000) % 3
    for name, rows in {"1": slice(0, 90), "2": slice(90, 1000)}.items():
        write(tmp_path / f"{name}.parquet", X[rows], "abc", w=weights[rows], y=kinds[rows])
    mixture = SharedKernelMixture(1)
    source = open_rows(tmp_path, columns=list("abc"))
    assert_allclose(mixture.fit(source).means_, [X.mean(axis=0)])
    assert_allclose(mixture.fit(source, sample_weight="w").means_, [np.average(X, axis=0, weights=weights)])
    assert_allclose(mixture.fit(source, "y").class_count_, np.bincount(kinds))
    assert_allclose(mixture.fit(source).class_count_, [90, 910])


# ---------------------------------------------------------------- what is wrong with files


def test_bad_files_are_named(tmp_path: Path) -> None:
    good, infinite = {suffix: study(tmp_path, suffix) for suffix in (".fcs", ".csv")}, X[:200, :2].copy()
    infinite[150, 1] = np.inf
    write(tmp_path / "other.fcs", X, ["FSC-A", "G1", "R660-A"])
    write(tmp_path / "more.fcs", X)
    write(tmp_path / "wide.parquet", infinite)
    np.save(tmp_path / "two.npy", X[:, :2])
    (tmp_path / "words.csv").write_text("FSC-A,B530-A\n1,x\n")
    (tmp_path / "fraud.parquet").write_text("a,b\n1,2\n")
    for name, words in {
        "other.fcs": r"other\.fcs has no channel 'B530-A', and .*a\.fcs has one",
        "more.fcs": r"more\.fcs has a channel 'R660-A', and .*a\.fcs has none",
        "gone.fcs": r"no file or folder .*gone\.fcs",
        "words.csv": r"column 'B530-A' holds text in .*words\.csv and numbers in .*a\.csv",
        "fraud.parquet": "cannot be read as a Parquet file",
        "two.npy": r"has no feature names, unlike .*a\.csv",
        "wide.parquet": "has an infinite value: feature 'B530-A', row 150,",
    }.items():
        with pytest.raises((ValueError, OSError), match=words):
            gathered(open_rows([*good.get(Path(name).suffix, good[".csv"]), tmp_path / name], chunk_rows=60))


@pytest.mark.parametrize("suffix", [".csv", ".fcs"])
def test_files_without_any_value_are_named(tmp_path: Path, suffix: str) -> None:
    good = study(tmp_path, suffix)
    bare = write(tmp_path / f"bare{suffix}", np.full((500, 2), np.nan))
    with pytest.raises(ValueError, match=rf"bare\{suffix} has no value: all features of all its rows"):
        SharedKernelMixture(2).fit([*good, bare])
    # Rows to predict may be without a value.
    model = SharedKernelMixture(2, init={"means": X[:2, :2]}, max_iter=9, tol=1e9).fit(good)
    assert_allclose(model.predict_proba([bare]), np.tile(model.weights_ @ model.class_prior_, (500, 1)))


def test_rows_without_a_value_and_infinite_values_are_told(tmp_path: Path) -> None:
    rows = X[:200].copy()
    rows[[130, 190]] = np.nan
    rows[5, 0] = np.nan
    good, late = write(tmp_path / "good.npy", X), write(tmp_path / "late.npy", rows)
    # In one block, or in two that are not the first.
    for chunk_rows in (None, 50):
        model = SharedKernelMixture(1)
        with pytest.warns(
            UserWarning, match=r"2 of 1200 rows of 2 files .* left out; .* row 131 of .*late\.npy"
        ):
            model.fit(open_rows([good, late], chunk_rows=chunk_rows))
        assert_allclose(model.class_count_, [1000, 198])
    rows[160, 1], rows[170, 0] = -np.inf, np.inf
    for chunk_rows in (None, 64):
        with pytest.raises(ValueError, match=r"late\.npy has an infinite value: feature 1, row 160"):
            gathered(open_rows([write(tmp_path / "late.npy", rows)], chunk_rows=chunk_rows))
    # Large numbers are not infinite, though their sum is.
    large = np.full((3, 2), 1.5e308)
    assert_array_equal(gathered(open_rows([write(tmp_path / "large.npy", large)]))[0], large)


def test_what_is_no_group_is_told(tmp_path: Path) -> None:
    study(tmp_path, ".csv")
    np.save(tmp_path / "rows.npy", X)
    for given_, options, message in (
        (tmp_path, {}, r"two formats: rows\.npy and a\.csv\. Give a pattern, such as"),
        (tmp_path / "*.fcs", {}, r"No file matches .*\*\.fcs"),
        ([tmp_path / "a.csv"], {"compensate": True}, r"compensate=True needs FCS files.*a\.csv is not one"),
        ([], {}, "list of files or rows is empty"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            open_rows(given_, **options)
    with pytest.raises(ValueError, match="list of files or rows is empty"):
        SharedKernelMixture(2).fit([])


# ---------------------------------------------------------------- AnnData


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_matrices_of_an_anndata() -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    obs = pd.DataFrame({"sample": pd.Categorical(NAMES), "w": np.arange(1000.0)}, index=map(str, range(1000)))
    frame = pd.DataFrame(X[:, ::-1], columns=["p", "q", "r"], index=obs.index)
    pca = 3 * X.astype(np.float32)
    more = {"layers": {"raw": sparse.csr_matrix(2 * X)}, "obsm": {"X_pca": pca, "frame": frame}}
    adata = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=["u", "v", "w"]), **more)
    for options, rows, names in (
        ({}, X, ["u", "v", "w"]),
        ({"obsm": "X_pca"}, pca, None),
        ({"obsm": "frame"}, X[:, ::-1], ["p", "q", "r"]),
        ({"layer": "raw", "columns": ["v"]}, 2 * X[:, [1]], ["v"]),
        ({"obsm": "X_pca", "columns": [1]}, pca[:, [1]], None),
    ):
        source = open_rows(adata, label="sample", weight="w", chunk_rows=64, **options)
        assert source.feature_names == names
        for found, expected in zip(gathered(source), (rows, NAMES, np.arange(1000.0)), strict=True):
            assert_array_equal(found, expected)
        assert source.dtype == rows.dtype
    assert gathered(source_of(adata))[1] is None
    assert_array_equal(gathered(source_of(adata, "sample"))[1], NAMES)
    model, there = (SharedKernelMixture(2, random_state=0, tol=1e-3) for _ in range(2))
    model.fit(X, NAMES)
    for given_ in ((adata, "sample"), (open_rows(adata, label="sample"),)):
        there.fit(*given_)
        assert_allclose(there.means_, model.means_, rtol=1e-10)
        assert_allclose(there.weights_, model.weights_, rtol=1e-10)
        assert there.feature_names_in_.tolist() == ["u", "v", "w"]
    assert_array_equal(there.predict(adata), model.predict(X))
    for given_, options, message in (
        (adata, {"layer": "raw", "obsm": "X_pca"}, "layer='raw' or obsm='X_pca', not both"),
        (adata, {"layer": "X_pca"}, r"no 'X_pca' in layers; it has \['raw'\]"),
        (adata, {"obsm": "raw"}, r"no 'raw' in obsm; it has \['X_pca', 'frame'\]"),
        (adata, {"label": "kind"}, r"no column 'kind'; it has \['sample', 'w'\]"),
        (adata, {"columns": ["u", "x"]}, r"no feature 'x' .*\['u', 'v', 'w'\]"),
        (adata, {"columns": [0]}, "are chosen by name"),
        (anndata.AnnData(obs=obs), {}, "The AnnData has no X"),
        (anndata.AnnData(X, var=pd.DataFrame(index=list("uuv"))), {}, "two variables of the same name"),
    ):
        with pytest.raises(ValueError, match=message):
            open_rows(given_, **options)


# ---------------------------------------------------------------- files that change between fits


@pytest.mark.parametrize("names", [["a.csv"], ["a.npy", "b.npy"], ["a.fcs", "b.fcs"], ["a.csv", "b.parquet"]])
def test_opened_files_that_were_overwritten_are_refused(tmp_path: Path, names: list[str]) -> None:
    """Whether they were fitted before or not."""
    files = [write(tmp_path / name, X[:200, :2]) for name in names]
    rows = files if len(files) > 1 else files[0]
    fitted, opened = open_rows(rows, transform=None), open_rows(rows, transform=None)
    model, study = SharedKernelMixture(1).fit(fitted), compose(fitted, n_kernels=1)
    write(files[-1], X[:200, :2] + 1.0)
    os.utime(files[-1], ns=(0, 1))
    search = SharedKernelMixtureCV(n_kernels=1, covariance_type="full", criterion="bic")
    uses: list[Callable[[Any], Any]] = [SharedKernelMixture(1).fit, SharedKernelMixture(1).partial_fit]
    uses += [model.score, model.predict, search.fit, Study(model).apply_to]
    for use in uses:
        for source in (fitted, opened):
            with pytest.raises(ValueError, match=rf"{files[-1].name} has changed since it was opened"):
                use(source)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        study.label_cells(tmp_path / "labels.csv")
    again = SharedKernelMixture(1).fit(open_rows(rows, transform=None)).means_
    assert_allclose(again, [X[:200, :2].mean(axis=0) + 1.0 / len(files)], atol=1e-6)


@pytest.mark.parametrize("what", ["label", "weight"])
def test_labels_and_weights_that_were_overwritten_are_refused(tmp_path: Path, what: str) -> None:
    files = [write(tmp_path / name, X[:200, :2]) for name in ("a.npy", "b.npy")]
    values = write(tmp_path / "values.npy", np.arange(400) % 2 + 1)
    source = open_rows(files, **{what: values})  # type: ignore[arg-type]
    SharedKernelMixture(1).fit(source)
    np.save(values, np.arange(400) % 3 + 1)
    os.utime(values, ns=(0, 1))
    with pytest.raises(ValueError, match=r"values\.npy has changed since it was opened"):
        SharedKernelMixture(1).fit(source)
