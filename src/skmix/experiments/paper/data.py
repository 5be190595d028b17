"""The images and features of a study."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from skmix.datasets import make_seven_segment_digits
from skmix.engine.model import FloatArray
from skmix.experiments.harness import generator
from skmix.experiments.paper.records import Settings, StudyData
from skmix.experiments.paper.variants import FEATURES, Variant
from skmix.features import digit_features, dither

_IS_PCA = np.array([name.startswith("pca") for name in FEATURES])


def make_data(settings: Settings) -> StudyData:
    """Simulate the training and test images of a study and compute their features.

    Each part has its own generator: the number of training images does not change the test images.
    """
    parts: dict[str, Any] = {}
    for part, n_images in (("train", settings.train_per_digit), ("test", settings.test_per_digit)):
        random = generator(settings.seed, "data", f"{part} images")
        images, parts[f"{part}_labels"] = make_seven_segment_digits(n_images, random_state=random)
        features = digit_features(images)
        random = generator(settings.seed, "data", f"{part} dither")
        parts |= {f"{part}_images": images, f"{part}_features": features}
        parts[f"{part}_dithered"] = dither(features, random_state=random)
    return StudyData(**parts)


def features_of(data: StudyData, variant: Variant, settings: Settings) -> tuple[FloatArray, FloatArray]:
    """Return the training and the test features (n, 14) of a variant, dithered according to the settings.

    With ``dither="paper"`` zeros of the pca features are replaced, in the variants that the paper names; with
    ``dither="all"`` zeros of all features, in every variant.
    """
    if settings.dither == "all":
        return data.train_dithered, data.test_dithered
    if variant.dithered:
        return (
            np.where(_IS_PCA, data.train_dithered, data.train_features),
            np.where(_IS_PCA, data.test_dithered, data.test_features),
        )
    return data.train_features, data.test_features


def fingerprint(data: StudyData) -> str:
    """Return a digest of images, labels and features, for the keys of runs."""
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=np.uint8).tobytes())
    # The last digits of features depend on the linear algebra library.
    for features in (data.train_features, data.train_dithered, data.test_features, data.test_dithered):
        digest.update(np.rint(1e6 * features).astype("<i8").tobytes())
    return digest.hexdigest()[:16]
