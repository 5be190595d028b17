"""
Model selection
===============

``SharedKernelMixtureCV`` tries numbers of kernels and covariance types. Every candidate is in
``cv_results_``, so that you can see how much better the best one is.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.datasets import make_shared_kernel_data
from skmix.plots import draw_kernels

# %%
# Four classes over six kernels, which they share in pairs.
angles = np.arange(6) * np.pi / 3
means = 4.0 * np.column_stack([np.cos(angles), np.sin(angles)])
covariances = np.array(
    [np.diag([1.2, 0.3]) if k % 2 else np.diag([0.3, 1.2]) for k in range(6)]
)
weights = (
    np.array(
        [[6, 3, 1, 0, 0, 0], [0, 4, 4, 2, 0, 0], [0, 0, 1, 5, 4, 0], [3, 0, 0, 0, 2, 5]]
    ).T
    / 10.0
)
X, y = make_shared_kernel_data(means, covariances, weights, 150, random_state=0)

# %%
# The Bayesian information criterion weighs the likelihood against the number of parameters.
mixture = SharedKernelMixture(n_init=8, max_iter=500)
search = SharedKernelMixtureCV(
    mixture, n_kernels=range(4, 10), criterion="bic", random_state=0
).fit(X, y)
print("chosen:", search.best_params_)

# %%
# The best candidate is the model that a direct fit with its settings gives.
direct = clone(search.best_estimator_).fit(X, y)
print("the same means:", np.array_equal(direct.means_, search.best_estimator_.means_))

# %%
# The true kernels lie along the axes; diagonal covariances describe them with the fewest parameters.
table = pd.DataFrame(search.cv_results_)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=[4, 3]
)
for name, colour, marker in (
    ("full", "#0072b2", "o"),
    ("tied", "#d55e00", "s"),
    ("diag", "#009e73", "^"),
    ("spherical", "#cc79a7", "v"),
):
    rows = table[table["param_covariance_type"] == name]
    left.plot(
        rows["param_n_kernels"],
        rows["bic"],
        f"{marker}-",
        color=colour,
        lw=2,
        label=name,
    )
place = table.loc[search.best_index_, ["param_n_kernels", "bic"]].tolist()
left.plot(*place, "o", ms=18, mfc="none", mec="black", mew=1.8)
left.annotate(
    "chosen", place, (0, -24), textcoords="offset points", ha="center", weight="bold"
)
left.set(xlabel="kernels", ylabel="BIC (lower is better)")
left.margins(y=0.14)
left.legend(title="covariances", frameon=False)
left.spines[["top", "right"]].set_visible(False)

for c, (colour, marker) in enumerate(
    zip(("#0072b2", "#e69f00", "#009e73", "#cc79a7"), "os^v", strict=True)
):
    right.scatter(
        *X[y == c].T,
        s=14,
        color=colour,
        marker=marker,
        alpha=0.6,
        lw=0,
        label=f"class {c}",
    )
draw_kernels(direct, None, right, n_std=2.0)
right.set(
    xlabel="feature 0", ylabel="feature 1", aspect="equal", title="The chosen model"
)
right.legend(
    loc="upper left",
    bbox_to_anchor=(1, 1),
    frameon=False,
    handletextpad=0.1,
    markerscale=1.6,
)
plt.show()
