"""Tables and models on the command line: shared options, and how both are read and written."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import numpy as np
import typer
from numpy.typing import NDArray

from skmix.cli._common import BAD_INPUT, STANDARD, WRONG_USE, note, stop, writing
from skmix.datasets import (
    WRITABLE,
    ColumnError,
    TableRows,
    check_writable,
    labels_like,
    read_rows,
    write_columns,
)
from skmix.estimators import load
from skmix.experiments.harness import writable_folder
from skmix.io import replacing
from skmix.report import metadata_of

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Table with a line of names: CSV, TSV (.gz too), Parquet or NPZ; - reads standard input.",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as skmix fit writes it.")]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="COLUMN", help="Column of labels; by default the one of the fit."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Leave a column out; may be given several times."),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="The first line has values; columns are column_1, column_2 ...")
]
Out = Annotated[
    str,
    typer.Option(
        "--out", "-o", metavar="FILE", help=f"Where to: {', '.join(WRITABLE)}; - is CSV on standard output."
    ),
]
Digits = Annotated[
    int | None, typer.Option("--digits", help="Significant digits of numbers in text; by default all.", min=1)
]
Html = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="Write a page to open in a browser.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0, max=2**32 - 1)]


def read(data: str, *, features: Sequence[str] | None = None, **options: Any) -> TableRows:
    """Read a table or standard input with `read_rows`; stop with a hint if a column cannot be used."""
    source = sys.stdin.buffer if data == STANDARD else data
    try:
        rows = read_rows(cast("str | BinaryIO", source), features=features, **options)
    except ColumnError as error:
        hint = f" Leave it out with --drop {error.column!r}." if error.is_feature and features is None else ""
        stop(f"{error}{hint}", BAD_INPUT)
    for each in rows.notes:
        note(each + ".")
    return rows


def read_for(model: Any, data: str, *, drop: Sequence[str] = (), **options: Any) -> TableRows:
    """Read the features of a model from a table, by their names, in any order."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        # Without a note that the column of labels is ignored.
        target = metadata_of(model)["target"]
        aside = [] if target is None else [target]
        return read(data, features=[str(name) for name in names], drop=[*drop, *aside], **options)
    rows = read(data, drop=drop, **options)
    if rows.X.shape[1] != model.n_features_in_:
        stop(
            f"the model has {model.n_features_in_} features without names, but {data} has "
            f"{rows.X.shape[1]} columns: {', '.join(rows.feature_names[:10])}. Leave others out with --drop.",
            BAD_INPUT,
        )
    note("the model has no feature names; columns are taken in their order.")
    return rows


def read_labelled(
    model: Any, data: str, target: str | None, **options: Any
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Read the rows that have a label, and their labels as the model's classes."""
    column = target or metadata_of(model)["target"]
    if not column:
        stop("the model has no target column. Name the column of labels with --target COLUMN.", WRONG_USE)
    rows = read_for(model, data, target=column, **options)
    assert rows.labels is not None
    labels, known = labels_like(rows.labels, model.classes_, column)
    if not known.any():
        stop(f"column {column!r} has no label in {len(known)} rows.", BAD_INPUT)
    if not known.all():
        note(f"{np.count_nonzero(~known)} of {len(known)} rows have no label in {column!r} and are left out.")
    return rows.X[known], labels[known]


def load_model(path: str) -> Any:
    """Return the model in a file."""
    if path == STANDARD:
        stop("a model must be a file; - is for tables.", WRONG_USE)
    return load(path)


def check_out(out: str, *, reading: Sequence[str] = ()) -> None:
    """Stop, before any work, if a table cannot be written or has an unknown suffix."""
    if out != STANDARD:
        try:
            check_writable(Path(out))
        except ValueError as error:
            stop(str(error), WRONG_USE)
    check_place(out, reading=reading)


def check_place(out: str | None, *, reading: Sequence[str | None] = ()) -> None:
    """Create the folder of a file; stop if the file cannot be written or is one of those to be read."""
    if out is None or out == STANDARD:
        return
    place = Path(out)
    with writing(out):
        if place.is_dir():
            stop(f"cannot write {out}: it is a folder. Name a file in it.", WRONG_USE)
        if place.parent.exists() and not place.parent.is_dir():
            stop(f"cannot write {out}: {place.parent} is not a folder.", WRONG_USE)
        for each in reading:
            if each is not None and place.exists() and Path(each).exists() and place.samefile(each):
                stop(f"cannot write {out}: it is also an input. Name another file.", WRONG_USE)
        writable_folder(place.parent)


def write_table(out: str, columns: Mapping[str, NDArray[Any]], digits: int | None = None) -> None:
    """Write columns into a file, or as CSV to standard output."""
    with writing(out):
        write_columns(standard_output() if out == STANDARD else out, columns, digits=digits)


def write_model(out: str, model: Any) -> None:
    """Write a model into a file or to standard output."""
    with writing(out):
        if out != STANDARD:
            model.save(out)
            return
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            standard_output().write((Path(folder) / "model").read_bytes())


def write_page(out: str, page: str) -> None:
    """Write a page into a file or to standard output."""
    with writing(out):
        if out == STANDARD:
            standard_output().write(page.encode())
        else:
            with replacing(out) as file:
                file.write(page.encode())


def standard_output() -> BinaryIO:
    """Return standard output as a stream of bytes, after flushing text."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)
