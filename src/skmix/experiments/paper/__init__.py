"""The paper's experiments: data in, records out, and the files they are kept in."""

from __future__ import annotations

from skmix.experiments.paper.data import fingerprint, make_data
from skmix.experiments.paper.files import replacing, writable_folder, write_json
from skmix.experiments.paper.illustration import (
    Comparison,
    IllustrationRecord,
    fit_illustration,
    run_illustration,
)
from skmix.experiments.paper.methods import run_batch, run_one
from skmix.experiments.paper.published_values import PublishedValues, published_sweep, published_values
from skmix.experiments.paper.records import (
    BestRun,
    Beyond,
    GroupModel,
    Run,
    Settings,
    StudyData,
    StudyResults,
)
from skmix.experiments.paper.runner import StudyError, missing_batches, run_study, study_cells, study_results
from skmix.experiments.paper.store import Store, StoreError
from skmix.experiments.paper.table_files import write_tables
from skmix.experiments.paper.tables import Table, make_tables
from skmix.experiments.paper.variants import (
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    VARIANTS,
    Cell,
    Dither,
    Method,
    Variant,
)
from skmix.experiments.paper.verdict import Difference, Verdict, differences, verdicts

__all__ = [
    "MAIN_KERNELS",
    "MAIN_RUNS",
    "METHODS",
    "VARIANTS",
    "BestRun",
    "Beyond",
    "Cell",
    "Comparison",
    "Difference",
    "Dither",
    "GroupModel",
    "IllustrationRecord",
    "Method",
    "PublishedValues",
    "Run",
    "Settings",
    "Store",
    "StoreError",
    "StudyData",
    "StudyError",
    "StudyResults",
    "Table",
    "Variant",
    "Verdict",
    "differences",
    "fingerprint",
    "fit_illustration",
    "make_data",
    "make_tables",
    "missing_batches",
    "published_sweep",
    "published_values",
    "replacing",
    "run_batch",
    "run_illustration",
    "run_one",
    "run_study",
    "study_cells",
    "study_results",
    "verdicts",
    "writable_folder",
    "write_json",
    "write_tables",
]
