"""FCS files as programs of several vendors write them: the same cells, names and scales.

Written by the standard, with the habits of each program; two real files are in other tests: of a FACSCalibur
(tests/data) and of a MACSQuant (the package's examples).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cytometry import write_fcs_file
from numpy.testing import assert_allclose

from skmix import compose, open_rows

flowio = pytest.importorskip("flowio", reason="flowio is not installed")

SPILL = np.array([[1.0, 0.2], [0.05, 1.0]])


class Style(NamedTuple):
    """How a program writes: settings of the writer, keywords, channels and markers, and the scale."""

    settings: dict[str, Any]
    keywords: dict[str, str]
    names: list[str]
    markers: list[str]
    scale: str
    spills: str = ""


STYLES = {
    # BD FACSDiva: form feeds, big-endian floats, the matrix in SPILL.
    "FACSDiva": Style(
        {"version": "3.0", "little": False, "delimiter": "\f"},
        {"_CREATOR": "BD FACSDiva Software Version 8.0.1", "TIMESTEP": "0.01", "_APPLY COMPENSATION": "TRUE"},
        ["Time", "FSC-A", "FITC-A", "PE-A"],
        ["", "", "CD3", "CD4"],
        "arcsinh:150",
        "_SPILL",
    ),
    # BD CellQuest: 10 bits in 16, logarithmic amplifiers.
    "CellQuest": Style(
        {"version": "2.0", "kind": "I", "bits": 16, "little": False, "ranges": 1024, "delimiter": "\\"},
        {"_CREATOR": "CELLQuest 3.3", "P3E": "4,1", "P4E": "4,1"},
        ["Time", "FSC-H", "FL1-H", "FL2-H"],
        ["Time (1 sec.)", "", "CD3 FITC", "CD4 PE"],
        "arcsinh:5.72",
    ),
    # BD Accuri: integers of 24 bits in 32.
    "Accuri": Style(
        {"version": "3.1", "kind": "I", "bits": 32, "ranges": 1 << 24},
        {"CYT": "Accuri C6", "VOL": "21"},
        ["Time", "FSC-A", "FL1-A", "FL2-A"],
        ["", "", "CD3", "CD4"],
        "arcsinh:9600",
    ),
    # Beckman Coulter CytExpert: little-endian floats with gains, the matrix in $SPILLOVER.
    "CytExpert": Style(
        {"version": "3.0", "ranges": 1 << 24, "delimiter": "|"},
        {"CYT": "CytoFLEX S", "P2G": "10", "_CYTEXPERT": "a|b"},
        ["Time", "FSC-A", "FITC-A", "PE-A"],
        ["", "", "CD3", "CD4"],
        "arcsinh:9600",
        "SPILLOVER",
    ),
    # Cytek SpectroFlo: unmixed floats with values below zero.
    "SpectroFlo": Style(
        {"version": "3.1", "ranges": 4194304, "delimiter": "\t"},
        {"CYT": "Aurora", "_CREATOR": "SpectroFlo 3.0.1"},
        ["Time", "FSC-A", "BUV395-A", "PE-Cy7-A"],
        ["", "", "CD3", "CD4"],
        "arcsinh:2400",
    ),
    # Fluidigm: counts of ions, big-endian.
    "CyTOF": Style(
        {"version": "3.0", "little": False, "ranges": 8192, "delimiter": "|"},
        {"CYT": "DVSSCIENCES-CYTOF-6.5.358"},
        ["Time", "Event_length", "Er170Di", "Nd145Di"],
        ["Time", "Event_length", "170Er_CD3", "145Nd_CD4"],
        "arcsinh:5",
    ),
}


def stored_cells(style: Style, seed: int) -> np.ndarray:
    """Return values (200, 4) that a program stores: time, scatter and fluorescences of two populations."""
    random = np.random.default_rng(seed)
    integers = style.settings.get("kind") == "I"
    top = 900.0 if style.settings.get("ranges") == 1024 else 60_000.0
    centres = np.where(np.arange(200)[:, None] < 120, [top, 0.1 * top], [0.1 * top, top])
    if style.scale == "arcsinh:5":
        centres /= 300.0
    rows = centres * np.exp(0.1 * random.normal(size=(200, 2)))
    stored = np.column_stack([np.arange(200), random.uniform(0.2, 0.4, 200) * top, rows])
    return stored.round().clip(0, 1023 if top == 900.0 else np.inf) if integers else stored


def written(path: Path, style: Style, seed: int) -> tuple[Path, np.ndarray]:
    """Write a file; return it, and the values that its fluorescence stands for."""
    stored = stored_cells(style, seed)
    values = stored[:, 2:].copy()
    keywords = {f"P{n}S": marker for n, marker in enumerate(style.markers, 1) if marker} | style.keywords
    if style.spills:
        matrix = ",".join([*style.names[2:], *map(str, SPILL.ravel())])
        keywords[style.spills] = f"2,{matrix}"
        stored[:, 2:] = values @ SPILL
    if style.keywords.get("P3E") == "4,1":
        values = 10.0 ** (4.0 * values / 1024.0)
    return write_fcs_file(path, stored, style.names, **style.settings, **keywords), values


@pytest.mark.parametrize("program", STYLES)
def test_files_of_a_program_are_read_on_its_scale(tmp_path: Path, program: str) -> None:
    style = STYLES[program]
    path, values = written(tmp_path / "a.fcs", style, 0)
    markers = [marker or name for marker, name in zip(style.markers, style.names, strict=True)][2:]
    linear = open_rows(path, columns=markers, transform=None)
    assert_allclose(np.concatenate([block.X for block in linear.blocks()]), values, rtol=1e-5)
    # flowio agrees on what the numbers are, but for spill-over.
    if not style.spills:
        assert_allclose(flowio.FlowData(str(path)).as_array()[:, 2:], values, rtol=1e-5)
    source = open_rows(path, columns=markers)
    cofactor = float(style.scale.partition(":")[2])
    scaled = np.concatenate([block.X for block in source.blocks()])
    assert_allclose(scaled, np.arcsinh(values / cofactor), rtol=5e-3)
    assert source.preparation["compensate"] == bool(style.spills)


@pytest.mark.parametrize("program", STYLES)
def test_populations_of_a_program_are_found_and_named(tmp_path: Path, program: str) -> None:
    style = STYLES[program]
    files = [written(tmp_path / f"{seed}.fcs", style, seed)[0] for seed in range(2)]
    study = compose(files, n_kernels=2, markers=style.names[2:], random_state=0)
    assert_allclose(np.sort(study.proportions["proportion"]), [0.4, 0.4, 0.6, 0.6], atol=1e-6)
    assert len(study.populations) == 2
    assert not {"Time", "Event_length"} & set(study.markers)
