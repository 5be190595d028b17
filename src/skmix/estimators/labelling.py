"""Labels of rows written back: into tables, AnnData and FCS files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.compute.blocks import is_missing
from ..io import Source, source_of
from ..io.fcs import write_fcs
from ..io.joined import JoinedRows
from ..io.sources import FcsRows
from ..io.writing import check_writable, write_columns
from .rows import host_copy


def write_labels(
    model: Any, X: Any, target: Any, *, populations: bool, probabilities: bool, name: str | None
) -> None:
    """Write the kernel or population of each row; see `SharedKernelMixture.write_labels`."""
    name = name or ("population" if populations else "kernel")
    source = source_of(X)
    if not isinstance(target, (str, PathLike)):
        _into_anndata(model, X if source is None else source, target, name, populations, probabilities)
    elif Path(target).suffix and not Path(target).is_dir():
        check_writable(Path(target))
        if source is not None and source.comes_from(Path(target)):
            raise ValueError(f"{target} is one of the files that are read: give another name.")
        if name == "group" or name.startswith("p_"):
            raise ValueError(f"name={name!r} is that of another column of the table.")
        columns = {}
        if source is not None and source.has_labels:
            columns["group"] = source.row_labels()
        columns[name], shares = _predicted(model, X if source is None else source, populations, probabilities)
        names: list[Any] = list(range(shares.shape[1]))
        if names and _has_background(model):
            names[-1] = "background"
        write_columns(target, columns | {f"p_{k}": share for k, share in zip(names, shares.T, strict=True)})
    else:
        _into_files(model, source, Path(target), name, populations)


def _predicted(model: Any, X: Any, populations: bool, probabilities: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers (n,) of kernels or populations, and their probabilities (n, K), (n, 0) for none.

    With a background, its probability is the last column, and -1 the number of rows that are most likely it.
    """
    groups, known = _groups(model, X)
    found = _by_group(model.predict, X, groups, known, populations)
    if not probabilities and not _has_background(model):
        return found, np.empty((len(found), 0))
    shares = _by_group(model.predict_proba, X, groups, known, populations)
    if _has_background(model):
        left = np.maximum(1.0 - shares.sum(axis=1), 0.0)
        found = np.where(left > shares.max(axis=1), -1, found)
        shares = np.column_stack([shares, left])
    return found, shares if probabilities else shares[:, :0]


def _has_background(model: Any) -> bool:
    return "background_weights_" in vars(model)


def _groups(model: Any, X: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """Return groups (n,) of rows, and which (n,) are their own; others stand for groups not in the fit.

    None where no row is of a group that is in the fit.
    """
    if not (isinstance(X, Source) and X.has_labels):
        return None, np.zeros(0, dtype=bool)
    classes, groups = host_copy(model).classes_, X.row_labels()
    names = set(classes.tolist())
    # pandas.NA and the like need not be hashable, nor equal to themselves.
    known = ~is_missing(groups)
    known[known] = [group in names for group in groups[known].tolist()]
    if not known.any():
        return None, known
    filled = np.full(len(groups), classes[0], dtype=classes.dtype)
    filled[known] = groups[known]
    return filled, known


def _by_group(
    predict: Any, X: Any, groups: np.ndarray | None, known: np.ndarray, populations: bool
) -> np.ndarray:
    """Return predictions (n, ...) with the weights and means of known groups, average ones for others."""
    found = np.asarray(predict(X, groups=groups, populations=populations))
    if groups is not None and not known.all():
        found[~known] = np.asarray(predict(X, populations=populations))[~known]
    return found


def _into_anndata(model: Any, X: Any, adata: Any, name: str, populations: bool, probabilities: bool) -> None:
    if not all(hasattr(adata, part) for part in ("obs", "obsm", "uns", "n_obs")):
        raise TypeError(f"target must be a path or an AnnData, got a {type(adata).__name__}.")
    import pandas as pd

    found, shares = _predicted(model, X, populations, probabilities)
    if len(found) != adata.n_obs:
        raise ValueError(f"X has {len(found)} rows, but the AnnData has {adata.n_obs} observations.")
    fitted = host_copy(model)
    n_labels = int(fitted.populations_.max()) + 1 if populations else fitted.n_kernels_
    names = [str(number) for number in range(n_labels)]
    if _has_background(model):
        names.append("background")
    adata.obs[name] = pd.Categorical.from_codes(np.where(found < 0, n_labels, found), names)
    if probabilities:
        adata.obsm[f"{name}_probabilities"] = shares
    summary = {
        "groups": fitted.classes_.astype(str),
        "rows": fitted.class_count_,
        # A line for each group.
        "weights": fitted.weights_.T,
        "means": fitted.means_,
    }
    if "feature_names_in_" in vars(fitted):
        summary["features"] = fitted.feature_names_in_.astype(str)
    if populations:
        summary["populations"] = fitted.populations_
    adata.uns["skmix"] = summary


def _into_files(model: Any, source: Source | None, folder: Path, name: str, populations: bool) -> None:
    """Write copies of FCS files, with one more channel, into a folder."""
    parts = dict(source.each()) if isinstance(source, JoinedRows) else {"": source}
    files = {}
    for group, rows in parts.items():
        part = rows.parts[group] if isinstance(rows, JoinedRows) else rows
        if not isinstance(part, FcsRows):
            what = "these rows are in memory" if part is None else f"{part.name} is not an FCS file"
            raise ValueError(
                f"target {str(folder)!r} is a folder, for copies of FCS files; {what}. Give the name of a "
                "table, such as labels.csv or labels.parquet."
            )
        # Names of groups differ, those of files in several folders need not.
        target = folder / f"{group or part.path.stem}.fcs"
        if source is not None and source.comes_from(target):
            raise ValueError(f"{target} is one of the files that are read: give another folder.")
        files[target] = (part.path, rows)
    for target, (path, rows) in files.items():
        labels, _ = _predicted(model, rows, populations, probabilities=False)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_fcs(target, path, {name: labels})
