"""Open rows of any kind: files, folders of files, tables, arrays and AnnData."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import Argument
from .._words import nearest
from ..data.encoding import Kind
from ..data.notation import AUTO, Notation
from ..data.problems import ColumnError, TableError
from ..data.recipe import Preparation, scale_of, transformer_of
from ..data.tables import SUFFIXES, TableReader, format_of, open_parquet, open_table, open_text
from .arrow import pyarrow
from .fcs import FcsReader, check_damaged, open_events
from .readers import (
    Reader,
    Values,
    existing,
    is_path,
    not_fcs,
    open_array,
    rows_of_array,
    values_of,
)
from .sources import Source


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
        has the scale that follows from how it was recorded, see `skmix.io.amplification`, such as
        ``arcsinh:5`` for mass cytometry; other rows have no scale; and a fitted model reads files and data
        frames on the scales of its fit. A name leaves the scatter channels of FCS files (FSC, SSC) linear; an
        object is for all channels.
    damaged : {'refuse', 'drop', 'keep'}, default='refuse'
        What to do with events of FCS files whose bytes cannot be what the instrument wrote: refuse the file,
        drop these events, or keep them without a check.
    layer, obsm : str, default=None
        The matrix of an AnnData that holds the rows; ``X`` if both are None.
    text : dict, default=None
        How values are written. For any table: `missing`, a list of words and numbers for missing values; and
        `categorical`, a list of columns whose numbers are categories. In text files, empty cells and the
        usual words, such as ``NA``, ``N/A``, ``NaN``, ``null``, ``None`` and ``?``, are missing too; an empty
        word in `missing` turns off the usual ones. In other tables, text is a value, whatever it says. For
        text files: `header`, whether the first line has names; `sep`, the separator of columns, None to
        choose among tab, comma, semicolon and ``|``; `decimal`, the decimal mark; `thousands`, the separator
        of thousands, ``""`` for none, None to refuse numbers that may have one; `encoding`, None for UTF-8,
        or UTF-16 with a byte-order mark; and `as_text`, a list of columns to read as text.

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
    whole = isinstance(chunk_rows, (int, np.integer)) and not isinstance(chunk_rows, bool)
    if chunk_rows is not None and not (whole and chunk_rows >= 1):
        raise ValueError(f"chunk_rows must be None or an integer of at least 1, got {chunk_rows!r}.")
    if not isinstance(compensate, bool) and compensate != AUTO:
        raise ValueError(f"compensate must be True, False or 'auto', got {compensate!r}.")
    settings = {"compensate": compensate, "transform": transform}
    automatic = {name for name, value in settings.items() if isinstance(value, str) and value == AUTO}
    scale: Preparation | None = {"transform": "none"}
    if "transform" not in automatic:
        scale = {
            "transform": scale_of(transformer_of(transform) if isinstance(transform, str) else transform)
        }
        scale |= {} if isinstance(transform, str) else {"linear": {}}
    notation = Notation(**(text or {}))
    if isinstance(label, str):
        notation = replace(notation, as_text=(*notation.as_text, label))
    check_damaged(damaged)
    files = files_of(rows)
    if (layer is not None or obsm is not None) and not _is_anndata(rows):
        raise ValueError(f"layer and obsm are for an AnnData; got a {type(rows).__name__}.")
    readers: dict[str, Reader] = {}
    if files is not None:
        for group, path in zip(_names_of(files), files, strict=True):
            reader = _open_file(existing(path), compensate is True, notation, damaged)
            if reader.n_rows:
                readers[group] = reader
            # A large table may have empty partitions.
            elif not isinstance(label, str):
                raise ValueError(f"{path} is empty: it has no rows.")
    elif is_path(rows):
        readers = {"": _open_file(existing(rows), compensate is True, notation, damaged)}
    elif compensate is True:
        raise not_fcs(f"A {type(rows).__name__}")
    elif _is_anndata(rows):
        readers = {"": _open_anndata(rows, layer, obsm)}
        label, weight = _of_obs(rows, label), _of_obs(rows, weight)
    elif (table := _arrow_table(rows)) is not None:
        readers = {"": open_table(table, "the table", notation=notation)}
    else:
        readers = {"": open_array(values_of(rows, "X"))}
    for reader in readers.values():
        if isinstance(reader, TableReader):
            reader.check_present(notation.categorical)
    name = next((reader.name for reader in readers.values()), "")
    if files is not None:
        name = str(rows) if is_path(rows) else f"{len(files)} files"
    if not any(reader.n_rows for reader in readers.values()):
        raise ValueError(f"{name}: no file has rows." if files else f"{name} is empty: it has no rows.")
    source = Source(
        name=name,
        readers=readers,
        chunk_rows=int(chunk_rows or min(reader.block_rows for reader in readers.values())),
        by_file=files is not None,
    )
    if columns is not None:
        source = source.chosen(columns)
    if is_path(rows) or files is not None or (hasattr(rows, "columns") and not _is_anndata(rows)):
        source = replace(source, automatic=frozenset(automatic))
    if "compensate" in source.automatic:
        source = source.compensated(AUTO)
    has_usual = "transform" in source.automatic and isinstance(source.first, FcsReader)
    source = replace(source, scale=None if has_usual else scale)
    if label is not None:
        source = source.labelled(label)
    return source if weight is None else source.weighted(weight)


def source_of(X: Any, label: Any = None, weight: Any = None) -> Source | None:
    """Open files or an AnnData with labels and weights; return None for other rows."""
    if isinstance(X, Source):
        X = X if label is None else X.labelled(label)
        return X if weight is None else X.weighted(weight)
    return open_rows(X, label=label, weight=weight) if is_elsewhere(X) else None


def is_elsewhere(X: Any) -> bool:
    """Return whether rows are files, an AnnData or a source."""
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
    return open_array(values_of(path, "X"))


def _names_of(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: its stem, with the suffix or folders if stems are not unique."""
    paths = [Path(os.path.abspath(path)) for path in files]
    stems = [stem_of(path.name) for path in paths]
    for n_folders in range(max(len(path.parts) for path in paths)):
        for last in (stems, [path.name for path in paths]):
            folders = (path.parts[len(path.parts) - 1 - n_folders : -1] for path in paths)
            names = ["/".join([*parents, name]) for parents, name in zip(folders, last, strict=True)]
            if len(set(names)) == len(names):
                return names
    twice = next(path for path in paths if paths.count(path) > 1)
    raise ValueError(f"{twice} is given twice.")


def stem_of(name: str) -> str:
    """Return the name of a file without its suffix, such as ``.fcs`` or ``.csv.gz``."""
    known = [suffix for each in SUFFIXES.values() for suffix in each if name.lower().endswith(suffix)]
    return name[: -max(map(len, known))] if known else os.path.splitext(name)[0]


def files_of(rows: Any) -> list[Path] | None:
    """Return the files in a list, a folder or a pattern; None for anything else."""
    if _is_list(rows):
        if not rows:
            raise ValueError("The list of files or rows is empty.")
        return [Path(path) for path in rows]
    if not is_path(rows):
        return None
    path = Path(rows)
    if not path.exists() and glob.has_magic(str(path)):
        found = sorted(Path(each) for each in glob.glob(str(path), recursive=True))
        if not found:
            raise FileNotFoundError(f"No file matches {path}.")
        return found
    if not path.is_dir():
        return None
    inside = sorted(
        each for each in path.rglob("*") if each.is_file() and not each.name.startswith((".", "_"))
    )
    by_format = (
        [each for each in inside if each.name.lower().endswith(suffixes)] for suffixes in SUFFIXES.values()
    )
    present = [files for files in by_format if files]
    if not present:
        endings = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
        raise ValueError(f"The folder {path} has no files of rows ({endings}).")
    if len(present) > 1:
        raise ValueError(
            f"The folder {path} has files of two formats: {present[0][0].name} and {present[1][0].name}. "
            f"Give a pattern, such as '{path}/*{present[0][0].suffix}', or a list."
        )
    return present[0]


# ---------------------------------------------------------------- tables, frames and AnnData


def _is_list(thing: Any) -> bool:
    return isinstance(thing, (list, tuple)) and all(map(is_path, thing))


def _arrow_table(thing: Any) -> Any:
    """Return a data frame as an Arrow table, None for anything else; import neither pandas nor polars."""
    library = type(thing).__module__.split(".")[0]
    if not hasattr(thing, "columns") or library not in ("pandas", "polars", "pyarrow"):
        return None
    pa = pyarrow()
    if library == "pandas":
        for name, values in thing.items():
            if values.dtype.kind == "c":
                problem = (
                    f"column {name!r} holds complex numbers; a feature must be real numbers or categories."
                )
                raise ColumnError(problem, column=name)
            if values.dtype == object:
                try:
                    pa.array(values, from_pandas=True)
                except (pa.ArrowInvalid, pa.ArrowTypeError):
                    types = ", ".join(sorted({type(value).__name__ for value in values}))
                    raise ColumnError(
                        f"column {name!r} holds values of different types: {types}. For numbers, use "
                        f"pandas.to_numeric(X[{name!r}], errors='coerce'); for categories, "
                        f"X.astype({{{name!r}: str}}).astype({{{name!r}: 'category'}}).",
                        column=name,
                    ) from None
        return pa.Table.from_pandas(thing, preserve_index=False)
    if library == "polars":
        return thing.to_arrow()
    return thing if isinstance(thing, pa.Table) else pa.Table.from_batches([thing])


def encode_frame(
    frame: Any, columns: Mapping[str, Kind] | None = None, writing: Mapping[str, Any] | None = None
) -> tuple[np.ndarray, TableReader]:
    """Return the features (n, M) of a data frame, and their reader.

    `columns` are the kinds that a model keeps; None infers them. `writing` is that of its recipe.
    """
    arrow = _arrow_table(frame)
    if arrow is None:
        raise TypeError(
            f"X is a {type(frame).__name__} with columns of text: only data frames of pandas, polars and "
            "pyarrow are encoded."
        )
    reader = open_table(arrow, "X", place="row {}".format)
    reader = reader if columns is None else reader.encoded(columns, writing)
    library = type(frame).__module__.split(".")[0]
    try:
        blocks = [block.X for block in reader.read(max(1, reader.n_rows))]
    except TableError as error:
        remedy = _remedy(library, [one.column for one in error.errors], Argument("drop", AUTO))
        raise TableError([_for_frame(library, one) for one in error.errors], remedy) from None
    except ColumnError as error:
        raise _for_frame(library, error) from None
    X = np.concatenate(blocks) if blocks else np.empty((0, reader.n_features))
    return np.ascontiguousarray(X, dtype=np.float64), reader


def _for_frame(library: str, error: ColumnError) -> ColumnError:
    """Return the error of a column with remedies for data frames of a library."""
    message = error.worded(partial(_remedy, library, [error.column]))
    return ColumnError(message, column=error.column, is_feature=error.is_feature)


def _remedy(library: str, columns: list[str], argument: Argument) -> str:
    """Return what to do about columns of a data frame X, in place of an argument of `open_rows`."""
    column = columns[0]
    ways = {
        ("pandas", "drop"): f"X.drop(columns={columns})",
        ("pandas", "categorical"): f"X.astype({{{column!r}: 'category'}})",
        ("pandas", "missing"): f"X.replace({{{column!r}: {argument.value!r}}}, float('nan'))",
        ("pandas", "decimal"): f"X[{column!r}].str.replace({argument.value!r}, '.')",
        ("pandas", "thousands"): f"X[{column!r}].str.replace({argument.value!r}, '')",
        (
            "polars",
            "thousands",
        ): f"polars.col({column!r}).str.replace_all({argument.value!r}, '', literal=True)",
        ("polars", "drop"): f"X.drop({', '.join(map(repr, columns))})",
        ("polars", "categorical"): f"X.cast({{{column!r}: polars.Categorical}})",
        ("polars", "missing"): f"polars.col({column!r}).replace({argument.value!r}, None)",
        ("polars", "decimal"): f"polars.col({column!r}).str.replace({argument.value!r}, '.')",
        ("pyarrow", "drop"): f"X.drop_columns({columns})",
    }
    return ways.get((library, argument.name), argument)


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
    names = None if obsm is not None else [str(each) for each in adata.var_names]
    if hasattr(matrix, "columns"):
        matrix, names = matrix.to_numpy(), [str(each) for each in matrix.columns]
    if names is not None and len(set(names)) < len(names):
        raise ValueError(
            "The AnnData has two variables of the same name: call adata.var_names_make_unique()."
        )
    values = Values(name, matrix.shape, np.dtype(matrix.dtype), partial(rows_of_array, matrix))
    return open_array(values, names)


def _of_obs(adata: Any, values: Any) -> Any:
    """Return a column of ``obs`` if `values` is a name, else `values`."""
    if not isinstance(values, str):
        return values
    if values not in adata.obs:
        known = f"{list(adata.obs)[:20]}.{nearest(values, adata.obs)}"
        raise ValueError(f"The AnnData's obs has no column {values!r}; it has {known}")
    return np.asarray(adata.obs[values])
