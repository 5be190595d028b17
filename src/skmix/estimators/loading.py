"""Files as estimators again."""

from __future__ import annotations

import os
from typing import Any

from sklearn import config_context

from ..io import Record, decode, read
from ._consistency import CHECKS
from .classifier import SharedKernelClassifier
from .gaussian import GaussianMixture
from .mixture import SharedKernelMixture
from .saving import REQUESTS, is_attribute
from .search import SharedKernelClassifierCV, SharedKernelMixtureCV

# The only classes that a file can make.
CLASSES: dict[str, type] = {
    "SharedKernelClassifier": SharedKernelClassifier,
    "SharedKernelMixture": SharedKernelMixture,
    "GaussianMixture": GaussianMixture,
    "SharedKernelClassifierCV": SharedKernelClassifierCV,
    "SharedKernelMixtureCV": SharedKernelMixtureCV,
}
_OUTPUTS = ("default", "pandas", "polars")


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        A file, from any source: reading it runs no code.

    Returns
    -------
    SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        Equal to the one that was saved: the same parameters and fitted attributes, and on the same machine
        the same predictions to the last bit.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it is no model, truncated, damaged, of a later version of the format, or when its parts do not
        belong together.

    Examples
    --------
    >>> from skmix import load
    >>> classifier = load("model.skmix")  # doctest: +SKIP
    """
    content, arrays = read(path)
    try:
        record = decode(content, arrays)
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        estimator = _estimator(record)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {error}.") from None
    return estimator


def _estimator(record: Record, *, is_parameter: bool = False) -> Any:
    """Return the estimator, its parameters valid and its attributes fit for each other."""
    kind = CLASSES.get(record.kind)
    if kind is None:
        raise ValueError(f"its class is {record.kind!r}, known are {', '.join(sorted(CLASSES))}")
    parameters, fitted, output, requests = (
        _named(record, part) for part in ("parameters", "fitted", "output", "requests")
    )
    # Parameters that are newer than the file have their defaults.
    unknown = set(parameters) - set(kind._get_param_names())  # type: ignore[attr-defined]
    if unknown:
        raise ValueError(f"{record.kind} has no parameter {min(unknown)!r}; a later version may")
    for name, value in parameters.items():
        if isinstance(value, Record):
            parameters[name] = _estimator(value, is_parameter=True)
    estimator = kind(**parameters)
    estimator._validate_params()
    for name, value in fitted.items():
        if name in parameters or not is_attribute(kind, name):
            raise ValueError(f"{name!r} is no attribute of a fitted {record.kind}")
        setattr(estimator, name, _restored(value))
    if output:
        if set(output) != {"transform"} or output["transform"] not in _OUTPUTS:
            raise ValueError(f"its output is set to {output!r}")
        estimator.set_output(**output)
    with config_context(enable_metadata_routing=True):
        for method, metadata in requests.items():
            request = getattr(estimator, f"set_{method}_request", None) if method in REQUESTS else None
            if request is None or not isinstance(metadata, dict):
                raise ValueError(f"{record.kind} takes no metadata in {method!r}")
            request(**metadata)
    if not is_parameter:
        CHECKS[record.kind](estimator)
    return estimator


def _named(record: Record, part: str) -> dict[str, Any]:
    values = record.fields.get(part)
    if not isinstance(values, dict):
        raise ValueError(f"its {part} are missing")
    return values


def _restored(value: Any) -> Any:
    if isinstance(value, Record):
        return _estimator(value)
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value
