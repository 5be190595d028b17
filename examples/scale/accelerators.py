"""
What a pass costs on a GPU
==========================

Most of a pass of EM is two matrix products, which GPUs compute fast. ``benchmarks/device.py`` has measured
passes and whole fits on a GPU and on the processor; this example draws them. To use a GPU, write
``SharedKernelClassifier(device="cuda")``. Run this inside a checkout, which has the numbers.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# %%
# The measurements, made on an H200 and on 16 cores.
here = Path.cwd()
folders = [path / "benchmarks" for path in (here, *here.parents)]
folder = next(filter(Path.is_dir, folders), folders[0]) / "results"
passes, fits = (
    pd.read_csv(folder / f"{name}.csv") for name in ("device_precision", "device")
)

# %%
# Above: one pass, on the processor and on the GPU by precision. The M-step is always in double precision.
# Below: passes of whole fits, of clusters that overlap and that lie apart.
figure, (above, below) = plt.subplots(2, 1, figsize=(8.0, 8.4), layout="constrained")
series = {
    "cores, float64, ms": ("16 cores, float64", "0.55"),
    "float64, ms": ("GPU, float64", "#0072b2"),
    "float32, ms": ("GPU, float32", "#e69f00"),
    "tf32, ms": ("GPU, tf32", "#009e73"),
}
places = np.arange(len(passes))
for i, (column, (name, colour)) in enumerate(series.items()):
    bars = above.bar(
        places + 0.22 * (i - 1.5), passes[column], width=0.21, color=colour, label=name
    )
    above.bar_label(bars, fmt="{:.5g}", fontsize=8)
sizes = [
    f"{rows:,} × {features}\n{kernels} kernels".replace(",", " ")
    for rows, features, kernels in passes.iloc[:, :3].itertuples(index=False)
]
above.set_xticks(places, sizes, fontsize=9)
above.set(
    yscale="log",
    ylim=(0.6, 5 * passes["cores, float64, ms"].max()),
    ylabel="milliseconds",
    title="One pass on 16 cores and on an H200",
)
above.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)

cases = fits.columns[:5].tolist()
table = fits.pivot_table("pass, ms", cases, "clusters", sort=False)
places = np.arange(len(table))
for shift, kind, colour in ((-0.2, "overlapping", "#0072b2"), (0.2, "apart", "0.7")):
    below.barh(places + shift, table[kind], height=0.36, color=colour, label=kind)
names = [
    f"{structure}, {rows:,} × {features}, {kernels}, {precision}"
    for structure, rows, features, kernels, precision in table.index
]
below.set_yticks(places, names, fontsize=8)
below.invert_yaxis()
below.set(
    xscale="log", xlabel="milliseconds", title="A pass of whole fits, by clusters"
)
below.legend(frameon=False)
for axes in (above, below):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
