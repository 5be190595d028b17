"""Several sources joined to one: the files of a study, each of which is a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.compute.blocks import Block
from .arrow import kind_of
from .preparation import Preparation, check_scale_known, scale_in_words, scale_of, transformer_of
from .sources import FcsRows, Source, labels_in
from .tables import ArrowRows, with_common_kinds

# Rows of a fit that need no more bytes are kept in memory after its first pass.
HELD_BYTES = 1 << 28
_COLUMNS = Argument("columns", wording="open_rows(..., columns=[...])")
# What is said of a file, after its name.
NO_VALUE = "has no value: all features of all its rows are NaN."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JoinedRows(Source):
    """The rows of several sources, on another scale if there is a transformer; a block may span sources."""

    parts: dict[str, Source]
    # Whether the label of a row is the name of its part.
    by_file: bool
    # Scale of the features that are numbers, Arcsinh or Logicle; None for values as they are.
    transform: Any = None
    # Blocks that have been read, by number, without their labels.
    cached: dict[int, Block] = field(default_factory=dict)

    @property
    def usual_scale(self) -> str | None:
        return next(iter(self.parts.values())).usual_scale

    @property
    def preparation(self) -> Preparation | None:
        found = self._aligned[0].preparation
        if self.transform is None:
            return found
        return {**(found or {}), "transform": scale_of(self.transform)}

    def compensated(self, wanted: bool | str) -> Self:
        parts = {name: part.compensated(wanted) for name, part in self.parts.items()}
        return replace(self, parts=parts, cached={})

    @cached_property
    def _aligned(self) -> list[Source]:
        """The parts with the same features in the same order."""
        first, *others = self.parts.values()
        for part in others:
            for difference in _differences(part, first):
                raise ArgumentError("Files disagree: ", *difference)
        names = first.column_names
        parts = [
            part if part.column_names == names else part.select(names or []) for part in self.parts.values()
        ]
        tables = [part for part in parts if isinstance(part, ArrowRows)]
        return [*with_common_kinds(tables)] if 1 < len(tables) == len(parts) else parts

    @property
    def column_names(self) -> list[str] | None:
        return self._aligned[0].column_names

    @property
    def numeric(self) -> list[bool] | None:
        return self._aligned[0].numeric

    def remarks(self) -> list[ArgumentWarning]:
        return [note for part in self._aligned for note in part.remarks()]

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return self._aligned[0].feature_names

    @property
    def n_features(self) -> int:
        return self._aligned[0].n_features

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows before they are transformed, float64 or float32."""
        return np.result_type(*(part.dtype for part in self._aligned))

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.by_file or super().has_labels

    def take(self, columns: Sequence[int]) -> Self:
        parts = (part.take(columns) for part in self._aligned)
        scale = self.transform
        if scale is not None:
            # Categories have no scale: it has parameters for the numbers alone.
            numeric = self.numeric or [True] * self.n_features
            numbers = np.cumsum(numeric) - 1
            scale = transformer_of(scale_of(scale, [numbers[each] for each in columns if numeric[each]]))
        return replace(self, parts=dict(zip(self.parts, parts, strict=True)), transform=scale, cached={})

    def select(self, names: Sequence[str]) -> Self:
        # The default scale is the same for every channel.
        if self.transform is None or "transform" in self.automatic:
            return replace(
                self, parts={name: part.select(names) for name, part in self.parts.items()}, cached={}
            )
        # Parameters of the scale belong to channels by their position.
        known = self.feature_names or []
        missing = [name for name in names if name not in known]
        if missing:
            raise ArgumentError(
                f"{self.name} was opened with the features {known[:20]}, without {missing[0]!r}. Choose them "
                "with ",
                _COLUMNS,
                ".",
            )
        return self.take([known.index(name) for name in names])

    def encoded(self, columns: Mapping[str, Any], missing: Sequence[str] = ()) -> Self:
        if self.transform is not None and "transform" not in self.automatic:
            return super().encoded(columns, missing)
        parts = {name: part.encoded(columns, missing) for name, part in self.parts.items()}
        return replace(self, parts=parts, cached={})

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: a column of the same kind in all parts, or other values."""
        if not self._has_column(y):
            return replace(super().labelled(y), by_file=False)
        parts = {name: part.labelled(y) for name, part in self.parts.items()}
        (first, one), *others = ((part.name, part.table.types[y]) for part in parts.values())  # type: ignore[attr-defined]
        for other, type_ in others:
            if kind_of(type_) != kind_of(one):
                raise ValueError(
                    f"Labels differ in kind: column {y!r} is {one} in {first} and {type_} in {other}."
                )
        # Labels of text files are of the kind that all of them have together.
        words = [part.words for part in parts.values()]  # type: ignore[attr-defined]
        if None not in words:
            parts = {name: replace(part, words=frozenset().union(*words)) for name, part in parts.items()}  # type: ignore[call-arg]
        return replace(self, parts=parts, cached={}, label=y, labels=None, by_file=False)

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights: a column of all parts, or other values."""
        if not self._has_column(weights):
            return super().weighted(weights)
        parts = {name: part.weighted(weights) for name, part in self.parts.items()}
        return replace(self, parts=parts, cached={}, weight=weights, weights=None)

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights."""
        parts = {name: part.unlabelled() for name, part in self.parts.items()}
        return replace(super().unlabelled(), by_file=False, parts=parts, cached={})

    def _has_column(self, values: Any) -> bool:
        """Return whether labels or weights are given as the name of a column."""
        return isinstance(values, str) and all(isinstance(part, ArrowRows) for part in self.parts.values())

    def comes_from(self, path: Path) -> bool:
        """Return whether a path is one of the files that have the rows, their labels or weights."""
        return super().comes_from(path) or any(part.comes_from(path) for part in self.parts.values())

    def each(self) -> Iterator[tuple[str, Self]]:
        """Yield the name of each part, and its rows."""
        for name, part in self.parts.items():
            yield name, replace(self, parts={name: part}, cached={}, n_rows=part.n_rows, codes={})

    def row_labels(self) -> np.ndarray:
        """Return the label (N,) of each row."""
        if not self.by_file:
            return super().row_labels()
        return np.repeat(list(self.parts), [part.n_rows for part in self.parts.values()])

    def _check_unchanged(self) -> None:
        # Rows in memory no longer depend on their files.
        if not self._is_cached:
            super()._check_unchanged()

    @property
    def _is_cached(self) -> bool:
        return sum(len(block.X) for block in self.cached.values()) == self.n_rows

    def read(self, *, labels: bool) -> Iterator[Block]:
        names = np.array(list(self.parts)) if labels and self.by_file else None
        if self._is_cached and (names is not None or not labels or self.label is None):
            ends = np.cumsum([part.n_rows for part in self.parts.values()])
            start = 0
            for block in self.cached.values():
                rows = np.arange(start, start + len(block.X))
                start += len(block.X)
                y = None if names is None else np.searchsorted(ends, rows, side="right")
                yield replace(block, y=y, names=names)
            return
        # Only a fit, which has classes, makes several passes.
        size = self.n_rows * self._aligned[0].n_features * self.dtype.itemsize
        holds = self.classes is not None and size <= HELD_BYTES
        for block in self._spanning(labels):
            block = self._transformed(block)
            if holds:
                self.cached[block.number] = replace(block, y=None)
            yield replace(block, names=names)

    def _spanning(self, labels: bool) -> Iterator[Block]:
        """Yield blocks of `chunk_rows` rows; labels are numbers of parts, or as parts have them."""
        waiting: list[Block] = []
        n_waiting, number = 0, 0
        for index, part in enumerate(self._aligned):
            has_value = False
            for block in part.read(labels=labels):
                has_value |= _check_finite(part, block)
                y = None if block.y is None else labels_in(block)
                y = np.full(len(block.X), index) if labels and self.by_file else y
                rest = replace(block, y=y, names=None)
                while len(rest.X):
                    n_more = min(self.chunk_rows - n_waiting, len(rest.X))
                    waiting.append(rest.rows(slice(0, n_more)))
                    rest = rest.rows(slice(n_more, None))
                    n_waiting += n_more
                    if n_waiting == self.chunk_rows:
                        yield self._merged(waiting, number)
                        waiting, n_waiting, number = [], 0, number + 1
            # A row to predict may have no value, but nothing can be said about a sample without any.
            if self.by_file and not has_value:
                raise ValueError(f"{part.name} {NO_VALUE}")
        if waiting:
            yield self._merged(waiting, number)

    def _merged(self, blocks: list[Block], number: int) -> Block:
        def joined(parts: list[Any]) -> Any:
            return parts[0] if parts[0] is None or len(parts) == 1 else np.concatenate(parts)

        X = joined([block.X for block in blocks]).astype(self.dtype, copy=False)
        return Block(X, joined([b.y for b in blocks]), joined([b.weights for b in blocks]), number)

    def _transformed(self, block: Block) -> Block:
        if self.transform is None:
            return block
        numeric = self._aligned[0].numeric
        given = block.X if numeric is None else block.X[:, numeric]
        X = self.transform.transform(given)
        if numeric is not None:
            given, X = X, block.X.copy()
            X[:, numeric] = given
        return replace(block, X=X)


def joined(source: Source) -> JoinedRows:
    """Return rows with their labels and weights, as those of one part, which can be transformed."""
    if isinstance(source, JoinedRows):
        return source
    own = {each.name: getattr(source, each.name) for each in fields(Source)}
    return JoinedRows(**own, parts={"": source}, by_file=False)


def prepare(source: Source, own: Preparation | None, names: Sequence[str] | None) -> Source:
    """Return rows with the features of a model and, where they come from files, prepared as for its fit.

    `own` is the preparation that the model keeps, and `names` are those of its features, if it has any. Rows
    in memory are taken as they are. Raises ValueError if rows were opened in another way than those of the
    fit, or if the model does not say how these were.
    """
    automatic = source.automatic
    if "transform" in automatic:
        check_scale_known(own, source.usual_scale)
    if "transform" in automatic and own is not None and isinstance(source, JoinedRows):
        # The scale of the model replaces the default one of the files.
        source = replace(source, transform=None, cached={})
    columns = (own or {}).get("columns") or dict.fromkeys(names if names is not None else ())
    if columns and (source.named or any(columns.values())):
        source = source.encoded(columns, (own or {}).get("missing", ()))
    if own is None:
        return source
    if "compensate" in automatic:
        source = source.compensated(own.get("compensate", False))
    if "transform" in automatic and own["transform"] != "none":
        source = replace(joined(source), transform=transformer_of(own["transform"]))
    found = own | (source.preparation or {})
    if found["transform"] != own["transform"]:
        raise ValueError(
            f"{source.name} was opened on the scale {scale_in_words(found['transform'])}, but the fit was on "
            f"{scale_in_words(own['transform'])}: leave transform out, and the model applies its own."
        )
    if found.get("compensate", False) != own.get("compensate", False):
        raise ValueError(
            f"{source.name} was opened {'with' if found['compensate'] else 'without'} compensation for "
            "spill-over, unlike the rows of the fit: leave compensate out, and the model applies its own."
        )
    return replace(source, automatic=frozenset())


def _differences(part: Source, other: Source) -> Iterator[tuple[str, ...]]:
    """Yield how the features of two parts differ, as parts of a message."""
    own, others = part.column_names, other.column_names
    if own is None or others is None:
        if part.named != other.named:
            has = "names" if part.named else "no names"
            yield (f"{part.name} has {has} of features, unlike {other.name}.",)
        elif part.n_features != other.n_features:
            yield (f"{part.name} has {part.n_features} features, and {other.name} has {other.n_features}.",)
        return
    what = "channel" if isinstance(part, FcsRows) else "column"
    advice = " Choose the features with ", _COLUMNS, "."
    for name in (*others, *own):
        if name not in own:
            yield f"{part.name} has no {what} {name!r}, and {other.name} has one.", *advice
        elif name not in others:
            yield f"{part.name} has a {what} {name!r}, and {other.name} has none.", *advice
    if isinstance(part, ArrowRows) and isinstance(other, ArrowRows) and part.given is None:
        for name in own:
            if (part.found[name] is None) != (other.found[name] is None):
                holds = [each.holds_text(name) for each in (part, other)]
                if None not in holds:
                    words = ["text" if text else "numbers" for text in holds]
                    yield (
                        f"column {name!r} holds {words[0]} in {part.name} and {words[1]} in {other.name}.",
                    )
    if isinstance(part, FcsRows) and isinstance(other, FcsRows):
        if part.compensate != other.compensate:
            has_one, lacks = (part, other) if part.compensate else (other, part)
            yield (
                f"{has_one.name} has a spill-over matrix, and {lacks.name} has none: ",
                Argument("compensate", False),
                " leaves both as they are.",
            )
        markers = dict(zip(others, other.markers, strict=True))
        for name, mine in zip(own, part.markers, strict=True):
            theirs = markers[name]
            # Some machines write how long a file took beside its time.
            if mine and theirs and mine.casefold() != theirs.casefold() and name.casefold() != "time":
                yield (f"channel {name!r} is marker {theirs!r} in {other.name} and {mine!r} in {part.name}.",)


def _check_finite(part: Source, block: Block) -> bool:
    """Refuse infinite values, and return whether there is any value."""
    # A sum is finite when all values are, and costs one read.
    with np.errstate(all="ignore"):
        if np.isfinite(block.X.sum()):
            return True
    infinite = np.argwhere(np.isinf(block.X))
    if len(infinite):
        row, column = infinite[0].tolist()
        name = column if part.feature_names is None else part.feature_names[column]
        raise ValueError(
            f"{part.name} has an infinite value: feature {name!r}, row "
            f"{row + block.number * part.chunk_rows}, "
            "counted from 0. NaN marks missing values; remove infinite ones."
        )
    return not np.isnan(block.X).all()
