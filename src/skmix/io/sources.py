"""Row sources: rows in blocks, read in order in every pass, one block ahead of the work."""

from __future__ import annotations

import os
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.compute import how_to_install
from ..engine.compute.blocks import Answer, Block
from .arrow import Stamp, stamp
from .fcs import FcsFile, open_fcs
from .preparation import AUTO, FCS_SCALE, Preparation, features_of

# Large enough that the overhead per block does not matter, small enough that three of them fit in any memory
# and that glibc reuses their memory: from 32 MB on, every block would come in new pages, which the system has
# to clear, and reading a cached file would take twice as long.
BLOCK_BYTES = 1 << 24
# Threads that read a block of a .npy file, and fewest bytes for each: from the system's cache, one thread
# copies slower than a device takes rows.
_MOST_READERS = min(8, os.cpu_count() or 1)
_READER_BYTES = 1 << 21


# What NumPy raises for damaged files, beside ValueError.
NPY_DAMAGE = (EOFError, SyntaxError, tokenize.TokenError)


def not_fcs(name: str) -> ArgumentError:
    """Return the error for other rows that are to be compensated."""
    compensate = Argument("compensate", True)
    return ArgumentError(
        compensate, f" needs FCS files, which hold their spill-over matrix. {name} is not one."
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source(ABC):
    """Rows that are read in blocks; `open_rows` makes one."""

    name: str
    n_rows: int
    chunk_rows: int
    # Whether features can be selected by name.
    named: bool = False
    # State of the files when they were opened.
    stamps: dict[Path, Stamp] = field(default_factory=dict)
    # The file that the rows were copied from when it was opened, and need no more.
    origin: Path | None = None
    # Labels (N,) and weights (N,): columns of Parquet files, or values that are not in the same file.
    label: str | None = None
    weight: str | None = None
    labels: Values | None = None
    weights: Values | None = None
    # If given, labels are encoded as indices into these classes (L,) in the first pass, and the codes of each
    # block are cached by its number.
    classes: np.ndarray | None = None
    codes: dict[int, np.ndarray] = field(default_factory=dict)
    # Settings of the preparation that the user left open: a model applies its own to files and data frames.
    automatic: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    @property
    def preparation(self) -> Preparation | None:
        """What is done to the values as they are read; None for rows that are as they were given."""
        return None

    def compensated(self, wanted: bool | str) -> Self:
        """Return the rows with or without compensation for spill-over, 'auto' where there is a matrix."""
        if wanted is True:
            raise not_fcs(self.name)
        return self

    @property
    def usual_scale(self) -> str | None:
        """The scale that a fit takes unless one is chosen; None for values as they are."""
        return None

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return None

    @property
    def column_names(self) -> list[str] | None:
        """Names of the columns that features are made of, if they have any."""
        return self.feature_names

    @property
    def numeric(self) -> list[bool] | None:
        """Which features (M,) are numbers and no categories; None where all are."""
        return None

    def remarks(self) -> list[ArgumentWarning]:
        """Return notes on values that became missing as rows were read."""
        return []

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number M of features."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.n_rows, self.n_features

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.label is not None or self.labels is not None

    @abstractmethod
    def read(self, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks in order; `labels` is whether to read labels stored in the same file."""

    @abstractmethod
    def take(self, columns: Sequence[int]) -> Self:
        """Return the rows with some of their features, in the same blocks."""

    def select(self, names: Sequence[str]) -> Self:
        """Return the rows with the features of these names, in this order."""
        raise ValueError(f"{self.name} has no feature names; select columns by index.")

    def encoded(self, columns: Mapping[str, Any], missing: Sequence[str] = ()) -> Self:
        """Return the rows with the features of columns whose kinds are known, see `skmix.io.encoding`."""
        if all(kind is None for kind in columns.values()):
            return self.select(list(columns))
        raise ValueError(
            f"The model has features made of categories, but {self.name} has columns of numbers without "
            "names: give the path of a table, or a data frame."
        )

    def chosen(self, columns: Sequence[int | str]) -> Self:
        """Return the rows with the features that a user chose, by name where they have names."""
        if isinstance(columns, str) or not len(columns):
            raise ValueError(f"columns must be a list of at least one column, got {columns!r}.")
        if len(set(columns)) < len(columns):
            raise ValueError(f"columns must not repeat a column, got {list(columns)}.")
        if self.named:
            if not all(isinstance(name, str) for name in columns):
                raise ValueError(f"Columns of {self.name} are chosen by name, got {list(columns)}.")
            chosen = self.select([str(name) for name in columns])
            assert chosen.feature_names  # the property checks the names
            return chosen
        for column in columns:
            if not isinstance(column, (int, np.integer)) or not 0 <= column < self.n_features:
                raise ValueError(
                    f"columns has {column!r}, but {self.name} has columns 0 to {self.n_features - 1}."
                )
        return self.take([int(column) for column in columns])

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: an array, its file or, in Parquet files, the name of a column."""
        return replace(self, labels=self._for_each_row(y, "labels", "labels"))

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights, given like labels."""
        values = self._for_each_row(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights must be numbers.")
        return replace(self, weights=values)

    def _for_each_row(self, given: Any, name: str, what: str) -> Values:
        values = values_of(given, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"give {what} for each row."
            )
        return values

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights."""
        return replace(self, label=None, weight=None, labels=None, weights=None, classes=None, codes={})

    def comes_from(self, path: Path) -> bool:
        """Return whether a path is one of the files that have the rows, their labels or weights."""
        if not path.exists():
            return False
        opened = (found.stamps for found in (self, self.labels, self.weights) if found is not None)
        files = {*chain.from_iterable(opened), *([] if self.origin is None else [self.origin])}
        return any(file.exists() and path.samefile(file) for file in files)

    def coded(self, classes: np.ndarray) -> Self:
        """Return the rows with labels encoded as indices into `classes` (L,)."""
        return replace(self, classes=classes, codes={})

    def row_labels(self) -> np.ndarray:
        """Return the label (N,) of each row."""
        with closing(self.blocks()) as blocks:
            return np.concatenate([labels_in(block) for block in blocks])

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged in order."""
        # Closed immediately if the work fails, so that reading stops.
        with closing(self.blocks()) as blocks:
            answer = work(next(blocks))
            for block in blocks:
                answer = merge(answer, work(block))
        return answer

    def blocks(self) -> Generator[Block, None, None]:
        """Yield all blocks in order, after a check that the files are still as they were opened."""
        self._check_unchanged()
        return read_ahead(self._blocks())

    def _check_unchanged(self) -> None:
        for opened in (self, self.labels, self.weights):
            for path, before in () if opened is None else opened.stamps.items():
                if not path.exists():
                    raise ValueError(f"{path} no longer exists: files must stay while they are read.")
                if stamp(path) != before:
                    raise ValueError(
                        f"{path} has changed since it was opened ({before[0]} bytes then, {stamp(path)[0]} "
                        "now): its rows must stay the same from pass to pass. Open it again."
                    )

    def _blocks(self) -> Iterator[Block]:
        """Yield blocks with their weights and labels, coded if classes are given."""
        # After an interrupted pass, only some blocks have codes.
        known = self.labels is not None or sum(map(len, self.codes.values())) == self.n_rows
        start = 0
        for block in self.read(labels=not known):
            stop = start + len(block.X)
            if self.weights is not None:
                block = replace(block, weights=self.weights.read(start, stop).astype(np.float64))
            if self.labels is not None and block.number not in self.codes:
                block = replace(block, y=self.labels.read(start, stop))
            if self.has_labels and self.classes is not None:
                if block.number not in self.codes:
                    coded = block.coded(self.classes).y
                    assert coded is not None
                    self.codes[block.number] = coded
                block = replace(block, y=self.codes[block.number], names=None)
            yield block
            start = stop


def labels_in(block: Block) -> np.ndarray:
    """Return the labels (n,) of a block."""
    assert block.y is not None
    return block.y if block.names is None else block.names[block.y]


def read_ahead(blocks: Iterator[Block]) -> Generator[Block, None, None]:
    """Yield blocks while a thread reads the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="skmix-reader") as pool:
        coming = pool.submit(next, blocks, None)
        try:
            while (block := coming.result()) is not None:
                coming = pool.submit(next, blocks, None)
                yield block
        finally:
            coming.cancel()


# ---------------------------------------------------------------- arrays, .npy files and Zarr


@dataclass(frozen=True)
class Values:
    """An array of one or two dimensions that is read by rows; `name` is for errors."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    # Returns rows start … stop − 1 as an array in memory.
    read: Callable[[int, int], np.ndarray]
    stamps: dict[Path, Stamp] = field(default_factory=dict)
    # Rows of a storage chunk: ranges that begin at multiples of it are read fastest.
    unit: int = 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _ArrayRows(Source):
    """The rows of a matrix; `columns` are its features."""

    values: Values
    columns: list[int]
    # Names of all columns of the matrix, if they have any.
    names: list[str] | None = None

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return None if self.names is None else [self.names[column] for column in self.columns]

    @property
    def n_features(self) -> int:
        return len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.values.dtype == np.float32 else np.float64)

    def take(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.columns[column] for column in columns])

    def select(self, names: Sequence[str]) -> Self:
        if self.names is None:
            return super().select(names)
        place = {name: column for column, name in enumerate(self.names)}
        missing = [name for name in names if name not in place]
        if missing:
            raise ValueError(
                f"{self.name} has no feature {', '.join(map(repr, missing[:5]))} ({len(missing)} missing); "
                f"its features are {self.names[:20]}."
            )
        return replace(self, columns=[place[name] for name in names])

    def read(self, *, labels: bool) -> Iterator[Block]:
        everything = self.columns == list(range(self.values.shape[1]))
        for number, start in enumerate(range(0, self.n_rows, self.chunk_rows)):
            X = self.values.read(start, min(start + self.chunk_rows, self.n_rows))
            X = X if everything else X[:, self.columns]
            yield Block(X.astype(self.dtype, copy=False), number=number)


def open_array(values: Values, chunk_rows: int | None, names: Sequence[str] | None = None) -> Source:
    """Open a matrix, whose columns may have names."""
    if len(values.shape) != 2:
        raise ValueError(f"{values.name} has shape {values.shape}; expected two dimensions (rows, features).")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise ValueError(
            f"{values.name} is of type {values.dtype}; features must be numbers of at most 64 bits."
        )
    n_rows, n_features = values.shape
    if not n_rows or not n_features:
        raise ValueError(f"{values.name} is empty: its shape is {values.shape}.")
    if chunk_rows is None:
        fitting = max(256, BLOCK_BYTES // (n_features * max(4, values.dtype.itemsize)))
        chunk_rows = values.unit * max(1, fitting // values.unit)
    return _ArrayRows(
        name=values.name,
        n_rows=n_rows,
        chunk_rows=int(chunk_rows),
        stamps=values.stamps,
        values=values,
        columns=list(range(n_features)),
        named=names is not None,
        names=None if names is None else list(names),
    )


def values_of(thing: Any, name: str) -> Values:
    """Return the values of a path, a Zarr array or anything array-like; `name` is for errors."""
    if is_path(thing):
        path = existing(thing)
        if not path.is_dir():
            return _npy(path)
        if not is_zarr_folder(path):
            raise ValueError(f"{path} is a folder, but not a Zarr array.")
        try:
            import zarr
        except ImportError:
            raise ImportError(f"Zarr arrays need zarr: {how_to_install('zarr')}") from None
        thing, name = zarr.open(str(path), mode="r"), str(path)
    if is_zarr(thing, name):
        return _zarr(thing)
    array = np.asarray(thing)
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(value, str) for value in array):
        array = np.array(array.tolist())
    return Values(name, array.shape, array.dtype, partial(_rows_in_memory, array))


def _npy(path: Path) -> Values:
    with open(path, "rb") as file:
        start = file.read(6)
    if start != np.lib.format.MAGIC_PREFIX:
        raise ValueError(f"{path} is not a .npy file: it begins with {start!r}. Write it with numpy.save.")
    try:
        mapped = np.load(path, mmap_mode="r")
    except (ValueError, *NPY_DAMAGE) as error:
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
    width = 1 if transposed else int(np.prod(shape[1:]))
    values = np.empty((shape[1] if transposed else 1, (stop - start) * width), dtype)
    cuts = []
    for column, part in enumerate(values.view(np.uint8)):
        place = offset + (column * shape[0] + start * width) * dtype.itemsize
        n_cuts = max(1, min(_MOST_READERS, len(part) // _READER_BYTES))
        step = max(1, -(-len(part) // n_cuts))
        cuts += [(place + a, part[a : a + step]) for a in range(0, len(part), step)]
    if values.nbytes < 2 * _READER_BYTES:
        for cut in cuts:
            _read_into(path, cut)
    else:
        list(_readers(os.getpid()).map(partial(_read_into, path), cuts))
    return np.ascontiguousarray(values.T) if transposed else values.reshape(stop - start, *shape[1:])


def _read_into(path: Path, cut: tuple[int, np.ndarray]) -> None:
    """Read as many bytes of a file, from a place on, as the memory (n,) has."""
    (place, memory), n_read = cut, 0
    with open(path, "rb", buffering=0) as file:
        file.seek(place)
        while n_read < len(memory):
            n_more = file.readinto(memory[n_read:].data)
            if not n_more:
                raise ValueError(f"{path} became shorter while it was being read.")
            n_read += n_more


@lru_cache(maxsize=1)
def _readers(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process that read pieces of a block: a forked process needs its own."""
    return ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="skmix-reader")


def _rows_in_memory(array: Any, start: int, stop: int) -> np.ndarray:
    return np.asarray(array[start:stop])


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


# ---------------------------------------------------------------- rows with names of features


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NamedRows(Source):
    """Rows whose features all have names."""

    named: bool = True
    # The features; None for all, but columns of labels and weights.
    columns: list[str] | None = None
    # None for single precision if no feature has more.
    precision: np.dtype[Any] | None = None

    @property
    @abstractmethod
    def feature_names(self) -> list[str]:
        """Names of the features."""

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    def take(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.feature_names[column] for column in columns], precision=self.dtype)


# ---------------------------------------------------------------- FCS


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FcsRows(NamedRows):
    """The events of an FCS file; features are channels or, where they were chosen by marker, markers."""

    path: Path
    file: FcsFile
    compensate: bool

    @property
    def preparation(self) -> Preparation | None:
        return {"compensate": self.compensate, "transform": "none"}

    @property
    def usual_scale(self) -> str | None:
        return FCS_SCALE

    def compensated(self, wanted: bool | str) -> Self:
        if wanted is True:
            assert self.file.spilling  # the property checks the matrix
        return replace(
            self, compensate=wanted is True or (wanted == AUTO and self.file.spillover is not None)
        )

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return [channel.name for channel in self.file.channels] if self.columns is None else self.columns

    @cached_property
    def _columns(self) -> list[int]:
        return self.file.find(self.feature_names)

    @property
    def markers(self) -> list[str]:
        """What each feature measures, empty where the file does not say."""
        return [self.file.channels[column].marker for column in self._columns]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""
        single = not self.compensate and self.file.is_single(self._columns)
        return self.precision or np.dtype(np.float32 if single else np.float64)

    def select(self, names: Sequence[str]) -> Self:
        self.file.find(names)
        return replace(self, columns=list(names), precision=None)

    def read(self, *, labels: bool) -> Iterator[Block]:
        file = self.file
        read = partial(_rows_of_npy, self.path, file.offset, (file.n_rows,), file.dtype, False)
        for number, start in enumerate(range(0, file.n_rows, self.chunk_rows)):
            records = read(start, min(start + self.chunk_rows, file.n_rows))
            yield Block(
                file.values(records, self._columns, self.dtype, compensate=self.compensate), number=number
            )


def open_events(path: Path, chunk_rows: int | None, compensate: bool) -> FcsRows:
    """Open an FCS file; Time is not a feature unless it is chosen."""
    file = open_fcs(path)
    width = file.dtype.itemsize + 8 * len(file.channels)
    rows = FcsRows(
        name=str(path),
        n_rows=file.n_rows,
        chunk_rows=int(chunk_rows or max(256, BLOCK_BYTES // width)),
        stamps={path: stamp(path)},
        path=path,
        file=file,
        compensate=False,
        columns=features_of([channel.name for channel in file.channels]),
    )
    return rows.compensated(compensate)


# ---------------------------------------------------------------- what is what


def is_path(thing: Any) -> bool:
    """Return whether something is a path."""
    return isinstance(thing, (str, os.PathLike))


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder that exists."""
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    return found


def is_zarr_folder(path: Path) -> bool:
    """Return whether a folder is a Zarr array, or a group of them."""
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def is_zarr(thing: Any, name: str) -> bool:
    """Return whether something is a Zarr array, without importing zarr; groups of them are refused."""
    if type(thing).__module__.split(".")[0] != "zarr":
        return False
    if hasattr(type(thing), "array_keys"):
        raise ValueError(f"{name} is a Zarr group of {sorted(thing.array_keys())}. Give one of its arrays.")
    return hasattr(thing, "chunks")
