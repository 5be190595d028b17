"""The tree of merges, and kernels and rows in the colours of their populations."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from skmix import SharedKernelMixture
from skmix.plots import draw_populations, plot_merges
from skmix.plots._common import CLASS_COLOURS


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    random = np.random.default_rng(0)
    return np.concatenate([random.exponential(size=(300, 2)), random.normal(12.0, size=(150, 2))])


@pytest.fixture
def model(rows: np.ndarray) -> SharedKernelMixture:
    return SharedKernelMixture(5, init="k-means", random_state=0).fit(rows).merge_kernels(n_populations=2)


def test_the_tree_has_a_colour_for_each_population_and_a_line_at_the_cut(model: SharedKernelMixture) -> None:
    axes = plot_merges(model)
    lines = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(lines) == 1
    level = lines[0].get_ydata()[0]
    assert model.merge_tree_[2, 2] < level < model.merge_tree_[3, 2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1"]
    assert sorted(text.get_text() for text in axes.get_xticklabels()) == ["k0", "k1", "k2", "k3", "k4"]
    drawn = [to_hex(colour) for links in axes.collections for colour in links.get_colors()]
    inside = {CLASS_COLOURS[g] for g in (0, 1) if np.sum(model.populations_ == g) > 1}
    assert inside < set(drawn)
    assert sum(len(links.get_paths()) for links in axes.collections) == 4


def test_kernels_and_rows_have_the_colour_of_their_population(
    model: SharedKernelMixture, rows: np.ndarray
) -> None:
    _, given = plt.subplots()
    axes = draw_populations(model, rows, given, features=[1, 0])
    assert axes is given
    outlines = [artist for artist in axes.get_children() if isinstance(artist, Ellipse)]
    assert [to_hex(each.get_edgecolor()) for each in outlines] == [
        CLASS_COLOURS[g] for g in model.populations_
    ]
    assert_allclose([each.get_center() for each in outlines], model.means_[:, ::-1])
    sizes = [len(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert sizes == np.bincount(model.predict(rows, populations=True)).tolist()


def test_mixtures_without_merges_are_refused(rows: np.ndarray, model: SharedKernelMixture) -> None:
    plain = SharedKernelMixture(1).fit(rows)
    for draw in (plot_merges, draw_populations):
        with pytest.raises(NotFittedError, match=r"call merge_kernels\(\) first"):
            draw(plain)
    with pytest.raises(ValueError, match="one kernel, and no merges"):
        plot_merges(plain.merge_kernels())
    with pytest.raises(ValueError, match="in two features, got 1"):
        draw_populations(model, features=[0])
