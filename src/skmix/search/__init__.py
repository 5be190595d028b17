"""Searches for the settings of classifiers and mixtures."""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .classifier import SharedKernelClassifierCV as SharedKernelClassifierCV
    from .mixture import SharedKernelMixtureCV as SharedKernelMixtureCV

_HOMES = {"SharedKernelClassifierCV": "classifier", "SharedKernelMixtureCV": "mixture"}
__all__ = list(_HOMES)
__getattr__, __dir__ = on_first_use(__name__, _HOMES)
