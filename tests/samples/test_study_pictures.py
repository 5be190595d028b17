"""Pictures of studies: proportions in samples, and kernels in colours of populations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse, Rectangle
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture
from skmix.plots import draw_kernels
from skmix.samples import merge_kernels
from skmix.samples.description import Composition
from skmix.samples.plots import plot_proportions


def compositions(n_samples: int) -> tuple[Composition, pd.DataFrame]:
    """Return proportions in samples, the second of which is unusual, and the table that says so."""
    names = np.array([f"sample {g:03}" for g in range(n_samples)][::-1], dtype=object)
    shares = np.random.default_rng(0).dirichlet([4.0, 2.0, 1.0], n_samples)
    cells = np.full(n_samples, 100.0)
    composition = Composition(names, cells, *[shares] * 5, cells, "population", [0, 1, "CD3⁺"])
    unusual = {"sample": names, "population": "CD3⁺", "p_composition": 1e-5, "p_likelihood": np.nan}
    return composition, pd.DataFrame(unusual | {"unusual": np.arange(n_samples) == 1})


def test_shares_are_cells_and_unusual_samples_are_marked() -> None:
    composition, unusual = compositions(4)
    composition.proportions[0] = [0.9985, 0.00149, 0.00001]
    axes = plot_proportions(composition, unusual)
    shares = composition.proportions
    np.testing.assert_allclose(axes.images[0].get_array(), np.sqrt(shares))
    percent = ["99.9", "0.1", "<0.1", *(f"{100 * share:.1f}" for share in shares[1:].ravel())]
    assert [text.get_text() for text in axes.texts] == percent
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["sample 003", "→ sample 002", "sample 001", "sample 000"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "CD3⁺"]
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert frame.get_xy() == (1.5, 0.5)
    # Where rows are unlikely, shares may be as usual.
    axes = plot_proportions(composition, unusual.assign(p_likelihood=1e-9))
    assert "→ sample 002" in [text.get_text() for text in axes.get_yticklabels()]
    assert not any(isinstance(patch, Rectangle) for patch in axes.patches)
    # Of many samples only the unusual ones have names, and none has numbers.
    axes = plot_proportions(*compositions(100))
    assert [text.get_text() for text in axes.get_yticklabels()] == ["→ sample 098"]
    assert not axes.texts


def test_kernels_have_the_colour_of_their_population() -> None:
    rows = np.repeat(np.arange(9.0) * 10.0, 6)[:, None] + np.random.default_rng(0).normal(size=(54, 2))
    model = SharedKernelMixture(9, random_state=0).fit(rows)
    merged = merge_kernels(model, n_populations=9)
    axes = draw_kernels(model, features=[1, 0], colours=merged.of_kernels)
    outlines = [artist for artist in axes.get_children() if isinstance(artist, Ellipse)]
    # The heaviest kernel is drawn last.
    order = np.argsort(model.weights_[:, 0], kind="stable")
    assert_allclose([each.get_center() for each in outlines], model.means_[order][:, ::-1])
    # Beyond the last colour, dashes tell populations apart.
    looks = [(to_hex(each.get_edgecolor()), each.get_linestyle()) for each in outlines]
    assert len(set(looks)) == 9
    with pytest.raises(ValueError, match="The model has 9 kernels, but colours has 2 numbers"):
        draw_kernels(model, colours=[0, 1])
