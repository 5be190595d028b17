"""`skmix examples`: data to try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skmix.cli import _common as cli
from skmix.cli import _printing as printing


@cli.app.command(epilog=cli.examples("skmix examples --out examples"))
def examples(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the files.")] = Path("examples"),
) -> None:
    """Copy example data: tables, penguins.csv and vowels.csv.gz, and FCS files.

    A README in the folder says where they come from. Python has the same as
    skmix.datasets.copy_examples.
    """
    from skmix.datasets import copy_examples

    with cli.failing(f"cannot write {out}"):
        copy_examples(out)
    printing.say(f"penguins.csv, vowels.csv.gz, wells.csv and 7 samples in wells, written into {out}.")
