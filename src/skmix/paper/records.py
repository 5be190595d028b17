"""Records of the study: settings, data, runs and their statistics, and all results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .digits import FloatArray, IntArray, make_seven_segment_digits
from .harness import generator
from .images import DIGIT_FEATURES, digit_features, dither
from .variants import MAIN_KERNELS, VARIANTS, Dither, Method, Variant

# The paper counts a run as failed unless its accuracy is above this.
FAILED_BELOW = 0.5
# Largest K at which table 5 counts all runs: with so few kernels, no run can reach that accuracy.
_ALL_COUNTED_UP_TO = 3
_IS_PCA = np.array([name.startswith("pca") for name in DIGIT_FEATURES])


@dataclass(frozen=True)
class Settings:
    """Settings of a study."""

    seed: int = 0  # of the data and, with variant, K, method and run, of every start
    # Variants in which zero features are replaced by small random numbers: the paper names two, but its
    # numbers of failed runs suggest all.
    dither: Dither = "all"
    train_per_digit: int = 100  # images of each digit
    test_per_digit: int = 250
    max_iter: int = 100  # largest number of passes of a run


@dataclass(frozen=True)
class StudyData:
    """The images and features that all runs share."""

    train_images: NDArray[np.uint8]  # (n, 28, 28)
    train_labels: IntArray  # (n,) digits 0..9
    train_features: FloatArray  # (n, 14); columns as in DIGIT_FEATURES
    train_dithered: FloatArray  # the same with zeros replaced by draws from N(0, 0.01²)
    test_images: NDArray[np.uint8]
    test_labels: IntArray
    test_features: FloatArray
    test_dithered: FloatArray


def make_data(settings: Settings) -> StudyData:
    """Simulate the training and test images of a study and compute their features.

    Each set has its own generator, so the number of training images does not change the test images.
    """
    arrays: dict[str, Any] = {}
    for name, n_images in (("train", settings.train_per_digit), ("test", settings.test_per_digit)):
        random = generator(settings.seed, "data", f"{name} images")
        images, arrays[f"{name}_labels"] = make_seven_segment_digits(n_images, random_state=random)
        features = digit_features(images)
        random = generator(settings.seed, "data", f"{name} dither")
        arrays |= {f"{name}_images": images, f"{name}_features": features}
        arrays[f"{name}_dithered"] = dither(features, random_state=random)
    return StudyData(**arrays)


def features_of(data: StudyData, variant: Variant, settings: Settings) -> tuple[FloatArray, FloatArray]:
    """Return the training and the test features (n, 14) of a variant, dithered according to the settings.

    ``dither="paper"`` replaces zeros of the pca features in the variants that the paper names;
    ``dither="all"`` replaces zeros of all features in every variant.
    """
    replaced = _IS_PCA & variant.dithered | (settings.dither == "all")
    train = np.where(replaced, data.train_dithered, data.train_features)
    return train, np.where(replaced, data.test_dithered, data.test_features)


def fingerprint(data: StudyData) -> str:
    """Return a hash of images, labels and features, for the keys of runs."""
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=np.uint8).tobytes())
    # The last digits of features depend on the linear algebra library.
    for features in (data.train_features, data.train_dithered, data.test_features, data.test_dithered):
        digest.update(np.rint(1e6 * features).astype("<i8").tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """One run: a variant with K kernels, fitted by one method from one start, and tested."""

    variant: str
    n_kernels: int
    method: Method
    run: int  # number of the run, from 0
    accuracy: float
    mean_iou: float  # mean over the digits of the Jaccard index
    reason: str  # why a covariance became singular, one of published.REASONS, or empty
    failing_pass: int | None
    n_iter: int  # passes, the most over the feature sets
    converged: bool
    log_likelihood: float  # of the training rows, summed over the feature sets; NaN if not finite
    confusion: IntArray  # (10, 10) counts on the test set; rows are true digits, columns predicted ones

    @property
    def singular(self) -> bool:
        """Whether a covariance became singular, after which all parameters are undefined.

        Such a run is tested with the parameters from before the failing pass, and may still succeed.
        """
        return bool(self.reason)

    @property
    def failed(self) -> bool:
        """Whether the run failed by the paper's criterion: an accuracy of at most one half."""
        return not self.accuracy > FAILED_BELOW

    def to_dict(self) -> dict[str, Any]:
        """Return the run as values for JSON."""
        return vars(self) | {"confusion": self.confusion.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the run of `to_dict`."""
        return cls(**values | {"confusion": np.array(values["confusion"], dtype=np.int64)})


class Runs:
    """The runs of a study, grouped by cell."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._cells: dict[tuple[str, int, str], list[Run]] = {}
        for run in sorted(runs, key=lambda run: run.run):
            self._cells.setdefault((run.variant, run.n_kernels, run.method), []).append(run)
        at_main = {variant for variant, n_kernels, _ in self._cells if n_kernels == MAIN_KERNELS}
        # Variants that have runs at K = 10, in the paper's order.
        self.variants = tuple(variant.name for variant in VARIANTS if variant.name in at_main)

    def of(self, variant: str, n_kernels: int, method: str, most: int | None = None) -> list[Run]:
        """Return the first `most` runs of a cell, or all, in order."""
        return self._cells.get((variant, n_kernels, method), [])[:most]


def statistics(runs: Sequence[Run]) -> dict[str, float]:
    """Return median, mean and standard deviation of both metrics over runs, under the paper's names."""
    found: dict[str, float] = {}
    for name, attribute in (("Acc", "accuracy"), ("MIoU", "mean_iou")):
        values = [getattr(run, attribute) for run in runs]
        if values:
            found[f"Med {name}"] = float(np.median(values))
            found[f"Mean {name}"] = float(np.mean(values))
        if len(values) > 1:
            found[f"Std {name}"] = float(np.std(values, ddof=1))
    return found


def counted_in_sweep(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that table 5 counts: those that did not fail or, with very few kernels, all."""
    return [run for run in runs if run.n_kernels <= _ALL_COUNTED_UP_TO or not run.failed]


@dataclass(frozen=True)
class FittedMixture:
    """The fitted mixture of one feature set, with the attributes that plots need."""

    feature_names_in_: NDArray[np.object_]  # (M,)
    classes_: IntArray  # (L,)
    class_prior_: FloatArray  # (L,)
    weights_: FloatArray  # (K, L)
    means_: FloatArray  # (K, M)
    covariances_: FloatArray  # (K, M, M)
    covariance_type: str = "full"


@dataclass(frozen=True)
class BestRun:
    """The run with the highest accuracy of a variant and method at K = 10, with its mixtures."""

    run: Run
    mixtures: tuple[FittedMixture, ...]


@dataclass(frozen=True)
class Beyond:
    """A classifier on the same images that is not in the paper."""

    name: str
    description: str
    ours: bool  # whether it is a shared-kernel model
    accuracy: float
    mean_iou: float
    confusion: IntArray  # (10, 10)


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
    """Everything that tables, figures and report need, without fitting a model again."""

    settings: Settings
    data: StudyData
    # Main study (K = 10) and sweep over K; the runs of the sweep at K = 10 are the first of the main study.
    runs: tuple[Run, ...]
    best: dict[tuple[str, Method], BestRun]  # by variant and method, at K = 10
    beyond: tuple[Beyond, ...]
    margins: tuple[Margin, ...] = ()  # on several data sets, the study's own among them
