"""Densities of new rows: SharedKernelMixtureCV beside scikit-learn's GaussianMixture chosen by BIC.

    python benchmarks/densities.py --files tables --out benchmarks/results/densities.csv

Labels are not used. In each of several random splits, a quarter of the rows is held out; features that are
constant in the training rows are left out, and the others are standardised by the training rows.
scikit-learn's mixture has the lowest BIC among 1 to 10 components and four covariance types. Both are judged
by the mean log-density of the held-out rows, in nats per row. ``time`` is the processor time of the search,
as a multiple of that of scikit-learn's 40 fits.

Rounded values have no density: kernels that collapse onto single values make it as high as their smallest
variance allows, which says nothing about the fit. So noise of up to half a unit is added to every feature
of all rows. The unit is the smallest difference between two values, so features that are not rounded
hardly change.

Tables are read from the folder ``--files``. Candidates and criterion of the search were chosen on the
development half of the sets.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from comparison import HALVES, DataSet, find_data
from joblib import Parallel, delayed
from recording import parser_of, show
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skmix import SharedKernelMixtureCV

HELD_OUT, MOST_ROWS = 0.25, 2000
COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")


def split(data: DataSet, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """Complete training and held-out rows, standardised by the training rows."""
    random = np.random.RandomState(repeat)
    rows = data.X[~np.isnan(data.X).any(axis=1)]
    units = np.array([np.diff(np.unique(column)).min(initial=np.ptp(column)) for column in rows.T])
    rows = rows + units * random.uniform(-0.5, 0.5, size=rows.shape)
    rows = rows[random.permutation(len(rows))]
    n_held_out = round(HELD_OUT * len(rows))
    training, held_out = rows[n_held_out:][:MOST_ROWS], rows[:n_held_out][:MOST_ROWS]
    varying = np.flatnonzero(np.ptp(training, axis=0))
    centre, spread = training[:, varying].mean(axis=0), training[:, varying].std(axis=0)
    return (training[:, varying] - centre) / spread, (held_out[:, varying] - centre) / spread


def by_bic(X: np.ndarray, most: int, seed: int) -> GaussianMixture:
    """scikit-learn's mixture with the lowest BIC."""
    fitted = []
    for covariance_type in COVARIANCE_TYPES:
        for n_components in range(1, most + 1):
            model = GaussianMixture(n_components, covariance_type=covariance_type, random_state=seed)
            try:
                fitted.append((model.fit(X).bic(X), len(fitted), model))
            except ValueError:
                continue  # a component collapsed
    return min(fitted)[2]


def compare(data: DataSet, repeat: int, small: bool) -> tuple[int, ...]:
    """Rows, features, mean log-densities of the held-out rows by both, and the seconds of both searches."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    training, held_out = split(data, repeat)
    training = training[:60] if small else training
    clock = [time.process_time()]
    peer = by_bic(training, 3 if small else 10, repeat)
    clock.append(time.process_time())
    search = SharedKernelMixtureCV(n_kernels=[1, 2, 3] if small else "auto", random_state=repeat)
    search.fit(training)
    clock.append(time.process_time())
    return (*training.shape, peer.score(held_out), search.score(held_out), *np.diff(clock))


def row_of(half: str, name: str, splits: list[tuple[int, ...]]) -> dict[str, Any]:
    """Means over splits, and the gain with its standard error."""
    sizes, (peers, ours), (peer_seconds, our_seconds) = splits[0][:2], *np.split(np.transpose(splits)[2:], 2)
    gains = ours - peers
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
    return {
        **{"half": half, "data": name, "rows": sizes[0], "features": sizes[1]},
        **{"scikit-learn": f"{peers.mean():.2f}", "skmix": f"{ours.mean():.2f}"},
        **{
            "gain": f"{gains.mean():+.2f} ± {error:.2f}",
            "time": f"{our_seconds.mean() / peer_seconds.mean():.1f}",
        },
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    arguments = parser.parse_args()
    repeats = range(1 if arguments.small else arguments.repeats)
    sets = [(half, name) for half, names in HALVES.items() for name in names]
    if arguments.small:
        sets = [(half, name) for half, name in sets if name == "wine"]
    rows = []
    for half, name in sets:
        data = find_data(name, arguments.files)
        work = (delayed(compare)(data, repeat, arguments.small) for repeat in repeats)
        rows.append(row_of(half, name, Parallel(arguments.jobs)(work)))
        print(*rows[-1].values(), flush=True)
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
