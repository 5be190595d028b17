"""What a pass costs on a cluster, from the numbers that ``benchmarks/cluster.py`` measured.

Run it with ``python examples/cluster.py``; it needs ``skmix[plot]``.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skmix.plots import save_figure

ROOT = Path(__file__).parents[1]
measured = json.loads((ROOT / "benchmarks" / "results" / "cluster.json").read_text())
large = {row["workers"]: row for row in measured["passes"] if row["rows"] > 10_000}
tiny = {row["workers"]: row for row in measured["passes"] if row["rows"] < 10_000}

# A terabyte of float64 in blocks of 256 MB, of which each worker holds its share.
n_rows = 1e12 / (8 * measured["n_features"])
n_blocks = 1e12 / 256e6
compute = large[1]["seconds"] / large[1]["rows"] * n_rows
scheduling = tiny[1]["seconds"] / tiny[1]["blocks"] * n_blocks
workers = np.geomspace(10, 1000, 60)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for n_rows_shown, label in ((16, "as many blocks"), (None, "blocks of one size")):
    rows = [row for row in measured["bytes"] if n_rows_shown is None or row["blocks"] == n_rows_shown]
    rows = rows[:3] if n_rows_shown else measured["bytes"][3:]
    colour = "#0072B2" if n_rows_shown else "#D55E00"
    left.plot(
        [row["rows"] * 8 * measured["n_features"] / 1e6 for row in rows],
        [row["bytes_per_pass"] / 1e3 for row in rows],
        "o-",
        color=colour,
        label=label,
    )
left.set(xlabel="data (MB)", ylabel="over the network in a pass (kB)", title="Traffic on two workers")
left.set_ylim(0, None)
left.legend(frameon=False)
right.loglog(workers, compute / workers, color="#0072B2", label="computing")
right.axhline(scheduling, color="#D55E00", label="scheduling blocks of 256 MB")
right.loglog(workers, compute / workers + scheduling, color="black", label="a pass")
right.axvline(100, color="0.7", lw=1)
right.set(xlabel="workers of one core", ylabel="seconds", title="One terabyte, extrapolated")
right.legend(frameon=False)
save_figure(figure, ROOT / "docs" / "images" / "cluster.png", dpi=110)
