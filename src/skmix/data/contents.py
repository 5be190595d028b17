"""What the columns of tables hold, and the kinds of columns that follow from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from .._errors import ArgumentError, ArgumentWarning
from .._words import listed, shortened
from .arrow import NUMERIC, categories_in, kind_of
from .encoding import DATE, OTHER, Kind, feature_names
from .notation import AUTO, days_of, of_text
from .problems import ColumnError, categories_error, otherwise_drop, refuse_columns, unusable

# A column has at most this many categories, unless it is declared categorical: others are `OTHER`.
_MOST_CATEGORIES = 50
_LIKE_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?")
_NAMES_OF_MARKS = {".": "point", ",": "comma"}


@dataclass(frozen=True)
class Contents:
    """What the columns of one table hold, by all of its rows."""

    # None for numbers, `DATE`, or how often a column has each category; without columns that are left out.
    values: dict[str, str | Counter[str] | None] = field(default_factory=dict)
    # Columns whose categories are all kept.
    declared: frozenset[str] = frozenset()
    notes: list[ArgumentWarning] = field(default_factory=list)


def inspect(table: Any, names: Sequence[str]) -> Contents:
    """Find out what columns of a `TableReader` hold; columns of text are read once.

    Columns that cannot be features are refused, all in one error, or left out if the notation says so.
    """
    import pyarrow.types as pa_types

    notation, types = table.notation, {name: table.types[name] for name in names if name}
    declared = {name for name, type_ in types.items() if pa_types.is_dictionary(type_)}
    declared |= {*notation.categorical} & types.keys()
    counts = _counts(table, [n for n, type_ in types.items() if n in declared or kind_of(type_) == "text"])
    contents = Contents(declared=frozenset(declared))
    errors = []
    if "" in names:
        number = list(table.types).index("") + 1
        what = f"column {number} has no name. Such a column is often a row index, not a feature."
        errors.append(ColumnError(what, column="", is_feature=True))
    for name, type_ in types.items():
        kind = kind_of(type_)
        if name in declared or kind == "null":
            contents.values[name] = counts.get(name, Counter())
        elif name in counts:
            errors += _inspect_text(contents, table, name, counts[name])
        elif kind in NUMERIC or kind == "date":
            contents.values[name] = DATE if kind == "date" else None
        else:
            what = f"is of type {type_}; a feature must be numbers, categories or dates."
            errors.append(unusable(name, what, *otherwise_drop(name)))
    errors += doubtful_marks(table, [name for name, value in contents.values.items() if value is None])
    if notation.drop != AUTO:
        refuse_columns(errors)
    if errors:
        wrong = [error.column for error in errors]
        named = listed([name or "(no name)" for name in wrong])
        note = f"left out, because they cannot be features as they are: {named}"
        contents.notes.append(ArgumentWarning(note))
        for name in wrong:
            contents.values.pop(name, None)
    return contents


def _counts(table: Any, names: list[str]) -> dict[str, Counter[str]]:
    """How often columns of text have each value."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for batch in table.batches(table.block_rows, names) if names else ():
        for name in names:
            values = categories_in(batch.column(name), table.notation.words).drop_null()
            for entry in values.value_counts().to_pylist():
                counts[name][entry["values"]] += entry["counts"]
    return counts


def _inspect_text(contents: Contents, table: Any, name: str, counts: Counter[str]) -> list[ColumnError]:
    """Add to `contents` what a column of text holds, or return its error."""
    notation = table.notation
    others = [value for value in counts if not notation.are_numbers([value])]
    known = [value for value in counts if value not in notation.number_words]
    example = partial(_example, table, name, others[0] if others else "")
    if counts and not others:
        contents.values[name] = None
    elif known and not np.isnan([days_of(value) for value in known]).any():
        contents.values[name] = DATE
    elif others and all(map(_LIKE_DATE.fullmatch, others)):
        what = f"column {name!r} holds dates, {example()}, and is left out"
        contents.notes.append(ArgumentWarning(f"{what}: write dates as 2024-01-31 to use it"))
    elif others and (error := categories_error(name, counts, others[0], notation, example)):
        return [error]
    else:
        contents.values[name] = counts
    return []


def _example(table: Any, name: str, value: str) -> str:
    """Word a value of a column as an example, with the place of the first row that has it."""
    import pyarrow.compute as pc

    n_rows = 0
    for batch in table.batches(table.block_rows, [name]):
        row = pc.index(categories_in(batch.column(name), table.notation.words), value).as_py()
        if row >= 0:
            return f"such as {shortened(value)!r} on {table.place(n_rows + row)}"
        n_rows += batch.num_rows
    raise LookupError(value)


def doubtful_marks(table: Any, names: Sequence[str]) -> list[ColumnError]:
    """Errors of columns of numbers whose decimal marks may separate thousands.

    All of them are followed by three digits, and another column of the text file has another decimal mark.
    """
    notation = table.notation
    if table.again is None or notation.thousands is not None:
        return []
    other = next((name for name in table.types if _has_other_mark(table, name)), None)
    if other is None:
        return []
    errors, as_text = [], table.read_again(as_text=(*notation.as_text, *names))
    mark, other_mark = notation.mark, notation.swapped.mark
    for name in names:
        marked = sorted(text for text in as_text.label_texts(name) or () if mark in text)
        if marked and notation.are_numbers(marked) and all(map(notation.swapped.is_grouped, marked)):
            word, other_word = _NAMES_OF_MARKS[mark], _NAMES_OF_MARKS[other_mark]
            errors.append(
                unusable(
                    name,
                    f"has three digits after every {word}, as in {marked[0]!r}, and column {other!r} has a "
                    f"decimal {other_word}: which is the decimal mark? If the {word} separates thousands, "
                    "use ",
                    of_text("decimal", other_mark),
                    " and ",
                    of_text("thousands", mark),
                    f"; if the {word} is a decimal mark, use ",
                    of_text("thousands", ""),
                    ".",
                )
            )
    return errors


def _has_other_mark(table: Any, name: str) -> bool:
    """Whether a column has numbers with the other decimal mark, not all of them thousands."""
    texts, other = table.label_texts(name) or (), table.notation.swapped
    as_thousands = replace(table.notation, thousands=other.mark)
    return other.are_numbers(texts) and any(
        other.mark in text and not as_thousands.is_grouped(text) for text in texts
    )


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
            kind = sorted(counts)
            if len(kind) > _MOST_CATEGORIES and not any(name in table.declared for table in tables):
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


def check_same_kinds(table: Any, first: Any, contents: Contents, first_contents: Contents) -> None:
    """Raise ArgumentError if a column holds text in one table and numbers in another, for example."""
    for name in contents.values.keys() & first_contents.values.keys():
        kind = _kind_in_words(table, name, contents.values[name])
        other = _kind_in_words(first, name, first_contents.values[name])
        if None not in (kind, other) and kind != other:
            both = f"column {name!r} holds {kind} in {table.name} and {other} in {first.name}"
            raise ArgumentError(f"Files disagree: {both}.")


def _kind_in_words(table: Any, name: str, values: str | Counter[str] | None) -> str | None:
    """What a column holds in words; None if it has no value."""
    if isinstance(values, Counter):
        return "text" if values else None
    batches = table.batches(table.block_rows, [name])
    if all(batch.column(name).null_count == batch.num_rows for batch in batches):
        return None
    return "numbers" if values is None else "dates"
