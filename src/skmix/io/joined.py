"""Several sources joined to one: the files of a study, each of which is a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.compute.blocks import Block
from .arrow import kind_of
from .preparation import OTHER, Preparation, check_scale_known, scale_in_words, scale_of, transformer_of
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
    grouped: bool
    # An object with a method `transform`, applied to all features of the parts, or None; and which of the
    # features are taken after it, None for all.
    transform: Any = None
    columns: list[int] | None = None
    # Blocks that have been read, by number, without their labels.
    held: dict[int, Block] = field(default_factory=dict)

    @property
    def usual_scale(self) -> str | None:
        return next(iter(self.parts.values())).usual_scale

    @property
    def preparation(self) -> Preparation | None:
        found = self._aligned[0].preparation
        if self.transform is None:
            return found
        return {**(found or {}), "transform": scale_of(self.transform, self.columns)}

    def compensated(self, wanted: bool | str) -> Self:
        parts = {name: part.compensated(wanted) for name, part in self.parts.items()}
        return replace(self, parts=parts, held={})

    @cached_property
    def _aligned(self) -> list[Source]:
        """The parts with the same features in the same order."""
        wrong = next(disagreements(self.parts), None)
        if wrong is not None:
            raise ArgumentError("Files disagree: ", *wrong[1].parts)
        names = _reference(self.parts).column_names
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
        own = self._aligned[0].numeric
        return own if own is None or self.columns is None else [own[column] for column in self.columns]

    def remarks(self) -> list[ArgumentWarning]:
        return [note for part in self._aligned for note in part.remarks()]

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        names = self._aligned[0].feature_names
        return names if names is None or self.columns is None else [names[column] for column in self.columns]

    @property
    def n_features(self) -> int:
        return self._aligned[0].n_features if self.columns is None else len(self.columns)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows before they are transformed, float64 or float32."""
        return np.result_type(*(part.dtype for part in self._aligned))

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.grouped or super().has_labels

    def take(self, columns: Sequence[int]) -> Self:
        if self.transform is None:
            parts = (part.take(columns) for part in self._aligned)
            return replace(self, parts=dict(zip(self.parts, parts, strict=True)), held={})
        own = range(self.n_features) if self.columns is None else self.columns
        return replace(self, columns=[own[column] for column in columns], held={})

    def select(self, names: Sequence[str]) -> Self:
        # The default scale is the same for every channel.
        if self.transform is None or "transform" in self.automatic:
            return replace(
                self, parts={name: part.select(names) for name, part in self.parts.items()}, held={}
            )
        # The transformer knows channels by their position.
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
        return replace(self, parts=parts, held={})

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: a column of the same kind in all parts, or other values."""
        if not self._has_column(y):
            return replace(super().labelled(y), grouped=False)
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
        return replace(self, parts=parts, held={}, label=y, labels=None, grouped=False)

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights: a column of all parts, or other values."""
        if not self._has_column(weights):
            return super().weighted(weights)
        parts = {name: part.weighted(weights) for name, part in self.parts.items()}
        return replace(self, parts=parts, held={}, weight=weights, weights=None)

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights."""
        parts = {name: part.unlabelled() for name, part in self.parts.items()}
        return replace(super().unlabelled(), grouped=False, parts=parts, held={})

    def _has_column(self, values: Any) -> bool:
        """Return whether labels or weights are given as the name of a column."""
        return isinstance(values, str) and all(isinstance(part, ArrowRows) for part in self.parts.values())

    def comes_from(self, path: Path) -> bool:
        """Return whether a path is one of the files that have the rows, their labels or weights."""
        return super().comes_from(path) or any(part.comes_from(path) for part in self.parts.values())

    def each(self) -> Iterator[tuple[str, Self]]:
        """Yield the name of each part, and its rows."""
        for name, part in self.parts.items():
            yield name, replace(self, parts={name: part}, held={}, n_rows=part.n_rows, codes={})

    def row_labels(self) -> np.ndarray:
        """Return the label (N,) of each row."""
        if not self.grouped:
            return super().row_labels()
        return np.repeat(list(self.parts), [part.n_rows for part in self.parts.values()])

    def _check_unchanged(self) -> None:
        # Rows in memory no longer depend on their files.
        if not self._is_held:
            super()._check_unchanged()

    @property
    def _is_held(self) -> bool:
        return sum(len(block.X) for block in self.held.values()) == self.n_rows

    def read(self, *, labels: bool) -> Iterator[Block]:
        names = np.array(list(self.parts)) if labels and self.grouped else None
        if self._is_held and (names is not None or not labels or self.label is None):
            ends = np.cumsum([part.n_rows for part in self.parts.values()])
            start = 0
            for block in self.held.values():
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
                self.held[block.number] = replace(block, y=None)
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
                y = np.full(len(block.X), index) if labels and self.grouped else y
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
            if self.grouped and not has_value:
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
        X = np.asarray(self.transform.transform(given))
        if X.shape != given.shape:
            raise ValueError(
                f"transform must keep the features: it made rows of shape {X.shape} of {given.shape}."
            )
        if numeric is not None:
            # Categories have no scale.
            given, X = X, block.X.astype(np.float64)
            X[:, numeric] = given
        X = X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)
        return replace(block, X=X if self.columns is None else X[:, self.columns])


def joined(source: Source) -> JoinedRows:
    """Return rows with their labels and weights, as those of one part, which can be transformed."""
    if isinstance(source, JoinedRows):
        return source
    own = {each.name: getattr(source, each.name) for each in fields(Source)}
    return JoinedRows(**own, parts={"": source}, grouped=False)


def prepare(source: Source, own: Preparation | None, names: Sequence[str] | None) -> Source:
    """Return rows with the features of a model and, where they come from files, prepared as for its fit.

    `own` is the preparation that the model keeps, and `names` are those of its features, if it has any. Rows
    in memory are taken as they are. Raises ValueError if rows were opened in another way than those of the
    fit, or if the model does not say how these were.
    """
    automatic = source.automatic
    if "transform" in automatic:
        check_scale_known(own, source.usual_scale)
    if "transform" in automatic and own is not None:
        if own["transform"] == OTHER:
            raise ArgumentError(
                f"The model was fitted to rows of a transformer that it does not keep: open {source.name} "
                "by ",
                Argument("transform", wording="open_rows(..., transform=...)"),
                ", as for the fit.",
            )
        if isinstance(source, JoinedRows):
            # The scale that files have by default gives way to that of the model.
            source = replace(source, transform=None, columns=None, held={})
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


def disagreements(parts: Mapping[str, Source]) -> Iterator[tuple[str, ArgumentWarning]]:
    """Yield the parts whose features are not those of most others, and what is wrong with them."""
    most = _reference(parts)
    for group, part in parts.items():
        wrong = next(_differences(part, most), None)
        if wrong is not None:
            yield group, wrong


def _reference(parts: Mapping[str, Source]) -> Source:
    """Return the first part with the features that most parts have."""
    features = {g: _features_of(part) for g, part in parts.items()}
    common = Counter(features.values()).most_common(1)[0][0]
    return next(parts[group] for group, own in features.items() if own == common)


def _features_of(part: Source) -> int | frozenset[Any]:
    """Return the names of a part's columns and whether they hold text, or how many columns there are."""
    if isinstance(part, ArrowRows) and part.given is None:
        return frozenset((name, kind is not None) for name, kind in part.found.items())
    return part.n_features if part.column_names is None else frozenset(part.column_names)


def _differences(part: Source, other: Source) -> Iterator[ArgumentWarning]:
    own, others = part.column_names, other.column_names
    if own is None or others is None:
        if part.named != other.named:
            has = "names" if part.named else "no names"
            yield ArgumentWarning(f"{part.name} has {has} of features, unlike {other.name}.")
        elif part.n_features != other.n_features:
            yield ArgumentWarning(
                f"{part.name} has {part.n_features} features, and {other.name} has {other.n_features}."
            )
        return
    what = "channel" if isinstance(part, FcsRows) else "column"
    advice = " Choose the features with ", _COLUMNS, "."
    for name in (*others, *own):
        if name not in own:
            yield ArgumentWarning(f"{part.name} has no {what} {name!r}, and {other.name} has one.", *advice)
        elif name not in others:
            yield ArgumentWarning(f"{part.name} has a {what} {name!r}, and {other.name} has none.", *advice)
    if isinstance(part, ArrowRows) and isinstance(other, ArrowRows) and part.given is None:
        for name in own:
            if {part.found[name] is None, other.found[name] is None} == {True, False}:
                holds = [each.holds_text(name) for each in (part, other)]
                if None not in holds:
                    words = ["text" if text else "numbers" for text in holds]
                    yield ArgumentWarning(
                        f"column {name!r} holds {words[0]} in {part.name} and {words[1]} in {other.name}."
                    )
    if isinstance(part, FcsRows) and isinstance(other, FcsRows):
        if part.compensate != other.compensate:
            has_one, lacks = (part, other) if part.compensate else (other, part)
            yield ArgumentWarning(
                f"{has_one.name} has a spill-over matrix, and {lacks.name} has none: ",
                Argument("compensate", False),
                " leaves both as they are.",
            )
        markers = dict(zip(others, other.markers, strict=True))
        for name, mine in zip(own, part.markers, strict=True):
            theirs = markers[name]
            # Some machines write how long a file took beside its time.
            if mine and theirs and mine.casefold() != theirs.casefold() and name.casefold() != "time":
                yield ArgumentWarning(
                    f"channel {name!r} is marker {theirs!r} in {other.name} and {mine!r} in {part.name}."
                )


def check_values(part: Source, *, gaps: bool) -> None:
    """Read all rows, and refuse infinite values, rows without a value unless `gaps`, and nothing but such."""
    has_value, first, n_empty, start = False, 0, 0, 0
    for block in part.read(labels=False):
        has_value |= _check_finite(part, block)
        empty = np.flatnonzero(np.isnan(block.X).all(axis=1))
        if len(empty) and not n_empty:
            first = start + int(empty[0])
        n_empty += len(empty)
        start += len(block.X)
    if not has_value:
        raise ValueError(f"{part.name} {NO_VALUE}")
    if n_empty and not gaps:
        raise ValueError(
            f"Row {first} of {part.name}, counted from 0, has no value: all {part.n_features} features are "
            f"NaN ({n_empty} such rows)."
        )


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
