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
from rich.console import Console
from sklearn.datasets import load_iris
from typer.main import get_command
from typer.testing import CliRunner

import skmix
from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture
from skmix.cli import app
from skmix.cli._progress import TimeLeft, Watch, watching
from skmix.model.kernel_sets import feature_names

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


@pytest.mark.slow
@pytest.mark.usefixtures("two_folds")
def test_a_model_that_reduces_features_works_with_all_commands(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    kinds = np.repeat(["a", "b"], 60)
    rows = random.normal(size=(120, 3)) + 2.0 * (kinds == "b")[:, None]
    rows = rows @ random.normal(size=(3, 14)) + 0.01 * random.normal(size=(120, 14))
    names = [f"x{i}" for i in range(14)]
    (tmp_path / "t.csv").write_text(lines_of(names, rows, kind=kinds))
    run("fit", tmp_path / "t.csv", "-t", "kind", "-o", tmp_path / "m")
    model = skmix.load(tmp_path / "m")
    assert isinstance(model, SharedKernelClassifierCV)
    predicted = pd.read_csv(io.StringIO(run("predict", tmp_path / "m", tmp_path / "t.csv").stdout))
    assert list(predicted) == ["label", "p_a", "p_b", "log_density", "outlier"]
    assert_array_equal(predicted["outlier"] == 1, predicted["log_density"] < model.classifier_.threshold_)
    printed = json.loads(run("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json").stdout)
    assert printed["accuracy"] > 0.85
    page = tmp_path / "page.html"
    run("show", tmp_path / "m", "--html", page)
    names = feature_names(model)
    assert names is not None
    assert names[0] in page.read_text()


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


def test_rows_without_a_label(tmp_path: Path) -> None:
    known = np.arange(150) % 3 == 0
    table, path = tmp_path / "few.csv", tmp_path / "m"
    table.write_text(lines_of(NAMES, X, species=np.where(known, SPECIES, "")))
    fit = ("fit", table, "-t", "species", "--kernels", 3, "--outliers", 0, "-o", path)
    assert "no label in 100 of 150 rows" in run(*fit, code=1).stderr
    for use, said_so, rows, labels in (
        ("drop", "50 rows", X[known], CODES[known]),
        ("use", "100 rows without a label", X, np.where(known, CODES, -1)),
    ):
        assert said_so in run(*fit, "--unlabelled", use).stdout
        own = SharedKernelClassifier(3, random_state=0).fit(rows, labels)
        assert_array_equal(skmix.load(path).means_, own.means_)


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


def test_help_teaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    group: Any = get_command(app)
    text = run("--help").stdout
    for code, meaning in ((0, "done"), (1, "data or model"), (2, "wrong options"), (130, "interrupted")):
        assert re.search(rf"{code}  {meaning}", text)
    # Commands are listed in the order of their use.
    commands = ["fit", "predict", "evaluate", "show", "export"]
    commands += ["compose", "rename", "examples", "reproduce"]
    assert re.findall(r"^│ ([a-z]+)  ", text, re.MULTILINE) == group.list_commands(None) == commands
    assert group.no_args_is_help
    for name in commands:
        command, shown = group.commands[name], run(name, "--help").stdout
        assert "Examples:" in command.epilog
        # No line of text or examples is broken, and explanations of options have half of the width.
        written = [*command.help.partition("\n")[2].splitlines(), *command.epilog.splitlines()]
        assert {line.strip() for line in written} - {"\b"} <= {line.strip() for line in shown.splitlines()}
        assert all(line.rstrip(" │").rfind("  ") < 45 for line in shown.splitlines() if line[:1] == "│")


def test_examples_are_not_written_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    assert "File exists" in said(run("examples", "--out", tmp_path / "taken", code=2))


def test_progress_waits() -> None:
    def shown(patience: float, *, terminal: bool = True) -> str:
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=100)
        with watching(console, patience) as watch:
            SharedKernelMixture(2, random_state=0).fit(X)
            with watch.steps("reading", None) as report:
                report(share=0.25)
                if patience == 0.0 and terminal:
                    watch.refresh()
        return stream.getvalue()

    assert shown(60.0) == ""
    assert shown(0.0, terminal=False) == ""
    assert "reading" in shown(0.0)


def test_the_time_left_is_told_if_it_is_known() -> None:
    clock = [0.0]
    watch = Watch(get_time=lambda: clock[0], disable=True)
    column = TimeLeft()

    def told(title: str, *steps: Any, later: float = 0.0, total: int | None = None) -> str:
        with watch.steps(title, total) as report:
            for seconds, step in steps:
                clock[0] += seconds
                report(**step)
            clock[0] += later
            return column.render(watch.tasks[-1]).plain

    quarter, half = {"share": 0.25}, {"share": 0.5}
    assert told("choosing") == ""
    assert told("choosing", (9.0, quarter)) == ""
    assert told("choosing", (9.0, quarter), (10.0, half)) == "about 0:00:20 left"
    assert told("choosing", (9.0, quarter), (10.0, half), later=15.0) == "about 0:00:05 left"
    # Work that goes on beyond its plan has no time left to tell.
    assert told("choosing", (9.0, quarter), (10.0, half), later=21.0) == ""
    assert told("choosing", (9.0, half), (10.0, {"share": 1.0})) == ""
    assert told("fitting", (1.0, {}), (1.0, {}), total=10) == "at most 0:00:08 left"
    assert told("fitting", (1.0, {}), (1.0, {})) == ""


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
