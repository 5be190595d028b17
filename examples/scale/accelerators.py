"""
What a pass costs on a GPU
==========================

A pass of EM is two matrix products, which is what a GPU is best at. ``benchmarks/device.py`` has measured
one, and ``benchmarks/pictures.py`` the same on the processor; this draws both. To use a GPU, write
``SharedKernelClassifier(device="cuda")``. Run this inside a checkout, which has the numbers.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

# %%
# The measurements, with the machine they were made on.
here = Path.cwd()
folders = [path / "benchmarks" for path in (here, *here.parents)]
folder = next(filter(Path.is_dir, folders), folders[0])
measured = json.loads((folder / "results" / "device.json").read_text())
rows = [row for row in measured["passes"] if row["clusters"] == "of unit variance"]
sizes = list(
    dict.fromkeys((row["rows"], row["features"], row["kernels"]) for row in rows)
)
on_cores = json.loads((folder / "results" / "pictures.json").read_text())
cores = {
    (row["rows"], row["features"], row["kernels"]): row["ms"]
    for row in on_cores["passes"]
}

# %%
# Above: one pass, on the processor and on the GPU by precision. The M-step is always in double precision.
# Below: passes of whole fits, of clusters that overlap and that lie apart.
figure, (above, below) = plt.subplots(2, 1, figsize=(8.0, 8.4), layout="constrained")
places = np.arange(len(sizes))
series = {
    f"{on_cores['cores']} cores, float64": ([cores[size] for size in sizes], "0.55")
}
for precision, colour in {
    "float64": "#0072b2",
    "float32": "#e69f00",
    "tf32": "#009e73",
}.items():
    times = [row["median_ms"] for row in rows if row["precision"] == precision]
    series[f"GPU, {precision}"] = times, colour
for i, (name, (times, colour)) in enumerate(series.items()):
    bars = above.bar(
        places + 0.22 * (i - 1.5), times, width=0.21, color=colour, label=name
    )
    above.bar_label(
        bars,
        [f"{time:.1f}" if time < 100 else f"{time:.0f}" for time in times],
        fontsize=8,
    )
above.set_yscale("log")
above.set_xticks(
    places,
    [f"{n:,} × {m}\n{k} kernels".replace(",", " ") for n, m, k in sizes],
    fontsize=9,
)
gpu = measured["device"].removeprefix("NVIDIA ")
above.set(
    ylim=(0.6, 5 * max(cores.values())),
    ylabel="milliseconds",
    title=f"One pass on {on_cores['cores']} cores and on an {gpu}",
)
above.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)

fits = {}
for row in measured["fits"]:
    rows_of = f"{row['rows']:,}".replace(",", " ")
    case = f"{row['covariances']}, {rows_of} × {row['features']}, {row['kernels']}"
    fits.setdefault(f"{case}, {row['precision']}", {})[row["clusters"]] = row["pass_ms"]
places = np.arange(len(fits))
for shift, kind, colour in ((-0.2, "overlapping", "#0072b2"), (0.2, "apart", "0.7")):
    below.barh(
        places + shift,
        [own[kind] for own in fits.values()],
        height=0.36,
        color=colour,
        label=kind,
    )
below.set_yticks(places, fits, fontsize=8)
below.invert_yaxis()
below.set_xscale("log")
below.set(xlabel="milliseconds", title="A pass of whole fits, by clusters")
below.legend(frameon=False)
for axes in (above, below):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
