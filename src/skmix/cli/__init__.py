"""The command line: parses arguments, calls the other rooms, prints what they return."""

from __future__ import annotations

# Importing a command's module registers it; help lists them in this order.
from skmix.cli import digits, evaluate, fit, predict, reproduce, show
from skmix.cli._common import app

from skmix.cli import bench  # isort: skip

__all__ = ["app", "bench", "digits", "evaluate", "fit", "predict", "reproduce", "show"]
