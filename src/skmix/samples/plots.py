"""Pictures of a study: proportions in samples, populations in markers, cells in a map, and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.records import FloatArray, IntArray
from ..plots.style import (
    LEGEND,
    SMALL,
    Axes,
    colour_of,
    dots,
    finish,
    panels_for,
    round_of,
    short_name,
)
from ..report.rendering import number_text
from .differences import Sides, by_q_value
from .proportions import Composition

# Most proportions of a picture in which numbers are legible.
_MAX_NUMBERS = 200
# Most samples of a picture in which their names are legible.
_MAX_NAMES = 60
# Colour of unusual samples.
_UNUSUAL = "#d55e00"
# Colour of boxes.
_BOXES = "0.45"
# Most panels in a line.
_MAX_BESIDE = 5
# Most standard deviations from the mean of all cells that colours tell apart.
_MAX_DEVIATION = 3.0
# Shapes that tell populations of the same colour apart.
_SHAPES = ("o", "^", "s", "D")
# Legends beside a picture.
_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), **LEGEND}


def heat_size(lines: Sequence[Any], columns: Sequence[Any]) -> tuple[float, float]:
    """Return the size in inches of a heat map with these names of lines and, upright, of columns."""
    width = 0.42 * len(columns) + 2.0 + 0.06 * max(len(str(name)) for name in lines)
    height = 0.25 * len(lines) + 0.8 + 0.06 * max(len(str(name)) for name in columns)
    return float(np.clip(width, 4.0, 16.0)), float(np.clip(height, 2.5, 16.0))


def percent(proportion: float) -> str:
    """Return a proportion in percent, with more digits if it is small."""
    shown = number_text(_rounded(proportion), 1 if proportion >= 0.01 else 2 if proportion >= 0.001 else 3)
    return "0" if shown == "0.000" else shown


def _short_percent(proportion: float) -> str:
    """Return a proportion in percent with one digit, as in the heat map of a page."""
    percents = _rounded(proportion)
    return number_text(percents, 1) if percents >= 0.05 else "<0.1" if percents >= 1e-4 else "0"


def _rounded(proportion: float) -> float:
    # The scripts of a page have four decimals, and round halves up.
    return round(100.0 * proportion, 4) + 1e-9


def plot_proportions(table: Any, unusual: Any = None, axes: Axes | None = None) -> Axes:
    """Plot the table of `Study.proportions`; that of `Study.unusual` marks samples, see `Study.plot`."""
    noun = "population" if "population" in table else "kernel"
    wide = table.pivot(index="sample", columns=noun, values="proportion")
    wide = wide.loc[table["sample"].unique(), table[noun].unique()]
    n_samples, n_populations = wide.shape
    headings, names = [short_name(name, noun) for name in wide.columns], wide.index.tolist()
    (panel,) = panels_for(1, axes, size=heat_size(names, headings))
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    values = wide.to_numpy()
    image = panel.imshow(np.sqrt(values), cmap="Blues", vmin=0.0, aspect="auto")
    _add_bar(image, "proportion, %", format=FuncFormatter(lambda root, _: f"{100 * root**2:.2g}"))
    if values.size <= _MAX_NUMBERS:
        dark = np.sqrt(values) > 0.6 * np.sqrt(values.max())
        for (line, column), value in np.ndenumerate(values):
            colour = "white" if dark[line, column] else "black"
            panel.text(
                column,
                line,
                _short_percent(value),
                ha="center",
                va="center",
                fontsize=SMALL - 1,
                color=colour,
            )
    panel.set_xlabel(noun)
    panel.set_xticks(range(n_populations), headings, rotation=90)
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


def plot_markers(
    deviations: FloatArray, names: Sequence[Any], markers: Sequence[str], axes: Axes | None = None
) -> Axes:
    """Plot how far the means of populations (G, M) are from those of all cells as a heat map.

    Deviations are in standard deviations of all cells.
    """
    n_populations, n_markers = deviations.shape
    (panel,) = panels_for(1, axes, size=heat_size(names, markers))
    limit = float(np.clip(np.abs(deviations).max(), 1.0, _MAX_DEVIATION))
    image = panel.imshow(deviations, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    extend = "both" if limit == _MAX_DEVIATION else "neither"
    _add_bar(image, "difference from the mean\nof all cells, in SDs", extend=extend)
    panel.set_xticks(range(n_markers), markers, rotation=90)
    panel.set_yticks(range(n_populations), [f"{name} ■" for name in names])
    for number, text in enumerate(panel.get_yticklabels()):
        text.set_color(colour_of(number))
    finish(panel)
    return panel


def _add_bar(image: Any, label: str, **settings: Any) -> None:
    bar = image.figure.colorbar(image, ax=image.axes, **settings)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def map_cells(X: FloatArray) -> tuple[FloatArray, tuple[str, str]]:
    """Return positions (n, 2) of cells (n, M) in a map, NaN for cells with gaps, and the names of its axes.

    The axes are the first two principal components. Markers count equally: all have unit variance.
    """
    complete = ~np.isnan(X).any(axis=1)
    rows = X[complete]
    if len(rows) < 3 or X.shape[1] < 2:
        raise ValueError(f"A map needs 2 markers and 3 cells without gaps; there are {rows.shape[::-1]}.")
    from sklearn.decomposition import PCA  # slow to import

    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    components = PCA(2, svd_solver="full").fit(rows)
    positions = np.full((len(X), 2), np.nan)
    positions[complete] = components.transform(rows)
    first, second = 100.0 * components.explained_variance_ratio_
    return positions, (f"principal component 1, {first:.0f} %", f"principal component 2, {second:.0f} %")


def plot_map(
    positions: FloatArray,
    populations: IntArray,
    names: Sequence[Any],
    labels: tuple[str, str],
    axes: Axes | None = None,
) -> Axes:
    """Plot cells at positions (n, 2) in the colours of their populations (n,), with their names as a legend.

    `labels` are those of the axes, see `map_cells`.
    """
    (panel,) = panels_for(1, axes, size=(7.0, 4.6))
    # Draw the largest population first, so that it hides none.
    for number, name in enumerate(names):
        own = positions[populations == number]
        shape = _SHAPES[round_of(number)]
        dots(panel, own, 2.2, shape, ls="", color=colour_of(number), label=short_name(name, "population"))
    panel.set(xlabel=labels[0], ylabel=labels[1], xticks=[], yticks=[])
    panel.legend(**_BESIDE, markerscale=2.5, ncols=1 + (len(names) - 1) // 24)
    finish(panel)
    return panel


def plot_conditions(composition: Composition, sides: Sides, table: Any, axes: Any = None) -> NDArray[Any]:
    """Plot the proportions on two sides as box plots, a panel for each population, the least q-value first.

    Lines join the samples of a pair; `table` is that of `Study.compare`.
    """
    panels = panels_for(len(table), axes, n_columns=_MAX_BESIDE, size=(2.2, 2.4))
    values, places = 100.0 * composition.proportions[sides.places], np.where(sides.is_first, 0.0, 1.0)
    # Points of one side beside each other, in an order without meaning.
    places = places + 0.3 * ((np.arange(len(places)) * 0.618) % 1.0 - 0.5)
    joined = sides.joined()
    for panel, g in zip(panels, by_q_value(table), strict=True):
        own = values[:, g]
        both, look = [own[sides.is_first], own[~sides.is_first]], {"medianprops": {"color": "black"}}
        look |= {f"{part}props": {"color": _BOXES} for part in ("box", "whisker", "cap")}
        panel.boxplot(both, positions=[0.0, 1.0], widths=0.55, showfliers=False, **look)
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
