"""Tables as people have them, from the command line to predictions in Python and ONNX."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run
from numpy.testing import assert_allclose

import skmix
from skmix.model.frames import PreparedRows

N = 60


def made() -> pd.DataFrame:
    """Return rows of two kinds with numbers, categories, yes and no, and gaps."""
    random = np.random.RandomState(0)
    codes = np.arange(N) % 2
    return pd.DataFrame(
        {
            "width": random.normal(size=N) + 2 * codes,
            "colour": random.permutation(np.array(["red", "green", None], dtype=object)[np.arange(N) % 3]),
            "smoker": np.where(random.uniform(size=N) < 0.3 + 0.4 * codes, "yes", "no"),
            "height": random.normal(size=N).round(3),
            "kind": np.where(codes, "a", "b"),
        }
    )


FRAME = made().assign(colour=lambda frame: frame["colour"].where(np.arange(N) % 5 > 0, "blue"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with categories, and a model of it."""
    place = tmp_path_factory.mktemp("tables")
    FRAME.to_csv(place / "t.csv", index=False, na_rep="N/A")
    run("fit", place / "t.csv", "-t", "kind", "--kernels", 2, "-o", place / "m.skmix")
    return place


def test_a_model_of_categories_takes_them_in_python(folder: Path, tmp_path: Path) -> None:
    model = skmix.load(folder / "m.skmix")
    expected = model.predict_proba(FRAME)
    FRAME.to_parquet(tmp_path / "t.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # In any order of columns, with others beside them.
        for rows in (FRAME[FRAME.columns[::-1]], tmp_path / "t.parquet", str(tmp_path)):
            assert_allclose(model.predict_proba(rows), expected, rtol=1e-7)
    gaps = model.predict_proba(FRAME.assign(colour=None))
    FRAME.assign(colour="teal").to_csv(tmp_path / "teal.csv", index=False)
    for rows in (FRAME.assign(colour="teal"), tmp_path / "teal.csv"):
        with pytest.warns(
            UserWarning, match="'colour' has categories that the model does not know, in 60"
        ) as told:
            assert_allclose(model.predict_proba(rows), gaps, rtol=1e-7)
        assert len(told) == 1
    with pytest.raises(ValueError, match="column 'smoker' holds values of different types: float, str"):
        model.predict(FRAME.assign(smoker=np.array(["yes", 1.5] * (N // 2), dtype=object)))
    with pytest.raises(ValueError, match="has columns of numbers without names"):
        model.predict(skmix.open_rows(np.zeros((3, 6))))
    # A new fit has its own columns.
    model.fit(FRAME[["width", "height"]], FRAME["kind"])
    assert not hasattr(model, "recipe_")


def test_an_exported_graph_is_that_of_python(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    numbers = FRAME[["width", "height"]].to_numpy()
    skmix.SharedKernelClassifier(2, random_state=0).fit(numbers, FRAME["kind"]).save(tmp_path / "nameless")
    for path, *lines in (
        (folder / "m.skmix", "input X: width, height", "input categories: colour, smoker"),
        (tmp_path / "nameless", "input X: 2 features"),
    ):
        lines.append("outputs: label, probabilities, log_density")
        graph = skmix.load(path).to_onnx().SerializeToString(deterministic=True)
        out = tmp_path / "m.onnx"
        printed = run("export", path, "--onnx", out).stdout
        assert printed.splitlines() == [*lines, f"written into {out}"]
        piped = run("export", path, "--onnx", "-")
        assert out.read_bytes() == piped.stdout_bytes == graph
        assert piped.stderr.splitlines() == lines


def test_columns_that_are_not_there_are_refused_and_empty_ones_are_missing(
    folder: Path, tmp_path: Path
) -> None:
    model, table = skmix.load(folder / "m.skmix"), tmp_path / "new.csv"
    less, empty = FRAME[["width"]], FRAME.assign(colour=None, smoker=None, height=None)
    less.to_csv(table, index=False)
    message = (
        "has no column 'colour', 'smoker', 'height'; there is only 'width'. If the values are unknown, add"
    )
    with pytest.raises(ValueError, match=message):
        model.predict(table)
    assert message in run("predict", folder / "m.skmix", table, code=1).stderr
    with pytest.raises(ValueError, match=r"- height\n- smoker\nIf the values are unknown, add"):
        model.predict(less)
    empty.to_csv(table, index=False)
    rows = np.full((N, 6), np.nan)
    rows[:, 0] = FRAME["width"]
    expected = model.predict_proba(PreparedRows(rows))[:, 0]
    printed = pd.read_csv(io.StringIO(run("predict", folder / "m.skmix", table).stdout))
    for found in (printed["p_a"], model.predict_proba(table)[:, 0], model.predict_proba(empty)[:, 0]):
        assert_allclose(found, expected, rtol=1e-7)


def test_weights_count_in_all_measures(tmp_path: Path) -> None:
    often = np.arange(N) // 2 % 4
    FRAME.assign(often=often).to_csv(tmp_path / "w.csv", index=False)
    FRAME.loc[np.repeat(np.arange(N), often)].to_csv(tmp_path / "r.csv", index=False)
    FRAME[often > 0].assign(often=often[often > 0]).to_csv(tmp_path / "some.csv", index=False)

    def printed(*arguments: object) -> Any:
        return json.loads(run(*arguments, "--json").stdout)

    fit = ("-t", "kind", "--kernels", 2, "--outliers", 0, "--weight", "often", "-o", tmp_path / "m")
    tested = printed("fit", tmp_path / "w.csv", *fit, "--folds", 2)
    assert tested["folds"]["n_rows"] == np.sum(tested["folds"]["confusion"]) == often.sum()
    # The model's column of weights is used where the table has it, unless another one is named.
    expected = printed("evaluate", tmp_path / "m", tmp_path / "r.csv")
    assert expected["accuracy"] == pytest.approx(tested["training_accuracy"])
    found = printed("evaluate", tmp_path / "m", tmp_path / "w.csv")
    assert found["confusion"] == expected["confusion"]
    assert found["log_loss"] == pytest.approx(expected["log_loss"])
    # Weights belong to rows, also behind one that has no label.
    unlabelled = FRAME[:1].assign(kind=None, often=50)
    pd.concat([unlabelled, FRAME.assign(often=often)]).to_csv(tmp_path / "u.csv", index=False)
    assert printed("evaluate", tmp_path / "m", tmp_path / "u.csv")["confusion"] == expected["confusion"]
    assert "weights in 'often', which sum to" in run("evaluate", tmp_path / "m", tmp_path / "w.csv").stderr
    assert "'often', the weights of the fit" in run("evaluate", tmp_path / "m", tmp_path / "r.csv").stderr
    wrong = run("evaluate", tmp_path / "m", tmp_path / "w.csv", "--weight", "n", code=1)
    assert "has no column 'n'; there are" in wrong.stderr
    # Rows of weight zero are in no split.
    some = printed("fit", tmp_path / "some.csv", *fit, "--folds", 2)
    assert some["folds"] == tested["folds"]
    assert some["n_rows"] == tested["n_rows"]
