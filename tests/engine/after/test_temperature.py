"""The temperature of least log-loss."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skmix.engine.after.temperature import least_log_loss, log_losses


@pytest.mark.parametrize("lowest", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.1, 4.0, 1e3])
def test_no_other_temperature_is_better(scale: float, lowest: float) -> None:
    """The likeliest class is the true one in about seven of ten rows."""
    random = np.random.default_rng(1)
    joints = scale * random.normal(size=(200, 3))
    codes = np.where(random.uniform(size=200) < 0.6, joints.argmax(axis=1), random.integers(0, 3, size=200))
    weights = random.uniform(0.5, 2.0, size=200)

    def loss(log_temperature: float) -> float:
        logs = joints / np.exp(log_temperature)
        return float(-np.average(log_softmax(logs, axis=1)[np.arange(200), codes], weights=weights))

    temperature, least = least_log_loss(joints, codes, weights, lowest=lowest)
    best = minimize_scalar(loss, bounds=(np.log(lowest or 1e-6), np.log(1e6)), method="bounded")
    assert_allclose(least, loss(np.log(temperature)), rtol=1e-12)
    assert least <= min(best.fun, loss(np.log(lowest or 1e-6))) * (1.0 + 1e-12)
    # Probabilities of timid scores are sharpened only where that is allowed.
    assert (temperature == 1.0) == (lowest == 1.0 and scale < 1.0)
    assert (temperature < 1.0) == (lowest == 0.0 and scale < 1.0)
    losses = log_losses(joints, codes, temperature)
    assert_allclose(np.average(losses, weights=weights), least, rtol=1e-13)


def test_scores_that_say_nothing_are_ignored() -> None:
    random = np.random.default_rng(2)
    joints, codes = random.normal(size=(500, 2)), np.repeat([0, 1], 250)
    # The likelier class is the wrong one.
    joints[np.arange(500), codes] = joints.min(axis=1) - 1.0
    temperature, loss = least_log_loss(joints, codes)
    assert temperature == pytest.approx(1e6)
    assert_allclose(loss, np.log(2.0), rtol=1e-5)


@pytest.mark.parametrize("lowest", [0.0, 1.0])
def test_a_class_of_density_zero_stays_impossible(lowest: float) -> None:
    joints = np.array([[0.0, -1.0, -np.inf], [0.5, 0.0, -np.inf], [-1.0, -3.0, -np.inf]])
    codes = np.array([0, 1, 0])
    expected = least_log_loss(joints[:, :2], codes, lowest=lowest)
    assert least_log_loss(joints, codes, lowest=lowest) == pytest.approx(expected, rel=1e-12)
    assert_allclose(log_losses(joints, codes), log_losses(joints[:, :2], codes), rtol=1e-14)
    assert np.isinf(log_losses(joints, np.array([0, 2, 0]))[1])
