"""Parquet files, or a folder of them, in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.sources.blocks import Block
from .arrow import is_number, label_kind, numbers_of
from .readers import Ring, rows_of_block
from .values import check_stamp, stamp


def load_pyarrow() -> Any:
    """Return pyarrow's Parquet library."""
    import pyarrow.parquet as pq

    return pq


# Columns that pandas writes for its index.
_INDEX = "__index_level_"
# Columns are read in pieces of so many bytes, and decoded in batches of part of a block: memory that Arrow
# needs beside the block is a multiple of a batch.
_BUFFERED = 1 << 20
_PIECES = 4
_FEWEST = 1 << 12


@dataclass(frozen=True)
class ParquetFile:
    """One file, as it was when it was opened.

    Attributes
    ----------
    path : Path
        Where it is.
    stamp : tuple of int
        Size and time of last change.
    types : dict of str to pyarrow type
        Its columns.
    group_rows : list of int
        Rows of each of its row groups.
    """

    path: Path
    stamp: tuple[int, int]
    types: dict[str, Any]
    group_rows: list[int]


@dataclass(frozen=True)
class ParquetReader:
    """The rows of Parquet files.

    Attributes
    ----------
    path : Path
        A file or a folder.
    files : list of ParquetFile
        Its files, at least one, in the order of their names.
    columns : list of str or None
        The features; None takes all columns but those of labels and weights.
    label, weight : str or None
        Columns of labels and weights.
    chunk_rows : int or None
        Largest number of rows of a block; None chooses it.
    """

    path: Path
    files: list[ParquetFile]
    columns: list[str] | None = None
    label: str | None = None
    weight: str | None = None
    chunk_rows: int | None = None

    @property
    def name(self) -> str:
        """What to call the rows in errors."""
        return str(self.path)

    @cached_property
    def n_rows(self) -> int:
        """Number N of rows."""
        return sum(sum(file.group_rows) for file in self.files)

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return len(self.feature_names)

    @property
    def has_labels(self) -> bool:
        """Whether blocks have labels."""
        return self.label is not None

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features: of all files, and of numbers."""
        names = self.columns
        if names is None:
            apart = (self.label, self.weight)
            every = [name for name in self.files[0].types if not name.startswith(_INDEX)]
            names = [name for name in every if name not in apart]
        if not names:
            raise ValueError(f"{self.name} has no columns of features.")
        for file in self.files:
            self._present(file, names)
            wrong = [name for name in names if not is_number(file.types[name])]
            if wrong:
                told = ", ".join(f"{name!r} ({file.types[name]})" for name in wrong[:5])
                raise ValueError(
                    f"{len(wrong)} column(s) of {file.path} are not numbers: {told}. "
                    "Choose the features with columns=, or by open_rows(path, columns=[...], label=...)."
                )
        return list(names)

    def _present(self, file: ParquetFile, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in file.types]
        if missing:
            told = any(part.startswith(f"{missing[0]}=") for part in file.path.parts)
            hint = " What the names of folders say is not read: write it into the files." if told else ""
            raise ValueError(
                f"{file.path} has no column {', '.join(map(repr, missing[:5]))} "
                f"({len(missing)} missing); its columns are {list(file.types)[:20]}.{hint}"
            )

    def select(self, names: list[str]) -> ParquetReader:
        """Return the rows with these features."""
        return replace(self, columns=names)

    def bare(self) -> ParquetReader:
        """Return the rows without labels and weights, which do not become features."""
        if self.columns is not None or (self.label is None and self.weight is None):
            return replace(self, label=None, weight=None)
        return replace(self, columns=self.feature_names, label=None, weight=None)

    def labelled(self, label: str) -> ParquetReader:
        """Return the rows with a column of labels, of one kind in all files."""
        first = self.files[0]
        for file in self.files:
            self._present(file, [label])
            kind = label_kind(file.types[label])
            if kind is None:
                raise ValueError(
                    f"Column {label!r} of {file.path} is of type {file.types[label]}; "
                    "labels are whole numbers, strings or truth values."
                )
            if kind != label_kind(first.types[label]):
                raise ValueError(
                    f"Labels differ in kind: column {label!r} is {first.types[label]} in {first.path} and "
                    f"{file.types[label]} in {file.path}."
                )
        return replace(self, label=label)

    def weighted(self, weight: str) -> ParquetReader:
        """Return the rows with a column of weights."""
        for file in self.files:
            self._present(file, [weight])
            if not is_number(file.types[weight]):
                raise ValueError(
                    f"Column {weight!r} of {file.path} is of type {file.types[weight]}; weights are numbers."
                )
        return replace(self, weight=weight)

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        """The type of rows: single precision when no column has more."""
        kinds = {str(file.types[name]) for file in self.files for name in self.feature_names}
        return np.dtype(np.float32 if kinds <= {"float", "halffloat"} else np.float64)

    def check(self) -> None:
        """Raise when a file has changed."""
        for file in self.files:
            check_stamp(file.path, file.stamp)

    def blocks(self, columns: Sequence[int] | None, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks: no file, and no row group that is large enough, shares one with another.

        Where blocks are cut depends on the files alone, not on what is read of them.
        """
        pq = load_pyarrow()
        chosen = self.feature_names if columns is None else [self.feature_names[c] for c in columns]
        label = self.label if labels else None
        wanted = [name for name in (*chosen, label, self.weight) if name is not None]
        chunk_rows = self.chunk_rows or rows_of_block(self.n_features, self._dtype.itemsize)
        pieces = min(chunk_rows, max(_FEWEST, -(-chunk_rows // _PIECES)))
        ring, number = Ring(), 0
        for file in self.files:
            # Nothing is read before it is needed: the columns of a row group may be large.
            with pq.ParquetFile(file.path, buffer_size=_BUFFERED, pre_buffer=False) as opened:
                for groups in bundles(file.group_rows, chunk_rows):
                    left = sum(file.group_rows[g] for g in groups)
                    batches = opened.iter_batches(
                        pieces, row_groups=groups, columns=list(dict.fromkeys(wanted))
                    )
                    block = None
                    for batch in batches:
                        done = 0
                        while done < batch.num_rows:
                            if block is None:
                                size = min(chunk_rows, left)
                                block = Assembly(size, chosen, label, self.weight, self._dtype, ring)
                            done += block.add(batch.slice(done), file.path)
                            if block.full:
                                yield block.whole(number)
                                number, left, block = number + 1, left - block.n_rows, None


class Assembly:
    """A block that is put together from batches.

    Parameters
    ----------
    n_rows : int
        Its rows.
    columns : list of str
        Its features.
    label, weight : str or None
        Columns of labels and weights.
    dtype : dtype
        Type of its rows.
    ring : Ring
        Lends the memory.
    """

    def __init__(
        self,
        n_rows: int,
        columns: list[str],
        label: str | None,
        weight: str | None,
        dtype: np.dtype[Any],
        ring: Ring,
    ) -> None:
        self.n_rows = n_rows
        size = n_rows * len(columns) * dtype.itemsize
        self._by_column = ring.lend(size)[:size].view(dtype).reshape(len(columns), n_rows)
        self._columns, self._label, self._weight = columns, label, weight
        self._labels: list[np.ndarray] = []
        self._names: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._filled = 0

    @property
    def full(self) -> bool:
        """Whether all rows are there."""
        return self._filled == self.n_rows

    def add(self, batch: Any, path: Path) -> int:
        """Take as many rows of a batch as are wanted, and return their number."""
        batch = batch.slice(0, self.n_rows - self._filled)
        here = slice(self._filled, self._filled + batch.num_rows)
        for values, name in zip(self._by_column, self._columns, strict=True):
            values[here] = numbers_of(batch.column(name))
        if self._label is not None:
            labels, names = labels_of(batch.column(self._label), self._label, path)
            if names is not None:
                # Every batch has names of its own; that some are there twice does no harm.
                labels = labels + sum(map(len, self._names))
                self._names.append(names)
            self._labels.append(labels)
        if self._weight is not None:
            self._weights.append(np.asarray(numbers_of(batch.column(self._weight)), dtype=np.float64))
        self._filled = here.stop
        return int(batch.num_rows)

    def whole(self, number: int) -> Block:
        """Return the block."""
        y, names, weights = (
            np.concatenate(parts) if parts else None for parts in (self._labels, self._names, self._weights)
        )
        return Block(self._by_column.T, y, weights, number, names)


def parquet_reader(path: Path, chunk_rows: int | None) -> ParquetReader:
    """Return the reader of a Parquet file or of all those in a folder."""
    pq = load_pyarrow()
    paths = [path]
    if path.is_dir():
        inside = (p for p in path.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file())
        paths = sorted(p for p in inside if not p.name.startswith((".", "_")))
        if not paths:
            raise ValueError(f"The folder {path} holds no Parquet files (*.parquet) and is no Zarr array.")
    files = []
    for each in paths:
        try:
            with pq.ParquetFile(each) as opened:
                schema, found = opened.schema_arrow, opened.metadata
                group_rows = [found.row_group(g).num_rows for g in range(found.num_row_groups)]
                types = dict(zip(schema.names, schema.types, strict=True))
        except (OSError, ValueError) as error:
            raise ValueError(f"{each} cannot be read as a Parquet file: {error}") from error
        if len(types) < len(schema.names):
            raise ValueError(f"{each} has two columns of the same name.")
        files.append(ParquetFile(each, stamp(each), types, group_rows))
    reader = ParquetReader(path, files, chunk_rows=chunk_rows)
    if not reader.n_rows:
        raise ValueError(f"{path} is empty: its {len(files)} file(s) have no rows.")
    return reader


def bundles(group_rows: Sequence[int], chunk_rows: int) -> Iterator[list[int]]:
    """Yield row groups to be read together: several small ones, or one that is large."""
    together: list[int] = []
    n_rows = 0
    for group, rows in enumerate(group_rows):
        if together and n_rows + rows > chunk_rows:
            yield together
            together, n_rows = [], 0
        if rows:
            together.append(group)
            n_rows += rows
    if together:
        yield together


def labels_of(column: Any, name: str, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a column's labels, as indices into names when they are strings."""
    import pyarrow as pa

    if column.null_count:
        raise ValueError(
            f"Column {name!r} of {path} has {column.null_count} missing labels in {len(column)} rows. "
            "Leave these rows out, or use a number for a label and -1 for none."
        )
    if not pa.types.is_dictionary(column.type):
        if label_kind(column.type) != "string":
            return column.to_numpy(zero_copy_only=False), None
        column = column.dictionary_encode()
    dictionary = column.dictionary
    if dictionary.null_count:
        raise ValueError(f"Column {name!r} of {path} has a missing label in its dictionary.")
    names = np.array(dictionary.to_pylist()) if len(dictionary) else np.empty(0, dtype="<U1")
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), names


def is_parquet(path: Path) -> bool:
    """Return whether a file is one of Parquet, by its name or its first bytes."""
    if path.suffix in (".parquet", ".pq"):
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"
