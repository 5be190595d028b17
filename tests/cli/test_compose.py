"""From samples to the proportions of their populations, on the command line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pandas as pd
import pytest
from commands import said
from numpy.testing import assert_allclose

from skmix import compose, load

CENTRES = np.array([[0.0, 0.0, 0.0], [12.0, 0.0, 3.0], [0.0, 12.0, -3.0]])
SHARES = {"a": [0.6, 0.3, 0.1], "b": [0.5, 0.4, 0.1], "c": [0.1, 0.1, 0.8]}
NAMES = ["CD3", "CD4", "CD8"]
N = 300


def drawn(shares: Sequence[float], seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    counts = np.round(np.array(shares) * N).astype(int)
    return np.repeat(CENTRES, counts, axis=0) + random.normal(size=(counts.sum(), 3))


def write(path: Path, rows: np.ndarray, names: Sequence[str] = NAMES, markers: Sequence[str] = ()) -> Path:
    if path.suffix == ".fcs":
        flowio = pytest.importorskip("flowio", reason="flowio is not installed")
        with open(path, "wb") as file:
            flowio.create_fcs(file, rows.ravel().tolist(), list(names), list(markers) or None)
    else:
        pd.DataFrame(rows, columns=list(names)).to_csv(path, index=False)
    return path


run = partial(commands.run, "compose")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three samples, their model, table and page."""
    folder = tmp_path_factory.mktemp("study")
    files = [write(folder / f"{name}.csv", drawn(own, i)) for i, (name, own) in enumerate(SHARES.items())]
    places = ("-o", folder / "model.skmix", "--table", folder / "table.csv", "--html", folder / "page.html")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        result = run(*files, "--kernels", 3, *places)
    (folder / "said.txt").write_text(result.stdout)
    return folder


def files_of(study: Path) -> list[Path]:
    return [study / f"{name}.csv" for name in SHARES]


# ---------------------------------------------------------------- the same numbers as in Python


@pytest.mark.parametrize("suffix", [".csv", ".fcs"])
def test_files_give_the_numbers_of_python(tmp_path: Path, suffix: str) -> None:
    for i, (name, own) in enumerate(SHARES.items()):
        write(tmp_path / f"{name}{suffix}", 100.0 * np.abs(drawn(own, i)))
    pattern, places = str(tmp_path / f"*{suffix}"), ("-o", tmp_path / "m", "--html", tmp_path / "p.html")
    printed = json.loads(run(pattern, *places, "--table", tmp_path / "t.parquet", "--json").stdout)
    found = compose(pattern)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), found.proportions)
    assert (tmp_path / "p.html").read_text() == found.to_html()
    assert pd.DataFrame(printed.pop("proportions")).equals(found.proportions)
    places = [str(tmp_path / name) for name in ("m", "t.parquet", "p.html")]
    assert printed == {"model": places[0], "written": places, "seed": 0} | found.describe()
    stored = load(tmp_path / "m")
    pd.testing.assert_frame_equal(stored.proportions, found.proportions)
    found.save(tmp_path / "python")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "python").read_bytes()
    # Other cuts of the tree need no fit.
    text = run(
        pattern, "--model", tmp_path / "m", "--populations", 2, "--table", tmp_path / "2.parquet"
    ).stdout
    assert all(cut in " ".join(text.split()) for cut in stored.recut(2).cuts)
    refused = run(pattern, "--model", tmp_path / "m", "--populations", 999, code=1)
    assert "--populations 999 must be a whole number from 1 to" in said(refused)
    two = stored.recut(2).apply_to(pattern).proportions
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "2.parquet"), two)
    # New samples too, and the model stays as it is.
    new = [tmp_path / f"c{suffix}", tmp_path / f"a{suffix}"]
    run(*new, "--model", tmp_path / "m", "--table", tmp_path / "n.parquet", "--html", tmp_path / "n.html")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "n.parquet"), found.apply_to(new).proportions)
    assert (tmp_path / "n.html").read_text() == stored.apply_to(new).to_html()
    assert (tmp_path / "m").read_bytes() == (tmp_path / "python").read_bytes()


def test_a_column_of_samples_gives_the_numbers_of_python(study: Path, tmp_path: Path) -> None:
    parts = [pd.read_csv(path).assign(donor=path.stem) for path in files_of(study)]
    mixed = pd.concat(parts).sample(frac=1.0, random_state=0)
    numbered = mixed.assign(donor=mixed["donor"].map({"a": 7, "b": 10, "c": 2}))
    for table, names in ((mixed, ["a", "b", "c"]), (numbered, [2, 7, 10])):
        table.to_parquet(tmp_path / "cells.parquet")
        options = ("--kernels", 3, "--seed", 4, "--markers", "CD8, CD3")
        places = ("-o", tmp_path / "m", "--table", tmp_path / "t.parquet")
        run(tmp_path / "cells.parquet", "--sample", "donor", *options, *places)
        settings: dict[str, Any] = {"n_kernels": 3, "random_state": 4}
        for given in (tmp_path / "cells.parquet", table):
            found = compose(given, sample="donor", markers=["CD8", "CD3"], **settings)
            assert found.samples == names
            pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), found.proportions)
    result = run(*files_of(study), "--sample", "donor", code=2)
    assert "--sample is for one table, but there are 3 files" in said(result)


# ---------------------------------------------------------------- conditions


def test_conditions_are_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shares = {f"{arm}{i}": random.dirichlet([60.0, 30.0, 10.0]) for i in range(3) for arm in "xy"}
    files = [write(tmp_path / f"{name}.csv", drawn(own, i)) for i, (name, own) in enumerate(shares.items())]
    # With and without suffix, in another order, and separated as a spreadsheet may do it.
    lines = [f"{name}{'.csv' if name[0] == 'x' else ''};{name[0]};{name[1]}" for name in sorted(shares)]
    about = tmp_path / "about.txt"
    about.write_text("\n".join(["sample;arm;donor", *lines, "other;z;9"]))
    design = ("--metadata", about, "--condition", "arm", "--pair", "donor")
    places = ("--comparison", tmp_path / "c.parquet", "--html", tmp_path / "p.html", "-o", tmp_path / "m")
    design = (*design, "--reference", "x")
    result = run(*files, "--kernels", 3, *design, *places)
    given: Any = {"metadata": about, "condition": "arm", "pair": "donor", "reference": "x"}
    found = compose(files, n_kernels=3, **given)
    table = found.compare().table
    pd.testing.assert_frame_equal(table, found.compare("arm", "x", pair="donor").table)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "c.parquet"), table)
    assert (tmp_path / "p.html").read_text() == found.to_html()
    assert "Percent by arm, within pairs by donor; the clearest difference, y − x, first." in result.stdout
    first = table["q_value"].argmin()
    assert f"{100 * table['difference'][first]:.3g}" in result.stdout
    # The file of the study knows the comparison, and new samples have their own.
    again = json.loads(commands.run("show", tmp_path / "m", "--json").stdout)
    assert pd.DataFrame(again["comparison"]).equals(table)
    new = run(*files[:4], "--model", tmp_path / "m", *design[:4], "--comparison", "-")
    expected = found.apply_to(files[:4], metadata=about, condition="arm").compare().table
    assert_allclose(pd.read_csv(io.StringIO(new.stdout))["p_value"], expected["p_value"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("sample,arm,batch\na,x,1\nb,y,1\n", "--metadata has no row for c: it needs one for each sample"),
        ("sample,arm,batch\na,x,1\na.csv,x,1\nb,y,1\nc,y,1\n", "--covariate batch must have two values"),
        ("sample,arm,batch\na,x,1\nb,y,2\nc,y,3\n", "--covariate batch has 3 values in 3 samples"),
        ("sample,arm\na,x\nb,y\nc,y\n", "--covariate batch is not a column of the metadata"),
        ("sample,arm,batch\na,x,1\nb,x,2\nc,x,3\n", "--condition arm must have two values"),
        ("name,arm,batch\na,x,1\nb,y,2\nc,z,3\n", "--metadata has no column sample"),
    ],
)
def test_metadata_are_checked_before_the_fit(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, message: str
) -> None:
    (tmp_path / "about.csv").write_text(table)
    monkeypatch.setattr("skmix.samples.composing.start_of", lambda *_, **__: pytest.fail("it began to work"))
    options = ("--metadata", tmp_path / "about.csv", "--condition", "arm", "--covariate", "batch")
    assert message in said(run(*files_of(study), *options, "-o", tmp_path / "m", code=1))
    model = ("--model", study / "model.skmix")
    monkeypatch.setattr("skmix.samples.study.Groups.fit", lambda *_: pytest.fail("it began to work"))
    assert message in said(run(*files_of(study), *model, *options, code=1))


# ---------------------------------------------------------------- files


def test_samples_are_not_written_over(study: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in files_of(study)}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    for given in (tmp_path, tmp_path / "*.csv", tmp_path / "[ab].csv"):
        for place in (["-o", tmp_path / "a.csv"], ["-o", tmp_path / "m", "--table", tmp_path / "b.csv"]):
            assert "it is also an input" in said(run(given, "--kernels", 2, *place, code=2))
    result = run(tmp_path / "a.csv", tmp_path, "-o", tmp_path / "m", code=1)
    assert "is a folder: give one table" in said(result)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_page_or_table_on_standard_output_is_alone_there(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skmix.Study.to_html", lambda _: "<p>page</p>")
    result = run(study / "a.csv", "--model", study / "model.skmix", "--html", "-")
    assert result.stdout == "<p>page</p>"
    assert "Study of 1 sample and 3 populations" in said(result)
    result = run(study / "a.csv", "--model", study / "model.skmix", "--table", "-")
    assert len(result.stdout.splitlines()) == 4
    assert "Study of 1 sample and 3 populations" in said(result)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--kernels", "0"], 2, "'0' is neither 'auto' nor a whole number of at least 1"),
        (["--kernels", "3", "--populations", "4"], 1, "--populations 4 is more than the 3 kernels there are"),
        (["--transform", "arcsinh:-5"], 2, "the cofactor '-5' is not a number above 0"),
        (["--transform", "sqrt"], 2, "'sqrt' is none of arcsinh, arcsinh:COFACTOR, logicle and none"),
        (["--markers", "CD3,CD5"], 1, "CD5"),
        (["--markers", ","], 1, "must be a list of at least one column"),
        (["--jobs", "0"], 2, "must not be 0"),
        (["--compensate"], 1, "--compensate needs FCS files"),
        (["--table", "t.txt"], 2, "the name of a table must end in .csv"),
        (["--table", "-", "--json"], 2, "standard output takes one of"),
        (["--model", "missing.skmix"], 1, "missing.skmix"),
        *(
            (["--model", "m", *option.split()], 2, f"{option.split()[0]} is for a fit, but --model")
            for option in ("-o x", "--kernels 3", "--markers CD3")
        ),
        (
            ["--html", "-", "--json"],
            2,
            "takes one of --table -, --comparison -, --html - and --json",
        ),
        (["--html", "-", "--table", "-"], 2, "standard output takes one of"),
        (["-o", "-"], 2, "- is for the table or the page"),
        (["--comparison", "c.csv"], 2, "--comparison needs --condition"),
        (["--condition", "arm"], 1, "--condition arm needs --metadata with a column of that name"),
        (["--pair", "donor"], 1, "--pair donor needs --condition"),
        (["--metadata", "nothere.csv", "--condition", "arm"], 1, "cannot read nothere.csv: No such file"),
        (["--kernels", "901"], 1, "--kernels 901 is more than the 900 cells there are"),
        (["nothere.csv"], 1, "Error: cannot read nothere.csv: No such file."),
        (["--table", "t.csv", "--html", "./t.csv"], 2, "--table and --html name the same file"),
        (["-o", "t.csv", "--table", "t.csv"], 2, "-o and --table name the same file"),
        (["-"], 2, "samples and models are files"),
    ],
)
def test_wrong_options(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in said(run(*files_of(study), *options, code=code))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- populations that replace each other


def test_populations_that_may_be_one_are_mentioned_and_joined(tmp_path: Path) -> None:
    """CD4 of the cells with CD3 is six deviations higher in one half of the samples."""
    random, files = np.random.default_rng(0), []
    for j in range(4):
        X = np.repeat([[0.0, 0.0, 0.0], [6.0, 6.0 * (j % 2), 0.0]], [300, 150], axis=0)
        files.append(write(tmp_path / f"s{j}.csv", X + random.normal(size=X.shape)))
    place = tmp_path / "study.skmix"
    result = run(*files, "--kernels", 3, "-o", place)
    (warning,) = load(place).describe()["warnings"]
    assert f"Warning: {warning}\n" in result.stdout
    assert f"Warning: {warning}\n" in commands.run("show", place).stdout
    (option,) = re.findall('--join "(.*)" of skmix compose', warning)
    joined = tmp_path / "joined.skmix"
    pair = option.replace(",", " + ")
    for names in (option, "CD3+ CD4+, CD3+ CD4-", "1,2"):
        for options in (["--kernels", 3, "-o", joined], ["--model", place]):
            result = run(*files, *options, "--join", names, "--json")
            outcome = json.loads(result.stdout)
            assert outcome["populations"] == ["CD3⁻", "CD3⁺"]
            assert (outcome["warnings"], len(outcome["joined"]), result.stderr) == ([], 1, "")
    assert load(joined).populations.display_names == ["CD3⁻", "CD3⁺"]
    assert re.search(f"joined +{re.escape(pair)}\n", commands.run("show", joined).stdout)
    # A fit is not lost for a wrong name.
    result = run(*files, "--kernels", 3, "-o", joined, "--join", "1,B cells", code=2)
    assert "There is no population 'B cells'" in said(result)
    assert "with all populations apart" in said(result)
    assert len(load(joined).populations) == 3


# ---------------------------------------------------------------- names, and what is left alone


def test_populations_are_renamed(study: Path, tmp_path: Path) -> None:
    place = tmp_path / "named.skmix"
    first, _, third = load(study / "model.skmix").populations.display_names
    commands.run("rename", study / "model.skmix", f"{first}=B = cells", "1= T cells", "-o", place)
    assert load(place).populations.display_names == ["B = cells", "T cells", third]
    # Without -o, in the file itself.
    commands.run("rename", place, "T cells=T")
    assert load(place).populations.display_names == ["B = cells", "T", third]
    table = run(study / "a.csv", "--model", place, "--table", "-").stdout
    assert pd.read_csv(io.StringIO(table))["population"].tolist() == ["B = cells", "T", third]
    before = place.read_bytes()
    for words, code, message in (
        (["T"], 2, "'T' has no sign ="),
        (["4=x"], 1, "There is no population '4'"),
        ([f"0={third}"], 1, "Two populations would have the same name"),
        (["0=A", " 0 =B"], 2, "'0' is given 2 names"),
    ):
        assert message in said(commands.run("rename", place, *words, code=code))
    assert place.read_bytes() == before


def test_a_study_that_was_not_named_is_not_replaced(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(*files_of(study), "--kernels", 2)
    before = (tmp_path / "study.skmix").read_bytes()
    result = run(*files_of(study), "--kernels", 3, code=2)
    assert "study.skmix exists already. To replace it, say so with -o study.skmix" in said(result)
    assert (tmp_path / "study.skmix").read_bytes() == before
    run(*files_of(study), "--kernels", 3, "-o", "study.skmix")
    assert (tmp_path / "study.skmix").read_bytes() != before


def test_files_that_cannot_be_read_are_left_out(study: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("CD3,CD4,CD8\n1,2,inf\n")
    given = [*files_of(study), bad]
    options = ("--kernels", 3, "-o", tmp_path / "m", "--table", tmp_path / "t.parquet")
    run(*given, *options, code=1)
    result = run(*given, *options, "--skip-unreadable")
    assert "Note: Left out: " in said(result)
    assert "bad.csv" in said(result)
    expected = compose(files_of(study), n_kernels=3).proportions
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), expected)
    assert "bad.csv" in said(run(bad, "--kernels", 3, "--skip-unreadable", "-o", tmp_path / "n", code=1))


def test_hints_name_options_that_there_are(tmp_path: Path) -> None:
    rows = pd.DataFrame(drawn(SHARES["a"], 0), columns=NAMES)
    for column in ([f"cell {row}" for row in range(N)], ["1.234,5"] * N, ["many"] * 40 + ["7"] * (N - 40)):
        rows.assign(other=column).to_csv(tmp_path / "a.csv", index=False)
        message = said(run(tmp_path / "a.csv", "--kernels", 2, "-o", tmp_path / "m", code=1))
        assert "'other'" in message
        assert "--markers" in message
        assert "--drop" not in message
        assert "--categorical" not in message
