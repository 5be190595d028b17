"""A Parquet file, or a folder of them, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..engine.compute.blocks import Block
from .arrays import stamp
from .arrow import is_number, label_kind, numbers_of
from .formats import PANDAS_INDEX
from .sources import Source

# Columns are read in pieces of this many bytes.
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ParquetRows(Source):
    """The rows of Parquet files, in the order of the files' names."""

    # Arrow types of the columns of each file.
    files: dict[Path, dict[str, Any]]
    # The features; None for all columns except those of labels and weights.
    columns: list[str] | None = None
    label: str | None = None
    weight: str | None = None
    # None for single precision if no feature has more.
    dtype: np.dtype[Any] | None = None
    named = True

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return len(self.feature_names)

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.label is not None or self.labels is not None

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
        for path, types in self.files.items():
            _require(names, path, types)
            wrong = [f"{name!r} ({types[name]})" for name in names if not is_number(types[name])]
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
        """Return the rows with some of their features."""
        return replace(self, columns=[self.feature_names[c] for c in columns], dtype=self._dtype)

    def select(self, names: Sequence[str]) -> Self:
        """Return the rows with the features of these names, in this order."""
        return replace(self, columns=list(names), dtype=None)

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights; their columns do not become features."""
        if self.columns is None and (self.label is not None or self.weight is not None):
            return self.select(self.feature_names).unlabelled()
        return replace(super().unlabelled(), label=None, weight=None)

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: a column of the same kind in all files, or other values."""
        if not isinstance(y, str):
            return super().labelled(y)
        first: Path | None = None
        for path, types in self.files.items():
            _require([y], path, types)
            first = first or path
            if label_kind(types[y]) is None:
                raise ValueError(
                    f"Column {y!r} of {path} is of type {types[y]}; labels must be whole numbers, strings or "
                    "booleans."
                )
            if label_kind(types[y]) != label_kind(self.files[first][y]):
                raise ValueError(
                    f"Labels differ in kind: column {y!r} is {self.files[first][y]} in {first} and "
                    f"{types[y]} in {path}."
                )
        return replace(self, label=y, labels=None)

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights: a column, or other values."""
        if not isinstance(weights, str):
            return super().weighted(weights)
        for path, types in self.files.items():
            _require([weights], path, types)
            if not is_number(types[weights]):
                raise ValueError(
                    f"Column {weights!r} of {path} is of type {types[weights]}; weights must be numbers."
                )
        return replace(self, weight=weights, weights=None)

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
        y, names = (None, None) if label is None else labels_of(batch.column(label))
        weights = None
        if self.weight is not None:
            weights = np.asarray(numbers_of(batch.column(self.weight)), dtype=np.float64)
        return Block(by_column.T, y, weights, number, names)


def open_parquet(path: Path, rows_of_block: Callable[[int], int]) -> ParquetRows:
    """Open a Parquet file or all those in a folder; `rows_of_block` is called with the number of columns."""
    import pyarrow.parquet as pq

    paths = [path]
    if path.is_dir():
        inside = (p for p in path.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file())
        paths = sorted(p for p in inside if not p.name.startswith((".", "_")))
        if not paths:
            raise ValueError(f"The folder {path} has no Parquet files (*.parquet) and is not a Zarr array.")
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
    return ParquetRows(
        name=str(path),
        n_rows=n_rows,
        chunk_rows=rows_of_block(len(files[paths[0]])),
        stamps={each: stamp(each) for each in paths},
        files=files,
    )


def _require(names: Sequence[str], path: Path, types: dict[str, Any]) -> None:
    """Raise ValueError if a file lacks a column."""
    missing = [name for name in names if name not in types]
    if missing:
        in_folders = any(part.startswith(f"{missing[0]}=") for part in path.parts)
        hint = " Values in folder names (Hive partitioning) are not read: write them into the files."
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing[:5]))} ({len(missing)} missing); "
            f"its columns are {list(types)[:20]}.{hint if in_folders else ''}"
        )


def labels_of(column: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a column's labels (n,) and None; of strings or with nulls, indices into names (C,) and these."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        if label_kind(column.type) != "string" and not column.null_count:
            return column.to_numpy(zero_copy_only=False), None
        column = column.dictionary_encode()
    known = column.dictionary.to_pylist()
    if not column.null_count:
        names = np.array(known, dtype=None if known else "<U1")
        return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), names
    indices = column.indices.cast(pa.int64()).fill_null(len(known))
    return indices.to_numpy(zero_copy_only=False), np.array([*known, None], dtype=object)


def is_parquet(path: Path) -> bool:
    """Return whether a file is a Parquet file, by its name or its first bytes."""
    if path.suffix in (".parquet", ".pq"):
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"
