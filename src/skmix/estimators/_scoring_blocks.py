"""What a fitted model says of rows that are read in blocks: block by block, into one array of answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..engine.compute.blocks import Block
from ..io import Source, source_of

Method = TypeVar("Method", bound=Callable[..., np.ndarray])


@dataclass(frozen=True)
class Checked:
    """Rows of a block: they need no other check.

    Attributes
    ----------
    rows : ndarray of shape (n, M)
        The rows.
    """

    rows: np.ndarray


def in_blocks(method: Method) -> Method:
    """Let a method (X) or (X, y) that answers for each row take rows that are read in blocks."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        source = source_of(X)
        if source is None:
            return method(self, X, *args, **kwargs)
        return answer(self, method, source, *args, **kwargs)

    return cast("Method", call)


def answer(estimator: Any, method: Callable[..., np.ndarray], source: Source, y: Any = None) -> np.ndarray:
    """Return what a method says of all rows."""
    check_is_fitted(estimator)
    rows = with_features_of(estimator, source.unlabelled())
    if y is not None:
        rows = rows.labelled(y)
    out: np.ndarray | None = None
    start = 0
    with closing(rows.blocks()) as blocks:
        for block in blocks:
            stop = start + len(block.X)
            block.check()
            _refuse_empty(block.X, start, source.name)
            given = () if y is None else (_labels(block),)
            part = method(estimator, Checked(block.X), *given)
            if out is None:
                out = np.empty((rows.n_rows, *part.shape[1:]), dtype=part.dtype)
            out[start:stop] = part
            start = stop
    assert out is not None
    return out


def labels_of(source: Source) -> np.ndarray:
    """Return the labels (N,) of all rows."""
    return np.concatenate([np.array(_labels(block)) for block in source.blocks()])


def _labels(block: Block) -> np.ndarray:
    assert block.y is not None
    return block.y if block.names is None else block.names[block.y]


def with_features_of(estimator: Any, source: Source) -> Source:
    """Return the rows with the features that an estimator was fitted to, by name where both have names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and source.named:
        return source.select(list(names))
    if source.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {source.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input: {source.name}."
        )
    return source


def _refuse_empty(rows: np.ndarray, start: int, name: str) -> None:
    empty = np.flatnonzero(np.isnan(rows).all(axis=1))
    if len(empty):
        raise ValueError(
            f"Row {start + empty[0]} of {name} has no value: all {rows.shape[1]} features are NaN. "
            "Remove rows that say nothing."
        )
