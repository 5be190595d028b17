"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer

from skmix.cli._common import STANDARD, refuse

_of_text = partial(typer.Option, rich_help_panel="How the table is written")
_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def or_standard(place: str | None) -> str | None:
    """Return where to write; the names of standard output are -, so that nothing else is printed there."""
    return STANDARD if place is not None and os.path.abspath(place) in _STANDARD_OUTPUT else place


def _some_jobs(jobs: int) -> int:
    if jobs == 0:
        refuse("--jobs", "must not be 0; -1 uses all cores.")
    return jobs


def _some_seed(seed: int | None) -> int | None:
    if seed is not None and not 0 <= seed < 2**32:
        refuse("--seed", f"{seed} is not in the range from 0 to {2**32 - 1}.")
    return seed


def seed(help: str) -> Any:
    """Return an option of a seed."""
    return typer.Option("--seed", metavar="N", help=help, callback=_some_seed)


def file(*names: str, help: str, **settings: Any) -> Any:
    """Return an option that names a file to write."""
    return typer.Option(*names, metavar="FILE", help=help, callback=or_standard, **settings)


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="Table: CSV, TSV (.gz too), Parquet, .npy or FCS; - is standard input."
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as skmix fit writes it.")]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="COLUMN",
        help="Leave a column out; may be given several times. With auto, leave out what cannot be a feature.",
    ),
]
Out = Annotated[
    str,
    file(
        "--out", "-o", help="Table to write: .csv, .tsv (.gz too) or .parquet; - is CSV on standard output."
    ),
]
Html = Annotated[str | None, file("--html", help="Write a page to open in a browser.")]
Compensate = Annotated[
    bool | None,
    typer.Option(
        "--compensate/--no-compensate",
        metavar="",
        help="Compensate FCS files for spill-over; by default if they have a matrix.",
        rich_help_panel="The scale",
    ),
]
Transform = Annotated[
    str | None,
    typer.Option(
        metavar="SCALE",
        help="arcsinh:COFACTOR, arcsinh, logicle or none; by default none for tables, and for FCS files "
        "what follows from how each channel was recorded. Scatter channels of FCS files stay linear.",
        rich_help_panel="The scale",
    ),
]
Damaged = Annotated[
    Literal["refuse", "drop", "keep"],
    _of_text(help="What to do with damaged events of FCS files."),
]
Jobs = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Threads; -1 uses all cores. The model does not depend on it.",
        callback=_some_jobs,
    ),
]
Seed = Annotated[int, seed("Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON, for scripts.")]


def parse_number(option: str, given: str) -> int | None:
    """Return a whole number of at least 1, or None for 'auto'."""
    if given != "auto" and not (given.isdecimal() and int(given) > 0):
        refuse(option, f"{given!r} is neither 'auto' nor a whole number of at least 1.")
    return None if given == "auto" else int(given)


def with_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a table is written, as its one argument `text`."""
    options = list(inspect.signature(_text, eval_str=True).parameters.values())
    own = inspect.signature(command, eval_str=True)
    parameters = [
        each for given in own.parameters.values() for each in (options if given.name == "text" else [given])
    ]

    @wraps(command)
    def call(**given: Any) -> None:
        text = _text(**{option.name: given.pop(option.name) for option in options})
        command(**given, text=text)

    call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _text(
    no_header: Annotated[
        bool,
        _of_text(
            "--no-header", metavar="", help="The first line has values; columns are column_1, column_2 ..."
        ),
    ] = False,
    sep: Annotated[
        str | None,
        _of_text(metavar="CHARACTER", help="Separator of columns, also tab or space; by default detected."),
    ] = None,
    decimal: Annotated[
        Literal[".", ","] | None,
        _of_text(
            metavar="CHARACTER",
            help="Decimal mark, a point or a comma; by default that of the fit, and in a fit a point.",
        ),
    ] = None,
    thousands: Annotated[
        str | None,
        _of_text(
            metavar="CHARACTER",
            help="Separator of thousands, also space. With '', there is none; by default that of the "
            "fit, and in a fit numbers that may have one are refused.",
        ),
    ] = None,
    encoding: Annotated[
        str | None, _of_text(metavar="NAME", help="Encoding, such as latin-1; by default UTF-8.")
    ] = None,
    missing: Annotated[
        list[str] | None,
        _of_text(
            metavar="TOKEN",
            help="Word or number for a missing value, beside empty cells, NA, null, ? and the like; may be "
            "given several times. With '', only empty cells are missing.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Return how a table is written, as the argument `text` of `open_rows`."""
    sep = {"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep)
    if sep is not None and (len(sep) != 1 or sep in '"\r\n' or not sep.isascii()):
        refuse("--sep", f"{sep!r} is not one character, tab or space.")
    if sep == (decimal or "."):
        refuse("--sep", f"{sep!r} is also --decimal.")
    thousands = " " if thousands == "space" else thousands
    return {
        "header": not no_header,
        "sep": sep,
        "decimal": decimal,
        "thousands": thousands,
        "encoding": encoding,
        "missing": missing or (),
    }


def parse_preparation(compensate: bool | None, transform: str | None) -> dict[str, Any]:
    """Return arguments of `open_rows`: how files are prepared, by the options of a command."""
    from skmix.data.notation import AUTO
    from skmix.data.recipe import scale_of, transformer_of

    try:
        scale = AUTO if transform is None else scale_of(transformer_of(transform))
    except ValueError as error:
        refuse("--transform", str(error))
    return {"compensate": AUTO if compensate is None else compensate, "transform": scale}
