"""
What a pass costs on a GPU
==========================

A pass of EM is two matrix products, which is what a GPU is best at. ``benchmarks/device.py`` has measured
one; this draws its numbers. To use a GPU, write ``SharedKernelClassifier(device="cuda")``.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

# %%
# The measurements, with the machine they were made on. Run this anywhere inside the repository.
here = Path.cwd()
folder = next(path / "benchmarks" for path in (here, *here.parents) if (path / "benchmarks").is_dir())
measured = json.loads((folder / "results" / "device.json").read_text())
rows = [row for row in measured["passes"] if row["clusters"] == "of unit variance"]
sizes = list(dict.fromkeys((row["rows"], row["features"], row["kernels"]) for row in rows))

# %%
# Left: one pass, by size and precision. The M-step is always in double precision. Right: many small fits at
# once, the case that suits a GPU least.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[3, 2])
places = np.arange(len(sizes))
for i, (precision, colour) in enumerate(
    {"float64": "#0072b2", "float32": "#e69f00", "tf32": "#009e73"}.items()
):
    times = [row["median_ms"] for row in rows if row["precision"] == precision]
    bars = left.bar(places + 0.27 * (i - 1), times, width=0.25, color=colour, label=precision)
    left.bar_label(bars, [f"{time:.1f}" for time in times], fontsize=9, padding=2)
left.set_yscale("log")
left.set_xticks(places, [f"{n:,} × {m}\n{k} kernels".replace(",", " ") for n, m, k in sizes])
left.set(
    ylim=(0.7, 100),
    ylabel="milliseconds",
    title=f"One pass on an {measured['device'].removeprefix('NVIDIA ')}",
)
left.legend(frameon=False, loc="upper left")

variants = measured["study"]["variants"]
places = np.arange(len(variants))
right.barh(places - 0.2, [row["device_s"] for row in variants], height=0.36, color="#0072b2", label="GPU")
right.barh(places + 0.2, [row["one_core_s"] for row in variants], height=0.36, color="0.7", label="one core")
right.set_yticks(places, [row["variant"] for row in variants])
right.invert_yaxis()
right.set(xlabel="seconds", title=f"{measured['study']['runs']} runs of the paper's study at once")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
