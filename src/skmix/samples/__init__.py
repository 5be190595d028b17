"""Many samples: `compose` makes a `Study` from their files.

``Study(model, merge_kernels(model))`` makes one from a fitted mixture whose classes are samples.
"""

from .comparison import Comparison
from .composing import compose, load
from .populations import Populations, merge_kernels
from .study import Study

__all__ = ["Comparison", "Populations", "Study", "compose", "load", "merge_kernels"]
