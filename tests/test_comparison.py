"""The comparison of classifiers and the study of sharing: fair to all, measured once, counted by hand."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from comparison import (
    FIELD,
    HALVES,
    SETS_BY_PART,
    Contender,
    DataSet,
    Outcome,
    SeparateMixtures,
    Settings,
    Store,
    TrueDensities,
    contenders,
    draw,
    find_data,
    gain_table,
    half_of,
    key_of,
    load_data,
    mean_ranks,
    run_cell,
    run_comparison,
    sharing_tables,
    simulate,
    standings,
    summarise,
)
from comparison.classifiers import MostAccurate, OfPackage, installed
from comparison.data import PARTS
from comparison.plots import gains
from comparison.running import measure, split
from comparison.sharing import PAIRS, _contenders, few_rows
from comparison.tables import corrected_standard_error, make_tables
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

QUICK = contenders(["LDA", "naive Bayes"])
OUTCOME = Outcome("set", "LDA", 0, 3, 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


@pytest.fixture(scope="module")
def iris() -> DataSet:
    return load_data("iris")


# ---------------------------------------------------------------- classifiers


def test_other_classifiers_are_not_weakened() -> None:
    """A weaker version of another classifier would flatter ours."""
    made = {each.name: each.make(3) for each in FIELD}
    searched = {name: model for name, model in made.items() if isinstance(model, GridSearchCV)}
    for model in searched.values():
        assert isinstance(model.cv, StratifiedKFold)
        assert (model.cv.n_splits, model.cv.shuffle, model.cv.random_state) == (3, True, 3)
    assert {name: model.param_grid for name, model in searched.items()} == {
        "QDA": {"shrinkage": ["auto", 0.5, 0.1, 0.01, 0.0001]},
        "logistic regression": {"C": [0.01, 0.1, 1, 10, 100]},
        "nearest neighbours": {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]},
        "random forest": {"max_features": ["sqrt", 0.5], "min_samples_leaf": [1, 5]},
        "gradient boosting": {"max_iter": [30, 100, 300], "max_leaf_nodes": [5, 31]},
        "MLP": {"alpha": [1.0, 0.01, 0.0001], "hidden_layer_sizes": [(50,), (200,)]},
    }
    assert searched["random forest"].estimator.n_estimators == 300
    assert searched["logistic regression"].estimator.max_iter >= 1000
    assert searched["MLP"].estimator.max_iter >= 500
    assert set(made["RBF SVM"].C) >= {1.0, 10.0, 100.0, 1000.0}
    assert set(made["RBF SVM"].gamma) >= {0.1, 1.0, 10.0}
    assert made["separate mixtures"].max_components >= 5
    assert made["LDA"].shrinkage == "auto"
    # Of equally accurate choices a search takes the one with the best probabilities.
    accuracies, losses = np.array([0.8, 0.9, 0.9 + 1e-12, np.nan]), np.array([-0.1, -0.3, -0.4, -0.2])
    assert MostAccurate()({"mean_test_accuracy": accuracies, "mean_test_neg_log_loss": losses}) == 1


@pytest.mark.parametrize("contender", FIELD, ids=lambda each: each.name)
def test_preparation_fits_the_classifier(contender: Contender) -> None:
    with_gaps, complete = contender.pipeline(0, True), contender.pipeline(0, False)
    takes_gaps = contender.ours or contender.name in ("gradient boosting", "CatBoost")
    assert ("simpleimputer" in with_gaps.named_steps) is not takes_gaps
    assert "simpleimputer" not in complete.named_steps
    # Distances and penalties depend on units; trees and ours do not, and RealMLP scales features itself.
    scaled = not contender.ours and contender.name not in (
        *("random forest", "gradient boosting", "CatBoost", "RealMLP"),
    )
    assert ("standardscaler" in complete.named_steps) is scaled
    with config_context(print_changed_only=False):
        text = with_gaps.__repr__(N_CHAR_MAX=1_000_000)
        assert pickle.loads(pickle.dumps(contender)).pipeline(0, True).__repr__(N_CHAR_MAX=1_000_000) == text
    # Keys of results contain this text: an address in memory would differ in every process.
    assert "0x" not in text


def test_separate_mixtures_of_one_component_are_discriminant_analysis() -> None:
    random = np.random.RandomState(0)
    X = random.normal(size=(304, 2)) @ [[1, 0.8], [0, 0.6]]
    y = np.repeat([0, 1, 2], [200, 100, 4])
    X[y == 1] = X[y == 1] @ [[1, 0], [-1, 1]] + 2
    model = SeparateMixtures(max_components=1, regularisations=(0.0, 1e-9), random_state=0).fit(X, y)
    joint = []
    for label in range(3):
        own = X[y == label]
        covariance = np.cov(own.T, bias=True)
        # Too few rows for cross-validation: variances alone.
        covariance = np.diag(own.var(axis=0)) if len(own) < 6 else covariance
        joint.append(len(own) / len(X) * multivariate_normal(own.mean(axis=0), covariance).pdf(X))
    expected = np.transpose(joint) / np.sum(joint, axis=0)[:, None]
    assert_allclose(model.predict_proba(X), expected, atol=1e-6)


# What makes classifiers slow.
SMALLER: dict[str, dict[str, Any]] = {
    "shared kernels": {"n_kernels": [2]},
    "separate mixtures": {"max_components": 1},
    "random forest": {"estimator__n_estimators": 10},
    "gradient boosting": {"param_grid": {"max_iter": [30]}},
    "MLP": {"param_grid": {"hidden_layer_sizes": [(50,)]}},
    "CatBoost": {"settings": {"iterations": 30, "verbose": False, "allow_writing_files": False}},
    "RealMLP": {"settings": {"n_epochs": 30, "n_threads": 1, "device": "cpu"}},
}
# Classifiers whose packages are installed.
PRESENT = [each for each in FIELD if each.version or not each.package]


def smaller(contender: Contender) -> Contender:
    """Return a classifier that is quicker to fit."""
    own = SMALLER.get(contender.name, {})
    return replace(contender, make=lambda seed: contender.make(seed).set_params(**own))


@pytest.mark.slow
def test_the_whole_field_runs_with_gaps(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    X = random.normal(size=(60, 3)) + 3.0 * np.repeat([[0], [1]], 30, axis=0)
    X[random.uniform(size=X.shape) < 0.05] = np.nan
    data = DataSet("gaps", X, np.repeat(["no", "yes"], 30))
    store = Store(tmp_path / "cells.jsonl")
    outcomes = run_comparison([data], [*map(smaller, PRESENT)], Settings(n_repeats=1), store)
    assert [each.classifier for each in outcomes] == [each.name for each in PRESENT]
    assert [each.failure for each in outcomes] == [""] * len(PRESENT)
    assert all(each.error < 0.3 and each.n_parameters > 0 for each in outcomes)


class Peer(ClassifierMixin, BaseEstimator):
    """A classifier that names the first class, not the most probable; it validates with rows it is told."""

    told: ClassVar[list[Any]] = []

    def __init__(self, random_state: int = 0, share: float = 0.2) -> None:
        self.random_state, self.share = random_state, share

    def fit(self, X: np.ndarray, y: np.ndarray, val_idxs: np.ndarray | None = None) -> Peer:
        if self.share > 1.0:
            raise RuntimeError("no such share")
        self.classes_ = np.unique(y)
        self.told.append(val_idxs)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        weights = np.arange(1, 1 + len(self.classes_), dtype=np.float32)
        return np.tile(weights / weights.sum(), (len(X), 1))

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full((len(X), 1), self.classes_[0])


class Undecided(Peer):
    """The same, with labels (n,) as scikit-learn has them."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return super().predict(X)[:, 0]


def test_classifiers_of_other_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y, groups = np.zeros((40, 1)), np.tile([0, 1], 20), np.repeat(np.arange(10), 4)
    model = OfPackage(__name__, "Peer", {"share": 0.5}, random_state=7).fit(X, y, groups)
    assert (model.model_.share, model.model_.random_state) == (0.5, 7)
    assert model.predict(X).shape == (40,)
    # Where rows come in groups, two of ten groups validate; without groups, the package decides.
    assert set(np.bincount(groups[Peer.told.pop()])) == {0, 4}
    model.fit(X, y)
    assert Peer.told.pop() is None
    with pytest.raises(ValueError, match="RuntimeError: no such share"):
        model.set_params(settings={"share": 2.0}).fit(X, y)
    # A package that is missing is said to be, and its classifier is left out.
    absent = Contender("peer", False, lambda seed: Peer(seed), package="no-such-package")
    assert absent.version == ""
    assert installed((QUICK[0], absent)) == (QUICK[0],)
    assert capsys.readouterr().out == "peer is left out: no-such-package is not installed.\n"


# ---------------------------------------------------------------- cells


def test_rows_of_a_group_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one sample resemble each other: a classifier that has seen some of them looks too good."""
    random = np.random.RandomState(0)
    groups = np.repeat(np.arange(8), 15)
    whole = DataSet("samples", random.normal(size=(120, 2)), random.randint(3, size=120), groups)
    # Two groups have rows of a fourth class: they are not held out together.
    data = replace(whole, y=np.where((groups < 2) & (random.uniform(size=120) < 0.5), 3, whole.y))
    splits = [split(data, repeat, Settings()) for repeat in range(10)]
    for training, held in splits:
        assert set(groups[training]).isdisjoint(groups[held])
        assert (len(set(groups[held])), len(training) + len(held)) == (2, 120)
        assert set(data.y[training]) == {0, 1, 2, 3}
    assert len({tuple(held) for _, held in splits}) > 5
    with pytest.raises(ValueError, match="no groups can be held out without losing a class"):
        split(DataSet("two", data.X[:30], groups[:30], groups[:30]), 0, Settings())
    # Choices within the training rows hold out whole groups too.
    checked = set()
    for kind in (StratifiedGroupKFold, GroupKFold):
        plain = kind.split

        def spied(self: Any, X: Any, y: Any = None, groups: Any = None, plain: Any = plain) -> Any:
            checked.add(type(self))
            return plain(self, X, y, groups)

        monkeypatch.setattr(kind, "split", spied)
    names = ["QDA", "RBF SVM", "separate mixtures", "shared kernels"]
    for contender in contenders(names):
        checked.clear()
        assert run_cell(whole, smaller(contender), 0, Settings()).failure == ""
        assert checked == {GroupKFold if contender.name == names[2] else StratifiedGroupKFold}


def test_gated_cells_are_grouped_by_sample(tmp_path: Path) -> None:
    sample, label = np.repeat([1, 2, 3], 50), np.tile(np.repeat([0, 1, 2], [20, 25, 5]), 3)
    columns, populations = np.array(["CD3"]), np.array(["ungated", "T cells", "rare"])
    X = np.arange(150.0)[:, None]
    (tmp_path / "below").mkdir()
    np.savez(
        tmp_path / "below" / "multicenter.npz",
        **{"X": X, "label": label, "sample": sample, "columns": columns, "populations": populations},
    )
    found = find_data("multicenter", tmp_path)
    # A gate of fewer than ten cells of a sample is left out; cells in no gate are a class.
    assert found.groups is not None
    assert (found.name, len(found.y), set(found.y)) == ("multicenter", 135, {"ungated", "T cells"})
    rows = np.round(5.0 * np.sinh(found.X[:, 0])).astype(int)
    assert_array_equal(found.groups, sample[rows] - 1)
    assert_array_equal(found.y, populations[label[rows]])
    few = find_data("multicenter", tmp_path, max_rows=60)
    assert (few.name, few.X.shape, len(few.groups)) == ("multicenter[60]", (60, 1), 60)
    assert found.digest() != DataSet(found.name, found.X, found.y).digest()


def test_a_cell_is_what_anyone_would_compute(iris: DataSet) -> None:
    # Two features, so that there are mistakes.
    data, settings = DataSet("iris", iris.X[:, :2], iris.y), Settings(seed=3)
    outcome = run_cell(data, QUICK[0], 1, settings)
    training, held = split(data, 1, settings)
    assert_array_equal(np.sort(np.concatenate([training, held])), np.arange(150))
    assert (outcome.n_train, outcome.n_test) == (len(training), len(held)) == (112, 38)
    scaler = StandardScaler().fit(data.X[training])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    model.fit(scaler.transform(data.X[training]), data.y[training])
    probabilities = model.predict_proba(scaler.transform(data.X[held]))
    assert outcome.error == pytest.approx(np.mean(probabilities.argmax(axis=1) != data.y[held]))
    assert outcome.error > 0.05
    assert outcome.log_loss == pytest.approx(-np.log(probabilities[np.arange(38), data.y[held]]).mean())
    assert outcome.n_parameters == 3 * 2 + 2 * 3 // 2 + 2
    assert outcome.failure == ""
    # The error is that of the class that a classifier names, here the first, not of the most probable one.
    held = np.r_[0:20, 100:105]
    named = measure(iris, Contender("undecided", False, Undecided), 0, training, held, 0)
    assert named.error == pytest.approx(5 / 25)


def test_what_is_stored_or_known_is_not_made_again(iris: DataSet, tmp_path: Path) -> None:
    made: list[Outcome] = []
    key = key_of(iris, QUICK[1], Settings(1))
    known = replace(run_cell(iris, QUICK[1], 0, Settings(1)), error=0.125, key=key)
    store = Store(tmp_path / "cells.jsonl")
    first = run_comparison([iris], QUICK, Settings(1), store, made.append, known=[known])
    assert [each.classifier for each in made] == ["LDA"]
    assert first[1].error == 0.125
    again = run_comparison([iris], QUICK, Settings(n_repeats=2), store, made.append)
    assert [(each.classifier, each.repeat) for each in made[1:]] == [("LDA", 1), ("naive Bayes", 1)]
    assert again[:2] == first
    with pytest.raises(ValueError, match="different names, got iris, iris"):
        run_comparison([iris, iris], QUICK, Settings(), store)


def test_keys_depend_on_everything_that_changes_an_outcome(
    iris: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forest(n_trees: int, seed: int) -> RandomForestClassifier:
        return RandomForestClassifier(n_trees, random_state=seed)

    few, more = (Contender("forest", False, partial(forest, n_trees)) for n_trees in (2, 3))
    other = DataSet("iris", iris.X + 1.0, iris.y)
    swapped = DataSet("iris", iris.X, iris.y[::-1])
    cells = [(iris, few, Settings(1)), (iris, more, Settings(1)), (other, few, Settings(1))]
    cells += [(swapped, few, Settings(1)), (iris, few, Settings(1, 0.4)), (iris, few, Settings(1, seed=1))]
    assert len({key_of(*cell) for cell in cells}) == len(cells)
    # Only ours depends on the library's code: hours of other classifiers would be lost at every change.
    before = {each.name: key_of(iris, each, Settings()) for each in FIELD}
    monkeypatch.setattr("comparison.running.library", lambda: "another version")
    after = {each.name: key_of(iris, each, Settings()) for each in FIELD}
    ours = ["shared kernels", "shared kernels, default"]
    assert [name for name in before if before[name] != after[name]] == ours
    # Classifiers of other packages depend on the version of the package.
    monkeypatch.setattr(Contender, "version", "another")
    last = {each.name: key_of(iris, each, Settings()) for each in FIELD}
    assert [name for name in after if after[name] != last[name]] == ["CatBoost", "RealMLP"]


def test_data_by_name_and_file(tmp_path: Path) -> None:
    assert load_data("seven_segment").X.shape == (1000, 13)
    few, whole = load_data("digits", max_rows=200), load_data("digits")
    assert (few.name, few.X.shape) == ("digits[200]", (200, 64))
    labels = {row.tobytes(): label for row, label in zip(whole.X, whole.y, strict=True)}
    assert [labels[row.tobytes()] for row in few.X] == few.y.tolist() != whole.y[:200].tolist()
    text = "x,label\n1,a\n2,a\nNA,b\n4,b\n5,alone\n"
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = find_data("packed", tmp_path)
    assert (found.name, found.y.tolist(), found.has_gaps) == ("packed", ["a", "a", "b", "b"], True)
    assert_array_equal(found.X, [[1.0], [2.0], [np.nan], [4.0]])
    names = [name for half in HALVES.values() for name in half]
    assert len(set(names)) == len(names) == 21
    halves = {"wine": "development", "letter[4000]": "judging", "euroflow[4000]": "samples", "moon": ""}
    assert {name: half_of(name) for name in halves} == halves


def test_wrong_use_is_refused(iris: DataSet, tmp_path: Path) -> None:
    (tmp_path / "gaps.csv").write_text("x,label\n1,a\n2,\n3,b\n4,\n")
    for call, message in (
        (lambda: Settings(test_share=1.0), "test_share must lie between 0 and 1, got 1"),
        (lambda: contenders(["oracle"]), "there is no classifier 'oracle'; there are shared kernels"),
        (lambda: load_data("moon"), "no data set or file 'moon'; by name there are iris"),
        (lambda: find_data("moon", tmp_path), r"there is no moon.csv or moon.csv.gz in"),
        (lambda: load_data(str(tmp_path / "gaps.csv")), "row 2 of 4 has no label; 2 rows have none"),
        (lambda: split(DataSet("tiny", iris.X[::50], iris.y[::50]), 0, Settings()), "too few to test on"),
        (lambda: simulate("pool-1", 5, 0), "pool, parts, apart, and how many .* from 2 on"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ---------------------------------------------------------------- tables


def made_up(values: dict[str, dict[str, list[float]]]) -> list[Outcome]:
    """Return outcomes of errors by data set and classifier; log-losses are twice the errors."""
    return [
        replace(OUTCOME, data=data, classifier=name, repeat=repeat, error=error, log_loss=2 * error)
        for data, own in values.items()
        for name, errors in own.items()
        for repeat, error in enumerate(errors)
    ]


def test_means_standard_errors_and_ranks() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.2])
    # Splits overlap: with a third as many test rows as training rows, 1/4 becomes 1/4 + 1/3.
    plain = values.std(ddof=1) / 2
    assert corrected_standard_error(values, 1 / 3) == pytest.approx(plain * np.sqrt(7 / 3))
    outcomes = made_up(
        {
            # Only splits that all classifiers have count.
            "a": {"LDA": [0.1, 0.3], "QDA": [0.2, 0.2, 0.8], "MLP": [0.3, 0.3]},
            "b": {"LDA": [0.4], "QDA": [0.3], "MLP": [0.1]},
            "only some": {"LDA": [0.0]},
        }
    )
    summaries = summarise(outcomes)
    assert [each.values["error"] for each in summaries[:3]] == pytest.approx([0.2, 0.2, 0.3])
    assert mean_ranks(summaries) == {"LDA": 2.25, "QDA": 1.75, "MLP": 2.0}
    # The table of ranks has the parts of the comparison, and the best on top.
    parts = {"wine": [0.2, 0.1, 0.3], "iris": [0.3, 0.1, 0.2], "euroflow[4000]": [0.1, 0.2, 0.3]}
    names = ("LDA", "QDA", "MLP")
    ranked = {data: {name: [e] for name, e in zip(names, own, strict=True)} for data, own in parts.items()}
    ranks, *_ = make_tables(made_up(ranked))
    columns = [f"{measure}, {part}" for measure in ("error", "log-loss") for part in ("all", *SETS_BY_PART)]
    assert ranks.headings == ("classifier", *columns)
    assert ranks.lines[0] == ("QDA", "1.33", "1.00", "1.00", "2.00", "1.33", "1.00", "1.00", "2.00")
    with pytest.raises(ValueError, match="no data set has outcomes of all"):
        mean_ranks(summarise(made_up({"a": {"LDA": [0.1]}, "b": {"QDA": [0.1]}})))


def test_far_behind_the_best_unless_trees_are_far_ahead_of_all() -> None:
    for own, trees, others, ratio, far_behind in (
        (0.125, 0.10, 0.10, 1.25, False),
        (0.1251, 0.10, 0.10, 1.251, True),
        # Trees are far ahead of the SVM, and shared kernels are near it, or are not.
        (0.13, 0.10, 0.13, 1.3, False),
        (0.20, 0.10, 0.13, 2.0, True),
        (0.0, 0.0, 0.1, 1.0, False),
        (0.1, 0.2, 0.0, np.inf, True),
    ):
        errors = {"shared kernels": [own], "CatBoost": [trees], "RBF SVM": [others]}
        # Ours by default is not another classifier.
        errors["shared kernels, default"] = [0.0]
        (found,) = standings(made_up({"a": errors}))
        assert found.ratio == pytest.approx(ratio)
        assert found.far_behind is far_behind


# ---------------------------------------------------------------- where sharing pays


def test_few_rows_are_parts_of_more_and_never_tested_on() -> None:
    data = draw("pool-5", 0, 0)
    small, large = few_rows(data, 2, 0, 0), few_rows(data, 100, 0, 0)
    assert small is not None
    assert large is not None
    assert set(small[0]) < set(large[0])
    assert_array_equal(np.bincount(data.y[small[0]]), [2] * 5)
    assert_array_equal(small[1], large[1])
    assert len(large[1]) == 2000
    assert not set(large[0]) & set(large[1])
    assert few_rows(data, 101, 0, 0) is None
    # A simulated draw is new and can be repeated.
    assert_array_equal(simulate("pool-5", len(data.y) // 5, 0, 0).data.X, data.X)
    for repeat, seed in ((1, 0), (0, 1)):
        assert not np.array_equal(draw("pool-5", repeat, seed).X, data.X)


@pytest.mark.parametrize(("kind", "n_users"), [("pool", 6), ("apart", 1), ("parts", 6)])
def test_true_densities_are_those_the_rows_came_from(kind: str, n_users: int) -> None:
    simulated = simulate(f"{kind}-6", 4, 0)
    parts = PARTS if kind == "parts" else [list(range(10))]
    X, y = simulated.data.X, np.array([*"abcdef"])[simulated.data.y]
    found = TrueDensities(simulated.pools).fit(X, y)
    for row, probabilities in zip(X[::5], found.predict_proba(X)[::5], strict=True):
        joint = np.ones(6)
        for pool, part in zip(simulated.pools, parts, strict=True):
            kernels = zip(pool.means, pool.covariances, strict=True)
            joint *= np.array([multivariate_normal(*each).pdf(row[part]) for each in kernels]) @ pool.weights
        assert_allclose(probabilities, joint / joint.sum(), rtol=1e-8)
    assert found.score(X, y) > 0.5
    for pool in simulated.pools:
        assert_allclose(pool.weights.sum(axis=0), 1.0)
        assert np.count_nonzero(pool.weights, axis=1).max() == n_users


@pytest.mark.parametrize("name", ["pool-3", "parts-3"])
def test_pairs_of_classifiers_differ_in_sharing_alone(name: str) -> None:
    """Otherwise the gain from sharing would be that of something else, or nothing at all."""
    made = _contenders(name, simulate(name, 4, 0), 7)
    assert ("shared kernels by parts" in made) is name.startswith("parts")
    for ours, own in PAIRS:
        if ours in made:
            one, two = (made[each].make(0).get_params() for each in (ours, own))
            assert (one.pop("kernels"), two.pop("kernels")) == ("shared", "own")
            assert one == two
            assert (one["random_state"], one["n_members"]) == (7, 1)
            assert (PARTS in one.values()) is ours.endswith("by parts")


def test_gain_is_the_difference_within_draws() -> None:
    errors = {"shared kernels": (0.10, 0.20), "own kernels": (0.13, 0.21), "true densities": (0.05, 0.05)}
    points = [
        replace(OUTCOME, data="a", n_train=15, classifier=name, repeat=repeat, error=error)
        for name, both in errors.items()
        for repeat, error in enumerate(both)
    ]
    shown, _, gain = sharing_tables(points)
    # Differences of 3 and 1 points: mean 2, standard deviation root 2, over the root of 2 draws.
    assert gain.lines == (("a", "5", "shared kernels", "2", "2.0 ± 1.0", "2 : 0", "0.000 ± 0.000"),)
    # 10 and 20: mean 15, standard deviation root 50, over the root of 2.
    assert shown.lines[0] == ("a", "5", "15.0 ± 5.0", "17.0 ± 4.0", "5.0 ± 0.0")
    assert_allclose(gains(points, "error")["a", "shared kernels"][5], [3.0, 1.0])
    # A draw in which either failed does not count, and a mean over the others would be too optimistic.
    failed = [replace(points[0], failure="no"), *points[1:]]
    assert gain_table(failed).lines[0][3:5] == ("1", "1.0")
    assert sharing_tables(failed)[0].lines[0][2] == "1 of 2 failed"
