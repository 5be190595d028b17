"""Data frames: choose the columns of a model, encode them as features, and turn features into columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names, check_array

from .._errors import ArgumentWarning
from .._extras import need
from .._words import listed, nearest
from ..data import Source
from ..data.encoding import UNKNOWN_COLUMN, decode_columns
from ..data.frames import encode_frame, frame_remarks
from ..data.labels import is_column
from ..data.opening import prepare
from ..data.problems import column_remarks
from ..data.recipe import Preparation, Recipe, writing_of
from ..engine.records import FloatArray
from .checks import check_features, check_values, note_columns, note_rows, warn_of

# Numeric types of polars.
_POLARS_NUMBER = re.compile(r"(U?Int\d+|Float\d+|Boolean|Decimal)\b")


# ---------------------------------------------------------------- columns


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas, polars, Dask or the like."""
    return hasattr(X, "columns") and not isinstance(X, Source)


def _is_numeric(frame: Any) -> bool:
    """Whether all columns of a data frame have a numeric type."""
    return all(
        getattr(column_type, "kind", None) in ("f", "i", "u", "b") or _POLARS_NUMBER.match(str(column_type))
        for column_type in getattr(frame, "dtypes", [None])
    )


def names_of(frame: Any, *, unique: bool = True) -> list[Any]:
    """The names of the columns of a data frame; raise ValueError if two are equal, for `unique`."""
    names = list(getattr(frame, "column_names", frame.columns))
    for name, count in Counter(names).most_common(1):
        if count > 1 and unique:
            raise ValueError(f"{count} columns of X have the name {name!r}: rename them, or keep one.")
    return names


def take_columns(X: Any, y: Any, sample_weight: Any, *, name: str = "y") -> tuple[Any, Any, Any]:
    """A data frame, labels and weights; columns that y and sample_weight name leave the data frame."""
    arguments = {name: y, "sample_weight": sample_weight}
    column_of = {argument: value for argument, value in arguments.items() if isinstance(value, str)}
    if not column_of:
        return X, y, sample_weight
    names, roles = names_of(X), {*column_of.values()}
    for argument, column in column_of.items():
        if column not in names:
            known = f"{listed(names, 20)}.{nearest(column, names)}"
            raise ValueError(f"{argument} names {column!r}, but X has the columns {known}")
    if roles.issuperset(names):
        taken_as = " and ".join(column_of)
        raise ValueError(f"No column of X is left as a feature: it has {listed(names)}, taken as {taken_as}.")
    y, sample_weight = (X[value] if isinstance(value, str) else value for value in (y, sample_weight))
    return _select(X, [column for column in names if column not in roles]), y, sample_weight


@dataclass(frozen=True)
class TableColumns:
    """All columns of the table that rows are from, if they have names, and those of labels and weights."""

    names: Sequence[Any] = ()
    target: str | None = None
    weight: str | None = None

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: Any) -> TableColumns:
        """Those of rows of any kind, with labels and weights as columns or names of columns."""
        if isinstance(X, PreparedRows):
            return X.table_columns
        if isinstance(X, Source):
            return cls(X.first.all_names if X.first.is_table else (), X.label, X.weight)
        # Delayed objects of Dask, which are refused later, seem to have every attribute.
        names = names_of(X, unique=False) if is_frame(X) and hasattr(type(X), "columns") else ()
        return cls(names, _name_of(y), _name_of(sample_weight))

    def note_in(self, estimator: Any) -> None:
        """Note in an estimator, which knows its features, which columns are none."""
        features = {*Recipe.of(estimator).kinds} if hasattr(estimator, "feature_names_in_") else {*self.names}
        ignored = [str(name) for name in self.names if not {name, str(name)} & features]
        # Labels may be made of a feature, and have its name.
        target, weight = (None if name in features else name for name in (self.target, self.weight))
        note_rows(estimator, target_name_=target, weight_name_=weight, ignored_columns_=ignored or None)


UNNAMED = TableColumns()
"""The columns of an array."""


def _name_of(column: Any) -> str | None:
    """The name of a column of labels or weights, or None."""
    # Arrays of Dask have names, too, which nobody gave them.
    name = getattr(column, "name", None) if is_column(column) else column
    return name if isinstance(name, str) else None


def known_columns(model: Any, frame: Any) -> Any:
    """The columns of a data frame that a model was fitted to.

    As in scikit-learn, a column must be neither missing nor unknown and, unless columns are encoded, their
    order must be the one of the fit. Columns that the fit ignored are left out. Models that compensate are
    refused.
    """
    preparation = getattr(model, "recipe_", {})
    if preparation.get("compensate", False):
        raise ValueError(
            "The model compensates for spill-over with matrices that only FCS files have. Compensate and "
            "transform X as for the fit, and give open_rows(X, compensate=False, transform=None)."
        )
    columns = preparation.get("columns")
    known = getattr(model, "feature_names_in_", None) if columns is None else list(columns)
    if known is None:
        return frame
    names = names_of(frame, unique=False)
    if columns is not None and not all(isinstance(name, str) for name in names):
        names = [str(name) for name in names]  # as encoding does
        frame = frame.set_axis(names, axis=1)
    others = {getattr(model, name, None) for name in ("target_name_", "weight_name_")}
    others |= {*getattr(model, "ignored_columns_", ())}
    kept = [name for name in names if name in known or name not in others]
    if columns is not None and len(kept) == len(known) and {*kept} == {*known}:
        kept = list(known)
    if kept != names:
        frame = _select(frame, kept)
    names_of(frame)  # raises ValueError for repeated names
    reference = SimpleNamespace(feature_names_in_=np.array(known, dtype=object))
    try:
        _check_feature_names(reference, getattr(frame, "_meta", frame), reset=False)
    except ValueError as error:
        missing = [nearest(name, {*names} - {*known}) for name in known if name not in names]
        advice = f"{next(filter(None, missing), '')}{UNKNOWN_COLUMN if missing else ''}"
        raise ValueError(f"{error}{advice.strip()}") from None
    return frame


def with_features_of(model: Any, source: Source) -> Source:
    """The rows of a source with the features and the preparation of a fitted model; see `prepare`."""
    names = getattr(model, "feature_names_in_", None)
    source = prepare(source, getattr(model, "recipe_", None), names)
    n_features = Recipe.of(model).n_features
    if source.n_features != n_features:
        raise ValueError(
            f"X has {source.n_features} features, but {type(model).__name__} is expecting {n_features} "
            f"features as input: {source.name}."
        )
    if source.label_texts is not None and hasattr(model, "classes_"):
        # Labels of a text file have the type of the classes, whichever of them it has; '1' in quotes is text.
        classes = map(repr, model.classes_.tolist())
        source = replace(source, label_texts=source.label_texts.union(classes))
    return source


def _select(frame: Any, names: list[Any]) -> Any:
    return frame.select(names) if hasattr(frame, "column_names") else frame[names]


# ---------------------------------------------------------------- prepared rows


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows of files or data frames in memory, with the names of their features and how these were made."""

    X: np.ndarray  # (n, M), of float64 or float32
    feature_names: list[str] | None = None
    preparation: Preparation | None = None
    table_columns: TableColumns = UNNAMED

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.X.shape[0], self.X.shape[1]

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: Any) -> PreparedRows:
        """Some of the rows, chosen by a slice or by an array of indices or booleans."""
        return replace(self, X=self.X[rows])

    def of_model(self, model: Any) -> Any:
        """Check that the rows have the features of a fitted model."""
        return check_features(model, self.X)

    def noted_in(self, estimator: Any, least: int) -> Any:
        """Check the rows for a fit, which needs at least `least`, and note their columns in the estimator."""
        X: np.ndarray = check_values(estimator, self.X, least, self.feature_names)
        note_columns(estimator, X.shape[1], self.feature_names, self.preparation)
        return X


def read_into_memory(source: Source) -> tuple[PreparedRows, np.ndarray | None, FloatArray | None]:
    """All rows of files, with their labels (n,) and weights (n,) if they have any."""
    with closing(source.blocks()) as blocks:
        read = list(blocks)
    y = np.concatenate([block.all_labels() for block in read]) if source.has_labels else None
    weights = [block.weights for block in read if block.weights is not None]
    X = np.concatenate([block.X for block in read])
    table = TableColumns.of(source, None, None)
    rows = PreparedRows(X, source.feature_names, source.preparation, table)
    return rows, y, np.concatenate(weights) if weights else None


def remarks_of(source: Source, X: np.ndarray) -> list[ArgumentWarning]:
    """What is odd about the columns of a table, for a fit to all its rows, with features X (n, M)."""
    names, numbers = source.feature_names, np.flatnonzero(source.numeric)
    if names is None or not source.first.is_table:
        return source.remarks()
    return [*source.remarks(), *column_remarks(X[:, numbers], [names[number] for number in numbers])]


def read_frame(frame: Any) -> PreparedRows:
    """A data frame in memory; columns that are no numbers are encoded."""
    names = names_of(frame)
    if _is_numeric(frame):
        named = all(isinstance(name, str) for name in names)
        X = check_array(frame, dtype=np.float64, ensure_all_finite=False)
        return PreparedRows(X, names if named else None)
    encoded, reader = encode_frame(frame)
    return PreparedRows(encoded, reader.feature_names, reader.preparation)


def frame_to_fit(frame: Any, estimator: Any, least: int) -> np.ndarray:
    """Encode a data frame for a fit, and note its columns in the estimator; features have shape (n, M)."""
    _refuse_empty(frame)
    names = names_of(frame)
    if _is_numeric(frame):
        X: np.ndarray = check_values(estimator, frame, least, names)
        if least > 1:  # the first batch of a stream says little of its columns
            warn_of(frame_remarks(frame, X, [str(name) for name in names]))
        return X
    encoded, reader = encode_frame(frame)
    numbers = [name for name, kind in reader.kinds.items() if kind is None]
    columns = np.flatnonzero(reader.numeric)
    remarks = frame_remarks(frame, encoded[:, columns], numbers) if least > 1 else []
    warn_of([*reader.remarks(), *remarks])
    return PreparedRows(encoded, reader.feature_names, reader.preparation).noted_in(estimator, least)


def encoded_frame(model: Any, frame: Any) -> FloatArray:
    """Encode a data frame as the features (n, M) of a fitted model, before the scale."""
    _refuse_empty(frame)
    frame, preparation = known_columns(model, frame), Recipe.of(model).preparation
    columns = preparation.get("columns")
    if columns is None and _is_numeric(frame):
        X: FloatArray = check_values(model, frame, names=names_of(frame))
        return X
    columns = columns or dict.fromkeys(map(str, names_of(frame)))
    encoded, reader = encode_frame(frame, columns, writing_of(preparation))
    warn_of(reader.remarks())
    return check_features(model, encoded, reader.feature_names)


def _refuse_empty(frame: Any) -> None:
    names = names_of(frame, unique=False)
    if not names or not len(frame):
        raise ValueError(f"X has no {'rows' if names else 'columns'}.")


def refuse_encoding(model: Any) -> None:
    """Raise ValueError if a fitted model encodes columns, which arrays do not name."""
    kinds = Recipe.of(model).kinds
    if any(kinds.values()):
        raise ValueError(
            f"The model encodes columns of text or dates: give a data frame with {listed([*kinds])}."
        )


def in_columns(model: Any, X: FloatArray, frame: Any = None, encoded: FloatArray | None = None) -> Any:
    """Turn encoded rows (n, M), with numbers in the units of the user, into a data frame of the columns.

    If they are a pandas data frame whose gaps were filled, the result has its index and its columns without
    gaps. `encoded` (n, M) are its features, NaN where a value is missing.
    """
    pandas, recipe = need("pandas", "Rows of a model that prepares columns need"), Recipe.of(model)
    columns: dict[str, Any] = decode_columns(X, recipe.kinds)
    if encoded is None or not isinstance(frame, pandas.DataFrame):
        return pandas.DataFrame(columns)
    frame = known_columns(model, frame)
    for name, features in zip(columns, recipe.features, strict=True):
        if not np.isnan(encoded[:, features]).any():
            columns[name] = frame[name]
    return pandas.DataFrame(columns, index=frame.index)
