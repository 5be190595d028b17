"""Every option of every command reaches what it is meant for, and nothing else changes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import KINDS, X, run, said, write_example
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

import skmix
from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.rows.blocks import Block
from skmix.model.crossfit import novelty_threshold

OFTEN = 1.0 + np.arange(42) % 3
OTHER = np.roll(KINDS, 5)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": KINDS, "n": OFTEN.astype(int), "other": OTHER})
CODED = np.column_stack([value == OFTEN for value in (1, 2, 3)]).astype(float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and a classifier of its two numbers."""
    return write_example(tmp_path_factory.mktemp("options"), FRAME)


def same(found: Any, expected: Any) -> None:
    """Check that two models have the same settings and are equal."""
    assert type(found) is type(expected)
    assert repr(found.get_params()) == repr(expected.get_params())
    parts = [getattr(each, "models_", [each]) for each in (found, expected)]
    for one, other in zip(*parts, strict=True):
        for name in ("means_", "covariances_", "weights_", "class_prior_"):
            assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9, err_msg=name)
    assert getattr(found, "threshold_", None) == pytest.approx(getattr(expected, "threshold_", None))


def table(folder: Path, *beside: str) -> Path:
    """Write other columns and the two numbers."""
    FRAME[[*beside, "a", "b"]].to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


# ---------------------------------------------------------------- fit: everything given

# These fits are without a threshold for outliers, which takes further fits.
GIVEN: dict[str, dict[str, Any]] = {
    "--kernels 3": {"n_kernels": 3},
    "--covariance tied": {"covariance_type": "tied"},
    "--jobs 2": {"n_jobs": 2},
    "--seed 5": {"random_state": 5},
    "--weight n": {"weights": OFTEN},
    "--categorical n": {"X": np.column_stack([CODED, X])},
    "--drop b": {"X": X[:, :1]},
    "--target other": {"y": OTHER},
    "--target n": {"y": OFTEN.astype(int)},
}


@pytest.mark.parametrize("options", GIVEN)
def test_a_fit_has_what_is_given(tmp_path: Path, options: str) -> None:
    expected = {"X": X, "y": KINDS, "weights": None, **GIVEN[options]}
    rows, y, weights = (expected.pop(name) for name in ("X", "y", "weights"))
    settings = {"n_kernels": 2, "n_jobs": -1, "random_state": 0} | expected
    own = SharedKernelClassifier(**settings).fit(rows, y, sample_weight=weights)
    words = options.split()
    target = words[1] if words[0] == "--target" else "kind"
    given = ("-t", target, "--kernels", 2, "--outliers", 0, *words)
    beside = ["n"] if "n" in words and target != "n" else []
    run("fit", table(tmp_path, target, *beside), *given, "-o", tmp_path / "m")
    found = skmix.load(tmp_path / "m")
    same(found, own)
    assert found.quality_["training_accuracy"] == pytest.approx(own.score(rows, y, weights))
    assert found.target_name_ == target
    assert getattr(found, "weight_name_", None) == (None if weights is None else "n")
    assert not hasattr(found, "metadata_")


@pytest.mark.parametrize(
    ("options", "share", "weights", "settings"),
    [
        ("--outliers 0.2 --weight n --seed 1", 0.2, OFTEN, {"random_state": 1}),
        ("--outliers 0 --covariance diag", 0, None, {"covariance_type": "diag"}),
    ],
)
def test_a_mixture_has_what_is_given(
    tmp_path: Path, options: str, share: float, weights: Any, settings: dict[str, Any]
) -> None:
    own = SharedKernelMixture(**{"n_kernels": 2, "n_jobs": -1, "random_state": 0} | settings)
    own.fit(X, sample_weight=weights)
    beside = [] if weights is None else ["n"]
    run("fit", table(tmp_path, *beside), "--kernels", 2, *options.split(), "-o", tmp_path / "m")
    if share:
        own.threshold_ = novelty_threshold(own, share, Block(X, None, weights))
    same(skmix.load(tmp_path / "m"), own)


# ---------------------------------------------------------------- fit: searches

SEARCHES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("-t kind", {}, {}),
    ("-t kind --kernels 4 --covariance auto", {"n_kernels": 4}, {}),
    ("-t kind --covariance tied", {"covariance_type": "tied"}, {}),
    ("-t kind --time-limit 2.5", {"time_limit": 2.5}, {}),
    ("-t kind --jobs 2", {"n_jobs": 2}, {"n_jobs": 2}),
    ("-t kind --seed 7", {"random_state": 7}, {"random_state": 7}),
    ("-t kind --outliers 0.3", {}, {"reject_below": 0.3}),
    ("", {}, {}),
    ("--criterion cv", {"criterion": "log_likelihood"}, {}),
    ("--criterion bic", {"criterion": "bic"}, {}),
    ("--covariance diag --jobs 2", {"covariance_type": "diag", "n_jobs": 2}, {"n_jobs": 2}),
    ("--kernels 3 --covariance auto", {"n_kernels": 3, "covariance_type": "auto"}, {}),
    ("--time-limit 2.5 --seed 7", {"time_limit": 2.5, "random_state": 7}, {"random_state": 7}),
]


@pytest.mark.parametrize(("options", "of_search", "of_model"), SEARCHES)
def test_a_search_has_what_is_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    of_search: dict[str, Any],
    of_model: dict[str, Any],
) -> None:
    labels = KINDS.tolist() if options.startswith("-t") else None
    common: dict[str, Any] = {"n_jobs": -1, "random_state": 0}
    search, single, usual, always = (
        (SharedKernelMixtureCV, SharedKernelMixture, {}, {"criterion": "auto"})
        if labels is None
        else (SharedKernelClassifierCV, SharedKernelClassifier, {"reject_below": 0.01}, {})
    )
    expected = search(single(**usual | common | of_model), **always | common | of_search)
    seen: list[Any] = []

    def fit(own: Any, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        seen.extend([own, X, y, sample_weight])
        raise ValueError("enough")

    monkeypatch.setattr(search, "fit", fit)
    beside = ["n"] if labels is None else ["kind", "n"]
    given = ("--weight", "n", *options.split(), "-o", tmp_path / "m")
    assert said(run("fit", table(tmp_path, *beside), *given, code=1)) == "Error: enough"
    assert repr(seen[0].get_params()) == repr(expected.get_params())
    assert_array_equal(seen[1].X, X)
    assert (seen[2] if labels is None else seen[2].tolist()) == labels
    assert_array_equal(seen[3], OFTEN)
    assert not (tmp_path / "m").exists()


# ---------------------------------------------------------------- fit: tests of the model


@pytest.mark.parametrize(
    ("option", "splitter"),
    [
        (("--folds", 3), StratifiedKFold(3, shuffle=True, random_state=8)),
        (("--hold-out", 0.25), StratifiedShuffleSplit(1, test_size=8, random_state=8)),
    ],
)
def test_a_test_of_the_model_with_weights_and_rows_without_a_label(
    tmp_path: Path, option: tuple[str, float], splitter: Any
) -> None:
    known = np.arange(42) % 4 > 0
    frame = FRAME.assign(kind=np.where(known, KINDS, ""))[["a", "b", "kind", "n"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "-t", "kind", "--weight", "n", "--kernels", 2, "--outliers", 0)
    fit += ("--unlabelled", "use", *option, "--seed", 8, "-o", tmp_path / "m", "--json")
    printed = json.loads(run(*fit).stdout)
    labelled, y = np.flatnonzero(known), np.where(known, KINDS, None)
    probabilities, by_fold, tested = np.empty((42, 3)), [], np.zeros(42, dtype=bool)
    for _, part in splitter.split(labelled, KINDS[labelled]):
        held = labelled[part]
        rest = np.setdiff1d(np.arange(42), held)
        model = SharedKernelClassifier(2, random_state=8).fit(X[rest], y[rest], sample_weight=OFTEN[rest])
        probabilities[held], tested[held] = model.predict_proba(X[held]), True
        by_fold.append(np.average(model.predict(X[held]) == KINDS[held], weights=OFTEN[held]))
    right = np.array(["u", "v", "w"])[probabilities[tested].argmax(axis=1)] == KINDS[tested]
    found = printed["folds"]
    shown = run("show", tmp_path / "m").stdout
    assert f"{100 * found['accuracy']:.1f} % {'by' if option[0] == '--folds' else 'on'} " in shown
    assert f"{100 * printed['training_accuracy']:.1f} % on the training rows" in shown
    assert found["n_rows"] == OFTEN[tested].sum()
    assert_allclose(found["by_fold"], by_fold)
    assert found["accuracy"] == pytest.approx(np.average(right, weights=OFTEN[tested]))
    expected = log_loss(KINDS[tested], probabilities[tested], sample_weight=OFTEN[tested])
    assert found["log_loss"] == pytest.approx(expected)
    assert (printed["n_rows"], printed["n_unlabelled"]) == (42, 11)
    own = SharedKernelClassifier(2, n_jobs=-1, random_state=8).fit(X, y, sample_weight=OFTEN)
    same(skmix.load(tmp_path / "m"), own)
    training = np.average(own.predict(X[known]) == KINDS[known], weights=OFTEN[known])
    assert printed["training_accuracy"] == pytest.approx(training)
    # What was found does not outlive the fit.
    again = skmix.load(tmp_path / "m").fit(pd.DataFrame(X, columns=["a", "b"]), KINDS)
    assert skmix.report.describe(again)["quality"] is None


# ---------------------------------------------------------------- how tables are written

# The same table in other words: how to write it, the options to read it, and how columns are then called.
WRITTEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": (
        {"sep": "!", "decimal": ",", "encoding": "utf-16", "na_rep": "oops"},
        ["--sep", "!", "--decimal", ",", "--encoding", "utf-16", "--missing", "oops"],
    ),
    "space": ({"sep": " ", "na_rep": "NA"}, ["--sep", "space"]),
    "tab": ({"sep": "\t"}, ["--sep", "tab"]),
    "escaped tab": ({"sep": "\t"}, ["--sep", "\\t"]),
    "no header": ({"header": False}, ["--no-header"]),
}
GAPS = FRAME[["a", "b", "kind"]].assign(b=FRAME["b"].where(np.arange(42) % 6 > 0))


@pytest.mark.parametrize("how", WRITTEN)
def test_tables_written_in_another_way_are_the_same(tmp_path: Path, how: str) -> None:
    """All commands have the same options for this."""
    writing, options = WRITTEN[how]
    path, target = tmp_path / "t.txt", "column_3" if how == "no header" else "kind"
    own = SharedKernelClassifier(1, n_jobs=-1, random_state=0).fit(GAPS[["a", "b"]], KINDS)
    GAPS.to_csv(path, index=False, **writing)
    run("fit", path, "-t", target, "--kernels", 1, "--outliers", 0, *options, "-o", tmp_path / "m")
    same(skmix.load(tmp_path / "m"), own)
    predicted = read(run("predict", tmp_path / "m", path, *options).stdout)
    assert_allclose(predicted["p_u"], own.predict_proba(GAPS[["a", "b"]])[:, 0], rtol=1e-12)
    found = json.loads(run("evaluate", tmp_path / "m", path, "--json", *options).stdout)
    assert found["accuracy"] == own.score(GAPS[["a", "b"]], KINDS)


# ---------------------------------------------------------------- commands that use a model


def read(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def test_options_of_predictions(folder: Path, tmp_path: Path) -> None:
    predict = ("predict", folder / "model.skmix", folder / "table.csv")
    model = skmix.load(folder / "model.skmix")
    rows = FRAME[["a", "b"]]
    plain = run(*predict)
    assert plain.stderr == ""
    expected = pd.DataFrame(model.predict_proba(rows), columns=["p_u", "p_v", "p_w"])
    expected.insert(0, "label", model.classes_[expected.to_numpy().argmax(axis=1)])
    expected["log_density"] = model.score_samples(rows)
    expected["outlier"] = 0
    pd.testing.assert_frame_equal(read(plain.stdout), expected, rtol=1e-12)
    kept = read(run(*predict, "--keep", "n", "--keep", "kind").stdout)
    assert list(kept)[:3] == ["n", "kind", "label"]
    pd.testing.assert_frame_equal(kept[["n", "kind"]], FRAME[["n", "kind"]])
    assert run(*predict, "--drop", "n", "--drop", "other").stderr == ""
    refused = said(run(*predict, "--drop", "n", "--drop", "b", code=1))
    assert "column 'b' is a feature of the model and cannot be left out" in refused
    reasons = read(run(*predict, "--reasons").stdout)[["kernels", "far"]].fillna("")
    expected = pd.DataFrame(model.reasons(rows).in_words())
    pd.testing.assert_frame_equal(reasons, expected, check_dtype=False)
    out = tmp_path / "p.tsv"
    assert run(*predict, "-o", out).stdout == f"42 rows, 0 flagged as outliers, written into {out}\n"
    assert out.read_text() == plain.stdout.replace(",", "\t")


def test_options_of_evaluations(folder: Path) -> None:
    def evaluated(*options: object) -> Any:
        return json.loads(
            run("evaluate", folder / "model.skmix", folder / "table.csv", "--json", *options).stdout
        )

    model = skmix.load(folder / "model.skmix")
    predicted = model.predict(FRAME[["a", "b"]])
    assert evaluated()["accuracy"] == pytest.approx(np.mean(predicted == KINDS))
    assert evaluated("--target", "other")["accuracy"] == pytest.approx(np.mean(predicted == OTHER))
    weighted = evaluated("--weight", "n", "-t", "other")
    assert weighted["accuracy"] == pytest.approx(np.average(predicted == OTHER, weights=OFTEN))
    assert weighted["n_rows"] == OFTEN.sum()
