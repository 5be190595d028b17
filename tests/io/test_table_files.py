"""Tables of any format become the same rows, and what cannot be read is refused by name."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import string
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skmix import open_rows
from skmix.datasets import ColumnError, class_labels, labels_like, read_rows, write_columns
from skmix.io.encoding import decode_columns

TEXT = "width,height,kind\n1.5,2,x\n,4e1,y\n-3,NA,x\n"
X = np.array([[1.5, 2.0], [np.nan, 40.0], [-3.0, np.nan]])


def rows_of(text: str, **options: object):
    return read_rows(io.BytesIO(text.encode()), **options)  # type: ignore[arg-type]


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
    assert "array 'cube' of type float64 and shape (1, 3, 2) is left out" in rows.notes[0]


def test_columns_of_parquet_and_arrays_of_any_byte_order(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "kind": ["x", "y"]}, index=[5, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    rows = read_rows(tmp_path / "t.parquet", features=["b", "a"], keep=["kind"])
    assert_array_equal(rows.X, [[3.0, 1.0], [4.0, 2.0]])
    assert read_rows(tmp_path / "t.parquet", target="kind").feature_names == ("a", "b")
    np.savez(tmp_path / "t.npz", a=np.array([1.0, 2.0], dtype=">f8"), b=np.array([3, 4], dtype=">i4"))
    assert_array_equal(read_rows(tmp_path / "t.npz").X, [[1.0, 3.0], [2.0, 4.0]])


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    for path in tables(tmp_path).values():
        moved = path.rename(tmp_path / "anything.dat")
        assert_array_equal(read_rows(moved, target="kind").X, X)


def test_columns_are_taken_in_the_order_asked_for() -> None:
    text = "kind,extra,height,width\nx,?,2,1.5\n"
    rows = rows_of(text, features=["width", "height"], drop=["kind", "not there"])
    assert_array_equal(rows.X, [[1.5, 2.0]])
    assert rows.notes == ()
    assert rows.ignored == ("extra",)
    assert rows_of(text, features=["width"], keep=["kind"]).kept == {"kind": ["x"]}


def test_values_are_read_as_people_write_them() -> None:
    rows = rows_of('a,b\n"1", true\n 2e-3 ,FALSE\n?,1\n1,2\n')
    assert_array_equal(rows.X, [[1.0, 1.0], [0.002, 0.0], [np.nan, 1.0], [1.0, 2.0]])
    assert rows_of("1,2\n3,4\n", header=False).feature_names == ("column_1", "column_2")
    assert_array_equal(rows_of("1,2\n3,4\n", header=False).X, [[1.0, 2.0], [3.0, 4.0]])


def test_many_blocks_are_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.io.tables._BLOCK_BYTES", 100)
    lines = "".join(f"{i},{2 * i}\n\n" for i in range(100))
    shares: list[float] = []
    rows = rows_of("a,b\n" + lines, progress=shares.append)
    assert_array_equal(rows.X, np.outer(np.arange(100), [1, 2]))
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
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
    ],
)
def test_the_separator_is_found_outside_quotes(text: str, names: tuple[str, ...]) -> None:
    rows = rows_of(text)
    assert rows.feature_names == names
    assert_array_equal(rows.X, [[1.0, 2.0, 3.0]])


def test_a_row_without_any_value_is_a_row() -> None:
    assert_array_equal(rows_of("a,b\n1,2\n,\n").X, [[1.0, 2.0], [np.nan, np.nan]])


def test_the_target_by_position() -> None:
    rows = rows_of(TEXT, target=-1)
    assert rows.labels == ["x", "y", "x"]
    assert rows.feature_names == ("width", "height")
    with pytest.raises(ValueError, match="there is no column 3; there are 3"):
        rows_of(TEXT, target=3)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and no more", "not a complete Parquet file"),
        (b"\x93NUMPY\x01\x00\x07\x00{'a': (", "it is damaged"),
        (b"PK\x03\x04 and no more", "damaged, or not a table"),
        (gzip.compress(b"a,b\n1,2\n" * 5000, mtime=0)[:40], "damaged, or not a table"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-8] + bytes(8), "damaged, or not a table .CRC check failed"),
        ("a,b\n1,é\n".encode("latin-1"), "neither text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 without a byte-order mark: add --encoding utf-16-le"),
    ],
)
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"table: .*{message}"):
        read_rows(path)


def test_types_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"day": pd.to_datetime(["2020-01-01"]), "a": [1.0], "flag": [True]})
    frame.to_parquet(tmp_path / "dates.parquet")
    with pytest.raises(ColumnError, match="column 'day' holds dates: it is of type timestamp"):
        read_rows(tmp_path / "dates.parquet")
    assert_array_equal(read_rows(tmp_path / "dates.parquet", drop=["day"]).X, [[1.0, 1.0]])
    with pytest.raises(ColumnError, match="column 'day' is of type timestamp"):
        read_rows(tmp_path / "dates.parquet", features={"day": None})


@pytest.mark.parametrize(
    "word", ["N/A", "n/a", "#N/A", "None", "NULL", "<NA>", "na", "-", ".", "#DIV/0!", " NA "]
)
def test_the_usual_words_for_missing_values(word: str) -> None:
    # Late in the table too, where the reader already takes the column for numbers.
    for n_before in (0, 300):
        rows = rows_of("a,b\n" + "1,2\n" * n_before + f"3,{word}\n1,4\n")
        assert_array_equal(rows.X[n_before:], [[3.0, np.nan], [1.0, 4.0]])


def test_other_words_and_numbers_for_missing_values(tmp_path: Path) -> None:
    import pandas as pd

    text = "a,b,kind\n-9999.0,k.A.,NA\n1,-9999,Na\n2,3,NA\n"
    for others in (["-9999", "k.A."], ["", "-9999", "k.A."]):
        rows = rows_of(text, target="kind", missing=others)
        assert_array_equal(rows.X, [[np.nan, np.nan], [1.0, np.nan], [2.0, 3.0]])
        # Namibia, or sodium: an empty word takes the usual ones away.
        assert rows.labels == (["NA", "Na", "NA"] if "" in others else [None, "Na", None])
    assert_array_equal(rows_of("a\n-9999\n-\nNA\n1\n", missing=["-9999"]).X[:, 0], [np.nan] * 3 + [1.0])
    rows = rows_of(text.replace("k.A.", "3"), target="kind")
    assert rows.labels == [None, "Na", None]
    assert rows.notes[0].startswith(
        "'NA' stands for no label in 2 rows of 'kind'. If it is a class, add --missing ''"
    )
    pd.DataFrame({"a": [-9999.0, 1.0], "b": [1, -9999]}).to_parquet(tmp_path / "t.parquet")
    rows = read_rows(tmp_path / "t.parquet", missing=["-9999"])
    assert_array_equal(rows.X, [[np.nan, 1.0], [1.0, np.nan]])


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
    monkeypatch.setattr("skmix.io.tables._HEAD_BYTES", 1000)
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
    assert_array_equal(next(rows.read(labels=False)).X, [[1.5, np.nan], [np.nan, 2.0]])


def test_names_and_labels_of_any_encoding() -> None:
    rows = read_rows(io.BytesIO("größe,art\n1,ä\n2,ö\n".encode("latin-1")), target="art", encoding="latin-1")
    assert (rows.feature_names, rows.labels) == (("größe",), ["ä", "ö"])
    with pytest.raises(ValueError, match="encoding='klingon' is not known"):
        rows_of(TEXT, encoding="klingon")


def test_a_separator_inside_quotes_after_a_blank_does_not_count() -> None:
    rows = rows_of('a, "b, c", kind\n1, "2", "x, y"\n3, 4, z\n', target="kind")
    assert rows.feature_names == ("a", "b, c")
    assert rows.labels == ["x, y", "z"]


def test_categories_are_encoded() -> None:
    rows = rows_of("colour,a,smoker\nred,1,yes\nblue, 2,no\ngreen,3,NA\nred,4,\n")
    assert rows.columns == {"colour": ["blue", "green", "red"], "a": None, "smoker": ["no", "yes"]}
    assert rows.feature_names == ("colour=blue", "colour=green", "colour=red", "a", "smoker=yes")
    expected = [[0, 0, 1, 1, 1], [1, 0, 0, 2, 0], [0, 1, 0, 3, np.nan], [0, 0, 1, 4, np.nan]]
    assert_array_equal(rows.X, expected)
    assert rows.notes == ("encoded as categories: colour, smoker",)
    again = rows_of("smoker,a,colour,z\nno,7, red ,1\nnever,8,teal,1\n", features=rows.columns)
    assert again.feature_names == rows.feature_names
    assert_array_equal(again.X, [[0, 0, 1, 7, 0], [np.nan, np.nan, np.nan, 8, np.nan]])
    assert again.ignored == ("z",)
    assert again.notes[0].startswith(
        "column 'colour' has categories that the model does not know, in 1 rows: teal;"
    )
    # Drawn features are no zeros and ones: the likeliest category is theirs.
    drawn = decode_columns(np.array([[0.4, 0.2, 0.3, 5.0, 0.4], [0.1, 0.2, 0.9, 6.0, 0.6]]), rows.columns)
    assert [drawn[name].tolist() for name in drawn] == [["blue", "red"], [5.0, 6.0], ["no", "yes"]]


def test_numbers_may_be_categories(tmp_path: Path) -> None:
    import pandas as pd

    rows = rows_of("a,code,flat\n1,1,x\n2,2,x\n3,30,x\n", categorical=["code"])
    assert rows.columns == {"a": None, "code": ["1", "2", "30"]}
    assert "column 'flat' is 'x' in all rows and is left out" in rows.notes
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
            "holds numbers and text, such as '3\\+' on line 4. If .* --missing '3\\+' .* --categorical",
        ),
        (
            ["2020-01-31", "2020-02-30", "2020-02-01"],
            "holds dates, but '2020-02-30' on line 3 is not a date written like '2020-01-31'",
        ),
        (["2020-01-31", "2020-02-01", "1.2.2020"], "holds dates, but '1.2.2020' on line 4 is not"),
        (["2020-01-31T10:00Z", "-", "2020-02-01"], "holds dates, but '2020-02-01' on line 4 is not"),
        *(
            (
                [value, "7", value],
                f"holds numbers with signs or .*, such as '{re.escape(value)}' on line 2. .*",
            )
            for value in ("1,200.50", "$5", "-€ 5,5", "5%", "12.5 %", "1 200", "1.200.300")
        ),
        (["2020-01-31", "", "2020-02-01"], "holds dates, such as '2020-01-31' on line 2. --dates numbers"),
        (
            ["31.1.2020", "1.2.2020"],
            "seems to hold dates, such as '31.1.2020' on line 2. Dates must be written",
        ),
        (
            ["1,5", "2,5"],
            "has a comma in the number '1,5' on line 2. If it is before decimals, use --decimal ,",
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
    with pytest.raises(ColumnError, match=r"has a point in the number '1\.234,5' on line 2"):
        rows_of("a;b\n1.234,5;2\n1;2\n", decimal=",")
    assert_array_equal(rows_of("a\n1,5\n2\n", decimal=",").X, [[1.5], [2.0]])


def test_text_of_several_types_in_one_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    for first in kinds:
        for second in kinds:
            columns = {
                "a": pa.array(["1", "2", "1"]).cast(first),
                "b": pa.array(["x", "y", "x"]).cast(second),
            }
            pq.write_table(pa.table(columns), tmp_path / "t.parquet")
            assert_array_equal(read_rows(tmp_path / "t.parquet").X, [[1.0, 0.0], [2.0, 1.0], [1.0, 0.0]])


def test_an_empty_last_column_is_left_out() -> None:
    rows = rows_of("a,b,\n1,2,\n3,4, \n")
    assert_array_equal(rows.X, [[1.0, 2.0], [3.0, 4.0]])
    assert rows.notes == ("the last column has neither a name nor values and is left out",)
    with pytest.raises(ColumnError, match="column 3 has no name"):
        rows_of("a,b,\n1,2,\n3,4,5\n")


def test_dates_become_days(tmp_path: Path) -> None:
    import pandas as pd

    rows = rows_of("a,day\n1,1970-01-03\n2,NA\n3,1969-12-31 12:00\n", dates=True)
    assert rows.columns == {"a": None, "day": "date"}
    assert_array_equal(rows.X[:, 1], [2.0, np.nan, -0.5])
    again = rows_of("a,day\n1,1970-01-03\n2,-\n3,.\n", dates=True)
    assert_array_equal(again.X[:, 1], [2.0, np.nan, np.nan])
    days = pd.to_datetime(["1970-01-03", None, "1969-12-31 12:00"], format="ISO8601")
    pd.DataFrame({"a": [1, 2, 3], "day": days}).to_parquet(tmp_path / "t.parquet")
    assert_array_equal(read_rows(tmp_path / "t.parquet", dates=True).X, rows.X)
    kept = read_rows(tmp_path / "t.parquet", keep=["day"]).kept["day"]
    assert [value and value.hour for value in kept] == [0, None, 12]
    with pytest.raises(
        ColumnError, match="column 'day' holds text, such as 'soon' on line 2; it must hold dates"
    ):
        rows_of("a,day\n1,soon\n", features=rows.columns)


def test_columns_that_the_table_lacks_are_missing_values() -> None:
    columns = {"a": None, "colour": ["blue", "green", "red"], "b": None}
    rows = rows_of("b\n1\n2\n", features=columns)
    assert_array_equal(rows.X, [[np.nan] * 4 + [1.0], [np.nan] * 4 + [2.0]])
    assert rows.notes == ("columns that are not there: a, colour; they are taken as missing values",)
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
    notes = rows_of("a,code\n1,00700\n0,12345\n").notes
    assert len(notes) == 1
    assert notes[0].startswith("column 'code' has numbers with leading zeros, such as 00700. If")


def test_truths_are_alike_in_every_format(tmp_path: Path) -> None:
    import pandas as pd

    truths = [True, False, True]
    pd.DataFrame({"a": truths, "kind": truths}).to_parquet(tmp_path / "t.parquet")
    stored = read_rows(tmp_path / "t.parquet", target="kind")
    assert stored.labels is not None
    classes = class_labels(stored.labels, "kind")[0]
    assert classes.tolist() == ["True", "False", "True"]
    for words in (("true", "false"), ("TRUE", "FALSE"), ("True", "False")):
        rows = rows_of(
            "a,kind\n" + "".join(f"{words[not t]},{words[not t]}\n" for t in truths), target="kind"
        )
        assert_array_equal(rows.X, stored.X)
        assert rows.labels is not None
        assert_array_equal(class_labels(rows.labels, "kind")[0], classes)
        assert_array_equal(
            labels_like(rows.labels, np.array(["false", "true"]), "kind")[0], ["true", "false", "true"]
        )


def test_an_array_is_a_table(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", X)
    rows = read_rows(tmp_path / "t.npy")
    assert rows.feature_names == ("column_1", "column_2")
    assert_array_equal(rows.X, X)


def test_arrays_with_a_broken_header(tmp_path: Path) -> None:
    header = b"{'descr': ((((( \n"
    broken = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "broken.npy").write_bytes(broken)
    with zipfile.ZipFile(tmp_path / "broken.npz", "w") as archive:
        archive.writestr("a.npy", broken)
    for name in ("broken.npy", "broken.npz"):
        with pytest.raises(ValueError, match=f"{name}: it is damaged"):
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
    with pytest.raises(ValueError, match=r"objects\.npy: it holds Python objects"):
        read_rows(tmp_path / "objects.npy")
    assert not (tmp_path / "sprung").exists()


def test_labels_are_whole_numbers_or_text() -> None:
    for values in (["0", "7", " 7 "], [0.0, 7.0, 7.0], [0, 7, 7], ["0", "7.0", "7"]):
        labels, known = class_labels(values, "y")
        assert labels.dtype == np.int64
        assert labels.tolist() == [0, 7, 7]
        assert known.all()
    # Estimators take the number -1 for a missing label.
    assert class_labels([-1, 0, 1], "y")[0].tolist() == ["-1", "0", "1"]
    assert class_labels(["01", "2", "x"], "y")[0].tolist() == ["01", "2", "x"]
    labels, known = class_labels(["a", None, "", "b"], "y")
    assert labels[known].tolist() == ["a", "b"]
    assert known.tolist() == [True, False, False, True]
    assert class_labels([True, False], "y")[0].tolist() == ["True", "False"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "a"], "column 'y' has only the label 'a' in 2 rows"),
        ([None, ""], "column 'y' has no label in 2 rows"),
        ((np.arange(40) / 7).tolist() * 9, "column 'y' has 40 different values in 360 rows"),
        ([f"row {i}" for i in range(30)], "column 'y' has 30 different values in 30 rows, such as 'row 0'"),
    ],
)
def test_columns_that_are_no_classes_are_refused(values: list[object], message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        class_labels(values, "y")


def test_dozens_of_whole_numbers_are_classes_and_of_fractions_are_not() -> None:
    labels, known = class_labels([str(number) for number in range(15)] * 2, "digit")
    assert labels.tolist() == [*range(15)] * 2
    assert known.all()
    with pytest.raises(ColumnError, match="too many for classes"):
        class_labels([f"{number}.5" for number in range(15)] * 2, "length")


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
    rows = read_rows(path, target="kind")
    assert_array_equal(rows.X, np.column_stack([columns["a b"], columns["n"]]))
    assert rows.labels == ['x,"', "y\t\n", "z"]
    first = path.read_bytes()
    write_columns(path, columns)
    assert path.read_bytes() == first
    if ending.endswith(".gz"):
        assert first[4:8] == bytes(4), "a date would make other bytes of the same table"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_digits_and_endings_of_written_tables(tmp_path: Path) -> None:
    stream = io.BytesIO()
    write_columns(stream, {"a": np.array([1 / 3, 1e-9])}, digits=3)
    assert stream.getvalue() == b"a\n0.333\n1e-09\n"
    with pytest.raises(ValueError, match=r"table\.xls: the name of a table must end in \.csv"):
        write_columns(tmp_path / "table.xls", {"a": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []
