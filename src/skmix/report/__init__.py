"""Descriptions and evaluations of models, as plain values and as HTML pages.

A page is one self-contained HTML file, rendered from a dictionary of plain values by a template.
"""

from __future__ import annotations

from ._predictions import outliers
from .description import describe
from .evaluation import Evaluation, cross_validate, evaluate, evaluation_page
from .explanation import Reasons, reasons
from .model_page import model_page

__all__ = [
    "Evaluation",
    "Reasons",
    "cross_validate",
    "describe",
    "evaluate",
    "evaluation_page",
    "model_page",
    "outliers",
    "reasons",
]
