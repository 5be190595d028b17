"""Shared kernels beside the field: classifiers, data sets, repeated splits, tables; where sharing pays."""

from __future__ import annotations

from skmix.comparison.automatic import AutomaticClassifier, Choice
from skmix.comparison.counting import count_parameters
from skmix.comparison.data import NAMES, load_data
from skmix.comparison.description import describe
from skmix.comparison.evaluation import Evaluation, ReliabilityBin, evaluate
from skmix.comparison.field import FIELD, Contender, contenders
from skmix.comparison.parts import PartsClassifier
from skmix.comparison.predictions import is_classifier, outlier_threshold, predict_columns
from skmix.comparison.records import DataSet, Outcome, Settings
from skmix.comparison.runner import run_cell, run_comparison
from skmix.comparison.separate import SeparateMixtures
from skmix.comparison.sharing import (
    ROWS_PER_CLASS,
    SHARING_DATA,
    Learning,
    draw,
    run_sharing,
)
from skmix.comparison.sharing_tables import learning_points, sharing_table, sharing_tables, worth_table
from skmix.comparison.simulated import Pool, Simulation, TrueDensities, simulate
from skmix.comparison.store import OutcomeStore, StoreError
from skmix.comparison.tables import (
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
    "Evaluation",
    "Learning",
    "Outcome",
    "OutcomeStore",
    "PartsClassifier",
    "Pool",
    "ReliabilityBin",
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
    "describe",
    "draw",
    "evaluate",
    "is_classifier",
    "learning_points",
    "load_data",
    "make_tables",
    "mean_ranks",
    "outlier_threshold",
    "predict_columns",
    "run_cell",
    "run_comparison",
    "run_sharing",
    "sharing_table",
    "sharing_tables",
    "simulate",
    "summarise",
    "worth_table",
]
