"""Fixtures of several tests of commands."""

from __future__ import annotations

import pytest

from skmix import SharedKernelClassifierCV, SharedKernelMixtureCV


@pytest.fixture
def two_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches have two folds, here and on the command line, which saves time."""
    for search in (SharedKernelClassifierCV, SharedKernelMixtureCV):
        monkeypatch.setitem(search.__init__.__kwdefaults__, "cv", 2)
