"""Pictures of studies: proportions in samples, the tree of merges, and kernels in colours of populations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse, Rectangle
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture
from skmix.groups import Populations, merge_kernels, plot_merges, plot_proportions
from skmix.plots import draw_kernels
from skmix.plots._common import CLASS_COLOURS


def tables(n_groups: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    names = [f"sample {g:03}" for g in range(n_groups)][::-1]
    shares = np.random.default_rng(0).dirichlet([4.0, 2.0, 1.0], n_groups)
    composition = pd.DataFrame(
        {
            "sample": np.repeat(names, 3),
            "population": np.tile(np.arange(3), n_groups),
            "proportion": shares.ravel(),
        }
    )
    odd = np.arange(n_groups) == 1
    unusual = pd.DataFrame(
        {
            "sample": names,
            "population": 2,
            "p_composition": 1e-5,
            "p_likelihood": np.nan,
            "unusual": odd,
        }
    )
    return composition, unusual


def test_shares_are_cells_and_unusual_groups_are_marked() -> None:
    composition, unusual = tables(4)
    axes = plot_proportions(composition, unusual)
    shares = composition["proportion"].to_numpy().reshape(4, 3)
    np.testing.assert_allclose(axes.images[0].get_array(), np.sqrt(shares))
    assert [text.get_text() for text in axes.texts] == [f"{100 * share:.2g}" for share in shares.ravel()]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["sample 003", "→ sample 002", "sample 001", "sample 000"]
    # Numbers stand in their cells, white on the dark ones.
    assert [text.get_position() for text in axes.texts] == [(g, i) for i in range(4) for g in range(3)]
    dark = np.sqrt(shares / shares.max()) > 0.5
    assert [text.get_color() == "white" for text in axes.texts] == dark.ravel().tolist()
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert frame.get_xy() == (1.5, 0.5)
    # Where rows are unlikely, shares may be as usual.
    axes = plot_proportions(composition, unusual.assign(p_likelihood=1e-9))
    assert "→ sample 002" in [text.get_text() for text in axes.get_yticklabels()]
    assert not any(isinstance(patch, Rectangle) for patch in axes.patches)


def test_of_many_groups_only_the_unusual_ones_have_names() -> None:
    axes = plot_proportions(*tables(100))
    assert [text.get_text() for text in axes.get_yticklabels()] == ["→ sample 098"]
    assert axes.get_yticks().tolist() == [1]
    assert not axes.texts
    assert len(plot_proportions(tables(100)[0]).get_yticks()) == 0
    assert len(plot_proportions(tables(60)[0]).get_yticks()) == 60


def test_the_background_is_the_last_column() -> None:
    table, unusual = tables(4)
    table["population"] = [0, 1, "background"] * 4
    axes = plot_proportions(table, unusual)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "background"]
    # Kernels are not numbered like populations or shares.
    axes = plot_proportions(table.rename(columns={"population": "kernel"}))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["k0", "k1", "background"]
    np.testing.assert_allclose(axes.images[0].get_array() ** 2, table["proportion"].to_numpy().reshape(4, 3))


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
    # A link below the cut has the colour of the population, the others are grey.
    for links in axes.collections:
        (colour,) = links.get_colors()
        for path in links.get_paths():
            height = path.vertices[:, 1].max()
            below = leaves_below(merged.tree, height)
            whose = {CLASS_COLOURS[merged.of_kernels[k]] for k in below}
            assert to_hex(colour) == (whose.pop() if height < level else "#737373")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1"]
    assert sum(len(links.get_paths()) for links in axes.collections) == 4


def test_kernels_have_the_colour_of_their_population() -> None:
    """Beyond the last colour, dashes tell populations apart."""
    rows = np.repeat(np.arange(9.0) * 10.0, 6)[:, None] + np.random.default_rng(0).normal(size=(54, 2))
    model = SharedKernelMixture(9, random_state=0).fit(rows)
    merged = merge_kernels(model, n_populations=9)
    axes = draw_kernels(model, features=[1, 0], colours=merged.of_kernels)
    outlines = [artist for artist in axes.get_children() if isinstance(artist, Ellipse)]
    # The heaviest kernel is drawn last.
    order = np.argsort(model.weights_[:, 0], kind="stable")
    assert_allclose([each.get_center() for each in outlines], model.means_[order][:, ::-1])
    colours = [to_hex(each.get_edgecolor()) for each in outlines]
    assert colours == [CLASS_COLOURS[g % 8] for g in merged.of_kernels[order]]
    dashed = [each.get_linestyle() in ("--", "dashed") for each in outlines]
    assert dashed == [bool(g == 8) for g in merged.of_kernels[order]]


def test_what_cannot_be_drawn_is_refused(rows: np.ndarray, model: SharedKernelMixture) -> None:
    with pytest.raises(ValueError, match="a single kernel: there are no merges"):
        plot_merges(merge_kernels(SharedKernelMixture(1).fit(rows)))
    with pytest.raises(ValueError, match="The model has 5 kernels, but colours has 2 numbers"):
        draw_kernels(model, colours=[0, 1])
    with pytest.raises(ValueError, match="'kernel' or 'population'"):
        plot_proportions(pd.DataFrame({"sample": ["a"], "proportion": [1.0]}))
