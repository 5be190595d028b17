"""Tables of any format become the same rows, and what cannot be read is refused by name."""

from __future__ import annotations

import csv
import gzip
import io
import re
import string
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, open_rows
from skmix.data import ColumnError, write_columns
from skmix.data.encoding import decode_columns, feature_names
from skmix.data.frames import encode_frame
from skmix.data.labels import check_classes

TEXT = "width,height,kind\n1.5,2,x\n,4e1,y\n-3,NA,x\n"
X = np.array([[1.5, 2.0], [np.nan, 40.0], [-3.0, np.nan]])
nan = np.nan


def read(path: Path | str | bytes, label: str | None = None, columns: Any = None, **text: Any) -> Any:
    """Return what is read of a file, or of text: features X, their names, labels and kinds of columns."""
    with tempfile.TemporaryDirectory() as folder:
        if not isinstance(path, Path):
            place = Path(folder) / "table"
            place.write_bytes(path if isinstance(path, bytes) else path.encode())
            path = place
        rows: Any = open_rows(path, label=label, columns=columns, text=text)
        found = np.concatenate([block.X for block in rows.unlabelled().blocks()])
        labels = None if label is None else rows.row_labels().tolist()
        kinds = rows.kinds
        return SimpleNamespace(X=found, names=rows.feature_names, labels=labels, kinds=kinds, source=rows)


def categories(values: list[str], **text: Any) -> Any:
    """Return what a column of these values holds."""
    return read("b\n" + "".join(f"{value}\n" for value in values), **text).kinds["b"]


# ---------------------------------------------------------------- formats


def test_all_formats_give_the_same_rows_whatever_the_name_of_the_file(tmp_path: Path) -> None:
    """Each is written by a library of its own."""
    frame = pd.DataFrame({"width": X[:, 0], "height": X[:, 1], "kind": ["x", "y", "x"]})
    frame.astype({"kind": "category"}).to_parquet(tmp_path / "1")
    (tmp_path / "2").write_text(TEXT)
    (tmp_path / "3").write_text("\ufeff" + TEXT.replace(",", "\t").replace("\n", "\r\n"))
    (tmp_path / "4").write_bytes(gzip.compress(TEXT.replace(",", ";").encode()))
    for path in tmp_path.iterdir():
        rows = read(path, "kind")
        assert_array_equal(rows.X, X, err_msg=path.name)
        assert rows.names == ["width", "height"]
        assert rows.labels == ["x", "y", "x"]


def test_many_blocks_are_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, and quoted line breaks, may come after the first block."""
    monkeypatch.setattr("skmix.data.text._BLOCK_BYTES", 100)
    monkeypatch.setattr("skmix.data.text._HEAD_BYTES", 60)
    lines = "".join(f"{i},{2 * i}\n\n" for i in range(100))
    assert_array_equal(read("a,b\n" + lines).X, np.outer(np.arange(100), [1, 2]))
    rows = read("a,b\n" + lines + 'true,NA\n"\n 5",1e3\n')
    assert_array_equal(rows.X[-2:], [[1.0, nan], [5.0, 1000.0]])
    for n in range(60, 100):  # for one of them, a block ends with the quoted line break
        text = f'a,b\n1,{"2":0>{n}}\n3,"4\n"\n' + "5,6\n" * 50
        assert_array_equal(read(text).X, [[1, 2], [3, 4], *[[5, 6]] * 50])
    # Blank lines count as lines: the value is where an editor shows it.
    with pytest.raises(ColumnError, match="column 'b' holds numbers and text, such as 'oh' on line 202"):
        read("a,b\n" + lines + "1,oh\n")


# ---------------------------------------------------------------- how text is written


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"a;b;c;d",x,y\n1,2,3\n', ["a;b;c;d", "x", "y"]),
        ('"x 0\n(cm)",x,y\n1,2,3\n', ["x 0\n(cm)", "x", "y"]),
        ("a\tb,c\td\n1\t2\t3\n", ["a", "b,c", "d"]),
        ("\n\na;b;c\n1;2;3\n", ["a", "b", "c"]),
        ("a,b,c\r1,2,3\r", ["a", "b", "c"]),
        # A last column without a name and without values is none.
        ("a,b,c,\n1,2,3, \n", ["a", "b", "c"]),
        # More of another character, but in the names alone, or in some of the rows alone.
        ("a;s;t;u,b,c\n1,2,3\n", ["a;s;t;u", "b", "c"]),
        ("a,b;s;t;u,c\n1,2,3\n", ["a", "b;s;t;u", "c"]),
    ],
)
def test_the_separator_is_found_outside_quotes(text: str, names: list[str]) -> None:
    rows = read(text)
    assert rows.names == names
    assert_array_equal(rows.X, [[1.0, 2.0, 3.0]])


def test_of_two_separators_the_one_with_more_columns_is_taken() -> None:
    rows = read("a|b,c|d\n1|x,y|4\n2|z,u|5\n", "b,c")
    assert rows.labels == ["x,y", "z,u"]
    assert_array_equal(rows.X, [[1.0, 4.0], [2.0, 5.0]])
    # A decimal comma does not separate, and one column needs no separator.
    assert_array_equal(read("a\n1,5\n2,5\n", decimal=",").X, [[1.5], [2.5]])
    assert read("a;b\n1,5;2\n", decimal=",").names == ["a", "b"]
    assert read("a b\n1\n2\n").names == ["a b"]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"a;b;kind\n1,5;2;x\n3,25;-4;y\n", {"decimal": ","}),
        (b"a~b~kind\n1.5~2~x\n3.25~-4~y\n", {"sep": "~"}),
        (b"a  b kind\n1.5 2  x\n3.25 -4 y\n", {"sep": " "}),
        (b"a b kind \r\n1.5 2 x  \r\n3.25 -4 y ", {"sep": " "}),
        (b"a  b kind\n1,5 2  x\n3,25 -4 y\n", {"sep": " ", "decimal": ","}),
        (b"a|b|kind\n1.5|2|x\n3.25|-4|y\n", {}),
        ("\ufeffa,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("utf-16-le"), {}),
        ("\ufeffa,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("utf-16-be"), {}),
        ("a,b,kind\n1.5,2,x\n3.25,-4,y\n".encode("cp500"), {"encoding": "cp500"}),
        (b'a, "b", "kind"\n1.5, "2", "x"\n3.25, -4, "y"\n', {}),
    ],
)
def test_how_a_text_is_written(content: bytes, options: dict[str, Any]) -> None:
    rows = read(content, "kind", **options)
    assert rows.names == ["a", "b"]
    assert_array_equal(rows.X, [[1.5, 2.0], [3.25, -4.0]])
    assert rows.labels == ["x", "y"]


@pytest.mark.parametrize(
    "word", ["N/A", "n/a", "#N/A", "None", "NULL", "<NA>", "na", "-", ".", "#DIV/0!", " NA "]
)
def test_the_usual_words_for_missing_values(word: str) -> None:
    assert_array_equal(read(f"a,b\n1,2\n3,{word}\n1,4\n").X, [[1.0, 2.0], [3.0, nan], [1.0, 4.0]])


def test_other_words_and_numbers_for_missing_values() -> None:
    text = "a,b,kind\n-9999.0,k.A.,NA\n1,-9999,Na\n2,3,NA\n"
    for others in (["-9999", "k.A."], ["", "-9999", "k.A."]):
        rows = read(text, "kind", missing=others)
        assert_array_equal(rows.X, [[nan, nan], [1.0, nan], [2.0, 3.0]])
        # Namibia, or sodium: an empty word takes the usual ones away.
        assert rows.labels == (["NA", "Na", "NA"] if "" in others else [None, "Na", None])
        assert rows.source.preparation["missing"] == others
    # However the number is written, here and in what was said.
    for word in ("-9,5", "-9.5", "-95e-1"):
        found = read("a;b\n-9,50;1\n2;-9,5\n", decimal=",", missing=[word])
        assert_array_equal(found.X, [[nan, 1.0], [2.0, nan]])
    # With an empty word, a sign alone is text.
    with pytest.raises(ColumnError, match="column 'a' holds numbers and text, such as '-' on line 2"):
        read("a\n-\n1\n", missing=[""])


# ---------------------------------------------------------------- categories


def test_categories_are_encoded() -> None:
    rows = read("colour,a,smoker,code\nred,1,yes,007\nblue, 2,no,y\ngreen,3,NA,\nred,4,,x\n")
    assert rows.kinds == {
        "colour": ["blue", "green", "red"],
        "a": None,
        "smoker": ["no", "yes"],
        "code": ["007", "x", "y"],
    }
    assert rows.names == feature_names(rows.kinds)
    assert rows.names[:6] == ["colour=blue", "colour=green", "colour=red", "a", "smoker=yes", "code=007"]
    expected = [[0, 0, 1, 1, 1], [1, 0, 0, 2, 0], [0, 1, 0, 3, nan], [0, 0, 1, 4, nan]]
    assert_array_equal(rows.X[:, :5], expected)
    # Drawn features are no zeros and ones: the likeliest category is theirs.
    own = {name: rows.kinds[name] for name in ("colour", "a", "smoker")}
    drawn = decode_columns(np.array([[0.4, 0.2, 0.3, 5.0, 0.4], [0.1, 0.2, 0.9, 6.0, 0.6]]), own)
    assert [drawn[name].tolist() for name in drawn] == [["blue", "red"], [5.0, 6.0], ["no", "yes"]]


def test_columns_of_a_model_are_read_as_it_knows_them(tmp_path: Path) -> None:
    known = {"country": ["DE", "NA"], "level": ["?", "a", "b"], "code": ["007", "8"], "a": None}
    path = tmp_path / "t.csv"
    path.write_text("a,code,level,country\n1,007,?,NA\n2,007,a,DE\n3,8,NA,null\n4,,teal,\n")
    rows = open_rows(path).encoded(known)
    found = np.concatenate([block.X for block in rows.blocks()])
    # A category of the model is none of the usual words for a missing value, and no number.
    assert_array_equal(found[:, :4], [[1, 1, 0, 0], [0, 0, 1, 0], [nan] * 4, [nan] * 4])
    assert_array_equal(found[:, 4:], [[0, 1], [0, 2], [1, 3], [nan, 4]])
    (note,) = rows.remarks()
    assert re.search("'level' .* in 1 rows: teal", str(note))
    path.write_text("a,code,level,country\n1,007,?,NA\n2,007,a,DE\n")
    assert_array_equal(next(open_rows(path).encoded(known).blocks()).X[:, 4], [0, 0])
    for column, value in (("a", "red"), ("a", "1,5")):
        path.write_text(f'b,{column}\n1,"{value}"\n')
        with pytest.raises(ColumnError, match=f"'a' holds text, such as '{value}' on line 2; a feature must"):
            list(open_rows(path).encoded({"a": None}).blocks())


def test_values_that_are_wrong_in_a_later_block_are_found(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,1\n2,1\n3,-1\nx,1\n")
    rows = open_rows(tmp_path / "t.csv", chunk_rows=1)
    with pytest.raises(ColumnError, match="'a' holds text, such as 'x' on line 5"):
        list(rows.encoded({"a": None}).blocks())
    with pytest.raises(ColumnError, match="'b' has the weight -1 on line 4; weights are finite and not neg"):
        list(rows.encoded({"a": ["1", "2"]}).weighted("b").blocks())


def test_the_most_that_are_categories() -> None:
    names = [f"name {i:02}" for i in range(51)]
    # Ten in any number of rows, more if there are two rows of each on average; missing ones do not count.
    for values, message in (
        (names[:10], None),
        (names[:11] * 2, None),
        (names[:50] * 2, None),
        ([*names[:11], *names[:10], "NA", "NA"], "11 different values of up to 7 characters in 21 rows"),
        (["x" * 201, "y"], "such as 'x{40}…' on line 2: 2 different values of up to 201 characters"),
        (["x" * 200, "y"], None),
        # Half of the values or more are numbers.
        (["1", "x", "NA"], "holds numbers and text"),
        (["1", "x", "y"], None),
        (["none", "high", "-"], None),
    ):
        if message is None:
            assert categories(values) == sorted({*values})
        else:
            with pytest.raises(ColumnError, match=message):
                categories(values)
    # Whoever says that a column has categories may have any number of them, and numbers among them.
    assert categories(names, categorical=["b"]) == names
    assert categories(["1", "2.0", "030"], categorical=["b"]) == ["030", "1", "2"]
    with pytest.raises(ValueError, match="has no column 'c'; there is only 'b'"):
        categories(names, categorical=["c"])
    rows = read("a,code,flat\n1,1,x\n2,2,x\n3,30,x\n", categorical=["code"])
    assert rows.kinds == {"a": None, "code": ["1", "2", "30"]}


def test_of_many_categories_the_frequent_ones_are_kept(tmp_path: Path) -> None:
    """The first 49 of 80 are in three rows each and the others in one, but more often in a second file."""
    names = [f"name {i:02}" for i in range(80)]
    rare, text = names[49:], "b\n" + "".join(f"{name}\n" for name in names + names[:49] + names[:49])
    rows = read(text)
    assert rows.kinds["b"] == [*names[:49], "(other)"]
    expected = np.array(
        [[*names[:49], "(other)"].index(name if name < "name 49" else "(other)") for name in names]
    )
    assert_array_equal(rows.X[:80].argmax(axis=1), expected)
    (note,) = rows.source.remarks()
    assert "'b' has 80 categories: the 49 most frequent are kept, and the others, in 31 rows, are" in str(
        note
    )
    (tmp_path / "1.csv").write_text(text)
    (tmp_path / "2.csv").write_text("b\n" + "".join(f"{name}\n" for name in rare * 4))
    both = open_rows(tmp_path)
    assert {*rare} < {name.removeprefix("b=") for name in both.feature_names or ()}
    # What the fit did not see is another one too, and a missing value stays one.
    (tmp_path / "new.csv").write_text("b\nname 01\nname 79\nelsewhere\nNA\n")
    again = open_rows(tmp_path / "new.csv").encoded(rows.kinds)
    found = np.concatenate([block.X for block in again.blocks()])
    assert found[:3].argmax(axis=1).tolist() == [1, 49, 49]
    assert np.isnan(found[3]).all()
    assert again.remarks() == []


def test_dates_are_days_since_1970() -> None:
    for one, other in (
        ("1970-01-02", "1972-01-01"),
        ("2.1.1970", "01.01.1972"),
        ("1970-01-02 00:00", "1972-01-01T00:00:00"),
        ("1970-01-02T00:00Z", "1972-01-01T01:00+01:00"),
    ):
        rows = read(f"a;b\n1;{one}\n2;NA\n3;{other}\n")
        assert rows.kinds == {"a": None, "b": "date"}
        assert_array_equal(rows.X[:, 1], [1.0, nan, 730.0])
        (note,) = rows.source.remarks()
        assert str(note) == "column 'b' holds dates, which become numbers of days since 1970"
    back = decode_columns(rows.X, rows.kinds)["b"]
    assert_array_equal(back, np.array(["1970-01-02", "NaT", "1972-01-01"], dtype="datetime64[s]"))
    # Others can be read in several ways.
    for date in ("12/31/2020", "1-2-20 10:00", "2020.1.2"):
        rows = read(f"a;b\n1;{date}\n2;\n")
        assert rows.names == ["a"]
        assert f"such as {date!r} on line 2, and is left out" in str(rows.source.remarks()[0])


def test_all_columns_that_cannot_be_features_are_in_one_message() -> None:
    names = [f"n{i}" for i in range(12)]
    lines = [f"{i};1.500,{i:02};{name};{i};{i or '<5'}\n" for i, name in enumerate(names)]
    text = "a;price;name;;low\n" + "".join(lines)
    with pytest.raises(ColumnError, match="4 columns cannot be features") as caught:
        read(text)
    for part in (
        "column 4 has no name",
        "'price' holds numbers with a separator of thousands, such as '1.500,00' on line 2",
        "'name' holds text, such as 'n0' on line 2",
        "'low' holds numbers and text, such as '<5' on line 2",
        "To leave out all of them, use open_rows(..., text={'drop': 'auto'})",
    ):
        assert part in str(caught.value), part
    rows = read(text, drop="auto")
    assert rows.names == ["a"]
    assert "left out, because they cannot be features as they are: (no name), price, name" in "".join(
        map(str, rows.source.remarks())
    )
    with pytest.raises(ValueError, match="drop='yes' is neither None nor 'auto'"):
        read(text, drop="yes")
    frame = pd.DataFrame({"a": range(12), "name": names, "price": ["1.500,00"] * 12})
    with pytest.raises(ColumnError, match=r"2 columns .*use X\.drop\(columns=\['name', 'price'\]\)"):
        encode_frame(frame)


def test_files_have_the_categories_of_all_and_no_scale(tmp_path: Path) -> None:
    for name, lines in {"1": "red,10\nblue,-20\n", "2": "red,30\nteal,5\n", "3": ",0\n"}.items():
        (tmp_path / f"{name}.csv").write_text(f"colour,a\n{lines}")
    rows = open_rows(tmp_path, transform="arcsinh:5")
    assert rows.feature_names == ["colour=blue", "colour=red", "colour=teal", "a"]
    codes = np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [nan] * 3])
    expected = np.column_stack([codes, np.arcsinh([2.0, -4.0, 6.0, 1.0, 0.0])])
    assert_allclose(np.concatenate([block.X for block in rows.blocks()]), expected)
    taken = rows.with_features([3, 2])
    assert_allclose(np.concatenate([block.X for block in taken.blocks()]), expected[:, [3, 2]])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "options", "message", "column"),
    [
        ("a,,b\n1,,2\n", {}, "column 2 has no name. Such a column is often a row index", ""),
        ("a,b,\n1,2,3\n", {}, "column 3 has no name", ""),
        ("a,a\n1,2\n", {}, "it has two columns called 'a'", None),
        ("a=x,a\n1,x\n2,y\n3,z\n", {}, "two features would have the same name", None),
        ("1,2\n3,x\n", {"header": False}, "'column_2' holds numbers and text, .*'x' on line 2", "column_2"),
        ("a,b\n1\n", {}, "line 2 has 1 values, but the first line has 2", None),
        ("a b\n1  2\n3\n", {"sep": " "}, "line 3 has 1 values, but the first line has 2", None),
        ('a, "b"\n1, "2"\n3, 4, 5\n', {}, "line 3 has 3 values, but the first line has 2", None),
        ('a,b\n"1\n",2\n\n1\n', {}, "line 5 has 1 values, but the first line has 2", None),
        ('a,b\n"1\n",2\n\n1,x\n', {}, "column 'b' holds numbers and text, such as 'x' on line 5", "b"),
        ("a,b\r1,2\r1,x\r", {}, "column 'b' holds numbers and text, such as 'x' on line 3", "b"),
        ("\n\na,b\n1\n", {}, "line 4 has 1 values, but the first line has 2", None),
        ("a,b\n1_000,2\n1,2", {}, "column 'a' holds numbers and text, such as '1_000' on line 2", "a"),
        ("", {}, "the file is empty", None),
        ("a,b\n", {}, "it has column names but no rows", None),
        ("1,2\n3,4\n", {}, "its first line has numbers instead of names: 1, 2", None),
        *(
            (
                f"a;b\n1;{value}\n2;7\n3;{value}\n",
                {"decimal": mark},
                f"'b' holds numbers and text, such as {re.escape(repr(value))}.*'decimal': '{other}'",
                "b",
            )
            for mark, other, values in (
                (".", ",", ("$5", "-€ 5,5", "12.5 %", "1,5", "0,234", "1234,567", "1,23,456", "1,234e3")),
                (",", ".", ("-2.", "1.5e-3", "1.23", "0.234")),
            )
            for value in values
        ),
    ],
)
def test_bad_tables_are_refused_with_what_is_wrong(
    tmp_path: Path, text: str, options: dict[str, object], message: str, column: str | None
) -> None:
    path = tmp_path / "table"
    path.write_bytes(text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        read(path, **options)
    assert getattr(caught.value, "column", None) == column
    # Leaving a column out helps where it is there and only its values are wrong.
    wrong_values = "holds" in message or "has no name" in message
    assert getattr(caught.value, "is_feature", False) == wrong_values


# ---------------------------------------------------------------- separators of thousands


@pytest.mark.parametrize(
    ("options", "cells", "values"),
    [
        ({"decimal": ",", "thousands": "."}, ["458", "1.385", "-12.000,5", ",5"], [458, 1385, -12000.5, 0.5]),
        ({"thousands": ","}, ['"1,385.25"', "+2", '"1,000,000"', "1e3"], [1385.25, 2, 1e6, 1e3]),
        ({"thousands": "'"}, ["1'385", "999.5", "NA", "2'000'000"], [1385, 999.5, nan, 2e6]),
        (
            {"decimal": ",", "thousands": " "},
            ["1 385,5", "12\u00a0000", "7\u202f000\u202f000", "0,385"],
            [1385.5, 12000, 7e6, 0.385],
        ),
        # Without separators, as pandas writes them.
        ({"decimal": ",", "thousands": "."}, ["1,385", "12,5", "3", "1385"], [1.385, 12.5, 3, 1385]),
    ],
)
def test_numbers_with_separators_of_thousands(
    tmp_path: Path, options: dict[str, str], cells: list[str], values: list[float]
) -> None:
    text = "a;b\n" + "".join(f"{cell};{i}\n" for i, cell in enumerate(cells))
    rows = read(text, sep=";", **options)
    assert_array_equal(rows.X[:, 0], values)
    # pandas reads the same, but for blanks of several kinds.
    if options["thousands"] != " ":
        theirs = pd.read_csv(io.StringIO(text), sep=";", **options)
        assert_array_equal(theirs["a"].astype(float), values)
    # The last row of many, after the part of the file that decides how it is read.
    text = "a;b\n" + "1;2\n" * 30_000 + f"{cells[0]};0\n"
    assert read(text, sep=";", **options).X[-1, 0] == values[0]
    weights = "a;b\n" + "".join(f"{i};{cell}\n" for i, cell in enumerate(cells[:2]))
    (tmp_path / "t.csv").write_text(weights)
    opened = open_rows(tmp_path / "t.csv", weight="b", text={"sep": ";", **options})
    assert_array_equal(np.concatenate([block.weights for block in opened.blocks()]), np.abs(values[:2]))


@pytest.mark.parametrize(
    ("cells", "decimal", "ways"),
    [
        # The decimal mark is known, and another mark or both of them are in the numbers.
        (["1.674,58", "3"], ",", ["{'thousands': '.'}"]),
        (["1.674.582", "3"], ",", ["{'thousands': '.'}"]),
        (["1.385", "458"], ",", ["{'thousands': '.'}", "{'decimal': '.'}"]),
        (["1,385", "458"], ".", ["{'thousands': ','}", "{'decimal': ','}"]),
        (["1,385", "4.5"], ".", ["{'thousands': ','}"]),
        (["1'385", "4.5"], ".", ["{'thousands': \"'\"}"]),
        (["1\u00a0385", "4.5"], ".", ["{'thousands': ' '}"]),
        # The decimal mark is another one too.
        (["1.674,58", "3"], ".", ["{'thousands': '.'}", "{'decimal': ','}"]),
        (["1 674,58", "3"], ".", ["{'thousands': ' '}", "{'decimal': ','}"]),
    ],
)
def test_unnamed_separators_of_thousands_are_a_question(
    tmp_path: Path, cells: list[str], decimal: str, ways: list[str]
) -> None:
    text = "a;b\n" + "1;0\n" * 40 + "".join(f"{cell};1\n" for cell in cells)
    with pytest.raises(ColumnError, match="'a' holds numbers with a separator of thousands") as caught:
        read(text, decimal=decimal)
    assert repr(cells[0]) in str(caught.value)
    assert "on line 42" in str(caught.value)
    assert re.findall(r"text=(\{'(?:decimal|thousands)'.*?\})\)", str(caught.value)) == ways
    assert caught.value.is_feature
    # So it is for a model that knows that the column has numbers.
    (tmp_path / "new.csv").write_text(text)
    model = SharedKernelMixture(1).fit(pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 3.0, 1.0]}))
    with pytest.raises(ColumnError, match="'a' holds numbers with a separator of thousands"):
        model.predict(open_rows(tmp_path / "new.csv", text={"decimal": decimal}))


@pytest.mark.parametrize("mark", [".", ","])
def test_three_digits_after_every_mark_are_a_question_beside_another_decimal_mark(
    tmp_path: Path, mark: str
) -> None:
    other = {".": ",", ",": "."}[mark]
    path, rest = tmp_path / "t.csv", {"columns": ["a", "n"]}

    def write(*cells: str, price: str = f"3{other}14", n_before: int = 3) -> Path:
        lines = [f"{i};458;{price}" for i in range(n_before)] + [f"9;{cell};2{other}5" for cell in cells]
        path.write_text("n;a;price\n" + "\n".join(lines) + "\n")
        return path

    for n_before in (3, 30_000):
        write(f"1{mark}385", f"-12{mark}000", n_before=n_before)
        with pytest.raises(ColumnError, match="column 'a' has three digits after every") as caught:
            read(path, **rest, decimal=mark)
        for part in ("'price'", f"-12{mark}000", f"'decimal': '{other}'", f"'thousands': '{mark}'", "s': ''"):
            assert part in str(caught.value)
    # Either answer is taken.
    assert_array_equal(read(path, **rest, decimal=mark, thousands="").X[-2:, 0], [1.385, -12.0])
    assert_array_equal(read(path, **rest, decimal=other, thousands=mark).X[-2:, 0], [1385.0, -12000.0])
    # A model of these columns asks as well, and so do weights.
    model = SharedKernelMixture(1).fit(pd.DataFrame({"a": [1.0, 2.0, 4.0], "n": [0.0, 3.0, 1.0]}))
    for refused in (
        lambda: model.predict(open_rows(path, text={"decimal": mark})),
        lambda: model.fit(open_rows(path, columns=["n"], weight="a", text={"decimal": mark})),
    ):
        with pytest.raises(ColumnError, match="column 'a' has three digits after every"):
            refused()
    # These are numbers: other digits, a zero in front, or no column of the other mark.
    for cell in (f"1{mark}38", f"0{mark}385", f"1385{mark}125"):
        assert read(write(f"1{mark}385", cell), **rest, decimal=mark).X[-2, 0] == 1.385
    for price in ("3", f"3{mark}5", f"3{other}140", "x", f"3{other}14 EUR"):
        write(price=price)
        path.write_text(path.read_text() + f"9;1{mark}385;{price}\n")
        assert read(path, **rest, decimal=mark).X[-1, 0] == 1.385


@pytest.mark.parametrize(("thousands", "message"), [(".", "is the decimal mark too"), ("x", "is not one of")])
def test_separators_of_thousands_that_are_none(thousands: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"thousands='{re.escape(thousands)}' {message}"):
        read("a\n1\n", thousands=thousands)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and no more", "cannot be read as a Parquet file"),
        (b"\x93NUMPY\x01\x00\x07\x00{'a': (", "cannot be read as a .npy file"),
        (b"PK\x03\x04 and no more", ""),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 and more", "is a spreadsheet .* Save its sheet as CSV"),
        (gzip.compress(b"a,b\n1,2\n" * 5000, mtime=0)[:40], "damaged, or not a table"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-8] + bytes(8), "damaged, or not a table .CRC check failed"),
        ("a,b\n1,é\n".encode("latin-1"), "neither text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "neither text in UTF-8"),
    ],
)
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table"
    with pytest.raises(FileNotFoundError, match="table"):
        read(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"table.*{message}"):
        read(path)


def test_objects_in_arrays_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([Trap(tmp_path / "sprung")], dtype=object))
    with pytest.raises(ValueError, match=r"objects\.npy.*Python objects"):
        read(tmp_path / "objects.npy")
    assert not (tmp_path / "sprung").exists()


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["0", "7", " 7 "], [0, 7, 7]),
        (["0", "7.0", "7"], [0, 7, 7]),
        (["3", "NA", "2"], [3, None, 2]),
        (["01", "2", "x"], ["01", "2", "x"]),
        (["01", "02", "02"], ["01", "02", "02"]),
        (["true", "NA", "FALSE"], [True, None, False]),
        (["true", "x", " x"], ["true", "x", "x"]),
        (["+", "-", "+"], ["+", "-", "+"]),
    ],
)
def test_labels_of_text_are_whole_numbers_booleans_or_text(words: list[str], expected: list[Any]) -> None:
    found = read("a,y\n" + "".join(f"1,{word}\n" for word in words), "y").labels
    assert found == expected
    assert [type(label) for label in found] == [type(label) for label in expected]


def test_the_most_labels_that_are_classes() -> None:
    names = [f"name {i:02}" for i in range(21)]
    for fine in (names[:20], names * 2, [1, 2, None], [True, False]):
        check_classes(np.array(fine, dtype=object), "y", "table")
    for values, message in (
        ([f"{number}.5" for number in range(11)] * 2, "11 different values in 22 rows, such as '0.5'"),
        ([*names, *names[:20], None], "21 different values in 41 rows, such as 'name 00': too many"),
        (["x", "x", None], "only the label 'x' in 3 rows"),
        ([1.0, 1.5], "the label 1.5, which is not a whole number"),
    ):
        with pytest.raises(ColumnError, match=f"column 'y' has {message}"):
            check_classes(np.array(values, dtype=object), "y", "table")


# ---------------------------------------------------------------- the same rows by every road

words = st.sampled_from(["red", "green", "blue ", "Å", "x,y", 'a "b"', "none", "-"])


@settings(max_examples=40)
@given(st.data())
def test_frames_and_files_are_encoded_alike(data: st.DataObject) -> None:
    """One table as a frame of pandas or polars, a CSV and a Parquet file has the same features."""
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
        expected = read(Path(folder) / "t.csv")
        found = [read(Path(folder) / "t.parquet").X]
    for each in (frame, frame.astype({"word": "category"}), pl.DataFrame(columns, strict=False)):
        X, reader = encode_frame(each)
        assert reader.kinds == expected.kinds
        found += [X, encode_frame(each, reader.kinds)[0]]
    for X in found:
        assert_array_equal(X, expected.X)
    # And back: the likeliest category is the one that was there.
    complete = ~np.isnan(expected.X).any(axis=1)
    for name, values in decode_columns(expected.X, expected.kinds).items():
        if expected.kinds[name] is not None:
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
    # A column without a value is left out, and so is a line without one.
    kept = [place for place, column in enumerate(zip(*body, strict=True)) if set(column) != {None}]
    header, body = [header[place] for place in kept], [[line[place] for place in kept] for line in body]
    body = [line for line in body if any(value is not None for value in line)]
    if not body or len(header) < 2:
        return
    stream = io.StringIO()
    csv.writer(stream).writerows([[f"{name},x" for name in header], *body])
    rows = read(stream.getvalue())
    assert rows.names == [f"{name},x" for name in header]
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
        rows = read(content)
    except (ValueError, OSError):
        return
    assert rows.X.shape == (len(rows.X), len(rows.names))


# ---------------------------------------------------------------- writing


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
    rows = read(path, "kind")
    assert_array_equal(rows.X, np.column_stack([columns["a b"], columns["n"]]))
    assert rows.labels == ['x,"', "y", "z"] if ending != "parquet" else ['x,"', "y\t\n", "z"]
    first = path.read_bytes()
    write_columns(path, columns)
    assert path.read_bytes() == first
    if ending.endswith(".gz"):
        assert first[4:8] == bytes(4), "a date would make other bytes of the same table"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_cells_and_endings_of_written_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "a": np.array([1234.5678, np.nan, 2.0]),
        "n": np.array([123456, 2, 3]),
        "kind": np.array(["x", None, "0.123456"], dtype=object),
        "truth": np.array([True, False, True]),
        "single": np.array([1 / 3, 2.0, 1e9], dtype=np.float32),
    }
    write_columns(stream := io.BytesIO(), columns)
    written = stream.getvalue().decode().splitlines()
    assert written[:2] == ["a,n,kind,truth,single", "1234.5678,123456,x,True,0.3333333432674408"]
    # A stream stays open, and rows may be written in several parts.
    monkeypatch.setattr("skmix.data.write._BATCH_ROWS", 2)
    write_columns(stream, columns)
    assert stream.getvalue().decode().splitlines() == 2 * written
    assert written[2] == ",2,,False,2.0"
    write_columns(tmp_path / "T.PARQUET", {"a": columns["a"]})
    assert_array_equal(read(tmp_path / "T.PARQUET").X[:, 0], columns["a"])
    # Names and numbers in a column are text, as in text files.
    write_columns(tmp_path / "T.PARQUET", {"kind": np.array(["x", 1, None], dtype=object)})
    assert pd.read_parquet(tmp_path / "T.PARQUET")["kind"].fillna("").tolist() == ["x", "1", ""]
    (tmp_path / "T.PARQUET").unlink()
    with pytest.raises(ValueError, match=r"table\.xls: the name of a table must end in \.csv"):
        write_columns(tmp_path / "table.xls", {"a": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []
