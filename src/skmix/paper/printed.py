"""The paper's printed numbers, read from CSV files in the folder `printed`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .variants import VARIANTS

METRICS = ("Med Acc", "Mean Acc", "Std Acc", "Med MIoU", "Mean MIoU", "Std MIoU")
RANKED_METRICS = ("Med Acc", "Mean Acc", "Med MIoU", "Mean MIoU")
OK_RUNS = "OK runs"


class SweepEntry(NamedTuple):
    """An entry of table 5: mean and standard deviation of the accuracy over the counted ones of 100 runs."""

    mean: float
    std: float
    counted: int


@dataclass(frozen=True)
class PublishedValues:
    """The paper's tables and confusion matrices."""

    all_runs: dict[tuple[str, str], float]  # table 1, by metric and variant
    ranking_all_runs: dict[str, tuple[str, ...]]  # table 2: variants, best first, by metric
    ok_runs: dict[tuple[str, str], float]  # table 3, with "OK runs" among the metrics
    ranking_ok_runs: dict[str, tuple[str, ...]]  # table 4
    sweep: dict[tuple[int, str], SweepEntry]  # table 5, by K and variant
    mean_accuracy: dict[str, float]  # table 6, by variant
    max_accuracy: dict[str, float]
    confusion: dict[str, NDArray[np.int64]]  # (10, 10) of the best runs; rows are true digits 0..9


@lru_cache(maxsize=1)
def published_values() -> PublishedValues:
    """Return the paper's numbers."""
    _, *sweep = _read("table5_number_of_kernels")
    _, *extremes = _read("table6_mean_and_max_accuracy")
    # Table 6 writes the names with brackets and hyphens, but in the order of table 1.
    names = [variant.name for variant in VARIANTS]
    _, *counts = _read("confusion_matrices_best_runs")
    matrices = {name: np.zeros((10, 10), dtype=np.int64) for name in names}
    for name, row, *columns in counts:
        matrices[name][int(row)] = [int(count) for count in columns]
    return PublishedValues(
        all_runs=_by_variant("table1_all_runs"),
        ranking_all_runs=_ranking("table2_ranking_all_runs"),
        ok_runs=_by_variant("table3_ok_runs"),
        ranking_ok_runs=_ranking("table4_ranking_ok_runs"),
        sweep={
            (int(n_kernels), name): SweepEntry(float(mean), float(std), int(counted))
            for n_kernels, name, mean, std, counted in sweep
        },
        mean_accuracy={name: float(row[1]) for name, row in zip(names, extremes, strict=True)},
        max_accuracy={name: float(row[2]) for name, row in zip(names, extremes, strict=True)},
        confusion=matrices,
    )


def _read(name: str) -> list[list[str]]:
    file = resources.files("skmix.paper") / "printed" / f"{name}.csv"
    return list(csv.reader(file.read_text(encoding="utf-8").splitlines()))


def _by_variant(name: str) -> dict[tuple[str, str], float]:
    (_, *variants), *lines = _read(name)
    return {
        (metric, variant): int(value) if metric == OK_RUNS else float(value)
        for metric, *values in lines
        for variant, value in zip(variants, values, strict=True)
    }


def _ranking(name: str) -> dict[str, tuple[str, ...]]:
    _, *lines = _read(name)
    return {metric: tuple(variants) for metric, *variants in lines}
