"""Pictures of a comparison show every classifier and data set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from skmix.experiments.field import Outcome
from skmix.plots import plot_errors, plot_ranks

OUTCOME = Outcome("set", "LDA", 0, 3, 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


def outcomes() -> list[Outcome]:
    errors = {"shared kernels": 0.1, "LDA": 0.3, "MLP": 0.2}
    return [
        replace(OUTCOME, data=data, classifier=name, repeat=repeat, error=error + 0.01 * repeat)
        for data in ("a", "b")
        for name, error in errors.items()
        for repeat in range(2)
    ]


def test_ranks_from_the_best_down() -> None:
    axes = plot_ranks(outcomes())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["shared kernels", "MLP", "LDA"]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.0, 3.0]
    assert [round(bar.get_y() + bar.get_height() / 2) for bar in axes.patches] == [0, 1, 2]
    assert [text.get_text() for text in axes.texts] == ["1.0", "2.0", "3.0"]
    low, high = axes.get_ylim()
    assert low > 2.0 > 0.0 > high
    assert axes.get_xlim()[0] == 0.0
    assert axes.get_xlim()[1] > 3.0
    assert axes.get_xlabel() == "mean rank by error, 1 is best"
    # Ours is vermilion, other generative classifiers are blue, the rest is grey.
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches] == ["#d55e00", "#8c8c8c", "#0072b2"]


def test_errors_in_a_panel_for_each_set() -> None:
    panels = plot_errors(outcomes())
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    assert [float(line[0].get_xdata()[0]) for line in panels[0].containers] == pytest.approx(
        [10.5, 30.5, 20.5]
    )
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert names == ["shared kernels", "LDA", "MLP"]
    for panel in panels:
        assert panel.get_xlabel() == "test error, %"
        low, high = panel.get_ylim()
        assert low > 2.0 > 0.0 > high
        drawn = {float(each[0].get_xdata()[0]): each for each in panel.containers}
        assert [float(each[0].get_ydata()[0]) for each in drawn.values()] == [0.0, 1.0, 2.0]
        assert [to_hex(each[0].get_color()) for each in drawn.values()] == ["#d55e00", "#0072b2", "#8c8c8c"]
        # Errors of 10 and 11: standard deviation root 1/2, times root 1/2 + 10/30.
        for value, each in drawn.items():
            (bar,) = each[2][0].get_segments()
            half = np.sqrt(0.5 * (1 / 2 + 1 / 3))
            assert bar[:, 0].tolist() == pytest.approx([value - half, value + half])
    # One split has no standard error.
    (panel,) = plot_errors([each for each in outcomes() if (each.data, each.repeat) == ("a", 0)])
    assert [len(each[2]) for each in panel.containers] == [0, 0, 0]
    with pytest.raises(ValueError, match="no outcomes"):
        plot_errors([])
