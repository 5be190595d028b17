"""Write the population of each cell into tables, AnnData and FCS files."""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..data import Source, open_rows, write_columns
from ..data.events import FcsReader, write_fcs
from ..data.missing import is_missing
from ..data.opening import files_of, is_elsewhere
from ..data.read import is_path
from ..data.write import check_writable
from ..model.checks import computed
from ..model.rows import enter
from .populations import Populations, checked_mixture
from .samples import mixture_of


def write_labels(study: Any, X: Any, target: Any, *, probabilities: bool, name: str | None) -> None:
    """Write the kernel, or the population, of each cell; see `Study.label_cells`."""
    model, populations = _model_of(study), study.populations
    name = name or ("kernel" if populations is None else "population")
    source = _opened(X, study._origin.column)
    rows = X if source is None else source
    names = _names(model, populations)
    if not isinstance(target, (str, PathLike)):
        if not all(hasattr(target, each) for each in ("obs", "obsm", "n_obs")):
            raise TypeError(f"target must be a path or an AnnData, got a {type(target).__name__}.")
        import pandas as pd

        found = by_sample("predict", model, rows, populations)
        if len(found) != target.n_obs:
            problem = f"but the AnnData has {target.n_obs} observations."
            raise ValueError(f"There are {len(found)} cells, {problem}")
        target.obs[name] = pd.Categorical.from_codes(found, [*map(str, names)])
        if probabilities:
            target.obsm[f"{name}_probabilities"] = by_sample("predict_proba", model, rows, populations)
    elif Path(target).suffix and not Path(target).is_dir():
        check_writable(Path(target))
        if source is not None and source.comes_from(Path(target)):
            raise ValueError(f"{target} is one of the input files: give another name.")
        if name == "sample" or name.startswith("p_"):
            raise ValueError(f"name={name!r} is the name of another column of the table.")
        columns = {}
        if source is not None and source.has_labels:
            columns["sample"] = source.row_labels()
        columns[name] = by_sample("predict", model, rows, populations)
        if any(isinstance(each, str) for each in names):
            columns[name] = np.array([*map(str, names)], dtype=object)[columns[name]]
        if probabilities:
            posteriors = by_sample("predict_proba", model, rows, populations)
            columns |= {f"p_{k}": each for k, each in zip(names, posteriors.T, strict=True)}
        write_columns(target, columns)
    else:
        _into_files(model, source, Path(target), name, populations)


def _names(model: Any, populations: Populations | None) -> list[Any]:
    return list(range(model.n_kernels_)) if populations is None else populations.display_names


def _opened(X: Any, column: str | None, **reading: Any) -> Source | None:
    """Open cells with the samples in a column that they have or, without one, by file; None for an array.

    Options of `open_rows` say how files are read.
    """
    if isinstance(X, Source):
        return X
    alone = column is None and is_path(X) and files_of(X) is None
    source = open_rows([X] if alone else X, **reading) if is_elsewhere(X) else None
    known = getattr(X, "column_names", getattr(X, "columns", ()))
    known = known if source is None else getattr(source.first, "all_names", ())
    return open_rows(X, label=column, **reading) if column in getattr(X, "obs", known) else source


def predicted_columns(study: Any, X: Any, *, why: bool, **reading: Any) -> dict[str, np.ndarray]:
    """Return what a study says of each cell, as columns (n,); see `Study.predictions`."""
    from ..report import predictions  # slow to import

    model, populations = _model_of(study), study.populations
    source, samples = _opened(X, study._origin.column, **reading), None
    if source is not None:
        rows = enter(checked_mixture(model), source).in_memory()
        X, samples = rows.X, rows.y
    posteriors = by_sample("predict_proba", model, X, populations, () if samples is None else samples)
    names = None if populations is None else populations.display_names
    return predictions(model, X, posteriors=posteriors, populations=names, why=why)


def _model_of(study: Any) -> Any:
    """The mixture of a study, with the weights of its samples if these are new."""
    model = study.model
    return mixture_of(checked_mixture(model), study._samples) if study._is_new else model


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
    if not known.any():
        return np.asarray(computed(predict(X)))
    # Unknown samples are replaced by the first class, and masked below.
    filled = np.full(len(samples), classes[0], dtype=classes.dtype)
    filled[known] = samples[known]
    found = np.asarray(computed(predict(X, groups=filled)))
    if not known.all():
        found[~known] = np.asarray(computed(predict(X)))[~known]
    return found


def _into_files(
    model: Any, source: Source | None, folder: Path, name: str, populations: Populations | None
) -> None:
    files = {}
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
        target = folder / f"{sample or reader.file.path.stem}.fcs"
        if source is not None and source.comes_from(target):
            raise ValueError(f"{target} is one of the input files: give another folder.")
        files[target] = (reader.file.path, rows)
    for target, (path, rows) in files.items():
        labels = by_sample("predict", model, rows, populations)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_fcs(target, path, name, labels, _names(model, populations))
