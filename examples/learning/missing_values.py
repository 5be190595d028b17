"""
Missing values
==============

A row with gaps has the density of its observed values, and EM takes the expectation over the rest. No value
is filled in, and no row is dropped.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

# %%
# The mean of a missing value, by ``impute``, or draws by ``condition``, which vary as much as the rows.
means = np.array([[0.0, 0.0], [4.0, 4.5], [7.0, -0.5]])
covariances = np.array(
    [[[1.6, 1.0], [1.0, 1.0]], [[1.2, -0.7], [-0.7, 0.9]], [[0.8, 0.4], [0.4, 0.6]]]
)
complete, _ = make_shared_kernel_data(
    means, covariances, [[0.4], [0.35], [0.25]], 500, random_state=0
)
model = SharedKernelMixture(3, random_state=0).fit(complete)
seen = np.linspace(-4.0, 10.0, 300)
rows = np.column_stack([seen, np.full_like(seen, np.nan)])
draws = np.array(
    [
        model.set_params(random_state=seed).condition({0: value}).sample(2)[0][:, 0]
        for seed, value in enumerate(seen)
    ]
).T

# %%
# The cost of gaps: the error of estimates, averaged over eight data sets of three features.
# Dropping every row with a gap is the usual alternative. Fits start at the truth, so that every kernel
# keeps its number.
means = np.array([[0.0, 0.0, 0.0], [6.0, 6.0, 0.0], [0.0, 7.0, 7.0]])
factors = np.array([[0.9, 0.9, -0.7], [0.9, -0.8, 0.8], [0.7, 0.9, 0.9]])
covariances = factors[:, :, None] * factors[:, None, :] + 0.3 * np.eye(3)
weights = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]])
start = {"means": means, "covariances": covariances, "weights": weights}
shares = np.array([0.0, 0.1, 0.2, 0.35, 0.5])
squares = np.zeros((2, len(shares), 8))
for seed in range(8):
    X, y = make_shared_kernel_data(means, covariances, weights, 200, random_state=seed)
    uniform = np.random.default_rng(seed).uniform(size=X.shape)
    for i, share in enumerate(shares):
        gaps = uniform < share
        some, whole = ~gaps.all(axis=1), ~gaps.any(axis=1)
        with_gaps = SharedKernelMixture(init=start, tol=1e-3).fit(
            np.where(gaps, np.nan, X)[some], y[some]
        )
        without = SharedKernelMixture(init=start, tol=1e-3).fit(X[whole], y[whole])
        squares[:, i, seed] = [
            np.mean((fit.means_ - means) ** 2) for fit in (with_gaps, without)
        ]

# %%
# Left: the mean may lie between the kernels, where hardly any row does. Right: EM with gaps loses little.
blue, orange, green = "#0072b2", "#d55e00", "#009e73"
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
left.plot(*complete.T, "o", color="0.75", ms=3, mew=0, label="complete rows")
left.plot(
    np.tile(seen, 2),
    draws.ravel(),
    "o",
    color=orange,
    ms=3,
    mew=0,
    label="draws",
)
left.plot(*model.impute(rows).T, color=blue, lw=2.6, label="impute")
left.set(
    xlabel="feature that was seen", ylabel="feature that is missing", xlim=(-4, 10)
)
left.legend(loc="upper left", frameon=False, markerscale=2)
left.set_title("What is known of a missing value")

names = ("EM with gaps", "complete rows only")
for name, values, colour, marker in zip(
    names, squares, (blue, green), "os", strict=True
):
    right.plot(
        100 * shares,
        np.sqrt(values.mean(axis=1)),
        marker + "-",
        color=colour,
        lw=2.2,
        ms=7,
        label=name,
    )
right.set(
    xlabel="missing values, %", ylabel="error of the kernel means", ylim=(0, None)
)
right.legend(loc="upper left", frameon=False)
right.set_title("What missing values cost")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
