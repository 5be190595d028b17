"""`python -m skmix.paper` is `skmix reproduce`."""

import sys

from typer.main import get_group

from skmix.cli import app

if __name__ == "__main__":
    program = get_group(app)
    # By this name, so that help shows the command as it was given.
    program.add_command(program.commands["reproduce"], "skmix.paper")
    program.main(["skmix.paper", *sys.argv[1:]], prog_name="python -m")
