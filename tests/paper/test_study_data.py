"""The study's data, and what a classifier makes of the images themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from skmix.paper import Settings, StudyData, fingerprint, make_data
from skmix.paper.study import run_beyond


def test_data_have_the_sizes_of_the_settings(data: StudyData) -> None:
    assert data.train_images.shape == (300, 28, 28)
    assert data.test_images.dtype == np.uint8
    assert np.bincount(data.train_labels).tolist() == [30] * 10
    assert np.bincount(data.test_labels).tolist() == [10] * 10
    assert data.train_features.shape == (300, 14)
    zero = np.abs(data.train_features) <= 1e-10
    assert zero.any()
    np.testing.assert_array_equal(data.train_dithered[~zero], data.train_features[~zero])
    assert 0.005 < data.train_dithered[zero].std() < 0.02


def test_data_follow_the_seed_part_by_part(data: StudyData, settings: Settings) -> None:
    again = make_data(settings)
    np.testing.assert_array_equal(again.test_dithered, data.test_dithered)
    assert fingerprint(again) == fingerprint(data)
    other = make_data(dataclasses.replace(settings, seed=settings.seed + 1))
    assert (other.train_images != data.train_images).any()
    assert fingerprint(other) != fingerprint(data)
    more = make_data(dataclasses.replace(settings, train_per_digit=31))
    np.testing.assert_array_equal(more.test_images, data.test_images)
    # As many images of each part would be the same ones if the parts shared a generator.
    alike = make_data(dataclasses.replace(settings, train_per_digit=10))
    assert not np.array_equal(alike.train_images, alike.test_images)
    same = alike.train_features == alike.test_features
    assert not np.array_equal(alike.train_dithered[same], alike.test_dithered[same])
    # Everything that runs depend on is in the digest.
    changed = []
    for field in dataclasses.fields(data):
        values = getattr(data, field.name).copy()
        values.flat[-1] += 1
        changed.append(dataclasses.replace(data, **{field.name: values}))
    assert len({fingerprint(each) for each in (data, *changed)}) == len(changed) + 1


@pytest.mark.slow
def test_shared_kernels_on_principal_components_read_the_images() -> None:
    """At the paper's number of training images; the paper's features stay behind for every learner."""
    data = make_data(Settings(seed=11, train_per_digit=100, test_per_digit=50))
    found = {beyond.name: beyond for beyond in run_beyond(data, seed=0)}
    assert found["shared kernels, principal components"].accuracy >= 0.995
    assert found["shared kernels, principal components"].ours
    assert not found["support vector machine, principal components"].ours
    for name in ("shared kernels, paper's features", "support vector machine, paper's features"):
        assert 0.9 < found[name].accuracy < 0.99
    for beyond in found.values():
        assert beyond.confusion.sum() == 500
        assert beyond.accuracy == np.trace(beyond.confusion) / 500


def test_no_classifier_learns_from_the_test_images(data: StudyData) -> None:
    """With wrong test labels, whoever has seen them would do better than chance."""
    shuffled = np.random.RandomState(0).permutation(data.test_labels)
    found = run_beyond(dataclasses.replace(data, test_labels=shuffled), seed=0)
    for beyond in found:
        assert beyond.accuracy < 0.3, beyond.name
        assert beyond.accuracy == np.trace(beyond.confusion) / 100
    assert [each.ours for each in found] == [True, False, True, False]
    assert found[2].description == "SharedKernelClassifier with 10 kernels on the paper's 13 features"
