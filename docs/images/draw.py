"""Draw the pictures of the guide: run examples and keep the last figure of each.

``python docs/images/draw.py`` draws those that are here already, ``python docs/images/draw.py tuning`` the
ones named. ``--into FOLDER`` puts them elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import runpy
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
EXAMPLES = {
    path.stem: path for path in sorted((HERE.parents[1] / "examples").glob("*/*.py"))
}


def picture_of(name: str, folder: Path = HERE) -> Path:
    """Return where the picture of an example lies."""
    return folder / f"{name.replace('_', '-')}.png"


def draw(name: str, folder: Path) -> None:
    """Run an example and save its last figure."""
    plt.close("all")
    # Nothing to show here: the figure goes into a file.
    plt.show = lambda: None
    with contextlib.chdir(EXAMPLES[name].parent):
        runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
    # Without the version of matplotlib, so that the same figure gives the same bytes.
    plt.gcf().savefig(picture_of(name, folder), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of examples, without .py"
    )
    parser.add_argument("--into", type=Path, default=HERE, metavar="FOLDER")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - EXAMPLES.keys():
        parser.error(
            f"no example is called {', '.join(sorted(unknown))}; there are {', '.join(EXAMPLES)}"
        )
    for name in arguments.names or [
        name for name in EXAMPLES if picture_of(name).is_file()
    ]:
        draw(name, arguments.into)
        print(picture_of(name, arguments.into).name)
