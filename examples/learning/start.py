"""
Three species of iris
=====================

Each species has its own weights over four kernels that all species share. Setosa and versicolor take one
kernel each and virginica two: these species have nothing to share.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier
from skmix.plots import plot_projections

# %%
# The kernels in the plane of the petals, as each species weighs them.
iris = load_iris(as_frame=True)
X, y = iris.data, iris.target_names[iris.target]
model = SharedKernelClassifier(4, random_state=0).fit(X, y)

petals = ["petal length (cm)", "petal width (cm)"]
figure, panels = plt.subplots(1, 3, figsize=(11.0, 3.7), layout="constrained")
for axes, species in zip(panels, model.classes_, strict=True):
    plot_projections(model, species, X, y, axes=axes, features=petals, n_std=2.0)
    axes.set_title(species, fontsize=11)
plt.show()
