"""Rows of files and arrays in blocks, read in order in every pass, one block ahead of the work."""

from __future__ import annotations

import mmap
import os
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..engine.compute.blocks import Answer, Block
from .arrow import NUMERIC, PANDAS_INDEX, kind_of, numbers_of
from .fcs import MAGIC, FcsFile, open_fcs

# Large enough that the overhead per block does not matter, small enough that three of them fit in any memory
# and that glibc reuses their memory: from 32 MB on, every block would come in new pages, which the system has
# to clear, and reading a cached file would take twice as long.
BLOCK_BYTES = 1 << 24
# Smaller memory-mapped arrays are treated as arrays in memory: joblib passes such arrays to its workers.
MAPPED_BYTES = 1 << 28
# Threads that read a block of a .npy file, and fewest bytes for each: from the system's cache, one thread
# copies slower than a device takes rows.
_MOST_READERS = min(8, os.cpu_count() or 1)
_READER_BYTES = 1 << 21
# Columns of Parquet files are read in pieces of this many bytes. Larger pages are read at once; with pieces
# of a page's size, most of it would be copied once more.
_BUFFER_BYTES = 1 << 15

# Suffixes of names of files.
_OF_PARQUET, _OF_FCS = (".parquet", ".pq"), (".fcs",)

Stamp = tuple[int, int]
"""Size and time of last change of a file."""


def open_rows(
    rows: Any,
    *,
    columns: Sequence[int | str] | None = None,
    label: Any = None,
    weight: Any = None,
    chunk_rows: int | None = None,
    compensate: bool = False,
) -> Source:
    """Open rows that need not fit in memory, for `fit`, `predict` and other methods.

    Parameters
    ----------
    rows : path, ndarray or zarr.Array
        A Parquet or FCS file or a folder of them, a .npy file, a Zarr array or its folder, or an array, which
        may be memory-mapped.
    columns : sequence of str or int, default=None
        The features: names of columns of Parquet files, channels of FCS files by name ($PnN) or else marker
        ($PnS), indices otherwise. None uses all columns except those of labels and weights.
    label : str, path or array-like of shape (N,), default=None
        Labels: the name of a column of Parquet files, or an array or its file.
    weight : str, path or array-like of shape (N,), default=None
        Weights of the rows, given like labels.
    chunk_rows : int, default=None
        Rows of a block. Up to three blocks are in memory at a time, since the next one is read while one is
        processed. None means about 16 MB. Zarr arrays are read fastest in multiples of their chunks.
    compensate : bool, default=False
        Whether to compensate FCS files for spill-over, each by its own matrix ($SPILLOVER or SPILL).

    Returns
    -------
    Source
        Rows to pass to an estimator as X.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture, open_rows
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [4.9]])
    >>> rows = open_rows(X, label=np.array([0, 0, 1, 1, 1, 0]), chunk_rows=2)
    >>> rows.shape
    (6, 1)
    >>> SharedKernelMixture(2, random_state=0).fit(rows).class_count_
    array([3., 3.])
    """
    whole = isinstance(chunk_rows, (int, np.integer)) and not isinstance(chunk_rows, bool)
    if chunk_rows is not None and not (whole and chunk_rows >= 1):
        raise ValueError(f"chunk_rows must be None or an integer of at least 1, got {chunk_rows!r}.")
    _refuse_lists(rows)
    if _is_path(rows) and _is_fcs(_existing(rows)):
        source: Source = _open_fcs(Path(rows), chunk_rows, bool(compensate))
    elif compensate:
        raise ValueError("compensate=True needs FCS files, which hold their spill-over matrix.")
    elif _is_path(rows) and _is_parquet(Path(rows)):
        source = _open_parquet(Path(rows), chunk_rows)
    else:
        source = _open_array(_values_of(rows, "X"), chunk_rows)
    if label is not None:
        source = source.labelled(label)
    if weight is not None:
        source = source.weighted(weight)
    return source if columns is None else source.chosen(columns)


def source_of(X: Any) -> Source | None:
    """Return the rows of a path, a Zarr array or a large mapped array; None for anything else."""
    if isinstance(X, Source):
        return X
    _refuse_lists(X)
    mapped = isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None
    if _is_path(X) or _is_zarr(X, "X") or (mapped and X.nbytes >= MAPPED_BYTES):
        return open_rows(X)
    return None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source(ABC):
    """Rows that are read in blocks; `open_rows` makes one."""

    name: str
    n_rows: int
    chunk_rows: int
    # State of the files when they were opened.
    stamps: dict[Path, Stamp]
    # Labels (N,) and weights (N,): columns of Parquet files, or values that are not in the same file.
    label: str | None = None
    weight: str | None = None
    labels: _Values | None = None
    weights: _Values | None = None
    # If given, labels are encoded as indices into these classes (L,) in the first pass, and the codes of each
    # block are cached by its number.
    classes: np.ndarray | None = None
    codes: dict[int, np.ndarray] = field(default_factory=dict)
    # Whether features can be selected by name.
    named: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return None

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number M of features."""

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
        return replace(self, labels=self._for_each_row(y, "y", "labels"))

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights, given like labels."""
        values = self._for_each_row(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights must be numbers.")
        return replace(self, weights=values)

    def _for_each_row(self, given: Any, name: str, what: str) -> _Values:
        values = _values_of(given, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"give {what} for each row."
            )
        return values

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights."""
        return replace(self, label=None, weight=None, labels=None, weights=None, classes=None, codes={})

    def coded(self, classes: np.ndarray) -> Self:
        """Return the rows with labels encoded as indices into `classes` (L,)."""
        return replace(self, classes=classes, codes={})

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
        for opened in (self, self.labels, self.weights):
            for path, before in () if opened is None else opened.stamps.items():
                if not path.exists():
                    raise ValueError(f"{path} no longer exists: files must stay while they are read.")
                if _stamp(path) != before:
                    raise ValueError(
                        f"{path} has changed since it was opened ({before[0]} bytes then, {_stamp(path)[0]} "
                        "now): its rows must stay the same from pass to pass. Open it again."
                    )
        return read_ahead(self._blocks())

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
class _Values:
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

    values: _Values
    columns: list[int]

    @property
    def n_features(self) -> int:
        return len(self.columns)

    def take(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.columns[column] for column in columns])

    def read(self, *, labels: bool) -> Iterator[Block]:
        everything = self.columns == list(range(self.values.shape[1]))
        for number, start in enumerate(range(0, self.n_rows, self.chunk_rows)):
            X = self.values.read(start, min(start + self.chunk_rows, self.n_rows))
            X = X if everything else X[:, self.columns]
            if X.dtype not in (np.float64, np.float32) or not X.dtype.isnative:
                X = X.astype(np.float64)
            yield Block(X, number=number)


def _open_array(values: _Values, chunk_rows: int | None) -> _ArrayRows:
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
        chunk_rows=min(int(chunk_rows), n_rows),
        stamps=values.stamps,
        values=values,
        columns=list(range(n_features)),
    )


def _values_of(thing: Any, name: str) -> _Values:
    """Return the values of a path, a Zarr array or anything array-like; `name` is for errors."""
    if _is_path(thing):
        path = _existing(thing)
        if not path.is_dir():
            return _npy(path)
        if not _is_zarr_folder(path):
            raise ValueError(f"{path} is a folder, but not a Zarr array.")
        try:
            import zarr
        except ImportError:
            raise ImportError("Zarr arrays need zarr: pip install skmix[zarr]") from None
        thing, name = zarr.open(str(path), mode="r"), str(path)
    if _is_zarr(thing, name):
        return _zarr(thing)
    array = thing if isinstance(thing, np.memmap) else np.asarray(thing)
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(value, str) for value in array):
        array = np.array(array.tolist())
    return _Values(name, array.shape, array.dtype, partial(_rows_in_memory, array))


def _npy(path: Path) -> _Values:
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
    return _Values(str(path), mapped.shape, mapped.dtype, read, {path: _stamp(path)})


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
    """Return the threads of a process that read pieces of a block: a copy of a process has none of them."""
    return ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="skmix-reader")


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


def _zarr(array: Any) -> _Values:
    stored = getattr(array, "shards", None) or array.chunks
    stamps: dict[Path, Stamp] = {}
    # These detect arrays that are replaced or resized, but not rewritten chunks.
    root = getattr(array.store_path.store, "root", None)
    if root is not None:
        folder = Path(root) / array.store_path.path
        stamps = {path: _stamp(path) for name in ("zarr.json", ".zarray") if (path := folder / name).exists()}
    return _Values(
        f"the Zarr array {array.store_path}",
        tuple(int(n) for n in array.shape),
        np.dtype(array.dtype),
        partial(_rows_in_memory, array),
        stamps,
        int(stored[0]) if stored else 1,
    )


# ---------------------------------------------------------------- Parquet


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _ParquetRows(Source):
    """The rows of Parquet files, in the order of the files' names."""

    # Arrow types of the columns of each file.
    files: dict[Path, dict[str, Any]]
    # The features; None for all columns except those of labels and weights.
    columns: list[str] | None = None
    # None for single precision if no feature has more.
    dtype: np.dtype[Any] | None = None
    named = True

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features, which must be numeric columns of all files."""
        names = self.columns
        if names is None:
            excluded = (self.label, self.weight)
            columns = next(iter(self.files.values()))
            names = [n for n in columns if n not in excluded and not n.startswith(PANDAS_INDEX)]
        if not names:
            raise ValueError(f"{self.name} has no columns of features.")
        for path, types in self._types(names):
            wrong = [f"{name!r} ({types[name]})" for name in names if kind_of(types[name]) not in NUMERIC]
            if wrong:
                raise ValueError(
                    f"{len(wrong)} column(s) of {path} are not numeric: {', '.join(wrong[:5])}. "
                    "Choose the features with open_rows(path, columns=[...], label=...)."
                )
        return list(names)

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        kinds = {str(types[name]) for types in self.files.values() for name in self.feature_names}
        return self.dtype or np.dtype(np.float32 if kinds <= {"float", "halffloat"} else np.float64)

    def take(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.feature_names[column] for column in columns], dtype=self._dtype)

    def select(self, names: Sequence[str]) -> Self:
        return replace(self, columns=list(names), dtype=None)

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights; their columns do not become features."""
        aside = self.label is not None or self.weight is not None
        return replace(super().unlabelled(), columns=self.feature_names if aside else self.columns)

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: a column of the same kind in all files, or other values."""
        if not isinstance(y, str):
            return super().labelled(y)
        self._check_column(
            y, ("boolean", "number", "text"), "labels must be whole numbers, strings or booleans"
        )
        (first, one), *others = ((path, types[y]) for path, types in self.files.items())
        for path, other in others:
            if kind_of(other) != kind_of(one):
                raise ValueError(
                    f"Labels differ in kind: column {y!r} is {one} in {first} and {other} in {path}."
                )
        return replace(self, label=y, labels=None)

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights: a column, or other values."""
        if not isinstance(weights, str):
            return super().weighted(weights)
        self._check_column(weights, NUMERIC, "weights must be numbers")
        return replace(self, weight=weights, weights=None)

    def _check_column(self, name: str, kinds: Sequence[str], rule: str) -> None:
        for path, types in self._types([name]):
            if kind_of(types[name]) not in kinds:
                raise ValueError(f"Column {name!r} of {path} is of type {types[name]}; {rule}.")

    def _types(self, names: Sequence[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the files and the types of their columns, which must include these names."""
        for path, types in self.files.items():
            missing = [name for name in names if name not in types]
            if missing:
                in_folders = any(part.startswith(f"{missing[0]}=") for part in path.parts)
                hint = " Values in folder names (Hive partitioning) are not read: write them into the files."
                raise ValueError(
                    f"{path} has no column {', '.join(map(repr, missing[:5]))} ({len(missing)} missing); "
                    f"its columns are {list(types)[:20]}.{hint if in_folders else ''}"
                )
            yield path, types

    def read(self, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks; a block never spans two files."""
        import pyarrow.parquet as pq

        label = self.label if labels else None
        columns = list(dict.fromkeys(name for name in (*self.feature_names, label, self.weight) if name))
        number = 0
        for path in self.files:
            # Not prefetched: the columns of a row group may be large.
            with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as opened:
                for batch in opened.iter_batches(self.chunk_rows, columns=columns):
                    if batch.num_rows:
                        yield self._block(batch, label, number)
                        number += 1

    def _block(self, batch: Any, label: str | None, number: int) -> Block:
        by_column = np.empty((self.n_features, batch.num_rows), dtype=self._dtype)
        for values, name in zip(by_column, self.feature_names, strict=True):
            values[:] = numbers_of(batch.column(name))
        y, names = (None, None) if label is None else _labels_of(batch.column(label))
        weights = None
        if self.weight is not None:
            weights = np.asarray(numbers_of(batch.column(self.weight)), dtype=np.float64)
        return Block(by_column.T, y, weights, number, names)


def _open_parquet(path: Path, chunk_rows: int | None) -> _ParquetRows:
    """Open a Parquet file or all those in a folder."""
    import pyarrow.parquet as pq

    paths = _files_in(path, _OF_PARQUET)
    if not paths:
        raise ValueError(
            f"The folder {path} has no Parquet files (*.parquet), no FCS files and is not a Zarr array."
        )
    files: dict[Path, dict[str, Any]] = {}
    n_rows = 0
    for each in paths:
        try:
            with pq.ParquetFile(each) as opened:
                schema = opened.schema_arrow
                n_rows += opened.metadata.num_rows
        except (OSError, ValueError) as error:
            raise ValueError(f"{each} cannot be read as a Parquet file: {error}") from error
        files[each] = dict(zip(schema.names, schema.types, strict=True))
        if len(files[each]) < len(schema.names):
            raise ValueError(f"{each} has two columns of the same name.")
    if not n_rows:
        raise ValueError(f"{path} is empty: its {len(files)} file(s) have no rows.")
    return _ParquetRows(
        name=str(path),
        n_rows=n_rows,
        chunk_rows=int(chunk_rows or max(256, BLOCK_BYTES // (8 * len(files[paths[0]])))),
        stamps={each: _stamp(each) for each in paths},
        files=files,
    )


def _labels_of(column: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a column's labels (n,) and None; of strings or with nulls, indices into names (C,) and these."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        if kind_of(column.type) != "text" and not column.null_count:
            return column.to_numpy(zero_copy_only=False), None
        column = column.dictionary_encode()
    known = column.dictionary.to_pylist()
    if not column.null_count:
        names = np.array(known, dtype=None if known else "<U1")
        return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), names
    indices = column.indices.cast(pa.int64()).fill_null(len(known))
    return indices.to_numpy(zero_copy_only=False), np.array([*known, None], dtype=object)


# ---------------------------------------------------------------- FCS


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _FcsRows(Source):
    """The events of FCS files, in the order of the files' names."""

    files: dict[Path, FcsFile]
    compensate: bool
    # The features; None for all channels.
    columns: list[str] | None = None
    # None for single precision if all files have it.
    dtype: np.dtype[Any] | None = None
    named = True

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features, which must be the same channels in all files."""
        (path, first), *others = self.files.items()
        names = [channel.name for channel in first.channels] if self.columns is None else self.columns
        markers = [first.channels[column].marker for column in first.find(names)]
        for other, file in others:
            for name, marker, column in zip(names, markers, file.find(names), strict=True):
                its_own = file.channels[column].marker
                if marker and its_own and marker.casefold() != its_own.casefold():
                    raise ValueError(
                        f"Files disagree: channel {name!r} is marker {marker!r} in {path} and {its_own!r} in "
                        f"{other}."
                    )
            extra = [channel.name for channel in file.channels if channel.name not in names]
            if self.columns is None and extra:
                raise ValueError(
                    f"Files disagree: {other} has a channel {extra[0]!r}, and {path} has none. Choose the "
                    "features with open_rows(path, columns=[...])."
                )
        return list(names)

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        files, names = self.files.values(), self.feature_names
        single = not self.compensate and all(file.is_single(file.find(names)) for file in files)
        return self.dtype or np.dtype(np.float32 if single else np.float64)

    def take(self, columns: Sequence[int]) -> Self:
        return replace(self, columns=[self.feature_names[column] for column in columns], dtype=self._dtype)

    def select(self, names: Sequence[str]) -> Self:
        return replace(self, columns=list(names), dtype=None)

    def read(self, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks; a block never spans two files."""
        number = 0
        for path, file in self.files.items():
            columns = file.find(self.feature_names)
            read = partial(_rows_of_npy, path, file.offset, (file.n_rows,), file.dtype, False)
            for start in range(0, file.n_rows, self.chunk_rows):
                records = read(start, min(start + self.chunk_rows, file.n_rows))
                yield Block(
                    file.values(records, columns, self._dtype, compensate=self.compensate), number=number
                )
                number += 1


def _open_fcs(path: Path, chunk_rows: int | None, compensate: bool) -> _FcsRows:
    """Open an FCS file or all those in a folder."""
    files = {each: open_fcs(each) for each in _files_in(path, _OF_FCS)}
    if compensate:
        for file in files.values():
            assert file.spilling  # the property checks the matrix
    width = max(file.dtype.itemsize + 8 * len(file.channels) for file in files.values())
    return _FcsRows(
        name=str(path),
        n_rows=sum(file.n_rows for file in files.values()),
        chunk_rows=int(chunk_rows or max(256, BLOCK_BYTES // width)),
        stamps={each: _stamp(each) for each in files},
        files=files,
        compensate=compensate,
    )


# ---------------------------------------------------------------- what is what


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, os.PathLike))


def _existing(path: str | os.PathLike[str]) -> Path:
    found = Path(path)
    if not found.exists():
        pattern = any(character in str(path) for character in "*?[")
        hint = " Patterns are not expanded: give the folder that holds the files." if pattern else ""
        raise FileNotFoundError(f"There is no file or folder {path}.{hint}")
    return found


def _is_parquet(path: Path) -> bool:
    """Return whether a path is a folder of Parquet files, or a file of this format by its name or content."""
    if path.is_dir():
        return not _is_zarr_folder(path)
    return _is_file_of(path, _OF_PARQUET, b"PAR1")


def _is_fcs(path: Path) -> bool:
    """Return whether a path is a folder of FCS files alone, or such a file by its name or content."""
    if not path.is_dir():
        return _is_file_of(path, _OF_FCS, MAGIC)
    if _is_zarr_folder(path) or not (found := _files_in(path, _OF_FCS)):
        return False
    others = _files_in(path, _OF_PARQUET)
    if others:
        raise ValueError(f"The folder {path} has files of two formats: {found[0].name} and {others[0].name}.")
    return True


def _is_file_of(path: Path, suffixes: tuple[str, ...], magic: bytes) -> bool:
    """Return whether a file has a format by its name or its first bytes."""
    if path.suffix.lower() in suffixes:
        return True
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _files_in(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder that have one of these suffixes, by name; of a file, itself."""
    if not path.is_dir():
        return [path]
    inside = (each for each in path.rglob("*") if each.suffix.lower() in suffixes and each.is_file())
    return sorted(each for each in inside if not each.name.startswith((".", "_")))


def _is_zarr_folder(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def _is_zarr(thing: Any, name: str) -> bool:
    """Return whether something is a Zarr array, without importing zarr; groups of them are refused."""
    if type(thing).__module__.split(".")[0] != "zarr":
        return False
    if hasattr(type(thing), "array_keys"):
        raise ValueError(f"{name} is a Zarr group of {sorted(thing.array_keys())}. Give one of its arrays.")
    return hasattr(thing, "chunks")


def _refuse_lists(X: Any) -> None:
    if isinstance(X, (list, tuple)) and len(X) and all(_is_path(each) for each in X):
        raise ValueError(
            f"X is a list of {len(X)} strings or paths, such as {str(X[0])!r}. Give a single path: put "
            "Parquet or FCS files that belong together in a folder, and give the path of the folder."
        )


def _stamp(path: Path) -> Stamp:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
