"""`skmix reproduce`: the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from skmix import plots, study
from skmix.cli._common import NOT_INSTALLED, WRONG_USE, app, stop


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of the simulated sample.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Reproduce the paper's two-dimensional illustration.

    Simulates three classes that share three kernels, fits them from the paper's start, prints the true
    parameters beside the estimated ones, and saves the numbers and a picture.
    """
    try:
        folder = study.writable_folder(out)
        record = study.run_illustration(seed)
        axes = plots.plot_illustration(record)
        study.write_json(folder / "illustration.json", record.to_dict())
        for suffix, dpi in (("png", 120), ("pdf", 300)):
            plots.save_figure(axes[0].figure, folder / f"illustration.{suffix}", dpi=dpi)
    except OSError as error:
        stop(f"cannot write the results into {out}: {error.strerror or error}", WRONG_USE)
    except ImportError as error:
        stop(str(error), NOT_INSTALLED)
    _print_illustration(record)
    typer.echo(f"Written into {folder}: illustration.json, illustration.png, illustration.pdf.")


def _print_illustration(record: study.IllustrationRecord) -> None:
    """Print true beside estimated parameters, a line for each mean, covariance and column of weights."""
    model = record.model
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in ("true", "estimated", "largest\nerror", "standard\nerror"):
        table.add_column(heading, justify="right", no_wrap=True)
    for compared in record.comparisons():
        # A line for each kernel, or for each class; of a symmetric matrix the upper triangle.
        of_classes = compared.name == "weights"
        upper = np.triu_indices(compared.true.shape[-1]) if compared.true.ndim == 3 else (slice(None),)
        owners = model.classes_.tolist() if of_classes else range(len(compared.true))
        table.add_row(compared.name, style="bold")
        for line, owner in enumerate(owners):
            true, estimated, standard_error = (
                (values.T if of_classes else values)[line][upper]
                for values in (compared.true, compared.estimated, compared.standard_error)
            )
            table.add_row(
                f"  class {owner}" if of_classes else f"  kernel {owner}",
                _numbers(true),
                _numbers(estimated),
                f"{np.abs(estimated - true).max():.3f}",
                f"{standard_error.max():.3f}",
            )
        table.add_section()
    Console().print(table)
    ended = "Converged" if model.converged_ else "Did not converge"
    typer.echo(f"{ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}.")
    errors = ", ".join(f"{compared.name} {compared.largest_error:.3f}" for compared in record.comparisons())
    typer.echo(f"Largest absolute error: {errors}.")


def _numbers(values: NDArray[np.float64]) -> str:
    # Adding zero turns -0.000 into 0.000.
    return " ".join(f"{round(float(value), 3) + 0.0:6.3f}" for value in values)
