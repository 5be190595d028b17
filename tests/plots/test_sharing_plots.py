"""Pictures of the study of sharing show its medians, its true densities, and the gain from sharing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix.experiments.field import Outcome
from skmix.experiments.field.sharing import CLASSIFIERS
from skmix.plots import plot_gain, plot_sharing

OUTCOME = Outcome("set", "QDA", 0, 3, 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


def point(data: str, name: str, rows: int, repeat: int = 0, n_classes: int = 10, **values: Any) -> Outcome:
    sizes = {"n_classes": n_classes, "n_train": rows * n_classes}
    return replace(OUTCOME, data=data, classifier=name, repeat=repeat, **sizes, **values)


def curves(axes: Any) -> dict[str, Any]:
    """Return the lines of axes by their names, bars and zero line apart."""
    handles, labels = axes.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def heights(handle: Any) -> list[float]:
    """Return the points of a line with bars."""
    return [float(value) for value in handle[0].get_ydata()]


def test_curves_are_medians_with_the_true_densities_below() -> None:
    points = [
        point("pool-100", name, rows, repeat, 100, error=error + 0.01 * repeat**2)
        for name, error in (("QDA", 0.95), ("shared kernels", 0.9))
        for rows in (5, 2)
        for repeat in range(3)
    ]
    points += [point("pool-100", "true densities", rows, 0, 100, error=0.8) for rows in (5, 2)]
    (panel,) = plot_sharing(points)
    assert panel.get_title() == "100 classes from a pool of 20 kernels"
    found = curves(panel)
    assert found["shared kernels"][0].get_xdata().tolist() == [2, 5]
    assert_allclose(heights(found["shared kernels"]), [91.0, 91.0])
    # The quartiles of 90, 91 and 94.
    (bars,) = found["shared kernels"][2]
    assert_allclose(bars.get_segments()[0][:, 1], [90.5, 92.5])
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("test error, %", "training rows of each class")
    assert panel.get_xscale() == "log"
    assert panel.get_xticks().tolist() == [2, 5]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["2", "5"]
    assert panel.get_xlim()[0] < 2.0 < 5.0 < panel.get_xlim()[1]
    assert panel.get_ylim()[0] >= 0.0
    floor = found["true densities"]
    assert_allclose(floor.get_ydata(), 80.0)
    assert floor.get_linewidth() < 1.0
    # One legend, below the panels, in the order of the study.
    assert panel.get_legend() is None
    (legend,) = panel.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["shared kernels", "QDA", "true densities"]
    # Of several panels, the first of each line of three says what is drawn.
    several = plot_sharing([point(f"set {n}", "QDA", 2, log_loss=1.0) for n in range(4)], measure="log_loss")
    assert [panel.get_ylabel() for panel in several] == ["log-loss", "", "", "log-loss"]
    assert_allclose([heights(curves(panel)["QDA"])[0] for panel in several], 1.0)
    with pytest.raises(ValueError, match="no points"):
        plot_sharing([])


def test_every_classifier_has_a_colour_of_its_own() -> None:
    panel = plot_sharing([point("parts-10", name, 5) for name in CLASSIFIERS])[0]
    colours = [
        (handle if name == "true densities" else handle[0]).get_color()
        for name, handle in curves(panel).items()
    ]
    assert len(set(colours)) == len(CLASSIFIERS)


def test_what_fails_in_a_draw_has_no_point() -> None:
    points = [
        point("letter", "QDA", rows, repeat, 26, failure="too few" if (rows, repeat) == (2, 0) else "")
        for rows in (2, 5)
        for repeat in range(2)
    ]
    (panel,) = plot_sharing(points)
    assert panel.get_title() == "letter, 26 classes"
    assert curves(panel)["QDA"][0].get_xdata().tolist() == [5]


def test_log_losses_far_above_guessing_are_cut_off() -> None:
    points = [point("apart-10", "QDA", 2, log_loss=30.0), point("apart-10", "QDA", 5, log_loss=1.0)]
    figure, axes = plt.subplots()
    (panel,) = plot_sharing(points, measure="log_loss", axes=axes)
    assert panel is axes
    # Guessing is within the limits, and so is the lowest value.
    bottom, top = panel.get_ylim()
    assert 0.0 < bottom < 1.0 < np.log(10) < top < 2.0 * np.log(10)
    # Where nothing is above, nothing is cut off.
    low = plot_sharing([replace(each, log_loss=0.5) for each in points], measure="log_loss")[0]
    assert low.get_ylim()[1] < 1.0
    # Nothing makes room beside the axes of others, so that the legend is inside.
    assert panel.get_legend() is not None
    assert figure.legends == []


def test_gain_is_drawn_within_draws_and_by_pairs() -> None:
    errors = {"shared kernels": (0.10, 0.20, 0.30), "own kernels": (0.13, 0.21, 0.32)}
    points = [
        point("parts-100", name + suffix, 5, repeat, 100, error=error, log_loss=factor * error)
        for suffix, factor in (("", 1.0), (" by parts", 2.0))
        for name, both in errors.items()
        for repeat, error in enumerate(both)
    ]
    _, axes = plt.subplots()
    assert plot_gain(points, axes=axes) is axes
    found = curves(axes)
    title = "100 classes in 6 parts of 5 kernels"
    assert list(found) == [title, f"{title}, by parts"]
    for handle in found.values():
        # Differences of 3, 1 and 2 points: quartiles 1.5, 2 and 2.5.
        assert handle[0].get_xdata()[0] == pytest.approx(5, rel=0.1)
        assert_allclose(heights(handle), [2.0])
        assert_allclose(handle[2][0].get_segments()[0][:, 1], [1.5, 2.5])
    # Beside each other, so that bars can be told apart.
    first, second = (handle[0].get_xdata()[0] for handle in found.values())
    assert first < second
    assert axes.get_ylabel() == "error of own kernels less that of shared ones, points"
    assert axes.get_ylim()[0] < 0.0 < 2.5 < axes.get_ylim()[1]
    (shaded,) = axes.patches
    assert shaded.get_y() + shaded.get_height() == pytest.approx(0.0)
    words = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert sorted(words) == ["own kernels better", "sharing pays"]
    assert 0.0 < words["own kernels better"] < 0.5 < words["sharing pays"] < 1.0
    assert axes.get_legend() is not None
    losses = plot_gain(points, measure="log_loss", legend=False)
    assert losses.get_legend() is None
    assert losses.get_ylabel() == "log-loss of own kernels less that of shared ones"
    assert_allclose(heights(curves(losses)[f"{title}, by parts"]), [0.04])


def test_lines_of_gain_differ_in_more_than_colour() -> None:
    sets = ["seven_segment", "letter", "pool-10", "pool-26", "pool-100", "apart-26", "apart-100"]
    points = [point(data, name, 5) for data in sets for name in ("shared kernels", "own kernels")]
    found = curves(plot_gain(points))
    assert next(iter(found)) == "seven-segment digits, 10 classes"
    lines = [handle[0] for handle in found.values()]
    assert len({line.get_marker() for line in lines}) == len(sets)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(sets)
    # A kind of classes has one colour, and the most classes of it a solid line.
    colours = dict(zip(sets, (line.get_color() for line in lines), strict=True))
    assert colours["pool-10"] == colours["pool-26"] == colours["pool-100"] != colours["apart-26"]
    assert len({colours[data] for data in ("seven_segment", "letter", "pool-10", "apart-26")}) == 4
    solid = [data for data, line in zip(sets, lines, strict=True) if line.get_linestyle() == "-"]
    assert solid == ["seven_segment", "letter", "pool-100", "apart-100"]


def test_gain_needs_both_of_a_pair() -> None:
    alone = [point("letter", "shared kernels", 5, 0, 26), point("letter", "own kernels", 5, 1, 26)]
    with pytest.raises(ValueError, match="no draw has both shared and own kernels"):
        plot_gain(alone)
