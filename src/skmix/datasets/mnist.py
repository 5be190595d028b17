"""MNIST, from its IDX files or, through scikit-learn, from OpenML."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
PathLike = str | os.PathLike[str]

_GZIP = b"\x1f\x8b"
# Types of numbers, by the third byte of an IDX file.
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_N_TRAINING = 60000


@dataclass(frozen=True, eq=False)
class SplitImages:
    """Images with their labels, in the usual split."""

    train_images: NDArray[np.uint8]  #: (n, height, width)
    train_labels: IntArray  #: (n,)
    test_images: NDArray[np.uint8]  #: (m, height, width)
    test_labels: IntArray  #: (m,)


def read_idx(path: PathLike) -> NDArray[Any]:
    """Read an array from an IDX file, the format of the MNIST database.

    Parameters
    ----------
    path : path-like
        The file, plain or compressed by gzip.

    Returns
    -------
    ndarray
        The array, in native byte order. A damaged file raises ValueError.
    """
    content = Path(path).read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}.") from None
    start = content[:4]
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES:
        raise ValueError(f"{path} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}.")
    kind, header = np.dtype(_IDX_TYPES[start[2]]), 4 + 4 * start[3]
    if len(content) < header:
        raise ValueError(f"{path} ends within its header.")
    shape = tuple(np.frombuffer(content[4:header], dtype=">u4").tolist())
    n_bytes, n_found = math.prod(shape) * kind.itemsize, len(content) - header
    if n_found != n_bytes:
        raise ValueError(f"{path} should have {n_bytes} bytes for shape {shape}, but has {n_found}.")
    return np.frombuffer(content, kind, offset=header).reshape(shape).astype(kind.newbyteorder("="))


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
    """
    if folder is None:
        from sklearn.datasets import fetch_openml

        pixels, labels = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
        images = np.asarray(pixels).reshape(-1, 28, 28).astype(np.uint8)
        codes = np.asarray(labels).astype(np.int64)
        return SplitImages(
            images[:_N_TRAINING], codes[:_N_TRAINING], images[_N_TRAINING:], codes[_N_TRAINING:]
        )
    parts: list[NDArray[Any]] = []
    for part in ("train", "t10k"):
        images, labels = (
            read_idx(_existing(Path(folder), f"{part}-{content}-ubyte"))
            for content in ("images-idx3", "labels-idx1")
        )
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"images of shape {images.shape} and labels of shape {labels.shape} in {folder} do not match."
            )
        parts += [images, labels.astype(np.int64)]
    return SplitImages(*parts)


def _existing(folder: Path, name: str) -> Path:
    """Return the file of that name, plain or compressed."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder} has neither {name} nor {name}.gz.")
