"""Tables of the kinds that stopped people who used skmix for the first time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from commands import run, said
from numpy.testing import assert_allclose

import skmix

N = 240


def test_a_table_of_a_bank_with_german_numbers(tmp_path: Path) -> None:
    """Decimal commas, thousands points, k.A. for unknown, names, dates, and lines without values."""
    random = np.random.RandomState(0)
    good = np.arange(N) % 2
    amounts = 1000.0 * np.exp(random.normal(size=N)) + 3000.0 * good
    rates = random.normal(size=N).round(2) + good
    frame = pd.DataFrame(
        {
            "Kunde": [f"Kunde {row}" for row in range(N)],
            "Betrag": [f"{value:,.2f}".translate(str.maketrans(".,", ",.")) for value in amounts],
            "Rate": [f"{value:.2f}".replace(".", ",") for value in rates],
            "Beginn": [f"{1 + row % 28}.{1 + row % 12}.2020" for row in range(N)],
            "Ort": [f"Ort {row % 60:02}" for row in range(N)],
            "Rest": "",
            "gut": np.where(good, "ja", "nein"),
        }
    )
    frame.loc[::9, "Rate"] = "k.A."
    frame.iloc[[7, 100], :-1] = ""
    table, model = tmp_path / "kredit.csv", tmp_path / "m"
    frame.to_csv(table, sep=";", index=False)
    fit = ("fit", table, "-t", "gut", "--kernels", 2, "-o", model)
    # One message has all columns, and what mends each of them.
    message = said(run(*fit, code=1))
    for part in (
        "3 columns cannot be features as they are. To leave out all of them, use --drop auto.",
        "'Kunde' holds text, such as 'Kunde 0' on line 2",
        "'Betrag' holds numbers with a separator of thousands",
        "Use --thousands . and --decimal ,.",
        "'Rate' holds numbers and text, such as 'k.A.' on line 2",
        "--missing k.A.",
        "leave it out with --drop Kunde",
    ):
        assert part in message, part
    written = ("--thousands", ".", "--decimal", ",", "--missing", "k.A.")
    notes = said(run(*fit, *written, "--drop", "auto"))
    for part in (
        "left out, because they cannot be features as they are: Kunde.",
        "'Beginn' holds dates, which become numbers of days since 1970.",
        "'Ort' has 60 categories: the 49 most frequent are kept",
        "'Rest' is missing in all rows and is left out.",
        f"2 of {N} rows have no value and are left out; the first is line 9.",
    ):
        assert part in notes, part
    # The model knows how the table is written, on the command line and in Python.
    accuracy = json.loads(run("evaluate", model, table, "--json").stdout)["accuracy"]
    loaded = skmix.load(model)
    assert accuracy == loaded.score(table, "gut")
    assert loaded.recipe_["decimal"] == ","
    frame["Betrag"], frame["Rate"] = amounts.round(2), np.where(np.arange(N) % 9 == 0, np.nan, rates)
    frame.loc[[7, 100], ["Betrag", "Rate"]] = np.nan
    frame["Beginn"] = pd.to_datetime(frame["Beginn"], format="%d.%m.%Y")
    frame["Ort"] = frame["Ort"].replace("", None)
    assert_allclose(loaded.predict_proba(table), loaded.predict_proba(frame), atol=1e-9)


def test_a_table_of_a_spreadsheet(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "t.csv", "w") as workbook:
        workbook.writestr("xl/workbook.xml", "<workbook/>")
    refused = "t.csv is a spreadsheet (Excel or alike). Save its sheet as CSV in UTF-8"
    assert refused in said(run("fit", tmp_path / "t.csv", "-t", "kind", "-o", tmp_path / "m", code=1))
    with pytest.raises(ValueError, match=re.escape(refused)):
        skmix.open_rows(tmp_path / "t.csv")


def test_a_table_of_flights(tmp_path: Path) -> None:
    """Timestamps, 70 airports, tail numbers, times of day and a row index without a name."""
    random = np.random.RandomState(0)
    late = np.arange(N) % 2
    airports = [f"A{number:02}" for number in range(70)]
    frame: Any = pd.DataFrame(
        {
            "": np.arange(N),
            "time": pd.date_range("2013-01-01", periods=N, freq="7h"),
            "origin": [airports[row % 70] for row in range(N)],
            "tail": [f"N{row:05}" for row in range(N)],
            "distance": random.normal(size=N) + late,
            "late": late,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "-t", "late", "--kernels", 2, "-o", tmp_path / "m")
    message = said(run(*fit, code=1))
    assert "2 columns cannot be features" in message
    assert "column 1 has no name" in message
    notes = said(run(*fit, "--drop", "auto"))
    assert "left out, because they cannot be features as they are: (no name), tail." in notes
    model = skmix.load(tmp_path / "m")
    assert model.feature_names_in_.tolist() == ["time", "origin", "distance"]
    # In Python, from the data frame, with the same numbers and the same remarks.
    plain = skmix.SharedKernelClassifier(2, n_jobs=-1, random_state=0, reject_below=0.01)
    with pytest.warns(UserWarning, match="'origin' has 70 categories|'time' holds dates") as told:
        plain.fit(frame[["time", "origin", "distance"]], late)
    assert len(told) == 2
    assert_allclose(model.predict_proba(frame), plain.predict_proba(frame[["time", "origin", "distance"]]))
    new = frame[:3].assign(origin=["A00", "ZRH", None])
    assert np.isfinite(model.predict_proba(new)).all()
    assert str(model.sample(2)[0]["time"].dtype).startswith("datetime64")
