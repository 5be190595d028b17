"""The paper: its seven-segment digits and their features, its study, tables, claims, figures and report.

Everything here uses the library by its public names. `skmix.paper.figures` draws, `skmix.paper.page` writes
the report, `skmix.paper.harness` runs any experiment.
"""

from __future__ import annotations

from .claims import Difference, check_claims, differences, headline
from .digits import (
    IMAGE_SIDE,
    LIT_SEGMENTS,
    SegmentLayout,
    bin_points,
    make_seven_segment_digits,
    sample_points,
    segment_layout,
)
from .illustration import Illustration, IllustrationRecord, fit_illustration, illustration, run_illustration
from .images import DIGIT_FEATURES, PrincipalAxis, QuadrantMass, digit_features, dither
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
    "DIGIT_FEATURES",
    "IMAGE_SIDE",
    "LABELS",
    "LIT_SEGMENTS",
    "MAIN_KERNELS",
    "MAIN_RUNS",
    "METHODS",
    "PRINTED",
    "VARIANTS",
    "Beyond",
    "Cell",
    "Difference",
    "GroupModel",
    "Illustration",
    "IllustrationRecord",
    "Margin",
    "Method",
    "PrincipalAxis",
    "QuadrantMass",
    "Run",
    "SegmentLayout",
    "Settings",
    "Study",
    "StudyData",
    "StudyResults",
    "bin_points",
    "check_claims",
    "differences",
    "digit_features",
    "dither",
    "fingerprint",
    "fit_illustration",
    "headline",
    "illustration",
    "make_data",
    "make_seven_segment_digits",
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
    "sample_points",
    "segment_layout",
    "stored_runs",
    "study_cells",
    "study_results",
    "write_tables",
]
