"""Threads, arrays, accelerators and clusters: the hardware that passes run on."""

from importlib import import_module
from typing import Any


def need(library: str, extra: str, what: str) -> Any:
    """Import an optional library; without it, say ``what``, such as "Plots need", and how to install it."""
    try:
        return import_module(library)
    except ImportError as error:
        raise ImportError(f"{what} {library}: {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, for errors. Released packages will have a shorter one."""
    return f'pip install ".[{extra}]" in a checkout of skmix'
