"""Shared by all experiments: cells keyed by their settings, a resumable store, a runner, tables and claims.

It does not depend on any particular experiment.
"""

from __future__ import annotations

from skmix.experiments.harness.files import read_lines, writable_folder, write_json, write_lines
from skmix.experiments.harness.keys import cell_key, generator, library
from skmix.experiments.harness.runner import Cell, ExperimentError, missing, run_cells
from skmix.experiments.harness.store import Store, StoreError
from skmix.experiments.harness.tables import Claim, Row, Table, claims_table, plain_table

__all__ = [
    "Cell",
    "Claim",
    "ExperimentError",
    "Row",
    "Store",
    "StoreError",
    "Table",
    "cell_key",
    "claims_table",
    "generator",
    "library",
    "missing",
    "plain_table",
    "read_lines",
    "run_cells",
    "writable_folder",
    "write_json",
    "write_lines",
]
