"""
How the paper's arithmetic fails
================================

When the paper's study is rerun, about one run in five ends singular: a kernel is left with hardly
any rows, its covariance becomes singular, and one pass later every number is NaN. On this engine no
run ends singular from the same starts.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.paper import (
    digit_features,
    dither,
    make_seven_segment_digits,
    published_pass,
    published_runs,
)
from skmix.theory import Parameters

# %%
# The features of the paper's variant 6D, and its starts: means anywhere in the unit cube, wide kernels,
# equal weights.
images, y = make_seven_segment_digits(50, random_state=0)
X = dither(digit_features(images), random_state=0)[:, [1, 3, 4, 11, 12, 13]]
random = np.random.default_rng(3)
starts = [
    Parameters(
        np.full((10, 10), 0.1),
        random.uniform(size=(10, 6)),
        np.tile(0.3 * np.eye(6), (10, 1, 1)),
    )
    for _ in range(18)
]


# %%
# Each start twice, with the paper's rule for stopping: in the paper's arithmetic, which is kept in the
# library as a reference, and on the engine. ``log_likelihood`` is NaN if a run ends singular.
def narrowest(covariances: np.ndarray) -> float:
    """Return the smallest variance of any kernel in any direction."""
    return max(np.linalg.eigvalsh(covariances).min(), 1e-20)


in_the_paper = published_runs(X, y, starts, max_iter=60)
ends = np.array([run.log_likelihood for run in in_the_paper]) / len(X)
on_engine = []
for start in starts:
    given = {
        "weights": start.weights,
        "means": start.means,
        "covariances": start.covariances,
    }
    on_engine.append(
        SharedKernelMixture(init=given, tol=0.1, stopping="per-class").fit(X, y)
    )
reached = np.array([model.log_likelihood_ for model in on_engine]) / len(X)
failed = np.flatnonzero(np.isnan(ends))
print(
    f"{len(failed)} of 18 runs of the paper's algorithm end singular, "
    "none on the engine"
)

# %%
# Left: runs that end singular, pass by pass. The engine bounds variances from below (dashed: where it
# ends). Right: runs that do not fail end at the likelihood of the engine; on the engine the others end
# well, too.
orange, blue = "#d55e00", "#0072b2"
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
rows, sizes = np.ascontiguousarray(X.T), np.bincount(y)
for i in failed:
    after, values = starts[i], []
    for _ in range(in_the_paper[i].failing_pass - 1):
        after, _ = published_pass(rows, sizes, after)
        values.append(narrowest(after.covariances))
    left.semilogy(range(1, len(values) + 1), values, color=orange, lw=1.6)
    left.plot(len(values), values[-1], "X", color=orange, ms=9)
    left.axhline(narrowest(on_engine[i].covariances_), color=blue, ls="--", lw=1.2)
left.text(0.3, 1e-9, "where the\nengine ends", color=blue, va="top")
left.text(8.0, 1e-20, "singular:\nnext pass NaN", color=orange, ha="right")
left.set(
    xlabel="pass",
    ylabel="smallest variance of any kernel",
    title="Runs that end singular",
)

order = np.argsort(reached)
places = np.arange(18)
bottom = reached.min() - 0.15
lost = np.isnan(ends[order])
right.vlines(places[lost], bottom, reached[order][lost], color="0.85", lw=2, zorder=0)
right.plot(places, reached[order], "o", color=blue, label="on the engine")
right.plot(
    places,
    ends[order],
    "s",
    mfc="none",
    mec=orange,
    ms=10,
    mew=1.8,
    label="paper's algorithm",
)
right.plot(
    places[lost],
    np.full(lost.sum(), bottom),
    "X",
    color=orange,
    ms=9,
    label="paper's algorithm: NaN",
)
right.set(
    xlabel="start, sorted", ylabel="log-likelihood per row", title="All 18 starts"
)
right.legend(frameon=False, loc="center", bbox_to_anchor=(0.6, 0.35))
for axes in (left, right):
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
