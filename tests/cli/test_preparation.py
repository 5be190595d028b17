"""How files are prepared travels in the model: the command line and Python give the same results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run, said
from cytometry import read_fcs
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, Study, compose, load, open_rows
from skmix.features import Arcsinh, Logicle
from skmix.samples import merge_kernels

flowio = pytest.importorskip("flowio", reason="flowio is not installed")

NAMES, MARKERS = ["B530-A", "R660-A", "Time"], ["CD3", "CD4", ""]
SHARES = {"a": 0.2, "b": 0.5, "c": 0.7, "d": 0.4, "e": 0.6}
SPILLOVER = "2,B530-A,R660-A,1,0.3,0.1,1"


def events(share: float, seed: int) -> np.ndarray:
    """Return 200 events of two populations, which are apart on a logarithmic scale, and their times."""
    random = np.random.default_rng(seed)
    centres = np.where(np.arange(200)[:, None] < 200 * share, [3000.0, 90.0], [200.0, 4000.0])
    return np.c_[random.lognormal(np.log(centres), 0.4), 10.0 * np.arange(200)]


def write(path: Path, rows: np.ndarray, names: Sequence[str] = NAMES, **keywords: str) -> Path:
    markers = dict(zip(NAMES, MARKERS, strict=True))
    with open(path, "wb") as file:
        flowio.create_fcs(file, rows.ravel().tolist(), names, [markers[name] for name in names], keywords)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return five samples with spill-over matrices, one of them with its channels in another order."""
    folder, found = tmp_path_factory.mktemp("fcs"), []
    for seed, (name, share) in enumerate(SHARES.items()):
        order = [2, 1, 0] if name == "d" else [0, 1, 2]
        names = [NAMES[i] for i in order]
        found.append(write(folder / f"{name}.fcs", events(share, seed)[:, order], names, SPILLOVER=SPILLOVER))
    return found


def fitted(rows: Any) -> SharedKernelMixture:
    """Return a mixture of two kernels."""
    return SharedKernelMixture(2, init="k-means", random_state=0).fit(rows)


def nameless(folder: Path, files: list[Path]) -> Path:
    """Save a model on a scale that the command line has no name for."""
    scale = Logicle(W=1.0)
    fitted(open_rows(files, columns=["CD4", "CD3"], compensate=True, transform=scale)).save(folder / "m")
    return folder / "m"


WAYS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "default": ([], {}),
    "arcsinh": (["--transform", "arcsinh:5"], {"transform": Arcsinh(5.0)}),
    "logicle": (["--transform", "logicle", "--no-compensate"], {"transform": Logicle(), "compensate": False}),
    "raw": (["--transform", "none"], {"transform": None}),
    "compensated": (["--compensate", "--markers", "CD4"], {"compensate": True, "columns": ["CD4"]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_fit_is_that_of_the_command_line(files: list[Path], tmp_path: Path, way: str) -> None:
    options, opening = WAYS[way]
    run("compose", *files, "--kernels", 2, *options, "-o", tmp_path / "m", "--table", tmp_path / "t.csv")
    stored, table = load(tmp_path / "m").model, pd.read_csv(tmp_path / "t.csv")
    rows: list[Any] = [open_rows(files, **opening)]
    if way == "default":
        rows += [files, str(files[0].parent / "*.fcs"), files[0].parent]
    for given in rows:
        here = fitted(given)
        assert here.feature_names_in_.tolist() == stored.feature_names_in_.tolist()
        assert here.recipe_ == stored.recipe_
        found = compose(given, n_kernels=2)
        assert_array_equal(found.model.means_, stored.means_)
        assert_allclose(found.proportions["proportion"], table["proportion"], rtol=1e-12)


@pytest.mark.parametrize("way", ["logicle", "compensated", "nameless"])
def test_a_loaded_model_prepares_files_as_for_its_fit(files: list[Path], tmp_path: Path, way: str) -> None:
    path = tmp_path / "m"
    if way == "nameless":
        nameless(tmp_path, files)
    else:
        run("compose", *files, "--kernels", 2, *WAYS[way][0], "-o", path)
    loaded = load(path)
    model = loaded if way == "nameless" else loaded.model
    merged = merge_kernels(model)
    columns = [NAMES.index(dict(zip(MARKERS, NAMES, strict=True)).get(n, n)) for n in model.feature_names_in_]
    compensated = model.recipe_["compensate"]
    raw = [read_fcs(file, channels=NAMES, compensate=compensated).X[:, columns] for file in files]
    scale = {"logicle": Logicle(), "compensated": Arcsinh(150.0), "nameless": Logicle(W=1.0)}[way]
    prepared = np.concatenate([scale.transform(each) for each in raw])
    frame = pd.DataFrame(prepared, columns=model.feature_names_in_)
    expected = open_rows(frame, compensate=False, transform=None)
    groups = np.repeat(list(SHARES), 200)
    for given in (files, [str(file) for file in files], files[0].parent, open_rows(files)):
        assert_array_equal(model.predict(given), model.predict(expected))
        assert_allclose(model.score_samples(given), model.score_samples(expected), rtol=1e-3)
        found = Study(model).apply_to(given).proportions["proportion"]
        ours = Study(model).apply_to(expected.labelled(groups)).proportions["proportion"]
        assert_allclose(found, ours, rtol=1e-5)
    assert_array_equal(model.predict(files[3]), model.predict(expected)[600:800])
    Study(model, merged).label_cells(tmp_path / "labels.csv", files)
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert_array_equal(labels["population"], merged.predict(model, expected, y=groups))
    # And so does the command line.
    run("compose", *files, "--model", path, "--table", tmp_path / "t.csv")
    own = Study(model, None if way == "nameless" else merged).apply_to(files).proportions["proportion"]
    assert_allclose(pd.read_csv(tmp_path / "t.csv")["proportion"], own, rtol=1e-12)
    run("predict", path, files[3], "-o", tmp_path / "p.csv")
    table = pd.read_csv(tmp_path / "p.csv")
    if way == "nameless":
        assert_array_equal(table["kernel"], model.predict(files[3]))
    else:
        # Populations have names, and no kernel is mentioned.
        names, likely = loaded.populations.display_names, loaded.populations.predict_proba(model, files[3])
        assert [name for name in table if name.startswith("p_")] == [f"p_{name}" for name in names]
        assert_allclose(table[f"p_{names[0]}"], likely[:, 0], atol=1e-4)
        expected = [str(names[place]) for place in likely.argmax(axis=1)]
        assert table["population"].astype(str).tolist() == expected
        assert "kernel" not in table
    assert_allclose(table["log_density"], model.score_samples(files[3]), rtol=1e-3)


def test_a_data_frame_is_prepared_like_the_file_that_has_it(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = pd.DataFrame(np.r_[events(1.0, 5), events(0.0, 6)][:, :2], columns=NAMES[:2])
    labelled = frame.assign(kind=np.repeat(["p", "q"], 200), hue=np.tile(["red", "blue", "green"], 134)[:400])
    path, stored = tmp_path / "t.csv", tmp_path / "m"
    labelled.drop(columns="hue").to_csv(path, index=False)
    common = ("--transform", "arcsinh:150", "--outliers", 0, "-o", stored)
    run("fit", path, "-t", "kind", "--kernels", 2, *common)
    model = load(stored)
    for given in (frame, polars.from_pandas(frame), open_rows(frame), open_rows(polars.from_pandas(frame))):
        assert_allclose(model.score_samples(given), model.score_samples(path), rtol=1e-9)
        assert_array_equal(model.predict(given), model.predict(path))
    assert model.score(frame, labelled["kind"]) == model.score(path, "kind") > 0.9
    # A search may map the features of some of its members.
    run("fit", path, "-t", "kind", "--kernels", 2, "--covariance", "auto", *common)
    model = load(stored)
    assert any(change is not None for change in model.feature_maps_)
    run("predict", stored, path, "-o", tmp_path / "p.csv")
    table = pd.read_csv(tmp_path / "p.csv")
    for given in (frame, polars.from_pandas(frame)):
        assert_allclose(model.score_samples(given), table["log_density"], rtol=1e-9)
    # Categories stay as they are.
    labelled.to_csv(tmp_path / "hues.csv", index=False)
    run("fit", tmp_path / "hues.csv", "-t", "kind", "--kernels", 2, *common)
    model = load(stored)
    assert_allclose(model.score_samples(labelled), model.score_samples(tmp_path / "hues.csv"), rtol=1e-9)


def test_groups_of_a_data_frame_are_prepared_too(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    frame = pd.DataFrame(np.r_[events(0.3, 5), events(0.6, 6)][:, :2], columns=NAMES[:2])
    groups = np.repeat(["a", "b"], 200)
    frame.assign(group=groups).to_csv(tmp_path / "t.csv", index=False)
    model = fitted(open_rows(tmp_path / "t.csv", label="group", transform="arcsinh:150"))
    study, several = Study(model), dask.from_pandas(frame, npartitions=2)
    expected = study.apply_to(open_rows(tmp_path / "t.csv", label="group")).proportions["proportion"]
    for given, sample in ((frame, groups), (frame.assign(group=groups), "group")):
        assert_allclose(study.apply_to(given, sample=sample).proportions["proportion"], expected, rtol=1e-9)
    assert_allclose(
        model.score_samples(several).compute(), model.score_samples(tmp_path / "t.csv"), rtol=1e-9
    )
    # A fit takes a frame as it is.
    assert not hasattr(SharedKernelMixture(1).fit(frame), "recipe_")
    assert model.partial_fit(frame, groups).recipe_ == {"transform": "arcsinh:150"}
    assert np.abs(model.means_).max() < 10.0
    # What a frame cannot be prepared by is refused.
    model.recipe_ = {"compensate": True, "transform": "none"}
    for given in (frame, several):
        with pytest.raises(ValueError, match="compensates for spill-over with matrices that only FCS"):
            model.score_samples(given)
    assert len(model.predict(open_rows(frame, compensate=False, transform=None))) == 400


def test_what_a_model_cannot_apply_it_refuses(files: list[Path], tmp_path: Path) -> None:
    model = fitted(files)
    for wrong, words in (
        (
            {"transform": None},
            "opened on the scale none, but the fit was on arcsinh:150: leave transform",
        ),
        ({"transform": "logicle"}, "opened on the scale logicle, but the fit was on arcsinh:150"),
        ({"transform": Logicle(W=1.0)}, r"the scale logicle \(A 0, M 4\.5, T 262144, W 1\), but the fit was"),
        ({"compensate": False}, "was opened without compensation for spill-over, unlike the rows of the fit"),
    ):
        rows = open_rows(files, **wrong)  # type: ignore[arg-type]
        for using in (
            model.predict,
            model.score_samples,
            Study(model).apply_to,
            partial(Study(model).label_cells, tmp_path / "labels.csv"),
        ):
            with pytest.raises(ValueError, match=words):
                using(rows)
    # What was chosen as in the fit is not asked for again.
    assert_array_equal(model.predict(open_rows(files, transform=Arcsinh(150))), model.predict(files))
    spilt = fitted(open_rows(files, compensate=False))
    with pytest.raises(ValueError, match="was opened with compensation for spill-over, unlike"):
        spilt.predict(open_rows(files, compensate=True))
    pd.DataFrame(events(0.3, 5), columns=NAMES).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"compensate=True needs FCS files.*t\.csv is not one"):
        model.predict(tmp_path / "t.csv")
    model.save(tmp_path / "m")
    result = run("predict", tmp_path / "m", tmp_path / "t.csv", code=1)
    assert "--compensate needs FCS files" in said(result)
    # Rows in memory do not say what was done to them.
    plain = SharedKernelMixture(1).fit(pd.DataFrame(events(0.3, 5)[:, :2], columns=NAMES[:2]))
    with pytest.raises(ValueError, match="does not say on which scale it was fitted"):
        plain.predict(files)
    assert plain.predict(open_rows(files, transform=None)).shape == (1000,)
