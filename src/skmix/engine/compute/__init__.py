"""Threads, arrays, accelerators and clusters: the hardware that passes run on, and optional libraries."""

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any


def need(library: str, what: str) -> Any:
    """Import an optional library; without it, say ``what``, such as "Plots need", and how to install it."""
    try:
        return import_module(library)
    except ImportError as error:
        raise ImportError(f"{what} {library}: {how_to_install()}") from error


def how_to_install(extra: str = "all") -> str:
    """Return the command that installs what is missing, for errors; a release will have a shorter one."""
    return f'pip install ".[{extra}]" in a checkout of skmix'


@lru_cache
def can_compile() -> bool:
    """Return whether there is compiled code: not without LLVM, permission or our sources."""
    try:
        from llvmlite.binding import check_jit_execution

        from . import simd

        check_jit_execution()
    except (ImportError, OSError):
        return False
    return Path(simd.__file__).is_file() and simd.__file__.endswith(".py")


def is_loaded() -> bool:
    """Return whether this process uses compiled code already: what is on disk is then loaded quickly."""
    return can_compile.cache_info().currsize > 0 and can_compile()
