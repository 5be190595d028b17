"""From a table to a model, and from a model to predictions, on the command line."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run, said
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from typer.testing import CliRunner

import skmix
from skmix import SharedKernelClassifier
from skmix.cli import app

X, CODES = load_iris(return_X_y=True)
NAMES = ["sepal", "sepal width", "petal length", "width"]
SPECIES = np.array(["setosa", "versicolor", "virginica"])[CODES]


def lines_of(names: list[str], rows: np.ndarray, **beside: Any) -> str:
    head = ",".join([*names, *beside])
    body = (
        ",".join(map(str, [*row, *rest])) for row, *rest in zip(rows.tolist(), *beside.values(), strict=True)
    )
    return "\n".join([head, *body]) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and a model of its even rows."""
    place = tmp_path_factory.mktemp("models")
    (place / "iris.csv").write_text(lines_of(NAMES, X, species=SPECIES))
    (place / "even.csv").write_text(lines_of(NAMES, X[::2], species=SPECIES[::2]))
    (place / "odd.csv").write_text(lines_of(NAMES, X[1::2], species=SPECIES[1::2]))
    run("fit", place / "even.csv", "--target", "species", "--kernels", 3, "-o", place / "iris.skmix")
    return place


@pytest.mark.parametrize(("outlier_label", "search"), [(None, False), ("strange", False), ("strange", True)])
def test_scores_are_those_of_python(
    folder: Path, tmp_path: Path, outlier_label: str | None, search: bool, two_folds: None
) -> None:
    path, table = tmp_path / "m.skmix", folder / "odd.csv"
    arguments = () if search else ("--kernels", 3)
    fit = ("fit", folder / "even.csv", "--target", "species", "--outliers", 0.3, "-o", path, *arguments)
    assert (json.loads(run(*fit, "--json").stdout)["sharing"] in ("own", "shared")) == search
    model, rows, labels = skmix.load(path), X[1::2], SPECIES[1::2]
    # Nobody has asked for a label of outliers yet.
    assert set(model.predict(pd.DataFrame(X, columns=NAMES))) == set(SPECIES)
    if outlier_label is not None:
        (model.classifier_ if search else model).set_params(outlier_label=outlier_label)
        model.save(path)
    frame = pd.DataFrame(rows, columns=NAMES)
    found = json.loads(run("evaluate", path, table, "--json").stdout)
    assert found["outliers"] > 0.0
    assert found["accuracy"] == pytest.approx(model.score(frame, labels), rel=1e-12)
    predicted = pd.read_csv(io.StringIO(run("predict", path, table).stdout))
    assert_array_equal(predicted["label"], model.predict(frame))
    marked = predicted["outlier"].to_numpy() == 1
    assert_array_equal(predicted["label"] == "strange", marked if outlier_label else np.zeros(75, dtype=bool))


def test_predictions_are_matched_by_name(folder: Path) -> None:
    """Columns in another order, with others between them, compressed on standard input."""
    frame = pd.read_csv(folder / "odd.csv")[["width", "species", *NAMES[:3]]]
    frame.insert(0, "flower", [f"no {i}" for i in range(len(frame))])
    content = frame.to_csv(index=False, sep="\t").encode()
    result = run("predict", folder / "iris.skmix", "-", "--keep", "flower", given=gzip.compress(content))
    assert result.stderr == ""
    read = pd.read_csv(io.StringIO(result.stdout))
    assert list(read)[:2] == ["flower", "label"]
    assert_array_equal(read["flower"], frame["flower"])
    own = pd.DataFrame(X[1::2], columns=NAMES)
    # Older pandas reads to the last digit but one.
    expected = skmix.load(folder / "iris.skmix").score_samples(own)
    assert_allclose(read["log_density"], expected, rtol=1e-14)


def test_show(folder: Path) -> None:
    printed = json.loads(run("show", folder / "iris.skmix", "--json").stdout)
    model = skmix.load(folder / "iris.skmix")
    assert printed["feature_sets"][0]["weights"] == model.weights_.tolist()
    assert printed["settings"]["n_kernels"] == 3
    lines = re.findall(r"^(k\d+) +[\d.]+ +([\d.]+)", run("show", folder / "iris.skmix").stdout, re.M)
    # Those of most rows first.
    order = np.argsort(-model.weights_ @ model.class_prior_)
    assert lines == [(f"k{k}", f"{model.weights_[k, 0]:.3f}") for k in order]


def test_an_exported_graph_is_that_of_python(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    lines = [f"input X: {', '.join(NAMES)}", "outputs: label, probabilities, log_density"]
    graph = skmix.load(folder / "iris.skmix").to_onnx().SerializeToString(deterministic=True)
    out = tmp_path / "m.onnx"
    printed = run("export", folder / "iris.skmix", "--onnx", out).stdout
    assert printed.splitlines() == [*lines, f"written into {out}"]
    piped = run("export", folder / "iris.skmix", "--onnx", "-")
    assert out.read_bytes() == piped.stdout_bytes == graph
    assert piped.stderr.splitlines() == lines


@pytest.mark.usefixtures("two_folds")
def test_without_a_target_there_is_a_mixture(folder: Path, tmp_path: Path) -> None:
    """Several candidates are averaged; the threshold of outliers is that of the average."""
    path = tmp_path / "m"
    drop = [part for name in ("species", *NAMES[:2]) for part in ("--drop", name)]
    fit = ("fit", folder / "even.csv", *drop, "--covariance", "full", "--outliers", 0.1, "-o", path)
    printed = json.loads(run(*fit, "--json").stdout)
    model = skmix.load(path)
    assert printed["n_members"] == len(model.mixtures_) > 1
    out = run("predict", path, folder / "even.csv").stdout.splitlines()
    assert out[0].endswith(",log_density,outlier")
    flags = [line.endswith(",1") for line in out[1:]]
    densities = model.score_samples(pd.DataFrame(X[::2, 2:], columns=NAMES[2:]))
    assert_array_equal(flags, densities < model.threshold_)
    # Fewer than a tenth of the training rows: the threshold comes from held-out rows.
    assert 0 < sum(flags) < 8
    assert "weight" in run("show", path).stdout
    assert "not a classifier" in run("evaluate", path, folder / "iris.csv", code=1).stderr


def test_a_model_of_arrays_takes_columns_in_order(folder: Path, tmp_path: Path) -> None:
    SharedKernelClassifier(random_state=0).fit(X, CODES).save(tmp_path / "m")
    result = run("predict", tmp_path / "m", folder / "iris.csv", "--drop", "species")
    expected = skmix.load(tmp_path / "m").predict_proba(X)
    assert_allclose(pd.read_csv(io.StringIO(result.stdout)).iloc[:, 1:4], expected, rtol=1e-12)
    assert "expecting 4 features" in run("predict", tmp_path / "m", folder / "iris.csv", code=1).stderr
    result = run(
        "predict", tmp_path / "m", folder / "iris.csv", "--drop", "species", "--drop", NAMES[0], code=1
    )
    assert "SharedKernelClassifier is expecting 4 features" in result.stderr
    assert "--target COLUMN" in run("evaluate", tmp_path / "m", folder / "iris.csv", code=2).stderr


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("fit iris.csv -t kind", 1, "iris.csv has no column 'kind'; there are sepal, sepal width"),
        ("fit iris.csv -t width --drop species", 1, "column 'width' has the label 0.1, which is not a whole"),
        ("fit iris.csv -t species --categorical size", 1, "has no column 'size'"),
        ("fit iris.csv -t species --weight width --drop width", 1, "cannot be both used and left out"),
        ("fit iris.csv --weight species", 1, "is of type string; weights must be numbers"),
        ("fit none.csv", 1, "cannot read none.csv: No such file"),
        ("fit .", 1, "is a folder: give one table"),
        (
            "fit even.csv -t species --kernels 100000000",
            1,
            "--kernels 100000000 is more than the 75 rows",
        ),
        ("fit iris.csv -t species --kernels many", 2, "'many' is neither 'auto' nor a whole number"),
        ("fit iris.csv -t species --kernels 0", 2, "of at least 1"),
        ("fit iris.csv -t species -o iris.csv/m", 2, "iris.csv is not a folder"),
        ("fit iris.csv -o " + "x" * 300, 2, "xxx: File name too long"),
        ("fit iris.csv --jobs 0", 2, "-1 uses all cores"),
        ("fit iris.csv --sep ;;", 2, "';;' is not one character"),
        ("fit iris.csv --sep .", 2, "'.' is also --decimal"),
        ("fit iris.csv --encoding klingon", 1, "--encoding klingon is not known to Python"),
        ("fit iris.csv --covariance round", 2, "round"),
        ("fit iris.csv -t species --time-limit 0", 2, "0 is not a number of seconds above 0"),
        ("fit iris.csv -t species --time-limit nan", 2, "nan is not a number of seconds"),
        # Before the fit, and not after all its work.
        ("fit none.csv --time-limit 5 --kernels 3", 2, "--time-limit cannot be combined with --kernels"),
        ("fit none.csv -t a --criterion bic", 2, "--criterion cannot be combined with"),
        ("fit none.csv -t a --html p.html", 2, "add --folds N"),
        *(
            (f"fit none.csv {option}", 2, f"{option.split()[0]} needs classes: name their column")
            for option in ("--folds 2", "--html p")
        ),
        ("predict iris.skmix other.csv", 1, "other.csv has no column 'sepal', 'sepal width'"),
        ("predict iris.csv iris.csv", 1, "is not a skmix model"),
        ("predict - iris.csv", 2, "a model must be a file"),
        ("predict iris.skmix iris.csv -o out.xls", 2, "must end in .csv"),
        ("predict iris.skmix iris.csv -o iris.csv/o.csv", 2, "cannot write iris.csv/o.csv"),
        ("predict iris.skmix clash.csv --keep label", 2, "--keep label"),
        ("evaluate iris.skmix rose.csv", 1, "'species' has labels that no training row had: ['rose']"),
        ("evaluate iris.skmix iris.csv --html .", 2, ".: it is a folder. Name a file in it."),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int, message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "other.csv").write_text("a,b\n1,2\n")
    (folder / "rose.csv").write_text(lines_of(NAMES, X[:2], species=["rose", "setosa"]))
    (folder / "clash.csv").write_text(lines_of([*NAMES, "label"], np.column_stack([X, CODES])))
    before = sorted(folder.iterdir())
    result = run(*command.split(), code=code)
    assert message in said(result)
    assert result.stdout == ""
    assert sorted(folder.iterdir()) == before


cells = st.sampled_from(["", "0", "1", "1", "2.5", "-3e8", "1e308", "x", "NA", "true", "0"])


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(cells, cells, st.sampled_from(["a", "b", "c", "1", ""])), max_size=9), st.booleans()
)
@example([("1e308", "0", "a"), ("-1e308", "1", "b"), ("0", "1", "b")], True)
@example([("1", "1", "a"), ("1", "1", "b")], True)
def test_any_small_table_ends_in_a_model_or_a_sentence(
    tmp_path: Path, rows: list[tuple[str, str, str]], labelled: bool
) -> None:
    table = "\n".join([",".join(row) for row in [("u", "v", "y"), *rows]]).encode()
    path = tmp_path / "m"
    target = ["-t", "y", "--unlabelled", "use"] if labelled else ["--drop", "y"]
    result = CliRunner().invoke(app, ["fit", "-", *target, "--kernels", "2", "-o", str(path)], input=table)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if result.exit_code:
        assert result.exit_code == 1
        assert result.stderr.startswith(("Error: ", "Note: "))
        return
    for command in (["predict", str(path), "-"], ["show", str(path)]):
        result = CliRunner().invoke(app, command, input=table)
        assert result.exit_code == 0, (result.output, result.exception)
