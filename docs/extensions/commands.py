"""The help texts of all commands, in place of a comment on the page of the command line."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import typer
from typer.cli import get_docs_for_click

from skmix.cli import app as commands

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PLACE = "<!-- commands -->"
LISTS = re.compile(r"^\*\*Commands\*\*:\n\n(?:\* .*\n)+\n", re.MULTILINE)
# Lines that stay as they are begin with spaces: examples and exit codes.
LITERAL = re.compile(r"^(?:\x08\n)?((?: {2,}\S.*\n)+)", re.MULTILINE)


def add_commands(app: Sphinx, name: str, source: list[str]) -> None:
    """Put a section for each command into the page."""
    if PLACE in source[0]:
        command = typer.main.get_command(commands)
        with typer.Context(command, info_name="skmix") as context:
            text = get_docs_for_click(obj=command, ctx=context, name="skmix")
        text = LISTS.sub("", text.partition("\n")[2])  # the page has a title
        text = LITERAL.sub(
            lambda found: f"```text\n{textwrap.dedent(found[1])}```\n", text
        )
        text = text.replace("```console\n$ ", "```text\n")
        source[0] = source[0].replace(PLACE, text.replace("[required]", "(required)"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
