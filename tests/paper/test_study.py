"""The study's cells, its runs in a store, and its results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from synthetic import make_run, same_runs

from skmix.paper import (
    Settings,
    harness,
    make_data,
    make_study,
    run_one,
    run_study,
    study,
    study_cells,
    study_results,
)
from skmix.paper.harness import Store
from skmix.paper.records import StudyData, fingerprint
from skmix.paper.study import run_beyond, stored_runs
from skmix.paper.variants import VARIANTS, Cell

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
    with pytest.raises(ValueError, match="there is no variant '7D'"):
        study_cells(7, ["7D"])


def test_variants_have_the_papers_features() -> None:
    """Ten entries of the principal axis, then four quadrants, of which the first is left out."""
    masses = [11, 12, 13]
    assert {each.name: (each.columns, each.dithered) for each in VARIANTS} == {
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


def test_the_class_wise_start_is_compared_on_five_data_sets() -> None:
    further = [cell for cell in study_cells() if cell.data_set]
    assert {cell.data_set for cell in further} == {1, 2, 3, 4}
    assert {(cell.method, cell.n_kernels, cell.n_runs) for cell in further} == {
        ("robust", 10, 100),
        ("class-wise", 10, 100),
    }
    assert len({cell.variant for cell in further}) == 10
    # Too few runs, or one of the methods alone, have nothing to compare.
    assert not [cell for cell in study_cells(19) if cell.data_set]
    assert not [cell for cell in study_cells(methods=["robust"]) if cell.data_set]
    assert {cell.n_runs for cell in study_cells(20) if cell.data_set} == {20}
    assert Settings().seed == 0


def test_every_setting_is_part_of_the_key(data: StudyData, settings: Settings) -> None:
    cell = Cell("4D", 10, "robust", 3)

    def key(cell: Cell, settings: Settings, data: StudyData = data) -> str:
        (planned,) = make_study([cell], settings, data).planned()
        return harness.cell_key(planned.settings)

    other_images = dataclasses.replace(data, test_images=255 - data.test_images)
    keys = {
        key(cell, settings),
        key(dataclasses.replace(cell, variant="3D"), settings),
        key(dataclasses.replace(cell, n_kernels=12), settings),
        key(dataclasses.replace(cell, method="class-wise"), settings),
        key(cell, dataclasses.replace(settings, seed=9)),
        key(cell, dataclasses.replace(settings, dither="paper")),
        key(cell, dataclasses.replace(settings, max_iter=7)),
        key(cell, settings, other_images),
    }
    assert len(keys) == 8
    assert key(dataclasses.replace(cell, n_runs=9), settings) == key(cell, settings)


def test_batches_and_the_store_do_not_change_a_bit(
    tmp_path: Path, data: StudyData, settings: Settings
) -> None:
    study = make_study(CELLS, settings, data)
    with Store(tmp_path / "study.sqlite") as store:
        seen: list[object] = []
        run_study(study, store, progress=seen.extend)
        assert len(seen) == 21
        run_study(study, store, progress=lambda runs: pytest.fail("made again"))
        for cell, runs in stored_runs(study, store).items():
            assert [run.run for run in runs] == list(range(7))
            for number in (0, 5):
                alone = run_one(data, cell.variant, cell.n_kernels, cell.method, number, settings)
                assert same_runs(runs[number], alone)


def test_further_data_sets_have_the_next_seeds(tmp_path: Path, settings: Settings) -> None:
    cells = [Cell("3D", 10, method, 20, number) for number in (0, 1) for method in ("robust", "class-wise")]
    study = make_study(cells, settings)
    with Store(tmp_path / "study.sqlite") as store:
        run_study(study, store)
        results = study_results(study, store, beyond=())
        runs = stored_runs(study, store)
    assert len(results.runs) == 40
    assert [(each.seed, each.variant, each.n_runs) for each in results.margins] == [
        (5, "3D", 20),
        (6, "3D", 20),
    ]
    following = dataclasses.replace(settings, seed=6)
    alone = run_one(study.data[1], "3D", 10, "robust", 3, following)
    assert same_runs(runs[cells[2]][3], alone)
    margin = results.margins[1]
    assert margin.best_robust == max(run.accuracy for run in runs[cells[2]])
    assert margin.mean_class_wise == pytest.approx(np.mean([run.accuracy for run in runs[cells[3]]]))


def test_the_best_run_is_a_finite_one_and_margins_compare_means_with_the_best(
    data: StudyData, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell("3D", 10, method, 30) for method in ("robust", "class-wise")]
    accuracies = np.linspace(0.6, 0.9, 30)
    # Two robust runs and a class-wise one fail, an accuracy of one half included.
    lost = {"robust": {0: 0.5, 1: 0.2}, "class-wise": {3: 0.3}}
    runs = {
        cell: [
            make_run(
                method=cell.method,
                run=r,
                accuracy=lost[cell.method].get(r, each),
                reason="overflow" if r == 29 else "",
            )
            for r, each in enumerate(accuracies)
        ]
        for cell in cells
    }
    monkeypatch.setattr(study, "stored_runs", lambda *_: runs)
    monkeypatch.setattr(study, "fitted_mixtures", lambda *_: ())
    results = study_results(make_study(cells, settings, data), None, beyond=())  # type: ignore[arg-type]
    assert [best.run.run for best in results.best.values()] == [28, 28]
    (margin,) = results.margins
    assert margin.best_robust == 0.9
    mean = 0.75 - (accuracies[3] - 0.3) / 30
    assert margin.mean_class_wise == pytest.approx(mean)
    assert margin.shortfall == pytest.approx(0.9 - mean)
    assert (margin.seed, margin.variant, margin.n_runs, margin.n_failed) == (settings.seed, "3D", 30, 3)
    # The first runs count, as many on every data set.
    monkeypatch.setattr(study, "DATA_SET_RUNS", 20)
    (margin,) = study_results(make_study(cells, settings, data), None, beyond=()).margins  # type: ignore[arg-type]
    assert (margin.n_runs, margin.best_robust) == (20, accuracies[19])


# ---------------------------------------------------------------- data


def test_data_have_the_sizes_of_the_settings(data: StudyData) -> None:
    assert data.train_images.shape == (300, 28, 28)
    assert data.test_images.dtype == np.uint8
    assert np.bincount(data.train_labels).tolist() == [30] * 10
    assert np.bincount(data.test_labels).tolist() == [10] * 10
    assert data.train_features.shape == (300, 14)
    zero = np.abs(data.train_features) <= 1e-10
    assert zero.any()
    np.testing.assert_array_equal(data.train_dithered[~zero], data.train_features[~zero])
    assert 0.005 < data.train_dithered[zero].std() < 0.02


def test_data_follow_the_seed_part_by_part(data: StudyData, settings: Settings) -> None:
    again = make_data(settings)
    np.testing.assert_array_equal(again.test_dithered, data.test_dithered)
    assert fingerprint(again) == fingerprint(data)
    other = make_data(dataclasses.replace(settings, seed=settings.seed + 1))
    assert (other.train_images != data.train_images).any()
    assert fingerprint(other) != fingerprint(data)
    more = make_data(dataclasses.replace(settings, train_per_digit=31))
    np.testing.assert_array_equal(more.test_images, data.test_images)
    # As many images of each part would be the same ones if the parts shared a generator.
    alike = make_data(dataclasses.replace(settings, train_per_digit=10))
    assert not np.array_equal(alike.train_images, alike.test_images)
    same = alike.train_features == alike.test_features
    assert not np.array_equal(alike.train_dithered[same], alike.test_dithered[same])
    # Everything that runs depend on is in the digest.
    changed = []
    for field in dataclasses.fields(data):
        values = getattr(data, field.name).copy()
        values.flat[-1] += 1
        changed.append(dataclasses.replace(data, **{field.name: values}))
    assert len({fingerprint(each) for each in (data, *changed)}) == len(changed) + 1


@pytest.mark.slow
def test_shared_kernels_on_principal_components_read_the_images() -> None:
    """At the paper's number of training images; the paper's features stay behind for every learner."""
    data = make_data(Settings(seed=11, train_per_digit=100, test_per_digit=50))
    found = {beyond.name: beyond for beyond in run_beyond(data, seed=0)}
    assert found["shared kernels, principal components"].accuracy >= 0.995
    assert found["shared kernels, principal components"].ours
    assert not found["support vector machine, principal components"].ours
    for name in ("shared kernels, paper's features", "support vector machine, paper's features"):
        assert 0.9 < found[name].accuracy < 0.99
    for beyond in found.values():
        assert beyond.confusion.sum() == 500
        assert beyond.accuracy == np.trace(beyond.confusion) / 500


def test_no_classifier_learns_from_the_test_images(data: StudyData) -> None:
    """With wrong test labels, whoever has seen them would do better than chance."""
    shuffled = np.random.RandomState(0).permutation(data.test_labels)
    found = run_beyond(dataclasses.replace(data, test_labels=shuffled), seed=0)
    for beyond in found:
        assert beyond.accuracy < 0.3, beyond.name
        assert beyond.accuracy == np.trace(beyond.confusion) / 100
    assert [each.ours for each in found] == [True, False, True, False]
    assert found[2].description == "SharedKernelClassifier with 10 kernels on the paper's 13 features"
