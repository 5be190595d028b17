"""All that the commands print, beside numbers that come from elsewhere."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from commands import KINDS, X, run, said
from numpy.testing import assert_allclose
from rich.console import Console
from sklearn.metrics import jaccard_score, log_loss, precision_score, recall_score
from sklearn.model_selection import train_test_split

import skmix
from skmix import SharedKernelClassifier
from skmix.cli import _common as cli
from skmix.cli._progress import TimeLeft, watching
from skmix.cli.fit import (
    _check_columns,
    _folds,
    _lines,
    _parse_priors,
    _Rows,
    _with_more_time,
)
from skmix.cli.models import _bar, _level, _print_model, _print_weights, print_evaluation
from skmix.metrics import calibration_error
from skmix.report import evaluate

FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": KINDS})


def cells(text: str) -> list[list[str]]:
    """Return the words of each line, without rules and empty lines."""
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def test_all_that_fit_and_show_say(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "-t", "kind", "--kernels", 2, "--hold-out", 0.3, "--outliers", 0)
    fit += ("--seed", 4, "-o", tmp_path / "m")
    text = run(*fit).stdout
    own, held, y, truth = train_test_split(X, KINDS, test_size=0.3, stratify=KINDS, random_state=4)
    # The rows that stay are in the order of the table.
    order = np.argsort([X.tolist().index(row) for row in own.tolist()])
    model = SharedKernelClassifier(2, random_state=4).fit(own[order], y[order])
    right, probabilities = np.mean(model.predict(own) == y), model.predict_proba(held)
    accuracy = np.mean(model.classes_[probabilities.argmax(axis=1)] == truth)
    codes = np.searchsorted(model.classes_, truth)
    loss, error = log_loss(truth, probabilities), calibration_error(probabilities, codes)
    counts = {kind: int((y == kind).sum()) for kind in "uvw"}
    both = int(np.sum((model.weights_ >= 0.01).sum(axis=1) > 1))
    assert both == 2
    # Two means and three entries of a covariance for each kernel, and a weight for each class.
    n_parameters = 2 * (2 + 3) + 3
    assert text.splitlines() == [
        f"29 rows, 2 features, 3 classes (u {counts['u']}, v {counts['v']}, w {counts['w']})",
        f"2 kernels, all of which serve more than one class, full covariances, {n_parameters} parameters",
        f"converged in {model.n_iter_} passes",
        f"{100 * right:.1f} % of the training rows are classified correctly",
        f"{100 * accuracy:.1f} % of 13 held-out rows, log-loss {loss:.3f}, calibration error {error:.3f}",
        f"written into {tmp_path / 'm'}",
        "with more time: leave out --kernels, and cross-validation chooses",
    ]
    printed = json.loads(run(*fit, "--json").stdout)
    tested = printed.pop("held_out")
    assert (tested["n_rows"], tested["accuracy"]) == (13, pytest.approx(accuracy))
    assert tested["log_loss"] == pytest.approx(loss)
    classes = printed.pop("classes")
    assert [(each["label"], each["n_rows"]) for each in classes] == list(counts.items())
    assert_allclose([each["prior"] for each in classes], np.array(list(counts.values())) / 29)
    assert printed.pop("log_likelihood") == pytest.approx(model.log_likelihood_)
    assert printed.pop("training_accuracy") == pytest.approx(right)
    assert printed == {
        "model": str(tmp_path / "m"),
        "n_rows": 29,
        "n_unlabelled": 0,
        "kind": "SharedKernelClassifier",
        "features": ["a", "b"],
        "n_transformed": 0,
        "by_rank": False,
        "n_components": None,
        "n_members": None,
        "target": "kind",
        "covariance_type": "full",
        "n_parameters": n_parameters,
        "converged": True,
        "n_iter": model.n_iter_,
        "outlier_threshold": None,
        "n_kernels": [2],
        "n_shared": [both],
        "feature_sets": [["a", "b"]],
        "n_candidates": None,
        "reduction": None,
        "folds": None,
        "with_more_time": "leave out --kernels, and cross-validation chooses",
    }
    shares = model.weights_ @ (np.array(list(counts.values())) / 29)
    weights = [
        [f"k{k}", f"{shares[k]:.3f}", *(f"{weight:.3f}" for weight in model.weights_[k])]
        for k in np.argsort(-shares)
    ]
    text = re.sub("[▏▎▍▌▋▊▉█]", "", run("show", tmp_path / "m").stdout)
    assert cells(text) == [
        ["m:", "SharedKernelClassifier"],
        ["features", "2:", "a,", "b"],
        ["target", "kind"],
        ["kernels", *["2,", "all", "of", "which", "serve", "more", "than", "one", "class"]],
        ["covariances", "full"],
        ["parameters", str(n_parameters)],
        ["fit", *f"converged in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.2f}".split()],
        ["settings", "n_kernels=2,", "random_state=4"],
        ["class", "rows", "prior"],
        *([kind, str(n), f"{n / 29:.3f}"] for kind, n in counts.items()),
        ["kernel", "share", "u", "v", "w"],
        *weights,
    ]


OUTCOME: dict[str, Any] = {
    "n_rows": 30,
    "features": ["a"],
    "classes": [],
    "n_unlabelled": 0,
    "n_kernels": [1],
    "n_shared": [0],
    "n_components": None,
    "reduction": None,
    "covariance_type": "low_rank",
    "n_parameters": 8,
    "n_transformed": 0,
    "by_rank": False,
    "n_candidates": None,
    "n_members": None,
    "feature_sets": [["a"]],
    "converged": True,
    "n_iter": 1,
    "training_accuracy": None,
    "held_out": None,
    "folds": None,
    "model": None,
    "with_more_time": None,
}
PLAIN = ["30 rows, 1 feature", "1 kernel, low rank covariances, 8 parameters", "converged in 1 pass"]


def classes_of(*sizes: float) -> list[dict[str, Any]]:
    return [{"label": f"c{place}", "n_rows": size} for place, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("changes", "line", "expected"),
    [
        ({}, 0, PLAIN[0]),
        ({}, 1, PLAIN[1]),
        ({"classes": classes_of(3, 4.5)}, 0, "30 rows, 1 feature, 2 classes (c0 3, c1 4.5)"),
        ({"classes": classes_of(5, 5)}, 0, "30 rows, 1 feature, 2 classes (5 rows each)"),
        (
            {"classes": classes_of(*range(11)), "n_unlabelled": 3},
            0,
            "30 rows, 1 feature, 11 classes (c0 0, c1 1, c2 2, c3 3, c4 4, c5 5, c6 6, c7 7, c8 8, c9 9 ...)"
            ", 3 rows without a label",
        ),
        (
            {"classes": classes_of(1, 2), "n_kernels": [4], "n_shared": [1]},
            1,
            "4 kernels, 1 of which serves more than one class, low rank covariances, 8 parameters",
        ),
        (
            {"classes": classes_of(1, 2), "n_kernels": [4], "n_components": 2, "reduction": "discriminants"},
            1,
            "4 kernels, each of one class, in 2 discriminants, low rank covariances, 8 parameters",
        ),
        ({"n_components": 2}, 1, "1 kernel, in 2 components, low rank covariances, 8 parameters"),
        ({"n_transformed": 1, "by_rank": True}, 2, "1 of 1 feature transformed by rank, to normal scores"),
        (
            {"n_transformed": 1, "features": ["a", "b"]},
            2,
            "1 of 2 features transformed by a power (Yeo-Johnson), closer to normal",
        ),
        ({"n_candidates": 1}, 2, "chosen among 1 candidate"),
        (
            {"n_candidates": 7, "n_members": 3},
            2,
            "chosen among 7 candidates; the best of 3 models whose probabilities are averaged",
        ),
        (
            {"n_kernels": [2, 3], "feature_sets": [["a", "b"], ["c"]]},
            1,
            "2, 3 kernels, low rank covariances, 8 parameters",
        ),
        ({"n_kernels": [2, 3], "feature_sets": [["a", "b"], ["c"]]}, 2, "feature sets: a, b; c"),
        ({"converged": False, "n_iter": 9}, 2, "did not converge in 9 passes"),
        ({"training_accuracy": 0.5}, 3, "50.0 % of the training rows are classified correctly"),
        (
            {"held_out": {"accuracy": 0.25, "n_rows": 7.5, "log_loss": 1.5, "calibration_error": 0.125}},
            3,
            "25.0 % of 7.5 held-out rows, log-loss 1.500, calibration error 0.125",
        ),
        (
            {"folds": {"accuracy": 0.5, "by_fold": [0.75, 0.25, 0.5], "log_loss": 2.0}},
            3,
            "50.0 % by 3-fold cross-validation (25.0 to 75.0 %), log-loss 2.000",
        ),
        ({"model": "m.skmix"}, 3, "written into m.skmix"),
        ({"with_more_time": "wait"}, 3, "with more time: wait"),
    ],
)
def test_a_fit_in_sentences(changes: dict[str, Any], line: int, expected: str) -> None:
    assert _lines(OUTCOME) == PLAIN
    assert _lines(OUTCOME | changes)[line] == expected


def test_what_to_try_with_more_time() -> None:
    results = {
        "mean_fit_time": np.array([1.0, 2.0, 3.0]),
        "split0_test_score": np.array([0.1, 0.1, np.nan]),
        "split1_test_score": np.array([0.1, np.nan, np.nan]),
    }
    search = SimpleNamespace(n_untried_=4, cv_results_=results, time_limit=10.0)
    # Candidates took 2, 2 and 3 seconds; later ones are taken to need twice as long.
    assert _with_more_time(OUTCOME, search, ["--kernels"]) == (
        "--time-limit 30 would try up to 4 more candidates"
    )
    search = SimpleNamespace(n_untried_=1, cv_results_={"mean_fit_time": np.array([0.01])}, time_limit=0.1)
    assert _with_more_time(OUTCOME, search, []) == "--time-limit 1 would try up to 1 more candidate"
    search.n_untried_ = 0
    unfinished = OUTCOME | {"converged": False, "n_iter": 6}
    assert _with_more_time(unfinished, search, []) is None
    assert _with_more_time(unfinished, search, ["--kernels"]) == (
        "leave out --kernels, and cross-validation chooses"
    )
    assert _with_more_time(unfinished, None, ["--kernels"]) == (
        "--max-passes 12 would bring the fit closer to convergence"
    )
    assert _with_more_time(OUTCOME, None, []) is None


COUNTED = np.arange(12.0)
SHUFFLED = np.random.RandomState(0).permutation(100)[:12].astype(float)


@pytest.mark.parametrize(
    ("name", "values", "note"),
    [
        ("a", COUNTED + 3, "column 'a' numbers the rows from 3 to 14."),
        ("a", COUNTED[:10], "column 'a' numbers the rows from 0 to 9."),
        ("a", COUNTED[:9], None),
        ("a", COUNTED / 2, None),
        ("a", 2 * COUNTED, None),
        ("a", [*COUNTED[:11], np.nan], None),
        ("a", [*COUNTED[:11], 0.0], None),
        ("a", SHUFFLED, None),
        *(
            (name, SHUFFLED, f"column '{name}' has a different whole number in every row.")
            for name in ("id", "row id", "ID", "customerId", "the_key", "Index", "ids")
        ),
        *((name, SHUFFLED, None) for name in ("width", "idle", "monkey", "indexes", "acid")),
        ("id", [*SHUFFLED[:11], SHUFFLED[0]], None),
        ("id", [*SHUFFLED[:11], np.nan], "column 'id' has a different whole number in every row."),
        ("id", SHUFFLED[:9], None),
        ("id", SHUFFLED + 0.5, None),
        ("a", np.full(12, 5.5), "column 'a' is 5.5 in all rows that have a value."),
        ("a", [2.0, np.nan, 2.0], "column 'a' is 2 in all rows that have a value."),
        ("a", [0.1, 0.2, -999], "column 'a' is -999 in 1 row, far from all other values."),
        ("a", [0.1, 0.2, 9999, 9999], "column 'a' is 9999 in 2 rows, far from all other values."),
        # Far from the others is what is further away than they are from each other.
        ("a", [0.1, 0.2, -99, 999], "column 'a' is 999 in 1 row, far from all other values."),
        ("a", [0.1, 0.2, 99], None),
        ("a", [0.1, 0.2, -998], None),
        ("a", [0.1, 600.2, 999], None),
        ("a", [0.1, np.nan, 0.2, -99], "column 'a' is -99 in 1 row"),
    ],
)
def test_columns_that_deserve_a_word(name: str, values: Any, note: str | None) -> None:
    cli._notes.clear()
    table: Any = SimpleNamespace(
        X=np.array(values, dtype=float)[:, None], feature_names=[name], columns={name: None}
    )
    _check_columns(table)
    found = list(cli._notes)
    cli._notes.clear()
    assert len(found) == (note is not None)
    assert note is None or found[0].startswith(note)


def test_as_many_folds_as_rows_of_the_largest_class() -> None:
    rows = _Rows(np.zeros((6, 1)), np.repeat(["a", "b"], [2, 4]), np.ones(6, dtype=bool), None)
    parts = _folds(rows, 4, seed=0)
    assert sorted(place for _, held in parts for place in held.tolist()) == list(range(6))
    assert all(sorted([*training, *held]) == list(range(6)) for training, held in parts)
    with pytest.raises(ValueError, match="--folds 5 needs more rows: no class has more than 4"):
        _folds(rows, 5, seed=0)


def test_priors_may_be_zero() -> None:
    assert _parse_priors("v=1, u=0", ["u", "v"]) == [0.0, 1.0]
    assert _parse_priors("a=b=1,c=2", ["a=b", "c"]) == [1.0, 2.0]


# ---------------------------------------------------------------- evaluations and models


def test_all_that_evaluations_say(capsys: pytest.CaptureFixture[str]) -> None:
    true = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 0])
    taken = np.array([0, 1, 1, 1, 0, 2, 2, 0, 2, 0])
    weights = np.array([1, 2, 1, 0.25, 1, 1, 1, 3, 1, 1])
    sure = np.where(np.arange(10) % 2, 0.6, 0.8)
    probabilities = np.full((10, 3), ((1 - sure) / 2)[:, None])
    probabilities[np.arange(10), taken] = sure
    model = SimpleNamespace(
        classes_=np.array(["x", "y", "z"]),
        predict_proba=lambda rows: probabilities,
        score_samples=lambda rows: np.arange(10.0),
        threshold_=2.0,
    )
    print_evaluation(evaluate(model, np.zeros((10, 1)), model.classes_[true], weights))
    options: dict[str, Any] = {"sample_weight": weights, "average": None}
    measures = [score(true, taken, **options) for score in (precision_score, recall_score, jaccard_score)]
    confusion = np.zeros((3, 3))
    np.add.at(confusion, (true, taken), weights)
    sums = confusion.sum(axis=1)
    assert cells(capsys.readouterr().out) == [
        ["12.25", "rows,", "3", "classes"],
        ["accuracy", f"{np.trace(confusion) / 12.25:.4f}"],
        ["mean", "IoU", f"{measures[2].mean():.4f}"],
        ["log-loss", f"{log_loss(true, probabilities, sample_weight=weights):.4f}"],
        ["calibration", "error", f"{calibration_error(probabilities, true, sample_weight=weights):.4f}"],
        ["outliers", f"{3 / 12.25:.4f}"],
        ["class", "rows", "precision", "recall", "IoU"],
        *(
            [kind, f"{sums[place]:g}", *(f"{each[place]:.3f}" for each in measures)]
            for place, kind in enumerate("xyz")
        ),
        ["true", "\\", "predicted", "x", "y", "z"],
        *([kind, *(f"{n:g}" for n in confusion[place])] for place, kind in enumerate("xyz")),
    ]


def test_confusions_of_twelve_classes_and_more(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(n: int) -> list[list[str]]:
        codes = np.arange(n)
        taken = np.where(codes == 3, 5, codes)
        model: Any = SimpleNamespace(classes_=codes, predict_proba=lambda rows: np.eye(n)[taken])
        print_evaluation(evaluate(model, np.zeros((n, 1)), codes))
        return cells(capsys.readouterr().out)

    twelve = shown(12)
    assert twelve[1] == ["accuracy", f"{11 / 12:.4f}"]
    # A measure of zero is one, too.
    assert shown(3)[4] == ["calibration", "error", "0.0000"]
    assert twelve[-13] == ["true", "\\", "predicted", *map(str, range(12))]
    assert twelve[-9] == ["3", *("1" if code == 5 else "0" for code in range(12))]
    assert shown(13)[-2:] == [["most", "frequent", "mistakes", "taken", "for", "rows"], ["3", "5", "1"]]
    # Up to forty, there is a line for each.
    assert ["39", "1", "1.000", "1.000", "1.000"] in shown(40)
    some = shown(41)
    assert ["40", "1", "1.000", "1.000", "1.000"] not in some
    heading = some.index(["class", "rows", "precision", "recall", "IoU"])
    assert some[heading + 1] == ["3", "1", "0.000", "0.000"]
    assert " ".join(some[heading + 21]) == "These have the lowest IoU of 41 classes; --json has all."


DESCRIBED: dict[str, Any] = {
    "kind": "SharedKernelClassifier",
    "features": ["a", "b"],
    "n_transformed": 0,
    "by_rank": False,
    "n_components": None,
    "n_members": None,
    "target": None,
    "classes": [],
    "covariance_type": "low_rank",
    "n_parameters": 7,
    "feature_sets": [
        {
            "features": ["a"],
            "n_kernels": 1,
            "n_shared": 1,
            "weights": [[1.0]],
            "shares": [1.0],
            "degrees": None,
            "background": None,
        }
    ],
    "group_shift": None,
    "converged": True,
    "n_iter": 1,
    "log_likelihood": None,
    "outlier_threshold": None,
    "temperature": 1.0,
    "settings": {},
}
DESCRIPTION = [
    ["m:", "SharedKernelClassifier"],
    ["features", "2:", "a,", "b"],
    ["kernels", "1"],
    ["covariances", "low", "rank"],
    ["parameters", "7"],
    ["fit", "converged", "in", "1", "pass"],
    ["kernel", "share", "weight"],
    ["k0", "1.000", "1.000", "██████"],
]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"features": [f"x{i}" for i in range(13)]},
            "features x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11 ... (13 in all)",
        ),
        ({"n_transformed": 2}, "powers of 2 features (Yeo-Johnson)"),
        ({"n_transformed": 2, "by_rank": True}, "ranks of 2 features"),
        ({"n_components": 3}, "components 3"),
        ({"n_members": 4}, "averaged 4 models; the best one follows"),
        ({"target": "kind"}, "target kind"),
        ({"converged": False, "n_iter": 5}, "fit did not converge in 5 passes"),
        ({"log_likelihood": -1.234}, "fit converged in 1 pass, log-likelihood -1.23"),
        ({"outlier_threshold": -2.5}, "outliers log-density below -2.500"),
        ({"temperature": 1.25}, "temperature 1.25"),
        ({"settings": {"n_kernels": 2, "tol": 0.1}}, "settings n_kernels=2, tol=0.1"),
        ({"group_shift": 8.0}, "shifts means of each group, drawn to the common ones by 8 rows"),
        (
            {"feature_sets": [DESCRIBED["feature_sets"][0] | {"degrees": [3.0]}]},
            "kernels 1, Student’s t, 3 degrees of freedom",
        ),
        (
            {"feature_sets": [DESCRIBED["feature_sets"][0] | {"background": [0.1, 0.2]}]},
            "background 10 to 20 % of the rows of each class",
        ),
        ({"feature_sets": DESCRIBED["feature_sets"] * 2}, "feature set a"),
        ({"feature_sets": DESCRIBED["feature_sets"] * 2}, "kernels 1, 1"),
        (
            {"classes": [{"label": f"c{i}", "n_rows": i or None, "prior": i / 100} for i in range(22)]},
            "c19 19 0.190",
        ),
        (
            {"classes": [{"label": f"c{i}", "n_rows": i or None, "prior": i / 100} for i in range(22)]},
            "c0 0.000",
        ),
        (
            {"classes": [{"label": f"c{i}", "n_rows": i or None, "prior": i / 100} for i in range(22)]},
            "... and 2 more classes; --json has all.",
        ),
        (
            {"classes": [{"label": f"c{i}", "n_rows": 1.5, "prior": 0.5} for i in range(2)]},
            "kernels 1, which serves more than one class",
        ),
    ],
)
def test_a_model_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], line: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _print_model(DESCRIBED, "m")
    assert cells(capsys.readouterr().out) == DESCRIPTION
    changed = DESCRIBED | changes
    if changed["classes"]:
        changed["feature_sets"] = [
            changed["feature_sets"][0] | {"weights": [[1.0] * len(changed["classes"])]}
        ]
    _print_model(changed, "m")
    assert line in map(" ".join, cells(capsys.readouterr().out))


def test_bars_and_levels() -> None:
    assert [_bar(weight, False) for weight in (0.0, 1 / 48, 0.5, 0.75, 1.0)] == [
        "",
        "▏",
        "███",
        "████▌",
        "█" * 6,
    ]
    assert [_bar(weight, True) for weight in (0.0, 1 / 6, 0.5, 1.0)] == ["", "#", "###", "######"]
    levels = [_level(weight, False) for weight in (0.0, 0.01, 0.125, 0.126, 0.2, 0.5, 0.6, 0.99, 1.0)]
    assert levels == list(" ▁▁▂▂▄▅██")
    assert [_level(weight, True) for weight in (0.0, 0.01, 0.5, 1.0)] == list(" .+@")


@pytest.mark.parametrize(
    ("width", "n_classes", "headings", "cell"),
    [
        # 15 for the first two columns; then 14 for each class, or the name and two, or one.
        (57, 3, ["c0", "c1", "c2"], "1.000 ██████  0.000         0.000"),
        (56, 3, ["c0", "c1", "c2"], "█"),
        (27, 3, ["c0", "c1", "c2"], "█"),
        (80, 30, ["a place for each of all classes"], "█" * 30),
        (80, 64, ["a place for each of all classes"], "█" * 64),
        (80, 65, ["a place for each of the first 64 classes"], "█" * 64),
    ],
)
def test_weights_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    n_classes: int,
    headings: list[str],
    cell: str,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    weights = np.zeros((25, n_classes))
    weights[4, : 1 if n_classes == 3 else n_classes] = 1.0
    shares = np.full(25, 0.01)
    shares[4], shares[9] = 0.5, 0.26
    group = {"weights": weights.tolist(), "shares": shares.tolist()}
    _print_weights(group, [f"c{place}" for place in range(n_classes)])
    *lines, last = [line for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert " ".join(" ".join(lines[:-20]).split()) == " ".join(["kernel", "share", *headings])
    assert " ".join(lines[-20].split()) == " ".join(["k4", "0.500", *cell.split()])
    assert lines[-19].split()[:2] == ["k9", "0.260"]
    assert lines[-18].split()[:2] == ["k0", "0.010"]
    assert last == "... and 5 more kernels; --json has all."


# ---------------------------------------------------------------- shared by all commands


def test_numbers_in_words() -> None:
    assert [cli.count(number) for number in (0, 3, 7.0, 2.5, 1 / 3, 1e7)] == [
        *("0", "3", "7", "2.5", "0.333333", "10000000")
    ]
    assert [cli.counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [cli.counted(n, "pass", "passes") for n in (1, 2)] == ["1 pass", "2 passes"]
    assert cli.parse_number("--x", "auto", least=1) == "auto"
    assert cli.parse_number("--x", "2.5", least=0) == 2.5
    assert repr(cli.parse_number("--x", "3", least=3, whole=True)) == "3"
    for given, whole in (("2", False), ("3.5", True), ("x", False), ("nan", False), ("inf", False)):
        with pytest.raises(typer.BadParameter, match="a whole number" if whole else "a number") as refused:
            cli.parse_number("--x", given, least=3, whole=whole)
        assert refused.value.param_hint == "--x"
        assert "of at least 3." in str(refused.value)


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    cli.print_json({"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": "é"})
    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {"a": [None, None, None, 1.5], "b": "é"}


def test_what_is_reserved_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    for aside in (True, False):
        with cli.text_aside(aside):
            cli.say("words")
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == (("", "words\n") if aside else ("words\n", ""))


@contextmanager
def noting(message: str) -> Iterator[None]:
    cli.note(message)
    yield


@pytest.mark.parametrize(
    ("error", "codes", "message"),
    [
        (ValueError("no"), (1, 2), "no"),
        (OverflowError("too large"), (1, 2), "too large"),
        (FileNotFoundError(2, "No such file", "x.csv"), (1, 1), "cannot read x.csv: No such file"),
        (OSError("odd"), (1, 1), "odd"),
        (
            MemoryError(),
            (1, 1),
            "rows and kernels do not fit in memory; see docs/guide/larger-than-memory.md.",
        ),
        (ImportError("pip install it"), (1, 1), "pip install it"),
        (KeyboardInterrupt(), (130, 130), "interrupted; nothing was written."),
    ],
)
def test_errors_are_a_line_and_a_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, codes: tuple[int, int], message: str
) -> None:
    for code, options in zip(codes, ((), (cli.WRONG_USE,)), strict=True):
        with pytest.raises(typer.Exit) as ended, cli.guarded(*options), noting("before"):
            raise error
        assert ended.value.exit_code == code
        assert capsys.readouterr().err == f"Error: {message}\nNote: before\n"


def test_warnings_for_users_are_notes_once(capsys: pytest.CaptureFixture[str]) -> None:
    with cli.guarded():
        warnings.warn("look", UserWarning, stacklevel=1)
        warnings.warn("look", UserWarning, stacklevel=1)
        warnings.warn("inside", DeprecationWarning, stacklevel=1)
        warnings.warn("X does not have valid feature names, but", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "Note: look\n"
    # Those of an earlier command are gone.
    with cli.guarded():
        cli.note("new")
    assert capsys.readouterr().err == "Note: new\n"
    with pytest.raises(BrokenPipeError), cli.guarded():
        raise BrokenPipeError
    with pytest.raises(BrokenPipeError), cli.failing("cannot write"):
        raise BrokenPipeError
    capsys.readouterr()
    with pytest.raises(typer.Exit) as ended, cli.failing("cannot write m"):
        raise PermissionError(13, "Permission denied", "m")
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "Error: cannot write m: Permission denied\n"


def test_tables_have_names_left_and_numbers_right() -> None:
    def shown(**options: Any) -> list[str]:
        console = Console(file=io.StringIO(), width=60)
        console.print(cli.table(["name", "value"], [["a", "1"], ["long\nname", "100"]], **options))
        return console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    heading, _, one, other = (line.rstrip() for line in shown())
    assert (heading, one, other) == ("name        value", "a               1", "long\\nname    100")
    heading, _, one, *_ = (line.rstrip() for line in shown(wrap=True))
    assert (heading, one) == ("name        value", "a           1")
    assert len(shown(lines=True)) == len(shown()) + 1


def test_progress_tells_steps_shares_and_the_first_part_of_messages() -> None:
    with watching(Console(file=io.StringIO()), 60.0) as watch:
        with watch.steps("passes", 5) as report:
            report("pass 1, log-likelihood 2")
            report("pass 3, log-likelihood 2", steps=2)
            (task,) = watch.tasks
            assert (task.description, task.completed, task.total) == ("passes", 3, 5)
            assert task.fields["message"] == "pass 3"
            report("a\nb", share=0.25)
            assert (task.completed, task.total, task.fields["message"]) == (0.25, 1, "a\\nb")
        assert watch.tasks == []
        with watch.steps("passes", None) as report:
            report()
            (task,) = watch.tasks
            assert (task.completed, task.total) == (1, None)
            assert TimeLeft().render(task).plain == ""
        with watch.share("reading") as done:
            done(0.5)
            (task,) = watch.tasks
            assert (task.description, task.completed, task.total) == ("reading", 0.5, 1.0)
            assert TimeLeft().render(task).plain.startswith("at most ")
            assert TimeLeft().render(task).plain.endswith(" left")


def test_notes_of_one_command_are_not_those_of_the_next(tmp_path: Path) -> None:
    FRAME.assign(flat=1.0).to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "-t", "kind", "--kernels", 1, "--outliers", 0, "-o", tmp_path / "m")
    assert "'flat'" in said(run(*fit))
    assert said(run(*fit, "--drop", "flat")) == ""
    assert skmix.load(tmp_path / "m").feature_names_in_.tolist() == ["a", "b"]
