"""Whether the core is there, and which instructions it uses, is decided once, at import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# A finder that comes first makes the import fail, as if the package was installed without a compiler.
WITHOUT_CORE = """
import sys, warnings
class Missing:
    def find_spec(name, path=None, target=None):
        if name == "skmix._core.compiled":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Missing)
"""
FIT = """
import numpy as np
from skmix import SharedKernelMixture
def fit():
    X = np.random.default_rng(0).normal(size=(100, 2))
    return SharedKernelMixture(2, random_state=0).fit(X).score(X)
"""
NAMES = "from skmix._core import core, instructions; print(instructions, core() is not None)"


def run(code: str, instructions: str | None = None) -> tuple[list[str], str]:
    """Run Python with that value of the variable; return the lines of its output, and its errors."""
    environment = {name: value for name, value in os.environ.items() if name != "SKMIX_INSTRUCTIONS"}
    if instructions is not None:
        environment["SKMIX_INSTRUCTIONS"] = instructions
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stdout.splitlines(), done.stderr


def test_instructions_may_be_named() -> None:
    """Each set is used, or refused where the processor lacks it; without a name, the best one is used."""
    present = []
    for name in ("avx512", "avx2", "neon", "baseline"):
        lines, errors = run(NAMES, name)
        if lines:
            assert lines == [f"{name} True"]
            present.append(name)
        else:
            assert f"ImportError: SKMIX_INSTRUCTIONS={name}: " in errors
    assert present[-1] == "baseline"
    for empty in (None, ""):
        assert run(NAMES, empty)[0] == [f"{present[0]} True"]


def test_the_reference_may_be_named() -> None:
    for begin in ("", WITHOUT_CORE):
        assert run(begin + NAMES, "reference")[0] == ["reference False"]


@pytest.mark.parametrize(
    ("begin", "name", "error"),
    [
        *(("", name, f"SKMIX_INSTRUCTIONS={name}: ") for name in ("sse9", "AVX2", "Reference", " ")),
        (WITHOUT_CORE, "baseline", "SKMIX_INSTRUCTIONS=baseline, but skmix has no compiled core here"),
        # A library that is missing or broken must not pass for an install without a compiler.
        (WITHOUT_CORE.replace("ModuleNotFoundError(name=name)", "ImportError('broken')"), None, "broken"),
    ],
)
def test_what_cannot_be_loaded_is_an_import_error(begin: str, name: str | None, error: str) -> None:
    assert f"ImportError: {error}" in run(begin + "import skmix._core", name)[1]


def test_passes_without_a_core_warn_once() -> None:
    code = f"""{WITHOUT_CORE}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import skmix
    print(len(caught))
    {FIT.strip().replace(chr(10), chr(10) + "    ")}
    values = [fit(), fit()]
    print(len(caught), caught[0].category.__name__, caught[0].message)
    print(values[0] == values[1], values[0])
"""
    before, warning, likelihood = run(code)[0]
    assert before == "0"
    assert warning.startswith("1 RuntimeWarning skmix has no compiled core here")
    is_same, value = likelihood.split()
    assert is_same == "True"
    # By its name, the reference is used without a warning.
    quiet = f"{WITHOUT_CORE}\nwarnings.simplefilter('error')\n{FIT}\nprint(fit())"
    assert run(quiet, "reference") == ([value], "")
