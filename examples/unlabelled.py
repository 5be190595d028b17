"""Few labels: accuracy against the number of labels, with and without the rows that have none."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier
from skmix.datasets import make_seven_segment_digits
from skmix.features import digit_features
from skmix.plots import save_figure

COLUMNS = [1, 3, 4, 11, 12, 13]
SHOWN = (2, 3, 5, 10, 20, 50, 100)
REPEATS = 5


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    images, digits = make_seven_segment_digits(100, random_state=0)
    test_images, test_digits = make_seven_segment_digits(100, random_state=1)
    X, X_test = digit_features(images)[:, COLUMNS], digit_features(test_images)[:, COLUMNS]
    alone, helped = np.empty((2, len(SHOWN), REPEATS))
    for i, count in enumerate(SHOWN):
        for repeat in range(REPEATS):
            random = np.random.default_rng(repeat)
            shown = np.concatenate(
                [random.choice(np.flatnonzero(digits == d), count, replace=False) for d in range(10)]
            )
            y = np.full(len(digits), -1)
            y[shown] = digits[shown]
            model = SharedKernelClassifier(shrinkage="auto", random_state=repeat)
            alone[i, repeat] = model.fit(X[shown], digits[shown]).score(X_test, test_digits)
            helped[i, repeat] = model.fit(X, y).score(X_test, test_digits)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, values, colour, marker in (
        ("with the unlabelled rows", helped, "#0072b2", "o"),
        ("labelled rows alone", alone, "#d55e00", "s"),
    ):
        axes.fill_between(SHOWN, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, lw=0)
        axes.plot(SHOWN, values.mean(axis=1), marker=marker, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_xticks(SHOWN, [str(count) for count in SHOWN])
    axes.minorticks_off()
    axes.set_xlabel("labels of each digit, of 100 rows")
    axes.set_ylabel("accuracy on test digits")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "unlabelled.png", dpi=150)


if __name__ == "__main__":
    main()
