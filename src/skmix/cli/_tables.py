"""Tables and models on the command line: how both are read and written."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from skmix.cli._common import (
    BAD_INPUT,
    STANDARD,
    WRONG_USE,
    failing,
    in_options,
    note,
    stop,
)
from skmix.cli._progress import Watch
from skmix.groups import Study, load
from skmix.io import ColumnError, TableRows, read_rows, replacing, writable_folder, write_columns
from skmix.io.encoding import Kind, listed, plain_text
from skmix.io.labels import class_labels, labels_like, number_labels
from skmix.io.preparation import Preparation, check_scale_known, scale_in_words
from skmix.io.remarks import column_remarks
from skmix.io.writing import check_writable, is_device
from skmix.report._predictions import target_of


def read(watch: Watch, data: str, *, drop: Any = None, remarks: bool = False, **options: Any) -> TableRows:
    """Read a table or standard input with `read_rows`; stop with a hint if a column cannot be used."""
    if data == STANDARD and sys.stdin is None:
        stop("standard input is closed.", BAD_INPUT)
    source = cast("str | BinaryIO", sys.stdin.buffer if data == STANDARD else data)
    options["drop"] = drop or ()
    try:
        with watch.share("reading") as progress:
            rows = read_rows(source, progress=progress, **options)
        found = column_remarks(rows) if remarks else []
    except ColumnError as error:
        hint = f" Leave it out with --drop {error.column!r}."
        if options.get("target") is None:
            hint = f"{hint[:-1]}, or use --target {error.column!r} if it holds labels."
        has_features = "features" in options or "columns" in (options.get("preparation") or {})
        stop(f"{in_options(error)}{hint if error.is_feature and not has_features else ''}", BAD_INPUT)
    if rows.ignored:
        note(
            f"ignored, not a feature of the model: {listed([name or '(no name)' for name in rows.ignored])}."
        )
    for each in rows.notes:
        note(f"{in_options(each)}.")
    for each in found:
        note(in_options(each))
    return rows


def read_to_fit(watch: Watch, data: str, **options: Any) -> TableRows:
    """Read a table for a fit, with notes on its scale and on columns that may be no measurements."""
    rows = read(watch, data, remarks=True, **options)
    prepared = rows.preparation or {"transform": "none"}
    if "compensate" in prepared or prepared["transform"] != "none":
        spilt = ", compensated for spill-over" if prepared.get("compensate") else ""
        note(f"values are on the scale {scale_in_words(prepared['transform'])}{spilt}.")
    coded = [name for name, kind in rows.columns.items() if isinstance(kind, list)]
    if options["target"] is None and coded:
        note(
            f"without --target, all columns are features. If {coded[-1]!r} is the column of labels, use "
            f"--target {coded[-1]!r}."
        )
    return rows


def training_rows(rows: TableRows, target: str | None, unlabelled: str) -> tuple[Any, Any, Any]:
    """Return rows to fit: X (n, M), labels (n,) or None, and weights (n,) or None; none has a weight of 0.

    The number −1 marks rows without a label, as in Python, unless empty cells do. Where it may as well be a
    class, which Python refuses, the labels become text.
    """
    y, taken = None, np.ones(len(rows.X), dtype=np.bool_) if rows.weights is None else rows.weights > 0.0
    if target is not None and rows.labels is not None:
        y, known = class_labels(rows.labels, target)
        if known.all():
            try:
                known = number_labels(y)[1] >= 0
            except ValueError:
                y = y.astype(str)
        n_missing = int(np.count_nonzero(~known))
        if n_missing and unlabelled == "refuse":
            raise ValueError(
                f"column {target!r} has no label in {n_missing} of {len(y)} rows. Leave these rows out with "
                "--unlabelled drop, or learn from them too with --unlabelled use."
            )
        if unlabelled == "drop":
            taken &= known
        elif n_missing:
            y = y.astype(object)
            y[~known] = None
    X, y, weights = (None if each is None else each[taken] for each in (rows.X, y, rows.weights))
    return X, y, weights


def read_for(watch: Watch, model: Any, data: str, *, drop: Any = None, **options: Any) -> TableRows:
    """Read the features of a model from a table, by their names, in any order."""
    names = getattr(model, "feature_names_in_", None)
    options["preparation"] = getattr(model, "preparation_", None)
    if names is not None:
        # Without a note that columns of labels and weights are ignored.
        set_aside = (target_of(model), getattr(model, "metadata_", {}).get("weight"))
        aside = [*(drop or ()), *(name for name in set_aside if name is not None)]
        rows = read(watch, data, features=columns_of(model), drop=aside, **options)
        _check_scale_known(options["preparation"], rows)
        return rows
    rows = read(watch, data, drop=drop, **options)
    _check_scale_known(options["preparation"], rows)
    text = [name for name, kind in rows.columns.items() if kind is not None]
    if text:
        stop(f"column {text[0]!r} holds text, but the model was fitted to numbers.", BAD_INPUT)
    if rows.X.shape[1] != model.n_features_in_:
        stop(
            f"the model has {model.n_features_in_} features without names, but {data} has "
            f"{rows.X.shape[1]} columns: {', '.join(rows.feature_names[:10])}. Leave others out with --drop.",
            BAD_INPUT,
        )
    note("the model has no feature names; columns are taken in their order.")
    return rows


def columns_of(model: Any) -> dict[str, Kind]:
    """Return the columns that the features of a model were made of, and what they hold."""
    found = getattr(model, "preparation_", {}).get("columns")
    return found or {str(name): None for name in getattr(model, "feature_names_in_", ())}


def _check_scale_known(own: Preparation | None, rows: TableRows) -> None:
    """Refuse FCS files for a model that does not say how its rows were prepared."""
    found = rows.preparation or {}
    check_scale_known(own, found["transform"] if "compensate" in found else None)


def read_labelled(
    watch: Watch, model: Any, data: str, target: str | None, **options: Any
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64] | None]:
    """Read the rows that have a label, their labels as the model's classes, and their weights."""
    column = target or target_of(model)
    if not column:
        stop("the model has no target column. Name the column of labels with --target COLUMN.", WRONG_USE)
    rows = read_for(watch, model, data, target=column, **options)
    assert rows.labels is not None
    given = rows.labels
    if model.classes_.dtype.kind in "if" and -1 not in model.classes_:
        # As in a fit, -1 marks rows without a label.
        given = [None if plain_text(label) == "-1" else label for label in given]
    labels, known = labels_like(given, model.classes_, column)
    if not known.any():
        stop(f"column {column!r} has no label in {len(known)} rows.", BAD_INPUT)
    if not known.all():
        note(f"{np.count_nonzero(~known)} of {len(known)} rows have no label in {column!r} and are left out.")
    return rows.X[known], labels[known], None if rows.weights is None else rows.weights[known]


def name_of(data: str) -> str:
    """Return what to call a table in a title."""
    return "standard input" if data == STANDARD else Path(data).name


def load_any(path: str) -> Any:
    """Return the model or the study in a file."""
    if path == STANDARD:
        stop("a model must be a file; - is for tables.", WRONG_USE)
    return load(path)


def load_model(path: str) -> Any:
    """Return the model in a file; of a study, the mixture inside."""
    found = load_any(path)
    return found.model if isinstance(found, Study) else found


def check_place(
    out: str | None, *, reading: Sequence[str | Path | None], table: bool = False, as_json: bool = False
) -> None:
    """Create the folder of a file; stop if the file cannot be written or is one of those to be read.

    A table needs a known suffix. With `as_json`, standard output is reserved for a summary.
    """
    if out == STANDARD and as_json:
        where = "table to a file: --out FILE" if table else "graph to a file: --onnx FILE"
        stop(f"--json prints a summary to standard output; write the {where}.", WRONG_USE)
    if out is None or out == STANDARD:
        return
    place = Path(out)
    with failing(f"cannot write {out}"):
        if table:
            try:
                check_writable(place)
            except ValueError as error:
                stop(str(error), WRONG_USE)
        folder = (Path(os.path.realpath(place)) if place.is_symlink() else place).parent
        if place.is_dir():
            stop(f"cannot write {out}: it is a folder. Name a file in it.", WRONG_USE)
        if folder.exists() and not folder.is_dir():
            stop(f"cannot write {out}: {folder} is not a folder.", WRONG_USE)
        for each in reading:
            if each is not None and place.exists() and os.path.exists(each) and place.samefile(each):
                stop(f"cannot write {out}: it is also an input. Name another file.", WRONG_USE)
        if not is_device(place):
            writable_folder(folder)


def write_table(out: str, columns: Mapping[str, NDArray[Any]], digits: int | None = None) -> None:
    """Write columns into a file, or as CSV to standard output."""
    with failing(f"cannot write {out}"):
        write_columns(_standard_output() if out == STANDARD else out, columns, digits=digits)


def write_model(out: str, model: Any) -> None:
    """Write a model into a file or to standard output."""
    if out != STANDARD:
        with failing(f"cannot write {out}"):
            model.save(out)
        return
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        write_bytes(out, (Path(folder) / "model").read_bytes())


def write_bytes(out: str, content: bytes) -> None:
    """Write a file, or to standard output."""
    with failing(f"cannot write {out}"):
        if out == STANDARD:
            _standard_output().write(content)
        else:
            with replacing(out) as file:
                file.write(content)


def _standard_output() -> BinaryIO:
    """Return standard output as a stream of bytes, after flushing text."""
    if getattr(sys.stdout, "name", None) == os.devnull:
        stop("standard output is closed.", WRONG_USE)
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)
