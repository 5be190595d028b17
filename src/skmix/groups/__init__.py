"""Many samples: `compose` makes a `Study` from their files.

``Study(model, merge_kernels(model))`` makes one from a fitted mixture whose classes are samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._parts import on_first_use
from .populations import Populations, merge_kernels
from .study import Study, compose, load

if TYPE_CHECKING:
    from .plots import plot_merges

__all__ = [
    "Populations",
    "Study",
    "compose",
    "load",
    "merge_kernels",
    "plot_merges",
]
# A study needs no pictures until it shows one.
__getattr__, __dir__ = on_first_use(__name__, {"plot_merges": "plots"})
