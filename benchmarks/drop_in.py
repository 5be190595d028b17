"""`skmix.GaussianMixture` beside scikit-learn's, whose place it takes, and beside `SharedKernelMixture`.

Each fit is timed in a fresh process that has fitted nothing else: times of small fits otherwise depend on
what ran before, by up to ten times. Imports and the start of threads come before the clock.
All have their defaults; repeats differ in the seed, and times are medians.

The drop-in makes the same start and the same passes as scikit-learn's, and log-densities of rows differ by
rounding. Both spend the seconds of scikit-learn's k-means, which decides the start and is named too.

Less than four minutes on two cores, to which ``--cores 2`` confines a larger machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from answer import PROBLEMS, Problem, text_of, times_of
from recording import parser_of, processor, show

# Rows times kernels from which two repeats suffice: times of long fits hardly vary.
LONG = 5_000_000
CLASSES = {
    "scikit-learn": "sklearn.mixture.GaussianMixture",
    "drop-in": "skmix.GaussianMixture",
    "skmix": "skmix.SharedKernelMixture",
}
# Arguments: class, kernels, seed, file of rows, file for their log-densities.
FIT = """
import importlib, json, sys, time, warnings
import numpy as np
from sklearn.cluster import KMeans
warnings.simplefilter("ignore")
module, name = sys.argv[1].rsplit(".", 1)
mixture, n_kernels, seed = getattr(importlib.import_module(module), name), int(sys.argv[2]), int(sys.argv[3])
X = np.load(sys.argv[4])
def timed(model):
    time.sleep(0.06)  # BLAS threads wait actively for more work, about 0.04 s
    begun = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - begun
few = {} if name == "SharedKernelMixture" else {"init_params": "random_from_data"}
mixture(n_kernels, max_iter=1, random_state=0, **few).fit(X)  # the first fit of a process takes longer
mixture(n_kernels, max_iter=1, random_state=0).fit(X[:1000])  # starts the threads of k-means
model = mixture(n_kernels, random_state=seed)
found = {"wall": timed(model), "passes": int(model.n_iter_)}
if few:
    found["k-means"] = timed(KMeans(n_kernels, n_init=1, random_state=seed))
np.save(sys.argv[5], model.score_samples(X))
print(json.dumps(found))
"""


def measure(problem: Problem, repeats: int, folder: Path) -> tuple[list[Any], float]:
    """Return medians of each class, and how far log-densities of the drop-in are from scikit-learn's."""
    rows, densities = folder / "rows.npy", {name: folder / f"{name}.npy" for name in CLASSES}
    np.save(rows, problem.draw()[0])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CLASSES}
    apart = 0.0
    for seed in range(repeats):
        for name, its_class in CLASSES.items():
            given = its_class, problem.n_kernels, seed, rows, densities[name]
            command = [sys.executable, "-c", FIT, *map(str, given)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs[name].append(json.loads(done.stdout))
        ours, theirs = (np.load(densities[name]) for name in ("drop-in", "scikit-learn"))
        apart = max(apart, float(np.abs(ours - theirs).max()))
    return [pd.DataFrame(of_class).median() for of_class in runs.values()], apart


def main() -> None:
    """Measure and print."""
    names = [each.name for each in PROBLEMS if each.has_peer]
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=names,
        default=[name for name in names if "x" in name or name in ("200 rows", "500 rows")],
        help="problems, by default those of the README and two small ones",
    )
    parser.add_argument("--repeats", type=int, default=3, help="seeds, each in processes of its own")
    parser.add_argument("--cores", type=int, help="confine all processes to so many cores")
    arguments = parser.parse_args()
    if arguments.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    problems, repeats = [each for each in PROBLEMS if each.name in arguments.only], arguments.repeats
    if arguments.small:
        problems, repeats = [replace(problems[0], n_rows=400, n_kernels=3)], 1
    rows = []
    with TemporaryDirectory() as folder:
        for each in problems:
            long = each.n_rows * each.n_kernels >= LONG
            (peer, ours, mixture), apart = measure(each, min(repeats, 2) if long else repeats, Path(folder))
            rows.append(
                {
                    "problem": each.name,
                    "scikit-learn, s": text_of(peer["wall"]),
                    "GaussianMixture, s": text_of(ours["wall"]),
                    "GaussianMixture, times faster": times_of(peer["wall"] / ours["wall"]),
                    "its k-means, s": text_of(ours["k-means"]),
                    "SharedKernelMixture, s": text_of(mixture["wall"]),
                    "SharedKernelMixture, times faster": times_of(peer["wall"] / mixture["wall"]),
                }
            )
            passes = ", ".join(f"{side['passes']:.0f}" for side in (peer, ours, mixture))
            print(f"{each.name}: passes {passes}; log-densities differ by {apart:.0e} nats", flush=True)
    show(rows, arguments.out)
    print(f"On {processor()}, scikit-learn {sklearn.__version__}.")


if __name__ == "__main__":
    main()
