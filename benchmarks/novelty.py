"""Novelty detection: does a classifier refuse the nominal share of new rows?

    python benchmarks/novelty.py sets --files tables --out benchmarks/results/novelty.csv
    python benchmarks/novelty.py categories --out benchmarks/results/novelty_categories.csv

- ``sets``: `SharedKernelClassifier` and `SharedKernelClassifierCV` are fitted with ``reject_below=share``
  to three quarters of the rows of each set of at least 200 rows, and predict the others.
- ``categories``: simulated tables with three numbers, and categories and counts of which most are rare.
  The shares refused of 4000 new rows, and of the same rows with one number 20 standard deviations from its
  mean: by the threshold, and by plain densities, which are not widened for rare values (`outlier_blur_`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from comparison import HALVES, DataSet, find_data
from joblib import Parallel, delayed
from recording import parser_of, show
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.engine.rows.blocks import Block
from skmix.model.crossfit import novelty_threshold
from skmix.model.rows import enter
from skmix.report import outliers

NOMINAL, TOLERATED = (0.01, 0.05, 0.1), 1.5
FEWEST_ROWS, MOST_ROWS, N_NEW = 200, 1000, 4000


def refused(data: DataSet, seed: int, share: float, search: bool) -> float:
    """The share of new rows refused in the split `seed`."""
    warnings.simplefilter("ignore")
    splits = StratifiedShuffleSplit(seed + 1, test_size=0.25, random_state=0)
    codes = np.unique(data.y, return_inverse=True)[1]
    *_, (train, test) = splits.split(data.X, codes)
    model: Any = SharedKernelClassifier(reject_below=share, outlier_label=-1, random_state=seed)
    if search:
        model = SharedKernelClassifierCV(model, random_state=seed)
    model.fit(data.X[train[:MOST_ROWS]], codes[train[:MOST_ROWS]])
    return float(np.mean(model.predict(data.X[test]) == -1))  # the label of outliers


def sets(files: Path | None, n_splits: int, n_jobs: int, small: bool) -> Iterator[dict[str, Any]]:
    """Shares refused over all sets, for each classifier and nominal share."""
    names = ["breast_cancer"] if small else [name for half in HALVES.values() for name in half]
    data = [each for each in (find_data(name, files) for name in names) if len(each.y) >= FEWEST_ROWS]
    for classifier in (
        (SharedKernelClassifier,) if small else (SharedKernelClassifier, SharedKernelClassifierCV)
    ):
        search = classifier is SharedKernelClassifierCV
        for share in NOMINAL:
            work = (delayed(refused)(each, seed, share, search) for each in data for seed in range(n_splits))
            means = np.reshape(Parallel(n_jobs)(work), (len(data), n_splits)).mean(axis=1)
            least, most = means.argmin(), means.argmax()
            near = np.sum((means >= share / TOLERATED) & (means <= share * TOLERATED))
            yield {
                **{"classifier": classifier.__name__, "asked for, %": f"{100 * share:.0f}"},
                **{"refused at the median, %": f"{100 * np.median(means):.1f}"},
                **{"least, %": f"{100 * means[least]:.1f}", "set with the least": data[least].name},
                **{"most, %": f"{100 * means[most]:.1f}", "set with the most": data[most].name},
                **{f"sets within a factor of {TOLERATED}": near, "sets": len(data)},
            }


# For each table: number of rows of the fit, and of categories or counts that are rare.
TABLES = {
    "titles": (1000, "a title of 17; a row in 40 has one of 13 rare ones"),
    "few rows": (300, "the same with 300 rows"),
    "single rows": (800, "24 categories of one row each"),
    "own words": (800, "a category of its own in 3 % of rows, in new ones too"),
    "many": (1000, "60 categories, of which the rarest has a row in 600"),
    "indicators": (800, "12 columns of zeros, with a one in 3 of 1000 rows"),
    "counts": (600, "8 counts, of which most are zero"),
    "amounts": (800, "6 amounts that are zero in 994 of 1000 rows"),
    "no rare values": (800, "three numbers and two categories"),
}


def table_of(kind: str, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of some kind with n rows, and its labels (n,)."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    frame = pd.DataFrame(random.normal(size=(n, 3)) + y[:, None], columns=["age", "b", "c"])
    usual = random.choice(["u", "v"], n).astype(object)
    if kind in ("titles", "few rows"):
        usual = np.where(random.random(n) < 0.3 + 0.4 * y, "Miss", "Mr").astype(object)
        usual[frame["age"] < -1.0] = "Master"
        usual[(usual == "Miss") & (frame["b"] > 0.5)] = "Mrs"
        shares = 1.0 / np.arange(1, 14) ** 1.5
        rare = random.choice([f"title {i}" for i in range(13)], n, p=shares / shares.sum())
        usual = np.where(random.random(n) < 0.025, rare, usual)
    elif kind == "single rows":
        words = np.resize([f"r{i}" for i in range(24)], 24 * (n // 800))
        usual[random.permutation(n)[: len(words)]] = words
    elif kind == "own words":
        usual = np.where(random.random(n) < 0.03, [f"{seed}-{i}" for i in range(n)], usual)
    elif kind == "many":
        shares = 1.0 / np.arange(1, 61) ** 1.3
        usual = random.choice([f"s{i}" for i in range(60)], n, p=shares / shares.sum())
    elif kind == "indicators":
        return frame.assign(**{f"i{i}": (random.random(n) < 0.003).astype(float) for i in range(12)}), y
    elif kind == "counts":
        return frame.assign(**{f"n{i}": random.poisson(0.02 * (i + 1) * (1 + y)) for i in range(8)}), y
    elif kind == "amounts":
        amounts = {
            f"x{i}": np.where(random.random(n) < 0.006, random.lognormal(8, 1, n), 0) for i in range(6)
        }
        return frame.assign(**amounts), y
    return frame.assign(title=usual), y


def refused_of_table(kind: str, n_rows: int, seed: int) -> list[float]:
    """The shares of new and of planted rows that are refused, then the same by plain densities."""
    (X, y), (new, _) = table_of(kind, n_rows, seed), table_of(kind, N_NEW, 1000 + seed)
    if "title" in X:
        X = X.astype({"title": "category"})
    model: Any = SharedKernelClassifier(reject_below=NOMINAL[0], outlier_label=-1, random_state=seed)
    planted = new.assign(age=X["age"].mean() + 20.0 * X["age"].std())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about categories that are new
        shares = [float(outliers(model.fit(X, y), rows).mean()) for rows in (new, planted)]
        vars(model).pop("outlier_blur_", None)
        threshold = novelty_threshold(model, NOMINAL[0], Block(enter(model, X).gathered(), y))
        return shares + [float(np.mean(model.score_samples(rows) < threshold)) for rows in (new, planted)]


def categories(n_splits: int, n_jobs: int, small: bool) -> Iterator[dict[str, Any]]:
    """Shares refused of each simulated table."""
    for kind, (n_rows, what) in TABLES.items():
        if small and kind != "single rows":
            continue
        work = (delayed(refused_of_table)(kind, n_rows, seed) for seed in range(n_splits))
        new, planted, plain_new, plain_planted = 100 * np.mean(Parallel(n_jobs)(work), axis=0)
        yield {
            **{
                "table": what,
                "rows": n_rows,
                "refused, %": f"{new:.1f}",
                "planted rows refused, %": f"{planted:.0f}",
            },
            "refused by plain densities, %": f"{plain_new:.1f}",
            "planted rows refused by plain densities, %": f"{plain_planted:.0f}",
        }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["sets", "categories"])
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    arguments = parser.parse_args()
    n_splits = 2 if arguments.small else arguments.splits
    settings = n_splits, arguments.jobs, arguments.small
    show(
        sets(arguments.files, *settings) if arguments.part == "sets" else categories(*settings), arguments.out
    )


if __name__ == "__main__":
    main()
