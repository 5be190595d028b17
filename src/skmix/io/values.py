"""Arrays that are read a range of rows at a time: files, mapped files, Zarr arrays, memory."""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Values(Protocol):
    """An array of one or two dimensions, read by rows."""

    @property
    def name(self) -> str:
        """What to call it in errors."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and of columns if there are any."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        ...

    @property
    def unit(self) -> int:
        """Rows that are stored together: ranges that begin at a multiple of it are read fastest."""
        ...

    def check(self) -> None:
        """Raise when the array is not what it was when it was opened."""
        ...

    def read(self, start: int, stop: int, memory: np.ndarray) -> np.ndarray:
        """Return rows start … stop − 1, in `memory` (bytes, enough for them) or elsewhere."""
        ...


class FileValues:
    """Numbers that lie one after the other in a file.

    They are read, not mapped: the pages of a mapped file that were touched count as a process's own memory.

    Parameters
    ----------
    path : Path
        The file.
    offset : int
        Where in it the numbers begin.
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Type of the numbers.
    fortran : bool
        Whether columns lie one after the other, not rows.
    """

    unit = 1

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool = False
    ) -> None:
        self.name = str(path)
        self.shape = shape
        self.dtype = dtype
        self._path, self._offset = path, offset
        self._fortran = fortran and len(shape) > 1
        self._stamp = stamp(path)
        needed = offset + math.prod(shape) * dtype.itemsize
        if self._stamp[0] < needed:
            raise ValueError(
                f"{path} has {self._stamp[0]} bytes, but an array of shape {shape} and type {dtype} needs "
                f"{needed}. Was it written completely?"
            )

    def check(self) -> None:
        """Raise when the file has changed."""
        check_stamp(self._path, self._stamp)

    def read(self, start: int, stop: int, memory: np.ndarray) -> np.ndarray:
        """Return rows start … stop − 1 in `memory`."""
        width = math.prod(self.shape[1:])
        size = self.dtype.itemsize
        count = (stop - start) * width
        target = memory[: count * size]
        with open(self._path, "rb", buffering=0) as file:
            if not self._fortran:
                self._fill(file, self._offset + start * width * size, target)
                return target.view(self.dtype).reshape(stop - start, *self.shape[1:])
            length = (stop - start) * size
            for column in range(width):
                place = self._offset + (column * self.shape[0] + start) * size
                self._fill(file, place, target[column * length : (column + 1) * length])
        return target.view(self.dtype).reshape(width, stop - start).T

    def _fill(self, file: Any, place: int, target: np.ndarray) -> None:
        file.seek(place)
        view = memoryview(target.data)
        while len(view):
            # A read may end early; zero bytes mean the end of the file.
            read = file.readinto(view)
            if not read:
                raise ValueError(f"{self._path} ended early: it has become shorter while it was read.")
            view = view[read:]


class MemoryValues:
    """An array in memory, or mapped there.

    Parameters
    ----------
    array : ndarray
        The array.
    name : str
        What to call it in errors.
    """

    unit = 1

    def __init__(self, array: np.ndarray, name: str) -> None:
        self.name = name
        self.shape = array.shape
        self.dtype = array.dtype
        self._array = array
        self._map = getattr(array, "_mmap", None)
        # Copy-on-write pages may hold what the file does not: they must not be dropped.
        if self._map is not None and (array.mode == "c" or not hasattr(mmap, "MADV_DONTNEED")):  # type: ignore[attr-defined]
            self._map = None

    def check(self) -> None:
        """Do nothing: memory is the caller's."""

    def read(self, start: int, stop: int, memory: np.ndarray) -> np.ndarray:
        """Return rows start … stop − 1: a copy if they are mapped, and then their pages are given back."""
        rows = np.asarray(self._array[start:stop])
        if self._map is None:
            return rows
        copied = memory[: rows.nbytes].view(self.dtype).reshape(rows.shape)
        copied[...] = rows
        self._map.madvise(mmap.MADV_DONTNEED)
        return copied


class ZarrValues:
    """A Zarr array.

    Parameters
    ----------
    array : zarr.Array
        The array.
    """

    def __init__(self, array: Any) -> None:
        self.name = f"the Zarr array {array.store_path}"
        self.shape = tuple(int(n) for n in array.shape)
        self.dtype = np.dtype(array.dtype)
        stored = getattr(array, "shards", None) or array.chunks
        self.unit = int(stored[0]) if stored else 1
        self._array = array
        self._described: tuple[Path, tuple[int, int]] | None = None
        root = getattr(array.store_path.store, "root", None)
        if root is not None:
            folder = Path(root) / array.store_path.path
            found = [folder / name for name in ("zarr.json", ".zarray") if (folder / name).exists()]
            self._described = (found[0], stamp(found[0])) if found else None

    def check(self) -> None:
        """Raise when the array was replaced or resized; chunks that were written anew are not noticed."""
        if self._described is not None:
            check_stamp(*self._described)

    def read(self, start: int, stop: int, memory: np.ndarray) -> np.ndarray:
        """Return rows start … stop − 1."""
        return np.asarray(self._array[start:stop])


def values_of(thing: Any, name: str) -> Values:
    """Return a path, a mapped file, a Zarr array or anything array-like as values; `name` is for errors."""
    refuse_groups(thing, name)
    if isinstance(thing, (str, os.PathLike)):
        return values_at(Path(thing))
    if isinstance(thing, np.memmap):
        return _mapped(thing, name)
    if is_zarr(thing):
        return ZarrValues(thing)
    array = np.asarray(thing)
    if array.dtype.kind == "O" and array.ndim == 1:
        # Strings are quicker as such; what else is there stays what it is.
        array = np.array(array.tolist()) if all(isinstance(value, str) for value in array) else array
    return MemoryValues(array, name)


def values_at(path: Path) -> Values:
    """Return the array of a .npy file or a Zarr folder."""
    check_exists(path)
    if path.is_dir():
        if not is_zarr_folder(path):
            raise ValueError(f"{path} is a folder, but not a Zarr array.")
        return _zarr_at(path)
    with open(path, "rb") as file:
        start = file.read(6)
        if start != np.lib.format.MAGIC_PREFIX:
            raise ValueError(
                f"{path} is not a .npy file: it begins with {start!r}. Write the array with numpy.save."
            )
        file.seek(0)
        version = np.lib.format.read_magic(file)
        readers: dict[Any, Any] = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise ValueError(f"{path} is a .npy file of version {version}, which is not known here.")
        shape, fortran, dtype = readers[version](file)
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{path} holds Python objects. Save numbers or strings of a fixed length.")
    return FileValues(path, offset, shape, dtype, fortran)


def check_exists(path: Path) -> None:
    """Raise when there is nothing at a path."""
    if not path.exists():
        pattern = any(character in str(path) for character in "*?[")
        hint = " Patterns are not looked up: give the folder that holds the files." if pattern else ""
        raise FileNotFoundError(f"There is no file or folder {path}.{hint}")


def refuse_groups(thing: Any, name: str) -> None:
    """Refuse a Zarr group: it holds several arrays."""
    if type(thing).__module__.split(".")[0] == "zarr" and hasattr(type(thing), "array_keys"):
        raise ValueError(f"{name} is a Zarr group of {sorted(thing.array_keys())}. Give one of its arrays.")


def _mapped(array: np.memmap[Any, Any], name: str) -> Values:
    """Return a mapped array, as its file where that can be read instead."""
    mapping = getattr(array, "_mmap", None)
    if mapping is None or array.filename is None or array.mode == "c" or not array.flags.c_contiguous:
        return MemoryValues(array, name)
    # The mapping begins at a multiple of its granularity; the array may be any part of it.
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    place = array.ctypes.data - np.frombuffer(mapping, dtype=np.uint8).ctypes.data
    if array.mode != "r":
        array.flush()
    return FileValues(Path(array.filename), begin + place, array.shape, array.dtype)


def _zarr_at(path: Path) -> Values:
    zarr = load_zarr()
    opened = zarr.open(str(path), mode="r")
    if not hasattr(opened, "chunks"):
        raise ValueError(
            f"{path} is a Zarr group of {sorted(opened.array_keys())}. Give the path of one array."
        )
    return ZarrValues(opened)


def load_zarr() -> Any:
    """Return the zarr library."""
    try:
        import zarr
    except ImportError:
        raise ImportError("Zarr arrays need zarr: pip install skmix[zarr]") from None
    return zarr


def is_zarr(thing: Any) -> bool:
    """Return whether something is a Zarr array, without importing zarr."""
    return type(thing).__module__.split(".")[0] == "zarr" and hasattr(thing, "chunks")


def is_zarr_folder(path: Path) -> bool:
    """Return whether a folder holds a Zarr array or group."""
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def stamp(path: Path) -> tuple[int, int]:
    """Return size and time of last change of a file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def check_stamp(path: Path, before: tuple[int, int]) -> None:
    """Raise when a file has changed since."""
    try:
        now = stamp(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is gone: files must stay while they are read.") from None
    if now != before:
        raise ValueError(
            f"{path} has changed since it was opened ({before[0]} bytes then, {now[0]} now): "
            "its rows must stay the same from pass to pass. Open it again."
        )
