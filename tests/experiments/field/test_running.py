"""Cells of the comparison: what they measure, and that they are made once; data by name and file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import StandardScaler

from skmix.experiments.field import (
    FIELD,
    Contender,
    DataSet,
    Outcome,
    Settings,
    contenders,
    load_data,
    run_cell,
    run_comparison,
)
from skmix.experiments.field.comparison import settings_of, split
from skmix.experiments.harness import Store, cell_key

QUICK = contenders(["LDA", "naive Bayes"])


class Failing:
    """A classifier whose fit fails."""

    classes_ = np.arange(3)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Failing:
        raise ValueError("not today")


@pytest.fixture(scope="module")
def iris() -> DataSet:
    return load_data("iris")


def test_a_cell_is_what_anyone_would_compute(iris: DataSet) -> None:
    settings = Settings(seed=3)
    outcome = run_cell(iris, QUICK[0], 1, settings)
    training, held = split(iris, 1, settings)
    assert (outcome.n_train, outcome.n_test) == (len(training), len(held)) == (112, 38)
    scaler = StandardScaler().fit(iris.X[training])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    model.fit(scaler.transform(iris.X[training]), iris.y[training])
    assert outcome.error == pytest.approx(1 - model.score(scaler.transform(iris.X[held]), iris.y[held]))
    probabilities = model.predict_proba(scaler.transform(iris.X[held]))
    own = probabilities[np.arange(38), iris.y[held]]
    assert outcome.log_loss == pytest.approx(-np.log(own).mean())
    assert outcome.n_parameters == 3 * 4 + 4 * 5 // 2 + 2
    assert outcome.failure == ""


def test_splits_depend_on_seed_name_and_repeat_alone(iris: DataSet) -> None:
    training, held = split(iris, 0, Settings())
    assert_array_equal(np.sort(np.concatenate([training, held])), np.arange(150))
    assert np.ptp(np.bincount(iris.y[held])) <= 1
    assert_array_equal(split(iris, 0, Settings(n_repeats=9))[1], held)
    others = [
        split(iris, 1, Settings()),
        split(iris, 0, Settings(seed=1)),
        split(DataSet("other", iris.X, iris.y), 0, Settings()),
    ]
    for _, other in others:
        assert set(other) != set(held)
    with pytest.raises(ValueError, match="too few to test on"):
        split(DataSet("tiny", iris.X[::50], iris.y[::50]), 0, Settings())


def test_a_failure_is_an_outcome(iris: DataSet) -> None:
    failing = Contender("failing", False, lambda seed: Failing())
    outcome = run_cell(iris, failing, 0, Settings())
    assert outcome.failure == "ValueError: not today"
    # A guess by frequency, where all classes are as frequent.
    assert outcome.error == pytest.approx(2 / 3, abs=0.02)
    assert outcome.log_loss == pytest.approx(np.log(3), abs=0.01)


def test_what_is_stored_is_not_made_again(iris: DataSet, tmp_path: Path) -> None:
    made: list[Outcome] = []
    with Store(tmp_path / "cells.sqlite") as store:
        first = run_comparison([iris], QUICK, Settings(n_repeats=1), store)
        again = run_comparison([iris], QUICK, Settings(n_repeats=2), store, made.append)
        assert [(each.classifier, each.repeat) for each in made] == [("LDA", 1), ("naive Bayes", 1)]
        assert [(each.classifier, each.repeat) for each in again] == [
            ("LDA", 0),
            ("naive Bayes", 0),
            ("LDA", 1),
            ("naive Bayes", 1),
        ]
        assert again[:2] == first
        # Other rows under the same name, or another seed, are other cells.
        run_comparison([DataSet("iris", iris.X + 1.0, iris.y)], QUICK[:1], Settings(1), store, made.append)
        run_comparison([iris], QUICK[:1], Settings(1, seed=1), store, made.append)
        assert len(made) == 4


def test_edited_settings_of_a_classifier_are_another_cell(iris: DataSet, tmp_path: Path) -> None:
    """The same name with other settings must not find the results of before."""

    def key(contender: Contender) -> str:
        return cell_key(settings_of("comparison", iris, contender, seed=0))

    few, more = (Contender("forest", False, partial(_forest, n_trees)) for n_trees in (2, 3))
    assert key(few) != key(more)
    with Store(tmp_path / "cells.sqlite") as store:
        found = [run_comparison([iris], [each], Settings(1), store)[0] for each in (few, more)]
    assert found[0].n_parameters < found[1].n_parameters


def _forest(n_trees: int, seed: int) -> RandomForestClassifier:
    return RandomForestClassifier(n_trees, random_state=seed)


@pytest.mark.slow
def test_the_whole_field_runs_with_gaps(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    X = random.normal(size=(60, 3)) + 3.0 * np.repeat([[0], [1]], 30, axis=0)
    X[random.uniform(size=X.shape) < 0.05] = np.nan
    data = DataSet("gaps", X, np.repeat(["no", "yes"], 30))
    with Store(tmp_path / "cells.sqlite") as store:
        outcomes = run_comparison([data], FIELD, Settings(n_repeats=1), store)
    assert [each.classifier for each in outcomes] == [each.name for each in FIELD]
    assert [each.failure for each in outcomes] == [""] * len(FIELD)
    assert all(each.error < 0.3 for each in outcomes)
    assert "kernels" in outcomes[0].settings


def test_data_by_name_and_file(tmp_path: Path) -> None:
    segments = load_data("seven_segment")
    assert segments.X.shape == (1000, 13)
    few = load_data("digits", max_rows=200)
    assert (few.name, few.X.shape) == ("digits[200]", (200, 64))
    assert_array_equal(load_data("digits", max_rows=200).X, few.X)
    (tmp_path / "small.csv").write_text("x,label\n1,a\n2,a\nNA,b\n4,b\n5,alone\n")
    small = load_data(str(tmp_path / "small.csv"))
    assert (small.name, small.y.tolist(), small.has_gaps) == ("small", ["a", "a", "b", "b"], True)
    with pytest.raises(ValueError, match="no data set or file 'moon'; by name there are iris"):
        load_data("moon")
    (tmp_path / "small.csv").write_text("x,label\n1,a\n2,a\n5,alone\n")
    with pytest.raises(ValueError, match="fewer than two classes"):
        load_data(str(tmp_path / "small.csv"))


def test_wrong_settings_are_refused(iris: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        Settings(n_repeats=0)
    with pytest.raises(ValueError, match="test_share must lie between 0 and 1, got 1"):
        Settings(test_share=1.0)
    with pytest.raises(ValueError, match="there is no classifier 'oracle'; there are shared kernels"):
        contenders(["oracle"])
    with pytest.raises(ValueError, match="different names, got iris, iris"):
        run_comparison([iris, iris], QUICK, Settings(), Store(tmp_path / "cells.sqlite"))
