"""A mixture of the rows of Parquet files: Dask beside Spark, and a worker killed in the midst of a fit.

    python benchmarks/spark.py --spark PYTHON --out benchmarks/results/spark.json

Spark runs by the interpreter that ``--spark`` names, since it is no dependency of the project::

    apt-get install default-jre-headless
    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install pyspark numpy

- **The same fit**: `SharedKernelMixture` on a Dask cluster of two worker processes of one thread, and Spark
  ML's `GaussianMixture` on two threads (``local[2]``), fit the same files by maximum likelihood with the same
  number of passes from the same start. Spark ML takes no start; a fit of no passes returns the one it draws.
- **A killed worker**: the same fit on Dask, in which one of the workers gets SIGKILL in the midst of a pass.
- **Fits as by default**: either side with its own start and stopping rule, on fewer rows.
- **Units**: the same fit of few rows, in other units or with more features. Spark adds 2.2e-16 to each
  density of a row, which changes the fit where densities are as small as that.

Log-likelihoods are computed here, by one function, from the parameters of either side. Starting Spark or the
cluster does not count, compiling neither: either side makes a fit first. Seconds of the same fit are the
least of some repeats; those of a pass leave out reading and the start. Processor time is that of all
processes of a side. Spark uses native BLAS if it finds ``libblas.so.3``, and the results say whether it did.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before NumPy is imported: a worker has one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import dask.dataframe as dd
import numpy as np
import pandas as pd
from cluster import all_counted, count_bytes
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.engine.records import FloatArray
from skmix.model.callbacks import Report, watched_by

N_FEATURES = 16
N_KERNELS = 16
# Deviation of a feature within a cluster. Spark's addition to densities matters little in such units.
UNIT = 0.1
# Features and deviations of other units.
UNITS = ((16, 0.1), (16, 1.0), (16, 10.0), (32, 1.0))
# Parameters: weights (K,), means (K, M), covariances (K, M, M).
Found = dict[str, FloatArray]

# Run by another interpreter: for each job, the parameters, passes and seconds of some fits.
SPARK = """
import json, sys, time
import numpy as np
import pyspark
from pyspark.ml.clustering import GaussianMixture
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

jobs = json.loads(sys.argv[1])
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
jvm = spark.sparkContext._jvm

def now():
    java = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toNanos() / 1e9
    return np.array([time.perf_counter(), java + time.process_time()])

try:
    native = bool(jvm.dev.ludovic.netlib.blas.NativeBLAS.getInstance())
except Exception:
    native = False
java = jvm.java.lang.System.getProperty("java.version")
found = {"versions": json.dumps({"pyspark": pyspark.__version__, "java": java, "native_blas": native})}
for job in jobs:
    begun = now()
    table = spark.read.parquet(job["folder"])
    rows = VectorAssembler(inputCols=table.columns, outputCol="features").transform(table)
    rows = rows.select("features").cache()
    rows.count()
    found[job["name"] + "/read"] = now() - begun
    for number, options in enumerate(job["fits"]):
        begun = now()
        model = GaussianMixture(**options).fit(rows)
        key = f"{job['name']}/{number}/"
        found[key + "seconds"] = now() - begun
        found[key + "passes"] = model.summary.numIter
        found[key + "weights"] = np.array(model.weights)
        found[key + "means"] = np.array([each.mean.toArray() for each in model.gaussians])
        found[key + "covariances"] = np.array([each.cov.toArray() for each in model.gaussians])
    rows.unpersist()
np.savez(sys.argv[2], **found)
spark.stop()
"""


# ---------------------------------------------------------------- rows


def write_files(
    folder: Path, n_files: int, n_rows: int, n_features: int = N_FEATURES, unit: float = UNIT
) -> None:
    """Write Parquet files of `n_rows` rows each, of overlapping clusters with a deviation `unit`."""
    folder.mkdir()
    random = np.random.default_rng(0)
    centres = 0.7 * random.normal(size=(N_KERNELS, n_features))
    shapes = np.eye(n_features) + 0.3 * random.normal(size=(N_KERNELS, n_features, n_features)) / 2.0
    names = [f"x{feature}" for feature in range(n_features)]
    for number in range(n_files):
        which = random.integers(N_KERNELS, size=n_rows)
        X = random.normal(size=(n_rows, n_features))
        X = np.einsum("nde,ne->nd", shapes[which], X) + centres[which]
        pd.DataFrame(unit * X, columns=names).to_parquet(folder / f"{number:03d}.parquet", index=False)


def read_rows(folder: Path) -> FloatArray:
    """Return all rows (N, M) of the files."""
    return np.concatenate([pd.read_parquet(path).to_numpy() for path in sorted(folder.iterdir())])


def draw_start(X: FloatArray) -> Found:
    """Return a start as Spark draws it: means and variances of five random rows."""
    rows = np.random.default_rng(1).choice(X, size=(N_KERNELS, 5))
    covariances = rows.var(axis=1)[:, :, None] * np.eye(X.shape[1])
    weights = np.full(N_KERNELS, 1.0 / N_KERNELS)
    return {"weights": weights, "means": rows.mean(axis=1), "covariances": covariances}


def mean_log_likelihood(X: FloatArray, found: Found) -> float:
    """Return the mean log-likelihood of rows (N, M)."""
    total = 0.0
    for rows in np.array_split(X, max(1, len(X) // 50_000)):
        densities = [
            np.log(weight) + multivariate_normal(mean, covariance).logpdf(rows)
            for weight, mean, covariance in zip(*found.values(), strict=True)
        ]
        total += float(logsumexp(densities, axis=0).sum())
    return total / len(X)


# ---------------------------------------------------------------- Dask


class Passes:
    """A watcher of fits: when each pass ended, and processor time and bytes after the second and the last.

    The latter only if the number of passes is given. Half the time of a pass after pass `kill`, a worker gets
    SIGKILL.
    """

    def __init__(self, client: Client, n_passes: int = 0, kill: int | None = None) -> None:
        self.client, self.n_passes, self.kill = client, n_passes, kill
        self.times: list[float] = []
        self.used: list[tuple[float, int]] = []

    @contextmanager
    def __call__(self, title: str, total: int | None) -> Iterator[Report]:
        """Watch the passes of a fit."""

        def after_pass(message: str, *, share: float | None = None) -> None:
            if title != "fitting":
                return
            self.times.append(time.perf_counter())
            if self.n_passes and len(self.times) in (2, self.n_passes):
                self.used.append((processor_time(self.client), all_counted(self.client)))
            if len(self.times) == self.kill:
                pid = min(self.client.run(os.getpid).items())[1]
                half = (self.times[-1] - self.times[-2]) / 2.0
                threading.Timer(half, os.kill, (pid, signal.SIGKILL)).start()

        yield after_pass

    def of_a_pass(self) -> dict[str, float]:
        """Return seconds, processor time and bytes of a pass."""
        seconds, processor, n_bytes = (
            (last - first) / (self.n_passes - 2)
            for first, last in ((self.times[1], self.times[-1]), *zip(*self.used, strict=True))
        )
        return {"pass_seconds": seconds, "pass_processor": processor, "pass_bytes": n_bytes}


def processor_time(client: Client) -> float:
    """Return the processor time of all processes; the scheduler runs in this one."""
    return time.process_time() + sum(client.run(time.process_time).values())


def fit(folder: Path, client: Client, watcher: Passes, **settings: Any) -> tuple[dict[str, Any], Found]:
    """Return seconds and passes of a fit on the cluster, reading included, and its parameters."""
    model = SharedKernelMixture(N_KERNELS, **settings)
    begun, used = time.perf_counter(), None if watcher.kill else processor_time(client)
    with watched_by(watcher), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(dd.read_parquet(folder))
    results: dict[str, Any] = {"seconds": time.perf_counter() - begun, "passes": int(model.n_iter_)}
    if used is not None:
        # What a killed process has used is not known.
        results["processor"] = processor_time(client) - used
    found = {"weights": model.weights_[:, 0], "means": model.means_, "covariances": model.covariances_}
    return results, found


def same_fit(start: Found, n_passes: int) -> dict[str, Any]:
    """Return settings of the fit that Spark makes: maximum likelihood from a given start."""
    init = {**start, "weights": start["weights"][:, None]}
    exact = {"covariance_type": "full", "covariance_prior": None, "tol": 0.0}
    return {"init": init, "max_iter": n_passes, **exact}


def kill_a_worker(
    folder: Path, client: Client, settings: dict[str, Any], undisturbed: Found
) -> dict[str, Any]:
    """Return what becomes of a fit whose worker is killed."""
    before = set(client.run(os.getpid).values())
    kill = settings["max_iter"] // 3
    watcher = Passes(client, kill=kill)
    results, found = fit(folder, client, watcher, **settings)
    try:
        client.wait_for_workers(len(before), timeout=60)
    except TimeoutError:
        # Now and then, the nanny of a killed worker starts no other one (dask/distributed, issue 7312).
        client.cluster.scale(len(before) + 1)
        client.wait_for_workers(len(before), timeout=600)
    after = set(client.run(os.getpid).values())
    results |= {
        "killed_in_pass": kill + 1,
        "workers_lost": len(before - after),
        "seconds_of_passes": np.diff(watcher.times).tolist(),
        "difference": max(float(np.abs(found[name] - undisturbed[name]).max()) for name in found),
    }
    return results


# ---------------------------------------------------------------- Spark


def run_spark(
    python: str, jobs: list[dict[str, Any]], place: Path
) -> tuple[dict[str, Any], dict[str, list[tuple[dict[str, Any], Found]]]]:
    """Return Spark's versions, and for each job the fits: seconds, with reading, and parameters."""
    subprocess.run(
        [python, "-W", "ignore", "-c", SPARK, json.dumps(jobs), str(place)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    with np.load(place) as file:
        given = dict(file)
    fits: dict[str, list[tuple[dict[str, Any], Found]]] = {}
    for job in jobs:
        name = job["name"]
        for number in range(len(job["fits"])):
            own = {
                key: given[f"{name}/{number}/{key}"] for key in ("seconds", "weights", "means", "covariances")
            }
            seconds, processor = (own.pop("seconds") + given[f"{name}/read"]).tolist()
            results = {
                "seconds": seconds,
                "passes": int(given[f"{name}/{number}/passes"]),
                "processor": processor,
            }
            fits.setdefault(name, []).append((results, own))
    return json.loads(str(given["versions"])), fits


def spark_jobs(folders: dict[str, Path], n_passes: int, n_repeats: int, n_seeds: int) -> list[dict[str, Any]]:
    """Return the fits that Spark makes in each folder, after some that are not used."""
    own = {"k": N_KERNELS, "seed": 1}
    few = [{**own, "tol": 0.0, "maxIter": n} for n in (0, n_passes)]
    fits = dict.fromkeys(folders, few)
    fits["files"] = [*few[:1] * n_repeats, *few[1:] * n_repeats]
    fits["two files"] = [{"k": N_KERNELS, "seed": seed} for seed in range(n_seeds)]
    jobs = [{"name": name, "folder": str(folders[name]), "fits": own} for name, own in fits.items()]
    return [{"name": "first", "folder": str(folders["two files"]), "fits": few}, *jobs]


# ---------------------------------------------------------------- all


def least(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least of each value: other programs only ever add to a time."""
    return {name: min(each[name] for each in results) for name in results[0]}


def measure(
    client: Client, python: str | None, temporary: Path, *, small: bool, n_repeats: int
) -> dict[str, Any]:
    """Measure everything; Spark if an interpreter is given."""
    n_files, n_rows, n_few = (4, 2000, 2000) if small else (16, 50_000, 20_000)
    n_passes, n_seeds = (6, 1) if small else (20, 3)
    folders = {name: temporary / name for name in ("files", "two files")}
    write_files(folders["files"], n_files, n_rows)
    write_files(folders["two files"], 2, n_rows // 2)
    for n_features, unit in UNITS:
        folders[f"{n_features}, {unit}"] = temporary / f"{n_features}-{unit}"
        write_files(folders[f"{n_features}, {unit}"], 1, n_few, n_features, unit)
    results: dict[str, Any] = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("dask", "distributed")},
        **{"n_features": N_FEATURES, "n_kernels": N_KERNELS, "n_files": n_files, "n_rows": n_files * n_rows},
        **{"n_passes": n_passes, "n_repeats": n_repeats, "unit": UNIT},
        "megabytes": sum(path.stat().st_size for path in folders["files"].iterdir()) / 1e6,
        "default_rows": n_rows,
        "units_rows": n_few,
    }
    spark: dict[str, list[tuple[dict[str, Any], Found]]] = {}
    if python is not None:
        jobs = spark_jobs(folders, n_passes, n_repeats, n_seeds)
        versions, spark = run_spark(python, jobs, temporary / "spark.npz")
        results["versions"] |= versions

    X = read_rows(folders["files"])
    start = spark["files"][0][1] if spark else draw_start(X)
    settings = same_fit(start, n_passes)
    fit(folders["files"], client, Passes(client), **settings)
    ours = []
    for _ in range(n_repeats):
        watcher = Passes(client, n_passes)
        own, found = fit(folders["files"], client, watcher, **settings)
        ours.append({**own, **watcher.of_a_pass()})
    results["dask"] = {**least(ours), "log_likelihood": mean_log_likelihood(X, found)}
    results["killed"] = kill_a_worker(folders["files"], client, settings, found)
    if spark:
        starts, fits = (
            least([each for each, _ in part])
            for part in (spark["files"][:n_repeats], spark["files"][n_repeats:])
        )
        for name in ("seconds", "processor"):
            fits[f"pass_{name}"] = (fits[name] - starts[name]) / n_passes
        results["spark"] = {**fits, "log_likelihood": mean_log_likelihood(X, spark["files"][-1][1])}

    X = read_rows(folders["two files"])
    results["default"] = {"dask": [], "spark": []}
    # The first start of a process takes longer.
    fit(folders["two files"], client, Passes(client), random_state=0, max_iter=2)
    for seed in range(n_seeds):
        sides = {"dask": fit(folders["two files"], client, Passes(client), random_state=seed)}
        if spark:
            sides["spark"] = spark["two files"][seed]
        for side, (own, found) in sides.items():
            own["log_likelihood"] = mean_log_likelihood(X, found)
            results["default"][side].append(own)

    results["units"] = []
    for n_features, unit in UNITS:
        name = f"{n_features}, {unit}"
        X = read_rows(folders[name])
        start = spark[name][0][1] if spark else draw_start(X)
        sides = {"dask": fit(folders[name], client, Passes(client), **same_fit(start, n_passes))}
        if spark:
            sides["spark"] = spark[name][1]
        # In units of the deviation.
        volume = n_features * float(np.log(unit))
        scores = {side: mean_log_likelihood(X, found) + volume for side, (_, found) in sides.items()}
        results["units"].append({"n_features": n_features, "unit": unit, "log_likelihood": scores})
    return results


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spark", metavar="PYTHON", help="interpreter that has pyspark")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--repeats", type=int, default=2, help="repeats of the same fit")
    arguments = parser.parse_args()
    if arguments.spark is None:
        print("Spark is left out: name an interpreter that has it with --spark.")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(memory_limit=None, **options) as cluster,
        Client(cluster) as client,
    ):
        count_bytes()
        client.run(count_bytes)
        results = measure(
            client, arguments.spark, Path(folder), small=arguments.small, n_repeats=arguments.repeats
        )
    show(results)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


def show(results: dict[str, Any]) -> None:
    """Print the results."""
    table = Table(title=f"{results['n_rows']} rows in {results['n_files']} Parquet files, the same fit")
    for name in ("", "Dask", "Spark", "ratio"):
        table.add_column(name, justify="right")
    for name, value in results["dask"].items():
        other = results.get("spark", {}).get(name)
        ratio = "" if other is None else f"{other / value:.2f}"
        table.add_row(name, f"{value:.6g}", "" if other is None else f"{other:.6g}", ratio)
    Console().print(table)
    killed = results["killed"]
    lasted = ", ".join(f"{seconds:.2f}" for seconds in killed["seconds_of_passes"])
    print(f"a worker killed in pass {killed['killed_in_pass']}: {killed['seconds']:.2f} s, passes {lasted} s")
    print(f"largest difference to the parameters of the undisturbed fit: {killed['difference']:.2g}")
    for side, fits in results["default"].items():
        for own in fits:
            print(f"default fit of {results['default_rows']} rows, {side}: {own}")
    for case in results["units"]:
        print(f"{case['n_features']} features, deviation {case['unit']}: {case['log_likelihood']}")


if __name__ == "__main__":
    main()
