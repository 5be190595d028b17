"""The command line: parses arguments, calls the other rooms, prints what they return."""

from __future__ import annotations

from skmix.cli._common import app

# Importing a command's module registers it; help lists them in this order.
from skmix.cli import fit, predict, evaluate, show, digits, reproduce, bench  # isort: skip

__all__ = ["app", "bench", "digits", "evaluate", "fit", "predict", "reproduce", "show"]
