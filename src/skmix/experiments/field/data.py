"""Data sets by name or file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets

from skmix.datasets import load_mnist, make_seven_segment_digits, read_rows
from skmix.experiments.field.records import DataSet
from skmix.experiments.harness import generator
from skmix.features import digit_features
from skmix.io.tables import MISSING

_SHIPPED = ("iris", "wine", "breast_cancer", "digits")
_SEGMENTS = "seven_segment"
_MNIST = "mnist"
_SEGMENT_IMAGES = 100
NAMES = (*_SHIPPED, _SEGMENTS, _MNIST)
"""Data sets that need no file; MNIST comes from OpenML."""


def load_data(name: str, *, max_rows: int | None = None, label: str | None = None) -> DataSet:
    """Return a data set by its name, or from a file.

    Parameters
    ----------
    name : str
        One of `NAMES`; or the path of a table (see `read_rows`), or of a folder with MNIST's IDX files.
    max_rows : int, default=None
        At most so many rows, drawn at random and without regard to labels; always the same for the same name.
    label : str, default=None
        Column of labels in a table; None takes the last.

    Returns
    -------
    DataSet
        Rows and labels. Classes of a single row are left out: no split has them on both sides.

    Raises
    ------
    ValueError
        If there is no such name or file.
    """
    path = Path(name)
    if name in _SHIPPED:
        X, y = getattr(sklearn_datasets, f"load_{name}")(return_X_y=True)
        found = DataSet(name, X.astype(np.float64), y)
    elif name == _SEGMENTS:
        found = _seven_segments()
    elif name == _MNIST:
        found = _mnist(None)
    elif path.is_dir():
        found = _mnist(path)
    elif path.is_file():
        found = _table(path, label)
    else:
        raise ValueError(f"there is no data set or file {name!r}; by name there are {', '.join(NAMES)}.")
    if max_rows is not None and max_rows < len(found.y):
        kept = generator(0, "rows", found.name, max_rows).permutation(len(found.y))[:max_rows]
        found = DataSet(f"{found.name}[{max_rows}]", found.X[kept], found.y[kept])
    return _without_single_rows(found)


def _table(path: Path, label: str | None) -> DataSet:
    """Return a table whose labels are in the named column, or the last."""
    rows = read_rows(path, target=-1 if label is None else label)
    assert rows.labels is not None
    y = np.array([str(value).strip() for value in rows.labels])
    missing = np.flatnonzero(np.isin(y, [*MISSING, "None"]))
    if len(missing):
        raise ValueError(
            f"{path}: row {missing[0] + 1} of {len(y)} has no label; {len(missing)} rows have none."
        )
    return DataSet(path.name.split(".")[0], rows.X, y)


def _seven_segments() -> DataSet:
    """Return the paper's features of simulated digits; the first quadrant's follows from the others."""
    images, labels = make_seven_segment_digits(_SEGMENT_IMAGES, random_state=0)
    return DataSet(_SEGMENTS, np.delete(digit_features(images), 10, axis=1), labels)


def _mnist(folder: Path | None) -> DataSet:
    data = load_mnist(folder)
    images = np.concatenate([data.train_images, data.test_images])
    pixels = images.reshape(len(images), -1).astype(np.float64)
    return DataSet(_MNIST, pixels, np.concatenate([data.train_labels, data.test_labels]))


def _without_single_rows(data: DataSet) -> DataSet:
    labels, counts = np.unique(data.y, return_counts=True)
    kept = np.isin(data.y, labels[counts > 1])
    if len(labels[counts > 1]) < 2:
        raise ValueError(f"{data.name} has fewer than two classes of two rows or more.")
    return DataSet(data.name, data.X[kept], data.y[kept])
