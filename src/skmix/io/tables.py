"""Tables: choose columns for features, labels and weights, and read their rows in blocks."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import ArgumentError, ArgumentWarning
from .arrow import kind_of, numbers_of, pyarrow, stamp
from .encoding import (
    UNKNOWN_COLUMN,
    ColumnError,
    Encoder,
    FloatArray,
    Kind,
    Notation,
    are_numbers,
    check_unambiguous,
    feature_names,
    features_by_column,
    find_kinds,
    holds_numbers,
    is_number,
    listed,
    nearest,
    numbers_in,
    of_text,
    shortened,
    texts_of,
    without_constants,
)
from .fcs import MAGIC
from .labelled import LabelledBlock
from .labels import as_integers
from .preparation import Preparation
from .readers import NPY_DAMAGE, Reader, open_array, rows_in_block, values_of
from .text import TextFile

# Errors that readers raise for damaged files, besides ValueError.
_DAMAGE = (*NPY_DAMAGE, gzip.BadGzipFile, zlib.error, csv.Error, NotImplementedError)
# Prefix of the columns in which pandas stores its index.
_PANDAS_INDEX = "__index_level_"
# Buffer for reading a Parquet column. Pages that do not fit into it are read directly; a buffer as large as a
# page would copy most of it once more.
_BUFFER_BYTES = 1 << 15


# ---------------------------------------------------------------- files to tables


SUFFIXES = {
    "fcs": (".fcs",),
    "parquet": (".parquet", ".pq"),
    "npy": (".npy",),
    "text": (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
}
"""File name suffixes by format."""


def format_of(path: Path) -> str:
    """Return the format of a file: 'fcs', 'parquet', 'npy' or 'text'.

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
    name = path.name.lower()
    return next((each for each, suffixes in SUFFIXES.items() if name.endswith(suffixes)), "text")


@contextmanager
def naming(name: str, notation: Notation) -> Iterator[None]:
    """Prefix errors of the body with the name of the table, and explain those of damaged files."""
    arrow_error = pyarrow().ArrowException
    try:
        yield
    except ColumnError as error:
        parts = (f"{name}: ", *error.pieces)
        raise ColumnError(*parts, column=error.column, is_feature=error.is_feature) from None
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
    # Indices of the features to keep; None for all.
    taken: list[int] | None = None
    # Unknown categories by column, and the number of rows with each.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    is_table = True

    @cached_property
    def column_names(self) -> list[str]:
        """Names of the columns that features encode."""
        if self.given_kinds is not None:
            return list(self.given_kinds)
        names = list(self.types) if self.columns is None else self.columns
        if not names:
            raise ValueError(f"{self.name} has no columns of features.")
        if "" in names:
            raise ColumnError(
                f"column {list(self.types).index('') + 1} has no name. Such a column is often a row "
                "index, not a feature.",
                column="",
                is_feature=True,
            )
        return names

    @cached_property
    def inferred_kinds(self) -> dict[str, Kind]:
        """Kinds of the columns, inferred from their values, including columns of one category."""
        with naming(self.name, self.notation):
            types = {name: self.types[name] for name in self.column_names}
            batches = partial(self.batches, self.block_rows)
            kinds = find_kinds(types, batches, self.notation, self.place)
            self._check_marks([name for name, kind in kinds.items() if kind is None])
            return kinds

    def _check_marks(self, names: Sequence[str]) -> None:
        """Raise ColumnError if the decimal marks in columns of numbers may separate thousands.

        All of them are followed by three digits, and another column of the file has another decimal mark.
        """
        notation = self.notation
        if not notation.is_text or notation.thousands is not None or self.origin is None:
            return
        doubtful = [name for name in names if self._has_three_decimals(name)]
        other = next((name for name in self.types if self._has_other_mark(name)), None) if doubtful else None
        if other is None:
            return
        reader = open_text(self.origin, replace(notation, as_text=(*notation.as_text, *doubtful)))
        for name in doubtful:
            marked = sorted(text for text in reader.label_texts(name) or () if notation.decimal in text)
            if marked and all(map(notation.swapped.is_grouped, marked)):
                marks = {".": "point", ",": "comma"}
                this, that = marks[notation.decimal], marks[notation.swapped.decimal]
                raise ColumnError(
                    f"column {name!r} has three digits after every {this}, as in {marked[0]!r}, and column "
                    f"{other!r} has a decimal {that}: which is the decimal mark? If the {this} separates "
                    "thousands, use ",
                    of_text("decimal", notation.swapped.decimal),
                    " and ",
                    of_text("thousands", notation.decimal),
                    f"; if the {this} is a decimal mark, use ",
                    of_text("thousands", ""),
                    ".",
                    column=name,
                    is_feature=True,
                )

    def _has_three_decimals(self, name: str) -> bool:
        """Return whether numbers in a column with fractions may be thousands, divided by a thousand."""
        if self._is_untyped(name):
            texts = self.label_texts(name) or ()
            return holds_numbers(texts, self.notation) and any(map(self.notation.swapped.is_grouped, texts))
        if str(self.types[name]) != "double":
            return False
        has_any = False
        for batch in self.batches(self.block_rows, [name]):
            values = numbers_of(batch.column(name))
            values = np.abs(values[np.isfinite(values) & (values % 1.0 != 0.0)])
            thousands = 1000.0 * values
            if np.any((values < 1.0) | (values >= 1000.0) | (np.abs(thousands - np.round(thousands)) > 1e-6)):
                return False
            has_any |= len(values) > 0
        return has_any

    def _has_other_mark(self, name: str) -> bool:
        """Return whether a column has numbers with the other decimal mark, not all of them thousands."""
        texts, other = self.label_texts(name) or (), self.notation.swapped
        as_thousands = replace(self.notation, thousands=other.decimal)
        return holds_numbers(texts, other) and any(
            other.decimal in text and not as_thousands.is_grouped(text) for text in texts
        )

    def _holds_text(self, name: str) -> bool | None:
        """Return whether a column holds categories, None if it has no value."""
        if self.inferred_kinds[name] is not None:
            return True
        columns = (batch.column(name) for batch in self.batches(self.block_rows, [name]))
        return False if any(column.null_count < len(column) for column in columns) else None

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns that features encode."""
        if self.given_kinds is not None:
            return self.given_kinds
        kinds = without_constants(self.inferred_kinds)[0]
        check_unambiguous(kinds)
        return kinds

    @property
    def preparation(self) -> Preparation | None:
        missing = list(self.notation.missing)
        if not missing and not any(self.kinds.values()):
            return None
        return {"transform": "none", "columns": self.kinds, "missing": missing}

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

    def with_features(self, columns: Sequence[int]) -> Self:
        features = range(self.n_features) if self.taken is None else self.taken
        return replace(self, taken=[features[column] for column in columns], given_kinds=self.kinds)

    def select(self, names: Sequence[str]) -> Self:
        self.check_present(names)
        return replace(self, columns=list(names), given_kinds=None, taken=None)

    def without(self, names: set[str | None]) -> Self:
        is_chosen = self.columns is not None or self.given_kinds is not None
        if is_chosen or names.isdisjoint(self.types):
            return self
        return replace(self, columns=[name for name in self.types if name not in names])

    def encoded(self, columns: Mapping[str, Kind], missing: Sequence[str] = ()) -> Self:
        self.check_present(list(columns), UNKNOWN_COLUMN)
        reader: Any = self
        notation = self.notation
        coded = [name for name, kind in columns.items() if kind is not None]
        if notation.is_text and self.origin and any(kind_of(self.types[name]) != "text" for name in coded):
            # Categories such as 007 were parsed as numbers: read them again as text.
            reader = open_text(self.origin, replace(notation, as_text=(*notation.as_text, *coded)))
            reader = replace(reader, stamps=self.stamps)  # of the file that was opened
        with naming(self.name, notation):
            self._check_marks([name for name, kind in columns.items() if kind is None])
        notation = replace(reader.notation, missing=(*dict.fromkeys((*notation.missing, *missing)),))
        return replace(reader, notation=notation, given_kinds=dict(columns), taken=None, unknown={})

    def remarks(self) -> list[ArgumentWarning]:
        return [
            ArgumentWarning(
                f"column {name!r} has categories that the model does not know, in {counts.total()} rows: "
                f"{', '.join(map(shortened, list(counts)[:5]))}; they count as missing values"
            )
            for name, counts in self.unknown.items()
        ]

    @property
    def all_names(self) -> list[str]:
        """Names of all columns of the table."""
        return list(self.types)

    def column(self, name: str) -> list[Any]:
        """Return a column (n,) as Python values, None for missing ones."""
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
        """Return the distinct labels in a column of a text file, as text; None if the column has a type."""
        if not self._is_untyped(column):
            return None
        columns = (batch.column(column) for batch in self.batches(self.block_rows, [column]))
        distinct = (texts_of(each.unique(), self.notation.words).to_pylist() for each in columns)
        return frozenset(text for each in distinct for text in each if text is not None)

    def _is_untyped(self, column: str) -> bool:
        """Return whether a column of a text file is read as text, whatever its values are."""
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
                self._check_marks([weight])
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
        """Return the labels (n,) of a column and None; or, for text or with nulls, indices into names (C,).

        Whole numbers become integers; labels of a text file stay text.
        """
        import pyarrow as pa

        if self._is_untyped(name):
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

    def check_alike(self, other: Any) -> None:
        super().check_alike(other)
        if not isinstance(other, TableReader) or self.given_kinds is not None:
            return
        for name in self.column_names:
            if (self.inferred_kinds[name] is None) != (other.inferred_kinds[name] is None):
                holds = [each._holds_text(name) for each in (self, other)]
                if None not in holds:
                    one, two = ("text" if text else "numbers" for text in holds)
                    both = f"column {name!r} holds {one} in {self.name} and {two} in {other.name}"
                    raise ArgumentError(f"Files disagree: {both}.")

    @classmethod
    def with_common_features(cls, readers: list[Any]) -> list[Any]:
        """Return readers of the same columns that encode the categories of all tables."""
        if len(readers) == 1 or any(reader.given_kinds is not None for reader in readers):
            return readers
        union: dict[str, Kind] = {}
        for name in readers[0].column_names:
            kinds = [kind for reader in readers if (kind := reader.inferred_kinds[name]) is not None]
            union[name] = sorted({*chain.from_iterable(kinds)}) if kinds else None
        if not any(union.values()):
            return readers
        kept = without_constants(union)[0]
        check_unambiguous(kept)
        return [replace(reader, given_kinds=kept) for reader in readers]


def _weights(column: Any, name: str, place: Callable[[int], str]) -> FloatArray:
    """Return the weights (n,) in a column; raise ColumnError if one of them is none."""
    weights = np.asarray(numbers_of(column), dtype=np.float64)
    for row in np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[:1].tolist():
        problem = f"has the weight {weights[row]:g} on {place(row)}; weights are finite and not negative."
        raise ColumnError(f"column {name!r} {problem}", column=name)
    return weights


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
    """Return the reader of an Arrow table, with more of its fields if they are given."""
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
