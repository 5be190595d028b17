"""Pictures of a study show every run, count the failures, and are all there."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_rgb
from matplotlib.patches import Ellipse
from numpy.testing import assert_allclose, assert_array_equal
from synthetic import make_run, synthetic_results

from skmix.paper import run_illustration
from skmix.paper.figures import (
    paper_figures,
    plot_accuracy_against_kernels,
    plot_accuracy_distribution,
    plot_illustration,
)
from skmix.paper.records import Run
from skmix.paper.variants import FEATURES, LABELS, METHODS, SWEEP_KERNELS, VARIANTS
from skmix.plots._common import CLASS_COLOURS

RESULTS = synthetic_results()

# ---------------------------------------------------------------- accuracies


def lanes(axes: Axes) -> list[np.ndarray]:
    """Return the accuracies drawn as dots, lane by lane from above."""
    drawn = [line for line in axes.get_lines() if line.get_marker() == "o"]
    drawn.sort(key=lambda line: np.mean(line.get_ydata()))
    return [line.get_xdata() for line in drawn]


def test_every_run_is_a_dot_in_the_lane_of_its_method() -> None:
    axes = plot_accuracy_distribution(RESULTS.runs)
    assert [panel.get_title(loc="left") for panel in axes] == [variant.name for variant in VARIANTS]
    for panel, variant in zip(axes, VARIANTS, strict=True):
        for lane, (method, drawn) in enumerate(zip(METHODS, lanes(panel), strict=True)):
            own = [
                run
                for run in RESULTS.runs
                if (run.variant, run.method, run.n_kernels) == (variant.name, method, 10)
            ]
            assert_array_equal(drawn, [run.accuracy for run in own])
            n_failed = sum(run.accuracy <= 0.5 for run in own)
            expected = f"{n_failed} of {len(own)} failed" if n_failed else "none failed"
            assert panel.texts[lane].get_text() == expected
            assert panel.texts[lane].xy[1] == lane
            (median,) = panel.collections[lane].get_segments()
            assert_allclose(median[:, 0], np.median([run.accuracy for run in own]))
            assert_allclose(median[:, 1].mean(), lane)
        (failed,) = panel.patches
        assert (failed.get_x(), failed.get_width()) == (0.0, 0.5)
        names = [text.get_text().replace("\n", " ") for text in panel.get_yticklabels()]
        assert names == (list(LABELS.values()) if panel in axes[::2] else [])
        low, high = panel.get_ylim()
        assert low > 2.0 > 0.0 > high
    assert any(text.get_text() != "none failed" for panel in axes for text in panel.texts)


def test_runs_that_cannot_be_drawn() -> None:
    axes = plot_accuracy_against_kernels([make_run(n_kernels=k, accuracy=0.1) for k in (10, 12)])
    assert_array_equal(axes[1, 0].get_lines()[0].get_ydata(), [1.0, 1.0])
    with pytest.raises(ValueError, match="no runs with 10 kernels"):
        plot_accuracy_distribution([make_run(n_kernels=11)])
    with pytest.raises(ValueError, match="two numbers of kernels or more"):
        plot_accuracy_against_kernels([make_run()])


def test_accuracy_against_kernels_leaves_lost_runs_out() -> None:
    printed = {("6D", 10): (0.86, 0.2), ("6D", 3): (0.3, 0.0), ("4D", 10): (0.9, 0.1)}
    axes = plot_accuracy_against_kernels(RESULTS.runs, printed)
    assert axes.shape == (2, 4)
    assert [panel.get_title() for panel in axes[0]] == ["3D", "6D", "9D", "10D"]
    above, below = axes[:, 1]
    own: dict[int, list[Run]] = {}
    for run in RESULTS.runs:
        if (run.variant, run.method) == ("6D", "published"):
            own.setdefault(run.n_kernels, []).append(run)
    lost = [np.mean([run.accuracy <= 0.5 for run in own[k]]) if k > 3 else 0.0 for k in sorted(own)]
    means = [np.mean([run.accuracy for run in own[k] if run.accuracy > 0.5 or k == 3]) for k in sorted(own)]
    assert max(lost) > 0.0
    assert_allclose(below.get_lines()[0].get_ydata(), lost)
    assert_allclose(above.get_lines()[0].get_ydata(), means)
    kernels = sorted(own)
    # Methods are side by side, in their order.
    for place, method in enumerate(METHODS):
        assert_allclose(above.containers[place].lines[0].get_xdata(), np.add(kernels, 0.15 * (place - 1)))
        assert above.containers[place].get_label() == below.get_lines()[place].get_label() == LABELS[method]
    bars = above.containers[0].lines[2][0].get_segments()
    kept = [[run.accuracy for run in own[k] if run.accuracy > 0.5 or k == 3] for k in kernels]
    spread = [np.std(accuracies, ddof=1) for accuracies in kept]
    assert_allclose([bar[:, 1] for bar in bars], np.add(means, np.outer([-1, 1], spread)).T)
    assert below.get_xticks().tolist() == kernels
    assert below.get_xlabel() == "kernels K"
    assert (axes[0, 0].get_ylabel(), axes[1, 0].get_ylabel()) == ("mean accuracy", "share of runs lost")
    (shown,) = (line for line in above.get_lines() if line.get_marker() == "D")
    assert_array_equal(np.column_stack(shown.get_data()), [[3, 0.3], [10, 0.86]])
    (shown,) = (line for line in below.get_lines() if line.get_marker() == "D")
    assert_array_equal(shown.get_ydata(), [0.0, 0.2])
    legend = plot_accuracy_against_kernels(RESULTS.runs)[0, 0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(LABELS.values())


# ---------------------------------------------------------------- all of them


@pytest.mark.slow
def test_the_figures_of_the_paper() -> None:
    figures = paper_figures(RESULTS)
    assert list(figures) == [
        "fig1_segments",
        "fig2_points_d1",
        "fig3_points_d2",
        "fig4_images",
        "fig5_pca_features",
        *(f"projections_4D_class-wise_class{digit}" for digit in range(10)),
        *(f"projections_6D_class-wise_class{digit}" for digit in range(10)),
        "accuracy_distribution",
        "accuracy_against_kernels",
        *(f"confusion_{variant.name}" for variant in VARIANTS),
    ]
    for name, n_panels in {"fig3_points_d2": 10, "projections_6D_class-wise_class3": 15}.items():
        assert len(figures[name]().axes) == n_panels
    # Figures are not left with pyplot, which would keep all in memory.
    assert plt.get_fignums() == []
    # A study of a few runs gives the figures it can.
    few = replace(
        RESULTS,
        runs=tuple(run for run in RESULTS.runs if run.variant == "4D" and run.method == "robust"),
        best={("4D", "robust"): RESULTS.best["4D", "robust"]},
    )
    assert list(paper_figures(few))[5:] == ["accuracy_distribution", "confusion_4D"]


def test_figures_show_the_data_and_runs_of_the_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skmix.paper.figures._IMAGES_OF_A_DIGIT", 3)
    monkeypatch.setattr("skmix.paper.figures._ROWS_OF_A_CLASS", 5)
    monkeypatch.setattr("skmix.paper.figures.SWEEP_RUNS", 5)
    order = np.random.RandomState(0).permutation(len(RESULTS.data.train_labels))
    names = ("train_images", "train_labels", "train_features", "train_dithered")
    data = replace(RESULTS.data, **{name: getattr(RESULTS.data, name)[order] for name in names})
    best = {key: own for key, own in RESULTS.best.items() if key in (("4D", "class-wise"), ("3D", "robust"))}
    study = replace(RESULTS, data=data, best=best)
    figures = paper_figures(study)
    assert figures["fig2_points_d1"]().get_suptitle() == "D = 1, d = 0.2: points and 3σ ellipses"
    # The first images of each digit, a line each, and their features.
    first = [np.flatnonzero(data.train_labels == digit)[:3] for digit in range(10)]
    sheet = figures["fig4_images"]().axes[0].get_images()[0].get_array()
    assert sheet.shape == (298, 88)
    for digit, chosen in enumerate(first):
        for place, image in enumerate(data.train_images[chosen]):
            tile = sheet[30 * digit : 30 * digit + 28, 30 * place : 30 * place + 28]
            assert_allclose(tile, image / image.max())
    for panel, chosen in zip(figures["fig5_pca_features"]().axes, first, strict=True):
        lines = [line.get_ydata() for line in panel.get_lines()[1:]]
        assert_array_equal(lines, data.train_features[chosen, :10])
    # Rows beneath the kernels are those that these were fitted to. Zeros of sevens are dithered in all
    # variants, or in those that the paper names, of which this is not one.
    for dither, shown in (("all", data.train_dithered), ("paper", data.train_features)):
        own = paper_figures(replace(study, settings=replace(RESULTS.settings, dither=dither)))
        figure = own["projections_4D_class-wise_class7"]()
        assert figure.get_suptitle() == "4D, class-wise: digit 7"
        rows = shown[data.train_labels == 7][:5]
        columns = [FEATURES.index(name) for name in ("q2", "q3")]
        (beneath,) = figure.axes[0].get_lines()
        assert_array_equal(np.column_stack(beneath.get_data()), rows[:, columns])
    (panel,) = figures["confusion_3D"]().axes
    run = best["3D", "robust"].run
    assert panel.get_title() == f"3D, robust: {run.accuracy:.3f}"
    assert panel.texts[0].get_text() == str(run.confusion[0, 0])
    # As in the paper's table 5, of the first runs alone.
    above = figures["accuracy_against_kernels"]().axes[0]
    runs = [each for each in study.runs if each.variant == "3D" and each.method == "robust" and each.run < 5]
    kept = [each for each in runs if each.accuracy > 0.5 or each.n_kernels == 3]
    means = [np.mean([each.accuracy for each in kept if each.n_kernels == k]) for k in SWEEP_KERNELS]
    assert_allclose(above.containers[1].lines[0].get_ydata(), means)


# ---------------------------------------------------------------- kernels and illustration


def ellipses(axes: Axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


def test_illustration_has_an_overview_and_a_panel_for_each_class() -> None:
    record = run_illustration(seed=0)
    overview, *panels = plot_illustration(record)
    # Three kernels, true and estimated, at one and two standard deviations.
    assert len(ellipses(overview)) == 12
    assert [len(ellipses(panel)) for panel in panels] == [3, 3, 3]
    model = record.model
    for c, panel in enumerate(panels):
        # Weights are written above the kernels, at the top of their ellipses.
        tops = model.means_ + np.sqrt(model.covariances_[:, 1, 1])[:, None] * [0.0, 1.0]
        assert [text.get_text() for text in panel.texts] == [f"{w:.3f}" for w in model.weights_[:, c]]
        assert_allclose([text.xy for text in panel.texts], tops)
        (shown,) = panel.get_lines()
        assert_allclose(np.column_stack(shown.get_data()), record.X[record.y == c])
        assert panel.get_title() == f"Weights of class {c}"
        assert same_color(panel.title.get_color(), CLASS_COLOURS[c])
    # Every row has the colour of its class.
    (cloud,) = (each for each in overview.collections if len(each.get_offsets()) == len(record.X))
    classes = {tuple(row): c for row, c in zip(record.X.tolist(), record.y, strict=True)}
    expected = [to_rgb(CLASS_COLOURS[classes[tuple(row)]]) for row in cloud.get_offsets().tolist()]
    assert_allclose(cloud.get_facecolors()[:, :3], expected)
    centres = [ellipse.center for ellipse in ellipses(overview)]
    example = record.example
    assert_allclose(centres, np.tile(np.concatenate([model.means_, example.means]), (2, 1)))
    widths = np.array([sorted([each.width, each.height]) for each in ellipses(overview)])
    variances = np.linalg.eigvalsh(np.concatenate([model.covariances_, example.covariances]))
    assert_allclose(widths, np.concatenate([2.0 * np.sqrt(variances), 4.0 * np.sqrt(variances)]))
    names = [text.get_text() for text in overview.get_legend().get_texts()]
    assert names == [*(f"class {c}" for c in range(3)), "estimated, 1σ and 2σ", "true"]
    assert plt.get_fignums() == []
    overview.figure.draw_without_rendering()
    assert overview.xaxis.label.get_window_extent().y0 >= 0
