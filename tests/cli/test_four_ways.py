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


def made(n_colours: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows with a column of text and gaps in all columns but one, and the array of their features."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, N)) + 2.0 * np.stack([KINDS == "v", KINDS == "w"])
    codes = np.where(
        random.random(N) < np.where(KINDS == "u", 0.2, 0.8), 0, random.integers(n_colours, size=N)
    )
    colour = np.array(["amber", "blue", "red", "teal"], dtype=object)[codes]
    a[random.random(N) < 0.1] = np.nan
    unknown = random.random(N) < 0.1
    colour[unknown] = None
    # Two colours are one feature; more are one each.
    features = (codes[:, None] == np.arange(1 if n_colours == 2 else 0, n_colours)).astype(float)
    features[unknown] = np.nan
    return pd.DataFrame({"a": a, "colour": colour, "b": b}), np.column_stack([a, features, b])


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize(
    ("estimator", "n_colours", "options"),
    [
        (skmix.SharedKernelMixture(3, random_state=0), 2, ("--kernels", 3)),
        (skmix.SharedKernelClassifier(4, random_state=0), 4, ("--kernels", 4)),
        (
            skmix.SharedKernelMixtureCV(n_kernels=2, cv=2, random_state=0),
            3,
            ("--kernels", 2, "--covariance", "auto"),
        ),
        (
            skmix.SharedKernelClassifierCV(n_kernels=3, cv=2, random_state=0),
            2,
            ("--kernels", 3, "--covariance", "auto"),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_predictions_are_the_same(tmp_path: Path, estimator: Any, n_colours: int, options: Any) -> None:
    frame, array = made(n_colours)
    path, parquet, labelled = (tmp_path / name for name in ("rows.csv", "rows.parquet", "labelled.csv"))
    frame.to_csv(path, index=False)
    frame.to_parquet(parquet)
    weights = 1.0 + np.arange(N) % 3
    frame.assign(kind=KINDS, n=weights).to_csv(labelled, index=False)
    given: list[Any] = [(frame,), (path,), (parquet,)]
    beside: tuple[Any, ...] = ()
    if is_classifier(estimator):
        beside = (KINDS, weights)
        given = [(frame, *beside), (skmix.open_rows(labelled, label="kind", weight="n"),)]
        options = (*options, "-t", "kind", "--weight", "n")
    plain = clone(estimator).fit(array, *beside)
    expected = plain.predict_proba(array), plain.score_samples(array), plain.predict(array)
    models = [clone(estimator).fit(*each) for each in given]
    assert len(models[0].preparation_["columns"]["colour"]) == n_colours
    run("fit", labelled if is_classifier(estimator) else path, *options, "-o", tmp_path / "m")
    for model in (*models, skmix.load(tmp_path / "m")):
        for rows in (frame, path, parquet):
            found = model.predict_proba(rows), model.score_samples(rows), model.predict(rows)
            for one, other in zip(found, expected, strict=True):
                assert_array_equal(one, other)
    run("predict", tmp_path / "m", path, "-o", tmp_path / "p.parquet")
    predicted = pd.read_parquet(tmp_path / "p.parquet")
    assert_array_equal(predicted.filter(regex="^p_"), expected[0])
    assert_array_equal(predicted["log_density"], expected[1])
    assert_array_equal(predicted.iloc[:, 0], expected[2])
