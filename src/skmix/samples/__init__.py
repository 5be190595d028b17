"""Many samples: `compose` makes a `Study` from their files.

``Study(model, merge_kernels(model))`` makes one from a fitted mixture whose classes are samples.
"""

from .populations import Populations, merge_kernels
from .study import Study, compose, load

__all__ = ["Populations", "Study", "compose", "load", "merge_kernels"]
