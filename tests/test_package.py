"""The wheel has everything that the package reads, and nothing else; `make dist` installs and tries it.

Wheels are made here without compiling, and have the core of this environment put in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import skmix
from skmix._core import core

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "skmix"

# What is compiled is not in the wheel, or comes into it by CMake.
COMPILED = {".cpp", ".h", ".so", ".pyd"}

pytestmark = pytest.mark.slow

building = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core builds the package")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return place / building.build_wheel(str(place), {"wheel.cmake": "false", "wheel.py-api": "py3"})


def test_the_wheel_has_all_files_of_the_package_and_no_others(wheel: Path) -> None:
    own = {
        f"skmix/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in COMPILED
    }
    # What is read while it runs: types, pages and their parts, the paper's numbers, example data.
    code, data = {".py", ".typed", ".j2", ".js", ".css"}, {".csv", ".gz", ".md", ".fcs", ".txt"}
    assert {Path(name).suffix for name in own} == code | data
    assert wheel.stat().st_size < 2_000_000
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {name for name in names if name.startswith("skmix/")} == own
    about = {name for name in names if name.startswith(f"skmix-{skmix.__version__}.dist-info/")}
    assert names == own | about


def test_the_package_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    if core() is not None:
        shutil.copy(core().__file__, tmp_path / "skmix" / "_core")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import skmix
from skmix.report import model_page
from skmix.paper.printed import published_values
assert skmix.__file__.startswith({str(tmp_path)!r})
model = skmix.SharedKernelClassifier(2, random_state=0).fit([[0.0], [0.1], [5.0], [5.2]], list("aabb"))
print(model.predict([[0.05]]), "</html>" in model_page(model, title="two classes"))
published_values()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['a'] True"
