"""Tables: choose columns for features, labels and weights, and read their rows in blocks."""

from __future__ import annotations

import csv
import gzip
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import ArgumentError, ArgumentWarning
from .._words import listed, nearest, shortened
from ..engine.records import FloatArray
from .arrow import kind_of, numbers_of, pyarrow
from .blocks import LabelledBlock
from .encoding import (
    UNKNOWN_COLUMN,
    Contents,
    Encoder,
    Kind,
    are_numbers,
    common_kinds,
    feature_names,
    features_by_column,
    inspect,
    numbers_in,
    texts_of,
)
from .fcs import MAGIC
from .labels import as_integers
from .marks import doubtful_marks
from .notation import Notation, is_number, of_text
from .problems import ColumnError, refuse_columns
from .read import NPY_DAMAGE, Reader, open_array, rows_in_block, stamp, values_of
from .recipe import Preparation, preparation_of_table
from .text import TextFile

SUFFIXES = {
    "fcs": (".fcs",),
    "parquet": (".parquet", ".pq"),
    "npy": (".npy",),
    "text": (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
}
"""File name suffixes by format."""
# First bytes of Excel workbooks of before 2007, and of archives such as those since.
_OLD_EXCEL, _ZIP = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04"
# Errors that readers raise for damaged files, besides ValueError.
_DAMAGE = (*NPY_DAMAGE, gzip.BadGzipFile, zlib.error, csv.Error, NotImplementedError)
# Prefix of the columns in which pandas stores its index.
_PANDAS_INDEX = "__index_level_"
# Buffer for reading a Parquet column. Pages that do not fit into it are read directly; a buffer as large as a
# page would copy most of it once more.
_BUFFER_BYTES = 1 << 15


def format_of(path: Path) -> str:
    """The format of a file: 'fcs', 'parquet', 'npy' or 'text'.

    The first bytes decide; if they are damaged, the name does.
    """
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder: give one table. A folder of samples, one file each, is for compose."
        )
    with open(path, "rb") as file:
        start = file.read(10)
    if start.startswith(MAGIC) and start.endswith(b"    "):
        return "fcs"
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(np.lib.format.MAGIC_PREFIX):
        return "npy"
    if start.startswith(_OLD_EXCEL) or (start.startswith(_ZIP) and _is_workbook(path)):
        raise ValueError(
            f"{path} is a spreadsheet (Excel or alike). Save its sheet as CSV in UTF-8, or read it by "
            "pandas.read_excel and pass the data frame."
        )
    name = path.name.lower()
    return next((format for format, suffixes in SUFFIXES.items() if name.endswith(suffixes)), "text")


def _is_workbook(path: Path) -> bool:
    """Whether an archive holds a workbook of Excel or OpenDocument."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return False
    return any(name.startswith("xl/") or name == "content.xml" for name in names)


@contextmanager
def naming(name: str, notation: Notation) -> Iterator[None]:
    """Prefix errors of the body with the name of the table, and explain those of damaged files."""
    arrow_error = pyarrow().ArrowException
    try:
        yield
    except ColumnError as error:
        raise error.of_table(name) from None
    except ArgumentError as error:
        raise ArgumentError(f"{name}: ", *error.pieces) from None
    except (ValueError, arrow_error, *_DAMAGE) as error:
        problem = re.sub(f"^{re.escape(name)} ", "it ", str(error))
        if isinstance(error, UnicodeError) or (isinstance(error, arrow_error) and "UTF8" in problem):
            reason = error.reason if isinstance(error, UnicodeDecodeError) else "invalid bytes"
            raise ArgumentError(
                f"{name}: it is neither text in {notation.encoding or 'UTF-8'} ({reason}) nor Parquet or "
                "FCS. Save it as CSV in UTF-8, or name its encoding, such as ",
                of_text("encoding", "latin-1"),
                ".",
            ) from None
        if isinstance(error, (arrow_error, *_DAMAGE)):
            problem = f"it is damaged, or not a table ({error})."
        raise ValueError(f"{name}: {problem}") from None


# ---------------------------------------------------------------- tables in blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class TableReader(Reader):
    """The features of a table: a Parquet file, a text file that was read, or a frame in memory."""

    # Arrow type of each column, in order.
    types: dict[str, Any]
    # Takes n and the names of some columns; yields record batches of at most n rows.
    batches: Callable[[int, list[str]], Iterator[Any]]
    # Takes a row number, counted from 0; returns where that row is, such as "line 12".
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    notation: Notation = field(default_factory=Notation)
    # The columns that features encode; None for all.
    columns: list[str] | None = None
    # Kinds of these columns, if they are known, for example from a model; None infers them.
    given_kinds: dict[str, Kind] | None = None
    # What there was to say when these kinds were inferred together with those of other tables.
    notes: list[ArgumentWarning] = field(default_factory=list)
    # Indices of the features to keep; None for all.
    taken: list[int] | None = None
    # Unknown categories by column, and the number of rows with each.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    is_table = True

    # ------------------------------------------------------------ columns and their kinds

    @cached_property
    def column_names(self) -> list[str]:
        """Names of the columns that features encode."""
        if self.given_kinds is not None:
            return list(self.given_kinds)
        names = list(self.types) if self.columns is None else self.columns
        if not names:
            raise ValueError(f"{self.name} has no columns of features.")
        return names

    @cached_property
    def contents(self) -> Contents:
        """What the columns hold; columns that cannot be features are refused, or left out."""
        names = [name for name in self.column_names if name]
        with naming(self.name, self.notation):
            types = {name: self.types[name] for name in names}
            contents = inspect(types, partial(self.batches, self.block_rows), self.notation, self.place)
            numbers = [name for name, value in contents.values.items() if value is None]
            contents.errors.extend(doubtful_marks(self, numbers))
            if "" in self.column_names:
                number = list(self.types).index("") + 1
                what = f"column {number} has no name. Such a column is often a row index, not a feature."
                contents.errors.insert(0, ColumnError(what, column="", is_feature=True))
            return contents.settled(self.notation)

    @cached_property
    def _inferred(self) -> tuple[dict[str, Kind], list[ArgumentWarning]]:
        with naming(self.name, self.notation):
            return common_kinds([self.contents])

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns that features encode."""
        return self._inferred[0] if self.given_kinds is None else self.given_kinds

    def remarks(self) -> list[ArgumentWarning]:
        notes = self.notes if self.given_kinds is not None else self._inferred[1]
        return [
            *notes,
            *(
                ArgumentWarning(
                    f"column {name!r} has categories that the model does not know, in {counts.total()} rows: "
                    f"{', '.join(map(shortened, list(counts)[:5]))}; they count as missing values"
                )
                for name, counts in self.unknown.items()
            ),
        ]

    @property
    def preparation(self) -> Preparation | None:
        return preparation_of_table(self.kinds, self.notation)

    @property
    def numeric(self) -> list[bool]:
        numeric = are_numbers(self.kinds)
        return numeric if self.taken is None else [numeric[feature] for feature in self.taken]

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        names = feature_names(self.kinds)
        return names if self.taken is None else [names[feature] for feature in self.taken]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""
        single = all(
            kind is None and str(self.types[name]) in ("float", "halffloat")
            for name, kind in self.kinds.items()
        )
        return np.dtype(np.float32 if single else np.float64)

    # ------------------------------------------------------------ the same table, read otherwise

    def with_features(self, columns: Sequence[int]) -> Self:
        features = range(self.n_features) if self.taken is None else self.taken
        kinds, notes = self.kinds, self.remarks() if self.given_kinds is None else self.notes
        return replace(self, taken=[features[column] for column in columns], given_kinds=kinds, notes=notes)

    def select(self, names: Sequence[str]) -> Self:
        self.check_present(names)
        return replace(self, columns=list(names), given_kinds=None, taken=None)

    def without(self, names: set[str | None]) -> Self:
        is_chosen = self.columns is not None or self.given_kinds is not None
        if is_chosen or names.isdisjoint(self.types):
            return self
        return replace(self, columns=[name for name in self.types if name not in names])

    def read_again(self, **changes: Any) -> Self:
        """Read a text file again by another notation."""
        assert self.origin is not None
        reader: Any = open_text(self.origin, replace(self.notation, **changes))
        return replace(reader, stamps=self.stamps)  # of the file that was opened

    def encoded(self, columns: Mapping[str, Kind], writing: Mapping[str, Any] | None = None) -> Self:
        writing, notation, reader = dict(writing or {}), self.notation, self
        missing = (*dict.fromkeys((*notation.missing, *writing.pop("missing", ()))),)
        if notation.is_text and self.origin:
            # Marks that the user gave stay as they are.
            changes = {name: mark for name, mark in writing.items() if getattr(notation, name) is None}
            categories = [name for name, kind in columns.items() if isinstance(kind, list)]
            if any(kind_of(self.types.get(name)) != "text" for name in categories if name in self.types):
                # Categories such as 007 were parsed as numbers: read them again as text.
                changes["as_text"] = (*notation.as_text, *categories)
            reader = self.read_again(**changes) if changes else self
        reader.check_present(list(columns), UNKNOWN_COLUMN)
        with naming(self.name, notation):
            refuse_columns(doubtful_marks(reader, [name for name, kind in columns.items() if kind is None]))
        notation = replace(reader.notation, missing=missing)
        return replace(reader, notation=notation, given_kinds=dict(columns), notes=[], taken=None, unknown={})

    def check_alike(self, other: Any) -> None:
        super().check_alike(other)
        if not isinstance(other, TableReader) or self.given_kinds is not None:
            return
        for name in self.contents.values.keys() & other.contents.values.keys():
            kinds = self._kind_in_words(name), other._kind_in_words(name)
            if None not in kinds and kinds[0] != kinds[1]:
                both = f"column {name!r} holds {kinds[0]} in {self.name} and {kinds[1]} in {other.name}"
                raise ArgumentError(f"Files disagree: {both}.")

    def _kind_in_words(self, name: str) -> str | None:
        """What a column holds in words; None if it has no value."""
        values = self.contents.values[name]
        if isinstance(values, Counter):
            return "text" if values else None
        columns = (batch.column(name) for batch in self.batches(self.block_rows, [name]))
        if all(column.null_count == len(column) for column in columns):
            return None
        return "numbers" if values is None else "dates"

    @classmethod
    def with_common_features(cls, readers: list[Any]) -> list[Any]:
        """Readers of the same columns that encode the categories of all tables."""
        if len(readers) == 1 or any(reader.given_kinds is not None for reader in readers):
            return readers
        kinds, notes = common_kinds([reader.contents for reader in readers])
        first, *others = (replace(reader, given_kinds=kinds) for reader in readers)
        return [replace(first, notes=notes), *others]

    # ------------------------------------------------------------ columns of labels and weights

    @property
    def all_names(self) -> list[str]:
        """Names of all columns of the table."""
        return list(self.types)

    def column(self, name: str) -> list[Any]:
        """A column (n,) as Python values, None for missing ones."""
        import pyarrow as pa

        batches = list(self.batches(1 << 16, [name]))
        if not batches:
            return []
        column = pa.Table.from_batches(batches).unify_dictionaries().column(name).combine_chunks()
        if pa.types.is_nested(column.type):
            problem = f"column {name!r} is of type {column.type}, neither numbers nor text."
            raise ColumnError(problem, column=name)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        values: list[Any] = column.to_pylist()
        return values

    def label_texts(self, column: str) -> frozenset[str] | None:
        """The distinct labels in a column of a text file, as text; None if the column has a type."""
        if not self.is_untyped(column):
            return None
        columns = (batch.column(column) for batch in self.batches(self.block_rows, [column]))
        distinct = (texts_of(part.unique(), self.notation.words).to_pylist() for part in columns)
        return frozenset(text for part in distinct for text in part if text is not None)

    def is_untyped(self, column: str) -> bool:
        """Whether a column of a text file is read as text, whatever its values are."""
        return self.notation.is_text and kind_of(self.types[column]) == "text"

    def check_present(self, names: Sequence[str], advice: str = "") -> None:
        """Raise ValueError, ending in the advice, if the table lacks a column."""
        present = list(self.types)
        missing = [name for name in names if name not in present]
        if not missing:
            return
        named = listed([repr(name) for name in missing], 5)
        there = f"there is only {present[0]!r}" if len(present) == 1 else f"there are {listed(present, 20)}"
        close = nearest(missing[0], present) if len(present) > 1 else ""
        parts = [f"{self.name} has no column {named}; {there}.{close}{advice}"]
        if len(present) == 1 and self.notation.is_text:
            parts += [
                " Columns must be separated by commas, semicolons, tabs or |, or by another character that "
                "you name, such as ",
                of_text("sep", " "),
                ".",
            ]
        if any(part.startswith(f"{missing[0]}=") for part in Path(self.name).parts):
            hint = " Values in folder names (Hive partitioning) are not read: write them into the files."
            parts.append(hint)
        raise ArgumentError(*parts)

    # ------------------------------------------------------------ blocks

    def read(
        self, n_rows: int, label: str | None = None, weight: str | None = None
    ) -> Iterator[LabelledBlock]:
        kinds, taken = self.kinds, self.taken
        if taken is not None:
            features = dict(zip(kinds, features_by_column(kinds), strict=True))
            kinds = {name: kind for name, kind in kinds.items() if not {*taken}.isdisjoint(features[name])}
            kept = [feature for name in kinds for feature in features[name]]
            taken = [kept.index(feature) for feature in taken]
        columns = list(dict.fromkeys(name for name in (*kinds, label, weight) if name))
        start, weights = 0, None
        if weight is not None:
            with naming(self.name, self.notation):
                refuse_columns(doubtful_marks(self, [weight]))
        for batch in self.batches(n_rows, columns):
            place = partial(lambda first, row: self.place(first + row), start)
            encoder = Encoder(kinds, self.notation, place, self.unknown)
            with naming(self.name, self.notation):
                X = encoder.features({name: batch.column(name) for name in kinds}, batch.num_rows, self.dtype)
                if weight is not None:
                    weights = _weights(batch.column(weight), weight, place)
            labels, names = (None, None) if label is None else self._labels(batch.column(label), label)
            X = X if taken is None else X[:, taken]
            yield LabelledBlock(X, weights=weights, labels=labels, names=names)
            start += batch.num_rows

    def _labels(self, column: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels (n,) of a column and None; or, for text or with nulls, indices into names (C,).

        Whole numbers become integers; labels of a text file stay text.
        """
        import pyarrow as pa

        if self.is_untyped(name):
            column = texts_of(column, self.notation.words)
        elif self.notation.numbers and kind_of(column.type) == "number":
            values = column.to_pylist()
            column = pa.array([None if value in self.notation.numbers else value for value in values])
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


def _weights(column: Any, name: str, place: Callable[[int], str]) -> FloatArray:
    """The weights (n,) in a column; raise ColumnError if one of them is none."""
    weights = np.asarray(numbers_of(column), dtype=np.float64)
    for row in np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[:1].tolist():
        problem = f"has the weight {weights[row]:g} on {place(row)}; weights are finite and not negative."
        raise ColumnError(f"column {name!r} {problem}", column=name)
    return weights


# ---------------------------------------------------------------- opening tables


def open_parquet(path: Path, notation: Notation) -> TableReader:
    """Open a Parquet file."""
    pyarrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as opened:
            schema, n_rows = opened.schema_arrow, opened.metadata.num_rows
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from error
    more = {"stamps": {path: stamp(path)}, "notation": notation}
    return _reader(str(path), schema, n_rows, partial(_batches_of_file, path), **more)


def open_table(table: Any, name: str, **more: Any) -> TableReader:
    """The reader of an Arrow table, with more of its fields if they are given."""
    return _reader(name, table.schema, table.num_rows, partial(_batches_of_table, table), **more)


def _reader(name: str, schema: Any, n_rows: int, batches: Any, **more: Any) -> TableReader:
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        twice = Counter(schema.names).most_common(1)[0][0]
        raise ValueError(f"{name} has two columns called {twice!r}. Rename one of them.")
    types = {column: type_ for column, type_ in types.items() if not column.startswith(_PANDAS_INDEX)}
    block_rows = rows_in_block(8 * max(1, len(types)))
    return TableReader(name=name, n_rows=n_rows, block_rows=block_rows, types=types, batches=batches, **more)


def _batches_of_file(path: Path, n_rows: int, columns: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    # No prefetching: the columns of a row group may be large.
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as opened:
        yield from opened.iter_batches(n_rows, columns=columns)


def _batches_of_table(table: Any, n_rows: int, columns: list[str]) -> Iterator[Any]:
    chosen = table.select(columns)
    for start in range(0, table.num_rows, n_rows):
        yield from chosen.slice(start, n_rows).combine_chunks().to_batches()


def open_text(path: Path, notation: Notation) -> TableReader:
    """Read a text file."""
    notation = replace(notation, is_text=True)
    # A pipe or a terminal can be read only once.
    stamps = {path: stamp(path)} if path.is_file() else {}
    with naming(str(path), notation):
        file = TextFile(path, notation)
        if not file.names:
            raise ValueError("the file is empty.")
        if notation.header and all(map(is_number, file.names)):
            problem = f"its first line has numbers instead of names: {listed(file.names)}. "
            raise ArgumentError(f"{problem}Add a line of names, or use ", of_text("header", False), ".")
        more = {"place": file.place, "notation": notation, "origin": path, "stamps": stamps}
        table = file.read()
        reader = open_table(_without_separators(table, notation), str(path), **more)
    if not reader.n_rows:
        raise ValueError(f"{path}: it has column names but no rows.")
    return reader


def _without_separators(table: Any, notation: Notation) -> Any:
    """Replace columns of text by numbers if all are numbers, and some have separators of thousands."""
    import pyarrow as pa

    for index, name in enumerate(table.column_names if notation.thousands else ()):
        column = table.column(index)
        if kind_of(column.type) != "text" or name in (*notation.as_text, *notation.categorical):
            continue
        if any(notation.is_grouped(text.strip()) for text in column.unique().to_pylist() if text):
            values, wrong = numbers_in(column.combine_chunks(), notation)
            if wrong is None:
                table = table.set_column(index, name, pa.array(values))
    return table


def named_columns(path: Path) -> Any:
    """Read a .npy file as an Arrow table with columns ``column_1`` and so on."""
    values = values_of(path, str(path))
    n_features = open_array(values).n_features  # refuses anything but a matrix of numbers
    rows = values.read(0, values.shape[0])
    return pyarrow().table({f"column_{i + 1}": rows[:, i] for i in range(n_features)})
