"""Recognise what a user passes as X, y and sample_weight.

`enter` puts rows in memory, in a data frame, on a device, in blocks or on a Dask cluster behind one
interface, `Rows`. Fits, scores, streams and searches use it and need not know what X was.
"""

from __future__ import annotations

import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np
from joblib import parallel_config
from joblib.parallel import ThreadingBackend
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from .. import _version
from .._errors import ArgumentWarning
from .._extras import need
from .._words import listed, nearest
from ..data import Source, open_rows
from ..data.blocks import LabelledBlocks, LabelSummary, summarise_labels
from ..data.dask import check_kind, is_collection, map_rows, open_collections
from ..data.encoding import UNKNOWN_COLUMN, decode_columns
from ..data.frames import encode_frame
from ..data.labels import (
    are_unlabelled,
    classes_of,
    code_labels,
    is_column,
    number_labels,
    read_labels,
    refuse_missing,
    typed,
)
from ..data.missing import is_missing, refuse_masked_weights, without_mask
from ..data.opening import prepare, source_of
from ..data.recipe import Preparation, Recipe, target_of, writing_of
from ..engine.device.streamed import PIECE_BYTES, StreamedRows
from ..engine.numbers import (
    Array,
    has_gaps,
    is_device_array,
    is_numpy,
    namespace,
    on_host,
    pick,
    room_on,
    send,
    taken_in,
    to_numpy,
)
from ..engine.problem import open_source
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block, BlockRows
from ..engine.rows.source import RowSource
from ._settings import is_robust, is_robust_fit

_FLOATS = [np.dtype(np.float64), np.dtype(np.float32)]
_PRECISIONS = ("float64", "float32", "tf32")
# Attributes in which scikit-learn keeps the callbacks of a running fit.
OF_CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
# Numeric types of polars.
_POLARS_NUMBER = re.compile(r"(U?Int\d+|Float\d+|Boolean|Decimal)\b")

# ---------------------------------------------------------------- entry


def enter(estimator: Any, X: Any, y: Any = None, sample_weight: Any = None, *, name: str = "y") -> Rows:
    """Return rows of any kind behind the interface `Rows`; errors call the labels `name`.

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
    for argument, given in ((name, y), ("sample_weight", sample_weight)):
        if isinstance(given, (str, PathLike)):
            raise ValueError(
                f"{argument} is {str(given)!r}, but X is a {type(X).__name__}: a path needs X to be a file, "
                f"and the name of a column a file or a data frame. Give {argument} as an array."
            )
        if is_collection(given) and not is_collection(X):
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


def take_columns(X: Any, y: Any, sample_weight: Any, *, name: str = "y") -> tuple[Any, Any, Any]:
    """Return a data frame, labels and weights; columns that y and sample_weight name leave the data frame."""
    named = {name: y, "sample_weight": sample_weight}
    named = {argument: given for argument, given in named.items() if isinstance(given, str)}
    if not named:
        return X, y, sample_weight
    names, taken = names_of(X), {*named.values()}
    for argument, given in named.items():
        if given not in names:
            known = f"{listed(names, 20)}.{nearest(given, names)}"
            raise ValueError(f"{argument} names {given!r}, but X has the columns {known}")
    if taken.issuperset(names):
        taken_as = " and ".join(named)
        raise ValueError(f"No column of X is left as a feature: it has {listed(names)}, taken as {taken_as}.")
    y, sample_weight = (X[given] if isinstance(given, str) else given for given in (y, sample_weight))
    return _select(X, [name for name in names if name not in taken]), y, sample_weight


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame, such as those of pandas, polars and Dask."""
    return hasattr(X, "columns") and not isinstance(X, Source)


@dataclass(frozen=True)
class Rows(ABC):
    """Rows that a user passed to an estimator, with labels and weights."""

    estimator: Any
    X: Any
    y: Any
    sample_weight: Any
    name: str

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
        """Return the rows with the labels that they were opened with, if no others are given."""
        return self

    def in_memory(self) -> Rows:
        """Return the rows in memory, after reading files whole."""
        return self

    @abstractmethod
    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        """Return rows (n, M) of floats in memory, NaN for missing values; refuse files and Dask collections.

        A fit requires at least `least` rows, and notes their features in the estimator. With `on_cpu`, return
        a NumPy array.
        """

    def unscaled(self) -> Rows | None:
        """Return the rows without the scale that the model applies to them, and with an estimator without it.

        None for rows that count as prepared, as all do for a model without a preparation.
        """
        return None

    def gathered(self) -> FloatArray:
        """Return rows (n, M) of float64 with the features of the fitted estimator; read files whole."""
        return np.asarray(self.in_memory().values(on_cpu=True), dtype=np.float64)

    def labels(self, n_rows: int, *, unlabelled: bool = False) -> np.ndarray:
        """Return the label (n,) of each row, in memory; with `unlabelled`, some may be missing."""
        labels = read_labels(self._unchecked_labels(), n_rows, self.name, of_fit=False)
        if not unlabelled:
            # A classifier, or that of a search, may predict −1 for outliers.
            model = getattr(self.estimator, "classifier_", self.estimator)
            known = [*model.classes_.tolist(), getattr(model, "outlier_label", None)]
            refuse_missing(are_unlabelled(labels, known), self.name, self.table)
        return labels

    def codes(self, n_rows: int) -> IntArray:
        """Return labels as indices (n,) into the classes of the fitted estimator; see `code_labels`."""
        return code_labels(self._unchecked_labels(), self.estimator.classes_, n_rows, name=self.name)

    def _unchecked_labels(self) -> Any:
        if self.y is None:
            target = target_of(self.estimator)
            if target is None or not is_frame(self.X):
                raise ValueError(f"The rows of X have no labels: give {self.name}.")
            return computed(take_columns(self.X, target, None, name="the target of the model")[1])
        return computed(self.y)

    def weights(self, n_rows: int) -> FloatArray | None:
        """Return row weights (n,), not negative and not all zero; None if none were given."""
        if self.sample_weight is None:
            return None
        given = computed(self.sample_weight)
        refuse_masked_weights(given)
        weights: FloatArray = _check_sample_weight(
            given, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
        )
        if not weights.any():  # older scikit-learn lets them pass
            raise ValueError("Sample weights must contain at least one non-zero number.")
        return weights

    def coded(self, X: Array) -> tuple[Block, np.ndarray, IntArray | None]:
        """Return validated rows X (n, M) with class codes, the classes (L,), and the positions of the rows.

        Rows of weight zero are left out, and classes without other rows; positions are None if all rows are
        kept. Without labels, all codes are 0.
        """
        n_rows = X.shape[0]
        classes, codes = np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
        if self.y is not None:
            labels = read_labels(on_host(self.y), n_rows, self.name)
            classes, codes = number_labels(labels, self.name)
        weights = self.weights(n_rows)
        if weights is None or weights.all():
            return Block(X, codes, weights), classes, None
        kept = np.flatnonzero(weights)
        present, codes = np.unique(codes[kept], return_inverse=True)
        if present[0] == -1:
            present, codes = present[1:], codes - 1
        if not len(present):
            raise ValueError("sample_weight is zero for every row that has a label.")
        return Block(pick(X, kept), codes, weights[kept]), classes[present], kept


@dataclass(frozen=True)
class Training:
    """Validated training rows, in memory or elsewhere."""

    source: RowSource
    classes: np.ndarray  # (L,): the labels behind the class codes
    blocks: LabelledBlocks | None = None  # rows that are not in memory

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.source.n_features

    @property
    def sizes(self) -> FloatArray:
        """Number (L,) of labelled rows in each class, or the sum of their weights."""
        return self.source.summary.class_sizes(len(self.classes))

    @property
    def class_prior(self) -> FloatArray:
        """Share (L,) of each class among the labelled rows."""
        return self.sizes / self.sizes.sum()

    @property
    def n_unlabelled(self) -> int:
        """Number of rows without a label."""
        return self.source.summary.n_unlabelled

    def with_features(self, columns: list[int], number: int) -> Training:
        """Return the columns of feature set `number`, and the rows that have a value in them.

        Raise ValueError if a class has no such row.
        """
        if columns == list(range(self.n_features)):
            return self
        taken = replace(self, source=self.source.with_features(columns))
        absent = np.flatnonzero(taken.sizes == 0)
        if len(absent):
            raise ValueError(
                f"No row of class {self.classes[absent[0]]!r} has a value in feature set {number}, columns "
                f"{columns}."
            )
        return taken


# ---------------------------------------------------------------- rows in memory


@dataclass(frozen=True)
class InMemory(Rows):
    """A NumPy array or nested lists; labels may be on a device."""

    def training(self, least: int = 2) -> Training:
        estimator, device = self.estimator, device_of(self.estimator)
        check_labelled(estimator, self.y)
        X = self.values(least=least)
        rows, classes, _ = self.coded(X)
        X, codes = rows.X, None if self.y is None else rows.y
        why_host = None
        if device is not None or not is_numpy(X):
            robust = "t kernels" if is_robust(estimator) else None
            why_host = robust or ("Missing values" if has_gaps(X) else None)
        if why_host is not None:
            X = to_numpy(X)
        elif device is not None and is_numpy(X):
            if X.nbytes > room_on(device):
                n_rows = max(1, PIECE_BYTES // X[:1].nbytes)
                blocks = open_rows(X, label=codes, weight=rows.weights, chunk_rows=n_rows)
                found, seed = _summarise(estimator, blocks, device)
                return _coded_training(blocks, found, np.arange(len(classes)), classes, seed, device)
            X = send(X, device)
        source = open_source(X, codes, rows.weights)
        if source.summary.gaps:
            check_gaps(X, estimator)
        if why_host is not None:
            warn_of_host(why_host, device)
        return Training(source, classes)

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        model, X = self.estimator, self.values(on_cpu=on_cpu or is_robust_fit(self.estimator))
        device = None if on_cpu or not is_numpy(X) else _device_of_scores(model)
        if device is not None:
            if X.nbytes > room_on(device):
                return enter(model, open_rows(X), on_host(self.y), name=self.name).scores(function)
            X = sent(X, device)
        return on_host(function(model, X) if self.y is None else function(model, X, self.codes(len(X))))

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        if least is None and type(self.X) is np.ndarray and _is_valid(self.estimator, self.X):
            return self.X
        if least is None:
            refuse_encoding(self.estimator)
        try:
            return validated(self.estimator, self.X, least)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            problem = f"X holds text: {error}. Give a data frame, whose columns are encoded."
            raise ValueError(problem) from None


def validated(
    estimator: Any, X: Any, least: int | None = None, names: Sequence[Any] | None = None
) -> np.ndarray:
    """Check rows by scikit-learn, and return them as floats (n, M); see `Rows.values`.

    Masked values are missing ones.
    Errors name the column of an infinite value if the `names` (M,) are known.
    """
    if least is not None:
        note_rows(estimator, preparation_=None)
    X = without_mask(X, np.nan)
    try:
        rows: np.ndarray = validate_data(
            estimator,
            X,
            dtype=_FLOATS,
            ensure_all_finite="allow-nan",
            ensure_min_samples=1 if least is None else least,
            reset=least is not None,
        )
    except ValueError as error:
        if names is not None and "infinity" in str(error):
            infinite = np.isinf(check_array(X, dtype=_FLOATS, ensure_all_finite=False))
            for row, column in np.argwhere(infinite)[:1]:
                raise ValueError(
                    f"Column {str(names[column])!r} of X is infinite in row {row}, counted from 0. Replace "
                    "infinite values, by NaN if they are unknown."
                ) from None
        raise
    return rows


def refuse_encoding(model: Any) -> None:
    """Raise ValueError if a fitted model encodes columns, which arrays do not name."""
    kinds = Recipe.of(model).kinds
    if any(kinds.values()):
        raise ValueError(
            f"The model encodes columns of text or dates: give a data frame with {listed([*kinds])}."
        )


def _is_valid(estimator: Any, X: np.ndarray) -> bool:
    """Return whether rows pass a quick check; `validate_data` takes longer than the density of one row."""
    if X.dtype not in _FLOATS or X.ndim != 2 or hasattr(estimator, "feature_names_in_"):
        return False
    if X.shape[1] != estimator.n_features_in_ or not len(X):
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(X.sum()))


# ---------------------------------------------------------------- data frames


@dataclass(frozen=True)
class InFrame(InMemory):
    """A data frame. Columns of text and categories are encoded; models apply their preparation to frames."""

    def unscaled(self) -> Rows | None:
        model = self.estimator
        return replace(self, estimator=_without_scale(model)) if hasattr(model, "preparation_") else None

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        model, names = self.estimator, names_of(self.X, unique=False)
        if not names or not len(self.X):
            raise ValueError(f"X has no {'rows' if names else 'columns'}.")
        if least is None:
            preparation, to_scale = getattr(model, "preparation_", {}), Recipe.of(model).to_scale
            frame, columns = _known_columns(model, self.X), preparation.get("columns")
            if columns is None and is_numeric(frame):
                return to_scale(validated(model, frame, names=names_of(frame)))
            columns = columns or dict.fromkeys(map(str, names_of(frame)))
            X, reader = encode_frame(frame, columns, writing_of(preparation))
            _warn_of(reader.remarks())
            return validated(for_features(model), to_scale(X), names=reader.feature_names)
        names = names_of(self.X)
        if is_numeric(self.X):
            return validated(model, self.X, least, names)
        X, reader = encode_frame(self.X)
        _warn_of(reader.remarks())
        rows = PreparedRows(X, reader.feature_names, reader.preparation)
        return Prepared(model, rows, self.y, self.sample_weight, self.name).values(least=least)


def is_numeric(frame: Any) -> bool:
    """Return whether all columns of a data frame have a numeric type."""
    return all(
        getattr(column_type, "kind", None) in ("f", "i", "u", "b") or _POLARS_NUMBER.match(str(column_type))
        for column_type in getattr(frame, "dtypes", [None])
    )


def _known_columns(model: Any, frame: Any) -> Any:
    """Return the columns of a data frame that a model was fitted to.

    As in scikit-learn, a column must not be missing and, unless columns are encoded, their order must be that
    of the fit. Models that compensate are refused.
    """
    preparation = getattr(model, "preparation_", {})
    if preparation.get("compensate", False):
        raise ValueError(
            "The model compensates for spill-over with matrices that only FCS files have. Compensate and "
            "transform X as for the fit, and give open_rows(X, compensate=False, transform=None)."
        )
    columns = preparation.get("columns")
    known = getattr(model, "feature_names_in_", None) if columns is None else list(columns)
    if known is None:
        return frame
    names = names_of(frame, unique=False)
    if columns is not None and not all(isinstance(name, str) for name in names):
        names = [str(name) for name in names]  # as encoding does
        frame = frame.set_axis(names, axis=1)
    kept = [name for name in (names if columns is None else known) if name in {*known} & {*names}]
    if len(known) == len(kept) and kept != names:
        frame = _select(frame, kept)
    names_of(frame)  # raises ValueError for repeated names
    reference = SimpleNamespace(feature_names_in_=np.array(known, dtype=object))
    try:
        _check_feature_names(reference, getattr(frame, "_meta", frame), reset=False)
    except ValueError as error:
        missing = [nearest(name, {*names} - {*known}) for name in known if name not in names]
        advice = f"{next(filter(None, missing), '')}{UNKNOWN_COLUMN if missing else ''}"
        raise ValueError(f"{error}{advice.strip()}") from None
    return frame


def _select(frame: Any, names: list[Any]) -> Any:
    return frame.select(names) if hasattr(frame, "column_names") else frame[names]


def names_of(frame: Any, *, unique: bool = True) -> list[Any]:
    """Return the names of the columns of a data frame; raise ValueError if two are equal, for `unique`."""
    names = list(getattr(frame, "column_names", frame.columns))
    for name, count in Counter(names).most_common(1):
        if count > 1 and unique:
            raise ValueError(f"{count} columns of X have the name {name!r}: rename them, or keep one.")
    return names


def _without_scale(estimator: Any) -> Any:
    """Return a copy of the estimator that encodes columns, but does not change numbers."""
    plain = copy(estimator)
    plain.preparation_ = estimator.preparation_ | {"transform": "none"}
    return plain


def in_columns(model: Any, X: FloatArray, given: Any = None) -> Any:
    """Return encoded rows (n, M), with numbers in the units of the user, as a data frame of the columns.

    If these are the rows `given` by the user, without gaps, and those are a pandas data frame, the result has
    its index and its columns without gaps.
    """
    pandas, columns = need("pandas", "Rows of a model that prepares columns need"), Recipe.of(model)
    found: dict[str, Any] = decode_columns(X, columns.kinds)
    if not isinstance(given, pandas.DataFrame):
        return pandas.DataFrame(found)
    given = _known_columns(model, given)
    with warnings.catch_warnings(action="ignore"):  # what there was to say of the rows was said before
        rows = InFrame(_without_scale(model), given, None, None, "y").values()
    for name, own in zip(found, columns.features, strict=True):
        if not np.isnan(rows[:, own]).any():
            found[name] = given[name]
    return pandas.DataFrame(found, index=given.index)


def for_features(model: Any) -> Any:
    """Return a copy of a fitted model that takes prepared rows (n, M) without names."""
    plain = copy(model)
    note_rows(plain, n_features_in_=Recipe.of(model).n_features, feature_names_in_=None, preparation_=None)
    return plain


# ---------------------------------------------------------------- rows of files in memory


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows of files in memory, with the names of their features and how these were made."""

    X: np.ndarray  # (n, M), of float64 or float32
    feature_names: list[str] | None
    preparation: Preparation | None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.X.shape[0], self.X.shape[1]

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: Any) -> PreparedRows:
        """Return some of the rows, chosen by a slice or by an array of indices or booleans."""
        return replace(self, X=self.X[rows])


def read_into_memory(source: Source) -> tuple[PreparedRows, np.ndarray | None, FloatArray | None]:
    """Return all rows of files, with their labels (n,) and weights (n,) if they have any."""
    with closing(source.blocks()) as blocks:
        found = list(blocks)
    y = np.concatenate([block.all_labels() for block in found]) if source.has_labels else None
    weights = [block.weights for block in found if block.weights is not None]
    X = np.concatenate([block.X for block in found])
    rows = PreparedRows(X, source.feature_names, source.preparation)
    return rows, y, np.concatenate(weights) if weights else None


@dataclass(frozen=True)
class Prepared(InMemory):
    """Rows of files in memory. A fit notes their names and preparation, as it does those of the files."""

    X: PreparedRows

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        rows = self.X
        if least is None:
            return validated(for_features(self.estimator), rows.X)
        X = validated(self.estimator, rows.X, least, rows.feature_names)
        _note_columns(self.estimator, X.shape[1], rows.feature_names, rows.preparation)
        return X


# ---------------------------------------------------------------- tensors


@dataclass(frozen=True)
class OnDevice(InMemory):
    """A tensor, whose rows are processed on its device."""

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        if least is None:
            refuse_encoding(self.estimator)
        if on_cpu:
            return validated(self.estimator, on_host(self.X), least)
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


# ---------------------------------------------------------------- rows in blocks


@dataclass(frozen=True)
class InBlocks(Rows):
    """Files and other sources that are read in blocks, with labels and weights."""

    X: Source

    def training(self, least: int = 2) -> Training:
        training = _training_in_blocks(self, self.X.held(), device_of(self.estimator), least)
        _warn_of(self.X.remarks())
        return training

    def scores(self, function: Callable[..., Any], *, on_cpu: bool = False) -> Any:
        model = self.estimator
        source = with_features_of(model, self.X)
        if self.y is None:
            source = source.unlabelled()
        out, start = np.empty(0), 0
        device = None if on_cpu else _device_of_scores(model)
        with closing(source.blocks()) as blocks:
            for block in blocks:
                stop = start + len(block.X)
                given = [model, sent(block.X, device)]
                if self.y is not None:
                    labels = block.all_labels()
                    if is_missing(labels).any():
                        self.labels(source.n_rows)  # raises ValueError, with the number of all such rows
                    given.append(code_labels(labels, model.classes_, len(block.X), name=self.name))
                found = on_host(function(*given))
                if not start:
                    out = np.empty((source.n_rows, *found.shape[1:]), dtype=found.dtype)
                out[start:stop] = found
                start = stop
        _warn_of(source.remarks())
        return out

    def values(self, *, least: int | None = None, on_cpu: bool = False) -> Array:
        raise ValueError(f"This needs rows in memory, but X is {self.X!r}: give an array or a data frame.")

    def with_own_labels(self) -> Rows:
        # Names of files are groups for a fit, but new files are none of its groups.
        return self if self.X.by_file or not self.X.has_labels else replace(self, y=self.X)

    def in_memory(self) -> Rows:
        source = self.X
        if hasattr(self.estimator, "n_features_in_"):
            source = with_features_of(self.estimator, source)
        X, y, weights = read_into_memory(source)
        _warn_of(source.remarks())
        return Prepared(self.estimator, X, y, weights, self.name)

    def unscaled(self) -> Rows | None:
        source = with_features_of(self.estimator, self.X)
        if source.preparation is None:
            return None
        return replace(
            self,
            estimator=_without_scale(self.estimator),
            X=replace(source, scale={"transform": "none"}),
        )

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
            weights = np.concatenate([block.row_weights for block in blocks])
        return Rows.weights(replace(self, sample_weight=weights), n_rows)


def with_features_of(model: Any, source: Source) -> Source:
    """Return a source with the features and the preparation of a fitted model; see `prepare`."""
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


def _warn_of(notes: list[ArgumentWarning]) -> None:
    for note in notes:
        warn_caller(f"{note}.")


def _training_in_blocks(rows: Rows, blocks: LabelledBlocks, device: str | None, least: int) -> Training:
    """Summarise all blocks in one pass, note their features in the estimator, and return them."""
    estimator = rows.estimator
    found, seed = _summarise(estimator, blocks, device, least)
    check_labelled(
        estimator,
        found.labels,
        "these rows have no labels. Give y, or open a file by open_rows with label=.",
    )
    classes = np.zeros(1, dtype=np.int64)
    if found.labels is not None:
        n_rows, missing = found.summary.n_rows, found.summary.n_unlabelled > 0
        classes = classes_of(found.labels, n_rows, missing=missing, name=rows.name, table=rows.table)
        classes = typed(classes) if is_column(rows.y) else classes
        # Unique labels look like regression targets.
        check_classification_targets(np.repeat(classes, 2))
    _note_columns(estimator, blocks.n_features, blocks.feature_names, blocks.preparation)
    return _coded_training(blocks, found, classes, classes, seed, device)


def _coded_training(
    blocks: LabelledBlocks,
    found: LabelSummary,
    labels: np.ndarray,
    classes: np.ndarray,
    seed: int,
    device: str | None,
) -> Training:
    """Return rows in blocks; `labels` (L,) in the blocks stand for the classes (L,)."""
    coded, summary = blocks.coded(labels), found.coded(labels)
    if device is not None and summary.gaps:
        warn_of_host("Missing values", device)
        device = None
    source = BlockRows(coded, summary, seed) if device is None else StreamedRows(coded, device, summary, seed)
    return Training(source, classes, coded)


def _summarise(
    estimator: Any, blocks: LabelledBlocks, device: str | None, least: int = 2
) -> tuple[LabelSummary, int]:
    """Return the summary of training blocks, and the seed of its sample of rows."""
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    found = summarise_labels(blocks, seed, device)
    summary = found.summary
    if summary.n_empty:
        raise ValueError(
            f"{summary.n_empty} row(s) of {blocks.name} have no value: all "
            f"{blocks.n_features} features are NaN. Remove these rows, or give them a weight of zero."
        )
    if summary.n_rows < least:
        raise ValueError(f"Found {summary.n_rows} row(s) with a weight, but at least {least} are required.")
    _refuse_empty_features(summary.moments.count == 0, summary.n_rows, blocks.feature_names)
    return found, seed


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
        return _training_in_blocks(self, blocks, None, least)

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
            X, scale = _known_columns(model, X), Recipe.of(model).to_scale
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


def computed(values: Any) -> Any:
    """Return scores or labels that are lazy or on a device as a NumPy array; others unchanged."""
    return on_host(values.compute() if is_collection(values) else values)


# ---------------------------------------------------------------- attributes of the training rows


def warn_of_ungrouped(estimator: Any, training: Training) -> None:
    """Warn if some rows of files that a mixture is fitted to have no group."""
    if isinstance(training.blocks, Source) and training.n_unlabelled and not is_classifier(estimator):
        warn_caller(
            f"{training.n_unlabelled} of {training.source.summary.n_rows} rows of {training.blocks.name} "
            "have no group: they affect the kernels, but not the weights of any group. Leave them out if "
            "that is not intended."
        )


def note_rows(estimator: Any, **attributes: Any) -> None:
    """Set attributes such as n_features_in_ in an estimator; None removes an attribute."""
    for name, value in attributes.items():
        if value is not None:
            setattr(estimator, name, value)
        elif hasattr(estimator, name):
            delattr(estimator, name)


def _note_columns(
    estimator: Any, n_features: int, names: Sequence[str] | None, preparation: Preparation | None
) -> None:
    """Note the columns of training rows, not the features that encode them, and the preparation."""
    columns = (preparation or {}).get("columns")
    if columns is not None:
        n_features, names = len(columns), list(columns)
    named = None if names is None else np.array(names, dtype=object)
    note_rows(estimator, n_features_in_=n_features, feature_names_in_=named, preparation_=preparation)


@contextmanager
def updating(estimator: Any) -> Iterator[None]:
    """Change the estimator in the body; restore the previous fit if the body raises."""
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        # Keep the attributes that scikit-learn needs to tear down the callbacks.
        callbacks = {name: attributes[name] for name in OF_CALLBACKS if name in attributes}
        attributes.clear()
        attributes.update(before | callbacks)
        raise


# ---------------------------------------------------------------- validation


def check_labelled(estimator: Any, labels: Any, advice: str = "give the labels.") -> None:
    """Refuse to fit a classifier to rows without labels."""
    if labels is None and is_classifier(estimator):
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: {advice}"
        )


def check_gaps(rows: Array, estimator: Any = None) -> None:
    """Raise ValueError for rows without any value, and in a fit of an estimator for features without any."""
    if not has_gaps(rows):
        return
    missing: Array = to_numpy(namespace(rows).isnan(rows))
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        such = f"{len(empty)} such row{'s' * (len(empty) > 1)}"
        raise ValueError(
            f"Row {empty[0]} of X has no value ({such}). Remove such rows, or give them a weight of zero."
        )
    if estimator is not None:
        _refuse_empty_features(missing.all(axis=0), len(missing), Recipe.of(estimator).names)


def _refuse_empty_features(is_empty: np.ndarray, n_rows: int, names: Sequence[str] | None) -> None:
    empty = np.flatnonzero(is_empty)
    if len(empty):
        feature = empty[0] if names is None else repr(str(names[empty[0]]))
        others = f", and so are {len(empty) - 1} other features" if len(empty) > 1 else ""
        raise ValueError(
            f"Feature {feature} of X has no value: it is NaN in all {n_rows} rows{others}. Remove features "
            "that were never observed."
        )


def warn_of_host(reason: str, device: str | None) -> None:
    """Warn that a fit runs on the host; refuse the name of a device that this machine does not have."""
    if device is not None:
        room_on(device)
    warn_caller(f"{reason}: this fit runs on the host, not on the device.")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn from the innermost line of code outside skmix and scikit-learn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("skmix", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def columns_of(X: Array, columns: list[int]) -> Array:
    """Return the chosen columns of X, without a copy if these are all columns."""
    if columns == list(range(X.shape[1])):
        return X
    return X[:, columns] if is_numpy(X) else pick(X.T, columns).T


# ---------------------------------------------------------------- devices


def device_and_precision(device: str | None) -> tuple[str | None, str]:
    """Return the name of the device, None for the CPU, and the precision of sums over rows on it."""
    if device is None:
        return None, "float64"
    name, _, precision = device.partition("/")
    precision = precision or "float64"
    if not name or precision not in _PRECISIONS:
        raise ValueError(
            f"device={device!r} is not of the form 'cuda:0' or 'cuda:0/float32'; precisions are "
            f"{', '.join(_PRECISIONS)}."
        )
    if name == "cpu" and precision != "float64":
        raise ValueError(
            f"device={device!r}: {precision} is for accelerators only; the CPU computes in float64."
        )
    return None if name == "cpu" else name, precision


def device_of(estimator: Any) -> str | None:
    """Return the name of an estimator's device, None for the CPU."""
    return device_and_precision(estimator.device)[0]


def on_device_or_host(estimator: Any, X: Any) -> Any:
    """Return an array of another library as a tensor where it is processed, else as a NumPy array.

    A tensor stays on its device if that is an accelerator, unless the estimator names another kind of device.
    Other values are returned unchanged.
    """
    if not is_device_array(X):
        return X
    found = taken_in(X)
    if is_numpy(found):
        return found
    kind, device = found.device.type, estimator.device
    if device is None:
        stays = kind != "cpu"
    else:
        name = device_and_precision(device)[0]
        stays = name is not None and name.partition(":")[0] == kind
    return found if stays else to_numpy(found)


def sent(rows: Any, device: str | None) -> Array:
    """Return complete NumPy rows on a device, if one is given; other rows unchanged."""
    return rows if device is None or not is_numpy(rows) or has_gaps(rows) else send(rows, device)


def _device_of_scores(model: Any) -> str | None:
    """Return the device for scores: that of the model, if this machine has it; None for the CPU.

    Models with t kernels are scored on the CPU.
    """
    device = device_of(model)
    return device if device is not None and not is_robust_fit(model) and _is_here(device) else None


@cache
def _is_here(device: str) -> bool:
    """Return whether this machine has a device; warn once if not, for models fitted elsewhere."""
    try:
        room_on(device)
    except (ImportError, ValueError) as error:
        warn_caller(f"{error} Rows are scored on the CPU.")
        return False
    return True
