"""Pictures of a study show every run, count the failures, and are all there."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle
from numpy.testing import assert_allclose, assert_array_equal
from synthetic import synthetic_results

from skmix.paper import DIGIT_FEATURES, published_values, run_illustration
from skmix.paper.data import StudyData
from skmix.paper.digit_plots import plot_digit_points, plot_digits, plot_segments
from skmix.paper.digits import LIT_SEGMENTS, sample_points, segment_layout
from skmix.paper.figures import paper_figures, plot_accuracy_distribution, plot_illustration, plot_sweep
from skmix.paper.study import at_main
from skmix.paper.variants import METHODS, SWEEP_KERNELS, SWEEP_VARIANTS, VARIANTS

RESULTS = synthetic_results()


def test_every_run_is_a_dot_in_the_lane_of_its_method() -> None:
    axes = plot_accuracy_distribution(RESULTS.runs)
    assert [panel.get_title(loc="left") for panel in axes] == list(VARIANTS)
    for panel, variant in zip(axes, VARIANTS, strict=True):
        (paper,) = (line for line in panel.get_lines() if line.get_marker() == "v")
        printed = published_values()
        expected = [printed.ok_runs.loc["Med Acc", variant], printed.extremes.loc[variant, "maximum"]]
        assert_array_equal(paper.get_xdata(), expected)
        lanes = [line for line in panel.get_lines() if line.get_marker() == "o"]
        lanes.sort(key=lambda line: np.mean(line.get_ydata()))
        for method, lane, said in zip(METHODS, lanes, panel.texts, strict=True):
            runs = at_main(RESULTS.runs, method)
            accuracies = runs.loc[runs["variant"] == variant, "accuracy"]
            assert_array_equal(lane.get_xdata(), accuracies)
            n_failed = np.sum(np.array(accuracies) <= 0.5)
            expected = f"{n_failed} of {len(accuracies)} failed" if n_failed else "none failed"
            assert said.get_text() == expected


def test_the_sweep_has_means_and_lost_runs_of_each_method_and_the_paper() -> None:
    above, below = plot_sweep(RESULTS.runs)
    assert [panel.get_title() for panel in above] == list(SWEEP_VARIANTS)
    runs = RESULTS.runs[(RESULTS.runs["variant"] == "6D") & (RESULTS.runs["method"] == "published")]
    counted = runs[(runs["accuracy"] > 0.5) | (runs["n_kernels"] == 3)].groupby("n_kernels")["accuracy"]
    printed, mine, *_ = (line.get_xydata() for line in below[1].get_lines())
    lost = 1.0 - counted.size() / runs.groupby("n_kernels").size()
    assert_allclose(mine, np.column_stack([SWEEP_KERNELS, lost]))
    assert_allclose(printed[:, 1], 1.0 - published_values().sweep.xs("6D", level="variant")["counted"] / 100)
    (means,) = (line for line in above[1].get_lines() if line.get_label() == "paper's algorithm, rerun")
    assert_allclose(means.get_ydata(), counted.mean())


def test_figures_show_the_data_and_runs_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(paper_figures(RESULTS)) == [
        *("fig1_segments", "fig2_points_d1", "fig3_points_d2", "fig4_images", "fig5_pca_features"),
        *(f"projections_{name}_class-wise_class{digit}" for name in ("4D", "6D") for digit in range(10)),
        *("accuracy_distribution", "number_of_kernels"),
    ]
    monkeypatch.setattr("skmix.paper.figures._IMAGES_OF_A_DIGIT", 3)
    monkeypatch.setattr("skmix.paper.figures._ROWS_OF_A_CLASS", 5)
    order = np.random.RandomState(0).permutation(len(RESULTS.data.train_labels))
    names = ("train_images", "train_labels", "train_features", "train_dithered")
    data = replace(RESULTS.data, **{name: getattr(RESULTS.data, name)[order] for name in names})
    study = replace(RESULTS, data=data)
    figures = paper_figures(study)
    # The first images of each digit, a line each, and their features.
    first = [np.flatnonzero(data.train_labels == digit)[:3] for digit in range(10)]
    sheet = figures["fig4_images"]().axes[0].get_images()[0].get_array()
    image = data.train_images[first[7][2]]
    assert_allclose(sheet[30 * 7 : 30 * 7 + 28, 30 * 2 : 30 * 2 + 28], image / image.max())
    for panel, chosen in zip(figures["fig5_pca_features"]().axes, first, strict=True):
        lines = [line.get_ydata() for line in panel.get_lines()[1:]]
        assert_array_equal(lines, data.train_features[chosen, :10])
    # Rows beneath the kernels are those that these were fitted to. Zeros of sevens are dithered in all
    # variants, or in those that the paper names, of which this is not one.
    for dither, shown in (("all", data.train_dithered), ("paper", data.train_features)):
        own = paper_figures(replace(study, settings=replace(RESULTS.settings, dither=dither)))
        figure = own["projections_4D_class-wise_class7"]()
        rows = shown[data.train_labels == 7][:5]
        columns = [DIGIT_FEATURES.index(name) for name in ("q2", "q3")]
        (beneath,) = figure.axes[0].get_lines()
        assert_array_equal(np.column_stack(beneath.get_data()), rows[:, columns])
    # Figures are not left with pyplot, which would keep all in memory.
    assert plt.get_fignums() == []


def test_illustration_has_an_overview_and_a_panel_for_each_class() -> None:
    record = run_illustration(seed=0)
    overview, *panels, _ = plot_illustration(record).axes
    model, example = record.model, record.example
    for c, panel in enumerate(panels):
        assert [text.get_text() for text in panel.texts] == [f"{w:.3f}" for w in model.weights_[:, c]]
        (shown,) = panel.get_lines()
        assert_allclose(np.column_stack(shown.get_data()), record.X[record.y == c])
    # Three kernels, estimated and true, at one and at two standard deviations.
    ellipses = [patch for patch in overview.patches if isinstance(patch, Ellipse)]
    means = np.concatenate([model.means_, example.means])
    assert_allclose([ellipse.center for ellipse in ellipses], np.tile(means, (2, 1)))
    widths = np.array([sorted([each.width, each.height]) for each in ellipses])
    variances = np.linalg.eigvalsh(np.concatenate([model.covariances_, example.covariances]))
    assert_allclose(widths, np.concatenate([2.0 * np.sqrt(variances), 4.0 * np.sqrt(variances)]))
    assert plt.get_fignums() == []


# ---------------------------------------------------------------- digits


def test_segments_are_numbered_where_they_lie() -> None:
    axes = plot_segments(figure=Figure())
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    numbers = {text.get_text(): text.xy for text in axes.texts if text.get_text().isdigit()}
    assert (numbers["6"], numbers["2"]) == ((0.0, 5.0), (2.5, -2.5))
    for number, box in zip("1234567", boxes, strict=True):
        assert_allclose(box.get_center(), numbers[number])
        lies = number in "367"
        assert (box.get_width(), box.get_height()) == ((4.0, 1.0) if lies else (1.0, 4.0))


def test_points_come_with_three_sigma_ellipses() -> None:
    axes = plot_digit_points(1.0, 0.2, random_state=3, figure=Figure())
    points, index = sample_points(np.arange(10), segment_layout(1.0, 0.2), 3)
    for digit, panel in enumerate(axes):
        (cloud,) = panel.get_lines()
        assert_array_equal(np.column_stack(cloud.get_data()), points[index == digit])
        drawn = [patch for patch in panel.patches if isinstance(patch, Ellipse)]
        assert len(drawn) == len(LIT_SEGMENTS[digit])
        # Three standard deviations either way, of variances 1.2 · 1 and 1.2 · 0.2.
        expected = sorted([6.0 * np.sqrt(1.2), 6.0 * np.sqrt(0.24)])
        for ellipse in drawn:
            assert_allclose(sorted([ellipse.width, ellipse.height]), expected)


def test_a_sheet_has_every_image_in_its_place(data: StudyData) -> None:
    images, labels = data.train_images[::6], data.train_labels[::6]
    axes = plot_digits(images, labels, n_columns=5, figure=Figure())
    (sheet,) = (np.asarray(image.get_array().filled(np.nan)) for image in axes.get_images())
    assert sheet.shape == (10 * 30 - 2, 5 * 30 - 2)
    for position, image in enumerate(images):
        top, left = 30 * (position // 5), 30 * (position % 5)
        assert_allclose(sheet[top : top + 28, left : left + 28], image / 255)
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(digit) for digit in range(10)]
    # A label of several lines is written once.
    axes = plot_digits(data.train_images[:90], data.train_labels[:90], n_columns=10, figure=Figure())
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1", "2"]
