"""From samples to the shares of their populations, on the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import numpy as np
import pandas as pd
import pytest
from commands import said
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV, load, open_rows
from skmix.cli import app
from skmix.cli.compose import FEWEST_GROUPS, _choose, _made, _print, _print_shares, _sample
from skmix.features import Arcsinh, Logicle

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


def test_the_composition_is_that_of_python(study: Path) -> None:
    model = SharedKernelMixture(3, init="k-means", random_state=0)
    model.fit(open_rows(files_of(study))).sort_kernels().merge_kernels()
    table, expected = pd.read_csv(study / "table.csv"), model.composition()
    assert table.columns.tolist() == ["group", "population", "share", "lower", "upper", "rows"]
    assert table["group"].tolist() == np.repeat(list(SHARES), 3).tolist()
    assert_array_equal(table["population"], expected["population"])
    for column in ("share", "lower", "upper", "rows"):
        assert_allclose(table[column], expected[column], rtol=1e-12)
    stored = load(study / "model.skmix")
    assert_array_equal(stored.means_, model.means_)
    assert stored.feature_names_in_.tolist() == NAMES
    assert stored.classes_.tolist() == list(SHARES)


def test_shares_are_those_that_were_drawn(study: Path) -> None:
    table = pd.read_csv(study / "table.csv")
    shares = table.pivot(index="group", columns="population", values="share")
    for name, expected in SHARES.items():
        assert_allclose(np.sort(shares.loc[name]), np.sort(expected), atol=0.01)
    assert table["rows"].unique().tolist() == [N]
    assert (table["lower"] < table["share"]).all()
    assert (table["share"] < table["upper"]).all()


def test_the_page_says_how_it_was_made(study: Path) -> None:
    page = (study / "page.html").read_text()
    assert "<h1>Composition of 3 groups</h1>" in page
    assert "Unusual groups were not judged: this takes at least 5 groups." in page
    for name, value in {
        "files": "3: a.csv, b.csv, c.csv",
        "rows": "900",
        "channels": "CD3, CD4, CD8",
        "transform": "none",
        "kernels": "3, given",
        "prior of the weights": "none",
        "seed": "0",
    }.items():
        assert f'<th scope="row">{name}</th><td class="words breaking">{value}</td>' in page


def test_new_samples_have_the_same_populations(study: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", drawn([0.2, 0.2, 0.6], 9)[:, [2, 0, 1]], ["CD8", "CD3", "CD4"])
    before = (study / "model.skmix").read_bytes()
    result = run(new, study / "a.csv", "--model", study / "model.skmix", "--table", tmp_path / "t.parquet")
    table = pd.read_parquet(tmp_path / "t.parquet")
    model = load(study / "model.skmix")
    expected = model.composition(open_rows([new, study / "a.csv"], columns=NAMES))
    # The order is that of the files here, and of the names there.
    assert table["group"].tolist() == ["new"] * 3 + ["a"] * 3
    for column in ("share", "lower", "upper"):
        assert_allclose(table[column], np.roll(expected[column], 3))
    shares = table.pivot(index="group", columns="population", values="share")
    assert_allclose(np.sort(shares.loc["new"]), [0.2, 0.2, 0.6], atol=0.01)
    fitted = pd.read_csv(study / "table.csv").pivot(index="group", columns="population", values="share")
    assert_allclose(shares.loc["a"], fitted.loc["a"], atol=2e-3)
    assert (study / "model.skmix").read_bytes() == before
    assert "2 groups, 600 rows" in result.stdout


def test_a_column_of_groups(study: Path, tmp_path: Path) -> None:
    parts = [pd.read_csv(path).assign(sample=path.stem) for path in files_of(study)]
    mixed = pd.concat(parts).sample(frac=1.0, random_state=0)
    mixed.to_parquet(tmp_path / "cells.parquet")
    mixed.assign(sample=mixed["sample"].where(mixed.index > 2)).to_parquet(tmp_path / "gaps.parquet")
    run(
        *(tmp_path / "cells.parquet", "--group", "sample", "--kernels", 3),
        *("-o", tmp_path / "m", "--table", tmp_path / "t.csv"),
    )
    one, two = (pd.read_csv(path) for path in (tmp_path / "t.csv", study / "table.csv"))
    assert one["group"].tolist() == two["group"].tolist()
    assert_allclose(one["share"], two["share"], atol=1e-3)
    # Groups that are numbers.
    mixed.assign(sample=mixed["sample"].map({"a": 7, "b": 10, "c": 2})).to_parquet(tmp_path / "n.parquet")
    result = run(
        *(tmp_path / "n.parquet", "--group", "sample", "--kernels", 3, "-o", tmp_path / "m"),
        *("--html", tmp_path / "p.html"),
    )
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines if len(line) == 5 and line[1] == "300"] == ["2", "7", "10"]
    result = run(tmp_path / "gaps.parquet", "--group", "sample", "-o", tmp_path / "m", code=1)
    assert "column 'sample' names no group in 9 of 900 rows" in said(result)
    result = run(*files_of(study), "--group", "sample", code=2)
    assert "--group is for one table, but there are 3 files" in said(result)


def test_the_number_of_kernels_is_chosen(study: Path, tmp_path: Path) -> None:
    printed = json.loads(run(*files_of(study), "-o", tmp_path / "m", "--json").stdout)
    assert printed["n_kernels"] == printed["n_populations"] == 3
    assert printed["search"] == {"criterion": "bic", "n_rows": 900, "lowest": 1, "highest": 10}
    assert [each["group"] for each in printed["groups"]] == list(SHARES)
    assert len(printed["composition"]) == 9


class FakeSearch:
    """A search that ends at 33 kernels, as the real one does, for rows whose BIC is lowest at 45."""

    def __init__(self, n_kernels: Any = "auto", **settings: Any) -> None:
        assert settings["covariance_type"] == "full"
        assert settings["criterion"] in ("bic", "stability")
        self.numbers = range(1, 34) if n_kernels == "auto" else [n_kernels]

    def fit(self, X: np.ndarray) -> FakeSearch:
        best = min(self.numbers, key=lambda n: abs(n - 45))
        self.best_params_, self.best_score_ = {"n_kernels": best}, -abs(best - 45)
        self.cv_results_ = {"params": [{"n_kernels": n} for n in self.numbers]}
        return self


def test_more_kernels_are_tried_while_they_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.cli.compose.SharedKernelMixtureCV", FakeSearch)
    assert _choose(np.zeros((1000, 2)), "bic", random_state=0) == (41, [*range(1, 34), 41, 51])
    assert _choose(np.zeros((1000, 2)), "stability", random_state=0) == (33, [*range(1, 34)])
    # No more than one kernel for three rows of two features.
    assert _choose(np.zeros((105, 2)), "bic", random_state=0) == (35, [*range(1, 34), 35])


def test_hardly_any_rows(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{i}.csv", drawn(SHARES["a"], i)[: i + 1]) for i in range(3)]
    result = run(*files, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "3 groups, 6 rows" in result.stdout
    result = run(files[1], "--kernels", 1, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "1 group, 2 rows" in result.stdout
    result = run(files[0], "-o", tmp_path / "m", code=1)
    assert "1 sample(s)" in said(result)


def recording(seen: list[tuple[str, float]]) -> Any:
    """Return a display of progress that records what it is told."""

    class Recorder:
        @contextmanager
        def steps(self, title: str, total: int | None) -> Iterator[Any]:
            assert title == "reading"
            yield lambda message, share: seen.append((message, share))

    return Recorder()


def test_as_many_rows_of_every_group_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"a": 500, "b": 4, "c": 90}
    rows = {name: np.random.default_rng(i).normal(size=(n, 3)) for i, (name, n) in enumerate(sizes.items())}
    files = [write(tmp_path / f"{name}.csv", own) for name, own in rows.items()]
    monkeypatch.setattr("skmix.cli.compose._SAMPLED", 150)
    for chunk_rows in (1000, 7):
        seen: list[tuple[str, float]] = []
        source: Any = open_rows(files, chunk_rows=chunk_rows)
        found, X, y = _sample(recording(seen), source, seed=0)
        assert found == sizes
        assert {name: int((y == name).sum()) for name in sizes} == {"a": 50, "b": 4, "c": 50}
        for name, own in rows.items():
            known = {tuple(row) for row in own.tolist()}
            taken = [tuple(row) for row in X[y == name].tolist()]
            assert set(taken) <= known
            assert len(set(taken)) == len(taken)
        shown = list(dict.fromkeys(message for message, _ in seen))
        assert shown == (["c (3 of 3)"] if chunk_rows > 594 else ["a (1 of 3)", "b (2 of 3)", "c (3 of 3)"])
        assert [share for _, share in seen] == sorted(share for _, share in seen)
        assert seen[-1][1] == 1.0


def test_rows_sampled_from_a_column_of_groups_have_their_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    # The first feature says which group a row is of.
    frame = pd.DataFrame({"CD3": np.repeat([1.0, 2.0, 3.0], [40, 30, 20]), "CD4": random.normal(size=90)})
    frame["sample"] = frame["CD3"].map({1.0: "z", 2.0: "y", 3.0: "x"})
    frame.sample(frac=1.0, random_state=0).to_csv(tmp_path / "cells.csv", index=False)
    monkeypatch.setattr("skmix.cli.compose._SAMPLED", 45)
    source: Any = open_rows([tmp_path / "cells.csv"], label="sample", chunk_rows=16)
    found, X, y = _sample(recording([]), source, seed=0)
    assert found == {"x": 20, "y": 30, "z": 40}
    assert {name: int((y == name).sum()) for name in found} == {"x": 15, "y": 15, "z": 15}
    assert [{1.0: "z", 2.0: "y", 3.0: "x"}[value] for value in X[:, 0]] == y.tolist()
    assert len({*X[:, 1]}) == 45
    other = _sample(recording([]), source, seed=1)[1]
    assert not np.array_equal(other, X)


def test_fcs_files_are_transformed_and_have_no_time(tmp_path: Path) -> None:
    names, markers = ["B530-A", "R660-A", "TIME"], ["CD3", "", ""]
    rows = {name: np.abs(drawn(own, 3)) * 100.0 for name, own in SHARES.items()}
    files = [write(tmp_path / f"{name}.fcs", own, names, markers) for name, own in rows.items()]
    result = run(*files, "--kernels", 3, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "the channel Time is left out" in said(result)
    assert "transform arcsinh:150" in result.stdout
    model = load(tmp_path / "m")
    assert model.feature_names_in_.tolist() == ["B530-A", "R660-A"]
    scaled = np.arcsinh(np.concatenate(list(rows.values()))[:, :2] / 150.0)
    assert_allclose(model.weights_ @ model.class_prior_ @ model.means_, scaled.mean(axis=0), rtol=1e-2)
    page = (tmp_path / "p.html").read_text()
    assert "CD3 (B530-A), R660-A" in page
    assert "The channel Time is left out." in page
    # New files are read in the same way.
    run(files[0], "--model", tmp_path / "m", "--table", tmp_path / "t.csv")
    own = model.composition(files[:1])
    assert_allclose(pd.read_csv(tmp_path / "t.csv")["share"], own["share"])
    result = run(files[0], "--model", tmp_path / "m", "--transform", "logicle", code=2)
    assert "--transform differs from the fit" in said(result)
    run(*files, "--kernels", 2, "--channels", "CD3", "--transform", "logicle", "-o", tmp_path / "n")
    chosen = load(tmp_path / "n")
    assert chosen.feature_names_in_.tolist() == ["CD3"]
    logicle = Logicle().fit_transform(np.concatenate(list(rows.values()))[:, :1])
    assert_allclose(chosen.weights_ @ chosen.class_prior_ @ chosen.means_, logicle.mean(axis=0), rtol=1e-2)


def test_predictions_are_on_the_scale_of_the_fit(tmp_path: Path) -> None:
    rows = {name: 100.0 * np.abs(drawn(own, 3)) for name, own in SHARES.items()}
    files = [write(tmp_path / f"{name}.fcs", own) for name, own in rows.items()]
    run(*files, "--kernels", 4, "--populations", 3, "-o", tmp_path / "m")
    arguments = ["predict", str(tmp_path / "m"), str(files[0]), "-o", str(tmp_path / "p.csv")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    table, model = pd.read_csv(tmp_path / "p.csv"), load(tmp_path / "m")
    source = open_rows(files[:1], transform=Arcsinh(150.0))
    assert_array_equal(table["kernel"], model.predict(source))
    assert_array_equal(table["population"], model.predict(source, populations=True))
    assert_allclose(table["log_density"], model.score_samples(source.unlabelled()), atol=1e-4)
    # Of rows in memory, nobody knows what was done to them.
    del model.preparation_
    model.save(tmp_path / "m")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "does not say on which scale it was fitted" in said(result)


def test_a_model_of_python_remembers_its_scale(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.fcs", 100.0 * np.abs(drawn(SHARES[name], 3))) for name in "ab"]
    mixture = SharedKernelMixture(3, init="k-means", random_state=0, tol=0.1)
    mixture.metadata_ = {"study": "mine"}
    for transform, scale in (
        (Arcsinh(150.0), "arcsinh:150"),
        (Arcsinh(0.1), "arcsinh:0.1"),
        (Logicle(), "logicle"),
        (None, "none"),
        (Arcsinh([150.0, 150.0, 5.0]), "arcsinh (cofactor [150.0, 150.0, 5.0])"),
    ):
        rows = open_rows(files, transform=transform)
        mixture.fit(rows).save(tmp_path / "m")
        assert load(tmp_path / "m").preparation_ == mixture.preparation_
        result = run(*files, "--model", tmp_path / "m", "--table", tmp_path / "t.csv")
        assert f"transform {scale}" in result.stdout
        assert_allclose(pd.read_csv(tmp_path / "t.csv")["share"], mixture.composition(rows)["share"])
    mixture.fit(open_rows(files, transform=StandardScaler().fit(drawn(SHARES["a"], 3)))).save(tmp_path / "m")
    assert load(tmp_path / "m").preparation_ == {"compensate": False, "transform": "other"}
    result = run(*files, "--model", tmp_path / "m", code=1)
    assert "a transformer that it does not keep" in said(result)
    # Of rows in memory, nobody knows what was done to them.
    mixture.fit(pd.DataFrame(np.arcsinh(drawn(SHARES["a"], 3)), columns=NAMES)).save(tmp_path / "m")
    assert mixture.metadata_ == {"study": "mine"}
    assert not hasattr(mixture, "preparation_")
    result = run(*files, "--model", tmp_path / "m", code=1)
    assert "does not say on which scale it was fitted: choose that scale by --transform." in said(result)
    run(*files, "--model", tmp_path / "m", "--transform", "arcsinh:150")


def test_a_real_sample(tmp_path: Path) -> None:
    pytest.importorskip("flowio", reason="flowio is not installed")
    sample = Path(__file__).parents[1] / "data" / "0877408774.B08.fcs"
    options = ("--kernels", 4, "--channels", "FSC-H,SSC-H,FL1-H", "--table", tmp_path / "t.csv")
    result = run(sample, *options, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "1 group, 10000 rows, 3 features (FSC-H, SSC-H, FL1-H)" in result.stdout
    table = pd.read_csv(tmp_path / "t.csv")
    assert table["group"].unique().tolist() == ["0877408774.B08"]
    assert table["share"].sum() == pytest.approx(1.0)
    assert "<h1>Composition of 1 group</h1>" in (tmp_path / "p.html").read_text()


def test_compensation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flowio = pytest.importorskip("flowio", reason="flowio is not installed")
    true = np.abs(drawn(SHARES["a"], 0))[:, :2] * 100.0
    spilled = true @ np.array([[1.0, 0.2], [0.05, 1.0]])
    with open(tmp_path / "a.fcs", "wb") as file:
        flowio.create_fcs(
            file, spilled.ravel().tolist(), ["B", "R"], None, {"SPILLOVER": "2,B,R,1,0.2,0.05,1"}
        )
    run(tmp_path / "a.fcs", "--kernels", 2, "--transform", "none", "--compensate", "-o", tmp_path / "m")
    model = load(tmp_path / "m")
    assert_allclose(model.weights_[:, 0] @ model.means_, true.mean(axis=0), rtol=1e-2)
    # New files are compensated as those of the fit were.
    run(tmp_path / "a.fcs", "--model", tmp_path / "m", "--table", tmp_path / "t.csv")
    own = model.composition([tmp_path / "a.fcs"])
    assert_allclose(pd.read_csv(tmp_path / "t.csv")["share"], own["share"])
    result = run(tmp_path / "a.fcs", "--model", tmp_path / "m", "--no-compensate", code=2)
    assert "--compensate differs from the fit" in said(result)
    seen: dict[str, Any] = {}
    monkeypatch.setattr("skmix.report.composition_page", lambda *_, **page: seen.update(page) or "")
    result = run(tmp_path / "a.fcs", "--kernels", 2, "-o", tmp_path / "n", "--html", tmp_path / "p.html")
    assert "files are compensated by their spill-over matrices; --no-compensate leaves" in said(result)
    assert "transform arcsinh:150, compensated for spill-over" in result.stdout
    assert seen["notes"] == ["Files were compensated by their spill-over matrices."]
    assert seen["scale"] == "arcsinh:150"
    assert load(tmp_path / "n").preparation_["compensate"]
    result = run(tmp_path / "a.fcs", "--kernels", 2, "--no-compensate", "-o", tmp_path / "n")
    assert "spill" not in said(result) + result.stdout
    assert not load(tmp_path / "n").preparation_["compensate"]


def test_a_column_of_groups_that_was_not_named(tmp_path: Path) -> None:
    pd.DataFrame({"sample": ["a", "b"], "CD3": [0.0, 1.0]}).to_csv(tmp_path / "cells.csv", index=False)
    result = run(tmp_path / "cells.csv", "-o", tmp_path / "m", code=1)
    assert "column 'sample' holds text" in said(result)
    assert "with --channels, or the column of the groups with --group." in said(result)


def test_bad_files_are_named_or_skipped(study: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("CD3,CD4,CD8\n")
    bare = write(tmp_path / "bare.csv", np.full((20, 3), np.nan))
    other = write(tmp_path / "other.csv", drawn(SHARES["a"], 0), ["CD3", "CD4", "CD19"])
    given = (*files_of(study), tmp_path / "empty.csv", bare, other, "--kernels", 3)
    result = run(*given, "-o", tmp_path / "m", code=1)
    assert "empty.csv: it has column names but no rows" in said(result)
    assert not (tmp_path / "m").exists()
    result = run(*given, "-o", tmp_path / "m", "--skip-bad-files", "--html", tmp_path / "p.html")
    assert "Skipped 3 of 6 files" in said(result)
    assert "other.csv has no column 'CD8'" in said(result)
    assert "Choose the features with --channels." in said(result)
    assert "3 groups, 900 rows" in result.stdout
    page = (tmp_path / "p.html").read_text()
    assert "Skipped 3 of 6 files" in page
    assert str(tmp_path) not in page


def test_an_unusual_group_is_marked(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shares = {f"s{i}": random.dirichlet([60.0, 30.0, 10.0]) for i in range(9)} | {"odd": [0.05, 0.05, 0.9]}
    files = [write(tmp_path / f"{name}.csv", drawn(own, i)) for i, (name, own) in enumerate(shares.items())]
    result = run(*files, "--kernels", 3, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "* unusual: odd\n" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines() if " * " in line] == ["odd"]
    page = (tmp_path / "p.html").read_text()
    assert page.count('<span class="unseen"> (unusual)</span>') == 1
    # New samples are compared with those of the model.
    again = run(files[-1], files[0], "--model", tmp_path / "m", "--html", tmp_path / "q.html")
    assert "* unusual: odd\n" in again.stdout
    assert (tmp_path / "q.html").read_text().count('<span class="unseen"> (unusual)</span>') == 1


def test_of_a_model_of_few_groups_nothing_is_unusual(study: Path, tmp_path: Path) -> None:
    write(tmp_path / "odd.csv", drawn([0.0, 0.0, 1.0], 0))
    result = run(tmp_path / "odd.csv", "--model", study / "model.skmix", "--html", tmp_path / "p.html")
    assert "* unusual" not in result.stdout
    assert "unusual groups were not judged: this takes at least 5 groups in the model\n" in result.stdout
    assert '<section id="unusual">' not in (tmp_path / "p.html").read_text()


def test_a_model_with_a_background_and_t_kernels(study: Path, tmp_path: Path) -> None:
    source = open_rows([*files_of(study), study / "a.csv"][:3])
    model = SharedKernelMixture(3, init="k-means", tail=("t", 5.0), random_state=0)
    model.fit(source).sort_kernels().merge_kernels(n_populations=2).save(tmp_path / "m")
    far = np.random.default_rng(0).uniform(-8.0, 20.0, size=(100, 3))
    new = write(tmp_path / "new.csv", np.concatenate([drawn(SHARES["a"], 0), far]))
    options = ("--table", tmp_path / "t.parquet", "--html", tmp_path / "p.html")
    result = run(new, "--model", tmp_path / "m", *options)
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert table["population"].tolist() == ["0", "1", "background"]
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["share"].iloc[-1] == pytest.approx(0.25, abs=0.05)
    assert "background" in result.stdout
    page = (tmp_path / "p.html").read_text()
    assert '<th scope="col" aria-label="background">' in page
    assert "A kernel is a Student’s t distribution" in page
    assert '<td class="words breaking">Student’s t, 5 degrees of freedom</td>' in page


def test_a_folder_and_a_pattern(study: Path, tmp_path: Path) -> None:
    for path in files_of(study):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / path.name).write_bytes(path.read_bytes())
    for given in (tmp_path / "in", tmp_path / "in" / "*.csv"):
        result = run(given, "--kernels", 3, "--table", "-", "-o", tmp_path / "m")
        table = pd.read_csv(io.StringIO(result.stdout))
        assert table["group"].unique().tolist() == list(SHARES)
        assert "3 groups, 900 rows" in said(result)


def test_samples_are_not_written_over(study: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in files_of(study)}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    for given in (tmp_path, tmp_path / "*.csv", tmp_path / "[ab].csv"):
        for place in (["-o", tmp_path / "a.csv"], ["-o", tmp_path / "m", "--table", tmp_path / "b.csv"]):
            assert "it is also an input" in said(run(given, "--kernels", 2, *place, code=2))
    result = run(tmp_path / "a.csv", tmp_path, "-o", tmp_path / "m", code=1)
    assert "is a folder, which cannot be mixed with other files" in said(result)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_groups_stay_in_the_order_of_the_files(study: Path, tmp_path: Path) -> None:
    given = [study / f"{name}.csv" for name in "cab"]
    result = run(*given, "--kernels", 3, "-o", tmp_path / "m", "--table", tmp_path / "t.csv")
    table, before = pd.read_csv(tmp_path / "t.csv"), pd.read_csv(study / "table.csv")
    assert table["group"].unique().tolist() == ["c", "a", "b"]
    assert table["population"].tolist() == [0, 1, 2] * 3
    both = table.merge(before, on=["group", "population"])
    assert_allclose(both["share_x"], both["share_y"], atol=1e-3)
    shown = [line.split() for line in result.stdout.splitlines() if line[:2] in ("a ", "b ", "c ")]
    assert [line[0] for line in shown] == ["c", "a", "b"]
    expected = [f"{100 * share:.1f}" for share in table["share"]]
    assert [share for line in shown for share in line[2:]] == expected


def test_settings_reach_the_model(study: Path, tmp_path: Path) -> None:
    run(
        *(*files_of(study), "--kernels", 4, "--populations", 2, "--prior", "hierarchical"),
        *("--seed", 7, "--jobs", 1),
        *("--channels", "CD4, CD3", "--transform", "arcsinh:2", "--device", "cpu", "-o", tmp_path / "m"),
    )
    model = load(tmp_path / "m")
    assert model.populations_.max() == 1
    expected: dict[str, Any] = {"n_kernels": 4, "random_state": 7, "n_jobs": 1, "device": "cpu"}
    expected |= {"weight_prior": "hierarchical"}
    assert {name: getattr(model, name) for name in expected} == expected
    assert model.feature_names_in_.tolist() == ["CD4", "CD3"]
    assert model.preparation_ == {"transform": "arcsinh:2"}


@pytest.mark.parametrize(
    ("options", "of_search"),
    [
        ([], {}),
        (["--criterion", "stability"], {"criterion": "stability"}),
        (["--criterion", "bic", "--seed", 4], {"random_state": 4}),
        (["--jobs", 2], {"n_jobs": 2}),
    ],
)
def test_a_search_has_what_is_given(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[Any],
    of_search: dict[str, Any],
) -> None:
    seen: list[Any] = []

    def fit(search: Any, X: Any) -> None:
        seen.extend([search, X])
        raise ValueError("enough")

    monkeypatch.setattr(SharedKernelMixtureCV, "fit", fit)
    assert said(run(*files_of(study), *options, "-o", tmp_path / "m", code=1)) == "Error: enough"
    expected = {"covariance_type": "full", "criterion": "bic", "n_jobs": None, "random_state": 0} | of_search
    assert repr(seen[0].get_params()) == repr(SharedKernelMixtureCV(**expected).get_params())
    assert_allclose(seen[1], np.concatenate([pd.read_csv(path) for path in files_of(study)]))


def test_everything_as_json(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some rows are drawn on the page; all are counted.
    monkeypatch.setattr("skmix.cli.compose._SAMPLED", 30)
    seen: dict[str, Any] = {}

    def page(model: Any, composition: Any, **options: Any) -> str:
        seen.update(options)
        return "page"

    monkeypatch.setattr("skmix.report.composition_page", page)
    places = {"-o": tmp_path / "m", "--table": tmp_path / "t.csv", "--html": tmp_path / "p.html"}
    given = [each for option in places.items() for each in option]
    printed = json.loads(
        run(*files_of(study), "--kernels", 3, "--populations", 2, "--seed", 2, *given, "--json").stdout
    )
    model = load(tmp_path / "m")
    composition = printed.pop("composition")
    pd.testing.assert_frame_equal(pd.DataFrame(composition), pd.read_csv(tmp_path / "t.csv"), rtol=1e-12)
    assert printed == {
        "model": str(tmp_path / "m"),
        "written": [str(place) for place in places.values()],
        "n_rows": 3 * N,
        "features": NAMES,
        "compensate": False,
        "transform": "none",
        "n_kernels": 3,
        "n_populations": 2,
        "search": None,
        "converged": True,
        "n_iter": model.n_iter_,
        "seed": 2,
        "groups": [{"group": name, "rows": N, "unusual": None} for name in SHARES],
    }
    assert model.random_state == 2
    assert not hasattr(model, "preparation_")
    assert seen["title"] == "Composition of 3 groups"
    assert (len(seen["X"]), seen["names"], seen["scale"], seen["notes"]) == (30, NAMES, "none", [])
    assert {name: int((seen["groups"] == name).sum()) for name in SHARES} == dict.fromkeys(SHARES, 10)
    assert seen["made"] == [
        ("files", "3: a.csv, b.csv, c.csv"),
        ("rows", "900"),
        ("groups by", "file"),
        ("channels", "CD3, CD4, CD8"),
        ("compensated for spill-over", "no"),
        ("transform", "none"),
        ("kernels", "3, given"),
        ("prior of the weights", "none"),
        ("passes of EM", str(model.n_iter_)),
        ("seed", "2"),
    ]
    # A model that is used again stays as it is, and writes no file of its own.
    given = [*files_of(study)[:2], "--model", tmp_path / "m", "--html", tmp_path / "q.html"]
    printed = json.loads(run(*given, "--json", "--jobs", 2, "--device", "cpu").stdout)
    assert printed["model"] == str(tmp_path / "m")
    assert printed["written"] == [str(tmp_path / "q.html")]
    assert printed["n_rows"] == 2 * N
    assert seen["made"][-1] == ("model", "m; its kernels stayed as they were")
    assert [name for name, _ in seen["made"]][1:-1] == [
        *("rows", "groups by", "channels", "compensated for spill-over", "transform")
    ]


def test_a_model_that_is_used_again_has_threads_and_device(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def composition(model: Any, rows: Any) -> Any:
        seen.update(model.get_params())
        raise ValueError("enough")

    monkeypatch.setattr(SharedKernelMixture, "composition", composition)
    run(study / "a.csv", "--model", study / "model.skmix", "--jobs", 2, "--device", "cpu", code=1)
    assert (seen["n_jobs"], seen["device"]) == (2, "cpu")


def test_a_page_on_standard_output_is_alone_there(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.report.composition_page", lambda *_, **__: "<p>page</p>")
    result = run(study / "a.csv", "--model", study / "model.skmix", "--html", "-")
    assert result.stdout == "<p>page</p>"
    assert "1 group, 300 rows" in said(result)


def test_everything_that_is_said(study: Path) -> None:
    model = load(study / "model.skmix")
    shares = model.composition().pivot(index="group", columns="population", values="share")
    text = [line.split() for line in (study / "said.txt").read_text().splitlines() if line.strip(" ─")]
    written = ", ".join(str(study / name) for name in ("model.skmix", "table.csv", "page.html"))
    assert text == [
        ["3", "groups,", "900", "rows,", "3", "features", "(CD3,", "CD4,", "CD8)"],
        ["transform", "none"],
        ["3", "kernels,", "merged", "into", "3", "populations"],
        f"converged in {model.n_iter_} passes".split(),
        ["group", "rows", "0", "1", "2"],
        *([name, "300", *(f"{100 * share:.1f}" for share in shares.loc[name])] for name in SHARES),
        ["Percent", "of", "each", "group", "by", "population."],
        f"unusual groups were not judged: this takes at least {FEWEST_GROUPS} groups in the model".split(),
        f"written into {written}".split(),
    ]


def test_of_many_groups_and_populations_the_first_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shares = np.arange(22 * 9).reshape(22, 9) / 1000.0
    groups = [{"group": f"g{i}", "rows": 1000 + i, "unusual": i == 1} for i in range(22)]
    composition = pd.DataFrame({"population": np.tile(np.arange(9), 22), "share": shares.ravel()})
    _print_shares(groups, composition, "population")
    *lines, last = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    # Of 40 columns, 4 + 1 + 5 + 3 are for names and rows; six for each share.
    assert lines[0] == ["group", "rows", "0", "1", "2", "3"]
    assert lines[1] == ["g0", "1000", "0.0", "0.1", "0.2", "0.3"]
    assert lines[2] == ["g1", "*", "1001", "0.9", "1.0", "1.1", "1.2"]
    assert len(lines) == 21
    assert (
        " ".join(last)
        == "Percent of each group by population; 2 more groups and 5 more populations: --table has all."
    )


def test_a_composition_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    outcome: dict[str, Any] = {
        "groups": [
            {"group": "a", "rows": 1000, "unusual": True},
            {"group": "b", "rows": 2, "unusual": False},
        ],
        "features": ["CD3"],
        "n_rows": 1002,
        "transform": "logicle",
        "compensate": True,
        "n_kernels": 5,
        "search": {"criterion": "bic", "lowest": 1, "highest": 9, "n_rows": 1000},
        "n_populations": 1,
        "model": "m",
        "written": ["m", "-"],
        "converged": False,
        "n_iter": 200,
        "seed": 3,
    }
    composition = pd.DataFrame({"kernel": [0, 1] * 2, "share": [0.25, 0.75, 0.5, 0.5]})
    _print(outcome, composition, "kernel", err=False)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [" ".join(line.split()) for line in printed.out.splitlines() if line.strip(" ─")] == [
        "2 groups, 1002 rows, 1 feature (CD3)",
        "transform logicle, compensated for spill-over",
        "5 kernels (chosen by BIC from 1 to 9 on 1,000 rows), merged into 1 population",
        "did not converge in 200 passes",
        "group rows k0 k1",
        "a * 1000 25.0 75.0",
        "b 2 50.0 50.0",
        "Percent of each group by kernel.",
        "* unusual: a",
        "written into m",
    ]
    # Beside data on standard output; and a model that was there before does not say how it was fitted.
    changed = outcome | {
        "search": None,
        "n_populations": None,
        "written": ["-"],
        "groups": outcome["groups"][1:],
    }
    _print(changed, composition, "kernel", err=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "1 group, 1002 rows, 1 feature (CD3)",
        "transform logicle, compensated for spill-over",
        "5 kernels",
    ]
    source = SimpleNamespace(parts={"x": SimpleNamespace(name="deep/x.csv")}, grouped=False, label="sample")
    samples: Any = SimpleNamespace(source=source, X=np.zeros((2, 3)), settings={"labels": None})
    assert _made(
        outcome | {"search": outcome["search"] | {"criterion": "stability"}}, samples, "hierarchical"
    ) == [
        ("files", "1: x.csv"),
        ("rows", "1,002"),
        ("groups by", "column sample"),
        ("channels", "3 columns without names"),
        ("compensated for spill-over", "yes"),
        ("transform", "logicle"),
        ("kernels", "5, chosen by stability from 1 to 9 on 1,000 rows"),
        ("prior of the weights", "hierarchical"),
        ("passes of EM", "200, not converged"),
        ("seed", "3"),
    ]


@pytest.mark.parametrize(
    "options",
    ["-o x", "--kernels 3", "--populations 2", "--criterion bic", "--channels CD3", "--prior hierarchical"],
)
def test_options_of_a_fit_are_refused_with_a_model(study: Path, options: str) -> None:
    result = run(study / "a.csv", "--model", study / "model.skmix", *options.split(), code=2)
    assert f"Error: {options.split()[0]} is for a fit, but --model has been fitted already." in said(result)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--kernels", "0"], 2, "'0' is neither 'auto' nor a whole number of at least 1"),
        (["--kernels", "3", "--populations", "4"], 1, "--populations 4 is more than the 3 kernels there are"),
        (["--transform", "arcsinh:-5"], 2, "the cofactor '-5' is not a number above 0"),
        (["--transform", "sqrt"], 2, "'sqrt' is none of arcsinh, arcsinh:COFACTOR, logicle and none"),
        (["--channels", "CD3,CD5"], 1, "CD5"),
        (["--channels", ","], 2, "',' names no channel"),
        (["--jobs", "0"], 2, "must not be 0"),
        (["--compensate"], 1, "--compensate needs FCS files"),
        (["--table", "t.txt"], 2, "the name of a table must end in .csv"),
        (["--table", "-", "--json"], 2, "standard output takes one of"),
        (["--model", "missing.skmix"], 1, "missing.skmix"),
        (["--model", "m", "--prior", "none"], 2, "--prior is for a fit, but --model has been fitted"),
        (["--kernels", "3", "--criterion", "bic"], 2, "but --kernels gives it"),
        (["--html", "-", "--json"], 2, "standard output takes one of --table -, --html - and --json"),
        (["--html", "-", "--table", "-"], 2, "standard output takes one of"),
        (["-o", "-"], 2, "- is for the table or the page"),
        (["--kernels", "901"], 1, "--kernels 901 is more than the 900 rows there are"),
        (["nothere.csv"], 1, "Error: There is no file or folder nothere.csv."),
        (["--table", "t.csv", "--html", "./t.csv"], 2, "--table and --html name the same file"),
        (["-o", "t.csv", "--table", "t.csv"], 2, "-o and --table name the same file"),
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


def test_wrong_places_and_models(study: Path, tmp_path: Path) -> None:
    X = drawn(SHARES["a"], 0)
    SharedKernelClassifier(2, random_state=0).fit(X, np.arange(len(X)) % 2).save(tmp_path / "c")
    result = run(study / "a.csv", "--model", tmp_path / "c", code=1)
    assert "has a SharedKernelClassifier; skmix compose needs" in said(result)
    result = run(study / "a.csv", "--model", study / "model.skmix", "--kernels", 3, code=2)
    assert "--kernels is for a fit, but --model has been fitted" in said(result)
    result = run(study / "a.csv", "--table", study / "a.csv", code=2)
    assert "it is also an input" in said(result)
    result = run("-", code=2)
    assert "samples and models are files" in said(result)
    result = run(tmp_path / "none.csv", "-o", tmp_path / "m", code=1)
    assert "none.csv" in said(result)


def test_control_characters_and_markup_in_names(tmp_path: Path) -> None:
    hostile = "a<img src=x>[red]\x1b"
    files = [write(tmp_path / f"{name}.csv", drawn(SHARES["a"], 0)) for name in (hostile, "b")]
    result = run(*files, "--kernels", 3, "-o", tmp_path / "m", "--html", tmp_path / "p.html")
    assert "a<img src=x>[red]\\x1b" in result.stdout
    assert "<img" not in (tmp_path / "p.html").read_text()
