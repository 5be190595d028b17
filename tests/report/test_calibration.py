"""The expected calibration error and its bins, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from skmix._calibration import calibration_error, reliability_bins

# Two rows at 0.9, one right. Three at 0.6, all right. One at 1.0, right.
PROBABILITIES = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.0, 1.0]])
CODES = np.array([0, 1, 0, 1, 0, 1])


def test_bins_are_those_that_have_rows() -> None:
    # 0.9 and 1.0 fall into one bin: 2.8 expected and 2 right there, 1.8 and 3 in the other.
    low, high = bins = reliability_bins(PROBABILITIES, CODES)
    assert low == pytest.approx((0.6, 1.0, 3))
    assert high == pytest.approx((2.8 / 3, 2 / 3, 3))
    assert calibration_error(bins) == pytest.approx((0.8 + 1.2) / 6)


def test_a_row_of_weight_two_counts_twice() -> None:
    often = np.array([2, 1, 0, 0, 0, 3])
    bins = reliability_bins(PROBABILITIES, CODES, often.astype(float))
    assert bins == reliability_bins(np.repeat(PROBABILITIES, often, axis=0), np.repeat(CODES, often))
    assert isinstance(bins[0].n_rows, int)
    halves = reliability_bins(PROBABILITIES, CODES, 0.5 * often)
    assert calibration_error(halves) == pytest.approx(calibration_error(bins))
    with pytest.raises(ValueError, match="zero"):
        reliability_bins(PROBABILITIES, CODES, 0 * often)


@pytest.mark.parametrize("large", [5e18, 1e300])
def test_weights_too_large_to_count(large: float) -> None:
    error = calibration_error(reliability_bins(PROBABILITIES, CODES, np.full(len(CODES), large)))
    assert error == pytest.approx(calibration_error(reliability_bins(PROBABILITIES, CODES)))
