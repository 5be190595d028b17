"""Tables: which of their columns are features, labels and weights, as rows in memory or in blocks.

One reader per format returns the columns (`Table`), and one encoder makes features of them.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.compute.blocks import Block
from .arrow import NUMERIC, Spool, Table, kind_of, numbers_of, open_parquet, pyarrow, table_in_memory
from .encoding import (
    ColumnError,
    Encoder,
    Kind,
    Notation,
    are_numbers,
    check_unambiguous,
    feature_names,
    find_kinds,
    in_list,
    is_number,
    listed,
    numbers_in,
    texts_of,
    without_constants,
)
from .fcs import MAGIC, open_events
from .labels import as_integers, reader_of
from .preparation import Preparation, features_of, resolved, transformer_of
from .readers import NPY_DAMAGE, Reader, open_array, rows_in_block, values_of
from .text import TextFile

FloatArray = NDArray[np.float64]

# Arrays of an NPZ file that name the columns of its matrix.
_COLUMN_NAMES = ("feature_names", "columns")
# What NumPy and other readers raise for damaged files, beside ValueError.
_DAMAGE = (*NPY_DAMAGE, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, csv.Error, NotImplementedError)
# Bytes of a copied stream that are read at a time.
_PIECE_BYTES = 1 << 20


# ---------------------------------------------------------------- files to tables


SUFFIXES = {
    "fcs": (".fcs",),
    "parquet": (".parquet", ".pq"),
    "npy": (".npy",),
    "text": (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
}
"""Suffixes of the names of files by format, as they are looked for in folders."""


def format_of(path: Path) -> str:
    """Return the format of a file, 'fcs', 'parquet', 'npz', 'npy', 'zarr' or 'text'.

    It is recognised by the first bytes, and that of a damaged file by its name.
    """
    if path.is_dir():
        return "zarr"
    with open(path, "rb") as file:
        start = file.read(10)
    if start.startswith(MAGIC) and start.endswith(b"    "):
        return "fcs"
    for magic, kind in ((b"PAR1", "parquet"), (b"PK\x03\x04", "npz"), (np.lib.format.MAGIC_PREFIX, "npy")):
        if start.startswith(magic):
            return kind
    return next((kind for kind, own in SUFFIXES.items() if path.name.lower().endswith(own)), "text")


def open_table(path: Path, notation: Notation) -> TextFile | Table:
    """Open a file as columns; those of a text file are still to be chosen, see `TextFile.columns`."""
    kind = format_of(path)
    if kind == "text":
        return TextFile(path, notation)
    if kind == "parquet":
        return open_parquet(path)
    if kind == "npz":
        return _npz(path)
    values = values_of(path, str(path))
    if len(values.shape) == 1:
        read = values.read
        matrix = replace(values, shape=(*values.shape, 1), read=lambda a, b: read(a, b)[:, None])
        return as_table(open_array(matrix), ["column"])
    rows = open_array(values)
    return as_table(rows, [f"column_{i}" for i in range(1, rows.n_features + 1)])


def as_table(rows: Reader, names: Sequence[str]) -> Table:
    """Return rows of numbers as a table of columns with these names."""
    import pyarrow as pa

    def batches(n_rows: int, columns: list[str]) -> Iterator[Any]:
        chosen = rows.take([names.index(name) for name in columns])
        for block in chosen.read(n_rows):
            yield pa.RecordBatch.from_arrays(list(map(pa.array, np.ascontiguousarray(block.X.T))), columns)

    dtype = pa.from_numpy_dtype(rows.dtype)
    return Table(rows.name, dict.fromkeys(names, dtype), rows.n_rows, batches, stamps=rows.stamps)


def _npz(path: Path) -> Table:
    """Read arrays: a vector is a column, a matrix several columns."""
    import pyarrow as pa

    arrays: dict[str, np.ndarray] = {}
    with open(path, "rb") as file, closing(np.load(file, allow_pickle=False)) as opened:
        for name in opened.files:
            try:
                arrays[name] = opened[name]
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
    native = {name: pa.array(array.astype(array.dtype.newbyteorder("="))) for name, array in columns.items()}
    table = table_in_memory(pa.table(native), str(path))
    return replace(table, notes=notes, origin=path)


@contextmanager
def naming(name: str, notation: Notation) -> Iterator[None]:
    """Put the name of the table before errors of the body, and explain those of damaged files."""
    arrow_error = pyarrow().ArrowException
    try:
        yield
    except ColumnError as error:
        parts = (f"{name}: ", *error.parts)
        raise ColumnError(*parts, column=error.column, is_feature=error.is_feature) from None
    except ArgumentError as error:
        raise ArgumentError(f"{name}: ", *error.parts) from None
    except (ValueError, arrow_error, *_DAMAGE) as error:
        problem = re.sub(f"^{re.escape(name)} ", "it ", str(error))
        if isinstance(error, UnicodeError) or (isinstance(error, arrow_error) and "UTF8" in problem):
            reason = error.reason if isinstance(error, UnicodeDecodeError) else "invalid bytes"
            raise ArgumentError(
                f"{name}: it is neither text in {notation.encoding or 'UTF-8'} ({reason}) nor Parquet, NPZ "
                "or FCS. Save it as CSV in UTF-8, or name its encoding, such as ",
                Argument("encoding", "latin-1"),
                ".",
            ) from None
        if isinstance(error, (arrow_error, *_DAMAGE)):
            problem = f"it is damaged, or not a table ({error})."
        raise ValueError(f"{name}: {problem}") from None


def check_names(names: Sequence[str], header: bool) -> dict[str, int]:
    """Check the column names and return the position of each."""
    if not names:
        raise ValueError("the file is empty.")
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name and name in positions:
            raise ColumnError(f"two columns are called {name!r}. Rename one of them.", column=name)
        positions.setdefault(name, position)
    if header and all(is_number(name) for name in names):
        raise ArgumentError(
            f"its first line has numbers instead of names: {listed(names)}. Add a line of names, or use ",
            Argument("header", False),
            ".",
        )
    return positions


def check_named(names: Sequence[str], positions: Mapping[str, int]) -> None:
    """Refuse a feature without a name."""
    if "" in names:
        raise ColumnError(
            f"column {positions[''] + 1} has no name. Such a column is often a row index, not a feature.",
            column="",
            is_feature=True,
        )


# ---------------------------------------------------------------- tables in blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class TableReader(Reader):
    """The features of a table: a Parquet file, a text file that was read, or a frame in memory."""

    table: Table
    # The columns of features; None for all.
    columns: list[str] | None = None
    # What the columns of features hold, if that is known, as from a model; and words for missing values.
    given: dict[str, Kind] | None = None
    missing: Sequence[str] = ()
    # Features to take among those of the columns; None for all.
    taken: list[int] | None = None
    # None for single precision if no feature has more.
    precision: np.dtype[Any] | None = None
    # Unknown categories by column, with the number of their rows.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    is_table = True

    @cached_property
    def column_names(self) -> list[str]:
        """Names of the columns that features are made of."""
        if self.given is not None:
            return list(self.given)
        names = list(self.table.types) if self.columns is None else self.columns
        if not names:
            raise ValueError(f"{self.name} has no columns of features.")
        check_named(names, {name: i for i, name in enumerate(self.table.types)})
        return names

    @property
    def notation(self) -> Notation:
        """How values are written."""
        own = self.table.notation or Notation()
        return replace(own, missing=tuple(self.missing)) if self.missing else own

    @cached_property
    def found(self) -> dict[str, Kind]:
        """What the columns of features hold by themselves, also those of one category."""
        with naming(self.name, self.notation):
            types = {name: self.table.types[name] for name in self.column_names}
            batches = partial(self.table.batches, self.block_rows)
            return find_kinds(types, batches, self.notation, self.table.place)

    def _holds_text(self, name: str) -> bool | None:
        """Return whether a column of features holds categories, None if it has no value."""
        if self.found[name] is not None:
            return True
        columns = (batch.column(name) for batch in self.table.batches(self.block_rows, [name]))
        return False if any(column.null_count < len(column) for column in columns) else None

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """What the columns of features hold."""
        if self.given is not None:
            return self.given
        kinds = without_constants(self.found)[0]
        check_unambiguous(kinds)
        return kinds

    @property
    def preparation(self) -> Preparation | None:
        kinds = self.kinds
        missing = list(self.notation.missing)
        if not missing and all(kind is None for kind in kinds.values()):
            return None
        return {"transform": "none", "columns": kinds, "missing": missing}

    @property
    def numeric(self) -> list[bool] | None:
        own = are_numbers(self.kinds)
        if all(own):
            return None
        return own if self.taken is None else [own[feature] for feature in self.taken]

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        names = feature_names(self.kinds)
        return names if self.taken is None else [names[feature] for feature in self.taken]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""
        if self.precision is not None:
            return self.precision
        single = all(
            kind is None and str(self.table.types[name]) in ("float", "halffloat")
            for name, kind in self.kinds.items()
        )
        return np.dtype(np.float32 if single else np.float64)

    def take(self, columns: Sequence[int]) -> Self:
        own = range(self.n_features) if self.taken is None else self.taken
        return replace(
            self, taken=[own[column] for column in columns], given=self.kinds, precision=self.dtype
        )

    def select(self, names: Sequence[str]) -> Self:
        self._check_present(names)
        return replace(self, columns=list(names), given=None, taken=None, precision=None)

    def without(self, names: set[str | None]) -> Self:
        if self.columns is not None or self.given is not None or names.isdisjoint(self.table.types):
            return self
        return replace(self, columns=[name for name in self.table.types if name not in names])

    def encoded(self, columns: Mapping[str, Kind], missing: Sequence[str] = ()) -> Self:
        self._check_present(list(columns))
        return replace(self, given=dict(columns), missing=missing, taken=None, precision=None, unknown={})

    def remarks(self) -> list[ArgumentWarning]:
        return Encoder(self.kinds, self.notation, self.table.place, self.unknown).notes(self.kinds)

    def type_of(self, column: str) -> Any:
        """Return the Arrow type of a column."""
        self._check_present([column])
        return self.table.types[column]

    def label_words(self, column: str) -> frozenset[str] | None:
        """Return the distinct labels of a column of a text file, as text; None where they have a type."""
        if not self._is_written(column):
            return None
        columns = (batch.column(column) for batch in self.table.batches(self.block_rows, [column]))
        distinct = (texts_of(each.unique(), self.notation.words).to_pylist() for each in columns)
        return frozenset(word for each in distinct for word in each if word is not None)

    def _is_written(self, column: str) -> bool:
        """Return whether a column has text of a text file, which may be numbers."""
        return self.table.notation is not None and kind_of(self.table.types[column]) == "text"

    def _check_present(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.table.types]
        if missing:
            in_folders = any(part.startswith(f"{missing[0]}=") for part in Path(self.name).parts)
            hint = " Values in folder names (Hive partitioning) are not read: write them into the files."
            raise ValueError(
                f"{self.name} has no column {listed([repr(name) for name in missing], 5)}; "
                f"there are {listed(list(self.table.types), 20)}.{hint if in_folders else ''}"
            )

    def read(self, n_rows: int, label: str | None = None, weight: str | None = None) -> Iterator[Block]:
        kinds, taken = self.kinds, self.taken
        if taken is not None:
            owners = [name for name, kind in kinds.items() for _ in feature_names({name: kind})]
            kinds = {name: kind for name, kind in kinds.items() if name in {owners[each] for each in taken}}
            kept = [feature for feature, owner in enumerate(owners) if owner in kinds]
            taken = [kept.index(feature) for feature in taken]
        encoder = Encoder(kinds, self.notation, self.table.place, self.unknown)
        columns = list(dict.fromkeys(name for name in (*kinds, label, weight) if name))
        for batch in self.table.batches(n_rows, columns):
            with naming(self.name, self.notation):
                X = encoder.features({name: batch.column(name) for name in kinds}, batch.num_rows, self.dtype)
            y, names = (None, None) if label is None else self._labels(batch.column(label), label)
            weights = None
            if weight is not None:
                weights = np.asarray(numbers_of(batch.column(weight)), dtype=np.float64)
            yield Block(X if taken is None else X[:, taken], y, weights, names=names)

    def _labels(self, column: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a column's labels (n,) and None; of text or with nulls, indices into names (C,), and these.

        Whole numbers are integers; labels of a text file are still text.
        """
        import pyarrow as pa

        if self._is_written(name):
            column = texts_of(column, self.notation.words)
        if not pa.types.is_dictionary(column.type):
            if kind_of(column.type) != "text" and not column.null_count:
                return as_integers(column.to_numpy(zero_copy_only=False)), None
            column = column.dictionary_encode()
        known = column.dictionary.to_pylist()
        if not column.null_count:
            names = np.array(known, dtype=None if known else "<U1")
            return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), names
        indices = column.indices.cast(pa.int64()).fill_null(len(known))
        return indices.to_numpy(zero_copy_only=False), np.array([*known, None], dtype=object)

    def differences(self, other: Any) -> Iterator[tuple[str, ...]]:
        yield from super().differences(other)
        if not isinstance(other, TableReader) or self.given is not None:
            return
        for name in self.column_names:
            if (self.found[name] is None) != (other.found[name] is None):
                holds = [each._holds_text(name) for each in (self, other)]
                if None not in holds:
                    words = ["text" if text else "numbers" for text in holds]
                    yield (
                        f"column {name!r} holds {words[0]} in {self.name} and {words[1]} in {other.name}.",
                    )

    @classmethod
    def with_common_features(cls, readers: list[Any]) -> list[Any]:
        """Return tables of the same columns with the same features, those of the categories of all."""
        if len(readers) == 1 or any(reader.given is not None for reader in readers):
            return readers
        union: dict[str, Kind] = {}
        for name in readers[0].column_names:
            own = [kind for reader in readers if (kind := reader.found[name]) is not None]
            union[name] = sorted({*chain.from_iterable(own)}) if own else None
        if not any(union.values()):
            return readers
        kinds = without_constants(union)[0]
        check_unambiguous(kinds)
        return [replace(reader, given=kinds) for reader in readers]


def open_columns(table: Table) -> TableReader:
    """Return the reader of a table."""
    return TableReader(
        name=table.name,
        n_rows=table.n_rows,
        block_rows=rows_in_block(8 * max(1, len(table.types))),
        stamps=table.stamps,
        origin=table.origin,
        table=table,
    )


def open_text(path: Path, label: str | None, room: int, notation: Notation) -> tuple[TableReader, int]:
    """Open a text or NPZ file, which is read once; return its bytes in memory, too, at most `room`."""
    with naming(str(path), notation):
        opened = open_table(path, notation)
        positions = check_names(opened.names, notation.header)
        if len(positions) < len(opened.names):
            raise ValueError("several columns have no name. Name them.")
        table = opened.columns(list(positions), [] if label is None else [label], room)
        if not table.n_rows:
            raise ValueError("it has column names but no rows.")
    return open_columns(table), table.n_bytes


# ---------------------------------------------------------------- tables in memory


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
    columns : dict of str to None or list of str
        What each column holds that features were made of: None for numbers, or its categories.
    notes : tuple of ArgumentWarning
        Notes on columns that were left out or encoded, and on values that became missing.
    ignored : tuple of str
        Columns of the table that are none of the given `features`.
    preparation : dict or None
        How features were made, see `read_rows`; None for numbers that are as they were given.
    """

    X: FloatArray
    feature_names: tuple[str, ...]
    labels: list[Any] | None = None
    weights: FloatArray | None = None
    kept: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, Kind] = field(default_factory=dict)
    notes: tuple[ArgumentWarning, ...] = ()
    ignored: tuple[str, ...] = ()
    preparation: Preparation | None = None


def read_rows(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    features: Sequence[str] | Mapping[str, Kind] | None = None,
    target: str | int | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
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
    rows and 0 in others; of two categories only the second one is. ``true`` and ``false`` are 1 and 0. Dates
    are refused.

    Parameters
    ----------
    source : path-like or binary stream
        The table.
    features : list of str, or dict, default=None
        Columns to use, in this order; None uses all that are not named below. Or `columns` of other rows:
        columns are read as those were, one that the table lacks is missing in all rows, and so are values of
        categories that were not there.
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
        `preparation_` of a model, whose columns, words for missing values and scale are used; or settings
        ``transform`` and ``compensate`` as for `open_rows`, with scales by name. Then Time is no feature of
        FCS files unless it is named. None leaves all values as they are.
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
    kept = preparation or {}
    features = features if features is not None else kept.get("columns")
    notation = Notation(tuple(missing or kept.get("missing", ())), decimal, header, sep, encoding)
    copy = _copy_of(source)
    path = Path(copy or source)  # type: ignore[arg-type]
    name = str(source) if isinstance(source, str | os.PathLike) else "standard input"
    with naming(name, notation):
        is_fcs = format_of(path) == "fcs"
        table: TextFile | Table
        prepared: Preparation | None
        if is_fcs:
            table, prepared = _fcs(path, preparation, features or ())
        else:
            table, prepared = open_table(path, notation), resolved(preparation, None)
        positions = check_names(table.names, header)
        if isinstance(target, int):
            if not -len(table.names) <= target < len(table.names):
                raise ValueError(f"there is no column {target}; there are {len(table.names)}.")
            target = table.names[target]
        if isinstance(features, Mapping) and weight not in positions:
            weight = None  # the rows of a model need none
        aside = [each for each in (target, weight, *keep) if each is not None]
        notes: list[ArgumentWarning] = []
        if features is None:
            for each in drop:
                if each in (target, weight, *categorical):
                    raise ColumnError(f"column {each!r} cannot be both used and left out.", column=each)
            timeless = is_fcs and preparation is not None
            names = _all_features(table, positions, {*aside, *drop}, categorical, notes, timeless=timeless)
        else:
            present = [each for each in features if each in positions]
            # Columns of a model may be missing, but not all of them.
            names = present if present and isinstance(features, Mapping) else list(features)
        _check_present(positions, [*names, *aside, *categorical, *(drop if features is None else ())])
        if not names:
            raise ValueError(f"no column is left as a feature; the table has {listed(table.names)}.")
        kinds = dict(features) if isinstance(features, Mapping) else None
        coded = {*categorical, *(each for each, kind in (kinds or {}).items() if kind is not None)}
        as_text = ({*coded, *aside} - {weight}) & positions.keys()
        needed = list(dict.fromkeys([*names, *aside]))
        padded = table.padded
        # All of it is needed in memory.
        table = table.columns(needed, as_text, 1 << 62, progress)
        if progress is not None:
            progress(1.0)
        found = table.whole(needed)
        if kinds is None:
            kinds, more = _kinds_of(found, names, notation, table.place, coded, padded)
            notes += more
        encoder = Encoder(kinds, notation, table.place, {})
        n_rows = len(found[needed[0]])
        X = np.ascontiguousarray(encoder.features({each: found[each] for each in names}, n_rows))
        notes += encoder.notes(names)
        if prepared is not None and (scale := transformer_of(prepared["transform"])) is not None:
            numeric = are_numbers(kinds)
            X[:, numeric] = scale.transform(X[:, numeric])
        for row, feature in np.argwhere(np.isinf(X))[:1]:
            column = feature_names(kinds)[feature]
            raise ColumnError(
                f"column {column!r} is infinite on {table.place(int(row))}; leave unknown values empty.",
                column=column,
                is_feature=True,
            )
        if missing or any(kind is not None for kind in kinds.values()):
            own = {"columns": kinds, "missing": list(notation.missing)}
            prepared = {"transform": "none", **(prepared or {}), **own}
        labels = None
        if target is not None:
            labels = _labels(found[target], target, notation, notes, table.notation is not None)
        return TableRows(
            X,
            tuple(feature_names(kinds)),
            labels,
            None if weight is None else _weights(found[weight], weight, notation, table.place),
            {each: _as_it_is(found[each], each) for each in keep},
            kinds,
            (*map(ArgumentWarning, table.notes), *notes),
            tuple(each for each in positions if features is not None and each not in {*names, *aside, *drop}),
            prepared,
        )


def _all_features(
    table: TextFile | Table,
    positions: Mapping[str, int],
    aside: Collection[str],
    categorical: Sequence[str],
    notes: list[ArgumentWarning],
    *,
    timeless: bool,
) -> list[str]:
    """Return the columns that are features unless others are named, without those `aside`; add notes.

    `timeless` is whether the channel Time of an FCS file is none.
    """
    names = [name for name in table.names if name not in aside]
    if timeless:
        chosen = [name for name in features_of(table.names) if name in names]
        if len(chosen) < len(names) and not {*names} - {*chosen} & {*categorical}:
            names = chosen
            notes.append(ArgumentWarning("the channel Time is left out"))
    if positions.get("") == len(table.names) - 1 and _is_empty(table, ""):
        notes.append(ArgumentWarning("the last column has neither a name nor values and is left out"))
        names.remove("")
    check_named(names, positions)
    return names


def _copy_of(source: str | os.PathLike[str] | BinaryIO) -> Spool | None:
    """Return a copy of a stream or a pipe, which can be read only once; None for files."""
    if isinstance(source, str | os.PathLike):
        if os.path.isfile(source) or not os.path.exists(source):
            return None
        with open(source, "rb") as opened:
            return _copy_of(opened)
    spool = Spool("")
    with spool.filling(), open(spool.path, "wb") as file:
        while piece := source.read(_PIECE_BYTES):
            file.write(piece)
    return spool


def _fcs(path: Path, preparation: Preparation | None, features: Collection[str]) -> tuple[Table, Preparation]:
    """Open an FCS file; its channels go by their names, or by their markers where features do."""
    rows = open_events(path)
    own = resolved(preparation, rows.file.spillover is not None)
    assert own is not None
    channels = rows.file.channels
    by_marker = {*features} - {channel.name for channel in channels}
    names = [each.marker if each.marker in by_marker else each.name for each in channels]
    return as_table(rows.select([each.name for each in channels]).compensated(own["compensate"]), names), own


def _kinds_of(
    found: Mapping[str, Any],
    names: Sequence[str],
    notation: Notation,
    place: Callable[[int], str],
    coded: Collection[str],
    padded: Mapping[str, str],
) -> tuple[dict[str, Kind], list[ArgumentWarning]]:
    """Return what columns hold, and notes on it."""
    import pyarrow as pa

    whole = pa.RecordBatch.from_arrays([found[name] for name in names], list(names))
    types = {name: found[name].type for name in names}
    kinds, notes = without_constants(
        find_kinds(types, lambda own: iter([whole.select(own)]), notation, place, coded)
    )
    check_unambiguous(kinds)
    notes += [
        ArgumentWarning(
            f"column {name!r} has numbers with leading zeros, such as {padded[name]}. If they are "
            "identifiers, leave the column out with ",
            in_list("drop", name),
            "; if they are categories, use ",
            in_list("categorical", name),
        )
        for name, kind in kinds.items()
        if kind is None and name in padded
    ]
    return kinds, notes


def _is_empty(table: TextFile | Table, name: str) -> bool:
    """Return whether a column has no value in any row."""
    column = table.columns([name], [name], 1 << 62).whole([name])[name]
    return kind_of(column.type) == "text" and texts_of(column, [""]).null_count == len(column)


def _check_present(positions: Mapping[str, int], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in positions]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        present = f"there are {listed(list(positions))}."
        if len(positions) == 1:
            only = next(iter(positions))
            raise ColumnError(
                f"there is no column {missing[0]!r}{more}; there is only {only!r}. Columns must be separated "
                "by commas, semicolons, tabs or |, or by another character that you name by ",
                Argument("sep", wording="sep=..."),
                ".",
                column=missing[0],
            )
        raise ColumnError(f"there is no column {missing[0]!r}{more}; {present}", column=missing[0])


def _labels(
    column: Any, name: str, notation: Notation, notes: list[ArgumentWarning], is_written: bool
) -> list[Any]:
    """Return a column of labels, None where one is missing; add notes on words for missing labels.

    Labels of a text file are numbers or booleans if all of them are.
    """
    import pyarrow.compute as pc

    if kind_of(column.type) != "text":
        values = _as_it_is(column, name)
        return [None if value in notation.numbers else value for value in values]
    text = texts_of(column, notation.words)
    lost = pc.utf8_trim_whitespace(column.cast(text.type).filter(pc.is_null(text))).drop_null()
    for each in pc.value_counts(lost).to_pylist():
        if each["values"] not in ("", *notation.missing):
            notes.append(
                ArgumentWarning(
                    f"{each['values']!r} stands for no label in {each['counts']} rows of {name!r}. If it is "
                    "a class, use ",
                    in_list("missing", ""),
                    ": then only empty cells are missing values",
                )
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
        raise ColumnError(f"column {name!r} is of type {column.type}; weights must be numbers.", column=name)
    weights = numbers_in(column, notation)[0]
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(wrong):
        where = place(int(wrong[0]))
        raise ColumnError(
            f"column {name!r}: the weight on {where} is negative, missing or not a number.", column=name
        )
    return weights


def _as_it_is(column: Any, name: str) -> list[Any]:
    """Return an Arrow column as a list of plain values, None where one is missing."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise ColumnError(f"column {name!r} is of type {column.type}, neither numbers nor text.", column=name)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values
