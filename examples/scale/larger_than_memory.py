"""
Out-of-core learning
====================

Give ``fit`` a path instead of an array, and the file is read block by block, pass after pass. The result is
that of rows in memory: the same sums, added up in another order.
"""

import tempfile
import tracemalloc
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, open_rows


# %%
# One pass is enough to see the most that a fit allocates at a time.
def peak_of(source, read) -> int:
    """Return the megabytes that reading and fitting took."""
    tracemalloc.start()
    model = SharedKernelMixture(
        2, covariance_type="diag", init="random_from_data", max_iter=1, random_state=0
    )
    model.fit(read(source))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(peak / 1e6)


# %%
# Files of growing size, in small blocks; without ``chunk_rows`` blocks have about 16 MB.
warnings.simplefilter("ignore", ConvergenceWarning)
random = np.random.default_rng(0)
sizes = (12, 18, 24)
in_memory, from_file = [], []
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "rows.npy"
    for size in sizes:
        np.save(path, random.normal(size=(size * 1_000_000 // (8 * 16), 16)))
        in_memory.append(peak_of(path, np.load))
        from_file.append(peak_of(path, lambda path: open_rows(path, chunk_rows=8192)))
print(
    f"{sizes[-1]} MB of rows: {in_memory[-1]} MB in memory, "
    f"{from_file[-1]} MB from the file"
)

# %%
# From a file, the memory needed is that of its blocks.
orange, blue = "#d55e00", "#0072b2"
figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
axes.plot(sizes, in_memory, "s-", color=orange, lw=2.2, ms=7)
axes.plot(sizes, from_file, "o-", color=blue, lw=2.2, ms=7)
axes.plot((0, sizes[-1]), (0, sizes[-1]), color="0.5", ls="--", lw=1.2)
aside = {"textcoords": "offset points", "ha": "right"}
axes.annotate(
    "numpy.load(path)", (sizes[-2], in_memory[-2]), (-10, 6), color=orange, **aside
)
axes.annotate(
    "open_rows(path)", (sizes[-1], from_file[-1]), (0, 8), color=blue, **aside
)
axes.annotate("the file itself", (sizes[-1], sizes[-1]), (0, -42), color="0.4", **aside)
axes.set(
    xlabel="size of the file, MB",
    ylabel="peak of allocated memory, MB",
    xlim=(0, None),
    ylim=(0, None),
)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
