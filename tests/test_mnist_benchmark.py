"""The benchmark of MNIST, on images made here: what it may look at, and what it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scripts import load_script


@pytest.fixture(scope="module")
def mnist() -> ModuleType:
    return load_script("benchmarks/mnist.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of IDX files: noise with one bright patch, at the place of the label.

    The labels of the test images are all wrong by one.
    """
    folder = tmp_path_factory.mktemp("mnist")
    random = np.random.default_rng(0)
    for part, n_each in (("train", 60), ("t10k", 6)):
        labels = random.permutation(np.repeat(np.arange(10, dtype=np.uint8), n_each))
        images = random.integers(0, 60, size=(len(labels), 12, 12), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = 2 * (label // 5) + 3, 2 * (label % 5) + 1
            image[row : row + 2, column : column + 2] = 250
        told = labels if part == "train" else (labels + 1) % 10
        for kind, values in (("images-idx3", images), ("labels-idx1", told.astype(np.uint8))):
            shape = np.array(values.shape, dtype=">u4").tobytes()
            header = bytes([0, 0, 8, values.ndim]) + shape
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + values.tobytes())
    return folder


@pytest.fixture
def results(
    mnist: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return a way to call the script with arguments, in this process, for what it writes."""

    def main(*arguments: str) -> Any:
        places = ("--folder", str(folder), "--out", str(tmp_path / "mnist.json"))
        monkeypatch.setattr(sys, "argv", ["mnist.py", "--threads", "1", "--seeds", "0", *arguments, *places])
        mnist.main()
        return json.loads((tmp_path / "mnist.json").read_text())

    return main


def test_trials_are_judged_by_training_images_alone(results: Callable[..., Any]) -> None:
    settings = ["components=8", "kernels=1", "prior=5", "steps=2", "start=class,separate"]
    found = results("--try", *settings)
    assert found["judged_by"] == "training images kept for judging"
    outcomes = [outcome for several in found["outcomes"].values() for outcome in several]
    assert {outcome["recipe"]["start"] for outcome in outcomes} == {"class", "separate"}
    # Every test label is wrong, so that a look at them would show as an error of one.
    assert all(outcome["error"] < 0.1 for outcome in outcomes)


@pytest.mark.filterwarnings("ignore:All 12 rows are classified correctly")
def test_models_are_judged_by_the_test_images(
    results: Callable[..., Any], mnist: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {"components": 8, "steps": 2}
    monkeypatch.setitem(mnist.RECIPES, "smallest", replace(mnist.RECIPES["smallest"], **fewer))
    (outcome,) = results("--models", "smallest")["outcomes"]["smallest"]
    assert outcome["error"] > 0.9
    kernels, components = 10 * outcome["recipe"]["kernels"], outcome["recipe"]["components"]
    # Means, covariances, weights that sum to one in each class, and class priors that do too.
    own = kernels * (components + components * (components + 1) // 2) + 10 * (kernels - 1) + 9
    assert outcome["parameters"] == own
    assert outcome["parameters_of_components"] == (components + 1) * 12 * 12


def test_images_for_judging_are_not_trained_on(mnist: ModuleType) -> None:
    labels = np.repeat(np.arange(10), 30)
    numbered = np.arange(300, dtype=np.int64).reshape(-1, 1, 1)
    inside = mnist.within_training(mnist.SplitImages(numbered, labels, numbered[:0] - 1, labels[:0]))
    together = np.concatenate([inside.train_images, inside.test_images]).ravel()
    assert np.array_equal(np.sort(together), np.arange(300))
    assert np.array_equal(inside.test_labels, labels[inside.test_images.ravel()])
    assert np.bincount(inside.test_labels).tolist() == [5] * 10
