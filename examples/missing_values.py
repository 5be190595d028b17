"""Missing values: what is known of them, and what they cost. Makes the picture of the guide page.

Run it with ``python examples/missing_values.py``; it needs ``skmix[plot]`` and takes half a minute.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.plots import save_figure

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "missing-values.png"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"

figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.4), layout="constrained")

# Left: three kernels in the plane. The second feature of new rows is missing.
means = np.array([[0.0, 0.0], [4.0, 4.5], [7.0, -0.5]])
covariances = np.array([[[1.6, 1.0], [1.0, 1.0]], [[1.2, -0.7], [-0.7, 0.9]], [[0.8, 0.4], [0.4, 0.6]]])
weights = np.array([[0.4], [0.35], [0.25]])
X, _ = make_shared_kernel_data(means, covariances, weights, 500, random_state=0)
model = SharedKernelMixture(3, random_state=0).fit(X)

seen = np.linspace(-4.0, 10.0, 300)
rows = np.column_stack([seen, np.full_like(seen, np.nan)])
draws = model.sample_conditional(rows, 6)
left.plot(*X.T, "o", color="0.75", ms=2.6, mew=0.0, label="complete rows")
left.plot(
    np.tile(seen, 6), draws[..., 1].ravel(), "o", color=ORANGE, ms=2.6, mew=0.0, label="sample_conditional"
)
left.plot(*model.impute(rows).T, color=BLUE, lw=2.4, label="impute")
left.set(xlabel="feature that was seen", ylabel="feature that is missing", xlim=(-4, 10))
left.legend(loc="upper left", frameon=False, markerscale=2.0)
left.set_title("what is known of a missing value", fontsize=11)

# Right: how far estimates are from the truth, over many data sets.
means = np.array([[0.0, 0.0, 0.0, 0.0], [6.0, 6.0, 0.0, 6.0], [0.0, 7.0, 7.0, -6.0]])
factors = np.array([[0.7, 0.7, -0.5, 0.3], [0.8, -0.6, 0.6, 0.0], [0.5, 0.7, 0.7, 0.7]])
covariances = factors[:, :, None] * factors[:, None, :] + 0.5 * np.eye(4)
weights = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]])
start = {"means": means, "covariances": covariances, "weights": weights}
shares = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
errors = {"EM with gaps": np.zeros(len(shares)), "complete cases only": np.zeros(len(shares))}
n_repeats = 15
for seed in range(n_repeats):
    X, y = make_shared_kernel_data(means, covariances, weights, 300, random_state=seed)
    uniform = np.random.default_rng(seed).uniform(size=X.shape)
    for i, share in enumerate(shares):
        gaps = uniform < share
        some = ~gaps.all(axis=1)
        whole = ~gaps.any(axis=1)
        for name, values, labels in (
            ("EM with gaps", np.where(gaps, np.nan, X)[some], y[some]),
            ("complete cases only", X[whole], y[whole]),
        ):
            # From the truth, so that every kernel keeps its number.
            fit = SharedKernelMixture(init=start).fit(values, labels)
            errors[name][i] += np.mean((fit.means_ - means) ** 2) / n_repeats
for (name, values), colour, marker in zip(errors.items(), (BLUE, GREEN), "os", strict=True):
    right.plot(100 * shares, np.sqrt(values), marker + "-", color=colour, lw=2.0, label=name)
right.set(xlabel="missing values, %", ylabel="error of the kernel means", ylim=(0.0, None))
right.legend(loc="upper left", frameon=False)
right.set_title("what missing values cost", fontsize=11)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)

save_figure(figure, PICTURE)
