"""Pages to open in a browser: the study's report, a fitted model, an evaluation.

Each is one self-contained HTML file. First a dictionary of plain values, then a template; drawing computes
nothing again.
"""

from __future__ import annotations

from skmix.report.data import report_data
from skmix.report.description import describe, is_classifier, metadata_of, outlier_threshold, predict_columns
from skmix.report.evaluation import Evaluation, evaluate
from skmix.report.evaluation_page import evaluation_page
from skmix.report.model_page import model_page
from skmix.report.page import render, write_report

__all__ = [
    "Evaluation",
    "describe",
    "evaluate",
    "evaluation_page",
    "is_classifier",
    "metadata_of",
    "model_page",
    "outlier_threshold",
    "predict_columns",
    "render",
    "report_data",
    "write_report",
]
