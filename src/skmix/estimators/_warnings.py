"""Warnings that point at the line of the user's own code."""

from __future__ import annotations

import sys
import warnings

_OURS = ("skmix", "sklearn")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the innermost line that is neither ours nor scikit-learn's."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS
