"""Rows as a user passes them, X, y and sample_weight: in memory, in blocks or on a Dask cluster.

`enter` recognises them once. Fits, scores, streams and searches use what it returns, and need not know what X
was: an array, a tensor, a data frame, files, an AnnData or a Dask collection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from typing import Any

import numpy as np
from joblib import parallel_config
from joblib.parallel import ThreadingBackend
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from .. import _version
from .._errors import ArgumentWarning
from ..data import Source, open_rows
from ..data.dask import check_kind, is_collection, map_rows, open_collections
from ..data.labels import are_unlabelled, code_labels, number_labels, read_labels, refuse_missing
from ..data.missing import is_missing
from ..data.opening import source_of
from ..data.recipe import Recipe
from ..engine.device.streamed import PIECE_BYTES
from ..engine.measured import Measured
from ..engine.numbers import Array, has_gaps, is_device_array, is_numpy, on_host, pick, to_numpy
from ..engine.problem import open_source
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block
from .checks import (
    check_gaps,
    check_labelled,
    check_values,
    check_weights,
    computed,
    is_valid,
    used_rows,
    warn_of,
)
from .devices import (
    check_device_values,
    device_of,
    device_of_scores,
    has_room,
    is_robust_fit,
    on_device_or_host,
    sent,
    warn_of_host,
)
from .frames import (
    UNNAMED,
    PreparedRows,
    TableColumns,
    encoded_frame,
    frame_to_fit,
    is_frame,
    known_columns,
    names_of,
    read_into_memory,
    refuse_encoding,
    remarks_of,
    take_columns,
    with_features_of,
)
from .measured import RowsWithErrors, with_errors
from .training import Training, training_in_blocks

# Labels and weights of an array that need not be recognised.
_PLAIN = {np.ndarray, list, type(None)}


def enter(
    estimator: Any, X: Any, y: Any = None, sample_weight: Any = None, *, errors: Any = None, name: str = "y"
) -> Rows:
    """Recognise rows of any kind; `name` is what messages call the labels.

    X is an array or tensor (n, M), a data frame, files, a source, an AnnData, a Dask collection, or rows that
    `read_into_memory` returned. y and sample_weight are arrays (n,) or Dask collections; with files, also
    paths or names of columns; with a data frame, also names of columns. With errors, see `fit`, files are
    read whole.
    """
    if errors is not None:
        X, y, sample_weight = with_errors(X, y, sample_weight, errors, name)
    if isinstance(X, Measured):
        X = RowsWithErrors(X.X, errors=X.errors)
    if type(X) is np.ndarray and {type(y), type(sample_weight)} <= _PLAIN:
        return Rows(estimator, X, y, sample_weight, name)
    source = None if isinstance(X, PreparedRows) else source_of(X, y, sample_weight)
    columns = TableColumns.of(X if source is None else source, y, sample_weight)
    if isinstance(X, PreparedRows):
        return Rows(estimator, X, y, sample_weight, name, columns)
    if source is not None:
        return RowsInBlocks(estimator, source, y, sample_weight, name, columns)
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
        return RowsOnCluster(estimator, X, y, sample_weight, name, columns)
    X = X if is_frame(X) else on_device_or_host(estimator, X)
    return Rows(estimator, X, y, on_host(sample_weight), name, columns)


def score_rows(
    estimator: Any, X: Any, function: Callable[..., Any], y: Any = None, *, errors: Any = None
) -> Any:
    """``function(model, rows, codes)`` of rows of any kind, as a NumPy array (n, …).

    Files are read in blocks; for a Dask collection, the result is a lazy Dask array. `function`, which must
    be defined at the top of a module, takes the estimator, validated rows (n, M) and, if labels are given,
    class codes (n,); it returns an array (n, …), on the device if the rows are there.
    """
    if not hasattr(estimator, "class_prior_"):
        check_is_fitted(estimator)
    rows = enter(estimator, X, y, errors=errors)
    if errors is not None and y is None:
        rows = replace(rows, y=None)  # those that a file was opened with
    return rows.scores(function)


@dataclass(frozen=True)
class Rows:
    """Rows of an estimator with labels and weights; of this class: an array, a data frame, prepared rows."""

    estimator: Any
    X: Any
    y: Any
    sample_weight: Any
    name: str  # of the labels in messages
    table_columns: TableColumns = UNNAMED

    # ------------------------------------------------------------ what fits and scores need

    def training(self, least: int = 2) -> Training:
        """At least `least` training rows; their features are noted in the estimator.

        Without labels, there is one class; a classifier needs labels.
        """
        estimator, device = self.estimator, device_of(self.estimator)
        check_labelled(estimator, self.y)
        rows, classes, _ = self.coded(self.values(least=least))
        X, codes, why_host = rows.X, None if self.y is None else rows.y, None
        if device is not None or not is_numpy(X):
            is_robust = getattr(estimator, "tail", None) is not None
            why_host = "t kernels" if is_robust else "Missing values" if has_gaps(X) else None
            why_host = "Values with errors" if isinstance(X, Measured) else why_host
        if why_host is not None:
            X = to_numpy(X)
        elif device is not None and is_numpy(X):
            if not has_room(device, X):
                blocks = open_rows(X, label=codes, weight=rows.weights, chunk_rows=_rows_of_a_piece(X))
                return training_in_blocks(self, blocks, device, classes=classes)
            X = sent(X, device)
        source = open_source(X, codes, rows.weights)
        if source.summary.gaps:
            check_gaps(X, estimator)
        if why_host is not None:
            warn_of_host(why_host, device)
        return Training(source, classes)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False, scaled: bool = True) -> Any:
        """``function(model, rows, codes)``, see `score_rows`.

        With `on_cpu`, it needs NumPy rows; unless `scaled`, the encoded rows in the units of the user.
        """
        model, is_here = self.estimator, type(self.X) is np.ndarray and self.estimator.device is None
        is_host = is_here or on_cpu or is_robust_fit(model)
        X = self.values(on_cpu=is_host) if scaled else self.encoded
        codes = None if self.y is None else self.codes(len(X))
        if is_here:
            return _score(function, model, X, codes)
        is_host = on_cpu or not is_numpy(X) or isinstance(X, Measured)
        device = None if is_host else device_of_scores(model)
        if device is None or has_room(device, X):
            return on_host(_score(function, model, sent(X, device), codes))
        step = _rows_of_a_piece(X)
        pieces = [Block(X, codes).rows(slice(start, start + step)) for start in range(0, len(X), step)]
        scores = [on_host(_score(function, model, sent(piece.X, device), piece.y)) for piece in pieces]
        return np.concatenate(scores)

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        """Rows (n, M) of floats in memory, NaN for missing values; refuse files and Dask collections.

        A fit requires at least `least` rows, and notes their features in the estimator. With `on_cpu`, they
        are a NumPy array.
        """
        if least is not None:
            values = self._values_to_fit(least, on_cpu)
            self.table_columns.note_in(self.estimator)
            return values
        model, X = self.estimator, self.X
        if type(X) is np.ndarray and is_valid(model, X):
            return X
        if isinstance(X, PreparedRows):
            return X.of_model(model)
        if is_frame(X):
            return Recipe.of(model).to_scale(self.encoded)
        refuse_encoding(model)
        return self._checked(None, on_cpu)

    def _values_to_fit(self, least: int, on_cpu: bool) -> Array:
        if isinstance(self.X, PreparedRows):
            return self.X.noted_in(self.estimator, least)
        if is_frame(self.X):
            return frame_to_fit(self.X, self.estimator, least)
        return self._checked(least, on_cpu)

    def _checked(self, least: int | None, on_cpu: bool) -> Array:
        """Rows of an array or a tensor."""
        model, X = self.estimator, self.X
        if is_device_array(X) and not on_cpu:
            return check_device_values(model, X, least)
        try:
            return check_values(model, on_host(X), least)
        except ValueError as error:
            if not any(isinstance(value, str) for value in np.ravel(np.asarray(X, dtype=object))):
                raise
            problem = f"X holds text: {error}. Give a data frame, whose columns are encoded."
            raise ValueError(problem) from None

    @cached_property
    def encoded(self) -> FloatArray:
        """The features (n, M) of a data frame before the scale of the fitted model."""
        return encoded_frame(self.estimator, self.X)

    @property
    def is_in_units(self) -> bool:
        """Whether rows are in the units of the user, which the model puts on its scale."""
        return is_frame(self.X) and hasattr(self.estimator, "recipe_")

    def in_memory(self) -> Rows:
        """The rows in memory, after reading files whole."""
        return self

    def gathered(self) -> FloatArray:
        """Rows (n, M) of float64 with the features of the fitted estimator; files are read whole."""
        return np.asarray(self.in_memory().values(on_cpu=True), dtype=np.float64)

    # ------------------------------------------------------------ labels and weights

    @property
    def table(self) -> str | None:
        """Name of the file that the rows are from, or of several."""
        return None

    def with_own_labels(self) -> Rows:
        """The rows with the labels that they were opened with, if no others are given."""
        return self

    def with_columns_of_fit(self) -> Rows:
        """The rows with the columns of a table that were labels and weights in the fit, if y is not given."""
        target, weight = self._columns_of_fit()
        if self.y is not None or target is None or not is_frame(self.X):
            return self
        weights = weight if self.sample_weight is None and weight in names_of(self.X) else self.sample_weight
        X, y, weights = take_columns(self.X, target, weights, name="the target of the model")
        return replace(self, X=X, y=y, sample_weight=weights)

    def with_errors(self, errors: Any) -> Rows:
        """The rows with errors, if there are any; see `enter`."""
        if errors is None:
            return self
        is_source = isinstance(self.X, Source)  # which has labels and weights
        y, weights = (None, None) if is_source else (self.y, self.sample_weight)
        return enter(self.estimator, self.X, y, weights, errors=errors, name=self.name)

    def _columns_of_fit(self) -> tuple[str | None, str | None]:
        model = self.estimator
        return getattr(model, "target_name_", None), getattr(model, "weight_name_", None)

    def labels(self, n_rows: int, *, unlabelled: bool = False) -> np.ndarray:
        """The label (n,) of each row, in memory; with `unlabelled`, some may be missing."""
        labels = read_labels(self._unchecked_labels(), n_rows, self.name, of_fit=False)
        if not unlabelled:
            # A classifier, also inside a search, may predict −1 for outliers.
            model = getattr(self.estimator, "classifier_", self.estimator)
            known = [*model.classes_.tolist(), getattr(model, "outlier_label", None)]
            refuse_missing(are_unlabelled(labels, known), self.name, self.table)
        return labels

    def codes(self, n_rows: int) -> IntArray:
        """Labels as indices (n,) into the classes of the fitted estimator; see `code_labels`."""
        return code_labels(self._unchecked_labels(), self.estimator.classes_, n_rows, name=self.name)

    def _unchecked_labels(self) -> Any:
        if self.y is None:
            raise ValueError(f"The rows of X have no labels: give {self.name}.")
        return computed(self.y)

    def weights(self, n_rows: int) -> FloatArray | None:
        """Row weights (n,), not negative and not all zero; None if none were given."""
        return check_weights(self.sample_weight, n_rows)

    def coded(self, X: Array) -> tuple[Block, np.ndarray, IntArray | None]:
        """Validated rows X (n, M) with class codes, the classes (L,), and the positions of the rows.

        Rows of weight zero or without any value are left out, and classes without other rows; positions are
        None if all rows are kept. Without labels, all codes are 0.
        """
        n_rows = X.shape[0]
        classes, codes = np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
        if self.y is not None:
            classes, codes = number_labels(read_labels(on_host(self.y), n_rows, self.name), self.name)
        weights = self.weights(n_rows)
        used = used_rows(X, weights)
        if used is None:
            return Block(X, codes, weights), classes, None
        kept = np.flatnonzero(used)
        present, codes = np.unique(codes[kept], return_inverse=True)
        if present[0] == -1:
            present, codes = present[1:], codes - 1
        if not len(present):
            raise ValueError("sample_weight is zero for every row that has a label and a value.")
        return Block(pick(X, kept), codes, None if weights is None else weights[kept]), classes[present], kept


def _score(function: Callable[..., Any], model: Any, rows: Array, codes: IntArray | None) -> Any:
    return function(model, rows) if codes is None else function(model, rows, codes)


def _rows_of_a_piece(X: np.ndarray) -> int:
    return max(1, PIECE_BYTES // X[:1].nbytes)


# ---------------------------------------------------------------- rows in blocks


@dataclass(frozen=True)
class RowsInBlocks(Rows):
    """Files and other sources that are read in blocks, with labels and weights."""

    X: Source

    def training(self, least: int = 2) -> Training:
        training = training_in_blocks(self, self.X.held(), device_of(self.estimator), least)
        if self.X.first.is_table:
            warn_of(self._remarks())
        return training

    def _remarks(self) -> list[ArgumentWarning]:
        """Remarks on the columns, whose values are looked at if they are one block."""
        if self.X.n_rows > self.X.chunk_rows:
            return self.X.remarks()
        with closing(self.X.blocks()) as blocks:
            return remarks_of(self.X, next(blocks).X)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False, scaled: bool = True) -> Any:
        model, source = self.estimator, self._of_model
        source = source if scaled else replace(source, scale={"transform": "none"})
        source = source.unlabelled() if self.y is None else source
        scores, start = np.empty(0), 0
        device = None if on_cpu else device_of_scores(model)
        with closing(source.blocks()) as blocks:
            for block in blocks:
                codes = None
                if self.y is not None:
                    labels = block.all_labels()
                    if is_missing(labels).any():
                        self.labels(source.n_rows)  # raises ValueError, with the number of all such rows
                    codes = code_labels(labels, model.classes_, len(block.X), name=self.name)
                part = on_host(_score(function, model, sent(block.X, device), codes))
                if not start:
                    scores = np.empty((source.n_rows, *part.shape[1:]), dtype=part.dtype)
                scores[start : start + len(part)] = part
                start += len(part)
        warn_of(source.remarks())
        return scores

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        raise ValueError(f"This needs rows in memory, but X is {self.X!r}: give an array or a data frame.")

    @property
    def is_in_units(self) -> bool:
        return self._of_model.preparation is not None

    def in_memory(self) -> Rows:
        source = self._of_model if hasattr(self.estimator, "n_features_in_") else self.X
        X, y, weights = read_into_memory(source)
        warn_of(source.remarks())
        return Rows(self.estimator, X, y, weights, self.name, self.table_columns)

    @cached_property
    def _of_model(self) -> Source:
        return with_features_of(self.estimator, self.X)

    @property
    def table(self) -> str | None:
        return self.X.name

    def with_own_labels(self) -> Rows:
        # Names of files are groups for a fit, but new files are none of its groups.
        return self if self.X.by_file or not self.X.has_labels else replace(self, y=self.X)

    def with_columns_of_fit(self) -> Rows:
        source, (target, weight) = self.X, self._columns_of_fit()
        if source.has_labels or target is None:
            return self
        source = source.labelled(target)
        if source.weight is None and source.weights is None and weight in source.first.all_names:
            source = source.weighted(weight)
        return replace(self, X=source)

    def _unchecked_labels(self) -> Any:
        if not self.X.has_labels:
            return super()._unchecked_labels()
        # Select the features first: other columns may hold anything.
        return self._of_model.row_labels()

    def weights(self, n_rows: int) -> FloatArray | None:
        if self.X.weight is None and self.X.weights is None:
            return None
        with closing(self._of_model.blocks()) as blocks:
            return check_weights(np.concatenate([block.row_weights for block in blocks]), n_rows)


# ---------------------------------------------------------------- rows on a cluster


@dataclass(frozen=True)
class RowsOnCluster(Rows):
    """Dask collections; scores are lazy Dask arrays."""

    def training(self, least: int = 2) -> Training:
        if device_of(self.estimator) is not None:
            raise ValueError(
                f"device={self.estimator.device!r} cannot be combined with Dask collections, which the CPUs "
                "of their cluster process. Leave device out."
            )
        blocks = open_collections(self.X, self.y, self.sample_weight, _version.__version__)
        return training_in_blocks(self, blocks, None, least)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False, scaled: bool = True) -> Any:
        model, X, y, scale = self.estimator, self.X, self.y, None
        check_kind(X, "X")
        if not is_frame(X):
            refuse_encoding(model)
        else:
            if "columns" in getattr(model, "recipe_", {}):
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

    @property
    def is_in_units(self) -> bool:
        if super().is_in_units:
            raise ValueError(
                "The model prepares the columns of data frames, which Dask collections do not support here: "
                "give X.compute()."
            )
        return False

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
    codes = code_labels(y[0], model.classes_, len(rows), name=name) if y else None
    # Other blocks run on the other cores, as in a worker of joblib.
    with parallel_config(ThreadingBackend(nesting_level=1)):
        return np.asarray(_score(function, model, rows, codes))
