"""Shared kernels compared with other classifiers, and where sharing kernels pays."""

from __future__ import annotations

from .classifiers import FIELD, Contender, SeparateMixtures, TunedSVC, contenders, count_parameters, installed
from .data import (
    HALVES,
    NAMES,
    SETS_BY_PART,
    DataSet,
    Simulation,
    TrueDensities,
    find_data,
    half_of,
    load_data,
    simulate,
)
from .running import Outcome, Settings, key_of, run_cell, run_comparison
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
from .store import Store
from .tables import Standing, Summary, make_tables, mean_ranks, standings, summarise

__all__ = [
    "FIELD",
    "HALVES",
    "NAMES",
    "ROWS_PER_CLASS",
    "SETS_BY_PART",
    "SHARING_DATA",
    "Contender",
    "DataSet",
    "Outcome",
    "SeparateMixtures",
    "Settings",
    "Simulation",
    "Standing",
    "Store",
    "Summary",
    "TrueDensities",
    "TunedSVC",
    "contenders",
    "count_parameters",
    "draw",
    "find_data",
    "gain_table",
    "half_of",
    "in_study_order",
    "installed",
    "key_of",
    "load_data",
    "make_tables",
    "mean_ranks",
    "run_cell",
    "run_comparison",
    "run_sharing",
    "sharing_table",
    "sharing_tables",
    "simulate",
    "standings",
    "summarise",
]
