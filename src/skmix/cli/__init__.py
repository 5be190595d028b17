"""The command line: parses arguments, calls the other rooms, prints what they return."""

from __future__ import annotations

from skmix.cli._common import app

# Importing a command's module registers it.
from skmix.cli import bench, digits, reproduce  # isort: skip

__all__ = ["app", "bench", "digits", "reproduce"]
