"""
Samples that share populations
==============================

Twelve blood samples, simulated, as a cytometer would measure them: the same kinds of cells in each, in other
proportions. One fit to all files finds the populations, and the weights of a sample are its composition.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skmix import compose
from skmix.features import Arcsinh
from skmix.plots import draw_kernels

# %%
# One file for each sample, with the intensities of four markers. Treatment doubles the share of cytotoxic
# (CD8) T cells. Monocytes are not Gaussian: their CD14 is skewed.
MARKERS = ["CD3", "CD4", "CD8", "CD14"]
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#332288"]
CELLS = {
    "helper": ([4.5, 4.5, 0.8, 0.6], 40.0),
    "cytotoxic": ([4.4, 0.7, 5.0, 0.6], 12.0),
    "monocyte": ([0.7, 2.4, 0.6, 3.2], 20.0),
    "other": ([0.8, 0.7, 0.9, 0.5], 30.0),
}
random = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
for number in range(12):
    usual = np.array([weight for _, weight in CELLS.values()])
    usual[1] *= 2.0 if number >= 6 else 1.0
    cell = random.choice(len(CELLS), 3000, p=random.dirichlet(usual))
    scaled = np.array([centre for centre, _ in CELLS.values()])[
        cell
    ] + 0.4 * random.normal(size=(3000, 4))
    scaled[:, 3] += np.where(cell == 2, 0.9 * random.gamma(2.0, size=3000), 0.0)
    name = f"{'treated' if number >= 6 else 'control'}-{number % 6}"
    pd.DataFrame(5.0 * np.sinh(scaled), columns=MARKERS).to_csv(
        Path(folder.name, f"{name}.csv"), index=False
    )

# %%
# Each file of a folder is a sample. There are more kernels than populations, because some need several;
# kernels that overlap are merged.
study = compose(folder.name, transform=Arcsinh(cofactor=5.0), n_kernels=7)
shares = study.proportions
print(shares.pivot(index="sample", columns="population", values="proportion").round(3))

# %%
# Which populations differ between treated and control samples? Proportions sum to one: where one rises,
# others must fall.
control, treated = study.samples[:6], study.samples[6:]
difference = study.compare(treated, control).table
print(difference.drop(columns="p_value").round(3).to_string(index=False))

# %%
# Populations are named by their markers, which a heat map shows beside the mean of all cells; a map has some
# cells, in the colours of all pictures. Then, left: cells drawn from the model, and kernels. Middle: the
# composition of each sample, with 95 % intervals. Right: the differences and their intervals.
study.plot_markers()
study.plot_map()
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.2), layout="constrained"
)
# Drawn cells are in the units of the files, kernels on the scale of the model.
cells = Arcsinh(cofactor=5.0).transform(study.model.sample(2000)[0])
left.plot(cells[:, 2], cells[:, 1], ".", color="0.75", ms=3)
draw_kernels(
    study.model,
    axes=left,
    features=("CD8", "CD4"),
    colours=study.populations.of_kernels,
    n_std=2.0,
)
left.set(
    xlabel="CD8",
    ylabel="CD4",
    title=f"{study.model.n_kernels_} kernels, {len(difference)} populations",
)
for number, (name, own) in enumerate(shares.groupby("population", sort=False)):
    errors = [own["proportion"] - own["lower"], own["upper"] - own["proportion"]]
    place = np.arange(12) + 0.12 * number
    left.plot([], [], color=COLOURS[number], label=name)
    middle.errorbar(
        own["proportion"], place, xerr=errors, fmt="o", ms=4, color=COLOURS[number]
    )
left.legend(title="population")
middle.set(
    yticks=np.arange(12),
    yticklabels=study.samples,
    xlabel="proportion",
    title="composition",
)
errors = [
    difference["difference"] - difference["lower"],
    difference["upper"] - difference["difference"],
]
right.errorbar(
    difference["difference"], difference["population"], xerr=errors, fmt="ko"
)
right.axvline(0.0, color="0.7", zorder=0)
right.set(xlabel="treated − control", title="difference")
folder.cleanup()
plt.show()
