"""Pictures of a study: proportions in samples, and the tree of merges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plots.style import (
    CLASS_COLOURS,
    LEGEND,
    SMALL,
    Axes,
    Figure,
    colour_of,
    finish,
    panels_for,
    short_name,
)
from .differences import Sides, by_q_value
from .populations import Populations
from .proportions import Composition

# Most proportions of a picture in which numbers are legible.
_MAX_NUMBERS = 200
# Most samples of a picture in which their names are legible.
_MAX_NAMES = 60
# Colour of unusual samples.
_UNUSUAL = "#d55e00"
# Colour of branches that join populations.
_BETWEEN = "0.45"
# Most panels in a line.
_MAX_BESIDE = 5
# Most kernels of a tree in which their numbers are legible.
_MAX_LEAVES = 60


def heat_size(n_samples: int, n_populations: int) -> tuple[float, float]:
    """Return the size in inches of a heat map of samples by kernels or populations."""
    width, height = 0.5 * n_populations + 2.5, 0.25 * n_samples + 1.0
    return float(np.clip(width, 4.0, 14.0)), float(np.clip(height, 2.5, 14.0))


def plot_proportions(
    table: Any, unusual: Any = None, axes: Axes | None = None, *, figure: Figure | None = None
) -> Axes:
    """Plot proportions as a heat map, samples by kernels or populations, and mark unusual samples.

    Colours show the square root of the proportion, so that small ones can be told apart, and go from light to
    dark, also for colour-blind readers. Numbers are percentages; they are left out if there are too many.

    Parameters
    ----------
    table : DataFrame
        The table of `Study.proportions`.
    unusual : DataFrame, default=None
        The table of `Study.unusual`. Names of unusual samples have an arrow and a colour; if the composition
        is unusual, the least usual proportion has a frame.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    noun = next((name for name in ("population", "kernel") if name in getattr(table, "columns", ())), None)
    if noun is None:
        raise ValueError("table must have a column 'kernel' or 'population', as Study.proportions has.")
    wide = table.pivot(index="sample", columns=noun, values="proportion").loc[table["sample"].unique()]
    n_samples, n_populations = wide.shape
    (panel,) = panels_for(1, axes, figure, size=heat_size(n_samples, n_populations))
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    values = wide.to_numpy()
    image = panel.imshow(np.sqrt(values), cmap="cividis_r", vmin=0.0, aspect="auto")
    bar = panel.figure.colorbar(image, ax=panel, format=FuncFormatter(lambda root, _: f"{100 * root**2:.2g}"))
    bar.set_label("proportion, %", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    if values.size <= _MAX_NUMBERS:
        dark = np.sqrt(values) > 0.5 * np.sqrt(values.max())
        for (line, column), value in np.ndenumerate(values):
            colour = "white" if dark[line, column] else "black"
            panel.text(
                column, line, f"{100 * value:.2g}", ha="center", va="center", fontsize=SMALL - 1, color=colour
            )
    headings = [short_name(name, noun) for name in wide.columns]
    panel.set(xlabel=noun, xticks=range(n_populations), xticklabels=headings)
    names = wide.index.tolist()
    found = {} if unusual is None else unusual[unusual["unusual"]].set_index("sample").to_dict("index")
    if n_samples <= _MAX_NAMES or found:
        written = [g for g, name in enumerate(names) if n_samples <= _MAX_NAMES or name in found]
        panel.set_yticks(written, [f"→ {names[g]}" if names[g] in found else f"{names[g]}" for g in written])
        for place, text in zip(written, panel.get_yticklabels(), strict=True):
            if names[place] in found:
                text.set(color=_UNUSUAL, fontweight="bold")
    else:
        panel.set_yticks([])
    columns = wide.columns.tolist()
    for line, name in enumerate(names):
        odd = found.get(name)
        # If the likelihood has no p-value, it is NaN and the comparison is false.
        if odd is not None and not odd["p_likelihood"] < odd["p_composition"] and odd.get(noun) in columns:
            corner = columns.index(odd[noun]) - 0.5, line - 0.5
            panel.add_patch(Rectangle(corner, 1.0, 1.0, fill=False, edgecolor=_UNUSUAL, lw=2.0))
    finish(panel)
    return panel


def plot_conditions(
    composition: Composition,
    sides: Sides,
    table: Any,
    axes: Any = None,
    *,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Plot the proportions on two sides as box plots, a panel for each population, the least q-value first.

    Parameters
    ----------
    composition : Composition
        Proportions in all samples of the study.
    sides : Sides
        The samples that are compared. Lines join the samples of a pair.
    table : DataFrame
        The table of `Study.compare`.
    axes, figure : default=None
        As many axes as there are populations, or an empty figure for new axes. By default a new figure.
    """
    panels = panels_for(len(table), axes, figure, n_columns=_MAX_BESIDE, size=(2.2, 2.4))
    values, places = 100.0 * composition.proportions[sides.places], np.where(sides.is_first, 0.0, 1.0)
    # Points of one side beside each other, in an order without meaning.
    places = places + 0.3 * ((np.arange(len(places)) * 0.618) % 1.0 - 0.5)
    joined = sides.joined()
    for panel, g in zip(panels, by_q_value(table), strict=True):
        own = values[:, g]
        panel.boxplot(
            [own[sides.is_first], own[~sides.is_first]],
            positions=[0.0, 1.0],
            widths=0.55,
            showfliers=False,
            boxprops={"color": _BETWEEN},
            whiskerprops={"color": _BETWEEN},
            capprops={"color": _BETWEEN},
            medianprops={"color": "black"},
        )
        for one, other in joined:
            panel.plot(places[[one, other]], own[[one, other]], color="0.75", lw=0.8, zorder=1)
        panel.plot(places, own, "o", ms=4.0, mew=0.0, color=colour_of(g), zorder=3)
        name = composition.populations[g]
        name = name if isinstance(name, str) else f"{composition.noun} {short_name(name, composition.noun)}"
        panel.set(title=f"{name}\nq = {table['q_value'][g]:.2g}", ylabel="%", xlim=(-0.6, 1.6))
        panel.set_xticks([0.0, 1.0], [str(name) for name in sides.names])
        panel.set_ylim(bottom=0.0)
        finish(panel)
    return panels


def plot_merges(populations: Populations, axes: Axes | None = None, *, figure: Figure | None = None) -> Axes:
    """Plot the tree of merges of a mixture's kernels, with a colour for each population, and its cut.

    Parameters
    ----------
    populations : Populations
        The populations, from `merge_kernels`.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    tree, n_kernels, n_populations = populations.tree, len(populations.of_kernels), len(populations)
    if n_kernels == 1:
        raise ValueError("the mixture has a single kernel: there are no merges to plot.")
    (panel,) = panels_for(1, axes, figure, size=(float(np.clip(0.3 * n_kernels, 4.0, 12.0)), 3.4))
    # SciPy's clustering loads slowly: import it after the check for matplotlib.
    from matplotlib.lines import Line2D
    from scipy.cluster.hierarchy import dendrogram

    colours = [colour_of(g) for g in populations.of_kernels]
    n_merged = n_kernels - n_populations
    for step, one in enumerate(tree[:, 0].astype(int).tolist()):
        # Merges below the cut lie inside a population.
        colours.append(colours[one] if step < n_merged else _BETWEEN)
    dendrogram(
        tree,
        ax=panel,
        link_color_func=lambda node: colours[node],
        no_labels=n_kernels > _MAX_LEAVES,
        leaf_label_func=short_name,
        leaf_rotation=0 if n_kernels <= 20 else 90,
    )
    panel.axhline(populations.cut_height, color="black", ls="--", lw=1.0)
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
