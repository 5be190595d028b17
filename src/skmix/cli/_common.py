"""The application, its exit codes, and the wording of the library's errors and warnings.

Modules of commands load the library only when a command runs, so that help and mistakes take no time.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import skmix
from skmix._errors import Argument, ArgumentError, ArgumentWarning
from skmix.cli._printing import say, verbatim

BAD_INPUT = NOT_INSTALLED = 1
WRONG_USE = 2
ENDED_EARLY = 3
INTERRUPTED = 130

STANDARD = "-"
"""Standard input or output, in place of a file name."""

# Options that set an argument of the library by another name.
_OPTIONS = {
    "columns": "--markers",
    "covariance_type": "--covariance",
    "label": "--sample",
    "n_jobs": "--jobs",
    "n_kernels": "--kernels",
    "n_populations": "--populations",
}


class _Commands(TyperGroup):
    """Commands that end without a traceback when their output cannot be written."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and report errors that it did not handle itself."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from skmix._words import nearest

            error.message = error.message.removeprefix("Value error, ")
            if "is not one of" in error.message:
                value, *choices = re.findall("'([^']*)'", error.message)
                error.message += nearest(value, choices)
            raise
        except OSError as error:
            # Discard further output, so that Python's flush at exit does not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                # The reader has closed the pipe, as `head` does.
                raise typer.Exit(0) from None
            stop(f"cannot write to standard output: {error.strerror or error}")
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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skmix {skmix.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Show the version and exit.", callback=_show_version)
    ] = False,
) -> None:
    """Shared-kernel mixture models: from a table to a model, and from a model to predictions."""


def examples(*lines: str) -> str:
    """The epilog of a command's help: examples, one per line."""
    return "\n".join(["Examples:", "", "\b", *(f"  {line}" for line in lines)])


def check_inputs(*paths: str | Path | None) -> None:
    """Stop if a file to read is missing; this takes no time, unlike loading the library."""
    for path in paths:
        if path is not None and str(path) != STANDARD and not os.path.lexists(path):
            from skmix.data.read import similar_to

            stop(f"cannot read {path}: No such file.{similar_to(Path(path))}", BAD_INPUT)


# ---------------------------------------------------------------- errors and notes


def stop(message: str, code: int = WRONG_USE) -> NoReturn:
    """End the program with a message on the error stream, after all notes."""
    _print_notes()
    for line in f"Error: {message}".split("\n- "):  # several errors have a line each
        say(line if line.startswith("Error: ") else f"- {line}", err=True)
    raise typer.Exit(code)


def refuse(option: str, message: str) -> NoReturn:
    """End the program because the value of an option cannot be used."""
    raise typer.BadParameter(verbatim(message), param_hint=option)


_notes: list[str] = []
# Folders of copies of standard input, which messages do not mention.
hidden_folders: list[str] = []


def note(message: str) -> None:
    """Print a note, once, on the error stream after the work, when no progress display can hide it."""
    if message not in _notes:
        _notes.append(message)


def _print_notes() -> None:
    while _notes:
        say(f"Note: {_notes.pop(0)}", err=True)


def in_options(error: Any) -> str:
    """A message of the library with options in place of the library's arguments."""

    def word(argument: Argument) -> str:
        option = _OPTIONS.get(argument.name, "--" + argument.name.replace("_", "-"))
        if isinstance(argument.value, bool):
            return option if argument.value else option.replace("--", "--no-", 1)
        return option if argument.value is None else f"{option} {shlex.quote(str(argument.value))}"

    message = error.worded(word) if isinstance(error, ArgumentError | ArgumentWarning) else str(error)
    for folder in hidden_folders:
        message = message.replace(folder, "")
    return message


@contextmanager
def guarded(
    bad_input: int = BAD_INPUT, interrupted: str = "interrupted; nothing was written."
) -> Iterator[None]:
    """Turn errors into a one-line message and an exit code, and warnings into notes."""
    _notes.clear()
    with warnings.catch_warnings():
        # Show only warnings that are meant for users.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: note(in_options(message))
        try:
            yield
        except (ValueError, OverflowError) as error:
            stop(in_options(error), bad_input)
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
            _print_notes()


@contextmanager
def failing(message: str) -> Iterator[None]:
    """Stop with a message, such as 'cannot write m.skmix', if a file cannot be used."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"{message}: {error.strerror or error}")
