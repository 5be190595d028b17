"""Slow fits: what is left to gain, pass by pass, with and without extrapolation."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.plots import save_figure


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    random = np.random.default_rng(0)
    centres = 1.2 * random.normal(size=(4, 2))
    X = centres[random.integers(4, size=1500)] + random.normal(size=(1500, 2))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for seed in range(4):
        settings = {"n_kernels": 4, "tol": 0.0, "random_state": seed}
        paths = [
            SharedKernelMixture(**settings, max_iter=2500, accelerate=fast).fit(X).log_likelihood_path_[:, 0]
            for fast in (False, True)
        ]
        top = max(path.max() for path in paths)
        for path, colour, name in zip(paths, ("#d55e00", "#0072b2"), ("plain", "accelerated"), strict=True):
            left = np.maximum(top - path, 1e-6)
            axes.plot(np.arange(1, len(path) + 1), left, color=colour, label=name if seed == 0 else None)
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1e3)
    axes.set_xscale("log")
    axes.set_xlabel("passes")
    axes.set_ylabel("log-likelihood still to gain")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "slow-fits.png", dpi=150)


if __name__ == "__main__":
    main()
