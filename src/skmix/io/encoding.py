"""Encode columns of data frames and files as features.

The kind of a column is None for numbers, or the list of its categories, which are text. Each category becomes
a 0/1 feature ``column=category``; a column of two categories becomes one feature, for the second. Models keep
the kinds of all columns, a plain dictionary, in `preparation_`.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from .arrow import NUMERIC, kind_of, numbers_of

FloatArray = NDArray[np.float64]
Kind = None | list[str]
"""Kind of a column: None for numbers, or its categories."""
Batches = Callable[[list[str]], Iterator[Any]]
"""Takes names of columns; yields all their rows in Arrow record batches."""
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
BOOLEANS = ("true", "false")

MISSING = (
    *("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL", "Null", "None"),
    *("<NA>", "#N/A", "#N/A N/A", "#NA", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Words that usually stand for a missing value in text files."""
UNKNOWN_COLUMN = " If the values are unknown, add a column without values."
"""What to do about a column that a table lacks, as the end of a message."""
# Further words for a missing number; in columns of text they may be categories.
_MISSING_NUMBERS = ("-", "--", ".", "none", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
# Numbers with another decimal mark, thousands separators, a currency sign or a per cent sign.
_LIKE_NUMBER = re.compile(
    r"[-+]?([$€£¥]\s?)?[-+]?[0-9.,'’ \u00a0\u202f]*[0-9][.,]?([eE][-+]?[0-9]+)?\s?[%$€£¥]?"
)
# Characters that separate thousands.
_THOUSANDS = (".", ",", "'", "’", " ")
# Blanks that count as spaces between digits.
_BLANKS = str.maketrans("\u00a0\u202f\u2009", "   ")
_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?")
# A column with more distinct values than this holds text, unless it is declared categorical.
_MOST_CATEGORIES = 50
# A column with more distinct values than this also holds text if there are fewer than two rows per value.
_MOST_OF_FEW_ROWS = 10
# A column with a value of more characters than this holds text.
_LONGEST_CATEGORY = 200


class ColumnError(ArgumentError):
    """A column that is missing or cannot be used; if it `is_feature`, leaving it out would help."""

    def __init__(self, *parts: str, column: str, is_feature: bool = False) -> None:
        super().__init__(*parts)
        self.column = column
        self.is_feature = is_feature


@dataclass(frozen=True)
class Notation:
    """How the values of a table are written; `decimal` and the fields after it apply to text files only."""

    # Words and numbers for missing values. Text files also have the usual words, unless one here is empty.
    missing: Sequence[str] = ()
    # Columns to read as categories, whether they hold numbers or any number of distinct texts.
    categorical: Sequence[str] = ()
    decimal: str = "."
    # Separator of thousands, "" if there is none; None if unknown: then ambiguous numbers are refused.
    thousands: str | None = None
    header: bool = True
    sep: str | None = None
    encoding: str | None = None
    # Columns to read as text even if they hold numbers.
    as_text: Sequence[str] = ()
    # Whether the table is a text file, in which columns have no type.
    is_text: bool = False

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ArgumentError(Argument("encoding", self.encoding), " is not known to Python.") from None
        thousands = Argument("thousands", self.thousands)
        if self.thousands not in (None, "", *_THOUSANDS):
            raise ArgumentError(thousands, f" is not one of {' '.join(_THOUSANDS[:-1])} and a space.")
        if self.thousands == self.decimal:
            raise ArgumentError(thousands, " is the decimal mark too: change it with ", other_mark(self), ".")

    @property
    def has_usual_words(self) -> bool:
        """Whether words such as NA stand for a missing value, as in text files, which have no nulls."""
        return self.is_text and "" not in self.missing

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words that stand for a missing value."""
        return (*MISSING, *self.missing) if self.has_usual_words else tuple(self.missing)

    @cached_property
    def number_words(self) -> tuple[str, ...]:
        """Words that stand for a missing number."""
        return (*self.words, *_MISSING_NUMBERS) if self.has_usual_words else self.words

    @cached_property
    def numbers(self) -> list[float]:
        """Numbers that stand for a missing value."""
        # Models keep these words, but not the decimal mark.
        plain = (word.replace(",", ".") for word in self.missing)
        return [number for word in plain if (number := Notation().number(word)) == number]

    def number(self, text: str) -> float:
        """Parse a number, or 1 for true and 0 for false; return NaN for any other text."""
        if text.lower() in BOOLEANS:
            return float(text.lower() == "true")
        text = self.plain(text)
        # Python would also accept 1_000 and digits of other scripts.
        return float(text) if text.isascii() and "_" not in text and is_number(text) else np.nan

    def plain(self, text: str) -> str:
        """Return a number without separators of thousands and with a point as decimal mark.

        A point used otherwise becomes a question mark.
        """
        if self.thousands and self.is_grouped(text):
            text = text.translate(_BLANKS).replace(self.thousands, "")
        return text if self.decimal == "." else text.replace(".", "?").replace(self.decimal, ".")

    def is_grouped(self, text: str) -> bool:
        """Return whether a text is a number of thousands, all of them separated."""
        return self._grouped.fullmatch(text.translate(_BLANKS)) is not None

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        point, separator = re.escape(self.decimal), re.escape(self.thousands or "")
        return re.compile(rf"[-+]?[1-9]\d{{0,2}}({separator}\d{{3}})+({point}\d*)?", re.ASCII)

    @property
    def swapped(self) -> Notation:
        """The notation in which this decimal mark separates thousands, and the other is the decimal mark."""
        return replace(self, decimal="," if self.decimal == "." else ".", thousands=self.decimal)


def is_number(text: str) -> bool:
    """Return whether Python can parse a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def plain_text(value: Any) -> str | None:
    """Return a category or label as text, equal for 1, 1.0, "1" and "1.0"; None if it is missing."""
    if isinstance(value, str):
        value = value.strip()
        return value[:-2] if value.endswith(".0") and WHOLE.fullmatch(value[:-2]) else value
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# ---------------------------------------------------------------- Arrow columns


def texts_of(column: Any, words: Sequence[str]) -> Any:
    """Strip the values of a column of text, and replace those among `words` by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(
        pc.is_in(text, value_set=pa.array(words, pa.string())), pa.scalar(None, pa.string()), text
    )


def numbers_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Return numbers (n,), NaN for missing values, and the first row that holds anything else."""
    import pyarrow as pa

    wrong = None
    if kind_of(column.type) in NUMERIC:
        values = np.array(numbers_of(column), dtype=np.float64, copy=True if notation.numbers else None)
    else:
        import pyarrow.compute as pc

        text = texts_of(column, notation.number_words)
        plain = text
        if notation.decimal != ".":
            # As `Notation.plain` does.
            plain = pc.replace_substring(pc.replace_substring(text, ".", "?"), notation.decimal, ".")
        try:
            # Separators of thousands are left in, and Arrow cannot parse them.
            values = np.array(numbers_of(plain.cast(pa.float64())))
        except pa.ArrowInvalid:
            # Arrow cannot parse some of them: parse each distinct text once.
            coded = text.dictionary_encode()
            parsed = [notation.number(value) for value in coded.dictionary.to_pylist()]
            codes = coded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
            values = np.array([*parsed, np.nan])[codes]
            others = np.flatnonzero(np.isnan(values) & (codes < len(parsed)))
            wrong = int(others[0]) if len(others) else None
    for number in notation.numbers:
        values[values == number] = np.nan
    return values, wrong


def categories_in(column: Any, words: Sequence[str]) -> Any:
    """Return the category of each row as Arrow text, null for missing values."""
    import pyarrow as pa

    if kind_of(column.type) == "text":
        column = texts_of(column, words)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    plain = [plain_text(value) for value in coded.dictionary.to_pylist()]
    return pa.array(plain, pa.string()).take(coded.indices)


# ---------------------------------------------------------------- kinds of columns


def find_kinds(
    types: Mapping[str, Any], batches: Batches, notation: Notation, place: Callable[[int], str]
) -> dict[str, Kind]:
    """Return the kinds of columns, given their Arrow types; columns of text are read once.

    Raise ColumnError if a column cannot be a feature; `place` is that of `Table`. Columns with fewer than two
    categories are included; `without_constants` removes them.
    """
    import pyarrow.types as pa_types

    categorical = {name for name, type_ in types.items() if pa_types.is_dictionary(type_)}
    categorical |= {*notation.categorical} & types.keys()
    for name, type_ in types.items():
        if pa_types.is_temporal(type_):
            raise _refused(name, f"holds dates: it is of type {type_}. {_DATES}", *_without(name))
        if kind_of(type_) not in (*NUMERIC, "text"):
            what = f"is of type {type_}; a feature must be numbers or categories."
            raise _refused(name, what, *_without(name))
    read = [name for name, type_ in types.items() if name in categorical or kind_of(type_) not in NUMERIC]
    counts: dict[str, Counter[str]] = {name: Counter() for name in read}
    for batch in batches(read) if read else ():
        for name in read:
            found = categories_in(batch.column(name), notation.words).drop_null().value_counts()
            for each in found.to_pylist():
                counts[name][each["values"]] += each["counts"]
    kinds: dict[str, Kind] = {}
    for name in types:
        kinds[name] = None
        if name in categorical or (name in counts and not holds_numbers(counts[name], notation)):
            if name not in categorical:
                _check_categories(
                    name, counts[name], notation, partial(_find, batches, name, notation, place)
                )
            kinds[name] = sorted(counts[name])
    return kinds


_DATES = "Replace them by numbers, such as days since the first one."


def _find(batches: Batches, name: str, notation: Notation, place: Callable[[int], str], value: str) -> str:
    """Return the place of the first row that holds `value` in a column."""
    import pyarrow.compute as pc

    n_rows = 0
    for batch in batches([name]):
        row = pc.index(categories_in(batch.column(name), notation.words), value).as_py()
        if row >= 0:
            return place(n_rows + row)
        n_rows += batch.num_rows
    raise LookupError(value)


def _refused(name: str, *parts: str) -> ColumnError:
    return ColumnError(f"column {name!r} ", *parts, column=name, is_feature=True)


def _without(name: str) -> tuple[str, ...]:
    """Return the advice to leave a column out, as the end of a message."""
    drop = Argument("drop", name, wording="open_rows(..., columns=[...])")
    return " Otherwise, leave it out with ", drop, "."


def in_list(name: str, value: str) -> Argument:
    """Return an entry of `text` that is a list of one value."""
    return of_text(name, value, [value])


def of_text(name: str, value: Any, entry: Any = None) -> Argument:
    """Return an entry of the argument `text` of `open_rows`, worded with another value if one is given."""
    given = {name: value if entry is None else entry}
    return Argument(name, value, wording=f"open_rows(..., text={given})")


def holds_numbers(values: Iterable[str], notation: Notation) -> bool:
    """Return whether all values are numbers or stand for missing ones."""
    return all(value in notation.number_words or not np.isnan(notation.number(value)) for value in values)


def _check_categories(
    name: str, counts: Mapping[str, int], notation: Notation, place: Callable[[str], str]
) -> None:
    """Raise ColumnError if the values of a column of text, with their counts, are not categories."""
    value = next(value for value in counts if not holds_numbers([value], notation))
    example = f"such as {shortened(value)!r} on {place(value)}"
    if _DATE.fullmatch(value):
        raise _refused(name, f"holds dates, {example}. {_DATES}", *_without(name))
    check_separators(name, counts, notation, example, _without(name))
    categorical = in_list("categorical", name), ".", *_without(name)
    n_known = sum(counts.values())
    n_numbers = sum(n for other, n in counts.items() if not np.isnan(notation.number(other)))
    if _LIKE_NUMBER.fullmatch(value) or 2 * n_numbers >= n_known:
        raise _refused(
            name,
            f"holds numbers and text, {example}. Write plain numbers, like 1200.5; for another decimal mark, "
            "use ",
            other_mark(notation),
            "; if the text stands for a missing value, ",
            in_list("missing", value),
            "; if these are categories, ",
            *categorical,
        )
    longest = max(map(len, counts))
    too_many = len(counts) > _MOST_CATEGORIES or (
        len(counts) > _MOST_OF_FEW_ROWS and 2 * len(counts) > n_known
    )
    if too_many or longest > _LONGEST_CATEGORY:
        size = f"{len(counts)} different values of up to {longest} characters in {n_known} rows"
        raise _refused(name, f"holds text, {example}: {size}. If these are categories, use ", *categorical)


def check_separators(
    name: str, values: Iterable[str], notation: Notation, example: str, otherwise: Sequence[str] = ()
) -> None:
    """Raise ColumnError if a separator of thousands makes numbers of all values of a column.

    The message ends with `otherwise`, other advice.
    """
    if notation.thousands is not None:
        return
    values = [*values]
    marks = [notation.decimal, notation.swapped.decimal]
    for decimal in marks:
        for thousands in _THOUSANDS:
            if thousands == decimal:
                continue
            read = replace(notation, decimal=decimal, thousands=thousands)
            if holds_numbers(values, read) and any(map(read.is_grouped, values)):
                ways: list[str] = [of_text("thousands", thousands)]
                if decimal != notation.decimal:
                    # In this order, also where these are changes of a data frame.
                    ways += [" and ", of_text("decimal", decimal)]
                elif holds_numbers(values, replace(notation, decimal=marks[1], thousands="")):
                    ways += ["; if it is the decimal mark, use ", other_mark(notation)]
                what = "holds numbers with a separator of thousands"
                raise _refused(name, f"{what}, {example}. Use ", *ways, ".", *otherwise)


def other_mark(notation: Notation) -> Argument:
    """Return the setting of the other decimal mark."""
    return of_text("decimal", notation.swapped.decimal)


def without_constants(kinds: Mapping[str, Kind]) -> tuple[dict[str, Kind], list[ArgumentWarning]]:
    """Drop columns with fewer than two categories; return the rest, and notes on dropped and encoded ones."""
    kept: dict[str, Kind] = {}
    notes = []
    for name, kind in kinds.items():
        if kind is None or len(kind) > 1:
            kept[name] = kind
        else:
            value = repr(shortened(kind[0])) if kind else "missing"
            notes.append(ArgumentWarning(f"column {name!r} is {value} in all rows and is left out"))
    if coded := [name for name, kind in kept.items() if kind is not None]:
        notes.append(ArgumentWarning(f"encoded as categories: {listed(coded)}"))
    if not kept:
        raise ValueError("no column is left as a feature.")
    return kept, notes


# ---------------------------------------------------------------- columns to features


def feature_names(columns: Mapping[str, Kind]) -> list[str]:
    """Return the names (M,) of the features that columns are encoded as."""
    names: list[str] = []
    for name, kind in columns.items():
        names += [name] if kind is None else [f"{name}={category}" for category in kind[len(kind) == 2 :]]
    return names


def features_by_column(columns: Mapping[str, Kind]) -> list[list[int]]:
    """Return the indices of the features of each column."""
    indices = iter(range(len(feature_names(columns))))
    return [[next(indices) for _ in feature_names({"": kind})] for kind in columns.values()]


def check_unambiguous(columns: Mapping[str, Kind]) -> None:
    """Raise ValueError if two features would have the same name."""
    names = feature_names(columns)
    if len({*names}) < len(names):
        raise ValueError(
            "two features would have the same name, one from a column and one from a category. Rename one."
        )


@dataclass(frozen=True)
class Encoder:
    """Encodes columns of known kinds; unknown categories become NaN and are counted in `unknown`."""

    kinds: Mapping[str, Kind]
    notation: Notation
    place: Callable[[int], str]
    unknown: dict[str, Counter[str]]

    def features(self, columns: Mapping[str, Any], n_rows: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Return the features (n, M) of Arrow columns (n,), in Fortran order."""
        by_feature = np.empty((len(feature_names(self.kinds)), n_rows), dtype=dtype)
        for name, own in zip(self.kinds, features_by_column(self.kinds), strict=True):
            by_feature[own[0] : own[-1] + 1] = self._column(columns[name], name)
        return by_feature.T

    def _column(self, column: Any, name: str) -> NDArray[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.kinds[name]
        if kind is None:
            if kind_of(column.type) not in (*NUMERIC, "text"):
                raise _refused(name, f"is of type {column.type}; a feature must be a number.")
            values, wrong = numbers_in(column, self.notation)
            if wrong is not None:
                value = column.cast(pa.string())[wrong].as_py().strip()
                example = f"such as {shortened(value)!r} on {self.place(wrong)}"
                texts = texts_of(column, self.notation.number_words).drop_null().unique().to_pylist()
                check_separators(name, texts, self.notation, example)
                raise _refused(
                    name,
                    f"holds text, {example}; a feature must be a number. For another decimal mark, use ",
                    other_mark(self.notation),
                    "; if the text stands for a missing value, ",
                    in_list("missing", value),
                    ".",
                )
            return values[None]
        text = categories_in(column, [word for word in self.notation.words if word not in kind])
        codes = pc.index_in(text, value_set=pa.array(kind, pa.string()))
        for each in text.filter(pc.and_(pc.is_valid(text), pc.is_null(codes))).value_counts().to_pylist():
            self.unknown.setdefault(name, Counter())[each["values"]] += each["counts"]
        numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        features = (np.arange(len(kind))[:, None] == numbers).astype(np.float64)
        features[:, numbers < 0] = np.nan
        return features[len(kind) == 2 :]


def decode_columns(X: FloatArray, columns: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
    """Return features (n, M) as columns of a table, each category the one of the largest feature.

    A category without features is None.
    """
    found: dict[str, NDArray[Any]] = {}
    for (name, kind), own in zip(columns.items(), features_by_column(columns), strict=True):
        part = X[:, own]
        if kind is None:
            found[name] = part[:, 0]
            continue
        codes = (part[:, 0] > 0.5).astype(np.intp) if len(own) == 1 else part.argmax(axis=1)
        found[name] = np.array([*kind, None], dtype=object)[np.where(np.isnan(part[:, 0]), -1, codes)]
    return found


def are_numbers(columns: Mapping[str, Kind]) -> list[bool]:
    """Return for each feature (M,) whether it is a number, which a scale may change, or a category."""
    return [kind is None for kind in columns.values() for _ in feature_names({"": kind})]


def check_columns(columns: Any, names: Sequence[str]) -> None:
    """Raise ValueError if the kinds of columns in a model file are invalid or do not have these names."""
    valid = isinstance(columns, dict)
    for kind in columns.values() if valid else ():
        is_texts = isinstance(kind, list) and all(isinstance(category, str) for category in kind)
        valid &= kind is None or (is_texts and len({*kind}) == len(kind) > 1)
    if not valid or list(columns) != list(names):
        raise ValueError("the columns of preparation_ are not those of feature_names_in_")


def shortened(text: str) -> str:
    """Shorten a text for messages."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Join the first `most` names by commas, and add the total number if there are more."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} ... ({len(names)} in all)"


def nearest(name: Any, names: Iterable[Any]) -> str:
    """Return a question that suggests the most similar of `names`, as the end of a message; or ""."""
    known = {str(each).lower(): str(each) for each in names}
    if not re.search("[^0-9.+-]", str(name)):  # numbers that look alike are not misspelt
        return ""
    found = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f" Did you mean {known[found[0]]!r}?" if found else ""
