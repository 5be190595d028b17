"""Many samples: `compose` makes a `Study` of their files.

For rows that are no files, the same is there as functions of a fitted `SharedKernelMixture` whose classes are
the samples: its kernels merged into populations, their proportions, differences between samples, and samples
that are unusual.
"""

from __future__ import annotations

from .labels import write_labels
from .plots import draw_populations, plot_merges, plot_proportions
from .populations import Populations, match, merge_kernels
from .proportions import compare, composition, unusual_samples
from .study import Study, compose, load

__all__ = [
    "Populations",
    "Study",
    "compare",
    "compose",
    "composition",
    "draw_populations",
    "load",
    "match",
    "merge_kernels",
    "plot_merges",
    "plot_proportions",
    "unusual_samples",
    "write_labels",
]
