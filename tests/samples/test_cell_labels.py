"""Labels written back into tables, AnnData and FCS files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cytometry import read_fcs
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, Study, open_rows
from skmix.features import Arcsinh
from skmix.samples import merge_kernels

pd = pytest.importorskip("pandas")
flowio = pytest.importorskip("flowio")

RANDOM = np.random.default_rng(0)
SAMPLE = np.repeat(["s2", "s1", "s3"], [60, 40, 50])
KIND = (RANDOM.random(150) < np.select([SAMPLE == "s1", SAMPLE == "s2"], [0.2, 0.5], 0.8)).astype(int)
X = RANDOM.normal(size=(150, 2)) + np.array([[0.0, 0.0], [7.0, 7.0]])[KIND]
GENES = ["CD3", "CD4"]


def annotate() -> Any:
    """Return an AnnData of the cells and their samples."""
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    obs = pd.DataFrame({"sample": SAMPLE}, index=[f"cell{i}" for i in range(len(SAMPLE))])
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=GENES))


@pytest.fixture(scope="module")
def model() -> SharedKernelMixture:
    return SharedKernelMixture(3, init="k-means", random_state=0, tol=1e-3).fit(X, SAMPLE)


def test_an_anndata_gets_labels(model: Any) -> None:
    merged = merge_kernels(model, n_populations=2).renamed({1: "B"})
    adata = annotate()
    Study(model).label_cells(adata, adata)
    Study(model, merged).label_cells(adata, adata)
    assert_array_equal(adata.obs["kernel"].astype(int), model.predict(X))
    assert adata.obs["kernel"].cat.categories.tolist() == ["0", "1", "2"]
    assert_array_equal(adata.obs["population"].cat.codes, merged.predict(model, X))
    assert adata.obs["population"].cat.categories.tolist() == ["0", "B"]
    assert_allclose(adata.obsm["kernel_probabilities"], model.predict_proba(X), rtol=1e-12)
    shares = adata.obsm["population_probabilities"]
    assert_allclose(shares, merged.predict_proba(model, X), rtol=1e-12)
    other = annotate()
    Study(model).label_cells(other, X, probabilities=False, name="cluster")
    assert_array_equal(other.obs["cluster"].astype(int), model.predict(X))
    assert not len(other.obsm)


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_a_table_of_labels(tmp_path: Path, model: SharedKernelMixture, suffix: str) -> None:
    target = tmp_path / f"labels{suffix}"

    def read() -> Any:
        if suffix == ".parquet":
            return pd.read_parquet(target)
        return pd.read_csv(target, sep="," if suffix == ".csv" else "\t")

    Study(model).label_cells(target, open_rows(X, label=SAMPLE, chunk_rows=64))
    found = read()
    assert found.columns.tolist() == ["sample", "kernel", "p_0", "p_1", "p_2"]
    assert_array_equal(found["sample"], SAMPLE)
    assert_array_equal(found["kernel"], model.predict(X, y=SAMPLE))
    shares = model.predict_proba(X, y=SAMPLE)
    assert_allclose(found[["p_0", "p_1", "p_2"]], shares, rtol=1e-12, atol=1e-300)
    merged = merge_kernels(model, n_populations=2)
    with pytest.raises(FileExistsError, match="exists: give another name, or overwrite=True"):
        Study(model, merged).label_cells(str(target), X, probabilities=False)
    Study(model, merged).label_cells(str(target), X, probabilities=False, overwrite=True)
    assert read().columns.tolist() == ["population"]
    assert_array_equal(read()["population"], merged.predict(model, X))
    Study(model, merged.renamed({0: "T"})).label_cells(str(target), X, overwrite=True)
    assert read().columns.tolist() == ["population", "p_T", "p_1"]
    assert_array_equal(read()["population"].astype(str), np.array(["T", "1"])[merged.predict(model, X)])


def write_events(path: Path, values: np.ndarray, channels: list[str], *more: Any) -> None:
    with open(path, "wb") as file:
        flowio.create_fcs(file, values.astype(np.float32).ravel().tolist(), channels, *more)


def events(path: Path) -> tuple[Any, np.ndarray]:
    found = flowio.FlowData(str(path))
    return found, np.reshape(found.events, (-1, found.channel_count))


def test_labels_are_by_the_weights_of_known_groups(tmp_path: Path) -> None:
    random, files = np.random.default_rng(2), []
    for name, share in {"few": 0.02, "many": 0.6, "new": 0.3}.items():
        kinds = np.repeat([0.0, 2.0], [1000 - int(1000 * share), int(1000 * share)])
        files.append(tmp_path / f"{name}.fcs")
        write_events(files[-1], kinds + random.normal(size=1000, scale=0.8), ["x"])
    start = {"means": [[0.0], [2.0]], "covariances": [[[0.64]]] * 2}
    model = SharedKernelMixture(2, init=start, freeze="kernels")
    model.fit(open_rows(files[:2], transform=None))
    expected, study = [model.predict(path, y=[path.stem] * 1000) for path in files[:2]], Study(model)
    share = study.proportions.query("sample == 'few' and kernel == 1")["proportion"].item()
    assert abs(expected[0].mean() - share) < 0.5 * abs(model.predict(files[0]).mean() - share)
    study.label_cells(tmp_path / "known.csv", files[:2])
    known = pd.read_csv(tmp_path / "known.csv")
    assert_array_equal(known["kernel"], np.concatenate(expected))
    # A file that is not in the fit has average weights, and leaves the others as they are.
    study.label_cells(tmp_path / "all.csv", files)
    everything = pd.read_csv(tmp_path / "all.csv")
    pd.testing.assert_frame_equal(everything[:2000], known)
    assert_array_equal(everything["kernel"][2000:], model.predict(files[2]))
    study.label_cells(tmp_path / "out", files)
    written = [events(tmp_path / "out" / path.name)[1][:, 1] for path in files]
    assert_array_equal(np.concatenate(written), everything["kernel"])


def test_fcs_files_get_a_channel(tmp_path: Path) -> None:
    values = np.exp(X)
    keywords = {"SPILLOVER": "2,B530-A,R660-A,1,0.1,0,1", "DATE": "01/02/2026", "STAIN": "a/b", "P1R": "1024"}
    files = []
    for folder, group in (("day1", "s1"), ("day2", "s1"), ("day2", "s2")):
        (tmp_path / folder).mkdir(exist_ok=True)
        files.append(tmp_path / folder / f"{group}.fcs")
        part = np.c_[values[group == SAMPLE], np.arange((group == SAMPLE).sum())]
        write_events(files[-1], part, ["B530-A", "R660-A", "Time"], [*GENES, ""], keywords)
    rows = open_rows(files, columns=GENES, compensate=True, transform=Arcsinh(), chunk_rows=30)
    model = SharedKernelMixture(2, init="k-means", random_state=0, tol=1e-3).fit(rows)
    assert model.classes_.tolist() == ["day1/s1", "day2/s1", "day2/s2"]
    Study(model).label_cells(tmp_path / "out", rows)
    labels = np.split(model.predict(rows, y=rows.row_labels()), [40, 80])
    copies = [tmp_path / "out" / path.parent.name / path.name for path in files]
    for path, written, own in zip(files, copies, labels, strict=True):
        (_, before), (text, after) = events(path), events(written)
        assert text.pnn_labels == ["B530-A", "R660-A", "Time", "kernel"]
        assert text.pns_labels == ["CD3", "CD4", "", "population"]
        assert_array_equal(after[:, :3], before)
        assert_array_equal(after[:, 3], own)
        assert (text.text["date"], text.text["stain"]) == ("01/02/2026", "a/b")
        # Compensation is still to come, as in the original.
        compensated = [read_fcs(each, channels=GENES, compensate=True).X for each in (path, written)]
        assert_array_equal(*compensated)
    one = SharedKernelMixture(2, random_state=0, tol=1e-3).fit(files[0])
    Study(one).label_cells(tmp_path / "one", files[0], name="cluster")
    assert_array_equal(events(tmp_path / "one" / "s1.fcs")[1][:, 3], one.predict(files[0]))
    for study, target, given, message in (
        (Study(model), "again", open_rows(tmp_path / "out", columns=GENES), "already has a channel 'kernel'"),
        (Study(one), "day1", files[0], r"s1\.fcs is one of the input files"),
        (Study(model), "out", X, r"for copies of FCS files, .* in memory"),
        (Study(model), "out", open_rows(X), r"for copies of FCS files, .* in memory"),
    ):
        with pytest.raises(ValueError, match=message):
            study.label_cells(tmp_path / target, given)


def test_what_cannot_be_labelled_is_refused(tmp_path: Path, model: SharedKernelMixture) -> None:
    study = Study(model)
    with pytest.raises(TypeError, match="must be a path or an AnnData, got a ndarray"):
        study.label_cells(X, X)
    for given, target, name, message in (
        (X[1:], annotate(), None, "There are 149 cells, but the AnnData has 150 observations"),
        (X, tmp_path / "labels.csv", "sample", "name='sample' is the name of another column"),
        (X, tmp_path / "labels.xlsx", None, r"labels\.xlsx: the name of a table must end in"),
    ):
        with pytest.raises(ValueError, match=message):
            study.label_cells(target, given, name=name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_that_are_read_are_not_written(tmp_path: Path, model: SharedKernelMixture, suffix: str) -> None:
    own, frame = tmp_path / f"rows{suffix}", pd.DataFrame(X, columns=["x", "y"])
    frame.to_parquet(own) if suffix == ".parquet" else frame.to_csv(own, index=False)
    before = own.read_bytes()
    for given in (own, [own], str(tmp_path / f"*{suffix}"), open_rows(own)):
        with pytest.raises(ValueError, match=rf"rows\{suffix} is one of the input files"):
            Study(model).label_cells(own, given)
    assert own.read_bytes() == before
