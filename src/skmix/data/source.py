"""Row sources: files and arrays that are read in blocks, in the same order in every pass."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.rows.blocks import Answer
from .arrow import NUMERIC, kind_of
from .blocks import LabelledBlock, joined, joined_labels, read_ahead
from .labels import label_parser, plain_labels
from .missing import refuse_masked_weights
from .read import Reader, Values, check_finite, open_array, stamp, values_in_memory, values_of
from .recipe import BY_CHANNEL, Preparation, rescaled, transformer_of

# Largest size of rows that a fit reads into memory, if they are in several files or on another scale, and
# therefore slow to read again in each pass.
HELD_BYTES = 1 << 29


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source:
    """Rows that are read in blocks, which may span files; made by `open_rows`."""

    name: str
    # A reader per file, by the name of the group; arrays and tables in memory have one reader.
    readers: dict[str, Reader]
    chunk_rows: int
    # Whether the label of a row is the name of its file.
    by_file: bool = False
    # Settings left open by the user: for files and data frames, a model takes them from its preparation.
    automatic: frozenset[str] = frozenset()
    # `transform`, `linear` and `scales` of a preparation; without `linear`, scatter channels are linear. None
    # lets the files decide.
    scale: Preparation | None = field(default_factory=lambda: {"transform": "none"})
    # Type of the rows before features were taken from them; None if that did not happen.
    precision: np.dtype[Any] | None = None
    # Columns of tables with labels and weights.
    label: str | None = None
    weight: str | None = None
    # Labels (N,) and weights (N,) from elsewhere, in place of columns.
    labels: Values | None = None
    weights: Values | None = None
    # Labels (C,) that the labels from elsewhere are indices into, such as names of files.
    label_names: np.ndarray | None = None
    # Distinct labels of text files, as text: all of them together decide whether labels are numbers.
    label_texts: frozenset[str] | None = None
    # Columns that held labels or weights before; they do not become features.
    excluded: frozenset[str | None] = frozenset()
    # Whether a fit has checked all values in its first pass, and the class codes (N,) that labels became.
    is_checked: bool = False
    codes: np.ndarray | None = None

    # This process works on the blocks.
    runs_elsewhere: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    # ------------------------------------------------------------ features

    @cached_property
    def _aligned(self) -> list[Reader]:
        """The readers, with the same features in the same order."""
        first, *others = (
            reader.without({self.label, self.weight, *self.excluded}) for reader in self.readers.values()
        )
        for other in others:
            other.check_alike(first)
        names = first.column_names
        others = [other if other.column_names == names else other.select(names or []) for other in others]
        are_same = all(type(other) is type(first) for other in others)
        return type(first).with_common_features([first, *others]) if are_same else [first, *others]

    @cached_property
    def n_rows(self) -> int:
        """Number N of rows."""
        return sum(reader.n_rows for reader in self.readers.values())

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self._aligned[0].n_features

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.n_rows, self.n_features

    @property
    def first(self) -> Reader:
        """The first reader, which says how features are named and scaled."""
        return next(iter(self.readers.values()))

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return self._aligned[0].feature_names

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""
        return self.precision or np.result_type(*(reader.dtype for reader in self._aligned))

    @property
    def preparation(self) -> Preparation | None:
        """How values are transformed and encoded while they are read; None if they are not."""
        of_reader = self._aligned[0].preparation
        return of_reader if self._scale["transform"] == "none" else {**(of_reader or {}), **self._scale}

    @cached_property
    def _scale(self) -> Preparation:
        """The scale of these features."""
        scale = self._aligned[0].usual_scale(self._aligned)[0] if self.scale is None else self.scale
        if scale["transform"] == "none":
            return {"transform": "none"}
        if "linear" not in scale:
            # The top of their range is as far from 0 as on the scale.
            tops, change = self._aligned[0].scatter, transformer_of(scale["transform"]).transform
            units = {name: top / float(np.ptp(change([[0.0], [top]]))) for name, top in tops.items()}
            scale = scale | {"linear": units}
        names = self.feature_names or ()
        linear, scales = (
            {name: scale[setting][name] for name in names if name in scale.get(setting, {})}
            for setting in ("linear", "scales")
        )
        found: Preparation = {"transform": scale["transform"]}
        if scales or scale["transform"] == BY_CHANNEL:
            found["scales"] = scales
        return found | ({"linear": linear} if linear else {})

    def scale_note(self) -> str | None:
        """Which scales the files decided for; None if somebody else did."""
        return self._aligned[0].usual_scale(self._aligned)[1] if self.scale is None else None

    def remarks(self) -> list[ArgumentWarning]:
        """Notes on values that were read as missing."""
        return [note for reader in self._aligned for note in reader.remarks()]

    def _with(self, readers: Iterable[Reader], precision: np.dtype[Any] | None = None) -> Self:
        return replace(self, readers=dict(zip(self.readers, readers, strict=True)), precision=precision)

    def compensated(self, wanted: bool | str) -> Self:
        """The rows with or without compensation; 'auto' compensates files that have a matrix."""
        return self._with(reader.compensated(wanted) for reader in self.readers.values())

    def with_features(self, columns: Sequence[int]) -> Self:
        """The rows with some features, given by index, in the same blocks."""
        return self._with((reader.with_features(columns) for reader in self._aligned), self.dtype)

    def select(self, names: Sequence[str]) -> Self:
        """The rows with the features that have these names, in this order."""
        return self._with(reader.select(names) for reader in self.readers.values())

    def encoded(self, columns: Mapping[str, Any], writing: Mapping[str, Any] | None = None) -> Self:
        """The rows with columns of known kinds encoded; see `Reader.encoded`."""
        return self._with(reader.encoded(columns, writing) for reader in self.readers.values())

    def chosen(self, columns: Sequence[int | str]) -> Self:
        """The rows with the features that a user chose: by name if they have names, else by index."""
        argument = Argument("columns")
        if isinstance(columns, str) or not len(columns):
            raise ArgumentError(argument, f" must be a list of at least one column, got {columns!r}.")
        if len(set(columns)) < len(columns):
            raise ArgumentError(argument, f" must not repeat a column, got {list(columns)}.")
        if self.first.named:
            if not all(isinstance(name, str) for name in columns):
                raise ValueError(f"Columns of {self.name} are chosen by name, got {list(columns)}.")
            return self.select([str(name) for name in columns])
        for column in columns:
            if not isinstance(column, (int, np.integer)) or not 0 <= column < self.n_features:
                problem = f" has {column!r}, but {self.name} has columns 0 to {self.n_features - 1}."
                raise ArgumentError(argument, problem)
        return self.with_features([int(column) for column in columns])

    # ------------------------------------------------------------ labels and weights

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels, or class codes instead."""
        return self.label is not None or self.labels is not None or self.codes is not None

    def labelled(self, y: Any) -> Self:
        """The rows with labels: an array, its file, or the name of a column that all tables have."""
        if not self._is_column(y):
            values = self._for_each_row(plain_labels(y), "labels", "labels")
            excluded = self.excluded | {self.label}
            labelled = replace(self, labels=values, label_names=None, by_file=False)
            return replace(labelled, label=None, label_texts=None, excluded=excluded)
        rule = "labels must be whole numbers, strings or booleans"
        (first, kind), *others = self._types_of(y, ("boolean", "number", "text"), rule).items()
        for other, other_kind in others:
            if kind_of(other_kind) != kind_of(kind):
                raise ValueError(
                    f"Labels differ in kind: column {y!r} is {kind} in {first} and {other_kind} in {other}."
                )
        texts = [reader.label_texts(y) for reader in self.readers.values()]  # type: ignore[attr-defined]
        all_texts = None if None in texts else frozenset().union(*texts)
        unlabelled = replace(self, labels=None, label_names=None, by_file=False)
        return replace(unlabelled, label=y, label_texts=all_texts)

    def labelled_by_file(self) -> Self:
        """The rows with the names of their files as labels."""
        ends = np.cumsum([reader.n_rows for reader in self.readers.values()])
        labels = Values("labels", (self.n_rows,), np.dtype(np.int64), partial(_numbers_of_files, ends))
        return replace(self, labels=labels, label_names=np.array(list(self.readers)), by_file=True)

    def weighted(self, weights: Any) -> Self:
        """The rows with weights, given like labels."""
        refuse_masked_weights(weights)
        if self._is_column(weights):
            self._types_of(weights, NUMERIC, "weights must be numbers")
            return replace(self, weight=weights, weights=None)
        values = self._for_each_row(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights must be numbers.")
        return replace(self, weights=values)

    def _is_column(self, values: Any) -> bool:
        """Whether labels or weights are given as the name of a column."""
        return isinstance(values, str) and all(reader.is_table for reader in self.readers.values())

    def _types_of(self, column: str, kinds: Sequence[str], rule: str) -> dict[str, Any]:
        """The Arrow types of a column by file; raise ValueError unless they are of these kinds."""
        types = {}
        tables: Any = self.readers.values()
        for reader in tables:
            reader.check_present([column])
            types[reader.name] = reader.types[column]
        for name, arrow_type in types.items():
            if kind_of(arrow_type) not in kinds:
                raise ValueError(f"Column {column!r} of {name} is of type {arrow_type}; {rule}.")
        return types

    def _for_each_row(self, array: Any, name: str, what: str) -> Values:
        values = values_of(array, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"give {what}, one for each row."
            )
        return values

    def unlabelled(self) -> Self:
        """The rows without labels and weights; their columns do not become features."""
        excluded = self.excluded | {self.label, self.weight}
        plain = replace(self, label=None, labels=None, label_names=None, label_texts=None, by_file=False)
        return replace(plain, weight=None, weights=None, codes=None, excluded=excluded)

    def row_labels(self) -> np.ndarray:
        """The label (N,) of each row."""
        if self.labels is not None:
            return np.concatenate([block.all_labels() for block in self._blocks_of_labels()])
        with closing(self.blocks()) as blocks:
            return np.concatenate([block.all_labels() for block in blocks])

    # ------------------------------------------------------------ the passes of a fit

    def held(self) -> Source:
        """The same blocks in memory, if they are slow to read again and there is room; else these rows."""
        is_slow = self.by_file or len(self.readers) > 1 or self._scale["transform"] != "none"
        if not is_slow or self.n_rows * self.n_features * self.dtype.itemsize > HELD_BYTES:
            return self
        X, blocks, start = np.empty(self.shape, dtype=self.dtype), [], 0
        with closing(self.blocks()) as opened:
            for block in opened:
                X[start : start + len(block.X)] = block.X
                start += len(block.X)
                blocks.append(replace(block, X=X[:0]))
        y, names = joined_labels(blocks)
        weights = [block.weights for block in blocks if block.weights is not None]
        reader = open_array(values_in_memory(X, self.name), self.feature_names)
        return Source(
            name=self.name,
            readers={self.name: replace(reader, prepared=self.preparation, place=self.place)},
            chunk_rows=self.chunk_rows,
            labels=None if y is None else values_in_memory(y, "labels"),
            label_names=names,
            weights=values_in_memory(np.concatenate(weights), "sample_weight") if weights else None,
            is_checked=True,
        )

    def coded(self, classes: np.ndarray) -> Self:
        """The rows after the first pass of a fit, with class codes: indices into sorted `classes` (L,)."""
        # Aligned readers have inferred the kinds of their columns.
        readers = dict(zip(self.readers, self._aligned, strict=True))
        source = replace(self, readers=readers, is_checked=True)
        if not self.has_labels:
            return source
        self._check_unchanged()
        # Only tables have columns of labels, and they read no other columns for them.
        blocks = (
            self._blocks_of_labels() if self.label is None else source.with_features([])._blocks_of_files()
        )
        return replace(source, codes=np.concatenate([block.coded(classes).codes for block in blocks]))

    def _blocks_of_labels(self) -> Iterator[LabelledBlock]:
        assert self.labels is not None
        for start in range(0, self.n_rows, self.chunk_rows):
            labels = self.labels.read(start, min(start + self.chunk_rows, self.n_rows))
            yield LabelledBlock(np.empty((len(labels), 0)), labels=labels, names=self.label_names)

    # ------------------------------------------------------------ files

    def each(self) -> Iterator[tuple[str, Self]]:
        """Yield the name of each reader, and a source of its rows."""
        first = 0
        for name, reader in self.readers.items():
            labels, weights = (
                None if values is None else values.rows(first, reader.n_rows)
                for values in (self.labels, self.weights)
            )
            first += reader.n_rows
            yield name, replace(self, readers={name: reader}, labels=labels, weights=weights)

    @property
    def _opened(self) -> list[Reader | Values]:
        beside = (values for values in (self.labels, self.weights) if values is not None)
        return [*self.readers.values(), *beside]

    def place(self, row: int) -> str:
        """Where a row, counted from 0, is in its file, such as "line 12" or "row 12 of b.npy"."""
        for reader in self.readers.values():
            if row < reader.n_rows:
                place = reader.place(row)
                return place if len(self.readers) == 1 else f"{place} of {reader.name}"
            row -= reader.n_rows
        raise IndexError(f"{self.name} has no such row.")

    def comes_from(self, path: Path) -> bool:
        """Whether rows, labels or weights are read from this file."""
        if not path.exists():
            return False
        files = {file for opened in self._opened for file in opened.stamps}
        files |= {reader.origin for reader in self.readers.values() if reader.origin is not None}
        return any(file.exists() and path.samefile(file) for file in files)

    def _check_unchanged(self) -> None:
        for opened in self._opened:
            for path, before in opened.stamps.items():
                if not path.exists():
                    if isinstance(opened, Reader) and opened.origin == path:
                        continue  # its rows are in memory
                    raise ValueError(f"{path} no longer exists: files must not be moved while they are read.")
                if stamp(path) != before:
                    raise ValueError(
                        f"{path} has changed since it was opened ({before[0]} bytes then, {stamp(path)[0]} "
                        "now): its rows must stay the same from pass to pass. Open it again."
                    )

    # ------------------------------------------------------------ blocks

    def reduce(
        self, work: Callable[[LabelledBlock], Answer], merge: Callable[[Answer, Answer], Answer]
    ) -> Answer:
        """Apply a function to all blocks and merge the results in order."""
        # If the work fails, closing stops the reader.
        with closing(self.blocks()) as blocks:
            answer = work(next(blocks))
            for block in blocks:
                answer = merge(answer, work(block))
        return answer

    def blocks(self) -> Generator[LabelledBlock, None, None]:
        """Yield all blocks in order, after a check that the files have not changed since they were opened."""
        self._check_unchanged()
        return read_ahead(self._whole_blocks())

    def _whole_blocks(self) -> Iterator[LabelledBlock]:
        """Yield blocks on the scale of the rows, with weights, and with codes or labels."""
        start = 0
        for number, block in enumerate(self._equal_blocks()):
            stop = start + len(block.X)
            block = replace(block, X=self._rescaled(block.X), number=number)
            if self.weights is not None:
                block = replace(block, weights=self.weights.read(start, stop).astype(np.float64))
            if self.codes is not None:
                block = replace(block, y=self.codes[start:stop])
            elif self.labels is not None:
                block = replace(block, labels=self.labels.read(start, stop), names=self.label_names)
            yield block
            start = stop

    def _equal_blocks(self) -> Iterator[LabelledBlock]:
        """Yield blocks of `chunk_rows` rows, which may span files; the last one may have fewer."""
        parts: list[LabelledBlock] = []
        n_missing = self.chunk_rows
        for block in self._blocks_of_files():
            while len(block.X):
                parts.append(block.rows(slice(0, n_missing)))
                block = block.rows(slice(n_missing, None))
                n_missing -= len(parts[-1].X)
                if not n_missing:
                    yield joined(parts, self.dtype)
                    parts, n_missing = [], self.chunk_rows
        if parts:
            yield joined(parts, self.dtype)

    def _blocks_of_files(self) -> Iterator[LabelledBlock]:
        """Yield the blocks of all readers, with the labels and the weights in their columns."""
        label = self.label if self.codes is None else None
        for reader in self._aligned:
            has_value, start = self.is_checked, 0
            for block in reader.read(self.chunk_rows, label, self.weight):
                if not self.is_checked:
                    has_value |= check_finite(reader, block.X, start)
                    start += len(block.X)
                if label is not None and self.label_texts is not None:
                    block = replace(block, names=_parsed(block.names, self.label_texts, label))
                yield block
            # Single rows may have no value, but a sample must have some.
            if self.by_file and not has_value:
                raise ValueError(f"{reader.name} has no value: all features of all its rows are NaN.")

    def _rescaled(self, X: np.ndarray) -> np.ndarray:
        if self._scale["transform"] == "none":
            return X
        places = {name: feature for feature, name in enumerate(self.feature_names or ())}
        return rescaled(X, "transform", self._scale, places, self._aligned[0].numeric)


def _numbers_of_files(ends: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The number of the file of each row, given the rows at which files end."""
    return np.searchsorted(ends, np.arange(start, stop), side="right")


def _parsed(texts: np.ndarray | None, all_texts: frozenset[str], column: str) -> np.ndarray:
    """The labels (C,) of texts (C,), None for missing ones, given all texts of the column."""
    assert texts is not None  # columns of text files have names
    parse = label_parser(all_texts, column)
    labels = [None if text is None else parse(text) for text in texts.tolist()]
    return np.array(labels, dtype=object if None in labels else None if labels else "<U1")
