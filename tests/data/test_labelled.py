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


def test_labels_of_blocks_become_codes_of_all_labels() -> None:
    """Blocks have some of the labels; some rows have none, and rows of weight zero count for nothing."""
    labels = NAMES.astype(object)
    labels[:150] = np.where(labels[:150] == "z", "y", labels[:150])
    labels[200:300] = "z"
    labels[300:330] = None
    weights = np.ones(600)
    labels[590:], weights[590:] = "lost", 0.0
    blocks = Listed(
        [
            LabelledBlock(ROWS[a:b], weights=weights[a:b], labels=labels[a:b])
            for a, b in ((0, 200), (200, 600))
        ]
    )
    found = summarise_labels(blocks, 0)
    assert found.labels is not None
    assert found.labels.tolist() == ["x", "y", "z"]
    expected = [sum(label == name for label in labels) for name in (None, "x", "y", "z")]
    assert found.summary.counts.tolist() == expected
    assert found.summary.n_unlabelled == 30
    sample = found.summary.sample
    assert sample is not None
    assert [None if code < 0 else "xyz"[code] for code in sample.codes] == labels[:590].tolist()
    # Fewer classes than labels leave rows without a class.
    summary = found.coded(np.array(["x", "z"]))
    assert summary.counts.tolist() == [expected[0] + expected[2], expected[1], expected[3]]
    assert summary.class_sizes(2).tolist() == [expected[1], expected[3]]
    assert summary.sample is not None
    assert np.bincount(summary.sample.codes + 1).tolist() == summary.counts.tolist()


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
