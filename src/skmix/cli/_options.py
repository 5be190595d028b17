"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer

from skmix.cli._common import STANDARD, refuse

_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def option(metavar: str | None, help: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """An option of a command in a panel of its help; one with the metavar "" takes no value."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **settings)


def file(help: str, *names: str, panel: str | None = None) -> Any:
    """An option that names a file to write; the names of standard output become -."""
    return option("FILE", help, *names, panel=panel, callback=_or_standard)


def _or_standard(place: str | None) -> str | None:
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
    """An option of a seed."""
    return option("N", help, "--seed", callback=_some_seed)


_scale = partial(option, panel="The scale")
_text = partial(option, panel="How the table is written")

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="Table: CSV, TSV (.gz too), Parquet, .npy or FCS; - is standard input."
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as skmix fit writes it.")]
Errors = Annotated[
    str | None,
    option(
        "SUFFIX", "Columns whose names end so hold the errors of others: with _err, age_err those of age."
    ),
]
Drop = Annotated[
    list[str] | None,
    option("COLUMN", "Leave a column out; can be repeated. With auto, leave out what cannot be a feature."),
]
Bags = Annotated[
    str | None, option("COLUMN", "Column that names the bag of each row, whose rows have one class together.")
]
Html = Annotated[str | None, file("Write a page to open in a browser.")]
Compensate = Annotated[
    bool | None,
    _scale("", "Compensate FCS files; by default if they have a matrix.", "--compensate/--no-compensate"),
]
Transform = Annotated[
    str | None,
    _scale(
        "SCALE",
        "arcsinh:COFACTOR, arcsinh, logicle or none; by default none for tables, and for FCS files what "
        "follows from how each channel was recorded. Scatter channels of FCS files stay linear.",
    ),
]
Damaged = Annotated[
    Literal["refuse", "drop", "keep"], _text(None, "What to do with damaged events of FCS files.")
]
Jobs = Annotated[
    int, option("N", "Threads; -1 uses all cores. The model does not depend on it.", callback=_some_jobs)
]
Seed = Annotated[int, seed("Seed of everything random.")]
Json = Annotated[bool, option("", "Print the result as JSON, for scripts.", "--json")]


def parse_number(option: str, text: str) -> int | None:
    """A whole number of at least 1, or None for 'auto'."""
    if text != "auto" and not (text.isdecimal() and int(text) > 0):
        refuse(option, f"{text!r} is neither 'auto' nor a whole number of at least 1.")
    return None if text == "auto" else int(text)


def parse_preparation(compensate: bool | None, transform: str | None) -> dict[str, Any]:
    """Arguments of `open_rows`: how files are prepared, by the options of a command."""
    from skmix.data.recipe import scale_of, transformer_of

    try:
        scale = "auto" if transform is None else scale_of(transformer_of(transform))
    except ValueError as error:
        refuse("--transform", str(error))
    return {"compensate": "auto" if compensate is None else compensate, "transform": scale}


# ---------------------------------------------------------------- how a table is written

NoHeader = Annotated[
    bool, _text("", "The first line has values; columns are column_1, column_2 ...", "--no-header")
]
Sep = Annotated[
    str | None, _text("CHARACTER", "Separator of columns, also tab or space; by default detected.")
]
Decimal = Annotated[
    Literal[".", ","] | None,
    _text("CHARACTER", "Decimal mark, a point or a comma; by default that of the fit, and in a fit a point."),
]
Thousands = Annotated[
    str | None,
    _text(
        "CHARACTER",
        "Separator of thousands, also space. With '', there is none; by default that of the fit, and in a "
        "fit numbers that may have one are refused.",
    ),
]
Encoding = Annotated[str | None, _text("NAME", "Encoding, such as latin-1; by default UTF-8.")]
Missing = Annotated[
    list[str] | None,
    _text(
        "TOKEN",
        "Word or number for a missing value, beside empty cells, NA, null, ? and the like; can be repeated. "
        "With '', only empty cells are missing.",
    ),
]


def _as_text(
    no_header: NoHeader = False,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    missing: Missing = None,
) -> dict[str, Any]:
    """How a table is written, as the argument `text` of `open_rows`."""
    sep = {"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep)
    if sep is not None and (len(sep) != 1 or sep in '"\r\n' or not sep.isascii()):
        refuse("--sep", f"{sep!r} is not one character, tab or space.")
    if sep == (decimal or "."):
        refuse("--sep", f"{sep!r} is also --decimal.")
    thousands = " " if thousands == "space" else thousands
    marks = {"sep": sep, "decimal": decimal, "thousands": thousands}
    return {"header": not no_header, **marks, "encoding": encoding, "missing": missing or ()}


def with_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a table is written, as its one argument `text`."""
    of_text = list(inspect.signature(_as_text, eval_str=True).parameters.values())
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        parameter
        for of_command in signature.parameters.values()
        for parameter in (of_text if of_command.name == "text" else [of_command])
    ]

    @wraps(command)
    def call(**values: Any) -> None:
        text = _as_text(**{parameter.name: values.pop(parameter.name) for parameter in of_text})
        command(**values, text=text)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call
