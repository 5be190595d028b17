"""Compiled code is kept on disk where that is possible, and works where it is not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="Numba is not installed: there is no compiled code to test")
from numba import cfunc

from skmix.engine.compute import simd


def half_of(number: float, called: str) -> float:
    """Halve a number by a function that is new to Numba, as in a new process."""

    def half(x):
        return x / 2

    if called == "from Python":
        return simd.jit(half)(number)
    return simd._cached(partial(cfunc, "float64(float64)"), half).ctypes(number)


each_call = pytest.mark.parametrize("called", ["from Python", "from C"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    return tmp_path


def refuse(number: int) -> Callable[..., None]:
    """Return a function that fails with that error of the system."""

    def refused(*_: object) -> None:
        raise OSError(number, "refused")

    return refused


@each_call
@pytest.mark.parametrize(
    ("place", "number"),
    [("IndexDataCacheFile.save", errno.ENOSPC), ("_CacheLocator.ensure_cache_path", errno.EROFS)],
    ids=["full disk", "no folder"],
)
def test_code_that_cannot_be_kept_works(
    called: str, place: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"numba.core.caching.{place}", refuse(number))
    assert half_of(3.0, called) == 1.5
    assert not list(folder.rglob("*.nbc"))


@each_call
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_damaged_files_are_replaced(called: str, suffix: str, kept: float, folder: Path) -> None:
    """As a machine that stopped while they were written leaves them."""

    def files() -> dict[str, int]:
        return {path.name: path.stat().st_size for path in folder.rglob("*.nb?")}

    assert half_of(3.0, called) == 1.5
    whole = files()
    assert len(whole) == 2
    (damaged,) = folder.rglob(f"*{suffix}")
    damaged.write_bytes(damaged.read_bytes()[: int(kept * whole[damaged.name])])
    # The second time at the latest they are written again.
    assert half_of(3.0, called) == half_of(3.0, called) == 1.5
    # Numba's numbers in the names of functions have more or fewer digits.
    assert files() == {name: pytest.approx(size, rel=0.05) for name, size in whole.items()}


@each_call
def test_damaged_files_on_a_full_disk(called: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert half_of(3.0, called) == 1.5
    for path in folder.rglob("*.nbi"):
        path.write_bytes(b"")
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", refuse(errno.ENOSPC))
    assert half_of(3.0, called) == 1.5


def test_functions_without_a_file_or_that_numba_leaves_as_they_are() -> None:
    scope: dict[str, Any] = {}
    exec("def double(x): return 2 * x", scope)  # a function without a file has no place for its code
    assert simd.jit(scope["double"])(21) == 42
    # As Numba does with NUMBA_DISABLE_JIT=1.
    left = simd._cached(lambda **_: lambda function: function, lambda x: 3 * x)
    assert left(2.0) == 6.0
