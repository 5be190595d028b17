"""What a pass costs on a GPU, from the numbers that ``benchmarks/device.py`` measured.

Run it with ``python examples/accelerators.py``; it needs ``skmix[plot]``.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skmix.plots import save_figure

ROOT = Path(__file__).parents[1]
measured = json.loads((ROOT / "benchmarks" / "results" / "device.json").read_text())
rows = [row for row in measured["passes"] if row["clusters"] == "of unit variance"]
sizes = list(dict.fromkeys((row["rows"], row["features"], row["kernels"]) for row in rows))
colours = {"float64": "#0072B2", "float32": "#E69F00", "tf32": "#009E73"}

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=(3, 2))
places = np.arange(len(sizes))
for i, (precision, colour) in enumerate(colours.items()):
    times = [row["median_ms"] for row in rows if row["precision"] == precision]
    bars = left.bar(places + 0.27 * (i - 1), times, width=0.25, color=colour, label=precision)
    left.bar_label(bars, [f"{time:.1f}" for time in times], fontsize=8, padding=2)
left.set_yscale("log")
left.set_ylim(0.7, 100)
left.set_xticks(places, [f"{n:,} × {m}\n{k} kernels".replace(",", " ") for n, m, k in sizes])
left.set(ylabel="milliseconds", title=f"One pass on an {measured['device'].removeprefix('NVIDIA ')}")
left.legend(frameon=False)
variants = measured["study"]["variants"]
places = np.arange(len(variants))
right.barh(places - 0.2, [row["device_s"] for row in variants], height=0.36, color="#0072B2", label="GPU")
right.barh(places + 0.2, [row["one_core_s"] for row in variants], height=0.36, color="0.7", label="one core")
right.set_yticks(places, [row["variant"] for row in variants])
right.invert_yaxis()
right.set(xlabel="seconds", title=f"{measured['study']['runs']} runs of the paper's study at once")
right.legend(frameon=False)
save_figure(figure, ROOT / "docs" / "images" / "accelerators.png", dpi=110)
