"""Preparations: how a model transforms and encodes the values of files and data frames.

A preparation is a dictionary of plain values, which models keep. ``transform`` is the scale of numbers, or
``by channel`` if features have different scales, which ``scales`` has by name; ``linear`` has the divisors of
features that are divided by a number instead, by name; ``compensate``, for FCS
files, says whether spill-over is removed; ``columns`` and ``missing``, for tables with categories, are the
kinds of columns and the words for missing values, see `skmix.io.encoding`.

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

from .encoding import (
    FloatArray,
    Kind,
    Notation,
    are_numbers,
    check_columns,
    feature_names,
    features_by_column,
    is_number,
    listed,
    nearest,
    plain_text,
)

Preparation = dict[str, Any]
AUTO = "auto"
"""Leaves a setting open: a fit uses the default of the format, and a fitted model the setting of its fit."""
BY_CHANNEL = "by channel"
"""Value of ``transform`` if features have different scales."""


def transformer_of(scale: str | Mapping[str, Any]) -> Any:
    """Return the transformer of a scale, None for ``none``; raise ValueError if it is unknown."""
    from .scales import Arcsinh, Logicle  # loads scikit-learn

    if not isinstance(scale, str):
        if not isinstance(scale, Mapping) or scale.keys() - {"T", "W", "M", "A"}:
            raise ValueError("a scale is a name, or has the parameters T, W, M and A of a Logicle.")
        return Logicle(**scale)
    if scale in ("logicle", "none"):
        return Logicle() if scale == "logicle" else None
    kind, _, cofactor = scale.partition(":")
    if kind != "arcsinh":
        raise ValueError(f"{scale!r} is none of arcsinh, arcsinh:COFACTOR, logicle and none.")
    if cofactor and not (is_number(cofactor) and 0.0 < float(cofactor) < np.inf):
        raise ValueError(f"the cofactor {cofactor!r} is not a number above 0.")
    return Arcsinh(float(cofactor)) if cofactor else Arcsinh()


def scale_of(transformer: Any) -> str | dict[str, float]:
    """Return the scale of a transformer."""
    from .scales import Arcsinh, Logicle

    if transformer is None:
        return "none"
    if type(transformer) not in (Arcsinh, Logicle):
        raise TypeError(
            f"transform must be a name, Arcsinh, Logicle, None or 'auto', got {transformer!r}: apply other "
            "transformers to the rows yourself."
        )
    copy(transformer)._set_scale()  # raises ValueError for wrong parameters
    found = transformer.get_params()
    if type(transformer) is Arcsinh:
        return f"arcsinh:{float(found['cofactor'])!r}".removesuffix(".0")
    return "logicle" if found == Logicle().get_params() else {name: float(found[name]) for name in found}


def same_scale(one: Any, other: Any) -> bool:
    """Return whether two scales are the same, each a name, a dictionary of parameters or a transformer.

    Scales ``by channel`` are the same here: the channels' own scales are compared apart.
    """
    if BY_CHANNEL in (one, other):
        return bool(one == other)
    first, second = (
        scale_of(transformer_of(scale) if isinstance(scale, str | Mapping) else scale)
        for scale in (one, other)
    )
    return first == second


def target_of(model: Any) -> str | None:
    """Return the name of the column of labels that the model was fitted to, if it is known."""
    return getattr(model, "metadata_", {}).get("target")


def rescaled(
    X: FloatArray, method: str, preparation: Preparation, places: Mapping[str, int], numeric: Sequence[bool]
) -> FloatArray:
    """Return features (n, M) after `method` of the scales of a preparation, transform or inverse_transform.

    `places` has the indices of features by name. Only `numeric` features (M,) have a scale.
    """
    linear = {places[name]: unit for name, unit in preparation.get("linear", {}).items()}
    columns_of: dict[str, list[int]] = {}
    for name, scale in preparation.get("scales", {}).items():
        columns_of.setdefault(scale, []).append(places[name])
    changes = [(transformer_of(scale), columns) for scale, columns in columns_of.items()]
    if preparation["transform"] != BY_CHANNEL:
        changed = [feature for feature, number in enumerate(numeric) if number and feature not in linear]
        changes = [(transformer_of(preparation["transform"]), changed)]
        if len(changed) == X.shape[1]:
            return getattr(changes[0][0], method)(X)
    X = X.copy()
    for transformer, columns in changes:
        if columns:
            X[:, columns] = getattr(transformer, method)(X[:, columns])
    for feature, unit in linear.items():
        X[:, feature] *= 1.0 / unit if method == "transform" else unit
    return X


def in_words(preparation: Preparation) -> str:
    """Return the scale and the compensation of a preparation as text."""
    spilt = ", compensated for spill-over" if preparation.get("compensate") else ""
    return f"{scale_in_words(preparation)}{spilt}"


def scale_in_words(preparation: Preparation) -> str:
    """Return the scale of a preparation, and the features that have another one or are linear, as text."""
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


def check_preparation(preparation: Any, names: Sequence[str]) -> None:
    """Raise ValueError if the preparation in a model file is invalid or does not match its features."""
    settings = preparation if isinstance(preparation, dict) else {}
    scale: Any = settings.get("transform")
    compensate, missing = settings.get("compensate", False), settings.get("missing", [])
    linear, scales = settings.get("linear", {}), settings.get("scales", {})
    is_known = settings.keys() - {"compensate", "columns", "linear", "missing", "scales"} == {"transform"}
    has_words = isinstance(missing, list) and all(isinstance(word, str) for word in missing)
    if not (is_known and isinstance(compensate, bool) and has_words):
        raise ValueError(f"preparation_ is {preparation!r}")
    if "columns" in settings:
        check_columns(settings["columns"], names)
    if not isinstance(linear, dict) or not all(
        name in names and isinstance(unit, float) and 0.0 < unit < np.inf for name, unit in linear.items()
    ):
        raise ValueError(f"the linear features of preparation_ are {linear!r}")
    if scale == BY_CHANNEL:
        numbers = [name for name in names if settings.get("columns", {}).get(name) is None]
        if not isinstance(scales, dict) or sorted([*scales, *linear]) != sorted(numbers):
            raise ValueError(f"the scales of preparation_ are {scales!r}, and linear features are {linear!r}")
    elif scales:
        raise ValueError(f"preparation_ has the scales {scales!r} beside {scale!r}")
    for each in scales.values() if scale == BY_CHANNEL else [scale]:
        try:
            if scale == BY_CHANNEL and not isinstance(each, str):
                raise TypeError("the scale of a channel is a name")
            scale_of(transformer_of(each))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ValueError(f"the scale of preparation_ is {each!r}: {error}") from None


# ---------------------------------------------------------------- columns and features


@dataclass(frozen=True)
class Columns:
    """The user's columns behind the features (M,) of a model, and the way from either to the other."""

    # By name, or by index if they have no names.
    kinds: Mapping[Any, Kind]
    preparation: Preparation = field(default_factory=lambda: {"transform": "none"})

    @classmethod
    def of(cls, model: Any, n_features: int | None = None) -> Self:
        """Return the columns of a fitted model, or of one that is being fitted to rows of `n_features`."""
        preparation = getattr(model, "preparation_", {"transform": "none"})
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = range(model.n_features_in_ if n_features is None else n_features)
        return cls(preparation.get("columns") or dict.fromkeys(names), preparation)

    @cached_property
    def names(self) -> list[str] | None:
        """Names (M,) of the features, ``column=category`` for categories; None if columns have no names."""
        return feature_names(self.kinds) if self._positions else None

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return len(self.features_of(range(len(self.kinds))))

    @cached_property
    def features(self) -> list[list[int]]:
        """Indices of the features of each column."""
        return features_by_column(self.kinds)

    def features_of(self, columns: Iterable[int]) -> list[int]:
        """Return the indices of the features of some columns."""
        return [feature for column in columns for feature in self.features[column]]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.kinds) if isinstance(name, str)}

    def index(self, column: Any, where: str) -> int:
        """Return the index of a column given by index or name; errors call the given columns `where`."""
        if isinstance(column, str):
            if not self._positions:
                raise ValueError(f"{where} names {column!r}, but X has no feature names.")
            if column in self._positions:
                return self._positions[column]
            for name, kind in self.kinds.items():
                if column in feature_names({name: kind}):
                    raise ValueError(
                        f"{where} names {column!r}, one of the categories of column {name!r}, which belong "
                        "together: name the column."
                    )
            known = f"{listed([*self.kinds])}.{nearest(column, self.kinds)}"
            raise ValueError(f"{where} names {column!r}, but columns are {known}")
        if not isinstance(column, (int, np.integer)) or isinstance(column, bool):
            raise ValueError(f"{where} has {column!r}, which is not a column index or name.")
        if not 0 <= column < len(self.kinds):
            what = "column(s)" if "columns" in self.preparation else "feature(s)"
            raise ValueError(f"{where} has column {int(column)}, but X has {len(self.kinds)} {what}.")
        return int(column)

    def encode(self, column: int, value: Any) -> list[float]:
        """Return a value of a column as values of its features, before the scale."""
        name, kind = list(self.kinds.items())[column]
        if kind is not None:
            category = plain_text(value)
            if category not in kind:
                known = f"{listed([repr(each) for each in kind])}.{nearest(category, kind)}"
                raise ValueError(
                    f"given has {value!r} for column {name!r}, whose training rows had only {known}"
                )
            return [float(each == category) for each in kind[len(kind) == 2 :]]
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"given has {value!r} for column {name!r}, which is not a finite number.")
        if float(value) in Notation(self.preparation.get("missing", ())).numbers:
            raise ValueError(f"given has {value!r} for column {name!r}, which stands for a missing value.")
        return [float(value)]

    def to_scale(self, X: FloatArray) -> FloatArray:
        """Return encoded values (n, M) with numbers on the scale of the model."""
        return self._scaled(X, "transform")

    def from_scale(self, X: FloatArray) -> FloatArray:
        """Return features (n, M) with numbers in the units of the user."""
        return self._scaled(X, "inverse_transform")

    def _scaled(self, X: FloatArray, method: str) -> FloatArray:
        if self.preparation["transform"] == "none":
            return X
        places = {
            name: self.features[column][0]
            for name, column in self._positions.items()
            if self.features[column]
        }
        return rescaled(X, method, self.preparation, places, are_numbers(self.kinds))

    def of_columns(self, columns: Sequence[int]) -> Preparation | None:
        """Return the preparation of some columns; None if their values are used as they are."""
        names = list(self.kinds)
        kinds = {names[column]: self.kinds[names[column]] for column in columns}
        found = self.preparation | ({} if None in kinds.values() else {"transform": "none"})
        for setting in ("linear", "scales"):
            by_name = {name: value for name, value in found.pop(setting, {}).items() if name in kinds}
            if by_name or (setting == "scales" and found["transform"] == BY_CHANNEL):
                found[setting] = by_name
        if "columns" in found:
            found["columns"] = kinds
            if not found.get("missing") and not any(kinds.values()):
                found = {name: found[name] for name in found if name not in ("columns", "missing")}
        return None if found == {"transform": "none"} else found
