"""The same model, labels and refusals by array, data frame, path and command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import run, said
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
    assert len(models[0].recipe_["columns"]["colour"]) == n_colours
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


@pytest.mark.parametrize("kept_apart_by", ["files", "a column"])
def test_a_cell_of_a_study_has_one_label(tmp_path: Path, kept_apart_by: str) -> None:
    """By the weights of its sample, which differ so much that averages would label many cells otherwise."""
    random, paths, samples = np.random.default_rng(2), {}, np.repeat(["s1", "s2"], 400)
    second = random.random(800) < np.where(samples == "s1", 0.1, 0.7)
    frame = pd.DataFrame(random.normal(size=(800, 2)) + 2.2 * second[:, None], columns=["CD3", "CD4"])
    settings: dict[str, Any] = {"n_kernels": 2, "n_populations": 2}
    if kept_apart_by == "files":
        for sample in ("s1", "s2"):
            paths[sample] = tmp_path / f"{sample}.csv"
            frame[samples == sample].to_csv(paths[sample], index=False)
        study = skmix.compose(list(paths.values()), **settings)
    else:
        paths["both"] = tmp_path / "both.csv"
        frame.assign(donor=samples).to_csv(paths["both"], index=False)
        study = skmix.compose(paths["both"], sample="donor", **settings)
    study.save(tmp_path / "study")
    study.label_cells(tmp_path / "all.csv")
    expected = pd.read_csv(tmp_path / "all.csv")
    model, populations = study.model, study.populations
    numbers = populations.predict(model, frame, y=samples)
    assert_array_equal(expected["population"].astype(str), np.array(populations.display_names, str)[numbers])
    assert np.count_nonzero(populations.predict(model, frame) != numbers) > 20
    for name, path in paths.items():
        own = expected[(expected["sample"] == name) | (name == "both")].reset_index(drop=True)
        for given in (path, [path]) if name != "both" else (path, frame.assign(donor=samples)):
            for each in (study, skmix.load(tmp_path / "study")):
                each.label_cells(tmp_path / "one.csv", given, overwrite=True)
                pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "one.csv"), own)
        run("predict", tmp_path / "study", path, "-o", tmp_path / "two.csv")
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "two.csv")[list(own)[1:]], own.iloc[:, 1:])


def test_what_has_no_rows_or_no_labels_is_refused_in_the_same_words(tmp_path: Path) -> None:
    flowio = pytest.importorskip("flowio", reason="flowio is not installed")
    frame = made(2)[0][["a", "b"]].assign(kind=KINDS)
    places = [tmp_path / f"none{suffix}" for suffix in (".csv", ".parquet", ".npy", ".fcs")]
    frame[:0].to_csv(places[0], index=False)
    frame[:0].to_parquet(places[1])
    np.save(places[2], np.empty((0, 2)))
    with open(places[3], "wb") as file:
        flowio.create_fcs(file, [1.0, 2.0], ["a", "b"])
    places[3].write_bytes(places[3].read_bytes().replace(b"$TOT/1/", b"$TOT/0/"))
    unlabelled, labelled = tmp_path / "unlabelled.csv", tmp_path / "labelled.csv"
    frame.assign(kind=None).to_csv(unlabelled, index=False)
    frame.to_csv(labelled, index=False)
    run("fit", labelled, "-t", "kind", "--kernels", 2, "-o", tmp_path / "m")
    model = skmix.load(tmp_path / "m")
    for path in (*places, unlabelled):
        with pytest.raises(ValueError, match=r"rows|empty") as caught:
            clone(model).fit(path, "kind")
        message = str(caught.value)
        assert str(path) in message
        labels = ["-t", "kind"] if path.suffix in (".csv", ".parquet") else []
        commands = [("fit", path, *labels, "-o", tmp_path / "n")]
        if path == unlabelled:
            commands.append(("fit", path, *labels, "--unlabelled", "drop", "-o", tmp_path / "n"))
            with pytest.raises(ValueError, match=re.escape(message)):
                model.score(path, "kind")
        else:
            commands.append(("predict", tmp_path / "m", path))
            with pytest.raises(ValueError, match=re.escape(message)):
                model.predict(path)
        commands += [("evaluate", tmp_path / "m", path)] if labels else []
        for command in commands:
            assert said(run(*command, code=1)) == f"Error: {message}"


def test_a_folder_of_tables_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    made(2)[0][["a", "b"]].to_csv(tmp_path / "rows" / "one.csv", index=False)
    skmix.SharedKernelMixture(2, random_state=0).fit(tmp_path / "rows" / "one.csv").save(tmp_path / "m")
    for command in (("predict", tmp_path / "m"), ("fit",)):
        told = said(run(*command, tmp_path / "rows", "-o", tmp_path / "out.csv", code=1))
        assert "rows is a folder: give one table" in told
        assert "A folder of samples, one file each, is for compose" in told
