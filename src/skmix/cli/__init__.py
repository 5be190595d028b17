"""The command line: parses arguments, calls the other packages, prints what they return."""

from __future__ import annotations

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ModuleNotFoundError:
    from skmix._extras import how_to_install

    raise SystemExit(f"Error: the command line needs rich and typer: {how_to_install()}") from None

# Importing a module registers its commands, in the order of help.
from skmix.cli import fit, predict, evaluate, show, export, compose, rename, examples, reproduce  # isort: skip
from skmix.cli._common import app

__all__ = [
    "app",
    "compose",
    "evaluate",
    "examples",
    "export",
    "fit",
    "predict",
    "rename",
    "reproduce",
    "show",
]
