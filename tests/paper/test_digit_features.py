"""Features of images: the published code's numbers, degenerate images, and scikit-learn's contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils.estimator_checks import parametrize_with_checks

from skmix import SharedKernelClassifier
from skmix.paper import (
    DIGIT_FEATURES,
    PrincipalAxis,
    QuadrantMass,
    digit_features,
    dither,
    make_seven_segment_digits,
)

Golden = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    return make_seven_segment_digits(20, random_state=0)


# ---------------------------------------------------------------- against the published code


def test_features_of_the_published_images(golden: Golden) -> None:
    stored = golden("digit_images")
    assert_allclose(digit_features(stored["images"]), stored["features"], rtol=0, atol=1e-10)
    axes = PrincipalAxis(start=0, stop=None).fit_transform(stored["images"])
    assert_allclose(axes, stored["first_axis"], rtol=0, atol=1e-10)


def test_flattened_images_have_the_same_features(golden: Golden) -> None:
    images = golden("digit_images")["images"]
    assert_array_equal(digit_features(images.reshape(200, 784)), digit_features(images))
    assert_array_equal(digit_features(images[:3].tolist()), digit_features(images[:3]))


# ---------------------------------------------------------------- properties


def test_the_axis_is_the_direction_of_largest_variance() -> None:
    images = np.random.RandomState(0).normal(size=(7, 9, 5))
    axes = PrincipalAxis(start=0, stop=5).fit_transform(images)
    for image, axis in zip(images, axes, strict=True):
        covariance = np.cov(image.T)
        variance = axis @ covariance @ axis
        assert_allclose(covariance @ axis, variance * axis, atol=1e-12)
        assert variance == pytest.approx(np.linalg.eigvalsh(covariance)[-1])
        assert np.linalg.norm(axis) == pytest.approx(1.0)
        assert axis[np.abs(axis).argmax()] > 0


def test_features_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = make_seven_segment_digits(2, random_state=1)
    together = digit_features(images)
    assert_array_equal(np.vstack([digit_features(image[None]) for image in images]), together)
    monkeypatch.setattr("skmix.features._IMAGES_AT_A_TIME", 3)
    assert_array_equal(digit_features(images), together)


def test_columns_that_do_not_vary_have_entries_of_exactly_zero() -> None:
    images, _ = make_seven_segment_digits(20, random_state=0)
    axes = PrincipalAxis(start=0, stop=None).fit_transform(images)
    constant = np.ptp(images, axis=1) == 0
    assert constant.any(axis=1).all()
    assert_array_equal(axes == 0.0, constant)


def test_of_equally_large_entries_the_first_is_positive() -> None:
    image = np.zeros((4, 4))
    image[0, 3], image[1, 1] = 1.0, 1.0
    image[2] = [0.5, 0.5, 0.5, 0.5]
    for flipped in (image, image[::-1], 1.0 - image):
        (axis,) = PrincipalAxis(start=0, stop=None).fit_transform(flipped[None])
        assert axis[1] == pytest.approx(-axis[3])
        assert axis[1] > 0


def test_quadrants_are_counted_as_mathematicians_do() -> None:
    image = np.zeros((1, 4, 4))
    image[0, 0, 2:] = 1.0  # two pixels in the upper right
    image[0, 1, 0] = 200.0  # one in the upper left, brighter
    image[0, 3, :2] = -1.0  # two in the lower left
    image[0, 2:, 2:] = 0.1  # four in the lower right
    assert_allclose(QuadrantMass().fit_transform(image), [[2 / 9, 1 / 9, 2 / 9, 4 / 9]])
    assert_allclose(QuadrantMass(quadrants=(4, 2)).fit_transform(image), [[4 / 9, 1 / 9]])


def test_the_middle_of_an_odd_image_is_shared() -> None:
    assert_allclose(QuadrantMass().fit_transform(np.ones((1, 3, 5))), [[0.25] * 4])
    image = np.zeros((1, 3, 3))
    image[0, 1, 0] = 1.0
    assert_allclose(QuadrantMass().fit_transform(image), [[0.0, 0.5, 0.5, 0.0]])
    image[0, 0, 1] = image[0, 0, 2] = image[0, 2, 2] = 1.0
    # Of four pixels: one and a half in the upper right, and so on.
    assert_allclose(QuadrantMass().fit_transform(image), [[0.375, 0.25, 0.125, 0.25]])


# ---------------------------------------------------------------- degenerate images


@pytest.mark.parametrize("value", [0, 7, 255])
def test_a_constant_image_has_no_axis(value: int) -> None:
    features = digit_features(np.full((2, 28, 28), value, dtype=np.uint8))
    assert_array_equal(features[:, :10], 0.0)
    assert_array_equal(features[:, 10:], 0.25 if value else 0.0)


def test_a_constant_image_of_fractions_has_no_axis() -> None:
    # The mean of 28 times 0.1 is not exactly 0.1.
    assert_array_equal(digit_features(np.full((1, 28, 28), 0.1))[:, :10], 0.0)


def test_equal_rows_have_no_axis() -> None:
    image = np.tile(np.arange(28), (28, 1))
    assert_array_equal(PrincipalAxis().fit_transform(image[None]), 0.0)


@pytest.mark.parametrize(("row", "column"), [(0, 10), (27, 19), (14, 14), (3, 0)])
def test_a_single_pixel(row: int, column: int) -> None:
    image = np.zeros((1, 28, 28), dtype=np.uint8)
    image[0, row, column] = 3
    (features,) = digit_features(image)
    expected = np.eye(28)[column, 10:20]
    assert_allclose(features[:10], expected, atol=1e-15)
    quadrant = {(True, False): 0, (True, True): 1, (False, True): 2, (False, False): 3}[
        (row < 14, column < 14)
    ]
    assert_array_equal(features[10:], np.eye(4)[quadrant])


# ---------------------------------------------------------------- scikit-learn's contract


@parametrize_with_checks(
    [
        # Images of one row or one column, since the checks use any number of pixels.
        QuadrantMass(image_shape=(1, -1)),
        PrincipalAxis(start=0, stop=None, image_shape=(-1, 1)),
    ]
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_transformers_make_up_the_features(digits: Any) -> None:
    images, _ = digits
    union = make_union(PrincipalAxis(), QuadrantMass(), verbose_feature_names_out=False)
    assert_array_equal(union.fit_transform(images), digit_features(images))
    assert tuple(union.get_feature_names_out()) == DIGIT_FEATURES


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("transformer", [QuadrantMass(), QuadrantMass(quadrants=(2, 3, 4)), PrincipalAxis()])
def test_pipelines_classify_images(digits: Any, transformer: Any, flat: bool) -> None:
    images, labels = digits
    test_images, test_labels = make_seven_segment_digits(10, random_state=1)
    if flat:
        images, test_images = images.reshape(len(images), -1), test_images.reshape(len(test_images), -1)
    pipeline = make_pipeline(clone(transformer), SharedKernelClassifier(random_state=0))
    # The three hard cases of the paper are no better: 0 and 8 in quadrants, 2 and 5 in the axis.
    assert pipeline.fit(images, labels).score(test_images, test_labels) > 0.6


def test_three_and_two_dimensions_mix(digits: Any) -> None:
    images, _ = digits
    flat = images.reshape(len(images), -1)
    for transformer in (QuadrantMass(), PrincipalAxis()):
        assert_array_equal(transformer.fit(images).transform(flat), transformer.fit(flat).transform(images))


def test_tables_keep_the_names(digits: Any) -> None:
    pd = pytest.importorskip("pandas")
    images, _ = digits
    frame = QuadrantMass(quadrants=(2, 3, 4)).set_output(transform="pandas").fit_transform(images)
    assert list(frame.columns) == ["q2", "q3", "q4"]
    table = pd.DataFrame(images.reshape(len(images), -1).astype(float))
    table.columns = [f"pixel {j}" for j in range(784)]
    axis = PrincipalAxis(start=12, stop=14).set_output(transform="pandas").fit(table)
    assert list(axis.transform(table).columns) == ["pca 1", "pca 2"]
    expected = PrincipalAxis(start=0, stop=None).fit_transform(images)[:, 12:14]
    assert_array_equal(axis.transform(table), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        axis.transform(table.rename(columns={"pixel 0": "corner"}))


def test_shapes_that_are_not_square() -> None:
    images = np.random.RandomState(0).normal(size=(4, 6, 10))
    known = PrincipalAxis(start=0, stop=None).fit_transform(images)
    assert known.shape == (4, 10)
    flat = images.reshape(4, 60)
    for shape in ((6, 10), (-1, 10), (6, -1)):
        assert_array_equal(PrincipalAxis(start=0, stop=None, image_shape=shape).fit_transform(flat), known)


# ---------------------------------------------------------------- bad input


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    flat = np.ones((2, 60))
    with pytest.raises(ValueError, match="images of 60 pixels are not square"):
        QuadrantMass().fit(flat)
    with pytest.raises(ValueError, match=r"image_shape=\(7, 9\) does not fit images of 60 pixels"):
        QuadrantMass(image_shape=(7, 9)).fit(flat)
    with pytest.raises(ValueError, match=r"image_shape=\(-1, 9\) does not fit images of 60 pixels"):
        QuadrantMass(image_shape=(-1, 9)).fit(flat)
    for wrong in ((-1, -1), (-2, 30), (0, 60), (60,), (6.0, 10)):
        with pytest.raises(ValueError, match=r"image_shape="):
            QuadrantMass(image_shape=wrong).fit(flat)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"images have shape \(6, 10\), but image_shape=\(10, 6\)"):
        QuadrantMass(image_shape=(10, 6)).fit(flat.reshape(2, 6, 10))
    fitted = QuadrantMass().fit(flat.reshape(2, 6, 10))
    with pytest.raises(ValueError, match=r"images have shape \(10, 6\), but those of the fit had \(6, 10\)"):
        fitted.transform(flat.reshape(2, 10, 6))
    with pytest.raises(ValueError, match="start=10 and stop=20 must satisfy 0 <= start < stop <= 8"):
        PrincipalAxis().fit(np.ones((2, 64)))
    with pytest.raises(ValueError, match=r"quadrants=\(0, 1\) must be different numbers from 1 to 4"):
        QuadrantMass(quadrants=(0, 1)).fit(np.ones((2, 64)))
    for wrong in ((0,), (5,), (1, 1), (1, 2.5)):
        with pytest.raises(ValueError, match="must be different numbers from 1 to 4"):
            QuadrantMass(quadrants=wrong).fit(np.ones((2, 64)))  # type: ignore[arg-type]
    for start, stop in ((-1, 5), (3, 3), (4, 3), (0, 9), (8, None)):
        with pytest.raises(ValueError, match=f"start={start} and stop={stop} must satisfy"):
            PrincipalAxis(start=start, stop=stop).fit(np.ones((2, 64)))
    # An image need not have more rows than entries are asked for.
    assert PrincipalAxis(start=4, stop=10).fit(np.ones((2, 6, 10))).transform(flat).shape == (2, 6)
    with pytest.raises(ValueError, match=r"quadrants=\(\) must be"):
        QuadrantMass(quadrants=()).fit(np.ones((2, 64)))
    with pytest.raises(ValueError, match=r"images must have pixels, got shape \(2, 0, 3\)"):
        QuadrantMass().fit(np.ones((2, 0, 3)))
    with pytest.raises(ValueError, match="NaN"):
        digit_features(np.full((1, 28, 28), np.nan))
    with pytest.raises(ValueError, match=r"image_shape=\(28, 28\) does not fit images of 60 pixels"):
        digit_features(flat)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        QuadrantMass().transform(flat)


def test_the_shape_of_images_may_be_an_array_but_not_empty() -> None:
    flat = np.arange(120.0).reshape(2, 60)
    given = QuadrantMass(image_shape=np.array([6, 10])).fit_transform(flat)  # type: ignore[arg-type]
    assert_array_equal(given, QuadrantMass(image_shape=(6, 10)).fit_transform(flat))
    with pytest.raises(ValueError, match=r"image_shape=\(\) does not fit"):
        QuadrantMass(image_shape=()).fit(np.ones((2, 64)))  # type: ignore[arg-type]


def test_a_transformer_whose_fit_failed_is_not_fitted() -> None:
    axis = PrincipalAxis(start=0, stop=8).fit(np.ones((2, 64)))
    for transformer in (PrincipalAxis(), axis.set_params(stop=20)):
        with pytest.raises(ValueError, match="must satisfy"):
            transformer.fit(np.ones((2, 64)))
        with pytest.raises(NotFittedError):
            transformer.transform(np.ones((2, 64)))


# ---------------------------------------------------------------- dither


def test_dither_replaces_zeros_alone() -> None:
    features = np.random.RandomState(0).uniform(0.1, 1.0, size=(400, 50))
    zero = np.random.RandomState(1).uniform(size=features.shape) < 0.5
    features[zero] = 0.0
    features[0, :4] = [1e-31, -1e-31, 1e-5, -1e-5]
    zero[0, :4] = [True, True, False, False]
    dithered = dither(features, random_state=0)
    assert_array_equal(dithered[~zero], features[~zero])
    drawn = dithered[zero]
    assert np.all(drawn != 0.0)
    # Ten thousand draws: five standard errors of their mean and standard deviation.
    assert abs(drawn.mean()) < 5 * 0.01 / 100
    assert abs(drawn.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * len(drawn))
    assert len(np.unique(drawn)) == len(drawn)
    assert features[0, 0] == 1e-31
    assert_array_equal(dither(features, random_state=0), dithered)


def test_dither_obeys_its_settings() -> None:
    assert dither([0.0, 0.05], random_state=0, tolerance=0.1, scale=0.0).tolist() == [0.0, 0.0]
    assert dither([1e-31], random_state=0, tolerance=0.0).tolist() == [1e-31]
    assert dither([0.0], random_state=0, tolerance=0.0) != 0.0
    with pytest.raises(ValueError, match=r"tolerance must be finite and not negative, got -1\.0"):
        dither([0.0], tolerance=-1.0)
    with pytest.raises(ValueError, match="scale must be finite and not negative, got nan"):
        dither([0.0], scale=np.nan)
