"""Gated cells: populations that are found, judged by the gates that a person drew."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from skmix import open_rows
from skmix.engine.model import FloatArray, IntArray

DATA = Path(__file__).parent / "data" / "cells"
# Files of each set.
FILES = {
    "multicenter": ("multicenter.npz",),
    "euroflow": ("euroflow_simulated.npz",),
    "mouse": ("68983.fcs", "68983_gates.csv"),
    "lines": ("harmony_cell_lines.npz",),
}
LINEAGE = ("CD8", "TCRyd", "TCRb", "NK1/1", "CD4", "CD19", "CD3")
# Sets with fewer samples are halved by cells.
FEWEST_SAMPLES = 4


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
