"""Larger than memory: peak memory of a fit, from a file and in memory, while the data grow."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skmix.plots import save_figure

N_FEATURES = 16
# The peak is that of a process of its own, which is told to read the file or to load it first.
CODE = """
import sys, warnings
from pathlib import Path
import numpy as np
from skmix import SharedKernelMixture

warnings.simplefilter("ignore")
path, how = sys.argv[1:]
model = SharedKernelMixture(4, max_iter=1, random_state=0)
model.fit(path if how == "file" else np.load(path))
lines = Path("/proc/self/status").read_text().splitlines()
print(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1000)
"""


def peak(path: Path, how: str) -> float:
    """Return the peak memory, in MB, of a fit in a process of its own."""
    command = [sys.executable, "-c", CODE, str(path), how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    sizes = np.array([50, 100, 200, 400, 800, 1200])
    peaks: dict[str, list[float]] = {"memory": [], "file": []}
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        for size in sizes:
            np.save(path, random.normal(size=(int(size * 1e6) // (8 * N_FEATURES), N_FEATURES)))
            for how, values in peaks.items():
                values.append(peak(path, how))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for how, colour, label in (
        ("memory", "#d55e00", "fit(numpy.load(path))"),
        ("file", "#0072b2", "fit(path)"),
    ):
        axes.plot(sizes, peaks[how], "o-", color=colour, label=label)
    axes.plot(sizes, sizes, color="0.3", ls="--", lw=1, label="the file itself")
    axes.set_xlabel("size of the file, MB")
    axes.set_ylabel("peak memory of the process, MB")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "larger-than-memory.png", dpi=150)


if __name__ == "__main__":
    main()
