"""The study's report: results in, one self-contained HTML page out. Nothing is computed again."""

from __future__ import annotations

from skmix.report.data import report_data
from skmix.report.page import render, write_report

__all__ = ["render", "report_data", "write_report"]
