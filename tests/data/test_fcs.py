"""FCS files: against flowio and by hand, and what is wrong with the names of the file and the channel."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cytometry import read_fcs
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, load, open_rows
from skmix.data.events import write_fcs
from skmix.data.fcs import open_fcs, without_bookkeeping
from skmix.features import Arcsinh, Logicle

flowio = pytest.importorskip("flowio", reason="flowio is not installed")

EVENTS = np.random.default_rng(0).normal(500.0, 200.0, size=(300, 4)).astype(np.float32)
NAMES = ["FSC-A", "B530-A", "R660-A", "Time"]
MARKERS = ["", "CD3", "CD4", ""]
SPILL = np.array([[1.0, 0.2], [0.05, 1.0]])
SPILLOVER = "2,B530-A,R660-A,1,0.2,0.05,1"
# Scatter is divided by this: its range of 262144 is then as long as that of other channels.
UNIT = 262144.0 / np.arcsinh(262144.0 / 150.0)


def write(
    path: Path,
    events: np.ndarray = EVENTS,
    names: Sequence[str] = NAMES,
    markers: Sequence[str] = MARKERS,
    **keywords: str,
) -> Path:
    """Write single-precision events with flowio."""
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        flowio.create_fcs(file, events.ravel().tolist(), list(names), list(markers), keywords)
    return path


def write_by_hand(
    path: Path, data: bytes, keywords: Mapping[str, object], version: str = "3.0", delimiter: str = "/"
) -> Path:
    """Write events of any type; an empty value of a keyword stays empty."""
    text_start, data_start = 256, 4096
    stop = data_start + len(data) - 1
    given = {"BEGINDATA": data_start, "ENDDATA": stop, "BYTEORD": "1,2,3,4", "MODE": "L", "NEXTDATA": 0}
    given |= keywords
    text = delimiter + "".join(f"${key}{delimiter}{value}{delimiter}" for key, value in given.items())
    offsets = (text_start, text_start + len(text) - 1, data_start, stop, 0, 0)
    header = f"FCS{version}    " + "".join(f"{offset:8d}" for offset in offsets)
    path.write_bytes((header.ljust(text_start) + text).ljust(data_start).encode("latin-1") + data)
    return path


def channels(bits: Sequence[int], ranges: Sequence[int], scales: Sequence[str]) -> dict[str, object]:
    """Return the keywords of channels a, b, c …"""
    found: dict[str, object] = {"PAR": len(bits)}
    for n, (width, span, scale) in enumerate(zip(bits, ranges, scales, strict=True), start=1):
        found |= {f"P{n}N": "abcdefgh"[n - 1], f"P{n}B": width, f"P{n}R": span, f"P{n}E": scale}
    return found


def flowio_says(path: Path) -> np.ndarray:
    values: np.ndarray = flowio.FlowData(str(path)).as_array()
    return values


def gathered(source: Any) -> np.ndarray:
    return np.concatenate([block.X for block in source.blocks()])


# ---------------------------------------------------------------- values


def test_gains_and_time_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fcs", TIMESTEP="0.01", P2G="4.0", P4G="7.0", P3G="0")
    found = read_fcs(path)
    assert found.X.dtype == np.float64
    # The gain of a time does not count, nor does one of zero.
    assert_allclose(found.X, EVENTS.astype(np.float64) / [1.0, 4.0, 1.0, 100.0], rtol=1e-14)
    assert_allclose(found.X, flowio_says(path), rtol=1e-14)
    assert read_fcs(path, channels=["R660-A", "FSC-A"]).X.dtype == np.float32


@pytest.mark.parametrize("order", ["1,2,3,4", "4,3,2,1"])
@pytest.mark.parametrize("version", ["2.0", "3.0", "3.1"])
@pytest.mark.parametrize("widths", [(16, 16, 16), (8, 32, 16)])
def test_integers_of_any_width_and_scale(
    tmp_path: Path, order: str, version: str, widths: tuple[int, ...]
) -> None:
    ranges, scales = (200, 1000, 1024), ("0,0", "4,0", "3.5,0.1")
    sign = "<" if order[0] == "1" else ">"
    dtype = np.dtype([(name, f"{sign}u{bits // 8}") for name, bits in zip("abc", widths, strict=True)])
    stored = np.random.default_rng(0).integers(0, [200, 1000, 1024], size=(50, 3))
    # Bits above a range of 1024 are to be ignored, and those below the next power of two are not.
    stored[:5] = [[199, 999, 1023], [255, 1, 2], [3, 1023, 4], [5, 6, 1024 + 7], [0, 0, 0]]
    records = np.array([tuple(row) for row in stored], dtype)
    keywords = {"DATATYPE": "I", "TOT": 50, "BYTEORD": order, **channels(widths, ranges, scales)}
    path = write_by_hand(tmp_path / "a.fcs", records.tobytes(), keywords, version)
    stored[3, 2] = 7
    expected = stored.astype(np.float64)
    expected[:, 1] = 10 ** (4 * expected[:, 1] / 1000)
    expected[:, 2] = 10 ** (3.5 * expected[:, 2] / 1024) * 0.1
    found = read_fcs(path)
    assert found.X.dtype == np.float64
    assert_allclose(found.X, expected, rtol=1e-13)
    assert_allclose(found.X, flowio_says(path), rtol=1e-13)


@pytest.mark.parametrize("order", ["1,2,3,4", "4,3,2,1"])
def test_double_precision(tmp_path: Path, order: str) -> None:
    values = np.random.default_rng(0).normal(size=(20, 2))
    keywords = {"DATATYPE": "D", "TOT": 20, "BYTEORD": order, **channels((64, 64), (1, 1), ("4,1", "0,0"))}
    stored = values.astype("<f8" if order[0] == "1" else ">f8")
    # Floats have no logarithmic scale, whatever $PnE is.
    assert_array_equal(read_fcs(write_by_hand(tmp_path / "a.fcs", stored.tobytes(), keywords)).X, values)


def test_empty_values_of_keywords(tmp_path: Path) -> None:
    """The first events of sample 0877408774.B08 of Bioconductor's flowCore (Artistic-2.0), by a FACSCalibur.

    Its keywords have empty values, which the standard does not allow: read as escaped delimiters they would
    swallow the name of a channel. The values of FL1-H and FL4-H are 10^(4 v / 1024).
    """
    names = ["FSC-H", "SSC-H", "FL1-H", "FL2-H", "FL3-H", "FL1-A", "FL4-H", "Time"]
    stored = np.array([[382, 77, 618, 0, 225, 55, 286, 1], [628, 280, 245, 431, 259, 0, 371, 1]], ">u2")
    keywords: dict[str, object] = {"DATATYPE": "I", "TOT": 2, "PAR": 8, "BYTEORD": "4,3,2,1"}
    for n, name in enumerate(names, start=1):
        if n == 6:
            keywords |= {"P3S": "", "P4S": ""}
        scale = "4,1" if name in ("FL1-H", "FL2-H", "FL3-H", "FL4-H") else "0,0"
        keywords |= {f"P{n}N": name, f"P{n}B": 16, f"P{n}R": 1024, f"P{n}E": scale}
    keywords["P8S"] = "Time (51.20 sec.)"
    keywords["P2S"] = "µ"  # of one byte, which is not UTF-8
    path = write_by_hand(tmp_path / "a.fcs", stored.tobytes(), keywords, "2.0", "\\")
    found = read_fcs(path)
    assert found.channels == tuple(names)
    assert found.markers == ("", "µ", "", "", "", "", "", "Time (51.20 sec.)")
    assert_array_equal(found.X[:, [0, 1, 5, 7]], [[382, 77, 55, 1], [628, 280, 0, 1]])
    assert_allclose(found.X[:, 2], [259.455272, 9.057978], rtol=1e-6)
    assert_allclose(found.X[:, 6], [13.097473, 28.133175], rtol=1e-6)


def test_what_may_be_left_out_or_written_in_another_way(tmp_path: Path) -> None:
    stored = np.array([[1, 1000, 7], [0, 16, 9]], "<u2")
    keywords: dict[str, object] = {"DATATYPE": " i ", "TOT": " 2 ", "PAR": 3, "BYTEORD": "1,2", "MODE": "l"}
    keywords |= {"P1N": " a ", "P2N": "b", "P3N": "TIME", "P2S": " CD3 ", "P2G": " 2 ", "TIMESTEP": " 0.5 "}
    # All bits count where the range is that of the type, and where it says nothing.
    keywords |= {"P1R": 65536, "P2R": 1, "P3R": 1024, "P1B": 16, "P2B": 16, "P3B": 16}
    path = write_by_hand(tmp_path / "a.fcs", stored.tobytes(), keywords)
    found = read_fcs(path)
    assert found.channels == ("a", "b", "TIME")
    assert found.markers == ("", "CD3", "")
    assert_array_equal(found.X, [[1.0, 500.0, 3.5], [0.0, 8.0, 4.5]])


def test_events_are_where_header_and_text_say(tmp_path: Path) -> None:
    stored = np.array([3, 4, 5], "<f4")
    keywords = {"DATATYPE": "F", "TOT": 3, **channels((32,), (1,), ("0,0",))}
    path = write_by_hand(tmp_path / "a.fcs", stored.tobytes(), keywords)
    whole = path.read_bytes()
    # Files above 99,999,999 bytes have zeros in the header.
    path.write_bytes(whole[:26] + f"{0:8d}{0:8d}".encode() + whole[42:])
    assert_array_equal(read_fcs(path).X[:, 0], stored)
    # In version 2.0 the header alone says it, and events may end before the file does.
    path = write_by_hand(tmp_path / "b.fcs", stored.tobytes(), {**keywords, "BEGINDATA": 7}, "2.0")
    assert_array_equal(read_fcs(path).X[:, 0], stored)
    path.write_bytes(path.read_bytes() + b"more")
    assert_array_equal(read_fcs(path).X[:, 0], stored)
    path.write_bytes(path.read_bytes().replace(b"$TOT/3/", b"$TOT/4/"))
    with pytest.raises(ValueError, match=r"b\.fcs is truncated: it has 3 of 4 events"):
        read_fcs(path)


# ---------------------------------------------------------------- written files


def test_written_files_have_the_same_values_and_keywords_and_more_channels(tmp_path: Path) -> None:
    """Whatever was done to values to read them is not done again, by any reader."""
    stored = np.array([[8, 512, 1], [10, 1023, 600], [14, 0, 7]], ">u2")
    keywords: dict[str, object] = {"DATATYPE": "I", "TOT": 3, "PAR": 3, "BYTEORD": "4,3,2,1", "TIMESTEP": 0.5}
    for n, (name, marker, scale) in enumerate(
        (("Time", "", "0,0"), ("FL1", "CD3", "4,1"), ("FL2", "CD4", "0,0")), start=1
    ):
        keywords |= {f"P{n}N": name, f"P{n}B": 16, f"P{n}R": 1024, f"P{n}E": scale}
        keywords |= {f"P{n}S": marker} if marker else {}
    keywords |= {"P3G": 4, "CYT": "machine", "SPILLOVER": "2,FL2,FL1,1,0.5,0.25,1", "P2V": 450}
    original = write_by_hand(tmp_path / "a.fcs", stored.tobytes(), keywords)
    values = np.column_stack([stored[:, 0] / 2, 10 ** (4 * stored[:, 1] / 1024), stored[:, 2] / 4])
    labels = np.array([2, 0, 1])
    path = tmp_path / "b.fcs"
    path.write_text("old")
    write_fcs(path, original, "kernel", labels, ["a/b", "T", 2])
    expected = np.column_stack([values, labels]).astype(np.float32)
    found = read_fcs(path)
    assert found.channels == ("Time", "FL1", "FL2", "kernel")
    assert found.markers == ("", "CD3", "CD4", "population")
    assert found.X.dtype == np.float32
    assert_allclose(found.X, expected, rtol=1e-7)
    assert_allclose(flowio_says(path), expected, rtol=1e-7)
    assert path.read_bytes()[:6] == b"FCS3.1"
    text = flowio.FlowData(str(path)).text
    assert [text.get(key) for key in ("cyt", "p2v", "p4r")] == ["machine", "450", "3"]
    assert text["kernel_names"] == "0 = a/b, 1 = T, 2 = 2"
    # It is no marker, whatever its name.
    assert open_fcs(path).markers == ["FL1", "FL2"]
    # FL2 shows in FL1 with a half of it, and FL1 in FL2 with a quarter.
    true = np.linalg.solve([[1.0, 0.5], [0.25, 1.0]], values[:, 1:].T).T
    for each in (original, path):
        assert_allclose(read_fcs(each, channels=["FL1", "FL2"], compensate=True).X, true, rtol=1e-5)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.fcs", "b.fcs"]
    with pytest.raises(ValueError, match=r"a\.fcs already has a channel 'FL1'"):
        write_fcs(path, original, "FL1", labels, [])
    assert_array_equal(read_fcs(path).X, found.X)


# ---------------------------------------------------------------- channels and compensation


def test_channels_by_name_or_marker(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fcs")
    found = read_fcs(path, channels=["CD4", "FSC-A"])
    assert_array_equal(found.X, EVENTS[:, [2, 0]])
    assert found.channels == ("R660-A", "FSC-A")
    assert found.markers == ("CD4", "")
    # A name comes before a marker.
    path = write(tmp_path / "b.fcs", names=["x", "y", "z", "t"], markers=["y", "x", "same", "same"])
    assert read_fcs(path, channels=["x", "y"]).channels == ("x", "y")
    with pytest.raises(ValueError, match=r"b\.fcs has 2 channels of marker 'same'"):
        read_fcs(path, channels=["same"])
    with pytest.raises(ValueError, match=r"b\.fcs has no channel or marker 'CD8'; its channels are x \(y\)"):
        read_fcs(path, channels=["CD8"])
    with pytest.raises(ValueError, match=r"'R660-A' and 'CD4' are the same channel of .*a\.fcs"):
        read_fcs(tmp_path / "a.fcs", channels=["R660-A", "CD4"])


@pytest.mark.parametrize("keyword", ["SPILLOVER", "SPILL"])
def test_compensation_undoes_the_spill_over(tmp_path: Path, keyword: str) -> None:
    """Of three channels, in another order than they are stored."""
    true = np.random.default_rng(1).normal(1000.0, 300.0, size=(200, 4))
    # What FSC-A, Time and B530-A emit into FSC-A, Time and B530-A, which has a gain.
    matrix = np.array([[1.0, 0.1, 0.2], [0.3, 1.0, 0.0], [0.0, 0.4, 1.0]])
    places, observed = [0, 3, 1], true.copy()
    observed[:, places] = true[:, places] @ matrix
    matrices = {keyword: f" 3 , FSC-A,Time, B530-A,{','.join(map(str, matrix.ravel()))}"}
    if keyword == "SPILLOVER":
        matrices["SPILL"] = "2,B530-A,R660-A,1,0.9,0.9,1"
    path = write(tmp_path / "a.fcs", (observed * [1, 2, 1, 1]).astype(np.float32), P2G="2", **matrices)
    found = read_fcs(path, compensate=True)
    assert found.X.dtype == np.float64
    assert_allclose(found.X, true, rtol=1e-6)
    assert_allclose(read_fcs(path).X, observed, rtol=1e-6)
    # What spills over need not be chosen, and what is chosen need not spill over.
    for chosen in (["Time", "CD4", "B530-A"], ["CD4"], ["FSC-A"]):
        indices = [NAMES.index({"CD4": "R660-A"}.get(name, name)) for name in chosen]
        assert_array_equal(read_fcs(path, channels=chosen, compensate=True).X, found.X[:, indices])
    opened = open_rows(path, columns=NAMES, compensate=True, transform=None, chunk_rows=64)
    assert_array_equal(gathered(opened), found.X)
    assert_array_equal(gathered(opened.with_features([3, 1])), found.X[:, [3, 1]])


@pytest.mark.parametrize(
    ("spillover", "words"),
    [
        (None, "no spill-over matrix"),
        ("2,B530-A,R660-A,1,0.2,0.05", "damaged: for '2' channels it has 5"),
        ("two,B530-A", "damaged: for 'two'"),
        ("2,B530-A,G780-A,1,0,0,1", "unknown channel 'G780-A'"),
        ("2,B530-A,R660-A,1,?,0.05,1", "damaged: could not convert"),
        ("2,B530-A,R660-A,1,2,2,4", "singular"),
        ("2,B530-A,R660-A,1,nan,0,1", "singular"),
        ("0", "damaged: for '0' channels it has 0"),
    ],
)
def test_bad_matrices_are_refused(tmp_path: Path, spillover: str | None, words: str) -> None:
    path = write(tmp_path / "a.fcs", **({} if spillover is None else {"SPILLOVER": spillover}))
    assert len(read_fcs(path).X) == 300
    for reading in (read_fcs, open_rows):
        with pytest.raises(ValueError, match=rf"a\.fcs.*{words}|{words}.*a\.fcs"):
            reading(path, compensate=True)  # type: ignore[operator]


# ---------------------------------------------------------------- row sources


def test_rows_say_how_they_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fcs", SPILLOVER=SPILLOVER)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    plain = {"compensate": False, "transform": "none"}
    linear = {"linear": {"FSC-A": UNIT}}
    for options, expected in (
        ({"compensate": False, "transform": None}, plain),
        ({}, {"compensate": True, "transform": "arcsinh:150", **linear}),
        ({"compensate": False}, {"compensate": False, "transform": "arcsinh:150", **linear}),
        ({"compensate": True, "transform": Arcsinh(5)}, {"compensate": True, "transform": "arcsinh:5"}),
    ):
        for each in (path, [path]):
            source = open_rows(each, **options)
            assert source.preparation == expected
    assert source.with_features([2, 1]).preparation == {"compensate": True, "transform": "arcsinh:5"}
    assert open_rows([tmp_path / "t.csv"]).preparation is None
    assert open_rows(tmp_path / "t.csv", transform="arcsinh").preparation == {"transform": "arcsinh:5"}


def test_files_with_and_without_a_matrix_are_not_mixed(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.fcs", SPILLOVER=SPILLOVER), write(tmp_path / "b.fcs")]
    opened = open_rows(files, transform=None)
    with pytest.raises(ValueError, match=r"a\.fcs has a spill-over matrix, and .*b\.fcs has none"):
        gathered(opened)
    assert_array_equal(gathered(open_rows(files, compensate=False, transform=None))[:300], EVENTS[:, :3])
    # A model does not need a matrix that it does not use.
    model = SharedKernelMixture(1).fit(files[1])
    assert not model.recipe_["compensate"]
    assert_array_equal(model.score_samples(files)[:300], model.score_samples(files[1]))
    damaged = write(tmp_path / "c.fcs", SPILLOVER="2,B530-A,G780-A,1,0,0,1")
    assert_array_equal(model.score_samples(damaged), model.score_samples(files[1]))
    with pytest.raises(ValueError, match=r"unknown channel 'G780-A'\. compensate=False reads events"):
        model.fit(damaged)


def test_events_are_on_the_scale_of_the_command_line_and_have_no_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fcs")
    scaled = np.column_stack([EVENTS[:, 0] / UNIT, np.arcsinh(EVENTS[:, 1:3] / 150.0)])
    for given in (path, [path], str(tmp_path / "*.fcs")):
        source = open_rows(given)
        assert source.feature_names == NAMES[:3]
        assert_allclose(gathered(source), scaled, rtol=1e-6)
        chosen = gathered(source.chosen(["Time", "CD3"]))
        assert_allclose(chosen, np.arcsinh(EVENTS[:, [3, 1]] / 150.0), rtol=1e-6)
        assert_array_equal(gathered(open_rows(given, transform=None)), EVENTS[:, :3])
    assert_allclose(gathered(open_rows(path, columns=["Time"])), np.arcsinh(EVENTS[:, 3:] / 150.0), rtol=1e-6)
    only = write(tmp_path / "only" / "t.fcs", EVENTS[:, 3:], NAMES[3:], MARKERS[3:])
    assert open_rows(only).feature_names == ["Time"]


@pytest.mark.parametrize(
    ("names", "keywords", "markers", "scale"),
    [
        (["Event_length", "Yb171Di", "Center"], {}, ["Yb171Di"], "arcsinh:5"),
        (["Cell_length", "CD3(Cd110)Dd", "Event #"], {}, ["CD3(Cd110)Dd"], "arcsinh:5"),
        (["Time", "CD3", "Offset"], {"CYT": "DVSSCIENCES-CYTOF-6.0"}, ["CD3"], "arcsinh:5"),
        (["TIME LSW", "FITC-A", "Width"], {"CYT": "BD"}, ["FITC-A", "Width"], "arcsinh:150"),
        (["PE-A", "PE-H", "PE-W"], {}, ["PE-A"], "arcsinh:150"),
        # Heights, if some channels have no area.
        (["FL1-A", "FL1-H", "FL2-H"], {}, ["FL1-H", "FL2-H"], "arcsinh:150"),
    ],
)
def test_markers_and_mass_cytometry_are_recognised(
    tmp_path: Path, names: list[str], keywords: dict[str, str], markers: list[str], scale: str
) -> None:
    source = open_rows(write(tmp_path / "a.fcs", EVENTS[:, :3], names, [""] * 3, **keywords))
    assert source.feature_names == markers
    assert source.preparation == {"compensate": False, "transform": scale}


def test_scatter_stays_linear_and_new_samples_are_read_alike(tmp_path: Path) -> None:
    names = ["FSC-A", "SSC_1-H", "FS INT", "FSH"]
    # The range of a channel is divided by its gain.
    path = write(tmp_path / "a.fcs", EVENTS, names, MARKERS, P1R="1024", P1G="2", P2R="0")
    source = open_rows(path, transform="logicle", columns=["FSH", "FSC-A", "SSC_1-H", "FS INT"])
    top = 1.0 - 1.0 / 9.0  # of the scale, above the position of zero
    units = [512.0 / np.ptp(Logicle().transform([[0.0], [512.0]])), 262144.0 / top, 262144.0 / top]
    expected = Logicle().transform(EVENTS[:, [3, 0, 1, 2]].astype(float))
    expected[:, 1:] = EVENTS[:, :3] / [2.0, 1.0, 1.0] / units
    assert_allclose(gathered(source), expected, rtol=1e-5)
    model = SharedKernelMixture(2, random_state=0).fit(source)
    frame = pd.DataFrame(EVENTS / [2.0, 1.0, 1.0, 1.0], columns=names)
    other = write(tmp_path / "b.fcs", EVENTS, names, MARKERS, P1R="9999", P1G="2")
    for rows in (frame[source.feature_names], other, open_rows(other, transform="logicle")):
        assert_allclose(model.score_samples(rows), model.score_samples(source), rtol=1e-5)
    with pytest.raises(ValueError, match=r"on the scale logicle, but the fit was on logicle \("):
        model.score_samples(open_rows(other, transform=Logicle()))
    drawn = model.marginal(["SSC_1-H", "FSH"]).sample(5)[0]
    inside = model.marginal(["SSC_1-H", "FSH"]).recipe_
    assert inside == {"compensate": False, "transform": "logicle", "linear": {"SSC_1-H": units[1]}}
    assert (np.abs(drawn.to_numpy() - 500.0) < 2000.0).all()
    assert "linear" not in model.marginal(["FSH"]).recipe_
    model.save(tmp_path / "model.skmix")
    assert load(tmp_path / "model.skmix").recipe_ == model.recipe_


def test_files_that_disagree_are_refused(tmp_path: Path) -> None:
    def folder(name: str, names: Sequence[str], markers: Sequence[str]) -> Any:
        write(tmp_path / name / "1.fcs")
        write(tmp_path / name / "2.fcs", EVENTS[:, : len(names)], names, markers)
        return open_rows(tmp_path / name)

    assert folder("timeless", NAMES[:3], MARKERS[:3]).shape == (600, 3)
    fewer = folder("fewer", NAMES[:2], MARKERS[:2])
    with pytest.raises(ValueError, match=r"2\.fcs has no channel 'R660-A', and .*1\.fcs has one"):
        assert fewer.shape
    assert gathered(fewer.chosen(["CD3", "FSC-A"])).shape == (600, 2)
    with pytest.raises(ValueError, match=r"'B530-A' .*'CD3' in .*1\.fcs and 'CD8' in .*2\.fcs"):
        assert folder("panel", NAMES, ["", "CD8", "CD4", ""]).shape
    assert folder("unlabelled", NAMES, ["", "", "cd4", ""]).shape == (600, 3)
    write(tmp_path / "later" / "1.fcs", markers=[""] * 4)
    write(tmp_path / "later" / "2.fcs")
    assert open_rows(tmp_path / "later").shape == (600, 3)


# ---------------------------------------------------------------- files that are wrong


def test_damaged_files_are_refused_with_their_name(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.fcs").read_bytes()
    path = tmp_path / "bad.fcs"
    for content, words in (
        (b"nonsense" + whole, "is not an FCS file: it begins with"),
        (b"FCS3.2" + whole[6:], "version '3.2'; 2.0, 3.0, 3.1 can be read"),
        *((whole[:n], f"is truncated: it has {n} of 58 bytes of the header") for n in (0, 2, 6, 10, 40, 57)),
        (whole[:300], "damaged or truncated"),
        (whole[:-1], "truncated: it has 299 of 300 events"),
        (whole[:-400], "damaged or truncated"),
        (whole[:10] + b"nonsense" + whole[18:], "damaged header"),
        (whole.replace(b"$TOT", b"$TUT"), r"lacks \$TOT"),
        (whole.replace(b"$TOT/300/", b"$TOT/301/"), "truncated: it has 300 of 301 events"),
        (whole.replace(b"$TOT/300/", b"$TOT/000/"), "is empty: it has 0 events"),
        (whole.replace(b"$TOT/300/", b"$TOT/3x0/"), "damaged header"),
        (whole.replace(b"$MODE/L/", b"$MODE/C/"), "histograms"),
        (whole.replace(b"$DATATYPE/F/", b"$DATATYPE/A/"), "values of type 'A'"),
        (whole.replace(b"$BYTEORD/1,2,3,4/", b"$BYTEORD/3,4,1,2/"), "bytes in the order 3,4,1,2"),
        (whole.replace(b"$P2N", b"$Q2N"), r"no name \(\$P2N\) for channel 2 of 4"),
        (whole.replace(b"$P2N/B530-A/", b"$P2N/      /"), r"no name \(\$P2N\) for channel 2 of 4"),
        (whole.replace(b"B530-A", b"R660-A"), "2 channels called 'R660-A'"),
        (whole.replace(b"$NEXTDATA/0/", b"$NEXTDATA/9/"), "several data sets"),
    ):
        assert content != whole
        path.write_bytes(content)
        for reading in (read_fcs, open_rows):
            with pytest.raises(ValueError, match=rf"bad\.fcs .*{words}"):
                reading(path)  # type: ignore[operator]
    keywords = {"DATATYPE": "I", "TOT": 1, **channels((16, 10), (1024, 1024), ("0,0", "0,0"))}
    with pytest.raises(ValueError, match=r"bad\.fcs has integers of 10 bits in channel 'b'"):
        read_fcs(write_by_hand(path, bytes(4), keywords))
    start = int(whole[26:34])
    path.write_bytes(whole[:26] + f"{start + 4:8d}".encode() + whole[34:])
    with pytest.raises(ValueError, match=rf"byte {start + 4} according to its header, and at byte {start}"):
        read_fcs(path)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.fcs")
    monkeypatch.setitem(sys.modules, "flowio", None)
    for reading in (read_fcs, open_rows):
        with pytest.raises(ImportError, match=r'pip install "\.\[all\]"'):
            reading(path)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ("FSC-A FSC-H FSC-W FL1-A Time", "FSC-A FL1-A"),
        ("FSC.A FSC.H FL1.A FL1.H", "FSC.A FL1.A"),  # as R writes them
        ("fsc_h fl1_a fl1_h", "fsc_h fl1_h"),
        ("FSC-A FSC-H FSC-W FL1-H FL1-W", "FSC-H FL1-H"),
        ("FSC-A FSC-W FL1-H", "FSC-A FL1-H"),
        ("FSC-W FL1-A CD3.h", "FSC-W FL1-A CD3.h"),
    ],
)
def test_a_detector_is_one_marker(names: str, kept: str) -> None:
    assert without_bookkeeping(names.split()) == kept.split()
