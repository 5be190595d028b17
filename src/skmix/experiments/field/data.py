"""Data sets by name or file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets as sklearn_datasets

from skmix.datasets import load_mnist, make_seven_segment_digits, read_rows
from skmix.experiments.harness import generator
from skmix.features import digit_features
from skmix.io.tables import MISSING

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SEGMENTS = "seven_segment"
_SHIPPED = ("iris", "wine", "breast_cancer", "digits")
_MNIST = "mnist"
_IMAGES_PER_DIGIT = 100
NAMES = (*_SHIPPED, SEGMENTS, _MNIST)
"""Data sets that need no file; MNIST is downloaded from OpenML."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows to compare classifiers on."""

    name: str  # in tables
    X: FloatArray  # (N, M); NaN where a value is missing
    y: NDArray[Any]  # (N,)

    @property
    def has_gaps(self) -> bool:
        """Whether values are missing."""
        return bool(np.isnan(self.X).any())

    def digest(self) -> str:
        """Return a hash of all values, for the keys of results."""
        content = hashlib.sha256()
        for part in (np.ascontiguousarray(self.X), self.y.astype(str)):
            content.update(str(part.shape).encode())
            content.update(part.tobytes())
        return content.hexdigest()[:16]


def load_data(name: str, *, max_rows: int | None = None, label: str | None = None) -> DataSet:
    """Return a data set by its name, or from a file.

    Parameters
    ----------
    name : str
        One of `NAMES`; or the path of a table (see `skmix.datasets.read_rows`), or of a folder with the IDX
        files of MNIST.
    max_rows : int, default=None
        Use at most this many rows, drawn at random regardless of labels; always the same for the same name.
    label : str, default=None
        Column of labels in a table; None takes the last.

    Returns
    -------
    DataSet
        Rows and labels, without classes of a single row, which cannot be split.

    Raises
    ------
    ValueError
        If there is no such name or file.
    """
    path = Path(name)
    if name in _SHIPPED:
        X, y = getattr(sklearn_datasets, f"load_{name}")(return_X_y=True)
        found = DataSet(name, X.astype(np.float64), y)
    elif name == SEGMENTS:
        found = seven_segments(_IMAGES_PER_DIGIT, np.random.RandomState(0))
    elif name == _MNIST or path.is_dir():
        data = load_mnist(None if name == _MNIST else path)
        images = np.concatenate([data.train_images, data.test_images])
        pixels = images.reshape(len(images), -1).astype(np.float64)
        found = DataSet(_MNIST, pixels, np.concatenate([data.train_labels, data.test_labels]))
    elif path.is_file():
        found = _table(path, label)
    else:
        raise ValueError(f"there is no data set or file {name!r}; by name there are {', '.join(NAMES)}.")
    if max_rows is not None and max_rows < len(found.y):
        drawn = generator(0, "rows", found.name, max_rows).permutation(len(found.y))[:max_rows]
        found = DataSet(f"{found.name}[{max_rows}]", found.X[drawn], found.y[drawn])
    labels, counts = np.unique(found.y, return_counts=True)
    if np.count_nonzero(counts > 1) < 2:
        raise ValueError(f"{found.name} has fewer than two classes of two rows or more.")
    divisible = np.isin(found.y, labels[counts > 1])
    return DataSet(found.name, found.X[divisible], found.y[divisible])


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


def seven_segments(n_per_digit: int, random_state: np.random.RandomState) -> DataSet:
    """Return the paper's features of simulated digits; the first quadrant follows from the others."""
    images, labels = make_seven_segment_digits(n_per_digit, random_state=random_state)
    return DataSet(SEGMENTS, np.delete(digit_features(images), 10, axis=1), labels)
