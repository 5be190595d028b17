"""What is known about samples: a table with a row for each, such as its condition, donor and batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed, nearest
from ..data import MISSING, open_rows, stem_of
from .description import pandas

# Columns of metadata, each with a plain value for every sample; None for missing ones.
Columns = Mapping[str, Sequence[Any]]


def read_metadata(given: Any, needed: Mapping[str, str | None]) -> Any:
    """Return metadata, if any, as a frame whose index names samples, or as columns without names.

    `needed` has the columns that arguments name; one that is not there is refused.
    """
    table = _read_table(given) if isinstance(given, (str, os.PathLike)) else given
    if table is not None and (not isinstance(table, Mapping) or "sample" in table):
        table = pandas().DataFrame(table)
        table = table.set_index("sample") if "sample" in table else table
    for argument, name in needed.items():
        if name is not None:
            column_of(table, argument, name)
    return table


def _read_table(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    source = open_rows(path, text={"as_text": ["sample"]})
    if len(source.readers) > 1:
        raise ArgumentError(
            Argument("metadata"), f" must be one table, but {path} has {len(source.readers)}."
        )
    reader: Any = source.first
    present = reader.all_names if reader.is_table else []
    if "sample" not in present:
        there = f"{listed(present)}.{nearest('sample', present)}"
        raise ArgumentError(
            Argument("metadata"), f" has no column sample, which names samples; {path} has {there}"
        )
    return {name: [None if v in MISSING else v for v in reader.column(name)] for name in present}


def align(table: Any, samples: Sequence[Any]) -> dict[str, list[Any]] | None:
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
    named = [str(name).strip() for name in table.index]
    # The name of a file, without its suffix, and without its folder too.
    spellings = (named, [stem_of(name) for name in named], [stem_of(PurePath(name).name) for name in named])
    rows_of: list[list[int]] = []
    for sample in map(str, samples):
        found = ([i for i, name in enumerate(names) if name == sample] for names in spellings)
        rows_of.append(next(filter(None, found), []))
    for number, what in ((0, "no row"), (2, "two rows")):
        wrong = [str(s) for s, rows in zip(samples, rows_of, strict=True) if min(len(rows), 2) == number]
        if wrong:
            where, advice = "column sample", nearest(wrong[0], named)
            if table.index.name != "sample":
                where, advice = "index", f" Name samples in a column sample.{nearest('sample', table)}"
            elif any(name.lstrip("0") in named for name in wrong):
                advice = " Write these names as text, with their zeros."
            raise ArgumentError(
                Argument("metadata"),
                f" has {what} for {listed(wrong, 5)}: it needs one for each sample, and its {where} has "
                f"{listed(named, 5)}.{advice}",
            )
    table = table.iloc[[rows[0] for rows in rows_of]]
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


def column_of(table: Any, argument: str, name: Any) -> Any:
    """Return the column of the metadata that an argument names, or say what is there."""
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
        raise ArgumentError(
            Argument(argument, name),
            f" is not a column of the metadata: {list(table)}.{nearest(name, table)}",
        )
    return table[name]
