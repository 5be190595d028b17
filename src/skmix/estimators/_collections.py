"""The estimators on Dask collections: training rows in blocks, and answers that wait to be asked for."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from ..engine.compute.partitions import DaskBlocks, check_kind, is_collection, map_rows, open_collections

Method = TypeVar("Method", bound=Callable[..., Any])


def collection_blocks(X: Any, y: Any, sample_weight: Any) -> DaskBlocks | None:
    """Return the blocks of training rows that are a Dask collection; None for others."""
    if is_collection(X):
        from .. import __version__

        return open_collections(X, y, sample_weight, __version__)
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if is_collection(given):
            raise ValueError(
                f"{name} is a Dask collection, but X is a {type(X).__name__} in memory. Give both as Dask "
                f"collections, or {name}.compute()."
            )
    return None


@dataclass(frozen=True)
class _Ask:
    """Asks a fitted estimator about some rows."""

    method: Callable[..., np.ndarray]
    estimator: Any

    @property
    def __name__(self) -> str:
        return self.method.__name__

    def __call__(self, *given: np.ndarray) -> np.ndarray:
        return self.method(self.estimator, *given)


def by_rows(method: Method) -> Method:
    """Have a method of rows X, and perhaps labels y, answer Dask collections with lazy Dask arrays."""

    @wraps(method)
    def answer(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        return _lazy(self, method, X, *args, **kwargs)

    return answer  # type: ignore[return-value]


def lazy_whatever_output(method: Method) -> Method:
    """Have `transform` and the like answer Dask collections with lazy arrays whatever `set_output` says.

    scikit-learn would make a dataframe of the answers, and for that compute all of them.
    """
    plain = method.__wrapped__  # type: ignore[attr-defined]

    @wraps(method)
    def answer(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        return (plain if is_collection(X) else method)(self, X, *args, **kwargs)

    return answer  # type: ignore[return-value]


def _lazy(estimator: Any, method: Callable[..., np.ndarray], X: Any, y: Any = None) -> Any:
    """Return a Dask array of the method's answers, in the blocks of X."""
    check_is_fitted(estimator)
    check_kind(X, "X")
    n_features = X.shape[1] if X.ndim == 2 else None
    if n_features is not None and n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    _check_feature_names(estimator, getattr(X, "_meta", X), reset=False)
    # Blocks are plain arrays; that their features have the right names has been seen to.
    nameless = copy(estimator)
    nameless.__dict__.pop("feature_names_in_", None)
    ask = _Ask(getattr(method, "__wrapped__", method), nameless)
    # One row tells what answers look like, whatever it has to say.
    sample = np.zeros((1, estimator.n_features_in_))
    shown = ask(sample) if y is None else ask(sample, estimator.classes_[:1])
    return map_rows(X, ask, shown.shape[1] if shown.ndim == 2 else None, shown.dtype, y)
