"""Recipes: how the values of files and data frames become the features of a model.

A model keeps its recipe as a dictionary of plain values, `recipe_`. ``transform`` is the scale of
numbers, or ``by channel`` if features have different scales, which ``scales`` has by name; ``linear`` has the
divisors of features that are divided by a number instead, by name; ``compensate``, for FCS files, says
whether spill-over is removed; ``columns`` are the kinds of columns, see `skmix.data.encoding`, and
``missing``, ``decimal`` and ``thousands`` say how tables are written.

A scale is a name, such as ``none``, ``arcsinh:150`` or ``logicle``, or a dictionary of the parameters of a
`Logicle` if they differ from the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np

from .._words import listed, nearest
from ..engine.records import FloatArray
from .encoding import DATE, Kind, are_numbers, check_columns, feature_names, features_by_column, shown
from .notation import THOUSANDS, Notation, days_of, is_number, plain_text

Preparation = dict[str, Any]
BY_CHANNEL = "by channel"
"""Value of ``transform`` if features have different scales."""
UNPREPARED: Preparation = {"transform": "none"}


@dataclass(frozen=True)
class Recipe:
    """The user's columns behind the features (M,) of a model, and the way from either to the other."""

    # By name, or by index if they have no names.
    kinds: Mapping[Any, Kind]
    preparation: Preparation = field(default_factory=UNPREPARED.copy)

    @classmethod
    def of(cls, model: Any, n_features: int | None = None) -> Self:
        """The recipe of a fitted model, or of one that is being fitted to rows of `n_features`."""
        preparation = getattr(model, "recipe_", UNPREPARED)
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = range(model.n_features_in_ if n_features is None else n_features)
        return cls(preparation.get("columns") or dict.fromkeys(names), preparation)

    # ------------------------------------------------------------ columns and their features

    @cached_property
    def names(self) -> list[str] | None:
        """Names (M,) of the features, ``column=category`` for categories; None if columns have no names."""
        return feature_names(self.kinds) if self._positions else None

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return sum(map(len, self.features))

    @cached_property
    def features(self) -> list[list[int]]:
        """Indices of the features of each column."""
        return features_by_column(self.kinds)

    def features_of(self, columns: Iterable[int]) -> list[int]:
        """Indices of the features of some columns."""
        return [feature for column in columns for feature in self.features[column]]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.kinds) if isinstance(name, str)}

    def index(self, column: Any, where: str) -> int:
        """The index of a column that the argument `where` names, or gives the index of."""
        if isinstance(column, str):
            return self._index_of_name(column, where)
        if not isinstance(column, (int, np.integer)) or isinstance(column, bool):
            raise ValueError(f"{where} has {column!r}, which is not a column index or name.")
        if not 0 <= column < len(self.kinds):
            what = "column(s)" if "columns" in self.preparation else "feature(s)"
            raise ValueError(f"{where} has column {int(column)}, but X has {len(self.kinds)} {what}.")
        return int(column)

    def _index_of_name(self, column: str, where: str) -> int:
        if not self._positions:
            raise ValueError(f"{where} names {column!r}, but X has no feature names.")
        if column in self._positions:
            return self._positions[column]
        for name, kind in self.kinds.items():
            if isinstance(kind, list) and column in feature_names({name: kind}):
                raise ValueError(
                    f"{where} names {column!r}, one of the categories of column {name!r}, which belong "
                    "together: name the column."
                )
        known = f"{listed([*self.kinds])}.{nearest(column, self.kinds)}"
        raise ValueError(f"{where} names {column!r}, but columns are {known}")

    def encode(self, column: int, value: Any) -> list[float]:
        """A value of a column as values of its features, before the scale."""
        name, kind = list(self.kinds.items())[column]
        start = f"given has {value!r} for column {name!r}, "
        if isinstance(kind, list):
            category = plain_text(value)
            if category not in kind:
                known = f"{listed([repr(other) for other in kind])}.{nearest(category, kind)}"
                raise ValueError(f"{start}whose training rows had only {known}")
            return [float(other == category) for other in shown(kind)]
        if kind == DATE:
            days = float(value) if isinstance(value, Real) else days_of(value)
            if not np.isfinite(days):
                raise ValueError(f"{start}which is not a date. Write dates as 2024-01-31.")
            return [days]
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"{start}which is not a finite number.")
        if float(value) in Notation(self.preparation.get("missing", ())).numbers:
            raise ValueError(f"{start}which stands for a missing value.")
        return [float(value)]

    # ------------------------------------------------------------ the scale

    def to_scale(self, X: FloatArray) -> FloatArray:
        """Put encoded values (n, M) on the scale of the model."""
        return self._scaled(X, "transform")

    def from_scale(self, X: FloatArray) -> FloatArray:
        """Put features (n, M) back into the units of the user."""
        return self._scaled(X, "inverse_transform")

    def _scaled(self, X: FloatArray, method: str) -> FloatArray:
        """Apply `method` of the scales, transform or inverse_transform, to features (n, M)."""
        settings = self.preparation
        if settings["transform"] == "none":
            return X
        places = {name: self.features[column][0] for name, column in self._positions.items()}
        linear = {places[name]: unit for name, unit in settings.get("linear", {}).items() if name in places}
        columns_of: dict[str, list[int]] = {}
        for name, scale in settings.get("scales", {}).items():
            if name in places:
                columns_of.setdefault(scale, []).append(places[name])
        changes = [(transformer_of(scale), columns) for scale, columns in columns_of.items()]
        if settings["transform"] != BY_CHANNEL:
            numeric = are_numbers(self.kinds)
            columns = [feature for feature, number in enumerate(numeric) if number and feature not in linear]
            changes = [(transformer_of(settings["transform"]), columns)]
            if len(columns) == X.shape[1]:
                scaled: FloatArray = getattr(changes[0][0], method)(X)
                return scaled
        X = X.copy()
        for transformer, columns in changes:
            if columns:
                X[:, columns] = getattr(transformer, method)(X[:, columns])
        for feature, unit in linear.items():
            X[:, feature] *= 1.0 / unit if method == "transform" else unit
        return X

    def of_columns(self, columns: Sequence[int]) -> Preparation | None:
        """The preparation of some columns; None if their values are used as they are."""
        names = list(self.kinds)
        kinds = {names[column]: self.kinds[names[column]] for column in columns}
        some = self.preparation | ({} if None in kinds.values() else UNPREPARED)
        for setting in ("linear", "scales"):
            by_name = {name: value for name, value in some.pop(setting, {}).items() if name in kinds}
            if by_name or (setting == "scales" and some["transform"] == BY_CHANNEL):
                some[setting] = by_name
        if "columns" in some:
            some["columns"] = kinds
            if not any(kinds.values()) and not any(some.get(name) for name in WRITING):
                some = {name: some[name] for name in some if name not in ("columns", *WRITING)}
        return None if some == UNPREPARED else some


# ---------------------------------------------------------------- how tables are written

WRITING = ("missing", "decimal", "thousands")
"""Settings of a preparation that say how tables are written."""


def writing_of(preparation: Preparation | None) -> dict[str, Any]:
    """How the tables of a fit were written, as entries of the argument `text` of `open_rows`."""
    return {name: preparation[name] for name in WRITING if name in preparation} if preparation else {}


def preparation_of_table(kinds: Mapping[str, Kind], notation: Notation) -> Preparation | None:
    """The preparation of a table without a scale; None if its values are used as they are."""
    # Files without marks of their own are read by any notation.
    marks = {name: value for name in WRITING[1:] if (value := getattr(notation, name)) is not None}
    marks = marks if notation.is_text and marks != {"decimal": "."} else {}
    if not notation.missing and not any(kinds.values()) and not marks:
        return None
    return {"transform": "none", "columns": dict(kinds), "missing": list(notation.missing), **marks}


# ---------------------------------------------------------------- scales


def transformer_of(scale: str | Mapping[str, Any]) -> Any:
    """The transformer of a scale, None for ``none``; raise ValueError if it is unknown."""
    from .scales import Arcsinh, Logicle  # loads scikit-learn

    if not isinstance(scale, str):
        if not isinstance(scale, Mapping) or scale.keys() - {"T", "W", "M", "A"}:
            raise ValueError("a scale is a name, or has the parameters T, W, M and A of a Logicle.")
        return Logicle(**scale)
    if scale in ("logicle", "none"):
        return Logicle() if scale == "logicle" else None
    name, _, cofactor = scale.partition(":")
    if name != "arcsinh":
        raise ValueError(f"{scale!r} is none of arcsinh, arcsinh:COFACTOR, logicle and none.")
    if cofactor and not (is_number(cofactor) and 0.0 < float(cofactor) < np.inf):
        raise ValueError(f"the cofactor {cofactor!r} is not a number above 0.")
    return Arcsinh(float(cofactor)) if cofactor else Arcsinh()


def scale_of(transformer: Any) -> str | dict[str, float]:
    """The scale of a transformer."""
    from .scales import Arcsinh, Logicle

    if transformer is None:
        return "none"
    if type(transformer) not in (Arcsinh, Logicle):
        raise TypeError(
            f"transform must be a name, Arcsinh, Logicle, None or 'auto', got {transformer!r}: apply other "
            "transformers to the rows yourself."
        )
    copy(transformer)._set_scale()  # raises ValueError for wrong parameters
    parameters = transformer.get_params()
    if type(transformer) is Arcsinh:
        return f"arcsinh:{float(parameters['cofactor'])!r}".removesuffix(".0")
    is_usual = parameters == Logicle().get_params()
    return "logicle" if is_usual else {name: float(value) for name, value in parameters.items()}


def same_scale(one: Any, other: Any) -> bool:
    """Whether two scales are the same, each a name, a dictionary of parameters or a transformer.

    Scales ``by channel`` are the same here: the channels' own scales are compared apart.
    """
    if BY_CHANNEL in (one, other):
        return bool(one == other)
    first, second = (
        scale_of(transformer_of(scale) if isinstance(scale, str | Mapping) else scale)
        for scale in (one, other)
    )
    return first == second


def in_words(preparation: Preparation) -> str:
    """The scale and the compensation of a preparation as text."""
    spilt = ", compensated for spill-over" if preparation.get("compensate") else ""
    return f"{scale_in_words(preparation)}{spilt}"


def scale_in_words(preparation: Preparation) -> str:
    """The scale of a preparation, and the features that have another one or are linear, as text."""
    scale, linear = preparation["transform"], [*preparation.get("linear", {})]
    if scale == BY_CHANNEL:
        names_of: dict[str, list[str]] = {}
        for name, other in preparation["scales"].items():
            names_of.setdefault(other, []).append(name)
        names_of |= {"linear": linear} if linear else {}
        return ", ".join(f"{other} ({listed(names)})" for other, names in names_of.items())
    if not isinstance(scale, str):
        scale = f"logicle ({', '.join(f'{name} {value:g}' for name, value in scale.items())})"
    return f"{scale} ({listed(linear)} linear)" if linear else scale


# ---------------------------------------------------------------- recipes in files


def check_preparation(preparation: Any, names: Sequence[str]) -> None:
    """Raise ValueError if the preparation in a model file is invalid or does not match its features."""
    settings = preparation if isinstance(preparation, dict) else {}
    missing = settings.get("missing", [])
    is_right = {
        "compensate": isinstance(settings.get("compensate", False), bool),
        "missing": isinstance(missing, list) and all(isinstance(word, str) for word in missing),
        "decimal": settings.get("decimal", ".") in (".", ","),
        "thousands": settings.get("thousands", "") in ("", *THOUSANDS),
    }
    known = {"transform", "columns", "linear", "scales", *is_right}
    if "transform" not in settings or not settings.keys() <= known or not all(is_right.values()):
        raise ValueError(f"recipe_ is {preparation!r}")
    if "columns" in settings:
        check_columns(settings["columns"], names)
    linear, scales, scale = settings.get("linear", {}), settings.get("scales", {}), settings["transform"]
    if not isinstance(linear, dict) or not all(
        name in names and isinstance(unit, float) and 0.0 < unit < np.inf for name, unit in linear.items()
    ):
        raise ValueError(f"the linear features of recipe_ are {linear!r}")
    if scale == BY_CHANNEL:
        numbers = [name for name in names if settings.get("columns", {}).get(name) is None]
        if not isinstance(scales, dict) or sorted([*scales, *linear]) != sorted(numbers):
            raise ValueError(f"the scales of recipe_ are {scales!r}, and linear features are {linear!r}")
    elif scales:
        raise ValueError(f"recipe_ has the scales {scales!r} beside {scale!r}")
    for entry in scales.values() if scale == BY_CHANNEL else [scale]:
        try:
            if scale == BY_CHANNEL and not isinstance(entry, str):
                raise TypeError("the scale of a channel is a name")
            scale_of(transformer_of(entry))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ValueError(f"the scale of recipe_ is {entry!r}: {error}") from None
