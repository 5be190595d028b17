"""
Values with errors
==================

Where the error of each value is known, a fit finds the density of the values without errors, and ``impute``
returns the values as they probably were.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from skmix import SharedKernelMixture

# %%
# Three narrow kernels, and errors as large as they are wide: each value has one of its own.
random = np.random.default_rng(0)
means = np.array([[0.0, 0.0], [1.6, 1.2], [3.4, 0.2]])
covariances = np.array(
    [
        [[0.3, 0.25], [0.25, 0.3]],
        [[0.3, -0.25], [-0.25, 0.3]],
        [[0.02, 0.0], [0.0, 0.5]],
    ]
)
kernel = random.integers(0, 3, 3000)
roots = np.linalg.cholesky(covariances)[kernel]
values = means[kernel] + np.einsum("nde,ne->nd", roots, random.normal(size=(3000, 2)))
errors = random.uniform(0.2, 1.0, size=values.shape)
measured = values + errors * random.normal(size=values.shape)

# %%
# EM converges slowly where errors hide the kernels, and passes are quick: a small ``tol`` is worth it.
settings = {"tol": 1e-6, "max_iter": 5000, "random_state": 0}
without = SharedKernelMixture(3, **settings).fit(measured)
model = SharedKernelMixture(3, **settings).fit(measured, errors=errors)
cleaned = model.impute(measured, errors=errors)
for name, rows in (("measured", measured), ("cleaned", cleaned)):
    print(f"error of the {name} values: {np.sqrt(np.mean((rows - values) ** 2)):.2f}")

# %%
# The density is of the values themselves; with ``errors``, it is that of measurements.
print(f"log-density of values, without errors in the fit: {without.score(values):.2f}")
print(f"log-density of values, with errors in the fit: {model.score(values):.2f}")
print(f"log-density of measurements: {model.score(measured, errors=errors):.2f}")


# %%
# Ellipses of two deviations: a fit that knows no errors takes them for the width of the kernels.
def draw(axes, fitted, colour, label):
    for k, (mean, covariance) in enumerate(zip(*fitted, strict=True)):
        squares, axes_of_kernel = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(*axes_of_kernel[::-1, 0]))
        axes.add_patch(
            Ellipse(
                mean,
                *(4.0 * np.sqrt(squares)),
                angle=angle,
                fill=False,
                edgecolor=colour,
                lw=1.8,
                label=label if k == 0 else None,
            )
        )


figure, panels = plt.subplots(
    1, 3, figsize=(11, 4), sharex=True, sharey=True, layout="constrained"
)
shown = (
    (measured, without, "#d55e00", "fit without errors"),
    (measured, model, "#0072b2", "fit with errors"),
    (cleaned, None, "", "impute"),
)
for axes, (rows, fit, colour, title) in zip(panels, shown, strict=True):
    axes.plot(*rows.T, "o", color="0.75", ms=2, mew=0)
    draw(axes, (means, covariances), "0.2", "truth")
    if fit is not None:
        draw(axes, (fit.means_, fit.covariances_), colour, "fit")
    axes.set(title=title, xlim=(-3, 6), ylim=(-3, 4))
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
