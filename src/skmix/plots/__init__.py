"""Plots: each function takes a model or its results and returns matplotlib axes.

A plot of several panels returns an array of axes, one for each panel in the order of its description.
matplotlib is imported when something is drawn; everything else works without it.
"""

from __future__ import annotations

from .classifiers import plot_reliability, plot_search
from .kernels import draw_kernels, plot_projections, weight_key

__all__ = ["draw_kernels", "plot_projections", "plot_reliability", "plot_search", "weight_key"]
