"""The tree of merges, and kernels and rows in the colours of their populations."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture
from skmix.groups import Populations, draw_populations, merge_kernels, plot_merges
from skmix.plots._common import CLASS_COLOURS


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    random = np.random.default_rng(0)
    return np.concatenate([random.exponential(size=(300, 2)), random.normal(12.0, size=(150, 2))])


@pytest.fixture(scope="module")
def model(rows: np.ndarray) -> SharedKernelMixture:
    return SharedKernelMixture(5, init="k-means", random_state=0).fit(rows)


@pytest.fixture(scope="module")
def merged(model: SharedKernelMixture) -> Populations:
    return merge_kernels(model, n_populations=2)


def leaves_below(tree: np.ndarray, height: float) -> set[int]:
    """Return the kernels of the merge at a height."""
    n_kernels = len(tree) + 1
    below: list[set[int]] = [{k} for k in range(n_kernels)]
    for one, other, _, _ in tree:
        below.append(below[int(one)] | below[int(other)])
    return below[n_kernels + int(np.abs(tree[:, 2] - height).argmin())]


def test_the_tree_has_a_colour_for_each_population_and_a_line_at_the_cut(merged: Populations) -> None:
    axes = plot_merges(merged)
    lines = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(lines) == 1
    level = lines[0].get_ydata()[0]
    assert level == pytest.approx((merged.tree[2, 2] + merged.tree[3, 2]) / 2)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("kernel", "height of the merge")
    assert axes.get_ylim() == (0.0, 1.05)
    colours = [to_hex(line.get_color()) for line in axes.get_legend().get_lines()]
    assert colours == list(CLASS_COLOURS[:2])
    # A link below the cut has the colour of the population, the others are grey.
    for links in axes.collections:
        (colour,) = links.get_colors()
        for path in links.get_paths():
            height = path.vertices[:, 1].max()
            below = leaves_below(merged.tree, height)
            whose = {CLASS_COLOURS[merged.of_kernels[k]] for k in below}
            assert to_hex(colour) == (whose.pop() if height < level else "#737373")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1"]
    assert sorted(text.get_text() for text in axes.get_xticklabels()) == ["k0", "k1", "k2", "k3", "k4"]
    drawn = [to_hex(colour) for links in axes.collections for colour in links.get_colors()]
    inside = {CLASS_COLOURS[g] for g in (0, 1) if np.sum(merged.of_kernels == g) > 1}
    assert inside < set(drawn)
    assert sum(len(links.get_paths()) for links in axes.collections) == 4


def test_kernels_and_rows_have_the_colour_of_their_population(
    model: SharedKernelMixture, merged: Populations, rows: np.ndarray
) -> None:
    _, given = plt.subplots()
    axes = draw_populations(model, merged, rows, given, features=[1, 0])
    assert axes is given
    outlines = [artist for artist in axes.get_children() if isinstance(artist, Ellipse)]
    assert [to_hex(each.get_edgecolor()) for each in outlines] == [
        CLASS_COLOURS[g] for g in merged.of_kernels
    ]
    assert_allclose([each.get_center() for each in outlines], model.means_[:, ::-1])
    found = merged.predict(model, rows)
    drawn = [line for line in axes.lines if line.get_marker() == "o"]
    for g, line in enumerate(drawn):
        assert to_hex(line.get_color()) == CLASS_COLOURS[g]
        assert_allclose(np.column_stack(line.get_data()), rows[found == g][:, ::-1])
    assert len(drawn) == 2
    # Two standard deviations either way, unless told otherwise.
    lengths = [sorted([each.width, each.height]) for each in outlines]
    assert_allclose(lengths, 4.0 * np.sqrt(np.linalg.eigvalsh(model.covariances_)))
    assert (axes.get_xlabel(), axes.get_legend()) == ("", None)
    new = draw_populations(model, merged.renamed({1: "B"}), n_std=1.0)
    assert (new.get_xlabel(), new.get_ylabel()) == ("feature 0", "feature 1")
    legend = new.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["0", "B"]
    assert [to_hex(line.get_color()) for line in legend.get_lines()] == list(CLASS_COLOURS[:2])
    outlines = [artist for artist in new.get_children() if isinstance(artist, Ellipse)]
    assert_allclose([sorted([each.width, each.height]) for each in outlines], np.divide(lengths, 2.0))


def test_populations_beyond_the_colours_have_other_dashes_and_markers() -> None:
    random = np.random.default_rng(0)
    rows = np.repeat(np.arange(9.0) * 10.0, 6)[:, None] + random.normal(size=(54, 2))
    model = SharedKernelMixture(9, random_state=0).fit(rows)
    merged = merge_kernels(model, n_populations=9)
    axes = draw_populations(model, merged, rows)
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    assert [line.get_marker() for line in drawn] == ["o"] * 8 + ["s"]
    outlines = [artist for artist in axes.get_children() if isinstance(artist, Ellipse)]
    dashed = [each.get_linestyle() in ("--", "dashed") for each in outlines]
    assert dashed == [bool(g == 8) for g in merged.of_kernels]
    legend = axes.get_legend().get_lines()
    assert [line.get_linestyle() for line in legend] == ["-"] * 8 + ["--"]


def test_what_cannot_be_drawn_is_refused(
    rows: np.ndarray, model: SharedKernelMixture, merged: Populations
) -> None:
    with pytest.raises(ValueError, match="one kernel, and no merges"):
        plot_merges(merge_kernels(SharedKernelMixture(1).fit(rows)))
    with pytest.raises(ValueError, match="in two features, got 1"):
        draw_populations(model, merged, features=[0])
