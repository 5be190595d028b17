"""Tables that fit in memory: features by name, a column of labels, and errors that name the column.

CSV, TSV, Parquet, NPZ and FCS files are recognised by their content, not by their names.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .arrow import NUMERIC, PANDAS_INDEX, kind_of, numbers_of, pyarrow
from .fcs import MAGIC, read_header
from .writing import replacing

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MISSING = ("", "?", "NA", "NaN", "nan", "null")
"""Texts that stand for a missing value."""
WRITABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""File name suffixes of tables that can be written."""

_SEPARATORS = ("\t", ",", ";")
# The column names of a CSV file must be within its first bytes, and each of its rows must fit into a block.
_HEAD_BYTES, _BLOCK_BYTES = 1 << 22, 1 << 24
_BATCH_ROWS = 1 << 16
# Arrays of an NPZ file that name the columns of its matrix.
_COLUMN_NAMES = ("feature_names", "columns")
_DAMAGE = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, csv.Error, NotImplementedError)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_WITH_COMMAS = re.compile(r"[-+]?[0-9]+([.,' ][0-9]+)*,[0-9]+([eE][-+]?[0-9]+)?")
# A column does not hold classes if it has more fractional values than `_MOST_FRACTIONS`, or more distinct
# values than `_MOST_OF_FEW_ROWS` with fewer than two rows each on average.
_MOST_FRACTIONS, _MOST_OF_FEW_ROWS = 10, 20
_MOST_LISTED = 10


class ColumnError(ValueError):
    """A column that is missing or cannot be used.

    Attributes
    ----------
    column : str
        Its name.
    is_feature : bool
        Whether leaving the column out would help.
    """

    def __init__(self, message: str, column: str, *, is_feature: bool = False) -> None:
        super().__init__(message)
        self.column = column
        self.is_feature = is_feature


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
        The column of labels, text or numbers, as it is in the table; see `class_labels`.
    kept : dict of str to list
        Other requested columns, as they are in the table.
    notes : tuple of str
        Notes on columns that were ignored.
    """

    X: FloatArray
    feature_names: tuple[str, ...]
    labels: list[Any] | None = None
    kept: dict[str, list[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- reading


def read_rows(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    features: Sequence[str] | None = None,
    target: str | int | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    header: bool = True,
    progress: Callable[[float], None] | None = None,
) -> TableRows:
    r"""Read a table with column names: CSV, TSV (both also compressed by gzip), Parquet, NPZ or FCS.

    The format is recognised by the content. In an NPZ file, a vector is a column and a matrix several,
    named by an array ``feature_names`` if there is one. The columns of an FCS file are its channels, see
    `read_fcs`.

    Parameters
    ----------
    source : path-like or binary stream
        The table.
    features : list of str, default=None
        Columns to use as features, in this order; None uses all that are not named below.
    target : str or int, default=None
        Column of labels: its name or its position, -1 for the last.
    drop : list of str, default=()
        Columns to leave out. They need not exist if `features` are given.
    keep : list of str, default=()
        Columns to return as they are.
    header : bool, default=True
        Whether the first line of a text file has names. Otherwise columns are ``column_1``, ``column_2`` …
    progress : callable, default=None
        Called with the share of the table read so far, from 0 to 1.

    Returns
    -------
    TableRows
        Features as numbers: empty values, ``NA``, ``NaN``, ``null`` and ``?`` are missing, ``true`` and
        ``false`` are 1 and 0.

    Raises
    ------
    ColumnError
        If a column is missing, occurs twice or is not numeric; it names the column, a value and its line.
    ValueError
        If anything else is wrong with the table.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import io
    >>> from skmix.datasets import read_rows
    >>> rows = read_rows(io.BytesIO(b"a,b,kind\n1,2,x\n3,,y\n"), target="kind")
    >>> rows.X
    array([[ 1.,  2.],
           [ 3., nan]])
    >>> rows.labels
    ['x', 'y']
    """
    with _open_table(source, header) as table:
        positions = _positions(table.names, header)
        if isinstance(target, int):
            if not -len(table.names) <= target < len(table.names):
                raise ValueError(f"there is no column {target}; there are {len(table.names)}.")
            target = table.names[target]
        aside = [*([] if target is None else [target]), *keep]
        _check_present(positions, [*(features or ()), *aside, *(drop if features is None else ())])
        not_features = {*aside, *drop}
        names = list(features or ())
        if features is None:
            names = [name for name in table.names if name not in not_features]
        if features is None:
            _check_named(names, positions)
        if not names:
            raise ValueError(f"no column is left as a feature; the table has {_listed(table.names)}.")
        used = {*names, *not_features}
        extra = [name or "(no name)" for name in table.names if name not in used]
        notes = [*table.notes, *([f"ignored, not a feature of the model: {_listed(extra)}"] if extra else [])]

        wanted = list(dict.fromkeys([*names, *aside]))
        blocks: list[FloatArray] = []
        columns: dict[str, list[Any]] = {name: [] for name in aside}
        n_read = 0
        for batch, share in table.batches([positions[name] for name in wanted]):
            found = dict(zip(wanted, batch.columns, strict=True))
            place = partial(_shifted, table.place, n_read)
            blocks.append(np.column_stack([_numbers(found[name], name, place) for name in names]))
            for name, values in columns.items():
                values.extend(_as_it_is(found[name], name))
            n_read += batch.num_rows
            if progress is not None:
                progress(share)
        if not n_read:
            raise ValueError("it has column names but no rows.")
        return TableRows(
            np.concatenate(blocks),
            tuple(names),
            None if target is None else columns[target],
            {name: columns[name] for name in keep},
            tuple(notes),
        )


def typed_batches(path: Path, as_they_are: Collection[str | None]) -> Iterator[Any]:
    """Yield a table as Arrow record batches of all columns, numbers but for those left as they are.

    Raises ColumnError where another column is not numeric; see `read_rows`.
    """
    pa = pyarrow()
    with _open_table(path, header=True) as table:
        positions, n_read = _positions(table.names, header=True), 0
        names = list(positions)
        if len(names) < len(table.names):
            raise ValueError("several columns have no name. Name them.")
        _check_named([name for name in names if name not in as_they_are], positions)
        for batch, _ in table.batches(range(len(names))):
            place = partial(_shifted, table.place, n_read)
            columns = [
                column if name in as_they_are else pa.array(_numbers(column, name, place))
                for name, column in zip(names, batch.columns, strict=True)
            ]
            n_read += batch.num_rows
            yield pa.RecordBatch.from_arrays(columns, names)
        if not n_read:
            raise ValueError("it has column names but no rows.")


def _shifted(place: Callable[[int], str], first: int, row: int) -> str:
    return place(first + row)


def _positions(names: Sequence[str], header: bool) -> dict[str, int]:
    """Check the column names and return the position of each."""
    if not names:
        raise ValueError("the file is empty.")
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name and name in positions:
            raise ColumnError(f"two columns are called {name!r}. Rename one of them.", name)
        positions.setdefault(name, position)
    if header and all(_is_number(name) for name in names):
        raise ValueError(
            f"its first line has numbers instead of names: {_listed(names)}. Add a line of names, or use "
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
        present = f"there are {_listed(list(positions))}."
        if len(positions) == 1:
            only = next(iter(positions))
            present = f"there is only {only!r}. Columns must be separated by commas, semicolons or tabs."
        raise ColumnError(f"there is no column {missing[0]!r}{more}; {present}", missing[0])


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_MOST_LISTED]))
    return shown if len(names) <= _MOST_LISTED else f"{shown} … ({len(names)} in all)"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(column: Any, name: str, place: Callable[[int], str]) -> FloatArray:
    """Return an Arrow column (n,) as finite numbers or NaN; `place` says where a row is."""
    if kind_of(column.type) in NUMERIC:
        numbers = numbers_of(column).astype(np.float64, copy=False)
    elif kind_of(column.type) == "text":
        numbers = _parsed(column, name, place)
    else:
        raise ColumnError(
            f"column {name!r} is of type {column.type}; a feature must be a number.", name, is_feature=True
        )
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise ColumnError(
            f"column {name!r} is infinite on {place(int(infinite[0]))}; leave unknown values empty.",
            name,
            is_feature=True,
        )
    return numbers


def _parsed(column: Any, name: str, place: Callable[[int], str]) -> FloatArray:
    """Return an Arrow column (n,) of text as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    text = pc.if_else(pc.is_in(text, value_set=_missing_texts()), None, text)
    with suppress(pa.ArrowInvalid):
        return numbers_of(text.cast(pa.float64()))
    # Not all are plain numbers: parse each distinct text once, in the order of the rows.
    coded = text.dictionary_encode()
    values = []
    for value in coded.dictionary.to_pylist():
        # Python would also accept 1_000 and digits of other scripts.
        if value.isascii() and "_" not in value and _is_number(value):
            values.append(float(value))
        elif value.lower() in ("true", "false"):
            values.append(float(value.lower() == "true"))
        else:
            shown = value if len(value) <= 40 else f"{value[:40]}…"
            where = place(pc.index(text, value).as_py())
            if _WITH_COMMAS.fullmatch(value):
                raise ColumnError(
                    f"column {name!r} has a comma in the number {shown!r} on {where}. Write a point before "
                    "decimals, and nothing between thousands.",
                    name,
                )
            raise ColumnError(
                f"column {name!r} holds text, such as {shown!r} on {where}; a feature must be a number.",
                name,
                is_feature=True,
            )
    return np.array([*values, np.nan])[coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]


@cache
def _missing_texts() -> Any:
    import pyarrow as pa

    return pa.array(MISSING)


def _as_it_is(column: Any, name: str) -> list[Any]:
    """Return an Arrow column as a list of text or numbers, None where a value is missing."""
    import pyarrow as pa

    if kind_of(column.type) is None:
        raise ColumnError(f"column {name!r} is of type {column.type}, neither numbers nor text.", name)
    values: list[Any] = (
        column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
    ).to_pylist()
    return values


# ---------------------------------------------------------------- formats


@dataclass(frozen=True)
class _Table:
    """An open table; only the column names have been read."""

    names: list[str]
    # From the distinct positions of some columns to Arrow record batches of these columns, in this order,
    # each with the share of the table read so far.
    batches: Callable[[Sequence[int]], Iterator[tuple[Any, float]]]
    # From a row number, counted from 0, to its position in the file, such as "line 12".
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    # Notes on content that is ignored.
    notes: Sequence[str] = ()


@contextmanager
def _open_table(source: str | os.PathLike[str] | BinaryIO, header: bool) -> Iterator[_Table]:
    """Open a file or a stream; errors in the body begin with its name."""
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
            if start.startswith(b"PAR1"):
                yield _parquet(file)
            elif start.startswith(b"PK\x03\x04"):
                yield _npz(file)
            elif start.startswith(MAGIC) and start.endswith(b"    "):
                yield _fcs(reopen)
            else:
                yield _csv(reopen, file.seek(0, io.SEEK_END), start.startswith(b"\x1f\x8b"), header)
    except ColumnError as error:
        raise ColumnError(f"{name}: {error}", error.column, is_feature=error.is_feature) from None
    except (ValueError, ArrowException, *_DAMAGE) as error:
        problem = str(error)
        if isinstance(error, UnicodeDecodeError) or (isinstance(error, ArrowException) and "UTF8" in problem):
            reason = error.reason if isinstance(error, UnicodeDecodeError) else "invalid bytes"
            problem = (
                f"it is neither text in UTF-8 ({reason}) nor Parquet, NPZ or FCS. Save it as CSV in UTF-8."
            )
        elif isinstance(error, (ArrowException, *_DAMAGE)):
            problem = f"it is damaged, or not a table ({error})."
        raise ValueError(f"{name}: {problem}") from None


def _csv(reopen: Callable[[], Any], size: int, packed: bool, header: bool) -> _Table:
    """Open text in UTF-8; all values are read as text."""

    def unpacked(file: BinaryIO) -> Any:
        return gzip.GzipFile(fileobj=file) if packed else file

    with reopen() as file:
        head = codecs.getincrementaldecoder("utf-8-sig")().decode(unpacked(file).read(_HEAD_BYTES))
    # Separators and line ends within quotes do not count.
    first = re.split("[\r\n]", re.sub('"[^"]*"', "", head).lstrip("\r\n"), maxsplit=1)[0]
    separator = max(_SEPARATORS, key=first.count)
    records = enumerate(csv.reader(io.StringIO(head, newline=""), delimiter=separator))
    n_blank, record = next((each for each in records if each[1]), (0, []))
    names = [name.strip() if header else f"column_{i}" for i, name in enumerate(record, start=1)]

    def place(row: int) -> str:
        """Return the line at which a row ends. Only needed for errors, so the file is read again."""
        with reopen() as file, suppress(csv.Error):
            text = io.TextIOWrapper(unpacked(file), "utf-8", "replace", newline="")
            lines = csv.reader(text, delimiter=separator)
            for number, _ in enumerate(filter(None, lines)):
                if number == row + header:
                    return f"line {lines.line_num}"
        return f"row {row + 1}"

    def batches(columns: Sequence[int]) -> Iterator[tuple[Any, float]]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(names))]
        invalid: list[Any] = []

        def refuse(row: Any) -> str:
            invalid.append(row)
            return "error"

        # Arrow counts rows, for errors, only without threads.
        read = pacsv.ReadOptions(
            column_names=keys,
            skip_rows_after_names=n_blank + header,
            block_size=_BLOCK_BYTES,
            use_threads=False,
        )
        parse = pacsv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=refuse)
        convert = pacsv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.string()),
            include_columns=[keys[column] for column in columns],
        )
        with reopen() as file:
            try:
                for batch in pacsv.open_csv(unpacked(file), read, parse, convert):
                    yield batch, file.tell() / size
            except pa.ArrowInvalid:
                if not invalid:
                    raise
                row = invalid[0]
                raise ValueError(
                    f"{place(row.number - 1 - n_blank - header)} has {row.actual_columns} values, "
                    f"but the first line has {row.expected_columns}."
                ) from None

    return _Table(names, batches, place)


def _parquet(file: BinaryIO) -> _Table:
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"it is not a complete Parquet file: {error}") from None
    names = [name for name in opened.schema_arrow.names if not name.startswith(PANDAS_INDEX)]

    def batches(columns: Sequence[int]) -> Iterator[tuple[Any, float]]:
        wanted, n_read = [names[column] for column in columns], 0
        for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted):
            n_read += batch.num_rows
            yield batch.select(wanted), n_read / opened.metadata.num_rows

    return _Table(names, batches)


def _npz(file: BinaryIO) -> _Table:
    """Open arrays: a vector is a column, a matrix several columns."""
    import pyarrow as pa

    with closing(np.load(file, allow_pickle=False)) as stored:
        arrays: dict[str, np.ndarray] = {}
        for name in stored.files:
            try:
                arrays[name] = stored[name]
            except ValueError:
                raise ValueError(f"array {name!r} holds Python objects; save numbers or text.") from None
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

    def batches(chosen: Sequence[int]) -> Iterator[tuple[Any, float]]:
        native = [columns[names[c]] for c in chosen]
        found = [pa.array(array.astype(array.dtype.newbyteorder("="))) for array in native]
        yield pa.RecordBatch.from_arrays(found, [names[c] for c in chosen]), 1.0

    return _Table(names, batches, notes=notes)


def _fcs(reopen: Callable[[], Any]) -> _Table:
    """Open an FCS file; its channels go by their names."""
    import pyarrow as pa

    header = read_header(reopen, "it")
    names = [channel.name for channel in header.channels]

    def batches(columns: Sequence[int]) -> Iterator[tuple[Any, float]]:
        with reopen() as file:
            file.seek(header.offset)
            for n_read in range(0, header.n_rows, _BATCH_ROWS):
                n_more = min(_BATCH_ROWS, header.n_rows - n_read)
                records = np.frombuffer(file.read(n_more * header.dtype.itemsize), header.dtype)
                X = header.values(records, columns, np.dtype(np.float64), compensate=False)
                found = [pa.array(values) for values in np.ascontiguousarray(X.T)]
                batch = pa.RecordBatch.from_arrays(found, [names[column] for column in columns])
                yield batch, (n_read + n_more) / header.n_rows

    return _Table(names, batches)


# ---------------------------------------------------------------- labels


def class_labels(values: Sequence[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table, see `TableRows`, as class labels (n,), and which rows have one (n,).

    Labels are integers if all are non-negative whole numbers, text otherwise. Raises ColumnError if there are
    fewer than two distinct labels, or so many that the column seems to hold a quantity or an identifier.
    """
    text = [_text(value) for value in values]
    known = np.array([value is not None for value in text], dtype=np.bool_)
    present = sorted({value for value in text if value is not None})
    n_known = int(known.sum())
    if len(present) < 2:
        found = f"only the label {present[0]!r}" if present else "no label"
        raise ColumnError(f"column {name!r} has {found} in {len(text)} rows; at least two are needed.", name)
    fractions = [value for value in present if not _WHOLE.fullmatch(value) and _is_number(value)]
    if len(fractions) > _MOST_FRACTIONS or (len(present) > _MOST_OF_FEW_ROWS and 2 * len(present) > n_known):
        raise ColumnError(
            f"column {name!r} has {len(present)} different values in {n_known} rows, such as {present[0]!r}: "
            "too many for classes. Choose a column with fewer labels, or no target for a density model.",
            name,
        )
    # Negative numbers stay text: estimators take -1 for a row without a label.
    if all(_WHOLE.fullmatch(value) and int(value) >= 0 for value in present):
        return np.array([0 if value is None else int(value) for value in text], dtype=np.int64), known
    return np.array(["" if value is None else value for value in text]), known


def labels_like(values: Sequence[Any], classes: NDArray[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table as labels (n,) of known classes (L,), and which rows have one (n,).

    Labels have the type of `classes`; missing ones become the first class. Raises ColumnError for labels that
    are not among the classes.
    """
    codes = {_text(label): code for code, label in enumerate(classes.tolist())}
    text = [_text(value) for value in values]
    unseen = sorted({value for value in text if value is not None and value not in codes})
    if unseen:
        raise ColumnError(
            f"column {name!r} has labels that are not classes of the model: {_listed(unseen)}; its classes "
            f"are {_listed([str(known) for known in codes])}.",
            name,
        )
    known = np.array([value is not None for value in text], dtype=np.bool_)
    return classes[[0 if value is None else codes[value] for value in text]], known


def _text(value: Any) -> str | None:
    """Return a label as text, the same for 1, 1.0, "1" and "1.0"; None if it is missing."""
    if isinstance(value, str):
        value = value.strip()
        if value in MISSING:
            return None
        return value[:-2] if value.endswith(".0") and _WHOLE.fullmatch(value[:-2]) else value
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


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
    >>> from skmix.datasets import write_columns
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
    """Return the suffix of a table's name, one of `WRITABLE`, or raise ValueError."""
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
