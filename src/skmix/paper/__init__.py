"""The paper: its seven-segment digits and their features, its study, tables, claims, figures and report.

Everything here uses the public names of the library. `skmix.paper.figures` draws the figures, and
`skmix.paper.page` writes the report.
"""

from skmix._parts import on_first_use

# Modules are imported on first use: the digits need no estimator.
_HOMES = {
    "claims": ("check_claims", "differences"),
    "command": ("reproduce",),
    "data": ("Settings", "generator", "make_data"),
    "digits": ("make_seven_segment_digits",),
    "example": ("illustration", "run_illustration"),
    "images": ("DIGIT_FEATURES", "digit_features", "dither"),
    "methods": ("run_batch", "run_one"),
    "printed": ("published_values",),
    "published": ("published_pass", "published_runs"),
    "study": ("StudyError", "run_study", "study_results"),
    "tables": ("make_tables",),
    "variants": ("study_cells",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)
__getattr__, __dir__ = on_first_use(__name__, _HOME_OF)
