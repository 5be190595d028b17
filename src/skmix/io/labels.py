"""Labels: what those of a column are, which of them are classes, and their codes.

Labels come back as they were given. A column of a file or a frame has whole numbers, booleans or text. NaN
and None mark rows without a label and, as in scikit-learn's `semi_supervised`, so does the number −1 where it
cannot be a class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.compute.blocks import distinct_labels, encode, is_missing
from .encoding import BOOLEANS, WHOLE, ColumnError, is_number, listed, plain_text

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# A column with more fractional values than this holds a quantity, not classes.
_MOST_FRACTIONS = 10
# So does one with more distinct values than this, if they have fewer than two rows each on average.
_MOST_LABELS_OF_FEW_ROWS = 20


# ---------------------------------------------------------------- labels of arrays and frames


def read_labels(y: Any, n_rows: int, name: str = "y") -> np.ndarray:
    """Return labels (n,) after a check of their number, shape and type; errors call them by `name`.

    Arrays and lists keep their type. A column of a frame has the labels of a column of a file: whole numbers,
    booleans or text.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    if isinstance(y, list) and {str, float} == {type(label) for label in y if label is not None}:
        labels = np.array(y, dtype=object)
        y = labels if is_missing(labels).any() else y  # NumPy would turn NaN into text
    if of_frame := is_column(y):
        y = np.asarray(y)  # scikit-learn would turn booleans into numbers if some are missing
    labels = column_or_1d(y, warn=True)
    check_length(len(labels), n_rows, name, "labels")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(
            f"Input {name} contains infinity or a value too large for {labels.dtype!r}: labels are finite."
        )
    known = labels[~is_missing(labels)]
    if labels.dtype.kind == "O" and len(known) < len(labels):
        known = np.array(known.tolist())
    if len(known):
        check_classification_targets(known)
    return typed(labels) if of_frame and len(known) == len(labels) > 0 else labels


def check_length(n_given: int, n_rows: int, name: str, what: str) -> None:
    """Refuse labels or weights that are not one for each row."""
    if n_given != n_rows:
        raise ValueError(f"X has {n_rows} rows but {name} has {n_given} {what}.")


def is_column(y: Any) -> bool:
    """Return whether labels are a column of a data frame, of pandas, polars, Dask and others."""
    return not isinstance(y, np.ndarray) and any(
        hasattr(y, each) for each in ("to_numpy", "to_frame", "columns")
    )


def typed(labels: np.ndarray) -> np.ndarray:
    """Return labels (n,), none of them missing, as integers, booleans or text.

    None and data frames force dtype object, and NaN turns whole numbers into floats.
    """
    return as_integers(np.array(labels.tolist()) if labels.dtype.kind == "O" else labels)


def as_integers(labels: np.ndarray) -> np.ndarray:
    """Return labels (n,) that are whole numbers as integers unless they are too large; others as they are."""
    is_whole = labels.dtype.kind == "f" and np.all((labels == np.rint(labels)) & (np.abs(labels) < 2**53))
    return labels.astype(np.int64) if is_whole else labels


# ---------------------------------------------------------------- classes and codes


def classes_of(found: np.ndarray, n_rows: int, *, missing: bool, name: str = "y") -> np.ndarray:
    """Return which of the sorted labels (C,) of all rows are classes; `missing`: others are NaN or None.

    The number −1 marks rows without a label, unless NaN or None do. −1 and one other label are the two
    classes of a binary problem. Where −1 may as well be a class, the labels are refused.
    """
    if not len(found):
        raise ValueError(f"All {n_rows} rows are unlabelled. Give some of them a label.")
    if missing:
        return typed(found)
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


def number_labels(labels: np.ndarray, name: str = "y") -> tuple[np.ndarray, IntArray]:
    """Return the classes (L,), sorted, and each label (n,) as an index into them, −1 for rows without one."""
    found, codes = distinct_labels(labels)
    classes = classes_of(found, len(labels), missing=bool(np.any(codes < 0)), name=name)
    # Where −1 is not a class, it is the first label.
    return classes, codes - (len(found) - len(classes))


def code_labels(
    y: Any, classes: np.ndarray, n_rows: int, *, unlabelled: bool = False, name: str = "y"
) -> IntArray:
    """Return labels as indices (n,) into the classes (L,) of a fit; refuse other labels.

    With `unlabelled`, rows may have no label: NaN, None, or −1 where that is not a class.
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


# ---------------------------------------------------------------- labels of columns


def reader_of(words: Collection[str], name: str) -> Callable[[str], Any]:
    """Return the function from a label's text to the label, given all texts of a column of labels.

    Whole numbers with leading zeros are identifiers and stay text; blanks around text do not count. Raises
    ColumnError if all labels are numbers, but not all of them are whole.
    """
    plain = [str(plain_text(word)) for word in words]
    if all(WHOLE.fullmatch(word) for word in plain):
        return lambda word: int(str(plain_text(word)))
    if all(word.lower() in BOOLEANS for word in plain):
        return lambda word: word.strip().lower() == "true"
    if all(map(is_number, plain)):
        _refuse_fractions(map(float, plain), name)
    return str.strip


def _refuse_fractions(labels: Iterable[float], name: str) -> None:
    """Raise ColumnError if one of the numbers in a column of labels is not whole, as of a quantity."""
    wrong = [label for label in labels if not float(label).is_integer()]
    if wrong:
        raise ColumnError(
            f"column {name!r} has the label {min(wrong)}, which is not a whole number. Use whole numbers or "
            "text.",
            column=name,
        )


def class_labels(values: Sequence[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table, see `TableRows`, as class labels (n,), and which rows have one (n,).

    Labels are integers, booleans or text. A row without a label gets that of the first row that has one.
    Raises ColumnError if there are fewer than two distinct labels, if numbers are not whole, or if there are
    so many that the column seems to hold a quantity or an identifier.
    """
    text = _texts(values)
    known = np.array([value is not None for value in text], dtype=np.bool_)
    present = sorted({value for value in text if value is not None})
    n_known = int(known.sum())
    if len(present) < 2:
        found = f"only the label {present[0]!r}" if present else "no label"
        raise ColumnError(
            f"column {name!r} has {found} in {len(text)} rows; at least two are needed.", column=name
        )
    fractions = [value for value in present if not WHOLE.fullmatch(value) and is_number(value)]
    if len(fractions) > _MOST_FRACTIONS or (
        len(present) > _MOST_LABELS_OF_FEW_ROWS and 2 * len(present) > n_known
    ):
        raise ColumnError(
            f"column {name!r} has {len(present)} different values in {n_known} rows, such as {present[0]!r}: "
            "too many for classes. Choose a column with fewer labels, or no target for a density model.",
            column=name,
        )
    own = [value for value, is_known in zip(values, known, strict=True) if is_known]
    if all(isinstance(value, int | float) for value in own):
        _refuse_fractions(own, name)
    if not all(isinstance(value, bool) for value in own):
        whole = all(
            isinstance(value, int | float) and WHOLE.fullmatch(str(plain_text(value))) for value in own
        )
        own = [
            int(value) if whole else value.strip() if isinstance(value, str) else plain_text(value)
            for value in own
        ]
    labels = np.array(own)
    filled = np.full(len(known), labels[0], dtype=labels.dtype)
    filled[known] = labels
    return filled, known


def labels_like(values: Sequence[Any], classes: NDArray[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table as labels (n,) of known classes (L,), and which rows have one (n,).

    Labels have the type of `classes`; missing ones become the first class. Raises ColumnError for labels that
    are not among the classes.
    """
    codes = {_folded(plain_text(label)): code for code, label in enumerate(classes.tolist())}
    text = [_folded(value) for value in _texts(values)]
    unseen = sorted({value for value in text if value is not None and value not in codes})
    if unseen:
        raise ColumnError(
            f"column {name!r} has labels that are not classes of the model: {listed(unseen)}; its classes "
            f"are {listed([str(known) for known in classes.tolist()])}.",
            column=name,
        )
    known = np.array([value is not None for value in text], dtype=np.bool_)
    return classes[[0 if value is None else codes[value] for value in text]], known


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Return labels as text, None where one is missing or empty."""
    distinct = {value: plain_text(value) or None for value in set(values)}
    return [distinct[value] for value in values]


def _folded(text: str | None) -> str | None:
    """Return a label as text, the same for true, True and TRUE."""
    return text.capitalize() if text is not None and text.lower() in BOOLEANS else text
