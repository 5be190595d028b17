"""Gated cells: do shifts, hierarchical weights or t kernels help the mixture of real samples?

    python benchmarks/cells_options.py --data FOLDER --out benchmarks/results/cells_options.json

Cells are those of ``cells.py``. Samples of MultiCenter are from two batches, 8 and 4 of them: between batches
the markers of a gate differ by up to two units of arcsinh, within them by much less. The cell lines are three
batches: one line, the other, and both. Each seed draws samples to train on (a random half of each batch, or
one batch), and 2,000 cells of each for training and 2,000 for judging; of cell lines, half of the cells. As
in `compose`, kernels are found in the cells of all training samples together; all fits start from them:

- plain: Gaussian kernels, independent weights;
- shifts: ``group_shift="auto"``;
- hierarchical: ``weight_prior="hierarchical"``;
- t: ``tail="t"``.

Of each fit, it keeps

- ``f1``: mean F1 of the populations that `merge_kernels` finds, on training cells, and ``f1_new``, on
  held-out samples.
- ``likelihood``: mean log-density of held-out cells of the training samples, and ``likelihood_new``, of
  held-out samples, whose weights (and shifts) `Study.apply_to` finds from other cells of the same sample.
- ``error``: of the proportions of gates in held-out samples that `Study.apply_to` finds from 100, 300 and all
  cells. Training cells tell how populations divide into gates, with ungated cells as one of them. The error
  is the total variation distance from the proportions in the whole sample. The same error of the gated cells
  themselves, among as many cells, is what chance alone does.
- ``seconds`` of processor time of the fit, on one thread, without the start.

It takes some minutes on one core.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cells import DATA, Cells, load, mean_f1, simulate
from recording import parser_of, show
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture, Study
from skmix.data.write import replacing
from skmix.engine.records import FloatArray, IntArray
from skmix.samples import merge_kernels
from skmix.samples.starting import start_of

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shifts": {"group_shift": "auto"},
    "hierarchical": {"weight_prior": "hierarchical"},
    "t": {"tail": "t"},
}
# Batch of each sample, in the order of `load`; the lines are sorted by name: half, jurkat, t293.
BATCHES = {
    "multicenter": (0,) * 8 + (1,) * 4,
    "euroflow": (0,) * 8,
    "lines": (1, 0, 0),
    "simulated": (0, 0, 1, 1),
}
N_CELLS = 2000
FEW = (100, 300)


@dataclass(frozen=True)
class Case:
    """A set of cells, the number of kernels, and the held-out samples: half of them, a batch, none."""

    of: str
    n_kernels: int
    held_out: str

    def samples(self, random: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return the samples to train on and those that are held out."""
        batches = np.array(BATCHES[self.of])
        chosen = batches == 0
        if self.held_out != "batch":
            chosen = np.ones(len(batches), dtype=bool)
        if self.held_out == "half":
            for each in np.unique(batches):
                own = random.permutation(np.flatnonzero(batches == each))
                chosen[own[: len(own) // 2]] = False
        return np.flatnonzero(chosen), np.flatnonzero(~chosen)


CASES = (
    Case("multicenter", 16, "half"),
    Case("multicenter", 32, "half"),
    Case("multicenter", 64, "half"),
    Case("multicenter", 32, "batch"),
    Case("euroflow", 32, "half"),
    Case("lines", 4, "none"),
    Case("lines", 4, "batch"),
)


def draw(cells: Cells, samples: IntArray, random: np.random.Generator) -> tuple[Cells, Cells]:
    """Return random cells of samples for training, and others for judging, equally many."""
    parts: tuple[list[IntArray], list[IntArray]] = [], []
    for each in samples:
        own = random.permutation(np.flatnonzero(cells.sample == each))
        n = min(N_CELLS, len(own) // 2)
        parts[0].append(own[:n])
        parts[1].append(own[n : 2 * n])
    one, other = (np.concatenate(part) for part in parts)
    return cells.of(one), cells.of(other)


def few_of(cells: Cells, n_cells: int, random: np.random.Generator) -> Cells:
    """Return some random cells of each sample."""
    rows = random.permutation(len(cells.X))
    return cells.of(
        np.concatenate([rows[cells.sample[rows] == each][:n_cells] for each in np.unique(cells.sample)])
    )


def of_samples(study: Study) -> SharedKernelMixture:
    """Return the mixture with the weights and shifts of the study's own samples, which may be new."""
    model, samples = copy(study.model), study._samples
    model.classes_, model.weights_ = samples.names, samples.weights
    model.class_prior_ = samples.sizes / samples.sizes.sum()
    if samples.shifts is not None:
        model.group_shifts_ = samples.shifts
    return model


def proportions_of_gates(cells: Cells, samples: IntArray) -> FloatArray:
    """Return the proportions (L, gates + 1) of gates in samples; the last is of ungated cells."""
    n = len(cells.gate_names) + 1
    counts = np.stack([np.bincount(cells.gates[cells.sample == each] % n, minlength=n) for each in samples])
    return counts / counts.sum(axis=1, keepdims=True)


def distance(found: FloatArray, true: FloatArray) -> float:
    """Return the mean total variation distance of proportions (L, G)."""
    return float(0.5 * np.abs(found - true).sum(axis=1).mean())


def judge(
    model: SharedKernelMixture,
    train: Cells,
    test: Cells,
    new: dict[int, Cells],
    new_test: Cells,
    whole: Cells,
) -> dict[str, float]:
    """Return how good a fit is; `new` has the cells of held-out samples by the number to use of each."""
    populations = merge_kernels(model)
    of_cells = populations.predict_proba(model, train.X, y=train.sample)
    result = {
        "populations": len(populations),
        "f1": mean_f1(of_cells.argmax(axis=1), train.gates),
        "likelihood": model.score(test.X, test.sample),
    }
    gates = np.eye(len(train.gate_names) + 1)[train.gates]
    both = of_cells.T @ gates
    # (G, gates + 1): how populations divide into gates.
    shares = both / np.maximum(both.sum(axis=1, keepdims=True), 1e-300)
    study = Study(model, populations)
    for n_cells, cells in new.items():
        own = of_samples(study.apply_to(cells.X, sample=cells.sample))
        # All weights (L, G), without the intervals that a table of proportions would have.
        weights = own.weights_.T @ populations.members
        true = proportions_of_gates(whole, own.classes_)
        result[f"error_{n_cells}"] = distance(weights @ shares, true)
        result[f"likelihood_{n_cells}"] = own.score(new_test.X, new_test.sample)
    if new:
        labels = populations.predict(own, new_test.X, y=new_test.sample)
        result["f1_new"] = mean_f1(labels, new_test.gates)
        result["likelihood_new"] = result.pop(f"likelihood_{n_cells}")
        result["error_new"] = result.pop(f"error_{n_cells}")
    return result


def run(case: Case, cells: Cells, seed: int, few: tuple[int, ...] = FEW) -> dict[str, dict[str, float]]:
    """Return what each option gives, and the error of the gated cells themselves."""
    random = np.random.default_rng(seed)
    samples, others = case.samples(random)
    train, test = draw(cells, samples, random)
    new, new_test, gated = {}, test, {}
    if len(others):
        all_new, new_test = draw(cells, others, random)
        new = {n: few_of(all_new, n, random) for n in (*few, len(all_new.X))}
        true = proportions_of_gates(cells, others)
        for name, part in zip([*map(str, few), "new"], new.values(), strict=True):
            gated[f"error_{name}"] = distance(proportions_of_gates(part, others), true)
    settings = {"covariance_type": "diag", "variance_floor": 0.01, "n_jobs": 1, "random_state": seed}
    start = start_of(train.X, case.n_kernels, settings)
    start["weights"] = np.repeat(start["weights"], len(samples), axis=1)
    found: dict[str, dict[str, float]] = {"gated cells": gated}
    for name, option in OPTIONS.items():
        begun = time.process_time()
        model = SharedKernelMixture(len(start["means"]), init=start, **settings, **option).fit(
            train.X, train.sample
        )
        seconds = time.process_time() - begun
        found[name] = {**judge(model, train, test, new, new_test, cells), "seconds": seconds}
        if name == "shifts":
            found[name]["strength"] = min(float(model.group_shift_), 1e9)
    return {name: {key: round(value, 5) for key, value in own.items()} for name, own in found.items()}


def means_of(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the means over seeds of each fit."""
    keys = ("f1", "f1_new", "likelihood", "likelihood_new", *(f"error_{n}" for n in FEW), "error_new")
    for case in results:
        for name in case["runs"][0]:
            own = [run[name] for run in case["runs"]]
            means = {
                key: f"{np.mean([each[key] for each in own]):.4f}" if key in own[0] else "–"
                for key in ("populations", *keys, "seconds")
            }
            yield {**{key: case[key] for key in ("cells", "held_out", "kernels")}, "fit": name, **means}


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the gated cells")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    cases, n_seeds, few = CASES, arguments.seeds, FEW
    if arguments.small:
        cases, n_seeds, few = (Case("simulated", 4, "half"),), 1, (20,)
    results: list[dict[str, Any]] = [
        {"cells": case.of, "held_out": case.held_out, "kernels": case.n_kernels, "runs": []} for case in cases
    ]
    loaded = {} if not arguments.small else {"simulated": simulate()}
    with threadpool_limits(1):
        for seed in range(n_seeds):
            for case, result in zip(cases, results, strict=True):
                if case.of not in loaded:
                    loaded[case.of] = load(case.of, arguments.data)
                result["runs"].append(run(case, loaded[case.of], seed, few))
            if arguments.out is not None:
                with replacing(arguments.out) as file:
                    file.write((json.dumps(results, indent=1) + "\n").encode())
    show(means_of(results), None)


if __name__ == "__main__":
    main()
