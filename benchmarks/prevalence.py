"""Shares of classes in unlabelled rows, beside QuaPy and mlquantify, by the artificial-prevalence protocol.

    python benchmarks/prevalence.py FOLDER/*.csv.gz

Tables have the label in their last column. Half of the rows, at most 1000, are for training; from the others,
samples of 100 rows are drawn whose shares are uniform on the simplex. Methods of QuaPy 0.2.3 and mlquantify
0.5.1 get a logistic regression, and are left out where these are not installed. Absolute errors of shares,
averaged over classes and samples, go into benchmarks/results/prevalence.csv, and the coverage of intervals
into prevalence_coverage.csv. Tables that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from recording import show
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skmix import SharedKernelClassifier, SharedKernelClassifierCV

RESULTS = Path(__file__).resolve().parent / "results"
SAMPLES, ROWS, MOST = 100, 100, 1000
OURS, DEFAULT, COUNTED = "search", "classifier, default", "search, counted predictions"

Array = NDArray[Any]
Estimate = Callable[[Array], Array]


def read(path: Path) -> tuple[Array, Array]:
    """Read a table whose last column is the label; missing values become medians."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    y, X = table.pop(table.columns[-1]), table.replace("NA", "nan").to_numpy(dtype=float)
    return np.where(np.isnan(X), np.nanmedian(X, axis=0), X), np.unique(y, return_inverse=True)[1]


def logistic() -> Any:
    """Return the classifier that the other methods get."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def ours(X: Array, y: Array) -> dict[str, Estimate]:
    """Fit our classifiers."""
    search = SharedKernelClassifierCV(n_jobs=1, random_state=0).fit(X, y)
    plain = SharedKernelClassifier(n_jobs=1, random_state=0).fit(X, y)
    n_classes = len(search.classes_)
    return {
        OURS: lambda Z: search.prevalence(Z),
        DEFAULT: lambda Z: plain.prevalence(Z),
        COUNTED: lambda Z: np.bincount(search.predict(Z), minlength=n_classes) / len(Z),
    }


def quapy_methods(X: Array, y: Array) -> dict[str, Estimate]:
    """Fit QuaPy's quantifiers."""
    try:
        from quapy.method import aggregative as methods
    except ImportError:
        return {}
    fitted = {}
    for name in ("CC", "PCC", "ACC", "PACC", "EMQ", "DMy", "KDEyML"):
        quantifier = getattr(methods, name)(logistic())
        quantifier.fit(X, y)
        fitted[f"QuaPy {name}"] = quantifier.predict
    return fitted


def mlquantify_methods(X: Array, y: Array) -> dict[str, Estimate]:
    """Fit mlquantify's quantifiers for several classes."""
    try:
        from mlquantify import counting, likelihood, matching
    except ImportError:
        return {}
    classes, fitted = np.unique(y), {}
    for name, module in {"EMQ": likelihood, "KDEyML": matching, "GACC": counting}.items():
        quantifier = getattr(module, name)(logistic()).fit(X, y)

        def estimate(Z: Array, quantifier: Any = quantifier) -> Array:
            found = quantifier.predict(Z)
            if not isinstance(found, dict):
                return found
            by_class = {int(label): share for label, share in found.items()}
            return np.array([by_class.get(int(j), 0.0) for j in classes])

        fitted[f"mlquantify {name}"] = estimate
    return fitted


def samples(y: Array, random: np.random.Generator) -> list[Array]:
    """Draw the rows of samples whose shares are uniform on the simplex."""
    by_class, drawn = [np.flatnonzero(y == j) for j in np.unique(y)], []
    for _ in range(SAMPLES):
        counts = random.multinomial(ROWS, random.dirichlet(np.ones(len(by_class))))
        drawn.append(
            np.concatenate([random.choice(rows, n) for rows, n in zip(by_class, counts, strict=True)])
        )
    return drawn


def measure(path: Path) -> tuple[dict[str, float], list[float]]:
    """Return the mean absolute error of each method on a table, and the coverage of our intervals."""
    X, y = read(path)
    random = np.random.default_rng(0)
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y)
    train = train[:MOST]
    drawn = samples(y[test], random)
    methods = ours(X[train], y[train])
    methods |= quapy_methods(X[train], y[train]) | mlquantify_methods(X[train], y[train])
    errors: dict[str, list[float]] = {name: [] for name in methods}
    covered = []
    for rows in drawn:
        of_sample = test[rows]
        true = np.bincount(y[of_sample], minlength=y.max() + 1) / ROWS
        for name, estimate in methods.items():
            found = estimate(X[of_sample])
            if hasattr(found, "shares"):
                if name == OURS:
                    covered.append(np.mean((found.low <= true) & (true <= found.high)))
                found = found.shares
            errors[name].append(float(np.abs(np.asarray(found) - true).mean()))
    return {name: float(np.mean(values)) for name, values in errors.items()}, covered


def read_back(place: Path) -> list[dict[str, Any]]:
    """Return the lines of tables that were measured before."""
    return pd.read_csv(place, dtype=str).to_dict("records") if place.exists() else []


def main() -> None:
    """Measure tables and write their errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    places = [arguments.out / "prevalence.csv", arguments.out / "prevalence_coverage.csv"]
    tables = [read_back(place) for place in places]
    for path in arguments.tables:
        name = path.name.partition(".")[0]
        if any(line["table"] == name for line in tables[0]):
            continue
        with warnings.catch_warnings(action="ignore"):
            errors, covered = measure(path)
        tables[0].append({"table": name, **{method: f"{100 * e:.1f}" for method, e in errors.items()}})
        tables[1].append({"table": name, "covered, %": f"{100 * np.mean(covered):.0f}"})
        for place, lines in zip(places, tables, strict=True):
            show(lines, place)


if __name__ == "__main__":
    main()
