"""Shared-kernel mixture models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .estimators import (
        Checkpoint,
        GaussianMixture,
        SharedKernelClassifier,
        SharedKernelClassifierCV,
        SharedKernelMixture,
        SharedKernelMixtureCV,
    )
    from .groups import Study, compose, load
    from .io import open_rows

__all__ = [
    "Checkpoint",
    "GaussianMixture",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelMixture",
    "SharedKernelMixtureCV",
    "Study",
    "compose",
    "load",
    "open_rows",
]
_ROOMS = (
    *("datasets", "engine", "estimators", "features", "groups", "io"),
    *("metrics", "paper", "plots", "report", "theory"),
)


def __getattr__(name: str) -> Any:
    # Import on first use: NumPy and scikit-learn take seconds to load on some machines.
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = {"Study": ".groups", "compose": ".groups", "load": ".groups", "open_rows": ".io"}
    found = getattr(import_module(room.get(name, ".estimators"), __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
