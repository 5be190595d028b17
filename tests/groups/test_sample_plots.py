"""The heat map of proportions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from skmix.groups import plot_proportions


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
    marked = [(text.get_color(), text.get_fontweight()) for text in axes.get_yticklabels()]
    assert [each == ("#d55e00", "bold") for each in marked] == [False, True, False, False]
    assert axes.get_yticks().tolist() == [0, 1, 2, 3]
    # Numbers stand in their cells, white on the dark ones.
    assert [text.get_position() for text in axes.texts] == [(g, i) for i in range(4) for g in range(3)]
    dark = np.sqrt(shares / shares.max()) > 0.5
    assert [text.get_color() == "white" for text in axes.texts] == dark.ravel().tolist()
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert frame.get_xy() == (1.5, 0.5)
    assert (frame.get_width(), frame.get_height()) == (1.0, 1.0)
    bar = axes.figure.axes[1]
    assert bar.get_ylabel() == "proportion, %"
    assert bar.yaxis.get_major_formatter()(0.5, 0) == "25"
    assert axes.get_xlabel() == "population"
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


def test_other_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="'kernel' or 'population'"):
        plot_proportions(pd.DataFrame({"sample": ["a"], "proportion": [1.0]}))
