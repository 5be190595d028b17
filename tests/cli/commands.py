"""Commands run in this process, as tests of several commands need them."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from skmix.cli import app


def run(*arguments: object, code: int = 0) -> Result:
    """Run a command that ends with an exit code, and without a traceback."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def said(result: Result) -> str:
    """Return what was said, whatever the width of the terminal."""
    return " ".join(result.stderr.replace("│", " ").split())
