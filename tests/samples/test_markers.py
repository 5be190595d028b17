"""Populations by their markers: profiles, names and pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture, compose
from skmix.samples import merge_kernels, plots
from skmix.samples.markers import marker_names, short_markers

# Population by population: the level of each marker, in standard deviations, and the number of cells.
MARKERS = ["CD19", "CD4 (PE-A)", "CD3 (FITC-A)", "SSC-A", "CD45"]
LEVELS = np.array([[0, 9, 9, 0, 9], [0, 0, 9, 0, 9], [9, 0, 0, 0, 9], [0, 0, 0, 9, 0], [0, 9, 9, 9, 9.0]])
COUNTS = [300, 200, 150, 100, 50]


def cells(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(sum(COUNTS), len(MARKERS)))
    return np.repeat(LEVELS, COUNTS, axis=0) + noise


@pytest.fixture(scope="module")
def model() -> SharedKernelMixture:
    return SharedKernelMixture(5, init={"means": LEVELS}).fit(cells())


@pytest.mark.parametrize("scale", [1.0, [1e-3, 7.0, 1.0, 1e5, 1.0]])
def test_names_have_the_markers_that_tell_populations_apart(scale: float | list[float]) -> None:
    model = SharedKernelMixture(5, init={"means": LEVELS * scale}).fit(cells() * scale)
    merged = merge_kernels(model, n_populations=5)
    bare = [marker.removesuffix(" (PE-A)").removesuffix(" (FITC-A)") for marker in MARKERS]
    # That nearly all cells have CD45 says little about most. Scatter is in a name if nothing else differs.
    expected = ["CD3⁺ CD4⁺ SSC-A low", "CD3⁺ CD4⁻", "CD19⁺", "CD45⁻", "CD3⁺ CD4⁺ SSC-A high"]
    assert list(marker_names(model, merged, bare).values()) == expected
    # If some channels say their marker, the others come last.
    expected = ["CD3⁺ CD4⁺ SSC-A low", "CD3⁺ CD4⁻", "CD3⁻ CD19 high", "CD3⁻ CD19 low", "CD3⁺ CD4⁺ SSC-A high"]
    assert list(marker_names(model, merged, MARKERS).values()) == expected


def test_a_marker_in_which_populations_overlap_names_none() -> None:
    centres = [[0.0, 0.0], [0.8, 9.0]]
    X = np.random.default_rng(0).normal(size=(800, 2)) + np.repeat(centres, 400, axis=0)
    model = SharedKernelMixture(2, init={"means": centres}).fit(X)
    merged = merge_kernels(model, n_populations=2)
    assert sorted(marker_names(model, merged, ["A", "B"]).values()) == ["B⁺", "B⁻"]
    assert marker_names(model, merge_kernels(model, n_populations=1), ["A", "B"]) == {}


def test_a_threshold_is_as_many_deviations_from_either_side() -> None:
    """Two above a wide population at 0, and two below a narrow one at 5."""
    random = np.random.default_rng(0)
    low, high = 2.0 * random.normal(size=600), 5.0 + 0.5 * random.normal(size=400)
    found = compose(pd.DataFrame({"A": np.concatenate([low, high])}), n_kernels=2, n_populations=2)
    assert found.populations is not None
    # A threshold that weighs deviations the other way round, at 1, has a third of the low population above.
    assert found.populations.display_names == ["A⁻", "A⁺"]


def test_names_are_those_of_markers_not_of_channels_and_metals() -> None:
    given = ["CD3 (PE-A)", "171Yb_CD4", "CD45(In115)Di", "CD8 (Yb171Di)", "Ki67", "Yb173Di", "TNF (a)", "TNF"]
    short = ["CD3", "CD4", "CD45", "CD8", "Ki67", "Yb173Di", "TNF (a)", "TNF"]
    assert short_markers(given) == short


def test_a_map_has_two_dimensions() -> None:
    X = cells() * [1e3, 1.0, 1.0, 1.0, 1e-3]
    X[7, 2] = np.nan
    positions, labels = plots.map_cells(X)
    assert np.isnan(positions[7]).all()
    assert np.isfinite(np.delete(positions, 7, axis=0)).all()
    kind = np.repeat(np.arange(5), COUNTS)
    centres = np.array([np.nanmedian(positions[kind == k], axis=0) for k in range(5)])
    nearest = np.linalg.norm(positions[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == kind).mean() > 0.9
    variances = np.sort(np.linalg.eigvalsh(np.corrcoef(np.delete(X, 7, axis=0).T)))[::-1]
    assert_allclose(np.nanvar(positions, axis=0), variances[:2])
    assert labels[0] == f"principal component 1, {100 * variances[0] / 5:.0f} %"
    for few in (X[:, :1], X[:2]):
        with pytest.raises(ValueError, match="A map needs 2 markers and 3 cells"):
            plots.map_cells(few)
