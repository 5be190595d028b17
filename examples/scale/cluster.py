"""
What a pass costs on a cluster
==============================

On a Dask cluster every worker sums over the blocks it holds, and rows stay where they are.
``benchmarks/cluster.py`` has measured the traffic; this example draws its numbers, and extrapolates to a
terabyte. Run this inside a checkout, which has the numbers.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# %%
# The measurements: bytes of a pass for growing data, and passes over many rows and over next to none.
here = Path.cwd()
folders = [path / "benchmarks" for path in (here, *here.parents)]
folder = next(filter(Path.is_dir, folders), folders[0])
measured = pd.read_csv(folder / "results" / "cluster.csv", na_values="–")
row_bytes = 8 * 16  # of 16 features
one = measured[(measured["workers"] == 1) & measured["pass, s"].notna()]
large, tiny = one.loc[one["rows"].idxmax()], one.loc[one["rows"].idxmin()]
traffic = measured[(measured["workers"] == 2) & (measured["rows"] > 64 * 16)]
traffic = traffic.dropna(subset="over the network, kB").sort_values("rows")
same_number = traffic[traffic["blocks"] == 16]
same_size = traffic[traffic["rows"] / traffic["blocks"] == 25_000]

# %%
# A terabyte in blocks of 256 MB: the seconds to compute are divided by the workers, those to schedule
# blocks are not.
compute = large["pass, s"] / large["rows"] * 1e12 / row_bytes
scheduling = tiny["pass, s"] / tiny["blocks"] * 1e12 / 256e6
workers = np.geomspace(10, 1000, 60)
print(
    f"a pass over a terabyte: {compute / 100 + scheduling:.0f} s on 100 workers, "
    "extrapolated"
)

# %%
# Left: traffic hardly depends on the data. Right: from some number on, more workers hardly help.
orange, blue = "#d55e00", "#0072b2"
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for rows, colour, marker, label in (
    (same_number, blue, "o", "always 16 blocks"),
    (same_size, orange, "s", "blocks of one size"),
):
    megabytes = rows["rows"] * row_bytes / 1e6
    kilobytes = rows["over the network, kB"]
    left.plot(
        megabytes, kilobytes, f"{marker}-", color=colour, lw=2.2, ms=7, label=label
    )
left.set(
    xlabel="data, MB",
    ylabel="over the network in a pass, kB",
    title="Traffic on two workers",
    ylim=(0, 400),
)
left.legend(frameon=False, loc="lower right")
right.loglog(workers, compute / workers, color=blue, lw=2.2, ls="--", label="computing")
right.axhline(
    scheduling, color=orange, lw=2.2, ls=":", label="scheduling blocks of 256 MB"
)
right.loglog(
    workers, compute / workers + scheduling, color="black", lw=2.6, label="a pass"
)
right.set(
    xlabel="workers of one core", ylabel="seconds", title="One terabyte, extrapolated"
)
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
