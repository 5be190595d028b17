"""Gated cells: the populations that `compose` and FlowSOM find, judged by the gates that a person drew.

    python benchmarks/cells.py --data FOLDER --flowsom PYTHON --out benchmarks/results/cells.csv

The evaluation is that of Weber and Robinson (Cytometry A 89:1084, 2016): all cells are clustered, the ungated
ones are dropped, clusters and gates are assigned one to one by F1, and gates count alike in the mean F1.

Ten sets, in a folder that is no part of the project, on the scale that both methods get:

- ``multicenter``: mass cytometry, 12 samples, arcsinh(x / 5); FlowRepository FR-FCM-ZYTT, as gated in the
  example of abbioinfo/CyAnno.
- ``euroflow``: simulated from EuroFlow data, 8 samples, logicle; debris and doublets are not gates;
  HristoInouzhe/optimalFlowData.
- ``mouse``: one sample, the lineage markers, compensated, arcsinh(x / 150); the example of saeyslab/FlowSOM.
- ``lines``: two cell lines in three batches, 20 principal components of transcripts; immunogenomics/harmony.
- ``gvhd``: 12 samples; FlowCAP-I. ``dlbcl``: one patient of FlowCAP-I.
- ``himc``: mass cytometry, 37 markers, arcsinh(x / 5); FR-FCM-Z2YR, via claradrachmann/cyDefine.
- ``hipc``: T cells of two donors, 7 markers; HIPC, via CytOpT. ``s1``: a blood sample, HuImmProfiling.
- ``seaflow``: ocean particles in 29 files of a cruise, log10; seaflow-uw/popcycle.
- ``himc2000``: 2,000 cells of ``himc``; no choice looks at it.

Each seed draws 30,000 cells, or all, and starts the methods. FlowSOM (PyPI's flowsom, by the interpreter
that ``--flowsom`` names, since its pins differ) has its defaults and is told k, the number of gates with
cells, and 2 k. `compose` is told nothing, and its tree is cut at k and 2 k. The same cells are dealt at
random into three and six files. Seconds are of processor time on one thread, without compilation.

``left out`` is the mean F1 with the constant of the rule, 0.4 in `skmix.samples.merging`, chosen on the other
nine sets: that with the largest mean of F1 less FlowSOM's better one. FlowSOM's runs are kept in a CSV beside
the results, and are not repeated.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from recording import parser_of, show
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from skmix import compose, open_rows
from skmix.engine.records import FloatArray, IntArray
from skmix.samples import merge_kernels
from skmix.samples.merging import cut

DATA = Path(__file__).parent / "data" / "cells"
# Files of each set.
FILES = {
    "multicenter": ("multicenter.npz",),
    "euroflow": ("euroflow_simulated.npz",),
    "mouse": ("68983.fcs", "68983_gates.csv"),
    "lines": ("harmony_cell_lines.npz",),
    "gvhd": ("gvhd_flowcap1.npz",),
    "himc": ("himc_cytof_z2yr.npz",),
    "hipc": ("hipc_tcell_stanford.npz",),
    "seaflow": ("seaflow_scope19.npz",),
    "dlbcl": ("flowcap_dlbcl_one_patient.csv.gz",),
    "s1": ("s1.fcs", "s1_labels.txt"),
}
# Markers of the mouse sample that tell lineages apart.
LINEAGE = ("CD8", "TCRyd", "TCRb", "NK1/1", "CD4", "CD19", "CD3")
# Of the sets, 2,000 cells of which are one more.
FEW = "himc2000"
N_CELLS = 30_000
# The rule divides populations where this constant is exceeded; the one that is built in, and those to choose.
BUILT_IN = 0.4
CONSTANTS = np.geomspace(0.2, 0.8, 29)


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

    def drawn(self, n_cells: int, seed: int) -> Cells:
        """Return random cells."""
        return self.of(np.random.default_rng(1000 + seed).permutation(len(self.X))[:n_cells])

    def dealt(self, n_files: int, seed: int) -> Cells:
        """Return the same cells, dealt at random into files."""
        return replace(self, sample=np.random.default_rng(seed).permutation(len(self.X)) % n_files)


def load(name: str, folder: Path | str = DATA) -> Cells:
    """Return the cells of a set."""
    paths = [Path(folder) / file for file in FILES[name]]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: name the folder of gated cells with --data.")
    if name == "mouse":
        rows = open_rows(paths[0], columns=list(LINEAGE), compensate=True, transform="arcsinh:150")
        gates = np.loadtxt(paths[1], dtype=str, delimiter=",", quotechar='"')
        return _gated(name, _cells_of(rows), gates, None, LINEAGE, ("Unlabeled",))
    if name == "s1":
        rows = open_rows(paths[0])
        gates = np.loadtxt(paths[1], dtype=str)
        return _gated(name, _cells_of(rows), gates, None, rows.feature_names, ("0",))
    if name == "dlbcl":
        table = np.loadtxt(paths[0], dtype=str, delimiter=",")
        X, gates = table[1:, :-1].astype(float), table[1:, -1]
        return _gated(name, X, gates, None, table[0, :-1], ("0",))
    # The labels of cell lines are text, which NumPy stores as objects.
    with np.load(paths[0], allow_pickle=name == "lines") as stored:
        arrays = {"sample": None, **stored}
    X, label = np.asarray(arrays["X"], dtype=float), arrays["label"]
    if name == "lines":
        markers = tuple(f"PC{i + 1}" for i in range(X.shape[1]))
        return _gated(name, X, label.astype(str), arrays["group"].astype(str), markers)
    if name in ("multicenter", "euroflow"):
        ungated = ("ungated",) if name == "multicenter" else arrays["noise_types"]
        X = np.arcsinh(X / 5.0) if name == "multicenter" else X
        return _gated(name, X, arrays["populations"][label], arrays["sample"], arrays["columns"], ungated)
    scales = {"none": np.asarray, "log10": np.log10, "arcsinh:5": lambda values: np.arcsinh(values / 5.0)}
    X = scales[str(arrays["transform"])](X)
    gates = np.array(["ungated", *arrays["populations"]])[label]
    return _gated(name, X, gates, arrays["sample"], arrays["markers"], ("ungated",))


def _cells_of(rows: Any) -> FloatArray:
    return np.concatenate([block.X for block in rows.blocks()])


def _gated(
    name: str, X: FloatArray, gates: Any, sample: Any, markers: Sequence[str], ungated: Sequence[str] = ()
) -> Cells:
    """Return cells whose gates and samples are numbered; the names in `ungated` are no gates."""
    names = tuple(str(gate) for gate in np.unique(gates) if gate not in ungated)
    numbers = np.full(len(X), -1)
    for number, gate in enumerate(names):
        numbers[gates == gate] = number
    sample = np.zeros(len(X), dtype=int) if sample is None else np.unique(sample, return_inverse=True)[1]
    return Cells(name, X, numbers, sample, tuple(map(str, markers)), names)


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


def simulate() -> Cells:
    """Return a few gated cells of four samples: three populations well apart, and ungated cells."""
    random = np.random.default_rng(0)
    sample, gates = np.repeat(np.arange(4), 150), np.tile([0, 0, 1, 1, 2, -1], 100)
    means = 8.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    X = means[gates] + random.normal(size=(len(gates), 2))
    return Cells("simulated", X, gates, sample, ("a", "b"), ("one", "two", "three"))


# ---------------------------------------------------------------- methods

# Run by another interpreter: the cluster of each cell, told each number.
FLOWSOM = """
import sys, time
import numpy as np
from flowsom import FlowSOM
from loguru import logger

logger.remove()
given, found = np.load(sys.argv[1]), {}
FlowSOM(given["X0"][:1000].copy(), n_clusters=2, seed=0)  # compiles
for i, told in enumerate(given["told"].tolist()):
    begun = time.process_time()
    model = FlowSOM(given[f"X{i}"], n_clusters=told, seed=i).model
    found[f"seconds{i}"] = time.process_time() - begun
    for k in (told, 2 * told):
        metaclusters = model.set_n_clusters(k).metacluster_model.fit_predict(model.codes)
        found[f"labels{i}_{k}"] = metaclusters[model.cluster_labels.astype(int)]
np.savez(sys.argv[2], **found)
"""


def run_flowsom(python: str, draws: Sequence[Cells]) -> list[dict[str, Any]]:
    """Return F1 and seconds of FlowSOM in each draw, told k and 2 k."""
    arrays: dict[str, Any] = {f"X{i}": cells.X for i, cells in enumerate(draws)}
    arrays["told"] = [cells.n_gates for cells in draws]
    with tempfile.TemporaryDirectory() as folder:
        places = [str(Path(folder) / name) for name in ("given.npz", "found.npz")]
        np.savez(places[0], **arrays)
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "NUMBA", "OPENBLAS", "MKL")}
        command = [python, "-W", "ignore", "-c", FLOWSOM, *places]
        subprocess.run(command, check=True, env={**os.environ, **one})
        with np.load(places[1]) as file:
            found = dict(file)
    rows = []
    for i, cells in enumerate(draws):
        k = cells.n_gates
        scores = [mean_f1(found[f"labels{i}_{told}"], cells.gates) for told in (k, 2 * k)]
        seconds = float(found[f"seconds{i}"])
        rows.append({"cells": cells.name, "seed": i, "k": scores[0], "2k": scores[1], "seconds": seconds})
    return rows


@dataclass(frozen=True)
class Found:
    """What `compose` finds in a draw."""

    f1: float  # told nothing
    n_populations: int
    told: tuple[float, float]  # F1, told k and 2 k
    f1_by_constant: FloatArray  # for CONSTANTS
    seconds: float
    of_files: tuple[tuple[float, int], tuple[float, int]]  # F1 and number in three and six files


def run_compose(cells: Cells, seed: int) -> Found:
    """Return what `compose` finds in a draw, told nothing and told a number, and in other files."""
    with threadpool_limits(1):
        begun = time.process_time()
        study = compose(cells.X, sample=cells.sample, n_jobs=1, random_state=seed)
        seconds = time.process_time() - begun
        populations, model = study.populations, study.model
        of_kernels = model.predict_proba(cells.X, y=cells.sample)

        def score(membership: IntArray) -> float:
            members = np.eye(membership.max() + 1)[membership]
            return mean_f1((of_kernels @ members).argmax(axis=1), cells.gates)

        tree = merge_kernels(model).tree
        heights = CONSTANTS / (CONSTANTS + BUILT_IN)
        numbers = [1 + int(np.sum(tree[:, 2] > height)) for height in heights]
        by_number = {n: score(cut(tree, n)) for n in {*numbers, cells.n_gates, 2 * cells.n_gates}}
        of_files = []
        for n_files in (3, 6):
            dealt = cells.dealt(n_files, seed)
            other = compose(dealt.X, sample=dealt.sample, n_jobs=1, random_state=seed)
            labels = other.populations.predict(other.model, dealt.X, y=dealt.sample)
            of_files.append((mean_f1(labels, cells.gates), len(other.populations)))
    return Found(
        score(populations.of_kernels),
        len(populations),
        (by_number[cells.n_gates], by_number[2 * cells.n_gates]),
        np.array([by_number[n] for n in numbers]),
        seconds,
        (of_files[0], of_files[1]),
    )


# ---------------------------------------------------------------- the benchmark


def left_out(gains: dict[str, FloatArray]) -> dict[str, int]:
    """Return the place of the constant to use for each set, given gains over FlowSOM by constant."""
    chosen = {}
    for name in gains:
        others = [gain for other, gain in gains.items() if other not in (name, FEW)] or [gains[name]]
        chosen[name] = int(np.argmax(np.mean(others, axis=0)))
    return chosen


def _summary(found: dict[str, list[Found]], flowsom: list[dict[str, Any]], sizes: dict[str, Cells]) -> Any:
    """Yield a row for each set, and one with the means of the ten sets."""
    flows = pd.DataFrame(flowsom).astype({"k": float, "2k": float, "seconds": float})
    theirs = flows.assign(better=flows[["k", "2k"]].max(axis=1)).groupby("cells").mean(numeric_only=True)
    curves = {name: np.mean([run.f1_by_constant for run in runs], axis=0) for name, runs in found.items()}
    gains = {name: curve - theirs["better"][name] for name, curve in curves.items()}
    chosen = left_out(gains)
    rows = []
    for name, runs in found.items():
        of_three, of_six = (np.transpose([run.of_files[i] for run in runs]) for i in (0, 1))
        f1, told = np.array([run.f1 for run in runs]), np.mean([run.told for run in runs], axis=0)
        rows.append(
            {
                "cells": name,
                "cells × markers": f"{len(sizes[name].X)} × {sizes[name].X.shape[1]}",
                "gates": sizes[name].n_gates,
                "FlowSOM, better of k and 2k": theirs["better"][name],
                "compose, left out": theirs["better"][name] + gains[name][chosen[name]],
                "compose": f1.mean(),
                "SD": f1.std(ddof=min(1, len(f1) - 1)),
                "populations": np.mean([run.n_populations for run in runs]),
                "in 3 files": of_three[0].mean(),
                "in 6 files": of_six[0].mean(),
                "populations in 6 files": of_six[1].mean(),
                "FlowSOM, k": theirs["k"][name],
                "compose, k": told[0],
                "FlowSOM, 2k": theirs["2k"][name],
                "compose, 2k": told[1],
                "FlowSOM, s": theirs["seconds"][name],
                "compose, s": np.mean([run.seconds for run in runs]),
            }
        )
    ten = [row for row in rows if row["cells"] != FEW]
    means = {key: np.mean([row[key] for row in ten]) for key in [*rows[0]][3:]} if ten else {}
    rows.append({"cells": "mean of ten", "cells × markers": "–", "gates": "–", **means})
    for row in rows:
        yield {key: _text(key, value) for key, value in row.items()}


def _text(key: str, value: Any) -> str:
    if isinstance(value, str | int):
        return str(value)
    digits = 1 if key.startswith("populations") else 2 if key.endswith(", s") else 3
    return f"{value:.{digits}f}"


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the gated cells")
    parser.add_argument("--flowsom", metavar="PYTHON", help="interpreter that has flowsom")
    parser.add_argument("--only", nargs="+", metavar="SET", help=f"of {', '.join([*FILES, FEW])}")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="sets and seeds at a time")
    arguments = parser.parse_args()
    names = ["simulated"] if arguments.small else arguments.only or [*FILES, FEW]
    seeds = range(1 if arguments.small else arguments.seeds)
    if unknown := [name for name in names if name not in (*FILES, FEW, "simulated")]:
        parser.error(f"no set is named {unknown[0]!r}; there are {', '.join([*FILES, FEW])}.")
    draws: dict[str, list[Cells]] = {}
    for name in names:
        whole = simulate() if arguments.small else load(name.removesuffix("2000"), arguments.data)
        whole = replace(whole, name=name)
        draws[name] = [whole.drawn(2000 if name == FEW else N_CELLS, seed) for seed in seeds]
    kept = None if arguments.out is None else arguments.out.with_name(f"{arguments.out.stem}_flowsom.csv")
    flowsom: list[dict[str, Any]] = []
    if kept is not None and kept.exists():
        flowsom = pd.read_csv(kept, dtype=str).to_dict("records")
    for name, of_set in draws.items():
        if len([row for row in flowsom if row["cells"] == name]) >= len(seeds):
            continue
        flowsom = [row for row in flowsom if row["cells"] != name]
        if arguments.flowsom is not None:
            flowsom += run_flowsom(arguments.flowsom, of_set)
        else:  # nothing to compare with
            unknown_run = dict.fromkeys(("k", "2k", "seconds"), float("nan"))
            flowsom += [{"cells": name, "seed": seed, **unknown_run} for seed in seeds]
    jobs = [(name, seed) for seed in seeds for name in names]
    runs = Parallel(arguments.jobs)(delayed(run_compose)(draws[name][seed], seed) for name, seed in jobs)
    found = {name: [run for run, job in zip(runs, jobs, strict=True) if job[0] == name] for name in names}
    rows = list(_summary(found, flowsom, {name: of_set[0] for name, of_set in draws.items()}))
    show(rows, arguments.out)
    if arguments.flowsom is not None and kept is not None:
        pd.DataFrame(flowsom).to_csv(kept, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
