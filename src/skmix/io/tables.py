"""Tables that fit in memory: features by name, a column of labels, and errors that name the column.

CSV, TSV, Parquet, NPZ, .npy and FCS files are recognised by their content, not by their names.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import os
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .._errors import ArgumentError
from .arrow import NUMERIC, PANDAS_INDEX, kind_of, pyarrow
from .encoding import (
    BOOLEANS,
    WHOLE,
    ColumnError,
    Kind,
    Notation,
    encode_column,
    encode_columns,
    feature_names,
    find_kind,
    is_number,
    listed,
    numbers_in,
    plain_text,
    rescale_numbers,
    shortened,
    texts_of,
)
from .fcs import MAGIC, read_header
from .labels import reader_of, refuse_fractions
from .preparation import Preparation, features_of, resolved, transformer_of
from .writing import is_device, replacing

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WRITABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""File name suffixes of tables that can be written."""

_SEPARATORS = ("\t", ",", ";", "|")
# The column names of a CSV file must be within its first bytes, and each of its rows must fit into a block.
_HEAD_BYTES, _BLOCK_BYTES = 1 << 22, 1 << 24
# The first records show separator and numbers; after so many surprises all columns are read as text.
_FEW_RECORDS, _HEAD_RECORDS, _HEAD_CELLS, _MOST_TRIES = 20, 200, 20_000, 3
_BATCH_ROWS = 1 << 16
# Arrays of an NPZ file that name the columns of its matrix.
_COLUMN_NAMES = ("feature_names", "columns")
# What NumPy and other readers raise for damaged files, beside ValueError.
NPY_DAMAGE = (EOFError, SyntaxError, tokenize.TokenError)
_DAMAGE = (*NPY_DAMAGE, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, csv.Error, NotImplementedError)
_PADDED = re.compile(r"0[0-9]+")
# A column does not hold classes if it has more fractional values than `_MOST_FRACTIONS`, or more distinct
# values than `_MOST_LABELS_OF_FEW_ROWS` with fewer than two rows each on average.
_MOST_FRACTIONS, _MOST_LABELS_OF_FEW_ROWS = 10, 20


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table.

    Attributes
    ----------
    X : ndarray of shape (n, M)
        Features; NaN where a value is missing.
    feature_names : tuple of str
        Names of the columns of X.
    labels : list or None
        The column of labels, text or numbers, None where one is missing; see `class_labels`.
    weights : ndarray of shape (n,) or None
        The column of weights.
    kept : dict of str to list
        Other requested columns, as they are in the table.
    columns : dict of str to None, str or list of str
        What each column holds that features were made of: None for numbers, ``"date"``, or its categories.
        Given as `features`, other tables are read in the same way.
    notes : tuple of str
        Notes on columns that were left out or encoded, and on values that became missing.
    ignored : tuple of str
        Columns of the table that are none of the given `features`.
    preparation : dict or None
        How numbers were prepared, see `read_rows`; None for values that are as they were given.
    """

    X: FloatArray
    feature_names: tuple[str, ...]
    labels: list[Any] | None = None
    weights: FloatArray | None = None
    kept: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, Kind] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    preparation: Preparation | None = None


# ---------------------------------------------------------------- reading


def read_rows(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    features: Sequence[str] | Mapping[str, Kind] | None = None,
    target: str | int | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    dates: bool = False,
    missing: Sequence[str] = (),
    header: bool = True,
    sep: str | None = None,
    decimal: str = ".",
    encoding: str | None = None,
    preparation: Preparation | None = None,
    progress: Callable[[float], None] | None = None,
) -> TableRows:
    r"""Read a table with column names: CSV, TSV (both also compressed by gzip), Parquet, NPZ, .npy or FCS.

    The format is recognised by the content. In an NPZ file, a vector is a column and a matrix several,
    named by an array ``feature_names`` if there is one. The columns of an FCS file are its channels, see
    `read_fcs`.

    Text with at most 50 different values is encoded: each category is a feature ``column=category``, 1 in its
    rows and 0 in others; of two categories only the second one is. ``true`` and ``false`` are 1 and 0.

    Parameters
    ----------
    source : path-like or binary stream
        The table.
    features : list of str, or dict, default=None
        Columns to use, in this order; None uses all that are not named below. Or `columns` of other rows, or
        `table_columns_` of a model: columns are read as those were, one that the table lacks is missing in
        all rows, and so are values of categories that were not there.
    target : str or int, default=None
        Column of labels: its name or its position, -1 for the last.
    weight : str, default=None
        Column of weights. It need not exist if `features` are those of a model.
    drop : list of str, default=()
        Columns to leave out. They need not exist if `features` are given.
    keep : list of str, default=()
        Columns to return as they are.
    categorical : list of str, default=()
        Columns whose numbers, or any number of texts, are categories.
    dates : bool, default=False
        Whether dates become numbers, days since 1970-01-01. Otherwise they are refused.
    missing : list of str, default=()
        Words and numbers that stand for missing values, beside empty cells and the usual words, such as
        ``NA``, ``N/A``, ``NaN``, ``null``, ``None`` and ``?``. If one is empty, the usual words do not.
    header : bool, default=True
        Whether the first line of a text file has names. Otherwise columns are ``column_1``, ``column_2`` …
    sep : str, default=None
        The character between the columns of a text file; None chooses among tab, comma, semicolon and ``|``.
    decimal : str, default="."
        The character before the decimals of a number in a text file.
    encoding : str, default=None
        Encoding of a text file, such as ``latin-1``; None for UTF-8, or UTF-16 with a byte-order mark.
    preparation : dict, default=None
        How numbers are prepared: `preparation_` of a model, or settings ``transform`` and ``compensate`` as
        for `open_rows`, with scales by name. Then Time is no feature of FCS files unless it is named. None
        leaves all values as they are.
    progress : callable, default=None
        Called with the share of the table read so far, from 0 to 1.

    Returns
    -------
    TableRows
        Features as numbers, and what was asked for beside them; without rows if the table has none.

    Raises
    ------
    ColumnError
        If a column is missing, occurs twice or cannot be a feature; it names the column, and a value's line.
    ValueError
        If anything else is wrong with the table.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import io
    >>> from skmix.io import read_rows
    >>> file = io.BytesIO(b"a,colour,kind\n1,red,x\n3,blue,y\n,NA,x\n")
    >>> rows = read_rows(file, target="kind")
    >>> rows.X
    array([[ 1.,  1.],
           [ 3.,  0.],
           [nan, nan]])
    >>> rows.feature_names, rows.labels
    (('a', 'colour=red'), ['x', 'y', 'x'])
    """
    notation = Notation(tuple(missing), decimal, header, sep, encoding)
    with _open_table(source, notation, preparation, features or ()) as table:
        positions = _positions(table.names, header)
        if isinstance(target, int):
            if not -len(table.names) <= target < len(table.names):
                raise ValueError(f"there is no column {target}; there are {len(table.names)}.")
            target = table.names[target]
        notes = list(table.notes)
        if isinstance(features, Mapping) and weight not in positions:
            weight = None  # the rows of a model need none
        aside = [name for name in (target, weight, *keep) if name is not None]
        kinds = dict(features) if isinstance(features, Mapping) else None
        if features is None:
            for name in drop:
                if name in (target, weight, *categorical):
                    raise ColumnError(f"column {name!r} cannot be both used and left out.", name)
            names = [name for name in table.names if name not in {*aside, *drop}]
            if preparation is not None and table.is_fcs:
                chosen = [name for name in features_of(table.names) if name in names]
                if len(chosen) < len(names) and not {*names} - {*chosen} & {*categorical}:
                    names = chosen
                    notes.append("the channel Time is left out")
            if positions.get("") == len(table.names) - 1 and _is_empty(table, ""):
                notes.append("the last column has neither a name nor values and is left out")
                names.remove("")
            _check_named(names, positions)
        else:
            names = [name for name in kinds or () if name in positions] or list(features)
        _check_present(positions, [*names, *aside, *categorical, *(drop if features is None else ())])
        if not names:
            raise ValueError(f"no column is left as a feature; the table has {listed(table.names)}.")

        coded = {*categorical, *(name for name, kind in (kinds or {}).items() if isinstance(kind, list))}
        as_text = ({*coded, *aside} - {weight}) & positions.keys()
        found = _read_columns(table, list(dict.fromkeys([*names, *aside])), as_text, progress)
        if kinds is None:
            kinds = {}
            for name in names:
                kind = find_kind(found[name], name, notation, table.place, dates=dates, coded=name in coded)
                if isinstance(kind, list) and len(kind) < 2:
                    value = repr(shortened(kind[0])) if kind else "missing"
                    notes.append(f"column {name!r} is {value} in all rows and is left out")
                else:
                    kinds[name] = kind
            if encoded := [name for name, kind in kinds.items() if isinstance(kind, list)]:
                notes.append(f"encoded as categories: {listed(encoded)}")
            if not kinds:
                raise ValueError("no column is left as a feature.")
            notes += [
                f"column {name!r} has numbers with leading zeros, such as {table.padded[name]}. If they are "
                f"identifiers, leave the column out with --drop {name!r}; if they are categories, use "
                f"--categorical {name!r}"
                for name, kind in kinds.items()
                if kind is None and name in table.padded
            ]
        X, lost = encode_columns(found, kinds, notation, table.place)
        notes += lost
        if table.preparation is not None:
            rescale_numbers(X, kinds, transformer_of(table.preparation["transform"]))
        made = feature_names(kinds)
        if len({*made}) < len(made):
            raise ValueError(
                "two features would have the same name, of a column and of a category. Rename one."
            )
        for row, feature in np.argwhere(np.isinf(X))[:1]:
            where = f"column {made[feature]!r} is infinite on {table.place(int(row))}"
            raise ColumnError(f"{where}; leave unknown values empty.", made[feature], is_feature=True)
        return TableRows(
            X,
            tuple(made),
            None if target is None else _labels(found[target], target, notation, notes, table.is_text),
            None if weight is None else _weights(found[weight], weight, notation, table.place),
            {name: _as_it_is(found[name], name) for name in keep},
            kinds,
            tuple(notes),
            tuple(
                name for name in table.names if features is not None and name not in {*names, *aside, *drop}
            ),
            table.preparation,
        )


def _read_columns(
    table: _Table, names: list[str], as_text: Collection[str], progress: Callable[[float], None] | None
) -> dict[str, Any]:
    """Return columns by name, as Arrow arrays."""
    import pyarrow as pa

    positions = {name: position for position, name in enumerate(table.names)}
    columns = [positions[name] for name in names]
    text = {*table.text, *(positions[name] for name in as_text)}
    for n_tries in itertools.count():
        chunks: list[list[Any]] = [[] for _ in columns]
        try:
            for batch, share in table.batches(columns, text):
                for chunk, column in zip(chunks, batch.columns, strict=True):
                    chunk.append(
                        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                    )
                if progress is not None:
                    progress(share)
            break
        except _NotNumeric as error:
            # There may be thousands of such columns, and the table is read again for each.
            text |= {error.position} if n_tries < _MOST_TRIES else {*columns}
    nothing = [pa.array([], pa.float64())]
    whole = (chunk[0] if len(chunk) == 1 else pa.concat_arrays(chunk or nothing) for chunk in chunks)
    return dict(zip(names, whole, strict=True))


def _is_empty(table: _Table, name: str) -> bool:
    """Return whether a column has no value in any row."""
    column = _read_columns(table, [name], {name}, None)[name]
    return kind_of(column.type) == "text" and texts_of(column, [""]).null_count == len(column)


def typed_batches(path: Path, as_they_are: Collection[str | None], notation: Notation) -> Iterator[Any]:
    """Yield a table as Arrow record batches of all columns, numbers but for those left as they are.

    Raises ColumnError where another column is not numeric; see `read_rows`.
    """
    pa = pyarrow()
    with _open_table(path, notation) as table:
        positions, n_read = _positions(table.names, notation.header), 0
        names = list(positions)
        if len(names) < len(table.names):
            raise ValueError("several columns have no name. Name them.")
        _check_named([name for name in names if name not in as_they_are], positions)
        for batch, _ in table.batches(range(len(names)), range(len(names))):

            def place(row: int, first: int = n_read) -> str:
                return table.place(first + row)

            columns = [
                column
                if name in as_they_are
                else pa.array(encode_column(column, name, None, notation, place)[0][:, 0])
                for name, column in zip(names, batch.columns, strict=True)
            ]
            n_read += batch.num_rows
            yield pa.RecordBatch.from_arrays(columns, names)
        if not n_read:
            raise ValueError("it has column names but no rows.")


def _positions(names: Sequence[str], header: bool) -> dict[str, int]:
    """Check the column names and return the position of each."""
    if not names:
        raise ValueError("the file is empty.")
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name and name in positions:
            raise ColumnError(f"two columns are called {name!r}. Rename one of them.", name)
        positions.setdefault(name, position)
    if header and all(is_number(name) for name in names):
        raise ValueError(
            f"its first line has numbers instead of names: {listed(names)}. Add a line of names, or use "
            "--no-header (in Python, header=False)."
        )
    return positions


def _check_named(names: Sequence[str], positions: Mapping[str, int]) -> None:
    if "" in names:
        raise ColumnError(
            f"column {positions[''] + 1} has no name. Such a column is often a row index, not a feature.",
            "",
            is_feature=True,
        )


def _check_present(positions: Mapping[str, int], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in positions]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        present = f"there are {listed(list(positions))}."
        if len(positions) == 1:
            only = next(iter(positions))
            present = (
                f"there is only {only!r}. Columns must be separated by commas, semicolons, tabs or |, or by "
                "what --sep (sep=) names."
            )
        raise ColumnError(f"there is no column {missing[0]!r}{more}; {present}", missing[0])


def _labels(column: Any, name: str, notation: Notation, notes: list[str], is_written: bool) -> list[Any]:
    """Return a column of labels, None where one is missing; words for that are noted.

    Those that are written in a text file are read as numbers or truths where all are.
    """
    import pyarrow.compute as pc

    if kind_of(column.type) != "text":
        values = _as_it_is(column, name)
        return [None if value in notation.numbers else value for value in values]
    text = texts_of(column, notation.words)
    lost = pc.utf8_trim_whitespace(column.filter(pc.is_null(text))).drop_null()
    for each in pc.value_counts(lost).to_pylist():
        if each["values"] not in ("", *notation.missing):
            notes.append(
                f"{each['values']!r} stands for no label in {each['counts']} rows of {name!r}. If it is a "
                "class, add --missing '' (missing=['']): then only empty cells are missing values"
            )
    words = text.to_pylist()
    distinct = {word for word in words if word is not None}
    read = reader_of(distinct, name) if is_written else str.strip
    if read is str.strip:
        labels: list[Any] = pc.if_else(pc.is_null(text), text, column.cast(text.type)).to_pylist()
        return labels
    known = {word: read(word) for word in distinct}
    return [known.get(word) for word in words]


def _weights(column: Any, name: str, notation: Notation, place: Callable[[int], str]) -> FloatArray:
    """Return a column of weights (n,), which are numbers of at least zero."""
    if kind_of(column.type) not in (*NUMERIC, "text"):
        raise ColumnError(f"column {name!r} is of type {column.type}; weights must be numbers.", name)
    weights = numbers_in(column, notation)[0]
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(wrong):
        where = place(int(wrong[0]))
        raise ColumnError(
            f"column {name!r}: the weight on {where} is negative, missing or not a number.", name
        )
    return weights


def _as_it_is(column: Any, name: str) -> list[Any]:
    """Return an Arrow column as a list of plain values, None where one is missing."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise ColumnError(f"column {name!r} is of type {column.type}, neither numbers nor text.", name)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


# ---------------------------------------------------------------- formats


class _NotNumeric(Exception):  # noqa: N818
    """A column that began with numbers has something else."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class _Table:
    """An open table; only the column names have been read."""

    names: list[str]
    # From the distinct positions of some columns, and those to be left as text, to Arrow record batches of
    # these columns, in this order, each with the share of the table read so far.
    batches: Callable[[Sequence[int], Collection[int]], Iterator[tuple[Any, float]]]
    # From a row number, counted from 0, to its position in the file, such as "line 12".
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    # Notes on content that is ignored.
    notes: Sequence[str] = ()
    # Positions of columns that hold text by their first values; columns of numbers with leading zeros, and an
    # example of each.
    text: Collection[int] = ()
    padded: Mapping[str, str] = field(default_factory=dict)
    # How numbers are prepared: spill-over is removed from batches, and the scale is left to the reader.
    preparation: Preparation | None = None
    is_fcs: bool = False
    is_text: bool = False


@contextmanager
def _open_table(
    source: str | os.PathLike[str] | BinaryIO,
    notation: Notation,
    preparation: Preparation | None = None,
    features: Collection[str] = (),
) -> Iterator[_Table]:
    """Open a file or a stream; errors in the body begin with its name. Channels may be wanted by marker."""
    ArrowException = pyarrow().ArrowException
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    name = "standard input" if path is None else str(path)
    # A pipe can be read only once, while Parquet, NPZ and FCS files must be seekable.
    if path is not None and (path.is_file() or not path.exists()):
        reopen: Callable[[], Any] = partial(open, path, "rb")
    else:
        reopen = partial(io.BytesIO, source.read() if path is None else path.read_bytes())  # type: ignore[union-attr]
    try:
        with reopen() as file:
            start = file.read(10)
            file.seek(0)
            if start.startswith(MAGIC) and start.endswith(b"    "):
                yield _fcs(reopen, preparation, features)
                return
            prepared = resolved(preparation, None)
            if start.startswith(b"PAR1"):
                table = _parquet(file)
            elif start.startswith((b"PK\x03\x04", b"\x93NUMPY")):
                table = _npz(file)
            else:
                table = _csv(reopen, file.seek(0, io.SEEK_END), start, notation)
            yield replace(table, preparation=prepared)
    except ColumnError as error:
        raise ColumnError(f"{name}: {error}", error.column, is_feature=error.is_feature) from None
    except ArgumentError as error:
        raise ArgumentError(f"{name}: ", *error.parts) from None
    except (ValueError, ArrowException, *_DAMAGE) as error:
        problem = str(error)
        if isinstance(error, UnicodeError) or (isinstance(error, ArrowException) and "UTF8" in problem):
            reason = error.reason if isinstance(error, UnicodeDecodeError) else "invalid bytes"
            own = notation.encoding or "UTF-8"
            problem = (
                f"it is neither text in {own} ({reason}) nor Parquet, NPZ or FCS. Save it as CSV in UTF-8, "
                "or name its encoding, such as --encoding latin-1 (encoding='latin-1')."
            )
        elif isinstance(error, (ArrowException, *_DAMAGE)):
            problem = f"it is damaged, or not a table ({error})."
        raise ValueError(f"{name}: {problem}") from None


def _csv(reopen: Callable[[], Any], size: int, start: bytes, notation: Notation) -> _Table:
    """Open a text file."""
    packed = start.startswith(b"\x1f\x8b")
    encoding = notation.encoding
    if encoding is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"

    def as_utf8(file: BinaryIO) -> Any:
        import pyarrow as pa

        unpacked = gzip.GzipFile(fileobj=file) if packed else file
        if encoding is None or codecs.lookup(encoding).name == "utf-8":
            return unpacked
        return pa.transcoding_input_stream(pa.PythonFile(unpacked, mode="r"), encoding, "utf-8")

    with reopen() as file:
        content = as_utf8(file)
        block = content.read(_HEAD_BYTES)
        is_whole = len(block) < _HEAD_BYTES
        if encoding is None and len(block) > 3 and not any(block[1:10:2]) and all(block[:10:2]):
            raise ValueError(
                "it seems to be text in UTF-16 without a byte-order mark: add --encoding utf-16-le "
                "(encoding='utf-16-le')."
            )
        head = codecs.getincrementaldecoder("utf-8-sig")().decode(block, final=is_whole)
        separator, records = _sniff(head, is_whole, notation)
        n_blank = next((i for i, record in enumerate(records) if record), 0)
        full = [record for record in records if record]
        # Arrow takes a quotation mark after a blank for text, and a line of names alone for no table.
        quotes = re.compile(re.escape(separator.encode()) + b' +"')
        is_odd = separator == " " or len(full) <= notation.header or bool(quotes.search(block))
        is_quoted = b'"' in block
        while not is_odd and (more := content.read(_BLOCK_BYTES)):
            if b'"' in more:
                is_odd, is_quoted = bool(quotes.search(block[-8:] + more)), True
            block = more
    names = [name.strip() for name in full[0]] if full else []
    if not notation.header:
        names = [f"column_{i}" for i in range(1, len(names) + 1)]
    text, padded = set(), {}
    shown = full[notation.header :][: max(2, _HEAD_CELLS // max(1, len(names)))]
    for i, cells in enumerate(zip(*(r for r in shown if len(r) == len(names)), strict=True)):
        known = [cell for cell in map(str.strip, cells) if cell not in notation.number_words]
        if not all(is_number(notation.plain(cell)) for cell in known):
            text.add(i)
        elif all(map(str.isdigit, known)) and any(map(_PADDED.fullmatch, known)):
            padded[names[i]] = next(filter(_PADDED.fullmatch, known))

    @contextmanager
    def parsed(errors: str = "strict") -> Iterator[Any]:
        """Yield a reader of all lines by Python."""
        with reopen() as file:
            lines = io.TextIOWrapper(as_utf8(file), "utf-8-sig", errors, newline="")
            yield csv.reader(_trimmed(lines, separator), delimiter=separator, skipinitialspace=is_odd)

    def place(row: int) -> str:
        """Return the line at which a row ends. Only needed for errors, so the file is read again."""
        with parsed("replace") as lines, suppress(csv.Error):
            for number, _ in enumerate(filter(None, lines)):
                if number == row + notation.header:
                    return f"line {lines.line_num}"
        return f"row {row + 1}"

    def check_widths() -> None:
        with parsed("replace") as lines, suppress(csv.Error):
            for record in filter(None, lines):
                if len(record) != len(names):
                    where = f"line {lines.line_num} has {len(record)} values"
                    raise ValueError(f"{where}, but the first line has {len(names)}.")

    def batches(columns: Sequence[int], text: Collection[int]) -> Iterator[tuple[Any, float]]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(names))]
        n_skipped, plain = n_blank + notation.header, io.StringIO(newline="")
        if is_odd:
            # Written again as Arrow reads it.
            with parsed() as lines:
                rows = itertools.islice(filter(None, lines), int(notation.header), None)
                csv.writer(plain, delimiter=separator).writerows(rows)
            n_skipped = 0
            if not plain.tell():
                return
        read = pacsv.ReadOptions(column_names=keys, skip_rows_after_names=n_skipped, block_size=_BLOCK_BYTES)
        parse = pacsv.ParseOptions(delimiter=separator, newlines_in_values=is_quoted)
        convert = pacsv.ConvertOptions(
            column_types={key: pa.string() if i in text else pa.float64() for i, key in enumerate(keys)},
            include_columns=[keys[column] for column in columns],
            null_values=list(notation.number_words),
            decimal_point=notation.decimal,
        )
        with reopen() as file:
            content = io.BytesIO(plain.getvalue().encode()) if is_odd else as_utf8(file)
            try:
                for batch in pacsv.open_csv(content, read, parse, convert):
                    yield batch, 1.0 if is_odd else file.tell() / size
            except pa.ArrowInvalid as error:
                check_widths()
                wrong = re.match(r"In CSV column #(\d+).*conversion error to double", str(error))
                if wrong is None:
                    raise
                raise _NotNumeric(int(wrong[1])) from None

    return _Table(names, batches, place, text=text, padded=padded, is_text=True)


def _sniff(head: str, is_whole: bool, notation: Notation) -> tuple[str, list[list[str]]]:
    """Return the separator of a text file, given its first characters, and its first records.

    By it, most records have as many values as the first, and that has most values.
    """
    # Python refuses longer values by default.
    csv.field_size_limit(1 << 30)

    def records(separator: str, most: int) -> list[list[str]]:
        text = _trimmed(io.StringIO(head, newline=""), separator)
        lines = csv.reader(text, delimiter=separator, skipinitialspace=True)
        found = list(itertools.islice(lines, most))
        return found[:-1] if len(found) > 1 and len(found) < most and not is_whole else found

    def fitness(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in records(separator, _FEW_RECORDS) if record]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    candidates = [each for each in _SEPARATORS if each != notation.decimal and each in head]
    default = ";" if notation.decimal == "," else ","
    separator = max(candidates, key=fitness, default=default) if notation.sep is None else notation.sep
    return separator, records(separator, _HEAD_RECORDS)


def _trimmed(lines: Iterable[str], separator: str) -> Iterable[str]:
    """Return lines without blanks at their ends if blanks separate columns."""
    return map(partial(re.compile(r" +(?=[\r\n]*$)").sub, ""), lines) if separator == " " else lines


def _parquet(file: BinaryIO) -> _Table:
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"it is not a complete Parquet file: {error}") from None
    names = [name for name in opened.schema_arrow.names if not name.startswith(PANDAS_INDEX)]

    def batches(columns: Sequence[int], text: Collection[int]) -> Iterator[tuple[Any, float]]:
        wanted, n_read = [names[column] for column in columns], 0
        for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted):
            n_read += batch.num_rows
            yield batch.select(wanted), n_read / opened.metadata.num_rows

    return _Table(names, batches)


def _npz(file: BinaryIO) -> _Table:
    """Open arrays: a vector is a column, a matrix several columns."""
    import pyarrow as pa

    arrays: dict[str, np.ndarray] = {}
    try:
        loaded = np.load(file, allow_pickle=False)
    except ValueError as error:
        raise ValueError(
            f"it holds Python objects or is damaged ({error}). Save arrays of numbers or text."
        ) from None
    if isinstance(loaded, np.ndarray):
        arrays["column"] = loaded
    else:
        with closing(loaded) as stored:
            for name in stored.files:
                try:
                    arrays[name] = stored[name]
                except ValueError:
                    raise ValueError(f"array {name!r} holds Python objects. Save numbers or text.") from None
    matrices = [array for array in arrays.values() if array.ndim == 2]
    titles = next((arrays.pop(name) for name in _COLUMN_NAMES if name in arrays), None)
    # The first matrix, or else the first vector, determines the number of rows.
    n_rows = next((len(array) for array in (*matrices, *arrays.values()) if array.ndim), 0)
    columns: dict[str, Any] = {}
    notes = []
    for name, array in arrays.items():
        if array.ndim not in (1, 2) or len(array) != n_rows or array.dtype.kind not in "biufU":
            notes.append(
                f"array {name!r} of type {array.dtype} and shape {array.shape} is left out: it is not a "
                f"column of numbers or text with {n_rows} rows"
            )
        elif array.ndim == 1:
            columns[name] = array
        else:
            own = [f"{name}_{i}" for i in range(1, array.shape[1] + 1)]
            if len(matrices) == 1 and titles is not None and titles.shape == (array.shape[1],):
                own = [str(title) for title in titles]
            columns.update(zip(own, array.T, strict=True))
    names = list(columns)

    def batches(chosen: Sequence[int], text: Collection[int]) -> Iterator[tuple[Any, float]]:
        native = [columns[names[c]] for c in chosen]
        found = [pa.array(array.astype(array.dtype.newbyteorder("="))) for array in native]
        yield pa.RecordBatch.from_arrays(found, [names[c] for c in chosen]), 1.0

    return _Table(names, batches, notes=notes)


def _fcs(reopen: Callable[[], Any], preparation: Preparation | None, features: Collection[str]) -> _Table:
    """Open an FCS file; its channels go by their names, or by their markers where features do."""
    import pyarrow as pa

    header = read_header(reopen, "it")
    names = [channel.name for channel in header.channels]
    by_marker = {*features} - {*names}
    names = [each.marker if each.marker in by_marker else each.name for each in header.channels]
    own = resolved(preparation, header.spillover is not None)
    assert own is not None

    def batches(columns: Sequence[int], text: Collection[int]) -> Iterator[tuple[Any, float]]:
        with reopen() as file:
            file.seek(header.offset)
            records = np.frombuffer(file.read(header.n_rows * header.dtype.itemsize), header.dtype)
        X = header.values(records, columns, np.dtype(np.float64), compensate=own["compensate"])
        found = [pa.array(values) for values in np.ascontiguousarray(X.T)]
        yield pa.RecordBatch.from_arrays(found, [names[column] for column in columns]), 1.0

    return _Table(names, batches, preparation=own, is_fcs=True)


# ---------------------------------------------------------------- labels


def class_labels(values: Sequence[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table, see `TableRows`, as class labels (n,), and which rows have one (n,).

    Labels are integers, booleans or text. A row without a label gets that of the first row that has one.
    Raises ColumnError if there are fewer than two distinct labels, if numbers are not whole, or if there are
    so many that the column seems to hold a quantity or an identifier.
    """
    text = _texts(values)
    known = np.array([value is not None for value in text], dtype=np.bool_)
    present = sorted({value for value in text if value is not None})
    n_known = int(known.sum())
    if len(present) < 2:
        found = f"only the label {present[0]!r}" if present else "no label"
        raise ColumnError(f"column {name!r} has {found} in {len(text)} rows; at least two are needed.", name)
    fractions = [value for value in present if not WHOLE.fullmatch(value) and is_number(value)]
    if len(fractions) > _MOST_FRACTIONS or (
        len(present) > _MOST_LABELS_OF_FEW_ROWS and 2 * len(present) > n_known
    ):
        raise ColumnError(
            f"column {name!r} has {len(present)} different values in {n_known} rows, such as {present[0]!r}: "
            "too many for classes. Choose a column with fewer labels, or no target for a density model.",
            name,
        )
    own = [value for value, is_known in zip(values, known, strict=True) if is_known]
    if all(isinstance(value, int | float) for value in own):
        refuse_fractions(own, name)
    if not all(isinstance(value, bool) for value in own):
        whole = all(
            isinstance(value, int | float) and WHOLE.fullmatch(str(plain_text(value))) for value in own
        )
        own = [
            int(value) if whole else value.strip() if isinstance(value, str) else plain_text(value)
            for value in own
        ]
    labels = np.array(own)
    filled = np.full(len(known), labels[0], dtype=labels.dtype)
    filled[known] = labels
    return filled, known


def labels_like(values: Sequence[Any], classes: NDArray[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table as labels (n,) of known classes (L,), and which rows have one (n,).

    Labels have the type of `classes`; missing ones become the first class. Raises ColumnError for labels that
    are not among the classes.
    """
    codes = {_folded(plain_text(label)): code for code, label in enumerate(classes.tolist())}
    text = [_folded(value) for value in _texts(values)]
    unseen = sorted({value for value in text if value is not None and value not in codes})
    if unseen:
        raise ColumnError(
            f"column {name!r} has labels that are not classes of the model: {listed(unseen)}; its classes "
            f"are {listed([str(known) for known in classes.tolist()])}.",
            name,
        )
    known = np.array([value is not None for value in text], dtype=np.bool_)
    return classes[[0 if value is None else codes[value] for value in text]], known


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Return labels as text, None where one is missing or empty."""
    distinct = {value: plain_text(value) or None for value in set(values)}
    return [distinct[value] for value in values]


def _folded(text: str | None) -> str | None:
    """Return a label as text, the same for true, True and TRUE."""
    return text.capitalize() if text is not None and text.lower() in BOOLEANS else text


# ---------------------------------------------------------------- writing


def write_columns(
    target: str | os.PathLike[str] | BinaryIO,
    columns: Mapping[str, NDArray[Any]],
    *,
    digits: int | None = None,
) -> None:
    r"""Write a table; a file is replaced atomically.

    Parameters
    ----------
    target : path-like or binary stream
        The file, whose suffix determines the format (see `WRITABLE`); a stream gets CSV.
    columns : mapping of str to ndarray of shape (n,)
        Columns of numbers or text.
    digits : int, default=None
        Significant digits of numbers in text; None writes as many as are needed to read back the same number.
        Parquet files always have full precision.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from skmix.io import write_columns
    >>> write_columns(stream := io.BytesIO(), {"a": np.array([1.0, 2.5])})
    >>> stream.getvalue()
    b'a\n1.0\n2.5\n'
    """
    if not isinstance(target, str | os.PathLike):
        _write_text(target, columns, ",", digits)
        return
    kind = check_writable(Path(target))
    separator = "\t" if kind.startswith(".tsv") else ","
    with replacing(target) as file:
        if kind == ".parquet":
            pa = pyarrow()
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), file)
        elif kind.endswith(".gz"):
            # No name or date, so that the same table gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                _write_text(packed, columns, separator, digits)
        else:
            _write_text(file, columns, separator, digits)


def check_writable(path: Path) -> str:
    """Return the suffix of a table's name, one of `WRITABLE`, or raise ValueError; devices get CSV."""
    if is_device(path):
        return ".csv"
    for ending in WRITABLE:
        if path.name.lower().endswith(ending):
            return ending
    raise ValueError(f"{path}: the name of a table must end in {', '.join(WRITABLE)}.")


def _write_text(
    file: IO[bytes] | gzip.GzipFile, columns: Mapping[str, NDArray[Any]], separator: str, digits: int | None
) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    n_rows = max((len(values) for values in columns.values()), default=0)
    for first in range(0, n_rows, _BATCH_ROWS):
        part = slice(first, first + _BATCH_ROWS)
        writer.writerows(zip(*(_cells(values[part], digits) for values in columns.values()), strict=True))
    # The caller closes the file.
    text.detach()


def _cells(values: NDArray[Any], digits: int | None) -> list[Any]:
    """Return values (n,) as cells of a text file, empty where one is missing."""
    cells = ["" if value is None or value != value else value for value in values.tolist()]
    if digits is None or values.dtype.kind != "f":
        return cells
    return [cell if cell == "" else f"{cell:.{digits}g}" for cell in cells]
