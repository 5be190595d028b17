"""Arrays that are read a range of rows at a time: .npy files, Zarr arrays, arrays in memory or mapped."""

from __future__ import annotations

import math
import mmap
import os
import tokenize
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Stamp = tuple[int, int]
"""Size and time of last change of a file."""


@dataclass(frozen=True)
class Values:
    """An array of one or two dimensions that is read by rows; `name` is for errors."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    # Returns rows start … stop − 1 as an array in memory.
    read: Callable[[int, int], np.ndarray]
    # State of the files when they were opened.
    stamps: dict[Path, Stamp] = field(default_factory=dict)
    # Rows of a storage chunk: ranges that begin at multiples of it are read fastest.
    unit: int = 1


def values_of(thing: Any, name: str) -> Values:
    """Return the values of a path, a Zarr array or anything array-like; `name` is for errors."""
    refuse_zarr_group(thing, name)
    if is_path(thing):
        return values_at(Path(thing))
    if is_zarr(thing):
        return _zarr(thing)
    array = thing if isinstance(thing, np.memmap) else np.asarray(thing)
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(value, str) for value in array):
        array = np.array(array.tolist())
    return Values(name, array.shape, array.dtype, partial(_rows_in_memory, array))


def values_at(path: Path) -> Values:
    """Return the values of a .npy file or a Zarr folder."""
    check_exists(path)
    if path.is_dir():
        if not is_zarr_folder(path):
            raise ValueError(f"{path} is a folder, but not a Zarr array.")
        try:
            import zarr
        except ImportError:
            raise ImportError("Zarr arrays need zarr: pip install skmix[zarr]") from None
        opened = zarr.open(str(path), mode="r")
        refuse_zarr_group(opened, str(path))
        return _zarr(opened)
    with open(path, "rb") as file:
        start = file.read(6)
    if start != np.lib.format.MAGIC_PREFIX:
        raise ValueError(f"{path} is not a .npy file: it begins with {start!r}. Write it with numpy.save.")
    try:
        mapped = np.load(path, mmap_mode="r")
    except (ValueError, SyntaxError, EOFError, tokenize.TokenError) as error:
        raise ValueError(f"{path} cannot be read as a .npy file: {error}") from None
    transposed = mapped.ndim == 2 and not mapped.flags.c_contiguous
    read = partial(_rows_of_npy, path, mapped.offset, mapped.shape, mapped.dtype, transposed)
    return Values(str(path), mapped.shape, mapped.dtype, read, {path: stamp(path)})


def _rows_of_npy(
    path: Path,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    transposed: bool,
    start: int,
    stop: int,
) -> np.ndarray:
    """Return rows of a file by reading it: pages of a memory map would count as memory of the process."""
    n_columns = math.prod(shape[1:])
    if transposed:
        first = [offset + (column * shape[0] + start) * dtype.itemsize for column in range(n_columns)]
        columns = [np.fromfile(path, dtype, stop - start, offset=place) for place in first]
        lengths = {len(column) for column in columns}
        rows = np.stack(columns, axis=1) if len(lengths) == 1 else np.empty((0, n_columns))
    else:
        rows = np.fromfile(
            path, dtype, (stop - start) * n_columns, offset=offset + start * n_columns * dtype.itemsize
        )
    if rows.size != (stop - start) * n_columns:
        raise ValueError(f"{path} became shorter while it was being read.")
    return rows.reshape(stop - start, *shape[1:])


def _rows_in_memory(array: Any, start: int, stop: int) -> np.ndarray:
    """Return rows of an array; those of a mapped one as a copy, so that the pages can be released."""
    rows = np.asarray(array[start:stop])
    mapping = getattr(array, "_mmap", None)
    # The pages of a copy-on-write mapping may hold changes that the file does not have.
    if mapping is None or array.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return rows
    rows = rows.copy()
    mapping.madvise(mmap.MADV_DONTNEED)
    return rows


def _zarr(array: Any) -> Values:
    stored = getattr(array, "shards", None) or array.chunks
    stamps: dict[Path, Stamp] = {}
    # These detect arrays that are replaced or resized, but not rewritten chunks.
    root = getattr(array.store_path.store, "root", None)
    if root is not None:
        folder = Path(root) / array.store_path.path
        stamps = {path: stamp(path) for name in ("zarr.json", ".zarray") if (path := folder / name).exists()}
    return Values(
        f"the Zarr array {array.store_path}",
        tuple(int(n) for n in array.shape),
        np.dtype(array.dtype),
        partial(_rows_in_memory, array),
        stamps,
        int(stored[0]) if stored else 1,
    )


def is_path(thing: Any) -> bool:
    """Return whether something is a path."""
    return isinstance(thing, (str, os.PathLike))


def is_zarr(thing: Any) -> bool:
    """Return whether something is a Zarr array, without importing zarr."""
    return type(thing).__module__.split(".")[0] == "zarr" and hasattr(thing, "chunks")


def is_zarr_folder(path: Path) -> bool:
    """Return whether a folder holds a Zarr array or group."""
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def refuse_zarr_group(thing: Any, name: str) -> None:
    """Raise ValueError for a Zarr group, which holds several arrays."""
    if type(thing).__module__.split(".")[0] == "zarr" and hasattr(type(thing), "array_keys"):
        raise ValueError(f"{name} is a Zarr group of {sorted(thing.array_keys())}. Give one of its arrays.")


def check_exists(path: Path) -> None:
    """Raise FileNotFoundError if a path does not exist."""
    if not path.exists():
        pattern = any(character in str(path) for character in "*?[")
        hint = " Patterns are not expanded: give the folder that holds the files." if pattern else ""
        raise FileNotFoundError(f"There is no file or folder {path}.{hint}")


def stamp(path: Path) -> Stamp:
    """Return size and time of last change of a file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def check_stamp(path: Path, before: Stamp) -> None:
    """Raise ValueError if a file has changed since it was opened."""
    try:
        now = stamp(path)
    except FileNotFoundError:
        raise ValueError(f"{path} no longer exists: files must stay in place while they are read.") from None
    if now != before:
        raise ValueError(
            f"{path} has changed since it was opened ({before[0]} bytes then, {now[0]} now): "
            "its rows must stay the same from pass to pass. Open it again."
        )
