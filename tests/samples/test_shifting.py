"""Populations that shift from sample to sample become one; those that replace each other stay apart."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import pytest

from skmix import Study, compose

Kind = Literal["shift", "replace", "both"]


def simulated(
    kind: Kind, distance: float, n_samples: int = 8, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return cells of a population that stays, and of one that is elsewhere in some samples."""
    random, rows = np.random.default_rng(seed), []
    for j in range(n_samples):
        X = random.normal(size=(450, 4))
        X[300:, 0] += 12.0
        is_late, is_some = float(j >= n_samples // 2), np.arange(150) < 15 * j
        moved = {"shift": random.normal(), "replace": is_late, "both": is_some}[kind]
        X[300:, 1] += distance * np.asarray(moved)
        rows.append(X)
    return np.concatenate(rows), np.repeat(np.arange(n_samples), 450)


def composed(kind: Kind, distance: float, **settings: int) -> Study:
    X, sample = simulated(kind, distance, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of those that stay apart
        return compose(X, sample=sample)


@pytest.mark.parametrize("seed", range(3))
def test_a_population_that_shifts_from_sample_to_sample_is_one(seed: int) -> None:
    study = composed("shift", 4.0, n_samples=12, seed=seed)
    shares = study.proportions.groupby("population")["proportion"].agg(["min", "max"])
    # A third of each sample shifts.
    assert ((shares["min"] > 0.25) & (shares["max"] < 0.4)).any()
    assert len(study.populations) <= 3


def test_what_was_made_one_is_said() -> None:
    study = composed("shift", 6.0, n_samples=12)
    assert len(study.about.origin.joined) == 1
    assert dict(study.provenance())["joined"]
    assert study.describe()["joined"]


@pytest.mark.parametrize("distance", [6.0, 8.0])
@pytest.mark.parametrize("kind", ["replace", "both"])
def test_populations_that_replace_each_other_or_coexist_stay_apart(kind: Kind, distance: float) -> None:
    study = composed(kind, distance)
    assert study.about.origin.joined == ()
    assert len(study.populations) == 3
    assert bool(study.warnings) == (kind == "replace")


def test_replacements_are_not_taken_for_shifts_at_four_deviations() -> None:
    """There kernels overlap."""
    for seed in range(3):
        assert composed("replace", 4.0, seed=seed).about.origin.joined == ()


def test_a_number_of_populations_that_is_told_is_kept() -> None:
    X, sample = simulated("shift", 4.0, n_samples=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = compose(X, sample=sample, n_populations=4)
    assert len(study.populations) == 4
