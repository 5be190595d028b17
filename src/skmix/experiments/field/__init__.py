"""Shared kernels compared with other classifiers, and where sharing kernels pays."""

from __future__ import annotations

from .classifiers import FIELD, Contender, OwnKernelsCV, SeparateMixtures, contenders, count_parameters
from .comparison import Outcome, Settings, run_cell, run_comparison
from .data import NAMES, DataSet, Simulation, TrueDensities, load_data, simulate
from .sharing import (
    ROWS_PER_CLASS,
    SHARING_DATA,
    draw,
    gain_table,
    in_study_order,
    run_sharing,
    sharing_table,
    sharing_tables,
)
from .tables import Summary, check_claims, make_tables, mean_ranks, summarise

__all__ = [
    "FIELD",
    "NAMES",
    "ROWS_PER_CLASS",
    "SHARING_DATA",
    "Contender",
    "DataSet",
    "Outcome",
    "OwnKernelsCV",
    "SeparateMixtures",
    "Settings",
    "Simulation",
    "Summary",
    "TrueDensities",
    "check_claims",
    "contenders",
    "count_parameters",
    "draw",
    "gain_table",
    "in_study_order",
    "load_data",
    "make_tables",
    "mean_ranks",
    "run_cell",
    "run_comparison",
    "run_sharing",
    "sharing_table",
    "sharing_tables",
    "simulate",
    "summarise",
]
