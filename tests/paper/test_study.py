"""The study: its cells, data and runs, what each method does, and the paper's illustration."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics
from sklearn.exceptions import ConvergenceWarning
from synthetic import make_run, results_of

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.model import fit_each
from skmix.paper import (
    DIGIT_FEATURES,
    Settings,
    StudyError,
    generator,
    illustration,
    make_data,
    run_batch,
    run_illustration,
    run_one,
    run_study,
    study_cells,
    study_results,
)
from skmix.paper.data import StudyData, features_of, fingerprint
from skmix.paper.example import IllustrationRecord
from skmix.paper.methods import confusion_of, fit_again, fit_batch, predict, predict_published, scores_of
from skmix.paper.rows import Rows
from skmix.paper.study import batches, data_sets, fit_beyond, margins
from skmix.paper.variants import METHODS, VARIANTS, Cell, Method
from skmix.theory import Parameters

CELLS = [Cell("3D", 10, "robust", 7), Cell("3x1D", 10, "class-wise", 7), Cell("3D", 12, "published", 7)]


def test_the_study_has_the_papers_cells() -> None:
    cells = [cell for cell in study_cells() if cell.data_set == 0]
    main = [cell for cell in cells if cell.n_kernels == 10]
    assert len(main) == 10 * 3
    assert {cell.n_runs for cell in main} == {500}
    sweep = [cell for cell in cells if cell.n_kernels != 10]
    assert len(sweep) == 4 * 6 * 3
    assert {cell.n_runs for cell in sweep} == {100}
    assert {cell.variant for cell in sweep} == {"3D", "6D", "9D", "10D"}
    few = study_cells(7, ["9D", "4D"], ["robust"])
    assert {(cell.variant, cell.method) for cell in few} == {("4D", "robust"), ("9D", "robust")}
    assert {cell.n_runs for cell in few} == {7}
    # The class-wise start is compared on four further data sets; too few runs, or one of the methods alone,
    # have nothing to compare.
    further = [cell for cell in study_cells() if cell.data_set]
    assert {(cell.method, cell.n_kernels, cell.n_runs, cell.data_set) for cell in further} == {
        (method, 10, 100, number) for method in ("robust", "class-wise") for number in (1, 2, 3, 4)
    }
    assert len({cell.variant for cell in further}) == 10
    assert not [cell for cell in (*study_cells(19), *study_cells(methods=["robust"])) if cell.data_set]
    assert {cell.n_runs for cell in study_cells(20) if cell.data_set} == {20}


def test_variants_have_the_papers_features() -> None:
    """Ten entries of the principal axis, then four quadrants, of which the first is left out."""
    masses = [11, 12, 13]
    assert {name: (each.columns, each.dithered) for name, each in VARIANTS.items()} == {
        "3D": ([masses], False),
        "3x1D": ([[11], [12], [13]], False),
        "4D": ([[*masses, 3]], False),
        "5D": ([[*masses, 3, 4]], False),
        "2Dx3D": ([[3, 4], masses], False),
        "6D": ([[*masses, 1, 3, 4]], False),
        "3Dx3D": ([masses, [1, 3, 4]], False),
        "9D": ([[*masses, 1, 2, 3, 4, 5, 6]], False),
        "10D": ([list(range(10))], True),
        "13D": ([[*range(10), *masses]], True),
    }
    # Of the paper: a hundred training and 250 test images of each digit, at most a hundred passes.
    assert Settings() == Settings(0, "all", 100, 250, 100)


def test_every_setting_is_part_of_the_name_of_a_file(
    data: StudyData, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("4D", 10, "robust", 3)

    def name(cell: Cell, settings: Settings, data: StudyData = data) -> str:
        (batch,) = batches([cell], settings, [data], Path("runs"))
        return batch.path.name.rsplit("_")[-1]

    other_cells = ({"variant": "3D"}, {"n_kernels": 12}, {"method": "class-wise"})
    other_settings = ({"seed": 9}, {"dither": "paper"}, {"max_iter": 7})
    names = {name(cell, settings), name(cell, settings, replace(data, test_images=255 - data.test_images))}
    names |= {name(replace(cell, **each), settings) for each in other_cells}
    names |= {name(cell, replace(settings, **each)) for each in other_settings}
    assert len(names) == 8
    assert name(replace(cell, n_runs=9), settings) == name(cell, settings)
    monkeypatch.setattr("skmix.paper.study.library", lambda: "edited code")
    assert name(cell, settings) not in names


def test_the_library_is_its_version_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skmix.paper.study import library

    monkeypatch.setattr("skmix.__file__", str(tmp_path / "__init__.py"))
    before = {library.__wrapped__()}
    effective = ("engine/loop.py", "_core/pass.cpp", "model/files.py", "features.py", "paper/rows.py")
    for number, name in enumerate((*effective, "cli/fit.py", "paper/page.py")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
        before.add(library.__wrapped__())
        assert len(before) == min(number + 2, 6), name
    assert all(each.startswith("0.1.0+") for each in before)


def test_numbers_are_the_same_on_any_machine() -> None:
    """MT19937 seeded with the SHA-256 digest."""
    digest = hashlib.sha256(b"skmix study\n7\nrun\n3D\n10\nrobust\n2").digest()
    bits = np.random.MT19937(np.random.SeedSequence(int(digest.hex(), 16)))
    expected = np.random.RandomState(bits).uniform(size=3)
    assert generator(7, "run", "3D", 10, "robust", 2).uniform(size=3).tolist() == expected.tolist()


# ---------------------------------------------------------------- files of runs


def test_batches_and_files_do_not_change_a_bit(
    tmp_path: Path, data: StudyData, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    few = [replace(cell, n_runs=3) for cell in CELLS]
    run_study(batches(few, settings, [data], tmp_path), [data], progress=made.append)
    assert made == [3, 3, 3]
    # More runs of the same cells: the others are made, in batches of another size.
    planned = batches(CELLS, settings, [data], tmp_path)
    runs = run_study(planned, [data], progress=made.append)
    assert made[3:] == [4, 4, 4]
    # What was being written when a process was killed is never read; a file that is damaged is made again.
    (tmp_path / "3D.csv.1.part").write_text("half a l")
    planned[0].path.write_text("")
    again = run_study(planned, [data], progress=made.append)
    assert made[6:] == [7]
    pd.testing.assert_frame_equal(again, runs)
    for batch in planned:
        cell = batch.cell
        alone = run_batch(data, cell.variant, cell.n_kernels, cell.method, range(7), settings)
        stored = again.query("variant == @cell.variant and n_kernels == @cell.n_kernels")
        expected = alone.assign(data_set=0)[list(stored)]
        pd.testing.assert_frame_equal(stored.reset_index(drop=True), expected, check_exact=True)
    # Fewer runs are some of those that are stored.
    assert len(run_study(batches(few, settings, [data], tmp_path), [data])) == 9


def die(*_: object) -> None:
    os._exit(1)


@pytest.mark.slow
def test_a_dead_worker_is_reported_in_words(
    tmp_path: Path, data: StudyData, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skmix.paper.study._run", die)
    planned = batches(CELLS, settings, [data], tmp_path)
    with pytest.raises(StudyError, match="Finished runs are stored"):
        run_study(planned, [data], 2)


# ---------------------------------------------------------------- results


def test_further_data_sets_have_the_next_seeds(tmp_path: Path, settings: Settings) -> None:
    cells = [Cell("3D", 10, method, 20, number) for number in (0, 1) for method in ("robust", "class-wise")]
    data = data_sets(cells, settings)
    runs = run_study(batches(cells, settings, data, tmp_path), data)
    compared = margins(runs, settings.seed)
    assert compared["seed"].tolist() == [5, 6]
    further = runs.query("data_set == 1 and method == 'robust'")
    assert compared["best_robust"][1] == further["accuracy"].max()
    alone = run_one(data[1], "3D", 10, "robust", 3, replace(settings, seed=6))
    assert further.iloc[3][alone.index].tolist()[:6] == alone.tolist()[:6]
    results = study_results(settings, data[0], runs.query("method == 'robust'"))
    (best,) = results.best.values()
    first = runs.query("data_set == 0 and method == 'robust'")
    assert (best.run, best.accuracy) == (first["accuracy"].argmax(), first["accuracy"].max())
    assert results.beyond["ours"].tolist() == [True, False, True, False]


def test_the_best_run_is_a_finite_one_and_margins_compare_means_with_the_best(
    data: StudyData, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = np.linspace(0.6, 0.9, 30)
    lost = {"robust": {0: 0.5, 1: 0.2}, "class-wise": {3: 0.3}}
    runs = results_of(
        [
            make_run(
                method=method, run=r, accuracy=lost[method].get(r, each), reason="overflow" if r == 29 else ""
            )
            for method in lost
            for r, each in enumerate(accuracies)
        ],
        data,
    ).runs
    monkeypatch.setattr("skmix.paper.study.fit_beyond", lambda data, name, seed: {"name": name})
    results = study_results(settings, data, runs)
    assert [best.run for best in results.best.values()] == [28, 28]
    (margin,) = margins(runs, settings.seed).itertuples()
    mean = 0.75 - (accuracies[3] - 0.3) / 30
    assert (margin.best_robust, margin.mean_class_wise) == (0.9, pytest.approx(mean))
    assert margin.shortfall == pytest.approx(0.9 - mean)
    deviations = runs.query("method == 'class-wise'")["accuracy"] - mean
    assert margin.standard_error == pytest.approx(np.sqrt((deviations**2).sum() / 29 / 30))
    assert (margin.seed, margin.variant, margin.n_runs) == (settings.seed, "3D", 30)
    # The first runs count, as many on every data set; with fewer than twenty there is no comparison.
    monkeypatch.setattr("skmix.paper.study.DATA_SET_RUNS", 20)
    (margin,) = margins(runs, 0).itertuples()
    assert (margin.n_runs, margin.best_robust) == (20, accuracies[19])
    assert margins(runs.query("run < 19"), 0).empty
    assert margins(runs.query("method == 'robust'"), 0).empty


# ---------------------------------------------------------------- data


def test_data_follow_the_seed_part_by_part(data: StudyData, settings: Settings) -> None:
    again = make_data(settings)
    assert_array_equal(again.test_dithered, data.test_dithered)
    assert fingerprint(again) == fingerprint(data)
    sizes = [np.bincount(labels).tolist() for labels in (data.train_labels, data.test_labels)]
    assert sizes == [[30] * 10, [10] * 10]
    other = make_data(replace(settings, seed=settings.seed + 1))
    assert (other.train_images != data.train_images).any()
    assert fingerprint(other) != fingerprint(data)
    more = make_data(replace(settings, train_per_digit=31))
    assert_array_equal(more.test_images, data.test_images)
    # As many images of each part would be the same ones if the parts shared a generator.
    alike = make_data(replace(settings, train_per_digit=10))
    assert not np.array_equal(alike.train_images, alike.test_images)
    same = alike.train_features == alike.test_features
    assert not np.array_equal(alike.train_dithered[same], alike.test_dithered[same])
    # Everything that runs depend on is in the digest.
    changed = []
    for field in fields(data):
        values = getattr(data, field.name).copy()
        values.flat[-1] += 1
        changed.append(replace(data, **{field.name: values}))
    assert len({fingerprint(each) for each in (data, *changed)}) == len(changed) + 1


@pytest.mark.slow
def test_shared_kernels_on_principal_components_read_the_images() -> None:
    """At the paper's number of training images; the paper's features stay behind for every learner."""
    data = make_data(Settings(seed=11, train_per_digit=100, test_per_digit=50))
    assert fit_beyond(data, "shared kernels, principal components")["accuracy"] >= 0.995
    for name in ("shared kernels, paper's features", "support vector machine, paper's features"):
        assert 0.9 < fit_beyond(data, name)["accuracy"] < 0.99


# ---------------------------------------------------------------- methods


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["2Dx3D", "10D"])
def test_a_run_alone_has_the_bits_it_has_in_company(
    data: StudyData, settings: Settings, name: str, method: Method
) -> None:
    together = run_batch(data, name, 10, method, range(7), settings)
    some = run_batch(data, name, 10, method, [6, 2], settings)
    pd.testing.assert_frame_equal(some, together.loc[[6, 2]].reset_index(drop=True), check_exact=True)
    alone = run_one(data, name, 10, method, 2, settings)
    pd.testing.assert_series_equal(alone, together.loc[2], check_exact=True, check_names=False)
    assert together["log_likelihood"].nunique() > 1


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("robust", {"init": "uniform", "stopping": "per-class", "tol": 0.1}),
        ("class-wise", {"init": "class", "tol": 1e-4}),
    ],
)
def test_our_methods_are_mixtures(
    data: StudyData, settings: Settings, method: Method, given: dict[str, Any]
) -> None:
    """A run is what a `SharedKernelClassifier` of the product form finds, and predicts what it predicts."""
    (fitted,) = fit_batch(data, "2Dx3D", 10, method, [3], settings)
    used = [3, 4, 11, 12, 13]
    model = SharedKernelClassifier(
        10,
        feature_sets=[[0, 1], [2, 3, 4]],
        covariance_prior=None,
        max_iter=settings.max_iter,
        random_state=generator(settings.seed, "run", "2Dx3D", 10, method, 3),
        **given,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.train_dithered[:, used], data.train_labels)
    for found, own in zip(fitted.mixtures, model.models_, strict=True):
        assert_allclose(found.means, own.means_, atol=1e-10)
        assert_allclose(found.covariances, own.covariances_, atol=1e-10)
        assert_allclose(found.weights, own.weights_, atol=1e-10)
    assert fitted.n_iter == max(own.n_iter_ for own in model.models_)
    assert fitted.converged == all(own.converged_ for own in model.models_)
    assert fitted.log_likelihood == pytest.approx(sum(own.log_likelihood_ for own in model.models_))
    expected = model.predict(data.test_dithered[:, used])
    rows = [Rows(data.test_dithered[:, columns].T) for columns in VARIANTS["2Dx3D"].columns]
    for decide in (predict, predict_published):
        assert_array_equal(decide(rows, fitted.mixtures), expected)


def test_other_mixtures_are_not_fitted_as_a_batch() -> None:
    for setting in ({"covariance_type": "diag"}, {"tail": "t"}, {"covariance_prior": 1.0}):
        model = SharedKernelMixture(**{"covariance_type": "full", "covariance_prior": None} | setting)
        (name,) = setting
        with pytest.raises(ValueError, match=f"fit_each needs {name}="):
            fit_each(model, np.ones((9, 1)), np.zeros(9), [0])


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.RandomState(seed)
    # The second seed never predicts most of the classes.
    truth, predicted = random.randint(10, size=200), random.randint([10, 3, 10][seed], size=200)
    confusion = confusion_of(truth, predicted)
    assert_array_equal(confusion, metrics.confusion_matrix(truth, predicted))
    accuracy, mean_iou = scores_of(confusion)
    assert accuracy == metrics.accuracy_score(truth, predicted)
    assert mean_iou == pytest.approx(metrics.jaccard_score(truth, predicted, average="macro"), abs=1e-15)


def test_dither_follows_the_settings(data: StudyData, settings: Settings) -> None:
    paper = Settings(seed=settings.seed, dither="paper")
    masses = [column for column, name in enumerate(DIGIT_FEATURES) if name.startswith("q")]
    axis = [column for column, name in enumerate(DIGIT_FEATURES) if name.startswith("pca")]
    for mine, raw, noisy in zip(
        features_of(data, "13D", paper),
        (data.train_features, data.test_features),
        (data.train_dithered, data.test_dithered),
        strict=True,
    ):
        assert_array_equal(mine[:, masses], raw[:, masses])
        assert_array_equal(mine[:, axis], noisy[:, axis])
        zero = np.abs(raw) <= 1e-10
        assert zero.any()
        assert_array_equal(raw != noisy, zero)
    assert_array_equal(features_of(data, "3D", paper)[0], data.train_features)
    everywhere = features_of(data, "3D", Settings(dither="all"))
    assert_array_equal(everywhere[1], data.test_dithered)


def test_a_run_is_fitted_again_with_the_names_of_its_features(data: StudyData, settings: Settings) -> None:
    again = fit_again(data, "2Dx3D", 10, "class-wise", 4, settings)
    first, second = again.mixtures
    assert first.feature_names_in_.tolist() == ["pca 4", "pca 5"]
    assert second.feature_names_in_.tolist() == ["q2", "q3", "q4"]
    (fitted,) = fit_batch(data, "2Dx3D", 10, "class-wise", [4], settings)
    for found, expected in zip(again.mixtures, fitted.mixtures, strict=True):
        assert_array_equal(found.weights_, expected.weights)
        assert_array_equal(found.covariances_, expected.covariances)
    run = run_one(data, "2Dx3D", 10, "class-wise", 4, settings)
    assert again.accuracy == run["accuracy"] == np.trace(again.confusion) / 100


def test_a_class_beyond_underflow_can_still_win() -> None:
    """The first feature set makes class 1 hopeless at first sight, the second makes class 0 more so."""
    narrow = np.array([[[1e-4]], [[1e-4]]])
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    first = Parameters(weights, np.array([[0.0], [0.5]]), narrow)
    second = Parameters(weights, np.array([[0.9], [0.0]]), narrow)
    rows = [Rows(np.zeros((1, 1))), Rows(np.zeros((1, 1)))]
    # log-likelihoods but for constants: class 0: 0 − 0.81/2e-4, class 1: −0.25/2e-4 + 0.
    assert predict(rows, [first, second]).tolist() == [1]
    assert predict(rows, [first, first]).tolist() == [0]


def test_the_root_of_a_negative_determinant_is_imaginary() -> None:
    """At x = 0 the kernels' densities are 1 and 1/i times the same number: |0.5 − 0.5i| < |0.79 − 0.2i|."""
    model = Parameters(np.array([[0.5, 0.79], [0.5, 0.2]]), np.zeros((2, 1)), np.array([[[1.0]], [[-1.0]]]))
    assert predict_published([Rows(np.zeros((1, 1)))], [model]).tolist() == [1]


# ---------------------------------------------------------------- illustration

OVERLAP = 1.35
"""How much larger errors are than if each row's kernel were known: at most 1.32 over 150 seeds."""
DEVIATIONS = 5.0
"""A Gaussian error beyond five standard deviations has probability 6e-7; there are 27 here."""


@pytest.fixture(scope="module")
def record() -> IllustrationRecord:
    return run_illustration(seed=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parameters_are_recovered_as_well_as_the_rows_allow(seed: int) -> None:
    record = run_illustration(seed)
    assert record.model.converged_
    found, errors = record.numbers(), []
    for name, standard_error in found["standard_error"].items():
        error = np.abs(found["estimated"][name] - found["true"][name]) / standard_error
        assert error.max() < DEVIATIONS * OVERLAP, name
        errors.append(error.ravel())
    # Errors of the stated size, not merely below a bound: 27 squared ones average to about one.
    assert 0.4 < np.mean(np.concatenate(errors) ** 2) < 2.5


def test_the_example_is_the_papers() -> None:
    example = illustration()
    assert_array_equal(example.means, [[0.0, 2.0], [3.0, 1.0], [6.0, 3.0]])
    assert_array_equal(example.covariances, [0.5 * np.eye(2)] * 3)
    assert_array_equal(example.weights, [[0.1, 0.7, 0.3], [0.8, 0.1, 0.1], [0.1, 0.2, 0.6]])
    assert_array_equal(example.start["means"], [[-1.0, 0.0], [2.0, 1.0], [7.0, 2.0]])
    assert_array_equal(example.start["covariances"], [2.0 * np.eye(2)] * 3)
    assert_array_equal(example.start["weights"], np.full((3, 3), 1.0 / 3.0))
    assert (example.n_per_class, example.max_iter) == (2000, 50)
    example.means[:] = 0.0
    assert illustration().means[2, 0] == 6.0
