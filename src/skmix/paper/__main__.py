"""`python -m skmix.paper` is `skmix reproduce`."""

import sys

from skmix.cli import app

if __name__ == "__main__":
    app(["reproduce", *sys.argv[1:]], prog_name="skmix")
