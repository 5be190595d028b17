"""The paper's two-dimensional illustration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skmix.plots._common import CLASS_COLOURS, dots, ellipses, need_matplotlib
from skmix.plots.kernels import draw_kernels, weight_key
from skmix.study.illustration import IllustrationRecord

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure


def plot_illustration(record: IllustrationRecord, figure: Figure | None = None) -> NDArray[Any]:
    """Plot a run of the paper's two-dimensional illustration.

    Parameters
    ----------
    record : IllustrationRecord
        What `skmix.study.run_illustration` returned.
    figure : matplotlib figure, default=None
        An empty figure to draw into. None makes one without a window, ready for ``savefig``.

    Returns
    -------
    ndarray of 1 + L axes
        First the rows with the true and the estimated kernels, then the kernels as each class weighs them.
    """
    need_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    if figure is None:
        figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    model, example = record.model, record.example
    classes = model.classes_.tolist()
    n_classes = len(classes)
    n_lines = n_classes // 2 + 1
    grid = figure.add_gridspec(n_lines, 4, width_ratios=(1.17, 1.17, 1.0, 1.0))
    overview = figure.add_subplot(grid[:, :2])
    cells = [grid[line, 2 + column] for line in range(n_lines) for column in range(2)]
    panels = [figure.add_subplot(cell, sharex=overview, sharey=overview) for cell in cells[:n_classes]]
    colours = [CLASS_COLOURS[c % len(CLASS_COLOURS)] for c in range(n_classes)]
    codes = np.searchsorted(model.classes_, record.y)

    # Shuffled, so that no class lies on top of the others.
    order = np.random.RandomState(0).permutation(len(record.y))
    across, up = record.X[order].T
    shades = np.array(colours)[codes[order]]
    overview.scatter(across, up, c=shades, s=5, alpha=0.3, lw=0, rasterized=True, zorder=0)
    estimated: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6, "linestyle": "solid"}
    true: dict[str, Any] = {"edgecolor": "#ff5fa8", "linewidth": 1.6, "linestyle": (0, (2.5, 2.5))}
    for n_std in (1.0, 2.0):
        ellipses(overview, model.means_, model.covariances_, [estimated] * len(model.means_), n_std)
        ellipses(overview, example.means, example.covariances, [true] * len(example.means), n_std)
    handles: list[Artist] = [
        Line2D([], [], marker="o", ls="", ms=4, color=colour, label=f"class {label}")
        for colour, label in zip(colours, classes, strict=True)
    ]
    for name, line in (("estimated, 1σ and 2σ", estimated), ("true", true)):
        handles.append(Line2D([], [], color=line["edgecolor"], lw=1.6, ls=line["linestyle"], label=name))
    overview.legend(handles=handles, loc="lower right", fontsize=8, frameon=False, borderpad=0.2)
    overview.set_title("Kernels, true and estimated", fontsize=10)
    overview.set_xlabel("feature 0", fontsize=9)
    overview.set_ylabel("feature 1", fontsize=9)
    overview.tick_params(labelsize=8)

    for c, (label, panel) in enumerate(zip(classes, panels, strict=True)):
        dots(panel, record.X[codes == c], size=1.2)
        draw_kernels(model, label, panel, style="accessible")
        tops = model.means_[:, 1] + np.sqrt(model.covariances_[:, 1, 1])
        for across_k, top, weight in zip(model.means_[:, 0], tops, model.weights_[:, c], strict=True):
            number = panel.annotate(
                f"{weight:.3f}", (across_k, top), (0, 4), textcoords="offset points", ha="center", fontsize=8
            )
            number.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        panel.set_title(f"Weights of class {label}", fontsize=10, color=colours[c])
        panel.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    if len(cells) > n_classes:
        corner = figure.add_subplot(cells[n_classes])
        corner.axis("off")
        weight_key(corner, style="accessible", loc="center", fontsize=8, title_fontsize=8)
    for panel in (overview, *panels):
        panel.set_aspect("equal", anchor="N")
        for spine in panel.spines.values():
            spine.set_color("0.6")
    return np.array([overview, *panels], dtype=object)
