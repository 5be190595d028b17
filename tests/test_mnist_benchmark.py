"""The benchmark of MNIST, on images made here: what it may look at, and what it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scripts import load_script
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss

from skmix.datasets import SplitImages


@pytest.fixture(scope="module")
def mnist() -> ModuleType:
    return load_script("benchmarks/mnist.py")


def images_of(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return noise with one bright patch, at the place of the label."""
    images = random.integers(0, 60, size=(len(labels), 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = 2 * (label // 5) + 3, 2 * (label % 5) + 1
        image[row : row + 2, column : column + 2] = 250
    return images


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of IDX files; the labels of the test images are all wrong by one."""
    folder = tmp_path_factory.mktemp("mnist")
    random = np.random.default_rng(0)
    for part, n_each in (("train", 60), ("t10k", 6)):
        labels = np.repeat(np.arange(10, dtype=np.uint8), n_each)
        random.shuffle(labels)
        images = images_of(labels, random)
        told = labels if part == "train" else (labels + 1) % 10
        for kind, values in (("images-idx3", images), ("labels-idx1", told.astype(np.uint8))):
            shape = np.array(values.shape, dtype=">u4").tobytes()
            header = bytes([0, 0, 8, values.ndim]) + shape
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + values.tobytes())
    return folder


@pytest.fixture
def call(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a way to call the script with arguments, in this process."""

    def main(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["mnist.py", "--threads", "1", "--seeds", "0", *arguments])
        mnist.main()

    return main


def test_trials_are_judged_by_training_images_alone(
    call: Callable[..., None], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trials.json"
    settings = ["components=8", "kernels=1", "prior=5", "passes=2", "start=class,separate"]
    call("--folder", str(folder), "--try", *settings, "--out", str(out))
    results = json.loads(out.read_text())
    assert results["judged_by"] == "training images kept for judging"
    outcomes = [outcome for several in results["outcomes"].values() for outcome in several]
    assert {outcome["recipe"]["start"] for outcome in outcomes} == {"class", "separate"}
    # Every test label is wrong, so that a look at them would show as an error of one.
    assert all(outcome["error"] < 0.1 for outcome in outcomes)


@pytest.mark.filterwarnings("ignore:All 12 rows are classified correctly")
def test_models_are_judged_by_the_test_images(
    call: Callable[..., None], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mnist.json"
    call("--folder", str(folder), "--models", "smallest", "--out", str(out))
    results = json.loads(out.read_text())
    (outcome,) = results["outcomes"]["smallest"]
    assert outcome["error"] > 0.9
    assert set(outcome["seconds"]) == {"prepare", "fit"}
    kernels, components = 10 * outcome["recipe"]["kernels"], outcome["recipe"]["components"]
    # Means, covariances, weights that sum to one in each class, and class priors that do too.
    own = kernels * (components + components * (components + 1) // 2) + 10 * (kernels - 1) + 9
    assert outcome["parameters"] == own
    assert outcome["parameters_of_components"] == (components + 1) * 12 * 12


def test_members_are_averaged(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes would take seconds to start.
    monkeypatch.setattr(mnist, "fresh_processes", ThreadPoolExecutor)
    random = np.random.default_rng(1)
    labels = np.tile(np.arange(10), 30)
    images = images_of(labels, random)
    # Some labels are wrong, so that members are of different minds.
    told = np.where(random.random(300) < 0.2, random.permutation(labels), labels)
    data = SplitImages(images[:200], told[:200], images[200:], told[200:])
    recipe = mnist.Recipe(components=5, kernels=1, passes=2, batch=50, judge=False, members=2)
    outcome = mnist.measure(recipe, data, seed=3, threads=2)

    flat = images.reshape(300, -1).astype(float)
    pca = PCA(5, random_state=3).fit(flat[:200])
    rows, judged = pca.transform(flat[:200]), pca.transform(flat[200:])
    # Seeds 0, 1 and 2 have the six members before these.
    members = [mnist.fit_member(recipe, rows, told[:200], 1, seed) for seed in (6, 7)]
    first, second = (each.model.predict_proba(judged) for each in members)
    assert np.abs(first - second).max() > 0.01
    mean = (first + second) / 2
    assert outcome.log_loss == pytest.approx(log_loss(told[200:], mean))
    assert outcome.error == pytest.approx(np.mean(mean.argmax(axis=1) != told[200:]))
    assert outcome.error_after == pytest.approx(np.mean([each.error_after for each in members]))
    assert outcome.parameters == 2 * (10 * (5 + 15) + 10 * 9 + 9)


def test_images_for_judging_are_not_trained_on(mnist: ModuleType) -> None:
    labels = np.repeat(np.arange(10), 30)
    numbered = np.arange(300, dtype=np.int64).reshape(-1, 1, 1)
    inside = mnist.within_training(SplitImages(numbered, labels, numbered[:0] - 1, labels[:0]))
    together = np.concatenate([inside.train_images, inside.test_images]).ravel()
    assert np.array_equal(np.sort(together), np.arange(300))
    assert np.array_equal(inside.test_labels, labels[inside.test_images.ravel()])
    assert np.bincount(inside.test_labels).tolist() == [5] * 10


def test_settings_combine_or_are_refused(mnist: ModuleType) -> None:
    recipes = mnist.combinations(["kernels=2,3", "deskew=yes", "trade_off=0.001+0,0"])
    assert [(each.kernels, each.deskew, each.trade_off) for each in recipes] == [
        *((2, True, (0.001, 0.0)), (2, True, (0.0,)), (3, True, (0.001, 0.0)), (3, True, (0.0,))),
    ]
    for setting, message in (
        ("kernel=2", "'kernel=2' is not NAME=VALUE.* among deskew, components"),
        ("deskew=1", "deskew is yes or no, got '1'"),
        ("start=random", "start is class or separate, got 'random'"),
        ("members=0", "members is a number from 1 on, got '0'"),
    ):
        with pytest.raises(ValueError, match=message):
            mnist.combinations([setting])
