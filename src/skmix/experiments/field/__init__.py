"""Shared kernels compared with other classifiers, and where sharing kernels pays."""

from __future__ import annotations

from skmix.experiments.field.classifiers import (
    FIELD,
    Contender,
    OwnKernelsCV,
    SeparateMixtures,
    contenders,
    count_parameters,
)
from skmix.experiments.field.comparison import (
    Outcome,
    Settings,
    Summary,
    check_claims,
    make_tables,
    mean_ranks,
    run_cell,
    run_comparison,
    summarise,
)
from skmix.experiments.field.data import NAMES, DataSet, Simulation, TrueDensities, load_data, simulate
from skmix.experiments.field.sharing import (
    ROWS_PER_CLASS,
    SHARING_DATA,
    draw,
    gain_table,
    in_study_order,
    run_sharing,
    sharing_table,
    sharing_tables,
)

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
