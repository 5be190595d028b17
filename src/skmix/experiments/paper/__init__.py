"""The paper's experiments: its study of seven-segment digits, and its illustration in two dimensions.

They simulate, fit and record. Drawing is done in `skmix.plots`, pages in `skmix.report`.
"""

from __future__ import annotations

from .claims import Difference, check_claims, differences, headline
from .illustration import IllustrationRecord, fit_illustration, run_illustration
from .methods import run_batch, run_one
from .published import published_pass, published_passes, published_run
from .published_values import published_values
from .records import (
    Beyond,
    GroupModel,
    Margin,
    Run,
    Settings,
    StudyData,
    StudyResults,
    fingerprint,
    make_data,
)
from .study import Study, make_study, run_study, stored_runs, study_results
from .tables import make_tables, write_tables
from .variants import LABELS, MAIN_KERNELS, MAIN_RUNS, METHODS, PRINTED, VARIANTS, Cell, Method, study_cells

__all__ = [
    "LABELS",
    "MAIN_KERNELS",
    "MAIN_RUNS",
    "METHODS",
    "PRINTED",
    "VARIANTS",
    "Beyond",
    "Cell",
    "Difference",
    "GroupModel",
    "IllustrationRecord",
    "Margin",
    "Method",
    "Run",
    "Settings",
    "Study",
    "StudyData",
    "StudyResults",
    "check_claims",
    "differences",
    "fingerprint",
    "fit_illustration",
    "headline",
    "make_data",
    "make_study",
    "make_tables",
    "published_pass",
    "published_passes",
    "published_run",
    "published_values",
    "run_batch",
    "run_illustration",
    "run_one",
    "run_study",
    "stored_runs",
    "study_cells",
    "study_results",
    "write_tables",
]
