"""Conditions of samples: their metadata, and the samples, pairs and covariate of a comparison."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import PurePath
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed, nearest
from ..data import open_rows
from ..data.notation import MISSING
from ..data.opening import stem_of
from ..data.tables import TableReader
from ..engine.records import BoolArray, FloatArray, IntArray
from .differences import Sides
from .proportions import pandas, places_of, shown

# Columns of metadata, each with a plain value for every sample; None for missing ones.
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Design:
    """The columns of a comparison: a condition of two values, and pairs or a covariate.

    Differences are those from the reference, a value of the condition; without one, the value that comes last
    in sorted order is the reference.
    """

    condition: str
    pair: str | None = None
    covariate: str | None = None
    reference: Any = None


def read_metadata(given: Any, design: Design | None = None) -> Any:
    """Return metadata, if any, as a frame whose index names samples, or as columns without names.

    Raises ArgumentError if they lack a column of the `design`.
    """
    table = given
    if isinstance(given, (str, os.PathLike)):
        (reader,) = open_rows(given, text={"as_text": ["sample"]}).readers.values()
        present = reader.all_names if isinstance(reader, TableReader) else []
        if not isinstance(reader, TableReader) or "sample" not in present:
            there = f"{listed(present)}.{nearest('sample', present)}"
            raise ArgumentError(
                Argument("metadata"), f" has no column sample, which names samples; {given} has {there}"
            )
        columns = {name: reader.column(name) for name in present}
        table = {name: [None if v in MISSING else v for v in own] for name, own in columns.items()}
    if table is not None and (not isinstance(table, Mapping) or "sample" in table):
        table = pandas().DataFrame(table)
        table = table.set_index("sample") if "sample" in table else table
    if design is not None:
        for argument in ("condition", "pair", "covariate"):
            if getattr(design, argument) is not None:
                _column(table, argument, getattr(design, argument))
    return table


def metadata_of(table: Any, samples: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return the metadata of samples (L,) from what `read_metadata` returned; None if there is none.

    Rows name samples by their files, with or without folder and suffix; columns without names are in their
    order.
    """
    if table is None:
        return None
    if isinstance(table, Mapping):
        table = pandas().DataFrame(table)
        if len(table) != len(samples):
            raise ArgumentError(
                Argument("metadata"),
                f" has {len(table)} rows for {len(samples)} samples: name these in a column sample.",
            )
        table = table.set_axis(list(samples))
    given = [str(name).strip() for name in table.index]
    places: list[dict[str, list[int]]] = [{}, {}, {}]
    for place, name in enumerate(given):
        for known, key in zip(places, (name, stem_of(name), stem_of(PurePath(name).name)), strict=True):
            known.setdefault(key, []).append(place)
    lines = [next((known[str(name)] for known in places if str(name) in known), []) for name in samples]
    for number, what in ((0, "no row"), (2, "two rows")):
        wrong = [str(name) for name, own in zip(samples, lines, strict=True) if min(len(own), 2) == number]
        if wrong:
            where, advice = "column sample", nearest(wrong[0], given)
            if table.index.name != "sample":
                where, advice = "index", f" Name samples in a column sample.{nearest('sample', table)}"
            elif any(name.lstrip("0") in given for name in wrong):
                advice = " Write these names as text, with their zeros."
            raise ArgumentError(
                Argument("metadata"),
                f" has {what} for {listed(wrong, 5)}: it needs one for each sample, and its {where} has "
                f"{listed(given, 5)}.{advice}",
            )
    table = table.iloc[[place for (place,) in lines]]
    table = table.astype(object).where(table.notna(), None)
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table}


def _plain(value: Any) -> Any:
    """Return a value that a file of a study can hold; whole numbers as integers, and dates as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value).strip().removesuffix(" 00:00:00")


def _column(table: Any, argument: str, name: Any) -> Any:
    if not isinstance(name, str):
        raise ArgumentError(
            "Name a metadata column as ",
            Argument(argument),
            ", or give both lists of samples: compare(list1, list2).",
        )
    if table is None:
        raise ArgumentError(
            Argument(argument, name), " needs ", Argument("metadata"), " with a column of that name."
        )
    if name not in table:
        close = nearest(name, table)
        raise ArgumentError(
            Argument(argument, name), f" is not a column of the metadata: {list(table)}.{close}"
        )
    return table[name]


def sides_of(samples: np.ndarray, table: Columns | None, design: Design) -> Sides:
    """Return the sides of a condition, whose values are in the metadata of samples (L,)."""
    column = _column(table, "condition", design.condition)
    texts = [None if value is None else str(value) for value in column]
    values = sorted({text for text in texts if text is not None})
    if len(values) != 2:
        raise ArgumentError(
            Argument("condition", design.condition), f" must have two values, but has {values[:5]}."
        )
    if design.reference is not None:
        reference = str(design.reference)
        if reference not in values:
            there = f"{values}.{nearest(reference, values)}"
            raise ArgumentError(
                Argument("reference", reference), f" is not a value of {design.condition}, which has {there}"
            )
        values.sort(key=reference.__eq__)
    first, second = (np.flatnonzero([text == value for text in texts]) for value in values)
    found = _sides(samples, table, (values[0], values[1]), first, second, design.pair, design.covariate)
    without = samples[[text is None for text in texts]].tolist()
    return replace(found, left_out=(*without, *found.left_out))


def given_sides(
    samples: np.ndarray, table: Columns | None, one: Any, other: Any, pair: str | None, covariate: str | None
) -> Sides:
    """Return sides given as names of samples."""
    first, second = places_of(samples, one, "condition"), places_of(samples, other, "other")
    both = samples[np.intersect1d(first, second)].tolist()
    if both:
        raise ValueError(f"condition and other both have {shown(both)}.")
    return _sides(samples, table, ("a", "b"), first, second, pair, covariate)


def _sides(
    samples: np.ndarray,
    table: Columns | None,
    names: tuple[Any, Any],
    first: IntArray,
    second: IntArray,
    pair: str | None,
    covariate: str | None,
) -> Sides:
    """Return the sides, with the samples of complete pairs or with a covariate only."""
    places, is_first = np.concatenate([first, second]), np.repeat([True, False], [len(first), len(second)])
    if pair is not None and covariate is not None:
        raise ArgumentError(
            Argument("pair", pair),
            " and ",
            Argument("covariate", covariate),
            " cannot be combined: pairs are compared within, where what they have in common does not matter.",
        )
    if pair is None and covariate is None:
        return Sides(names, places, is_first, None, None, ())
    argument, name = ("covariate", covariate) if pair is None else ("pair", pair)
    assert name is not None
    column = _column(table, argument, name)
    values = [column[place] for place in places]
    known = {value for value in values if value is not None}
    if pair is not None:
        known &= {value for value, one in zip(values, is_first, strict=True) if one}
        known &= {value for value, one in zip(values, is_first, strict=True) if not one}
    kept = np.array([value in known for value in values])
    left_out = tuple(samples[places[~kept]].tolist())
    places, is_first = places[kept], is_first[kept]
    values = [value for value in values if value in known]
    if pair is None:
        columns = _covariate(Argument("covariate", covariate), values, is_first)
        return Sides(names, places, is_first, None, columns, left_out)
    if len(known) < 2:
        raise ArgumentError(
            Argument("pair", pair),
            f" has samples of both sides in {len(known)} pair(s): at least 2 are needed.",
        )
    numbers = {value: number for number, value in enumerate(sorted(known, key=str))}
    return Sides(names, places, is_first, np.array([numbers[value] for value in values]), None, left_out)


def _covariate(argument: Argument, values: Sequence[Any], is_first: BoolArray) -> FloatArray:
    """Return the columns (L, C) of a covariate in a linear model: one of numbers, or one for each category.

    Whole numbers that each have several samples are categories, such as batches 1, 2 and 3.
    """
    counts = Counter(values)
    if len(counts) < 2:
        raise ArgumentError(argument, f" must have two values or more, but has {list(counts)}.")
    numbers = all(isinstance(value, Real) and not isinstance(value, (bool, np.bool_)) for value in counts)
    if numbers and not (min(counts.values()) > 1 and all(float(value).is_integer() for value in counts)):
        columns = np.array(values, dtype=np.float64)[:, None]
        if not np.isfinite(columns).all():
            raise ArgumentError(argument, " has an infinite value.")
        columns = (columns - columns.mean()) / (columns.std() or 1.0)
    else:
        columns = np.array(
            [[value == other for other in [*counts][1:]] for value in values], dtype=np.float64
        )
    n_samples, n_columns = columns.shape
    if n_samples < n_columns + 3:
        raise ArgumentError(
            argument,
            f" has {len(counts)} values in {n_samples} samples: at least {n_columns + 3} samples are needed.",
        )
    if np.linalg.matrix_rank(np.column_stack([np.ones(n_samples), is_first, columns])) < n_columns + 2:
        raise ArgumentError(
            argument, " is confounded with the condition: each of its values is on one side only."
        )
    return columns
