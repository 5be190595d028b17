"""Tables and models on the command line: how both are read and written."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from skmix._words import listed
from skmix.cli._common import BAD_INPUT, STANDARD, WRONG_USE, failing, guarded, in_options, note, stop
from skmix.cli._printing import print_json, say
from skmix.cli._progress import Watch, watching
from skmix.data import ColumnError, Source, open_rows, write_columns
from skmix.data.encoding import Kind
from skmix.data.formats import format_of, named_columns
from skmix.data.labels import all_unlabelled, check_classes, code_labels, number_labels, typed
from skmix.data.missing import is_missing
from skmix.data.notation import AUTO
from skmix.data.problems import TableError, column_remarks, refuse_empty_columns
from skmix.data.recipe import in_words, target_of, writing_of
from skmix.data.write import check_writable, is_device, replacing, writable_folder
from skmix.model.frames import read_into_memory
from skmix.model.rows import with_features_of
from skmix.samples import Study, load

Labelled = tuple[Any, NDArray[Any] | None, NDArray[np.float64] | None]
"""Rows for an estimator, their labels (n,), None for a row without one, and their weights (n,)."""


@contextmanager
def _reading(watch: Watch, data: str, *advice: str) -> Iterator[Path]:
    """Yield the path of a table, after copying standard input or a pipe; stop if the body cannot read it.

    Errors about the column of a feature end in the advice, with the name of the column.
    """
    path, folder = Path(data), ""
    with watch.steps("reading", None), ExitStack() as stack:
        if data == STANDARD or is_device(path):
            stream = sys.stdin.buffer if data == STANDARD else stack.enter_context(open(data, "rb"))
            folder = stack.enter_context(tempfile.TemporaryDirectory()) + os.sep
            path = Path(folder, "standard input" if data == STANDARD else path.name)
            with open(path, "wb") as copy:
                shutil.copyfileobj(stream, copy)
        try:
            yield path
        except ValueError as error:
            message = in_options(error).replace(folder, "") if folder else in_options(error)
            if isinstance(error, ColumnError) and error.is_feature and not isinstance(error, TableError):
                for each in advice:
                    message += "" if "--drop" in message and "--drop" in each else each.format(error.column)
            stop(message, BAD_INPUT)


def read_to_fit(
    watch: Watch,
    data: str,
    *,
    target: str | None,
    weight: str | None,
    drop: Collection[str],
    unlabelled: str,
    text: dict[str, Any],
    preparation: dict[str, Any],
) -> Labelled:
    """Read a table for a fit; return the rows that have a weight, their labels and their weights.

    Note which columns are encoded, on which scale values are, and which columns may be no measurements.
    """
    use = [] if target is not None else [" If it holds labels, use --target {!r}."]
    with _reading(watch, data, " Leave it out with --drop {!r}.", *use) as path:
        source = _open(path, text | {"as_text": _names(target)}, **preparation)
        present = _reader(source).all_names
        if AUTO in drop and AUTO not in present:
            drop = [name for name in drop if name != AUTO]
            source = _open(path, text | {"as_text": _names(target), "drop": AUTO}, **preparation)
        used = [*_names(target, weight), *text["categorical"]]
        _reader(source).check_present([*used, *drop])
        for name in drop:
            if name in used:
                raise ColumnError(f"column {name!r} cannot be both used and left out.", column=name)
        aside = {*_names(target, weight), *drop}
        features = present
        if not _reader(source).is_table:
            features = source.feature_names or []
            if left := [name for name in present if name not in features]:
                note(f"left out, because they measure no marker of their own: {listed(left)}.")
        features = [name for name in features if name not in aside]
        if not features:
            raise ValueError(f"no column is left as a feature; the table has {listed(present)}.")
        source = _with_roles(source.select(features), target, weight)
        reader = _reader(source)
        rows, y, weights = read_into_memory(source)
        numeric = np.flatnonzero(source.numeric)
        names = source.feature_names or []
        if target is not None and y is not None:
            check_classes(y, target, source.name)
        numbers, named = rows.X[:, numeric], [names[feature] for feature in numeric]
        refuse_empty_columns(numbers, named)
        remarks = column_remarks(numbers, named)
        rows, y, weights = _with_values(rows, y, weights, reader)
    for each in source.remarks():
        note(f"{in_options(each)}.")
    kinds = source.kinds
    if encoded := [name for name, kind in kinds.items() if isinstance(kind, list)]:
        note(f"encoded as categories: {listed(encoded)}.")
    for each in remarks:
        note(in_options(each))
    prepared = source.preparation or {"transform": "none"}
    if "compensate" in prepared or prepared["transform"] != "none":
        note(f"values are on the scale {in_words(prepared)}.")
    coded = [name for name, kind in kinds.items() if kind is not None]
    if target is None and coded:
        note(
            f"without --target, all columns are features. If {coded[-1]!r} is the column of labels, use "
            f"--target {coded[-1]!r}."
        )
    return _training_rows((rows, y, weights), target, unlabelled)


def _with_values(rows: Any, y: Any, weights: Any, reader: Any) -> Labelled:
    """Leave out rows (n, M) without any value, with a note."""
    is_empty = np.isnan(rows.X).all(axis=1)
    places = np.flatnonzero(is_empty)
    if len(places):
        where = reader.place(int(places[0])) if reader.is_table else f"row {places[0] + 1}"
        note(f"{len(places)} of {len(rows)} rows have no value and are left out; the first is {where}.")
    return rows[~is_empty], *(None if values is None else values[~is_empty] for values in (y, weights))


def _training_rows(rows: Labelled, target: str | None, unlabelled: str) -> Labelled:
    """Return the rows to fit; none has a weight of 0.

    The number −1 marks rows without a label, as in Python, unless empty cells do. Where it may also be a
    class, which Python refuses, the labels become text.
    """
    X, y, weights = rows
    taken = np.ones(len(X), dtype=np.bool_) if weights is None else weights > 0.0
    if target is not None and y is not None:
        known = ~is_missing(y)
        try:
            known = number_labels(y)[1] >= 0
        except ValueError:
            y = y.astype(str)
        n_missing = int(np.count_nonzero(~known))
        if n_missing and unlabelled == "refuse":
            raise ValueError(
                f"column {target!r} has no label in {n_missing} of {len(y)} rows. Leave these rows out with "
                "--unlabelled drop, or learn from them too with --unlabelled use. If words such as NA are "
                "classes, use --missing ''."
            )
        if unlabelled == "drop":
            taken &= known
        elif n_missing:
            y = y.astype(object)
            y[~known] = None
    y, weights = (None if each is None else each[taken] for each in (y, weights))
    return X[taken], y if y is None or is_missing(y).any() else _without_doubt(typed(y)), weights


def _without_doubt(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels (n,), all of classes, as text where Python would not take −1 for a class."""
    try:
        doubtful = bool((number_labels(y)[1] < 0).any())
    except ValueError:
        doubtful = True
    return y.astype(str) if doubtful else y


def read_for(
    watch: Watch,
    model: Any,
    data: str,
    text: dict[str, Any],
    *,
    target: str | None = None,
    weight: str | None = None,
    drop: Collection[str] = (),
    keep: Sequence[str] = (),
    sample: str | None = None,
    damaged: str = "refuse",
) -> tuple[Labelled, dict[str, NDArray[Any]]]:
    """Return the features of a model in a table, prepared as the model does, and the columns to `keep`.

    Columns are matched by name. Labels and weights are those of the columns `target` and `weight`; if the
    table has a column `sample`, labels are the samples in it.
    """
    columns = columns_of(model)
    coded = [name for name, kind in columns.items() if isinstance(kind, list)]
    text = {**text, "as_text": [*coded, *keep, *_names(target, sample)]}
    # The marks of the model's fit, unless others are given.
    marks = writing_of(getattr(model, "preparation_", None))
    text |= {name: marks[name] for name in ("decimal", "thousands") if text[name] is None and name in marks}
    with _reading(watch, data) as path:
        source = _open(path, text, damaged=damaged)
        present = _reader(source).all_names
        target = sample if sample in present else target
        weight_of_fit = getattr(model, "metadata_", {}).get("weight")
        if target is not None and weight is None and weight_of_fit is not None:
            weight = weight_of_fit if weight_of_fit in present else None
            if weight is None:
                note(f"there is no column {weight_of_fit!r}, the weights of the fit: each row counts once.")
        _reader(source).check_present([*keep, *_names(target, weight)])
        drop = [name for name in drop if name != AUTO or name in present]
        if needed := sorted({*drop} & {*columns}):
            raise ValueError(
                f"column {needed[0]!r} is a feature of the model and cannot be left out. Where its values "
                "are unknown, leave its cells empty."
            )
        aside = {*drop, *keep, *_names(target, weight, target_of(model), weight_of_fit)}
        source = _with_columns(source, columns, [name for name in present if name not in aside])
        kept = {name: np.array(_reader(source).column(name), dtype=object) for name in keep}
        source = with_features_of(model, _with_roles(source, target, weight))
        rows = read_into_memory(source)
        for each in source.remarks():
            note(f"{in_options(each)}.")
    return rows, kept


def _with_columns(source: Source, columns: Mapping[str, Kind], present: Sequence[str]) -> Source:
    """Return a table with the columns of a model, given those of its own that are not set aside."""
    reader = _reader(source)
    if not columns:
        if not reader.is_table:  # all channels but Time
            present = [name for name in source.feature_names or [] if name in present]
        source = source.select(present)
        for name, kind in source.kinds.items():
            if kind is not None:
                what = "text" if isinstance(kind, list) else "dates"
                raise ValueError(f"column {name!r} holds {what}, but the model was fitted to numbers.")
        note("the model has no feature names; columns are taken in their order.")
        return source
    ignored = [name or "(no name)" for name in present if name not in columns]
    if ignored and reader.is_table:
        note(f"ignored, not a feature of the model: {listed(ignored)}.")
    return source


def read_labelled(
    watch: Watch, model: Any, data: str, text: dict[str, Any], target: str | None, **roles: Any
) -> Labelled:
    """Return the rows of a table that have a label, their labels as classes of the model, and weights."""
    column = target or target_of(model)
    if not column:
        stop("the model has no target column. Name the column of labels with --target COLUMN.")
    (rows, y, weights), _ = read_for(watch, model, data, text, target=column, **roles)
    assert y is not None
    codes = code_labels(y, model.classes_, len(y), unlabelled=True, name=f"column {column!r}")
    known = codes >= 0
    if not known.any():
        raise all_unlabelled(len(known), "standard input" if data == STANDARD else data)
    if not known.all():
        note(f"{np.count_nonzero(~known)} of {len(known)} rows have no label in {column!r} and are left out.")
    return rows[known], model.classes_[codes[known]], None if weights is None else weights[known]


# ---------------------------------------------------------------- opened tables


def _open(path: Path, text: dict[str, Any], **preparation: Any) -> Source:
    """Open a table with all its columns; those of a matrix get names."""
    return open_rows(named_columns(path) if format_of(path) == "npy" else path, text=text, **preparation)


def _names(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _reader(source: Source) -> Any:
    (reader,) = source.readers.values()
    return reader


def _with_roles(source: Source, target: str | None, weight: str | None) -> Source:
    reader = _reader(source)
    if target is not None:
        source = source.labelled(target if reader.is_table else np.array(reader.column(target)))
    if weight is not None:
        source = source.weighted(weight if reader.is_table else np.array(reader.column(weight)))
    return source


def columns_of(model: Any) -> dict[str, Kind]:
    """Return the columns that the features of a model were made of, and what they hold."""
    found = getattr(model, "preparation_", {}).get("columns")
    return found or {str(name): None for name in getattr(model, "feature_names_in_", ())}


# ---------------------------------------------------------------- files


def name_of(data: str) -> str:
    """Return what to call a table in a title."""
    return "standard input" if data == STANDARD else Path(data).name


def load_any(path: str) -> Any:
    """Return the model or the study in a file."""
    if path == STANDARD:
        stop("a model must be a file; - is for tables.")
    return load(path)


def load_model(path: str) -> Any:
    """Return the model in a file; of a study, the mixture inside."""
    found = load_any(path)
    return found.model if isinstance(found, Study) else found


def composed(study: Study) -> tuple[dict[str, Any], Any, Any]:
    """Return the description of a study, and its tables of proportions and, or None, of differences."""
    outcome = study.describe()
    return outcome, study.proportions, None if outcome["design"] is None else study.compare()


def records(proportions: Any, differences: Any) -> dict[str, Any]:
    """Return the tables of `composed` for JSON."""
    found = {"proportions": proportions, "comparison": differences}
    return {name: table.to_dict("records") for name, table in found.items() if table is not None}


def check_place(out: str | None, *, reading: Sequence[str | Path | None], table: bool = False) -> None:
    """Create the folder of a file; stop if the file cannot be written or is one of those to be read.

    A table needs a known suffix.
    """
    if out is None or out == STANDARD:
        return
    place = Path(out)
    with guarded(WRONG_USE), failing(f"cannot write {out}"):
        if table:
            check_writable(place)
        folder = (Path(os.path.realpath(place)) if place.is_symlink() else place).parent
        if place.is_dir():
            stop(f"cannot write {out}: it is a folder. Name a file in it.")
        if folder.exists() and not folder.is_dir():
            stop(f"cannot write {out}: {folder} is not a folder.")
        for each in reading:
            if each is not None and place.exists() and os.path.exists(each) and place.samefile(each):
                stop(f"cannot write {out}: it is also an input. Name another file.")
        if not is_device(place):
            writable_folder(folder)


def write_table(out: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns into a file, or as CSV to standard output."""
    with failing(f"cannot write {out}"):
        write_columns(_standard_output() if out == STANDARD else out, columns)


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


def print_and_draw(
    content: dict[str, Any],
    in_words: Callable[[], None],
    html: str | None,
    draw: Callable[[], str],
    *,
    as_json: bool,
) -> None:
    """Print a result as JSON or in words, then write its page; print nothing if that is standard output."""
    if html != STANDARD:
        print_json(content) if as_json else in_words()
    if html is not None:
        write_page(html, draw)
        if html != STANDARD and not as_json:
            say()
            say(f"written into {html}")


def write_page(html: str, draw: Callable[[], str]) -> None:
    """Draw a page and write it into a file or to standard output."""
    with guarded(), watching() as watch:
        with watch.steps("drawing", None):
            page = draw()
        write_bytes(html, page.encode())


def _standard_output() -> BinaryIO:
    """Return standard output as a stream of bytes, after flushing text."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)
