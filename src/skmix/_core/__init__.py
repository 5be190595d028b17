"""The compiled core: loops over rows and batches of small matrices, in C++.

`core` is the module, or None where the package was installed without a compiler: the NumPy code that defines
what it does then does all of it. The variable SKMIX_INSTRUCTIONS, read once, names an instruction set
("avx512", "avx2", "neon" or "baseline") instead of the best that the processor has, or "reference" for None.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

VARIABLE = "SKMIX_INSTRUCTIONS"
REFERENCE = "reference"


def _load(name: str | None) -> tuple[Any, str]:
    if name == REFERENCE:
        return None, REFERENCE
    try:
        module = import_module(".compiled", __name__)
    except ModuleNotFoundError:
        if name:
            raise ImportError(
                f"{VARIABLE}={name}, but skmix was installed without its compiled core."
            ) from None
        return None, ""
    try:
        return module, module.use(name)
    except ValueError as error:
        raise ImportError(f"{VARIABLE}={name}: {error}") from None


core, instructions = _load(os.environ.get(VARIABLE) or None)
