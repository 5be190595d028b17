"""
Variational Bayes
=================

EM uses every kernel, even for a few rows. A variational fit computes the posterior of the parameters, and
kernels that the rows do not support vanish.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.paper import illustration
from skmix.plots import draw_kernels

# %%
# Twelve kernels for rows that come from three. Kernels that explain less than one row are left out. The prior
# expects kernels as wide as the data; the default one expects smaller kernels, and would keep six.
warnings.simplefilter("ignore", ConvergenceWarning)
blue, orange = "#0072b2", "#d55e00"
truth = illustration()
X, y = make_shared_kernel_data(
    truth.means, truth.covariances, truth.weights, 60, random_state=0
)
settings = {"n_kernels": 12, "max_iter": 500, "random_state": 0}
by_em = SharedKernelMixture(**settings, covariance_prior=None).fit(X, y)
wide = (4.0, np.cov(X.T))
by_bayes = SharedKernelMixture(
    **settings, inference="variational", covariance_prior=wide
).fit(X, y)
print(f"EM keeps {by_em.n_kernels_} kernels, the variational fit {by_bayes.n_kernels_}")

# %%
# What it does to rows that were held out: wine, with 13 features and some 41 training rows a class.
wine, labels = load_wine(return_X_y=True)
per_class, splits = (
    (1, 2, 4, 6),
    StratifiedShuffleSplit(3, test_size=0.3, random_state=0),
)
losses = np.empty((2, len(per_class), 3))
for split, (training, held_out) in enumerate(splits.split(wine, labels)):
    for j, n_kernels in enumerate(per_class):
        for i, inference in enumerate(("em", "variational")):
            model = SharedKernelClassifier(
                3 * n_kernels,
                inference=inference,
                covariance_prior=None,
                max_iter=500,
                tol=1e-3,
                random_state=split,
            )
            model.fit(wine[training], labels[training])
            losses[i, j, split] = log_loss(
                labels[held_out], model.predict_proba(wine[held_out])
            )

# %%
# The more kernels, the more EM overfits; the variational fit hardly changes.
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.2), layout="constrained"
)
for model, name, axes in ((by_em, "EM", left), (by_bayes, "variational", middle)):
    axes.scatter(*X.T, s=10, c="0.7", lw=0)
    draw_kernels(model, None, axes, n_std=2.0)
    axes.set(
        title=f"{name}: {model.n_kernels_} kernels of 12",
        xlim=(-4.5, 9.0),
        ylim=(-1.5, 5.5),
    )
    axes.set(xlabel="feature 0", ylabel="feature 1")
for values, name, colour, marker in zip(
    losses, ("EM", "variational"), (orange, blue), "so", strict=True
):
    right.plot(
        per_class,
        values.mean(axis=1),
        f"{marker}-",
        color=colour,
        lw=2.2,
        ms=7,
        label=name,
    )
right.set(
    xlabel="kernels a class at the start",
    ylabel="log-loss of held-out rows",
    yscale="log",
    title="Wine",
)
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
plt.show()
