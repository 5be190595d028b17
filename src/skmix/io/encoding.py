"""Columns of tables as features: numbers, dates as days, and categories by one-hot encoding.

What a column holds is called its kind: None for numbers, `DATE`, or its categories, a list of text. The kinds
of all columns are a plain dictionary, which models keep as `table_columns_`.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import NUMERIC, kind_of, numbers_of

FloatArray = NDArray[np.float64]
Kind = None | str | Sequence[str]
"""What a column holds: None for numbers, `DATE`, or its categories."""
DATE = "date"
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
BOOLEANS = ("true", "false")

MISSING = (
    *("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL", "Null", "None"),
    *("<NA>", "#N/A", "#N/A N/A", "#NA", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Words that usually stand for a missing value."""
# In a column of numbers these do, too; among text they may be categories.
_MISSING_NUMBERS = ("-", "--", ".", "none", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
_WITH_COMMAS = re.compile(r"[-+]?[0-9]+([.,' ][0-9]+)*,[0-9]+([eE][-+]?[0-9]+)?")
_WITH_POINTS = re.compile(
    r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?)([eE][-+]?[0-9]+)?"
)
# Thousands with marks between them, or a number with a sign of money or per cent.
_THOUSANDS = r"[0-9]{1,3}([,.'’ \u00a0\u202f][0-9]{3})+([.,][0-9]+)?"
_MONEY = r"[$€£¥]\s?"
_WITH_SIGNS = re.compile(rf"[-+]?({_MONEY})?[-+]?({_THOUSANDS}|[0-9]+([.,][0-9]*)?|[.,][0-9]+)\s?([%$€£¥])?")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_OTHER_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?")
# More or longer categories, or more than half as many as there are rows, are text.
_MOST_CATEGORIES, _MOST_OF_FEW_ROWS, _LONGEST_CATEGORY = 50, 10, 200
_MICROSECONDS_PER_DAY = 86_400e6


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


@dataclass(frozen=True)
class Notation:
    """How a table is written; all but `missing` is of text files. See `read_rows`."""

    # Words and numbers for missing values beside the usual words; if one is empty, instead of these.
    missing: Sequence[str] = ()
    decimal: str = "."
    header: bool = True
    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ValueError(f"encoding={self.encoding!r} is not known to Python.") from None

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words that stand for a missing value."""
        return tuple(self.missing) if "" in self.missing else (*MISSING, *self.missing)

    @cached_property
    def number_words(self) -> tuple[str, ...]:
        """Words that stand for a missing number."""
        return self.words if "" in self.missing else (*self.words, *_MISSING_NUMBERS)

    @cached_property
    def numbers(self) -> list[float]:
        """Numbers that stand for a missing value."""
        # Models keep the words, but not how decimals were written.
        plain = (word.replace(",", ".") for word in self.missing)
        return [number for word in plain if (number := Notation().number(word)) == number]

    def number(self, text: str) -> float:
        """Return the number that a text stands for, 1 for true and 0 for false; NaN if it is not a number."""
        if text.lower() in BOOLEANS:
            return float(text.lower() == "true")
        text = self.plain(text)
        # Python would also accept 1_000 and digits of other scripts.
        return float(text) if text.isascii() and "_" not in text and is_number(text) else np.nan

    def plain(self, text: str) -> str:
        """Return a text with a point as decimal mark; another point in it becomes a question mark."""
        return text if self.decimal == "." else text.replace(".", "?").replace(self.decimal, ".")


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def plain_text(value: Any) -> str | None:
    """Return a category or label as text, the same for 1, 1.0, "1" and "1.0"; None if it is missing."""
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
    """Return a column of text without blanks around values, null where one is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.is_in(text, value_set=pa.array(words)), pa.scalar(None, pa.string()), text)


def numbers_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Return numbers (n,), NaN where a value is missing, and the first row that has something else."""
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
            values = np.array(numbers_of(plain.cast(pa.float64())))
        except pa.ArrowInvalid:
            # Not all are plain numbers: parse each distinct text once.
            coded = text.dictionary_encode()
            parsed = [notation.number(value) for value in coded.dictionary.to_pylist()]
            codes = coded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
            values = np.array([*parsed, np.nan])[codes]
            others = np.flatnonzero(np.isnan(values) & (codes < len(parsed)))
            wrong = int(others[0]) if len(others) else None
    for number in notation.numbers:
        values[values == number] = np.nan
    return values, wrong


def is_date(column: Any) -> bool:
    """Return whether an Arrow column is of dates or of times with a date."""
    import pyarrow.types as types

    return bool(types.is_date(column.type) or types.is_timestamp(column.type))


def days_in(column: Any, words: Sequence[str]) -> tuple[FloatArray, int | None]:
    """Return days (n,) since 1970-01-01 of dates, and the first row that has something else."""
    import pyarrow as pa

    if not is_date(column):
        text = texts_of(column, words)
        first_wrong = []
        for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
            if _is_cast(text, kind, len(text)):
                return days_in(text.cast(kind), words)
            sizes = range(1, len(text))
            first_wrong.append(bisect_left(sizes, True, key=lambda n: not _is_cast(text, kind, n)))
        return np.empty(0), max(first_wrong)
    micros = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.array(numbers_of(micros), dtype=np.float64) / _MICROSECONDS_PER_DAY, None


def _is_cast(text: Any, kind: Any, n_rows: int) -> bool:
    """Return whether the first rows of text can be cast to a type."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        text[:n_rows].cast(kind)
        return True
    return False


def categories_in(column: Any, words: Sequence[str]) -> Any:
    """Return the category of each row as Arrow text, null where it is missing."""
    import pyarrow as pa

    if kind_of(column.type) == "text":
        column = texts_of(column, words)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    plain = [plain_text(value) for value in coded.dictionary.to_pylist()]
    return pa.array(plain, pa.string()).take(coded.indices)


# ---------------------------------------------------------------- what columns hold


def find_kind(
    column: Any, name: str, notation: Notation, place: Callable[[int], str], *, dates: bool, coded: bool
) -> Kind:
    """Return the kind of a column, of categories if `coded`; ColumnError where it cannot be a feature."""
    from pyarrow import compute as pc

    def refused(problem: str) -> ColumnError:
        return ColumnError(f"column {name!r} {problem}", name, is_feature=True)

    def categories() -> Kind:
        return sorted(categories_in(column, notation.words).drop_null().unique().to_pylist())

    if coded:
        return categories()
    if kind_of(column.type) in NUMERIC:
        return None
    if is_date(column):
        if not dates:
            raise refused(
                f"holds dates: it is of type {column.type}. --dates numbers (dates=True) makes days of it."
            )
        return DATE
    if kind_of(column.type) != "text":
        raise refused(f"is of type {column.type}; a feature must be numbers, categories or dates.")
    values, wrong = numbers_in(column, notation)
    if wrong is None:
        return None
    text = texts_of(column, notation.words)
    value = text[wrong].as_py()
    example = f"such as {shortened(value)!r} on {place(wrong)}"
    _refuse_marks(value, name, place(wrong), notation)
    if _WITH_SIGNS.fullmatch(value):
        raise refused(
            f"holds numbers with signs or with marks between thousands, {example}. Write plain numbers, like "
            f"1200.5; if these are categories, add --categorical {name!r} (categorical=[...])."
        )
    if _ISO_DATE.fullmatch(value):
        other = days_in(column, notation.number_words)[1]
        if other is not None:
            raise refused(
                f"holds dates, but {shortened(text[other].as_py())!r} on {place(other)} is not a date "
                f"written like {value!r}. If that stands for a missing value, add --missing (missing=[...])."
            )
        if not dates:
            raise refused(f"holds dates, {example}. --dates numbers (dates=True) makes days of them.")
        return DATE
    if _OTHER_DATE.fullmatch(value):
        raise refused(f"seems to hold dates, {example}. Dates must be written like 2020-12-31.")
    known = text.drop_null()
    if 2 * np.count_nonzero(~np.isnan(values)) >= len(known):
        raise refused(
            f"holds numbers and text, {example}. If that stands for a missing value, add --missing {value!r} "
            f"(missing=[...]); if these are categories, --categorical {name!r}."
        )
    n_distinct, longest = pc.count_distinct(known).as_py(), pc.max(pc.utf8_length(known)).as_py()
    if longest > _LONGEST_CATEGORY:
        raise refused(f"holds long text, {example}: up to {longest} characters.")
    if n_distinct > _MOST_CATEGORIES or (n_distinct > _MOST_OF_FEW_ROWS and 2 * n_distinct > len(known)):
        raise refused(f"holds text, {example}: {n_distinct} different values in {len(known)} rows.")
    return categories()


def encode_column(
    column: Any, name: str, kind: Kind, notation: Notation, place: Callable[[int], str]
) -> tuple[FloatArray, str | None]:
    """Return the features (n, q) of a column of known kind, and a note on categories that are not known.

    These are missing values: none of the features says anything about them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is None and kind_of(column.type) not in (*NUMERIC, "text"):
        problem = f"column {name!r} is of type {column.type}; a feature must be a number."
        raise ColumnError(problem, name, is_feature=True)
    if kind is None or isinstance(kind, str):
        values, wrong = (
            numbers_in(column, notation) if kind is None else days_in(column, notation.number_words)
        )
        if wrong is None:
            return values[:, None], None
        value = column.cast(pa.string())[wrong].as_py().strip()
        if kind is None:
            _refuse_marks(value, name, place(wrong), notation)
        needed = "a feature must be a number" if kind is None else "it must hold dates like 2020-12-31"
        raise ColumnError(
            f"column {name!r} holds text, such as {shortened(value)!r} on {place(wrong)}; {needed}.",
            name,
            is_feature=True,
        )
    text = categories_in(column, [word for word in notation.words if word not in kind])
    codes = pc.index_in(text, value_set=pa.array(kind, pa.string()))
    unknown = text.filter(pc.and_(pc.is_valid(text), pc.is_null(codes)))
    note = None
    if len(unknown):
        shown = ", ".join(map(shortened, unknown.unique().to_pylist()[:5]))
        note = f"column {name!r} has categories that the model does not know, in {len(unknown)} rows: {shown}"
    numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    features = (numbers[:, None] == np.arange(len(kind))).astype(np.float64)
    features[numbers < 0] = np.nan
    return features[:, len(kind) == 2 :], note


def _refuse_marks(value: str, name: str, where: str, notation: Notation) -> None:
    """Raise ColumnError for a number with another decimal mark, or with such a mark between thousands."""
    if notation.decimal == "," and _WITH_POINTS.fullmatch(value):
        raise ColumnError(
            f"column {name!r} has a point in the number {shortened(value)!r} on {where}, but --decimal , "
            "(decimal=',') says that a comma is before decimals; nothing may be between thousands.",
            name,
        )
    if notation.decimal == "." and _WITH_COMMAS.fullmatch(value):
        raise ColumnError(
            f"column {name!r} has a comma in the number {shortened(value)!r} on {where}. If it is before "
            "decimals, use --decimal , (decimal=','); nothing may be between thousands.",
            name,
        )


def feature_names(columns: Mapping[str, Kind]) -> list[str]:
    """Return the names (M,) of the features of columns: of two categories the second alone has a feature."""
    names: list[str] = []
    for name, kind in columns.items():
        categories = None if isinstance(kind, str) else kind
        names += [name] if categories is None else [f"{name}={c}" for c in categories[len(categories) == 2 :]]
    return names


def encode_columns(
    found: Mapping[str, Any], kinds: Mapping[str, Kind], notation: Notation, place: Callable[[int], str]
) -> tuple[FloatArray, list[str]]:
    """Return the features (n, M) of Arrow columns of known kinds, and notes on what became missing values.

    Columns that are not found do.
    """
    n_rows = len(next(iter(found.values())))
    parts, notes = [], []
    for name, kind in kinds.items():
        if name in found:
            part, note = encode_column(found[name], name, kind, notation, place)
            notes += [note] if note else []
        else:
            part = np.full((n_rows, len(feature_names({name: kind}))), np.nan)
        parts.append(part)
    absent = [name for name in kinds if name not in found]
    if absent:
        notes.append(f"columns that are not there: {listed(absent)}")
    return np.concatenate(parts, axis=1), [f"{note}; they are taken as missing values" for note in notes]


def encode_frame(
    frame: Any, columns: Mapping[str, Kind], missing: Sequence[str] = ()
) -> tuple[FloatArray, list[str]]:
    """Return the features (n, M) of a frame of pandas or polars with the columns of a model, and notes.

    Columns that the frame lacks are missing values. Raises ColumnError where it has none of them.
    """
    import pyarrow as pa

    found = {}
    for name in (name for name in columns if name in frame.columns):
        values = frame[name]
        try:
            column = pa.array(values.to_arrow() if hasattr(values, "to_arrow") else values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            types = ", ".join(sorted({type(value).__name__ for value in values}))
            raise ColumnError(f"column {name!r} holds values of different types: {types}.", name) from None
        found[name] = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not found:
        first = next(iter(columns))
        raise ColumnError(f"X has no column {first!r}; the model was fitted to {list(columns)}.", first)
    return encode_columns(found, columns, Notation(missing), "row {}".format)


def rescale_numbers(X: FloatArray, columns: Mapping[str, Kind], scale: Any) -> None:
    """Transform the features (n, M) that are numbers in place; categories and dates stay as they are."""
    if scale is not None:
        numeric = [kind is None for kind in columns.values() for _ in feature_names({"": kind})]
        X[:, numeric] = scale.transform(X[:, numeric])


def decode_columns(X: FloatArray, columns: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
    """Return features (n, M) as columns of the table: the likeliest category, and dates as text."""
    found: dict[str, NDArray[Any]] = {}
    start = 0
    for name, kind in columns.items():
        width = 1 if kind is None or isinstance(kind, str) or len(kind) == 2 else len(kind)
        part = X[:, start : start + width]
        start += width
        if kind is None:
            found[name] = part[:, 0]
        elif isinstance(kind, str):
            found[name] = np.datetime_as_string(np.round(part[:, 0]).astype("datetime64[D]"))
        else:
            codes = (part[:, 0] > 0.5).astype(np.intp) if width == 1 else part.argmax(axis=1)
            found[name] = np.array(kind)[codes]
    return found


def check_columns(columns: Any, names: Sequence[str]) -> None:
    """Check the kinds of columns in a model file; raise ValueError if its features have other names."""
    valid = isinstance(columns, dict) and all(
        kind is None
        or kind == DATE
        or (
            isinstance(kind, list)
            and len(kind) > 1
            and all(isinstance(c, str) for c in kind)
            and len({*kind}) == len(kind)
        )
        for kind in columns.values()
    )
    if not valid or feature_names(columns) != list(names):
        raise ValueError("table_columns_ does not describe the features of feature_names_in_")


def shortened(text: str) -> str:
    """Return the beginning of a text, for messages."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Return the first names of a list in a line, and how many there are if these are not all."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} ... ({len(names)} in all)"
