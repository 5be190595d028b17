"""The scripts that draw the documentation's own pictures run, and draw something."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

matplotlib_image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")


def script(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a script as a module that writes into a folder of the test."""
    module = load_script(f"docs/pictures/{name}.py")
    monkeypatch.setattr(module, "IMAGES", folder)
    return module


@pytest.mark.slow
def test_the_pictures_of_the_guide_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script("start", tmp_path, monkeypatch).draw()
    kernels = script("shared_kernels", tmp_path, monkeypatch)
    kernels.draw_densities()
    kernels.draw_curves(repeats=1, counts=(8, 64))
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == ["shared-density.png", "shared-rows.png", "start.png"]
    for path in drawn:
        shades = matplotlib_image.imread(path)[..., :3]
        assert shades.std() > 0.05, f"{path.name} is nearly blank"
