"""What all commands share: the application they register with, and how they end with an error."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

import skmix

app = typer.Typer(
    help="Shared-kernel mixture models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

NOT_INSTALLED = 1
WRONG_USE = 2


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skmix {skmix.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Shared-kernel mixture models."""


def stop(message: str, code: int) -> NoReturn:
    """End the program with a message on the error stream."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)
