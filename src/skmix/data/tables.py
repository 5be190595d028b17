"""Readers of tables: Parquet files, text files that were read, and data frames as Arrow tables."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import ArgumentError
from .._words import listed, nearest
from ..engine.records import FloatArray, IntArray
from .arrow import kind_of, numbers_of, pyarrow, texts_of
from .contents import Contents, doubtful_marks, inspect
from .encoding import UNKNOWN_COLUMN, Kind, encode_columns
from .labels import as_integers
from .notation import Notation, of_text
from .problems import ColumnError, refuse_columns
from .read import NPY_DAMAGE, Column, Encoding, Reader, Rows
from .recipe import Preparation, preparation_of_table

# Errors that readers raise for damaged files, besides ValueError.
_DAMAGE = (*NPY_DAMAGE, gzip.BadGzipFile, zlib.error, csv.Error, NotImplementedError)


@contextmanager
def naming(name: str, notation: Notation) -> Iterator[None]:
    """Prefix errors of the body with the name of the table, and explain errors of damaged files."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class TableReader(Reader):
    """Reads the rows of a table, whose columns may also hold labels and weights."""

    # Arrow type of each column, in order.
    types: dict[str, Any]
    # Takes n and the names of some columns; yields record batches of at most n rows.
    batches: Callable[[int, list[str]], Iterator[Any]]
    notation: Notation = field(default_factory=Notation)
    # Reads a text file by another notation; None for other tables.
    again: Callable[[Notation], Any] | None = None

    is_table = True

    @property
    def all_names(self) -> list[str]:
        """Names of all columns."""
        return list(self.types)

    @property
    def features(self) -> Sequence[Column]:
        return self.all_names

    def check(self, columns: Sequence[Any]) -> None:
        self.check_present(columns)

    def check_present(self, names: Sequence[str], advice: str = "") -> None:
        """Raise ValueError, ending in the advice, if the table lacks a column."""
        present = self.all_names
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

    # ------------------------------------------------------------ features

    def contents(self, columns: Sequence[str]) -> Contents:
        """What columns hold; those that cannot be features are refused, or left out."""
        if not columns:
            raise ValueError(f"{self.name} has no columns of features.")
        with naming(self.name, self.notation):
            return inspect(self, columns)

    def dtype(self, kinds: Mapping[Any, Kind]) -> np.dtype[Any]:
        single = all(
            kind is None and str(self.types[name]) in ("float", "halffloat") for name, kind in kinds.items()
        )
        return np.dtype(np.float32 if single else np.float64)

    def preparation(self, kinds: Mapping[Any, Kind]) -> Preparation | None:
        return preparation_of_table(kinds, self.notation)

    def read_again(self, **changes: Any) -> Self:
        """Read a text file again by another notation."""
        assert self.again is not None
        reader: Self = self.again(replace(self.notation, **changes))
        return replace(reader, stamps=self.stamps)  # of the file that was opened

    def encoded(self, columns: Mapping[Any, Kind], writing: Mapping[str, Any]) -> Self:
        reader, notation, marks = self, self.notation, dict(writing)
        missing = (*dict.fromkeys((*notation.missing, *marks.pop("missing", ()))),)
        if self.again is not None:
            # Marks that the user gave stay as they are.
            changes = {name: mark for name, mark in marks.items() if getattr(notation, name) is None}
            categories = [name for name, kind in columns.items() if isinstance(kind, list)]
            if any(kind_of(self.types[name]) != "text" for name in categories if name in self.types):
                # Categories such as 007 were parsed as numbers: read them again as text.
                changes["as_text"] = (*notation.as_text, *categories)
            reader = self.read_again(**changes) if changes else self
        reader.check_present(list(columns), UNKNOWN_COLUMN)
        with naming(self.name, notation):
            refuse_columns(doubtful_marks(reader, [name for name, kind in columns.items() if kind is None]))
        return replace(reader, notation=replace(reader.notation, missing=missing))

    def read(self, n_rows: int, encoding: Encoding) -> Iterator[Rows]:
        kinds, weight, start, weights = encoding.kinds, encoding.weight, 0, None
        if weight is not None:
            with naming(self.name, self.notation):
                refuse_columns(doubtful_marks(self, [weight]))
        columns = list(dict.fromkeys([*kinds, *([] if weight is None else [weight])]))
        for batch in self.batches(n_rows, columns):
            place = partial(self._place_after, start)
            with naming(self.name, self.notation):
                arrays = {name: batch.column(name) for name in kinds}
                X = encode_columns(
                    arrays, batch.num_rows, kinds, self.notation, place, encoding.unknown, encoding.dtype
                )
                if weight is not None:
                    weights = _weights(batch.column(weight), weight, place)
            yield X, weights
            start += batch.num_rows

    def _place_after(self, start: int, row: int) -> str:
        return self.place(start + row)

    # ------------------------------------------------------------ columns of labels and others

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

    def is_untyped(self, column: str) -> bool:
        """Whether a column of a text file is read as text, whatever its values are."""
        return self.notation.is_text and kind_of(self.types[column]) == "text"

    def label_texts(self, column: str) -> frozenset[str] | None:
        """The distinct labels in a column of a text file, as text; None if the column has a type."""
        if not self.is_untyped(column):
            return None
        columns = (batch.column(column) for batch in self.batches(self.block_rows, [column]))
        distinct = (texts_of(part.unique(), self.notation.words).to_pylist() for part in columns)
        return frozenset(text for part in distinct for text in part if text is not None)

    def labels(self, name: str) -> tuple[IntArray, np.ndarray]:
        """The labels in a column as indices (n,) into their names (C,), of which None are missing labels.

        Whole numbers become integers; labels of a text file stay text.
        """
        import pyarrow as pa

        parts = []
        for batch in self.batches(self.block_rows, [name]):
            part = batch.column(name)
            part = texts_of(part, self.notation.words) if self.is_untyped(name) else part
            parts.append(part if pa.types.is_dictionary(part.type) else part.dictionary_encode())
        column = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
        known = column.dictionary.to_pylist()
        if kind_of(column.type) == "number" and self.notation.numbers:
            known = [None if value in self.notation.numbers else value for value in known]
        indices = column.indices.cast(pa.int64()).fill_null(len(known)).to_numpy(zero_copy_only=False)
        if column.null_count or None in known:
            return indices, np.array([*known, None], dtype=object)
        return indices, as_integers(np.array(known, dtype=None if known else "<U1"))


def _weights(column: Any, name: str, place: Callable[[int], str]) -> FloatArray:
    """The weights (n,) in a column; raise ColumnError if one of them is none."""
    weights = np.asarray(numbers_of(column), dtype=np.float64)
    for row in np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[:1].tolist():
        problem = f"has the weight {weights[row]:g} on {place(row)}; weights are finite and not negative."
        raise ColumnError(f"column {name!r} {problem}", column=name)
    return weights
