"""Conditions predicted from the proportions of samples, against loops over samples and populations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture, Study, load
from skmix._errors import ArgumentError
from skmix.samples import merge_kernels

CENTRES = np.array([0.0, 12.0, 24.0])


def varied(n: int, effect: float, seed: int) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return cells of samples that vary far more than by counting, names of their samples, and arms."""
    random = np.random.default_rng(seed)
    arms, sizes = ["ab"[i % 2] for i in range(n)], random.integers(60, 240, n)
    means = {"a": [0.5, 0.3, 0.2], "b": [0.5 - effect, 0.3, 0.2 + effect]}
    shares = [random.dirichlet(15.0 * np.array(means[arm])) for arm in arms]
    kernels = np.concatenate([random.choice(3, size, p=p) for p, size in zip(shares, sizes, strict=True)])
    X = (CENTRES[kernels] + random.normal(size=len(kernels)))[:, None]
    return X, np.repeat([f"s{i:03}" for i in range(n)], sizes), arms


def study_of(X: np.ndarray, names: np.ndarray, **metadata: Any) -> Study:
    start = {"means": CENTRES[:, None], "covariances": np.ones((3, 1, 1))}
    return Study(SharedKernelMixture(3, init=start, weight_prior=None).fit(X, names), metadata=metadata)


def evidence(shares: np.ndarray, arms: list[Any], train: list[int], new: np.ndarray) -> np.ndarray:
    """Return the mean log-ratios of the cells of a sample for "a" and "b"."""
    usual, ratios = sum(shares[i] for i in train) / len(train), []
    for arm in "ab":
        inside = [shares[i] for i in train if arms[i] == arm]
        mean = (sum(inside) + usual) / (len(inside) + 1)
        ratios.append(sum(p * np.log(m / u) for p, m, u in zip(new, mean, usual, strict=True) if u > 0.0))
    return np.array(ratios)


def posterior(ratios: np.ndarray, size: float, rho: float, prior: Any) -> np.ndarray:
    odds = prior * np.exp(size * (ratios - ratios.max()) / (1.0 + (size - 1.0) * rho))
    return odds / odds.sum()


def brute(shares: np.ndarray, sizes: Any, arms: list[Any], units: list[Any]) -> list[np.ndarray]:
    """Return the probabilities (2,) of each sample, from those of other units."""
    known = [i for i, arm in enumerate(arms) if arm is not None]
    prior = [sum(arms[i] == arm for i in known) / len(known) for arm in "ab"]
    others = [[j for j in known if units[j] != units[i]] for i in range(len(arms))]
    ratios = [evidence(shares, arms, train, shares[i]) for i, train in enumerate(others)]
    found, grid = [], np.geomspace(1e-4, 1.0, 800)
    for i, train in enumerate(others):
        right, losses = (len(train) + 1.0) / (len(train) + 2.0), []
        for rho in grid:
            p = [posterior(ratios[j], sizes[j], rho, prior)["ab".index(arms[j])] for j in train]
            losses.append(-np.sum(right * np.log(p) + (1.0 - right) * np.log1p(-np.array(p))))
        found.append(posterior(ratios[i], sizes[i], grid[np.argmin(losses)], prior))
    return found


def test_held_out_samples_are_predicted_as_by_loops() -> None:
    """Also without the samples of the same donor, and with a sample of unknown condition."""
    X, names, arms = varied(9, 0.25, 1)
    kept = (names == "s003") | (X[:, 0] < 18.0)  # a population in one sample only
    arms, donors = [*arms[:8], None], [*"ppqqrrst", None]
    study = study_of(X[kept], names[kept], arm=arms, donor=donors)
    shares, sizes = study.composition.proportions, study.composition.sizes
    for pair, units in ((None, list(range(9))), ("donor", donors)):
        table = study.predict("arm", pair=pair)
        assert table.columns.tolist() == ["sample", "actual", "predicted", "p_a", "p_b"]
        assert table["actual"].tolist()[:8] == arms[:8]
        assert table["actual"].isna().tolist() == [False] * 8 + [True]
        assert_allclose(table[["p_a", "p_b"]], brute(shares, sizes, arms, units), atol=3e-3)
        assert table["predicted"].tolist() == ["ab"[p_b > 0.5] for p_b in table["p_b"]]


@pytest.mark.parametrize(("effect", "most"), [(0.0, 0.72), (0.3, 0.45)])
def test_new_samples_are_predicted_without_overconfidence(effect: float, most: float, tmp_path: Path) -> None:
    """Without an effect, the log-loss of independent cells would be 1.3 instead of log 2."""
    X, names, arms = varied(24, effect, 2)
    study, (others, of_sample, actual) = study_of(X, names, arm=arms), varied(200, effect, 3)
    new = study.apply_to(others, sample=of_sample)
    table, is_a = study.predict("arm", new), np.array(actual) == "a"
    assert table.columns.tolist() == ["sample", "predicted", "p_a", "p_b"]
    loss = -np.log(np.where(is_a, table["p_a"], table["p_b"])).mean()
    assert loss < most
    accuracy, held_out = (table["predicted"] == actual).mean(), study.predict("arm")
    assert table[["p_a", "p_b"]].max(axis=1).mean() < accuracy + 0.1
    assert abs((held_out["actual"] == held_out["predicted"]).mean() - accuracy) < 0.2
    study.save(tmp_path / "study.skmix")
    again = load(tmp_path / "study.skmix")
    pd.testing.assert_frame_equal(again.predict("arm"), held_out)
    pd.testing.assert_frame_equal(again.predict("arm", again.apply_to(others, sample=of_sample)), table)
    with pytest.raises(ValueError, match="a study of other populations"):
        again.predict("arm", new)
    # Conditions may come later. A single population says nothing: the shares of the arms remain.
    one = Study(study.model, merge_kernels(study.model, n_populations=1))
    assert_allclose(one.predict("arm", metadata={"arm": [*"aaab"] * 6})["p_a"], 0.75)


def test_what_cannot_be_predicted_is_refused() -> None:
    X, names, _ = varied(4, 0.3, 8)
    study = study_of(X, names, arm=[*"aabb"], none=[np.nan] * 4, one=[*"abbb"], donor=[*"ppqr"])
    for given, message in (
        ({}, "condition is missing"),
        ({"condition": "none"}, "condition='none' must have two values or more, each in two"),
        ({"condition": "one"}, "but has ['a', 'b'] in [1, 3]."),
        ({"condition": "arm", "pair": "donor"}, "but has ['a', 'b'] in [1, 2]."),
        ({"condition": "arm", "pair": "sex"}, "pair='sex' is not a column"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            study.predict(**given)


def test_the_page_shows_how_good_predictions_are() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    X, names, arms = varied(10, 0.3, 7)
    study = study_of(X, names, arm=arms, donor=[number // 2 for number in range(10)])
    table, page = (
        study.predict("arm", pair="donor"),
        study.to_html(comparison=study.compare("arm", pair="donor")),
    )
    loss = -np.log(np.where(table["actual"] == "a", table["p_a"], table["p_b"])).mean()
    right = (table["actual"] == table["predicted"]).sum()
    assert f"right for {right} of 10 samples; always saying the most frequent one is right for 5" in page
    assert f"The mean log-loss is {loss:.2f}; by the shares of the conditions alone, 0.69." in page
    assert "without those of its pair" in page
    # Too few samples are compared, but not predicted.
    assert "<h3>Predictions" not in study.to_html(comparison=study.compare(["s000"], ["s001", "s003"]))
