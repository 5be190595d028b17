"""Compiled functions do what Python does or refuse it, and are kept on disk where that is possible."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("llvmlite", reason="LLVM is not installed: there is no compiled code to test")

from skmix.engine.compute import native
from skmix.engine.compute.translation import inner

EIGHT = 8


class Pair(NamedTuple):
    numbers: Any
    more: Any


@inner
def _place(values, wanted):
    """Return where a value is first, and whether it is there."""
    i = 0
    while i < len(values) and values[i] != wanted:
        i += 1
    if i == len(values):
        return -1, False
    return i, True


@inner
def _note(notes):
    """Add a note, and return whether it is the first."""
    notes[9] += 1
    return notes[9] == 1


def divide(a, b, out):
    if (a > 0 and _note(out)) or (b > 0 and _note(out)):
        out[9] += 10
    out[0], out[1], out[2], out[3] = a // b, a % b, a // EIGHT, a % EIGHT
    out[4], out[5] = -(-a // b) * b, (a << 3) >> 1
    out[6], out[7] = min(a, b, 3), max(a, b)
    a, b = b, a
    out[8] = (a - b) ** 2 + (a < b) + (a > 0 and b > 0) - (not a)


def compare(x, y, out):
    out[0], out[1], out[2] = x < y, x <= y, x == y
    out[3], out[4], out[5] = x != y, 0.0 < x < math.inf, x > y or y > x


def choose(x, y, out):
    out[0], out[1], out[2], out[3] = max(x, y), min(x, y), max(y, 0.0, x), min(x, 1)


def calculate(x, y, n, out):
    out[0], out[1] = abs(x) + math.sqrt(abs(y)), x / y if y else -1.0
    out[2], out[3] = n / 4, 1.0 * (n > 2) - -x
    total = 0.0
    for i in range(n, -3, -2):
        if i == 1:
            continue
        if total > 1e3:
            break
        total += i * x
    for i in range(n):
        for _ in range(i, n, 3):
            total -= y
    products = [x * i - y * j for i, j in ((1, 2), (3, 5)) for _ in (0, 1)]
    for i in (0, 1, 3):
        total += i * products[i]
    out[4] = total
    out[5] = x if n > 2 else n


def look_up(table, ints, single, marks, cube, names, out):
    numbers, (first, second) = names
    n_rows, n_columns = table.shape
    for i in range(n_rows):
        row = table[i]
        for j in range(n_columns):
            out[j] += row[j] * single[j] + cube[i, 1, j] - cube[i][0, j]
        marks[i] = not marks[i]
        ints[i] += len(numbers) + second
    tail = numbers[first:]
    place, found = _place(tail, 7.0)
    out[0] += 10 * place + found + 100 * len(tail)
    place, found = _place(numbers[1:3], -7.0)
    out[1] += 10 * place + found


def shadow(x: float, out: np.ndarray) -> None:
    for i in range(len(out)):
        values = [x * i for i in (0, 2)]
        out[i] = values[1] + i


INTEGERS = [(a, b, np.zeros(10, np.int64)) for a in (-17, -8, 0, 5, 64) for b in (-5, -1, 3, 8)]
FLOATS = [0.0, -0.0, 1.5, -2.25, math.inf, math.nan]
CALLS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    (shadow, (1.5, np.zeros(3))),
    *((divide, given) for given in INTEGERS),
    *((compare, (x, y, np.zeros(6, bool))) for x in FLOATS for y in FLOATS),
    *((choose, (x, y, np.zeros(4))) for x in FLOATS for y in FLOATS),
    *((calculate, (x, y, n, np.zeros(6))) for x, y in [(1.5, -2.0), (300.0, 0.0)] for n in (-1, 0, 7)),
    *(
        (
            look_up,
            (
                np.arange(12.0).reshape(4, 3),
                np.arange(4),
                np.array([0.1, 0.2, 0.3], np.float32),
                np.array([True, False, True, False]),
                np.arange(24.0).reshape(4, 2, 3) ** 2,
                Pair(np.array([5.0, wanted, 6.0]), (first, 4)),
                np.zeros(3),
            ),
        )
        for first in (0, 2)
        for wanted in (7.0, 8.0)
    ),
]


@pytest.mark.parametrize("function", [divide, compare, choose, calculate, look_up, shadow])
def test_compiled_functions_do_what_python_does(function) -> None:
    compiled = native.jit(function)
    for called, given in CALLS:
        if called is not function:
            continue

        def copied(each: Any) -> Any:
            if isinstance(each, tuple):
                parts = [copied(part) for part in each]
                return Pair(*parts) if isinstance(each, Pair) else tuple(parts)
            return each.copy() if isinstance(each, np.ndarray) else each

        expected, found = copied(given), copied(given)
        function(*expected)
        compiled(*found)
        for one, other in zip(found, expected, strict=True):
            if isinstance(one, np.ndarray):
                assert one.tobytes() == other.tobytes(), (given, one, other)


def changes_kind(x, out):
    y = 1
    y = x
    out[0] = y


def has_no_value(x, out):
    for i in range(2):
        out[i] = later  # noqa: F821
        later = x  # noqa: F841


def loops_over_values(x, out):
    for each in out:
        out[0] = each


def leaves_what_is_unrolled(x, out):
    for i in range(2):
        for j in (0, 1):
            out[i] += j
            break


def assigns_slices(x, out):
    out[0:1] = x


def counts_from_the_end(x, out):
    out[0] = out[-1]


def needs_truth(x, out):
    out[0] = x or 1.0


def cubes(x, out):
    out[0] = x**3


def adds_arrays(x, out):
    total = out + out
    out[0] = total[0]


def calls(x, out):
    out[0] = math.fsum(out)


@pytest.mark.parametrize(
    ("function", "line", "why"),
    [
        (changes_kind, 2, "double is given for i64"),
        (has_no_value, 2, "later has no value yet"),
        (loops_over_values, 1, "over ranges"),
        (leaves_what_is_unrolled, 4, ""),
        (assigns_slices, 1, "only numbers"),
        (counts_from_the_end, 1, "negative"),
        (needs_truth, 1, "truth value"),
        (cubes, 1, ""),
        (adds_arrays, 1, "no number"),
        (calls, 1, "fsum"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_line(function, line: int, why: str) -> None:
    where = rf"test_native\.{function.__name__}, line {function.__code__.co_firstlineno + line},"
    with pytest.raises(NotImplementedError, match=f"{where} cannot be compiled: .*{why}"):
        native.jit(function)(1.0, np.zeros(2))


def test_arrays_in_another_order_are_refused() -> None:
    with pytest.raises(ValueError, match="C order"):
        native.jit(cubes)(1.0, np.zeros((2, 3)).T)


# ---------------------------------------------------------------- files


def halve(x, out):
    out[0] = x / 2


def half_of(number: float) -> float:
    """Halve a number as a new process does."""
    native._addresses.clear()
    out = np.zeros(1)
    native.jit(halve)(number, out)
    return float(out[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of compiled code."""
    monkeypatch.setenv("SKMIX_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_code_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert half_of(3.0) == 1.5
    (file,) = folder.iterdir()
    monkeypatch.setattr(native, "_optimised", Mock(side_effect=AssertionError))
    assert half_of(5.0) == 2.5
    assert list(folder.iterdir()) == [file]


def test_threads_compile_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = Mock(side_effect=native._optimised)
    monkeypatch.setattr(native, "_optimised", compile)
    monkeypatch.setattr(native, "_write", Mock())
    native._addresses.clear()
    function, outs = native.jit(halve), np.zeros((4, 1))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(function, [3.0] * 4, outs))
    assert_array_equal(outs, 1.5)
    compile.assert_called_once()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_code_that_cannot_be_kept_works(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "write_bytes" if number == errno.ENOSPC else "mkdir"
    monkeypatch.setattr(Path, place, Mock(side_effect=OSError(number, "refused")))
    assert half_of(3.0) == 1.5
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("kept", [0, 20, 40, 400])
def test_damaged_files_are_replaced(kept: int, folder: Path) -> None:
    """As a machine that stopped while they were written leaves them."""
    assert half_of(3.0) == 1.5
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    assert half_of(3.0) == 1.5
    assert file.read_bytes() == whole


def test_code_is_kept_for_its_sources(tmp_path: Path) -> None:
    """Those of compiled functions and of the constants in them, and the file of the function itself."""
    engine = Path(native.__file__).parents[1]
    own = {path.parent.name for path in engine.rglob("*.py") if "import jit\n" in path.read_text()}
    assert own <= {"compute", "estep"}
    file = tmp_path / "file.py"
    versions = set()
    for text in ("a", "b", "a"):
        native._version.cache_clear()
        file.write_text(text)
        versions.add(native._version(str(file)))
    assert len(versions) == 2
