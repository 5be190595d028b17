"""Deskewed images: against scipy's affine transform, and what must come out of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import affine_transform
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skmix.features import Deskew
from skmix.paper import make_seven_segment_digits


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return make_seven_segment_digits(2, random_state=0)[0].astype(np.float64)


def sheared_by_scipy(image: np.ndarray, centre: bool) -> np.ndarray:
    """The textbook way: moments pixel by pixel, then scipy's bilinear affine transform."""
    rows, columns = np.indices(image.shape)
    mass = image.sum()
    mean = np.array([(rows * image).sum(), (columns * image).sum()]) / mass
    slant = ((rows - mean[0]) * (columns - mean[1]) * image).sum() / ((rows - mean[0]) ** 2 * image).sum()
    matrix = np.array([[1.0, 0.0], [slant, 1.0]])
    target = (np.array(image.shape) - 1) / 2 if centre else mean
    return affine_transform(image, matrix, mean - matrix @ target, order=1, mode="grid-constant")


@pytest.mark.parametrize("centre", [True, False])
def test_it_is_the_affine_transform_of_the_moments(digits: np.ndarray, centre: bool) -> None:
    slanted = np.stack([np.roll(image, (2, -1), axis=(0, 1)) for image in digits])
    slanted = np.stack(
        [affine_transform(image, [[1.0, 0.0], [0.4, 1.0]], [0.0, -5.0], order=1) for image in slanted]
    )
    expected = np.stack([sheared_by_scipy(image, centre) for image in slanted])
    upright = Deskew(centre=centre).fit_transform(slanted)
    assert_allclose(upright.reshape(slanted.shape), expected, rtol=0, atol=1e-9 * 255)


def test_images_need_not_be_square() -> None:
    images = np.random.RandomState(0).uniform(size=(3, 9, 6))
    expected = np.stack([sheared_by_scipy(image, True) for image in images])
    transformer = Deskew(image_shape=(9, 6))
    upright = transformer.fit_transform(images.reshape(3, -1))
    assert_allclose(upright.reshape(images.shape), expected, atol=1e-12)
    names = [f"pixel {i // 6},{i % 6}" for i in range(54)]
    assert transformer.get_feature_names_out().tolist() == names
    # Single precision and whole numbers are computed in double precision.
    whole = (255 * images).astype(np.uint8)
    expected = np.stack([sheared_by_scipy(image.astype(np.float64), False) for image in whole])
    assert_allclose(Deskew(centre=False).fit_transform(whole).reshape(images.shape), expected, atol=1e-10)


def test_dark_images_and_flat_ones_come_out_whole() -> None:
    images = np.zeros((2, 5, 5))
    images[1, 2, 1:4] = 1.0
    assert_array_equal(Deskew().fit_transform(images).reshape(2, 5, 5), images)
    # A flat one is moved to the middle, by half a pixel if need be, unless it is to stay.
    images[1] = 0.0
    images[1, 0, :2] = 2.0
    moved = np.zeros((5, 5))
    moved[2, 1:4] = [1.0, 2.0, 1.0]
    assert_array_equal(Deskew().fit_transform(images)[1].reshape(5, 5), moved)
    assert_array_equal(Deskew(centre=False).fit_transform(images).reshape(2, 5, 5), images)


def test_images_do_not_depend_on_the_batch(digits: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Deskew().fit_transform(digits)
    monkeypatch.setattr("skmix.features._IMAGES_AT_A_TIME", 3)
    assert_allclose(Deskew().fit_transform(digits), together, rtol=0, atol=1e-10)


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="centre must be True or False, got 'yes'"):
        clone(Deskew(centre="yes")).fit(np.ones((1, 4)))


@parametrize_with_checks([Deskew(image_shape=(1, -1))])
def test_scikit_learns_contract(estimator: Deskew, check: object) -> None:
    check(estimator)  # type: ignore[operator]
