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
from skmix.engine.threads import workers
from skmix.engine.estep import host
from skmix.engine.estep.reference import Kernels, Rows
from skmix.engine.records import Frame, Parameters
from skmix.engine.structures import structure_of
structure = structure_of("full")
rows = Rows(np.random.default_rng(0).normal(size=(100, 2)), None, None, Frame(*np.ones((4, 2))))
covariances = np.tile(np.eye(2), (1, 2, 1, 1))
parameters = Parameters(np.full((1, 2, 1), 0.5), np.array([[[0.0, 1.0], [2.0, 0.0]]]), covariances)
kernels = Kernels.of(parameters, structure.factor(parameters.covariances, 2), structure)
def fit():
    with workers(1) as pool:
        host.lloyd(rows, pool, kernels.means[0])
        host.log_densities(rows, kernels, None, pool)
        return host.expect(rows, kernels, kernels.means, pool).log_likelihood.item()
"""


def run(code: str, instructions: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python with that value of the variable."""
    environment = {name: value for name, value in os.environ.items() if name != "SKMIX_INSTRUCTIONS"}
    if instructions is not None:
        environment["SKMIX_INSTRUCTIONS"] = instructions
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def said(code: str, instructions: str | None = None) -> list[str]:
    done = run(code, instructions)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_instructions_may_be_named() -> None:
    """Each set is taken, or refused where the processor does not have it; without a name, the best one is."""
    code = "from skmix._core import core, instructions; print(instructions, core() is not None)"
    names = []
    for name in ("avx512", "avx2", "neon", "baseline"):
        done = run(code, name)
        if done.returncode == 0:
            assert done.stdout == f"{name} True\n"
            names.append(name)
        else:
            assert f"ImportError: SKMIX_INSTRUCTIONS={name}: " in done.stderr
    assert names[-1] == "baseline"
    for empty in (None, ""):
        assert said(code, empty) == [f"{names[0]} True"]


def test_the_reference_may_be_named() -> None:
    code = "from skmix._core import core, instructions; print(core(), instructions)"
    for begin in ("", WITHOUT_CORE):
        assert said(begin + code, "reference") == ["None reference"]


@pytest.mark.parametrize("name", ["sse9", "AVX2", "Reference", " "])
def test_unknown_instructions_are_an_import_error(name: str) -> None:
    done = run("import skmix._core", name)
    assert done.returncode != 0
    assert f"ImportError: SKMIX_INSTRUCTIONS={name}: " in done.stderr
    assert "instruction set" in done.stderr


def test_named_instructions_need_the_core() -> None:
    done = run(WITHOUT_CORE + "import skmix._core", "baseline")
    assert done.returncode != 0
    assert "ImportError: SKMIX_INSTRUCTIONS=baseline, but skmix has no compiled core here" in done.stderr


def test_a_core_that_does_not_load_is_an_error() -> None:
    """A library that is missing or broken must not be taken for an install without a compiler."""
    code = WITHOUT_CORE.replace(
        "raise ModuleNotFoundError(name=name)", "raise ImportError('undefined symbol')"
    )
    done = run(code + "import skmix._core", None)
    assert done.returncode != 0
    assert "ImportError: undefined symbol" in done.stderr


def test_a_missing_core_is_said_once_at_first_use() -> None:
    code = f"""{WITHOUT_CORE}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import skmix.engine.estep.host
    print(len(caught))
    {FIT.strip().replace(chr(10), chr(10) + "    ")}
    values = [fit(), fit()]
    print(len(caught), caught[0].category.__name__, caught[0].message)
    print(values[0] == values[1], values[0])
"""
    before, warning, likelihood = said(code)
    assert before == "0"
    assert warning.startswith("1 RuntimeWarning skmix has no compiled core here")
    is_same, value = likelihood.split()
    assert is_same == "True"
    # By its name, the reference is used without a warning.
    named = said(f"{WITHOUT_CORE}\nwarnings.simplefilter('error')\n{FIT}\nprint(fit())", "reference")
    assert named == [value]
