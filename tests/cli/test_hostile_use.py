"""Tables and places as strangers have them: each ends in a sentence that says what to do, or does no harm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import run, said, write_example

from skmix import SharedKernelClassifier
from skmix.data import write_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three classes, and a model of it."""
    return write_example(tmp_path_factory.mktemp("strangers"))


def test_a_wrong_choice_brings_up_the_nearest() -> None:
    result = said(run("fit", "t.csv", "--covariance", "ful", code=2))
    assert "Invalid value for '--covariance': 'ful' is not one of 'full', 'tied'," in result
    assert "Did you mean 'full'?" in result
    assert "Did you mean" not in said(run("fit", "t.csv", "--unlabelled", "zebra", code=2))


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "table.csv", "-t", "kind", "-o", "table.csv"],
        ["predict", "model.skmix", "table.csv", "-o", "./table.csv"],
        ["evaluate", "model.skmix", "table.csv", "--html", "model.skmix"],
        ["evaluate", "model.skmix", "table.csv", "--html", "table.csv"],
        ["show", "model.skmix", "--html", "model.skmix"],
        ["export", "model.skmix", "--onnx", "model.skmix"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_is_read_is_never_overwritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "it is also an input. Name another file." in said(run(*arguments, code=2))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("fit {folder}/table.csv -t kind --kernels 2 -o", "model.skmix"),
        ("predict {folder}/model.skmix {folder}/table.csv -o", "labels.csv"),
        ("predict {folder}/model.skmix {folder}/table.csv -o", "labels.parquet"),
        ("evaluate {folder}/model.skmix {folder}/table.csv --html", "page.html"),
    ],
)
def test_a_file_without_a_place_leaves_the_last_one_whole(
    command: str, name: str, folder: Path, tmp_path: Path
) -> None:
    """Files may not be larger than some bytes, as where the disk is full after them."""
    resource = pytest.importorskip("resource", reason="this system does not limit files")
    (tmp_path / name).write_text("the last one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        result = run(*command.format(folder=folder).split(), tmp_path / name, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"Error: cannot write {tmp_path / name}: File too large" in said(result)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "the last one"


# Markup, emoji, escape sequences, separators, quotes, formulas, HTML, a turned direction, what is not ASCII.
HOSTILE = [
    *("a [/b]", "[red]x[/red]", "[unk]", ":smile:", "\x1b]0;title\x07", "line\nbreak"),
    *("<script>alert(1)</script>", "</script>&amp;", "a\tb", "a,b;c", 'say "hi"', "=1+1", "\x9b31m"),
    *("{{ 7 * 7 }}", "%s %d {0}", "$(touch x)", "\u202etxet", "ünïcode 𝄞", "\\n", "-", "--json", "@SUM(A1)"),
]


def shown_as(name: str) -> str:
    """Return a name as a terminal shows it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def test_text_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of classes, features, target and files are verbatim in tables, JSON and pages, and do no harm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    rng = np.random.RandomState(0)
    features, classes = HOSTILE[:8], HOSTILE[:12]
    target, name = "[bold]kind\x1b[2J<b>", "[i]a\x1b<b>:smile:"
    numbers = np.repeat(np.arange(12), 4)[:-1]  # sizes differ, or they would be printed without names
    X = rng.normal(size=(47, 8)) + 9.0 * numbers[:, None]
    y = np.array(classes)[numbers]
    columns = dict(zip(features, X.T, strict=True))
    write_columns(f"{name}.csv", {**columns, target: y})
    model = SharedKernelClassifier(12, covariance_type="diag", random_state=0).fit(X, y)
    model.feature_names_in_, model.target_name_ = np.array(features, dtype=object), target
    model.save(f"{name}.skmix")
    printed = {
        "show": run("show", f"{name}.skmix", "--html", "show.html").output,
        "evaluate": run("evaluate", f"{name}.skmix", f"{name}.csv", "--html", "evaluate.html").output,
        "fit": run("fit", f"{name}.csv", "-t", target, "--kernels", 12, "-o", "m").output,
        "predict": run("predict", f"{name}.skmix", f"{name}.csv", "-o", f"{name}.tsv").output,
        "error": run("predict", f"{name}.skmix", f"{name}.csv", "--keep", "\x1b[2J", code=1).output,
    }
    for text in printed.values():
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "\nbreak" not in text
    assert all(shown_as("line\nbreak") in printed[command] for command in ("show", "evaluate"))
    assert shown_as("a\tb") in printed["fit"]
    lines = printed["evaluate"].splitlines()
    assert all(any(line.startswith(shown_as(label) + " ") for line in lines) for label in classes)
    assert shown_as(target) in printed["show"]
    assert shown_as(f"{name}.tsv") in printed["predict"]
    # JSON and tables have the names themselves.
    described = json.loads(run("show", f"{name}.skmix", "--json").stdout)
    assert described["features"] == features
    assert sorted(each["label"] for each in described["classes"]) == sorted(classes)
    predicted = pd.read_csv(f"{name}.tsv", sep="\t")
    assert set(predicted["label"]) == set(classes)
    assert {f"p_{label}" for label in classes} <= set(predicted)
    for page in (Path("show.html").read_text(), Path("evaluate.html").read_text()):
        assert "<script>alert" not in page
        assert "<b>" not in page
    assert not Path("x").exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_has_nothing_but_data(folder: Path, name: str) -> None:
    arguments = ("predict", folder / "model.skmix", folder / "table.csv", "-o")
    assert run(*arguments, name).stdout_bytes == run(*arguments, "-").stdout_bytes
    # Fitted once: a threshold for outliers takes ten more fits.
    fit = ("fit", folder / "table.csv", "-t", "kind", "--kernels", 2, "--outliers", 0)
    result = run(*fit, "-o", name)
    assert "42 rows" in said(result)
    assert "42 rows" not in result.stdout_bytes.decode("latin-1")
    options = ("--folds", 2, "--html", name, "-o", folder / "folds.skmix")
    result = run(*fit, *options)
    assert result.stdout.strip().endswith("</html>")
    assert "--html -" in said(run("fit", folder / "table.csv", "-t", "kind", *options, "-o", "-", code=2))
