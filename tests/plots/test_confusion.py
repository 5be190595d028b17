"""A confusion matrix shows its counts where they are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix.plots import plot_confusion


def test_confusion_shows_counts_where_they_are() -> None:
    axes = plot_confusion([[9, 1, 0], [0, 5, 0], [2, 0, 3]], labels=["a", "b", "c"])
    written = {text.get_position(): text.get_text() for text in axes.texts}
    # Across are predictions, down is the truth; zeros are left out.
    assert written == {(0, 0): "9", (1, 0): "1", (1, 1): "5", (0, 2): "2", (2, 2): "3"}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b", "c"]
    assert axes.get_title() == "accuracy 0.850"
    shades = axes.get_images()[0].get_array()
    assert_allclose(shades, np.sqrt([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.4, 0.0, 0.6]]))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "true")
    # White on shades above 0.65.
    colours = [text.get_color() for text in axes.texts]
    assert colours == ["white", "black", "white", "black", "white"]


def test_a_class_without_rows_and_shares_instead_of_counts() -> None:
    axes = plot_confusion([[0.25, 0.75], [0.0, 0.0]], title="shares")
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75"]
    assert axes.get_title() == "shares"
    assert plot_confusion(np.zeros((2, 2), dtype=int)).get_title() == "accuracy 0.000"


def test_no_confusion_matrix() -> None:
    with pytest.raises(ValueError, match=r"a confusion matrix is square, got shape \(2, 3\)"):
        plot_confusion(np.ones((2, 3)))
    with pytest.raises(ValueError, match="the matrix has 2 classes but there are 3 labels"):
        plot_confusion(np.eye(2), labels="abc")
    with pytest.raises(ValueError, match="finite counts that are not negative"):
        plot_confusion([[1, -1], [0, 1]])
