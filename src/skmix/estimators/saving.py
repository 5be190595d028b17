"""Estimators as records of plain values, and `save`."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted

from ..io import Record, encode, write
from ._consistency import CHECKS

# Methods whose metadata a user can ask for with `set_fit_request` and the like.
REQUESTS = ("fit", "partial_fit", "predict", "score", "transform")


class SavingMixin:
    """Adds `save`. Everything a fit leaves behind ends in an underscore or is named here."""

    _private_attributes: ClassVar[tuple[str, ...]] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, for `skmix.load` to read.

        The file is safetensors with a versioned header. Reading it runs no code, so it may come from a
        stranger, unlike a pickle. It appears whole or not at all: until it is complete, a file that was
        there stays as it was.

        Parameters
        ----------
        path : path-like
            The file to make or to replace, such as ``"model.skmix"``.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError
            When a parameter or attribute has a type without a place in the file, and for classes of your own.
        ValueError
            When attributes no longer belong together, or parameters are not valid.

        Notes
        -----
        A `random_state` that is a RandomState instance is saved as None; integers are kept.

        The attribute `metadata_` is yours: a dictionary of plain values that you set is saved too. `skmix
        fit` notes the name of the target column there, and the outlier threshold of a model without classes.

        Examples
        --------
        >>> from skmix import GaussianMixture, load
        >>> model = GaussianMixture().fit([[0.0], [1.0], [2.0]])
        >>> model.save("model.skmix")  # doctest: +SKIP
        >>> load("model.skmix").means_  # doctest: +SKIP
        array([[1.]])
        """
        from .. import __version__
        from .loading import CLASSES

        name = type(self).__name__
        if CLASSES.get(name) is not type(self):
            raise TypeError(f"{name} cannot be saved; {', '.join(sorted(CLASSES))} can.")
        check_is_fitted(self)
        self._validate_params()  # type: ignore[attr-defined]
        try:
            CHECKS[name](self)
        except ValueError as error:
            raise ValueError(f"This {name} cannot be saved: {error}.") from None
        try:
            content, arrays = encode(record_of(self))
        except TypeError as error:
            raise TypeError(f"This {name} cannot be saved: {error}") from None
        write(path, content, arrays, __version__)


def record_of(estimator: Any) -> Record:
    """Return all that an estimator is, in plain values."""
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    attributes = {name: value for name, value in vars(estimator).items() if name not in parameters}
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # splitters have no place in a file, and a fitted search needs none
    request = attributes.pop("_metadata_request", None)
    output = attributes.pop("_sklearn_output_config", {})
    attributes.pop("_skl_callbacks", None)
    for name in attributes:
        if not is_attribute(type(estimator), name):
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit; delete it first.")
    return Record(
        type(estimator).__name__,
        {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "fitted": {name: _plain(value) for name, value in attributes.items()},
            "output": output,
            "requests": _requests(request),
        },
    )


def is_attribute(kind: type, name: str) -> bool:
    """Whether a fit may leave an attribute of that name in an estimator of that class."""
    if name in kind._private_attributes:  # type: ignore[attr-defined]
        return True
    return name.isidentifier() and name[0] != "_" and name[-1] == "_" and not hasattr(kind, name)


def _plain(value: Any) -> Any:
    if isinstance(value, SavingMixin):
        return record_of(value)
    if type(value) is list:
        return [_plain(item) for item in value]
    return value


def _requests(request: Any) -> dict[str, dict[str, Any]]:
    """Return what `set_fit_request` and the like were told, by method."""
    if request is None:
        return {}
    routing = get_routing_for_object(request)
    asked = {method: dict(getattr(routing, method).requests) for method in REQUESTS}
    return {method: metadata for method, metadata in asked.items() if metadata}
