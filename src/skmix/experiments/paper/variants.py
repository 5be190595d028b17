"""The design of the paper's study: variants, methods, numbers of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from skmix.features import DIGIT_FEATURES

Method = Literal["published", "robust", "class-wise"]
Dither = Literal["paper", "all"]

# In this order in tables, figures and report.
METHODS: tuple[Method, ...] = ("published", "robust", "class-wise")

FEATURES = DIGIT_FEATURES

MAIN_KERNELS = 10
MAIN_RUNS = 500
# Table 5: the effect of K.
SWEEP_VARIANTS = ("3D", "6D", "9D", "10D")
SWEEP_KERNELS = (3, 6, 8, 10, 12, 15, 18)
SWEEP_RUNS = 100
# Some claims are checked on several simulated data sets, with fewer runs.
DATA_SETS = 5
DATA_SET_RUNS = 100
# Claims about averages need at least this many runs of a cell.
ENOUGH_RUNS = 20


@dataclass(frozen=True)
class Variant:
    """One of the paper's classifiers.

    Attributes
    ----------
    name : str
        The paper's name for it.
    groups : tuple of tuples of str
        Names of the features of each factor of the product form; one group is the joint form.
    dithered : bool
        Whether the paper replaces zero features by small random numbers.
    """

    name: str
    groups: tuple[tuple[str, ...], ...]
    dithered: bool = False

    @property
    def columns(self) -> list[list[int]]:
        """Columns of the 14 features that each group uses."""
        return [[FEATURES.index(name) for name in group] for group in self.groups]


def _pca(*numbers: int) -> tuple[str, ...]:
    return tuple(f"pca {j}" for j in numbers)


_MASS = ("q2", "q3", "q4")

VARIANTS: tuple[Variant, ...] = (
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


def variant_of(name: str) -> Variant:
    """Return the variant of that name."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise ValueError(f"there is no variant {name!r}; choose from {', '.join(v.name for v in VARIANTS)}.")
