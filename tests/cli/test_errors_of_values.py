"""Errors of values on the command line: columns with an ending."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from commands import FRAME, run, said
from numpy.testing import assert_allclose

from skmix import SharedKernelClassifier, load


def test_errors_in_columns_with_an_ending(tmp_path: Path) -> None:
    errors = np.random.default_rng(0).uniform(0.1, 0.6, size=(len(FRAME), 2))
    table, model, out = (tmp_path / name for name in ("table.csv", "model.skmix", "out.csv"))
    FRAME.assign(a_err=errors[:, 0], b_err=errors[:, 1]).to_csv(table, index=False)
    run("fit", table, "-t", "kind", "--errors", "_err", "--kernels", 2, "--outliers", 0, "-o", model)
    expected = SharedKernelClassifier(2, random_state=0)
    expected.fit(FRAME[["a", "b"]], FRAME["kind"], errors=errors)
    assert_allclose(load(model).means_, expected.means_)
    run("predict", model, table, "--errors", "_err", "-o", out)
    scores = expected.score_samples(FRAME[["a", "b"]], errors=errors)
    assert_allclose(pd.read_csv(out)["log_density"], scores)
    run("fit", table, "--drop", "kind", "--errors", "_err", "--kernels", 2, "-o", model)
    assert load(model).feature_names_in_.tolist() == ["a", "b"]


def test_what_errors_cannot_be_combined_with(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    FRAME.to_csv(table, index=False)
    result = run("fit", table, "-t", "kind", "--errors", "_err", code=2)
    assert "--kernels N" in said(result)
    result = run("fit", table, "--drop", "kind", "--errors", "_err", "-o", tmp_path / "m", code=1)
    assert "No column of X ends in '_err'" in said(result)
    result = run("predict", tmp_path / "m", table, "--reasons", "--errors", "_err", code=2)
    assert "--reasons cannot be combined" in said(result)
