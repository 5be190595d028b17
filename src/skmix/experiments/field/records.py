"""What a comparison consists of and what it leaves behind, as frozen records."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows to compare classifiers on.

    Attributes
    ----------
    name : str
        What it is called in tables.
    X : ndarray of shape (N, M)
        Features; NaN where a value is missing.
    y : ndarray of shape (N,)
        Labels.
    """

    name: str
    X: FloatArray
    y: NDArray[Any]

    @property
    def has_gaps(self) -> bool:
        """Whether values are missing."""
        return bool(np.isnan(self.X).any())

    def digest(self) -> str:
        """Return a hash of all values, so that results of other data are not taken for these."""
        content = hashlib.sha256()
        for part in (np.ascontiguousarray(self.X), self.y.astype(str)):
            content.update(str(part.shape).encode())
            content.update(part.tobytes())
        return content.hexdigest()[:16]


@dataclass(frozen=True)
class Settings:
    """What all cells of a comparison share.

    Attributes
    ----------
    n_repeats : int
        Splits of each data set.
    test_share : float
        Share of the rows that is tested on.
    seed : int
        From which every split and every classifier's seed is hashed.
    """

    n_repeats: int = 5
    test_share: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.n_repeats}.")
        if not 0.0 < self.test_share < 1.0:
            raise ValueError(f"test_share must lie between 0 and 1, got {self.test_share}.")


@dataclass(frozen=True)
class Outcome:
    """One classifier on one split of one data set.

    Attributes
    ----------
    data, classifier : str
        Their names.
    repeat : int
        Number of the split.
    digest : str
        Hash of the data, the share tested on, the seed, and the versions of skmix and scikit-learn.
    n_train, n_test : int
        Rows.
    error : float
        Share of test rows that got a wrong label.
    log_loss : float
        Mean negative logarithm of the probability of the true class.
    calibration_error : float
        Mean distance between how sure the classifier was and how often it was right.
    fit_seconds, predict_seconds : float
        Wall-clock time of the fit, with all choices it made, and of the probabilities of the test rows.
    n_parameters : int
        Numbers that the fitted classifier keeps.
    failure : str
        What went wrong, empty if nothing did. After a failure the measures are those of a guess by class
        frequency.
    settings : str
        What an automatic classifier chose, for people to read.
    """

    data: str
    classifier: str
    repeat: int
    digest: str
    n_train: int
    n_test: int
    error: float
    log_loss: float
    calibration_error: float
    fit_seconds: float
    predict_seconds: float
    n_parameters: int
    failure: str = ""
    settings: str = ""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What tells a cell from all others."""
        return self.data, self.classifier, self.repeat, self.digest

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the record of plain values; raise ValueError when they are not those of an outcome."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise ValueError(f"an outcome has the entries {sorted(names)}, got {sorted(values)}.")
        return cls(**values)
