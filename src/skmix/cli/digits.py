"""Data to try: `skmix examples` has real ones, `skmix digits` simulates images with their features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching


@cli.app.command(epilog=cli.examples("skmix examples --out examples"))
def examples(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the files.")] = Path("examples"),
) -> None:
    """Copy example data: a table, penguins.csv, and a folder of FCS files, wells.

    A README in the folder says where they come from. Python has the same as
    skmix.datasets.copy_examples.
    """
    from skmix.datasets import copy_examples

    with cli.failing(f"cannot write {out}"):
        copy_examples(out)
    printing.say(f"penguins.csv, wells.csv and 7 samples in wells, written into {out}.")


@cli.app.command(epilog=cli.examples("skmix digits --out digits.csv --per-digit 50 --seed 1"))
def digits(
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Images, labels and features (.npz), or a table of features and labels (.csv, .tsv, .gz "
            "too, or .parquet).",
        ),
    ] = Path("digits.npz"),
    per_digit: Annotated[int, typer.Option(metavar="N", help="Images of each digit.", min=1)] = 100,
    seed: Annotated[int, options.seed("Seed of the images.")] = 0,
) -> None:
    """Simulate images of seven-segment digits and compute their features.

    An .npz file holds images (n, 28, 28), labels (n,), features (n, 14) and
    feature_names (14,); read it with numpy.load. A table has the 14 features
    and, as its last column, the digit.
    """
    from skmix.io.writing import WRITABLE, writable_folder
    from skmix.paper.command import write_digits

    if not out.name.lower().endswith((".npz", *WRITABLE)):
        cli.stop(f"--out {out}: the name must end in .npz or {' or '.join(WRITABLE)}.")
    with cli.guarded(cli.WRONG_USE), cli.failing(f"cannot write {out}"):
        writable_folder(out.parent)
        with watching() as watch, watch.steps("simulating", None):
            n_images = write_digits(out, per_digit, seed)
    printing.say(f"{n_images} images, {per_digit} of each digit, written into {out}.")
