"""Open samples, count their cells, and read some of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed
from ..data import Source, open_rows
from ..data.events import FcsReader
from ..data.fcs import without_bookkeeping
from ..data.notation import AUTO
from ..data.opening import files_of
from ..data.read import is_path
from ..data.recipe import BY_CHANNEL, Preparation
from ..engine.records import FloatArray, IntArray
from ..model.callbacks import progress_bar
from ..model.rows import with_features_of

# Cells read into memory, equally many of each sample, for the start of the fit and for the page.
SOME_CELLS = 50_000
# How messages begin the advice that a column may hold categories.
_CATEGORIES = re.compile(r"[.;:]? [Ii]f these are categories, (use )?$")
_OF_OPEN_ROWS = re.compile(r"open_rows\(\.\.\., (.*)\)")


@dataclass(frozen=True)
class Origin:
    """Where cells came from and how they were read, in plain values."""

    files: tuple[str, ...]  # names without folders; empty for cells in memory
    column: str | None  # the column that names the samples; None if each file is one, or an array names them
    markers: tuple[str, ...]  # (M,): display names of the features; empty if they have none
    preparation: dict[str, Any]  # `compensate`, `transform`, `linear` and `scales`, see `io.preparation`
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


def are_files(samples: Any) -> bool:
    """Return whether samples are given as a path, a list of paths, a folder or a pattern."""
    return is_path(samples) or files_of(samples) is not None


def open_cells(
    samples: Any,
    model: Any = None,
    *,
    sample: Any = None,
    markers: Sequence[str | int] | None = None,
    compensate: bool | str = AUTO,
    skip_unreadable: bool = False,
    seed: int = 0,
    **options: Any,
) -> Cells:
    """Open samples for a fit, or for a fitted model, and read them once.

    Reading checks all values and keeps some cells of every sample. Options are those of `open_rows`.
    """
    files = files_of(samples)
    if is_path(samples):
        files = files or [Path(samples)]
    is_open = isinstance(samples, Source)
    given = {"sample": sample, "markers": markers if model is None else None, "compensate": compensate}
    for name, value in (given | options).items() if is_open else ():
        default = {"compensate": AUTO, "transform": AUTO, "damaged": "refuse"}.get(name)
        if value is not default and not (isinstance(value, str) and value == default):
            raise ArgumentError(Argument(name), " is for samples to open: these were opened by open_rows.")
    several = samples if isinstance(samples, (list, tuple)) else ()
    if isinstance(samples, (Mapping, Iterator)) or any(getattr(each, "ndim", 0) == 2 for each in several):
        raise TypeError(
            f"samples is a {type(samples).__name__}: give paths, or one table with a column of samples, such "
            "as pandas.concat([one.assign(sample='a'), two.assign(sample='b')]), and sample='sample'."
        )
    notes: list[str] = []
    with progress_bar("opening", None), _own_words(len(files or ())):
        if skip_unreadable and files is not None and sample is None:
            files, notes = _readable(files, columns=markers, compensate=compensate, **options)
        source = samples
        if not is_open:
            source = open_rows(
                samples if files is None else list(files),
                columns=markers,
                label=sample,
                compensate=compensate,
                **options,
            )
        source = source if model is None else with_features_of(model, source)
        # Raises ValueError if the files differ in their features.
        names = source.feature_names
    kinds = (source.preparation or {}).get("columns") or {}
    if text := [name for name, kind in kinds.items() if kind is not None and model is None]:
        holds = "text" if isinstance(kinds[text[0]], list) else "dates"
        raise ArgumentError(
            f"column {text[0]!r} holds {holds} and is not a marker: name the column of samples with ",
            Argument("sample"),
            ", or the markers with ",
            Argument("markers"),
            ".",
        )
    events = [reader for reader in source.readers.values() if isinstance(reader, FcsReader)]
    if model is None and markers is None:
        present, kept = names or [], without_bookkeeping(names or [])
        if events:
            present, kept = events[0].all_names, events[0].file.markers
        elif kept and kept != names:
            source, names = source.select(kept), kept
        if left := [name for name in present if name not in {*kept, *(names or ())}]:
            notes.append(f"Not used as markers: {listed(left)}.")
    prepared = preparation_of(source.preparation)
    if model is None and events:
        if compensate == AUTO and prepared["compensate"]:
            notes.append("Files were compensated with their spill-over matrices.")
        if note := source.scale_note():
            notes.append(note)
    notes += [f"{each}." for each in (source.remarks() if events else ())]
    channels = events[0].channels(list(source.kinds)) if events else []
    known = {name: channel.marker for name, channel in zip(source.kinds, channels, strict=bool(channels))}
    labels = [
        f"{known[name]} ({name})" if known.get(name, name) not in ("", name) else name for name in names or ()
    ]
    origin = Origin(
        files=tuple(Path(reader.name).name for reader in source.readers.values())
        if files is not None or source.by_file
        else (),
        column=sample if isinstance(sample, str) else source.label if source.labels is None else None,
        markers=tuple(labels),
        preparation=prepared,
        notes=tuple(notes),
    )
    # The first pass over files also finds out about damaged events.
    with nullcontext() if is_open else _own_words(1):
        return Cells(source, *_some_cells(source, seed), origin)


def _readable(files: Sequence[Path], **options: Any) -> tuple[list[Path], list[str]]:
    """Return the files that can be read to their end, and a note on each of the others."""
    readable, notes = [], []
    for path in files:
        try:
            with closing(open_rows([path], **options).blocks()) as blocks:
                for _ in blocks:
                    pass
            readable.append(path)
        except (OSError, ValueError) as error:
            notes.append(f"Left out: {str(error).rstrip('.')}.")
            refused = error
    if not readable:
        raise refused
    return readable, notes


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


def preparation_of(given: Preparation | None) -> Preparation:
    """Return how values are read: `compensate`, `transform`, `linear` and `scales`, see `io.preparation`."""
    defaults: Preparation = {"compensate": False, "transform": "none", "linear": {}}
    found = {name: (given or {}).get(name, value) for name, value in defaults.items()}
    return found | ({"scales": given["scales"]} if given and found["transform"] == BY_CHANNEL else {})


def _some_cells(source: Source, seed: int) -> tuple[dict[Any, int], FloatArray, np.ndarray]:
    """Return the number of cells of each sample, and some cells X (n, M) of each with their samples (n,)."""
    random = np.random.RandomState(seed)

    def some(n_cells: int) -> IntArray:
        n_each = n_cells if source.n_rows <= SOME_CELLS else max(1, SOME_CELLS // len(names))
        return random.choice(n_cells, n_each, replace=False) if n_cells > n_each else np.arange(n_cells)

    if source.by_file:
        names: list[Any] = list(source.readers)
        counts = [reader.n_rows for reader in source.readers.values()]
        starts = np.cumsum([0, *counts[:-1]])
        taken = [start + some(count) for start, count in zip(starts, counts, strict=True)]
    elif not source.has_labels:
        names, counts = [0], [source.n_rows]
        taken = [some(source.n_rows)]
    else:
        labels = source.row_labels()
        known = np.array([label is not None and label == label for label in labels.tolist()])
        if not known.all():
            where = f"column {source.label!r}" if isinstance(source.label, str) else "sample"
            raise ValueError(
                f"{where} names no sample in {np.count_nonzero(~known)} of {len(known)} rows. Leave these "
                "rows out."
            )
        found, codes, counted = np.unique(labels.tolist(), return_inverse=True, return_counts=True)
        names, counts = found.tolist(), counted.tolist()
        taken = [np.flatnonzero(codes == place)[some(count)] for place, count in enumerate(counts)]
    wanted = np.concatenate(taken)
    samples = np.repeat(np.array(names, dtype=object), [len(own) for own in taken])
    order = np.argsort(wanted)
    rows, without, start = [], [], 0
    with progress_bar("reading", None) as progress, closing(source.blocks()) as blocks:
        for block in blocks:
            first, last = np.searchsorted(wanted[order], [start, start + len(block.X)])
            rows.append(np.asarray(block.X[wanted[order][first:last] - start], dtype=np.float64))
            # The sum is cheap, and NaN where a row has no value.
            if np.isnan(block.X.sum()):
                without += (start + np.flatnonzero(np.isnan(block.X).all(axis=1))).tolist()
            start += len(block.X)
            now = samples[order][min(last, len(samples) - 1)]
            progress(f"{now} ({names.index(now) + 1} of {len(names)})", share=start / source.n_rows)
    if without:
        ends = np.cumsum([reader.n_rows for reader in source.readers.values()])
        own = int(np.searchsorted(ends, without[0], side="right"))
        reader = [*source.readers.values()][own]
        row = without[0] - ends[own] + reader.n_rows
        raise ValueError(
            f"{reader.name} has no value in row {row}, counted from 0: all {source.n_features} markers are "
            f"NaN ({len(without)} such rows). Leave these rows out."
        )
    return dict(zip(names, counts, strict=True)), np.concatenate(rows), samples[order]
