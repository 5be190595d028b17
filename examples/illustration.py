"""Fit the paper's two-dimensional illustration and look at it: three classes, three shared kernels.

Run it with ``python examples/illustration.py``; it needs ``skmix[plot]``.
"""

from skmix import SharedKernelMixture
from skmix.datasets import illustration, make_shared_kernel_data
from skmix.plots import plot_projections, save_figure

example = illustration()
X, y = make_shared_kernel_data(
    example.means, example.covariances, example.weights, example.n_per_class, random_state=0
)

# The paper gives the start; SharedKernelMixture(n_kernels=3) finds one by itself.
start = {
    "means": example.start_means,
    "covariances": example.start_covariances,
    "weights": example.start_weights,
}
model = SharedKernelMixture(init=start, stopping="per-class", tol=0.1, max_iter=50).fit(X, y)

print(f"{model.n_iter_} passes")
print("weights, true:", *example.weights.round(2).tolist(), sep="\n  ")
print("weights, estimated:", *model.weights_.round(2).tolist(), sep="\n  ")

axes = plot_projections(model, 0, X, y, style="accessible")
save_figure(axes[0].figure, "illustration_class_0.png")
