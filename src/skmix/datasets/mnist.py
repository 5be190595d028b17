"""MNIST, from its IDX files or, through scikit-learn, from OpenML."""

from __future__ import annotations

import gzip
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
PathLike = str | os.PathLike[str]

_GZIP = b"\x1f\x8b"
# Types of numbers, by the third byte of an IDX file.
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_ON_OPENML = "mnist_784"
_N_TRAINING = 60000
_MNIST_SHAPE = (28, 28)


@dataclass(frozen=True, eq=False)
class SplitImages:
    """Images with their labels, in the usual split.

    Attributes
    ----------
    train_images, test_images : ndarray of shape (n, height, width), uint8
        Images.
    train_labels, test_labels : ndarray of shape (n,), int
        Their labels.
    """

    train_images: NDArray[np.uint8]
    train_labels: IntArray
    test_images: NDArray[np.uint8]
    test_labels: IntArray


def read_idx(path: PathLike) -> NDArray[Any]:
    """Read an array from an IDX file, the format of the MNIST database.

    Parameters
    ----------
    path : path-like
        The file, plain or compressed by gzip.

    Returns
    -------
    ndarray
        The array, in native byte order.

    Raises
    ------
    ValueError
        If the file is not an IDX file, or its length does not match its header.

    Examples
    --------
    >>> from skmix.datasets import read_idx
    >>> images = read_idx("train-images-idx3-ubyte.gz")  # doctest: +SKIP
    """
    with _opened(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES:
            raise ValueError(f"{path} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}.")
        kind, n_axes = np.dtype(_IDX_TYPES[start[2]]), start[3]
        sizes = stream.read(4 * n_axes)
        if len(sizes) < 4 * n_axes:
            raise ValueError(f"{path} ends within its header.")
        shape = tuple(int(size) for size in np.frombuffer(sizes, dtype=">u4"))
        n_bytes = math.prod(shape) * kind.itemsize
        content = stream.read()
    if len(content) != n_bytes:
        raise ValueError(f"{path} should have {n_bytes} bytes for shape {shape}, but has {len(content)}.")
    return np.frombuffer(content, dtype=kind).reshape(shape).astype(kind.newbyteorder("="))


def load_mnist(folder: PathLike | None = None) -> SplitImages:
    """Return the MNIST database of handwritten digits: 60000 training and 10000 test images.

    Parameters
    ----------
    folder : path-like, default=None
        Folder with the four IDX files under their usual names, with or without ``.gz``. None downloads the
        data from OpenML, through scikit-learn, which caches them.

    Returns
    -------
    SplitImages
        Images of 28 × 28 pixels, from 0 (background) to 255, and their digits.

    Raises
    ------
    FileNotFoundError
        If the folder lacks a file.
    ValueError
        If a file is damaged, or images and labels do not match.

    Examples
    --------
    >>> from skmix.datasets import load_mnist
    >>> digits = load_mnist("mnist")  # doctest: +SKIP
    """
    if folder is None:
        from sklearn.datasets import fetch_openml

        pixels, labels = fetch_openml(_MNIST_ON_OPENML, version=1, return_X_y=True, as_frame=False)
        images = np.asarray(pixels).reshape(-1, *_MNIST_SHAPE).astype(np.uint8)
        codes = np.asarray(labels).astype(np.int64)
        first, rest = slice(0, _N_TRAINING), slice(_N_TRAINING, None)
        return SplitImages(images[first], codes[first], images[rest], codes[rest])
    arrays = [read_idx(_existing(Path(folder), name)) for name in _MNIST_FILES]
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"images of shape {images.shape} and labels of shape {labels.shape} in {folder} do not match."
            )
    return SplitImages(arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64))


def _opened(path: PathLike) -> BinaryIO:
    """Open a file for reading, through gzip if its content is compressed."""
    with open(path, "rb") as file:
        compressed = file.read(2) == _GZIP
    return gzip.open(path, "rb") if compressed else open(path, "rb")  # type: ignore[return-value]


def _existing(folder: Path, name: str) -> Path:
    """Return the file of that name, plain or compressed."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder} has neither {name} nor {name}.gz.")
