"""Rows whose values have errors of known size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows X (n, M) in memory, and the standard deviations (n, M) of the errors of their values.

    It is indexed like an array. NumPy refuses it, so that no code uses the values without their errors.
    """

    X: np.ndarray  # NaN where a value is missing
    errors: np.ndarray  # finite; zero where a value is exact, and where it is missing

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.X.shape[0], self.X.shape[1]

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: Any) -> Measured:
        """Some of the rows, or of their features."""
        return Measured(self.X[index], self.errors[index])

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("This needs rows without errors. This is a defect of skmix: please report it.")

    def variances(self, weights: np.ndarray | None) -> np.ndarray:
        """Mean variances (M,) of the errors of the observed values of rows with weights (n,)."""
        known = ~np.isnan(self.X) * (1.0 if weights is None else weights[:, None])
        totals = known.sum(axis=0)
        return (known * np.square(self.errors)).sum(axis=0) / np.where(totals > 0, totals, 1.0)


def values_of(rows: Any) -> Any:
    """The values (n, M) of rows, without their errors if they have any."""
    return rows.X if isinstance(rows, Measured) else rows
