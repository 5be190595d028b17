"""Keys and generators depend on all settings, and on nothing else."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from skmix.paper.harness import cell_key, generator, library

SETTINGS = {"seed": 0, "data": "d1", "model": {"n_kernels": 3, "tol": 1e-3}}


def test_a_key_depends_on_every_setting_and_not_on_their_order() -> None:
    reordered = {"model": {"tol": 1e-3, "n_kernels": 3}, "data": "d1", "seed": 0}
    assert cell_key(reordered) == cell_key(SETTINGS)
    changed = [
        {**SETTINGS, "seed": 1},
        {**SETTINGS, "data": "d2"},
        {**SETTINGS, "model": {"n_kernels": 3, "tol": 2e-3}},
        {**SETTINGS, "more": None},
    ]
    assert len({cell_key(each) for each in [SETTINGS, *changed]}) == 5
    with pytest.raises(ValueError, match="JSON"):
        cell_key({"tol": float("nan")})


@pytest.fixture
def uncached() -> Iterator[None]:
    """Clear the cached name of the library before and after a test."""
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("uncached")
def test_the_library_is_its_version_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library().startswith("0.1.0+")
    code = tmp_path / "code.py"
    code.write_text("a = 1\n")
    before = library(str(code))
    library.cache_clear()
    assert library(str(code)) == before != library()
    library.cache_clear()
    code.write_text("a = 2\n")
    assert library(str(code)) != before
    # All that may change results: generators of data and features too.
    monkeypatch.setattr("skmix.__file__", str(tmp_path / "__init__.py"))
    names = ("engine/em.py", "engine/rules/weights.py", "estimators/io.py", "features.py", "datasets.py")
    for name in (*names, "paper/digits.py", "paper/images.py"):
        library.cache_clear()
        before = library()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
        library.cache_clear()
        assert library() != before, name


def test_every_part_of_the_name_matters() -> None:
    cases = list(itertools.product((0, 1), ("3D", "3x1D"), (10, 1), ("robust", "published"), (0, 10)))
    assert len({generator(*case).randint(2**31) for case in cases}) == 2**5
    assert generator(0, "ab", "c").randint(2**31) != generator(0, "a", "bc").randint(2**31)


def test_numbers_are_the_same_on_any_machine() -> None:
    """MT19937 seeded with the SHA-256 digest."""
    digest = hashlib.sha256(b"skmix study\n7\nrun\n3D\n10\nrobust\n2").digest()
    bits = np.random.MT19937(np.random.SeedSequence(int(digest.hex(), 16)))
    expected = np.random.RandomState(bits).uniform(size=3)
    assert generator(7, "run", "3D", 10, "robust", 2).uniform(size=3).tolist() == expected.tolist()
