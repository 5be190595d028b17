"""Shared kernels beside the field: classifiers, data sets, repeated splits, tables; where sharing pays."""

from __future__ import annotations

from skmix.experiments.field.automatic import AutomaticClassifier, Choice
from skmix.experiments.field.counting import count_parameters
from skmix.experiments.field.data import NAMES, load_data
from skmix.experiments.field.field import FIELD, Contender, contenders
from skmix.experiments.field.parts import PartsClassifier
from skmix.experiments.field.records import DataSet, Outcome, Settings
from skmix.experiments.field.runner import run_cell, run_comparison
from skmix.experiments.field.separate import SeparateMixtures
from skmix.experiments.field.sharing import ROWS_PER_CLASS, SHARING_DATA, Learning, draw, run_sharing
from skmix.experiments.field.sharing_tables import gain_table, learning_points, sharing_table, sharing_tables
from skmix.experiments.field.simulated import Pool, Simulation, TrueDensities, simulate
from skmix.experiments.field.store import OutcomeStore, StoreError
from skmix.experiments.field.tables import (
    Claim,
    Summary,
    TextTable,
    claims,
    claims_table,
    make_tables,
    mean_ranks,
    summarise,
)

__all__ = [
    "FIELD",
    "NAMES",
    "ROWS_PER_CLASS",
    "SHARING_DATA",
    "AutomaticClassifier",
    "Choice",
    "Claim",
    "Contender",
    "DataSet",
    "Learning",
    "Outcome",
    "OutcomeStore",
    "PartsClassifier",
    "Pool",
    "SeparateMixtures",
    "Settings",
    "Simulation",
    "StoreError",
    "Summary",
    "TextTable",
    "TrueDensities",
    "claims",
    "claims_table",
    "contenders",
    "count_parameters",
    "draw",
    "gain_table",
    "learning_points",
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
