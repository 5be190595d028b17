"""The expected calibration error and its bins, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skmix.metrics import calibration_error, reliability_bins

# Two rows at 0.9, one right. Three at 0.6, all right. One at 1.0, right.
PROBABILITIES = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.0, 1.0]])
CODES = np.array([0, 1, 0, 1, 0, 1])


def test_calibration_error_by_hand() -> None:
    # 0.9 and 1.0 fall into one bin: 2.8 expected and 2 right there, 1.8 and 3 in the other.
    assert calibration_error(PROBABILITIES, CODES) == pytest.approx((0.8 + 1.2) / 6)
    assert calibration_error(PROBABILITIES[:2], CODES[:2]) == pytest.approx(0.4)
    error = calibration_error(PROBABILITIES, CODES, sample_weight=[1, 1, 1, 1, 1, 9])
    assert error == pytest.approx((0.8 + 1.2) / 14)


@pytest.mark.parametrize("function", [calibration_error, reliability_bins])
def test_a_third_number_is_not_taken_for_a_weight(function: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        function(PROBABILITIES, CODES, 5)


def test_bins_are_those_that_have_rows() -> None:
    low, high = reliability_bins(PROBABILITIES, CODES)
    assert low == pytest.approx((0.6, 1.0, 3))
    assert high == pytest.approx((2.8 / 3, 2 / 3, 3))


def test_a_row_of_weight_two_counts_twice() -> None:
    often = np.array([2, 1, 0, 0, 0, 3])
    repeated = np.repeat(PROBABILITIES, often, axis=0), np.repeat(CODES, often)
    bins = reliability_bins(PROBABILITIES, CODES, sample_weight=often.astype(float))
    assert bins == reliability_bins(*repeated)
    assert isinstance(bins[0].n_rows, int)
    error = calibration_error(PROBABILITIES, CODES, sample_weight=0.5 * often)
    assert error == pytest.approx(calibration_error(*repeated))
    with pytest.raises(ValueError, match="zero"):
        calibration_error(PROBABILITIES, CODES, sample_weight=0 * often)


@pytest.mark.parametrize("large", [5e18, 1e300])
def test_weights_too_large_to_count(large: float) -> None:
    weights = np.full(len(CODES), large)
    error = calibration_error(PROBABILITIES, CODES, sample_weight=weights)
    assert error == pytest.approx(calibration_error(PROBABILITIES, CODES))
