"""Events of FCS files whose bytes no instrument wrote are noticed, and files without any pass unremarked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cytometry import write_fcs_file
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, compose, open_rows
from skmix.datasets import copy_examples

pytest.importorskip("flowio", reason="flowio is not installed")

CALIBUR = Path(__file__).parents[1] / "data" / "0877408774.B08.fcs"
CALIBUR_BYTES = 16
WELL_BYTES = 28
NAMES = ["Time", "FSC-A", "CD3", "CD4"]


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of floats by a MACSQuant, in 7 channels of single precision."""
    folder = tmp_path_factory.mktemp("examples")
    copy_examples(folder)
    (path,) = folder.rglob("RFP-A03.fcs")
    return path


def rows_of(path: Path, damaged: str = "refuse") -> np.ndarray:
    options = {} if damaged == "refuse" else {"damaged": damaged}  # by default
    source = open_rows(path, transform=None, compensate=False, **options)
    return np.concatenate([block.X for block in source.blocks()])


def events_start(path: Path) -> int:
    """Return the position of the first event, as the header says."""
    return int(path.read_bytes()[26:34])


Damage = Callable[[np.ndarray, np.random.Generator], np.ndarray]
DAMAGES: dict[str, Damage] = {
    "random": lambda old, random: random.integers(0, 256, len(old), dtype=np.uint8),
    "inverted": lambda old, random: 255 - old,
    "one bit of each byte": lambda old, random: old ^ (1 << random.integers(0, 8, len(old))).astype(np.uint8),
    "zeroed": lambda old, random: np.zeros_like(old),
    "shifted by a byte": lambda old, random: np.roll(old, 1),
    "shifted by two": lambda old, random: np.roll(old, 2),
}


def damage(path: Path, target: Path, first: int, n_bytes: int, change: Damage) -> Path:
    """Copy a file and damage bytes of its events, from byte `first` of them on."""
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    start = events_start(path) + first
    content[start : start + n_bytes] = change(content[start : start + n_bytes], np.random.default_rng(first))
    content.tofile(target)
    return target


@pytest.mark.parametrize("kind", ["integers", "floats"])
@pytest.mark.parametrize("way", DAMAGES)
@pytest.mark.parametrize("first", [5, 40000, 77777])
def test_four_kilobytes_are_noticed(well: Path, tmp_path: Path, kind: str, way: str, first: int) -> None:
    original, size = (CALIBUR, CALIBUR_BYTES) if kind == "integers" else (well, WELL_BYTES)
    path = damage(original, tmp_path / "x.fcs", first, 4096, DAMAGES[way])
    last = (first + 4095) // size
    whole, n_changed = rows_of(original), last - first // size + 1
    with pytest.raises(
        ValueError, match=r"x\.fcs is damaged: (\d+) of \d+ events .* event (\d+), counted"
    ) as error:
        rows_of(path)
    told = re.search(r"(\d+) of \d+ events .* event (\d+), counted", str(error.value))
    assert told is not None
    assert "damaged='drop'" in str(error.value)
    left, begin = rows_of(path, "drop"), int(told[2])
    assert len(left) == len(whole) - int(told[1])
    if way == "shifted by two" and kind == "integers":
        # Channels were exchanged: only times tell, and some of the events may look as if they were in order.
        assert int(told[1]) > 0.9 * n_changed
    else:
        # Events at the ends of the run may have few damaged bytes, or be sound.
        assert abs(int(told[1]) - n_changed) <= 4
        assert abs(begin - first // size) <= 2
        assert_array_equal(left, np.delete(whole, np.arange(begin, begin + int(told[1])), axis=0))
    assert len(rows_of(path, "keep")) == len(whole)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3e30, 1e-42])
@pytest.mark.parametrize("kind", ["F", "D"])
def test_one_absurd_value_is_noticed(tmp_path: Path, value: float, kind: str) -> None:
    events = np.random.default_rng(0).normal(500.0, 200.0, (300, 4))
    events[:, 0] = np.arange(300)
    events[217, 2] = value
    path = write_fcs_file(tmp_path / "a.fcs", events, NAMES, kind=kind)
    with pytest.raises(ValueError, match=r"damaged: 1 of 300 events .* event 217, counted from 0"):
        rows_of(path)
    assert len(rows_of(path, "drop")) == 299


def test_a_nan_that_no_program_writes_is_noticed(tmp_path: Path) -> None:
    events = np.random.default_rng(0).normal(500.0, 200.0, (300, 4)).astype("<f4")
    events[5, 2] = np.nan  # means a missing value
    path = write_fcs_file(tmp_path / "a.fcs", events, NAMES)
    assert np.isnan(rows_of(path)).sum() == 1
    events.view("<u4")[9, 3] = 0x7FA3_1C55
    with pytest.raises(ValueError, match=r"damaged: 1 of 300 events .* event 9, counted from 0"):
        rows_of(write_fcs_file(tmp_path / "b.fcs", events, NAMES))


# ---------------------------------------------------------------- what is no damage


EVENTS = np.random.default_rng(0).normal(500.0, 200.0, (2000, 4))
EVENTS[:, 0] = np.arange(2000)
ROW, COLUMN = np.arange(2000)[:, None], np.arange(4)


def timed(times: np.ndarray) -> np.ndarray:
    return np.column_stack([times, EVENTS[:, 1:]])


ODD = {
    "far cells": np.where((ROW // 20 == 35) & (COLUMN >= 2), 1e7, EVENTS),
    "restarts": timed(np.r_[np.arange(1000), np.arange(300), np.arange(700)]),
    "an overflow of the clock": timed(EVENTS[:, 0] % 1900),
    "no order": np.random.default_rng(1).permutation(EVENTS),
    "late events": timed(np.where(ROW[:, 0] == 1234, 0.0, EVENTS[:, 0] - 3.0 * (ROW[:, 0] % 50 == 0))),
    "small rests": np.where((ROW % 7 == 0) & (COLUMN == 3), 1e-17, EVENTS),
    "zeros": np.where((ROW % 2 == 0) & (COLUMN >= 2), 0.0, EVENTS),
    "gaps": np.where(COLUMN == 3, np.nan, EVENTS),
    "large units": EVENTS * [1.0, 1.0, 1.0, 1e9],
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", ["F", "D"])
def test_odd_floats_pass(tmp_path: Path, name: str, kind: str) -> None:
    found = rows_of(write_fcs_file(tmp_path / "a.fcs", ODD[name], NAMES, kind=kind))
    assert_allclose(found, ODD[name][:, 1:], rtol=1e-6)


def test_events_of_zeros_pass_where_zeros_are_values(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).poisson(0.3, (500, 3))
    counts[100:140] = 0
    names = ["Nd143Di", "Sm147Di", "Yb171Di"]
    assert len(rows_of(write_fcs_file(tmp_path / "a.fcs", counts, names))) == 500


def test_bits_above_the_range_may_be_remarks(tmp_path: Path) -> None:
    """Some instruments note things in them; the standard says to ignore them."""
    stored = np.random.default_rng(0).integers(0, 1024, (500, 4))
    marked = stored.copy()
    marked[::9, 2] += 1 << 15
    marked[:, 3] += 1 << 14
    settings = {"kind": "I", "bits": 16, "ranges": 1024}
    path = write_fcs_file(tmp_path / "a.fcs", marked, ["SSC-H", "FL1-H", "FL2-H", "FL3-H"], **settings)  # type: ignore[arg-type]
    assert_array_equal(rows_of(path), stored)


def test_genuine_files_pass(well: Path) -> None:
    files = [CALIBUR, *sorted(well.parent.glob("*.fcs"))]
    assert len(files) == 8
    for path in files:
        assert_array_equal(rows_of(path), rows_of(path, "keep"))
        source = open_rows(path, damaged="drop")
        assert not source.remarks()
        assert source.n_rows == len(rows_of(path))


# ---------------------------------------------------------------- studies and the command line


def test_noise_does_not_move_proportions_unsaid(tmp_path: Path) -> None:
    files = []
    for seed, share in enumerate((0.44, 0.3)):
        random = np.random.default_rng(seed)
        n = round(2000 * share)
        log = np.r_[random.normal([8.5, 4.5], 0.4, (n, 2)), random.normal([4.5, 8.5], 0.4, (2000 - n, 2))]
        events = np.c_[np.arange(2000), random.normal(6e4, 5e3, 2000), np.exp(random.permutation(log))]
        files.append(write_fcs_file(tmp_path / f"{seed}.fcs", events, NAMES))
    settings = {"markers": ["CD3", "CD4"], "n_kernels": 2, "n_jobs": 1}
    study = compose(files, **settings)  # type: ignore[arg-type]
    assert_allclose(study.proportions["proportion"], [0.56, 0.44, 0.7, 0.3], atol=0.01)
    bad = damage(files[0], tmp_path / "bad.fcs", 16 * 900, 4096, DAMAGES["random"])
    opener = r"open_rows\(\.\.\., damaged='drop'\)"
    for refused, remedy in (
        (lambda: compose([bad, files[1]], **settings), "damaged='drop'"),  # type: ignore[arg-type]
        (lambda: compose(open_rows([bad, files[1]]), n_kernels=2), opener),
        (lambda: study.apply_to(bad), "damaged='drop'"),
        (lambda: SharedKernelMixture(2).fit([bad, files[1]]), opener),
        (lambda: study.model.predict(bad), opener),
        (lambda: study.label_cells(tmp_path / "labels.csv", bad), opener),
    ):
        with pytest.raises(ValueError, match=rf"bad\.fcs is damaged: 25\d of 2000 events.* with {remedy}\."):
            refused()
    shares = study.proportions["proportion"].to_numpy()
    # A note and the page say which events are left out, and a warning where there are no notes.
    left_out = r"bad\.fcs: damaged events are left out: 25\d of 2000 events .* event (899|900),"
    again = compose([bad, files[1]], damaged="drop", **settings)  # type: ignore[arg-type]
    opened = open_rows([bad, files[1]], damaged="drop", columns=["CD3", "CD4"])
    found = [again, study.apply_to([bad], damaged="drop"), compose(opened, n_kernels=2, n_jobs=1)]
    with pytest.warns(UserWarning, match=left_out):
        SharedKernelMixture(1).fit(open_rows(bad, damaged="drop")).score(open_rows(bad, damaged="drop"))
    for each in found:
        assert_allclose(each.proportions["proportion"][:2], shares[:2], atol=0.05)
        (note,) = (note for note in each.describe()["notes"] if "damaged" in note)
        assert re.match(f".*{left_out}", note)
        assert note in each.to_html()
    # Labels are those of the events that are left, in tables and in copies of the file.
    opened = open_rows([bad], damaged="drop", columns=["CD3", "CD4"])
    with pytest.warns(UserWarning, match=left_out):
        study.label_cells(tmp_path / "labels.csv", opened)
    with pytest.warns(UserWarning, match=left_out):
        study.label_cells(tmp_path / "labelled", opened)
    assert len(pd.read_csv(tmp_path / "labels.csv")) == opened.n_rows < 1750
    assert_allclose(rows_of(tmp_path / "labelled" / "bad.fcs"), rows_of(bad, "drop"), rtol=1e-6)
