"""The scripts that draw the documentation's own pictures run, and draw something."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

from skmix.paper.harness import read_lines, write_lines

matplotlib_image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")


def script(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a script as a module that writes into a folder of the test."""
    module = load_script(f"docs/pictures/{name}.py")
    monkeypatch.setattr(module, "IMAGES", folder)
    return module


@pytest.mark.slow
def test_the_pictures_of_the_guide_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = tmp_path / "images"
    images.mkdir()
    script("start", images, monkeypatch).draw()
    kernels = script("shared_kernels", images, monkeypatch)
    kernels.draw_densities()
    kernels.draw_curves(repeats=1, counts=(8, 64))
    sharing = script("sharing", images, monkeypatch)
    # Panels of four of the seven sets of data: two lines, of which the last is incomplete.
    some = ("pool-10", "parts-100", "seven_segment", "letter")
    lines = [each for each in read_lines(sharing.OUTCOMES) if each["data"] in some]
    write_lines(tmp_path / "some.jsonl", lines)
    sharing.draw(tmp_path / "some.jsonl")
    drawn = sorted(images.iterdir())
    assert [path.name for path in drawn] == [
        *("shared-density.png", "shared-rows.png"),
        *("sharing-error.png", "sharing-log-loss.png", "sharing.png", "start.png"),
    ]
    for path in drawn:
        shades = matplotlib_image.imread(path)[..., :3]
        assert shades.std() > 0.05, f"{path.name} is nearly blank"
