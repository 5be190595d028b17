"""Gated cells: the populations that methods find, judged by the gates that a person drew.

    python benchmarks/cells.py --data FOLDER --flowsom PYTHON --out benchmarks/results/cells.json

The evaluation is that of Weber and Robinson (Cytometry A 89:1084, 2016): all cells are clustered, the ungated
ones are dropped, clusters and gates are assigned one to one by F1, and gates count alike in the mean F1.

Four sets, in a folder that is no part of the project, on the scale that all methods get:

- ``multicenter``: CyTOF, 12 samples, 8 markers, 4 gates, arcsinh(x / 5); FlowRepository FR-FCM-ZYTT, as gated
  in the example of abbioinfo/CyAnno. ``multicenter.npz``
- ``euroflow``: simulated from EuroFlow data, 8 samples, 10 channels on their logicle scale, 19 gates; debris
  and doublets are not gates; HristoInouzhe/optimalFlowData. ``euroflow_simulated.npz``
- ``mouse``: one sample, 7 lineage markers, 6 gates, compensated, arcsinh(x / 150); the example of
  saeyslab/FlowSOM. ``68983.fcs`` and ``68983_gates.csv``
- ``lines``: two cell lines in three batches, 20 principal components of their transcripts;
  immunogenomics/harmony. ``harmony_cell_lines.npz``

A part of a set is drawn anew for each seed: random samples, 5,000 random cells of each; a random half of the
samples (h1 for choices, h2 to judge them, always the same), or of the cells if there are few samples; the
same cells dealt at random into 3 or 6 files. Methods are told k, the number of gates that have cells in the
part, or 2 k, or nothing:

- FlowSOM (PyPI's flowsom, by the interpreter that ``--flowsom`` names, since its pins differ), with its
  defaults: a map of 10 × 10 nodes, metaclustered by average linkage. In Python it cannot choose the number of
  metaclusters; ``left alone`` is the rule of the R package (`MetaClustering`, at most 20): the elbow of the
  sums of squares of the nodes in 1 to 20 metaclusters.
- k-means of scikit-learn, as by default.
- `SharedKernelMixture` with k-means starts: k or 2 k kernels as clusters, or 2 k merged into k.
- `compose`, as by default.

Each method has one thread, and seconds are of processor time, without compilation. Results of methods and
parts that are not run again are kept in the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture, compose, open_rows
from skmix.data.write import replacing
from skmix.engine.records import FloatArray, IntArray
from skmix.samples import merge_kernels

DATA = Path(__file__).parent / "data" / "cells"
# Files of each set.
FILES = {
    "multicenter": ("multicenter.npz",),
    "euroflow": ("euroflow_simulated.npz",),
    "mouse": ("68983.fcs", "68983_gates.csv"),
    "lines": ("harmony_cell_lines.npz",),
}
# Markers of the mouse sample that tell lineages apart.
LINEAGE = ("CD8", "TCRyd", "TCRb", "NK1/1", "CD4", "CD19", "CD3")
# Sets with fewer samples are halved by cells.
FEWEST_SAMPLES = 4
N_CELLS = 5000
# Metaclusters that FlowSOM tries if it is left alone, as many as in R.
MOST_METACLUSTERS = 20
# Share of its neighbours in a smoothed sum of squares, as in R.
SMOOTHING = 0.2


@dataclass(frozen=True)
class Cells:
    """Cells (N, M) on the scale that they are clustered on, their gates (N,) and samples (N,).

    The gate of a cell in no gate is -1.
    """

    name: str
    X: FloatArray
    gates: IntArray
    sample: IntArray
    markers: tuple[str, ...]
    gate_names: tuple[str, ...]

    @property
    def n_gates(self) -> int:
        """Number of gates that have cells."""
        return len(np.unique(self.gates[self.gates >= 0]))

    def of(self, rows: IntArray) -> Cells:
        """Return some of the cells, in the order they have."""
        rows = np.sort(rows)
        return replace(self, X=self.X[rows], gates=self.gates[rows], sample=self.sample[rows])


def load(name: str, folder: Path | str = DATA) -> Cells:
    """Return the cells of a set: 'multicenter', 'euroflow', 'mouse' or 'lines'."""
    paths = [Path(folder) / file for file in FILES[name]]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: name the folder of gated cells with --data.")
    if name == "mouse":
        rows = open_rows(paths[0], columns=list(LINEAGE), compensate=True, transform="arcsinh:150")
        X = np.concatenate([block.X for block in rows.blocks()])
        with paths[1].open(newline="", encoding="utf-8") as file:
            own = np.array([line[0] for line in csv.reader(file)])
        return _gated(name, X, own, np.zeros(len(X)), LINEAGE, ("Unlabeled",))
    # The labels of cell lines are text, which NumPy stores as objects.
    with np.load(paths[0], allow_pickle=name == "lines") as found:
        X, label = np.asarray(found["X"], dtype=float), found["label"]
        if name == "lines":
            markers = tuple(f"PC{i + 1}" for i in range(X.shape[1]))
            return _gated(name, X, label.astype(str), found["group"].astype(str), markers)
        own, markers = found["populations"][label], tuple(map(str, found["columns"]))
        if name == "multicenter":
            return _gated(name, np.arcsinh(X / 5.0), own, found["sample"], markers, ("ungated",))
        return _gated(name, X, own, found["sample"], markers, found["noise_types"])


def _gated(
    name: str,
    X: FloatArray,
    own: np.ndarray,
    sample: np.ndarray,
    markers: tuple[str, ...],
    ungated: np.ndarray | tuple[str, ...] = (),
) -> Cells:
    """Return cells whose gates and samples are numbered; the names in `ungated` are no gates."""
    names = tuple(str(each) for each in np.unique(own) if each not in ungated)
    gates = np.full(len(X), -1)
    for i, each in enumerate(names):
        gates[own == each] = i
    return Cells(name, X, gates, np.unique(sample, return_inverse=True)[1], markers, names)


def subset(cells: Cells, n_samples: int | None = None, n_cells: int | None = None, seed: int = 0) -> Cells:
    """Return random samples, and random cells of each; None takes all."""
    random = np.random.default_rng(seed)
    samples = np.unique(cells.sample)
    if n_samples is not None:
        samples = np.sort(random.choice(samples, n_samples, replace=False))
    rows = []
    for each in samples:
        own = np.flatnonzero(cells.sample == each)
        rows.append(own if n_cells is None else random.permutation(own)[:n_cells])
    return cells.of(np.concatenate(rows))


def half(cells: Cells, which: str) -> Cells:
    """Return 'h1', the half for choices, or 'h2', the half that judges them; always the same halves.

    Halves are of samples, or of cells if there are few samples.
    """
    random = np.random.default_rng(20161)
    samples = np.unique(cells.sample)
    part = {"h1": 0, "h2": 1}[which]
    if len(samples) < FEWEST_SAMPLES:
        return cells.of(np.array_split(random.permutation(len(cells.X)), 2)[part])
    chosen = np.array_split(random.permutation(samples), 2)[part]
    return cells.of(np.flatnonzero(np.isin(cells.sample, chosen)))


def split(cells: Cells, n_files: int, seed: int = 0, *, pooled: bool = False) -> Cells:
    """Return the same cells in other samples: those of each sample are dealt at random into files.

    With `pooled`, the cells of all samples are dealt into this number of files together.
    """
    random = np.random.default_rng(seed)
    old = np.zeros_like(cells.sample) if pooled else cells.sample
    new = np.empty_like(old)
    for each in np.unique(old):
        rows = random.permutation(np.flatnonzero(old == each))
        new[rows] = n_files * each + np.arange(len(rows)) % n_files
    return replace(cells, sample=new)


def mean_f1(labels: IntArray, gates: IntArray) -> float:
    """Return the mean F1 of Weber and Robinson (2016) of clusters (N,) and gates (N,).

    Ungated cells (gate -1) are dropped. Clusters and gates are assigned one to one such that the sum of F1 is
    largest; a gate without a cluster scores 0; the mean over gates is unweighted. Cells with a negative label
    are in no cluster.
    """
    is_gated = gates >= 0
    own = np.unique(gates[is_gated], return_inverse=True)[1]
    clusters, found = np.unique(labels[is_gated], return_inverse=True)
    both = np.zeros((len(clusters), own.max() + 1))
    np.add.at(both, (found, own), 1.0)
    sizes = both.sum(axis=0)
    both = both[clusters >= 0]
    f1 = 2.0 * both / (both.sum(axis=1, keepdims=True) + sizes)
    return float(f1[linear_sum_assignment(-f1)].sum() / len(sizes))


def adjusted_rand(labels: IntArray, gates: IntArray) -> float:
    """Return the adjusted Rand index of clusters and gates, on gated cells."""
    return float(adjusted_rand_score(gates[gates >= 0], labels[gates >= 0]))


# ---------------------------------------------------------------- parts


@dataclass(frozen=True)
class Part:
    """Random cells of a set: of some samples or of a half, perhaps dealt into files."""

    of: str
    n_samples: int | None = None
    n_cells: int | None = N_CELLS
    half: str | None = None
    n_files: int | None = None

    def draw(self, cells: Cells, seed: int) -> Cells:
        """Return the cells that a seed draws from the set."""
        if self.half is not None:
            cells = half(cells, self.half)
        cells = subset(cells, self.n_samples, self.n_cells, seed)
        return cells if self.n_files is None else split(cells, self.n_files, seed, pooled=True)


def _parts() -> dict[str, Part]:
    """Return the parts by name: those of a set begin with its name."""
    found = {}
    for name, samples in (("multicenter", (3, 4, 6)), ("euroflow", (3, 4)), ("mouse", ()), ("lines", ())):
        n_cells = N_CELLS if samples else None
        found[name] = Part(name, n_cells=n_cells)
        found |= {f"{name}/{n} samples": Part(name, n_samples=n) for n in samples}
        if name == "mouse":
            found["mouse/5000 cells"] = Part(name)
        found |= {f"{name}/{each}": Part(name, n_cells=n_cells, half=each) for each in ("h1", "h2")}
        found |= {f"{name}/{n} files": Part(name, n_cells=n_cells, n_files=n) for n in (3, 6)}
    return found


PARTS = _parts()

# ---------------------------------------------------------------- methods

# Run by another interpreter: nodes of the cells, codes of the nodes, and metaclusters of the nodes.
FLOWSOM = """
import sys, time
from importlib.metadata import version
import numpy as np
from flowsom import FlowSOM
from loguru import logger

logger.remove()
given, found = np.load(sys.argv[1]), {"version": version("flowsom")}
FlowSOM(given["X0"][:1000].copy(), n_clusters=2, seed=0)  # compiles
for i in range(int(given["n"])):
    begun = time.process_time()
    model = FlowSOM(given[f"X{i}"], n_clusters=int(given["told"][i]), seed=int(given["seeds"][i])).model
    found[f"seconds{i}"] = time.process_time() - begun
    found[f"nodes{i}"], found[f"codes{i}"] = model.cluster_labels.astype(int), model.codes
    found[f"told{i}"] = model.metacluster_labels
    begun = time.process_time()
    for k in given["numbers"]:
        metaclusters = model.set_n_clusters(int(k)).metacluster_model.fit_predict(model.codes)
        found[f"metaclusters{i}_{k}"] = metaclusters
    found[f"more{i}"] = time.process_time() - begun
np.savez(sys.argv[2], **found)
"""


@dataclass(frozen=True)
class Found:
    """The clusters (N,) of cells, and the seconds that they took."""

    labels: IntArray
    seconds: float


def run_flowsom(
    python: str, parts: Sequence[Cells], seeds: Sequence[int]
) -> tuple[str, dict[str, list[Found]]]:
    """Return FlowSOM's version and what it finds in each part: told k or 2 k, and left alone."""
    doubles = [2 * cells.n_gates for cells in parts]
    numbers = sorted({*range(1, MOST_METACLUSTERS + 1), *doubles})
    arrays: dict[str, Any] = {f"X{i}": cells.X for i, cells in enumerate(parts)}
    arrays |= {"n": len(parts), "seeds": seeds, "numbers": numbers, "told": [n // 2 for n in doubles]}
    with tempfile.TemporaryDirectory() as folder:
        places = [str(Path(folder) / name) for name in ("given.npz", "found.npz")]
        np.savez(places[0], **arrays)
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "NUMBA", "OPENBLAS", "MKL")}
        subprocess.run(
            [python, "-W", "ignore", "-c", FLOWSOM, *places], check=True, env={**os.environ, **one}
        )
        with np.load(places[1]) as file:
            found = dict(file)
    results: dict[str, list[Found]] = {name: [] for name in FLOWSOM_METHODS}
    for i, double in enumerate(doubles):
        nodes, seconds = found[f"nodes{i}"], float(found[f"seconds{i}"])
        tried = [found[f"metaclusters{i}_{k}"] for k in range(1, MOST_METACLUSTERS + 1)]
        own = tried[elbow([sum_of_squares(found[f"codes{i}"], each) for each in tried])]
        kinds = [found[f"told{i}"], found[f"metaclusters{i}_{double}"][nodes], own[nodes]]
        for name, labels in zip(FLOWSOM_METHODS, kinds, strict=True):
            more = float(found[f"more{i}"]) if name == "FlowSOM, left alone" else 0.0
            results[name].append(Found(labels, seconds + more))
    return str(found["version"]), results


def sum_of_squares(X: FloatArray, labels: IntArray) -> float:
    """Return the sum of squared distances of rows (N, M) from the means of their clusters (N,)."""
    return float(sum(np.sum((X[labels == k] - X[labels == k].mean(axis=0)) ** 2) for k in np.unique(labels)))


def elbow(sums: Sequence[float]) -> int:
    """Return the index of the elbow of sums of squares of 1, 2 … clusters, as FlowSOM finds it in R.

    They are smoothed one after the other; then the elbow begins the second of the two straight lines that
    leave the smallest absolute residuals.
    """
    smoothed = np.array(sums, dtype=float)
    for i in range(1, len(smoothed) - 1):
        neighbours = smoothed[i - 1] + smoothed[i + 1]
        smoothed[i] = (1.0 - SMOOTHING) * smoothed[i] + SMOOTHING / 2.0 * neighbours
    places = np.arange(len(smoothed))

    def residuals(own: slice) -> float:
        x, y = places[own], smoothed[own]
        line = np.polyfit(x, y, 1) if len(x) > 1 else np.array([0.0, y[0]])
        return float(np.abs(y - np.polyval(line, x)).sum())

    candidates = range(1, len(smoothed) - 1)
    return min(candidates, key=lambda i: residuals(slice(None, i)) + residuals(slice(i, None)))


def k_means(factor: int) -> Callable[[Cells, int], IntArray]:
    """Return k-means told a multiple of the number of gates."""
    return lambda cells, seed: KMeans(factor * cells.n_gates, random_state=seed).fit_predict(cells.X)


def mixture(factor: int, *, merged: bool = False) -> Callable[[Cells, int], IntArray]:
    """Return a mixture told a multiple of the number of gates, perhaps merged into this number."""

    def find(cells: Cells, seed: int) -> IntArray:
        model = SharedKernelMixture(factor * cells.n_gates, init="k-means", n_jobs=1, random_state=seed).fit(
            cells.X, cells.sample
        )
        populations = merge_kernels(model, n_populations=(1 if merged else factor) * cells.n_gates)
        return populations.predict(model, cells.X, y=cells.sample)

    return find


def default(cells: Cells, seed: int) -> IntArray:
    """Return the populations that `compose` finds by itself."""
    study = compose(cells.X, sample=cells.sample, n_jobs=1, random_state=seed)
    assert study.populations is not None
    return study.populations.predict(study.model, cells.X, y=cells.sample)


FLOWSOM_METHODS = ("FlowSOM, told k", "FlowSOM, told 2k", "FlowSOM, left alone")
METHODS: dict[str, Callable[[Cells, int], IntArray]] = {
    "k-means, told k": k_means(1),
    "k-means, told 2k": k_means(2),
    "mixture, told k": mixture(1),
    "mixture, told 2k": mixture(2),
    "mixture, 2k merged to k": mixture(2, merged=True),
    "compose": default,
}
# Methods that use the samples of cells.
BY_SAMPLE = ("mixture, told k", "compose")


def run_method(
    method: Callable[[Cells, int], IntArray], parts: Sequence[Cells], seeds: Sequence[int]
) -> list[Found]:
    """Return what a method finds in each part."""
    few = parts[0].of(np.random.default_rng(0).permutation(len(parts[0].X))[:1000])
    method(few, 0)  # compiles
    found = []
    for cells, seed in zip(parts, seeds, strict=True):
        begun = time.process_time()
        labels = method(cells, seed)
        found.append(Found(labels, time.process_time() - begun))
    return found


def judged(parts: Sequence[Cells], found: Sequence[Found]) -> dict[str, list[float]]:
    """Return mean F1, adjusted Rand index, number of populations and seconds by seed."""
    both = list(zip(parts, found, strict=True))
    return {
        "f1": [round(mean_f1(own.labels, cells.gates), 4) for cells, own in both],
        "ari": [round(adjusted_rand(own.labels, cells.gates), 4) for cells, own in both],
        "populations": [len(np.unique(own.labels[own.labels >= 0])) for _, own in both],
        "seconds": [round(own.seconds, 2) for _, own in both],
    }


# ---------------------------------------------------------------- the benchmark


def simulate() -> Cells:
    """Return a few gated cells of four samples: three populations well apart, and ungated cells."""
    random = np.random.default_rng(0)
    sample, gates = np.repeat(np.arange(4), 150), np.tile([0, 0, 1, 1, 2, -1], 100)
    means = 8.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    X = means[gates] + random.normal(size=(len(gates), 2))
    return Cells("simulated", X, gates, sample, ("a", "b"), ("one", "two", "three"))


def show(results: dict[str, Any], names: Sequence[str]) -> None:
    """Print the results of parts."""
    table = Table(title="mean over seeds ± standard deviation")
    for title in ("part", "method", "F1", "least", "most", "ARI", "populations", "seconds"):
        table.add_column(title, justify="left" if title in ("part", "method") else "right", no_wrap=True)
    for name in names:
        for method, runs in results["parts"][name]["methods"].items():
            f1, numbers = np.array(runs["f1"]), runs["populations"]
            table.add_row(
                name,
                method,
                f"{f1.mean():.3f} ± {f1.std(ddof=1) if len(f1) > 1 else 0.0:.3f}",
                f"{f1.min():.3f}",
                f"{f1.max():.3f}",
                f"{np.mean(runs['ari']):.3f}",
                f"{np.mean(numbers):.1f} ({min(numbers)}–{max(numbers)})",
                f"{np.mean(runs['seconds']):.1f}",
            )
    Console(width=150).print(table)


def measure(
    results: dict[str, Any],
    name: str,
    parts: Sequence[Cells],
    methods: Sequence[str],
    python: str | None,
) -> None:
    """Run methods on a part and put what they find into the results, in the order of all methods."""
    seeds = range(len(parts))
    one = parts[0]
    own = results["parts"].setdefault(name, {"methods": {}})
    own |= {"samples": len(np.unique(one.sample)), "cells": len(one.X), "markers": one.X.shape[1]}
    own["gates"] = [cells.n_gates for cells in parts]
    if python is not None and any(each in methods for each in FLOWSOM_METHODS):
        results["versions"]["flowsom"], found = run_flowsom(python, parts, seeds)
        own["methods"] |= {each: judged(parts, found[each]) for each in FLOWSOM_METHODS if each in methods}
    for each in METHODS:
        if each in methods:
            own["methods"][each] = judged(parts, run_method(METHODS[each], parts, seeds))
    order = [*FLOWSOM_METHODS, *METHODS]
    own["methods"] = {each: own["methods"][each] for each in order if each in own["methods"]}


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the gated cells")
    parser.add_argument("--flowsom", metavar="PYTHON", help="interpreter that has flowsom")
    parser.add_argument("--parts", nargs="+", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="methods to run; all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="JSON file to write; other results in it are kept")
    parser.add_argument("--small", action="store_true", help="simulated cells, to check that everything runs")
    arguments = parser.parse_args()
    known = [*FLOWSOM_METHODS, *METHODS]
    methods = arguments.only or known
    chosen = ["simulated"] if arguments.small else arguments.parts or list(PARTS)
    for kind, given, there in (("method", methods, known), ("part", chosen, [*PARTS, "simulated"])):
        if unknown := [each for each in given if each not in there]:
            parser.error(f"no {kind} is named {unknown[0]!r}; there are {', '.join(there)}.")
    if arguments.flowsom is None:
        print("FlowSOM is left out: name an interpreter that has it with --flowsom.")
    results: dict[str, Any] = {"parts": {}, "versions": {}}
    if arguments.out is not None and arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    results["versions"] |= {each: version(each) for each in ("skmix", "scikit-learn", "numpy")}
    results["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    loaded = {"simulated": simulate()} if arguments.small else {}
    with threadpool_limits(1):
        for name in chosen:
            part = Part("simulated", n_cells=None) if arguments.small else PARTS[name]
            if part.of not in loaded:
                loaded = {part.of: load(part.of, arguments.data)}
            parts = [
                part.draw(loaded[part.of], seed) for seed in range(1 if arguments.small else arguments.seeds)
            ]
            # Files are nothing to methods that do not use the samples of cells.
            own = [each for each in methods if part.n_files is None or each in BY_SAMPLE]
            measure(results, name, parts, own, arguments.flowsom)
            show(results, [name])
            if arguments.out is not None:
                with replacing(arguments.out) as file:
                    file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
