"""What all commands share: the application they register with, how they print, and how they end."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import skmix

BAD_INPUT = 1
NOT_INSTALLED = 1
WRONG_USE = 2
ENDED_EARLY = 3
INTERRUPTED = 130

STANDARD = "-"
"""Standard input or output, where a file could stand."""


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, each on its line."""
    return "\n".join(["Examples:", "", "\b", *(f"  {line}" for line in lines)])


class _Commands(TyperGroup):
    """The commands, of which none ends in a traceback when its output has no place to go."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it could not say itself is said here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has had enough.
            _discard_output()
            raise typer.Exit(0) from None
        except OSError as error:
            _discard_output()
            stop(f"cannot write to standard output: {error.strerror or error}", WRONG_USE)
        except KeyboardInterrupt:
            stop("interrupted.", INTERRUPTED)


app = typer.Typer(
    cls=_Commands,
    help="Shared-kernel mixture models: from a table to a model, and from a model to predictions.",
    epilog="\n".join(
        [
            "A first go:",
            "",
            "\b",
            "  skmix fit flowers.csv --target species -o flowers.skmix",
            "  skmix predict flowers.skmix new.csv -o predictions.csv",
            "",
            "Exit codes:",
            "",
            "\b",
            "    0  done",
            "    1  data or model cannot be used, or a library is missing",
            "    2  wrong use: options, or a place that cannot be written",
            "    3  a study ended early; the same command goes on",
            "  130  interrupted (Ctrl-C)",
        ]
    ),
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


def stop(message: str, code: int) -> NoReturn:
    """End the program with a message on the error stream."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)


def _discard_output() -> None:
    """Send what is left to print nowhere, so that Python does not complain when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_notes: list[str] = []


def note(message: str) -> None:
    """Say something on the error stream once the work is done, so that no display of progress hides it."""
    _notes.append(message)


def print_json(content: Any) -> None:
    """Print numbers, strings, lists and dictionaries as JSON, which any terminal can show."""
    typer.echo(json.dumps(_plain(content), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return values that JSON has: numbers that are not finite are null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


@contextmanager
def text_aside(aside: bool) -> Iterator[None]:
    """Send what is printed for people to the error stream, where standard output is to hold JSON alone."""
    with redirect_stdout(sys.stderr) if aside else nullcontext():
        yield


@contextmanager
def _notes_at_the_end() -> Iterator[None]:
    _notes.clear()
    try:
        yield
    finally:
        for message in _notes:
            typer.echo(f"Note: {message}", err=True)


@contextmanager
def guarded() -> Iterator[None]:
    """End with a sentence if the work cannot be done, and turn warnings into notes."""
    with warnings.catch_warnings(), _notes_at_the_end():
        # What libraries tell programmers is not for who runs a command.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        # Python calls it with more than we want to tell.
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            yield
        except (ValueError, OverflowError) as error:
            stop(str(error), BAD_INPUT)
        except BrokenPipeError:
            raise
        except OSError as error:
            told = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            stop(f"cannot read {told}", BAD_INPUT)
        except MemoryError:
            stop("the rows do not fit into memory; see docs/guide/larger-than-memory.md.", BAD_INPUT)
        except ImportError as error:
            stop(str(error), NOT_INSTALLED)
        except KeyboardInterrupt:
            stop("interrupted; nothing was written.", INTERRUPTED)


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Say so if a file cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"cannot write {place}: {error.strerror or error}", WRONG_USE)


def _show_warning(message: Warning | str, *_: Any) -> None:
    note(str(message))
