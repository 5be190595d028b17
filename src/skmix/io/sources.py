"""Row sources: files and arrays that are read in blocks, in the same order in every pass."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..data.labels import label_parser, plain_labels
from ..data.problems import ColumnError
from ..data.recipe import (
    BY_CHANNEL,
    Preparation,
    rescaled,
    same_scale,
    scale_in_words,
    transformer_of,
    writing_of,
)
from ..engine.rows.blocks import Answer
from .arrow import NUMERIC, kind_of, stamp
from .labelled import LabelledBlock
from .missing import refuse_masked_weights
from .readers import Reader, Values, values_of

# Largest size of rows that a fit keeps in memory after its first pass, if they are in several files or on
# another scale, and therefore slow to read again.
CACHED_BYTES = 1 << 29


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source:
    """Rows that are read in blocks, which may span files; made by `open_rows`."""

    name: str
    # A reader per file, by the name of the group; arrays and tables in memory have one reader.
    readers: dict[str, Reader]
    chunk_rows: int
    # Whether the label of a row is the name of its reader.
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
    # Labels (N,) and weights (N,) from elsewhere, which take precedence.
    labels: Values | None = None
    weights: Values | None = None
    # Distinct labels of text files, as text: all of them together decide whether labels are numbers.
    label_texts: frozenset[str] | None = None
    # Columns that held labels or weights before; they do not become features.
    excluded: frozenset[str | None] = frozenset()
    # If given, the first pass encodes labels as indices into these classes (L,).
    classes: np.ndarray | None = None
    # Codes of the labels of each block, by number.
    codes: dict[int, np.ndarray] = field(default_factory=dict)
    # Blocks kept in memory, by number, without labels.
    cached: dict[int, LabelledBlock] = field(default_factory=dict)

    # This process works on the blocks.
    runs_elsewhere: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    # ------------------------------------------------------------ features

    @cached_property
    def _aligned(self) -> list[Reader]:
        """The readers, with the same features in the same order."""
        not_features = {self.label, self.weight, *self.excluded}
        first, *others = (reader.without(not_features) for reader in self.readers.values())
        for other in others:
            other.check_alike(first)
        names = first.column_names
        others = [other if other.column_names == names else other.select(names or []) for other in others]
        same = len({type(reader) for reader in (first, *others)}) == 1
        return type(first).with_common_features([first, *others]) if same else [first, *others]

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
        found = self._aligned[0].preparation
        return found if self._scale["transform"] == "none" else {**(found or {}), **self._scale}

    @cached_property
    def _scale(self) -> Preparation:
        """The scale of these features."""
        scale = self._aligned[0].usual_scale(self._aligned)[0] if self.scale is None else self.scale
        if scale["transform"] == "none":
            return {"transform": "none"}
        if "linear" not in scale:
            # The top of their range is as far from 0 as on the scale.
            spans, change = self._aligned[0].scatter, transformer_of(scale["transform"]).transform
            units = {name: span / float(np.ptp(change([[0.0], [span]]))) for name, span in spans.items()}
            scale = scale | {"linear": units}
        known = self.feature_names or ()
        by_name = {
            setting: {name: scale[setting][name] for name in known if name in scale.get(setting, {})}
            for setting in ("linear", "scales")
        }
        used = {name: values for name, values in by_name.items() if values}
        by_channel: Preparation = {"scales": {}} if scale["transform"] == BY_CHANNEL else {}
        return {"transform": scale["transform"], **by_channel, **used}

    def scale_note(self) -> str | None:
        """Return which scales the files decided for; None if somebody else did."""
        return self._aligned[0].usual_scale(self._aligned)[1] if self.scale is None else None

    def remarks(self) -> list[ArgumentWarning]:
        """Return notes on values that were read as missing."""
        return [note for reader in self._aligned for note in reader.remarks()]

    def _with(self, readers: Iterable[Reader], **changes: Any) -> Self:
        changes = {"precision": None, "cached": {}, **changes}
        return replace(self, readers=dict(zip(self.readers, readers, strict=True)), **changes)

    def compensated(self, wanted: bool | str) -> Self:
        """Return the rows with or without compensation; 'auto' compensates files that have a matrix."""
        return self._with(reader.compensated(wanted) for reader in self.readers.values())

    def with_features(self, columns: Sequence[int]) -> Self:
        """Return the rows with some features, given by index, in the same blocks."""
        return self._with((reader.with_features(columns) for reader in self._aligned), precision=self.dtype)

    def select(self, names: Sequence[str]) -> Self:
        """Return the rows with the features that have these names, in this order."""
        return self._with(reader.select(names) for reader in self.readers.values())

    def encoded(self, columns: Mapping[str, Any], writing: Mapping[str, Any] | None = None) -> Self:
        """Return the rows with columns of known kinds encoded; see `Reader.encoded`."""
        return self._with(reader.encoded(columns, writing) for reader in self.readers.values())

    def chosen(self, columns: Sequence[int | str]) -> Self:
        """Return the rows with the features that a user chose: by name if they have names, else by index."""
        if isinstance(columns, str) or not len(columns):
            raise ArgumentError(
                Argument("columns"), f" must be a list of at least one column, got {columns!r}."
            )
        if len(set(columns)) < len(columns):
            raise ArgumentError(Argument("columns"), f" must not repeat a column, got {list(columns)}.")
        if self.first.named:
            if not all(isinstance(name, str) for name in columns):
                raise ValueError(f"Columns of {self.name} are chosen by name, got {list(columns)}.")
            return self.select([str(name) for name in columns])
        for column in columns:
            if not isinstance(column, (int, np.integer)) or not 0 <= column < self.n_features:
                there = f" has {column!r}, but {self.name} has columns 0 to {self.n_features - 1}."
                raise ArgumentError(Argument("columns"), there)
        return self.with_features([int(column) for column in columns])

    # ------------------------------------------------------------ labels and weights

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.by_file or self.label is not None or self.labels is not None

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: an array, its file, or the name of a column that all tables have."""
        if not self._is_column(y):
            values = self._for_each_row(plain_labels(y), "labels", "labels")
            return replace(self, labels=values, by_file=False)
        rule = "labels must be whole numbers, strings or booleans"
        types = self._types_of(y, ("boolean", "number", "text"), rule)
        (first, one), *others = types.items()
        for other, type_ in others:
            if kind_of(type_) != kind_of(one):
                raise ValueError(
                    f"Labels differ in kind: column {y!r} is {one} in {first} and {type_} in {other}."
                )
        texts = [reader.label_texts(y) for reader in self.readers.values()]  # type: ignore[attr-defined]
        return replace(
            self,
            label=y,
            labels=None,
            by_file=False,
            label_texts=None if None in texts else frozenset().union(*texts),
            cached={},
        )

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights, given like labels."""
        refuse_masked_weights(weights)
        if self._is_column(weights):
            self._types_of(weights, NUMERIC, "weights must be numbers")
            return replace(self, weight=weights, weights=None, cached={})
        values = self._for_each_row(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights must be numbers.")
        return replace(self, weights=values)

    def _is_column(self, values: Any) -> bool:
        """Return whether labels or weights are given as the name of a column."""
        return isinstance(values, str) and all(reader.is_table for reader in self.readers.values())

    def _types_of(self, column: str, kinds: Sequence[str], rule: str) -> dict[str, Any]:
        """Return the Arrow types of a column by file; raise ValueError unless they are of these kinds."""
        tables: Any = self.readers.values()
        for reader in tables:
            reader.check_present([column])
        types = {reader.name: reader.types[column] for reader in tables}
        for name, type_ in types.items():
            if kind_of(type_) not in kinds:
                raise ValueError(f"Column {column!r} of {name} is of type {type_}; {rule}.")
        return types

    def _for_each_row(self, given: Any, name: str, what: str) -> Values:
        values = values_of(given, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"give {what}, one for each row."
            )
        return values

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights; their columns do not become features."""
        excluded = self.excluded | {self.label, self.weight}
        plain = replace(self, label=None, weight=None, labels=None, weights=None, by_file=False)
        return replace(plain, label_texts=None, excluded=excluded, classes=None, codes={}, cached={})

    def coded(self, classes: np.ndarray) -> Self:
        """Return the rows with labels encoded as indices into `classes` (L,)."""
        # Aligned readers have inferred the kinds of their columns.
        readers = dict(zip(self.readers, self._aligned, strict=True))
        return replace(self, readers=readers, classes=classes, codes={})

    def row_labels(self) -> np.ndarray:
        """Return the label (N,) of each row."""
        if self.by_file:
            return np.repeat(list(self.readers), [reader.n_rows for reader in self.readers.values()])
        with closing(self.blocks()) as blocks:
            return np.concatenate([block.all_labels() for block in blocks])

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
            own = replace(self, readers={name: reader}, labels=labels, weights=weights, cached={}, codes={})
            yield name, own

    @property
    def _opened(self) -> list[Reader | Values]:
        beside = (values for values in (self.labels, self.weights) if values is not None)
        return [*self.readers.values(), *beside]

    def comes_from(self, path: Path) -> bool:
        """Return whether rows, labels or weights are read from this file."""
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
        return read_ahead(self._labelled_blocks())

    @property
    def _is_cached(self) -> bool:
        return sum(len(block.X) for block in self.cached.values()) == self.n_rows

    def _labelled_blocks(self) -> Iterator[LabelledBlock]:
        """Yield blocks with weights and labels; labels are coded if classes are given."""
        # After an interrupted pass, only some blocks have codes.
        no_column = self.labels is not None or sum(map(len, self.codes.values())) == self.n_rows
        files, ends = np.array(list(self.readers)), np.cumsum([r.n_rows for r in self.readers.values()])
        start = 0
        for block in self._read(None if no_column else self.label):
            stop = start + len(block.X)
            if self.weights is not None:
                block = replace(block, weights=self.weights.read(start, stop).astype(np.float64))
            if block.number in self.codes:
                block = replace(block, y=self.codes[block.number], labels=None, names=None)
            elif self.labels is not None:
                block = replace(block, labels=self.labels.read(start, stop), names=None)
            elif self.by_file:
                labels = np.searchsorted(ends, np.arange(start, stop), side="right")
                block = replace(block, labels=labels, names=files)
            if self.has_labels and self.classes is not None and block.number not in self.codes:
                block = block.coded(self.classes)
                assert block.y is not None
                self.codes[block.number] = block.y
            yield block
            start = stop

    def _read(self, label: str | None) -> Iterator[LabelledBlock]:
        """Yield transformed blocks, with the labels of a column if it is given."""
        if self._is_cached and label is None:
            yield from self.cached.values()
            return
        # Only a fit makes several passes, and only a fit sets classes.
        size = self.n_rows * self.n_features * self.dtype.itemsize
        # One file or array without a scale is cheap to read again.
        is_plain = not self.by_file and len(self.readers) == 1 and self._scale["transform"] == "none"
        caches = not is_plain and self.classes is not None and size <= CACHED_BYTES
        for block in self._spanning(label):
            block = self._transformed(block)
            if caches:
                self.cached[block.number] = replace(block, labels=None, names=None)
            yield block

    def _spanning(self, label: str | None) -> Iterator[LabelledBlock]:
        waiting: list[LabelledBlock] = []
        n_waiting, number = 0, 0
        for reader in self._aligned:
            has_value, start = False, 0
            for block in reader.read(self.chunk_rows, label, self.weight):
                has_value |= _check_finite(reader, block, start)
                start += len(block.X)
                if label is not None and self.label_texts is not None:
                    block = replace(block, names=_parse_labels(block.names, self.label_texts, label))
                while len(block.X):
                    n_more = min(self.chunk_rows - n_waiting, len(block.X))
                    waiting.append(block.rows(slice(0, n_more)))
                    block = block.rows(slice(n_more, None))
                    n_waiting += n_more
                    if n_waiting == self.chunk_rows:
                        yield self._merged(waiting, number)
                        waiting, n_waiting, number = [], 0, number + 1
            # Single rows may have no value, but a sample must have some.
            if self.by_file and not has_value:
                raise ValueError(f"{reader.name} has no value: all features of all its rows are NaN.")
        if waiting:
            yield self._merged(waiting, number)

    def _merged(self, blocks: list[LabelledBlock], number: int) -> LabelledBlock:
        first = blocks[0]
        if len(blocks) == 1:
            return replace(first, X=first.X.astype(self.dtype, copy=False), number=number)
        X = np.concatenate([block.X for block in blocks]).astype(self.dtype, copy=False)
        labels = None if first.labels is None else np.concatenate([block.all_labels() for block in blocks])
        weights = [block.weights for block in blocks if block.weights is not None]
        return LabelledBlock(X, None, np.concatenate(weights) if weights else None, number, labels)

    def _transformed(self, block: LabelledBlock) -> LabelledBlock:
        if self._scale["transform"] == "none":
            return block
        places = {name: feature for feature, name in enumerate(self.feature_names or ())}
        return replace(block, X=rescaled(block.X, "transform", self._scale, places, self._aligned[0].numeric))


def _parse_labels(texts: np.ndarray | None, all_texts: frozenset[str], column: str) -> np.ndarray:
    """Return the labels (C,) of texts (C,), None for missing ones, given all texts of the column."""
    assert texts is not None  # columns of text files have names
    parse = label_parser(all_texts, column)
    labels = [None if text is None else parse(text) for text in texts.tolist()]
    return np.array(labels, dtype=object if None in labels else None if labels else "<U1")


def read_ahead(blocks: Iterator[LabelledBlock]) -> Generator[LabelledBlock, None, None]:
    """Yield blocks while a thread reads the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="skmix-reader") as pool:
        following = pool.submit(next, blocks, None)
        try:
            while (block := following.result()) is not None:
                following = pool.submit(next, blocks, None)
                yield block
        finally:
            following.cancel()


def _check_finite(reader: Reader, block: LabelledBlock, start: int) -> bool:
    """Refuse infinite values; return whether any value is not NaN. The block begins at row `start`."""
    # A finite sum proves that all values are finite, and is cheap.
    with np.errstate(all="ignore"):
        if np.isfinite(block.X.sum()):
            return True
    infinite = np.argwhere(np.isinf(block.X))
    if len(infinite):
        row, column = infinite[0].tolist()
        name = column if reader.feature_names is None else reader.feature_names[column]
        what = f"has an infinite value: feature {name!r}, row {row + start}, counted from 0."
        problem = f"{reader.name} {what} NaN marks missing values; remove infinite ones."
        raise ColumnError(problem, column=str(name), is_feature=True)
    return not np.isnan(block.X).all()


def prepare(source: Source, preparation: Preparation | None, names: Sequence[str] | None) -> Source:
    """Return rows with the features of a model; prepare those of files as the model's fit did.

    `preparation` is the one that the model keeps, and `names` are its feature names, if it has any. Raise
    ValueError if scale or compensation of the rows differ from those of the fit, or if the model keeps no
    preparation.
    """
    automatic = source.automatic
    if "transform" in automatic and preparation is not None:
        # The scale of the model replaces the default scale of the files.
        scale = {name: preparation[name] for name in ("transform", "scales") if name in preparation}
        source = replace(source, scale=scale | {"linear": preparation.get("linear", {})}, cached={})
    elif source.scale is None:
        raise ArgumentError(
            "the model does not say on which scale it was fitted: choose that scale with ",
            Argument("transform", wording="open_rows(..., transform=...)"),
            ".",
        )
    columns = (preparation or {}).get("columns") or dict.fromkeys(names if names is not None else ())
    if columns and (source.first.named or any(columns.values())):
        source = source.encoded(columns, writing_of(preparation))
    if preparation is None:
        return source
    if "compensate" in automatic:
        source = source.compensated(preparation.get("compensate", False))
    if source.scale is not None and "linear" not in source.scale:
        source = replace(source, scale=source.scale | {"linear": preparation.get("linear", {})})
    opened = preparation | {"linear": {}} | source.preparation if source.preparation else preparation
    is_same = same_scale(opened["transform"], preparation["transform"])
    if not is_same or any(opened.get(name, {}) != preparation.get(name, {}) for name in ("linear", "scales")):
        raise ValueError(
            f"{source.name}: opened on the scale {scale_in_words(opened)}, but the fit was on "
            f"{scale_in_words(preparation)}: leave transform out, and the model applies the scale of its fit."
        )
    if opened.get("compensate", False) != preparation.get("compensate", False):
        raise ValueError(
            f"{source.name} was opened {'with' if opened['compensate'] else 'without'} compensation for "
            "spill-over, unlike the rows of the fit: leave compensate out, and the model does as its fit did."
        )
    return replace(source, automatic=frozenset())
