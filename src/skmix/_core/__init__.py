"""The compiled core: loops over rows and batches of small matrices, in C++.

The variable SKMIX_INSTRUCTIONS, read once, names an instruction set ("avx512", "avx2", "neon" or "baseline")
instead of the best that the processor has, or "reference" for NumPy.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
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
            raise ImportError(f"{VARIABLE}={name}, but skmix has no compiled core here.") from None
        return None, ""
    try:
        return module, module.use(name)
    except ValueError as error:
        raise ImportError(f"{VARIABLE}={name}: {error}") from None


_loaded, instructions = _load(os.environ.get(VARIABLE) or None)


def core() -> Any:
    """Return the compiled module, or None where NumPy does its work; warn once where it is missing."""
    if _loaded is None and instructions != REFERENCE:
        _warn_of_missing_core()
    return _loaded


@cache
def _warn_of_missing_core() -> None:
    warnings.warn(
        "skmix has no compiled core here: it was installed without a C++ compiler (GCC 12 or newer, or "
        "Clang), or for another Python. NumPy does its work, which takes several times as long. Install a "
        "compiler and skmix again.",
        RuntimeWarning,
        stacklevel=3,
    )
