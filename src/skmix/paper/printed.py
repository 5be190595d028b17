"""The paper's printed numbers, read from CSV files in the folder `printed`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .variants import VARIANTS

# Rows of tables 1 and 3.
METRICS = ("Med Acc", "Mean Acc", "Std Acc", "Med MIoU", "Mean MIoU", "Std MIoU")
# Rows of tables 2 and 4.
RANKED_METRICS = ("Med Acc", "Mean Acc", "Med MIoU", "Mean MIoU")
# The last row of table 3.
OK_RUNS = "OK runs"


@dataclass(frozen=True)
class PublishedValues:
    """The paper's tables and confusion matrices."""

    all_runs: pd.DataFrame  # table 1: a row for each metric, a column for each variant
    ranking_all_runs: pd.DataFrame  # table 2: variants, a row for each metric, best first
    ok_runs: pd.DataFrame  # table 3, like table 1, with a row "OK runs"
    ranking_ok_runs: pd.DataFrame  # table 4, like table 2
    sweep: pd.DataFrame  # table 5: mean, std, counted (of 100 runs), a row for each K and variant
    extremes: pd.DataFrame  # table 6: mean, maximum, a row for each variant
    confusion: dict[str, NDArray[np.int64]]  # (10, 10) of the best runs; rows are true digits 0..9


@cache
def published_values() -> PublishedValues:
    """Return the paper's numbers."""
    sweep = _read("table5_number_of_kernels").set_index(["K", "variant"])
    # Table 6 writes the names with brackets and hyphens, but in the order of table 1.
    extremes = _read("table6_mean_and_max_accuracy").iloc[:, 1:].set_axis(list(VARIANTS))
    matrices = _read("confusion_matrices_best_runs").set_index(["variant", "row"])
    return PublishedValues(
        all_runs=_read("table1_all_runs").set_index("Algorithm"),
        ranking_all_runs=_read("table2_ranking_all_runs").set_index("metric"),
        ok_runs=_read("table3_ok_runs").set_index("Algorithm"),
        ranking_ok_runs=_read("table4_ranking_ok_runs").set_index("metric"),
        sweep=sweep.set_axis(["mean", "std", "counted"], axis="columns"),
        extremes=extremes.set_axis(["mean", "maximum"], axis="columns"),
        confusion={name: matrices.loc[name].sort_index().to_numpy() for name in VARIANTS},
    )


def failed_in_paper(variant: str, n_runs: int) -> int:
    """Return how many of the paper's runs of a variant failed."""
    return n_runs - int(published_values().ok_runs.loc[OK_RUNS, variant])


def _read(name: str) -> pd.DataFrame:
    with (resources.files("skmix.paper") / "printed" / f"{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)
