"""Open samples, count their cells, and read some of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed
from ..data import FcsReader, Source, files_of, open_rows, same_scale, scale_in_words, without_bookkeeping
from ..engine.records import FloatArray, IntArray
from ..model import progress_bar, with_features_of

# Cells read into memory, equally many of each sample, for the start of the fit and for the page.
SOME_CELLS = 50_000
# How messages of `open_rows` begin the advice that a column may hold categories.
_CATEGORIES = re.compile(r"[.;:]? [Ii]f these are categories, (use )?$")
_OF_OPEN_ROWS = re.compile(r"open_rows\(\.\.\., (.*)\)")


@dataclass(frozen=True)
class Origin:
    """Where cells came from and how they were read, in plain values."""

    files: tuple[str, ...]  # names without folders; empty for cells in memory
    column: str | None  # the column that names the samples; None if each file is one, or an array names them
    markers: tuple[str, ...]  # (M,): display names of the features; empty if they have none
    preparation: dict[str, Any]  # see `preparation_of`
    notes: tuple[str, ...]  # sentences for readers of the page
    joined: tuple[tuple[str, ...], ...] = ()  # names of populations that `Study.join` made one


@dataclass(frozen=True)
class Cells:
    """The source of all cells, and some of them in memory."""

    source: Source
    sizes: dict[Any, int]  # cells of each sample, in the order of the files
    X: FloatArray  # (n, M): some cells
    y: np.ndarray  # (n,): their samples
    origin: Origin


def is_path(samples: Any) -> bool:
    """Return whether samples are given as one path."""
    return isinstance(samples, (str, os.PathLike))


def open_cells(
    samples: Any,
    model: Any = None,
    *,
    sample: Any = None,
    markers: Any = None,
    seed: int = 0,
    skip_unreadable: bool = False,
    **options: Any,
) -> Cells:
    """Open samples for a fit, or for a fitted model, and read them once.

    Reading checks all values and keeps some cells of every sample. `options` are those of `open_rows`.
    """
    files, is_open = files_of(samples), isinstance(samples, Source)
    notes: list[str] = []
    _refuse(samples, {"sample": sample, "markers": None if model else markers, **options})
    with progress_bar("opening", None), _own_words(len(files or ())):
        if is_open:
            source = samples if model is None else with_features_of(model, samples)
        else:
            how = {"columns": markers, "label": sample, **options}
            if skip_unreadable and files is not None:
                is_column = sample is None or isinstance(sample, str)
                files, notes = _readable(files, model, how if is_column else {**how, "label": None})
                if notes and not is_column:
                    raise ArgumentError(
                        Argument("sample"),
                        f" has samples of the cells of all files, but some are left out: {' '.join(notes)}",
                    )
            rows: Any = samples if files is None else list(files)
            source = open_rows([samples] if files is None and is_path(samples) else rows, **how)
            source = source if model is None else with_features_of(model, source)
        # Raises ValueError if the files differ in their features.
        names = source.feature_names
    readers = list(source.readers.values())
    events = [reader for reader in readers if isinstance(reader, FcsReader)]
    if model is None:
        _refuse_text(source)
        if markers is None:
            present, kept = names or [], without_bookkeeping(names or [])
            if events:
                present, kept = events[0].all_names, events[0].file.markers
            elif kept and kept != names:
                source, names = source.select(kept), kept
            if left := [name for name in present if name not in {*kept, *(names or ())}]:
                notes.append(f"Not used as markers: {listed(left)}.")
    prepared = preparation_of(source.preparation)
    if model is None and events:
        if options.get("compensate", "auto") == "auto" and prepared["compensate"]:
            notes.append("Files were compensated with their spill-over matrices.")
        if note := source.scale_note():
            notes.append(note)
    notes += [f"{remark}." for remark in (source.remarks() if events else ())]
    channels = events[0].channels(list(source.kinds)) if events else []
    stains = {name: channel.marker for name, channel in zip(source.kinds, channels, strict=bool(channels))}
    labels = [
        f"{stains[name]} ({name})" if stains.get(name, name) not in ("", name) else name
        for name in names or ()
    ]
    column = sample if isinstance(sample, str) else source.label if source.labels is None else None
    of_files = readers if files is not None or is_path(samples) or source.by_file else []
    origin = Origin(
        tuple(Path(reader.name).name for reader in of_files), column, tuple(labels), prepared, tuple(notes)
    )
    # The first pass over files also finds out about damaged events.
    with nullcontext() if is_open else _own_words(1):
        return Cells(source, *_some_cells(source, seed), origin)


def open_new_cells(model: Any, fit: Origin, samples: Any, **reading: Any) -> tuple[Any, Cells]:
    """Open new samples on the scale of a fitted mixture; return them after the mixture that reads them."""
    if "markers" in reading:
        raise ArgumentError(Argument("markers"), " are those of the study: leave them out.")
    fitted: dict[str, Any] = getattr(model, "recipe_", {})
    if reading.get("compensate") is False and fitted.get("compensate"):
        # The files have been compensated already.
        model = copy(model)
        model.recipe_ = fitted = {**fitted, "compensate": False}
    if "compensate" in fitted:
        if reading.get("compensate", "auto") not in ("auto", fitted["compensate"]):
            raise ArgumentError(Argument("compensate"), " differs from the fit: leave it out.")
        reading["compensate"] = "auto"
    # Values in memory may have been scaled before the fit: then files need a scale.
    are_files = is_path(samples) or files_of(samples) is not None
    is_known = "transform" in fitted or bool(fit.files) or not are_files
    known, scale = (
        fitted if "transform" in fitted else {"transform": "none"},
        reading.get("transform", "auto"),
    )
    is_auto = isinstance(scale, str) and scale == "auto"
    if is_known and not is_auto and not same_scale(scale, known["transform"]):
        raise ArgumentError(
            Argument("transform"),
            f" differs from the fit, which was on the scale {scale_in_words(known)}: leave it out, or "
            "give values on that scale.",
        )
    is_array = hasattr(samples, "__array__") and not hasattr(samples, "columns")
    names = None if is_array else getattr(model, "feature_names_in_", None)
    markers = None if names is None else [str(name) for name in names]
    return model, open_cells(samples, model, markers=markers, **reading)


def _refuse(samples: Any, given: Mapping[str, Any]) -> None:
    """Refuse settings of reading for what is open already, and several tables in memory."""
    defaults = {"compensate": "auto", "transform": "auto", "damaged": "refuse"}
    for name, value in given.items() if isinstance(samples, Source) else ():
        default = defaults.get(name)
        if value is not default and not (isinstance(value, str) and value == default):
            raise ArgumentError(Argument(name), " is for samples to open: these were opened by open_rows.")
    several = samples if isinstance(samples, (list, tuple)) else ()
    if isinstance(samples, (Mapping, Iterator)) or any(getattr(one, "ndim", 0) == 2 for one in several):
        raise TypeError(
            f"samples is a {type(samples).__name__}: give paths, or one table with a column of samples, such "
            "as pandas.concat([one.assign(sample='a'), two.assign(sample='b')]), and sample='sample'."
        )


def _refuse_text(source: Source) -> None:
    """Refuse columns that are no markers."""
    kinds = (source.preparation or {}).get("columns") or {}
    for name, kind in kinds.items():
        if kind is not None:
            raise ArgumentError(
                f"column {name!r} holds {'text' if isinstance(kind, list) else 'dates'} and is not a marker: "
                "name the column of samples with ",
                Argument("sample"),
                ", or the markers with ",
                Argument("markers"),
                ".",
            )


def _readable(files: list[Path], model: Any, how: dict[str, Any]) -> tuple[list[Path], list[str]]:
    """Return the files that can be read to their end, and what to say of the others."""
    kept, notes = [], []
    first: Exception | None = None
    for file in files:
        try:
            source = open_rows([file], **how)
            source = source if model is None else with_features_of(model, source)
            empty, start = [], 0
            with closing(source.blocks()) as blocks:
                for block in blocks:
                    empty += _rows_without_value(block.X, start)
                    start += len(block.X)
            _refuse_empty(source, empty)
        except (ValueError, OSError) as error:
            text, first = str(error).rstrip("."), first or error
            notes.append(f"Left out: {text if file.name in text else f'{file.name}: {text}'}.")
        else:
            kept.append(file)
    if not kept and first is not None:
        raise first
    return kept, notes


@contextmanager
def _own_words(n_files: int) -> Iterator[None]:
    """Replace arguments of `open_rows` in errors by those of `compose`, and advise about several files."""
    try:
        yield
    except ArgumentError as error:
        pieces: list[str] = []
        for piece in error.pieces:
            name = getattr(piece, "name", None)
            if name == "categorical":
                # Categories are no markers: leave out the advice.
                pieces[-1] = _CATEGORIES.sub("", pieces[-1])
            elif name == "drop":
                pieces[-1] = pieces[-1].replace("leave it out with ", "leave it out: name the markers with ")
                pieces[-1] = pieces[-1].replace("use ", "name the markers with ")
                pieces.append(Argument("markers"))
            elif isinstance(piece, Argument):
                wording = _OF_OPEN_ROWS.sub(r"\1", piece).replace("columns", "markers")
                pieces.append(Argument(piece.name, piece.value, wording=wording))
            else:
                pieces.append(piece)
        if n_files > 1 and " has no column " in str(error):
            pieces.append(" Leave out files that are no samples, such as metadata.")
        raise ArgumentError(*pieces) from None


def preparation_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how values are read: `compensate`, `transform`, `linear` and, by channel, `scales`."""
    given = given or {}
    prepared = {"compensate": False, "transform": "none", "linear": {}}
    prepared |= {name: value for name, value in given.items() if name in (*prepared, "scales")}
    return prepared


def _some_cells(source: Source, seed: int) -> tuple[dict[Any, int], FloatArray, np.ndarray]:
    """Return the number of cells of each sample, and some cells X (n, M) of each with their samples (n,)."""
    sizes, rows_of = _rows_of_samples(source)
    random = np.random.RandomState(seed)
    chosen = []
    for rows in rows_of:
        n_most = len(rows) if source.n_rows <= SOME_CELLS else max(1, SOME_CELLS // len(sizes))
        is_part = len(rows) > n_most
        chosen.append(rows[random.choice(len(rows), n_most, replace=False)] if is_part else rows)
    places = np.concatenate(chosen)
    order = np.argsort(places)
    samples = np.repeat(np.array(list(sizes), dtype=object), [len(rows) for rows in chosen])
    places, samples, numbers = places[order], samples[order], {name: i for i, name in enumerate(sizes)}
    X, empty, start = [], [], 0
    with progress_bar("reading", None) as progress, closing(source.blocks()) as blocks:
        for block in blocks:
            first, last = np.searchsorted(places, [start, start + len(block.X)])
            X.append(np.asarray(block.X[places[first:last] - start], dtype=np.float64))
            empty += _rows_without_value(block.X, start)
            start += len(block.X)
            name = samples[min(last, len(samples) - 1)]
            progress(f"{name} ({numbers[name] + 1} of {len(sizes)})", share=start / source.n_rows)
    _refuse_empty(source, empty)
    return sizes, np.concatenate(X), samples


def _rows_without_value(X: FloatArray, start: int) -> list[int]:
    """Numbers of the rows of a block X (n, M) without any value; its first row has the number `start`."""
    # The sum is cheap, and NaN where a row has no value.
    is_complete = not np.isnan(X.sum())
    return [] if is_complete else (start + np.flatnonzero(np.isnan(X).all(axis=1))).tolist()


def _refuse_empty(source: Source, empty: Sequence[int]) -> None:
    """Raise ValueError if there are rows without any value, given their numbers."""
    if empty:
        place = source.place(empty[0])
        place = f"{place} of {source.first.name}" if len(source.readers) == 1 else place
        raise ValueError(
            f"There is no value in {place}: all {source.n_features} markers are NaN "
            f"({len(empty)} such rows). Leave these rows out."
        )


def _rows_of_samples(source: Source) -> tuple[dict[Any, int], list[IntArray]]:
    """Return the number of cells of each sample, and the indices of its rows."""
    if source.by_file:
        sizes = {name: reader.n_rows for name, reader in source.readers.items()}
        return sizes, np.split(np.arange(source.n_rows), np.cumsum(list(sizes.values()))[:-1])
    if not source.has_labels:
        return {0: source.n_rows}, [np.arange(source.n_rows)]
    labels = source.row_labels()
    known = np.array([label is not None and label == label for label in labels.tolist()])
    if not known.all():
        where = f"column {source.label!r}" if isinstance(source.label, str) else "sample"
        raise ValueError(
            f"{where} names no sample in {np.count_nonzero(~known)} of {len(known)} rows. Leave these "
            "rows out."
        )
    names, codes, counts = np.unique(labels.tolist(), return_inverse=True, return_counts=True)
    sizes = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return sizes, np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
