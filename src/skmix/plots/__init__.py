"""Pictures: each function takes a model, data or records and returns matplotlib axes.

matplotlib is imported when something is drawn, so that everything else works without it.
"""

from __future__ import annotations

from skmix.plots._common import save_figure
from skmix.plots.illustration import plot_illustration
from skmix.plots.kernels import draw_kernels, weight_key
from skmix.plots.projections import plot_projections

__all__ = ["draw_kernels", "plot_illustration", "plot_projections", "save_figure", "weight_key"]
