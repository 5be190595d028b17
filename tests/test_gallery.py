"""Every example runs, as the gallery runs it, and ends in a picture with something on it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.py"))
CELL = re.compile(r"^# %%$", re.MULTILINE)
# In the wells of the example data no sample has both red populations.
pytestmark = pytest.mark.filterwarnings("ignore:Some populations may be one")
OPTIONAL = {"onnx", "onnxruntime", "pandas"}
# What makes an example slow, and what it is here: fewer rows, candidates or folds, in the same calls.
SMALLER = {
    "a_table": {"ClassifierCV(random": "ClassifierCV(n_kernels=[4], cv=2, random"},
    "automatic": {
        "(60, 200)": "(20, 20)",
        "ClassifierCV(random": "ClassifierCV(n_kernels=[10], cv=2, random",
    },
    "calibration": {"9000": "2600"},
    "choosing": {"n_init=8": "n_init=1", "range(4, 10)": "(4, 6)"},
    "digits_and_features": {"(60, random": "(20, random"},
    "larger_than_memory": {"(12, 18, 24)": "(2, 3, 4)"},
    "high_dimension": {"train_size=1000": "train_size=200"},
    "missing_values": {", 8))": ", 2))", "range(8)": "range(2)"},
    "mnist": {"test_size=0.5": "train_size=300, test_size=100", "max_iter=500, tol=1e-3": "tol=0.1"},
    "pipelines": {"[5, 10, 20]": "[5, 10]", "[10, 20, 30]": "[10, 12]", "cv=3": "cv=2"},
    "populations": {
        "1500": "300",
        "900": "180",
        "600": "120",
        "n_init=3": "n_init=1",
        'criterion="bic"': 'criterion="bic", n_kernels=[4, 8]',
    },
    "projections": {"(100, random": "(30, random"},
    "published_failures": {"range(18)": "range(6)"},
    "samples": {"3000": "500"},
    "shared_rows": {"rare, repeats = 2, 12": "rare, repeats = 2, 1", "16, 32, 64, 128, ": ""},
    "starts": {"range(15)": "range(3)", "size=15": "size=3"},
    "streams": {"weights, 2000,": "weights, 400,", "6000": "1200"},
    "tuning": {"(4000,": "(400,", ", 150)": ", 30)"},
    "variational": {"(1, 2, 4, 6)": "(1, 2)"},
}


def cells_of(example: Path) -> list[str]:
    """Return the code of each cell, smaller, with as many empty lines above as make line numbers right."""
    source = example.read_text(encoding="utf-8")
    for old, new in SMALLER.get(example.stem, {}).items():
        assert old in source, f"{example.name} has no {old!r}"
        source = source.replace(old, new)
    cuts = [0, *(found.start() for found in CELL.finditer(source)), len(source)]
    return ["\n" * source[:a].count("\n") + source[a:b] for a, b in itertools.pairwise(cuts)]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_ends_in_a_picture(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    # As in the gallery: in the example's folder, and without __file__.
    monkeypatch.chdir(example.parent)
    namespace = {"__name__": "__main__"}
    for cell in cells_of(example):
        shown.clear()
        try:
            exec(compile(cell, str(example), "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{error.name} is not installed")
        # The gallery keeps and closes figures after each cell: one begun earlier would be shown unfinished.
        assert shown == plt.get_fignums(), "plt.show() did not come last"
        for number in shown:
            figure = plt.figure(number)
            # Frames and ticks do not count.
            kinds = ("lines", "patches", "collections", "images", "texts")
            empty = [axes for axes in figure.axes if not any(len(getattr(axes, kind)) for kind in kinds)]
            assert figure.axes
            assert not empty, f"nothing was drawn into {empty}"
        plt.close("all")
    assert shown, "the last cell showed nothing"
