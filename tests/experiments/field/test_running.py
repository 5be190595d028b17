"""Cells of the comparison: what they measure, and that they are made once; data by name and file."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from skmix.experiments.field import (
    FIELD,
    HALVES,
    Contender,
    DataSet,
    Outcome,
    Settings,
    comparison,
    contenders,
    find_data,
    half_of,
    key_of,
    load_data,
    run_cell,
    run_comparison,
)
from skmix.experiments.field.comparison import measure, settings_of, split
from skmix.experiments.field.data import seven_segments
from skmix.paper import DIGIT_FEATURES, digit_features, harness, make_seven_segment_digits
from skmix.paper.harness import Store, cell_key

QUICK = contenders(["LDA", "naive Bayes"])


class Failing:
    """A classifier whose fit fails."""

    classes_ = np.arange(3)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Failing:
        raise ValueError('all fits failed:\n  File "/somewhere/here.py", line 1\n\n not today\n')


class Undecided(ClassifierMixin, BaseEstimator):
    """A classifier that names the first class, whatever its probabilities are."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Undecided:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.tile([0.1, 0.1, 0.8], (len(X), 1))

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X), dtype=int)


@pytest.fixture(scope="module")
def iris() -> DataSet:
    return load_data("iris")


def test_a_cell_is_what_anyone_would_compute(iris: DataSet) -> None:
    # Two features, so that there are mistakes.
    iris, settings = DataSet("iris", iris.X[:, :2], iris.y), Settings(seed=3)
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
    # Of ten bins of confidence, the distance between confidence and accuracy, by rows.
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == iris.y[held]
    bins = [(low <= sure) & (sure < low + 0.1 + 1e-9 * (low > 0.85)) for low in np.arange(10) / 10]
    assert sum(map(np.sum, bins)) == 38
    gaps = [abs(np.sum(sure[each]) - np.sum(right[each])) for each in bins]
    assert outcome.calibration_error == pytest.approx(sum(gaps) / 38)
    assert (outcome.data, outcome.classifier, outcome.repeat, outcome.n_classes) == ("iris", "LDA", 1, 3)
    assert (outcome.processor, outcome.settings) == (harness.processor(), "")
    assert outcome.error > 0.05
    assert outcome.n_parameters == 3 * 2 + 2 * 3 // 2 + 2
    assert outcome.failure == ""


def test_the_error_is_that_of_the_class_that_a_classifier_names(iris: DataSet) -> None:
    uneven, settings = DataSet("uneven", iris.X[:120], iris.y[:120]), Settings(seed=3)
    _, held = split(uneven, 0, settings)
    outcome = run_cell(uneven, Contender("undecided", False, lambda seed: Undecided()), 0, settings)
    assert outcome.failure == ""
    # The third class, the most probable, has fewer rows than the first.
    assert outcome.error == pytest.approx(np.mean(uneven.y[held] != 0))


class Clocked(Undecided):
    """A classifier whose fit takes 5 seconds of a clock, its probabilities 2 and its classes 1."""

    now = 100.0

    def fit(self, X: np.ndarray, y: np.ndarray) -> Undecided:
        Clocked.now += 5.0
        self.best_params_ = {"C": 0.123456, "kernel": "rbf"}
        return super().fit(X, y)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        Clocked.now += 2.0
        return super().predict_proba(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        Clocked.now += 1.0
        return super().predict(X)


def test_times_are_those_of_the_fit_and_of_the_probabilities(
    iris: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison.time, "process_time", lambda: Clocked.now)
    outcome = run_cell(iris, Contender("clocked", False, lambda seed: Clocked()), 0, Settings())
    assert (outcome.fit_seconds, outcome.predict_seconds) == (5.0, 2.0)
    assert outcome.settings == "C 0.1235, kernel rbf"


def test_classes_without_training_rows_have_no_probability(iris: DataSet) -> None:
    training, held = np.r_[0:40, 100:140], np.r_[40:60, 140:150]
    outcome = measure(iris, QUICK[0], 0, training, held, 0)
    assert (outcome.failure, outcome.n_classes) == ("", 3)
    # The ten rows of the second class are wrong, all others are far from each other.
    assert outcome.error == pytest.approx(10 / 30)


def test_probabilities_that_are_not_finite_are_a_failure(iris: DataSet) -> None:
    class Broken(Undecided):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.full((len(X), 3), np.nan)

    outcome = run_cell(iris, Contender("broken", False, lambda seed: Broken()), 0, Settings())
    assert outcome.failure == "ValueError: probabilities that are not finite"
    assert outcome.log_loss == pytest.approx(np.log(3), abs=0.01)


def test_seeds_of_classifiers_depend_on_their_name_the_data_the_repeat_and_the_seed(iris: DataSet) -> None:
    seeds: list[int] = []

    def seen(seed: int) -> Undecided:
        seeds.append(seed)
        return Undecided()

    other = DataSet("other", iris.X, iris.y)
    for data, name, repeat, seed in (
        *((iris, "a", 0, 0), (other, "a", 0, 0), (iris, "b", 0, 0), (iris, "a", 1, 0), (iris, "a", 0, 1)),
        (iris, "a", 0, 0),
    ):
        run_cell(data, Contender(name, False, seen), repeat, Settings(seed=seed))
    assert seeds[-1] == seeds[0]
    assert len(set(seeds)) == 5


def test_a_digest_is_one_of_all_values_and_labels(iris: DataSet) -> None:
    swapped = iris.y.copy()
    swapped[[0, 149]] = swapped[[149, 0]]
    changed = iris.X.copy()
    changed[149, 3] += 1e-12
    others = [
        DataSet("iris", iris.X, swapped),
        DataSet("iris", changed, iris.y),
        DataSet("iris", iris.X.reshape(300, 2), np.repeat(iris.y, 2)),
    ]
    assert len({each.digest() for each in (iris, *others)}) == 4
    assert DataSet("another name", np.asfortranarray(iris.X), iris.y.copy()).digest() == iris.digest()


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
    # Of many small classes, as many rows as classes are held out.
    small = DataSet("small", iris.X[:24], np.arange(24) % 8)
    assert len(split(small, 0, Settings())[1]) == 8
    with pytest.raises(ValueError, match="too few to test on"):
        split(DataSet("tiny", iris.X[::50], iris.y[::50]), 0, Settings())


def test_a_failure_guesses_by_the_frequencies_of_training_rows(iris: DataSet) -> None:
    training, held = np.arange(0, 110), np.arange(110, 150)
    failing = Contender("failing", False, lambda seed: Failing())
    outcome = measure(iris, failing, 0, training, held, 0)
    # All held-out rows are of the third class, which has 10 of 110 training rows.
    assert outcome.log_loss == pytest.approx(-np.log(10 / 110))
    assert outcome.error == 1.0


def test_held_out_rows_do_not_change_what_is_learnt(iris: DataSet) -> None:
    """Garbage among the held-out rows changes what is said of them, and of no other row."""
    training, held = np.arange(0, 150, 2), np.arange(1, 150, 2)
    poisoned = DataSet(iris.name, iris.X.copy(), iris.y.copy())
    poisoned.X[held[::2]] += 50.0
    poisoned.y[held[::2]] = (poisoned.y[held[::2]] + 1) % 3
    seen = []

    class Witness(LinearDiscriminantAnalysis):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            found = super().predict_proba(X)
            seen.append(found[1::2])
            return found

    contender = Contender("witness", False, lambda seed: Witness())
    for data in (iris, poisoned):
        assert measure(data, contender, 0, training, held, 0).failure == ""
    assert_array_equal(seen[0], seen[1])


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


def test_known_outcomes_are_used_where_their_key_is_the_same(iris: DataSet, tmp_path: Path) -> None:
    settings, made = Settings(n_repeats=2), []
    key = key_of(iris, QUICK[0], settings)
    known = replace(run_cell(iris, QUICK[0], 1, settings), error=0.125, key=key)
    other = replace(known, repeat=0, key="of other code")
    with Store(tmp_path / "cells.sqlite") as store:
        found = run_comparison([iris], QUICK[:1], settings, store, made.append, known=[known, other])
    assert [each.repeat for each in made] == [0]
    assert [(each.repeat, each.key) for each in found] == [(0, key), (1, key)]
    assert found[0].error != 0.125
    assert found[1].error == 0.125


def test_only_our_outcomes_depend_on_the_code_of_the_library(
    iris: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of other classifiers would be lost at every change otherwise."""

    def keys() -> dict[str, str]:
        return {each.name: key_of(iris, each, Settings()) for each in FIELD}

    before = keys()
    monkeypatch.setattr(harness, "library", lambda *files: "another version")
    after = keys()
    assert [name for name in before if before[name] != after[name]] == ["shared kernels"]


def test_an_outcome_is_written_in_few_digits_without_empty_texts() -> None:
    outcome = Outcome("a", "LDA", 0, 2, 30, 10, 1 / 3, 2 / 3, 0.05, 1.0, 0.1, 20, settings="C 1")
    written = outcome.to_dict()
    assert (written["error"], written["log_loss"]) == (0.333333, 0.666667)
    assert "failure" not in written
    assert Outcome.from_dict(written) == replace(outcome, error=0.333333, log_loss=0.666667)


def test_halves_are_apart_and_known_with_and_without_a_number_of_rows() -> None:
    names = [name for half in HALVES.values() for name in half]
    assert len(set(names)) == len(names) == 21
    assert [half_of(name) for name in ("wine", "letter[4000]", "letters", "moon")] == [
        *("development", "judging", "", "")
    ]


def test_edited_settings_of_a_classifier_are_another_cell(iris: DataSet, tmp_path: Path) -> None:
    """The same name with other settings must not find the results of before."""

    def key(contender: Contender) -> str:
        return cell_key(settings_of("comparison", iris, contender, seed=0))

    few, more = (Contender("forest", False, partial(_forest, n_trees)) for n_trees in (2, 3))
    assert key(few) != key(more)
    # However long the text of a classifier is, all of it counts.
    long = [Contender("long", False, partial(_undecided, f"{'x' * 999}{end}{'x' * 999}")) for end in "ab"]
    assert key(long[0]) != key(long[1])
    # Where values are missing, medians replace them.
    gaps = DataSet("iris", np.where(iris.X > 7.0, np.nan, iris.X), iris.y)
    assert "SimpleImputer" in settings_of("comparison", gaps, few)["classifier"]["model"]
    assert "SimpleImputer" not in settings_of("comparison", iris, few)["classifier"]["model"]
    # Outcomes depend on the rows that are held out and on the seed.
    shares = (Settings(1), Settings(1, test_share=0.4), Settings(1, seed=1))
    assert len({key_of(iris, few, each) for each in shares}) == 3
    with Store(tmp_path / "cells.sqlite") as store:
        found = [run_comparison([iris], [each], Settings(1), store)[0] for each in (few, more)]
    assert found[0].n_parameters < found[1].n_parameters


def _undecided(name: str, seed: int) -> Any:
    return GridSearchCV(Undecided(), {name: [1]})


def _forest(n_trees: int, seed: int) -> RandomForestClassifier:
    return RandomForestClassifier(n_trees, random_state=seed)


# What makes classifiers slow; that they have all of it is tested in test_classifiers.py.
SMALLER: dict[str, dict[str, Any]] = {
    "shared kernels": {"n_kernels": [2], "cv": 2},
    "separate mixtures": {"max_components": 1},
    "random forest": {"estimator__n_estimators": 10},
    "gradient boosting": {"param_grid": {"max_iter": [30]}},
    "MLP": {"param_grid": {"hidden_layer_sizes": [(50,)]}},
}


def smaller(contender: Contender) -> Contender:
    def make(seed: int) -> Any:
        return contender.make(seed).set_params(**SMALLER.get(contender.name, {}))

    return replace(contender, make=make)


@pytest.mark.slow
def test_the_whole_field_runs_with_gaps(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    X = random.normal(size=(60, 3)) + 3.0 * np.repeat([[0], [1]], 30, axis=0)
    X[random.uniform(size=X.shape) < 0.05] = np.nan
    data = DataSet("gaps", X, np.repeat(["no", "yes"], 30))
    with Store(tmp_path / "cells.sqlite") as store:
        outcomes = run_comparison([data], [smaller(each) for each in FIELD], Settings(n_repeats=1), store)
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
    # They are rows of the set with their own labels, drawn from all of it.
    whole = load_data("digits")
    labels = {row.tobytes(): label for row, label in zip(whole.X, whole.y, strict=True)}
    assert [labels[row.tobytes()] for row in few.X] == few.y.tolist()
    assert len({row.tobytes() for row in few.X}) == 200
    assert few.X.tolist() != whole.X[:200].tolist()
    assert load_data("iris", max_rows=150).name == "iris"
    (tmp_path / "small.csv").write_text("x,label\n1,a\n2,a\nNA,b\n4,b\n5,alone\n")
    small = load_data(str(tmp_path / "small.csv"))
    assert (small.name, small.y.tolist(), small.has_gaps) == ("small", ["a", "a", "b", "b"], True)
    assert_array_equal(small.X, [[1.0], [2.0], [np.nan], [4.0]])
    (tmp_path / "gaps.csv").write_text("x,label\n1,a\n2,\n3,b\n4,\n")
    with pytest.raises(ValueError, match=r"gaps.csv: row 2 of 4 has no label; 2 rows have none"):
        load_data(str(tmp_path / "gaps.csv"))
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
    with pytest.raises(ValueError, match="test_share must lie between 0 and 1, got 0"):
        Settings(test_share=0.0)
    with pytest.raises(ValueError, match="there is no classifier 'oracle'; there are shared kernels"):
        contenders(["oracle"])
    with pytest.raises(ValueError, match="different names, got iris, iris"):
        run_comparison([iris, iris], QUICK, Settings(), Store(tmp_path / "cells.sqlite"))


def test_tables_are_found_in_a_folder_and_below_compressed_or_not(tmp_path: Path) -> None:
    assert find_data("iris", None).X.shape == (150, 4)
    assert find_data("digits", tmp_path, max_rows=50).name == "digits[50]"
    text = "x,label\n1,a\n2,a\n3,b\n4,b\n"
    (tmp_path / "below" / "more").mkdir(parents=True)
    (tmp_path / "below" / "plain.csv").write_text(text)
    (tmp_path / "below" / "more" / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain", "packed"):
        found = find_data(name, tmp_path)
        assert (found.name, found.X.ravel().tolist(), found.y.tolist()) == (name, [1, 2, 3, 4], [*"aabb"])
    assert find_data("plain", tmp_path, max_rows=4).X.shape == (4, 1)
    for folder in (tmp_path, None):
        with pytest.raises(ValueError, match=r"there is no moon.csv or moon.csv.gz in"):
            find_data("moon", folder)


def test_digits_have_the_papers_features_without_the_first_quadrant() -> None:
    found = seven_segments(3, np.random.RandomState(4))
    images, labels = make_seven_segment_digits(3, random_state=np.random.RandomState(4))
    kept = [column for column, name in enumerate(DIGIT_FEATURES) if name != "q1"]
    assert_array_equal(found.X, digit_features(images)[:, kept])
    assert_array_equal(found.y, labels)
