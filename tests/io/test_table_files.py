"""Tables of any format become the same rows, and what cannot be read is refused by name."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import string
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skmix import open_rows
from skmix.io import ColumnError, read_rows, write_columns
from skmix.io.encoding import check_columns, decode_columns, feature_names
from skmix.io.labels import class_labels, labels_like
from skmix.io.opening import encode_frame

TEXT = "width,height,kind\n1.5,2,x\n,4e1,y\n-3,NA,x\n"
X = np.array([[1.5, 2.0], [np.nan, 40.0], [-3.0, np.nan]])


def rows_of(text: str, **options: object):
    return read_rows(io.BytesIO(text.encode()), **options)  # type: ignore[arg-type]


def said(rows: Any) -> tuple[str, ...]:
    return tuple(map(str, rows.notes))


def tables(folder: Path) -> dict[str, Path]:
    """Write the same table in every format, each by a library of its own."""
    import pandas as pd

    frame = pd.DataFrame({"width": X[:, 0], "height": X[:, 1], "kind": ["x", "y", "x"]})
    paths = {name: folder / f"table.{name}" for name in ("csv", "tsv", "csv.gz", "parquet", "npz")}
    paths["csv"].write_text(TEXT)
    paths["tsv"].write_text("\ufeff" + TEXT.replace(",", "\t").replace("\n", "\r\n"))
    paths["csv.gz"].write_bytes(gzip.compress(TEXT.replace(",", ";").encode()))
    frame.astype({"kind": "category"}).to_parquet(paths["parquet"])
    with open(paths["npz"], "wb") as file:
        np.savez(
            file, data=X, kind=frame["kind"].to_numpy(str), feature_names=["width", "height"], cube=X[None]
        )
    return paths


def test_all_formats_give_the_same_rows(tmp_path: Path) -> None:
    for name, path in tables(tmp_path).items():
        for source in (path, str(path), io.BytesIO(path.read_bytes())):
            rows = read_rows(source, target="kind")
            assert_array_equal(rows.X, X, err_msg=name)
            assert rows.feature_names == ("width", "height")
            assert rows.labels == ["x", "y", "x"]
        assert bool(rows.notes) == (name == "npz")
    assert "array 'cube' of type float64 and shape (1, 3, 2) is left out" in said(rows)[0]


def test_every_role_of_a_column_in_one_table() -> None:
    """Each column once, in whatever role, with all that is said of it."""
    text = (
        "id,w,colour,skip,code,n,kind,flag\n"
        "r1,1,red,x,1,0.5,A,true\n"
        "r2,0,blue,y,2,,b,FALSE\n"
        " r3 ,2.5,NA,z,1.0,-2,A,\n"
        "r4,1,green,z,,3e2,NA,false\n"
    )
    options: dict[str, Any] = {"target": "kind", "weight": "w", "drop": ["skip"], "keep": ["id", "n"]}
    rows = rows_of(text, categorical=["code"], **options)
    assert rows.feature_names == ("colour=blue", "colour=green", "colour=red", "code=2", "flag")
    nan = np.nan
    assert_array_equal(rows.X, [[0, 0, 1, 0, 1], [1, 0, 0, 1, 0], [nan, nan, nan, 0, nan], [0, 1, 0, nan, 0]])
    assert rows.labels == ["A", "b", "A", None]
    assert rows.weights is not None
    assert rows.weights.tolist() == [1.0, 0.0, 2.5, 1.0]
    assert rows.kept == {"id": ["r1", "r2", " r3 ", "r4"], "n": ["0.5", "", "-2", "3e2"]}
    assert rows.columns == {"colour": ["blue", "green", "red"], "code": ["1", "2"], "flag": None}
    assert rows.preparation == {"transform": "none", "columns": rows.columns, "missing": []}
    assert said(rows)[0] == "encoded as categories: colour, code"
    assert said(rows)[1].startswith("'NA' stands for no label in 1 rows of 'kind'.")
    assert len(rows.notes) == 2
    assert rows.ignored == ()
    # The same rows with their columns in another order, and more of them, are the same features.
    lines = [line.split(",") for line in text.splitlines()]
    turned = "\n".join(",".join([*reversed(line), "new"]) for line in lines)
    for how in ({"features": rows.columns}, {"preparation": rows.preparation}):
        again = rows_of(turned, **how, **options)
        assert_array_equal(again.X, rows.X)
        assert again.feature_names == rows.feature_names
        assert (again.labels, again.kept, again.columns) == (rows.labels, rows.kept, rows.columns)
        assert again.ignored == ("new",)
        assert said(again) == said(rows)[1:]


def test_columns_of_any_type(tmp_path: Path) -> None:
    import decimal
    from datetime import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "a": pa.array([1, 2, None], pa.int32()),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.25")]),
        "time": pa.array([1_000_000_001, None, 0], pa.timestamp("ns")),
        "kind": pa.array(["x", None, "y"]).dictionary_encode(),
        "large": pa.array(["1", "2", "1"], pa.large_string()),
        "list": pa.array([[1], [2], [3]]),
        "y": pa.array([1, -9, 3]),
    }
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    features = ["price", "a", "large"]
    rows = read_rows(path, features=features, keep=["price", "time", "kind"], target="y", missing=["-9"])
    assert rows.feature_names == ("price", "a", "large")
    assert_array_equal(rows.X, [[1.5, 1.0, 1.0], [np.nan, 2.0, 2.0], [2.25, np.nan, 1.0]])
    assert rows.labels == [1, None, 3]
    assert rows.kept == {
        "price": [1.5, None, 2.25],
        "time": [datetime(1970, 1, 1, 0, 0, 1), None, datetime(1970, 1, 1)],
        "kind": ["x", None, "y"],
    }
    assert rows.ignored == ("list",)
    for options, message in (
        ({"keep": ["list"]}, "column 'list' is of type list<.*>, neither numbers nor text"),
        (
            {"features": ["list"]},
            "column 'list' is of type list<.*>; a feature must be numbers or categories",
        ),
        (
            {"features": ["time"]},
            "column 'time' holds dates: it is of type timestamp.*Replace them by numbers",
        ),
        ({"features": {"time": None}}, "column 'time' is of type timestamp.*; a feature must be a number"),
        ({"weight": "time"}, "column 'time' is of type timestamp.*; weights must be numbers"),
        ({"weight": "a"}, "column 'a': the weight on row 3 is negative, missing or not a number"),
    ):
        with pytest.raises(ColumnError, match=message):
            read_rows(path, **{"features": features, **options})
    np.savez(tmp_path / "t.npz", a=np.array([1.0, 2.0], dtype=">f8"), b=np.array([3, 4], dtype=">i4"))
    assert_array_equal(read_rows(tmp_path / "t.npz").X, [[1.0, 3.0], [2.0, 4.0]])


def test_which_arrays_of_a_file_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    # A matrix says how many rows there are, wherever it is, and its columns have numbers or names.
    np.savez(path, ids=np.arange(5), Z=X, kind=np.array(["x", "y", "x"]), n=np.array([3, 4, 5]), scalar=7)
    rows = read_rows(path, target="kind")
    assert rows.feature_names == ("Z_1", "Z_2", "n")
    assert_array_equal(rows.X, np.column_stack([X, [3, 4, 5]]))
    why = "is left out: it is not a column of numbers or text with 3 rows"
    assert said(rows) == (
        f"array 'ids' of type int64 and shape (5,) {why}",
        f"array 'scalar' of type int64 and shape () {why}",
    )
    np.savez(path, columns=["p", "q"], Z=X)
    assert read_rows(path).feature_names == ("p", "q")
    # Names are ignored if there are two matrices, or more names than columns.
    np.savez(path, columns=["p", "q"], Z=X, Y=X[:, :1])
    assert read_rows(path).feature_names == ("Z_1", "Z_2", "Y_1")
    np.savez(path, columns=["p", "q", "r"], Z=X)
    assert read_rows(path).feature_names == ("Z_1", "Z_2")
    # Without a matrix, the first vector says it.
    np.savez(path, scalar=7, a=np.arange(2), b=np.arange(3), c=np.array([1j, 2]), d=np.array([True, False]))
    rows = read_rows(path)
    assert rows.feature_names == ("a", "d")
    assert_array_equal(rows.X, [[0.0, 1.0], [1.0, 0.0]])
    assert [note.split("'")[1] for note in said(rows)] == ["scalar", "b", "c"]
    np.save(tmp_path / "t.npy", np.array([4.0, 5.0]))
    rows = read_rows(tmp_path / "t.npy")
    assert rows.feature_names == ("column",)
    assert_array_equal(rows.X, [[4.0], [5.0]])


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    for path in tables(tmp_path).values():
        moved = path.rename(tmp_path / "anything.dat")
        assert_array_equal(read_rows(moved, target="kind").X, X)


def test_many_blocks_are_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.io.text._BLOCK_BYTES", 100)
    lines = "".join(f"{i},{2 * i}\n\n" for i in range(100))
    shares: list[float] = []
    rows = rows_of("a,b\n" + lines, progress=shares.append)
    assert_array_equal(rows.X, np.outer(np.arange(100), [1, 2]))
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    # A word among numbers that the first rows do not show costs one more pass, in whichever column.
    header = ",".join(f"c{j}" for j in range(12))
    line = ",".join(map(str, range(12))) + "\n"
    for column in (1, 10, 11):
        shares.clear()
        last = ",".join("true" if j == column else "5" for j in range(12))
        rows = rows_of(f"{header}\n{line * 300}{last}\n", progress=shares.append)
        assert_array_equal(rows.X[-1], [1.0 if j == column else 5.0 for j in range(12)])
        assert_array_equal(rows.X[:-1], [range(12)] * 300)
        assert int(np.sum(np.diff(shares) < 0)) == 1
    # Blank lines count as lines: the value is where an editor shows it.
    with pytest.raises(ColumnError, match="column 'b' holds numbers and text, such as 'oh' on line 202"):
        rows_of("a,b\n" + lines + "1,oh\n")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"a;b;c;d",x,y\n1,2,3\n', ("a;b;c;d", "x", "y")),
        ('"x 0\n(cm)",x,y\n1,2,3\n', ("x 0\n(cm)", "x", "y")),
        ("a\tb,c\td\n1\t2\t3\n", ("a", "b,c", "d")),
        ("\n\na;b;c\n1;2;3\n", ("a", "b", "c")),
        ("a,b,c\r1,2,3\r", ("a", "b", "c")),
        # More of another character, but in the names alone, or in some of the rows alone.
        ("a;s;t;u,b,c\n1,2,3\n", ("a;s;t;u", "b", "c")),
        ("a,b;s;t;u,c\n1,2,3\n", ("a", "b;s;t;u", "c")),
    ],
)
def test_the_separator_is_found_outside_quotes(text: str, names: tuple[str, ...]) -> None:
    rows = rows_of(text)
    assert rows.feature_names == names
    assert_array_equal(rows.X, [[1.0, 2.0, 3.0]])


def test_of_two_separators_the_one_with_more_columns_is_taken() -> None:
    rows = rows_of("a|b,c|d\n1|x,y|4\n2|z,u|5\n", target="b,c")
    assert rows.labels == ["x,y", "z,u"]
    assert_array_equal(rows.X, [[1.0, 4.0], [2.0, 5.0]])
    # A decimal comma does not separate, and one column needs no separator.
    assert_array_equal(rows_of("a\n1,5\n2,5\n", decimal=",").X, [[1.5], [2.5]])
    assert rows_of("a;b\n1,5;2\n", decimal=",").feature_names == ("a", "b")
    assert rows_of("a b\n1\n2\n").feature_names == ("a b",)


def test_the_target_by_position() -> None:
    rows = rows_of(TEXT, target=-1)
    assert rows.labels == ["x", "y", "x"]
    assert rows.feature_names == ("width", "height")
    with pytest.raises(ValueError, match="there is no column 3; there are 3"):
        rows_of(TEXT, target=3)
    with pytest.raises(ValueError, match="there is no column -4; there are 3"):
        rows_of(TEXT, target=-4)
    assert rows_of(TEXT.replace("1.5", "1"), target=0).labels == [1, None, -3]
    assert rows_of(TEXT, target=-2).feature_names == rows_of(TEXT, target="height").feature_names
    assert rows_of(TEXT, target=-2).feature_names == ("width", "kind=y")


def test_long_cells() -> None:
    blob = "x" * 500_000
    text = f"a,wkt\n1,{blob}\n2,{blob}\n"
    assert_array_equal(rows_of(text, drop=["wkt"]).X, [[1.0], [2.0]])
    with pytest.raises(
        ColumnError, match=r"column 'wkt' holds long text, such as 'x{40}…' on line 2: up to 500000"
    ):
        rows_of(text + "3,y\n")


def test_a_wide_table_with_many_words_that_the_first_rows_do_not_show() -> None:
    n_columns = 300
    header = ",".join(f"gene {i}" for i in range(n_columns))
    line = ",".join(map(str, range(n_columns)))
    truths = ",".join(["true"] * n_columns)
    rows = rows_of("\n".join([header, line, line, truths]), keep=["gene 7"])
    assert rows.X.shape == (3, n_columns - 1)
    assert (rows.X[2] == 1.0).all()
    assert rows.X[1, -1] == n_columns - 1
    assert rows.kept == {"gene 7": ["7", "7", "true"]}


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(TEXT,))
    writer.start()
    assert_array_equal(read_rows(pipe, target="kind").X, X)
    writer.join()


@pytest.mark.parametrize(
    ("text", "options", "message", "column"),
    [
        (
            "a,b\n1,red\n",
            {"features": {"a": None, "b": None}},
            "column 'b' holds text, such as 'red' on line 2; a feature must be a number",
            "b",
        ),
        ("a,b\n1,-inf\n", {}, "column 'b' is infinite on line 2", "b"),
        (
            "a,b\n1,2\n\n3,inf\ninf,1\n",
            {},
            "column 'b' is infinite on line 4; leave unknown values empty",
            "b",
        ),
        ("a,,b\n1,,2\n", {}, "column 2 has no name. Such a column is often a row index", ""),
        (",a,\n1,2,\n", {}, "column 1 has no name", ""),
        ("a,b,\n1,2,NA\n", {}, "column 3 has no name", ""),
        ("a,w\n1,2\n", {"weight": "w", "drop": ["w"]}, "column 'w' cannot be both used and left out", "w"),
        ("a,b\n1,2\n", {"categorical": ["b"], "drop": ["b"]}, "column 'b' cannot be both used", "b"),
        ("a,b\n1,2\n", {"categorical": ["c"]}, "there is no column 'c'; there are a, b", "c"),
        ("a,b\n1,2\n", {"keep": ["c"]}, "there is no column 'c'", "c"),
        (
            "a,b\n1,2\n",
            {"target": "a", "keep": ["b"]},
            "no column is left as a feature; the table has a, b",
            None,
        ),
        ("a,b\nx,\nx,\n", {"categorical": ["b"]}, "no column is left as a feature", None),
        ("a=x,a\n1,x\n2,y\n3,z\n", {}, "two features would have the same name", None),
        ("a b\n1 2\n", {"target": "b"}, "there is no column 'b'; there is only 'a b'. Columns must be", "b"),
        (
            "1,2\n3,x\n",
            {"header": False},
            "column 'column_2' holds numbers and text, such as 'x' on line 2",
            "column_2",
        ),
        ("a,b\n1,2\n", {"target": "c"}, "there is no column 'c'; there are a, b", "c"),
        ("a,b\n1,2\n", {"features": ["z", "y"]}, "there is no column 'z' .and 1 more.", "z"),
        ("a,b\n1,2\n", {"drop": ["c"]}, "there is no column 'c'", "c"),
        ("a,a\n1,2\n", {}, "two columns are called 'a'", "a"),
        (",a\n0,2\n", {}, "column 1 has no name", ""),
        ("a,b\n1\n", {}, "line 2 has 1 values, but the first line has 2", None),
        ("a,b\n1,2,3\n", {}, "line 2 has 3 values, but the first line has 2", None),
        ('a,b\n"1\n",2\n\n1\n', {}, "line 5 has 1 values, but the first line has 2", None),
        ('a,b\n"1\n",2\n\n1,x\n', {}, "column 'b' holds numbers and text, such as 'x' on line 5", "b"),
        ("a,b\r1,2\r1,x\r", {}, "column 'b' holds numbers and text, such as 'x' on line 3", "b"),
        ('a,b\n5" pipe,2\n1,x\n', {"drop": ["a"]}, "column 'b' holds numbers and text, .*'x' on line 3", "b"),
        ("\n\na,b\n1\n", {}, "line 4 has 1 values, but the first line has 2", None),
        ("a,b\n1_000,2\n1,2", {}, "column 'a' holds numbers and text, such as '1_000' on line 2", "a"),
        ("", {}, "the file is empty", None),
        ("1,2\n3,4\n", {}, "its first line has numbers instead of names: 1, 2", None),
        ("a,b\n1,2\n", {"target": "b", "drop": ["b"]}, "column 'b' cannot be both used and left out", "b"),
        ("a\n1\n", {"target": "a"}, "no column is left as a feature", None),
    ],
)
def test_bad_tables_are_refused_with_what_is_wrong(
    text: str, options: dict[str, object], message: str, column: str | None
) -> None:
    with pytest.raises(ValueError, match=f"^standard input: {message}") as caught:
        rows_of(text, **options)
    assert getattr(caught.value, "column", None) == column
    # Leaving a column out helps where it is there and only its values are wrong.
    wrong_values = any(words in message for words in ("holds", "is infinite", "has no name"))
    assert getattr(caught.value, "is_feature", False) == wrong_values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and no more", "cannot be read as a Parquet file"),
        (b"\x93NUMPY\x01\x00\x07\x00{'a': (", "it cannot be read as a .npy file"),
        (b"PK\x03\x04 and no more", "damaged, or not a table"),
        (gzip.compress(b"a,b\n1,2\n" * 5000, mtime=0)[:40], "damaged, or not a table"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-8] + bytes(8), "damaged, or not a table .CRC check failed"),
        ("a,b\n1,é\n".encode("latin-1"), "neither text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 without a byte-order mark: use encoding='utf-16-le'"),
    ],
)
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table"
    with pytest.raises(FileNotFoundError, match="table"):
        read_rows(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"table: .*{message}"):
        read_rows(path)


@pytest.mark.parametrize(
    "word", ["N/A", "n/a", "#N/A", "None", "NULL", "<NA>", "na", "-", ".", "#DIV/0!", " NA "]
)
def test_the_usual_words_for_missing_values(word: str) -> None:
    # Late in the table too, where the reader already takes the column for numbers.
    for n_before in (0, 300):
        rows = rows_of("a,b\n" + "1,2\n" * n_before + f"3,{word}\n1,4\n")
        assert_array_equal(rows.X[n_before:], [[3.0, np.nan], [1.0, 4.0]])


def test_other_words_and_numbers_for_missing_values() -> None:
    text = "a,b,kind\n-9999.0,k.A.,NA\n1,-9999,Na\n2,3,NA\n"
    for others in (["-9999", "k.A."], ["", "-9999", "k.A."]):
        rows = rows_of(text, target="kind", missing=others)
        assert_array_equal(rows.X, [[np.nan, np.nan], [1.0, np.nan], [2.0, 3.0]])
        # Namibia, or sodium: an empty word takes the usual ones away.
        assert rows.labels == (["NA", "Na", "NA"] if "" in others else [None, "Na", None])
        assert rows.preparation is not None
        assert rows.preparation["missing"] == others
    # However the number is written, here and in what was said.
    for word in ("-9,5", "-9.5", "-95e-1"):
        found = rows_of("a;b\n-9,50;1\n2;-9,5\n", decimal=",", missing=[word])
        assert_array_equal(found.X, [[np.nan, 1.0], [2.0, np.nan]])
    # With an empty word, a sign alone is text.
    with pytest.raises(ColumnError, match="column 'a' holds numbers and text, such as '-' on line 2"):
        rows_of("a\n-\n1\n", missing=[""])
    rows = rows_of(text.replace("k.A.", "3"), target="kind")
    assert rows.labels == [None, "Na", None]
    assert said(rows)[0].startswith(
        "'NA' stands for no label in 2 rows of 'kind'. If it is a class, use missing"
    )


def test_signs_are_classes_and_no_missing_values() -> None:
    assert rows_of("a,kind\n1,+\n2,-\n", target="kind").labels == ["+", "-"]
    assert rows_of("a,level\n1,none\n2,high\n3,-\n").feature_names[1:] == (
        "level=-",
        "level=high",
        "level=none",
    )


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"a;b;kind\n1,5;2;x\n3,25;-4;y\n", {"decimal": ","}),
        (b"a~b~kind\n1.5~2~x\n3.25~-4~y\n", {"sep": "~"}),
        (b"a  b kind\n1.5 2  x\n3.25 -4 y\n", {"sep": " "}),
        (b"a b kind \r\n1.5 2 x  \r\n3.25 -4 y ", {"sep": " "}),
        (b"a|b|kind\n1.5|2|x\n3.25|-4|y\n", {}),
        ("\ufeffa,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("utf-16-le"), {}),
        ("\ufeffa,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("utf-16-be"), {}),
        ("a,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("cp500"), {"encoding": "cp500"}),
        (b'a, "b", "kind"\n1.5, "2", "x"\n3.25, -4, "y"\n', {}),
        # The quotation mark comes after the first block.
        (b"a,b,kind\n1.5,2,x\n" + b"\n" * 5000 + b'3.25,-4, "y"\n', {}),
    ],
)
def test_how_a_text_is_written(
    monkeypatch: pytest.MonkeyPatch, content: bytes, options: dict[str, Any]
) -> None:
    monkeypatch.setattr("skmix.io.text._HEAD_BYTES", 1000)
    rows = read_rows(io.BytesIO(content), target="kind", **options)
    assert rows.feature_names == ("a", "b")
    assert_array_equal(rows.X, [[1.5, 2.0], [3.25, -4.0]])
    assert rows.labels == ["x", "y"]


def test_rows_in_blocks_are_written_in_any_way(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe;b;art\n1,5;k.A.;ä\n-9;2;ö\n".encode("latin-1"))
    text = {"sep": ";", "decimal": ",", "encoding": "latin-1", "missing": ["k.A.", "-9"]}
    rows = open_rows(tmp_path / "t.csv", label="art", text=text)
    assert rows.feature_names == ["größe", "b"]
    assert rows.row_labels().tolist() == ["ä", "ö"]
    assert_array_equal(next(rows.blocks()).X, [[1.5, np.nan], [np.nan, 2.0]])


def test_categories_are_encoded() -> None:
    rows = rows_of("colour,a,smoker\nred,1,yes\nblue, 2,no\ngreen,3,NA\nred,4,\n")
    assert rows.columns == {"colour": ["blue", "green", "red"], "a": None, "smoker": ["no", "yes"]}
    assert rows.feature_names == ("colour=blue", "colour=green", "colour=red", "a", "smoker=yes")
    expected = [[0, 0, 1, 1, 1], [1, 0, 0, 2, 0], [0, 1, 0, 3, np.nan], [0, 0, 1, 4, np.nan]]
    assert_array_equal(rows.X, expected)
    assert said(rows) == ("encoded as categories: colour, smoker",)
    again = rows_of("smoker,a,colour,z\nno,7, red ,1\nnever,8,teal,1\n", features=rows.columns)
    assert again.feature_names == rows.feature_names
    assert_array_equal(again.X, [[0, 0, 1, 7, 0], [np.nan, np.nan, np.nan, 8, np.nan]])
    assert again.ignored == ("z",)
    assert said(again)[0].startswith(
        "column 'colour' has categories that the model does not know, in 1 rows: teal;"
    )
    # A category of the model is none of the usual words for a missing value.
    known = {"country": ["DE", "NA"], "level": ["?", "a", "b"]}
    found = rows_of("country,level\nNA,?\nDE,a\nnull,NA\n,-\n", features=known)
    assert_array_equal(found.X, [[1, 1, 0, 0], [0, 0, 1, 0], [np.nan] * 4, [np.nan] * 4])
    # Drawn features are no zeros and ones: the likeliest category is theirs.
    drawn = decode_columns(np.array([[0.4, 0.2, 0.3, 5.0, 0.4], [0.1, 0.2, 0.9, 6.0, 0.6]]), rows.columns)
    assert [drawn[name].tolist() for name in drawn] == [["blue", "red"], [5.0, 6.0], ["no", "yes"]]


def test_the_most_that_are_categories() -> None:
    def categories(values: list[str]) -> Any:
        return rows_of("b\n" + "".join(f"{value}\n" for value in values)).columns["b"]

    names = [f"name {i:02}" for i in range(51)]
    # Ten in any number of rows, more if there are two rows of each on average; missing ones do not count.
    assert categories(names[:10]) == names[:10]
    assert categories(names[:11] * 2) == names[:11]
    assert categories(names[:50] * 2) == names[:50]
    for values, message in (
        (names[:11] * 2 + [], None),
        ([*names[:11], *names[:10], "NA", "NA"], "11 different values in 21 rows"),
        (names * 2, "51 different values in 102 rows"),
        (["x" * 201, "y"], "up to 201 characters"),
        (["x" * 200, "y"], None),
        # Half of the values or more are numbers.
        (["1", "x", "NA"], "holds numbers and text"),
        (["1", "x", "y"], None),
    ):
        if message is None:
            assert categories(values) == sorted({*values})
        else:
            with pytest.raises(ColumnError, match=message):
                categories(values)
    # Whoever says that a column has categories may have any number of them.
    assert len(rows_of("b\n" + "\n".join(names), categorical=["b"]).feature_names) == 51


def test_files_have_the_categories_of_all(tmp_path: Path) -> None:
    for name, text in {
        "1": "colour,a\nred,1\nblue,2\n",
        "2": "colour,a\nred,3\nteal,4\n",
        "3": "colour,a\n,5\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    rows = open_rows(tmp_path)
    assert rows.feature_names == ["colour=blue", "colour=red", "colour=teal", "a"]
    nan = np.nan
    expected = [[0, 1, 0, 1], [1, 0, 0, 2], [0, 1, 0, 3], [0, 0, 1, 4], [nan, nan, nan, 5]]
    assert_array_equal(np.concatenate([block.X for block in rows.blocks()]), expected)


def test_categories_have_no_scale(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("colour,a,smoker\nred,10,yes\nblue,-20,no\ngreen,30,\n")
    nan = np.nan
    expected = [[0, 0, 1, np.arcsinh(2), 1], [1, 0, 0, np.arcsinh(-4), 0], [0, 1, 0, np.arcsinh(6), nan]]
    found = read_rows(path, preparation={"transform": "arcsinh:5"})
    assert_allclose(found.X, expected)
    for files in (path, [path]):
        opened = open_rows(files, transform="arcsinh:5")
        assert opened.preparation == found.preparation
        assert_allclose(next(opened.blocks()).X, expected)
        assert_allclose(next(opened.take([3, 2]).blocks()).X, np.array(expected)[:, [3, 2]])


def test_numbers_may_be_categories(tmp_path: Path) -> None:
    import pandas as pd

    rows = rows_of("a,code,flat\n1,1,x\n2,2,x\n3,30,x\n", categorical=["code"])
    assert rows.columns == {"a": None, "code": ["1", "2", "30"]}
    assert said(rows) == ("column 'flat' is 'x' in all rows and is left out", "encoded as categories: code")
    notes = said(rows_of("a,code\n1,\n2,NA\n", categorical=["code"]))
    assert notes == ("column 'code' is missing in all rows and is left out",)
    # In Parquet a gap makes floats of whole numbers.
    pd.DataFrame({"a": [1, 2], "code": [2.0, np.nan]}).to_parquet(tmp_path / "t.parquet")
    again = read_rows(tmp_path / "t.parquet", features=rows.columns)
    assert_array_equal(again.X, [[1.0, 0.0, 1.0, 0.0], [2.0, np.nan, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [f"name {i}" for i in range(12)],
            "holds text, such as 'name 0' on line 2: 12 different values in 12",
        ),
        (
            [f"name {i % 51}" for i in range(400)],
            "holds text, such as 'name 0' on line 2: 51 different values",
        ),
        (
            ["1", "2", "3+"],
            "holds numbers and text, such as '3\\+' on line 4. If .* missing=.*; if .* categorical=",
        ),
        *(
            (
                [value, "7", value],
                f"holds numbers with signs or .*, such as {re.escape(repr(value))} on line 2. .*",
            )
            for value in (
                *("1,200.50", "$5", "-€ 5,5", "5%", "12.5 %", "1 200", "1.200.300", "1'200"),
                *("1’200.5", "+5 ¥", "£1.200", "$-5", ".5%", "1\u00a0200", "12\u202f345,5", "-1 234 567"),
            )
        ),
        *(
            (
                [value, "", value],
                f"holds dates, such as '{re.escape(value)}' on line 2. Replace them by numbers",
            )
            for value in ("2020-01-31", "2020-01-31T10:00Z", "12/31/2020", "1-2-20 10:00", "31.1.2020")
        ),
        *(
            (["7", value], f"has a comma in the number '{re.escape(value)}' on line 3")
            for value in ("1.200,5", "-1,5e3", "+1 200,5", "1,200")
        ),
        # Neither is a date, nor a number with signs.
        (["1/2-3", "1", "2"], "holds numbers and text, such as '1/2-3'"),
        (["12 34", "1", "2"], "holds numbers and text, such as '12 34'"),
        (
            ["1,5", "2,5"],
            "has a comma in the number '1,5' on line 2. If it is before decimals, use decimal=','",
        ),
    ],
)
def test_text_that_is_no_feature_is_refused_with_the_remedy(column: list[str], message: str) -> None:
    with pytest.raises(ColumnError, match=f"column 'b' {message}"):
        rows_of("a;b\n" + "".join(f"{i};{value}\n" for i, value in enumerate(column)))


def test_points_are_refused_where_commas_are_before_decimals(tmp_path: Path) -> None:
    for n_before in (0, 300):
        with pytest.raises(
            ColumnError, match=f"has a point in the number '1.234' on line {n_before + 3}, but"
        ):
            rows_of("a;b\n1,5;2\n" + "2,5;3\n" * n_before + "1.234;2\n", decimal=",")
    for value in ("1.234,5", ".5", "-2.", "1.234.567", "1.5e-3"):
        with pytest.raises(ColumnError, match=f"has a point in the number '{re.escape(value)}' on line 2"):
            rows_of(f"a;b\n{value};2\n1;2\n", decimal=",")
    assert_array_equal(rows_of("a\n1,5\n2\n", decimal=",").X, [[1.5], [2.0]])
    # Columns of a model are numbers, and a mark that is not theirs is told as such.
    for text, options, what in (
        ("a;b\n1;1,5\n", {"sep": ";"}, "a comma in the number '1,5'"),
        ("a;b\n1;1.5\n", {"decimal": ","}, "a point in the number '1.5'"),
    ):
        with pytest.raises(ColumnError, match=f"column 'b' has {what} on line 2") as caught:
            rows_of(text, features={"b": None}, **options)
        assert not caught.value.is_feature


def test_an_empty_last_column_is_left_out() -> None:
    rows = rows_of("a,b,\n1,2,\n3,4, \n")
    assert_array_equal(rows.X, [[1.0, 2.0], [3.0, 4.0]])
    assert said(rows) == ("the last column has neither a name nor values and is left out",)
    with pytest.raises(ColumnError, match="column 3 has no name"):
        rows_of("a,b,\n1,2,\n3,4,5\n")


def test_columns_that_the_table_lacks_are_missing_values() -> None:
    columns = {"a": None, "colour": ["blue", "green", "red"], "b": None}
    rows = rows_of("b\n1\n2\n", features=columns)
    assert_array_equal(rows.X, [[np.nan] * 4 + [1.0], [np.nan] * 4 + [2.0]])
    assert said(rows) == ("columns that are not there: a, colour; they are taken as missing values",)
    with pytest.raises(ColumnError, match=r"there is no column 'a' \(and 2 more\); there is only 'c'"):
        rows_of("c\n1\n", features=columns)


@pytest.mark.parametrize("text", ["a,b,kind\n", "a,b,kind", 'a, "b",kind\r\n\r\n'])
def test_a_table_without_rows(text: str) -> None:
    rows = rows_of(text, target="kind")
    assert rows.X.shape == (0, 2)
    assert rows.labels == []


def test_weights() -> None:
    rows = rows_of("a,w\n1,2\n3,0.5\n", weight="w")
    assert rows.feature_names == ("a",)
    assert rows.weights is not None
    assert_array_equal(rows.weights, [2.0, 0.5])
    for wrong in ("-1", "", "inf"):
        with pytest.raises(ColumnError, match="'w': the weight on line 3 is negative, missing or not"):
            rows_of(f"a,w\n1,2\n3,{wrong}\n", weight="w")
    # Rows for a model need no weights; whoever names the columns means them all.
    assert rows_of("a,b\n1,2\n", weight="w", features={"a": None}).weights is None
    with pytest.raises(ColumnError, match="'w'"):
        rows_of("a,b\n1,2\n", weight="w", features=["a"])


def test_leading_zeros_are_told() -> None:
    notes = said(rows_of("a,code\n1,00700\n0,12345\n"))
    assert len(notes) == 1
    assert notes[0].startswith("column 'code' has numbers with leading zeros, such as 00700. If")
    assert "drop=['code']; if they are categories, use categorical=['code']" in notes[0]
    # In any of the first rows; not where some are no whole numbers, where zero is zero, or among categories.
    assert "such as 07" in said(rows_of("code\n1\nNA\n07\n008\n"))[0]
    for values in ("0.5\n07", "-1\n07", "0\n10"):
        assert said(rows_of(f"a,code\n1,{values.replace(chr(10), chr(10) + '2,')}\n")) == ()
    assert said(rows_of("a,code\n1,07\n2,8\n", drop=["code"])) == ()
    assert said(rows_of("a,code\n1,07\n2,8\n", categorical=["code"])) == ("encoded as categories: code",)


def test_arrays_with_a_broken_header(tmp_path: Path) -> None:
    header = b"{'descr': ((((( \n"
    broken = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "broken.npy").write_bytes(broken)
    with zipfile.ZipFile(tmp_path / "broken.npz", "w") as archive:
        archive.writestr("a.npy", broken)
    for name in ("broken.npy", "broken.npz"):
        with pytest.raises(ValueError, match=f"{name}: it (is damaged|cannot be read)"):
            read_rows(tmp_path / name)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_objects_in_arrays_are_never_unpickled(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    np.savez(tmp_path / "objects.npz", a=trap)
    with pytest.raises(ValueError, match=r"objects\.npz: .*array 'a' holds Python objects"):
        read_rows(tmp_path / "objects.npz")
    np.save(tmp_path / "objects.npy", trap)
    with pytest.raises(ValueError, match=r"objects\.npy: .*Python objects"):
        read_rows(tmp_path / "objects.npy")
    assert not (tmp_path / "sprung").exists()


def test_labels_are_whole_numbers_or_text() -> None:
    def read(*words: str) -> list[Any]:
        found = rows_of("a,y\n" + "".join(f"1,{word}\n" for word in words), target="y").labels
        assert found is not None
        return found

    for values in (read("0", "7", " 7 "), [0.0, 7.0, 7.0], [0, 7, 7], read("0", "7.0", "7")):
        labels, known = class_labels(values, "y")
        assert labels.dtype == np.int64
        assert labels.tolist() == [0, 7, 7]
        assert known.all()
    assert class_labels(read("-1", "0", "1"), "y")[0].tolist() == [-1, 0, 1]
    assert class_labels(read("01", "2", "x"), "y")[0].tolist() == ["01", "2", "x"]
    # Of a column of text nothing is read.
    assert class_labels(["1", "2"], "y")[0].tolist() == ["1", "2"]
    labels, known = class_labels(["a", None, "", "b"], "y")
    assert labels[known].tolist() == ["a", "b"]
    assert known.tolist() == [True, False, False, True]
    assert class_labels([True, False], "y")[0].tolist() == [True, False]
    labels, known = class_labels(read("true", "NA", "FALSE", "False"), "y")
    assert labels[known].tolist() == [True, False, False]
    assert known.tolist() == [True, False, True, True]
    assert class_labels(read("true", "x"), "y")[0].tolist() == ["true", "x"]
    # Rows without a label are numbers among numbers.
    labels, known = class_labels(read("3", "NA", "2"), "y")
    assert labels.dtype == np.int64
    assert labels[known].tolist() == [3, 2]


def test_the_most_labels_that_are_classes() -> None:
    fractions = [f"{number}.5" for number in range(11)]
    assert len(class_labels(fractions[:10] * 2, "y")[0]) == 20
    names = [f"name {i:02}" for i in range(21)]
    assert class_labels(names[:20], "y")[0].tolist() == names[:20]
    assert class_labels(names * 2, "y")[0].tolist() == names * 2
    for values, counts in (
        (fractions * 2, "11 different values in 22 rows, such as '0.5'"),
        ([*names, *names[:20], None, ""], "21 different values in 41 rows, such as 'name 00'"),
    ):
        with pytest.raises(ColumnError, match=f"column 'y' has {counts}: too many for classes"):
            class_labels(values, "y")


def test_labels_that_differ_in_case_are_not_the_same() -> None:
    classes = np.array(["ASH", "Oak", "oak"])
    labels, known = labels_like([" oak", "ASH", None, "Oak", ""], classes, "y")
    assert labels.tolist() == ["oak", "ASH", "ASH", "Oak", "ASH"]
    assert known.tolist() == [True, True, False, True, False]
    with pytest.raises(
        ColumnError, match="not classes of the model: OAK, ash; its classes are ASH, Oak, oak"
    ):
        labels_like(["ash", "OAK", "ash"], classes, "y")


def test_labels_take_the_type_of_the_model() -> None:
    for classes in (np.array([1, 2]), np.array(["1", "2"]), np.array([1.0, 2.0])):
        for values in (["2", "1"], [2, 1], [2.0, 1.0]):
            labels, _ = labels_like(values, classes, "y")
            assert labels.dtype == classes.dtype
            assert_array_equal(labels, classes[::-1])
    with pytest.raises(
        ColumnError, match="column 'y' has labels that are not classes of the model: 3; its classes are 1, 2"
    ):
        labels_like(["3", "1"], np.array([1, 2]), "y")


def test_what_a_model_keeps_of_columns_is_checked() -> None:
    columns = {"colour": ["blue", "green", "red"], "a": None, "smoker": ["no", "yes"]}
    check_columns(columns, feature_names(columns))
    wrong: list[Any] = [[], None, {"a": 5}, {"a": "time"}, {"a": ()}, {"a": []}, {"a": ["x"]}]
    for each in (*wrong, {"a": ["x", 1]}, {"a": ["x", "x"]}, {"b": ["x", "y", "y"]}, {"a": ("x", "y")}):
        with pytest.raises(ValueError, match="columns of preparation_ do not describe"):
            check_columns(each, ["a=x", "a=y"])
    with pytest.raises(ValueError, match="columns of preparation_ do not describe"):
        check_columns({"a": None}, ["b"])


words = st.sampled_from(["red", "green", "blue ", "Å", "x,y", 'a "b"', "none", "-"])
truths = st.sampled_from(["true", "false"])


@settings(max_examples=40)
@given(st.data())
def test_frames_and_files_are_encoded_alike(data: st.DataObject) -> None:
    """One table as a frame of pandas or polars, a CSV and a Parquet file has the same features."""
    import pandas as pd
    import polars as pl

    n_rows = data.draw(st.integers(2, 12))
    columns: dict[str, list[Any]] = {"a": [float(i) for i in range(n_rows)]}
    for name, kind in (("number", numbers), ("word", words), ("truth", st.booleans())):
        columns[name] = data.draw(
            st.lists(st.none() | kind, min_size=n_rows, max_size=n_rows).filter(
                lambda own: any(v not in (None, "none", "-") for v in own)
            )
        )
    columns["number"] = [None if v is None else float(v) for v in columns["number"]]
    frame = pd.DataFrame(columns)
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(f"{folder}/t.csv", index=False)
        frame.to_parquet(f"{folder}/t.parquet")
        expected = read_rows(f"{folder}/t.csv")
        opened = [open_rows(f"{folder}/{name}") for name in ("t.csv", "t.parquet")]
        found = [np.concatenate([block.X for block in rows.blocks()]) for rows in opened]
        found.append(read_rows(f"{folder}/t.parquet").X)
    for each in (frame, frame.astype({"word": "category"}), pl.DataFrame(columns, strict=False)):
        X, kinds, _ = encode_frame(each)
        assert kinds == expected.columns
        found += [X, encode_frame(each, kinds)[0]]
    for X in found:
        assert_array_equal(X, expected.X)
    # And back: the likeliest category is the one that was there.
    complete = ~np.isnan(expected.X).any(axis=1)
    for name, values in decode_columns(expected.X, expected.columns).items():
        if expected.columns[name] is not None:
            own = [str(v).strip() for v in frame[name]]
            assert_array_equal(values[complete], np.array(own)[complete])


names = st.text(string.ascii_letters + " _é;\t", min_size=1, max_size=6).map(str.strip).filter(bool)
numbers = st.one_of(
    st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**12), 10**12)
)


@settings(max_examples=40)
@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    """The standard library writes, quoting what needs it; the reader must not lose a value."""
    header = data.draw(st.lists(names, min_size=2, max_size=4, unique=True))
    body = data.draw(st.lists(st.tuples(*[numbers] * len(header)), min_size=1, max_size=8))
    body = [line for line in body if any(value is not None for value in line)]
    if not body:
        return
    stream = io.StringIO()
    csv.writer(stream).writerows([[f"{name},x" for name in header], *body])
    rows = rows_of(stream.getvalue())
    assert rows.feature_names == tuple(f"{name},x" for name in header)
    assert_array_equal(rows.X, [[np.nan if v is None else float(v) for v in line] for line in body])


@settings(max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text('ab,;\t"\n\r01.-e?é\0', max_size=40).map(str.encode),
        st.binary(max_size=40).map(lambda rest: b"PK\x03\x04" + rest),
        st.binary(max_size=40).map(lambda rest: b"PAR1" + rest),
        st.text("ab,01\n", max_size=40).map(
            lambda text: gzip.compress(text.encode(), mtime=0)[: 5 + len(text)]
        ),
    )
)
@example(b"\xff\xfea\0,\0b\0")
@example(b'a,b\n"1,2\n')
def test_any_bytes_are_rows_or_a_sentence(content: bytes) -> None:
    try:
        rows = read_rows(io.BytesIO(content))
    except (ValueError, OSError):
        return
    assert rows.X.shape == (len(rows.X), len(rows.feature_names))
    assert np.isfinite(rows.X[~np.isnan(rows.X)]).all()


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "tsv.gz", "parquet"])
def test_written_tables_are_read_again_to_the_last_bit(tmp_path: Path, ending: str) -> None:
    columns = {
        "a b": np.array([0.1, np.nan, -1e-300]),
        "n": np.array([1, 2, 3]),
        "kind": np.array(['x,"', "y\t\n", "z"]),
    }
    path = tmp_path / f"table.{ending}"
    write_columns(path, columns)
    if ending != "parquet":
        content = gzip.decompress(path.read_bytes()) if ending.endswith(".gz") else path.read_bytes()
        lines = csv.reader(io.StringIO(content.decode()), delimiter="\t" if "tsv" in ending else ",")
        assert list(lines) == [
            ["a b", "n", "kind"],
            ["0.1", "1", 'x,"'],
            ["", "2", "y\t\n"],
            ["-1e-300", "3", "z"],
        ]
    rows = read_rows(path, target="kind")
    assert_array_equal(rows.X, np.column_stack([columns["a b"], columns["n"]]))
    assert rows.labels == ['x,"', "y\t\n", "z"]
    first = path.read_bytes()
    write_columns(path, columns)
    assert path.read_bytes() == first
    if ending.endswith(".gz"):
        assert first[4:8] == bytes(4), "a date would make other bytes of the same table"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_digits_and_endings_of_written_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    write_columns(stream, {"a": np.array([1 / 3, 1e-9])}, digits=3)
    assert stream.getvalue() == b"a\n0.333\n1e-09\n"
    columns = {
        "a": np.array([1234.5678, np.nan, 2.0]),
        "n": np.array([123456, 2, 3]),
        "kind": np.array(["x", None, "0.123456"], dtype=object),
        "truth": np.array([True, False, True]),
        "single": np.array([1 / 3, 2.0, 1e9], dtype=np.float32),
    }
    for digits, first in (
        (2, "1.2e+03,123456,x,True,0.33"),
        (None, "1234.5678,123456,x,True,0.3333333432674408"),
    ):
        write_columns(stream := io.BytesIO(), columns, digits=digits)
        written = stream.getvalue().decode().splitlines()
        assert written[:2] == ["a,n,kind,truth,single", first]
        # A stream stays open, and rows may be written in several parts.
        monkeypatch.setattr("skmix.io.writing._BATCH_ROWS", 2)
        write_columns(stream, columns, digits=digits)
        assert stream.getvalue().decode().splitlines() == 2 * written
    assert written[2] == ",2,,False,2.0"
    write_columns(tmp_path / "T.PARQUET", {"a": columns["a"]}, digits=2)
    assert_array_equal(read_rows(tmp_path / "T.PARQUET").X[:, 0], columns["a"])
    (tmp_path / "T.PARQUET").unlink()
    with pytest.raises(ValueError, match=r"table\.xls: the name of a table must end in \.csv"):
        write_columns(tmp_path / "table.xls", {"a": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []
