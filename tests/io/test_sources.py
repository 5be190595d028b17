"""Files in blocks: what is read is what was written, and what is wrong is told with the file's name."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from documented import assert_defaults

from skmix import io, open_rows
from skmix.engine.compute.blocks import Block, is_blocks
from skmix.io import Source, source_of
from skmix.io import readers as reader_module
from skmix.io.sources import read_ahead

X = np.random.default_rng(0).normal(size=(1000, 3))
Y = np.random.default_rng(1).integers(0, 4, 1000)
NAMES = np.array(["oak", "elm", "ash", "larch"])[Y]


def gathered(source: Source) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return all rows, labels and weights."""
    parts = []
    for block in source.blocks():
        y = block.y if block.names is None or block.y is None else block.names[block.y]
        parts.append((block.X, y, block.weights))
    rows, labels, weights = zip(*parts, strict=True)
    return (
        np.concatenate(rows),
        None if labels[0] is None else np.concatenate(labels),
        None if weights[0] is None else np.concatenate(weights),
    )


# ---------------------------------------------------------------- arrays and .npy files


@pytest.mark.parametrize("dtype", ["<f8", "<f4", ">f8", "<f2", "<i8", "<i2", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, dtype: str, order: str) -> None:
    written = np.asarray(10 * X, dtype=np.int16).astype(dtype) if dtype[-2:] != "f8" else X.astype(dtype)
    np.save(tmp_path / "rows.npy", np.asarray(written, order=order))  # type: ignore[call-overload]
    source = open_rows(tmp_path / "rows.npy", chunk_rows=64)
    assert is_blocks(source)
    assert source.shape == (1000, 3)
    read, labels, weights = gathered(source)
    assert labels is None
    assert weights is None
    assert read.dtype == (np.float32 if dtype == "<f4" else np.float64)
    assert np.array_equal(read, written.astype(np.float64))


@pytest.fixture(params=["one thread", "many threads"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Read small files in one thread or several; return the sizes of the pieces."""
    sizes: list[int] = []
    read_into = reader_module._read_into

    def noted(path: Path, cut: tuple[int, np.ndarray]) -> None:
        sizes.append(len(cut[1]))
        read_into(path, cut)

    monkeypatch.setattr(reader_module, "_read_into", noted)
    if request.param == "many threads":
        monkeypatch.setattr(reader_module, "_MOST_READERS", 4)
        monkeypatch.setattr(reader_module, "_READER_BYTES", 500)
    return sizes


@pytest.mark.parametrize("order", ["C", "F"])
def test_threads_read_the_same_rows(tmp_path: Path, readers: list[int], order: str) -> None:
    np.save(tmp_path / "rows.npy", np.asarray(X, order=order))  # type: ignore[call-overload]
    read, _, _ = gathered(open_rows(tmp_path / "rows.npy", chunk_rows=201))
    assert np.array_equal(read, X)
    whole = 201 * 8 * (3 if order == "C" else 1)
    assert (max(readers) < whole) is (reader_module._READER_BYTES == 500)
    assert sum(readers) == X.nbytes


def test_labels_and_weights_lie_beside_the_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "names.npy", NAMES)
    source = open_rows(
        str(tmp_path / "rows.npy"), label=tmp_path / "names.npy", weight=Y.astype(np.int8), columns=[2, 0],
        chunk_rows=300,
    )  # fmt: skip
    rows, labels, weights = gathered(source)
    assert np.array_equal(rows, X[:, [2, 0]])
    assert np.array_equal(labels, NAMES)
    assert np.array_equal(weights, Y)
    assert np.array_equal(gathered(source.take([1]))[0], X[:, [0]])
    assert np.array_equal(gathered(source.take([1, 0]).take([1]))[0], X[:, [2]])
    again = gathered(source.unlabelled())
    assert again[1] is None
    assert again[2] is None
    assert not source.unlabelled().has_labels


def test_labels_are_coded_once_and_kept(tmp_path: Path) -> None:
    reads = []

    def read(start: int, stop: int) -> np.ndarray:
        reads.append(start)
        return NAMES[start:stop]

    source = open_rows(X, chunk_rows=400, label=NAMES)
    assert source.labels is not None
    source = replace(source, labels=replace(source.labels, read=read))
    coded = source.coded(np.array(["ash", "elm", "oak"]))
    expected = np.array([2, 1, 0, -1])[Y]
    for _ in range(3):
        labels = gathered(coded)[1]
        assert np.array_equal(labels, expected)
        assert labels is not None
        assert labels.dtype == np.int8
    # Those of some features are the same, and are not looked up again.
    assert np.array_equal(gathered(coded.take([0]))[1], expected)
    assert reads == [0, 400, 800]


def test_what_is_a_source_without_being_asked(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert source_of(mapped) is source_of(X) is source_of(X.tolist()) is None
    assert np.array_equal(gathered(open_rows(mapped[::3], chunk_rows=128))[0], X[::3])
    assert isinstance(source_of(str(tmp_path / "rows.npy")), Source)


def test_files_are_recognised_by_their_content_where_the_name_does_not_tell(pa, tmp_path: Path) -> None:
    write(pa, tmp_path / "1.PQ", columns_of(X))
    np.save(tmp_path / "2.npy", X)
    (tmp_path / "3.TSV").write_text(
        "a\tb\tc\n" + "".join("\t".join(map(repr, row)) + "\n" for row in X.tolist())
    )
    np.savez(tmp_path / "4.npz", a=X[:, 0], b=X[:, 1], c=X[:, 2])
    for path in sorted(tmp_path.iterdir()):
        assert np.array_equal(gathered(open_rows(path))[0], X)
        bare = path.rename(tmp_path / path.stem)
        source = open_rows(bare)
        assert np.array_equal(gathered(source)[0], X)
        assert source.feature_names == (None if path.suffix == ".npy" else ["a", "b", "c"])
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
        (b"\x93NUMPY\x01\0\x10\0{'descr': '<f8',(", r"cannot be read as a \.npy file"),
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


# Bytes of a row in a block: those of the array, but four for each feature at least.
WIDTHS = {"float64": 24, "float32": 12, "int8": 12, "npy": 24, "pyarrow": 24, "flowio": 36}


@pytest.mark.parametrize("kind", WIDTHS)
def test_blocks_have_as_many_rows_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """And at least 256, however wide the rows are."""
    rows: Any
    if kind == "npy":
        rows = tmp_path / "rows.npy"
        np.save(tmp_path / "rows.npy", X)
    elif kind == "pyarrow":
        pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        rows = pa.table(columns_of(X))
    elif kind == "flowio":
        flowio = pytest.importorskip("flowio", reason="flowio is not installed")
        rows = tmp_path / "rows.fcs"
        with open(tmp_path / "rows.fcs", "wb") as file:
            flowio.create_fcs(file, X.ravel().tolist(), list("abc"))
    else:
        rows = X.astype(kind)
    for n_fitting, n_rows in ((300, 300), (400, 400), (10, 256)):
        monkeypatch.setattr(reader_module, "BLOCK_BYTES", n_fitting * WIDTHS[kind])
        assert open_rows(rows).chunk_rows == n_rows
        assert open_rows(rows, chunk_rows=np.int64(7)).chunk_rows == 7  # type: ignore[arg-type]
    assert [len(block.X) for block in open_rows(rows, chunk_rows=400).blocks()] == [400, 400, 200]


def test_answers_of_blocks_are_merged_in_order() -> None:
    source = open_rows(X, chunk_rows=400)
    found = source.reduce(lambda block: [block.number, len(block.X)], lambda a, b: a + b)
    assert found == [0, 400, 1, 400, 2, 200]
    assert repr(source) == "<1000 rows of X>"
    assert (source.shape, source.n_features, source.has_labels) == ((1000, 3), 3, False)
    labelled = open_rows(X, label=NAMES.astype(object), weight=Y.astype(np.float32), chunk_rows=400)
    assert labelled.has_labels
    assert labelled.row_labels().dtype == NAMES.dtype
    assert np.array_equal(labelled.row_labels(), NAMES)
    assert gathered(labelled)[2].dtype == np.float64  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["rows.npy", "rows.parquet", "label", "weight"])
def test_files_that_change_between_passes_are_told(tmp_path: Path, what: str) -> None:
    path = tmp_path / f"{what.removesuffix('.npy').removesuffix('.parquet')}.npy"
    values = X if what.startswith("rows") else Y
    if what.endswith("parquet"):
        path = tmp_path / what
        pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def save(values: np.ndarray) -> None:
        if path.suffix == ".npy":
            np.save(path, values)
        else:
            write(pa, path, columns_of(values))

    save(values)
    source = open_rows(path) if what.startswith("rows") else open_rows(X, **{what: path})  # type: ignore[arg-type]
    gathered(source)
    before = path.stat().st_size
    save(values[:-1])
    with pytest.raises(
        ValueError, match=rf"{path.name} has changed since it was opened \({before} bytes then"
    ):
        gathered(source)
    # As many bytes, later.
    save(values)
    os.utime(path, ns=(0, 1))
    with pytest.raises(ValueError, match=rf"{path.name} has changed"):
        gathered(source)
    path.unlink()
    with pytest.raises(ValueError, match="no longer exists"):
        gathered(source)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_shrinks_during_a_pass_is_told(tmp_path: Path, readers: list[int], order: str) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.asarray(X, order=order))  # type: ignore[call-overload]
    (reader,) = open_rows(path).readers.values()
    blocks = reader.read(100)
    next(blocks)
    os.truncate(path, 2000)
    with pytest.raises(ValueError, match=r"rows\.npy became shorter while it was being read"):
        next(blocks)


# ---------------------------------------------------------------- reading ahead


def test_the_next_block_is_read_while_one_is_worked_on() -> None:
    read: list[int] = []
    begun = threading.Event()

    def blocks():  # type: ignore[no-untyped-def]
        for number in range(4):
            read.append(number)
            if number == 1:
                begun.set()
            yield Block(X[:1], number=number)

    ahead = read_ahead(blocks())
    assert next(ahead).number == 0
    assert begun.wait(timeout=600)
    assert [block.number for block in ahead] == [1, 2, 3]
    assert read == [0, 1, 2, 3]


def test_errors_of_the_reader_and_of_the_work_reach_the_caller(tmp_path: Path) -> None:
    def blocks():  # type: ignore[no-untyped-def]
        yield Block(X[:1])
        raise OSError("the disk is gone")

    ahead = read_ahead(blocks())
    next(ahead)
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
    n_threads = threading.active_count()

    def fail(block: Block) -> int:
        raise ZeroDivisionError("a row too few")

    with pytest.raises(ZeroDivisionError, match="a row too few"):
        open_rows(X, chunk_rows=10).reduce(fail, lambda a, b: a)
    assert threading.active_count() <= n_threads


# ---------------------------------------------------------------- Parquet


@pytest.fixture
def pa():  # type: ignore[no-untyped-def]
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def write(pa, path: Path, table: dict, group: int = 150) -> None:  # type: ignore[no-untyped-def]
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), path, row_group_size=group)


def columns_of(rows: np.ndarray, **more: object) -> dict[str, object]:
    return {**{"abc"[j]: rows[:, j] for j in range(3)}, **more}


@pytest.mark.parametrize("chunk_rows", [None, 40, 200, 5000])
def test_a_folder_of_parquet_files_is_read_in_order(
    pa, tmp_path: Path, chunk_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "BLOCK_BYTES", 7200)
    write(pa, tmp_path / "parts" / "2.parquet", columns_of(X[400:], label=NAMES[400:]))
    write(pa, tmp_path / "parts" / "1.parquet", columns_of(X[:400], label=NAMES[:400]))
    write(pa, tmp_path / "parts" / "3.parquet", columns_of(X[:0], label=NAMES[:0]))
    (tmp_path / "parts" / "_SUCCESS").touch()
    source = open_rows(tmp_path / "parts", label="label", chunk_rows=chunk_rows)
    assert source.feature_names == ["a", "b", "c"]
    rows, labels, _ = gathered(source)
    assert np.array_equal(rows, X)
    assert np.array_equal(labels, NAMES)
    # Blocks span row groups and files.
    if chunk_rows == 200:
        assert [len(block.X) for block in source.blocks()] == [200] * 5
    coded = source.coded(np.unique(NAMES))
    for _ in range(2):
        assert np.array_equal(gathered(coded)[1], np.unique(NAMES, return_inverse=True)[1])
    # Those of some features are cut in the same places, where the same codes belong.
    rows, labels, _ = gathered(coded.take([2]))
    assert np.array_equal(rows, X[:, [2]])
    assert np.array_equal(labels, np.unique(NAMES, return_inverse=True)[1])


def test_codes_are_whole_after_a_pass_that_was_broken_off(pa, tmp_path: Path) -> None:
    write(pa, tmp_path / "rows.parquet", columns_of(X, label=NAMES), group=100)
    coded = open_rows(tmp_path / "rows.parquet", label="label", chunk_rows=100).coded(np.unique(NAMES))
    blocks = coded.blocks()
    next(blocks)
    blocks.close()
    assert np.array_equal(gathered(coded)[1], np.unique(NAMES, return_inverse=True)[1])


def test_numbers_of_any_type_and_nulls(pa, tmp_path: Path) -> None:
    nan = np.nan
    table = {
        "f2": (pa.array(np.array([0.5, 1.5, -2.0], dtype=np.float16)), [0.5, 1.5, -2.0]),
        "f4": (pa.array([1.5, None, 3.0], pa.float32()), [1.5, nan, 3.0]),
        "u2": (pa.array([1, None, 65535], pa.uint16()), [1, nan, 65535]),
        "bool": (pa.array([True, None, False]), [1, nan, 0]),
        "decimal": (pa.array([None, 2, 3], pa.decimal128(5, 2)), [nan, 2, 3]),
        "none": (pa.nulls(3), [nan] * 3),
        "empty": (pa.array([None, None, None], pa.int64()), [nan] * 3),
    }
    columns = {name: column for name, (column, _) in table.items()}
    write(pa, tmp_path / "mixed.parquet", {**columns, "w": pa.array([True, False, True])})
    source = open_rows(tmp_path / "mixed.parquet", weight="w")
    rows, _, weights = gathered(source)
    assert np.array_equal(rows.T, [expected for _, expected in table.values()], equal_nan=True)
    assert rows.dtype == np.float64
    assert np.array_equal(weights, [1.0, 0.0, 1.0])
    assert gathered(source.select(["f4", "f2"]))[0].dtype == np.float32


def test_bad_parquet_files_are_told(pa, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    write(pa, tmp_path / "none.parquet", columns_of(X[:0]))
    write(pa, tmp_path / "mixed" / "1.parquet", columns_of(X, label=NAMES))
    write(pa, tmp_path / "mixed" / "2.parquet", {"a": X[:, 0], "b": X[:, 1], "label": Y})
    write(pa, tmp_path / "days.parquet", {"a": [1.0], "day": pa.array([1], pa.date32())})
    for name, options, words in (
        ("empty", {}, r"folder .*empty has no files of rows \(\.fcs"),
        ("torn.parquet", {}, r"torn\.parquet cannot be read"),
        ("none.parquet", {}, r"none\.parquet is empty"),
        ("mixed", {"columns": ["a", "c"]}, r"2\.parquet has no column 'c'"),
        ("mixed", {"label": "label"}, "Labels differ in kind.*string in .*1.parquet.*int64 in .*2.parquet"),
        ("mixed", {"label": "species"}, "has no column 'species'"),
        ("mixed", {"weight": "label"}, "weights must be numbers"),
        ("days.parquet", {"label": "day"}, "labels must be whole numbers, strings or booleans"),
    ):
        with pytest.raises(ValueError, match=words):
            gathered(open_rows(tmp_path / name, **options))  # type: ignore[arg-type]


def test_a_column_may_have_several_roles(pa, tmp_path: Path) -> None:
    write(pa, tmp_path / "rows.parquet", columns_of(X, y=Y))
    source = open_rows(tmp_path / "rows.parquet", columns=["y", "b"], label="y", weight="y", chunk_rows=300)
    rows, labels, weights = gathered(source)
    assert np.array_equal(rows, np.column_stack([Y, X[:, 1]]))
    assert np.array_equal(labels, Y)
    assert np.array_equal(weights, Y)
    # Neither is a feature unless it is chosen.
    assert open_rows(tmp_path / "rows.parquet", label="a", weight="b").feature_names == ["c", "y"]
    source = open_rows(tmp_path / "rows.parquet", label="a", weight="b").unlabelled()
    assert source.feature_names == ["c", "y"]
    assert gathered(source)[1:] == (None, None)
    # Other values take the place of a column, and the other way round.
    assert np.array_equal(gathered(source.labelled(NAMES).labelled("y"))[1], Y)
    assert np.array_equal(gathered(source.weighted(X[:, 0]).weighted("y"))[2], Y)


def test_features_are_found_by_name(pa, tmp_path: Path) -> None:
    write(pa, tmp_path / "rows.parquet", columns_of(X, species=NAMES))
    source = open_rows(tmp_path / "rows.parquet")
    assert np.array_equal(gathered(source.select(["c", "a"]))[0], X[:, [2, 0]])
    assert np.array_equal(gathered(open_rows(tmp_path / "rows.parquet", columns=["b"]))[0], X[:, [1]])
    assert source.labelled("species").feature_names == ["a", "b", "c"]
    assert source.labelled("species").unlabelled().feature_names == ["a", "b", "c"]
    assert source.feature_names == ["a", "b", "c", *(f"species={name}" for name in sorted({*NAMES.tolist()}))]
    with pytest.raises(ValueError, match=r"rows\.parquet has no column 'd', 'e'; there are a, b, c"):
        gathered(source.select(["a", "d", "e"]))
    with pytest.raises(ValueError, match="chosen by name"):
        open_rows(tmp_path / "rows.parquet", columns=[0])


def test_labels_in_the_names_of_folders_are_not_read(pa, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_to_dataset(pa.table({"a": X[:, 0], "tree": NAMES}), tmp_path, partition_cols=["tree"])
    with pytest.raises(
        ValueError, match=r"no column 'tree'.* Values in folder names \(Hive partitioning\) are not read"
    ):
        open_rows(tmp_path, label="tree")
    assert open_rows(tmp_path).feature_names == ["a"]


def test_the_index_of_a_data_frame_is_not_a_feature(pa, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pd.DataFrame(X, columns=list("abc"), index=np.arange(1000) * 2).to_parquet(tmp_path / "rows.parquet")
    assert open_rows(tmp_path / "rows.parquet").feature_names == ["a", "b", "c"]
    named = pd.DataFrame(X, columns=list("abc"), index=pd.Index(np.arange(1000), name="patient"))
    source = open_rows(named)
    assert source.feature_names == ["a", "b", "c"]
    assert np.array_equal(gathered(source)[0], X)


def test_the_label_of_a_file_that_is_a_source_without_being_asked(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,kind,b\n1,x,2\n3,y,4\n")
    source = source_of(str(tmp_path / "rows.csv"), "kind")
    assert source is not None
    assert source.feature_names == ["a", "b"]
    assert list(gathered(source)[1]) == ["x", "y"]


def test_some_features_have_the_type_of_all(pa, tmp_path: Path) -> None:
    """As in memory, where an array has one type."""
    write(pa, tmp_path / "rows.parquet", {"a": X[:, 0], "b": X[:, 1].astype(np.float32)})
    source = open_rows(tmp_path / "rows.parquet")
    assert gathered(source.take([1]))[0].dtype == np.float64
    assert gathered(source.select(["b"]))[0].dtype == np.float32


# ---------------------------------------------------------------- Zarr


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_arrays_and_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Literal[2, 3]
) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    group = zarr.open_group(str(tmp_path / "store"), mode="w", zarr_format=version)
    group.create_array("rows", data=X, chunks=(130, 2))
    group.create_array("labels", data=Y, chunks=(300,))
    for rows in (tmp_path / "store" / "rows", str(tmp_path / "store" / "rows"), group["rows"]):
        source = open_rows(rows, label=group["labels"])
        assert isinstance(source_of(rows), Source)
        assert np.array_equal(gathered(source)[0], X)
        assert np.array_equal(gathered(source)[1], Y)
    # About 300 rows would fit into a block, but a chunk that is cut would be read twice.
    monkeypatch.setattr(reader_module, "BLOCK_BYTES", 300 * X[0].nbytes)
    assert [len(block.X) for block in open_rows(group["rows"]).blocks()] == [260, 260, 260, 220]
    assert repr(source).startswith("<1000 rows of the Zarr array")
    group["rows"].resize((900, 3))
    with pytest.raises(ValueError, match="has changed since it was opened"):
        gathered(source)
    for rows, labels in ((tmp_path / "store", None), (group, None), (X, group)):
        with pytest.raises(ValueError, match=r"is a Zarr group of \['labels', 'rows'\]"):
            open_rows(rows, label=labels)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty is a folder, but not a Zarr array"):
        open_rows(X, label=tmp_path / "empty")


# ---------------------------------------------------------------- what is not installed


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zarr", None)
    (tmp_path / "zarr.json").touch()
    with pytest.raises(ImportError, match=r'pip install "\.\[zarr\]"'):
        open_rows(tmp_path)


def test_defaults_are_as_documented() -> None:
    assert_defaults(io, 10)
