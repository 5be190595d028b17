"""Densities of new rows: SharedKernelMixtureCV compared with scikit-learn's GaussianMixture chosen by BIC.

Labels are not used. In each of several random splits, a quarter of the rows is held out; features that are
constant in the training rows are left out, and the others are standardised by the training rows.
scikit-learn's mixture has the lowest BIC among 1 to 10 components and four covariance types. Both are judged
by the mean log-density of the held-out rows, in nats per row. ``time`` is the processor time of the search,
as a multiple of that of scikit-learn's 40 fits.

Rounded values have no density: kernels that collapse onto single values make it as high as their smallest
variance allows, which says nothing about the fit. So noise of up to half a unit is added to every feature of
all rows; ``--raw`` leaves the values unchanged. The unit is the smallest difference between two values, so
features that are not rounded hardly change.

Tables are read from the folder ``--files``. Candidates and criterion of the search were chosen on the
development half of the sets.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
from comparison import HALVES, DataSet, find_data
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skmix import SharedKernelMixtureCV
from skmix.data.write import replacing
from skmix.engine.records import FloatArray

HELD_OUT, MOST_ROWS = 0.25, 2000
COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")


def split(data: DataSet, repeat: int, most_rows: int, *, raw: bool) -> tuple[FloatArray, FloatArray]:
    """Return complete training and held-out rows, standardised by the training rows."""
    random = np.random.RandomState(repeat)
    rows = data.X[~np.isnan(data.X).any(axis=1)]
    if not raw:
        units = np.array([np.diff(np.unique(column)).min(initial=np.ptp(column)) for column in rows.T])
        rows = rows + units * random.uniform(-0.5, 0.5, size=rows.shape)
    rows = rows[random.permutation(len(rows))]
    n_held_out = round(HELD_OUT * len(rows))
    training, held_out = rows[n_held_out:][:most_rows], rows[:n_held_out][:most_rows]
    varying = np.flatnonzero(np.ptp(training, axis=0))
    centre, spread = training[:, varying].mean(axis=0), training[:, varying].std(axis=0)
    return (training[:, varying] - centre) / spread, (held_out[:, varying] - centre) / spread


def by_bic(X: FloatArray, numbers: Iterable[int], seed: int) -> GaussianMixture:
    """Return scikit-learn's mixture with the lowest BIC."""
    found = []
    for covariance_type in COVARIANCE_TYPES:
        for n_components in numbers:
            model = GaussianMixture(n_components, covariance_type=covariance_type, random_state=seed)
            try:
                found.append((model.fit(X).bic(X), len(found), model))
            except ValueError:
                continue  # a component collapsed
    return min(found)[2]


def compare(data: DataSet, repeat: int, most_rows: int, *, raw: bool, small: bool) -> dict[str, float]:
    """Return the mean log-densities of the held-out rows of one split, and the seconds of both searches.

    With `small`, at most 3 kernels are tried.
    """
    warnings.simplefilter("ignore", ConvergenceWarning)
    training, held_out = split(data, repeat, most_rows, raw=raw)
    clock = [time.process_time()]
    peer = by_bic(training, range(1, 4 if small else 11), repeat)
    clock.append(time.process_time())
    search = SharedKernelMixtureCV(n_kernels=[1, 2, 3] if small else "auto", random_state=repeat)
    search.fit(training)
    clock.append(time.process_time())
    densities = search.score_samples(held_out)
    return {
        "rows": len(training),
        "features": training.shape[1],
        "sklearn": float(peer.score(held_out)),
        "skmix": float(densities.mean()),
        "kernels": search.best_params_["n_kernels"],
        "sklearn_seconds": clock[1] - clock[0],
        "skmix_seconds": clock[2] - clock[1],
        "largest": float(densities.max()),
    }


def summarised(splits: list[dict[str, float]]) -> dict[str, float]:
    """Return means over splits, and the gain with its standard error."""
    gains = np.array([each["skmix"] - each["sklearn"] for each in splits])
    return {
        **splits[0],
        **{
            name: float(np.mean([each[name] for each in splits]))
            for name in ("sklearn", "skmix", "kernels", "sklearn_seconds", "skmix_seconds")
        },
        "gain": float(gains.mean()),
        "error": float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else float("nan"),
        "worst": float(gains.min()),
        "splits": len(gains),
        "largest": max(each["largest"] for each in splits),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--half", choices=list(HALVES), help="only one half")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="most training rows and most test rows")
    parser.add_argument("--raw", action="store_true", help="leave rounded values as they are")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    n_repeats, most_rows = (1, 60) if arguments.small else (arguments.repeats, arguments.rows)
    halves = {
        half: [name for name in names if not arguments.small or name in ("iris", "wine")]
        for half, names in HALVES.items()
        if arguments.half in (None, half)
    }
    found = Parallel(n_jobs=arguments.jobs, return_as="generator")(
        delayed(compare)(data, repeat, most_rows, raw=arguments.raw, small=arguments.small)
        for names in halves.values()
        for data in (find_data(name, arguments.files) for name in names)
        for repeat in range(n_repeats)
    )
    results = []
    for half, names in halves.items():
        table = Table(title=f"{half} half: log-density of held-out rows")
        for title in ("data", "rows", "features", "scikit-learn", "skmix", "gain", "largest", "time"):
            table.add_column(title, justify="left" if title == "data" else "right")
        gains = []
        for name in names:
            row = summarised(list(islice(found, n_repeats)))
            results.append({"half": half, "data": name, **row})
            gains.append(row["gain"])
            if arguments.out is not None:
                with replacing(arguments.out) as file:
                    file.write((json.dumps(results, indent=1) + "\n").encode())
            table.add_row(
                name, f"{row['rows']}", f"{row['features']}", f"{row['sklearn']:.3f}", f"{row['skmix']:.3f}",
                f"{row['gain']:+.3f} ± {row['error']:.3f}", f"{row['largest']:.1f}",
                f"{row['skmix_seconds'] / row['sklearn_seconds']:.1f}×",
            )  # fmt: skip
        Console(width=110).print(table)
        Console(width=110).print(f"{half} half: mean gain {np.mean(gains):+.3f} over {len(gains)} sets")


if __name__ == "__main__":
    main()
