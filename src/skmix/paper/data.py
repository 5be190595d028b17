"""The images and features of a study, its settings, and the random numbers of data and runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .digits import FloatArray, IntArray, make_seven_segment_digits
from .images import DIGIT_FEATURES, digit_features, dither
from .variants import VARIANTS, Dither

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


def generator(seed: int, *names: str | int) -> np.random.RandomState:
    """Return a new generator seeded by a hash of the seed and names, the same on every machine.

    `names` identify what is drawn; they must not contain line breaks.
    """
    text = "\n".join(["skmix study", str(seed), *map(str, names)])
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(entropy)))


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


def features_of(data: StudyData, variant: str, settings: Settings) -> tuple[FloatArray, FloatArray]:
    """Return the training and the test features (n, 14) of a variant, dithered according to the settings.

    ``dither="paper"`` replaces zeros of the pca features in the variants that the paper names;
    ``dither="all"`` replaces zeros of all features in every variant.
    """
    replaced = _IS_PCA & VARIANTS[variant].dithered | (settings.dither == "all")
    train = np.where(replaced, data.train_dithered, data.train_features)
    return train, np.where(replaced, data.test_dithered, data.test_features)


def fingerprint(data: StudyData) -> str:
    """Return a hash of images, labels and features, for the names of files of runs."""
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=np.uint8).tobytes())
    # The last digits of features depend on the linear algebra library.
    for features in (data.train_features, data.train_dithered, data.test_features, data.test_dithered):
        digest.update(np.rint(1e6 * features).astype("<i8").tobytes())
    return digest.hexdigest()[:16]
