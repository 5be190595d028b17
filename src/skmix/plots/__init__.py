"""Plots: each function takes a model, data or records and returns matplotlib axes.

A plot of several panels returns an array of axes, one for each panel in the order of its description.
matplotlib is imported when something is drawn; everything else works without it.
"""

from __future__ import annotations

from skmix.plots.classifiers import plot_confusion, plot_reliability, plot_search
from skmix.plots.composition import plot_composition
from skmix.plots.digits import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from skmix.plots.kernels import draw_kernels, plot_projections, weight_key
from skmix.plots.paper import (
    paper_figures,
    plot_accuracy_against_kernels,
    plot_accuracy_distribution,
    plot_illustration,
)
from skmix.plots.populations import draw_populations, plot_merges

__all__ = [
    "draw_kernels",
    "draw_populations",
    "paper_figures",
    "plot_accuracy_against_kernels",
    "plot_accuracy_distribution",
    "plot_composition",
    "plot_confusion",
    "plot_digit_points",
    "plot_digits",
    "plot_feature_overlay",
    "plot_illustration",
    "plot_merges",
    "plot_projections",
    "plot_reliability",
    "plot_search",
    "plot_segments",
    "weight_key",
]
