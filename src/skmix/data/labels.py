"""Read labels, find the classes among them, and encode them.

Predicted labels have the type of the labels of the fit. Labels in a column of a file or a data frame are
whole numbers, booleans or text. NaN, None and the mask of a masked array mark unlabelled rows and, as in
scikit-learn's `semi_supervised`, so does the number −1 if it cannot be a class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._words import nearest
from .missing import is_missing, without_mask
from .notation import BOOLEANS, WHOLE, is_number, plain_text
from .problems import ColumnError

IntArray = NDArray[np.int64]

# A column with more fractional values than this holds a quantity, not classes.
_MOST_FRACTIONS = 10
# A column with more labels than this holds identifiers if there are fewer than two rows per label.
_MOST_LABELS_OF_FEW_ROWS = 20


# ---------------------------------------------------------------- labels of arrays and frames


def read_labels(y: Any, n_rows: int, name: str = "y", *, of_fit: bool = True) -> np.ndarray:
    """Check the number, shape and type of labels, called `name` in errors, and return them as an array (n,).

    Arrays and lists keep their type. Labels in a column of a data frame become whole numbers, booleans or
    text, as labels of a file do. With `of_fit`, scikit-learn warns if most labels occur only once.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    of_frame, y = is_column(y), plain_labels(y)
    labels = column_or_1d(y, warn=True)
    check_length(len(labels), n_rows, name)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(
            f"Input {name} contains infinity or a value too large for {labels.dtype!r}: labels are finite."
        )
    known = labels if labels.dtype.kind in "biuU" else labels[~is_missing(labels)]
    if labels.dtype.kind == "O":
        # One example of each kind.
        kinds = {isinstance(label, str): label for label in reversed(known)}
        if len(kinds) == 2:
            raise ValueError(
                f"{name} has labels that cannot be compared with each other: text, such as {kinds[True]!r}, "
                f"and others, such as {kinds[False]!r}."
            )
        known = np.array(known.tolist())
    if len(known) and (of_fit or known.dtype.kind not in "biuU"):
        check_classification_targets(known if of_fit else np.repeat(known, 2))
    return typed(labels) if of_frame and len(known) == len(labels) > 0 else labels


def plain_labels(y: Any) -> Any:
    """Labels (n,) of a list, a column or an array of objects as an array; others unchanged.

    Labels that are masked become None.
    Text and numbers stay what they are: NumPy would turn the numbers in a list of text into text. Among text,
    the number −1 cannot be a class, and becomes None.
    """
    y = without_mask(y, None)
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) == 2:
        y = np.array(y, dtype=object)
    elif is_column(y):
        y = np.asarray(y)  # scikit-learn would turn booleans into numbers if some are missing
    if not isinstance(y, np.ndarray) or y.dtype.kind != "O" or y.ndim != 1:
        return y
    if not any(isinstance(label, str) for label in y):
        return y if is_missing(y).any() else np.array(y.tolist())
    labels = y.copy()
    labels[[isinstance(x, Real) and not isinstance(x, bool) and x == -1 for x in y]] = None
    return labels


def check_length(n_labels: int, n_rows: int, name: str = "y") -> None:
    """Raise ValueError unless there is one label for each row."""
    if n_labels != n_rows:
        raise ValueError(f"X has {n_rows} rows but {name} has {n_labels} labels.")


def is_column(y: Any) -> bool:
    """Whether labels are a column of a data frame of pandas, polars, Dask or the like."""
    return not isinstance(y, np.ndarray) and any(
        hasattr(y, each) for each in ("to_numpy", "to_frame", "columns")
    )


def typed(labels: np.ndarray) -> np.ndarray:
    """Labels (n,), none of them missing, as integers, booleans or text.

    None and data frames force dtype object, and NaN turns whole numbers into floats.
    """
    return as_integers(np.array(labels.tolist()) if labels.dtype.kind == "O" else labels)


def as_integers(labels: np.ndarray) -> np.ndarray:
    """Convert labels (n,) to integers if all are whole numbers below 2⁵³; return others unchanged."""
    is_whole = labels.dtype.kind == "f" and np.all((labels == np.rint(labels)) & (np.abs(labels) < 2**53))
    return labels.astype(np.int64) if is_whole else labels


# ---------------------------------------------------------------- classes and codes


def all_unlabelled(n_rows: int, table: str | None = None) -> ValueError:
    """The error that no row has a label; `table` is the name of their file."""
    of = "" if table is None else f" of {table}"
    return ValueError(f"All {n_rows} rows{of} are unlabelled. Give some of them a label.")


def classes_of(
    labels: np.ndarray, n_rows: int, *, missing: bool, name: str = "y", table: str | None = None
) -> np.ndarray:
    """The classes among the sorted labels (C,) of all rows; `missing`: whether some are NaN or None.

    If no label is NaN or None, −1 marks unlabelled rows. Two labels, −1 and another one, are the classes of a
    binary problem. Labels are refused if −1 is ambiguous.
    """
    if not len(labels):
        raise all_unlabelled(n_rows, table)
    if missing:
        return typed(labels)
    if labels.dtype.kind not in "if" or -1 not in labels or len(labels) == 2:
        return labels
    others = labels[labels != -1]
    if not len(others):
        raise ValueError(f"All {n_rows} rows are unlabelled ({name} is -1 everywhere). Label some of them.")
    if others[0] < -1 or others.tolist() == [0, 1]:
        raise ValueError(
            f"{name} has the labels {labels[:5].tolist()}: -1 marks rows without a label, but may be a class "
            f"here. If it is a class, give the labels as text, {name}.astype(str). If these rows have no "
            f"label, mark them with NaN or None, numpy.where({name} == -1, numpy.nan, {name})."
        )
    return others


def distinct_labels(labels: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, IntArray]:
    """The distinct labels (C,), sorted, and each label (n,) as an index into them, −1 if missing.

    With `names`, labels are indices into these.
    """
    if names is not None:
        present = np.flatnonzero(np.bincount(labels, minlength=len(names)))
        index_of = np.zeros(len(names), dtype=np.int64)
        distinct, index_of[present] = distinct_labels(names[present])
        return distinct, index_of[labels]
    missing = is_missing(labels)
    index = np.full(len(labels), -1)
    try:
        distinct, index[~missing] = np.unique(labels[~missing], return_inverse=True)
    except TypeError as error:
        raise ValueError(f"y has labels that cannot be compared with each other: {error}.") from None
    if distinct.dtype.kind == "f" and np.any(distinct != np.floor(distinct)):
        wrong = distinct[distinct != np.floor(distinct)][0]
        raise ValueError(
            f"Unknown label type: {wrong} is not a whole number. Use integers or strings as labels."
        )
    return distinct, index


def encode(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels (n,) as indices into the sorted classes (L,), −1 for others.

    The integer type is the smallest possible: up to 16 bits, NumPy orders rows by class with a radix sort,
    which is ten times faster.
    """
    # One more code, after the last class, stands for rows without a label.
    codes = np.full(len(labels), -1, dtype=np.min_scalar_type(-len(classes) - 1))
    is_known = ~is_missing(labels)
    known = labels[is_known]
    index = np.minimum(np.searchsorted(classes, known), len(classes) - 1)
    codes[is_known] = np.where(classes[index] == known, index, -1)
    return codes


def number_labels(labels: np.ndarray, name: str = "y") -> tuple[np.ndarray, IntArray]:
    """The sorted classes (L,) and the codes (n,) of labels: indices into them, −1 if unlabelled."""
    distinct, codes = distinct_labels(labels)
    classes = classes_of(distinct, len(labels), missing=bool(np.any(codes < 0)), name=name)
    # −1 sorts first, so dropping it shifts the codes by one.
    return classes, codes - (len(distinct) - len(classes))


def code_labels(
    y: Any, classes: np.ndarray, n_rows: int, *, unlabelled: bool = False, name: str = "y"
) -> IntArray:
    """The codes (n,) of labels, given the classes (L,) of a fit; refuse other labels.

    With `unlabelled`, a label may be missing: NaN, None, or −1 if that is not a class.
    """
    labels = read_labels(y, n_rows, name, of_fit=False)
    missing = are_unlabelled(labels, classes)
    if not unlabelled:
        refuse_missing(missing, name)
    try:
        unknown = np.setdiff1d(labels[~missing], classes)
    except TypeError as error:
        raise ValueError(
            f"{name} has labels that cannot be compared with those of the fit: {error}."
        ) from None
    if len(unknown):
        raise ValueError(
            f"{name} has labels that no training row had: {unknown[:5].tolist()}; the classes are "
            f"{classes.tolist()}.{nearest(unknown[0], classes.tolist())}"
        )
    return encode(labels, classes).astype(np.int64)


def are_unlabelled(labels: np.ndarray, classes: Collection[Any]) -> np.ndarray:
    """Whether each label (n,) is missing: NaN, None, or −1 if that is none of the classes."""
    missing = is_missing(labels)
    if labels.dtype.kind in "if" and -1 not in classes:
        missing = missing | (labels == -1)
    return missing


def refuse_missing(missing: np.ndarray, name: str, table: str | None = None) -> None:
    """Raise ValueError if labels are missing; `missing` (n,) says which."""
    if len(missing) and missing.all():
        raise all_unlabelled(len(missing), table)
    if missing.any():
        raise ValueError(
            f"{np.count_nonzero(missing)} of {len(missing)} rows have no label in {name} (NaN, None or -1): "
            "leave them out."
        )


# ---------------------------------------------------------------- labels of columns


def label_parser(texts: Collection[str], name: str) -> Callable[[str], Any]:
    """A function that parses a label, given all texts in a column of labels.

    Whole numbers with leading zeros are identifiers and stay text; text is stripped of blanks. Raise
    ColumnError if all labels are numbers but some are fractional.
    """
    plain = [str(plain_text(text)) for text in texts]
    if all(WHOLE.fullmatch(text) for text in plain):
        return lambda text: int(str(plain_text(text)))
    if all(text.lower() in BOOLEANS for text in plain):
        return lambda text: text.strip().lower() == "true"
    if all(map(is_number, plain)):
        _refuse_fractions(map(float, plain), name)
    return str.strip


def _refuse_fractions(labels: Iterable[float], name: str) -> None:
    """Raise ColumnError if a column of labels has a fractional number, as a quantity has."""
    wrong = [label for label in labels if not float(label).is_integer()]
    if wrong:
        raise ColumnError(
            f"column {name!r} has the label {min(wrong)}, which is not a whole number. Use whole numbers or "
            "text.",
            column=name,
        )


def check_classes(labels: np.ndarray, name: str, table: str) -> None:
    """Raise ColumnError if a column of labels (n,) cannot hold classes; None marks unlabelled rows.

    It is refused if it has fewer than two labels, if a number is fractional, or if there are so many labels
    that it seems to hold a quantity or an identifier.
    """
    known = labels[~is_missing(labels)]
    present = sorted({str(plain_text(label)) for label in known.tolist()})
    if not present:
        raise all_unlabelled(len(labels), table)
    if len(present) < 2:
        problem = f"has only the label {present[0]!r} in {len(labels)} rows; at least two are needed."
        raise ColumnError(f"column {name!r} {problem}", column=name)
    n_fractions = sum(is_number(label) and not WHOLE.fullmatch(label) for label in present)
    if n_fractions > _MOST_FRACTIONS or (
        len(present) > _MOST_LABELS_OF_FEW_ROWS and 2 * len(present) > len(known)
    ):
        raise ColumnError(
            f"column {name!r} has {len(present)} different values in {len(known)} rows, such as "
            f"{present[0]!r}: too many for classes. Choose a column with fewer labels, or no target for a "
            "density model.",
            column=name,
        )
    if all(isinstance(label, int | float) for label in known.tolist()):
        _refuse_fractions(known.tolist(), name)
