"""``python -m skmix.cli`` is ``skmix``."""

from skmix.cli import app

app()
