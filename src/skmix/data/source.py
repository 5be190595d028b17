"""Row sources: files and arrays that are read in blocks, in the same order in every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import shortened
from ..engine.records import FloatArray
from ..engine.rows.blocks import Answer
from .amplification import usual_scale
from .arrow import NUMERIC
from .beside import for_each_row, labels_in_column, types_of
from .blocks import LabelledBlock, read_ahead
from .contents import check_same_kinds, common_kinds
from .encoding import Kind, are_numbers, feature_names, features_by_column
from .events import FcsReader, scatter_units
from .labels import encode, label_parser, plain_labels
from .missing import refuse_masked_weights
from .read import Column, Encoding, Reader, Rows, Stamp, check_finite, check_same_columns, open_array, stamp
from .recipe import BY_CHANNEL, UNPREPARED, Preparation, Recipe
from .tables import TableReader, naming

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
    # The columns that become features, by name or index; None for all but those of labels and weights.
    columns: list[Column] | None = None
    # Kinds of these columns and notes on them, if a model or an earlier pass knows them.
    known: tuple[dict[Any, Kind], list[ArgumentWarning]] | None = None
    # Indices of the features to keep; None for all.
    features: list[int] | None = None
    # Settings left open by the user: for files and data frames, a model takes them from its preparation.
    automatic: frozenset[str] = frozenset()
    # `transform`, `linear` and `scales` of a preparation; without `linear`, scatter channels are linear. None
    # lets the files decide.
    scale: Preparation | None = field(default_factory=UNPREPARED.copy)
    # Columns of tables with labels and weights.
    label: str | None = None
    weight: str | None = None
    # Labels (N,), or indices of labels among names (C,); and weights (N,) that are no column.
    labels: np.ndarray | None = None
    label_names: np.ndarray | None = None
    weights: np.ndarray | None = None
    # Distinct labels of text files, as text: all of them together decide whether labels are numbers.
    label_texts: frozenset[str] | None = None
    # Files of labels and weights, when they were opened.
    beside: dict[str, dict[Path, Stamp]] = field(default_factory=dict)
    # Columns that held labels before; they do not become features.
    excluded: frozenset[str | None] = frozenset()
    # Rows with categories that a model does not know, by column and category.
    unknown: dict[str, Counter[str]] = field(default_factory=dict)
    # Whether a fit has checked all values in its first pass, and the class codes (N,) that labels became.
    is_checked: bool = False
    codes: np.ndarray | None = None

    # This process works on the blocks.
    runs_elsewhere: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    # ------------------------------------------------------------ columns

    @property
    def first(self) -> Any:
        """The first reader, which says how features are named and scaled."""
        return next(iter(self.readers.values()))

    @cached_property
    def _known(self) -> tuple[dict[Any, Kind], list[ArgumentWarning]]:
        """The kinds of the columns, which all files have, and notes on them."""
        readers, aside = list(self.readers.values()), {self.label, self.weight, *self.excluded}
        columns = [self.columns or [c for c in reader.features if c not in aside] for reader in readers]
        for reader, of_reader in zip(readers[1:], columns[1:], strict=True):
            check_same_columns(reader, readers[0], of_reader, columns[0])
            reader.check_alike(readers[0], columns[0])
        if self.known is not None:
            return self.known
        tables = [reader for reader in readers if isinstance(reader, TableReader)]
        if not tables:
            return dict.fromkeys(columns[0]), []
        contents = [table.contents([str(column) for column in columns[0]]) for table in tables]
        for table, what in zip(tables[1:], contents[1:], strict=True):
            check_same_kinds(table, tables[0], what, contents[0])
        if len(readers) > 1:
            return common_kinds(contents)
        with naming(tables[0].name, tables[0].notation):
            return common_kinds(contents)

    @property
    def kinds(self) -> dict[Any, Kind]:
        """Kinds of the columns that features are made of, by name or index; see `skmix.data.encoding`."""
        return self._known[0]

    def remarks(self) -> list[ArgumentWarning]:
        """Notes on columns and rows that are left out, and on values that were read as missing."""
        unknown = [
            ArgumentWarning(
                f"column {name!r} has categories that the model does not know, in {counts.total()} rows: "
                f"{', '.join(map(shortened, list(counts)[:5]))}; they count as missing values"
            )
            for name, counts in self.unknown.items()
        ]
        return [*self._known[1], *unknown, *(n for r in self.readers.values() for n in r.remarks())]

    def select(self, names: Sequence[Column]) -> Self:
        """The rows with the features of these columns, in this order."""
        for reader in self.readers.values():
            reader.check(names)
        return replace(self, columns=list(names), known=None, features=None)

    def chosen(self, columns: Sequence[int | str]) -> Self:
        """The rows with the features that a user chose: by name if they have names, else by index."""
        argument = Argument("columns")
        if isinstance(columns, str) or not len(columns):
            raise ArgumentError(argument, f" must be a list of at least one column, got {columns!r}.")
        if len(set(columns)) < len(columns):
            raise ArgumentError(argument, f" must not repeat a column, got {list(columns)}.")
        if self.first.named and not all(isinstance(name, str) for name in columns):
            raise ValueError(f"Columns of {self.name} are chosen by name, got {list(columns)}.")
        return self.select(columns)

    def encoded(self, columns: Mapping[Any, Kind], writing: Mapping[str, Any] | None = None) -> Self:
        """The rows with columns of known kinds; `writing` says how the tables of the fit were written."""
        readers = {name: reader.encoded(columns, writing or {}) for name, reader in self.readers.items()}
        known: tuple[dict[Any, Kind], list[ArgumentWarning]] = dict(columns), []
        return replace(self, readers=readers, columns=list(columns), known=known, features=None, unknown={})

    def compensated(self, wanted: bool | str) -> Self:
        """The rows with or without compensation; 'auto' compensates files that have a matrix."""
        readers = {name: reader.compensated(wanted) for name, reader in self.readers.items()}
        return replace(self, readers=readers)

    # ------------------------------------------------------------ features

    @property
    def n_rows(self) -> int:
        """Number N of rows."""
        return sum(reader.n_rows for reader in self.readers.values())

    @cached_property
    def n_features(self) -> int:
        """Number M of features."""
        return len(are_numbers(self.kinds)) if self.features is None else len(self.features)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.n_rows, self.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        if not self.first.named:
            return None
        names = feature_names(self.kinds)
        return names if self.features is None else [names[feature] for feature in self.features]

    @property
    def numeric(self) -> list[bool]:
        """Whether each feature (M,) is a number, and not a category or a date."""
        numeric = are_numbers(self.kinds)
        return numeric if self.features is None else [numeric[feature] for feature in self.features]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32; taking some of the features does not change it."""
        return np.result_type(*(reader.dtype(self.kinds) for reader in self.readers.values()))

    def with_features(self, columns: Sequence[int]) -> Self:
        """The rows with some features, given by index, in the same blocks."""
        features = range(self.n_features) if self.features is None else self.features
        return replace(self, known=self._known, features=[features[column] for column in columns])

    @property
    def preparation(self) -> Preparation | None:
        """How values are transformed and encoded while they are read; None if they are not."""
        of_reader: Preparation | None = self.first.preparation(self.kinds)
        return of_reader if self._scale["transform"] == "none" else {**(of_reader or {}), **self._scale}

    @cached_property
    def _scale(self) -> Preparation:
        """The scale of these features."""
        scale, names = self._usual_scale[0] if self.scale is None else self.scale, self.feature_names or ()
        if scale["transform"] == "none":
            return {"transform": "none"}
        if "linear" not in scale:
            is_fcs = isinstance(self.first, FcsReader)
            units = scatter_units(self.first, names, scale["transform"]) if is_fcs else {}
            scale = scale | {"linear": units}
        kept: Preparation = {"transform": scale["transform"]}
        for setting in ("linear", "scales"):
            by_name = {name: scale[setting][name] for name in names if name in scale.get(setting, {})}
            if by_name or (setting == "scales" and scale["transform"] == BY_CHANNEL):
                kept[setting] = by_name
        return kept

    @property
    def _usual_scale(self) -> tuple[Preparation, str]:
        files = [reader.file for reader in self.readers.values() if isinstance(reader, FcsReader)]
        return usual_scale(files, list(self.kinds))

    def scale_note(self) -> str | None:
        """Which scales the files decided for; None if somebody else did."""
        return self._usual_scale[1] if self.scale is None else None

    @cached_property
    def _reading(self) -> tuple[Recipe, list[int] | None]:
        """The recipe of the columns to read, and the places of the features among theirs; None for all."""
        if self.features is None:
            return Recipe(self.kinds, self._scale), None
        by_column = zip(self.kinds, features_by_column(self.kinds), strict=True)
        needed = {column: numbers for column, numbers in by_column if {*numbers} & {*self.features}}
        places = [feature for numbers in needed.values() for feature in numbers]
        recipe = Recipe({column: self.kinds[column] for column in needed}, self._scale)
        return recipe, [places.index(feature) for feature in self.features]

    # ------------------------------------------------------------ labels and weights

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels, or class codes instead."""
        return self.labels is not None or self.codes is not None

    def labelled(self, y: Any) -> Self:
        """The rows with labels: an array, its file, or the name of a column that all tables have."""
        plain = replace(self, label=None, label_names=None, label_texts=None, by_file=False)
        if not self._is_column(y):
            labels, beside = for_each_row(plain_labels(y), "labels", "labels", self.name, self.n_rows)
            excluded = self.excluded | {self.label}
            return replace(plain, labels=labels, beside=self.beside | {"label": beside}, excluded=excluded)
        labels, names, texts = labels_in_column(list(self.readers.values()), y)
        plain = replace(plain, label_names=names, label_texts=texts, beside=self.beside | {"label": {}})
        return replace(plain, label=y, labels=labels)

    def labelled_by_file(self) -> Self:
        """The rows with the names of their files as labels."""
        sizes = [reader.n_rows for reader in self.readers.values()]
        numbers = np.arange(len(sizes), dtype=np.min_scalar_type(len(sizes)))
        names = np.array(list(self.readers))
        return replace(self, labels=np.repeat(numbers, sizes), label_names=names, by_file=True)

    def weighted(self, weights: Any) -> Self:
        """The rows with weights, given like labels."""
        refuse_masked_weights(weights)
        if self._is_column(weights):
            types_of(list(self.readers.values()), weights, NUMERIC, "weights must be numbers")
            return replace(self, weight=weights, weights=None, beside=self.beside | {"weight": {}})
        values, beside = for_each_row(weights, "sample_weight", "weights", self.name, self.n_rows)
        return replace(self, weights=values, beside=self.beside | {"weight": beside})

    def _is_column(self, values: Any) -> bool:
        """Whether labels or weights are given as the name of a column."""
        return isinstance(values, str) and all(reader.is_table for reader in self.readers.values())

    def unlabelled(self) -> Self:
        """The rows without labels and weights; their columns do not become features."""
        excluded = self.excluded | {self.label, self.weight}
        plain = replace(self, label=None, labels=None, label_names=None, label_texts=None, by_file=False)
        return replace(plain, weight=None, weights=None, codes=None, excluded=excluded, beside={})

    @cached_property
    def _names(self) -> np.ndarray | None:
        """The labels (C,) that `labels` are indices into, None for missing ones; texts are parsed."""
        if self.label_texts is None or self.label_names is None or self.label is None:
            return self.label_names
        parse = label_parser(self.label_texts, self.label)
        labels = [None if text is None else parse(text) for text in self.label_names.tolist()]
        return np.array(labels, dtype=object if None in labels else None if labels else "<U1")

    def row_labels(self) -> np.ndarray:
        """The label (N,) of each row."""
        assert self.labels is not None
        self._check_unchanged()
        return self.labels if self._names is None else self._names[self.labels]

    # ------------------------------------------------------------ the passes of a fit

    def held(self) -> Source:
        """The same blocks in memory, if they are slow to read again and there is room; else these rows."""
        is_slow = self.by_file or len(self.readers) > 1 or self._scale["transform"] != "none"
        if not is_slow or self.n_rows * self.n_features * self.dtype.itemsize > HELD_BYTES:
            return self
        X, weights, start = np.empty(self.shape, dtype=self.dtype), [], 0
        with closing(self.blocks()) as blocks:
            for block in blocks:
                X[start : start + len(block.X)] = block.X
                start += len(block.X)
                weights += [] if block.weights is None else [block.weights]
        names, more = self.feature_names, {"prepared": self.preparation, "place": self.place}
        return Source(
            name=self.name,
            readers={self.name: open_array(X, self.name, names, **more)},
            chunk_rows=self.chunk_rows,
            labels=self.labels,
            label_names=self._names,
            weights=np.concatenate(weights) if weights else None,
            is_checked=True,
        )

    def coded(self, classes: np.ndarray) -> Self:
        """The rows after the first pass of a fit, with class codes: indices into sorted `classes` (L,)."""
        self._check_unchanged()
        codes = None
        if self.labels is not None:
            names = self._names
            codes = encode(self.labels if names is None else names, classes)
            codes = codes if names is None else codes[self.labels]
        return replace(self, known=self._known, is_checked=True, codes=codes)

    # ------------------------------------------------------------ files

    def each(self) -> Iterator[tuple[str, Self]]:
        """Yield the name of each reader, and a source of its rows."""
        first = 0
        for name, reader in self.readers.items():
            part = slice(first, first + reader.n_rows)
            first = part.stop
            labels = None if self.labels is None else self.labels[part]
            weights = None if self.weights is None else self.weights[part]
            yield name, replace(self, readers={name: reader}, labels=labels, weights=weights)

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
        readers = self.readers.values()
        files = {file for stamps in (*(r.stamps for r in readers), *self.beside.values()) for file in stamps}
        files |= {reader.origin for reader in readers if reader.origin is not None}
        return any(file.exists() and path.samefile(file) for file in files)

    def _check_unchanged(self) -> None:
        """Raise ValueError if a file has changed since it was opened."""
        in_memory = {reader.origin for reader in self.readers.values()}
        for stamps in (*(reader.stamps for reader in self.readers.values()), *self.beside.values()):
            for path, before in stamps.items():
                if not path.exists():
                    if path in in_memory:
                        continue
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
        return read_ahead(self._blocks())

    def _blocks(self) -> Iterator[LabelledBlock]:
        """Yield blocks with weights, and with codes or labels."""
        start = 0
        for number, (X, weights) in enumerate(self._equal_parts()):
            part = slice(start, start + len(X))
            start = part.stop
            if self.weights is not None:
                weights = self.weights[part].astype(np.float64)
            if self.codes is not None:
                yield LabelledBlock(X, self.codes[part], weights, number)
            elif self.labels is not None:
                yield LabelledBlock(X, None, weights, number, self.labels[part], self._names)
            else:
                yield LabelledBlock(X, None, weights, number)

    def _equal_parts(self) -> Iterator[Rows]:
        """Yield `chunk_rows` rows at a time, which may span files; the last time, they may be fewer."""
        parts: list[Rows] = []
        n_missing = self.chunk_rows
        for X, weights in self.rows():
            first = 0
            while first < len(X):
                part = slice(first, first + n_missing)
                parts.append((X[part], None if weights is None else weights[part]))
                first += len(parts[-1][0])
                n_missing -= len(parts[-1][0])
                if not n_missing:
                    yield _joined(parts)
                    parts, n_missing = [], self.chunk_rows
        if parts:
            yield _joined(parts)

    def rows(self) -> Iterator[Rows]:
        """Yield the rows of all files on their scale, with weights if a column has them, as they are read."""
        recipe, places = self._reading
        weight = self.weight if self.weights is None else None
        encoding = Encoding(recipe.kinds, self.dtype, weight, self.unknown)
        for reader in self.readers.values():
            has_value, start = self.is_checked, 0
            for X, weights in reader.read(self.chunk_rows, encoding):
                if not self.is_checked:
                    has_value |= check_finite(reader.name, X, recipe.names, start)
                    start += len(X)
                X = recipe.to_scale(X)
                yield X if places is None else X[:, places], weights
            # Single rows may have no value, but a sample must have some.
            if self.by_file and not has_value:
                raise ValueError(f"{reader.name} has no value: all features of all its rows are NaN.")


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    X = np.concatenate([X for X, _ in parts])
    weights: list[FloatArray] = [weights for _, weights in parts if weights is not None]
    return X, np.concatenate(weights) if weights else None
