"""Importing the package stays light, and its entry points say what is missing."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skmix
from skmix.__main__ import main

# What `import skmix` and fitting do not need, whether it comes with an extra or not.
OPTIONAL = (
    *("dask", "distributed", "flowio", "jinja2", "matplotlib", "onnx", "onnxruntime"),
    *("pandas", "pyarrow", "rich", "safetensors", "torch", "typer"),
)

# What neither a mixture nor a saved study needs.
UNUSED = (
    *("scipy.cluster", "sklearn.cluster", "sklearn.metrics", "sklearn.model_selection"),
    *("skmix.model.classifier", "skmix.model.gaussian", "skmix.search", "skmix.plots"),
)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_the_extras_models_are_fitted_and_what_is_missing_is_said(tmp_path: Path) -> None:
    """A finder that comes first makes the imports fail, as if the libraries were not installed."""
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    said = run_python(f"""
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Missing)
import numpy as np
import skmix
import skmix.datasets, skmix.paper, skmix.plots, skmix.report, skmix.theory
X = np.random.default_rng(0).normal(size=(60, 2))
y = np.repeat(["one", "two", "three"], 20)
X[y == "two"] += 8.0
model = skmix.SharedKernelMixture(1).fit(X)
for estimator in (
    skmix.SharedKernelClassifier(random_state=0),
    skmix.SharedKernelClassifierCV(n_kernels=[3], cv=2, random_state=0),
    skmix.SharedKernelMixtureCV(n_kernels=[2], cv=2, random_state=0),
    skmix.GaussianMixture(2, random_state=0),
    skmix.BayesianGaussianMixture(n_components=2, random_state=0),
):
    assert np.isfinite(estimator.fit(X, y).predict_proba(X)).all()
def cli():
    import skmix.cli
for act in (
    cli,
    lambda: skmix.plots.plot_projections(model),
    lambda: skmix.report.model_page(model, title="one"),
    lambda: model.fit({str(tmp_path / "table.csv")!r}),
):
    try:
        act()
    except (ImportError, SystemExit) as error:
        print(error)
""")
    libraries = ("rich and typer", "matplotlib", "matplotlib", "pyarrow")
    for line, library in zip(said.splitlines(), libraries, strict=True):
        assert re.search(rf'{library}.*pip install "\.\[all\]"', line)


def test_importing_skmix_loads_its_parts_when_they_are_used_and_nothing_heavy(tmp_path: Path) -> None:
    """scikit-learn may load what it likes, and newer ones load rich where it is installed."""
    path = str(tmp_path / "model.skmix")
    skmix.GaussianMixture().fit([[0.0], [1.0]]).save(path)
    said = run_python(f"""
import sys, skmix
print([name for name in ('numpy', *{OPTIONAL!r}) if name in sys.modules])
print(set(skmix.__all__) <= set(dir(skmix)))
import skmix.cli  # for help, which needs no library
print([name for name in ('numpy', 'scipy', 'sklearn', 'pyarrow') if name in sys.modules])
import sklearn.base
try:
    import sklearn.callback
except ImportError:
    pass
before = set(sys.modules)
print(skmix.SharedKernelMixture(1).fit([[0.0], [1.0]]).n_iter_ > 0, hasattr(skmix, 'nothing'))
print([name for name in {(*OPTIONAL, *UNUSED)!r} if name in set(sys.modules) - before])
print(skmix.datasets.__name__)
load = skmix.load
print([name for name in {UNUSED!r} if name in set(sys.modules) - before])
print(type(load({path!r})).__name__)
""")
    assert said == "[]\nTrue\n[]\nTrue False\n[]\nskmix.datasets\n[]\nGaussianMixture"


def test_names_and_rooms_are_attributes() -> None:
    folder = Path(skmix.__file__).parent
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    # Without programs, which are not parts of the library.
    rooms = {path.stem for path in paths if path.stem[0] != "_"} - {"cli"}
    for room in rooms:
        assert skmix.__getattr__(room) is importlib.import_module(f"skmix.{room}")
    for name in skmix.__all__:
        assert skmix.__getattr__(name).__name__ == name
    assert {*rooms, *skmix.__all__, "__version__"} <= set(dir(skmix))
    for name in ("nothing", "cli_", "SharedKernel"):
        with pytest.raises(AttributeError, match=f"module 'skmix' has no attribute '{name}'"):
            skmix.__getattr__(name)


def test_an_interrupt_while_the_command_line_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        @staticmethod
        def find_spec(name: str, *others: object) -> None:
            if name == "skmix.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith("skmix.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("skmix.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Error: interrupted.\n"
