"""The reliability plot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from skmix import SharedKernelClassifier
from skmix.estimators.densities import log_joint
from skmix.plots import plot_reliability

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.choice(["a", "b", "c"], size=n)
    centres = {"a": 0.0, "b": 1.5, "c": 3.0}
    return np.array([centres[label] for label in y])[:, None] + random.normal(size=(n, 2)), y


def curves(axes: Any) -> dict[str, np.ndarray]:
    """Return the points of each curve by the first word of its name."""
    return {
        c.get_label().split()[0].rstrip(":"): c.lines[0].get_xydata()
        for c in axes.containers
        if c.get_label()[0] != "_"
    }


def test_points_are_shares_of_correct_rows() -> None:
    X, y = rows()
    model = SharedKernelClassifier(random_state=0, max_iter=500).fit(X, y)
    axes = plot_reliability(model, X, y, n_bins=5)
    points = curves(axes)["classifier"]
    probabilities = model.predict_proba(X)
    confidence, correct = probabilities.max(axis=1), model.predict(X) == y
    expected = [
        (confidence[own].mean(), correct[own].mean())
        for low in np.arange(5) / 5
        if (own := (confidence >= low) & (confidence < low + 0.2)).any()
    ]
    assert_allclose(points, expected, rtol=1e-12)
    inside = [(confidence >= low) & (confidence < low + 0.2) for low in np.arange(5) / 5]
    intervals = [
        tuple(binomtest(int(correct[own].sum()), int(own.sum())).proportion_ci(method="wilson"))
        for own in inside
        if own.any()
    ]
    drawn = next(c for c in axes.containers if c.get_label()[0] != "_").lines[2][0].get_segments()
    assert_allclose([bar[:, 1] for bar in drawn], intervals, atol=1e-12)
    bars = [bar.get_height() for bar in axes.patches]
    counts = np.array([np.sum(own) for own in inside])
    used = np.flatnonzero(counts)
    assert_allclose(bars, counts[used] / 400)
    assert_allclose([bar.get_x() + bar.get_width() / 2 for bar in axes.patches], (used + 0.5) / 5)
    error = np.abs(np.subtract(*np.array(expected).T)) @ counts[used] / 400
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"classifier: {error:.3f}"]
    assert axes.get_xlabel() == "probability of the predicted class"
    assert axes.get_ylabel() == "share of correct predictions"
    assert axes.get_xlim() == axes.get_ylim() == (0.0, 1.02)
    (diagonal,) = (line for line in axes.get_lines() if len(line.get_xdata()) == 2 != len(points))
    assert_allclose(diagonal.get_xydata(), [[0, 0], [1, 1]])


def test_both_curves_after_calibration() -> None:
    X, y = rows()
    model = SharedKernelClassifier(random_state=0, max_iter=500).fit(X[:200], y[:200])
    before = curves(plot_reliability(model, X, y))["classifier"]
    model.calibrate(X[200:], y[200:])
    _, axes = plt.subplots()
    assert plot_reliability(model, X, y, axes=axes) is axes
    found = curves(axes)
    assert_allclose(found["before"], before, rtol=1e-9)
    assert_allclose(
        found["temperature"][:, 0].max(),
        np.max(softmax(log_joint(model, X) / model.temperature_, axis=1).max(axis=1)),
        atol=0.1,
    )
    first, second = (text.get_text() for text in axes.get_legend().get_texts())
    assert first.startswith("before calibration: ")
    assert second.startswith(f"temperature {model.temperature_:.2g}: ")
    # What is reported after calibration.
    sure, right = model.predict_proba(X).max(axis=1), model.predict(X) == y
    places = np.minimum((10 * sure).astype(int), 9)
    expected = [(sure[places == each].mean(), right[places == each].mean()) for each in np.unique(places)]
    assert_allclose(found["temperature"], expected)
    assert_allclose(
        [bar.get_height() for bar in axes.patches], np.unique(places, return_counts=True)[1] / 400
    )


def test_other_classifiers() -> None:
    X, y = rows()
    assert "classifier" in curves(plot_reliability(LogisticRegression().fit(X, y), X, y))


def test_bad_input() -> None:
    X, y = rows()
    model = SharedKernelClassifier(random_state=0, max_iter=500).fit(X, y)
    with pytest.raises(ValueError, match="X has 400 rows but y has 3 labels"):
        plot_reliability(model, X, y[:3])
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        plot_reliability(model, X, y, n_bins=0)
