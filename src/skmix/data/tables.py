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
    texts_of,
)
from .labels import as_integers
from .marks import doubtful_marks
from .notation import Notation, of_text
from .problems import ColumnError, refuse_columns
from .read import NPY_DAMAGE, Reader
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


# ---------------------------------------------------------------- tables in blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class TableReader(Reader):
    """The features of a table: a Parquet file, a text file that was read, or a frame in memory."""

    # Arrow type of each column, in order.
    types: dict[str, Any]
    # Takes n and the names of some columns; yields record batches of at most n rows.
    batches: Callable[[int, list[str]], Iterator[Any]]
    # Reads a text file by another notation.
    again: Callable[[Notation], Any] | None = None
    notation: Notation = field(default_factory=Notation)
    # The columns that features encode; None for all.
    columns: list[str] | None = None
    # Kinds of these columns, if they are known, for example from a model; None infers them.
    fixed_kinds: dict[str, Kind] | None = None
    # Notes on these kinds, if they were inferred from several tables together.
    notes: list[ArgumentWarning] = field(default_factory=list)
    # Indices of the features to keep; None for all.
    chosen: list[int] | None = None
    # Unknown categories by column, and the number of rows with each.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    is_table = True

    # ------------------------------------------------------------ columns and their kinds

    @cached_property
    def column_names(self) -> list[str]:
        """Names of the columns that features encode."""
        if self.fixed_kinds is not None:
            return list(self.fixed_kinds)
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
        return self._inferred[0] if self.fixed_kinds is None else self.fixed_kinds

    def remarks(self) -> list[ArgumentWarning]:
        notes = self.notes if self.fixed_kinds is not None else self._inferred[1]
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
        return numeric if self.chosen is None else [numeric[feature] for feature in self.chosen]

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        names = feature_names(self.kinds)
        return names if self.chosen is None else [names[feature] for feature in self.chosen]

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
        features = range(self.n_features) if self.chosen is None else self.chosen
        kinds, notes = self.kinds, self.remarks() if self.fixed_kinds is None else self.notes
        return replace(self, chosen=[features[column] for column in columns], fixed_kinds=kinds, notes=notes)

    def select(self, names: Sequence[str]) -> Self:
        self.check_present(names)
        return replace(self, columns=list(names), fixed_kinds=None, chosen=None)

    def without(self, names: set[str | None]) -> Self:
        is_chosen = self.columns is not None or self.fixed_kinds is not None
        if is_chosen or names.isdisjoint(self.types):
            return self
        return replace(self, columns=[name for name in self.types if name not in names])

    def read_again(self, **changes: Any) -> Self:
        """Read a text file again by another notation."""
        assert self.again is not None
        reader: Self = self.again(replace(self.notation, **changes))
        return replace(reader, stamps=self.stamps)  # of the file that was opened

    def encoded(self, columns: Mapping[str, Kind], writing: Mapping[str, Any] | None = None) -> Self:
        writing, notation, reader = dict(writing or {}), self.notation, self
        missing = (*dict.fromkeys((*notation.missing, *writing.pop("missing", ()))),)
        if self.again is not None:
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
        return replace(
            reader, notation=notation, fixed_kinds=dict(columns), notes=[], chosen=None, unknown={}
        )

    def check_alike(self, other: Any) -> None:
        super().check_alike(other)
        if not isinstance(other, TableReader) or self.fixed_kinds is not None:
            return
        for name in self.contents.values.keys() & other.contents.values.keys():
            values, others = self.contents.values[name], other.contents.values[name]
            if values == others or (isinstance(values, Counter) and isinstance(others, Counter)):
                continue
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
        if len(readers) == 1 or any(reader.fixed_kinds is not None for reader in readers):
            return readers
        kinds, notes = common_kinds([reader.contents for reader in readers])
        first, *others = (replace(reader, fixed_kinds=kinds) for reader in readers)
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
        kinds, chosen = self.kinds, self.chosen
        if chosen is not None:
            features = dict(zip(kinds, features_by_column(kinds), strict=True))
            kinds = {name: kind for name, kind in kinds.items() if not {*chosen}.isdisjoint(features[name])}
            kept = [feature for name in kinds for feature in features[name]]
            chosen = [kept.index(feature) for feature in chosen]
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
            X = X if chosen is None else X[:, chosen]
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
