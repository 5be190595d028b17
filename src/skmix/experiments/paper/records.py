"""Records of the study: its settings and data, one record for each run, and all results together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.paper.variants import Dither, Method

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# The paper counts a run as failed when its accuracy is not above this.
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
    """One run: a variant with K kernels, fitted by one method from one start, and tested.

    Attributes
    ----------
    variant : str
        Name of the variant.
    n_kernels : int
        K.
    method : {"published", "robust", "class-wise"}
        How it was fitted.
    run : int
        Number of the run, from 0.
    accuracy, mean_iou : float
        On the test set.
    reason : str
        Empty for a run that stayed finite; else why it did not: "constant feature", "too few rows",
        "overflow".
    failing_pass : int or None
        The pass in which it stopped being finite.
    n_iter : int
        Passes done, the most over the groups.
    converged : bool
        Whether every group converged.
    log_likelihood : float
        Of the training rows, summed over the groups; NaN when not finite.
    confusion : ndarray of shape (10, 10)
        Counts on the test set; rows are true digits 0..9, columns predicted ones.
    """

    variant: str
    n_kernels: int
    method: Method
    run: int
    accuracy: float
    mean_iou: float
    reason: str
    failing_pass: int | None
    n_iter: int
    converged: bool
    log_likelihood: float
    confusion: IntArray

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
    """The images and features that all runs share.

    Attributes
    ----------
    train_images, test_images : ndarray of shape (n, 28, 28), uint8
        Images.
    train_labels, test_labels : ndarray of shape (n,)
        Digits 0..9.
    train_features, test_features : ndarray of shape (n, 14)
        Features as computed, not dithered; columns as in `variants.FEATURES`.
    train_dithered, test_dithered : ndarray of shape (n, 14)
        The same with zeros replaced by draws from N(0, 0.01²).
    """

    train_images: NDArray[np.uint8]
    train_labels: IntArray
    train_features: FloatArray
    train_dithered: FloatArray
    test_images: NDArray[np.uint8]
    test_labels: IntArray
    test_features: FloatArray
    test_dithered: FloatArray


@dataclass(frozen=True)
class GroupModel:
    """The fitted mixture of one feature group, with the attributes that plots need.

    Attributes
    ----------
    feature_names_in_ : ndarray of shape (M,)
        Names of the features.
    classes_ : ndarray of shape (L,)
        Digits.
    class_prior_ : ndarray of shape (L,)
        Class priors.
    weights_ : ndarray of shape (K, L)
        Pr(kernel k | class j).
    means_ : ndarray of shape (K, M)
        Kernel means.
    covariances_ : ndarray of shape (K, M, M)
        Kernel covariances.
    """

    feature_names_in_: NDArray[np.object_]
    classes_: IntArray
    class_prior_: FloatArray
    weights_: FloatArray
    means_: FloatArray
    covariances_: FloatArray
    covariance_type: str = "full"


@dataclass(frozen=True)
class BestRun:
    """The run of highest accuracy of one variant and method at the paper's K, and its model.

    Attributes
    ----------
    run : Run
        The run.
    groups : tuple of GroupModel
        Its mixtures, in the order of the variant's groups.
    """

    run: Run
    groups: tuple[GroupModel, ...]


@dataclass(frozen=True)
class Beyond:
    """A classifier on the same images that is not in the paper.

    Attributes
    ----------
    name, description : str
        What it is.
    ours : bool
        Whether it is a shared-kernel model.
    accuracy, mean_iou : float
        On the test set.
    confusion : ndarray of shape (10, 10)
        Counts on the test set.
    seconds : float
        Time to fit and predict.
    """

    name: str
    description: str
    ours: bool
    accuracy: float
    mean_iou: float
    confusion: IntArray
    seconds: float


@dataclass(frozen=True)
class Margin:
    """The best robust run of a variant and the mean class-wise run on one simulated data set, at K = 10.

    Attributes
    ----------
    seed : int
        Seed of the data set.
    variant : str
        Name of the variant.
    n_runs : int
        Runs of each method.
    best_robust, mean_class_wise : float
        Largest accuracy of the robust runs, and mean accuracy of the class-wise ones.
    """

    seed: int
    variant: str
    n_runs: int
    best_robust: float
    mean_class_wise: float

    @property
    def shortfall(self) -> float:
        """How far the mean class-wise run is below the best robust run."""
        return self.best_robust - self.mean_class_wise


@dataclass(frozen=True)
class StudyResults:
    """Everything that tables, figures and report need; no model has to be fitted again.

    Attributes
    ----------
    settings : Settings
        Settings of the study.
    data : StudyData
        Images and features.
    runs : tuple of Run
        Main study (K = 10) and sweep over K; the runs of the sweep at K = 10 are the first of the main study.
    best : dict of (variant, method) to BestRun
        The best run of each variant and method at K = 10.
    beyond : tuple of Beyond
        Classifiers that are not in the paper.
    margins : tuple of Margin
        Class-wise and robust runs compared on several data sets, the study's own among them.
    """

    settings: Settings
    data: StudyData
    runs: tuple[Run, ...]
    best: dict[tuple[str, Method], BestRun]
    beyond: tuple[Beyond, ...]
    margins: tuple[Margin, ...] = ()
