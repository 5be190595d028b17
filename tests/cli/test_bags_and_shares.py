"""`--bags`, `--prevalence` and `--adjust` give the numbers that Python gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import run, said
from numpy.testing import assert_allclose

from skmix import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of bags and a model of its rows."""
    folder, random = tmp_path_factory.mktemp("bags"), np.random.default_rng(0)
    bags = np.repeat(np.arange(40), 6)
    labels = np.array(["low", "high"])[np.arange(40) % 2][bags]
    centres = np.where(labels == "low", 0.0, 1.5) + 0.7 * random.normal(size=40)[bags]
    table = pd.DataFrame({"u": centres + random.normal(size=240), "v": random.normal(size=240)})
    table = table.assign(label=labels, bag=[f"b{bag:02}" for bag in bags])
    table.to_csv(folder / "rows.csv", index=False)
    run(
        "fit",
        folder / "rows.csv",
        "--target",
        "label",
        "--drop",
        "bag",
        "--kernels",
        "3",
        "--out",
        folder / "m.skmix",
    )
    return folder


def test_predictions_of_bags(folder: Path) -> None:
    run(
        "predict",
        folder / "m.skmix",
        folder / "rows.csv",
        "--bags",
        "bag",
        "--drop",
        "label",
        "-o",
        folder / "b.csv",
    )
    found, table = pd.read_csv(folder / "b.csv"), pd.read_csv(folder / "rows.csv")
    model = load(folder / "m.skmix")
    expected = model.predict_bags_proba(table[["u", "v"]], table["bag"])
    assert found["bag"].tolist() == sorted(set(table["bag"]))
    assert (found["rows"] == 6).all()
    assert_allclose(found[["p_high", "p_low"]], expected, rtol=1e-6)
    assert found["label"].tolist() == model.predict_bags(table[["u", "v"]], table["bag"]).tolist()


def test_evaluation_of_bags(folder: Path) -> None:
    printed = run("evaluate", folder / "m.skmix", folder / "rows.csv", "--bags", "bag", "--json").stdout
    table, model = pd.read_csv(folder / "rows.csv"), load(folder / "m.skmix")
    right = model.predict_bags(table[["u", "v"]], table["bag"]) == table.groupby("bag")["label"].first()
    found = json.loads(printed)
    assert found["n_rows"] == 40
    assert_allclose(found["accuracy"], right.mean())
    assert (
        "40 bags, 2 classes"
        in run("evaluate", folder / "m.skmix", folder / "rows.csv", "--bags", "bag").stdout
    )


def test_shares_and_adjusted_predictions(folder: Path) -> None:
    table, model = pd.read_csv(folder / "rows.csv"), load(folder / "m.skmix")
    some = table[(table["label"] == "low") | (table.index % 4 == 0)].drop(columns=["label", "bag"])
    some.to_csv(folder / "some.csv", index=False)
    run("predict", folder / "m.skmix", folder / "some.csv", "--prevalence", "-o", folder / "shares.csv")
    expected = model.prevalence(some, adjust=True)
    shares = pd.read_csv(folder / "shares.csv")
    assert shares.columns.tolist() == ["label", "share", "low", "high"]
    assert_allclose(shares["share"], expected.shares, rtol=1e-6)
    run("predict", folder / "m.skmix", folder / "some.csv", "--adjust", "-o", folder / "adjusted.csv")
    adjusted = pd.read_csv(folder / "adjusted.csv")
    assert_allclose(adjusted[["p_high", "p_low"]], expected.probabilities, rtol=1e-6)
    assert adjusted["label"].tolist() == model.classes_[expected.probabilities.argmax(axis=1)].tolist()


def test_what_cannot_be_combined_is_refused(folder: Path) -> None:
    predict = ("predict", folder / "m.skmix", folder / "rows.csv")
    for arguments, words in {
        (2, "--bags", "bag", "--prevalence"): "--bags and --prevalence cannot be combined",
        (2, "--adjust", "--reasons"): "--reasons is for predictions of rows",
        (1, "--bags", "utterance"): "utterance",
    }.items():
        assert words in said(run(*predict, *arguments[1:], code=arguments[0]))
    table = pd.read_csv(folder / "rows.csv")
    table.loc[0, "label"] = "high"
    table.to_csv(folder / "mixed.csv", index=False)
    failed = run("evaluate", folder / "m.skmix", folder / "mixed.csv", "--bags", "bag", code=1)
    assert "1 of 40 bags have rows of several classes, such as bag 'b00'" in said(failed)
