"""`skmix digits`: simulated images of seven-segment digits, with their features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from skmix import paper
from skmix.cli import _common as cli
from skmix.cli._progress import watching
from skmix.io import replacing, write_columns
from skmix.io.writing import WRITABLE
from skmix.paper.digit_plots import plot_digits
from skmix.paper.harness import writable_folder
from skmix.plots._common import new_figure, save_figure

_MAX_ON_A_SHEET = 20
"""Images of each digit that a sheet shows."""


@cli.app.command(
    epilog=cli.examples(
        "skmix digits --sheet digits.png",
        "skmix digits --out digits.csv --per-digit 50 --seed 1",
    )
)
def digits(
    out: Annotated[
        Path,
        typer.Option(
            help="File for images, labels and features (.npz), or for a table of features and labels "
            f"({', '.join(WRITABLE)})."
        ),
    ] = Path("digits.npz"),
    per_digit: Annotated[int, typer.Option(help="Images of each digit.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the images.", min=0, max=2**32 - 1)] = 0,
    half_length: Annotated[float, typer.Option(help="Half the length of a segment.")] = 2.0,
    half_width: Annotated[float, typer.Option(help="Half the width of a segment.")] = 0.5,
    points: Annotated[int, typer.Option(help="Points of each lit segment.", min=1)] = 100,
    variance_scale: Annotated[float, typer.Option(help="Factor of the points' variances.")] = 1.2,
    sheet: Annotated[
        Path | None,
        typer.Option(help=f"Picture of the first {_MAX_ON_A_SHEET} images of each digit (.png, .pdf, .svg)."),
    ] = None,
    as_json: cli.Json = False,
) -> None:
    """Simulate images of seven-segment digits and compute their features.

    An .npz file holds images (n, 28, 28), labels (n,), features (n, 14) and
    feature_names (14,); read it with numpy.load. A table has the 14 features
    and, as its last column, the digit.
    """
    known = {"--out": (".npz", *WRITABLE), "--sheet": (".pdf", ".png", ".svg")}
    wanted = {option: file for option, file in zip(known, (out, sheet), strict=True) if file is not None}
    for option, file in wanted.items():
        if not file.name.lower().endswith(known[option]):
            suffixes = " or ".join(known[option])
            cli.stop(f"{option} {file}: the name must end in {suffixes}.", cli.WRONG_USE)
    files = " and ".join(map(str, wanted.values()))
    with cli.guarded(cli.WRONG_USE), cli.failing(f"cannot write {files}"):
        for file in wanted.values():
            writable_folder(file.parent)
        with watching() as watch, watch.steps("simulating", None):
            images, labels = paper.make_seven_segment_digits(
                per_digit,
                half_length=half_length,
                half_width=half_width,
                n_points=points,
                variance_scale=variance_scale,
                random_state=seed,
            )
            # Draw before anything is written: matplotlib may be missing.
            figure = None if sheet is None else _sheet(images, labels, per_digit)
            found, names = paper.digit_features(images), paper.DIGIT_FEATURES
            if out.suffix.lower() == ".npz":
                with replacing(out) as opened:
                    np.savez_compressed(
                        opened, images=images, labels=labels, features=found, feature_names=names
                    )
            else:
                columns = dict(zip(names, found.T, strict=True))
                write_columns(out, {**columns, "digit": labels})
            if figure is not None and sheet is not None:
                save_figure(figure, sheet, dpi=120)
    if as_json:
        picture = None if sheet is None else str(sheet)
        cli.print_json({"file": str(out), "sheet": picture, "n_images": len(labels)})
    else:
        cli.say(f"{len(labels)} images, {per_digit} of each digit, written into {files}.")


def _sheet(images: NDArray[np.uint8], labels: NDArray[np.int64], per_digit: int) -> Any:
    """Return a figure with a row of images for each digit."""
    across = min(per_digit, _MAX_ON_A_SHEET)
    shown = np.arange(len(labels)) % per_digit < across
    figure = new_figure(0.45 * across + 0.5, 4.7)
    plot_digits(images[shown], labels[shown], n_columns=across, figure=figure)
    return figure
