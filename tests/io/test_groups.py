"""Groups of rows: lists, folders and patterns of files, tables with a column of groups, AnnData."""

from __future__ import annotations

import gc
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skmix import SharedKernelMixture, open_rows
from skmix.features import Arcsinh
from skmix.io import source_of, sources

RANDOM = np.random.default_rng(0)
SIZES = {"a": 70, "b": 1, "c": 129}
ROWS = {name: RANDOM.normal(i, 1.0, size=(n, 2)) for i, (name, n) in enumerate(SIZES.items())}
X = np.concatenate(list(ROWS.values()))
Y = np.repeat(list(SIZES), list(SIZES.values()))
CHANNELS = ["FSC-A", "B530-A"]


def write(path: Path, rows: np.ndarray, names: Sequence[str] = CHANNELS, markers: Sequence[str] = ()) -> Path:
    """Write rows in the format that the name of the file says."""
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = [",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]
    if path.suffix == ".fcs":
        flowio = pytest.importorskip("flowio", reason="flowio is not installed")
        with open(path, "wb") as file:
            flowio.create_fcs(file, rows.ravel().tolist(), list(names), list(markers) or None)
    elif path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(zip(names, rows.T, strict=True))), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        path.write_text("\n".join(lines))
    return path


def gathered(source: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return all rows and labels."""
    blocks = list(source.blocks())
    labels = [block.y if block.names is None else block.names[block.y] for block in blocks]
    return np.concatenate([b.X for b in blocks]), None if labels[0] is None else np.concatenate(labels)


def study(folder: Path, suffix: str) -> list[Path]:
    return [write(folder / f"{name}{suffix}", rows) for name, rows in ROWS.items()]


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet", ".npy", ".fcs"])
@pytest.mark.parametrize("chunk_rows", [None, 1, 64])
def test_each_file_is_a_group(tmp_path: Path, suffix: str, chunk_rows: int | None) -> None:
    files = study(tmp_path, suffix)
    for given in (files, [str(path) for path in files], tmp_path, str(tmp_path / f"*{suffix}")):
        source = open_rows(given, chunk_rows=chunk_rows, transform=None)
        assert source.shape == X.shape
        assert source.feature_names == (None if suffix == ".npy" else CHANNELS)
        rows, labels = gathered(source)
        assert_array_equal(rows, X.astype(np.float32) if suffix == ".fcs" else X)
        assert_array_equal(labels, Y)
        assert_array_equal(source.row_labels(), Y)
        sizes = [len(block.X) for block in source.blocks()]
        assert sizes == {None: [200], 1: 200 * [1], 64: [64, 64, 64, 8]}[chunk_rows]
        assert isinstance(source_of(given), type(source))
    # Other labels take the place of the groups.
    assert_array_equal(gathered(open_rows(files, label=np.arange(200) % 3))[1], np.arange(200) % 3)
    assert gathered(source.unlabelled())[1] is None


def test_hidden_files_of_a_folder_are_not_groups(tmp_path: Path) -> None:
    study(tmp_path, ".parquet")
    for name in ("_metadata.parquet", ".a.parquet", "_SUCCESS"):
        write(tmp_path / name, ROWS["a"])
    assert_array_equal(gathered(open_rows(tmp_path))[1], Y)


def test_features_go_by_name_in_every_file(tmp_path: Path) -> None:
    first = write(tmp_path / "1.csv", ROWS["a"], ["x", "y"])
    second = write(tmp_path / "2.parquet", ROWS["c"][:, ::-1], ["y", "x"])
    both = np.concatenate([ROWS["a"], ROWS["c"]])
    source = open_rows([first, second])
    assert source.feature_names == ["x", "y"]
    assert_array_equal(gathered(source)[0], both)
    assert_array_equal(gathered(source.take([1]))[0], both[:, [1]])
    assert_array_equal(gathered(open_rows([first, second], columns=["y"]))[0], both[:, [1]])
    # Single precision only if all files have it.
    np.save(tmp_path / "3.npy", X.astype(np.float32))
    np.save(tmp_path / "4.npy", X)
    assert gathered(open_rows([tmp_path / "3.npy"]))[0].dtype == np.float32
    assert gathered(open_rows([tmp_path / "3.npy", tmp_path / "4.npy"]))[0].dtype == np.float64


def test_channels_go_by_marker_where_panels_differ(tmp_path: Path) -> None:
    one = write(tmp_path / "1.fcs", X, ["B530-A", "R660-A"], ["CD3", "CD4"])
    other = write(tmp_path / "2.fcs", X[:, ::-1], ["B530-A", "R660-A"], ["CD4", "CD3"])
    with pytest.raises(
        ValueError, match=r"channel 'B530-A' is marker 'CD3' in .*1\.fcs and 'CD4' in .*2\.fcs"
    ):
        assert open_rows([one, other]).shape
    # How long a file took is not a marker.
    times = [write(tmp_path / f"{n}s.fcs", X, ["FL1", "Time"], ["", f"Time ({n} s)"]) for n in (3, 5)]
    assert open_rows(times).feature_names == ["FL1"]
    assert open_rows(times, columns=["FL1", "Time"]).shape == (400, 2)
    source = open_rows([one, other], columns=["CD3", "CD4"], transform=None)
    assert_array_equal(gathered(source)[0], np.concatenate([X, X]).astype(np.float32))


def test_names_of_groups_differ(tmp_path: Path) -> None:
    def names(*paths: str) -> list[str]:
        files = [write(tmp_path / path, ROWS["b"]) for path in paths]
        return list(dict.fromkeys(open_rows(files).row_labels().tolist()))

    assert names("0877.B08.csv", "b.csv.gz", "c") == ["0877.B08", "b", "c"]
    assert names("p1/tube.csv", "p2/tube.csv", "p2/other.csv") == ["p1/tube", "p2/tube", "p2/other"]
    assert names("x/p/tube.csv", "y/p/tube.csv") == ["x/p/tube", "y/p/tube"]
    assert names("a.csv", "a.parquet") == ["a.csv", "a.parquet"]
    with pytest.raises(ValueError, match=r"a\.csv is given twice"):
        names("a.csv", "p1/../a.csv")


def test_rows_of_a_fit_are_read_once_if_they_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = study(tmp_path, ".npy")
    coded = open_rows(files, chunk_rows=64).coded(np.array(list(SIZES)))
    first = gathered(coded)
    os.truncate(files[0], 200)
    for again, codes in ((coded, [0, 1, 2]), (coded.coded(np.array(["a", "c"])), [0, -1, 1])):
        rows, labels = gathered(again)
        assert_array_equal(rows, first[0])
        assert_array_equal(labels, np.repeat(codes, list(SIZES.values())))
    with pytest.raises(ValueError, match=r"a\.npy has changed"):
        gathered(coded.take([0]))
    study(tmp_path, ".npy")
    monkeypatch.setattr(sources, "CACHED_BYTES", X.nbytes - 1)
    streamed = open_rows(files).coded(np.array(list(SIZES)))
    gathered(streamed)
    os.truncate(files[0], 200)
    with pytest.raises(ValueError, match=r"a\.npy has changed"):
        gathered(streamed)


@pytest.mark.parametrize(("room", "n_copies"), [(1000, 2), (2100, 1), (3200, 0)])
def test_large_text_files_are_read_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, n_copies: int
) -> None:
    monkeypatch.setattr("skmix.io.opening.CACHED_BYTES", room)
    monkeypatch.setattr("skmix.io.text._BLOCK_BYTES", 1500)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "copies"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "copies").mkdir()
    source = open_rows(study(tmp_path / "rows", ".csv"))
    # Of 1120, 16 and 2064 bytes.
    assert len(list((tmp_path / "copies").iterdir())) == n_copies
    assert_array_equal(gathered(source)[0], X)
    assert_array_equal(gathered(source)[1], Y)
    del source
    assert not list((tmp_path / "copies").iterdir())


def test_a_copy_without_a_place_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may not be larger than some bytes, as where the disk is full after them."""
    resource = pytest.importorskip("resource", reason="this system does not limit files")
    files = study(tmp_path / "rows", ".csv")
    monkeypatch.setattr("skmix.io.opening.CACHED_BYTES", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match=r"copy of the table; TMPDIR can name another folder: .*copies"):
            open_rows(files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    gc.collect()  # the error's traceback refers to the copy
    assert not list((tmp_path / "copies").iterdir())


# ---------------------------------------------------------------- tables and columns


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "csv", "parquet", "folder"])
def test_a_column_has_the_groups(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = {"group": Y, "x": X[:, 0], "y": X[:, 1], "note": np.full(200, "text")}
    rows: Any = pa.table(columns)
    if kind in ("pandas", "polars"):
        rows = pytest.importorskip(kind).DataFrame(columns)
    if kind == "pandas":
        rows.index = rows.index.rename("row") + 5
    if kind == "parquet":
        pq.write_table(rows, tmp_path / "rows.parquet")
        rows = str(tmp_path / "rows.parquet")
    if kind == "folder":
        for name, part in {"1": rows[:90], "2": rows[90:90], "3": rows[90:]}.items():
            pq.write_table(part, tmp_path / f"{name}.parquet")
        rows = tmp_path
    if kind == "csv":
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (tmp_path / "rows.csv").write_text("\n".join(lines))
        rows = tmp_path / "rows.csv"
    source = open_rows(rows, label="group", columns=["x", "y"], chunk_rows=64)
    assert source.feature_names == ["x", "y"]
    assert_array_equal(gathered(source)[0], X)
    assert_array_equal(gathered(source)[1], Y)
    assert_array_equal(source.row_labels(), Y)
    assert open_rows(rows, label="group").feature_names == ["x", "y"], "a constant column is no feature"
    with pytest.raises(ValueError, match="no column 'sample'"):
        open_rows(rows, label="sample")


def test_labels_of_text_files_are_what_all_of_them_are(tmp_path: Path) -> None:
    def labels(*words: str, **text: Any) -> np.ndarray:
        (tmp_path / "l.csv").write_text("x,y\n" + "".join(f"1,{word}\n" for word in words))
        return open_rows(tmp_path / "l.csv", label="y", text=text).row_labels()

    for words, expected in (
        (["3", " 1", "2.0"], [3, 1, 2]),
        (["3", "NA", "-1"], [3, None, -1]),
        (["true", "FALSE"], [True, False]),
        (["a", "", "1"], ["a", None, "1"]),
    ):
        assert labels(*words).tolist() == expected
    assert labels("NA", "b", missing=[""]).tolist() == ["NA", "b"]
    # Several files agree.
    for name, word in {"1": "7", "2": "x"}.items():
        (tmp_path / f"{name}.csv").write_text(f"x,y\n1,{word}\n")
    both = [tmp_path / "1.csv", tmp_path / "2.csv"]
    assert open_rows(both, label="y").row_labels().tolist() == ["7", "x"]
    assert open_rows(both[:1], label="y").row_labels().tolist() == [7]


def test_files_in_folders_of_folders(tmp_path: Path) -> None:
    for name, rows in ROWS.items():
        write(tmp_path / "study" / name / "rows.csv", rows)
    labels = np.char.add(Y, "/rows")
    for given in (
        tmp_path / "study",
        str(tmp_path / "study" / "**" / "*.csv"),
        tmp_path / "study" / "*" / "rows.csv",
    ):
        assert_array_equal(gathered(open_rows(given))[0], X)
        assert_array_equal(gathered(open_rows(given))[1], labels)
    # At any depth.
    (tmp_path / "study" / "c").rename(tmp_path / "study" / "b" / "c")
    for given in (tmp_path / "study", tmp_path / "study" / "**" / "*.csv"):
        assert len(open_rows(given).row_labels()) == 200
    # A file whose name looks like a pattern is that file.
    odd = write(tmp_path / "a[1].csv", ROWS["a"])
    assert_array_equal(gathered(open_rows(odd))[0], ROWS["a"])
    assert open_rows([odd]).row_labels()[0] == "a[1]"


def test_record_batches_are_tables() -> None:
    pa = pytest.importorskip("pyarrow")
    batch = pa.record_batch({"x": X[:, 0], "y": X[:, 1]})
    source = open_rows(batch, chunk_rows=150)
    assert source.feature_names == ["x", "y"]
    assert_array_equal(gathered(source)[0], X)
    # In pieces of other sizes than the blocks.
    pieces = pa.Table.from_batches([batch[:7], batch[7:7], batch[7:160], batch[160:]])
    assert [len(block.X) for block in open_rows(pieces, chunk_rows=150).blocks()] == [150, 50]
    assert_array_equal(gathered(open_rows(pieces, chunk_rows=150))[0], X)
    assert repr(source) == "<200 rows of the table>"


class Annotated:
    """What an AnnData has, as far as rows are concerned."""

    obs: Any = None
    obsm: Any = None
    layers: Any = None
    var_names: Any = ("u", "v")

    def __init__(self, matrix: Any, **parts: Any) -> None:
        pd = pytest.importorskip("pandas")
        self.X = matrix
        self.obs = pd.DataFrame({"sample": Y, "w": np.arange(200.0)})
        for name, part in parts.items():
            setattr(self, name, part)


def test_matrices_of_an_anndata() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, ::-1], columns=["p", "q"])
    adata = Annotated(sparse.csr_matrix(X), layers={"raw": 2 * X}, obsm={"X_pca": 3 * X, "frame": frame})
    for options, rows, names in (
        ({}, X, ["u", "v"]),
        ({"obsm": "X_pca"}, 3 * X, None),
        ({"obsm": "frame"}, X[:, ::-1], ["p", "q"]),
        ({"layer": "raw", "columns": ["v"]}, 2 * X[:, [1]], ["v"]),
        ({"obsm": "X_pca", "columns": [1]}, 3 * X[:, [1]], None),
    ):
        source = open_rows(adata, label="sample", weight="w", chunk_rows=64, **options)
        assert source.feature_names == names
        assert_array_equal(gathered(source)[0], rows)
        assert_array_equal(gathered(source)[1], Y)
        assert_array_equal(np.concatenate([block.weights for block in source.blocks()]), np.arange(200.0))
    assert gathered(source_of(adata))[1] is None
    assert_array_equal(gathered(open_rows(adata).select(["v", "u"]))[0], X[:, ::-1])
    for given, options, message in (
        (adata, {"layer": "raw", "obsm": "X_pca"}, "Give layer='raw' or obsm='X_pca', not both"),
        (adata, {"layer": "X_pca"}, r"The AnnData has no 'X_pca' in layers; it has \['raw'\]"),
        (adata, {"obsm": "raw"}, r"The AnnData has no 'raw' in obsm; it has \['X_pca', 'frame'\]"),
        (adata, {"label": "kind"}, r"The AnnData's obs has no column 'kind'; it has \['sample', 'w'\]"),
        (adata, {"weight": "kind"}, "The AnnData's obs has no column 'kind'"),
        (adata, {"columns": ["u", "x"]}, r"has no feature 'x' \(1 missing\); its features are \['u', 'v'\]"),
        (adata, {"columns": [0]}, "are chosen by name"),
        (Annotated(None), {}, "The AnnData has no X: choose a layer or obsm"),
        (Annotated(X, var_names=["u", "u"]), {}, "two variables of the same name"),
    ):
        with pytest.raises(ValueError, match=message):
            open_rows(given, **options)


# ---------------------------------------------------------------- scales


def test_rows_are_transformed_as_they_are_read(tmp_path: Path) -> None:
    files = study(tmp_path, ".csv")
    expected = np.arcsinh(X / [2.0, 5.0])
    source = open_rows(files, transform=Arcsinh([2.0, 5.0]), chunk_rows=64)
    # What belongs to a channel stays with it; of a fit, the rows in memory are the transformed ones.
    coded = source.coded(np.array(list(SIZES)))
    for chosen, columns in (
        (source, [0, 1]),
        (coded, [0, 1]),
        (coded, [0, 1]),
        (coded.take([1]), [1]),
        (source.take([1, 0]).take([1]), [0]),
        (source.take([1, 0]).select(CHANNELS[:1]), [0]),
        (source.select(CHANNELS[::-1]), [1, 0]),
        (open_rows(files, columns=CHANNELS[:1], transform=Arcsinh(2.0)).select(CHANNELS[:1]), [0]),
        (open_rows(files, columns=CHANNELS[::-1], transform=Arcsinh([5.0, 2.0])), [1, 0]),
    ):
        assert_allclose(gathered(chosen)[0], expected[:, columns], rtol=1e-14)
        assert chosen.feature_names == [CHANNELS[column] for column in columns]
    assert_array_equal(gathered(source)[1], Y)
    with pytest.raises(ValueError, match=r"was opened with the features \['FSC-A', 'B530-A'\], without 'G1'"):
        source.select(["G1"])
    with pytest.raises(TypeError, match="transform must be a name, Arcsinh"):
        open_rows(files, transform=np.arcsinh)


def test_each_group_by_itself(tmp_path: Path) -> None:
    for suffix in (".csv", ".npy", ".fcs"):
        source = open_rows(study(tmp_path, suffix), chunk_rows=64, transform=Arcsinh())
        found = dict(source.each())
        assert list(found) == list(SIZES)
        for name, part in found.items():
            assert part.shape == ROWS[name].shape
            assert_array_equal(part.row_labels(), [name] * SIZES[name])
            rows, labels = gathered(part)
            assert_allclose(rows, np.arcsinh(ROWS[name] / 5.0), rtol=1e-6)
            assert_array_equal(labels, [name] * SIZES[name])


def test_weights_and_labels_of_several_files(tmp_path: Path) -> None:
    weights, kinds = np.arange(200) % 5 + 0.5, np.arange(200) % 3
    for name, rows in {"1": slice(0, 90), "2": slice(90, 200)}.items():
        write(tmp_path / f"{name}.parquet", np.column_stack([X, weights, kinds])[rows], ["a", "b", "w", "y"])
    for chunk_rows in (None, 33):
        source = open_rows(tmp_path, weight="w", chunk_rows=chunk_rows)
        assert source.feature_names == ["a", "b", "y"]
        both = open_rows(tmp_path, weight="w", label="y", chunk_rows=chunk_rows)
        assert both.feature_names == ["a", "b"]
        # Values beside the files take the place of their columns.
        other = source.labelled(Y).weighted(weights[::-1])
        coded = both.coded(np.arange(3.0))
        for each, labels, own in (
            (source, np.repeat(["1", "2"], [90, 110]), weights),
            (both, kinds, weights),
            (coded, kinds, weights),
            (coded, kinds, weights),
            (other, Y, weights[::-1]),
            (other.weighted("w").labelled("y"), kinds, weights),
        ):
            assert_array_equal(gathered(each)[0][:, :2], X)
            assert_array_equal(gathered(each)[1], labels)
            assert_array_equal(np.concatenate([block.weights for block in each.blocks()]), own)
        bare = both.unlabelled()
        assert not bare.has_labels
        assert next(bare.blocks()).weights is None
        assert gathered(bare)[1] is None
    with pytest.raises(ValueError, match=r"has 200 rows, but labels has shape \(199,\)"):
        source.labelled(Y[1:])
    with pytest.raises(ValueError, match="has no column 'z'"):
        open_rows(tmp_path, weight="z")


def test_a_second_fit_of_opened_files_has_its_own_weights_and_labels(tmp_path: Path) -> None:
    """Rows that the first fit keeps in memory have neither the weights nor the labels of the second."""
    weights, kinds = np.where(X[:, 0] > 1.0, 9.0, 1.0), np.arange(200) % 3
    for name, rows in {"1": slice(0, 90), "2": slice(90, 200)}.items():
        write(tmp_path / f"{name}.parquet", np.c_[X, weights, kinds][rows], ["a", "b", "w", "y"])
    mixture = SharedKernelMixture(1)
    source = open_rows(tmp_path, columns=["a", "b"])
    assert_allclose(mixture.fit(source).means_, [X.mean(axis=0)])
    assert_allclose(mixture.fit(source, sample_weight="w").means_, [np.average(X, axis=0, weights=weights)])
    assert_allclose(mixture.fit(source, "y").class_count_, np.bincount(kinds))
    assert_allclose(mixture.fit(source).class_count_, [90, 110])


# ---------------------------------------------------------------- what is wrong


def bad_files(folder: Path) -> dict[str, Path]:
    """Return files that are wrong, by what is said of them."""
    torn = write(folder / "torn.fcs", X)
    os.truncate(torn, torn.stat().st_size - 100)
    (folder / "empty.fcs").touch()
    (folder / "page.fcs").write_text("<html>")
    return {
        r"torn\.fcs is truncated: it has 187 of 200 events|torn\.fcs is damaged or truncated": torn,
        r"empty\.fcs is empty": folder / "empty.fcs",
        r"page\.fcs is not an FCS file: it begins with b'<html>'": folder / "page.fcs",
        r"a\.fcs has no channel 'G1', and .*other\.fcs has one": write(
            folder / "other.fcs", X, ["FSC-A", "G1"]
        ),
        r"a\.fcs has no channel 'SSC-A', and .*more\.fcs has one": write(
            folder / "more.fcs", np.c_[X, X[:, 0]], [*CHANNELS, "SSC-A"]
        ),
        r"no file or folder .*gone\.fcs": folder / "gone.fcs",
    }


def test_bad_files_are_named(tmp_path: Path) -> None:
    good = study(tmp_path, ".fcs")
    bad = bad_files(tmp_path)
    for words, path in bad.items():
        with pytest.raises((ValueError, OSError), match=words):
            assert open_rows([path, *good]).shape


def test_other_formats_are_checked_too(tmp_path: Path) -> None:
    good, infinite = study(tmp_path, ".csv"), X.copy()
    infinite[150, 1] = np.inf
    write(tmp_path / "wide.parquet", infinite)
    np.save(tmp_path / "two.npy", X)
    for name, content in {
        "empty.csv": b"",
        "words.csv": b"FSC-A,B530-A\n1,x\n",
        "binary.csv": b"\xff\xf0\x00\x01",
        "fraud.parquet": b"a,b\n1,2\n",
    }.items():
        (tmp_path / name).write_bytes(content)
    for name, words in {
        "empty.csv": "the file is empty",
        "words.csv": "column 'B530-A' holds text in .*words.csv and numbers in .*a.csv",
        "binary.csv": "neither text in UTF-8",
        "fraud.parquet": "cannot be read as a Parquet file",
        "two.npy": "has no names of features, unlike .*a.csv",
        "wide.parquet": "has an infinite value: feature 'B530-A', row 150,",
    }.items():
        with pytest.raises(ValueError, match=words):
            gathered(open_rows([*good, tmp_path / name], chunk_rows=60))


@pytest.mark.parametrize("suffix", [".csv", ".fcs"])
def test_files_without_any_value_are_named(tmp_path: Path, suffix: str) -> None:
    good = study(tmp_path, suffix)
    missing = np.full((500, 2), np.nan)
    bare = write(tmp_path / f"bare{suffix}", missing)
    with pytest.raises(ValueError, match=rf"bare\{suffix} has no value: all features of all its rows"):
        SharedKernelMixture(2).fit([*good, bare])
    # Rows to predict may be without a value.
    model = SharedKernelMixture(2, init={"means": X[:2]}, max_iter=9, tol=1e9).fit(good)
    assert_allclose(model.predict_proba([bare]), np.tile(model.weights_ @ model.class_prior_, (500, 1)))


def test_the_first_row_without_a_value_is_named(tmp_path: Path) -> None:
    rows = X.copy()
    rows[[130, 150]] = np.nan
    rows[5, 0] = np.nan
    late = write(tmp_path / "late.npy", rows)
    words = r"counted from 0, has no value: all 2 features are NaN \(2 such rows\)"
    for chunk_rows in (None, 64, 100):
        opened = open_rows([write(tmp_path / "good.npy", X), late], chunk_rows=chunk_rows)
        with pytest.raises(ValueError, match=rf"Row 130 of .*late\.npy, {words}"):
            SharedKernelMixture(2).fit(opened)
    rows[160, 1], rows[170, 0] = -np.inf, np.inf
    for chunk_rows in (None, 64):
        with pytest.raises(
            ValueError, match=r"late\.npy has an infinite value: feature 1, row 160, counted from 0"
        ):
            gathered(open_rows([write(tmp_path / "late.npy", rows)], chunk_rows=chunk_rows))
    # Large numbers are not infinite, though their sum is.
    large = np.full((3, 2), 1.5e308)
    assert_array_equal(gathered(open_rows([write(tmp_path / "large.npy", large)]))[0], large)


def test_rows_know_their_files(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", Y)
    other = write(tmp_path / "other.csv", X)
    for suffix in (".csv", ".parquet", ".npy", ".fcs"):
        files = study(tmp_path / suffix[1:], suffix)
        alone = open_rows(files[0])
        source = open_rows(files, label=tmp_path / "labels.npy")
        assert all(map(source.comes_from, [*files, tmp_path / "labels.npy"]))
        assert alone.comes_from(files[0].parent / ".." / suffix[1:] / files[0].name)
        assert not source.comes_from(other)
        assert not alone.comes_from(files[1])
        assert not source.comes_from(tmp_path / "gone.csv")
    assert not open_rows(X).comes_from(other)


def test_what_is_no_group_is_told(tmp_path: Path) -> None:
    study(tmp_path, ".csv")
    np.save(tmp_path / "rows.npy", X)
    for given, options, message in (
        (tmp_path, {}, r"two formats: rows\.npy and a\.csv\. Give a pattern, such as"),
        (tmp_path / "*.fcs", {}, r"No file matches .*\*\.fcs"),
        ([tmp_path / "a.csv"], {"compensate": True}, r"compensate=True needs FCS files.*a\.csv is not one"),
        (X, {"layer": "sample"}, "layer and obsm are for an AnnData; got a ndarray"),
        ([], {}, "list of files or rows is empty"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            open_rows(given, **options)
    assert source_of((X, Y)) is None
    with pytest.raises(ValueError, match="list of files or rows is empty"):
        SharedKernelMixture(2).fit([])
