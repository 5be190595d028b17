"""Rows in memory with labels and weights: arrays, data frames, prepared rows and tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_n_features, _check_sample_weight

from ..data import Source, open_rows
from ..data.dask import is_collection
from ..data.labels import are_unlabelled, code_labels, number_labels, read_labels, refuse_missing
from ..data.missing import refuse_masked_weights
from ..data.recipe import Recipe, target_of
from ..engine.device.streamed import PIECE_BYTES
from ..engine.numbers import Array, has_gaps, is_numpy, namespace, on_host, pick, to_numpy
from ..engine.problem import open_source
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block
from ._settings import is_robust, is_robust_fit
from .checks import check_features, check_gaps, check_labelled, check_values, is_valid, note_rows, used_rows
from .devices import device_of, device_of_scores, has_room, sent, warn_of_host
from .frames import PreparedRows, encoded_frame, frame_to_fit, is_frame, refuse_encoding, take_columns
from .training import Training, training_by_pieces


def computed(values: Any) -> Any:
    """Scores or labels that are lazy or on a device as a NumPy array; others unchanged."""
    return on_host(values.compute() if is_collection(values) else values)


@dataclass(frozen=True)
class Rows(ABC):
    """Rows that a user passed to an estimator, with labels and weights."""

    estimator: Any
    X: Any
    y: Any
    sample_weight: Any
    name: str
    # Whether numbers are put on the scale of the model.
    scaled: bool = True

    @property
    def table(self) -> str | None:
        """Name of the file that the rows are from, or of several."""
        return self.X.name if isinstance(self.X, Source) else None

    @abstractmethod
    def training(self, least: int = 2) -> Training:
        """Return at least `least` training rows, and note their features in the estimator.

        Without labels, there is one class; a classifier needs labels.
        """

    @abstractmethod
    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        """Return ``function(model, rows, codes)``, see `score_rows`; with `on_cpu`, it needs NumPy rows."""

    def with_own_labels(self) -> Rows:
        """The rows with the labels that they were opened with, if no others are given."""
        return self

    def in_memory(self) -> Rows:
        """The rows in memory, after reading files whole."""
        return self

    @abstractmethod
    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        """Rows (n, M) of floats in memory, NaN for missing values; refuse files and Dask collections.

        A fit requires at least `least` rows, and notes their features in the estimator. With `on_cpu`, they
        are a NumPy array.
        """

    def unscaled(self) -> Rows | None:
        """The rows without the scale that the model applies to them.

        None for rows that count as prepared, as all do for a model without a preparation.
        """
        return None

    def gathered(self) -> FloatArray:
        """Rows (n, M) of float64 with the features of the fitted estimator; files are read whole."""
        return np.asarray(self.in_memory().values(on_cpu=True), dtype=np.float64)

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
            target = target_of(self.estimator)
            if target is None or not is_frame(self.X):
                raise ValueError(f"The rows of X have no labels: give {self.name}.")
            return computed(take_columns(self.X, target, None, name="the target of the model")[1])
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
            labels = read_labels(on_host(self.y), n_rows, self.name)
            classes, codes = number_labels(labels, self.name)
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


def check_weights(sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Row weights (n,) that are not negative and not all zero; None if none were given."""
    if sample_weight is None:
        return None
    values = computed(sample_weight)
    refuse_masked_weights(values)
    weights: FloatArray = _check_sample_weight(
        values, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():  # older scikit-learn lets them pass
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


# ---------------------------------------------------------------- rows in memory


@dataclass(frozen=True)
class InMemory(Rows):
    """A NumPy array or nested lists; labels may be on a device."""

    def training(self, least: int = 2) -> Training:
        estimator, device = self.estimator, device_of(self.estimator)
        check_labelled(estimator, self.y)
        rows, classes, _ = self.coded(self.values(least=least))
        X, codes = rows.X, None if self.y is None else rows.y
        why_host = None
        if device is not None or not is_numpy(X):
            robust = "t kernels" if is_robust(estimator) else None
            why_host = robust or ("Missing values" if has_gaps(X) else None)
        if why_host is not None:
            X = to_numpy(X)
        elif device is not None and is_numpy(X):
            if not has_room(device, X):
                n_rows = max(1, PIECE_BYTES // X[:1].nbytes)
                blocks = open_rows(X, label=codes, weight=rows.weights, chunk_rows=n_rows)
                return training_by_pieces(estimator, blocks, classes, device)
            X = sent(X, device)
        source = open_source(X, codes, rows.weights)
        if source.summary.gaps:
            check_gaps(X, estimator)
        if why_host is not None:
            warn_of_host(why_host, device)
        return Training(source, classes)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        model, X = self.estimator, self.values(on_cpu=on_cpu or is_robust_fit(self.estimator))
        device = None if on_cpu or not is_numpy(X) else device_of_scores(model)
        if device is not None:
            if not has_room(device, X):
                return self._scores_by_pieces(function, X, device)
            X = sent(X, device)
        return on_host(function(model, X) if self.y is None else function(model, X, self.codes(len(X))))

    def _scores_by_pieces(self, function: Callable[..., Any], X: np.ndarray, device: str) -> np.ndarray:
        """Scores of rows that the device has no room for."""
        codes, step = None if self.y is None else self.codes(len(X)), max(1, PIECE_BYTES // X[:1].nbytes)
        pieces = []
        for start in range(0, len(X), step):
            part = slice(start, start + step)
            more = () if codes is None else (codes[part],)
            pieces.append(on_host(function(self.estimator, sent(X[part], device), *more)))
        return np.concatenate(pieces)

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        if least is None and type(self.X) is np.ndarray and is_valid(self.estimator, self.X):
            return self.X
        if least is None:
            refuse_encoding(self.estimator)
        try:
            return check_values(self.estimator, self.X, least)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            problem = f"X holds text: {error}. Give a data frame, whose columns are encoded."
            raise ValueError(problem) from None


@dataclass(frozen=True)
class InFrame(InMemory):
    """A data frame. Columns of text and categories are encoded; models apply their preparation to frames."""

    def unscaled(self) -> Rows | None:
        return replace(self, scaled=False) if hasattr(self.estimator, "preparation_") else None

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        model = self.estimator
        if least is not None:
            return frame_to_fit(self.X, model, least)
        X = encoded_frame(model, self.X)
        return Recipe.of(model).to_scale(X) if self.scaled else X


@dataclass(frozen=True)
class Prepared(InMemory):
    """Rows of files in memory. A fit notes their names and preparation, as for the files."""

    X: PreparedRows

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        if least is not None:
            return self.X.noted_in(self.estimator, least)
        return check_features(self.estimator, self.X.X)


@dataclass(frozen=True)
class OnDevice(InMemory):
    """A tensor, whose rows are processed on its device."""

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        if least is None:
            refuse_encoding(self.estimator)
        if on_cpu:
            return check_values(self.estimator, on_host(self.X), least)
        X, xp, n_needed = self.X, namespace(self.X), 1 if least is None else least
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
        if X.shape[0] < n_needed or X.shape[1] < 1:
            raise ValueError(f"Found array of shape {tuple(X.shape)}; at least {n_needed} row(s) are needed.")
        if X.dtype not in (xp.float64, xp.float32):
            if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
                raise ValueError(f"X must be of real numbers, got {X.dtype}.")
            X = xp.astype(X, xp.float64)
        # Finite sums prove that all values are finite, and are cheap.
        finite = bool(xp.all(xp.isfinite(xp.sum(X, axis=0, dtype=xp.float64))))
        if not finite and bool(xp.any(xp.isinf(X))):
            raise ValueError("Input X contains infinity or a value too large for its type.")
        if least is not None:
            note_rows(self.estimator, feature_names_in_=None, preparation_=None)
        _check_n_features(self.estimator, X, reset=least is not None)
        return X
