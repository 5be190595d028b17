"""Our metrics are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, jaccard_score
from sklearn.metrics import confusion_matrix as reference

from skmix.experiments.paper.metrics import accuracy, confusion_matrix, mean_iou


@pytest.mark.parametrize("seed", range(5))
def test_metrics_agree_with_scikit_learn(seed: int) -> None:
    random = np.random.RandomState(seed)
    truth, predicted = random.randint(4, size=60), random.randint(4, size=60)
    confusion = confusion_matrix(truth, predicted, 4)
    np.testing.assert_array_equal(confusion, reference(truth, predicted, labels=range(4)))
    assert accuracy(confusion) == accuracy_score(truth, predicted)
    assert mean_iou(confusion) == pytest.approx(jaccard_score(truth, predicted, average="macro"), abs=1e-15)


def test_a_class_that_is_never_predicted_counts_as_zero() -> None:
    truth, predicted = np.repeat(np.arange(10), 3), np.zeros(30, dtype=np.int64)
    confusion = confusion_matrix(truth, predicted, 10)
    assert accuracy(confusion) == 0.1
    # Class 0: 3 found of 30 that belong to it or were taken for it.
    assert mean_iou(confusion) == pytest.approx((3 / 30) / 10)
