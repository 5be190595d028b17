"""Importing the package stays light, and its doors say what is missing."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "dask",
    "distributed",
    "flowio",
    "jinja2",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "pyarrow",
    "rich",
    "safetensors",
    "torch",
    "typer",
    "zarr",
)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_skmix_loads_nothing_heavy() -> None:
    """scikit-learn may load what it likes, and newer ones load rich where it is installed."""
    loaded = run_python(
        "import sys, sklearn.mixture\n"
        "before = set(sys.modules)\n"
        "import skmix\n"
        f"print([name for name in {HEAVY!r} if name in set(sys.modules) - before])"
    )
    assert loaded == "[]"


def test_rooms_import_where_the_libraries_are_missing() -> None:
    """A finder that comes first makes the import fail, as if the library were not installed."""
    run_python(f"""
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
import skmix.datasets, skmix.plots, skmix.report, skmix.experiments.paper, skmix.theory
""")


def test_plotting_without_matplotlib_says_what_to_install() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
from skmix import SharedKernelMixture
from skmix.plots import plot_projections
model = SharedKernelMixture(1).fit([[0.0], [1.0], [2.0]])
try:
    plot_projections(model)
except ImportError as error:
    print(error)
"""
    assert run_python(code) == "Plots need matplotlib: pip install skmix[plot]"
