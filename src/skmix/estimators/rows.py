"""Rows of any kind, opened once: arrays and frames, tensors, files, Dask; labels and weights."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from os import PathLike
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from .. import _version
from ..engine.compute.arrays import (
    Array,
    is_device_array,
    is_numpy,
    like,
    namespace,
    on_host,
    pick,
    room_on,
    send,
    taken_in,
    to_numpy,
)
from ..engine.compute.blocks import Block, Blocks, encode, is_blocks, is_missing, number
from ..engine.compute.dask import check_kind, is_collection, map_rows, open_collections
from ..engine.estep.gaps import has_gaps
from ..engine.model import FloatArray, IntArray
from ..engine.sources import RowSource, open_source
from ..engine.sources.blocks import BlockRows, summarise_blocks
from ..engine.sources.streamed import PIECE_BYTES, StreamedRows
from ..engine.sources.summary import Summary
from ..io import (
    Source,
    encode_frame,
    files_of,
    is_elsewhere,
    labels_like,
    open_rows,
    prepare,
    read_rows,
    source_of,
)
from ..io.encoding import rescale_numbers
from ..io.joined import JoinedRows
from ..io.labels import as_integers
from ..io.preparation import OTHER, transformer_of
from ..io.sources import labels_in
from ._settings import is_robust, is_robust_fit

_FLOATS = [np.dtype(np.float64), np.dtype(np.float32)]
_PRECISIONS = ("float64", "float32", "tf32")
OF_ROWS = ("n_features_in_", "feature_names_in_", "table_columns_", "preparation_")
"""Attributes of an estimator that say what its rows were, and how they are prepared."""
# Where scikit-learn notes the callbacks of a running fit.
_OF_CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")


Sender = Callable[[np.ndarray], Array]
"""From NumPy rows (n, M) to the same rows where they are worked on."""

# ---------------------------------------------------------------- training rows


@dataclass(frozen=True)
class Training:
    """Validated rows to learn from, wherever they are."""

    source: RowSource
    classes: np.ndarray  # (L,): the labels behind the class codes
    blocks: Blocks | None = None  # rows that are not in memory

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.source.n_features

    @property
    def sizes(self) -> FloatArray:
        """Number (L,) of labelled rows of each class, or the sum of their weights."""
        return self.source.summary.class_sizes(len(self.classes))

    @property
    def class_prior(self) -> FloatArray:
        """Share (L,) of each class among the labelled rows."""
        return self.sizes / self.sizes.sum()

    @property
    def n_unlabelled(self) -> int:
        """Number of rows without a label."""
        return int(self.source.summary.counts[0])

    def take(self, columns: list[int], group: int) -> Training:
        """Return the rows with a value in a group's columns; each class must have one, and each column."""
        if columns == list(range(self.n_features)):
            return self
        taken = replace(self, source=self.source.take(columns))
        empty = np.flatnonzero(taken.source.summary.moments.count == 0)
        if len(empty):
            raise ValueError(f"Feature {columns[empty[0]]} of X has no value: it is NaN in all rows.")
        absent = np.flatnonzero(taken.sizes == 0)
        if len(absent):
            raise ValueError(
                f"No row of class {self.classes[absent[0]]!r} has a value in feature set {group}, columns "
                f"{columns}."
            )
        return taken


def open_training(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, name: str = "y", least: int = 2
) -> Training:
    """Open training rows of any kind, read their labels, and note the features in the estimator.

    At least `least` rows are needed. Without labels there is one class; a classifier needs labels. Errors
    call the argument of the labels by its name.
    """
    device = device_and_precision(estimator.device)[0]
    plain = all(each is None or type(each) is np.ndarray for each in (X, y, sample_weight))
    blocks = None if plain else _open_blocks(X, y, sample_weight, name)
    if blocks is not None:
        if device is not None and not hasattr(blocks, "blocks"):
            raise ValueError(
                f"device={estimator.device!r} needs rows in memory or in a file; Dask collections are worked "
                "on by the CPUs of their cluster. Leave device out."
            )
        return _training_in_blocks(estimator, blocks, device, name, least, typed=_is_column(y))
    _check_labelled(estimator, y)
    rows = check_rows(estimator, where_dispatched(estimator, X), fitting=True, least=least)
    classes, codes = np.zeros(1, dtype=np.int64), np.zeros(rows.shape[0], dtype=np.int64)
    if y is not None:
        classes, codes = number_labels(read_labels(on_host(y), rows.shape[0], name), name)
    weights = check_weights(on_host(sample_weight), rows.shape[0])
    rows, classes, codes, weights = weighted_rows(rows, classes, codes, weights)
    # The product form with unlabelled rows works on the host, and so do t kernels and a background.
    jointly = bool(getattr(estimator, "feature_sets", None)) and bool(np.any(codes < 0))
    here = jointly or is_robust(estimator)
    if here and (is_device_array(rows) or device is not None):
        why = "Rows without a label and several feature_sets" if jointly else "t kernels or a background"
        warn_caller(f"{why}: this fit runs on the host, not on the device.")
    if is_device_array(rows):
        rows = to_numpy(rows) if here else rows
    elif device is not None and not here:
        if not fits_on(rows, device):
            return _training_streamed(estimator, rows, classes, None if y is None else codes, weights, device)
        else:
            rows = send(rows, device)
    source = open_source(rows, None if y is None else codes, weights)
    if source.summary.gaps:
        check_gaps(rows)
    return Training(source, classes)


def note_preparation(estimator: Any, training: Training, X: Any) -> None:
    """Keep in the estimator how rows X were prepared, and warn of rows whose group is missing.

    A warm start goes on with the preparation of the last fit, and refuses rows of another one.
    """
    source = training.blocks if isinstance(training.blocks, Source) else None
    found = None if source is None else source.preparation
    if estimator.warm_start and "class_prior_" in vars(estimator):
        last = vars(estimator).get("preparation_")
        is_raw = is_frame(X) if source is None else "transform" in source.automatic
        if found is None and not is_raw:
            found = last  # arrays, and what was opened as it is, are taken as prepared already
        if found != last:
            words = ["unprepared" if each is None else f"prepared by {each}" for each in (last, found)]
            raise ValueError(
                f"warm_start=True goes on with the last fit, whose rows were {words[0]}, but these are "
                f"{words[1]}. Open them by open_rows as for the last fit, or set warm_start=False."
            )
    note_rows(estimator, preparation_=found)
    if source is not None and training.n_unlabelled and not is_classifier(estimator):
        warn_caller(
            f"{training.n_unlabelled} of {training.source.summary.n_rows} rows of {source.name} have no "
            "group: they shape the kernels, but no group's weights. Leave them out if they should not."
        )


def note_rows(estimator: Any, **found: Any) -> None:
    """Keep in the estimator what is known of its rows, some of `OF_ROWS`; None forgets one."""
    vars(estimator).update(found)
    for name in [name for name, value in found.items() if value is None]:
        del vars(estimator)[name]


def _check_labelled(estimator: Any, labels: Any, advice: str = "give the labels.") -> None:
    if labels is None and is_classifier(estimator):
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: {advice}"
        )


def _open_blocks(X: Any, y: Any, sample_weight: Any, name: str) -> Blocks | None:
    """Return training rows that come in blocks; None for rows in memory."""
    source = source_of(X, y)
    if source is not None:
        source = source if y is None else source.labelled(y)
        return source if sample_weight is None else source.weighted(sample_weight)
    if is_blocks(X):
        if y is not None or sample_weight is not None:
            raise ValueError(
                f"Blocks of rows hold their labels and weights: leave {name} and sample_weight out."
            )
        return X
    beside = {name: y, "sample_weight": sample_weight}
    refuse_paths(X, **beside)
    if is_collection(X):
        return open_collections(X, y, sample_weight, _version.__version__)
    for argument, given in beside.items():
        if is_collection(given):
            raise ValueError(
                f"{argument} is a Dask collection, but X is a {type(X).__name__} in memory. Give both as "
                f"Dask collections, or {argument}.compute()."
            )
    return None


def _training_in_blocks(
    estimator: Any, blocks: Blocks, device: str | None, name: str, least: int, *, typed: bool
) -> Training:
    """Summarise all blocks, in one pass; `typed` is whether whole numbers among the labels are integers."""
    found, seed = _summarise(estimator, blocks, device, least)
    _check_labelled(
        estimator,
        found.labels,
        "these rows have no labels. Give y, or open a file by open_rows with label=.",
    )
    classes = np.zeros(1, dtype=np.int64)
    if found.labels is not None:
        classes = classes_of(found.labels, found.n_rows, missing=found.counts[0] > 0, name=name)
        classes = _typed(classes) if typed else classes
        # Labels of which each occurs once would be taken for numbers to predict.
        check_classification_targets(np.repeat(classes, 2))
    estimator.n_features_in_ = blocks.n_features
    for attribute in ("feature_names_in_", "table_columns_"):
        vars(estimator).pop(attribute, None)
    if blocks.feature_names is not None:
        estimator.feature_names_in_ = np.array(blocks.feature_names, dtype=object)
    return _in_blocks(blocks, found, classes, classes, seed, device)


def _training_streamed(
    estimator: Any, rows: np.ndarray, classes: np.ndarray, codes: Any, weights: Any, device: str
) -> Training:
    """Return validated rows that a device has no room for, in blocks."""
    blocks = open_rows(rows, label=codes, weight=weights, chunk_rows=max(1, PIECE_BYTES // rows[:1].nbytes))
    found, seed = _summarise(estimator, blocks, device)
    return _in_blocks(blocks, found, np.arange(len(classes)), classes, seed, device)


def _in_blocks(
    blocks: Blocks, found: Summary, names: np.ndarray, classes: np.ndarray, seed: int, device: str | None
) -> Training:
    """Return rows in blocks whose labels are the `names` (L,) of the classes (L,)."""
    coded, summary = blocks.coded(names), found.coded(names)
    source = BlockRows(coded, summary, seed) if device is None else StreamedRows(coded, device, summary, seed)
    return Training(source, classes, coded)


def _summarise(estimator: Any, blocks: Blocks, device: str | None, least: int = 2) -> tuple[Summary, int]:
    """Return the summary of blocks to learn from, and the seed of its sample."""
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    found = summarise_blocks(blocks, seed, device)
    if found.n_empty:
        raise ValueError(
            f"{_first_empty(blocks)} has no value: all {blocks.n_features} features are NaN "
            f"({found.n_empty} such rows). Remove these rows, or give them a weight of zero."
        )
    if found.n_rows < least:
        raise ValueError(f"Found {found.n_rows} row(s) with a weight, but at least {least} are required.")
    _refuse_empty_features(found.moments.count == 0, found.n_rows)
    return found, seed


def _first_empty(blocks: Blocks) -> str:
    """Return which row of which file is the first without a value; there is one."""
    if not isinstance(blocks, Source):
        return "A row of X"
    first, name = 0, blocks.name
    with closing(blocks.blocks()) as each:
        for block in each:
            empty = np.isnan(block.X).all(axis=1)
            if block.weights is not None:
                empty &= block.weights > 0
            if empty.any():
                first += int(empty.argmax())
                break
            first += len(block.X)
    for part in blocks.parts.values() if isinstance(blocks, JoinedRows) else ():
        if first < part.n_rows:
            name = part.name
            break
        first -= part.n_rows
    return f"Row {first} of {name}, counted from 0,"


def columns_of(X: Array, columns: list[int]) -> Array:
    """Return the chosen columns of X, without a copy when they are all of it."""
    if columns == list(range(X.shape[1])):
        return X
    return X[:, columns] if is_numpy(X) else pick(X.T, columns).T


# ---------------------------------------------------------------- validation


@contextmanager
def updating(estimator: Any, X: Any = None) -> Iterator[None]:
    """Change the estimator in the body, or leave it as it was when the body raises.

    In the body its arrays are NumPy's; afterwards they are of the library and device of X where that is an
    array of another library, or else of what they were before.
    """
    before = dict(vars(estimator))
    home = taken_in(X) if _is_dispatched(estimator, X) else before.get("class_prior_")
    try:
        vars(estimator).update(vars(host_copy(estimator)))
        yield
    except BaseException:
        # scikit-learn has still to tear the callbacks down, by what it noted in the estimator.
        noted = {name: value for name, value in vars(estimator).items() if name in _OF_CALLBACKS}
        vars(estimator).clear()
        vars(estimator).update(before | noted)
        raise
    if is_device_array(home):
        _hand_out(estimator, home)


def refuse_blocks(X: Any) -> None:
    """Refuse files and Dask collections where rows are needed in memory."""
    if is_collection(X):
        raise ValueError(
            f"This needs rows in memory, but X is a Dask {type(X).__name__}: give X.compute(), or a sample "
            "of its rows where they are too many."
        )
    if is_elsewhere(X):
        name = repr(X) if isinstance(X, (str, PathLike, Source)) else f"a {type(X).__name__}"
        raise ValueError(
            f"This needs rows in memory, but X is {name}: read some of its rows, and give them as an array."
        )


def refuse_paths(X: Any, **beside: Any) -> None:
    """Refuse paths or names of columns beside rows that are not in a file; arguments go by their names."""
    for name, given in beside.items():
        if isinstance(given, (str, PathLike)):
            raise ValueError(
                f"{name} is {str(given)!r}, a path or the name of a column, which goes with a file; but X is "
                f"a {type(X).__name__}. Give {name} as an array, or X as a path or by open_rows."
            )


def check_rows(estimator: Any, X: Any, *, fitting: bool, least: int = 2) -> Array:
    """Return rows (n, M) of floats in which NaN means missing, where they are.

    When `fitting`, at least `least` rows are needed, and the estimator notes the features.
    """
    scale = None
    if fitting:
        vars(estimator).pop("table_columns_", None)
    if type(X) is np.ndarray:
        if not fitting and _is_valid(estimator, X):
            return X
    elif not fitting and is_encoded(estimator, X):
        X, estimator = encoded(estimator, X)[0], without_names(estimator)
    elif not fitting and is_frame(X):
        scale = _scale_of_frames(estimator)
    elif is_device_array(X):
        return _check_device_rows(estimator, X, fitting=fitting, least=least if fitting else 1)
    else:
        refuse_blocks(X)
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
    rows = validate_data(
        estimator,
        X,
        dtype=_FLOATS,
        ensure_all_finite="allow-nan",
        ensure_min_samples=least if fitting else 1,
        reset=fitting,
    )
    return rows if scale is None else scale.transform(rows)


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame, whose columns have names: of pandas, polars, Dask and others."""
    return hasattr(X, "columns") and not isinstance(X, Source)


def _scale_of_frames(model: Any) -> Any:
    """Return the transformer that a fitted model applies to data frames, as to files; None without one."""
    own = vars(model).get("preparation_")
    if own is None:
        return None
    advice = "Prepare X as for the fit, and give open_rows(X, compensate=False, transform=None)."
    if own.get("compensate", False):
        raise ValueError(
            f"The model compensates for spill-over, by matrices that only FCS files have. {advice}"
        )
    if own["transform"] == OTHER:
        raise ValueError(f"The model was fitted to rows of a transformer that it does not keep. {advice}")
    return transformer_of(own["transform"])


def is_encoded(estimator: Any, X: Any) -> bool:
    """Return whether X is a frame or files with the columns that a fitted model's features were made of."""
    return "table_columns_" in vars(estimator) and (_is_files(X) or is_frame(X))


def _is_files(X: Any) -> bool:
    return isinstance(X, (str, PathLike, list)) and is_elsewhere(X)


def encoded(estimator: Any, X: Any, y: Any = None) -> tuple[FloatArray, Any]:
    """Return the features (n, M) of a frame or of files, of which some columns hold categories or dates.

    Also returns labels y (n,), which may be the name of a column of the files.
    """
    columns = estimator.table_columns_
    missing = vars(estimator).get("metadata_", {}).get("missing") or ()
    if not _is_files(X):
        rows, notes = encode_frame(X, columns, missing)
        rescale_numbers(rows, columns, _scale_of_frames(estimator))
    else:
        target, parts = y if isinstance(y, str) else None, []
        for path in files_of(X) or [X]:
            preparation = vars(estimator).get("preparation_")
            parts.append(
                read_rows(path, features=columns, target=target, missing=missing, preparation=preparation)
            )
        rows = np.concatenate([part.X for part in parts])
        notes = [each for part in parts for each in part.notes]
        if target is not None:
            values = [label for part in parts for label in part.labels or ()]
            y, known = labels_like(values, on_host(estimator.classes_), target)
            if not known.all():
                raise ValueError(f"Column {target!r} has no label in {np.sum(~known)} of {len(known)} rows.")
    for note in dict.fromkeys(notes):
        warn_caller(f"{note}.")
    return rows, y


def from_files(model: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """Read files that a model encodes: return the model for rows without names, the rows and their labels.

    Anything else is returned as it is.
    """
    if not (is_encoded(model, X) and _is_files(X)):
        return model, X, y
    return without_names(model), *encoded(model, X, y)


def _is_valid(estimator: Any, X: np.ndarray) -> bool:
    """Return whether rows need no further look: `validate_data` takes longer than one row's densities."""
    if X.dtype not in _FLOATS or X.ndim != 2 or "feature_names_in_" in vars(estimator):
        return False
    if X.shape[1] != estimator.n_features_in_ or not len(X):
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(X.sum()))


def _check_device_rows(estimator: Any, X: Array, *, fitting: bool, least: int) -> Array:
    """Return rows (n, M) of another library, of floats without infinities, where they are."""
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected a 2D array of rows, got {X.ndim} dimension(s) instead.")
    if X.shape[0] < least or X.shape[1] < 1:
        raise ValueError(f"Found array of shape {tuple(X.shape)}; at least {least} row(s) are needed.")
    if X.dtype not in (xp.float64, xp.float32):
        if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
            raise ValueError(f"X must be of real numbers, got {X.dtype}.")
        X = xp.astype(X, xp.float64)
    # A sum over rows is finite when all of them are, and costs one read.
    finite = bool(xp.all(xp.isfinite(xp.sum(X, axis=0, dtype=xp.float64))))
    if not finite and bool(xp.any(xp.isinf(X))):
        raise ValueError("Input X contains infinity or a value too large for its type.")
    if fitting:
        vars(estimator).pop("feature_names_in_", None)
    _check_n_features(estimator, X, reset=fitting)
    return X


def check_gaps(rows: Array, *, features: bool = True) -> None:
    """Refuse training rows that have no value at all and, unless told otherwise, such features."""
    if not has_gaps(rows):
        return
    missing: Array = to_numpy(namespace(rows).isnan(rows))
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        raise ValueError(
            f"Row {empty[0]} of X has no value: all {rows.shape[1]} features are NaN "
            f"({len(empty)} such rows). Remove these rows, or give them a weight of zero."
        )
    if features:
        _refuse_empty_features(missing.all(axis=0), len(missing))


def _refuse_empty_features(is_empty: np.ndarray, n_rows: int) -> None:
    empty = np.flatnonzero(is_empty)
    if len(empty):
        raise ValueError(
            f"Feature {empty[0]} of X has no value: it is NaN in all {n_rows} rows "
            f"({len(empty)} such features). Remove features that were never observed."
        )


def check_weights(sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Return row weights (n,), not negative and not all zero; None when none were given."""
    if sample_weight is None:
        return None
    weights: FloatArray = _check_sample_weight(
        sample_weight, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():  # older scikit-learn lets them pass
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def weighted_rows(
    rows: Array, classes: np.ndarray, codes: IntArray, weights: FloatArray | None
) -> tuple[Array, np.ndarray, IntArray, FloatArray | None]:
    """Leave out rows of weight zero, and labels that no other row has."""
    if weights is None or weights.all():
        return rows, classes, codes, weights
    kept = np.flatnonzero(weights)
    present, codes = np.unique(codes[kept], return_inverse=True)
    if present[0] == -1:
        present, codes = present[1:], codes - 1
    if not len(present):
        raise ValueError("sample_weight is zero for every row that has a label.")
    return pick(rows, kept), classes[present], codes, weights[kept]


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the innermost line that is neither ours nor scikit-learn's."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("skmix", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# ---------------------------------------------------------------- labels


def read_labels(y: Any, n_rows: int, name: str = "y") -> np.ndarray:
    """Return labels (n,), checked for their shape and type; `name` is for errors.

    Arrays and lists keep their type. A column of a frame has the labels of a column of a file: whole numbers,
    truths or text.
    """
    if isinstance(y, list) and {str, float} == {type(label) for label in y if label is not None}:
        labels = np.array(y, dtype=object)
        y = labels if is_missing(labels).any() else y  # NumPy would make text of NaN
    if is_column := _is_column(y):
        y = np.asarray(y)  # scikit-learn makes numbers of truths among which some are missing
    labels = column_or_1d(y, warn=True)
    if len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows but {name} has {len(labels)} labels.")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(
            f"Input {name} contains infinity or a value too large for {labels.dtype!r}: labels are finite."
        )
    known = labels[~is_missing(labels)]
    if labels.dtype.kind == "O" and len(known) < len(labels):
        known = np.array(known.tolist())
    if len(known):
        check_classification_targets(known)
    return _typed(labels) if is_column and len(known) == len(labels) > 0 else labels


def _is_column(y: Any) -> bool:
    """Return whether labels are a column of a data frame, of pandas, polars, Dask and others."""
    return not isinstance(y, np.ndarray) and (hasattr(y, "to_numpy") or hasattr(y, "to_frame") or is_frame(y))


def classes_of(found: np.ndarray, n_rows: int, *, missing: bool, name: str = "y") -> np.ndarray:
    """Return which of the sorted labels (C,) of all rows are classes; `missing`: others are NaN or None.

    As in scikit-learn's `semi_supervised`, the number −1 marks rows without a label, unless NaN or None do.
    −1 and one other label are the two classes of a binary problem. Where −1 may as well be a class, nothing
    is guessed.
    """
    if not len(found):
        raise ValueError(f"All {n_rows} rows are unlabelled. Give some of them a label.")
    if missing:
        return _typed(found)
    if found.dtype.kind not in "if" or -1 not in found or len(found) == 2:
        return found
    others = found[found != -1]
    if not len(others):
        raise ValueError(f"All {n_rows} rows are unlabelled ({name} is -1 everywhere). Label some of them.")
    if others[0] < -1 or others.tolist() == [0, 1]:
        raise ValueError(
            f"{name} has the labels {found[:5].tolist()}: -1 marks rows without a label, but may be a class "
            f"here. If it is a class, give the labels as text, {name}.astype(str). If these rows have no "
            f"label, mark them by NaN or None, numpy.where({name} == -1, numpy.nan, {name})."
        )
    return others


def _typed(labels: np.ndarray) -> np.ndarray:
    """Return labels (n,), none of them missing, as integers, truths or text.

    None and data frames make objects of text and numbers, and NaN makes floats of whole numbers.
    """
    return as_integers(np.array(labels.tolist()) if labels.dtype.kind == "O" else labels)


def number_labels(labels: np.ndarray, name: str = "y") -> tuple[np.ndarray, IntArray]:
    """Return the classes (L,), sorted, and each label (n,) as an index into them, −1 for rows without one."""
    found, codes = number(labels)
    classes = classes_of(found, len(labels), missing=bool(np.any(codes < 0)), name=name)
    # Where −1 is not a class, it is the first label.
    return classes, codes - (len(found) - len(classes))


def code_labels(
    y: Any, classes: np.ndarray, n_rows: int, *, unlabelled: bool = False, name: str = "y"
) -> IntArray:
    """Return labels as indices into the classes of a fit; refuse other labels.

    With `unlabelled`, rows may have no label: NaN, None, or −1 where that is not a class. Errors call the
    argument of the labels by its name.
    """
    labels = read_labels(y, n_rows, name)
    missing = is_missing(labels)
    if unlabelled and labels.dtype.kind in "if" and -1 not in classes:
        missing = missing | (labels == -1)
    try:
        unknown = np.setdiff1d(labels[~missing], classes)
        if not unlabelled and missing.any():
            unknown = labels[missing]
    except TypeError as error:
        raise ValueError(
            f"{name} has labels that cannot be compared with those of the fit: {error}."
        ) from None
    if len(unknown):
        raise ValueError(
            f"{name} has labels that no training row had: {unknown[:5].tolist()}; known are "
            f"{classes.tolist()}."
        )
    return encode(labels, classes).astype(np.int64)


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
        raise ValueError(f"device={device!r}: {precision} is for accelerators; the CPU computes in float64.")
    return None if name == "cpu" else name, precision


def _is_dispatched(estimator: Any, X: Any) -> bool:
    """Return whether X is an array of another library whose kind results are to have."""
    return is_device_array(X) and bool(get_config()["array_api_dispatch"] or estimator.device is not None)


def where_dispatched(estimator: Any, X: Any) -> Any:
    """Return X where it is if results are to have its kind, otherwise on the host."""
    return taken_in(X) if _is_dispatched(estimator, X) else on_host(X)


def sender(estimator: Any, X: Any) -> Sender:
    """Return what turns NumPy rows into arrays of the library and device of X where results have its kind."""
    home = where_dispatched(estimator, X)
    return (lambda rows: like(rows, home)) if is_device_array(home) else (lambda rows: rows)


def fits_on(rows: np.ndarray, device: str) -> bool:
    """Return whether a device has room for rows; complete ones among those with gaps are there twice."""
    room = room_on(device)
    return 2 * rows.nbytes <= room or (rows.nbytes <= room and not has_gaps(rows))


def sent(model: Any, rows: Any) -> Array:
    """Return NumPy rows on the model's device, if it has one; other rows as they are."""
    device = device_and_precision(model.device)[0]
    return rows if device is None or not is_numpy(rows) else send(rows, device)


def _device_of_scores(model: Any) -> str | None:
    """Return the device that rows are sent to for scores: the model's, if this machine has it."""
    device = device_and_precision(model.device)[0]
    return device if device is not None and _is_here(device) else None


@cache
def _is_here(device: str) -> bool:
    """Return whether this machine has a device; warn once if not, as of a model fitted elsewhere."""
    try:
        room_on(device)
    except (ImportError, ValueError) as error:
        warn_caller(f"{error} Rows are scored on the CPU.")
        return False
    return True


def host_copy(estimator: Any) -> Any:
    """Return the estimator, or a copy of it whose arrays are NumPy's."""
    if not is_device_array(vars(estimator).get("class_prior_")):
        return estimator
    other = copy(estimator)
    for name, value in vars(estimator).items():
        if is_device_array(value):
            setattr(other, name, to_numpy(value))
    if "models_" in vars(estimator):
        other.models_ = [host_copy(model) for model in estimator.models_]
    return other


def without_names(estimator: Any) -> Any:
    """Return a copy of the estimator that does not know names of features, for rows that have none."""
    other = copy(estimator)
    vars(other).pop("feature_names_in_", None)
    return other


def _hand_out(estimator: Any, home: Array) -> None:
    """Turn what an estimator has learnt into arrays of the library and device of `home`."""
    for name, value in vars(estimator).items():
        if name.endswith("_") and is_numpy(value):
            setattr(estimator, name, _in_kind(value, home))
    for model in vars(estimator).get("models_", ()):
        _hand_out(model, home)


def _in_kind(result: Any, home: Any) -> Any:
    """Return numbers as an array of the library and device of `home`; text and NumPy's as they are."""
    if home is None:
        return on_host(result)
    if isinstance(result, np.ndarray) and result.dtype.kind in "fiub":
        return like(result, home)
    return result


# ---------------------------------------------------------------- scoring


def score_rows(
    estimator: Any,
    X: Any,
    function: Callable[..., Any],
    y: Any = None,
    *,
    on_cpu: bool = False,
    name: str = "y",
) -> Any:
    """Return ``function(model, rows, codes)`` for rows of any kind, as an array of the kind of the rows.

    Rows of a file are read in blocks, and for a Dask collection the result is a lazy Dask array. The function
    is one of a module; it takes the estimator with NumPy arrays, validated rows (n, M) and, when labels are
    given, their classes (n,), and returns an array (n, …). It needs NumPy rows where `on_cpu`. Errors call
    the argument of the labels by its name.
    """
    if "class_prior_" not in vars(estimator):
        check_is_fitted(estimator)
    model, on_cpu = host_copy(estimator), on_cpu or is_robust_fit(estimator)
    if type(X) is not np.ndarray:
        model, X, y = from_files(model, X, y)
        if is_collection(X):
            return _score_lazily(model, X, function, y, name)
        source = source_of(X, y)
        if source is not None:
            return _score_blocks(model, source, function, y, name, on_cpu=on_cpu)
    refuse_paths(X, **{name: y})
    home = taken_in(X) if _is_dispatched(estimator, X) else None
    rows = check_rows(model, on_host(X) if home is None or on_cpu else home, fitting=False)
    device = None if on_cpu or not is_numpy(rows) else _device_of_scores(estimator)
    if device is not None:
        if not fits_on(rows, device):
            return _score_blocks(model, open_rows(rows), function, on_host(y), name)
        rows = send(rows, device)
    codes = () if y is None else (code_labels(on_host(y), model.classes_, rows.shape[0], name=name),)
    return _in_kind(function(model, rows, *codes), home)


def _score_blocks(
    model: Any, source: Source, function: Callable[..., Any], y: Any, name: str, *, on_cpu: bool = False
) -> Any:
    """Return the results of all blocks of a file in one array."""
    rows = with_features_of(model, source.unlabelled())
    rows = rows if y is None else rows.labelled(y)
    out, start = np.empty(0), 0
    device = None if on_cpu else _device_of_scores(model)
    with closing(rows.blocks()) as blocks:
        for block in blocks:
            stop = start + len(block.X)
            block.check()
            given = [model, block.X if device is None else send(block.X, device)]
            if y is not None:
                given.append(code_labels(labels_in(block), model.classes_, len(block.X), name=name))
            part = on_host(function(*given))
            if not start:
                out = np.empty((rows.n_rows, *part.shape[1:]), dtype=part.dtype)
            out[start:stop] = part
            start = stop
    return out


def prepared_frame(model: Any, X: Any) -> Any:
    """Return the rows (n, M) of a data frame, prepared as for the fit of a model; lazily those of Dask.

    Anything else is returned as it is, and so are frames where the model has no preparation.
    """
    if not (is_frame(X) and "preparation_" in vars(model)):
        return X
    return score_rows(model, X, _unchanged, on_cpu=True)


def _unchanged(model: Any, rows: np.ndarray) -> np.ndarray:
    return rows


def rows_of(model: Any, source: Source) -> FloatArray:
    """Return the rows (n, M) of a file with the features of a fitted model, in memory."""
    with closing(with_features_of(model, source.unlabelled()).blocks()) as blocks:
        return np.concatenate([block.X for block in blocks])


def with_features_of(model: Any, source: Source) -> Source:
    """Return rows with the features and the preparation of a fitted model; see `prepare`."""
    names = getattr(model, "feature_names_in_", None)
    if any(kind is not None for kind in vars(model).get("table_columns_", {}).values()):
        raise ValueError(
            f"The model has features made of categories or dates, but {source.name} is read in blocks of "
            "numbers: give the path of the table alone, or a data frame."
        )
    source = prepare(source, vars(model).get("preparation_"), names)
    if source.n_features != model.n_features_in_:
        raise ValueError(_wrong_features(model, source.n_features, f": {source.name}"))
    return source


def _wrong_features(model: Any, n_features: int, where: str = "") -> str:
    return (
        f"X has {n_features} features, but {type(model).__name__} is expecting {model.n_features_in_} "
        f"features as input{where}."
    )


def _score_lazily(model: Any, X: Any, function: Callable[..., Any], y: Any, name: str) -> Any:
    """Return a Dask array of the results, in the blocks of X."""
    check_kind(X, "X")
    if X.ndim == 2 and X.shape[1] != model.n_features_in_:
        raise ValueError(_wrong_features(model, X.shape[1]))
    _check_feature_names(model, getattr(X, "_meta", X), reset=False)
    ask = partial(_score_block, model, function, name, _scale_of_frames(model) if is_frame(X) else None)
    # The result for one row has the type and width of all.
    sample = np.zeros((1, model.n_features_in_))
    shown = ask(sample) if y is None else ask(sample, model.classes_[:1])
    return map_rows(X, ask, shown.shape[1] if shown.ndim == 2 else None, shown.dtype, y)


def _score_block(
    model: Any, function: Callable[..., Any], name: str, scale: Any, rows: np.ndarray, *y: np.ndarray
) -> np.ndarray:
    Block(rows).check()
    rows = rows if scale is None else scale.transform(rows)
    codes = (code_labels(each, model.classes_, len(rows), name=name) for each in y)
    return np.asarray(function(model, rows, *codes))
