"""The kinds of columns, and how columns of each kind become features and features become columns.

The kind of a column is None for numbers, ``"date"``, or the list of its categories, which are text. A date
becomes the number of days since 1970. Each category becomes a 0/1 feature ``column=category``; a column of
two categories becomes one feature, for the second. If ``(other)`` is a category, it stands for all that are
not listed. Models keep the kinds of all columns in their recipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._words import shortened
from ..engine.records import FloatArray
from .arrow import NUMERIC, categories_in, days_in, kind_of, numbers_in, texts_of
from .notation import Notation, in_list, other_mark
from .problems import separators_error, unusable

Kind = str | list[str] | None
"""Kind of a column: None for numbers, `DATE`, or its categories."""
DATE = "date"
OTHER = "(other)"
"""The category of all values that are not categories of their own."""
UNKNOWN_COLUMN = " If the values are unknown, add a column without values."
"""What to do about a column that a table lacks, as the end of a message."""
_SECONDS_PER_DAY = 86_400


def check_columns(columns: Any, names: Sequence[str]) -> None:
    """Raise ValueError if the kinds of columns in a model file are invalid or do not have these names."""
    valid = isinstance(columns, dict)
    for kind in columns.values() if valid else ():
        is_texts = isinstance(kind, list) and all(isinstance(category, str) for category in kind)
        valid &= kind in (None, DATE) or (is_texts and len({*kind}) == len(kind) > 1)
    if not valid or list(columns) != list(names):
        raise ValueError("the columns of recipe_ are not those of feature_names_in_")


# ---------------------------------------------------------------- features of columns


def feature_names(columns: Mapping[str, Kind]) -> list[str]:
    """Names (M,) of the features that columns are encoded as."""
    names: list[str] = []
    for name, kind in columns.items():
        names += [f"{name}={category}" for category in shown(kind)] if isinstance(kind, list) else [name]
    return names


def shown(categories: list[str]) -> list[str]:
    """The categories that have a feature: of two, only the second."""
    return categories[len(categories) == 2 :]


def features_by_column(columns: Mapping[Any, Kind]) -> list[list[int]]:
    """Indices of the features of each column."""
    ends = np.cumsum([len(shown(kind)) if isinstance(kind, list) else 1 for kind in columns.values()])
    return [
        list(range(first, end)) for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def are_numbers(columns: Mapping[Any, Kind]) -> list[bool]:
    """Whether each feature (M,) is a number, which a scale may change, and not a category or a date."""
    by_column = zip(columns.values(), features_by_column(columns), strict=True)
    return [kind is None for kind, features in by_column for _ in features]


# ---------------------------------------------------------------- columns to features


def encode_columns(
    columns: Mapping[str, Any],
    n_rows: int,
    kinds: Mapping[str, Kind],
    notation: Notation,
    place: Callable[[int], str],
    unknown: dict[str, Counter[str]],
    dtype: Any,
) -> NDArray[Any]:
    """Encode Arrow columns (n,) of known kinds as features (n, M), in Fortran order.

    `place` says where a row is, for errors. Unknown categories become NaN, and `unknown` counts them.
    """
    by_column = features_by_column(kinds)
    by_feature = np.empty((sum(map(len, by_column)), n_rows), dtype=dtype)
    for (name, kind), features in zip(kinds.items(), by_column, strict=True):
        rows = slice(features[0], features[-1] + 1)
        if isinstance(kind, list):
            by_feature[rows] = _categories(columns[name], name, kind, notation, unknown)
        else:
            by_feature[rows] = _numbers(columns[name], name, kind == DATE, notation, place)
    return by_feature.T


def _numbers(
    column: Any, name: str, is_date: bool, notation: Notation, place: Callable[[int], str]
) -> FloatArray:
    """Read a column (n,) of numbers or dates."""
    import pyarrow as pa

    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    if kind_of(column.type) not in ("text", *(("date",) if is_date else NUMERIC)):
        what = f"is of type {column.type}; a feature must be a {DATE if is_date else 'number'}."
        raise unusable(name, what)
    values, wrong = (days_in if is_date else numbers_in)(column, notation)
    if wrong is None:
        return values
    value = column.cast(pa.string())[wrong].as_py().strip()
    example = f"such as {shortened(value)!r} on {place(wrong)}"
    if is_date:
        raise unusable(name, f"held dates in the fit, but has other text, {example}. Write 2024-01-31.")
    texts = texts_of(column, notation.number_words).drop_null().unique().to_pylist()
    if error := separators_error(name, texts, notation, lambda: example):
        raise error
    raise unusable(
        name,
        f"holds text, {example}; a feature must be a number. For another decimal mark, use ",
        other_mark(notation),
        "; if the text stands for a missing value, ",
        in_list("missing", value),
        ".",
    )


def _categories(
    column: Any, name: str, kind: list[str], notation: Notation, unknown: dict[str, Counter[str]]
) -> FloatArray:
    """Read the 0/1 features (m, n) of a column (n,) of categories."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = categories_in(column, [word for word in notation.words if word not in kind])
    codes = pc.index_in(text, value_set=pa.array(kind, pa.string()))
    is_unknown = pc.and_(pc.is_valid(text), pc.is_null(codes))
    if OTHER in kind:
        codes = pc.if_else(is_unknown, pa.scalar(kind.index(OTHER), codes.type), codes)
    else:
        for entry in text.filter(is_unknown).value_counts().to_pylist():
            unknown.setdefault(name, Counter())[entry["values"]] += entry["counts"]
    numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    features = (np.arange(len(kind))[:, None] == numbers).astype(np.float64)
    features[:, numbers < 0] = np.nan
    return features[len(kind) - len(shown(kind)) :]


# ---------------------------------------------------------------- features to columns


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
