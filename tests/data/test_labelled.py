"""Labels of rows in blocks: what they are, their codes, and the summary by class."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Listed

from skmix.data.blocks import LabelledBlock, summarise_labels

RANDOM = np.random.default_rng(0)
ROWS, CODES = RANDOM.normal(size=(600, 3)), RANDOM.integers(0, 3, 600)
NAMES = np.array(["x", "y", "z"])[CODES]


def block(X: np.ndarray, labels: np.ndarray | None = None) -> LabelledBlock:
    return LabelledBlock(X, labels=labels)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([block(ROWS[:9], CODES[:9]), block(ROWS[9:], NAMES[9:])], r"differ in kind.*all of them one type"),
        ([block(ROWS[:9], CODES[:9]), block(ROWS[9:])], "Some blocks have labels"),
        ([block(ROWS[9:]), block(ROWS[:9], CODES[:9])], "Some blocks have labels"),
        ([block(ROWS[9:], CODES[:9])], r"Block 0 has 591 rows, but labels of shape \(9,\)"),
        ([block(ROWS, CODES + 0.5)], r"Unknown label type: \d.5"),
        ([block(ROWS[:3], np.array(["a", 1, "b"], dtype=object))], "cannot be compared with each other"),
    ],
)
def test_bad_labels_are_refused(blocks: list[LabelledBlock], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        summarise_labels(Listed(blocks), 0)
