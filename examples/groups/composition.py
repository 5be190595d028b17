"""
Unusual samples
===============

Twelve samples are mixtures of the same four populations. ``Study`` has their proportions with intervals, and
finds the unusual sample.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture, Study

# %%
# Six controls and six treated samples: the treatment raises one population at the cost of another.
# One control has three times the usual share of the rarest population.
random = np.random.default_rng(0)
names = [f"control {g}" for g in range(1, 7)] + [f"treated {g}" for g in range(1, 7)]
usual = {"control": [0.50, 0.30, 0.15, 0.05], "treated": [0.35, 0.30, 0.30, 0.05]}
centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [4.0, 5.0]])
X, y = [], []
for name in names:
    shares = random.dirichlet(400.0 * np.array(usual[name.split()[0]]))
    if name == "control 4":
        shares = np.array([0.40, 0.30, 0.15, 0.15])
    populations = random.choice(4, 1500, p=shares)
    X.append(centres[populations] + random.normal(size=(1500, 2)))
    y += [name] * 1500
model = SharedKernelMixture(4, init="k-means", tol=1e-7, max_iter=1000, random_state=0)
model.fit(np.concatenate(X), y)

# %%
# Proportions with their intervals. They are wider than those of counts, since populations overlap.
study = Study(model)
table = study.proportions
print(table[table["sample"] == "control 1"].round(3).to_string(index=False))

# %%
# Which samples differ from the others? With two sets, each is compared with samples of both, so that an
# unusual one must differ from all.
unusual = study.unusual()
columns = ["kernel", "proportion", "usual_proportion", "p_adjusted", "unusual"]
print(unusual[["sample", *columns]].round(4).to_string(index=False))

study.plot()
plt.show()
