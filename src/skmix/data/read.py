"""Readers of files and arrays: what they have in common, and the reader of arrays and .npy files.

A reader knows all columns of one file or array. It keeps no choice of columns: `read` gets the columns and
their kinds from a `Source`, and yields rows of features.
"""

from __future__ import annotations

import os
import tokenize
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import nearest
from ..engine.records import FloatArray
from .encoding import Kind
from .missing import without_mask
from .problems import ColumnError
from .recipe import Preparation

Stamp = tuple[int, int]
"""Size of a file and time of its last change."""
Column = str | int
"""Name of a column, or its index if columns have no names."""
Rows = tuple[NDArray[Any], FloatArray | None]
"""Features (n, M) of some rows, and their weights (n,) if a column has them."""
NPY_DAMAGE = (EOFError, SyntaxError, tokenize.TokenError)
"""Errors that NumPy raises for damaged files, besides ValueError."""
# Default size of a block: large enough that the overhead per block is negligible, and small enough that three
# blocks fit in any memory and that glibc reuses their pages. From 32 MB on, the system would clear new pages
# for every block, and reading a cached file would take twice as long.
_BLOCK_BYTES = 1 << 24
# Fewest rows of a block, however wide they are.
_FEWEST_ROWS = 256
# Largest number of threads that read a block of a .npy file: one thread copies from the system's cache more
# slowly than a device processes rows.
_MOST_THREADS = min(8, os.cpu_count() or 1)
# Smallest number of bytes per thread, so that its overhead is negligible.
_BYTES_PER_THREAD = 1 << 21


def rows_in_block(n_bytes: int) -> int:
    """The default number of rows in a block, if a row has `n_bytes` bytes."""
    return max(_FEWEST_ROWS, _BLOCK_BYTES // n_bytes)


def not_fcs(name: str) -> ArgumentError:
    """The error that rows cannot be compensated."""
    problem = f" needs FCS files, which hold their spill-over matrix. {name} is not one."
    return ArgumentError(Argument("compensate", True), problem)


@dataclass(frozen=True)
class Encoding:
    """Which columns readers read, and how these become features."""

    kinds: Mapping[Any, Kind]  # of the columns, by name or index
    dtype: np.dtype[Any]  # of the features
    weight: str | None = None  # column of row weights
    # Rows with categories that are not among the kinds, by column and category; readers add to them.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reader(ABC):
    """Reads the rows of one file or array."""

    name: str
    n_rows: int
    # Default number of rows in a block.
    block_rows: int
    # Size and time of last change of the file, when it was opened.
    stamps: dict[Path, Stamp] = field(default_factory=dict)
    # The file that rows in memory were read from; it may be removed after opening, but not changed.
    origin: Path | None = None
    # Takes a row number, counted from 0; returns where that row is, such as "line 12".
    place: Callable[[int], str] = lambda row: f"row {row + 1}"

    # The word for a column in errors.
    column_word: ClassVar[str] = "column"
    # Whether columns may hold labels and weights.
    is_table: ClassVar[bool] = False

    @property
    @abstractmethod
    def features(self) -> Sequence[Column]:
        """The columns that become features unless others are chosen."""

    @property
    def named(self) -> bool:
        """Whether columns have names."""
        return True

    @abstractmethod
    def check(self, columns: Sequence[Any]) -> None:
        """Raise ValueError if one of the columns cannot be chosen."""

    @abstractmethod
    def dtype(self, kinds: Mapping[Any, Kind]) -> np.dtype[Any]:
        """Type of the features that columns of these kinds become, float64 or float32."""

    @abstractmethod
    def read(self, n_rows: int, encoding: Encoding) -> Iterator[Rows]:
        """Yield at most `n_rows` rows at a time, in order."""

    def preparation(self, kinds: Mapping[Any, Kind]) -> Preparation | None:
        """How values of columns are encoded and compensated; None if they are read as they are."""
        return None

    def encoded(self, columns: Mapping[Any, Kind], writing: Mapping[str, Any]) -> Self:
        """A reader that can read columns of kinds that a model knows.

        `writing` says how the tables of its fit were written: `missing`, `decimal` and `thousands`.
        """
        if any(columns.values()):
            raise ValueError(
                f"The model encodes columns with categories, but {self.name} has columns of numbers without "
                "names: give the path of a table, or a data frame."
            )
        self.check(list(columns))
        return self

    def compensated(self, wanted: bool | str) -> Self:
        """A reader with or without compensation; 'auto' compensates if there is a matrix."""
        if wanted is True:
            raise not_fcs(self.name)
        return self

    def remarks(self) -> list[ArgumentWarning]:
        """Notes on rows that are left out."""
        return []

    def check_alike(self, other: Any, columns: Sequence[Column]) -> None:  # noqa: B027
        """Raise ArgumentError if columns of the same names mean something else in two files."""


def check_same_columns(
    reader: Reader, first: Reader, columns: Sequence[Any], first_columns: Sequence[Any]
) -> None:
    """Raise ArgumentError if the columns of a reader are not those of the first one."""
    if reader.named != first.named:
        has = "feature names" if reader.named else "no feature names"
        raise ArgumentError(f"Files disagree: {reader.name} has {has}, unlike {first.name}.")
    if not reader.named and len(columns) != len(first_columns):
        counts = f"{reader.name} has {len(columns)} features, and {first.name} has {len(first_columns)}"
        raise ArgumentError(f"Files disagree: {counts}.")
    for name in (*first_columns, *columns):
        if (name in columns) != (name in first_columns):
            has, has_other = ("a", "none") if name in columns else ("no", "one")
            what = f"{reader.name} has {has} {reader.column_word} {name!r}, and {first.name} has {has_other}"
            chosen = Argument("columns", wording="open_rows(..., columns=[...])")
            raise ArgumentError(f"Files disagree: {what}. Choose the features with ", chosen, ".")


def check_finite(table: str, X: NDArray[Any], names: Sequence[str] | None, start: int) -> bool:
    """Refuse infinite values in rows X (n, M) from row `start` on; say whether any value is not NaN."""
    # A finite sum proves that all values are finite, and is cheap.
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum()):
            return True
    infinite = np.argwhere(np.isinf(X))
    if len(infinite):
        row, column = infinite[0].tolist()
        name = column if names is None else names[column]
        what = f"has an infinite value: feature {name!r}, row {row + start}, counted from 0."
        problem = f"{table} {what} NaN marks missing values; remove infinite ones."
        raise ColumnError(problem, column=str(name), is_feature=True)
    return not np.isnan(X).all()


# ---------------------------------------------------------------- arrays and .npy files


@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixReader(Reader):
    """Reads the rows of a matrix, whose columns may have names."""

    matrix: Any  # an array, also sparse or mapped, or a `NpyFile`
    all_names: list[str] | None = None
    # How values were prepared before.
    prepared: Preparation | None = None

    @property
    def features(self) -> Sequence[Column]:
        return range(self.matrix.shape[1]) if self.all_names is None else self.all_names

    @property
    def named(self) -> bool:
        return self.all_names is not None

    def check(self, columns: Sequence[Any]) -> None:
        if self.all_names is None:
            last = self.matrix.shape[1] - 1
            for column in columns:
                if not isinstance(column, (int, np.integer)) or not 0 <= column <= last:
                    problem = f" has {column!r}, but {self.name} has columns 0 to {last}."
                    raise ArgumentError(Argument("columns"), problem)
        elif missing := [name for name in columns if name not in self.all_names]:
            raise ValueError(
                f"{self.name} has no feature {', '.join(map(repr, missing[:5]))} ({len(missing)} missing); "
                f"its features are {self.all_names[:20]}.{nearest(missing[0], self.all_names)}"
            )

    def dtype(self, kinds: Mapping[Any, Kind]) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.matrix.dtype == np.float32 else np.float64)

    def preparation(self, kinds: Mapping[Any, Kind]) -> Preparation | None:
        return self.prepared

    def read(self, n_rows: int, encoding: Encoding) -> Iterator[Rows]:
        columns: list[Any] = list(encoding.kinds)
        if self.all_names is not None:
            columns = [self.all_names.index(name) for name in columns]
        has_all = columns == list(range(self.matrix.shape[1]))
        for start in range(0, self.n_rows, n_rows):
            rows = self.matrix[start : min(start + n_rows, self.n_rows)]
            X = np.asarray(rows.toarray() if hasattr(rows, "toarray") else without_mask(rows, np.nan))
            yield (X if has_all else X[:, columns]).astype(encoding.dtype, copy=False), None


def open_array(matrix: Any, name: str, names: Sequence[str] | None = None, **more: Any) -> MatrixReader:
    """The reader of a matrix, see `MatrixReader`, with more of its fields if they are given."""
    shape, dtype = matrix.shape, matrix.dtype
    if len(shape) != 2:
        raise ValueError(f"{name} has shape {shape}; expected two dimensions (rows, features).")
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise ValueError(f"{name} is of type {dtype}; features must be numbers of at most 64 bits.")
    if not shape[0] or not shape[1]:
        raise ValueError(f"{name} is empty: its shape is {shape}.")
    block_rows = rows_in_block(shape[1] * max(4, dtype.itemsize))
    all_names = None if names is None else list(names)
    return MatrixReader(
        name=name, n_rows=shape[0], block_rows=block_rows, matrix=matrix, all_names=all_names, **more
    )


def open_npy(path: Path) -> MatrixReader:
    """The reader of the matrix in a .npy file."""
    return open_array(NpyFile(path), str(path), stamps={path: stamp(path)})


def load_npy(path: Path, **options: Any) -> Any:
    """The array in a .npy file; raise ValueError if there is none."""
    with open(path, "rb") as file:
        start = file.read(6)
    if start != np.lib.format.MAGIC_PREFIX:
        raise ValueError(f"{path} is not a .npy file: it begins with {start!r}. Write it with numpy.save.")
    try:
        return np.load(path, **options)
    except (ValueError, *NPY_DAMAGE) as error:
        raise ValueError(f"{path} cannot be read as a .npy file: {error}") from None


class NpyFile:
    """The array in a .npy file. Its rows are read by slices.

    They are not mapped: the pages of a memory map would count as memory of the process.
    """

    def __init__(self, path: Path) -> None:
        mapped = load_npy(path, mmap_mode="r")
        self.path, self.shape, self.dtype = path, mapped.shape, mapped.dtype
        self._offset = mapped.offset
        self._by_column = not mapped.flags.c_contiguous

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Some rows (n, M) of a matrix, read by several threads if they are many."""
        n_lines, width = (self.shape[1], 1) if self._by_column else (1, self.shape[1])
        values = np.empty((n_lines, (rows.stop - rows.start) * width), self.dtype)
        n_threads = max(1, min(_MOST_THREADS, values.nbytes // _BYTES_PER_THREAD))
        step = max(1, -(-values.nbytes // n_threads))
        pieces = []
        for line, memory in enumerate(values.view(np.uint8)):
            position = self._offset + (line * self.shape[0] + rows.start * width) * self.dtype.itemsize
            pieces += [(position + a, memory[a : a + step]) for a in range(0, len(memory), step)]
        with ThreadPoolExecutor(n_threads, thread_name_prefix="skmix-reader") as pool:
            list(pool.map(self._read_into, pieces))
        return np.ascontiguousarray(values.T) if self._by_column else values.reshape(-1, width)

    def _read_into(self, piece: tuple[int, np.ndarray]) -> None:
        """Fill memory (n,) with the bytes of the file from a position on."""
        position, memory = piece
        with open(self.path, "rb") as file:
            file.seek(position)
            if file.readinto(memory.data) < len(memory):
                raise ValueError(f"{self.path} became shorter while it was being read.")


# ---------------------------------------------------------------- paths


def is_path(thing: Any) -> bool:
    """Whether `thing` is a path."""
    return isinstance(thing, (str, os.PathLike))


def existing(path: str | os.PathLike[str]) -> Path:
    """A path; raise FileNotFoundError unless it exists."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.{similar_to(place)}")
    return place


def similar_to(path: Path) -> str:
    """A question that suggests a file beside a path that does not exist; or ""."""
    with suppress(OSError):
        return nearest(path.name, os.listdir(path.parent))
    return ""


def stamp(path: Path) -> Stamp:
    """The size of a file and the time of its last change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
