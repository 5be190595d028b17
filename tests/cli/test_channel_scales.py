"""The default scale of each channel of FCS files follows from how it was amplified and stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run, said
from cytometry import write_fcs_file
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, compose, load, open_rows

pytest.importorskip("flowio", reason="flowio is not installed")

CALIBUR = Path(__file__).parents[1] / "data" / "0877408774.B08.fcs"
# Length of arcsinh(x / 150) up to 2^18, which linear channels get too.
LENGTH = float(np.arcsinh(2.0**18 / 150.0))


def rows_of(rows: Any) -> np.ndarray:
    source = rows if hasattr(rows, "blocks") else open_rows(rows)
    return np.concatenate([block.X for block in source.blocks()])


def assert_logarithm(found: np.ndarray, values: np.ndarray, top: float = 1e4) -> None:
    """Check the scale of a logarithmic amplifier with this top: in decades, the logarithm above the noise."""
    assert_allclose(found, np.arcsinh(values / (150.0 / 2.0**18 * top)), rtol=2e-3)
    bright = values > 1e-3 * top
    decades = found[bright] / np.log(10.0) - np.log10(values[bright])
    assert bright.sum() < 2 or np.ptp(decades) < 0.04


# ---------------------------------------------------------------- one channel


def test_a_log_amplified_file_is_on_the_logarithm() -> None:
    """A FACSCalibur wrote 10 bits; $PnE is 4,1 for fluorescence, 0,0 for scatter and the area FL1-A."""
    names = ["FSC-H", "SSC-H", "FL1-H", "FL2-H", "FL3-H", "FL1-A", "FL4-H"]
    source = open_rows(CALIBUR, columns=names)
    raw = rows_of(open_rows(CALIBUR, columns=names, transform=None))
    # The height and the area of a detector are one marker.
    assert open_rows(CALIBUR).feature_names == [name for name in names if name != "FL1-A"]
    assert source.feature_names == names
    found = rows_of(source)
    for feature, name in enumerate(names):
        if name in ("FSC-H", "SSC-H", "FL1-A"):
            # Linear amplifiers of 10 bits: their range of 1024 has the length of other scales.
            assert_allclose(found[:, feature], raw[:, feature] * LENGTH / 1024.0, rtol=1e-6)
        else:
            assert raw[:, feature].min() == 1.0
            assert_logarithm(found[:, feature], raw[:, feature])


# Stored integers, $PnE, bits, range, and the values that they stand for.
LOG_STORED = np.array([0, 1, 17, 100, 255])


@pytest.mark.parametrize("version", ["2.0", "3.0", "3.1"])
@pytest.mark.parametrize(
    ("bits", "span", "amplified", "decades", "bottom"),
    [
        (8, 256, "4,1", 4.0, 1.0),
        (16, 1024, "4,1", 4.0, 1.0),
        (32, 4096, "5,0.1", 5.0, 0.1),
        (16, 1024, "4,0", 4.0, 1.0),  # the standard says to read a lowest value of 0 as 1
        (32, 262144, "4,100", 4.0, 100.0),
    ],
)
@pytest.mark.parametrize("name", ["FL1-H", "SSC-H"])
def test_logarithmic_amplifiers(
    tmp_path: Path,
    version: str,
    bits: int,
    span: int,
    amplified: str,
    decades: float,
    bottom: float,
    name: str,
) -> None:
    """Scatter that went through one is no longer linear, and gets the same scale."""
    stored = np.repeat(LOG_STORED, 2)[:, None] * (span // 256)
    settings: dict[str, Any] = {"kind": "I", "bits": bits, "ranges": span, "amplified": amplified}
    path = write_fcs_file(tmp_path / "a.fcs", stored, [name], version=version, little=False, **settings)
    values = bottom * 10.0 ** (decades * stored[:, 0] / span)
    top = bottom * 10.0**decades
    assert_logarithm(rows_of(path)[:, 0], values, top)
    # The gain of a logarithmic amplifier divides the values, and does not change the shape.
    path = write_fcs_file(tmp_path / "b.fcs", stored, [name], P1G="4", **settings)
    assert_allclose(rows_of(open_rows(path, transform=None))[:, 0], values / 4.0, rtol=1e-6)
    assert_logarithm(rows_of(path)[:, 0], values / 4.0, top / 4.0)
    # A scale by name applies to it too, but not to linear scatter.
    named = rows_of(open_rows(path, transform="arcsinh:7"))[:, 0]
    assert_allclose(named, np.arcsinh(values / 4.0 / 7.0), rtol=1e-6)


POSITIVE = np.array([[1.0], [3.3], [70.2], [1000.7], [9999.0]])
SIGNED = np.array([[-40.5], [0.3], [70.2], [1000.7], [9999.0]])


@pytest.mark.parametrize("kind", ["F", "D"])
@pytest.mark.parametrize(
    ("values", "span", "amplified", "expected"),
    [
        # Floats in spite of 4,1 are on the linear scale already; so are those of programs that write 0,0.
        (POSITIVE, 1024, "4,1", "log"),
        (POSITIVE, 10000, "0,0", "log"),
        # Values below 0 tell of compensation: 150 / 2^18 of the top.
        (SIGNED, 1024, "4,1", 150.0 * 1e4 / 2.0**18),
        # Digital instruments, by the top of their range.
        (SIGNED, 262144, "0,0", 150.0),
        (SIGNED, 262143, "0,0", 150.0),
        (SIGNED, 262144, "4,1", 150.0),
        (SIGNED, 1 << 20, "0,0", 600.0),
        (SIGNED, 4194304, "0,0", 2400.0),
        (SIGNED, 1 << 24, "0,0", 9600.0),
        (100.0 * SIGNED, 1 << 24, "5.22472,100", 9600.0),
        # Many programs write the largest value as the range, and some nothing of use.
        (SIGNED, 10000, "0,0", 150.0),
        (SIGNED, 1, "0,0", 150.0),
        # Whole numbers of few levels: a linear amplifier, or channels of a display.
        (np.array([[0.0], [3.0], [1023.0]]), 1024, "0,0", "linear"),
        (np.array([[0.0], [3.0], [1023.0]]), 262144, "0,0", 150.0),
    ],
)
def test_floats(
    tmp_path: Path, kind: str, values: np.ndarray, span: int, amplified: str, expected: str | float
) -> None:
    path = write_fcs_file(tmp_path / "a.fcs", values, ["PE-A"], kind=kind, ranges=span, amplified=amplified)
    found = rows_of(path)
    if expected == "log":
        assert_logarithm(found, values)
    elif expected == "linear":
        assert_allclose(found, values * LENGTH / span, rtol=1e-6)
    else:
        assert_allclose(found, np.arcsinh(values / float(expected)), rtol=2e-3)
    # A gain changes the unit of the values, not the picture.
    path = write_fcs_file(
        tmp_path / "b.fcs", 8.0 * values, ["PE-A"], kind=kind, ranges=8 * span, amplified=amplified, P1G="8"
    )
    raw = rows_of(open_rows(path, transform=None))
    assert_allclose(raw, values, rtol=1e-6)


@pytest.mark.parametrize(
    ("bits", "span", "cofactor"),
    [(16, 1024, None), (16, 4096, None), (16, 65536, 37.5), (32, 262144, 150.0), (32, 1 << 20, 600.0)],
)
def test_integers_of_linear_amplifiers(tmp_path: Path, bits: int, span: int, cofactor: float | None) -> None:
    stored = np.array([[0, 5], [1, 7], [span // 2, 900], [span - 1, 1000]])
    path = write_fcs_file(tmp_path / "a.fcs", stored, ["FL1-A", "FSC-A"], kind="I", bits=bits, ranges=span)
    found = rows_of(path)
    if cofactor is None:
        assert_allclose(found[:, 0], stored[:, 0] * LENGTH / span, rtol=1e-6)
    else:
        assert_allclose(found[:, 0], np.arcsinh(stored[:, 0] / cofactor), rtol=1e-6)
    assert_allclose(found[:, 1], stored[:, 1] * LENGTH / span, rtol=1e-6)


def test_values_that_were_transformed_before_stay_as_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    names, values = ["FSC-A", "PE-A", "APC-A"], random.normal(3.0, 2.0, (100, 3))
    values[:, 0] *= 30000.0  # programs transform fluorescence alone
    path = write_fcs_file(tmp_path / "a.fcs", values, names)
    assert_allclose(rows_of(path), values, rtol=1e-6)
    assert open_rows(path).preparation == {"compensate": False, "transform": "none"}
    # One channel of small values, or whole numbers such as counts of ions, say nothing.
    values[3, 2] = 700.5
    assert_allclose(
        rows_of(write_fcs_file(tmp_path / "b.fcs", values, names))[:, 1:],
        np.arcsinh(values[:, 1:] / 150.0),
        rtol=1e-5,
    )
    counts = random.poisson(3.0, (100, 2))
    path = write_fcs_file(tmp_path / "c.fcs", counts, ["Nd143Di", "Yb171Di"], ranges=4096)
    assert_allclose(rows_of(path), np.arcsinh(counts / 5.0), rtol=1e-6)
    # All files of a study decide together: the first alone would look transformed.
    low, high = np.full((20, 1), 2.5), np.full((20, 1), 250.5)
    files = [
        write_fcs_file(tmp_path / f"{name}.fcs", rows, ["Yb171Di"])
        for name, rows in (("d", low), ("e", high))
    ]
    assert_allclose(rows_of(files)[:, 0], np.arcsinh(np.r_[low, high][:, 0] / 5.0), rtol=1e-6)


# ---------------------------------------------------------------- several channels and files

NAMES = ["FSC-H", "FL1-H", "FL2-H", "FL3-A"]
AMPLIFIED = ["0,0", "4,1", "4,1", "0,0"]
# 16 bits for FL3-A, 10 bits for the others.
RANGES = [1024, 1024, 1024, 65536]
SETTINGS: dict[str, Any] = {"kind": "I", "bits": 16, "ranges": RANGES, "amplified": AMPLIFIED}


def stored_cells(n_each: Sequence[int], seed: int) -> np.ndarray:
    """Return stored values of four populations: dim in FL1 and FL2, brighter in one, or far in both.

    The first three are dimmer than 150, so that arcsinh(x / 150) has them side by side.
    """
    random = np.random.default_rng(seed)
    steps = np.array([[128, 128], [384, 128], [128, 384], [900, 900]])  # 3.2, 32 and 3273
    values = np.repeat(steps, n_each, axis=0) + random.normal(0.0, 40.0, (sum(n_each), 2))
    n = len(values)
    stored = np.c_[random.normal(400.0, 60.0, n), values, random.normal(9000.0, 2000.0, n)]
    return stored.round().clip(0, [1023, 1023, 1023, 65535]).astype(int)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("calibur")
    return [
        write_fcs_file(folder / f"{name}.fcs", stored_cells(n_each, seed), NAMES, version="2.0", **SETTINGS)
        for seed, (name, n_each) in enumerate({"a": (600, 400, 200, 300), "b": (200, 400, 600, 300)}.items())
    ]


def scaled(values: np.ndarray) -> np.ndarray:
    """Return values (n, 4) of NAMES on the scales that they should have."""
    fluorescence = np.arcsinh(values[:, 1:3] / 5.72)
    return np.c_[values[:, 0] * LENGTH / 1024.0, fluorescence, np.arcsinh(values[:, 3] / 37.5)]


def test_populations_below_the_usual_cofactor_are_found(files: list[Path]) -> None:
    study = compose(files, markers=["FL1-H", "FL2-H"], n_kernels=8, n_jobs=1)
    wide = study.proportions.pivot(index="population", columns="sample", values="proportion")
    expected = np.array([[600, 400, 200, 300], [200, 400, 600, 300]]).T / 1500.0
    assert wide.shape == (4, 2)
    assert_allclose(wide.sort_values("a").to_numpy(), sorted(expected.tolist()), atol=0.02)


def test_each_channel_keeps_its_scale_in_the_model(files: list[Path], tmp_path: Path) -> None:
    model = SharedKernelMixture(2, random_state=0, init="k-means").fit(files)
    raw = rows_of(open_rows(files, transform=None))
    assert_allclose(rows_of(files), scaled(raw), rtol=1e-6)
    plain = open_rows(pd.DataFrame(scaled(raw), columns=NAMES), transform=None, compensate=False)
    frame = pd.DataFrame(raw, columns=NAMES)
    model.save(tmp_path / "m")
    stored = load(tmp_path / "m")
    assert stored.recipe_ == model.recipe_
    for fitted in (model, stored):
        for rows in (files, frame):
            assert_allclose(fitted.score_samples(rows), model.score_samples(plain), rtol=1e-6)
    # Cells are in the units of the file, for the model of all channels and of two of them.
    for part, names in ((model, NAMES), (model.marginal(["FL3-A", "FL1-H"]), ["FL3-A", "FL1-H"])):
        drawn = part.sample(4000)[0]
        assert list(drawn) == names
        medians = np.median(raw[:, [NAMES.index(name) for name in names]], axis=0)
        assert_allclose(np.log(drawn.median()), np.log(medians), atol=1.0)
    part = model.marginal(["FL2-H"])
    part.save(tmp_path / "part")
    assert_allclose(load(tmp_path / "part").score_samples(files), part.score_samples(frame), rtol=1e-6)


def test_new_files_follow_the_model_and_not_their_header(files: list[Path], tmp_path: Path) -> None:
    """The same values as linear floats, which would have other scales by themselves."""
    raw = rows_of(open_rows(files[0], transform=None))
    other = write_fcs_file(tmp_path / "a.fcs", raw, NAMES, kind="D", ranges=262144)
    assert_allclose(rows_of(open_rows(other))[:, 1], np.arcsinh(raw[:, 1] / 150.0), rtol=1e-6)
    model = SharedKernelMixture(2, random_state=0, init="k-means").fit(files)
    assert_allclose(model.score_samples(other), model.score_samples(files[0]), rtol=1e-6)
    # One file of each kind, too: only a fit needs to know.
    assert len(model.predict([files[1], other])) == 3000
    with pytest.raises(ValueError, match=r"opened on the scale arcsinh:150 \(FSC-H linear\), but the fit"):
        model.predict(open_rows(files, transform="arcsinh:150"))


def test_files_that_were_amplified_differently_are_refused(files: list[Path], tmp_path: Path) -> None:
    raw = rows_of(open_rows(files[0], transform=None))
    for name, settings, words in (
        ("linear", {**SETTINGS, "amplified": "0,0"}, "integers, 4 decades from 1 in .*linear integers in "),
        (
            "less",
            {**SETTINGS, "amplified": ["0,0", "3,1", "4,1", "0,0"]},
            "integers, 4 decades .*3 decades from 1 in",
        ),
        ("floats", {"amplified": AMPLIFIED}, "integers, 4 decades .*floats, 4 decades"),
    ):
        stored = raw if name == "floats" else stored_cells((50, 50, 50, 50), 3)
        two = [files[0], write_fcs_file(tmp_path / f"{name}.fcs", stored, NAMES, **settings)]
        with pytest.raises(ValueError, match=rf"Files disagree: channel 'F[A-Z0-9-]*' has {words}"):
            compose(two, n_kernels=1)
        with pytest.raises(ValueError, match="Files disagree"):
            SharedKernelMixture(1).fit(two)
        result = run("compose", *two, "--kernels", 1, code=1)
        assert "--transform arcsinh:5" in said(result)
        # A scale that the user chooses is the same for all.
        assert rows_of(open_rows(two, transform="arcsinh:5")).shape[1] == 4
        assert open_rows(two, columns=["FL1-H"], transform="arcsinh:5").preparation is not None


def test_cells_that_pile_up_at_the_lowest_value_are_one_population(tmp_path: Path) -> None:
    """An amplifier writes all that is dimmer than its range as 0, and noise above it; both are dim cells."""
    random = np.random.default_rng(0)
    light = np.r_[random.normal(4.0, 3.0, (9000, 2)), random.normal([4.0, 300.0], [3.0, 60.0], (6000, 2))]
    stored = np.log10(np.clip(light, 1.0, 9999.0)) * 256.0
    assert 0.1 < (stored[:, 0] == 0.0).mean() < 0.2
    path = write_fcs_file(
        tmp_path / "a.fcs",
        stored.round().astype(int),
        ["FL1-H", "FL2-H"],
        **{**SETTINGS, "ranges": 1024, "amplified": "4,1"},
    )
    proportions = compose(path, n_kernels=8, n_jobs=1).proportions["proportion"]
    assert_allclose(proportions, [0.6, 0.4], atol=0.01)


def test_samples_of_one_instrument_with_other_ranges_have_one_scale(tmp_path: Path) -> None:
    """Programs write the largest value of a file as its range."""
    values = np.random.default_rng(0).normal(500.0, 300.0, (40, 2))
    files = [
        write_fcs_file(tmp_path / f"{number}.fcs", values, ["PE-A", "FSC-A"], ranges=span)
        for number, span in enumerate((9000, 200000, 250000))
    ]
    found = rows_of(files)
    assert_allclose(found[:40, 0], np.arcsinh(values[:, 0] / 150.0), rtol=1e-5)
    assert_array_equal(found[:40], found[80:])
