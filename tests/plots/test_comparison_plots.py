"""Pictures of a comparison show every classifier and data set."""

from __future__ import annotations

from dataclasses import replace

import pytest

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


def test_errors_in_a_panel_for_each_set() -> None:
    panels = plot_errors(outcomes())
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    assert [float(line[0].get_xdata()[0]) for line in panels[0].containers] == pytest.approx(
        [10.5, 30.5, 20.5]
    )
    with pytest.raises(ValueError, match="no outcomes"):
        plot_errors([])
