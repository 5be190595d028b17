"""Preparations: how a model transforms and encodes the values of files and data frames.

A preparation is a dictionary of plain values, which models keep. ``transform`` is the scale of numbers;
``compensate``, for FCS files, says whether spill-over is removed; ``columns`` and ``missing``, for tables
with categories, are the kinds of columns and the words for missing values, see `skmix.io.encoding`.

A scale is a name, such as ``none``, ``arcsinh:150`` or ``logicle``, or a dictionary of the ``kind`` and its
parameters if they differ between channels or from the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .encoding import are_numbers, check_columns

Preparation = dict[str, Any]
AUTO = "auto"
"""Leaves a setting open: a fit uses the default of the format, and a fitted model the setting of its fit."""
FCS_SCALE = "arcsinh:150"
"""Default scale of FCS files."""


def parse_scale(scale: str) -> tuple[str, float]:
    """Return the kind and cofactor of a scale such as ``arcsinh:150``; raise ValueError for other text."""
    kind, _, given = scale.partition(":")
    if kind != "arcsinh" and scale not in ("logicle", "none"):
        raise ValueError(f"{scale!r} is none of arcsinh, arcsinh:COFACTOR, logicle and none.")
    try:
        cofactor = float(given or 5.0)
    except ValueError:
        cofactor = np.nan
    if not 0.0 < cofactor < np.inf:
        raise ValueError(f"the cofactor {given!r} is not a number above 0.")
    return kind, cofactor


def transformer_of(scale: str | Mapping[str, Any]) -> Any:
    """Return the transformer of a scale, None for ``none``; raise ValueError if it is unknown."""
    from .scales import Arcsinh, Logicle  # loads scikit-learn

    if isinstance(scale, str):
        kind, cofactor = parse_scale(scale)
        return {"arcsinh": Arcsinh(cofactor), "logicle": Logicle(), "none": None}[kind]
    kinds: dict[Any, Any] = {"arcsinh": Arcsinh, "logicle": Logicle}
    parameters = {name: value for name, value in scale.items() if name != "kind"}
    return kinds[scale["kind"]](**parameters)


def scale_of(transformer: Any, columns: Sequence[int] | None = None) -> str | dict[str, Any]:
    """Return the scale of a transformer, for some of its channels if `columns` are given."""
    from .scales import Arcsinh, Logicle

    if transformer is None:
        return "none"
    if type(transformer) not in (Arcsinh, Logicle):
        raise TypeError(
            f"transform must be a name, Arcsinh, Logicle, None or 'auto', got {transformer!r}: apply other "
            "transformers to the rows yourself."
        )
    found: dict[str, Any] = {}
    for name, value in transformer.get_params().items():
        numbers = np.asarray(value, dtype=np.float64)
        numbers = numbers[list(columns)] if columns is not None and numbers.ndim else numbers
        same = not numbers.ndim or np.all(numbers == numbers[:1])
        found[name] = float(numbers.flat[0]) if same else numbers.tolist()
    if type(transformer) is Arcsinh:
        cofactor = found["cofactor"]
        if isinstance(cofactor, float):
            return f"arcsinh:{cofactor!r}".removesuffix(".0")
        return {"kind": "arcsinh", **found}
    return "logicle" if found == Logicle().get_params() else {"kind": "logicle", **found}


def scale_in_words(scale: str | Mapping[str, Any]) -> str:
    """Return a scale as text."""
    if isinstance(scale, str):
        return scale
    parameters = (f"{name} {value}" for name, value in scale.items() if name != "kind")
    return f"{scale['kind']} ({', '.join(parameters)})"


def preparation_of_columns(preparation: Preparation, columns: Sequence[int]) -> Preparation | None:
    """Return the preparation of some features, without encoded columns: their features belong together."""
    scale = preparation["transform"]
    kept = {name: value for name, value in preparation.items() if name in ("compensate", "transform")}
    if not isinstance(scale, str):
        kept["transform"] = scale_of(transformer_of(scale), columns)
    return None if kept == {"transform": "none"} else kept


def check_preparation(preparation: Any, n_features: int, names: Sequence[str]) -> None:
    """Raise ValueError if the preparation in a model file is invalid or does not match its features."""
    settings = preparation if isinstance(preparation, dict) else {}
    scale: Any = settings.get("transform")
    compensate, missing = settings.get("compensate", False), settings.get("missing", [])
    if settings.keys() - {"compensate", "columns", "missing"} != {"transform"}:
        raise ValueError(f"preparation_ is {preparation!r}")
    if not isinstance(compensate, bool) or not (
        isinstance(missing, list) and all(isinstance(word, str) for word in missing)
    ):
        raise ValueError(f"preparation_ is {preparation!r}")
    if "columns" in settings:
        check_columns(settings["columns"], names)
        n_features = sum(are_numbers(settings["columns"]))
    try:
        transformer = transformer_of(scale)
        if transformer is not None:
            transformer.fit(np.zeros((1, n_features)))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(f"the scale of preparation_ is {scale!r}: {error}") from None
