"""The application, its exit codes, and the wording of the library's errors and warnings.

Modules of commands load the library only when a command runs, so that help and mistakes take no time.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator
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
# Libraries of the extra `all`, and what needs them.
_LIBRARIES = {
    "flowio": "FCS files need",
    "jinja2": "a page needs",
    "matplotlib": "figures need",
    "onnx": "ONNX needs",
    "pandas": "proportions need",
    "pyarrow": "tables need",
}
_READERS = {"fcs": "flowio", "parquet": "pyarrow", "text": "pyarrow"}


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
                given, *choices = re.findall("'([^']*)'", error.message)
                error.message += nearest(given, choices)
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
        bool,
        typer.Option("--version", metavar="", help="Show the version and exit.", callback=_show_version),
    ] = False,
) -> None:
    """Shared-kernel mixture models: from a table to a model, and from a model to predictions."""


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: examples, one per line."""
    return "\n".join(["Examples:", "", "\b", *(f"  {line}" for line in lines)])


def look_for(
    *libraries: str,
    model: str | None = None,
    data: Iterable[str | Path | None] = (),
    writing: Iterable[str | None] = (),
    html: str | None = None,
) -> None:
    """Stop unless the files that a command reads, and all libraries that it will need, are there.

    Files are a model, the rows of `data`, and what is to be written. This takes no time: commands call it
    before they load the library, which takes seconds, and work.
    """
    given = [str(path) for path in (model, *data) if path is not None and path != STANDARD]
    for path in given:
        if not os.path.lexists(path):
            from skmix.data.read import similar_to

            stop(f"cannot read {path}: No such file.{similar_to(Path(path))}", BAD_INPUT)
    needed = [*libraries, *(["jinja2"] if html is not None else [])]
    needed += ["pyarrow" for path in writing if path is not None and path.lower().endswith(".parquet")]
    for each in map(Path, {*given} - {model}):
        from skmix.data.formats import format_of

        if each.is_file():
            with guarded():
                needed.append(_READERS.get(format_of(each), ""))
    missing = [name for name in _LIBRARIES if name in needed and importlib.util.find_spec(name) is None]
    if missing:
        from skmix._extras import how_to_install

        words = ", ".join(f"{_LIBRARIES[name]} {name}" for name in missing)
        stop(f"{words}: {how_to_install()}", NOT_INSTALLED)


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


def note(message: str) -> None:
    """Print a note, once, on the error stream after the work, when no progress display can hide it."""
    if message not in _notes:
        _notes.append(message)


def _print_notes() -> None:
    while _notes:
        say(f"Note: {_notes.pop(0)}", err=True)


def in_options(error: Any) -> str:
    """Return a message of the library with options in place of the library's arguments."""

    def word(argument: Argument) -> str:
        option = _OPTIONS.get(argument.name, "--" + argument.name.replace("_", "-"))
        if isinstance(argument.value, bool):
            return option if argument.value else option.replace("--", "--no-", 1)
        return option if argument.value is None else f"{option} {shlex.quote(str(argument.value))}"

    return error.worded(word) if isinstance(error, ArgumentError | ArgumentWarning) else str(error)


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
