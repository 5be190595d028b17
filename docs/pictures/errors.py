"""Picture of the page on values with errors: ages of zircons.

Run it with ``python docs/pictures/errors.py FOLDER``; it needs ``skmix[plot]``. The folder has the files
namib_DZ.csv and namib_DZerr.csv of the package provenance for R, which are not part of this repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skmix import SharedKernelMixture

IMAGES = Path(__file__).parents[1] / "images"
PLAIN, DECONVOLVED = "#d55e00", "#0072b2"


def draw(folder: Path) -> None:
    """Draw the density of ages as they were measured, and of ages with further errors of a tenth."""
    import pandas as pd

    ages, errors = (
        pd.read_csv(folder / f"namib_{name}.csv").stack().dropna()
        for name in ("DZ", "DZerr")
    )
    x = np.log(ages.to_numpy())[:, None]
    e = (errors.reindex(ages.index) / ages).to_numpy()[:, None]
    grid = np.linspace(np.log(200.0), np.log(3500.0), 800)[:, None]
    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    random = np.random.default_rng(0)
    for axes, further, n_kernels in zip(panels, (0.0, 0.1), (8, 4), strict=True):
        seen = x + further * random.normal(size=x.shape)
        total = np.hypot(e, further)
        bins = np.linspace(grid[0, 0], grid[-1, 0], 60)
        axes.hist(x[:, 0], bins, density=True, color="0.88", label="as measured")
        mixture = SharedKernelMixture(n_kernels, n_init=5, tol=1e-6, max_iter=5000)
        mixture.set_params(random_state=0)
        plain = np.exp(mixture.fit(seen).score_samples(grid))
        axes.plot(grid[:, 0], plain, color=PLAIN, label="fit without errors")
        clean = np.exp(mixture.fit(seen, errors=total).score_samples(grid))
        axes.plot(grid[:, 0], clean, color=DECONVOLVED, label="fit with errors")
        ticks = np.array([250, 500, 1000, 2000, 3000])
        axes.set_xticks(np.log(ticks), [str(tick) for tick in ticks])
        added = "" if not further else ", and further errors of 10 % added"
        axes.set_title(f"errors of 1.2 %{added}", fontsize=10)
        axes.set(xlabel="age of a grain, million years")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="density of the logarithm")
    panels[1].legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "zircons.png", dpi=140, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
