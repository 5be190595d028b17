"""Draw the pictures of the guide: run examples and keep the last figure of each.

``python docs/images/draw.py`` draws those that are here already, ``python docs/images/draw.py tuning`` the
ones named.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
EXAMPLES = {path.stem: path for path in sorted(HERE.parents[1].glob("examples/*/*.py"))}


def draw(name: str, folder: Path = HERE) -> None:
    """Run an example and save its last figure."""
    plt.close("all")
    plt.show = lambda: None  # the figure goes into a file
    with contextlib.chdir(EXAMPLES[name].parent):
        runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
    # Without the version of matplotlib, so that the same figure gives the same bytes.
    picture = folder / f"{name.replace('_', '-')}.png"
    plt.gcf().savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    mpl.use("Agg")
    here = {path.stem.replace("-", "_") for path in HERE.glob("*.png")}
    for name in sys.argv[1:] or sorted(here & EXAMPLES.keys()):
        draw(name)
        print(name)
