"""
From FCS files to a page with conditions
========================================

A tutorial with real cells: *E. coli* that carry a gene for a red (RFP), yellow (YFP) or cyan (CFP)
fluorescent protein, in seven wells of a plate, and mixed in four wells of another. What is in them is
known, so that answers can be checked. The files, from FlowCytometryTools (MIT licence), come with the
package (``skmix examples``), those of the other plate with a checkout (``docs/data``).
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skmix import compose, load, open_rows
from skmix.datasets import copy_examples

# %%
# **What is read.** A folder of FCS files: each file is a sample, named after it. Of the seven channels five
# are used: the time (HDR-T) and the height of a pulse whose area is there (FSC-H) are no markers.
# Fluorescence is on the scale arcsinh(x / 150), scatter stays linear, and a spill-over matrix, which these
# files lack, would have been applied.
folder = tempfile.TemporaryDirectory()
plate = copy_examples(folder.name)
wells = plate / "wells"
rows = open_rows(wells)
print(rows.feature_names, rows.preparation["transform"])

# %%
# **The study.** Bacteria are tiny: all of them lie at the bottom of the scatter channels, which would only
# blur the populations, so we name the markers. V2 is the violet laser's detector, for cyan; Y2 the yellow
# laser's, for red; B1 the blue laser's, for yellow. The metadata is a table with a line for each sample,
# and ``red`` its column to compare: three wells got RFP, four did not.
markers = ["V2-A", "Y2-A", "B1-A"]
study = compose(wells, markers=markers, metadata=plate / "wells.csv", condition="red")
print(
    study,
    *study.cuts,
    *(f"{name}: {text}" for name, text in study.provenance()),
    sep="\n",
)

# %%
# **Names.** Nobody said how many populations there are. Some have only a few cells, and the lines above say
# what a coarser cut of the tree joins: five populations are enough here, and need no new fit. They are named
# by the markers that tell them apart. The heat map shows what a name leaves out: how far the mean of each
# population is from that of all cells.
study = study.recut(5)
names = study.populations.display_names
print(names)
study.plot_markers()
plt.show()

# %%
# Two are bright in the red detector, one in the yellow one, one in the cyan one, and the rest is dark: we
# **rename** them, by number or name. Then **the proportions**, with 95 % intervals: wells with RFP have red
# cells, wells with YFP yellow ones, and wells with CFP cyan ones. Many cells are dark, also where a gene
# was given. CFP-A04 has a few red ones, as if carried over from another well. Well A06 has the second,
# brighter kind of red cells in place of the first: a warning says that the two may be one.
# ``study.join("red", "bright red")`` would make them one.
print(*study.describe()["warnings"])
study.rename({0: "dark", 1: "yellow", 2: "red", 3: "cyan", 4: "bright red"})
print(study.proportions.head(3).round(4).to_string(index=False))
study.plot()
plt.show()

# %%
# **Cyan is dim.** The map of cells, by principal components, has no cloud of its own for it: cyan cells are
# next to the dark ones, and most of the cells in the wells with CFP count as dark. A gate by a control would
# err on many cells too.
study.plot_map()
plt.show()

# %%
# **Conditions.** Each point is a well. The box plots show at a glance that red cells are where RFP is, and
# still the interval of the difference is wide and its q-value no discovery. Samples are the units, not
# cells: the interval is about *further wells*, and one of the three with RFP (A06) has hardly any of the red
# cells of the other two. Three samples a side are few, however many cells they have.
print(study.compare().table.round(3).to_string(index=False))
study.compare().plot()
plt.show()

# %%
# **Unusual samples.** Is a well unlike the rest? None is called so: with three kinds of wells, the usual is
# wide. The least usual population of each well is named anyway.
unusual = study.unusual()
print(unusual[["sample", "population", "p_adjusted", "unusual"]].round(3).to_string())

# %%
# **New samples.** The four mixed wells were measured six weeks earlier. Only their proportions are fitted;
# populations, names and colours stay. Along the plate, from H01 to H12, yellow gives way to red. All four
# are called unusual, and rightly: their cells do not lie where those of the study do. Before such
# proportions are trusted, look at the cells, as below.
study.save(plate / "plate.skmix", overwrite=True)
others = Path("../../docs/data/plate/mixed")
mixed = load(plate / "plate.skmix").apply_to(others)
table = mixed.proportions.pivot(index="sample", columns="population")["proportion"]
print(table.round(3), mixed.unusual()[["sample", "unusual"]], sep="\n")

# %%
# **Labels and the page.** ``label_cells`` writes the population of each cell, into a table or, with the
# name of a folder, into copies of the FCS files for a gating program. ``to_html`` writes all of the above
# into one file to send around. Here are the cells in two markers, in the colours of their labels. Yellow
# cells of the new wells are dimmer, near the edge of the dark ones, and some of them count as dark: that is
# what "unusual" was about.
#
# The same on the command line (names are given in Python)::
#
#     skmix compose wells/*.fcs --markers V2-A,Y2-A,B1-A --metadata wells.csv \
#         --condition red --html plate.html --table proportions.csv -o plate.skmix
#     skmix compose mixed/*.fcs --model plate.skmix --html mixed.html
study.to_html(plate / "plate.html")
figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
for axes, found, files in zip(panels, (study, mixed), (wells, others), strict=True):
    found.label_cells(plate / "labels.csv", overwrite=True)
    labels = pd.read_csv(plate / "labels.csv")["population"]
    blocks = open_rows(files, columns=["B1-A", "Y2-A"]).blocks()
    X = np.concatenate([block.X for block in blocks])
    colours = ["0.5", "#e69f00", "#d55e00", "#56b4e9", "#cc79a7"]
    for name, colour in zip(study.populations.display_names, colours, strict=True):
        axes.plot(*X[labels == name].T, ".", ms=1.5, color=colour, label=name)
    axes.set(xlabel="B1-A", ylabel="Y2-A", title=files.name)
panels[0].legend(markerscale=6)
folder.cleanup()
plt.show()
