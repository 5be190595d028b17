"""The paper's two-dimensional illustration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.paper.illustration import IllustrationRecord
from skmix.plots._common import (
    CLASS_COLOURS,
    MEDIUM,
    SMALL,
    Axes,
    Figure,
    dots,
    ellipses,
    given_axes,
    grey_frames,
    need_matplotlib,
    new_figure,
)
from skmix.plots.kernels import draw_kernels, weight_key


def plot_illustration(
    record: IllustrationRecord, figure: Figure | None = None, *, axes: Any = None
) -> NDArray[Any]:
    """Plot a run of the paper's two-dimensional illustration.

    Parameters
    ----------
    record : IllustrationRecord
        What `skmix.experiments.paper.run_illustration` returned.
    figure : matplotlib figure, default=None
        An empty figure to draw into. None makes one without a window, ready for ``savefig``.
    axes : array of 1 + L axes, default=None
        Axes to draw into instead: the overview, then one for each class. The legend of the lines is left out.

    Returns
    -------
    ndarray of 1 + L axes
        First the rows with the true and the estimated kernels, then the kernels as each class weighs them.
    """
    need_matplotlib()
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    model, example = record.model, record.example
    classes = model.classes_.tolist()
    n_classes = len(classes)
    corner = None
    if axes is None:
        overview, panels, corner = _lay_out(figure, n_classes)
    else:
        overview, *panels = given_axes(axes, 1 + n_classes, figure)
    colours = [CLASS_COLOURS[c % len(CLASS_COLOURS)] for c in range(n_classes)]
    codes = np.searchsorted(model.classes_, record.y)

    # Shuffled, so that no class covers the others.
    order = np.random.RandomState(0).permutation(len(record.y))
    shades = np.array(colours)[codes[order]]
    across, up = record.X[order].T
    overview.scatter(across, up, c=shades, s=5, alpha=0.3, lw=0, rasterized=True, zorder=0)
    estimated: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6, "linestyle": "solid"}
    true: dict[str, Any] = {"edgecolor": "#ff5fa8", "linewidth": 1.6, "linestyle": (0, (2.5, 2.5))}
    for n_std in (1.0, 2.0):
        ellipses(overview, model.means_, model.covariances_, [estimated] * len(model.means_), n_std)
        ellipses(overview, example.means, example.covariances, [true] * len(example.means), n_std)
    handles = [
        *(
            Line2D([], [], marker="o", ls="", ms=4, color=colour, label=f"class {label}")
            for colour, label in zip(colours, classes, strict=True)
        ),
        *(
            Line2D([], [], color=line["edgecolor"], lw=1.6, ls=line["linestyle"], label=name)
            for name, line in (("estimated, 1σ and 2σ", estimated), ("true", true))
        ),
    ]
    overview.legend(handles=handles, loc="lower right", fontsize=SMALL, frameon=False, borderpad=0.2)
    overview.set_title("Kernels, true and estimated", fontsize=MEDIUM)
    overview.set_xlabel("feature 0", fontsize=SMALL)
    overview.set_ylabel("feature 1", fontsize=SMALL)

    tops = model.means_ + np.sqrt(model.covariances_[:, 1, 1])[:, None] * (0.0, 1.0)
    for c, (label, panel) in enumerate(zip(classes, panels, strict=True)):
        dots(panel, record.X[codes == c], size=1.2)
        draw_kernels(model, label, panel, style="accessible")
        for top, weight in zip(tops, model.weights_[:, c], strict=True):
            style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL}
            number = panel.annotate(f"{weight:.3f}", top, (0, 4), **style)
            number.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        panel.set_title(f"Weights of class {label}", fontsize=MEDIUM, color=colours[c])
        panel.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    if corner is not None:
        weight_key(corner, style="accessible", loc="center", fontsize=SMALL, title_fontsize=SMALL)
    for panel in (overview, *panels):
        panel.set_aspect("equal", anchor="N")
        grey_frames(panel)
    if axes is None:
        # Axes of equal scales find their place in the first drawing, and their labels theirs in the second.
        own: Any = overview.figure
        own.draw_without_rendering()
    return np.array([overview, *panels], dtype=object)


def _lay_out(figure: Figure | None, n_classes: int) -> tuple[Axes, list[Axes], Axes | None]:
    """Return the overview, a panel for each class beside it, and an empty corner if one is left."""
    figure = new_figure(10.0, 3.6) if figure is None else figure
    n_lines = n_classes // 2 + 1
    grid = figure.add_gridspec(n_lines, 4, width_ratios=(1.17, 1.17, 1.0, 1.0))
    overview = figure.add_subplot(grid[:, :2])
    cells = [grid[line, 2 + column] for line in range(n_lines) for column in range(2)]
    panels = [figure.add_subplot(cell, sharex=overview, sharey=overview) for cell in cells[:n_classes]]
    corner = None
    if len(cells) > n_classes:
        corner = figure.add_subplot(cells[n_classes])
        corner.axis("off")
    return overview, panels, corner
