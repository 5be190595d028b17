"""Novelty detection: does a classifier refuse the nominal share of new rows?

`SharedKernelClassifier`, or with ``--search`` `SharedKernelClassifierCV`, is fitted with
``reject_below=share`` to three quarters of the rows of each set, and predicts the others. Sets of fewer than
200 rows are left out. The criterion is that, on each set, the mean share over several splits is within a
factor of 1.5 of the nominal one.

With ``--categories``, tables are simulated, with categories and counts of which most are rare. It measures
the share refused of 4000 new rows, and of the same rows with one number 20 standard deviations from its mean:
by the threshold, and by plain densities, which are not widened for rare values (`outlier_blur_`).

It takes some minutes on one core. Tables are read from the folder that ``--files`` names.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from comparison import HALVES, DataSet, find_data
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.data.write import replacing
from skmix.engine.rows.blocks import Block
from skmix.model.crossfit import novelty_threshold
from skmix.model.rows import enter
from skmix.report import outliers

NOMINAL = (0.01, 0.05, 0.1)
TOLERATED = 1.5
FEWEST_ROWS = 200


def refused(data: DataSet, seed: int, n_splits: int, max_rows: int, *, search: bool) -> list[float]:
    """Return the share of new rows refused in the split `seed`, for each nominal share."""
    splits = StratifiedShuffleSplit(n_splits, test_size=0.25, random_state=0)
    shares, codes = [], np.unique(data.y, return_inverse=True)[1]
    train, test = list(splits.split(data.X, codes))[seed]
    for nominal in NOMINAL:
        model: Any = SharedKernelClassifier(reject_below=nominal, outlier_label=-1, random_state=seed)
        if search:
            model = SharedKernelClassifierCV(model, random_state=seed)
        model.fit(data.X[train[:max_rows]], codes[train[:max_rows]])
        shares.append(float(np.mean(model.predict(data.X[test]) == -1)))  # the label of outliers
    return shares


# ---------------------------------------------------------------- simulated tables with rare values

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
N_NEW = 4000


def table_of(kind: str, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of some kind with n rows, and its labels (n,)."""
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
        return frame.assign(title=np.where(random.random(n) < 0.025, rare, usual)), y
    if kind == "single rows":
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


def refused_of_table(kind: str, n_rows: int, seed: int, *, search: bool) -> list[float]:
    """Return the shares of new and of planted rows that are refused, then the same by plain densities."""
    (X, y), (new, _) = table_of(kind, n_rows, seed), table_of(kind, N_NEW, 1000 + seed)
    if "title" in X:
        X = X.astype({"title": "category"})
    model: Any = SharedKernelClassifier(reject_below=NOMINAL[0], outlier_label=-1, random_state=seed)
    if search:
        model = SharedKernelClassifierCV(model, random_state=seed)
    planted = new.assign(age=X["age"].mean() + 20.0 * X["age"].std())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about categories that are new
        shares = [float(outliers(model.fit(X, y), rows).mean()) for rows in (new, planted)]
        if not search:
            vars(model).pop("outlier_blur_", None)
            threshold = novelty_threshold(model, NOMINAL[0], Block(enter(model, X).gathered(), y))
            shares += [float(np.mean(model.score_samples(rows) < threshold)) for rows in (new, planted)]
    return shares


def measure_tables(n_splits: int, n_jobs: int, *, search: bool, small: bool) -> list[dict[str, Any]]:
    """Measure and print the shares of simulated tables."""
    tables = {"single rows": TABLES["single rows"]} if small else TABLES
    found = Parallel(n_jobs=n_jobs)(
        delayed(refused_of_table)(kind, n_rows, seed, search=search)
        for kind, (n_rows, _) in tables.items()
        for seed in range(n_splits)
    )
    results = []
    names = ("refused", "caught", "plain_refused", "plain_caught")
    for (kind, (n_rows, what)), own in zip(
        tables.items(), np.reshape(found, (len(tables), n_splits, -1)), strict=True
    ):
        means = dict(zip(names, own.mean(axis=0).tolist(), strict=False))
        error = float(own[:, 0].std(ddof=1) / np.sqrt(n_splits))
        results.append({"table": kind, "what": what, "rows": n_rows, "nominal": NOMINAL[0], **means})
        results[-1]["error"] = error
        Console().print({name: round(value, 4) for name, value in means.items()}, kind)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--max-rows", type=int, default=1000, help="most training rows")
    parser.add_argument("--search", action="store_true", help="SharedKernelClassifierCV")
    parser.add_argument("--categories", action="store_true", help="simulated tables with rare values")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: list[dict[str, Any]] = []
    n_splits = 2 if arguments.small else arguments.splits
    if arguments.categories:
        settings = {"search": arguments.search, "small": arguments.small}
        results = measure_tables(n_splits, arguments.jobs, **settings)
        _write(arguments.out, results)
        return
    shown = Table(title="new rows refused, in percent")
    for title in ("half", "data", "rows", *(f"nominal {100 * share:g}" for share in NOMINAL)):
        shown.add_column(title, justify="left" if title in ("half", "data") else "right")
    half_of = {name: half for half, names in HALVES.items() for name in names}
    names = ["breast_cancer"] if arguments.small else list(half_of)
    sets = {name: find_data(name, arguments.files) for name in names}
    sets = {name: data for name, data in sets.items() if len(data.y) >= FEWEST_ROWS}
    work = Parallel(n_jobs=arguments.jobs)
    found = work(
        delayed(refused)(data, seed, n_splits, arguments.max_rows, search=arguments.search)
        for data in sets.values()
        for seed in range(n_splits)
    )
    by_set = np.reshape(found, (len(sets), n_splits, len(NOMINAL)))
    for (name, data), shares in zip(sets.items(), by_set, strict=True):
        means, errors = shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(n_splits)
        results += [
            {
                "data": data.name,
                "half": half_of[name],
                "rows": len(data.y),
                "nominal": nominal,
                "refused": float(mean),
                "error": float(error),
            }
            for nominal, mean, error in zip(NOMINAL, means, errors, strict=True)
        ]
        cells = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in zip(means, errors, strict=True)]
        shown.add_row(half_of[name], data.name, str(len(data.y)), *cells)
    console = Console(width=120)
    console.print(shown)
    for share in NOMINAL:
        ratios = {row["data"]: row["refused"] / share for row in results if row["nominal"] == share}
        beyond = [data for data, ratio in ratios.items() if not 1.0 / TOLERATED <= ratio <= TOLERATED]
        within = f"within a factor of {TOLERATED} on {len(ratios) - len(beyond)} of {len(ratios)} sets"
        console.print(
            f"nominal {100 * share:g} %: {within}" + (f"; not on {', '.join(beyond)}" if beyond else "")
        )
    _write(arguments.out, results)


def _write(path: Path | None, results: list[dict[str, Any]]) -> None:
    if path is not None:
        with replacing(path) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
