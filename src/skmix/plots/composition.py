"""Compositions of groups: a heat map of shares, with unusual groups marked."""

from __future__ import annotations

from typing import Any

import numpy as np

from skmix.plots._common import SMALL, Axes, Figure, finish, panels_for
from skmix.plots._models import part_label

_MAX_NUMBERS = 200
"""Shares up to which each is written into its cell."""
_MAX_NAMES = 60
"""Groups whose names are written."""
_UNUSUAL = "#d55e00"


def plot_composition(
    table: Any, unusual: Any = None, axes: Axes | None = None, *, figure: Figure | None = None
) -> Axes:
    """Plot shares as a heat map, groups by kernels or populations, and mark unusual groups.

    Colours are of the root of the share, so that small shares can be told apart; they go from light to dark
    for all readers. Numbers are percentages, where there are few enough.

    Parameters
    ----------
    table : DataFrame
        What `SharedKernelMixture.composition` returns.
    unusual : DataFrame, default=None
        What `SharedKernelMixture.unusual_groups` returns. Names of unusual groups have an arrow and a colour;
        where it is their composition, the least usual share has a frame.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    part = next((name for name in ("population", "kernel") if name in getattr(table, "columns", ())), None)
    if part is None:
        raise ValueError("table must have a column 'kernel' or 'population', as composition() returns it.")
    shares = table.pivot(index="group", columns=part, values="share").loc[table["group"].unique()]
    n_groups, n_parts = shares.shape
    size = (float(np.clip(0.5 * n_parts + 2.5, 4.0, 14.0)), float(np.clip(0.25 * n_groups + 1.0, 2.5, 14.0)))
    (panel,) = panels_for(1, axes, figure, size=size)
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    values = shares.to_numpy()
    image = panel.imshow(np.sqrt(values), cmap="cividis_r", vmin=0.0, aspect="auto")
    bar = panel.figure.colorbar(image, ax=panel, format=FuncFormatter(lambda root, _: f"{100 * root**2:.2g}"))
    bar.set_label("share, %", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    if values.size <= _MAX_NUMBERS:
        dark = np.sqrt(values) > 0.5 * np.sqrt(values.max())
        for (line, column), share in np.ndenumerate(values):
            colour = "white" if dark[line, column] else "black"
            panel.text(
                column, line, f"{100 * share:.2g}", ha="center", va="center", fontsize=SMALL - 1, color=colour
            )
    headings = [part_label(each, part) for each in shares.columns]
    panel.set(xlabel=part, xticks=range(n_parts), xticklabels=headings)
    names = shares.index.tolist()
    found = {} if unusual is None else unusual[unusual["unusual"]].set_index("group").to_dict("index")
    if n_groups <= _MAX_NAMES or found:
        written = [g for g, name in enumerate(names) if n_groups <= _MAX_NAMES or name in found]
        panel.set_yticks(written, [f"→ {names[g]}" if names[g] in found else f"{names[g]}" for g in written])
        for place, text in zip(written, panel.get_yticklabels(), strict=True):
            if names[place] in found:
                text.set(color=_UNUSUAL, fontweight="bold")
    else:
        panel.set_yticks([])
    columns = shares.columns.tolist()
    for line, name in enumerate(names):
        odd = found.get(name)
        # Without a p-value of the likelihood, it is the composition.
        if odd is not None and not odd["p_likelihood"] < odd["p_composition"] and odd.get(part) in columns:
            corner = columns.index(odd[part]) - 0.5, line - 0.5
            panel.add_patch(Rectangle(corner, 1.0, 1.0, fill=False, edgecolor=_UNUSUAL, lw=2.0))
    finish(panel)
    return panel
