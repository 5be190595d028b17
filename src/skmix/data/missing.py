"""Marks of missing values: NaN, None and pandas.NA among labels, and the masks of masked arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_missing(labels: np.ndarray) -> NDArray[np.bool_]:
    """Which labels (n,) are NaN, None or pandas.NA: the rows have no label."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    # Comparing pandas.NA with itself gives neither True nor False.
    return np.array([x is None or type(x).__name__ == "NAType" or x != x for x in labels], dtype=bool)


def without_mask(values: Any, missing: float | None) -> Any:
    """A masked array as an ordinary one with `missing`, NaN or None, in place of masked values.

    Anything else is returned unchanged: most functions of NumPy ignore a mask.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    is_masked = np.ma.getmaskarray(values)
    if not is_masked.any():
        return values.data
    plain: np.ndarray = values.data.astype(object if missing is None else np.float64)
    plain[is_masked] = missing
    return plain


def refuse_masked_weights(weights: Any) -> None:
    """Raise ValueError for row weights of which some are masked."""
    if not isinstance(weights, np.ma.MaskedArray):
        return
    n_masked = np.count_nonzero(np.ma.getmaskarray(weights))
    if n_masked:
        raise ValueError(
            f"sample_weight is masked in {n_masked} of {weights.size} rows: give each of them a weight, 0 to "
            "leave the row out."
        )
