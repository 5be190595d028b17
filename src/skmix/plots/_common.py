"""What all pictures share: colours, figures to draw into, ellipses and dots, and saving."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skmix.study.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

ROWS_COLOUR = "0.72"
# Okabe and Ito's colours, which every colour vision tells apart.
CLASS_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 120.0) -> None:
    """Save a figure beside its place and rename it into it; the suffix of the path says the format.

    Dates and versions are left out of the file, so that the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib figure
        The figure.
    path : path-like
        File to make or to replace.
    dpi : float, default=120.0
        Dots per inch of the picture, or of its parts that are no vectors.
    """
    import matplotlib

    kind = Path(path).suffix.lower().lstrip(".")
    undated: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
        "svg": {"Date": None},
    }
    packed: dict[str, Any] = {"pil_kwargs": {"optimize": True}} if kind == "png" else {}
    # Fonts as TrueType: many publishers refuse the default, and the letters stay editable.
    with replacing(path) as file, matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format=kind, dpi=dpi, metadata=undated.get(kind), **packed)


def need_matplotlib() -> None:
    """Say what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install skmix[plot]") from error


def ellipses(
    axes: Axes, means: FloatArray, covariances: FloatArray, lines: list[dict[str, Any]], n_std: float
) -> None:
    """Draw the ellipses of kernels in the plane: means (K, 2), covariances (K, 2, 2), a line each."""
    from matplotlib.patches import Ellipse

    variances, directions = np.linalg.eigh(covariances)
    lengths = 2.0 * n_std * np.sqrt(np.maximum(variances, 0.0))
    angles = np.degrees(np.arctan2(directions[:, 1, 0], directions[:, 0, 0]))
    for mean, length, angle, line in zip(means, lengths, angles, lines, strict=True):
        axes.add_patch(Ellipse(tuple(mean), length[0], length[1], angle=float(angle), fill=False, **line))
    axes.autoscale_view()


def dots(axes: Axes, rows: FloatArray, size: float = 2.4) -> None:
    """Draw rows (n, 2) beneath everything else; as pixels, since thousands of vectors make a slow page."""
    axes.plot(*rows.T, "o", color=ROWS_COLOUR, ms=size, mew=0.0, zorder=0, rasterized=True)
