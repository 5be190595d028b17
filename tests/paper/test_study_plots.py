"""Pictures of a study show every run, count the failures, and are all there."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from synthetic import synthetic_results

from skmix.paper import DIGIT_FEATURES
from skmix.paper.figures import paper_figures
from skmix.paper.variants import MAIN_KERNELS

RESULTS = synthetic_results()


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
    # All figures are drawn, and that of accuracies has a dot for every run with ten kernels.
    drawn = {name: draw() for name, draw in figures.items() if not name.startswith("projections")}
    assert all(figure.axes for figure in drawn.values())
    lines = [line for panel in drawn["accuracy_distribution"].axes for line in panel.get_lines()]
    n_dots = sum(len(line.get_xdata()) for line in lines if line.get_marker() == "o")
    assert n_dots == np.count_nonzero(RESULTS.runs["n_kernels"] == MAIN_KERNELS)
    # Figures are not left with pyplot, which would keep all in memory.
    assert plt.get_fignums() == []
