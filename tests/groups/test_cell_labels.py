"""AnnData as rows, and labels written back into tables, AnnData and FCS files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cytometry import read_fcs
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from skmix import SharedKernelMixture, open_rows
from skmix.features import Arcsinh
from skmix.groups import composition, merge_kernels, write_labels
from skmix.io import read_rows, source_of, write_columns

pd = pytest.importorskip("pandas")

RANDOM = np.random.default_rng(0)
SAMPLE = np.repeat(["s2", "s1", "s3"], [60, 40, 50])
KIND = (RANDOM.random(150) < np.select([SAMPLE == "s1", SAMPLE == "s2"], [0.2, 0.5], 0.8)).astype(int)
X = RANDOM.normal(size=(150, 2)) + np.array([[0.0, 0.0], [7.0, 7.0]])[KIND]
GENES = ["CD3", "CD4"]


class Annotated(SimpleNamespace):
    """What an AnnData has of what is needed of it."""

    obs: Any = None
    obsm: Any = None
    var_names: Any = None
    layers: Any = None


@pytest.fixture(params=["stand-in", "anndata"])
def annotate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that makes an AnnData of a matrix, a column of samples, and other matrices."""

    def stand_in(matrix: Any, sample: Any, **more: Any) -> Any:
        given = {"layers": {}, "obsm": {}, "uns": {}} | more
        obs = pd.DataFrame({"sample": sample})
        return Annotated(X=matrix, obs=obs, n_obs=len(obs), var_names=pd.Index(GENES), **given)

    def anndata(matrix: Any, sample: Any, **more: Any) -> Any:
        module = pytest.importorskip("anndata", reason="anndata is not installed")
        rows = [f"cell{i}" for i in range(len(sample))]
        obs, var = pd.DataFrame({"sample": sample}, index=rows), pd.DataFrame(index=GENES)
        return module.AnnData(matrix, obs=obs, var=var, **more)

    return stand_in if request.param == "stand-in" else anndata


@pytest.fixture(scope="module")
def model() -> SharedKernelMixture:
    return SharedKernelMixture(3, init="k-means", random_state=0, tol=1e-3).fit(X, SAMPLE)


def rows_of(source: Any) -> np.ndarray:
    return np.concatenate([block.X for block in source.blocks()])


# ---------------------------------------------------------------- AnnData as rows


def test_an_anndata_is_rows(annotate: Callable[..., Any], model: SharedKernelMixture) -> None:
    layers, obsm = {"counts": csr_array(np.round(X))}, {"pca": X[:, ::-1].astype(np.float32)}
    adata = annotate(X, pd.Categorical(SAMPLE), layers=layers, obsm=obsm)
    source = open_rows(adata, label="sample", chunk_rows=64)
    assert source.feature_names == GENES
    assert_array_equal(rows_of(source), X)
    assert_array_equal(source.row_labels(), SAMPLE)
    assert_array_equal(rows_of(open_rows(adata, layer="counts", chunk_rows=64)), np.round(X))
    pca = open_rows(adata, obsm="pca")
    assert pca.feature_names is None
    assert rows_of(pca).dtype == np.float32
    assert_array_equal(rows_of(pca), obsm["pca"])
    assert_array_equal(rows_of(open_rows(adata, columns=["CD4"])), X[:, [1]])
    for given in ((source,), (adata, "sample")):
        there = SharedKernelMixture(**model.get_params()).fit(*given)
        assert there.feature_names_in_.tolist() == GENES
        assert_allclose(there.means_, model.means_, rtol=1e-10)
        assert_allclose(there.weights_, model.weights_, rtol=1e-10)
    assert_array_equal(there.predict(adata), model.predict(X))
    assert not source_of(adata).has_labels  # type: ignore[union-attr]


# ---------------------------------------------------------------- labels written back


def test_an_anndata_gets_labels(annotate: Callable[..., Any], model: Any) -> None:
    merged = merge_kernels(model, n_populations=2).renamed({1: "B"})
    adata = annotate(X, SAMPLE)
    write_labels(model, adata, adata)
    write_labels(model, adata, adata, populations=merged)
    assert_array_equal(adata.obs["kernel"].astype(int), model.predict(X))
    assert adata.obs["kernel"].cat.categories.tolist() == ["0", "1", "2"]
    assert_array_equal(adata.obs["population"].cat.codes, merged.predict(model, X))
    assert adata.obs["population"].cat.categories.tolist() == ["0", "B"]
    assert_allclose(adata.obsm["kernel_probabilities"], model.predict_proba(X), rtol=1e-12)
    shares = adata.obsm["population_probabilities"]
    assert_allclose(shares, merged.predict_proba(model, X), rtol=1e-12)
    summary = adata.uns["skmix"]
    assert summary["samples"].tolist() == ["s1", "s2", "s3"]
    assert_array_equal(summary["cells"], [40, 60, 50])
    assert_array_equal(summary["weights"], model.weights_.T)
    assert_array_equal(summary["means"], model.means_)
    assert_array_equal(summary["populations"], merged.of_kernels)
    other = annotate(X, SAMPLE)
    write_labels(model, X, other, probabilities=False, name="cluster")
    assert_array_equal(other.obs["cluster"].astype(int), model.predict(X))
    assert not len(other.obsm)
    with pytest.raises(ValueError, match="X has 149 rows, but the AnnData has 150 observations"):
        write_labels(model, X[1:], other)
    with pytest.raises(TypeError, match="must be a path or an AnnData, got a ndarray"):
        write_labels(model, X, X)


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_a_table_of_labels(tmp_path: Path, model: SharedKernelMixture, suffix: str) -> None:
    target = tmp_path / f"labels{suffix}"
    write_labels(model, open_rows(X, label=SAMPLE, chunk_rows=64), target)
    found = read_rows(target, target="sample")
    assert found.labels == SAMPLE.tolist()
    assert found.feature_names == ("kernel", "p_0", "p_1", "p_2")
    assert_array_equal(found.X[:, 0], model.predict(X, groups=SAMPLE))
    shares = model.predict_proba(X, groups=SAMPLE)
    assert_allclose(found.X[:, 1:], shares, rtol=1e-12, atol=1e-300)
    merged = merge_kernels(model, n_populations=2)
    write_labels(model, X, str(target), populations=merged, probabilities=False)
    again = read_rows(target)
    assert again.feature_names == ("population",)
    assert_array_equal(again.X[:, 0], merged.predict(model, X))
    write_labels(model, X, str(target), populations=merged.renamed({0: "T"}))
    named = read_rows(target, target="population")
    assert named.feature_names == ("p_T", "p_1")
    assert named.labels == np.array(["T", "1"])[merged.predict(model, X)].tolist()
    with pytest.raises(ValueError, match="name='sample' is that of another column"):
        write_labels(model, X, target, name="sample")
    with pytest.raises(ValueError, match=r"labels\.xlsx: the name of a table must end in"):
        write_labels(model, X, tmp_path / "labels.xlsx")


def test_labels_beside_a_background(tmp_path: Path, annotate: Callable[..., Any]) -> None:
    # The last row is so far from all kernels that their probabilities underflow.
    rows, target = np.concatenate([X, [[1e4, 1e4]]]), tmp_path / "labels.csv"
    start = {"means": [[0.0, 0.0], [7.0, 7.0], [7.5, 7.5]]}
    fitted = SharedKernelMixture(3, init=start, tail="background", tol=1e-3).fit(rows)
    merged = merge_kernels(fitted, n_populations=2)
    # Away from the two kernels that overlap, the background is the likeliest of three before it is half.
    away = np.array([7.25, 7.25]) + np.linspace(0.0, 6.0, 400)[:, None] * [1.0, -1.0]
    rows = np.concatenate([away, rows])
    shares = np.sort(fitted.predict_proba(away), axis=1)
    left = 1.0 - shares.sum(axis=1)
    assert ((shares[:, -1] < left) & (left < 0.5)).any()
    assert not fitted.predict_proba(rows)[-1].any()
    for populations in (None, merged):
        write_labels(fitted, rows, target, populations=populations)
        table, expected = read_rows(target), fitted.predict_proba(rows)
        if populations is not None:
            expected = merged.predict_proba(fitted, rows)
        assert table.feature_names[-1] == "p_background"
        # The background is one more column, and the number of the last one is -1.
        likely = np.c_[expected, 1.0 - expected.sum(axis=1)].argmax(axis=1)
        numbers = np.where(likely == expected.shape[1], -1, likely)
        assert numbers[-1] == -1
        assert_array_equal(table.X[:, 0], numbers)
        assert_allclose(table.X[:, 1:-1], expected, rtol=1e-12, atol=1e-300)
        assert_allclose(table.X[:, 1:].sum(axis=1), 1.0)
        write_labels(fitted, rows, target, populations=populations, probabilities=False)
        assert read_rows(target).feature_names == ("population" if populations else "kernel",)
        assert_array_equal(read_rows(target).X[:, 0], numbers)
    rows = rows[len(away) :]
    adata = annotate(rows, np.r_[SAMPLE, ["s1"]])
    write_labels(fitted, rows, adata)
    column = adata.obs["kernel"]
    assert column.cat.categories.tolist() == ["0", "1", "2", "background"]
    assert column.iloc[-1] == "background"
    assert column.iloc[0] == str(fitted.predict(rows[:1])[0])
    assert_allclose(adata.obsm["kernel_probabilities"][-1], [0.0, 0.0, 0.0, 1.0])


def test_labels_follow_the_shifts_of_known_groups(tmp_path: Path) -> None:
    kernels, groups = np.tile([0, 1], 300), np.repeat(["a", "b", "c"], 200)
    shift = np.select([groups == "a", groups == "b"], [-0.9, 0.0], 0.9)
    rows = np.random.default_rng(1).normal(size=(600, 1), scale=0.3) + (2.2 * kernels + shift)[:, None]
    start = {"means": [[0.0], [2.2]]}
    fitted = SharedKernelMixture(2, init=start, group_shift=1.0, tol=1e-3).fit(rows, groups)
    expected, target = fitted.predict(rows, groups=groups), tmp_path / "labels.csv"
    assert (expected != fitted.predict(rows)).mean() > 0.05
    for probabilities in (True, False):
        write_labels(fitted, open_rows(rows, label=groups), target, probabilities=probabilities)
        assert_array_equal(read_rows(target, target="sample").X[:, 0], expected)
    # Of new groups shifts are not known.
    write_labels(fitted, open_rows(rows, label=np.where(groups == "a", "new", groups)), target)
    mixed = np.where(groups == "a", fitted.predict(rows), expected)
    assert_array_equal(read_rows(target, target="sample").X[:, 0], mixed)


def test_labels_are_by_the_weights_of_known_groups(tmp_path: Path) -> None:
    flowio = pytest.importorskip("flowio", reason="flowio is not installed")
    random, files = np.random.default_rng(2), []
    for name, share in {"few": 0.02, "many": 0.6, "new": 0.3}.items():
        kinds = np.repeat([0.0, 2.0], [1000 - int(1000 * share), int(1000 * share)])
        values = kinds + random.normal(size=1000, scale=0.8)
        files.append(tmp_path / f"{name}.fcs")
        with open(files[-1], "wb") as file:
            flowio.create_fcs(file, values.tolist(), ["x"])
    start = {"means": [[0.0], [2.0]], "covariances": [[[0.64]]] * 2}
    model = SharedKernelMixture(2, init={**start, "freeze": "kernels"})
    model.fit(open_rows(files[:2], transform=None))
    expected = [model.predict(path, groups=[path.stem] * 1000) for path in files[:2]]
    share = composition(model, groups=["few"]).query("kernel == 1")["proportion"].item()
    assert abs(expected[0].mean() - share) < 0.5 * abs(model.predict(files[0]).mean() - share)
    write_labels(model, files[:2], tmp_path / "known.csv")
    known = read_rows(tmp_path / "known.csv", target="sample").X
    assert_array_equal(known[:, 0], np.concatenate(expected))
    # A file that is not in the fit has average weights, and leaves the others as they are.
    write_labels(model, files, tmp_path / "all.csv")
    everything = read_rows(tmp_path / "all.csv", target="sample").X
    assert_array_equal(everything[:2000], known)
    assert_array_equal(everything[2000:, 0], model.predict(files[2]))
    write_labels(model, files, tmp_path / "out")
    written = [read_fcs(tmp_path / "out" / path.name, channels=["kernel"]).X[:, 0] for path in files]
    assert_array_equal(np.concatenate(written), everything[:, 0])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_that_are_read_are_not_written(tmp_path: Path, model: SharedKernelMixture, suffix: str) -> None:
    own = tmp_path / f"rows{suffix}"
    write_columns(own, {"x": X[:, 0], "y": X[:, 1]})
    before = own.read_bytes()
    for given in (own, [own], str(tmp_path / f"*{suffix}"), open_rows(own)):
        with pytest.raises(ValueError, match=rf"rows\{suffix} is one of the files that are read"):
            write_labels(model, given, own)
    assert own.read_bytes() == before


def test_fcs_files_get_a_channel(tmp_path: Path) -> None:
    flowio = pytest.importorskip("flowio", reason="flowio is not installed")
    values = np.exp(X.astype(np.float32))
    keywords = {"SPILLOVER": "2,B530-A,R660-A,1,0.1,0,1", "DATE": "01/02/2026", "STAIN": "a/b", "P1R": "1024"}
    files = []
    for folder, group in (("day1", "s1"), ("day2", "s1"), ("day2", "s2")):
        (tmp_path / folder).mkdir(exist_ok=True)
        files.append(tmp_path / folder / f"{group}.fcs")
        part = np.c_[values[group == SAMPLE], np.arange((group == SAMPLE).sum())].astype(np.float32)
        with open(files[-1], "wb") as file:
            flowio.create_fcs(
                file, part.ravel().tolist(), ["B530-A", "R660-A", "Time"], [*GENES, ""], keywords
            )
    rows = open_rows(files, columns=GENES, compensate=True, transform=Arcsinh(), chunk_rows=30)
    model = SharedKernelMixture(2, init="k-means", random_state=0, tol=1e-3).fit(rows)
    assert model.classes_.tolist() == ["day1/s1", "day2/s1", "day2/s2"]
    write_labels(model, rows, tmp_path / "out")
    labels = np.split(model.predict(rows, groups=rows.row_labels()), [40, 80])
    for path, own in zip(files, labels, strict=True):
        before, after = read_fcs(path), read_fcs(tmp_path / "out" / path.parent.name / path.name)
        assert after.channels == ("B530-A", "R660-A", "Time", "kernel")
        assert after.markers == ("CD3", "CD4", "", "")
        assert_array_equal(after.X[:, :3], before.X)
        assert_array_equal(after.X[:, 3], own)
        # Compensation is still to come, as in the original.
        compensated = [
            read_fcs(each, channels=GENES, compensate=True).X
            for each in (path, tmp_path / "out" / path.parent.name / path.name)
        ]
        assert_array_equal(*compensated)
    text = flowio.FlowData(str(tmp_path / "out" / "day1" / "s1.fcs")).text
    assert (text["date"], text["stain"]) == ("01/02/2026", "a/b")
    one = SharedKernelMixture(2, random_state=0, tol=1e-3).fit(files[0])
    write_labels(one, files[0], tmp_path / "one", name="cluster")
    assert_array_equal(
        read_fcs(tmp_path / "one" / "s1.fcs", channels=["cluster"]).X[:, 0], one.predict(files[0])
    )
    again = open_rows(tmp_path / "out", columns=GENES)
    with pytest.raises(ValueError, match=r"s1\.fcs already has a channel 'kernel': give another name"):
        write_labels(model, again, tmp_path / "again")
    with pytest.raises(ValueError, match=r"s1\.fcs is one of the files that are read"):
        write_labels(one, files[0], tmp_path / "day1")
    with pytest.raises(ValueError, match=r"for copies of FCS files; these rows are in memory"):
        write_labels(model, X, tmp_path / "out")
