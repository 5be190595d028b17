"""Pictures of a study: proportions in samples, populations in markers, cells in a map, and conditions."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.records import FloatArray, IntArray
from ..model import PreparedRows
from ..plots.style import (
    LEGEND,
    SMALL,
    Axes,
    colour_of,
    dots,
    finish,
    new_figure,
    panels_for,
    round_of,
    short_name,
)
from ..report.rendering import number_text
from .description import Composition, pandas
from .populations import Populations

# Most proportions of a picture in which numbers are legible, and most samples whose names are.
_MAX_NUMBERS, _MAX_NAMES = 200, 60
# Colours of unusual samples and of boxes.
_UNUSUAL, _BOXES = "#d55e00", "0.45"
# Most panels in a line.
_MAX_BESIDE = 5
# Most standard deviations from the mean of all cells that colours tell apart.
_MAX_DEVIATION = 3.0
# Shapes that tell populations of the same colour apart.
_SHAPES = ("o", "^", "s", "D")
# Most cells that are drawn: more make a page larger, but not clearer.
_MAX_CELLS = 3000
# Legends beside a picture.
_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), **LEGEND}


def percent(proportion: float, *, short: bool = False) -> str:
    """Return a proportion in percent, with more digits if it is small, or with one digit."""
    # The scripts of a page have four decimals, and round halves up.
    percents = round(100.0 * proportion, 4) + 1e-9
    if short:
        return number_text(percents, 1) if percents >= 0.05 else "<0.1" if percents >= 1e-4 else "0"
    text = number_text(percents, 1 if proportion >= 0.01 else 2 if proportion >= 0.001 else 3)
    return "0" if text == "0.000" else text


def _heat_map(
    values: FloatArray, names: tuple[Sequence[Any], Sequence[Any]], axes: Axes | None, **colours: Any
) -> tuple[Axes, Any]:
    """Draw values as a heat map with these names of lines and, upright, of columns."""
    (panel,) = panels_for(1, axes, size=_heat_size(*names))
    image = panel.imshow(values, aspect="auto", **colours)
    panel.set_xticks(range(len(names[1])), names[1], rotation=90)
    return panel, image


def _heat_size(lines: Sequence[Any], columns: Sequence[Any]) -> tuple[float, float]:
    """Return the size in inches of a heat map."""
    width = 0.42 * len(columns) + 2.0 + 0.06 * max(len(str(name)) for name in lines)
    height = 0.25 * len(lines) + 0.8 + 0.06 * max(len(str(name)) for name in columns)
    return float(np.clip(width, 4.0, 16.0)), float(np.clip(height, 2.5, 16.0))


def _add_bar(image: Any, label: str, **settings: Any) -> None:
    bar = image.figure.colorbar(image, ax=image.axes, **settings)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def plot_proportions(composition: Composition, unusual: Any = None, axes: Axes | None = None) -> Axes:
    """Plot the proportions in samples; the table of `Study.unusual` marks samples, see `Study.plot`."""
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    noun, names, values = composition.noun, composition.names.tolist(), composition.proportions
    headings = [short_name(name, noun) for name in composition.populations]
    panel, image = _heat_map(np.sqrt(values), (names, headings), axes, cmap="Blues", vmin=0.0)
    _add_bar(image, "proportion, %", format=FuncFormatter(lambda root, _: f"{100 * root**2:.2g}"))
    if values.size <= _MAX_NUMBERS:
        dark = np.sqrt(values) > 0.6 * np.sqrt(values.max())
        how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL - 1}
        for (line, column), value in np.ndenumerate(values):
            colour = "white" if dark[line, column] else "black"
            panel.text(column, line, percent(value, short=True), color=colour, **how)
    panel.set_xlabel(noun)
    odd = {} if unusual is None else unusual[unusual["unusual"]].set_index("sample").to_dict("index")
    written = [i for i, name in enumerate(names) if len(names) <= _MAX_NAMES or name in odd]
    panel.set_yticks(written, [f"→ {names[i]}" if names[i] in odd else f"{names[i]}" for i in written])
    for line, text in zip(written, panel.get_yticklabels(), strict=True):
        if names[line] not in odd:
            continue
        text.set(color=_UNUSUAL, fontweight="bold")
        verdict = odd[names[line]]
        # If the likelihood has no p-value, it is NaN and the comparison is false.
        if not verdict["p_likelihood"] < verdict["p_composition"]:
            corner = composition.populations.index(verdict[noun]) - 0.5, line - 0.5
            panel.add_patch(Rectangle(corner, 1.0, 1.0, fill=False, edgecolor=_UNUSUAL, lw=2.0))
    finish(panel)
    return panel


def plot_markers(
    deviations: FloatArray, names: Sequence[Any], markers: Sequence[str], axes: Axes | None = None
) -> Axes:
    """Plot how far the means of populations (G, M) are from those of all cells as a heat map.

    Deviations are in standard deviations of all cells.
    """
    limit = float(np.clip(np.abs(deviations).max(), 1.0, _MAX_DEVIATION))
    panel, image = _heat_map(deviations, (names, markers), axes, cmap="RdBu_r", vmin=-limit, vmax=limit)
    extend = "both" if limit == _MAX_DEVIATION else "neither"
    _add_bar(image, "difference from the mean\nof all cells, in SDs", extend=extend)
    panel.set_yticks(range(len(names)), [f"{name} ■" for name in names])
    for number, text in enumerate(panel.get_yticklabels()):
        text.set_color(colour_of(number))
    finish(panel)
    return panel


def drawn_cells(
    model: Any, populations: Populations | None, X: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return indices (n,) of the cells to draw, their rows (n, M), and their populations or kernels (n,)."""
    chosen = np.arange(len(X))
    if len(X) > _MAX_CELLS:
        chosen = np.sort(np.random.RandomState(0).choice(len(X), _MAX_CELLS, replace=False))
    rows: Any = PreparedRows(X[chosen])
    labels = model.predict(rows) if populations is None else populations.predict(model, rows)
    return chosen, X[chosen], labels


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
        rows, shape = positions[populations == number], _SHAPES[round_of(number)]
        dots(panel, rows, 2.2, shape, ls="", color=colour_of(number), label=short_name(name, "population"))
    panel.set(xlabel=labels[0], ylabel=labels[1], xticks=[], yticks=[])
    panel.legend(**_BESIDE, markerscale=2.5, ncols=1 + (len(names) - 1) // 24)
    finish(panel)
    return panel


def plot_comparison(comparison: Any, composition: Composition, axes: Any = None) -> NDArray[Any]:
    """Plot the proportions of each condition as box plots; see `Comparison.plot`."""
    panels = panels_for(len(composition.populations), axes, n_columns=_MAX_BESIDE, size=(2.2, 2.4))
    look: dict[str, Any] = {f"{part}props": {"color": _BOXES} for part in ("box", "whisker", "cap")}
    look |= {"medianprops": {"color": "black"}, "widths": 0.55, "showfliers": False}
    conditions = comparison.conditions
    for panel, g in zip(panels, comparison.order, strict=True):
        values = 100.0 * composition.proportions[:, g]
        panel.boxplot(
            [values[places] for places in conditions.values()], positions=range(len(conditions)), **look
        )
        across: dict[int, float] = {}
        for centre, places in enumerate(conditions.values()):
            # Points of one condition beside each other, in an order without meaning.
            spread = 0.3 * ((np.arange(len(places)) * 0.618) % 1.0 - 0.5)
            across |= dict(zip(places.tolist(), centre + spread, strict=True))
        for one, other in comparison.joined():
            panel.plot([across[one], across[other]], values[[one, other]], color="0.75", lw=0.8, zorder=1)
        points = list(across.values()), values[list(across)]
        panel.plot(*points, "o", ms=4.0, mew=0.0, color=colour_of(g), zorder=3)
        name = composition.populations[g]
        name = name if isinstance(name, str) else f"{composition.noun} {short_name(name, composition.noun)}"
        panel.set(title=f"{name}\nq = {comparison.q_values[g]:.2g}", ylabel="%")
        panel.set_xlim(-0.6, len(conditions) - 0.4)
        panel.set_xticks(range(len(conditions)), [str(condition) for condition in conditions])
        panel.set_ylim(bottom=0.0)
        finish(panel)
    return panels


def notebook_view(study: Any, most: int = 60) -> str:
    """Return the first proportions in percent with intervals as a table, and two heat maps, as HTML."""
    composition = study.composition
    texts = np.vectorize(percent, otypes=[object])
    shares, low, high = map(texts, (composition.proportions, composition.lower, composition.upper))
    cells = shares + "<br><small>" + low + " – " + high + "</small>"
    heads = ([html.escape(str(n)) for n in names] for names in (composition.names, composition.populations))
    table = pandas().DataFrame(cells, *heads).iloc[:most, :most]
    page = f"<p>{html.escape(repr(study)[1:-1])}, in percent with 95 % intervals</p>"
    page += table.to_html(escape=False)
    try:
        # Not by pyplot: a notebook would show the figure twice.
        for name, plot, lines, columns in (
            ("proportions", study.plot, study.samples, composition.populations),
            ("markers", study.plot_markers, composition.populations, study.markers),
        ):
            figure = new_figure(*_heat_size(lines, columns))
            plot(figure.subplots())
            file = io.BytesIO()
            figure.savefig(file, format="png", bbox_inches="tight")
            picture = base64.b64encode(file.getvalue()).decode()
            page += f'<img alt="{name}" src="data:image/png;base64,{picture}">'
    except ImportError:  # without matplotlib, show the table alone
        pass
    return page
