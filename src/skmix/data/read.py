"""Readers of features in blocks: what all of them do, and the reader of arrays and .npy files."""

from __future__ import annotations

import os
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import nearest
from .blocks import LabelledBlock
from .missing import without_mask
from .problems import ColumnError
from .recipe import Preparation

Stamp = tuple[int, int]
"""Size of a file and time of its last change."""
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
_COLUMNS = Argument("columns", wording="open_rows(..., columns=[...])")


def rows_in_block(n_bytes: int) -> int:
    """The default number of rows in a block, if a row has `n_bytes` bytes."""
    return max(_FEWEST_ROWS, _BLOCK_BYTES // n_bytes)


def not_fcs(name: str) -> ArgumentError:
    """The error that rows cannot be compensated."""
    compensate = Argument("compensate", True)
    problem = f" needs FCS files, which hold their spill-over matrix. {name} is not one."
    return ArgumentError(compensate, problem)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reader(ABC):
    """Reads the features of one file or array; `Source` adds labels, weights and a scale."""

    name: str
    n_rows: int
    # Default number of rows in a block.
    block_rows: int
    # Size and time of last change of the files, when they were opened.
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
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""

    @property
    def column_names(self) -> list[str] | None:
        """Names of the columns that the features encode, if they have any."""
        return self.feature_names

    @property
    def named(self) -> bool:
        """Whether features can be selected by name."""
        return True

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return len(self.feature_names or ())

    @property
    def numeric(self) -> list[bool]:
        """Which features (M,) are numbers, not categories."""
        return [True] * self.n_features

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""

    @classmethod
    def usual_scale(cls, readers: Sequence[Any]) -> tuple[Preparation, str | None]:
        """The default scale of a fit to readers with the same features, and a sentence about it."""
        return {"transform": "none"}, None

    @property
    def scatter(self) -> dict[str, float]:
        """Features that a scale given by name leaves linear, and the tops of their ranges."""
        return {}

    @property
    def preparation(self) -> Preparation | None:
        """How values are transformed and encoded while they are read; None if they are not."""
        return None

    @abstractmethod
    def with_features(self, columns: Sequence[int]) -> Self:
        """A reader of some features, given by index."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> Self:
        """A reader of the columns with these names, in this order."""

    @abstractmethod
    def read(
        self, n_rows: int, label: str | None = None, weight: str | None = None
    ) -> Iterator[LabelledBlock]:
        """Yield blocks of at most `n_rows` rows, in order, with labels and weights from columns if given."""

    def without(self, names: set[str | None]) -> Self:
        """A reader without these columns, unless columns were selected."""
        return self

    def encoded(self, columns: Mapping[str, Any], writing: Mapping[str, Any] | None = None) -> Self:
        """A reader that encodes columns of known kinds, see `skmix.data.encoding`.

        `writing` says how the tables of the fit were written: `missing`, `decimal` and `thousands`.
        """
        if all(kind is None for kind in columns.values()):
            return self.select(list(columns))
        raise ValueError(
            f"The model encodes columns with categories, but {self.name} has columns of numbers without "
            "names: give the path of a table, or a data frame."
        )

    def compensated(self, wanted: bool | str) -> Self:
        """A reader with or without compensation; 'auto' compensates if there is a matrix."""
        if wanted is True:
            raise not_fcs(self.name)
        return self

    def remarks(self) -> list[ArgumentWarning]:
        """Notes on values that were read as missing."""
        return []

    def check_alike(self, other: Any) -> None:
        """Raise ArgumentError if the features of two readers differ."""
        if self.named != other.named:
            has = "feature names" if self.named else "no feature names"
            raise ArgumentError(f"Files disagree: {self.name} has {has}, unlike {other.name}.")
        if not self.named and self.n_features != other.n_features:
            counts = f"{self.name} has {self.n_features} features, and {other.name} has {other.n_features}"
            raise ArgumentError(f"Files disagree: {counts}.")
        names, others = self.column_names or [], other.column_names or []
        for name in (*others, *names):
            if (name in names) != (name in others):
                has, has_other = ("a", "none") if name in names else ("no", "one")
                what = f"{self.name} has {has} {self.column_word} {name!r}, and {other.name} has {has_other}"
                raise ArgumentError(f"Files disagree: {what}. Choose the features with ", _COLUMNS, ".")

    @classmethod
    def with_common_features(cls, readers: list[Any]) -> list[Any]:
        """Readers that encode their columns, which are the same, as the same features."""
        return readers


def check_finite(reader: Reader, X: np.ndarray, start: int) -> bool:
    """Refuse infinite values in rows X (n, M) from row `start` on; say whether any value is not NaN."""
    # A finite sum proves that all values are finite, and is cheap.
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum()):
            return True
    infinite = np.argwhere(np.isinf(X))
    if len(infinite):
        row, column = infinite[0].tolist()
        name = column if reader.feature_names is None else reader.feature_names[column]
        what = f"has an infinite value: feature {name!r}, row {row + start}, counted from 0."
        problem = f"{reader.name} {what} NaN marks missing values; remove infinite ones."
        raise ColumnError(problem, column=str(name), is_feature=True)
    return not np.isnan(X).all()


# ---------------------------------------------------------------- arrays and .npy files


@dataclass(frozen=True)
class Values:
    """An array of one or two dimensions that is read by rows; errors call it `name`."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    # Returns rows start … stop − 1 as an array in memory.
    read: Callable[[int, int], np.ndarray]
    stamps: dict[Path, Stamp] = field(default_factory=dict)

    def rows(self, first: int, n_rows: int) -> Values:
        """`n_rows` consecutive rows, from row `first` on."""
        return replace(self, shape=(n_rows, *self.shape[1:]), read=partial(_read_after, self.read, first))


def _read_after(read: Callable[[int, int], np.ndarray], first: int, start: int, stop: int) -> np.ndarray:
    return read(first + start, first + stop)


@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixReader(Reader):
    """Reads some columns of a matrix as features."""

    values: Values
    columns: list[int]
    # Names of all columns of the matrix, or None.
    names: list[str] | None = None
    # How values were transformed and encoded before.
    prepared: Preparation | None = None

    @property
    def feature_names(self) -> list[str] | None:
        return None if self.names is None else [self.names[column] for column in self.columns]

    @property
    def named(self) -> bool:
        return self.names is not None

    @property
    def n_features(self) -> int:
        return len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.values.dtype == np.float32 else np.float64)

    @property
    def preparation(self) -> Preparation | None:
        return self.prepared

    def with_features(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.columns[column] for column in columns])

    def select(self, names: Sequence[str]) -> Self:
        if self.names is None:
            raise ValueError(f"{self.name} has no feature names; select columns by index.")
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ValueError(
                f"{self.name} has no feature {', '.join(map(repr, missing[:5]))} ({len(missing)} missing); "
                f"its features are {self.names[:20]}.{nearest(missing[0], self.names)}"
            )
        return replace(self, columns=[self.names.index(name) for name in names])

    def read(
        self, n_rows: int, label: str | None = None, weight: str | None = None
    ) -> Iterator[LabelledBlock]:
        has_all = self.columns == list(range(self.values.shape[1]))
        for start in range(0, self.n_rows, n_rows):
            X = self.values.read(start, min(start + n_rows, self.n_rows))
            X = X if has_all else X[:, self.columns]
            yield LabelledBlock(X.astype(self.dtype, copy=False))


def open_array(values: Values, names: Sequence[str] | None = None) -> MatrixReader:
    """The reader of a matrix, whose columns may have names."""
    if len(values.shape) != 2:
        raise ValueError(f"{values.name} has shape {values.shape}; expected two dimensions (rows, features).")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise ValueError(
            f"{values.name} is of type {values.dtype}; features must be numbers of at most 64 bits."
        )
    n_rows, n_features = values.shape
    if not n_rows or not n_features:
        raise ValueError(f"{values.name} is empty: its shape is {values.shape}.")
    return MatrixReader(
        name=values.name,
        n_rows=n_rows,
        block_rows=rows_in_block(n_features * max(4, values.dtype.itemsize)),
        stamps=values.stamps,
        values=values,
        columns=list(range(n_features)),
        names=None if names is None else list(names),
    )


def values_of(thing: Any, name: str) -> Values:
    """The values of the path of a .npy file or of an array-like, which errors call `name`."""
    if is_path(thing):
        return _values_of_file(existing(thing))
    array = np.asarray(without_mask(thing, np.nan))
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(value, str) for value in array):
        array = np.array(array.tolist())
    return values_in_memory(array, name)


def values_in_memory(array: Any, name: str) -> Values:
    """The values of an array, which may be sparse or mapped from a file."""
    return Values(name, array.shape, np.dtype(array.dtype), partial(_read_array, array))


def _read_array(array: Any, start: int, stop: int) -> np.ndarray:
    rows = array[start:stop]
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else without_mask(rows, np.nan))


def _values_of_file(path: Path) -> Values:
    with open(path, "rb") as file:
        start = file.read(6)
    if start != np.lib.format.MAGIC_PREFIX:
        raise ValueError(f"{path} is not a .npy file: it begins with {start!r}. Write it with numpy.save.")
    try:
        mapped = np.load(path, mmap_mode="r")
    except (ValueError, *NPY_DAMAGE) as error:
        raise ValueError(f"{path} cannot be read as a .npy file: {error}") from None
    by_column = mapped.ndim == 2 and not mapped.flags.c_contiguous
    read = partial(_read_npy, path, mapped.offset, mapped.shape, mapped.dtype, by_column)
    return Values(str(path), mapped.shape, mapped.dtype, read, {path: stamp(path)})


def _read_npy(
    path: Path,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    by_column: bool,
    start: int,
    stop: int,
) -> np.ndarray:
    """Rows `start` … `stop` − 1 of an array that begins at an offset of a file.

    They are read and not mapped: the pages of a memory map would count as memory of the process.
    """
    width = 1 if by_column else int(np.prod(shape[1:]))
    values = np.empty((shape[1] if by_column else 1, (stop - start) * width), dtype)
    n_threads = max(1, min(_MOST_THREADS, values.nbytes // _BYTES_PER_THREAD))
    step = max(1, -(-values.nbytes // n_threads))
    pieces = []
    for column, memory in enumerate(values.view(np.uint8)):
        position = offset + (column * shape[0] + start * width) * dtype.itemsize
        pieces += [(position + a, memory[a : a + step]) for a in range(0, len(memory), step)]
    if n_threads == 1:
        for piece in pieces:
            _read_into(path, piece)
    else:
        with ThreadPoolExecutor(n_threads, thread_name_prefix="skmix-reader") as pool:
            list(pool.map(partial(_read_into, path), pieces))
    return np.ascontiguousarray(values.T) if by_column else values.reshape(stop - start, *shape[1:])


def _read_into(path: Path, piece: tuple[int, np.ndarray]) -> None:
    """Fill memory (n,) with the bytes of a file from a position on."""
    position, memory = piece
    with open(path, "rb") as file:
        file.seek(position)
        if file.readinto(memory.data) < len(memory):
            raise ValueError(f"{path} became shorter while it was being read.")


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
