"""The study of many samples in Python: files to proportions, comparisons, names, labels, pages and files."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, Study, compose, load, open_rows
from skmix._errors import ArgumentError
from skmix.samples import information, reading

CENTRES = np.array([[0.0, 0.0, 0.0], [12.0, 0.0, 3.0], [0.0, 12.0, -3.0]])
NAMES = ["CD3", "CD4", "CD8"]
# No two populations are equally large: their order would be that of rounding.
SHARES = {f"s{i}": [0.6 - 0.02 * i, 0.3, 0.1 + 0.02 * i] for i in (3, 1, 2, 5, 4)} | {
    "odd": [0.1, 0.15, 0.75]
}
N = 200


def drawn(shares: Sequence[float], seed: int) -> np.ndarray:
    counts = np.round(np.array(shares) * N).astype(int)
    return np.repeat(CENTRES, counts, axis=0) + np.random.default_rng(seed).normal(size=(counts.sum(), 3))


def frames() -> dict[str, pd.DataFrame]:
    return {name: pd.DataFrame(drawn(own, i), columns=NAMES) for i, (name, own) in enumerate(SHARES.items())}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("study")
    for name, frame in frames().items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return [folder / f"{name}.csv" for name in SHARES]


@pytest.fixture(scope="module")
def whole(files: list[Path]) -> Study:
    metadata = pd.DataFrame({"sample": sorted(SHARES), "arm": list("babbab"), "age": range(6)})
    return compose(files, n_kernels=4, n_populations=3, metadata=metadata)


@pytest.fixture
def found(whole: Study) -> Study:
    return copy.copy(whole)


def test_samples_may_be_in_one_table(found: Study, files: list[Path]) -> None:
    """As a frame, a Parquet file, an array with labels, and what was opened before."""
    table = pd.concat([frame.assign(donor=name) for name, frame in frames().items()])
    table = table.sample(frac=1.0, random_state=0)
    path = files[0].parent / "cells.parquet"
    table.to_parquet(path)
    rows = table[NAMES].to_numpy()
    expected = found.proportions.sort_values("sample", kind="stable", ignore_index=True)
    for given, options in (
        (table, {"sample": "donor"}),
        (path, {"sample": "donor"}),
        (open_rows(rows, label=table["donor"].to_numpy()), {}),
        (rows, {"sample": table["donor"].to_numpy()}),
    ):
        own = compose(given, n_kernels=4, n_populations=3, **options)
        assert own.samples == sorted(SHARES)
        assert_allclose(own.proportions["proportion"], expected["proportion"], atol=2e-3)
        by = "column donor" if isinstance(options.get("sample"), str) else None
        assert dict(own.provenance()).get("samples by") == by
    path.unlink()
    for name, value in {"sample": "donor", "markers": ["CD3"], "transform": None}.items():
        with pytest.raises(ArgumentError, match=f"{name} is for samples to open"):
            compose(open_rows(table, label="donor"), **{name: value})
    one = compose(rows, n_kernels=2)
    assert (one.samples, one.proportions["population"].tolist()) == ([0], [0, 1])
    assert one.plot_markers().get_xticklabels()[1].get_text() == "marker 1"
    with pytest.raises(ValueError, match="column 'donor' names no sample in 7 of 1200 rows"):
        compose(table.assign(donor=table["donor"].where(np.arange(1200) > 6)), sample="donor")


def test_new_samples_have_proportions_of_the_same_populations(found: Study, files: list[Path]) -> None:
    again = found.apply_to([files[5], files[0]])
    assert again.samples == ["odd", "s3"]
    pd.testing.assert_frame_equal(found.apply_to([files[5], files[0]]).proportions, again.proportions)
    assert again.unusual()["unusual"].tolist() == [True, False]
    assert dict(again.provenance())["fitted to"] == "6 samples of 1,200 cells"
    assert again.unusual()["reason"].tolist() == ["proportions", ""]
    with pytest.warns(UserWarning, match="cells of 0 are unlike those of the study: are they on the same"):
        found.apply_to(10.0 * pd.read_csv(files[5]))
    with pytest.raises(ArgumentError, match="markers are those of the study"):
        found.apply_to(files[0], markers=["CD4"])
    with pytest.raises(ValueError, match="new samples has no fit of its own"):
        again.save("never")


def test_populations_are_renamed_everywhere(found: Study, tmp_path: Path) -> None:
    before = found.proportions
    assert found.rename({0: "CD4 T", 1: "B"}) is found
    assert found.proportions["population"].tolist() == ["CD4 T", "B", "CD4⁺"] * 6
    assert_array_equal(found.proportions["proportion"], before["proportion"])
    assert set(found.unusual()["population"]) <= {"CD4 T", "CD4⁺", "B"}
    assert set(found.compare("arm").table["population"]) == {"CD4 T", "CD4⁺", "B"}
    assert "CD4 T" in found.to_html()
    found.label_cells(tmp_path / "labels.csv", probabilities=False)
    assert set(pd.read_csv(tmp_path / "labels.csv")["population"]) == {"CD4 T", "CD4⁺", "B"}
    found.save(tmp_path / "study.skmix")
    assert load(tmp_path / "study.skmix").populations.display_names == ["CD4 T", "B", "CD4⁺"]
    assert found.rename({"B": "B cells"}).proportions["population"][1] == "B cells"
    assert found.rename({"CD4+": "T"}).proportions["population"][2] == "T"
    for names in (["a", "b"], {0: " "}):
        with pytest.raises((TypeError, ValueError), match=r"^(names must map|A population cannot)"):
            found.rename(names)


def test_files_are_not_overwritten_unless_told(found: Study, tmp_path: Path) -> None:
    for write in (found.save, found.label_cells):
        path = tmp_path / "labels.csv"
        path.write_text("mine")
        with pytest.raises(FileExistsError, match="exists: give another name, or overwrite=True"):
            write(path)
        assert path.read_text() == "mine"
        write(path, overwrite=True)
        assert path.read_bytes() != b"mine"


def test_files_that_cannot_be_read_are_left_out_on_demand(files: list[Path], tmp_path: Path) -> None:
    bad, junk = tmp_path / "bad.csv", tmp_path / "junk.fcs"
    bad.write_text("CD3,CD4,CD8\n1,2,3\n1,2\n")
    junk.write_bytes(b"junk")
    given = [*files, bad, junk]
    with pytest.raises(ValueError, match="bad"):
        compose(given, n_kernels=2)
    study = compose(given, n_kernels=2, skip_unreadable=True)
    assert study.samples == [path.stem for path in files]
    for note, path in zip(study.describe()["notes"], (bad, junk), strict=True):
        assert note.startswith("Left out: ")
        assert path.name in note
    assert study.apply_to([files[0], bad], skip_unreadable=True).samples == [files[0].stem]
    # A cell without any value.
    bad.write_text("CD3,CD4,CD8\n1,2,3\n,,\n")
    study = compose([*files, bad], n_kernels=2, skip_unreadable=True)
    assert study.samples == [path.stem for path in files]
    assert "There is no value in line 3" in study.describe()["notes"][0]
    # Labels of all cells are right only if no file is left out.
    labels = np.repeat(["x", "y"], [len(pd.read_csv(file)) for file in files[:2]])
    whole = compose(files[:2], sample=labels, n_kernels=2, skip_unreadable=True)
    assert whole.samples == ["x", "y"]
    with pytest.raises(ArgumentError, match=r"some are left out: Left out: .*bad"):
        compose([*files[:2], bad], sample=labels, n_kernels=2, skip_unreadable=True)
    with pytest.raises(ValueError, match="bad"):
        compose([bad, junk], skip_unreadable=True)


def test_a_study_comes_back_from_its_file(
    found: Study, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.save(tmp_path / "study.skmix")
    again, new, calls = load(tmp_path / "study.skmix"), found.apply_to(files[0]), []
    assert isinstance(again, Study)
    assert repr(again) == repr(found) == "<Study of 6 samples and 3 populations>"
    expected = [
        found.proportions,
        found.unusual(),
        found.compare("arm").table,
        new.proportions,
        new.unusual(),
    ]
    # The samples of the fit are not described again.
    intervals = information.intervals
    monkeypatch.setattr(information, "intervals", lambda *given: calls.append(0) or intervals(*given))
    new = again.apply_to(files[0])
    tables = [again.proportions, again.unusual(), again.compare("arm").table, new.proportions, new.unusual()]
    for table, before in zip(tables, expected, strict=True):
        pd.testing.assert_frame_equal(table, before)
    assert len(calls) == 1
    assert again.provenance() == found.provenance()
    assert again.describe() == found.describe()
    # Cells stay where they were.
    assert again.to_html() != found.to_html()
    with pytest.raises(ArgumentError, match="samples is missing"):
        again.label_cells(tmp_path / "out.csv")
    again.label_cells(tmp_path / "out.csv", files)
    assert len(pd.read_csv(tmp_path / "out.csv")) == 1200


# ---------------------------------------------------------------- conditions


def test_a_condition_is_a_column_of_the_metadata(found: Study, tmp_path: Path) -> None:
    arms = dict(zip(sorted(SHARES), "babbab", strict=True))
    sides = [[name for name in SHARES if arms[name] == arm] for arm in "ab"]
    table, expected = found.compare("arm").table, found.compare(*sides).table
    assert table.columns.tolist()[1:3] == ["proportion_a", "proportion_b"]
    pd.testing.assert_frame_equal(table, expected)
    frame = pd.DataFrame({"treated": [arms[name] == "b" for name in SHARES]}, index=list(SHARES))
    other = found.compare("treated", metadata=frame).table
    assert other.columns.tolist()[1:3] == ["proportion_False", "proportion_True"]
    assert_allclose(other["difference"], table["difference"])
    frame.index = [f"in/{name}.csv " for name in SHARES]
    frame.rename_axis("sample").reset_index().to_csv(tmp_path / "about.csv", index=False)
    pd.testing.assert_frame_equal(found.compare("treated", metadata=tmp_path / "about.csv").table, other)
    # Differences are those from the reference; by default, from the value that comes last.
    turned = found.compare("arm", "a").table
    assert turned.columns.tolist()[1:3] == ["proportion_b", "proportion_a"]
    assert_allclose(turned["difference"], -table["difference"])
    coded = {"arm": [*([0.0, 1.0] * 2), None, 1.0], "day": pd.to_datetime(["2026-01-05", "2026-02-03"] * 3)}
    assert found.compare("day", metadata=coded).table.columns[1] == "proportion_2026-01-05"
    with pytest.warns(UserWarning, match="for lack of a condition"):
        assert found.compare("arm", 0, metadata=coded).table.columns[1:3].tolist() == [
            "proportion_1",
            "proportion_0",
        ]


def test_a_study_remembers_what_it_compares(found: Study, files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="condition is missing"):
        found.compare()
    about = {"arm": list("xyxyxy"), "donor": [1, 1, 2, 2, 3, 3]}
    new = found.apply_to(files, metadata=about, condition="arm", pair="donor", reference="x")
    table = new.compare().table
    pd.testing.assert_frame_equal(table, new.compare("arm", "x", pair="donor").table)
    assert table.columns[2] == "proportion_x"
    assert 'id="conditions"' in new.to_html()
    assert 'id="conditions"' not in found.to_html()
    given: Any = {"n_kernels": 2, "condition": "arm", "covariate": "age"}
    frame = pd.DataFrame(about | {"age": [1.5, 2, 2.5, 4, 6, 7]}, index=list(SHARES))
    dated = frame.assign(day=pd.Timestamp("2026-01-05"), ok=frame["age"] > 2)
    own = compose(files, metadata=dated, **given)
    own.save(tmp_path / "study.skmix")
    pd.testing.assert_frame_equal(
        load(tmp_path / "study.skmix").compare().table, own.compare("arm", covariate="age").table
    )


def test_wrong_conditions_and_metadata_are_refused(found: Study) -> None:
    for given, message in (
        (("sex",), r"condition='sex' is not a column of the metadata: \['arm', 'age'\]"),
        ((["s1", "s2"],), r"^Name a metadata column as condition, or give both .* compare\(list1, list2\)"),
        (("arm", "B"), r"reference='B' is not a value of arm, which has \['a', 'b'\]. Did you mean 'b'?"),
    ):
        with pytest.raises(ArgumentError, match=message):
            found.compare(*given)
    with pytest.raises(ArgumentError, match="condition='arm' must have two values or more, but has"):
        found.compare("arm", metadata={"arm": ["a"] * 6})
    for table, message in (
        (
            pd.DataFrame({"sample": ["s1", "s2"], "arm": [0, 1]}),
            "has no row for odd, s3, .* sample has s1, s2",
        ),
        (pd.DataFrame({"sample": [*SHARES, "s1"], "arm": 0}), "metadata has two rows for s1"),
        (pd.DataFrame({"Sample": list(SHARES)}), "its index has 0, .* Did you mean 'Sample'"),
        (pd.DataFrame({"sample": ["ODD", *SHARES][:-1], "arm": 0}), "no row for odd: .* Did you mean 'ODD'"),
        ({"arm": [0, 1, 2]}, "metadata has 3 rows for 6 samples"),
    ):
        with pytest.raises(ArgumentError, match=message) as caught:
            Study(found.model, metadata=table)
        assert caught.value.argument == "metadata"


# ---------------------------------------------------------------- shown


def test_the_picture_and_the_page(found: Study, tmp_path: Path) -> None:
    axes = found.plot()
    assert "→ odd" in [text.get_text() for text in axes.get_yticklabels()]
    page = found.to_html(tmp_path / "study.html")
    assert (tmp_path / "study.html").read_text(encoding="utf-8") == page
    made = dict(found.provenance())
    assert made["files"] == "6: s3.csv, s1.csv, s2.csv, s5.csv, s4.csv, odd.csv"
    assert made["passes of EM"] == str(found.model.n_iter_)
    assert all(value in page for value in made.values())
    assert str(tmp_path) not in page


def test_a_study_of_a_model_alone(tmp_path: Path) -> None:
    X = np.concatenate([drawn(own, i) for i, own in enumerate(SHARES.values())])
    model = SharedKernelMixture(3, init="k-means", random_state=0).fit(X, np.repeat(list(SHARES), N))
    found = Study(model)
    assert found.samples == sorted(SHARES)
    assert "k0" in found.to_html()
    assert "3 kernels" in repr(found)
    with pytest.raises(ValueError, match="no populations to name"):
        found.rename({0: "T"})
    few = SharedKernelMixture(2, random_state=0).fit(X[:400], np.repeat(["a", "b"], N))
    assert Study(few).describe()["samples"][0] == {"sample": "a", "cells": N, "unusual": None}


# ---------------------------------------------------------------- reading and choosing


def test_as_many_cells_of_every_sample_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"b": 500, "a": 4, "c": 90}
    rows = {name: np.random.default_rng(i).normal(size=(n, 3)) for i, (name, n) in enumerate(sizes.items())}
    for name, own in rows.items():
        np.save(tmp_path / f"{name}.npy", own)
    monkeypatch.setattr(reading, "SOME_CELLS", 150)
    labels = np.repeat(list(sizes), list(sizes.values()))
    everything = np.concatenate(list(rows.values()))
    by_file = open_rows([tmp_path / f"{name}.npy" for name in sizes], chunk_rows=7)
    for source in (by_file, open_rows(everything, label=labels, chunk_rows=64)):
        cells = reading.open_cells(source)
        assert cells.sizes == sizes
        assert {name: int((cells.y == name).sum()) for name in sizes} == {"b": 50, "a": 4, "c": 50}
        for name, own in rows.items():
            taken = [tuple(row) for row in cells.X[cells.y == name].tolist()]
            assert set(taken) <= {tuple(row) for row in own.tolist()}
            assert len(set(taken)) == len(taken)
    assert list(reading.open_cells(by_file).sizes) == ["b", "a", "c"]
    assert not np.array_equal(reading.open_cells(source, seed=1).X, cells.X)


def test_there_is_a_kernel_for_each_twenty_cells_up_to_a_hundred(files: list[Path]) -> None:
    found = compose(files, random_state=1)
    assert dict(found.provenance())["kernels"] == str(len(found.model.means_)) == "60"
    assert found.populations is not None
    assert len(found.populations) == 3
    X = np.random.default_rng(0).normal(size=(2100, 2))
    assert len(compose(X).model.means_) == 100
    assert len(compose(X[:30]).model.means_) == 1


def test_populations_are_cut_anew_without_a_fit(found: Study, tmp_path: Path) -> None:
    """Two populations of which are parts of one, or are one; the kernels stay."""
    n = len(found.populations)
    for number in (1, n - 1, n + 1):
        cut = found.recut(number)
        assert len(cut.populations) == number
        assert cut.model is found.model
        proportions = cut.proportions.groupby("sample", sort=False)["proportion"].sum()
        assert_allclose(proportions, 1.0)
        pairs = set(zip(found.populations.of_kernels, cut.populations.of_kernels, strict=True))
        assert len(pairs) == max(n, number)
        same = cut.recut(n)
        assert_array_equal(same.populations.of_kernels, found.populations.of_kernels)
        pd.testing.assert_frame_equal(same.proportions, found.proportions)
        cut.save(tmp_path / f"{number}.skmix")
        assert len(load(tmp_path / f"{number}.skmix").populations) == number
    with pytest.raises(ValueError, match="n_populations=0 must be a whole number from 1 to"):
        found.recut(0)
    with pytest.raises(ValueError, match="no populations to cut anew"):
        Study(found.model).recut(2)


def test_what_the_next_cuts_change_is_said(found: Study) -> None:
    finer, coarser = found.cuts
    n, names = len(found.populations), found.populations.display_names
    name, marker = re.fullmatch(rf"at {n + 1}, (.*) splits by (.*)", finer).groups()
    assert name in names
    assert marker in found.markers
    fine = found.recut(n + 1).populations.of_kernels
    assert len(set(fine[found.populations.of_kernels == names.index(name)])) == 2
    joined = re.fullmatch(rf"at {n - 1}, (.*) are one", coarser)[1]
    coarse = found.recut(n - 1).populations.of_kernels
    into = [{str(names[g]) for g in found.populations.of_kernels[coarse == own]} for own in range(n - 1)]
    assert set(joined.split(" and ")) in into
    assert found.recut(1).cuts[0].startswith("at 2, ")
    assert found.describe()["cuts"] == found.cuts


def test_settings_reach_the_model(files: list[Path]) -> None:
    expected: dict[str, Any] = {"n_kernels": 4, "random_state": 7, "n_jobs": 1, "device": "cpu"}
    found = compose(files, n_populations=2, markers=["CD4", "CD3"], transform="arcsinh:2", **expected)
    assert {name: getattr(found.model, name) for name in expected} == expected
    assert found.model.feature_names_in_.tolist() == ["CD4", "CD3"]
    assert found.model.recipe_ == {"transform": "arcsinh:2"}
    assert found.populations is not None
    assert len(found.populations) == 2


def test_errors_name_their_argument(files: list[Path]) -> None:
    for given, argument, message in (
        ({"n_populations": 61}, "n_populations", "n_populations=61 is more than the 60 kernels there are"),
        ({"n_populations": 0}, "n_populations", "n_populations=0 must be a whole number of at least 1"),
        ({"n_kernels": True}, "n_kernels", "n_kernels=True must be a whole number"),
        ({"markers": "CD4"}, "columns", "markers must be a list of at least one column, got 'CD4'"),
        ({"markers": ["CD5"]}, None, "has no column 'CD5'.* Leave out files that are no samples"),
    ):
        with pytest.raises(ArgumentError, match=message) as caught:
            compose(files, **given)
        assert caught.value.argument == argument
    for given in (frames(), [*frames().values()], (path for path in files)):
        with pytest.raises(TypeError, match="give paths, or one table with a column of samples"):
            compose(given)


def test_advice_names_arguments_of_compose() -> None:
    """Not those of tables with categories, which are no markers."""
    table = pd.DataFrame({"CD3": range(80), "id": [f"x{i}y" for i in range(80)]})
    with pytest.raises(ArgumentError) as caught:
        compose(table)
    assert "categor" not in str(caught.value)
    assert "drop" not in str(caught.value)
    assert "markers" in str(caught.value)


def test_cells_with_gaps_are_studied_and_an_empty_marker_is_refused(found: Study) -> None:
    table = pd.concat([frame.assign(donor=name) for name, frame in frames().items()], ignore_index=True)
    table.loc[::7, "CD3"] = np.nan
    table.loc[3::11, "CD8"] = np.nan
    gapped = compose(table, sample="donor", n_kernels=4, n_populations=3)
    own = (np.sort(study.proportions["proportion"]) for study in (gapped, found))
    assert_allclose(*own, atol=0.03)
    for gone, message in (
        ([5, 1199], r"There is no value in row 6 of the table: .*\(2 such rows\)"),
        ([0], "row 1 of the table:"),
    ):
        with pytest.raises(ValueError, match=message):
            compose(table.assign(**{name: table[name].drop(gone) for name in NAMES}), sample="donor")
    with pytest.raises(ValueError, match="marker CD4 has no value"):
        compose(table.fillna(0.0).assign(CD4=np.nan), sample="donor")
