"""Records of the study: its settings and data, one record for each run, and all results together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.paper.variants import Dither, Method

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# The paper counts a run as failed unless its accuracy is above this.
FAILED_BELOW = 0.5


@dataclass(frozen=True)
class Settings:
    """Settings of a study.

    Attributes
    ----------
    seed : int
        Seed of the data and, with variant, K, method and run, of every start.
    dither : {"all", "paper"}
        In which variants zero features are replaced by small random numbers. The paper says in two; its
        numbers of failed runs suggest in all.
    train_per_digit, test_per_digit : int
        Images of each digit.
    max_iter : int
        Largest number of passes of a run.
    """

    seed: int = 0
    dither: Dither = "all"
    train_per_digit: int = 100
    test_per_digit: int = 250
    max_iter: int = 100


@dataclass(frozen=True)
class Run:
    """One run: a variant with K kernels, fitted by one method from one start, and tested."""

    variant: str
    n_kernels: int
    method: Method
    run: int  # number of the run, from 0
    accuracy: float
    mean_iou: float  # mean over the digits of the Jaccard index
    reason: str  # why the run stopped being finite, one of published.REASONS; empty if it did not
    failing_pass: int | None
    n_iter: int  # passes, the most over the feature groups
    converged: bool
    log_likelihood: float  # of the training rows, summed over the groups; NaN if not finite
    confusion: IntArray  # (10, 10) counts on the test set; rows are true digits, columns predicted ones

    @property
    def failed(self) -> bool:
        """Whether the paper would count the run as failed: accuracy of at most one half, or not finite."""
        return not self.accuracy > FAILED_BELOW

    def to_dict(self) -> dict[str, Any]:
        """Return the run as values for JSON."""
        return asdict(self) | {"confusion": self.confusion.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the run of `to_dict`."""
        return cls(**values | {"confusion": np.array(values["confusion"], dtype=np.int64)})


@dataclass(frozen=True)
class StudyData:
    """The images and features that all runs share."""

    train_images: NDArray[np.uint8]  # (n, 28, 28)
    train_labels: IntArray  # (n,) digits 0..9
    train_features: FloatArray  # (n, 14); columns as in variants.FEATURES
    train_dithered: FloatArray  # the same with zeros replaced by draws from N(0, 0.01²)
    test_images: NDArray[np.uint8]
    test_labels: IntArray
    test_features: FloatArray
    test_dithered: FloatArray


@dataclass(frozen=True)
class GroupModel:
    """The fitted mixture of one feature group, with the attributes that plots need."""

    feature_names_in_: NDArray[np.object_]  # (M,)
    classes_: IntArray  # (L,)
    class_prior_: FloatArray  # (L,)
    weights_: FloatArray  # (K, L)
    means_: FloatArray  # (K, M)
    covariances_: FloatArray  # (K, M, M)
    covariance_type: str = "full"


@dataclass(frozen=True)
class BestRun:
    """The run of highest accuracy of one variant and method at the paper's K, with its mixtures."""

    run: Run
    groups: tuple[GroupModel, ...]


@dataclass(frozen=True)
class Beyond:
    """A classifier on the same images that is not in the paper."""

    name: str
    description: str
    ours: bool  # whether it is a shared-kernel model
    accuracy: float
    mean_iou: float
    confusion: IntArray  # (10, 10)
    seconds: float  # to fit and predict


@dataclass(frozen=True)
class Margin:
    """The best robust run of a variant and the mean class-wise run on one data set, at K = 10."""

    seed: int  # of the data set
    variant: str
    n_runs: int  # of each method
    best_robust: float
    mean_class_wise: float

    @property
    def shortfall(self) -> float:
        """How far the mean class-wise run is below the best robust run."""
        return self.best_robust - self.mean_class_wise


@dataclass(frozen=True)
class StudyResults:
    """Everything that tables, figures and report need; no model has to be fitted again."""

    settings: Settings
    data: StudyData
    # Main study (K = 10) and sweep over K, whose runs at K = 10 are the first of the main study.
    runs: tuple[Run, ...]
    best: dict[tuple[str, Method], BestRun]  # by variant and method, at K = 10
    beyond: tuple[Beyond, ...]
    margins: tuple[Margin, ...] = ()  # on several data sets, the study's own among them
