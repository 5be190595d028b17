"""Descriptions and evaluations of models, as plain values and as HTML pages.

A page is one self-contained HTML file, rendered from a dictionary of plain values by a template.
"""

from __future__ import annotations

from ..model.reasons import Reasons
from .description import describe, facts
from .evaluation import Evaluation, cross_validate, evaluate, evaluation_page, note_quality
from .model_page import model_page
from .prediction import mark_outliers, outliers, predictions, predictions_of_bags

__all__ = [
    "Evaluation",
    "Reasons",
    "cross_validate",
    "describe",
    "evaluate",
    "evaluation_page",
    "facts",
    "mark_outliers",
    "model_page",
    "note_quality",
    "outliers",
    "predictions",
    "predictions_of_bags",
]
