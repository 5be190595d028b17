"""The design of the paper's study: variants, methods, numbers of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .images import DIGIT_FEATURES

Method = Literal["published", "robust", "class-wise"]
Dither = Literal["paper", "all"]

# The methods, in the order of tables, figures and report.
METHODS: tuple[Method, ...] = ("published", "robust", "class-wise")
# The methods on our engine.
OURS: tuple[Method, Method] = ("robust", "class-wise")
# Label of the numbers that the paper prints.
PRINTED = "paper, printed"
# Labels of the numbers of each method.
LABELS: dict[Method, str] = {
    "published": "paper's algorithm, rerun",
    "robust": "robust",
    "class-wise": "class-wise",
}

# K of the paper's main study.
MAIN_KERNELS = 10
# Runs of each variant of the paper's main study.
MAIN_RUNS = 500
# Variants of table 5, the sweep over K.
SWEEP_VARIANTS = ("3D", "6D", "9D", "10D")
# Numbers of kernels of table 5.
SWEEP_KERNELS = (3, 6, 8, 10, 12, 15, 18)
# Runs of each cell of table 5.
SWEEP_RUNS = 100
# Simulated data sets on which our methods are compared.
DATA_SETS = 5
# Runs of each variant and method on each of them.
DATA_SET_RUNS = 100
# Claims about averages need at least this many runs of a cell.
ENOUGH_RUNS = 20
# The paper counts a run as failed unless its accuracy is above this.
FAILED_BELOW = 0.5


@dataclass(frozen=True)
class Variant:
    """One of the paper's classifiers."""

    name: str  # the paper's name for it
    feature_sets: tuple[tuple[str, ...], ...]  # one for each mixture whose densities are multiplied
    dithered: bool = False  # whether the paper replaces zero features by small random numbers

    @property
    def columns(self) -> list[list[int]]:
        """Columns of the features of each set among all 14."""
        return [[DIGIT_FEATURES.index(name) for name in names] for names in self.feature_sets]


def _pca(*numbers: int) -> tuple[str, ...]:
    return tuple(f"pca {j}" for j in numbers)


_MASS = ("q2", "q3", "q4")

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("3D", (_MASS,)),
        Variant("3x1D", (("q2",), ("q3",), ("q4",))),
        Variant("4D", ((*_MASS, *_pca(4)),)),
        Variant("5D", ((*_MASS, *_pca(4, 5)),)),
        Variant("2Dx3D", (_pca(4, 5), _MASS)),
        Variant("6D", ((*_MASS, *_pca(2, 4, 5)),)),
        Variant("3Dx3D", (_MASS, _pca(2, 4, 5))),
        Variant("9D", ((*_MASS, *_pca(2, 3, 4, 5, 6, 7)),)),
        Variant("10D", (_pca(*range(1, 11)),), dithered=True),
        Variant("13D", ((*_pca(*range(1, 11)), *_MASS),), dithered=True),
    )
}


@dataclass(frozen=True)
class Cell:
    """A variant with K kernels, fitted a number of times by one method."""

    variant: str
    n_kernels: int
    method: Method
    n_runs: int  # runs differ in their starts only
    data_set: int = 0  # number of the simulated data set; its seed is that of the study plus this number


def study_cells(
    n_runs: int = MAIN_RUNS, variants: Iterable[str] | None = None, methods: Iterable[str] | None = None
) -> list[Cell]:
    """List the cells of the study: all variants at K = 10, the sweep over K, and further data sets.

    Cells at K = 10 have `n_runs` runs; sweep and further data sets have at most 100. The runs of the sweep at
    K = 10 are the first of the main study. On further data sets robust and class-wise runs are compared, if
    there are enough runs. ValueError is raised if there is no such variant or method.
    """
    names = _chosen(variants, tuple(VARIANTS), "variant")
    kept: list[Method] = _chosen(methods, METHODS, "method")
    cells = [Cell(name, MAIN_KERNELS, method, n_runs) for method in kept for name in names]
    cells += [
        Cell(name, n_kernels, method, min(n_runs, SWEEP_RUNS))
        for name in names
        if name in SWEEP_VARIANTS
        for n_kernels in SWEEP_KERNELS
        if n_kernels != MAIN_KERNELS
        for method in kept
    ]
    if n_runs >= ENOUGH_RUNS and set(OURS) <= set(kept):
        cells += [
            Cell(name, MAIN_KERNELS, method, min(n_runs, DATA_SET_RUNS), data_set)
            for data_set in range(1, DATA_SETS)
            for name in names
            for method in OURS
        ]
    return cells


def _chosen(wanted: Iterable[str] | None, known: tuple[str, ...], noun: str) -> list[Any]:
    """Return the wanted names, or all, in the order of those that are known."""
    names = list(known if wanted is None else wanted)
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {noun} {name!r}; choose from {', '.join(known)}.")
    return [name for name in known if name in names]
