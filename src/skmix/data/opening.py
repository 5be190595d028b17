"""Open rows of any kind: files, folders of files, tables, arrays and AnnData."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import nearest
from .events import FcsReader, open_events
from .formats import SUFFIXES, format_of, open_parquet, open_table, open_text
from .frames import as_arrow_table
from .missing import without_mask
from .notation import AUTO, Notation
from .read import Reader, existing, is_path, not_fcs, open_array, open_npy
from .recipe import UNPREPARED, Preparation, same_scale, scale_in_words, scale_of, transformer_of, writing_of
from .source import Source
from .tables import TableReader


def open_rows(
    rows: Any,
    *,
    columns: Sequence[int | str] | None = None,
    label: Any = None,
    weight: Any = None,
    chunk_rows: int | None = None,
    compensate: bool | str = AUTO,
    transform: Any = AUTO,
    damaged: str = "refuse",
    layer: str | None = None,
    obsm: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    missing: Sequence[str] | None = None,
    text: Mapping[str, Any] | None = None,
) -> Source:
    """Open rows that need not fit in memory, from one file or several, for `fit`, `predict` and so on.

    Parameters
    ----------
    rows : path, list of paths, ndarray, table or AnnData
        A file (CSV, TSV, Parquet, FCS, .npy), an array, a table in memory (pandas, polars, pyarrow) or an
        AnnData. Or several files: a list, a folder, or a pattern such as
        ``"study/*.fcs"``. Each file is then a group, named after the file, and the groups are the labels
        unless others are given.
    columns : sequence of str or int, default=None
        The features: names of columns or of an AnnData's variables, channels of FCS files by name ($PnN) or
        marker ($PnS), or indices if there are no names. None uses all columns except those of labels and
        weights, and all channels of FCS files except Time, Event_length, FSC-H beside FSC-A
        and the like.
    label : str, path or array-like of shape (N,), default=None
        Labels: the name of a column of the table or of ``obs``, or an array or its file. Labels in text
        files are whole numbers or booleans if all of them can be read so, and text otherwise.
    weight : str, path or array-like of shape (N,), default=None
        Weights of the rows, given like labels.
    chunk_rows : int, default=None
        Number of rows in a block. Up to three blocks are in memory at a time, because one is read while
        another is processed. None means blocks of about 16 MB.
    compensate : bool or 'auto', default='auto'
        Whether to compensate FCS files for spill-over, each by its matrix ($SPILLOVER or SPILL). With
        'auto', a fit compensates files that have a matrix, and a fitted model does as its fit did.
    transform : str, Arcsinh, Logicle, None or 'auto', default='auto'
        The scale of the features: a name (``"arcsinh:150"``, ``"logicle"``), an object with its parameters,
        such as ``Logicle(W=1.0)``, or None for untransformed values. With 'auto', each channel of FCS files
        has the scale that follows from how it was recorded, see `skmix.data.amplification`, such as
        ``arcsinh:5`` for mass cytometry; other rows have no scale; and a fitted model reads files and data
        frames on the scales of its fit. A name leaves the scatter channels of FCS files (FSC, SSC) linear; an
        object is for all channels.
    damaged : {'refuse', 'drop', 'keep'}, default='refuse'
        What to do with events of FCS files whose bytes cannot be what the instrument wrote: refuse the file,
        drop these events, or keep them without a check.
    layer, obsm : str, default=None
        The matrix of an AnnData that holds the rows; ``X`` if both are None.
    decimal, thousands : str, default=None
        In text files, the decimal mark and the separator of thousands, ``""`` for none. None means the marks
        of the model's fit; in a fit, a point, and numbers that may have a separator are refused.
    missing : list of str, default=None
        Words and numbers for missing values in tables. In text files, empty cells and the usual words, such
        as ``NA``, ``N/A``, ``NaN``, ``null``, ``None`` and ``?``, are missing too; an empty word turns off
        the usual ones. In other tables, text is a value, whatever it says.
    text : dict, default=None
        More about how values are written; it may also have the three settings above. For any table:
        `categorical`, a list of columns whose numbers are categories; and `drop`, 'auto' to leave out columns
        that cannot be features, with a warning in a fit. For text files: `header`, whether the first line has
        names; `sep`, the separator of columns, None to choose among tab, comma, semicolon and ``|``;
        `encoding`, None for UTF-8, or UTF-16 with a byte-order mark; and `as_text`, a list of columns to read
        as text.

    Returns
    -------
    Source
        Rows to pass to an estimator as X.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture, open_rows
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [4.9]])
    >>> rows = open_rows(X, label=np.array([0, 0, 1, 1, 1, 0]), chunk_rows=2)
    >>> rows.shape
    (6, 1)
    >>> SharedKernelMixture(2, random_state=0).fit(rows).class_count_
    array([3., 3.])
    """
    is_integer = isinstance(chunk_rows, (int, np.integer)) and not isinstance(chunk_rows, bool)
    if chunk_rows is not None and not (is_integer and chunk_rows >= 1):
        raise ValueError(f"chunk_rows must be None or an integer of at least 1, got {chunk_rows!r}.")
    if not isinstance(compensate, bool) and compensate != AUTO:
        raise ValueError(f"compensate must be True, False or 'auto', got {compensate!r}.")
    if damaged not in ("refuse", "drop", "keep"):
        problem = f" must be 'refuse', 'drop' or 'keep', got {damaged!r}."
        raise ArgumentError(Argument("damaged", wording="damaged"), problem)
    is_anndata = _is_anndata(rows)
    if (layer is not None or obsm is not None) and not is_anndata:
        raise ValueError(f"layer and obsm are for an AnnData; got a {type(rows).__name__}.")
    scale = _scale_of_user(transform)
    notation = Notation.of(text, decimal=decimal, thousands=thousands, missing=missing)
    if isinstance(label, str):
        notation = replace(notation, as_text=(*notation.as_text, label))
    paths, readers = files_of(rows), dict[str, Reader]()
    name = f"{len(paths or ())} files" if paths is not None and not is_path(rows) else str(rows)
    if paths is not None or is_path(rows):
        files = {"": Path(rows)} if paths is None else dict(zip(_names_of(paths), paths, strict=True))
        for group, path in files.items():
            reader = _open_file(existing(path), compensate is True, notation, damaged)
            if reader.n_rows:
                readers[group] = reader
            elif paths is None or not isinstance(label, str):  # a large table may have empty partitions
                raise ValueError(f"{path} is empty: it has no rows.")
        if not readers:
            raise ValueError(f"{name}: no file has rows.")
    elif compensate is True:
        raise not_fcs(f"A {type(rows).__name__}")
    elif is_anndata:
        readers[""] = _open_anndata(rows, layer, obsm)
        label, weight, name = _of_obs(rows, label), _of_obs(rows, weight), readers[""].name
    else:
        readers[""] = _open_in_memory(rows, notation)
        name = readers[""].name
    for reader in readers.values():
        if isinstance(reader, TableReader):
            reader.check_present(notation.categorical)
    n_rows = int(chunk_rows or min(reader.block_rows for reader in readers.values()))
    source = Source(name=name, readers=readers, chunk_rows=n_rows, scale=scale or UNPREPARED)
    source = source if paths is None else source.labelled_by_file()
    source = source if columns is None else source.chosen(columns)
    if is_path(rows) or paths is not None or (hasattr(rows, "columns") and not is_anndata):
        settings = {"compensate": compensate == AUTO, "transform": scale is None}
        automatic = frozenset(name for name, is_automatic in settings.items() if is_automatic)
        source = replace(source, automatic=automatic)
        source = source.compensated(AUTO) if "compensate" in automatic else source
        if "transform" in automatic and isinstance(source.first, FcsReader):
            source = replace(source, scale=None)
    source = source if label is None else source.labelled(label)
    return source if weight is None else source.weighted(weight)


def _scale_of_user(transform: Any) -> Preparation | None:
    """The scale that a user chose; None for 'auto'."""
    if isinstance(transform, str):
        return None if transform == AUTO else {"transform": scale_of(transformer_of(transform))}
    # A name leaves scatter linear, an object is for all channels.
    return {"transform": scale_of(transform), "linear": {}}


def _open_in_memory(rows: Any, notation: Notation) -> Reader:
    """The reader of a table or an array."""
    table = as_arrow_table(rows)
    if table is None:
        rows = rows if hasattr(rows, "shape") else np.asarray(rows)
        return open_array(without_mask(rows, np.nan), "X")
    if not table.num_rows:
        raise ValueError("the table is empty: it has no rows.")
    return open_table(table, "the table", notation=notation)


def source_of(X: Any, label: Any = None, weight: Any = None) -> Source | None:
    """Open files or an AnnData with labels and weights; None for other rows."""
    if isinstance(X, Source):
        X = X if label is None else X.labelled(label)
        return X if weight is None else X.weighted(weight)
    return open_rows(X, label=label, weight=weight) if is_elsewhere(X) else None


def is_elsewhere(X: Any) -> bool:
    """Whether rows are files, an AnnData or a source."""
    return isinstance(X, Source) or is_path(X) or _is_list(X) or _is_anndata(X)


# ---------------------------------------------------------------- files


def _open_file(path: Path, compensate: bool, notation: Notation, damaged: str) -> Reader:
    file_format = format_of(path)
    if file_format == "fcs":
        return open_events(path, damaged).compensated(compensate)
    if compensate:
        raise not_fcs(str(path))
    if file_format == "parquet":
        return open_parquet(path, notation)
    if file_format == "text":
        return open_text(path, notation)
    return open_npy(path)


def _names_of(files: Sequence[Path]) -> list[str]:
    """A name for each file: its stem, with the suffix or folders if stems are not unique."""
    paths = [Path(os.path.abspath(path)) for path in files]
    for n_folders in range(max(len(path.parts) for path in paths)):
        for ends in ([stem_of(path.name) for path in paths], [path.name for path in paths]):
            folders = (path.parts[len(path.parts) - 1 - n_folders : -1] for path in paths)
            names = ["/".join([*parents, end]) for parents, end in zip(folders, ends, strict=True)]
            if len(set(names)) == len(names):
                return names
    twice = next(path for path in paths if paths.count(path) > 1)
    raise ValueError(f"{twice} is given twice.")


def stem_of(name: str) -> str:
    """The name of a file without its suffix, such as ``.fcs`` or ``.csv.gz``."""
    endings = [end for ends in SUFFIXES.values() for end in ends if name.lower().endswith(end)]
    return name[: -max(map(len, endings))] if endings else os.path.splitext(name)[0]


def files_of(rows: Any) -> list[Path] | None:
    """The files in a list, a folder or a pattern; None for anything else."""
    if _is_list(rows):
        if not rows:
            raise ValueError("The list of files or rows is empty.")
        return [Path(path) for path in rows]
    if not is_path(rows):
        return None
    path = Path(rows)
    if not path.exists() and glob.has_magic(str(path)):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise FileNotFoundError(f"No file matches {path}.")
        return matches
    return _files_in(path) if path.is_dir() else None


def _files_in(folder: Path) -> list[Path]:
    """The files of rows in a folder, at any depth; they must be of one format."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    )
    by_format = ([path for path in files if path.name.lower().endswith(ends)] for ends in SUFFIXES.values())
    present = [paths for paths in by_format if paths]
    if not present:
        endings = ", ".join(ending for endings in SUFFIXES.values() for ending in endings)
        raise ValueError(f"The folder {folder} has no files of rows ({endings}).")
    if len(present) > 1:
        first, second = present[0][0], present[1][0]
        raise ValueError(
            f"The folder {folder} has files of two formats: {first.name} and {second.name}. "
            f"Give a pattern, such as '{folder}/*{first.suffix}', or a list."
        )
    return present[0]


def _is_list(thing: Any) -> bool:
    return isinstance(thing, (list, tuple)) and all(map(is_path, thing))


# ---------------------------------------------------------------- AnnData


def _is_anndata(thing: Any) -> bool:
    return all(hasattr(type(thing), name) for name in ("obs", "obsm", "var_names", "layers"))


def _open_anndata(adata: Any, layer: str | None, obsm: str | None) -> Reader:
    if layer is not None and obsm is not None:
        raise ValueError(f"Give layer={layer!r} or obsm={obsm!r}, not both.")
    chosen, where = (layer, "layers") if obsm is None else (obsm, "obsm")
    matrix, name = adata.X, "the AnnData's X"
    if chosen is not None:
        known = getattr(adata, where)
        if chosen not in known:
            close = nearest(chosen, known)
            raise ValueError(f"The AnnData has no {chosen!r} in {where}; it has {list(known)}.{close}")
        matrix, name = known[chosen], f"{chosen!r} of the AnnData's {where}"
    if matrix is None:
        raise ValueError("The AnnData has no X: choose a layer or obsm.")
    names = None if obsm is not None else list(map(str, adata.var_names))
    if hasattr(matrix, "columns"):
        matrix, names = matrix.to_numpy(), list(map(str, matrix.columns))
    if names is not None and len(set(names)) < len(names):
        raise ValueError(
            "The AnnData has two variables of the same name: call adata.var_names_make_unique()."
        )
    return open_array(matrix, name, names)


def _of_obs(adata: Any, values: Any) -> Any:
    """A column of ``obs`` if `values` is a name, else `values`."""
    if not isinstance(values, str):
        return values
    if values not in adata.obs:
        known = f"{list(adata.obs)[:20]}.{nearest(values, adata.obs)}"
        raise ValueError(f"The AnnData's obs has no column {values!r}; it has {known}")
    return np.asarray(adata.obs[values])


# ---------------------------------------------------------------- rows for a model


def prepare(source: Source, preparation: Preparation | None, names: Sequence[str] | None) -> Source:
    """Rows with the features of a model; those of files are prepared as by the model's fit.

    `preparation` is the one that the model keeps, and `names` are its feature names, if it has any. Raise
    ValueError if scale or compensation of the rows differ from those of the fit, or if the model keeps no
    preparation.
    """
    automatic, of_fit = source.automatic, preparation or {}
    if "transform" in automatic and preparation is not None:
        # The scale of the model replaces the default scale of the files.
        scale = {name: of_fit[name] for name in ("transform", "scales") if name in of_fit}
        source = replace(source, scale=scale | {"linear": of_fit.get("linear", {})})
    elif source.scale is None:
        raise ArgumentError(
            "the model does not say on which scale it was fitted: choose that scale with ",
            Argument("transform", wording="open_rows(..., transform=...)"),
            ".",
        )
    columns = of_fit.get("columns") or dict.fromkeys(() if names is None else names)
    if columns and (source.first.named or any(columns.values())):
        source = source.encoded(columns, writing_of(preparation))
    if preparation is None:
        return source
    if "compensate" in automatic:
        source = source.compensated(of_fit.get("compensate", False))
    if source.scale is not None and "linear" not in source.scale:
        source = replace(source, scale=source.scale | {"linear": of_fit.get("linear", {})})
    opened = of_fit | {"linear": {}} | source.preparation if source.preparation else of_fit
    is_same = same_scale(opened["transform"], of_fit["transform"])
    if not is_same or any(opened.get(name, {}) != of_fit.get(name, {}) for name in ("linear", "scales")):
        raise ValueError(
            f"{source.name}: opened on the scale {scale_in_words(opened)}, but the fit was on "
            f"{scale_in_words(of_fit)}: leave transform out, and the model applies the scale of its fit."
        )
    if opened.get("compensate", False) != of_fit.get("compensate", False):
        raise ValueError(
            f"{source.name} was opened {'with' if opened['compensate'] else 'without'} compensation for "
            "spill-over, unlike the rows of the fit: leave compensate out, and the model does as its fit did."
        )
    return replace(source, automatic=frozenset())
