"""Pictures of a study: proportions in samples, and the tree of merges."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..plots._common import CLASS_COLOURS, LEGEND, SMALL, Axes, Figure, colour_of, finish, panels_for
from ..plots._models import part_label
from .populations import Populations

_MAX_NUMBERS = 200
"""Proportions up to which each is written into its cell of the picture."""
_MAX_NAMES = 60
"""Samples whose names are written."""
_UNUSUAL = "#d55e00"
"""Colour of unusual samples."""
_BETWEEN = "0.45"
"""Colour of what belongs to several populations."""
_MAX_LEAVES = 60
"""Kernels whose numbers are written below the tree."""


def heat_size(n_samples: int, n_parts: int) -> tuple[float, float]:
    """Return the size in inches of a heat map of samples by kernels or populations."""
    return float(np.clip(0.5 * n_parts + 2.5, 4.0, 14.0)), float(np.clip(0.25 * n_samples + 1.0, 2.5, 14.0))


def plot_proportions(
    table: Any, unusual: Any = None, axes: Axes | None = None, *, figure: Figure | None = None
) -> Axes:
    """Plot proportions as a heat map, samples by kernels or populations, and mark unusual samples.

    Colours show the root of the proportion, so that small ones can be told apart; they go from light to dark
    for all readers. Numbers are percentages, where there are few enough.

    Parameters
    ----------
    table : DataFrame
        What `Study.proportions` returns.
    unusual : DataFrame, default=None
        What `Study.unusual` returns. Names of unusual samples have an arrow and a colour; where it is their
        composition, the least usual proportion has a frame.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    part = next((name for name in ("population", "kernel") if name in getattr(table, "columns", ())), None)
    if part is None:
        raise ValueError("table must have a column 'kernel' or 'population', as Study.proportions has it.")
    shares = table.pivot(index="sample", columns=part, values="proportion").loc[table["sample"].unique()]
    n_samples, n_parts = shares.shape
    (panel,) = panels_for(1, axes, figure, size=heat_size(n_samples, n_parts))
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    values = shares.to_numpy()
    image = panel.imshow(np.sqrt(values), cmap="cividis_r", vmin=0.0, aspect="auto")
    bar = panel.figure.colorbar(image, ax=panel, format=FuncFormatter(lambda root, _: f"{100 * root**2:.2g}"))
    bar.set_label("proportion, %", fontsize=SMALL)
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
    found = {} if unusual is None else unusual[unusual["unusual"]].set_index("sample").to_dict("index")
    if n_samples <= _MAX_NAMES or found:
        written = [g for g, name in enumerate(names) if n_samples <= _MAX_NAMES or name in found]
        panel.set_yticks(written, [f"→ {names[g]}" if names[g] in found else f"{names[g]}" for g in written])
        for place, text in zip(written, panel.get_yticklabels(), strict=True):
            if names[place] in found:
                text.set(color=_UNUSUAL, fontweight="bold")
    else:
        panel.set_yticks([])
    columns = shares.columns.tolist()
    for line, name in enumerate(names):
        odd = found.get(name)
        # Where the likelihood has no p-value, the composition is unusual.
        if odd is not None and not odd["p_likelihood"] < odd["p_composition"] and odd.get(part) in columns:
            corner = columns.index(odd[part]) - 0.5, line - 0.5
            panel.add_patch(Rectangle(corner, 1.0, 1.0, fill=False, edgecolor=_UNUSUAL, lw=2.0))
    finish(panel)
    return panel


def plot_merges(populations: Populations, axes: Axes | None = None, *, figure: Figure | None = None) -> Axes:
    """Plot the tree of merges of a mixture's kernels, each population in a colour, and where it was cut.

    Parameters
    ----------
    populations : Populations
        What `merge_kernels` returns.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    tree, n_kernels, n_populations = populations.tree, len(populations.of_kernels), len(populations)
    if n_kernels == 1:
        raise ValueError("the mixture has one kernel, and no merges to plot.")
    (panel,) = panels_for(1, axes, figure, size=(float(np.clip(0.3 * n_kernels, 4.0, 12.0)), 3.4))
    # Import SciPy's clustering, which loads slowly, once matplotlib is known to be there.
    from matplotlib.lines import Line2D
    from scipy.cluster.hierarchy import dendrogram

    colours = [colour_of(g) for g in populations.of_kernels]
    made = n_kernels - n_populations
    for step, one in enumerate(tree[:, 0].astype(int).tolist()):
        # Merges below the cut lie inside a population.
        colours.append(colours[one] if step < made else _BETWEEN)
    dendrogram(
        tree,
        ax=panel,
        link_color_func=lambda node: colours[node],
        no_labels=n_kernels > _MAX_LEAVES,
        leaf_label_func=part_label,
        leaf_rotation=0 if n_kernels <= 20 else 90,
    )
    levels = np.concatenate([[0.0], tree[:, 2], [1.05]])
    panel.axhline(0.5 * (levels[made] + levels[made + 1]), color="black", ls="--", lw=1.0)
    panel.set(xlabel="kernel", ylabel="height of the merge", ylim=(0.0, 1.05))
    handles = [
        Line2D([], [], color=colour_of(g), label=str(label))
        for g, label in enumerate(populations.display_names)
    ]
    if n_populations <= 2 * len(CLASS_COLOURS):
        panel.legend(
            handles=handles, title="population", loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND
        )
    finish(panel)
    return panel
