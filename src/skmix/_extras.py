"""Threads, arrays, accelerators and clusters: the hardware that passes run on, and optional libraries."""

from importlib import import_module
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
