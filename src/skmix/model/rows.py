"""Recognise what a user passes as X, y and sample_weight.

`enter` puts rows in memory, in a data frame, on a device, in blocks or on a Dask cluster behind one
interface, `Rows`. Fits, scores, streams and searches use it and need not know what X was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from joblib import parallel_config
from joblib.parallel import ThreadingBackend
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from .. import _version
from ..data import Source
from ..data.dask import check_kind, is_collection, map_rows, open_collections
from ..data.labels import code_labels
from ..data.missing import is_missing
from ..data.opening import prepare, source_of
from ..data.recipe import Recipe, target_of
from ..engine.numbers import Array, is_device_array, on_host
from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from .checks import warn_of
from .devices import device_of, device_of_scores, on_device_or_host, sent
from .frames import PreparedRows, is_frame, known_columns, read_into_memory, refuse_encoding, take_columns
from .rows_in_memory import InFrame, InMemory, OnDevice, Prepared, Rows, check_weights
from .training import Training, training_in_blocks

# ---------------------------------------------------------------- entry


def enter(estimator: Any, X: Any, y: Any = None, sample_weight: Any = None, *, name: str = "y") -> Rows:
    """Put rows of any kind behind the interface `Rows`; `name` is what messages call the labels.

    X is an array or tensor (n, M), a data frame, files, a source, an AnnData, a Dask collection, or rows that
    `read_into_memory` returned. y and sample_weight are arrays (n,) or Dask collections; with files, also
    paths or names of columns; with a data frame, also names of columns.
    """
    if isinstance(X, PreparedRows):
        return Prepared(estimator, X, y, sample_weight, name)
    source = source_of(X, y, sample_weight)
    if source is not None:
        return InBlocks(estimator, source, y, sample_weight, name)
    if is_frame(X):
        X, y, sample_weight = take_columns(X, y, sample_weight, name=name)
    for argument, values in ((name, y), ("sample_weight", sample_weight)):
        if isinstance(values, (str, PathLike)):
            raise ValueError(
                f"{argument} is {str(values)!r}, but X is a {type(X).__name__}: a path needs X to be a file, "
                f"and the name of a column a file or a data frame. Give {argument} as an array."
            )
        if is_collection(values) and not is_collection(X):
            raise ValueError(
                f"{argument} is a Dask collection, but X is a {type(X).__name__} in memory. Give both as "
                f"Dask collections, or {argument}.compute()."
            )
    if is_collection(X):
        return OnCluster(estimator, X, y, sample_weight, name)
    sample_weight = on_host(sample_weight)
    if is_frame(X):
        return InFrame(estimator, X, y, sample_weight, name)
    X = on_device_or_host(estimator, X)
    kind = OnDevice if is_device_array(X) else InMemory
    return kind(estimator, X, y, sample_weight, name)


def score_rows(
    estimator: Any, X: Any, function: Callable[..., Any], y: Any = None, *, name: str = "y"
) -> Any:
    """Return ``function(model, rows, codes)`` for rows of any kind, as a NumPy array.

    Files are read in blocks; for a Dask collection, the result is a lazy Dask array. `function`, which must
    be defined at the top of a module, takes the estimator, validated rows (n, M) and, if labels are given,
    class codes (n,); it returns an array (n, …), on the device if the rows are there.
    """
    if not hasattr(estimator, "class_prior_"):
        check_is_fitted(estimator)
    return enter(estimator, X, y, name=name).scores(function)


# ---------------------------------------------------------------- rows in blocks


@dataclass(frozen=True)
class InBlocks(Rows):
    """Files and other sources that are read in blocks, with labels and weights."""

    X: Source

    def training(self, least: int = 2) -> Training:
        source, device = self.X.held(), device_of(self.estimator)
        training = training_in_blocks(
            self.estimator, source, self.y, device, least, name=self.name, table=self.table
        )
        if self.X.first.is_table:
            warn_of(self.X.remarks())
        return training

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        model = self.estimator
        source = self._of_model()
        if self.y is None:
            source = source.unlabelled()
        out, start = np.empty(0), 0
        device = None if on_cpu else device_of_scores(model)
        with closing(source.blocks()) as blocks:
            for block in blocks:
                stop = start + len(block.X)
                arguments = [model, sent(block.X, device)]
                if self.y is not None:
                    labels = block.all_labels()
                    if is_missing(labels).any():
                        self.labels(source.n_rows)  # raises ValueError, with the number of all such rows
                    arguments.append(code_labels(labels, model.classes_, len(block.X), name=self.name))
                part = on_host(function(*arguments))
                if not start:
                    out = np.empty((source.n_rows, *part.shape[1:]), dtype=part.dtype)
                out[start:stop] = part
                start = stop
        warn_of(source.remarks())
        return out

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        raise ValueError(f"This needs rows in memory, but X is {self.X!r}: give an array or a data frame.")

    def with_own_labels(self) -> Rows:
        # Names of files are groups for a fit, but new files are none of its groups.
        return self if self.X.by_file or not self.X.has_labels else replace(self, y=self.X)

    def in_memory(self) -> Rows:
        source = self._of_model() if hasattr(self.estimator, "n_features_in_") else self.X
        X, y, weights = read_into_memory(source)
        warn_of(source.remarks())
        return Prepared(self.estimator, X, y, weights, self.name)

    def unscaled(self) -> Rows | None:
        return None if self._of_model().preparation is None else replace(self, scaled=False)

    def _of_model(self) -> Source:
        source = with_features_of(self.estimator, self.X)
        return source if self.scaled else replace(source, scale={"transform": "none"})

    def _unchecked_labels(self) -> Any:
        source, target = self.X, target_of(self.estimator)
        if not source.has_labels and target is not None:
            source = source.labelled(target)
        if not source.has_labels:
            return super()._unchecked_labels()
        # Select the features first: other columns may hold anything.
        return with_features_of(self.estimator, source).row_labels()

    def weights(self, n_rows: int) -> FloatArray | None:
        if self.X.weight is None and self.X.weights is None:
            return None
        with closing(with_features_of(self.estimator, self.X).blocks()) as blocks:
            return check_weights(np.concatenate([block.row_weights for block in blocks]), n_rows)


def with_features_of(model: Any, source: Source) -> Source:
    """The rows of a source with the features and the preparation of a fitted model; see `prepare`."""
    names = getattr(model, "feature_names_in_", None)
    source = prepare(source, getattr(model, "preparation_", None), names)
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


# ---------------------------------------------------------------- rows on a cluster


@dataclass(frozen=True)
class OnCluster(Rows):
    """Dask collections; scores are lazy Dask arrays."""

    def training(self, least: int = 2) -> Training:
        if device_of(self.estimator) is not None:
            raise ValueError(
                f"device={self.estimator.device!r} cannot be combined with Dask collections, which the CPUs "
                "of their cluster process. Leave device out."
            )
        blocks = open_collections(self.X, self.y, self.sample_weight, _version.__version__)
        return training_in_blocks(self.estimator, blocks, self.y, None, least, name=self.name)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        model, X, y = self.estimator, self.X, self.y
        check_kind(X, "X")
        scale = None
        if not is_frame(X):
            refuse_encoding(model)
        else:
            if "columns" in getattr(model, "preparation_", {}):
                raise ValueError(
                    "The model encodes columns of text, or knows numbers for missing values, which Dask "
                    "collections do not support: give X.compute(), or files."
                )
            X, scale = known_columns(model, X), Recipe.of(model).to_scale
        if X.ndim == 2:
            _check_n_features(model, X, reset=False)
        _check_feature_names(model, getattr(X, "_meta", X), reset=False)
        score = partial(_score_block, model, function, self.name, scale)
        # Score one row to learn the type and width of the result.
        row = np.zeros((1, model.n_features_in_))
        example = score(row) if y is None else score(row, model.classes_[:1])
        return map_rows(X, score, example.shape[1] if example.ndim == 2 else None, example.dtype, y)

    def unscaled(self) -> Rows | None:
        if is_frame(self.X) and hasattr(self.estimator, "preparation_"):
            raise ValueError(
                "The model prepares the columns of data frames, which Dask collections do not support here: "
                "give X.compute()."
            )
        return None

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        raise ValueError(
            f"This needs rows in memory, but X is a Dask {type(self.X).__name__}: give X.compute(), or a "
            "sample of its rows if there are too many."
        )


def _score_block(
    model: Any, function: Callable[..., Any], name: str, scale: Any, rows: np.ndarray, *y: np.ndarray
) -> np.ndarray:
    Block(rows).refuse_infinite()
    rows = rows if scale is None else scale(rows)
    codes = (code_labels(labels, model.classes_, len(rows), name=name) for labels in y)
    # Other blocks run on the other cores, as in a worker of joblib.
    with parallel_config(ThreadingBackend(nesting_level=1)):
        return np.asarray(function(model, rows, *codes))
