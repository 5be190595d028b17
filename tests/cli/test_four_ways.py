"""The same model by array, data frame, path and command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run
from numpy.testing import assert_array_equal
from sklearn.base import clone, is_classifier

import skmix

N = 45
KINDS = np.array(["u", "v", "w"])[np.arange(N) % 3]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Rows of three classes, with a column of text and gaps in both kinds of columns."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, N)) + 2.0 * np.stack([KINDS == "v", KINDS == "w"])
    colour = np.where(random.random(N) < np.where(KINDS == "u", 0.2, 0.8), "red", "blue")
    frame = pd.DataFrame({"a": a, "colour": colour, "b": b})
    frame.loc[random.random(N) < 0.1, "a"] = np.nan
    frame.loc[random.random(N) < 0.1, "colour"] = None
    return frame


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (skmix.SharedKernelMixture(3, random_state=0), ("--kernels", 3)),
        (skmix.SharedKernelClassifier(4, random_state=0), ("--kernels", 4)),
        (
            skmix.SharedKernelMixtureCV(n_kernels=2, cv=2, random_state=0),
            ("--kernels", 2, "--covariance", "auto"),
        ),
        (
            skmix.SharedKernelClassifierCV(n_kernels=3, cv=2, random_state=0),
            ("--kernels", 3, "--covariance", "auto"),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_predictions_are_the_same(tmp_path: Path, frame: pd.DataFrame, estimator: Any, options: Any) -> None:
    red = (frame["colour"] == "red").astype(float).where(frame["colour"].notna())
    array = np.column_stack([frame["a"], red, frame["b"]])
    path, labelled = tmp_path / "rows.csv", tmp_path / "labelled.csv"
    frame.to_csv(path, index=False)
    frame.assign(kind=KINDS).to_csv(labelled, index=False)
    given: list[Any] = [(frame,), (path,)]
    if is_classifier(estimator):
        given = [(frame, KINDS), (skmix.open_rows(labelled, label="kind"),)]
        options = (*options, "-t", "kind")
    plain = clone(estimator).fit(array, KINDS if is_classifier(estimator) else None)
    expected = plain.predict_proba(array), plain.score_samples(array), plain.predict(array)
    models = [clone(estimator).fit(*each) for each in given]
    run("fit", labelled if is_classifier(estimator) else path, *options, "-o", tmp_path / "m")
    for model in (*models, skmix.load(tmp_path / "m")):
        for rows in (frame, path):
            found = model.predict_proba(rows), model.score_samples(rows), model.predict(rows)
            for one, other in zip(found, expected, strict=True):
                assert_array_equal(one, other)
    run("predict", tmp_path / "m", path, "-o", tmp_path / "p.parquet")
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    assert_array_equal(predicted.filter(regex="^p_"), expected[0])
    assert_array_equal(predicted["log_density"], expected[1])
    assert_array_equal(predicted.iloc[:, 0], expected[2])
