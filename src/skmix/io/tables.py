"""Tables that fit in memory: features by name, a column of labels, and errors that name the column."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .arrow import is_number, is_text, numbers_of
from .formats import Table, open_table
from .writing import replacing

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MISSING = ("", "?", "NA", "NaN", "nan", "null")
"""Texts that stand for a missing value."""
WRITABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""File name suffixes of tables that can be written."""

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_WITH_COMMAS = re.compile(r"[-+]?[0-9]+([.,' ][0-9]+)*,[0-9]+([eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": 1.0, "false": 0.0}
# A column does not hold classes if it has more fractional values than `_MOST_FRACTIONS`, or more distinct
# values than `_MOST_OF_FEW_ROWS` with fewer than two rows each on average.
_MOST_FRACTIONS = 10
_MOST_OF_FEW_ROWS = 20
_MOST_LISTED = 10
_ROWS_AT_A_TIME = 1 << 14


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
    r"""Read a table with column names: CSV, TSV (both also compressed by gzip), Parquet or NPZ.

    The format is recognised by the content. In an NPZ file, a vector is a column and a matrix several,
    named by an array ``feature_names`` if there is one.

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
    where = Path(source) if isinstance(source, str | os.PathLike) else source
    name = str(where) if isinstance(where, Path) else "standard input"
    try:
        with open_table(where, header=header) as table:
            return _read(table, features, target, drop, keep, progress or (lambda share: None), header)
    except ColumnError as error:
        raise ColumnError(f"{name}: {error}", error.column, is_feature=error.is_feature) from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(
    table: Table,
    features: Sequence[str] | None,
    target: str | int | None,
    drop: Sequence[str],
    keep: Sequence[str],
    progress: Callable[[float], None],
    header: bool,
) -> TableRows:
    positions = _positions(table.names, header)
    if isinstance(target, int):
        if not -len(table.names) <= target < len(table.names):
            raise ValueError(f"there is no column {target}; there are {len(table.names)}.")
        target = table.names[target]
    aside = [*([] if target is None else [target]), *keep]
    _check_present(positions, [*(features or ()), *aside, *(drop if features is None else ())])
    not_features = {*aside, *drop}
    names = [name for name in table.names if name not in not_features] if features is None else list(features)
    if features is None and "" in names:
        raise ColumnError(
            f"column {positions[''] + 1} has no name. Such a column is often a row index, not a feature.",
            "",
            is_feature=True,
        )
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

        def place(row: int, first: int = n_read) -> str:
            return table.place(first + row)

        blocks.append(np.column_stack([_numbers(found[name], name, place) for name in names]))
        for name, values in columns.items():
            values.extend(_labels(found[name], name))
        n_read += batch.num_rows
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


def _positions(names: Sequence[str], header: bool) -> dict[str, int]:
    """Check the column names and return the position of each."""
    if not names:
        raise ValueError("it is empty.")
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


def _check_present(positions: Mapping[str, int], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in positions]
    if not missing:
        return
    names = list(positions)
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    present = f"there are {_listed(names)}."
    if len(names) == 1:
        present = f"there is only {names[0]!r}. Columns must be separated by commas, semicolons or tabs."
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
    """Return an Arrow column (n,) as finite numbers or NaN."""
    if is_number(column.type):
        numbers = numbers_of(column).astype(np.float64, copy=False)
    elif is_text(column.type):
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
    text = pc.if_else(pc.is_in(text, value_set=_missing()), None, text)
    try:
        return numbers_of(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        pass
    # Not all are plain numbers: parse each distinct text once, in the order of the rows.
    coded = text.dictionary_encode()

    def place_of(value: str) -> str:
        return place(pc.index(text, value).as_py())

    values = [_number(value, name, place_of) for value in coded.dictionary.to_pylist()]
    return np.array([*values, np.nan])[coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]


@cache
def _missing() -> Any:
    import pyarrow as pa

    return pa.array(MISSING)


def _number(text: str, name: str, place_of: Callable[[str], str]) -> float:
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    # Python would also accept 1_000 and digits of other scripts.
    if text.isascii() and "_" not in text and _is_number(text):
        return float(text)
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    if _WITH_COMMAS.fullmatch(text):
        raise ColumnError(
            f"column {name!r} has a comma in the number {shown!r} on {place_of(text)}. Write a point before "
            "decimals, and nothing between thousands.",
            name,
        )
    raise ColumnError(
        f"column {name!r} holds text, such as {shown!r} on {place_of(text)}; a feature must be a number.",
        name,
        is_feature=True,
    )


# ---------------------------------------------------------------- labels


def _labels(column: Any, name: str) -> list[Any]:
    """Return an Arrow column as a list of text or numbers, None where a value is missing."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not is_number(column.type) and not is_text(column.type):
        raise ColumnError(f"column {name!r} is of type {column.type}, neither numbers nor text.", name)
    values: list[Any] = column.to_pylist()
    return values


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
            import pyarrow as pa
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
    for first in range(0, n_rows, _ROWS_AT_A_TIME):
        part = slice(first, first + _ROWS_AT_A_TIME)
        writer.writerows(zip(*(_formatted(values[part], digits) for values in columns.values()), strict=True))
    # The caller closes the file.
    text.detach()


def _formatted(values: NDArray[Any], digits: int | None) -> list[Any]:
    """Return values (n,) as cells of a text file, empty where a number is missing."""
    if values.dtype.kind != "f":
        return ["" if value is None else value for value in values.tolist()]
    if digits is None:
        return ["" if np.isnan(value) else value for value in values.tolist()]
    return ["" if np.isnan(value) else f"{value:.{digits}g}" for value in values.tolist()]
