"""What columns of tables hold, and how they become features.

The kind of a column is None for numbers, ``"date"``, or the list of its categories, which are text. A date
becomes the number of days since 1970. Each category becomes a 0/1 feature ``column=category``; a column of
two categories becomes one feature, for the second. If ``(other)`` is a category, it stands for all that are
not listed. Models keep the kinds of all columns in their recipe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import ArgumentWarning
from .._words import listed, shortened
from ..engine.records import FloatArray
from .arrow import NUMERIC, kind_of, numbers_of
from .notation import AUTO, Notation, days_of, in_list, other_mark, plain_text
from .problems import (
    ColumnError,
    categories_error,
    otherwise_drop,
    refuse_columns,
    separators_error,
    unusable,
)

Kind = str | list[str] | None
"""Kind of a column: None for numbers, `DATE`, or its categories."""
Batches = Callable[[list[str]], Iterator[Any]]
"""Takes names of columns; yields all their rows in Arrow record batches."""
DATE = "date"
OTHER = "(other)"
"""The category of all values that are not categories of their own."""
UNKNOWN_COLUMN = " If the values are unknown, add a column without values."
"""What to do about a column that a table lacks, as the end of a message."""

# A column has at most this many categories, unless it is declared categorical: others are `OTHER`.
_MOST_CATEGORIES = 50
_LIKE_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?")
_MICROSECONDS_PER_DAY = 86_400_000_000
_SECONDS_PER_DAY = 86_400


# ---------------------------------------------------------------- Arrow columns


def texts_of(column: Any, words: Sequence[str]) -> Any:
    """Strip the values of a column of text, and replace those among `words` by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    is_missing = pc.is_in(text, value_set=pa.array(words, pa.string()))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), text)


def numbers_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Numbers (n,), NaN for missing values, and the first row that holds anything else, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = None
    if kind_of(column.type) in NUMERIC:
        values = np.array(numbers_of(column), dtype=np.float64, copy=True if notation.numbers else None)
    else:
        text = plain = texts_of(column, notation.number_words)
        if notation.mark != ".":  # as `Notation.plain` does
            plain = pc.replace_substring(pc.replace_substring(text, ".", "?"), notation.mark, ".")
        try:
            # Separators of thousands are left in, and Arrow cannot parse them.
            values = np.array(numbers_of(plain.cast(pa.float64())))
        except pa.ArrowInvalid:
            values, wrong = _parsed(text, notation.number)
    for number in notation.numbers:
        values[values == number] = np.nan
    return values, wrong


def _days_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Days since 1970 (n,), NaN for missing values, and the first row that holds no date, if there is one."""
    import pyarrow as pa

    if not _holds_dates(column.type):
        return _parsed(texts_of(column, notation.number_words), days_of)
    days = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return numbers_of(days) / _MICROSECONDS_PER_DAY, None


def _parsed(text: Any, parse: Callable[[str], float]) -> tuple[FloatArray, int | None]:
    """Parse each distinct text of a column (n,) once; also the first row whose text is no number."""
    coded = text.dictionary_encode()
    numbers = [parse(value) for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    values = np.array([*numbers, np.nan])[codes]
    wrong = np.flatnonzero(np.isnan(values) & (codes < len(numbers)))
    return values, int(wrong[0]) if len(wrong) else None


def categories_in(column: Any, words: Sequence[str]) -> Any:
    """The category of each row as Arrow text, null for missing values."""
    import pyarrow as pa

    if kind_of(column.type) == "text":
        column = texts_of(column, words)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    plain = [plain_text(value) for value in coded.dictionary.to_pylist()]
    return pa.array(plain, pa.string()).take(coded.indices)


def _holds_dates(type_: Any) -> bool:
    import pyarrow.types as pa_types

    return bool(pa_types.is_date(type_) or pa_types.is_timestamp(type_))


# ---------------------------------------------------------------- what columns hold


@dataclass(frozen=True)
class Contents:
    """What the columns of one table hold, by all of its rows."""

    # None for numbers, `DATE`, or how often a column has each category; without columns that are left out.
    values: dict[str, str | Counter[str] | None] = field(default_factory=dict)
    # Columns whose categories are all kept.
    declared: frozenset[str] = frozenset()
    notes: list[ArgumentWarning] = field(default_factory=list)
    errors: list[ColumnError] = field(default_factory=list)

    def settled(self, notation: Notation) -> Self:
        """Refuse the columns that cannot be features or, if the notation says so, leave them out."""
        if notation.drop != AUTO:
            refuse_columns(self.errors)
        wrong = [error.column for error in self.errors]
        notes = list(self.notes)
        if wrong:
            named = listed([name or "(no name)" for name in wrong])
            notes.append(ArgumentWarning(f"left out, because they cannot be features as they are: {named}"))
        values = {name: value for name, value in self.values.items() if name not in wrong}
        return replace(self, values=values, notes=notes, errors=[])


def inspect(
    types: Mapping[str, Any], batches: Batches, notation: Notation, place: Callable[[int], str]
) -> Contents:
    """Find out what columns hold, given their Arrow types; columns of text are read once.

    `place` says where a row is, given its number.
    """
    import pyarrow.types as pa_types

    declared = {name for name, type_ in types.items() if pa_types.is_dictionary(type_)}
    declared |= {*notation.categorical} & types.keys()
    is_read = [name for name, type_ in types.items() if name in declared or kind_of(type_) == "text"]
    counts: dict[str, Counter[str]] = {name: Counter() for name in is_read}
    for batch in batches(is_read) if is_read else ():
        for name in is_read:
            values = categories_in(batch.column(name), notation.words).drop_null()
            for entry in values.value_counts().to_pylist():
                counts[name][entry["values"]] += entry["counts"]
    contents = Contents(declared=frozenset(declared))
    for name, type_ in types.items():
        if name in declared or pa_types.is_null(type_):
            contents.values[name] = counts.get(name, Counter())
        elif name in counts:
            example = partial(_example, batches, name, notation, place)
            _inspect_text(contents, name, counts[name], notation, example)
        elif kind_of(type_) in NUMERIC:
            contents.values[name] = None
        elif _holds_dates(type_):
            contents.values[name] = DATE
        else:
            what = f"is of type {type_}; a feature must be numbers, categories or dates."
            contents.errors.append(unusable(name, what, *otherwise_drop(name)))
    return contents


def _inspect_text(
    contents: Contents, name: str, counts: Counter[str], notation: Notation, example: Callable[[str], str]
) -> None:
    """Add to `contents` what a column of text holds, given how often each value occurs.

    `example` words a value with the place of its first row.
    """
    others = [value for value in counts if not notation.are_numbers([value])]
    known = [value for value in counts if value not in notation.number_words]
    if counts and not others:
        contents.values[name] = None
    elif known and not np.isnan([days_of(value) for value in known]).any():
        contents.values[name] = DATE
    elif others and all(map(_LIKE_DATE.fullmatch, others)):
        what = f"column {name!r} holds dates, {example(others[0])}, and is left out"
        contents.notes.append(ArgumentWarning(f"{what}: write dates as 2024-01-31 to use it"))
    elif others and (
        error := categories_error(name, counts, others[0], notation, partial(example, others[0]))
    ):
        contents.errors.append(error)
    else:
        contents.values[name] = counts


def _example(batches: Batches, name: str, notation: Notation, place: Callable[[int], str], value: str) -> str:
    """Word a value of a column as an example, with the place of the first row that has it."""
    import pyarrow.compute as pc

    n_rows = 0
    for batch in batches([name]):
        row = pc.index(categories_in(batch.column(name), notation.words), value).as_py()
        if row >= 0:
            return f"such as {shortened(value)!r} on {place(n_rows + row)}"
        n_rows += batch.num_rows
    raise LookupError(value)


# ---------------------------------------------------------------- kinds of columns


def common_kinds(tables: Sequence[Contents]) -> tuple[dict[str, Kind], list[ArgumentWarning]]:
    """The kinds of columns that tables have in common, and notes on values and columns that are left out."""
    kinds: dict[str, Kind] = {}
    notes = {str(note): note for table in tables for note in table.notes}
    for name in tables[0].values:
        if any(name not in table.values for table in tables):
            continue
        values = [table.values[name] for table in tables]
        counts = sum((value for value in values if isinstance(value, Counter)), Counter[str]())
        note = ""
        if counts:
            is_declared = any(name in table.declared for table in tables)
            kind = sorted(counts)
            if len(kind) > _MOST_CATEGORIES and not is_declared:
                kind, note = _frequent(name, counts)
            if len(kind) > 1:
                kinds[name] = kind
            else:
                note = f"column {name!r} is {shortened(kind[0])!r} in all rows and is left out"
        elif DATE in values:
            kinds[name] = DATE
            note = f"column {name!r} holds dates, which become numbers of days since 1970"
        elif None in values:
            kinds[name] = None
        else:
            note = f"column {name!r} is missing in all rows and is left out"
        if note:
            notes[note] = ArgumentWarning(note)
    if not kinds:
        raise ValueError("no column is left as a feature.")
    names = feature_names(kinds)
    if len({*names}) < len(names):
        raise ValueError(
            "two features would have the same name, one from a column and one from a category. Rename one."
        )
    return kinds, list(notes.values())


def _frequent(name: str, counts: Counter[str]) -> tuple[list[str], str]:
    """The most frequent categories of a column and `OTHER`, and a note on it."""
    by_count = sorted(counts, key=lambda category: (-counts[category], category))
    kept = [category for category in by_count if category != OTHER][: _MOST_CATEGORIES - 1]
    n_other = counts.total() - sum(counts[category] for category in kept)
    note = (
        f"column {name!r} has {len(counts)} categories: the {len(kept)} most frequent are kept, and the "
        f"others, in {n_other} rows, are {OTHER}"
    )
    return [*sorted(kept), OTHER], note


def check_columns(columns: Any, names: Sequence[str]) -> None:
    """Raise ValueError if the kinds of columns in a model file are invalid or do not have these names."""
    valid = isinstance(columns, dict)
    for kind in columns.values() if valid else ():
        is_texts = isinstance(kind, list) and all(isinstance(category, str) for category in kind)
        valid &= kind in (None, DATE) or (is_texts and len({*kind}) == len(kind) > 1)
    if not valid or list(columns) != list(names):
        raise ValueError("the columns of preparation_ are not those of feature_names_in_")


# ---------------------------------------------------------------- columns to features


def feature_names(columns: Mapping[str, Kind]) -> list[str]:
    """Names (M,) of the features that columns are encoded as."""
    names: list[str] = []
    for name, kind in columns.items():
        names += [f"{name}={category}" for category in shown(kind)] if isinstance(kind, list) else [name]
    return names


def shown(categories: list[str]) -> list[str]:
    """The categories that have a feature: of two, only the second."""
    return categories[len(categories) == 2 :]


def features_by_column(columns: Mapping[str, Kind]) -> list[list[int]]:
    """Indices of the features of each column."""
    indices = iter(range(len(feature_names(columns))))
    return [[next(indices) for _ in feature_names({"": kind})] for kind in columns.values()]


def are_numbers(columns: Mapping[str, Kind]) -> list[bool]:
    """Whether each feature (M,) is a number, which a scale may change, and not a category or a date."""
    return [kind is None for kind in columns.values() for _ in feature_names({"": kind})]


@dataclass(frozen=True)
class Encoder:
    """Encodes columns of known kinds; unknown categories become NaN and are counted in `unknown`."""

    kinds: Mapping[str, Kind]
    notation: Notation
    place: Callable[[int], str]
    unknown: dict[str, Counter[str]]

    def features(self, columns: Mapping[str, Any], n_rows: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Encode Arrow columns (n,) as features (n, M), in Fortran order."""
        by_feature = np.empty((len(feature_names(self.kinds)), n_rows), dtype=dtype)
        for name, features in zip(self.kinds, features_by_column(self.kinds), strict=True):
            kind, rows = self.kinds[name], slice(features[0], features[-1] + 1)
            if isinstance(kind, list):
                by_feature[rows] = self._categories(columns[name], name, kind)
            else:
                by_feature[rows] = self._numbers(columns[name], name, kind == DATE)
        return by_feature.T

    def _numbers(self, column: Any, name: str, is_date: bool) -> FloatArray:
        """Read a column (n,) of numbers or dates."""
        import pyarrow as pa

        if column.null_count == len(column):
            return np.full(len(column), np.nan)
        is_typed = _holds_dates(column.type) if is_date else kind_of(column.type) in NUMERIC
        if not is_typed and kind_of(column.type) != "text":
            what = f"is of type {column.type}; a feature must be a {DATE if is_date else 'number'}."
            raise unusable(name, what)
        values, wrong = (_days_in if is_date else numbers_in)(column, self.notation)
        if wrong is None:
            return values
        value = column.cast(pa.string())[wrong].as_py().strip()
        example = f"such as {shortened(value)!r} on {self.place(wrong)}"
        if is_date:
            raise unusable(name, f"held dates in the fit, but has other text, {example}. Write 2024-01-31.")
        texts = texts_of(column, self.notation.number_words).drop_null().unique().to_pylist()
        if error := separators_error(name, texts, self.notation, lambda: example):
            raise error
        raise unusable(
            name,
            f"holds text, {example}; a feature must be a number. For another decimal mark, use ",
            other_mark(self.notation),
            "; if the text stands for a missing value, ",
            in_list("missing", value),
            ".",
        )

    def _categories(self, column: Any, name: str, kind: list[str]) -> FloatArray:
        """Read the 0/1 features (m, n) of a column (n,) of categories."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = categories_in(column, [word for word in self.notation.words if word not in kind])
        codes = pc.index_in(text, value_set=pa.array(kind, pa.string()))
        is_unknown = pc.and_(pc.is_valid(text), pc.is_null(codes))
        if OTHER in kind:
            codes = pc.if_else(is_unknown, pa.scalar(kind.index(OTHER), codes.type), codes)
        else:
            for entry in text.filter(is_unknown).value_counts().to_pylist():
                self.unknown.setdefault(name, Counter())[entry["values"]] += entry["counts"]
        numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        features = (np.arange(len(kind))[:, None] == numbers).astype(np.float64)
        features[:, numbers < 0] = np.nan
        return features[len(kind) - len(shown(kind)) :]


def decode_columns(X: FloatArray, columns: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
    """Features (n, M) as columns of a table: dates, and the category of the largest feature.

    A category without features is None.
    """
    decoded: dict[str, NDArray[Any]] = {}
    for (name, kind), features in zip(columns.items(), features_by_column(columns), strict=True):
        part = X[:, features]
        if isinstance(kind, list):
            codes = (part[:, 0] > 0.5).astype(np.intp) if len(features) == 1 else part.argmax(axis=1)
            codes = np.where(np.isnan(part[:, 0]), -1, codes)
            decoded[name] = np.array([*kind, None], dtype=object)[codes]
        elif kind == DATE:
            seconds = np.round(part[:, 0] * _SECONDS_PER_DAY)
            missing = np.isnan(seconds)
            dates = np.where(missing, 0.0, seconds).astype("int64").astype("datetime64[s]")
            decoded[name] = np.where(missing, np.datetime64("NaT"), dates)
        else:
            decoded[name] = part[:, 0]
    return decoded
