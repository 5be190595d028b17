"""Shared by all commands: the application, printing, errors and exit codes."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import skmix
from skmix._errors import Argument, ArgumentError, ArgumentWarning

BAD_INPUT = NOT_INSTALLED = 1
WRONG_USE = 2
ENDED_EARLY = 3
INTERRUPTED = 130

STANDARD = "-"
"""Standard input or output, in place of a file name."""

_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


_ORDER = ["fit", "predict", "evaluate", "show", "sample", "export", "compose", "digits", "reproduce"]
"""The commands, as help lists them."""


def _bare_flags(params: Iterable[Any], commands: Iterable[Any], ctx: Any) -> None:
    """Have help print nothing in place of the value of a flag, where typer would print <bool>."""
    for each in params:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    for command in commands:
        _bare_flags(command.get_params(ctx), getattr(command, "commands", {}).values(), ctx)


class _Commands(TyperGroup):
    """Commands that end without a traceback when their output cannot be written."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options before a command."""
        params = super().get_params(ctx)
        _bare_flags(params, self.commands.values(), ctx)
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in their order."""
        return sorted(super().list_commands(ctx), key=lambda name: [*_ORDER, name].index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run a command and report errors that it did not handle itself."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # it was closed: what is said is lost
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        try:
            return super().invoke(ctx)
        except OSError as error:
            # Discard further output, so that Python's flush at exit does not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                # The reader has closed the pipe, as `head` does.
                raise typer.Exit(0) from None
            stop(f"cannot write to standard output: {error.strerror or error}", WRONG_USE)
        except KeyboardInterrupt:
            stop("interrupted.", INTERRUPTED)


app = typer.Typer(
    cls=_Commands,
    epilog="""Quick start:

\b
  skmix fit flowers.csv --target species -o flowers.skmix
  skmix predict flowers.skmix new.csv -o predictions.csv

Exit codes:

\b
    0  done
    1  data or model cannot be used, or a library is missing
    2  wrong options, or a file that cannot be written
    3  a study ended early; run the same command to continue
  130  interrupted (Ctrl-C)""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]


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
    """Shared-kernel mixture models: from a table to a model, and from a model to predictions."""


def or_standard(place: str | None) -> str | None:
    """Return where to write; the names of standard output are -, so that nothing else is printed there."""
    return STANDARD if place is not None and os.path.abspath(place) in _STANDARD_OUTPUT else place


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: examples, one per line."""
    return "\n".join(["Examples:", "", "\b", *(f"  {line}" for line in lines)])


# ---------------------------------------------------------------- printing


# Control characters, those that turn the direction of writing, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def verbatim(text: str, *, in_line: bool = False) -> str:
    r"""Return text for a terminal, with control characters, which may come from data, as ``\x1b``.

    New lines and tabs stay, unless the text is to be `in_line`.
    """
    text = text.replace("\n", "\\n").replace("\t", "\\t") if in_line else text
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class _VerbatimConsole(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(verbatim(text), **options)


def console() -> Console:
    """Return a console that prints text as it is: no markup, emoji or control characters."""
    return _VerbatimConsole(markup=False, emoji=False, highlight=False)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line without wrapping it; new lines and tabs in it, as names may have them, are escaped."""
    typer.echo(verbatim(text, in_line=True), err=err)


def table(
    headings: Iterable[str], rows: Iterable[Sequence[str]] = (), *, wrap: bool = False, lines: bool = False
) -> Table:
    """Return a table for `console`: a column of names, then numbers, or text that may wrap."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), show_lines=lines)
    for place, heading in enumerate(headings):
        number = place > 0 and not wrap
        heading = verbatim(heading, in_line=True)
        shown.add_column(heading, justify="right" if number else "left", no_wrap=number)
    for row in rows:
        shown.add_row(*(verbatim(cell, in_line=True) for cell in row))
    return shown


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def count(number: float) -> str:
    """Return a number of rows as text; it need not be whole where they have weights."""
    return str(int(number)) if float(number).is_integer() else f"{number:.6g}"


def print_json(content: Any) -> None:
    """Print numbers, strings, lists and dictionaries as JSON in ASCII, with null for NaN and infinities."""
    plain = json.loads(json.dumps(content), parse_constant=lambda name: None)
    typer.echo(json.dumps(plain, indent=2))


def text_aside(aside: bool) -> Any:
    """Return a context that prints to the error stream if standard output is reserved for JSON."""
    return redirect_stdout(sys.stderr) if aside else nullcontext()


# ---------------------------------------------------------------- errors and notes


def stop(message: str, code: int) -> NoReturn:
    """End the program with a message on the error stream."""
    say(f"Error: {message}", err=True)
    raise typer.Exit(code)


def refuse(option: str, message: str) -> NoReturn:
    """End the program because the value of an option cannot be used."""
    raise typer.BadParameter(verbatim(message, in_line=True), param_hint=option)


def parse_number(option: str, given: str, *, least: float, whole: bool = False) -> Any:
    """Return a number, or 'auto', from the command line."""
    if given == "auto":
        return given
    try:
        number = int(given) if whole else float(given)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        kind = "a whole number" if whole else "a number"
        refuse(option, f"{given!r} is neither 'auto' nor {kind} of at least {least:g}.")
    return number


_notes: list[str] = []


def note(message: str) -> None:
    """Print a note, once, on the error stream after the work, when no progress display can hide it."""
    if message not in _notes:
        _notes.append(message)


def in_options(error: Any, options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a message of the library with a command's options in place of the library's arguments."""

    def word(argument: Argument) -> str:
        option = options.get(argument.name, "--" + argument.name.replace("_", "-"))
        if isinstance(argument.value, bool):
            return option if argument.value else option.replace("--", "--no-", 1)
        return option if argument.value is None else f"{option} {shlex.quote(str(argument.value))}"

    return error.worded(word) if isinstance(error, ArgumentError | ArgumentWarning) else str(error)


@contextmanager
def guarded(
    bad_input: int = BAD_INPUT,
    interrupted: str = "interrupted; nothing was written.",
    options: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Turn errors into a one-line message and an exit code, and warnings into notes.

    `options` are those that set an argument of the library by another name.
    """
    _notes.clear()
    with warnings.catch_warnings():
        # Show warnings to users only. Columns were matched by name, so models get arrays without names.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = lambda message, *_, **__: note(in_options(message, options))
        try:
            yield
        except (ValueError, OverflowError) as error:
            stop(in_options(error, options), bad_input)
        except BrokenPipeError:
            raise
        except OSError as error:
            known = error.filename and error.strerror
            stop(f"cannot read {error.filename}: {error.strerror}" if known else str(error), BAD_INPUT)
        except MemoryError:
            stop("rows and kernels do not fit in memory; see docs/guide/larger-than-memory.md.", BAD_INPUT)
        except ImportError as error:
            stop(str(error), NOT_INSTALLED)
        except KeyboardInterrupt:
            stop(interrupted, INTERRUPTED)
        finally:
            for message in _notes:
                say(f"Note: {message}", err=True)


@contextmanager
def failing(message: str) -> Iterator[None]:
    """Stop with a message, such as 'cannot write m.skmix', if a file cannot be used."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"{message}: {error.strerror or error}", WRONG_USE)
