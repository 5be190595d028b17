"""Write the population of each cell into tables, AnnData and FCS files."""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..data import (
    FcsReader,
    Source,
    check_writable,
    files_of,
    is_elsewhere,
    is_missing,
    open_rows,
    write_columns,
    write_fcs,
)
from ..model import enter
from .files import refuse_existing
from .populations import Populations, checked_mixture
from .reading import is_path


def write_labels(
    model: Any,
    populations: Populations | None,
    column: str | None,
    X: Any,
    target: Any,
    *,
    probabilities: bool,
    name: str | None,
    overwrite: bool,
) -> None:
    """Write the kernel, or the population, of each cell; see `Study.label_cells`.

    `column` names the samples of the study, if a column does.
    """
    name = name or ("kernel" if populations is None else "population")
    source = _opened(X, column)
    rows = X if source is None else source
    names = list(range(model.n_kernels_)) if populations is None else populations.display_names
    is_file = isinstance(target, (str, PathLike))
    if is_file and (not Path(target).suffix or Path(target).is_dir()):
        _into_files(model, source, Path(target), name, names, populations, overwrite)
        return
    if is_file:
        check_writable(Path(target))
        if source is not None and source.comes_from(Path(target)):
            raise ValueError(f"{target} is one of the input files: give another name.")
        refuse_existing(Path(target), overwrite=overwrite)
        if name == "sample" or name.startswith("p_"):
            raise ValueError(f"name={name!r} is the name of another column of the table.")
    elif not all(hasattr(target, each) for each in ("obs", "obsm", "n_obs")):
        raise TypeError(f"target must be a path or an AnnData, got a {type(target).__name__}.")
    elif not overwrite:
        if name in target.obs:
            raise ValueError(
                f"obs has a column {name!r}: give another name, or overwrite=True to replace it."
            )
        if probabilities and f"{name}_probabilities" in target.obsm:
            raise ValueError(
                f"obsm has {name}_probabilities: give another name, or overwrite=True to replace it."
            )
    posteriors = by_sample("predict_proba", model, rows, populations) if probabilities else None
    if posteriors is None:
        labels = by_sample("predict", model, rows, populations)
    else:
        labels = posteriors.argmax(axis=1)
    if is_file:
        columns = {"sample": source.row_labels()} if source is not None and source.has_labels else {}
        is_named = any(isinstance(each, str) for each in names)
        columns[name] = np.array([*map(str, names)], dtype=object)[labels] if is_named else labels
        if posteriors is not None:
            columns |= {f"p_{label}": share for label, share in zip(names, posteriors.T, strict=True)}
        write_columns(target, columns)
        return
    import pandas as pd

    if len(labels) != target.n_obs:
        raise ValueError(f"There are {len(labels)} cells, but the AnnData has {target.n_obs} observations.")
    target.obs[name] = pd.Categorical.from_codes(labels, [*map(str, names)])
    if posteriors is not None:
        target.obsm[f"{name}_probabilities"] = posteriors


def predicted_columns(
    model: Any, populations: Populations | None, column: str | None, X: Any, *, why: bool, **reading: Any
) -> dict[str, np.ndarray]:
    """Return what a study says of each cell, as columns (n,); see `Study.predictions`."""
    from ..report import predictions  # slow to import

    source, samples = _opened(X, column, **reading), None
    if source is not None:
        rows = enter(checked_mixture(model), source).in_memory()
        X, samples = rows.X, rows.y
    posteriors = by_sample("predict_proba", model, X, populations, () if samples is None else samples)
    names = None if populations is None else populations.display_names
    return predictions(model, X, posteriors=posteriors, populations=names, why=why)


def _opened(X: Any, column: str | None, **reading: Any) -> Source | None:
    """Open cells with the samples in a column that they have or, without one, by file; None for an array."""
    if isinstance(X, Source):
        return X
    alone = column is None and is_path(X) and files_of(X) is None
    source = open_rows([X] if alone else X, **reading) if is_elsewhere(X) else None
    known = getattr(X, "column_names", getattr(X, "columns", ()))
    known = known if source is None else getattr(source.first, "all_names", ())
    return open_rows(X, label=column, **reading) if column in getattr(X, "obs", known) else source


def by_sample(
    method: str, model: Any, X: Any, populations: Populations | None, samples: ArrayLike | None = None
) -> np.ndarray:
    """Return what a method predicts (n, ...) with the weights and means of each cell's sample (n,).

    It is a method of the populations or, without them, of the model. Cells whose sample is unknown, or not in
    the fit, are predicted with averages over the samples. By default, samples are those of a source.
    """
    predict = getattr(model, method)
    if populations is not None:
        predict = partial(getattr(populations, method), model)
    classes = checked_mixture(model).classes_
    if samples is None:
        samples = X.row_labels() if isinstance(X, Source) and X.has_labels else ()
    samples = np.asarray(samples)
    # Missing values such as pandas.NA may be neither hashable nor equal to themselves.
    known, names = ~is_missing(samples), set(classes.tolist())
    known[known] = [sample in names for sample in samples[known].tolist()]
    # Labels of a source count in predictions, and samples that are not in the fit are none.
    averaged = X.unlabelled() if isinstance(X, Source) else X
    if not known.any():
        return np.asarray(predict(averaged))
    # Unknown samples are replaced by the first class, and masked below.
    filled = np.full(len(samples), classes[0], dtype=classes.dtype)
    filled[known] = samples[known]
    predicted = np.array(predict(X, filled))
    if not known.all():
        predicted[~known] = np.asarray(predict(averaged))[~known]
    return predicted


def _into_files(
    model: Any,
    source: Source | None,
    folder: Path,
    name: str,
    names: list[Any],
    populations: Populations | None,
    overwrite: bool,
) -> None:
    copies = {}
    for sample, rows in {"": None}.items() if source is None else source.each():
        reader = None if rows is None else rows.readers[sample]
        if not isinstance(reader, FcsReader):
            what = "these cells are in memory"
            if reader is not None and (reader.stamps or reader.origin):
                what = f"{reader.name} is not an FCS file"
            raise ValueError(
                f"target {str(folder)!r} is a folder, for copies of FCS files, but {what}. Give the name of "
                "a table, such as labels.csv or labels.parquet."
            )
        # Names of samples are unique; files in several folders may have the same name.
        copy = folder / f"{sample or reader.file.path.stem}.fcs"
        if source is not None and source.comes_from(copy):
            raise ValueError(f"{copy} is one of the input files: give another folder.")
        refuse_existing(copy, overwrite=overwrite)
        copies[copy] = (reader.file.path, rows)
    for copy, (path, rows) in copies.items():
        labels = by_sample("predict", model, rows, populations)
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_fcs(copy, path, name, labels, names)
